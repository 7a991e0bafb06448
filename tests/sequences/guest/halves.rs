//! A prompt's chunk in two halves: the guest attends for one while the device makes the other's products.

use super::*;
use crate::common;
use kiln::executor::offload::PlacementTiming;
use kiln::executor::{EngineKind, EngineSpan, ExecutorExt};
use std::time::Instant;

/// Rows of the largest pass, and of its first half.
pub const ROWS: usize = 128;
const HALF: usize = 64;

/// A word of one half's queries, which the device writes while the guest runs a step of the other.
#[derive(Clone, Copy)]
pub struct WatchedWord {
    /// The step that waits for the word.
    pub step: u32,
    /// Words from the arena's start to it, and what it comes to be.
    at: usize,
    awaited: u32,
    has_come: bool,
}

impl WatchedWord {
    /// Waits until the device has written the word.
    pub fn wait(self, arena: &[f32]) -> WatchedWord {
        let word = &raw const arena[self.at];
        let start = Instant::now();
        loop {
            // SAFETY: the word is the arena's, which lives. The device may be writing it.
            let now = unsafe { word.read_volatile() }.to_bits();
            if now == self.awaited || start.elapsed() > Duration::from_secs(60) {
                return WatchedWord { has_come: now == self.awaited, ..self };
            }
            std::thread::yield_now();
        }
    }
}

fn rows(sequence: u32, positions: std::ops::Range<u32>) -> Vec<Row> {
    positions.map(|position| row(sequence, position)).collect()
}

fn last(rows: &[Row]) -> Option<HeadRows> {
    Some(HeadRows { first: rows.len() - 1, count: 1 })
}

/// Bits of the last row's logits of chunks that are divided, with one row and with all in the second half, behind nothing and
/// behind others, and beside rows of other sequences.
fn divided_passes(executor: &mut dyn Measure) -> Vec<Vec<u32>> {
    let mut beside = rows(2, 0..90);
    beside.extend([row(0, 228), row(1, 70)]);
    let passes = [rows(0, 0..128), rows(0, 128..228), rows(1, 0..65), rows(1, 65..70), beside, rows(2, 90..218)];
    let run = |rows: Vec<Row>| {
        executor.forward(&rows, last(&rows)).unwrap();
        bits(executor, 0)
    };
    passes.map(run).into()
}

/// An executor whose KV cache the host maps, since it is loaded with a guest.
fn beside_a_guest(model: &Forged) -> Seated {
    Seated::of(&model.path(), 1, ROWS, Some(OffloadKind::Reference))
}

fn divided(model: &Forged, options: Options) -> Box<dyn Measure> {
    let options = Options { sequences: 3, head_rows: 1, chunk: Some(ROWS), context: Some(CONTEXT), ..options };
    model.load(common::vulkan(), options)
}

/// What halves compute does not depend on who waits for whom: through staging, nothing runs beside the guest.
#[test]
fn a_divided_pass_computes_what_a_whole_one_does() {
    let model = Forged::new(&shape(), WeightFormat::Int8);
    for (arithmetic, tolerance, guests) in guests() {
        let plain = divided_passes(divided(&model, with_guest(arithmetic, None)).as_mut());
        for &guest in guests {
            let options = with_guest(arithmetic, Some(guest));
            let mut executor = divided(&model, options);
            let got = divided_passes(executor.as_mut());
            for (i, (got, plain)) in got.iter().zip(&plain).enumerate() {
                let apart = relative_rms(&floats(std::slice::from_ref(got)), &floats(std::slice::from_ref(plain)));
                assert!(apart < tolerance, "{arithmetic:?}, {guest:?}, pass {i}: {apart}");
            }
            for turn in 0..if common::runs_all() { 3 } else { 1 } {
                assert!(divided_passes(executor.as_mut()) == got, "{guest:?}: other bits in turn {turn}");
            }
            let staged = Options { vulkan: ReplayOptions { staged: true, ..options.vulkan }, ..options };
            assert!(divided_passes(divided(&model, staged).as_mut()) == got, "{guest:?}: other bits through staging");
        }
    }
    assert_eq!(kiln::testing::vulkan::device::instance::validation_messages(), 0);
}

/// While the guest has not come back from a step of either half, the device computes what is next of the other.
#[test]
fn the_device_works_while_the_guest_attends() {
    let model = Forged::new(&shape(), WeightFormat::Int8);
    let mut seated = beside_a_guest(&model);
    let queries = seated.replay.schedule().steps.iter().find_map(|step| match step.op {
        Op::Attend { q, .. } => Some(q),
        _ => None,
    });
    let chunk = rows(0, 0..ROWS as u32);
    seated.give(LATER);
    // The first pass proves the guest: nothing is beside its steps, and the device's results count. The second says what queries
    // are.
    for _ in 0..2 {
        seated.replay.pages_mut().truncate(0, 0);
        seated.faults.queries.take();
        seated.replay.forward(&chunk, last(&chunk)).unwrap();
    }
    let seen = seated.faults.queries.take();
    let layers = shape().layers.len() as u32;
    // A pass checks one layer, from the last to the first, and with the first the last again. Nothing is beside its steps.
    let mut checked = [&[1][..], &[0, 2]].into_iter().cycle();
    for step in 0..2 * layers - 1 {
        if checked.next().unwrap().contains(&(step / 2)) {
            seated.replay.pages_mut().truncate(0, 0);
            seated.replay.forward(&chunk, last(&chunk)).unwrap();
            seated.faults.queries.take();
            checked.next();
        }
        seated.replay.pages_mut().truncate(0, 0);
        seated.faults.steps.set(0);
        // Behind a step of the first half come queries of the second one's same layer, and then the first one's next.
        let other = if step.is_multiple_of(2) { HALF } else { 0 };
        let at = (queries.unwrap().row(other) / 4) as usize;
        // What the word is before, in this pass or at the end of the one before, and what it is for the next step.
        let (before, awaited) = (step.checked_sub(1).unwrap_or(2 * layers - 1), seen[step as usize + 1]);
        assert_ne!(seen[before as usize], awaited, "step {step}");
        seated.faults.watched.set(Some(WatchedWord { step, at, awaited, has_come: false }));
        seated.replay.forward(&chunk, last(&chunk)).unwrap();
        assert_eq!(seated.faults.queries.take(), seen);
        assert_eq!(seated.faults.steps.get(), 2 * layers);
        assert!(seated.faults.watched.take().unwrap().has_come, "step {step}: the device waits for the guest");
    }
    assert_eq!(kiln::testing::vulkan::device::instance::validation_messages(), 0);
}

/// What is measured of a divided pass are the steps of both halves, and the layers between them.
#[test]
fn a_divided_pass_is_measured_by_both_halves() {
    let model = Forged::new(&shape(), WeightFormat::Int8);
    let mut seated = beside_a_guest(&model);
    let chunk = rows(0, 0..ROWS as u32);
    seated.replay.forward(&chunk, last(&chunk)).unwrap();
    let plain = seated.replay.next(0);
    for (more, prefill) in [(-0.05, true), (0.05, false)] {
        seated.give_if_faster([0.1, more]);
        let report = seated.replay.offload().unwrap();
        assert_eq!((report.attends, report.failures), (OffloadedPasses { prefill, ..OffloadedPasses::NONE }, 0));
        // Two of three layers have two steps each, and the pass has all three.
        let of_chunks = seated.replay.placements().iter().filter(|t| t.rows == ROWS);
        let apart = |t: &PlacementTiming| (t.device - 1.5).abs().max((t.offload - 1.5 * (1.0 + 4.0 * more)).abs());
        assert!(of_chunks.clone().count() > 0 && of_chunks.clone().all(|t| apart(t) < 1e-9));
        seated.faults.steps.set(0);
        seated.replay.forward(&chunk, last(&chunk)).unwrap();
        assert_eq!(seated.replay.next(0), plain);
        let steps = if prefill { 2 * shape().layers.len() as u32 } else { 0 };
        assert_eq!(seated.faults.steps.get(), steps);
    }
    assert_eq!(kiln::testing::vulkan::device::instance::validation_messages(), 0);
}

/// What was not measured stays on the device, however much faster the guest was: short chunks, and what several sequences have a
/// part in. A guest that is required takes all of it.
#[test]
fn a_guest_that_is_faster_takes_no_pass_that_was_not_measured() {
    let model = Forged::new(&shape(), WeightFormat::Int8);
    let mut seated = Seated::of(&model.path(), 3, ROWS, None);
    let apart = vec![row(0, 128), row(1, 40)];
    let mixed = [rows(2, 0..90), vec![row(0, 129), row(1, 41)]].concat();
    let any = [rows(2, 90..150), rows(1, 42..60)].concat();
    // Steps of three layers where it is measured and where it is required, twice where a pass is divided.
    let passes = [
        (rows(0, 0..128), [6, 6]),
        (rows(1, 0..40), [0, 3]),
        (apart, [0, 3]),
        (mixed, [0, 6]),
        (any, [0, 3]),
        (vec![row(0, 130)], [3, 3]),
    ];
    for is_required in [false, true] {
        (0..3).for_each(|sequence| seated.replay.pages_mut().truncate(sequence, 0));
        match is_required {
            true => seated.give(LATER),
            false => seated.give_if_faster([-0.1; 2]),
        }
        for (rows, steps) in &passes {
            seated.faults.steps.set(0);
            seated.replay.forward(rows, last(rows)).unwrap();
            let what = format!("{} rows from {:?}, required: {is_required}", rows.len(), rows[0]);
            assert_eq!(seated.faults.steps.get(), steps[usize::from(is_required)], "{what}");
        }
    }
    assert_eq!(kiln::testing::vulkan::device::instance::validation_messages(), 0);
}

/// A timeline has each list and each of the guest's steps, which begins when what it stands on is done.
#[test]
fn a_timeline_has_the_parts_of_both_halves() {
    let model = Forged::new(&shape(), WeightFormat::Int8);
    let mut executor = divided(&model, with_guest(F32, Some(OffloadKind::Cpu)));
    let chunk = rows(0, 0..100);
    let spans = executor.timeline(&chunk, last(&chunk).unwrap()).unwrap();
    let layers = shape().layers.len();
    let of = |engine: EngineKind, rows: std::ops::Range<usize>| -> Vec<&EngineSpan> {
        spans.iter().filter(|span| span.engine == engine && span.rows == rows).collect()
    };
    for rows in [0..HALF, HALF..100] {
        let (device, guest) = (of(EngineKind::Device, rows.clone()), of(EngineKind::Offload, rows));
        // Embedding; of each layer what is before attention and what is behind it.
        assert_eq!((device.len(), guest.len()), (1 + 2 * layers, layers));
        for (layer, guest) in guest.iter().enumerate() {
            assert!(device[1 + 2 * layer].end <= guest.start, "layer {layer}: {spans:?}");
            assert_eq!(device[1 + 2 * layer].segment, guest.segment);
        }
        assert!(device.is_sorted_by(|a, b| a.end <= b.start + 1e-6), "{spans:?}");
    }
    assert_eq!(spans.len(), 2 * (1 + 3 * layers));
}

/// A step of either half that fails, while the other half is under way, is made by the device, and so is all that follows.
#[test]
fn a_guest_that_fails_beside_the_device_is_left_and_no_token_is_another() {
    let model = Forged::new(&shape(), WeightFormat::Int8);
    let run = |seated: &mut Seated| {
        seated.replay.pages_mut().truncate(0, 0);
        let mut next = Vec::new();
        for rows in [rows(0, 0..128), rows(0, 128..200), rows(0, 200..201)] {
            seated.replay.forward(&rows, last(&rows)).unwrap();
            next.push(seated.replay.next(0));
        }
        (next, bits(&mut seated.replay, 0))
    };
    let plain = run(&mut Seated::of(&model.path(), 1, ROWS, None));
    let mut seated = beside_a_guest(&model);
    // Each of two divided passes has two steps a layer.
    let steps = 5 * shape().layers.len() as u32;
    // Steps of both halves, first and last ones among them.
    for step in (0..steps).step_by(if common::runs_all() { 1 } else { 7 }) {
        seated.faults.fails.set(None);
        seated.give(LATER);
        assert_eq!(run(&mut seated).0, plain.0);
        seated.faults.steps.set(0);
        seated.faults.fails.set(Some(step));
        let (next, last) = run(&mut seated);
        assert_eq!(next, plain.0, "step {step} fails");
        let apart = relative_rms(&floats(&[last]), &floats(std::slice::from_ref(&plain.1)));
        assert!(apart < 2e-3, "step {step}: {apart}");
        assert_eq!((seated.faults.steps.get(), seated.faults.alive.get()), (step + 1, 0));
    }
    // What is wrong in either half is found in the first pass.
    for scale in [1.05, f32::NAN] {
        seated.faults.fails.set(None);
        seated.faults.scale.set(Some(scale));
        seated.give(LATER);
        assert_eq!(run(&mut seated).0, plain.0, "{scale}");
        assert_eq!((seated.faults.steps.get(), seated.faults.alive.get()), (1, 0), "{scale}");
    }
    assert_eq!(kiln::testing::vulkan::device::instance::validation_messages(), 0);
}
