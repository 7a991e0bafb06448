//! A pass in pieces: wherever it is cut, what comes behind finds what came before, and computes what the whole pass does.

use crate::common::{self, DOT, F32, MATRIX_F16, MATRIX_S8, golden, nvidia_units, relative_rms};
use kiln::engine::{self, Device, Options};
use kiln::executor::weights::Progress;
use kiln::executor::{ExecutorExt, HeadRows, Row, Stepwise};
use kiln::model::checkpoint::Checkpoint;
use kiln::model::{Role, TensorId, WeightFormat, presets};
use kiln::schedule::step::{AccessRange, Slot};
use kiln::schedule::{Extent, KvType, Op, Schedule, Segment, Step};
use kiln::testing::lower::arithmetic::{ActivationLayout, Arithmetic};
use kiln::testing::lower::dispatch::{Addresses, Dispatch, Edge};
use kiln::testing::lower::kernels::Module;
use kiln::testing::lower::kernels::constants::{AttendConstants, NormConstants, PackConstants, Specialization};
use kiln::testing::lower::layout::GpuLayout;
use kiln::testing::lower::target::Target;
use kiln::testing::lower::{Lowering, PassKind, RowOrder, TokenSource};
use std::ops::Range;

fn load(name: &str, device: Device, weights: WeightFormat, arithmetic: Option<Arithmetic>) -> Box<dyn Stepwise> {
    common::listen();
    let options = Options {
        device,
        weights,
        kv: KvType::F16,
        vulkan: common::forced(arithmetic),
        chunk: Some(32),
        context: Some(64),
        ..Options::default()
    };
    let checkpoint = Checkpoint::open(&golden(name)).unwrap();
    engine::load_stepwise(&checkpoint, &options, &Progress::default()).unwrap_or_else(|e| panic!("{e}"))
}

/// Rows of sequence 0 at `positions`.
fn rows(positions: Range<u32>, step: u32) -> Vec<Row> {
    positions.map(|position| Row { token: (2 + step * position) % 320, position, sequence: 0 }).collect()
}

/// The last row's logits where the pass runs in these pieces. Another pass runs before, so that nothing of its own is left.
fn logits_of(executor: &mut dyn Stepwise, rows: &[Row], pieces: &[Range<usize>]) -> Vec<f32> {
    let head = HeadRows { first: rows.len() - 1, count: 1 };
    let others: Vec<Row> = rows.iter().map(|row| Row { token: (row.token + 77) % 320, ..*row }).collect();
    executor.forward(&others, Some(head)).unwrap();
    executor.begin_pass(rows, Some(head)).unwrap();
    pieces.iter().for_each(|piece| executor.run_steps(piece.clone()).unwrap());
    let slot = executor.schedule().logits;
    let mut logits = Vec::new();
    let mut read = |arena: &mut [f32]| logits = arena[slot.offset as usize / 4..][..slot.width].to_vec();
    executor.access_arena(&mut read).unwrap();
    logits
}

fn check(weights: WeightFormat, arithmetic: Option<Arithmetic>, tolerance: f32) {
    check_of("tiny", [2, 5], weights, arithmetic, tolerance);
}

/// Cuts a local and a global layer of a golden model at each of their steps, and the pass into single steps.
fn check_of(name: &str, layers: [usize; 2], weights: WeightFormat, arithmetic: Option<Arithmetic>, tolerance: f32) {
    let mut executor = load(name, common::vulkan(), weights, arithmetic);
    for (first, count) in [(0, 1), (0, 6), (6, 20), (26, 1)] {
        let rows = rows(first..first + count, 13);
        let head = HeadRows { first: rows.len() - 1, count: 1 };
        executor.forward(&rows, Some(head)).unwrap();
        let whole = executor.logits(0).unwrap().to_vec();
        let schedule = executor.schedule();
        let end = schedule.steps_of(Segment::Head).end;
        let mut cuts: Vec<usize> = layers.into_iter().flat_map(|i| schedule.steps_of(Segment::Layer(i))).collect();
        cuts.extend(schedule.steps_of(Segment::Head));
        let labels: Vec<_> = schedule.steps.iter().map(|step| step.label).collect();
        for at in cuts {
            let got = logits_of(executor.as_mut(), &rows, &[0..at, at..end]);
            let (what, apart) =
                (format!("{arithmetic:?}, {count} rows, cut before {at}, {}", labels[at]), relative_rms(&got, &whole));
            println!("{what}: {apart:.1e}");
            assert!(apart <= tolerance, "{what}: {apart}");
        }
        let singly: Vec<_> = (0..end).map(|step| step..step + 1).collect();
        let apart = relative_rms(&logits_of(executor.as_mut(), &rows, &singly), &whole);
        assert!(apart <= tolerance, "{arithmetic:?}, {count} rows, step by step: {apart}");
        // The ranges that the executor runs by itself have the kernels of the whole pass.
        let ranges = executor.ranges().unwrap();
        assert!(ranges.first().is_some_and(|r| r.start == 0) && ranges.last().is_some_and(|r| r.end == end));
        assert!(ranges.windows(2).all(|pair| pair[0].end == pair[1].start), "{ranges:?}");
        assert!(logits_of(executor.as_mut(), &rows, &ranges) == whole, "{arithmetic:?}, {count} rows: other bits");
    }
    assert_eq!(kiln::testing::vulkan::device::instance::validation_messages(), 0);
}

/// A kernel that is alone adds in another order than one for several steps, and a key may round to the neighbouring f16.
#[test]
fn a_layer_may_be_cut_at_any_step() {
    check(WeightFormat::Int8, F32, 1e-3);
    check(WeightFormat::Int8, DOT, 2e-3);
    check(WeightFormat::Int4, DOT, 2e-3);
}

/// Rows that stand in the order of the experts in a whole pass stand in the pass's where it is cut between.
#[test]
fn a_layer_of_experts_may_be_cut_at_any_step() {
    check_of("moe4", [1, 2], WeightFormat::Int8, F32, 1e-3);
    check_of("moe4", [1, 2], WeightFormat::Int8, DOT, 2e-3);
}

#[test]
fn a_layer_on_matrix_units_may_be_cut_at_any_step() {
    let units = common::open_gpu().caps.matrix;
    if units.is_none() {
        println!("not checked here: the device has no matrix units");
        return;
    }
    check(WeightFormat::Int8, MATRIX_F16, 5e-3);
    if units.is_some_and(|units| units.s8_k.is_some()) {
        check(WeightFormat::Int8, MATRIX_S8, 5e-3);
    }
}

/// Before a cut, what is read behind it is left in f32; behind it that is packed first, once for each slot whose reader takes
/// it packed, and what follows waits for that.
fn check_cut(schedule: &Schedule, before: &[Dispatch], behind: &[Dispatch], at: usize, what: &str) {
    let reads = |step: &Step| match step.op {
        Op::Linear { x, .. } => Some(x),
        _ => None,
    };
    let takes_packed =
        |d: &Dispatch| ["dot", "matrix", "fragment"].iter().any(|by| d.kernel.module.name().contains(by));
    let mut packed: Vec<Slot> = Vec::new();
    for d in behind.iter().filter(|d| !d.steps.is_empty()) {
        let Some(x) = schedule.steps[d.steps.clone()].iter().find_map(reads) else { continue };
        let value = schedule.steps[at..d.steps.start].iter().flat_map(|step| step.op.writes());
        let is_new = !packed.contains(&x)
            && !value
                .into_iter()
                .any(|write| write.covers(AccessRange::Arena(x.offset, 4 * x.stride as u64, 4 * x.width as u64)));
        if is_new && takes_packed(d) {
            packed.push(x);
        }
        if !is_new {
            continue;
        }
        let writes = |step: &Step| match step.op {
            Op::RmsNorm { out, .. } | Op::Attend { out, .. } | Op::GatedGelu { out, .. } => out == x,
            _ => false,
        };
        let Some(writer) = before.iter().rev().find(|d| schedule.steps[d.steps.clone()].iter().any(writes)) else {
            continue;
        };
        let (module, constants) = (writer.kernel.module, &writer.kernel.constants);
        let form = match module {
            Module::RmsNorm | Module::NormAddNorm => NormConstants::of(constants).form,
            Module::AttendF16 => AttendConstants::of(constants).form,
            Module::GatedGelu => PackConstants::of(constants).form,
            Module::LinearGeluInt8 | Module::LinearGeluGrouped | Module::LinearGeluBf16 => ActivationLayout::F32 as u32,
            _ => panic!("{what}: {} leaves no f32", module.name()),
        };
        assert_eq!(form, ActivationLayout::F32 as u32, "{what}: {}", module.name());
    }
    let packs = behind.iter().take_while(|d| d.kernel.module == Module::Pack).count();
    assert_eq!(packs, packed.len(), "{what}");
    assert!(packs == 0 || behind[packs].edge == Edge::Kernels, "{what}: a reader does not wait");
}

#[test]
fn a_cut_leaves_f32_and_what_is_behind_it_packs_at_its_entry() {
    let shape = presets::preset("gemma3-4b").unwrap();
    let extent = Extent { context: 256, max_rows: 64, head_rows: 1, sequences: 1, kv: KvType::F16, kv_tokens: None };
    // Whole layers of one format, and K in another one, so that two products read one slot.
    let formats: [fn(TensorId) -> WeightFormat; 3] = [
        |_| WeightFormat::Int8,
        |_| WeightFormat::Int4,
        |id| if matches!(id, TensorId::Layer(_, Role::K)) { WeightFormat::Int4 } else { WeightFormat::Int8 },
    ];
    for format in formats {
        let schedule = Schedule::build(&shape, extent, format);
        let addresses = Addresses::new(1 << 40, vec![1 << 41; schedule.weights.buffers.len()]);
        let layout = GpuLayout::new(&schedule);
        for (dot, units) in [(true, None), (true, Some(nvidia_units())), (false, Some(nvidia_units())), (false, None)] {
            let target = Target::new(32, dot, units);
            for rows in [1, 4, 16, 64] {
                let kind = PassKind { rows, head_rows: 1, order: RowOrder::Consecutive, tokens: TokenSource::Host };
                let lowering =
                    Lowering { schedule: &schedule, layout: &layout, addresses: &addresses, target: &target, kind };
                let layers = schedule.steps_of(Segment::Layer(4)).start..schedule.steps_of(Segment::Layer(5)).end;
                for at in layers.clone() {
                    let (before, behind) = (lowering.lower(layers.start..at), lowering.lower(at..layers.end));
                    let label = schedule.steps[at].label;
                    let what = format!("dot {dot}, units {}, {rows} rows, before {label}", units.is_some());
                    check_cut(&schedule, &before, &behind, at, &what);
                }
            }
        }
    }
}
