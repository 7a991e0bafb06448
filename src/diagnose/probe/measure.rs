//! Measures rates of the chosen device with Kiln's own kernels.

use super::{Checks, Verdict};
use crate::display::bytes;
use crate::engine::device::OpenDevice;
use crate::lower::caps::DeviceKind;
use crate::machine::files::Files;

/// Bytes read on a GPU: more than any cache holds. On the CPU fewer are read, to be quick.
const GPU_BYTES: u64 = 1 << 30;
const CPU_BYTES: u64 = 128 << 20;
/// The number of bytes that the check sends to the device.
const TRANSFER_BYTES: u64 = 64 << 20;

/// The most bytes that are read from a device.
pub(super) fn most_read(device: &OpenDevice) -> u64 {
    if device.caps().is_cpu() { CPU_BYTES } else { GPU_BYTES }
}

/// Measures memory, matrix units, dispatches, submits and transfers.
pub(super) fn check(checks: &mut Checks, files: &Files, device: &OpenDevice, progress: &dyn Fn(&str)) {
    checks.group("measured");
    progress("read bandwidth");
    if let Some((rate, size)) = checks.got("read", Verdict::Fail, device.read_rate(most_read(device))) {
        let integrated = device.caps().kind == DeviceKind::Integrated;
        report_read(checks, rate, size, super::gpu::peak_bandwidth(files).filter(|_| integrated));
    }
    progress("matrix rate");
    match device.matrix_rate() {
        Ok(Some(rate)) => checks.ok("matrix", format!("{:.2} TFLOP/s of f16 products", rate / 1e12)),
        Ok(None) => checks.skip("matrix", "no matrix units"),
        Err(e) => checks.fault("matrix", Verdict::Fail, &e),
    }
    progress("dispatches and submits");
    if let Some(c) = checks.got("dispatch", Verdict::Fail, device.costs()) {
        let [behind, beside, submit] = [c.dispatch, c.parallel_dispatch, c.submit].map(|s| 1e6 * s);
        checks.ok("dispatch", format!("{behind:.2} µs behind a barrier, {beside:.2} µs beside others"));
        checks.ok("submit", format!("{submit:.1} µs to submit and wait"));
    }
    progress("transfers");
    checks.show("transfer", Verdict::Fail, device.transfer(TRANSFER_BYTES), |t| {
        let mapped = t.mapped.map_or("not mapped".into(), |m| format!("{:.1} GB/s written by one thread", m / 1e9));
        format!("{:.1} GB/s copied by the device; {mapped}", t.copied / 1e9)
    });
}

/// The least share of its memory's peak that a healthy GPU reaches. While decoding it reaches 79 to 91 %.
const LEAST_SHARE: f64 = 0.6;

fn report_read(checks: &mut Checks, rate: f64, size: u64, peak: Option<f64>) {
    let evidence = format!("{:.1} GB/s, reading {}", rate / 1e9, bytes(size));
    let Some(peak) = peak else { return checks.ok("read", evidence) };
    let evidence = format!("{evidence}: {:.0} % of the {:.1} GB/s of its memory", 100.0 * rate / peak, peak / 1e9);
    let remedy = "end what else uses memory, and see system.memory-clock and gpu0.clocks for what holds it back";
    checks.judge("read", rate < LEAST_SHARE * peak, evidence, remedy);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_judged_by_its_memory_where_that_is_known() {
        let verdict = |rate, peak| {
            let mut checks = Checks::default();
            checks.group("measured");
            report_read(&mut checks, rate, 1 << 30, peak);
            (checks.all[0].verdict, checks.all[0].evidence.to_string())
        };
        assert_eq!(verdict(70e9, None), (Verdict::Ok, "70.0 GB/s, reading 1.1 GB".into()));
        let (good, text) = verdict(80.64e9, Some(89.6e9));
        assert_eq!(
            (good, text.as_str()),
            (Verdict::Ok, "80.6 GB/s, reading 1.1 GB: 90 % of the 89.6 GB/s of its memory")
        );
        assert_eq!(verdict(30e9, Some(89.6e9)).0, Verdict::Warn);
    }
}
