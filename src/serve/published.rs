//! A model's published form: the format of its files, their quantisation and size, as Ollama's clients list it.

use crate::Result;
use crate::engine::ModelFiles;
use crate::model::checkpoint::gguf::Gguf;
use crate::model::{Shape, TensorId};
use std::path::Path;

/// The published form of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Published {
    /// The format's name: `gguf` or `safetensors`.
    pub format: &'static str,
    /// In capitals: the name of a GGUF file's mix, such as `Q4_K_M`, else of the format of most bytes.
    pub quantization: String,
    /// Bytes of the files of weights; of the built-in model, of its tensors.
    pub bytes: u64,
    /// The number of elements in all tensors.
    pub parameters: u64,
}

impl Published {
    /// Determines it from the files' headers.
    ///
    /// # Errors
    /// Input: a file is missing or damaged.
    pub(super) fn of(files: &ModelFiles, shape: &Shape) -> Result<Published> {
        let parameters = TensorId::all(shape).map(|id| id.dims(shape).iter().map(|n| *n as u64).product::<u64>()).sum();
        if let ModelFiles::Gguf(file) = files {
            let gguf = Gguf::open(file)?;
            let (quantization, bytes) = (gguf.mix().to_owned(), gguf.file_bytes());
            return Ok(Published { format: "gguf", quantization, bytes, parameters });
        }
        let checkpoint = files.checkpoint()?;
        let quantization = checkpoint.source().name().to_uppercase();
        let bytes = files.place().and_then(weights).unwrap_or_else(|| checkpoint.stored_bytes());
        Ok(Published { format: "safetensors", quantization, bytes, parameters })
    }

    /// The number of parameters in Ollama's notation: `268.10M`, `4B`, `27.2B`.
    pub fn size(&self) -> String {
        let number = self.parameters as f64;
        let (number, digits, unit) = match number {
            1e9.. => (number / 1e9, 1, "B"),
            1e6.. => (number / 1e6, 2, "M"),
            1e3.. => (number / 1e3, 0, "K"),
            _ => (number, 0, ""),
        };
        let digits = if number.fract() == 0.0 { 0 } else { digits };
        format!("{number:.digits$}{unit}")
    }
}

/// Bytes of the files of weights in a directory. `None`: there are none, or it cannot be read.
fn weights(directory: &Path) -> Option<u64> {
    let files = std::fs::read_dir(directory).ok()?.flatten().map(|entry| entry.path());
    let files = files.filter(|path| path.extension().is_some_and(|extension| extension == "safetensors"));
    // Follows links, which a hub's cache has.
    let bytes: u64 = files.filter_map(|path| Some(std::fs::metadata(path).ok()?.len())).sum();
    (bytes > 0).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_of_parameters_is_written_as_ollama_does() {
        for (parameters, size) in
            [(268_098_176, "268.10M"), (27_009_346_304, "27.0B"), (4_000_000_000, "4B"), (1_800, "2K"), (12, "12")]
        {
            let published = Published { format: "gguf", quantization: "Q4_0".into(), bytes: 1, parameters };
            assert_eq!(published.size(), size);
        }
    }

    #[test]
    fn the_built_in_model_is_described_by_its_tensors() {
        let checkpoint = ModelFiles::BuiltIn.checkpoint().unwrap();
        let published = Published::of(&ModelFiles::BuiltIn, checkpoint.shape()).unwrap();
        assert_eq!((published.format, published.bytes), ("safetensors", checkpoint.stored_bytes()));
        assert_eq!(published.quantization, checkpoint.source().name().to_uppercase());
        assert!(published.parameters >= checkpoint.shape().matrix_elements_per_token());
    }
}
