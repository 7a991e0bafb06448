//! Tiles of products on matrix units. The units' `m`, `n` and `k` are specialization constants of the kernels, and a
//! tile is a multiple of them.

use super::arithmetic::{Operand, modules};
use super::fragment::{self, FragmentTile, InputPath};
use super::shared_tile::SharedTile;
use crate::lower::kernels::Kernel;
#[cfg(doc)]
use crate::lower::kernels::push::LinearMatrixPush;
use crate::lower::limits::MAX_GROUPS;
use crate::lower::units::MatrixUnits;
use crate::model::WeightFormat;

/// The kernel of a product, and a workgroup's tile in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum MatrixShape {
    /// The kernel `linear_matrix`: weights and inputs go through shared memory.
    Shared(SharedTile),
    /// The kernel `linear_fragment`: weights go from memory to registers.
    Fragment(FragmentTile),
}

impl MatrixShape {
    /// The number of rows and of outputs in a workgroup's tile.
    pub fn area(self) -> [u32; 2] {
        match self {
            MatrixShape::Shared(t) => [t.rows, t.outputs],
            MatrixShape::Fragment(t) => [t.rows, t.subgroups * t.outputs],
        }
    }

    /// The number of inputs that a workgroup consumes in a step.
    pub fn inputs(self, units: MatrixUnits, format: WeightFormat) -> u32 {
        match self {
            MatrixShape::Shared(t) => t.inputs,
            MatrixShape::Fragment(t) => t.inputs(units.row_lanes.unwrap_or(1), format),
        }
    }

    /// The tile, if it is a fragment with direct inputs.
    fn direct(self) -> Option<FragmentTile> {
        match self {
            MatrixShape::Fragment(t) if matches!(t.inputs, InputPath::Direct { .. }) => Some(t),
            _ => None,
        }
    }
}

/// The additional work of a product on matrix units.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MatrixVariant {
    /// A product without additional work.
    Plain,
    /// Gate and up in one product, which writes their gated GELU in F16Block.
    Gated,
    /// A product whose inputs are in the layout F16Block.
    Blocks,
}

/// The division of a product on matrix units.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct MatrixTile {
    /// The types of the operands.
    pub operand: Operand,
    /// The kernel, and the tile that a workgroup computes.
    pub shape: MatrixShape,
    /// The number of workgroups among which the inputs of a tile are divided.
    pub splits: u32,
}

impl MatrixTile {
    /// The pipeline for weights of `format` with rows of `inputs`; `None` for a format without kernels on matrix units.
    /// `role`: one that the tile supports ([`MatrixTile::has`]).
    pub fn kernel(
        self,
        units: MatrixUnits,
        format: WeightFormat,
        inputs: usize,
        role: MatrixVariant,
    ) -> Option<Kernel> {
        let modules = modules(format).matrix.as_ref()?;
        let kernel = match self.shape {
            MatrixShape::Shared(t) => t.kernel(units, self.operand, modules),
            MatrixShape::Fragment(t) => t.kernel(units, format, inputs, modules, role),
        };
        Some(kernel.of_weights(format))
    }

    /// True if the kernel can do the additional work `role` with this tile.
    pub fn has(self, units: MatrixUnits, role: MatrixVariant) -> bool {
        let direct = self.shape.direct();
        match role {
            MatrixVariant::Plain => true,
            MatrixVariant::Gated => self.splits == 1 && direct.is_some_and(|t| t.has_pairs(units)),
            MatrixVariant::Blocks => direct.is_some(),
        }
    }

    /// Matrix products in one unrolled round of a subgroup's loop. A CPU driver's compile time grows with it; tests
    /// skip tiles that would take minutes.
    pub fn unrolled(self, units: MatrixUnits, format: WeightFormat) -> u32 {
        match self.shape {
            MatrixShape::Shared(t) => {
                let k = self.operand.k(units).unwrap_or(units.k);
                let step =
                    (t.subgroup_rows / units.m) * (t.subgroup_outputs / units.n) * (t.inputs / t.input_parts / k);
                self.operand.planes() * step * t.round
            }
            MatrixShape::Fragment(t) => t.unrolled(units, format),
        }
    }

    /// Tiles along `rows` rows and along `outputs` rows of weights.
    fn tiles(self, rows: usize, outputs: usize) -> [u32; 2] {
        let [tile_rows, tile_outputs] = self.shape.area();
        [(rows as u32).div_ceil(tile_rows), (outputs as u32).div_ceil(tile_outputs)]
    }

    /// Workgroups for `rows` rows and `outputs` rows of weights. The row tiles of one weight tile are neighbours in x,
    /// so that its weights are read from memory once.
    pub fn groups(self, rows: usize, outputs: usize) -> [u32; 3] {
        let [rows, outputs] = self.tiles(rows, outputs);
        [rows * self.splits, outputs, 1]
    }

    /// Bytes of [`LinearMatrixPush::parts`] and of [`LinearMatrixPush::arrived`] for `rows` rows and `outputs` outputs.
    pub fn scratch_bytes(self, rows: usize, outputs: usize) -> [u64; 2] {
        if self.splits == 1 {
            return [0, 0];
        }
        let tiles = self.tiles(rows, outputs).map(u64::from).iter().product::<u64>();
        let area = self.shape.area().iter().map(|&n| u64::from(n)).product::<u64>();
        [4 * tiles * u64::from(self.splits) * area, 4 * tiles]
    }
}

/// Tiles for a product of `rows` rows with a matrix `[outputs, inputs]` of `format`, the one expected to be fastest
/// first.
pub fn tiles(
    units: MatrixUnits,
    format: WeightFormat,
    operand: Operand,
    [rows, outputs, inputs]: [usize; 3],
) -> Vec<MatrixTile> {
    // For many rows, tiles of 128 rows and more. For few, the tiles that waste the fewest.
    let ideal = (rows as u32).next_power_of_two().clamp(16, 128).ilog2();
    let apart = |t: &SharedTile| t.rows.min(128).ilog2().abs_diff(ideal);
    let shared = || operand.tiles().iter().filter(|t| t.fits(units, operand));
    let nearest = shared().map(apart).min();
    let shared = shared().filter(|t| Some(apart(t)) == nearest).map(|&t| MatrixShape::Shared(t));
    let fragments = fragment::tiles(units, format, rows).filter(|_| operand == Operand::F16).map(MatrixShape::Fragment);
    let mut out = Vec::new();
    for shape in fragments.chain(shared) {
        for splits in [1, 2, 3] {
            let steps = (inputs as u32).div_ceil(shape.inputs(units, format));
            let tile = MatrixTile { operand, shape, splits };
            let [x, y, _] = tile.groups(rows, outputs);
            if x.max(y) as usize <= MAX_GROUPS && (splits == 1 || steps >= 4 * splits) {
                out.push(tile);
            }
        }
    }
    out
}
