//! Integers and bits.

use super::{Op, op};

#[inline(always)]
fn i24(x: u32) -> i32 {
    (x as i32) << 8 >> 8
}
#[inline(always)]
fn u24(x: u32) -> u32 {
    x & 0xff_ffff
}
#[inline(always)]
fn i16(x: u32) -> i32 {
    x as i16 as i32
}
#[inline(always)]
fn hi(a: u32, b: u32) -> u32 {
    ((a as u64 * b as u64) >> 32) as u32
}
#[inline(always)]
fn hi_signed(a: i32, b: i32) -> u32 {
    ((a as i64 * b as i64) >> 32) as u32
}
#[inline(always)]
fn pack(low: u32, high: u32) -> u32 {
    low & 0xffff | high << 16
}
#[inline(always)]
fn clamp16(x: i32) -> u32 {
    x.clamp(-0x8000, 0x7fff) as u32 & 0xffff
}
#[inline(always)]
fn clamp32(x: i64) -> u32 {
    x.clamp(i32::MIN as i64, i32::MAX as i64) as i32 as u32
}
#[inline(always)]
fn clamp_unsigned(x: i64, most: u32) -> u32 {
    x.clamp(0, most as i64) as u32
}
#[inline(always)]
fn byte(x: u32, i: u32) -> u32 {
    x >> (8 * i) & 0xff
}
fn sad8(a: u32, b: u32) -> u32 {
    (0..4).map(|i| byte(a, i).abs_diff(byte(b, i))).sum()
}
fn perm(a: u32, b: u32, selector: u32) -> u32 {
    let data = (a as u64) << 32 | b as u64;
    let one = |select: u32| match select {
        0..8 => (data >> (8 * select)) as u32 & 0xff,
        8..12 => 0xff * (data >> (16 * (select - 8) + 15) & 1) as u32,
        12 => 0,
        _ => 0xff,
    };
    (0..4).fold(0, |all, i| all | one(byte(selector, i)) << (8 * i))
}
fn bfe(a: u32, offset: u32, width: u32) -> u32 {
    a >> (offset & 31) & ((1u64 << (width & 31)) - 1) as u32
}
fn bfe_signed(a: u32, offset: u32, width: u32) -> u32 {
    let width = width & 31;
    if width == 0 { 0 } else { ((bfe(a, offset, width) << (32 - width)) as i32 >> (32 - width)) as u32 }
}
fn leading_same(x: u32) -> u32 {
    let same = (x ^ (x as i32 >> 31) as u32).leading_zeros();
    if same == 32 { u32::MAX } else { same }
}
fn saturate8(x: u32) -> u32 {
    i16(x).clamp(0, 255) as u32
}

pub(super) fn op_of(name: &str) -> Option<Op> {
    Some(match name {
        "mov_b32" | "mov_b16" => op!(|m, a, b, c| a),
        "not_b32" => op!(|m, a, b, c| !a),
        "not_b16" => op!(|m, a, b, c| !a & 0xffff),
        "bfrev_b32" => op!(|m, a, b, c| a.reverse_bits()),
        "clz_i32_u32" => op!(|m, a, b, c| if a == 0 { u32::MAX } else { a.leading_zeros() }),
        "ctz_i32_b32" => op!(|m, a, b, c| if a == 0 { u32::MAX } else { a.trailing_zeros() }),
        "cls_i32" => op!(|m, a, b, c| leading_same(a)),
        "cvt_i32_i16" => op!(|m, a, b, c| i16(a) as u32),
        "cvt_u32_u16" => op!(|m, a, b, c| a & 0xffff),
        "sat_pk_u8_i16" => op!(|m, a, b, c| saturate8(a) | saturate8(a >> 16) << 8),
        "and_b32" => op!(|m, a, b, c| a & b),
        "or_b32" => op!(|m, a, b, c| a | b),
        "xor_b32" => op!(|m, a, b, c| a ^ b),
        "xnor_b32" => op!(|m, a, b, c| !(a ^ b)),
        "and_b16" => op!(|m, a, b, c| a & b),
        "or_b16" => op!(|m, a, b, c| a | b),
        "xor_b16" => op!(|m, a, b, c| a ^ b),
        "lshlrev_b32" => op!(|m, a, b, c| b << (a & 31)),
        "lshrrev_b32" => op!(|m, a, b, c| b >> (a & 31)),
        "ashrrev_i32" => op!(|m, a, b, c| (b as i32 >> (a & 31)) as u32),
        "lshlrev_b16" => op!(|m, a, b, c| b << (a & 15) & 0xffff),
        "lshrrev_b16" => op!(|m, a, b, c| (b & 0xffff) >> (a & 15)),
        "ashrrev_i16" => op!(|m, a, b, c| (i16(b) >> (a & 15)) as u32 & 0xffff),
        "add_nc_u32" | "add_nc_i32" => op!(|m, a, b, c| a.wrapping_add(b)),
        "sub_nc_u32" | "sub_nc_i32" => op!(|m, a, b, c| a.wrapping_sub(b)),
        "subrev_nc_u32" => op!(|m, a, b, c| b.wrapping_sub(a)),
        "add_nc_u16" | "add_nc_i16" => op!(|m, a, b, c| a.wrapping_add(b) & 0xffff),
        "sub_nc_u16" | "sub_nc_i16" => op!(|m, a, b, c| a.wrapping_sub(b) & 0xffff),
        "mul_lo_u16" => op!(|m, a, b, c| a.wrapping_mul(b) & 0xffff),
        "mul_lo_u32" => op!(|m, a, b, c| a.wrapping_mul(b)),
        "mul_hi_u32" => op!(|m, a, b, c| hi(a, b)),
        "mul_hi_i32" => op!(|m, a, b, c| hi_signed(a as i32, b as i32)),
        "mul_i32_i24" => op!(|m, a, b, c| i24(a).wrapping_mul(i24(b)) as u32),
        "mul_u32_u24" => op!(|m, a, b, c| u24(a).wrapping_mul(u24(b))),
        "mul_hi_i32_i24" => op!(|m, a, b, c| hi_signed(i24(a), i24(b))),
        "mul_hi_u32_u24" => op!(|m, a, b, c| hi(u24(a), u24(b))),
        "mad_i32_i24" => op!(|m, a, b, c| i24(a).wrapping_mul(i24(b)).wrapping_add(c as i32) as u32),
        "mad_u32_u24" => op!(|m, a, b, c| u24(a).wrapping_mul(u24(b)).wrapping_add(c)),
        "mad_u16" | "mad_i16" => op!(|m, a, b, c| a.wrapping_mul(b).wrapping_add(c) & 0xffff),
        "mad_u32_u16" => op!(|m, a, b, c| (a & 0xffff).wrapping_mul(b & 0xffff).wrapping_add(c)),
        "mad_i32_i16" => op!(|m, a, b, c| i16(a).wrapping_mul(i16(b)).wrapping_add(c as i32) as u32),
        "min_i32" => op!(|m, a, b, c| (a as i32).min(b as i32) as u32),
        "max_i32" => op!(|m, a, b, c| (a as i32).max(b as i32) as u32),
        "min_u32" | "min_u16" => op!(|m, a, b, c| a.min(b)),
        "max_u32" | "max_u16" => op!(|m, a, b, c| a.max(b)),
        "min_i16" => op!(|m, a, b, c| i16(a).min(i16(b)) as u32 & 0xffff),
        "max_i16" => op!(|m, a, b, c| i16(a).max(i16(b)) as u32 & 0xffff),
        "min3_i32" => op!(|m, a, b, c| (a as i32).min(b as i32).min(c as i32) as u32),
        "max3_i32" => op!(|m, a, b, c| (a as i32).max(b as i32).max(c as i32) as u32),
        "min3_u32" | "min3_u16" => op!(|m, a, b, c| a.min(b).min(c)),
        "max3_u32" | "max3_u16" => op!(|m, a, b, c| a.max(b).max(c)),
        "min3_i16" => op!(|m, a, b, c| i16(a).min(i16(b)).min(i16(c)) as u32 & 0xffff),
        "max3_i16" => op!(|m, a, b, c| i16(a).max(i16(b)).max(i16(c)) as u32 & 0xffff),
        "med3_i32" => op!(|m, a, b, c| {
            let (a, b, c) = (a as i32, b as i32, c as i32);
            a.max(b).min(a.min(b).max(c)) as u32
        }),
        "med3_u32" | "med3_u16" => op!(|m, a, b, c| a.max(b).min(a.min(b).max(c))),
        "med3_i16" => op!(|m, a, b, c| {
            let (a, b, c) = (i16(a), i16(b), i16(c));
            a.max(b).min(a.min(b).max(c)) as u32 & 0xffff
        }),
        "maxmin_i32" => op!(|m, a, b, c| (a as i32).max(b as i32).min(c as i32) as u32),
        "minmax_i32" => op!(|m, a, b, c| (a as i32).min(b as i32).max(c as i32) as u32),
        "maxmin_u32" => op!(|m, a, b, c| a.max(b).min(c)),
        "minmax_u32" => op!(|m, a, b, c| a.min(b).max(c)),
        "bfe_u32" => op!(|m, a, b, c| bfe(a, b, c)),
        "bfe_i32" => op!(|m, a, b, c| bfe_signed(a, b, c)),
        "bfi_b32" => op!(|m, a, b, c| a & b | !a & c),
        "bfm_b32" => op!(|m, a, b, c| ((1 << (a & 31)) - 1) << (b & 31)),
        "bcnt_u32_b32" => op!(|m, a, b, c| a.count_ones().wrapping_add(b)),
        "alignbit_b32" => op!(|m, a, b, c| (((a as u64) << 32 | b as u64) >> (c & 31)) as u32),
        "alignbyte_b32" => op!(|m, a, b, c| (((a as u64) << 32 | b as u64) >> (8 * (c & 3))) as u32),
        "perm_b32" => op!(|m, a, b, c| perm(a, b, c)),
        "lerp_u8" => {
            op!(|m, a, b, c| (0..4).fold(0, |d, i| d | (byte(a, i) + byte(b, i) + (byte(c, i) & 1)) >> 1 << (8 * i)))
        }
        "sad_u8" => op!(|m, a, b, c| sad8(a, b).wrapping_add(c)),
        "sad_hi_u8" => op!(|m, a, b, c| (sad8(a, b) << 16).wrapping_add(c)),
        "sad_u16" => {
            op!(|m, a, b, c| ((a & 0xffff).abs_diff(b & 0xffff) + (a >> 16).abs_diff(b >> 16)).wrapping_add(c))
        }
        "sad_u32" => op!(|m, a, b, c| a.abs_diff(b).wrapping_add(c)),
        "msad_u8" => op!(|m, a, b, c| {
            let used = (0..4).filter(|i| byte(b, *i) != 0);
            used.map(|i| byte(a, i).abs_diff(byte(b, i))).sum::<u32>().wrapping_add(c)
        }),
        "xor3_b32" => op!(|m, a, b, c| a ^ b ^ c),
        "or3_b32" => op!(|m, a, b, c| a | b | c),
        "and_or_b32" => op!(|m, a, b, c| a & b | c),
        "xad_u32" => op!(|m, a, b, c| (a ^ b).wrapping_add(c)),
        "lshl_add_u32" => op!(|m, a, b, c| (a << (b & 31)).wrapping_add(c)),
        "add_lshl_u32" => op!(|m, a, b, c| a.wrapping_add(b) << (c & 31)),
        "lshl_or_b32" => op!(|m, a, b, c| a << (b & 31) | c),
        "add3_u32" => op!(|m, a, b, c| a.wrapping_add(b).wrapping_add(c)),
        "pack_b32_f16" => op!(|m, a, b, c| pack(a, b)),
        "cvt_pk_u16_u32" => op!(|m, a, b, c| pack(a.min(0xffff), b.min(0xffff))),
        "cvt_pk_i16_i32" => op!(|m, a, b, c| pack(clamp16(a as i32), clamp16(b as i32))),
        _ => return None,
    })
}

pub(super) fn saturating(name: &str) -> Option<Op> {
    Some(match name {
        "v_add_nc_u32" => op!(|m, a, b, c| a.saturating_add(b)),
        "v_sub_nc_u32" => op!(|m, a, b, c| a.saturating_sub(b)),
        "v_subrev_nc_u32" => op!(|m, a, b, c| b.saturating_sub(a)),
        "v_add_nc_i32" => op!(|m, a, b, c| (a as i32).saturating_add(b as i32) as u32),
        "v_sub_nc_i32" => op!(|m, a, b, c| (a as i32).saturating_sub(b as i32) as u32),
        "v_add_nc_u16" => op!(|m, a, b, c| (a + b).min(0xffff)),
        "v_sub_nc_u16" => op!(|m, a, b, c| a.saturating_sub(b)),
        "v_add_nc_i16" => op!(|m, a, b, c| clamp16(i16(a) + i16(b))),
        "v_sub_nc_i16" => op!(|m, a, b, c| clamp16(i16(a) - i16(b))),
        "v_mad_u16" => op!(|m, a, b, c| clamp_unsigned(a as i64 * b as i64 + c as i64, 0xffff)),
        "v_mad_i16" => op!(|m, a, b, c| clamp16(i16(a) * i16(b) + i16(c))),
        "v_mad_u32_u24" => op!(|m, a, b, c| clamp_unsigned(u24(a) as i64 * u24(b) as i64 + c as i64, u32::MAX)),
        "v_mad_i32_i24" => op!(|m, a, b, c| clamp32(i24(a) as i64 * i24(b) as i64 + c as i32 as i64)),
        "v_mad_u32_u16" => {
            op!(|m, a, b, c| clamp_unsigned((a & 0xffff) as i64 * (b & 0xffff) as i64 + c as i64, u32::MAX))
        }
        "v_mad_i32_i16" => op!(|m, a, b, c| clamp32(i16(a) as i64 * i16(b) as i64 + c as i32 as i64)),
        "v_sad_u8" => op!(|m, a, b, c| sad8(a, b).saturating_add(c)),
        "v_sad_hi_u8" => op!(|m, a, b, c| (sad8(a, b) << 16).saturating_add(c)),
        "v_sad_u32" => op!(|m, a, b, c| a.abs_diff(b).saturating_add(c)),
        _ => return None,
    })
}
