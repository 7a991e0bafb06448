//! Memory that knows which of its bytes have been written.

use super::Fault;

#[derive(Clone)]
pub struct Memory {
    bytes: Vec<u8>,
    known: Vec<bool>,
}

/// A place in a memory.
pub struct Cursor<'a> {
    memory: &'a mut Memory,
    address: u64,
}

impl Memory {
    pub fn new(bytes: usize) -> Memory {
        Memory { bytes: vec![0; bytes], known: vec![false; bytes] }
    }

    pub fn of(bytes: Vec<u8>) -> Memory {
        Memory { known: vec![true; bytes.len()], bytes }
    }

    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// All of it, where all has been written.
    pub fn bytes(&self) -> Option<&[u8]> {
        self.known.iter().all(|known| *known).then_some(&self.bytes)
    }

    /// Bytes from an address, or nothing where one of them was never written.
    pub fn read(&self, address: u64, count: usize) -> Result<Option<&[u8]>, Fault> {
        let range = self.range(address, count)?;
        Ok(self.known[range.clone()].iter().all(|known| *known).then_some(&self.bytes[range]))
    }

    pub fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), Fault> {
        let range = self.range(address, bytes.len())?;
        self.bytes[range.clone()].copy_from_slice(bytes);
        self.known[range].fill(true);
        Ok(())
    }

    pub fn at(&mut self, address: u64) -> Cursor<'_> {
        Cursor { memory: self, address }
    }

    fn range(&self, address: u64, count: usize) -> Result<std::ops::Range<usize>, Fault> {
        let start = usize::try_from(address).unwrap_or(usize::MAX);
        match start.checked_add(count) {
            Some(end) if end <= self.bytes.len() => Ok(start..end),
            _ => Err(format!("{count} bytes at {address:#x} are out of range: there are {:#x}", self.bytes.len())),
        }
    }
}

impl Cursor<'_> {
    pub fn read_word(&self) -> Result<u32, Fault> {
        let bytes = self.memory.read(self.address, 4)?;
        let bytes = bytes.ok_or_else(|| format!("it reads memory that nothing has written, at {:#x}", self.address))?;
        Ok(bytes.iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte)))
    }

    pub fn write_word(&mut self, word: u32) -> Result<(), Fault> {
        self.memory.write(self.address, &word.to_le_bytes())
    }
}
