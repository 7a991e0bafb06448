//! A dispatch: one kernel with its push constants and its grid, as plain data.

use super::arithmetic::Arithmetic;
use super::target::Product;
use crate::lower::kernels::Kernel;
use crate::lower::kernels::push::Push;
use std::ops::Range;

/// Device addresses of the buffers.
#[derive(Debug, Clone)]
pub struct Addresses {
    /// The arena.
    pub arena: u64,
    /// The weight buffers, in the layout's order.
    pub weights: Vec<u64>,
    /// The step state of the rows that dispatches work on.
    pub state: u64,
    /// Which row of the pass is the first of them.
    pub first_row: usize,
}

impl Addresses {
    /// For all rows of a pass: their step state is at the arena's start.
    pub fn new(arena: u64, weights: Vec<u64>) -> Addresses {
        Addresses { arena, weights, state: arena, first_row: 0 }
    }

    /// For the rows of a pass from `first_row` on, whose step state is so many bytes from the arena's start.
    pub fn of_rows(&self, first_row: usize, state: u64) -> Addresses {
        Addresses { state: self.arena + state, first_row, ..self.clone() }
    }
}

/// What work waits for of the work before it. The driver turns it into its own barriers and cache operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Edge {
    /// Nothing: it may run beside what is before it.
    None,
    /// Kernels wait for the kernels before them in their list, and see what those wrote.
    Kernels,
    /// As [`Edge::Kernels`], where the kernels before have themselves made available what they wrote (shaders/relay.glsl): no
    /// cache has to be written back.
    Relayed,
    /// Fills and copies wait for the kernels before them in their list, and see what those wrote.
    Fill,
    /// The host sees what is before it, once it has waited for the submit.
    Host,
    /// Kernels, fills and copies wait for all that is before them, in their list and in what was submitted before it, and see
    /// what that wrote.
    Device,
}

/// One dispatch of a list that is baked.
#[derive(Debug, Clone, PartialEq)]
pub struct Dispatch {
    /// The steps that it runs, as indices into the schedule. Empty for one that packs a slot, shares the
    /// step of the dispatch before it, or measures.
    pub steps: Range<usize>,
    /// Its pipeline.
    pub kernel: Kernel,
    /// Push constants.
    pub push: Push,
    /// Workgroups in x, y and z; y counts rows or tiles of rows.
    pub groups: [u32; 3],
    /// What it waits for of the dispatches before it in its segment: [`Edge::None`] or [`Edge::Kernels`].
    pub edge: Edge,
    /// The product that it computes, if its tile can be chosen.
    pub product: Option<(Arithmetic, Product)>,
    /// Device addresses of the weights that this product reads; empty for others.
    pub weights: Range<u64>,
}

impl Dispatch {
    /// One that runs no step of the schedule and waits for none.
    pub fn new(kernel: Kernel, push: Push, groups: [u32; 3]) -> Dispatch {
        Dispatch { steps: 0..0, kernel, push, groups, edge: Edge::None, product: None, weights: 0..0 }
    }
}
