//! The streams that the executable makes at run time, on the model: attention over pages of a cache against f64 on the same
//! bf16 inputs, and streams that are changed in place.

use std::ops::Range;

use kiln_aie::designs::attend_bf16 as design;
use kiln_aie::isa::Isa;

use crate::attend::{NAN, attention, kernel, order};
use crate::machine::{Fault, HostMemory, Latencies, Machine, widen};
use crate::npu::attend::{
    ChunkPages, DECODE_QUAD_BYTES, DecodeAttention, HeadLayout, LEFT_BYTES, MOST_BLOCKS, PAGE_POSITIONS, PagePlace,
    PrefillAttention, Queries, QueryResults, UNIT_BYTES, UnitArguments, prefill, runs,
};
use crate::npu::stream::{InstructionStream, MOST_TRANSFERS, ShimChannel, ShimTransfer};
use crate::program::Random;

const ARGUMENTS: UnitArguments = UnitArguments { parameters: 0, left: 1 };
/// Buffers of pages. A command names those that it reads behind the first two arguments.
const BLOCKS: usize = 8;
/// Layers of a pool. Streams are of the first; which layer runs is in the arguments' addresses.
const LAYERS: usize = 2;
/// The layer that runs.
const LAYER: usize = 1;

/// A cache: blocks of pages for some sequences, whose K and V are known.
struct Cache {
    layout: HeadLayout,
    blocks: Vec<Vec<u8>>,
    sequences: Vec<CachedSequence>,
}

struct CachedSequence {
    pages: Vec<PagePlace>,
    /// By head, position and dimension.
    k: Vec<u16>,
    v: Vec<u16>,
}

impl Cache {
    /// Sequences of so many positions. `mixed`: their pages lie anywhere, else one behind the other.
    fn random(random: &mut Random, layout: HeadLayout, ends: &[usize], mixed: bool) -> Cache {
        let HeadLayout { head_dim, kv_heads, .. } = layout;
        let of_page = layout.part_bytes() * LAYERS;
        let counts: Vec<usize> = ends.iter().map(|end| end.div_ceil(PAGE_POSITIONS)).collect();
        let mut free: Vec<(usize, usize)> =
            (0..counts.iter().sum::<usize>() + 2).map(|i| (i % BLOCKS, i / BLOCKS)).collect();
        match mixed {
            true => (1..free.len()).for_each(|i| free.swap(i, random.below(i as u64 + 1) as usize)),
            false => free.sort_unstable(),
        }
        let slots = free.len().div_ceil(BLOCKS);
        // What nobody has written is NaN.
        let unwritten: Vec<u8> = NAN.to_le_bytes().into_iter().cycle().take(slots * of_page).collect();
        let mut blocks = vec![unwritten; BLOCKS];
        let mut free = free.into_iter();
        let mut sequences = Vec::new();
        for (&end, &count) in ends.iter().zip(&counts) {
            let taken: Vec<(usize, usize)> = free.by_ref().take(count).collect();
            let mut halves = [0, 1].map(|_| vec![0; kv_heads * end * head_dim]);
            for (half, values) in halves.iter_mut().enumerate() {
                for (index, value) in values.iter_mut().enumerate() {
                    *value = random.normal(1.0);
                    let (head, position, d) = (index / head_dim / end, index / head_dim % end, index % head_dim);
                    let (block, slot) = taken[position / PAGE_POSITIONS];
                    let row = ((half * kv_heads + head) * PAGE_POSITIONS + position % PAGE_POSITIONS) * head_dim + d;
                    let at = slot * of_page + LAYER * layout.part_bytes() + 2 * row;
                    blocks[block][at..at + 2].copy_from_slice(&value.to_le_bytes());
                }
            }
            let place =
                |(block, slot): (usize, usize)| PagePlace { block: block as u32, offset: (slot * of_page) as u64 };
            let [k, v] = halves;
            sequences.push(CachedSequence { pages: taken.into_iter().map(place).collect(), k, v });
        }
        Cache { layout, blocks, sequences }
    }

    /// O of a query over positions, and the logarithm of its sum.
    fn expected(&self, sequence: usize, head: usize, query: &[u16], seen: Range<usize>) -> (Vec<f64>, f64) {
        let CachedSequence { k, v, .. } = &self.sequences[sequence];
        let from = k.len() / self.layout.kv_heads * head;
        attention(query, &k[from..], &v[from..], seen)
    }

    /// An array with the program, and the cache as its arguments behind the first two.
    fn machine(&self) -> Result<Machine, Fault> {
        let HeadLayout { head_dim, columns, cores, .. } = self.layout;
        let packed = design::stream(head_dim as u32, columns, cores as u8).pack(|_| Some(kernel(&Isa::aie2())))?;
        let mut machine = Machine::new(u32::from(columns), Latencies::default());
        machine.limit = 100_000_000;
        machine.load_container(&packed.container)?;
        (0..2).for_each(|_| machine.share(HostMemory::new(4)));
        self.blocks.iter().for_each(|block| machine.share(HostMemory::of(block)));
        Ok(machine)
    }

    /// Runs a command, which reads these blocks: what its cores leave.
    fn run(
        &self,
        machine: &mut Machine,
        (stream, blocks): (&InstructionStream, &[u32]),
        parameters: &[u8],
        left: usize,
    ) -> Result<Vec<u8>, Fault> {
        assert!(!blocks.is_empty() && blocks.len() <= MOST_BLOCKS, "{blocks:?}");
        let layer = (LAYER * self.layout.part_bytes()) as u64;
        machine.arguments = vec![(0, 0), (1, 0)];
        machine.arguments.extend(blocks.iter().map(|block| (2 + *block as usize, layer)));
        machine.host[0].memory = HostMemory::of(parameters);
        machine.host[1].memory = HostMemory::new(left);
        machine.run(&stream.bytes())?;
        machine.host[1].memory.bytes().ok_or_else(|| "not all came back".into())
    }
}

/// What is wrong with a query's O, relative to all of it in the root mean square, or with its sum.
fn error(o: &[f32], found_sum: f64, (expected, log_sum): &(Vec<f64>, f64)) -> f64 {
    let squares: f64 = expected.iter().zip(o).map(|(expected, o)| (f64::from(*o) - expected).powi(2)).sum();
    let error = (squares / expected.iter().map(|value| value * value).sum::<f64>()).sqrt();
    let of_sum = ((found_sum - log_sum).exp2() - 1.0).abs();
    if error.is_nan() || of_sum.is_nan() { f64::INFINITY } else { error.max(of_sum) }
}

/// Runs attention of one token over what is seen of each sequence, and asserts that each query is within 1 % of f64.
fn assert_decode_right(
    name: &str,
    random: &mut Random,
    cache: &Cache,
    machine: &mut Machine,
    attention: &DecodeAttention,
    seen: &[Range<usize>],
) {
    let HeadLayout { head_dim, kv_heads, group, .. } = cache.layout;
    let heads = kv_heads * group;
    let scale = [0.05, 0.3, 1.0][random.below(3) as usize] * (64.0 / head_dim as f32).sqrt();
    let queries: Vec<u16> = (0..seen.len() * heads * head_dim).map(|_| random.normal(scale)).collect();
    let query = |row: usize, head: usize| &queries[(row * heads + head) * head_dim..][..head_dim];
    let wide: Vec<f32> = queries.iter().map(|value| widen(*value)).collect();
    let wide = |row: usize, head: usize| &wide[(row * heads + head) * head_dim..][..head_dim];
    // Pages begin with the first one that is seen.
    let counted: Vec<Range<usize>> = seen
        .iter()
        .map(|seen| {
            let from = seen.start / PAGE_POSITIONS * PAGE_POSITIONS;
            seen.start - from..seen.end - from
        })
        .collect();
    let (mut results, mut o) = (QueryResults::default(), vec![f32::NAN; seen.len() * heads * head_dim]);
    let mut sums = vec![0.0; seen.len() * heads];
    results.begin(seen.len() * heads);
    for (command, stream) in attention.streams().enumerate() {
        let (parameters, left) = attention.bytes(command);
        // What was there before is not read, nor what lies behind the bytes that are said to be.
        let mut units = vec![0xFF; parameters];
        let (row, used) = attention.parameter_rows();
        let to = &mut units[..parameters - row + used];
        attention.write_parameters(command, &counted, Queries { of: &wide, scale: 1.0 }, to);
        units.chunks_exact_mut(row).for_each(|row| row[used..].fill(0xFF));
        let left = cache.run(machine, (stream, attention.blocks(command)), &units, left);
        let left = left.unwrap_or_else(|fault| panic!("{name}: {fault}"));
        attention.read_left(command, &left, |part| {
            let index = part.row * heads + part.head;
            sums[index] += f64::from(part.sum()) * f64::from(part.maximum()).exp2();
            results.take(index, &part, &mut o[index * head_dim..][..head_dim]);
        });
    }
    assert_eq!(results.missing(), 0, "{name}");
    for (index, o) in o.chunks_exact(head_dim).enumerate() {
        let (sequence, head) = (index / heads, index % heads);
        let expected = cache.expected(sequence, head / group, query(sequence, head), seen[sequence].clone());
        let error = error(o, f64::log2(sums[index]), &expected);
        assert!(error <= 0.01, "{name}: {:?}, {:?}, head {head}: {error}", cache.layout, seen[sequence]);
    }
}

/// The pages of what is seen.
fn pages(cache: &Cache, seen: &[Range<usize>]) -> Vec<Vec<PagePlace>> {
    let of = |(sequence, seen): (&CachedSequence, &Range<usize>)| {
        sequence.pages[seen.start / PAGE_POSITIONS..seen.end.div_ceil(PAGE_POSITIONS)].to_vec()
    };
    cache.sequences.iter().zip(seen).map(of).collect()
}

/// One token of one to eight sequences: heads of all sizes, groups, windows, pages anywhere and one behind the other, on one to
/// four columns, in one command and in several.
#[test]
fn decode_is_within_one_percent_of_f64() {
    let mut random = Random(31);
    for head_dim in [64, 128, 256] {
        for group in 1..=8 {
            let columns = 1 + random.below(4) as u8;
            let kv_heads = [1, 2, 3, 4][random.below(4) as usize];
            let transfers = [8, 24, 256][random.below(3) as usize];
            let layout = HeadLayout { head_dim, kv_heads, group, columns, cores: 4, transfers };
            let batch = if head_dim == 64 { group } else { 1 + group % 3 };
            let ends: Vec<usize> = (0..batch).map(|_| 1 + random.below(200) as usize).collect();
            let cache = Cache::random(&mut random, layout, &ends, group % 2 == 0);
            let window = [None, Some(1), Some(64), Some(100)][random.below(4) as usize];
            let seen: Vec<Range<usize>> =
                ends.iter().map(|&end| window.map_or(0, |window| end.saturating_sub(window))..end).collect();
            let attention = DecodeAttention::new(layout, ARGUMENTS, &pages(&cache, &seen)).expect("a stream");
            let mut machine = cache.machine().expect("a program");
            assert_decode_right("shapes", &mut random, &cache, &mut machine, &attention, &seen);
            assert_decode_right("again", &mut random, &cache, &mut machine, &attention, &seen);
        }
    }
}

/// Chunks behind others likewise, one or two in a run.
#[test]
fn prefill_is_within_one_percent_of_f64() {
    let mut random = Random(32);
    for head_dim in [64, 128, 256] {
        for group in 1..=8 {
            let (columns, kv_heads) = (1 + random.below(4) as u8, 1 + random.below(2) as usize);
            let transfers = [8, 256][random.below(2) as usize];
            let layout = HeadLayout { head_dim, kv_heads, group, columns, cores: 4, transfers };
            let shapes: Vec<(usize, usize)> =
                (0..1 + random.below(2)).map(|_| (random.below(200) as usize, 1 + random.below(24) as usize)).collect();
            let ends: Vec<usize> = shapes.iter().map(|(past, tokens)| past + tokens).collect();
            let cache = Cache::random(&mut random, layout, &ends, group % 2 == 0);
            let window = [None, Some(1), Some(64), Some(100)][random.below(4) as usize];
            let chunks: Vec<ChunkPages> = shapes
                .iter()
                .zip(&cache.sequences)
                .map(|(&(past, tokens), sequence)| {
                    let first = window.map_or(0, |window| (past + 1).saturating_sub(window)) / PAGE_POSITIONS;
                    let (pages, from) = (sequence.pages[first..].to_vec(), first * PAGE_POSITIONS);
                    ChunkPages { pages, from, past, tokens, window }
                })
                .collect();
            let heads = kv_heads * group;
            let rows: Vec<(usize, usize)> = (0..chunks.len())
                .flat_map(|chunk| (0..chunks[chunk].tokens).map(move |token| (chunk, token)))
                .collect();
            let scale = [0.05, 0.3, 1.0][random.below(3) as usize] * (64.0 / head_dim as f32).sqrt();
            let queries: Vec<u16> = (0..rows.len() * heads * head_dim).map(|_| random.normal(scale)).collect();
            let query = |row: usize, head: usize| &queries[(row * heads + head) * head_dim..][..head_dim];
            let attention = PrefillAttention::new(layout, ARGUMENTS, chunks.clone()).expect("a stream");
            let mut machine = cache.machine().expect("a program");
            // One token of each before, on the same array.
            let all: Vec<Range<usize>> = ends.iter().map(|end| 0..*end).collect();
            let one = DecodeAttention::new(layout, ARGUMENTS, &pages(&cache, &all)).expect("a stream");
            assert_decode_right("before", &mut random, &cache, &mut machine, &one, &all);
            let wide: Vec<f32> = queries.iter().map(|value| widen(*value)).collect();
            let wide = |row: usize, head: usize| &wide[(row * heads + head) * head_dim..][..head_dim];
            let (mut results, mut o) = (QueryResults::default(), vec![f32::NAN; rows.len() * heads * head_dim]);
            let mut sums = vec![0.0; rows.len() * heads];
            results.begin(rows.len() * heads);
            for (command, stream) in attention.streams().enumerate() {
                let (parameters, left) = attention.bytes(command);
                let mut units = vec![0xFF; parameters];
                attention.write_parameters(command, Queries { of: &wide, scale: 1.0 }, &mut units);
                let left = cache.run(&mut machine, (stream, attention.blocks(command)), &units, left);
                let left = left.unwrap_or_else(|fault| panic!("{layout:?}: {fault}"));
                attention.read_left(command, &left, |part| {
                    let index = part.row * heads + part.head;
                    sums[index] += f64::from(part.sum()) * f64::from(part.maximum()).exp2();
                    results.take(index, &part, &mut o[index * head_dim..][..head_dim]);
                });
            }
            assert_eq!(results.missing(), 0, "{layout:?}");
            for (index, o) in o.chunks_exact(head_dim).enumerate() {
                let (row, head) = (index / heads, index % heads);
                let (chunk, token) = rows[row];
                let expected = cache.expected(chunk, head / group, query(row, head), chunks[chunk].seen(token));
                let error = error(o, f64::log2(sums[index]), &expected);
                assert!(
                    error <= 0.01,
                    "{layout:?}, {window:?}, {:?}, token {token}, head {head}: {error}",
                    shapes[chunk]
                );
            }
        }
    }
}

/// A sequence that grows: its stream changes where a page is added alone, in place where it can, and is then the one that is
/// made anew.
#[test]
fn a_stream_that_is_patched_is_the_one_made_anew() {
    let mut random = Random(33);
    let mut patched = 0;
    for (mixed, transfers) in [(false, 256), (true, 256), (true, 16)] {
        let layout = HeadLayout { head_dim: 64, kv_heads: 4, group: 2, columns: 2, cores: 4, transfers };
        let ends = [320, 300];
        let cache = Cache::random(&mut random, layout, &ends, mixed);
        let mut machine = cache.machine().expect("a program");
        let seen = |end: usize| [end.saturating_sub(100)..end, 0..(end - 60).max(1)];
        let mut attention = DecodeAttention::new(layout, ARGUMENTS, &pages(&cache, &seen(61))).expect("a stream");
        for end in 61..=320 {
            let pages = pages(&cache, &seen(end));
            let made = DecodeAttention::new(layout, ARGUMENTS, &pages).expect("a stream");
            let before = attention.clone();
            let changed = attention.set_pages(&pages).expect("a stream");
            assert_eq!(attention, made, "{end}");
            let is_new = seen(end).iter().zip(seen(end - 1)).any(|(seen, last)| {
                let of = |range: &Range<usize>| (range.start / PAGE_POSITIONS, range.end.div_ceil(PAGE_POSITIONS));
                of(seen) != of(&last)
            });
            match &changed {
                Some(ranges) if end > 61 && !is_new => {
                    assert!(ranges.iter().all(Vec::is_empty), "{end}: {ranges:?}");
                }
                Some(ranges) => {
                    patched += ranges.iter().map(Vec::len).sum::<usize>();
                    // Words that are not said to have changed have not.
                    for ((old, new), ranges) in before.streams().zip(attention.streams()).zip(ranges) {
                        let differ = (0..new.words().len()).filter(|word| old.words()[*word] != new.words()[*word]);
                        for word in differ {
                            assert!(ranges.iter().any(|range| range.contains(&word)), "{end}: word {word}");
                        }
                    }
                }
                None => assert!(is_new, "{end}"),
            }
            if is_new && end % 3 == 0 {
                // Every other time on an array that has run nothing.
                if end % 2 == 0 {
                    machine = cache.machine().expect("a program");
                }
                assert_decode_right("patched", &mut random, &cache, &mut machine, &attention, &seen(end));
            }
        }
    }
    assert!(patched > 20, "{patched}");
}

/// The positions of eight pages.
const ALL: Range<usize> = 0..8 * 64;

/// One sequence that sees eight pages, which lie anywhere.
fn eight_pages(head_dim: usize) -> (HeadLayout, Cache, DecodeAttention) {
    let layout = HeadLayout { head_dim, kv_heads: 1, group: 1, columns: 1, cores: 4, transfers: 64 };
    let cache = Cache::random(&mut Random(34), layout, &[ALL.end], true);
    let attention =
        DecodeAttention::new(layout, ARGUMENTS, &pages(&cache, std::slice::from_ref(&ALL))).expect("a stream");
    (layout, cache, attention)
}

/// Without its waits, a stream queues a fifth transfer; with descriptors of others, it rewrites one in use.
#[test]
fn a_stream_waits_where_a_channel_takes_no_more() {
    let (_, cache, attention) = eight_pages(64);
    let stream = attention.streams().next().expect("a stream");
    let fault = |change: &dyn Fn(&mut Vec<u32>)| {
        let mut words = stream.words().to_vec();
        change(&mut words);
        words[3] = 4 * words.len() as u32;
        let mut units = vec![0; attention.bytes(0).0];
        let queries = vec![0.0; 64];
        let queries = Queries { of: &|_, _| &queries, scale: 1.0 };
        attention.write_parameters(0, std::slice::from_ref(&ALL), queries, &mut units);
        let mut machine = cache.machine().expect("a program");
        let layer = (LAYER * cache.layout.part_bytes()) as u64;
        machine.arguments = vec![(0, 0), (1, 0)];
        machine.arguments.extend(attention.blocks(0).iter().map(|block| (2 + *block as usize, layer)));
        machine.host[0].memory = HostMemory::of(&units);
        machine.host[1].memory = HostMemory::new(attention.bytes(0).1);
        machine.run(&words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>())
    };
    assert_eq!(fault(&|_| ()), Ok(()));
    let is_wait = |words: &[u32]| words[0] == 0x80 && words[1] == 16;
    let first = (4..stream.words().len()).find(|at| is_wait(&stream.words()[*at..])).expect("a wait");
    let unwaited = fault(&|words| {
        words.drain(first..first + 4);
        words[2] -= 1;
    });
    let unwaited = unwaited.expect_err("a fifth transfer");
    assert!(unwaited.contains("not known to be done"), "{unwaited}");
}

#[test]
fn what_no_stream_holds_is_refused() {
    let send = ShimTransfer::whole(0, ShimChannel::Send(0), 0, 0, 64);
    let refused =
        |columns: u8, transfers: &[ShimTransfer]| InstructionStream::new(columns, transfers).expect_err("refused");
    let cases = [
        (refused(1, &[ShimTransfer { column: 1, ..send }]), "column 1, of 1"),
        (refused(1, &[ShimTransfer { words: 0, ..send }]), "1 x 0 words"),
        (refused(1, &[ShimTransfer { offset: 2, ..send }]), "from byte 2"),
        (refused(1, &[ShimTransfer { words: 16, parts: 2, ..send }]), "2 parts of 16 words"),
        (refused(1, &[ShimTransfer { words: 512, parts: 2, step: 1 << 21, ..send }]), "2097152 apart"),
        (refused(1, &vec![send; MOST_TRANSFERS + 1]), "and at most"),
    ];
    for (refusal, said) in cases {
        assert!(refusal.contains(said), "{refusal}");
    }
    let layout = HeadLayout { head_dim: 128, kv_heads: 2, group: 2, columns: 4, cores: 4, transfers: 256 };
    let page = PagePlace { block: 0, offset: 0 };
    for (changed, said) in [
        (HeadLayout { head_dim: 96, ..layout }, "heads of 96"),
        (HeadLayout { group: 9, ..layout }, "9 query heads"),
        (HeadLayout { columns: 5, ..layout }, "5 columns"),
        (HeadLayout { transfers: 7, ..layout }, "commands of 7"),
    ] {
        let refusal = DecodeAttention::new(changed, ARGUMENTS, &[vec![page]]).expect_err("refused");
        assert!(refusal.contains(said), "{refusal}");
    }
    let refusal = DecodeAttention::new(layout, ARGUMENTS, &[vec![page], vec![]]).expect_err("refused");
    assert!(refusal.contains("sequence 1 has no pages"), "{refusal}");
    let chunk = ChunkPages { pages: vec![page], from: 0, past: 60, tokens: 5, window: None };
    let refusal = PrefillAttention::new(layout, ARGUMENTS, vec![chunk]).expect_err("refused");
    assert!(refusal.contains("5 tokens behind 60"), "{refusal}");
}

/// Pages in a row are one descriptor's, whatever their distance up to what its step holds.
#[test]
fn runs_are_as_long_as_pages_are_evenly_apart() {
    let page = |block: u32, mib: u64| PagePlace { block, offset: mib << 20 };
    let lengths = |pages: &[PagePlace]| runs(pages).iter().map(|run| run.count).collect::<Vec<_>>();
    assert_eq!(lengths(&[]), []);
    assert_eq!(lengths(&[0, 1, 2, 3].map(|at| page(2, at))), [4]);
    assert_eq!(lengths(&[0, 4, 8].map(|at| page(2, at))), [3]);
    assert_eq!(lengths(&[0, 5, 10].map(|at| page(2, at))), [1, 1, 1]);
    assert_eq!(lengths(&[3, 2, 1, 2, 3, 5].map(|at| page(2, at))), [1, 1, 3, 1]);
    assert_eq!(lengths(&[page(2, 0), page(2, 1), page(3, 2), page(3, 3)]), [2, 2]);
}

/// The executable's sizes and walks are the design's.
#[test]
fn sizes_are_those_of_the_design() {
    assert_eq!(UNIT_BYTES as u32, design::UNIT);
    assert_eq!(PAGE_POSITIONS as u32, design::PAGE);
    assert_eq!(LEFT_BYTES as u32, design::OUTPUT);
    assert_eq!(DECODE_QUAD_BYTES as u32, design::QUAD);
    for head_dim in [64, 128, 256] {
        assert_eq!(prefill::quad_bytes(head_dim) as u32, design::prefill_quad(head_dim as u32));
        let layout = HeadLayout { head_dim, kv_heads: 1, group: 1, columns: 1, cores: 4, transfers: 8 };
        assert_eq!(layout.walk(4), order(&design::k_walk(head_dim as u32)));
        assert_eq!(layout.walk(2), order(&design::v_walk(head_dim as u32)));
    }
}
