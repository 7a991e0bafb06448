//! What this machine is, what is wrong with it and what it can reach: every check has a verdict, the evidence for it, and a
//! remedy where there is one. What a driver or a file says is never trusted to be there or to make sense: what does not is
//! a verdict too.

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
use crate::error::Text;
use crate::gpu::Choice;
use crate::machine::files::Files;

/// How a check came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// As it should be.
    Ok,
    /// Kiln runs, but slower or with less than it could.
    Warn,
    /// It does not work.
    Fail,
    /// It does not concern this machine, or could not be looked at.
    Skip,
}

impl Verdict {
    /// The word of the output.
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
    /// What was checked: a group, a dot, and what in it. The GPUs, NPUs and Vulkan devices are counted: `gpu0.memory`.
    pub name: String,
    /// How it came out.
    pub verdict: Verdict,
    /// What was seen.
    pub evidence: Text,
    /// What can be done.
    pub remedy: Option<Text>,
}

/// Checks of one group, as they are made.
#[derive(Debug, Default)]
struct Checks {
    group: String,
    all: Vec<Check>,
}

/// Evidence may quote what a device calls itself.
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

    /// Skipped for want of something that the user can give.
    fn unseen(&mut self, name: &str, evidence: impl Into<Text>, remedy: impl Into<Text>) {
        self.push(name, Verdict::Skip, evidence, Some(remedy.into()));
    }

    fn warn(&mut self, name: &str, evidence: impl Into<Text>, remedy: impl Into<Text>) {
        self.push(name, Verdict::Warn, evidence, Some(remedy.into()));
    }

    fn fail(&mut self, name: &str, evidence: impl Into<Text>, remedy: impl Into<Text>) {
        self.push(name, Verdict::Fail, evidence, Some(remedy.into()));
    }

    /// A check that came out as a Kiln error.
    fn error(&mut self, name: &str, verdict: Verdict, error: &crate::Error) {
        let (cause, remedy) = error.parts();
        self.push(name, verdict, cause.clone(), Some(remedy.clone()));
    }
}

/// All checks, and what follows from them.
#[derive(Debug, Clone)]
pub struct Report {
    /// The checks, in order.
    pub checks: Vec<Check>,
    /// Which Vulkan device was asked for; `None` for none at all.
    pub choice: Option<Choice>,
    /// The Vulkan device that Kiln can run on.
    pub device: Option<String>,
    /// Every Vulkan device that is fit for Kiln, by the number that `vulkan:N` has it under.
    pub fit: Vec<(usize, String)>,
}

impl Report {
    /// How many checks came out as `verdict`.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.checks.iter().filter(|c| c.verdict == verdict).count()
    }

    /// The Vulkan device that was chosen by its number and cannot run Kiln, and the others, which are fit, where there are
    /// such: `vulkan:0 (name), …`.
    pub fn instead(&self) -> Option<(usize, String)> {
        let (Some(Choice::Index(chosen)), None) = (self.choice, &self.device) else { return None };
        let others = self.fit.iter().filter(|(i, _)| *i != chosen);
        let others: Vec<String> = others.map(|(i, name)| format!("vulkan:{i} ({name})")).collect();
        (!others.is_empty()).then(|| (chosen, others.join(", ")))
    }

    /// What follows, in one sentence.
    pub fn summary(&self) -> String {
        let runs = match (&self.device, self.instead()) {
            (Some(device), _) => format!("Kiln can run on {device}"),
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

/// What is to be looked at.
pub struct Request<'a> {
    /// The machine's files.
    pub files: &'a Files,
    /// Which Vulkan device; `None` for none at all.
    pub vulkan: Option<Choice>,
    /// Whether rates are measured, which takes some seconds.
    pub measure: bool,
    /// A model that is to run here.
    pub model: Option<Wanted<'a>>,
}

/// Makes every check. `progress` is told what is being looked at.
pub fn run(request: &Request<'_>, progress: &dyn Fn(&str)) -> Report {
    let files = request.files;
    let mut checks = Vec::new();
    progress("system");
    checks.extend(system::check(files));
    progress("Vulkan");
    let vulkan::Found { checks: vulkan, opened, device, fit, hardware } = vulkan::check(request.vulkan);
    progress("GPU");
    checks.extend(gpu::check(files, hardware));
    checks.extend(vulkan);
    if let (true, Some(gpu)) = (request.measure, &opened) {
        checks.extend(measure::check(files, gpu, progress));
    }
    progress("NPU");
    checks.extend(npu::check(files, &npu::ask_xrt()));
    progress("dma-buf");
    checks.extend(share::check(files, opened.as_ref()));
    if let Some(model) = &request.model {
        progress("model");
        checks.extend(model::check(model, opened.as_ref()));
    }
    // A device that hung while it was measured runs nothing.
    let hung = opened.is_some_and(|gpu| gpu.hung.get());
    let device = device.filter(|_| !hung).map(|name| plain(&name));
    Report { checks, choice: request.vulkan, device, fit }
}
