//! The device, its memory and its requests, on a fake of the kernel.

use super::code::{Chip, CodeSet};
use super::device::{GTT_HEAP, RenderDevice, VRAM_HEAP};
use super::fake::{Alive, Executes, FakeNode, FakeReset, GpuSpace};
use super::memory::GpuBuffer;
use super::queue::Queue;
use super::shipped;
use crate::Result;
use crate::lower::caps::DeviceKind;
use crate::lower::kernels::{Kernel, Module};
use crate::lower::units::RDNA3;
use crate::machine::files::Files;
use crate::model::{WeightFormat, presets};
use crate::replay::driver::{HostAccess, Memory};
use crate::replay::options::ReplayOptions;
use crate::schedule::{Extent, KvType, Schedule};
use crate::sys::amdgpu::context::{Context, IndirectBuffer, ObjectList};
use crate::sys::amdgpu::objects::{self, GpuAccess, HostMapping, ObjectKind, PlacedObject};
use crate::sys::dma_buf::page_size;
use crate::sys::drm::Node;
use nix::errno::Errno;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

/// The machine of tests: its packets are an address, and it adds one to the word there.
pub(super) struct Bump;

impl Executes for Bump {
    fn execute(&mut self, ibs: &[(u64, u32)], memory: &mut GpuSpace) -> std::result::Result<(), String> {
        for &(address, _) in ibs {
            let packet = memory.words(address, 2)?;
            let word = u64::from(packet[1]) << 32 | u64::from(packet[0]);
            let bytes = memory.bytes_mut(word, 4)?;
            let next = u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) + 1;
            bytes.copy_from_slice(&next.to_ne_bytes());
        }
        Ok(())
    }
}

impl Bump {
    pub(super) fn node() -> FakeNode {
        FakeNode::new(Chip::Gfx1151, Bump)
    }

    /// Packets for the first word of `number`.
    pub(super) fn list(device: &Rc<RenderDevice>, number: &GpuBuffer) -> (GpuBuffer, IndirectBuffer) {
        let mut memory = GpuBuffer::code(device, 32).unwrap();
        memory.copy_from(&number.address().to_le_bytes()).unwrap();
        let list = IndirectBuffer { address: memory.address(), bytes: 32 };
        (memory, list)
    }
}

pub(super) fn open(node: &FakeNode) -> Rc<RenderDevice> {
    Rc::new(RenderDevice::open(&node.path()).unwrap())
}

#[test]
fn each_chip_opens_with_the_capabilities_that_vulkans_driver_reports() {
    for (chip, name) in Chip::ALL.into_iter().zip(["gfx1103", "gfx1150", "gfx1151"]) {
        let node = FakeNode::new(chip, ());
        let device = open(&node);
        let caps = &device.caps;
        assert_eq!(caps.name, format!("AMD Radeon ({name}), amdgpu 3.61.0"));
        assert_eq!((device.chip, caps.kind, caps.subgroup), (chip, DeviceKind::Integrated, 32));
        assert_eq!((caps.matrix, caps.dot_accelerated, caps.relays_behind), (Some(RDNA3), true, true));
        assert_eq!((caps.has_clock, caps.max_allocation), (true, 3 << 30));
        assert_eq!(caps.cache_id, format!("{:016x}-1002-15bf-amdgpu-{name}", chip.digest()));
        let memory = device.memory().unwrap();
        let pool = memory.pool.unwrap();
        assert_eq!((pool.vram, pool.gtt), ((512 << 20) / 16 * 15, 4 << 30));
        assert_eq!(memory.heaps[VRAM_HEAP].available, pool.vram);
        assert_eq!(memory.heaps[GTT_HEAP].available, pool.gtt.min(pool.system));
        assert!(memory.unified && memory.heaps[VRAM_HEAP].device_local && !memory.heaps[GTT_HEAP].device_local);
        assert!(memory.heaps.iter().all(|heap| heap.host_visible));
    }
}

fn find(number: Option<u32>) -> impl Fn(&FakeNode) -> Result<()> {
    move |node| {
        let (_root, files) = node.machine();
        RenderDevice::find(&files, number).map(drop)
    }
}

/// Work on an open GPU.
fn on_gpu(work: impl Fn(&FakeNode, &Rc<RenderDevice>) -> Result<()>) -> impl Fn(&FakeNode) -> Result<()> {
    move |node| work(node, &Rc::new(RenderDevice::open(&node.path())?))
}

/// Work that a reset ends.
fn reset(reset: FakeReset) -> impl Fn(&FakeNode) -> Result<()> {
    on_gpu(move |node, device| {
        let queue = Queue::new(device)?;
        let number = GpuBuffer::data(device, 4, GTT_HEAP, HostAccess::Host, false)?;
        let (_list, list) = Bump::list(device, &number);
        node.kernel().holds = true;
        queue.submit(list, std::iter::once(list), Some(0))?;
        node.reset(reset);
        queue.finish();
        queue.submit(list, std::iter::once(list), Some(0))
    })
}

/// A model in a format, where some kernels do not ship.
fn model(format: WeightFormat, is_out: fn(&Kernel) -> bool) -> impl Fn(&FakeNode) -> Result<()> {
    on_gpu(move |_, device| {
        device.code.set(CodeSet::of(device.chip)?.without(is_out)).unwrap();
        let shape = presets::preset("gemma3-270m").unwrap();
        let extent = Extent { context: 64, max_rows: 8, head_rows: 1, sequences: 1, kv: KvType::F16, kv_tokens: None };
        let schedule = Schedule::build(&shape, extent, |id| format.of_matrix(id, &shape, None));
        shipped::check(device, &schedule, &ReplayOptions::default())
    })
}

/// Each is one line, and leaves nothing behind.
#[test]
fn what_cannot_be_used_is_refused_in_one_line_with_a_remedy() {
    type Act = Box<dyn Fn(&FakeNode) -> Result<()>>;
    let act = |act: fn(&FakeNode) -> Result<()>| -> Act { Box::new(act) };
    let nothing = |_: &FakeNode| {};
    type Change = fn(&FakeNode);
    let open = || act(|node| RenderDevice::open(&node.path()).map(drop));
    let int8 = WeightFormat::Int8;
    let cases: [(Act, Change, &str); 19] = [
        (
            act(|_| RenderDevice::find(&Files::under("/nowhere"), None).map(drop)),
            nothing,
            "there is no render node in /dev/dri; load the GPU's driver (`modprobe amdgpu`)",
        ),
        (
            Box::new(find(Some(130))),
            nothing,
            "there is no render node /dev/dri/renderD130; choose one of /dev/dri/renderD128",
        ),
        (act(|_| RenderDevice::open(Path::new("/dev/dri/none")).map(drop)), nothing, "open /dev/dri/none: ENOENT"),
        (open(), |n| n.kernel().fails = Some((1, Errno::EACCES)), "; join the groups render and video"),
        (
            Box::new(find(Some(128))),
            |n| n.kernel().driver = ("i915", [1, 6, 0]),
            "/renderD128 is driven by i915, not by amdgpu; use Vulkan or the CPU",
        ),
        (
            Box::new(find(None)),
            |n| n.kernel().driver = ("i915", [1, 6, 0]),
            "amdgpu drives none of the GPUs here; use Vulkan",
        ),
        (
            Box::new(find(None)),
            |n| n.kernel().driver.1 = [4, 0, 1],
            "amdgpu 4.0.1 has another interface than 3.x; use Vulkan",
        ),
        (
            open(),
            |n| n.kernel().driver.1 = [3, 48, 0],
            "amdgpu 3.48.0 is older than 3.49, that of Linux 6.1; install a newer kernel, or use Vulkan",
        ),
        (
            Box::new(find(None)),
            |n| n.kernel().set_family(143, 0x10),
            "no code for this GPU (device 15bf, family 143, revision 0x10), but for gfx1103, gfx1150, gfx1151; use Vulkan",
        ),
        (open(), |n| n.kernel().set_family(150, 0x90), "revision 0x90), but for gfx1103, gfx1150, gfx1151; use Vulkan"),
        (open(), |n| n.kernel().rings = 0, "the GPU has no compute ring; install the GPU's firmware"),
        (open(), |n| n.kernel().set_addresses(0..1 << 31, 0..0), "which are too few; install a newer kernel"),
        (open(), |n| n.kernel().fails = Some((2, Errno::ENODEV)), "; the device is gone or was reset"),
        (open(), |n| n.kernel().fails = Some((6, Errno::ENOMEM)), "failed to make a context: ENOMEM"),
        (
            Box::new(on_gpu(|_, device| GpuBuffer::data(device, 3 << 20, 1, HostAccess::None, false).map(drop))),
            |n| n.kernel().heaps = [1 << 20, 1 << 20],
            "the GPU has no 3.1 MB left, although it said so; close what else uses the GPU's memory, boot with more GTT \
             (amdgpu.gttsize)",
        ),
        (Box::new(reset(FakeReset::Own)), nothing, "boot with amdgpu.lockup_timeout=10000,10000; or use Vulkan"),
        (
            Box::new(reset(FakeReset::VramLost)),
            nothing,
            "; start Kiln again, and see the kernel's log (`dmesg`); or use",
        ),
        (
            Box::new(model(WeightFormat::Bf16, |k| k.module.name().contains("bf16"))),
            nothing,
            "this executable has no kernels for weights in bf16 on gfx1151; use Vulkan or the CPU",
        ),
        (
            Box::new(model(int8, |k| k.module == Module::Argmax)),
            nothing,
            "this executable has no code for gfx1151 of the kernel argmax for this model's sizes; use Vulkan or the CPU",
        ),
    ];
    for (act, change, expected) in cases {
        let node = Bump::node();
        change(&node);
        let line = act(&node).unwrap_err().to_string();
        assert!(line.contains(expected) && line.contains("; ") && !line.contains('\n'), "{line}");
        assert_eq!(node.alive(), Alive::default(), "{line}");
    }
    model(int8, |_| false)(&Bump::node()).unwrap();
}

/// Of several nodes the best that can be used is taken, whatever the others are.
#[test]
fn a_gpu_is_found_among_other_drivers_nodes() {
    let nodes = [(); 4].map(|()| FakeNode::new(Chip::Gfx1103, ()));
    nodes[0].kernel().driver = ("i915", [1, 6, 0]);
    nodes[1].kernel().set_family(143, 1);
    nodes[3].kernel().heaps = [1 << 30, 8 << 30];
    let root = tempfile::tempdir().unwrap();
    let dri = root.path().join("dev/dri");
    std::fs::create_dir_all(&dri).unwrap();
    std::fs::write(dri.join("card0"), "").unwrap();
    let link =
        |at: usize| std::os::unix::fs::symlink(nodes[at].path(), dri.join(format!("renderD{}", 128 + at))).unwrap();
    let files = Files::under(root.path());
    let bytes = |number| RenderDevice::find(&files, number).and_then(|device| Ok(device.memory()?.pool.unwrap().gtt));
    (0..2).for_each(link);
    assert!(bytes(None).unwrap_err().to_string().starts_with("there is no code for this GPU"));
    link(2);
    assert_eq!(bytes(None), Ok(4 << 30));
    link(3);
    assert_eq!((bytes(None), bytes(Some(130))), (Ok(8 << 30), Ok(4 << 30)));
}

#[test]
fn memory_lies_where_its_heap_and_its_access_say() {
    const VRAM: u64 = 6;
    const GTT: u64 = 2;
    let cases = [
        (VRAM_HEAP, HostAccess::None, false, (VRAM, 0xc2), None),
        (VRAM_HEAP, HostAccess::Device, false, (VRAM, 0xc1), Some(false)),
        (VRAM_HEAP, HostAccess::Host, true, (GTT, 0x81), Some(true)),
        (GTT_HEAP, HostAccess::None, false, (GTT, 0xc2), None),
        (GTT_HEAP, HostAccess::Device, false, (GTT, 0xc5), Some(false)),
        (GTT_HEAP, HostAccess::Host, false, (GTT, 0xc1), Some(true)),
        (GTT_HEAP, HostAccess::Host, true, (GTT, 0x81), Some(true)),
    ];
    for (heap, access, is_shared, object, cached) in cases {
        let node = Bump::node();
        let device = open(&node);
        let mut memory = GpuBuffer::data(&device, 5000, heap, access, is_shared).unwrap();
        assert_eq!(node.kernel().objects(), [object], "{heap} {access:?} {is_shared}");
        assert_eq!(memory.is_mapped().then_some(memory.is_cached()), cached);
        assert_eq!((memory.size(), memory.dma_buf().is_some()), (5000, is_shared));
        assert!(memory.address() >= 1 << 32 && memory.address() < 1 << 47);
        let mapping = node.kernel().mappings().remove(0);
        assert_eq!(mapping.addresses, memory.address()..memory.address() + 2 * page_size());
        assert!(mapping.is_writable && !mapping.is_executable);
        if cached.is_some() {
            memory.copy_from(&[7; 5000]).unwrap();
            let mut read = [0; 5000];
            memory.copy_to(&mut read).unwrap();
            assert_eq!(read, [7; 5000]);
            assert!(memory.copy_from(&[0; 5001]).is_err() && memory.copy_to(&mut [0; 5001]).is_err());
            // SAFETY: nothing was submitted.
            assert_eq!(unsafe { memory.words_mut(1249..1250) }.unwrap(), [0x0707_0707]);
            memory.hide();
        }
        assert!(memory.copy_from(&[0]).is_err() && !memory.is_mapped());
        // SAFETY: as above.
        assert!(unsafe { memory.bytes() }.is_none());
        drop(memory);
        assert_eq!(node.alive(), Alive { contexts: 1, ..Alive::default() });
    }
}

#[test]
fn code_lies_in_the_window_and_is_read_only_to_the_gpu() {
    let node = Bump::node();
    let device = open(&node);
    let memory = GpuBuffer::code(&device, 100).unwrap();
    assert_eq!((memory.address() >> 32, node.kernel().objects()), (0xffff_8000, vec![(2, 0xc5)]));
    let mapping = node.kernel().mappings().remove(0);
    assert!(!mapping.is_writable && mapping.is_executable);
}

/// Large allocations begin at a multiple of what a page table's entry covers, and between two lies a page that is not
/// mapped.
#[test]
fn allocations_are_aligned_and_apart_and_their_addresses_are_used_again() {
    let node = Bump::node();
    let device = open(&node);
    let data = |bytes| GpuBuffer::data(&device, bytes, GTT_HEAP, HostAccess::Device, false).unwrap();
    let all: Vec<GpuBuffer> = [1, 3 << 20, page_size(), 2 << 20].map(data).into();
    assert!(all[1].address().is_multiple_of(2 << 20) && all[3].address().is_multiple_of(2 << 20));
    let mappings = node.kernel().mappings();
    assert!(mappings.windows(2).all(|pair| pair[0].addresses.end + page_size() <= pair[1].addresses.start));
    let first = all[0].address();
    drop(all);
    assert_eq!(data(page_size()).address(), first);
}

#[test]
fn what_does_not_fit_is_refused() {
    let node = Bump::node();
    node.kernel().heaps = [1 << 20, 1 << 20];
    let device = open(&node);
    for (bytes, expected) in [
        (3 << 20, "the GPU has no 3.1 MB left, although it said so"),
        (1 << 47, "no addresses are left for"),
        (u64::MAX, "are more than any GPU has"),
    ] {
        let e = GpuBuffer::data(&device, bytes, VRAM_HEAP, HostAccess::None, false).err().unwrap();
        assert!(e.to_string().contains(expected), "{e}");
        assert_eq!(e.exit_code(), 3);
    }
    assert_eq!(GpuBuffer::data(&device, 1, 2, HostAccess::None, false).err().unwrap().exit_code(), 4);
    assert_eq!(node.alive(), Alive { contexts: 1, ..Alive::default() });
}

/// What is shared has to be named in each submit: without that the GPU would find it moved away.
#[test]
fn shared_memory_is_in_place_for_each_submit_and_others_see_it() {
    let node = Bump::node();
    let device = open(&node);
    let queue = Queue::new(&device).unwrap();
    let mut number = GpuBuffer::data(&device, 4, GTT_HEAP, HostAccess::Host, true).unwrap();
    let other = GpuBuffer::data(&device, 4, GTT_HEAP, HostAccess::Host, true).unwrap();
    number.copy_from(&41u32.to_ne_bytes()).unwrap();
    let (_list, list) = Bump::list(&device, &number);
    drop(other);
    queue.submit(list, std::iter::once(list), Some(0)).unwrap();
    queue.wait(0, Duration::from_secs(1)).unwrap();
    let shared = number.dma_buf().unwrap().map().unwrap();
    assert_eq!(shared.bytes()[..4], 43u32.to_ne_bytes());
    let mut seen = [0; 4];
    number.copy_to(&mut seen).unwrap();
    assert_eq!(seen, 43u32.to_ne_bytes());
    assert_eq!(node.kernel().complaints, [""; 0]);
}

/// A run of every request that the lower half makes.
fn run(path: &Path) -> Result<()> {
    let device = Rc::new(RenderDevice::open(path)?);
    let queue = Queue::new(&device)?;
    let vram = GpuBuffer::data(&device, 1 << 20, VRAM_HEAP, HostAccess::Device, false)?;
    let shared = GpuBuffer::data(&device, 5, GTT_HEAP, HostAccess::Host, true)?;
    let mut memory = GpuBuffer::code(&device, 32)?;
    memory.copy_from(&shared.address().to_le_bytes())?;
    let list = IndirectBuffer { address: memory.address(), bytes: 32 };
    queue.submit(list, std::iter::once(list), Some(0))?;
    queue.wait(0, Duration::from_secs(1))?;
    device.memory()?;
    drop(vram);
    Ok(())
}

/// Each request fails in turn. A request to free fails silently: the process goes on, and its end frees the rest.
#[test]
fn nothing_is_left_behind_whichever_request_fails() {
    let mut failed = 0;
    for number in 1.. {
        let node = Bump::node();
        node.kernel().fails = Some((number, Errno::EIO));
        let result = run(&node.path());
        let kernel = node.kernel();
        let (count, last) = (kernel.requests.len(), kernel.requests.get(number - 1).copied());
        assert_eq!(kernel.complaints, [""; 0], "request {number}");
        drop(kernel);
        let is_freeing = result.is_ok();
        match result {
            Ok(()) if number > count => break,
            Ok(()) => {}
            Err(e) => {
                assert!(e.to_string().contains("EIO"), "{number}: {e}");
                failed += 1;
            }
        }
        if !is_freeing {
            assert_eq!(node.alive(), Alive::default(), "request {number}, {last:#x?}");
        }
    }
    assert_eq!(failed, 19);
}

const DATA: ObjectKind = ObjectKind { in_vram: false, host: HostMapping::Cached, is_shared: false };

/// The fake refuses what Linux refuses.
#[test]
fn the_fake_refuses_addresses_as_linux_does() {
    let node = Bump::node();
    let drm = Node::open(&node.path()).unwrap();
    let page = page_size();
    let place = |address, size| {
        let gem = objects::allocate(&drm, 2 * page, DATA).unwrap();
        PlacedObject::new(&drm, gem, address, size, GpuAccess::Data).map_err(|e| e.errno)
    };
    for (address, size) in [
        (0, page),
        (0x8000, page),
        (0x1_0001, page),
        (0x1_0000, page - 1),
        (0x1_0000, 0),
        (0x1_0000, 3 * page),
        ((1 << 47) - page, 2 * page),
        (1 << 47, page),
        (0xffff_7fff_ffff_f000, page),
        (0xffff_ffff_ffff_f000, page),
        (0xffff_ffff_ffff_f000, 2 * page),
    ] {
        assert_eq!(place(address, size).err(), Some(Errno::EINVAL), "{address:#x}, {size:#x}");
    }
    let taken = place(0x10_0000, 2 * page).unwrap();
    for address in [0x10_0000 - page, 0x10_0000, 0x10_0000 + page] {
        assert_eq!(place(address, 2 * page).err(), Some(Errno::EINVAL), "{address:#x}");
    }
    let beside = [0x10_0000 - 2 * page, 0x10_0000 + 2 * page].map(|address| place(address, 2 * page).unwrap());
    drop((taken, beside));
    assert_eq!(node.alive(), Alive::default());
    assert_eq!(objects::allocate(&drm, 0, DATA).unwrap_err().errno, Errno::EINVAL);
    let always = objects::allocate(&drm, page, DATA).unwrap();
    assert_eq!(always.export().unwrap_err().errno, Errno::EPERM);
    let apart = objects::allocate(&drm, page, ObjectKind { host: HostMapping::None, ..DATA }).unwrap();
    assert_eq!(objects::map(&drm, &apart, page).unwrap_err().errno, Errno::EPERM);
}

#[test]
fn the_fake_refuses_submits_as_linux_does_and_what_the_gpu_would_fault_on() {
    let node = Bump::node();
    let drm = Node::open(&node.path()).unwrap();
    let context = Context::new(&drm).unwrap();
    let page = page_size();
    let shared = ObjectKind { is_shared: true, ..DATA };
    let place = |kind, address, access| {
        PlacedObject::new(&drm, objects::allocate(&drm, page, kind).unwrap(), address, page, access).unwrap()
    };
    let (code, data) = (place(DATA, 1 << 32, GpuAccess::Code), place(DATA, 2 << 32, GpuAccess::Data));
    let moved = place(shared, 3 << 32, GpuAccess::Code);
    let (fence, large) = (objects::allocate(&drm, page, shared).unwrap(), objects::allocate(&drm, 2 * page, shared));
    let large = large.unwrap();
    let mut list = ObjectList::default();
    let submit = |address, bytes, fence, list: &ObjectList| {
        context.submit([IndirectBuffer { address, bytes }], fence, list).map_err(|e| e.errno)
    };
    let refused = Err(Errno::EINVAL);
    for (address, bytes, fence) in [
        (code.address() + 4, 32, (&fence, 0)),
        (code.address(), 36, (&fence, 0)),
        (code.address(), 0, (&fence, 0)),
        (code.address(), 4 << 20, (&fence, 0)),
        (code.address(), page as u32 + 32, (&fence, 0)),
        (code.address() - page, 32, (&fence, 0)),
        (data.address(), 32, (&fence, 0)),
        (code.address(), 32, (&fence, page as u32 - 4)),
        (code.address(), 32, (&large, 0)),
    ] {
        assert_eq!(submit(address, bytes, fence, &list), refused, "{address:#x}, {bytes}, {}", fence.1);
    }
    assert_eq!(context.submit([], (&fence, 0), &list).map_err(|e| e.errno), refused);
    // An object that is not in place for the submit.
    assert_eq!(submit(moved.address(), 32, (&fence, 0), &list), refused);
    list.add(moved.gem());
    list.add(moved.gem());
    assert_eq!(submit(code.address(), 32, (&fence, 0), &list), refused);
    assert_eq!(node.kernel().complaints.len(), 12);
    list.remove(moved.gem());
    // What it executes it may fault on: the packet's address is 0.
    let number = submit(code.address(), 32, (&fence, page as u32 - 8), &list).unwrap();
    assert_eq!(context.wait(number, Duration::ZERO).unwrap_err().errno, Errno::ETIME);
    assert_eq!(node.kernel().complaints[12], "0x0, 4 B, is not mapped");
    assert_eq!(context.wait(number + 1, Duration::ZERO).unwrap_err().errno, Errno::EINVAL);
}
