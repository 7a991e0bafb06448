//! The guest of a Vulkan device: chosen by the options and the machine, and loaded.

use super::{NpuUse, Options};
use crate::Result;
use crate::cpu::CpuKernels;
use crate::cpu::lanes::VectorUnits;
use crate::executor::guest::{Guest, GuestKind, HostGuest};
use crate::executor::weights::Progress;
use crate::machine::files::Files;
use crate::machine::nodes::DriverApi;
use crate::model::Shape;
use crate::model::checkpoint::Checkpoint;
use crate::npu;
use crate::reference::Formulas;
use crate::replay::{GuestLoader, GuestUse, LoadedGuest};
use crate::schedule::{KvType, Schedule, Step};

/// The executor of attention in passes of a Vulkan device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Attends {
    /// The device.
    Device,
    /// A guest, in all passes.
    Guest(GuestKind),
    /// The NPU by this driver interface, in the passes in which it is faster.
    Faster(DriverApi),
}

impl Attends {
    /// The choice for these options on this machine. Logs the reason if `auto` leaves an NPU unused without measuring. `is_cpu`:
    /// the Vulkan device is the processor.
    ///
    /// # Errors
    /// Device: the NPU that is required is not there, or has no program for the model.
    pub(super) fn chosen(files: &Files, shape: &Shape, options: &Options, is_cpu: bool) -> Result<Attends> {
        let without = options.guest.map_or(Attends::Device, Attends::Guest);
        match options.npu {
            NpuUse::Require(api) => {
                npu::guest::check(files, shape)?;
                Ok(Attends::Guest(GuestKind::Npu(api)))
            }
            NpuUse::Auto(api) if options.guest.is_none() && npu::guest::is_there(files) => {
                let unused = match npu::guest::check(files, shape) {
                    Err(e) => e.parts().0.to_string(),
                    Ok(_) if options.drafted > 0 => "passes whose attention is not on the GPU verify no drafts".into(),
                    Ok(_) if is_cpu => "the Vulkan device is the processor, on which measuring takes minutes".into(),
                    Ok(_) => return Ok(Attends::Faster(api)),
                };
                log::info!("attention stays on the GPU: {unused}");
                Ok(without)
            }
            NpuUse::Auto(_) | NpuUse::Off => Ok(without),
        }
    }

    /// Loads the guest of passes of `schedule`. A candidate is loaded where it is measured.
    ///
    /// # Errors
    /// As [`load`].
    pub(super) fn load(self, checkpoint: &Checkpoint, schedule: &Schedule, progress: &Progress) -> Result<GuestUse> {
        Ok(match self {
            Attends::Device => GuestUse::Never,
            Attends::Guest(kind) => {
                let reload = match kind {
                    GuestKind::Reference | GuestKind::Cpu => None,
                    GuestKind::Npu(api) => Some(npu_loader(schedule, api)),
                };
                GuestUse::Always(LoadedGuest { kind, guest: load(kind, checkpoint, schedule, progress)?, reload })
            }
            Attends::Faster(api) => GuestUse::IfFaster(GuestKind::Npu(api), npu_loader(schedule, api)),
        })
    }
}

/// The NPU's loader.
fn npu_loader(schedule: &Schedule, api: DriverApi) -> GuestLoader {
    let own = schedule.with_kv(KvType::Bf16);
    Box::new(move || load_npu(&own, api))
}

/// Loads the NPU's guest for passes of a schedule whose KV type is bf16.
fn load_npu(own: &Schedule, api: DriverApi) -> Result<Box<dyn Guest>> {
    Ok(Box::new(HostGuest::new(own, npu::guest::load(own, api)?)))
}

/// Loads a guest of passes of `schedule`, with the weights that its steps read.
///
/// # Errors
/// As for loading an executor of that kind.
pub fn load(
    kind: GuestKind,
    checkpoint: &Checkpoint,
    schedule: &Schedule,
    progress: &Progress,
) -> Result<Box<dyn Guest>> {
    let steps: Vec<Step> = schedule.steps.iter().filter(|step| GuestKind::takes(step)).cloned().collect();
    Ok(match kind {
        GuestKind::Reference => {
            let own = schedule.with_kv(KvType::F32);
            Box::new(HostGuest::new(&own, Formulas::load(checkpoint, &own, &steps, progress)?))
        }
        GuestKind::Npu(api) => load_npu(&schedule.with_kv(KvType::Bf16), api)?,
        GuestKind::Cpu => {
            // The guest uses the device's KV type if it supports that.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::probe::testing::TestMachine;
    use crate::model::presets;

    /// Measurements take place only with an NPU that supports the model's heads. `off` and drafts disable it.
    #[test]
    fn auto_measures_where_an_npu_takes_the_model() {
        let api = DriverApi::Kernel;
        let shape = presets::preset("gemma3-27b").unwrap();
        let on = |machine: &str, shape: &Shape, npu, drafted, is_cpu| {
            let machine = TestMachine::new(machine);
            Attends::chosen(&machine.files, shape, &Options { npu, drafted, ..Options::default() }, is_cpu)
        };
        let of = |machine: &str, shape: &Shape, npu, drafted| on(machine, shape, npu, drafted, false);
        let auto = NpuUse::Auto(api);
        assert_eq!(of("8945hs", &shape, auto, 0).unwrap(), Attends::Faster(api));
        assert_eq!(of("8945hs", &shape, NpuUse::Require(api), 0).unwrap(), Attends::Guest(GuestKind::Npu(api)));
        // Passes on the processor take minutes, so placements are not measured there.
        assert_eq!(on("8945hs", &shape, auto, 0, true).unwrap(), Attends::Device);
        assert_eq!(on("8945hs", &shape, NpuUse::Require(api), 0, true).unwrap(), Attends::Guest(GuestKind::Npu(api)));
        let odd = Shape { head_dim: 264, ..shape.clone() };
        for (machine, shape, npu, drafted) in [
            ("8945hs", &shape, NpuUse::Off, 0),
            ("8945hs", &shape, auto, 4),
            ("8945hs", &odd, auto, 0),
            ("890m", &shape, auto, 0),
        ] {
            assert_eq!(of(machine, shape, npu, drafted).unwrap(), Attends::Device, "{machine}, {npu:?}");
        }
        let nothing = tempfile::tempdir().unwrap();
        let options = Options { npu: auto, ..Options::default() };
        let attends = Attends::chosen(&Files::under(nothing.path()), &shape, &options, false);
        assert_eq!(attends.unwrap(), Attends::Device);
    }
}
