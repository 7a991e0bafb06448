//! DS: LDS accesses and moves of lanes through its crossbar.

use crate::atomics::atomic;
use crate::cache::Ctx;
use crate::decode::Inst;
use crate::fault::What;
use crate::lds::{Touch, Use};
use crate::ops::Lanes;
use crate::program::Step;
use crate::vmem::{Part, byte_poison};
use crate::wave::{InFlight, M0, Span, Wave};

/// The step of DS.
pub fn step(inst: &Inst) -> Result<Step, What> {
    let name = inst.opcode.name;
    let unknown = || What::NotExecuted(name.to_string());
    if inst.has("gds") {
        return Err(What::NotExecuted(format!("{name} of GDS")));
    }
    let rest = name.strip_prefix("ds_").ok_or_else(unknown)?;
    match rest {
        "nop" => return Ok(Box::new(|_, _| Ok(()))),
        "append" | "consume" => return append(inst),
        "permute_b32" | "bpermute_b32" => return permute(inst),
        "swizzle_b32" => return swizzle(inst),
        _ => {}
    }
    if let Some(tail) = rest.strip_prefix("load_").filter(|t| !t.contains("addtid")) {
        return access(inst, tail, true);
    }
    if let Some(tail) = rest.strip_prefix("store_").filter(|t| !t.contains("addtid")) {
        return access(inst, tail, false);
    }
    atomic_step(inst, rest)
}

/// Size, halves and offsets of loads and stores.
fn shape(inst: &Inst, tail: &str) -> Option<(usize, Option<Part>, Vec<u32>)> {
    let (two, tail) = match tail.strip_prefix("2addr_") {
        Some(tail) => (true, tail),
        None => (false, tail),
    };
    let (stride, tail) = match tail.strip_prefix("stride64_") {
        Some(tail) => (64, tail),
        None => (1, tail),
    };
    let (tail, half) = match (tail.strip_suffix("_d16_hi"), tail.strip_suffix("_d16")) {
        (Some(tail), _) => (tail, Some(true)),
        (_, Some(tail)) => (tail, Some(false)),
        _ => (tail, None),
    };
    let (dwords, part) = crate::vmem::size_of(tail)?;
    let part = part.map(|p| Part { half, ..p });
    let size = 4 * dwords as u32 * stride;
    let offsets = if two {
        vec![inst.get("offset0") * size, inst.get("offset1") * size]
    } else {
        vec![inst.get("offset0") | inst.get("offset1") << 8]
    };
    Some((dwords, part, offsets))
}

/// An address in LDS of each lane: what was never written is none.
fn addresses(w: &Wave, half: usize, r: usize) -> Result<Lanes, What> {
    let at = half * 256 + r;
    if (w.v_poison[at][0] | w.v_poison[at][1]) & w.exec(half) != 0 {
        return Err(What::Poison("an address".into()));
    }
    Ok(w.v[at])
}

fn aligned(byte: u32, size: u32) -> Result<(), What> {
    // 96 and 128 bits need no more than a dword's alignment where unaligned access is on, as RADV has it.
    if byte.is_multiple_of(size.min(4)) { Ok(()) } else { Err(What::Misaligned(byte as u64)) }
}

fn active(exec: u32) -> impl Iterator<Item = usize> {
    (0..32).filter(move |i| exec >> i & 1 != 0)
}

fn access(inst: &Inst, tail: &str, loads: bool) -> Result<Step, What> {
    let (dwords, part, offsets) = shape(inst, tail).ok_or_else(|| What::NotExecuted(inst.name()))?;
    let size = part.map_or(4 * dwords as u32, |p| p.bytes);
    let [dst, addr, data0, data1] = ["vdst", "addr", "data0", "data1"].map(|f| inst.get(f) as usize);
    let data = [data0, data1];
    Ok(Box::new(move |w: &mut Wave, ctx| {
        let mut touch = Touch { epoch: w.epoch, lanes: [0; 2], bytes: Vec::with_capacity(32), size };
        for half in 0..w.halves {
            let (base, exec) = (addresses(w, half, addr)?, w.exec(half));
            touch.lanes[half] = exec;
            for (n, offset) in offsets.iter().enumerate() {
                let mut out = [([0; 32], [0; 2]); 4];
                for lane in active(exec) {
                    let byte = base[lane].wrapping_add(*offset);
                    aligned(byte, size)?;
                    ctx.lds.touch(byte, size, if loads { Use::Read } else { Use::Write }, w.id, w.epoch)?;
                    touch.bytes.push(byte);
                    if loads {
                        load(ctx, byte, dwords, part, lane, &mut out);
                    } else {
                        store(w, ctx, byte, dwords, part, half * 256 + data[n], lane);
                    }
                }
                for (i, (x, poison)) in out.iter().enumerate().take(if loads { dwords } else { 0 }) {
                    match part.and_then(|p| p.half) {
                        Some(high) => w.write_v16(half, dst, high, exec, x, poison[0] | poison[1]),
                        None => w.write_v(half, dst + n * dwords + i, exec, x, *poison),
                    }
                }
            }
        }
        let regs = loads.then_some(Span { scalar: false, first: dst, count: dwords * offsets.len() });
        flight(w, regs, Some(Box::new(touch)), !loads);
        Ok(())
    }))
}

fn flight(w: &mut Wave, regs: Option<Span>, lds: Option<Box<Touch>>, writes: bool) {
    if let Some(span) = regs {
        w.busy_lgkm.add(span);
    }
    w.lgkm.push_back(InFlight { regs, scalar: false, deferred: None, lds, writes });
}

fn load(ctx: &Ctx, byte: u32, dwords: usize, part: Option<Part>, lane: usize, out: &mut [(Lanes, [u32; 2]); 4]) {
    for (i, out) in out.iter_mut().enumerate().take(dwords) {
        let (mut word, mut poison) = ctx.lds.word(byte + 4 * i as u32);
        if let Some(part) = part {
            let bits = 8 * part.bytes;
            let up = word >> (8 * (byte & 3)) << (32 - bits);
            word = if part.signed { (up as i32 >> (32 - bits)) as u32 } else { up >> (32 - bits) };
            poison = if poison >> (byte & 3) & ((1 << part.bytes) - 1) != 0 { 15 } else { 0 };
        }
        out.0[lane] = word;
        out.1[0] |= ((poison & 3 != 0) as u32) << lane;
        out.1[1] |= ((poison & 12 != 0) as u32) << lane;
    }
}

fn store(w: &Wave, ctx: &mut Ctx, byte: u32, dwords: usize, part: Option<Part>, at: usize, lane: usize) {
    for i in 0..dwords {
        let (mut x, mut poison) = (w.v[at + i][lane], byte_poison(w.v_poison[at + i], lane));
        let mut mask = 15;
        if let Some(part) = part {
            if part.half == Some(true) {
                (x, poison) = (x >> 16, poison >> 2);
            }
            (x, poison) = (x << (8 * (byte & 3)), poison << (byte & 3));
            mask = ((1 << part.bytes) - 1) << (byte & 3);
        }
        ctx.lds.write(byte + 4 * i as u32, x, mask, poison);
    }
}

fn atomic_step(inst: &Inst, rest: &str) -> Result<Step, What> {
    let unknown = || What::NotExecuted(inst.name());
    let two = rest.contains("_2addr_");
    let stride = if rest.contains("_stride64_") { 64 } else { 1 };
    let returns = rest.contains("_rtn_");
    let key = rest.replace("_rtn", "").replace("_2addr", "").replace("_stride64", "");
    let f = atomic(&key).ok_or_else(unknown)?;
    let dwords = 1 + key.ends_with("64") as usize;
    let size = 4 * dwords as u32;
    let [dst, addr, data0, data1] = ["vdst", "addr", "data0", "data1"].map(|f| inst.get(f) as usize);
    let offsets = if two {
        vec![inst.get("offset0") * size * stride, inst.get("offset1") * size * stride]
    } else {
        vec![inst.get("offset0") | inst.get("offset1") << 8]
    };
    Ok(Box::new(move |w: &mut Wave, ctx| {
        let mut touch = Touch { epoch: w.epoch, lanes: [0; 2], bytes: Vec::new(), size };
        for half in 0..w.halves {
            let (base, exec) = (addresses(w, half, addr)?, w.exec(half));
            for (n, offset) in offsets.iter().enumerate() {
                let mut out = [[0; 32]; 2];
                for lane in active(exec) {
                    let byte = base[lane].wrapping_add(*offset);
                    aligned(byte, size)?;
                    ctx.lds.touch(byte, size, Use::Atomic, w.id, w.epoch)?;
                    touch.bytes.push(byte);
                    let value = |r: usize| -> Result<u64, What> {
                        let at = half * 256 + r;
                        let registers = at..at + dwords;
                        if registers.clone().any(|at| (w.v_poison[at][0] | w.v_poison[at][1]) >> lane & 1 != 0) {
                            return Err(What::Poison("an atomic's data".into()));
                        }
                        Ok(registers.rev().fold(0, |all, at| all << 32 | w.v[at][lane] as u64))
                    };
                    let second = two || !["cmpstore", "mskor", "wrap"].iter().any(|k| key.starts_with(k));
                    let (x, other) =
                        (value(if n == 0 { data0 } else { data1 })?, if second { 0 } else { value(data1)? });
                    let mut old = 0;
                    for i in (0..dwords as u32).rev() {
                        let (word, poison) = ctx.lds.word(byte + 4 * i);
                        if poison != 0 {
                            return Err(What::Poison("what an atomic changes in LDS".into()));
                        }
                        old = old << 32 | word as u64;
                    }
                    let new = f(old, x, other);
                    (0..dwords as u32).for_each(|i| ctx.lds.write(byte + 4 * i, (new >> (32 * i)) as u32, 15, 0));
                    (out[0][lane], out[1][lane]) = (old as u32, (old >> 32) as u32);
                }
                for (i, x) in out.iter().enumerate().take(if returns { dwords } else { 0 }) {
                    w.write_v(half, dst + n * dwords + i, exec, x, [0; 2]);
                }
            }
        }
        let regs = returns.then_some(Span { scalar: false, first: dst, count: dwords * offsets.len() });
        flight(w, regs, Some(Box::new(touch)), true);
        Ok(())
    }))
}

/// Adds or takes the number of active lanes; all get the old value. The manual adds M0's base to the address. RADV leaves M0
/// alone: waves begin with 0 there as far as this instruction can tell.
fn append(inst: &Inst) -> Result<Step, What> {
    let (dst, offset) = (inst.get("vdst") as usize, inst.get("offset0") | inst.get("offset1") << 8);
    let adds = inst.opcode.name == "ds_append";
    Ok(Box::new(move |w: &mut Wave, ctx| {
        let base = match w.read_s(M0, false) {
            (m0, 0) => m0 as u32 >> 16,
            _ => 0,
        };
        let byte = base + offset;
        ctx.lds.touch(byte, 4, Use::Atomic, w.id, w.epoch)?;
        let (old, poison) = ctx.lds.word(byte);
        if poison != 0 {
            return Err(What::Poison("what an atomic changes in LDS".into()));
        }
        let count: u32 = (0..w.halves).map(|half| w.exec(half).count_ones()).sum();
        let new = if adds { old.wrapping_add(count) } else { old.wrapping_sub(count) };
        ctx.lds.write(byte, new, 15, 0);
        for half in 0..w.halves {
            w.write_v(half, dst, w.exec(half), &[old; 32], [0; 2]);
        }
        let touch = Touch { epoch: w.epoch, lanes: [0; 2], bytes: vec![byte], size: 4 };
        flight(w, Some(Span { scalar: false, first: dst, count: 1 }), Some(Box::new(touch)), true);
        Ok(())
    }))
}

fn permute(inst: &Inst) -> Result<Step, What> {
    let [dst, addr, data] = ["vdst", "addr", "data0"].map(|f| inst.get(f) as usize);
    let offset = inst.get("offset0") | inst.get("offset1") << 8;
    let pulls = inst.opcode.name == "ds_bpermute_b32";
    Ok(Box::new(move |w: &mut Wave, _| {
        for half in 0..w.halves {
            let (base, exec) = (addresses(w, half, addr)?, w.exec(half));
            let (x, p) = (w.v[half * 256 + data], w.v_poison[half * 256 + data]);
            let (mut out, mut poison) = ([0; 32], [0; 2]);
            for lane in active(exec) {
                let other = (base[lane].wrapping_add(offset) / 4 % 32) as usize;
                let (to, from) = if pulls { (lane, other) } else { (other, lane) };
                if exec >> from & 1 != 0 {
                    out[to] = x[from];
                    poison = [0, 1].map(|h| poison[h] & !(1 << to) | (p[h] >> from & 1) << to);
                }
            }
            w.write_v(half, dst, exec, &out, poison);
        }
        flight(w, Some(Span { scalar: false, first: dst, count: 1 }), None, false);
        Ok(())
    }))
}

fn swizzle(inst: &Inst) -> Result<Step, What> {
    let [dst, source] = ["vdst", "addr"].map(|f| inst.get(f) as usize);
    let offset = (inst.get("offset0") | inst.get("offset1") << 8) as usize;
    if offset >= 0xe000 {
        return Err(What::NotExecuted("ds_swizzle_b32 as FFT".into()));
    }
    let from = move |lane: usize| -> usize {
        match offset {
            0xc000.. => {
                let (n, mask) = (offset >> 5 & 31, offset & 31);
                let moved = if offset >> 10 & 1 == 0 { lane + n } else { lane + 32 - n };
                (moved % 32) & !mask & 31 | lane & mask
            }
            0x8000.. => lane & !3 | offset >> (2 * (lane & 3)) & 3,
            _ => (lane & offset & 31 | offset >> 5 & 31) ^ offset >> 10 & 31,
        }
    };
    Ok(Box::new(move |w: &mut Wave, _| {
        for half in 0..w.halves {
            let (x, p, exec) = (w.v[half * 256 + source], w.v_poison[half * 256 + source], w.exec(half));
            let seen = |lane: usize| exec >> from(lane) & 1 != 0;
            let out = std::array::from_fn(|i| if seen(i) { x[from(i)] } else { 0 });
            let bit = |p: u32, i: usize| if seen(i) { (p >> from(i) & 1) << i } else { 0 };
            let poison = p.map(|p| (0..32).fold(0, |all, i| all | bit(p, i)));
            w.write_v(half, dst, exec, &out, poison);
        }
        flight(w, Some(Span { scalar: false, first: dst, count: 1 }), None, false);
        Ok(())
    }))
}

/// Waits until no more than so many of LDS and scalar memory are in flight. LDS answers in order, a scalar load may come back
/// last of all: so what is sure is that the accesses of LDS before so many are done, and of scalar loads nothing short of zero.
pub fn wait(w: &mut Wave, ctx: &mut Ctx, most: usize) -> Result<(), What> {
    let mut ordered = w.lgkm.iter().filter(|f| !f.scalar).count();
    for done in std::mem::take(&mut w.lgkm) {
        ordered -= usize::from(!done.scalar);
        if most > 0 && (done.scalar || ordered < most) {
            w.lgkm.push_back(done);
            continue;
        }
        let Some(touch) = done.lds.filter(|t| t.epoch != w.epoch) else { continue };
        // It was in flight across a barrier. A write races with what came behind as well. A load may have what was there before or
        // what came behind: that matters to whoever uses it, and RADV does not wait for one that nobody uses.
        if done.writes {
            for byte in &touch.bytes {
                ctx.lds.touch(*byte, touch.size, Use::Write, w.id, w.epoch)?;
            }
        } else if let Some(span) = done.regs {
            for (half, lanes) in touch.lanes.into_iter().enumerate().take(w.halves) {
                for poison in &mut w.v_poison[half * 256 + span.first..][..span.count] {
                    poison.iter_mut().for_each(|part| *part |= lanes);
                }
            }
        }
    }
    w.busy_lgkm = Default::default();
    for flight in &w.lgkm {
        if let Some(span) = flight.regs {
            w.busy_lgkm.add(span);
        }
    }
    Ok(())
}
