//! Describes this machine, finds faults and measures it. Each check has a verdict, its evidence and, if there is one, a
//! remedy. A missing driver or file, or a nonsensical answer, is a verdict too.

mod amdgpu;
mod gpu;
mod measure;
mod model;
#[cfg(feature = "npu")]
mod npu;
#[cfg(feature = "npu")]
mod reads;
#[cfg(all(feature = "npu", any(feature = "amdgpu", feature = "vulkan")))]
mod round_trip;
mod share;
mod system;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod vulkan;

pub use model::Wanted;

use crate::display::plain;
use crate::engine::Device;
use crate::engine::device::{Opened, takes_gpu};
use crate::error::{Setting, Text, text};
use crate::machine::files::{FileFault, Files};
use crate::machine::nodes::{self, DriverApi};
use crate::sys::Failure;
use serde_json::{Value, json};

/// The result of one check of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// The checked item is as it should be.
    Ok,
    /// Kiln runs, but slower or with less than possible.
    Warn,
    /// The checked item does not work.
    Fail,
    /// Does not concern this machine, or could not be checked.
    Skip,
}

impl Verdict {
    /// The verdict's name in the output.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Ok => "ok",
            Verdict::Warn => "warn",
            Verdict::Fail => "fail",
            Verdict::Skip => "skip",
        }
    }
}

/// One check of the machine, with its result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// The checked item, as `group.item`. GPUs, NPUs and Vulkan devices are numbered: `gpu0.memory`.
    pub name: String,
    /// The result of the check.
    pub verdict: Verdict,
    /// What the check has found.
    pub evidence: Text,
    /// The remedy, if one is needed.
    pub remedy: Option<Text>,
}

/// Collects checks. The names of those that are added begin with the group's.
#[derive(Debug, Default)]
struct Checks {
    group: String,
    all: Vec<Check>,
}

/// An error that ends a check: its evidence and remedy.
trait CheckFault {
    fn evidence_and_remedy(&self) -> (Text, Text);
}

impl CheckFault for crate::Error {
    fn evidence_and_remedy(&self) -> (Text, Text) {
        let (cause, remedy) = self.parts();
        (cause.clone(), remedy.clone())
    }
}

impl CheckFault for Failure {
    fn evidence_and_remedy(&self) -> (Text, Text) {
        (self.to_string().into(), self.remedy().into())
    }
}

impl CheckFault for FileFault {
    fn evidence_and_remedy(&self) -> (Text, Text) {
        let text = self.to_string();
        let remedy = if text.starts_with("/proc") { "mount /proc" } else { "mount /sys" };
        (text.into(), remedy.into())
    }
}

/// Puts a text on one line, because evidence may quote a device's own name.
fn one_line(text: impl Into<Text>) -> Text {
    text.into().map_words(plain)
}

impl Checks {
    /// Names the group that the next checks belong to.
    fn group(&mut self, name: impl Into<String>) -> &mut Checks {
        self.group = name.into();
        self
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

    /// Adds a check that was skipped because it needs something from the user first.
    fn unseen(&mut self, name: &str, evidence: impl Into<Text>, remedy: impl Into<Text>) {
        self.push(name, Verdict::Skip, evidence, Some(remedy.into()));
    }

    fn warn(&mut self, name: &str, evidence: impl Into<Text>, remedy: impl Into<Text>) {
        self.push(name, Verdict::Warn, evidence, Some(remedy.into()));
    }

    fn fail(&mut self, name: &str, evidence: impl Into<Text>, remedy: impl Into<Text>) {
        self.push(name, Verdict::Fail, evidence, Some(remedy.into()));
    }

    /// Adds a warning if something `is_bad`, else a check that is ok.
    fn judge(&mut self, name: &str, is_bad: bool, evidence: impl Into<Text>, remedy: impl Into<Text>) {
        match is_bad {
            true => self.warn(name, evidence, remedy),
            false => self.ok(name, evidence),
        }
    }

    /// Adds a check that ended with a fault.
    fn fault(&mut self, name: &str, verdict: Verdict, fault: &impl CheckFault) {
        let (evidence, remedy) = fault.evidence_and_remedy();
        self.push(name, verdict, evidence, Some(remedy));
    }

    /// The answer. A fault is added as a check with this verdict.
    fn got<T>(&mut self, name: &str, verdict: Verdict, answer: Result<T, impl CheckFault>) -> Option<T> {
        answer.inspect_err(|e| self.fault(name, verdict, e)).ok()
    }

    /// Adds a check that is ok with the answer as evidence, or its fault with this verdict.
    fn show<T>(
        &mut self,
        name: &str,
        verdict: Verdict,
        answer: Result<T, impl CheckFault>,
        words: impl FnOnce(T) -> String,
    ) {
        if let Some(answer) = self.got(name, verdict, answer) {
            self.ok(name, words(answer));
        }
    }
}

/// The results of all checks, with the device that was chosen.
#[derive(Debug, Clone)]
pub struct ProbeReport {
    /// The checks, in order.
    pub checks: Vec<Check>,
    /// The device that was requested.
    pub choice: Device,
    /// Name of the device that Kiln can run on.
    pub device: Option<String>,
    /// Every Vulkan device that Kiln can run on: its number in `vulkan:N` and its name.
    pub fit: Vec<(usize, String)>,
    /// True if `auto` was requested and takes the CPU instead of `device`.
    pub on_cpu: bool,
    /// GPUs that were left asleep, by their nodes' names. If there are any, Vulkan was not checked.
    pub asleep: Vec<String>,
}

impl ProbeReport {
    /// The checks and the summary as an object. `words` words a text for the front end.
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

    /// The number of checks with this verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.checks.iter().filter(|c| c.verdict == verdict).count()
    }

    /// A device that was chosen by its number or driver and cannot run Kiln, with a list of those that can:
    /// `vulkan:0 (name), …`. `None` where the choice can run, or no other device can.
    pub fn instead(&self) -> Option<(String, String)> {
        let (Device::Vulkan(Some(_)) | Device::Amdgpu(_), None) = (self.choice, &self.device) else { return None };
        let others = self.fit.iter().filter(|(i, _)| Device::Vulkan(Some(*i)) != self.choice);
        let others: Vec<String> = others.map(|(i, name)| format!("vulkan:{i} ({name})")).collect();
        (!others.is_empty()).then(|| (self.choice.to_string(), others.join(", ")))
    }

    /// If a GPU was left asleep: why it is not known whether Kiln can run here, and the remedy.
    pub fn unknown(&self) -> Option<(Text, Text)> {
        (!self.asleep.is_empty()).then(|| {
            let cause = format!("Vulkan was not asked, which would wake {} up", self.asleep.join(", "));
            (text!("whether Kiln can run here is not known: ", cause), wake_it())
        })
    }

    /// The failed check of the model's memory; `None` if the model fits or none was given.
    pub fn unfit(&self) -> Option<&Check> {
        self.checks.iter().find(|c| c.name == "model.memory" && c.verdict == Verdict::Fail)
    }

    /// The result of all checks, in one sentence.
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
                format!("Kiln cannot run on {chosen}, which was chosen; fit: {others}")
            }
            (None, None) => "no GPU can run Kiln: only the slow CPU executor is left".into(),
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

/// What a probe checks.
pub struct ProbeOptions<'a> {
    /// The files of the machine, such as those of sysfs.
    pub files: &'a Files,
    /// The device to check.
    pub device: Device,
    /// True if rates are measured, which takes some seconds.
    pub measure: bool,
    /// The driver interface for the NPU; `None` to run no program on it.
    pub npu: Option<DriverApi>,
    /// A model to check.
    pub model: Option<Wanted<'a>>,
    /// True if suspended GPUs are woken. Otherwise neither they nor Vulkan, which would wake them, are checked.
    pub wakes: bool,
}

impl<'a> ProbeOptions<'a> {
    /// A request for the default device, without a model. Measuring wakes a GPU.
    pub fn of_machine(files: &'a Files, measure: bool) -> ProbeOptions<'a> {
        let (device, npu) = (Device::Auto, Some(DriverApi::Kernel));
        ProbeOptions { files, device, measure, npu, model: None, wakes: measure }
    }
}

/// The remedy for a GPU that is suspended, and was not checked.
fn wake_it() -> Text {
    text!("ask again with ", Setting::Wake)
}

/// Makes every check. `progress` is called with the name of each part.
pub fn run(request: &ProbeOptions<'_>, progress: &dyn Fn(&str)) -> ProbeReport {
    let files = request.files;
    let (mut checks, mut of_vulkan) = (Checks::default(), Checks::default());
    progress("system");
    system::check(&mut checks, files);
    let asleep = if request.wakes { Vec::new() } else { nodes::sleeping_gpus(files) };
    progress("Vulkan");
    let vulkan::VulkanDevices { mut opened, mut device, fit, hardware } = match asleep.is_empty() {
        true => vulkan::check(&mut of_vulkan, files, request.device),
        false => vulkan::leave_unasked(&mut of_vulkan, &asleep),
    };
    if asleep.is_empty() && !request.device.is_host() {
        let by_amdgpu = amdgpu::check(&mut of_vulkan, files, request.device);
        let is_auto = request.device == Device::Auto && opened.as_ref().is_none_or(|gpu| gpu.caps().is_cpu());
        if matches!(request.device, Device::Amdgpu(_)) || is_auto && by_amdgpu.is_some() {
            device = by_amdgpu.as_ref().map(|gpu| gpu.caps().name.clone());
            opened = by_amdgpu;
        }
    }
    progress("GPU");
    gpu::check(&mut checks, files, hardware, &asleep);
    checks.all.append(&mut of_vulkan.all);
    if let (true, Some(gpu)) = (request.measure, &opened) {
        measure::check(&mut checks, files, gpu, progress);
    }
    #[cfg(feature = "npu")]
    {
        progress("NPU");
        let read = request.measure.then_some(reads::ReadProbe { gpu: opened.as_ref(), progress });
        npu::check(&mut checks, files, &npu::ask_xrt(), request.npu, read);
    }
    progress("dma-buf");
    share::check(&mut checks, files, opened.as_ref(), &asleep);
    let on_cpu = request.device == Device::Auto && opened.as_ref().is_some_and(|gpu| !takes_gpu(files, gpu.caps()));
    // Without Vulkan's answer the model would be checked against the CPU.
    let model = request.model.as_ref().filter(|_| asleep.is_empty() || request.device.is_host());
    // A device that hung during a measurement cannot run a model.
    let hung = opened.as_ref().is_some_and(|gpu| gpu.is_hung());
    if let Some(model) = model {
        progress("model");
        model::check(&mut checks, model, &Opened { device: opened.filter(|_| !on_cpu), fallback: None });
    }
    let device = device.filter(|_| !hung).map(|name| plain(&name));
    ProbeReport { checks: checks.all, choice: request.device, device, fit, on_cpu, asleep }
}
