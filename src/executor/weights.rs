//! Fills weight buffers from a checkpoint: reads each tensor's rows straight into their final place in memory.

use crate::model::checkpoint::Checkpoint;
use crate::model::{TensorId, WeightFormat};
use crate::schedule::layout::{BufferLayout, Placement};
use crate::schedule::step::{Vector, WeightBuffer};
use crate::{Cancel, Result};
use rayon::prelude::*;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a tensor's rows that one thread reads at a time.
const CHUNK: usize = 1 << 20;

/// Loading progress in bytes, for a progress bar, and the flag that ends the load early.
#[derive(Debug, Default)]
pub struct Progress {
    done: AtomicU64,
    total: AtomicU64,
    /// Number of pending measurements of tuning, and their estimated milliseconds.
    tuning: [AtomicU64; 2],
    pub(crate) cancel: Cancel,
}

impl Progress {
    /// Progress of a load that `cancel` ends early. It ends passes of the loaded executor too.
    pub fn new(cancel: Cancel) -> Progress {
        Progress { cancel, ..Progress::default() }
    }

    /// The number of bytes of weights that are loaded so far.
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Bytes of weights to load in total; 0 until known.
    pub fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    pub(crate) fn add_to_total(&self, bytes: u64) {
        self.total.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Number of pending measurements of tuning, and their estimated seconds; `None` if there are none.
    pub fn tuning(&self) -> Option<(u64, f64)> {
        let [open, milliseconds] = [0, 1].map(|i| self.tuning[i].load(Ordering::Relaxed));
        (open > 0).then_some((open, milliseconds as f64 * 1e-3))
    }

    pub(crate) fn set_tuning(&self, open: usize, seconds: f64) {
        self.tuning[1].store((seconds * 1e3) as u64, Ordering::Relaxed);
        self.tuning[0].store(open as u64, Ordering::Relaxed);
    }

    pub(crate) fn add(&self, bytes: u64) {
        self.done.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// Reads `rows` of a matrix in `format` on all cores. Padded elements go to `data`, scales to `scales`.
///
/// # Errors
/// Input: the tensor cannot be read, or holds invalid values. Interrupted: the load was cancelled.
pub fn read_block(
    checkpoint: &Checkpoint,
    id: TensorId,
    rows: Range<usize>,
    format: WeightFormat,
    data: &mut [u8],
    scales: &mut [u8],
    progress: &Progress,
) -> Result<()> {
    let (row_bytes, scale_bytes) = (data.len() / rows.len(), scales.len() / rows.len());
    let step = (CHUNK / row_bytes).max(1);
    let read = |i: usize, data: &mut [u8], scales: &mut [u8]| {
        progress.cancel.check()?;
        let first = rows.start + i * step;
        checkpoint.read_rows(id, first..first + data.len() / row_bytes, format, data, scales)?;
        progress.add((data.len() + scales.len()) as u64);
        Ok(())
    };
    let blocks = data.par_chunks_mut(step * row_bytes).enumerate();
    if scale_bytes == 0 {
        return blocks.try_for_each(|(i, data)| read(i, data, &mut []));
    }
    let scales = scales.par_chunks_mut(step * scale_bytes);
    blocks.zip(scales).try_for_each(|((i, data), scales)| read(i, data, scales))
}

/// The checkpoint with a buffer's tensors: the model's, or its drafter's.
pub fn source(checkpoint: &Checkpoint, buffer: WeightBuffer) -> &Checkpoint {
    match buffer {
        WeightBuffer::Drafter => checkpoint.drafter().unwrap_or(checkpoint),
        _ => checkpoint,
    }
}

/// Fills a whole weight buffer in place. `dst` is at least `layout.bytes` long.
///
/// # Errors
/// As [`read_block`].
pub fn fill(checkpoint: &Checkpoint, layout: &BufferLayout, dst: &mut [u8], progress: &Progress) -> Result<()> {
    let checkpoint = source(checkpoint, layout.buffer);
    for placement in &layout.tensors {
        match *placement {
            Placement::Vector(id, v) => put(dst, v, &checkpoint.read_vector(id)?, progress),
            Placement::Frequencies(rope, v) => put(dst, v, &rope.inverse_frequencies(v.len), progress),
            Placement::Matrix(id, m) => {
                let bytes = m.rows * m.format.row_bytes(m.cols);
                // A stacked matrix keeps all of its scales after all of its rows.
                let (head, tail) = dst.split_at_mut(m.scales as usize);
                let data = &mut head[m.offset as usize..m.offset as usize + bytes];
                let scales = &mut tail[..m.rows * m.format.scale_bytes(m.cols)];
                read_block(checkpoint, id, 0..m.rows, m.format, data, scales, progress)?;
            }
        }
    }
    Ok(())
}

fn put(dst: &mut [u8], v: Vector, values: &[f32], progress: &Progress) {
    dst[v.offset as usize..v.offset as usize + 4 * v.len].copy_from_slice(bytemuck::cast_slice(values));
    progress.add(4 * v.len as u64);
}
