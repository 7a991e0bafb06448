//! The energy per token: the energy of the GPU and of the processor's package between two moments, if the machine
//! reports it.
//!
//! A processor counts its package's energy (RAPL, which most systems show only to root), and so do some GPUs; for other
//! GPUs the power is sampled and integrated. An APU's package contains its GPU, and the GPU's figure may contain the
//! processor, so the two are reported separately and never added. Both include all work on the machine.

use super::periodic::PeriodicWork;
use super::top::nvidia::NvmlLibrary;
use crate::machine::files::Files;
use crate::machine::nodes::{DeviceNode, Nvidia};
use serde::Serialize;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The interval at which a source that reports power is sampled.
const SAMPLE: Duration = Duration::from_millis(100);
/// The longest interval between readings of a counter: the smallest counter wraps after a quarter of an hour at full
/// power.
const COUNT: Duration = Duration::from_secs(60);
/// The shortest meaningful time, because drivers average power over about as long.
const LEAST: Duration = Duration::from_millis(200);

/// Energy in joules. `None`: the machine does not report it, or not to this user.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Energy {
    /// The energy of the GPU, in joules.
    pub gpu: Option<f64>,
    /// The energy of the processor's packages, in joules.
    pub package: Option<f64>,
}

impl Energy {
    /// The energies that are known, each with its name: `gpu` or `package`.
    pub fn parts(self) -> impl Iterator<Item = (&'static str, f64)> {
        let parts = [("gpu", self.gpu), ("package", self.package)];
        parts.into_iter().filter_map(|(name, joules)| Some((name, joules?)))
    }

    /// The energy per token. `None` if `tokens` is 0 or no part is known.
    pub fn per(self, tokens: usize) -> Option<Energy> {
        let each = |joules: Option<f64>| joules.map(|joules| joules / tokens as f64);
        let is_known = self.gpu.or(self.package).is_some();
        (tokens > 0 && is_known).then(|| Energy { gpu: each(self.gpu), package: each(self.package) })
    }

    /// A line for one token's energy: `0.41 J/token (GPU), 1.20 (package)`.
    pub fn per_token_words(self) -> String {
        match (self.gpu, self.package) {
            (Some(gpu), Some(package)) => format!("{gpu:.2} J/token (GPU), {package:.2} (package)"),
            (Some(gpu), None) => format!("{gpu:.2} J/token (GPU)"),
            (None, Some(package)) => format!("{package:.2} J/token (package)"),
            (None, None) => String::new(),
        }
    }
}

/// The energy used from the meter's start to a moment.
#[derive(Debug, Clone, Copy)]
pub struct EnergyMark {
    at: Instant,
    used: Energy,
}

impl EnergyMark {
    /// The energy used since `before`. `None` if less than a fifth of a second has passed, which is too short.
    pub fn since(self, before: EnergyMark) -> Option<Energy> {
        let between = |now: Option<f64>, then: Option<f64>| now.zip(then).map(|(now, then)| now - then);
        (self.at - before.at >= LEAST).then(|| Energy {
            gpu: between(self.used.gpu, before.used.gpu),
            package: between(self.used.package, before.used.package),
        })
    }
}

/// A thread that measures energy until this is dropped.
pub struct EnergyMeter {
    sources: Arc<Mutex<Sources>>,
    _sampling: PeriodicWork,
}

impl EnergyMeter {
    /// A meter of the packages, and with `with_gpu` of the GPU if the machine has exactly one. `None` if neither can be
    /// read.
    pub fn start(files: &Files, with_gpu: bool) -> Option<EnergyMeter> {
        let sources = Sources::find(files, with_gpu)?;
        let is_power = sources.gpu.as_ref().is_some_and(|gpu| !gpu.counts);
        let pause = if is_power { SAMPLE } else { COUNT };
        let sources = Arc::new(Mutex::new(sources));
        let sampled = sources.clone();
        let sample = move || {
            sampled.lock().unwrap_or_else(PoisonError::into_inner).mark();
            pause
        };
        // Without the thread the power would be known only at the ends.
        let sampling = PeriodicWork::start("energy", pause, sample).ok()?;
        Some(EnergyMeter { sources, _sampling: sampling })
    }

    /// The energy used since the meter was made.
    pub fn mark(&self) -> EnergyMark {
        self.sources.lock().unwrap_or_else(PoisonError::into_inner).mark()
    }
}

/// The counters and sensors from which energy is read.
struct Sources {
    files: Files,
    nvidia: NvmlLibrary,
    packages: Vec<Package>,
    gpu: Option<GpuMeter>,
    last: Instant,
    used: Energy,
}

/// A processor package with a counter of energy.
struct Package {
    /// The path of the package's counter, which counts µJ.
    path: String,
    /// The value at which the counter starts again from 0.
    range: u64,
    last: u64,
}

struct GpuMeter {
    source: EnergySource,
    /// True if the source counts energy, false if it reports power.
    counts: bool,
    /// The last reading: a counter in J, or a power in W.
    last: f64,
}

/// The interface by which a GPU reports energy or power.
enum EnergySource {
    /// A file of the kernel's, in µJ or µW.
    File(String),
    /// NVIDIA's library, for the GPU at this address.
    Nvidia(String),
}

impl Sources {
    fn find(files: &Files, with_gpu: bool) -> Option<Sources> {
        let nvidia = NvmlLibrary::default();
        let packages = packages(files);
        let gpu = if with_gpu { find_gpu(files, &nvidia) } else { None };
        let used = Energy { gpu: gpu.as_ref().map(|_| 0.0), package: (!packages.is_empty()).then_some(0.0) };
        let is_known = used.gpu.or(used.package).is_some();
        is_known.then(|| Sources { files: files.clone(), nvidia, packages, gpu, last: Instant::now(), used })
    }

    fn mark(&mut self) -> EnergyMark {
        let now = Instant::now();
        let seconds = (now - std::mem::replace(&mut self.last, now)).as_secs_f64();
        self.advance(seconds);
        EnergyMark { at: now, used: self.used }
    }

    /// Adds the energy of the last `seconds`. A source that fails once stays unknown from then on.
    fn advance(&mut self, seconds: f64) {
        for package in &mut self.packages {
            let now = self.files.value::<u64>(&package.path).ok();
            let used = now.map(|now| match now.checked_sub(package.last) {
                Some(used) => used,
                None => (package.range - package.last.min(package.range)).saturating_add(now),
            });
            package.last = now.unwrap_or(package.last);
            self.used.package = self.used.package.zip(used).map(|(sum, used)| sum + used as f64 / 1e6);
        }
        if let Some(gpu) = &mut self.gpu {
            let now = gpu.source.read(gpu.counts, &self.files, &self.nvidia);
            let used = now.map(|now| match gpu.counts {
                // After a reset the counter starts over, and the energy before it is lost.
                true => (now - gpu.last).max(0.0),
                false => (now + gpu.last) / 2.0 * seconds,
            });
            gpu.last = now.unwrap_or(gpu.last);
            self.used.gpu = self.used.gpu.zip(used).map(|(sum, used)| sum + used);
        }
    }
}

/// The packages with a readable counter; empty if any of them is not readable.
fn packages(files: &Files) -> Vec<Package> {
    const ZONES: &str = "/sys/class/powercap";
    let is_zone = |name: &String| name.strip_prefix("intel-rapl:").is_some_and(|n| n.parse::<u32>().is_ok());
    let names = files.list(ZONES).unwrap_or_default().into_iter().filter(is_zone);
    let is_package =
        |zone: &String| files.text(&format!("{ZONES}/{zone}/name")).is_ok_and(|name| name.starts_with("package"));
    let read = |zone: String| {
        let path = format!("{ZONES}/{zone}/energy_uj");
        let range = files.value(&format!("{ZONES}/{zone}/max_energy_range_uj")).ok()?;
        Some(Package { range, last: files.value(&path).ok()?, path })
    };
    names.filter(is_package).map(read).collect::<Option<Vec<_>>>().unwrap_or_default()
}

/// The energy source of the machine's GPU. With several GPUs there is none, because it is not known which one computes.
fn find_gpu(files: &Files, nvidia: &NvmlLibrary) -> Option<GpuMeter> {
    let nodes = DeviceNode::gpus(files);
    let closed: Vec<Nvidia> =
        Nvidia::all(files).into_iter().filter(|gpu| nodes.iter().all(|node| node.slot != gpu.slot)).collect();
    let (node, slot) = match (nodes.as_slice(), closed.as_slice()) {
        ([node], []) => (Some(node), &node.slot),
        ([], [gpu]) => (None, &gpu.slot),
        _ => return None,
    };
    let meters = node.into_iter().flat_map(|node| {
        let hwmon = files.list(&node.file("hwmon")).ok().and_then(|all| all.into_iter().next()).unwrap_or_default();
        let meters = [("energy1_input", true), ("power1_average", false), ("power1_input", false)];
        meters.map(|(name, counts)| (EnergySource::File(node.file(&format!("hwmon/{hwmon}/{name}"))), counts))
    });
    let of_library = [true, false].map(|counts| (EnergySource::Nvidia(slot.clone()), counts));
    let mut all = meters.chain(of_library);
    all.find_map(|(source, counts)| Some(GpuMeter { last: source.read(counts, files, nvidia)?, source, counts }))
}

impl EnergySource {
    /// The reading: J if the source `counts`, else W.
    fn read(&self, counts: bool, files: &Files, nvidia: &NvmlLibrary) -> Option<f64> {
        match self {
            EnergySource::File(path) => files.value::<u64>(path).ok().map(|micro| micro as f64 / 1e6),
            EnergySource::Nvidia(slot) if counts => nvidia.energy(files, slot),
            EnergySource::Nvidia(slot) => nvidia.power(files, slot),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// A machine made of files in a directory.
    struct Machine {
        directory: tempfile::TempDir,
    }

    const PACKAGE: &str = "sys/class/powercap/intel-rapl:0";
    const GPU: &str = "sys/class/drm/renderD128/device/hwmon/hwmon3";

    impl Machine {
        fn new() -> Machine {
            Machine { directory: tempfile::tempdir().unwrap() }
        }

        fn put(&self, path: &str, text: &str) {
            let path = self.directory.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        fn with_package(self) -> Machine {
            self.put(&format!("{PACKAGE}/name"), "package-0\n");
            self.put(&format!("{PACKAGE}/max_energy_range_uj"), "1000000\n");
            self.put(&format!("{PACKAGE}/energy_uj"), "900000\n");
            // Subzones of the package, the whole platform, and the same counter under another interface.
            for (zone, name) in
                [("intel-rapl:0:0", "core"), ("intel-rapl:1", "psys"), ("intel-rapl-mmio:0", "package-0")]
            {
                self.put(&format!("sys/class/powercap/{zone}/name"), name);
                self.put(&format!("sys/class/powercap/{zone}/energy_uj"), "1");
                self.put(&format!("sys/class/powercap/{zone}/max_energy_range_uj"), "2");
            }
            self
        }

        fn with_power(self, microwatts: &str) -> Machine {
            self.put(&format!("{GPU}/power1_average"), microwatts);
            self
        }

        fn files(&self) -> Files {
            Files::under(self.directory.path())
        }

        fn sources(&self) -> Option<Sources> {
            Sources::find(&self.files(), true)
        }
    }

    #[test]
    fn a_machine_that_says_nothing_has_no_meter() {
        let machine = Machine::new();
        assert!(machine.sources().is_none() && EnergyMeter::start(&machine.files(), true).is_none());
        // A counter that is unreadable or not a number.
        let machine = machine.with_package();
        for text in ["", "much\n", "-1"] {
            machine.put(&format!("{PACKAGE}/energy_uj"), text);
            assert!(machine.sources().is_none(), "{text:?}");
        }
        assert_eq!(Energy::default().per(5), None);
        assert_eq!(Energy::default().parts().count(), 0);
    }

    #[test]
    fn packages_count_and_begin_anew_and_the_gpus_power_is_summed_up() {
        let machine = Machine::new().with_package().with_power("10000000\n");
        let mut sources = machine.sources().unwrap();
        assert_eq!(sources.used, Energy { gpu: Some(0.0), package: Some(0.0) });
        machine.put(&format!("{PACKAGE}/energy_uj"), "950000");
        machine.put(&format!("{GPU}/power1_average"), "30000000");
        sources.advance(2.0);
        let close = |used: Energy, gpu: f64, package: f64| {
            assert!(
                (used.gpu.unwrap() - gpu).abs() < 1e-9 && (used.package.unwrap() - package).abs() < 1e-9,
                "{used:?}"
            );
        };
        close(sources.used, 40.0, 0.05);
        machine.put(&format!("{PACKAGE}/energy_uj"), "150000");
        sources.advance(1.0);
        close(sources.used, 70.0, 0.25);
        let each = sources.used.per(10).unwrap();
        assert_eq!(each.per_token_words(), "7.00 J/token (GPU), 0.03 (package)");
        // After a source fails it stays unknown, and the other one continues.
        fs::remove_file(machine.directory.path().join(GPU).join("power1_average")).unwrap();
        machine.put(&format!("{PACKAGE}/energy_uj"), "250000");
        sources.advance(1.0);
        assert_eq!(sources.used.gpu, None);
        assert!((sources.used.package.unwrap() - 0.35).abs() < 1e-9);
        machine.put(&format!("{GPU}/power1_average"), "30000000");
        sources.advance(1.0);
        assert_eq!(sources.used.gpu, None, "what was used meanwhile is not known");
    }

    #[test]
    fn of_two_gpus_none_is_taken_and_a_counter_is_taken_before_a_power() {
        let machine = Machine::new().with_power("10000000");
        machine.put(&format!("{GPU}/energy1_input"), "5000000");
        let mut sources = machine.sources().unwrap();
        machine.put(&format!("{GPU}/energy1_input"), "7500000");
        sources.advance(100.0);
        assert_eq!(sources.used, Energy { gpu: Some(2.5), package: None });
        assert!(Sources::find(&machine.files(), false).is_none(), "a GPU that does not compute");
        machine.put("sys/class/drm/renderD129/device/hwmon/hwmon4/power1_average", "1");
        assert!(machine.sources().is_none());
    }

    #[test]
    fn a_moment_says_nothing() {
        let mark = |at: Instant, joules: f64| EnergyMark { at, used: Energy { gpu: None, package: Some(joules) } };
        let start = Instant::now();
        let (first, soon, later) = (mark(start, 1.0), mark(start + LEAST / 2, 2.0), mark(start + LEAST, 3.5));
        assert_eq!(soon.since(first), None);
        assert_eq!(later.since(first), Some(Energy { gpu: None, package: Some(2.5) }));
    }
}
