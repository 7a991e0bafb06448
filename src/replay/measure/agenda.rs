//! The questions that tuning decides, and their estimated benefit.
//!
//! A question's benefit is the seconds that its answer may save in an hour of use. A question that costs more to
//! measure stays open: the tile from the cost model is then expected to be good enough.

use super::choices::ProductMethod;
use crate::lower::arithmetic::Arithmetic;
use crate::lower::target::{Product, Target};
use crate::lower::{PassKind, RowOrder};
use crate::schedule::{Extent, Segment};
use std::time::Duration;

/// The key of a chosen tile: a product, and the arithmetic that computes it.
pub type TileKey = (Arithmetic, Product);

/// A choice that tuning makes by measuring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Question {
    /// Whether dispatches are relayed (shaders/relay.glsl).
    Relay,
    /// The method of products in passes of a kind, with the tiles known so far.
    Way(PassKind),
    /// The tile of a product of a kind of pass.
    Tile(PassKind, TileKey),
    /// The method of attention for rows of one sequence.
    Attend(PassKind),
    /// The method of products in passes of a kind, each method with its own tuned tiles.
    Rematch(PassKind),
    /// The time of a pass, by which a pass of fewer rows may choose this kind.
    Seconds(PassKind),
}

/// The use over which a choice pays off: seconds of device time. A machine in use reaches this within days.
pub const USE: f64 = 3600.0;

/// The share of a product's time that its best tile may save, if the time's lower bound is not known.
pub const SPREAD: f64 = 0.2;
/// The largest share to expect from a lower bound.
pub const MOST_SPREAD: f64 = 0.4;
/// The smallest share to expect from a lower bound.
pub const LEAST_SPREAD: f64 = 0.02;

/// The share of the time of a kind of pass that [`Question::Relay`] may save.
pub const RELAY: f64 = 0.1;
/// The share of a pass's time that [`Question::Way`] may save.
pub const WAY: f64 = 0.1;
/// The share of a pass's time that [`Question::Attend`] may save.
pub const ATTEND: f64 = 0.02;
/// The share of a pass's time that [`Question::Rematch`] may save.
pub const REMATCH: f64 = 0.03;
/// The share of a pass's time that [`Question::Seconds`] may save.
pub const SECONDS: f64 = 0.01;

/// The expected share of passes of a kind in the time of all passes of an executor.
pub fn share(e: &Extent, kind: PassKind) -> f64 {
    let alone = e.sequences == 1;
    let [one, prompt, together, rest] = if alone { [0.5, 0.3, 0.0, 0.2] } else { [0.2, 0.25, 0.4, 0.15] };
    // The number of halvings from the largest kind of 2, 4, 8, ... rows to this one.
    let halvings = |most: usize| (most.next_power_of_two() / kind.rows.next_power_of_two()).max(1).ilog2() as i32;
    match kind.order {
        _ if kind.rows == 1 => one,
        RowOrder::Apart => together * 0.5f64.powi(halvings(e.sequences) + 1),
        _ if kind.rows == e.max_rows => prompt,
        _ => rest / f64::from(e.max_rows.next_power_of_two().ilog2().max(2) - 1),
    }
}

/// The probability that the `i`-th measurement of a question wins: later ones in the order of expected speed win more
/// rarely.
pub fn chance(i: usize) -> f64 {
    1.0 / (i + 2) as f64
}

/// A product of a pass: its key, and the segments that contain it.
#[derive(Debug, Clone)]
pub struct PassProduct {
    /// The product's sizes and its arithmetic, for which a tile is chosen.
    pub key: TileKey,
    /// The segment of each dispatch that computes the product.
    pub segments: Vec<Segment>,
}

/// The limits of a call of the tuner.
#[derive(Debug, Clone, Copy)]
pub struct Allowance {
    /// Time by the testbed's clock after which no measurement begins.
    pub until: Option<Duration>,
    /// The most measurements that the call may make.
    pub measurements: usize,
    /// Most tiles of a product that are tried before other products have their turn. Until the rest are tried, the best
    /// of these is used.
    pub tiles: usize,
    /// True if the call waits for kernels that are being compiled. Otherwise it returns.
    pub waits: bool,
    /// True if the KV cache is in use: then no kernel that writes to it may run, and each measurement must be short.
    pub keeps_kv: bool,
}

impl Allowance {
    /// Allows everything: all measurements are made in one call.
    pub const ALL: Allowance =
        Allowance { until: None, measurements: usize::MAX, tiles: usize::MAX, waits: true, keeps_kv: false };
    /// Allows one short measurement, in the time between two passes.
    pub const ONE: Allowance = Allowance { measurements: 1, waits: false, keeps_kv: true, ..Allowance::ALL };

    /// Allows measurements until the time `until`, a few tiles of each product first.
    pub fn until(until: Duration) -> Allowance {
        Allowance { until: Some(until), tiles: 6, ..Allowance::ALL }
    }
}

/// Sets the method of products for passes of as many rows as `kind`.
pub fn take_way(target: &mut Target, kind: PassKind, way: ProductMethod) {
    target.chosen.insert(kind.rows, way.arithmetic);
    target.gated.insert(kind.rows, way.gated);
}

/// The method of products for passes of as many rows as `kind`.
pub fn way_of(target: &Target, kind: PassKind) -> Option<ProductMethod> {
    Some(ProductMethod { arithmetic: *target.chosen.get(&kind.rows)?, gated: *target.gated.get(&kind.rows)? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lower::TokenSource;
    use crate::replay::tuned_kinds;
    use crate::schedule::KvType;

    #[test]
    fn the_kinds_shares_are_of_one_whole() {
        for (max_rows, sequences) in [(512, 1), (512, 8), (512, 32), (64, 1), (2, 1), (1, 1), (100, 5)] {
            let kv = KvType::F16;
            let e = Extent { context: 4096, max_rows, head_rows: sequences, sequences, kv, kv_tokens: None };
            let sum: f64 = tuned_kinds(&e).map(|kind| share(&e, kind)).sum();
            assert!((0.1..=1.001).contains(&sum), "{max_rows} rows, {sequences} sequences: {sum}");
        }
        let of = |rows, order| {
            let kv = KvType::F16;
            let e = Extent { context: 4096, max_rows: 512, head_rows: 32, sequences: 32, kv, kv_tokens: None };
            share(&e, PassKind { rows, head_rows: 1, order, tokens: TokenSource::Host })
        };
        assert!(of(32, RowOrder::Apart) > of(8, RowOrder::Apart));
        assert!(of(512, RowOrder::Consecutive) > 5.0 * of(64, RowOrder::Consecutive));
    }
}
