//! Instructions that move values between lanes, or between lanes and scalar registers.

use crate::decode::Inst;
use crate::fault::What;
use crate::isa::Operand;
use crate::operand::{Scalar, Source};
use crate::program::Step;
use crate::wave::Wave;

/// The step, if the instruction is one of them.
pub fn step(inst: &Inst) -> Result<Option<Step>, What> {
    let dst = inst.get("vdst") as usize;
    let vgpr = inst.get("src0") as usize & 255;
    let scalar = |field: &str| {
        let operand = inst.opcode.operand(field).unwrap_or(Operand { kind: "ssrc", format: "b32", bits: 32 });
        Scalar::of(inst.get(field), operand, inst.literal)
    };
    Ok(Some(match inst.opcode.name {
        "v_readfirstlane_b32" => {
            let constant = (inst.get("src0") < 256).then(|| scalar("src0"));
            Box::new(move |w: &mut Wave, _| {
                if let Some(constant) = constant {
                    let (x, bad) = constant.read(w, false);
                    return w.write_s(dst, false, x, bad);
                }
                let exec = w.exec(0) as u64 | if w.halves == 2 { (w.exec(1) as u64) << 32 } else { 0 };
                let lane = if exec == 0 { 0 } else { exec.trailing_zeros() as usize };
                read_lane(w, dst, vgpr, lane)
            })
        }
        "v_readlane_b32" => {
            let lane = scalar("src1");
            Box::new(move |w: &mut Wave, _| {
                let lane = known(w, lane)? as usize & (32 * w.halves - 1);
                read_lane(w, dst, vgpr, lane)
            })
        }
        "v_writelane_b32" => {
            let (value, lane) = (scalar("src0"), scalar("src1"));
            Box::new(move |w: &mut Wave, _| {
                let lane = known(w, lane)? as usize & (32 * w.halves - 1);
                let (x, bad) = value.read(w, false);
                let poison = if bad == 0 { [0; 2] } else { [u32::MAX; 2] };
                w.write_v(lane / 32, dst, 1 << (lane % 32), &[x as u32; 32], poison);
                Ok(())
            })
        }
        "v_permlane16_b32" | "v_permlanex16_b32" => {
            let (low, high) = (scalar("src1"), scalar("src2"));
            let other_row = 16 * (inst.opcode.name == "v_permlanex16_b32") as usize;
            let (fi, bc) = (inst.get("opsel") & 1 != 0, inst.get("opsel") & 2 != 0);
            Box::new(move |w: &mut Wave, _| {
                let select = known(w, low)? as u64 | (known(w, high)? as u64) << 32;
                for half in 0..w.halves {
                    let (x, p, exec) = (w.v[half * 256 + vgpr], w.v_poison[half * 256 + vgpr], w.exec(half));
                    let (mut out, mut poison, mut written) = ([0; 32], [0; 2], 0);
                    for (i, out) in out.iter_mut().enumerate() {
                        let from = (i & 16 ^ other_row) + (select >> (4 * (i & 15)) & 15) as usize;
                        if fi || exec >> from & 1 != 0 {
                            *out = x[from];
                            poison = [0, 1].map(|h| poison[h] | (p[h] >> from & 1) << i);
                            written |= 1 << i;
                        } else {
                            written |= (bc as u32) << i;
                        }
                    }
                    w.write_v(half, dst, exec & written, &out, poison);
                }
                Ok(())
            })
        }
        "v_permlane64_b32" => Box::new(move |w: &mut Wave, _| {
            if w.halves == 2 {
                let [low, high] = [vgpr, 256 + vgpr].map(|at| (w.v[at], w.v_poison[at]));
                w.write_v(0, dst, w.exec(0), &high.0, high.1);
                w.write_v(1, dst, w.exec(1), &low.0, low.1);
            }
            Ok(())
        }),
        "v_mbcnt_lo_u32_b32" | "v_mbcnt_hi_u32_b32" => {
            let upper = (inst.opcode.name == "v_mbcnt_hi_u32_b32") as usize;
            let operand = Operand { kind: "src", format: "u32", bits: 32 };
            let (mask, base) = (Source::of(inst, "src0", operand, 0)?, Source::of(inst, "src1", operand, 1)?);
            Box::new(move |w: &mut Wave, _| {
                for half in 0..w.halves {
                    let [mut b0, mut b1] = [[0; 32]; 2];
                    let (mask, p, _) = mask.fetch(w, half, &mut b0);
                    let (base, q, _) = base.fetch(w, half, &mut b1);
                    let before = |i: usize| match (half, upper) {
                        (0, 0) | (1, 1) => (1u64 << i) as u32 - 1,
                        (0, _) => 0,
                        _ => u32::MAX,
                    };
                    let x = std::array::from_fn(|i| (mask[i] & before(i)).count_ones().wrapping_add(base[i]));
                    w.write_v(half, dst, w.exec(half), &x, [p[0] | p[1] | q[0] | q[1]; 2]);
                }
                Ok(())
            })
        }
        _ => return Ok(None),
    }))
}

/// A lane number or selector: it must have been written.
fn known(w: &Wave, scalar: Scalar) -> Result<u32, What> {
    match scalar.read(w, false) {
        (x, 0) => Ok(x as u32),
        _ => Err(What::Poison("a lane number".into())),
    }
}

fn read_lane(w: &mut Wave, dst: usize, vgpr: usize, lane: usize) -> Result<(), What> {
    let (at, lane) = (lane / 32 * 256 + vgpr, lane % 32);
    let [low, high] = w.v_poison[at].map(|p| p >> lane & 1);
    let (x, bad) = (w.v[at][lane], (low * 0xffff) | (high * 0xffff_0000));
    w.write_s(dst, false, x as u64, bad as u64)
}
