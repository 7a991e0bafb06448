//! Vector memory: GLOBAL and FLAT, and what MUBUF shares with them.

use crate::atomics::{Atomic, atomic};
use crate::cache::{Ctx, Way};
use crate::decode::Inst;
use crate::fault::What;
use crate::memory::Buffer;
use crate::ops::Lanes;
use crate::program::Step;
use crate::wave::{Deferred, InFlight, NULL, Span, Wave};
use std::sync::Arc;

/// What an access does with memory.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// Reads.
    Load,
    /// Writes.
    Store,
    /// Reads and writes at once, with the size in dwords.
    Atomic(Atomic),
}

/// How a value below a dword lies in its register.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Part {
    /// Its bytes.
    pub bytes: u32,
    /// It is sign-extended.
    pub signed: bool,
    /// It fills, or comes from, one half of the register: the other stays.
    pub half: Option<bool>,
}

/// An instruction's access, without its lanes.
#[derive(Debug, Clone)]
pub struct Access {
    /// What it does.
    pub kind: Kind,
    /// Dwords a lane.
    pub dwords: usize,
    /// Or less.
    pub part: Option<Part>,
    /// Where a load goes.
    pub dst: usize,
    /// It passes the first caches by.
    pub device: bool,
    /// An atomic gives back the old value.
    pub returns: bool,
    /// 64-bit values are one value.
    pub wide: bool,
}

/// Size and extension from a mnemonic's tail, such as `b128`, `i8`, `d16_hi_b16`.
pub fn size_of(tail: &str) -> Option<(usize, Option<Part>)> {
    let half = tail.strip_prefix("d16_hi_").map(|rest| (rest, Some(true)));
    let half = half.or_else(|| tail.strip_prefix("d16_").map(|rest| (rest, Some(false))));
    let (format, half) = half.unwrap_or((tail, None));
    let part = |bytes, signed| Some((1, Some(Part { bytes, signed, half })));
    match format {
        "u8" | "b8" => part(1, false),
        "i8" => part(1, true),
        "u16" | "b16" => part(2, false),
        "i16" => part(2, true),
        "b32" => Some((1, None)),
        "b64" => Some((2, None)),
        "b96" => Some((3, None)),
        "b128" => Some((4, None)),
        _ => None,
    }
}

/// The step of GLOBAL or FLAT.
pub fn step(inst: &Inst) -> Result<Step, What> {
    let unknown = || What::NotExecuted(inst.name());
    let flat = inst.encoding() == "FLAT";
    let rest = inst.opcode.name.split_once('_').ok_or_else(unknown)?.1;
    let (dst, data) = (inst.get("vdst") as usize, inst.get("data") as usize);
    let (access, data_dwords) = access(rest, dst, inst.has("glc")).ok_or_else(unknown)?;
    let raw = inst.get("offset") as i64;
    let offset = if flat { raw & 0xfff } else { raw << 51 >> 51 };
    let saddr = inst.get("saddr") as usize;
    let base = (!flat && saddr != NULL).then_some(saddr);
    let vaddr = inst.get("addr") as usize;
    let access = Arc::new(access);
    Ok(Box::new(move |w: &mut Wave, ctx| {
        let base = match base {
            Some(s) => match w.read_s(s, true) {
                (base, 0) => Some(base),
                _ => return Err(What::Poison("an address".into())),
            },
            None => None,
        };
        let mut addresses = [[0; 32]; 2];
        let mut exec = [0; 2];
        for half in 0..w.halves {
            exec[half] = w.exec(half);
            let at = half * 256 + vaddr;
            let mut poison = w.v_poison[at][0] | w.v_poison[at][1];
            let low = &w.v[at];
            match base {
                Some(base) => {
                    (0..32).for_each(|i| {
                        addresses[half][i] = base.wrapping_add(low[i] as u64).wrapping_add(offset as u64)
                    });
                }
                None => {
                    let high = &w.v[at + 1];
                    poison |= w.v_poison[at + 1][0] | w.v_poison[at + 1][1];
                    for i in 0..32 {
                        let base = low[i] as u64 | (high[i] as u64) << 32;
                        addresses[half][i] = base.wrapping_add(offset as u64);
                    }
                }
            }
            if poison & exec[half] != 0 {
                return Err(What::Poison("an address".into()));
            }
        }
        start(w, ctx, &access, addresses, exec, data, data_dwords)
    }))
}

/// What the mnemonic's middle and tail ask for, and the dwords of data a lane: the same for GLOBAL, FLAT and MUBUF.
pub fn access(rest: &str, dst: usize, glc: bool) -> Option<(Access, usize)> {
    let (kind, tail) = rest.split_once('_')?;
    let mut access = Access { kind: Kind::Load, dwords: 1, part: None, dst, device: glc, returns: false, wide: false };
    match kind {
        "load" | "store" => {
            (access.dwords, access.part) = size_of(tail)?;
            if kind == "store" {
                access.kind = Kind::Store;
            }
        }
        "atomic" => {
            access.kind = Kind::Atomic(atomic(tail)?);
            access.wide = tail.ends_with("64");
            access.dwords = 1 + access.wide as usize;
            access.returns = glc;
        }
        _ => return None,
    }
    let data = match access.kind {
        Kind::Load => 0,
        Kind::Store => access.dwords,
        Kind::Atomic(_) => access.dwords * (1 + tail.starts_with("cmpswap") as usize),
    };
    Some((access, data))
}

/// Most that a counter of vector memory counts.
const MOST: usize = 63;

/// Issues an access: it touches memory now, or when its counter is waited for.
pub fn start(
    w: &mut Wave,
    ctx: &mut Ctx,
    access: &Arc<Access>,
    addresses: [[u64; 32]; 2],
    exec: [u32; 2],
    data: usize,
    data_dwords: usize,
) -> Result<(), What> {
    let loads = matches!(access.kind, Kind::Load) || access.returns;
    let mut sources = Vec::new();
    for r in data..data + data_dwords {
        let one = |half: usize| match half < w.halves {
            true => (w.v[half * 256 + r], w.v_poison[half * 256 + r]),
            false => ([0; 32], [0; 2]),
        };
        sources.push([one(0), one(1)]);
    }
    let span = Span { scalar: false, first: access.dst, count: access.dwords };
    let mut flight = InFlight { regs: loads.then_some(span), scalar: false, deferred: None, lds: None, writes: !loads };
    if loads {
        w.busy_vm.add(span);
    }
    let defer = ctx.defer != 0 && (w.chance() >> 20).is_multiple_of(ctx.defer);
    if !defer && w.vmem.iter().any(|(_, f)| f.deferred.as_ref().is_some_and(|d| meets(d, access, &addresses, exec))) {
        perform_all(w, ctx)?;
    }
    if defer {
        flight.deferred =
            Some(Deferred { access: access.clone(), addresses: Box::new(addresses), exec, data: sources });
    } else {
        perform(w, ctx, access, &addresses, exec, &sources)?;
    }
    w.vmem.push_back((loads, flight));
    let of_kind = w.vmem.iter().filter(|(kind, _)| *kind == loads).count();
    // The wave stalls until the oldest is done. Of a store no register tells. A load's registers stay busy here until a wait
    // names them: a program that counts on the stall is refused.
    if of_kind > MOST && !loads { wait(w, ctx, false, MOST) } else { Ok(()) }
}

/// First and last address of an access.
fn range(access: &Access, addresses: &[[u64; 32]; 2], exec: [u32; 2]) -> (u64, u64) {
    let lanes = (0..64).filter(|i| exec[i / 32] >> (i % 32) & 1 != 0).map(|i| addresses[i / 32][i % 32]);
    let (low, high) = lanes.fold((u64::MAX, 0), |(low, high), a| (a.min(low), a.max(high)));
    (low, high.saturating_add(4 * access.dwords as u64))
}

/// Whether an access may touch what one before it, still to be done, touches: those of one wave stay in order then. All
/// others may reach memory in any order.
fn meets(before: &Deferred, access: &Access, addresses: &[[u64; 32]; 2], exec: [u32; 2]) -> bool {
    let (a, b) = (range(&before.access, &before.addresses, before.exec), range(access, addresses, exec));
    a.0 < b.1 && b.0 < a.1
}

/// Lets all that was left touch memory, in order.
fn perform_all(w: &mut Wave, ctx: &mut Ctx) -> Result<(), What> {
    let mut queue = std::mem::take(&mut w.vmem);
    let mut done = Ok(());
    for (_, flight) in &mut queue {
        if let Some(d) = flight.deferred.take() {
            done = done.and_then(|()| perform(w, ctx, &d.access, &d.addresses, d.exec, &d.data));
        }
    }
    w.vmem = queue;
    done
}

/// Bytes of loads in flight, over all lanes: of the youngest, where there are more than the counter counts.
pub fn in_flight(w: &Wave) -> u64 {
    let dwords = w.vmem.iter().rev().filter(|(loads, _)| *loads).take(MOST).filter_map(|(_, flight)| flight.regs);
    dwords.map(|span| 4 * span.count as u64).sum::<u64>() * 32 * w.halves as u64
}

/// Waits until no more than so many loads, or stores, are in flight.
pub fn wait(w: &mut Wave, ctx: &mut Ctx, loads: bool, most: usize) -> Result<(), What> {
    let mut finish = w.vmem.iter().filter(|(kind, _)| *kind == loads).count().saturating_sub(most);
    if finish == 0 {
        return Ok(());
    }
    let mut queue = std::mem::take(&mut w.vmem);
    let mut kept = std::collections::VecDeque::with_capacity(queue.len());
    while let Some((kind, mut flight)) = queue.pop_front() {
        if finish > 0 {
            if let Some(d) = flight.deferred.take() {
                perform(w, ctx, &d.access, &d.addresses, d.exec, &d.data)?;
            }
            if kind == loads {
                finish -= 1;
                continue;
            }
        }
        kept.push_back((kind, flight));
    }
    w.vmem = kept;
    if loads {
        w.busy_vm = Default::default();
        for (_, flight) in &w.vmem {
            if let Some(span) = flight.regs {
                w.busy_vm.add(span);
            }
        }
    }
    Ok(())
}

/// Bytes of a dword that depend on poisoned halves.
pub fn byte_poison([low, high]: [u32; 2], lane: usize) -> u8 {
    (3 * (low >> lane & 1) as u8) | (12 * (high >> lane & 1) as u8)
}

/// Marks the dwords of an access as its dispatch's.
#[inline]
fn mark(ctx: &Ctx, access: &Access, buffer: &Buffer, index: usize) -> Result<(), What> {
    let writes = !matches!(access.kind, Kind::Load);
    match ctx.user {
        Some(user) => (index..index + access.dwords).try_for_each(|i| buffer.mark(i, user, writes)),
        None => Ok(()),
    }
}

fn perform(
    w: &mut Wave,
    ctx: &mut Ctx,
    access: &Access,
    addresses: &[[u64; 32]; 2],
    exec: [u32; 2],
    data: &[[(Lanes, [u32; 2]); 2]],
) -> Result<(), What> {
    let way = (ctx.pair, Way::Vector(w.cu));
    let size = access.part.map_or(4 * access.dwords as u32, |p| p.bytes);
    for half in 0..w.halves {
        let mut out = [([0u32; 32], [0u32; 2]); 4];
        for lane in (0..32).filter(|i| exec[half] >> i & 1 != 0) {
            let address = addresses[half][lane];
            if access.part.is_none() && !address.is_multiple_of(4) {
                return Err(What::Misaligned(address));
            }
            let (buffer, index) = ctx.memory.find(address, size)?;
            let shift = 8 * (address & 3) as u32;
            let mask = if size < 4 { ((1u8 << size) - 1) << (address & 3) } else { 15 };
            // Two bytes may lie in two dwords.
            let split = size < 4 && (address & 3) as u32 + size > 4;
            match access.kind {
                Kind::Load => {
                    let mut words = [(0, 0); 4];
                    let words = &mut words[..access.dwords];
                    ctx.caches.read(way, access.device, (buffer, index, address), mask, words)?;
                    mark(ctx, access, buffer, index)?;
                    if let Some(part) = access.part {
                        let (mut word, mut poison) = (words[0].0 >> shift, words[0].1 & mask);
                        if split {
                            let mut next = [(0, 0)];
                            let rest = (address + 4) & !3;
                            ctx.caches.read(way, access.device, (buffer, index + 1, rest), 1, &mut next)?;
                            word |= next[0].0 << (32 - shift);
                            poison |= next[0].1 & 1;
                        }
                        let bits = 8 * part.bytes;
                        let up = word << (32 - bits);
                        let x = if part.signed { (up as i32 >> (32 - bits)) as u32 } else { up >> (32 - bits) };
                        words[0] = (x, if poison != 0 { 15 } else { 0 });
                    }
                    for (out, (word, poison)) in out.iter_mut().zip(words) {
                        out.0[lane] = *word;
                        out.1[0] |= ((*poison & 3 != 0) as u32) << lane;
                        out.1[1] |= ((*poison & 12 != 0) as u32) << lane;
                    }
                }
                Kind::Store => {
                    mark(ctx, access, buffer, index)?;
                    ctx.caches.traffic.stored += u64::from(size);
                    for (i, word) in data.iter().enumerate() {
                        let (lanes, poison) = &word[half];
                        let (mut x, mut poison) = (lanes[lane], byte_poison(*poison, lane));
                        if access.part.is_some_and(|p| p.half == Some(true)) {
                            (x, poison) = (x >> 16, poison >> 2);
                        }
                        buffer.write(index + i, x << shift, mask, poison << (address & 3));
                        if split {
                            buffer.write(index + 1, x >> (32 - shift), 1, poison >> 1 & 1);
                        }
                    }
                    ctx.caches.evict(way.0, way.1, address);
                    ctx.caches.evict(way.0, way.1, address + size as u64 - 1);
                }
                Kind::Atomic(f) => {
                    mark(ctx, access, buffer, index)?;
                    ctx.caches.traffic.stored += u64::from(size);
                    let bad = data.iter().any(|word| (word[half].1[0] | word[half].1[1]) >> lane & 1 != 0);
                    if bad {
                        return Err(What::Poison("an atomic's data".into()));
                    }
                    let value = |first: usize| -> u64 {
                        let word = |i: usize| data.get(i).map_or(0, |word| word[half].0[lane] as u64);
                        if access.wide { word(first) | word(first + 1) << 32 } else { word(first) }
                    };
                    let (x, other) = (value(0), value(access.dwords));
                    let old = if access.wide {
                        ctx.memory.update64(address, |old| f(old, x, other))?
                    } else {
                        buffer.update(index, |old| f(old as u64, x, other) as u32)? as u64
                    };
                    out[0].0[lane] = old as u32;
                    out[1].0[lane] = (old >> 32) as u32;
                    ctx.caches.evict(way.0, way.1, address);
                }
            }
        }
        let loads = matches!(access.kind, Kind::Load) || access.returns;
        for (i, (x, poison)) in out.iter().enumerate().take(if loads { access.dwords } else { 0 }) {
            match access.part.and_then(|p| p.half) {
                Some(high) => w.write_v16(half, access.dst, high, exec[half], x, poison[0] | poison[1]),
                None => w.write_v(half, access.dst + i, exec[half], x, *poison),
            }
        }
    }
    Ok(())
}
