//! Little-endian structures, written field by field.

use std::ops::Deref;

#[derive(Default)]
pub struct Bytes(Vec<u8>);

impl Bytes {
    pub fn extend(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    pub fn u16(&mut self, value: u16) {
        self.extend(&value.to_le_bytes());
    }

    pub fn u32(&mut self, value: u32) {
        self.extend(&value.to_le_bytes());
    }

    pub fn u64(&mut self, value: u64) {
        self.extend(&value.to_le_bytes());
    }

    pub fn zeros(&mut self, count: usize) {
        self.0.resize(self.0.len() + count, 0);
    }

    pub fn align(&mut self, to: usize) {
        self.0.resize(self.0.len().next_multiple_of(to), 0);
    }

    /// A name in a field of this width, cut where it would not leave a zero at the end.
    pub fn text(&mut self, text: &str, width: usize) {
        let length = text.len().min(width - 1);
        self.extend(&text.as_bytes()[..length]);
        self.zeros(width - length);
    }

    /// How many, and where from the start of the structure.
    pub fn array(&mut self, count: u32, offset: u32) {
        self.u32(count);
        self.u32(offset);
    }

    /// Adds bytes at a multiple of 8, and says where they lie behind `base` bytes.
    pub fn put(&mut self, base: usize, bytes: &[u8]) -> u32 {
        let offset = base + self.0.len();
        self.extend(bytes);
        self.align(8);
        offset as u32
    }

    pub fn into_vec(self) -> Vec<u8> {
        self.0
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}
