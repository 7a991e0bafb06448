//! Formats with a scale for each few weights of a row, as data: the bits of a weight, and the layout of scales. The
//! kernels are specialised by this description (shaders/weights.glsl), and the reference decodes by it.
//!
//! On a device a row of weights is cut into loads of [`LOAD`] weights, whose bits lie in planes:
//!
//! ```text
//! first plane    16 bytes a load of 4 bits, 8 of 2; of 8 bits, the bytes of weights 0 to 15
//! second plane   8 bytes a load of 2 high bits, 4 of 1; of 8 bits, the bytes of weights 16 to 31
//! small scales   of each 16 weights, in formats that have them: 16 or 12 bytes for each SUPER
//! zeros          up to a multiple of 16 bytes
//! ```
//!
//! In a plane, weights 0 to 15 of a load are block 0, and 16 to 31 block 1:
//!
//! ```text
//! 4 bits   weight j of block b at bits 4 b of byte j
//! 2 bits   weight 4 i + j of block b at bits 2 i of byte 4 b + j
//! 1 bit    weight 4 i + j of block b at bit 4 b + i of byte j
//! ```
//!
//! So a shift and a mask of a word give four weights of one block as the bytes that a packed dot product takes.

use half::f16;

/// Weights of a load, and of a group that shares a scale in most formats.
pub const LOAD: usize = 32;
/// The number of weights whose scales share a scale of scales.
pub const SUPER: usize = 256;
/// The number of loads in [`SUPER`] weights.
const LOADS: usize = SUPER / LOAD;
/// The values of the elements of a format with a table (IQ4_NL's and IQ4_XS's).
pub const VALUES: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// The scaling of elements `q`. `z` is the element that stands for zero; with a table, `q - z` is the table's value.
/// Each kind gives its formula, its bytes and their place. The value is the SCALES constant of the kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scales {
    /// `d (q - z)`: d f16 for each 32, beside the rows.
    Half = 0,
    /// `d q + m`: d and m f16 for each 32, beside the rows.
    HalfOffset = 1,
    /// `d s q - m n`: beside the rows 16 bytes for each 256: d and m in f16, then for the eight groups, 4 bits each in
    /// a u32, the low bits of s, the low bits of n, and the high two bits of s below those of n.
    SixOffset = 2,
    /// `d (s - 32) (q - z)`: beside the rows 8 bytes for each 256: d in f16, then for the eight groups the high two
    /// bits of s in a u16, and the low four in a u32.
    Six = 3,
    /// `d s (q - z)`: s i8 for each 16, after the row; d f16 for each 256, beside the rows.
    Bytes = 4,
    /// `d (s - 32) (q - z)`: s 6 bits for each 16, after the row: for each 256 the low four bits of the sixteen in two
    /// u32, and the high two in a third; d f16 for each 256, beside the rows.
    SixBy16 = 5,
    /// `d s q - m n`: for each 16 a byte with s in its low half and n in its high one, after the row; d and m f16 for
    /// each 256, beside the rows.
    FourOffset = 6,
}

impl Scales {
    /// True if each group's scale is a product with a scale that [`SUPER`] weights share.
    pub fn share_a_scale(self) -> bool {
        self.whole() == SUPER
    }

    /// Bytes of the scales beside the rows, for a row of `loads` loads.
    fn beside(self, loads: usize) -> usize {
        let supers = loads.div_ceil(LOADS);
        match self {
            Scales::Half => 2 * loads,
            Scales::HalfOffset => 4 * loads,
            Scales::SixOffset => 16 * supers,
            Scales::Six => 8 * supers,
            Scales::Bytes | Scales::SixBy16 => 2 * supers,
            Scales::FourOffset => 4 * supers,
        }
    }

    /// The number of bytes after a row's other scales for each [`SUPER`] weights.
    fn behind(self) -> usize {
        match self {
            Scales::Half | Scales::HalfOffset | Scales::SixOffset | Scales::Six => 0,
            Scales::Bytes | Scales::FourOffset => 16,
            Scales::SixBy16 => 12,
        }
    }

    /// The weights of the largest group with a scale. Rows are whole multiples of it.
    fn whole(self) -> usize {
        match self {
            Scales::Half | Scales::HalfOffset => LOAD,
            _ => SUPER,
        }
    }

    /// Bytes of one record beside the rows, which begins with d.
    fn record(self) -> usize {
        self.beside(1)
    }
}

/// A format in which groups of weights share a scale.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Grouped {
    /// Bits of a weight in the first plane: 2, 4 or 8.
    pub low: usize,
    /// The high bits, in the second plane: 0, 1 or 2.
    pub high: usize,
    /// The element that stands for zero. 0 if an offset is subtracted instead.
    pub zero: u8,
    /// True if the elements are indices into the table [`VALUES`].
    pub table: bool,
    /// How the format stores its scales.
    pub scales: Scales,
}

/// The scales of a block's weights: `d s q - m n`, where `q` counts from the element that stands for zero.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ScaleParts {
    /// The scale that multiplies the scales of blocks.
    pub d: f16,
    /// The integer scale of the block, multiplied by `d`.
    pub s: i16,
    /// The scale that multiplies the offsets of blocks.
    pub m: f16,
    /// The integer offset of the block, multiplied by `m`.
    pub n: i16,
}

impl ScaleParts {
    /// The factor of a weight, and the offset that is then subtracted.
    pub(crate) fn factors(self) -> (f32, f32) {
        (self.d.to_f32() * f32::from(self.s), self.m.to_f32() * f32::from(self.n))
    }
}

impl Grouped {
    /// Bytes of a load in the first plane.
    pub fn first_bytes(self) -> usize {
        if self.low == 2 { 8 } else { 16 }
    }

    /// Bytes of a load in the second plane.
    pub fn second_bytes(self) -> usize {
        if self.low == 8 { 16 } else { 4 * self.high }
    }

    /// Bytes of the planes and small scales of `loads` loads.
    fn filled_bytes(self, loads: usize) -> usize {
        loads * (self.first_bytes() + self.second_bytes()) + loads / LOADS * self.scales.behind()
    }

    /// Bytes of a row of `cols` weights: its planes and small scales, padded to 16 bytes.
    pub fn row_bytes(self, cols: usize) -> usize {
        self.filled_bytes(cols.div_ceil(LOAD)).next_multiple_of(16)
    }

    /// Bytes of a row's scales beside the rows.
    pub fn scale_bytes(self, cols: usize) -> usize {
        self.scales.beside(cols.div_ceil(LOAD))
    }

    /// True if rows of `cols` weights can be stored in this format.
    pub fn holds(self, cols: usize) -> bool {
        cols.is_multiple_of(self.scales.whole())
    }

    /// The planes of a row of `cols` weights, and its small scales.
    pub fn planes(self, data: &mut [u8], cols: usize) -> [&mut [u8]; 3] {
        let loads = cols / LOAD;
        let (first, rest) = data.split_at_mut(loads * self.first_bytes());
        let (second, rest) = rest.split_at_mut(loads * self.second_bytes());
        let (small, padding) = rest.split_at_mut(loads / LOADS * self.scales.behind());
        padding.fill(0);
        [first, second, small]
    }

    /// Puts the elements of a load into its bytes of the planes. A word has four elements, each in a byte, so that
    /// shifts and masks move four at a time: files have tens of billions of elements.
    #[inline(always)]
    pub fn put(self, q: [u32; LOAD / 4], first: &mut [u8], second: &mut [u8]) {
        let (block0, block1) = ([q[0], q[1], q[2], q[3]], [q[4], q[5], q[6], q[7]]);
        match self.low {
            8 => {
                put_words(block0, first);
                put_words(block1, second);
                return;
            }
            4 => {
                const HALF: u32 = 0x0f0f_0f0f;
                let mut words = [0; 4];
                for i in 0..4 {
                    words[i] = block0[i] & HALF | (block1[i] & HALF) << 4;
                }
                put_words(words, first);
            }
            _ => put_words([pairs(block0, 0), pairs(block1, 0)], first),
        }
        match self.high {
            2 => put_words([pairs(block0, self.low), pairs(block1, self.low)], second),
            1 => {
                let mut bits = 0;
                for (i, q) in q.iter().enumerate() {
                    bits |= (q >> self.low & 0x0101_0101) << i;
                }
                put_words([bits], second);
            }
            _ => {}
        }
    }

    /// Decodes the first `out.len()` weights of a row, in whole loads. `data` is the whole row.
    pub fn decode(self, data: &[u8], scales: &[u8], out: &mut [f32]) {
        // Padding is less than a whole number of loads.
        let loads = data.len() * LOADS / self.filled_bytes(LOADS);
        let loads = if self.scales.whole() == LOAD { loads } else { loads / LOADS * LOADS };
        let (first, rest) = data.split_at(loads * self.first_bytes());
        let (second, small) = rest.split_at(loads * self.second_bytes());
        let planes = first.chunks_exact(self.first_bytes()).enumerate();
        for (out, (load, first)) in out.chunks_mut(LOAD).zip(planes) {
            let values = self.values(first, &second[load * self.second_bytes()..]);
            let factors = self.factors(scales, small, load);
            for (block, (out, values)) in out.chunks_mut(LOAD / 2).zip(values.chunks(LOAD / 2)).enumerate() {
                let (scale, least) = factors[block];
                out.iter_mut().zip(values).for_each(|(o, v)| *o = scale * v - least);
            }
        }
    }

    /// The unscaled weights of a load, given its bytes in the planes.
    pub(crate) fn values(self, first: &[u8], second: &[u8]) -> [f32; LOAD] {
        // Loops over arrays, which become vectors.
        let pairs = |plane: &[u8]| -> [u8; LOAD] {
            let (plane, mut q) = (&plane[..8], [0; LOAD]);
            for j in 0..LOAD {
                q[j] = plane[j / 16 * 4 + j % 4] >> (j % 16 / 4 * 2) & 3;
            }
            q
        };
        let mut values = [0.0; LOAD];
        if self.low == 8 {
            let (first, second) = (&first[..16], &second[..16]);
            for j in 0..16 {
                values[j] = f32::from(first[j] as i8);
                values[16 + j] = f32::from(second[j] as i8);
            }
            return values;
        }
        let mut q = [0; LOAD];
        if self.low == 4 {
            let first = &first[..16];
            for j in 0..16 {
                q[j] = first[j] & 15;
                q[16 + j] = first[j] >> 4;
            }
        } else {
            q = pairs(first);
        }
        if self.high == 2 {
            let high = pairs(second);
            for j in 0..LOAD {
                q[j] |= high[j] << self.low;
            }
        } else if self.high == 1 {
            let second = &second[..4];
            for j in 0..LOAD {
                q[j] |= (second[j % 4] >> (j / 4) & 1) << self.low;
            }
        }
        let zero = f32::from(self.zero);
        for j in 0..LOAD {
            values[j] = if self.table { f32::from(VALUES[usize::from(q[j] & 15)]) } else { f32::from(q[j]) - zero };
        }
        values
    }

    /// The factors of both blocks of a load, and the offsets that are then subtracted.
    fn factors(self, scales: &[u8], small: &[u8], load: usize) -> [(f32, f32); 2] {
        self.scale_parts(scales, small, load).map(ScaleParts::factors)
    }

    /// The stored scales of both blocks of a load. `scales` and `small` are the row's.
    pub(crate) fn scale_parts(self, scales: &[u8], small: &[u8], load: usize) -> [ScaleParts; 2] {
        let (of_super, i) = (load / LOADS, load % LOADS);
        let record = match self.scales {
            Scales::Half | Scales::HalfOffset => &scales[load * self.scales.record()..],
            _ => &scales[of_super * self.scales.record()..],
        };
        let half = |at: usize| f16::from_le_bytes([record[at], record[at + 1]]);
        let word = |of: &[u8], at: usize| u32::from_le_bytes([of[at], of[at + 1], of[at + 2], of[at + 3]]);
        let (d, zero) = (half(0), f16::from_bits(0));
        match self.scales {
            Scales::Half => [ScaleParts { d, s: 1, m: zero, n: 0 }; 2],
            Scales::HalfOffset => [ScaleParts { d, s: 1, m: half(2), n: -1 }; 2],
            Scales::SixOffset => {
                let part = |at: usize| word(record, at) >> (4 * i) & 15;
                let (s, n, high) = (part(4), part(8), part(12));
                let (s, n) = ((s | (high & 3) << 4) as i16, (n | (high & 12) << 2) as i16);
                [ScaleParts { d, s, m: half(2), n }; 2]
            }
            Scales::Six => {
                let high = u32::from(u16::from_le_bytes([record[2], record[3]])) >> (2 * i) & 3;
                let s = (word(record, 4) >> (4 * i) & 15 | high << 4) as i16 - 32;
                [ScaleParts { d, s, m: zero, n: 0 }; 2]
            }
            Scales::Bytes => [0, 1].map(|b| ScaleParts { d, s: i16::from(small[2 * load + b] as i8), m: zero, n: 0 }),
            Scales::SixBy16 => [0, 1].map(|b| {
                let (at, of) = (2 * i + b, &small[12 * of_super..]);
                let s = word(of, at / 8 * 4) >> (at % 8 * 4) & 15 | (word(of, 8) >> (2 * at) & 3) << 4;
                ScaleParts { d, s: s as i16 - 32, m: zero, n: 0 }
            }),
            Scales::FourOffset => [0, 1].map(|b| {
                let byte = i16::from(small[2 * load + b]);
                ScaleParts { d, s: byte & 15, m: half(2), n: byte >> 4 }
            }),
        }
    }

    /// For the scales of each record of a row, the largest magnitude of a weight, or NaN.
    pub fn bounds(self, scales: &[u8]) -> impl Iterator<Item = f32> + '_ {
        let elements = match (self.table, self.low) {
            (true, _) => 127.0,
            (_, 8) => 128.0,
            _ => f32::from(self.zero.max(((1u32 << (self.low + self.high)) - 1) as u8 - self.zero)),
        };
        let (of_scale, of_least) = match self.scales {
            Scales::Half => (1.0, 0.0),
            Scales::HalfOffset => (1.0, 1.0),
            Scales::SixOffset => (63.0, 63.0),
            Scales::Six | Scales::SixBy16 => (32.0, 0.0),
            Scales::Bytes => (128.0, 0.0),
            Scales::FourOffset => (15.0, 15.0),
        };
        scales.chunks_exact(self.scales.record()).map(move |record| {
            let half = |at: usize| f16::from_le_bytes([record[at], record[at + 1]]).to_f32().abs();
            let least = if of_least == 0.0 { 0.0 } else { of_least * half(2) };
            of_scale * elements * half(0) + least
        })
    }
}

/// Bits `at` and `at + 1` of a block's elements, in the layout of a plane of 2 bits.
#[inline(always)]
fn pairs(block: [u32; 4], at: usize) -> u32 {
    let mut bits = 0;
    for (i, q) in block.iter().enumerate() {
        bits |= (q >> at & 0x0303_0303) << (2 * i);
    }
    bits
}

#[inline(always)]
fn put_words<const N: usize>(words: [u32; N], out: &mut [u8]) {
    let out = &mut out[..4 * N];
    for i in 0..N {
        out[4 * i..4 * i + 4].copy_from_slice(&words[i].to_le_bytes());
    }
}
