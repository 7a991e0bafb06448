//! Memory shared between drivers. Dma-bufs are actually made, exported and imported, and their bytes are compared from
//! both sides, because an extension's name alone does not prove zero-copy.

#[cfg(feature = "vulkan")]
mod vulkan;

use super::{Checks, Verdict};
#[cfg(feature = "amdgpu")]
use crate::amdgpu::{
    device::{GTT_HEAP, RenderDevice},
    driver::Amdgpu,
};
use crate::engine::device::OpenDevice;
use crate::machine::files::Files;
use crate::machine::nodes::DeviceNode;
use crate::replay::device_queue::DeviceQueue;
use crate::replay::driver::{Driver, Memory, MemoryCopy};
#[cfg(feature = "amdgpu")]
use crate::replay::driver::{HostAccess, MemorySource};
use crate::sys::dma_buf::{self, DmaBuf, Mapping, SYSTEM_HEAP, UDMABUF, open_node, sealed_memfd};
use crate::sys::{amdgpu, drm, npu_program};
use crate::{Error, Result, sys};
use nix::errno::Errno;
use std::os::fd::AsFd;
#[cfg(feature = "amdgpu")]
use std::rc::Rc;

/// Bytes of each buffer that is shared on trial.
const BYTES: u64 = 64 << 10;

/// A byte that differs from its neighbours, and from the byte of another seed at the same place.
fn pattern(seed: u8, at: usize) -> u8 {
    (at as u8).wrapping_mul(31).wrapping_add((at >> 8) as u8) ^ seed
}

fn fill(bytes: &mut [u8], seed: u8) {
    bytes.iter_mut().enumerate().for_each(|(i, b)| *b = pattern(seed, i));
}

fn holds(bytes: &[u8], seed: u8) -> bool {
    bytes.iter().enumerate().all(|(i, &b)| b == pattern(seed, i))
}

/// Checks which drivers make dma-bufs, and which import them. GPUs in `asleep` are not woken.
#[cfg_attr(not(feature = "vulkan"), allow(unused_variables))]
pub(super) fn check(checks: &mut Checks, files: &Files, device: Option<&OpenDevice>, asleep: &[String]) {
    checks.group("share");
    let memfd = from_udmabuf(files);
    let remedy = "modprobe udmabuf, and give this user /dev/udmabuf (group kvm on Debian)";
    report_source(checks, "udmabuf", &memfd, remedy);
    let heap = from_heap(files);
    let remedy = "use a kernel with CONFIG_DMABUF_HEAPS_SYSTEM, and give this user /dev/dma_heap/system";
    report_source(checks, "heap", &heap, remedy);
    #[cfg(feature = "vulkan")]
    vulkan::check(checks, device, [("udmabuf", memfd), ("heap", heap)]);
    #[cfg(feature = "amdgpu")]
    if let Some(OpenDevice::Amdgpu(device)) = device {
        report_exchange(checks, "export", "exported from amdgpu", same_bytes(device));
    }
    let is_asked = |node: &DeviceNode| node.is_amdgpu() && !asleep.contains(&node.name);
    for (i, node) in DeviceNode::gpus(files).iter().enumerate().filter(|(_, node)| is_asked(node)) {
        check_amdgpu(checks, &format!("gpu{i}"), files, node, device);
    }
    for (i, node) in DeviceNode::accelerators(files).iter().filter(|n| n.is_amdxdna()).enumerate() {
        check_npu(checks, &format!("npu{i}"), files, node);
    }
}

/// Three dma-bufs of [`BYTES`] from each source that makes them here, with the source's name.
pub(super) fn dma_bufs(files: &Files) -> Vec<(&'static str, [DmaBuf; 3])> {
    let three =
        |make: fn(&Files) -> sys::DriverResult<DmaBuf>| Some([make(files).ok()?, make(files).ok()?, make(files).ok()?]);
    let sources = [("udmabuf", three(from_udmabuf)), ("the system's DMA heap", three(from_heap))];
    sources.into_iter().filter_map(|(name, made)| Some((name, made?))).collect()
}

/// Makes a dma-buf from a memfd, and checks that both show the same bytes.
fn from_udmabuf(files: &Files) -> sys::DriverResult<DmaBuf> {
    let device = open_node(&files.at(UDMABUF))?;
    let memfd = sealed_memfd(BYTES)?;
    let shared = DmaBuf::from_memfd(device.as_fd(), memfd.as_fd(), BYTES)?;
    let mut beneath = DmaBuf::from_fd(memfd)?.map()?;
    fill(beneath.bytes_mut(), 1);
    let mut view = shared.map()?;
    let seen = touch(&shared, dma_buf::Access::Read, || holds(view.bytes(), 1))?;
    touch(&shared, dma_buf::Access::Write, || fill(view.bytes_mut(), 2))?;
    match seen && holds(beneath.bytes(), 2) {
        true => Ok(shared),
        false => Err(sys::Failure::new("share a memfd's bytes with its dma-buf", Errno::EIO)),
    }
}

fn from_heap(files: &Files) -> sys::DriverResult<DmaBuf> {
    let shared = DmaBuf::from_heap(open_node(&files.at(SYSTEM_HEAP))?.as_fd(), BYTES)?;
    let (mut one, other) = (shared.map()?, shared.map()?);
    touch(&shared, dma_buf::Access::Write, || fill(one.bytes_mut(), 3))?;
    match touch(&shared, dma_buf::Access::Read, || holds(other.bytes(), 3))? {
        true => Ok(shared),
        false => Err(sys::Failure::new("share a dma-heap's bytes", Errno::EIO)),
    }
}

/// Accesses a dma-buf from the CPU. Its driver is notified before and after; a memfd needs no notification.
fn touch<T>(shared: &DmaBuf, access: dma_buf::Access, what: impl FnOnce() -> T) -> sys::DriverResult<T> {
    let told = |answer: sys::DriverResult<()>| match answer {
        Err(e) if e.errno == Errno::ENOTTY => Ok(()),
        answer => answer,
    };
    told(shared.begin(access))?;
    let done = what();
    told(shared.end(access))?;
    Ok(done)
}

fn report_source(checks: &mut Checks, name: &str, made: &sys::DriverResult<DmaBuf>, remedy: &str) {
    match made {
        Ok(_) => checks.ok(name, "made a dma-buf; the same bytes through both views of it"),
        Err(e) if e.errno == Errno::EIO => checks.fail(name, e.to_string(), "report this kernel"),
        Err(e) => checks.unseen(name, e.to_string(), remedy),
    }
}

/// True if a GPU and a mapping of the memory that amdgpu exports see each other's writes.
#[cfg(feature = "amdgpu")]
fn same_bytes(device: &Rc<RenderDevice>) -> Result<bool> {
    let driver = Amdgpu::of(device)?;
    let bounce = driver.allocate(BYTES, GTT_HEAP, HostAccess::Host, MemorySource::Ordinary)?;
    let shared = driver.allocate(BYTES, GTT_HEAP, HostAccess::Host, MemorySource::Exported)?;
    sees_writes(driver, bounce, &shared)
}

/// True if a device and a mapping of the same memory see each other's writes.
#[cfg_attr(not(any(feature = "amdgpu", feature = "vulkan")), allow(dead_code))]
fn sees_writes<D: Driver>(driver: D, mut bounce: D::Memory, shared: &D::Memory) -> Result<bool> {
    let mut queue = DeviceQueue::new(driver);
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

#[cfg_attr(not(any(feature = "amdgpu", feature = "vulkan")), allow(dead_code))]
fn report_exchange(checks: &mut Checks, name: &str, what: &str, answer: Result<bool>) {
    match answer {
        Ok(true) => checks.ok(name, format!("{what}: the same bytes on both sides, both ways")),
        Ok(false) => checks.fail(name, format!("{what}: each side has bytes of its own"), "update the GPU's driver"),
        Err(e) => checks.fault(name, Verdict::Fail, &e),
    }
}

/// Exports amdgpu's own memory, and imports it into Vulkan where that takes it.
#[cfg_attr(not(feature = "vulkan"), allow(unused_variables))]
fn check_amdgpu(checks: &mut Checks, name: &str, files: &Files, node: &DeviceNode, device: Option<&OpenDevice>) {
    let Ok(opened) = drm::Node::open(&files.at(&node.path)) else { return };
    let made = amdgpu::allocate_gtt(&opened, BYTES).and_then(|b| b.export());
    let Some(made) = checks.got(name, Verdict::Fail, made) else { return };
    #[cfg(feature = "vulkan")]
    if let Some(gpu) = vulkan::importer(device) {
        return vulkan::check_gtt(checks, name, gpu, made);
    }
    drop(made);
    checks.ok(name, "GTT memory of amdgpu, exported");
}

/// Exports a buffer of the NPU, and imports another driver's into the NPU.
fn check_npu(checks: &mut Checks, name: &str, files: &Files, node: &DeviceNode) {
    let Ok(opened) = drm::Node::open(&files.at(&node.path)) else { return };
    let [export, import] = ["export", "import"].map(|what| format!("{name}.{what}"));
    let own = npu_program::allocate(&opened, npu_program::BufferKind::Shared, BYTES);
    let seen = own.and_then(|own| {
        let made = own.export()?;
        exchange(npu_program::map(&opened, &own, BYTES)?, &made)
    });
    report_npu(checks, &export, "a buffer of the NPU as a dma-buf", seen);
    let mut refused = None;
    for made in [from_udmabuf(files), from_heap(files)].into_iter().flatten() {
        match opened.import(made.as_fd()) {
            Ok(taken) => {
                let seen = npu_program::map(&opened, &taken, BYTES).and_then(|view| exchange(view, &made));
                return report_npu(checks, &import, "another driver's dma-buf on the NPU", seen);
            }
            // A driver without address translation accepts only contiguous memory, so the next source may work.
            Err(e) => refused = Some(e),
        }
    }
    match refused {
        Some(e) => report_npu(checks, &import, "", Err(e)),
        None => checks.skip(&import, "nothing here makes a dma-buf to import"),
    }
}

/// True if a driver's mapping of a dma-buf and the dma-buf's own mapping show the same bytes. `None` if the driver has
/// no mapping.
fn exchange(view: Option<Mapping>, made: &DmaBuf) -> sys::DriverResult<Option<bool>> {
    let Some(mut view) = view else { return Ok(None) };
    let mut beneath = made.map()?;
    fill(&mut view.bytes_mut()[..BYTES as usize], 6);
    let there = touch(made, dma_buf::Access::Read, || holds(&beneath.bytes()[..BYTES as usize], 6))?;
    touch(made, dma_buf::Access::Write, || fill(&mut beneath.bytes_mut()[..BYTES as usize], 7))?;
    Ok(Some(there && holds(&view.bytes()[..BYTES as usize], 7)))
}

fn report_npu(checks: &mut Checks, name: &str, what: &str, seen: sys::DriverResult<Option<bool>>) {
    match seen {
        Ok(Some(true)) => checks.ok(name, format!("{what}: the same bytes through both drivers' views of it")),
        Ok(Some(false)) => checks.fail(name, format!("{what}: each driver has bytes of its own"), "update amdxdna"),
        Ok(None) => checks.ok(name, format!("{what}; the driver maps nothing of it to compare")),
        Err(e) => checks.fault(name, Verdict::Warn, &e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_views_are_the_same_bytes_or_they_are_not() {
        let made = || DmaBuf::from_fd(sealed_memfd(BYTES).unwrap()).unwrap();
        let (one, other) = (made(), made());
        assert_eq!(exchange(Some(one.map().unwrap()), &one), Ok(Some(true)));
        assert_eq!(exchange(Some(one.map().unwrap()), &other), Ok(Some(false)));
        assert_eq!(exchange(None, &other), Ok(None));
    }
}
