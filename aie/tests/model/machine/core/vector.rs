//! What instructions make of vectors: lanes of 4 to 64 bits, from the lowest.
//!
//! Sources: the names and operands of the public LLVM backend's instructions; the orders of bf16 as they were measured on
//! a Phoenix and the bytes that shuffle modes choose (FIM43-Redeye/xdna-emu has both), which are what the modes' names say.

use super::super::number::{halves, narrow, widen};
use super::Fault;
use super::registers::Parts;

/// Where an instruction has its operands.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Place {
    Registers,
    Load,
    Store,
    Compare,
    Extract,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lanes {
    Signed(u32),
    Bf16,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Copy,
    Shuffle,
    /// By bytes, out of two vectors.
    Shift,
    Add(u32),
    Sub(u32),
    And,
    Or,
    Broadcast(u32),
    /// Of one lane of a vector.
    BroadcastLane(u32),
    PushLow(u32),
    PushHigh(u32),
    Insert(u32),
    Select(u32),
    Extract(u32, Sign),
    Less(Lanes),
    AtLeast(Lanes),
    Max(Lanes),
    Min(Lanes),
    /// bf16 to f32, and back.
    Widen,
    Narrow,
    /// Lanes of so many bits to wider ones, shifted up, and back: shifted down, rounded and saturated.
    Ups(u32, u32, Sign),
    Srs(u32, u32, Sign),
    /// The same with no shift.
    Unpack(u32, u32, Sign),
    Pack(u32, u32, Sign),
}

/// How lanes are read: as the mnemonic says, or as a control register does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sign {
    Signed,
    Dynamic,
}

/// What a conversion needs of control registers.
#[derive(Clone, Copy)]
pub struct Modes {
    pub rounding: Option<u32>,
    pub saturation: Option<u32>,
    /// Whether lanes of dynamic sign have one.
    pub signed: Option<u32>,
}

impl Kind {
    pub fn parse(mnemonic: &str) -> Option<(Kind, Place)> {
        let (mnemonic, place) = match mnemonic.split_once('.') {
            Some(("vlda", rest)) => (format!("v{rest}"), Place::Load),
            Some(("vst", rest)) => (format!("v{rest}"), Place::Store),
            Some(("vlt" | "vge", _)) => (mnemonic.to_string(), Place::Compare),
            Some(("vextract", _)) => (mnemonic.to_string(), Place::Extract),
            _ => (mnemonic.to_string(), Place::Registers),
        };
        let parts: Vec<&str> = mnemonic.split('.').collect();
        let bits = |text: &str| text.parse::<u32>().ok();
        // s16 and d16.
        let typed = |text: &str| {
            let sign = if text.starts_with('s') { Sign::Signed } else { Sign::Dynamic };
            Some((bits(text.strip_prefix(['s', 'd'])?)?, sign))
        };
        let lanes = |text: &str| match text {
            "bf16" => Some(Lanes::Bf16),
            _ => typed(text).filter(|(_, sign)| *sign == Sign::Signed).map(|(bits, _)| Lanes::Signed(bits)),
        };
        let kind = match parts.as_slice() {
            ["vmov"] => Kind::Copy,
            ["vshuffle"] => Kind::Shuffle,
            ["vshift"] => Kind::Shift,
            ["vadd", width] => Kind::Add(bits(width)?),
            ["vsub", width] => Kind::Sub(bits(width)?),
            ["vband"] => Kind::And,
            ["vbor"] => Kind::Or,
            ["vbcst", width] => Kind::Broadcast(bits(width)?),
            ["vextbcst", width] => Kind::BroadcastLane(bits(width)?),
            ["vpush", "lo", width] => Kind::PushLow(bits(width)?),
            ["vpush", "hi", width] => Kind::PushHigh(bits(width)?),
            ["vinsert", width] => Kind::Insert(bits(width)?),
            ["vsel", width] => Kind::Select(bits(width)?),
            ["vextract", lane] => typed(lane).map(|(bits, sign)| Kind::Extract(bits, sign))?,
            ["vlt", lane] => Kind::Less(lanes(lane)?),
            ["vge", lane] => Kind::AtLeast(lanes(lane)?),
            ["vmax_lt", lane] => Kind::Max(lanes(lane)?),
            ["vmin_ge", lane] => Kind::Min(lanes(lane)?),
            ["vconv", "fp32", "bf16"] => Kind::Widen,
            ["vconv", "bf16", "fp32"] => Kind::Narrow,
            ["vups", wide, narrow] => Kind::Ups(typed(narrow)?.0, typed(wide)?.0, typed(narrow)?.1),
            ["vsrs", narrow, wide] => Kind::Srs(typed(wide)?.0, typed(narrow)?.0, typed(narrow)?.1),
            ["vunpack", wide, narrow] => Kind::Unpack(typed(narrow)?.0, typed(wide)?.0, typed(narrow)?.1),
            ["vpack", narrow, wide] => Kind::Pack(typed(wide)?.0, typed(narrow)?.0, typed(narrow)?.1),
            _ => return None,
        };
        Some((kind, place))
    }
}

/// A lane of so many bits.
fn lane(parts: &Parts, bits: u32, index: usize) -> u64 {
    let words = parts.as_flattened();
    let start = index * bits as usize;
    match bits {
        64 => u64::from(words[start / 32 + 1]) << 32 | u64::from(words[start / 32]),
        32 => u64::from(words[start / 32]),
        _ => u64::from(words[start / 32] >> (start % 32) & ((1 << bits) - 1)),
    }
}

fn set_lane(parts: &mut Parts, bits: u32, index: usize, value: u64) {
    let words = parts.as_flattened_mut();
    let start = index * bits as usize;
    match bits {
        64 => (words[start / 32], words[start / 32 + 1]) = (value as u32, (value >> 32) as u32),
        32 => words[start / 32] = value as u32,
        _ => {
            let mask = ((1u32 << bits) - 1) << (start % 32);
            words[start / 32] = words[start / 32] & !mask | (value as u32) << (start % 32) & mask;
        }
    }
}

fn signed(value: u64, bits: u32) -> i64 {
    (value << (64 - bits)) as i64 >> (64 - bits)
}

/// A vector's 512 bits, lane by lane.
fn lanes(bits: u32, make: impl Fn(usize) -> u64) -> Parts {
    let mut made = [[0; 8]; 4];
    (0..512 / bits as usize).for_each(|index| set_lane(&mut made, bits, index, make(index)));
    made
}

/// The place of a lane in an order, or nothing for what has none: a NaN. -0 is below 0.
fn order(of: Lanes, parts: &Parts, index: usize) -> Option<i64> {
    match of {
        Lanes::Signed(bits) => Some(signed(lane(parts, bits, index), bits)),
        Lanes::Bf16 => {
            let bits = lane(parts, 16, index) as i64;
            let magnitude = bits & 0x7FFF;
            let order = if bits >> 15 == 1 { -magnitude - 1 } else { magnitude };
            (magnitude <= 0x7F80).then_some(order)
        }
    }
}

fn width(of: Lanes) -> u32 {
    if let Lanes::Signed(bits) = of { bits } else { 16 }
}

/// A bit for each lane in which a comparison holds; none holds of a NaN.
pub fn compare(kind: Kind, left: &Parts, right: &Parts) -> Result<u32, Fault> {
    let (Kind::Less(of) | Kind::AtLeast(of) | Kind::Max(of) | Kind::Min(of)) = kind else {
        return Err("this comparison is not modelled".into());
    };
    let less = matches!(kind, Kind::Less(_) | Kind::Max(_));
    let holds = |index: &usize| match (order(of, left, *index), order(of, right, *index)) {
        (Some(left), Some(right)) => (left < right) == less,
        _ => false,
    };
    Ok((0..512 / width(of) as usize).filter(holds).fold(0, |mask, index| mask | 1 << index))
}

/// A vector out of two. `control` is the scalar operand, or the register that chooses how; `index` is where an insertion
/// goes.
pub fn combine(kind: Kind, left: &Parts, right: &Parts, control: u32, index: Option<u32>) -> Result<Parts, Fault> {
    let one = |bits: u32| u64::from(control) & (u64::MAX >> (64 - bits));
    let last = |bits: u32| 512 / bits as usize - 1;
    Ok(match kind {
        Kind::Copy => *left,
        Kind::Shuffle => shuffle(left, right, control)?,
        Kind::Shift => {
            let start = (control & 63) as usize;
            let of = |byte: usize| if byte < 64 { lane(left, 8, byte) } else { lane(right, 8, byte - 64) };
            lanes(8, |index| of(start + index))
        }
        Kind::Add(bits) => lanes(bits, |i| lane(left, bits, i).wrapping_add(lane(right, bits, i))),
        Kind::Sub(bits) => lanes(bits, |i| lane(left, bits, i).wrapping_sub(lane(right, bits, i))),
        Kind::And => lanes(32, |i| lane(left, 32, i) & lane(right, 32, i)),
        Kind::Or => lanes(32, |i| lane(left, 32, i) | lane(right, 32, i)),
        Kind::Broadcast(bits) => lanes(bits, |_| one(bits)),
        Kind::BroadcastLane(bits) => {
            let chosen = lane(left, bits, control as usize & last(bits));
            lanes(bits, |_| chosen)
        }
        Kind::PushLow(bits) => lanes(bits, |i| if i == 0 { one(bits) } else { lane(left, bits, i - 1) }),
        Kind::PushHigh(bits) => lanes(bits, |i| if i == last(bits) { one(bits) } else { lane(left, bits, i + 1) }),
        Kind::Insert(bits) => {
            let at = index.ok_or("an index that nothing has written")? as usize & last(bits);
            lanes(bits, |i| if i == at { one(bits) } else { lane(left, bits, i) })
        }
        Kind::Select(bits) => {
            lanes(bits, |i| if control >> i & 1 == 1 { lane(right, bits, i) } else { lane(left, bits, i) })
        }
        Kind::Max(of) | Kind::Min(of) => {
            // Where the comparison holds, the right one is taken.
            let (mask, bits) = (compare(kind, left, right)?, width(of));
            lanes(bits, |i| if mask >> i & 1 == 1 { lane(right, bits, i) } else { lane(left, bits, i) })
        }
        _ => return Err("this vector instruction is not modelled".into()),
    })
}

/// The lane of a vector as a scalar.
pub fn extract(kind: Kind, from: &Parts, index: u32) -> Result<u32, Fault> {
    let Kind::Extract(bits, sign) = kind else { return Err("this extraction is not modelled".into()) };
    if sign == Sign::Dynamic && bits < 32 {
        return Err("extractions of a sign that a register has are not modelled".into());
    }
    Ok(signed(lane(from, bits, index as usize & (512 / bits as usize - 1)), bits) as u32)
}

/// Which of two vectors' lanes each lane takes: the transposition that the mode's name gives, of which a mode has the
/// low or the high half.
fn shuffle(left: &Parts, right: &Parts, mode: u32) -> Result<Parts, Fault> {
    // Bits of a lane, rows and columns, and the half.
    let (bits, rows, columns, high) = match mode {
        2 | 3 => (16, 32, 2, mode == 3),
        4 | 5 => (32, 16, 2, mode == 5),
        16 | 17 => (32, 2, 16, mode == 17),
        18 | 19 => (16, 2, 32, mode == 19),
        28 => (16, 8, 4, false),
        29 => (16, 4, 8, false),
        34 => (32, 4, 4, false),
        _ => return Err(format!("shuffle mode {mode} is not modelled")),
    };
    let count = 512 / bits as usize;
    let of = |index: usize| if index < count { lane(left, bits, index) } else { lane(right, bits, index - count) };
    let transposed = |index: usize| {
        let (column, row) = (index / rows, index % rows);
        row * columns + column
    };
    Ok(lanes(bits, |index| of(transposed(index + if high { count } else { 0 }))))
}

/// A conversion of `count` parts; `shift` is the conversion's own.
pub fn convert(kind: Kind, from: &Parts, count: u8, shift: u32, modes: Modes) -> Result<Parts, Fault> {
    let mut made = [[0; 8]; 4];
    match kind {
        Kind::Copy => return Ok(*from),
        Kind::Widen => {
            let values = halves(from.as_flattened()).map(|half| widen(half).to_bits());
            made.as_flattened_mut()
                .iter_mut()
                .zip(values.take(8 * 2 * count as usize))
                .for_each(|(to, bits)| *to = bits);
        }
        Kind::Narrow => {
            if modes.rounding != Some(12) {
                return Err(format!("rounding mode {:?} is not modelled", modes.rounding));
            }
            let values = from.as_flattened()[..8 * count as usize].iter().map(|bits| narrow(f32::from_bits(*bits)));
            values.enumerate().for_each(|(index, bits)| set_lane(&mut made, 16, index, u64::from(bits)));
        }
        Kind::Ups(narrow, wide, sign) | Kind::Unpack(narrow, wide, sign) => {
            for index in 0..256 * count as usize / narrow as usize {
                let value = read(from, narrow, index, sign, modes)?;
                set_lane(&mut made, wide, index, (value << shift.min(63)) as u64);
            }
        }
        Kind::Srs(wide, narrow, sign) | Kind::Pack(wide, narrow, sign) => {
            for index in 0..256 * count as usize / wide as usize {
                let value = signed(lane(from, wide, index), wide);
                let value = if shift == 0 { i128::from(value) } else { round(value, shift, modes)? };
                set_lane(&mut made, narrow, index, saturate(value, narrow, sign, modes)? as u64);
            }
        }
        _ => return Err("this conversion is not modelled".into()),
    }
    Ok(made)
}

fn has_sign(sign: Sign, modes: Modes) -> Result<bool, Fault> {
    match (sign, modes.signed) {
        (Sign::Signed, _) | (Sign::Dynamic, Some(1)) => Ok(true),
        (Sign::Dynamic, Some(0)) => Ok(false),
        (Sign::Dynamic, other) => Err(format!("sign {other:?} of lanes is not modelled")),
    }
}

fn read(from: &Parts, bits: u32, index: usize, sign: Sign, modes: Modes) -> Result<i64, Fault> {
    let value = lane(from, bits, index);
    Ok(if has_sign(sign, modes)? { signed(value, bits) } else { value as i64 })
}

/// Shifted down and rounded: 0 is towards minus infinity, 12 to the nearest, ties to even.
fn round(value: i64, shift: u32, modes: Modes) -> Result<i128, Fault> {
    let value = i128::from(value);
    let (floor, rest, half) = (value >> shift, value & ((1 << shift) - 1), 1 << (shift - 1));
    match modes.rounding {
        Some(0) => Ok(floor),
        Some(12) => Ok(floor + i128::from(rest > half || rest == half && floor & 1 == 1)),
        other => Err(format!("rounding mode {other:?} is not modelled")),
    }
}

fn saturate(value: i128, bits: u32, sign: Sign, modes: Modes) -> Result<i128, Fault> {
    let (low, high) =
        if has_sign(sign, modes)? { (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) } else { (0, (1 << bits) - 1) };
    match modes.saturation {
        Some(0) => Ok(value),
        Some(1) => Ok(value.clamp(low, high)),
        other => Err(format!("saturation {other:?} is not modelled")),
    }
}
