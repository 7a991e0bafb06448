//! SCRATCH: memory of one lane alone.

use crate::decode::Inst;
use crate::fault::What;
use crate::lds::Lds;
use crate::program::Step;
use crate::vmem::{self, Kind, byte_poison};
use crate::wave::{InFlight, NULL, Span, Wave};

/// Each lane's bytes behind the other's; the size is what the kernel was compiled for.
#[derive(Debug)]
pub struct Scratch {
    bytes: u32,
    memory: Lds,
}

impl Scratch {
    /// So many bytes a lane, with nothing written.
    pub fn new(bytes: u32) -> Self {
        Self { bytes, memory: Lds::new(64 * bytes as usize) }
    }

    /// The place of a lane's byte.
    fn place(&self, lane: usize, byte: u32, size: u32) -> Result<u32, What> {
        if byte.checked_add(size).is_none_or(|end| end > self.bytes) {
            let buffer = format!("scratch has {} bytes a lane", self.bytes);
            return Err(What::OutOfBounds { address: byte as u64, bytes: size, buffer });
        }
        if !byte.is_multiple_of(size.min(4)) {
            return Err(What::Misaligned(byte as u64));
        }
        Ok(lane as u32 * self.bytes + byte)
    }
}

/// The step of SCRATCH. Nobody else sees what it writes, so that it is written at once.
pub fn step(inst: &Inst) -> Result<Step, What> {
    let unknown = || What::NotExecuted(inst.name());
    let rest = inst.opcode.name.strip_prefix("scratch_").ok_or_else(unknown)?;
    let (dst, data) = (inst.get("vdst") as usize, inst.get("data") as usize);
    let (access, _) = vmem::access(rest, dst, false).ok_or_else(unknown)?;
    let (saddr, vaddr) = (inst.get("saddr") as usize, inst.get("addr") as usize);
    let from_vgpr = inst.has("sve");
    let offset = (inst.get("offset") << 19) as i32 >> 19;
    let loads = matches!(access.kind, Kind::Load);
    let size = access.part.map_or(4 * access.dwords as u32, |p| p.bytes);
    Ok(Box::new(move |w: &mut Wave, _| {
        let (base, bad) = if saddr == NULL { (0, 0) } else { w.read_s(saddr, false) };
        if bad != 0 {
            return Err(What::Poison("an address".into()));
        }
        for half in 0..w.halves {
            let (exec, at) = (w.exec(half), half * 256);
            let mut out = [([0u32; 32], [0u32; 2]); 4];
            for lane in (0..32).filter(|i| exec >> i & 1 != 0) {
                let mut byte = (base as u32).wrapping_add_signed(offset);
                if from_vgpr {
                    if (w.v_poison[at + vaddr][0] | w.v_poison[at + vaddr][1]) >> lane & 1 != 0 {
                        return Err(What::Poison("an address".into()));
                    }
                    byte = byte.wrapping_add(w.v[at + vaddr][lane]);
                }
                let place = w.scratch.place(32 * half + lane, byte, size)?;
                for (i, out) in out.iter_mut().enumerate().take(access.dwords) {
                    let (here, shift) = (place + 4 * i as u32, 8 * (place & 3));
                    let mask = if size < 4 { ((1u8 << size) - 1) << (place & 3) } else { 15 };
                    let high = access.part.is_some_and(|p| p.half == Some(true));
                    if loads {
                        let (mut x, mut poison) = w.scratch.memory.word(here);
                        if let Some(part) = access.part {
                            let bits = 8 * part.bytes;
                            let up = x >> shift << (32 - bits);
                            x = if part.signed { (up as i32 >> (32 - bits)) as u32 } else { up >> (32 - bits) };
                            poison = if poison & mask != 0 { 15 } else { 0 };
                        }
                        out.0[lane] = x;
                        out.1[0] |= ((poison & 3 != 0) as u32) << lane;
                        out.1[1] |= ((poison & 12 != 0) as u32) << lane;
                    } else {
                        let (mut x, mut poison) =
                            (w.v[at + data + i][lane], byte_poison(w.v_poison[at + data + i], lane));
                        if high {
                            (x, poison) = (x >> 16, poison >> 2);
                        }
                        w.scratch.memory.write(here, x << shift, mask, poison << (place & 3));
                    }
                }
            }
            for (i, (x, poison)) in out.iter().enumerate().take(if loads { access.dwords } else { 0 }) {
                match access.part.and_then(|p| p.half) {
                    Some(high) => w.write_v16(half, dst, high, exec, x, poison[0] | poison[1]),
                    None => w.write_v(half, dst + i, exec, x, *poison),
                }
            }
        }
        let regs = loads.then_some(Span { scalar: false, first: dst, count: access.dwords });
        if let Some(span) = regs {
            w.busy_vm.add(span);
        }
        w.vmem.push_back((loads, InFlight { regs, scalar: false, deferred: None, lds: None, writes: !loads }));
        Ok(())
    }))
}
