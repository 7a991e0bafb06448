//! Floats of 32 bits.

use super::{Op, op};
use crate::float::{Mode, max32, min32, round};

#[inline(always)]
fn bits(x: f32) -> u32 {
    x.to_bits()
}

/// min and max keep denormals of their inputs as MODE says; a NaN comes out quiet.
#[inline(always)]
fn min(m: &Mode, a: u32, b: u32) -> u32 {
    m.to32(min32(m.f(a), m.f(b)))
}
#[inline(always)]
fn max(m: &Mode, a: u32, b: u32) -> u32 {
    m.to32(max32(m.f(a), m.f(b)))
}
#[inline(always)]
fn med3(m: &Mode, a: u32, b: u32, c: u32) -> u32 {
    let (x, y, z) = (m.f(a), m.f(b), m.f(c));
    if x.is_nan() || y.is_nan() || z.is_nan() {
        return m.to32(min32(min32(x, y), z));
    }
    m.to32(max32(min32(x, y), min32(max32(x, y), z)))
}

/// 0 of an exact or flushed product of a zero.
#[inline(always)]
fn mul_zero(m: &Mode, a: u32, b: u32) -> u32 {
    if m.f(a) == 0.0 || m.f(b) == 0.0 { 0 } else { m.mul32(a, b) }
}
#[inline(always)]
fn fma_zero(m: &Mode, a: u32, b: u32, c: u32) -> u32 {
    if m.f(a) == 0.0 || m.f(b) == 0.0 { m.add32(0, c) } else { m.fma32(a, b, c) }
}

fn of_int(m: &Mode, x: i64) -> u32 {
    if m.round32() == 0 { bits(x as f32) } else { m.exact32(x as f64, 0.0) }
}

fn fract(x: f32) -> f32 {
    let part = x - x.floor();
    if x.is_finite() { part.min(f32::from_bits(0x3f7f_ffff)) } else { f32::NAN }
}

fn exponent(x: u32) -> i32 {
    (x >> 23 & 0xff) as i32
}

/// The fraction in [0.5, 1) and the exponent.
fn frexp(x: u32) -> (u32, i32) {
    let a = x & 0x7fff_ffff;
    if a == 0 || a >= 0x7f80_0000 {
        return (x, 0);
    }
    let (mut mantissa, mut e) = (a, exponent(x));
    if e == 0 {
        let shift = a.leading_zeros() - 8;
        mantissa = a << shift;
        e = 1 - shift as i32;
    }
    (x & 0x8000_0000 | 126 << 23 | mantissa & 0x7f_ffff, e - 126)
}

fn ldexp(m: &Mode, x: u32, e: i32) -> u32 {
    let scale = |x: f64, e: i32| x * 2f64.powi(e);
    let x = m.f(x) as f64;
    let e = e.clamp(-600, 600);
    m.exact32(scale(scale(x, e / 2), e - e / 2), 0.0)
}

/// Revolutions to a number, as exactly as the host can.
fn turn(x: f32, f: fn(f64) -> f64) -> f32 {
    let x = x as f64;
    f((x - x.floor()) * std::f64::consts::TAU) as f32
}
fn sin(x: f32) -> f32 {
    // Multiples of a half are exact zeros of the input's sign.
    if (x as f64 * 2.0).fract() == 0.0 { 0f32.copysign(x) } else { turn(x, f64::sin) }
}

fn div_fixup(m: &Mode, s0: u32, s1: u32, s2: u32) -> u32 {
    let (a, b, c) = (f32::from_bits(s0), m.f(s1), m.f(s2));
    let sign = (s1 ^ s2) & 0x8000_0000;
    if c.is_nan() {
        bits(c) | 0x40_0000
    } else if b.is_nan() {
        bits(b) | 0x40_0000
    } else if b == 0.0 && c == 0.0 || b.is_infinite() && c.is_infinite() {
        0xffc0_0000
    } else if b == 0.0 || c.is_infinite() {
        sign | 0x7f80_0000
    } else if b.is_infinite() || c == 0.0 {
        sign
    } else if exponent(s2) - exponent(s1) < -150 {
        sign | u32::from(m.round32() == 1 && sign == 0 || m.round32() == 2 && sign != 0)
    } else if a.is_nan() {
        sign | 0x7f80_0000
    } else {
        sign | s0 & 0x7fff_ffff
    }
}

fn cubeid(x: f32, y: f32, z: f32) -> [f32; 4] {
    let (ax, ay, az) = (x.abs(), y.abs(), z.abs());
    if az >= ax && az >= ay {
        let neg = z < 0.0;
        [if neg { 5.0 } else { 4.0 }, if neg { -x } else { x }, -y, 2.0 * z]
    } else if ay >= ax {
        let neg = y < 0.0;
        [if neg { 3.0 } else { 2.0 }, x, if neg { -z } else { z }, 2.0 * y]
    } else {
        let neg = x < 0.0;
        [if neg { 1.0 } else { 0.0 }, if neg { z } else { -z }, -y, 2.0 * x]
    }
}

fn norm(x: f32, least: f32, most: f32) -> u32 {
    if x.is_nan() { 0 } else { (x.clamp(least, 1.0) * most).round_ties_even() as i32 as u32 & 0xffff }
}

pub(super) fn op_of(name: &str) -> Option<Op> {
    Some(match name {
        "add_f32" => op!(|m, a, b, c| m.add32(a, b)),
        "sub_f32" => op!(|m, a, b, c| m.add32(a, b ^ 0x8000_0000)),
        "subrev_f32" => op!(|m, a, b, c| m.add32(b, a ^ 0x8000_0000)),
        "mul_f32" => op!(|m, a, b, c| m.mul32(a, b)),
        "mul_dx9_zero_f32" => op!(|m, a, b, c| mul_zero(m, a, b)),
        "fma_f32" | "fmac_f32" | "fmaak_f32" | "fmamk_f32" => op!(|m, a, b, c| m.fma32(a, b, c)),
        "fma_dx9_zero_f32" | "fmac_dx9_zero_f32" => op!(|m, a, b, c| fma_zero(m, a, b, c)),
        "min_f32" => op!(|m, a, b, c| min(m, a, b)),
        "max_f32" => op!(|m, a, b, c| max(m, a, b)),
        "min3_f32" => op!(|m, a, b, c| min(m, min(m, a, b), c)),
        "max3_f32" => op!(|m, a, b, c| max(m, max(m, a, b), c)),
        "med3_f32" => op!(|m, a, b, c| med3(m, a, b, c)),
        "maxmin_f32" => op!(|m, a, b, c| min(m, max(m, a, b), c)),
        "minmax_f32" => op!(|m, a, b, c| max(m, min(m, a, b), c)),
        "cvt_f32_i32" => op!(|m, a, b, c| of_int(m, a as i32 as i64)),
        "cvt_f32_u32" => op!(|m, a, b, c| of_int(m, a as i64)),
        "cvt_u32_f32" => op!(|m, a, b, c| m.f(a) as u32),
        "cvt_i32_f32" => op!(|m, a, b, c| m.f(a) as i32 as u32),
        "cvt_nearest_i32_f32" => op!(|m, a, b, c| (m.f(a) + 0.5).floor() as i32 as u32),
        "cvt_floor_i32_f32" => op!(|m, a, b, c| m.f(a).floor() as i32 as u32),
        "cvt_off_f32_i4" => op!(|m, a, b, c| bits(((a << 28) as i32 >> 28) as f32 / 16.0)),
        "cvt_f32_ubyte0" => op!(|m, a, b, c| bits((a & 0xff) as f32)),
        "cvt_f32_ubyte1" => op!(|m, a, b, c| bits((a >> 8 & 0xff) as f32)),
        "cvt_f32_ubyte2" => op!(|m, a, b, c| bits((a >> 16 & 0xff) as f32)),
        "cvt_f32_ubyte3" => op!(|m, a, b, c| bits((a >> 24) as f32)),
        "cvt_f16_f32" => op!(|m, a, b, c| m.to16(m.f(a))),
        "cvt_pk_rtz_f16_f32" => op!(|m, a, b, c| {
            let one = |x| m.out16(round(m.f(x) as f64, 0.0, 11, -14, 3));
            one(a) | one(b) << 16
        }),
        "cvt_pk_i16_f32" => op!(|m, a, b, c| {
            let one = |x| (m.f(x) as i32).clamp(-0x8000, 0x7fff) as u32 & 0xffff;
            one(a) | one(b) << 16
        }),
        "cvt_pk_u16_f32" => op!(|m, a, b, c| (m.f(a) as u32).min(0xffff) | (m.f(b) as u32).min(0xffff) << 16),
        "cvt_pk_u8_f32" => op!(|m, a, b, c| {
            let at = (b & 3) * 8;
            c & !(0xff << at) | (m.f(a) as u32).min(255) << at
        }),
        "cvt_pk_norm_i16_f32" => op!(|m, a, b, c| norm(m.f(a), -1.0, 32767.0) | norm(m.f(b), -1.0, 32767.0) << 16),
        "cvt_pk_norm_u16_f32" => op!(|m, a, b, c| norm(m.f(a), 0.0, 65535.0) | norm(m.f(b), 0.0, 65535.0) << 16),
        "trunc_f32" => op!(|m, a, b, c| m.to32(m.f(a).trunc())),
        "ceil_f32" => op!(|m, a, b, c| m.to32(m.f(a).ceil())),
        "floor_f32" => op!(|m, a, b, c| m.to32(m.f(a).floor())),
        "rndne_f32" => op!(|m, a, b, c| m.to32(m.f(a).round_ties_even())),
        "fract_f32" => op!(|m, a, b, c| m.to32(fract(m.f(a)))),
        "exp_f32" => op!(|m, a, b, c| m.to32((m.f(a) as f64).exp2() as f32)),
        "log_f32" => op!(|m, a, b, c| m.to32((m.f(a) as f64).log2() as f32)),
        "rcp_f32" | "rcp_iflag_f32" => op!(|m, a, b, c| m.to32(1.0 / m.f(a))),
        "rsq_f32" => op!(|m, a, b, c| m.to32((1.0 / (m.f(a) as f64).sqrt()) as f32)),
        "sqrt_f32" => op!(|m, a, b, c| m.to32(m.f(a).sqrt())),
        "sin_f32" => op!(|m, a, b, c| m.to32(sin(m.f(a)))),
        "cos_f32" => op!(|m, a, b, c| m.to32(turn(m.f(a), f64::cos))),
        "frexp_exp_i32_f32" => op!(|m, a, b, c| frexp(m.in32(a)).1 as u32),
        "frexp_mant_f32" => op!(|m, a, b, c| m.out32(frexp(m.in32(a)).0)),
        "ldexp_f32" => op!(|m, a, b, c| ldexp(m, a, b as i32)),
        "div_fixup_f32" => op!(|m, a, b, c| div_fixup(m, a, b, c)),
        "mullit_f32" => op!(|m, a, b, c| {
            let (y, z) = (m.f(b), m.f(c));
            let least = y == f32::MIN || y == f32::NEG_INFINITY || y.is_nan() || z <= 0.0 || z.is_nan();
            if least { bits(f32::MIN) } else { m.mul32(a, b) }
        }),
        "cubeid_f32" => op!(|m, a, b, c| bits(cubeid(m.f(a), m.f(b), m.f(c))[0])),
        "cubesc_f32" => op!(|m, a, b, c| bits(cubeid(m.f(a), m.f(b), m.f(c))[1])),
        "cubetc_f32" => op!(|m, a, b, c| bits(cubeid(m.f(a), m.f(b), m.f(c))[2])),
        "cubema_f32" => op!(|m, a, b, c| bits(cubeid(m.f(a), m.f(b), m.f(c))[3])),
        _ => return None,
    })
}
