//! Models of any shape, with weights from a seed.

use super::load;
use kiln::Cancel;
use kiln::engine::{Device, Options};
use kiln::executor::Measure;
use kiln::model::write::{WriteMonitor, forge};
use kiln::model::{LayerKind, Shape, WeightFormat, presets};
use std::path::PathBuf;

/// Two local layers and a global one, in small odd sizes.
pub fn small_shape() -> Shape {
    Shape {
        vocab: 257,
        hidden: 72,
        ffn: 200,
        layers: vec![LayerKind::Local, LayerKind::Local, LayerKind::Global],
        query_pre_attn_scalar: 18.0,
        max_context: 512,
        eos: vec![1],
        ..presets::preset("gemma3-27b").unwrap().with_heads(4, 2, 32).with_window(9)
    }
}

/// A model directory that is removed on drop.
pub struct Forged {
    dir: tempfile::TempDir,
}

impl Forged {
    pub fn new(shape: &Shape, format: WeightFormat) -> Forged {
        let dir = tempfile::tempdir().unwrap();
        let monitor = WriteMonitor { progress: &|_, _| {}, cancel: &Cancel::default() };
        forge::forge(shape, &dir.path().join("model"), format, 7, &monitor).unwrap();
        Forged { dir }
    }

    pub fn path(&self) -> PathBuf {
        self.dir.path().join("model")
    }

    /// Makes row i of the head a copy of row `i % period`, scale included.
    pub fn repeat_head_rows(&self, period: usize) {
        let path = self.dir.path().join("model/model.safetensors");
        let mut bytes = std::fs::read(&path).unwrap();
        let (header, metadata) = safetensors::SafeTensors::read_metadata(&bytes).unwrap();
        for name in ["lm_head.weight", "lm_head.weight_scale"] {
            let info = metadata.info(name).unwrap();
            let (start, end) = info.data_offsets;
            let tensor = &mut bytes[8 + header + start..8 + header + end];
            let row = tensor.len() / info.shape[0];
            for i in period..info.shape[0] {
                tensor.copy_within(i % period * row..(i % period + 1) * row, i * row);
            }
        }
        std::fs::write(&path, bytes).unwrap();
    }

    pub fn load(&self, device: Device, options: Options) -> Box<dyn Measure> {
        load(&self.path(), Options { device, ..options })
    }
}
