//! The offload that computes attention in a GPU's passes (Vulkan or amdgpu): chosen by the options and the machine, and
//! loaded.

use super::{NpuUse, OffloadKind, Options, PlacedModel};
use crate::cpu::CpuKernels;
use crate::cpu::lanes::VectorUnits;
use crate::executor::Executor;
use crate::executor::offload::{Offload, OffloadStep};
use crate::executor::weights::Progress;
use crate::machine::files::Files;
use crate::machine::nodes::DriverApi;
use crate::model::Shape;
use crate::model::checkpoint::Checkpoint;
use crate::offload::host::HostOffload;
use crate::offload::{CheckedOffload, OffloadLoader, place};
use crate::reference::Formulas;
use crate::replay::Replay;
use crate::replay::driver::Driver;
use crate::replay::options::ReplayOptions;
use crate::schedule::{KvType, Schedule, Step};
use crate::{Result, npu};
use std::time::Instant;

/// The executor of attention in passes of a device that is opened through Vulkan or amdgpu.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Attends {
    /// The device itself computes attention.
    Device,
    /// An offload, in all passes. They then take several submits, with a wait for the device between them: none starts
    /// before the one ahead of it is done. The offload may keep a copy of the KV cache, which the plan does not count.
    Offload(OffloadKind),
    /// The NPU by this driver interface, in the passes in which it is faster.
    Faster(DriverApi),
}

impl Attends {
    /// The choice for these options on this machine. Logs the reason if `auto` leaves an NPU unused without measuring.
    /// `is_cpu`: the device is the processor.
    ///
    /// # Errors
    /// Device: the NPU that is required is not there, or has no program for the model.
    pub(super) fn chosen(files: &Files, shape: &Shape, options: &Options, is_cpu: bool) -> Result<Attends> {
        let without = options.offload.map_or(Attends::Device, Attends::Offload);
        match options.npu {
            NpuUse::Require(api) => {
                npu::offload::check(files, shape)?;
                Ok(Attends::Offload(OffloadKind::Npu(api)))
            }
            NpuUse::Auto(api) if options.offload.is_none() && npu::offload::is_there(files) => {
                let unused = match npu::offload::check(files, shape) {
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
}

/// Loads the executor on a device, with the offload that the options ask for. The NPU's passes by
/// [`NpuUse::Auto`] are measured when everything else is loaded.
///
/// # Errors
/// As [`Attends::chosen`], [`load`] and [`Replay::load`].
pub(super) fn load_replay<D: Driver>(driver: D, model: PlacedModel<'_>) -> Result<Replay<D>> {
    let PlacedModel { checkpoint, schedule, plan, options, progress } = model;
    let attends = Attends::chosen(&Files::system(), checkpoint.shape(), options, driver.caps().is_cpu())?;
    let offload = match attends {
        Attends::Device | Attends::Faster(_) => None,
        Attends::Offload(kind) => {
            let reload = match kind {
                OffloadKind::Reference | OffloadKind::Cpu => None,
                OffloadKind::Npu(api) => Some(npu_loader(&schedule, api)),
            };
            let raw = load(kind, checkpoint, &schedule, progress)?;
            Some(Box::new(CheckedOffload::new(&schedule, raw, reload)) as Box<dyn Offload>)
        }
    };
    let own = ReplayOptions { maps_kv: attends != Attends::Device, ..options.vulkan };
    let mut replay = Replay::load(offload, driver, checkpoint, schedule, &plan, own, progress)?;
    if let Attends::Faster(api) = attends {
        let (load, start) = (npu_loader(replay.schedule(), api), Instant::now());
        place(&mut replay, load, &|| start.elapsed().as_secs_f64())?;
    }
    Ok(replay)
}

/// The function that loads the offload to the NPU.
fn npu_loader(schedule: &Schedule, api: DriverApi) -> OffloadLoader {
    let own = schedule.with_kv(KvType::Bf16);
    Box::new(move || load_npu(&own, api))
}

/// Loads the NPU's offload for passes of a schedule whose KV type is bf16.
fn load_npu(own: &Schedule, api: DriverApi) -> Result<Box<dyn Offload>> {
    Ok(Box::new(HostOffload::new(own, npu::offload::load(own, api)?)))
}

/// Loads an offload of passes of `schedule`, with the weights that its steps read.
///
/// # Errors
/// As for loading an executor of that kind.
pub fn load(
    kind: OffloadKind,
    checkpoint: &Checkpoint,
    schedule: &Schedule,
    progress: &Progress,
) -> Result<Box<dyn Offload>> {
    let steps: Vec<Step> = schedule.steps.iter().filter(|step| OffloadStep::accepts(step)).cloned().collect();
    Ok(match kind {
        OffloadKind::Reference => {
            let own = schedule.with_kv(KvType::F32);
            Box::new(HostOffload::new(&own, Formulas::load(checkpoint, &own, &steps, progress)?))
        }
        OffloadKind::Npu(api) => load_npu(&schedule.with_kv(KvType::Bf16), api)?,
        OffloadKind::Cpu => {
            // The offload uses the device's KV type if it supports that.
            let own = match schedule.extent.kv {
                KvType::Bf16 => schedule.clone(),
                KvType::F16 | KvType::F32 => schedule.with_kv(KvType::F16),
            };
            Box::new(HostOffload::new(
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
        assert_eq!(of("8945hs", &shape, NpuUse::Require(api), 0).unwrap(), Attends::Offload(OffloadKind::Npu(api)));
        // Passes on the processor take minutes, so placements are not measured there.
        assert_eq!(on("8945hs", &shape, auto, 0, true).unwrap(), Attends::Device);
        assert_eq!(
            on("8945hs", &shape, NpuUse::Require(api), 0, true).unwrap(),
            Attends::Offload(OffloadKind::Npu(api))
        );
        let odd = shape.clone().with_heads(4, 2, 264);
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
