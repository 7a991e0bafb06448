//! Describes this machine, finds what is wrong with it, and measures it. Each check has a verdict, its evidence and,
//! where there is one, a remedy. A driver or a file may be missing or may answer nonsense: that is a verdict too.

mod gpu;
mod measure;
mod model;
mod npu;
mod reads;
mod round_trip;
mod share;
mod steady;
mod system;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod vulkan;

pub use model::Wanted;

use crate::display::plain;
use crate::engine;
use crate::error::{Setting, Text, text};
use crate::machine::files::Files;
use crate::machine::nodes;
use crate::npu::DriverApi;
use crate::vulkan::DeviceChoice;
use serde_json::{Value, json};

/// How a check came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// As it should be.
    Ok,
    /// Kiln runs, but slower or with less than it could.
    Warn,
    /// It does not work.
    Fail,
    /// It does not concern this machine, or it could not be checked.
    Skip,
}

impl Verdict {
    /// Its word in the output.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Ok => "ok",
            Verdict::Warn => "warn",
            Verdict::Fail => "fail",
            Verdict::Skip => "skip",
        }
    }
}

/// One check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// What was checked, as `group.item`. GPUs, NPUs and Vulkan devices are numbered: `gpu0.memory`.
    pub name: String,
    /// How it came out.
    pub verdict: Verdict,
    /// What was found.
    pub evidence: Text,
    /// What can be done.
    pub remedy: Option<Text>,
}

/// Collects the checks of one group.
#[derive(Debug, Default)]
struct Checks {
    group: String,
    all: Vec<Check>,
}

/// Puts a text on one line: evidence may quote what a device calls itself.
fn one_line(text: impl Into<Text>) -> Text {
    text.into().map_words(plain)
}

impl Checks {
    fn of(group: impl Into<String>) -> Checks {
        Checks { group: group.into(), all: Vec::new() }
    }

    fn push(&mut self, name: &str, verdict: Verdict, evidence: impl Into<Text>, remedy: Option<Text>) {
        let name = if name.is_empty() { self.group.clone() } else { format!("{}.{name}", self.group) };
        self.all.push(Check { name, verdict, evidence: one_line(evidence), remedy: remedy.map(one_line) });
    }

    fn ok(&mut self, name: &str, evidence: impl Into<Text>) {
        self.push(name, Verdict::Ok, evidence, None);
    }

    fn skip(&mut self, name: &str, evidence: impl Into<Text>) {
        self.push(name, Verdict::Skip, evidence, None);
    }

    /// Adds a check that was skipped because the user has to provide something first.
    fn unseen(&mut self, name: &str, evidence: impl Into<Text>, remedy: impl Into<Text>) {
        self.push(name, Verdict::Skip, evidence, Some(remedy.into()));
    }

    fn warn(&mut self, name: &str, evidence: impl Into<Text>, remedy: impl Into<Text>) {
        self.push(name, Verdict::Warn, evidence, Some(remedy.into()));
    }

    fn fail(&mut self, name: &str, evidence: impl Into<Text>, remedy: impl Into<Text>) {
        self.push(name, Verdict::Fail, evidence, Some(remedy.into()));
    }

    /// Adds a check that ended with a Kiln error.
    fn error(&mut self, name: &str, verdict: Verdict, error: &crate::Error) {
        let (cause, remedy) = error.parts();
        self.push(name, verdict, cause.clone(), Some(remedy.clone()));
    }
}

/// All checks, and the conclusion from them.
#[derive(Debug, Clone)]
pub struct ProbeReport {
    /// The checks, in order.
    pub checks: Vec<Check>,
    /// The Vulkan device that was asked for; `None` where Vulkan is not wanted.
    pub choice: Option<DeviceChoice>,
    /// Name of the Vulkan device that Kiln can run on.
    pub device: Option<String>,
    /// Every Vulkan device that Kiln can run on: its number in `vulkan:N`, and its name.
    pub fit: Vec<(usize, String)>,
    /// Whether `auto`, if it was asked for, takes the CPU and not `device`.
    pub on_cpu: bool,
    /// GPUs that were left asleep, by the names of their nodes. Where there is one, Vulkan was not asked.
    pub asleep: Vec<String>,
}

impl ProbeReport {
    /// The checks and the summary as an object. `words` names settings as the reader's face of Kiln does.
    pub fn to_json(&self, words: &dyn Fn(&Text) -> String) -> Value {
        let check = |c: &Check| {
            let remedy = c.remedy.as_ref().map(words);
            json!({"name": c.name, "verdict": c.verdict.name(), "evidence": words(&c.evidence), "remedy": remedy})
        };
        json!({
            "checks": self.checks.iter().map(check).collect::<Vec<_>>(),
            "summary": {
                "runs": self.asleep.is_empty().then_some(self.device.is_some()),
                "asleep": self.asleep,
                "device": self.device,
                "on_cpu": self.on_cpu,
                "ok": self.count(Verdict::Ok),
                "warn": self.count(Verdict::Warn),
                "fail": self.count(Verdict::Fail),
                "skip": self.count(Verdict::Skip),
                "text": self.summary(),
            },
        })
    }

    /// Number of checks with this verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.checks.iter().filter(|c| c.verdict == verdict).count()
    }

    /// The number of a Vulkan device that was chosen by number and cannot run Kiln, with a list of those that can:
    /// `vulkan:0 (name), …`. `None` where the choice can run, or no other device can.
    pub fn instead(&self) -> Option<(usize, String)> {
        let (Some(DeviceChoice::Index(chosen)), None) = (self.choice, &self.device) else { return None };
        let others = self.fit.iter().filter(|(i, _)| *i != chosen);
        let others: Vec<String> = others.map(|(i, name)| format!("vulkan:{i} ({name})")).collect();
        (!others.is_empty()).then(|| (chosen, others.join(", ")))
    }

    /// Why it is not known whether Kiln can run here, where a GPU was left asleep, and what to do.
    pub fn unknown(&self) -> Option<(Text, Text)> {
        (!self.asleep.is_empty()).then(|| {
            let cause = format!("Vulkan was not asked, which would wake {} up", self.asleep.join(", "));
            (text!("whether Kiln can run here is not known: ", cause), wake_it())
        })
    }

    /// The check that the model does not pass; `None` if it fits, or none was asked about.
    pub fn unfit(&self) -> Option<&Check> {
        self.checks.iter().find(|c| c.name == "model.memory" && c.verdict == Verdict::Fail)
    }

    /// The conclusion, in one sentence.
    pub fn summary(&self) -> String {
        let unfit = if self.unfit().is_some() { ", but the model does not fit" } else { "" };
        let runs = match (&self.device, self.instead()) {
            _ if !self.asleep.is_empty() => {
                format!("not known whether Kiln can run: {} left asleep", self.asleep.join(", "))
            }
            (Some(device), _) if self.on_cpu => {
                format!("Kiln takes the CPU here by itself{unfit}; it can be told to run on {device}")
            }
            (Some(device), _) => format!("Kiln can run on {device}{unfit}"),
            (None, Some((chosen, others))) => {
                format!("Kiln cannot run on vulkan:{chosen}, which was chosen; fit: {others}")
            }
            (None, None) => "no Vulkan device can run Kiln: only the slow CPU executor is left".into(),
        };
        let names = |verdict| {
            let names: Vec<&str> =
                self.checks.iter().filter(|c| c.verdict == verdict).map(|c| c.name.as_str()).collect();
            match names.len() {
                0 => String::new(),
                n => format!(
                    "; {n} {}: {}",
                    if verdict == Verdict::Fail { "failed" } else { "to look at" },
                    names.join(", ")
                ),
            }
        };
        format!("{runs}; {} ok{}{}", self.count(Verdict::Ok), names(Verdict::Fail), names(Verdict::Warn))
    }
}

/// What to check.
pub struct ProbeOptions<'a> {
    /// The machine's files.
    pub files: &'a Files,
    /// The Vulkan device to check; `None` for no Vulkan at all.
    pub vulkan: Option<DeviceChoice>,
    /// Whether the device is the one that `auto` takes, which may be the CPU.
    pub auto: bool,
    /// Whether to measure rates, which takes some seconds.
    pub measure: bool,
    /// How to reach the NPU; `None` for running no program on it.
    pub npu: Option<DriverApi>,
    /// A model that should run here.
    pub model: Option<Wanted<'a>>,
    /// Whether GPUs that are asleep are woken up. Otherwise they are not asked, nor is Vulkan, which would wake them.
    pub wakes: bool,
}

impl<'a> ProbeOptions<'a> {
    /// A request for what is taken where no device is named, and for no model. To measure wakes a GPU up.
    pub fn of_machine(files: &'a Files, measure: bool) -> ProbeOptions<'a> {
        let (vulkan, npu) = (Some(DeviceChoice::Best), Some(DriverApi::Kernel));
        ProbeOptions { files, vulkan, auto: true, measure, npu, model: None, wakes: measure }
    }
}

/// What to do about a GPU that is asleep.
fn wake_it() -> Text {
    text!("ask again with ", Setting::Wake)
}

/// Makes every check. `progress` is called with the name of each part.
pub fn run(request: &ProbeOptions<'_>, progress: &dyn Fn(&str)) -> ProbeReport {
    let files = request.files;
    let mut checks = Vec::new();
    progress("system");
    checks.extend(system::check(files));
    let asleep = if request.wakes { Vec::new() } else { nodes::sleeping_gpus(files) };
    progress("Vulkan");
    let vulkan::VulkanChecks { checks: vulkan, opened, device, fit, hardware } = match asleep.is_empty() {
        true => vulkan::check(request.vulkan),
        false => vulkan::unasked(&asleep),
    };
    progress("GPU");
    checks.extend(gpu::check(files, hardware, &asleep));
    checks.extend(vulkan);
    if let (true, Some(gpu)) = (request.measure, &opened) {
        checks.extend(measure::check(files, gpu, progress));
    }
    progress("NPU");
    let read = request.measure.then_some(reads::ReadProbe { gpu: opened.as_ref(), progress });
    checks.extend(npu::check(files, &npu::ask_xrt(), request.npu, read));
    progress("dma-buf");
    checks.extend(share::check(files, opened.as_ref(), &asleep));
    let on_cpu = request.auto && opened.as_ref().is_some_and(|gpu| !engine::takes_vulkan(files, gpu));
    // Without a word of Vulkan's it would be told what the CPU has room for.
    let model = request.model.as_ref().filter(|_| asleep.is_empty() || request.vulkan.is_none());
    if let Some(model) = model {
        progress("model");
        checks.extend(model::check(model, opened.as_ref().filter(|_| !on_cpu)));
    }
    // A device that hung while it was measured cannot run a model.
    let hung = opened.is_some_and(|gpu| gpu.hung.get());
    let device = device.filter(|_| !hung).map(|name| plain(&name));
    ProbeReport { checks, choice: request.vulkan, device, fit, on_cpu, asleep }
}
