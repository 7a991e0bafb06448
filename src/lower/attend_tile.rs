//! Tiles of attention on matrix units (shaders/attend_matrix.comp).

use super::layout::PRODUCT_SCRATCH;
use super::shared_tile::SHARED_REST;
use crate::lower::kernels::constants::AttendMatrixConstants;
use crate::lower::kernels::{Kernel, Module};
use crate::lower::units::MatrixUnits;
use crate::schedule::step::KvType;

/// How attention on matrix units is divided among workgroups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AttendTile {
    /// The number of elements in a head.
    pub dim: u32,
    /// The number of keys that a workgroup reads at a time.
    pub keys: u32,
    /// Subgroups of a workgroup. `m` queries, the rows of A, take one of them, or four if heads are wide.
    pub subgroups: u32,
    /// Query heads of a workgroup, all of one KV head.
    pub group: u32,
    /// Most workgroups that share the keys of the same queries.
    pub splits: u32,
}

/// Keys are divided among workgroups until a dispatch has this many: about one per processor on the largest GPUs.
const WORKGROUPS: u32 = 128;
/// The most parts into which keys are divided. More take longer to add up.
const MOST_SPLITS: u32 = 8;
/// Most keys of a tile whose keys are divided: with more, AMD's compiler spills registers.
const MOST_KEYS: u32 = 32;
/// Most elements of a head that one subgroup has the queries and sums of. Of wider heads each of `SLICES` has a part: as
/// in the shader.
const NARROW: u32 = 256;
const SLICES: u32 = 4;
/// The most elements that a head may have.
const MOST_ELEMENTS: u32 = 512;

/// `[keys, subgroups]` of a workgroup, best first (measured on an H200).
const ATTEND_SHAPES: &[[u32; 2]] = &[[32, 8], [32, 4], [48, 4], [16, 8], [16, 4]];

/// Tiles for `rows` rows of `heads` query heads over `kv_heads` KV heads of `dim` elements, the best first; then tiles
/// whose keys are divided among workgroups, if there are few enough rows. Empty if none fits `units`, or if `dim` is
/// more than 512 or its parts for a subgroup are no multiple of the units' `n` and `k`.
pub fn tiles(units: MatrixUnits, rows: usize, heads: usize, kv_heads: usize, dim: usize) -> Vec<AttendTile> {
    let (dim, ratio) = (dim as u32, (heads / kv_heads) as u32);
    let slices = slices(dim);
    if dim > MOST_ELEMENTS || !dim.is_multiple_of(slices * units.k) || !dim.is_multiple_of(slices * units.n) {
        return Vec::new();
    }
    let shapes = ATTEND_SHAPES.iter().map(|&[keys, subgroups]| {
        let queries = subgroups / slices * units.m;
        // The largest divisor of the number of heads that share a KV head.
        let group = (1..=ratio.min(queries)).rev().find(|g| ratio.is_multiple_of(*g)).unwrap_or(1);
        AttendTile { dim, keys, subgroups, group, splits: 1 }
    });
    let mut all: Vec<AttendTile> = shapes.filter(|a| a.fits(units)).collect();
    let shared: Vec<AttendTile> = all.iter().filter_map(|tile| tile.shared(units, rows, heads)).collect();
    all.extend(shared);
    all
}

/// Subgroups that share the queries of heads of `dim` elements.
fn slices(dim: u32) -> u32 {
    if dim > NARROW { SLICES } else { 1 }
}

impl AttendTile {
    /// The tile with its keys divided among as many workgroups as fill a large device and have room in the scratch
    /// memory.
    fn shared(self, units: MatrixUnits, rows: usize, heads: usize) -> Option<AttendTile> {
        let [x, y, _] = self.groups(units, rows, heads);
        let fits = |splits: &u32| {
            let bytes = AttendTile { splits: *splits, ..self }.scratch_bytes(units, rows, heads);
            bytes.iter().zip(PRODUCT_SCRATCH).all(|(&bytes, most)| bytes <= most)
        };
        let splits =
            (2..=(WORKGROUPS / (x * y)).min(MOST_SPLITS)).rev().find(fits).filter(|_| self.keys <= MOST_KEYS)?;
        Some(AttendTile { splits, ..self })
    }

    /// Bytes of [`AttendMatrixPush::parts`](crate::lower::kernels::push::AttendMatrixPush::parts) and of its `arrived`.
    pub fn scratch_bytes(self, units: MatrixUnits, rows: usize, heads: usize) -> [u64; 2] {
        if self.splits == 1 {
            return [0, 0];
        }
        let [x, y, splits] = self.groups(units, rows, heads).map(u64::from);
        let queries = y * u64::from(self.queries(units) / self.group) * heads as u64;
        [4 * splits * queries * u64::from(self.dim + 4), 4 * x * y]
    }

    fn queries(self, units: MatrixUnits) -> u32 {
        self.subgroups / slices(self.dim) * units.m
    }

    /// True if queries are read from shared memory for each tile, because wide heads leave no registers for them.
    fn reloads_queries(self, units: MatrixUnits) -> bool {
        4 * units.m * self.dim / slices(self.dim) / units.subgroup > units.sum_bytes
    }

    /// Bytes of shared memory on a device with `units`.
    pub fn shared_bytes(self, units: MatrixUnits) -> u32 {
        let queries = self.queries(units);
        let row = 2 * (self.dim + 8);
        // With slices, values take the place of their keys.
        let stages = if slices(self.dim) > 1 { 1 } else { 2 };
        let scores = self.subgroups * units.m * 4 * (self.keys + 8);
        let (tiles, of_queries) = (stages * self.keys * row + scores, queries * row);
        let both = if self.reloads_queries(units) { tiles + of_queries } else { tiles.max(of_queries) };
        both + 4 * queries + SHARED_REST
    }

    fn fits(self, units: MatrixUnits) -> bool {
        // Each lane processes whole vectors of its row's scores.
        let slices = slices(self.dim);
        let lanes = units.subgroup * slices / units.m;
        // The bytes of a tile's keys that a lane holds, on their way to shared memory. With slices, registers have the
        // queries and as many bytes of sums beside them.
        let held = 2 * self.keys * self.dim / (self.subgroups * units.subgroup);
        let has_registers = slices == 1 || self.reloads_queries(units) || held <= units.sum_bytes / 2;
        units.subgroup.is_multiple_of(units.m)
            && units.m.is_multiple_of(slices)
            && lanes.is_power_of_two()
            && has_registers
            && self.keys.is_multiple_of(4 * lanes)
            && self.keys.is_multiple_of(units.n)
            && self.keys.is_multiple_of(units.k)
            && self.shared_bytes(units) <= units.shared_bytes
            && self.subgroups * units.subgroup <= units.max_workgroup
    }

    /// The pipeline, over a cache of two-byte elements of type `element`.
    pub fn kernel(self, units: MatrixUnits, element: KvType) -> Kernel {
        let MatrixUnits { subgroup, m, n, k, .. } = units;
        let divided = u32::from(self.splits > 1);
        let constants = AttendMatrixConstants { dim: self.dim, kt: self.keys, subgroup, m, n, k, divided };
        let module = match (element, self.reloads_queries(units)) {
            (KvType::Bf16, true) => Module::AttendMatrixReloadBf16,
            (KvType::Bf16, false) => Module::AttendMatrixBf16,
            (_, true) => Module::AttendMatrixReloadF16,
            (_, false) => Module::AttendMatrixF16,
        };
        Kernel::new(module, self.subgroups * subgroup, constants)
    }

    /// The number of workgroups in x, y and z for `rows` rows of `heads` heads.
    pub fn groups(self, units: MatrixUnits, rows: usize, heads: usize) -> [u32; 3] {
        [heads as u32 / self.group, (rows as u32).div_ceil(self.queries(units) / self.group), self.splits]
    }
}
