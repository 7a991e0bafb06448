//! Maps names in a file to tensors of the model. Four layouts are in use:
//!
//! ```text
//! A  model.layers.L.…                  Gemma3ForCausalLM
//! B  language_model.model.layers.L.…   Gemma3ForConditionalGeneration on disk
//! C  model.language_model.layers.L.…   the same in memory, and files written without the reverse mapping
//! D  layer_L_<any of these>            the earlier engine's files; also layer_L_<name within the layer>
//! ```

use std::collections::HashMap;

use crate::model::tensor::{Role, TensorId};

/// Suffix of the tensor with another one's scales.
pub(crate) const SCALE_SUFFIX: &str = "_scale";

/// Suffix of the tensor with another one's zero points, which llm-compressor may write.
pub(super) const ZERO_POINT_SUFFIX: &str = "_zero_point";

/// Prefixes of names in layouts A to C. The longest is first, so that a shorter one does not hide it.
const PREFIXES: [&str; 4] = ["model.language_model.", "language_model.model.", "language_model.", "model."];

/// The tensor with this name. `None` for a name outside of the text model, such as a vision tower's, a projector's or a
/// tensor of scales.
pub(crate) fn identify(name: &str) -> Option<TensorId> {
    let (layer, name) = split_layer_prefix(name);
    let id = match layer {
        Some(layer) => identify_role(name).map(|role| TensorId::Layer(layer, role)),
        None => None,
    };
    let id = id.or_else(|| identify_full(name))?;
    // A name that contradicts its prefix is not of the text model.
    match (layer, id) {
        (Some(prefix), TensorId::Layer(layer, _)) if prefix != layer => None,
        _ => Some(id),
    }
}

/// `name` without the prefix `layer_N_` that names a layer.
pub(crate) fn without_layer_prefix(name: &str) -> &str {
    split_layer_prefix(name).1
}

fn split_layer_prefix(name: &str) -> (Option<usize>, &str) {
    let split = name.strip_prefix("layer_").and_then(|rest| rest.split_once('_'));
    match split.and_then(|(digits, rest)| Some((parse_index(digits)?, rest))) {
        Some((layer, rest)) => (Some(layer), rest),
        None => (None, name),
    }
}

fn identify_full(name: &str) -> Option<TensorId> {
    if let Some(id) = [TensorId::PreProjection, TensorId::PostProjection].into_iter().find(|id| id.name() == name) {
        return Some(id);
    }
    if matches!(name, "lm_head.weight" | "language_model.lm_head.weight" | "model.lm_head.weight") {
        return Some(TensorId::Head);
    }
    let name = PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix))?;
    match name {
        "embed_tokens.weight" => Some(TensorId::Embedding),
        "norm.weight" => Some(TensorId::FinalNorm),
        _ => {
            let (index, rest) = name.strip_prefix("layers.")?.split_once('.')?;
            Some(TensorId::Layer(parse_index(index)?, identify_role(rest)?))
        }
    }
}

fn identify_role(name: &str) -> Option<Role> {
    Role::ALL.into_iter().find(|role| role.suffix() == name)
}

/// A layer's index in plain decimal. No sign and no leading zero, so that each layer has one spelling.
pub(super) fn parse_index(digits: &str) -> Option<usize> {
    let canonical = digits == "0" || (!digits.starts_with('0') && digits.bytes().all(|b| b.is_ascii_digit()));
    if canonical { digits.parse().ok() } else { None }
}

/// The names most like `wanted`, nearest first, for an error about a missing tensor. Unidentified names come first,
/// since a misspelt name is one of them.
pub(crate) fn closest<'a>(wanted: &str, names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    // Bounded, because an untrusted file may have any number of names of any length.
    const NAMES: usize = 20_000;
    const LENGTH: usize = 200;
    let mut nearest: HashMap<&str, usize> = HashMap::new();
    for name in names.take(NAMES).filter(|name| name.len() <= LENGTH) {
        nearest.insert(name, strsim::levenshtein(wanted, name));
    }
    let mut nearest: Vec<_> = nearest.into_iter().filter(|(name, d)| *d <= name.len().max(wanted.len()) / 2).collect();
    nearest.sort_by_key(|(name, distance)| (identify(name).is_some(), *distance, *name));
    nearest.into_iter().take(3).map(|(name, _)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_layout_names_the_same_tensors() {
        let q = Some(TensorId::Layer(11, Role::Q));
        for name in [
            "model.layers.11.self_attn.q_proj.weight",
            "language_model.model.layers.11.self_attn.q_proj.weight",
            "model.language_model.layers.11.self_attn.q_proj.weight",
            "layer_11_model.layers.11.self_attn.q_proj.weight",
            "layer_11_language_model.model.layers.11.self_attn.q_proj.weight",
            "layer_11_self_attn.q_proj.weight",
        ] {
            assert_eq!(identify(name), q, "{name}");
        }
        for prefix in ["model.", "language_model.model.", "model.language_model."] {
            assert_eq!(identify(&format!("{prefix}embed_tokens.weight")), Some(TensorId::Embedding));
            assert_eq!(identify(&format!("{prefix}norm.weight")), Some(TensorId::FinalNorm));
        }
        assert_eq!(identify("lm_head.weight"), Some(TensorId::Head));
        assert_eq!(identify("language_model.lm_head.weight"), Some(TensorId::Head));
    }

    #[test]
    fn names_outside_the_text_model_mean_nothing() {
        for name in [
            "vision_tower.encoder.layers.0.self_attn.q_proj.weight",
            "vision_tower.vision_model.encoder.layers.0.mlp.fc1.weight",
            "model.vision_tower.vision_model.encoder.layers.0.self_attn.q_proj.weight",
            "multi_modal_projector.mm_input_projection_weight",
            "model.layers.3.self_attn.q_proj.weight_scale",
            "model.layers.03.self_attn.q_proj.weight",
            "model.layers.+3.self_attn.q_proj.weight",
            "model.layers..self_attn.q_proj.weight",
            "layer_4_model.layers.5.self_attn.q_proj.weight",
            "layer_99999999999999999999_mlp.up_proj.weight",
        ] {
            assert_eq!(identify(name), None, "{name}");
        }
    }
}
