//! INT8 checkpoints of llm-compressor (w8a8 of compressed-tensors): read as they are. Those in its other schemes, and in
//! other programs', are refused by name.

use std::path::Path;

use half::bf16;
use kiln::model::write::{WriteMonitor, quantize::quantize};
use kiln::model::{Checkpoint, Role, SourceFormat, TensorId, WeightFormat};
use serde_json::{Value, json};

use super::files::{File, Tensor, bad_input, golden, read_matrix, refusal};

const Q: &str = "model.layers.2.self_attn.q_proj.weight";

/// What config.json says of such a checkpoint.
fn w8a8() -> Value {
    json!({
        "quant_method": "compressed-tensors",
        "format": "int-quantized",
        "quantization_status": "compressed",
        "ignore": ["lm_head", "vision_tower.vision_model.encoder.layers.0.mlp.fc1"],
        "kv_cache_scheme": null,
        "sparsity_config": {},
        "config_groups": {"group_0": {
            "targets": ["Linear"],
            "weights": {
                "num_bits": 8, "type": "int", "symmetric": true, "strategy": "channel", "group_size": null,
                "block_structure": null, "dynamic": false, "observer": "minmax", "actorder": null,
            },
            "input_activations": {"num_bits": 8, "type": "int", "symmetric": true, "strategy": "token", "dynamic": true},
            "output_activations": null,
        }},
    })
}

/// tiny with its layers' matrices quantised as llm-compressor does it: the largest weight of a row is 127.5 steps, so
/// that a row whose largest is negative has -128. `dtype` is that of the scales.
fn compressed(dtype: &str, scale_shape: impl Fn(usize) -> Vec<usize>) -> File {
    let mut file = File::read(&golden("tiny/model.safetensors"));
    let matrices: Vec<String> = file.tensors.keys().filter(|name| name.ends_with("_proj.weight")).cloned().collect();
    for name in matrices {
        let tensor = &file.tensors[&name];
        let [rows, cols] = tensor.shape[..] else { panic!("{name}") };
        let (mut q, mut scales) = (Vec::new(), Vec::new());
        for row in tensor.bf16_values().chunks(cols) {
            let scale = bf16::from_f32(row.iter().fold(0f32, |m, w| m.max(w.abs())) / 127.5);
            q.extend(row.iter().map(|w| (w / scale.to_f32()).round_ties_even().clamp(-128.0, 127.0) as i8 as u8));
            match dtype {
                "BF16" => scales.extend(scale.to_le_bytes()),
                _ => scales.extend(scale.to_f32().to_le_bytes()),
            }
        }
        file.tensors.insert(name.clone(), Tensor::new("I8", &[rows, cols], q));
        file.tensors.insert(format!("{name}_scale"), Tensor::new(dtype, &scale_shape(rows), scales));
    }
    file
}

/// A directory of these weights, with tiny's config and what it says of them.
fn directory(file: &File, quantization: &Value) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let mut config: Value = serde_json::from_slice(&std::fs::read(golden("tiny/config.json")).unwrap()).unwrap();
    config["quantization_config"] = quantization.clone();
    std::fs::write(dir.path().join("config.json"), config.to_string()).unwrap();
    file.write(&dir.path().join("model.safetensors"));
    dir
}

/// Checks that a checkpoint's matrices are the values and scales of `file`, to the bit.
fn assert_kept(found: &Checkpoint, file: &File) {
    let plain = Checkpoint::open(&golden("tiny")).unwrap();
    let mut lowest = 0i8;
    for id in TensorId::all(plain.shape()).filter(|id| !id.is_vector()) {
        let read = read_matrix(found, id, WeightFormat::Int8).unwrap();
        if id == TensorId::Embedding {
            assert_eq!(read, read_matrix(&plain, id, WeightFormat::Int8).unwrap());
            continue;
        }
        let (q, scales) = (&file.tensors[&id.name()], &file.tensors[&format!("{}_scale", id.name())]);
        let scales: Vec<f32> = match scales.dtype.as_str() {
            "BF16" => scales.bf16_values(),
            _ => scales.bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect(),
        };
        assert_eq!((&read.0, &read.1), (&q.bytes, &scales), "{id:?}");
        lowest = q.bytes.iter().fold(lowest, |lowest, q| lowest.min(*q as i8));
        let [rows, cols] = id.dims(plain.shape());
        let mut decoded = vec![0f32; (rows - 3) * cols];
        found.decode_rows(id, 3..rows, &mut decoded).unwrap();
        let product = |i: usize| f32::from(q.bytes[i] as i8) * scales[i / cols];
        assert!(decoded.iter().enumerate().all(|(i, w)| *w == product(3 * cols + i)), "{id:?}");
    }
    assert_eq!(lowest, i8::MIN);
}

#[test]
fn int8_of_llm_compressor_is_read_as_it_is() {
    let column = |rows| vec![rows, 1];
    for (dtype, file) in [
        ("BF16", compressed("BF16", column)),
        ("BF16", compressed("BF16", |rows| vec![rows])),
        ("F32", compressed("F32", column)),
        ("F32", compressed("F32", |rows| vec![rows])),
    ] {
        let dir = directory(&file, &w8a8());
        let found = Checkpoint::open(dir.path()).unwrap();
        assert_eq!(found.source(), SourceFormat::Native(WeightFormat::Int8), "{dtype}");
        assert_eq!(found.stored_as(TensorId::Embedding), SourceFormat::Native(WeightFormat::Bf16));
        found.check_format(WeightFormat::Int8).unwrap();
        let line = bad_input(found.check_format(WeightFormat::Bf16));
        assert!(line.contains("is INT8 already and cannot be kept as bf16"), "{line}");
        assert_kept(&found, &file);
    }
}

/// As in the published checkpoints of the models that see: the config is nested, and there is more than the text model.
#[test]
fn the_vision_towers_tensors_are_no_hindrance() {
    let mut file = compressed("BF16", |rows| vec![rows, 1]);
    let plain = file.clone();
    for name in plain.tensors.keys().filter(|name| name.ends_with("_scale")) {
        let rows = plain.tensors[name].shape[0];
        let zeros = name.replace("_scale", "_zero_point");
        file.tensors.insert(zeros, Tensor::new("I8", &[rows, 1], vec![0; rows]));
    }
    file = file.rename(|name| format!("language_model.{name}"));
    file.tensors.insert("vision_tower.vision_model.head.weight".into(), Tensor::new("BF16", &[2, 2], vec![0; 8]));
    file.tensors.insert("vision_tower.vision_model.mlp.fc1.weight_scale".into(), Tensor::new("BF16", &[2], vec![0; 4]));
    let dir = directory(&file, &Value::Null);
    let path = dir.path().join("config.json");
    let text: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let nested = json!({
        "architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3", "text_config": text,
        "vision_config": {"model_type": "siglip_vision_model"}, "quantization_config": w8a8(),
    });
    std::fs::write(&path, nested.to_string()).unwrap();
    assert_kept(&Checkpoint::open(dir.path()).unwrap(), &plain);
}

#[test]
fn a_directory_that_is_made_of_it_has_the_same_rows() {
    let file = compressed("BF16", |rows| vec![rows, 1]);
    let dir = directory(&file, &w8a8());
    let monitor = WriteMonitor { progress: &|_, _| {}, cancel: &kiln::Cancel::default() };
    let out = dir.path().join("out");
    quantize(dir.path(), &out, WeightFormat::Int8, &monitor).unwrap();
    assert_kept(&Checkpoint::open(&out).unwrap(), &file);
    // Fewer bits are made of the values that the rows stand for.
    let int4 = dir.path().join("int4");
    quantize(dir.path(), &int4, WeightFormat::Int4, &monitor).unwrap();
    let (id, found) = (TensorId::Layer(2, Role::Q), Checkpoint::open(&int4).unwrap());
    let wanted = read_matrix(&Checkpoint::open(dir.path()).unwrap(), id, WeightFormat::Int4).unwrap();
    assert_eq!(read_matrix(&found, id, WeightFormat::Int4).unwrap(), wanted);
}

#[test]
fn scales_and_zero_points_that_are_wrong_name_the_tensor() {
    let refused = |change: &dyn Fn(&mut File)| {
        let mut file = compressed("BF16", |rows| vec![rows, 1]);
        change(&mut file);
        refusal(directory(&file, &w8a8()).path())
    };
    let put = |suffix: &str, tensor: Tensor| {
        let name = format!("{Q}{suffix}");
        refused(&move |f| drop(f.tensors.insert(name.clone(), tensor.clone())))
    };
    assert!(refused(&|f| drop(f.tensors.remove(&format!("{Q}_scale")))).contains("its scales model.layers.2"));
    let line = put("_scale", Tensor::new("BF16", &[128, 2], vec![0; 512]));
    assert!(line.contains(Q) && line.contains("scales of shape [128, 2]; wanted one per row, [128]"), "{line}");
    let line = put("_scale", Tensor::new("BF16", &[1, 128], vec![0; 256]));
    assert!(line.contains("scales of shape [1, 128]"), "{line}");
    let line = put("_scale", Tensor::new("I32", &[128], vec![0; 512]));
    assert!(line.contains("is I32; scales are F32 or BF16"), "{line}");
    let line = put("_zero_point", Tensor::new("I8", &[128, 1], [vec![0; 127], vec![3]].concat()));
    assert!(line.contains(Q) && line.contains("has zero points; use the model in BF16"), "{line}");
    let line = put("_zero_point", Tensor::new("I8", &[3], vec![0; 3]));
    assert!(line.contains("zero_point has shape [3]; wanted one per row, [128]"), "{line}");
    let mut file = compressed("BF16", |rows| vec![rows, 1]);
    file.tensors.get_mut(&format!("{Q}_scale")).unwrap().bytes[18..20].copy_from_slice(&[0x80, 0x7F]);
    let checkpoint = Checkpoint::open(directory(&file, &w8a8()).path()).unwrap();
    let line = bad_input(read_matrix(&checkpoint, TensorId::Layer(2, Role::Q), WeightFormat::Int8).map(drop));
    assert!(line.contains(Q) && line.contains("the scale inf in row 9"), "{line}");
}

/// The error for a directory whose matrices `change` has replaced.
fn refused_scheme(quantization: &Value, change: impl Fn(&mut File)) -> String {
    let mut file = compressed("BF16", |rows| vec![rows, 1]);
    change(&mut file);
    refusal(directory(&file, quantization).path())
}

#[test]
fn other_schemes_are_refused_by_name() {
    let with = |changes: &dyn Fn(&mut Value)| {
        let mut config = w8a8();
        changes(&mut config);
        config
    };
    let weights =
        |config: &mut Value, key: &str, value: Value| config["config_groups"]["group_0"]["weights"][key] = value;
    // 4 bits in words of 32, under another name.
    let packed = |f: &mut File| {
        let tensor = f.tensors.remove(Q).unwrap();
        f.tensors.insert(format!("{Q}_packed"), Tensor::new("I32", &[128, 16], tensor.bytes[..128 * 64].to_vec()));
    };
    let w4a16 = with(&|c| {
        c["format"] = json!("pack-quantized");
        weights(c, "num_bits", json!(4));
        weights(c, "strategy", json!("group"));
    });
    let line = refused_scheme(&w4a16, packed);
    let remedy = "which Kiln does not read; use the model in BF16, in INT8 of llm-compressor (w8a8), or as a GGUF file";
    let name = "is quantised by compressed-tensors, pack-quantized, 4 bits, a scale for each group, ";
    assert!(line.contains(name) && line.ends_with(remedy), "{line}");
    // FP8.
    let fp8 = with(&|c| {
        c["format"] = json!("float-quantized");
        weights(c, "type", json!("float"));
    });
    let line = refused_scheme(&fp8, |f| f.tensors.get_mut(Q).unwrap().dtype = "F8_E4M3".into());
    assert!(line.contains("compressed-tensors, float-quantized, 8 bits, float, a scale for each channel"), "{line}");
    // These look like what is read.
    let line = refused_scheme(&with(&|c| weights(c, "symmetric", json!(false))), |_| {});
    assert!(line.contains("int-quantized, 8 bits, a scale for each channel, with zero points"), "{line}");
    let line = refused_scheme(&with(&|c| c["sparsity_config"] = json!({"format": "sparse-24-bitmask"})), |_| {});
    assert!(line.contains("compressed-tensors, sparse-24-bitmask"), "{line}");
    let line = refused_scheme(&json!({"quant_method": "gptq", "bits": 8}), packed);
    assert!(line.contains("is quantised by gptq, "), "{line}");
    let line = refused_scheme(&json!({"load_in_8bit": true}), |_| {});
    assert!(line.contains("is quantised by another program, "), "{line}");
    let line = refused_scheme(&json!(8), |_| {});
    assert!(line.contains("quantization_config is 8; wanted an object"), "{line}");
}

/// Taken for absent, such a value made of a scheme that is not read one that is.
#[test]
fn a_scheme_with_values_of_other_types_is_refused_by_the_key() {
    let file = compressed("BF16", |rows| vec![rows, 1]);
    let weights = |c: &mut Value, key: &str, value: Value| c["config_groups"]["group_0"]["weights"][key] = value;
    type Change<'a> = &'a dyn Fn(&mut Value);
    let changes: [(&str, Change); 7] = [
        ("symmetric is \"no\"; wanted true or false", &|c| weights(c, "symmetric", json!("no"))),
        ("type is 5; wanted text", &|c| weights(c, "type", json!(5))),
        ("strategy is true; wanted text", &|c| weights(c, "strategy", json!(true))),
        ("weights is 8; wanted an object", &|c| c["config_groups"]["group_0"]["weights"] = json!(8)),
        ("config_groups is a list", &|c| c["config_groups"] = json!([1, 2, 3, 4, 5])),
        ("format is 1; wanted text", &|c| c["sparsity_config"] = json!({"format": 1})),
        ("quant_method is 1; wanted text", &|c| c["quant_method"] = json!(1)),
    ];
    for (words, change) in changes {
        let mut quantization = w8a8();
        change(&mut quantization);
        let dir = directory(&file, &quantization);
        let line = refusal(dir.path());
        assert!(line.contains(words), "no `{words}` in: {line}");
    }
}

/// Weights that were never packed are weights, whatever the config promises.
#[test]
fn bf16_weights_are_read_whatever_scheme_the_config_names() {
    let file = File::read(&golden("tiny/model.safetensors"));
    for quantization in [w8a8(), json!({"quant_method": "fp8"}), json!({"quant_method": "compressed-tensors"})] {
        let dir = directory(&file, &quantization);
        let found = Checkpoint::open(Path::new(dir.path())).unwrap();
        assert_eq!(found.source(), SourceFormat::Native(WeightFormat::Bf16), "{quantization}");
    }
}
