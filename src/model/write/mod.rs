//! Writes a native model directory: config.json, shards of safetensors, an index where there are several.
//!
//! Every byte's place follows from the shape, so all headers are known before the first row is; then all cores fill
//! blocks of rows and write them where they belong. Memory is one block per thread, whatever the model's size. The
//! directory appears under its name only when everything is on the disk: until then it is a hidden one beside it.

pub mod forge;
pub mod quantize;

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use half::bf16;
use rayon::prelude::*;
use serde_json::{Map, Value, json};

use crate::display::bytes;
use crate::model::checkpoint::files::INDEX;
use crate::model::{Shape, TensorId, WeightFormat, config};
use crate::{Error, Result};

/// A shard is closed before it would pass this many bytes, as transformers' default has it.
const SHARD_BYTES: u64 = 5_000_000_000;
/// Bytes of rows that a thread fills and writes at a time.
const BLOCK_BYTES: usize = 4 << 20;
/// Headers are padded with spaces to a multiple of this, so that the first tensor starts on a page.
const HEADER_ALIGN: usize = 4096;

/// Where the rows of a checkpoint that is written come from.
pub(crate) trait Rows: Sync {
    /// A norm's weights.
    fn vector(&self, id: TensorId) -> Result<Vec<f32>>;

    /// Rows of a matrix, as [`crate::model::Checkpoint::read_rows`] gives them.
    fn rows(
        &self,
        id: TensorId,
        rows: Range<usize>,
        format: WeightFormat,
        data: &mut [u8],
        scales: &mut [f32],
    ) -> Result<()>;

    /// These rows have been written and are not asked for again.
    fn done(&self, _id: TensorId, _rows: Range<usize>) {}
}

/// How a long write is watched and stopped.
pub struct Watch<'a> {
    /// Called from any thread with the bytes written so far and the bytes to write in all.
    pub progress: &'a (dyn Fn(u64, u64) + Sync),
    /// Set by anyone to stop: the write fails at its next block and leaves nothing behind.
    pub cancel: &'a AtomicBool,
}

/// What was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// Tensors of the model (their scales are not counted).
    pub tensors: usize,
    /// Bytes of the weight files.
    pub bytes: u64,
}

/// Refuses a destination that exists, before any work is done.
///
/// # Errors
/// [`Error::Input`].
pub(crate) fn check_destination(dst: &Path) -> Result<()> {
    if std::fs::symlink_metadata(dst).is_ok() || dst.file_name().is_none() {
        let cause = format!("{} exists already", dst.display());
        return Err(Error::input(cause, "choose another destination, or remove it first"));
    }
    Ok(())
}

/// Writes the checkpoint `shape` in `format` with the rows of `source` to the new directory `dst`, and copies the
/// files `extra` beside it.
///
/// # Errors
/// [`Error::Input`] if `dst` exists or a row of the source is wrong; [`Error::Failed`] if there is not enough space,
/// a write fails or `watch.cancel` is set. Nothing is left behind then.
pub(crate) fn write_checkpoint(
    dst: &Path,
    shape: &Shape,
    format: WeightFormat,
    source: &dyn Rows,
    extra: &[PathBuf],
    watch: &Watch,
) -> Result<Written> {
    check_destination(dst)?;
    write_in_shards(dst, shape, format, source, extra, watch, SHARD_BYTES)
}

fn write_in_shards(
    dst: &Path,
    shape: &Shape,
    format: WeightFormat,
    source: &dyn Rows,
    extra: &[PathBuf],
    watch: &Watch,
    shard_bytes: u64,
) -> Result<Written> {
    let shards = lay_out(shape, format, source, shard_bytes)?;
    let bytes = shards.iter().map(Shard::file_bytes).sum();
    let partial = PartialDir::create(dst)?;
    check_space(partial.path(), bytes, free_bytes(partial.path())?)?;
    write_shards(partial.path(), &shards, shape, format, source, watch)?;
    write_file(&partial.path().join("config.json"), config::to_json(shape).as_bytes())?;
    if shards.len() > 1 {
        write_file(&partial.path().join(INDEX), index_json(&shards).as_bytes())?;
    }
    for path in extra {
        let contents = std::fs::read(path).map_err(|e| Error::unreadable(path, &e))?;
        write_file(&partial.path().join(path.file_name().unwrap_or_default()), &contents)?;
    }
    if watch.cancel.load(Ordering::Relaxed) {
        return Err(interrupted());
    }
    partial.commit(dst)?;
    Ok(Written { tensors: TensorId::all(shape).count(), bytes })
}

/// What one entry of a shard holds.
enum Content {
    /// A norm's weights, encoded.
    Vector(Vec<u8>),
    /// A matrix's elements.
    Elements(TensorId),
    /// A matrix's scales.
    Scales(TensorId),
}

/// One entry of a shard, at `offset` in its data.
struct Item {
    name: String,
    dtype: &'static str,
    shape: Vec<usize>,
    offset: u64,
    bytes: u64,
    content: Content,
}

/// One file.
struct Shard {
    name: String,
    header: Vec<u8>,
    items: Vec<Item>,
    data_bytes: u64,
}

impl Shard {
    fn file_bytes(&self) -> u64 {
        self.header.len() as u64 + self.data_bytes
    }
}

/// Places every tensor. All offsets are multiples of 4: widths are even, and hidden and FFN sizes multiples of 8.
fn lay_out(shape: &Shape, format: WeightFormat, source: &dyn Rows, limit: u64) -> Result<Vec<Shard>> {
    let mut shards: Vec<(Vec<Item>, u64)> = vec![(Vec::new(), 0)];
    for id in TensorId::all(shape) {
        let items = if id.is_vector() { vec![vector_item(id, &source.vector(id)?)] } else { items(id, shape, format) };
        let bytes: u64 = items.iter().map(|item| item.bytes).sum();
        if shards.last().is_none_or(|(items, used)| !items.is_empty() && used + bytes > limit) {
            shards.push((Vec::new(), 0));
        }
        let Some((list, used)) = shards.last_mut() else { continue };
        for mut item in items {
            item.offset = *used;
            *used += item.bytes;
            list.push(item);
        }
    }
    let count = shards.len();
    let name = |i: usize| match count {
        1 => "model.safetensors".to_owned(),
        _ => format!("model-{:05}-of-{count:05}.safetensors", i + 1),
    };
    let shard = |(i, (items, data_bytes)): (usize, (Vec<Item>, u64))| {
        let (name, header) = (name(i), header(&items));
        Shard { name, header, items, data_bytes }
    };
    Ok(shards.into_iter().enumerate().map(shard).collect())
}

/// A norm stays BF16 where that loses nothing, and becomes F32 where it would.
fn vector_item(id: TensorId, values: &[f32]) -> Item {
    let exact = values.iter().all(|w| bf16::from_f32(*w).to_f32() == *w);
    let (dtype, encoded): (_, Vec<u8>) = if exact {
        ("BF16", values.iter().flat_map(|w| bf16::from_f32(*w).to_le_bytes()).collect())
    } else {
        ("F32", values.iter().flat_map(|w| w.to_le_bytes()).collect())
    };
    let (shape, bytes) = (vec![values.len()], encoded.len() as u64);
    Item { name: id.name(), dtype, shape, offset: 0, bytes, content: Content::Vector(encoded) }
}

/// A matrix's elements, and its scales where the format has them.
fn items(id: TensorId, shape: &Shape, format: WeightFormat) -> Vec<Item> {
    let [rows, cols] = id.dims(shape);
    let dtype = match format {
        WeightFormat::Int8 => "I8",
        WeightFormat::Bf16 => "BF16",
    };
    let bytes = rows as u64 * (cols * format.element_bytes()) as u64;
    let content = Content::Elements(id);
    let mut items = vec![Item { name: id.name(), dtype, shape: vec![rows, cols], offset: 0, bytes, content }];
    if format.scale_bytes() > 0 {
        let (name, bytes) = (format!("{}_scale", id.name()), (rows * format.scale_bytes()) as u64);
        items.push(Item { name, dtype: "F32", shape: vec![rows], offset: 0, bytes, content: Content::Scales(id) });
    }
    items
}

/// A shard's first bytes: the header's length, the header, spaces.
fn header(items: &[Item]) -> Vec<u8> {
    let mut map = Map::new();
    map.insert("__metadata__".into(), json!({"format": "pt"}));
    for item in items {
        let offsets = [item.offset, item.offset + item.bytes];
        map.insert(item.name.clone(), json!({"dtype": item.dtype, "shape": item.shape, "data_offsets": offsets}));
    }
    let mut json = Value::Object(map).to_string().into_bytes();
    json.resize((json.len() + 8).next_multiple_of(HEADER_ALIGN) - 8, b' ');
    let mut header = (json.len() as u64).to_le_bytes().to_vec();
    header.append(&mut json);
    header
}

fn index_json(shards: &[Shard]) -> String {
    let map: Map<String, Value> =
        shards.iter().flat_map(|s| s.items.iter().map(|i| (i.name.clone(), json!(s.name)))).collect();
    let total: u64 = shards.iter().map(|s| s.data_bytes).sum();
    format!("{:#}\n", json!({"metadata": {"total_size": total}, "weight_map": map}))
}

/// One block of rows and where it goes.
struct Block<'a> {
    path: &'a Path,
    file: &'a File,
    id: TensorId,
    rows: Range<usize>,
    /// Offsets in the file of the matrix's elements and of its scales.
    elements: u64,
    scales: Option<u64>,
}

fn write_shards(
    dir: &Path,
    shards: &[Shard],
    shape: &Shape,
    format: WeightFormat,
    source: &dyn Rows,
    watch: &Watch,
) -> Result<()> {
    let total = shards.iter().map(Shard::file_bytes).sum();
    let written = AtomicU64::new(0);
    let advance = |bytes: u64| (watch.progress)(written.fetch_add(bytes, Ordering::Relaxed) + bytes, total);
    let mut files = Vec::with_capacity(shards.len());
    for shard in shards {
        let path = dir.join(&shard.name);
        let file = File::create_new(&path).map_err(|e| Error::unwritable(&path, &e))?;
        file.set_len(shard.file_bytes()).map_err(|e| Error::unwritable(&path, &e))?;
        write_at(&path, &file, &shard.header, 0)?;
        let mut bytes = shard.header.len() as u64;
        for item in &shard.items {
            if let Content::Vector(vector) = &item.content {
                write_at(&path, &file, vector, shard.header.len() as u64 + item.offset)?;
                bytes += item.bytes;
            }
        }
        advance(bytes);
        files.push((path, file));
    }
    let blocks: Vec<Block> = shards
        .iter()
        .zip(&files)
        .flat_map(|(shard, (path, file))| cut_blocks(shard, path, file, shape, format))
        .collect();
    // Rayon starts its threads far apart in the list, so that they write to different shards: writes to one file
    // wait for one another in the kernel.
    blocks.par_iter().with_max_len(1).try_for_each_init(Buffers::default, |buffers, block| {
        if watch.cancel.load(Ordering::Relaxed) {
            return Err(interrupted());
        }
        advance(block.write(shape, format, source, buffers)?);
        Ok(())
    })?;
    files.par_iter().try_for_each(|(path, file)| file.sync_all().map_err(|e| Error::unwritable(path, &e)))
}

/// The blocks of a shard's matrices.
fn cut_blocks<'a>(
    shard: &Shard,
    path: &'a Path,
    file: &'a File,
    shape: &Shape,
    format: WeightFormat,
) -> Vec<Block<'a>> {
    let start = shard.header.len() as u64;
    let mut blocks: Vec<Block> = Vec::new();
    for item in &shard.items {
        match item.content {
            Content::Vector(_) => {}
            Content::Elements(id) => {
                let [height, cols] = id.dims(shape);
                let step = (BLOCK_BYTES / format.row_bytes(cols)).max(1);
                for first in (0..height).step_by(step) {
                    let rows = first..(first + step).min(height);
                    blocks.push(Block { path, file, id, rows, elements: start + item.offset, scales: None });
                }
            }
            Content::Scales(id) => {
                let of_matrix = blocks.iter_mut().rev().take_while(|block| block.id == id);
                of_matrix.for_each(|block| block.scales = Some(start + item.offset));
            }
        }
    }
    blocks
}

/// A thread's memory, used for one block after another.
#[derive(Default)]
struct Buffers {
    data: Vec<u8>,
    scales: Vec<f32>,
}

impl Block<'_> {
    /// Fills and writes the block; returns its bytes in the file.
    fn write(&self, shape: &Shape, format: WeightFormat, source: &dyn Rows, buffers: &mut Buffers) -> Result<u64> {
        let [_, cols] = self.id.dims(shape);
        let (stride, width) = (format.row_bytes(cols), cols * format.element_bytes());
        buffers.data.resize(self.rows.len() * stride, 0);
        buffers.scales.resize(self.rows.len(), 0.0);
        source.rows(self.id, self.rows.clone(), format, &mut buffers.data, &mut buffers.scales)?;
        // The file has no padding between rows.
        if width != stride {
            for i in 1..self.rows.len() {
                buffers.data.copy_within(i * stride..i * stride + width, i * width);
            }
        }
        let elements = &buffers.data[..self.rows.len() * width];
        write_at(self.path, self.file, elements, self.elements + (self.rows.start * width) as u64)?;
        let mut bytes = elements.len() as u64;
        if let Some(offset) = self.scales {
            let scales: &[u8] = bytemuck::cast_slice(&buffers.scales);
            write_at(self.path, self.file, scales, offset + (self.rows.start * 4) as u64)?;
            bytes += scales.len() as u64;
        }
        source.done(self.id, self.rows.clone());
        Ok(bytes)
    }
}

fn write_at(path: &Path, file: &File, bytes: &[u8], offset: u64) -> Result<()> {
    file.write_all_at(bytes, offset).map_err(|e| Error::unwritable(path, &e))
}

/// Writes a small file and brings it to the disk.
fn write_file(path: &Path, contents: &[u8]) -> Result<()> {
    let write = || {
        let file = File::create_new(path)?;
        file.write_all_at(contents, 0)?;
        file.sync_all()
    };
    write().map_err(|e| Error::unwritable(path, &e))
}

fn interrupted() -> Error {
    Error::failed("interrupted, and nothing was kept of what was written", "start it again")
}

/// Bytes that may still be written where `path` is.
fn free_bytes(path: &Path) -> Result<u64> {
    let stat = nix::sys::statvfs::statvfs(path).map_err(|e| Error::unwritable(path, &e.into()))?;
    Ok(stat.blocks_available().saturating_mul(stat.fragment_size()))
}

fn check_space(path: &Path, needed: u64, free: u64) -> Result<()> {
    if needed <= free {
        return Ok(());
    }
    let place = path.parent().unwrap_or(path).display();
    let cause = format!("the weights take {}, but {} are free in {place}", bytes(needed), bytes(free));
    Err(Error::failed(cause, format!("free {} there or choose another destination", bytes(needed - free))))
}

const PARTIAL_PREFIX: &str = ".kiln-";
const PARTIAL_SUFFIX: &str = ".partial";

/// A hidden directory beside the destination, which becomes the destination or disappears.
struct PartialDir {
    directory: tempfile::TempDir,
}

impl PartialDir {
    fn create(dst: &Path) -> Result<PartialDir> {
        let directory = tempfile::Builder::new()
            .prefix(PARTIAL_PREFIX)
            .suffix(PARTIAL_SUFFIX)
            .permissions(std::fs::Permissions::from_mode(0o777))
            .tempdir_in(parent_of(dst))
            .map_err(|e| Error::unwritable(dst, &e.kind().into()))?;
        warn_of_leftovers(parent_of(dst));
        Ok(PartialDir { directory })
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Gives the directory its name. A directory that has taken the name meanwhile makes the rename fail.
    fn commit(self, dst: &Path) -> Result<()> {
        let sync = |path: &Path| File::open(path)?.sync_all();
        sync(self.path()).map_err(|e| Error::unwritable(self.path(), &e))?;
        check_destination(dst)?;
        std::fs::rename(self.path(), dst).map_err(|e| Error::unwritable(dst, &e))?;
        // Renamed: there is nothing left to remove.
        let _ = self.directory.keep();
        let parent = parent_of(dst);
        sync(parent).map_err(|e| Error::unwritable(parent, &e))
    }
}

/// Names directories that a write left behind when it was killed: they are hidden, and may be large.
fn warn_of_leftovers(parent: &Path) {
    // A write under way touches its directory as it begins each file.
    let old = |e: &std::fs::DirEntry| e.metadata().ok()?.modified().ok()?.elapsed().ok();
    for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let partial = name.starts_with(PARTIAL_PREFIX) && name.ends_with(PARTIAL_SUFFIX);
        if partial && old(&entry).is_some_and(|age| age > Duration::from_secs(3600)) {
            log::warn!("{} is left of a write that was cut off: remove it", entry.path().display());
        }
    }
}

fn parent_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Checkpoint;

    #[test]
    fn shards_and_their_index_are_the_same_model() {
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/wide_small");
        let (from, place) = (Checkpoint::open(&golden).unwrap(), tempfile::tempdir().unwrap());
        let dst = place.path().join("sharded");
        let watch = Watch { progress: &|_, _| {}, cancel: &AtomicBool::new(false) };
        let int8 = WeightFormat::Int8;
        write_in_shards(&dst, from.shape(), int8, &from, &[], &watch, 300_000).unwrap();
        let shards = std::fs::read_dir(&dst).unwrap().map(|e| e.unwrap().path());
        let shards: Vec<_> = shards.filter(|p| p.extension().is_some_and(|e| e == "safetensors")).collect();
        assert!(shards.len() > 4, "{shards:?}");
        assert!(shards.iter().all(|p| std::fs::metadata(p).unwrap().len() < 300_000 + HEADER_ALIGN as u64));
        let to = Checkpoint::open(&dst).unwrap();
        assert_eq!(to.shape(), from.shape());
        for id in TensorId::all(from.shape()).filter(|id| !id.is_vector()) {
            let [rows, cols] = id.dims(from.shape());
            let read = |c: &Checkpoint| {
                let (mut data, mut scales) = (vec![0; rows * int8.row_bytes(cols)], vec![0.0; rows]);
                c.read_rows(id, 0..rows, int8, &mut data, &mut scales).unwrap();
                (data, scales)
            };
            assert!(read(&from) == read(&to), "{id:?}");
        }
        std::fs::remove_file(&shards[0]).unwrap();
        assert!(Checkpoint::open(&dst).is_err(), "the index names every shard");
    }

    #[test]
    fn space_is_refused_with_both_sums() {
        let line = check_space(Path::new("/x/y"), 27_000_000_000, 12_500_000_000).unwrap_err().to_string();
        assert!(line.contains("take 27.0 GB, but 12.5 GB are free in /x; free 14.5 GB"), "{line}");
        assert!(check_space(Path::new("/x/y"), 5, 5).is_ok());
    }
}
