//! The registers, in arrays. What nothing has written is unknown.

use kiln_aie::register::{File, NAMED, Register};

use super::super::memory::Part;

/// Scalars of all files, one file behind another.
const SCALARS: usize = 76 + NAMED.len();
/// Halves of 12 vectors, then quarters of 9 accumulators.
const PARTS: usize = 24 + 36;

/// The place of a scalar.
pub type Scalar = u8;

/// A vector, an accumulator or a piece of one: parts of 256 bits, one behind another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    pub first: u8,
    pub count: u8,
}

/// The value of a span: as many parts as it has.
pub type Parts = [Part; 4];

pub struct Registers {
    scalars: [u32; SCALARS],
    known_scalars: u128,
    parts: [Part; PARTS],
    known_parts: u64,
}

/// The place of a scalar register, where it is one.
pub fn scalar(register: Register) -> Option<Scalar> {
    let first = match register.file {
        File::R => 0,
        File::P => 32,
        File::M => 40,
        File::Dn => 48,
        File::Dj => 56,
        File::Dc => 64,
        File::S => 72,
        File::Named => 76,
        _ => return None,
    };
    Some(first + register.index)
}

/// The scalar of this name.
pub fn named(name: &str) -> Scalar {
    Register::parse(name).and_then(scalar).expect("a scalar's name")
}

/// The parts of a vector register, where it is one.
pub fn span(register: Register) -> Option<Span> {
    let (vector, accumulator) = (2 * register.index, 24 + 4 * register.index);
    let (first, count) = match register.file {
        File::X => (vector, 2),
        File::Wl => (vector, 1),
        File::Wh => (vector + 1, 1),
        File::Cm => (accumulator, 4),
        File::Bml => (accumulator, 2),
        File::Bmh => (accumulator + 2, 2),
        File::Amll => (accumulator, 1),
        File::Amlh => (accumulator + 1, 1),
        File::Amhl => (accumulator + 2, 1),
        File::Amhh => (accumulator + 3, 1),
        _ => return None,
    };
    Some(Span { first, count })
}

impl Registers {
    pub fn new() -> Registers {
        Registers { scalars: [0; SCALARS], known_scalars: 0, parts: [[0; 8]; PARTS], known_parts: 0 }
    }

    pub fn scalar(&self, place: Scalar) -> Option<u32> {
        (self.known_scalars >> place & 1 == 1).then(|| self.scalars[place as usize])
    }

    pub fn write_scalar(&mut self, place: Scalar, value: Option<u32>) {
        self.known_scalars &= !(1 << place);
        if let Some(value) = value {
            // Pointers and what moves them have 20 bits.
            let short = (32..72).contains(&place);
            self.scalars[place as usize] = if short { value & 0xF_FFFF } else { value };
            self.known_scalars |= 1 << place;
        }
    }

    /// The parts of a span, where all are known; zero behind them.
    pub fn parts(&self, span: Span) -> Option<Parts> {
        let mask = ((1 << span.count) - 1) << span.first;
        if self.known_parts & mask != mask {
            return None;
        }
        let mut parts = [[0; 8]; 4];
        let (first, count) = (span.first as usize, span.count as usize);
        parts[..count].copy_from_slice(&self.parts[first..first + count]);
        Some(parts)
    }

    pub fn write_part(&mut self, place: u8, part: Option<&Part>) {
        self.known_parts &= !(1 << place);
        if let Some(part) = part {
            self.parts[place as usize] = *part;
            self.known_parts |= 1 << place;
        }
    }
}
