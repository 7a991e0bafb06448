//! Runs a pass step by step, or in ranges of steps: any executor can run any step from the values in its slots and its
//! KV cache. So two executors can be compared step by step from the same inputs.

use super::{Executor, HeadRows, PageId, Row};
use crate::Result;
use crate::schedule::Tolerance;
use crate::schedule::kv::KvLayer;
use std::ops::Range;

/// An executor that can run parts of a pass separately, so that their results can be compared.
pub trait Stepwise: Executor {
    /// Begins a pass as [`Submission::Pass`](super::Submission::Pass) does, without running a step.
    ///
    /// # Errors
    /// As [`Executor::submit`].
    fn begin_pass(&mut self, rows: &[Row], head: Option<HeadRows>) -> Result<()>;

    /// Runs a range of the begun pass's steps. Their inputs and outputs lie in slots and in the KV cache.
    ///
    /// # Errors
    /// Interrupted: the pass was cancelled. Device: the device failed or was lost.
    fn run_steps(&mut self, steps: Range<usize>) -> Result<()>;

    /// All steps of the begun pass but the choice's, in the smallest ranges that can run alone with the kernels of a
    /// whole pass. A range has several steps if one kernel runs them, or if a kernel's output is readable only by the
    /// next one.
    ///
    /// # Errors
    /// Input: no pass has begun.
    fn ranges(&self) -> Result<Vec<Range<usize>>>;

    /// Lets `access` read and write the arena, as f32.
    ///
    /// # Errors
    /// Device: the device failed or was lost.
    fn access_arena(&mut self, access: &mut dyn FnMut(&mut [f32])) -> Result<()>;

    /// Copies a layer's part of a page to `bytes`, which have its size.
    ///
    /// # Errors
    /// As [`Executor::copy_page`].
    fn read_kv(&mut self, layer: &KvLayer, page: PageId, bytes: &mut [u8]) -> Result<()>;

    /// Sets a layer's part of a page to `bytes` from [`Stepwise::read_kv`].
    ///
    /// # Errors
    /// As [`Executor::copy_page`].
    fn write_kv(&mut self, layer: &KvLayer, page: PageId, bytes: &[u8]) -> Result<()>;

    /// The error bound of a step of the begun pass.
    fn tolerance(&self, step: usize) -> Tolerance;
}
