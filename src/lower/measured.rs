//! Tiles for GPUs on which nothing was measured yet, from measurements of their kind: those that an H200 chose for the
//! products of Gemma 3 27B, in INT8, INT4, Q4_K and Q6_K, or close to them; of experts for those of Gemma 4 26B-A4B.

use super::arithmetic::{Arithmetic, Operand};
use super::attend_tile::AttendTile;
use super::fragment::FragmentTile;
use super::matrix::{MatrixShape, MatrixTile};
use super::shared_tile::SharedTile;
use super::target::{AttendBy, DotTile, Product, TILE_ROWS, Target, Tile};

/// The least inputs or outputs of a product with a separate tile.
const LONG_ROW: usize = 16384;
const MANY_OUTPUTS: usize = 32768;
/// Most inputs and outputs of a product of one row with a separate tile.
const SHORT_ROW: usize = 1024;
const FEW_OUTPUTS: usize = 2048;
/// Most rows that attend row by row, and most rows whose keys are divided among workgroups.
const ATTEND_APART: usize = 16;
const ATTEND_SHARED: usize = 128;

impl Target {
    /// The measured tile of a product; if there is none, the first of its list.
    pub(super) fn measured(&self, arithmetic: Arithmetic, p: Product) -> Option<Tile> {
        let dot = |outputs, in_flight, subgroups, turns| {
            let sharers = self.subgroup;
            let unroll = self.dot_unroll(p, outputs, sharers, in_flight);
            Some(Tile::Dot(DotTile { outputs: outputs as u32, sharers, unroll, subgroups, turns }))
        };
        let is_grouped = p.format.grouped().is_some();
        match (arithmetic, p.gelu, p.rows) {
            (Arithmetic::F32, ..) | (Arithmetic::IntegerDot, _, TILE_ROWS..) => None,
            (Arithmetic::Matrix(operand), ..) => {
                let tiles = self.tiles(arithmetic, p);
                let is_known = operand == Operand::F16 && self.is_listed();
                let best = is_known.then(|| matrix(p)).flatten().map(Tile::Matrix);
                best.filter(|best| tiles.contains(best)).or(tiles.first().copied())
            }
            // Of experts a row has several, each with few outputs.
            (Arithmetic::IntegerDot, true, 1) if p.experts > 0 && is_grouped => dot(2, 4, 8, 1),
            (Arithmetic::IntegerDot, true, 1) if p.experts > 0 => dot(1, 12, 8, 1),
            (Arithmetic::IntegerDot, false, 1) if p.experts > 0 => dot(2, 12, 4, 1),
            (Arithmetic::IntegerDot, true, 1) if is_grouped => dot(1, 4, 8, 4),
            (Arithmetic::IntegerDot, false, 1) if is_grouped && p.inputs < LONG_ROW => dot(2, 4, 16, 1),
            (Arithmetic::IntegerDot, true, 0..=2) => dot(2, 24, 4, 2),
            (Arithmetic::IntegerDot, true, _) => dot(2, 4, 8, 1),
            // A drafter's products: as many workgroups as there are processors, and a head whose rows are two loads long.
            (Arithmetic::IntegerDot, false, 1) if p.outputs < FEW_OUTPUTS => dot(1, 12, 4, 1),
            (Arithmetic::IntegerDot, false, 1) if p.inputs <= SHORT_ROW && p.outputs >= MANY_OUTPUTS => {
                dot(4, 12, 4, 4)
            }
            (Arithmetic::IntegerDot, false, 0..=2) => dot(4, 12, 4, 1),
            (Arithmetic::IntegerDot, false, _) => dot(4, 4, 4, 1),
        }
    }
}

/// Most rows of a gated GELU that is computed after its products: with more rows, the products and a separate GELU take
/// less time.
pub(super) fn gated_rows(p: Product) -> usize {
    if p.format.grouped().is_some() { 16 } else { 32 }
}

/// The method of attention for `rows` rows of one sequence, given the device's tiles.
pub(super) fn attend(rows: usize, tiles: &[AttendTile]) -> AttendBy {
    let shared = |fits: fn(&AttendTile) -> bool| tiles.iter().position(|t| t.splits > 1 && fits(t)).unwrap_or(0);
    match rows {
        ..=ATTEND_APART => AttendBy::Row,
        33..=64 => AttendBy::Tile(shared(|t| t.subgroups == 4)),
        _ if rows <= ATTEND_SHARED => AttendBy::Tile(shared(|_| true)),
        _ => AttendBy::Tile(0),
    }
}

/// The tile of a product on f16 matrix units. `None`: the first of the list is as good.
#[rustfmt::skip]
fn matrix(p: Product) -> Option<MatrixTile> {
    let direct = |rows, outputs, subgroups, span, depth, splits| {
        fragment(FragmentTile::direct(rows, outputs, subgroups, span, depth), splits)
    };
    // With scales of groups, registers limit the second step of inputs (`FragmentTile::in_stages_for`).
    let is_grouped = p.format.grouped().is_some();
    let shared = |rows, outputs, stages, splits| {
        let stages = if is_grouped { 1 } else { stages };
        fragment(FragmentTile::shared(rows, outputs, [4, 1], 1, stages), splits)
    };
    let staged = |area, subgroup, parts, splits| {
        let shape = MatrixShape::Shared(SharedTile::new(area, subgroup, parts, [2, 2]));
        MatrixTile { operand: Operand::F16, shape, splits }
    };
    let shares = p.format.grouped().is_some_and(|grouped| grouped.scales.share_a_scale());
    let (is_long, is_large) = (p.inputs >= LONG_ROW, p.gelu || p.outputs >= MANY_OUTPUTS);
    Some(match p.rows {
        ..=8 if p.experts > 0 => direct(8, 32, [1, 4], if is_grouped { 1 } else { 2 }, 1, 1),
        ..=8 if !is_grouped => return None,
        ..=8 if is_large => direct(8, 32, [1, 4], 1, 1, 1),
        ..=8 if is_long => direct(8, 32, [1, 4], if shares { 1 } else { 2 }, 1, 3),
        ..=8 => direct(8, if shares { 16 } else { 32 }, [1, 8], 2, 1, 1),

        9..=16 if is_large && is_grouped => direct(16, 32, [4, 1], 2, 1, 1),
        9..=16 if is_large => direct(16, 32, [2, 2], 1, 1, 1),
        9..=16 if is_long && p.blocks => direct(16, 32, [1, 4], if is_grouped { 1 } else { 2 }, 1, 3),
        9..=16 if is_long && is_grouped => direct(16, 32, [2, 4], 1, 1, 3),
        9..=16 => direct(16, 32, [1, 8], if is_grouped { 1 } else { 2 }, 1, 1),

        17..=32 if p.gelu => direct(32, 32, [4, 1], 1, if is_grouped { 1 } else { 3 }, 1),
        17..=32 if is_large => {
            let depth = if is_grouped { 1 } else { 4 };
            fragment(FragmentTile::shared(32, 32, [4, 1], depth, 2), 1)
        }
        17..=32 if is_long && !is_grouped => direct(32, 48, [1, 8], 2, 1, 1),
        17..=32 if is_long || is_grouped => direct(32, 48, [1, 8], 1, 1, 1),
        17..=32 => direct(32, 32, [1, 8], 1, 1, 1),

        33..=64 if p.gelu => direct(64, 32, [1, 4], 1, 1, 1),
        33..=64 if is_large => shared(64, 48, 2, 1),
        33..=64 if is_long && p.blocks && is_grouped => direct(64, 32, [1, 4], 1, 1, 3),
        33..=64 if is_long && is_grouped => staged([64, 128, 64], [32, 32], 1, 3),
        33..=64 if is_grouped => staged([64, 64, 128], [32, 32], 2, 1),
        33..=64 => direct(64, 48, [1, 8], 1, 1, 1),

        65..=128 if is_large => shared(64, 48, 2, 1),
        65..=128 if is_long => shared(64, 32, 1, 3),
        65..=128 => shared(64, 32, 1, 1),
        129..=256 if is_large => shared(64, 48, 2, 1),
        129..=256 if is_long => shared(64, 48, 2, 2),
        129..=256 => shared(64, 32, 1, 1),

        _ if shares && is_long => staged([192, 128, 64], [48, 64], 1, 1),
        _ if shares && is_large => fragment(FragmentTile::shared(128, 32, [8, 1], 1, 2), 1),
        _ => return None,
    })
}

fn fragment(tile: FragmentTile, splits: u32) -> MatrixTile {
    MatrixTile { operand: Operand::F16, shape: MatrixShape::Fragment(tile), splits }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lower::figures::Figures;
    use crate::lower::matrix::MatrixVariant;
    use crate::lower::units::HOPPER;
    use crate::model::{BlockFormat, WeightFormat};

    /// A tile that a product cannot have would silently be replaced by the first of the list.
    #[test]
    fn products_of_27b_can_have_the_tiles_that_were_measured() {
        let target = Target { figures: Figures::named("H200"), ..Target::new(32, true, Some(HOPPER)) };
        let [q4_k, q6_k] = [BlockFormat::Q4K, BlockFormat::Q6K].map(WeightFormat::Blocks);
        let mut found = 0;
        for format in [WeightFormat::Int8, WeightFormat::Int4, q4_k, q6_k] {
            for rows in [2, 4, 8, 16, 32, 64, 128, 256, 512] {
                let plain =
                    |outputs, inputs| Product { format, outputs, inputs, rows, gelu: false, blocks: false, experts: 0 };
                let all = [
                    plain(8192, 5376),
                    plain(5376, 4096),
                    plain(43008, 5376),
                    plain(5376, 21504),
                    Product { gelu: true, ..plain(21504, 5376) },
                    Product { blocks: true, ..plain(5376, 21504) },
                ];
                let is_made = |p: &Product| rows <= gated_rows(*p) || p.role() == MatrixVariant::Plain;
                for p in all.into_iter().filter(is_made) {
                    let Some(best) = matrix(p) else { continue };
                    let tiles = target.tiles(Arithmetic::Matrix(Operand::F16), p);
                    assert!(tiles.contains(&Tile::Matrix(best)), "{p:?}: {best:?}");
                    assert_eq!(target.usual(Arithmetic::Matrix(Operand::F16), p), Some(Tile::Matrix(best)));
                    found += 1;
                }
            }
        }
        assert!(found > 140, "{found}");
    }
}
