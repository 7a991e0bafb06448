//! A core: fetch, issue, and the pipeline with nothing in it that waits.
//!
//! Cycles count from an instruction's issue, stage 1. What it writes in stage s is there for reads in later cycles only.
//! What is under way lies in a wheel of cycles, each with what lands and what is to be done in it.

mod decode;
mod execute;
mod latencies;
mod registers;
mod vector;

use std::collections::VecDeque;
use std::sync::Arc;

pub use self::latencies::Latencies;

use self::decode::{Bundle, Value, fixed};
use self::registers::{Parts, Registers, Scalar, Span};
use self::vector::Kind;
use super::Fault;
use super::lock::Locks;
use super::memory::{Memory, Part};

/// What an instruction does behind its issue.
enum Action {
    LoadScalar {
        address: u64,
        to: Scalar,
    },
    StoreScalar {
        address: u64,
        value: u32,
    },
    /// 32 bytes, as they are or converted.
    Load {
        address: u64,
        to: Span,
        kind: Option<(Kind, Value)>,
    },
    Store {
        address: u64,
        part: Part,
    },
    /// What a load that shifts up makes of its bytes.
    Convert {
        part: Option<Part>,
        to: Span,
        kind: Kind,
        shift: Value,
    },
    Unpack {
        kind: Kind,
        to: Span,
        from: Span,
    },
    /// `to` = sum of products and accumulator.
    Product {
        to: Span,
        accumulator: Option<Span>,
        products: Option<[f64; 16]>,
    },
    /// The same of integers: `to` = terms and accumulator.
    Integers {
        to: Span,
        accumulator: Option<Span>,
        terms: Option<Parts>,
    },
    Sum {
        to: Span,
        left: Span,
        right: Span,
        negative: bool,
        integers: bool,
    },
    Lock {
        lock: u32,
        value: i32,
        acquire: bool,
    },
}

impl Action {
    fn stores(&self) -> bool {
        matches!(self, Action::Store { .. } | Action::StoreScalar { .. })
    }
}

/// A write of a register.
enum Landing {
    Scalar(Scalar, Option<u32>),
    Part(u8, Option<Part>),
}

/// What happens in a cycle to come.
#[derive(Default)]
struct Due {
    landings: Vec<Landing>,
    actions: Vec<Action>,
}

/// Cycles that an instruction can be under way, and more.
const WHEEL: usize = 16;
/// Bytes of program memory.
const PROGRAM: usize = 16 << 10;

pub struct Core {
    latencies: Latencies,
    enabled: bool,
    reset: bool,
    program: Memory,
    /// Bundles by half of their address, as far as they have issued.
    decoded: Vec<Option<Arc<Bundle>>>,
    /// The next bundle, and the core's own cycle: it stands while the core waits for a lock.
    pc: u32,
    cycle: u64,
    registers: Registers,
    wheel: [Due; WHEEL],
    /// What the last cycle's vector instructions will write, which others of their kind see a cycle earlier.
    forwarded: Vec<(u8, Option<Part>)>,
    forwarding: Vec<(u8, Option<Part>)>,
    /// Target of a branch, and the cycle of the first bundle there.
    branch: Option<(u64, u32)>,
    /// Cycles in which lock instructions issued.
    locks: VecDeque<u64>,
    waiting: Option<u32>,
}

impl Core {
    pub fn new(latencies: Latencies) -> Core {
        Core {
            latencies,
            enabled: false,
            reset: false,
            program: Memory::new(PROGRAM),
            decoded: Vec::new(),
            pc: 0,
            cycle: 0,
            registers: Registers::new(),
            wheel: std::array::from_fn(|_| Due::default()),
            forwarded: Vec::new(),
            forwarding: Vec::new(),
            branch: None,
            locks: VecDeque::new(),
            waiting: None,
        }
    }

    pub fn write_program(&mut self, offset: u32, value: u32) -> Result<(), Fault> {
        self.decoded.clear();
        self.program.write_word(u64::from(offset), value)
    }

    /// Core_Control: bit 0 enables, bit 1 resets.
    pub fn control(&mut self, mask: u32, value: u32) -> Result<(), Fault> {
        if mask & 1 != 0 {
            self.enabled = value & 1 != 0;
        }
        if mask & 2 != 0 {
            self.reset = value & 2 != 0;
            (self.pc, self.branch) = (0, None);
        }
        Ok(())
    }

    /// The lock that the core waits for, as it numbers it.
    pub fn waits_for(&self) -> Option<u32> {
        self.waiting
    }

    /// Cycles in which it did not wait.
    pub fn cycles(&self) -> u64 {
        self.cycle
    }

    /// Whether the core does nothing at all.
    pub fn is_off(&self) -> bool {
        !self.enabled || self.reset
    }

    /// One cycle; whether the core went on.
    pub fn step(&mut self, memory: &mut Memory, locks: &mut Locks) -> Result<bool, Fault> {
        if self.is_off() {
            return Ok(false);
        }
        let pc = self.pc;
        self.cycle_on(memory, locks).map_err(|fault| format!("core at {pc:#06x}: {fault}"))
    }

    fn cycle_on(&mut self, memory: &mut Memory, locks: &mut Locks) -> Result<bool, Fault> {
        let now = self.cycle as usize % WHEEL;
        if !self.locks.is_empty() && !self.pass_locks(now, locks)? {
            return Ok(false);
        }
        let Due { landings, actions } = &mut self.wheel[now];
        for landing in landings.drain(..) {
            match landing {
                Landing::Scalar(place, value) => self.registers.write_scalar(place, value),
                Landing::Part(place, part) => self.registers.write_part(place, part.as_ref()),
            }
        }
        if !actions.is_empty() {
            let mut due = std::mem::take(actions);
            self.act(&mut due, memory)?;
            due.clear();
            self.wheel[now].actions = due;
        }
        self.issue()?;
        std::mem::swap(&mut self.forwarded, &mut self.forwarding);
        self.forwarding.clear();
        self.cycle += 1;
        Ok(true)
    }

    /// Does the lock instructions that are in their stage; whether they let the core go on.
    fn pass_locks(&mut self, now: usize, locks: &mut Locks) -> Result<bool, Fault> {
        self.waiting = None;
        let actions = &mut self.wheel[now].actions;
        let Some(index) = actions.iter().position(|action| matches!(action, Action::Lock { .. })) else {
            return Ok(true);
        };
        let Action::Lock { lock, value, acquire } = actions[index] else { return Ok(true) };
        let own = lock.checked_sub(48).filter(|own| *own < 16);
        let own = own.ok_or_else(|| format!("a neighbour's lock, {lock}, is not modelled"))?;
        if !acquire {
            locks.release(own, value)?;
        } else if !locks.acquire(own, value)? {
            self.waiting = Some(lock);
            return Ok(false);
        }
        actions.remove(index);
        Ok(true)
    }

    /// Does what is due in this cycle. What a store writes, loads see from the next cycle on.
    fn act(&mut self, due: &mut [Action], memory: &mut Memory) -> Result<(), Fault> {
        for action in due.iter().filter(|action| !action.stores()) {
            self.do_action(action, memory)?;
        }
        for action in due.iter().filter(|action| action.stores()) {
            self.do_action(action, memory)?;
        }
        Ok(())
    }

    fn do_action(&mut self, action: &Action, memory: &mut Memory) -> Result<(), Fault> {
        let Latencies { memory: access, load, widening_load, shifting_read, shifting_load, .. } = self.latencies;
        match *action {
            Action::LoadScalar { address, to } => {
                self.check_order()?;
                let value = memory.word(address)?;
                self.write_scalar(to, value, load + 1 - access);
            }
            Action::StoreScalar { address, value } => {
                self.check_order()?;
                memory.write_word(address, value)?;
            }
            Action::Load { address, to, kind } => {
                self.check_order()?;
                let part = memory.part(address)?;
                match kind {
                    None => self.write_parts(to, part.map(widened).as_ref(), load + 1 - access),
                    Some((kind @ Kind::Ups(..), shift)) => {
                        let convert = Action::Convert { part, to, kind, shift };
                        self.schedule(shifting_read + 1 - access, convert);
                    }
                    Some((kind, _)) => {
                        let convert = |part| vector::convert(kind, &widened(part), 1, 0, self.modes(kind));
                        let made = part.map(convert).transpose()?;
                        self.write_parts(to, made.as_ref(), widening_load + 1 - access);
                    }
                }
            }
            Action::Store { address, part } => {
                self.check_order()?;
                memory.write_part(address, &part)?;
            }
            Action::Convert { part, to, kind, shift } => {
                let operands = part.zip(self.value(shift));
                let convert = |(part, shift)| vector::convert(kind, &widened(part), 1, shift, self.modes(kind));
                let made = operands.map(convert).transpose()?;
                self.write_parts(to, made.as_ref(), shifting_load + 1 - shifting_read);
            }
            Action::Unpack { kind, to, from } => {
                let convert = |parts| vector::convert(kind, &parts, from.count, 0, self.modes(kind));
                let made = self.registers.parts(from).map(convert).transpose()?;
                self.write_parts(to, made.as_ref(), 1);
            }
            Action::Product { to, accumulator, ref products } => {
                let before = match accumulator {
                    Some(span) => self.registers.parts(span),
                    None => Some([[0; 8]; 4]),
                };
                let sums = before.zip(products.as_ref()).map(|(before, products)| execute::sums(&before, products));
                self.write_parts(to, sums.as_ref(), self.latencies.product + 1 - self.latencies.product_read);
            }
            Action::Integers { to, accumulator, ref terms } => {
                let before = accumulator.map_or(Some([[0; 8]; 4]), |span| self.registers.parts(span));
                let sums =
                    before.zip(terms.as_ref()).map(|(before, terms)| execute::add_integers(&before, terms, false));
                // Integers are there a cycle earlier than f32.
                self.write_parts(to, sums.as_ref(), self.latencies.product - self.latencies.product_read);
            }
            Action::Sum { to, left, right, negative, integers } => {
                let operands = self.registers.parts(left).zip(self.registers.parts(right));
                let add = if integers { execute::add_integers } else { execute::add };
                let sums = operands.map(|(left, right)| add(&left, &right, negative));
                let stage = if integers { self.latencies.sum - 1 } else { self.latencies.sum };
                self.write_parts(to, sums.as_ref(), stage + 1 - self.latencies.sum_read);
            }
            Action::Lock { .. } => return Err("a lock instruction in a lock's stall is not modelled".into()),
        }
        Ok(())
    }

    /// A lock instruction orders no access of memory while it is under way.
    fn check_order(&mut self) -> Result<(), Fault> {
        if self.locks.is_empty() {
            return Ok(());
        }
        let (stall, resume) = (self.latencies.lock_stall, self.latencies.lock_resume);
        let now = self.cycle;
        self.locks.retain(|issued| now < issued + resume);
        if self.locks.iter().any(|issued| now >= issued + stall - 1) {
            return Err("an access of memory that a lock does not order".into());
        }
        Ok(())
    }

    fn issue(&mut self) -> Result<(), Fault> {
        let bundle = self.fetch()?;
        for decoded in &bundle.instructions {
            self.execute(&decoded.operation).map_err(|fault| format!("{}: {fault}", decoded.text))?;
        }
        let here = self.pc;
        self.pc += bundle.bytes;
        let fixed = fixed();
        if let Some((at, target)) = self.branch
            && at == self.cycle + 1
        {
            (self.pc, self.branch) = (target, None);
        } else if self.registers.scalar(fixed.loop_end) == Some(here) {
            let count = self.registers.scalar(fixed.loop_count).ok_or("a loop of unknown count")?;
            if count > 1 {
                self.pc = self.registers.scalar(fixed.loop_start).ok_or("a loop of unknown start")?;
            }
            self.registers.write_scalar(fixed.loop_count, Some(count.saturating_sub(1)));
        }
        Ok(())
    }

    fn fetch(&mut self) -> Result<Arc<Bundle>, Fault> {
        let place = self.pc as usize / 2;
        if let Some(Some(bundle)) = self.decoded.get(place) {
            return Ok(Arc::clone(bundle));
        }
        let mut bytes = Vec::new();
        let (start, offset) = (u64::from(self.pc) & !3, self.pc as usize & 3);
        let mut length = None;
        while length.is_none_or(|length| bytes.len() < offset + length) {
            let word = self.program.word(start + bytes.len() as u64)?;
            let word = word.ok_or_else(|| format!("nothing is at {:#06x} of the program", self.pc))?;
            bytes.extend(word.to_le_bytes());
            length = Some(kiln_aie::isa::bundle_bytes(bytes[offset]));
        }
        let bundle = decode::bundle(&bytes[offset..offset + length.unwrap_or(0)])?;
        if self.decoded.is_empty() {
            self.decoded.resize(PROGRAM / 2, None);
        }
        self.decoded[place] = Some(Arc::clone(&bundle));
        Ok(bundle)
    }

    /// The parts of a span, as the instructions read them that see forwarded ones.
    fn forwarded_parts(&self, span: Span) -> Option<Parts> {
        if self.forwarded.is_empty() {
            return self.registers.parts(span);
        }
        let mut parts = [[0; 8]; 4];
        for index in 0..span.count {
            let place = span.first + index;
            let forwarded = self.forwarded.iter().find(|(written, _)| *written == place);
            parts[index as usize] = match forwarded {
                Some((_, part)) => (*part)?,
                None => self.registers.parts(Span { first: place, count: 1 })?[0],
            };
        }
        Some(parts)
    }

    /// Schedules what an instruction does so many stages from now; now is stage 1.
    fn schedule(&mut self, stage: u64, action: Action) {
        self.wheel[(self.cycle + stage - 1) as usize % WHEEL].actions.push(action);
    }

    /// Writes a register so many cycles from now.
    fn write_scalar(&mut self, place: Scalar, value: Option<u32>, wait: u64) {
        self.wheel[(self.cycle + wait) as usize % WHEEL].landings.push(Landing::Scalar(place, value));
    }

    fn write_parts(&mut self, to: Span, parts: Option<&Parts>, wait: u64) {
        let landings = &mut self.wheel[(self.cycle + wait) as usize % WHEEL].landings;
        for index in 0..to.count {
            landings.push(Landing::Part(to.first + index, parts.map(|parts| parts[index as usize])));
        }
    }
}

/// One part and nothing behind it.
fn widened(part: Part) -> Parts {
    [part, [0; 8], [0; 8], [0; 8]]
}
