//! Odd shapes on both executors: head sizes that are not powers of two, all ratios of GQA, vocabularies of any size, an
//! untied head. The logits must be equal, also in batches and after rewinding.

use crate::common::{self, AUTO, DOT, F32, Forged, MATRIX_F16, bits, max_abs, relative_rms, rms, small_shape};
use kiln::engine::ReplayOptions;
use kiln::engine::{Device, Options};
use kiln::executor::{ExecutorExt, HeadRows, Row};
use kiln::model::{AttentionShape, Shape, Values, WeightFormat, presets};
use kiln::schedule::KvType;
use kiln::sequence::session::Session;
use kiln::testing::lower::target::{DotTile, Tile};

fn prompt(shape: &Shape, n: usize) -> Vec<u32> {
    (0..n).map(|i| (2 + 37 * i * i) as u32 % shape.vocab as u32).collect()
}

/// The small shape with the parts of Gemma 4's pass: two kinds of heads, normed values, scalars of layers, a cap.
fn small_gemma4(values: Values) -> Shape {
    let (small, family) = (small_shape(), presets::preset("gemma4-31b").unwrap());
    // Only where keys are the source of values have global layers another number of KV heads.
    let kv_heads = if values == Values::Keys { 1 } else { 2 };
    let heads = |kind: AttentionShape, kv_heads, head_dim| AttentionShape { heads: 4, kv_heads, head_dim, ..kind };
    Shape {
        architecture: family.architecture,
        local: heads(AttentionShape { window: Some(9), ..family.local }, 2, 32),
        global: AttentionShape { values, ..heads(family.global, kv_heads, 48) },
        query_pre_attn_scalar: family.query_pre_attn_scalar,
        norms_values: true,
        scales_layers: true,
        softcap: Some(3.0),
        ..small
    }
}

#[test]
fn odd_shapes_agree_on_both_executors() {
    let variants: Vec<(&str, Shape)> = vec![
        ("head 6", small_shape().with_heads(4, 2, 6)),
        ("head 34, one KV head", small_shape().with_heads(4, 1, 34)),
        ("head 250, no GQA", small_shape().with_heads(2, 2, 250)),
        ("head 256, three groups of three", small_shape().with_heads(9, 3, 256)),
        ("hidden 8, ffn 8", Shape { hidden: 8, ffn: 8, ..small_shape() }),
        ("vocabulary 1", Shape { vocab: 3, ..small_shape() }),
        // More outputs than the largest grid has subgroups, so that kernels stride.
        ("vocabulary 540000", Shape { vocab: 540_000, hidden: 8, ..small_shape() }),
        ("untied head", Shape { tied: false, ..small_shape() }),
        ("window 1", small_shape().with_window(1)),
        ("hidden 1000, ffn 2008", Shape { hidden: 1000, ffn: 2008, ..small_shape() }),
        ("hidden 96, ffn 224", Shape { hidden: 96, ffn: 224, ..small_shape() }),
        ("hidden 1056, ffn 2000", Shape { hidden: 1056, ffn: 2000, ..small_shape() }),
        // The longest row of inputs that a workgroup keeps in shared memory, and one that it does not.
        ("hidden 64, ffn 5728", Shape { hidden: 64, ffn: 5728, ..small_shape() }),
        ("hidden 64, ffn 5760", Shape { hidden: 64, ffn: 5760, ..small_shape() }),
        ("Gemma 4, heads of 32 and 48", small_gemma4(Values::Keys)),
        ("Gemma 4, values of their own in all layers", Shape { softcap: None, ..small_gemma4(Values::Projected) }),
    ];
    let gpu = common::open_gpu();
    println!("{} with subgroups of {}", gpu.caps.name, gpu.caps.subgroup);
    let has_units = gpu.caps.matrix.is_some();
    let takes_all = common::takes_all(&gpu);
    drop(gpu);
    // With another subgroup width, shapes with the most outputs or the widest attention are left out: LLVM takes minutes to
    // compile them for 512-bit vectors.
    let small = |s: &Shape| s.vocab < 10_000 && s.local.head_dim * s.local.heads / s.local.kv_heads <= 256;
    let is_other_width = std::env::var_os("LP_NATIVE_VECTOR_WIDTH").is_some();
    // Then, and in a sample, each shape runs in one format only.
    let once = is_other_width || !takes_all;
    for (i, (name, shape)) in variants.into_iter().enumerate().filter(|(_, (_, s))| !is_other_width || small(s)) {
        // INT4 where rows are whole groups. Those of down in the shape with ffn 2000 are not.
        let formats = match WeightFormat::Int4.holds(shape.hidden) {
            true => vec![WeightFormat::Int4],
            false => vec![WeightFormat::Int8, WeightFormat::Bf16],
        };
        let (skip, take) = if once { (i % formats.len(), 1) } else { (0, formats.len()) };
        for format in formats.into_iter().skip(skip).take(take) {
            let model = Forged::new(&shape, format);
            let run = |device, arithmetic, kv, chunk| {
                let options = Options {
                    weights: format,
                    vulkan: common::forced(arithmetic),
                    kv,
                    chunk: Some(chunk),
                    context: Some(64),
                    ..Options::default()
                };
                let mut executor = model.load(device, options);
                let tokens = prompt(&shape, 40);
                let mut session = Session::new(0, 64);
                session.prefill(executor.as_mut(), &tokens[..23]).unwrap();
                tokens[23..].iter().for_each(|&t| session.decode(executor.as_mut(), t).unwrap());
                (executor.logits(0).unwrap().to_vec(), executor.next(0))
            };
            // The prefill is 23 rows in one pass (kernels for many rows), or chunks of 7. Then 17 tokens one by one
            // (kernels for few rows).
            let mut runs = vec![(F32, KvType::F32, 23, 2e-5)];
            if format.is_quantized() {
                // 16-bit activations.
                runs.extend([7, 23].map(|chunk| (DOT, KvType::F32, chunk, 5e-3)));
                // Mesa 26.1.6 crashes on matrices at subgroup widths other than its own.
                if has_units && !is_other_width {
                    runs.push((MATRIX_F16, KvType::F16, 23, 1.5e-2));
                }
            }
            let (want, best) = run(Device::Reference, F32, KvType::F32, 23);
            let mut runs: Vec<_> =
                runs.into_iter().map(|(a, kv, chunk, bound)| (common::vulkan(), a, kv, chunk, bound)).collect();
            // Keys and values of f16.
            runs.extend([7, 23].map(|chunk| (Device::Cpu, AUTO, KvType::F16, chunk, 5e-3)));
            for (device, arithmetic, kv, chunk, tolerance) in runs {
                let (got, chosen) = run(device, arithmetic, kv, chunk);
                let what = format!("{name} {} {device:?} {arithmetic:?}", format.name());
                let error = relative_rms(&got, &want);
                println!("{what}: {error:.1e}");
                assert!(error < tolerance, "{what}: {error}");
                let slack = 1e-3 + 8.0 * tolerance * rms(&want);
                assert!(want[chosen as usize] >= want[best as usize] - slack, "{what}: chose {chosen}, not {best}");
            }
        }
    }
    assert_eq!(kiln::testing::vulkan::device::instance::validation_messages(), 0);
}

#[test]
fn equal_logits_choose_the_lowest_id() {
    let shape = Shape { tied: false, vocab: 2000, ..small_shape() };
    for (period, device) in
        [7, 400].into_iter().flat_map(|p| [Device::Reference, Device::Cpu, common::vulkan()].map(|device| (p, device)))
    {
        let model = Forged::new(&shape, WeightFormat::Int8);
        model.repeat_head_rows(period);
        let mut executor = model.load(device, Options::default());
        Session::new(0, 64).prefill(executor.as_mut(), &prompt(&shape, 5)).unwrap();
        let logits = executor.logits(0).unwrap();
        let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let lowest = logits.iter().position(|&x| x == max).unwrap();
        assert_eq!(logits.iter().filter(|&&x| x == max).count(), (lowest..2000).step_by(period).count());
        assert_eq!(executor.next(0) as usize, lowest);
    }
}

/// Sequences of different lengths, decoded in one pass, give the same results as alone.
#[test]
fn a_batch_computes_what_its_sequences_would_alone() {
    let shape = small_shape();
    let model = Forged::new(&shape, WeightFormat::Int8);
    let prompts: Vec<Vec<u32>> = [3, 21, 1, 12, 30].iter().map(|&n| prompt(&shape, n)).collect();
    // Sums in another order may round a key to the neighbouring f16, which shows in the logits.
    let vulkan = common::vulkan();
    for (device, kv, tolerance) in [
        (Device::Reference, KvType::F32, 1e-5),
        (Device::Cpu, KvType::F16, 0.0),
        (vulkan, KvType::F32, 1e-5),
        (vulkan, KvType::F16, 1e-3),
    ] {
        let options = Options { kv, context: Some(64), vulkan: common::forced(F32), ..Options::default() };
        let mut alone = Vec::new();
        for p in &prompts {
            let mut executor = model.load(device, options);
            let mut session = Session::new(0, 64);
            session.prefill(executor.as_mut(), p).unwrap();
            session.decode(executor.as_mut(), 5).unwrap();
            alone.push(executor.logits(0).unwrap().to_vec());
        }
        let mut executor = model.load(device, Options { sequences: 5, head_rows: 5, ..options });
        for (i, p) in prompts.iter().enumerate() {
            Session::new(i as u32, 64).prefill(executor.as_mut(), p).unwrap();
        }
        let rows: Vec<Row> = prompts
            .iter()
            .enumerate()
            .map(|(i, p)| Row { token: 5, position: p.len() as u32, sequence: i as u32 })
            .collect();
        executor.forward(&rows, Some(HeadRows { first: 0, count: 5 })).unwrap();
        for (i, want) in alone.iter().enumerate() {
            let error = max_abs(executor.logits(i).unwrap(), want);
            assert!(error <= tolerance, "{device:?}, {kv:?}: sequence {i} is {error} off");
        }
    }
}

/// Gate and up in stages, which the product behind them waits for one by one or, where it keeps its inputs, all together.
fn check_stages(shape: &Shape, weights: WeightFormat, groups: usize) {
    let forged = Forged::new(shape, weights);
    let tokens = prompt(shape, 20);
    let run = |tile, relay| {
        let vulkan = ReplayOptions { tile, relay: Some(relay), ..common::forced(DOT) };
        let options = Options { weights, vulkan, ..Options::default() };
        let mut executor = forged.load(common::vulkan(), options);
        let mut session = Session::new(0, 64);
        let mut seen: Vec<u32> = Vec::new();
        session.prefill(executor.as_mut(), &tokens[..1]).unwrap();
        for &token in &tokens[1..] {
            session.decode(executor.as_mut(), token).unwrap();
            seen.extend(bits(executor.as_mut(), 0));
        }
        let row = [Row { token: 3, position: session.tokens().len() as u32, sequence: 0 }];
        let times = executor.time_steps(&row, HeadRows { first: 0, count: 1 }, 1).unwrap();
        let kernel = if weights.grouped().is_some() { "linear_dot_gelu_grouped" } else { "linear_dot_gelu_int8" };
        let of_groups = format!("groups [{groups}, 1, 1]");
        let staged = times.iter().any(|t| t.kernel == kernel && t.variant.contains(&of_groups));
        (seen, staged)
    };
    let sharers = common::open_gpu().caps.subgroup;
    let variant = Tile::Dot(DotTile { outputs: 1, sharers, unroll: 1, subgroups: 4, turns: 2 });
    let (want, _) = run(None, false);
    let (got, staged) = run(Some(variant), true);
    assert!(staged, "the variant was taken");
    assert!(got == want);
}

/// Gate and up in stages of a relay. The last stage has fewer blocks than there are workgroups: 13 in two stages of 7.
#[test]
fn a_stage_may_lack_blocks() {
    check_stages(&small_shape(), WeightFormat::Int8, 7);
}

/// INT4, whose loads take two blocks of inputs each, with inputs too long to be kept and with the longest that are.
#[test]
fn stages_may_be_waited_for_one_by_one_or_together() {
    for (ffn, groups) in [(5760, 180), (5728, 179)] {
        check_stages(&Shape { hidden: 64, ffn, ..small_shape() }, WeightFormat::Int4, groups);
    }
}

#[test]
fn a_rewound_session_continues_as_a_new_one() {
    let shape = small_shape();
    let model = Forged::new(&shape, WeightFormat::Int8);
    let tokens = prompt(&shape, 270);
    let options = Options { context: Some(300), chunk: Some(8), ..Options::default() };
    let mut executor = model.load(common::vulkan(), options);
    let has_units = common::open_gpu().caps.matrix.is_some();
    // Rewinds twice. Local layers hold two pages at most.
    let mut twice = Session::new(0, 300);
    twice.prefill(executor.as_mut(), &tokens[..260]).unwrap();
    assert_eq!(twice.rewind(executor.as_mut(), 210), 210);
    assert_eq!(twice.rewind(executor.as_mut(), 150), 0, "the page of positions 128 to 191 is gone");
    // The window is 9: behind position 256 a rewind can go back to 192 + 8.
    for (length, keep, kept) in
        [(260, 200, 200), (260, 199, 0), (250, 136, 136), (250, 135, 0), (17, 8, 8), (30, 30, 30)]
    {
        let mut session = Session::new(0, 300);
        session.prefill(executor.as_mut(), &tokens[..length]).unwrap();
        assert_eq!(session.rewind(executor.as_mut(), keep), kept, "back from {length} to {keep}");
        let more: Vec<u32> = tokens[kept..].iter().take(10).map(|t| (t + 1) % shape.vocab as u32).collect();
        session.prefill(executor.as_mut(), &more).unwrap();
        let got = executor.logits(0).unwrap().to_vec();

        let mut fresh = Session::new(0, 300);
        fresh.prefill(executor.as_mut(), &[&tokens[..kept], &more[..]].concat()).unwrap();
        let (apart, size) = (max_abs(&got, executor.logits(0).unwrap()), max_abs(&got, &vec![0.0; got.len()]));
        // Chunks of other lengths multiply in another arithmetic where matrix units round their inputs to f16.
        let most = if has_units { 4e-3 * size } else { 1e-3 };
        assert!(apart < most, "back from {length} to {keep}: {apart} of {size}");
    }
}

/// Lavapipe's subgroups are as wide as the vectors that it compiles for. Other widths run in child processes.
#[test]
#[ignore = "LLVM compiles for minutes: tools/test --full runs it"]
fn other_subgroup_sizes_agree_too() {
    let gpu = common::open_gpu();
    if !gpu.caps.name.contains("llvmpipe") || std::env::var_os("LP_NATIVE_VECTOR_WIDTH").is_some() {
        println!("not run: this is for lavapipe, once");
        return;
    }
    for (bits, subgroup) in [("128", 4), ("512", 16)] {
        let out = common::program::this_test()
            .args(["--exact", "shapes::odd_shapes_agree_on_both_executors", "--nocapture"])
            .env("LP_NATIVE_VECTOR_WIDTH", bits)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&out.stdout);
        assert!(out.status.success(), "subgroups of {subgroup}: {text}{}", String::from_utf8_lossy(&out.stderr));
        assert!(text.contains(&format!("subgroups of {subgroup}")), "{text}");
    }
}
