//! The text of each token id, looked up in the vocabulary when it is needed. A table of decoded text would hold every
//! token a second time.

use std::collections::HashSet;
use std::sync::Arc;

use tokenizers::AddedVocabulary;

use super::bpe::TokenTable;
use super::limits::TOKENS;
use crate::{Error, Result};

/// Limit on ids: a file may claim any.
const MAX_IDS: u32 = TOKENS as u32;

/// The vocabulary's spelling of a space.
const SPACE: &str = "▁";

/// The decoded form of one id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DecodedPiece<'a> {
    /// Text as the vocabulary spells it. [`push_text`] restores its spaces.
    Text(&'a str),
    /// One byte of UTF-8: a byte-fallback token `<0xNN>`.
    Byte(u8),
}

/// The text or the byte that each id decodes to.
#[derive(Debug)]
pub(super) struct PieceTable {
    vocabulary: Arc<TokenTable>,
    /// Added tokens that the vocabulary lacks or spells differently, by id.
    added: Vec<(u32, String)>,
    /// One bit per id: whether its token is special.
    special: Vec<u64>,
    /// The number of ids: the largest one plus one.
    end: u32,
    /// Bytes of the longest token as spelled in the vocabulary; 0 if a token may stand for longer text, because a byte
    /// token is missing or an added token strips blanks around it.
    longest: usize,
}

impl PieceTable {
    /// Collects the tokens of the vocabulary and the added tokens.
    ///
    /// # Errors
    /// [`Error::Input`] when an id is implausibly large.
    pub(super) fn gather(vocabulary: &Arc<TokenTable>, cut_out: &AddedVocabulary) -> Result<Self> {
        let tokens = cut_out.get_added_tokens_decoder();
        let end = tokens.keys().map(|id| id.saturating_add(1)).chain([vocabulary.end()]).max().unwrap_or(0);
        if end > MAX_IDS {
            return Err(Error::input(
                format!("tokenizer.json has a token with id {}; ids end below {MAX_IDS}", end - 1),
                "use the tokenizer.json that came with the model",
            ));
        }
        let mut added: Vec<_> = tokens
            .iter()
            .filter(|(id, token)| vocabulary.get(**id) != Some(&token.content))
            .map(|(id, token)| (*id, token.content.clone()))
            .collect();
        added.sort_unstable();
        let mut pieces = Self {
            vocabulary: vocabulary.clone(),
            added,
            special: vec![0; end.div_ceil(64) as usize],
            end,
            longest: 0,
        };
        let (mut longest, mut bytes) = (0, HashSet::new());
        for id in 0..end {
            let Some(token) = pieces.token(id) else { continue };
            longest = longest.max(token.len());
            bytes.extend(parse_byte(token));
            if cut_out.is_special_token(token) {
                pieces.special[id as usize / 64] |= 1 << (id % 64);
            }
        }
        let strips = tokens.values().any(|t| t.lstrip || t.rstrip);
        pieces.longest = if bytes.len() == 256 && !strips { longest } else { 0 };
        Ok(pieces)
    }

    /// The most bytes of text that one id can stand for; `None` if unknown.
    pub(super) fn longest(&self) -> Option<usize> {
        (self.longest > 0).then_some(self.longest)
    }

    /// The number of ids: the largest one plus one.
    pub(super) fn len(&self) -> usize {
        self.end as usize
    }

    /// The decoded form of `id` and whether it is a special token; `None` if no token has this id.
    pub(super) fn get(&self, id: u32) -> Option<(DecodedPiece<'_>, bool)> {
        let token = self.token(id)?;
        let piece = parse_byte(token).map_or(DecodedPiece::Text(token), DecodedPiece::Byte);
        let is_special = self.special.get(id as usize / 64).is_some_and(|bits| bits >> (id % 64) & 1 != 0);
        Some((piece, is_special))
    }

    /// A token's spelling in the vocabulary.
    fn token(&self, id: u32) -> Option<&str> {
        match self.added.binary_search_by_key(&id, |(id, _)| *id) {
            Ok(at) => Some(&self.added[at].1),
            Err(_) => self.vocabulary.get(id),
        }
    }
}

/// Appends a token's text. Tokens have a few bytes: a loop over them takes fewer instructions than a search.
pub(super) fn push_text(spelled: &str, out: &mut String) {
    let (mut from, mut at) = (0, 0);
    while let Some(byte) = spelled.as_bytes().get(at) {
        if *byte == SPACE.as_bytes()[0] && spelled[at..].starts_with(SPACE) {
            out.push_str(&spelled[from..at]);
            out.push(' ');
            at += SPACE.len();
            from = at;
        } else {
            at += 1;
        }
    }
    out.push_str(&spelled[from..]);
}

/// The byte that a token `<0xNN>` stands for.
fn parse_byte(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>')?;
    // from_str_radix alone would accept a sign.
    let hex = digits.len() == 2 && digits.bytes().all(|b| b.is_ascii_hexdigit());
    hex.then(|| u8::from_str_radix(digits, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::parse_byte;

    #[test]
    fn only_a_token_of_two_hex_digits_is_a_byte() {
        assert_eq!((parse_byte("<0x00>"), parse_byte("<0xFF>"), parse_byte("<0xfe>")), (Some(0), Some(255), Some(254)));
        for token in ["<0x1>", "<0x+1>", "<0x100>", "<0xG0>", "<0X41>", "<0x41", "0x41>", " <0x41>", "<0x€>", ""] {
            assert_eq!(parse_byte(token), None, "{token}");
        }
    }
}
