//! Machines that Kiln plans for by name: what their vendors publish of their memory and matrix units.

use crate::plan::{Heap, Memory};

/// A machine by name.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    /// Its heaps: the usual carve-out as VRAM, and half of what is left as GTT, the kernel's default.
    pub memory: Memory,
    /// Peak bytes per second of its memory.
    pub bandwidth: f64,
    /// Peak f16 multiplications and additions per second of its matrix units: 512 a clock and compute unit.
    pub operations: f64,
}

const GIB: u64 = 1 << 30;

/// Name, GPU, RAM and carve-out in GiB, GB/s, compute units, GHz.
type Row = (&'static str, &'static str, u64, u64, f64, u32, f64);
const MACHINES: [Row; 3] = [
    ("780m", "Radeon 780M (gfx1103), DDR5-5600", 96, 16, 89.6, 12, 2.8),
    ("890m", "Radeon 890M (gfx1150), DDR5-7500", 64, 16, 120.0, 16, 2.9),
    ("8060s", "Radeon 8060S (gfx1151), LPDDR5X-8000", 128, 64, 256.0, 40, 2.9),
];

/// The profile of `name`, if there is one.
pub fn profile(name: &str) -> Option<Profile> {
    let &(_, device, ram, carve_out, gb_s, units, ghz) = MACHINES.iter().find(|m| m.0 == name)?;
    let heap = |name: &str, gib: u64, device_local| Heap {
        name: name.into(),
        available: gib * GIB,
        device_local,
        host_visible: true,
    };
    let heaps = vec![heap("VRAM", carve_out, true), heap("GTT", (ram - carve_out) / 2, false)];
    Some(Profile {
        // radv allows 4 GiB less a page in one allocation.
        memory: Memory { device: device.into(), heaps, max_allocation: 4 * GIB - 4096, unified: true },
        bandwidth: gb_s * 1e9,
        operations: 512.0 * f64::from(units) * ghz * 1e9,
    })
}
