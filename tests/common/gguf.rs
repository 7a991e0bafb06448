//! GGUF files for the tests, written without Kiln's own code.

use super::{Random, golden, golden_dir};
use half::f16;
use kiln::model::checkpoint::gguf::GgmlType;
use kiln::model::{BlockFormat, LayerKind, Shape};
use std::path::PathBuf;

/// The mixes of files that are most used, by their names.
pub const MOST_USED_MIXES: [&str; 5] = ["q4_0", "q4_k_m", "q5_k_m", "q6_k", "q8_0"];

/// A value of a key, as the file has it: its type and its bytes.
#[derive(Clone)]
pub struct Value(u32, Vec<u8>);

impl Value {
    pub fn u32(n: u32) -> Value {
        Value(4, n.to_le_bytes().to_vec())
    }

    pub fn f32(x: f32) -> Value {
        Value(6, x.to_le_bytes().to_vec())
    }

    pub fn bool(b: bool) -> Value {
        Value(7, vec![b.into()])
    }

    pub fn text(text: &str) -> Value {
        Value(8, length_and(text.as_bytes()))
    }

    /// A value of any type.
    pub fn raw(kind: u32, bytes: &[u8]) -> Value {
        Value(kind, bytes.to_vec())
    }

    /// A list of `count` elements of one type, whatever `bytes` has.
    pub fn list(kind: u32, count: u64, bytes: &[u8]) -> Value {
        Value(9, [&kind.to_le_bytes(), &count.to_le_bytes()[..], bytes].concat())
    }

    pub fn texts(texts: &[impl AsRef<str>]) -> Value {
        let bytes: Vec<u8> = texts.iter().flat_map(|text| length_and(text.as_ref().as_bytes())).collect();
        Value::list(8, texts.len() as u64, &bytes)
    }

    pub fn f32s(values: &[f32]) -> Value {
        Value::list(6, values.len() as u64, &values.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>())
    }

    pub fn i32s(values: &[i32]) -> Value {
        Value::list(5, values.len() as u64, &values.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>())
    }
}

/// A text as the file has it.
pub fn length_and(text: &[u8]) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes(), text].concat()
}

/// One tensor: its dimensions are row-major, as safetensors have them.
#[derive(Clone)]
pub struct Tensor {
    pub name: String,
    pub dims: Vec<u64>,
    pub kind: u32,
    pub bytes: Vec<u8>,
    /// The offset that the file claims, where it is another than the tensor's own.
    pub offset: Option<u64>,
}

impl Tensor {
    pub fn new(name: &str, dims: &[usize], kind: u32, bytes: Vec<u8>) -> Tensor {
        Tensor { name: name.into(), dims: dims.iter().map(|n| *n as u64).collect(), kind, bytes, offset: None }
    }

    pub fn f32(name: &str, dims: &[usize], values: &[f32]) -> Tensor {
        Tensor::new(name, dims, 0, values.iter().flat_map(|x| x.to_le_bytes()).collect())
    }
}

/// A file.
#[derive(Clone)]
pub struct GgufFile {
    pub version: u32,
    pub alignment: usize,
    pub keys: Vec<(String, Value)>,
    pub tensors: Vec<Tensor>,
    /// The counts that the file claims, where they are others than its own: of tensors, of keys.
    pub claims: [Option<u64>; 2],
}

impl Default for GgufFile {
    fn default() -> GgufFile {
        GgufFile { version: 3, alignment: 32, keys: Vec::new(), tensors: Vec::new(), claims: [None, None] }
    }
}

impl GgufFile {
    /// Adds a key, or gives it another value.
    pub fn set(&mut self, key: &str, value: Value) {
        self.remove(key);
        self.keys.push((key.into(), value));
    }

    pub fn remove(&mut self, key: &str) {
        self.keys.retain(|(name, _)| name != key);
    }

    pub fn tensor(&mut self, name: &str) -> &mut Tensor {
        self.tensors.iter_mut().find(|tensor| tensor.name == name).unwrap_or_else(|| panic!("no tensor {name}"))
    }

    /// The header, and the bytes of the tensors.
    pub fn parts(&self) -> (Vec<u8>, Vec<u8>) {
        let padded = |bytes: &mut Vec<u8>| bytes.resize(bytes.len().next_multiple_of(self.alignment), 0);
        let (mut head, mut data) = (b"GGUF".to_vec(), Vec::new());
        head.extend(self.version.to_le_bytes());
        head.extend(self.claims[0].unwrap_or(self.tensors.len() as u64).to_le_bytes());
        head.extend(self.claims[1].unwrap_or(self.keys.len() as u64).to_le_bytes());
        for (key, Value(kind, bytes)) in &self.keys {
            head.extend(length_and(key.as_bytes()));
            head.extend(kind.to_le_bytes());
            head.extend(bytes);
        }
        for tensor in &self.tensors {
            head.extend(length_and(tensor.name.as_bytes()));
            head.extend((tensor.dims.len() as u32).to_le_bytes());
            tensor.dims.iter().rev().for_each(|n| head.extend(n.to_le_bytes()));
            head.extend(tensor.kind.to_le_bytes());
            head.extend(tensor.offset.unwrap_or(data.len() as u64).to_le_bytes());
            data.extend(&tensor.bytes);
            padded(&mut data);
        }
        padded(&mut head);
        (head, data)
    }

    pub fn bytes(&self) -> Vec<u8> {
        let (head, data) = self.parts();
        [head, data].concat()
    }
}

/// The type of matrices.
#[derive(Clone, Copy)]
pub enum Float {
    F32,
    F16,
    Bf16,
}

/// A golden case of Gemma 4 as a GGUF file, as a converter writes it: norms are F32 as they are, heads stand by kind of layer,
/// and a tensor divides the global layers' frequencies.
pub fn golden_gemma4(case: &str, float: Float) -> GgufFile {
    gemma4(case, "gemma4", &json(&golden(case).join("config.hub_text.json")), float)
}

/// The golden drafter of Gemma 4 as a GGUF file.
pub fn golden_drafter(float: Float) -> GgufFile {
    let outer = json(&golden("drafter4").join("config.hub.json"));
    let mut file = gemma4("drafter4", "gemma4-assistant", &outer["text_config"], float);
    let number = |key: &serde_json::Value| Value::u32(key.as_u64().unwrap() as u32);
    let layers = &outer["text_config"]["num_hidden_layers"];
    file.set("gemma4-assistant.embedding_length_out", number(&outer["backbone_hidden_size"]));
    file.set("gemma4-assistant.nextn_predict_layers", number(layers));
    file.set("gemma4-assistant.attention.shared_kv_layers", number(layers));
    file
}

fn json(path: &std::path::Path) -> serde_json::Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn gemma4(case: &str, family: &str, config: &serde_json::Value, float: Float) -> GgufFile {
    let size = |key: &str| config[key].as_u64().unwrap() as u32;
    let number = |key: &str| Value::u32(size(key));
    let real = |value: &serde_json::Value| Value::f32(value.as_f64().unwrap() as f32);
    let is_local = |kind: &serde_json::Value| kind == "sliding_attention";
    let kinds: Vec<bool> = config["layer_types"].as_array().unwrap().iter().map(is_local).collect();
    let kv = |local: &bool| size(if *local { "num_key_value_heads" } else { "num_global_key_value_heads" }) as i32;
    let rope = &config["rope_parameters"];
    let mut file = GgufFile::default();
    file.set("general.architecture", Value::text(family));
    for (key, value) in [
        ("context_length", number("max_position_embeddings")),
        ("embedding_length", number("hidden_size")),
        ("block_count", number("num_hidden_layers")),
        ("feed_forward_length", number("intermediate_size")),
        ("attention.head_count", number("num_attention_heads")),
        ("attention.head_count_kv", Value::i32s(&kinds.iter().map(kv).collect::<Vec<i32>>())),
        ("attention.key_length", number("global_head_dim")),
        ("attention.value_length", number("global_head_dim")),
        ("attention.key_length_swa", number("head_dim")),
        ("attention.value_length_swa", number("head_dim")),
        ("attention.layer_norm_rms_epsilon", real(&config["rms_norm_eps"])),
        ("attention.sliding_window", number("sliding_window")),
        ("attention.sliding_window_pattern", bools(&kinds)),
        ("attention.shared_kv_layers", Value::u32(0)),
        ("embedding_length_per_layer_input", Value::u32(0)),
        ("rope.dimension_count", number("global_head_dim")),
        ("rope.dimension_count_swa", number("head_dim")),
        ("rope.freq_base", real(&rope["full_attention"]["rope_theta"])),
        ("rope.freq_base_swa", real(&rope["sliding_attention"]["rope_theta"])),
    ] {
        file.set(&format!("{family}.{key}"), value);
    }
    if config["num_experts"].is_number() {
        for (key, name) in [
            ("num_experts", "expert_count"),
            ("top_k_experts", "expert_used_count"),
            ("moe_intermediate_size", "expert_feed_forward_length"),
        ] {
            file.set(&format!("{family}.{name}"), number(key));
        }
    }
    if config["final_logit_softcapping"].is_number() {
        file.set(&format!("{family}.final_logit_softcapping"), real(&config["final_logit_softcapping"]));
    }
    let half = size("global_head_dim") as usize / 2;
    let divisors: Vec<f32> = (0..half).map(|j| if 4 * j < half { 1.0 } else { 1e30 }).collect();
    file.tensors.push(Tensor::f32("rope_freqs.weight", &[half], &divisors));
    put_tensors(&mut file, case, float, 0.0);
    file
}

fn bools(values: &[bool]) -> Value {
    Value::list(7, values.len() as u64, &values.iter().map(|value| u8::from(*value)).collect::<Vec<u8>>())
}

/// A golden case as a GGUF file, as a converter writes it: norms have 1 added and are F32.
pub fn golden_model(case: &str, float: Float) -> GgufFile {
    let config: serde_json::Value =
        serde_json::from_slice(&std::fs::read(golden(case).join("config.json")).unwrap()).unwrap();
    let number = |key: &str| Value::u32(config[key].as_u64().unwrap() as u32);
    let full = &config["rope_parameters"]["full_attention"];
    let real = |value: &serde_json::Value| Value::f32(value.as_f64().unwrap() as f32);
    let mut file = GgufFile::default();
    file.set("general.architecture", Value::text("gemma3"));
    for (key, value) in [
        ("context_length", number("max_position_embeddings")),
        ("embedding_length", number("hidden_size")),
        ("block_count", number("num_hidden_layers")),
        ("feed_forward_length", number("intermediate_size")),
        ("attention.head_count", number("num_attention_heads")),
        ("attention.head_count_kv", number("num_key_value_heads")),
        ("attention.key_length", number("head_dim")),
        ("attention.value_length", number("head_dim")),
        ("attention.layer_norm_rms_epsilon", real(&config["rms_norm_eps"])),
        ("attention.sliding_window", number("sliding_window")),
        ("rope.freq_base", real(&full["rope_theta"])),
        ("rope.scaling.type", Value::text("linear")),
        ("rope.scaling.factor", real(&full["factor"])),
    ] {
        file.set(&format!("gemma3.{key}"), value);
    }
    put_tensors(&mut file, case, float, 1.0);
    file
}

/// Adds a golden case's tensors, with a number added to vectors.
fn put_tensors(file: &mut GgufFile, case: &str, float: Float, added: f32) {
    let bytes = std::fs::read(golden_dir(case).join("model.safetensors")).unwrap();
    let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let mut tensors = tensors.tensors();
    tensors.sort_by(|(a, _), (b, _)| a.cmp(b));
    for (name, tensor) in tensors {
        let values = tensor.data().chunks_exact(2).map(|b| half::bf16::from_le_bytes([b[0], b[1]]).to_f32());
        let (name, shape) = (renamed(&name), tensor.shape());
        file.tensors.push(match float {
            _ if shape.len() == 1 || name.ends_with("ffn_gate_inp.weight") => {
                Tensor::f32(&name, shape, &values.map(|w| w + added).collect::<Vec<_>>())
            }
            Float::F32 => Tensor::f32(&name, shape, &values.collect::<Vec<_>>()),
            Float::F16 => {
                Tensor::new(&name, shape, 1, values.flat_map(|w| half::f16::from_f32(w).to_le_bytes()).collect())
            }
            Float::Bf16 => Tensor::new(&name, shape, 30, tensor.data().to_vec()),
        });
    }
}

/// A tensor's name in GGUF files.
pub fn renamed(name: &str) -> String {
    if name.ends_with("_projection.weight") {
        return format!("nextn.{name}");
    }
    let name = name.strip_prefix("model.").unwrap_or(name);
    let whole = [("embed_tokens.weight", "token_embd.weight"), ("norm.weight", "output_norm.weight")];
    if let Some((_, new)) = whole.iter().find(|(old, _)| *old == name) {
        return (*new).into();
    }
    let parts = [
        ("input_layernorm", "attn_norm"),
        ("post_attention_layernorm", "post_attention_norm"),
        ("pre_feedforward_layernorm", "ffn_norm"),
        ("post_feedforward_layernorm", "post_ffw_norm"),
        ("self_attn.q_norm", "attn_q_norm"),
        ("self_attn.k_norm", "attn_k_norm"),
        ("self_attn.q_proj", "attn_q"),
        ("self_attn.k_proj", "attn_k"),
        ("self_attn.v_proj", "attn_v"),
        ("self_attn.o_proj", "attn_output"),
        ("mlp.gate_proj", "ffn_gate"),
        ("mlp.up_proj", "ffn_up"),
        ("mlp.down_proj", "ffn_down"),
        ("layer_scalar", "layer_output_scale"),
        ("post_feedforward_layernorm_1", "post_ffw_norm_1"),
        ("pre_feedforward_layernorm_2", "pre_ffw_norm_2"),
        ("post_feedforward_layernorm_2", "post_ffw_norm_2"),
        ("router.proj", "ffn_gate_inp"),
        ("experts.gate_up_proj", "ffn_gate_up_exps"),
        ("experts.down_proj", "ffn_down_exps"),
    ];
    let factors = [("router.scale", "ffn_gate_inp.scale"), ("router.per_expert_scale", "ffn_down_exps.scale")];
    let (layer, rest) = name.strip_prefix("layers.").unwrap().split_once('.').unwrap();
    if let Some((_, new)) = factors.iter().find(|(old, _)| *old == rest) {
        return format!("blk.{layer}.{new}");
    }
    let (_, new) = parts.iter().find(|(old, _)| rest.strip_suffix(".weight").unwrap_or(rest) == *old).unwrap();
    format!("blk.{layer}.{new}.weight")
}

/// Adds the tokenizer of a tokenizer.json, as SentencePiece has it: a token's score follows from the rank of its first
/// merge, and the type of what is cut out of a text from whether it is special.
pub fn add_tokenizer(file: &mut GgufFile, tokenizer_json: &[u8]) {
    let json: serde_json::Value = serde_json::from_slice(tokenizer_json).unwrap();
    let mut tokens: Vec<(String, f32, i32)> = Vec::new();
    let mut put = |id: &serde_json::Value, text: &str, score: f32, kind: i32| {
        let id = id.as_u64().unwrap() as usize;
        tokens.resize(tokens.len().max(id + 1), (String::new(), 0.0, 5));
        tokens[id] = (text.into(), score, kind);
    };
    let vocab = json["model"]["vocab"].as_object().unwrap();
    for (text, id) in vocab {
        let is_byte = text.len() == 6 && text.starts_with("<0x") && text.ends_with('>');
        // Single characters come behind all that merges make.
        put(id, text, if is_byte { 0.0 } else { -1e6 }, if is_byte { 6 } else { 1 });
    }
    let mut ranks = std::collections::HashMap::new();
    for pair in json["model"]["merges"].as_array().unwrap() {
        let joined = match pair.as_str() {
            Some(pair) => pair.replacen(' ', "", 1),
            None => pair.as_array().unwrap().iter().map(|part| part.as_str().unwrap()).collect(),
        };
        let next = ranks.len();
        ranks.entry(joined).or_insert(next);
    }
    for (text, rank) in &ranks {
        put(&vocab[text], text, -(*rank as f32), 1);
    }
    for token in json["added_tokens"].as_array().unwrap() {
        let text = token["content"].as_str().unwrap();
        let special = token["special"] == true || text.starts_with("<unused") || text == "<mask>" || text == "[@BOS@]";
        match special {
            true => put(&token["id"], text, -1000.0, 3),
            false => put(&token["id"], &text.replace('▁', " "), -1000.0, 4),
        }
    }
    file.set("tokenizer.ggml.model", Value::text("llama"));
    file.set("tokenizer.ggml.tokens", Value::texts(&tokens.iter().map(|t| &t.0).collect::<Vec<_>>()));
    file.set("tokenizer.ggml.scores", Value::f32s(&tokens.iter().map(|t| t.1).collect::<Vec<_>>()));
    file.set("tokenizer.ggml.token_type", Value::i32s(&tokens.iter().map(|t| t.2).collect::<Vec<_>>()));
    file.set("tokenizer.ggml.bos_token_id", Value::u32(2));
    file.set("tokenizer.ggml.eos_token_id", Value::u32(1));
    file.set("tokenizer.ggml.add_bos_token", Value::bool(true));
}

/// Rows of `cols` random weights of about the same size in each type, in whole random blocks.
pub fn random_rows(random: &mut Random, format: BlockFormat, rows: usize, cols: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..rows * format.row_bytes(cols)).map(|_| random.bits() as u8).collect();
    for block in bytes.chunks_exact_mut(format.block_bytes()) {
        let mut put = |at: usize, size: f32| {
            block[at..at + 2].copy_from_slice(&f16::from_f32(size * (1.0 + 0.5 * random.real())).to_le_bytes());
        };
        // A weight is within 0.1 or so.
        let (size, least) = match format {
            BlockFormat::Q4_0 => (0.013, 0.0),
            BlockFormat::Q4_1 => (0.013, -0.1),
            BlockFormat::Q5_0 => (6.5e-3, 0.0),
            BlockFormat::Q5_1 => (6.5e-3, -0.1),
            BlockFormat::Q8_0 => (8e-4, 0.0),
            BlockFormat::Q2K => (9e-3, 0.013),
            BlockFormat::Q3K => (1.2e-3, 0.0),
            BlockFormat::Q4K => (1.2e-4, 9e-4),
            BlockFormat::Q5K => (6e-5, 9e-4),
            BlockFormat::Q6K => (4.5e-5, 0.0),
            BlockFormat::Iq4Nl => (9e-4, 0.0),
            BlockFormat::Iq4Xs => (5e-5, 0.0),
        };
        put(format.scales_at(), size);
        if format.has_offset() {
            put(format.scales_at() + 2, least);
        }
    }
    bytes
}

/// A file of a shape, before its tensors. Every so many layers, as the shape has them, is global.
pub fn file_of(shape: &Shape) -> GgufFile {
    let mut file = GgufFile::default();
    let pattern = shape.layers.iter().position(|kind| *kind == LayerKind::Global).map_or(shape.layers.len(), |i| i) + 1;
    file.set("general.architecture", Value::text("gemma3"));
    for (key, value) in [
        ("context_length", shape.max_context),
        ("embedding_length", shape.hidden),
        ("block_count", shape.layers.len()),
        ("feed_forward_length", shape.ffn),
        ("attention.head_count", shape.local.heads),
        ("attention.head_count_kv", shape.local.kv_heads),
        ("attention.key_length", shape.local.head_dim),
        ("attention.value_length", shape.local.head_dim),
        ("attention.sliding_window", shape.window()),
        ("attention.sliding_window_pattern", pattern),
    ] {
        file.set(&format!("gemma3.{key}"), Value::u32(value as u32));
    }
    file.set("gemma3.attention.layer_norm_rms_epsilon", Value::f32(1e-6));
    file.set("gemma3.rope.freq_base", Value::f32(1e6));
    file
}

/// The number in a file of a quantised type.
pub fn code_of(format: BlockFormat) -> u32 {
    let is_named = |t: &GgmlType| t.name.eq_ignore_ascii_case(format.name());
    (0..64).filter_map(GgmlType::of).find(is_named).unwrap().code
}

/// A model of a shape with random weights, whose matrices have the types that `format` gives their names.
pub fn random_model(shape: &Shape, seed: u64, format: impl Fn(&str) -> BlockFormat) -> (tempfile::TempDir, PathBuf) {
    let mut random = Random(seed);
    let mut file = file_of(shape);
    let (heads, kv_heads) = (shape.local.q_width(), shape.local.kv_width());
    let mut put = |name: &str, rows: usize, cols: usize| {
        let format = format(name);
        let code = code_of(format);
        let bytes = random_rows(&mut random, format, rows, cols);
        file.tensors.push(Tensor::new(&format!("{name}.weight"), &[rows, cols], code, bytes));
    };
    put("token_embd", shape.vocab, shape.hidden);
    for layer in 0..shape.layers.len() {
        for (name, rows, cols) in [
            ("attn_q", heads, shape.hidden),
            ("attn_k", kv_heads, shape.hidden),
            ("attn_v", kv_heads, shape.hidden),
            ("attn_output", shape.hidden, heads),
            ("ffn_gate", shape.ffn, shape.hidden),
            ("ffn_up", shape.ffn, shape.hidden),
            ("ffn_down", shape.hidden, shape.ffn),
        ] {
            put(&format!("blk.{layer}.{name}"), rows, cols);
        }
    }
    let norms = ["attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"].map(|name| (name, shape.hidden));
    for layer in 0..shape.layers.len() {
        let of_heads = [("attn_q_norm", shape.local.head_dim), ("attn_k_norm", shape.local.head_dim)];
        for (name, width) in norms.into_iter().chain(of_heads) {
            let weights: Vec<f32> = (0..width).map(|_| 1.0 + 0.3 * random.real()).collect();
            file.tensors.push(Tensor::f32(&format!("blk.{layer}.{name}.weight"), &[width], &weights));
        }
    }
    file.tensors.push(Tensor::f32("output_norm.weight", &[shape.hidden], &vec![1.0; shape.hidden]));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.gguf");
    std::fs::write(&path, file.bytes()).unwrap();
    (dir, path)
}
