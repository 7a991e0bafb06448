//! MUBUF: vector memory through a descriptor, and the instructions that invalidate caches.

use crate::decode::Inst;
use crate::fault::What;
use crate::operand::Scalar;
use crate::program::Step;
use crate::vmem;
use crate::wave::Wave;
use std::sync::Arc;

/// The step of MUBUF. The descriptor must be a plain one: no swizzle, no added thread ids.
pub fn step(inst: &Inst) -> Result<Step, What> {
    let unknown = || What::NotExecuted(inst.name());
    match inst.opcode.name {
        "buffer_gl0_inv" => {
            return Ok(Box::new(|w, ctx| {
                ctx.caches.pairs[ctx.pair].l0[w.cu].invalidate();
                Ok(())
            }));
        }
        "buffer_gl1_inv" => {
            return Ok(Box::new(|_, ctx| {
                ctx.caches.gl1.invalidate();
                Ok(())
            }));
        }
        _ => {}
    }
    if inst.has("tfe") {
        return Err(What::NotExecuted(format!("{} with tfe", inst.name())));
    }
    let rest = inst.opcode.name.strip_prefix("buffer_").ok_or_else(unknown)?;
    let [data, vaddr, resource] = [inst.get("vdata"), inst.get("vaddr"), 4 * inst.get("srsrc")].map(|r| r as usize);
    let (access, data_dwords) = vmem::access(rest, data, inst.has("glc")).ok_or_else(unknown)?;
    let size = access.part.map_or(4 * access.dwords as u32, |p| p.bytes);
    let access = Arc::new(access);
    let soffset = Scalar::of(inst.get("soffset"), inst.opcode.operand("soffset").ok_or_else(unknown)?, None);
    let (offen, idxen, offset) = (inst.has("offen"), inst.has("idxen"), inst.get("offset") as u64);
    Ok(Box::new(move |w: &mut Wave, ctx| {
        let ((base, p), (rest, q), (more, bad)) =
            (w.read_s(resource, true), w.read_s(resource + 2, true), soffset.read(w, false));
        if p | q | bad != 0 {
            return Err(What::Poison("a descriptor".into()));
        }
        let (stride, records) = (base >> 48 & 0x3fff, rest & u32::MAX as u64);
        if base >> 62 != 0 || rest >> 55 & 1 != 0 {
            return Err(What::NotExecuted("a swizzled descriptor".into()));
        }
        let base = base & ((1 << 48) - 1);
        let (mut addresses, mut exec) = ([[0; 32]; 2], [0; 2]);
        for half in 0..w.halves {
            exec[half] = w.exec(half);
            for lane in (0..32).filter(|i| exec[half] >> i & 1 != 0) {
                let register = |r: usize| -> Result<u64, What> {
                    let at = half * 256 + r;
                    let bad = (w.v_poison[at][0] | w.v_poison[at][1]) >> lane & 1 != 0;
                    if bad { Err(What::Poison("an address".into())) } else { Ok(w.v[at][lane] as u64) }
                };
                let index = if idxen { register(vaddr)? } else { 0 };
                let inside = offset + if offen { register(vaddr + idxen as usize)? } else { 0 };
                let from = index * stride + inside;
                let fits = match stride {
                    0 => from + size as u64 <= records,
                    _ => index < records && inside + size as u64 <= stride,
                };
                if !fits {
                    let buffer =
                        format!("the descriptor has {records} records of {} bytes at {base:#x}", stride.max(1));
                    return Err(What::OutOfBounds { address: base + from, bytes: size, buffer });
                }
                addresses[half][lane] = base + from + more;
            }
        }
        vmem::start(w, ctx, &access, addresses, exec, data, data_dwords)
    }))
}
