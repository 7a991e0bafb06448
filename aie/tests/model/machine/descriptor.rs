//! Buffer descriptors as DMA channels read them from their registers.

use super::{Fault, Kind};

/// A descriptor. Addresses and steps are in bytes.
#[derive(Clone, Copy)]
pub struct Descriptor {
    pub base: u64,
    pub words: u64,
    /// 0 is without end.
    pub counts: [u32; 4],
    pub steps: [u64; 4],
    pub acquire: Option<(u32, i32)>,
    pub release: Option<(u32, i32)>,
    pub next: Option<u32>,
}

/// The bits of a word from `low` to `high`.
pub fn bits(word: u32, low: u32, high: u32) -> u32 {
    word >> low & (u32::MAX >> (31 - (high - low)))
}

/// The same, signed.
fn signed(word: u32, low: u32, high: u32) -> i32 {
    (word << (31 - high)) as i32 >> (31 - (high - low))
}

/// Where a kind of tile has an iteration: its register, and the lowest bits of the count and of the current one.
fn iteration(kind: Kind) -> (usize, u32, u32) {
    match kind {
        Kind::Core => (4, 13, 19),
        Kind::Memory => (6, 17, 23),
        Kind::Shim => (6, 20, 26),
    }
}

impl Descriptor {
    pub fn is_valid(kind: Kind, words: &[u32; 8]) -> bool {
        match kind {
            Kind::Shim => words[7] >> 25 & 1 == 1,
            Kind::Memory => words[7] >> 31 == 1,
            Kind::Core => words[5] >> 25 & 1 == 1,
        }
    }

    /// The descriptor that the registers chain to.
    pub fn next(kind: Kind, words: &[u32; 8]) -> Option<u32> {
        match kind {
            Kind::Memory => (words[1] >> 19 & 1 == 1).then(|| bits(words[1], 20, 25)),
            Kind::Core => (words[5] >> 26 & 1 == 1).then(|| bits(words[5], 27, 30)),
            Kind::Shim => (words[7] >> 26 & 1 == 1).then(|| bits(words[7], 27, 30)),
        }
    }

    /// Reads the registers and counts the iteration on: the current one is used, and the next written back.
    pub fn load(kind: Kind, words: &mut [u32; 8]) -> Result<Descriptor, Fault> {
        let mut descriptor = Descriptor::of(kind, words)?;
        let (word, count_at, current_at) = iteration(kind);
        let held = words[word];
        let (last, current) = (bits(held, count_at, count_at + 5), bits(held, current_at, current_at + 5));
        let step = 4 * (u64::from(held & ((1 << count_at) - 1)) + 1);
        descriptor.base += u64::from(current) * step;
        let next = if current == last { 0 } else { (current + 1) & 63 };
        words[word] = held & !(63 << current_at) | next << current_at;
        Ok(descriptor)
    }

    /// Reads the registers as AM025 gives them for each kind of tile.
    fn of(kind: Kind, words: &[u32; 8]) -> Result<Descriptor, Fault> {
        let step = |field: u32| 4 * (u64::from(field) + 1);
        let strange = |parts: &[u32]| parts.iter().any(|part| *part != 0);
        let refuse = Err("packets, compression and padding are not modelled".to_string());
        let next = Descriptor::next(kind, words);
        match kind {
            Kind::Memory => {
                if strange(&[words[0] >> 17, words[1] >> 26, words[2] >> 27, words[3] >> 27, words[4] >> 27])
                    || strange(&[words[5] >> 17, words[6] >> 29])
                {
                    return refuse;
                }
                let acquire = (words[7] >> 15 & 1 == 1).then(|| (bits(words[7], 0, 7), signed(words[7], 8, 14)));
                let release = (bits(words[7], 16, 23), signed(words[7], 24, 30));
                Ok(Descriptor {
                    base: 4 * u64::from(bits(words[1], 0, 18)),
                    words: u64::from(bits(words[0], 0, 16)),
                    counts: [bits(words[2], 17, 26), bits(words[3], 17, 26), bits(words[4], 17, 26), 0],
                    steps: [
                        step(bits(words[2], 0, 16)),
                        step(bits(words[3], 0, 16)),
                        step(bits(words[4], 0, 16)),
                        step(bits(words[5], 0, 16)),
                    ],
                    acquire,
                    release: (release.1 != 0).then_some(release),
                    next,
                })
            }
            Kind::Core | Kind::Shim => {
                // The last word is the same for both.
                let last = words[if kind == Kind::Core { 5 } else { 7 }];
                let acquire = (last >> 12 & 1 == 1).then(|| (bits(last, 0, 3), signed(last, 5, 11)));
                let release = (bits(last, 13, 16), signed(last, 18, 24));
                let release = (release.1 != 0).then_some(release);
                if kind == Kind::Core {
                    if strange(&[words[0] >> 28, words[1], words[2] >> 26, words[3] >> 29, words[4] >> 25, last >> 31])
                    {
                        return refuse;
                    }
                    return Ok(Descriptor {
                        base: 4 * u64::from(bits(words[0], 14, 27)),
                        words: u64::from(bits(words[0], 0, 13)),
                        counts: [bits(words[3], 13, 20), bits(words[3], 21, 28), 0, 0],
                        steps: [
                            step(bits(words[2], 0, 12)),
                            step(bits(words[2], 13, 25)),
                            step(bits(words[3], 0, 12)),
                            0,
                        ],
                        acquire,
                        release,
                        next,
                    });
                }
                // Of the shim's only the fields of its bus are passed over: bursts, cache, quality of service.
                if strange(&[words[1] & 3, words[2] >> 16, words[3] >> 30, last >> 31]) {
                    return refuse;
                }
                Ok(Descriptor {
                    base: u64::from(words[2]) << 32 | u64::from(words[1]),
                    words: u64::from(words[0]),
                    counts: [bits(words[3], 20, 29), bits(words[4], 20, 29), 0, 0],
                    steps: [step(bits(words[3], 0, 19)), step(bits(words[4], 0, 19)), step(bits(words[5], 0, 19)), 0],
                    acquire,
                    release,
                    next,
                })
            }
        }
    }
}
