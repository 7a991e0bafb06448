//! Checks of amdgpu's own interface: whether it opens a GPU, with kernels for it, and whether one computes.

use super::{Checks, Verdict};
#[cfg(feature = "amdgpu")]
use crate::amdgpu::device::{GTT_HEAP, RenderDevice};
#[cfg(feature = "amdgpu")]
use crate::amdgpu::driver::Amdgpu;
use crate::engine::Device;
use crate::engine::device::OpenDevice;
use crate::machine::files::Files;
use crate::machine::nodes::DeviceNode;
#[cfg(feature = "amdgpu")]
use crate::{
    Result,
    display::{bytes, counted},
    replay::device_queue::DeviceQueue,
    replay::driver::{Driver, HostAccess, Memory, MemoryCopy, MemorySource},
};
#[cfg(feature = "amdgpu")]
use std::rc::Rc;

/// The number of bytes that the check's kernel copies.
#[cfg(feature = "amdgpu")]
const BYTES: u64 = 64 << 10;

/// Checks the GPU that `device` names, else the best of amdgpu's, if there is any. Returns it, open, if it computes.
pub(super) fn check(checks: &mut Checks, files: &Files, device: Device) -> Option<OpenDevice> {
    let is_chosen = matches!(device, Device::Amdgpu(_));
    let has_one = cfg!(feature = "amdgpu") && DeviceNode::gpus(files).iter().any(DeviceNode::is_amdgpu);
    if !is_chosen && !has_one {
        return None;
    }
    let verdict = if is_chosen { Verdict::Fail } else { Verdict::Warn };
    let device = if is_chosen { device } else { Device::Amdgpu(None) };
    let opened = checks.group("amdgpu").got("open", verdict, device.open(files))??;
    #[cfg(feature = "amdgpu")]
    match &opened {
        OpenDevice::Amdgpu(device) => check_open(checks, verdict, device)?,
        #[cfg(feature = "vulkan")]
        OpenDevice::Vulkan(_) => {}
    }
    Some(opened)
}

/// Checks an open GPU. `None` if it does not compute.
#[cfg(feature = "amdgpu")]
fn check_open(checks: &mut Checks, verdict: Verdict, device: &Rc<RenderDevice>) -> Option<()> {
    checks.ok("open", format!("opened {}", device.caps.name));
    let memory = checks.got("memory", verdict, device.memory())?;
    let heaps: Vec<String> = memory.heaps.iter().map(|h| format!("{} of {}", bytes(h.available), h.name)).collect();
    checks.ok("memory", format!("free for a model: {}", heaps.join(" and ")));
    let count = checks.got("code", verdict, device.code().map(|code| code.kernels().count()))?;
    checks.ok("code", format!("{} for {}", counted(count, "kernel"), device.chip.name()));
    if checks.got("kernel", verdict, copies(device))? {
        checks.ok("kernel", format!("one copied {}, each byte right", bytes(BYTES)));
        return Some(());
    }
    let remedy = "see the kernel's log (`dmesg`), and report this";
    checks.push("kernel", verdict, "what one copied is not what was there", Some(remedy.into()));
    None
}

/// True if a kernel has copied the bytes correctly.
#[cfg(feature = "amdgpu")]
fn copies(device: &Rc<RenderDevice>) -> Result<bool> {
    let mut queue = DeviceQueue::new(Amdgpu::of(device)?);
    let allocate = || queue.driver.allocate(BYTES, GTT_HEAP, HostAccess::Host, MemorySource::Ordinary);
    let (mut from, mut to) = (allocate()?, allocate()?);
    let wanted: Vec<u8> = (0..BYTES as usize).map(|at| ((31 * at) ^ (at >> 8)) as u8).collect();
    from.copy_from(&wanted)?;
    to.copy_from(&vec![0; BYTES as usize])?;
    queue.copy([MemoryCopy::new(&from, &to, BYTES)])?;
    let mut found = vec![0; BYTES as usize];
    to.copy_to(&mut found)?;
    Ok(found == wanted)
}
