//! Random numbers, and draws by weight.

use std::hash::{BuildHasher, Hasher};

/// SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014), with the constants of
/// Vigna's public reference <https://prng.di.unimi.it/splitmix64.c>.
#[derive(Debug, Clone)]
pub(super) struct SplitMix64(pub(super) u64);

impl SplitMix64 {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in [0, 1), from the upper 53 bits.
    pub(super) fn next_unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// The item in which the running sum of weights passes `left`; `None` if no weight is above 0.
pub(super) fn draw_by_weight<T>(items: impl Iterator<Item = (T, f64)>, mut left: f64) -> Option<T> {
    let mut drawn = None;
    for (item, weight) in items.filter(|(_, weight)| *weight > 0.0) {
        // If rounding leaves a remainder at the end, the last one is drawn.
        drawn = Some(item);
        left -= weight;
        if left < 0.0 {
            break;
        }
    }
    drawn
}

/// A random seed of 53 bits, because many JSON readers keep no more of a number. The system's randomness comes from the
/// standard library's hash keys.
pub(super) fn draw_seed() -> u64 {
    std::hash::RandomState::new().build_hasher().finish() >> 11
}
