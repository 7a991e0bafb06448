//! The reference executor: interprets the schedule on the CPU in plain f32, KV included. Other executors are compared
//! with it, so each step reads like its formula.

pub(crate) mod choice;
mod ops;

pub(crate) use self::ops::route;
use crate::Result;
use crate::executor::host::{HostExecutor, PassKernels, StepKernels, StepState};
use crate::executor::weights::{self, Progress};
use crate::executor::zeroed::{Zeroed, zeroed};
use crate::executor::{PageId, Tolerance};
use crate::model::checkpoint::Checkpoint;
use crate::schedule::kv::{KvLayout, Pool};
use crate::schedule::layout::WeightLayout;
use crate::schedule::step::{Matrix, Op, Vector, WeightBuffer};
use crate::schedule::{Schedule, Step};
use std::collections::HashSet;

/// Weight buffers in system memory, laid out as on a device.
pub(crate) struct Weights {
    /// The memory of each weight buffer, as u64, so that every tensor is aligned.
    buffers: Vec<Zeroed<u64>>,
    layout: WeightLayout,
}

impl Weights {
    fn bytes(&self, buffer: WeightBuffer) -> &[u8] {
        bytemuck::cast_slice(&self.buffers[self.layout.index(buffer)])
    }

    /// The weights of a norm, as they are stored.
    pub(crate) fn vector(&self, v: Vector) -> &[f32] {
        let b = self.bytes(v.buffer);
        bytemuck::cast_slice(&b[v.offset as usize..v.offset as usize + 4 * v.len])
    }

    /// Row `r` of a matrix, decoded into `out`, `[cols]`.
    pub(crate) fn row(&self, m: Matrix, r: usize, out: &mut [f32]) {
        let b = self.bytes(m.buffer);
        let stride = m.format.row_bytes(m.cols);
        let at = m.offset as usize + r * stride;
        let scale_bytes = m.format.scale_bytes(m.cols);
        let scales = &b[m.scales as usize + r * scale_bytes..][..scale_bytes];
        m.format.decode_row(&b[at..at + stride], scales, out);
    }
}

/// The executor that computes each step by its formula, with which the others are compared.
pub type Reference = HostExecutor<Formulas>;

/// Computes each step in f32 as its formula reads. The other executors are compared with it.
pub struct Formulas {
    weights: Weights,
    /// The pages of the KV cache, for each pool.
    kv: [Zeroed<f32>; 2],
    layout: KvLayout,
    device: String,
}

impl Reference {
    /// Loads the checkpoint's weights into system memory and allocates the arena and the KV cache.
    ///
    /// # Errors
    /// Input: a tensor cannot be read. Refused: not enough memory. Interrupted: it was cancelled.
    pub fn load(checkpoint: &Checkpoint, schedule: Schedule, progress: &Progress) -> Result<Reference> {
        let steps = Formulas::load(checkpoint, &schedule, &schedule.steps, progress)?;
        HostExecutor::new(schedule, steps, progress.cancel.clone())
    }
}

impl Formulas {
    /// Loads the weights of some of the schedule's steps, and allocates the KV cache.
    ///
    /// # Errors
    /// As [`Reference::load`].
    pub(crate) fn load(
        checkpoint: &Checkpoint,
        schedule: &Schedule,
        of: &[Step],
        progress: &Progress,
    ) -> Result<Formulas> {
        let used: HashSet<WeightBuffer> =
            of.iter().flat_map(|step| step.op.weights()).map(|(buffer, _)| buffer).collect();
        let mut buffers = Vec::with_capacity(schedule.weights.buffers.len());
        for layout in &schedule.weights.buffers {
            let is_used = used.contains(&layout.buffer);
            let mut buffer = zeroed(if is_used { layout.bytes.div_ceil(8) as usize } else { 0 }, "weights")?;
            if is_used {
                weights::fill(checkpoint, layout, bytemuck::cast_slice_mut(&mut buffer), progress)?;
            }
            buffers.push(buffer);
        }
        let pool = |pool| {
            let layout = schedule.kv.pool(pool);
            zeroed(layout.pages * (layout.page_bytes / 4) as usize, "KV cache")
        };
        let kv = [pool(Pool::Global)?, pool(Pool::Local)?];
        let threads = rayon::current_num_threads();
        let device = format!("CPU reference, {threads} thread{}", if threads == 1 { "" } else { "s" });
        let weights = Weights { buffers, layout: schedule.weights.clone() };
        Ok(Formulas { weights, kv, layout: schedule.kv, device })
    }
}

impl StepKernels for Formulas {
    fn device(&self) -> &str {
        &self.device
    }

    fn run(&mut self, op: &Op, state: &StepState, arena: &mut [f32]) -> Result<()> {
        ops::run(op, state, &self.weights, arena, &mut self.kv);
        Ok(())
    }

    fn tolerance(&self, _: &Op) -> Tolerance {
        Tolerance::F32
    }
}

impl PassKernels for Formulas {
    fn page(&mut self, pool: Pool, page: PageId) -> &mut [u8] {
        let bytes = self.layout.pool(pool).page_bytes as usize;
        &mut bytemuck::cast_slice_mut(&mut self.kv[pool as usize])[page as usize * bytes..][..bytes]
    }

    fn weights(&self, buffer: usize) -> Vec<&[u64]> {
        vec![&self.weights.buffers[buffer]]
    }

    fn read(words: &[u64]) -> f32 {
        words.iter().fold(0, |all, word| all | word) as f32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::executor::{Executor, ExecutorExt, HeadRows, Row};
    use crate::model::{Role, TensorId, WeightFormat};
    use crate::schedule::{Extent, KvType};
    use std::path::Path;

    #[test]
    fn of_equal_scores_the_lower_expert_is_chosen() {
        let (experts, gains) = route(&[-0.0, 2.0, 0.0, 2.0], 1.0, &[1.0, 1.0, 0.5, 2.0], 3);
        assert_eq!(experts, [1, 3, 0]);
        assert_eq!(gains[1], 2.0 * gains[0]);
        assert!((gains[0] + gains[1] / 2.0 + gains[2] - 1.0).abs() < 1e-6);
    }

    /// Mixed weight formats compute nearly the same logits as one format.
    #[test]
    fn formats_may_be_mixed() {
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/tiny");
        let checkpoint = Checkpoint::open(&golden).unwrap();
        let logits = |formats: &dyn Fn(TensorId) -> WeightFormat| {
            let extent =
                Extent { context: 16, max_rows: 4, head_rows: 1, sequences: 1, kv: KvType::F32, kv_tokens: None };
            let schedule = Schedule::build(checkpoint.shape(), extent, formats);
            let mut reference = Reference::load(&checkpoint, schedule, &Progress::default()).unwrap();
            let rows: Vec<Row> = (0..4).map(|i| Row { token: 2 + 7 * i, position: i, sequence: 0 }).collect();
            reference.forward(&rows, Some(HeadRows { first: 3, count: 1 })).unwrap();
            reference.logits(0).unwrap().to_vec()
        };
        let bf16 = logits(&|_| WeightFormat::Bf16);
        let mixed = logits(&|id| match id {
            TensorId::Layer(_, Role::Down) | TensorId::Layer(1, _) => WeightFormat::Int8,
            _ => WeightFormat::Bf16,
        });
        let square = |x: &mut dyn Iterator<Item = f32>| x.map(|x| x * x).sum::<f32>();
        let error = square(&mut bf16.iter().zip(&mixed).map(|(a, b)| a - b)) / square(&mut bf16.iter().copied());
        assert!(error > 0.0 && error.sqrt() < 0.05, "{}", error.sqrt());
    }
}
