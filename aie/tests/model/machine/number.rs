//! bf16 and f32.

/// A bf16 value.
pub fn widen(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// The nearest bf16, ties to even. Not for NaN.
pub fn narrow(value: f32) -> u16 {
    let bits = value.to_bits();
    ((u64::from(bits) + 0x7FFF + u64::from(bits >> 16 & 1)) >> 16) as u16
}

pub fn to_f32(bytes: &[u8]) -> Vec<f32> {
    bytes
        .chunks(4)
        .map(|word| f32::from_bits(word.iter().rev().fold(0, |bits, byte| bits << 8 | u32::from(*byte))))
        .collect()
}

pub fn to_bf16(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks(2).map(|half| widen(u16::from(half[0]) | u16::from(half[1]) << 8)).collect()
}

pub fn of_f32(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_bits().to_le_bytes()).collect()
}
