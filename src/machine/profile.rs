//! Machines that Kiln can plan for by name, with their vendors' published figures for memory and matrix units.

use crate::machine::heaps::{ApuMemory, DeviceMemory, Heap, reserve};
use crate::{Error, Result};

/// The name of this machine among machines by name.
#[cfg(any(feature = "cli", feature = "serve"))]
pub(crate) const THIS: &str = "this";

/// A machine that Kiln knows by name, and can plan for without running on it.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    /// The machine's name, such as `780m`.
    pub name: &'static str,
    /// GiB of system memory, the carve-out included.
    pub ram: u64,
    /// The carve-out that a plan assumes, in MiB: memory that the firmware reserves for the GPU.
    pub carve_out: u64,
    /// The carve-outs that the firmware offers, in MiB, in no order.
    pub carve_outs: &'static [u64],
    /// Heaps: the carve-out as VRAM, and half of the rest as GTT, which is the kernel's default.
    pub memory: DeviceMemory,
    /// Peak memory bandwidth, bytes per second.
    pub bandwidth: f64,
    /// Peak f16 multiplications and additions per second of the matrix units: 512 per clock and compute unit.
    pub operations: f64,
}

const MIB: u64 = 1 << 20;

/// A machine in the table, as its maker describes it.
struct MachineProfile {
    name: &'static str,
    /// The GPU and the memory in words.
    device: &'static str,
    /// GiB of system memory, the carve-out included.
    ram: u64,
    /// The carve-outs that the firmware offers, in MiB. The first is the default.
    carve_outs: &'static [u64],
    /// Peak memory bandwidth, in GB/s.
    bandwidth: f64,
    compute_units: u32,
    ghz: f64,
}

const MACHINES: [MachineProfile; 3] = [
    MachineProfile {
        name: "780m",
        device: "Radeon 780M (gfx1103), DDR5-5600",
        ram: 96,
        carve_outs: &[16 << 10, 512, 1 << 10, 2 << 10, 4 << 10, 8 << 10],
        bandwidth: 89.6,
        compute_units: 12,
        ghz: 2.8,
    },
    MachineProfile {
        name: "890m",
        device: "Radeon 890M (gfx1150), LPDDR5X-7500",
        ram: 64,
        carve_outs: &[16 << 10, 512, 1 << 10, 2 << 10, 4 << 10, 8 << 10],
        bandwidth: 120.0,
        compute_units: 16,
        ghz: 2.9,
    },
    MachineProfile {
        name: "8060s",
        device: "Radeon 8060S (gfx1151), LPDDR5X-8000",
        ram: 128,
        carve_outs: &[64 << 10, 512, 1 << 10, 2 << 10, 4 << 10, 8 << 10, 16 << 10, 32 << 10, 48 << 10, 96 << 10],
        bandwidth: 256.0,
        compute_units: 40,
        ghz: 2.9,
    },
];

/// Memory that the operating system takes, in MiB.
const SYSTEM: u64 = 2 << 10;

/// Assumed share of the matrix units' rate in a long prompt's passes: the share measured for 512 tokens of Gemma 3 27B
/// on an H200, of the rate measured there (docs/figures.md). It is not measured on this table's machines.
pub const PREFILL_SHARE: f64 = 0.49;

/// The profile of a machine: `780m`; with a 4 GiB carve-out, `780m:4`; with half a GiB, `780m:0.5`. It has `ram` GiB,
/// or the table's RAM. A carve-out that is not given is the table's, or if that exceeds half of the RAM, the largest
/// that does not.
///
/// # Errors
/// Input: no such machine, a carve-out that its firmware does not offer, or one that leaves no memory for the operating
/// system. The message lists the choices.
pub fn profile(word: &str, ram: Option<u64>) -> Result<Profile> {
    let (name, carve_out) = word.split_once(':').map_or((word, None), |(name, gib)| (name, Some(gib)));
    let machine = MACHINES.iter().find(|m| m.name == name).ok_or_else(|| {
        let names: Vec<_> = MACHINES.iter().map(|m| m.name).collect();
        Error::input(
            format!("there is no profile of a machine `{name}`"),
            format!("use this, {}, or one of them with a carve-out, as in 780m:4", names.join(", ")),
        )
    })?;
    let ram = ram.unwrap_or(machine.ram);
    let carve_out = match carve_out {
        None => machine.usual_carve_out(ram),
        Some(gib) => find_carve_out(machine, gib)?,
    };
    if ram.saturating_mul(1024) <= carve_out + SYSTEM {
        let (carve_out, system) = (carve_out as f64 / 1024.0, SYSTEM / 1024);
        return Err(Error::input(
            format!(
                "{ram} GiB of RAM less a carve-out of {carve_out} GiB leave nothing beside the system's own {system}"
            ),
            format!("give more RAM or a smaller carve-out, as in {}:0.5", machine.name),
        ));
    }
    Ok(machine.with(ram, carve_out))
}

fn find_carve_out(machine: &MachineProfile, gib: &str) -> Result<u64> {
    let mib = gib.parse::<f64>().ok().map(|gib| gib * 1024.0);
    let found = machine.carve_outs.iter().copied().find(|&c| mib == Some(c as f64));
    found.ok_or_else(|| {
        let mut offered = machine.carve_outs.to_vec();
        offered.sort_unstable();
        let offered: Vec<_> = offered.iter().map(|&mib| (mib as f64 / 1024.0).to_string()).collect();
        Error::input(
            format!("the {} has no carve-out of `{gib}` GiB", machine.name),
            format!("its firmware offers {}", offered.join(", ")),
        )
    })
}

impl MachineProfile {
    /// The default carve-out, in MiB, of a machine with `ram` GiB.
    fn usual_carve_out(&self, ram: u64) -> u64 {
        let most = (ram.saturating_mul(1024) / 2).min(self.carve_outs[0]);
        let offered = self.carve_outs.iter().copied();
        offered.clone().filter(|&mib| mib <= most).max().or(offered.min()).unwrap_or(0)
    }

    /// The profile with `ram` GiB of memory, `carve_out` MiB of it VRAM, and only the operating system running.
    fn with(&self, ram: u64, carve_out: u64) -> Profile {
        let rest = ram * 1024 - carve_out;
        let (vram, gtt, free) = (carve_out * MIB, rest / 2 * MIB, (rest - SYSTEM) * MIB);
        let heap = |name: &str, bytes: u64, device_local| Heap {
            name: name.into(),
            available: bytes - reserve(bytes),
            reserved: reserve(bytes),
            device_local,
            host_visible: true,
        };
        let pool = ApuMemory {
            vram: vram - reserve(vram),
            gtt,
            gtt_used: 0,
            gtt_reserved: reserve(gtt),
            system: free - reserve(free),
        };
        Profile {
            name: self.name,
            ram,
            carve_out,
            carve_outs: self.carve_outs,
            memory: DeviceMemory {
                device: self.device.into(),
                heaps: vec![heap("VRAM", vram, true), heap("GTT", gtt, false)],
                // RADV allows 4 GiB less a page in one allocation.
                max_allocation: (4 << 30) - 4096,
                unified: true,
                pool: Some(pool),
            },
            bandwidth: self.bandwidth * 1e9,
            operations: 512.0 * f64::from(self.compute_units) * self.ghz * 1e9,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_machine_has_its_usual_carve_outs() {
        const GIB: u64 = 1 << 30;
        for m in &MACHINES {
            for &carve_out in m.carve_outs {
                let memory = profile(&format!("{}:{}", m.name, carve_out as f64 / 1024.0), None).unwrap().memory;
                let [vram, gtt] = &memory.heaps[..] else { panic!("two heaps") };
                assert_eq!(vram.available + vram.reserved, carve_out * MIB, "{}", m.name);
                assert_eq!(2 * (gtt.available + gtt.reserved) + carve_out * MIB, m.ram * GIB, "{}", m.name);
                let pool = memory.pool.unwrap();
                assert_eq!(pool.available(), vram.available + gtt.available, "{}", m.name);
            }
        }
        assert_eq!(profile("780m", None).unwrap(), profile("780m:16", Some(96)).unwrap());
        assert!(profile("780m:3", None).unwrap_err().to_string().contains("offers 0.5, 1, 2, 4, 8, 16"));
        for odd in ["c64", "c64:4", "780m:", "780m:x", "780m:-1", "780m:NaN", ""] {
            assert_eq!(profile(odd, None).unwrap_err().exit_code(), 2, "{odd}");
        }
    }

    /// With less RAM the default carve-out is smaller, and half of the rest is the GPU's as usual.
    #[test]
    fn a_machine_with_other_ram_has_what_that_leaves() {
        for (word, ram, carve_out) in [
            ("780m", 16, 8 << 10),
            ("780m", 24, 8 << 10),
            ("780m", 32, 16 << 10),
            ("780m", 128, 16 << 10),
            ("780m:0.5", 16, 512),
            ("780m:4", 32, 4 << 10),
            ("8060s", 64, 32 << 10),
            ("8060s:96", 128, 96 << 10),
        ] {
            let p = profile(word, Some(ram)).unwrap();
            assert_eq!((p.ram, p.carve_out), (ram, carve_out), "{word}");
            let [vram, gtt] = &p.memory.heaps[..] else { panic!("two heaps") };
            assert_eq!(vram.available + vram.reserved, carve_out * MIB, "{word} with {ram}");
            assert_eq!(gtt.available + gtt.reserved, (ram * 1024 - carve_out) / 2 * MIB, "{word} with {ram}");
        }
        for (word, ram) in [("780m:16", 16), ("780m:16", 18), ("780m", 2), ("780m", 1), ("780m", 0), ("8060s:96", 64)] {
            let e = profile(word, Some(ram)).unwrap_err();
            assert!(e.exit_code() == 2 && e.to_string().contains(":0.5"), "{word} with {ram}: {e}");
        }
        assert!(profile("780m:16", Some(19)).is_ok());
    }

    /// The table's memory types and bandwidths match the recordings in tests/machines.
    #[test]
    fn every_machines_memory_has_its_name() {
        const FIRST_LINES: [(&str, &str, f64); 3] = [
            (include_str!("../../tests/machines/8945hs"), "DDR5-", 16.0),
            (include_str!("../../tests/machines/890m"), "LPDDR5X-", 16.0),
            (include_str!("../../tests/machines/8060s"), "LPDDR5X-", 32.0),
        ];
        for (m, (text, kind, bytes)) in MACHINES.iter().zip(FIRST_LINES) {
            let memory = m.device.rsplit(", ").next().unwrap();
            assert!(text.split([' ', ',', '.']).any(|word| word == memory), "{}: {memory}", m.name);
            let rate: f64 = memory.strip_prefix(kind).unwrap().parse().unwrap();
            assert_eq!(rate * bytes / 1e3, m.bandwidth, "{}", m.name);
        }
    }

    /// The suggested parameters exceed the kernel's default: a reboot with the default would change nothing.
    #[test]
    fn the_kernels_parameters_give_more_than_the_default_and_enough() {
        for m in &MACHINES {
            for &carve_out in m.carve_outs {
                let pool = m.with(m.ram, carve_out).memory.pool.unwrap();
                let default = (m.ram * 1024 - carve_out) / 2;
                for more in [1, MIB, 512 * MIB, 1024 * MIB - 1, 1024 * MIB, 5000 * MIB] {
                    let needed = pool.available() + more;
                    let Some(parameters) = pool.parameters(needed) else { continue };
                    let gtt = parameters.strip_prefix("amdgpu.gttsize=").and_then(|p| p.split(' ').next());
                    let mib: u64 = gtt.unwrap().parse().unwrap();
                    assert!(mib > default, "{} with {carve_out} MiB: {parameters}", m.name);
                    assert!(ApuMemory { gtt: mib * MIB, ..pool }.available() >= needed, "{}: {parameters}", m.name);
                }
            }
        }
        assert!(profile("890m", None).unwrap().memory.pool.unwrap().parameters(39 << 30).is_some());
    }
}
