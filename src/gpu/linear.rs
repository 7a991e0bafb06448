//! Which kernel computes a linear step: the family, from how many rows share a weight and what the device can do, and
//! within it the variant, from what was measured on the device.

use super::dispatch::grid;
use super::kernels::{Kernel, Module, constants};
use crate::model::WeightFormat;
use crate::schedule::step::Matrix;
use std::collections::HashMap;

/// A family of kernels, which computes in one arithmetic: all of its variants give the same bits for a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Family {
    /// f32 inputs and sums; weights are widened to f32.
    Float,
    /// Inputs in planes, packed integer dot products.
    Dot,
}

/// The form in which a family reads its inputs, as the FORM constant of the kernels that write them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// f32, in the slot itself.
    F32 = 0,
    /// Two int8 planes.
    Planes = 1,
}

impl Family {
    /// The form that it reads.
    pub fn form(self) -> Form {
        match self {
            Family::Float => Form::F32,
            Family::Dot => Form::Planes,
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
pub struct Variant {
    /// Output rows of a subgroup.
    pub outputs: u32,
    /// Loads in flight for each.
    pub unroll: u32,
    /// Subgroups of a workgroup.
    pub subgroups: u32,
}

/// What of the device, and of what was measured on it, the choice of kernels depends on.
#[derive(Debug, Clone)]
pub struct Target {
    /// Invocations of a subgroup.
    pub subgroup: u32,
    /// Whether packed integer dot products are used.
    pub dot: bool,
    /// The variant for a product, where one was measured.
    pub tuned: HashMap<Product, Variant>,
    /// The variant for every product that can have it: for tests.
    pub forced: Option<Variant>,
    /// Bytes of the next weights that are read into the cache while small steps run; 0: none.
    pub prefetch: u64,
}

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

impl Target {
    /// A device with subgroups of that many invocations, where nothing has been measured.
    pub fn new(subgroup: u32, dot: bool) -> Target {
        Target { subgroup, dot, tuned: HashMap::new(), forced: None, prefetch: 0 }
    }

    /// The family for weights of a format in passes of so many rows.
    pub fn family(&self, format: WeightFormat, rows: usize) -> Family {
        match format {
            WeightFormat::Int8 if self.dot && rows < TILE_ROWS => Family::Dot,
            _ => Family::Float,
        }
    }

    /// Whether gate, up and their gated GELU are one dispatch.
    pub fn fuses_gelu(&self, rows: usize) -> bool {
        rows < TILE_ROWS
    }

    /// The kernel and its grid.
    pub fn linear(&self, family: Family, format: WeightFormat, product: Product) -> (Kernel, [u32; 3]) {
        match family {
            Family::Dot => self.dot(product),
            Family::Float => self.float(format, product),
        }
    }

    fn float(&self, format: WeightFormat, p: Product) -> (Kernel, [u32; 3]) {
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

    fn dot(&self, p: Product) -> (Kernel, [u32; 3]) {
        let forced = self.forced.filter(|f| Target::variants(p).contains(f));
        let v = forced.or(self.tuned.get(&p).copied()).unwrap_or_else(|| Target::usual(p));
        let columns = p.rows.next_power_of_two().min(COLUMNS);
        let module = if p.gelu { Module::LinearDotGeluInt8 } else { Module::LinearDotInt8 };
        let workgroup = self.subgroup * v.subgroups;
        let kernel = Kernel { module, workgroup, constants: constants([v.outputs, columns as u32, v.unroll]) };
        let each = if p.gelu { GELU_BLOCK } else { v.outputs * v.subgroups };
        (kernel, [grid(p.outputs.div_ceil(each as usize)), p.rows.div_ceil(columns) as u32, 1])
    }

    /// The variant where nothing was measured.
    pub fn usual(p: Product) -> Variant {
        match (p.gelu, p.rows) {
            (true, 0..=2) => Variant { outputs: 1, unroll: 4, subgroups: 8 },
            (true, _) => Variant { outputs: 2, unroll: 1, subgroups: 8 },
            (false, 0..=2) => Variant { outputs: 2, unroll: 4, subgroups: 8 },
            (false, _) => Variant { outputs: 4, unroll: 1, subgroups: 4 },
        }
    }

    /// The variants worth measuring for a product.
    pub fn variants(p: Product) -> Vec<Variant> {
        let outputs: &[u32] = if p.rows > 2 { &[1, 2, 4] } else { &[1, 2, 4] };
        let unrolls: &[u32] = if p.rows > 2 { &[1, 2] } else { &[1, 2, 4, 8] };
        let mut all = Vec::new();
        for &outputs in outputs {
            for &unroll in unrolls {
                for subgroups in [4, 8, 16] {
                    let parts = if p.gelu { 2 } else { 1 };
                    // A gelu workgroup makes whole blocks; and what is in flight must fit the registers, beside a sum
                    // for each output and row.
                    let whole = !p.gelu || (subgroups * outputs <= GELU_BLOCK);
                    let most = if p.rows > 2 { 8 } else { 16 };
                    if whole && outputs * unroll * parts <= most {
                        all.push(Variant { outputs, unroll, subgroups });
                    }
                }
            }
        }
        all
    }
}
