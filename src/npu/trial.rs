//! Whether the NPU computes: programs run on numbers whose results are exact, and every value is compared.

use super::{BufferId, Context, Program, programs};
use crate::sys::dma_buf::DmaBuf;
use crate::{Error, Result};
use half::bf16;
use std::time::Duration;

/// A program, and how its results are known.
#[derive(Debug, Clone, Copy)]
pub struct Trial {
    /// What it computes, for a reader.
    pub what: &'static str,
    /// The program. It takes two buffers of bf16 and gives a third.
    pub program: &'static Program,
    /// The least and the most integer of its inputs.
    range: (i32, i32),
    /// Its result, from inputs of integers.
    expect: fn(&[f32], &[f32]) -> Vec<u8>,
}

/// c = a + b: 4,096 bf16, each sum an integer of 8 bits, which bf16 holds exactly. 24 KB are moved.
pub const VECTOR_ADD: Trial = Trial {
    what: "vector add of 4,096 bf16 on four columns",
    program: &programs::VECTOR_ADD_BF16,
    range: (-128, 127),
    expect: |a, b| a.iter().zip(b).flat_map(|(a, b)| bf16::from_f32(a + b).to_le_bytes()).collect(),
};

/// C = A B: A of 64 x 128 bf16, B of 128 x 64 bf16, C of 64 x 64 f32; 524,288 products, each sum below 2^24, which f32
/// holds exactly in any order of summation. 48 KB are moved.
pub const PRODUCT: Trial = Trial {
    what: "bf16 block product of 64 x 128 by 128 x 64 on one core",
    program: &programs::MATMUL_BF16,
    range: (-255, 255),
    expect: |a, b| {
        let element = |i: usize, j: usize| (0..128).map(|k| a[128 * i + k] * b[64 * k + j]).sum::<f32>();
        (0..64 * 64).flat_map(|at| element(at / 64, at % 64).to_le_bytes()).collect()
    },
};

/// Runs of a trial on the same buffers: a second one shows that locks and descriptors are as they were.
const RUNS: u32 = 3;

impl Trial {
    /// Runs the program on its own buffers, or on the dma-bufs `shared`, three times with other numbers. Returns the
    /// shortest time of a run.
    ///
    /// # Errors
    /// Device: a result is wrong. Otherwise as [`Context::run`], [`Context::allocate`] and [`Context::import`].
    pub fn run(&self, context: &mut Context<'_>, shared: Option<&[DmaBuf; 3]>, deadline: Duration) -> Result<Duration> {
        let mut buffers: Vec<BufferId> = Vec::new();
        for (i, argument) in self.program.arguments.iter().enumerate() {
            buffers.push(match shared {
                Some(shared) => context.import(&shared[i])?,
                None => context.allocate(argument.bytes)?,
            });
        }
        let mut shortest = Duration::MAX;
        for round in 0..RUNS {
            shortest = shortest.min(self.run_once(context, &buffers, round, deadline)?);
        }
        Ok(shortest)
    }

    fn run_once(
        &self,
        context: &mut Context<'_>,
        buffers: &[BufferId],
        round: u32,
        deadline: Duration,
    ) -> Result<Duration> {
        let [a, b] = [0, 1].map(|i| self.numbers(i, 2 * round + i as u32));
        for (values, buffer) in [&a, &b].into_iter().zip(buffers) {
            let bytes: Vec<u8> = values.iter().flat_map(|&v| bf16::from_f32(v).to_le_bytes()).collect();
            context.write(*buffer, &bytes)?;
        }
        let expected = (self.expect)(&a, &b);
        let mut found = vec![0xff; expected.len()]; // no number: what is not written shows
        context.write(buffers[2], &found)?;
        let took = context.run(buffers, deadline)?;
        context.read(buffers[2], &mut found)?;
        match expected.chunks(4).zip(found.chunks(4)).filter(|(e, f)| e != f).count() {
            0 => Ok(took),
            wrong => Err(Error::device(
                format!("{wrong} of {} words of the NPU's {} are wrong", expected.len() / 4, self.what),
                "do not use this NPU: look for newer firmware, a BIOS update or a newer kernel, and report this",
            )),
        }
    }

    /// Integers for an argument, in a mixed order that follows from `seed`.
    fn numbers(&self, argument: usize, seed: u32) -> Vec<f32> {
        let (least, most) = self.range;
        let count = self.program.arguments[argument].bytes / 2;
        let mut state = seed.wrapping_mul(0x9e37_79b9) | 1;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            least + ((state >> 16) % (most - least + 1) as u32) as i32
        };
        (0..count).map(|_| next() as f32).collect()
    }
}
