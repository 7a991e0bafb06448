//! What tuning may decide, and what an answer may win.
//!
//! A question is worth the seconds that its answer may save in an hour of use. What costs more to find out is left alone: the
//! tile that the cost model gives serves there as well as it is expected to.

use super::choices::ProductMethod;
use crate::lower::arithmetic::Arithmetic;
use crate::lower::target::{Product, Target};
use crate::lower::{PassKind, RowOrder};
use crate::schedule::{Extent, Segment};
use std::time::Duration;

/// The key of a chosen tile: a product, and the arithmetic that computes it.
pub type TileKey = (Arithmetic, Product);

/// Something that tuning decides by measuring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Question {
    /// Whether dispatches are relayed.
    Relay,
    /// How passes of a kind multiply, with the tiles known so far.
    Way(PassKind),
    /// The tile of a product of a kind of pass.
    Tile(PassKind, TileKey),
    /// How rows of one sequence attend.
    Attend(PassKind),
    /// How passes of a kind multiply, each way with tiles of its own.
    Rematch(PassKind),
    /// How long a pass takes, by which passes of fewer rows choose a kind.
    Seconds(PassKind),
}

/// The use that a choice is good for: seconds of device time. A machine that is used reaches this within days.
pub const USE: f64 = 3600.0;

/// How much of a product's time its best tile may save, where the floor of its time is not known.
pub const SPREAD: f64 = 0.2;
/// The most that is hoped for, whatever the floor says.
pub const MOST_SPREAD: f64 = 0.4;
/// The least.
pub const LEAST_SPREAD: f64 = 0.02;

/// Of the seconds of an hour's use that passes of a kind take, the share that [`Question::Relay`] may save.
pub const RELAY: f64 = 0.1;
/// The same of [`Question::Way`].
pub const WAY: f64 = 0.1;
/// The same of [`Question::Attend`].
pub const ATTEND: f64 = 0.02;
/// The same of [`Question::Rematch`].
pub const REMATCH: f64 = 0.03;
/// The same of [`Question::Seconds`].
pub const SECONDS: f64 = 0.01;

/// The share of the time that passes of a kind are expected to take, of all kinds of one executor.
pub fn share(e: &Extent, kind: PassKind) -> f64 {
    let alone = e.sequences == 1;
    let [one, prompt, together, rest] = if alone { [0.5, 0.3, 0.0, 0.2] } else { [0.2, 0.25, 0.4, 0.15] };
    // How often a kind of 2, 4, 8, ... rows is halved to get from the largest.
    let halvings = |most: usize| (most.next_power_of_two() / kind.rows.next_power_of_two()).max(1).ilog2() as i32;
    match kind.order {
        _ if kind.rows == 1 => one,
        RowOrder::Apart => together * 0.5f64.powi(halvings(e.sequences) + 1),
        _ if kind.rows == e.max_rows => prompt,
        _ => rest / f64::from(e.max_rows.next_power_of_two().ilog2().max(2) - 1),
    }
}

/// What a measurement may win that is one of several of a question: of those that come later in the order in which they are
/// expected to be fast, fewer win.
pub fn chance(i: usize) -> f64 {
    1.0 / (i + 2) as f64
}

/// A product of a pass: its key, and the segments that have it.
#[derive(Debug, Clone)]
pub struct PassProduct {
    /// The product, and what computes it.
    pub key: TileKey,
    /// A segment for each of its dispatches.
    pub segments: Vec<Segment>,
}

/// How many measurements a call of the tuner may make, and when it must end.
#[derive(Debug, Clone, Copy)]
pub struct Allowance {
    /// When no measurement is begun any more, by the testbed's clock.
    pub until: Option<Duration>,
    /// Most measurements.
    pub measurements: usize,
    /// Most tiles of a product that are tried before other products have their turn. What is the best then serves until
    /// the others are tried.
    pub tiles: usize,
    /// Whether kernels that are being compiled are waited for.
    pub waits: bool,
    /// Whether the KV cache holds something, so that nothing may run that writes to it, and a measurement must be short.
    pub keeps_kv: bool,
}

impl Allowance {
    /// Everything, however long it takes.
    pub const ALL: Allowance =
        Allowance { until: None, measurements: usize::MAX, tiles: usize::MAX, waits: true, keeps_kv: false };
    /// One short measurement between passes.
    pub const ONE: Allowance = Allowance { measurements: 1, waits: false, keeps_kv: true, ..Allowance::ALL };

    /// What there is time for until `until`: a few tiles of each product first.
    pub fn until(until: Duration) -> Allowance {
        Allowance { until: Some(until), tiles: 6, ..Allowance::ALL }
    }
}

/// Passes of as many rows as `kind` multiply so.
pub fn take_way(target: &mut Target, kind: PassKind, way: ProductMethod) {
    target.chosen.insert(kind.rows, way.arithmetic);
    target.gated.insert(kind.rows, way.gated);
}

/// How passes of as many rows as `kind` multiply.
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
