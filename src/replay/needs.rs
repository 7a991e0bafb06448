//! The memory that replaying on a device needs beside weights and KV cache: the arena, and staging for results and
//! uploads.

use crate::lower::layout::GpuLayout;
use crate::plan::Needs;
use crate::schedule::Schedule;
use crate::schedule::kv::Pool;
use crate::schedule::layout::ALIGN;

/// Bytes of the staging buffer for uploads, if the host cannot map the device's memory.
pub(crate) const STAGING_BYTES: u64 = 64 << 20;
/// Slots of results: one for the finished pass, one for the running pass.
pub(crate) const SLOTS: usize = 2;
/// Most bytes of a page that are copied at a time. A copy takes some tens of microseconds beside the time of its bytes.
const PIECE_BYTES: u64 = 4 << 20;

impl Needs {
    /// The memory needs of an executor on a device ([`Needs::on_device`]); `None`: of one on the CPU.
    pub fn of_executor(schedule: &Schedule, staged: Option<bool>) -> Needs {
        staged.map_or_else(|| Needs::of(schedule), |staged| Needs::on_device(schedule, staged))
    }

    /// The memory needs of replaying on a device. `staged`: the host cannot map the device's memory, or only uncached;
    /// uploads and logits then go through staging. The step state and pages of the KV cache always do.
    pub fn on_device(schedule: &Schedule, staged: bool) -> Needs {
        let piece = piece_bytes(schedule);
        let all = schedule.extent.head_rows;
        // Uploads end before there are results, so they share the memory.
        let passing = match staged {
            true => STAGING_BYTES.max(logits_bytes(schedule, all) + piece),
            false => piece,
        };
        let states = (SLOTS + usize::from(schedule.drafter.is_some())) as u64 * state_bytes(schedule);
        let staging = passing + states + found_bytes(schedule, all);
        Needs { arena: GpuLayout::new(schedule).bytes, staging }
    }
}

/// Bytes of a copy of the step state.
pub(crate) fn state_bytes(schedule: &Schedule) -> u64 {
    (4 * schedule.arena.state.words() as u64).next_multiple_of(ALIGN)
}

/// Bytes of the logits of `rows` head rows.
pub(crate) fn logits_bytes(schedule: &Schedule, rows: usize) -> u64 {
    4 * (rows * schedule.logits.stride) as u64
}

/// Bytes of the sample results of `rows` head rows.
pub(crate) fn found_bytes(schedule: &Schedule, rows: usize) -> u64 {
    4 * (rows * schedule.found.stride) as u64
}

/// Bytes of a page that are copied at a time.
pub(crate) fn piece_bytes(schedule: &Schedule) -> u64 {
    Pool::ALL.map(|pool| schedule.kv.pool(pool).page_bytes).into_iter().fold(0, u64::max).min(PIECE_BYTES)
}
