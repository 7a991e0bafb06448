//! config.json ⇄ [`Shape`]. A config is not trusted. Several spellings are in use, keys with a default in transformers
//! may be missing, and every number is checked before it is used. The spellings: flat 5.x (`rope_parameters`,
//! `layer_types`), flat 4.x (`rope_theta`, `rope_local_base_freq`, `rope_scaling`, `sliding_window_pattern`), and
//! nested (`text_config` inside a `ForConditionalGeneration`). The global layers' heads have keys of their own
//! (`global_head_dim`, `num_global_key_value_heads`) or entries in `per_layer_config`. Defaults are those of
//! transformers 5.24.0; a family's are in [`crate::model::architecture`].

mod keys;
mod quantization;

use std::path::Path;

use serde_json::{Map, Value, json};

use self::keys::{ConfigReader, REMEDY_CONFIG, excerpt};
pub(crate) use self::quantization::Quantization;
use crate::model::architecture::{self, Architecture};
use crate::model::json::parse as parse_json;
use crate::model::shape::{AttentionShape, Experts, LayerKind, Rope, Shape, Values};
use crate::model::text_file;
use crate::{Error, Result};

/// The largest config.json that is read, in bytes. Real ones have a few KB.
pub const MAX_CONFIG_BYTES: usize = 4 << 20;

/// Largest accepted values: far above any public model's, and small enough that no product of them overflows 64 bits.
pub(crate) mod limit {
    pub const VOCAB: usize = 1 << 20;
    pub const HIDDEN: usize = 1 << 17;
    pub const FFN: usize = 1 << 20;
    pub const LAYERS: usize = 1024;
    pub const EXPERTS: usize = 256;
    pub const USED: usize = 8;
    pub const HEADS: usize = 1024;
    pub const HEAD_DIM: usize = 512;
    pub const POSITIONS: usize = 1 << 30;
}

/// Parses a config.json and, if the model has one, its generation_config.json. The latter may name more tokens that end
/// a reply, which for Gemma 3 -it both together give as 1 and 106, and tokens that are never chosen.
///
/// # Errors
/// [`Error::Input`] with the key, its value and the expected one: not JSON, another architecture, an impossible size,
/// or an unsupported feature that changes the forward pass.
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
    let family = find_architecture(&outer)?;
    let text = match outer.get("text_config") {
        None => ConfigReader { map: &root, file: "config.json" },
        Some(Value::Object(map)) => ConfigReader { map, file: "config.json" },
        Some(other) => return Err(outer.wrong("text_config", other, "an object")),
    };
    let mut shape = parse_text(family, &outer, &text)?;
    if let Some(generation) = generation {
        let map = parse_object(generation, "generation_config.json")?;
        ConfigReader { map: &map, file: "generation_config.json" }.add_tokens(&mut shape)?;
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
    let (family, local, global) = (shape.architecture, &shape.local, &shape.global);
    let layer_types: Vec<&str> = shape.layers.iter().map(|kind| layer_word(*kind)).collect();
    let mut full = json!({"rope_type": "default", "rope_theta": number(global.rope.theta)});
    if family.config.rotated.is_some() {
        full["rope_type"] = json!("proportional");
        full["partial_rotary_factor"] = number(global.rope.rotated);
    } else if global.rope.factor != 1.0 {
        full["rope_type"] = json!("linear");
        full["factor"] = number(global.rope.factor);
    }
    let eos = match shape.eos.as_slice() {
        [one] => json!(one),
        several => json!(several),
    };
    let mut config = json!({
        "architectures": [family.classes[0]],
        "model_type": family.model_types[0],
        "dtype": "bfloat16",
        "vocab_size": shape.vocab,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.ffn,
        "num_hidden_layers": shape.layers.len(),
        "num_attention_heads": local.heads,
        "num_key_value_heads": local.kv_heads,
        "head_dim": local.head_dim,
        "hidden_activation": "gelu_pytorch_tanh",
        "attention_bias": false,
        "rms_norm_eps": number(shape.eps),
        "sliding_window": shape.window(),
        "layer_types": layer_types,
        "rope_parameters": {
            "full_attention": full,
            "sliding_attention": {"rope_type": "default", "rope_theta": number(local.rope.theta)},
        },
        "max_position_embeddings": shape.max_context,
        "tie_word_embeddings": shape.tied,
        "pad_token_id": 0,
        "bos_token_id": shape.bos,
        "eos_token_id": eos,
    });
    if family.config.query_scalar.is_some() {
        config["query_pre_attn_scalar"] = number(shape.query_pre_attn_scalar);
    }
    if family.config.global_head_dim.is_some() {
        config["global_head_dim"] = json!(global.head_dim);
        config["attention_k_eq_v"] = json!(global.values == Values::Keys);
        if global.values == Values::Keys {
            config["num_global_key_value_heads"] = json!(global.kv_heads);
        }
    }
    if family.config.caps_logits {
        config["final_logit_softcapping"] = shape.softcap.map_or(Value::Null, number);
    }
    for (key, _) in family.config.zeros {
        config[*key] = json!(0);
    }
    if let Some(experts) = shape.experts {
        config["enable_moe_block"] = json!(true);
        config["num_experts"] = json!(experts.count);
        config["top_k_experts"] = json!(experts.used);
        config["moe_intermediate_size"] = json!(experts.ffn);
    }
    if let Some(backbone) = shape.backbone {
        let mut outer = json!({
            "architectures": [family.classes[0]],
            "model_type": family.model_types[0],
            "dtype": "bfloat16",
            "backbone_hidden_size": backbone,
            "tie_word_embeddings": shape.tied,
        });
        config["num_kv_shared_layers"] = json!(shape.layers.len());
        config["model_type"] = json!(family.model_types[2]);
        config.as_object_mut().into_iter().for_each(|config| drop(config.remove("architectures")));
        outer["text_config"] = config;
        config = outer;
    }
    if !shape.suppressed.is_empty() {
        config["suppress_tokens"] = json!(shape.suppressed);
    }
    format!("{config:#}\n")
}

/// An f32 as the shortest decimal number that reads back to it; whole numbers without a fraction.
fn number(x: f32) -> Value {
    if x.fract() == 0.0 && x.abs() < 1e9 {
        return json!(x as i64);
    }
    json!(x.to_string().parse::<f64>().unwrap_or(f64::from(x)))
}

/// The word for this kind of layer in `layer_types` of config.json.
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

/// The family of a text model with a language head, by its class or its model type.
fn find_architecture(outer: &ConfigReader) -> Result<&'static Architecture> {
    let remedy = || format!("Kiln runs the text models of {}", architecture::titles("and"));
    let architectures = match outer.get("architectures") {
        None => &Vec::new(),
        Some(Value::Array(list)) => list,
        Some(other) => return Err(outer.wrong("architectures", other, "a list of names")),
    };
    if architectures.iter().any(|a| a.as_str() == Some("Gemma3TextModel")) {
        let cause = "config.json is of Gemma3TextModel, which makes vectors and no text, as EmbeddingGemma does";
        return Err(Error::input(cause, remedy()));
    }
    let has_class = |family: &&Architecture| {
        architectures.iter().any(|class| class.as_str().is_some_and(|class| family.classes.contains(&class)))
    };
    let by_class = architecture::ALL.into_iter().find(has_class);
    if !architectures.is_empty() && by_class.is_none() {
        let found = excerpt(&architectures[0]);
        return Err(Error::input(format!("config.json is of another architecture, {found}"), remedy()));
    }
    let Some(kind) = outer.get("model_type") else {
        let cause = "config.json gives neither model_type nor architectures";
        return by_class.ok_or_else(|| Error::input(cause, remedy()));
    };
    let has_type = |family: &&Architecture| kind.as_str().is_some_and(|kind| family.model_types.contains(&kind));
    let by_type = architecture::ALL.into_iter().find(has_type);
    by_type
        .filter(|family| by_class.is_none_or(|class| class == *family))
        .ok_or_else(|| Error::input(format!("config.json is of another model type, {}", excerpt(kind)), remedy()))
}

/// Parses the text model's keys. `outer` is the same object, or the one around `text_config`.
fn parse_text(family: &'static Architecture, outer: &ConfigReader, text: &ConfigReader) -> Result<Shape> {
    let rules = &family.config;
    text.refuse_unsupported(family)?;
    let layers = parse_layers(family, text)?;
    let (local, global) = parse_attention(family, text, &layers)?;
    let backbone = family.is_drafter.then(|| parse_backbone(outer, text, layers.len())).transpose()?;
    let tied = match text.flag("tie_word_embeddings")? {
        Some(tied) => tied,
        None => outer.flag("tie_word_embeddings")?.unwrap_or(true),
    };
    let mut shape = Shape {
        architecture: family,
        vocab: text.size("vocab_size", rules.vocab, limit::VOCAB)?,
        hidden: text.size("hidden_size", 2304, limit::HIDDEN)?,
        ffn: text.size("intermediate_size", 9216, limit::FFN)?,
        experts: parse_experts(family, text)?,
        local,
        global,
        layers,
        eps: text.positive("rms_norm_eps", 1e-6)?,
        query_pre_attn_scalar: match rules.query_scalar {
            Some(default) => text.positive("query_pre_attn_scalar", default)?,
            None => 1.0,
        },
        norms_values: rules.norms_values,
        scales_layers: rules.scales_layers,
        softcap: match text.get("final_logit_softcapping").filter(|_| rules.caps_logits) {
            Some(_) => Some(text.positive("final_logit_softcapping", 1.0)?),
            None => None,
        },
        max_context: text.size("max_position_embeddings", 131_072, limit::POSITIONS)?,
        tied,
        bos: match text.get("bos_token_id").or_else(|| outer.get("bos_token_id")) {
            None => 2,
            Some(v) => text.token("bos_token_id", v)?,
        },
        eos: Vec::new(),
        suppressed: Vec::new(),
        backbone,
    };
    outer.add_tokens(&mut shape)?;
    text.add_tokens(&mut shape)?;
    if shape.eos.is_empty() {
        shape.eos.push(1);
    }
    const KEYS: ShapeKeys = ShapeKeys {
        hidden: "hidden_size",
        ffn: "intermediate_size",
        expert_ffn: "moe_intermediate_size",
        used: "top_k_experts",
        heads: "num_attention_heads",
        kv_heads: "num_key_value_heads",
        head_dim: "head_dim",
        bos: "bos_token_id",
    };
    check_shape(&shape, &KEYS).map_err(|cause| Error::input(format!("config.json: {cause}"), REMEDY_CONFIG))?;
    Ok(shape)
}

/// The experts of a model whose layers have them.
fn parse_experts(family: &Architecture, text: &ConfigReader) -> Result<Option<Experts>> {
    if !family.config.has_experts || text.flag("enable_moe_block")? != Some(true) {
        return Ok(None);
    }
    let size = |key: &str, max: usize| match text.get(key) {
        Some(_) => text.size(key, 1, max),
        None => {
            let cause = format!("config.json has no {key}, which a model with experts needs");
            Err(Error::input(cause, REMEDY_CONFIG))
        }
    };
    const OLDER: &str = "expert_intermediate_size";
    let width = if text.get(OLDER).is_some() { OLDER } else { "moe_intermediate_size" };
    Ok(Some(Experts {
        count: size("num_experts", limit::EXPERTS)?,
        used: size("top_k_experts", limit::USED)?,
        ffn: size(width, limit::FFN)?,
    }))
}

/// Width of a drafter's model. None of its layers has keys and values of its own.
fn parse_backbone(outer: &ConfigReader, text: &ConfigReader, layers: usize) -> Result<usize> {
    const SHARED: &str = "num_kv_shared_layers";
    let shared = text.size(SHARED, layers, limit::LAYERS)?;
    if shared != layers {
        let cause = format!(
            "config.json: {SHARED} is {shared}, and a drafter has all of its {layers} layers' keys from its model"
        );
        return Err(Error::input(cause, REMEDY_CONFIG));
    }
    const KEY: &str = "backbone_hidden_size";
    match outer.get(KEY) {
        Some(_) => outer.size(KEY, 1, limit::HIDDEN),
        None => Err(Error::input(format!("config.json has no {KEY}, the width of the drafter's model"), REMEDY_CONFIG)),
    }
}

/// The attention of local and of global layers.
fn parse_attention(
    family: &Architecture,
    text: &ConfigReader,
    layers: &[LayerKind],
) -> Result<(AttentionShape, AttentionShape)> {
    let rope = RopeConfig::parse(family, text)?;
    let values = match family.config.global_head_dim {
        Some(_) if text.flag("attention_k_eq_v")? == Some(true) => Values::Keys,
        _ => Values::Projected,
    };
    let local = AttentionShape {
        heads: text.size("num_attention_heads", 8, limit::HEADS)?,
        kv_heads: text.size("num_key_value_heads", 4, limit::HEADS)?,
        head_dim: text.size("head_dim", 256, limit::HEAD_DIM)?,
        window: Some(text.size("sliding_window", family.config.window, limit::POSITIONS)?),
        rope: rope.local,
        values: Values::Projected,
    };
    let global = AttentionShape { window: None, rope: rope.global, values, ..local };
    let Some(head_dim) = family.config.global_head_dim else { return Ok((local, global)) };
    let entries = text.object("per_layer_config")?;
    // Without a key of the hub's spelling, a layer that has no entry is like a local one.
    let head_dim = if entries.is_some() { local.head_dim } else { head_dim };
    let kv_heads = text.size("num_global_key_value_heads", local.kv_heads, limit::HEADS)?;
    let global = AttentionShape {
        head_dim: text.size("global_head_dim", head_dim, limit::HEAD_DIM)?,
        kv_heads: if values == Values::Keys { kv_heads } else { local.kv_heads },
        ..global
    };
    let Some(entries) = entries else { return Ok((local, global)) };
    if let Some(key) = entries.map.keys().find(|key| key.parse::<usize>().map_or(true, |layer| layer >= layers.len())) {
        let cause =
            format!("config.json: per_layer_config has the key {}, which is no layer", crate::display::quote(key));
        return Err(Error::input(cause, REMEDY_CONFIG));
    }
    let of_layer = |layer: usize| -> Result<AttentionShape> {
        let usual = if layers[layer] == LayerKind::Local { local } else { global };
        let Some(entry) = entries.object(&layer.to_string())? else { return Ok(usual) };
        entry.refuse_others(&["head_dim", "num_key_value_heads"])?;
        let head_dim = entry.size("head_dim", usual.head_dim, limit::HEAD_DIM)?;
        Ok(AttentionShape {
            head_dim,
            kv_heads: entry.size("num_key_value_heads", usual.kv_heads, limit::HEADS)?,
            ..usual
        })
    };
    let kind = |kind: LayerKind, usual: AttentionShape| -> Result<AttentionShape> {
        let mut of_kind = (0..layers.len()).filter(|layer| layers[*layer] == kind).map(of_layer);
        let first = of_kind.next().unwrap_or(Ok(usual))?;
        of_kind.try_for_each(|other| match other? == first {
            true => Ok(()),
            false => {
                let cause = format!("config.json: per_layer_config gives {} layers different heads", kind.name());
                Err(Error::input(cause, "Kiln runs models whose layers of a kind are alike"))
            }
        })?;
        Ok(first)
    };
    Ok((kind(LayerKind::Local, local)?, kind(LayerKind::Global, global)?))
}

/// The keys of a file for the sizes that [`check_shape`] checks.
pub(crate) struct ShapeKeys {
    pub(crate) hidden: &'static str,
    pub(crate) ffn: &'static str,
    pub(crate) expert_ffn: &'static str,
    pub(crate) used: &'static str,
    pub(crate) heads: &'static str,
    pub(crate) kv_heads: &'static str,
    pub(crate) head_dim: &'static str,
    pub(crate) bos: &'static str,
}

/// Checks relations between values: divisibility, and that there are as many experts as a row takes and the first token.
///
/// # Errors
/// The wrong key and its fault.
pub(crate) fn check_shape(shape: &Shape, keys: &ShapeKeys) -> std::result::Result<(), String> {
    let expert_ffn = shape.experts.map(|experts| (keys.expert_ffn, experts.ffn));
    for (key, size) in [(keys.hidden, shape.hidden), (keys.ffn, shape.ffn)].into_iter().chain(expert_ffn) {
        if size % 8 != 0 {
            return Err(format!("{key} is {size}; Kiln needs a multiple of 8"));
        }
    }
    if let Some(Experts { count, used, .. }) = shape.experts.filter(|experts| experts.used > experts.count) {
        return Err(format!("{} is {used}, and a layer has {count} experts", keys.used));
    }
    for &AttentionShape { heads, kv_heads, head_dim, .. } in [&shape.local, &shape.global] {
        if !head_dim.is_multiple_of(2) {
            return Err(format!("{} is {head_dim}; RoPE needs an even number", keys.head_dim));
        }
        if !heads.is_multiple_of(kv_heads) {
            return Err(format!("{} is {kv_heads}, which does not divide {}, {heads}", keys.kv_heads, keys.heads));
        }
    }
    if shape.bos as usize >= shape.vocab {
        return Err(format!("{} is {}, past the vocabulary of {}", keys.bos, shape.bos, shape.vocab));
    }
    Ok(())
}

/// Reads `layer_types`. Without it, every `sliding_window_pattern`-th layer is global.
fn parse_layers(family: &Architecture, text: &ConfigReader) -> Result<Vec<LayerKind>> {
    let mut layers = parse_layer_types(family, text)?;
    if let Some(last) = layers.last_mut().filter(|_| family.config.ends_global) {
        *last = LayerKind::Global;
    }
    Ok(layers)
}

fn parse_layer_types(family: &Architecture, text: &ConfigReader) -> Result<Vec<LayerKind>> {
    let count = text.size("num_hidden_layers", family.config.layers, limit::LAYERS)?;
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

/// RoPE's constants for both kinds of layer, from either spelling in config.json.
struct RopeConfig {
    local: Rope,
    global: Rope,
}

impl RopeConfig {
    fn parse(family: &Architecture, text: &ConfigReader) -> Result<RopeConfig> {
        let mut rope = RopeConfig {
            local: Rope::of(text.positive("rope_local_base_freq", 1e4)?),
            global: Rope::of(text.positive("rope_theta", 1e6)?),
        };
        rope.global.rotated = family.config.rotated.unwrap_or(1.0);
        if let Some(parameters) = text.object("rope_parameters")? {
            let (full, sliding) = (parameters.object("full_attention")?, parameters.object("sliding_attention")?);
            if full.is_none() && sliding.is_none() && !parameters.map.is_empty() {
                let cause = "config.json: rope_parameters has neither full_attention nor sliding_attention";
                return Err(Error::input(cause, REMEDY_CONFIG));
            }
            if let Some(full) = full {
                rope.global.theta = full.positive("rope_theta", rope.global.theta)?;
                match family.config.rotated {
                    Some(_) => rope.global.rotated = full.rope_share()?,
                    None => rope.global.factor = full.rope_factor()?,
                }
            }
            if let Some(sliding) = sliding {
                rope.local.theta = sliding.positive("rope_theta", rope.local.theta)?;
                let factor = sliding.rope_factor()?;
                if factor != 1.0 {
                    let title = family.title;
                    let cause = format!("config.json: sliding_attention scales RoPE by {factor}; {title} never does");
                    return Err(Error::input(cause, REMEDY_CONFIG));
                }
            }
        }
        // As in transformers 5: a 4.x rope_scaling beside rope_parameters applies to the global layers.
        if let Some(scaling) = text.object("rope_scaling")? {
            rope.global.factor = scaling.rope_factor()?;
        }
        Ok(rope)
    }
}
