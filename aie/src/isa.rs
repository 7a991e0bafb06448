//! Instructions as data: the table of what the core has, and encoding and decoding of slots and bundles.

use std::fmt;

use crate::register::Register;
use crate::timing::Timing;

/// A place of a bundle: what can issue together.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Slot {
    /// A bundle of 16 bits that does nothing.
    Nop,
    /// Load through the first port; pointers and constants.
    Lda,
    /// Load through the second port.
    Ldb,
    /// Store; conversions on their way out of accumulators.
    St,
    /// Scalar arithmetic, locks, indirect branches.
    Alu,
    /// Moves, shuffles, vector arithmetic on integers.
    Mv,
    /// Long constants and branches; takes the places of `alu` and `mv`.
    Lng,
    /// Multiply-accumulate.
    Vec,
}

impl Slot {
    pub const ALL: [Slot; 8] = [Slot::Nop, Slot::Lda, Slot::Ldb, Slot::St, Slot::Alu, Slot::Mv, Slot::Lng, Slot::Vec];

    pub fn name(self) -> &'static str {
        ["nop", "lda", "ldb", "st", "alu", "mv", "lng", "vec"][self as usize]
    }

    pub fn parse(name: &str) -> Option<Slot> {
        Slot::ALL.into_iter().find(|slot| slot.name() == name)
    }
}

/// Properties of the machine that are no instruction's; the table says where each comes from.
#[derive(Clone, Copy, Default, Debug)]
pub struct Machine {
    pub delay_slots: u32,
    pub lock_stall: u32,
    pub lock_resume: u32,
    pub loop_setup_bytes: u32,
}

/// The registers that a field can name, by their code.
#[derive(Clone, Debug)]
pub struct Class {
    pub name: String,
    pub codes: Vec<Option<Register>>,
}

#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// Index into [`Isa::classes`].
    Register {
        class: usize,
    },
    Immediate {
        bits: u32,
        signed: bool,
        scale: i64,
    },
}

impl Kind {
    pub fn bits(self, isa: &Isa) -> u32 {
        match self {
            Kind::Register { class } => isa.classes[class].codes.len().ilog2(),
            Kind::Immediate { bits, .. } => bits,
        }
    }
}

#[derive(Clone, Debug)]
pub struct OperandSpec {
    /// Its name in the table, which is the same for the same role: `d` is written, `p` is a pointer, `m` moves it.
    pub letter: char,
    pub kind: Kind,
    /// Bits of the slot that hold the operand, from its highest.
    pub places: Vec<u32>,
}

#[derive(Clone, PartialEq, Debug)]
pub enum Syntax {
    Word(String),
    Mark(char),
    /// Index into [`Op::operands`].
    Operand(usize),
}

/// A row of the table: one encoding of one instruction.
#[derive(Clone, Debug)]
pub struct Op {
    pub slot: Slot,
    pub mnemonic: String,
    pub syntax: Vec<Syntax>,
    pub operands: Vec<OperandSpec>,
    /// Bits that make it this instruction.
    pub mask: u64,
    pub value: u64,
    pub timing: Timing,
}

impl Op {
    pub fn is_nop(&self) -> bool {
        self.mnemonic.starts_with("nop")
    }

    pub fn is_lock(&self) -> bool {
        self.mnemonic.starts_with("acq") || self.mnemonic.starts_with("rel")
    }

    pub fn is_branch(&self) -> bool {
        matches!(self.mnemonic.as_str(), "j" | "jl" | "jz" | "jnz" | "jnzd" | "ret")
    }

    /// The row as source, with what `operand` says of each operand by its index.
    pub fn write(&self, operand: impl Fn(usize) -> String) -> String {
        let mut text = self.mnemonic.clone();
        let mut spaced = true;
        for item in &self.syntax {
            if spaced && *item != Syntax::Mark(',') && *item != Syntax::Mark(']') {
                text.push(' ');
            }
            spaced = *item != Syntax::Mark('[');
            match item {
                Syntax::Word(word) => text.push_str(word),
                Syntax::Mark(mark) => text.push(*mark),
                Syntax::Operand(index) => text.push_str(&operand(*index)),
            }
        }
        text
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Operand {
    Register(Register),
    /// In units of the source: bytes where the field counts in multiples.
    Immediate(i64),
}

impl fmt::Display for Operand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Operand::Register(register) => write!(f, "{register}"),
            Operand::Immediate(value) => write!(f, "#{value}"),
        }
    }
}

/// One instruction: a row of the table and its operands, in the order of [`Op::operands`].
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Instruction {
    /// Index into [`Isa::ops`].
    pub op: usize,
    pub operands: Vec<Operand>,
}

/// Where the slots of a bundle lie.
#[derive(Clone, Debug)]
pub struct Format {
    pub bytes: usize,
    pub mask: u128,
    pub value: u128,
    /// Each slot and its lowest bit, in the order in which they are written.
    pub slots: Vec<(Slot, u32)>,
}

/// What issues in one cycle: one instruction for each slot of the format, in its order.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Bundle {
    /// Index into [`Isa::formats`].
    pub format: usize,
    pub instructions: Vec<Instruction>,
}

#[derive(Clone, Default, Debug)]
pub struct Isa {
    pub machine: Machine,
    pub classes: Vec<Class>,
    pub timings: Vec<Timing>,
    pub ops: Vec<Op>,
    pub formats: Vec<Format>,
}

impl Isa {
    /// The core of XDNA 1.
    ///
    /// # Panics
    /// Never: the table is part of this crate, and its tests read it.
    pub fn aie2() -> Isa {
        crate::table::parse(include_str!("../data/aie2.isa")).expect("the crate's own table")
    }

    pub fn op(&self, instruction: &Instruction) -> &Op {
        &self.ops[instruction.op]
    }

    pub fn bytes(&self, bundle: &Bundle) -> usize {
        self.formats[bundle.format].bytes
    }

    /// The operand of this letter.
    pub fn operand(&self, instruction: &Instruction, letter: char) -> Option<Operand> {
        let index = self.op(instruction).operands.iter().position(|spec| spec.letter == letter)?;
        instruction.operands.get(index).copied()
    }

    /// The instruction that fills an idle slot.
    pub fn nop(&self, slot: Slot) -> Instruction {
        let op = self.ops.iter().position(|op| op.slot == slot && op.is_nop());
        Instruction { op: op.expect("the table has a nop for each slot"), operands: Vec::new() }
    }

    /// The slot's bits. The error says which operand does not fit, and what would.
    pub fn encode(&self, instruction: &Instruction) -> Result<u64, String> {
        let op = self.op(instruction);
        let mut word = op.value;
        for (spec, operand) in op.operands.iter().zip(&instruction.operands) {
            let code = self.encode_operand(spec.kind, *operand)?;
            for (index, place) in spec.places.iter().rev().enumerate() {
                word |= (code >> index & 1) << place;
            }
        }
        Ok(word)
    }

    fn encode_operand(&self, kind: Kind, operand: Operand) -> Result<u64, String> {
        match (kind, operand) {
            (Kind::Register { class }, Operand::Register(register)) => self
                .code(class, register)
                .ok_or_else(|| format!("{register} cannot stand here: one of {}", self.describe_class(class))),
            (Kind::Immediate { bits, signed, scale }, Operand::Immediate(value)) => {
                let (low, high) =
                    if signed { (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) } else { (0, (1 << bits) - 1) };
                if value % scale != 0 || !(low..=high).contains(&(value / scale)) {
                    let step = if scale == 1 { String::new() } else { format!(" in steps of {scale}") };
                    return Err(format!("{value} does not fit: {} to {}{step}", low * scale, high * scale));
                }
                Ok((value / scale) as u64 & ((1 << bits) - 1))
            }
            _ => Err(format!("{operand} cannot stand here")),
        }
    }

    /// The code of a register in a class.
    pub fn code(&self, class: usize, register: Register) -> Option<u64> {
        self.classes[class].codes.iter().position(|code| *code == Some(register)).map(|code| code as u64)
    }

    fn describe_class(&self, class: usize) -> String {
        let mut registers: Vec<Register> = self.classes[class].codes.iter().flatten().copied().collect();
        registers.sort();
        let mut ranges: Vec<String> = Vec::new();
        for run in registers.chunk_by(|a, b| a.file == b.file) {
            let named = run[0].file == crate::register::File::Named;
            match (run, named) {
                ([first, .., last], false) => ranges.push(format!("{first}..{last}")),
                _ => ranges.extend(run.iter().map(Register::to_string)),
            }
        }
        ranges.join(", ")
    }

    /// The instruction of a slot's bits, or nothing where the table has none.
    pub fn decode(&self, slot: Slot, word: u64) -> Option<Instruction> {
        self.ops.iter().enumerate().find_map(|(index, op)| {
            if op.slot != slot || word & op.mask != op.value {
                return None;
            }
            let operands = op.operands.iter().map(|spec| self.decode_operand(spec, word));
            Some(Instruction { op: index, operands: operands.collect::<Option<_>>()? })
        })
    }

    fn decode_operand(&self, spec: &OperandSpec, word: u64) -> Option<Operand> {
        let code = spec.places.iter().fold(0u64, |code, place| code << 1 | (word >> place & 1));
        Some(match spec.kind {
            Kind::Register { class } => Operand::Register(self.classes[class].codes[code as usize]?),
            Kind::Immediate { bits, signed, scale } => {
                let negative = signed && code >> (bits - 1) & 1 == 1;
                Operand::Immediate((code as i64 - (i64::from(negative) << bits)) * scale)
            }
        })
    }

    /// The formats that hold these slots, shortest first.
    pub fn formats_of(&self, slots: &[Slot]) -> Vec<usize> {
        let holds = |format: &Format| slots.iter().all(|slot| format.slots.iter().any(|(held, _)| held == slot));
        let mut formats: Vec<usize> = (0..self.formats.len()).filter(|&index| holds(&self.formats[index])).collect();
        formats.sort_by_key(|&index| (self.formats[index].bytes, self.formats[index].slots.len()));
        formats
    }

    /// Puts instructions into a format that holds their slots, and nops into the rest of it.
    pub fn fill(&self, format: usize, instructions: &[Instruction]) -> Bundle {
        let of_slot = |slot: Slot| instructions.iter().find(|instruction| self.op(instruction).slot == slot).cloned();
        let slots = self.formats[format].slots.iter();
        Bundle {
            format,
            instructions: slots.map(|(slot, _)| of_slot(*slot).unwrap_or_else(|| self.nop(*slot))).collect(),
        }
    }

    /// The bundle's bytes, as they lie in program memory.
    pub fn encode_bundle(&self, bundle: &Bundle) -> Result<Vec<u8>, String> {
        let format = &self.formats[bundle.format];
        let mut word = format.value;
        for ((_, place), instruction) in format.slots.iter().zip(&bundle.instructions) {
            word |= u128::from(self.encode(instruction)?) << place;
        }
        Ok(word.to_le_bytes()[..format.bytes].to_vec())
    }

    /// The bundle at the head of `code`. The error says what is there instead.
    pub fn decode_bundle(&self, code: &[u8]) -> Result<Bundle, String> {
        let mut bytes = [0u8; 16];
        let length = code.len().min(16);
        bytes[..length].copy_from_slice(&code[..length]);
        let word = u128::from_le_bytes(bytes);
        let size = bundle_bytes(code.first().copied().ok_or("no code")?);
        let mut error =
            if size > length { format!("a bundle of {size} bytes is cut off") } else { "no such bundle".into() };
        for (index, format) in self.formats.iter().enumerate() {
            if format.bytes != size || size > length || word & format.mask != format.value {
                continue;
            }
            let instructions: Result<Vec<_>, String> = format
                .slots
                .iter()
                .map(|&(slot, place)| {
                    let bits = (word >> place) as u64 & ((1 << self.width(slot)) - 1);
                    self.decode(slot, bits).ok_or_else(|| format!("no {} instruction {bits:#x}", slot.name()))
                })
                .collect();
            match instructions {
                Ok(instructions) => return Ok(Bundle { format: index, instructions }),
                Err(message) => error = message,
            }
        }
        Err(error)
    }

    fn width(&self, slot: Slot) -> u32 {
        let nop = &self.ops[self.nop(slot).op];
        nop.mask.count_ones()
    }

    /// The instruction as source.
    pub fn write(&self, instruction: &Instruction) -> String {
        self.op(instruction).write(|index| instruction.operands[index].to_string())
    }

    /// The bundle as a line of source that assembles to the same bytes: every slot of the format, nops too.
    pub fn write_bundle(&self, bundle: &Bundle) -> String {
        bundle.instructions.iter().map(|instruction| self.write(instruction)).collect::<Vec<_>>().join(" ; ")
    }
}

/// How long the bundle is that starts with this byte.
pub fn bundle_bytes(first: u8) -> usize {
    match first & 15 {
        0b0001 => 2,
        0b1001 => 4,
        0b0101 | 0b1101 => 6,
        0b0011 => 8,
        0b1011 => 10,
        0b0111 => 12,
        0b1111 => 14,
        _ => 16,
    }
}
