//! A GGUF file's metadata → [`Shape`], as llama.cpp reads it: missing keys have llama.cpp's defaults, and values for
//! which the format has no key follow from the number of layers.
//!
//! Files of Ollama's converter differ: other names for the bases of RoPE, no epsilon, no RoPE scaling for the models
//! that have it, and a cap on logits for a model that has none. These are read as the values of the model's training.

use std::collections::HashMap;

use super::header::MetadataValue;
use crate::model::architecture::{self, Architecture, GEMMA3};
use crate::model::config::{ShapeKeys, check_shape, limit};
use crate::model::shape::{AttentionShape, Experts, LayerKind, MOST_SUPPRESSED, Rope, Shape, Values};
use crate::{Error, Result};

/// Gemma 3 27B's layers. Only this model scales scores by another root than that of a head's width.
const LAYERS_OF_27B: usize = 62;
/// Of this many consecutive layers the last is global, if the file has no key for it.
const PATTERN: usize = 6;
/// The local layers' RoPE base, if the file has no key for it.
const ROPE_BASE_LOCAL: f32 = 1e4;
/// The global layers' RoPE base, if the file has no key for it: every Gemma 3's.
const ROPE_BASE: f32 = 1e6;
/// The keys of the two bases, llama.cpp's first and Ollama's second.
const ROPE_BASE_LOCAL_KEYS: [&str; 2] = ["rope.freq_base_swa", "rope.local.freq_base"];
const ROPE_BASE_KEYS: [&str; 2] = ["rope.freq_base", "rope.global.freq_base"];
/// Experts of a layer: 0, or no key, in a dense model.
const EXPERTS: &str = "expert_count";
/// The key for the number of experts that a row uses.
const USED_EXPERTS: &str = "expert_used_count";
/// The key for the width of an expert.
const EXPERT_FFN: &str = "expert_feed_forward_length";
const KV_HEADS: &str = "attention.head_count_kv";
/// The key for the width of embeddings that each layer adds.
const PER_LAYER: &str = "embedding_length_per_layer_input";
/// The tensor that divides the global layers' frequencies: 1 for pairs that turn, and far above for the others.
pub(super) const ROPE_FREQS: &str = "rope_freqs.weight";
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
/// The key for the name of a file's model family.
const KEY: &str = "general.architecture";

/// The description of EmbeddingGemma in an error.
pub(super) const EMBEDS: &str = "EmbeddingGemma, which makes vectors and no text";

/// The facts of a file's tensors that its keys leave out.
pub(super) struct TensorFacts<'a> {
    /// The number of rows in the embedding table.
    pub(super) vocab: usize,
    /// Whether the head is the embedding table: the files have no other.
    pub(super) tied: bool,
    /// Tells whether the layer with this index has a projection of values.
    pub(super) has_values: &'a dyn Fn(usize) -> bool,
    /// Share of the global layers' pairs that turn, if the files have it.
    pub(super) rotated: Option<f32>,
}

/// The family of a model.
///
/// # Errors
/// [`Error::Input`]: it is no text model of a known family.
pub(super) fn family(label: &str, metadata: &HashMap<String, MetadataValue>) -> Result<&'static Architecture> {
    let word = |key: &str| metadata.get(key).and_then(MetadataValue::as_text);
    let family = architecture::ALL.into_iter().find(|family| word(KEY) == Some(family.name));
    let keys = Metadata { label, map: metadata, family: family.unwrap_or(&GEMMA3) };
    keys.refuse_others(family)?;
    Ok(keys.family)
}

/// Reads the shape of a model of a family. `label` names the file in errors.
///
/// # Errors
/// [`Error::Input`] with the key, its value and the expected one: a size that no model can have, or an unsupported
/// feature that changes the forward pass.
pub(super) fn read_shape(
    label: &str,
    metadata: &HashMap<String, MetadataValue>,
    family: &'static Architecture,
    facts: &TensorFacts,
) -> Result<Shape> {
    let keys = Metadata { label, map: metadata, family };
    let vocab = facts.vocab;
    keys.refuse_unsupported()?;
    let hidden = keys.size("embedding_length", None, limit::HIDDEN)?;
    let heads = keys.size("attention.head_count", None, limit::HEADS)?;
    let layers = keys.layers()?;
    let max_context = keys.size("context_length", None, limit::POSITIONS)?;
    let (local, global) = keys.attention(hidden, heads, &layers, max_context, facts)?;
    let query_pre_attn_scalar = match family.config.query_scalar {
        None => 1.0,
        Some(_) if layers.len() == LAYERS_OF_27B => (hidden / heads) as f32,
        Some(_) => global.head_dim as f32,
    };
    const CAP: &str = "final_logit_softcapping";
    let shape = Shape {
        architecture: family,
        vocab,
        hidden,
        ffn: keys.size("feed_forward_length", None, limit::FFN)?,
        experts: keys.experts()?,
        local,
        global,
        layers,
        eps: keys.positive("attention.layer_norm_rms_epsilon", Some(EPSILON))?,
        query_pre_attn_scalar,
        norms_values: family.config.norms_values,
        scales_layers: family.config.scales_layers,
        softcap: match family.config.caps_logits && keys.get(CAP).is_some() {
            true => Some(keys.positive(CAP, None)?),
            false => None,
        },
        max_context,
        tied: facts.tied,
        bos: keys.token("tokenizer.ggml.bos_token_id", vocab)?.unwrap_or(2),
        eos: keys.eos(vocab)?,
        backbone: family.is_drafter.then(|| keys.size("embedding_length_out", None, limit::HIDDEN)).transpose()?,
        suppressed: keys.suppressed(vocab)?,
    };
    const KEYS: ShapeKeys = ShapeKeys {
        hidden: "embedding_length",
        ffn: "feed_forward_length",
        expert_ffn: EXPERT_FFN,
        used: USED_EXPERTS,
        heads: "attention.head_count",
        kv_heads: "attention.head_count_kv",
        head_dim: "attention.key_length",
        bos: "tokenizer.ggml.bos_token_id",
    };
    check_shape(&shape, &KEYS).map_err(|cause| Error::input(format!("{label}: {cause}"), keys.remedy()))?;
    Ok(shape)
}

/// A warning for the user about a missing key: the base of RoPE, without which a file of one converter's default 1e4
/// looks like another's of 1e6.
pub(super) fn assumption(
    label: &str,
    metadata: &HashMap<String, MetadataValue>,
    family: &'static Architecture,
) -> Option<String> {
    let keys = Metadata { label, map: metadata, family };
    let is_given = ROPE_BASE_KEYS.iter().any(|key| keys.get(key).is_some());
    (!is_given).then(|| format!("{label} gives no base of RoPE; 1e6 is taken, which every {} has", family.title))
}

/// Reads keys with their defaults. A key without a default is required.
struct Metadata<'a> {
    label: &'a str,
    map: &'a HashMap<String, MetadataValue>,
    family: &'static Architecture,
}

impl Metadata<'_> {
    /// The value of a key of the architecture.
    fn get(&self, key: &str) -> Option<&MetadataValue> {
        self.map.get(&format!("{}.{key}", self.family.name))
    }

    fn wrong(&self, key: &str, found: &MetadataValue, wanted: &str) -> Error {
        let name = self.family.name;
        Error::input(format!("{}: {name}.{key} is {}; wanted {wanted}", self.label, found.excerpt()), self.remedy())
    }

    fn missing(&self, key: &str) -> Error {
        Error::input(format!("{} has no {}.{key}", self.label, self.family.name), self.remedy())
    }

    fn remedy(&self) -> String {
        format!("use a GGUF file of a {} text model", self.family.title)
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

    /// The attention of local and of global layers.
    fn attention(
        &self,
        hidden: usize,
        heads: usize,
        layers: &[LayerKind],
        max_context: usize,
        facts: &TensorFacts,
    ) -> Result<(AttentionShape, AttentionShape)> {
        let two_widths = self.family.config.global_head_dim.is_some();
        let even = Some(hidden / heads).filter(|width| (1..=limit::HEAD_DIM).contains(width));
        let head_dim = self.width(["attention.key_length", "attention.value_length", "rope.dimension_count"], even)?;
        let local_dim = match two_widths {
            true => self.width(
                ["attention.key_length_swa", "attention.value_length_swa", "rope.dimension_count_swa"],
                Some(head_dim),
            )?,
            false => head_dim,
        };
        let [local_kv, global_kv] = match two_widths {
            true => LayerKind::ALL.map(|kind| self.kv_heads(heads, layers, kind)),
            false => [(); 2].map(|()| self.size(KV_HEADS, Some(heads), limit::HEADS)),
        };
        let theta = self.rope_base(ROPE_BASE_KEYS)?.unwrap_or(ROPE_BASE);
        let rope = Rope { factor: self.rope_factor(layers.len())?, ..Rope::of(theta) };
        let local = AttentionShape {
            heads,
            kv_heads: local_kv?,
            head_dim: local_dim,
            window: Some(self.window()?.unwrap_or(max_context)),
            rope: Rope::of(self.rope_base(ROPE_BASE_LOCAL_KEYS)?.unwrap_or(ROPE_BASE_LOCAL)),
            values: Values::Projected,
        };
        let mut global = AttentionShape { kv_heads: global_kv?, head_dim, window: None, rope, ..local };
        if self.family.config.rotated.is_some() {
            let missing = || Error::input(format!("{} has no tensor {ROPE_FREQS}", self.label), self.remedy());
            global.rope.rotated = facts.rotated.ok_or_else(missing)?;
            let of_global = (0..layers.len()).filter(|layer| layers[*layer] == LayerKind::Global);
            if !of_global.into_iter().any(facts.has_values) {
                global.values = Values::Keys;
            }
        }
        Ok((local, global))
    }

    /// The number and the width of a layer's experts; `None` if it has none.
    fn experts(&self) -> Result<Option<Experts>> {
        if !self.family.config.has_experts || self.get(EXPERTS).is_none_or(|count| count.as_unsigned() == Some(0)) {
            return Ok(None);
        }
        Ok(Some(Experts {
            count: self.size(EXPERTS, None, limit::EXPERTS)?,
            used: self.size(USED_EXPERTS, None, limit::USED)?,
            ffn: self.size(EXPERT_FFN, None, limit::FFN)?,
        }))
    }

    /// A head's width. All of the keys that are there must give the same.
    fn width(&self, [key, value, rope]: [&str; 3], default: Option<usize>) -> Result<usize> {
        let width = self.size(key, default, limit::HEAD_DIM)?;
        for same in [value, rope] {
            let found = self.size(same, Some(width), limit::HIDDEN)?;
            if found != width {
                let wanted = format!("{width}, a head's width");
                return Err(self.wrong(same, &MetadataValue::Unsigned(found as u64), &wanted));
            }
        }
        Ok(width)
    }

    /// KV heads of the layers of a kind: a number, or a list with one for each layer.
    fn kv_heads(&self, heads: usize, layers: &[LayerKind], kind: LayerKind) -> Result<usize> {
        let Some(value) = self.get(KV_HEADS) else { return Ok(heads) };
        let Some(list) = value.as_array() else { return self.size(KV_HEADS, None, limit::HEADS) };
        let wanted = || format!("a list of {}, alike for all {} layers", layers.len(), kind.name());
        let mut of_kind = list.numbers().zip(layers).filter(|(_, layer)| **layer == kind).map(|(n, _)| n.as_unsigned());
        let first = of_kind.next().unwrap_or(Some(heads as u64));
        let size = first.filter(|_| list.len() == layers.len() && of_kind.all(|n| n == first));
        let size = size.and_then(|n| usize::try_from(n).ok()).filter(|n| (1..=limit::HEADS).contains(n));
        size.ok_or_else(|| self.wrong(KV_HEADS, value, &wanted()))
    }

    /// True if Ollama's converter wrote the file.
    fn is_ollamas(&self) -> bool {
        *self.family == GEMMA3 && self.has_ollamas_keys()
    }

    fn has_ollamas_keys(&self) -> bool {
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
        let mut layers = self.layer_kinds()?;
        if let Some(last) = layers.last_mut().filter(|_| self.family.config.ends_global) {
            *last = LayerKind::Global;
        }
        Ok(layers)
    }

    fn layer_kinds(&self) -> Result<Vec<LayerKind>> {
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
        // `rope.scale_linear` is an older spelling. Zero means no scaling.
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
        id.map(Some).ok_or_else(|| Error::input(cause(), self.remedy()))
    }

    /// The tokens that end a reply: the ones that the file names, and the ones spelled like Gemma's.
    fn eos(&self, vocab: usize) -> Result<Vec<u32>> {
        let mut ids = Vec::new();
        for key in ["eos", "eot"] {
            ids.extend(self.token(&format!("tokenizer.ggml.{key}_token_id"), vocab)?);
        }
        if let Some(tokens) = self.map.get("tokenizer.ggml.tokens").and_then(MetadataValue::as_array) {
            let spelled = tokens.texts().take(vocab).zip(0..).filter(|(text, _)| self.family.gguf.ends.contains(text));
            ids.extend(spelled.map(|(_, id)| id));
        }
        if ids.is_empty() {
            ids.push(1);
        }
        ids.sort_unstable();
        ids.dedup();
        Ok(ids)
    }

    /// The ids of tokens that the file says are never chosen.
    fn suppressed(&self, vocab: usize) -> Result<Vec<u32>> {
        const SUPPRESSED: &str = "tokenizer.ggml.suppress_tokens";
        let Some(value) = self.map.get(SUPPRESSED) else { return Ok(Vec::new()) };
        let id = |n: MetadataValue| n.as_unsigned().filter(|id| (*id as usize) < vocab).map(|id| id as u32);
        let list = value.as_array().filter(|list| list.len() <= MOST_SUPPRESSED);
        let ids = list.and_then(|list| list.numbers().map(id).collect::<Option<Vec<u32>>>());
        let wanted = format!("a list of at most {MOST_SUPPRESSED} token ids below {vocab}");
        let cause = || format!("{}: {SUPPRESSED} is {}; wanted {wanted}", self.label, value.excerpt());
        ids.ok_or_else(|| Error::input(cause(), self.remedy()))
    }

    /// Refuses a file that is not a text model of a known family, by its kind.
    fn refuse_others(&self, family: Option<&Architecture>) -> Result<()> {
        let word = |key: &str| self.map.get(key).and_then(MetadataValue::as_text);
        let remedy = || format!("use a GGUF file of a text model of {}", architecture::titles("or"));
        let is = |what: &str| Err(Error::input(format!("{} is {what}", self.label), remedy()));
        let other = |what: &str, remedy: &str| Err(Error::input(format!("{} is {what}", self.label), remedy));
        match (word("general.type"), word(KEY)) {
            (Some("mmproj"), _) | (_, Some("clip")) => {
                other("a model's part for images", "give the file of the text model, which is beside it")
            }
            (Some("adapter"), _) => {
                other("a LoRA adapter, not a model", "merge it into its base model, and give the merged file")
            }
            (Some("imatrix"), _) => is("an importance matrix, not a model"),
            (_, Some(name)) if name.starts_with("gemma-embedding") => is(EMBEDS),
            (..) if family.is_some() && self.get("pooling_type").is_some() => is(EMBEDS),
            (..) if family.is_some() => Ok(()),
            _ => match self.map.get(KEY) {
                Some(other) => is(&format!("of another architecture, {}", other.excerpt())),
                None => Err(Error::input(format!("{} has no {KEY}", self.label), remedy())),
            },
        }
    }

    /// Refuses keys that would change the forward pass in a way that the family's models do not have.
    fn refuse_unsupported(&self) -> Result<()> {
        const CAP: &str = "final_logit_softcapping";
        const SHARED: &str = "attention.shared_kv_layers";
        let refused = ["attn_logit_softcapping", CAP, EXPERTS, SHARED, PER_LAYER];
        let is_computed = |key: &str| match key {
            CAP => self.family.config.caps_logits,
            EXPERTS => self.family.config.has_experts,
            SHARED => self.family.is_drafter,
            _ => false,
        };
        for key in refused.into_iter().filter(|key| !is_computed(key)) {
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

/// Whether an element of a list of layers marks its layer as local. `None` if it is of another type.
fn is_local(value: MetadataValue) -> Option<bool> {
    match value {
        MetadataValue::Bool(local) => Some(local),
        other => other.as_unsigned().filter(|n| *n <= 1).map(|n| n == 1),
    }
}
