//! Which kernel computes a linear step: the family, from how many rows share a weight and what the device can do, and
//! within it the variant, from what was measured on the device.

use super::dispatch::grid;
use super::kernels::{Kernel, Module, constants};
use super::matrix::{self, Operands, Units};
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

impl Form {
    /// The family that reads it.
    pub fn family(self) -> Family {
        match self {
            Form::F32 => Family::Float,
            Form::Planes => Family::Dot,
            Form::Half => Family::Matrix,
            Form::Bytes => Family::Bytes,
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
    /// Dispatches start beside those that they wait for ([`super::relay`]).
    pub relay: bool,
    /// The variant for every product that can have it: for tests.
    pub forced: Option<Variant>,
}

/// Rows from which matrix units are worth what their smallest tile wastes.
const MATRIX_ROWS: usize = 5;
/// Rows from which `linear_tile` reads weights less often than the kernels for few rows.
const TILE_ROWS: usize = 16;
/// Rows and outputs of a `linear_tile` workgroup's tile.
const TILE: usize = 32;
/// Invocations of a `linear_tile` workgroup.
const TILE_WORKGROUP: u32 = 64;
/// Subgroups of a `linear` workgroup.
const FLOAT_SUBGROUPS: u32 = 4;
/// Outputs that a `linear_dot_gelu` workgroup makes at a time: a block of the planes it writes.
const GELU_BLOCK: u32 = 16;
/// Rows of a pass that share a weight load at most.
const COLUMNS: usize = 8;
/// Invocations of a workgroup of the largest kind at most; a device must take as many.
const MAX_WORKGROUP: u32 = 1024;

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
            WeightFormat::Int8 if self.dot && rows < TILE_ROWS => Family::Dot,
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
        let kernel = Kernel { module, workgroup, constants: constants([v.outputs, columns as u32, v.unroll]) };
        let each = if p.gelu { GELU_BLOCK } else { v.outputs * v.subgroups };
        let each = (each * v.turns) as usize;
        (kernel, [grid(p.outputs.div_ceil(each)), p.rows.div_ceil(columns) as u32, 1])
    }

    /// The variant where nothing was measured; `None` in a family without variants.
    pub fn usual(&self, family: Family, p: Product) -> Option<Variant> {
        let dot = |outputs, unroll, subgroups| Some(Variant::Dot(Dot { outputs, unroll, subgroups, turns: 1 }));
        match (family, p.gelu, p.rows) {
            (Family::Float, ..) => None,
            (Family::Matrix | Family::Bytes, ..) => self.variants(family, p).first().copied(),
            (Family::Dot, true, 0..=2) => dot(1, 4, 4),
            (Family::Dot, true, _) => dot(2, 1, 8),
            (Family::Dot, false, 0..=2) => dot(1, 2, 4),
            (Family::Dot, false, _) => dot(4, 1, 4),
        }
    }

    /// The variants of a family that a product can have, and that are worth measuring.
    pub fn variants(&self, family: Family, p: Product) -> Vec<Variant> {
        match (family, self.units) {
            (Family::Dot, _) => self.dot_variants(p),
            (Family::Matrix, Some(units)) => matrix_variants(units, Operands::Half, p),
            (Family::Bytes, Some(units)) => matrix_variants(units, Operands::Bytes, p),
            _ => Vec::new(),
        }
    }

    fn dot_variants(&self, p: Product) -> Vec<Variant> {
        let parts = if p.gelu { 2 } else { 1 };
        // What is in flight and summed must fit the registers; more leaves an RDNA3 too few waves.
        let most = if p.rows > 2 { 8 } else { 16 };
        // Only where there are workgroups for several rounds of what a device runs at a time.
        let turns: &[u32] = if p.gelu { &[1, 2, 4] } else { &[1] };
        let mut all = Vec::new();
        for unroll in [1, 2, 4].into_iter().filter(|u| parts * u <= 4) {
            for subgroups in [4, 8, 16].into_iter().filter(|n| n * self.subgroup <= MAX_WORKGROUP) {
                for outputs in [1, 2, 4] {
                    // A gelu workgroup makes whole blocks.
                    let whole = !p.gelu || subgroups * outputs <= GELU_BLOCK;
                    if whole && outputs * unroll * parts <= most {
                        all.extend(turns.iter().map(|&turns| Variant::Dot(Dot { outputs, unroll, subgroups, turns })));
                    }
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
