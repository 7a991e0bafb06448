//! Chooses the kernel of a product. The device and the number of rows determine the possible arithmetics; measurements
//! on the device choose among them, and choose the tile.

use super::arithmetic::{ActivationLayout, Arithmetic, FormatModules, Operand, modules};
use super::figures::Figures;
use super::layout::PRODUCT_SCRATCH;
use super::lowering::RowOrder;
use super::matrix::{self, MatrixTile, MatrixVariant};
use super::measured;
use crate::lower::kernels::Kernel;
use crate::lower::kernels::constants::{LinearConstants, LinearDotConstants, NoConstants};
use crate::lower::limits::{MAX_GROUPS, MAX_WORKGROUP, grid};
use crate::lower::units::MatrixUnits;
use crate::model::grouped::Scales;
use crate::model::{BlockFormat, WeightFormat};
use crate::schedule::step::Matrix;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};

/// The shape of a linear step: the key of its tunings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Product {
    /// The format of the weights.
    pub format: WeightFormat,
    /// Outputs. With `gelu`, half of the weight's rows.
    pub outputs: usize,
    /// The number of inputs, padded to a multiple of 16.
    pub inputs: usize,
    /// The number of rows in the pass.
    pub rows: usize,
    /// Gate and up in one product, fused with their gated GELU.
    pub gelu: bool,
    /// True if the inputs are in the layout F16Block.
    pub blocks: bool,
    /// For products of experts: the number of expert rows that read one row of the inputs. 0 for other products.
    pub experts: usize,
}

impl Product {
    /// The product of a weight with `rows` rows of inputs.
    pub fn new(weight: Matrix, rows: usize, gelu: bool) -> Product {
        let outputs = if gelu { weight.rows / 2 } else { weight.rows };
        let inputs = WeightFormat::padded(weight.cols);
        Product { format: weight.format, outputs, inputs, rows, gelu, blocks: false, experts: 0 }
    }

    /// Rows of inputs that share a load of weights in the kernels for few rows.
    pub fn columns(rows: usize) -> usize {
        rows.next_power_of_two().min(COLUMNS)
    }

    /// The additional work that a kernel on matrix units does for this product.
    pub fn role(self) -> MatrixVariant {
        match self {
            Product { gelu: true, .. } => MatrixVariant::Gated,
            Product { blocks: true, .. } => MatrixVariant::Blocks,
            _ => MatrixVariant::Plain,
        }
    }

    /// Rows of the weight that `outputs` outputs are computed from.
    pub fn weight_rows(self, outputs: usize) -> usize {
        if self.gelu { 2 * outputs } else { outputs }
    }

    /// Bytes of the product's weights, with their scales.
    pub fn weight_bytes(self) -> f64 {
        let row = self.format.row_bytes(self.inputs) + self.format.scale_bytes(self.inputs);
        self.weight_rows(self.outputs) as f64 * row as f64
    }

    /// The number of multiplications and additions.
    pub fn operations(self) -> f64 {
        2.0 * self.weight_rows(self.outputs) as f64 * self.inputs as f64 * self.rows as f64
    }

    fn modules(self) -> &'static FormatModules {
        modules(self.format)
    }
}

/// How a kernel `linear_dot` divides its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct DotTile {
    /// Outputs that a lane works on at a time.
    pub outputs: u32,
    /// Lanes that share an output: all or a part of a subgroup's.
    pub sharers: u32,
    /// The number of loads that are in flight for each row of weights.
    pub unroll: u32,
    /// The number of subgroups in a workgroup.
    pub subgroups: u32,
    /// Blocks of outputs that a workgroup computes one after another.
    pub turns: u32,
}

/// The division of a product among workgroups and lanes. Tuning chooses one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum Tile {
    /// A tile of [`Arithmetic::IntegerDot`].
    Dot(DotTile),
    /// A tile of [`Arithmetic::Matrix`].
    Matrix(MatrixTile),
}

/// The properties of a device, and the measurements on it, that decide which kernels run.
#[derive(Debug, Clone)]
pub struct Target {
    /// The number of lanes in a subgroup.
    pub subgroup: u32,
    /// True if kernels may use packed integer dot products.
    pub dot: bool,
    /// The matrix units; `None` if they are not used.
    pub units: Option<MatrixUnits>,
    /// The tiles that tuning has chosen.
    pub tuned: HashMap<(Arithmetic, Product), Tile>,
    /// The arithmetic chosen for passes. Key: upper row bound. The smallest bound ≥ the pass's rows applies; without
    /// one, or if a product does not support it, the default applies.
    pub chosen: BTreeMap<usize, Arithmetic>,
    /// Whether matrix units compute the gated GELU after its products, as tuned. Key: upper row bound, as in `chosen`.
    /// Without an entry, the default applies.
    pub gated: BTreeMap<usize, bool>,
    /// The tuned method of attention for rows of one sequence. Key: rows of the kind of pass, and heads.
    pub attend: BTreeMap<(usize, AttendHeads), AttendBy>,
    /// Seconds of a pass of each tuned kind, by its rows and their order.
    pub seconds: HashMap<(usize, RowOrder), f64>,
    /// True if dispatches are relayed (shaders/relay.glsl).
    pub relay: bool,
    /// The figures by which tiles are chosen that were not measured. `None`: the first of each list.
    pub figures: Option<Figures>,
    /// A tile that tests set for every product that supports it.
    pub forced: Option<Tile>,
    /// Default tiles by arithmetic and product, computed once.
    pub found: RefCell<HashMap<(Arithmetic, Product), Option<Tile>>>,
}

/// The heads of an attention step, which decide its tiles. Layers of different kinds may have different heads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttendHeads {
    /// The number of query heads.
    pub heads: usize,
    /// The number of key heads, which is that of value heads.
    pub kv_heads: usize,
    /// The number of elements in a head.
    pub dim: usize,
}

/// The method of attention for rows of one sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum AttendBy {
    /// attend.comp: each row separately.
    Row,
    /// attend_matrix.comp: many rows together on matrix units, in the tile with this index
    /// ([`super::attend_tile::tiles`]).
    Tile(usize),
}

/// The least number of rows for which matrix units are used.
const MATRIX_ROWS: usize = 2;
/// Below this number of rows, integer dot products or f32 are the default on devices whose lists are not in measured
/// order; matrix units are then only tried.
const USUAL_MATRIX_ROWS: usize = 5;
/// Fewest rows for which matrix units are tried on s8: its smallest tile has 16 rows.
const S8_ROWS: usize = 5;
/// Most rows for which matrix units compute the gated GELU after its products.
const GATED_ROWS: usize = 64;
/// Fewest rows for `linear_tile` and `linear_dot_tile`, which then read weights less often than the kernels for few
/// rows.
pub(super) const TILE_ROWS: usize = 16;
/// Rows of a `linear_tile` or `linear_dot_tile` workgroup's tile, and outputs of a `linear_tile` one.
const TILE: usize = 32;
/// The number of lanes in a `linear_tile` workgroup.
const TILE_WORKGROUP: u32 = 64;
/// Outputs of a `linear_dot_tile` workgroup's tile, and its lanes.
const DOT_TILE_OUTPUTS: usize = 64;
const DOT_TILE_WORKGROUP: u32 = 128;
/// The number of subgroups in a `linear` workgroup.
const F32_SUBGROUPS: u32 = 4;
/// Outputs that a `linear_dot_gelu` workgroup computes at a time: one block of Int16Block or Int16Sums, its output's
/// layout.
const GELU_BLOCK: u32 = 16;
/// The number of inputs in a block of Int16Block.
pub const DOT_BLOCK: usize = 16;
/// Choices for the number of a `linear_dot` lane's loads in flight. With more than two rows, sums take registers from
/// them.
const IN_FLIGHT: [usize; 3] = [4, 12, 24];
const IN_FLIGHT_OF_ROWS: [usize; 2] = [4, 8];
/// Choices for the number of blocks of outputs that a workgroup of `linear_dot` computes in sequence.
const TURNS: [u32; 3] = [1, 2, 4];
/// Fewest workgroups with several turns: about one for each processor of a large device.
const LEAST_GROUPS: u32 = 128;
/// At least one over this of a subgroup's lanes share an output.
const LEAST_SHARE: u32 = 4;
/// Choices for the subgroups of a workgroup of `linear_dot` in which fewer than all lanes share an output.
const SHARED_BY: &[u32] = &[2, 4, 8];
/// The most registers that a lane uses for loads in flight.
const MOST_IN_FLIGHT: usize = 128;
/// Most rows that share a load of weights.
const COLUMNS: usize = 8;

impl Target {
    /// A device with subgroups of `subgroup` lanes, untuned.
    pub fn new(subgroup: u32, dot: bool, units: Option<MatrixUnits>) -> Target {
        let (tuned, seconds) = (HashMap::new(), HashMap::new());
        let (chosen, gated, attend) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let (figures, found) = (None, RefCell::default());
        Target {
            subgroup,
            dot,
            units,
            tuned,
            chosen,
            gated,
            attend,
            seconds,
            relay: false,
            figures,
            forced: None,
            found,
        }
    }

    /// The arithmetics worth measuring for weights of `format` in passes of `rows` rows, the default one first.
    pub fn arithmetics(&self, format: WeightFormat, rows: usize) -> Vec<Arithmetic> {
        let modules = modules(format);
        let units = self.units.filter(|_| modules.matrix.is_some() && rows >= MATRIX_ROWS);
        let has_s8 = modules.matrix.as_ref().is_some_and(|matrix| matrix.shared_s8.is_some());
        let few = if modules.dot.is_some() && self.dot { Arithmetic::IntegerDot } else { Arithmetic::F32 };
        let Some(units) = units else { return vec![few] };
        let mut all = vec![Arithmetic::Matrix(Operand::F16)];
        if has_s8 && units.s8_k.is_some() && rows >= S8_ROWS {
            all.push(Arithmetic::Matrix(Operand::S8));
        }
        let is_listed = self.is_listed();
        match rows {
            USUAL_MATRIX_ROWS.. => {}
            // Dot products unpack weights with scales of groups for each row, matrix units once.
            MATRIX_ROWS.. if is_listed && format.grouped().is_some() => {}
            // With tiles that were not chosen by measurement, 4 rows of 27B in INT8 take 11.4 ms by matrix units and
            // 17.9 by dot products, and 2 rows take 11.1 and 12.2 (H100).
            MATRIX_ROWS.. if is_listed => all.push(few),
            _ => all.insert(0, few),
        }
        all
    }

    /// True if the lists of tiles begin with those that measurements found best on this kind of device.
    pub(super) fn is_listed(&self) -> bool {
        self.figures.is_some_and(|figures| figures.is_listed)
    }

    /// The arithmetic for weights of `format` in passes of `rows` rows. `whole_rows`: one workgroup writes a whole row
    /// of the inputs ([`super::layout::PackedSlot`]); s8 needs that.
    pub fn arithmetic(&self, format: WeightFormat, rows: usize, whole_rows: bool) -> Arithmetic {
        let can = self.arithmetics(format, rows);
        let chosen = self.chosen.range(rows..).next().map(|(_, &chosen)| chosen);
        match chosen.filter(|chosen| can.contains(chosen)).unwrap_or(can[0]) {
            Arithmetic::Matrix(Operand::S8) if !whole_rows => Arithmetic::Matrix(Operand::F16),
            arithmetic => arithmetic,
        }
    }

    /// True if one dispatch computes gate, up and their gated GELU, where matrix units do not compute them.
    pub fn fuses_gelu(&self, rows: usize) -> bool {
        rows < TILE_ROWS
    }

    /// True if matrix units compute a gated GELU after its products `gated`. `reader`: the product that reads it.
    pub fn gates(&self, gated: Product, reader: Product) -> bool {
        let f16 = Arithmetic::Matrix(Operand::F16);
        let can = |p: Product| {
            let tiles = self.tiles(f16, p);
            !tiles.is_empty() && self.forced.is_none_or(|forced| tiles.contains(&forced))
        };
        let usual = gated.rows <= if self.is_listed() { measured::gated_rows(gated) } else { GATED_ROWS };
        let chosen = self.gated.range(gated.rows..).next().map_or(usual, |(_, &gated)| gated);
        chosen && gated.rows <= GATED_ROWS && can(gated) && can(Product { blocks: true, ..reader })
    }

    /// The tile of a product: the forced one if the product supports it, else the tuned one, else the default.
    pub fn tile(&self, arithmetic: Arithmetic, p: Product) -> Option<Tile> {
        let can = |t: &Tile| self.tiles(arithmetic, p).contains(t);
        let tuned = || self.tuned.get(&(arithmetic, p)).copied();
        self.forced.filter(can).or_else(tuned).or_else(|| {
            let found = self.found.borrow().get(&(arithmetic, p)).copied();
            found.unwrap_or_else(|| {
                let usual = self.usual(arithmetic, p);
                self.found.borrow_mut().insert((arithmetic, p), usual);
                usual
            })
        })
    }

    /// The kernel and grid of a product in [`Arithmetic::F32`].
    pub fn f32(&self, p: Product) -> (Kernel, [u32; 3]) {
        let modules = p.modules();
        if p.rows >= TILE_ROWS && p.experts == 0 {
            let kernel = Kernel::new(modules.linear_tile, TILE_WORKGROUP, NoConstants {}).of_weights(p.format);
            return (kernel, [grid(p.outputs.div_ceil(TILE)), p.rows.div_ceil(TILE) as u32, 1]);
        }
        let module = if p.gelu { modules.linear_gelu } else { modules.linear };
        let columns = Product::columns(p.rows);
        // Each output needs `columns` accumulators, with gelu twice as many. They must fit in registers.
        let outputs = if p.gelu || columns > 4 { 1 } else { 2 };
        let workgroup = self.subgroup * F32_SUBGROUPS;
        let constants = LinearConstants { rows: outputs, columns: columns as u32 };
        let kernel = Kernel::new(module, workgroup, constants).of_weights(p.format).of_experts(p.experts);
        let groups = p.outputs.div_ceil((outputs * F32_SUBGROUPS) as usize);
        (kernel, [grid(groups), p.rows.div_ceil(columns) as u32, 1])
    }

    /// The kernel and grid of a product of few rows in [`Arithmetic::IntegerDot`]; `None` for a format without one.
    /// With gelu, `form` is the output's layout.
    pub fn dot(&self, p: Product, t: DotTile, form: ActivationLayout) -> Option<(Kernel, [u32; 3])> {
        let modules = p.modules().dot.as_ref()?;
        let module = if p.gelu { modules.linear_gelu } else { modules.linear };
        let columns = Product::columns(p.rows);
        let workgroup = self.subgroup * t.subgroups;
        let blocks = (p.inputs / p.format.per_load()) as u32;
        let each = if p.gelu { GELU_BLOCK } else { self.outputs_at_once(t) };
        let groups = [grid(p.outputs.div_ceil((each * t.turns) as usize)), p.rows.div_ceil(columns) as u32, 1];
        // A stage ends when the blocks of all rows are written. That can be counted only if one tile covers all rows.
        let is_staged = p.gelu && groups[1] == 1 && p.experts == 0;
        let stages = if is_staged { p.outputs.div_ceil((each * groups[0]) as usize) as u32 } else { 1 };
        let constants = LinearDotConstants {
            rows: t.outputs,
            columns: columns as u32,
            unroll: t.unroll,
            blocks,
            subgroup: self.subgroup,
            stages,
            form: form as u32,
            sharers: t.sharers,
        };
        let kernel = Kernel::new(module, workgroup, constants).of_weights(p.format).of_experts(p.experts);
        Some((kernel, groups))
    }

    /// Outputs that a workgroup of `linear_dot` computes at a time.
    fn outputs_at_once(&self, t: DotTile) -> u32 {
        t.outputs * (self.subgroup / t.sharers) * t.subgroups
    }

    /// The kernel and grid of a product of many rows in [`Arithmetic::IntegerDot`]; `None` for a format without one.
    pub fn dot_tile(&self, p: Product) -> Option<(Kernel, [u32; 3])> {
        let module = p.modules().dot.as_ref()?.linear_tile;
        let kernel = Kernel::new(module, DOT_TILE_WORKGROUP, NoConstants {}).of_weights(p.format);
        let tiles = p.outputs.div_ceil(DOT_TILE_OUTPUTS);
        Some((kernel, [grid(tiles), p.rows.div_ceil(TILE) as u32, tiles.div_ceil(MAX_GROUPS) as u32]))
    }

    /// The cost model's seconds of a product in one of its tiles. `None` without a model.
    pub fn modelled_seconds(&self, arithmetic: Arithmetic, p: Product, tile: Tile) -> Option<f64> {
        let figures = self.figures?;
        let groups = match tile {
            Tile::Dot(t) => self.dot(p, t, ActivationLayout::F32)?.1,
            Tile::Matrix(t) => t.groups(p.rows, p.weight_rows(p.outputs)),
        };
        debug_assert!(matches!(tile, Tile::Dot(_)) == (arithmetic == Arithmetic::IntegerDot));
        Some(figures.seconds(self.subgroup, self.units, p, tile, groups))
    }

    /// The default tile without measurements of this device: the best on this kind of device if known, else the cost
    /// model's fastest. `None` if the arithmetic has no tiles to choose from.
    pub fn usual(&self, arithmetic: Arithmetic, p: Product) -> Option<Tile> {
        if self.figures.is_none_or(|figures| figures.is_listed) {
            return self.measured(arithmetic, p);
        }
        let tiles = self.tiles(arithmetic, p).into_iter();
        let timed = tiles.filter_map(|tile| Some((self.modelled_seconds(arithmetic, p, tile)?, tile)));
        timed.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, tile)| tile)
    }

    /// The tiles of a product that are worth measuring.
    pub fn tiles(&self, arithmetic: Arithmetic, p: Product) -> Vec<Tile> {
        match (arithmetic, self.units) {
            (Arithmetic::IntegerDot, _) if p.rows < TILE_ROWS => self.dot_tiles(p),
            (Arithmetic::Matrix(operand), Some(units)) => matrix_tiles(units, operand, p),
            _ => Vec::new(),
        }
    }

    /// Loads per weight row that a lane of `linear_dot` has in flight, given at most `in_flight` over all rows. Chosen
    /// such that all rounds of the loop have nearly the same size.
    pub(super) fn dot_unroll(&self, p: Product, outputs: usize, sharers: u32, in_flight: usize) -> u32 {
        let width = p.weight_rows(outputs);
        // Two blocks of x for several rows take registers from the loads.
        let of_x = if p.rows > 1 && p.format.per_load() > DOT_BLOCK { MOST_IN_FLIGHT / 4 } else { 0 };
        let in_flight = in_flight.min((MOST_IN_FLIGHT - of_x) / load_registers(p.format));
        let loads = p.inputs.div_ceil(p.format.per_load() * sharers as usize);
        loads.div_ceil(loads.div_ceil((in_flight / width).clamp(1, most_loads(p.format)))) as u32
    }

    /// The possible numbers of lanes that share an output: a whole subgroup; and if the loads of a row of weights are
    /// no multiple of it, its largest part that divides them, so that no lane is idle at a row's end.
    fn dot_sharers(&self, p: Product) -> impl Iterator<Item = u32> {
        let loads = (p.inputs / p.format.per_load()) as u32;
        let part = 1 << loads.trailing_zeros().min(self.subgroup.ilog2());
        let worthwhile = p.rows == 1 && part < self.subgroup && part >= self.subgroup / LEAST_SHARE;
        std::iter::once(self.subgroup).chain(worthwhile.then_some(part))
    }

    fn dot_tiles(&self, p: Product) -> Vec<Tile> {
        // Most passes have one row, for which a longer search pays off.
        let (in_flight, subgroups, turns): (&[usize], &[u32], &[u32]) = match p.rows {
            1 => (&IN_FLIGHT, &[4, 8, 16], &TURNS),
            2 => (&IN_FLIGHT, &[4, 16], &[1, 2]),
            _ => (&IN_FLIGHT_OF_ROWS, &[4, 8], &[1, 2]),
        };
        // Most sums of a lane. A load of 32 weights needs two blocks of x, which leave fewer registers for sums.
        let most = if p.format.per_load() > DOT_BLOCK { 32 } else { 64 };
        let columns = Product::columns(p.rows);
        let mut all = Vec::new();
        let outputs = [1, 2, 4].into_iter().filter(|&n| p.weight_rows(n) * columns <= most);
        for (outputs, sharers) in outputs.flat_map(|n| self.dot_sharers(p).map(move |sharers| (n, sharers))) {
            let (subgroups, turns) =
                if sharers == self.subgroup { (subgroups, turns) } else { (SHARED_BY, &TURNS[..2]) };
            let width = p.weight_rows(outputs);
            let fits = in_flight.iter().filter(|&&n| n >= width);
            let mut unrolls: Vec<_> = fits.map(|&n| self.dot_unroll(p, outputs, sharers, n)).collect();
            unrolls.dedup();
            for unroll in unrolls {
                for &subgroups in subgroups.iter().filter(|&&n| n * self.subgroup <= MAX_WORKGROUP) {
                    let dot = |&turns: &u32| DotTile { outputs: outputs as u32, sharers, unroll, subgroups, turns };
                    // A gelu workgroup writes whole blocks.
                    if p.gelu && self.outputs_at_once(dot(&1)) > GELU_BLOCK {
                        continue;
                    }
                    let groups =
                        |t: &DotTile| self.dot(p, *t, ActivationLayout::F32).map_or(0, |(_, groups)| groups[0]);
                    let enough = |t: &DotTile| t.turns <= 2 || groups(t) >= LEAST_GROUPS;
                    all.extend(turns.iter().map(dot).filter(enough).map(Tile::Dot));
                }
            }
        }
        all
    }
}

/// Most loads of one row of weights that a lane has in flight: RADV spills the registers of more in q6_k.
fn most_loads(format: WeightFormat) -> usize {
    if format == WeightFormat::Blocks(BlockFormat::Q6K) { 14 } else { usize::MAX }
}

/// Registers of a lane of `linear_dot` for a load of weights and its scales.
fn load_registers(format: WeightFormat) -> usize {
    let Some(grouped) = format.grouped() else { return 4 };
    let of_scales = match grouped.scales {
        Scales::Half | Scales::HalfOffset => 1,
        Scales::Six | Scales::Bytes | Scales::FourOffset => 2,
        Scales::SixBy16 => 3,
        Scales::SixOffset => 4,
    };
    (grouped.first_bytes() + grouped.second_bytes()) / 4 + of_scales
}

/// The tiles on matrix units whose partial sums fit the scratch memory.
fn matrix_tiles(units: MatrixUnits, operand: Operand, p: Product) -> Vec<Tile> {
    matrix::tiles(units, p.format, operand, [p.rows, p.weight_rows(p.outputs), p.inputs])
        .into_iter()
        .filter(|t| t.has(units, p.role()))
        .filter(|t| t.scratch_bytes(p.rows, p.outputs).iter().zip(PRODUCT_SCRATCH).all(|(&b, most)| b <= most))
        .map(Tile::Matrix)
        .collect()
}
