//! The bench on an executor that only records its passes.

use super::super::{BenchSettings, Stated};
use super::*;
use crate::executor::fake::FakeExecutor;
use crate::schedule::{Extent, KvType};
use std::time::Duration;

/// The next token of a row: a function of the row, so that a test can see which row it came from.
fn after(row: &Row) -> u32 {
    (3 * row.token + row.position + 17 * row.sequence + 1) % 64
}

/// An executor for `sequences` sequences with a read rate of `ceiling`.
fn fake(sequences: usize, max_rows: usize, ceiling: f64) -> FakeExecutor {
    let kv = KvType::F16;
    let extent = Extent { context: 64, max_rows, head_rows: sequences, sequences, kv, kv_tokens: None };
    FakeExecutor { next: after, ceiling, pause: Duration::from_micros(100), ..FakeExecutor::with(extent) }
}

/// Reading first raises a GPU's clocks for the matrix test.
#[test]
fn reading_comes_before_the_matrix_units() {
    let mut executor = fake(1, 8, 1e15);
    let reads = executor.reads.clone();
    let matrix = || Ok((reads.get() > 0).then_some(1e12));
    assert_eq!(Bench::new(&mut executor, matrix, &|_| {}).unwrap().ceilings().matrix, Some(1e12));
}

/// A GPU just out of idle may read slowly in the first measurement.
#[test]
fn the_read_ceiling_is_measured_once_more_behind_the_matrix_units() {
    let mut executor = FakeExecutor { first_read: 0.4, ..fake(1, 8, 1e15) };
    let reads = executor.reads.clone();
    let matrix = || {
        assert_eq!(reads.get(), 1);
        Ok(None)
    };
    assert_eq!(Bench::new(&mut executor, matrix, &|_| {}).unwrap().ceilings().read, 1e15);
    let mut executor = FakeExecutor { first_read: 2.0, ..fake(1, 8, 1e15) };
    assert_eq!(Bench::new(&mut executor, || Ok(None), &|_| {}).unwrap().ceilings().read, 2e15);
}

/// It may even read slowly until it has run real work.
#[test]
fn the_read_ceiling_is_measured_once_more_behind_a_line_that_reads_faster() {
    let mut executor = FakeExecutor { slow_reads: 2, first_read: 0.5f64.powi(45), ..fake(1, 8, 1e15) };
    let reads = executor.reads.clone();
    let mut bench = Bench::new(&mut executor, || Ok(None), &|_| {}).unwrap();
    assert_eq!(bench.ceilings().read, 1e15 * 0.5f64.powi(45));
    let line = bench.measure(Case { work: Work::Decode { sequences: 1, tokens: 2 }, depth: 0 }, 2).unwrap();
    assert_eq!((bench.ceilings().read, reads.get()), (1e15, 3));
    assert_eq!(bench.rates(&line), line.rates);
}

fn measure(executor: &mut FakeExecutor, case: Case, repetitions: usize) -> Result<BenchLine> {
    Bench::new(executor, || Ok(None), &|_| {})?.measure(case, repetitions)
}

const DECODE: Work = Work::Decode { sequences: 2, tokens: 12 };

/// The same rows again and again, with the logits of the last: each pass sees the same keys.
#[test]
fn rows_of_one_sequence_run_at_one_depth() {
    let mut executor = fake(1, 8, 1e15);
    let case = Case { work: Work::Rows { rows: 5, beside: 0, passes: 3 }, depth: 10 };
    let line = measure(&mut executor, case, 2).unwrap();
    assert_eq!((line.tokens, line.passes), (15, 3));
    let once = pass_cost(&executor.schedule, PassShape::Prefill { rows: 5, depth: 10 }, true);
    assert_eq!(line.cost.kv_bytes, 3 * once.kv_bytes);
    let timed = executor.passes.iter().rev().take(2 * 3);
    for (rows, head) in timed {
        let positions: Vec<u32> = rows.iter().map(|r| r.position).collect();
        assert_eq!((positions, *head), (vec![10, 11, 12, 13, 14], Some(HeadRows { first: 4, count: 1 })));
    }
}

/// A chunk of one sequence, then a row of each other sequence, each at the depth to which it was filled.
#[test]
fn mixed_rows_run_at_one_depth() {
    let mut executor = fake(3, 8, 1e15);
    let case = Case { work: Work::Rows { rows: 5, beside: 2, passes: 3 }, depth: 10 };
    let line = measure(&mut executor, case, 2).unwrap();
    assert_eq!((line.tokens, line.passes), (21, 3));
    let pass = PassShape::Mixed { chunk: 5, depth: 10, ends: true, sequences: 2, beside: 10 };
    assert_eq!(line.cost.operations, 3 * executor.schedule.cost(pass).operations);
    let (filling, timed) = executor.passes.split_at(executor.passes.len() - 2 * 3);
    assert_eq!(filling.iter().filter(|(_, head)| head.is_none()).map(|(rows, _)| rows.len()).sum::<usize>(), 3 * 10);
    for (rows, head) in timed {
        let rows: Vec<(u32, u32)> = rows.iter().map(|r| (r.sequence, r.position)).collect();
        assert_eq!(rows, [(0, 10), (0, 11), (0, 12), (0, 13), (0, 14), (1, 10), (2, 10)]);
        assert_eq!(*head, Some(HeadRows { first: 4, count: 3 }));
    }
}

/// Each pass begins after the accepted drafted tokens, and has the logits of all of its rows.
#[test]
fn drafts_are_run_as_rows_behind_those_that_were_right() {
    let mut executor = FakeExecutor { schedule: fake(8, 8, 1.0).schedule, ..fake(1, 8, 1e15) };
    let stated = Stated::new(Some(3), 0.5).unwrap();
    let case = Case { work: Work::Draft { stated, sequences: 1, tokens: 12 }, depth: 10 };
    let line = measure(&mut executor, case, 2).unwrap();
    assert!(line.tokens == 12 && line.passes > 3 && line.passes < 12, "{line:?}");
    let timed = &executor.passes[executor.passes.len() - line.passes..];
    let (mut at, mut cost, mut coins) = (10, Cost::default(), stated.coins(0));
    for (rows, head) in timed {
        let drafted = 3.min(21 - at);
        let positions: Vec<usize> = rows.iter().map(|row| row.position as usize).collect();
        assert_eq!(positions, (at..=at + drafted).collect::<Vec<_>>());
        assert_eq!(*head, Some(HeadRows { first: 0, count: 1 + drafted }));
        cost += executor.schedule.cost(PassShape::Verify { sequences: 1, rows: 1 + drafted, depth: at });
        at += 1 + coins(drafted);
    }
    assert_eq!((at, line.cost), (22, cost));
}

/// Sequences that decode together share the head rows of a pass, and each continues after its own accepted tokens.
#[test]
fn drafts_of_several_sequences_share_a_pass() {
    let mut executor = FakeExecutor { schedule: fake(8, 8, 1.0).schedule, ..fake(2, 8, 1e15) };
    let stated = Stated::new(Some(7), 0.5).unwrap();
    let case = Case { work: Work::Draft { stated, sequences: 2, tokens: 12 }, depth: 10 };
    let line = measure(&mut executor, case, 1).unwrap();
    assert!(line.tokens == 24 && line.passes > 4 && line.passes < 12, "{line:?}");
    let mut coins = [stated.coins(0), stated.coins(1)];
    let mut at = [10, 10];
    for (rows, head) in &executor.passes[executor.passes.len() - line.passes..] {
        assert_eq!(*head, Some(HeadRows { first: 0, count: rows.len() }));
        let running = at.iter().filter(|at| **at < 22).count();
        let mut expected = Vec::new();
        for (s, (at, coins)) in (0u32..).zip(at.iter_mut().zip(&mut coins)).filter(|(_, (at, _))| **at < 22) {
            let drafted = 7.min(21 - *at).min((8 - running) / running);
            expected.extend((*at..=*at + drafted).map(|position| (s, position as u32)));
            *at += 1 + coins(drafted);
        }
        assert_eq!(rows.iter().map(|row| (row.sequence, row.position)).collect::<Vec<_>>(), expected);
    }
    assert_eq!(at, [22, 22]);
}

#[test]
fn a_decode_feeds_each_sequence_its_own_choice_and_rewinds_between_repetitions() {
    let mut executor = fake(2, 8, f64::MAX);
    let line = measure(&mut executor, Case { work: DECODE, depth: 20 }, 3).unwrap();
    assert_eq!((line.tokens, line.passes, line.seconds.values.len()), (24, 12, 3));

    // Both sequences are prefilled first, in chunks and without head rows.
    let (filling, decoding): (Vec<_>, Vec<_>) = executor.passes.into_iter().partition(|(_, head)| head.is_none());
    let filled: Vec<(u32, u32)> = filling.iter().flat_map(|(rows, _)| rows).map(|r| (r.sequence, r.position)).collect();
    let expected: Vec<_> = (0..2).flat_map(|s| (0..20).map(move |p| (s, p))).collect();
    assert_eq!(filled, expected);
    assert_eq!(filling.iter().map(|(rows, _)| rows.len()).collect::<Vec<_>>(), [8, 8, 4, 8, 8, 4]);

    // Eight passes of warm-up, then three repetitions of twelve passes.
    let positions: Vec<u32> = decoding.iter().map(|(rows, _)| rows[0].position).collect();
    let run = |n: u32| 20..20 + n;
    assert_eq!(positions, run(8).chain(run(12)).chain(run(12)).chain(run(12)).collect::<Vec<_>>());
    for pair in decoding.windows(2) {
        for s in 0..2 {
            assert_eq!(pair[1].0[s].token, after(&pair[0].0[s]), "sequence {s}");
            assert_eq!((pair[1].0[s].sequence, pair[1].1), (s as u32, Some(HeadRows { first: 0, count: 2 })));
        }
    }
    assert_eq!(line.submits_per_token, 3.0 * 12.0 / 24.0);
    let busy = line.busy.unwrap();
    let expected = 3.0 * 12.0 * 20e-6 / line.seconds.values.iter().sum::<f64>();
    assert!((busy - expected).abs() < 1e-6, "{busy} is not {expected}");
}

#[test]
fn a_prefill_runs_in_chunks_with_one_head_and_a_cache_is_only_prefilled_further() {
    let mut executor = fake(1, 8, f64::MAX);
    let settings = BenchSettings {
        prefill: vec![20],
        decode: 0,
        batch: vec![1],
        rows: vec![],
        beside: 0,
        drafts: vec![],
        depth: vec![0, 5, 12],
        repetitions: 1,
    };
    let mut bench = Bench::new(&mut executor, || Ok(None), &|_| {}).unwrap();
    let lines: Vec<BenchLine> = settings.cases().into_iter().map(|c| bench.measure(c, 1).unwrap()).collect();
    assert!(lines.iter().all(|l| (l.tokens, l.passes) == (20, 3)));
    // Deeper cases read more keys. All operations except those of attention are the same.
    assert!(lines.windows(2).all(|l| l[0].cost.kv_bytes < l[1].cost.kv_bytes));
    assert!(lines.windows(2).all(|l| l[0].cost.weight_bytes == l[1].cost.weight_bytes));
    let filling = executor.passes.iter().map(|(rows, head)| (rows[0].position, rows.len(), head.is_some()));
    let run = |d: u32| [(d, 8, false), (d + 8, 8, false), (d + 16, 4, true)];
    let expected = [
        &run(0)[..], // warming up
        &run(0)[..],
        &[(0, 5, false)],
        &run(5)[..],
        &run(5)[..],
        &[(5, 7, false)],
        &run(12)[..],
        &run(12)[..],
    ]
    .concat();
    assert_eq!(filling.collect::<Vec<_>>(), expected);
}

#[test]
fn a_prefill_is_timed_in_chunks_that_keep_to_the_submit_budget() {
    let prefill_rows = |passes: &[(Vec<Row>, _)]| if passes.iter().any(|(rows, _)| rows.len() > 3) { 3 } else { 8 };
    let mut executor = FakeExecutor { prefill_rows: Box::new(prefill_rows), ..fake(1, 8, f64::MAX) };
    let line = measure(&mut executor, Case { work: Work::Prefill(10), depth: 0 }, 2).unwrap();
    assert_eq!((line.tokens, line.passes), (10, 4));
    let rows: Vec<usize> = executor.passes.iter().map(|(rows, _)| rows.len()).collect();
    // The warm-up runs twice: the first run shows that smaller chunks are better.
    assert_eq!(rows, [&[8, 2][..], &[3, 3, 3, 1], &[3, 3, 3, 1], &[3, 3, 3, 1]].concat());
    let full = pass_cost(&executor.schedule, PassShape::Prefill { rows: 3, depth: 0 }, false).weight_bytes;
    assert!(line.cost.weight_bytes > 3 * full, "weights are read for each chunk");
}

#[test]
fn a_rate_above_the_read_ceiling_is_refused_and_so_is_nonsense() {
    let case = Case { work: Work::Decode { sequences: 1, tokens: 2 }, depth: 0 };
    let e = measure(&mut fake(1, 8, 1.0), case, 2).unwrap_err();
    assert!(e.exit_code() == 1 && e.to_string().contains("measurement is wrong: decode read"), "{e}");

    for sequences in [1, 2] {
        let mut executor = fake(2, 8, f64::MAX);
        executor.finite = sequences - 1;
        let case = Case { work: Work::Decode { sequences, tokens: 2 }, depth: 0 };
        let e = measure(&mut executor, case, 2).unwrap_err();
        assert!(e.to_string().contains("not finite"), "{e}");
    }

    let mut executor = fake(1, 8, 1.0);
    let mut bench = Bench::new(&mut executor, || Ok(None), &|_| {}).unwrap();
    let e = bench.measure_layer(1, 0).unwrap_err();
    assert!(e.exit_code() == 1 && e.to_string().contains("layer 1 alone"), "{e}");
}

#[test]
fn a_pass_without_its_head_costs_less_by_the_head() {
    let schedule = fake(1, 8, 1.0).schedule;
    let pass = PassShape::Prefill { rows: 4, depth: 3 };
    let (with, without) = (pass_cost(&schedule, pass, true), pass_cost(&schedule, pass, false));
    assert_eq!(with, schedule.cost(pass));
    let head = schedule.weights.head;
    assert_eq!(with.operations - without.operations, 2 * (head.rows * head.cols) as u64);
}
