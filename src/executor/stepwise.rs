//! Runs a pass step by step, or in ranges of steps: any executor may run any of them, from what lies in its slots and its
//! KV cache. So two executors can be compared step by step from the same inputs ([`crate::diagnose::compare`]).

use super::{Executor, HeadRows, PageId, Row};
use crate::Result;
use crate::schedule::kv::KvLayer;
use std::ops::Range;

/// How far from exact a step may be computed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tolerance {
    /// Each input may be rounded by this share of the largest of the block of inputs that it is in.
    pub inputs: f32,
    /// Inputs of a block. A row has a last block that may be shorter.
    pub block: usize,
    /// Each output may be off by this share of the larger of its own magnitude and its row's root mean square.
    pub outputs: f32,
}

impl Tolerance {
    /// Of arithmetic in f32, in any order.
    pub const F32: Tolerance = Tolerance { inputs: 1e-6, block: 32, outputs: 2e-5 };
    /// The same with exp and tanh by polynomials, or a device's.
    pub const ABOUT_F32: Tolerance = Tolerance { outputs: 1e-4, ..Tolerance::F32 };
    /// Of what is kept in f16: half of its last bit.
    pub const F16: Tolerance = Tolerance { inputs: 5e-4, block: 32, outputs: 5e-4 };
    /// Of what is kept in bf16: half of its last bit.
    pub const BF16: Tolerance = Tolerance { inputs: 2e-3, block: 32, outputs: 2e-3 };
}

/// An executor that runs parts of a pass by themselves.
pub trait Stepwise: Executor {
    /// Begins a pass as [`Executor::forward`] does, and runs no step of it.
    ///
    /// # Errors
    /// As [`Executor::forward`].
    fn begin_pass(&mut self, rows: &[Row], head: Option<HeadRows>) -> Result<()>;

    /// Runs a range of the begun pass's steps, which find what they read in slots and in the KV cache, and leave there what
    /// steps after the range read.
    ///
    /// # Errors
    /// Interrupted: it was cancelled. Device: the device failed or was lost.
    fn run_steps(&mut self, steps: Range<usize>) -> Result<()>;

    /// All of the begun pass's steps but the choice's, in the smallest ranges that can be run by themselves as a whole pass
    /// runs them. A range is more than one step where a kernel runs several, or hands on what only the next one can read.
    ///
    /// # Errors
    /// Input: no pass has begun.
    fn ranges(&self) -> Result<Vec<Range<usize>>>;

    /// Lets `access` read and write the arena, as f32.
    ///
    /// # Errors
    /// Device: the device failed or was lost.
    fn access_arena(&mut self, access: &mut dyn FnMut(&mut [f32])) -> Result<()>;

    /// Copies a layer's part of a page to `bytes`, which are as many as it has.
    ///
    /// # Errors
    /// As [`Executor::read_page`].
    fn read_kv(&mut self, layer: &KvLayer, page: PageId, bytes: &mut [u8]) -> Result<()>;

    /// Makes `bytes`, as [`Stepwise::read_kv`] gave them, a layer's part of a page.
    ///
    /// # Errors
    /// As [`Executor::read_page`].
    fn write_kv(&mut self, layer: &KvLayer, page: PageId, bytes: &[u8]) -> Result<()>;

    /// How far from exact it may compute a step of the begun pass.
    fn tolerance(&self, step: usize) -> Tolerance;
}
