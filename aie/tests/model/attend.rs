//! Attention of one token on the model, against f64 on the same bf16 inputs.

use std::collections::BTreeSet;
use std::ops::Range;

use kiln_aie::designs::attend_bf16::{MAGIC, MOST, OUTPUT, PAGE, QUAD, UNIT, k_walk, stream};
use kiln_aie::isa::Isa;
use kiln_aie::pack::{Dimension, Tile};

use crate::machine::{Fault, HostMemory, Latencies, Machine, narrow, widen};
use crate::program::{Random, code};

/// A sequence: queries, and K and V of whole pages, row by row, of which a range of positions is seen.
#[derive(Clone)]
struct Sequence {
    head_dim: usize,
    group: usize,
    first: usize,
    end: usize,
    /// Scaled: a score is a power of two's exponent.
    queries: Vec<u16>,
    k: Vec<u16>,
    v: Vec<u16>,
}

/// What the core leaves of a query: O and the sum, in powers of 2^`maximum`.
#[derive(Clone)]
struct Output {
    maximum: f64,
    sum: f64,
    o: Vec<f64>,
}

pub const NAN: u16 = 0x7FC1;

impl Sequence {
    /// Random numbers of a normal-like distribution; what is not seen is NaN.
    fn random(random: &mut Random, head_dim: usize, group: usize, first: usize, end: usize, scale: f32) -> Sequence {
        let positions = end.next_multiple_of(PAGE as usize);
        let queries = (0..group * head_dim).map(|_| random.normal(scale)).collect();
        let mut rows = |scale: f32| -> Vec<u16> {
            let seen = |index: usize| (first..end).contains(&(index / head_dim));
            (0..positions * head_dim).map(|index| if seen(index) { random.normal(scale) } else { NAN }).collect()
        };
        let (k, v) = (rows(1.0), rows(1.0));
        Sequence { head_dim, group, first, end, queries, k, v }
    }

    /// The header's unit, for the core of this number, as the memory tile's walk through K's units makes it the core's.
    fn header(&self, core: u32) -> Vec<u8> {
        let dim = self.head_dim as u32;
        let quads = self.group.div_ceil(4) as u32;
        let units = (self.k.len() * 2) as u32 / UNIT;
        let step = 32 * dim;
        let parts = if quads == 2 { (2048 + 8 * dim) / 32 } else { 8 * dim / 32 };
        let words = [
            units,
            UNIT / step,
            dim / 16 - 1,
            dim / 32 - 1,
            self.first as u32,
            self.end as u32,
            quads,
            step,
            dim / 4 + 1,
            parts,
            core,
        ];
        let mut unit = vec![0u16; UNIT as usize / 2];
        for (index, word) in words.into_iter().enumerate() {
            (unit[2 * index], unit[2 * index + 1]) = (word as u16, (word >> 16) as u16);
        }
        for query in 0..self.group {
            for d in 0..self.head_dim {
                // Tiles of 8 dimensions by 4 queries.
                let tile = 32 * (d / 8) + 4 * (d % 8) + query % 4;
                unit[32 + 1024 * (query / 4) + tile] = self.queries[query * self.head_dim + d];
            }
        }
        let mut rows = vec![0u8; UNIT as usize];
        for (index, word) in order(&k_walk(dim)).into_iter().enumerate() {
            for half in 0..2 {
                rows[4 * word + 2 * half..][..2].copy_from_slice(&unit[2 * index + half].to_le_bytes());
            }
        }
        rows
    }

    /// Of a query, in f64.
    fn expected(&self, query: usize) -> Vec<f64> {
        let query = &self.queries[query * self.head_dim..][..self.head_dim];
        attention(query, &self.k, &self.v, self.first..self.end).0
    }
}

/// A query's attention over positions by its formula: O, and the logarithm of the sum of 2^score to base 2. K and V are row by
/// row.
pub fn attention(query: &[u16], k: &[u16], v: &[u16], seen: Range<usize>) -> (Vec<f64>, f64) {
    fn wide(values: &[u16]) -> impl Iterator<Item = f64> {
        values.iter().map(|value| f64::from(widen(*value)))
    }
    let dim = query.len();
    let query: Vec<f64> = wide(query).collect();
    let score = |position: usize| query.iter().zip(wide(&k[position * dim..])).map(|(q, k)| q * k).sum();
    let scores: Vec<f64> = seen.clone().map(score).collect();
    let most = scores.iter().copied().fold(f64::MIN, f64::max);
    let sum: f64 = scores.iter().map(|score| (score - most).exp2()).sum();
    let mut o = vec![0.0; dim];
    for (score, position) in scores.iter().zip(seen) {
        let weight = (score - most).exp2() / sum;
        o.iter_mut().zip(wide(&v[position * dim..])).for_each(|(o, v)| *o += weight * v);
    }
    (o, most + sum.log2())
}

/// The places that a walk comes to, one after another.
pub fn order(walk: &[Dimension; 4]) -> Vec<usize> {
    let steps =
        |dimension: &Dimension| (0..dimension.count).map(|index| (index * dimension.step) as usize).collect::<Vec<_>>();
    let [a, b, c, d] = [0, 1, 2, 3].map(|index: usize| steps(&walk[index]));
    let mut order = Vec::new();
    for d in &d {
        for c in &c {
            for b in &b {
                order.extend(a.iter().map(|a| a + b + c + d));
            }
        }
    }
    order
}

/// What columns of cores leave of sequences, and the machine.
struct Run {
    outputs: Vec<Vec<Output>>,
    machine: Machine,
}

/// Runs sequences of one head's size in one run: the first column's, each core's in turn, then the next column's. Their
/// pages lie anywhere in the cache.
fn attend_on(columns: u8, cores: u8, sequences: &[Sequence], kernel: &[u8]) -> Result<Run, Fault> {
    let dim = sequences[0].head_dim;
    let page = PAGE as usize * dim;
    let mut design = stream(dim as u32, columns, cores);
    let mut next: usize = sequences.iter().map(|sequence| sequence.k.len() / page).sum();
    let bytes = (next * page * 2) as u32;
    let arguments = [
        design.argument("headers", sequences.len() as u32 * UNIT),
        design.argument("k", bytes),
        design.argument("v", bytes),
        design.argument("o", sequences.len() as u32 * OUTPUT),
    ];
    let (mut headers, mut k, mut v) = (Vec::new(), vec![0u8; bytes as usize], vec![0u8; bytes as usize]);
    let of_column = sequences.len().div_ceil(usize::from(columns));
    for (column, part) in (0..columns).zip(sequences.chunks(of_column)) {
        let (shim, first) = (Tile::new(column, 0), usize::from(column) * of_column);
        design.receive(shim.input(0), arguments[3], first as u32 * OUTPUT, part.len() as u32 * OUTPUT);
        for (index, sequence) in part.iter().enumerate() {
            headers.extend(sequence.header(index as u32 % u32::from(cores)));
            design.send(shim.output(0), arguments[0], (first + index) as u32 * UNIT, UNIT);
            for (k_page, v_page) in sequence.k.chunks(page).zip(sequence.v.chunks(page)) {
                // Pages from the last to the first, so that none follows another.
                next -= 1;
                let start = next * page * 2;
                for (to, from, argument, channel) in [(&mut k, k_page, 1, 0), (&mut v, v_page, 2, 1)] {
                    let values = from.iter().flat_map(|value| value.to_le_bytes());
                    to[start..start + 2 * page].iter_mut().zip(values).for_each(|(to, byte)| *to = byte);
                    design.send(shim.output(channel), arguments[argument], start as u32, 2 * page as u32);
                }
            }
        }
    }
    let packed = design.pack(|_| Some(kernel.to_vec()))?;
    let mut machine = Machine::new(u32::from(columns), Latencies::default());
    machine.limit = 100_000_000;
    [headers, k, v].iter().for_each(|bytes| machine.share(HostMemory::of(bytes)));
    machine.share(HostMemory::new(sequences.len() * OUTPUT as usize));
    machine.load_container(&packed.container)?;
    machine.run(&packed.sequence)?;
    let left = machine.host[3].memory.bytes().ok_or("not all came back")?;
    let left: Vec<f32> = left.chunks(4).map(|word| f32::from_le_bytes([word[0], word[1], word[2], word[3]])).collect();
    let outputs = sequences.iter().zip(left.chunks(OUTPUT as usize / 4)).map(|(sequence, left)| {
        (0..sequence.group).map(|query| read(&left[query / 4 * (QUAD as usize / 4)..], query % 4, dim)).collect()
    });
    Ok(Run { outputs: outputs.collect(), machine })
}

/// The kernel's program memory, by an instruction table.
pub fn kernel(isa: &Isa) -> Vec<u8> {
    code(isa, "attend_bf16").expect("a kernel")
}

/// The same on one core, and the cycles that it was at work.
fn attend(sequences: &[Sequence]) -> Result<(Vec<Vec<Output>>, u64), Fault> {
    let Run { outputs, machine } = attend_on(1, 1, sequences, &kernel(&Isa::aie2()))?;
    Ok((outputs, machine.busy_cycles((0, 2))?))
}

fn read(left: &[f32], query: usize, dim: usize) -> Output {
    let o = (0..dim).map(|d| f64::from(left[32 + 16 * (d / 4) + 4 * query + d % 4]));
    let maximum = f64::from(f32::from_bits(MAGIC)) - f64::from(left[query]);
    Output { maximum, sum: f64::from(left[16 + 4 * query]), o: o.collect() }
}

/// The largest relative root mean square of a query's error.
fn error(sequence: &Sequence, outputs: &[Output]) -> f64 {
    let of = |(query, output): (usize, &Output)| {
        let expected = sequence.expected(query);
        let squares = expected.iter().zip(&output.o).map(|(expected, o)| (o / output.sum - expected).powi(2));
        let (error, all) = (squares.sum::<f64>(), expected.iter().map(|value| value * value).sum::<f64>());
        (error / all).sqrt()
    };
    outputs
        .iter()
        .enumerate()
        .map(of)
        .fold(0.0, |most, error| if error > most || error.is_nan() { error } else { most })
}

/// Runs sequences and asserts that each is within 1 % of f64, in the root mean square relative to all of O.
fn assert_right(name: &str, sequences: &[Sequence]) {
    let (outputs, _) = attend(sequences).unwrap_or_else(|fault| panic!("{name}: {fault}"));
    for (sequence, outputs) in sequences.iter().zip(&outputs) {
        let error = error(sequence, outputs);
        let Sequence { head_dim, group, first, end, .. } = sequence;
        assert!(error <= 0.01, "{name}: {head_dim} x {group}, {first}..{end}: {error}");
    }
}

/// Sizes of heads and groups, and positions that are seen: all, windows with and without an edge in a page, one alone.
#[test]
fn shapes_are_within_one_percent_of_f64() {
    let mut random = Random(5);
    let ranges = [(0, 1), (0, 64), (0, 65), (3, 16), (17, 18), (15, 33), (63, 130), (100, 612), (128, 192)];
    let mut shapes = 0;
    for head_dim in [64, 128, 256] {
        for group in 1..=8 {
            let range = |random: &mut Random| ranges[random.below(ranges.len() as u64) as usize];
            // Another number of sequences in each run, of which some see little and others much.
            let sequences: Vec<Sequence> = (0..1 + group % 3)
                .map(|_| {
                    let ((first, end), scale) = (range(&mut random), [0.05, 0.3, 1.0][random.below(3) as usize]);
                    Sequence::random(&mut random, head_dim, group, first, end, scale)
                })
                .collect();
            shapes += sequences.len();
            assert_right("shapes", &sequences);
        }
    }
    assert!(shapes >= 45, "{shapes}");
}

#[test]
fn long_and_many_sequences_are_right() {
    let mut random = Random(6);
    assert_right("long", &[Sequence::random(&mut random, 64, 2, 0, 40_000, 0.3)]);
    assert_right("window", &[Sequence::random(&mut random, 128, 2, 37, 1061, 0.3)]);
    let mut batch: Vec<Sequence> = Vec::new();
    for end in [1, 2000, 64, 63, 129, 1000, 16, 500] {
        batch.push(Sequence::random(&mut random, 128, 2, 0, end, 0.3));
    }
    assert_right("batch", &batch);
}

/// K and V of 200 positions and 64 dimensions as `k` and `v` are, with scores that are large, of either sign, and grow late, and
/// with values of V far apart. `alone`: the position that has all the weight in one of them.
pub fn extremes(k: &[u16], v: &[u16], alone: usize) -> Vec<[Vec<u16>; 2]> {
    let changed = |change: &dyn Fn(usize, &mut f32, &mut f32)| {
        let (mut k, mut v) = (k.to_vec(), v.to_vec());
        for (index, (k, v)) in k.iter_mut().zip(&mut v).enumerate().take(200 * 64) {
            let (mut wide_k, mut wide_v) = (widen(*k), widen(*v));
            change(index / 64, &mut wide_k, &mut wide_v);
            (*k, *v) = (narrow(wide_k), narrow(wide_v));
        }
        [k, v]
    };
    vec![
        // All far below 0, and all far above.
        changed(&|_, k, _| *k -= 64.0),
        changed(&|_, k, _| *k *= 300.0),
        // Each step's scores are larger than all before, and smaller.
        changed(&|position, k, _| *k *= position as f32),
        changed(&|position, k, _| *k *= 200.0 - position as f32),
        // One position alone has all the weight.
        changed(&|position, k, _| *k *= if position == alone { 800.0 } else { 0.01 }),
        changed(&|position, _, v| *v *= if position % 2 == 0 { 1e30 } else { 1e-30 }),
        // What counts is of positions whose weights have been scaled down: the sums are.
        changed(&|position, k, v| {
            *k *= 1.0 + position as f32 / 2.0;
            *v *= if position < 100 { 1e25 } else { 1e-5 };
        }),
    ]
}

#[test]
fn extreme_values_are_right() {
    let plain = Sequence::random(&mut Random(8), 64, 3, 0, 200, 0.1);
    // The last step's last position.
    let extreme: Vec<Sequence> =
        extremes(&plain.k, &plain.v, 199).into_iter().map(|[k, v]| Sequence { k, v, ..plain.clone() }).collect();
    assert_right("extreme", &extreme);
}

/// 2^x of every bf16 that is a score: within 0.8 %, where it is a normal number beside the maximum.
#[test]
fn powers_of_two_are_within_their_bound() {
    let scores = (0..=u16::MAX).filter(|bits| widen(*bits) < MOST && widen(*bits).is_finite());
    let mut sorted: Vec<u16> = scores.collect();
    sorted.sort_by(|a, b| widen(*a).total_cmp(&widen(*b)));
    // A sequence of 64 positions: query q's score is K's dimension q, and dimension d of V picks position d out. The first
    // position's score is 0, or that of the first of the others where those are above.
    let mut sequences = Vec::new();
    for chunk in sorted.chunks(8 * 63) {
        let mut sequence = Sequence::random(&mut Random(1), 64, 8, 0, 64, 0.0);
        sequence.queries.iter_mut().enumerate().for_each(|(index, value)| {
            *value = if index % 65 == 0 { narrow(1.0) } else { 0 };
        });
        let of = |position: usize, query: usize| {
            let anchor = if widen(chunk[0]) > 0.0 { chunk[0] } else { 0 };
            if position == 0 { anchor } else { *chunk.get(8 * (position - 1) + query).unwrap_or(&anchor) }
        };
        for position in 0..64 {
            for d in 0..64 {
                sequence.k[64 * position + d] = if d < 8 { of(position, d) } else { 0 };
                sequence.v[64 * position + d] = if d == position { narrow(1.0) } else { 0 };
            }
        }
        sequences.push(sequence);
    }
    let (mut most, mut squares, mut count) = (0f64, 0f64, 0);
    for sequences in sequences.chunks(64) {
        let (outputs, _) = attend(sequences).unwrap_or_else(|fault| panic!("{fault}"));
        for (sequence, outputs) in sequences.iter().zip(outputs) {
            for (query, output) in outputs.iter().enumerate() {
                for position in 0..64 {
                    let exponent = f64::from(widen(sequence.k[64 * position + query])) - output.maximum;
                    let (found, exact) = (output.o[position], exponent.exp2());
                    if exponent < -125.0 {
                        assert!((0.0..=2f64.powi(-124)).contains(&found), "2^{exponent} is {found}");
                        continue;
                    }
                    let error = found / exact - 1.0;
                    (most, squares, count) = (most.max(error.abs()), squares + error * error, count + 1);
                    assert!(error.abs() <= 0.008, "2^{exponent} is {found}, not {exact}");
                }
            }
        }
    }
    let rms = (squares / f64::from(count)).sqrt();
    assert!(count > 20_000 && most > 0.005 && rms < 0.004, "{count} values, at most {most}, rms {rms}");
}

/// Cycles of a page of 64 positions, beside what a sequence costs once: its longer one less its shorter one.
#[test]
fn pages_take_so_many_cycles() {
    let mut random = Random(2);
    for (head_dim, group, most) in [(64, 4, 1200), (128, 4, 1200), (256, 4, 2000), (128, 8, 2300)] {
        let mut cycles = |end: usize| {
            let sequence = Sequence::random(&mut random, head_dim, group, 0, end, 0.02);
            attend(&[sequence]).unwrap_or_else(|fault| panic!("{fault}")).1
        };
        let page = (cycles(11 * 64) - cycles(64)) / 10;
        println!("head of {head_dim}, group of {group}: {page} cycles a page");
        assert!(page <= most, "head of {head_dim}, group of {group}: {page} cycles a page");
    }
}

/// Sixteen cores with one program: sequences of many lengths, four columns of four cores in turn.
#[test]
fn sixteen_cores_are_right() {
    let mut random = Random(12);
    for head_dim in [64, 128, 256] {
        let sequences: Vec<Sequence> = (0..32)
            .map(|index| {
                let end = 1 + random.below(300) as usize;
                let first = if index % 3 == 0 { random.below(end as u64) as usize } else { 0 };
                Sequence::random(&mut random, head_dim, 1 + index % 8, first, end, 0.3)
            })
            .collect();
        let run = attend_on(4, 4, &sequences, &kernel(&Isa::aie2())).unwrap_or_else(|fault| panic!("{fault}"));
        for (sequence, outputs) in sequences.iter().zip(&run.outputs) {
            let error = error(sequence, outputs);
            assert!(error <= 0.01, "{} x {}: {error}", head_dim, sequence.group);
        }
    }
}

/// Sixteen heads of 128 dimensions in groups of two, whose pages follow one another: the streams are never held up, so
/// what a pass takes is what its bytes take.
#[test]
fn sixteen_cores_keep_up_with_their_streams() {
    let mut random = Random(13);
    let (mut k, mut v) = (Vec::new(), Vec::new());
    for head in 0..16 {
        let sequence = Sequence::random(&mut random, 128, 2, 0, 512, 0.3);
        k.extend(sequence.header(head % 4));
        k.extend(sequence.k.iter().flat_map(|value| value.to_le_bytes()));
        v.extend(sequence.v.iter().flat_map(|value| value.to_le_bytes()));
    }
    let mut design = stream(128, 4, 4);
    let (k_part, v_part) = (k.len() as u32 / 4, v.len() as u32 / 4);
    let arguments =
        [("k", 4 * k_part), ("v", 4 * v_part), ("o", 16 * OUTPUT)].map(|(name, bytes)| design.argument(name, bytes));
    for column in 0..4 {
        let (shim, part) = (Tile::new(column, 0), u32::from(column));
        design.receive(shim.input(0), arguments[2], part * 4 * OUTPUT, 4 * OUTPUT);
        design.send(shim.output(0), arguments[0], part * k_part, k_part);
        design.send(shim.output(1), arguments[1], part * v_part, v_part);
    }
    let packed = design.pack(|_| Some(kernel(&Isa::aie2()))).unwrap_or_else(|error| panic!("{error}"));
    let mut machine = Machine::new(4, Latencies::default());
    machine.limit = 1_000_000;
    [k, v].iter().for_each(|bytes| machine.share(HostMemory::of(bytes)));
    machine.share(HostMemory::new(16 * OUTPUT as usize));
    machine
        .load_container(&packed.container)
        .and_then(|()| machine.run(&packed.sequence))
        .unwrap_or_else(|fault| panic!("{fault}"));
    for column in 0..4 {
        for number in [0, 1] {
            let traffic = machine.traffic((column, 1), true, number).unwrap_or_else(|fault| panic!("{fault}"));
            let rate = traffic.words as f64 / (traffic.last - traffic.first + 1) as f64;
            // V waits while a header comes by K's stream: one unit for 16 of K.
            let least = if number == 0 { 0.98 } else { 0.98 * 16.0 / 17.0 };
            assert!(rate >= least, "column {column}, output {number}: {rate:.4}: {traffic:?}");
        }
    }
}

/// The kernel with a wrong opcode, as for the other kernels: assembled by a table in which a bit of one instruction is
/// turned, run by the right one.
#[test]
fn every_turned_bit_of_an_opcode_is_caught() {
    let isa = Isa::aie2();
    let mut random = Random(21);
    // A step that is not seen and steps of which not all is, scores that grow late, and a second group of four queries.
    let mut sequences = [(5, 19, 100, 0.3), (2, 0, 64, 0.5), (1, 0, 1, 0.1)]
        .map(|(group, first, end, scale)| Sequence::random(&mut random, 64, group, first, end, scale));
    let scale = |value: &mut u16, by: f32| *value = narrow(widen(*value) * by);
    (70 * 64..100 * 64).for_each(|index| scale(&mut sequences[0].k[index], (index / 64) as f32 / 3.0));
    // Weights that are scaled down count, too.
    (0..70 * 64).for_each(|index| scale(&mut sequences[0].v[index], 1e30));
    let refuted = |kernel: &[u8]| match attend_on(1, 2, &sequences, kernel) {
        Err(_) => true,
        Ok(run) => sequences.iter().zip(&run.outputs).any(|(sequence, outputs)| {
            let error = error(sequence, outputs);
            error > 0.01 || error.is_nan()
        }),
    };
    let refuted = |kernel: &[u8]| refuted(kernel) || crate::prefill::refutes(kernel);
    assert!(!refuted(&kernel(&isa)));
    let bundles = kiln_aie::disassemble::decode(&isa, &kernel(&isa)).expect("a program");
    let used: BTreeSet<usize> =
        bundles.iter().flat_map(|(_, bundle)| bundle.instructions.iter().map(|i| i.op)).collect();
    let mut missed = Vec::new();
    for op in used.into_iter().filter(|op| !isa.ops[*op].is_nop()) {
        for bit in (0..42).filter(|bit| isa.ops[op].mask >> bit & 1 == 1) {
            let mut turned = isa.clone();
            turned.ops[op].value ^= 1 << bit;
            let name = format!("{} {}: bit {bit}", isa.ops[op].slot.name(), isa.ops[op].mnemonic);
            if !refuted(&kernel(&turned)) && !HARMLESS.contains(&name.as_str()) {
                missed.push(name);
            }
        }
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

/// Turned bits that change nothing that is read.
const HARMLESS: [&str; 6] = [
    // `or` and `add` for `and`, and a constant for `nez`: the maximum is set anew where it need not be.
    "alu and: bit 1",
    "alu and: bit 3",
    "alu nez: bit 1",
    // `sub` of a register from itself for `movx` of 0.
    "alu movx: bit 0",
    // A load from where the pointer is that moves it by 0.
    "ldb vldb: bit 8",
    // `vge` for `vlt`: the maximum is set anew where it need not be.
    "mv vlt.s32: bit 12",
];
