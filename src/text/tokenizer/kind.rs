//! Checks that a tokenizer.json is of Gemma's kind.

use std::fmt;

use serde::de::{IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::json;

use crate::text::limits::{self, ADDED, LONGEST, TOKENS};

/// The fields that show whether a `tokenizer.json` is of Gemma's kind. They are checked before the `tokenizers` crate
/// sees the file's added tokens; the rest of the file is skipped.
#[derive(Deserialize)]
pub(super) struct TokenizerKind {
    model: ModelKind,
    #[serde(default)]
    added_tokens: JsonExtent,
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
    #[serde(default)]
    vocab: JsonExtent,
    #[serde(default)]
    merges: JsonExtent,
}

/// The size of a list or an object in the file, whose contents are skipped.
#[derive(Debug, Default, Clone, Copy)]
struct JsonExtent {
    entries: usize,
    /// Bytes of the longest name in an object, or of the longest `content` in a list of objects.
    longest: usize,
}

/// An element of a list: an added token, with the length of its text, or another value.
#[derive(Deserialize)]
#[serde(untagged)]
enum Element {
    Added { content: String },
    Other(IgnoredAny),
}

impl<'de> Deserialize<'de> for JsonExtent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ExtentVisitor;
        impl<'de> Visitor<'de> for ExtentVisitor {
            type Value = JsonExtent;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a list or an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<JsonExtent, A::Error> {
                let mut extent = JsonExtent::default();
                while let Some((name, _)) = map.next_entry::<String, IgnoredAny>()? {
                    extent = JsonExtent { entries: extent.entries + 1, longest: extent.longest.max(name.len()) };
                }
                Ok(extent)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<JsonExtent, A::Error> {
                let mut extent = JsonExtent::default();
                while let Some(element) = list.next_element::<Element>()? {
                    let length = if let Element::Added { content } = element { content.len() } else { 0 };
                    extent = JsonExtent { entries: extent.entries + 1, longest: extent.longest.max(length) };
                }
                Ok(extent)
            }
        }
        deserializer.deserialize_any(ExtentVisitor)
    }
}

impl TokenizerKind {
    /// The first quantity larger than in any Gemma's tokenizer: counts before sizes.
    pub(super) fn find_excess(&self) -> Option<String> {
        let (vocab, added) = (self.model.vocab, self.added_tokens);
        let merges = limits::most(limits::MERGES, vocab.entries);
        [
            (vocab.entries, TOKENS, "tokens"),
            (added.entries, ADDED, "added tokens"),
            (self.model.merges.entries, merges, "merges"),
            (vocab.longest.max(added.longest), LONGEST, "bytes in a token"),
        ]
        .into_iter()
        .find_map(|(found, most, what)| {
            (found > most).then(|| format!("it has {found} {what}; at most {most} make sense"))
        })
    }

    /// The first difference from Gemma's tokenizer.
    pub(super) fn find_difference(&self) -> Option<&'static str> {
        // The decoder that `PieceTable` and `StreamDecoder` reproduce.
        let decoder = json!({"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"},
            {"type": "Fuse"},
        ]});
        let normalizer = json!({"type": "Replace", "pattern": {"String": " "}, "content": "▁"});
        // That normalizer leaves no spaces to split at, so any behaviour will do.
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
