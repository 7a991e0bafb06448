//! A dispatch: one kernel with its push constants and its grid, as plain data.

use crate::gpu::kernels::{Kernel, PUSH_BYTES};
use std::ops::Range;

/// Where the device sees each buffer.
#[derive(Debug, Clone)]
pub struct Addresses {
    /// The arena.
    pub arena: u64,
    /// The weight buffers, in the layout's order.
    pub weights: Vec<u64>,
    /// The KV rings, one a layer.
    pub kv: Vec<u64>,
}

/// One dispatch of a baked command buffer.
#[derive(Debug, Clone, PartialEq)]
pub struct Dispatch {
    /// The steps that it runs, as indices into the schedule; none where it only prepares what comes after.
    pub steps: Range<usize>,
    /// Its pipeline.
    pub kernel: Kernel,
    /// Push constants.
    pub push: Push,
    /// Workgroups in x, y and z; y counts rows or tiles of rows.
    pub groups: [u32; 3],
    /// Whether it must wait for the dispatches before it in its segment.
    pub barrier: bool,
}

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

/// Workgroups in one dimension that every Vulkan device takes.
pub const MAX_GROUPS: usize = 65_535;

/// Workgroups for that much work: no more than every device takes in one dimension; kernels stride over the rest.
pub fn grid(groups: usize) -> u32 {
    groups.clamp(1, MAX_GROUPS) as u32
}
