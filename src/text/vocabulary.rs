//! The tokenizer of a GGUF file's vocabulary.
//!
//! Gemma 4's files list the merges. Gemma 3's have SentencePiece's scores instead: it merges the two neighbours whose
//! joined text is the token with the highest score. [`super::bpe`] needs a list of pairs, so the pairs of each token
//! are listed by descending score. Ties are broken as in Gemma 3's tokenizer.json, which was made in this way too: the
//! longer left part first, then the longer right part, then the smaller ids. The list comes out the same.

use std::borrow::Cow;
use std::cmp::Reverse;

use tokenizers::AddedToken;

use super::bpe::{Bpe, Rules, TokenTable};
use super::calls::is_mark;
use super::limits::{self, LONGEST};
use crate::display::quote;
use crate::model::checkpoint::gguf::{GgufVocabulary, TokenKind, VocabularyToken};
use crate::{Error, Result};

/// Gemma's special tokens. Some files give them another type, and the tokens of calls too.
const SPECIAL: [&str; 13] = [
    "<pad>",
    "<eos>",
    "<bos>",
    "<unk>",
    "<start_of_turn>",
    "<end_of_turn>",
    "<start_of_image>",
    "<end_of_image>",
    "<image_soft_token>",
    "<|turn>",
    "<turn|>",
    "<|think|>",
    "<|image|>",
];

/// Tokens that some files mark as special, but tokenizer.json does not; `<unused0>` and the like also belong to them.
const ORDINARY: [&str; 3] = ["<mask>", "<2mass>", "[@BOS@]"];

const REMEDY: &str = "use a GGUF file that was made with the model's tokenizer.model";

/// A token with its effective type.
struct ScoredToken<'t> {
    text: Cow<'t, str>,
    score: f32,
    kind: TokenKind,
}

/// Builds the tokenizer of a vocabulary, and lists the added tokens, which are cut out of a text before merges.
///
/// # Errors
/// [`Error::Input`]: a token is listed twice, `<unk>` is missing, a merge is not of tokens, or tokens are longer or
/// have more merges than any Gemma's.
pub(super) fn assemble(given: &GgufVocabulary) -> Result<(Bpe, Vec<AddedToken>)> {
    let wrong = |what: String| Error::input(format!("the file's tokenizer is wrong: {what}"), REMEDY);
    let GgufVocabulary { tokens, merges } = given;
    check_sizes(tokens).map_err(wrong)?;
    let entry = |token| {
        let &VocabularyToken { ref text, score, kind } = token;
        let is_special = SPECIAL.contains(&text.as_str()) || is_mark(text);
        let kind = if is_special { TokenKind::Control } else { kind };
        // In such tokens some files write spaces for the vocabulary's literal "▁".
        let spaced = kind == TokenKind::UserDefined && text.contains(' ');
        let text = if spaced { text.replace(' ', "▁").into() } else { Cow::from(text) };
        let mut entry = ScoredToken { text, score, kind };
        if is_padding(&entry) {
            entry.kind = TokenKind::Unused;
        }
        entry
    };
    let tokens: Vec<ScoredToken> = tokens.iter().map(entry).collect();
    let mut vocabulary = TokenTable::default();
    for (id, token) in (0..).zip(&tokens).filter(|(_, token)| !is_padding(token)) {
        vocabulary.add(id, &token.text).map_err(wrong)?;
    }
    if vocabulary.id("<unk>").is_none() {
        return Err(wrong("it has no token <unk>".into()));
    }
    let merges = match merges {
        Some(pairs) => resolve_merges(pairs, &vocabulary),
        None => list_merges(&tokens, &vocabulary),
    };
    let merges = merges.map_err(wrong)?;
    let added = |special| {
        let found = tokens.iter().filter(move |token| is_cut_out(token) && is_special(token) == special);
        found.map(move |token| AddedToken::from(&*token.text, special).normalized(false))
    };
    let added = added(true).chain(added(false)).collect();
    let rules = Rules { unknown: Some("<unk>".into()), fuses_unknown: true, ignores_merges: false };
    Ok((Bpe::new(vocabulary, merges, rules), added))
}

/// Whether a token is padding, which fills the vocabulary up to the number of embedding rows. llama.cpp's converter
/// numbers such tokens by their ids and Ollama's from 0; both list them as tokens that text may spell.
fn is_padding(token: &ScoredToken) -> bool {
    let number = token.text.strip_prefix("[PAD").and_then(|rest| rest.strip_suffix(']'));
    number.is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()))
        && matches!(token.kind, TokenKind::Unused | TokenKind::UserDefined)
}

/// True if a token's text is found and replaced by its id before any merge: control, unknown and user-defined tokens.
fn is_cut_out(token: &ScoredToken) -> bool {
    let of_kind = matches!(token.kind, TokenKind::Control | TokenKind::Unknown | TokenKind::UserDefined);
    of_kind && !token.text.is_empty()
}

fn is_special(token: &ScoredToken) -> bool {
    let unused = token.text.strip_prefix("<unused").and_then(|rest| rest.strip_suffix('>'));
    let is_unused = unused.is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()));
    matches!(token.kind, TokenKind::Control | TokenKind::Unknown) && !is_unused && !ORDINARY.contains(&&*token.text)
}

/// Refuses tokens that are longer than any Gemma's, singly or in total, before time is spent on them.
fn check_sizes(tokens: &[VocabularyToken]) -> std::result::Result<(), String> {
    let mut places = 0;
    for (id, token) in tokens.iter().enumerate() {
        if token.text.len() > LONGEST {
            return Err(format!("token {id} has {} bytes; at most {LONGEST} make sense", token.text.len()));
        }
        places += token.text.chars().count().saturating_sub(1);
    }
    let most = limits::most(limits::PLACES, tokens.len());
    match places > most {
        true => Err(format!("its {} tokens can be cut at {places} places; at most {most} make sense", tokens.len())),
        false => Ok(()),
    }
}

/// The listed pairs as ids: left, right and result.
fn resolve_merges(pairs: &[String], vocabulary: &TokenTable) -> std::result::Result<Vec<[u32; 3]>, String> {
    let most = limits::most(limits::MERGES, vocabulary.end() as usize);
    if pairs.len() > most {
        return Err(format!("it has {} merges; at most {most} make sense", pairs.len()));
    }
    let id = |text: &str| vocabulary.id(text).ok_or_else(|| format!("its merges name {}, no token", quote(text)));
    let resolve = |pair: &String| match pair.split_once(' ') {
        Some((left, right)) if !right.contains(' ') => Ok([id(left)?, id(right)?, id(&format!("{left}{right}"))?]),
        _ => Err(format!("the merge {} is not of two tokens", quote(pair))),
    };
    pairs.iter().map(resolve).collect()
}

/// A merge of two tokens into one.
struct Merge {
    score: f32,
    /// The number of characters of the left token and of the right one.
    lengths: [u16; 2],
    /// Ids of the merged token, the left token and the right one.
    ids: [u32; 3],
}

/// All pairs of tokens that merge into a token, in the order of the merges.
fn list_merges(tokens: &[ScoredToken], vocabulary: &TokenTable) -> std::result::Result<Vec<[u32; 3]>, String> {
    let most = limits::most(limits::MERGES, tokens.len());
    let mut merges = Vec::new();
    for (id, token) in (0..).zip(tokens) {
        let score = match token.kind {
            TokenKind::Normal => token.score,
            // A run of spaces contains no literal "▁": it is not cut out but merged, before all other tokens.
            TokenKind::UserDefined => 0.0,
            _ => continue,
        };
        let text = &*token.text;
        let characters = text.chars().count();
        for (chars, (at, _)) in text.char_indices().enumerate().skip(1) {
            let (left, right) = text.split_at(at);
            if let (Some(l), Some(r)) = (vocabulary.id(left), vocabulary.id(right)) {
                let lengths = [chars as u16, (characters - chars) as u16];
                merges.push(Merge { score, lengths, ids: [id, l, r] });
            }
        }
        if merges.len() > most {
            return Err(format!(
                "its {} tokens can be made in more than {most} ways, which make no sense",
                tokens.len()
            ));
        }
    }
    // -0.0 and 0.0 are the same score.
    merges.sort_by(|a, b| {
        let order = |m: &Merge| (Reverse(m.lengths), m.ids);
        (b.score + 0.0).total_cmp(&(a.score + 0.0)).then_with(|| order(a).cmp(&order(b)))
    });
    Ok(merges.into_iter().map(|Merge { ids: [id, left, right], .. }| [left, right, id]).collect())
}
