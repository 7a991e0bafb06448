//! Measures a batch's decode rate and memory traffic.

use super::batch::Batch;
use crate::executor::Executor;
use crate::schedule::PassShape;
use std::time::Duration;

/// Decoded tokens, with the bytes and time of their passes. Mixed passes count in full, including their prompt chunks.
#[derive(Debug, Clone, Copy, Default)]
pub struct DecodeMeter {
    /// Decoded tokens.
    pub tokens: usize,
    /// The sum of the sequences' passes.
    pub passes: usize,
    /// Bytes that the device read or wrote in these passes.
    pub bytes: u64,
    /// Duration of these passes.
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

    /// Adds the passes of another meter.
    pub fn merge(&mut self, other: &DecodeMeter) {
        self.tokens += other.tokens;
        self.passes += other.passes;
        self.bytes += other.bytes;
        self.time += other.time;
    }

    /// The mean number of tokens per pass and sequence; `None` if none was decoded.
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

    /// Bytes per second as a share of `ceiling`, the device's best read rate. `None` without a token, or if the share
    /// is above 1, because one of the rates must be wrong then.
    pub fn share(&self, ceiling: f64) -> Option<f64> {
        self.bytes_per_second().map(|rate| rate / ceiling).filter(|share| *share <= 1.0)
    }
}
