//! The registers of the core, and which of them share storage.

use std::fmt;

/// A register file. Vectors and accumulators have names for a whole and for its parts: `x0` is `wl0` and `wh0`; `cm0`
/// is `bml0` and `bmh0`; `bml0` is `amll0` and `amlh0`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum File {
    /// 32-bit scalars.
    R,
    /// 20-bit pointers.
    P,
    /// What a pointer is moved by.
    M,
    Dn,
    Dj,
    Dc,
    /// What a pointer is moved by in two dimensions: `m`, `dn`, `dj` and `dc` of one index.
    D,
    /// Shifts of conversions.
    S,
    /// Low half of a vector, 256 bits.
    Wl,
    /// High half.
    Wh,
    /// A vector, 512 bits.
    X,
    /// Quarters of an accumulator, 256 bits.
    Amll,
    Amlh,
    Amhl,
    Amhh,
    /// Low half of an accumulator, 512 bits: 16 f32.
    Bml,
    /// High half.
    Bmh,
    /// An accumulator, 1024 bits.
    Cm,
    /// A register with a name of its own; the index is its place in [`NAMED`].
    Named,
}

/// Names of the files but [`File::Named`], and how many registers each holds.
const FILES: [(&str, File, u8); 18] = [
    ("r", File::R, 32),
    ("p", File::P, 8),
    ("m", File::M, 8),
    ("dn", File::Dn, 8),
    ("dj", File::Dj, 8),
    ("dc", File::Dc, 8),
    ("d", File::D, 8),
    ("s", File::S, 4),
    ("wl", File::Wl, 12),
    ("wh", File::Wh, 12),
    ("x", File::X, 12),
    ("amll", File::Amll, 9),
    ("amlh", File::Amlh, 9),
    ("amhl", File::Amhl, 9),
    ("amhh", File::Amhh, 9),
    ("bml", File::Bml, 9),
    ("bmh", File::Bmh, 9),
    ("cm", File::Cm, 9),
];

/// Link, stack, hardware loop, control (`cr`) and status (`sr`) registers.
pub const NAMED: [&str; 29] = [
    "lr",
    "sp",
    "ls",
    "le",
    "lc",
    "dp",
    "core_id",
    "crvaddsign",
    "crf2fmask",
    "crf2imask",
    "crfpmask",
    "crmcden",
    "crpacksign",
    "crrnd",
    "crscden",
    "crsrssign",
    "crsat",
    "crupssign",
    "crunpacksign",
    "srcarry",
    "srcompr_uf",
    "srf2fflags",
    "srf2iflags",
    "srfpflags",
    "srms0",
    "srsrs_of",
    "srss0",
    "srsparse_of",
    "srups_of",
];

#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Register {
    pub file: File,
    pub index: u8,
}

impl Register {
    /// The register of this name, in lower case.
    pub fn parse(name: &str) -> Option<Register> {
        if let Some(index) = NAMED.iter().position(|named| *named == name) {
            return Some(Register { file: File::Named, index: index as u8 });
        }
        let digits = name.find(|c: char| c.is_ascii_digit())?;
        let (prefix, number) = name.split_at(digits);
        let index: u8 = number.parse().ok()?;
        let (_, file, count) = *FILES.iter().find(|(file, ..)| *file == prefix)?;
        (index < count && (number == "0" || !number.starts_with('0'))).then_some(Register { file, index })
    }

    /// The smallest registers that this one consists of: halves of vectors, quarters of accumulators,
    /// what moves a pointer in two dimensions, else itself.
    pub fn parts(self) -> Vec<Register> {
        let files: &[File] = match self.file {
            File::D => &[File::M, File::Dn, File::Dj, File::Dc],
            File::X => &[File::Wl, File::Wh],
            File::Bml => &[File::Amll, File::Amlh],
            File::Bmh => &[File::Amhl, File::Amhh],
            File::Cm => &[File::Amll, File::Amlh, File::Amhl, File::Amhh],
            _ => return vec![self],
        };
        files.iter().map(|&file| Register { file, index: self.index }).collect()
    }

    pub fn overlaps(self, other: Register) -> bool {
        let parts = other.parts();
        self.parts().iter().any(|part| parts.contains(part))
    }
}

impl fmt::Display for Register {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.file == File::Named {
            return f.write_str(NAMED[self.index as usize]);
        }
        let name = FILES.iter().find(|(_, file, _)| *file == self.file).map_or("?", |(name, ..)| *name);
        write!(f, "{name}{}", self.index)
    }
}
