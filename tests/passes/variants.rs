//! Forces in turn the tiles of the linear kernels that tuning may choose, and compares with a golden case, or in INT4 with
//! the reference executor: every tile on a GPU and in `tools/test --full`, else every third or fifth. Tiles of integer dot products must give the same bits where as many lanes share a row of weights:
//! they add blocks in the same order.

use crate::common::{self, Case, DOT, F32, MATRIX_F16, MATRIX_S8, bits, golden, ids, load, relative_rms};
use kiln::engine::ReplayOptions;
use kiln::engine::{Device, Options};
use kiln::executor::{Executor, ExecutorExt, HeadRows, Measure, Row};
use kiln::model::WeightFormat;
use kiln::schedule::{Op, Schedule};
use kiln::sequence::session::Session;
use kiln::testing::lower::arithmetic::{Arithmetic, Operand};
use kiln::testing::lower::target::{Product, Target, Tile};
use kiln::testing::lower::units::MatrixUnits;
use kiln::testing::vulkan::Gpu;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::time::Duration;

/// The tolerance of tests/passes/goldens.rs for 16-bit activations.
const TOLERANCE: f32 = 0.015;
const PROMPT: &str = "len17";

fn options(arithmetic: Option<Arithmetic>, chunk: usize, tile: Option<Tile>) -> Options {
    let vulkan = ReplayOptions { tile, ..common::forced(arithmetic) };
    Options { device: common::vulkan(), vulkan, chunk: Some(chunk), context: Some(64), ..Options::default() }
}

/// The products of a model in passes of `rows` rows.
fn products(schedule: &Schedule, rows: usize) -> Vec<Product> {
    let mut all = Vec::new();
    for step in &schedule.steps {
        let Op::Linear { weight, .. } = step.op else { continue };
        for p in [false, true].map(|gelu| Product::new(weight, rows, gelu)) {
            if !all.contains(&p) {
                all.push(p);
            }
        }
    }
    all
}

/// How many lanes share a row of weights in each product of passes of `rows` rows where `tile` is forced: what decides in
/// which order a row's blocks are added.
fn sharers(gpu: &Gpu, schedule: &Schedule, rows: usize, tile: Tile) -> Vec<u32> {
    let target = Target::new(gpu.caps.subgroup, true, None);
    let of_product = |p| match tile {
        Tile::Dot(dot) if target.tiles(Arithmetic::IntegerDot, p).contains(&tile) => dot.sharers,
        _ => gpu.caps.subgroup,
    };
    products(schedule, rows).into_iter().map(of_product).collect()
}

/// The tiles that these products can have.
fn variants(gpu: &Gpu, units: Option<MatrixUnits>, schedule: &Schedule, family: Arithmetic, rows: usize) -> Vec<Tile> {
    let target = Target::new(gpu.caps.subgroup, true, units);
    let mut all = Vec::new();
    for v in products(schedule, rows).into_iter().flat_map(|p| target.tiles(family, p)) {
        if !all.contains(&v) {
            all.push(v);
        }
    }
    all
}

/// The logits of a golden prompt, in chunks of the executor's size.
fn logits(case: &Case, executor: &mut dyn Executor) -> Vec<f32> {
    let prompt = case.prompt(PROMPT);
    let mut session = Session::new(0, 64);
    session.prefill(executor, &ids(&prompt["ids"])).unwrap();
    executor.logits(0).unwrap().to_vec()
}

/// What they should be.
fn wanted(case: &Case, weights: WeightFormat) -> Vec<f32> {
    match weights {
        WeightFormat::Int8 => case.tensor(&format!("{PROMPT}.int8.logits")).to_vec(),
        _ => logits(
            case,
            load(&golden(case.name), Options { device: Device::Reference, weights, ..Options::default() }).as_mut(),
        ),
    }
}

/// Runs the prompt and compares.
fn check(case: &Case, want: &[f32], executor: &mut dyn Executor, what: &str) -> Vec<f32> {
    let got = logits(case, executor);
    let error = relative_rms(&got, want);
    assert!(error < TOLERANCE, "{what}: {error:.1e} off, of {TOLERANCE:.1e}");
    got
}

/// The specialisations of the linear kernels in a pass of `rows` rows.
fn specialised(executor: &mut dyn Measure, rows: usize) -> HashSet<String> {
    let rows: Vec<Row> = (0..rows as u32).map(|i| Row { token: 2, position: i, sequence: 0 }).collect();
    let times = executor.time_steps(&rows, HeadRows { first: 0, count: 1 }, 1).unwrap();
    times.into_iter().filter(|t| t.kernel.starts_with("linear_")).map(|t| t.variant).collect()
}

/// Runs the prompt with each tile forced, in chunks of `chunk` rows.
fn check_family(weights: WeightFormat, arithmetic: Option<Arithmetic>, family: Arithmetic, chunk: usize) {
    let case = Case::open("tiny");
    let gpu = Rc::new(common::open_gpu());
    let want = wanted(&case, weights);
    let load = |tile| load(&golden("tiny"), Options { weights, ..options(arithmetic, chunk, tile) });
    let mut usual = load(None);
    check(&case, &want, usual.as_mut(), "the usual variants");
    let units = common::units(&gpu);
    let all = variants(&gpu, units, usual.schedule(), family, chunk);
    drop(usual);
    let wanted = |v: &&Tile| match (v, units) {
        (Tile::Matrix(linear), Some(units)) => common::worth_compiling(&gpu, units, weights, linear),
        _ => true,
    };
    let wanted: Vec<Tile> = all.iter().filter(wanted).copied().collect();
    let step = match common::takes_all(&gpu) || wanted.len() < 8 {
        true => 1,
        // Lists go through three values of each setting for one row, and through two or four for several: a sample has them all.
        false if chunk == 1 => 5,
        false => 3,
    };
    let checked: Vec<Tile> = wanted.into_iter().skip(chunk.ilog2() as usize % step).step_by(step).collect();
    assert!(checked.len() > 1, "{family:?}, {chunk} rows: there is a choice");
    let mut seen = HashSet::new();
    let mut first = HashMap::new();
    for &v in &checked {
        let mut executor = load(Some(v));
        let what = format!("{weights:?}, {chunk} rows, {v:?}");
        let got = check(&case, &want, executor.as_mut(), &what);
        if family == Arithmetic::IntegerDot {
            // Tiles divide the outputs, not the sums; lanes that share a row divide its sum.
            let first = first.entry(sharers(&gpu, executor.schedule(), chunk, v)).or_insert_with(|| got.clone());
            assert!(got == *first, "{what}: other bits than the first variant with as many sharers");
        }
        seen.extend(specialised(executor.as_mut(), chunk));
    }
    println!("{family:?}, {chunk} rows: {} of {} variants, {} kinds of dispatch", checked.len(), all.len(), seen.len());
    assert!(seen.len() >= checked.len(), "{family:?}, {chunk} rows: {seen:?} is not what was forced");
    assert_eq!(kiln::testing::vulkan::device::instance::validation_messages(), 0);
}

/// Kernels for two, four and eight rows share each weight load. The last row of the prompt and the head use the kernel
/// for one. INT8 and INT4 take turns: each number of rows is in one of them.
#[test]
fn variants_of_dot_products_match() {
    for chunk in [2, 8] {
        check_family(WeightFormat::Int8, DOT, Arithmetic::IntegerDot, chunk);
    }
}

#[test]
fn variants_of_dot_products_with_int4_match() {
    for chunk in [1, 4] {
        check_family(WeightFormat::Int4, DOT, Arithmetic::IntegerDot, chunk);
    }
}

#[test]
fn variants_of_matrix_products_match() {
    let gpu = common::open_gpu();
    if gpu.caps.matrix.is_none() {
        println!("not checked here: {} has no matrix units", gpu.caps.name);
        return;
    }
    for chunk in [8, 17, 33] {
        check_family(WeightFormat::Int8, MATRIX_F16, Arithmetic::Matrix(Operand::F16), chunk);
        check_family(WeightFormat::Int4, MATRIX_F16, Arithmetic::Matrix(Operand::F16), chunk);
    }
}

#[test]
fn variants_of_matrix_products_of_bytes_match() {
    let gpu = common::open_gpu();
    if gpu.caps.matrix.is_none_or(|u| u.s8_k.is_none()) {
        println!("not checked here: {} has no matrices of bytes", gpu.caps.name);
        return;
    }
    for chunk in [8, 17, 33] {
        check_family(WeightFormat::Int8, MATRIX_S8, Arithmetic::Matrix(Operand::S8), chunk);
    }
}

/// A relayed pass gives the same bits as one with barriers: whole or in pieces, past the window, with rows of a prompt
/// and of several sequences.
#[test]
fn relayed_dispatches_change_no_bit() {
    let int4 = [DOT, MATRIX_F16].map(|arithmetic| (WeightFormat::Int4, arithmetic));
    let int8 = [DOT, F32, MATRIX_F16, MATRIX_S8].map(|arithmetic| (WeightFormat::Int8, arithmetic));
    for (weights, arithmetic) in int8.into_iter().chain(int4) {
        for budget in [ReplayOptions::default().submit_budget, Duration::from_nanos(1)] {
            let [relayed, behind_barriers] = [true, false].map(|relay| {
                let options = options(arithmetic, 8, None);
                let vulkan = ReplayOptions { relay: Some(relay), submit_budget: budget, ..options.vulkan };
                let options = Options { weights, vulkan, sequences: 6, head_rows: 6, ..options };
                logits_of_two_batches(load(&golden("tiny"), options).as_mut())
            });
            assert!(relayed == behind_barriers, "{weights:?}, {arithmetic:?}, submits of {budget:?}");
        }
    }
    assert_eq!(kiln::testing::vulkan::device::instance::validation_messages(), 0);
}

/// The same with gate and up in stages, for which the next product waits one by one.
#[test]
fn stages_of_a_relay_change_no_bit() {
    let gpu = common::open_gpu();
    for (model, weights) in
        [("tiny", WeightFormat::Int8), ("wide_small", WeightFormat::Int8), ("tiny", WeightFormat::Int4)]
    {
        let run = |relay, variant| {
            let options = options(DOT, 2, variant);
            let vulkan = ReplayOptions { relay: Some(relay), ..options.vulkan };
            let options = Options { weights, vulkan, sequences: 6, head_rows: 6, ..options };
            load(&golden(model), options)
        };
        let all = variants(&gpu, None, run(false, None).schedule(), Arithmetic::IntegerDot, 1);
        let mut want = HashMap::new();
        let step = if common::takes_all(&gpu) { 1 } else { 2 };
        let staged = all.iter().filter_map(|v| match v {
            Tile::Dot(tile) if tile.turns == 2 && tile.outputs == 1 => Some((v, tile.sharers)),
            _ => None,
        });
        let staged = staged.step_by(step);
        assert!(staged.clone().count() > 1);
        for (&variant, sharers) in staged {
            // Those who share a row divide its sum.
            let want = want.entry(sharers).or_insert_with(|| logits_of_two_batches(run(false, Some(variant)).as_mut()));
            let got = logits_of_two_batches(run(true, Some(variant)).as_mut());
            assert!(got == *want, "{model}, {weights:?}, {variant:?}");
        }
    }
    assert_eq!(kiln::testing::vulkan::device::instance::validation_messages(), 0);
}

/// Bits of the logits of a prompt of 9 tokens, then of 30 passes of one sequence, then of 4 passes of six.
fn logits_of_two_batches(executor: &mut dyn Executor) -> Vec<u32> {
    let mut seen = Vec::new();
    let mut session = Session::new(0, 64);
    session.prefill(executor, &[2, 5, 6, 7, 8, 9, 10, 11, 12]).unwrap();
    for _ in 0..30 {
        seen.extend(bits(executor, 0));
        let next = executor.next(0);
        session.decode(executor, next).unwrap();
    }
    for position in 0..4 {
        let rows: Vec<Row> = (0..6).map(|i| Row { token: 20 + i, position, sequence: i }).collect();
        executor.forward(&rows, Some(HeadRows { first: 0, count: 6 })).unwrap();
        (0..6).for_each(|r| seen.extend(bits(executor, r)));
    }
    seen
}
