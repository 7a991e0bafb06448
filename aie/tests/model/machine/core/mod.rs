//! A core: fetch, issue, and the pipeline with nothing in it that waits.
//!
//! Cycles count from an instruction's issue, stage 1. What it writes in stage s is there for reads in later cycles only.

mod bundle;
mod execute;
mod latencies;

use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::sync::OnceLock;

use kiln_aie::isa::Isa;
use kiln_aie::register::{File, Register};

pub use self::latencies::Latencies;

use self::bundle::{Bundle, Operands};
use super::Fault;
use super::lock::Locks;
use super::memory::Memory;
use super::number::{of_f32, to_bf16, to_f32};

/// What a register, or a part of 256 bits of one, holds. A register without is unknown.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Bits {
    Scalar(u32),
    Part([u8; 32]),
}

/// What an instruction does behind its issue.
enum Action {
    /// 32 bytes into a part, or into both parts of a register when they are widened.
    Load {
        address: u64,
        target: Register,
        widen: bool,
        wait: u64,
    },
    Store {
        address: u64,
        bytes: Vec<u8>,
    },
    /// `target` = sum of products and accumulator.
    Product {
        target: Register,
        accumulator: Option<Register>,
        products: Option<Vec<f64>>,
    },
    Sum {
        target: Register,
        left: Register,
        right: Register,
    },
    Lock {
        lock: u32,
        value: i32,
        acquire: bool,
    },
}

pub struct Core {
    isa: &'static Isa,
    latencies: Latencies,
    enabled: bool,
    reset: bool,
    program: Memory,
    decoded: HashMap<u32, Rc<Bundle>>,
    /// The next bundle, and the core's own cycle: it stands while the core waits for a lock.
    pc: u32,
    cycle: u64,
    registers: HashMap<Register, Bits>,
    /// Writes on their way: the cycle from which they are seen.
    landing: Vec<(u64, Register, Option<Bits>)>,
    /// What is to be done in a later cycle.
    later: Vec<(u64, Action)>,
    /// Target of a branch, and the cycle of the first bundle there.
    branch: Option<(u64, u32)>,
    /// Cycles in which lock instructions issued.
    locks: VecDeque<u64>,
    waiting: Option<u32>,
}

/// The disassembler's table, read once.
fn isa() -> &'static Isa {
    static ISA: OnceLock<Isa> = OnceLock::new();
    ISA.get_or_init(Isa::aie2)
}

impl Core {
    pub fn new(latencies: Latencies) -> Core {
        Core {
            isa: isa(),
            latencies,
            enabled: false,
            reset: false,
            program: Memory::new(16 << 10),
            decoded: HashMap::new(),
            pc: 0,
            cycle: 0,
            registers: HashMap::new(),
            landing: Vec::new(),
            later: Vec::new(),
            branch: None,
            locks: VecDeque::new(),
            waiting: None,
        }
    }

    pub fn write_program(&mut self, offset: u32, value: u32) -> Result<(), Fault> {
        self.decoded.clear();
        self.program.write(u64::from(offset), &value.to_le_bytes())
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

    /// Whether the core does nothing at all.
    pub fn is_off(&self) -> bool {
        !self.enabled || self.reset
    }

    /// One cycle; whether the core went on.
    pub fn step(&mut self, memory: &mut Memory, locks: &mut Locks) -> Result<bool, Fault> {
        if self.is_off() {
            return Ok(false);
        }
        let named = |pc: u32, fault: Fault| format!("core at {pc:#06x}: {fault}");
        let pc = self.pc;
        if !self.pass_locks(locks).map_err(|fault| named(pc, fault))? {
            return Ok(false);
        }
        self.land();
        self.act(memory).map_err(|fault| named(pc, fault))?;
        self.issue().map_err(|fault| named(pc, fault))?;
        self.cycle += 1;
        Ok(true)
    }

    /// Does the lock instructions that are in their stage; whether they let the core go on.
    fn pass_locks(&mut self, locks: &mut Locks) -> Result<bool, Fault> {
        self.waiting = None;
        let due = |(cycle, action): &(u64, Action), now| *cycle == now && matches!(action, Action::Lock { .. });
        let Some(index) = self.later.iter().position(|entry| due(entry, self.cycle)) else { return Ok(true) };
        let Action::Lock { lock, value, acquire } = self.later[index].1 else { return Ok(true) };
        let own = lock.checked_sub(48).filter(|own| *own < 16);
        let own = own.ok_or_else(|| format!("a neighbour's lock, {lock}, is not modelled"))?;
        if !acquire {
            locks.release(own, value)?;
        } else if !locks.acquire(own, value)? {
            self.waiting = Some(lock);
            return Ok(false);
        }
        self.later.remove(index);
        Ok(true)
    }

    fn land(&mut self) {
        let now = self.cycle;
        for (due, register, bits) in &self.landing {
            if *due <= now {
                match bits {
                    Some(bits) => self.registers.insert(*register, *bits),
                    None => self.registers.remove(register),
                };
            }
        }
        self.landing.retain(|(due, ..)| *due > now);
    }

    /// Does what is due in this cycle. What a store writes, loads see from the next cycle on.
    fn act(&mut self, memory: &mut Memory) -> Result<(), Fault> {
        let now = self.cycle;
        if self.later.iter().all(|(at, _)| *at > now) {
            return Ok(());
        }
        let (mut due, later): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.later).into_iter().partition(|(at, _)| *at <= now);
        self.later = later;
        due.sort_by_key(|(_, action)| matches!(action, Action::Store { .. }));
        for (_, action) in due {
            match action {
                Action::Load { address, target, widen, wait } => {
                    self.check_order()?;
                    let bytes = memory.read(address, 32)?.map(<[u8]>::to_vec);
                    let bytes = if widen { bytes.map(|bytes| of_f32(&to_bf16(&bytes))) } else { bytes };
                    self.write_vector(target, bytes, wait);
                }
                Action::Store { address, bytes } => {
                    self.check_order()?;
                    memory.write(address, &bytes)?;
                }
                Action::Product { target, accumulator, products } => {
                    let before = match accumulator {
                        Some(register) => self.vector(register).map(|bytes| to_f32(&bytes)),
                        None => Some(vec![0.0; 16]),
                    };
                    let sums = before.zip(products).map(|(before, products)| {
                        let sums =
                            before.iter().zip(products).map(|(before, product)| (f64::from(*before) + product) as f32);
                        of_f32(&sums.collect::<Vec<_>>())
                    });
                    self.write_vector(target, sums, self.latencies.product + 1 - self.latencies.product_read);
                }
                Action::Sum { target, left, right } => {
                    let operands = self.vector(left).zip(self.vector(right));
                    let sums = operands.map(|(left, right)| {
                        let sums = to_f32(&left).into_iter().zip(to_f32(&right)).map(|(left, right)| left + right);
                        of_f32(&sums.collect::<Vec<_>>())
                    });
                    self.write_vector(target, sums, self.latencies.sum + 1 - self.latencies.sum_read);
                }
                Action::Lock { .. } => return Err("a lock instruction in a lock's stall is not modelled".into()),
            }
        }
        Ok(())
    }

    /// A lock instruction orders no access of memory while it is under way.
    fn check_order(&mut self) -> Result<(), Fault> {
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
        for operands in &bundle.instructions {
            self.execute(operands).map_err(|fault| format!("{}: {fault}", operands.text))?;
        }
        let here = self.pc;
        self.pc += bundle.bytes;
        if let Some((at, target)) = self.branch
            && at == self.cycle + 1
        {
            (self.pc, self.branch) = (target, None);
        } else if self.named("le") == Some(here) {
            let count = self.named("lc").ok_or("a loop of unknown count")?;
            if count > 1 {
                self.pc = self.named("ls").ok_or("a loop of unknown start")?;
            }
            self.registers.insert(register("lc"), Bits::Scalar(count.saturating_sub(1)));
        }
        Ok(())
    }

    fn fetch(&mut self) -> Result<Rc<Bundle>, Fault> {
        if let Some(bundle) = self.decoded.get(&self.pc) {
            return Ok(Rc::clone(bundle));
        }
        let nothing = || format!("nothing is at {:#06x} of the program", self.pc);
        let first = self.program.read(u64::from(self.pc), 1)?.ok_or_else(nothing)?[0];
        let length = kiln_aie::isa::bundle_bytes(first);
        let bytes = self.program.read(u64::from(self.pc), length)?.ok_or_else(nothing)?;
        let decoded = self.isa.decode_bundle(bytes)?;
        let busy = decoded.instructions.iter().filter(|instruction| !self.isa.op(instruction).is_nop());
        let instructions = busy.map(|instruction| Operands::of(self.isa, instruction)).collect();
        let bundle = Rc::new(Bundle { bytes: length as u32, instructions });
        self.decoded.insert(self.pc, Rc::clone(&bundle));
        Ok(bundle)
    }

    /// Schedules what an instruction does in a stage.
    fn schedule(&mut self, stage: u64, action: Action) {
        self.later.push((self.cycle + stage - 1, action));
    }

    fn named(&self, name: &str) -> Option<u32> {
        self.scalar(register(name))
    }

    fn scalar(&self, register: Register) -> Option<u32> {
        match self.registers.get(&register) {
            Some(Bits::Scalar(value)) => Some(*value),
            _ => None,
        }
    }

    /// The bytes of a vector or of parts of an accumulator, where all of them are known.
    fn vector(&self, register: Register) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        for part in register.parts() {
            match self.registers.get(&part) {
                Some(Bits::Part(part)) => bytes.extend(part),
                _ => return None,
            }
        }
        Some(bytes)
    }

    /// Writes a register of an instruction that issues in this cycle. Pointers and steps have 20 bits.
    fn write_scalar(&mut self, register: Register, value: Option<u32>, stage: u64) {
        let short = matches!(register.file, File::P | File::M | File::Dj | File::Dn | File::Dc);
        let value = value.map(|value| Bits::Scalar(if short { value & 0xF_FFFF } else { value }));
        self.landing.push((self.cycle + stage, register, value));
    }

    /// Writes a vector register so many cycles from now.
    fn write_vector(&mut self, register: Register, bytes: Option<Vec<u8>>, wait: u64) {
        for (index, part) in register.parts().into_iter().enumerate() {
            let bits = bytes.as_ref().and_then(|bytes| bytes.get(32 * index..32 * index + 32));
            let bits = bits.and_then(|part| part.try_into().ok()).map(Bits::Part);
            self.landing.push((self.cycle + wait, part, bits));
        }
    }
}

fn register(name: &str) -> Register {
    Register::parse(name).expect("a register's name")
}
