//! WMMA: 16×16×16 products over a wave32.
//!
//! A's lane l (0 to 15) holds row l and B's column l, 16 elements in consecutive VGPRs; lanes 16 to 31 hold the same
//! again, which is checked. Of C and D, VGPR r of lane l is row 2r + l / 16, column l mod 16.

use crate::decode::Inst;
use crate::fault::What;
use crate::float::{f16_to_f32, f32_to_bf16};
use crate::isa::Operand;
use crate::operand::Scalar;
use crate::ops::Lanes;
use crate::program::Step;
use crate::wave::Wave;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    F16,
    Bf16,
    I8,
    I4,
}

/// Elements of one operand, row or column first.
type Elements<T> = [[T; 16]; 16];

/// The step, if the instruction is one of them.
pub fn step(inst: &Inst) -> Result<Option<Step>, What> {
    let name = inst.opcode.name;
    let Some(rest) = name.strip_prefix("v_wmma_") else { return Ok(None) };
    let kind = match rest.rsplit_once('_').map(|(_, kind)| kind) {
        Some("f16") => Kind::F16,
        Some("bf16") => Kind::Bf16,
        Some("iu8") => Kind::I8,
        _ => Kind::I4,
    };
    let narrow = rest.starts_with("f16") || rest.starts_with("bf16");
    let (neg, neg_hi, clamp) = (inst.get("neg"), inst.get("neg_hi"), inst.has("clmp"));
    let high = inst.get("opsel") & 4 != 0;
    let integer = matches!(kind, Kind::I8 | Kind::I4);
    if neg_hi != 0 || neg & 4 != 0 || !integer && (neg != 0 || clamp) {
        return Err(What::NotExecuted(format!("{name} with modifiers")));
    }
    let (a, b, d) = (inst.get("src0") as usize, inst.get("src1") as usize, inst.get("vdst") as usize);
    if a < 256 || b < 256 {
        return Err(What::NotExecuted(format!("{name} of constants")));
    }
    let format = if integer { "i32" } else { "f32" };
    let c = match inst.get("src2") {
        code @ 256.. => Err(code as usize - 256),
        code => Ok(Scalar::of(code, Operand { kind: "src", format, bits: 32 }, inst.literal)),
    };
    let registers = match kind {
        Kind::F16 | Kind::Bf16 => 8,
        Kind::I8 => 4,
        Kind::I4 => 2,
    };
    Ok(Some(Box::new(move |w: &mut Wave, _| {
        if w.halves != 1 || w.exec(0) != u32::MAX {
            return Err(What::NotExecuted(format!("{name} but in a full wave32")));
        }
        let (a, b) = (operand(w, a - 256, registers, "A")?, operand(w, b - 256, registers, "B")?);
        let c: [Lanes; 8] = match c {
            Ok(constant) => [[constant.read(w, false).0 as u32; 32]; 8],
            Err(first) => {
                let poison = (first..first + 8).fold(0, |all, r| {
                    let [low, up] = w.v_poison[r];
                    all | if !narrow {
                        low | up
                    } else if high {
                        up
                    } else {
                        low
                    }
                });
                if poison != 0 {
                    return Err(What::Poison("C of a matrix product".into()));
                }
                std::array::from_fn(|r| w.v[first + r])
            }
        };
        let float = |x: u32| if kind == Kind::F16 { f16_to_f32(x) } else { f32::from_bits(x << 16) };
        let halves = |x: &[Lanes; 8]| -> Elements<f32> {
            std::array::from_fn(|lane| std::array::from_fn(|k| float(x[k / 2][lane] >> (16 * (k % 2)) & 0xffff)))
        };
        let integers = |x: &[Lanes; 8], signed: bool| -> Elements<i32> {
            let (per, bits) = if kind == Kind::I8 { (4, 8) } else { (8, 4) };
            let one = |x: u32, i: usize| {
                let up = x << (32 - bits * (i + 1));
                if signed { up as i32 >> (32 - bits) } else { (up >> (32 - bits)) as i32 }
            };
            std::array::from_fn(|lane| std::array::from_fn(|k| one(x[k / per][lane], k % per)))
        };
        let mut out = c;
        if integer {
            let (a, b) = (integers(&a, neg & 1 != 0), integers(&b, neg & 2 != 0));
            each(|r, lane, row, column| {
                let sum = (0..16).fold(c[r][lane] as i32 as i64, |sum, k| sum + a[row][k] as i64 * b[column][k] as i64);
                out[r][lane] = if clamp { sum.clamp(i32::MIN as i64, i32::MAX as i64) as u32 } else { sum as u32 };
            });
        } else {
            let (a, b) = (halves(&a), halves(&b));
            let shift = 16 * high as u32;
            let mode = w.mode;
            let mut sums = [[0.0; 16]; 16];
            each(|r, lane, row, column| {
                let old = c[r][lane];
                sums[row][column] = if narrow { float(old >> shift & 0xffff) } else { mode.f(old) };
            });
            add_products(&mut sums, &a, &b, w.fast);
            each(|r, lane, row, column| {
                let (old, sum) = (c[r][lane], sums[row][column]);
                out[r][lane] = match (narrow, kind) {
                    (false, _) => mode.to32(sum),
                    (true, Kind::F16) => old & !(0xffff << shift) | mode.to16(sum) << shift,
                    (true, _) => old & !(0xffff << shift) | f32_to_bf16(sum) << shift,
                };
            });
        }
        for (r, x) in out.iter().enumerate() {
            if narrow {
                w.write_v16(0, d + r, high, u32::MAX, &x.map(|x| x >> (16 * high as u32) & 0xffff), 0);
            } else {
                w.write_v(0, d + r, u32::MAX, x, [0; 2]);
            }
        }
        Ok(())
    })))
}

/// Adds the products in order of k, all columns of a row at a time. A product of f16 or bf16 is exact in f32, so that
/// fusing it with the sum would change nothing.
#[inline(always)]
fn add_all(sums: &mut Elements<f32>, a: &Elements<f32>, b: &Elements<f32>) {
    let across: Elements<f32> = std::array::from_fn(|k| std::array::from_fn(|column| b[column][k]));
    for (sums, a) in sums.iter_mut().zip(a) {
        for (a, b) in a.iter().zip(&across) {
            for (sum, b) in sums.iter_mut().zip(b) {
                *sum += a * b;
            }
        }
    }
}

#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma"))]
fn add_all_fast(sums: &mut Elements<f32>, a: &Elements<f32>, b: &Elements<f32>) {
    add_all(sums, a, b);
}

fn add_products(sums: &mut Elements<f32>, a: &Elements<f32>, b: &Elements<f32>, fast: bool) {
    if fast {
        // SAFETY: a wave is `fast` where the processor has these features.
        unsafe { add_all_fast(sums, a, b) }
    } else {
        add_all(sums, a, b);
    }
}

/// Calls with each element's register, lane, row and column.
fn each(mut f: impl FnMut(usize, usize, usize, usize)) {
    for r in 0..8 {
        for lane in 0..32 {
            f(r, lane, 2 * r + lane / 16, lane % 16);
        }
    }
}

/// A or B: written, and the same in both halves of the wave.
fn operand(w: &Wave, first: usize, registers: usize, what: &str) -> Result<[Lanes; 8], What> {
    let mut out = [[0; 32]; 8];
    for (r, out) in out.iter_mut().enumerate().take(registers) {
        let (x, [low, high]) = (&w.v[first + r], w.v_poison[first + r]);
        if low | high != 0 {
            return Err(What::Poison(format!("{what} of a matrix product")));
        }
        if x[..16] != x[16..] {
            return Err(What::Poison(format!("the second copy of {what} of a matrix product")));
        }
        *out = *x;
    }
    Ok(out)
}
