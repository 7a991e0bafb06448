//! Packed programs, and what they are to compute.

use kiln_aie::isa::Isa;
use kiln_aie::pack::{Design, Packed};
use kiln_aie::{assemble_all, designs};

use crate::machine::{Fault, HostMemory, Latencies, Machine, narrow, widen};
use crate::npu::reads::{CHANNELS, ReadLayout, UNIT_BYTES};

/// A program, and rounds of inputs with the output that they give.
pub struct Program {
    pub design: Design,
    pub rounds: [Round; 3],
}

pub struct Round {
    pub inputs: [Vec<u8>; 2],
    pub output: Vec<u8>,
}

/// Numbers that are the same each time.
pub struct Random(pub u64);

impl Random {
    /// Uniform in 0..`bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        // Multiplier and increment of Knuth's MMIX; the low bits are poor.
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    /// A bf16 of either sign and of magnitude from 2^-8 to below 2^8.
    pub fn bf16(&mut self) -> u16 {
        (self.below(2) << 15 | (self.below(16) + 119) << 7 | self.below(128)) as u16
    }

    /// A bf16 of a normal-like distribution.
    pub fn normal(&mut self, scale: f32) -> u16 {
        let sum: u64 = (0..6).map(|_| self.below(1 << 16)).sum();
        narrow((sum as f32 / 65536.0 - 3.0) * scale)
    }
}

pub fn to_bytes(values: &[u16]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// c = a + b of random values, each sum rounded to f32 and then to bf16.
pub fn vector_add(seed: u64) -> Program {
    let mut random = Random(seed);
    let rounds = [0, 1, 2].map(|_| {
        let [a, b]: [Vec<u16>; 2] = [0, 1].map(|_| (0..4096).map(|_| random.bf16()).collect());
        let sums = a.iter().zip(&b).map(|(a, b)| narrow((f64::from(widen(*a)) + f64::from(widen(*b))) as f32));
        Round { output: to_bytes(&sums.collect::<Vec<u16>>()), inputs: [to_bytes(&a), to_bytes(&b)] }
    });
    Program { design: designs::vector_add_bf16::design(), rounds }
}

/// C = A B of small whole numbers, whose sums are exact in f32 in any order.
pub fn matmul(seed: u64) -> Program {
    let mut random = Random(seed);
    let rounds = [0, 1, 2].map(|_| {
        let [a, b]: [Vec<i32>; 2] = [0, 1].map(|_| (0..64 * 128).map(|_| random.below(17) as i32 - 8).collect());
        let sums = (0..64 * 64).map(|index| {
            let (row, column) = (index / 64, index % 64);
            (0..128).map(|k| a[128 * row + k] * b[64 * k + column]).sum::<i32>()
        });
        let output = sums.flat_map(|sum| (sum as f32).to_le_bytes()).collect();
        let bf16 = |values: &[i32]| to_bytes(&values.iter().map(|value| narrow(*value as f32)).collect::<Vec<_>>());
        Round { inputs: [bf16(&a), bf16(&b)], output }
    });
    Program { design: designs::matmul_bf16::design(), rounds }
}

/// A unit through each channel of each column, of words at random.
pub fn read_sum(seed: u64) -> Program {
    let mut random = Random(seed);
    let layout = ReadLayout::new(CHANNELS, CHANNELS * UNIT_BYTES, 1).unwrap_or_else(|error| panic!("{error}"));
    let rounds = [0, 1, 2].map(|_| {
        // The design's own run has the two units of a column behind each other.
        let units: Vec<Vec<u8>> = (0..CHANNELS)
            .map(|_| {
                (0..UNIT_BYTES / 4).flat_map(|_| (random.below(1 << 31) as u32).wrapping_mul(3).to_le_bytes()).collect()
            })
            .collect();
        let by_column = (0..CHANNELS).flat_map(|index| units[index % 2 * 4 + index / 2].clone()).collect();
        Round { output: layout.sums(&units.concat()), inputs: [layout.headers(), by_column] }
    });
    Program { design: designs::read_sum::design(), rounds }
}

/// A kernel's program memory, by an instruction table.
pub fn code(isa: &Isa, kernel: &str) -> Option<Vec<u8>> {
    let (_, sources) = designs::KERNELS.iter().find(|(name, _)| *name == kernel)?;
    let read = |source: &&str| {
        let path = format!("{}/kernels/{source}.s", env!("CARGO_MANIFEST_DIR"));
        Some((source.to_string(), std::fs::read_to_string(path).ok()?))
    };
    let sources: Vec<(String, String)> = sources.iter().map(read).collect::<Option<_>>()?;
    assemble_all(isa, kernel, &sources).ok().map(|program| program.code)
}

impl Program {
    pub fn pack(&self) -> Packed {
        let isa = Isa::aie2();
        self.design.pack(|kernel| code(&isa, kernel)).unwrap_or_else(|error| panic!("{error}"))
    }

    /// What is wrong with a program, if anything.
    pub fn refute(&self, container: &[u8], sequence: &[u8]) -> Result<(), Fault> {
        let mut machine = self.machine();
        machine.load_container(container)?;
        self.exercise(&mut machine, sequence)
    }

    /// An array, and a host with the buffers of two rounds.
    pub fn machine(&self) -> Machine {
        let mut machine = Machine::new(u32::from(self.design.columns), Latencies::default());
        (0..6).for_each(|_| machine.share(HostMemory::new(0)));
        machine
    }

    /// One round by the stream, and then two at once with slow cores and a slow host: the second's inputs come while the
    /// first is at work, and its outputs while those of the first are waited for, so that only locks keep them apart.
    pub fn exercise(&self, machine: &mut Machine, sequence: &[u8]) -> Result<(), Fault> {
        let [first, rest @ ..] = &self.rounds;
        run_rounds(machine, sequence, &[first]).map_err(|fault| format!("one round: {fault}"))?;
        let rest: Vec<&Round> = rest.iter().collect();
        (machine.core_period, machine.host_period) = (2, 8);
        run_rounds(machine, &self.two_rounds(), &rest).map_err(|fault| format!("two rounds: {fault}"))
    }

    /// The stream of two rounds: arguments 0 to 2 are the first's, 3 to 5 the second's.
    fn two_rounds(&self) -> Vec<u8> {
        let mut design = self.design.clone();
        design.arguments.extend(self.design.arguments.clone());
        design.transfers.extend(self.design.transfers.iter().map(|transfer| {
            let mut transfer = transfer.clone();
            transfer.argument += 3;
            transfer
        }));
        design.pack(|_| Some(vec![0; 16])).unwrap_or_else(|error| panic!("{error}")).sequence
    }
}

fn run_rounds(machine: &mut Machine, sequence: &[u8], rounds: &[&Round]) -> Result<(), Fault> {
    for (round, buffers) in rounds.iter().zip(machine.host.chunks_mut(3)) {
        buffers[0].memory = HostMemory::of(&round.inputs[0]);
        buffers[1].memory = HostMemory::of(&round.inputs[1]);
        buffers[2].memory = HostMemory::new(round.output.len());
    }
    machine.run(sequence)?;
    for (index, round) in rounds.iter().enumerate() {
        if machine.host[3 * index + 2].memory.bytes().as_ref() != Some(&round.output) {
            return Err(format!("the output of round {index} is wrong"));
        }
    }
    Ok(())
}
