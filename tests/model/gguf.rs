//! Models from GGUF files in the types that these have, on every executor: as exact as the file's weights.

use crate::common::{self, AUTO, DOT, F32, MATRIX_F16, floats, golden, ids, load, observe, relative_rms};
use kiln::engine::{Device, Options, ReplayOptions};
use kiln::executor::{ExecutorExt, HeadRows, Row};
use kiln::model::{BlockFormat, LayerKind, Shape, WeightFormat};
use kiln::schedule::{KvType, Op, Segment, Step};
use kiln::sequence::session::Session;
use kiln::testing::lower::target::{DotTile, Tile};
use std::path::{Path, PathBuf};

const GOLDEN: &str = "gguf/model.gguf";

/// The golden prompt and the logits of all its positions.
fn golden_logits() -> (Vec<u32>, Vec<f32>) {
    let json = std::fs::read(golden("gguf/golden.json")).unwrap();
    let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
    (ids(&json["prompt"]), json["logits"].as_array().unwrap().iter().flat_map(floats).collect())
}

/// Every type of matrix in one model, the parts of qkv and of gate_up in different ones.
#[test]
fn a_model_of_every_type_has_the_golden_logits() {
    let (prompt, want) = golden_logits();
    let has_units = common::open_gpu().caps.matrix.is_some();
    // Its BF16, F16 and F32 matrices have values that BF16 holds.
    let exact = Options { weights: WeightFormat::Bf16, context: Some(64), ..Options::default() };
    let mut runs = vec![(Device::Reference, AUTO, 2e-5), (common::vulkan(), F32, 2e-5)];
    // Keys and values of f16.
    runs.push((Device::Cpu, AUTO, 5e-3));
    // 16-bit activations, and f16 weights.
    runs.push((common::vulkan(), DOT, 5e-4));
    runs.extend(common::takes_all(&common::open_gpu()).then_some((common::vulkan(), AUTO, 3e-3)));
    runs.extend(has_units.then_some((common::vulkan(), MATRIX_F16, 3e-3)));
    for (device, arithmetic, tolerance) in runs {
        // A driver for the processor compiles integer dot products for minutes.
        let few: &[usize] = if arithmetic == DOT { &[4] } else { &[1, 4, 64] };
        for &chunk in if common::takes_all(&common::open_gpu()) { &[1, 4, 64] } else { few } {
            let vulkan = common::forced(arithmetic);
            let options = Options { device, vulkan, kv: KvType::F32, chunk: Some(chunk), ..exact };
            let mut executor = load(&golden(GOLDEN), options);
            let got = observe(executor.as_mut(), &mut Session::new(0, 64), &prompt).logits.concat();
            let error = relative_rms(&got, &want);
            println!("{device:?} {arithmetic:?}, chunks of {chunk}: {error:.1e} of {tolerance:.1e}");
            assert!(error < tolerance, "{device:?} {arithmetic:?}, chunks of {chunk}: {error}");
        }
    }
    assert_eq!(kiln::testing::vulkan::device::instance::validation_messages(), 0);
}

/// Products whose parts differ in format are recorded one by one, each as its type.
#[test]
fn each_matrix_is_in_its_own_type() {
    let executor = load(&golden(GOLDEN), Options { device: Device::Cpu, ..Options::default() });
    let products = |segment| {
        let steps = &executor.schedule().steps[executor.schedule().steps_of(segment)];
        let format = |step: &Step| if let Op::Linear { weight, .. } = step.op { Some(weight.format) } else { None };
        steps.iter().filter_map(format).collect::<Vec<WeightFormat>>()
    };
    use WeightFormat::{Int4, Int8};
    let [q4_k, q5_0, q6_k, q8_0] =
        [BlockFormat::Q4K, BlockFormat::Q5_0, BlockFormat::Q6K, BlockFormat::Q8_0].map(WeightFormat::Blocks);
    let layers = [0, 1].map(|i| products(Segment::Layer(i)));
    // INT8 is made of F16, BF16 and F32.
    assert_eq!(layers[0], [q4_k, q6_k, q8_0, Int4, q4_k, q8_0, q6_k]);
    assert_eq!(layers[1], [q6_k, Int8, q4_k, q8_0, Int8, Int4, Int8]);
    assert_eq!(products(Segment::Head), [q5_0]);
    assert_eq!(executor.schedule().weights.embedding.format, q6_k);
}

const VOCAB: usize = 320;

/// A model with two layers, whose matrices have the types that `format` gives their names.
fn random_model(seed: u64, format: impl Fn(&str) -> BlockFormat) -> (tempfile::TempDir, PathBuf) {
    let shape = Shape {
        vocab: VOCAB,
        hidden: 512,
        ffn: 768,
        layers: vec![LayerKind::Local, LayerKind::Global],
        ..common::small_shape().with_heads(4, 2, 64).with_window(16)
    };
    common::gguf::random_model(&shape, seed, format)
}

/// The logits of the last position of a prompt of so many tokens, then of a few passes of one row.
fn logits(path: &Path, prompt: u32, options: Options) -> Vec<f32> {
    let mut executor = load(path, Options { context: Some(64), ..options });
    let mut session = Session::new(0, 64);
    let tokens: Vec<u32> = (0..prompt).map(|i| (i * 37 + 5) % VOCAB as u32).collect();
    session.prefill(executor.as_mut(), &tokens).unwrap();
    let mut all = Vec::new();
    for id in [7, 300, 11] {
        all.extend_from_slice(executor.logits(0).unwrap());
        session.decode(executor.as_mut(), id).unwrap();
    }
    all
}

/// Compares Vulkan, in every arithmetic that the device may have, with the reference executor.
fn check(what: &str, path: &Path) {
    let has_units = common::open_gpu().caps.matrix.is_some();
    let of = |device| logits(path, 40, Options { device, ..Options::default() });
    let want = of(Device::Reference);
    let error = relative_rms(&of(Device::Cpu), &want);
    println!("{what} on the CPU: {error:.1e}");
    assert!(error < 2e-2, "{what} on the CPU: {error}");
    assert!(want.iter().any(|l| l.abs() > 0.1), "{what}: the logits say something");
    for (arithmetic, kv, tolerance) in [
        (F32, KvType::F32, 2e-5),
        // 16-bit activations.
        (DOT, KvType::F32, 5e-4),
        (MATRIX_F16, KvType::F16, 3e-3),
    ] {
        if arithmetic == MATRIX_F16 && !has_units {
            println!("{what} {arithmetic:?}: not run: the device has no matrix units");
            continue;
        }
        // The prompt in kernels of several rows and of many; what follows in those of one.
        let chunks: &[usize] = match arithmetic {
            F32 => &[40],
            DOT if !common::runs_all() => &[3],
            _ => &[3, 40],
        };
        for &chunk in chunks {
            let vulkan = common::forced(arithmetic);
            let options = Options { device: common::vulkan(), kv, chunk: Some(chunk), vulkan, ..Options::default() };
            let error = relative_rms(&logits(path, 40, options), &want);
            println!("{what} {arithmetic:?}, chunks of {chunk}: {error:.1e} of {tolerance:.1e}");
            assert!(error < tolerance, "{what} {arithmetic:?}, chunks of {chunk}: {error}");
        }
    }
    assert_eq!(kiln::testing::vulkan::device::instance::validation_messages(), 0);
}

/// One format for each way in which scales lie and blocks are added.
const WAYS: [BlockFormat; 5] =
    [BlockFormat::Q2K, BlockFormat::Q3K, BlockFormat::Q4K, BlockFormat::Iq4Xs, BlockFormat::Q5_0];

/// The golden model has every type, and the mix those of most files, in every arithmetic; alone a sample has the ways of others.
#[test]
fn a_model_of_one_type_computes_what_the_reference_does() {
    let takes_all = common::takes_all(&common::open_gpu());
    for (i, format) in BlockFormat::ALL.into_iter().enumerate().filter(|(_, f)| takes_all || WAYS[..2].contains(f)) {
        let (_dir, path) = random_model(0x6767_0001 + i as u64, |_| format);
        check(format.name(), &path);
    }
}

/// The values and the way down in another type than the rest, as in files called Q4_K_M.
fn mixed(name: &str) -> BlockFormat {
    match name {
        "token_embd" | "blk.0.attn_v" | "blk.0.ffn_down" | "blk.1.attn_k" | "blk.1.ffn_up" => BlockFormat::Q6K,
        "blk.1.attn_v" => BlockFormat::Q8_0,
        "blk.1.attn_output" => BlockFormat::Q4_0,
        "blk.0.attn_output" => BlockFormat::Q5_0,
        _ => BlockFormat::Q4K,
    }
}

#[test]
fn a_mix_of_types_computes_what_the_reference_does() {
    let (_dir, path) = random_model(0x6767_0011, mixed);
    check("a mix", &path);
}

/// Tiles of integer dot products divide the outputs, not the sums, and a relayed dispatch waits for what a barrier would, also
/// where products of several types read the same inputs.
#[test]
fn neither_tiles_nor_a_relay_change_a_bit() {
    let check = |what: &str, path: &Path, tiles: &[DotTile]| {
        let run = |relay, tile| {
            let vulkan = ReplayOptions { relay: Some(relay), tile, ..common::forced(DOT) };
            logits(path, 4, Options { device: common::vulkan(), chunk: Some(2), vulkan, ..Options::default() })
        };
        let want = run(false, None);
        assert!(run(true, None) == want, "{what}, relayed");
        for &tile in tiles {
            assert!(run(true, Some(Tile::Dot(tile))) == want, "{what}, {tile:?}");
        }
    };
    let sharers = common::open_gpu().caps.subgroup;
    let tile = |outputs, unroll, subgroups, turns| DotTile { outputs, sharers, unroll, subgroups, turns };
    let takes_all = common::takes_all(&common::open_gpu());
    for (i, format) in WAYS.into_iter().enumerate().step_by(if takes_all { 1 } else { 3 }) {
        let (_dir, path) = random_model(0x6767_0021 + i as u64, |_| format);
        let tiles =
            if i % 2 == 0 { [tile(1, 2, 4, 2), tile(2, 3, 8, 1)] } else { [tile(2, 3, 8, 1), tile(1, 2, 4, 2)] };
        check(format.name(), &path, &tiles[..if takes_all { 2 } else { 1 }]);
    }
    if takes_all {
        let (_dir, path) = random_model(0x6767_0031, mixed);
        check("a mix", &path, &[tile(1, 1, 4, 2)]);
    }
    assert_eq!(kiln::testing::vulkan::device::instance::validation_messages(), 0);
}

/// Several sequences in one pass have the logits that each has alone.
#[test]
fn a_batch_of_such_a_model_computes_what_its_sequences_would_alone() {
    let options = Options { context: Some(64), sequences: 5, head_rows: 5, ..Options::default() };
    let rows: Vec<Row> = (0..5).map(|i| Row { token: 7 + 17 * i, position: 0, sequence: i }).collect();
    for device in [Device::Cpu, common::vulkan()] {
        let mut executor = load(&golden(GOLDEN), Options { device, ..options });
        executor.forward(&rows, Some(HeadRows { first: 0, count: 5 })).unwrap();
        let together: Vec<Vec<f32>> = (0..5).map(|r| executor.logits(r).unwrap().to_vec()).collect();
        for (row, together) in rows.iter().zip(&together) {
            executor.forward(std::slice::from_ref(row), Some(HeadRows { first: 0, count: 1 })).unwrap();
            let error = relative_rms(together, executor.logits(0).unwrap());
            assert!(error < 5e-3, "{device:?}: sequence {} is {error} off", row.sequence);
        }
    }
}
