//! The names of mixes of quantised types, as files are called by.

use super::Gguf;
use super::header::MetadataValue;
use std::collections::BTreeMap;

/// llama.cpp's numbers of the mixes of formats, `general.file_type`, that Kiln runs.
const MIXES: [(u64, &str); 20] = [
    (0, "F32"),
    (1, "F16"),
    (2, "Q4_0"),
    (3, "Q4_1"),
    (7, "Q8_0"),
    (8, "Q5_0"),
    (9, "Q5_1"),
    (10, "Q2_K"),
    (11, "Q3_K_S"),
    (12, "Q3_K_M"),
    (13, "Q3_K_L"),
    (14, "Q4_K_S"),
    (15, "Q4_K_M"),
    (16, "Q5_K_S"),
    (17, "Q5_K_M"),
    (18, "Q6_K"),
    (21, "Q2_K_S"),
    (25, "IQ4_NL"),
    (30, "IQ4_XS"),
    (32, "BF16"),
];

impl Gguf {
    /// The name of the file's mix, such as `Q4_K_M`; without a key for it, the type of most of its bytes.
    pub fn mix(&self) -> &'static str {
        let number = self.metadata().get("general.file_type").and_then(MetadataValue::as_unsigned);
        let named = MIXES.iter().find(|(code, _)| Some(*code) == number).map(|(_, name)| *name);
        named.unwrap_or_else(|| self.commonest_type())
    }

    fn commonest_type(&self) -> &'static str {
        let mut bytes: BTreeMap<&'static str, usize> = BTreeMap::new();
        for tensor in self.files.iter().flat_map(|file| &file.header.tensors) {
            *bytes.entry(tensor.dtype.name).or_default() += tensor.range.len();
        }
        bytes.into_iter().max_by_key(|(_, bytes)| *bytes).map_or("", |(name, _)| name)
    }

    /// The size of the model's files in bytes.
    pub fn file_bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes.len() as u64).sum()
    }
}
