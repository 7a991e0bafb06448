//! bf16 and f32.

/// A bf16 value.
pub fn widen(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// The nearest bf16, ties to even. A NaN stays one.
pub fn narrow(value: f32) -> u16 {
    let bits = value.to_bits();
    if value.is_nan() {
        return (bits >> 16) as u16 | 0x40;
    }
    ((u64::from(bits) + 0x7FFF + u64::from(bits >> 16 & 1)) >> 16) as u16
}

/// The 16-bit lanes of words, from the lowest.
pub fn halves(words: &[u32]) -> impl Iterator<Item = u16> {
    words.iter().flat_map(|word| [*word as u16, (*word >> 16) as u16])
}
