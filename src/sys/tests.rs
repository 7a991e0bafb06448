//! The wrappers against a fake kernel, with every answer that the headers define and some that they do not.

use super::dma_buf::{Access, DmaBuf, page_size, sealed_memfd};
use super::drm::Node;
use super::fake::{AMDGPU_INFO, FakeDrmDriver, FakeIoctls, XDNA_ARRAY, XDNA_INFO, bytes, decode};
use super::{amdgpu, amdxdna, bindings as b, npu_program};
use nix::errno::Errno;
use std::os::fd::{AsFd, IntoRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tempfile::NamedTempFile;

fn file() -> NamedTempFile {
    NamedTempFile::new().unwrap()
}

fn open(driver: FakeDrmDriver) -> (NamedTempFile, FakeIoctls, Node) {
    let file = file();
    let fake = driver.at(file.path());
    let node = Node::open(file.path()).unwrap();
    (file, fake, node)
}

const ERRNOS: [Errno; 9] = [
    Errno::ENODEV,
    Errno::EACCES,
    Errno::EPERM,
    Errno::EOPNOTSUPP,
    Errno::ENOTTY,
    Errno::EINVAL,
    Errno::ENOMEM,
    Errno::EFAULT,
    Errno::EIO,
];

/// Every request of every wrapper, with a name.
fn requests(node: &Node, buffer: &DmaBuf) -> Vec<(&'static str, super::DriverResult<()>)> {
    let memfd = sealed_memfd(page_size()).unwrap();
    let gem = node.own(1);
    let mut all = vec![
        ("version", node.version().map(drop)),
        ("import", node.import(memfd.as_fd()).map(drop)),
        ("export", gem.export().map(drop)),
        ("wait", node.wait_timeline(1, 1, Duration::ZERO)),
        ("device", amdgpu::device(node).map(drop)),
        ("memory", amdgpu::memory(node).map(drop)),
        ("evictions", amdgpu::evictions(node).map(drop)),
        ("losses", amdgpu::losses(node).map(drop)),
        ("firmware", amdgpu::firmware(node, 8).map(drop)),
        ("sensor", amdgpu::sensor(node, amdgpu::GpuSensor::Power).map(drop)),
        ("gtt", amdgpu::allocate_gtt(node, page_size()).map(drop)),
        ("array", amdxdna::array(node).map(drop)),
        ("clocks", amdxdna::clocks(node).map(drop)),
        ("sensors", amdxdna::sensors(node).map(drop)),
        ("power mode", amdxdna::power_mode(node).map(drop)),
        ("contexts", amdxdna::contexts(node).map(drop)),
        ("last error", amdxdna::last_error(node).map(drop)),
        ("allocate", npu_program::allocate(node, npu_program::BufferKind::Device, 4096).map(drop)),
        ("locate", npu_program::locate(node, &gem).map(drop)),
        ("context", npu_program::HardwareContext::new(node, 16).map(drop)),
        ("npu heap", npu_program::DeviceHeap::new(node).map(drop)),
        ("begin", buffer.begin(Access::Read)),
        ("end", buffer.end(Access::Read)),
        ("udmabuf", DmaBuf::from_memfd(node.as_fd(), memfd.as_fd(), page_size()).map(drop)),
        ("heap", DmaBuf::from_heap(node.as_fd(), page_size()).map(drop)),
    ];
    #[cfg(feature = "amdgpu")]
    all.extend(amdgpu_requests(node));
    all.shrink_to_fit();
    all
}

/// The requests of amdgpu's driver.
#[cfg(feature = "amdgpu")]
fn amdgpu_requests(node: &Node) -> Vec<(&'static str, super::DriverResult<()>)> {
    use amdgpu::context::{Context, IndirectBuffer, ObjectList};
    use amdgpu::objects::{self, GpuAccess, HostMapping, ObjectKind, PlacedObject};
    let (context, gem, list) = (Context::of(node, 1), node.own(1), ObjectList::default());
    let kind = ObjectKind { in_vram: true, host: HostMapping::None, is_shared: false };
    let place = || PlacedObject::new(node, node.own(1), 1 << 32, page_size(), GpuAccess::Code);
    vec![
        ("compute", amdgpu::compute(node).map(drop)),
        ("object", objects::allocate(node, page_size(), kind).map(drop)),
        ("map", objects::map(node, &gem, page_size()).map(drop)),
        ("place", place().map(drop)),
        ("amdgpu context", Context::new(node).map(drop)),
        ("submit", context.submit([IndirectBuffer::default()], (&gem, 0), &list).map(drop)),
        ("wait for a submit", context.wait(1, Duration::ZERO).map(drop)),
        ("state", context.state().map(drop)),
    ]
}

#[test]
fn every_request_reports_every_errno_as_it_is() {
    for errno in ERRNOS {
        let file = file();
        let _fake = FakeIoctls::new(file.path(), move |_, _| Err(errno));
        let node = Node::open(file.path()).unwrap();
        let buffer = DmaBuf::from_fd(node.as_fd().try_clone_to_owned().unwrap()).unwrap();
        for (name, answer) in requests(&node, &buffer) {
            assert_eq!(answer.unwrap_err().errno, errno, "{name}");
        }
    }
}

#[test]
fn every_request_is_made_again_when_a_signal_interrupts_it() {
    // Each request is interrupted twice, then refused.
    let count = Arc::new(AtomicU32::new(0));
    let counted = count.clone();
    let file = file();
    let _fake = FakeIoctls::new(file.path(), move |_, _| {
        Err(if counted.fetch_add(1, Ordering::SeqCst) % 3 == 2 { Errno::ENODEV } else { Errno::EINTR })
    });
    let node = Node::open(file.path()).unwrap();
    let buffer = DmaBuf::from_fd(node.as_fd().try_clone_to_owned().unwrap()).unwrap();
    let all = requests(&node, &buffer);
    let least = 3 * all.len() as u32;
    for (name, answer) in all {
        assert_eq!(answer.unwrap_err().errno, Errno::ENODEV, "{name}");
    }
    assert!(count.load(Ordering::SeqCst) >= least, "{least} requests");
}

#[test]
fn requests_carry_the_numbers_and_sizes_of_the_headers() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = seen.clone();
    let file = file();
    let _fake = FakeIoctls::new(file.path(), move |request, _| {
        log.lock().unwrap().push(request);
        Err(Errno::ENODEV)
    });
    let node = Node::open(file.path()).unwrap();
    let buffer = DmaBuf::from_fd(node.as_fd().try_clone_to_owned().unwrap()).unwrap();
    let names: Vec<_> = requests(&node, &buffer).into_iter().map(|(name, _)| name).collect();
    let seen = seen.lock().unwrap();
    // Values of the kernel's own macros, computed by a C compiler from Debian 12's headers.
    for (name, request) in [
        ("version", 0xc040_6400u64),
        ("import", 0xc00c_642e),
        ("export", 0xc00c_642d),
        ("wait", 0xc028_64ca),
        ("device", 0x4020_6445),
        ("gtt", 0xc020_6440),
        ("allocate", 0xc020_6443),
        ("locate", 0xc030_6444),
        ("array", 0xc010_6447),
        ("context", 0xc038_6440),
        ("last error", 0xc018_644a),
        ("begin", 0x4008_6200),
        ("udmabuf", 0x4018_7542),
        ("heap", 0xc018_4800),
        #[cfg(feature = "amdgpu")]
        ("map", 0xc008_6441),
        #[cfg(feature = "amdgpu")]
        ("place", 0x4028_6448),
        #[cfg(feature = "amdgpu")]
        ("amdgpu context", 0xc010_6442),
        #[cfg(feature = "amdgpu")]
        ("submit", 0xc018_6444),
        #[cfg(feature = "amdgpu")]
        ("wait for a submit", 0xc020_6449),
    ] {
        assert!(seen.contains(&request), "{name} should be {request:#x}; seen: {seen:#x?}");
        assert!(names.contains(&name));
    }
    assert_eq!(decode(0xc018_644a), (3, 24, b'd', 0x4a));
}

fn phoenix() -> FakeDrmDriver {
    let info = b::drm_amdgpu_info_device {
        cu_active_number: 12,
        max_engine_clock: 2_800_000,
        max_memory_clock: 2_800_000,
        vram_bit_width: 128,
        vram_type: b::AMDGPU_VRAM_TYPE_DDR5,
        ids_flags: 1,
        high_va_offset: 7,
        ..Default::default()
    };
    FakeDrmDriver { name: "amdgpu", version: [3, 57, 0], ..Default::default() }.with(
        AMDGPU_INFO,
        b::AMDGPU_INFO_DEV_INFO,
        0,
        bytes(info),
    )
}

#[test]
fn a_driver_says_who_it_is_even_when_its_name_is_long() {
    let (_file, _fake, node) = open(phoenix());
    let v = node.version().unwrap();
    assert_eq!((v.name.as_str(), v.numbers), ("amdgpu", [3, 57, 0]));
    let name: &'static str = "x".repeat(1000).leak();
    let (_file, _fake, node) = open(FakeDrmDriver { name, ..Default::default() });
    assert_eq!(node.version().unwrap().name.len(), 128);
}

#[test]
fn short_and_longer_structures_are_read_as_far_as_they_go() {
    let (_file, _fake, node) = open(phoenix());
    let whole = amdgpu::device(&node).unwrap();
    assert_eq!((whole.compute_units, whole.is_apu, whole.memory_name()), (12, true, Some("DDR5")));
    assert_eq!(whole.peak_bandwidth(), Some(89.6e9));

    let key = (AMDGPU_INFO, b::AMDGPU_INFO_DEV_INFO, 0);
    let answer = phoenix().answers[&key].clone().unwrap();
    let longer = [answer.clone(), vec![0xff; 512]].concat();
    let (_file, _fake, node) = open(phoenix().with(key.0, key.1, key.2, longer));
    assert_eq!(amdgpu::device(&node), Ok(whole));

    // An older kernel's structure ends before the memory's width.
    let (_file, _fake, node) = open(phoenix().with(key.0, key.1, key.2, answer[..64].to_vec()));
    let short = amdgpu::device(&node).unwrap();
    assert_eq!((short.compute_units, short.memory_bits, short.memory_name()), (12, 0, None));
    assert_eq!(short.peak_bandwidth(), None);
}

#[test]
fn a_driver_that_writes_more_than_it_was_asked_for_overwrites_nothing() {
    let file = file();
    let _fake = FakeIoctls::new(file.path(), |_, argument| {
        // SAFETY: the wrapper passes this structure, and room for more than it asks for.
        unsafe {
            let info = &*argument.cast::<b::drm_amdgpu_info>();
            assert!(info.return_size <= 1024);
            (info.return_pointer as *mut u8).write_bytes(1, 4096);
        }
        Ok(0)
    });
    let node = Node::open(file.path()).unwrap();
    assert_eq!(amdgpu::losses(&node), Ok(0x0101_0101));
    assert_eq!(amdgpu::evictions(&node), Ok(0x0101_0101_0101_0101));
}

fn context(pid: i64, completed: u64) -> b::amdxdna_drm_hwctx_entry {
    let counts = b::amdxdna_drm_hwctx_entry { command_submissions: completed + 1, ..Default::default() };
    b::amdxdna_drm_hwctx_entry { context_id: 1, num_col: 4, pid, command_completions: completed, ..counts }
}

/// GET_ARRAY's answer, with entries of `size` bytes.
fn entries(size: usize, entries: &[b::amdxdna_drm_hwctx_entry]) -> Vec<u8> {
    let mut out = (size as u32).to_ne_bytes().to_vec();
    for e in entries {
        let mut e = bytes(*e);
        e.resize(size, 0xee);
        out.extend(e);
    }
    out
}

#[test]
fn contexts_are_listed_by_old_and_new_drivers_alike() {
    let npu = || FakeDrmDriver { name: "amdxdna", version: [0, 6, 0], ..Default::default() };
    let two = [context(100, 5), context(200, 9)];
    let facts = |node: &Node| {
        let all = amdxdna::contexts(node).unwrap();
        all.iter().map(|c| (c.pid, c.columns, c.submitted, c.completed)).collect::<Vec<_>>()
    };
    let expected = [(100, 4, 6, 5), (200, 4, 10, 9)];
    // The driver's entry is as long as Kiln's, shorter, or longer.
    for size in [144, 96, 240] {
        let (_file, _fake, node) = open(npu().with(XDNA_ARRAY, b::DRM_AMDXDNA_HW_CONTEXT_ALL, 0, entries(size, &two)));
        assert_eq!(facts(&node), expected, "entries of {size} bytes");
    }
    // A driver without GET_ARRAY answers the older query.
    let old: Vec<u8> = two.iter().flat_map(|e| bytes(*e)[..64].to_vec()).collect();
    let (_file, _fake, node) = open(npu().with(XDNA_INFO, b::DRM_AMDXDNA_QUERY_HW_CONTEXTS, 0, old));
    assert_eq!(facts(&node), expected);
    let (_file, _fake, node) = open(npu().with(XDNA_INFO, b::DRM_AMDXDNA_QUERY_HW_CONTEXTS, 0, Vec::new()));
    assert_eq!(facts(&node), []);
    // A user who may not see contexts gets an error, not an empty list.
    let denied = npu().without(XDNA_ARRAY, b::DRM_AMDXDNA_HW_CONTEXT_ALL, 0, Errno::EACCES);
    let (_file, _fake, node) = open(denied);
    assert_eq!(amdxdna::contexts(&node).unwrap_err().errno, Errno::EACCES);
}

#[test]
fn columns_that_contexts_share_are_counted_once() {
    let held = |spans: &[(u32, u32)]| {
        let entries: Vec<_> = spans
            .iter()
            .map(|&(start_col, num_col)| b::amdxdna_drm_hwctx_entry { start_col, num_col, ..context(100, 5) })
            .collect();
        let npu = FakeDrmDriver { name: "amdxdna", ..Default::default() };
        let (_file, _fake, node) =
            open(npu.with(XDNA_ARRAY, b::DRM_AMDXDNA_HW_CONTEXT_ALL, 0, self::entries(144, &entries)));
        amdxdna::columns_held(&amdxdna::contexts(&node).unwrap())
    };
    assert_eq!(held(&[]), 0);
    assert_eq!(held(&[(1, 4), (1, 4), (1, 4)]), 4);
    assert_eq!(held(&[(4, 4), (0, 4)]), 8);
    assert_eq!(held(&[(2, 3), (0, 8), (1, 1)]), 8, "within another");
    assert_eq!(held(&[(3, 3), (0, 4), (7, 0)]), 6, "across another, and none");
    assert_eq!(held(&[(u32::MAX, u32::MAX), (0, 1)]), (1 << 32), "whatever a driver says");
}

#[test]
fn sensors_are_scaled_and_unknown_power_modes_named() {
    // Texts and exponents are the real driver's.
    let sensor = |kind: u32, label: &str, input, unitm, units: &str| {
        let mut s = b::amdxdna_drm_query_sensor { input, unitm, type_: kind as u8, ..Default::default() };
        s.label[..label.len()].copy_from_slice(label.as_bytes());
        s.units[..units.len()].copy_from_slice(units.as_bytes());
        bytes(s)
    };
    let sensors = [
        sensor(b::AMDXDNA_SENSOR_TYPE_POWER, "Total Power", 4321, -3, "mW"),
        sensor(b::AMDXDNA_SENSOR_TYPE_POWER, "Total Power", u32::MAX, -3, "mW"),
        sensor(b::AMDXDNA_SENSOR_TYPE_TEMPERATURE, "Temperature", 45, 0, "C"),
        sensor(b::AMDXDNA_SENSOR_TYPE_COLUMN_UTILIZATION, "Column 0 Utilization", 97, 0, "%"),
    ];
    let mode = b::amdxdna_drm_power_mode { power_mode: 9, ..Default::default() };
    let npu = FakeDrmDriver { name: "amdxdna", ..Default::default() }
        .with(XDNA_INFO, b::DRM_AMDXDNA_QUERY_SENSORS, 0, sensors.concat())
        .with(XDNA_INFO, b::DRM_AMDXDNA_GET_POWER_MODE, 0, bytes(mode));
    let (_file, _fake, node) = open(npu);
    let sensors = amdxdna::sensors(&node).unwrap();
    let shown: Vec<String> = sensors.iter().map(|s| format!("{} {:.3} {}", s.label, s.value, s.unit)).collect();
    assert_eq!(shown, ["Total Power 4.321 W", "Temperature 45.000 C", "Column 0 Utilization 97.000 %"]);
    assert_eq!(amdxdna::power_mode(&node).unwrap(), "9 (unknown)");
}

#[test]
fn a_shared_buffer_is_allocated_from_a_heap_and_its_handles_are_closed() {
    // A heap that hands out memfds, with the interface of its header.
    let heap = file();
    let _heap = FakeIoctls::new(heap.path(), |request, argument| {
        assert_eq!(decode(request), (3, 24, b'H', 0));
        // SAFETY: the wrapper passes this structure.
        let data = unsafe { &mut *argument.cast::<b::dma_heap_allocation_data>() };
        assert_eq!(data.heap_flags, 0);
        data.fd = sealed_memfd(data.len).unwrap().into_raw_fd() as u32;
        Ok(0)
    });
    let device = OwnedFd::from(std::fs::File::open(heap.path()).unwrap());
    let buffer = DmaBuf::from_heap(device.as_fd(), 2 * page_size()).unwrap();
    assert_eq!(buffer.map().unwrap().bytes().len() as u64, 2 * page_size());

    let closed = Arc::new(AtomicU32::new(0));
    let log = closed.clone();
    let node = file();
    let _node = FakeIoctls::new(node.path(), move |request, argument| {
        // SAFETY: the wrappers pass these structures.
        unsafe {
            match decode(request).3 {
                0x2e => (*argument.cast::<b::drm_prime_handle>()).handle = 77,
                0x09 => log.store((*argument.cast::<b::drm_gem_close>()).handle, Ordering::SeqCst),
                _ => return Err(Errno::ENOTTY),
            }
        }
        Ok(0)
    });
    let node = Node::open(node.path()).unwrap();
    let gem = node.import(buffer.as_fd()).unwrap();
    assert_eq!(gem.handle(), 77);
    drop(gem);
    assert_eq!(closed.load(Ordering::SeqCst), 77);
}

#[test]
fn a_timeline_may_be_waited_for_without_end() {
    let deadline = Arc::new(Mutex::new(0));
    let seen = deadline.clone();
    let file = file();
    let _fake = FakeIoctls::new(file.path(), move |_, argument| {
        // SAFETY: the wrapper passes this structure.
        *seen.lock().unwrap() = unsafe { (*argument.cast::<b::drm_syncobj_timeline_wait>()).timeout_nsec };
        Ok(0)
    });
    let node = Node::open(file.path()).unwrap();
    for longest in [Duration::MAX, Duration::from_secs(u64::MAX), Duration::from_nanos(u64::MAX)] {
        node.wait_timeline(1, 1, longest).unwrap();
        assert_eq!(*deadline.lock().unwrap(), i64::MAX, "{longest:?}");
    }
}

#[test]
fn a_buffer_that_is_not_mapped_has_no_address() {
    let file = file();
    // Unmapped in the driver's form, unmapped in its header's form, and mapped.
    let mut answers = vec![(u64::MAX, u64::MAX), (0, 0), (0x7f00_0000_0000, 0x400_0000)];
    let _fake = FakeIoctls::new(file.path(), move |request, argument| {
        if decode(request).3 == 0x44 {
            // SAFETY: the wrapper passes this structure.
            let data = unsafe { &mut *argument.cast::<b::amdxdna_drm_get_bo_info>() };
            data.map_offset = 0x1_0000_0000;
            (data.vaddr, data.xdna_addr) = answers.remove(0);
        }
        Ok(0)
    });
    let node = Node::open(file.path()).unwrap();
    let gem = node.own(1);
    let found: Vec<_> = (0..3).map(|_| npu_program::locate(&node, &gem).unwrap()).collect();
    let addresses: Vec<_> = found.iter().map(|p| (p.address, p.device_address)).collect();
    assert_eq!(addresses, [(None, None), (None, None), (Some(0x7f00_0000_0000), Some(0x400_0000))]);
    assert!(found.iter().all(|p| p.map_offset == Some(0x1_0000_0000)));
}

#[test]
fn a_command_goes_to_the_npu_with_its_buffers() {
    let log = Arc::new(Mutex::new(Vec::new()));
    let seen = log.clone();
    let file = file();
    let _fake = FakeIoctls::new(file.path(), move |request, argument| {
        let number = decode(request).3;
        // SAFETY: the wrappers pass these structures, and arrays of the given lengths.
        let what = unsafe {
            match number {
                0x40 => {
                    let data = &mut *argument.cast::<b::amdxdna_drm_create_hwctx>();
                    (data.handle, data.syncobj_handle) = (3, 4);
                    format!("context of {} tiles", data.num_tiles)
                }
                0x41 => format!("end {}", (*argument.cast::<b::amdxdna_drm_destroy_hwctx>()).handle),
                0x42 => {
                    let data = &*argument.cast::<b::amdxdna_drm_config_hwctx>();
                    let cu = &*(data.param_val as *const b::amdxdna_config_one_cu);
                    format!("load {} of {} into {}", cu.cu.cu_bo, cu.num_cus, data.handle)
                }
                0x46 => {
                    let data = &mut *argument.cast::<b::amdxdna_drm_exec_cmd>();
                    let args = std::slice::from_raw_parts(data.args as *const u32, data.arg_count as usize);
                    data.seq = 41;
                    format!("run {} on {} with {args:?}", data.cmd_handles, data.hwctx)
                }
                0xca => {
                    let data = &*argument.cast::<b::drm_syncobj_timeline_wait>();
                    let (handle, point) = (*(data.handles as *const u32), *(data.points as *const u64));
                    format!("wait for {point} of {handle}, flags {}", data.flags)
                }
                _ => return Ok(0),
            }
        };
        seen.lock().unwrap().push(what);
        Ok(0)
    });
    let node = Node::open(file.path()).unwrap();
    let (program, command, data) = (node.own(10), node.own(11), node.own(12));
    let context = npu_program::HardwareContext::new(&node, 16).unwrap();
    context.load(&program).unwrap();
    let number = context.submit(&command, &[&data, &program]).unwrap();
    context.wait(number, Duration::from_millis(10)).unwrap();
    drop(context);
    let expected = [
        "context of 16 tiles",
        "load 10 of 1 into 3",
        "run 11 on 3 with [12, 10]",
        "wait for 41 of 4, flags 2",
        "end 3",
    ];
    assert_eq!(*log.lock().unwrap(), expected);
}
