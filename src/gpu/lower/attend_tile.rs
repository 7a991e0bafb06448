//! Tiles of attention on matrix units (shaders/attend_matrix.comp).

use super::push::Push;
use super::shared_tile::SHARED_REST;
use crate::gpu::device::units::Units;
use crate::gpu::kernels::{Kernel, Module, constants};

/// One way to run attention on matrix units.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AttendTile {
    /// Elements of a head.
    pub dim: u32,
    /// Keys of a tile.
    pub keys: u32,
    /// Subgroups of a workgroup; each takes as many queries as a matrix has rows.
    pub subgroups: u32,
    /// Query heads of a workgroup, all of one KV head.
    pub group: u32,
}

/// Shapes of attention workgroups: keys of a tile, subgroups; the best first (measured on an H200).
const ATTEND_SHAPES: &[[u32; 2]] = &[[32, 8], [32, 4], [48, 4], [16, 8], [16, 4]];

/// Ways to run attention of `heads` query heads over `kv_heads` KV heads of `dim` elements, the one that should be fastest
/// first; none where a head is no whole number of matrices or more than 256 elements.
pub fn tiles(units: Units, heads: usize, kv_heads: usize, dim: usize) -> Vec<AttendTile> {
    let (dim, ratio) = (dim as u32, (heads / kv_heads) as u32);
    if dim > 256 || !dim.is_multiple_of(units.k) || !dim.is_multiple_of(units.n) {
        return Vec::new();
    }
    let shapes = ATTEND_SHAPES.iter().map(|&[keys, subgroups]| {
        let queries = subgroups * units.m;
        // All heads of a KV head share its keys, as many as divide evenly.
        let group = (1..=ratio.min(queries)).rev().find(|g| ratio.is_multiple_of(*g)).unwrap_or(1);
        AttendTile { dim, keys, subgroups, group }
    });
    shapes.filter(|a| a.fits(units)).collect()
}

impl AttendTile {
    fn queries(self, units: Units) -> u32 {
        self.subgroups * units.m
    }

    /// Bytes of shared memory on a device with `units`.
    pub fn shared_bytes(self, units: Units) -> u32 {
        let queries = self.queries(units);
        let row = 2 * (self.dim + 8);
        let tiles = 2 * self.keys * row + queries * 4 * (self.keys + 8);
        tiles.max(queries * row) + 4 * queries + SHARED_REST
    }

    fn fits(self, units: Units) -> bool {
        // Each invocation takes whole vectors of its row's scores.
        let lanes = units.subgroup / units.m;
        units.subgroup.is_multiple_of(units.m)
            && lanes.is_power_of_two()
            && self.keys.is_multiple_of(4 * lanes)
            && self.keys.is_multiple_of(units.n)
            && self.keys.is_multiple_of(units.k)
            && self.shared_bytes(units) <= units.shared_bytes
            && self.subgroups * units.subgroup <= units.max_workgroup
    }

    /// The pipeline.
    pub fn kernel(self, units: Units) -> Kernel {
        let constants = constants([self.dim, self.keys, units.subgroup, units.m, units.n, units.k]);
        Kernel { module: Module::AttendMatrixF16, workgroup: self.subgroups * units.subgroup, constants }
    }

    /// Workgroups for `rows` rows of `heads` heads.
    pub fn groups(self, units: Units, rows: usize, heads: usize) -> [u32; 3] {
        [heads as u32 / self.group, (rows as u32).div_ceil(self.queries(units) / self.group), 1]
    }
}

/// Operands of `attend_matrix`.
#[derive(Debug, Clone, Copy)]
pub struct AttendPush {
    /// The step state.
    pub state: u64,
    /// f32 `[rows, q_stride]`, normed and rotated; a multiple of 16.
    pub q: u64,
    /// f16 `[sequence][K, V][kv_heads][capacity][dim]`; a multiple of 16.
    pub ring: u64,
    /// `[rows]` in F16Row layout: f16 `[heads * dim padded to 32]`, then the f32 scale 1; a multiple of 16.
    pub out: u64,
    /// State word of row 0's position; the other rows follow it.
    pub position: usize,
    /// State word of row 0's sequence, that of every row.
    pub sequence: usize,
    /// Query heads.
    pub heads: usize,
    /// KV heads.
    pub kv_heads: usize,
    /// [`AttendTile::group`].
    pub group: u32,
    /// Elements from row to row of q, a multiple of 4.
    pub q_stride: usize,
    /// Bytes from row to row of the output, a multiple of 16.
    pub out_stride: usize,
    /// Entries of the ring.
    pub capacity: usize,
    /// Positions in view, or `None` for all.
    pub window: Option<usize>,
    /// What scores are multiplied by.
    pub scale: f32,
}

impl AttendPush {
    /// The push constants.
    pub fn push(&self) -> Push {
        Push::new()
            .address(self.state)
            .address(self.q)
            .address(self.ring)
            .address(self.out)
            .word(self.position)
            .word(self.sequence)
            .word(self.heads)
            .word(self.kv_heads)
            .word(self.group as usize)
            .word(self.q_stride)
            .word(self.out_stride)
            .word(self.capacity)
            .word(self.window.unwrap_or(0))
            .float(self.scale)
    }
}
