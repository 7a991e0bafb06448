//! Predicts the time of attention on a machine's NPU from the program's listing (`aie/out/attend_bf16.lst`) and the
//! model that the program ran on. Nothing is measured or run.

use super::lowering::{PassKind, RowOrder, TokenSource, is_faster};
use super::prediction;
use crate::schedule::{Op, PassShape, Schedule};

/// Columns of four cores, each of which processes a head of K and V at a time.
const COLUMNS: usize = 4;
/// Cycles per second: the array of a Phoenix under Linux as published (xdna-emu, 2026-08-04).
const CLOCK: f64 = 1.028e9;
/// Bytes of a unit of K or V. A channel carries four bytes per cycle.
const UNIT: usize = 8192;
/// Cycles of a column's fixed work for the queries of its cores: reading parameters and queries, clearing O, waiting
/// for room.
const SEQUENCE: f64 = 18_000.0;
/// Further cycles of layers with a window, whose rows begin to see one after another, so that maxima are reset.
const WINDOW: f64 = 24_000.0;
/// Seconds of a command, one per layer: the middle of published measurements, in a chain and alone (28 to 110 µs).
const COMMAND: f64 = 60e-6;
/// The number of positions in a page of the KV cache.
const PAGE: usize = 64;

/// Cycles of a core by the head's dimensions: for a page with up to four queries of one token, and for a unit of K and
/// one of V with 4,096 / dimensions rows.
const CYCLES: [(usize, f64, f64); 3] = [(64, 799.0, 6242.0), (128, 1174.0, 2646.0), (256, 1924.0, 1235.0)];

/// True if the machine with this name has the NPU that the figures are of, XDNA 1.
pub(crate) fn is_of(machine: &str) -> bool {
    machine == "780m"
}

/// The predicted time and traffic of one layer's attention on the NPU.
struct AttendedLayer {
    /// The seconds that the NPU takes, with those of starting its command.
    seconds: f64,
    /// Bytes of keys and values that the array reads.
    bytes: f64,
}

/// A pass's attention on the NPU, layer by layer. `None`: the machine has no such NPU, or the program does not support
/// the size of heads.
fn layers(machine: &str, schedule: &Schedule, pass: PassShape) -> Option<Vec<AttendedLayer>> {
    if !is_of(machine) {
        return None;
    }
    let mut layers = Vec::new();
    for step in &schedule.steps {
        let Op::Attend { kv, heads, window, .. } = &step.op else { continue };
        let (_, page, units) = CYCLES.into_iter().find(|(dim, ..)| *dim == kv.head_dim)?;
        let group = heads / kv.kv_heads;
        let seen = |position: usize| window.map_or(position + 1, |window| window.min(position + 1));
        let (cycles, bytes) = match pass {
            PassShape::Decode { sequences, depth } => {
                let pages = seen(depth).div_ceil(PAGE) as f64;
                let each = (page * group.div_ceil(4) as f64 * pages, (PAGE * kv.head_dim / 2) as f64 * pages);
                // A column's streams carry its heads one after another; its cores alternate, and an idle one consumes
                // two units.
                let heads = (sequences * kv.kv_heads).div_ceil(COLUMNS);
                let (idle, unit) = ((heads.next_multiple_of(4) - heads) as f64, (UNIT / 4) as f64);
                let heads = heads as f64;
                let cycles = f64::max(heads / 4.0 * each.0, heads * (each.1 + unit) + idle * 2.0 * unit);
                (cycles, (sequences * kv.kv_heads * PAGE * kv.head_dim * 4) as f64 * pages)
            }
            PassShape::Prefill { rows, depth } => {
                let tokens = 4 * (4096 / kv.head_dim / group).max(1);
                let of_block = |from: usize| {
                    let end = depth + (from + tokens).min(rows);
                    let first = (depth + from + 1).saturating_sub(window.unwrap_or(usize::MAX)) / PAGE * PAGE;
                    let positions = end.next_multiple_of(PAGE) - first;
                    let pairs = (positions * kv.head_dim * 2).div_ceil(UNIT) as f64;
                    (pairs * units + SEQUENCE + if first > 0 { WINDOW } else { 0.0 }, pairs * 2.0 * UNIT as f64)
                };
                let blocks = (0..rows).step_by(tokens).map(of_block);
                let (cycles, bytes) = blocks.fold((0.0, 0.0), |sums, of| (sums.0 + of.0, sums.1 + of.1));
                let heads = kv.kv_heads as f64;
                (cycles * heads / COLUMNS as f64, bytes * heads)
            }
            PassShape::Mixed { .. } | PassShape::Verify { .. } => return None,
        };
        layers.push(AttendedLayer { seconds: cycles / CLOCK + COMMAND, bytes });
    }
    Some(layers)
}

/// Predicted seconds of a pass with attention on the GPU and on the NPU.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Placements {
    /// Seconds of the whole pass if the GPU computes attention.
    pub(crate) all: f64,
    /// Seconds of attention in all layers on the GPU.
    pub(crate) on_gpu: f64,
    /// Seconds of attention in all layers on the NPU.
    pub(crate) on_npu: f64,
    /// Bytes of keys and values that the NPU reads.
    pub(crate) npu_bytes: f64,
    /// The pass with attention on the NPU: in sequence, or for a prompt's divided chunk with the halves alternating.
    pub(crate) with_npu: f64,
    /// True if both placements of this kind of pass are measured. Others stay on the GPU.
    pub(crate) is_measured: bool,
}

impl Placements {
    /// `None`: the machine has no such NPU, or the cost model does not know the machine.
    pub(crate) fn of(machine: &str, schedule: &Schedule, pass: PassShape) -> Option<Placements> {
        let layers = layers(machine, schedule, pass)?;
        let on_npu: f64 = layers.iter().map(|layer| layer.seconds).sum();
        let npu_bytes = layers.iter().map(|layer| layer.bytes).sum();
        let prediction::Seconds { all, attention, .. } = prediction::seconds(machine, schedule, pass)?;
        let (with_npu, is_measured) = match pass {
            PassShape::Prefill { rows, depth } => {
                (in_halves(machine, schedule, rows, depth), chunk(rows).is_measured())
            }
            PassShape::Decode { sequences, .. } => (None, sequences == 1),
            PassShape::Mixed { .. } | PassShape::Verify { .. } => (None, false),
        };
        let with_npu = with_npu.unwrap_or(all - attention + on_npu);
        Some(Placements { all, on_gpu: attention, on_npu, npu_bytes, with_npu, is_measured })
    }

    /// The device that `auto` would choose for attention if these seconds were measured.
    pub(crate) fn chosen(&self) -> &'static str {
        if self.is_measured && is_faster(self.with_npu, self.all) { "NPU" } else { "GPU" }
    }
}

/// The kind of pass of a prompt's chunk alone.
fn chunk(rows: usize) -> PassKind {
    PassKind { rows, head_rows: 1, order: RowOrder::Consecutive, tokens: TokenSource::Host }
}

/// Seconds of a chunk whose halves alternate: beside a layer's attention for one half, the GPU computes the other
/// half's next products. `None`: such a chunk is not divided, or there is no prediction of it.
fn in_halves(machine: &str, schedule: &Schedule, rows: usize, depth: usize) -> Option<f64> {
    let half = chunk(rows).half()?;
    let halves = [(half, depth), (rows - half, depth + half)];
    let halves = halves.map(|(rows, depth)| PassShape::Prefill { rows, depth });
    let of = |pass| {
        let attention = layers(machine, schedule, pass)?;
        let on_gpu = prediction::seconds(machine, schedule, pass)?;
        let products = (on_gpu.all - on_gpu.attention) / attention.len() as f64;
        Some((attention, products))
    };
    let [(first, first_products), (second, second_products)] = [of(halves[0])?, of(halves[1])?];
    let turns = first.iter().zip(&second);
    let turns = turns.map(|(a, b)| a.seconds.max(second_products) + b.seconds.max(first_products));
    Some(turns.sum::<f64>() + first_products)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{WeightFormat, presets};
    use crate::schedule::{Extent, KvType};

    /// The assembler's listing of the program.
    const LISTING: &str = include_str!("../../aie/out/attend_bf16.lst");

    /// Bundles between two labels, one per cycle.
    fn cycles(from: &str, to: &str) -> f64 {
        let behind = LISTING.split_once(&format!("\n{from}:\n")).expect("the first label").1;
        let between = behind.split_once(&format!("\n{to}:\n")).expect("the second label").0;
        between.lines().filter(|line| line.starts_with("  0x")).count() as f64
    }

    /// The units' cycles are the cycles of the listing's blocks plus a little: steps, locks and the first block of a
    /// unit.
    #[test]
    fn cycles_are_those_of_the_listing() {
        for (dim, page, units) in CYCLES {
            let passes = (dim / 16) as f64;
            let block = passes * (cycles("scores", "scores_end") + 1.0)
                + (cycles("scores_end", "weights") - 1.0)
                + cycles("weights", "values")
                + (passes - 1.0) * (cycles("values", "values_end") + 1.0);
            let last = cycles("values_end", "pre_skip") - 1.0;
            // Blocks of 16 rows and as many positions.
            let blocks = (UNIT / 2 / dim / 16 * (4096 / dim / 16)) as f64;
            let share = units / (blocks * (block + last));
            assert!((0.95..1.08).contains(&share), "{dim}: {units}, {share:.3} of the listing's");
            let step = cycles("step", "dims")
                + (passes - 1.0) * (cycles("dims", "dims_end") + 1.0)
                + cycles("dims_end", "tiles")
                + (dim / 32 - 1) as f64 * (cycles("tiles", "tiles_end") + 1.0)
                + cycles("tiles_end", "edge").min(60.0);
            let share = page / (4.0 * step);
            assert!((0.85..1.0).contains(&share), "{dim}: {page}, {share:.3} of the listing's");
        }
    }

    fn of(machine: &str, pass: PassShape) -> Option<Placements> {
        let shape = presets::preset("gemma3-27b").expect("a preset");
        let sequences = if let PassShape::Decode { sequences, .. } = pass { sequences } else { 1 };
        let (context, head_rows) = (40_960, sequences);
        let extent = Extent { context, max_rows: 512, head_rows, sequences, kv: KvType::F16, kv_tokens: None };
        let schedule = Schedule::build(&shape, extent, |id| WeightFormat::Int8.of_matrix(id, &shape, None));
        Placements::of(machine, &schedule, pass)
    }

    #[test]
    fn attention_of_single_tokens_stays_on_the_gpu() {
        for depth in [1024, 8192, 32_768] {
            let of = |sequences| of("780m", PassShape::Decode { sequences, depth: depth - 1 }).expect("a machine");
            let one = of(1);
            // 10 global layers and 52 with a window of 1,024; 8 KiB of K and V per position.
            assert_eq!(one.npu_bytes, (8192 * (10 * depth + 52 * 1024)) as f64);
            for sequences in [1, 2, 8, 32] {
                let placements = of(sequences);
                assert_eq!(placements.chosen(), "GPU", "{sequences} at {depth}: {placements:?}");
                assert!(placements.with_npu > placements.all, "{sequences} at {depth}: {placements:?}");
                assert_eq!(placements.npu_bytes, sequences as f64 * one.npu_bytes);
            }
        }
    }

    #[test]
    fn chunks_are_compared_at_each_depth() {
        for depth in [1024, 8192, 32_768] {
            let placements = of("780m", PassShape::Prefill { rows: 512, depth }).expect("a machine");
            let Placements { all, on_gpu, with_npu, on_npu, .. } = placements;
            assert!(on_gpu < all && with_npu >= on_npu, "{placements:?}");
            assert_eq!(placements.chosen() == "NPU", with_npu < 0.98 * all);
        }
        let deep = |rows| of("780m", PassShape::Prefill { rows, depth: 32_768 }).expect("a machine");
        assert_eq!(deep(512).chosen(), "NPU");
        // A chunk that is not divided is not measured, even if the NPU would be faster.
        assert_eq!(Placements { with_npu: 0.0, ..deep(64) }.chosen(), "GPU");
        // The other machines have an NPU of another kind.
        assert_eq!(of("8060s", PassShape::Prefill { rows: 512, depth: 1024 }), None);
    }
}
