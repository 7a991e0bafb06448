//! INT4: what it makes of a checkpoint, what it writes and reads, and what it refuses.

use std::path::Path;

use half::f16;
use kiln::Cancel;
use kiln::model::write::{WriteMonitor, forge, quantize};
use kiln::model::{Checkpoint, Role, Shape, SourceFormat, TensorId, WeightFormat};

use super::files::{File, Tensor, bad_input, decode_matrix, dir_with, golden, read_matrix, refusal};

const GROUP: usize = WeightFormat::GROUP;
const O: &str = "model.layers.2.self_attn.o_proj.weight";
const O_ID: TensorId = TensorId::Layer(2, Role::O);

fn int4(src: &Path, dst: &Path) {
    let monitor = WriteMonitor { progress: &|_, _| {}, cancel: &Cancel::default() };
    quantize::quantize(src, dst, WeightFormat::Int4, &monitor).unwrap();
}

fn native(format: WeightFormat) -> SourceFormat {
    SourceFormat::Native(format)
}

/// The golden case in INT4, as a file.
fn int4_file(case: &str) -> File {
    let place = tempfile::tempdir().unwrap();
    int4(&golden(case), &place.path().join("int4"));
    File::read(&place.path().join("int4/model.safetensors"))
}

#[test]
fn a_model_in_int4_is_the_one_that_loading_makes() {
    for case in ["tiny", "wide_small", "deep62"] {
        let place = tempfile::tempdir().unwrap();
        let [dst, again] = ["int4", "again"].map(|name| place.path().join(name));
        int4(&golden(case), &dst);
        let (from, to) = (Checkpoint::open(&golden(case)).unwrap(), Checkpoint::open(&dst).unwrap());
        let mut of_int4 = 0;
        for id in TensorId::all(from.shape()).filter(|id| !id.is_vector()) {
            let cols = id.dims(from.shape())[1];
            let is_int4 = id != TensorId::Embedding && cols.is_multiple_of(GROUP);
            let format = if is_int4 { WeightFormat::Int4 } else { WeightFormat::Int8 };
            assert_eq!(to.stored_as(id), native(format), "{case} {id:?}");
            assert_eq!(from.formats(WeightFormat::Int4)(id), format, "{case} {id:?}");
            // What is stored stays as it is, also where INT8 is asked for.
            assert_eq!([WeightFormat::Int4, WeightFormat::Int8].map(|asked| to.formats(asked)(id)), [format; 2]);
            assert_eq!(read_matrix(&from, id, format).unwrap(), read_matrix(&to, id, format).unwrap(), "{case} {id:?}");
            of_int4 += usize::from(is_int4);
        }
        // In wide_small only the rows of o are whole groups.
        let layers = from.shape().layers.len();
        assert_eq!(of_int4, if case == "wide_small" { layers } else { 7 * layers }, "{case}");
        int4(&dst, &again);
        let bytes = |dir: &Path| std::fs::read(dir.join("model.safetensors")).unwrap();
        assert!(bytes(&dst) == bytes(&again), "{case}: INT4 goes through unchanged");
    }
}

#[test]
fn int4_is_plain_safetensors() {
    let file = int4_file("tiny");
    let (weights, scales) = (&file.tensors[O], &file.tensors[&format!("{O}_scale")]);
    assert_eq!((weights.dtype.as_str(), weights.shape.as_slice()), ("U8", &[128, 64][..]));
    assert_eq!((scales.dtype.as_str(), scales.shape.as_slice()), ("F16", &[128, 4][..]));
    assert_eq!(file.tensors["model.embed_tokens.weight"].dtype, "I8");
    // Decoded by hand, the weights are those of Kiln's own decoding, and near the BF16 ones.
    let scale = |i: usize| f16::from_le_bytes([scales.bytes[2 * i], scales.bytes[2 * i + 1]]).to_f32();
    let by_hand: Vec<f32> = (0..128 * 128)
        .map(|i| {
            let byte = weights.bytes[i / GROUP * 16 + i % 16];
            let q = if i % GROUP < 16 { byte & 15 } else { byte >> 4 };
            scale(i / GROUP) * (f32::from(q) - 8.0)
        })
        .collect();
    let c = Checkpoint::open(dir_with("tiny", &file).path()).unwrap();
    assert_eq!(decode_matrix(&c, O_ID, WeightFormat::Int4), by_hand);
    let exact = File::read(&golden("tiny/model.safetensors")).tensors[O].bf16_values();
    let square = |values: &mut dyn Iterator<Item = f32>| values.map(|x| f64::from(x).powi(2)).sum::<f64>();
    let error = square(&mut exact.iter().zip(&by_hand).map(|(a, b)| a - b)) / square(&mut exact.iter().copied());
    assert!((0.05..0.1).contains(&error.sqrt()), "{}", error.sqrt());
}

#[test]
fn a_forged_model_keeps_odd_rows_in_int8() {
    let place = tempfile::tempdir().unwrap();
    let monitor = WriteMonitor { progress: &|_, _| {}, cancel: &Cancel::default() };
    let shape =
        Shape { hidden: 96, ffn: 200, tied: false, ..Checkpoint::open(&golden("tiny")).unwrap().shape().clone() };
    let dst = place.path().join("model");
    forge::forge(&shape, &dst, WeightFormat::Int4, 3, &monitor).unwrap();
    let c = Checkpoint::open(&dst).unwrap();
    assert_eq!((c.shape(), c.source()), (&shape, native(WeightFormat::Int4)));
    for id in TensorId::all(&shape).filter(|id| matches!(id, TensorId::Layer(1, _)) && !id.is_vector()) {
        let format = if id == TensorId::Layer(1, Role::Down) { WeightFormat::Int8 } else { WeightFormat::Int4 };
        assert_eq!(c.stored_as(id), native(format), "{id:?}");
    }
    assert_eq!([TensorId::Embedding, TensorId::Head].map(|id| c.stored_as(id)), [native(WeightFormat::Int8); 2]);
    let said = WeightFormat::Int4.exceptions(&shape).unwrap();
    assert_eq!(said, "mlp.down_proj.weight stay INT8 in every layer: INT4 takes rows of a multiple of 32");
    assert_eq!(WeightFormat::Int8.exceptions(&shape), None);
}

#[test]
fn int8_becomes_int4_and_int4_does_not_become_bf16() {
    let dir = dir_with("tiny", &File::read(&golden("tiny/model.int8.safetensors")));
    let (int8, bf16) = (Checkpoint::open(dir.path()).unwrap(), Checkpoint::open(&golden("tiny")).unwrap());
    assert_eq!(int8.formats(WeightFormat::Int4)(O_ID), WeightFormat::Int4);
    let [a, b] = [&int8, &bf16].map(|c| decode_matrix(c, O_ID, WeightFormat::Int4));
    let near = a.iter().zip(&b).filter(|(a, b)| (*a - *b).abs() < 0.02).count();
    assert!(near > a.len() * 9 / 10, "{near} of {}", a.len());
    let dir = dir_with("tiny", &int4_file("tiny"));
    let c = Checkpoint::open(dir.path()).unwrap();
    let line = bad_input(read_matrix(&c, O_ID, WeightFormat::Bf16).map(drop));
    assert!(line.contains("is INT4 already and cannot be kept as bf16"), "{line}");
}

#[test]
fn scales_outside_int4_name_tensor_and_row() {
    let good = int4_file("tiny");
    for scale in [f16::NAN, f16::INFINITY, f16::from_f32(-8192.0)] {
        let mut file = good.clone();
        let scales = &mut file.tensors.get_mut(&format!("{O}_scale")).unwrap().bytes;
        scales[(9 * 4 + 3) * 2..][..2].copy_from_slice(&scale.to_le_bytes());
        let dir = dir_with("tiny", &file);
        let c = Checkpoint::open(dir.path()).unwrap();
        let line = bad_input(read_matrix(&c, O_ID, WeightFormat::Int4).map(drop));
        assert!(line.contains(O) && line.contains("row 9") && line.contains(&format!("the scale {scale}")), "{line}");
    }
}

#[test]
fn int4_that_does_not_fit_its_matrix_is_refused() {
    let (good, scale) = (int4_file("tiny"), format!("{O}_scale"));
    let refused = |name: &str, tensor: Option<Tensor>| {
        let mut file = good.clone();
        match tensor {
            Some(tensor) => file.tensors.insert(name.into(), tensor),
            None => file.tensors.remove(name),
        };
        refusal(dir_with("tiny", &file).path())
    };
    let line = refused(&scale, None);
    assert!(line.contains(O) && line.contains("scales") && line.contains("missing"), "{line}");
    let line = refused(&scale, Some(Tensor::new("F16", &[128], vec![0; 256])));
    assert!(line.contains("[128]; wanted one per group, [128, 4]"), "{line}");
    let line = refused(&scale, Some(Tensor::new("F32", &[128, 4], vec![0; 2048])));
    assert!(line.contains("is F32; scales are F16"), "{line}");
    let line = refused(O, Some(Tensor::new("U8", &[128, 128], vec![0; 128 * 128])));
    assert!(line.contains("has shape [128, 128]; config.json wants [128, 64]"), "{line}");
    // Rows that are not whole groups are not INT4.
    let mut file = int4_file("wide_small");
    let name = "model.layers.0.mlp.down_proj.weight";
    file.tensors.insert(name.into(), Tensor::new("U8", &[168, 504], vec![0; 168 * 504]));
    let line = refusal(dir_with("wide_small", &file).path());
    assert!(line.contains("is U8; wanted BF16, F16, F32 or I8 with scales"), "{line}");
}

#[test]
fn a_value_too_large_for_int4_names_tensor_and_row() {
    let mut file = File::read(&golden("tiny/model.safetensors"));
    file.tensors.get_mut(O).unwrap().bytes[77 * 256 + 10..][..2].copy_from_slice(&half::bf16::MAX.to_le_bytes());
    let dir = dir_with("tiny", &file);
    let c = Checkpoint::open(dir.path()).unwrap();
    let line = bad_input(read_matrix(&c, O_ID, WeightFormat::Int4).map(drop));
    assert!(line.contains(O) && line.contains("row 77") && line.contains("too large for INT4"), "{line}");
    assert!(read_matrix(&c, O_ID, WeightFormat::Int8).is_ok());
}
