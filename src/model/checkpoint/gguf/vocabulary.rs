//! The tokenizer that a GGUF file holds: tokens with their types, and the scores (Gemma 3) or the list (Gemma 4) by
//! which they merge.

use std::collections::HashMap;

use super::header::{MetadataArray, MetadataValue};
use crate::display::quote;
use crate::model::config::limit;
use crate::{Error, Result};

/// SentencePiece's byte-pair encoding: the scores of tokens order the merges.
const SCORED: &str = "llama";
/// Gemma 4's byte-pair encoding: the file lists the merges, and its scores mean nothing.
const LISTED: &str = "gemma4";

const REMEDY: &str = "use a GGUF file that was made with the model's tokenizer.model";

/// The kinds of token in a GGUF file's vocabulary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenKind {
    /// A token that merges produce.
    Normal,
    /// The token that stands for text without a token.
    Unknown,
    /// A special token, such as `<bos>`.
    Control,
    /// Text that is split off before merging.
    UserDefined,
    /// An id that no token uses.
    Unused,
    /// A token for one byte of UTF-8.
    Byte,
}

/// The tokens, indexed by id, and how they merge.
#[derive(Debug, Clone, PartialEq)]
pub struct GgufVocabulary {
    /// The tokens, by id.
    pub tokens: Vec<VocabularyToken>,
    /// The pairs that merge, the first ones first: two tokens with a space in between. `None`: the tokens' scores order
    /// the merges.
    pub merges: Option<Vec<String>>,
}

/// A token of the vocabulary.
#[derive(Debug, Clone, PartialEq)]
pub struct VocabularyToken {
    /// The token's text, with "▁" for spaces.
    pub text: String,
    /// Priority of the merge that results in this token: higher ones come first. Finite.
    pub score: f32,
    /// The token's kind.
    pub kind: TokenKind,
}

/// Reads the tokens and their merges. `label` names the file in errors.
///
/// # Errors
/// [`Error::Input`]: there is no tokenizer, it is of another kind, or its lists contradict each other.
pub(super) fn read(label: &str, metadata: &HashMap<String, MetadataValue>) -> Result<GgufVocabulary> {
    let wrong = |what: String| Error::input(format!("{label}: {what}"), REMEDY);
    let get = |key: &str| metadata.get(&format!("tokenizer.ggml.{key}"));
    let is_listed = match get("model") {
        Some(MetadataValue::Text(model)) if [SCORED, LISTED].contains(&model.as_str()) => model == LISTED,
        Some(other) => {
            return Err(wrong(format!("tokenizer.ggml.model is {}; wanted {SCORED} or {LISTED}", other.excerpt())));
        }
        None => return Err(wrong("it has no tokenizer".into())),
    };
    let list = |key: &str| {
        let list = get(key).and_then(MetadataValue::as_array);
        list.ok_or_else(|| wrong(format!("tokenizer.ggml.{key} is no list, or is not there")))
    };
    let (texts, scores, kinds) = (list("tokens")?, list("scores")?, list("token_type")?);
    let count = texts.len();
    if count > limit::VOCAB {
        return Err(wrong(format!("it has {count} tokens; at most {} make sense", limit::VOCAB)));
    }
    for (key, list) in [("scores", scores), ("token_type", kinds)] {
        if list.len() != count {
            return Err(wrong(format!("tokenizer.ggml.{key} has {} elements for {count} tokens", list.len())));
        }
    }
    let mut tokens = Vec::with_capacity(count);
    for (id, ((text, score), kind)) in texts.texts().zip(numbers(scores)).zip(kinds.numbers()).enumerate() {
        let of = |what: &str, found: &str| wrong(format!("the {what} of token {id}, {}, is {found}", quote(text)));
        let score = score.filter(|s| s.is_finite()).ok_or_else(|| of("score", "no finite number"))?;
        let kind = kind.as_unsigned().and_then(kind_of).ok_or_else(|| of("type", &kind.excerpt()))?;
        tokens.push(VocabularyToken { text: text.to_owned(), score, kind });
    }
    if tokens.len() != count {
        return Err(wrong("tokenizer.ggml.tokens, .scores and .token_type are not lists of texts and numbers".into()));
    }
    if let Some(id) = get("bos_token_id") {
        let token = id.as_unsigned().and_then(|id| tokens.get(usize::try_from(id).ok()?));
        let wanted =
            || wrong(format!("tokenizer.ggml.bos_token_id is {}; wanted a token id below {count}", id.excerpt()));
        let text = &token.ok_or_else(wanted)?.text;
        if text != "<bos>" {
            let cause = format!("a text begins with token {}, {}; Gemma's with <bos>", id.excerpt(), quote(text));
            return Err(wrong(cause));
        }
    }
    let merges =
        is_listed.then(|| list("merges").map(|merges| merges.texts().map(str::to_owned).collect())).transpose()?;
    Ok(GgufVocabulary { tokens, merges })
}

/// The scores as f32; `None` for an element that is not a float.
fn numbers(scores: &MetadataArray) -> impl Iterator<Item = Option<f32>> {
    scores.numbers().map(|score| score.as_float().map(|x| x as f32))
}

fn kind_of(code: u64) -> Option<TokenKind> {
    Some(match code {
        1 => TokenKind::Normal,
        2 => TokenKind::Unknown,
        3 => TokenKind::Control,
        4 => TokenKind::UserDefined,
        5 => TokenKind::Unused,
        6 => TokenKind::Byte,
        _ => return None,
    })
}
