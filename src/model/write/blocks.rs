//! Fills shards: all cores fill blocks of rows and write each at its offset.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use rayon::prelude::*;

use super::job::{Matrices, WriteMonitor};
use super::shards::{Payload, Shard};
use crate::model::tensor::{self, TensorId};
use crate::{Error, Result};

/// Bytes of rows that a thread fills and writes at a time.
const BLOCK_BYTES: usize = 4 << 20;

/// Writes every shard to the directory `dir` and flushes it to the disk.
///
/// # Errors
/// As [`super::write_checkpoint`].
pub(super) fn write_shards(dir: &Path, shards: &[Shard], matrices: &Matrices, monitor: &WriteMonitor) -> Result<()> {
    let total = shards.iter().map(Shard::file_bytes).sum();
    let written = AtomicU64::new(0);
    let advance = |bytes: u64| (monitor.progress)(written.fetch_add(bytes, Ordering::Relaxed) + bytes, total);
    let mut files = Vec::with_capacity(shards.len());
    for shard in shards {
        let path = dir.join(&shard.name);
        let (file, bytes) = create(&path, shard)?;
        advance(bytes);
        files.push((path, file));
    }
    let blocks: Vec<Block> =
        shards.iter().zip(&files).flat_map(|(shard, (path, file))| cut_blocks(shard, path, file, matrices)).collect();
    // Rayon's threads start far apart in the list, so they write to different files. The kernel serialises writes to
    // the same file.
    blocks.par_iter().with_max_len(1).try_for_each_init(BlockBuffers::default, |buffers, block| {
        monitor.check()?;
        block.write(matrices, buffers).map(advance)
    })?;
    files.par_iter().try_for_each(|(path, file)| file.sync_all().map_err(|e| Error::unwritable(path, &e)))
}

/// Creates a shard's file with its header and vectors. Returns the bytes written; the rest of the file is a hole.
fn create(path: &Path, shard: &Shard) -> Result<(File, u64)> {
    let file = File::create_new(path).map_err(|e| Error::unwritable(path, &e))?;
    file.set_len(shard.file_bytes()).map_err(|e| Error::unwritable(path, &e))?;
    write_at(path, &file, &shard.header, 0)?;
    let start = shard.header.len() as u64;
    let mut bytes = start;
    for item in &shard.items {
        if let Payload::Vector(vector) = &item.payload {
            write_at(path, &file, vector, start + item.offset())?;
            bytes += item.bytes();
        }
    }
    Ok((file, bytes))
}

/// Rows of one matrix that follow one another in its file's tensor, and their destination.
struct Block<'a> {
    path: &'a Path,
    file: &'a File,
    id: TensorId,
    rows: Range<usize>,
    /// The tensor's row that is the first of them.
    place: usize,
    /// Offsets of the matrix's elements and scales in the file.
    elements: u64,
    scales: Option<u64>,
}

/// Divides a shard's matrices into blocks that threads write.
fn cut_blocks<'a>(shard: &Shard, path: &'a Path, file: &'a File, matrices: &Matrices) -> Vec<Block<'a>> {
    let start = shard.header.len() as u64;
    let mut blocks: Vec<Block> = Vec::new();
    for item in &shard.items {
        match item.payload {
            Payload::Vector(_) => {}
            Payload::Elements(id) => {
                let elements = start + item.offset();
                for id in TensorId::all(matrices.shape).filter(|other| other.holder() == id) {
                    let [height, cols] = id.dims(matrices.shape);
                    let step = (BLOCK_BYTES / matrices.format(id).row_bytes(cols)).max(1);
                    let half = id.half(matrices.shape);
                    for rows in tensor::runs(half, 0..height, step) {
                        let place = half.map_or(rows.start, |half| half.place(rows.start));
                        blocks.push(Block { path, file, id, rows, place, elements, scales: None });
                    }
                }
            }
            Payload::Scales(id) => {
                let of_matrix = blocks.iter_mut().rev().take_while(|block| block.id.holder() == id);
                of_matrix.for_each(|block| block.scales = Some(start + item.offset()));
            }
        }
    }
    blocks
}

/// The buffers of a thread, which it uses again for each block.
#[derive(Default)]
struct BlockBuffers {
    data: Vec<u8>,
    scales: Vec<u8>,
}

impl Block<'_> {
    /// Fills and writes the block. Returns its bytes in the file.
    fn write(&self, matrices: &Matrices, buffers: &mut BlockBuffers) -> Result<u64> {
        let (format, source) = (matrices.format(self.id), matrices.source);
        let [_, cols] = self.id.dims(matrices.shape);
        let (stride, width, scale_bytes) =
            (format.row_bytes(cols), format.file_row_bytes(cols), format.scale_bytes(cols));
        buffers.data.resize(self.rows.len() * stride, 0);
        buffers.scales.resize(self.rows.len() * scale_bytes, 0);
        source.rows(self.id, self.rows.clone(), format, &mut buffers.data, &mut buffers.scales)?;
        // The file has no padding between rows.
        if width != stride {
            for i in 1..self.rows.len() {
                buffers.data.copy_within(i * stride..i * stride + width, i * width);
            }
        }
        let elements = &buffers.data[..self.rows.len() * width];
        write_at(self.path, self.file, elements, self.elements + (self.place * width) as u64)?;
        let mut bytes = elements.len() as u64;
        if let Some(offset) = self.scales {
            write_at(self.path, self.file, &buffers.scales, offset + (self.place * scale_bytes) as u64)?;
            bytes += buffers.scales.len() as u64;
        }
        source.done(self.id, self.rows.clone());
        Ok(bytes)
    }
}

fn write_at(path: &Path, file: &File, bytes: &[u8], offset: u64) -> Result<()> {
    file.write_all_at(bytes, offset).map_err(|e| Error::unwritable(path, &e))
}
