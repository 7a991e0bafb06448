//! A wave: its registers, what of them was written, and what is in flight.

use crate::fault::What;
use crate::float::Mode;
use crate::ops::Lanes;
use std::collections::VecDeque;

/// Scalar registers by number, as sources name them.
pub const VCC: usize = 106;
/// The null register.
pub const NULL: usize = 124;
/// M0.
pub const M0: usize = 125;
/// EXEC.
pub const EXEC: usize = 126;

/// Whether and why a wave runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum State {
    /// It may take its next step.
    Running,
    /// It waits for the others of its workgroup.
    Barrier,
    /// It has ended.
    Ended,
}

/// Registers of one operand.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Span {
    /// Scalar or vector.
    pub scalar: bool,
    /// The first.
    pub first: usize,
    /// How many.
    pub count: usize,
}

/// A set of registers.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Regs {
    /// VGPRs.
    pub v: [u64; 4],
    /// SGPRs.
    pub s: [u64; 2],
}

impl Regs {
    /// Adds a span.
    pub fn add(&mut self, span: Span) {
        for r in span.first..span.first + span.count {
            match span.scalar {
                true if r < 128 && r != NULL => self.s[r / 64] |= 1 << (r % 64),
                false if r < 256 => self.v[r / 64] |= 1 << (r % 64),
                _ => {}
            }
        }
    }

    /// Whether the two share a register.
    #[inline(always)]
    pub fn meets(&self, other: &Self) -> bool {
        let v = (0..4).fold(0, |all, i| all | self.v[i] & other.v[i]);
        v | self.s[0] & other.s[0] | self.s[1] & other.s[1] != 0
    }

    /// A register of both.
    pub fn common(&self, other: &Self) -> String {
        let v = (0..256).find(|r| self.v[r / 64] & other.v[r / 64] & 1 << (r % 64) != 0);
        let s = (0..128).find(|r| self.s[r / 64] & other.s[r / 64] & 1 << (r % 64) != 0);
        match (v, s) {
            (Some(v), _) => format!("v{v}"),
            (_, Some(s)) => format!("s{s}"),
            _ => String::new(),
        }
    }
}

/// A load, store or atomic of vector memory that has not touched memory yet.
#[derive(Debug)]
pub struct Deferred {
    /// What to do.
    pub access: std::sync::Arc<crate::vmem::Access>,
    /// Lanes' addresses.
    pub addresses: Box<[[u64; 32]; 2]>,
    /// Lanes that take part.
    pub exec: [u32; 2],
    /// Data of stores and atomics by dword, and which of them were never written.
    pub data: Vec<[(Lanes, [u32; 2]); 2]>,
}

/// An instruction that a counter counts.
#[derive(Debug)]
pub struct InFlight {
    /// Its destination.
    pub regs: Option<Span>,
    /// A scalar load: it may come back before or after any other.
    pub scalar: bool,
    /// What is still to be done in memory.
    pub deferred: Option<Deferred>,
    /// Bytes of LDS that it reads or writes, for races.
    pub lds: Option<Box<crate::lds::Touch>>,
    /// It writes LDS.
    pub writes: bool,
}

/// See the module.
#[derive(Debug)]
pub struct Wave {
    /// Its number in the workgroup.
    pub id: u32,
    /// The CU of the pair that it runs on.
    pub cu: usize,
    /// 1 for wave32, 2 for wave64.
    pub halves: usize,
    /// VGPRs: 256 of the lower lanes, then 256 of the upper.
    pub v: Vec<Lanes>,
    /// Lanes whose low and high 16 bits depend on what was never written.
    pub v_poison: Vec<[u32; 2]>,
    /// SGPRs and the other scalar registers.
    pub s: [u32; 128],
    /// Bits that depend on what was never written.
    pub s_poison: [u32; 128],
    /// SCC.
    pub scc: bool,
    /// SCC depends on what was never written.
    pub scc_poison: bool,
    /// Index of the next step.
    pub pc: usize,
    /// MODE.
    pub mode: Mode,
    /// Running or not.
    pub state: State,
    /// Loads, and then stores, of vector memory in program order.
    pub vmem: VecDeque<(bool, InFlight)>,
    /// LDS and scalar memory in program order.
    pub lgkm: VecDeque<InFlight>,
    /// Destinations of vector memory in flight.
    pub busy_vm: Regs,
    /// Destinations of LDS and scalar memory in flight.
    pub busy_lgkm: Regs,
    /// Its lanes' own memory.
    pub scratch: crate::scratch::Scratch,
    /// The processor has AVX2 and FMA.
    pub fast: bool,
    /// Steps taken.
    pub steps: u64,
    /// Of these, by what executes them ([`crate::program::Unit`]).
    pub by_unit: [u64; crate::program::Unit::COUNT],
    /// Waits for the counters of loads so far.
    pub waits: u64,
    /// Most bytes of vector loads in flight where it waited.
    pub most_in_flight: u64,
    /// Barriers passed.
    pub epoch: u32,
    /// The wave's own source of chance.
    pub random: u64,
}

impl Wave {
    /// A wave with nothing written but EXEC.
    pub fn new(id: u32, cu: usize, wave64: bool, exec: u64, mode: Mode, seed: u64) -> Self {
        let halves = 1 + wave64 as usize;
        let mut wave = Self {
            id,
            cu,
            halves,
            v: vec![[0xdead_0000; 32]; 256 * halves],
            v_poison: vec![[u32::MAX; 2]; 256 * halves],
            s: [0xdead_0000; 128],
            s_poison: [u32::MAX; 128],
            scc: false,
            scc_poison: true,
            pc: 0,
            mode,
            state: State::Running,
            vmem: VecDeque::new(),
            lgkm: VecDeque::new(),
            busy_vm: Regs::default(),
            busy_lgkm: Regs::default(),
            scratch: crate::scratch::Scratch::new(0),
            fast: crate::ops::has_fast(),
            steps: 0,
            by_unit: Default::default(),
            waits: 0,
            most_in_flight: 0,
            epoch: 0,
            random: seed | 1,
        };
        wave.set_s(EXEC, exec as u32);
        wave.set_s(EXEC + 1, (exec >> 32) as u32);
        (wave.s[NULL], wave.s_poison[NULL]) = (0, 0);
        wave
    }

    /// Sets a scalar register from outside.
    pub fn set_s(&mut self, r: usize, value: u32) {
        (self.s[r], self.s_poison[r]) = (value, 0);
    }

    /// Sets a VGPR of half a wave from outside.
    pub fn set_v(&mut self, half: usize, r: usize, value: Lanes) {
        (self.v[half * 256 + r], self.v_poison[half * 256 + r]) = (value, [0; 2]);
    }

    /// EXEC's lanes of one half.
    #[inline(always)]
    pub fn exec(&self, half: usize) -> u32 {
        self.s[EXEC + half]
    }

    /// The next number of the wave's chance.
    #[inline]
    pub fn chance(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    /// A scalar source of up to 64 bits and its poisoned bits.
    #[inline]
    pub fn read_s(&self, r: usize, wide: bool) -> (u64, u64) {
        let low = (self.s[r] as u64, self.s_poison[r] as u64);
        if !wide || r == NULL {
            return low;
        }
        (low.0 | (self.s[r + 1] as u64) << 32, low.1 | (self.s_poison[r + 1] as u64) << 32)
    }

    /// Writes a scalar register or pair.
    #[inline]
    pub fn write_s(&mut self, r: usize, wide: bool, value: u64, poison: u64) -> Result<(), What> {
        if r == NULL {
            return Ok(());
        }
        if poison != 0 && (r == EXEC || r == EXEC + 1) {
            return Err(What::Poison("what goes to EXEC".into()));
        }
        (self.s[r], self.s_poison[r]) = (value as u32, poison as u32);
        if wide {
            (self.s[r + 1], self.s_poison[r + 1]) = ((value >> 32) as u32, (poison >> 32) as u32);
        }
        Ok(())
    }

    /// A half of a lane mask and its poisoned bits.
    #[inline]
    pub fn read_mask(&self, r: usize, half: usize) -> (u32, u32) {
        match self.s.get(r + half) {
            Some(bits) => (*bits, self.s_poison[r + half]),
            None => (0, u32::MAX),
        }
    }

    /// Writes a half of a lane mask.
    #[inline]
    pub fn write_mask(&mut self, r: usize, half: usize, value: u32, poison: u32) -> Result<(), What> {
        match r + half {
            _ if r == NULL => Ok(()),
            128.. => Err(What::Refused("a lane mask past the last register".into())),
            r => self.write_s(r, false, value as u64, poison as u64),
        }
    }

    /// Writes lanes of a VGPR; `poison` are lanes whose low and high bits are poisoned.
    #[inline]
    pub fn write_v(&mut self, half: usize, r: usize, lanes: u32, value: &Lanes, poison: [u32; 2]) {
        let at = half * 256 + r;
        let old = &mut self.v[at];
        if lanes == u32::MAX {
            *old = *value;
            self.v_poison[at] = poison;
            return;
        }
        for i in 0..32 {
            let keep = ((lanes >> i) & 1).wrapping_sub(1);
            old[i] = old[i] & keep | value[i] & !keep;
        }
        for (old, new) in self.v_poison[at].iter_mut().zip(poison) {
            *old = *old & !lanes | new & lanes;
        }
    }

    /// Writes one half of a VGPR's lanes.
    pub fn write_v16(&mut self, half: usize, r: usize, high: bool, lanes: u32, value: &Lanes, poison: u32) {
        let at = half * 256 + r;
        let shift = 16 * high as u32;
        for i in (0..32).filter(|i| lanes >> i & 1 != 0) {
            self.v[at][i] = self.v[at][i] & !(0xffff << shift) | (value[i] & 0xffff) << shift;
        }
        let old = &mut self.v_poison[at][high as usize];
        *old = *old & !lanes | poison & lanes;
    }
}
