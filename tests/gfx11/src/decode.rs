//! From words to instructions. What is not known is refused by name and word.

use crate::isa::{Encoding, Opcode, Operand, isa};
use std::fmt;

/// How source 0 reaches its lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Variant {
    /// As it stands.
    Plain,
    /// Lanes moved within groups of 8.
    Dpp8,
    /// Lanes moved within rows of 16.
    Dpp16,
}

/// An instruction: its opcode and its bits.
#[derive(Clone, Copy)]
pub struct Inst {
    /// Dwords from the code's start.
    pub at: usize,
    /// Its size in dwords, literal and DPP included.
    pub dwords: usize,
    /// Its opcode; of VOPD that of slot X.
    pub opcode: &'static Opcode,
    /// The opcode of slot Y.
    pub second: Option<&'static Opcode>,
    /// DPP or not.
    pub variant: Variant,
    /// The literal, if a source or the opcode wants one.
    pub literal: Option<u32>,
    encoding: &'static Encoding,
    bits: u128,
}

/// Why words are no instruction.
#[derive(Debug, Clone, PartialEq)]
pub struct Refused {
    /// Dwords from the code's start.
    pub at: usize,
    /// The first word.
    pub word: u32,
    /// What is wrong with it.
    pub why: String,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "word {:08x} at {:#x}: {}", self.word, self.at * 4, self.why)
    }
}

impl Inst {
    /// The field of that name; 0 where the encoding has none.
    pub fn get(&self, name: &str) -> u32 {
        let variant = match self.variant {
            Variant::Plain => None,
            Variant::Dpp8 => isa().encodings.get(if self.encoding.dwords == 1 { "VOP1_DPP8" } else { "VOP3_DPP8" }),
            Variant::Dpp16 => isa().encodings.get(if self.encoding.dwords == 1 { "VOP1_DPP16" } else { "VOP3_DPP16" }),
        };
        let field = self.encoding.field(name).or_else(|| variant?.field(name));
        field.map_or(0, |f| (self.bits >> f.low) as u32 & (u32::MAX >> (31 - (f.high - f.low))))
    }

    /// The field of that name, as a flag.
    pub fn has(&self, name: &str) -> bool {
        self.get(name) != 0
    }

    /// The encoding's name.
    pub fn encoding(&self) -> &'static str {
        self.encoding.name
    }

    /// The mnemonic; of VOPD both, with a plus between.
    pub fn name(&self) -> String {
        match self.second {
            Some(second) => format!("{}+{}", self.opcode.name, second.name),
            None => self.opcode.name.to_string(),
        }
    }

    /// The signed 16-bit immediate.
    pub fn simm16(&self) -> i32 {
        self.get("simm16") as u16 as i16 as i32
    }
}

impl fmt::Debug for Inst {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {:#x}", self.name(), self.at * 4)
    }
}

/// Encodings in the order in which a first dword is held against them.
const ORDER: [&str; 17] = [
    "SOP1", "SOPC", "SOPP", "SOPK", "SOP2", "VOPC", "VOP1", "VOP2", "VOP3P", "VOPD", "VOP3", "SMEM", "DS", "FLAT",
    "SCRATCH", "GLOBAL", "MUBUF",
];
/// Encodings that compute kernels of RADV never use.
const OTHERS: [(u32, u32, &str); 5] = [
    (0xfc00_0000, 0xf000_0000, "MIMG"),
    (0xfc00_0000, 0xe800_0000, "MTBUF"),
    (0xfc00_0000, 0xf800_0000, "EXP"),
    (0xff00_0000, 0xcd00_0000, "VINTERP"),
    (0xff00_0000, 0xce00_0000, "LDSDIR"),
];

/// The instruction at that dword of the code.
pub fn decode(code: &[u32], at: usize) -> Result<Inst, Refused> {
    let refuse = |why: String| Refused { at, word: code.get(at).copied().unwrap_or(0), why };
    let word = *code.get(at).ok_or_else(|| refuse("the code ends here".into()))?;
    if let Some((.., name)) = OTHERS.iter().find(|(mask, value, _)| word & mask == *value) {
        return Err(refuse(format!("{name} is not for compute")));
    }
    let table = isa();
    let encodings = ORDER.iter().filter_map(|name| table.encodings.get(name));
    let encoding = encodings.into_iter().find(|e| word & e.mask == e.value);
    let mut encoding = encoding.ok_or_else(|| refuse("no encoding begins so".into()))?;
    let number_at = if encoding.name == "VOPD" { "opx" } else { "op" };
    let number_field = encoding.field(number_at).ok_or_else(|| refuse("no opcode field".into()))?;
    let number = word >> number_field.low & (u32::MAX >> (31 - (number_field.high - number_field.low)));
    if encoding.name == "VOP3" && table.opcodes.contains_key(&("VOP3SD", number)) {
        encoding = &table.encodings["VOP3SD"];
    }
    let opcode = table.opcodes.get(&(encoding.name, number));
    let opcode = opcode.ok_or_else(|| refuse(format!("{} has no opcode {number}", encoding.name)))?;
    let mut bits = 0u128;
    for i in 0..encoding.dwords {
        let word = code.get(at + i).ok_or_else(|| refuse(format!("{} is cut short", opcode.name)))?;
        bits |= (*word as u128) << (32 * i);
    }
    let (variant, dwords) = (Variant::Plain, encoding.dwords);
    let mut inst = Inst { at, dwords, opcode, second: None, variant, literal: None, encoding, bits };
    if encoding.name == "VOPD" {
        let second = table.opcodes.get(&("VOPD", inst.get("opy")));
        inst.second = Some(second.ok_or_else(|| refuse(format!("VOPD has no opcode {}", inst.get("opy"))))?);
        let slots = [opcode.slots[0], inst.second.is_some_and(|o| o.slots[1])];
        if slots != [true, true] {
            return Err(refuse(format!("{} does not stand in these slots", inst.name())));
        }
    }
    let sources = sources(&inst);
    let dpp = match (encoding.name.starts_with("VOP") && encoding.name != "VOPD").then(|| inst.get("src0")) {
        Some(250) => Variant::Dpp16,
        Some(233 | 234) => Variant::Dpp8,
        _ => Variant::Plain,
    };
    let literal =
        opcode.literal || inst.second.is_some_and(|o| o.literal) || sources.iter().any(|(_, code)| *code == 255);
    if dpp != Variant::Plain || literal {
        let next = *code.get(at + dwords).ok_or_else(|| refuse(format!("{} is cut short", opcode.name)))?;
        inst.dwords += 1;
        inst.bits |= (next as u128) << (32 * dwords);
        if dpp != Variant::Plain {
            inst.variant = dpp;
            if !opcode.dpp && !inst.opcode.name.starts_with("v_fma_mix") {
                return Err(refuse(format!("{} has no DPP form", opcode.name)));
            }
            if literal {
                return Err(refuse(format!("{} has DPP and a literal", opcode.name)));
            }
        } else {
            inst.literal = Some(next);
        }
    }
    for (name, source) in &sources {
        check_source(&inst, name, *source).map_err(&refuse)?;
    }
    Ok(inst)
}

/// Fields that hold a source code.
fn sources(inst: &Inst) -> Vec<(&'static str, u32)> {
    if let Some(second) = inst.second {
        let x = inst.opcode.operand("src0").map(|_| ("srcx0", inst.get("srcx0")));
        let y = second.operand("src0").map(|_| ("srcy0", inst.get("srcy0")));
        return x.into_iter().chain(y).collect();
    }
    let is_source = |o: &Operand| o.kind.starts_with("src") || o.kind.starts_with("ssrc");
    let all = inst.opcode.operands().filter(|(_, o)| is_source(o));
    all.map(|(name, _)| (name, inst.get(name))).collect()
}

fn check_source(inst: &Inst, name: &str, source: u32) -> Result<(), String> {
    let fault = |what: &str| Err(format!("{} {name}: {what} ({source})", inst.opcode.name));
    let lanes = matches!(source, 233 | 234 | 250) && name == "src0" && inst.variant != Variant::Plain;
    match source {
        209..=232 | 249 | 254 => fault("a reserved source"),
        235..=239 | 251 | 252 => fault("a source that no compute kernel has"),
        233 | 234 | 250 if !lanes => fault("DPP where there is none"),
        _ => Ok(()),
    }
}

/// All instructions up to the end of the code.
pub fn decode_all(code: &[u32]) -> Result<Vec<Inst>, Refused> {
    let (mut all, mut at) = (Vec::new(), 0);
    while at < code.len() {
        let inst = decode(code, at)?;
        at += inst.dwords;
        all.push(inst);
    }
    Ok(all)
}
