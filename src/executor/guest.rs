//! Guests: what computes steps of another executor's passes. The pass's owner stops before such a step, lets the guest see
//! its arena and the keys and values that the step reads, and goes on when the step is done.

use super::host::{PassKernels, StepKernels, StepState};
use super::pages::PageChange;
use super::{PageId, Row, Tolerance};
use crate::Result;
use crate::npu::DriverApi;
use crate::schedule::kv::{KvLayer, PoolLayout};
use crate::schedule::step::{KvType, Op};
use crate::schedule::{Schedule, Step};
use crate::sys::dma_buf::DmaBuf;

/// Who computes steps in place of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuestKind {
    /// The reference executor's formulas.
    Reference,
    /// The CPU executor's kernels.
    Cpu,
    /// The NPU's program, reached in this way.
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
    /// Whether a guest takes a step: attention alone.
    pub fn takes(step: &Step) -> bool {
        matches!(step.op, Op::Attend { .. })
    }
}

/// In which passes a guest attends; in the others the device does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GuestPasses {
    /// Those of a single token.
    pub decode: bool,
    /// Those of a prompt's chunk alone that is long enough to be divided into halves.
    pub prefill: bool,
    /// All others, which nobody measures: those of several sequences, and short chunks.
    pub others: bool,
}

impl GuestPasses {
    /// In none.
    pub const NONE: GuestPasses = GuestPasses { decode: false, prefill: false, others: false };
    /// In all.
    pub const ALL: GuestPasses = GuestPasses { decode: true, prefill: true, others: true };

    /// Whether there is such a pass.
    pub fn any(self) -> bool {
        self.decode || self.prefill || self.others
    }

    /// Their name in a sentence.
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

/// How a guest does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GuestReport {
    /// Where it attends.
    pub attends: GuestPasses,
    /// How often it has failed, or could not be loaded.
    pub failures: u32,
}

/// A pass as it was timed with its attention on the device, and on a guest.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PlacementTiming {
    /// Rows of the pass: one, or a prompt's chunk.
    pub rows: usize,
    /// Positions before them.
    pub depth: usize,
    /// Seconds of its layers, all on the device.
    pub device: f64,
    /// The same with attention on the guest.
    pub guest: f64,
}

/// A guest is faster if it takes less than this share of the device's time: runs differ by as much.
const FASTER: f64 = 0.98;

/// Whether a pass of so many seconds with a guest is faster than one of so many without.
pub(crate) fn is_faster(guest: f64, device: f64) -> bool {
    guest < FASTER * device
}

/// The blocks of a device's KV cache, each as a dma-buf. A block's bytes are `[layer][page of the block]` parts.
pub struct KvBlocks<'a> {
    /// The elements.
    pub element: KvType,
    /// By pool: how its pages lie.
    pub layouts: [PoolLayout; 2],
    /// By pool: its blocks in their order.
    pub blocks: [Vec<&'a DmaBuf>; 2],
}

/// Computes steps of another executor's passes.
pub trait Guest {
    /// Its name, as the user should see it.
    fn name(&self) -> &str;

    /// Is shown the cache's blocks, once, before its first step. What writes them has ended whenever a step of the guest's
    /// begins. `true`: it reads keys and values there from now on, and takes no copies.
    ///
    /// # Errors
    /// Device: it cannot reach them there, and takes copies.
    fn share_kv(&mut self, cache: &KvBlocks<'_>) -> Result<bool> {
        let _ = cache;
        Ok(false)
    }

    /// The rows of the steps that follow.
    fn begin(&mut self, rows: &[Row]);

    /// Takes an entry of a page table.
    fn set_page(&mut self, entry: &PageChange);

    /// Makes `bytes`, elements of type `element`, its copy of a layer's part of a page, until the next step of another layer.
    ///
    /// # Errors
    /// Device: what keeps it failed.
    fn copy_kv(&mut self, layer: &KvLayer, page: PageId, element: KvType, bytes: &[u8]) -> Result<()>;

    /// Runs a step over all of the rows. What it reads of the KV cache was copied before, unless it is shared.
    ///
    /// # Errors
    /// Device: what computes it failed.
    fn run(&mut self, op: &Op, arena: &mut [f32]) -> Result<()>;

    /// How far from exact it computes a step, as [`Stepwise::tolerance`](super::Stepwise::tolerance) says.
    fn tolerance(&self, op: &Op) -> Tolerance;
}

/// Computes a guest's steps.
pub trait GuestKernels: StepKernels {
    /// Takes a layer's part of a page, of elements as its own pools have, before a step that reads it.
    ///
    /// # Errors
    /// Device: what keeps it failed.
    fn take_kv(&mut self, layer: &KvLayer, page: PageId, bytes: &[u8]) -> Result<()>;

    /// Is shown the blocks of a device's KV cache, of elements as its own pools have, as [`Guest::share_kv`] says.
    ///
    /// # Errors
    /// As there.
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

/// A guest in the processor's own memory, whose steps `S` computes.
pub struct HostGuest<S> {
    steps: S,
    state: StepState,
    element: KvType,
}

impl<S: GuestKernels> HostGuest<S> {
    /// The guest of passes of a schedule. `own` is that schedule with the KV type of `steps`.
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
