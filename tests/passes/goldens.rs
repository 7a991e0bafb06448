//! Every executor on the golden cases: logits of the last and of all positions, hidden rows, greedy ids; BF16 and INT8
//! weights; prompts below, at and above the window; prefill in one chunk, in several, and token by token.

use crate::common::check::{
    BF16_KV, F16_DEEP, F16_GEMMA4, F16_SHALLOW, F32_DEEP, F32_GEMMA4, F32_SHALLOW, Tolerance, check_prompts,
    check_routes,
};
use crate::common::{self, Case, DOT, F32, MATRIX_F16, MATRIX_S8, golden, golden_dir, ids, load, observe};
use kiln::engine::ReplayOptions;
use kiln::engine::{self, Device, Options};
use kiln::executor::ExecutorExt;
use kiln::executor::weights::Progress;
use kiln::model::{Checkpoint, WeightFormat};
use kiln::schedule::KvType;
use kiln::sequence::session::Session;
use kiln::testing::lower::arithmetic::Arithmetic;

/// Runs one prompt with each chunk size in `chunks` and compares it with the golden case.
fn check_case(case: &Case, options: Options, tolerance: Tolerance, chunks: &[usize]) {
    for &chunk in chunks {
        let options = Options { chunk: Some(chunk), context: Some(160), head_rows: 8, ..options };
        let (mut executor, what) = (load(&golden_dir(case.name), options), format!("chunk {chunk}"));
        check_prompts(case, executor.as_mut(), options.weights, tolerance, &what);
        // The prompts' check has the experts of the last row.
        if executor.schedule().shape.experts.is_some() && chunk == chunks[0] && options.kv != KvType::Bf16 {
            drop(executor);
            let checkpoint = Checkpoint::open(&golden_dir(case.name)).unwrap();
            let mut executor = engine::load_stepwise(&checkpoint, &options, &Progress::default()).unwrap();
            check_routes(case, executor.as_mut(), options.weights, tolerance, chunk, &what);
        }
    }
    assert_eq!(
        kiln::testing::vulkan::device::instance::validation_messages(),
        0,
        "the validation layer reported something"
    );
}

/// Chunk sizes: the whole prompt; several chunks with a partial last one; an odd size; token by token.
const CHUNKS: &[usize] = &[160, 16, 7, 1];
const BOTH: [WeightFormat; 2] = [WeightFormat::Bf16, WeightFormat::Int8];

fn check_reference(name: &'static str, tolerance: Tolerance, chunks: &[usize]) {
    // Chunks divide the products of either weights alike.
    let of_int8 = if common::runs_all() { chunks } else { &chunks[1..2] };
    for (weights, chunks) in BOTH.into_iter().zip([chunks, of_int8]) {
        let options = Options { device: Device::Reference, weights, ..Options::default() };
        check_case(&Case::open(name), options, tolerance, chunks);
    }
}

/// Runs a case with every arithmetic that a device may have, with KV in f32, f16 and bf16.
fn check_vulkan(name: &'static str, [f32, f16, bf16]: [Tolerance; 3], runs: &[Run]) {
    let case = Case::open(name);
    let units = common::open_gpu().caps.matrix;
    for &(weights, arithmetic, kv, chunks) in runs {
        let can = match arithmetic {
            MATRIX_F16 => units.is_some(),
            MATRIX_S8 => units.is_some_and(|u| u.s8_k.is_some()),
            _ => true,
        };
        if !can {
            println!("{name} {arithmetic:?}: not run: the device has no such matrix units");
            continue;
        }
        let tolerance = match kv {
            KvType::F32 if arithmetic == F32 => f32,
            KvType::Bf16 => bf16,
            KvType::F16 | KvType::F32 => f16,
        };
        let vulkan = common::forced(arithmetic);
        let options = Options { device: common::vulkan(), weights, kv, vulkan, ..Options::default() };
        println!("{name} {weights:?} {arithmetic:?} {kv:?}");
        check_case(&case, options, tolerance, chunks);
    }
}

/// Weights, arithmetic, KV, and chunks.
type Run = (WeightFormat, Option<Arithmetic>, KvType, &'static [usize]);

/// There are different kernels for many rows, few rows and one row, and for each type of weights and KV.
const SHALLOW: &[Run] = &[
    (WeightFormat::Bf16, F32, KvType::F32, &[160, 7, 1]),
    (WeightFormat::Bf16, F32, KvType::F16, &[16]),
    (WeightFormat::Int8, F32, KvType::F32, &[16, 1]),
    (WeightFormat::Int8, F32, KvType::F16, &[160, 7]),
    // 16-bit activations, whatever the type of the cache.
    (WeightFormat::Int8, DOT, KvType::F32, &[160, 7]),
    (WeightFormat::Int8, DOT, KvType::F16, &[16, 7, 1]),
    (WeightFormat::Int8, DOT, KvType::Bf16, &[16, 1]),
    (WeightFormat::Int8, MATRIX_F16, KvType::F32, &[7]),
    (WeightFormat::Int8, MATRIX_F16, KvType::F16, &[160, 16]),
    (WeightFormat::Int8, MATRIX_F16, KvType::Bf16, &[160]),
    (WeightFormat::Int8, MATRIX_S8, KvType::F32, &[7]),
    (WeightFormat::Int8, MATRIX_S8, KvType::F16, &[160, 16]),
];

/// Depth only adds rounding, so each arithmetic runs once.
const DEEP: &[Run] = &[
    (WeightFormat::Bf16, F32, KvType::F32, &[7]),
    (WeightFormat::Bf16, F32, KvType::F16, &[160]),
    (WeightFormat::Int8, F32, KvType::F32, &[160]),
    (WeightFormat::Int8, DOT, KvType::F16, &[160, 7]),
    (WeightFormat::Int8, MATRIX_F16, KvType::F16, &[160]),
    (WeightFormat::Int8, MATRIX_S8, KvType::F16, &[160]),
];

#[test]
fn reference_matches_tiny() {
    check_reference("tiny", F32_SHALLOW, CHUNKS);
}

#[test]
fn reference_matches_wide_small() {
    check_reference("wide_small", F32_SHALLOW, CHUNKS);
}

#[test]
fn reference_matches_deep62() {
    check_reference("deep62", F32_DEEP, &[160, 7]);
}

#[test]
fn reference_matches_gemma4_tiny4() {
    check_reference("tiny4", F32_GEMMA4, CHUNKS);
}

#[test]
fn reference_matches_gemma4_moe4() {
    check_reference("moe4", F32_GEMMA4, CHUNKS);
}

#[test]
fn reference_matches_gemma4_moe_wide4() {
    check_reference("moe_wide4", F32_GEMMA4, &[160, 7]);
}

#[test]
fn reference_matches_gemma4_wide4() {
    check_reference("wide4", F32_GEMMA4, CHUNKS);
}

/// What differs from the reference is the cache of f16, whatever the weights. These models' weights are random, and have no
/// redundancy that hides it.
fn check_cpu(name: &'static str, tolerances: &[(WeightFormat, KvType, f32)], chunks: &[usize]) {
    for &(weights, kv, tolerance) in tolerances {
        let options = Options { device: Device::Cpu, weights, kv, ..Options::default() };
        check_case(&Case::open(name), options, Tolerance::RelativeRms(tolerance), chunks);
    }
}

/// A cache of bf16 rounds eight times as much as one of f16.
const CPU_SHALLOW: [(WeightFormat, KvType, f32); 3] = [
    (WeightFormat::Bf16, KvType::F16, 0.005),
    (WeightFormat::Bf16, KvType::Bf16, BF16_KV),
    (WeightFormat::Int8, KvType::F16, 0.005),
];

#[test]
fn the_cpu_matches_tiny() {
    check_cpu("tiny", &CPU_SHALLOW, CHUNKS);
}

#[test]
fn the_cpu_matches_wide_small() {
    check_cpu("wide_small", &CPU_SHALLOW, CHUNKS);
}

#[test]
fn the_cpu_matches_deep62() {
    check_cpu("deep62", &[(WeightFormat::Bf16, KvType::F16, 0.05)], &[160, 7]);
}

/// Scores of Gemma 4 are not scaled, so that the rounding of keys matters more.
const CPU_GEMMA4: [(WeightFormat, KvType, f32); 3] = [
    (WeightFormat::Bf16, KvType::F16, 0.008),
    (WeightFormat::Bf16, KvType::Bf16, 0.06),
    (WeightFormat::Int8, KvType::F16, 0.008),
];

#[test]
fn the_cpu_matches_gemma4_tiny4() {
    check_cpu("tiny4", &CPU_GEMMA4, CHUNKS);
}

#[test]
fn the_cpu_matches_gemma4_wide4() {
    check_cpu("wide4", &CPU_GEMMA4, CHUNKS);
}

#[test]
fn the_cpu_matches_gemma4_moe4() {
    check_cpu("moe4", &CPU_GEMMA4, CHUNKS);
}

#[test]
fn the_cpu_matches_gemma4_moe_wide4() {
    check_cpu("moe_wide4", &CPU_GEMMA4, CHUNKS);
}

/// With f32 throughout, with 16 bits somewhere, with keys and values in bf16.
const BOUNDS: [Tolerance; 3] = [F32_SHALLOW, F16_SHALLOW, Tolerance::RelativeRms(BF16_KV)];
const BOUNDS_GEMMA4: [Tolerance; 3] = [F32_GEMMA4, F16_GEMMA4, Tolerance::RelativeRms(0.06)];

#[test]
fn vulkan_matches_gemma4_tiny4() {
    check_vulkan("tiny4", BOUNDS_GEMMA4, WIDE);
}

#[test]
fn vulkan_matches_gemma4_moe4() {
    check_vulkan("moe4", BOUNDS_GEMMA4, or_few(EXPERTS));
}

#[test]
#[ignore = "minutes of a driver for the CPU: tools/test --full runs it"]
fn vulkan_matches_gemma4_moe_wide4() {
    check_vulkan("moe_wide4", BOUNDS_GEMMA4, WIDE);
}

#[test]
#[ignore = "minutes of a driver for the CPU: tools/test --full runs it"]
fn vulkan_matches_gemma4_wide4() {
    check_vulkan("wide4", BOUNDS_GEMMA4, WIDE);
}

#[test]
fn vulkan_matches_tiny() {
    check_vulkan("tiny", BOUNDS, SHALLOW);
}

/// Passes of one row, of few rows and of rows that are grouped by experts, in each arithmetic.
const EXPERTS: &[Run] = &[
    (WeightFormat::Bf16, F32, KvType::F32, &[16, 1]),
    (WeightFormat::Int8, F32, KvType::F16, &[160, 7]),
    (WeightFormat::Int8, DOT, KvType::F16, &[160, 7, 1]),
    (WeightFormat::Int8, DOT, KvType::Bf16, &[16]),
    (WeightFormat::Int8, MATRIX_F16, KvType::F16, &[160, 7]),
    (WeightFormat::Int8, MATRIX_S8, KvType::F16, &[16]),
];

/// One length of chunks in each arithmetic, for what a driver for the processor compiles in minutes.
const FEW: &[Run] = &[
    (WeightFormat::Bf16, F32, KvType::F32, &[7]),
    (WeightFormat::Int8, DOT, KvType::F16, &[7]),
    (WeightFormat::Int8, MATRIX_F16, KvType::F16, &[16]),
    (WeightFormat::Int8, MATRIX_S8, KvType::F16, &[160]),
];

/// All runs, or alone a sample the few.
fn or_few(runs: &'static [Run]) -> &'static [Run] {
    if common::takes_all(&common::open_gpu()) { runs } else { FEW }
}

/// Each type of KV and each arithmetic that `tiny` has, in one length of chunks where a driver for the processor compiles.
const WIDE: &[Run] = &[
    (WeightFormat::Bf16, F32, KvType::F32, &[7]),
    (WeightFormat::Int8, F32, KvType::F16, &[160]),
    (WeightFormat::Int8, DOT, KvType::F32, &[160]),
    (WeightFormat::Int8, DOT, KvType::F16, &[7]),
    (WeightFormat::Int8, DOT, KvType::Bf16, &[1]),
    (WeightFormat::Int8, MATRIX_F16, KvType::F16, &[16]),
    (WeightFormat::Int8, MATRIX_F16, KvType::Bf16, &[160]),
    (WeightFormat::Int8, MATRIX_S8, KvType::F16, &[160]),
];

#[test]
#[ignore = "minutes of a driver for the CPU: tools/test --full runs it"]
fn vulkan_matches_wide_small() {
    check_vulkan("wide_small", BOUNDS, SHALLOW);
}

#[test]
fn vulkan_matches_deep62() {
    check_vulkan("deep62", [F32_DEEP, F16_DEEP, F16_DEEP], or_few(DEEP));
}

/// Where the host cannot map the device's memory, weights and results go through staging. The bits are the same.
#[test]
fn staging_changes_no_bit() {
    let tokens = ids(&Case::open("tiny").prompts()[5]["ids"]);
    for weights in BOTH {
        let run = |staged| {
            let vulkan = ReplayOptions { staged, ..ReplayOptions::default() };
            let options = Options { device: common::vulkan(), weights, head_rows: 4, vulkan, ..Options::default() };
            let mut executor = load(&golden("tiny"), options);
            let mut session = Session::new(0, 160);
            let out = observe(executor.as_mut(), &mut session, &tokens);
            session.decode(executor.as_mut(), out.next).unwrap();
            (out.logits, out.next, executor.logits(0).unwrap().to_vec(), executor.next(0))
        };
        assert_eq!(run(true), run(false));
    }
    assert_eq!(kiln::testing::vulkan::device::instance::validation_messages(), 0);
}

/// Gemma 4's spellings: the global layers' heads by keys of their own, flat and nested; names of a multimodal model, whose
/// vision tower is skipped.
#[test]
fn every_spelling_of_gemma4_tiny4_is_the_same_model() {
    let shards = ["config.json", "model.safetensors.index.json"].into_iter();
    let shards = shards.chain(["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]);
    let shards: Vec<String> = shards.map(|name| format!("tiny4/multimodal/{name}")).collect();
    let plain = "tiny4/model.safetensors";
    let variants = [
        ("the hub's text config", variant("tiny4/config.hub_text.json", &[plain])),
        ("the hub's multimodal config", variant("tiny4/config.hub_mm.json", &[plain])),
        ("multimodal", variant(&shards[0], &shards[1..].iter().map(String::as_str).collect::<Vec<_>>())),
        ("native INT8", variant("tiny4/config.json", &["tiny4/model.int8.safetensors"])),
    ];
    let tokens = ids(&Case::open("tiny4").prompts()[5]["ids"]);
    for device in [Device::Reference, Device::Cpu] {
        let run = |dir: &std::path::Path| {
            let mut executor = load(dir, Options { device, ..Options::default() });
            Session::new(0, 160).prefill(executor.as_mut(), &tokens).unwrap();
            executor.logits(0).unwrap().to_vec()
        };
        let want = run(&golden("tiny4"));
        for (name, dir) in &variants {
            assert_eq!(run(dir.path()), want, "{name} on {device:?}");
        }
    }
}

/// A model directory of `tiny` with other spellings of its config and weights.
fn variant(config: &str, weights: &[&str]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::copy(golden(config), dir.path().join("config.json")).unwrap();
    for w in weights {
        let from = golden(w);
        let name = from.file_name().unwrap().to_str().unwrap();
        let name = if name.contains("-of-") || name.ends_with(".json") { name } else { "model.safetensors" };
        std::fs::copy(&from, dir.path().join(name)).unwrap();
    }
    dir
}

/// The model gives the same bits however its files are spelled.
#[test]
fn every_spelling_of_tiny_is_the_same_model() {
    let shards: Vec<String> = (1..=4).map(|i| format!("tiny/sharded/model-0000{i}-of-00004.safetensors")).collect();
    let mut sharded: Vec<&str> = shards.iter().map(String::as_str).collect();
    let without_index = variant("tiny/sharded/config.json", &sharded);
    sharded.push("tiny/sharded/model.safetensors.index.json");
    let plain = "tiny/model.safetensors";
    let variants = [
        ("legacy text config", variant("tiny/config.legacy_text.json", &[plain])),
        ("legacy multimodal config", variant("tiny/config.legacy_mm.json", &[plain])),
        ("multimodal", variant("tiny/multimodal/config.json", &["tiny/multimodal/model.safetensors"])),
        (
            "hub layout",
            variant("tiny/multimodal/config.json", &["tiny/multimodal/model.hub_layout_text_only.safetensors"]),
        ),
        ("shards with an index", variant("tiny/sharded/config.json", &sharded)),
        ("shards without an index", without_index),
        ("native INT8", variant("tiny/config.json", &["tiny/model.int8.safetensors"])),
    ];
    let tokens = ids(&Case::open("tiny").prompts()[5]["ids"]);
    for device in [Device::Reference, Device::Cpu, common::vulkan()] {
        let run = |dir: &std::path::Path| {
            let mut executor = load(dir, Options { device, ..Options::default() });
            Session::new(0, 160).prefill(executor.as_mut(), &tokens).unwrap();
            executor.logits(0).unwrap().to_vec()
        };
        let want = run(&golden("tiny"));
        for (name, dir) in &variants {
            assert_eq!(run(dir.path()), want, "{name} on {device:?}");
        }
    }
}
