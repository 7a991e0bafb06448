//! A GGUF file's metadata → [`Shape`], as llama.cpp reads it: missing keys have llama.cpp's defaults, and values for
//! which the format has no key follow from the number of layers.
//!
//! Files of Ollama's converter differ: other names for the bases of RoPE, no epsilon, no RoPE scaling for the models
//! that have it, and a cap on logits for a model that has none. These are read as the values of the model's training.

use std::collections::HashMap;

use super::header::MetadataValue;
use crate::model::config::{ShapeKeys, check_shape, limit};
use crate::model::shape::{LayerKind, Shape};
use crate::{Error, Result};

/// The supported architecture, with which its keys begin.
const ARCHITECTURE: &str = "gemma3";
/// Gemma 3 27B's layers. Only this model scales scores by another root than that of a head's width.
const LAYERS_OF_27B: usize = 62;
/// Every so many layers one is global, if the file has no key for it.
const PATTERN: usize = 6;
/// The local layers' RoPE base, if the file has no key for it.
const ROPE_BASE_LOCAL: f32 = 1e4;
/// The global layers' RoPE base, if the file has no key for it: every Gemma 3's.
const ROPE_BASE: f32 = 1e6;
/// The keys of the two bases, llama.cpp's first and Ollama's second.
const ROPE_BASE_LOCAL_KEYS: [&str; 2] = ["rope.freq_base_swa", "rope.local.freq_base"];
const ROPE_BASE_KEYS: [&str; 2] = ["rope.freq_base", "rope.global.freq_base"];
/// RMSNorm's epsilon, if the file has no key for it: every Gemma 3's.
const EPSILON: f32 = 1e-6;
/// The numbers of layers of the models that scale the global layers' frequencies (4B, 12B and 27B), and the divisor.
/// Ollama's files have no key for it.
const SCALED: ([usize; 3], f32) = ([34, 48, LAYERS_OF_27B], 8.0);
/// The cap on logits that Ollama's converter wrote for a model whose config has none.
const OLLAMAS_CAP: f64 = 30.0;
/// Keys of the architecture that only Ollama's converter writes. Its files also contain the vision tower.
const OLLAMAS: [&str; 4] =
    ["rope.global.freq_base", "rope.local.freq_base", "mm.tokens_per_image", "vision.block_count"];
/// Tokens by text that end a reply, beside those that the file names.
const ENDS: [&str; 2] = ["<eos>", "<end_of_turn>"];

const REMEDY: &str = "use a GGUF file of a Gemma 3 text model";

/// The description of EmbeddingGemma in an error.
pub(super) const EMBEDS: &str = "EmbeddingGemma, which makes vectors and no text";

/// Reads the shape of a model whose embedding has `vocab` rows. `tied`: the files have no separate head. `label` names
/// the file in errors.
///
/// # Errors
/// [`Error::Input`] with the key, its value and the expected one: another architecture, a size that no Gemma 3 can
/// have, or an unsupported feature that changes the forward pass.
pub(super) fn read_shape(
    label: &str,
    metadata: &HashMap<String, MetadataValue>,
    vocab: usize,
    tied: bool,
) -> Result<Shape> {
    let keys = Metadata { label, map: metadata };
    keys.refuse_unsupported()?;
    let hidden = keys.size("embedding_length", None, limit::HIDDEN)?;
    let heads = keys.size("attention.head_count", None, limit::HEADS)?;
    let even = Some(hidden / heads).filter(|width| (1..=limit::HEAD_DIM).contains(width));
    let head_dim = keys.size("attention.key_length", even, limit::HEAD_DIM)?;
    for same in ["attention.value_length", "rope.dimension_count"] {
        let found = keys.size(same, Some(head_dim), limit::HIDDEN)?;
        if found != head_dim {
            return Err(keys.wrong(
                same,
                &MetadataValue::Unsigned(found as u64),
                &format!("{head_dim}, a head's width"),
            ));
        }
    }
    let layers = keys.layers()?;
    let rope_factor_global = keys.rope_factor(layers.len())?;
    let max_context = keys.size("context_length", None, limit::POSITIONS)?;
    let query_pre_attn_scalar = if layers.len() == LAYERS_OF_27B { hidden / heads } else { head_dim } as f32;
    let shape = Shape {
        vocab,
        hidden,
        ffn: keys.size("feed_forward_length", None, limit::FFN)?,
        heads,
        kv_heads: keys.size("attention.head_count_kv", Some(heads), limit::HEADS)?,
        head_dim,
        layers,
        window: keys.window()?.unwrap_or(max_context),
        eps: keys.positive("attention.layer_norm_rms_epsilon", Some(EPSILON))?,
        query_pre_attn_scalar,
        rope_theta_local: keys.rope_base(ROPE_BASE_LOCAL_KEYS)?.unwrap_or(ROPE_BASE_LOCAL),
        rope_theta_global: keys.rope_base(ROPE_BASE_KEYS)?.unwrap_or(ROPE_BASE),
        rope_factor_global,
        max_context,
        tied,
        bos: keys.token("tokenizer.ggml.bos_token_id", vocab)?.unwrap_or(2),
        eos: keys.eos(vocab)?,
    };
    const KEYS: ShapeKeys = ShapeKeys {
        hidden: "embedding_length",
        ffn: "feed_forward_length",
        heads: "attention.head_count",
        kv_heads: "attention.head_count_kv",
        head_dim: "attention.key_length",
        bos: "tokenizer.ggml.bos_token_id",
    };
    check_shape(&shape, &KEYS).map_err(|cause| Error::input(format!("{label}: {cause}"), REMEDY))?;
    Ok(shape)
}

/// A warning for the user about a missing key: the base of RoPE, without which a file of one converter's default 1e4
/// looks like another's of 1e6.
pub(super) fn assumption(label: &str, metadata: &HashMap<String, MetadataValue>) -> Option<String> {
    let keys = Metadata { label, map: metadata };
    let is_given = ROPE_BASE_KEYS.iter().any(|key| keys.get(key).is_some());
    (!is_given).then(|| format!("{label} gives no base of RoPE; 1e6 is taken, which every Gemma 3 has"))
}

/// Reads keys with their defaults. A key without a default is required.
struct Metadata<'a> {
    label: &'a str,
    map: &'a HashMap<String, MetadataValue>,
}

impl Metadata<'_> {
    /// The value of a key of the architecture.
    fn get(&self, key: &str) -> Option<&MetadataValue> {
        self.map.get(&format!("{ARCHITECTURE}.{key}"))
    }

    fn wrong(&self, key: &str, found: &MetadataValue, wanted: &str) -> Error {
        Error::input(format!("{}: {ARCHITECTURE}.{key} is {}; wanted {wanted}", self.label, found.excerpt()), REMEDY)
    }

    fn missing(&self, key: &str) -> Error {
        Error::input(format!("{} has no {ARCHITECTURE}.{key}", self.label), REMEDY)
    }

    /// A whole number from 1 to `max`, or a list with one number per layer if all are equal.
    fn size(&self, key: &str, default: Option<usize>, max: usize) -> Result<usize> {
        let Some(value) = self.get(key) else { return default.ok_or_else(|| self.missing(key)) };
        let listed = value.as_array().and_then(|list| {
            let mut sizes = list.numbers().map(|n| n.as_unsigned());
            let first = sizes.next().flatten();
            first.filter(|first| list.len() <= limit::LAYERS && sizes.all(|n| n == Some(*first)))
        });
        let size = value.as_unsigned().or(listed).and_then(|n| usize::try_from(n).ok());
        size.filter(|n| (1..=max).contains(n))
            .ok_or_else(|| self.wrong(key, value, &format!("a whole number from 1 to {max}")))
    }

    /// A number that is finite and above zero, as given and as f32.
    fn positive(&self, key: &str, default: Option<f32>) -> Result<f32> {
        let Some(value) = self.get(key) else { return default.ok_or_else(|| self.missing(key)) };
        let number = value.as_float().map(|x| x as f32).filter(|x| x.is_finite() && *x > 0.0);
        number.ok_or_else(|| self.wrong(key, value, "a finite number above 0"))
    }

    /// Whether Ollama's converter wrote the file.
    fn is_ollamas(&self) -> bool {
        OLLAMAS.iter().any(|key| self.get(key).is_some()) || self.get("attention.layer_norm_rms_epsilon").is_none()
    }

    /// A base of RoPE, from the first of these keys that is present.
    fn rope_base(&self, names: [&str; 2]) -> Result<Option<f32>> {
        let name = names.into_iter().find(|name| self.get(name).is_some());
        name.map(|name| self.positive(name, None)).transpose()
    }

    /// Keys that a local layer sees; `None` if there are no local layers.
    fn window(&self) -> Result<Option<usize>> {
        const KEY: &str = "attention.sliding_window";
        match self.get(KEY) {
            None | Some(MetadataValue::Unsigned(0) | MetadataValue::Signed(0)) => Ok(None),
            Some(_) => self.size(KEY, None, limit::POSITIONS).map(Some),
        }
    }

    fn layers(&self) -> Result<Vec<LayerKind>> {
        const PATTERN_KEY: &str = "attention.sliding_window_pattern";
        let count = self.size("block_count", None, limit::LAYERS)?;
        if self.window()?.is_none() {
            return Ok(vec![LayerKind::Global; count]);
        }
        let kind = |local: bool| if local { LayerKind::Local } else { LayerKind::Global };
        if let Some(list) = self.get(PATTERN_KEY).and_then(MetadataValue::as_array) {
            // For each layer, whether it is local.
            let local: Option<Vec<bool>> = list.numbers().map(is_local).collect();
            let layers = local.filter(|local| local.len() == count && list.len() == count);
            let layers = layers.map(|local| local.into_iter().map(kind).collect());
            let wanted = format!("a list of {count}, each true or false");
            return layers.ok_or_else(|| self.wrong(PATTERN_KEY, &MetadataValue::Array(list.clone()), &wanted));
        }
        let pattern = self.size(PATTERN_KEY, Some(PATTERN), limit::LAYERS)?;
        Ok((1..=count).map(|i| kind(!i.is_multiple_of(pattern))).collect())
    }

    /// The divisor of the global layers' inverse frequencies in a model of `layers` layers.
    fn rope_factor(&self, layers: usize) -> Result<f32> {
        const TYPE: &str = "rope.scaling.type";
        match self.get(TYPE) {
            None => {}
            Some(MetadataValue::Text(kind)) if kind == "linear" => {}
            Some(MetadataValue::Text(kind)) if kind == "none" => return Ok(1.0),
            Some(other) => return Err(self.wrong(TYPE, other, "linear or none")),
        }
        // The second is an older spelling. Zero means no scaling.
        let key = ["rope.scaling.factor", "rope.scale_linear"].into_iter().find(|key| self.get(key).is_some());
        match key {
            Some(key) if self.get(key).and_then(MetadataValue::as_float) != Some(0.0) => self.positive(key, None),
            None if self.is_ollamas() && SCALED.0.contains(&layers) => Ok(SCALED.1),
            _ => Ok(1.0),
        }
    }

    /// The token id in a key of the tokenizer.
    fn token(&self, key: &str, vocab: usize) -> Result<Option<u32>> {
        let Some(value) = self.map.get(key) else { return Ok(None) };
        let id = value.as_unsigned().filter(|id| (*id as usize) < vocab).and_then(|id| u32::try_from(id).ok());
        let cause = || format!("{}: {key} is {}; wanted a token id below {vocab}", self.label, value.excerpt());
        id.map(Some).ok_or_else(|| Error::input(cause(), REMEDY))
    }

    /// The tokens that end a reply: the ones that the file names, and the ones spelled like Gemma's.
    fn eos(&self, vocab: usize) -> Result<Vec<u32>> {
        let mut ids = Vec::new();
        for key in ["eos", "eot"] {
            ids.extend(self.token(&format!("tokenizer.ggml.{key}_token_id"), vocab)?);
        }
        if let Some(tokens) = self.map.get("tokenizer.ggml.tokens").and_then(MetadataValue::as_array) {
            let spelled = tokens.texts().take(vocab).zip(0..).filter(|(text, _)| ENDS.contains(text));
            ids.extend(spelled.map(|(_, id)| id));
        }
        if ids.is_empty() {
            ids.push(1);
        }
        ids.sort_unstable();
        ids.dedup();
        Ok(ids)
    }

    /// Refuses a file that is not a text model, by its kind.
    fn refuse_others(&self) -> Result<()> {
        const KEY: &str = "general.architecture";
        let word = |key: &str| self.map.get(key).and_then(MetadataValue::as_text);
        let is = |what: &str, remedy: &str| Err(Error::input(format!("{} is {what}", self.label), remedy));
        match (word("general.type"), word(KEY)) {
            (Some("mmproj"), _) | (_, Some("clip")) => {
                is("a model's part for images", "give the file of the text model, which is beside it")
            }
            (Some("adapter"), _) => {
                is("a LoRA adapter, not a model", "merge it into its base model, and give the merged file")
            }
            (Some("imatrix"), _) => is("an importance matrix, not a model", REMEDY),
            (_, Some(name)) if name.starts_with("gemma-embedding") => is(EMBEDS, REMEDY),
            (_, Some(ARCHITECTURE)) if self.get("pooling_type").is_some() => is(EMBEDS, REMEDY),
            (_, Some(ARCHITECTURE)) => Ok(()),
            _ => match self.map.get(KEY) {
                Some(other) => is(&format!("of another architecture, {}", other.excerpt()), REMEDY),
                None => Err(Error::input(format!("{} has no {KEY}", self.label), REMEDY)),
            },
        }
    }

    /// Refuses another architecture, and keys that would change the forward pass in a way that Gemma 3 does not have.
    fn refuse_unsupported(&self) -> Result<()> {
        self.refuse_others()?;
        for key in ["attn_logit_softcapping", "final_logit_softcapping", "expert_count"] {
            match self.get(key) {
                None | Some(MetadataValue::Unsigned(0)) => {}
                Some(MetadataValue::Float(x)) if *x == 0.0 => {}
                Some(MetadataValue::Float(x)) if *x == OLLAMAS_CAP && self.is_ollamas() => {}
                Some(other) => return Err(self.wrong(key, other, "none: Kiln does not compute it")),
            }
        }
        match self.get("attention.causal") {
            None | Some(MetadataValue::Bool(true)) => Ok(()),
            Some(other) => Err(self.wrong("attention.causal", other, "true: Kiln does not compute another")),
        }
    }
}

/// Whether an element of a list of layers marks its layer as local.
fn is_local(value: MetadataValue) -> Option<bool> {
    match value {
        MetadataValue::Bool(local) => Some(local),
        other => other.as_unsigned().filter(|n| *n <= 1).map(|n| n == 1),
    }
}
