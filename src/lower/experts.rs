//! Lowering of a mixture's experts: their choice, their products and the weighted sum.
//!
//! Their products work on expert rows: each row of the pass once for each expert that it uses. In passes of few rows
//! these stand in the order of the pass, and each is a tile of its own (shaders/experts.glsl). In passes of more rows
//! the rows of one expert are brought together, so that they share a load of its weights: the inputs are copied in
//! that order, the products and their GELU keep it, and the sum reads by it.

use super::arithmetic::{ActivationLayout, Arithmetic, Operand, modules};
use super::layout::PackedSlot;
use super::linear::Linear;
use super::lowering::{LoweredKernel, Lowering};
use super::matrix::MatrixTile;
use super::piece::PieceLowering;
use super::row::row_division;
use super::target::{Product, Tile};
use crate::lower::kernels::constants::{ExpertSumConstants, GroupConstants, JoinConstants, RouteConstants};
use crate::lower::kernels::push::{ExpertSumPush, GroupPush, JoinPush, RoutePush, word};
use crate::lower::kernels::{Kernel, Module};
use crate::model::WeightFormat;
use crate::schedule::cost::distinct_experts;
use crate::schedule::layout::StateLayout;
use crate::schedule::step::{Matrix, Op, Rows, Slot, Vector};
use crate::schedule::{Schedule, Step};

/// Fewest rows of a pass whose expert rows are brought together. With fewer, rows seldom share an expert.
const GROUPED_ROWS: usize = 8;
/// Lanes of a workgroup of route.comp and of expert_sum.comp.
const WORKGROUP: u32 = 128;
/// The number of lanes in group.comp's only workgroup.
const GROUP_WORKGROUP: u32 = 1024;
/// Fewest rows of a pass whose router's products share loads.
const MANY_ROWS: usize = 32;
/// In such a pass: rows that share a load of the router's weights, and experts that share a load of a row.
const ROUTE_COLUMNS: usize = 4;
const ROUTE_EXPERTS: u32 = 4;
/// The most workgroups of route.comp, which is the number of its counters. In longer passes a workgroup takes more rows.
const ROUTE_COUNTERS: usize = 1024;

/// The operands of an [`Op::ExpertLinear`].
#[derive(Clone, Copy, PartialEq)]
pub(super) struct ExpertProduct {
    pub(super) weight: Matrix,
    pub(super) chosen: Slot,
    pub(super) x: Slot,
    pub(super) share: usize,
    pub(super) out: Slot,
}

impl ExpertProduct {
    pub(super) fn of(op: &Op) -> Option<ExpertProduct> {
        match *op {
            Op::ExpertLinear { weight, chosen, x, share, out } => Some(ExpertProduct { weight, chosen, x, share, out }),
            _ => None,
        }
    }

    /// The number of experts in the layer.
    fn experts(&self) -> usize {
        self.weight.rows / self.out.width
    }

    /// The product of one expert with so many rows.
    fn product(&self, rows: usize, gelu: bool) -> Product {
        let plain = Product::new(self.weight.rows_from(0, self.out.width), rows, false);
        Product { gelu, experts: self.share, ..plain }
    }

    /// True if `up` follows this gate in memory, so that both are the halves of one matrix.
    fn is_before(&self, up: &ExpertProduct) -> bool {
        let format = self.weight.format;
        let behind = |at: u64, bytes: usize| at + (self.weight.rows * bytes) as u64;
        let (of, scales) = (format.row_bytes(self.weight.cols), format.scale_bytes(self.weight.cols));
        (up.weight.format, up.x, up.weight.rows) == (format, self.x, self.weight.rows)
            && up.weight.offset == behind(self.weight.offset, of)
            && up.weight.scales == behind(self.weight.scales, scales)
    }
}

/// The operands of an [`Op::Route`].
#[derive(Clone, Copy)]
pub(super) struct RouteOperands {
    pub(super) scores: Slot,
    pub(super) scale: f32,
    pub(super) factors: Vector,
    pub(super) chosen: Slot,
    pub(super) gains: Slot,
    pub(super) kept: Option<usize>,
}

/// A router: the norm before it, and its weights.
#[derive(Clone, Copy)]
pub(super) struct Router {
    x: Slot,
    norm: Vector,
    eps: f32,
    weight: Matrix,
}

/// The division of the expert rows of a layer.
#[derive(Clone, Copy)]
pub(super) struct ExpertTiles {
    /// The arithmetic of all products of the layer's experts.
    arithmetic: Arithmetic,
    /// Rows of an expert: on matrix units their expected number, else a tile's height.
    rows: usize,
    /// The number of rows in a tile.
    height: usize,
    /// The most tiles that a pass may have.
    count: usize,
}

/// The tiles of an expert product, as its kernel reads them.
pub(super) struct ExpertRows {
    /// The device address of the table of tiles.
    pub(super) table: u64,
    /// The number of entries in the table.
    pub(super) tiles: u32,
    /// True if the inputs were copied, so that the rows of each expert are adjacent.
    pub(super) gathers: bool,
}

impl PieceLowering<'_> {
    /// Whether the piece brings the rows of an expert together in the layer of the step at `at`. It must then have all
    /// steps from the choice of experts to their sum.
    pub(super) fn groups_experts(&self, at: usize) -> bool {
        if self.kind.rows < GROUPED_ROWS {
            return false;
        }
        let steps = self.schedule.steps_of(self.schedule.steps[at].segment);
        let is_end = |at: &usize| matches!(self.schedule.steps[*at].op, Op::Route { .. } | Op::ExpertSum { .. });
        let mut ends = steps.filter(is_end).peekable();
        ends.peek().is_some() && ends.all(|end| self.steps.contains(&end))
    }

    /// The division of the expert rows in the layer of the step at `at`.
    fn expert_tiles(&self, at: usize) -> ExpertTiles {
        let steps = self.schedule.steps_of(self.schedule.steps[at].segment);
        let all: Vec<ExpertProduct> =
            self.schedule.steps[steps].iter().filter_map(|step| ExpertProduct::of(&step.op)).collect();
        let Some(first) = all.first() else {
            return ExpertTiles { arithmetic: Arithmetic::F32, rows: 1, height: 1, count: 1 };
        };
        let (experts, pairs) = (first.experts(), self.kind.rows * first.chosen.width);
        let read = distinct_experts(experts, first.chosen.width, self.kind.rows as u64);
        let is_grouped = self.groups_experts(at);
        let rows = if is_grouped { (pairs as f64 / read).round() as usize } else { 1 };
        // Rows of a device that multiplies two of them on matrix units are on these in every grouped pass.
        let usual = self.target.arithmetics(first.weight.format, rows.max(2))[0];
        let on_units = is_grouped && matches!(usual, Arithmetic::Matrix(_));
        let tile = on_units.then(|| self.matrix_tile(first, rows, None)).flatten();
        let height = tile.map(|tile| tile.shape.area()[0] as usize);
        let height = height.filter(|&height| all.iter().all(|e| self.matrix_tile(e, rows, Some(height)).is_some()));
        let by_dots = |e: &ExpertProduct| self.target.dot && modules(e.weight.format).dot.is_some();
        let few = Product::columns(rows);
        let (arithmetic, rows, height) = match height {
            Some(height) => (Arithmetic::Matrix(Operand::F16), rows, height),
            None if all.iter().all(by_dots) => (Arithmetic::IntegerDot, few, few),
            None => (Arithmetic::F32, few, few),
        };
        let count = if is_grouped { pairs / height + pairs.min(experts) } else { pairs };
        ExpertTiles { arithmetic, rows, height, count }
    }

    /// The arithmetic of the experts' products in the layer of the step at `at`.
    pub(super) fn expert_arithmetic(&self, at: usize) -> Arithmetic {
        self.expert_tiles(at).arithmetic
    }

    /// The tile of an expert's product on matrix units, of `height` rows if that is given.
    fn matrix_tile(&self, e: &ExpertProduct, rows: usize, height: Option<usize>) -> Option<MatrixTile> {
        let f16 = Arithmetic::Matrix(Operand::F16);
        let can = modules(e.weight.format).matrix.is_some() && self.target.units.is_some();
        let product = e.product(rows, false);
        // A tile for as many workgroups as all experts have together.
        let usual = self.target.tile(f16, Product { outputs: e.weight.rows, ..product }).into_iter();
        let others = std::iter::once_with(|| self.target.tiles(f16, product)).flatten();
        let tiles = usual.chain(others).filter_map(|tile| match tile {
            Tile::Matrix(tile) if tile.splits == 1 => Some(tile),
            _ => None,
        });
        tiles.filter(|_| can).find(|tile| height.is_none_or(|height| tile.shape.area()[0] as usize == height))
    }

    /// The activation layout and the packed slot from which the expert product at `at` reads its inputs.
    fn expert_inputs(&self, at: usize, e: &ExpertProduct) -> (ActivationLayout, Option<PackedSlot>) {
        let layout = modules(e.weight.format).inputs(self.expert_tiles(at).arithmetic);
        if !self.gathers(at, e) {
            return (layout, self.layout.packed(e.x));
        }
        (layout, Some(gathered(self.layout.experts.gathered, e.x, layout)))
    }

    /// True if the inputs of the expert product at `at` are copied, so that the rows of each expert are adjacent.
    fn gathers(&self, at: usize, e: &ExpertProduct) -> bool {
        self.groups_experts(at) && e.share > 1
    }

    /// The activation layout in which the expert product at `at` reads the slot of its inputs. Inputs that are copied
    /// lie there in f32.
    pub(super) fn expert_layout(&self, at: usize, e: &ExpertProduct) -> ActivationLayout {
        if self.gathers(at, e) { ActivationLayout::F32 } else { self.expert_inputs(at, e).0 }
    }
}

/// The copies of `slot`'s rows in `layout`, in the order of the experts, at `offset` in the arena.
fn gathered(offset: u64, slot: Slot, layout: ActivationLayout) -> PackedSlot {
    let padded = slot.width.next_multiple_of(32);
    let stride = if layout == ActivationLayout::F32 { 4 * slot.stride } else { layout.row_bytes(padded) };
    PackedSlot { offset, stride: stride.next_multiple_of(64), padded, whole_rows: true }
}

/// The regions of the arena for the experts' rows: bytes from the arena's start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ExpertRegions {
    /// The offset in the arena of the table of tiles, four u32 each.
    table: u64,
    /// The expert rows of the pass in the order of the experts, and their places in it: a u32 for each.
    list: u64,
    place: u64,
    /// The offset in the arena of route.comp's counters, [`ROUTE_COUNTERS`] in number.
    arrived: u64,
    /// The inputs of gate and up in the order of the experts.
    gathered: u64,
}

impl ExpertRegions {
    /// The regions for a schedule; `take` gives so many bytes of the arena.
    pub(super) fn place(schedule: &Schedule, mut take: impl FnMut(u64) -> u64) -> ExpertRegions {
        let Some(experts) = schedule.shape.experts else { return ExpertRegions::default() };
        let pairs = schedule.extent.max_rows * experts.used;
        let products = schedule.steps.iter().filter_map(|step| ExpertProduct::of(&step.op));
        let layouts = [ActivationLayout::F32, ActivationLayout::Int16Sums, ActivationLayout::F16Row];
        let strides = products.filter(|e| e.share > 1).flat_map(|e| layouts.map(|to| gathered(0, e.x, to).stride));
        let stride = strides.max().unwrap_or(0);
        // The slot of the experts' outputs, which are written when gate and up have read their inputs.
        let parts = schedule.steps.iter().find_map(|step| match step.op {
            Op::ExpertSum { x, .. } if 4 * x.stride >= stride => Some(x.offset),
            _ => None,
        });
        ExpertRegions {
            table: take(16 * (pairs + experts.count) as u64),
            list: take(4 * pairs as u64),
            place: take(4 * pairs as u64),
            arrived: take(4 * ROUTE_COUNTERS as u64),
            gathered: parts.unwrap_or_else(|| take((pairs * stride) as u64)),
        }
    }
}

impl PieceLowering<'_> {
    /// The norm before a router, the router's product and the choice of experts, as one kernel.
    pub(super) fn fuse_route(&self, at: usize, steps: &[Step]) -> Option<LoweredKernel> {
        let [norm, product, route, ..] = steps else { return None };
        let &Op::RmsNorm { x, weight: norm, eps, out } = &norm.op else { return None };
        let &Op::Linear { weight, x: read, out: to } = &product.op else { return None };
        let &Op::Route { scores, scale, factors, chosen, gains, kept } = &route.op else { return None };
        let is_one = out == read && to == scores && weight.format == WeightFormat::Bf16;
        let route = RouteOperands { scores, scale, factors, chosen, gains, kept };
        is_one.then(|| self.route(at, route, Some(Router { x, norm, eps, weight })))
    }

    /// The choice of experts at `at`; with `router`, their scores too.
    pub(super) fn route(&self, at: usize, route: RouteOperands, router: Option<Router>) -> LoweredKernel {
        let RouteOperands { scores, scale, factors, chosen, gains, kept } = route;
        let has_router = router.is_some();
        let weight = router.map_or(0, |router| self.weight(router.weight.buffer, router.weight.offset));
        let (x, norm, eps) = router.map_or((scores, factors, 0.0), |router| (router.x, router.norm, router.eps));
        let (rows, regions, arena) = (self.kind.rows, self.layout.experts, self.addresses.arena);
        let (columns, each) = match rows < MANY_ROWS {
            true => (1, 1),
            false => (ROUTE_COLUMNS.max(rows.div_ceil(ROUTE_COUNTERS)), ROUTE_EXPERTS),
        };
        let subgroups = (WORKGROUP / self.target.subgroup).max(1);
        let push = RoutePush {
            state: self.addresses.state,
            x: self.slot(x),
            w: self.vector(norm),
            router: weight,
            scores: self.slot(scores),
            factors: self.vector(factors),
            chosen: self.slot(chosen),
            gains: self.slot(gains),
            table: if self.groups_experts(at) { 0 } else { arena + regions.table },
            arrived: arena + regions.arrived,
            which: Lowering::row_count_word(Rows::Pass),
            width: word(x.width),
            x_stride: word(x.stride),
            experts: word(scores.width),
            used: word(chosen.width),
            scores_stride: word(scores.stride),
            used_stride: word(chosen.stride),
            kept: word(kept.unwrap_or(0)),
            scale,
            eps,
        };
        let constants = RouteConstants { columns: columns as u32, choose_only: u32::from(!has_router), each };
        let kernel = Kernel::new(Module::Route, subgroups * self.target.subgroup, constants);
        let groups = if has_router { word(scores.width).div_ceil(subgroups * each) } else { 1 };
        let taken = if has_router { 3 } else { 1 };
        LoweredKernel::new(kernel, &push, [groups, rows.div_ceil(columns) as u32, 1], taken)
    }

    /// The dispatches behind the choice of experts at `at`, one after the other: in a grouped pass the tiles of the
    /// expert rows, and the experts' inputs in their order.
    pub(super) fn group(&self, at: usize) -> Vec<LoweredKernel> {
        if !matches!(self.schedule.steps[at].op, Op::Route { .. }) || !self.groups_experts(at) {
            return Vec::new();
        }
        let behind = (at..).zip(&self.schedule.steps[at..]);
        let first = behind.filter_map(|(at, step)| Some((at, step.rows, ExpertProduct::of(&step.op)?))).next();
        let Some((next, rows, e)) = first else { return Vec::new() };
        let (layout, to) = self.expert_inputs(next, &e);
        let list = self.addresses.arena + self.layout.experts.list;
        let gather = to.map(|to| self.pack_rows(e.x, rows, layout, to, 1, Some((list, e.share))));
        [self.table(next, &e)].into_iter().chain(gather).collect()
    }

    /// Makes the table of tiles for the expert product at `at`.
    fn table(&self, at: usize, e: &ExpertProduct) -> LoweredKernel {
        let (tiles, regions, arena) = (self.expert_tiles(at), self.layout.experts, self.addresses.arena);
        let push = GroupPush {
            state: self.addresses.state,
            chosen: self.slot(e.chosen),
            table: arena + regions.table,
            list: arena + regions.list,
            place: arena + regions.place,
            which: word(StateLayout::EXPERT_ROWS),
            experts: word(e.experts()),
            used: word(e.chosen.width),
            used_stride: word(e.chosen.stride),
            height: word(tiles.height),
            tiles: word(tiles.count),
        };
        let constants = GroupConstants { sorts: u32::from(self.groups_experts(at)) };
        LoweredKernel::new(Kernel::new(Module::Group, GROUP_WORKGROUP, constants), &push, [1; 3], 0)
    }

    /// The table of tiles for the piece's first expert product, if the choice of experts is in an earlier piece.
    pub(super) fn entry_table(&self) -> Option<LoweredKernel> {
        let is_early = |at: &usize| !matches!(self.schedule.steps[*at].op, Op::Route { .. });
        let mut first = self.steps.clone().take_while(is_early);
        let (at, e) = first.find_map(|at| Some((at, ExpertProduct::of(&self.schedule.steps[at].op)?)))?;
        Some(self.table(at, &e))
    }

    /// The product of gate and of up with their gated GELU as one kernel, if the first of `steps`, at `at`, are these.
    pub(super) fn fuse_experts(&self, at: usize, steps: &[Step]) -> Option<LoweredKernel> {
        let [gate, up, gelu, ..] = steps else { return None };
        let (gate, up) = (ExpertProduct::of(&gate.op)?, ExpertProduct::of(&up.op)?);
        let Op::GatedGelu { out, .. } = gelu.op else { return None };
        let is_fused = self.expert_tiles(at).arithmetic == Arithmetic::IntegerDot
            && self.written(at + 2, out, gelu.rows).0.is_scaled_by_block();
        (is_fused && gate.is_before(&up)).then(|| self.expert_linear(at, &gate, Some((at + 2, out))))
    }

    /// An expert product; with `gelu`, those of gate and up, and their gated GELU of the step there, into a slot.
    pub(super) fn expert_linear(&self, at: usize, e: &ExpertProduct, gelu: Option<(usize, Slot)>) -> LoweredKernel {
        let ExpertTiles { arithmetic, rows, height, count } = self.expert_tiles(at);
        let mut product = e.product(rows, gelu.is_some());
        if self.gathers(at, e) {
            product.experts = 1;
        }
        let tile = match arithmetic {
            Arithmetic::Matrix(_) => self.matrix_tile(e, rows, Some(height)).map(Tile::Matrix),
            // A tile for as many workgroups as the experts of a row have together.
            _ => self.target.tile(arithmetic, Product { outputs: e.chosen.width * product.outputs, ..product }),
        };
        let table = self.addresses.arena + self.layout.experts.table;
        let l = Linear {
            x: e.x,
            out: gelu.map_or(e.out, |(_, out)| out),
            rows: self.schedule.steps[at].rows,
            product,
            weight: self.weight(e.weight.buffer, e.weight.offset),
            scales: self.weight(e.weight.buffer, e.weight.scales),
            gelu: gelu.map(|(step, _)| (step, e.weight.rows)),
            experts: Some(ExpertRows { table, tiles: count as u32, gathers: self.gathers(at, e) }),
        };
        let lowered = self.product(&l, self.expert_inputs(at, e).1, None, arithmetic, tile);
        LoweredKernel { taken: if gelu.is_some() { 3 } else { 1 }, weights: self.weight_range(e.weight), ..lowered }
    }

    /// The end of a layer with experts as one kernel, if `steps`, which begin at `at`, are these: the experts' sum, the
    /// norms of both halves, that of their sum, and the next layer's first norm.
    pub(super) fn fuse_join(&self, at: usize, steps: &[Step]) -> Option<LoweredKernel> {
        let [sum, dense, experts, both, ..] = steps else { return None };
        let &Op::ExpertSum { x: parts, gains, out: summed } = &sum.op else { return None };
        let &Op::RmsNorm { x, weight: of_dense, eps, out: halves } = &dense.op else { return None };
        let &Op::NormAdd { x: m, weight: of_experts, eps: eps2, residual: to, scalar: None } = &experts.op else {
            return None;
        };
        let &Op::NormAdd { x: of, weight, eps: eps3, residual, scalar } = &both.op else { return None };
        let next = steps.get(4).and_then(|step| match step.op {
            Op::RmsNorm { x, weight, eps: of, out } if x == residual && of == eps => Some((weight, out)),
            _ => None,
        });
        let vectors = [Some(of_dense), Some(of_experts), Some(weight), scalar].into_iter().flatten();
        let is_one = (summed, halves, halves, eps, eps) == (m, to, of, eps2, eps3)
            && [x.stride, parts.stride, residual.stride].iter().all(|stride| *stride == x.stride)
            && vectors.clone().all(|v| v.buffer == weight.buffer);
        if !is_one {
            return None;
        }
        let (layout, packed) = match next {
            Some((_, out)) => self.written(at + 4, out, Rows::Pass),
            None => (ActivationLayout::F32, None),
        };
        let out = next.map_or(residual, |(_, out)| out);
        let arena = self.addresses.arena;
        let push = JoinPush {
            state: self.addresses.state,
            x: self.slot(x),
            parts: self.slot(parts),
            gains: self.slot(gains),
            place: arena + self.layout.experts.place,
            residual: self.slot(residual),
            y_out: packed.map_or(self.slot(out), |to| arena + to.offset),
            weights: self.weight(weight.buffer, 0),
            next: next.map_or(0, |(weight, _)| self.vector(weight)),
            dense: word(of_dense.offset as usize / 4),
            experts: word(of_experts.offset as usize / 4),
            w: word(weight.offset as usize / 4),
            scalar: scalar.map_or(0, |scalar| word(scalar.offset as usize / 4)),
            which: Lowering::row_count_word(Rows::Pass),
            width: word(x.width),
            stride: word(x.stride),
            used_stride: word(gains.stride),
            out_stride: packed.map_or(word(4 * out.stride), |to| word(to.stride)),
            padded: packed.map_or(0, |to| word(to.padded)),
            eps,
        };
        let (vecs, workgroup) = row_division(packed.map_or(x.width, |to| to.padded));
        let constants = JoinConstants {
            vecs,
            form: layout as u32,
            grouped_rows: u32::from(self.groups_experts(at)),
            next: u32::from(next.is_some()),
            scaled: u32::from(scalar.is_some()),
            used: word(gains.width),
        };
        let taken = 4 + usize::from(next.is_some());
        let kernel = Kernel::new(Module::Join, workgroup, constants);
        Some(LoweredKernel::new(kernel, &push, [1, self.kind.rows as u32, 1], taken))
    }

    /// The weighted sum of the experts' outputs at `at`.
    pub(super) fn expert_sum(&self, at: usize, x: Slot, gains: Slot, out: Slot) -> LoweredKernel {
        let push = ExpertSumPush {
            state: self.addresses.state,
            x: self.slot(x),
            gains: self.slot(gains),
            place: self.addresses.arena + self.layout.experts.place,
            y_out: self.slot(out),
            which: Lowering::row_count_word(Rows::Pass),
            width: word(out.width),
            used: word(gains.width),
            x_stride: word(x.stride),
            used_stride: word(gains.stride),
            out_stride: word(out.stride),
        };
        let constants = ExpertSumConstants { grouped_rows: u32::from(self.groups_experts(at)) };
        let kernel = Kernel::new(Module::ExpertSum, WORKGROUP, constants);
        let groups = [word(out.width).div_ceil(4 * WORKGROUP), self.kind.rows as u32, 1];
        LoweredKernel::new(kernel, &push, groups, 1)
    }
}

#[cfg(test)]
mod tests {
    use crate::model::config::limit;

    #[test]
    fn shaders_have_room_for_as_many_experts_as_a_model_may_have() {
        let room = format!("#define MOST_EXPERTS {}\n", limit::EXPERTS);
        for shader in [include_str!("../../shaders/route.comp"), include_str!("../../shaders/group.comp")] {
            assert!(shader.contains(&room), "{shader}");
        }
    }
}
