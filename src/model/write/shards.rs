//! The file and offset of every tensor of a checkpoint that is being written.

use half::bf16;
use safetensors::Dtype;
use safetensors::tensor::TensorInfo;
use serde_json::{Map, Value, json};

use super::header;
use super::job::Matrices;
use crate::model::architecture::NormWeights;
use crate::model::checkpoint::SCALE_SUFFIX;
use crate::model::format::WeightFormat;
use crate::model::shape::Shape;
use crate::model::tensor::TensorId;
use crate::{Error, Result};

/// Headers are padded with spaces to a multiple of this, so that the first tensor is page-aligned.
pub(super) const HEADER_ALIGN: usize = 4096;

/// The bytes of one tensor of a shard.
pub(super) enum Payload {
    /// The weights of a norm, encoded.
    Vector(Vec<u8>),
    /// The elements of a matrix, and of those that it holds ([`TensorId::holder`]).
    Elements(TensorId),
    /// The scales of a matrix, and of those that it holds.
    Scales(TensorId),
}

/// One tensor of a shard. Its offsets count from the end of the header.
pub(super) struct Item {
    pub(super) name: String,
    pub(super) info: TensorInfo,
    pub(super) payload: Payload,
}

impl Item {
    /// An item at the start of the data. Its length follows from type and dimensions.
    fn new(name: String, dtype: Dtype, shape: Vec<usize>, payload: Payload) -> Item {
        let bytes = shape.iter().product::<usize>() * dtype.bitsize() / 8;
        Item { name, info: TensorInfo { dtype, shape, data_offsets: (0, bytes) }, payload }
    }

    /// Offset in bytes from the end of the header.
    pub(super) fn offset(&self) -> u64 {
        self.info.data_offsets.0 as u64
    }

    pub(super) fn bytes(&self) -> u64 {
        (self.info.data_offsets.1 - self.info.data_offsets.0) as u64
    }
}

/// A file of weights that is written, with its tensors.
pub(super) struct Shard {
    pub(super) name: String,
    pub(super) header: Vec<u8>,
    pub(super) items: Vec<Item>,
    data_bytes: u64,
}

impl Shard {
    pub(super) fn file_bytes(&self) -> u64 {
        self.header.len() as u64 + self.data_bytes
    }
}

/// Places every tensor, in the order of the forward pass. A shard has at most `limit` bytes of data, or a single tensor
/// that is larger, with its scales.
pub(super) fn lay_out(matrices: &Matrices, limit: u64) -> Result<Vec<Shard>> {
    let mut shards: Vec<(Vec<Item>, u64)> = vec![(Vec::new(), 0)];
    for id in TensorId::all(matrices.shape) {
        let holder = id.holder();
        if holder != id {
            let [format, of_holder] = [id, holder].map(|id| matrices.format(id));
            if format != of_holder {
                let [a, b] = [of_holder, format].map(|format| format.name().to_uppercase());
                let cause = format!("the two halves of {} are {a} and {b}, which no model directory has", id.name());
                return Err(Error::input(cause, "use a BF16 file"));
            }
            continue;
        }
        let items = match id.is_vector() {
            true => vec![vector_item(id, &stored_vector(matrices, id)?)],
            false => matrix_items(id, matrices.shape, matrices.format(id)),
        };
        let bytes: u64 = items.iter().map(Item::bytes).sum();
        if shards.last().is_none_or(|(items, used)| !items.is_empty() && used + bytes > limit) {
            shards.push((Vec::new(), 0));
        }
        let Some((list, used)) = shards.last_mut() else { continue };
        for mut item in items {
            let bytes = item.bytes();
            item.info.data_offsets = (*used as usize, (*used + bytes) as usize);
            *used += bytes;
            list.push(item);
        }
    }
    let count = shards.len();
    let name = |i: usize| match count {
        1 => "model.safetensors".to_owned(),
        _ => format!("model-{:05}-of-{count:05}.safetensors", i + 1),
    };
    let shard = |(i, (items, data_bytes)): (usize, (Vec<Item>, u64))| {
        let tensors = items.iter().map(|item| (item.name.clone(), item.info.clone())).collect();
        let metadata = [("format".to_owned(), "pt".to_owned())].into();
        let header = header::encode(tensors, Some(metadata), HEADER_ALIGN)?;
        Ok(Shard { name: name(i), header, items, data_bytes })
    };
    shards.into_iter().enumerate().map(shard).collect()
}

/// A vector as files of the shape's family have it.
fn stored_vector(matrices: &Matrices, id: TensorId) -> Result<Vec<f32>> {
    let mut values = matrices.source.vector(id)?;
    if id.is_norm() && matrices.shape.architecture.norms == NormWeights::OneAdded {
        values.iter_mut().for_each(|w| *w += 1.0);
    }
    Ok(values)
}

/// A norm, as BF16 if that is exact, else as F32.
fn vector_item(id: TensorId, values: &[f32]) -> Item {
    let exact = values.iter().all(|w| bf16::from_f32(*w).to_f32() == *w);
    let (dtype, encoded): (_, Vec<u8>) = if exact {
        (Dtype::BF16, values.iter().flat_map(|w| bf16::from_f32(*w).to_le_bytes()).collect())
    } else {
        (Dtype::F32, values.iter().flat_map(|w| w.to_le_bytes()).collect())
    };
    Item::new(id.name(), dtype, vec![values.len()], Payload::Vector(encoded))
}

/// The elements of a matrix and of those that it holds, and the scales if the format has them.
fn matrix_items(id: TensorId, shape: &Shape, format: WeightFormat) -> Vec<Item> {
    let [rows, cols] = id.file_rows(shape);
    let elements = id.file_dims(shape, format.file_shape(rows, cols));
    let mut items = vec![Item::new(id.name(), format.file_dtype(), elements, Payload::Elements(id))];
    if let Some((dtype, scales)) = format.file_scales(rows, cols) {
        let scales = id.file_dims(shape, scales);
        items.push(Item::new(format!("{}{SCALE_SUFFIX}", id.name()), dtype, scales, Payload::Scales(id)));
    }
    items
}

/// The index file of several shards, in transformers' format.
pub(super) fn index_json(shards: &[Shard]) -> String {
    let map: Map<String, Value> =
        shards.iter().flat_map(|s| s.items.iter().map(|i| (i.name.clone(), json!(s.name)))).collect();
    let total: u64 = shards.iter().map(|s| s.data_bytes).sum();
    format!("{:#}\n", json!({"metadata": {"total_size": total}, "weight_map": map}))
}
