//! Opcodes of VOP3P whose modifiers mean something of their own: the caller gives them by name.

use super::{Op, op};

fn signed(x: u32, i: u32, bits: u32) -> i64 {
    ((x << (32 - bits * (i + 1))) as i32 >> (32 - bits)) as i64
}
fn unsigned(x: u32, i: u32, bits: u32) -> i64 {
    (x << (32 - bits * (i + 1)) >> (32 - bits)) as i64
}

type Element = fn(u32, u32, u32) -> i64;

#[inline(always)]
fn dot(a: u32, b: u32, c: i64, bits: u32, of_a: Element, of_b: Element) -> i64 {
    (0..32 / bits).fold(c, |sum, i| sum + of_a(a, i, bits) * of_b(b, i, bits))
}
fn clamp(x: i64) -> u32 {
    x.clamp(i32::MIN as i64, i32::MAX as i64) as u32
}
fn clamp_unsigned(x: i64) -> u32 {
    x.min(u32::MAX as i64) as u32
}

#[inline(always)]
fn bytes(a: u32, b: u32, c: u32) -> u32 {
    let one = |i: u32| (((a >> (8 * i)) as i8 as i32) * ((b >> (8 * i)) as i8 as i32)) as u32;
    one(0).wrapping_add(one(1)).wrapping_add(one(2)).wrapping_add(one(3)).wrapping_add(c)
}

/// `dot4_i32_iu8:ab`: a, b are `s` or `u`, with `!` behind them where the sum saturates.
pub(super) fn op_of(name: &str) -> Option<Op> {
    Some(match name {
        "dot4_i32_iu8:ss" => op!(|m, a, b, c| bytes(a, b, c)),
        "dot4_i32_iu8:su" => op!(|m, a, b, c| dot(a, b, c as i32 as i64, 8, signed, unsigned) as u32),
        "dot4_i32_iu8:us" => op!(|m, a, b, c| dot(a, b, c as i32 as i64, 8, unsigned, signed) as u32),
        "dot4_i32_iu8:uu" => op!(|m, a, b, c| dot(a, b, c as i32 as i64, 8, unsigned, unsigned) as u32),
        "dot8_i32_iu4:ss" => op!(|m, a, b, c| dot(a, b, c as i32 as i64, 4, signed, signed) as u32),
        "dot8_i32_iu4:su" => op!(|m, a, b, c| dot(a, b, c as i32 as i64, 4, signed, unsigned) as u32),
        "dot8_i32_iu4:us" => op!(|m, a, b, c| dot(a, b, c as i32 as i64, 4, unsigned, signed) as u32),
        "dot8_i32_iu4:uu" => op!(|m, a, b, c| dot(a, b, c as i32 as i64, 4, unsigned, unsigned) as u32),
        "dot4_i32_iu8:ss!" => op!(|m, a, b, c| clamp(dot(a, b, c as i32 as i64, 8, signed, signed))),
        "dot4_i32_iu8:su!" => op!(|m, a, b, c| clamp(dot(a, b, c as i32 as i64, 8, signed, unsigned))),
        "dot4_i32_iu8:us!" => op!(|m, a, b, c| clamp(dot(a, b, c as i32 as i64, 8, unsigned, signed))),
        "dot4_i32_iu8:uu!" => op!(|m, a, b, c| clamp(dot(a, b, c as i32 as i64, 8, unsigned, unsigned))),
        "dot8_i32_iu4:ss!" => op!(|m, a, b, c| clamp(dot(a, b, c as i32 as i64, 4, signed, signed))),
        "dot8_i32_iu4:su!" => op!(|m, a, b, c| clamp(dot(a, b, c as i32 as i64, 4, signed, unsigned))),
        "dot8_i32_iu4:us!" => op!(|m, a, b, c| clamp(dot(a, b, c as i32 as i64, 4, unsigned, signed))),
        "dot8_i32_iu4:uu!" => op!(|m, a, b, c| clamp(dot(a, b, c as i32 as i64, 4, unsigned, unsigned))),
        "dot4_u32_u8" => op!(|m, a, b, c| dot(a, b, c as i64, 8, unsigned, unsigned) as u32),
        "dot8_u32_u4" => op!(|m, a, b, c| dot(a, b, c as i64, 4, unsigned, unsigned) as u32),
        "dot4_u32_u8!" => op!(|m, a, b, c| clamp_unsigned(dot(a, b, c as i64, 8, unsigned, unsigned))),
        "dot8_u32_u4!" => op!(|m, a, b, c| clamp_unsigned(dot(a, b, c as i64, 4, unsigned, unsigned))),
        // Sources are f32 already.
        "fma_mix_f32" => op!(|m, a, b, c| m.fma32(a, b, c)),
        "fma_mixlo_f16" | "fma_mixhi_f16" => op!(|m, a, b, c| m.to16(f32::from_bits(m.fma32(a, b, c)))),
        _ => return None,
    })
}
