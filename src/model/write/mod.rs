//! Writes a native model directory: config.json, safetensors shards, and an index if there are several.
//!
//! Each tensor's offset follows from the shape, so all headers are known before the first row (shards.rs). All cores
//! then fill blocks of rows and write each at its offset (blocks.rs). Memory is one block per thread, independent of
//! the model's size. The directory is hidden beside its destination until everything is on the disk (destination.rs).

mod blocks;
#[cfg(any(feature = "cli", feature = "serve"))]
pub mod bundle;
mod destination;
pub mod forge;
pub mod header;
mod job;
pub mod quantize;
mod shards;

use std::path::{Path, PathBuf};

use self::destination::{check_space, write_file};
use self::job::Matrices;
pub(crate) use self::job::RowSource;
pub use self::job::WriteMonitor;
use self::shards::Shard;
use crate::machine::free_bytes;
use crate::machine::partial::PartialDir;
use crate::machine::threads;
use crate::model::checkpoint::files::INDEX;
use crate::model::config;
use crate::model::format::WeightFormat;
use crate::model::shape::Shape;
use crate::model::tensor::TensorId;
use crate::model::text_file;
use crate::{Error, Result};

/// Most bytes of data in a shard: transformers' default.
const SHARD_BYTES: u64 = 5_000_000_000;

/// Largest file that is copied beside the weights, in bytes. Gemma 3's tokenizer.json has 33 MB.
const MAX_COMPANION: usize = 256 << 20;

/// The result of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteSummary {
    /// Tensors of the model; scales are not counted.
    pub tensors: usize,
    /// The size of the weight files in bytes.
    pub bytes: u64,
}

/// Writes the checkpoint `shape` to the new directory `dst`, with the rows of `source`, and copies the files `extra`
/// into it. Matrices have the format of [`WeightFormat::of_matrix`] for `asked`.
///
/// # Errors
/// [`Error::Input`]: `dst` exists, or a row of the source is wrong. [`Error::Failed`]: there is not enough space, or a
/// write fails. [`Error::Interrupted`]: `monitor.cancel` is set. After an error nothing is left behind.
pub(crate) fn write_checkpoint(
    dst: &Path,
    shape: &Shape,
    asked: WeightFormat,
    source: &dyn RowSource,
    extra: &[PathBuf],
    monitor: &WriteMonitor,
) -> Result<WriteSummary> {
    destination::check_destination(dst)?;
    if let Some(exceptions) = asked.exceptions(shape) {
        log::warn!("{exceptions}");
    }
    write_in_shards(dst, &Matrices { shape, asked, source }, extra, monitor, SHARD_BYTES)
}

fn write_in_shards(
    dst: &Path,
    matrices: &Matrices,
    extra: &[PathBuf],
    monitor: &WriteMonitor,
    shard_bytes: u64,
) -> Result<WriteSummary> {
    let shape = matrices.shape;
    let shards = shards::lay_out(matrices, shard_bytes)?;
    let bytes = shards.iter().map(Shard::file_bytes).sum();
    threads::start()?;
    let partial = PartialDir::create(dst).map_err(|e| Error::unwritable(dst, &e.kind().into()))?;
    check_space(partial.path(), bytes, free_bytes(partial.path())?)?;
    blocks::write_shards(partial.path(), &shards, matrices, monitor)?;
    write_file(&partial.path().join("config.json"), config::to_json(shape).as_bytes())?;
    if shards.len() > 1 {
        write_file(&partial.path().join(INDEX), shards::index_json(&shards).as_bytes())?;
    }
    for path in extra {
        let Some(contents) = text_file::read_bytes(path, MAX_COMPANION, "take it from the model's original download")?
        else {
            return Err(Error::unreadable(path, &std::io::ErrorKind::NotFound.into()));
        };
        write_file(&partial.path().join(path.file_name().unwrap_or_default()), &contents)?;
    }
    monitor.check()?;
    destination::commit(partial, dst)?;
    Ok(WriteSummary { tensors: TensorId::all(shape).count(), bytes })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cancel;
    use crate::model::checkpoint::Checkpoint;

    #[test]
    fn shards_and_their_index_are_the_same_model() {
        // The second has matrices whose halves are one tensor.
        check_shards("wide_small", 300_000);
        check_shards("moe4", 100_000);
    }

    fn check_shards(case: &str, limit: u64) {
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(case);
        let (from, place) = (Checkpoint::open(&golden).unwrap(), tempfile::tempdir().unwrap());
        let dst = place.path().join("sharded");
        let monitor = WriteMonitor { progress: &|_, _| {}, cancel: &Cancel::default() };
        let int8 = WeightFormat::Int8;
        let matrices = Matrices { shape: from.shape(), asked: int8, source: &from };
        write_in_shards(&dst, &matrices, &[], &monitor, limit).unwrap();
        let shards = std::fs::read_dir(&dst).unwrap().map(|e| e.unwrap().path());
        let shards: Vec<_> = shards.filter(|p| p.extension().is_some_and(|e| e == "safetensors")).collect();
        assert!(shards.len() > 4, "{shards:?}");
        assert!(shards.iter().all(|p| std::fs::metadata(p).unwrap().len() < limit + shards::HEADER_ALIGN as u64));
        let to = Checkpoint::open(&dst).unwrap();
        assert_eq!(to.shape(), from.shape());
        for id in TensorId::all(from.shape()).filter(|id| !id.is_never_quantized()) {
            let [rows, cols] = id.dims(from.shape());
            let read = |c: &Checkpoint| {
                let (mut data, mut scales) =
                    (vec![0; rows * int8.row_bytes(cols)], vec![0; rows * int8.scale_bytes(cols)]);
                c.read_rows(id, 0..rows, int8, &mut data, &mut scales).unwrap();
                (data, scales)
            };
            assert!(read(&from) == read(&to), "{id:?}");
        }
        std::fs::remove_file(&shards[0]).unwrap();
        assert!(Checkpoint::open(&dst).is_err(), "the index names every shard");
    }
}
