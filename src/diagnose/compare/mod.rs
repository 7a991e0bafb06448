//! Runs two executors step by step from the same inputs, and finds where their values differ.
//!
//! Both executors begin each step with `a`'s values: after the comparison `a`'s results are copied to `b`. So a
//! difference belongs to one step, and the steps after a wrong one are judged independently. Keys and values are
//! rounded to the narrower of the two caches. Steps that an executor fuses run twice: each step alone, and then all
//! together, with the kernels of a whole pass.
//!
//! An element differs if its difference exceeds its bound, which follows from the tolerances of both executors
//! ([`Tolerance`](crate::executor::Tolerance)): a share of the larger of the element and its row's root mean square in
//! `a`. If that does not suffice, a multiple of the element's movement is added, when the step's inputs are perturbed
//! by as much as they may be rounded. So a product whose terms cancel may differ by more than one whose terms do not.

mod bound;
mod tensor;

use crate::error::{Setting, text};
use crate::executor::{HeadRows, Row, Stepwise};
use crate::schedule::{Schedule, Segment};
use crate::{Error, Result};
use std::ops::{ControlFlow, Range};
use tensor::{Tensor, read, written};

/// The most rows of logits in a pass of a comparison, because there are kernels for one row and for several.
pub const HEAD_ROWS: usize = 4;

/// A pass that both executors of a comparison run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ComparedPass {
    /// The rows of the pass, all of one sequence.
    pub rows: Vec<Row>,
    /// The last rows, whose logits are compared.
    pub head: HeadRows,
}

/// The result of a step, or of several fused ones, in one tensor: the element closest to its bound, or furthest beyond
/// it.
#[derive(Debug, Clone, PartialEq)]
pub struct Compared {
    /// The index of the pass.
    pub pass: usize,
    /// The indices of the compared steps.
    pub steps: Range<usize>,
    /// The segment that the first step belongs to.
    pub segment: Segment,
    /// The step's name; for several steps the first and the last: `q_norm_rope to attend`.
    pub label: String,
    /// The slot with its columns (`chosen`: a row's experts), or `keys`, `values` or `next`.
    pub tensor: String,
    /// The element's row, of the pass or of its head rows.
    pub row: usize,
    /// The column of the element.
    pub column: usize,
    /// The element's value in executor `a`.
    pub a: f32,
    /// The element's value in executor `b`.
    pub b: f32,
    /// The bound on the difference of the two values.
    pub bound: f32,
    /// The difference as a share of the bound. Not finite if one of the elements is not.
    pub share: f32,
}

impl Compared {
    /// True if the difference exceeds the bound.
    pub fn differs(&self) -> bool {
        self.share.is_nan() || self.share > 1.0
    }
}

/// The passes of a comparison over `tokens`: all but the last in chunks of `chunk`, then the last token alone.
pub fn passes(tokens: &[u32], chunk: usize, head_rows: usize) -> Vec<ComparedPass> {
    let rows = (0..).zip(tokens).map(|(position, &token)| Row { token, position, sequence: 0 });
    let rows: Vec<Row> = rows.collect();
    let (prompt, last) = rows.split_at(rows.len().saturating_sub(1));
    let pass = |rows: &[Row]| {
        let count = rows.len().min(head_rows);
        ComparedPass { rows: rows.to_vec(), head: HeadRows { first: rows.len() - count, count } }
    };
    prompt.chunks(chunk.max(1)).chain([last]).filter(|rows| !rows.is_empty()).map(pass).collect()
}

/// Runs `passes` on both executors, and calls `seen` with each step's results; `seen` may stop it. `scale` multiplies
/// all bounds.
///
/// # Errors
/// Input: there is no token. Failed: the executors do not run the same schedule. As for [`Stepwise`].
pub fn compare(
    [a, b]: [&mut dyn Stepwise; 2],
    passes: &[ComparedPass],
    scale: f32,
    seen: &mut dyn FnMut(Compared) -> ControlFlow<()>,
) -> Result<()> {
    let schedule = a.schedule().clone();
    if passes.is_empty() {
        return Err(Error::input("there is no token to compare with", text!("give some with ", Setting::Tokens)));
    }
    if schedule.arena != b.schedule().arena || schedule.steps.len() != b.schedule().steps.len() {
        return Err(Error::failed("the executors do not run the same schedule", "report this"));
    }
    let mut pair = Pair { executors: [a, b], schedule, scale };
    for (index, pass) in passes.iter().enumerate() {
        if pair.run(index, pass, seen)?.is_break() {
            break;
        }
    }
    Ok(())
}

/// The two executors that are compared, which run the same schedule.
struct Pair<'a> {
    executors: [&'a mut dyn Stepwise; 2],
    schedule: Schedule,
    scale: f32,
}

impl Pair<'_> {
    /// Runs one pass on both executors, and compares its steps.
    fn run(
        &mut self,
        index: usize,
        pass: &ComparedPass,
        seen: &mut dyn FnMut(Compared) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        for executor in &mut self.executors {
            executor.begin_pass(&pass.rows, Some(pass.head))?;
        }
        for range in self.ranges()? {
            let tensors = written(&self.schedule, range.clone());
            let before = self.read_all(&tensors, pass)?;
            for step in range.clone() {
                let step = step..step + 1;
                let own = written(&self.schedule, step.clone());
                let (found, computed) = self.run_and_compare(index, step, &own, pass)?;
                self.write_all(&own, &computed, pass)?;
                if found.into_iter().try_for_each(&mut *seen).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
            if range.len() > 1 {
                let after = self.read_all(&tensors, pass)?;
                self.write_all(&tensors, &before, pass)?;
                let is_live = |tensor: &&Tensor| tensor.is_read_behind(&self.schedule, range.end);
                let live: Vec<Tensor> = tensors.iter().filter(is_live).cloned().collect();
                let (found, _) = self.run_and_compare(index, range, &live, pass)?;
                self.write_all(&tensors, &after, pass)?;
                if found.into_iter().try_for_each(&mut *seen).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// The smallest ranges of steps that both executors run separately within a whole pass.
    fn ranges(&self) -> Result<Vec<Range<usize>>> {
        let [a, b] = [self.executors[0].ranges()?, self.executors[1].ranges()?];
        let ends = a.iter().map(|r| r.end).filter(|end| b.iter().any(|r| r.end == *end));
        Ok(ends
            .scan(0, |start, end| {
                let range = *start..end;
                *start = end;
                Some(range)
            })
            .collect())
    }

    /// Runs steps on both executors and compares the results in `tensors`. Also returns the results of `a`.
    fn run_and_compare(
        &mut self,
        index: usize,
        steps: Range<usize>,
        tensors: &[Tensor],
        pass: &ComparedPass,
    ) -> Result<(Vec<Compared>, Vec<Vec<f32>>)> {
        let inputs = read(&self.schedule, steps.clone());
        let given = self.read_all(&inputs, pass)?;
        for executor in &mut self.executors {
            executor.run_steps(steps.clone())?;
        }
        let of_a = self.read_all(tensors, pass)?;
        let of_b = tensors.iter().map(|tensor| tensor.read(self.executors[1], pass)).collect::<Result<Vec<_>>>()?;
        let of = |executor: &dyn Stepwise| bound::sum(steps.clone().map(|step| executor.tolerance(step)));
        let own = [of(self.executors[0]), of(self.executors[1])];
        let (tolerance, scale) = (bound::sum(own.into_iter()), self.scale);
        let bounds = |moved: &[Vec<f32>]| -> Vec<Vec<f32>> {
            let of = |(i, tensor): (usize, &Tensor)| match tensor.is_exact() {
                true => vec![0.0; of_a[i].len()],
                false => bound::of_rows(&of_a[i], moved.get(i).map(Vec::as_slice), tensor.width(), tolerance, scale),
            };
            tensors.iter().enumerate().map(of).collect()
        };
        let find = |bounds: &[Vec<f32>]| -> Vec<Option<bound::Worst>> {
            (0..tensors.len()).map(|i| bound::worst(&of_a[i], &of_b[i], &bounds[i])).collect()
        };
        let mut worst = find(&bounds(&[]));
        if worst.iter().flatten().any(|worst| worst.is_past()) {
            let [a, b] = [within(self.executors[0].ranges()?, &steps), within(self.executors[1].ranges()?, &steps)];
            // The executor with smaller ranges shows the effect of rounding between these steps; with equal ranges, the
            // more exact one.
            let is_b = b.len().cmp(&a.len()).then(own[0].inputs.total_cmp(&own[1].inputs)).is_gt();
            let (by, parts, left) = if is_b { (1, b, &of_b) } else { (0, a, &of_a) };
            let moved = self.moved(by, &parts, [&inputs, tensors], [&given, left], pass)?;
            worst = find(&bounds(&moved));
        }
        let labels = [steps.start, steps.end - 1].map(|step| self.schedule.steps[step].label);
        let label = if steps.len() == 1 { labels[0].to_owned() } else { labels.join(" to ") };
        let found = tensors.iter().zip(worst).filter_map(|(tensor, worst)| {
            let bound::Worst { at, a, b, bound, share } = worst?;
            Some(Compared {
                pass: index,
                steps: steps.clone(),
                segment: self.schedule.steps[steps.start].segment,
                label: label.clone(),
                tensor: tensor.name(&self.schedule),
                row: at / tensor.width(),
                column: at % tensor.width(),
                a,
                b,
                bound,
                share,
            })
        });
        Ok((found.collect(), of_a))
    }

    /// The movement of each result, as a root mean square, when executor `by` runs the ranges `parts` and the inputs of
    /// each range are perturbed by as much as both executors may round them. Rounding between the ranges matters as
    /// much as that of the inputs: attention averages its inputs' errors, and the product after it rounds the average
    /// again. `given`: the inputs of all the steps; `left`: their results, which are restored at the end.
    fn moved(
        &mut self,
        by: usize,
        parts: &[Range<usize>],
        [inputs, outputs]: [&[Tensor]; 2],
        [given, left]: [&[Vec<f32>]; 2],
        pass: &ComparedPass,
    ) -> Result<Vec<Vec<f32>>> {
        let mut squares: Vec<Vec<f32>> = left.iter().map(|values| vec![0.0; values.len()]).collect();
        for trial in 0..bound::TRIALS {
            for (tensor, values) in inputs.iter().zip(given) {
                tensor.write(self.executors[by], pass, values)?;
            }
            for part in parts {
                let both = self.executors.iter().flat_map(|e| part.clone().map(|step| e.tolerance(step)));
                let tolerance = bound::sum(both);
                for (i, tensor) in read(&self.schedule, part.clone()).iter().enumerate() {
                    if tensor.is_exact() {
                        continue;
                    }
                    let seed = (trial << 32 | part.start << 8 | i) as u64;
                    let values = tensor.read(self.executors[by], pass)?;
                    let moved = bound::moved(&values, tensor.width(), tolerance, trial, seed);
                    tensor.write(self.executors[by], pass, &moved)?;
                }
                self.executors[by].run_steps(part.clone())?;
            }
            for (tensor, (squares, left)) in outputs.iter().zip(squares.iter_mut().zip(left)) {
                let values = tensor.read(self.executors[by], pass)?;
                squares.iter_mut().zip(values.iter().zip(left)).for_each(|(s, (x, y))| *s += (x - y) * (x - y));
            }
        }
        for (tensor, values) in inputs.iter().zip(given).chain(outputs.iter().zip(left)) {
            tensor.write(self.executors[by], pass, values)?;
        }
        let mean = |squares: Vec<f32>| squares.into_iter().map(|s| (s / bound::TRIALS as f32).sqrt()).collect();
        Ok(squares.into_iter().map(mean).collect())
    }

    /// Reads tensors of a pass from executor `a`.
    fn read_all(&mut self, tensors: &[Tensor], pass: &ComparedPass) -> Result<Vec<Vec<f32>>> {
        tensors.iter().map(|tensor| tensor.read(self.executors[0], pass)).collect()
    }

    /// Writes the same tensors to both executors, rounded to the narrower of the two formats.
    fn write_all(&mut self, tensors: &[Tensor], values: &[Vec<f32>], pass: &ComparedPass) -> Result<()> {
        let elements = self.executors.each_ref().map(|executor| executor.schedule().extent.kv);
        for (tensor, values) in tensors.iter().zip(values) {
            let values = tensor.rounded(values.clone(), elements);
            for executor in &mut self.executors {
                tensor.write(*executor, pass, &values)?;
            }
        }
        Ok(())
    }
}

/// The ranges of an executor that make up `steps`, or `steps` itself if it is part of a larger range.
fn within(ranges: Vec<Range<usize>>, steps: &Range<usize>) -> Vec<Range<usize>> {
    let parts: Vec<_> = ranges.into_iter().filter(|part| steps.start <= part.start && part.end <= steps.end).collect();
    if parts.is_empty() { vec![steps.clone()] } else { parts }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fused steps are also compared one by one; with no range to perturb, their bound would be 0.
    #[test]
    fn steps_consist_of_ranges_or_are_a_part_of_one() {
        let of = |steps| within(vec![0..1, 1..2, 2..5, 5..6], &steps);
        assert_eq!(of(0..2), [0..1, 1..2]);
        assert_eq!(of(2..5), [2..5; 1]);
        assert_eq!(of(1..6), [1..2, 2..5, 5..6]);
        for step in 2..5 {
            assert_eq!(of(step..step + 1), [step..step + 1; 1]);
        }
    }

    #[test]
    fn the_last_token_runs_alone_behind_chunks_of_the_others() {
        let lengths = |tokens: usize, chunk| {
            let all = passes(&vec![5; tokens], chunk, 4);
            let of = |p: &ComparedPass| (p.rows[0].position, p.rows.len(), p.head.first, p.head.count);
            all.iter().map(of).collect::<Vec<_>>()
        };
        assert_eq!(lengths(8, 3), [(0, 3, 0, 3), (3, 3, 0, 3), (6, 1, 0, 1), (7, 1, 0, 1)]);
        assert_eq!(lengths(8, 100), [(0, 7, 3, 4), (7, 1, 0, 1)]);
        assert_eq!((lengths(1, 4), lengths(0, 4)), (vec![(0, 1, 0, 1)], vec![]));
    }
}
