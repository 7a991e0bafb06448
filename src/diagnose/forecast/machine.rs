//! The machine of a forecast: this one, measured, or one by name.

use super::ForecastOptions;
use crate::display::bytes;
use crate::engine::{self, Device, NpuUse};
use crate::error::{Setting, text};
use crate::lower::array;
use crate::machine::heaps::DeviceMemory;
use crate::machine::profile::{Profile, THIS, profile};
use crate::{Error, Result};

/// Bytes read to measure this machine's memory: more than any cache holds, but few enough to be quick.
const MEASURE_BYTES: u64 = 1 << 30;
/// The most GiB of RAM that can be given.
pub(crate) const MOST_RAM: u64 = 1024;
/// The sizes of RAM that machines are sold with, in GiB.
const SOLD: [u64; 7] = [16, 24, 32, 48, 64, 96, 128];

/// The machine that a forecast is made for.
pub(crate) struct PlannedMachine {
    pub(crate) memory: DeviceMemory,
    /// The bandwidth of the machine's memory, in bytes per second.
    pub(crate) bandwidth: f64,
    /// The source of the figure for bandwidth, in words.
    pub(crate) source: String,
    /// Multiplications and additions per second of the matrix units, where known.
    pub(crate) operations: Option<f64>,
    /// Whether uploads go through a staging buffer; `None` if there is no device.
    pub(crate) staged: Option<bool>,
    /// The assumed properties of a machine by name; `None` for this machine.
    pub(crate) named: Option<Named>,
}

/// A machine that the user named, with or without sizes.
pub(crate) struct Named {
    pub(crate) profile: Profile,
    /// The name as the user gave it.
    word: String,
    /// True if the user gave the size of the RAM, false if it is assumed.
    pub(crate) has_ram: bool,
}

impl Named {
    /// True if the user gave the size of the carve-out, false if it is assumed.
    pub(crate) fn has_carve_out(&self) -> bool {
        self.word.contains(':')
    }

    /// The memory for each size of RAM on sale, in GiB, rising. Sizes that are too small for the given carve-out are
    /// left out.
    pub(crate) fn by_ram(&self) -> impl Iterator<Item = (u64, DeviceMemory)> + '_ {
        SOLD.into_iter().filter_map(|gib| Some((gib, profile(&self.word, Some(gib)).ok()?.memory)))
    }

    /// The memory for each larger carve-out that the firmware offers, in MiB, rising.
    pub(crate) fn larger_carve_outs(&self) -> impl Iterator<Item = (u64, DeviceMemory)> + '_ {
        let p = &self.profile;
        let mut larger: Vec<u64> = p.carve_outs.iter().copied().filter(|&mib| mib > p.carve_out).collect();
        larger.sort_unstable();
        let with = |mib: u64| profile(&format!("{}:{}", p.name, gib(mib)), Some(p.ram)).ok();
        larger.into_iter().filter_map(move |mib| Some((mib, with(mib)?.memory)))
    }
}

/// MiB as GiB, in the form of a carve-out: 0.5, 4.
pub(crate) fn gib(mib: u64) -> f64 {
    mib as f64 / 1024.0
}

impl PlannedMachine {
    pub(crate) fn find(asked: &ForecastOptions) -> Result<PlannedMachine> {
        match (asked.machine.as_str(), asked.ram) {
            (THIS, None) => PlannedMachine::this(asked.options.device),
            (THIS, Some(_)) => Err(Error::input(
                text!(
                    Setting::Ram.the(),
                    " is that of a machine by name, and the plan is for this one, whose memory is known"
                ),
                text!("leave it out, or name a ", Setting::Machine),
            )),
            (name, _) if asked.options.device != Device::Auto => {
                let cause =
                    text!(Setting::Device.the(), format!(" is one of this machine's, and the plan is for {name}"));
                Err(Error::input(cause, text!("leave out ", Setting::Device.the(), " or ", Setting::Machine.the())))
            }
            (_, Some(ram)) if !(1..=MOST_RAM).contains(&ram) => Err(Error::input(
                format!("{ram} GiB of RAM are not in 1..={MOST_RAM}"),
                text!("choose another ", Setting::Ram),
            )),
            (word, ram) => {
                let p = profile(word, ram)?;
                if matches!(asked.options.npu, NpuUse::Require(_)) && !array::is_of(p.name) {
                    let cause = format!("the NPU of {} is none that Kiln has a program for (XDNA 1)", p.name);
                    return Err(Error::device(cause, text!("use ", Setting::NoNpu)));
                }
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
        let opened = engine::open(device)?;
        let (memory, staged) = (opened.memory()?, opened.staged());
        let (bandwidth, size, operations) = match &opened.device {
            Some(device) => {
                let (bandwidth, size) = device.read_rate(MEASURE_BYTES)?;
                // On the CPU these units are made of ordinary instructions, so their rate is no bound.
                (bandwidth, size, if device.caps().is_cpu() { None } else { device.matrix_rate()? })
            }
            None => {
                let size = MEASURE_BYTES.min(crate::machine::available_memory() / 4);
                (crate::machine::measure_read(size as usize, crate::cpu::lanes::read)?, size, None)
            }
        };
        let source = format!("measured, reading {}", bytes(size));
        Ok(PlannedMachine { memory, bandwidth, source, operations, staged, named: None })
    }
}
