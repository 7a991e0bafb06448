//! Offloads in the host's memory, around what computes one step.

use crate::Result;
use crate::executor::host::{PassKernels, StepKernels, StepState};
use crate::executor::offload::{KvBlocks, Offload, OffloadStep, StepOutcome};
use crate::executor::pages::PageChange;
use crate::executor::{PageId, Row, Tolerance};
use crate::schedule::Schedule;
use crate::schedule::kv::KvLayer;
use crate::schedule::step::{KvType, Op};

/// Kernels that compute the steps of a [`HostOffload`].
pub trait OffloadKernels: StepKernels {
    /// Stores a layer's part of a page, in its own pools' element type, before a step that reads it.
    ///
    /// # Errors
    /// Device: the memory failed.
    fn take_kv(&mut self, layer: &KvLayer, page: PageId, bytes: &[u8]) -> Result<()>;

    /// [`Offload::share_kv`] for blocks whose element type is that of its own pools.
    ///
    /// # Errors
    /// As [`Offload::share_kv`].
    fn share_kv(&mut self, cache: &KvBlocks<'_>) -> Result<bool> {
        let _ = cache;
        Ok(false)
    }
}

impl<S: PassKernels> OffloadKernels for S {
    fn take_kv(&mut self, layer: &KvLayer, page: PageId, bytes: &[u8]) -> Result<()> {
        let first = layer.place * bytes.len();
        self.page(layer.pool, page)[first..first + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }
}

/// An offload in the host's memory whose steps are computed by `S`.
pub struct HostOffload<S> {
    steps: S,
    state: StepState,
    element: KvType,
}

impl<S: OffloadKernels> HostOffload<S> {
    /// An offload for passes of a schedule. `own` is that schedule with the KV type of `steps`.
    pub(crate) fn new(own: &Schedule, steps: S) -> HostOffload<S> {
        HostOffload { steps, state: StepState::new(own), element: own.extent.kv }
    }
}

impl<S: OffloadKernels + 'static> Offload for HostOffload<S> {
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

    fn run(&mut self, step: &OffloadStep, arena: &mut [f32]) -> Result<StepOutcome> {
        self.state.rows = self.state.token.len();
        self.steps.run(&step.op, &self.state, arena)?;
        Ok(StepOutcome::Done)
    }

    fn raw(&mut self) -> Option<&mut dyn Offload> {
        Some(self)
    }

    fn tolerance(&self, op: &Op) -> Tolerance {
        self.steps.tolerance(op)
    }
}
