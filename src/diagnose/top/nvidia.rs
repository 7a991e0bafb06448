//! GPUs of NVIDIA's driver, which shows nothing in sysfs. Values come from its library, libnvidia-ml, which is loaded
//! at run time if it is installed.

use super::{Fill, GpuSample, Process};
use crate::machine::files::Files;
use nvml_wrapper::enum_wrappers::device::{Clock, TemperatureSensor};
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::{Device, Nvml};
use std::cell::OnceCell;
use std::cmp::Reverse;
use std::ffi::OsStr;

/// NVIDIA's library, loaded at first use.
#[derive(Default)]
pub(in crate::diagnose) struct NvmlLibrary {
    /// The library; `None` if it cannot be used.
    loaded: OnceCell<Option<Nvml>>,
}

impl NvmlLibrary {
    /// Adds the library's values for the GPU at bus address `slot`. Without the library the sample stays as it is.
    pub(super) fn complete(&self, files: &Files, slot: &str, gpu: &mut GpuSample) {
        let Some(device) = self.device(files, slot) else { return };
        gpu.busy = device.utilization_rates().ok().map(|rates| f64::from(rates.gpu.min(100)));
        gpu.engine_mhz = device.clock_info(Clock::SM).ok().map(f64::from);
        gpu.memory_mhz = device.clock_info(Clock::Memory).ok().map(f64::from);
        gpu.power = device.power_usage().ok().map(|mw| f64::from(mw) / 1e3);
        gpu.temperature = device.temperature(TemperatureSensor::Gpu).ok().map(f64::from);
        gpu.vram = device.memory_info().ok().map(|memory| Fill { total: memory.total, used: memory.used });
        let compute = device.running_compute_processes().unwrap_or_default();
        let graphics = device.running_graphics_processes().unwrap_or_default();
        for process in compute.into_iter().chain(graphics) {
            let held = match process.used_gpu_memory {
                UsedGpuMemory::Used(bytes) => bytes,
                UsedGpuMemory::Unavailable => 0,
            };
            // A process that both computes and draws is listed twice, each time with all of its memory.
            match gpu.processes.iter_mut().find(|p| p.pid == process.pid) {
                Some(p) => p.vram = p.vram.max(held),
                None => {
                    let name = files.text(&format!("/proc/{}/comm", process.pid)).unwrap_or_default();
                    gpu.processes.push(Process { pid: process.pid, name, vram: held, gtt: 0, busy: None });
                }
            }
        }
        gpu.processes.sort_by_key(|p| Reverse(p.vram));
        if gpu.busy.is_some() || gpu.vram.is_some() || gpu.power.is_some() {
            gpu.fault = None;
        }
    }

    fn device(&self, files: &Files, slot: &str) -> Option<Device<'_>> {
        // The library describes only this machine.
        let load = || if files.are_the_systems() { load() } else { None };
        self.loaded.get_or_init(load).as_ref()?.device_by_pci_bus_id(slot).ok()
    }

    /// Joules used by a GPU since its driver began to count.
    pub(in crate::diagnose) fn energy(&self, files: &Files, slot: &str) -> Option<f64> {
        self.device(files, slot)?.total_energy_consumption().ok().map(|mj| mj as f64 / 1e3)
    }

    /// The power that a GPU draws, in W.
    pub(in crate::diagnose) fn power(&self, files: &Files, slot: &str) -> Option<f64> {
        self.device(files, slot)?.power_usage().ok().map(|mw| f64::from(mw) / 1e3)
    }
}

fn load() -> Option<Nvml> {
    // The name in every installation; the one without a number comes with the toolkit.
    let loaded = Nvml::builder().lib_path(OsStr::new("libnvidia-ml.so.1")).init();
    loaded.inspect_err(|e| log::info!("libnvidia-ml cannot be used: {e}")).ok()
}
