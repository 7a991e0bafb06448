//! Inputs of a write: the matrices, the source of their rows, and the monitor.

use std::ops::Range;

use crate::model::format::{SourceFormat, WeightFormat};
use crate::model::shape::Shape;
use crate::model::tensor::TensorId;
use crate::{Cancel, Result};

/// Source of the rows of a checkpoint that is being written.
pub(crate) trait RowSource: Sync {
    /// The weights of a norm.
    fn vector(&self, id: TensorId) -> Result<Vec<f32>>;

    /// The format in which the source has a matrix, if it has one already.
    fn stored_as(&self, _id: TensorId) -> Option<SourceFormat> {
        None
    }

    /// Reads rows of a matrix, as [`crate::model::Checkpoint::read_rows`] does.
    fn rows(
        &self,
        id: TensorId,
        rows: Range<usize>,
        format: WeightFormat,
        data: &mut [u8],
        scales: &mut [u8],
    ) -> Result<()>;

    /// Called when these rows have been written and will not be requested again.
    fn done(&self, _id: TensorId, _rows: Range<usize>) {}
}

/// The matrices that are written, and their format.
pub(super) struct Matrices<'a> {
    pub(super) shape: &'a Shape,
    /// The format that was requested.
    pub(super) asked: WeightFormat,
    pub(super) source: &'a dyn RowSource,
}

impl Matrices<'_> {
    /// The format in which a matrix is written.
    pub(super) fn format(&self, id: TensorId) -> WeightFormat {
        self.asked.of_matrix(id, self.shape, self.source.stored_as(id))
    }
}

/// Watches and stops a long write.
pub struct WriteMonitor<'a> {
    /// Called from any thread with the bytes written so far and the total.
    pub progress: &'a (dyn Fn(u64, u64) + Sync),
    /// Setting this flag stops the write: it fails at its next block, and removes its files.
    pub cancel: &'a Cancel,
}

impl WriteMonitor<'_> {
    /// Fails if the write is cancelled.
    pub(super) fn check(&self) -> Result<()> {
        self.cancel.check_or("interrupted, and nothing was kept of what was written")
    }
}
