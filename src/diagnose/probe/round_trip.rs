//! A round trip from the GPU to the NPU and back through shared memory: the NPU reads data written by the GPU, and the
//! GPU reads the NPU's result.

use super::{Checks, Verdict};
#[cfg(feature = "amdgpu")]
use crate::amdgpu::device::{GTT_HEAP, RenderDevice};
#[cfg(feature = "amdgpu")]
use crate::amdgpu::driver::Amdgpu;
use crate::engine::device::OpenDevice;
use crate::lower::dispatch::Edge;
use crate::npu::reader::check_sums;
use crate::npu::reads::{CHANNELS, HEADERS_BYTES, ReadLayout, SUMS_BYTES, UNIT_BYTES, pattern};
use crate::npu::{BufferId, CommandId, LoadedProgram};
use crate::replay::device_queue::DeviceQueue;
#[cfg(feature = "amdgpu")]
use crate::replay::driver::MemorySource;
use crate::replay::driver::{DeviceCommand, Driver, HostAccess, Memory, MemoryCopy};
#[cfg(feature = "vulkan")]
use crate::vulkan::{
    Gpu, Vulkan,
    memory::{Backing, Buffer, heaps},
};
use crate::{Error, Result};
use std::rc::Rc;
use std::time::Duration;

/// Bytes that the GPU writes: one unit per channel.
const BYTES: usize = CHANNELS * UNIT_BYTES;
/// The number of round trips. The median of their times counts.
const TRIPS: usize = 16;
/// The longest time for the NPU's part of a trip, which normally takes a fraction of a millisecond.
const DEADLINE: Duration = Duration::from_secs(5);

/// Makes round trips in memory that the GPU's driver exports.
pub(super) fn check(checks: &mut Checks, program: LoadedProgram<'_>, gpu: &OpenDevice, now: &dyn Fn() -> f64) {
    let took = match gpu {
        #[cfg(feature = "vulkan")]
        OpenDevice::Vulkan(gpu) if !gpu.features.sharing.exports => {
            return checks.unseen(
                "round-trip",
                "this Vulkan driver exports no dma-buf that the NPU could read",
                "on AMD any recent Mesa does",
            );
        }
        #[cfg(feature = "vulkan")]
        OpenDevice::Vulkan(gpu) => {
            RoundTrip::by_vulkan(program, gpu, [Backing::Exported, Backing::Exported]).and_then(|mut t| t.median(now))
        }
        #[cfg(feature = "amdgpu")]
        OpenDevice::Amdgpu(device) => by_amdgpu(program, device).and_then(|mut trip| trip.median(now)),
    };
    checks.show("round-trip", Verdict::Fail, took, |seconds| {
        let (micros, read) = (1e6 * seconds, crate::display::bytes(BYTES as u64));
        format!(
            "GPU to NPU to GPU in {micros:.0} us, the median of {TRIPS}; the {read} that the GPU wrote were all read"
        )
    });
}

/// The parts of a round trip. Fields are dropped in this order, so that neither device uses freed memory.
pub(super) struct RoundTrip<'x, D: Driver> {
    program: LoadedProgram<'x>,
    command: CommandId,
    arguments: [BufferId; 3],
    layout: ReadLayout,
    /// The GPU's commands before and after the NPU's.
    lists: [D::Baked; 2],
    queue: DeviceQueue<D>,
    /// The host's buffers for the data that the GPU writes, and for the sums that it reads.
    written: D::Memory,
    found: D::Memory,
    /// Shared buffers: the data from the GPU, and the sums from the NPU.
    data: D::Memory,
    sums: D::Memory,
}

#[cfg(feature = "vulkan")]
impl<'x> RoundTrip<'x, Vulkan> {
    /// [`RoundTrip::new`] in shared memory of these two kinds.
    ///
    /// # Errors
    /// As [`RoundTrip::new`].
    pub(super) fn by_vulkan(
        program: LoadedProgram<'x>,
        gpu: &Rc<Gpu>,
        [data, sums]: [Backing; 2],
    ) -> Result<RoundTrip<'x, Vulkan>> {
        let heap = heaps::host_heap(gpu)?;
        let host = |bytes| Buffer::new(gpu, bytes as u64, heap, HostAccess::Host);
        let shared = |bytes, backing| Buffer::backed(gpu, bytes as u64, heap, HostAccess::Host, backing);
        let buffers = [host(BYTES)?, host(SUMS_BYTES)?, shared(BYTES, data)?, shared(SUMS_BYTES, sums)?];
        RoundTrip::new(program, Vulkan::new(gpu)?, buffers)
    }
}

#[cfg(feature = "amdgpu")]
fn by_amdgpu<'x>(program: LoadedProgram<'x>, device: &Rc<RenderDevice>) -> Result<RoundTrip<'x, Amdgpu>> {
    let driver = Amdgpu::of(device)?;
    let allocate = |bytes, source| driver.allocate(bytes as u64, GTT_HEAP, HostAccess::Host, source);
    let [host, shared] = [MemorySource::Ordinary, MemorySource::Exported];
    let buffers =
        [allocate(BYTES, host)?, allocate(SUMS_BYTES, host)?, allocate(BYTES, shared)?, allocate(SUMS_BYTES, shared)?];
    RoundTrip::new(program, driver, buffers)
}

impl<'x, D: Driver> RoundTrip<'x, D> {
    /// A round trip through the program `read_sum`. `buffers`: two that the host maps, for the data and the sums, and
    /// two that are shared.
    ///
    /// # Errors
    /// Refused: memory is short. Device: a driver refuses.
    fn new(mut program: LoadedProgram<'x>, driver: D, buffers: [D::Memory; 4]) -> Result<RoundTrip<'x, D>> {
        let wrong = |cause| Error::input(cause, "report this");
        let layout = ReadLayout::new(CHANNELS, BYTES, 1).map_err(wrong)?;
        let stream = layout.stream().map_err(wrong)?.bytes();
        let [written, found, data, sums] = buffers;
        let headers = program.allocate(HEADERS_BYTES as u64)?;
        program.write(headers, &layout.headers())?;
        let mut import = |buffer: &D::Memory| {
            let made = buffer.dma_buf().ok_or_else(|| Error::device("the buffer is no dma-buf", "report this"))?;
            program.import(made)
        };
        let arguments = [headers, import(&data)?, import(&sums)?];
        // Zeros from the buffer's creation may still be in the CPU's caches, and must not overwrite the first sums.
        program.write(arguments[2], &[0; SUMS_BYTES])?;
        let command = program.add_command(stream.len())?;
        program.set_stream(command, &stream)?;

        let mut queue = DeviceQueue::new(driver);
        let mut bake = |from, to, bytes: usize| {
            let copy = DeviceCommand::Copy(MemoryCopy::new(from, to, bytes as u64));
            queue.driver.bake(&[DeviceCommand::Wait(Edge::Device), copy, DeviceCommand::Wait(Edge::Host)])
        };
        let lists = [bake(&written, &data, BYTES)?, bake(&sums, &found, SUMS_BYTES)?];
        Ok(RoundTrip { program, command, arguments, layout, lists, queue, written, found, data, sums })
    }

    /// Seconds of a trip by `now`: the median of several trips, each with different data.
    ///
    /// # Errors
    /// Device: a device fails, or the sums do not match the data.
    pub(super) fn median(&mut self, now: &dyn Fn() -> f64) -> Result<f64> {
        let mut times = (0..TRIPS as u32).map(|seed| self.go(seed, now)).collect::<Result<Vec<f64>>>()?;
        times.sort_unstable_by(f64::total_cmp);
        Ok(times[TRIPS / 2])
    }

    fn go(&mut self, seed: u32, now: &dyn Fn() -> f64) -> Result<f64> {
        let data = pattern(BYTES, seed + 1);
        self.written.copy_from(&data)?;
        let [to_npu, from_npu] = self.lists;
        let arguments = self.arguments.map(|buffer| (buffer, 0));
        let begin = now();
        self.data.to_device()?;
        // SAFETY: each list is waited for, and what it copies between lives as long.
        unsafe { self.queue.run(to_npu) }?;
        self.data.to_host()?;
        self.program.start(self.command, &arguments)?;
        self.program.wait(self.command, DEADLINE, DEADLINE)?;
        self.sums.to_device()?;
        // SAFETY: as above.
        unsafe { self.queue.run(from_npu) }?;
        let took = now() - begin;
        let mut found = [0; SUMS_BYTES];
        self.found.copy_to(&mut found)?;
        check_sums(&found, &self.layout.sums(&data))?;
        Ok(took)
    }
}
