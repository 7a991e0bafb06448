//! Lowering of the steps that compute sample results from a row's logits.

use super::lowering::{LoweredKernel, Lowering};
use crate::lower::kernels::constants::NoConstants;
use crate::lower::kernels::push::{BlockSumsPush, CandidatesPush, word};
use crate::lower::kernels::{Kernel, Module};
use crate::lower::limits::MAX_WORKGROUP;
use crate::schedule::choice;
use crate::schedule::step::{Rows, Slot};

/// Lanes of a workgroup for one block: four elements each.
const BLOCK_WORKGROUP: u32 = 256;

impl Lowering<'_> {
    pub(super) fn block_sums(&self, rows: Rows, [x, ask, allowed]: [Slot; 3], sums: Slot, tops: Slot) -> LoweredKernel {
        let push = BlockSumsPush {
            state: self.addresses.state,
            x: self.slot(x),
            ask: self.slot(ask),
            allowed: self.slot(allowed),
            sums: self.slot(sums),
            tops: self.slot(tops),
            which: Self::row_count_word(rows),
            width: word(x.width),
            stride: word(x.stride),
            ask_stride: word(ask.stride),
            allowed_stride: word(allowed.stride),
            sums_stride: word(sums.stride),
            tops_stride: word(tops.stride),
        };
        let kernel = Kernel::new(Module::BlockSums, BLOCK_WORKGROUP, NoConstants {});
        let groups = [word(choice::blocks(x.width)), self.count(rows) as u32, 1];
        LoweredKernel::new(kernel, &push, groups, 1)
    }

    pub(super) fn candidates(
        &self,
        rows: Rows,
        [x, ask, allowed]: [Slot; 3],
        sums: Slot,
        tops: Slot,
        found: Slot,
    ) -> LoweredKernel {
        let push = CandidatesPush {
            state: self.addresses.state,
            x: self.slot(x),
            ask: self.slot(ask),
            allowed: self.slot(allowed),
            sums: self.slot(sums),
            tops: self.slot(tops),
            found: self.slot(found),
            which: Self::row_count_word(rows),
            width: word(x.width),
            stride: word(x.stride),
            ask_stride: word(ask.stride),
            allowed_stride: word(allowed.stride),
            sums_stride: word(sums.stride),
            tops_stride: word(tops.stride),
            found_stride: word(found.stride),
            next: word(self.schedule.arena.state.next()),
        };
        let kernel = Kernel::new(Module::Candidates, MAX_WORKGROUP, NoConstants {});
        LoweredKernel::new(kernel, &push, [1, self.count(rows) as u32, 1], 1)
    }
}
