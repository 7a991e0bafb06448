//! Any bytes as a weight file: the header alone, and as the weights of a model of one small layer, read to the end.
#![no_main]

use kiln::model::checkpoint::archive::SafetensorsHeader;
use kiln::model::{Checkpoint, TensorId, WeightFormat};

const CONFIG: &str = r#"{"model_type": "gemma3_text", "vocab_size": 8, "hidden_size": 8, "intermediate_size": 8,
    "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 2}"#;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(header) = SafetensorsHeader::parse("fuzz", bytes, bytes.len()) {
        assert!(header.entries.iter().all(|entry| entry.range.end <= bytes.len()));
    }
    let Ok(checkpoint) = Checkpoint::from_bytes(CONFIG, bytes.to_vec()) else { return };
    for id in TensorId::all(checkpoint.shape()) {
        if id.is_vector() {
            let _ = checkpoint.read_vector(id);
            continue;
        }
        let [rows, cols] = id.dims(checkpoint.shape());
        for format in WeightFormat::MADE {
            let mut data = vec![0; rows * format.row_bytes(cols)];
            let mut scales = vec![0; rows * format.scale_bytes(cols)];
            let _ = checkpoint.read_rows(id, 0..rows, format, &mut data, &mut scales);
        }
    }
});
