//! What a write is given: the matrices, where their rows come from, and who watches it.

use std::ops::Range;
use std::sync::atomic::AtomicBool;

use crate::model::format::WeightFormat;
use crate::model::shape::Shape;
use crate::model::tensor::TensorId;
use crate::{Error, Result};

/// Where the rows of a checkpoint that is written come from.
pub(crate) trait RowSource: Sync {
    /// A norm's weights.
    fn vector(&self, id: TensorId) -> Result<Vec<f32>>;

    /// Rows of a matrix, as [`crate::model::Checkpoint::read_rows`] gives them.
    fn rows(
        &self,
        id: TensorId,
        rows: Range<usize>,
        format: WeightFormat,
        data: &mut [u8],
        scales: &mut [u8],
    ) -> Result<()>;

    /// These rows have been written and are not asked for again.
    fn done(&self, _id: TensorId, _rows: Range<usize>) {}
}

/// The matrices that are written, all in one format.
pub(super) struct Matrices<'a> {
    pub(super) shape: &'a Shape,
    pub(super) format: WeightFormat,
    pub(super) source: &'a dyn RowSource,
}

/// How a long write is watched and stopped.
pub struct WriteMonitor<'a> {
    /// Called from any thread with the bytes written so far and the bytes to write in all.
    pub progress: &'a (dyn Fn(u64, u64) + Sync),
    /// Set by anyone to stop: the write fails at its next block and leaves nothing behind.
    pub cancel: &'a AtomicBool,
}

/// A write that was cancelled.
pub(super) fn interrupted() -> Error {
    Error::failed("interrupted, and nothing was kept of what was written", "start it again")
}
