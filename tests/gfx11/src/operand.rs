//! Where an instruction's values come from.

use crate::decode::{Inst, Variant};
use crate::fault::What;
use crate::float::{f16_to_f32, f32_to_f16};
use crate::isa::Operand;
use crate::ops::Lanes;
use crate::wave::{Span, Wave};

/// The same for all lanes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Scalar {
    /// A register or a pair.
    Reg(usize),
    /// A constant or literal.
    Const(u64),
    /// SCC.
    Scc,
}

impl Scalar {
    /// What source code `code` means to an operand of that format.
    pub fn of(code: u32, operand: Operand, literal: Option<u32>) -> Self {
        let wide = operand.bits == 64;
        let int = |x: i64| Self::Const(if wide { x as u64 } else { x as u32 as u64 });
        match code {
            128..=192 => int(code as i64 - 128),
            193..=208 => int(192 - code as i64),
            240..=248 => Self::Const(float_constant(code, operand)),
            253 => Self::Scc,
            255 => Self::Const(literal_of(literal.unwrap_or(0), operand)),
            _ => Self::Reg(code as usize & 127),
        }
    }

    /// The value and its poisoned bits.
    #[inline(always)]
    pub fn read(self, w: &Wave, wide: bool) -> (u64, u64) {
        match self {
            Self::Reg(r) => w.read_s(r, wide),
            Self::Const(x) => (x, 0),
            Self::Scc => (w.scc as u64, w.scc_poison as u64),
        }
    }
}

fn float_constant(code: u32, operand: Operand) -> u64 {
    let x = match code {
        240 => 0.5,
        241 => -0.5,
        242 => 1.0,
        243 => -1.0,
        244 => 2.0,
        245 => -2.0,
        246 => 4.0,
        247 => -4.0,
        _ => 1.0 / std::f64::consts::TAU,
    };
    match (operand.bits, operand.format) {
        (64, _) => f64::to_bits(x),
        (16, "bf16") => ((x as f32).to_bits() >> 16) as u64,
        (16, "f16") | (_, "pk2_f16") => f32_to_f16(x as f32) as u64,
        _ => (x as f32).to_bits() as u64,
    }
}

fn literal_of(literal: u32, operand: Operand) -> u64 {
    match (operand.bits, operand.format) {
        (64, "f64") => (literal as u64) << 32,
        (64, "i64") => literal as i32 as i64 as u64,
        (16, _) => (literal & 0xffff) as u64,
        _ => literal as u64,
    }
}

/// Moves lanes of source 0.
#[derive(Debug, Clone)]
pub struct Dpp {
    /// The lane that each reads, or none.
    from: [Option<u8>; 32],
    /// Lanes that may be written.
    enabled: u32,
    fi: bool,
    bc: bool,
}

impl Dpp {
    /// That of an instruction, if it has one.
    pub fn of(inst: &Inst) -> Result<Option<Self>, What> {
        match inst.variant {
            Variant::Plain => Ok(None),
            Variant::Dpp8 => {
                let from =
                    std::array::from_fn(|i| Some((i as u8 & !7) + inst.get(&format!("lane_sel_{}", i % 8)) as u8));
                Ok(Some(Self { from, enabled: u32::MAX, fi: inst.get("src0") == 234, bc: true }))
            }
            Variant::Dpp16 => {
                let control = inst.get("dpp");
                let refuse = || What::NotExecuted(format!("DPP control {control:#x}"));
                let n = (control & 15) as i32;
                let mut from = [None; 32];
                for (i, from) in from.iter_mut().enumerate() {
                    let (row, lane) = (i & 16, (i & 15) as i32);
                    let source = match control {
                        0..=0xff => lane & !3 | (control >> (2 * (lane & 3)) & 3) as i32,
                        0x101..=0x10f => lane + n,
                        0x111..=0x11f => lane - n,
                        0x121..=0x12f => (lane - n) & 15,
                        0x140 => 15 - lane,
                        0x141 => lane & 8 | (7 - (lane & 7)),
                        0x150..=0x15f => n,
                        0x160..=0x16f => lane ^ n,
                        _ => return Err(refuse()),
                    };
                    *from = (0..16).contains(&source).then(|| row as u8 + source as u8);
                }
                let (rows, banks) = (inst.get("row_mask"), inst.get("bank_mask"));
                let enabled = |i: usize| rows >> (i / 16) & 1 != 0 && banks >> (i / 4 % 4) & 1 != 0;
                let enabled = (0..32).filter(|i| enabled(*i)).fold(0, |all, i| all | 1u32 << i);
                // Rows 2 and 3 are those of a wave64's upper half.
                Ok(Some(Self { from, enabled, fi: inst.has("fi"), bc: inst.has("bc") }))
            }
        }
    }

    /// The moved lanes, their poison, and the lanes that are written.
    fn apply(&self, x: &Lanes, poison: [u32; 2], exec: u32, to: &mut Lanes) -> ([u32; 2], u32) {
        let (mut moved, mut written) = ([0; 2], 0);
        for (i, (from, to)) in self.from.iter().zip(to).enumerate() {
            match from.filter(|from| self.fi || exec >> from & 1 != 0) {
                Some(from) => {
                    *to = x[from as usize];
                    for (moved, poison) in moved.iter_mut().zip(poison) {
                        *moved |= (poison >> from & 1) << i;
                    }
                    written |= 1 << i;
                }
                None => {
                    *to = 0;
                    written |= (self.bc as u32) << i;
                }
            }
        }
        (moved, written & self.enabled)
    }
}

#[derive(Debug, Clone)]
enum Base {
    Vgpr(usize),
    Scalar(Scalar),
}

/// How a source's bits become the operation's.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Shape {
    /// 32 bits as they are.
    Word,
    /// One half, with zeros above.
    Half { high: bool },
    /// Both halves chosen, each with its sign turned or not.
    Pair { low: bool, high: bool, signs: u32 },
    /// An f32, or an f16 made an f32.
    Mix { half: Option<bool> },
}

/// A source of 32 bits a lane at most.
#[derive(Debug, Clone)]
pub struct Source {
    base: Base,
    shape: Shape,
    abs: bool,
    neg: bool,
    /// The sign bit; 0 where the format has none.
    sign: u32,
    dpp: Option<Dpp>,
}

const ZERO: Lanes = [0; 32];

impl Source {
    /// A source that is always 0.
    pub fn zero() -> Self {
        let base = Base::Scalar(Scalar::Const(0));
        Self { base, shape: Shape::Word, abs: false, neg: false, sign: 0, dpp: None }
    }

    /// A VGPR as it stands.
    pub fn vgpr(r: usize) -> Self {
        Self { base: Base::Vgpr(r), ..Self::zero() }
    }

    /// One half of a VGPR.
    pub fn half(r: usize, high: bool) -> Self {
        Self { shape: Shape::Half { high }, ..Self::vgpr(r) }
    }

    /// The literal.
    pub fn literal(inst: &Inst, bits: u32) -> Self {
        let x = inst.literal.unwrap_or(0);
        Self { base: Base::Scalar(Scalar::Const(if bits == 16 { x & 0xffff } else { x } as u64)), ..Self::zero() }
    }

    /// The source in that field, the `index`th of its instruction.
    pub fn of(inst: &Inst, field: &str, operand: Operand, index: u32) -> Result<Self, What> {
        let (code, bit) = (inst.get(field), |name: &str| inst.get(name) >> index & 1 != 0);
        let is_vgpr = operand.kind == "vgpr" || field.starts_with("vsrc");
        let encoding = inst.encoding();
        let short = matches!(encoding, "VOP1" | "VOP2" | "VOPC");
        let dpp = if index == 0 && encoding != "VOPD" { Dpp::of(inst)? } else { None };
        let mut register = match (is_vgpr, &dpp) {
            (_, Some(_)) => Some(inst.get("vsrc0") as usize),
            (true, _) => Some(code as usize & 255),
            _ => (code >= 256).then(|| code as usize - 256),
        };
        let mut high = encoding == "VOP3" && bit("opsel");
        if short && operand.bits == 16 && register.is_some_and(|r| r >= 128) {
            (register, high) = (register.map(|r| r - 128), true);
        }
        let base = match register {
            Some(r) => Base::Vgpr(r),
            None => Base::Scalar(Scalar::of(code, operand, inst.literal)),
        };
        let sign = match operand.format {
            "f16" | "bf16" => 0x8000,
            "f32" => 0x8000_0000,
            _ => 0,
        };
        let (mut abs, mut neg) = match (encoding, inst.variant) {
            ("VOP3" | "VOP3SD" | "VOP3P", _) => (bit("abs"), bit("neg")),
            (_, Variant::Dpp16) if index == 0 => (inst.has("src0_abs"), inst.has("src0_neg")),
            (_, Variant::Dpp16) if index == 1 => (inst.has("src1_abs"), inst.has("src1_neg")),
            _ => (false, false),
        };
        let name = inst.opcode.name;
        let mut shape = if operand.bits == 16 { Shape::Half { high } } else { Shape::Word };
        let mut sign = sign;
        if encoding == "VOP3P" {
            let opsel_hi = inst.get("opsel_hi") | inst.get("opsel_hi2") << 2;
            if name.starts_with("v_fma_mix") {
                let half = opsel_hi >> index & 1 != 0;
                shape = Shape::Mix { half: half.then_some(bit("opsel")) };
                (abs, sign) = (bit("neg_hi"), 0x8000_0000);
                if half
                    && let Base::Scalar(Scalar::Const(x)) = &base
                    && code != 255
                {
                    // A constant is one of the format that the modifier says.
                    let f16 = Operand { format: "f16", bits: 16, ..operand };
                    let x = if (240..=248).contains(&code) { Scalar::of(code, f16, None) } else { Scalar::Const(*x) };
                    return Ok(Self { base: Base::Scalar(x), shape, abs, neg, sign, dpp });
                }
            } else if operand.format.starts_with("pk2") {
                let float = operand.format.ends_with("f16");
                let signs = if float { (bit("neg") as u32) << 15 | (bit("neg_hi") as u32) << 31 } else { 0 };
                shape = Shape::Pair { low: bit("opsel"), high: opsel_hi >> index & 1 != 0, signs };
                neg = false;
            } else if sign == 0 {
                neg = false;
            }
        }
        Ok(Self { base, shape, abs: abs && sign != 0, neg: neg && sign != 0, sign, dpp })
    }

    /// Registers that it reads.
    pub fn span(&self) -> Option<Span> {
        match self.base {
            Base::Vgpr(first) => Some(Span { scalar: false, first, count: 1 }),
            Base::Scalar(Scalar::Reg(first)) => Some(Span { scalar: true, first, count: 1 }),
            Base::Scalar(_) => None,
        }
    }

    /// All lanes of one half of the wave, their poison by halves of the value, and the lanes that DPP lets be written.
    #[inline]
    pub fn fetch<'a>(&'a self, w: &'a Wave, half: usize, buffer: &'a mut Lanes) -> (&'a Lanes, [u32; 2], u32) {
        let plain = matches!(self.shape, Shape::Word) && !self.abs && !self.neg;
        match &self.base {
            Base::Vgpr(r) => {
                let (x, poison) = (&w.v[half * 256 + r], w.v_poison[half * 256 + r]);
                match &self.dpp {
                    None if plain => (x, poison, u32::MAX),
                    None => {
                        self.change(x, buffer);
                        (buffer, self.shape_poison(poison), u32::MAX)
                    }
                    Some(dpp) => {
                        let mut moved = ZERO;
                        let (poison, written) = dpp.apply(x, poison, w.exec(half), &mut moved);
                        self.change(&moved, buffer);
                        (buffer, self.shape_poison(poison), written)
                    }
                }
            }
            Base::Scalar(Scalar::Const(0)) if plain => (&ZERO, [0; 2], u32::MAX),
            Base::Scalar(s) => {
                let (x, poison) = s.read(w, false);
                let poison = if poison == 0 { [0; 2] } else { [u32::MAX; 2] };
                match plain {
                    true => *buffer = [x as u32; 32],
                    false => self.change(&[x as u32; 32], buffer),
                }
                (buffer, poison, u32::MAX)
            }
        }
    }

    fn shape_poison(&self, [low, high]: [u32; 2]) -> [u32; 2] {
        match self.shape {
            Shape::Word => [low, high],
            Shape::Half { high: false } => [low, 0],
            Shape::Half { high: true } => [high, 0],
            Shape::Pair { low: l, high: h, .. } => [if l { high } else { low }, if h { high } else { low }],
            Shape::Mix { half: None } => [low | high; 2],
            Shape::Mix { half: Some(h) } => [if h { high } else { low }; 2],
        }
    }

    #[inline]
    fn change(&self, x: &Lanes, out: &mut Lanes) {
        let shift = |high: bool| 16 * high as u32;
        match self.shape {
            Shape::Word => *out = *x,
            Shape::Half { high } => (0..32).for_each(|i| out[i] = x[i] >> shift(high) & 0xffff),
            Shape::Pair { low, high, signs } => {
                let (l, h) = (shift(low), shift(high));
                (0..32).for_each(|i| out[i] = (x[i] >> l & 0xffff | x[i] >> h << 16) ^ signs);
            }
            Shape::Mix { half: None } => *out = *x,
            Shape::Mix { half: Some(high) } => {
                let s = shift(high);
                (0..32).for_each(|i| out[i] = f16_to_f32(x[i] >> s & 0xffff).to_bits());
            }
        }
        if self.abs {
            (0..32).for_each(|i| out[i] &= !self.sign);
        }
        if self.neg {
            (0..32).for_each(|i| out[i] ^= self.sign);
        }
    }
}

/// A source of up to 64 bits, one lane at a time.
#[derive(Debug, Clone)]
pub struct WideSource {
    narrow: Option<Source>,
    register: Option<usize>,
    scalar: Scalar,
    abs: bool,
    neg: bool,
}

impl WideSource {
    /// See [`Source::of`].
    pub fn of(inst: &Inst, field: &str, operand: Operand, index: u32) -> Result<Self, What> {
        let mut of = Self { narrow: None, register: None, scalar: Scalar::Const(0), abs: false, neg: false };
        if operand.bits < 64 {
            of.narrow = Some(Source::of(inst, field, operand, index)?);
            return Ok(of);
        }
        let code = inst.get(field);
        let is_vgpr = operand.kind == "vgpr" || field.starts_with("vsrc");
        of.register = if is_vgpr { Some(code as usize & 255) } else { (code >= 256).then(|| code as usize - 256) };
        if of.register.is_none() {
            of.scalar = Scalar::of(code, operand, inst.literal);
        }
        if inst.variant != Variant::Plain {
            return Err(What::NotExecuted(format!("{} of 64 bits with DPP", inst.opcode.name)));
        }
        let float = operand.format == "f64";
        of.abs = float && inst.get("abs") >> index & 1 != 0;
        of.neg = float && inst.get("neg") >> index & 1 != 0;
        Ok(of)
    }

    /// Values and poisoned lanes.
    pub fn fetch(&self, w: &Wave, half: usize) -> ([u64; 32], u32) {
        if let Some(narrow) = &self.narrow {
            let mut buffer = ZERO;
            let (x, [low, high], _) = narrow.fetch(w, half, &mut buffer);
            return (std::array::from_fn(|i| x[i] as u64), low | high);
        }
        let (mut x, poison) = match self.register {
            Some(r) => {
                let at = half * 256 + r;
                let (low, high) = (&w.v[at], &w.v[(at + 1).min(w.v.len() - 1)]);
                let poison =
                    w.v_poison[at].iter().chain(&w.v_poison[(at + 1).min(w.v.len() - 1)]).fold(0, |a, b| a | b);
                (std::array::from_fn(|i| low[i] as u64 | (high[i] as u64) << 32), poison)
            }
            None => {
                let (x, poison) = self.scalar.read(w, true);
                ([x; 32], if poison == 0 { 0 } else { u32::MAX })
            }
        };
        if self.abs {
            x.iter_mut().for_each(|x| *x &= !(1 << 63));
        }
        if self.neg {
            x.iter_mut().for_each(|x| *x ^= 1 << 63);
        }
        (x, poison)
    }
}
