//! Guests compute some steps of another executor's passes. The pass's owner stops before such a step, gives the guest
//! access to its arena and to the keys and values that the step reads, and goes on when the step is done.

use super::host::{PassKernels, StepKernels, StepState};
use super::pages::PageChange;
use super::{PageId, Row, Tolerance};
use crate::Result;
use crate::machine::nodes::DriverApi;
use crate::schedule::kv::{KvLayer, PoolLayout};
use crate::schedule::step::{KvType, Op};
use crate::schedule::{Schedule, Step};
use crate::sys::dma_buf::DmaBuf;

/// The kinds of guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuestKind {
    /// The reference executor's formulas.
    Reference,
    /// The CPU executor's kernels.
    Cpu,
    /// The NPU's program, through this driver interface.
    Npu(DriverApi),
}

impl std::str::FromStr for GuestKind {
    type Err = String;

    fn from_str(s: &str) -> std::result::Result<Self, String> {
        match s {
            "reference" => Ok(GuestKind::Reference),
            "cpu" => Ok(GuestKind::Cpu),
            _ => Err("use reference or cpu".into()),
        }
    }
}

impl GuestKind {
    /// Whether a guest computes a step: attention only.
    pub fn takes(step: &Step) -> bool {
        matches!(step.op, Op::Attend { .. })
    }
}

/// The passes whose attention runs on a guest; in all others it runs on the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GuestPasses {
    /// Passes of a single token.
    pub decode: bool,
    /// Passes of one prompt's chunk alone, long enough to be divided into halves.
    pub prefill: bool,
    /// All others, whose placement is not measured: passes of several sequences, and short chunks.
    pub others: bool,
}

impl GuestPasses {
    /// No passes.
    pub const NONE: GuestPasses = GuestPasses { decode: false, prefill: false, others: false };
    /// All passes.
    pub const ALL: GuestPasses = GuestPasses { decode: true, prefill: true, others: true };

    /// Whether any pass is among them.
    pub fn any(self) -> bool {
        self.decode || self.prefill || self.others
    }

    /// The passes' name in a sentence.
    pub fn name(self) -> &'static str {
        match (self.decode, self.prefill) {
            _ if self == GuestPasses::ALL => "all passes",
            (false, false) => "no pass",
            (true, false) => "single tokens",
            (false, true) => "long chunks",
            (true, true) => "single tokens and long chunks",
        }
    }
}

/// The state of a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GuestReport {
    /// The passes in which it attends.
    pub attends: GuestPasses,
    /// Failures of the guest so far, while loading or running.
    pub failures: u32,
}

/// The times of a pass with attention on the device and on a guest.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PlacementTiming {
    /// Rows of the pass: one, or a prompt's chunk.
    pub rows: usize,
    /// Positions of the sequence before the pass's rows.
    pub depth: usize,
    /// Seconds of its layers with attention on the device.
    pub device: f64,
    /// Seconds of its layers with attention on the guest.
    pub guest: f64,
}

/// The blocks of a device's KV cache, each as a dma-buf. A block's bytes are `[layer][page of the block]` parts.
pub struct KvBlocks<'a> {
    /// The element type.
    pub element: KvType,
    /// By pool: the layout of its pages.
    pub layouts: [PoolLayout; 2],
    /// By pool: its blocks in order.
    pub blocks: [Vec<&'a DmaBuf>; 2],
}

/// Computes steps of another executor's passes.
pub trait Guest {
    /// Its name for the user.
    fn name(&self) -> &str;

    /// Gives the guest the cache's blocks, once, before its first step. All writes to them have ended whenever a step
    /// of the guest begins. `true`: it reads keys and values there from now on and needs no copies.
    ///
    /// # Errors
    /// Device: the guest cannot access the blocks and needs copies.
    fn share_kv(&mut self, cache: &KvBlocks<'_>) -> Result<bool> {
        let _ = cache;
        Ok(false)
    }

    /// Sets the rows of the steps that follow.
    fn begin(&mut self, rows: &[Row]);

    /// Applies a changed entry of a page table.
    fn set_page(&mut self, entry: &PageChange);

    /// Copies `bytes`, a layer's part of a page in elements of type `element`, to the guest. The copy is valid until
    /// the next step of another layer.
    ///
    /// # Errors
    /// Device: the guest's memory failed.
    fn copy_kv(&mut self, layer: &KvLayer, page: PageId, element: KvType, bytes: &[u8]) -> Result<()>;

    /// Runs a step over all rows. The keys and values that it reads were copied before, unless the cache is shared.
    ///
    /// # Errors
    /// Device: the guest failed.
    fn run(&mut self, op: &Op, arena: &mut [f32]) -> Result<()>;

    /// The error bound of a step on the guest, as in [`Stepwise::tolerance`](super::Stepwise::tolerance).
    fn tolerance(&self, op: &Op) -> Tolerance;
}

/// Computes steps for a [`HostGuest`].
pub trait GuestKernels: StepKernels {
    /// Stores a layer's part of a page, in its own pools' element type, before a step that reads it.
    ///
    /// # Errors
    /// Device: the memory failed.
    fn take_kv(&mut self, layer: &KvLayer, page: PageId, bytes: &[u8]) -> Result<()>;

    /// [`Guest::share_kv`] for blocks whose element type is that of its own pools.
    ///
    /// # Errors
    /// As [`Guest::share_kv`].
    fn share_kv(&mut self, cache: &KvBlocks<'_>) -> Result<bool> {
        let _ = cache;
        Ok(false)
    }
}

impl<S: PassKernels> GuestKernels for S {
    fn take_kv(&mut self, layer: &KvLayer, page: PageId, bytes: &[u8]) -> Result<()> {
        let first = layer.place * bytes.len();
        self.page(layer.pool, page)[first..first + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }
}

/// A guest in the host's memory whose steps are computed by `S`.
pub struct HostGuest<S> {
    steps: S,
    state: StepState,
    element: KvType,
}

impl<S: GuestKernels> HostGuest<S> {
    /// A guest for passes of a schedule. `own` is that schedule with the KV type of `steps`.
    pub(crate) fn new(own: &Schedule, steps: S) -> HostGuest<S> {
        HostGuest { steps, state: StepState::new(own), element: own.extent.kv }
    }
}

impl<S: GuestKernels> Guest for HostGuest<S> {
    fn name(&self) -> &str {
        self.steps.device()
    }

    fn share_kv(&mut self, cache: &KvBlocks<'_>) -> Result<bool> {
        match cache.element == self.element {
            true => self.steps.share_kv(cache),
            false => Ok(false),
        }
    }

    fn begin(&mut self, rows: &[Row]) {
        self.state.set_rows(rows);
        self.steps.begin(&self.state);
    }

    fn set_page(&mut self, entry: &PageChange) {
        self.state.set_page(entry);
    }

    fn copy_kv(&mut self, layer: &KvLayer, page: PageId, element: KvType, bytes: &[u8]) -> Result<()> {
        match element == self.element {
            true => self.steps.take_kv(layer, page, bytes),
            false => self.steps.take_kv(layer, page, &self.element.encode(&element.decode(bytes))),
        }
    }

    fn run(&mut self, op: &Op, arena: &mut [f32]) -> Result<()> {
        self.state.rows = self.state.token.len();
        self.steps.run(op, &self.state, arena)
    }

    fn tolerance(&self, op: &Op) -> Tolerance {
        self.steps.tolerance(op)
    }
}
