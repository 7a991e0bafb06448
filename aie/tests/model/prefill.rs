//! Attention of many tokens on the model, against f64 on the same bf16 inputs.

use kiln_aie::designs::attend_bf16::{MAGIC, OUTPUT, PAGE, UNIT, k_walk, prefill_quad, prefill_rows, stream, v_walk};
use kiln_aie::isa::Isa;
use kiln_aie::pack::{Dimension, Tile};

use crate::attend::{NAN, attention, extremes, kernel, order};
use crate::machine::{Fault, HostMemory, Latencies, Machine, narrow, widen};
use crate::program::Random;

/// Tokens behind others, of one head of K and V: their queries, and K and V of whole pages, row by row.
#[derive(Clone)]
struct Chunk {
    head_dim: usize,
    group: usize,
    /// Positions before the first token.
    past: usize,
    tokens: usize,
    window: Option<usize>,
    /// By query head, token and dimension; scaled: a score is a power of two's exponent.
    queries: Vec<u16>,
    k: Vec<u16>,
    v: Vec<u16>,
}

/// What the cores of a column do together: the queries of some tokens.
struct Block {
    /// Tokens, from and to.
    tokens: (usize, usize),
    /// The page that the streams begin with, and the one behind their last.
    pages: (usize, usize),
    /// Of each core, four queries a quad: query head and token; what is left over repeats the last token.
    quads: [Vec<[(usize, usize); 4]>; 4],
}

impl Chunk {
    fn random(random: &mut Random, head_dim: usize, group: usize, past: usize, tokens: usize, scale: f32) -> Chunk {
        let end = past + tokens;
        let queries = (0..group * tokens * head_dim).map(|_| random.normal(scale)).collect();
        let mut rows = || -> Vec<u16> {
            let all = end.next_multiple_of(PAGE as usize) * head_dim;
            (0..all).map(|index| if index < end * head_dim { random.normal(1.0) } else { NAN }).collect()
        };
        let (k, v) = (rows(), rows());
        Chunk { head_dim, group, past, tokens, window: None, queries, k, v }
    }

    /// The positions that a token sees.
    fn seen(&self, token: usize) -> (usize, usize) {
        let end = self.past + token + 1;
        (self.window.map_or(0, |window| end.saturating_sub(window)), end)
    }

    fn blocks(&self) -> Vec<Block> {
        let quads = 4 * prefill_rows(self.head_dim as u32) as usize / 4;
        let tokens = 4 * (quads / self.group).max(1);
        let page = PAGE as usize;
        let block = |from: usize| {
            let to = (from + tokens).min(self.tokens);
            let mut of_cores: [Vec<[(usize, usize); 4]>; 4] = Default::default();
            let mut next = 0;
            for head in 0..self.group {
                for first in (from..to).step_by(4) {
                    of_cores[next % 4].push([0, 1, 2, 3].map(|index| (head, (first + index).min(to - 1))));
                    next += 1;
                }
            }
            let (first, _) = self.seen(from);
            let (_, end) = self.seen(to - 1);
            Block { tokens: (from, to), pages: (first / page, end.div_ceil(page)), quads: of_cores }
        };
        (0..self.tokens).step_by(tokens).map(block).collect()
    }

    /// The unit of parameters, as the memory tile's walk through K's units makes it the core's.
    fn parameters(&self, block: &Block) -> Vec<u8> {
        let dim = self.head_dim as u32;
        let start = block.pages.0 * PAGE as usize;
        let units = ((block.pages.1 - block.pages.0) * PAGE as usize * self.head_dim * 2) as u32 / UNIT;
        let step = 32 * dim;
        let groups = prefill_rows(dim) / 16;
        let mut unit = vec![0u32; UNIT as usize / 4];
        let common =
            [units, UNIT / step, dim / 16, dim / 16 - 1, 0, 0, groups, step, prefill_quad(dim), 0, u32::MAX, 1];
        unit[..12].copy_from_slice(&common);
        let relative = |position: usize| position as i64 - start as i64;
        for (core, quads) in block.quads.iter().enumerate() {
            let tokens: Vec<usize> = quads.iter().flatten().map(|(_, token)| *token).collect();
            let first = |token: &usize| relative(self.seen(*token).0);
            let end = |token: &usize| relative(self.seen(*token).1);
            let ends = relative(self.seen(block.tokens.0).1);
            let firsts = self.window.map_or(-(1 << 24), |window| ends - window as i64);
            let of_core = [
                tokens.iter().map(first).min().unwrap_or(0),
                tokens.iter().map(end).max().unwrap_or(0),
                tokens.iter().map(first).max().unwrap_or(0),
                tokens.iter().map(end).min().unwrap_or(0),
                ends,
                firsts,
            ];
            let words = &mut unit[16 + 64 * core..][..64];
            words.iter_mut().zip(of_core).for_each(|(word, value)| *word = value as u32);
            for (index, (_, token)) in quads.iter().flatten().enumerate() {
                words[16 + index / 2] |= ((token - block.tokens.0) as u32) << (16 * (index % 2));
            }
        }
        let bytes: Vec<u8> = unit.into_iter().flat_map(u32::to_le_bytes).collect();
        unwalked(&k_walk(dim), &bytes)
    }

    /// A core's unit of queries: 16 by 16, of each eight dimensions four tiles of 8 by 4.
    fn queries(&self, quads: &[[(usize, usize); 4]], walk: &[Dimension; 4]) -> Vec<u8> {
        let mut unit = vec![0u16; UNIT as usize / 2];
        for (index, quad) in quads.iter().enumerate() {
            for (query, (head, token)) in quad.iter().enumerate() {
                for d in 0..self.head_dim {
                    let tile = 128 * (d / 8) + 32 * (index % 4) + 4 * (d % 8) + query;
                    unit[16 * self.head_dim * (index / 4) + tile] =
                        self.queries[(head * self.tokens + token) * self.head_dim + d];
                }
            }
        }
        let bytes: Vec<u8> = unit.into_iter().flat_map(u16::to_le_bytes).collect();
        unwalked(walk, &bytes)
    }

    /// Of a query, in f64.
    fn expected(&self, (head, token): (usize, usize)) -> Answer {
        let (first, end) = self.seen(token);
        let query = &self.queries[(head * self.tokens + token) * self.head_dim..][..self.head_dim];
        let (o, sum) = attention(query, &self.k, &self.v, first..end);
        Answer { row: (head, token), o, sum }
    }
}

/// Bytes that a walk brings into this order.
fn unwalked(walk: &[Dimension; 4], bytes: &[u8]) -> Vec<u8> {
    let mut rows = vec![0u8; bytes.len()];
    for (index, word) in order(walk).into_iter().enumerate() {
        rows[4 * word..][..4].copy_from_slice(&bytes[4 * index..][..4]);
    }
    rows
}

/// What is left of a query, of its head and token: O divided by the sum, and the sum's logarithm to base 2.
struct Answer {
    row: (usize, usize),
    o: Vec<f64>,
    sum: f64,
}

type Answers = Vec<Answer>;

/// Runs chunks of one head's size on columns in turn; what each query's O is, and the machine.
fn attend_on(columns: u8, chunks: &[Chunk], kernel: &[u8]) -> Result<(Vec<Answers>, Machine), Fault> {
    let dim = chunks[0].head_dim;
    let page = PAGE as usize * dim;
    let work: Vec<(usize, Block)> = chunks
        .iter()
        .enumerate()
        .flat_map(|(index, chunk)| chunk.blocks().into_iter().map(move |block| (index, block)))
        .collect();
    let of_column = work.len().div_ceil(usize::from(columns));
    let mut design = stream(dim as u32, columns, 4);
    let (mut own, mut k, mut v) = (Vec::new(), Vec::new(), Vec::new());
    let mut starts = Vec::new();
    for chunk in chunks {
        starts.push(k.len());
        k.extend(chunk.k.iter().flat_map(|value| value.to_le_bytes()));
        v.extend(chunk.v.iter().flat_map(|value| value.to_le_bytes()));
    }
    let arguments = [
        design.argument("own", work.len() as u32 * 5 * UNIT),
        design.argument("k", k.len() as u32),
        design.argument("v", v.len() as u32),
        design.argument("o", work.len() as u32 * 4 * OUTPUT),
    ];
    for (column, part) in (0..columns).zip(work.chunks(of_column)) {
        let (shim, first) = (Tile::new(column, 0), usize::from(column) * of_column);
        design.receive(shim.input(0), arguments[3], first as u32 * 4 * OUTPUT, part.len() as u32 * 4 * OUTPUT);
        for (index, block) in part {
            let chunk = &chunks[*index];
            let at = own.len() as u32;
            own.extend(chunk.parameters(block));
            for core in 0..4 {
                let walk = if core < 2 { k_walk(dim as u32) } else { v_walk(dim as u32) };
                own.extend(chunk.queries(&block.quads[core], &walk));
            }
            design.send(shim.output(0), arguments[0], at, 3 * UNIT);
            design.send(shim.output(1), arguments[0], at + 3 * UNIT, 2 * UNIT);
            let from = starts[*index] + block.pages.0 * page * 2;
            let bytes = (block.pages.1 - block.pages.0) * page * 2;
            design.send(shim.output(0), arguments[1], from as u32, bytes as u32);
            design.send(shim.output(1), arguments[2], from as u32, bytes as u32);
        }
    }
    let packed = design.pack(|_| Some(kernel.to_vec()))?;
    let mut machine = Machine::new(u32::from(columns), Latencies::default());
    machine.limit = 100_000_000;
    [own, k, v].iter().for_each(|bytes| machine.share(HostMemory::of(bytes)));
    machine.share(HostMemory::new(work.len() * 4 * OUTPUT as usize));
    machine.load_container(&packed.container)?;
    machine.run(&packed.sequence)?;
    let left = machine.host[3].memory.bytes().ok_or("not all came back")?;
    let left: Vec<f32> = left.chunks(4).map(|word| f32::from_le_bytes([word[0], word[1], word[2], word[3]])).collect();
    let mut answers: Vec<Answers> = chunks.iter().map(|_| Vec::new()).collect();
    for ((index, block), left) in work.iter().zip(left.chunks(OUTPUT as usize)) {
        for (quads, left) in block.quads.iter().zip(left.chunks(OUTPUT as usize / 4)) {
            for (quad, left) in quads.iter().zip(left.chunks(prefill_quad(dim as u32) as usize / 4)) {
                for (query, row) in quad.iter().enumerate() {
                    let sum = f64::from(left[16 + 4 * query]);
                    let maximum = f64::from(f32::from_bits(MAGIC)) - f64::from(left[query]);
                    if maximum.fract() != 0.0 {
                        return Err(format!("a maximum of {maximum} is not whole"));
                    }
                    let o = (0..dim).map(|d| f64::from(left[32 + 16 * (d / 4) + 4 * query + d % 4]) / sum);
                    answers[*index].push(Answer { row: *row, o: o.collect(), sum: maximum + sum.log2() });
                }
            }
        }
    }
    Ok((answers, machine))
}

/// The largest relative root mean square of a query's error, or what its sum is wrong by where that is more.
fn error(chunk: &Chunk, answers: &Answers) -> f64 {
    let of = |answer: &Answer| {
        let expected = chunk.expected(answer.row);
        let squares = expected.o.iter().zip(&answer.o).map(|(expected, o)| (o - expected).powi(2));
        let error = (squares.sum::<f64>() / expected.o.iter().map(|value| value * value).sum::<f64>()).sqrt();
        let of_sum = (answer.sum - expected.sum).exp2() - 1.0;
        if error.is_nan() || of_sum.is_nan() { f64::NAN } else { error.max(of_sum.abs()) }
    };
    answers.iter().map(of).fold(0.0, |most, error| if error > most || error.is_nan() { error } else { most })
}

/// Whether a kernel is wrong on small chunks: a window's edges, a page that not all is seen of, scores that grow late, and
/// weights that are scaled down.
pub fn refutes(kernel: &[u8]) -> bool {
    let mut random = Random(22);
    let mut chunks =
        [(64, 8, 90, 9, Some(40)), (64, 1, 100, 5, None)].map(|(head_dim, group, past, tokens, window)| Chunk {
            window,
            ..Chunk::random(&mut random, head_dim, group, past, tokens, 0.3)
        });
    let scale = |value: &mut u16, by: f32| *value = narrow(widen(*value) * by);
    let Chunk { k, v, queries, .. } = &mut chunks[1];
    // Those of one query of four alone.
    queries.iter_mut().enumerate().for_each(|(index, value)| {
        scale(value, if index / 64 % 4 == 1 { 1.0 } else { 0.01 });
    });
    (70 * 64..100 * 64).for_each(|index| scale(&mut k[index], (index / 64) as f32 / 3.0));
    (0..70 * 64).for_each(|index| scale(&mut v[index], 1e30));
    match attend_on(1, &chunks, kernel) {
        Err(_) => true,
        Ok((answers, _)) => chunks.iter().zip(&answers).any(|(chunk, answers)| {
            let error = error(chunk, answers);
            error > 0.01 || error.is_nan()
        }),
    }
}

fn assert_right(name: &str, chunks: &[Chunk]) {
    let (answers, _) = attend_on(1, chunks, &kernel(&Isa::aie2())).unwrap_or_else(|fault| panic!("{name}: {fault}"));
    for (chunk, answers) in chunks.iter().zip(&answers) {
        let error = error(chunk, answers);
        let Chunk { head_dim, group, past, tokens, window, .. } = chunk;
        assert!(error <= 0.01, "{name}: {head_dim} x {group}, {tokens} behind {past}, {window:?}: {error}");
    }
}

/// Heads, groups, tokens behind any number of others, windows at and off a page's edge.
#[test]
fn shapes_are_within_one_percent_of_f64() {
    let mut random = Random(5);
    let mut shapes = 0;
    for head_dim in [64, 128, 256] {
        for group in 1..=8 {
            for window in [None, Some(1), Some(64), Some(100)] {
                let (past, tokens) = (random.below(200) as usize, 1 + random.below(40) as usize);
                let scale = [0.05, 0.3, 1.0][random.below(3) as usize];
                let chunk = Chunk::random(&mut random, head_dim, group, past, tokens, scale);
                assert_right("shapes", &[Chunk { window, ..chunk }]);
                shapes += 1;
            }
        }
    }
    assert!(shapes >= 60, "{shapes}");
}

#[test]
fn long_and_many_chunks_are_right() {
    let mut random = Random(6);
    assert_right("long", &[Chunk::random(&mut random, 64, 1, 39_990, 10, 0.3)]);
    let chunk = Chunk::random(&mut random, 128, 2, 3000, 9, 0.3);
    assert_right("window", &[Chunk { window: Some(1024), ..chunk }]);
    let many: Vec<Chunk> = [(0, 100), (64, 64), (63, 65), (500, 1)]
        .map(|(past, tokens)| Chunk::random(&mut random, 128, 2, past, tokens, 0.3))
        .into();
    assert_right("many", &many);
}

#[test]
fn extreme_values_are_right() {
    let plain = Chunk::random(&mut Random(8), 64, 3, 170, 30, 0.1);
    let extreme: Vec<Chunk> =
        extremes(&plain.k, &plain.v, 160).into_iter().map(|[k, v]| Chunk { k, v, ..plain.clone() }).collect();
    assert_right("extreme", &extreme);
}

/// Cycles of a unit of K and one of V beside what a sequence costs once, and their share of 128 products a cycle.
#[test]
fn units_take_so_many_cycles() {
    let mut random = Random(2);
    for (head_dim, least) in [(64, 65.0), (128, 65.0), (256, 55.0)] {
        let mut cycles = |past: usize| {
            let chunk = Chunk::random(&mut random, head_dim, 1, past, prefill_rows(head_dim as u32) as usize * 4, 0.02);
            let (_, machine) = attend_on(1, &[chunk], &kernel(&Isa::aie2())).unwrap_or_else(|fault| panic!("{fault}"));
            machine.busy_cycles((0, 3)).unwrap_or_else(|fault| panic!("{fault}"))
        };
        let per = UNIT as usize / 2 / head_dim;
        let unit = (cycles(40 * per) - cycles(8 * per)) / 32;
        let products = 2 * per * prefill_rows(head_dim as u32) as usize * head_dim;
        let share = 100.0 * products as f64 / (128 * unit) as f64;
        println!("head of {head_dim}: {unit} cycles a pair of units, {share:.1} %");
        assert!(share >= least, "head of {head_dim}: {unit} cycles, {share:.1} %");
    }
}

/// Sixteen cores: four columns, each a part of the tokens, with a window and without.
#[test]
fn sixteen_cores_are_right() {
    let mut random = Random(12);
    for head_dim in [64, 128, 256] {
        let chunks = [None, Some(70), None, Some(128)].map(|window| {
            let (past, tokens) = (random.below(100) as usize, 1 + random.below(60) as usize);
            Chunk { window, ..Chunk::random(&mut random, head_dim, 1 + past % 8, past, tokens, 0.3) }
        });
        let (answers, _) = attend_on(4, &chunks, &kernel(&Isa::aie2())).unwrap_or_else(|fault| panic!("{fault}"));
        for (chunk, answers) in chunks.iter().zip(&answers) {
            let error = error(chunk, answers);
            assert!(error <= 0.01, "{head_dim} x {}: {error}", chunk.group);
        }
    }
}

/// Chunks of 64 tokens of two queries each behind 4,096, one after another: what a core waits for is parameters, queries
/// and room for O, once a sequence.
#[test]
fn sixteen_cores_hardly_wait() {
    let mut random = Random(13);
    let chunks: Vec<Chunk> = (0..8).map(|_| Chunk::random(&mut random, 128, 2, 4096, 64, 0.02)).collect();
    let (_, machine) = attend_on(4, &chunks, &kernel(&Isa::aie2())).unwrap_or_else(|fault| panic!("{fault}"));
    let first = machine.traffic((0, 1), true, 0).unwrap_or_else(|fault| panic!("{fault}")).first;
    for column in 0..4 {
        for row in 2..6 {
            let busy = machine.busy_cycles((column, row)).unwrap_or_else(|fault| panic!("{fault}"));
            let traffic = machine.traffic((column, row), false, 0).unwrap_or_else(|fault| panic!("{fault}"));
            let waits = 1.0 - busy as f64 / (machine.cycles() - first) as f64;
            println!("core ({column}, {row}): {busy} cycles, {:.1} % waiting; {traffic:?}", 100.0 * waits);
            assert!(waits <= 0.05, "core ({column}, {row}) waits {:.1} %", 100.0 * waits);
        }
    }
}
