//! The start of a safetensors file: the header's length, its JSON from the safetensors crate, and spaces as padding.

use std::collections::HashMap;

use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};

use crate::{Error, Result};

/// Encodes the header for `tensors`, which are stored one after another in the order given. Its length, up to where the
/// data begin, is a multiple of `align` bytes.
///
/// # Errors
/// [`Error::Failed`]: the tensors' sizes do not fit together or overflow.
pub(crate) fn encode(
    tensors: Vec<(String, TensorInfo)>,
    metadata: Option<HashMap<String, String>>,
    align: usize,
) -> Result<Vec<u8>> {
    let failed = |e: String| Error::failed(format!("no safetensors header can be made: {e}"), "report this");
    let metadata = Metadata::new(metadata, tensors).map_err(|e| failed(e.to_string()))?;
    let mut bytes = vec![0; 8];
    serde_json::to_writer(&mut bytes, &metadata).map_err(|e| failed(e.to_string()))?;
    bytes.resize(bytes.len().next_multiple_of(align), b' ');
    let length = (bytes.len() - 8) as u64;
    bytes[..8].copy_from_slice(&length.to_le_bytes());
    Ok(bytes)
}

/// Encodes the header for f32 tensors, each given by name and dimensions.
///
/// # Errors
/// [`Error::Failed`]: the tensors' sizes overflow.
pub fn encode_f32(tensors: &[(&str, &[usize])]) -> Result<Vec<u8>> {
    let mut end = 0usize;
    let place = |(name, shape): &(&str, &[usize])| {
        let start = end;
        // A size that overflows will not match its dimensions, which the crate refuses.
        end = shape.iter().fold(4usize, |product, n| product.saturating_mul(*n)).saturating_add(start);
        let info = TensorInfo { dtype: Dtype::F32, shape: shape.to_vec(), data_offsets: (start, end) };
        ((*name).to_owned(), info)
    };
    encode(tensors.iter().map(place).collect(), None, 8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use safetensors::SafeTensors;

    #[test]
    fn f32_tensors_follow_one_another() {
        let mut file = encode_f32(&[("logits", &[2, 3]), ("hidden", &[1, 5])]).unwrap();
        assert_eq!(file.len() % 8, 0);
        let values: Vec<u8> = (0..11).flat_map(|i| (i as f32).to_le_bytes()).collect();
        file.extend(&values);
        let read = SafeTensors::deserialize(&file).unwrap();
        assert_eq!(read.tensor("logits").unwrap().shape(), [2, 3]);
        assert_eq!(read.tensor("logits").unwrap().data(), &values[..24]);
        assert_eq!(read.tensor("hidden").unwrap().data(), &values[24..]);
        assert!(encode_f32(&[("huge", &[usize::MAX, 2])]).is_err());
    }
}
