//! Describes this machine, finds what is wrong with it, and measures it. Each check has a verdict, its evidence and,
//! where there is one, a remedy. A driver or a file may be missing or may answer nonsense: that is a verdict too.

mod gpu;
mod measure;
mod model;
mod npu;
mod share;
mod system;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod vulkan;

pub use model::Wanted;

use crate::display::plain;
use crate::engine;
use crate::error::Text;
use crate::machine::files::Files;
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
                "runs": self.device.is_some(),
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

    /// The check that the model does not pass; `None` if it fits, or none was asked about.
    pub fn unfit(&self) -> Option<&Check> {
        self.checks.iter().find(|c| c.name == "model.memory" && c.verdict == Verdict::Fail)
    }

    /// The conclusion, in one sentence.
    pub fn summary(&self) -> String {
        let unfit = if self.unfit().is_some() { ", but the model does not fit" } else { "" };
        let runs = match (&self.device, self.instead()) {
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
}

impl<'a> ProbeOptions<'a> {
    /// A request for what is taken where no device is named, and for no model.
    pub fn of_machine(files: &'a Files, measure: bool) -> ProbeOptions<'a> {
        let (vulkan, npu) = (Some(DeviceChoice::Best), Some(DriverApi::Kernel));
        ProbeOptions { files, vulkan, auto: true, measure, npu, model: None }
    }
}

/// Makes every check. `progress` is called with the name of each part.
pub fn run(request: &ProbeOptions<'_>, progress: &dyn Fn(&str)) -> ProbeReport {
    let files = request.files;
    let mut checks = Vec::new();
    progress("system");
    checks.extend(system::check(files));
    progress("Vulkan");
    let vulkan::VulkanChecks { checks: vulkan, opened, device, fit, hardware } = vulkan::check(request.vulkan);
    progress("GPU");
    checks.extend(gpu::check(files, hardware));
    checks.extend(vulkan);
    if let (true, Some(gpu)) = (request.measure, &opened) {
        checks.extend(measure::check(files, gpu, progress));
    }
    progress("NPU");
    checks.extend(npu::check(files, &npu::ask_xrt(), request.npu));
    progress("dma-buf");
    checks.extend(share::check(files, opened.as_ref()));
    let on_cpu = request.auto && opened.as_ref().is_some_and(|gpu| !engine::takes_vulkan(files, gpu));
    if let Some(model) = &request.model {
        progress("model");
        checks.extend(model::check(model, opened.as_ref().filter(|_| !on_cpu)));
    }
    // A device that hung while it was measured cannot run a model.
    let hung = opened.is_some_and(|gpu| gpu.hung.get());
    let device = device.filter(|_| !hung).map(|name| plain(&name));
    ProbeReport { checks, choice: request.vulkan, device, fit, on_cpu }
}
