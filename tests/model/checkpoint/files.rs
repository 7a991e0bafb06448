//! Safetensors files and model directories for the tests, written without Kiln's own code.

use std::collections::BTreeMap;
use std::path::Path;

pub use crate::common::golden;
use kiln::model::{Checkpoint, TensorId, WeightFormat};
use serde_json::{Map, Value, json};

/// One tensor as a file holds it.
#[derive(Clone, PartialEq, Debug)]
pub struct Tensor {
    pub dtype: String,
    pub shape: Vec<usize>,
    pub bytes: Vec<u8>,
}

impl Tensor {
    pub fn new(dtype: &str, shape: &[usize], bytes: Vec<u8>) -> Tensor {
        Tensor { dtype: dtype.into(), shape: shape.into(), bytes }
    }

    pub fn f32(shape: &[usize], values: &[f32]) -> Tensor {
        Tensor::new("F32", shape, values.iter().flat_map(|v| v.to_le_bytes()).collect())
    }

    /// A BF16 tensor's values.
    pub fn bf16_values(&self) -> Vec<f32> {
        assert_eq!(self.dtype, "BF16");
        self.bytes.chunks_exact(2).map(|b| half::bf16::from_le_bytes([b[0], b[1]]).to_f32()).collect()
    }
}

/// A file's tensors by name, and its metadata.
#[derive(Clone, Default)]
pub struct File {
    pub tensors: BTreeMap<String, Tensor>,
    pub metadata: BTreeMap<String, String>,
}

impl File {
    pub fn read(path: &Path) -> File {
        let bytes = std::fs::read(path).unwrap();
        let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        let header: Map<String, Value> = serde_json::from_slice(&bytes[8..8 + length]).unwrap();
        let mut file = File::default();
        for (name, info) in header.iter().filter(|(name, _)| *name != "__metadata__") {
            let offset = |i: usize| 8 + length + info["data_offsets"][i].as_u64().unwrap() as usize;
            let shape: Vec<usize> =
                info["shape"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap() as usize).collect();
            let data = bytes[offset(0)..offset(1)].to_vec();
            file.tensors.insert(name.clone(), Tensor::new(info["dtype"].as_str().unwrap(), &shape, data));
        }
        file
    }

    /// The header as JSON and the data.
    pub fn parts(&self) -> (Value, Vec<u8>) {
        let (mut header, mut data) = (Map::new(), Vec::new());
        if !self.metadata.is_empty() {
            header.insert("__metadata__".into(), json!(self.metadata));
        }
        for (name, tensor) in &self.tensors {
            let start = data.len();
            data.extend_from_slice(&tensor.bytes);
            let info = json!({"dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": [start, data.len()]});
            header.insert(name.clone(), info);
        }
        (Value::Object(header), data)
    }

    pub fn bytes(&self) -> Vec<u8> {
        let (header, data) = self.parts();
        join(&header.to_string(), &data)
    }

    pub fn write(&self, path: &Path) {
        std::fs::write(path, self.bytes()).unwrap();
    }

    pub fn rename(self, rename: impl Fn(&str) -> String) -> File {
        let tensors = self.tensors.into_iter().map(|(name, tensor)| (rename(&name), tensor)).collect();
        File { tensors, ..self }
    }
}

/// A file's bytes from a header's text and the data.
pub fn join(header: &str, data: &[u8]) -> Vec<u8> {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(header.as_bytes());
    bytes.extend_from_slice(data);
    bytes
}

/// A model directory with the golden case's config and nothing else.
pub fn dir_with_config(case: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::copy(golden(case).join("config.json"), dir.path().join("config.json")).unwrap();
    dir
}

/// A model directory of one golden case with one weight file.
pub fn dir_with(case: &str, file: &File) -> tempfile::TempDir {
    let dir = dir_with_config(case);
    file.write(&dir.path().join("model.safetensors"));
    dir
}

/// A whole matrix: its bytes and scales.
pub fn read_matrix(c: &Checkpoint, id: TensorId, format: WeightFormat) -> kiln::Result<(Vec<u8>, Vec<f32>)> {
    let [rows, cols] = id.dims(c.shape());
    let mut data = vec![0xAAu8; rows * format.row_bytes(cols)];
    let mut scales = vec![f32::NAN; rows * format.scale_bytes(cols) / 4];
    c.read_rows(id, 0..rows, format, &mut data, bytemuck::cast_slice_mut(&mut scales))?;
    Ok((data, scales))
}

/// A whole matrix decoded to f32, row-major without padding.
pub fn decode_matrix(c: &Checkpoint, id: TensorId, format: WeightFormat) -> Vec<f32> {
    let [_, cols] = id.dims(c.shape());
    let (data, scales) = read_matrix(c, id, format).unwrap();
    let mut out = Vec::new();
    let (scales, scale_bytes): (&[u8], _) = (bytemuck::cast_slice(&scales), format.scale_bytes(cols));
    for (i, row) in data.chunks_exact(format.row_bytes(cols)).enumerate() {
        let mut values = vec![0f32; cols];
        format.decode_row(row, &scales[i * scale_bytes..(i + 1) * scale_bytes], &mut values);
        out.extend(values);
    }
    out
}

/// The error of opening a directory, checked to be bad input on one line.
pub fn refusal(dir: &Path) -> String {
    bad_input(Checkpoint::open(dir).map(|_| ()))
}

/// The message of a result that has to be bad input on one line.
pub fn bad_input(result: kiln::Result<()>) -> String {
    let error = result.expect_err("this has to be refused");
    assert_eq!(error.exit_code(), 2, "{error}");
    assert_eq!(error.to_string().lines().count(), 1, "{error}");
    assert!(error.to_string().len() < 1500, "too long: {error}");
    error.to_string()
}
