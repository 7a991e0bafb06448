//! Outputs of executors, and the distance between them.

use kiln::executor::{Executor, ExecutorExt, HeadRows, Measure};
use kiln::schedule::Segment;
use kiln::sequence::session::Session;

/// Outputs of a run over a prompt.
pub struct Outputs {
    /// All positions' logits, `[n][vocab]`.
    pub logits: Vec<Vec<f32>>,
    /// Hidden rows at the last position: scaled embedding, each layer's output, after the final norm.
    pub hidden: Vec<Vec<f32>>,
    /// The device's argmax at the last position.
    pub next: u32,
}

/// Prefills `tokens` in a new session and collects every position's logits and the last one's hidden rows.
pub fn observe(executor: &mut dyn Measure, session: &mut Session, tokens: &[u32]) -> Outputs {
    let mut out = Outputs { logits: Vec::new(), hidden: Vec::new(), next: 0 };
    let head_rows = executor.schedule().extent.head_rows;
    session
        .prefill_with(executor, tokens, &mut |executor, rows, last| {
            let mut first = 0;
            executor.forward(rows, None)?;
            while first < rows.len() {
                let count = head_rows.min(rows.len() - first);
                executor.project(HeadRows { first, count })?;
                out.logits.extend((0..count).map(|r| executor.logits(r).unwrap().to_vec()));
                first += count;
            }
            if last {
                // Run the same pass again with its hidden rows observed. It writes the same keys to the same places.
                let head = Some(HeadRows { first: rows.len() - 1, count: 1 });
                executor.forward_watched(rows, head, &mut |_: Segment, row: &[f32]| out.hidden.push(row.to_vec()))?;
                out.next = executor.next(0);
            }
            Ok(())
        })
        .unwrap_or_else(|e| panic!("{e}"));
    out
}

/// The bits of a row of logits.
pub fn bits(executor: &mut dyn Executor, row: usize) -> Vec<u32> {
    executor.logits(row).unwrap().iter().map(|x| x.to_bits()).collect()
}

/// Largest absolute difference.
pub fn max_abs(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    assert!(a.iter().all(|x| x.is_finite()), "not finite");
    a.iter().zip(b).map(|(x, y)| (x - y).abs()).fold(0.0, f32::max)
}

/// Root mean square.
pub fn rms(x: &[f32]) -> f32 {
    (x.iter().map(|x| x * x).sum::<f32>() / x.len() as f32).sqrt()
}

/// Root mean square of the difference, divided by that of `b`.
pub fn relative_rms(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    assert!(a.iter().all(|x| x.is_finite()), "not finite");
    let difference: f32 = a.iter().zip(b).map(|(x, y)| (x - y) * (x - y)).sum();
    (difference / b.iter().map(|y| y * y).sum::<f32>()).sqrt()
}
