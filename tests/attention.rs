//! Attention over long contexts on a device, with the keys split among several workgroups. Covers positions at and
//! around the boundaries of these parts, a window whose ring has wrapped, and every number of heads per KV head.

mod common;

use common::{F32, Forged, max_abs, relative_rms, small_shape, vulkan};
use kiln::engine::{Device, Options};
use kiln::executor::{Executor, ExecutorExt, HeadRows, Measure, Row};
use kiln::model::{LayerKind, Shape, WeightFormat};
use kiln::schedule::KvType;
use kiln::sequence::session::Session;

const CONTEXT: usize = 1500;
const CHUNK: usize = 64;
/// Longer than two parts. The ring (window + chunk - 1) wraps four times.
const WINDOW: usize = 300;

/// A local and a global layer.
fn shape(heads: usize, kv_heads: usize, head_dim: usize) -> Shape {
    Shape {
        vocab: 97,
        hidden: 32,
        ffn: 16,
        heads,
        kv_heads,
        head_dim,
        layers: vec![LayerKind::Local, LayerKind::Global],
        window: WINDOW,
        query_pre_attn_scalar: head_dim as f32,
        max_context: CONTEXT,
        ..small_shape()
    }
}

/// Rows of each pass, at most a chunk. Keys are split for passes of one row and of a few.
fn passes() -> Vec<usize> {
    let mut passes = Vec::new();
    let mut at = 0;
    // Rows that see 127, 128, 129 keys and so on: one at a time, then several of them together, which see each other.
    let several = [
        [1, 1, 1, 1, 1, 4],
        [1, 2, 1, 1, 2, 2],
        [3, 1, 1, 1, 1, 2],
        [1, 1, 0, 7, 0, 0],
        [0, 8, 0, 0, 0, 1],
        [9, 0, 0, 0, 0, 0],
    ];
    let boundaries = [128, 256, WINDOW, 384, 512, 1024, 1280, CONTEXT - 6];
    for (boundary, together) in boundaries.into_iter().zip(several.iter().cycle()) {
        let from = boundary - 3;
        while at < from {
            passes.push(CHUNK.min(from - at));
            at += CHUNK.min(from - at);
        }
        for &rows in together.iter().filter(|&&rows| rows > 0) {
            passes.push(rows);
            at += rows;
        }
    }
    assert_eq!(at, CONTEXT);
    passes
}

/// The logits after each pass.
fn run(executor: &mut dyn Executor, tokens: &[u32]) -> Vec<Vec<f32>> {
    let mut session = Session::new(0, CONTEXT);
    let mut rest = tokens;
    passes()
        .into_iter()
        .map(|rows| {
            let (part, behind) = rest.split_at(rows);
            rest = behind;
            session.prefill(executor, part).unwrap();
            executor.logits(0).unwrap().to_vec()
        })
        .collect()
}

fn tokens() -> Vec<u32> {
    (0..CONTEXT).map(|i| (2 + 37 * i * i) as u32 % 97).collect()
}

fn load(model: &Forged, weights: WeightFormat, device: Device, kv: KvType, sequences: usize) -> Box<dyn Measure> {
    // f32 arithmetic, so that errors can only come from attention.
    let options = Options {
        weights,
        vulkan: common::forced(F32),
        kv,
        sequences,
        head_rows: sequences,
        chunk: Some(CHUNK),
        context: Some(CONTEXT),
        ..Options::default()
    };
    model.load(device, options)
}

/// Sums are taken in another order, and keys may round to the neighbouring f16; bf16 is eight times as coarse. On the CPU
/// inputs are rounded with INT8 weights, so that what attention adds shows best with BF16.
fn runs() -> [(Device, WeightFormat, KvType, f32); 5] {
    let int8 = WeightFormat::Int8;
    [
        (vulkan(), int8, KvType::F32, 2e-5),
        (vulkan(), int8, KvType::F16, 2e-3),
        (vulkan(), int8, KvType::Bf16, 8.0 * 2e-3),
        (Device::Cpu, WeightFormat::Bf16, KvType::F16, 2e-3),
        (Device::Cpu, WeightFormat::Bf16, KvType::Bf16, 8.0 * 2e-3),
    ]
}

#[test]
fn parts_of_a_long_context_make_the_whole() {
    let tokens = tokens();
    // Every number of heads per KV head, and heads narrower and wider than a subgroup's octets.
    for (heads, kv_heads, dim) in [(2, 2, 16), (4, 2, 32), (3, 1, 40), (4, 1, 16), (8, 1, 64)] {
        let references = [WeightFormat::Int8, WeightFormat::Bf16].map(|weights| {
            let model = Forged::new(&shape(heads, kv_heads, dim), weights);
            let want = run(load(&model, weights, Device::Reference, KvType::F32, 1).as_mut(), &tokens);
            (weights, model, want)
        });
        for (device, weights, kv, tolerance) in runs() {
            // Two shapes show what differs: whole loads of eight lanes, and others.
            if kv == KvType::Bf16 && ![32, 40].contains(&dim) {
                continue;
            }
            let (_, model, want) = references.iter().find(|(of, ..)| *of == weights).unwrap();
            let got = run(load(model, weights, device, kv, 1).as_mut(), &tokens);
            let errors: Vec<f32> = got.iter().zip(want).map(|(g, w)| relative_rms(g, w)).collect();
            let worst = errors.iter().copied().fold(0.0, f32::max);
            println!("{heads}/{kv_heads} heads of {dim}, {device:?} {kv:?}: at most {worst:.1e} of {tolerance:.1e}");
            let mut seen = 0;
            for (rows, error) in passes().into_iter().zip(errors) {
                seen += rows;
                assert!(
                    error < tolerance,
                    "{heads}/{kv_heads} heads of {dim}, {device:?} {kv:?}: {error:.1e} off behind {seen} tokens, {rows} in one pass"
                );
            }
        }
    }
    assert_eq!(kiln::testing::vulkan::device::instance::validation_messages(), 0);
}

/// Rows that see only some of the rows before them in their pass, since the window is shorter than the pass.
#[test]
fn a_window_may_be_shorter_than_the_rows_of_a_pass() {
    let tokens = &tokens()[..40];
    let rows = [8, 5, 1, 8, 3, 7, 8];
    let run = |executor: &mut dyn Executor| {
        let mut session = Session::new(0, CONTEXT);
        let mut logits = Vec::new();
        let mut at = 0;
        for rows in rows {
            session.prefill(executor, &tokens[at..at + rows]).unwrap();
            logits.push(executor.logits(0).unwrap().to_vec());
            at += rows;
        }
        logits
    };
    for (device, weights, kv, tolerance) in runs() {
        let model = Forged::new(&Shape { window: 3, ..shape(4, 2, 32) }, weights);
        let want = run(load(&model, weights, Device::Reference, KvType::F32, 1).as_mut());
        let got = run(load(&model, weights, device, kv, 1).as_mut());
        for (i, (g, w)) in got.iter().zip(&want).enumerate() {
            let error = relative_rms(g, w);
            assert!(error < tolerance, "{device:?} {kv:?}: pass {i} of {} rows is {error:.1e} off", rows[i]);
        }
    }
    assert_eq!(kiln::testing::vulkan::device::instance::validation_messages(), 0);
}

/// Each row of a batch has as many parts as its own context needs: a short row among long ones.
#[test]
fn rows_of_a_batch_have_parts_of_their_own() {
    let tokens = tokens();
    let lengths = [1400, 129, 3, 700];
    let decode = |executor: &mut dyn Executor| {
        for (i, &n) in lengths.iter().enumerate() {
            Session::new(i as u32, CONTEXT).prefill(executor, &tokens[i..][..n]).unwrap();
        }
        let row = |(i, &n): (usize, &usize)| Row { token: 5, position: n as u32, sequence: i as u32 };
        let rows: Vec<Row> = lengths.iter().enumerate().map(row).collect();
        executor.forward(&rows, Some(HeadRows { first: 0, count: rows.len() })).unwrap();
        (0..rows.len()).map(|i| executor.logits(i).unwrap().to_vec()).collect::<Vec<_>>()
    };
    for (device, weights, kv, tolerance) in runs() {
        let model = Forged::new(&shape(4, 2, 32), weights);
        let want = decode(load(&model, weights, Device::Reference, KvType::F32, lengths.len()).as_mut());
        let mut executor = load(&model, weights, device, kv, lengths.len());
        let got = decode(executor.as_mut());
        for (i, (g, w)) in got.iter().zip(&want).enumerate() {
            let error = relative_rms(g, w);
            assert!(error < tolerance, "{device:?} {kv:?}: sequence {i} is {error:.1e} off");
        }
        // The workgroup that combines the parts must reset the counters.
        assert!(
            got.iter().zip(decode(executor.as_mut())).all(|(a, b)| max_abs(a, &b) == 0.0),
            "{device:?} {kv:?}: not repeatable"
        );
    }
    assert_eq!(kiln::testing::vulkan::device::instance::validation_messages(), 0);
}
