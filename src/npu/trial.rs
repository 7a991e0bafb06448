//! Verifies that the NPU computes correctly: runs programs on inputs with known results, and compares every value.

use super::context::MOST_RUNNING;
use super::{BufferId, CommandId, LoadedProgram, Program, programs};
use crate::sys::dma_buf::DmaBuf;
use crate::{Error, Result};
use half::bf16;
use std::time::{Duration, Instant};

/// A program with the computation of its expected results.
#[derive(Debug, Clone, Copy)]
pub struct ProgramTrial {
    /// The computation, as a reader is told it.
    pub what: &'static str,
    /// The program, with two input buffers of bf16 and one output buffer.
    pub program: &'static Program,
    /// The largest integer of its inputs: with integers every result is exact.
    largest: i32,
    /// For other inputs, the largest deviation of a value from the exact one, relative to the sum of magnitudes.
    tolerance: f64,
    /// Computes the expected values from the two inputs.
    expect: fn(&[f32], &[f32]) -> Vec<Expected>,
    /// Decodes the bytes of the result to numbers.
    decode: fn(&[u8]) -> Vec<f64>,
}

/// An expected value, and the sum of its terms' magnitudes.
type Expected = (f64, f64);

/// c = a + b: 4,096 bf16. Sums are rounded to the nearest bf16, which is exact for integers of 8 bits. 24 KB are moved.
pub const VECTOR_ADD: ProgramTrial = ProgramTrial {
    what: "vector add of 4,096 bf16 on four columns",
    program: &programs::VECTOR_ADD_BF16,
    largest: 127,
    tolerance: 0.0,
    expect: |a, b| a.iter().zip(b).map(|(a, b)| (bf16::from_f32(a + b).to_f64(), 0.0)).collect(),
    decode: |bytes| bytes.chunks_exact(2).map(|v| bf16::from_le_bytes([v[0], v[1]]).to_f64()).collect(),
};

/// C = A B: A of 64 x 128 bf16, B of 128 x 64 bf16, C of 64 x 64 f32; 524,288 products. Sums of integers are below
/// 2^24, which f32 holds exactly in any order. For other inputs, each of 16 steps of a sum rounds once, by at most half
/// a unit in the last place of the partial sum. 48 KB are moved.
pub const PRODUCT: ProgramTrial = ProgramTrial {
    what: "bf16 block product of 64 x 128 by 128 x 64 on one core",
    program: &programs::MATMUL_BF16,
    largest: 255,
    tolerance: 16.0 / (1u32 << 24) as f64,
    expect: |a, b| {
        let product = |i: usize, j: usize, k: usize| f64::from(a[128 * i + k]) * f64::from(b[64 * k + j]);
        let element =
            |i, j| (0..128).map(|k| product(i, j, k)).fold((0.0, 0.0), |(sum, most), p| (sum + p, most + f64::abs(p)));
        (0..64 * 64).map(|at| element(at / 64, at % 64)).collect()
    },
    decode: |bytes| bytes.chunks_exact(4).map(|v| f32::from_le_bytes([v[0], v[1], v[2], v[3]]).into()).collect(),
};

/// Runs of a trial on the same buffers: a second run shows that locks and descriptors were restored.
const RUNS: u32 = 3;

impl ProgramTrial {
    /// Allocates the context's own buffers for the program.
    ///
    /// # Errors
    /// As [`LoadedProgram::allocate`].
    pub fn allocate(&self, context: &mut LoadedProgram<'_>) -> Result<Vec<BufferId>> {
        self.program.arguments.iter().map(|&bytes| context.allocate(bytes)).collect()
    }

    /// Imports dma-bufs as buffers for the program.
    ///
    /// # Errors
    /// As [`LoadedProgram::import`].
    pub fn import(&self, context: &mut LoadedProgram<'_>, shared: &[DmaBuf; 3]) -> Result<Vec<BufferId>> {
        shared.iter().map(|shared| context.import(shared)).collect()
    }

    /// Runs the program three times on `buffers`: twice on integers, then on other numbers. Returns the shortest time
    /// of a run.
    ///
    /// # Errors
    /// Device: a result is wrong. Otherwise as [`LoadedProgram::run`].
    pub fn run(&self, context: &mut LoadedProgram<'_>, buffers: &[BufferId], deadline: Duration) -> Result<Duration> {
        let mut shortest = Duration::MAX;
        for round in 0..RUNS {
            shortest = shortest.min(self.run_once(context, buffers, round, deadline)?);
        }
        Ok(shortest)
    }

    fn run_once(
        &self,
        context: &mut LoadedProgram<'_>,
        buffers: &[BufferId],
        round: u32,
        deadline: Duration,
    ) -> Result<Duration> {
        let with_integers = round + 1 < RUNS;
        let [a, b] = [0, 1].map(|i| self.numbers(i, 2 * round + i as u32, with_integers));
        for (values, buffer) in [&a, &b].into_iter().zip(buffers) {
            let bytes: Vec<u8> = values.iter().flat_map(|&v| bf16::from_f32(v).to_le_bytes()).collect();
            context.write(*buffer, &bytes)?;
        }
        let expected = (self.expect)(&a, &b);
        let mut found = vec![0xff; self.program.arguments[2] as usize]; // NaN, for values that are not written
        context.write(buffers[2], &found)?;
        let took = context.run(buffers, deadline)?;
        context.read(buffers[2], &mut found)?;
        let tolerance = if with_integers { 0.0 } else { self.tolerance };
        // A comparison with NaN is false.
        let is_within = |value: f64, most: f64, found: f64| (found - value).abs() <= tolerance * most;
        let values = expected.iter().zip((self.decode)(&found));
        match values.filter(|((value, most), found)| !is_within(*value, *most, *found)).count() {
            0 => Ok(took),
            wrong => Err(Error::device(
                format!("{wrong} of {} values of the NPU's {} are wrong", expected.len(), self.what),
                "do not use this NPU: look for newer firmware, a BIOS update or a newer kernel, and report this",
            )),
        }
    }

    /// bf16 inputs of an argument, in an order that depends on `seed`: integers, or values of many magnitudes.
    fn numbers(&self, argument: usize, seed: u32, with_integers: bool) -> Vec<f32> {
        let count = self.program.arguments[argument] / 2;
        let mut state = seed.wrapping_mul(0x9e37_79b9) | 1;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state >> 16
        };
        let mut number = || match with_integers {
            true => ((next() % (2 * self.largest as u32 + 1)) as i32 - self.largest) as f32,
            false => bf16::from_f32((next() as f32 - 32767.5) * 2f32.powi((next() % 16) as i32 - 20)).to_f32(),
        };
        (0..count).map(|_| number()).collect()
    }
}

/// Number of timings of commands; the fastest counts.
const ROUNDS: usize = 16;

/// Times of commands with almost no computation, from the start until the host knows of the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommandTimes {
    /// Time of one command that runs with no other in flight.
    pub alone: Duration,
    /// Per command, with as many in flight as possible.
    pub together: Duration,
}

impl CommandTimes {
    /// Times a program's own stream on `buffers`.
    ///
    /// # Errors
    /// As [`LoadedProgram::start`] and [`LoadedProgram::wait`].
    pub fn measure(context: &mut LoadedProgram<'_>, buffers: &[BufferId], deadline: Duration) -> Result<CommandTimes> {
        let stream = context.program().sequence;
        let arguments: Vec<(BufferId, u64)> = buffers.iter().map(|buffer| (*buffer, 0)).collect();
        let mut commands: Vec<CommandId> = Vec::with_capacity(MOST_RUNNING);
        for _ in 0..MOST_RUNNING {
            let command = context.add_command(stream.len())?;
            context.set_stream(command, stream)?;
            commands.push(command);
        }
        let mut fastest = |commands: &[CommandId]| {
            let mut fastest = Duration::MAX;
            for _ in 0..ROUNDS {
                let start = Instant::now();
                for command in commands {
                    context.start(*command, &arguments)?;
                }
                for command in commands {
                    context.wait(*command, deadline, deadline)?;
                }
                fastest = fastest.min(start.elapsed());
            }
            Ok::<_, Error>(fastest / commands.len() as u32)
        };
        Ok(CommandTimes { alone: fastest(&commands[..1])?, together: fastest(&commands)? })
    }
}
