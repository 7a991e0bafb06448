//! Weight files and directories that are wrong, each refused by one line that names the file and the tensor.

use std::path::Path;

use kiln::model::{Checkpoint, Role, TensorId, WeightFormat};
use serde_json::{Value, json};

use super::files::{File, Tensor, bad_input, dir_with, dir_with_config, golden, join, read_matrix, refusal};

const NORM: &str = "model.norm.weight";
const Q: &str = "model.layers.2.self_attn.q_proj.weight";

fn tiny() -> File {
    File::read(&golden("tiny/model.safetensors"))
}

/// The error for tiny's file after a change.
fn refused_file(change: impl FnOnce(&mut File)) -> String {
    let mut file = tiny();
    change(&mut file);
    refusal(dir_with("tiny", &file).path())
}

/// The error for tiny's file after a change to its header alone.
fn refused_header(change: impl FnOnce(&mut Value)) -> String {
    let (mut header, data) = tiny().parts();
    change(&mut header);
    refused_bytes(&join(&header.to_string(), &data))
}

fn refused_bytes(bytes: &[u8]) -> String {
    let dir = dir_with_config("tiny");
    std::fs::write(dir.path().join("model.safetensors"), bytes).unwrap();
    refusal(dir.path())
}

#[test]
fn the_unchanged_file_is_accepted() {
    Checkpoint::open(dir_with("tiny", &tiny()).path()).unwrap();
}

#[test]
fn a_truncated_file_is_refused() {
    let bytes = tiny().bytes();
    for keep in [0, 1, 7, 8, 9, 100, bytes.len() / 2, bytes.len() - 1] {
        let line = refused_bytes(&bytes[..keep]);
        assert!(line.contains("truncated") || line.contains("is empty"), "{keep}: {line}");
    }
}

#[test]
fn bytes_that_belong_to_no_tensor_are_refused() {
    let mut bytes = tiny().bytes();
    bytes.push(0);
    assert!(refused_bytes(&bytes).contains("1 bytes after the last tensor"));
}

#[test]
fn a_header_length_beyond_the_file_is_refused() {
    for length in [u64::MAX, u64::MAX - 7, 1 << 40, 99_000_000] {
        let mut bytes = tiny().bytes();
        bytes[..8].copy_from_slice(&length.to_le_bytes());
        let line = refused_bytes(&bytes);
        assert!(line.contains("header of") || line.contains("header has"), "{line}");
    }
}

#[test]
fn a_header_that_is_not_json_is_refused() {
    for header in ["", "{", "[]", "{\"a\": 1}", "\u{1}\n", "{\"a\": {\"dtype\": \"F32\", \"shape\": [-1]}}"] {
        assert!(refused_bytes(&join(header, &[])).contains("header is not valid"), "{header}");
    }
    let deep = format!("{{\"a\":{}", "[".repeat(100_000));
    assert!(refused_bytes(&join(&deep, &[])).contains("header is not valid"));
}

#[test]
fn a_tensor_named_twice_in_one_header_is_refused() {
    let (header, data) = tiny().parts();
    let header = header.to_string();
    let info = &tiny().parts().0[NORM].to_string();
    let twice = header.replacen('{', &format!("{{\"{NORM}\":{info},"), 1);
    assert!(refused_bytes(&join(&twice, &data)).contains("model.norm.weight is there twice"));
}

#[test]
fn more_tensors_than_any_models_are_refused() {
    let entries: Vec<String> =
        (0..=1 << 16).map(|i| format!(r#""{i}":{{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}"#)).collect();
    let line = refused_bytes(&join(&format!("{{{}}}", entries.join(",")), &[]));
    assert!(line.contains("it has more than 65536 tensors"), "{line}");
}

/// What is kept of each takes many times its text.
#[test]
fn more_metadata_and_dimensions_than_any_models_are_refused() {
    let texts: Vec<String> = (0..=1 << 16).map(|i| format!(r#""{i}":"""#)).collect();
    let line = refused_bytes(&join(&format!(r#"{{"__metadata__":{{{}}}}}"#, texts.join(",")), &[]));
    assert!(line.contains("it has more than 65536 texts of metadata"), "{line}");
    let line = refused_header(|h| h[NORM]["shape"] = vec![1; 65].into());
    assert!(line.contains("a tensor has more than 64 dimensions"), "{line}");
}

#[test]
fn overlapping_tensors_are_refused() {
    let line = refused_header(|h| {
        let other = h["model.layers.0.input_layernorm.weight"]["data_offsets"].clone();
        h["model.layers.1.input_layernorm.weight"]["data_offsets"] = other;
    });
    assert!(line.contains("overlap") && line.contains("input_layernorm"), "{line}");
}

#[test]
fn a_gap_between_tensors_is_refused() {
    let line = refused_header(|h| drop(h.as_object_mut().unwrap().shift_remove("model.layers.3.mlp.up_proj.weight")));
    assert!(line.contains("belong to no tensor"), "{line}");
}

#[test]
fn offsets_that_do_not_match_the_shape_are_refused() {
    let line = refused_header(|h| h[NORM]["shape"] = json!([64]));
    assert!(line.contains(NORM) && line.contains("has 128"), "{line}");
    let line = refused_header(|h| h[NORM]["data_offsets"] = json!([8, 4]));
    assert!(line.contains(NORM) && line.contains("8..4"), "{line}");
}

#[test]
fn sizes_that_overflow_are_refused() {
    let line = refused_header(|h| h[NORM]["shape"] = json!([1u64 << 40, 1u64 << 40]));
    assert!(line.contains(NORM) && line.contains("overflows"), "{line}");
    let line = refused_header(|h| h[NORM]["shape"] = json!(vec![u64::MAX; 50]));
    assert!(line.contains("overflows"), "{line}");
    // Nearly 2^64 bytes: adding the header's length to the end would wrap.
    let line = refused_header(|h| {
        h[NORM] = json!({"dtype": "U8", "shape": [u64::MAX - 16], "data_offsets": [0, u64::MAX - 16]});
    });
    assert!(line.contains(NORM) && line.contains("past any file"), "{line}");
}

#[test]
fn an_unknown_or_unreadable_type_is_refused() {
    assert!(refused_header(|h| h[NORM]["dtype"] = json!("Q4_K")).contains("unknown type Q4_K"));
    let line = refused_file(|f| {
        f.tensors.insert(Q.into(), Tensor::new("I32", &[128, 128], vec![0; 128 * 128 * 4]));
    });
    assert!(
        line.contains(Q) && line.contains("is I32; wanted BF16, F16, F32, I8 with scales or U8 with scales"),
        "{line}"
    );
    let line = refused_file(|f| drop(f.tensors.insert(NORM.into(), Tensor::new("I8", &[128], vec![0; 128]))));
    assert!(line.contains(NORM) && line.contains("is I8; wanted BF16, F16 or F32"), "{line}");
}

#[test]
fn the_type_of_a_tensor_that_the_model_does_not_need_is_no_hindrance() {
    let mut file = tiny();
    for (dtype, bytes) in [("I64", 8), ("F64", 8), ("BOOL", 1), ("F8_E4M3", 1), ("C64", 8), ("Q4_K", 3)] {
        file.tensors.insert(format!("vision_tower.{dtype}"), Tensor::new(dtype, &[1], vec![0; bytes]));
    }
    Checkpoint::open(dir_with("tiny", &file).path()).unwrap();
    // But its bytes are the format's business.
    let line = refused_file(|f| drop(f.tensors.insert("x".into(), Tensor::new("F4", &[3], vec![0; 2]))));
    assert!(line.contains("tensor x, F4 of shape [3], ends within a byte"), "{line}");
    let line = refused_file(|f| drop(f.tensors.insert("x".into(), Tensor::new("I64", &[1], vec![0; 4]))));
    assert!(line.contains("I64 of shape [1] has 8"), "{line}");
}

#[test]
fn a_wrong_shape_is_refused_with_both_shapes() {
    let line = refused_file(|f| f.tensors.get_mut(Q).unwrap().shape = vec![64, 256]);
    assert!(line.contains(Q) && line.contains("[64, 256]") && line.contains("[128, 128]"), "{line}");
    let line = refused_file(|f| f.tensors.get_mut(Q).unwrap().shape = vec![128 * 128]);
    assert!(line.contains("[16384]"), "{line}");
    let line = refused_file(|f| f.tensors.get_mut(Q).unwrap().shape = [[1; 40].as_slice(), &[128, 128]].concat());
    assert!(line.contains("42 dimensions"), "{line}");
}

#[test]
fn a_missing_tensor_is_named_with_its_closest() {
    let line = refused_file(|f| {
        let tensor = f.tensors.remove(Q).unwrap();
        f.tensors.insert("model.layers.2.self_attn.query_proj.weight".into(), tensor);
    });
    assert!(line.contains(Q) && line.contains("closest names there are model.layers.2.self_attn.query_proj"), "{line}");
    let dir = dir_with_config("tiny");
    File::default().write(&dir.path().join("model.safetensors"));
    assert!(refusal(dir.path()).contains("no name like it"));
}

#[test]
fn a_name_full_of_control_characters_stays_one_line() {
    let line = refused_file(|f| {
        let tensor = f.tensors.remove(NORM).unwrap();
        f.tensors.insert("model.norm\n\u{1b}[31m.weight".into(), tensor);
    });
    assert!(line.contains(NORM), "{line}");
}

#[test]
fn an_untied_model_needs_its_head() {
    let dir = dir_with("tiny", &tiny());
    let path = dir.path().join("config.json");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("\"tie_word_embeddings\": true", "\"tie_word_embeddings\": false")).unwrap();
    let line = refusal(dir.path());
    assert!(line.contains("lm_head.weight is missing") && line.contains("tie_word_embeddings"), "{line}");
}

#[test]
fn one_tensor_in_two_files_is_refused() {
    let dir = dir_with_config("tiny");
    tiny().write(&dir.path().join("a.safetensors"));
    let mut one = File::default();
    one.tensors.insert(NORM.into(), tiny().tensors[NORM].clone());
    one.write(&dir.path().join("b.safetensors"));
    let line = refusal(dir.path());
    assert!(line.contains(NORM) && line.contains("a.safetensors") && line.contains("b.safetensors"), "{line}");
}

#[test]
fn one_tensor_under_two_names_is_refused() {
    let line = refused_file(|f| {
        let norm = f.tensors[NORM].clone();
        f.tensors.insert("language_model.model.norm.weight".into(), norm);
    });
    assert!(line.contains("are the same tensor"), "{line}");
}

#[test]
fn an_index_that_is_wrong_is_refused() {
    let indexed = |change: &dyn Fn(&mut Value), also: &dyn Fn(&Path)| {
        let dir = tempfile::tempdir().unwrap();
        for entry in std::fs::read_dir(golden("tiny/sharded")).unwrap() {
            let entry = entry.unwrap();
            std::fs::copy(entry.path(), dir.path().join(entry.file_name())).unwrap();
        }
        let path = dir.path().join("model.safetensors.index.json");
        let mut index: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        change(&mut index);
        std::fs::write(&path, index.to_string()).unwrap();
        also(dir.path());
        refusal(dir.path())
    };
    let first = "model-00001-of-00004.safetensors";
    let gone = indexed(&|_| {}, &|dir| std::fs::remove_file(dir.join(first)).unwrap());
    assert!(gone.contains(first) && gone.contains("not there"), "{gone}");
    for outside in ["../model.safetensors", "/etc/passwd", "a/b.safetensors", "..", ".", ""] {
        let line = indexed(&|i| i["weight_map"][NORM] = json!(outside), &|_| {});
        assert!(line.contains("outside the model's directory"), "{line}");
    }
    let moved = indexed(&|i| i["weight_map"][NORM] = json!(first), &|_| {});
    assert!(moved.contains("model.norm.weight is not in model-00001"), "{moved}");
    let extra = indexed(&|i| i["weight_map"]["model.extra"] = json!(first), &|_| {});
    assert!(extra.contains("model.extra is not in"), "{extra}");
    assert!(indexed(&|i| i["weight_map"] = json!({}), &|_| {}).contains("no shard"));
    assert!(indexed(&|i| i["weight_map"] = json!([1]), &|_| {}).contains("not a valid index"));
}

#[test]
fn a_directory_without_a_model_is_refused() {
    let empty = tempfile::tempdir().unwrap();
    assert!(refusal(empty.path()).contains("no config.json"));
    assert!(refusal(dir_with_config("tiny").path()).contains("no *.safetensors"));
    assert!(refusal(Path::new("/nonexistent/model")).contains("/nonexistent/model does not exist"));
    assert!(
        refusal(&golden("tiny/config.json")).contains("it is no GGUF file; give a GGUF file, or a model's directory")
    );
    let odd = dir_with_config("tiny");
    std::fs::create_dir(odd.path().join("model.safetensors")).unwrap();
    assert!(refusal(odd.path()).contains("not a regular file"));
}

#[test]
fn what_is_no_model_is_named_for_what_it_is() {
    // A clone without Git LFS.
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 12345\n";
    let lfs = "is a Git LFS pointer in place of the file; run `git lfs pull` in its repository, or download the file";
    let clone = dir_with_config("tiny");
    std::fs::write(clone.path().join("model.safetensors"), pointer).unwrap();
    let line = refusal(clone.path());
    assert!(line.contains("model.safetensors ") && line.contains(lfs), "{line}");
    let gguf = clone.path().join("a.gguf");
    std::fs::write(&gguf, pointer).unwrap();
    assert!(refusal(&gguf).contains(lfs));
    std::fs::write(clone.path().join("config.json"), pointer).unwrap();
    assert!(refusal(clone.path()).contains(lfs));
    // Weights in another form.
    let pickled = dir_with_config("tiny");
    std::fs::write(pickled.path().join("pytorch_model-00001-of-00002.bin"), "PK").unwrap();
    let line = refusal(pickled.path());
    assert!(line.contains("no *.safetensors file, and pytorch_model-00001-of-00002.bin is a pickle"), "{line}");
    assert!(line.contains("; save the model as safetensors (`save_pretrained` of transformers)"), "{line}");
    let other = dir_with_config("tiny");
    std::fs::write(other.path().join("a-Q8_0.gguf"), "GGUF").unwrap();
    let line = refusal(other.path());
    assert!(line.contains("no *.safetensors file; give its GGUF file: ") && line.ends_with("a-Q8_0.gguf"), "{line}");
    // An adapter, alone or beside its base model's config.
    let adapter = tempfile::tempdir().unwrap();
    let is_adapter = |line: String| {
        let wanted =
            "is a LoRA adapter, not a model; merge it into its base model, google/gemma-3-27b-it (`merge_and_unload`";
        assert!(line.contains(wanted), "{line}");
    };
    let config = r#"{"peft_type": "LORA", "base_model_name_or_path": "google/gemma-3-27b-it", "r": 16}"#;
    std::fs::write(adapter.path().join("adapter_config.json"), config).unwrap();
    File::default().write(&adapter.path().join("adapter_model.safetensors"));
    is_adapter(refusal(adapter.path()));
    std::fs::copy(golden("tiny/config.json"), adapter.path().join("config.json")).unwrap();
    is_adapter(refusal(adapter.path()));
    // Beside a whole model it is no hindrance.
    tiny().write(&adapter.path().join("model.safetensors"));
    Checkpoint::open(adapter.path()).unwrap();
    // EmbeddingGemma, as its directory has it.
    let embeds = dir_with("tiny", &tiny().rename(|name| name.replace("model.", "")));
    let path = embeds.path().join("config.json");
    let text = std::fs::read_to_string(&path).unwrap().replace("Gemma3ForCausalLM", "Gemma3TextModel");
    std::fs::write(&path, text).unwrap();
    let line = refusal(embeds.path());
    assert!(
        line.contains("Gemma3TextModel, which makes vectors and no text, as EmbeddingGemma does; Kiln runs"),
        "{line}"
    );
}

/// Each of these counted as a file that is not there, and something else was read in its place.
#[test]
fn a_link_that_leads_nowhere_is_no_absent_file() {
    let link = |name: &str, dir: &Path| {
        let _ = std::fs::remove_file(dir.join(name));
        std::os::unix::fs::symlink("../../blobs/4d7a2146", dir.join(name)).unwrap();
    };
    let wanted = "is a link to ../../blobs/4d7a2146, which does not exist; copy or download";
    for name in ["generation_config.json", "config.json", "model.safetensors"] {
        let dir = dir_with("tiny", &tiny());
        tiny().write(&dir.path().join("other.safetensors"));
        link(name, dir.path());
        let line = refusal(dir.path());
        assert!(line.contains(name) && line.contains(wanted), "{line}");
    }
    let dir = tempfile::tempdir().unwrap();
    link("model", dir.path());
    assert!(refusal(&dir.path().join("model")).contains(wanted));
}

/// The error for reading a tensor of tiny, or of its INT8 version, after a change to the values.
fn refused_read(source: &str, id: TensorId, change: impl FnOnce(&mut File)) -> String {
    let mut file = File::read(&golden("tiny").join(source));
    change(&mut file);
    let dir = dir_with("tiny", &file);
    let c = Checkpoint::open(dir.path()).unwrap();
    if id.is_vector() {
        return bad_input(c.read_vector(id).map(drop));
    }
    bad_input(read_matrix(&c, id, WeightFormat::Int8).map(drop))
}

#[test]
fn values_that_are_not_finite_name_tensor_and_row() {
    let q = TensorId::Layer(2, Role::Q);
    for bits in [0x7FC0u16, 0x7F80, 0xFF80] {
        let spoil = |f: &mut File| {
            f.tensors.get_mut(Q).unwrap().bytes[77 * 256 + 10..][..2].copy_from_slice(&bits.to_le_bytes());
        };
        let line = refused_read("model.safetensors", q, spoil);
        assert!(line.contains(Q) && line.contains("row 77"), "{line}");
        let mut file = tiny();
        spoil(&mut file);
        let dir = dir_with("tiny", &file);
        let c = Checkpoint::open(dir.path()).unwrap();
        let line = bad_input(read_matrix(&c, q, WeightFormat::Bf16).map(drop));
        assert!(line.contains(Q) && line.contains("row 77"), "{line}");
    }
    let line = refused_read("model.safetensors", TensorId::FinalNorm, |f| {
        f.tensors.get_mut(NORM).unwrap().bytes[4..6].copy_from_slice(&0x7FC0u16.to_le_bytes());
    });
    assert!(line.contains(NORM) && line.contains("NaN"), "{line}");
}

#[test]
fn scales_outside_int8_name_tensor_and_row() {
    let q = TensorId::Layer(2, Role::Q);
    for scale in [f32::NAN, f32::INFINITY, -0.5] {
        let line = refused_read("model.int8.safetensors", q, |f| {
            let scales = f.tensors.get_mut(&format!("{Q}_scale")).unwrap();
            scales.bytes[9 * 4..10 * 4].copy_from_slice(&scale.to_le_bytes());
        });
        assert!(line.contains(Q) && line.contains("row 9") && line.contains("the scale"), "{line}");
    }
}

#[test]
fn int8_without_fitting_scales_is_refused() {
    let refused = |change: &dyn Fn(&mut File)| {
        let mut file = File::read(&golden("tiny/model.int8.safetensors"));
        change(&mut file);
        refusal(dir_with("tiny", &file).path())
    };
    let scale = format!("{Q}_scale");
    assert!(refused(&|f| drop(f.tensors.remove(&scale))).contains("q_proj.weight_scale are missing"));
    let short = refused(&|f| drop(f.tensors.insert(scale.clone(), Tensor::f32(&[1], &[1.0]))));
    assert!(short.contains("one per row, [128]"), "{short}");
    let half = refused(&|f| drop(f.tensors.insert(scale.clone(), Tensor::new("F16", &[128], vec![0; 256]))));
    assert!(half.contains("is F16; scales are F32"), "{half}");
}
