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
}

/// One dispatch of a baked command buffer.
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
    /// Whether it must wait for the dispatches before it in its segment.
    pub barrier: bool,
    /// The product that it computes, if its tile can be chosen.
    pub product: Option<(Arithmetic, Product)>,
    /// Device addresses of the weights that this product reads; empty for others.
    pub weights: Range<u64>,
}

impl Dispatch {
    /// One that runs no step of the schedule and waits for none.
    pub fn new(kernel: Kernel, push: Push, groups: [u32; 3]) -> Dispatch {
        Dispatch { steps: 0..0, kernel, push, groups, barrier: false, product: None, weights: 0..0 }
    }
}
