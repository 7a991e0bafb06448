//! Operations with a source or a result of 64 bits, one lane at a time.

use super::compare::class_of;
use crate::float::Mode;

/// The result, and the lane's bit where the opcode writes a mask.
pub type Wide = fn(&Mode, [u64; 3]) -> (u64, bool);

fn f(x: u64) -> f64 {
    f64::from_bits(x)
}
fn out(x: f64) -> (u64, bool) {
    (x.to_bits(), false)
}
fn int(x: u64) -> (u64, bool) {
    (x, false)
}
fn bit(x: bool) -> (u64, bool) {
    (0, x)
}
fn exponent(x: u64) -> i32 {
    (x >> 52 & 0x7ff) as i32
}

fn frexp(x: f64) -> (f64, i32) {
    if x == 0.0 || !x.is_finite() {
        return (x, 0);
    }
    let (x, shift) = if x.is_subnormal() { (x * 2f64.powi(64), 64) } else { (x, 0) };
    let e = exponent(x.to_bits()) - 1022;
    (f64::from_bits(x.to_bits() & !(0x7ff << 52) | 1022 << 52), e - shift)
}

fn ldexp(mut x: f64, e: i32) -> f64 {
    let mut e = e.clamp(-2200, 2200);
    while e > 1000 {
        (x, e) = (x * 2f64.powi(1000), e - 1000);
    }
    while e < -960 {
        (x, e) = (x * 2f64.powi(-960), e + 960);
    }
    x * 2f64.powi(e)
}

fn min(a: f64, b: f64) -> f64 {
    if a == 0.0 && b == 0.0 { f64::from_bits(a.to_bits() | b.to_bits()) } else { a.min(b) }
}
fn max(a: f64, b: f64) -> f64 {
    if a == 0.0 && b == 0.0 { f64::from_bits(a.to_bits() & b.to_bits()) } else { a.max(b) }
}
fn fract(x: f64) -> f64 {
    if x.is_finite() { (x - x.floor()).min(f64::from_bits(0x3fef_ffff_ffff_ffff)) } else { f64::NAN }
}

fn div_fixup(s0: u64, s1: u64, s2: u64) -> u64 {
    let (a, b, c) = (f(s0), f(s1), f(s2));
    let sign = (s1 ^ s2) & 1 << 63;
    if c.is_nan() {
        s2 | 1 << 51
    } else if b.is_nan() {
        s1 | 1 << 51
    } else if b == 0.0 && c == 0.0 || b.is_infinite() && c.is_infinite() {
        0xfff8 << 48
    } else if b == 0.0 || c.is_infinite() {
        sign | 0x7ff << 52
    } else if b.is_infinite() || c == 0.0 || exponent(s2) - exponent(s1) < -1075 {
        sign
    } else if a.is_nan() {
        sign | 0x7ff << 52
    } else {
        sign | s0 & !(1 << 63)
    }
}

/// The scaled value and whether it was scaled, of floats with `bias` and `digits` below the leading one, scaled by `by`.
/// All numbers are f64 here: those of f32 fit.
fn div_scale(s: [f64; 3], e: [i32; 3], by: i32, digits: i32, bias: i32) -> (f64, bool) {
    let ([a, b, c], [_, eb, ec]) = (s, e);
    let only = |wanted: bool| if wanted { (ldexp(a, by), true) } else { (a, false) };
    let same = |x: f64| a.to_bits() == x.to_bits();
    if b == 0.0 || c == 0.0 {
        return (f64::NAN, true);
    }
    let (tiny_reciprocal, tiny_quotient) = (eb >= 2 * bias - 1, ec - eb <= -bias);
    if ec - eb >= if digits == 23 { 96 } else { 768 } {
        only(same(b))
    } else if eb == 0 {
        only(true)
    } else if tiny_reciprocal && tiny_quotient {
        (if same(b) { ldexp(a, by) } else { a }, true)
    } else if tiny_reciprocal {
        (ldexp(a, -by), true)
    } else if tiny_quotient {
        (if same(c) { ldexp(a, by) } else { a }, true)
    } else {
        only(ec <= digits)
    }
}

fn scale32(m: &Mode, s: [u64; 3]) -> (u64, bool) {
    let s = s.map(|x| m.in32(x as u32) as u64);
    let e = s.map(|x| (x as u32 >> 23 & 0xff) as i32);
    let (x, scaled) = div_scale(s.map(|x| f32::from_bits(x as u32) as f64), e, 64, 23, 127);
    ((x as f32).to_bits() as u64, scaled)
}

/// 2/π's bits behind the point, those that the argument's exponent and the segment choose.
fn trig_preop(x: u64, segment: u64) -> f64 {
    let mut shift = (segment & 31) as i32 * 53;
    if exponent(x) > 1077 {
        shift += exponent(x) - 1077;
    }
    // Bit 0 is the first behind the point.
    let bit = |i: i32| TWO_OVER_PI.get(i as usize / 32).map_or(0, |word| word >> (31 - i % 32) & 1);
    let mantissa = (0..53).fold(0u64, |all, i| all << 1 | bit(shift + i) as u64);
    let scale = -53 - shift + if exponent(x) >= 1968 { 128 } else { 0 };
    ldexp(mantissa as f64, scale)
}

/// The first 1,216 bits of 2/π, highest first.
const TWO_OVER_PI: [u32; 38] = [
    0xa2f9836e, 0x4e441529, 0xfc2757d1, 0xf534ddc0, 0xdb629599, 0x3c439041, 0xfe5163ab, 0xdebbc561, 0xb7246e3a,
    0x424dd2e0, 0x06492eea, 0x09d1921c, 0xfe1deb1c, 0xb129a73e, 0xe88235f5, 0x2ebb4484, 0xe99c7026, 0xb45f7e41,
    0x3991d639, 0x835339f4, 0x9c845f8b, 0xbdf9283b, 0x1ff897ff, 0xde05980f, 0xef2f118b, 0x5a0a6d1f, 0x6d367ecf,
    0x27cb09b7, 0x4f463f66, 0x9e5fea2d, 0x7527bac7, 0xebe5f17b, 0x3d0739f7, 0x8a5292ea, 0x6bfb5fb1, 0x1f8d5d08,
    0x56033046, 0xfc7b6bab,
];

fn sad_quad(a: u64, b: u64, masked: bool) -> [u32; 4] {
    let byte = |x: u64, i: usize| (x >> (8 * i)) as u8;
    std::array::from_fn(|i| {
        let used = (0..4).filter(|j| !masked || byte(b, *j) != 0);
        used.map(|j| byte(a, i + j).abs_diff(byte(b, j)) as u32).sum()
    })
}
fn sad_pk(a: u64, b: u64, c: u64, masked: bool) -> u64 {
    let sums = sad_quad(a, b, masked);
    (0..4).fold(0, |all, i| all | ((c >> (16 * i)).wrapping_add(sums[i] as u64) & 0xffff) << (16 * i))
}

fn compare(name: &str) -> Option<Wide> {
    let rest = name.strip_prefix("v_cmpx_").or_else(|| name.strip_prefix("v_cmp_"))?;
    Some(match rest {
        "class_f64" => |_, [a, b, _]| {
            let mantissa = a & ((1 << 52) - 1);
            let (ones, zeros) = (exponent(a) == 0x7ff, exponent(a) == 0);
            bit(b >> class_of(a >> 63 != 0, ones, zeros, mantissa != 0, mantissa >> 51 != 0) & 1 != 0)
        },
        "f_f64" | "f_i64" | "f_u64" => |_, _| bit(false),
        "t_f64" | "t_i64" | "t_u64" => |_, _| bit(true),
        "lt_f64" => |_, [a, b, _]| bit(f(a) < f(b)),
        "eq_f64" => |_, [a, b, _]| bit(f(a) == f(b)),
        "le_f64" => |_, [a, b, _]| bit(f(a) <= f(b)),
        "gt_f64" => |_, [a, b, _]| bit(f(a) > f(b)),
        "lg_f64" => |_, [a, b, _]| bit(f(a) < f(b) || f(a) > f(b)),
        "ge_f64" => |_, [a, b, _]| bit(f(a) >= f(b)),
        "o_f64" => |_, [a, b, _]| bit(!f(a).is_nan() && !f(b).is_nan()),
        "u_f64" => |_, [a, b, _]| bit(f(a).is_nan() || f(b).is_nan()),
        "nge_f64" => |_, [a, b, _]| bit(!(f(a) >= f(b))),
        "nlg_f64" => |_, [a, b, _]| bit(!(f(a) < f(b) || f(a) > f(b))),
        "ngt_f64" => |_, [a, b, _]| bit(!(f(a) > f(b))),
        "nle_f64" => |_, [a, b, _]| bit(!(f(a) <= f(b))),
        "neq_f64" => |_, [a, b, _]| bit(!(f(a) == f(b))),
        "nlt_f64" => |_, [a, b, _]| bit(!(f(a) < f(b))),
        "lt_i64" => |_, [a, b, _]| bit((a as i64) < b as i64),
        "eq_i64" | "eq_u64" => |_, [a, b, _]| bit(a == b),
        "le_i64" => |_, [a, b, _]| bit(a as i64 <= b as i64),
        "gt_i64" => |_, [a, b, _]| bit(a as i64 > b as i64),
        "ne_i64" | "ne_u64" => |_, [a, b, _]| bit(a != b),
        "ge_i64" => |_, [a, b, _]| bit(a as i64 >= b as i64),
        "lt_u64" => |_, [a, b, _]| bit(a < b),
        "le_u64" => |_, [a, b, _]| bit(a <= b),
        "gt_u64" => |_, [a, b, _]| bit(a > b),
        "ge_u64" => |_, [a, b, _]| bit(a >= b),
        _ => return None,
    })
}

/// The operation of that mnemonic.
pub fn wide(name: &str) -> Option<Wide> {
    Some(match name {
        "v_lshlrev_b64" => |_, [a, b, _]| int(b << (a & 63)),
        "v_lshrrev_b64" => |_, [a, b, _]| int(b >> (a & 63)),
        "v_ashrrev_i64" => |_, [a, b, _]| int((b as i64 >> (a & 63)) as u64),
        "v_mad_u64_u32" => |_, [a, b, c]| {
            let (sum, carry) = ((a as u32 as u64) * b as u32 as u64).overflowing_add(c);
            (sum, carry)
        },
        "v_mad_i64_i32" => |_, [a, b, c]| {
            let sum = a as u32 as i32 as i128 * b as u32 as i32 as i128 + c as i64 as i128;
            (sum as u64, sum != sum as i64 as i128)
        },
        "v_add_f64" => |_, [a, b, _]| out(f(a) + f(b)),
        "v_mul_f64" => |_, [a, b, _]| out(f(a) * f(b)),
        "v_fma_f64" => |_, [a, b, c]| out(f(a).mul_add(f(b), f(c))),
        "v_min_f64" => |_, [a, b, _]| out(min(f(a), f(b))),
        "v_max_f64" => |_, [a, b, _]| out(max(f(a), f(b))),
        "v_ldexp_f64" => |_, [a, b, _]| out(ldexp(f(a), b as u32 as i32)),
        "v_trunc_f64" => |_, [a, ..]| out(f(a).trunc()),
        "v_ceil_f64" => |_, [a, ..]| out(f(a).ceil()),
        "v_floor_f64" => |_, [a, ..]| out(f(a).floor()),
        "v_rndne_f64" => |_, [a, ..]| out(f(a).round_ties_even()),
        "v_fract_f64" => |_, [a, ..]| out(fract(f(a))),
        "v_rcp_f64" => |_, [a, ..]| out(1.0 / f(a)),
        "v_rsq_f64" => |_, [a, ..]| out(1.0 / f(a).sqrt()),
        "v_sqrt_f64" => |_, [a, ..]| out(f(a).sqrt()),
        "v_frexp_exp_i32_f64" => |_, [a, ..]| int(frexp(f(a)).1 as u32 as u64),
        "v_frexp_mant_f64" => |_, [a, ..]| out(frexp(f(a)).0),
        "v_cvt_i32_f64" => |_, [a, ..]| int(f(a) as i32 as u32 as u64),
        "v_cvt_u32_f64" => |_, [a, ..]| int(f(a) as u32 as u64),
        "v_cvt_f64_i32" => |_, [a, ..]| out(a as u32 as i32 as f64),
        "v_cvt_f64_u32" => |_, [a, ..]| out(a as u32 as f64),
        "v_cvt_f64_f32" => |m, [a, ..]| out(m.f(a as u32) as f64),
        "v_cvt_f32_f64" => |m, [a, ..]| int(m.exact32(f(a), 0.0) as u64),
        "v_div_fixup_f64" => |_, [a, b, c]| int(div_fixup(a, b, c)),
        "v_div_scale_f32" => |m, s| scale32(m, s),
        "v_div_scale_f64" => |_, s| {
            let (x, scaled) = div_scale(s.map(f), s.map(exponent), 128, 52, 1023);
            (x.to_bits(), scaled)
        },
        "v_trig_preop_f64" => |_, [a, b, _]| out(trig_preop(a, b)),
        "v_qsad_pk_u16_u8" => |_, [a, b, c]| int(sad_pk(a, b, c, false)),
        "v_mqsad_pk_u16_u8" => |_, [a, b, c]| int(sad_pk(a, b, c, true)),
        _ => return compare(name),
    })
}
