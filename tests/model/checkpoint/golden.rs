//! The golden cases in every spelling and layout: all give the same shape and the same bytes.

use kiln::model::architecture::GEMMA3;
use kiln::model::{
    AttentionShape, Checkpoint, LayerKind, Rope, Shape, SourceFormat, TensorId, Values, WeightFormat, config,
};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::files::{File, Tensor, decode_matrix, dir_with, dir_with_config, golden, read_matrix};

const CASES: [&str; 3] = ["tiny", "deep62", "wide_small"];

fn read(case: &str, file: &str) -> String {
    std::fs::read_to_string(golden(case).join(file)).unwrap()
}

fn golden_json(case: &str) -> Value {
    serde_json::from_str(&read(case, "golden.json")).unwrap()
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect()
}

/// `data`'s rows without their padding, which must be zero.
fn unpadded(data: &[u8], cols: usize, format: WeightFormat) -> Vec<u8> {
    let mut out = Vec::new();
    for row in data.chunks_exact(format.row_bytes(cols)) {
        let (elements, padding) = row.split_at(format.file_row_bytes(cols));
        assert!(padding.iter().all(|b| *b == 0), "padding");
        out.extend_from_slice(elements);
    }
    out
}

/// Asserts that every matrix of `c`, read as INT8, has its golden hash.
fn assert_golden_int8(c: &Checkpoint, case: &str) {
    let golden = golden_json(case);
    let mut matrices = 0;
    for id in TensorId::all(c.shape()).filter(|id| !id.is_vector()) {
        let (data, scales) = read_matrix(c, id, WeightFormat::Int8).unwrap();
        let wanted = &golden["int8"][id.name()];
        let [_, cols] = id.dims(c.shape());
        assert_eq!(sha256(&unpadded(&data, cols, WeightFormat::Int8)), wanted["q_sha256"], "{case} {id:?}");
        let scales: Vec<u8> = scales.iter().flat_map(|s| s.to_le_bytes()).collect();
        assert_eq!(sha256(&scales), wanted["scale_sha256"], "{case} {id:?}");
        matrices += 1;
    }
    assert_eq!(matrices, golden["int8"].as_object().unwrap().len());
}

#[test]
fn three_spellings_give_one_shape() {
    for case in CASES {
        let new = config::parse(&read(case, "config.json"), None).unwrap();
        let flat = config::parse(&read(case, "config.legacy_text.json"), None).unwrap();
        let nested = config::parse(&read(case, "config.legacy_mm.json"), None).unwrap();
        assert_eq!(new.eos, [1]);
        assert_eq!(nested.eos, [1, 106], "the nested spelling names both");
        assert_eq!(new, flat);
        assert_eq!(new, Shape { eos: vec![1], ..nested });
    }
    let nested = config::parse(&read("tiny", "multimodal/config.json"), None).unwrap();
    assert_eq!(nested, config::parse(&read("tiny", "config.json"), None).unwrap());
}

#[test]
fn the_shape_is_the_golden_one() {
    let shape = config::parse(&read("tiny", "config.json"), Some(&read("tiny", "generation_config.json"))).unwrap();
    let local = AttentionShape {
        heads: 4,
        kv_heads: 2,
        head_dim: 32,
        window: Some(16),
        rope: Rope::of(1e4),
        values: Values::Projected,
    };
    let wanted = Shape {
        architecture: &GEMMA3,
        vocab: 512,
        hidden: 128,
        ffn: 512,
        experts: None,
        local,
        global: AttentionShape { window: None, rope: Rope { factor: 8.0, ..Rope::of(1e6) }, ..local },
        layers: [[LayerKind::Local; 5].as_slice(), &[LayerKind::Global]].concat(),
        eps: 1e-6,
        query_pre_attn_scalar: 24.0,
        norms_values: false,
        scales_layers: false,
        softcap: None,
        max_context: 4096,
        tied: true,
        bos: 2,
        eos: vec![1],
        backbone: None,
        suppressed: Vec::new(),
    };
    assert_eq!(shape, wanted);
    let deep = config::parse(&read("deep62", "config.json"), None).unwrap();
    let globals: Vec<_> = (0..62).filter(|i| deep.layers[*i] == LayerKind::Global).collect();
    assert_eq!(globals, [5, 11, 17, 23, 29, 35, 41, 47, 53, 59]);
}

#[test]
fn absent_keys_have_the_defaults_of_transformers() {
    let shape = config::parse(r#"{"model_type": "gemma3_text"}"#, None).unwrap();
    assert_eq!((shape.vocab, shape.hidden, shape.ffn, shape.layers.len()), (262_208, 2304, 9216, 26));
    let AttentionShape { heads, kv_heads, head_dim, window, .. } = shape.local;
    assert_eq!((heads, kv_heads, head_dim, window), (8, 4, 256, Some(4096)));
    assert_eq!((shape.query_pre_attn_scalar, shape.eps, shape.max_context), (256.0, 1e-6, 131_072));
    assert_eq!((shape.local.rope, shape.global.rope), (Rope::of(1e4), Rope::of(1e6)));
    assert_eq!((shape.tied, shape.bos), (true, 2));
    assert_eq!(shape.eos, [1]);
    let globals: Vec<_> = (0..26).filter(|i| shape.layers[*i] == LayerKind::Global).collect();
    assert_eq!(globals, [5, 11, 17, 23]);
}

#[test]
fn the_hub_config_of_27b_is_read() {
    let hub = r#"{"architectures": ["Gemma3ForConditionalGeneration"], "boi_token_index": 255999,
        "eoi_token_index": 256000, "eos_token_id": [1, 106], "image_token_index": 262144, "initializer_range": 0.02,
        "mm_tokens_per_image": 256, "model_type": "gemma3", "text_config": {"head_dim": 128, "hidden_size": 5376,
        "intermediate_size": 21504, "model_type": "gemma3_text", "num_attention_heads": 32, "num_hidden_layers": 62,
        "num_key_value_heads": 16, "query_pre_attn_scalar": 168, "rope_scaling": {"factor": 8.0,
        "rope_type": "linear"}, "sliding_window": 1024}, "torch_dtype": "bfloat16",
        "vision_config": {"hidden_size": 1152}}"#;
    let generation = r#"{"bos_token_id": 2, "eos_token_id": [1, 106], "suppress_tokens": [5, 7], "top_k": 64}"#;
    let shape = config::parse(hub, Some(generation)).unwrap();
    let global = &shape.global;
    assert_eq!((shape.vocab, shape.hidden, global.q_width(), global.kv_width()), (262_208, 5376, 4096, 2048));
    assert_eq!((shape.query_pre_attn_scalar, global.rope.factor, shape.window()), (168.0, 8.0, 1024));
    assert_eq!((shape.eos, shape.suppressed), (vec![1, 106], vec![5, 7]));
}

#[test]
fn generation_config_adds_stop_tokens() {
    let shape = config::parse(&read("tiny", "config.json"), Some(r#"{"eos_token_id": [1, 106]}"#)).unwrap();
    assert_eq!(shape.eos, [1, 106]);
}

#[test]
fn a_written_config_reads_back_equal() {
    for case in CASES {
        let shape = config::parse(&read(case, "config.legacy_mm.json"), None).unwrap();
        assert_eq!(config::parse(&config::to_json(&shape), None).unwrap(), shape);
    }
    let tiny = config::parse(&read("tiny", "config.json"), None).unwrap();
    let odd = Shape {
        eps: 1.234_567_8e-5,
        global: AttentionShape { rope: Rope::of(12_345.679), ..tiny.global },
        query_pre_attn_scalar: 0.1,
        tied: false,
        eos: vec![1, 106, 7],
        suppressed: vec![9, 8],
        layers: vec![LayerKind::Global, LayerKind::Local],
        ..tiny
    };
    assert_eq!(config::parse(&config::to_json(&odd), None).unwrap(), odd);
    // The golden cases of Gemma 4 have the defaults.
    let tiny4 = config::parse(&read("tiny4", "config.json"), None).unwrap();
    let odd = Shape {
        eps: 1e-5,
        local: AttentionShape { rope: Rope::of(12_345.679), ..tiny4.local },
        global: AttentionShape { rope: Rope { rotated: 0.5, ..Rope::of(500.0) }, kv_heads: 2, ..tiny4.global },
        softcap: Some(12.5),
        ..tiny4
    };
    assert_eq!(config::parse(&config::to_json(&odd), None).unwrap(), odd);
}

/// The global layers' heads have keys of their own, or entries in per_layer_config.
#[test]
fn spellings_of_gemma_4_give_one_shape() {
    for case in ["tiny4", "wide4", "moe4", "moe_wide4"] {
        let new = config::parse(&read(case, "config.json"), None).unwrap();
        let flat = config::parse(&read(case, "config.hub_text.json"), None).unwrap();
        let nested = config::parse(&read(case, "config.hub_mm.json"), None).unwrap();
        assert_eq!(new, flat);
        assert_eq!(new, Shape { eos: vec![1], ..nested.clone() });
        assert_eq!(nested.eos, [1, 106]);
        assert_eq!(config::parse(&config::to_json(&new), None).unwrap(), new);
    }
    let shape = config::parse(&read("tiny4", "multimodal/config.json"), None).unwrap();
    let heads = |a: &AttentionShape| (a.heads, a.kv_heads, a.head_dim, a.window, a.values);
    assert_eq!(heads(&shape.local), (8, 4, 16, Some(16), Values::Projected));
    assert_eq!(heads(&shape.global), (8, 1, 32, None, Values::Keys));
    assert_eq!((shape.local.rope, shape.global.rope), (Rope::of(1e4), Rope { rotated: 0.25, ..Rope::of(1e6) }));
    assert_eq!((shape.softcap, shape.query_pre_attn_scalar, shape.window()), (Some(30.0), 1.0, 16));
}

#[test]
fn absent_keys_of_gemma_4_have_the_defaults_of_transformers() {
    let text = r#"{"model_type": "gemma4_unified_text", "hidden_size_per_layer_input": 0}"#;
    let shape = config::parse(text, None).unwrap();
    assert_eq!((shape.vocab, shape.hidden, shape.ffn, shape.layers.len()), (262_144, 2304, 9216, 30));
    assert_eq!((shape.window(), shape.softcap, shape.max_context, shape.tied), (512, None, 131_072, true));
    let heads = |a: &AttentionShape| (a.heads, a.kv_heads, a.head_dim, a.values);
    assert_eq!(heads(&shape.local), (8, 4, 256, Values::Projected));
    // Without attention_k_eq_v global layers have values of their own, and the local layers' number of heads.
    assert_eq!(heads(&shape.global), (8, 4, 512, Values::Projected));
    assert_eq!(shape.global.rope, Rope { rotated: 0.25, ..Rope::of(1e6) });
    let globals: Vec<_> = (0..30).filter(|i| shape.layers[*i] == LayerKind::Global).collect();
    assert_eq!(globals, [5, 11, 17, 23, 29]);
    // The last layer is global, whatever the list says.
    let local = r#"{"model_type": "gemma4", "hidden_size_per_layer_input": 0, "num_hidden_layers": 2,
        "layer_types": ["sliding_attention", "sliding_attention"], "num_global_key_value_heads": 2}"#;
    let shape = config::parse(local, None).unwrap();
    assert_eq!((&shape.layers[..], shape.global.kv_heads), (&[LayerKind::Local, LayerKind::Global][..], 4));
}

#[test]
fn int8_rows_have_the_golden_hashes() {
    for case in CASES {
        let c = Checkpoint::open(&golden(case)).unwrap();
        assert_eq!(c.source(), SourceFormat::Native(WeightFormat::Bf16));
        assert_golden_int8(&c, case);
    }
}

#[test]
fn bf16_rows_and_norms_have_the_golden_hashes() {
    for case in CASES {
        let c = Checkpoint::open(&golden(case)).unwrap();
        let golden = golden_json(case);
        for id in TensorId::all(c.shape()) {
            let bytes = if id.is_vector() {
                let vector = c.read_vector(id).unwrap();
                vector.iter().flat_map(|w| half::bf16::from_f32(*w).to_le_bytes()).collect()
            } else {
                let (data, _) = read_matrix(&c, id, WeightFormat::Bf16).unwrap();
                unpadded(&data, id.dims(c.shape())[1], WeightFormat::Bf16)
            };
            assert_eq!(sha256(&bytes), golden["weights"][id.name()]["bf16_sha256"], "{case} {id:?}");
        }
    }
}

#[test]
fn every_variant_of_tiny_is_the_same_model() {
    let shape = Checkpoint::open(&golden("tiny")).unwrap().shape().clone();
    let native = dir_with("tiny", &File::read(&golden("tiny/model.int8.safetensors")));
    let hub = dir_with("tiny", &File::read(&golden("tiny/multimodal/model.hub_layout_text_only.safetensors")));
    let in_memory = File::read(&golden("tiny/multimodal/model.safetensors")).rename(|name| {
        match name.strip_prefix("language_model.model.") {
            Some(rest) => format!("model.language_model.{rest}"),
            None => format!("model.{name}"),
        }
    });
    let in_memory = dir_with("tiny", &in_memory);
    let without_index = dir_with_config("tiny");
    for i in 1..=4 {
        let name = format!("model-0000{i}-of-00004.safetensors");
        std::fs::copy(golden("tiny/sharded").join(&name), without_index.path().join(&name)).unwrap();
    }
    for dir in [
        golden("tiny/sharded"),
        golden("tiny/multimodal"),
        native.path().into(),
        hub.path().into(),
        in_memory.path().into(),
        without_index.path().into(),
    ] {
        let c = Checkpoint::open(&dir).unwrap();
        assert_eq!(*c.shape(), shape, "{}", dir.display());
        assert_golden_int8(&c, "tiny");
    }
    assert_eq!(Checkpoint::open(native.path()).unwrap().source(), SourceFormat::Native(WeightFormat::Int8));
}

#[test]
fn a_model_inside_the_executable_is_the_same() {
    let bytes: &'static [u8] = Vec::leak(std::fs::read(golden("tiny/model.safetensors")).unwrap());
    let c = Checkpoint::from_static(&read("tiny", "config.json"), bytes).unwrap();
    assert_golden_int8(&c, "tiny");
    let error = Checkpoint::from_static(&read("tiny", "config.json"), &bytes[..bytes.len() - 1]).unwrap_err();
    assert!(error.to_string().contains("truncated"), "{error}");
}

/// `tiny` with every tensor in another type.
fn converted(dtype: &str) -> File {
    let mut file = File::read(&golden("tiny/model.safetensors"));
    for tensor in file.tensors.values_mut() {
        let values = tensor.bf16_values();
        let bytes = match dtype {
            "F32" => values.iter().flat_map(|v| v.to_le_bytes()).collect(),
            _ => values.iter().flat_map(|v| half::f16::from_f32(*v).to_le_bytes()).collect(),
        };
        *tensor = Tensor::new(dtype, &tensor.shape, bytes);
    }
    file
}

#[test]
fn f32_and_f16_sources_are_read() {
    let f32s = dir_with("tiny", &converted("F32"));
    let c = Checkpoint::open(f32s.path()).unwrap();
    assert_eq!(c.source(), SourceFormat::F32);
    assert_golden_int8(&c, "tiny");
    let bf16 = Checkpoint::open(&golden("tiny")).unwrap();
    let f16s = dir_with("tiny", &converted("F16"));
    let halves = Checkpoint::open(f16s.path()).unwrap();
    assert_eq!(halves.source(), SourceFormat::F16);
    for id in TensorId::all(c.shape()) {
        if id.is_vector() {
            assert_eq!(c.read_vector(id).unwrap(), bf16.read_vector(id).unwrap());
            assert_eq!(halves.read_vector(id).unwrap(), bf16.read_vector(id).unwrap());
        } else {
            let wanted = read_matrix(&bf16, id, WeightFormat::Bf16).unwrap();
            assert_eq!(read_matrix(&c, id, WeightFormat::Bf16).unwrap(), wanted);
            let near = decode_matrix(&halves, id, WeightFormat::Bf16);
            for (a, b) in near.iter().zip(decode_matrix(&bf16, id, WeightFormat::Bf16)) {
                assert!((a - b).abs() <= 1e-6, "{a} {b}");
            }
        }
    }
}

#[test]
fn f32_is_rounded_to_bf16_to_nearest_even() {
    let mut file = converted("F32");
    let norm = file.tensors.get_mut("model.embed_tokens.weight").unwrap();
    // One and a half units above an even and above an odd last bit.
    let ties = [f32::from_bits(0x3F80_8000), f32::from_bits(0x3F81_8000), f32::from_bits(0x3F80_8001)];
    for (i, v) in ties.iter().enumerate() {
        norm.bytes[i * 4..i * 4 + 4].copy_from_slice(&v.to_le_bytes());
    }
    let dir = dir_with("tiny", &file);
    let c = Checkpoint::open(dir.path()).unwrap();
    let (data, _) = read_matrix(&c, TensorId::Embedding, WeightFormat::Bf16).unwrap();
    assert_eq!(data[..6], [0x80, 0x3F, 0x82, 0x3F, 0x81, 0x3F]);
}

#[test]
fn blocks_of_rows_from_several_threads_are_the_whole() {
    let c = Checkpoint::open(&golden("wide_small")).unwrap();
    let id = TensorId::Embedding;
    let [rows, cols] = id.dims(c.shape());
    let whole = read_matrix(&c, id, WeightFormat::Int8).unwrap();
    let stride = WeightFormat::Int8.row_bytes(cols);
    assert_eq!((cols, stride), (168, 176));
    let (mut data, mut scales) = (vec![0u8; rows * stride], vec![0f32; rows]);
    std::thread::scope(|scope| {
        let blocks = data.chunks_mut(37 * stride).zip(scales.chunks_mut(37));
        for (i, (data, scales)) in blocks.enumerate() {
            let c = &c;
            scope.spawn(move || {
                let rows = i * 37..i * 37 + scales.len();
                let scales = bytemuck::cast_slice_mut(scales);
                c.read_rows(id, rows.clone(), WeightFormat::Int8, data, scales).unwrap();
                c.release(id, rows);
            });
        }
    });
    assert_eq!((data, scales), whole);
    assert_eq!(read_matrix(&c, id, WeightFormat::Int8).unwrap(), whole, "released pages are read again");
}

#[test]
fn a_head_of_its_own_comes_before_the_tie() {
    let mut file = File::read(&golden("tiny/model.safetensors"));
    let mut head = file.tensors["model.embed_tokens.weight"].clone();
    head.bytes.reverse();
    for b in head.bytes.chunks_exact_mut(2) {
        b.copy_from_slice(&half::bf16::from_f32(0.25).to_le_bytes());
    }
    for name in ["lm_head.weight", "language_model.lm_head.weight"] {
        file.tensors.insert(name.into(), head.clone());
        let dir = dir_with("tiny", &file);
        let c = Checkpoint::open(dir.path()).unwrap();
        assert!(!c.shape().tied);
        assert!(decode_matrix(&c, TensorId::Head, WeightFormat::Bf16).iter().all(|w| *w == 0.25));
        file.tensors.remove(name);
    }
    let tied = Checkpoint::open(&golden("tiny")).unwrap();
    let embedding = read_matrix(&tied, TensorId::Embedding, WeightFormat::Int8).unwrap();
    assert_eq!(read_matrix(&tied, TensorId::Head, WeightFormat::Int8).unwrap(), embedding);
}

#[test]
fn an_int8_source_is_not_kept_as_bf16() {
    let dir = dir_with("tiny", &File::read(&golden("tiny/model.int8.safetensors")));
    let c = Checkpoint::open(dir.path()).unwrap();
    let error = read_matrix(&c, TensorId::Embedding, WeightFormat::Bf16).unwrap_err();
    assert!(error.to_string().contains("INT8 already"), "{error}");
    assert_eq!(error.exit_code(), 2);
}
