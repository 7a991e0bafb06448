//! Push constants: what a dispatch tells its kernel.

use crate::gpu::kernels::PUSH_BYTES;

/// Push constants, written in the order that the kernel's block declares them.
#[derive(Clone, Copy, PartialEq)]
pub struct Push {
    bytes: [u8; PUSH_BYTES],
    len: usize,
}

impl std::fmt::Debug for Push {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Push({} bytes)", self.len)
    }
}

impl Push {
    /// None yet.
    pub fn new() -> Push {
        Push { bytes: [0; PUSH_BYTES], len: 0 }
    }

    fn put<const N: usize>(mut self, b: [u8; N]) -> Push {
        self.bytes[self.len..self.len + N].copy_from_slice(&b);
        self.len += N;
        self
    }

    /// Appends a 64-bit address; addresses come before all else, so that none needs padding.
    pub fn address(self, a: u64) -> Push {
        debug_assert_eq!(self.len % 8, 0);
        self.put(a.to_le_bytes())
    }

    /// Appends a size, an index or a count.
    pub fn word(self, w: usize) -> Push {
        debug_assert!(u32::try_from(w).is_ok());
        self.put((w as u32).to_le_bytes())
    }

    /// Appends an f32.
    pub fn float(self, x: f32) -> Push {
        self.put(x.to_le_bytes())
    }

    /// All of them.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl Default for Push {
    fn default() -> Self {
        Push::new()
    }
}
