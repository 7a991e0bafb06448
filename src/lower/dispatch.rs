//! A dispatch: one kernel with its push constants and its grid, as plain data.

use super::arithmetic::Arithmetic;
use super::target::Product;
use crate::lower::kernels::Kernel;
use crate::lower::kernels::push::Push;
use std::ops::Range;

/// The device addresses of all buffers that kernels use.
#[derive(Debug, Clone)]
pub struct Addresses {
    /// The address of the arena.
    pub arena: u64,
    /// The address of each weight buffer, in the layout's order.
    pub weights: Vec<u64>,
    /// The step state of the rows that dispatches work on.
    pub state: u64,
    /// Index in the pass of the first of these rows.
    pub first_row: usize,
}

impl Addresses {
    /// Addresses for all rows of a pass, whose step state is at the arena's start.
    pub fn new(arena: u64, weights: Vec<u64>) -> Addresses {
        Addresses { arena, weights, state: arena, first_row: 0 }
    }

    /// Addresses for the rows of a pass from `first_row` on, whose step state is `state` bytes from the arena's start.
    pub fn of_rows(&self, first_row: usize, state: u64) -> Addresses {
        Addresses { state: self.arena + state, first_row, ..self.clone() }
    }
}

/// A wait of a command for earlier ones. The driver turns it into its own barriers and cache operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Edge {
    /// No wait: the command may run beside those before it.
    None,
    /// Kernels wait for the kernels before them in their list, and see their writes.
    Kernels,
    /// [`Edge::Kernels`] after kernels that have made their writes available themselves (shaders/relay.glsl): no cache
    /// has to be written back.
    Relayed,
    /// Fills and copies wait for the kernels before them in their list, and see their writes.
    Fill,
    /// The host sees all writes before it, once it has waited for the submit.
    Host,
    /// Kernels, fills and copies wait for all commands before them, in their list and in earlier submits, and see their
    /// writes.
    Device,
}

/// One call of a kernel, with its push constants and its number of workgroups.
#[derive(Debug, Clone, PartialEq)]
pub struct Dispatch {
    /// The steps, as indices into the schedule. Empty for a dispatch that packs a slot, shares the step of the dispatch
    /// before it, or measures.
    pub steps: Range<usize>,
    /// The kernel that runs.
    pub kernel: Kernel,
    /// The push constants of the kernel.
    pub push: Push,
    /// Workgroups in x, y and z; y counts rows or tiles of rows.
    pub groups: [u32; 3],
    /// The wait for earlier dispatches of its segment: [`Edge::None`] or [`Edge::Kernels`].
    pub edge: Edge,
    /// The product that it computes, if that can have several tiles.
    pub product: Option<(Arithmetic, Product)>,
    /// Device addresses of the weights that the product reads; empty for other dispatches.
    pub weights: Range<u64>,
}

impl Dispatch {
    /// The product whose tile is measured. Products of experts are not measured: the tokens decide which weights they
    /// read.
    pub fn tuned(&self) -> Option<(Arithmetic, Product)> {
        self.product.filter(|(_, product)| product.experts == 0)
    }

    /// A dispatch that belongs to no step, and waits for nothing.
    pub fn new(kernel: Kernel, push: Push, groups: [u32; 3]) -> Dispatch {
        Dispatch { steps: 0..0, kernel, push, groups, edge: Edge::None, product: None, weights: 0..0 }
    }
}
