//! The model families, as a table. A family's numbers are in its models' [`crate::model::Shape`]; the values here are
//! those of its files: names, keys, defaults, and keys that change the forward pass in a way that Kiln does not have.

/// The rules by which a family of models is recognised and read.
#[derive(Debug)]
pub struct Architecture {
    /// The family's name in APIs and in GGUF files, whose keys begin with it.
    pub name: &'static str,
    /// The family's name in messages.
    pub title: &'static str,
    /// The classes of transformers that hold a text model with a language head, the text model's own first.
    pub classes: &'static [&'static str],
    /// The values of `model_type` in config.json, the text model's own first.
    pub model_types: &'static [&'static str],
    /// How norms are stored in safetensors files.
    pub norms: NormWeights,
    /// The rules for keys of config.json.
    pub config: ConfigRules,
    /// The rules for keys and tensors of GGUF files.
    pub gguf: GgufRules,
    /// The chat format, for files without a template.
    pub template: &'static str,
    /// Whether the family's models draft for those of another family, from the keys and values of those.
    pub is_drafter: bool,
}

impl PartialEq for Architecture {
    fn eq(&self, other: &Architecture) -> bool {
        self.name == other.name
    }
}

/// The stored form of a norm's weights w; Kiln's norms multiply by 1 + w.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NormWeights {
    /// A norm's weights w are stored as they are.
    Weights,
    /// A norm's weights w are stored without the 1 in 1 + w.
    OneAdded,
}

/// The keys of config.json that differ by family, with the defaults of transformers.
#[derive(Debug)]
pub struct ConfigRules {
    /// The default of `vocab_size` in config.json.
    pub vocab: usize,
    /// The default of `num_hidden_layers` in config.json.
    pub layers: usize,
    /// The default of `sliding_window` in config.json.
    pub window: usize,
    /// Default of `query_pre_attn_scalar`; `None` if there is no such key and scores are not scaled.
    pub query_scalar: Option<f32>,
    /// Default of `global_head_dim`; `None` if all layers have the same heads.
    pub global_head_dim: Option<usize>,
    /// Default share of the global layers' pairs that turn; `None` if all do, and RoPE may have a linear factor.
    pub rotated: Option<f32>,
    /// True if the last layer is global, whatever `layer_types` says.
    pub ends_global: bool,
    /// True if `final_logit_softcapping` caps the logits. Otherwise the key is refused.
    pub caps_logits: bool,
    /// True if `enable_moe_block` gives the layers experts.
    pub has_experts: bool,
    /// True if the family's models norm attention's values ([`crate::model::Shape::norms_values`]).
    pub norms_values: bool,
    /// True if the family's models scale their layers' outputs ([`crate::model::Shape::scales_layers`]).
    pub scales_layers: bool,
    /// Keys that are refused unless they are 0, with their defaults.
    pub zeros: &'static [(&'static str, usize)],
    /// Keys of config.json that are refused if their value is true.
    pub flags: &'static [&'static str],
}

/// The keys and tensors of GGUF files that differ by family.
#[derive(Debug)]
pub struct GgufRules {
    /// Tokens by text that end a reply, beside those that the file names.
    pub ends: &'static [&'static str],
}

/// The family of Gemma 3.
pub static GEMMA3: Architecture = Architecture {
    name: "gemma3",
    title: "Gemma 3",
    classes: &["Gemma3ForCausalLM", "Gemma3ForConditionalGeneration"],
    model_types: &["gemma3_text", "gemma3"],
    norms: NormWeights::Weights,
    config: ConfigRules {
        vocab: 262_208,
        layers: 26,
        window: 4096,
        query_scalar: Some(256.0),
        global_head_dim: None,
        rotated: None,
        ends_global: false,
        caps_logits: false,
        has_experts: false,
        norms_values: false,
        scales_layers: false,
        zeros: &[],
        flags: &["attention_bias"],
    },
    gguf: GgufRules { ends: &["<eos>", "<end_of_turn>"] },
    template: include_str!("gemma3.jinja"),
    is_drafter: false,
};

/// Gemma 4's text models, dense and with experts.
pub static GEMMA4: Architecture = Architecture {
    name: "gemma4",
    title: "Gemma 4",
    classes: &[
        "Gemma4ForCausalLM",
        "Gemma4ForConditionalGeneration",
        "Gemma4UnifiedForCausalLM",
        "Gemma4UnifiedForConditionalGeneration",
    ],
    model_types: &["gemma4_text", "gemma4", "gemma4_unified_text", "gemma4_unified"],
    norms: NormWeights::OneAdded,
    config: ConfigRules {
        vocab: 262_144,
        layers: 30,
        window: 512,
        query_scalar: None,
        global_head_dim: Some(512),
        rotated: Some(0.25),
        ends_global: true,
        caps_logits: true,
        has_experts: true,
        norms_values: true,
        scales_layers: true,
        zeros: &[("hidden_size_per_layer_input", 256), ("num_kv_shared_layers", 0)],
        flags: &["attention_bias", "use_double_wide_mlp"],
    },
    gguf: GgufRules { ends: &["<eos>", "<turn|>"] },
    template: include_str!("gemma4.jinja"),
    is_drafter: false,
};

/// The drafters of Gemma 4's models.
pub static GEMMA4_DRAFTER: Architecture = Architecture {
    name: "gemma4-assistant",
    title: "Gemma 4's drafter",
    classes: &["Gemma4AssistantForCausalLM", "Gemma4UnifiedAssistantForCausalLM"],
    model_types: &["gemma4_assistant", "gemma4_unified_assistant", GEMMA4.model_types[0], GEMMA4.model_types[2]],
    norms: GEMMA4.norms,
    config: ConfigRules {
        vocab: GEMMA4.config.vocab,
        layers: 4,
        zeros: &[("hidden_size_per_layer_input", 256)],
        flags: &["attention_bias", "enable_moe_block", "use_double_wide_mlp"],
        has_experts: false,
        ..GEMMA4.config
    },
    gguf: GgufRules { ends: GEMMA4.gguf.ends },
    template: GEMMA4.template,
    is_drafter: true,
};

/// All families that Kiln can read.
pub static ALL: [&Architecture; 3] = [&GEMMA3, &GEMMA4, &GEMMA4_DRAFTER];

/// The families of models in messages: `Gemma 3 and Gemma 4`, where `word` is "and".
pub fn titles(word: &str) -> String {
    let titles: Vec<_> = ALL.iter().filter(|family| !family.is_drafter).map(|family| family.title).collect();
    titles.join(&format!(" {word} "))
}
