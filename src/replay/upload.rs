//! Uploads weights into device memory: in place if the host maps it, else through one staging buffer.

use crate::error::{Setting, text};
use crate::executor::weights::{self, Progress};
use crate::model::checkpoint::Checkpoint;
use crate::plan::device::STAGING_BYTES;
use crate::schedule::layout::{BufferLayout, Placement};
use crate::vulkan::memory::Buffer;
use crate::vulkan::queue::Queue;
use crate::{Error, Result};
use ash::vk;

/// Fills one weight buffer from the checkpoint.
///
/// # Errors
/// Input: a tensor cannot be read. Interrupted: the load was cancelled. Device: a copy failed.
pub fn upload(
    checkpoint: &Checkpoint,
    layout: &BufferLayout,
    target: &mut Buffer,
    staging: Option<&mut Buffer>,
    queue: &Queue,
    progress: &Progress,
) -> Result<()> {
    // SAFETY: nothing that uses the buffer was submitted yet.
    if let Some(bytes) = unsafe { target.bytes_mut() } {
        return weights::fill(checkpoint, layout, bytes, progress);
    }
    let staging = staging.ok_or_else(|| Error::device("device memory is not mapped", "report this driver"))?;
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
                    let mut copies = vec![
                        vk::BufferCopy::default().dst_offset(m.offset + (first * row) as u64).size(data_len as u64),
                    ];
                    if scale > 0 {
                        copies.push(
                            vk::BufferCopy::default()
                                .src_offset(STAGING_BYTES / 2)
                                .dst_offset(m.scales + (first * scale) as u64)
                                .size(scale_len as u64),
                        );
                    }
                    queue.copy(staging, target, &copies)?;
                }
            }
        }
    }
    Ok(())
}

fn unmapped() -> Error {
    Error::device("the staging buffer is not mapped", text!("update the driver, or use ", Setting::Cpu))
}

fn stage(staging: &mut Buffer, target: &Buffer, queue: &Queue, offset: u64, data: &[u8]) -> Result<()> {
    staging.copy_from(data)?;
    queue.copy(staging, target, &[vk::BufferCopy::default().dst_offset(offset).size(data.len() as u64)])
}
