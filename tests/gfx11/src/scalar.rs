//! SOP1, SOP2, SOPC and SOPK.

use crate::decode::Inst;
use crate::fault::What;
use crate::float::{Mode, f16_to_f32, max32, min32, round};
use crate::operand::Scalar;
use crate::program::Step;
use crate::wave::{EXEC, NULL, Wave};

/// What a scalar operation sees: two sources, the destination's old value, SCC, MODE.
struct In<'a> {
    a: u64,
    b: u64,
    old: u64,
    scc: bool,
    mode: &'a Mode,
}

/// The result, and SCC where it is written.
type Out = (u64, Option<bool>);
type Scalar2 = fn(&In) -> Out;

fn keep(x: u64) -> Out {
    (x, None)
}
fn flag(x: u64) -> Out {
    (x, Some(x != 0))
}
fn flag32(x: u32) -> Out {
    flag(x as u64)
}
fn word(x: u32) -> Out {
    (x as u64, None)
}
fn bit(x: bool) -> Out {
    (0, Some(x))
}
fn add(a: u64, b: u64) -> Out {
    let x = a as u32 as u64 + b as u32 as u64;
    (x as u32 as u64, Some(x >> 32 != 0))
}
fn shifted_add(i: &In, by: u32) -> Out {
    let x = ((i.a as u32 as u64) << by) + i.b as u32 as u64;
    (x as u32 as u64, Some(x >> 32 != 0))
}
fn groups(x: u64, bits: u32, whole: bool) -> u64 {
    (0..bits / 4).filter(|i| x >> (4 * i) & 15 != 0).fold(0, |all, i| all | if whole { 15 << (4 * i) } else { 1 << i })
}
fn bfe(x: u64, b: u64, bits: u64) -> (u64, u64) {
    let (offset, width) = (b & (bits - 1), b >> 16 & 127);
    let mask = if width >= 64 { u64::MAX } else { (1 << width) - 1 };
    (x >> offset & mask, width)
}
fn extend(x: u64, width: u64) -> u64 {
    match width {
        0 => 0,
        64.. => x,
        _ => ((x << (64 - width)) as i64 >> (64 - width)) as u64,
    }
}
fn same_ahead(x: u64, bits: u32) -> u32 {
    let x = if bits == 32 { (x as u32 as i32 as i64) as u64 } else { x };
    let same = (x ^ (x as i64 >> 63) as u64).leading_zeros() - (64 - bits);
    if same >= bits { u32::MAX } else { same }
}
fn found(n: u32, bits: u32) -> Out {
    word(if n >= bits { u32::MAX } else { n })
}

/// Operations of f32 and f16 by mnemonic, gfx1150's.
fn float_op(name: &str) -> Option<Scalar2> {
    Some(match name {
        "s_add_f32" => |i| word(i.mode.add32(i.a as u32, i.b as u32)),
        "s_sub_f32" => |i| word(i.mode.add32(i.a as u32, i.b as u32 ^ 1 << 31)),
        "s_mul_f32" => |i| word(i.mode.mul32(i.a as u32, i.b as u32)),
        "s_min_f32" => |i| word(i.mode.to32(min32(i.mode.f(i.a as u32), i.mode.f(i.b as u32)))),
        "s_max_f32" => |i| word(i.mode.to32(max32(i.mode.f(i.a as u32), i.mode.f(i.b as u32)))),
        "s_fmac_f32" => |i| word(i.mode.fma32(i.a as u32, i.b as u32, i.old as u32)),
        "s_add_f16" => |i| word(i.mode.add16(i.a as u32, i.b as u32)),
        "s_sub_f16" => |i| word(i.mode.add16(i.a as u32, i.b as u32 ^ 0x8000)),
        "s_mul_f16" => |i| word(i.mode.mul16(i.a as u32, i.b as u32)),
        "s_min_f16" => |i| word(i.mode.to16(min32(i.mode.h(i.a as u32), i.mode.h(i.b as u32)))),
        "s_max_f16" => |i| word(i.mode.to16(max32(i.mode.h(i.a as u32), i.mode.h(i.b as u32)))),
        "s_fmac_f16" => |i| word(i.mode.fma16(i.a as u32, i.b as u32, i.old as u32)),
        "s_cvt_pk_rtz_f16_f32" => |i| {
            let one = |x: u64| i.mode.out16(round(i.mode.f(x as u32) as f64, 0.0, 11, -14, 3));
            word(one(i.a) | one(i.b) << 16)
        },
        "s_ceil_f32" => |i| word(i.mode.to32(i.mode.f(i.a as u32).ceil())),
        "s_floor_f32" => |i| word(i.mode.to32(i.mode.f(i.a as u32).floor())),
        "s_trunc_f32" => |i| word(i.mode.to32(i.mode.f(i.a as u32).trunc())),
        "s_rndne_f32" => |i| word(i.mode.to32(i.mode.f(i.a as u32).round_ties_even())),
        "s_ceil_f16" => |i| word(i.mode.to16(i.mode.h(i.a as u32).ceil())),
        "s_floor_f16" => |i| word(i.mode.to16(i.mode.h(i.a as u32).floor())),
        "s_trunc_f16" => |i| word(i.mode.to16(i.mode.h(i.a as u32).trunc())),
        "s_rndne_f16" => |i| word(i.mode.to16(i.mode.h(i.a as u32).round_ties_even())),
        "s_cvt_f32_i32" => |i| word(i.mode.exact32(i.a as u32 as i32 as f64, 0.0)),
        "s_cvt_f32_u32" => |i| word(i.mode.exact32(i.a as u32 as f64, 0.0)),
        "s_cvt_i32_f32" => |i| word(i.mode.f(i.a as u32) as i32 as u32),
        "s_cvt_u32_f32" => |i| word(i.mode.f(i.a as u32) as u32),
        "s_cvt_f16_f32" => |i| word(i.mode.to16(i.mode.f(i.a as u32))),
        "s_cvt_f32_f16" => |i| word(f16_to_f32(i.mode.in16(i.a as u32)).to_bits()),
        "s_cvt_hi_f32_f16" => |i| word(f16_to_f32(i.mode.in16((i.a >> 16) as u32)).to_bits()),
        _ => return None,
    })
}

fn op(name: &str) -> Option<Scalar2> {
    Some(match name {
        "s_mov_b32" | "s_mov_b64" | "s_movk_i32" => |i| keep(i.a),
        "s_cmov_b32" | "s_cmov_b64" | "s_cmovk_i32" => |i| keep(if i.scc { i.a } else { i.old }),
        "s_brev_b32" => |i| word((i.a as u32).reverse_bits()),
        "s_brev_b64" => |i| keep(i.a.reverse_bits()),
        "s_ctz_i32_b32" => |i| found((i.a as u32).trailing_zeros(), 32),
        "s_ctz_i32_b64" => |i| found(i.a.trailing_zeros(), 64),
        "s_clz_i32_u32" => |i| found((i.a as u32).leading_zeros(), 32),
        "s_clz_i32_u64" => |i| found(i.a.leading_zeros(), 64),
        "s_cls_i32" => |i| word(same_ahead(i.a, 32)),
        "s_cls_i32_i64" => |i| word(same_ahead(i.a, 64)),
        "s_sext_i32_i8" => |i| word(i.a as i8 as u32),
        "s_sext_i32_i16" => |i| word(i.a as i16 as u32),
        "s_bitset0_b32" => |i| keep(i.old & !(1 << (i.a & 31))),
        "s_bitset0_b64" => |i| keep(i.old & !(1 << (i.a & 63))),
        "s_bitset1_b32" => |i| keep(i.old | 1 << (i.a & 31)),
        "s_bitset1_b64" => |i| keep(i.old | 1 << (i.a & 63)),
        "s_bitreplicate_b64_b32" => |i| keep((0..32).fold(0, |all, n| all | ((i.a >> n & 1) * 3) << (2 * n))),
        "s_abs_i32" => |i| flag32((i.a as u32 as i32).wrapping_abs() as u32),
        "s_bcnt0_i32_b32" => |i| flag32((i.a as u32).count_zeros()),
        "s_bcnt0_i32_b64" => |i| flag32(i.a.count_zeros()),
        "s_bcnt1_i32_b32" => |i| flag32((i.a as u32).count_ones()),
        "s_bcnt1_i32_b64" => |i| flag32(i.a.count_ones()),
        "s_quadmask_b32" => |i| flag(groups(i.a, 32, false)),
        "s_quadmask_b64" => |i| flag(groups(i.a, 64, false)),
        "s_wqm_b32" => |i| flag(groups(i.a, 32, true)),
        "s_wqm_b64" => |i| flag(groups(i.a, 64, true)),
        "s_not_b32" => |i| flag32(!(i.a as u32)),
        "s_not_b64" => |i| flag(!i.a),
        "s_add_u32" => |i| add(i.a, i.b),
        "s_sub_u32" => |i| (i.a.wrapping_sub(i.b) as u32 as u64, Some((i.b as u32) > i.a as u32)),
        "s_addc_u32" => |i| {
            let x = i.a as u32 as u64 + i.b as u32 as u64 + i.scc as u64;
            (x as u32 as u64, Some(x >> 32 != 0))
        },
        "s_subb_u32" => |i| {
            let x = (i.a as u32 as i64) - i.b as u32 as i64 - i.scc as i64;
            (x as u32 as u64, Some(x < 0))
        },
        "s_add_i32" | "s_addk_i32" => |i| {
            let (x, over) = (i.a as i32).overflowing_add(i.b as i32);
            (x as u32 as u64, Some(over))
        },
        "s_sub_i32" => |i| {
            let (x, over) = (i.a as i32).overflowing_sub(i.b as i32);
            (x as u32 as u64, Some(over))
        },
        "s_absdiff_i32" => |i| flag32((i.a as i32).wrapping_sub(i.b as i32).wrapping_abs() as u32),
        "s_lshl_b32" => |i| flag32((i.a as u32) << (i.b & 31)),
        "s_lshl_b64" => |i| flag(i.a << (i.b & 63)),
        "s_lshr_b32" => |i| flag32(i.a as u32 >> (i.b & 31)),
        "s_lshr_b64" => |i| flag(i.a >> (i.b & 63)),
        "s_ashr_i32" => |i| flag32((i.a as i32 >> (i.b & 31)) as u32),
        "s_ashr_i64" => |i| flag((i.a as i64 >> (i.b & 63)) as u64),
        "s_lshl1_add_u32" => |i| shifted_add(i, 1),
        "s_lshl2_add_u32" => |i| shifted_add(i, 2),
        "s_lshl3_add_u32" => |i| shifted_add(i, 3),
        "s_lshl4_add_u32" => |i| shifted_add(i, 4),
        "s_min_i32" => |i| ((i.a as i32).min(i.b as i32) as u32 as u64, Some((i.a as i32) < i.b as i32)),
        "s_min_u32" => |i| ((i.a as u32).min(i.b as u32) as u64, Some((i.a as u32) < i.b as u32)),
        "s_max_i32" => |i| ((i.a as i32).max(i.b as i32) as u32 as u64, Some(i.a as i32 >= i.b as i32)),
        "s_max_u32" => |i| ((i.a as u32).max(i.b as u32) as u64, Some(i.a as u32 >= i.b as u32)),
        "s_and_b32" | "s_and_b64" => |i| flag(i.a & i.b),
        "s_or_b32" | "s_or_b64" => |i| flag(i.a | i.b),
        "s_xor_b32" | "s_xor_b64" => |i| flag(i.a ^ i.b),
        "s_nand_b32" => |i| flag32(!(i.a & i.b) as u32),
        "s_nand_b64" => |i| flag(!(i.a & i.b)),
        "s_nor_b32" => |i| flag32(!(i.a | i.b) as u32),
        "s_nor_b64" => |i| flag(!(i.a | i.b)),
        "s_xnor_b32" => |i| flag32(!(i.a ^ i.b) as u32),
        "s_xnor_b64" => |i| flag(!(i.a ^ i.b)),
        "s_and_not1_b32" | "s_and_not1_b64" => |i| flag(i.a & !i.b),
        "s_or_not1_b32" => |i| flag32((i.a | !i.b) as u32),
        "s_or_not1_b64" => |i| flag(i.a | !i.b),
        "s_bfe_u32" => |i| flag(bfe(i.a as u32 as u64, i.b, 32).0),
        "s_bfe_u64" => |i| flag(bfe(i.a, i.b, 64).0),
        "s_bfe_i32" => |i| {
            let (x, width) = bfe(i.a as u32 as u64, i.b, 32);
            flag32(extend(x, width) as u32)
        },
        "s_bfe_i64" => |i| {
            let (x, width) = bfe(i.a, i.b, 64);
            flag(extend(x, width))
        },
        "s_bfm_b32" => |i| word(((1u32 << (i.a & 31)) - 1) << (i.b & 31)),
        "s_bfm_b64" => |i| keep(((1 << (i.a & 63)) - 1) << (i.b & 63)),
        "s_mul_i32" | "s_mulk_i32" => |i| word((i.a as u32).wrapping_mul(i.b as u32)),
        "s_mul_hi_u32" => |i| keep((i.a as u32 as u64 * i.b as u32 as u64) >> 32),
        "s_mul_hi_i32" => |i| word(((i.a as i32 as i64 * i.b as i32 as i64) >> 32) as u32),
        "s_cselect_b32" | "s_cselect_b64" => |i| keep(if i.scc { i.a } else { i.b }),
        "s_pack_ll_b32_b16" => |i| keep(i.a & 0xffff | (i.b & 0xffff) << 16),
        "s_pack_lh_b32_b16" => |i| keep(i.a & 0xffff | i.b & 0xffff_0000),
        "s_pack_hh_b32_b16" => |i| keep(i.a >> 16 & 0xffff | i.b & 0xffff_0000),
        "s_pack_hl_b32_b16" => |i| keep(i.a >> 16 & 0xffff | (i.b & 0xffff) << 16),
        _ => return compare(name).or_else(|| float_op(name)),
    })
}

fn compare(name: &str) -> Option<Scalar2> {
    let rest = name.strip_prefix("s_cmpk_").or_else(|| name.strip_prefix("s_cmp_")).unwrap_or(name);
    Some(match rest {
        "eq_i32" | "eq_u32" => |i| bit(i.a as u32 == i.b as u32),
        "lg_i32" | "lg_u32" => |i| bit(i.a as u32 != i.b as u32),
        "gt_i32" => |i| bit(i.a as i32 > i.b as i32),
        "ge_i32" => |i| bit(i.a as i32 >= i.b as i32),
        "lt_i32" => |i| bit((i.a as i32) < i.b as i32),
        "le_i32" => |i| bit(i.a as i32 <= i.b as i32),
        "gt_u32" => |i| bit(i.a as u32 > i.b as u32),
        "ge_u32" => |i| bit(i.a as u32 >= i.b as u32),
        "lt_u32" => |i| bit((i.a as u32) < i.b as u32),
        "le_u32" => |i| bit(i.a as u32 <= i.b as u32),
        "eq_u64" => |i| bit(i.a == i.b),
        "lg_u64" => |i| bit(i.a != i.b),
        "s_bitcmp0_b32" => |i| bit(i.a >> (i.b & 31) & 1 == 0),
        "s_bitcmp1_b32" => |i| bit(i.a >> (i.b & 31) & 1 != 0),
        "s_bitcmp0_b64" => |i| bit(i.a >> (i.b & 63) & 1 == 0),
        "s_bitcmp1_b64" => |i| bit(i.a >> (i.b & 63) & 1 != 0),
        _ => {
            let (condition, format) = rest.rsplit_once('_')?;
            macro_rules! by {
                ($of:ident) => {
                    match condition {
                        "lt" => |i: &In| bit(i.mode.$of(i.a as u32) < i.mode.$of(i.b as u32)),
                        "eq" => |i: &In| bit(i.mode.$of(i.a as u32) == i.mode.$of(i.b as u32)),
                        "le" => |i: &In| bit(i.mode.$of(i.a as u32) <= i.mode.$of(i.b as u32)),
                        "gt" => |i: &In| bit(i.mode.$of(i.a as u32) > i.mode.$of(i.b as u32)),
                        "ge" => |i: &In| bit(i.mode.$of(i.a as u32) >= i.mode.$of(i.b as u32)),
                        "neq" => |i: &In| bit(i.mode.$of(i.a as u32) != i.mode.$of(i.b as u32)),
                        "nge" => |i: &In| bit(!(i.mode.$of(i.a as u32) >= i.mode.$of(i.b as u32))),
                        "ngt" => |i: &In| bit(!(i.mode.$of(i.a as u32) > i.mode.$of(i.b as u32))),
                        "nle" => |i: &In| bit(!(i.mode.$of(i.a as u32) <= i.mode.$of(i.b as u32))),
                        "nlt" => |i: &In| bit(!(i.mode.$of(i.a as u32) < i.mode.$of(i.b as u32))),
                        "o" => |i: &In| bit(!i.mode.$of(i.a as u32).is_nan() && !i.mode.$of(i.b as u32).is_nan()),
                        "u" => |i: &In| bit(i.mode.$of(i.a as u32).is_nan() || i.mode.$of(i.b as u32).is_nan()),
                        "lg" => |i: &In| {
                            let (a, b) = (i.mode.$of(i.a as u32), i.mode.$of(i.b as u32));
                            bit(a < b || a > b)
                        },
                        "nlg" => |i: &In| {
                            let (a, b) = (i.mode.$of(i.a as u32), i.mode.$of(i.b as u32));
                            bit(!(a < b || a > b))
                        },
                        _ => return None,
                    }
                };
            }
            match format {
                "f32" => by!(f),
                "f16" => by!(h),
                _ => return None,
            }
        }
    })
}

/// Poisoned bits of a result: those of bitwise operations bit by bit, of all others all of it.
fn poison(name: &str, (a, pa): (u64, u64), (b, pb): (u64, u64)) -> u64 {
    if pa | pb == 0 {
        return 0;
    }
    let base = name.trim_end_matches("_b32").trim_end_matches("_b64");
    match base {
        "s_mov" => pa,
        "s_not" => pa,
        "s_and" | "s_nand" => (pa | pb) & (a | pa) & (b | pb),
        "s_and_not1" => (pa | pb) & (a | pa) & (!b | pb),
        "s_or" | "s_nor" => (pa | pb) & (!a | pa) & (!b | pb),
        "s_or_not1" => (pa | pb) & (!a | pa) & (b | pb),
        "s_xor" | "s_xnor" => pa | pb,
        _ => u64::MAX,
    }
}

/// The step of an instruction of SOP1, SOP2, SOPC or SOPK.
pub fn step(inst: &Inst) -> Result<Step, What> {
    let name = inst.opcode.name;
    if let Some(step) = exec_step(inst)? {
        return Ok(step);
    }
    let unknown = || What::NotExecuted(name.to_string());
    let source =
        |field: &str| inst.opcode.operand(field).map(|o| (Scalar::of(inst.get(field), o, inst.literal), o.bits == 64));
    let immediate = Some((Scalar::Const(inst.simm16() as u32 as u64), false));
    let unsigned = Some((Scalar::Const(inst.get("simm16") as u64), false));
    let dst = (inst.get("sdst") as usize, inst.opcode.operand("sdst").is_some_and(|o| o.bits == 64));
    let register = Some((Scalar::Reg(dst.0), false));
    let (a, b) = match (inst.encoding(), name) {
        ("SOPK", "s_movk_i32" | "s_cmovk_i32") => (immediate, None),
        ("SOPK", _) if name.ends_with("_u32") => (register, unsigned),
        ("SOPK", _) => (register, immediate),
        _ => (source("ssrc0"), source("ssrc1")),
    };
    let op = match name {
        "s_fmaak_f32" | "s_fmamk_f32" => return fma_step(inst),
        _ => op(name).ok_or_else(unknown)?,
    };
    let (a, wide_a) = a.ok_or_else(unknown)?;
    let (b, wide_b) = b.unwrap_or((Scalar::Const(0), false));
    let writes = !(inst.encoding() == "SOPC" || name.starts_with("s_cmpk"));
    let reads_old = ["s_cmov", "s_bitset", "s_fmac"].iter().any(|p| name.starts_with(p));
    let reads_scc = ["s_cmov", "s_cselect", "s_addc", "s_subb"].iter().any(|p| name.starts_with(p));
    Ok(Box::new(move |w: &mut Wave, _| {
        let (a, b) = (a.read(w, wide_a), b.read(w, wide_b));
        let old = if reads_old { w.read_s(dst.0, dst.1) } else { (0, 0) };
        let (x, scc) = op(&In { a: a.0, b: b.0, old: old.0, scc: w.scc, mode: &w.mode });
        let mut bad = poison(name, a, b) | old.1;
        if reads_scc && w.scc_poison {
            bad = u64::MAX;
        }
        if let Some(scc) = scc {
            let bits = if wide_a || dst.1 { u64::MAX } else { u32::MAX as u64 };
            (w.scc, w.scc_poison) = (scc, bad & bits != 0);
        }
        if writes { w.write_s(dst.0, dst.1, x, bad) } else { Ok(()) }
    }))
}

/// s_fmaak and s_fmamk have a third source, the literal.
fn fma_step(inst: &Inst) -> Result<Step, What> {
    let literal = inst.literal.unwrap_or(0);
    let operand = inst.opcode.operand("ssrc0").ok_or_else(|| What::NotExecuted(inst.name()))?;
    let of = |field| Scalar::of(inst.get(field), operand, inst.literal);
    let (a, b, dst) = (of("ssrc0"), of("ssrc1"), inst.get("sdst") as usize);
    let adds = inst.opcode.name == "s_fmaak_f32";
    Ok(Box::new(move |w: &mut Wave, _| {
        let ((a, pa), (b, pb)) = (a.read(w, false), b.read(w, false));
        let (b, c) = if adds { (b as u32, literal) } else { (literal, b as u32) };
        let x = w.mode.fma32(a as u32, b, c);
        w.write_s(dst, false, x as u64, if pa | pb == 0 { 0 } else { u64::MAX })
    }))
}

/// Those that write EXEC and keep or return its old value.
fn exec_step(inst: &Inst) -> Result<Option<Step>, What> {
    let name = inst.opcode.name;
    let Some((kind, tail)) = name.split_once("_saveexec_").or_else(|| name.split_once("_wrexec_")) else {
        return Ok(None);
    };
    let saves = name.contains("_saveexec_");
    let wide = tail == "b64";
    let f: fn(u64, u64) -> u64 = match kind {
        "s_and" => |s, e| s & e,
        "s_or" => |s, e| s | e,
        "s_xor" => |s, e| s ^ e,
        "s_nand" => |s, e| !(s & e),
        "s_nor" => |s, e| !(s | e),
        "s_xnor" => |s, e| !(s ^ e),
        "s_and_not0" => |s, e| !s & e,
        "s_or_not0" => |s, e| !s | e,
        "s_and_not1" => |s, e| s & !e,
        "s_or_not1" => |s, e| s | !e,
        _ => return Err(What::NotExecuted(name.to_string())),
    };
    let operand = inst.opcode.operand("ssrc0").ok_or_else(|| What::NotExecuted(name.to_string()))?;
    let (source, dst) = (Scalar::of(inst.get("ssrc0"), operand, inst.literal), inst.get("sdst") as usize);
    Ok(Some(Box::new(move |w: &mut Wave, _| {
        let (s, bad) = source.read(w, wide);
        let (exec, _) = w.read_s(EXEC, wide);
        // Bits that the other side settles are known all the same.
        let bad = match kind {
            "s_and" | "s_nand" | "s_and_not0" => bad & exec,
            "s_or" | "s_nor" | "s_or_not0" | "s_and_not1" => bad & !exec,
            _ => bad,
        };
        let mut x = f(s, exec);
        if !wide {
            x &= u32::MAX as u64;
        }
        w.write_s(EXEC, wide, x, bad)?;
        let kept = if saves { exec } else { x };
        if dst != NULL {
            w.write_s(dst, wide, kept, 0)?;
        }
        (w.scc, w.scc_poison) = (x != 0, false);
        Ok(())
    })))
}
