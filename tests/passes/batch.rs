//! A batch of 32 different prompts: each sequence's greedy output is the same as alone.
//!
//! A row's result does not depend on the rows beside it, bit for bit, as long as the same kernels compute it. That
//! holds within a kind of pass. With integer dot products it also holds across two to eight rows, whose kernels add in
//! the same order.
//!
//! A pass of one row has its own attention kernel, which reads its key from elsewhere, and the other arithmetics add in
//! other orders. There the outputs are compared wherever the margin of a choice leaves no doubt.

use crate::common::{self, AUTO, DOT, F32, MATRIX_F16, MATRIX_S8, golden, load, max_abs, rms};
use kiln::engine::{Device, Options};
use kiln::executor::{Executor, ExecutorExt, HeadRows, Row};
use kiln::schedule::KvType;
use kiln::sequence::session::Session;
use kiln::testing::lower::arithmetic::Arithmetic;

const SEQUENCES: usize = 32;
const CONTEXT: usize = 64;

/// Tokens that each sequence decodes.
fn steps() -> usize {
    if common::takes_all(&common::open_gpu()) { 12 } else { 4 }
}

/// Prompts of 1 to 40 tokens, all different: below the window of 16, at it and above.
fn prompts() -> Vec<Vec<u32>> {
    (0..SEQUENCES).map(|s| (0..1 + 5 * s % 40).map(|i| (2 + 31 * s + 7 * i * i) as u32 % 256).collect()).collect()
}

fn options(arithmetic: Option<Arithmetic>, kv: KvType, sequences: usize) -> Options {
    Options {
        device: common::vulkan(),
        vulkan: common::forced(arithmetic),
        kv,
        sequences,
        head_rows: sequences,
        context: Some(CONTEXT),
        chunk: Some(16),
        ..Options::default()
    }
}

/// Prefills sequence `i` with prompt `i`.
fn prefill(executor: &mut dyn Executor, prompts: &[Vec<u32>]) {
    for (i, p) in prompts.iter().enumerate() {
        Session::new(i as u32, CONTEXT).prefill(executor, p).unwrap();
    }
}

/// One decode pass over `rows`, and its logits.
fn decode(executor: &mut dyn Executor, rows: &[Row]) -> Vec<Vec<f32>> {
    executor.forward(rows, Some(HeadRows { first: 0, count: rows.len() })).unwrap();
    (0..rows.len()).map(|r| executor.logits(r).unwrap().to_vec()).collect()
}

fn next_row(prompts: &[Vec<u32>], sequence: usize, token: u32) -> Row {
    Row { token, position: prompts[sequence].len() as u32, sequence: sequence as u32 }
}

/// The argmax, and its margin over the second best.
fn choice(logits: &[f32]) -> (u32, f32) {
    let best = (0..logits.len()).rev().max_by(|&a, &b| logits[a].total_cmp(&logits[b])).unwrap();
    let others = logits.iter().enumerate().filter(|&(i, _)| i != best).map(|(_, &x)| x);
    (best as u32, logits[best] - others.fold(f32::NEG_INFINITY, f32::max))
}

/// One sequence's run alone: each step's token and logits.
struct Alone {
    tokens: Vec<u32>,
    logits: Vec<Vec<f32>>,
}

fn alone(executor: &mut dyn Executor, prompt: &[u32], steps: usize) -> Alone {
    let mut session = Session::new(0, CONTEXT);
    session.prefill(executor, prompt).unwrap();
    let mut out = Alone { tokens: Vec::new(), logits: Vec::new() };
    for _ in 0..steps {
        let token = executor.next(0);
        session.decode(executor, token).unwrap();
        out.tokens.push(token);
        out.logits.push(executor.logits(0).unwrap().to_vec());
    }
    out
}

/// Compares every sequence in the batch of 32 with its run alone. `tolerance` bounds the error of a logit in each.
fn check_greedy(arithmetic: Option<Arithmetic>, kv: KvType, tolerance: impl Fn(&[f32]) -> f32) {
    let (prompts, steps) = (prompts(), steps());
    let mut single = load(&golden("tiny"), options(arithmetic, kv, 1));
    let wants: Vec<Alone> = prompts.iter().map(|p| alone(single.as_mut(), p, steps)).collect();
    drop(single);

    let mut executor = load(&golden("tiny"), options(arithmetic, kv, SEQUENCES));
    prefill(executor.as_mut(), &prompts);
    let (mut compared, mut worst) = (0, 0f32);
    for step in 0..steps {
        // If a choice is in doubt, the batch may choose otherwise. All rows continue with the tokens chosen alone.
        let rows: Vec<Row> = (0..SEQUENCES)
            .map(|s| Row { position: (prompts[s].len() + step) as u32, ..next_row(&prompts, s, wants[s].tokens[step]) })
            .collect();
        let got = decode(executor.as_mut(), &rows);
        for (s, logits) in got.iter().enumerate() {
            let want = &wants[s].logits[step];
            let (limit, error) = (2.0 * tolerance(want), max_abs(logits, want));
            worst = worst.max(error / limit);
            assert!(error <= limit, "{arithmetic:?}, {kv:?}: sequence {s}, step {step}: {error} off, of {limit}");
            let (best, margin) = choice(want);
            if margin > limit {
                compared += 1;
                assert_eq!(executor.next(s), best, "{arithmetic:?}, {kv:?}: sequence {s}, step {step}");
            }
        }
    }
    let share = compared as f32 / (steps * SEQUENCES) as f32;
    println!(
        "{arithmetic:?}, {kv:?}: {:.1} % of choices compared, errors up to {worst:.2} of the limit",
        100.0 * share
    );
    assert!(share > 0.5, "{arithmetic:?}, {kv:?}: too few choices are beyond doubt: {share}");
}

/// The tolerance of the golden cases for f16: four deviations.
fn f16(logits: &[f32]) -> f32 {
    4.0 * 0.015 * rms(logits)
}

#[test]
fn a_batch_chooses_what_its_sequences_choose_alone() {
    check_greedy(F32, KvType::F32, |_| 3e-4);
    let gpu = common::open_gpu();
    let takes_all = common::takes_all(&gpu);
    if takes_all {
        check_greedy(AUTO, KvType::F16, f16);
    }
    // Alone with integer dot products, in the batch with f32.
    check_greedy(DOT, KvType::F16, f16);
    if let Some(units) = gpu.caps.matrix {
        // Alone with f32, in the batch with matrix units.
        check_greedy(MATRIX_F16, KvType::F16, f16);
        if takes_all && units.s8_k.is_some() {
            check_greedy(MATRIX_S8, KvType::F16, f16);
        }
    }
    assert_eq!(kiln::testing::vulkan::device::instance::validation_messages(), 0);
}

/// Within one kind of pass, whatever the other rows are and wherever the row is.
#[test]
fn a_row_has_the_same_bits_beside_any_others() {
    let takes_all = common::takes_all(&common::open_gpu());
    let or_first = |all: &'static [Option<Arithmetic>]| all.iter().take(if takes_all { all.len() } else { 1 });
    or_first(&[MATRIX_F16, F32, MATRIX_S8, AUTO]).for_each(|arithmetic| check_neighbours("tiny", *arithmetic));
    // Rows of experts are put together from all rows of a pass.
    or_first(&[F32, AUTO, MATRIX_S8]).for_each(|arithmetic| check_neighbours("moe4", *arithmetic));
}

fn check_neighbours(case: &str, arithmetic: Option<Arithmetic>) {
    let prompts = prompts();
    let mut executor = load(&golden(case), options(arithmetic, KvType::F16, SEQUENCES));
    prefill(executor.as_mut(), &prompts);
    let rows: Vec<Row> = (0..SEQUENCES).map(|s| next_row(&prompts, s, 5 + s as u32)).collect();
    let want = decode(executor.as_mut(), &rows);
    // Rows in reverse order, with other tokens in the odd ones. The even rows must not change, also where the rows of
    // an expert are others.
    let other = |r: &Row| if r.sequence % 2 == 1 { Row { token: r.token + 90, ..*r } } else { *r };
    let turned: Vec<Row> = rows.iter().rev().map(other).collect();
    let got = decode(executor.as_mut(), &turned);
    for (row, logits) in turned.iter().zip(&got) {
        let same = logits == &want[row.sequence as usize];
        assert_eq!(same, row.sequence % 2 == 0, "{case} {arithmetic:?}: sequence {}", row.sequence);
    }
    // Fewer rows in a pass of the same kind: the remaining rows are dead.
    let few = decode(executor.as_mut(), &rows[..SEQUENCES / 2 + 1]);
    assert!(few.iter().zip(&want).all(|(a, b)| a == b), "{case} {arithmetic:?}: fewer rows");
}

/// The kernels for two, four and eight rows add in the same order.
#[test]
fn dot_products_have_the_same_bits_in_batches_of_any_size() {
    let prompts = &prompts()[..8];
    for kv in [KvType::F16, KvType::F32] {
        let mut executor = load(&golden("tiny"), options(DOT, kv, 8));
        prefill(executor.as_mut(), prompts);
        let rows: Vec<Row> = (0..8).map(|s| next_row(prompts, s, 5 + s as u32)).collect();
        let want = decode(executor.as_mut(), &rows);
        for size in [2, 3, 4, 5] {
            for (first, part) in rows.chunks(size).enumerate() {
                // A pass of one row has its own attention kernel.
                if part.len() > 1 {
                    let got = decode(executor.as_mut(), part);
                    assert_eq!(got, want[first * size..][..part.len()], "{kv:?}, {size} rows from {}", first * size);
                }
            }
        }
    }
}

/// The executors of the processor batch too. Rows of a model with experts meet rows that chose others.
#[test]
fn processors_batch() {
    for case in ["tiny", "moe4"] {
        let bounds = [(Device::Reference, 1e-5), (Device::Cpu, 0.0)];
        bounds.into_iter().for_each(|(device, bound)| batches(case, device, bound));
    }
}

fn batches(case: &str, device: Device, bound: f32) {
    let prompts = prompts();
    let mut single = load(&golden(case), Options { device, ..options(AUTO, KvType::F32, 1) });
    let options = Options { device, ..options(AUTO, KvType::F32, SEQUENCES) };
    let mut executor = load(&golden(case), options);
    prefill(executor.as_mut(), &prompts);
    let rows: Vec<Row> = (0..SEQUENCES).map(|s| next_row(&prompts, s, 5)).collect();
    for (s, got) in decode(executor.as_mut(), &rows).iter().enumerate() {
        let mut session = Session::new(0, CONTEXT);
        session.prefill(single.as_mut(), &prompts[s]).unwrap();
        session.decode(single.as_mut(), 5).unwrap();
        assert!(max_abs(got, single.logits(0).unwrap()) <= bound, "{case} {device:?} sequence {s}");
    }
}
