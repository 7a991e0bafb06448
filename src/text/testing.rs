//! Helpers for this module's unit tests.

use super::Tokenizer;

/// A 512-token tokenizer of Gemma's kind.
pub(crate) fn small_tokenizer() -> Tokenizer {
    Tokenizer::from_bytes(include_bytes!("../../tests/golden/tokenizer/tokenizer.json")).unwrap()
}

/// The small tokenizer with the tokens of thoughts, 512 and 513.
pub(crate) fn thinking_tokenizer() -> Tokenizer {
    let json = include_bytes!("../../tests/golden/tokenizer/tokenizer.json");
    let mut json: serde_json::Value = serde_json::from_slice(json).unwrap();
    let added = json["added_tokens"].as_array_mut().unwrap();
    for (id, content) in (512..).zip(super::calls::THOUGHT) {
        added.push(serde_json::json!({
            "id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
            "special": false,
        }));
    }
    Tokenizer::from_bytes(json.to_string().as_bytes()).unwrap()
}

/// The same tokenizer in the `tokenizers` crate.
pub(crate) fn small_crate_tokenizer() -> tokenizers::Tokenizer {
    tokenizers::Tokenizer::from_bytes(include_bytes!("../../tests/golden/tokenizer/tokenizer.json")).unwrap()
}

/// Pseudo-random test data, the same in every run (xorshift64*). The seed must not be 0.
pub(crate) struct Random(pub u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `bound`, which must not be 0.
    pub(crate) fn below(&mut self, bound: u32) -> u32 {
        ((self.next() >> 32) % u64::from(bound)) as u32
    }

    /// An index below `count`; 0 if `count` is 0.
    pub(crate) fn index(&mut self, count: usize) -> usize {
        (self.next() >> 32) as usize % count.max(1)
    }

    /// A number in [0, 1).
    pub(crate) fn unit(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u64 << 24) as f32
    }
}
