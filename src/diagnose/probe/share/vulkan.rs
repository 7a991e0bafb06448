//! Memory shared with a Vulkan device.

use super::{BYTES, fill, holds, touch};
use crate::diagnose::probe::{Checks, Verdict};
use crate::engine::device::OpenDevice;
use crate::replay::device_queue::DeviceQueue;
use crate::replay::driver::{HostAccess, Memory, MemoryCopy};
use crate::sys::dma_buf::{self, DmaBuf, sealed_memfd};
use crate::vulkan::memory::heaps;
use crate::vulkan::memory::{Backing, Buffer};
use crate::vulkan::{Gpu, Vulkan};
use crate::{Error, Result, sys};
use std::rc::Rc;

/// The Vulkan device.
fn gpu(device: &OpenDevice) -> &Rc<Gpu> {
    let OpenDevice::Vulkan(gpu) = device;
    gpu
}

/// Checks what the device exports, and what it imports of these sources.
pub(super) fn check(
    checks: &mut Checks,
    device: Option<&OpenDevice>,
    sources: [(&'static str, sys::DriverResult<DmaBuf>); 2],
) {
    if let Some(gpu) = device.map(gpu) {
        check_export(checks, gpu);
        check_import(checks, gpu, sources);
    }
}

/// The device, if it imports dma-bufs.
pub(super) fn importer(device: Option<&OpenDevice>) -> Option<&Rc<Gpu>> {
    device.map(gpu).filter(|gpu| gpu.features.sharing.imports)
}

/// Imports amdgpu's own memory. A GTT-only arena needs this.
pub(super) fn check_gtt(checks: &mut Checks, name: &str, gpu: &Rc<Gpu>, made: DmaBuf) {
    report_exchange(checks, name, "GTT memory of amdgpu in Vulkan", same_bytes(gpu, Backing::Imported(made)));
}

/// Whether the GPU and a mapping of the same memory see each other's writes.
fn same_bytes(gpu: &Rc<Gpu>, backing: Backing) -> Result<bool> {
    let mut queue = DeviceQueue::new(Vulkan::new(gpu)?);
    let heap = heaps::host_heap(gpu)?;
    let mut bounce = Buffer::new(gpu, BYTES, heap, HostAccess::Host)?;
    let shared = &Buffer::backed(gpu, BYTES, heap, HostAccess::Host, backing)?;
    let own = shared.dma_buf().ok_or_else(|| Error::device("the buffer is no dma-buf", "report this"))?;
    let mut view = own.map()?;
    // Written by the GPU, read by the mapping.
    let mut bytes = vec![0; BYTES as usize];
    fill(&mut bytes, 4);
    bounce.copy_from(&bytes)?;
    shared.to_device()?;
    queue.copy([MemoryCopy::new(&bounce, shared, BYTES)])?;
    shared.to_host()?;
    let there = touch(own, dma_buf::Access::Read, || holds(&view.bytes()[..BYTES as usize], 4))?;
    // Written by the mapping, read by the GPU.
    touch(own, dma_buf::Access::Write, || fill(&mut view.bytes_mut()[..BYTES as usize], 5))?;
    shared.to_device()?;
    queue.copy([MemoryCopy::new(shared, &bounce, BYTES)])?;
    shared.to_host()?;
    bounce.copy_to(&mut bytes)?;
    Ok(there && holds(&bytes, 5))
}

fn report_exchange(checks: &mut Checks, name: &str, what: &str, answer: Result<bool>) {
    match answer {
        Ok(true) => checks.ok(name, format!("{what}: the same bytes on both sides, both ways")),
        Ok(false) => checks.fail(name, format!("{what}: each side has bytes of its own"), "update the Vulkan driver"),
        Err(e) => checks.fault(name, Verdict::Fail, &e),
    }
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
