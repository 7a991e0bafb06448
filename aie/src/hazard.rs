//! Hazards: the core issues a bundle a cycle and waits for nothing. An instruction that reads a register too early gets
//! the old value; this assembler takes no program that does. Each pair of instructions within reach of each other's
//! pipeline is checked along every way that control can go, round loops and through delay slots too.
//!
//! Not checked: whether a load meets an earlier store of another width, and memory banks, which cost cycles but no results.

use std::collections::BTreeSet;

use crate::assemble::Placed;
use crate::error::Error;
use crate::flow::Flow;
use crate::isa::{Instruction, Isa, Operand};
use crate::register::{File, Register};
use crate::timing::{Effect, Port};

/// An access of a register: the smallest register, when, and the forwarding path that it can take.
struct Access {
    register: Register,
    stage: i64,
    forwarding: Option<String>,
}

/// What an instruction does to what it shares with others.
struct Effects {
    reads: Vec<Access>,
    writes: Vec<Access>,
    ports: Vec<(String, i64)>,
    memory: Option<i64>,
    lock: bool,
    mnemonic: String,
}

/// Checks a program.
///
/// # Errors
/// Each hazard, at the later instruction's bundle: with the register, and how many cycles are missing.
pub fn check(isa: &Isa, file: &str, bundles: &[Placed], flow: &Flow) -> Result<(), Vec<Error>> {
    let effects: Vec<Vec<Effects>> =
        bundles.iter().map(|placed| placed.bundle.instructions.iter().map(|i| effects(isa, i)).collect()).collect();
    let reach = reach(isa);
    let mut errors = BTreeSet::new();
    for (first, placed) in bundles.iter().enumerate() {
        let pair = |one, two, distance| Pair { isa, one, two, distance, line: placed.place.line };
        let mut report = |later: usize, messages: Vec<String>| {
            errors.extend(messages.into_iter().map(|message| bundles[later].place.error(file, message)));
        };
        for (index, one) in effects[first].iter().enumerate() {
            for two in &effects[first][index + 1..] {
                report(first, pair(one, two, 0).within_a_bundle());
            }
        }
        // Bundles that may issue `distance` cycles later.
        let mut front: BTreeSet<usize> = BTreeSet::from([first]);
        for distance in 1..=reach {
            front = front.iter().flat_map(|&index| flow.successors[index].iter().copied()).collect();
            for &later in &front {
                for one in &effects[first] {
                    for two in &effects[later] {
                        report(later, pair(one, two, distance).across_bundles());
                    }
                }
            }
        }
    }
    if errors.is_empty() { Ok(()) } else { Err(errors.into_iter().collect()) }
}

/// How many cycles later an instruction can still be in the way of another.
fn reach(isa: &Isa) -> i64 {
    let stages = isa.timings.iter().flat_map(|timing| {
        let accesses = timing.reads.iter().chain(&timing.writes).map(|effect| effect.stage);
        accesses.chain(timing.ports.iter().map(|(_, stage)| *stage)).chain(timing.memory)
    });
    i64::from(stages.max().unwrap_or(0).max(isa.machine.lock_resume))
}

fn effects(isa: &Isa, instruction: &Instruction) -> Effects {
    let op = isa.op(instruction);
    let register_of = |target: &str| match (target.len(), target.chars().next()) {
        // The counter among the registers of an operand that moves a pointer in two dimensions.
        _ if target.starts_with("dc(") => {
            let letter = target.chars().nth(3)?;
            match isa.operand(instruction, letter) {
                Some(Operand::Register(Register { file: File::D, index })) => Some(Register { file: File::Dc, index }),
                _ => None,
            }
        }
        (1, Some(letter)) => match isa.operand(instruction, letter) {
            Some(Operand::Register(register)) => Some(register),
            _ => None,
        },
        _ => Register::parse(target),
    };
    let accesses = |effects: &[Effect]| -> Vec<Access> {
        let known = effects.iter().filter_map(|effect| register_of(&effect.target).map(|register| (effect, register)));
        known
            .flat_map(|(effect, register)| {
                register.parts().into_iter().map(|register| Access {
                    register,
                    stage: i64::from(effect.stage),
                    forwarding: effect.forwarding.clone(),
                })
            })
            .collect()
    };
    let port = |port: &Port| match port {
        Port::Fixed(name) => Some(name.clone()),
        Port::LoadOf(letter) => register_of(&letter.to_string()).and_then(|register| write_port(register, "r.wa")),
        Port::MoveOf(letter) => register_of(&letter.to_string()).and_then(|register| write_port(register, "rs.wm")),
    };
    let ports = op.timing.ports.iter().filter_map(|(taken, stage)| port(taken).map(|name| (name, i64::from(*stage))));
    Effects {
        reads: accesses(&op.timing.reads),
        writes: accesses(&op.timing.writes),
        ports: ports.collect(),
        memory: op.timing.memory.map(i64::from),
        lock: op.is_lock(),
        mnemonic: op.mnemonic.clone(),
    }
}

/// The port through which a scalar register is written; scalars proper have one for each kind of writer.
fn write_port(register: Register, scalar: &str) -> Option<String> {
    let file = match register.file {
        File::R | File::S => scalar,
        File::P => "p.wm",
        File::M => "m.wm",
        File::Dn => "dn.wm",
        File::Dj => "dj.wm",
        File::Dc => "dc.wm",
        _ => return None,
    };
    Some(file.to_string())
}

/// Two instructions, `two` issuing `distance` cycles after `one`, which is on line `line`.
#[derive(Clone, Copy)]
struct Pair<'a> {
    isa: &'a Isa,
    one: &'a Effects,
    two: &'a Effects,
    distance: i64,
    line: usize,
}

impl Pair<'_> {
    fn across_bundles(self) -> Vec<String> {
        [self.early_reads(), self.late_writes(), self.early_writes(), self.ports(), self.locks()].concat()
    }

    fn within_a_bundle(self) -> Vec<String> {
        let turned = Pair { one: self.two, two: self.one, ..self };
        let written = self.two.writes.iter().find(|write| self.one.writes.iter().any(|w| w.register == write.register));
        let twice = written.map(|write| {
            format!("{} and {} write {} in one cycle", self.one.mnemonic, self.two.mnemonic, write.register)
        });
        let mut found =
            [self.early_writes(), turned.early_writes(), self.ports(), self.locks(), turned.locks()].concat();
        found.extend(twice);
        found
    }

    /// Reads before the value that is written before them is there.
    fn early_reads(self) -> Vec<String> {
        let meetings = meetings(&self.one.writes, &self.two.reads);
        let early = meetings.filter_map(|(write, read)| {
            let least = write.stage - read.stage + 1 - forwarded(write, read);
            (self.distance < least).then(|| {
                let missing = cycles(least - self.distance);
                format!(
                    "{} reads {} {missing} too early: {} on line {} has it ready {} later, {missing} missing",
                    self.two.mnemonic,
                    read.register,
                    self.one.mnemonic,
                    self.line,
                    cycles(least),
                )
            })
        });
        early.collect()
    }

    /// Writes that an earlier instruction's write comes after.
    fn late_writes(self) -> Vec<String> {
        let meetings = meetings(&self.one.writes, &self.two.writes);
        self.name_writes(meetings.map(|(write, other)| (other.register, write.stage - other.stage + 1)), "does")
    }

    /// Writes that come before an earlier instruction's read.
    fn early_writes(self) -> Vec<String> {
        let meetings = meetings(&self.one.reads, &self.two.writes);
        let least =
            |(read, write): (&Access, &Access)| (write.register, read.stage - write.stage + forwarded(write, read));
        self.name_writes(meetings.map(least), "reads it")
    }

    fn name_writes(self, writes: impl Iterator<Item = (Register, i64)>, what: &str) -> Vec<String> {
        let early = writes.filter(|(_, least)| self.distance < *least).map(|(register, least)| {
            format!(
                "{} writes {register} before {} on line {} {what}: {} missing",
                self.two.mnemonic,
                self.one.mnemonic,
                self.line,
                cycles(least - self.distance),
            )
        });
        early.collect()
    }

    fn ports(self) -> Vec<String> {
        let mut found = Vec::new();
        for (port, stage) in &self.one.ports {
            for (other, later) in &self.two.ports {
                if port == other && *stage == self.distance + later {
                    found.push(format!(
                        "{} takes the port {port} in the cycle in which {} on line {} does: move one of them by a cycle",
                        self.two.mnemonic, self.one.mnemonic, self.line
                    ));
                }
            }
        }
        found
    }

    /// Memory accesses too close to a lock to be ordered by it.
    fn locks(self) -> Vec<String> {
        let (stall, resume) = (i64::from(self.isa.machine.lock_stall), i64::from(self.isa.machine.lock_resume));
        let least = match (self.one.memory, self.two.memory) {
            (Some(stage), _) if self.two.lock => stage - stall + 1,
            (_, Some(stage)) if self.one.lock => resume - stage + 1,
            _ => return Vec::new(),
        };
        if self.distance >= least {
            return Vec::new();
        }
        vec![format!(
            "{} is too close behind {} on line {} for the lock to order them: {} missing",
            self.two.mnemonic,
            self.one.mnemonic,
            self.line,
            cycles(least - self.distance),
        )]
    }
}

/// Accesses of the same register.
fn meetings<'a>(one: &'a [Access], two: &'a [Access]) -> impl Iterator<Item = (&'a Access, &'a Access)> {
    one.iter().flat_map(move |a| two.iter().filter(move |b| a.register == b.register).map(move |b| (a, b)))
}

/// The cycle that a forwarding path saves.
fn forwarded(write: &Access, read: &Access) -> i64 {
    i64::from(write.forwarding.is_some() && write.forwarding == read.forwarding)
}

fn cycles(count: i64) -> String {
    if count == 1 { "1 cycle".to_string() } else { format!("{count} cycles") }
}
