//! Streams of attention on this machine's NPU: one token over pages of a cache, and chunks of tokens, against f64 on
//! the same bf16 inputs. One token's stream is made once; its parameters give the lengths, and another list of pages
//! changes words of the stream in place.
//!
//! They run on a machine with such an NPU, or with an emulated one:
//! `KILN_TEST_NPU=kernel cargo test --lib npu::device_tests -- --ignored --nocapture`, or with `xrt`; with `model` the
//! chunks run on the functional model.

use super::attend::{
    COLUMNS, CORES, ChunkPages, DecodeAttention, HeadLayout, LEFT_BYTES, PAGE_POSITIONS, PagePlace, PrefillAttention,
    Queries, QueryResults, UNIT_BYTES, UnitArguments,
};
use super::modelled_tests::{self, ArrayFault};
use super::offload::open;
use super::programs::{ATTEND_BF16_64, ATTEND_BF16_128, ATTEND_BF16_256, READ_SUM};
use super::reader::NpuReader;
use super::reads;
use super::{BufferId, CommandId, LoadedProgram, Program};
use crate::executor::measure::MemoryReader;
use crate::machine::nodes::DriverApi;
use crate::text::testing::Random;
use half::bf16;
use std::ops::Range;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Deadline for a hang: an emulator takes seconds for a command.
const DEADLINE: Duration = Duration::from_secs(600);
/// Idle time after which amdxdna's device sleeps (`power/autosuspend_delay_ms` of the device).
const SLEEPS_AFTER: Duration = Duration::from_secs(5);
/// Bytes for a chunk's parameters, and for its results: more than any of them needs.
const ROOM: usize = 64 * UNIT_BYTES.next_multiple_of(LEFT_BYTES);
/// Places of the buffer of pages.
const PLACES: usize = 5;
/// Two lists of three pages with equally many runs.
const LISTS: [[usize; 3]; 2] = [[0, 2, 1], [4, 3, 0]];
/// Ends in the third page: its first position, one in its middle, its last.
const LENGTHS: [usize; 3] = [129, 161, 192];
/// Chunks over three pages: tokens, positions before them, and a window.
const CHUNKS: [(usize, usize, Option<usize>); 4] = [(5, 0, None), (5, 129, None), (40, 150, Some(64)), (130, 60, None)];

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

    /// Attention of a query over positions, in f64.
    fn expected(&self, pages: &[usize], head: usize, query: &[f32], seen: Range<usize>) -> Vec<f64> {
        let query: Vec<f64> = query.iter().map(|x| f64::from(*x)).collect();
        let score = |position| self.row(pages, 0, head, position).zip(&query).map(|(k, q)| k * q).sum::<f64>();
        let scores: Vec<f64> = seen.clone().map(score).collect();
        let most = scores.iter().copied().fold(f64::MIN, f64::max);
        let sum: f64 = scores.iter().map(|score| (score - most).exp2()).sum();
        let mut out = vec![0.0; query.len()];
        for (position, score) in seen.zip(&scores) {
            let weight = (score - most).exp2() / sum;
            out.iter_mut().zip(self.row(pages, 1, head, position)).for_each(|(out, v)| *out += weight * v);
        }
        out
    }
}

fn normal(random: &mut Random) -> f32 {
    (0..6).map(|_| random.unit()).sum::<f32>() - 3.0
}

/// Runs the command, whose stream is set, over the first positions of a list, and returns the worst query's error: over
/// all its elements, relative to the expected root mean square.
fn attend(
    pages: &FivePages,
    (list, length): (&[usize], usize),
    (program, command, buffers): (&mut LoadedProgram<'_>, CommandId, [BufferId; 3]),
    attention: &DecodeAttention,
    random: &mut Random,
) -> f64 {
    let HeadLayout { head_dim, kv_heads, group, .. } = pages.layout;
    let heads = kv_heads * group;
    let scale = (8.0 / head_dim as f32).sqrt();
    // Values that are exact in bf16.
    let mut rounded = || bf16::from_f32(normal(random) * scale).to_f32();
    let queries: Vec<f32> = (0..heads * head_dim).map(|_| rounded()).collect();
    let query = |_: usize, head: usize| &queries[head * head_dim..][..head_dim];
    let (parameters, left) = attention.bytes(0);
    let mut units = vec![0; parameters];
    let queries = Queries { of: &query, scale: 1.0 };
    attention.write_parameters(0, std::slice::from_ref(&(0..length)), queries, &mut units);
    program.write(buffers[0], &units).expect("parameters");
    // NaN, for bytes that no core writes.
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
        worst = worst.max(error_of(out, &pages.expected(list, head / group, query(0, head), 0..length)));
    }
    worst
}

/// The error of all of a query's elements, relative to the expected root mean square.
fn error_of(out: &[f32], expected: &[f64]) -> f64 {
    let squares: f64 = expected.iter().zip(out).map(|(want, got)| (f64::from(*got) - want).powi(2)).sum();
    let error = (squares / expected.iter().map(|want| want * want).sum::<f64>()).sqrt();
    // `max` ignores NaN.
    if error.is_nan() { f64::INFINITY } else { error }
}

/// Runs attention of a chunk over a list of pages, and returns the worst query's error.
fn attend_chunk(
    pages: &FivePages,
    list: &[usize],
    (tokens, past, window): (usize, usize, Option<usize>),
    (program, buffers): (&mut LoadedProgram<'_>, [BufferId; 3]),
    random: &mut Random,
) -> f64 {
    let HeadLayout { head_dim, kv_heads, group, .. } = pages.layout;
    let heads = kv_heads * group;
    let first = window.map_or(0, |window| (past + 1).saturating_sub(window)) / PAGE_POSITIONS;
    let seen = first..(past + tokens).div_ceil(PAGE_POSITIONS);
    let places = list[seen].iter().map(|page| pages.place(*page)).collect();
    let chunk = ChunkPages { pages: places, from: first * PAGE_POSITIONS, past, tokens, window };
    let arguments = UnitArguments { parameters: 0, left: 1 };
    let attention = PrefillAttention::new(pages.layout, arguments, vec![chunk.clone()]).expect("streams");
    let scale = (8.0 / head_dim as f32).sqrt();
    let queries: Vec<f32> = (0..tokens * heads * head_dim)
        // Values that are exact in bf16.
        .map(|_| bf16::from_f32(normal(random) * scale).to_f32())
        .collect();
    let query = |token: usize, head: usize| &queries[(token * heads + head) * head_dim..][..head_dim];
    let (mut results, mut o) = (QueryResults::default(), vec![f32::NAN; tokens * heads * head_dim]);
    results.begin(tokens * heads);
    for (index, stream) in attention.streams().enumerate() {
        let (parameters, left) = attention.bytes(index);
        let mut units = vec![0; parameters];
        attention.write_parameters(index, Queries { of: &query, scale: 1.0 }, &mut units);
        program.write(buffers[0], &units).expect("parameters");
        // NaN, for bytes that no core writes.
        program.write(buffers[1], &vec![0xFF; left]).expect("room");
        let bytes = stream.bytes();
        let command = program.add_command(bytes.len()).expect("a command");
        program.set_stream(command, &bytes).expect("a stream");
        program.start(command, &buffers.map(|buffer| (buffer, 0))).expect("a command");
        program.wait(command, DEADLINE, DEADLINE).expect("its end");
        let mut bytes = vec![0; left];
        program.read(buffers[1], &mut bytes).expect("what is left");
        attention.read_left(index, &bytes, |part| {
            let query = part.row * heads + part.head;
            results.take(query, &part, &mut o[query * head_dim..][..head_dim]);
        });
    }
    assert_eq!(results.missing(), 0, "a query without its attention");
    let each = o.chunks_exact(head_dim).enumerate().map(|(index, out)| {
        let (token, head) = (index / heads, index % heads);
        let expected = pages.expected(list, head / group, query(token, head), chunk.seen(token));
        error_of(out, &expected)
    });
    each.fold(0.0, f64::max)
}

/// Bytes that channels read in equal parts: few, for an emulator.
const READ_BYTES: usize = 2 * reads::CHANNELS * reads::UNIT_BYTES;

/// Compares the sums of several channels' reads, twice per command, with several commands in flight.
#[test]
#[ignore = "takes an NPU of XDNA 1, or an emulated one: see this file's head"]
fn channels_read_what_is_there() {
    let mut reader = NpuReader::new(wanted(&READ_SUM), reads::pattern(READ_BYTES, 47), 2).expect("a reader");
    for channels in [1, 2, 4, 8] {
        reader.use_channels(channels).expect("channels");
        let started = Instant::now();
        reader.start().expect("reads");
        reader.stop().expect("their sums");
        println!("{channels} channels, {} bytes a command, {:.1?}", reader.bytes(), started.elapsed());
    }
}

/// The program on the device named by `KILN_TEST_NPU`.
fn wanted(program: &'static Program) -> LoadedProgram<'static> {
    let loaded = match std::env::var("KILN_TEST_NPU").as_deref() {
        Ok("kernel") => open(program, DriverApi::Kernel),
        Ok("xrt") => open(program, DriverApi::Xrt),
        Ok("model") => modelled_tests::loaded(program, &Rc::default(), ArrayFault::Sound),
        other => panic!("KILN_TEST_NPU is {other:?}, and has to be kernel, xrt or model"),
    };
    loaded.expect("a program")
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
                let error = attend(&pages, (list, length), on, &attention, &mut random);
                println!("{}, pages {list:?}, {length} positions: {error:.5}, {:.1?}", program.name, started.elapsed());
                assert!(error <= 0.01, "{}, pages {list:?}, {length} positions: {error}", program.name);
            }
        }
        assert_ne!(stream(&attention), first, "the other list is in the stream");
        // The driver lets the array sleep; an array that wakes up starts as it was loaded.
        std::thread::sleep(SLEEPS_AFTER + Duration::from_secs(1));
        let on = (&mut loaded, command, buffers);
        let error = attend(&pages, (&LISTS[1], LENGTHS[0]), on, &attention, &mut random);
        assert!(error <= 0.01, "{}, awake again: {error}", program.name);
    }
}

#[test]
#[ignore = "takes an NPU of XDNA 1, or an emulated one: see this file's head"]
fn chunks_of_tokens_are_attended_to() {
    for program in [&ATTEND_BF16_64, &ATTEND_BF16_128, &ATTEND_BF16_256] {
        let head_dim = program.name.rsplit('_').next().and_then(|dim| dim.parse().ok()).expect("heads in its name");
        let mut random = Random(43);
        let pages = FivePages::random(head_dim, &mut random);
        let mut loaded = wanted(program);
        let bytes: Vec<u8> = pages.values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let rooms = [ROOM, ROOM, bytes.len()];
        let buffers = rooms.map(|bytes| loaded.allocate(bytes as u64).expect("a buffer"));
        loaded.write(buffers[2], &bytes).expect("pages");
        for (chunk, list) in CHUNKS.iter().zip(LISTS.iter().cycle()) {
            let started = Instant::now();
            let error = attend_chunk(&pages, list, *chunk, (&mut loaded, buffers), &mut random);
            println!("{}, pages {list:?}, {chunk:?}: {error:.5}, {:.1?}", program.name, started.elapsed());
            assert!(error <= 0.01, "{}, pages {list:?}, {chunk:?}: {error}", program.name);
        }
    }
}
