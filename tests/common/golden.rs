//! The golden cases: models, with transformers' results for them.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// A file of tests/golden.
pub fn golden(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(path)
}

/// A golden case: its prompts with the expected results of each.
pub struct Case {
    pub name: &'static str,
    pub json: serde_json::Value,
    tensors: HashMap<String, Vec<f32>>,
}

impl Case {
    pub fn open(name: &'static str) -> Case {
        let dir = golden(name);
        let json = serde_json::from_slice(&std::fs::read(dir.join("golden.json")).unwrap()).unwrap();
        let bytes = std::fs::read(dir.join("golden.safetensors")).unwrap();
        let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
        let floats = |b: &[u8]| b.chunks_exact(4).map(|c| f32::from_le_bytes(c.try_into().unwrap())).collect();
        let tensors = file.tensors().into_iter().map(|(n, t)| (n, floats(t.data()))).collect();
        Case { name, json, tensors }
    }

    pub fn prompts(&self) -> &[serde_json::Value] {
        self.json["prompts"].as_array().unwrap()
    }

    pub fn prompt(&self, name: &str) -> &serde_json::Value {
        let named = self.prompts().iter().find(|p| p["name"] == name);
        named.unwrap_or_else(|| panic!("{} has no prompt {name}", self.name))
    }

    pub fn tensor(&self, name: &str) -> &[f32] {
        self.tensors.get(name).unwrap_or_else(|| panic!("{} has no tensor {name}", self.name))
    }
}

pub fn ids(v: &serde_json::Value) -> Vec<u32> {
    v.as_array().unwrap().iter().map(|x| x.as_u64().unwrap() as u32).collect()
}

pub fn floats(v: &serde_json::Value) -> Vec<f32> {
    v.as_array().unwrap().iter().map(|x| x.as_f64().unwrap() as f32).collect()
}
