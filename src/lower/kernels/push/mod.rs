//! Push constants: the arguments of a dispatch. blocks.rs has a structure for every block of the shaders.

mod blocks;

pub use blocks::*;

use bytemuck::Pod;

/// Bytes of push constants that every Vulkan device offers.
pub const PUSH_BYTES: usize = 128;

/// Type of a field of a push block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldType {
    /// A 64-bit buffer device address. It has the alignment that the GLSL gives the type that it points to.
    Address,
    /// A u32.
    Word,
    /// An f32.
    Float,
}

/// A field of a push block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    /// The field's name in the GLSL source.
    pub name: &'static str,
    /// The offset of the field from the block's start, in bytes.
    pub offset: usize,
    /// The type of the field.
    pub kind: FieldType,
}

/// A push block, or a part of one.
pub trait PushBlock: Pod {
    /// The fields of the block in order.
    const FIELDS: &'static [Field];
}

/// The push constants of one dispatch: a block, then a relay's words if the kernel has them.
#[derive(Clone, Copy, PartialEq)]
pub struct Push {
    bytes: [u8; PUSH_BYTES],
    len: usize,
    fields: &'static [Field],
}

impl Push {
    /// The push constants of a block.
    pub fn new<B: PushBlock>(block: &B) -> Push {
        Push { bytes: [0; PUSH_BYTES], len: 0, fields: B::FIELDS }.followed_by(block)
    }

    /// Appends a relay's words to the block.
    pub fn followed_by<B: PushBlock>(mut self, part: &B) -> Push {
        let part = bytemuck::bytes_of(part);
        self.bytes[self.len..][..part.len()].copy_from_slice(part);
        self.len += part.len();
        self
    }

    /// The push constants as bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// The fields of its block.
    pub fn fields(&self) -> &'static [Field] {
        self.fields
    }
}

impl std::fmt::Debug for Push {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut all = f.debug_struct("Push");
        for &Field { name, offset, kind } in self.fields {
            let word = |at: usize| u32::from_le_bytes(self.bytes[at..at + 4].try_into().unwrap_or_default());
            match kind {
                FieldType::Address => {
                    all.field(name, &format_args!("{:#x}", u64::from(word(offset + 4)) << 32 | u64::from(word(offset))))
                }
                FieldType::Word => all.field(name, &word(offset)),
                FieldType::Float => all.field(name, &f32::from_bits(word(offset))),
            };
        }
        all.finish()
    }
}

/// A size, index or count as a u32. The schedule's limits keep all of them far below 2^32.
pub fn word(n: usize) -> u32 {
    debug_assert!(u32::try_from(n).is_ok());
    n as u32
}

/// A Rust type that a field can have.
trait FieldValue {
    const KIND: FieldType;
}

impl FieldValue for u64 {
    const KIND: FieldType = FieldType::Address;
}

impl FieldValue for u32 {
    const KIND: FieldType = FieldType::Word;
}

impl FieldValue for f32 {
    const KIND: FieldType = FieldType::Float;
}
