//! Fragments: what an invocation holds of the matrices that its subgroup multiplies. Which elements that are is the device's
//! choice; where it is a plain one, products of few rows load them from memory as they are held (`linear_fragment`).

use super::bake::Queue;
use super::device::Gpu;
use super::dispatch::{Dispatch, Push};
use super::kernels::{Constants, Kernel, Module, constants};
use super::matrix::{SHARED_REST, Units};
use super::memory::{Access, Buffer, describe};
use super::pipelines::Pipelines;
use crate::{Error, Result};
use std::rc::Rc;

/// The matrix units with [`Units::sharers`] found out, by a run of shaders/fragment.comp.
///
/// # Errors
/// Device: the driver refuses or fails, or has no memory that host and device see.
pub fn find(gpu: &Rc<Gpu>, queue: &Queue, pipelines: &mut Pipelines, units: Units) -> Result<Units> {
    let heap = describe(gpu).heaps.iter().position(|h| h.host_visible);
    let heap = heap.ok_or_else(|| Error::device("no memory that host and device see", "use `--device cpu`"))?;
    let mut found = Buffer::new(gpu, 4, heap, Access::Host)?;
    found.write(|words| words[0] = 0)?;
    let constants = constants([0, 0, 0, 0, 0, 0, 0, 0, 0, units.m, units.least_n, units.k]);
    let kernel = Kernel { module: Module::Fragment, workgroup: units.subgroup, constants };
    let push = Push::new().address(found.address);
    let dispatch = Dispatch { steps: 0..0, kernel, push, groups: [1, 1, 1], barrier: false };
    let commands = queue.bake(&[&[dispatch]], pipelines, None, None, &[])?;
    queue.submit(&[commands], true)?;
    queue.wait()?;
    queue.free(&[commands]);
    let mut bits = 0;
    found.write(|words| bits = words[0])?;
    let sharers = (bits != 0).then(|| 1 << bits.trailing_zeros());
    log::debug!("invocations that share a row of a matrix: {sharers:?}");
    Ok(Units { sharers, ..units })
}

/// How a workgroup of `linear_fragment` cuts its product.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct FragmentTile {
    /// Rows of x.
    pub rows: u32,
    /// Outputs of a subgroup.
    pub outputs: u32,
    /// Subgroups that lie beside each other.
    pub subgroups: u32,
    /// Subgroups that share an output, each with its part of the inputs.
    pub input_parts: u32,
    /// 16-byte loads of a row of weights in a step.
    pub span: u32,
    /// Steps whose weights are on their way from memory, and steps whose inputs are, of which one divides the other.
    pub depths: [u32; 2],
}

impl FragmentTile {
    const fn new(rows: u32, outputs: u32, [subgroups, input_parts]: [u32; 2], span: u32, depths: [u32; 2]) -> Self {
        FragmentTile { rows, outputs, subgroups, input_parts, span, depths }
    }

    /// Subgroups of a workgroup.
    pub fn subgroups(self) -> u32 {
        self.subgroups * self.input_parts
    }

    /// Inputs of a step of all that share an output, on a device where so many invocations share a row.
    pub fn inputs(self, sharers: u32) -> u32 {
        self.input_parts * self.span * sharers * LOAD
    }

    /// Products of matrices that a subgroup's round of the loop is unrolled to.
    pub fn unrolled(self, units: Units) -> u32 {
        let step = self.inputs(units.sharers.unwrap_or(1)) / self.input_parts;
        let round = self.depths[0].max(self.depths[1]);
        (self.rows / units.least_n) * (self.outputs / units.m) * (step / units.k) * round
    }

    /// Whether a device with `units` can run it.
    pub fn fits(self, units: Units) -> bool {
        let Some(sharers) = units.sharers else { return false };
        let stage = self.subgroups() * self.outputs * units.least_n * 4;
        // The weights of a load are those of a whole number of products.
        LOAD.is_multiple_of(units.k / sharers)
            && self.rows.is_multiple_of(units.least_n)
            && self.outputs.is_multiple_of(units.m)
            && self.subgroups() * units.subgroup <= units.max_workgroup
            && stage + SHARED_REST <= units.shared_bytes
            && 4 * self.rows * self.outputs / units.subgroup <= units.sum_bytes
            && self.unrolled(units) <= units.unrolled_steps.saturating_mul(PRODUCTS)
    }

    /// Module and constants.
    pub(super) fn kernel(self, units: Units) -> (Module, Constants) {
        let FragmentTile { rows, outputs, subgroups, input_parts, span, depths: [depth, input_depth] } = self;
        let sharers = units.sharers.unwrap_or(1);
        let shape = [units.m, units.least_n, units.k];
        let constants = constants([
            rows,
            outputs,
            subgroups,
            input_parts,
            span,
            depth,
            input_depth,
            0,
            sharers,
            shape[0],
            shape[1],
            shape[2],
        ]);
        (Module::LinearFragmentInt8, constants)
    }

    /// The tile as text.
    pub fn name(self) -> String {
        let FragmentTile { rows, outputs, subgroups, input_parts, span, depths: [depth, input_depth] } = self;
        format!("{rows}x{outputs} x{subgroups}/{input_parts} s{span}d{depth},{input_depth}")
    }
}

/// Weights of a load.
const LOAD: u32 = 16;
/// Products that count as a step of [`Units::unrolled_steps`]: their elements are put in one by one.
const PRODUCTS: u32 = 32;

/// The tiles that measured best on an H200, of 8, 16 and 32 rows. The first of each is good for any product.
#[rustfmt::skip]
pub(super) const TILES: &[FragmentTile] = &[
    FragmentTile::new(8, 16, [1, 8], 2, [1, 1]),
    FragmentTile::new(8, 32, [4, 1], 4, [1, 1]),
    FragmentTile::new(8, 64, [2, 2], 2, [1, 1]),
    FragmentTile::new(8, 32, [1, 8], 2, [1, 1]),
    FragmentTile::new(8, 16, [1, 8], 1, [1, 1]),
    FragmentTile::new(8, 16, [1, 4], 2, [1, 1]),
    FragmentTile::new(8, 16, [4, 1], 2, [2, 1]),
    FragmentTile::new(8, 16, [1, 4], 1, [2, 2]),
    FragmentTile::new(16, 32, [1, 8], 1, [1, 1]),
    FragmentTile::new(16, 32, [2, 2], 1, [1, 1]),
    FragmentTile::new(16, 32, [4, 1], 2, [1, 1]),
    FragmentTile::new(16, 32, [1, 8], 2, [1, 1]),
    FragmentTile::new(16, 16, [1, 4], 1, [1, 1]),
    FragmentTile::new(16, 32, [1, 4], 2, [1, 1]),
    FragmentTile::new(32, 32, [1, 8], 1, [1, 1]),
    FragmentTile::new(32, 32, [4, 1], 1, [3, 1]),
    FragmentTile::new(32, 64, [4, 1], 1, [2, 2]),
    FragmentTile::new(32, 32, [1, 4], 1, [3, 1]),
    FragmentTile::new(32, 32, [1, 4], 2, [1, 1]),
    FragmentTile::new(32, 64, [1, 4], 1, [1, 1]),
    FragmentTile::new(32, 16, [1, 4], 1, [1, 1]),
];

// What the kernel's loop relies on.
const _: () = {
    let mut i = 0;
    while i < TILES.len() {
        let [a, b] = TILES[i].depths;
        assert!(a > 0 && b > 0 && (a.is_multiple_of(b) || b.is_multiple_of(a)));
        i += 1;
    }
};

/// The tiles for passes of `rows` rows: those of the fewest rows that hold them all; none of many.
pub(super) fn tiles(units: Units, rows: usize) -> impl Iterator<Item = FragmentTile> {
    let fits = move |t: &&FragmentTile| t.rows as usize >= rows && t.fits(units);
    let least = TILES.iter().filter(fits).map(|t| t.rows).min();
    TILES.iter().filter(fits).filter(move |t| Some(t.rows) == least).copied()
}
