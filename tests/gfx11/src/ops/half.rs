//! Floats of 16 bits, and pairs of 16 bits. Of a pair the caller has put the chosen halves and signs in place.

use super::{Op, op};
use crate::float::{Mode, f32_to_bf16, max32, min32};

const SIGN: u32 = 0x8000;

fn min(m: &Mode, a: u32, b: u32) -> u32 {
    m.to16(min32(m.h(a), m.h(b)))
}
fn max(m: &Mode, a: u32, b: u32) -> u32 {
    m.to16(max32(m.h(a), m.h(b)))
}
fn med3(m: &Mode, a: u32, b: u32, c: u32) -> u32 {
    let (x, y, z) = (m.h(a), m.h(b), m.h(c));
    if x.is_nan() || y.is_nan() || z.is_nan() {
        return min(m, min(m, a, b), c);
    }
    m.to16(max32(min32(x, y), min32(max32(x, y), z)))
}

/// Both halves by one function of three.
#[inline(always)]
fn pair(f: impl Fn(u32, u32, u32) -> u32, a: u32, b: u32, c: u32) -> u32 {
    f(a & 0xffff, b & 0xffff, c & 0xffff) & 0xffff | f(a >> 16, b >> 16, c >> 16) << 16
}

fn i(x: u32) -> i32 {
    x as i16 as i32
}

fn turn(x: f32, f: fn(f64) -> f64) -> f32 {
    let x = x as f64;
    f((x - x.floor()) * std::f64::consts::TAU) as f32
}

fn frexp(m: &Mode, x: u32) -> (f32, i32) {
    let v = m.h(x);
    if v == 0.0 || !v.is_finite() {
        return (v, 0);
    }
    let e = (v.to_bits() >> 23 & 0xff) as i32 - 126;
    (v * 2f32.powi(-e), e)
}

/// a · b + c + d of bf16 or f16 products, in f32, in order.
fn dot2(m: &Mode, a: [f32; 2], b: [f32; 2], c: u32) -> u32 {
    let step = |sum: u32, a: f32, b: f32| m.fma32(a.to_bits(), b.to_bits(), sum);
    step(step(c, a[0], b[0]), a[1], b[1])
}
fn halves(m: &Mode, x: u32) -> [f32; 2] {
    [m.h(x & 0xffff), m.h(x >> 16)]
}
fn bhalves(x: u32) -> [f32; 2] {
    [f32::from_bits(x << 16), f32::from_bits(x & 0xffff_0000)]
}

fn norm(x: f32, least: f32, most: f32) -> u32 {
    if x.is_nan() { 0 } else { (x.clamp(least, 1.0) * most).round_ties_even() as i32 as u32 & 0xffff }
}

pub(super) fn op_of(name: &str) -> Option<Op> {
    Some(match name {
        "add_f16" => op!(|m, a, b, c| m.add16(a, b)),
        "sub_f16" => op!(|m, a, b, c| m.add16(a, b ^ SIGN)),
        "subrev_f16" => op!(|m, a, b, c| m.add16(b, a ^ SIGN)),
        "mul_f16" => op!(|m, a, b, c| m.mul16(a, b)),
        "fma_f16" | "fmac_f16" | "fmaak_f16" | "fmamk_f16" => op!(|m, a, b, c| m.fma16(a, b, c)),
        "min_f16" => op!(|m, a, b, c| min(m, a, b)),
        "max_f16" => op!(|m, a, b, c| max(m, a, b)),
        "min3_f16" => op!(|m, a, b, c| min(m, min(m, a, b), c)),
        "max3_f16" => op!(|m, a, b, c| max(m, max(m, a, b), c)),
        "med3_f16" => op!(|m, a, b, c| med3(m, a, b, c)),
        "maxmin_f16" => op!(|m, a, b, c| min(m, max(m, a, b), c)),
        "minmax_f16" => op!(|m, a, b, c| max(m, min(m, a, b), c)),
        "ldexp_f16" => op!(|m, a, b, c| m.exact16(m.h(a) as f64 * 2f64.powi((b as i16 as i32).clamp(-60, 60)), 0.0)),
        "cvt_f32_f16" => op!(|m, a, b, c| m.to32(m.h(a))),
        "cvt_f16_u16" => op!(|m, a, b, c| m.to16((a & 0xffff) as f32)),
        "cvt_f16_i16" => op!(|m, a, b, c| m.to16(i(a) as f32)),
        "cvt_u16_f16" => op!(|m, a, b, c| m.h(a) as u16 as u32),
        "cvt_i16_f16" => op!(|m, a, b, c| m.h(a) as i16 as u16 as u32),
        "cvt_norm_i16_f16" => op!(|m, a, b, c| norm(m.h(a), -1.0, 32767.0)),
        "cvt_norm_u16_f16" => op!(|m, a, b, c| norm(m.h(a), 0.0, 65535.0)),
        "cvt_pk_norm_i16_f16" => op!(|m, a, b, c| norm(m.h(a), -1.0, 32767.0) | norm(m.h(b), -1.0, 32767.0) << 16),
        "cvt_pk_norm_u16_f16" => op!(|m, a, b, c| norm(m.h(a), 0.0, 65535.0) | norm(m.h(b), 0.0, 65535.0) << 16),
        "rcp_f16" => op!(|m, a, b, c| m.to16(1.0 / m.h(a))),
        "sqrt_f16" => op!(|m, a, b, c| m.to16(m.h(a).sqrt())),
        "rsq_f16" => op!(|m, a, b, c| m.to16(1.0 / m.h(a).sqrt())),
        "log_f16" => op!(|m, a, b, c| m.to16(m.h(a).log2())),
        "exp_f16" => op!(|m, a, b, c| m.to16(m.h(a).exp2())),
        "sin_f16" => op!(|m, a, b, c| m.to16(turn(m.h(a), f64::sin))),
        "cos_f16" => op!(|m, a, b, c| m.to16(turn(m.h(a), f64::cos))),
        "floor_f16" => op!(|m, a, b, c| m.to16(m.h(a).floor())),
        "ceil_f16" => op!(|m, a, b, c| m.to16(m.h(a).ceil())),
        "trunc_f16" => op!(|m, a, b, c| m.to16(m.h(a).trunc())),
        "rndne_f16" => op!(|m, a, b, c| m.to16(m.h(a).round_ties_even())),
        "fract_f16" => op!(|m, a, b, c| m.to16((m.h(a) - m.h(a).floor()).min(0.999_511_7))),
        "frexp_mant_f16" => op!(|m, a, b, c| m.to16(frexp(m, a).0)),
        "frexp_exp_i16_f16" => op!(|m, a, b, c| frexp(m, a).1 as u32 & 0xffff),
        "pk_add_f16" => op!(|m, a, b, c| pair(|a, b, _| m.add16(a, b), a, b, c)),
        "pk_mul_f16" => op!(|m, a, b, c| pair(|a, b, _| m.mul16(a, b), a, b, c)),
        "pk_fma_f16" | "pk_fmac_f16" => op!(|m, a, b, c| pair(|a, b, c| m.fma16(a, b, c), a, b, c)),
        "pk_min_f16" => op!(|m, a, b, c| pair(|a, b, _| min(m, a, b), a, b, c)),
        "pk_max_f16" => op!(|m, a, b, c| pair(|a, b, _| max(m, a, b), a, b, c)),
        "pk_mad_i16" | "pk_mad_u16" => op!(|m, a, b, c| pair(|a, b, c| a.wrapping_mul(b).wrapping_add(c), a, b, c)),
        "pk_mul_lo_u16" => op!(|m, a, b, c| pair(|a, b, _| a.wrapping_mul(b), a, b, c)),
        "pk_add_i16" | "pk_add_u16" => op!(|m, a, b, c| pair(|a, b, _| a + b, a, b, c)),
        "pk_sub_i16" | "pk_sub_u16" => op!(|m, a, b, c| pair(|a, b, _| a.wrapping_sub(b), a, b, c)),
        "pk_lshlrev_b16" => op!(|m, a, b, c| pair(|a, b, _| b << (a & 15), a, b, c)),
        "pk_lshrrev_b16" => op!(|m, a, b, c| pair(|a, b, _| b >> (a & 15), a, b, c)),
        "pk_ashrrev_i16" => op!(|m, a, b, c| pair(|a, b, _| (i(b) >> (a & 15)) as u32, a, b, c)),
        "pk_max_i16" => op!(|m, a, b, c| pair(|a, b, _| i(a).max(i(b)) as u32, a, b, c)),
        "pk_min_i16" => op!(|m, a, b, c| pair(|a, b, _| i(a).min(i(b)) as u32, a, b, c)),
        "pk_max_u16" => op!(|m, a, b, c| pair(|a, b, _| a.max(b), a, b, c)),
        "pk_min_u16" => op!(|m, a, b, c| pair(|a, b, _| a.min(b), a, b, c)),
        "dot2_f32_f16" | "dot2acc_f32_f16" => op!(|m, a, b, c| dot2(m, halves(m, a), halves(m, b), c)),
        "dot2_f32_bf16" | "dot2acc_f32_bf16" => op!(|m, a, b, c| dot2(m, bhalves(a), bhalves(b), c)),
        "dot2_f16_f16" => op!(|m, a, b, c| m.fma16(a >> 16, b >> 16, m.fma16(a & 0xffff, b & 0xffff, c))),
        "dot2_bf16_bf16" => op!(|m, a, b, c| {
            let sum = dot2(m, bhalves(a), bhalves(b), c << 16);
            f32_to_bf16(f32::from_bits(sum))
        }),
        _ => return None,
    })
}
