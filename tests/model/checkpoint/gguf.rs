//! Models as GGUF files: the same as from safetensors, in every type of matrix, whole and split; and wrong ones.

use std::path::Path;

use kiln::engine::ModelFiles;
use kiln::model::checkpoint::gguf::Gguf;
use kiln::model::write::{WriteMonitor, quantize::quantize};
use kiln::model::{BlockFormat, Checkpoint, LayerKind, Role, Rope, Shape, SourceFormat, TensorId, WeightFormat};
use sha2::{Digest, Sha256};

use super::files::{bad_input, decode_matrix, golden, read_matrix};
use crate::common::gguf::{Float, GgufFile, Tensor, Value, code_of, golden_gemma4, golden_model};
use crate::common::golden_dir;

fn open(file: &GgufFile) -> kiln::Result<Checkpoint> {
    Checkpoint::from_gguf(Gguf::from_bytes(file.bytes())?)
}

fn refusal(file: &GgufFile) -> String {
    bad_input(open(file).map(drop))
}

/// The error for tiny's file after a change.
fn refused(change: impl FnOnce(&mut GgufFile)) -> String {
    let mut file = golden_model("tiny", Float::Bf16);
    change(&mut file);
    refusal(&file)
}

/// The shape of a golden case, with the root that scores are divided by as it follows from the layers.
fn golden_shape(case: &str) -> Shape {
    let shape = Checkpoint::open(&golden(case)).unwrap().shape().clone();
    let (heads, head_dim) = (shape.local.heads, shape.local.head_dim);
    let width = if shape.layers.len() == 62 { shape.hidden / heads } else { head_dim };
    Shape { query_pre_attn_scalar: width as f32, ..shape }
}

/// Norms as they are, heads by kind of layer, layers' scalars, and the divisors of frequencies.
#[test]
fn a_gguf_file_of_gemma_4_is_the_model_that_it_was_made_of() {
    for case in ["tiny4", "wide4", "moe4", "moe_wide4"] {
        let wanted = Checkpoint::open(&golden_dir(case)).unwrap();
        for float in [Float::Bf16, Float::F32] {
            let found = open(&golden_gemma4(case, float)).unwrap();
            assert_eq!(found.shape(), wanted.shape(), "{case}");
            for id in TensorId::all(wanted.shape()) {
                let [rows, cols] = id.dims(wanted.shape());
                if id.is_vector() {
                    assert_eq!(found.read_vector(id).unwrap(), wanted.read_vector(id).unwrap(), "{case} {id:?}");
                    continue;
                }
                let mut values = vec![0f32; rows * cols];
                found.decode_rows(id, 0..rows, &mut values).unwrap();
                assert!(values == decode_matrix(&wanted, id, WeightFormat::Bf16), "{case} {id:?}");
            }
        }
    }
}

/// The golden cases have the defaults.
#[test]
fn constants_of_gemma_4_are_those_of_the_file() {
    let mut file = golden_gemma4("tiny4", Float::Bf16);
    for (key, value) in [
        ("attention.layer_norm_rms_epsilon", 1e-5),
        ("rope.freq_base", 500.0),
        ("rope.freq_base_swa", 2e4),
        ("final_logit_softcapping", 12.5),
    ] {
        file.set(&format!("gemma4.{key}"), Value::f32(value));
    }
    let divisors: Vec<f32> = (0..16).map(|pair| if pair < 8 { 1.0 } else { 1e30 }).collect();
    *file.tensor("rope_freqs.weight") = Tensor::f32("rope_freqs.weight", &[16], &divisors);
    let shape = open(&file).unwrap().shape().clone();
    assert_eq!((shape.eps, shape.softcap), (1e-5, Some(12.5)));
    assert_eq!((shape.local.rope, shape.global.rope), (Rope::of(2e4), Rope { rotated: 0.5, ..Rope::of(500.0) }));
}

/// Parts of Gemma 4 that Kiln does not compute, and lists that contradict each other, are refused in a line that names them.
#[test]
fn wrong_gguf_files_of_gemma_4_are_refused() {
    let refused = |change: &dyn Fn(&mut GgufFile)| {
        let mut file = golden_gemma4("tiny4", Float::Bf16);
        change(&mut file);
        refusal(&file)
    };
    let with = |key: &str, value: Value| refused(&|f| f.set(&format!("gemma4.{key}"), value.clone()));
    for (key, value) in [
        ("embedding_length_per_layer_input", Value::u32(256)),
        ("attention.shared_kv_layers", Value::u32(2)),
        ("attention.head_count_kv", Value::i32s(&[4, 4, 2, 1, 4, 4, 4, 1])),
        ("attention.head_count_kv", Value::i32s(&[4, 4, 4, 1])),
        ("attention.head_count_kv", Value::i32s(&[4, 4, 4, 0, 4, 4, 4, 0])),
        ("attention.value_length", Value::u32(16)),
        ("rope.dimension_count_swa", Value::u32(8)),
        ("final_logit_softcapping", Value::f32(-1.0)),
    ] {
        let line = with(key, value);
        assert!(line.contains(key), "{key}: {line}");
    }
    let freqs = |values: &'static [f32]| {
        refused(&|f| *f.tensor("rope_freqs.weight") = Tensor::f32("rope_freqs.weight", &[values.len()], values))
    };
    assert!(freqs(&[1.0, 1.0, 8.0, 1e30]).contains("rope_freqs.weight"));
    assert!(freqs(&[1.0, 1e30, 1.0, 1e30]).contains("rope_freqs.weight"));
    let without = |name: &'static str| refused(&|f| f.tensors.retain(|tensor| tensor.name != name));
    for name in ["rope_freqs.weight", "blk.1.layer_output_scale.weight", "blk.1.attn_v.weight"] {
        assert!(without(name).contains(name), "{name}");
    }
}

#[test]
fn a_gguf_file_is_the_model_that_it_was_made_of() {
    for case in ["tiny", "deep62"] {
        let wanted = Checkpoint::open(&golden(case)).unwrap();
        for (float, source) in [
            (Float::Bf16, SourceFormat::Native(WeightFormat::Bf16)),
            (Float::F32, SourceFormat::F32),
            (Float::F16, SourceFormat::F16),
        ] {
            let found = open(&golden_model(case, float)).unwrap();
            assert_eq!((found.shape(), found.source()), (&golden_shape(case), source), "{case}");
            for id in TensorId::all(wanted.shape()) {
                if id.is_vector() {
                    assert_eq!(found.read_vector(id).unwrap(), wanted.read_vector(id).unwrap(), "{case} {id:?}");
                    continue;
                }
                let [rows, cols] = id.dims(wanted.shape());
                let mut values = vec![0f32; rows * cols];
                found.decode_rows(id, 0..rows, &mut values).unwrap();
                let exact = decode_matrix(&wanted, id, WeightFormat::Bf16);
                match float {
                    // Small weights lose bits in F16.
                    Float::F16 => assert!(values.iter().zip(&exact).all(|(a, b)| (a - b).abs() < 1e-6), "{id:?}"),
                    _ => {
                        assert_eq!(values, exact, "{case} {id:?}");
                        for format in WeightFormat::MADE {
                            let rows = |c| read_matrix(c, id, format).unwrap();
                            assert_eq!(rows(&found), rows(&wanted), "{case} {id:?}");
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn every_type_is_decoded_to_the_bits_of_the_package_that_wrote_it() {
    let checkpoint = Checkpoint::open(&golden("gguf/model.gguf")).unwrap();
    let shape = checkpoint.shape();
    assert_eq!(shape.layers, [LayerKind::Local, LayerKind::Global]);
    assert_eq!((shape.vocab, shape.hidden, shape.window(), shape.global.rope.factor), (96, 256, 4, 8.0));
    assert_eq!((shape.local.rope.theta, shape.global.rope.theta, shape.query_pre_attn_scalar), (1e4, 1e6, 64.0));
    let json = std::fs::read(golden("gguf/golden.json")).unwrap();
    let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
    let names = [
        (Role::Q, "attn_q"),
        (Role::K, "attn_k"),
        (Role::V, "attn_v"),
        (Role::O, "attn_output"),
        (Role::Gate, "ffn_gate"),
        (Role::Up, "ffn_up"),
        (Role::Down, "ffn_down"),
    ];
    let head = (TensorId::Head, "output".into());
    let layers = names.iter().flat_map(|(role, name)| {
        (0..2).map(move |layer| (TensorId::Layer(layer, *role), format!("blk.{layer}.{name}")))
    });
    for (id, name) in layers.chain([(TensorId::Embedding, "token_embd".into()), head]) {
        let [rows, cols] = id.dims(shape);
        let mut values = vec![0f32; rows * cols];
        // In two parts, of which the second does not begin with the first row.
        let (head, tail) = values.split_at_mut(5 * cols);
        checkpoint.decode_rows(id, 0..5, head).unwrap();
        checkpoint.decode_rows(id, 5..rows, tail).unwrap();
        let bytes: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
        let digest: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(json["sha256"][&name], *digest, "{name}");
    }
    let norm = checkpoint.read_vector(TensorId::Layer(1, Role::QNorm)).unwrap();
    let bytes: Vec<u8> = norm.iter().flat_map(|w| (w + 1.0).to_le_bytes()).collect();
    let digest: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(json["sha256"]["blk.1.attn_q_norm"], *digest);
}

/// Each quantised type is read in the format with the same values, whatever is asked for, and in no other.
#[test]
fn quantised_types_stay_as_they_are() {
    let checkpoint = Checkpoint::open(&golden("gguf/model.gguf")).unwrap();
    let mut types = 0;
    for id in TensorId::all(checkpoint.shape()).filter(|id| !id.is_vector()) {
        let SourceFormat::Blocks(blocks) = checkpoint.stored_as(id) else { continue };
        types += 1;
        let [rows, cols] = id.dims(checkpoint.shape());
        let mut values = vec![0f32; rows * cols];
        checkpoint.decode_rows(id, 0..rows, &mut values).unwrap();
        for asked in WeightFormat::MADE {
            checkpoint.check_format(asked).unwrap();
            assert_eq!(checkpoint.formats(asked)(id), blocks.kept_as(), "{id:?}");
        }
        assert_eq!(decode_matrix(&checkpoint, id, blocks.kept_as()), values, "{id:?}");
        for format in WeightFormat::ALL.into_iter().filter(|format| *format != blocks.kept_as()) {
            let line = bad_input(read_matrix(&checkpoint, id, format).map(drop));
            assert!(line.contains(&format!("is {}, of which no ", blocks.name().to_uppercase())), "{line}");
        }
    }
    assert_eq!(types, 13, "of 16 matrices");
    // One matrix of such a type among others.
    let mut file = golden_model("tiny", Float::Bf16);
    *file.tensor("blk.3.ffn_up.weight") = Tensor::new("blk.3.ffn_up.weight", &[512, 128], 8, vec![0; 512 * 4 * 34]);
    let checkpoint = open(&file).unwrap();
    assert_eq!(checkpoint.source(), SourceFormat::Native(WeightFormat::Bf16));
    checkpoint.check_format(WeightFormat::Bf16).unwrap();
}

/// A directory of such types would be read by nobody.
#[test]
fn no_directory_is_made_of_quantised_types() {
    let place = tempfile::tempdir().unwrap();
    let out = place.path().join("out");
    let monitor = WriteMonitor { progress: &|_, _| {}, cancel: &kiln::Cancel::default() };
    for format in [WeightFormat::Int8, WeightFormat::Int4] {
        let line = bad_input(quantize(&golden("gguf/model.gguf"), &out, format, &monitor).map(drop));
        assert!(line.contains("is Q6_K, which no model directory has; use a BF16 file"), "{line}");
        assert!(!out.exists());
    }
}

#[test]
fn a_scale_that_is_not_finite_is_refused_with_its_row() {
    for format in BlockFormat::ALL {
        let code = code_of(format);
        for scale in [[0x00, 0x7E], [0x00, 0x7C]] {
            let bytes = format.row_bytes(256);
            let mut blocks = vec![1; 512 * bytes];
            let at = format.scales_at();
            blocks[7 * bytes + at..][..2].copy_from_slice(&scale);
            let mut file = golden_model("tiny", Float::F32);
            file.set("gemma3.feed_forward_length", Value::u32(256));
            for i in 0..6 {
                for (name, dims) in [("ffn_gate", [256, 128]), ("ffn_up", [256, 128]), ("ffn_down", [128, 256])] {
                    let name = format!("blk.{i}.{name}.weight");
                    *file.tensor(&name) = Tensor::f32(&name, &dims, &vec![0.0; 256 * 128]);
                }
            }
            *file.tensor("blk.2.ffn_down.weight") =
                Tensor::new("blk.2.ffn_down.weight", &[128, 256], code, blocks[..128 * bytes].to_vec());
            let checkpoint = open(&file).unwrap();
            let id = TensorId::Layer(2, Role::Down);
            let mut values = vec![0f32; 128 * 256];
            let line = bad_input(checkpoint.decode_rows(id, 0..128, &mut values));
            assert!(line.contains("blk.2.ffn_down.weight holds the scale") && line.contains("in row 7"), "{line}");
            let line = bad_input(read_matrix(&checkpoint, id, format.kept_as()).map(drop));
            assert!(line.contains("blk.2.ffn_down.weight holds the scale") && line.contains("in row 7"), "{line}");
        }
    }
}

/// What keys that are left out mean, as in llama.cpp.
#[test]
fn keys_have_their_defaults() {
    let shape = |change: &dyn Fn(&mut GgufFile)| {
        let mut file = golden_model("tiny", Float::Bf16);
        change(&mut file);
        open(&file).unwrap().shape().clone()
    };
    let tiny = golden_shape("tiny");
    for key in ["attention.key_length", "attention.value_length"] {
        assert_eq!(shape(&|f| f.remove(&format!("gemma3.{key}"))), tiny);
    }
    let scaling = |f: &mut GgufFile| f.remove("gemma3.rope.scaling.type");
    assert_eq!(shape(&scaling), tiny);
    assert_eq!(shape(&|f| f.set("gemma3.rope.scaling.type", Value::text("none"))).global.rope.factor, 1.0);
    assert_eq!(shape(&|f| f.remove("gemma3.rope.scaling.factor")).global.rope.factor, 1.0);
    assert_eq!(shape(&|f| f.set("gemma3.rope.scaling.factor", Value::f32(0.0))).global.rope.factor, 1.0);
    assert_eq!(shape(&|f| f.remove("gemma3.rope.freq_base")).global.rope.theta, 1e6);
    assert_eq!(shape(&|f| f.remove("gemma3.attention.layer_norm_rms_epsilon")), tiny);
    assert_eq!(shape(&|f| f.set("gemma3.rope.freq_base_swa", Value::f32(500.0))).local.rope.theta, 500.0);
    let global = shape(&|f| f.remove("gemma3.attention.sliding_window"));
    assert_eq!(global.layers, [LayerKind::Global; 6]);
    let pattern = |value: Value| shape(&|f| f.set("gemma3.attention.sliding_window_pattern", value.clone())).layers;
    let (local, global) = (LayerKind::Local, LayerKind::Global);
    assert_eq!(pattern(Value::u32(3)), [local, local, global, local, local, global]);
    let listed = pattern(Value::list(7, 6, &[1, 0, 1, 1, 0, 1]));
    assert_eq!(listed, [local, global, local, local, global, local]);
    let heads = Value::list(4, 6, &[4u32; 6].map(u32::to_le_bytes).concat());
    assert_eq!(shape(&|f| f.set("gemma3.attention.head_count", heads.clone())), tiny);
    // What ends a reply.
    let ends = |f: &mut GgufFile| {
        f.set("tokenizer.ggml.eos_token_id", Value::u32(106));
        f.set("tokenizer.ggml.eot_token_id", Value::u32(9));
        f.set("tokenizer.ggml.tokens", Value::texts(&["<pad>", "<eos>", "<bos>", "<end_of_turn>"]));
        f.set("tokenizer.ggml.bos_token_id", Value::u32(7));
    };
    assert_eq!((shape(&ends).eos, shape(&ends).bos), (vec![1, 3, 9, 106], 7));
    // Tokens that are never chosen.
    let suppressing = |ids: &[i32]| {
        let mut file = golden_model("tiny", Float::Bf16);
        file.set("tokenizer.ggml.suppress_tokens", Value::i32s(ids));
        file
    };
    assert_eq!(open(&suppressing(&[9, 4])).unwrap().shape().suppressed, [9, 4]);
    for wrong in [&[-1][..], &[512], &[5; 1025]] {
        let said = refusal(&suppressing(wrong));
        assert!(said.contains("tokenizer.ggml.suppress_tokens is") && said.contains("below 512"), "{said}");
    }
}

/// What Ollama's converter writes and leaves out.
#[test]
fn a_file_in_ollamas_dialect_is_the_model_that_it_was_made_of() {
    let renamed = |case: &str| {
        let mut file = golden_model(case, Float::Bf16);
        for (key, value) in [("local", 1e4), ("global", 1e6)] {
            file.set(&format!("gemma3.rope.{key}.freq_base"), Value::f32(value));
        }
        let left_out =
            ["rope.freq_base", "rope.scaling.type", "rope.scaling.factor", "attention.layer_norm_rms_epsilon"];
        left_out.iter().for_each(|key| file.remove(&format!("gemma3.{key}")));
        file
    };
    let shape = |file: &GgufFile| open(file).unwrap().shape().clone();
    // Of 6 layers as of 26, whose RoPE is not scaled; with the cap that its models do not have.
    let mut tiny = golden_shape("tiny");
    tiny.global.rope.factor = 1.0;
    let mut file = renamed("tiny");
    assert_eq!(shape(&file), tiny);
    file.set("gemma3.final_logit_softcapping", Value::f32(30.0));
    assert_eq!(shape(&file), tiny);
    // Of 62 layers, as 27B: the global layers' RoPE is scaled by 8.
    assert_eq!(golden_shape("deep62").global.rope.factor, 8.0);
    assert_eq!(shape(&renamed("deep62")), golden_shape("deep62"));
    let mut told = renamed("deep62");
    told.set("gemma3.rope.scaling.factor", Value::f32(2.0));
    assert_eq!(shape(&told).global.rope.factor, 2.0);
    // In the newer dialect only the local base has its own name; the part for images tells the dialect too.
    let mut newer = golden_model("deep62", Float::Bf16);
    newer.remove("gemma3.rope.scaling.type");
    newer.remove("gemma3.rope.scaling.factor");
    assert_eq!(shape(&newer).global.rope.factor, 1.0, "llama.cpp's converter writes a factor where there is one");
    newer.set("gemma3.mm.tokens_per_image", Value::u32(256));
    newer.tensors.push(Tensor::f32("v.blk.0.attn_q.weight", &[2], &[1.0, 2.0]));
    assert_eq!(shape(&newer), golden_shape("deep62"));
    newer.set("gemma3.rope.local.freq_base", Value::f32(500.0));
    assert_eq!(shape(&newer).local.rope.theta, 500.0);
    // Another cap, or that of a file that is not Ollama's, is the model's own.
    file.set("gemma3.final_logit_softcapping", Value::f32(20.0));
    assert!(refusal(&file).contains("final_logit_softcapping is 20"));
    let mut wrong = renamed("tiny");
    wrong.set("gemma3.rope.global.freq_base", Value::f32(-1.0));
    assert!(refusal(&wrong).contains("gemma3.rope.global.freq_base is -1; wanted a finite number above 0"));
}

#[test]
fn a_head_of_its_own_unties_and_parts_for_images_are_left_alone() {
    let mut file = golden_model("tiny", Float::Bf16);
    let mut head = file.tensor("token_embd.weight").clone();
    head.name = "output.weight".into();
    head.bytes = half::bf16::from_f32(0.25).to_le_bytes().repeat(512 * 128);
    file.tensors.push(head);
    file.tensors.push(Tensor::f32("v.blk.0.attn_q.weight", &[2], &[1.0, 2.0]));
    file.tensors.push(Tensor::new("mm.input_projection.weight", &[256], 10, vec![0; 84]));
    let checkpoint = open(&file).unwrap();
    assert!(!checkpoint.shape().tied);
    assert!(decode_matrix(&checkpoint, TensorId::Head, WeightFormat::Bf16).iter().all(|w| *w == 0.25));
}

#[test]
fn other_models_are_refused_by_name() {
    let key = |key: &str, value: Value| refused(|f| f.set(key, value));
    assert!(key("general.architecture", Value::text("llama")).contains("of another architecture, llama"));
    assert!(key("general.architecture", Value::text("")).contains("of another architecture, \"\""));
    assert!(key("general.architecture", Value::text("clip")).contains("part for images"));
    assert!(key("general.architecture", Value::u32(3)).contains("of another architecture, 3"));
    assert!(key("general.type", Value::text("mmproj")).contains("part for images; give the file of the text model"));
    let line = key("general.type", Value::text("adapter"));
    assert!(line.contains("is a LoRA adapter, not a model; merge it into its base model"), "{line}");
    assert!(key("general.type", Value::text("imatrix")).contains("is an importance matrix, not a model"));
    let embeds = "EmbeddingGemma, which makes vectors and no text; use a GGUF file of a text model of Gemma 3";
    assert!(key("general.architecture", Value::text("gemma-embedding")).contains(embeds));
    assert!(key("gemma3.pooling_type", Value::u32(1)).contains(embeds));
    let line = refused(|f| f.tensors.push(Tensor::f32("dense.0.weight", &[1], &[0.0])));
    assert!(line.contains("tensor dense.0.weight is none of Gemma 3's, but of EmbeddingGemma"), "{line}");
    assert!(refused(|f| f.remove("general.architecture")).contains("has no general.architecture"));
    // Another architecture's tensors do not matter.
    let line = refused(|f| {
        f.set("general.architecture", Value::text("mamba"));
        f.tensors.clear();
    });
    assert!(line.contains("of another architecture, mamba"), "{line}");
    assert!(refused(|f| f.tensors.clear()).contains("no tensor token_embd.weight"));
    for key in ["context_length", "embedding_length", "block_count", "feed_forward_length", "attention.head_count"] {
        assert!(refused(|f| f.remove(&format!("gemma3.{key}"))).contains(&format!("has no gemma3.{key}")));
    }
    for (name, value, words) in [
        ("embedding_length", Value::u32(0), "embedding_length is 0; wanted a whole number from 1"),
        ("embedding_length", Value::raw(10, &u64::MAX.to_le_bytes()), "embedding_length is 18446744073709551615"),
        ("embedding_length", Value::text("128"), "embedding_length is 128; wanted a whole number"),
        ("embedding_length", Value::u32(136), "; the file's keys want ["),
        ("block_count", Value::u32(2000), "block_count is 2000"),
        ("block_count", Value::u32(5), "is past the last of 5 layers"),
        ("block_count", Value::u32(7), "tensor blk.6.attn_norm.weight is missing"),
        ("attention.head_count", Value::list(4, 2, &[4, 0, 0, 0, 2, 0, 0, 0]), "head_count is a list of 2"),
        ("attention.head_count_kv", Value::u32(3), "attention.head_count_kv is 3, which does not divide"),
        ("attention.value_length", Value::u32(64), "attention.value_length is 64; wanted 32"),
        ("rope.dimension_count", Value::u32(16), "rope.dimension_count is 16; wanted 32"),
        ("attention.layer_norm_rms_epsilon", Value::f32(f32::NAN), "epsilon is NaN; wanted a finite number above 0"),
        ("rope.freq_base", Value::f32(-1.0), "rope.freq_base is -1"),
        ("rope.scaling.type", Value::text("yarn"), "rope.scaling.type is yarn; wanted linear or none"),
        ("attention.sliding_window_pattern", Value::list(7, 5, &[1; 5]), "wanted a list of 6"),
        ("final_logit_softcapping", Value::f32(30.0), "final_logit_softcapping is 30"),
        ("attention.causal", Value::bool(false), "attention.causal is false"),
    ] {
        let line = key(&format!("gemma3.{name}"), value);
        assert!(line.contains(words), "{name}: {line}");
    }
    for token in ["bos", "eos", "eot"] {
        let line = key(&format!("tokenizer.ggml.{token}_token_id"), Value::u32(512));
        assert!(line.contains(&format!("{token}_token_id is 512; wanted a token id below 512")), "{line}");
    }
}

#[test]
fn wrong_tensors_are_refused_by_name() {
    for other in ["blk.0.attn_q.bias", "blk.0.ffn_gate_exps.weight", "rope_freqs.weight", "blk.01.attn_q.weight"] {
        let line = refused(|f| f.tensors.push(Tensor::f32(other, &[1], &[0.0])));
        assert!(line.contains(&format!("tensor {other} is none of Gemma 3's")), "{line}");
    }
    assert!(
        refused(|f| f.tensors.retain(|t| t.name != "blk.4.attn_k.weight")).contains("blk.4.attn_k.weight is missing")
    );
    let name = "blk.1.attn_v.weight";
    let line = refused(|f| *f.tensor(name) = Tensor::new(name, &[64, 128], 39, vec![0; 64 * 4 * 17]));
    assert!(
        line.contains(
            "blk.1.attn_v.weight is MXFP4, which Kiln does not read; use a file with Q2_K to Q6_K, Q4_0 to Q8_0"
        ),
        "{line}"
    );
    // Whole blocks of a K type are 256 weights.
    let line = refused(|f| *f.tensor(name) = Tensor::new(name, &[64, 128], 12, vec![0; 32 * 144]));
    assert!(line.contains("is Q4_K in rows of 128, which are not whole blocks of 256"), "{line}");
    let name = "blk.1.attn_norm.weight";
    let line = refused(|f| *f.tensor(name) = Tensor::new(name, &[128], 8, vec![0; 4 * 34]));
    assert!(line.contains("blk.1.attn_norm.weight is Q8_0, which Kiln does not read"), "{line}");
    assert!(refused(|f| f.tensor("blk.1.attn_q.weight").dims = vec![64, 256]).contains("has shape [64, 256]"));
}

/// Writes a model in `count` parts, and returns the first one's path.
fn write_parts(dir: &Path, file: &GgufFile, count: usize) -> std::path::PathBuf {
    let path = |i: usize| dir.join(format!("m-{:05}-of-{count:05}.gguf", i + 1));
    let size = file.tensors.len().div_ceil(count);
    for (i, tensors) in file.tensors.chunks(size).enumerate() {
        let keys = if i == 0 { file.keys.clone() } else { Vec::new() };
        let mut part = GgufFile { keys, tensors: tensors.to_vec(), ..GgufFile::default() };
        part.set("split.no", Value::raw(2, &(i as u16).to_le_bytes()));
        part.set("split.count", Value::raw(2, &(count as u16).to_le_bytes()));
        part.set("split.tensors.count", Value::raw(5, &(file.tensors.len() as i32).to_le_bytes()));
        std::fs::write(path(i), part.bytes()).unwrap();
    }
    path(0)
}

#[test]
fn a_split_model_is_read_as_a_whole_one() {
    let (dir, file) = (tempfile::tempdir().unwrap(), golden_model("tiny", Float::Bf16));
    let first = write_parts(dir.path(), &file, 4);
    let (split, whole) = (Checkpoint::open(&first).unwrap(), open(&file).unwrap());
    assert_eq!(split.shape(), whole.shape());
    for id in TensorId::all(whole.shape()).filter(|id| !id.is_vector()) {
        let rows = |c| read_matrix(c, id, WeightFormat::Bf16).unwrap();
        assert_eq!(rows(&split), rows(&whole), "{id:?}");
    }
    // A directory that has nothing else is this model.
    let files = ModelFiles::from(Some(dir.path().to_owned()));
    assert_eq!((&files, files.name()), (&ModelFiles::Gguf(first.clone()), "m".into()));
    let part = |i: usize| dir.path().join(format!("m-{i:05}-of-00004.gguf"));
    let refusal = |path: &Path| bad_input(Checkpoint::open(path).map(drop));
    assert!(refusal(&part(3)).contains("part 3 of a split model; give the first: "));
    std::fs::copy(part(2), part(3)).unwrap();
    assert!(refusal(&first).contains("m-00003-of-00004.gguf is not part 3 of 4"));
    std::fs::remove_file(part(3)).unwrap();
    assert!(refusal(&first).contains("m-00003-of-00004.gguf does not exist"));
    let alone = dir.path().join("alone.gguf");
    std::fs::rename(&first, &alone).unwrap();
    assert!(refusal(&alone).contains("the model has 4 parts"));
    // One tensor less than the first part says.
    let mut less = file.clone();
    less.tensors.pop();
    let first = write_parts(dir.path(), &less, 4);
    let mut bytes = std::fs::read(&first).unwrap();
    let at = bytes.windows(19).position(|w| w == b"split.tensors.count").unwrap() + 19 + 4;
    bytes[at] += 1;
    std::fs::write(&first, bytes).unwrap();
    assert!(refusal(&first).contains("the model has 4 parts with 80 tensors, and there are 4 with 79"));
}

/// Keys of another type than theirs counted as absent: a model was read without its parts, and without its template.
#[test]
fn keys_of_another_type_are_refused_by_name() {
    for (key, value) in [("split.count", Value::text("4")), ("split.count", Value::f32(4.0))] {
        let line = refused(|f| f.set(key, value));
        assert!(line.contains("split.count is 4; wanted a whole number"), "{line}");
    }
    assert!(refused(|f| f.set("split.tensors.count", Value::bool(true))).contains("split.tensors.count is true"));
    let mut file = golden_model("tiny", Float::Bf16);
    let template =
        |file: &GgufFile| Gguf::from_bytes(file.bytes()).unwrap().chat_template().map(|t| t.map(str::to_owned));
    assert_eq!(template(&file), Ok(None));
    file.set("tokenizer.chat_template", Value::text("{{ bos_token }}"));
    assert_eq!(template(&file), Ok(Some("{{ bos_token }}".into())));
    file.set("tokenizer.chat_template", Value::texts(&["{{ bos_token }}"]));
    let line = bad_input(template(&file).map(drop));
    assert!(line.contains("tokenizer.chat_template is a list of 1; wanted text"), "{line}");
}

/// Whatever a file claims, a tokenizer of another size than the model's is refused before it is made.
#[test]
fn a_tokenizer_of_another_size_is_refused_by_its_count() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.gguf");
    let refused = |count: usize| {
        let mut file = golden_model("tiny", Float::Bf16);
        let texts: Vec<String> = (0..count).map(|id| format!("<{id}>")).collect();
        file.set("tokenizer.ggml.model", Value::text("llama"));
        file.set("tokenizer.ggml.tokens", Value::texts(&texts));
        file.set("tokenizer.ggml.scores", Value::f32s(&vec![0.0; count]));
        file.set("tokenizer.ggml.token_type", Value::i32s(&vec![1; count]));
        std::fs::write(&path, file.bytes()).unwrap();
        bad_input(ModelFiles::Gguf(path.clone()).tokenizer_for(512).map(drop))
    };
    // Such a tokenizer is refused for want of <unk> if it is made at all.
    assert!(refused(512).contains("it has no token <unk>"));
    assert!(refused(514).contains("the tokenizer has 514 tokens and the model a vocabulary of 512"));
    assert!(refused(255).contains("the tokenizer has 255 tokens and the model a vocabulary of 512"));
    assert!(refused((1 << 20) + 1).contains("it has 1048577 tokens; at most 1048576 make sense"));
}

#[test]
fn a_directory_with_several_gguf_files_says_which() {
    let (dir, file) = (tempfile::tempdir().unwrap(), golden_model("tiny", Float::Bf16));
    for name in ["a.gguf", "b.gguf", "mmproj-a.gguf"] {
        std::fs::write(dir.path().join(name), file.bytes()).unwrap();
    }
    let files = ModelFiles::from(Some(dir.path().to_owned()));
    let line = bad_input(files.checkpoint().map(drop));
    assert!(
        line.contains("give one of its GGUF files: ") && line.contains("b.gguf") && !line.contains("mmproj"),
        "{line}"
    );
    std::fs::remove_file(dir.path().join("b.gguf")).unwrap();
    assert_eq!(ModelFiles::from(Some(dir.path().to_owned())), ModelFiles::Gguf(dir.path().join("a.gguf")));
}

/// Random damage to a model's header is refused in one line, or what is read lies within the file. What cannot be decoded
/// is not loaded either.
#[test]
fn a_damaged_model_is_refused_or_read() {
    let mut random = crate::common::Random(0x6775_6600_0002);
    let sound = std::fs::read(golden("gguf/model.gguf")).unwrap();
    let header = 4096;
    let [mut refused, mut bad_rows] = [0; 2];
    for _ in 0..300 {
        let mut bytes = sound.clone();
        for _ in 0..1 + random.below(2) {
            bytes[random.below(header)] = random.bits() as u8;
        }
        let checkpoint = match Gguf::from_bytes(bytes).and_then(Checkpoint::from_gguf) {
            Ok(checkpoint) => checkpoint,
            result => {
                bad_input(result.map(drop));
                refused += 1;
                continue;
            }
        };
        let formats = checkpoint.formats(WeightFormat::Int8);
        for id in TensorId::all(checkpoint.shape()).filter(|id| !id.is_vector()) {
            let [rows, cols] = id.dims(checkpoint.shape());
            let decoded = checkpoint.decode_rows(id, 0..rows, &mut vec![0.0; rows * cols]);
            // INT8 holds whatever can be decoded.
            let read = read_matrix(&checkpoint, id, formats(id)).map(drop);
            assert_eq!(decoded.is_ok(), read.is_ok(), "{id:?}");
            if decoded.is_err() {
                assert_eq!(bad_input(decoded), bad_input(read));
                bad_rows += 1;
            }
        }
    }
    assert!((100..300).contains(&refused) && bad_rows > 0, "{refused} refused, {bad_rows} bad rows");
}
