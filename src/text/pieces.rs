//! A table of what each token id decodes to, built when a tokenizer is opened. Streaming then decodes a token by an
//! array access.

use super::bpe::TokenTable;
use super::limits::TOKENS;
use crate::{Error, Result};
use std::collections::HashSet;
use tokenizers::AddedVocabulary;

/// Limit on ids, since the table is as long as the largest id and a file may claim any.
const MAX_IDS: u32 = TOKENS as u32;

/// What one id decodes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DecodedPiece<'a> {
    /// Text, spaces already restored from "▁".
    Text(&'a str),
    /// One byte of UTF-8: a byte-fallback token `<0xNN>`.
    Byte(u8),
}

#[derive(Debug, Clone, Copy)]
enum PieceKind {
    /// No token has this id.
    Absent,
    Text,
    Byte(u8),
}

#[derive(Debug, Clone, Copy)]
struct TokenPiece {
    /// End of the id's text in `PieceTable::text`. It begins where the previous one ends.
    end: u32,
    kind: PieceKind,
    special: bool,
}

/// The table of pieces, indexed by id.
#[derive(Debug)]
pub(super) struct PieceTable {
    text: String,
    entries: Vec<TokenPiece>,
    /// Bytes of the longest token as spelled in the vocabulary; 0 if a token may stand for more text than that. This is
    /// so where a byte token is missing, or an added token strips blanks around it.
    longest: usize,
}

impl PieceTable {
    /// Reads every token of the vocabulary and of those that are cut out before.
    ///
    /// # Errors
    /// [`Error::Input`] when an id is implausibly large.
    pub(super) fn gather(vocabulary: &TokenTable, added: &AddedVocabulary) -> Result<Self> {
        let cut_out = added.get_added_tokens_decoder();
        let Some(last) = cut_out.keys().copied().chain(vocabulary.end().checked_sub(1)).max() else {
            return Ok(Self { text: String::new(), entries: Vec::new(), longest: 0 });
        };
        if last >= MAX_IDS {
            return Err(Error::input(
                format!("tokenizer.json has a token with id {last}; ids end below {MAX_IDS}"),
                "use the tokenizer.json that came with the model",
            ));
        }
        let (mut text, mut longest, mut bytes) = (String::new(), 0, HashSet::new());
        let mut entries = Vec::with_capacity(last as usize + 1);
        for id in 0..=last {
            let token = cut_out.get(&id).map(|token| &*token.content).or_else(|| vocabulary.get(id));
            let special = token.is_some_and(|token| added.is_special_token(token));
            let kind = match token {
                None => PieceKind::Absent,
                // As in Gemma's decoder: "▁" is replaced first. What then still looks like <0xNN> is a byte.
                Some(token) => {
                    longest = longest.max(token.len());
                    let piece = token.replace('▁', " ");
                    match parse_byte(&piece) {
                        Some(byte) => {
                            bytes.insert(byte);
                            PieceKind::Byte(byte)
                        }
                        None => {
                            text.push_str(&piece);
                            PieceKind::Text
                        }
                    }
                }
            };
            let end = u32::try_from(text.len()).map_err(|_| {
                Error::input("the tokens of tokenizer.json are longer than 4 GiB", "use the model's own tokenizer.json")
            })?;
            entries.push(TokenPiece { end, kind, special });
        }
        text.shrink_to_fit();
        let strips = cut_out.values().any(|t| t.lstrip || t.rstrip);
        Ok(Self { text, entries, longest: if bytes.len() == 256 && !strips { longest } else { 0 } })
    }

    /// The most bytes of text that one id can stand for; `None` if unknown.
    pub(super) fn longest(&self) -> Option<usize> {
        (self.longest > 0).then_some(self.longest)
    }

    /// The number of ids: the largest one plus one.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// What `id` decodes to and whether it is a special token; `None` when no token has this id.
    pub(super) fn get(&self, id: u32) -> Option<(DecodedPiece<'_>, bool)> {
        let index = id as usize;
        let entry = self.entries.get(index)?;
        let piece = match entry.kind {
            PieceKind::Absent => return None,
            PieceKind::Byte(byte) => DecodedPiece::Byte(byte),
            PieceKind::Text => {
                let start = index.checked_sub(1).map_or(0, |before| self.entries[before].end);
                DecodedPiece::Text(&self.text[start as usize..entry.end as usize])
            }
        };
        Some((piece, entry.special))
    }
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
