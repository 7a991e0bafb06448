//! Drivers' requests on a real kernel: each kind of dma-buf through a second driver, waits for vgem's work, and a DRM driver's
//! answers to requests of another. tools/vm-test runs these tests. `kiln probe` checks by itself that two mappings of
//! one dma-buf have the same bytes and that Vulkan sees them (src/diagnose/probe/share.rs); tests/cli/probe.rs runs it
//! there.

use kiln::testing::sys::amdgpu::{self, FIRMWARES, GpuSensor};
use kiln::testing::sys::amdxdna;
use kiln::testing::sys::dma_buf::{Access, DmaBuf, SYSTEM_HEAP, UDMABUF, open_node, page_size, sealed_memfd};
use kiln::testing::sys::npu_program::{self, BufferKind};
use kiln::testing::sys::{DriverResult, Failure};
use nix::errno::Errno;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::common::arena::{Allocate, DMA_BUFS, udmabuf};
use crate::common::vgem;

const SIZE: u64 = 64 << 10;

fn make(allocate: Allocate) -> DmaBuf {
    allocate(SIZE).unwrap()
}

#[test]
#[ignore = "takes a kernel with vgem: tools/vm-test"]
fn a_buffer_is_the_same_bytes_through_every_driver() {
    let node = vgem::node();
    let version = node.version().unwrap();
    assert_eq!((version.name.as_str(), version.numbers[0]), ("vgem", 1), "{version:?}");
    for (name, allocate) in DMA_BUFS {
        let buffer = make(allocate);
        assert!(buffer.size() >= SIZE, "{name}");
        let gem = node.import(buffer.as_fd()).unwrap();
        let again = gem.export().unwrap();
        drop(gem);
        assert_eq!(again.size(), buffer.size(), "{name}");
        let (mut one, mut two) = (buffer.map().unwrap(), again.map().unwrap());
        for (at, value) in [(0, 0x5a), (SIZE as usize - 1, 0xa5)] {
            write(&buffer, || one.bytes_mut()[at] = value);
            again.begin(Access::Read).unwrap();
            assert_eq!(two.bytes()[at], value, "{name}: out");
            again.end(Access::Read).unwrap();
            write(&again, || two.bytes_mut()[at] = !value);
            assert_eq!(one.bytes()[at], !value, "{name}: back");
        }
        // The memory outlives its descriptors.
        drop((buffer, again));
        assert_eq!(one.bytes()[0], !0x5a, "{name}");
    }
}

fn write(buffer: &DmaBuf, touch: impl FnOnce()) {
    buffer.begin(Access::Write).unwrap();
    touch();
    buffer.end(Access::Write).unwrap();
}

#[test]
#[ignore = "takes a kernel with vgem: tools/vm-test"]
fn the_hosts_access_waits_for_another_devices_work() {
    let node = vgem::node();
    let buffer = make(udmabuf);
    let gem = node.import(buffer.as_fd()).unwrap();
    let work = vgem::attach(&node, &gem).unwrap();
    let start = Instant::now();
    let waited = std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(200));
            vgem::signal(&node, work).unwrap();
        });
        buffer.begin(Access::Read).unwrap();
        start.elapsed()
    });
    assert!(waited >= Duration::from_millis(200), "{waited:?}");
    buffer.end(Access::Read).unwrap();
}

#[test]
#[ignore = "takes a kernel with vgem: tools/vm-test"]
fn requests_of_another_driver_are_refused_in_words() {
    let node = vgem::node();
    let buffer = make(udmabuf);
    let gem = node.import(buffer.as_fd()).unwrap();
    let mut answers: Vec<(&str, Option<Failure>)> = Vec::new();
    let mut ask = |name, answer: DriverResult<()>| answers.push((name, answer.err()));
    ask("amdgpu device", amdgpu::device(&node).map(drop));
    ask("amdgpu memory", amdgpu::memory(&node).map(drop));
    ask("amdgpu evictions", amdgpu::evictions(&node).map(drop));
    ask("amdgpu losses", amdgpu::losses(&node).map(drop));
    for (name, number) in FIRMWARES {
        ask(name, amdgpu::firmware(&node, number).map(drop));
    }
    for sensor in [GpuSensor::EngineClock, GpuSensor::MemoryClock, GpuSensor::Temperature, GpuSensor::Power] {
        ask("amdgpu sensor", amdgpu::sensor(&node, sensor).map(drop));
    }
    ask("amdgpu GTT", amdgpu::allocate_gtt(&node, SIZE).map(drop));
    ask("NPU array", amdxdna::array(&node).map(drop));
    ask("NPU clocks", amdxdna::clocks(&node).map(drop));
    ask("NPU sensors", amdxdna::sensors(&node).map(drop));
    ask("NPU power mode", amdxdna::power_mode(&node).map(drop));
    ask("NPU contexts", amdxdna::contexts(&node).map(drop));
    ask("NPU last error", amdxdna::last_error(&node).map(drop));
    for kind in [BufferKind::Shared, BufferKind::DeviceHeap, BufferKind::Device, BufferKind::Command] {
        ask("NPU buffer", npu_program::allocate(&node, kind, page_size()).map(drop));
    }
    ask("NPU buffer's place", npu_program::locate(&node, &gem).map(drop));
    ask("NPU context", npu_program::HardwareContext::new(&node, 4).map(drop));
    for (name, failure) in &answers {
        let failure = failure.as_ref().unwrap_or_else(|| panic!("{name}: vgem answered"));
        println!("{name}: {failure}; {}", failure.remedy());
        assert!(failure.is_unknown() || failure.errno == Errno::EACCES, "{name}: {failure}");
    }
}

#[test]
#[ignore = "takes a kernel with vgem: tools/vm-test"]
fn what_a_kernel_refuses_is_an_errno() {
    let node = vgem::node();
    let refused = |answer: DriverResult<()>, errno: &[Errno], what: &str| {
        let failure = answer.expect_err(what);
        println!("{what}: {failure}");
        assert!(errno.contains(&failure.errno), "{what}: {failure}");
    };
    let memfd = sealed_memfd(SIZE).unwrap();
    let device = open_node(Path::new(UDMABUF)).unwrap();
    let (half, wild) = (SIZE / 2 + 1, SIZE * 2);
    let wrap = |size| DmaBuf::from_memfd(device.as_fd(), memfd.as_fd(), size).map(drop);
    refused(wrap(half), &[Errno::EINVAL], "part of a page");
    refused(wrap(wild), &[Errno::EINVAL], "more than the memfd has");
    refused(wrap(0), &[Errno::EINVAL], "nothing");
    let unsealed = std::fs::File::from(memfd.try_clone().unwrap());
    refused(
        DmaBuf::from_memfd(device.as_fd(), device.as_fd(), SIZE).map(drop),
        &[Errno::EBADFD, Errno::EBADF, Errno::EINVAL],
        "no memfd",
    );
    refused(node.import(unsealed.as_fd()).map(drop), &[Errno::EINVAL], "a memfd is no dma-buf for a DRM driver");
    let heap = open_node(Path::new(SYSTEM_HEAP)).unwrap();
    refused(DmaBuf::from_heap(heap.as_fd(), 0).map(drop), &[Errno::EINVAL], "nothing of a heap");
    refused(node.wait_timeline(1, 1, Duration::ZERO), &[Errno::EOPNOTSUPP], "vgem has no timelines");
}
