//! Checks that a tokenizer.json is of Gemma's kind.

use serde::Deserialize;
use serde_json::json;

/// The fields that show whether a `tokenizer.json` is of Gemma's kind. The rest of the file is skipped.
#[derive(Deserialize)]
pub(super) struct TokenizerKind {
    model: ModelKind,
    #[serde(default)]
    decoder: serde_json::Value,
    #[serde(default)]
    normalizer: serde_json::Value,
    #[serde(default)]
    pre_tokenizer: serde_json::Value,
    #[serde(default)]
    post_processor: serde_json::Value,
}

#[derive(Deserialize)]
struct ModelKind {
    #[serde(rename = "type")]
    name: String,
    #[serde(default)]
    byte_fallback: bool,
    dropout: Option<f64>,
    continuing_subword_prefix: Option<String>,
    end_of_word_suffix: Option<String>,
}

impl TokenizerKind {
    /// The first setting in which this tokenizer differs from Gemma's; `None` if there is no difference.
    pub(super) fn find_difference(&self) -> Option<&'static str> {
        // The decoder that `PieceTable` and `StreamDecoder` reproduce.
        let decoder = json!({"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"},
            {"type": "Fuse"},
        ]});
        let normalizer = json!({"type": "Replace", "pattern": {"String": " "}, "content": "▁"});
        // The normalizer leaves no spaces to split at, so any behaviour will do.
        let splits_at_spaces = |v: &serde_json::Value| {
            v["type"] == "Split" && v["pattern"] == json!({"String": " "}) && v["invert"] != true
        };
        let filled = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
        let model = &self.model;
        [
            (model.name != "BPE", "its model is not BPE"),
            (!model.byte_fallback, "its model has no byte_fallback"),
            (model.dropout.is_some_and(|dropout| dropout != 0.0), "its model has dropout"),
            (filled(&model.continuing_subword_prefix), "its model has a continuing_subword_prefix"),
            (filled(&model.end_of_word_suffix), "its model has an end_of_word_suffix"),
            (self.decoder != decoder, "its decoder differs"),
            (self.normalizer != normalizer, "its normalizer is not Replace of spaces by ▁"),
            (
                !self.pre_tokenizer.is_null() && !splits_at_spaces(&self.pre_tokenizer),
                "its pre_tokenizer is not Split at spaces",
            ),
            (
                !self.post_processor.is_null() && self.post_processor["type"] != "TemplateProcessing",
                "its post_processor is not TemplateProcessing",
            ),
        ]
        .into_iter()
        .find_map(|(differs, what)| differs.then_some(what))
    }
}
