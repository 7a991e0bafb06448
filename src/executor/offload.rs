//! An offload computes some steps of another executor's passes. The pass's owner stops before such a step, gives the
//! offload access to its arena and to the keys and values that the step reads, and goes on when the step is done.

use super::pages::PageChange;
use super::{PageId, Row, Tolerance};
use crate::Result;
use crate::schedule::Step;
use crate::schedule::kv::{KvLayer, PoolLayout};
use crate::schedule::step::{KvType, Op};
use crate::sys::dma_buf::DmaBuf;
use std::any::Any;

/// The groups of passes that an offload gets or does not get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PassGroup {
    /// Passes that run a single token.
    Decode,
    /// Passes of one prompt's chunk alone, long enough to be divided into halves.
    Prefill,
    /// All others, whose placement is not measured: passes of several sequences, and short chunks.
    Others,
}

/// The passes whose attention an offload computes; in all others the device does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OffloadedPasses {
    /// True if passes of [`PassGroup::Decode`] are among them.
    pub decode: bool,
    /// True if passes of [`PassGroup::Prefill`] are among them.
    pub prefill: bool,
    /// True if passes of [`PassGroup::Others`] are among them.
    pub others: bool,
}

impl OffloadedPasses {
    /// The choice of no passes: the device computes all attention.
    pub const NONE: OffloadedPasses = OffloadedPasses { decode: false, prefill: false, others: false };
    /// The choice of all passes.
    pub const ALL: OffloadedPasses = OffloadedPasses { decode: true, prefill: true, others: true };

    /// True if any group of passes is among them.
    pub fn any(self) -> bool {
        self.decode || self.prefill || self.others
    }

    /// True if the passes of `group` are among them.
    pub fn contain(self, group: PassGroup) -> bool {
        match group {
            PassGroup::Decode => self.decode,
            PassGroup::Prefill => self.prefill,
            PassGroup::Others => self.others,
        }
    }

    /// The passes' name within a sentence.
    pub fn name(self) -> &'static str {
        match (self.decode, self.prefill) {
            _ if self == OffloadedPasses::ALL => "all passes",
            (false, false) => "no pass",
            (true, false) => "single tokens",
            (false, true) => "long chunks",
            (true, true) => "single tokens and long chunks",
        }
    }
}

/// The passes that an offload computes attention in, and its failures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OffloadReport {
    /// The passes in which the offload computes attention.
    pub attends: OffloadedPasses,
    /// The failures so far, while loading or running.
    pub failures: u32,
}

/// The times of a pass with attention on the device and on an offload.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PlacementTiming {
    /// Rows of the pass: one, or a prompt's chunk.
    pub rows: usize,
    /// Positions of the sequence before the pass's rows.
    pub depth: usize,
    /// Seconds of its layers with attention on the device.
    pub device: f64,
    /// Seconds of its layers with attention on the offload.
    pub offload: f64,
}

/// The blocks of a device's KV cache, each as a dma-buf. A block's bytes are `[layer][page of the block]` parts.
pub struct KvBlocks<'a> {
    /// The element type of keys and values.
    pub element: KvType,
    /// The layout of the pages, for each pool.
    pub layouts: [PoolLayout; 2],
    /// The blocks of pages in order, for each pool.
    pub blocks: [Vec<&'a DmaBuf>; 2],
}

/// A step that an offload computes.
#[derive(Debug, Clone)]
pub struct OffloadStep {
    /// The step's index in the schedule.
    pub index: usize,
    /// The step, with slots that begin at the first of its rows.
    pub op: Op,
    /// True if the pass has several rows.
    pub several: bool,
    /// True if the step covers the last row of the pass.
    pub is_last: bool,
}

impl OffloadStep {
    /// True for the steps that offloads compute: attention only.
    pub(crate) fn accepts(step: &Step) -> bool {
        matches!(step.op, Op::Attend { .. })
    }

    /// A step of a pass of one row.
    #[cfg(test)]
    pub(crate) fn alone(op: &Op) -> OffloadStep {
        OffloadStep { index: 0, op: op.clone(), several: false, is_last: true }
    }
}

/// The result of [`Offload::run`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepOutcome {
    /// The step was computed.
    Done,
    /// The owner computes the step as well, and calls [`Offload::compare`].
    Compare,
    /// The owner computes the step: the offload has failed.
    Failed,
}

/// Computes steps of another executor's passes.
pub trait Offload: Any {
    /// The offload's name, as shown to the user.
    fn name(&self) -> &str;

    /// The offload's part of the owner's name for the user; `None` if the offload computes no step now.
    fn part(&self) -> Option<String> {
        Some(format!("attention on {}", self.name()))
    }

    /// True if the offload computes the steps of a group of passes. The owner bakes its passes by this.
    fn runs_in(&self, passes: PassGroup) -> bool {
        let _ = passes;
        true
    }

    /// Called before each pass. Returns whether the owner must record its passes anew, since [`Offload::runs_in`] has
    /// changed.
    fn renew(&mut self) -> bool {
        false
    }

    /// Gives the offload the cache's blocks. All writes to them have ended whenever a step of the offload begins.
    /// `true`: it reads keys and values there from now on and needs no copies.
    ///
    /// # Errors
    /// Device: the offload cannot access the blocks and needs copies.
    fn share_kv(&mut self, cache: &KvBlocks<'_>) -> Result<bool> {
        let _ = cache;
        Ok(false)
    }

    /// True if the owner may have to compute the step as well, and must do nothing else meanwhile.
    fn needs_owner(&self, step: &OffloadStep) -> bool {
        let _ = step;
        false
    }

    /// Sets the rows of the steps that follow.
    fn begin(&mut self, rows: &[Row]);

    /// Applies a changed entry of a page table.
    fn set_page(&mut self, entry: &PageChange);

    /// Copies `bytes`, a layer's part of a page in elements of type `element`, to the offload. The copy is valid until
    /// the next step of another layer.
    ///
    /// # Errors
    /// Device: the offload's memory failed.
    fn copy_kv(&mut self, layer: &KvLayer, page: PageId, element: KvType, bytes: &[u8]) -> Result<()>;

    /// Runs a step over all rows. The keys and values that it reads were copied before, unless the cache is shared.
    ///
    /// # Errors
    /// Device: the offload failed.
    fn run(&mut self, step: &OffloadStep, arena: &mut [f32]) -> Result<StepOutcome>;

    /// Compares the results of the last step with the owner's, which are in the arena.
    fn compare(&mut self, step: &OffloadStep, arena: &mut [f32]) {
        let _ = (step, arena);
    }

    /// The offload that computes the steps, without checks around it. `None`: it was lost.
    fn raw(&mut self) -> Option<&mut dyn Offload>;

    /// The error bound of a step, as in [`Stepwise::tolerance`](super::Stepwise::tolerance).
    fn tolerance(&self, op: &Op) -> Tolerance;

    /// The offload's state; `None` if nothing of the offload was ever there.
    fn report(&self) -> Option<OffloadReport> {
        Some(OffloadReport { attends: OffloadedPasses::ALL, failures: 0 })
    }

    /// The measurements by which its passes were chosen.
    fn timings(&self) -> &[PlacementTiming] {
        &[]
    }
}
