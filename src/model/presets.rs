//! The public Gemma 3 models by name. Source: their config.json on the hub, text part, defaults filled in.

use crate::model::config;
use crate::model::shape::{LayerKind, Shape};
use crate::{Error, Result};
use std::path::Path;

/// The names that [`preset`] knows.
pub const NAMES: [&str; 5] = ["gemma3-270m", "gemma3-1b", "gemma3-4b", "gemma3-12b", "gemma3-27b"];

/// The shape of a public model, by its name or in short: `gemma3-27b`, `27b`.
pub fn preset(name: &str) -> Option<Shape> {
    let shape = match name.strip_prefix("gemma3-").unwrap_or(name) {
        "270m" => Shape { hidden: 640, ffn: 2048, layers: layers(18), ..small() },
        "1b" => Shape { hidden: 1152, ffn: 6912, layers: layers(26), ..small() },
        "4b" => Shape { hidden: 2560, ffn: 10_240, heads: 8, kv_heads: 4, layers: layers(34), ..family() },
        "12b" => Shape { hidden: 3840, ffn: 15_360, heads: 16, kv_heads: 8, layers: layers(48), ..family() },
        "27b" => Shape {
            hidden: 5376,
            ffn: 21_504,
            heads: 32,
            kv_heads: 16,
            head_dim: 128,
            query_pre_attn_scalar: 168.0,
            layers: layers(62),
            ..family()
        },
        _ => return None,
    };
    Some(shape)
}

/// A public model's shape by name, else the shape of a config file.
///
/// # Errors
/// Input: there is no such model or file, or the file is not a config of a Gemma 3.
pub fn find(word: &str) -> Result<Shape> {
    if let Some(shape) = preset(word) {
        return Ok(shape);
    }
    let path = Path::new(word);
    if !path.exists() {
        let names = NAMES.join(", ");
        let remedy = format!("give one of {names}, or check the path of the config.json");
        return Err(Error::input(format!("{word} does not exist"), remedy));
    }
    config::read(path)
}

/// The values that 270M and 1B share. The caller sets the sizes.
fn small() -> Shape {
    Shape {
        vocab: 262_144,
        heads: 4,
        kv_heads: 1,
        window: 512,
        rope_factor_global: 1.0,
        max_context: 32_768,
        ..family()
    }
}

/// The values that 4B, 12B and 27B share. The caller sets the sizes.
fn family() -> Shape {
    Shape {
        vocab: 262_208,
        hidden: 0,
        ffn: 0,
        heads: 0,
        kv_heads: 0,
        head_dim: 256,
        layers: Vec::new(),
        window: 1024,
        eps: 1e-6,
        query_pre_attn_scalar: 256.0,
        rope_theta_local: 1e4,
        rope_theta_global: 1e6,
        rope_factor_global: 8.0,
        max_context: 131_072,
        tied: true,
        bos: 2,
        eos: vec![1, 106],
    }
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
        for (name, billions) in NAMES.iter().zip([0.27, 1.0, 3.9, 11.8, 27.0]) {
            let shape = preset(name).unwrap();
            assert_eq!(config::parse(&config::to_json(&shape), None).unwrap(), shape, "{name}");
            let size = shape.matrix_elements_per_token() as f64 / 1e9;
            assert!((size / billions - 1.0).abs() < 0.05, "{name}: {size}");
        }
        assert_eq!(preset("27b"), preset("gemma3-27b"));
        assert_eq!(preset("gemma3-2b"), None);
    }
}
