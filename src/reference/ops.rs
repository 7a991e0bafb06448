//! Each step's arithmetic, in f32, as `docs/gemma3.md` and `docs/gemma4.md` state it.

use super::{Weights, choice};
use crate::executor::host::StepState;
use crate::executor::zeroed::Zeroed;
use crate::executor::{slot_row as row, slot_row_mut as row_mut};
use crate::schedule::step::{Matrix, Op, Slot};
use rayon::prelude::*;

/// Runs one step over the rows that `state` has.
pub(super) fn run(op: &Op, state: &StepState, weights: &Weights, arena: &mut [f32], pools: &mut [Zeroed<f32>; 2]) {
    match *op {
        Op::Embed { table, scale, out } => {
            for r in 0..state.rows {
                let row = row_mut(arena, out, r);
                weights.row(table, state.token[r] as usize, row);
                row.iter_mut().for_each(|x| *x *= scale);
            }
        }
        Op::RmsNorm { x, weight, eps, out } => {
            for r in 0..state.rows {
                let y = rms_norm(row(arena, x, state.read_row(r)), weights.vector(weight), eps);
                row_mut(arena, out, r).copy_from_slice(&y);
            }
        }
        Op::Linear { weight, x, out } => {
            linear(weight, x, out, &(0..state.rows).collect::<Vec<_>>(), 1, weights, arena);
        }
        Op::HeadNormRope { x, weight, eps, inv_freq, heads, ahead } => {
            let dim = x.width / heads;
            for r in 0..state.rows {
                for head in 0..heads {
                    let slot = x.columns(head * dim, dim);
                    let normed = rms_norm(row(arena, slot, r), weights.vector(weight), eps);
                    rotate(&normed, state.position[r] + ahead, weights.vector(inv_freq), row_mut(arena, slot, r));
                }
            }
        }
        Op::KvWrite { k, v, kv } => {
            for r in 0..state.rows {
                for (half, slot) in [(0, k), (1, v)] {
                    let x = row(arena, slot, r);
                    for (head, values) in x.chunks_exact(kv.head_dim).enumerate() {
                        let at = state.kv_at(&kv, r, half, head, state.position[r] as usize);
                        pools[kv.pool as usize][at..at + kv.head_dim].copy_from_slice(values);
                    }
                }
            }
        }
        Op::Attend { q, kv, out, heads, scale, window } => {
            for r in 0..state.rows {
                let entry = |half, head, p| {
                    let at = state.kv_at(&kv, r, half, head, p);
                    &pools[kv.pool as usize][at..at + kv.head_dim]
                };
                let group = heads / kv.kv_heads;
                let o = attend(row(arena, q, r), entry, group, state.position[r] as usize, scale, window);
                row_mut(arena, out, r).copy_from_slice(&o);
            }
        }
        Op::NormAdd { x, weight, eps, residual, scalar } => {
            let scalar = scalar.map_or(1.0, |scalar| weights.vector(scalar)[0]);
            for r in 0..state.rows {
                let y = rms_norm(row(arena, x, r), weights.vector(weight), eps);
                row_mut(arena, residual, r).iter_mut().zip(y).for_each(|(h, y)| *h = (*h + y) * scalar);
            }
        }
        Op::GatedGelu { gate, up, out } => {
            for r in 0..state.rows {
                let y: Vec<f32> =
                    row(arena, gate, r).iter().zip(row(arena, up, r)).map(|(g, u)| gelu_tanh(*g) * u).collect();
                row_mut(arena, out, r).copy_from_slice(&y);
            }
        }
        Op::Route { scores, scale, factors, chosen, gains, .. } => {
            for r in 0..state.rows {
                let (experts, g) = route(row(arena, scores, r), scale, weights.vector(factors), chosen.width);
                row_mut(arena, gains, r).copy_from_slice(&g);
                let to = row_mut(arena, chosen, r).iter_mut();
                to.zip(experts).for_each(|(to, expert)| *to = f32::from_bits(expert as u32));
            }
        }
        Op::ExpertLinear { weight, chosen, x, share, out } => {
            let used = chosen.width;
            for expert in 0..weight.rows / out.width {
                let is_of = |r: &usize| row(arena, chosen, r / used)[r % used].to_bits() as usize == expert;
                let rows: Vec<usize> = (0..state.rows).filter(is_of).collect();
                let weight = weight.rows_from(expert * out.width, out.width);
                linear(weight, x, out, &rows, share, weights, arena);
            }
        }
        Op::ExpertSum { x, gains, out } => {
            let used = gains.width;
            for r in 0..state.rows {
                let mut y = vec![0f32; out.width];
                for (i, gain) in row(arena, gains, r).iter().enumerate() {
                    y.iter_mut().zip(row(arena, x, r * used + i)).for_each(|(y, x)| *y += gain * x);
                }
                row_mut(arena, out, r).copy_from_slice(&y);
            }
        }
        Op::SoftCap { x, cap } => {
            let capped = |x: &mut f32| *x = cap * (*x / cap).tanh();
            (0..state.rows).for_each(|r| row_mut(arena, x, r).iter_mut().for_each(capped));
        }
        Op::Argmax { x } => {
            for r in 0..state.rows {
                let best = row(arena, x, r)
                    .iter()
                    .enumerate()
                    .fold((0, f32::NEG_INFINITY), |best, (i, &v)| if v > best.1 { (i, v) } else { best });
                arena[state.next + r] = f32::from_bits(best.0 as u32);
                arena[state.finite + r] = f32::from_bits(u32::from(best.1.is_finite()));
            }
        }
        Op::BlockSums { x, ask, allowed, sums, tops } => {
            (0..state.rows).for_each(|r| choice::block_sums(arena, [x, ask, allowed], sums, tops, r));
        }
        Op::Candidates { x, ask, allowed, sums, tops, found } => {
            for r in 0..state.rows {
                if let Some(id) = choice::candidates(arena, [x, ask, allowed], sums, tops, found, r) {
                    arena[state.next + r] = f32::from_bits(id);
                }
            }
        }
    }
}

/// `x * rsqrt(mean(x^2) + eps) * (1 + w)`.
fn rms_norm(x: &[f32], w: &[f32], eps: f32) -> Vec<f32> {
    let mean = x.iter().map(|x| x * x).sum::<f32>() / x.len() as f32;
    let scale = 1.0 / (mean + eps).sqrt();
    x.iter().zip(w).map(|(x, w)| x * scale * (1.0 + w)).collect()
}

/// Rotate-half RoPE of one head at a position.
fn rotate(x: &[f32], position: u32, inv_freq: &[f32], out: &mut [f32]) {
    let half = x.len() / 2;
    for j in 0..half {
        let (sin, cos) = (position as f32 * inv_freq[j]).sin_cos();
        out[j] = x[j] * cos - x[j + half] * sin;
        out[j + half] = x[j + half] * cos + x[j] * sin;
    }
}

/// Dot product in eight partial sums: faster and more accurate than one.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0f32; 8];
    let (a8, b8) = (a.chunks_exact(8), b.chunks_exact(8));
    let tail: f32 = a8.remainder().iter().zip(b8.remainder()).map(|(x, y)| x * y).sum();
    for (x, y) in a8.zip(b8) {
        for i in 0..8 {
            sums[i] += x[i] * y[i];
        }
    }
    sums.iter().sum::<f32>() + tail
}

/// `out[r] = weight · x[r / share]` for these rows. Each weight row is decoded once for all of them.
fn linear(weight: Matrix, x: Slot, out: Slot, rows: &[usize], share: usize, weights: &Weights, arena: &mut [f32]) {
    if rows.is_empty() {
        return;
    }
    let inputs: Vec<&[f32]> = rows.iter().map(|r| row(arena, x, r / share)).collect();
    // [weight.rows][rows]
    let mut y = vec![0f32; weight.rows * rows.len()];
    y.par_chunks_mut(rows.len()).enumerate().for_each_init(
        || vec![0f32; weight.cols],
        |decoded, (i, y)| {
            weights.row(weight, i, decoded);
            for (y, x) in y.iter_mut().zip(&inputs) {
                *y = dot(decoded, x);
            }
        },
    );
    for (at, &r) in rows.iter().enumerate() {
        row_mut(arena, out, r).iter_mut().enumerate().for_each(|(i, o)| *o = y[i * rows.len() + at]);
    }
}

/// The experts of a row with these scores, and their gains: the softmax over the chosen ones, times their factors.
pub(crate) fn route(scores: &[f32], scale: f32, factors: &[f32], used: usize) -> (Vec<usize>, Vec<f32>) {
    let mut experts: Vec<usize> = (0..scores.len()).collect();
    // A stable sort: the lower index comes first among equals. Adding 0 makes the two zeros equal.
    experts.sort_by(|a, b| (scores[*b] + 0.0).total_cmp(&(scores[*a] + 0.0)));
    experts.truncate(used);
    let exp: Vec<f32> = experts.iter().map(|&e| ((scores[e] - scores[experts[0]]) * scale).exp()).collect();
    let sum: f32 = exp.iter().sum();
    let gains = experts.iter().zip(exp).map(|(&e, exp)| exp / sum * factors[e]).collect();
    (experts, gains)
}

/// One row's attention, all heads: two-pass softmax over the visible positions. `entry(half, kv_head, p)` is the key (0) or
/// the value (1) at position p, `[dim]`; `group` query heads share a KV head.
fn attend<'a>(
    q: &[f32],
    entry: impl Fn(usize, usize, usize) -> &'a [f32] + Sync,
    group: usize,
    position: usize,
    scale: f32,
    window: Option<usize>,
) -> Vec<f32> {
    let first = window.map_or(0, |w| (position + 1).saturating_sub(w));
    let dim = entry(0, 0, position).len();
    let mut out = vec![0f32; q.len()];
    out.par_chunks_mut(dim).enumerate().for_each(|(head, out)| {
        let q = &q[head * dim..][..dim];
        let scores: Vec<f32> = (first..=position).map(|p| dot(q, entry(0, head / group, p)) * scale).collect();
        let max = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let weights: Vec<f32> = scores.iter().map(|s| (s - max).exp()).collect();
        let sum: f32 = weights.iter().sum();
        for (w, p) in weights.iter().zip(first..) {
            out.iter_mut().zip(entry(1, head / group, p)).for_each(|(o, v)| *o += w / sum * v);
        }
    });
    out
}

/// `0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))`.
fn gelu_tanh(x: f32) -> f32 {
    const ROOT: f32 = 0.797_884_6;
    0.5 * x * (1.0 + (ROOT * (x + 0.044715 * x * x * x)).tanh())
}
