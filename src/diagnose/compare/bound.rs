//! The bound on the difference of two values, and the element with the largest difference relative to it.

use crate::executor::Tolerance;

/// How many times the inputs are perturbed to see how far outputs move: first by rounding, then at random.
pub(super) const TRIALS: usize = 3;
/// The factor between an error's root mean square and its bound. Among a million errors the largest is 5 times the
/// mean, and the mean comes from few trials. With a factor of 8, correct executors reached 67 to 100 % of the bound.
const TIMES: f32 = 12.0;

/// The tolerance of consecutive steps, on both executors. Each step rounds its own inputs, but only those of the first
/// step are perturbed, so their perturbation is the sum over all steps, in blocks of the coarsest.
pub(super) fn sum(tolerances: impl Iterator<Item = Tolerance>) -> Tolerance {
    let mut sum = Tolerance { inputs: 0.0, block: 1, outputs: 0.0 };
    let mut coarsest = 0.0;
    for t in tolerances {
        if t.inputs > coarsest {
            (coarsest, sum.block) = (t.inputs, t.block);
        }
        sum.inputs += t.inputs;
        sum.outputs += t.outputs;
    }
    sum
}

/// Perturbs rows of `width` by as much as they may be rounded. The first trial rounds each element to a multiple of the
/// step; the others add noise that depends on `seed`. Rounding moves many small elements of a block to 0, which noise
/// seldom does.
pub(super) fn moved(values: &[f32], width: usize, tolerance: Tolerance, trial: usize, seed: u64) -> Vec<f32> {
    match trial {
        0 => rounded(values, width, tolerance),
        _ => shaken(values, width, tolerance, seed),
    }
}

/// The blocks of rows of `width`, each with the largest rounding error of its elements.
fn blocks(values: &[f32], width: usize, tolerance: Tolerance) -> impl Iterator<Item = (&[f32], f32)> {
    let blocks = values.chunks(width).flat_map(move |row| row.chunks(tolerance.block.min(width)));
    blocks.map(move |block| (block, tolerance.inputs * block.iter().fold(0f32, |most, x| most.max(x.abs()))))
}

fn rounded(values: &[f32], width: usize, tolerance: Tolerance) -> Vec<f32> {
    let round = |(block, most): (&[f32], f32)| -> Vec<f32> {
        let step = 2.0 * most;
        block.iter().map(|x| if step > 0.0 { (x / step).round() * step } else { *x }).collect()
    };
    blocks(values, width, tolerance).flat_map(round).collect()
}

fn shaken(values: &[f32], width: usize, tolerance: Tolerance, seed: u64) -> Vec<f32> {
    let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    // Uniform in -1..1 (splitmix64).
    let mut next = || {
        random = random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = (random ^ random >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    let mut shaken = Vec::with_capacity(values.len());
    for (block, most) in blocks(values, width, tolerance) {
        shaken.extend(block.iter().map(|x| x + most * next()));
    }
    shaken
}

/// The bound of each element in rows of `width`. `moved`: the movement of each element with the inputs, if known.
pub(super) fn of_rows(
    values: &[f32],
    moved: Option<&[f32]>,
    width: usize,
    tolerance: Tolerance,
    scale: f32,
) -> Vec<f32> {
    let mean = |row: &[f32]| {
        let square: f64 = row.iter().map(|x| f64::from(*x) * f64::from(*x)).sum();
        (square / row.len() as f64).sqrt() as f32
    };
    let mut bounds = Vec::with_capacity(values.len());
    for (r, row) in values.chunks(width).enumerate() {
        let rms = mean(row);
        bounds.extend(row.iter().map(|x| scale * tolerance.outputs * rms.max(x.abs())));
        if let Some(moved) = moved.map(|moved| &moved[r * width..][..row.len()]) {
            let usual = mean(moved);
            let bounds = &mut bounds[r * width..];
            bounds.iter_mut().zip(moved).for_each(|(bound, by)| *bound += scale * TIMES * by.max(usual));
        }
    }
    bounds
}

/// The element closest to its bound, or furthest beyond it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Worst {
    pub at: usize,
    pub a: f32,
    pub b: f32,
    pub bound: f32,
    /// The difference as a share of the bound.
    pub share: f32,
}

impl Worst {
    /// True if the difference exceeds the bound, or is NaN.
    pub(super) fn is_past(&self) -> bool {
        self.share.is_nan() || self.share > 1.0
    }
}

/// The worst element; `None` where there are none.
pub(super) fn worst(a: &[f32], b: &[f32], bounds: &[f32]) -> Option<Worst> {
    let mut worst: Option<Worst> = None;
    for (at, ((&a, &b), &bound)) in a.iter().zip(b).zip(bounds).enumerate() {
        let share = if a == b { 0.0 } else { (a - b).abs() / bound };
        let is_worse = |than: &Worst| !than.share.is_nan() && (share.is_nan() || share > than.share);
        if worst.as_ref().is_none_or(is_worse) {
            worst = Some(Worst { at, a, b, bound, share });
        }
    }
    worst
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE_PERCENT: Tolerance = Tolerance { inputs: 0.5, block: 2, outputs: 0.01 };

    #[test]
    fn the_worst_element_is_the_furthest_past_its_bound_and_what_is_no_number_is_past_all() {
        let a = [1.0, -1.0, 100.0, 0.0];
        let of = |b: &[f32]| worst(&a, b, &of_rows(&a, None, 2, ONE_PERCENT, 1.0)).map(|w| (w.at, w.share)).unwrap();
        assert_eq!(of(&a), (0, 0.0));
        let (at, share) = of(&[1.02, -1.0, 100.5, 0.0]);
        assert!(at == 0 && (share - 2.0).abs() < 1e-4, "{share}");
        // An element far below its row's root mean square may differ by a share of the latter.
        let (at, share) = of(&[1.0, -1.0, 100.0, 0.5]);
        assert!(at == 3 && (share - 0.5 / (0.01 * 5000f32.sqrt())).abs() < 1e-4, "{share}");
        for b in [f32::NAN, f32::INFINITY] {
            let found = worst(&[1.0, 2.0, 3.0], &[1.0, b, 30.0], &[0.1; 3]).unwrap();
            assert!(found.at == 1 && found.is_past(), "{b}");
        }
        assert!(worst(&[f32::NAN], &[f32::NAN], &[1.0]).unwrap().is_past(), "two that are no numbers differ");
        assert_eq!(worst(&[f32::INFINITY], &[f32::INFINITY], &[f32::NAN]).unwrap().share, 0.0);
        // Token ids have no tolerance.
        assert!(worst(&[7.0], &[8.0], &[0.0]).unwrap().share.is_infinite());
        assert!(worst(&[], &[], &[]).is_none());
    }

    #[test]
    fn what_moves_with_its_inputs_may_be_as_far_off() {
        let bounds = of_rows(&[1.0, 1.0], Some(&[0.0, 2.0]), 2, ONE_PERCENT, 0.5);
        let usual = 2f32.sqrt();
        assert!((bounds[0] - 0.5 * (0.01 + TIMES * usual)).abs() < 1e-4, "{bounds:?}");
        assert!((bounds[1] - 0.5 * (0.01 + TIMES * 2.0)).abs() < 1e-4, "{bounds:?}");
    }

    #[test]
    fn inputs_move_by_a_share_of_the_largest_of_their_block() {
        let values = [100.0, 0.0, 1.0, 0.0, 0.0, 0.0, 8.0, -8.0];
        let all: Vec<Vec<f32>> = (0..100).map(|seed| shaken(&values, 4, ONE_PERCENT, seed)).collect();
        let most = |i: usize| all.iter().map(|x| (x[i] - values[i]).abs()).fold(0f32, f32::max);
        let near = |i: usize, by: f32| assert!((0.9 * by..=by).contains(&most(i)), "{i}: {}", most(i));
        for (i, by) in [50.0, 50.0, 0.5, 0.5, 0.0, 0.0, 4.0, 4.0].into_iter().enumerate() {
            near(i, by);
        }
        let mean = all.iter().map(|x| x[0] - 100.0).sum::<f32>() / 100.0;
        assert!(mean.abs() < 10.0 && all[0] != all[1], "{mean}");
        // A block may be longer than a row.
        let row = Tolerance { block: usize::MAX, ..ONE_PERCENT };
        assert!((shaken(&values, 4, row, 1)[2] - 1.0).abs() > 0.5);
    }

    #[test]
    fn rounding_is_to_the_nearest_step() {
        let eight_bits = Tolerance { inputs: 1.0 / 254.0, block: 4, outputs: 0.0 };
        let got = moved(&[127.0, -3.4, 0.4, 0.6, 0.0, 0.0], 4, eight_bits, 0, 9);
        let want = [127.0, -3.0, 0.0, 1.0, 0.0, 0.0];
        assert!(got.iter().zip(want).all(|(x, y)| (x - y).abs() < 1e-4), "{got:?}");
        assert_eq!(moved(&[1.0, 2.0], 2, eight_bits, 1, 9), shaken(&[1.0, 2.0], 2, eight_bits, 9));
    }

    #[test]
    fn steps_that_follow_each_other_round_their_inputs_one_by_one() {
        let sum = sum([Tolerance::F32, ONE_PERCENT, Tolerance::F16, ONE_PERCENT].into_iter());
        assert_eq!(sum.block, 2);
        assert!((sum.inputs - 1.000_501).abs() < 1e-6 && (sum.outputs - 0.020_52).abs() < 1e-6, "{sum:?}");
    }
}
