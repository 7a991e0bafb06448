//! Tiles of `linear_matrix`, which passes weights and inputs through shared memory.

use super::arithmetic::{MatrixModules, Operand};
use crate::lower::kernels::Kernel;
use crate::lower::kernels::constants::LinearMatrixConstants;
use crate::lower::units::MatrixUnits;

/// Bytes of shared memory beside the tiles: common.glsl's declarations, and flags.
pub(super) const SHARED_REST: u32 = 1024 + 16;

impl Operand {
    /// Columns of A; `None` if `units` cannot multiply these types.
    pub(super) fn k(self, units: MatrixUnits) -> Option<u32> {
        match self {
            Operand::F16 => Some(units.k),
            Operand::S8 => units.s8_k,
        }
    }

    /// Planes of the inputs, each with a matrix product of its own.
    pub(super) fn planes(self) -> u32 {
        match self {
            Operand::F16 => 1,
            Operand::S8 => 2,
        }
    }

    fn element_bytes(self) -> u32 {
        match self {
            Operand::F16 => 2,
            Operand::S8 => 1,
        }
    }

    pub(super) fn tiles(self) -> &'static [SharedTile] {
        match self {
            Operand::F16 => F16_TILES,
            Operand::S8 => S8_TILES,
        }
    }
}

/// How the kernel `linear_matrix` divides a product among workgroups and subgroups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct SharedTile {
    /// The number of rows of x in a workgroup's tile.
    pub rows: u32,
    /// The number of outputs in a workgroup's tile.
    pub outputs: u32,
    /// Inputs of a step, a multiple of 16.
    pub inputs: u32,
    /// The number of rows that a subgroup computes.
    pub subgroup_rows: u32,
    /// The number of outputs that a subgroup computes.
    pub subgroup_outputs: u32,
    /// The number of subgroups that share an output: each sums over its own range of a step's inputs.
    pub input_parts: u32,
    /// Steps that the loop is unrolled to, a multiple of `depth`.
    pub round: u32,
    /// Steps in flight from memory, at least one.
    pub depth: u32,
}

impl SharedTile {
    pub(super) const fn new(tile: [u32; 3], part: [u32; 2], input_parts: u32, [round, depth]: [u32; 2]) -> SharedTile {
        let [rows, outputs, inputs] = tile;
        let [subgroup_rows, subgroup_outputs] = part;
        SharedTile { rows, outputs, inputs, subgroup_rows, subgroup_outputs, input_parts, round, depth }
    }

    pub(super) fn subgroups(self) -> u32 {
        self.input_parts * (self.rows / self.subgroup_rows) * (self.outputs / self.subgroup_outputs)
    }

    /// Bytes of shared memory on a device with `units`.
    pub fn shared_bytes(self, units: MatrixUnits, operand: Operand) -> u32 {
        let row = self.inputs * operand.element_bytes() + 16;
        let step = (operand.planes() * self.rows + self.outputs) * row;
        let stage = self.subgroups() * units.m * self.subgroup_outputs * 4;
        step.max(stage) + SHARED_REST
    }

    pub(super) fn fits(self, units: MatrixUnits, operand: Operand) -> bool {
        let sums = operand.planes() * self.subgroup_rows * self.subgroup_outputs;
        self.subgroup_rows.is_multiple_of(units.m)
            && self.subgroup_outputs.is_multiple_of(units.n)
            && operand.k(units).is_some_and(|k| (self.inputs / self.input_parts).is_multiple_of(k))
            && self.shared_bytes(units, operand) <= units.shared_bytes
            && self.subgroups() * units.subgroup <= units.max_workgroup
            // Each turn of loads covers whole rows.
            && (self.subgroups() * units.subgroup).is_multiple_of(self.inputs * operand.element_bytes() / 16)
            && 4 * sums / units.subgroup <= units.sum_bytes
            && self.round <= units.unrolled_steps
    }

    /// The kernel for this tile.
    pub(super) fn kernel(self, units: MatrixUnits, operand: Operand, modules: &MatrixModules) -> Kernel {
        let constants = LinearMatrixConstants {
            bm: self.rows,
            bn: self.outputs,
            bk: self.inputs,
            wm: self.subgroup_rows,
            wn: self.subgroup_outputs,
            ksplit: self.input_parts,
            round: self.round,
            depth: self.depth,
            m: units.m,
            n: units.n,
            k: operand.k(units).unwrap_or(units.k),
        };
        let module = match (operand, modules.shared_s8, units.s8_k) {
            (Operand::F16, ..) | (_, None, _) => modules.shared,
            (Operand::S8, Some([narrow, _]), Some(8)) => narrow,
            (Operand::S8, Some([_, wide]), _) => wide,
        };
        Kernel::new(module, self.subgroups() * units.subgroup, constants)
    }
}

/// The tiles that measured best on an H200, for 128 rows and more, 64, 32 and 16. One tile of each row count fits the
/// shared memory of any device.
#[rustfmt::skip]
const F16_TILES: &[SharedTile] = &[
    SharedTile::new([128, 192, 64], [64, 48], 1, [2, 1]),
    SharedTile::new([128, 256, 32], [64, 64], 1, [2, 2]),
    SharedTile::new([192, 128, 64], [48, 64], 1, [2, 2]),
    SharedTile::new([128, 128, 64], [64, 32], 1, [2, 2]),
    SharedTile::new([128, 64, 32], [16, 32], 1, [1, 1]),
    SharedTile::new([64, 128, 64], [32, 32], 1, [2, 2]),
    SharedTile::new([64, 64, 128], [32, 32], 2, [2, 2]),
    SharedTile::new([64, 128, 64], [32, 32], 1, [1, 1]),
    SharedTile::new([64, 64, 32], [16, 32], 1, [1, 1]),
    SharedTile::new([32, 64, 128], [32, 32], 4, [3, 3]),
    SharedTile::new([32, 128, 128], [32, 32], 2, [3, 3]),
    SharedTile::new([32, 128, 128], [32, 64], 4, [2, 2]),
    SharedTile::new([32, 128, 64], [32, 32], 1, [3, 3]),
    SharedTile::new([32, 64, 32], [16, 16], 1, [1, 1]),
    SharedTile::new([16, 64, 256], [16, 64], 8, [2, 2]),
    SharedTile::new([16, 64, 128], [16, 16], 2, [3, 3]),
    SharedTile::new([16, 64, 128], [16, 64], 4, [3, 3]),
    SharedTile::new([16, 64, 128], [16, 32], 2, [3, 3]),
    SharedTile::new([16, 64, 64], [16, 16], 1, [1, 1]),
];

/// Tiles of s8 products. The two planes double the inputs and the sums, so tiles are wider than they are high. The
/// second product pays off only for few rows, where reading weights is the bottleneck.
#[rustfmt::skip]
const S8_TILES: &[SharedTile] = &[
    SharedTile::new([64, 128, 64], [32, 64], 1, [1, 1]),
    SharedTile::new([64, 128, 128], [32, 64], 2, [1, 1]),
    SharedTile::new([64, 128, 64], [32, 32], 1, [1, 1]),
    SharedTile::new([64, 64, 128], [32, 32], 2, [2, 2]),
    SharedTile::new([64, 64, 32], [16, 16], 1, [1, 1]),
    SharedTile::new([32, 64, 128], [16, 32], 2, [3, 3]),
    SharedTile::new([32, 64, 256], [32, 32], 4, [1, 1]),
    SharedTile::new([32, 128, 64], [32, 32], 1, [3, 3]),
    SharedTile::new([32, 128, 128], [32, 32], 2, [2, 2]),
    SharedTile::new([32, 64, 128], [32, 32], 2, [3, 3]),
    SharedTile::new([32, 64, 32], [16, 16], 1, [1, 1]),
    SharedTile::new([16, 64, 128], [16, 32], 2, [2, 2]),
    SharedTile::new([16, 32, 256], [16, 16], 4, [3, 3]),
    SharedTile::new([16, 128, 128], [16, 64], 4, [3, 3]),
    SharedTile::new([16, 128, 128], [16, 64], 2, [2, 2]),
    SharedTile::new([16, 64, 128], [16, 32], 2, [3, 3]),
    SharedTile::new([16, 64, 128], [16, 64], 4, [4, 4]),
    SharedTile::new([16, 128, 64], [16, 32], 1, [4, 4]),
    SharedTile::new([16, 64, 64], [16, 16], 1, [1, 1]),
];

// The kernel's loop needs a round to be a multiple of the depth.
const _: () = {
    let mut i = 0;
    while i < F16_TILES.len() + S8_TILES.len() {
        let t = if i < F16_TILES.len() { F16_TILES[i] } else { S8_TILES[i - F16_TILES.len()] };
        assert!(t.depth > 0 && t.round.is_multiple_of(t.depth));
        i += 1;
    }
};
