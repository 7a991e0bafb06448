//! Memory shared with a Vulkan device.

use super::{BYTES, report_exchange, sees_writes};
use crate::diagnose::probe::Checks;
use crate::engine::device::OpenDevice;
use crate::replay::driver::HostAccess;
use crate::sys::dma_buf::{DmaBuf, sealed_memfd};
use crate::vulkan::memory::heaps;
use crate::vulkan::memory::{Backing, Buffer};
use crate::vulkan::{Gpu, Vulkan};
use crate::{Result, sys};
use std::rc::Rc;

/// The device as Vulkan's; `None` if another driver opened it.
fn gpu(device: &OpenDevice) -> Option<&Rc<Gpu>> {
    match device {
        OpenDevice::Vulkan(gpu) => Some(gpu),
        #[cfg(feature = "amdgpu")]
        OpenDevice::Amdgpu(_) => None,
    }
}

/// Checks what the device exports, and what it imports of these sources.
pub(super) fn check(
    checks: &mut Checks,
    device: Option<&OpenDevice>,
    sources: [(&'static str, sys::DriverResult<DmaBuf>); 2],
) {
    if let Some(gpu) = device.and_then(gpu) {
        check_export(checks, gpu);
        check_import(checks, gpu, sources);
    }
}

/// The device, if it was opened by Vulkan and can import dma-bufs.
pub(super) fn importer(device: Option<&OpenDevice>) -> Option<&Rc<Gpu>> {
    device.and_then(gpu).filter(|gpu| gpu.features.sharing.imports)
}

/// Imports amdgpu's own memory. A GTT-only arena needs this.
pub(super) fn check_gtt(checks: &mut Checks, name: &str, gpu: &Rc<Gpu>, made: DmaBuf) {
    report_exchange(checks, name, "GTT memory of amdgpu in Vulkan", same_bytes(gpu, Backing::Imported(made)));
}

fn same_bytes(gpu: &Rc<Gpu>, backing: Backing) -> Result<bool> {
    let heap = heaps::host_heap(gpu)?;
    let bounce = Buffer::new(gpu, BYTES, heap, HostAccess::Host)?;
    let shared = Buffer::backed(gpu, BYTES, heap, HostAccess::Host, backing)?;
    sees_writes(Vulkan::new(gpu)?, bounce, &shared)
}

fn check_export(checks: &mut Checks, gpu: &Rc<Gpu>) {
    if !gpu.features.sharing.exports {
        return checks.unseen(
            "export",
            "this Vulkan driver exports no dma-buf: the arena is an ordinary allocation",
            "on AMD any recent Mesa does; lavapipe needs Mesa 25.0 and /dev/udmabuf",
        );
    }
    report_exchange(checks, "export", "exported from Vulkan", same_bytes(gpu, Backing::Exported));
}

fn check_import(checks: &mut Checks, gpu: &Rc<Gpu>, sources: [(&'static str, sys::DriverResult<DmaBuf>); 2]) {
    if !gpu.features.sharing.imports {
        return checks.unseen(
            "import",
            "this Vulkan driver imports no dma-buf: the NPU's memory is copied",
            "on AMD any recent Mesa does; lavapipe needs Mesa 25.0",
        );
    }
    let made = |(name, source): (&'static str, sys::DriverResult<DmaBuf>)| Some((name, source.ok()?));
    let mut made: Vec<(&str, DmaBuf)> = sources.into_iter().filter_map(made).collect();
    // Mesa's CPU driver imports a memfd as if it were a dma-buf.
    if made.is_empty() && gpu.caps.is_cpu() {
        made.extend(sealed_memfd(BYTES).and_then(DmaBuf::from_fd).ok().map(|made| ("memfd", made)));
    }
    if made.is_empty() {
        checks.unseen("import", "nothing here makes a dma-buf to import", "modprobe udmabuf");
    }
    for (name, made) in made {
        let answer = same_bytes(gpu, Backing::Imported(made));
        report_exchange(checks, &format!("import.{name}"), "imported into Vulkan", answer);
    }
}
