//! Streams of attention on this machine's NPU: one token over pages of a cache, against f64 on the same bf16 inputs. The
//! stream is made once; lengths change in its parameters alone, and another list of pages changes words of it in place.
//!
//! A machine with such an NPU runs it, and so does one with an emulated NPU:
//! `KILN_TEST_NPU=kernel cargo test --lib one_stream -- --ignored --nocapture`, or with `xrt`.

use super::attend::{
    COLUMNS, CORES, CoreTurns, DecodeAttention, HeadLayout, LEFT_BYTES, PAGE_POSITIONS, PagePlace, Queries,
    QueryResults, UNIT_BYTES, UnitArguments,
};
use super::guest::open;
use super::programs::{ATTEND_BF16_64, ATTEND_BF16_128, ATTEND_BF16_256};
use super::{BufferId, CommandId, DriverApi, LoadedProgram};
use crate::text::testing::Random;
use half::bf16;
use std::time::{Duration, Instant};

/// Against a hang: an emulator takes seconds for a command.
const DEADLINE: Duration = Duration::from_secs(600);
/// How long amdxdna's device has no command before it sleeps (`power/autosuspend_delay_ms` of the device).
const SLEEPS_AFTER: Duration = Duration::from_secs(5);
/// Places of the buffer of pages.
const PLACES: usize = 5;
/// Two lists of three pages, of as many runs.
const LISTS: [[usize; 3]; 2] = [[0, 2, 1], [4, 3, 0]];
/// Ends in the third page: its first position, one within, its last.
const LENGTHS: [usize; 3] = [129, 161, 192];

/// Heads of one layer, and five pages of their keys and values.
struct FivePages {
    layout: HeadLayout,
    values: Vec<bf16>,
}

impl FivePages {
    fn random(head_dim: usize, random: &mut Random) -> FivePages {
        let layout = HeadLayout { head_dim, kv_heads: 2, group: 2, columns: COLUMNS, cores: CORES, transfers: 256 };
        let values = (0..PLACES * layout.part_bytes() / 2).map(|_| bf16::from_f32(normal(random))).collect();
        FivePages { layout, values }
    }

    fn place(&self, page: usize) -> PagePlace {
        PagePlace { block: 0, offset: (page * self.layout.part_bytes()) as u64 }
    }

    /// Keys (`half` 0) or values (1) of a position of a head.
    fn row(&self, pages: &[usize], half: usize, head: usize, position: usize) -> impl Iterator<Item = f64> {
        let HeadLayout { head_dim, kv_heads, .. } = self.layout;
        let row = (half * kv_heads + head) * PAGE_POSITIONS + position % PAGE_POSITIONS;
        let from = pages[position / PAGE_POSITIONS] * self.layout.part_bytes() / 2 + row * head_dim;
        self.values[from..from + head_dim].iter().map(|value| value.to_f64())
    }

    /// Attention of a query over the first positions.
    fn expected(&self, pages: &[usize], head: usize, query: &[f32], length: usize) -> Vec<f64> {
        let query: Vec<f64> = query.iter().map(|x| f64::from(*x)).collect();
        let score = |position| self.row(pages, 0, head, position).zip(&query).map(|(k, q)| k * q).sum::<f64>();
        let scores: Vec<f64> = (0..length).map(score).collect();
        let most = scores.iter().copied().fold(f64::MIN, f64::max);
        let sum: f64 = scores.iter().map(|score| (score - most).exp2()).sum();
        let mut out = vec![0.0; query.len()];
        for (position, score) in scores.iter().enumerate() {
            let weight = (score - most).exp2() / sum;
            out.iter_mut().zip(self.row(pages, 1, head, position)).for_each(|(out, v)| *out += weight * v);
        }
        out
    }
}

fn normal(random: &mut Random) -> f32 {
    (0..6).map(|_| random.unit()).sum::<f32>() - 3.0
}

/// Runs the command, whose stream is set, over the first positions of a list, and returns the worst query's error: of all its
/// elements, relative to what is expected in the root mean square.
fn attend(
    pages: &FivePages,
    (list, length): (&[usize], usize),
    (program, command, buffers): (&mut LoadedProgram<'_>, CommandId, [BufferId; 3]),
    (attention, turns): (&DecodeAttention, &mut CoreTurns),
    random: &mut Random,
) -> f64 {
    let HeadLayout { head_dim, kv_heads, group, .. } = pages.layout;
    let heads = kv_heads * group;
    let scale = (8.0 / head_dim as f32).sqrt();
    // What bf16 holds.
    let mut rounded = || bf16::from_f32(normal(random) * scale).to_f32();
    let queries: Vec<f32> = (0..heads * head_dim).map(|_| rounded()).collect();
    let query = |_: usize, head: usize| &queries[head * head_dim..][..head_dim];
    let (parameters, left) = attention.bytes(0);
    let mut units = vec![0; parameters];
    attention.write_parameters(
        0,
        turns,
        std::slice::from_ref(&(0..length)),
        Queries { of: &query, scale: 1.0 },
        &mut units,
    );
    program.write(buffers[0], &units).expect("parameters");
    // What no core leaves stays NaN.
    program.write(buffers[1], &vec![0xFF; left]).expect("room");
    program.start(command, &buffers.map(|buffer| (buffer, 0))).expect("a command");
    program.wait(command, DEADLINE, DEADLINE).expect("its end");
    let mut bytes = vec![0; left];
    program.read(buffers[1], &mut bytes).expect("what is left");
    let (mut results, mut o) = (QueryResults::default(), vec![f32::NAN; heads * head_dim]);
    results.begin(heads);
    attention.read_left(0, &bytes, |part| {
        results.take(part.head, &part, &mut o[part.head * head_dim..][..head_dim]);
    });
    assert_eq!(results.missing(), 0, "a query without its attention");
    let mut worst = 0.0f64;
    for (head, out) in o.chunks_exact(head_dim).enumerate() {
        let expected = pages.expected(list, head / group, query(0, head), length);
        let squares: f64 = expected.iter().zip(out).map(|(want, got)| (f64::from(*got) - want).powi(2)).sum();
        let error = (squares / expected.iter().map(|want| want * want).sum::<f64>()).sqrt();
        // NaN is no maximum.
        worst = if error.is_nan() { f64::INFINITY } else { worst.max(error) };
    }
    worst
}

#[test]
#[ignore = "takes an NPU of XDNA 1, or an emulated one: see this file's head"]
fn one_stream_serves_three_lengths_and_another_list_of_pages() {
    let api = match std::env::var("KILN_TEST_NPU").as_deref() {
        Ok("kernel") => DriverApi::Kernel,
        Ok("xrt") => DriverApi::Xrt,
        other => panic!("KILN_TEST_NPU is {other:?}, and has to be kernel or xrt"),
    };
    for program in [&ATTEND_BF16_64, &ATTEND_BF16_128, &ATTEND_BF16_256] {
        let head_dim = program.name.rsplit('_').next().and_then(|dim| dim.parse().ok()).expect("heads in its name");
        let mut random = Random(41);
        let pages = FivePages::random(head_dim, &mut random);
        let mut loaded = open(program, api).expect("a program");
        let lists = LISTS.map(|list| [list.map(|page| pages.place(page)).to_vec()]);
        let arguments = UnitArguments { parameters: 0, left: 1 };
        let mut attention = DecodeAttention::new(pages.layout, arguments, &lists[0]).expect("a stream");
        assert_eq!(attention.streams().count(), 1);
        let (units, left) = attention.bytes(0);
        assert!(units.is_multiple_of(UNIT_BYTES) && left.is_multiple_of(LEFT_BYTES));
        let bytes: Vec<u8> = pages.values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let buffers = [units, left, bytes.len()].map(|bytes| loaded.allocate(bytes as u64).expect("a buffer"));
        loaded.write(buffers[2], &bytes).expect("pages");
        let stream = |attention: &DecodeAttention| attention.streams().next().expect("a stream").bytes();
        let first = stream(&attention);
        let command = loaded.add_command(first.len()).expect("a command");
        loaded.set_stream(command, &first).expect("a stream");
        let mut turns = CoreTurns::default();
        for (list, places) in LISTS.iter().zip(&lists) {
            let changed = attention.set_pages(places).expect("a stream").expect("in place");
            let whole = stream(&attention);
            for words in changed.iter().flatten() {
                let range = 4 * words.start..4 * words.end;
                loaded.patch_stream(command, range.start, &whole[range]).expect("other words");
            }
            assert_eq!(changed.iter().flatten().next().is_some(), whole != first);
            for length in LENGTHS {
                let started = Instant::now();
                let on = (&mut loaded, command, buffers);
                let error = attend(&pages, (list, length), on, (&attention, &mut turns), &mut random);
                println!("{}, pages {list:?}, {length} positions: {error:.5}, {:.1?}", program.name, started.elapsed());
                assert!(error <= 0.01, "{}, pages {list:?}, {length} positions: {error}", program.name);
            }
        }
        assert_ne!(stream(&attention), first, "the other list is in the stream");
        // The driver lets the array sleep, and what wakes up has nobody's turn.
        std::thread::sleep(SLEEPS_AFTER + Duration::from_secs(1));
        assert!(loaded.wake().expect("a program"), "it had nothing to do");
        let on = (&mut loaded, command, buffers);
        let error = attend(&pages, (&LISTS[1], LENGTHS[0]), on, (&attention, &mut CoreTurns::default()), &mut random);
        assert!(error <= 0.01, "{}, awake again: {error}", program.name);
    }
}
