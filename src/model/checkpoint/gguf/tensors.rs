//! Finds each tensor of a shape in GGUF files and checks its dimensions and type.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::header::{REMEDY, TensorInfo};
use super::types::{BF16, F16, F32, GgmlType};
use super::{GgufFile, REMEDY_TYPES, metadata};
use crate::display::quote;
use crate::model::blocks::BlockFormat;
use crate::model::checkpoint::encoding::{ByteRange, Encoding};
use crate::model::checkpoint::index::StoredTensor;
use crate::model::checkpoint::keys::parse_index;
use crate::model::format::WeightFormat;
use crate::model::shape::Shape;
use crate::model::tensor::{Role, TensorId};
use crate::{Error, Result};

/// Prefixes of tensor names outside of the text model: the vision tower's.
const OTHERS: [&str; 2] = ["v.", "mm."];
/// A part of the names of a drafter's centroids: its whole table is used in their place.
const CENTROIDS: &str = "centroid";
/// The name within a layer of a tensor that has of each expert the gate projection's rows, then the up projection's.
const MERGED: &str = "ffn_gate_up_exps.weight";

/// Finds and checks every tensor of `shape`.
///
/// # Errors
/// [`Error::Input`] with the tensor: it is missing or doubled, has other dimensions or an unsupported type, or is not
/// one of the family's.
pub(super) fn find_tensors(shape: &Shape, files: &[GgufFile]) -> Result<HashMap<TensorId, StoredTensor>> {
    let mut tensors = HashMap::new();
    for (file, GgufFile { label, header, .. }) in files.iter().enumerate() {
        for tensor in &header.tensors {
            let wrong = |what: &str, remedy: &str| {
                Error::input(format!("{label}: tensor {} {what}", quote(&tensor.name)), remedy)
            };
            let is_known = |id: &TensorId| match id {
                TensorId::Layer(_, Role::LayerScalar) => shape.scales_layers,
                TensorId::PreProjection | TensorId::PostProjection => shape.backbone.is_some(),
                TensorId::Layer(_, Role::K | Role::V | Role::KNorm) => shape.backbone.is_none(),
                TensorId::Layer(_, role) => shape.experts.is_some() || !role.is_of_experts(),
                _ => true,
            };
            let merged = identify_merged(&tensor.name).filter(|ids| ids.iter().all(is_known));
            let single = || identify(&tensor.name).filter(is_known).map(|id| vec![id]);
            let Some(ids) = merged.map(Vec::from).or_else(single) else {
                let has_freqs = shape.architecture.config.rotated.is_some();
                let is_of_centroids = shape.backbone.is_some() && tensor.name.contains(CENTROIDS);
                if OTHERS.iter().any(|other| tensor.name.starts_with(other))
                    || is_of_centroids
                    || has_freqs && tensor.name == metadata::ROPE_FREQS
                {
                    continue;
                }
                // Ollama's files of EmbeddingGemma have the architecture gemma3.
                let title = shape.architecture.title;
                let what = match tensor.name.starts_with("dense") {
                    true => format!("is none of {title}'s, but of {}", metadata::EMBEDS),
                    false => format!("is none of {title}'s"),
                };
                return Err(wrong(&what, &format!("use a GGUF file of a {title} text model")));
            };
            let is_merged = ids.len() > 1;
            for id in ids {
                if matches!(id, TensorId::Layer(layer, _) if layer >= shape.layers.len()) {
                    return Err(wrong(&format!("is past the last of {} layers", shape.layers.len()), REMEDY));
                }
                match tensors.entry(id) {
                    Entry::Vacant(slot) => slot.insert(check(id, is_merged, file, tensor, shape, wrong)?),
                    Entry::Occupied(_) => return Err(wrong("has rows that are in another tensor too", REMEDY)),
                };
            }
        }
    }
    for id in TensorId::all(shape) {
        if !tensors.contains_key(&id) {
            let (name, label) = (name(id), &files[0].label);
            let cause = format!("tensor {name} is missing from {label}");
            return Err(Error::input(cause, REMEDY));
        }
    }
    Ok(tensors)
}

/// Checks the tensor of `id`, or where it `is_merged` the tensor of both the experts' gate and their up projections.
fn check(
    id: TensorId,
    is_merged: bool,
    file: usize,
    tensor: &TensorInfo,
    shape: &Shape,
    wrong: impl Fn(&str, &str) -> Error,
) -> Result<StoredTensor> {
    let [rows, cols] = id.dims(shape);
    let half = id.half(shape).filter(|_| is_merged);
    let wanted = match id.is_vector() {
        true => vec![cols],
        false => id.file_dims(shape, vec![if is_merged { 2 * rows } else { rows }, cols]),
    };
    if tensor.shape != wanted {
        return Err(wrong(&format!("has shape {:?}; the file's keys want {wanted:?}", tensor.shape), REMEDY));
    }
    let encoding = encoding(tensor.dtype).filter(|e| !(id.is_never_quantized() && matches!(e, Encoding::Blocks(_))));
    let encoding =
        encoding.ok_or_else(|| wrong(&format!("is {}, which Kiln does not read", tensor.dtype.name), REMEDY_TYPES))?;
    if let Encoding::Blocks(blocks) = encoding
        && !blocks.kept_as().holds(cols)
    {
        return Err(wrong(
            &format!("is {} in rows of {cols}, which Kiln does not run", tensor.dtype.name),
            REMEDY_TYPES,
        ));
    }
    let elements = ByteRange { file, range: tensor.range.clone() };
    Ok(StoredTensor { name: tensor.name.clone(), elements, encoding, half })
}

/// How elements of this type are encoded. `None` if the type is not supported.
fn encoding(dtype: GgmlType) -> Option<Encoding> {
    Some(match dtype {
        F32 => Encoding::F32,
        F16 => Encoding::F16,
        BF16 => Encoding::Native(WeightFormat::Bf16, None),
        _ => {
            let named = |blocks: &BlockFormat| blocks.name().eq_ignore_ascii_case(dtype.name);
            Encoding::Blocks(BlockFormat::ALL.into_iter().find(named)?)
        }
    })
}

/// The name that GGUF files give a tensor.
pub(super) fn name(id: TensorId) -> String {
    match id {
        TensorId::Embedding => "token_embd.weight".into(),
        TensorId::Head => "output.weight".into(),
        TensorId::FinalNorm => "output_norm.weight".into(),
        TensorId::PreProjection => "nextn.pre_projection.weight".into(),
        TensorId::PostProjection => "nextn.post_projection.weight".into(),
        TensorId::Layer(layer, role) => format!("blk.{layer}.{}", role.gguf_suffix()),
    }
}

/// The tensors that belong to no layer.
const OUTSIDE: [TensorId; 5] =
    [TensorId::Embedding, TensorId::Head, TensorId::FinalNorm, TensorId::PreProjection, TensorId::PostProjection];

/// The tensor with this name. `None` if the model has none of the name.
fn identify(tensor: &str) -> Option<TensorId> {
    if let Some(id) = OUTSIDE.into_iter().find(|id| name(*id) == tensor) {
        return Some(id);
    }
    let (layer, rest) = split_layer(tensor)?;
    Role::ALL.into_iter().find(|role| role.gguf_suffix() == rest).map(|role| TensorId::Layer(layer, role))
}

/// The matrices of a tensor that has both the experts' gate and their up projections.
fn identify_merged(tensor: &str) -> Option<[TensorId; 2]> {
    let (layer, rest) = split_layer(tensor)?;
    (rest == MERGED).then_some([Role::ExpertGate, Role::ExpertUp].map(|role| TensorId::Layer(layer, role)))
}

/// The layer of a tensor's name, and the rest of it.
fn split_layer(tensor: &str) -> Option<(usize, &str)> {
    let (layer, rest) = tensor.strip_prefix("blk.")?.split_once('.')?;
    Some((parse_index(layer)?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_means_the_tensor_that_has_it() {
        let layers = Role::ALL.into_iter().map(|role| TensorId::Layer(11, role));
        for id in layers.chain(OUTSIDE) {
            assert_eq!(identify(&name(id)), Some(id), "{id:?}");
        }
        assert_eq!(identify("blk.3.ffn_gate_inp.scale"), Some(TensorId::Layer(3, Role::RouterNorm)));
        let merged = [Role::ExpertGate, Role::ExpertUp].map(|role| TensorId::Layer(3, role));
        assert_eq!(identify_merged("blk.3.ffn_gate_up_exps.weight"), Some(merged));
        for other in ["blk.01.attn_q.weight", "blk.1.attn_q.bias", "blk.x.attn_q.weight", "blk.1.attn_qkv.weight", ""] {
            assert_eq!(identify(other), None, "{other}");
        }
    }
}
