//! The perplexity of a model on a text, by llama.cpp's definition, so that figures are comparable.
//!
//! The text's tokens begin with `<bos>`; special tokens that the text spells stay text. The tokens are cut into windows
//! of n tokens that do not overlap; tokens at the end that fill no window are left out. Each window runs in an empty
//! context, with `<bos>` in the place of its first token. The first half of a window is context and is not scored.
//! Scored are the tokens at n/2 + 1 to n - 1, counted from 0: each is predicted by the logits at the position before
//! it. The perplexity is exp of the mean of -ln p over all scored tokens, where p is the probability that the model
//! gave to the token.

use crate::display::counted;
use crate::error::{Setting, text};
use crate::executor::{Executor, ExecutorExt, HeadRows};
use crate::sequence::Session;
use crate::sequence::chooser::not_finite;
use crate::{Error, Result};
use rayon::prelude::*;

/// The default number of tokens in a window, as in llama.cpp.
pub const DEFAULT_WINDOW: usize = 512;
/// Rows of logits in a pass, all of which read the head's weights once.
pub const HEAD_ROWS: usize = 32;

/// The summed losses of scored tokens: -ln p of each, in nats.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Losses {
    /// The number of tokens that were scored.
    pub count: usize,
    sum: f64,
    squares: f64,
}

impl Losses {
    fn add(&mut self, loss: f64) {
        self.count += 1;
        self.sum += loss;
        self.squares += loss * loss;
    }

    /// The mean loss of a token, in nats.
    pub fn mean(&self) -> f64 {
        self.sum / self.count as f64
    }

    /// The perplexity: exp of the mean loss.
    pub fn perplexity(&self) -> f64 {
        self.mean().exp()
    }

    /// The perplexity's standard error, to first order.
    pub fn error(&self) -> f64 {
        let variance = (self.squares / self.count as f64 - self.mean().powi(2)).max(0.0);
        (variance / (self.count as f64 - 1.0)).sqrt() * self.perplexity()
    }
}

/// Checks that a text is long enough: two windows of `window` tokens.
///
/// # Errors
/// Input: the text is shorter, or a window is too short to score a token.
pub fn check(tokens: &[u32], window: usize) -> Result<()> {
    if window < 3 {
        let cause = format!("of a window of {window} no token is scored");
        return Err(Error::input(cause, text!("choose a ", Setting::Context, " of 3 or more")));
    }
    if tokens.len() / window < 2 {
        let cause = format!("the text has {}, and two windows of {window} are needed", counted(tokens.len(), "token"));
        return Err(Error::input(cause, text!("give more text, or choose a smaller ", Setting::Context)));
    }
    Ok(())
}

/// Scores `tokens` in windows of `window` tokens. `progress` is called after each window with all losses so far.
///
/// # Errors
/// Input: as [`check`], or a token is outside of the vocabulary. Failed: logits are not finite. Device: it failed.
pub fn measure(
    executor: &mut dyn Executor,
    tokens: &[u32],
    bos: u32,
    window: usize,
    progress: &mut dyn FnMut(&Losses),
) -> Result<Losses> {
    check(tokens, window)?;
    let mut losses = Losses::default();
    for part in tokens.chunks_exact(window) {
        let ids = [&[bos], &part[1..]].concat();
        score(executor, &ids, &mut losses)?;
        progress(&losses);
    }
    Ok(losses)
}

/// Runs one window and adds the losses of its second half.
fn score(executor: &mut dyn Executor, ids: &[u32], losses: &mut Losses) -> Result<()> {
    let scored = ids.len() / 2..ids.len() - 1;
    let mut session = Session::new(0, ids.len());
    session.prefill_with(executor, ids, &mut |executor, rows, _| {
        executor.forward(rows, None)?;
        let start = rows[0].position as usize;
        // The scored rows of this chunk; empty if it lies in the first half.
        let first = scored.start.saturating_sub(start);
        let end = scored.end.saturating_sub(start).min(rows.len());
        for first in (first..end).step_by(executor.schedule().extent.head_rows) {
            let count = executor.schedule().extent.head_rows.min(end - first);
            executor.project(HeadRows { first, count })?;
            for row in 0..count {
                let wanted = ids[start + first + row + 1];
                match loss(executor.logits(row)?, wanted as usize) {
                    loss if loss.is_finite() => losses.add(loss),
                    _ => return Err(not_finite(executor)),
                }
            }
        }
        Ok(())
    })
}

/// -ln of the probability that `logits` give to the token `wanted`, in nats.
fn loss(logits: &[f32], wanted: usize) -> f64 {
    // Parts of a fixed size, summed in order, so that the sum does not depend on the number of threads.
    const PART: usize = 1 << 14;
    let peak = f64::from(logits.iter().fold(f32::NEG_INFINITY, |peak, &x| peak.max(x)));
    let weigh = |part: &[f32]| part.iter().map(|&x| (f64::from(x) - peak).exp()).sum();
    let parts: Vec<f64> = logits.par_chunks(PART).map(weigh).collect();
    parts.into_iter().sum::<f64>().ln() - (f64::from(logits[wanted]) - peak)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::executor::Row;
    use crate::executor::fake::{FakeExecutor, VOCAB};
    use crate::schedule::{Extent, KvType};

    /// Predicts the token of the position plus one as the next token, by `margin` above all others.
    fn counting(context: usize, chunk: usize, margin: f32) -> FakeExecutor {
        let kv = KvType::F16;
        let extent = Extent { context, max_rows: chunk, head_rows: 3, sequences: 1, kv, kv_tokens: None };
        let logits_of = move |row: &Row, logits: &mut [f32]| {
            logits.fill(0.0);
            logits[(row.token as usize + 1) % VOCAB] = margin;
        };
        FakeExecutor { logits_of: Box::new(logits_of), ..FakeExecutor::with(extent) }
    }

    /// The scored tokens and positions are llama.cpp's, regardless of how a window is cut into chunks.
    #[test]
    fn the_second_half_of_each_window_is_scored_behind_bos() {
        // 0..25: two windows of 10, and five tokens that fill none.
        let tokens: Vec<u32> = (0..25).collect();
        for chunk in [1, 4, 6, 10] {
            let mut executor = counting(10, chunk, 2.0);
            let mut seen = Vec::new();
            let losses = measure(&mut executor, &tokens, 60, 10, &mut |l| seen.push(l.count)).unwrap();
            assert_eq!(seen, [4, 8], "10 - 10/2 - 1 of each window");
            assert_eq!(executor.read, [5, 6, 7, 8, 5, 6, 7, 8], "chunks of {chunk}");
            let windows = [&[60], &tokens[1..10], &[60], &tokens[11..20]].concat();
            let expected: Vec<(u32, u32)> = windows.into_iter().zip((0..10).chain(0..10)).collect();
            assert_eq!(executor.take(), expected);
            // Every token has the probability e^2 / (e^2 + 63).
            let p = 2f64.exp() / (2f64.exp() + (VOCAB - 1) as f64);
            assert!((losses.perplexity() - 1.0 / p).abs() < 1e-9, "{losses:?}");
            assert!(losses.error() < 1e-6, "all losses are the same: {losses:?}");
        }
    }

    #[test]
    fn the_error_is_that_of_the_mean_loss_times_the_perplexity() {
        let mut losses = Losses::default();
        [1.0, 2.0, 3.0, 6.0].into_iter().for_each(|loss| losses.add(loss));
        assert_eq!((losses.mean(), losses.count), (3.0, 4));
        // The mean square is 12.5, so the variance is 3.5.
        assert!((losses.error() - (3.5f64 / 3.0).sqrt() * 3f64.exp()).abs() < 1e-12);
    }

    #[test]
    fn logits_as_large_as_they_come_have_a_loss() {
        assert!((loss(&[0.0; 100_000], 7) - 100_000f64.ln()).abs() < 1e-9);
        assert_eq!(loss(&[3e38, -3e38], 0), 0.0);
        assert!(!loss(&[f32::NAN, 1.0], 0).is_finite());
        assert!(!loss(&[f32::INFINITY, 1.0], 1).is_finite());
        let mut executor = counting(10, 10, f32::NAN);
        let e = measure(&mut executor, &[1; 20], 2, 10, &mut |_| {}).unwrap_err();
        assert!(e.exit_code() == 1 && e.to_string().contains("not finite"), "{e}");
    }

    #[test]
    fn too_short_a_text_or_window_is_refused() {
        for (tokens, window, what) in
            [(19, 10, "19 tokens"), (0, 512, "0 tokens"), (9, 2, "window of 2"), (9, 0, "of 0")]
        {
            let e = check(&vec![5; tokens], window).unwrap_err();
            assert!(e.exit_code() == 2 && e.to_string().contains(what), "{e}");
        }
        assert_eq!(check(&[5; 20], 10), Ok(()));
    }
}
