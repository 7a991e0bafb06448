//! Encodes a long text window by window: the joined ids are the ids of the whole text. The `tokenizers` crate takes
//! about 350 bytes of memory for each byte that it encodes at once.
//!
//! Byte-pair encoding of a text that is cut where two of its tokens meet gives the same tokens: no merge went across
//! the cut. The converse holds too. If `a` ends the tokens of the left part, `b` begins those of the right one, and
//! `a b` are neighbours in the tokens of some text, then the tokens of both parts are those of the whole: merges on the
//! two sides of the cut depend on `a` and `b` only.
//!
//! So a window is encoded, the tokens near its end are discarded, since what follows may change them, and the next
//! window begins at the first discarded token. It must begin with that very token. Then the two tokens at the cut are
//! neighbours in the first window.

use crate::{Error, Result};

/// Bytes of text that are encoded at a time.
pub(super) const WINDOW: usize = 64 << 10;
/// Bytes at a window's end whose tokens are discarded. No token is nearly as long.
const MARGIN: usize = 4 << 10;
/// The longest token of a text that is encoded in windows, in bytes.
pub(super) const LONGEST_TOKEN: usize = MARGIN / 4;

/// The ids of a text, with where each begins and ends in it, in bytes.
#[derive(Debug)]
pub(super) struct Encoded {
    pub(super) ids: Vec<u32>,
    pub(super) offsets: Vec<(usize, usize)>,
}

/// A text that is encoded while it arrives.
#[derive(Debug, Default)]
pub(super) struct Windows {
    /// The token that the next window must begin with.
    expected: Option<u32>,
    /// The number of bytes of text encoded so far.
    done: usize,
}

impl Windows {
    /// Encodes the part of `text` whose ids are certain, and adds them to `ids`. Returns the length of that part in
    /// bytes. The next call gets the text from there on.
    ///
    /// # Errors
    /// [`Error::Input`]: `encode` fails, or the text cannot be cut.
    pub(super) fn push(
        &mut self,
        text: &str,
        encode: impl Fn(&str) -> Result<Encoded>,
        ids: &mut Vec<u32>,
    ) -> Result<usize> {
        let mut from = 0;
        while text.len() - from > WINDOW {
            let mut to = from + WINDOW;
            while !text.is_char_boundary(to) {
                to -= 1;
            }
            let window = &text[from..to];
            let found = encode(window)?;
            let cut = self.find_cut(window, &found)?;
            ids.extend_from_slice(&found.ids[..cut]);
            self.expected = Some(found.ids[cut]);
            from += found.offsets[cut].0;
            self.done += found.offsets[cut].0;
        }
        Ok(from)
    }

    /// Encodes the rest of the text, which [`push`](Self::push) has left.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    pub(super) fn finish(
        mut self,
        text: &str,
        encode: impl Fn(&str) -> Result<Encoded>,
        ids: &mut Vec<u32>,
    ) -> Result<()> {
        let from = self.push(text, &encode, ids)?;
        let found = encode(&text[from..])?;
        self.check(&found.ids)?;
        ids.extend_from_slice(&found.ids);
        Ok(())
    }

    /// The first token of a window that is discarded.
    fn find_cut(&self, window: &str, found: &Encoded) -> Result<usize> {
        self.check(&found.ids)?;
        let last = window.len().saturating_sub(MARGIN);
        // A character without a token consists of byte tokens, with no character boundary between them.
        let can_cut = |&k: &usize| {
            let (before, start) = (found.offsets[k - 1].1, found.offsets[k].0);
            0 < start && before <= start && start <= last && window.is_char_boundary(start)
        };
        (1..found.ids.len()).rev().find(can_cut).ok_or_else(|| self.no_cut())
    }

    fn check(&self, ids: &[u32]) -> Result<()> {
        match self.expected {
            Some(expected) if ids.first() != Some(&expected) => Err(self.no_cut()),
            _ => Ok(()),
        }
    }

    fn no_cut(&self) -> Error {
        Error::input(
            format!("the text is too long to be encoded at once and cannot be cut near byte {}", self.done),
            "give it in smaller parts",
        )
    }
}
