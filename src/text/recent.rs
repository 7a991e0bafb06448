//! A cache of recently encoded texts: a text with the same beginning as one of them is encoded only from there on. A
//! server's prompts begin with the same system prompt, or with the conversation so far.
//!
//! Encoding may start at a token inside the common part, if the rest then begins with that very token:
//! [`super::windows`] says why the ids are those of the whole text. Otherwise the whole text is encoded.

use super::windows::{Encoded, WINDOW};
use crate::Result;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

/// The most texts whose encoding is remembered.
const MOST: usize = 8;
/// The least number of common bytes. Fewer bytes are encoded as fast.
const LEAST: usize = 1 << 10;

/// The texts, the latest first. Shared between threads.
#[derive(Debug)]
pub(super) struct Recent {
    /// Bytes of the vocabulary's longest token.
    longest: usize,
    known: Mutex<VecDeque<Arc<EncodedText>>>,
}

#[derive(Debug)]
struct EncodedText {
    text: String,
    found: Encoded,
    /// True if special tokens in the text were encoded as plain text.
    verbatim: bool,
}

impl EncodedText {
    /// The last token of this text at which the encoding of a text that shares the first `common` bytes may start. It
    /// leaves out tokens near the end of the common part, which the following text could change.
    fn find_cut(&self, common: usize, longest: usize) -> Option<usize> {
        let last = common.checked_sub(longest)?;
        let offsets = &self.found.offsets;
        let end = offsets.partition_point(|offset| offset.0 <= last);
        (1..end).rev().find(|&k| {
            let (before, start) = (offsets[k - 1].1, offsets[k].0);
            0 < start && before <= start && start <= last && self.text.is_char_boundary(start)
        })
    }
}

impl Recent {
    /// An empty cache. `longest`: bytes of the vocabulary's longest token.
    pub(super) fn new(longest: usize) -> Recent {
        Recent { longest, known: Mutex::default() }
    }

    /// The ids of `text`, which has at most [`WINDOW`] bytes. `encode` encodes a part of it, with the added tokens that
    /// `verbatim` selects.
    ///
    /// # Errors
    /// Errors of `encode`.
    pub(super) fn encode(
        &self,
        text: &str,
        verbatim: bool,
        encode: impl Fn(&str) -> Result<Encoded>,
    ) -> Result<Vec<u32>> {
        debug_assert!(text.len() <= WINDOW);
        let known: Vec<_> = self.known.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect();
        let common = |known: &EncodedText| if known.verbatim == verbatim { common_bytes(&known.text, text) } else { 0 };
        let of = known.iter().map(|known| (common(known), known)).max_by_key(|(common, _)| *common);
        let of = of.filter(|(common, _)| *common >= LEAST);
        let found = match of.and_then(|(common, known)| Some((known, known.find_cut(common, self.longest)?))) {
            Some((known, cut)) => go_on(known, cut, text, &encode)?,
            None => None,
        };
        let found = found.map_or_else(|| encode(text), Ok)?;
        let ids = found.ids.clone();
        if text.len() >= LEAST {
            let replaced = of.map(|(_, known)| known.clone());
            self.keep(Arc::new(EncodedText { text: text.to_owned(), found, verbatim }), replaced);
        }
        Ok(ids)
    }

    /// Stores a text with its tokens, and removes `replaced`, which it continues.
    fn keep(&self, text: Arc<EncodedText>, replaced: Option<Arc<EncodedText>>) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|other| replaced.as_ref().is_none_or(|replaced| !Arc::ptr_eq(other, replaced)));
        known.push_front(text);
        known.truncate(MOST);
    }
}

/// Encodes `text` from token `cut` of `known` on. `None`: the encoding cannot start there.
fn go_on(
    known: &EncodedText,
    cut: usize,
    text: &str,
    encode: impl Fn(&str) -> Result<Encoded>,
) -> Result<Option<Encoded>> {
    let from = known.found.offsets[cut].0;
    let rest = encode(&text[from..])?;
    if rest.ids.first() != Some(&known.found.ids[cut]) {
        return Ok(None);
    }
    let mut found = Encoded { ids: known.found.ids[..cut].to_vec(), offsets: known.found.offsets[..cut].to_vec() };
    found.ids.extend(rest.ids);
    found.offsets.extend(rest.offsets.iter().map(|offset| (offset.0 + from, offset.1 + from)));
    Ok(Some(found))
}

/// The length in bytes of two texts' common beginning.
fn common_bytes(a: &str, b: &str) -> usize {
    const STEP: usize = 64;
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let steps = STEP * a.chunks_exact(STEP).zip(b.chunks_exact(STEP)).take_while(|(a, b)| a == b).count();
    steps + a[steps..].iter().zip(&b[steps..]).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    const LONGEST: usize = 90;

    /// An encoder with a token for each pair of equal letters, and for each other character.
    fn pairs(text: &str) -> Encoded {
        let (mut ids, mut offsets, mut rest) = (Vec::new(), Vec::new(), text.char_indices().peekable());
        while let Some((at, c)) = rest.next() {
            let twice = rest.next_if(|(_, next)| *next == c).is_some();
            let bytes = c.len_utf8() * (1 + usize::from(twice));
            ids.push(c as u32 + u32::from(twice) * 1000);
            offsets.push((at, at + bytes));
        }
        Encoded { ids, offsets }
    }

    #[test]
    fn what_follows_a_known_beginning_is_all_that_is_encoded() {
        let (recent, lengths) = (Recent::new(LONGEST), RefCell::new(Vec::new()));
        let encode = |text: &str, verbatim| {
            let ids = recent.encode(text, verbatim, |part| {
                lengths.borrow_mut().push(part.len());
                Ok(pairs(part))
            });
            assert_eq!(ids.unwrap(), pairs(text).ids, "the ids are those of the whole text");
            lengths.borrow_mut().drain(..).collect::<Vec<_>>()
        };
        let begin = "aab€bc ".repeat(2 * LEAST / 9);
        let near = LONGEST..LONGEST + 40;
        assert_eq!(encode(&begin, false), [begin.len()]);
        for end in ["", "c", "aac", "€€ and more", "b"] {
            let lengths = encode(&format!("{begin}{end}"), false);
            assert!(lengths.len() == 1 && near.contains(&lengths[0]), "{lengths:?}");
        }
        // Other added tokens, another beginning, and a common part that is too short.
        assert_eq!(encode(&begin, true), [begin.len()]);
        assert_eq!(encode(&format!("b{begin}"), false), [begin.len() + 1]);
        assert_eq!(encode("aab", false), [3]);
        // The oldest text is evicted.
        for i in 0..MOST {
            encode(&format!("{i}{begin}"), false);
        }
        assert_eq!(encode(&begin, true), [begin.len()]);
    }

    /// In a text of one letter no token boundary is certain.
    #[test]
    fn where_the_rest_begins_otherwise_all_is_encoded() {
        let recent = Recent::new(LONGEST);
        for length in [2 * LEAST, 2 * LEAST + 1, 2 * LEAST + 2, 3 * LEAST] {
            // Pairs are formed from the end, so a following letter changes every token before it.
            let from_the_end = |text: &str| {
                let odd = text.len() % 2;
                let ids = (0..odd).map(|_| 1).chain((0..text.len() / 2).map(|_| 2)).collect();
                let offsets =
                    (0..odd).map(|_| (0, 1)).chain((0..text.len() / 2).map(|i| (odd + 2 * i, odd + 2 * i + 2)));
                Ok(Encoded { ids, offsets: offsets.collect() })
            };
            let text = "x".repeat(length);
            assert_eq!(recent.encode(&text, false, from_the_end).unwrap(), from_the_end(&text).unwrap().ids);
        }
    }
}
