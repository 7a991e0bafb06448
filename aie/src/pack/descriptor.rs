//! Buffer descriptors: what a DMA channel moves in one go. All sizes are in words of 32 bits.
//!
//! Source: AM025, the BD registers of each kind of tile; steps are held less one (Xilinx/aie-rt, xaie_dma_aieml.c).

use super::array::Kind;

/// A dimension of a walk through memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dimension {
    /// How often; of the last dimension that a tile has, the length decides.
    pub count: u32,
    /// From one to the next, in words.
    pub step: u32,
}

/// What a channel does to a lock: -1 waits until it is 1 or more and takes 1, +1 gives 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LockUse {
    /// As the tile's DMA numbers it.
    pub lock: u8,
    pub value: i8,
}

#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Descriptor {
    /// Where the buffer starts in the tile's memory, in bytes; in a shim, in the host's buffer, which is added later.
    pub address: u32,
    pub words: u32,
    /// Innermost first; none is word by word.
    pub dimensions: Vec<Dimension>,
    pub acquire: Option<LockUse>,
    pub release: Option<LockUse>,
    /// The descriptor that follows.
    pub next: Option<u8>,
    /// Each time that the descriptor is used, it starts so many words behind where it started before, and over again
    /// after so many times: up to 64.
    pub iteration: Option<Dimension>,
    /// AxCache of a shim's accesses to the host's memory; other tiles have none.
    pub cache: u8,
}

/// Collects fields that must fit.
struct Words<'a> {
    words: Vec<u32>,
    descriptor: &'a Descriptor,
}

impl Words<'_> {
    fn put(&mut self, word: usize, low: u32, bits: u32, value: u32, what: &str) -> Result<(), String> {
        if u64::from(value) >= 1 << bits {
            let most = (1u64 << bits) - 1;
            return Err(format!("a descriptor's {what} is {value}, and at most {most} here"));
        }
        self.words[word] |= value << low;
        Ok(())
    }

    /// Puts each dimension's step and, where the tile holds it, its count: word, lowest bit and width of each.
    fn walk(&mut self, steps: &[(usize, u32, u32)], counts: &[(usize, u32, u32)]) -> Result<(), String> {
        let dimensions = &self.descriptor.dimensions;
        if dimensions.len() > steps.len() {
            return Err(format!("a descriptor has {} dimensions, and at most {} here", dimensions.len(), steps.len()));
        }
        for (index, dimension) in dimensions.iter().enumerate() {
            let less = dimension.step.checked_sub(1).ok_or("a dimension's step is 0")?;
            let (word, low, bits) = steps[index];
            self.put(word, low, bits, less, "step less one")?;
            if let Some(&(word, low, bits)) = counts.get(index) {
                self.put(word, low, bits, dimension.count, "count")?;
            }
        }
        Ok(())
    }

    /// Puts the iteration's step and count, both held less one. The current iteration has the six bits behind the
    /// count's, and starts at 0.
    fn iteration(&mut self, word: usize, step_bits: u32, count_low: u32) -> Result<(), String> {
        let Some(Dimension { count, step }) = self.descriptor.iteration else { return Ok(()) };
        let less = |value: u32, what: &str| value.checked_sub(1).ok_or(format!("an iteration's {what} is 0"));
        self.put(word, 0, step_bits, less(step, "step")?, "iteration's step less one")?;
        self.put(word, count_low, 6, less(count, "count")?, "iteration's count less one")
    }

    fn locks(&mut self, word: usize, places: &LockPlaces) -> Result<(), String> {
        let Descriptor { acquire, release, .. } = self.descriptor;
        let uses = [(acquire, places.acquire, places.acquire_value), (release, places.release, places.release_value)];
        for (used, lock, value) in uses {
            let Some(used) = used else { continue };
            if !(-64..64).contains(&used.value) {
                return Err(format!("a descriptor's lock changes by {}: -64 to 63", used.value));
            }
            self.put(word, lock, places.lock_bits, u32::from(used.lock), "lock")?;
            self.words[word] |= (used.value as u32 & 0x7F) << value;
        }
        self.words[word] |= u32::from(acquire.is_some()) << places.enable;
        Ok(())
    }
}

/// Where the last word has its fields of locks.
struct LockPlaces {
    lock_bits: u32,
    acquire: u32,
    acquire_value: u32,
    enable: u32,
    release: u32,
    release_value: u32,
}

const OF_16_LOCKS: LockPlaces =
    LockPlaces { lock_bits: 4, acquire: 0, acquire_value: 5, enable: 12, release: 13, release_value: 18 };
const OF_192_LOCKS: LockPlaces =
    LockPlaces { lock_bits: 8, acquire: 0, acquire_value: 8, enable: 15, release: 16, release_value: 24 };

impl Descriptor {
    /// The registers of the descriptor, from the lowest.
    ///
    /// # Errors
    /// One line that names what does not fit.
    pub fn encode(&self, kind: Kind) -> Result<Vec<u32>, String> {
        if !self.address.is_multiple_of(4) {
            return Err(format!("a descriptor's address is {:#x}, not a multiple of 4", self.address));
        }
        if self.dimensions.iter().any(|dimension| dimension.count == 0) {
            return Err("a dimension's count is 0".into());
        }
        let mut words = Words { words: vec![0; if kind == Kind::Core { 6 } else { 8 }], descriptor: self };
        let next = (u32::from(self.next.is_some()), u32::from(self.next.unwrap_or(0)));
        match kind {
            Kind::Core => {
                words.put(0, 0, 14, self.words, "length")?;
                words.put(0, 14, 14, self.address / 4, "address")?;
                words.walk(&[(2, 0, 13), (2, 13, 13), (3, 0, 13)], &[(3, 13, 8), (3, 21, 8)])?;
                words.iteration(4, 13, 13)?;
                words.put(5, 27, 4, next.1, "next")?;
                words.words[5] |= next.0 << 26 | 1 << 25;
                words.locks(5, &OF_16_LOCKS)?;
            }
            Kind::Memory => {
                words.put(0, 0, 17, self.words, "length")?;
                words.put(1, 0, 19, self.address / 4, "address")?;
                words.put(1, 20, 6, next.1, "next")?;
                words.words[1] |= next.0 << 19;
                let steps = [(2, 0, 17), (3, 0, 17), (4, 0, 17), (5, 0, 17)];
                words.walk(&steps, &[(2, 17, 10), (3, 17, 10), (4, 17, 10)])?;
                words.iteration(6, 17, 17)?;
                words.words[7] |= 1 << 31;
                words.locks(7, &OF_192_LOCKS)?;
            }
            Kind::Shim => {
                words.put(0, 0, 32, self.words, "length")?;
                words.words[1] = self.address;
                words.walk(&[(3, 0, 20), (4, 0, 20), (5, 0, 20)], &[(3, 20, 10), (4, 20, 10)])?;
                // Bursts of 256 bytes.
                words.words[4] |= 2 << 30;
                words.put(5, 24, 4, u32::from(self.cache), "cache")?;
                words.iteration(6, 20, 20)?;
                words.put(7, 27, 4, next.1, "next")?;
                words.words[7] |= next.0 << 26 | 1 << 25;
                words.locks(7, &OF_16_LOCKS)?;
            }
        }
        Ok(words.words)
    }
}
