//! Tiles of `linear_fragment`, which loads weights from memory straight into fragments.
//!
//! A fragment is the part of a matrix that one lane holds. The device decides which elements a lane holds. The kernel
//! runs only on devices whose neighbouring lanes share each matrix row evenly ([`MatrixUnits::row_lanes`]).

use super::arithmetic::MatrixModules;
use super::matrix::MatrixVariant;
use super::shared_tile::SHARED_REST;
use super::target::DOT_BLOCK;
use crate::lower::kernels::Kernel;
use crate::lower::kernels::constants::{LinearFragmentConstants, LinearFragmentTallConstants};
use crate::lower::units::MatrixUnits;
use crate::model::WeightFormat;
use crate::model::grouped::Scales;

/// How the kernel `linear_fragment` divides a product among workgroups and subgroups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct FragmentTile {
    /// The number of rows of x that a workgroup computes.
    pub rows: u32,
    /// The number of outputs that a subgroup computes.
    pub outputs: u32,
    /// The number of subgroups that are side by side along the outputs.
    pub subgroups: u32,
    /// Steps of weights in flight from memory; steps that share a load count once.
    pub depth: u32,
    /// The path of inputs to the matrix units.
    pub inputs: InputPath,
}

/// The path of inputs to the matrix units.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum InputPath {
    /// Inputs go from memory to registers, as weights do.
    Direct {
        /// The number of subgroups that share an output: each sums over its own range of the inputs.
        parts: u32,
        /// Lane loads (16 bytes) per weight row and step.
        span: u32,
    },
    /// Inputs go through shared memory.
    Shared {
        /// The number of subgroups among which the rows are divided.
        row_parts: u32,
        /// Steps that shared memory holds, one or two. This or the weights' `depth` must divide the other.
        stages: u32,
    },
}

impl FragmentTile {
    pub(super) const fn direct(rows: u32, outputs: u32, [subgroups, parts]: [u32; 2], span: u32, depth: u32) -> Self {
        FragmentTile { rows, outputs, subgroups, depth, inputs: InputPath::Direct { parts, span } }
    }

    pub(super) const fn shared(
        rows: u32,
        outputs: u32,
        [subgroups, row_parts]: [u32; 2],
        depth: u32,
        stages: u32,
    ) -> Self {
        FragmentTile { rows, outputs, subgroups, depth, inputs: InputPath::Shared { row_parts, stages } }
    }

    /// The tile with a single step of inputs in shared memory, for devices with little of it.
    fn in_one_stage(self) -> Self {
        match self.inputs {
            InputPath::Shared { row_parts, .. } => {
                FragmentTile { inputs: InputPath::Shared { row_parts, stages: 1 }, ..self }
            }
            InputPath::Direct { .. } => self,
        }
    }

    /// The tile with the suitable number of steps of inputs in shared memory: one if two do not fit, and one for
    /// weights with scales of groups and more than 32 rows in workgroups of up to four subgroups. Two such workgroups
    /// share a processor and are short of registers: one step is 2 to 5 % faster (INT4 on an H200; the other formats
    /// are assumed to be similar).
    fn in_stages_for(self, units: MatrixUnits, format: WeightFormat) -> FragmentTile {
        let few_registers = format.grouped().is_some() && self.subgroups() <= 4 && self.rows > 32;
        if self.fits(units, format) && !few_registers { self } else { self.in_one_stage() }
    }

    /// Subgroups that divide the inputs or the rows.
    fn parts(self) -> u32 {
        let (InputPath::Direct { parts, .. } | InputPath::Shared { row_parts: parts, .. }) = self.inputs;
        parts
    }

    /// Steps whose inputs are loaded at once: one from memory, or as many as shared memory holds.
    const fn stages(self) -> u32 {
        match self.inputs {
            InputPath::Direct { .. } => 1,
            InputPath::Shared { stages, .. } => stages,
        }
    }

    /// The number of subgroups in a workgroup.
    pub fn subgroups(self) -> u32 {
        self.subgroups * self.parts()
    }

    /// The number of rows that a subgroup computes.
    fn subgroup_rows(self) -> u32 {
        match self.inputs {
            InputPath::Direct { .. } => self.rows,
            InputPath::Shared { row_parts, .. } => self.rows / row_parts,
        }
    }

    /// Lane loads per weight row, for the steps that share them. `row_lanes`: lanes per matrix row.
    fn span(self, row_lanes: u32, format: WeightFormat) -> u32 {
        match self.inputs {
            InputPath::Direct { span, .. } => span,
            InputPath::Shared { .. } => (STEP / (row_lanes * format.per_load() as u32)).max(1),
        }
    }

    /// Steps that share a load of weights: two if a load has 32 elements and one load of all lanes covers more than
    /// [`STEP`] inputs, else one.
    fn halves(self, row_lanes: u32, format: WeightFormat) -> u32 {
        let is_shared = matches!(self.inputs, InputPath::Shared { .. });
        let per_load = format.per_load();
        1 + u32::from(is_shared && per_load > DOT_BLOCK && row_lanes * per_load as u32 > STEP)
    }

    /// Whether [`BATCH`] scales of a row of `inputs` weights come through shared memory together, instead of each with
    /// its load of weights. A row has whole batches. While the second half of a batch's last load is multiplied, its
    /// scales are no longer read, and the next batch overwrites them.
    fn in_batches(self, row_lanes: u32, format: WeightFormat, inputs: usize) -> bool {
        let in_step = self.span(row_lanes, format) * row_lanes;
        let has_halves = format.grouped().is_some_and(|grouped| grouped.scales == Scales::Half);
        let suits = has_halves && self.halves(row_lanes, format) == 2 && self.depth == 1;
        suits && inputs.is_multiple_of(BATCH as usize * format.per_load()) && BATCH.is_multiple_of(in_step)
    }

    /// The number of inputs that a subgroup consumes in a step.
    fn step(self, row_lanes: u32, format: WeightFormat) -> u32 {
        self.span(row_lanes, format) * row_lanes * format.per_load() as u32 / self.halves(row_lanes, format)
    }

    /// Inputs per step, over all subgroups that share an output. `row_lanes`: lanes per matrix row.
    pub fn inputs(self, row_lanes: u32, format: WeightFormat) -> u32 {
        let parts = if let InputPath::Direct { parts, .. } = self.inputs { parts } else { 1 };
        parts * self.step(row_lanes, format)
    }

    /// Steps that the loop is unrolled to, if `halves` of them share a load of weights.
    const fn round(self, halves: u32) -> u32 {
        let (weights, inputs) = (self.depth * halves, self.stages());
        if weights > inputs { weights } else { inputs }
    }

    /// Matrix products in one unrolled round of a subgroup's loop.
    pub fn unrolled(self, units: MatrixUnits, format: WeightFormat) -> u32 {
        let row_lanes = units.row_lanes.unwrap_or(1);
        let (step, round) = (self.step(row_lanes, format), self.round(self.halves(row_lanes, format)));
        (self.subgroup_rows() / units.least_n) * (self.outputs / units.m) * (step / units.k) * round
    }

    /// Bytes of shared memory that a workgroup takes.
    fn shared_bytes(self, units: MatrixUnits, row_lanes: u32, format: WeightFormat) -> u32 {
        let step = match self.inputs {
            InputPath::Direct { .. } => 0,
            InputPath::Shared { stages, .. } => stages * self.rows * (2 * self.inputs(row_lanes, format) + 16),
        };
        // Scales lie in shared memory too: with direct inputs one f32 for each of INT8's rows, with shared inputs a
        // batch for each row, if the format has scales of groups. The length of a row is not known here; 0 gives the
        // largest case.
        let of_row = match step {
            0 => 4,
            _ if self.in_batches(row_lanes, format, 0) => 2 * BATCH,
            _ => 0,
        };
        let scales = of_row * self.subgroups * self.outputs;
        step.max(self.subgroups() * self.outputs * units.least_n * 4) + scales + SHARED_REST
    }

    /// True if a device with `units` can run the tile with weights of `format`.
    pub fn fits(self, units: MatrixUnits, format: WeightFormat) -> bool {
        let Some(row_lanes) = units.row_lanes else { return false };
        let workgroup = self.subgroups() * units.subgroup;
        let shared = matches!(self.inputs, InputPath::Shared { .. });
        // One load feeds a whole number of products.
        (format.per_load() as u32).is_multiple_of(units.k / row_lanes)
            && self.subgroup_rows().is_multiple_of(units.least_n)
            && self.outputs.is_multiple_of(units.m)
            && workgroup <= units.max_workgroup
            // Each turn of loads covers whole rows of x.
            && (!shared || workgroup.is_multiple_of(self.inputs(row_lanes, format) / 8))
            && self.shared_bytes(units, row_lanes, format) <= units.shared_bytes
            && 4 * self.subgroup_rows() * self.outputs / units.subgroup <= units.sum_bytes
            && self.unrolled(units, format) <= units.unrolled_steps.saturating_mul(PRODUCTS)
    }

    /// Whether a workgroup's rows of weights are pairs of matrices, of gate and of up, that compute whole blocks of
    /// outputs. The lanes of a row find its largest scale by halving.
    pub(super) fn has_pairs(self, units: MatrixUnits) -> bool {
        let rows = self.subgroups * self.outputs;
        rows.is_multiple_of(2 * units.m) && rows.is_multiple_of(2 * DOT_BLOCK as u32) && rows.is_power_of_two()
    }

    /// The pipeline for weights with rows of `inputs`.
    pub(super) fn kernel(
        self,
        units: MatrixUnits,
        format: WeightFormat,
        inputs: usize,
        modules: &MatrixModules,
        role: MatrixVariant,
    ) -> Kernel {
        let sharers = units.row_lanes.unwrap_or(1);
        let workgroup = self.subgroups() * units.subgroup;
        let FragmentTile { rows: bm, outputs, subgroups: subs_n, depth, .. } = self;
        let (span, halves) = (self.span(sharers, format), self.halves(sharers, format));
        let MatrixUnits { m, least_n: n, k, .. } = units;
        match self.inputs {
            InputPath::Direct { parts, .. } => {
                let [gated, blocks] = [MatrixVariant::Gated, MatrixVariant::Blocks].map(|r| u32::from(role == r));
                let constants = LinearFragmentConstants {
                    bm,
                    outputs,
                    subs_n,
                    parts,
                    span,
                    depth,
                    sharers,
                    m,
                    n,
                    k,
                    gated,
                    blocks,
                };
                Kernel::new(modules.fragment, workgroup, constants)
            }
            InputPath::Shared { row_parts: parts, stages } => {
                let constants = LinearFragmentTallConstants {
                    bm,
                    outputs,
                    subs_n,
                    parts,
                    span,
                    depth,
                    stages,
                    sharers,
                    m,
                    n,
                    k,
                    halves,
                    in_batches: u32::from(self.in_batches(sharers, format, inputs)),
                };
                Kernel::new(modules.fragment_tall, workgroup, constants)
            }
        }
    }
}

/// Inputs of a step through shared memory. A step has more if one load of all lanes covers more, or half of a load with
/// 32 elements does.
const STEP: u32 = 64;
/// f16 scales of groups in a batch, as in shaders/linear_fragment.comp: one load of 16 bytes.
const BATCH: u32 = 8;
/// Products of this kernel that a CPU driver compiles in the time of one `linear_matrix` step. Their elements are
/// inserted one by one, which makes them slow to compile.
const PRODUCTS: u32 = 32;

/// The tiles that measured best on an H200 or an H100, for few rows and for many. The first of each row count suits any product,
/// and the first with pairs suits a gated one: for 8 rows, some of those after it take twice as long with weights of 4 bits.
#[rustfmt::skip]
const TILES: &[FragmentTile] = &[
    FragmentTile::direct(8, 16, [1, 8], 2, 1),
    FragmentTile::direct(8, 32, [1, 4], 2, 1),
    FragmentTile::direct(8, 32, [1, 4], 1, 1),
    FragmentTile::direct(8, 64, [2, 2], 2, 1),
    FragmentTile::direct(8, 32, [1, 8], 2, 1),
    FragmentTile::direct(8, 32, [2, 2], 2, 1),
    FragmentTile::direct(8, 32, [1, 8], 4, 1),
    FragmentTile::direct(8, 16, [1, 8], 1, 1),
    FragmentTile::direct(8, 16, [1, 4], 2, 1),
    FragmentTile::direct(8, 16, [2, 4], 2, 1),
    FragmentTile::direct(16, 32, [1, 8], 1, 1),
    FragmentTile::direct(16, 32, [2, 2], 1, 1),
    FragmentTile::direct(16, 32, [4, 1], 2, 1),
    FragmentTile::direct(16, 32, [1, 8], 2, 1),
    FragmentTile::direct(16, 32, [1, 4], 2, 1),
    FragmentTile::direct(16, 32, [1, 4], 1, 1),
    FragmentTile::direct(16, 32, [2, 4], 1, 1),
    FragmentTile::direct(32, 32, [1, 8], 1, 1),
    FragmentTile::direct(32, 32, [4, 1], 1, 3),
    FragmentTile::direct(32, 32, [4, 1], 1, 1),
    FragmentTile::direct(32, 48, [1, 8], 2, 1),
    FragmentTile::direct(32, 48, [1, 8], 1, 1),
    FragmentTile::direct(32, 64, [1, 8], 1, 1),
    FragmentTile::direct(64, 32, [1, 8], 1, 1),
    FragmentTile::direct(64, 32, [1, 4], 1, 1),
    FragmentTile::direct(64, 48, [1, 8], 1, 1),
    FragmentTile::shared(64, 48, [4, 1], 1, 2),
    FragmentTile::shared(128, 48, [4, 2], 1, 2),
    FragmentTile::shared(128, 32, [8, 1], 1, 2),
    FragmentTile::shared(64, 32, [4, 1], 1, 1),
    FragmentTile::shared(64, 64, [4, 1], 1, 1),
    FragmentTile::shared(32, 32, [8, 1], 2, 1),
    FragmentTile::shared(32, 32, [4, 1], 4, 2),
    FragmentTile::shared(32, 32, [4, 1], 1, 2),
];

// The kernel's loop needs a round to be a multiple of the steps of weights in flight and of the steps of inputs in
// shared memory.
const _: () = {
    let mut i = 0;
    while i < TILES.len() {
        let t = TILES[i];
        let mut halves = 1;
        while halves <= 2 {
            let round = t.round(halves);
            assert!(round.is_multiple_of(t.depth * halves) && round.is_multiple_of(t.stages()));
            halves += 1;
        }
        i += 1;
    }
};

/// The tiles for passes of `rows` rows. With direct inputs: those of the smallest row count ≥ `rows`. With shared
/// inputs: those from `min(rows, 64)` rows up to the next power of two.
pub(super) fn tiles(units: MatrixUnits, format: WeightFormat, rows: usize) -> impl Iterator<Item = FragmentTile> {
    let rows = rows as u32;
    let direct = move |t: &&FragmentTile| {
        matches!(t.inputs, InputPath::Direct { .. }) && t.rows >= rows && t.fits(units, format)
    };
    let least = TILES.iter().filter(direct).map(|t| t.rows).min();
    let direct = TILES.iter().filter(direct).filter(move |t| Some(t.rows) == least);
    let fit = rows.min(64)..=rows.next_power_of_two();
    let shared = move |t: &&FragmentTile| matches!(t.inputs, InputPath::Shared { .. }) && fit.contains(&t.rows);
    let shared = TILES.iter().filter(shared).map(move |t| t.in_stages_for(units, format));
    direct.copied().chain(shared.filter(move |t| t.fits(units, format)))
}
