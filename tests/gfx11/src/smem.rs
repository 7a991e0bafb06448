//! Scalar memory.

use crate::cache::Way;
use crate::decode::Inst;
use crate::fault::What;
use crate::program::Step;
use crate::wave::{InFlight, NULL, Span, Wave};

/// The step of SMEM.
pub fn step(inst: &Inst) -> Result<Step, What> {
    let name = inst.opcode.name;
    let unknown = || What::NotExecuted(name.to_string());
    match name {
        "s_gl1_inv" => {
            return Ok(Box::new(|_, ctx| {
                ctx.caches.gl1.invalidate();
                Ok(())
            }));
        }
        "s_dcache_inv" => {
            return Ok(Box::new(|_, ctx| {
                ctx.caches.pairs[ctx.pair].scalar.invalidate();
                Ok(())
            }));
        }
        _ => {}
    }
    let of_buffer = name.starts_with("s_buffer_load_b");
    let bits = name.strip_prefix("s_load_b").or_else(|| name.strip_prefix("s_buffer_load_b")).ok_or_else(unknown)?;
    let dwords = bits.parse::<usize>().map_err(|_| unknown())? / 32;
    let (dst, base) = (inst.get("sdata") as usize, 2 * inst.get("sbase") as usize);
    let soffset = inst.get("soffset") as usize;
    let offset = ((inst.get("offset") << 11) as i32 >> 11) as i64;
    let device = inst.has("glc");
    Ok(Box::new(move |w: &mut Wave, ctx| {
        let (mut address, mut poison) = w.read_s(base, true);
        let mut at = offset;
        if soffset != NULL {
            let (more, bad) = w.read_s(soffset, false);
            at += more as i64;
            poison |= bad;
        }
        if of_buffer {
            let (records, bad) = w.read_s(base + 2, false);
            poison |= bad;
            address &= (1 << 48) - 1;
            if poison == 0 && (at < 0 || at as u64 + 4 * dwords as u64 > records) {
                let buffer = format!("the descriptor has {records} bytes at {address:#x}");
                let address = address.wrapping_add(at as u64);
                return Err(What::OutOfBounds { address, bytes: 4 * dwords as u32, buffer });
            }
        }
        if poison != 0 {
            return Err(What::Poison("an address".into()));
        }
        let address = address.wrapping_add(at as u64) & !3;
        let (buffer, index) = ctx.memory.find(address, 4 * dwords as u32)?;
        let mut words = [(0, 0); 16];
        let words = &mut words[..dwords];
        ctx.caches.read((ctx.pair, Way::Scalar), device, (buffer, index, address), 15, words)?;
        if let Some(user) = ctx.user {
            (index..index + dwords).try_for_each(|i| buffer.mark(i, user, false))?;
        }
        for (i, (word, bad)) in words.iter().enumerate() {
            let bits = (0..4).filter(|b| bad >> b & 1 != 0).fold(0u64, |all, b| all | 0xff << (8 * b));
            w.write_s(dst + i, false, *word as u64, bits)?;
        }
        let span = Span { scalar: true, first: dst, count: dwords };
        w.busy_lgkm.add(span);
        w.lgkm.push_back(InFlight { regs: Some(span), scalar: true, deferred: None, lds: None, writes: false });
        Ok(())
    }))
}
