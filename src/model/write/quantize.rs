//! A checkpoint in any form → a native INT8 model directory.

use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::Result;
use crate::model::write::{self, Rows, Watch, Written};
use crate::model::{Checkpoint, TensorId, WeightFormat};

/// What a model directory holds besides config and weights, copied if there.
const COMPANIONS: [&str; 6] = [
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "chat_template.jinja",
    "special_tokens_map.json",
    "generation_config.json",
];

/// Writes the model directory `src` as a new directory `dst` with its matrices in `format`, in blocks of rows on all
/// cores. The source's pages are dropped behind, so that neither memory nor page cache grow with the model.
///
/// # Errors
/// [`crate::Error::Input`]: `dst` exists, `src` is no model, a row of it is wrong, or `format` cannot be made from
/// it. [`crate::Error::Failed`]: no space, no permission, or cancelled. Nothing is left behind then.
pub fn quantize(src: &Path, dst: &Path, format: WeightFormat, watch: &Watch) -> Result<Written> {
    write::check_destination(dst)?;
    let checkpoint = Checkpoint::open(src)?;
    let extra: Vec<PathBuf> = COMPANIONS.iter().map(|name| src.join(name)).filter(|path| path.is_file()).collect();
    write::write_checkpoint(dst, checkpoint.shape(), format, &checkpoint, &extra, watch)
}

impl Rows for Checkpoint {
    fn vector(&self, id: TensorId) -> Result<Vec<f32>> {
        self.read_vector(id)
    }

    fn rows(
        &self,
        id: TensorId,
        rows: Range<usize>,
        format: WeightFormat,
        data: &mut [u8],
        scales: &mut [f32],
    ) -> Result<()> {
        self.read_rows(id, rows, format, data, scales)
    }

    fn done(&self, id: TensorId, rows: Range<usize>) {
        self.release(id, rows);
    }
}
