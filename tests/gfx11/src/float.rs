//! Floats of 16 and 32 bits as the hardware computes them: rounding modes and denormals by MODE.

/// The MODE register, as far as it matters to arithmetic.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mode {
    /// MODE's low byte: rounding and denormals.
    pub float: u8,
    /// A clamp makes 0 of a NaN.
    pub dx10_clamp: bool,
    /// Signalling NaNs come out quiet of min and max.
    pub ieee: bool,
}

impl Mode {
    /// What RADV sets: f32 denormals flushed, f16 and f64 kept, to nearest even.
    pub const RADV: Self = Self { float: 0xc0, dx10_clamp: true, ieee: false };

    /// Rounding of f32: 0 nearest even, 1 up, 2 down, 3 to zero.
    #[inline(always)]
    pub fn round32(&self) -> u8 {
        self.float & 3
    }
    /// Rounding of f16 and f64.
    #[inline(always)]
    pub fn round16(&self) -> u8 {
        self.float >> 2 & 3
    }
    #[inline(always)]
    fn keeps(&self, bit: u8) -> bool {
        self.float >> bit & 1 != 0
    }
    /// An f32 input, flushed or not.
    #[inline(always)]
    pub fn in32(&self, x: u32) -> u32 {
        if x & 0x7f80_0000 == 0 && !self.keeps(4) { x & 0x8000_0000 } else { x }
    }
    /// An f32 result, flushed or not.
    #[inline(always)]
    pub fn out32(&self, x: u32) -> u32 {
        if x & 0x7f80_0000 == 0 && !self.keeps(5) { x & 0x8000_0000 } else { x }
    }
    /// An f16 input, flushed or not.
    #[inline(always)]
    pub fn in16(&self, x: u32) -> u32 {
        if x & 0x7c00 == 0 && !self.keeps(6) { x & 0x8000 } else { x & 0xffff }
    }
    /// An f16 result, flushed or not.
    #[inline(always)]
    pub fn out16(&self, x: u32) -> u32 {
        if x & 0x7c00 == 0 && !self.keeps(7) { x & 0x8000 } else { x & 0xffff }
    }
    /// An f32 input as a number.
    #[inline(always)]
    pub fn f(&self, x: u32) -> f32 {
        f32::from_bits(self.in32(x))
    }
    /// An f16 input as a number.
    #[inline(always)]
    pub fn h(&self, x: u32) -> f32 {
        f16_to_f32(self.in16(x))
    }
    /// A number as an f32 result.
    #[inline(always)]
    pub fn to32(&self, x: f32) -> u32 {
        self.out32(x.to_bits())
    }
    /// A number as an f16 result; it is exact, or wide enough that rounding twice does no harm.
    #[inline(always)]
    pub fn to16(&self, x: f32) -> u32 {
        if self.round16() == 0 { self.out16(f32_to_f16(x)) } else { self.exact16(x as f64, 0.0) }
    }
    /// The exact `sum + rest` as an f32 result in this mode.
    pub fn exact32(&self, sum: f64, rest: f64) -> u32 {
        self.out32(round(sum, rest, 24, -126, self.round32()))
    }
    /// The exact `sum + rest` as an f16 result in this mode.
    pub fn exact16(&self, sum: f64, rest: f64) -> u32 {
        self.out16(round(sum, rest, 11, -14, self.round16()))
    }
    /// a + b.
    #[inline(always)]
    pub fn add32(&self, a: u32, b: u32) -> u32 {
        let (a, b) = (self.f(a), self.f(b));
        if self.round32() == 0 {
            return self.to32(a + b);
        }
        let (sum, rest) = two_sum(a as f64, b as f64);
        self.exact32(sum, rest)
    }
    /// a · b.
    #[inline(always)]
    pub fn mul32(&self, a: u32, b: u32) -> u32 {
        let (a, b) = (self.f(a), self.f(b));
        if self.round32() == 0 { self.to32(a * b) } else { self.exact32(a as f64 * b as f64, 0.0) }
    }
    /// a · b + c, rounded once.
    #[inline(always)]
    pub fn fma32(&self, a: u32, b: u32, c: u32) -> u32 {
        let (a, b, c) = (self.f(a), self.f(b), self.f(c));
        if self.round32() == 0 {
            return self.to32(a.mul_add(b, c));
        }
        let (sum, rest) = two_sum(a as f64 * b as f64, c as f64);
        self.exact32(sum, rest)
    }
    /// a + b of f16. The f32 sum has more than twice the bits, so that rounding it again gives the right number.
    #[inline(always)]
    pub fn add16(&self, a: u32, b: u32) -> u32 {
        let (a, b) = (self.h(a), self.h(b));
        if self.round16() == 0 { self.to16(a + b) } else { self.exact16(a as f64 + b as f64, 0.0) }
    }
    /// a · b of f16.
    #[inline(always)]
    pub fn mul16(&self, a: u32, b: u32) -> u32 {
        self.to16(self.h(a) * self.h(b))
    }
    /// a · b + c of f16, rounded once.
    #[inline(always)]
    pub fn fma16(&self, a: u32, b: u32, c: u32) -> u32 {
        let (sum, rest) = two_sum(self.h(a) as f64 * self.h(b) as f64, self.h(c) as f64);
        self.exact16(sum, rest)
    }
}

/// The rounded sum, and what rounding took from it.
#[inline(always)]
fn two_sum(a: f64, b: f64) -> (f64, f64) {
    let sum = a + b;
    let part = sum - a;
    let rest = (a - (sum - part)) + (b - part);
    (sum, if rest.is_finite() { rest } else { 0.0 })
}

/// Rounds `value + rest` to a float of `digits` significant bits and least exponent `least`. Of `rest` only the sign
/// counts: it is below half of the last place of `value`.
pub fn round(value: f64, rest: f64, digits: u32, least: i32, mode: u8) -> u32 {
    let width = if digits == 24 { 31 } else { 15 };
    let sign = (value.is_sign_negative() as u32) << width;
    let top = (u32::MAX >> (32 - (width - (digits - 1)))) << (digits - 1);
    if value.is_nan() {
        return sign | top | 1 << (digits - 2);
    }
    if value.is_infinite() {
        return sign | top;
    }
    if value == 0.0 {
        return sign;
    }
    let bits = value.to_bits();
    let field = (bits >> 52 & 0x7ff) as i32;
    let (mut mantissa, mut exponent) = ((bits & ((1 << 52) - 1)) as u128, field - 1023);
    if field == 0 {
        exponent = -1022;
    } else {
        mantissa |= 1 << 52;
    }
    while mantissa >> 52 == 0 {
        mantissa <<= 1;
        exponent -= 1;
    }
    // Four more bits hold the sign of what is left.
    mantissa <<= 4;
    if rest != 0.0 {
        let same = rest.is_sign_negative() == value.is_sign_negative();
        mantissa = if same { mantissa + 1 } else { mantissa - 1 };
        if mantissa >> 56 == 0 {
            mantissa <<= 1;
            exponent -= 1;
        }
    }
    let under = (least - exponent).max(0) as u32;
    let shift = (57 - digits + under).min(120);
    let kept = (mantissa >> shift) as u32;
    let lost = mantissa & ((1 << shift) - 1);
    let half = 1u128 << (shift - 1);
    let up = match mode {
        0 => lost > half || lost == half && kept & 1 == 1,
        1 => lost != 0 && sign == 0,
        2 => lost != 0 && sign != 0,
        _ => false,
    };
    let biased = if under > 0 { 0 } else { (exponent - least) as u32 };
    // Carries run into the exponent, as they should; the hidden bit of a normal number adds one to it.
    let result = (biased.min(1 << 9) << (digits - 1)) + kept + up as u32;
    if result < top {
        return sign | result;
    }
    let overflows = mode == 0 || mode == 1 && sign == 0 || mode == 2 && sign != 0;
    sign | if overflows { top } else { top - 1 }
}

/// Exact.
#[inline(always)]
pub fn f16_to_f32(h: u32) -> f32 {
    let magnitude = (h & 0x7fff) << 13;
    let scaled = (f32::from_bits(magnitude) * f32::from_bits(0x7780_0000)).to_bits();
    let bits = if h & 0x7c00 == 0x7c00 { magnitude | 0x7f80_0000 } else { scaled };
    f32::from_bits(bits | (h & 0x8000) << 16)
}

/// To nearest even.
#[inline(always)]
pub fn f32_to_f16(x: f32) -> u32 {
    let bits = x.to_bits();
    let (sign, a) = (bits >> 16 & 0x8000, bits & 0x7fff_ffff);
    let normal = (a.wrapping_add(0xfff + (a >> 13 & 1)).wrapping_sub(112 << 23) >> 13).min(0x7c00);
    let small = (f32::from_bits(a) + 0.5).to_bits().wrapping_sub(0x3f00_0000);
    let special = if a > 0x7f80_0000 { 0x7e00 | (a >> 13 & 0x3ff) } else { 0x7c00 };
    let result = if a >= 0x7f80_0000 { special } else { normal };
    sign | if a < 0x3880_0000 { small } else { result }
}

/// To nearest even.
#[inline(always)]
pub fn f32_to_bf16(x: f32) -> u32 {
    let bits = x.to_bits();
    if x.is_nan() { bits >> 16 | 0x40 } else { (bits + 0x7fff + (bits >> 16 & 1)) >> 16 }
}

/// IEEE 754-2008's minimum: a number wins over a NaN, -0 is below 0.
#[inline(always)]
pub fn min32(a: f32, b: f32) -> f32 {
    let zero = f32::from_bits(a.to_bits() | b.to_bits());
    if a.is_nan() {
        b
    } else if b.is_nan() {
        a
    } else if a == b && a == 0.0 {
        zero
    } else if a < b {
        a
    } else {
        b
    }
}

/// IEEE 754-2008's maximum.
#[inline(always)]
pub fn max32(a: f32, b: f32) -> f32 {
    let zero = f32::from_bits(a.to_bits() & b.to_bits());
    if a.is_nan() {
        b
    } else if b.is_nan() {
        a
    } else if a == b && a == 0.0 {
        zero
    } else if a > b {
        a
    } else {
        b
    }
}
