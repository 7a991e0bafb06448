//! The golden cases: models, with transformers' results for them.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// A file of tests/golden.
pub fn golden(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(path)
}

/// The directory of a golden case's model. The weights of a case that has none are drawn from its seed, once for all tests.
pub fn golden_dir(case: &str) -> PathBuf {
    if golden(case).join("model.safetensors").exists() {
        return golden(case);
    }
    let place = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let made = place.join(case);
    if !made.exists() {
        let dir = tempfile::tempdir_in(place).unwrap();
        for name in ["config.json", "generation_config.json"] {
            std::fs::copy(golden(case).join(name), dir.path().join(name)).unwrap();
        }
        std::fs::write(dir.path().join("model.safetensors"), draw_weights(case)).unwrap();
        // Another process may have been faster.
        let _ = std::fs::rename(dir.path(), &made);
    }
    made
}

/// The weights of a golden case, drawn as its generator does, in u64 and f32.
fn draw_weights(case: &str) -> Vec<u8> {
    let json: serde_json::Value =
        serde_json::from_slice(&std::fs::read(golden(case).join("golden.json")).unwrap()).unwrap();
    let seed = json["seed"].as_u64().unwrap();
    let tensors = json["weights"].as_object().unwrap().iter().map(|(name, of)| {
        let shape: Vec<usize> = of["shape"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap() as usize).collect();
        let float = |key: &str| of[key].as_f64().unwrap() as f32;
        let (cols, std) = (shape[shape.len() - 1], float("std"));
        let gains = (shape.len() > 1).then(|| DrawnNumbers::new(seed, &format!("{name}#row")));
        let gain = |row: usize| match &gains {
            Some(gains) => 1.0 + float("row_gain") * (gains.at(row) * (1.0 / 131_070.0)),
            None => 1.0,
        };
        let numbers = DrawnNumbers::new(seed, name);
        let mut bytes = Vec::new();
        for row in 0..shape.iter().product::<usize>() / cols {
            let (gain, mean) = (gain(row), float("mean"));
            let weights = (row * cols..(row + 1) * cols).map(|i| numbers.at(i) * (1f64 / 37_837.227) as f32 * std);
            bytes.extend(weights.flat_map(|w| half::bf16::from_f32(w * gain + mean).to_le_bytes()));
        }
        (name.clone(), shape, bytes)
    });
    let tensors: Vec<_> = tensors.collect();
    let views = tensors.iter().map(|(name, shape, bytes)| {
        (name, safetensors::tensor::TensorView::new(safetensors::Dtype::BF16, shape.clone(), bytes).unwrap())
    });
    safetensors::serialize(views, None).unwrap()
}

/// Numbers by their index, nearly normal: each is the sum of a random word's four quarters.
struct DrawnNumbers(u64);

impl DrawnNumbers {
    const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

    fn new(seed: u64, name: &str) -> DrawnNumbers {
        let fnv =
            name.bytes().fold(0xCBF2_9CE4_8422_2325, |h: u64, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01B3));
        DrawnNumbers(DrawnNumbers::mix(fnv.wrapping_add(seed.wrapping_mul(DrawnNumbers::STEP))))
    }

    fn at(&self, i: usize) -> f32 {
        let word = DrawnNumbers::mix(self.0.wrapping_add((i as u64 + 1).wrapping_mul(DrawnNumbers::STEP)));
        ([0, 16, 32, 48].map(|shift| (word >> shift & 0xFFFF) as i64).iter().sum::<i64>() - 131_070) as f32
    }

    /// SplitMix64's output function.
    fn mix(z: u64) -> u64 {
        let z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }
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
