//! How fast a batch decodes, and how much it reads for that.

use super::batch::Batch;
use crate::executor::Executor;
use crate::schedule::PassShape;
use std::time::Duration;

/// Decoded tokens, and bytes and time of the passes that they come from, with what a prompt's chunk takes of a mixed one.
#[derive(Debug, Clone, Copy, Default)]
pub struct DecodeMeter {
    /// Decoded tokens.
    pub tokens: usize,
    /// Passes that each sequence took part in, all together.
    pub passes: usize,
    /// Bytes that the device read or wrote for them.
    pub bytes: u64,
    /// Time.
    pub time: Duration,
}

impl DecodeMeter {
    /// Adds the batch's last pass, which took `time`.
    pub fn add(&mut self, batch: &Batch, executor: &dyn Executor, time: Duration) {
        let Some(pass) = batch.last_pass() else { return };
        let (tokens, passes) = match pass {
            PassShape::Decode { sequences, .. } | PassShape::Mixed { sequences, .. } => (sequences, sequences),
            PassShape::Verify { sequences, .. } => (batch.last_verified(), sequences),
            PassShape::Prefill { .. } => return,
        };
        self.tokens += tokens;
        self.passes += passes;
        self.bytes += executor.schedule().cost(pass).memory_bytes();
        self.time += time;
    }

    /// Tokens that a pass gives a sequence on average; `None`: none was decoded.
    pub fn tokens_per_pass(&self) -> Option<f64> {
        (self.passes > 0).then(|| self.tokens as f64 / self.passes as f64)
    }

    /// Tokens per second; `None`: none was decoded.
    pub fn rate(&self) -> Option<f64> {
        (self.tokens > 0).then(|| self.tokens as f64 / self.time.as_secs_f64())
    }

    /// Bytes per second that the device read or wrote; `None`: no token was decoded.
    pub fn bytes_per_second(&self) -> Option<f64> {
        (self.tokens > 0).then(|| self.bytes as f64 / self.time.as_secs_f64())
    }

    /// Bytes per second as a share of `ceiling`, what the device reads at best. `None` without a token, or where it is above
    /// 1: one of the two rates is wrong then.
    pub fn share(&self, ceiling: f64) -> Option<f64> {
        self.bytes_per_second().map(|rate| rate / ceiling).filter(|share| *share <= 1.0)
    }
}
