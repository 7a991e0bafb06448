//! Any bytes as a GGUF file: the header alone, and as a model that is read to the end, with its tokenizer.
#![no_main]

use kiln::model::checkpoint::gguf::{Gguf, GgufHeader, MetadataValue};
use kiln::model::{Checkpoint, TensorId, WeightFormat};
use kiln::text::Tokenizer;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(header) = GgufHeader::parse("fuzz", bytes, bytes.len()) else { return };
    assert!(header.tensors.iter().all(|tensor| tensor.range.end <= bytes.len()));
    for list in header.metadata.values().filter_map(MetadataValue::as_array) {
        assert_eq!(list.texts().count() + list.numbers().count(), list.len());
    }
    let Ok(gguf) = Gguf::from_bytes(bytes.to_vec()) else { return };
    let _ = gguf.vocabulary().and_then(|vocabulary| Tokenizer::from_vocabulary(&vocabulary));
    let Ok(checkpoint) = Checkpoint::from_gguf(gguf) else { return };
    let formats = checkpoint.formats(WeightFormat::Int8);
    for id in TensorId::all(checkpoint.shape()) {
        let [rows, cols] = id.dims(checkpoint.shape());
        if id.is_vector() {
            let _ = checkpoint.read_vector(id);
            continue;
        }
        let format = formats(id);
        let mut data = vec![0; rows * format.row_bytes(cols)];
        let mut scales = vec![0; rows * format.scale_bytes(cols)];
        let read = checkpoint.read_rows(id, 0..rows, format, &mut data, &mut scales);
        let decoded = checkpoint.decode_rows(id, 0..rows, &mut vec![0.0; rows * cols]);
        // INT8 holds every finite value.
        assert_eq!(read.is_ok(), decoded.is_ok(), "{id:?}");
    }
});
