//! Synthetic checkpoints at full size, for tests and benchmarks that need only a model's size.
//!
//! A row depends only on the seed, the tensor and the row's index (a counter run through SplitMix64's mixer). The
//! result is therefore the same with any number of threads. Elements of a row have a standard deviation of about `1 /
//! sqrt(cols)`, which keeps activations near one.

use std::ops::Range;
use std::path::Path;

use half::bf16;

use crate::model::config::limit;
use crate::model::format::WeightFormat;
use crate::model::shape::Shape;
use crate::model::tensor::{Role, TensorId};
use crate::model::write::{self, RowSource, WriteMonitor, WriteSummary};
use crate::{Error, Result};

/// Format that rows are forged in. Other formats are encoded from it.
const FORGED: WeightFormat = WeightFormat::Int8;
/// Roles that the layers of every family have: the first ones.
const EVERY_LAYERS: u64 = Role::LayerScalar as u64;
/// Standard deviation of a whole number drawn uniformly from -127 to 127.
const UNIFORM_DEVIATION: f32 = 73.3;
/// Largest absolute value of a forged norm weight (RMSNorm multiplies by 1 + w).
const NORM_SPREAD: f32 = 0.1;

/// Writes a synthetic checkpoint of `shape` to the new directory `dst`.
///
/// # Errors
/// [`crate::Error::Input`]: `dst` exists. [`crate::Error::Failed`]: there is not enough space (with the sum), or a
/// write fails. [`crate::Error::Interrupted`]: the write was cancelled. After an error nothing is left behind.
pub fn forge(
    shape: &Shape,
    dst: &Path,
    format: WeightFormat,
    seed: u64,
    monitor: &WriteMonitor,
) -> Result<WriteSummary> {
    write::write_checkpoint(dst, shape, format, &Forge { shape, seed }, &[], monitor)
}

/// Generates the rows of one model.
struct Forge<'a> {
    shape: &'a Shape,
    seed: u64,
}

impl Forge<'_> {
    /// The random numbers of one row of a tensor.
    fn stream(&self, id: TensorId, row: usize) -> RandomWords {
        let tensor = match id {
            TensorId::Embedding => 0,
            TensorId::Head => 1,
            TensorId::FinalNorm => 2,
            TensorId::PreProjection => u64::MAX / 2,
            TensorId::PostProjection => u64::MAX / 2 + 1,
            TensorId::Layer(layer, role) => match (role as u64).checked_sub(EVERY_LAYERS) {
                None => 3 + layer as u64 * EVERY_LAYERS + role as u64,
                // Numbers of their own, so that a model without such tensors has the others' rows.
                Some(other) => u64::MAX - (other * limit::LAYERS as u64 + layer as u64),
            },
        };
        RandomWords { start: mix(mix(mix(self.seed) ^ tensor) ^ row as u64) }
    }

    /// A row's scale: 0.5 to 1.5 times the mean scale.
    fn scale(&self, stream: &RandomWords, cols: usize) -> f32 {
        let spread = 0.5 + (stream.word(u64::MAX) >> 40) as f32 / (1 << 24) as f32;
        spread / (UNIFORM_DEVIATION * (cols as f32).sqrt())
    }
}

impl RowSource for Forge<'_> {
    fn vector(&self, id: TensorId) -> Result<Vec<f32>> {
        let [_, len] = id.dims(self.shape);
        let mut q = vec![0u8; len];
        self.stream(id, 0).fill(&mut q);
        // Norms' weights lie near 0, since RMSNorm adds 1; the factors of layers and of experts near 1.
        let middle = if id.is_norm() { 0.0 } else { 1.0 };
        Ok(q.iter().map(|&q| bf16::from_f32(middle + f32::from(q as i8) * (NORM_SPREAD / 127.0)).to_f32()).collect())
    }

    fn rows(
        &self,
        id: TensorId,
        rows: Range<usize>,
        format: WeightFormat,
        data: &mut [u8],
        scales: &mut [u8],
    ) -> Result<()> {
        let [_, cols] = id.dims(self.shape);
        let (scale_bytes, mut q, mut decoded) = (format.scale_bytes(cols), vec![0u8; cols], vec![0f32; cols]);
        for (i, out) in data.chunks_exact_mut(format.row_bytes(cols)).enumerate() {
            let stream = self.stream(id, rows.start + i);
            stream.fill(&mut q);
            let scale = self.scale(&stream, cols).to_le_bytes();
            let scales = &mut scales[i * scale_bytes..(i + 1) * scale_bytes];
            let put = if format == FORGED {
                format.copy_row(&q, &scale, out, scales)
            } else {
                FORGED.decode_row(&q, &scale, &mut decoded);
                format.encode_row(&decoded, out, scales)
            };
            put.map_err(|what| Error::failed(format!("a forged row holds {what}"), "report this"))?;
        }
        Ok(())
    }
}

/// A sequence of random words with random access.
struct RandomWords {
    start: u64,
}

impl RandomWords {
    fn word(&self, index: u64) -> u64 {
        mix(self.start.wrapping_add(index.wrapping_mul(0x9E37_79B9_7F4A_7C15)))
    }

    /// Fills `out` with i8 values from -127 to 127.
    fn fill(&self, out: &mut [u8]) {
        // -128 becomes 0, so 0 is twice as likely as each other value.
        let keep = |b: u8| if b == 0x80 { 0 } else { b };
        let mut index = 0;
        let mut words = out.chunks_exact_mut(8);
        for chunk in &mut words {
            chunk.copy_from_slice(&self.word(index).to_le_bytes().map(keep));
            index += 1;
        }
        let rest = words.into_remainder();
        let last = self.word(index).to_le_bytes().map(keep);
        let len = rest.len();
        rest.copy_from_slice(&last[..len]);
    }
}

/// SplitMix64's output function (Steele, Lea, Flood 2014).
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
