//! Runs two executors step by step from the same inputs, and finds where their numbers differ.
//!
//! Every step begins from `a`'s values in both: what `a` has computed is given to `b` once it has been compared. So a
//! difference is of one step, and the steps behind a wrong one are judged for themselves. Keys and values are rounded to the
//! narrower of the two caches. What an executor runs as one, it runs twice: each of its steps alone, and then all together,
//! with the kernels of a whole pass.
//!
//! An element differs if it is further apart than its bound: the tolerances of both executors for the step
//! ([`Stepwise::tolerance`]), as a share of the larger of the element and its row's root mean square in `a`.

mod tensor;

use crate::error::{Setting, text};
use crate::executor::{HeadRows, Row, Stepwise};
use crate::schedule::{Schedule, Segment};
use crate::{Error, Result};
use std::ops::{ControlFlow, Range};
use tensor::{Tensor, written};

/// Rows of logits that a pass of a comparison makes, where it has as many rows: there are kernels for one and for several.
pub const HEAD_ROWS: usize = 4;

/// A pass of a comparison.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pass {
    /// Its rows, of one sequence.
    pub rows: Vec<Row>,
    /// Those whose logits are made: the last ones.
    pub head: HeadRows,
}

/// What a step, or several that run as one, left in one tensor: the element that is nearest to its bound, or furthest past it.
#[derive(Debug, Clone, PartialEq)]
pub struct Compared {
    /// Index of the pass.
    pub pass: usize,
    /// Indices of the steps.
    pub steps: Range<usize>,
    /// The first step's part of the pass.
    pub segment: Segment,
    /// The step's name; of several the first one's and the last one's: `q_norm_rope to attend`.
    pub label: String,
    /// The slot with its columns, `keys`, `values` or `next`.
    pub tensor: String,
    /// The element's row, of the pass or of its head rows.
    pub row: usize,
    /// The element's column.
    pub column: usize,
    /// The element in `a`.
    pub a: f32,
    /// The element in `b`.
    pub b: f32,
    /// How far apart the two may be.
    pub bound: f32,
    /// How far apart they are, as a share of that. Not finite where one of them is no number.
    pub share: f32,
}

impl Compared {
    /// Whether the two are further apart than they may be.
    pub fn differs(&self) -> bool {
        self.share.is_nan() || self.share > 1.0
    }
}

/// The passes that a comparison runs over `tokens`: all but the last in chunks of `chunk`, then the last one alone.
pub fn passes(tokens: &[u32], chunk: usize, head_rows: usize) -> Vec<Pass> {
    let rows = (0..).zip(tokens).map(|(position, &token)| Row { token, position, sequence: 0 });
    let rows: Vec<Row> = rows.collect();
    let (prompt, last) = rows.split_at(rows.len().saturating_sub(1));
    let pass = |rows: &[Row]| {
        let count = rows.len().min(head_rows);
        Pass { rows: rows.to_vec(), head: HeadRows { first: rows.len() - count, count } }
    };
    prompt.chunks(chunk.max(1)).chain([last]).filter(|rows| !rows.is_empty()).map(pass).collect()
}

/// Runs `passes` on both executors, and shows `seen` what each step left; `seen` may end it. `scale` multiplies all bounds.
///
/// # Errors
/// Input: there is no token. Failed: the executors do not run the same schedule. As for [`Stepwise`].
pub fn compare(
    [a, b]: [&mut dyn Stepwise; 2],
    passes: &[Pass],
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

/// Two executors of one schedule.
struct Pair<'a> {
    executors: [&'a mut dyn Stepwise; 2],
    schedule: Schedule,
    scale: f32,
}

impl Pair<'_> {
    /// Runs one pass.
    fn run(
        &mut self,
        index: usize,
        pass: &Pass,
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
                let found = self.run_and_compare(index, step, &own, pass)?;
                let agreed = self.read_all(&own, pass)?;
                self.write_all(&own, &agreed, pass)?;
                if found.into_iter().try_for_each(&mut *seen).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
            if range.len() > 1 {
                let after = self.read_all(&tensors, pass)?;
                self.write_all(&tensors, &before, pass)?;
                let live: Vec<Tensor> =
                    tensors.iter().filter(|t| t.is_read_behind(&self.schedule, range.end)).cloned().collect();
                let found = self.run_and_compare(index, range, &live, pass)?;
                self.write_all(&tensors, &after, pass)?;
                if found.into_iter().try_for_each(&mut *seen).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// The smallest ranges of steps that both executors can run by themselves as a whole pass runs them.
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

    /// Runs steps on both, and compares what they leave in `tensors`.
    fn run_and_compare(
        &mut self,
        index: usize,
        steps: Range<usize>,
        tensors: &[Tensor],
        pass: &Pass,
    ) -> Result<Vec<Compared>> {
        for executor in &mut self.executors {
            executor.run_steps(steps.clone())?;
        }
        let tolerances = steps.clone().flat_map(|step| self.executors.iter().map(move |e| e.tolerance(step)));
        let tolerance = self.scale * tolerances.sum::<f32>();
        let labels = [steps.start, steps.end - 1].map(|step| self.schedule.steps[step].label);
        let label = if steps.len() == 1 { labels[0].to_owned() } else { labels.join(" to ") };
        let mut found = Vec::new();
        for tensor in tensors {
            let [a, b] = [0, 1].map(|i| tensor.read(self.executors[i], pass));
            let width = tensor.width();
            let worst = worst(&a?, &b?, width, if tensor.is_exact() { 0.0 } else { tolerance });
            let Some(Worst { at, a, b, bound, share }) = worst else { continue };
            found.push(Compared {
                pass: index,
                steps: steps.clone(),
                segment: self.schedule.steps[steps.start].segment,
                label: label.clone(),
                tensor: tensor.name(&self.schedule),
                row: at / width,
                column: at % width,
                a,
                b,
                bound,
                share,
            });
        }
        Ok(found)
    }

    /// The tensors in `a`.
    fn read_all(&mut self, tensors: &[Tensor], pass: &Pass) -> Result<Vec<Vec<f32>>> {
        tensors.iter().map(|tensor| tensor.read(self.executors[0], pass)).collect()
    }

    /// Gives both executors the same tensors, rounded as the narrower of them keeps them.
    fn write_all(&mut self, tensors: &[Tensor], values: &[Vec<f32>], pass: &Pass) -> Result<()> {
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

/// An element that is nearest to its bound, or furthest past it.
struct Worst {
    at: usize,
    a: f32,
    b: f32,
    bound: f32,
    share: f32,
}

/// The worst element of rows of `width`; `None` where there are none.
fn worst(a: &[f32], b: &[f32], width: usize, tolerance: f32) -> Option<Worst> {
    let mut worst: Option<Worst> = None;
    for (row, (of_a, of_b)) in a.chunks(width).zip(b.chunks(width)).enumerate() {
        let square = of_a.iter().map(|x| f64::from(*x) * f64::from(*x)).sum::<f64>();
        let rms = (square / width as f64).sqrt() as f32;
        for (column, (&a, &b)) in of_a.iter().zip(of_b).enumerate() {
            let bound = tolerance * rms.max(a.abs());
            let apart = (a - b).abs();
            let share = if a == b { 0.0 } else { apart / bound };
            // What is no number is worse than any number.
            if worst.as_ref().is_none_or(|worst| !worst.share.is_nan() && !(share <= worst.share)) {
                worst = Some(Worst { at: row * width + column, a, b, bound, share });
            }
        }
    }
    worst
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_element_is_the_furthest_past_its_bound_and_what_is_no_number_is_past_all() {
        let of = |b: &[f32]| worst(&[1.0, -1.0, 100.0, 0.0], b, 2, 0.01).map(|w| (w.at, w.share)).unwrap();
        assert_eq!(of(&[1.0, -1.0, 100.0, 0.0]), (0, 0.0));
        let (at, share) = of(&[1.02, -1.0, 100.5, 0.0]);
        assert!(at == 0 && (share - 2.0).abs() < 1e-4, "{share}");
        // An element far below its row's root mean square may be off by a share of that.
        let (at, share) = of(&[1.0, -1.0, 100.0, 0.5]);
        assert!(at == 3 && (share - 0.5 / (0.01 * 5000f32.sqrt())).abs() < 1e-4, "{share}");
        for b in [f32::NAN, f32::INFINITY] {
            let found = worst(&[1.0, 2.0, 3.0, 4.0], &[1.0, b, 30.0, 4.0], 2, 0.01).unwrap();
            assert!(found.at == 1 && !found.share.is_finite(), "{b}");
        }
        assert!(worst(&[f32::NAN], &[f32::NAN], 1, 1.0).unwrap().share.is_nan(), "two that are no numbers differ");
        assert_eq!(worst(&[f32::INFINITY], &[f32::INFINITY], 1, 1.0).unwrap().share, 0.0);
        // Token ids have no tolerance.
        assert!(worst(&[7.0], &[8.0], 1, 0.0).unwrap().share.is_infinite());
        assert!(worst(&[], &[], 1, 0.0).is_none());
    }

    #[test]
    fn the_last_token_runs_alone_behind_chunks_of_the_others() {
        let lengths = |tokens: usize, chunk| {
            let all = passes(&vec![5; tokens], chunk, 4);
            let of = |p: &Pass| (p.rows[0].position, p.rows.len(), p.head.first, p.head.count);
            all.iter().map(of).collect::<Vec<_>>()
        };
        assert_eq!(lengths(8, 3), [(0, 3, 0, 3), (3, 3, 0, 3), (6, 1, 0, 1), (7, 1, 0, 1)]);
        assert_eq!(lengths(8, 100), [(0, 7, 3, 4), (7, 1, 0, 1)]);
        assert_eq!((lengths(1, 4), lengths(0, 4)), (vec![(0, 1, 0, 1)], vec![]));
    }
}
