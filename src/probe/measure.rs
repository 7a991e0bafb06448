//! What the chosen device reaches, measured through Kiln's own kernels.

use super::{Check, Checks, Verdict};
use crate::gpu::{Gpu, ceiling, costs};
use crate::plan::bytes;
use ash::vk;
use std::rc::Rc;

/// Read on a GPU: more than any cache. On a CPU driver: as much as is quick.
const GPU_BYTES: u64 = 1 << 30;
const CPU_BYTES: u64 = 128 << 20;
/// Sent to the device.
const TRANSFER_BYTES: u64 = 64 << 20;

/// Measures memory, matrix units, dispatches, submits and transfers.
pub(super) fn check(gpu: &Rc<Gpu>, progress: &dyn Fn(&str)) -> Vec<Check> {
    let mut checks = Checks::of("measured");
    let memory = crate::gpu::memory::describe(gpu);
    let heap = costs::best_heap(gpu);
    let cpu = gpu.caps.kind == vk::PhysicalDeviceType::CPU;
    let available = memory.heaps.get(heap).map_or(0, |h| h.available);
    let most = if cpu { CPU_BYTES } else { GPU_BYTES };
    let size = (most.min(available / 4).min(memory.max_allocation) / 4096 * 4096).max(4096);

    progress("read bandwidth");
    match ceiling::measure_alone(gpu, size, heap) {
        Ok(rate) => checks.ok("read", format!("{:.1} GB/s, reading {}", rate / 1e9, bytes(size))),
        Err(e) => checks.error("read", Verdict::Fail, &e),
    }
    progress("matrix rate");
    match ceiling::measure_matrix_rate(gpu) {
        Ok(Some(rate)) => checks.ok("matrix", format!("{:.2} TFLOP/s of f16 products", rate / 1e12)),
        Ok(None) => checks.skip("matrix", "no matrix units"),
        Err(e) => checks.error("matrix", Verdict::Fail, &e),
    }
    progress("dispatches and submits");
    match costs::measure(gpu) {
        Ok(c) => {
            let [behind, beside, submit] = [c.dispatch, c.parallel_dispatch, c.submit].map(|s| 1e6 * s);
            checks.ok("dispatch", format!("{behind:.2} µs behind a barrier, {beside:.2} µs beside others"));
            checks.ok("submit", format!("{submit:.1} µs to submit and wait"));
        }
        Err(e) => checks.error("dispatch", Verdict::Fail, &e),
    }
    progress("transfers");
    match costs::measure_transfer(gpu, TRANSFER_BYTES.min(size)) {
        Ok(t) => {
            let mapped = t.mapped.map_or("not mapped".into(), |m| format!("{:.1} GB/s written by one thread", m / 1e9));
            checks.ok("transfer", format!("{:.1} GB/s copied by the device; {mapped}", t.copied / 1e9));
        }
        Err(e) => checks.error("transfer", Verdict::Fail, &e),
    }
    checks.all
}
