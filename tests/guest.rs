//! A pass with a guest: another executor attends between submits of the device. It computes what a plain pass does, by other
//! kernels, and the same bits every time.

mod common;

use common::check::{F16_SHALLOW, F32_SHALLOW, check_prompts};
use common::{Case, DOT, F32, Forged, bits, golden, load, relative_rms, small_shape};
use kiln::engine::{self, Device, Options, ReplayOptions};
use kiln::executor::guest::GuestKind;
use kiln::executor::weights::Progress;
use kiln::executor::{Executor, HeadRows, Measure, Row, SampleRequests};
use kiln::model::checkpoint::Checkpoint;
use kiln::model::{LayerKind, Shape, WeightFormat};
use kiln::schedule::KvType;
use kiln::sequence::session::Session;
use kiln::testing::lower::arithmetic::Arithmetic;

const GUESTS: [GuestKind; 2] = [GuestKind::Reference, GuestKind::Cpu];

fn with_guest(arithmetic: Option<Arithmetic>, guest: Option<GuestKind>) -> ReplayOptions {
    ReplayOptions { guest, ..common::forced(arithmetic) }
}

/// The golden prompts: prefill in one chunk, in several and token by token, hidden rows, and a greedy continuation.
#[test]
fn a_pass_with_a_guest_matches_the_golden_case() {
    let case = Case::open("tiny");
    for (guest, weights, arithmetic, kv, chunk, tolerance) in [
        (GuestKind::Reference, WeightFormat::Bf16, F32, KvType::F32, 160, F32_SHALLOW),
        (GuestKind::Reference, WeightFormat::Int8, F32, KvType::F32, 7, F32_SHALLOW),
        (GuestKind::Reference, WeightFormat::Int8, DOT, KvType::F16, 16, F16_SHALLOW),
        (GuestKind::Reference, WeightFormat::Int8, DOT, KvType::F16, 1, F16_SHALLOW),
        (GuestKind::Cpu, WeightFormat::Int8, F32, KvType::F16, 160, F16_SHALLOW),
        (GuestKind::Cpu, WeightFormat::Int8, DOT, KvType::F16, 7, F16_SHALLOW),
        (GuestKind::Cpu, WeightFormat::Bf16, F32, KvType::F32, 16, F16_SHALLOW),
    ] {
        let options = Options {
            device: common::vulkan(),
            weights,
            kv,
            vulkan: with_guest(arithmetic, Some(guest)),
            chunk: Some(chunk),
            context: Some(160),
            head_rows: 8,
            ..Options::default()
        };
        let mut executor = load(&golden("tiny"), options);
        let name = if guest == GuestKind::Cpu { "attention on CPU, " } else { "attention on CPU reference, " };
        assert!(executor.device().contains(name), "{}", executor.device());
        let what = format!("{guest:?}, {arithmetic:?}, {kv:?}, chunk {chunk}");
        check_prompts(&case, executor.as_mut(), weights, tolerance, &what);
    }
    assert_eq!(kiln::testing::vulkan::device::instance::validation_messages(), 0);
}

const CONTEXT: usize = 256;
const SEQUENCES: usize = 6;

/// A window shorter than a page, and layers of both kinds.
fn shape() -> Shape {
    let layers = vec![LayerKind::Local, LayerKind::Global, LayerKind::Local];
    Shape { layers, window: 40, max_context: CONTEXT, ..small_shape() }
}

fn loaded(model: &Forged, vulkan: ReplayOptions) -> Box<dyn Measure> {
    let options = Options {
        vulkan,
        sequences: SEQUENCES,
        head_rows: SEQUENCES,
        chunk: Some(48),
        context: Some(CONTEXT),
        ..Options::default()
    };
    model.load(common::vulkan(), options)
}

fn row(sequence: u32, position: u32) -> Row {
    Row { token: (3 + 31 * sequence + 7 * position) % 257, position, sequence }
}

/// Bits of the logits of passes of every kind: prompts in chunks, rows of several sequences, mixed passes, rows in any order, and
/// a sequence that was rewound and goes on otherwise.
fn every_kind(executor: &mut dyn Executor) -> Vec<Vec<u32>> {
    let mut seen = Vec::new();
    for (sequence, length) in [(0, 130), (1, 70), (2, 5), (3, 64)] {
        let tokens: Vec<u32> = (0..length).map(|position| row(sequence, position).token).collect();
        Session::new(sequence, CONTEXT).prefill(executor, &tokens).unwrap();
        seen.push(bits(executor, 0));
    }
    let ends = [130, 70, 5, 64].into_iter().zip(0..);
    let apart: Vec<Row> = ends.map(|(position, sequence)| row(sequence, position)).collect();
    let chunk: Vec<Row> = (0..40).map(|position| row(4, position)).collect();
    let next = apart.iter().map(|r| Row { position: r.position + 1, ..*r });
    let mixed: Vec<Row> = chunk.iter().copied().chain(next).collect();
    let any: Vec<Row> = (40..44).map(|p| row(4, p)).chain((71..73).map(|p| row(1, p + 1))).collect();
    for rows in [apart.clone(), mixed, any, vec![row(2, 7)]] {
        let count = rows.len().min(SEQUENCES);
        executor.forward(&rows, Some(HeadRows { first: rows.len() - count, count })).unwrap();
        (0..count).for_each(|r| seen.push(bits(executor, r)));
    }
    executor.pages_mut().truncate(0, 100);
    let again: Vec<Row> = (100..120).map(|position| Row { token: 9, ..row(0, position) }).collect();
    executor.forward(&again, Some(HeadRows { first: 19, count: 1 })).unwrap();
    seen.push(bits(executor, 0));
    seen
}

fn floats(bits: &[Vec<u32>]) -> Vec<f32> {
    bits.iter().flatten().map(|word| f32::from_bits(*word)).collect()
}

#[test]
fn every_kind_of_pass_may_have_a_guest_and_gives_the_same_bits_again() {
    let model = Forged::new(&shape(), WeightFormat::Int8);
    for (arithmetic, tolerance) in [(F32, 2e-3), (DOT, 5e-3)] {
        let plain = every_kind(loaded(&model, with_guest(arithmetic, None)).as_mut());
        for guest in GUESTS {
            let options = with_guest(arithmetic, Some(guest));
            let got = every_kind(loaded(&model, options).as_mut());
            for (i, (got, plain)) in got.iter().zip(&plain).enumerate() {
                let [got, plain] = [got, plain].map(|bits| floats(std::slice::from_ref(bits)));
                let apart = relative_rms(&got, &plain);
                assert!(apart < tolerance, "{arithmetic:?}, {guest:?}, row {i}: {apart}");
            }
            println!("{arithmetic:?}, {guest:?}: {:.1e} apart", relative_rms(&floats(&got), &floats(&plain)));
            assert!(every_kind(loaded(&model, options).as_mut()) == got, "{guest:?}: other bits in another run");
            // Keys and values that the host does not map are copied.
            let staged = ReplayOptions { staged: true, ..options };
            assert!(every_kind(loaded(&model, staged).as_mut()) == got, "{guest:?}: other bits through staging");
        }
    }
    assert_eq!(kiln::testing::vulkan::device::instance::validation_messages(), 0);
}

/// The device stops at every attention, whatever it was found to do in one submit; nothing runs ahead.
#[test]
fn a_pass_with_a_guest_takes_several_submits_and_none_runs_ahead() {
    let model = Forged::new(&shape(), WeightFormat::Int8);
    let vulkan = ReplayOptions { submit_budget: common::ONE_SUBMIT, ..with_guest(F32, Some(GuestKind::Cpu)) };
    let mut executor = loaded(&model, vulkan);
    let head = HeadRows { first: 0, count: 1 };
    for position in 0..4 {
        let before = executor.submits();
        executor.forward_ahead(&[row(0, position)], head).unwrap();
        assert!(!executor.is_ahead());
        let submits = executor.submits() - before;
        // Once the pass's time is known: what comes before each layer's attention, the rest, and the head.
        assert!(position == 0 || submits == shape().layers.len() as u64 + 2, "{submits} submits");
    }
    let mut filled = false;
    let asks =
        SampleRequests { fill: &mut |_, _| filled = true, is_slow: true, may_run_ahead: true, meanwhile: &mut || {} };
    executor.forward_choosing(&[row(0, 4)], head, asks).unwrap();
    assert!(!executor.is_ahead());
    assert!(filled);
    assert_eq!(kiln::testing::vulkan::device::instance::validation_messages(), 0);
}

#[test]
fn a_guest_is_of_a_vulkan_device_alone_and_verifies_no_drafts() {
    common::listen();
    let checkpoint = Checkpoint::open(&golden("tiny")).unwrap();
    let refused = |device, drafted| {
        let options = Options { device, drafted, vulkan: with_guest(None, Some(GuestKind::Cpu)), ..Options::default() };
        let Err(e) = engine::load(&checkpoint, &options, &Progress::default()) else { panic!("it was loaded") };
        (e.exit_code(), e.to_string())
    };
    for device in [Device::Cpu, Device::Reference] {
        let (code, said) = refused(device, 0);
        assert!(code == 2 && said.contains("only a Vulkan device has a guest; "), "{said}");
    }
    let (code, said) = refused(common::vulkan(), 4);
    assert!(code == 2 && said.contains("drafts"), "{said}");
}
