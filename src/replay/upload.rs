//! Uploads weights into device memory: in place if the host maps it, else through one staging buffer.

use crate::executor::weights::{self, Progress};
use crate::model::checkpoint::Checkpoint;
use crate::replay::device_queue::DeviceQueue;
use crate::replay::driver::{Driver, Memory, MemoryCopy, unmapped};
use crate::replay::needs::STAGING_BYTES;
use crate::schedule::layout::{BufferLayout, Placement};
use crate::{Error, Result};

/// Fills one weight buffer from the checkpoint.
///
/// # Errors
/// Input: a tensor cannot be read. Interrupted: the load was cancelled. Device: a copy failed.
pub fn upload<D: Driver>(
    checkpoint: &Checkpoint,
    layout: &BufferLayout,
    target: &mut D::Memory,
    staging: Option<&mut D::Memory>,
    queue: &mut DeviceQueue<D>,
    progress: &Progress,
) -> Result<()> {
    // SAFETY: no submitted list uses the buffer yet.
    if let Some(bytes) = unsafe { target.bytes_mut() } {
        return weights::fill(checkpoint, layout, bytes, progress);
    }
    let staging = staging.ok_or_else(|| Error::device("device memory is not mapped", "report this driver"))?;
    let checkpoint = weights::source(checkpoint, layout.buffer);
    for placement in &layout.tensors {
        match *placement {
            Placement::Vector(id, v) => {
                stage(staging, target, queue, v.offset, bytemuck::cast_slice(&checkpoint.read_vector(id)?))?;
            }
            Placement::Frequencies(rope, v) => {
                stage(staging, target, queue, v.offset, bytemuck::cast_slice(&rope.inverse_frequencies(v.len)))?;
            }
            Placement::Matrix(id, m) => {
                let (row, scale) = (m.format.row_bytes(m.cols), m.format.scale_bytes(m.cols));
                let block = (STAGING_BYTES as usize / 2 / (row + scale)).max(1);
                for first in (0..m.rows).step_by(block) {
                    let rows = first..(first + block).min(m.rows);
                    let (data_len, scale_len) = (rows.len() * row, rows.len() * scale);
                    // SAFETY: each copy out of the staging buffer is waited for.
                    let bytes = unsafe { staging.bytes_mut() }.ok_or_else(unmapped)?;
                    let (data, rest) = bytes.split_at_mut(STAGING_BYTES as usize / 2);
                    let scales = &mut rest[..scale_len];
                    let data = &mut data[..data_len];
                    weights::read_block(checkpoint, id, rows, m.format, data, scales, progress)?;
                    let copy = |from_offset, to_offset: u64, bytes: usize| MemoryCopy {
                        from_offset,
                        to_offset,
                        ..MemoryCopy::new(&*staging, &*target, bytes as u64)
                    };
                    let data = copy(0, m.offset + (first * row) as u64, data_len);
                    let scales = copy(STAGING_BYTES / 2, m.scales + (first * scale) as u64, scale_len);
                    queue.copy([data, scales].into_iter().filter(|copy| copy.bytes > 0))?;
                }
            }
        }
    }
    Ok(())
}

fn stage<D: Driver>(
    staging: &mut D::Memory,
    target: &D::Memory,
    queue: &mut DeviceQueue<D>,
    offset: u64,
    data: &[u8],
) -> Result<()> {
    staging.copy_from(data)?;
    queue.copy([MemoryCopy { to_offset: offset, ..MemoryCopy::new(staging, target, data.len() as u64) }])
}
