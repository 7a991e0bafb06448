//! Lowering of matrix products.

use super::arithmetic::{ActivationLayout, Arithmetic};
use super::layout::PackedSlot;
use super::lowering::{LoweredKernel, Lowering};
use super::matrix::MatrixTile;
use super::piece::PieceLowering;
use super::target::{DOT_BLOCK, DotTile, Product, Tile};
use crate::lower::kernels::push::{LinearDotPush, LinearDotTilePush, LinearMatrixPush, LinearPush, word};
use crate::schedule::step::{Matrix, Rows, Slot};

/// A linear step with its addresses.
struct Linear {
    x: Slot,
    out: Slot,
    rows: Rows,
    product: Product,
    /// Device addresses of the weight and of its scales.
    weight: u64,
    scales: u64,
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
        let l = Linear { x, out, rows, product, weight: w, scales };
        let lowered =
            self.layout.packed(x).and_then(|packed| match (arithmetic, self.target.tile(arithmetic, product)) {
                (Arithmetic::IntegerDot, Some(Tile::Dot(tile))) => self.linear_dot(at, &l, packed, tile),
                (Arithmetic::IntegerDot, _) => self.linear_dot_tile(&l, packed),
                (Arithmetic::Matrix(_), Some(Tile::Matrix(tile))) => self.linear_matrix(at, &l, packed, from, tile),
                _ => None,
            });
        let taken = 1 + usize::from(gelu);
        let end = |first: u64, bytes: usize| first + (weight.rows * bytes) as u64;
        let last =
            end(w, weight.format.row_bytes(weight.cols)).max(end(scales, weight.format.scale_bytes(weight.cols)));
        let weights = w..last;
        LoweredKernel { taken, weights, ..lowered.unwrap_or_else(|| self.linear_f32(&l)) }
    }

    fn linear_dot(&self, at: usize, l: &Linear, x: PackedSlot, tile: DotTile) -> Option<LoweredKernel> {
        let arena = self.addresses.arena;
        let (form, to) = match l.product.gelu {
            true => self.written(at + 1, l.out, l.rows),
            false => (ActivationLayout::F32, None),
        };
        let (kernel, groups) = self.target.dot(l.product, tile, form)?;
        let push = LinearDotPush {
            state: self.addresses.state,
            weight: l.weight,
            scales: l.scales,
            x: arena + x.offset,
            y_out: to.map_or(self.slot(l.out), |t| arena + t.offset),
            which: Lowering::row_count_word(l.rows),
            n: word(l.product.outputs),
            x_padded: word(x.padded),
            x_stride: word(x.stride),
            out_stride: word(to.map_or(l.out.stride, |t| t.stride)),
            out_padded: to.map_or(0, |t| word(t.padded)),
        };
        let product = Some((Arithmetic::IntegerDot, l.product));
        Some(LoweredKernel { product, ..LoweredKernel::new(kernel, &push, groups, 1) })
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
    fn linear_matrix(
        &self,
        at: usize,
        l: &Linear,
        x: PackedSlot,
        from: Option<Slot>,
        tile: MatrixTile,
    ) -> Option<LoweredKernel> {
        let arena = self.addresses.arena;
        let Product { format, inputs, .. } = l.product;
        let kernel = tile.kernel(self.target.units?, format, inputs, l.product.role())?;
        let [parts, arrived] = self.layout.scratch.product.map(|offset| arena + offset);
        // A row's scale lies after its elements; for a row in F16Block, after the scale of the row that it was computed
        // from.
        let (scaled, behind) = match from {
            Some(from) => (self.layout.packed(from)?, 4),
            None => (x, 0),
        };
        let gated = if l.product.gelu { self.written(at + 1, l.out, l.rows).1 } else { None };
        let push = LinearMatrixPush {
            state: self.addresses.state,
            weight: l.weight,
            scales: l.scales,
            x: arena + x.offset,
            x_scales: arena + scaled.offset + 2 * scaled.padded as u64 + behind,
            y_out: gated.map_or(self.slot(l.out), |to| arena + to.offset),
            parts,
            arrived,
            which: Lowering::row_count_word(l.rows),
            n: word(l.product.outputs),
            k: word(l.product.inputs),
            x_stride: word(x.stride),
            x_scale_stride: word(scaled.stride),
            out_stride: word(gated.map_or(l.out.stride, |to| to.stride)),
            splits: tile.splits,
        };
        let groups = tile.groups(l.product.rows, l.product.weight_rows(l.product.outputs));
        let product = Some((Arithmetic::Matrix(tile.operand), l.product));
        Some(LoweredKernel { product, ..LoweredKernel::new(kernel, &push, groups, 1) })
    }

    fn linear_f32(&self, l: &Linear) -> LoweredKernel {
        let (kernel, groups) = self.target.f32(l.product);
        let push = LinearPush {
            state: self.addresses.state,
            weight: l.weight,
            scales: l.scales,
            x: self.slot(l.x),
            y_out: self.slot(l.out),
            which: Lowering::row_count_word(l.rows),
            n: word(l.product.outputs),
            k: word(l.product.inputs),
            x_stride: word(l.x.stride),
            out_stride: word(l.out.stride),
        };
        LoweredKernel::new(kernel, &push, groups, 1)
    }
}
