//! Opcodes of Kiln's kernels that no vector has, 1,000 times each with values of chance and from edges, against arithmetic
//! written here for itself: on whole numbers of 128 bits, and floats through a rounding of its own.

use crate::common::{END, Random, assemble, run, wave};
use gfx11::isa::isa;
use gfx11::lds::Lds;
use gfx11::memory::Memory;
use gfx11::wave::{EXEC, VCC, Wave};

const ROUNDS: usize = 1000;

const EDGES: [u32; 16] = [
    0,
    1,
    2,
    31,
    32,
    0x7fff_ffff,
    0x8000_0000,
    u32::MAX,
    0x3f80_0000,
    0xbf80_0000,
    0x7f80_0000,
    0xff80_0000,
    0x7fc0_0000,
    0x0000_ffff,
    0x0080_0000,
    0x8000_0001,
];

fn value(random: &mut Random) -> u32 {
    let x = random.next();
    match x % 4 {
        0 => EDGES[(x >> 8) as usize % EDGES.len()],
        1 => (x >> 8) % 64,
        _ => random.next(),
    }
}

fn execute(code: Vec<u32>, w: &mut Wave) {
    run(&[code, vec![END]].concat(), w, &mut Lds::new(0), &Memory::default()).unwrap();
}

type Three = fn(u32, u32, u32) -> u32;

/// Integer opcodes: each by sums, products and quotients of i128.
const INTEGERS: [(&str, Three); 24] = [
    ("v_add3_u32", |a, b, c| ((a as u128 + b as u128 + c as u128) % (1 << 32)) as u32),
    ("v_add_lshl_u32", |a, b, c| (((a as u128 + b as u128) << (c % 32)) % (1 << 32)) as u32),
    ("v_and_or_b32", |a, b, c| bits(|i| at(a, i) && at(b, i) || at(c, i))),
    ("v_lshl_add_u32", |a, b, c| (((a as u128) << (b % 32)) % (1 << 32) + c as u128) as u64 as u32),
    ("v_lshl_or_b32", |a, b, c| bits(|i| i >= b % 32 && at(a, i - b % 32) || at(c, i))),
    ("v_mad_u32_u24", |a, b, c| ((a as u128 % (1 << 24)) * (b as u128 % (1 << 24)) + c as u128) as u64 as u32),
    ("v_max3_u32", |a, b, c| *[a, b, c].iter().max().unwrap()),
    ("v_maxmin_i32", |a, b, c| signed([a, b]).into_iter().max().unwrap().min(c as i32 as i128) as i32 as u32),
    ("v_min_u32", |a, b, _| *[a, b].iter().min().unwrap()),
    ("v_not_b32", |a, _, _| u32::MAX - a),
    ("v_or3_b32", |a, b, c| bits(|i| at(a, i) || at(b, i) || at(c, i))),
    ("v_xor3_b32", |a, b, c| bits(|i| at(a, i) != (at(b, i) != at(c, i)))),
    ("v_subrev_nc_u32", |a, b, _| (b as i128 - a as i128).rem_euclid(1 << 32) as u32),
    ("v_sub_nc_u32", |a, b, _| (a as i128 - b as i128).rem_euclid(1 << 32) as u32),
    ("v_cvt_f32_ubyte0", |a, _, _| nearest((a % 256) as i128, 0)),
    ("v_cvt_f32_ubyte1", |a, _, _| nearest((a / 256 % 256) as i128, 0)),
    ("v_cvt_f32_ubyte2", |a, _, _| nearest((a / 65536 % 256) as i128, 0)),
    ("v_cvt_f32_ubyte3", |a, _, _| nearest((a / 16_777_216) as i128, 0)),
    ("v_cvt_f32_i32", |a, _, _| nearest(a as i32 as i128, 0)),
    ("v_cvt_f32_u32", |a, _, _| nearest(a as i128, 0)),
    ("v_bfe_i32", |a, b, c| {
        let (from, width) = (b % 32, c % 32);
        let top = (from + width).min(32);
        bits(|i| {
            width > 0 && if i < top - from { at(a, from + i) } else { from + width <= 32 && at(a, from + width - 1) }
        })
    }),
    ("v_alignbit_b32", |a, b, c| bits(|i| if i + c % 32 < 32 { at(b, i + c % 32) } else { at(a, i + c % 32 - 32) })),
    ("v_perm_b32", |a, b, c| {
        let bytes: Vec<u8> = b.to_le_bytes().into_iter().chain(a.to_le_bytes()).collect();
        let sign = |i: usize| if bytes[i] > 127 { 255 } else { 0 };
        u32::from_le_bytes(c.to_le_bytes().map(|s| match s {
            0..=7 => bytes[s as usize],
            8..=11 => sign(2 * (s as usize - 8) + 1),
            12 => 0,
            _ => 255,
        }))
    }),
    ("v_dot4_i32_iu8", |a, b, c| {
        // No sign modifiers: bytes are unsigned.
        let sum: i128 = a.to_le_bytes().iter().zip(b.to_le_bytes()).map(|(a, b)| *a as i128 * b as i128).sum();
        (sum + c as i128) as u64 as u32
    }),
];

fn at(x: u32, i: u32) -> bool {
    x >> i & 1 == 1
}
fn bits(f: impl Fn(u32) -> bool) -> u32 {
    (0..32).filter(|i| f(*i)).map(|i| 1 << i).sum()
}
fn signed(x: [u32; 2]) -> [i128; 2] {
    x.map(|x| x as i32 as i128)
}

/// `number` · 2^`scale` as an f32: to nearest even, by division, small results flushed.
fn nearest(number: i128, scale: i32) -> u32 {
    if number == 0 {
        return 0;
    }
    let sign = if number < 0 { 1 << 31 } else { 0 };
    let magnitude = number.unsigned_abs();
    let digits = 128 - magnitude.leading_zeros() as i32;
    let (mut mantissa, mut exponent) = (magnitude, digits - 24);
    if exponent > 0 {
        let unit = 1u128 << exponent;
        let (whole, rest) = (magnitude / unit, magnitude % unit);
        let up = 2 * rest > unit || 2 * rest == unit && whole % 2 == 1;
        mantissa = whole + up as u128;
        if mantissa == 1 << 24 {
            (mantissa, exponent) = (1 << 23, exponent + 1);
        }
    } else {
        mantissa <<= -exponent;
    }
    match exponent + scale + 150 {
        ..=0 => sign,
        255.. => sign | 0x7f80_0000,
        e => sign | (e as u32) << 23 | (mantissa as u32 & 0x7f_ffff),
    }
}

/// Mantissa with sign, and exponent; denormals are flushed.
fn parts(x: u32) -> (i128, i32) {
    let e = (x >> 23 & 255) as i32;
    if e == 0 {
        return (0, -33);
    }
    let m = (1 << 23 | x & 0x7f_ffff) as i128;
    (if x >> 31 != 0 { -m } else { m }, e - 150)
}

/// a · b + c exactly, then rounded; all within 2^±30.
fn fused(a: u32, b: u32, c: u32) -> u32 {
    let ((a, ea), (b, eb), (c, ec)) = (parts(a), parts(b), parts(c));
    let low = (ea + eb).min(ec);
    nearest(((a * b) << (ea + eb - low)) + (c << (ec - low)), low)
}

const ONE: u32 = 0x3f80_0000;

/// Float opcodes of a b and c in [2^-10, 2^10] or zero, with signs.
const FLOATS: [(&str, Three); 10] = [
    ("v_add_f32", |a, b, _| fused(a, ONE, b)),
    ("v_sub_f32", |a, b, _| fused(a, ONE, b ^ 1 << 31)),
    ("v_subrev_f32", |a, b, _| fused(a ^ 1 << 31, ONE, b)),
    ("v_mul_f32", |a, b, _| fused(a, b, 0)),
    ("v_mul_dx9_zero_f32", |a, b, _| fused(a, b, 0)),
    ("v_fma_f32", fused),
    ("v_fmac_f32", fused),
    ("v_max3_f32", |a, b, c| [a, b, c].into_iter().max_by_key(|x| order(*x)).unwrap()),
    ("v_maxmin_f32", |a, b, c| {
        let most = [a, b].into_iter().max_by_key(|x| order(*x)).unwrap();
        [most, c].into_iter().min_by_key(|x| order(*x)).unwrap()
    }),
    ("v_med3_f32", |a, b, c| {
        let mut all = [a, b, c];
        all.sort_by_key(|x| order(*x));
        all[1]
    }),
];

/// Floats in the order of this number; -0 lies below 0.
fn order(x: u32) -> i64 {
    if x >> 31 != 0 { -((x & 0x7fff_ffff) as i64) - 1 } else { x as i64 }
}

fn float(random: &mut Random) -> u32 {
    let x = random.next();
    if x.is_multiple_of(16) { 0 } else { x & 0x807f_ffff | (117 + random.next() % 21) << 23 }
}

/// The vector instruction of v0, v1 and v2 (of fmac v3) to v3, in each encoding that has it.
fn codes(name: &str) -> Vec<Vec<u32>> {
    let mut codes = Vec::new();
    for encoding in ["VOP1", "VOP2", "VOP3", "VOP3P"] {
        let Some(opcode) = isa().opcodes.values().find(|o| o.encoding == encoding && o.name == name) else { continue };
        let mut fields = vec![("vdst", 3)];
        for (field, value) in [("src0", 256), ("vsrc1", 1), ("src1", 257), ("src2", 258)] {
            if opcode.operand(field).is_some() {
                fields.push((field, value));
            }
        }
        codes.push(assemble(encoding, name, &fields));
    }
    assert!(!codes.is_empty(), "{name}");
    codes
}

fn compare(name: &str, expected: Three, input: fn(&mut Random) -> u32) {
    let mut random = Random(name.bytes().fold(7, |all: u64, b| all.wrapping_mul(31) + b as u64));
    for code in codes(name) {
        for _ in 0..ROUNDS.div_ceil(32) {
            let [a, b, c] = [0; 3].map(|_| [0; 32].map(|_| input(&mut random)));
            for fast in [false, gfx11::ops::has_fast()] {
                let mut w = wave();
                w.fast = fast;
                [a, b, c, c].into_iter().enumerate().for_each(|(r, x)| w.set_v(0, r, x));
                execute(code.clone(), &mut w);
                for i in 0..32 {
                    let (got, want) = (w.v[3][i], expected(a[i], b[i], c[i]));
                    // A zero's sign is the hardware's and the host's rule, not that of the exact number.
                    let zeros = got << 1 == 0 && want << 1 == 0 && name.ends_with("f32");
                    assert!(got == want || zeros, "{name} {:x} {:x} {:x}: {got:x}, not {want:x}", a[i], b[i], c[i]);
                }
            }
        }
    }
}

#[test]
fn integer_opcodes() {
    INTEGERS.iter().for_each(|(name, expected)| compare(name, *expected, value));
}

#[test]
fn float_opcodes() {
    FLOATS.iter().for_each(|(name, expected)| compare(name, *expected, float));
}

/// Other rounding modes: the number next to the exact one on the side that the mode names.
#[test]
fn sums_and_products_round_as_mode_says() {
    let mut random = Random(99);
    for (name, expected) in FLOATS.iter().filter(|(name, _)| ["v_add_f32", "v_mul_f32", "v_fma_f32"].contains(name)) {
        let code = codes(name).pop().unwrap();
        for _ in 0..ROUNDS.div_ceil(32) {
            let [a, b, c] = [0; 3].map(|_| [0; 32].map(|_| float(&mut random)));
            let results = [0, 1, 2, 3].map(|mode| {
                let mut w = wave();
                w.mode.float = 0xc0 | mode;
                [a, b, c].into_iter().enumerate().for_each(|(r, x)| w.set_v(0, r, x));
                execute(code.clone(), &mut w);
                w.v[3]
            });
            for i in 0..32 {
                let [near, up, down, zero] = results.map(|r| f32::from_bits(r[i]));
                assert_eq!(near, f32::from_bits(expected(a[i], b[i], c[i])));
                assert!(down <= near && near <= up && (near == up || near == down), "{name}: {down} {near} {up}");
                assert!(up == down || up == down.next_up(), "{name}: {down} {up}");
                assert_eq!(zero, if near < 0.0 || down < 0.0 { up } else { down }, "{name}");
            }
        }
    }
}

type Two = fn(i128, i128) -> (i128, Option<bool>);

/// Scalar opcodes of two unsigned numbers: the result, and SCC where it is written.
const SCALARS: [(&str, Two); 33] = [
    ("s_and_not1_b32", |a, b| some(a - (a & b))),
    ("s_or_not1_b32", |a, b| some(a | (FULL - b))),
    ("s_nand_b32", |a, b| some(FULL - (a & b))),
    ("s_nor_b32", |a, b| some(FULL - (a | b))),
    ("s_xor_b32", |a, b| some((a | b) - (a & b))),
    ("s_ashr_i32", |a, b| some(sign(a).div_euclid(1 << (b % 32)) & FULL)),
    ("s_lshl_b32", |a, b| some((a << (b % 32)) & FULL)),
    ("s_lshr_b32", |a, b| some(a / (1 << (b % 32)))),
    ("s_bfe_u32", |a, b| some(a / (1 << (b % 32)) % (1 << (b / 65536 % 128).min(64)))),
    ("s_bfm_b32", |a, b| (((1 << (a % 32)) - 1) << (b % 32) & FULL, None)),
    ("s_lshl1_add_u32", |a, b| ((2 * (a & FULL) + b) & FULL, Some(2 * a + b > FULL))),
    ("s_lshl2_add_u32", |a, b| ((4 * a + b) & FULL, Some(4 * a + b > FULL))),
    ("s_lshl3_add_u32", |a, b| ((8 * a + b) & FULL, Some(8 * a + b > FULL))),
    ("s_lshl4_add_u32", |a, b| ((16 * a + b) & FULL, Some(16 * a + b > FULL))),
    ("s_max_i32", |a, b| (sign(a).max(sign(b)) & FULL, Some(sign(a) >= sign(b)))),
    ("s_max_u32", |a, b| (a.max(b), Some(a >= b))),
    ("s_min_i32", |a, b| (sign(a).min(sign(b)) & FULL, Some(sign(a) < sign(b)))),
    ("s_min_u32", |a, b| (a.min(b), Some(a < b))),
    ("s_mul_i32", |a, b| ((a * b) & FULL, None)),
    ("s_mul_hi_u32", |a, b| ((a * b) >> 32, None)),
    ("s_add_i32", |a, b| ((a + b) & FULL, Some(over(sign(a) + sign(b))))),
    ("s_sub_i32", |a, b| ((a - b) & FULL, Some(over(sign(a) - sign(b))))),
    ("s_cmp_eq_i32", |a, b| (-1, Some(a == b))),
    ("s_cmp_lg_i32", |a, b| (-1, Some(a != b))),
    ("s_cmp_ge_u32", |a, b| (-1, Some(a >= b))),
    ("s_cmp_lg_u32", |a, b| (-1, Some(a != b))),
    ("s_cmp_lt_i32", |a, b| (-1, Some(sign(a) < sign(b)))),
    ("s_cmp_lt_u32", |a, b| (-1, Some(a < b))),
    ("s_add_f32", |a, b| (fused(a as u32, ONE, b as u32) as i128, None)),
    ("s_sub_f32", |a, b| (fused(a as u32, ONE, b as u32 ^ 1 << 31) as i128, None)),
    ("s_mul_f32", |a, b| (fused(a as u32, b as u32, 0) as i128, None)),
    ("s_cmp_lt_f32", |a, b| (-1, Some(f32::from_bits(a as u32) < f32::from_bits(b as u32)))),
    ("s_cmp_ge_f32", |a, b| (-1, Some(f32::from_bits(a as u32) >= f32::from_bits(b as u32)))),
];
const FULL: i128 = u32::MAX as i128;

fn some(x: i128) -> (i128, Option<bool>) {
    (x, Some(x != 0))
}
fn sign(x: i128) -> i128 {
    x as u32 as i32 as i128
}
fn over(x: i128) -> bool {
    x != x as i32 as i128
}

#[test]
fn scalar_opcodes() {
    let mut random = Random(17);
    for (name, expected) in SCALARS {
        let (encoding, dst) = if name.contains("cmp") { ("SOPC", None) } else { ("SOP2", Some(("sdst", 2))) };
        let fields: Vec<_> = [("ssrc0", 0), ("ssrc1", 1)].into_iter().chain(dst).collect();
        let code = assemble(encoding, name, &fields);
        for _ in 0..ROUNDS {
            let input = if name.ends_with("f32") { float } else { value };
            let [a, b] = [0; 2].map(|_| input(&mut random));
            let mut w = wave();
            (w.scc, w.scc_poison) = (a & 8 != 0, false);
            let before = w.scc;
            [a, b].into_iter().enumerate().for_each(|(r, x)| w.set_s(r, x));
            execute(code.clone(), &mut w);
            let (want, scc) = expected(a as i128, b as i128);
            let zeros = name.ends_with("f32") && w.s[2] << 1 == 0 && want == 0;
            assert!(want < 0 || w.s[2] == want as u32 || zeros, "{name} {a:x} {b:x}: {:x}, not {want:x}", w.s[2]);
            assert_eq!(w.scc, scc.unwrap_or(before), "{name} {a:x} {b:x}");
        }
    }
}

/// Compares of VOPC and VOP3, and those that write EXEC; inactive lanes read 0.
#[test]
fn compares() {
    let mut random = Random(23);
    type Condition = fn(i64, i64) -> bool;
    let conditions: [(&str, Condition); 6] = [
        ("lt", |a, b| a < b),
        ("eq", |a, b| a == b),
        ("le", |a, b| a <= b),
        ("gt", |a, b| a > b),
        ("ne", |a, b| a != b),
        ("ge", |a, b| a >= b),
    ];
    for (condition, expected) in conditions {
        for kind in ["i32", "u32", "f32"] {
            let number = |x: u32| match kind {
                "i32" => x as i32 as i64,
                "u32" => x as i64,
                // Zeros are equal.
                _ => order(if x << 1 == 0 { 0 } else { x }),
            };
            let condition = if kind == "f32" && condition == "ne" { "neq" } else { condition };
            for (prefix, encoding) in [("v_cmp", "VOPC"), ("v_cmp", "VOP3"), ("v_cmpx", "VOPC"), ("v_cmpx", "VOP3")] {
                let name = format!("{prefix}_{condition}_{kind}");
                let second = if encoding == "VOPC" { ("vsrc1", 1) } else { ("src1", 257) };
                let target = if encoding == "VOP3" && prefix == "v_cmp" { 40 } else { 0 };
                let mut fields = vec![("src0", 256), second];
                fields.extend((target != 0).then_some(("vdst", target)));
                let code = assemble(encoding, &name, &fields);
                for _ in 0..ROUNDS.div_ceil(32) {
                    let input = if kind == "f32" { float } else { value };
                    let [a, mut b] = [0; 2].map(|_| [0; 32].map(|_| input(&mut random)));
                    (0..32).filter(|i| i % 5 == 0).for_each(|i| b[i] = a[i]);
                    let mut w = wave();
                    let exec = random.next();
                    w.set_s(EXEC, exec);
                    w.set_v(0, 0, a);
                    w.set_v(0, 1, b);
                    execute(code.clone(), &mut w);
                    let want = bits(|i| at(exec, i) && expected(number(a[i as usize]), number(b[i as usize])));
                    let got = w.s[if prefix == "v_cmpx" {
                        EXEC
                    } else if target != 0 {
                        40
                    } else {
                        VCC
                    }];
                    assert_eq!(got, want, "{name} of {encoding}");
                }
            }
        }
    }
}

/// Scalar opcodes of other shapes: immediates, EXEC, 64 bits, one source.
#[test]
fn scalar_opcodes_of_other_shapes() {
    let mut random = Random(51);
    for _ in 0..ROUNDS {
        let [a, b, exec] = [0; 3].map(|_| value(&mut random));
        let imm = random.next() & 0xffff;
        let small = imm as i128 - if imm > 0x7fff { 0x10000 } else { 0 };
        let start = || {
            let mut w = wave();
            (w.scc, w.scc_poison) = (false, false);
            (0..4).zip([a, b, b, a]).for_each(|(r, x)| w.set_s(r, x));
            w.set_s(EXEC, exec);
            w
        };
        let go = |encoding: &str, name: &str, fields: &[(&str, u32)]| {
            let mut w = start();
            execute(assemble(encoding, name, fields), &mut w);
            w
        };
        let immediate = |name: &str| go("SOPK", name, &[("sdst", 0), ("simm16", imm)]);
        assert_eq!(immediate("s_movk_i32").s[0], (small & FULL) as u32);
        assert_eq!(immediate("s_mulk_i32").s[0], ((a as i128 * small) & FULL) as u32);
        let w = immediate("s_addk_i32");
        assert_eq!((w.s[0], w.scc), (((a as i128 + small) & FULL) as u32, over(sign(a as i128) + small)));
        assert_eq!(immediate("s_cmpk_eq_i32").scc, sign(a as i128) == small);
        assert_eq!(immediate("s_cmpk_gt_u32").scc, a > imm);
        assert_eq!(immediate("s_cmpk_le_u32").scc, a <= imm);
        for (name, new) in [("s_and_saveexec_b32", a & exec), ("s_or_saveexec_b32", a | exec)] {
            let w = go("SOP1", name, &[("sdst", 9), ("ssrc0", 0)]);
            assert_eq!((w.s[9], w.s[EXEC], w.scc), (exec, new, new != 0), "{name}");
        }
        let trailing = (0..32).find(|i| at(a, *i)).unwrap_or(u32::MAX);
        assert_eq!(go("SOP1", "s_ctz_i32_b32", &[("sdst", 9), ("ssrc0", 0)]).s[9], trailing);
        assert_eq!(go("SOP1", "s_cvt_f32_u32", &[("sdst", 9), ("ssrc0", 0)]).s[9], nearest(a as i128, 0));
        let pair = |w: &Wave| w.s[10] as u128 | (w.s[11] as u128) << 32;
        let wide = a as u128 | (b as u128) << 32;
        let w = go("SOP2", "s_lshl_b64", &[("sdst", 10), ("ssrc0", 0), ("ssrc1", 2)]);
        assert_eq!(pair(&w), (wide << (b % 64)) % (1 << 64));
        let w = go("SOP2", "s_bfm_b64", &[("sdst", 10), ("ssrc0", 0), ("ssrc1", 2)]);
        assert_eq!(pair(&w), (((1u128 << (a % 64)) - 1) << (b % 64)) % (1 << 64));
    }
}

/// Whole numbers as f16, which neither step rounds: v_fma_mix and what it puts into either half.
#[test]
fn mixed_products_take_and_leave_halves() {
    let mut random = Random(52);
    let half = |x: i32| gfx11::float::f32_to_f16(x as f32);
    for _ in 0..ROUNDS / 10 {
        let [a, b, c, old]: [[i32; 32]; 4] = [0; 4].map(|_| [0; 32].map(|_| random.next() as i32 % 32));
        let mut w = wave();
        // a stands in the high half of v0, b is an f32, c in the low half of v2.
        w.set_v(0, 0, a.map(|x| half(x) << 16 | 0x1234));
        w.set_v(0, 1, b.map(|x| (x as f32).to_bits()));
        w.set_v(0, 2, c.map(|x| half(x) | 0x4321_0000));
        (3..5).for_each(|r| w.set_v(0, r, old.map(|x| x as u32)));
        let code = |name: &str, dst: u32| {
            let fields = [("vdst", dst), ("src0", 256), ("src1", 257), ("src2", 258), ("opsel", 1), ("neg", 4)];
            assemble("VOP3P", name, &[&fields[..], &[("opsel_hi", 1), ("opsel_hi2", 1)]].concat())
        };
        let all = [code("v_fma_mixlo_f16", 3), code("v_fma_mixhi_f16", 4), code("v_fma_mix_f32", 5)].concat();
        execute(all, &mut w);
        for i in 0..32 {
            let want = a[i] * b[i] - c[i];
            assert_eq!(f32::from_bits(w.v[5][i]), want as f32);
            // A zero's sign is a rule, not a number.
            let (low, high) = (w.v[3][i], w.v[4][i]);
            assert!(low & 0xffff == half(want) || want == 0, "{low:x}");
            assert!(high >> 16 == half(want) || want == 0, "{high:x}");
            assert_eq!((low >> 16, high & 0xffff), ((old[i] as u32) >> 16, old[i] as u32 & 0xffff));
        }
    }
}
