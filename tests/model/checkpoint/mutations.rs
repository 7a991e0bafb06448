//! Thousands of damaged inputs for the parsers, from fixed seeds. Each is read or refused in one line, and none panics.
//! `tests/fuzz` does the same without an end, guided by coverage.

use kiln::model::{Checkpoint, TensorId, WeightFormat, config};
use serde_json::json;

use super::files::{File, Tensor, golden};
use crate::common::Random;

/// Replaces a number in the text by an edge value.
fn change_number(rng: &mut Random, bytes: &mut Vec<u8>) {
    const EDGES: [&str; 12] = [
        "0",
        "-1",
        "1",
        "255",
        "4294967296",
        "9223372036854775807",
        "18446744073709551615",
        "18446744073709551616",
        "1e308",
        "-0.0",
        "null",
        "[]",
    ];
    let from = rng.below(bytes.len());
    let Some(start) = bytes[from..].iter().position(u8::is_ascii_digit).map(|i| from + i) else { return };
    let len = bytes[start..].iter().take_while(|b| b.is_ascii_digit()).count();
    bytes.splice(start..start + len, EDGES[rng.below(EDGES.len())].bytes());
}

/// One to four random changes.
fn mutate(rng: &mut Random, original: &[u8]) -> Vec<u8> {
    let mut bytes = original.to_vec();
    for _ in 0..=rng.below(4) {
        if bytes.is_empty() {
            break;
        }
        let at = rng.below(bytes.len());
        match rng.below(7) {
            0 => bytes[at] ^= 1 << rng.below(8),
            1 => bytes[at] = rng.below(256) as u8,
            2 => bytes.truncate(at),
            3 => bytes.insert(at, b"{}[]\",:0\\\0\xFF"[rng.below(11)]),
            4 => {
                let end = (at + rng.below(40)).min(bytes.len());
                let piece = bytes[at..end].to_vec();
                let to = rng.below(bytes.len());
                bytes.splice(to..to, piece);
            }
            _ => change_number(rng, &mut bytes),
        }
    }
    bytes
}

fn assert_refusal(error: &kiln::Error) {
    assert_eq!(error.exit_code(), 2, "{error}");
    assert_eq!(error.to_string().lines().count(), 1, "{error}");
    assert!(error.to_string().len() < 2000, "{error}");
}

#[test]
fn damaged_configs_are_read_or_refused() {
    let mut rng = Random(0x6B69_6C6E);
    let (mut read, mut refused) = (0, 0);
    for name in ["config.json", "config.legacy_text.json", "config.legacy_mm.json"] {
        let original = std::fs::read(golden("tiny").join(name)).unwrap();
        for _ in 0..3000 {
            let text = String::from_utf8_lossy(&mutate(&mut rng, &original)).into_owned();
            match config::parse(&text, Some(&text)) {
                Ok(shape) => {
                    // An accepted shape is sound: it can be written and parsed again, and counted.
                    assert_eq!(config::parse(&config::to_json(&shape), None).unwrap(), shape);
                    assert!(shape.matrix_elements_per_token() > 0);
                    read += 1;
                }
                Err(error) => {
                    assert_refusal(&error);
                    refused += 1;
                }
            }
        }
    }
    assert!(read > 500 && refused > 500, "{read} read, {refused} refused");
}

/// A config for a model of a few hundred weights.
fn small_config() -> String {
    json!({
        "model_type": "gemma3_text", "vocab_size": 8, "hidden_size": 8, "intermediate_size": 8,
        "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 2,
        "bos_token_id": 2,
    })
    .to_string()
}

/// That model's file, with its matrices as `dtype` or in a scheme of the earlier engine.
fn small_file(form: &str) -> Vec<u8> {
    let shape = config::parse(&small_config(), None).unwrap();
    let mut file = File::default();
    for id in TensorId::all(&shape) {
        let [rows, cols] = id.dims(&shape);
        let dims: &[usize] = if id.is_vector() { &[cols] } else { &[rows, cols] };
        let (n, name) = (rows * cols, id.name());
        let form = if id.is_vector() && form == "native" { "bf16" } else { form };
        let (dtype, width, scales) = match form {
            "bf16" => ("BF16", 2, 0),
            "native" => ("I8", 1, rows),
            "int4_grouped" => ("I8", 1, n.div_ceil(128)),
            "int8_symmetric" => ("I8", 1, 1),
            _ => ("U8", 1, 2),
        };
        file.tensors.insert(name.clone(), Tensor::new(dtype, dims, vec![1; n * width]));
        if scales > 0 {
            file.tensors.insert(format!("{name}_scale"), Tensor::f32(&[scales], &vec![0.5; scales]));
        }
        if form.starts_with("int") {
            file.metadata.insert(name, form.into());
        }
    }
    file.bytes()
}

/// Reads everything in a checkpoint, in every format.
fn read_all(c: &Checkpoint) -> kiln::Result<()> {
    let ids: Vec<TensorId> = TensorId::all(c.shape()).collect();
    for id in ids {
        if id.is_vector() {
            c.read_vector(id)?;
            continue;
        }
        let [rows, cols] = id.dims(c.shape());
        for format in WeightFormat::MADE {
            let mut data = vec![0; rows * format.row_bytes(cols)];
            let mut scales = vec![0; rows * format.scale_bytes(cols)];
            let result = c.read_rows(id, 0..rows, format, &mut data, &mut scales);
            match result {
                Err(error) if format == WeightFormat::Bf16 => assert_refusal(&error),
                other => other?,
            }
        }
    }
    Ok(())
}

#[test]
fn damaged_weight_files_are_read_or_refused() {
    let mut rng = Random(0x7361_6665);
    let config = small_config();
    for form in ["bf16", "native", "int4_grouped", "int8_symmetric", "int8_asymmetric"] {
        let original = small_file(form);
        read_all(&Checkpoint::from_bytes(&config, original.clone()).unwrap()).unwrap();
        let (mut read, mut refused) = (0, 0);
        for _ in 0..2000 {
            match Checkpoint::from_bytes(&config, mutate(&mut rng, &original)).and_then(|c| read_all(&c)) {
                Ok(()) => read += 1,
                Err(error) => {
                    assert_refusal(&error);
                    refused += 1;
                }
            }
        }
        assert!(read > 20 && refused > 500, "{form}: {read} read, {refused} refused");
    }
}
