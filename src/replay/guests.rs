//! A guest in a pass: what it needs before its step, and where the pass stops for it.

use super::Replay;
use super::driver::{Driver, Memory};
use crate::cpu::CpuKernels;
use crate::cpu::lanes::VectorUnits;
use crate::executor::guest::{Guest, GuestKind, HostGuest};
use crate::executor::weights::Progress;
use crate::executor::{PageId, Row};
use crate::model::checkpoint::Checkpoint;
use crate::npu;
use crate::reference::Formulas;
use crate::schedule::kv::KvLayer;
use crate::schedule::step::{KvType, Op};
use crate::schedule::{Schedule, Step};
use crate::{Error, Result};

/// Loads a guest of passes of `schedule`, with the weights that its steps read.
///
/// # Errors
/// As for loading an executor.
pub(super) fn load(
    kind: GuestKind,
    checkpoint: &Checkpoint,
    schedule: &Schedule,
    progress: &Progress,
) -> Result<Box<dyn Guest>> {
    let steps: Vec<Step> = schedule.steps.iter().filter(|step| kind.takes(step)).cloned().collect();
    Ok(match kind {
        GuestKind::Reference => {
            let own = schedule.with_kv(KvType::F32);
            Box::new(HostGuest::new(&own, Formulas::load(checkpoint, &own, &steps, progress)?))
        }
        GuestKind::Npu(api) => {
            let own = schedule.with_kv(KvType::Bf16);
            Box::new(HostGuest::new(&own, npu::guest::load(&own, api)?))
        }
        GuestKind::Cpu => {
            // What the device keeps, where the guest can keep it.
            let own = match schedule.extent.kv {
                KvType::Bf16 => schedule.clone(),
                KvType::F16 | KvType::F32 => schedule.with_kv(KvType::F16),
            };
            Box::new(HostGuest::new(
                &own,
                CpuKernels::load(VectorUnits::best(), checkpoint, &own, &steps, None, progress)?,
            ))
        }
    })
}

/// What a device is called that has a guest, or none. Says what a guest costs.
pub(super) fn name(device: &str, guest: Option<&dyn Guest>) -> String {
    let Some(guest) = guest else { return device.to_owned() };
    log::info!("the device waits for {} at every attention: no pass runs ahead", guest.name());
    format!("{device}, attention on {}", guest.name())
}

impl<D: Driver> Replay<D> {
    /// Lets the guest run a step of the pass, between two submits. The device has nothing under way meanwhile.
    pub(super) fn run_guest(&mut self, step: usize) -> Result<()> {
        self.queue.drain()?;
        self.cancel.check()?;
        let no_guest = || Error::failed("a pass stops for a guest that is not there", "report this");
        let mut guest = self.guest.take().ok_or_else(no_guest)?;
        let ran = self.run_step_of(guest.as_mut(), step);
        self.guest = Some(guest);
        ran
    }

    fn run_step_of(&mut self, guest: &mut dyn Guest, step: usize) -> Result<()> {
        guest.begin(&self.rows);
        if let Op::Attend { kv, .. } = self.schedule.steps[step].op {
            self.copy_kv(guest, &kv)?;
        }
        let op = &self.schedule.steps[step].op;
        let mut ran = Ok(());
        self.queue.edit(&mut self.arena, |words| ran = guest.run(op, bytemuck::cast_slice_mut(words)))?;
        ran
    }

    /// Copies what the pass's rows see of a layer's keys and values to the guest's own memory: all of it for every pass, since
    /// other passes, and whoever restores pages, may have written any of it. Where the host does not map them, they go
    /// through staging.
    fn copy_kv(&mut self, guest: &mut dyn Guest, layer: &KvLayer) -> Result<()> {
        let part = layer.elements() * layer.element.bytes();
        let offset = layer.place * part;
        let layout = *self.schedule.kv.pool(layer.pool);
        let of = |row: &Row| self.pages.visible(layer.pool, row.sequence as usize, row.position as usize);
        let mut pages: Vec<PageId> = Vec::new();
        for entry in self.rows.iter().flat_map(of) {
            guest.set_page(&entry);
            pages.push(entry.page);
        }
        pages.sort_unstable();
        pages.dedup();
        let mut copied = Vec::new();
        for page in pages {
            let (block, start) = layout.in_block(page as usize);
            // SAFETY: everything submitted has been waited for, so the device does not write the cache.
            match unsafe { self.kv[layer.pool as usize][block].bytes() } {
                Some(bytes) => {
                    let first = start as usize + offset * layout.block_pages;
                    guest.copy_kv(layer, page, layer.element, &bytes[first..first + part]);
                }
                None => {
                    copied.resize(part, 0);
                    self.read_from_page(layer.pool, page, offset, &mut copied)?;
                    guest.copy_kv(layer, page, layer.element, &copied);
                }
            }
        }
        Ok(())
    }
}
