//! The values of a checkpoint as tests read them.

use super::{Checkpoint, ReadBuffers};
use crate::Result;
use crate::model::tensor::TensorId;
use std::ops::Range;

impl Checkpoint {
    /// Reads rows of a matrix as f32, decoded from any encoding: the values that every other format approximates.
    ///
    /// # Errors
    /// [`Error::Input`] with the tensor and the row: a value or scale is not finite or out of range. [`Error::Failed`]:
    /// the file was cut short, or its disk fails.
    ///
    /// # Panics
    /// If `id` is a vector, `rows` is not within the matrix, or `out` does not have the length of the rows.
    pub fn decode_rows(&self, id: TensorId, rows: Range<usize>, out: &mut [f32]) -> Result<()> {
        let [height, cols] = id.dims(&self.shape);
        assert!(!id.is_vector(), "{id:?} is a vector");
        assert!(rows.start <= rows.end && rows.end <= height, "rows {rows:?} of {height}");
        assert_eq!(out.len(), rows.len() * cols, "values of {} rows of {id:?}", rows.len());
        let (tensor, mut buffers) = (self.stored(id), ReadBuffers::default());
        for part in tensor.runs(rows.clone(), rows.len()) {
            let out = &mut out[(part.start - rows.start) * cols..][..part.len() * cols];
            let run = self.read_run(tensor, part, cols, &mut buffers)?;
            for (i, out) in out.chunks_exact_mut(cols).enumerate() {
                run.decode_row(i, out).map_err(|what| self.bad_row(&run, i, &what))?;
            }
        }
        Ok(())
    }
}
