//! The public models by name. Source: their config.json on the hub, text part, defaults filled in.

use crate::model::architecture::{GEMMA3, GEMMA4, GEMMA4_DRAFTER};
use crate::model::config;
use crate::model::shape::{AttentionShape, Experts, LayerKind, Rope, Shape, Values};
use crate::{Error, Result};
use std::path::Path;

/// The names of models that [`preset`] knows.
pub const NAMES: [&str; 8] =
    ["gemma3-270m", "gemma3-1b", "gemma3-4b", "gemma3-12b", "gemma3-27b", "gemma4-12b", "gemma4-26b-a4b", "gemma4-31b"];
/// The names of drafters that [`preset`] knows.
pub const DRAFTERS: [&str; 3] = ["gemma4-12b-drafter", "gemma4-26b-a4b-drafter", "gemma4-31b-drafter"];

/// The shape of a public model, by its name; Gemma 3's also in short: `gemma3-27b`, `27b`.
pub fn preset(name: &str) -> Option<Shape> {
    let shape = match name.strip_prefix("gemma3-").unwrap_or(name) {
        "270m" => Shape { hidden: 640, ffn: 2048, layers: layers(18), ..small() },
        "1b" => Shape { hidden: 1152, ffn: 6912, layers: layers(26), ..small() },
        "4b" => Shape { hidden: 2560, ffn: 10_240, layers: layers(34), ..gemma3().with_heads(8, 4, 256) },
        "12b" => Shape { hidden: 3840, ffn: 15_360, layers: layers(48), ..gemma3().with_heads(16, 8, 256) },
        "27b" => Shape {
            hidden: 5376,
            ffn: 21_504,
            query_pre_attn_scalar: 168.0,
            layers: layers(62),
            ..gemma3().with_heads(32, 16, 128)
        },
        "gemma4-12b" => Shape { hidden: 3840, ffn: 15_360, layers: layers(48), ..gemma4(16, [8, 1]) },
        "gemma4-26b-a4b" => Shape {
            hidden: 2816,
            ffn: 2112,
            experts: Some(Experts { count: 128, used: 8, ffn: 704 }),
            layers: layers(30),
            ..gemma4(16, [8, 2])
        },
        "gemma4-31b" => Shape { hidden: 5376, ffn: 21_504, layers: layers(60), ..gemma4(32, [16, 4]) },
        _ => return name.strip_suffix("-drafter").and_then(preset).and_then(drafter),
    };
    Some(shape)
}

/// A public model's shape by name, else the shape of a config file.
///
/// # Errors
/// Input: there is no such model or file, or the file is not a config of a model that Kiln runs.
pub fn find(word: &str) -> Result<Shape> {
    if let Some(shape) = preset(word) {
        return Ok(shape);
    }
    let path = Path::new(word);
    if !path.exists() {
        let names = NAMES.into_iter().chain(DRAFTERS).collect::<Vec<_>>().join(", ");
        let remedy = format!("give one of {names}, or check the path of the config.json");
        return Err(Error::input(format!("{word} does not exist"), remedy));
    }
    config::read(path)
}

/// The values that 270M and 1B of Gemma 3 share. The caller sets the sizes.
fn small() -> Shape {
    let all = gemma3().with_heads(4, 1, 256).with_window(512);
    let global = AttentionShape { rope: Rope::of(1e6), ..all.global };
    Shape { vocab: 262_144, global, max_context: 32_768, ..all }
}

/// The values that Gemma 3's 4B, 12B and 27B share. The caller sets the sizes.
fn gemma3() -> Shape {
    let local = AttentionShape {
        heads: 1,
        kv_heads: 1,
        head_dim: 256,
        window: Some(1024),
        rope: Rope::of(1e4),
        values: Values::Projected,
    };
    Shape {
        architecture: &GEMMA3,
        vocab: 262_208,
        hidden: 0,
        ffn: 0,
        experts: None,
        local,
        global: AttentionShape { window: None, rope: Rope { factor: 8.0, ..Rope::of(1e6) }, ..local },
        layers: Vec::new(),
        eps: 1e-6,
        query_pre_attn_scalar: 256.0,
        norms_values: false,
        scales_layers: false,
        softcap: None,
        max_context: 131_072,
        tied: true,
        bos: 2,
        eos: vec![1, 106],
        backbone: None,
        suppressed: Vec::new(),
    }
}

/// The values that the models of Gemma 4 share. The caller sets the sizes.
fn gemma4(heads: usize, [local, global]: [usize; 2]) -> Shape {
    let all = gemma3().with_heads(heads, local, 256);
    let rope = Rope { rotated: 0.25, ..Rope::of(1e6) };
    Shape {
        architecture: &GEMMA4,
        vocab: 262_144,
        global: AttentionShape { kv_heads: global, head_dim: 512, rope, values: Values::Keys, ..all.global },
        query_pre_attn_scalar: 1.0,
        norms_values: true,
        scales_layers: true,
        softcap: Some(30.0),
        max_context: 262_144,
        ..all
    }
}

/// The drafter of a model of Gemma 4.
fn drafter(model: Shape) -> Option<Shape> {
    let layers = vec![LayerKind::Local, LayerKind::Local, LayerKind::Local, LayerKind::Global];
    let backbone = Some(model.hidden);
    let is_known = *model.architecture == GEMMA4;
    let drafter = Shape {
        architecture: &GEMMA4_DRAFTER,
        hidden: 1024,
        ffn: 8192,
        experts: None,
        layers,
        softcap: None,
        backbone,
        ..model
    };
    is_known.then_some(drafter)
}

/// Repeats five local layers and a global one.
fn layers(count: usize) -> Vec<LayerKind> {
    (1..=count).map(|i| if i % 6 == 0 { LayerKind::Global } else { LayerKind::Local }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::config;

    #[test]
    fn presets_are_valid_configs_of_their_nominal_size() {
        for (name, billions) in
            NAMES.iter().chain(&DRAFTERS).zip([0.27, 1.0, 3.9, 11.8, 27.0, 11.9, 25.23, 30.7, 0.422, 0.419, 0.469])
        {
            let shape = preset(name).unwrap();
            assert_eq!(config::parse(&config::to_json(&shape), None).unwrap(), shape, "{name}");
            let size = shape.matrix_elements() as f64 / 1e9;
            assert!((size / billions - 1.0).abs() < 0.05, "{name}: {size}");
        }
        // 8 of 128 experts.
        let experts = preset("gemma4-26b-a4b").unwrap();
        assert_eq!(experts.matrix_elements_per_token() / 1_000_000, 3821);
        assert_eq!(preset("27b"), preset("gemma3-27b"));
        assert_eq!(preset("gemma3-2b"), None);
    }
}
