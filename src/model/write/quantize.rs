//! Converts a checkpoint in any encoding to a model directory in Kiln's weight formats.

use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::model::checkpoint::Checkpoint;
use crate::model::format::{SourceFormat, WeightFormat};
use crate::model::shape::Shape;
use crate::model::tensor::TensorId;
use crate::model::text_file::is_there;
use crate::model::write::{self, RowSource, WriteMonitor, WriteSummary, destination};
use crate::{Error, Result};

/// Files of a model directory besides config and weights; those that exist are copied.
const COMPANIONS: [&str; 6] = [
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "chat_template.jinja",
    "special_tokens_map.json",
    "generation_config.json",
];

/// Converts the model directory `src` to a new directory `dst` with its matrices in the format of
/// [`WeightFormat::of_matrix`] for `format`, in blocks of rows on all cores. Source pages are dropped from the page
/// cache once their rows are written, so that neither memory nor page cache grow with the model.
///
/// # Errors
/// [`Error::Input`]: `dst` exists, `src` is not a model, a row of it is wrong, it cannot be converted to `format`, or
/// it has types that only GGUF files have. [`Error::Failed`]: there is no space or no permission.
/// [`Error::Interrupted`]: the conversion was cancelled. After an error nothing is left behind.
pub fn quantize(src: &Path, dst: &Path, format: WeightFormat, monitor: &WriteMonitor) -> Result<WriteSummary> {
    destination::check_destination(dst)?;
    let checkpoint = Checkpoint::open(src)?;
    let formats = checkpoint.formats(format);
    let matrices: Vec<TensorId> = TensorId::all(checkpoint.shape()).filter(|id| !id.is_vector()).collect();
    let kept = |id: &TensorId| (*id, formats(*id));
    if let Some((id, kept)) = matrices.iter().map(kept).find(|(_, kept)| !WeightFormat::MADE.contains(kept)) {
        let cause = format!("{} is {}, which no model directory has", id.name(), kept.name().to_uppercase());
        return Err(Error::input(cause, "use a BF16 file"));
    }
    if let Some(note) = unlike_asked(&matrices, formats, checkpoint.shape(), format) {
        log::warn!("{}: {note}", src.display());
    }
    let extra: Vec<PathBuf> = COMPANIONS.iter().map(|name| src.join(name)).filter(|path| is_there(path)).collect();
    write::write_checkpoint(dst, checkpoint.shape(), format, &checkpoint, &extra, monitor)
}

/// Names the matrices that keep a format other than the one for `asked`, since their files have a smaller one.
fn unlike_asked(
    matrices: &[TensorId],
    formats: impl Fn(TensorId) -> WeightFormat,
    shape: &Shape,
    asked: WeightFormat,
) -> Option<String> {
    let is_kept = |id: &&TensorId| formats(**id) != asked.of_matrix(**id, shape, None);
    let kept: Vec<&TensorId> = matrices.iter().filter(is_kept).collect();
    let name = |format: WeightFormat| format.name().to_uppercase();
    let (first, asked) = (name(formats(**kept.first()?)), name(asked));
    Some(format!(
        "{} of {} matrices stay {first}, as the files have them: {asked} would take more memory for the same weights; \
         for {asked}, quantize the BF16 model",
        kept.len(),
        matrices.len()
    ))
}

impl RowSource for Checkpoint {
    fn vector(&self, id: TensorId) -> Result<Vec<f32>> {
        self.read_vector(id)
    }

    fn stored_as(&self, id: TensorId) -> Option<SourceFormat> {
        Some(self.stored_as(id))
    }

    fn rows(
        &self,
        id: TensorId,
        rows: Range<usize>,
        format: WeightFormat,
        data: &mut [u8],
        scales: &mut [u8],
    ) -> Result<()> {
        self.read_rows(id, rows, format, data, scales)
    }

    fn done(&self, id: TensorId, rows: Range<usize>) {
        self.release(id, rows);
    }
}
