//! Results: the memory in which the host reads a pass's output.
//!
//! Every head ends with a copy of the step state, which has each row's next token, into one of two small buffers. So
//! the host can read one pass's results while the next pass runs. Logits are copied on request, unless the host reads
//! the arena itself through its caches.

use crate::Result;
use crate::replay::driver::{Driver, HostAccess, Memory, MemoryCopy, MemorySource};
use crate::replay::needs::{SLOTS, found_bytes, logits_bytes, piece_bytes, state_bytes};
use crate::schedule::Schedule;
use crate::schedule::choice::SampleResult;
use crate::schedule::layout::StateLayout;

/// The results of passes as the host reads them.
pub(crate) struct Results<D: Driver> {
    state: StateLayout,
    /// Copies of the step state after a head, one buffer per slot.
    choices: [D::Memory; SLOTS],
    /// The copy of the step state after a draft; `None` without a drafter.
    draft: Option<D::Memory>,
    /// Copies of rows of logits. `None` if the host reads the arena through its caches.
    logits: Option<D::Memory>,
    /// A copy of the sample results that the host can read.
    found: D::Memory,
    /// Staging for pages of the KV cache, piece by piece.
    pub pages: D::Memory,
    /// The slot of the pass that the host reads.
    pub slot: usize,
}

impl<D: Driver> Results<D> {
    /// Allocates in `heap`, which the host maps. `apart`: logits cannot be read in the arena and need a buffer.
    ///
    /// # Errors
    /// Device: the driver refuses.
    pub(crate) fn new(driver: &D, schedule: &Schedule, heap: usize, apart: bool) -> Result<Results<D>> {
        let buffer = |bytes| driver.allocate(bytes, heap, HostAccess::Host, MemorySource::Ordinary);
        Ok(Results {
            state: schedule.arena.state,
            choices: [buffer(state_bytes(schedule))?, buffer(state_bytes(schedule))?],
            draft: schedule.drafter.as_ref().map(|_| buffer(state_bytes(schedule))).transpose()?,
            logits: apart.then(|| buffer(logits_bytes(schedule, schedule.extent.head_rows))).transpose()?,
            found: buffer(found_bytes(schedule, schedule.extent.head_rows))?,
            pages: buffer(piece_bytes(schedule))?,
            slot: 0,
        })
    }

    /// True if the host cannot read the logits where the device writes them, so that they must be copied.
    pub(crate) fn are_apart(&self) -> bool {
        self.logits.is_some()
    }

    /// The copy of the step state to `slot`, at the end of a head.
    pub(crate) fn state_copy<'a>(
        &'a self,
        arena: &'a D::Memory,
        schedule: &Schedule,
        slot: usize,
    ) -> MemoryCopy<'a, D> {
        MemoryCopy::new(arena, &self.choices[slot], state_bytes(schedule))
    }

    /// The copy of the step state after a draft.
    pub(crate) fn draft_copy<'a>(&'a self, arena: &'a D::Memory, schedule: &Schedule) -> Option<MemoryCopy<'a, D>> {
        Some(MemoryCopy::new(arena, self.draft.as_ref()?, state_bytes(schedule)))
    }

    /// The token of a draft's step for a row, and whether its logit is finite.
    pub(crate) fn drafted(&self, step: usize, row: usize) -> (u32, bool) {
        // SAFETY: the executor waits for a draft before it reads it, and runs no other before.
        let bytes = self.draft.as_ref().and_then(|draft| unsafe { draft.bytes() });
        let words: &[u32] = bytemuck::cast_slice(bytes.unwrap_or_default());
        (words[self.state.drafted(step) + row], words[self.state.drafted_finite(step) + row] != 0)
    }

    /// The copy of `rows` rows of logits. `None` if the host reads the arena.
    pub(crate) fn logits_copy<'a>(
        &'a self,
        arena: &'a D::Memory,
        schedule: &Schedule,
        rows: usize,
    ) -> Option<MemoryCopy<'a, D>> {
        let bytes = logits_bytes(schedule, rows);
        let of = |to| MemoryCopy { from_offset: schedule.logits.offset, ..MemoryCopy::new(arena, to, bytes) };
        self.logits.as_ref().map(of)
    }

    /// The copy of the sample results of `rows` head rows.
    pub(crate) fn found_copy<'a>(
        &'a self,
        arena: &'a D::Memory,
        schedule: &Schedule,
        rows: usize,
    ) -> MemoryCopy<'a, D> {
        let bytes = found_bytes(schedule, rows);
        MemoryCopy { from_offset: schedule.found.offset, ..MemoryCopy::new(arena, &self.found, bytes) }
    }

    /// The sample result of a head row.
    pub(crate) fn found(&self, schedule: &Schedule, row: usize) -> SampleResult<'_> {
        // SAFETY: the executor waits for a choice before it reads the result, and runs no other while the slice borrows
        // it.
        let words: &[u32] = bytemuck::cast_slice(unsafe { self.found.bytes() }.unwrap_or_default());
        SampleResult::new(&words[row * schedule.found.stride..][..schedule.found.width])
    }

    fn words(&self) -> &[u32] {
        // SAFETY: the executor waits for a pass before it reads the pass's slot; the pass that runs ahead writes the
        // other.
        let bytes = unsafe { self.choices[self.slot].bytes() };
        bytemuck::cast_slice(bytes.unwrap_or_default())
    }

    fn word(&self, i: usize) -> u32 {
        self.words()[i]
    }

    /// The experts that a head row used in the last layer.
    pub(crate) fn experts(&self, row: usize) -> &[u32] {
        self.state.experts_of(self.words(), row)
    }

    /// The token that follows a head row.
    pub(crate) fn next(&self, row: usize) -> u32 {
        self.word(self.state.next() + row)
    }

    /// True if the largest logit of a head row is finite.
    pub(crate) fn is_finite(&self, row: usize) -> bool {
        self.word(self.state.finite() + row) != 0
    }

    /// True if a relayed dispatch of the pass has waited too long for the one before it.
    pub(crate) fn has_timed_out(&self) -> bool {
        self.word(StateLayout::RELAY_TIMEOUT) != 0
    }

    /// Logits of a head row, `[vocab]`. If [`Results::are_apart`], they must have been copied.
    pub(crate) fn logits<'a>(&'a self, arena: &'a D::Memory, schedule: &Schedule, row: usize) -> &'a [f32] {
        let logits = schedule.logits;
        let (buffer, at) = match &self.logits {
            Some(buffer) => (buffer, 0),
            None => (arena, logits.offset as usize / 4),
        };
        // SAFETY: the executor waits for the pass or the copy, and runs no other while the slice borrows it.
        let floats: &[f32] = bytemuck::cast_slice(unsafe { buffer.bytes() }.unwrap_or_default());
        &floats[at + row * logits.stride..][..logits.width]
    }
}
