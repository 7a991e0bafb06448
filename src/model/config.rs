//! config.json ⇄ [`Shape`]. A config is not trusted. Three spellings are in use, keys with a default in transformers
//! may be missing, and every number is checked before it is used. The spellings: flat 5.x (`rope_parameters`,
//! `layer_types`), flat 4.x (`rope_theta`, `rope_local_base_freq`, `rope_scaling`, `sliding_window_pattern`), and
//! nested (`text_config` inside a `Gemma3ForConditionalGeneration`). Defaults are `Gemma3TextConfig`'s of transformers
//! 5.23.0.

mod keys;
mod quantization;

use std::path::Path;

use serde_json::{Map, Value, json};

use self::keys::{ConfigReader, REMEDY_CONFIG, excerpt};
pub(crate) use self::quantization::Quantization;
use crate::model::json::parse as parse_json;
use crate::model::shape::{LayerKind, Shape};
use crate::model::text_file;
use crate::{Error, Result};

/// The largest config.json that is read, in bytes. Real ones have a few KB.
pub const MAX_CONFIG_BYTES: usize = 4 << 20;

/// Largest accepted values: far above any Gemma 3, and small enough that no product of them overflows 64 bits.
pub(crate) mod limit {
    pub const VOCAB: usize = 1 << 20;
    pub const HIDDEN: usize = 1 << 17;
    pub const FFN: usize = 1 << 20;
    pub const LAYERS: usize = 1024;
    pub const HEADS: usize = 1024;
    pub const HEAD_DIM: usize = 256;
    pub const POSITIONS: usize = 1 << 30;
}

/// Parses a config.json and, if the model has one, its generation_config.json. The latter may name more tokens that end
/// a reply; for Gemma 3 -it, both together give 1 and 106.
///
/// # Errors
/// [`Error::Input`] with the key, its value and the expected one: not JSON, another architecture, a size that no Gemma
/// 3 can have, or an unsupported feature that changes the forward pass.
pub fn parse(config: &str, generation: Option<&str>) -> Result<Shape> {
    parse_model(config, generation).map(|(shape, _)| shape)
}

/// [`parse`] that also returns another program's quantisation of the matrices.
///
/// # Errors
/// As [`parse`].
pub(crate) fn parse_model(config: &str, generation: Option<&str>) -> Result<(Shape, Quantization)> {
    let root = parse_object(config, "config.json")?;
    let outer = ConfigReader { map: &root, file: "config.json" };
    check_architecture(&outer)?;
    let text = match outer.get("text_config") {
        None => ConfigReader { map: &root, file: "config.json" },
        Some(Value::Object(map)) => ConfigReader { map, file: "config.json" },
        Some(other) => return Err(outer.wrong("text_config", other, "an object")),
    };
    let mut shape = parse_text(&outer, &text)?;
    if let Some(generation) = generation {
        let map = parse_object(generation, "generation_config.json")?;
        ConfigReader { map: &map, file: "generation_config.json" }.add_eos(&mut shape.eos, shape.vocab)?;
    }
    Ok((shape, Quantization::parse(&outer, &text)?))
}

/// Reads and parses a config.json.
///
/// # Errors
/// [`Error::Input`]: the file cannot be read, or as [`parse`].
pub fn read(path: &Path) -> Result<Shape> {
    match text_file::read(path, MAX_CONFIG_BYTES, "give a model's config.json")? {
        Some(text) => parse(&text, None),
        None => Err(Error::unreadable(path, &std::io::ErrorKind::NotFound.into())),
    }
}

/// The config.json of a checkpoint that Kiln writes: the flat 5.x spelling. [`parse`] reads it back to an equal shape.
pub fn to_json(shape: &Shape) -> String {
    let layer_types: Vec<&str> = shape.layers.iter().map(|kind| layer_word(*kind)).collect();
    let full = if shape.rope_factor_global == 1.0 {
        json!({"rope_type": "default", "rope_theta": number(shape.rope_theta_global)})
    } else {
        json!({
            "rope_type": "linear",
            "rope_theta": number(shape.rope_theta_global),
            "factor": number(shape.rope_factor_global),
        })
    };
    let eos = match shape.eos.as_slice() {
        [one] => json!(one),
        several => json!(several),
    };
    let config = json!({
        "architectures": ["Gemma3ForCausalLM"],
        "model_type": "gemma3_text",
        "dtype": "bfloat16",
        "vocab_size": shape.vocab,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.ffn,
        "num_hidden_layers": shape.layers.len(),
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "hidden_activation": "gelu_pytorch_tanh",
        "attention_bias": false,
        "rms_norm_eps": number(shape.eps),
        "query_pre_attn_scalar": number(shape.query_pre_attn_scalar),
        "sliding_window": shape.window,
        "layer_types": layer_types,
        "rope_parameters": {
            "full_attention": full,
            "sliding_attention": {"rope_type": "default", "rope_theta": number(shape.rope_theta_local)},
        },
        "max_position_embeddings": shape.max_context,
        "tie_word_embeddings": shape.tied,
        "pad_token_id": 0,
        "bos_token_id": shape.bos,
        "eos_token_id": eos,
    });
    format!("{config:#}\n")
}

/// An f32 as the shortest decimal number that reads back to it; whole numbers without a fraction.
fn number(x: f32) -> Value {
    if x.fract() == 0.0 && x.abs() < 1e9 {
        return json!(x as i64);
    }
    json!(x.to_string().parse::<f64>().unwrap_or(f64::from(x)))
}

/// The kind's word in `layer_types`.
fn layer_word(kind: LayerKind) -> &'static str {
    match kind {
        LayerKind::Local => "sliding_attention",
        LayerKind::Global => "full_attention",
    }
}

/// Parses a JSON object of limited size. serde_json bounds the nesting itself.
fn parse_object(text: &str, file: &str) -> Result<Map<String, Value>> {
    let remedy = "take the file from the model's original download";
    if text.len() > MAX_CONFIG_BYTES {
        let cause = format!("{file} has {} bytes, more than the {MAX_CONFIG_BYTES} that any config needs", text.len());
        return Err(Error::input(cause, remedy));
    }
    match parse_json(text.as_bytes()) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(_) => Err(Error::input(format!("{file} is not a JSON object"), remedy)),
        Err(e) => Err(Error::input(format!("{file} is not valid JSON: {e}"), remedy)),
    }
}

/// Accepts the two Gemma 3 architectures that hold a text model with a language head.
fn check_architecture(outer: &ConfigReader) -> Result<()> {
    const REMEDY: &str = "Kiln runs Gemma 3 text models (Gemma3ForCausalLM, Gemma3ForConditionalGeneration)";
    let known = |name: &str| matches!(name, "Gemma3ForCausalLM" | "Gemma3ForConditionalGeneration");
    let architectures = match outer.get("architectures") {
        None => &Vec::new(),
        Some(Value::Array(list)) => list,
        Some(other) => return Err(outer.wrong("architectures", other, "a list of names")),
    };
    if architectures.iter().any(|a| a.as_str() == Some("Gemma3TextModel")) {
        let cause = "config.json is of Gemma3TextModel, which makes vectors and no text, as EmbeddingGemma does";
        return Err(Error::input(cause, REMEDY));
    }
    if !architectures.is_empty() && !architectures.iter().any(|a| a.as_str().is_some_and(known)) {
        let found = excerpt(&architectures[0]);
        return Err(Error::input(format!("config.json is of another architecture, {found}"), REMEDY));
    }
    match outer.get("model_type") {
        Some(Value::String(t)) if t == "gemma3" || t == "gemma3_text" => Ok(()),
        None if !architectures.is_empty() => Ok(()),
        None => Err(Error::input("config.json gives neither model_type nor architectures", REMEDY)),
        Some(other) => Err(Error::input(format!("config.json is of another model type, {}", excerpt(other)), REMEDY)),
    }
}

/// Parses the text model's keys. `outer` is the same object, or the one around `text_config`.
fn parse_text(outer: &ConfigReader, text: &ConfigReader) -> Result<Shape> {
    text.refuse_unsupported()?;
    let layers = parse_layers(text)?;
    let rope = RopeConfig::parse(text)?;
    let mut eos = Vec::new();
    let vocab = text.size("vocab_size", 262_208, limit::VOCAB)?;
    outer.add_eos(&mut eos, vocab)?;
    text.add_eos(&mut eos, vocab)?;
    if eos.is_empty() {
        eos.push(1);
    }
    let tied = match text.flag("tie_word_embeddings")? {
        Some(tied) => tied,
        None => outer.flag("tie_word_embeddings")?.unwrap_or(true),
    };
    let shape = Shape {
        vocab,
        hidden: text.size("hidden_size", 2304, limit::HIDDEN)?,
        ffn: text.size("intermediate_size", 9216, limit::FFN)?,
        heads: text.size("num_attention_heads", 8, limit::HEADS)?,
        kv_heads: text.size("num_key_value_heads", 4, limit::HEADS)?,
        head_dim: text.size("head_dim", 256, limit::HEAD_DIM)?,
        layers,
        window: text.size("sliding_window", 4096, limit::POSITIONS)?,
        eps: text.positive("rms_norm_eps", 1e-6)?,
        query_pre_attn_scalar: text.positive("query_pre_attn_scalar", 256.0)?,
        rope_theta_local: rope.theta_local,
        rope_theta_global: rope.theta_global,
        rope_factor_global: rope.factor_global,
        max_context: text.size("max_position_embeddings", 131_072, limit::POSITIONS)?,
        tied,
        bos: match text.get("bos_token_id").or_else(|| outer.get("bos_token_id")) {
            None => 2,
            Some(v) => text.token("bos_token_id", v)?,
        },
        eos,
    };
    const KEYS: ShapeKeys = ShapeKeys {
        hidden: "hidden_size",
        ffn: "intermediate_size",
        heads: "num_attention_heads",
        kv_heads: "num_key_value_heads",
        head_dim: "head_dim",
        bos: "bos_token_id",
    };
    check_shape(&shape, &KEYS).map_err(|cause| Error::input(format!("config.json: {cause}"), REMEDY_CONFIG))?;
    Ok(shape)
}

/// The keys of a file for the sizes that [`check_shape`] checks.
pub(crate) struct ShapeKeys {
    pub(crate) hidden: &'static str,
    pub(crate) ffn: &'static str,
    pub(crate) heads: &'static str,
    pub(crate) kv_heads: &'static str,
    pub(crate) head_dim: &'static str,
    pub(crate) bos: &'static str,
}

/// Checks relations between values: divisibility, and that the vocabulary has the first token.
///
/// # Errors
/// The wrong key and its fault.
pub(crate) fn check_shape(shape: &Shape, keys: &ShapeKeys) -> std::result::Result<(), String> {
    for (key, size) in [(keys.hidden, shape.hidden), (keys.ffn, shape.ffn)] {
        if size % 8 != 0 {
            return Err(format!("{key} is {size}; Kiln needs a multiple of 8"));
        }
    }
    if !shape.head_dim.is_multiple_of(2) {
        return Err(format!("{} is {}; RoPE needs an even number", keys.head_dim, shape.head_dim));
    }
    if !shape.heads.is_multiple_of(shape.kv_heads) {
        let (q, kv) = (shape.heads, shape.kv_heads);
        return Err(format!("{} is {kv}, which does not divide {}, {q}", keys.kv_heads, keys.heads));
    }
    if shape.bos as usize >= shape.vocab {
        return Err(format!("{} is {}, past the vocabulary of {}", keys.bos, shape.bos, shape.vocab));
    }
    Ok(())
}

/// Reads `layer_types`. Without it, every `sliding_window_pattern`-th layer is global.
fn parse_layers(text: &ConfigReader) -> Result<Vec<LayerKind>> {
    let count = text.size("num_hidden_layers", 26, limit::LAYERS)?;
    let Some(types) = text.get("layer_types") else {
        // 5.x keeps the 4.x key under its private name.
        let key = ["sliding_window_pattern", "_sliding_window_pattern"]
            .into_iter()
            .find(|key| text.get(key).is_some())
            .unwrap_or("sliding_window_pattern");
        let pattern = text.size(key, 6, limit::LAYERS)?;
        let kind = |i: usize| if (i + 1).is_multiple_of(pattern) { LayerKind::Global } else { LayerKind::Local };
        return Ok((0..count).map(kind).collect());
    };
    let list = types.as_array().ok_or_else(|| text.wrong("layer_types", types, "a list"))?;
    if list.len() != count {
        let cause = format!("config.json: layer_types has {} entries for {count} layers", list.len());
        return Err(Error::input(cause, REMEDY_CONFIG));
    }
    list.iter()
        .map(|word| match word.as_str() {
            Some("sliding_attention") => Ok(LayerKind::Local),
            Some("full_attention") => Ok(LayerKind::Global),
            _ => Err(text.wrong("layer_types", word, "sliding_attention or full_attention")),
        })
        .collect()
}

/// RoPE's constants in either spelling.
struct RopeConfig {
    theta_local: f32,
    theta_global: f32,
    factor_global: f32,
}

impl RopeConfig {
    fn parse(text: &ConfigReader) -> Result<RopeConfig> {
        let mut rope = RopeConfig {
            theta_local: text.positive("rope_local_base_freq", 1e4)?,
            theta_global: text.positive("rope_theta", 1e6)?,
            factor_global: 1.0,
        };
        if let Some(parameters) = text.object("rope_parameters")? {
            let (full, sliding) = (parameters.object("full_attention")?, parameters.object("sliding_attention")?);
            if full.is_none() && sliding.is_none() && !parameters.map.is_empty() {
                let cause = "config.json: rope_parameters has neither full_attention nor sliding_attention";
                return Err(Error::input(cause, REMEDY_CONFIG));
            }
            if let Some(full) = full {
                rope.theta_global = full.positive("rope_theta", rope.theta_global)?;
                rope.factor_global = full.rope_factor()?;
            }
            if let Some(sliding) = sliding {
                rope.theta_local = sliding.positive("rope_theta", rope.theta_local)?;
                let factor = sliding.rope_factor()?;
                if factor != 1.0 {
                    let cause = format!("config.json: sliding_attention scales RoPE by {factor}; Gemma 3 never does");
                    return Err(Error::input(cause, REMEDY_CONFIG));
                }
            }
        }
        // As in transformers 5: a 4.x rope_scaling beside rope_parameters applies to the global layers.
        if let Some(scaling) = text.object("rope_scaling")? {
            rope.factor_global = scaling.rope_factor()?;
        }
        Ok(rope)
    }
}
