//! Rings, broadcasts and walks: four columns of a shim, a memory tile and four cores with one program, which copy what
//! the host sends in two streams.
//!
//! The memory tile gives both streams to all four cores, the first in another order of words. A core takes each fourth
//! unit, lets the others go, and returns the first half of the first stream's with the second half of the second's. The
//! memory tile collects the units of its cores in turn. So both streams and what comes back run at a word a cycle, unless
//! something holds them up.

use kiln_aie::assemble;
use kiln_aie::isa::Isa;
use kiln_aie::pack::{Buffer, Design, Dimension, Tile, Transfer};

use crate::machine::{Fault, HostMemory, Latencies, Machine};
use crate::program::Random;

/// Buffers of the rings of a memory tile and of a core: first stream, second stream, what comes back.
#[derive(Clone, Debug)]
struct Shape {
    /// Of a unit: a multiple of 16.
    words: u32,
    units: u32,
    memory: [u8; 3],
    core: [u8; 3],
    /// The walk through a unit of the first stream.
    walk: Vec<Dimension>,
    /// How the host sends: all at once, unit by unit with one descriptor, or in so many pieces.
    pieces: Pieces,
}

#[derive(Clone, Copy, Debug)]
enum Pieces {
    All,
    Iterated,
    Of(u32),
}

const COLUMNS: u8 = 4;
const CORES: u8 = 4;

/// The core's program: rings from RING_A, RING_B and RING_C on; the word at INDEX says how many units are another's first.
const SOURCE: &str = "
.const OWN = 0x70000
.const HALF = UNIT / 2
.const LAST_A = OWN + RING_A + COUNT_A * UNIT
.const LAST_B = OWN + RING_B + COUNT_B * UNIT
.const LAST_C = OWN + RING_C + COUNT_C * UNIT
    movxm p0, #OWN + INDEX
    movxm r10, #OWN + RING_A
    movxm r11, #OWN + RING_B
    movxm r12, #OWN + RING_C
    movxm r13, #LAST_A
    movxm r14, #LAST_B
    movxm r15, #LAST_C
    movxm r16, #UNIT
    movxm r17, #OWN + RING_A
    movxm r18, #OWN + RING_B
    movxm r19, #OWN + RING_C
    lda r0, [p0, #0]
    mova r7, #-1
    mova r8, #1
    .nops 5
.align 16
unit:
    acq #49, r7
    .nops 3
    acq #51, r7
    jnz r0, #next
    add r0, r0, #-1
    .nops 4
    acq #52, r7
    mov p0, r10
    mov p1, r11
    mov p2, r12
    movxm m0, #HALF
    paddb [p1], m0
    movxm r1, #HALF / 32
.align 16
first:
    vlda wl0, [p0], #32
    add r1, r1, #-1
    jnz r1, #first
    .nops 4
    vst wl0, [p2], #32
    movxm r1, #HALF / 32
.align 16
second:
    vlda wl0, [p1], #32
    add r1, r1, #-1
    jnz r1, #second
    .nops 4
    vst wl0, [p2], #32
    add r12, r12, r16
    ltu r27, r12, r15
    sel.nez r12, r12, r19, r27
    mova r0, #3
    rel #53, r8
    .nops 3
.align 16
next:
    rel #48, r8
    add r10, r10, r16
    ltu r27, r10, r13
    sel.nez r10, r10, r17, r27
    rel #50, r8
    add r11, r11, r16
    j #unit
    ltu r27, r11, r14
    sel.nez r11, r11, r18, r27
    .nops 3
";

/// Where a core's rings start, and its index.
const RINGS: [u32; 3] = [0x1000, 0x5000, 0x9000];
const INDEX: u32 = 0x40;

impl Shape {
    /// A walk in up to four dimensions that takes each word of a unit once.
    fn random_walk(random: &mut Random, words: u32) -> Vec<Dimension> {
        let mut counts = [1; 4];
        let mut rest = words;
        for count in &mut counts[..3] {
            let divisors: Vec<u32> = (1..=rest.min(64)).filter(|divisor| rest.is_multiple_of(*divisor)).collect();
            *count = divisors[random.below(divisors.len() as u64) as usize];
            rest /= *count;
        }
        counts[3] = rest;
        // Steps of the same dimensions in another order of nesting.
        let mut order = [0, 1, 2, 3];
        (1..4).rev().for_each(|index| order.swap(index, random.below(index as u64 + 1) as usize));
        let (mut steps, mut step) = ([1; 4], 1);
        for dimension in order {
            steps[dimension] = step;
            step *= counts[dimension];
        }
        counts.into_iter().zip(steps).map(|(count, step)| Dimension { count, step }).collect()
    }

    fn random(random: &mut Random) -> Shape {
        let words = 16 * (1 + random.below(16) as u32);
        let mut count = |most: u64| 1 + random.below(most) as u8;
        let memory = [count(5), count(6), count(2)];
        let core = [count(5), count(5), count(5)];
        let pieces = match count(3) {
            1 => Pieces::All,
            2 => Pieces::Iterated,
            _ => Pieces::Of(u32::from(count(7))),
        };
        let units = 1 + random.below(12) as u32;
        let walk = Shape::random_walk(random, words);
        Shape { words, units, memory, core, walk, pieces }
    }

    fn bytes(&self) -> u32 {
        4 * self.words
    }

    fn design(&self) -> Design {
        let mut design = Design::new("rings", COLUMNS);
        design.cache = 2;
        let column_bytes = self.units * self.bytes();
        let [a, b, c] = ["a", "b", "c"].map(|name| design.argument(name, u32::from(COLUMNS) * column_bytes));
        for column in 0..COLUMNS {
            let (shim, memory) = (Tile::new(column, 0), Tile::new(column, 1));
            let ring = |address: u32, count: u8, empty: u8| Buffer {
                tile: memory,
                address,
                bytes: self.bytes(),
                count,
                empty,
                full: empty + 1,
            };
            let first = design.buffer(ring(0, self.memory[0], 0));
            let second = design.buffer(ring(0x10000, self.memory[1], 2));
            design.fill(first, 0, &[]);
            design.fill(second, 1, &[]);
            design.drain(first, 0, &self.walk);
            design.drain(second, 1, &[]);
            design.route(shim.output(0), memory.input(0));
            design.route(shim.output(1), memory.input(1));
            let mut back = Vec::new();
            for index in 0..CORES {
                let core = Tile::new(column, 2 + index);
                design.run(core, "copy");
                design.constant(core, INDEX, vec![u32::from(index)]);
                let rings = [0, 1, 2].map(|stream: usize| Buffer {
                    tile: core,
                    address: RINGS[stream],
                    bytes: self.bytes(),
                    count: self.core[stream],
                    empty: 2 * stream as u8,
                    full: 2 * stream as u8 + 1,
                });
                let [first, second, third] = rings.map(|ring| design.buffer(ring));
                design.fill(first, 0, &[]);
                design.fill(second, 1, &[]);
                design.drain(third, 0, &[]);
                design.route(memory.output(0), core.input(0));
                design.route(memory.output(1), core.input(1));
                design.route(core.output(0), memory.input(2 + index));
                let collected = ring(0x20000 + 0x4000 * u32::from(index), self.memory[2], 4 + 2 * index);
                back.push(design.buffer(collected));
                design.fill(collected, 2 + index, &[]);
            }
            design.drain_in_turn(&back, 2, &[]);
            design.route(memory.output(2), shim.input(0));
            let part = u32::from(column) * column_bytes;
            design.receive(shim.input(0), c, part, column_bytes);
            self.send(&mut design, shim, [a, b], part);
        }
        design
    }

    fn send(&self, design: &mut Design, shim: Tile, arguments: [usize; 2], part: u32) {
        let streams = arguments.into_iter().zip([shim.output(0), shim.output(1)]);
        let all = self.units * self.bytes();
        match self.pieces {
            Pieces::All => streams.for_each(|(argument, channel)| design.send(channel, argument, part, all)),
            Pieces::Iterated => streams.for_each(|(argument, channel)| {
                design.transfer(Transfer {
                    channel,
                    argument,
                    offset: part,
                    bytes: self.bytes(),
                    walk: Vec::new(),
                    times: self.units as u16,
                    iteration: Some(Dimension { count: self.units, step: self.words }),
                });
            }),
            // A piece of each stream in turn, since the cores need both.
            Pieces::Of(pieces) => {
                let piece = (all / pieces).next_multiple_of(4);
                for start in (0..all).step_by(piece as usize) {
                    for (argument, channel) in streams.clone() {
                        design.send(channel, argument, part + start, piece.min(all - start));
                    }
                }
            }
        }
    }

    /// The kernel, with the shape's numbers.
    fn kernel(&self) -> Vec<u8> {
        let counts = [("A", 0), ("B", 1), ("C", 2)].map(|(name, stream)| {
            let (ring, count) = (RINGS[stream], self.core[stream]);
            format!(".const RING_{name} = {ring}\n.const COUNT_{name} = {count}\n")
        });
        let text = format!(".const UNIT = {}\n.const INDEX = {INDEX}\n{}{SOURCE}", self.bytes(), counts.concat());
        assemble(&Isa::aie2(), "copy.s", &text).unwrap_or_else(|errors| panic!("{errors:#?}")).code
    }

    /// What comes back of the columns' words: unit by unit, the halves of both streams.
    fn expected(&self, streams: &[Vec<u32>; 2]) -> Vec<u8> {
        let words = self.words as usize;
        let units = streams[0].chunks(words).zip(streams[1].chunks(words));
        let [inner, second, third, outer] = [0, 1, 2, 3].map(|index: usize| self.walk[index]);
        let words = units.flat_map(|(first, other)| {
            let mut walked = Vec::new();
            for d in 0..outer.count {
                for c in 0..third.count {
                    for b in 0..second.count {
                        for a in 0..inner.count {
                            let at = a * inner.step + b * second.step + c * third.step + d * outer.step;
                            walked.push(first[at as usize]);
                        }
                    }
                }
            }
            [&walked[..words / 2], &other[words / 2..]].concat()
        });
        words.flat_map(u32::to_le_bytes).collect()
    }

    /// Runs it on random words; the machine, where all came back right.
    fn run(&self, random: &mut Random, kernel: &[u8]) -> Result<Machine, Fault> {
        let packed = self.design().pack(|_| Some(kernel.to_vec()))?;
        let all = u32::from(COLUMNS) * self.units * self.words;
        let streams = [0, 1].map(|_| (0..all).map(|_| random.below(1 << 31) as u32).collect::<Vec<u32>>());
        let mut machine = Machine::new(u32::from(COLUMNS), Latencies::default());
        for stream in &streams {
            machine.share(HostMemory::of(&stream.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>()));
        }
        machine.share(HostMemory::new(4 * all as usize));
        machine.load_container(&packed.container)?;
        machine.run(&packed.sequence)?;
        let right = machine.host[2].memory.bytes() == Some(self.expected(&streams));
        if right { Ok(machine) } else { Err("what came back is wrong".into()) }
    }
}

#[test]
fn rings_of_all_lengths_are_exact() {
    let mut random = Random(44);
    for _ in 0..200 {
        let shape = Shape::random(&mut random);
        let kernel = shape.kernel();
        shape.run(&mut random, &kernel).map(|_| ()).unwrap_or_else(|fault| panic!("{shape:?}: {fault}"));
    }
}

/// At least 98 % of a word a cycle on each channel that carries a stream, from its first word to its last.
#[test]
fn streams_run_at_a_word_a_cycle() {
    let walk = [(4, 2), (8, 64), (2, 1), (8, 8)].map(|(count, step)| Dimension { count, step }).to_vec();
    let shape = Shape { words: 512, units: 40, memory: [3, 3, 2], core: [2, 2, 2], walk, pieces: Pieces::Iterated };
    let machine = shape.run(&mut Random(7), &shape.kernel()).unwrap_or_else(|fault| panic!("{fault}"));
    for column in 0..u32::from(COLUMNS) {
        let shim = [(true, 0), (true, 1), (false, 0)].map(|(output, number)| ((column, 0), output, number));
        let memory = [(false, 0), (false, 1), (true, 0), (true, 1), (true, 2)];
        let cores = (2..6).flat_map(|row| [0, 1].map(|number| ((column, row), false, number)));
        let memory = memory.map(|(output, number)| ((column, 1), output, number));
        for (place, output, number) in shim.into_iter().chain(memory).chain(cores) {
            let traffic = machine.traffic(place, output, number).unwrap_or_else(|fault| panic!("{fault}"));
            assert_eq!(traffic.words, u64::from(shape.units * shape.words), "{place:?} {output} {number}");
            let rate = traffic.words as f64 / (traffic.last - traffic.first + 1) as f64;
            assert!(rate >= 0.98, "{place:?}, output: {output}, {number}: {rate:.4} words a cycle: {traffic:?}");
        }
    }
}

/// A ring of one buffer has no time to be filled while it is drained: the rate is seen to depend on the rings.
#[test]
fn one_buffer_is_slower() {
    let walk = [(512, 1), (1, 1), (1, 1), (1, 1)].map(|(count, step)| Dimension { count, step }).to_vec();
    let shape = Shape { words: 512, units: 8, memory: [1, 1, 1], core: [1, 1, 1], walk, pieces: Pieces::All };
    let machine = shape.run(&mut Random(7), &shape.kernel()).unwrap_or_else(|fault| panic!("{fault}"));
    let traffic = machine.traffic((0, 0), true, 0).unwrap_or_else(|fault| panic!("{fault}"));
    let rate = traffic.words as f64 / (traffic.last - traffic.first + 1) as f64;
    assert!(rate < 0.6, "{rate}");
}

/// Each descriptor, lock and constant of the rings: without it, or with its locks wrong, what comes back is not right.
#[test]
fn every_part_of_a_ring_is_needed() {
    let walk = [(4, 8), (8, 1), (2, 32), (1, 1)].map(|(count, step)| Dimension { count, step }).to_vec();
    let shape = Shape { words: 64, units: 24, memory: [3, 2, 2], core: [3, 3, 2], walk, pieces: Pieces::All };
    let kernel = shape.kernel();
    let refuted = |name: String, change: &dyn Fn(&mut Design)| {
        let mut design = shape.design();
        change(&mut design);
        let packed = design.pack(|_| Some(kernel.clone()));
        let outcome = packed.and_then(|packed| shape.run_packed(&packed));
        assert!(outcome.is_err(), "{name}: all is the same");
    };
    assert_eq!(shape.design().pack(|_| Some(kernel.clone())).and_then(|packed| shape.run_packed(&packed)), Ok(()));
    // Of one column: the others are the same.
    let tasks = shape.design().tasks;
    for (index, task) in tasks.iter().enumerate().filter(|(_, task)| task.channel.tile.column == 0) {
        refuted(format!("without {}", task.channel), &|design| {
            design.tasks.remove(index);
        });
        for place in 0..task.descriptors.len() {
            let name = format!("{}, descriptor {place}", task.channel);
            refuted(format!("{name}: elsewhere"), &|design| design.tasks[index].descriptors[place].address += 4);
            refuted(format!("{name}: shorter"), &|design| design.tasks[index].descriptors[place].words -= 1);
            refuted(format!("{name}: waits for two"), &|design| {
                if let Some(acquire) = &mut design.tasks[index].descriptors[place].acquire {
                    acquire.value = -8;
                }
            });
            refuted(format!("{name}: gives nothing"), &|design| {
                design.tasks[index].descriptors[place].release = None;
            });
        }
    }
    for index in 0..4 {
        refuted(format!("constant {index}"), &|design| design.constants[index].words[0] += 1);
    }
}

impl Shape {
    /// Whether a packed design does what this one should.
    fn run_packed(&self, packed: &kiln_aie::pack::Packed) -> Result<(), Fault> {
        let all = u32::from(COLUMNS) * self.units * self.words;
        let streams = [3, 5].map(|seed| (0..all).map(|word| word * seed).collect::<Vec<u32>>());
        let mut machine = Machine::new(u32::from(COLUMNS), Latencies::default());
        for stream in &streams {
            machine.share(HostMemory::of(&stream.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>()));
        }
        machine.share(HostMemory::new(4 * all as usize));
        machine.load_container(&packed.container)?;
        machine.run(&packed.sequence)?;
        let right = machine.host[2].memory.bytes() == Some(self.expected(&streams));
        if right { Ok(()) } else { Err("what came back is wrong".into()) }
    }
}
