//! The instruction set as data: encodings with their fields, and opcodes with their operands. `data/isa.txt` says where
//! it is from.

use std::collections::HashMap;
use std::sync::OnceLock;

/// Bits of an instruction, counted from bit 0 of its first dword.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Field {
    /// Highest bit.
    pub high: u8,
    /// Lowest bit.
    pub low: u8,
}

/// One encoding, or what a DPP variant adds to one.
#[derive(Debug)]
pub struct Encoding {
    /// AMD's name.
    pub name: &'static str,
    /// Bits of the first dword that tell it from others.
    pub mask: u32,
    /// Their value.
    pub value: u32,
    /// Dwords, without literal or DPP.
    pub dwords: usize,
    fields: HashMap<&'static str, Field>,
}

impl Encoding {
    /// The field of that name.
    pub fn field(&self, name: &str) -> Option<Field> {
        self.fields.get(name).copied()
    }
}

/// What an opcode does with a field.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Operand {
    /// `vgpr`, `src`, `ssrc`, `sdst`, `sreg` and so on.
    pub kind: &'static str,
    /// `f32`, `b64`, `pk2_f16` and so on.
    pub format: &'static str,
    /// Size of the value.
    pub bits: u32,
}

/// One instruction of one encoding.
#[derive(Debug)]
pub struct Opcode {
    /// Its encoding.
    pub encoding: &'static str,
    /// Its number there.
    pub number: u32,
    /// Mnemonic without LLVM's `_e32` and the like.
    pub name: &'static str,
    /// A literal dword always follows.
    pub literal: bool,
    /// DPP forms exist.
    pub dpp: bool,
    /// gfx1150 and gfx1151 alone have it.
    pub gfx115x: bool,
    /// Slots of VOPD that it may stand in: X, Y.
    pub slots: [bool; 2],
    operands: Vec<(&'static str, Operand)>,
}

impl Opcode {
    /// The operand in that field.
    pub fn operand(&self, field: &str) -> Option<Operand> {
        self.operands.iter().find(|(name, _)| *name == field).map(|(_, operand)| *operand)
    }

    /// All operands, destination first.
    pub fn operands(&self) -> impl Iterator<Item = (&'static str, Operand)> + '_ {
        self.operands.iter().copied()
    }
}

/// All of it.
#[derive(Debug)]
pub struct Isa {
    /// Encodings by name, DPP variants (`VOP1_DPP8`, ...) among them.
    pub encodings: HashMap<&'static str, Encoding>,
    /// Opcodes by encoding and number.
    pub opcodes: HashMap<(&'static str, u32), Opcode>,
}

/// The table, read once.
pub fn isa() -> &'static Isa {
    static ISA: OnceLock<Isa> = OnceLock::new();
    ISA.get_or_init(|| read(include_str!("../data/isa.txt")).unwrap_or_else(|line| panic!("data/isa.txt: {line}")))
}

fn read(text: &'static str) -> Result<Isa, &'static str> {
    let mut isa = Isa { encodings: HashMap::new(), opcodes: HashMap::new() };
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        read_line(&mut isa, line).ok_or(line)?;
    }
    Ok(isa)
}

fn read_line(isa: &mut Isa, line: &'static str) -> Option<()> {
    let mut words = line.split(' ');
    let kind = words.next()?;
    let name = words.next()?;
    if kind == "O" {
        let number = words.next()?.parse().ok()?;
        let mnemonic = words.next()?;
        let flags: Vec<&str> = words.next()?.split(',').collect();
        let operands = words.map(read_operand).collect::<Option<_>>()?;
        let [literal, dpp, gfx115x] = ["lit", "dpp", "gfx115x"].map(|flag| flags.contains(&flag));
        let slots = ["X", "Y"].map(|slot| flags.contains(&slot) || flags.contains(&"XY"));
        let opcode = Opcode { encoding: name, number, name: mnemonic, literal, dpp, gfx115x, slots, operands };
        isa.opcodes.insert((name, number), opcode);
    } else {
        let [mask, value] = match kind {
            "E" => [hex(words.next()?)?, hex(words.next()?)?],
            _ => [0, 0],
        };
        let bits: usize = words.next()?.parse().ok()?;
        let fields = words.map(read_field).collect::<Option<_>>()?;
        isa.encodings.insert(name, Encoding { name, mask, value, dwords: bits / 32, fields });
    }
    Some(())
}

fn hex(word: &str) -> Option<u32> {
    u32::from_str_radix(word, 16).ok()
}

fn read_field(word: &'static str) -> Option<(&'static str, Field)> {
    let (name, bits) = word.split_once(':')?;
    let (high, low) = bits.split_once(':')?;
    Some((name, Field { high: high.parse().ok()?, low: low.parse().ok()? }))
}

fn read_operand(word: &'static str) -> Option<(&'static str, Operand)> {
    let (name, operand) = word.split_once('=')?;
    let mut parts = operand.split('.');
    Some((name, Operand { kind: parts.next()?, format: parts.next()?, bits: parts.next()?.parse().ok()? }))
}
