//! Test data that is the same in every run.

/// xorshift64*; the seed must not be 0.
pub struct Random(pub u64);

impl Random {
    pub fn bits(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 24
    }

    /// From 0 to `n - 1`; 0 where `n` is 0.
    pub fn below(&mut self, n: usize) -> usize {
        self.bits() as usize % n.max(1)
    }

    /// From -1 to 1.
    pub fn real(&mut self) -> f32 {
        (self.bits() % 65536) as f32 / 32767.5 - 1.0
    }
}
