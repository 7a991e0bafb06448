//! The earlier engine's files: one safetensors per layer and source shard, three schemes, two spellings of the names.

use std::path::Path;

use kiln::model::{Checkpoint, Role, SourceFormat, TensorId, WeightFormat};

use super::files::{File, Tensor, decode_matrix, dir_with_config, golden, read_matrix, refusal};

/// A tensor in one of the schemes, its scales, and the largest error that the scheme makes.
fn encode(scheme: &str, tensor: &Tensor) -> (Tensor, Tensor, f32) {
    let values = tensor.bf16_values();
    let max = |v: &[f32]| v.iter().fold(0f32, |m, w| m.max(w.abs()));
    match scheme {
        "int8_symmetric" => {
            let scale = max(&values) / 127.0;
            let q = values.iter().map(|w| (w / scale).round() as i8 as u8).collect();
            (Tensor::new("I8", &tensor.shape, q), Tensor::f32(&[1], &[scale]), scale / 2.0)
        }
        "int4_grouped" => {
            let scales: Vec<f32> = values.chunks(128).map(|g| (max(g) / 7.0).max(1e-12)).collect();
            let q = values.iter().enumerate().map(|(i, w)| (w / scales[i / 128]).round() as i8 as u8).collect();
            let error = max(&scales) / 2.0;
            (Tensor::new("I8", &tensor.shape, q), Tensor::f32(&[scales.len()], &scales), error)
        }
        _ => {
            let (low, high) = values.iter().fold((0f32, 0f32), |(l, h), w| (l.min(*w), h.max(*w)));
            let scale = (high - low) / 255.0;
            let zero = (-low / scale).round();
            let q = values.iter().map(|w| (w / scale + zero).round().clamp(0.0, 255.0) as u8).collect();
            (Tensor::new("U8", &tensor.shape, q), Tensor::f32(&[2], &[scale, zero]), scale)
        }
    }
}

/// The scheme that the earlier engine gave to a tensor.
fn scheme_of(name: &str) -> &'static str {
    if name.contains("norm") || name.contains("embed") {
        "int8_asymmetric"
    } else if name.contains("mlp") {
        "int4_grouped"
    } else {
        "int8_symmetric"
    }
}

/// Writes the case's tensors by layer and half, as two source shards would give them. Returns each error bound.
fn write_layers(dir: &Path, case: &str, prefixed: bool, scheme: impl Fn(&str) -> &'static str) -> Vec<(TensorId, f32)> {
    let source = File::read(&golden(case).join("model.safetensors"));
    let mut files: std::collections::BTreeMap<String, File> = Default::default();
    let mut bounds = Vec::new();
    let shape = Checkpoint::open(&golden(case)).unwrap().shape().clone();
    for id in TensorId::all(&shape) {
        let tensor = &source.tensors[&id.name()];
        let (q, scale, bound) = encode(scheme(&id.name()), tensor);
        let (stem, name) = match id {
            TensorId::Layer(layer, role) => {
                let shard = if role < Role::Q { 1 } else { 2 };
                let prefix = if prefixed { format!("layer_{layer}_") } else { String::new() };
                (format!("model-0000{shard}-of-00002_layer_{layer}"), format!("{prefix}language_model.{}", id.name()))
            }
            _ => ("model-00001-of-00002_shared".into(), format!("language_model.{}", id.name())),
        };
        let file = files.entry(stem).or_default();
        file.tensors.insert(format!("{name}_scale"), scale);
        file.tensors.insert(name.clone(), q);
        file.metadata.insert(name, scheme(&id.name()).into());
        bounds.push((id, bound));
    }
    for (stem, file) in files {
        file.write(&dir.join(format!("{stem}.safetensors")));
    }
    bounds
}

/// Every tensor of `dir` is within its scheme's bound of the golden case, plus the row's own INT8 step.
fn assert_within(dir: &Path, case: &str, bounds: &[(TensorId, f32)]) {
    let exact = Checkpoint::open(&golden(case)).unwrap();
    let c = Checkpoint::open(dir).unwrap();
    assert_eq!(c.source(), SourceFormat::Native(WeightFormat::Int8));
    for &(id, bound) in bounds {
        let [_, cols] = id.dims(c.shape());
        let (got, wanted, steps) = if id.is_vector() {
            (c.read_vector(id).unwrap(), exact.read_vector(id).unwrap(), vec![0.0])
        } else {
            let (data, scales) = read_matrix(&c, id, WeightFormat::Int8).unwrap();
            // A row by itself, wherever in a group it begins.
            let (row, stride) = (scales.len() / 2, WeightFormat::Int8.row_bytes(cols));
            let (mut one, mut scale) = (vec![0u8; stride], [0; 4]);
            c.read_rows(id, row..row + 1, WeightFormat::Int8, &mut one, &mut scale).unwrap();
            let scale = f32::from_le_bytes(scale);
            assert!(one == data[row * stride..(row + 1) * stride] && scale == scales[row], "{case} {id:?}");
            (
                decode_matrix(&c, id, WeightFormat::Int8),
                decode_matrix(&exact, id, WeightFormat::Bf16),
                scales.iter().map(|s| s / 2.0).collect(),
            )
        };
        let mut worst = 0f32;
        for (i, (a, b)) in got.iter().zip(&wanted).enumerate() {
            let allowed = (bound + steps[i / cols]) * 1.001 + 1e-7;
            assert!((a - b).abs() <= allowed, "{case} {id:?} element {i}: {a} for {b}, allowed {allowed}");
            worst = worst.max((a - b).abs());
        }
        assert!(worst > bound / 4.0, "{case} {id:?}: the bound {bound} is no test of {worst}");
    }
}

#[test]
fn mixed_schemes_with_and_without_a_layer_prefix_round_trip() {
    for case in ["tiny", "wide_small"] {
        for prefixed in [false, true] {
            let dir = dir_with_config(case);
            let bounds = write_layers(dir.path(), case, prefixed, scheme_of);
            assert_within(dir.path(), case, &bounds);
        }
    }
}

#[test]
fn each_scheme_alone_round_trips() {
    for scheme in ["int8_symmetric", "int4_grouped", "int8_asymmetric"] {
        let dir = dir_with_config("tiny");
        let bounds = write_layers(dir.path(), "tiny", true, |_| scheme);
        assert_within(dir.path(), "tiny", &bounds);
    }
}

/// The layer file that holds the matrices of layer 0, and one of its tensors.
const LAYER: &str = "model-00002-of-00002_layer_0.safetensors";
const GATE: &str = "language_model.model.layers.0.mlp.gate_proj.weight";
const Q: &str = "language_model.model.layers.0.self_attn.q_proj.weight";

fn spoiled(spoil: impl FnOnce(&mut File)) -> tempfile::TempDir {
    let dir = dir_with_config("tiny");
    write_layers(dir.path(), "tiny", false, scheme_of);
    let path = dir.path().join(LAYER);
    let mut file = File::read(&path);
    for name in file.tensors.keys().filter(|name| !name.ends_with("_scale")) {
        file.metadata.insert(name.clone(), scheme_of(name).into());
    }
    spoil(&mut file);
    file.write(&path);
    dir
}

#[test]
fn an_unknown_scheme_is_refused() {
    let dir = spoiled(|f| drop(f.metadata.insert(GATE.into(), "int2_magic".into())));
    let line = refusal(dir.path());
    assert!(line.contains(GATE) && line.contains("unknown scheme int2_magic"), "{line}");
}

#[test]
fn scales_that_the_scheme_does_not_have_are_refused() {
    let dir = spoiled(|f| drop(f.tensors.insert(format!("{GATE}_scale"), Tensor::f32(&[3], &[1.0; 3]))));
    let line = refusal(dir.path());
    assert!(line.contains(GATE) && line.contains("wants 512 of them"), "{line}");
    let dir = spoiled(|f| drop(f.tensors.remove(&format!("{Q}_scale"))));
    assert!(refusal(dir.path()).contains("q_proj.weight_scale are missing"));
    let dir = spoiled(|f| drop(f.tensors.insert(format!("{Q}_scale"), Tensor::f32(&[1], &[f32::NAN]))));
    assert!(refusal(dir.path()).contains("has the scale NaN"));
}

#[test]
fn an_element_type_that_the_scheme_does_not_have_is_refused() {
    let dir = spoiled(|f| f.tensors.get_mut(Q).unwrap().dtype = "U8".into());
    assert!(refusal(dir.path()).contains("is U8; its scheme wants I8"));
}

#[test]
fn eight_bit_values_under_a_four_bit_scheme_are_refused() {
    let dir = spoiled(|f| f.tensors.get_mut(GATE).unwrap().bytes[3 * 128 + 5] = 8);
    let c = Checkpoint::open(dir.path()).unwrap();
    let error = read_matrix(&c, TensorId::Layer(0, Role::Gate), WeightFormat::Int8).unwrap_err();
    assert!(error.to_string().contains("value 8") && error.to_string().contains("row 3"), "{error}");
}
