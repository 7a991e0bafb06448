//! Which kernel computes a linear step: the family, from how many rows share a weight and what the device can do, and
//! within it the variant, from what was measured on the device.

use crate::gpu::device::MAX_WORKGROUP;
use crate::gpu::device::units::Units;
use crate::gpu::kernels::{Kernel, Module, constants};
use crate::gpu::lower::dispatch::{MAX_GROUPS, grid};
use crate::gpu::lower::matrix::{self, Operands};
use crate::model::WeightFormat;
use crate::schedule::build::PRODUCT_SCRATCH;
use crate::schedule::step::Matrix;
use std::collections::{BTreeMap, HashMap};

/// A family of kernels, which computes in one arithmetic. Its variants add in different orders where different numbers of
/// invocations share a row of weights, or workgroups a sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Family {
    /// f32 inputs and sums; weights are widened to f32.
    Float,
    /// Inputs in planes, packed integer dot products.
    Dot,
    /// Inputs in half form, matrix units.
    Matrix,
    /// Inputs in bytes form, matrix units.
    Bytes,
}

/// The form in which a family reads its inputs, as the FORM constant of the kernels that write them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// f32, in the slot itself.
    F32 = 0,
    /// Two int8 planes.
    Planes = 1,
    /// f16 with a scale a row.
    Half = 2,
    /// Two int8 planes with a scale a row.
    Bytes = 3,
}

impl Family {
    /// The form that it reads.
    pub fn form(self) -> Form {
        match self {
            Family::Float => Form::F32,
            Family::Dot => Form::Planes,
            Family::Matrix => Form::Half,
            Family::Bytes => Form::Bytes,
        }
    }
}

/// A linear step as its kernel sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Product {
    /// Output columns: with `gelu` half of the weight's rows.
    pub outputs: usize,
    /// Inputs, padded to 16.
    pub inputs: usize,
    /// Rows of the pass.
    pub rows: usize,
    /// Gate and up in one, with their gated GELU.
    pub gelu: bool,
}

impl Product {
    /// The product of a weight with `rows` rows of inputs.
    pub fn new(weight: Matrix, rows: usize, gelu: bool) -> Product {
        let outputs = if gelu { weight.rows / 2 } else { weight.rows };
        Product { outputs, inputs: WeightFormat::padded(weight.cols), rows, gelu }
    }

    /// Rows of the weight that so many outputs are made of.
    fn weight_rows(self, outputs: usize) -> usize {
        if self.gelu { 2 * outputs } else { outputs }
    }
}

/// How a `linear_dot` kernel divides its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct Dot {
    /// Outputs that a subgroup computes at a time.
    pub outputs: u32,
    /// Loads in flight for each.
    pub unroll: u32,
    /// Subgroups of a workgroup.
    pub subgroups: u32,
    /// Times that a workgroup does its work, each time for other outputs.
    pub turns: u32,
}

/// One way to run a product, of those that tuning chooses from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum Variant {
    /// By integer dot products.
    Dot(Dot),
    /// By matrix units.
    Matrix(matrix::Linear),
}

/// What of the device, and of what was measured on it, the choice of kernels depends on.
#[derive(Debug, Clone)]
pub struct Target {
    /// Invocations of a subgroup.
    pub subgroup: u32,
    /// Whether packed integer dot products are used.
    pub dot: bool,
    /// Its matrix units, where they are used.
    pub units: Option<Units>,
    /// The variant for a product, where one was measured.
    pub tuned: HashMap<(Family, Product), Variant>,
    /// Whether matrix units multiply bytes, where they can, in passes of up to so many rows: that of the least number that
    /// is not below a pass's. Beyond all they do not.
    pub bytes: BTreeMap<usize, bool>,
    /// Dispatches start beside those that they wait for ([`crate::gpu::queue::record`]).
    pub relay: bool,
    /// The variant for every product that can have it: for tests.
    pub forced: Option<Variant>,
}

/// Rows from which matrix units are worth what their smallest tile wastes.
const MATRIX_ROWS: usize = 5;
/// Rows from which `linear_tile` and `linear_dot_tile` read weights less often than the kernels for few rows.
const TILE_ROWS: usize = 16;
/// Rows and outputs of a `linear_tile` workgroup's tile, rows of a `linear_dot_tile` one's.
const TILE: usize = 32;
/// Invocations of a `linear_tile` workgroup.
const TILE_WORKGROUP: u32 = 64;
/// Outputs of a `linear_dot_tile` workgroup's tile, and its invocations.
const DOT_TILE_OUTPUTS: usize = 64;
const DOT_TILE_WORKGROUP: u32 = 128;
/// Subgroups of a `linear` workgroup.
const FLOAT_SUBGROUPS: u32 = 4;
/// Outputs that a `linear_dot_gelu` workgroup makes at a time: a block of the planes it writes.
const GELU_BLOCK: u32 = 16;
/// Weights of a load.
pub(crate) const DOT_BLOCK: usize = 16;
/// Loads that an invocation of a `linear_dot` kernel has in flight at most, of which variants are made; where more than two
/// rows are summed, only those that leave registers for the sums.
const IN_FLIGHT: [usize; 3] = [4, 12, 24];
const IN_FLIGHT_OF_ROWS: [usize; 2] = [4, 8];
/// Rows of a pass that share a weight load at most.
const COLUMNS: usize = 8;

impl Target {
    /// A device with subgroups of that many invocations, where nothing has been measured.
    pub fn new(subgroup: u32, dot: bool, units: Option<Units>) -> Target {
        let (tuned, bytes) = (HashMap::new(), BTreeMap::new());
        Target { subgroup, dot, units, tuned, bytes, relay: false, forced: None }
    }

    /// Whether passes of so many rows have a choice of what matrix units multiply.
    pub fn can_use_bytes(&self, format: WeightFormat, rows: usize) -> bool {
        format == WeightFormat::Int8 && rows >= MATRIX_ROWS && self.units.is_some_and(|u| u.bytes_k.is_some())
    }

    /// The family for weights of a format in passes of so many rows; `whole_rows` as in
    /// [`crate::schedule::layout::Packed`].
    pub fn family(&self, format: WeightFormat, rows: usize, whole_rows: bool) -> Family {
        let bytes = || self.bytes.range(rows..).next().is_some_and(|(_, &b)| b);
        if whole_rows && self.can_use_bytes(format, rows) && bytes() {
            return Family::Bytes;
        }
        match format {
            WeightFormat::Int8 if self.units.is_some() && rows >= MATRIX_ROWS => Family::Matrix,
            WeightFormat::Int8 if self.dot => Family::Dot,
            _ => Family::Float,
        }
    }

    /// Whether gate, up and their gated GELU are one dispatch.
    pub fn fuses_gelu(&self, format: WeightFormat, rows: usize) -> bool {
        self.family(format, rows, false) != Family::Matrix && rows < TILE_ROWS
    }

    /// The variant of a product: the forced one where the product can have it, the measured one, or the usual one.
    pub fn variant(&self, family: Family, p: Product) -> Option<Variant> {
        let can = |v: &Variant| self.variants(family, p).contains(v);
        self.forced.filter(can).or(self.tuned.get(&(family, p)).copied()).or_else(|| self.usual(family, p))
    }

    /// The kernel of a product in f32 arithmetic, and its grid.
    pub fn float(&self, format: WeightFormat, p: Product) -> (Kernel, [u32; 3]) {
        let by_format = |int8, bf16| match format {
            WeightFormat::Int8 => int8,
            WeightFormat::Bf16 => bf16,
        };
        if p.rows >= TILE_ROWS {
            let module = by_format(Module::LinearTileInt8, Module::LinearTileBf16);
            let kernel = Kernel { module, workgroup: TILE_WORKGROUP, constants: constants([]) };
            return (kernel, [grid(p.outputs.div_ceil(TILE)), p.rows.div_ceil(TILE) as u32, 1]);
        }
        let module = match p.gelu {
            true => by_format(Module::LinearGeluInt8, Module::LinearGeluBf16),
            false => by_format(Module::LinearInt8, Module::LinearBf16),
        };
        let columns = p.rows.next_power_of_two().min(COLUMNS);
        // Each output row of a subgroup takes `columns` accumulators, twice that with gelu: keep them in registers.
        let outputs = if p.gelu || columns > 4 { 1 } else { 2 };
        let workgroup = self.subgroup * FLOAT_SUBGROUPS;
        let kernel = Kernel { module, workgroup, constants: constants([outputs, columns as u32]) };
        let groups = p.outputs.div_ceil((outputs * FLOAT_SUBGROUPS) as usize);
        (kernel, [grid(groups), p.rows.div_ceil(columns) as u32, 1])
    }

    /// The kernel of a product by integer dot products, and its grid.
    pub fn dot(&self, p: Product, v: Dot) -> (Kernel, [u32; 3]) {
        let columns = p.rows.next_power_of_two().min(COLUMNS);
        let module = if p.gelu { Module::LinearDotGeluInt8 } else { Module::LinearDotInt8 };
        let workgroup = self.subgroup * v.subgroups;
        let blocks = (p.inputs / DOT_BLOCK) as u32;
        let each = if p.gelu { GELU_BLOCK } else { v.outputs * v.subgroups };
        let groups = [grid(p.outputs.div_ceil((each * v.turns) as usize)), p.rows.div_ceil(columns) as u32, 1];
        // Of several tiles of rows none knows when the others' blocks are there.
        let is_staged = p.gelu && groups[1] == 1;
        let stages = if is_staged { p.outputs.div_ceil((each * groups[0]) as usize) as u32 } else { 1 };
        let constants = constants([v.outputs, columns as u32, v.unroll, blocks, self.subgroup, stages]);
        (Kernel { module, workgroup, constants }, groups)
    }

    /// The kernel of a product of many rows by integer dot products, and its grid.
    pub fn dot_tile(&self, p: Product) -> (Kernel, [u32; 3]) {
        let kernel =
            Kernel { module: Module::LinearDotTileInt8, workgroup: DOT_TILE_WORKGROUP, constants: constants([]) };
        let tiles = p.outputs.div_ceil(DOT_TILE_OUTPUTS);
        (kernel, [grid(tiles), p.rows.div_ceil(TILE) as u32, tiles.div_ceil(MAX_GROUPS) as u32])
    }

    /// The variant where nothing was measured; `None` in a family without variants.
    pub fn usual(&self, family: Family, p: Product) -> Option<Variant> {
        let dot = |outputs, in_flight, subgroups, turns| {
            let unroll = self.dot_unroll(p, outputs, in_flight);
            Some(Variant::Dot(Dot { outputs: outputs as u32, unroll, subgroups, turns }))
        };
        match (family, p.gelu, p.rows) {
            (Family::Float, ..) | (Family::Dot, _, TILE_ROWS..) => None,
            (Family::Matrix | Family::Bytes, ..) => self.variants(family, p).first().copied(),
            // Near the best for the shapes of Gemma 3 27B on an H200.
            (Family::Dot, true, 0..=2) => dot(2, 24, 4, 2),
            (Family::Dot, true, _) => dot(2, 4, 8, 1),
            (Family::Dot, false, 0..=2) => dot(4, 12, 4, 1),
            (Family::Dot, false, _) => dot(4, 4, 4, 1),
        }
    }

    /// The variants of a family that a product can have, and that are worth measuring.
    pub fn variants(&self, family: Family, p: Product) -> Vec<Variant> {
        match (family, self.units) {
            (Family::Dot, _) if p.rows < TILE_ROWS => self.dot_variants(p),
            (Family::Matrix, Some(units)) => matrix_variants(units, Operands::Half, p),
            (Family::Bytes, Some(units)) => matrix_variants(units, Operands::Bytes, p),
            _ => Vec::new(),
        }
    }

    /// Loads of each row that an invocation of `linear_dot` has in flight, where it may have so many in all: as many as make
    /// rounds of the same size.
    fn dot_unroll(&self, p: Product, outputs: usize, in_flight: usize) -> u32 {
        let width = p.weight_rows(outputs);
        let loads = p.inputs.div_ceil(DOT_BLOCK * self.subgroup as usize);
        loads.div_ceil(loads.div_ceil((in_flight / width).max(1))) as u32
    }

    fn dot_variants(&self, p: Product) -> Vec<Variant> {
        // One row is what most passes have: it is worth a longer search.
        let (in_flight, subgroups, turns): (&[usize], &[u32], &[u32]) = match p.rows {
            1 => (&IN_FLIGHT, &[4, 8, 16], &[1, 2, 4]),
            2 => (&IN_FLIGHT, &[4, 16], &[1, 2]),
            _ => (&IN_FLIGHT_OF_ROWS, &[4, 8], &[1, 2]),
        };
        let mut all = Vec::new();
        for outputs in [1, 2, 4] {
            let width = p.weight_rows(outputs);
            let fits = in_flight.iter().filter(|&&n| n >= width);
            let mut unrolls: Vec<_> = fits.map(|&n| self.dot_unroll(p, outputs, n)).collect();
            unrolls.dedup();
            for unroll in unrolls {
                for &subgroups in subgroups.iter().filter(|&&n| n * self.subgroup <= MAX_WORKGROUP) {
                    let outputs = outputs as u32;
                    // A gelu workgroup makes whole blocks.
                    if p.gelu && subgroups * outputs > GELU_BLOCK {
                        continue;
                    }
                    let dot = |&turns: &u32| Dot { outputs, unroll, subgroups, turns };
                    // More only where that leaves a workgroup for each processor of a large device.
                    let enough = |d: &Dot| d.turns <= 2 || self.dot(p, *d).1[0] >= 128;
                    all.extend(turns.iter().map(dot).filter(enough).map(Variant::Dot));
                }
            }
        }
        all
    }
}

/// The variants whose scratch there is room for.
fn matrix_variants(units: Units, operands: Operands, p: Product) -> Vec<Variant> {
    matrix::linear_variants(units, operands, p.rows, p.outputs, p.inputs)
        .into_iter()
        .filter(|l| l.scratch_bytes(p.rows, p.outputs).iter().zip(PRODUCT_SCRATCH).all(|(&b, most)| b <= most))
        .map(Variant::Matrix)
        .collect()
}
