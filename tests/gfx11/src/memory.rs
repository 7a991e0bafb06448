//! Memory behind the caches: named buffers at addresses. All CUs of all threads see it as the L2.

use crate::fault::What;
use std::sync::Mutex;
use std::sync::atomic::{
    AtomicBool, AtomicU8, AtomicU32,
    Ordering::{Relaxed, SeqCst},
};

/// Bytes of a cache line.
pub const LINE: u64 = 128;

/// Some memory.
#[derive(Debug)]
pub struct Buffer {
    /// For messages.
    pub name: String,
    /// Its first byte's address, a multiple of 256.
    pub base: u64,
    /// Its size.
    pub bytes: u64,
    words: Box<[AtomicU32]>,
    /// A bit for each byte that was never written.
    poison: Box<[AtomicU8]>,
    /// The dispatch that has written each dword last, and the one that has read it last; empty where nobody wants to know.
    users: [Box<[AtomicU32]>; 2],
    /// Parts of [`PART`] dwords that were written since somebody looked.
    changed: Box<[AtomicBool]>,
}

/// Dwords of a part of a buffer ([`Memory::take_changed`]).
pub const PART: usize = 1024;

/// Which dispatch an access is of: a run of dispatches beside each other, and its number among them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct User {
    /// Counts runs, from 1 on.
    pub run: u32,
    /// Below [`SEVERAL`].
    pub dispatch: u32,
}

/// Stands for a dispatch's number where several have used a dword.
pub const SEVERAL: u32 = 255;

impl User {
    fn mark(self) -> u32 {
        self.run << 8 | self.dispatch
    }
}

impl Buffer {
    /// A dword and its poisoned bytes.
    #[inline(always)]
    pub fn word(&self, index: usize) -> (u32, u8) {
        (self.words[index].load(Relaxed), self.poison[index].load(Relaxed))
    }

    /// Writes bytes of a dword.
    #[inline]
    pub fn write(&self, index: usize, value: u32, bytes: u8, poison: u8) {
        self.changed[index / PART].store(true, Relaxed);
        if bytes == 15 {
            self.words[index].store(value, Relaxed);
            self.poison[index].store(poison, Relaxed);
            return;
        }
        let mask = (0..4).filter(|i| bytes >> i & 1 != 0).fold(0, |all, i| all | 0xff << (8 * i));
        let _ = self.words[index].fetch_update(Relaxed, Relaxed, |old| Some(old & !mask | value & mask));
        let _ = self.poison[index].fetch_update(Relaxed, Relaxed, |old| Some(old & !bytes | poison & bytes));
    }

    /// Marks a dword as read or written by a dispatch. A fault where one beside it has written that dword, or has read what
    /// this one writes: nothing says which of the two comes first. Threads mark first and look then, so that of two that use
    /// a dword at the same time at least one sees the other.
    #[inline]
    pub fn mark(&self, index: usize, by: User, writes: bool) -> Result<(), What> {
        let [mine_of, theirs_of] = if writes { [0, 1] } else { [1, 0] }.map(|which: usize| &self.users[which]);
        if mine_of.is_empty() {
            return Ok(());
        }
        let (mine, several) = (by.mark(), User { dispatch: SEVERAL, ..by }.mark());
        let of_this_run = |mark: u32| mark >> 8 == mine >> 8;
        let own = &mine_of[index];
        let mut before = own.load(SeqCst);
        while before != mine && before != several {
            let mark = if of_this_run(before) { several } else { mine };
            match own.compare_exchange(before, mark, SeqCst, SeqCst) {
                Ok(_) => break,
                Err(now) => before = now,
            }
        }
        // Two may read it, but not two write it.
        let others = [writes.then_some(before), Some(theirs_of[index].load(SeqCst))];
        let other = others.into_iter().flatten().find(|mark| of_this_run(*mark) && *mark != mine);
        other.map_or(Ok(()), |other| {
            let address = self.base + 4 * index as u64;
            Err(What::Unordered { address, buffer: self.name.clone(), dispatches: [other & 255, by.dispatch] })
        })
    }

    /// Changes a dword at once.
    pub fn update(&self, index: usize, f: impl Fn(u32) -> u32) -> Result<u32, What> {
        if self.poison[index].load(Relaxed) != 0 {
            return Err(What::Poison(format!("what an atomic changes in {}", self.name)));
        }
        self.changed[index / PART].store(true, Relaxed);
        self.words[index].fetch_update(Relaxed, Relaxed, |old| Some(f(old))).map_err(|_| What::NoEnd)
    }

    /// All of it, with zeros where nothing was written.
    pub fn contents(&self) -> Vec<u32> {
        (0..self.words.len()).map(|i| if self.word(i).1 == 0 { self.word(i).0 } else { 0 }).collect()
    }

    /// Dwords with bytes that were never written.
    pub fn unwritten(&self) -> usize {
        (0..self.words.len()).filter(|i| self.word(*i).1 != 0).count()
    }
}

/// All buffers.
#[derive(Debug, Default)]
pub struct Memory {
    buffers: Vec<Buffer>,
    pairs: Mutex<()>,
}

impl Memory {
    /// Adds a buffer with nothing written. Panics where it is not aligned to 256 bytes or meets another.
    pub fn add(&mut self, name: &str, base: u64, bytes: u64) {
        assert!(base.is_multiple_of(256), "{name} is not aligned");
        let at = self.buffers.partition_point(|b| b.base < base);
        let free = |b: &Buffer| b.base + b.bytes <= base || base + bytes <= b.base;
        assert!(self.buffers.iter().all(free), "{name} meets another buffer");
        let words = bytes.div_ceil(4) as usize;
        let poison = (0..words).map(|_| AtomicU8::new(15)).collect();
        let words: Box<[AtomicU32]> = (0..words).map(|_| AtomicU32::new(0xdead_beef)).collect();
        let users = [Box::default(), Box::default()];
        let changed = (0..words.len().div_ceil(PART)).map(|_| AtomicBool::new(false)).collect();
        self.buffers.insert(at, Buffer { name: name.to_string(), base, bytes, words, poison, users, changed });
    }

    /// Lets a buffer's dwords know which dispatches use them ([`Buffer::mark`]).
    pub fn watch(&mut self, name: &str) {
        for buffer in self.buffers.iter_mut().filter(|b| b.name == name) {
            buffer.users = [0, 1].map(|_| (0..buffer.words.len()).map(|_| AtomicU32::new(0)).collect());
        }
    }

    /// Adds a buffer with these dwords.
    pub fn add_words(&mut self, name: &str, base: u64, words: &[u32]) {
        self.add(name, base, 4 * words.len() as u64);
        self.write(base, words).unwrap_or_else(|what| panic!("{what}"));
    }

    /// Writes from outside.
    pub fn write(&self, address: u64, words: &[u32]) -> Result<(), What> {
        let (buffer, index) = self.find(address, 4 * words.len() as u32)?;
        words.iter().enumerate().for_each(|(i, word)| buffer.write(index + i, *word, 15, 0));
        Ok(())
    }

    /// Reads the parts of a buffer that were written since the last look, and calls with the index of the first dword of
    /// each and its dwords; those that were never written, or only in part, are `unwritten`.
    pub fn take_changed(&self, base: u64, unwritten: u32, mut look: impl FnMut(usize, &[u32])) -> Result<(), What> {
        let (buffer, _) = self.find(base, 4)?;
        let mut words = [0; PART];
        for (part, _) in buffer.changed.iter().enumerate().filter(|(_, changed)| changed.swap(false, Relaxed)) {
            let here = part * PART..buffer.words.len().min((part + 1) * PART);
            for (word, index) in words.iter_mut().zip(here.clone()) {
                let (value, poison) = buffer.word(index);
                *word = if poison == 0 { value } else { unwritten };
            }
            look(here.start, &words[..here.len()]);
        }
        Ok(())
    }

    /// The buffer of that name.
    pub fn buffer(&self, name: &str) -> Option<&Buffer> {
        self.buffers.iter().find(|b| b.name == name)
    }

    /// The buffer that holds all of an access, and the index of its first dword there.
    #[inline]
    pub fn find(&self, address: u64, bytes: u32) -> Result<(&Buffer, usize), What> {
        let after = self.buffers.partition_point(|b| b.base <= address);
        let below = after.checked_sub(1).map(|i| &self.buffers[i]);
        match below {
            Some(b) if address - b.base + bytes as u64 <= b.bytes => Ok((b, ((address - b.base) / 4) as usize)),
            _ => {
                let buffer = below.map_or("there is none below".into(), |b| {
                    format!("{} has {} bytes at {:#x}", b.name, b.bytes, b.base)
                });
                Err(What::OutOfBounds { address, bytes, buffer })
            }
        }
    }

    /// Changes 64 bits at once.
    pub fn update64(&self, address: u64, f: impl Fn(u64) -> u64) -> Result<u64, What> {
        let _held = self.pairs.lock().unwrap_or_else(|e| e.into_inner());
        let (buffer, i) = self.find(address, 8)?;
        let ((low, p), (high, q)) = (buffer.word(i), buffer.word(i + 1));
        if p | q != 0 {
            return Err(What::Poison(format!("what an atomic changes in {}", buffer.name)));
        }
        let old = low as u64 | (high as u64) << 32;
        let new = f(old);
        buffer.write(i, new as u32, 15, 0);
        buffer.write(i + 1, (new >> 32) as u32, 15, 0);
        Ok(old)
    }
}
