//! Memory that knows which of its words have been written.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::Fault;

/// A vector's half: what a core loads or stores at once.
pub type Part = [u32; 8];

/// The memory of a tile, in words.
#[derive(Clone)]
pub struct Memory {
    words: Vec<u32>,
    /// A bit a word.
    known: Vec<u64>,
}

impl Memory {
    pub fn new(bytes: usize) -> Memory {
        Memory { words: vec![0; bytes / 4], known: vec![0; (bytes / 4).div_ceil(64)] }
    }

    /// The word at an address, or nothing where it was never written.
    pub fn word(&self, address: u64) -> Result<Option<u32>, Fault> {
        let index = self.index(address, 4)?;
        Ok((self.known[index / 64] >> (index % 64) & 1 == 1).then(|| self.words[index]))
    }

    pub fn write_word(&mut self, address: u64, word: u32) -> Result<(), Fault> {
        let index = self.index(address, 4)?;
        self.words[index] = word;
        self.known[index / 64] |= 1 << (index % 64);
        Ok(())
    }

    /// The 32 bytes at a multiple of 32, or nothing where some were never written.
    pub fn part(&self, address: u64) -> Result<Option<Part>, Fault> {
        let index = self.index(address, 32)?;
        let known = self.known[index / 64] >> (index % 64) & 0xFF == 0xFF;
        Ok(self.words[index..index + 8].first_chunk().filter(|_| known).copied())
    }

    pub fn write_part(&mut self, address: u64, part: &Part) -> Result<(), Fault> {
        let index = self.index(address, 32)?;
        self.words[index..index + 8].copy_from_slice(part);
        self.known[index / 64] |= 0xFF << (index % 64);
        Ok(())
    }

    /// Bytes from an address, or nothing where one of them was never written.
    pub fn bytes(&self, address: u64, count: u64) -> Result<Option<Vec<u8>>, Fault> {
        let words: Option<Vec<u32>> =
            (address..address + count).step_by(4).map(|address| self.word(address)).collect::<Result<_, Fault>>()?;
        Ok(words.map(|words| words.into_iter().flat_map(u32::to_le_bytes).collect()))
    }

    /// The index of the first word of an access of so many bytes, at a multiple of them.
    fn index(&self, address: u64, bytes: u64) -> Result<usize, Fault> {
        if !address.is_multiple_of(bytes) {
            return Err(format!("an access of {bytes} bytes at {address:#x}, which is no multiple of {bytes}"));
        }
        let all = 4 * self.words.len();
        match usize::try_from(address) {
            Ok(start) if start + bytes as usize <= all => Ok(start / 4),
            _ => Err(format!("{bytes} bytes at {address:#x} are out of range: there are {all:#x}")),
        }
    }
}

/// A buffer of the host, which all columns reach at once. Columns that write what others access are wrong, whatever comes
/// of it.
pub struct HostMemory {
    words: Vec<AtomicU32>,
    known: Vec<AtomicBool>,
}

impl HostMemory {
    /// Memory that nothing has written.
    pub fn new(bytes: usize) -> HostMemory {
        let words = bytes / 4;
        HostMemory {
            words: (0..words).map(|_| AtomicU32::new(0)).collect(),
            known: (0..words).map(|_| AtomicBool::new(false)).collect(),
        }
    }

    /// Memory with these contents: whole words.
    pub fn of(bytes: &[u8]) -> HostMemory {
        let words = bytes.chunks(4).map(|word| word.iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte)));
        let words: Vec<AtomicU32> = words.map(AtomicU32::new).collect();
        HostMemory { known: (0..words.len()).map(|_| AtomicBool::new(true)).collect(), words }
    }

    /// How many bytes.
    pub fn len(&self) -> u64 {
        4 * self.words.len() as u64
    }

    /// All of it, where all has been written.
    pub fn bytes(&self) -> Option<Vec<u8>> {
        let known = self.known.iter().all(|known| known.load(Ordering::Relaxed));
        known.then(|| self.words.iter().flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes()).collect())
    }

    pub fn word(&self, offset: u64) -> Option<u32> {
        let index = offset as usize / 4;
        self.known[index].load(Ordering::Relaxed).then(|| self.words[index].load(Ordering::Relaxed))
    }

    pub fn write_word(&self, offset: u64, word: u32) {
        let index = offset as usize / 4;
        self.words[index].store(word, Ordering::Relaxed);
        self.known[index].store(true, Ordering::Relaxed);
    }
}
