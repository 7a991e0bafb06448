//! Products on matrix units: the tiles that they are cut into, and the kernels. A device's matrices are specialization constants
//! of a kernel, and a tile is a multiple of them.

use crate::gpu::device::units::Units;
use crate::gpu::kernels::{Constants, Kernel, Module, constants};
use crate::gpu::lower::dispatch::{MAX_GROUPS, Push};
use crate::gpu::lower::fragment::{self, FragmentTile};

/// Bytes of shared memory beside the tiles: what common.glsl declares, and flags.
pub(crate) const SHARED_REST: u32 = 1024 + 16;

/// What `linear_matrix` multiplies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum Operands {
    /// f16: inputs in half form, weights widened.
    Half,
    /// Signed bytes: inputs in bytes form, weights as they are; two products make one.
    Bytes,
}

impl Operands {
    /// Columns of A, where `units` can multiply these.
    fn k(self, units: Units) -> Option<u32> {
        match self {
            Operands::Half => Some(units.k),
            Operands::Bytes => units.bytes_k,
        }
    }

    /// Products, and planes of inputs, that make one.
    fn planes(self) -> u32 {
        match self {
            Operands::Half => 1,
            Operands::Bytes => 2,
        }
    }

    fn element_bytes(self) -> u32 {
        match self {
            Operands::Half => 2,
            Operands::Bytes => 1,
        }
    }

    fn tiles(self) -> &'static [LinearTile] {
        match self {
            Operands::Half => LINEAR_TILES,
            Operands::Bytes => BYTES_TILES,
        }
    }
}

/// How a workgroup of `linear_matrix` cuts its product.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct LinearTile {
    /// Rows of x of a workgroup's tile.
    pub rows: u32,
    /// Outputs of a workgroup's tile.
    pub outputs: u32,
    /// Inputs of a step, a multiple of 16.
    pub inputs: u32,
    /// Rows of a subgroup's part.
    pub subgroup_rows: u32,
    /// Outputs of a subgroup's part.
    pub subgroup_outputs: u32,
    /// Subgroups that share an output, each with its part of a step's inputs.
    pub input_parts: u32,
    /// Steps of a round of the loop, a multiple of the depth.
    pub round: u32,
    /// Steps that are on their way from memory, at least one.
    pub depth: u32,
}

impl LinearTile {
    const fn new(tile: [u32; 3], part: [u32; 2], input_parts: u32, [round, depth]: [u32; 2]) -> LinearTile {
        let [rows, outputs, inputs] = tile;
        let [subgroup_rows, subgroup_outputs] = part;
        LinearTile { rows, outputs, inputs, subgroup_rows, subgroup_outputs, input_parts, round, depth }
    }

    fn subgroups(self) -> u32 {
        self.input_parts * (self.rows / self.subgroup_rows) * (self.outputs / self.subgroup_outputs)
    }

    /// Bytes of shared memory on a device with `units`.
    pub fn shared_bytes(self, units: Units, operands: Operands) -> u32 {
        let row = self.inputs * operands.element_bytes() + 16;
        let step = (operands.planes() * self.rows + self.outputs) * row;
        let stage = self.subgroups() * units.m * self.subgroup_outputs * 4;
        step.max(stage) + SHARED_REST
    }

    fn fits(self, units: Units, operands: Operands) -> bool {
        let sums = operands.planes() * self.subgroup_rows * self.subgroup_outputs;
        self.subgroup_rows.is_multiple_of(units.m)
            && self.subgroup_outputs.is_multiple_of(units.n)
            && operands.k(units).is_some_and(|k| (self.inputs / self.input_parts).is_multiple_of(k))
            && self.shared_bytes(units, operands) <= units.shared_bytes
            && self.subgroups() * units.subgroup <= units.max_workgroup
            // Each of its loads is of one part of a row.
            && (self.subgroups() * units.subgroup).is_multiple_of(self.inputs * operands.element_bytes() / 16)
            && 4 * sums / units.subgroup <= units.sum_bytes
            && self.round <= units.unrolled_steps
    }

    /// Module and constants.
    fn kernel(self, units: Units, operands: Operands) -> (Module, Constants) {
        let constants = constants([
            self.rows,
            self.outputs,
            self.inputs,
            self.subgroup_rows,
            self.subgroup_outputs,
            self.input_parts,
            self.round,
            0,
            self.depth,
            units.m,
            units.n,
            operands.k(units).unwrap_or(units.k),
        ]);
        let module = match (operands, units.bytes_k) {
            (Operands::Half, _) => Module::LinearMatrixInt8,
            (Operands::Bytes, Some(8)) => Module::LinearBytesNarrowInt8,
            (Operands::Bytes, _) => Module::LinearBytesInt8,
        };
        (module, constants)
    }

    /// The tile as text: `rows x outputs x inputs`, the subgroup's part, input parts, round and depth.
    pub fn name(self) -> String {
        let LinearTile { rows, outputs, inputs, subgroup_rows, subgroup_outputs, input_parts, round, depth } = self;
        format!("{rows}x{outputs}x{inputs}/{subgroup_rows}x{subgroup_outputs}/{input_parts} r{round}d{depth}")
    }
}

/// The tiles that measured best on an H200, of 128 rows and more, 64, 32 and 16; and of each number of rows one that fits
/// the shared memory of any device.
#[rustfmt::skip]
const LINEAR_TILES: &[LinearTile] = &[
    LinearTile::new([128, 192, 64], [64, 48], 1, [2, 1]),
    LinearTile::new([128, 256, 32], [64, 64], 1, [2, 2]),
    LinearTile::new([192, 128, 64], [48, 64], 1, [2, 2]),
    LinearTile::new([128, 128, 64], [64, 32], 1, [2, 2]),
    LinearTile::new([128, 64, 32], [16, 32], 1, [1, 1]),
    LinearTile::new([64, 128, 64], [32, 32], 1, [2, 2]),
    LinearTile::new([64, 64, 128], [32, 32], 2, [2, 2]),
    LinearTile::new([64, 128, 64], [32, 32], 1, [1, 1]),
    LinearTile::new([64, 64, 32], [16, 32], 1, [1, 1]),
    LinearTile::new([32, 64, 128], [32, 32], 4, [3, 3]),
    LinearTile::new([32, 128, 128], [32, 32], 2, [3, 3]),
    LinearTile::new([32, 128, 128], [32, 64], 4, [2, 2]),
    LinearTile::new([32, 128, 64], [32, 32], 1, [3, 3]),
    LinearTile::new([32, 64, 32], [16, 16], 1, [1, 1]),
    LinearTile::new([16, 64, 256], [16, 64], 8, [2, 2]),
    LinearTile::new([16, 64, 128], [16, 16], 2, [3, 3]),
    LinearTile::new([16, 64, 128], [16, 64], 4, [3, 3]),
    LinearTile::new([16, 64, 128], [16, 32], 2, [3, 3]),
    LinearTile::new([16, 64, 64], [16, 16], 1, [1, 1]),
];

/// Tiles of products of bytes. A row of inputs is two, and a sum too: tiles are wider than they are high, and only of few
/// rows, where weights bound them, are they worth the second product.
#[rustfmt::skip]
const BYTES_TILES: &[LinearTile] = &[
    LinearTile::new([64, 128, 64], [32, 64], 1, [1, 1]),
    LinearTile::new([64, 128, 128], [32, 64], 2, [1, 1]),
    LinearTile::new([64, 128, 64], [32, 32], 1, [1, 1]),
    LinearTile::new([64, 64, 128], [32, 32], 2, [2, 2]),
    LinearTile::new([64, 64, 32], [16, 16], 1, [1, 1]),
    LinearTile::new([32, 64, 128], [16, 32], 2, [3, 3]),
    LinearTile::new([32, 64, 256], [32, 32], 4, [1, 1]),
    LinearTile::new([32, 128, 64], [32, 32], 1, [3, 3]),
    LinearTile::new([32, 128, 128], [32, 32], 2, [2, 2]),
    LinearTile::new([32, 64, 128], [32, 32], 2, [3, 3]),
    LinearTile::new([32, 64, 32], [16, 16], 1, [1, 1]),
    LinearTile::new([16, 64, 128], [16, 32], 2, [2, 2]),
    LinearTile::new([16, 32, 256], [16, 16], 4, [3, 3]),
    LinearTile::new([16, 128, 128], [16, 64], 4, [3, 3]),
    LinearTile::new([16, 128, 128], [16, 64], 2, [2, 2]),
    LinearTile::new([16, 64, 128], [16, 32], 2, [3, 3]),
    LinearTile::new([16, 64, 128], [16, 64], 4, [4, 4]),
    LinearTile::new([16, 128, 64], [16, 32], 1, [4, 4]),
    LinearTile::new([16, 64, 64], [16, 16], 1, [1, 1]),
];

// What the kernel's loop relies on.
const _: () = {
    let mut i = 0;
    while i < LINEAR_TILES.len() + BYTES_TILES.len() {
        let t = if i < LINEAR_TILES.len() { LINEAR_TILES[i] } else { BYTES_TILES[i - LINEAR_TILES.len()] };
        assert!(t.depth > 0 && t.round.is_multiple_of(t.depth));
        i += 1;
    }
};

/// How a workgroup cuts its product, and which kernel that is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum Tile {
    /// `linear_matrix`: through shared memory.
    Shared(LinearTile),
    /// `linear_fragment`: weights from memory to registers.
    Fragment(FragmentTile),
}

impl Tile {
    /// Rows and outputs.
    pub fn area(self) -> [u32; 2] {
        match self {
            Tile::Shared(t) => [t.rows, t.outputs],
            Tile::Fragment(t) => [t.rows, t.subgroups * t.outputs],
        }
    }

    /// Inputs of a step.
    fn inputs(self, units: Units) -> u32 {
        match self {
            Tile::Shared(t) => t.inputs,
            Tile::Fragment(t) => t.inputs(units.sharers.unwrap_or(1)),
        }
    }

    /// Subgroups of a workgroup.
    fn subgroups(self) -> u32 {
        match self {
            Tile::Shared(t) => t.subgroups(),
            Tile::Fragment(t) => t.subgroups(),
        }
    }

    /// The tile as text.
    pub fn name(self) -> String {
        match self {
            Tile::Shared(t) => t.name(),
            Tile::Fragment(t) => t.name(),
        }
    }
}

/// One way to run a matrix product on matrix units.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct Linear {
    /// What is multiplied.
    pub operands: Operands,
    /// The tile.
    pub tile: Tile,
    /// Workgroups that share a tile's inputs.
    pub splits: u32,
}

impl Linear {
    /// The pipeline.
    pub fn kernel(self, units: Units) -> Kernel {
        let (module, constants) = match self.tile {
            Tile::Shared(t) => t.kernel(units, self.operands),
            Tile::Fragment(t) => t.kernel(units),
        };
        Kernel { module, workgroup: self.tile.subgroups() * units.subgroup, constants }
    }

    /// Products of matrices that a subgroup's round of the loop is unrolled to: a CPU driver's time to compile grows with it, and
    /// tests leave out what would take minutes.
    pub fn unrolled(self, units: Units) -> u32 {
        match self.tile {
            Tile::Shared(t) => {
                let k = self.operands.k(units).unwrap_or(units.k);
                let step =
                    (t.subgroup_rows / units.m) * (t.subgroup_outputs / units.n) * (t.inputs / t.input_parts / k);
                self.operands.planes() * step * t.round
            }
            Tile::Fragment(t) => t.unrolled(units),
        }
    }

    /// Workgroups for `rows` rows and `outputs` outputs. All row tiles of a weight tile run together, so that its bytes
    /// are read from memory once.
    pub fn groups(self, rows: usize, outputs: usize) -> [u32; 3] {
        let [tile_rows, tile_outputs] = self.tile.area();
        [(rows as u32).div_ceil(tile_rows) * self.splits, (outputs as u32).div_ceil(tile_outputs), 1]
    }

    /// Bytes of [`LinearPush::parts`] and of [`LinearPush::arrived`] for `rows` rows and `outputs` outputs.
    pub fn scratch_bytes(self, rows: usize, outputs: usize) -> [u64; 2] {
        if self.splits == 1 {
            return [0, 0];
        }
        let [x, y, _] = self.groups(rows, outputs).map(u64::from);
        let tiles = x / u64::from(self.splits) * y;
        let area = self.tile.area().iter().map(|&n| u64::from(n)).product::<u64>();
        [4 * tiles * u64::from(self.splits) * area, 4 * tiles]
    }
}

/// Ways to run a product of `rows` rows with an INT8 matrix `[outputs, inputs]`, the one that should be fastest first.
pub fn linear_variants(units: Units, operands: Operands, rows: usize, outputs: usize, inputs: usize) -> Vec<Linear> {
    // Tiles of 128 rows and more for many rows; for few, those that waste the fewest.
    let ideal = (rows as u32).next_power_of_two().clamp(16, 128).ilog2();
    let apart = |t: &LinearTile| t.rows.min(128).ilog2().abs_diff(ideal);
    let shared = || operands.tiles().iter().filter(|t| t.fits(units, operands));
    let nearest = shared().map(apart).min();
    let shared = shared().filter(|t| Some(apart(t)) == nearest).map(|&t| Tile::Shared(t));
    let fragments = fragment::tiles(units, rows).filter(|_| operands == Operands::Half).map(Tile::Fragment);
    let mut out = Vec::new();
    for tile in fragments.chain(shared) {
        for splits in [1, 2, 3] {
            let steps = (inputs as u32).div_ceil(tile.inputs(units));
            let linear = Linear { operands, tile, splits };
            let [x, y, _] = linear.groups(rows, outputs);
            if x.max(y) as usize <= MAX_GROUPS && (splits == 1 || steps >= 4 * splits) {
                out.push(linear);
            }
        }
    }
    out
}

/// Operands of `linear_matrix` and `linear_fragment`; addresses are multiples of 64 unless said otherwise.
#[derive(Debug, Clone, Copy)]
pub struct LinearPush {
    /// The step state.
    pub state: u64,
    /// INT8 `[outputs, inputs]`; a multiple of 16.
    pub weight: u64,
    /// f32 `[outputs]`; a multiple of 4.
    pub scales: u64,
    /// `[rows]` in the operands' form: 2 bytes for each of the inputs padded to 32, then one f32 scale.
    pub x: u64,
    /// f32 `[rows, out_stride]`; a multiple of 4.
    pub out: u64,
    /// Scratch of [`Linear::scratch_bytes`]; unused without splits.
    pub parts: u64,
    /// Counters, zero before the first run (each run leaves them so); unused without splits.
    pub arrived: u64,
    /// State word that counts the live rows.
    pub which: usize,
    /// Outputs.
    pub outputs: usize,
    /// Inputs, padded to 16.
    pub inputs: usize,
    /// Bytes from row to row of x, a multiple of 64.
    pub x_stride: usize,
    /// Elements from row to row of the output.
    pub out_stride: usize,
    /// [`Linear::splits`].
    pub splits: u32,
}

impl LinearPush {
    /// The push constants.
    pub fn push(&self) -> Push {
        Push::new()
            .address(self.state)
            .address(self.weight)
            .address(self.scales)
            .address(self.x)
            .address(self.out)
            .address(self.parts)
            .address(self.arrived)
            .word(self.which)
            .word(self.outputs)
            .word(self.inputs)
            .word(self.x_stride)
            .word(self.out_stride)
            .word(self.splits as usize)
    }
}

/// One way to run attention on matrix units.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Attend {
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
pub fn attend_variants(units: Units, heads: usize, kv_heads: usize, dim: usize) -> Vec<Attend> {
    let (dim, ratio) = (dim as u32, (heads / kv_heads) as u32);
    if dim > 256 || !dim.is_multiple_of(units.k) || !dim.is_multiple_of(units.n) {
        return Vec::new();
    }
    let shapes = ATTEND_SHAPES.iter().map(|&[keys, subgroups]| {
        let queries = subgroups * units.m;
        // All heads of a KV head share its keys, as many as divide evenly.
        let group = (1..=ratio.min(queries)).rev().find(|g| ratio.is_multiple_of(*g)).unwrap_or(1);
        Attend { dim, keys, subgroups, group }
    });
    shapes.filter(|a| a.fits(units)).collect()
}

impl Attend {
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
    /// `[rows]` in half form: f16 `[heads * dim padded to 32]`, then the f32 scale 1; a multiple of 16.
    pub out: u64,
    /// State word of row 0's position; the other rows follow it.
    pub position: usize,
    /// State word of row 0's sequence, that of every row.
    pub sequence: usize,
    /// Query heads.
    pub heads: usize,
    /// KV heads.
    pub kv_heads: usize,
    /// [`Attend::group`].
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
