//! Where control goes: branches with their delay slots, and hardware loops.

use crate::assemble::Placed;
use crate::error::Error;
use crate::isa::{Instruction, Isa, Operand};
use crate::register::Register;

/// A branch and the bundles behind it that issue before it takes effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Branch {
    /// Bundle that holds it.
    pub from: usize,
    /// Bundle that it goes to, where the instruction names one.
    pub target: Option<usize>,
    /// Control may also go on behind the delay slots.
    pub falls_through: bool,
}

/// The bundles from `start` to `end` are repeated `lc` times, at no cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HardwareLoop {
    pub start: usize,
    /// The last bundle, included.
    pub end: usize,
}

#[derive(Clone, Default, Debug)]
pub struct Flow {
    /// Bundles that may issue a cycle after each bundle.
    pub successors: Vec<Vec<usize>>,
    pub branches: Vec<Branch>,
    pub loops: Vec<HardwareLoop>,
}

/// What an instruction sets `register` to.
pub enum Setting {
    To(i64),
    Unknown,
}

/// Whether an instruction writes `register`, and what.
pub fn setting(isa: &Isa, instruction: &Instruction, register: &str) -> Option<Setting> {
    let register = Register::parse(register)?;
    let written = isa.op(instruction).timing.writes.iter().any(|effect| effect.target == "d");
    if !written || isa.operand(instruction, 'd') != Some(Operand::Register(register)) {
        return None;
    }
    let constant = isa.op(instruction).mnemonic.starts_with("mov");
    match isa.operand(instruction, 'i') {
        Some(Operand::Immediate(value)) if constant => Some(Setting::To(value)),
        _ => Some(Setting::Unknown),
    }
}

/// Follows control through a program.
pub fn follow(isa: &Isa, file: &str, bundles: &[Placed]) -> Result<Flow, Vec<Error>> {
    let mut follower = Follower { isa, file, bundles, flow: Flow::default(), errors: Vec::new() };
    follower.find_branches();
    follower.find_loops();
    follower.link();
    follower.check_loops();
    if follower.errors.is_empty() { Ok(follower.flow) } else { Err(follower.errors) }
}

struct Follower<'a> {
    isa: &'a Isa,
    file: &'a str,
    bundles: &'a [Placed],
    flow: Flow,
    errors: Vec<Error>,
}

impl Follower<'_> {
    fn fail(&mut self, bundle: usize, message: impl Into<String>) {
        self.errors.push(self.bundles[bundle].place.error(self.file, message));
    }

    /// The bundle at an address. Where control jumps to, bundles must lie at multiples of 16 bytes.
    fn bundle_at(&mut self, from: usize, address: i64, what: &str) -> Option<usize> {
        let found = self.bundles.iter().position(|placed| i64::from(placed.address) == address);
        match found {
            None => self.fail(from, format!("{what} {address:#x} is not the start of a bundle")),
            Some(_) if address % 16 != 0 => {
                self.fail(
                    from,
                    format!("{what} {address:#x} is not at a multiple of 16 bytes: put .align 16 before it"),
                );
            }
            _ => {}
        }
        found
    }

    fn find_branches(&mut self) {
        let delay = self.isa.machine.delay_slots as usize;
        for from in 0..self.bundles.len() {
            for instruction in &self.bundles[from].bundle.instructions.clone() {
                let op = self.isa.op(instruction);
                if !op.is_branch() {
                    continue;
                }
                let target = match self.isa.operand(instruction, 'i') {
                    Some(Operand::Immediate(address)) => self.bundle_at(from, address, "the branch's target"),
                    _ => None,
                };
                let falls_through = matches!(op.mnemonic.as_str(), "jz" | "jnz" | "jnzd" | "jl");
                if from + delay >= self.bundles.len() {
                    let missing = from + delay + 1 - self.bundles.len();
                    self.fail(from, format!("{delay} bundles issue behind a branch: {missing} are missing"));
                }
                if self.flow.branches.iter().any(|branch| from <= branch.from + delay) {
                    self.fail(from, "this branch is in the delay slots of another");
                }
                self.flow.branches.push(Branch { from, target, falls_through });
            }
        }
        let branches = self.flow.branches.clone();
        for branch in &branches {
            let inside =
                |target: usize| branches.iter().any(|other| (1..=delay).contains(&target.wrapping_sub(other.from)));
            if branch.target.is_some_and(inside) {
                self.fail(branch.from, "this branch goes into the delay slots of another");
            }
        }
    }

    fn find_loops(&mut self) {
        let mut start = None;
        for index in 0..self.bundles.len() {
            for instruction in &self.bundles[index].bundle.instructions.clone() {
                for register in ["ls", "le"] {
                    match setting(self.isa, instruction, register) {
                        None => {}
                        Some(Setting::Unknown) => {
                            self.fail(index, format!("the loop cannot be followed: set {register} to a label"));
                        }
                        Some(Setting::To(address)) if register == "ls" => {
                            start = self.bundle_at(index, address, "the loop's start");
                        }
                        Some(Setting::To(address)) => {
                            let Some(end) = self.bundle_at(index, address, "the loop's last bundle") else { continue };
                            match start {
                                Some(start) if start <= end => {
                                    let found = HardwareLoop { start, end };
                                    if !self.flow.loops.contains(&found) {
                                        self.flow.loops.push(found);
                                    }
                                }
                                Some(_) => self.fail(index, "the loop ends before it starts"),
                                None => self.fail(index, "set ls before le"),
                            }
                        }
                    }
                }
            }
        }
    }

    fn link(&mut self) {
        let delay = self.isa.machine.delay_slots as usize;
        for index in 0..self.bundles.len() {
            let mut next = Vec::new();
            let branch = index.checked_sub(delay).and_then(|from| self.flow.branches.iter().find(|b| b.from == from));
            let (falls_through, target) = branch.map_or((true, None), |branch| (branch.falls_through, branch.target));
            next.extend(target);
            let done = self.bundles[index].bundle.instructions.iter().any(|i| self.isa.op(i).mnemonic == "done");
            if falls_through && index + 1 < self.bundles.len() {
                next.push(index + 1);
            } else if falls_through && !done {
                self.fail(index, "the program runs on past its end: end it with a branch or with done");
            }
            next.extend(self.flow.loops.iter().filter(|found| found.end == index).map(|found| found.start));
            next.sort_unstable();
            next.dedup();
            self.flow.successors.push(next);
        }
    }

    fn check_loops(&mut self) {
        let delay = self.isa.machine.delay_slots as usize;
        for found in self.flow.loops.clone() {
            if self.isa.bytes(&self.bundles[found.end].bundle) != 16 {
                self.fail(found.end, "the last bundle of a hardware loop takes 16 bytes: name it with a label for le");
            }
            if self.flow.branches.iter().any(|b| (found.end.saturating_sub(delay)..=found.end).contains(&b.from)) {
                self.fail(found.end, "a hardware loop ends in the delay slots of a branch");
            }
            for other in self.flow.loops.clone() {
                if other != found && other.start <= found.end && found.start <= other.end {
                    self.fail(found.end, "hardware loops overlap: there is one set of loop registers");
                }
            }
            for index in 0..self.bundles.len() {
                let sets = |register| {
                    let instructions = &self.bundles[index].bundle.instructions;
                    instructions.iter().any(|instruction| setting(self.isa, instruction, register).is_some())
                };
                if !["ls", "le", "lc"].into_iter().any(sets) {
                    continue;
                }
                if (found.start..=found.end).contains(&index) {
                    self.fail(index, "this sets a loop register inside of the hardware loop");
                } else if let Some(bytes) = self.distance(index, found.end) {
                    let least = self.isa.machine.loop_setup_bytes;
                    if bytes < least {
                        let message = format!(
                            "the loop's last bundle is {bytes} bytes behind this, and must be {least}: {} missing",
                            least - bytes
                        );
                        self.fail(index, message);
                    }
                }
            }
        }
    }

    /// Fewest bytes of program between the starts of two bundles, along control.
    fn distance(&self, from: usize, to: usize) -> Option<u32> {
        let mut fewest: Vec<Option<u32>> = vec![None; self.bundles.len()];
        fewest[from] = Some(0);
        let mut open = vec![from];
        while let Some(index) = open.pop() {
            let Some(here) = fewest[index] else { continue };
            let beyond = here + self.isa.bytes(&self.bundles[index].bundle) as u32;
            for &next in &self.flow.successors[index] {
                if fewest[next].is_none_or(|known| beyond < known) {
                    fewest[next] = Some(beyond);
                    open.push(next);
                }
            }
        }
        fewest[to]
    }
}
