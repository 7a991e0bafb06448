//! Lowering of matrix products.

use super::arithmetic::{ActivationLayout, Arithmetic};
use super::experts::ExpertRows;
use super::layout::PackedSlot;
use super::lowering::{LoweredKernel, Lowering};
use super::matrix::MatrixTile;
use super::piece::PieceLowering;
use super::target::{DOT_BLOCK, DotTile, Product, Tile};
use crate::lower::kernels::push::{LinearDotPush, LinearDotTilePush, LinearMatrixPush, LinearPush, word};
use crate::schedule::step::{Matrix, Rows, Slot};
use std::ops::Range;

/// A product with the slots and the addresses of its operands.
pub(super) struct Linear {
    pub(super) x: Slot,
    pub(super) out: Slot,
    pub(super) rows: Rows,
    pub(super) product: Product,
    /// Device addresses of the weight and of its scales.
    pub(super) weight: u64,
    pub(super) scales: u64,
    /// With gelu: the step of the gated GELU, and rows of weights from a gate's to its up's.
    pub(super) gelu: Option<(usize, usize)>,
    /// The rows of each expert, if this is a product of experts.
    pub(super) experts: Option<ExpertRows>,
}

impl Linear {
    /// Device address of the table of the expert rows' tiles.
    fn table(&self) -> u64 {
        self.experts.as_ref().map_or(0, |experts| experts.table)
    }
}

impl PieceLowering<'_> {
    /// The step at `at`. With `gelu`, `weight` holds the rows of gate and up, and `out` receives the gated product.
    pub(super) fn linear(
        &self,
        at: usize,
        weight: Matrix,
        x: Slot,
        out: Slot,
        rows: Rows,
        gelu: bool,
    ) -> LoweredKernel {
        let from = self.gated_from(at, x);
        let product = Product { blocks: from.is_some(), ..Product::new(weight, self.count(rows), gelu) };
        let arithmetic = self.arithmetic(at, weight, x, rows);
        let (w, scales) = (self.weight(weight.buffer, weight.offset), self.weight(weight.buffer, weight.scales));
        let gelu_step = gelu.then_some((at + 1, product.outputs));
        let l = Linear { x, out, rows, product, weight: w, scales, gelu: gelu_step, experts: None };
        let tile = self.target.tile(arithmetic, product);
        let lowered = self.product(&l, self.layout.packed(x), from, arithmetic, tile);
        let taken = 1 + usize::from(gelu);
        LoweredKernel { taken, weights: self.weight_range(weight), ..lowered }
    }

    /// Device addresses of a matrix, from its first row to the end of its rows and scales.
    pub(super) fn weight_range(&self, weight: Matrix) -> Range<u64> {
        let (w, scales) = (self.weight(weight.buffer, weight.offset), self.weight(weight.buffer, weight.scales));
        let end = |first: u64, bytes: usize| first + (weight.rows * bytes) as u64;
        let last =
            end(w, weight.format.row_bytes(weight.cols)).max(end(scales, weight.format.scale_bytes(weight.cols)));
        w..last
    }

    /// A product. `x`: its inputs, unless it reads them in f32; `from` as in [`PieceLowering::gated_from`].
    pub(super) fn product(
        &self,
        l: &Linear,
        x: Option<PackedSlot>,
        from: Option<Slot>,
        arithmetic: Arithmetic,
        tile: Option<Tile>,
    ) -> LoweredKernel {
        debug_assert!(l.experts.is_none() || arithmetic == Arithmetic::F32 || tile.is_some(), "no tile for experts");
        let packed = x.and_then(|packed| match (arithmetic, tile) {
            (Arithmetic::IntegerDot, Some(Tile::Dot(tile))) => self.linear_dot(l, packed, tile),
            (Arithmetic::IntegerDot, _) => self.linear_dot_tile(l, packed),
            (Arithmetic::Matrix(_), Some(Tile::Matrix(tile))) => self.linear_matrix(l, packed, from, tile),
            _ => None,
        });
        packed.unwrap_or_else(|| self.linear_f32(l, x))
    }

    fn linear_dot(&self, l: &Linear, x: PackedSlot, tile: DotTile) -> Option<LoweredKernel> {
        let arena = self.addresses.arena;
        let (form, to) = match l.gelu {
            Some((gelu, _)) => self.written(gelu, l.out, l.rows),
            None => (ActivationLayout::F32, None),
        };
        let (mut kernel, mut groups) = self.target.dot(l.product, tile, form)?;
        // A router runs beside the dense half's first products, which then share its counter. A product with stages does not.
        if l.rows == Rows::Pass && self.schedule.shape.experts.is_some() {
            kernel = kernel.in_one_stage();
        }
        l.experts.iter().for_each(|experts| groups[1] = experts.tiles);
        let push = LinearDotPush {
            state: self.addresses.state,
            weight: l.weight,
            scales: l.scales,
            x: arena + x.offset,
            y_out: to.map_or(self.slot(l.out), |t| arena + t.offset),
            table: l.table(),
            which: Lowering::row_count_word(l.rows),
            n: word(l.product.outputs),
            x_padded: word(x.padded),
            x_stride: word(x.stride),
            out_stride: word(to.map_or(l.out.stride, |t| t.stride)),
            out_padded: to.map_or(0, |t| word(t.padded)),
            apart: l.gelu.map_or(0, |(_, apart)| word(apart)),
        };
        Some(LoweredKernel {
            product: Some((Arithmetic::IntegerDot, l.product)),
            ..LoweredKernel::new(kernel, &push, groups, 1)
        })
    }

    fn linear_dot_tile(&self, l: &Linear, x: PackedSlot) -> Option<LoweredKernel> {
        let (kernel, groups) = self.target.dot_tile(l.product)?;
        let push = LinearDotTilePush {
            state: self.addresses.state,
            weight: l.weight,
            scales: l.scales,
            x: self.addresses.arena + x.offset,
            y_out: self.slot(l.out),
            which: Lowering::row_count_word(l.rows),
            n: word(l.product.outputs),
            blocks: word(l.product.inputs / DOT_BLOCK),
            x_padded: word(x.padded),
            x_stride: word(x.stride),
            out_stride: word(l.out.stride),
        };
        Some(LoweredKernel::new(kernel, &push, groups, 1))
    }

    /// `from`: the result of [`PieceLowering::gated_from`] for the step.
    fn linear_matrix(&self, l: &Linear, x: PackedSlot, from: Option<Slot>, tile: MatrixTile) -> Option<LoweredKernel> {
        let arena = self.addresses.arena;
        let Product { format, inputs, .. } = l.product;
        let kernel = tile.kernel(self.target.units?, format, inputs, l.product.role())?.of_experts(l.product.experts);
        let [parts, arrived] = self.layout.scratch.product.map(|offset| arena + offset);
        // A row's scale lies after its elements; for a row in F16Block, after the scale of the row that it was computed
        // from.
        let (scaled, behind) = match from {
            Some(from) => (self.layout.packed(from)?, 4),
            None => (x, 0),
        };
        let gated = l.gelu.and_then(|(gelu, _)| self.written(gelu, l.out, l.rows).1);
        let push = LinearMatrixPush {
            state: self.addresses.state,
            weight: l.weight,
            scales: l.scales,
            x: arena + x.offset,
            x_scales: arena + scaled.offset + 2 * scaled.padded as u64 + behind,
            y_out: gated.map_or(self.slot(l.out), |to| arena + to.offset),
            parts,
            arrived,
            table: l.table(),
            which: Lowering::row_count_word(l.rows),
            n: word(l.product.outputs),
            k: word(l.product.inputs),
            x_stride: word(x.stride),
            x_scale_stride: word(scaled.stride),
            out_stride: word(gated.map_or(l.out.stride, |to| to.stride)),
            splits: tile.splits,
        };
        let mut groups = tile.groups(l.product.rows, l.product.weight_rows(l.product.outputs));
        l.experts.iter().for_each(|experts| groups[0] = experts.tiles);
        Some(LoweredKernel {
            product: Some((Arithmetic::Matrix(tile.operand), l.product)),
            ..LoweredKernel::new(kernel, &push, groups, 1)
        })
    }

    /// `x`: the inputs in f32, if they do not lie in their slot.
    fn linear_f32(&self, l: &Linear, x: Option<PackedSlot>) -> LoweredKernel {
        let (kernel, mut groups) = self.target.f32(l.product);
        let gathered = x.filter(|_| l.experts.as_ref().is_some_and(|experts| experts.gathers));
        l.experts.iter().for_each(|experts| groups[1] = experts.tiles);
        let push = LinearPush {
            state: self.addresses.state,
            weight: l.weight,
            scales: l.scales,
            x: gathered.map_or(self.slot(l.x), |x| self.addresses.arena + x.offset),
            y_out: self.slot(l.out),
            table: l.table(),
            which: Lowering::row_count_word(l.rows),
            n: word(l.product.outputs),
            k: word(l.product.inputs),
            x_stride: word(gathered.map_or(l.x.stride, |x| x.stride / 4)),
            out_stride: word(l.out.stride),
        };
        LoweredKernel::new(kernel, &push, groups, 1)
    }
}
