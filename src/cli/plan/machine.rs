//! The machine that is planned for: this one, as measured, or one by name.

use super::PlanArgs;
use crate::display::bytes;
use crate::engine::{self, Device};
use crate::machine::heaps::{Memory, host_memory};
use crate::machine::profile::{Profile, profile};
use crate::replay::measure::ceiling;
use crate::vulkan::Vulkan;
use crate::vulkan::memory::heaps as device_heaps;
use crate::{Error, Result};

/// Bytes read to measure this machine's memory: more than any cache holds, few enough to be quick.
const MEASURE_BYTES: u64 = 1 << 30;
/// Most GiB of RAM that can be asked for.
const MOST_RAM: u64 = 1024;
/// GiB of RAM that machines are sold with.
const SOLD: [u64; 7] = [16, 24, 32, 48, 64, 96, 128];

/// GiB of RAM as a person gives them. A module that is sold as one of 16 GB has 16 GiB, so that both words mean the same.
///
/// # Errors
/// What is wrong with the word.
pub(super) fn parse_ram(word: &str) -> std::result::Result<u64, String> {
    let lower = word.trim().to_ascii_lowercase();
    let number = ["gib", "gb", "g"].into_iter().find_map(|unit| lower.strip_suffix(unit)).unwrap_or(&lower);
    let gib = number.trim_end().parse().ok().filter(|gib| (1..=MOST_RAM).contains(gib));
    gib.ok_or_else(|| format!("it is no whole number of GiB from 1 to {MOST_RAM}, as in 32 or 32GB"))
}

/// The machine that is planned for.
pub(super) struct PlannedMachine {
    pub(super) memory: Memory,
    /// Bytes per second of its memory.
    pub(super) bandwidth: f64,
    /// Where that figure comes from.
    pub(super) source: String,
    /// Multiplications and additions per second of its matrix units, where known.
    pub(super) operations: Option<f64>,
    /// Whether uploads go through staging; `None` if there is no device.
    pub(super) staged: Option<bool>,
    /// What a machine by name is taken to have; `None` for this one.
    pub(super) named: Option<Named>,
}

/// A machine by name.
pub(super) struct Named {
    pub(super) profile: Profile,
    /// As it was given.
    word: String,
    /// Whether its RAM was given. It is assumed otherwise.
    pub(super) has_ram: bool,
}

impl Named {
    /// Whether its carve-out was given. It is assumed otherwise.
    pub(super) fn has_carve_out(&self) -> bool {
        self.word.contains(':')
    }

    /// The memory with each size of RAM that is sold, in GiB and rising. A size with no room for the carve-out that was given
    /// is left out.
    pub(super) fn by_ram(&self) -> impl Iterator<Item = (u64, Memory)> + '_ {
        SOLD.into_iter().filter_map(|gib| Some((gib, profile(&self.word, Some(gib)).ok()?.memory)))
    }

    /// The memory with each larger carve-out that the firmware offers, in MiB and rising.
    pub(super) fn larger_carve_outs(&self) -> impl Iterator<Item = (u64, Memory)> + '_ {
        let p = &self.profile;
        let mut larger: Vec<u64> = p.carve_outs.iter().copied().filter(|&mib| mib > p.carve_out).collect();
        larger.sort_unstable();
        let with = |mib: u64| profile(&format!("{}:{}", p.name, gib(mib)), Some(p.ram)).ok();
        larger.into_iter().filter_map(move |mib| Some((mib, with(mib)?.memory)))
    }
}

/// MiB in GiB, as a carve-out is given: 0.5, 4.
pub(super) fn gib(mib: u64) -> f64 {
    mib as f64 / 1024.0
}

impl PlannedMachine {
    pub(super) fn find(args: &PlanArgs) -> Result<PlannedMachine> {
        match (args.machine.as_str(), args.ram) {
            ("this", None) => PlannedMachine::this(args.model.device),
            ("this", Some(_)) => Err(Error::input(
                "--ram is the RAM of a machine by name, and the plan is for this one, whose memory is known",
                "leave it out, or name a --machine",
            )),
            (name, _) if args.model.device != Device::Auto => {
                let cause = format!("--device chooses among this machine's, and the plan is for {name}");
                Err(Error::input(cause, "leave out --device or --machine"))
            }
            (word, ram) => {
                let p = profile(word, ram)?;
                Ok(PlannedMachine {
                    memory: p.memory.clone(),
                    bandwidth: p.bandwidth,
                    source: "the memory's peak".into(),
                    operations: Some(p.operations),
                    staged: Some(true),
                    named: Some(Named { profile: p, word: word.to_owned(), has_ram: ram.is_some() }),
                })
            }
        }
    }

    fn this(device: Device) -> Result<PlannedMachine> {
        let Some(gpu) = engine::open(device)?.gpu else { return PlannedMachine::cpu() };
        let memory = device_heaps::describe(&gpu);
        let heap = (0..memory.heaps.len()).max_by_key(|&i| (memory.heaps[i].device_local, memory.heaps[i].available));
        let heap = heap.ok_or_else(|| Error::device("the device has no memory", "use --device cpu"))?;
        let size = MEASURE_BYTES.min(memory.heaps[heap].available / 4).min(memory.max_allocation);
        let bandwidth = ceiling::measure_alone(Vulkan::new(&gpu)?, size, heap)?;
        // Those of a driver for the CPU are made of its instructions, and bound nothing.
        let operations = if gpu.caps.is_cpu() { None } else { ceiling::measure_matrix_rate(Vulkan::new(&gpu)?, heap)? };
        Ok(PlannedMachine {
            memory,
            bandwidth,
            source: format!("measured, reading {}", bytes(size)),
            operations,
            staged: Some(device_heaps::needs_staging(&gpu)),
            named: None,
        })
    }

    fn cpu() -> Result<PlannedMachine> {
        let size = MEASURE_BYTES.min(crate::machine::available_memory() / 4);
        let bandwidth = crate::machine::measure_read(size as usize)?;
        let source = format!("measured, reading {}", bytes(size));
        Ok(PlannedMachine { memory: host_memory(), bandwidth, source, operations: None, staged: None, named: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ram_is_a_whole_number_of_gib_by_any_of_its_names() {
        for word in ["32", "32GiB", "32GB", "32G", "32 GiB", "32gb", " 32 "] {
            assert_eq!(parse_ram(word), Ok(32), "{word}");
        }
        for word in
            ["", "x", "GiB", "0", "-1", "1.5", "32MB", "32TB", "1025", "99999999999999999999", "0x20", "NaN", "32GBGB"]
        {
            assert!(parse_ram(word).is_err_and(|said| said.contains("32GB")), "{word}");
        }
    }
}
