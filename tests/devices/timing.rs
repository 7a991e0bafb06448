//! The timer that tuning measures with.

use crate::common;
use kiln::testing::lower::dispatch::Dispatch;
use kiln::testing::lower::kernels::constants::NoConstants;
use kiln::testing::lower::kernels::push::{Push, ReadPush};
use kiln::testing::lower::kernels::{Kernel, Module};
use kiln::testing::replay::device_queue::DeviceQueue;
use kiln::testing::replay::driver::{Driver, HostAccess, Memory};
use kiln::testing::replay::measure::timing::Timing;
use kiln::testing::vulkan::Vulkan;
use kiln::testing::vulkan::memory::Buffer;
use std::rc::Rc;
use std::time::Duration;

/// What shaders/read.comp writes the first word of.
const FOUND: [u32; 4] = [0x9e37_79b9, 0x7f4a_7c15, 0xf39c_c060, 0x5ced_c834];

/// Longer than a device may be idle before it is warmed up.
const IDLE: Duration = Duration::from_millis(30);

#[test]
fn what_was_timed_last_warms_up_a_device_that_was_idle() {
    let gpu = Rc::new(common::open_gpu());
    let heap = common::shared_heap(&gpu);
    let mut queue = DeviceQueue::new(Vulkan::new(&gpu).unwrap());
    let mut data = Buffer::new(&gpu, 16, heap, HostAccess::Host).unwrap();
    data.copy_from(bytemuck::cast_slice(&FOUND)).unwrap();
    let mut sink = Buffer::new(&gpu, 16, heap, HostAccess::Host).unwrap();
    let push = Push::new(&ReadPush { data: data.address(), sink: sink.address(), words: 1 });
    let dispatch = Dispatch::new(Kernel::new(Module::Read, 64, NoConstants {}), push, [1, 1, 1]);
    // Whether the kernel has run since the last look.
    let mut ran = || {
        let mut words = [0u32; 4];
        sink.copy_to(bytemuck::cast_slice_mut(&mut words)).unwrap();
        sink.copy_from(&[0; 16]).unwrap();
        words[3] == FOUND[0]
    };
    ran();
    for (warm_up, warms_up) in [(Duration::from_millis(1), true), (Duration::ZERO, false)] {
        let mut timing = Timing::new(warm_up);
        timing.warm_up(&queue, None).unwrap();
        assert!(!ran(), "nothing was timed yet");
        for _ in 0..2 {
            let stamps = queue.driver.stamps(2).unwrap().expect("the device has a clock");
            let list = queue.bake(&[std::slice::from_ref(&dispatch)], None, Some((&stamps, 0)), None).unwrap();
            let seconds = timing.time(&queue, list, stamps, f64::INFINITY, None).unwrap().unwrap();
            assert!(seconds > 0.0 && seconds.is_finite());
            assert!(ran());
            std::thread::sleep(IDLE);
            timing.warm_up(&queue, None).unwrap();
            assert_eq!(ran(), warms_up);
        }
        timing.free(&queue);
        std::thread::sleep(IDLE);
        timing.warm_up(&queue, None).unwrap();
        assert!(!ran(), "what was freed runs no more");
    }
    assert_eq!(kiln::testing::vulkan::device::instance::validation_messages(), 0);
}
