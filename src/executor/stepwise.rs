//! Runs a pass step by step, or in ranges of steps: any executor can run any step from the values in its slots and its
//! KV cache. So two executors can be compared step by step from the same inputs ([`crate::diagnose::compare`]).

use super::{Executor, HeadRows, PageId, Row};
use crate::Result;
use crate::schedule::kv::KvLayer;
use std::ops::Range;

/// Error bounds of a step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tolerance {
    /// Each input may be rounded by this share of the largest input in its block.
    pub inputs: f32,
    /// Inputs of a block. A row's last block may be shorter.
    pub block: usize,
    /// Each output may be off by this share of the larger of its own magnitude and its row's root mean square.
    pub outputs: f32,
}

impl Tolerance {
    /// Arithmetic in f32, in any order.
    pub const F32: Tolerance = Tolerance { inputs: 1e-6, block: 32, outputs: 2e-5 };
    /// Arithmetic in f32 with exp and tanh as polynomials or a device's own.
    pub const ABOUT_F32: Tolerance = Tolerance { outputs: 1e-4, ..Tolerance::F32 };
    /// Values stored in f16: half of its last bit.
    pub const F16: Tolerance = Tolerance { inputs: 5e-4, block: 32, outputs: 5e-4 };
    /// Values stored in bf16: half of its last bit.
    pub const BF16: Tolerance = Tolerance { inputs: 2e-3, block: 32, outputs: 2e-3 };
}

/// An executor that can run parts of a pass separately.
pub trait Stepwise: Executor {
    /// Begins a pass as [`Executor::forward`] does, without running a step.
    ///
    /// # Errors
    /// As [`Executor::forward`].
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
    /// As [`Executor::read_page`].
    fn read_kv(&mut self, layer: &KvLayer, page: PageId, bytes: &mut [u8]) -> Result<()>;

    /// Sets a layer's part of a page to `bytes` from [`Stepwise::read_kv`].
    ///
    /// # Errors
    /// As [`Executor::read_page`].
    fn write_kv(&mut self, layer: &KvLayer, page: PageId, bytes: &[u8]) -> Result<()>;

    /// The error bound of a step of the begun pass.
    fn tolerance(&self, step: usize) -> Tolerance;
}
