//! Explicit fences: a submit that waits for another device's fence and exports its own, and timelines that both host
//! and device raise.

mod common;

use kiln::testing::replay::driver::{Driver, HostAccess, Memory, MemoryCopy};
use kiln::testing::replay::queue::DeviceQueue;
use kiln::testing::sys::dma_buf;
use kiln::testing::sys::fence::{FenceState, SyncFile};
use kiln::testing::vulkan::fence::{Gate, Timeline, TimelineOrder};
use kiln::testing::vulkan::memory::Buffer;
use kiln::testing::vulkan::memory::allocators::UDMABUF_MEMFD;
use kiln::testing::vulkan::{Gpu, Vulkan};
use std::os::fd::AsFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

const SHORT: Duration = Duration::from_millis(50);
const LONG: Duration = Duration::from_secs(20);

/// A device with a command buffer that copies `from` to `to`.
struct Copier {
    // Dropped in this order: the queue waits for the device first.
    queue: DeviceQueue<Vulkan>,
    list: <Vulkan as Driver>::Baked,
    from: Buffer,
    to: Buffer,
    gpu: Rc<Gpu>,
}

impl Copier {
    fn new() -> Copier {
        let gpu = Rc::new(common::open_gpu());
        let heap = (0..gpu.memory.memory_heap_count as usize)
            .find(|&heap| Buffer::new(&gpu, 64, heap, HostAccess::Host).is_ok())
            .unwrap();
        let buffer = || Buffer::new(&gpu, 64, heap, HostAccess::Host).unwrap();
        let (mut from, mut to, mut queue) = (buffer(), buffer(), DeviceQueue::new(Vulkan::new(&gpu).unwrap()));
        from.copy_from(&[7; 64]).unwrap();
        to.copy_from(&[0; 64]).unwrap();
        let list = queue.bake(&[], None, None, [MemoryCopy::new(&from, &to, 64)]).unwrap();
        Copier { queue, list, from, to, gpu }
    }

    fn gate(&self) -> Option<Gate> {
        match Gate::new(&self.gpu) {
            Ok(gate) => Some(gate),
            Err(e) => {
                assert!(!self.gpu.features.sync_files && e.exit_code() == 4, "{e}");
                println!("sync_files: not run: {e}");
                None
            }
        }
    }

    fn copied(&self) -> bool {
        let (mut from, mut to) = ([0; 64], [1; 64]);
        self.from.copy_to(&mut from).unwrap();
        self.to.copy_to(&mut to).unwrap();
        from == to
    }
}

#[test]
fn a_timeline_is_raised_and_waited_for_by_the_host() {
    let gpu = Rc::new(common::open_gpu());
    let timeline = Timeline::new(&gpu).unwrap();
    assert_eq!(timeline.value().unwrap(), 0);
    assert!(!timeline.wait(1, SHORT).unwrap());
    timeline.raise(3).unwrap();
    assert!(timeline.wait(1, SHORT).unwrap() && timeline.wait(3, SHORT).unwrap());
    assert!(!timeline.wait(4, SHORT).unwrap());
    assert_eq!(timeline.value().unwrap(), 3);
    assert_eq!(kiln::testing::vulkan::device::instance::validation_messages(), 0);
}

#[test]
fn a_submit_waits_for_a_timeline_and_raises_it() {
    let mut c = Copier::new();
    let timeline = Timeline::new(&c.gpu).unwrap();
    for round in 0..3 {
        c.to.copy_from(&[0; 64]).unwrap();
        let (begin, end) = (2 * round + 1, 2 * round + 2);
        let order = TimelineOrder { after: Some((&timeline, begin)), then: Some((&timeline, end)) };
        // SAFETY: everything lives until the wait.
        unsafe { order.submit(&c.queue, &[c.list]) }.unwrap();
        assert!(!timeline.wait(end, SHORT).unwrap(), "nobody has let it begin");
        timeline.raise(begin).unwrap();
        assert!(timeline.wait(end, LONG).unwrap());
        c.queue.wait().unwrap();
        assert!(c.copied(), "round {round}");
    }
    assert_eq!(kiln::testing::vulkan::device::instance::validation_messages(), 0);
}

#[test]
fn a_submit_gives_out_a_fence_that_another_takes_in() {
    let mut c = Copier::new();
    let Some(gate) = c.gate() else { return };
    let timeline = Timeline::new(&c.gpu).unwrap();
    for round in 0..3 {
        c.to.copy_from(&[0; 64]).unwrap();
        // SAFETY: everything lives until the wait.
        let fence = unsafe { gate.submit(&c.queue, &[c.list], None, TimelineOrder::default()) }.unwrap();
        c.queue.wait().unwrap();
        assert!(c.copied(), "round {round}");
        if let Some(fence) = &fence {
            fence.wait(LONG).unwrap();
            assert_eq!(fence.state().unwrap(), FenceState::Signaled);
        }
        c.to.copy_from(&[0; 64]).unwrap();
        let order = TimelineOrder { after: None, then: Some((&timeline, round + 1)) };
        // SAFETY: everything lives until the wait.
        let _second = unsafe { gate.submit(&c.queue, &[c.list], fence, order) }.unwrap();
        assert!(timeline.wait(round + 1, LONG).unwrap());
        c.queue.wait().unwrap();
        assert!(c.copied(), "round {round}, behind a fence");
    }
    assert_eq!(kiln::testing::vulkan::device::instance::validation_messages(), 0);
}

/// vgem stands in for the NPU: its fence is on the buffer, and the GPU's work waits for it.
#[test]
#[ignore = "takes a kernel with vgem: tools/vm-test"]
fn the_gpu_waits_for_another_devices_fence() {
    let c = Copier::new();
    let node = common::vgem::node();
    let buffer = (UDMABUF_MEMFD.allocate)(dma_buf::page_size()).unwrap();
    let gem = node.import(buffer.as_fd()).unwrap();
    let work = common::vgem::attach(&node, &gem).unwrap();
    let fence: SyncFile = buffer.export_fence(dma_buf::Access::Read).unwrap();
    let Some(gate) = c.gate() else { return };
    let start = Instant::now();
    let done = std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(4 * SHORT);
            common::vgem::signal(&node, work).unwrap();
        });
        // SAFETY: everything lives until the wait.
        let done = unsafe { gate.submit(&c.queue, &[c.list], Some(fence), TimelineOrder::default()) }.unwrap();
        c.queue.wait().unwrap();
        done
    });
    assert!(c.copied() && start.elapsed() >= 4 * SHORT, "it did not wait: {:?}", start.elapsed());
    if let Some(done) = done {
        done.wait(LONG).unwrap();
    }
}
