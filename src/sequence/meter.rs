//! Measures a batch's decode rate and memory traffic.

use super::batch::Batch;
use super::counts::count_experts;
use crate::executor::Executor;
use crate::model::config::limit;
use crate::schedule::PassShape;
use std::time::Duration;

/// Decoded tokens, with the bytes and time of their passes. Mixed passes count in full, including their prompt chunks.
#[derive(Debug, Clone, Copy, Default)]
pub struct DecodeMeter {
    /// The number of decoded tokens.
    pub tokens: usize,
    /// The number of sequences in each pass, added up over the passes.
    pub passes: usize,
    /// Bytes that the device read or wrote in these passes.
    pub bytes: u64,
    /// The total duration of these passes.
    pub time: Duration,
    /// Experts of the last layer that passes without drafts or chunks used, and those that they could use.
    pub experts: [usize; 2],
}

impl DecodeMeter {
    /// Adds the batch's last pass, which took `time`.
    pub fn add(&mut self, batch: &Batch, executor: &dyn Executor, time: Duration) {
        let Some(pass) = batch.last_pass() else { return };
        let (tokens, passes) = match pass {
            PassShape::Decode { sequences, .. } => {
                self.add_experts(sequences, executor);
                (sequences, sequences)
            }
            PassShape::Mixed { sequences, .. } => (sequences, sequences),
            PassShape::Verify { sequences, .. } => (batch.last_verified(), sequences),
            PassShape::Prefill { .. } => return,
        };
        self.tokens += tokens;
        self.passes += passes;
        self.bytes += executor.schedule().cost(pass).memory_bytes();
        self.time += time;
    }

    fn add_experts(&mut self, rows: usize, executor: &dyn Executor) {
        let Some(experts) = executor.schedule().shape.experts else { return };
        let mut used = [0u64; limit::EXPERTS / 64];
        for &expert in (0..rows).flat_map(|row| executor.result(row).experts) {
            used[expert as usize / 64 % used.len()] |= 1 << (expert % 64);
        }
        let used = used.iter().map(|of| of.count_ones() as usize).sum();
        count_experts(used, experts.count);
        self.experts[0] += used;
        self.experts[1] += experts.count;
    }

    /// The share of the last layer's experts that a decode pass uses, on average; `None` without a mixture or a token.
    pub fn experts_share(&self) -> Option<f64> {
        (self.experts[1] > 0).then(|| self.experts[0] as f64 / self.experts[1] as f64)
    }

    /// Adds the passes of another meter.
    pub fn merge(&mut self, other: &DecodeMeter) {
        self.tokens += other.tokens;
        self.passes += other.passes;
        self.bytes += other.bytes;
        self.time += other.time;
        self.experts = [0, 1].map(|i| self.experts[i] + other.experts[i]);
    }

    /// The mean number of tokens per pass and sequence; `None` if none was decoded.
    pub fn tokens_per_pass(&self) -> Option<f64> {
        (self.passes > 0).then(|| self.tokens as f64 / self.passes as f64)
    }

    /// Decoded tokens per second; `None` if no token was decoded.
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
