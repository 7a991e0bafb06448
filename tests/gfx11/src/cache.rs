//! The caches of a shader array: an L0 a CU, a scalar cache a pair of CUs (WGP), one GL1. None is coherent.
//!
//! A cache that gives bytes other than memory's is a fault: a program whose accesses are ordered never sees such bytes.

use crate::fault::What;
use crate::memory::{Buffer, LINE, Memory, User};

const WORDS: usize = LINE as usize / 4;

#[derive(Debug, Clone)]
struct Line {
    tag: u64,
    generation: u32,
    words: [u32; WORDS],
    poison: [u8; WORDS],
}

/// One cache. An address has one place in it.
#[derive(Debug)]
pub struct Cache {
    lines: Vec<Line>,
    generation: u32,
}

impl Cache {
    fn new(bytes: usize) -> Self {
        let line = Line { tag: 0, generation: 0, words: [0; WORDS], poison: [0; WORDS] };
        Self { lines: vec![line; bytes / LINE as usize], generation: 1 }
    }

    /// Forgets all.
    pub fn invalidate(&mut self) {
        self.generation += 1;
    }

    fn slot(&self, tag: u64) -> usize {
        (tag as usize ^ tag as usize >> 9) % self.lines.len()
    }

    fn has(&self, tag: u64) -> Option<usize> {
        let slot = self.slot(tag);
        (self.lines[slot].tag == tag && self.lines[slot].generation == self.generation).then_some(slot)
    }

    /// Forgets one line.
    fn evict(&mut self, address: u64) {
        if let Some(slot) = self.has(address / LINE) {
            self.lines[slot].generation = 0;
        }
    }

    fn put(&mut self, tag: u64, words: [u32; WORDS], poison: [u8; WORDS]) -> usize {
        let slot = self.slot(tag);
        self.lines[slot] = Line { tag, generation: self.generation, words, poison };
        slot
    }
}

/// Caches of a WGP.
#[derive(Debug)]
pub struct Pair {
    /// Of each CU.
    pub l0: [Cache; 2],
    /// The scalar cache.
    pub scalar: Cache,
}

/// Bytes that loads and stores have moved.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Traffic {
    /// Asked for by lanes of vector loads and by scalar loads, through the first caches.
    pub asked: u64,
    /// Lines that a first cache had to get.
    pub from_gl1: u64,
    /// Lines that the GL1 had to get.
    pub from_l2: u64,
    /// Asked for past the caches.
    pub past: u64,
    /// Stored by lanes, and written by atomics.
    pub stored: u64,
}

impl std::ops::AddAssign for Traffic {
    fn add_assign(&mut self, other: Self) {
        self.asked += other.asked;
        self.from_gl1 += other.from_gl1;
        self.from_l2 += other.from_l2;
        self.past += other.past;
        self.stored += other.stored;
    }
}

/// Caches of a shader array.
#[derive(Debug)]
pub struct Caches {
    /// Since somebody took it.
    pub traffic: Traffic,
    /// Of each WGP.
    pub pairs: Vec<Pair>,
    /// Of all of them.
    pub gl1: Cache,
}

/// Which first-level cache an access goes through.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Way {
    /// The L0 of that CU.
    Vector(usize),
    /// The scalar cache.
    Scalar,
}

impl Caches {
    /// Empty caches for so many WGPs.
    pub fn new(pairs: usize) -> Self {
        let pair = || Pair { l0: [Cache::new(32 << 10), Cache::new(32 << 10)], scalar: Cache::new(16 << 10) };
        let traffic = Traffic::default();
        Self { traffic, pairs: (0..pairs).map(|_| pair()).collect(), gl1: Cache::new(256 << 10) }
    }

    fn first(&mut self, pair: usize, way: Way) -> &mut Cache {
        match way {
            Way::Vector(cu) => &mut self.pairs[pair].l0[cu],
            Way::Scalar => &mut self.pairs[pair].scalar,
        }
    }

    /// Reads consecutive dwords that lie in `buffer` from `index` on, at `address`. `bytes` says which of the first
    /// dword count; all of the others do. With `device` all caches are passed by, and forget the lines.
    #[inline]
    pub fn read(
        &mut self,
        (pair, way): (usize, Way),
        device: bool,
        (buffer, index, address): (&Buffer, usize, u64),
        bytes: u8,
        out: &mut [(u32, u8)],
    ) -> Result<(), What> {
        if device {
            self.traffic.past += 4 * out.len() as u64;
            for (i, out) in out.iter_mut().enumerate() {
                *out = buffer.word(index + i);
            }
            let last = address + 4 * out.len() as u64 - 1;
            self.evict(pair, way, address);
            if last / LINE != address / LINE {
                self.evict(pair, way, last);
            }
            return Ok(());
        }
        self.traffic.asked += 4 * out.len() as u64;
        let mut slot = (u64::MAX, 0, false);
        for (i, out) in out.iter_mut().enumerate() {
            let at = address + 4 * i as u64;
            if slot.0 != at / LINE {
                let (place, filled) = self.line(pair, way, buffer, at / LINE);
                slot = (at / LINE, place, filled);
            }
            let line = &self.first(pair, way).lines[slot.1];
            let w = (at % LINE / 4) as usize;
            let (now, now_poison) = buffer.word(index + i);
            let bytes = if out_is_whole(i, bytes) { 15 } else { bytes };
            *out = (line.words[w], line.poison[w]);
            if out.0 != now && differs(out.0, now, bytes) || (out.1 ^ now_poison) & bytes != 0 {
                let cache = match (slot.2, way) {
                    (true, _) => "GL1",
                    (_, Way::Vector(0)) => "L0 of CU 0",
                    (_, Way::Vector(_)) => "L0 of CU 1",
                    (_, Way::Scalar) => "scalar cache",
                };
                return Err(What::Stale { cache, address: at & !3 });
            }
        }
        Ok(())
    }

    /// The place of a line in the first cache, and whether it was just filled from the GL1.
    fn line(&mut self, pair: usize, way: Way, buffer: &Buffer, tag: u64) -> (usize, bool) {
        if let Some(slot) = self.first(pair, way).has(tag) {
            return (slot, false);
        }
        self.traffic.from_gl1 += LINE;
        let (slot, hit) = match self.gl1.has(tag) {
            Some(slot) => (slot, true),
            None => {
                self.traffic.from_l2 += LINE;
                let (mut words, mut poison) = ([0; WORDS], [15; WORDS]);
                let first = ((tag * LINE - buffer.base) / 4) as usize;
                let count = (buffer.bytes.div_ceil(4) as usize - first).min(WORDS);
                for i in 0..count {
                    (words[i], poison[i]) = buffer.word(first + i);
                }
                (self.gl1.put(tag, words, poison), false)
            }
        };
        let (words, poison) = (self.gl1.lines[slot].words, self.gl1.lines[slot].poison);
        (self.first(pair, way).put(tag, words, poison), hit)
    }

    /// Forgets a line that a store or an atomic of that CU changes, or that a load of device scope passes by.
    pub fn evict(&mut self, pair: usize, way: Way, address: u64) {
        self.first(pair, way).evict(address);
        self.gl1.evict(address);
    }
}

fn out_is_whole(i: usize, bytes: u8) -> bool {
    i > 0 || bytes == 15
}

fn differs(a: u32, b: u32, bytes: u8) -> bool {
    (0..4).any(|i| bytes >> i & 1 != 0 && (a ^ b) >> (8 * i) & 0xff != 0)
}

/// What a wave's step reaches.
pub struct Ctx<'a> {
    /// Its workgroup's LDS.
    pub lds: &'a mut crate::lds::Lds,
    /// Its array's caches.
    pub caches: &'a mut Caches,
    /// Its WGP among them.
    pub pair: usize,
    /// Memory.
    pub memory: &'a Memory,
    /// Its dispatch, where those beside it must not use what it uses.
    pub user: Option<User>,
    /// The odds, one in so many, that a vector memory access is left until its counter is waited for; 0: none is.
    pub defer: u64,
}
