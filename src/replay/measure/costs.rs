//! Costs on an idle device: a dispatch, a submit, a byte of upload.

use crate::Result;
use crate::lower::dispatch::{Dispatch, Edge};
use crate::lower::kernels::constants::NoConstants;
use crate::lower::kernels::push::{Push, ReadPush};
use crate::lower::kernels::{Kernel, Module};
use crate::replay::device_queue::DeviceQueue;
use crate::replay::driver::{Driver, HostAccess, Memory, MemoryCopy, MemorySource, Stamps};
use std::time::Instant;

const REPETITIONS: usize = 7;
/// Dispatches in one submit. With this many the cost of the submit itself is negligible.
const DISPATCHES: usize = 256;

/// The fixed costs of the device's work, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Costs {
    /// Seconds of an empty dispatch that waits for the one before it.
    pub dispatch: f64,
    /// Seconds of an empty dispatch that waits for nothing.
    pub parallel_dispatch: f64,
    /// A nearly empty submit, and the wait for it.
    pub submit: f64,
}

/// Measures the costs of a dispatch and a submit. `heap`: index of one of the device's heaps.
///
/// # Errors
/// Device: the driver refuses or fails.
pub fn measure<D: Driver>(driver: D, heap: usize) -> Result<Costs> {
    let mut queue = DeviceQueue::new(driver);
    let data = queue.driver.allocate(4096, heap, HostAccess::None, MemorySource::Ordinary)?;
    let workgroup = queue.driver.caps().subgroup.max(32);
    // One workgroup that reads one cache line, so that the dispatch itself dominates.
    let dispatch = |edge| {
        let push = Push::new(&ReadPush { data: data.address(), sink: data.address(), words: 1 });
        let kernel = Kernel::new(Module::Read, workgroup, NoConstants {});
        Dispatch { edge, ..Dispatch::new(kernel, push, [1, 1, 1]) }
    };
    let mut time = |count: usize, edge: Edge| -> Result<(f64, f64)> {
        let dispatches: Vec<Dispatch> = (0..count).map(|_| dispatch(edge)).collect();
        let mut stamps = queue.driver.stamps(2)?;
        let list = queue.bake(&[&dispatches], None, stamps.as_ref().map(|s| (s, 0)), None)?;
        let (mut device, mut host) = (f64::INFINITY, f64::INFINITY);
        for _ in 0..REPETITIONS {
            let start = Instant::now();
            // SAFETY: each run of the list is waited for.
            unsafe { queue.run(list) }?;
            let elapsed = start.elapsed().as_secs_f64();
            host = host.min(elapsed);
            device = device.min(match &mut stamps {
                Some(stamps) => stamps.read_spans()?.sum(),
                None => elapsed,
            });
        }
        queue.driver.free(&[list]);
        Ok((device, host))
    };
    let (one, submit) = time(1, Edge::Kernels)?;
    let per_dispatch = |many: f64| ((many - one) / (DISPATCHES - 1) as f64).max(0.0);
    let (behind, beside) = (time(DISPATCHES, Edge::Kernels)?.0, time(DISPATCHES, Edge::None)?.0);
    Ok(Costs { dispatch: per_dispatch(behind), parallel_dispatch: per_dispatch(beside), submit })
}

/// The rates of uploads to the device, in bytes per second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Transfer {
    /// The host writes straight into device memory, with one thread. `None` if that is not mapped.
    pub mapped: Option<f64>,
    /// The device copies from memory that the host has written.
    pub copied: f64,
}

/// Measures the rates of uploading `bytes` bytes to a heap of the device; `by` is a heap that the host maps.
///
/// # Errors
/// Device: there is not enough memory, or the driver fails.
pub fn measure_transfer<D: Driver>(driver: D, heap: usize, by: usize, bytes: u64) -> Result<Transfer> {
    let mut queue = DeviceQueue::new(driver);
    let mut device = queue.driver.allocate(bytes, heap, HostAccess::Device, MemorySource::Ordinary)?;
    let mut host = queue.driver.allocate(bytes, by, HostAccess::Host, MemorySource::Ordinary)?;
    let source = vec![0x5au8; bytes as usize];
    host.copy_from(&source)?;
    let best = |run: &mut dyn FnMut() -> Result<()>| -> Result<f64> {
        let mut best = f64::INFINITY;
        for _ in 0..REPETITIONS {
            let start = Instant::now();
            run()?;
            best = best.min(start.elapsed().as_secs_f64());
        }
        Ok(bytes as f64 / best)
    };
    let copied = best(&mut || queue.copy([MemoryCopy::new(&host, &device, bytes)]))?;
    // SAFETY: every copy was waited for.
    let mapped = match unsafe { device.bytes_mut() } {
        Some(to) => Some(best(&mut || {
            to.copy_from_slice(&source);
            std::hint::black_box(&to);
            Ok(())
        })?),
        None => None,
    };
    Ok(Transfer { mapped, copied })
}
