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
                _ => true,
            };
            let Some(id) = identify(&tensor.name).filter(is_known) else {
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
            if matches!(id, TensorId::Layer(layer, _) if layer >= shape.layers.len()) {
                return Err(wrong(&format!("is past the last of {} layers", shape.layers.len()), REMEDY));
            }
            match tensors.entry(id) {
                Entry::Vacant(slot) => slot.insert(check(id, file, tensor, shape, wrong)?),
                Entry::Occupied(_) => return Err(wrong("is in another file too", REMEDY)),
            };
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

fn check(
    id: TensorId,
    file: usize,
    tensor: &TensorInfo,
    shape: &Shape,
    wrong: impl Fn(&str, &str) -> Error,
) -> Result<StoredTensor> {
    let [rows, cols] = id.dims(shape);
    let wanted = if id.is_vector() { vec![cols] } else { vec![rows, cols] };
    if tensor.shape != wanted {
        return Err(wrong(&format!("has shape {:?}; the file's keys want {wanted:?}", tensor.shape), REMEDY));
    }
    let encoding = encoding(tensor.dtype).filter(|e| !(id.is_vector() && matches!(e, Encoding::Blocks(_))));
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
    Ok(StoredTensor { name: tensor.name.clone(), elements: ByteRange { file, range: tensor.range.clone() }, encoding })
}

/// The encoding of a supported type.
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

/// The name of a tensor.
pub(super) fn name(id: TensorId) -> String {
    match id {
        TensorId::Embedding => "token_embd.weight".into(),
        TensorId::Head => "output.weight".into(),
        TensorId::FinalNorm => "output_norm.weight".into(),
        TensorId::PreProjection => "nextn.pre_projection.weight".into(),
        TensorId::PostProjection => "nextn.post_projection.weight".into(),
        TensorId::Layer(layer, role) => format!("blk.{layer}.{}.weight", role_name(role)),
    }
}

fn role_name(role: Role) -> &'static str {
    match role {
        Role::InputNorm => "attn_norm",
        Role::PostAttentionNorm => "post_attention_norm",
        Role::PreFfnNorm => "ffn_norm",
        Role::PostFfnNorm => "post_ffw_norm",
        Role::QNorm => "attn_q_norm",
        Role::KNorm => "attn_k_norm",
        Role::Q => "attn_q",
        Role::K => "attn_k",
        Role::V => "attn_v",
        Role::O => "attn_output",
        Role::Gate => "ffn_gate",
        Role::Up => "ffn_up",
        Role::Down => "ffn_down",
        Role::LayerScalar => "layer_output_scale",
    }
}

/// The tensors outside of layers.
const OUTSIDE: [TensorId; 5] =
    [TensorId::Embedding, TensorId::Head, TensorId::FinalNorm, TensorId::PreProjection, TensorId::PostProjection];

/// The tensor with this name.
fn identify(tensor: &str) -> Option<TensorId> {
    if let Some(id) = OUTSIDE.into_iter().find(|id| name(*id) == tensor) {
        return Some(id);
    }
    let (layer, rest) = tensor.strip_prefix("blk.")?.split_once('.')?;
    let role = rest.strip_suffix(".weight")?;
    let role = Role::ALL.into_iter().find(|candidate| role_name(*candidate) == role)?;
    Some(TensorId::Layer(parse_index(layer)?, role))
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
        for other in ["blk.01.attn_q.weight", "blk.1.attn_q.bias", "blk.x.attn_q.weight", "blk.1.attn_qkv.weight", ""] {
            assert_eq!(identify(other), None, "{other}");
        }
    }
}
