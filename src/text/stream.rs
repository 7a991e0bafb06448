//! Decodes ids one at a time into text that is never retracted.
//!
//! Most tokens are whole pieces of text. Byte-fallback tokens make streaming hard: a run of consecutive ones is text
//! only if the *whole* run is valid UTF-8. Otherwise every byte becomes one U+FFFD, valid parts included. So a run is
//! held back until another token follows, or until it can no longer become valid.

use std::sync::Arc;

use super::pieces::{DecodedPiece, PieceTable, push_text};

/// Decodes a sequence of ids incrementally. The output of all [`push`](Self::push) calls followed by
/// [`finish`](Self::finish) equals [`Tokenizer::decode`](super::Tokenizer::decode) of all ids, exactly.
///
/// The work per token does not grow with the sequence. Once the buffers have reached their working size, nothing is
/// allocated.
#[derive(Debug, Clone)]
pub struct StreamDecoder {
    pieces: Arc<PieceTable>,
    skip_special: bool,
    /// Special tokens that are shown although the others are left out.
    shown: Arc<[u32]>,
    run: ByteRun,
    out: String,
}

impl StreamDecoder {
    pub(super) fn new(pieces: Arc<PieceTable>, skip_special: bool) -> Self {
        let shown = Arc::default();
        Self { pieces, skip_special, shown, run: ByteRun::default(), out: String::with_capacity(256) }
    }

    /// The decoder, which also shows these special tokens.
    pub(super) fn showing(self, shown: Arc<[u32]>) -> Self {
        Self { shown, ..self }
    }

    /// Takes the next id and yields the text that is now certain: often the token's own text, sometimes none.
    ///
    /// An id without a token yields nothing, so that generation goes on. A model's vocabulary is padded past its
    /// tokenizer's: Gemma 3 has 63 such rows.
    pub fn push(&mut self, id: u32) -> &str {
        self.out.clear();
        if let Some((piece, special)) = self.pieces.get(id)
            && !(special && self.skip_special && !self.shown.contains(&id))
        {
            match piece {
                DecodedPiece::Byte(byte) => self.run.push(byte, &mut self.out),
                DecodedPiece::Text(spelled) => {
                    self.run.end(&mut self.out);
                    push_text(spelled, &mut self.out);
                }
            }
        }
        &self.out
    }

    /// Yields the text that waits for further bytes, and resets the decoder for another sequence.
    pub fn finish(&mut self) -> &str {
        self.out.clear();
        self.run.end(&mut self.out);
        &self.out
    }
}

/// The byte tokens since the last other token.
#[derive(Debug, Clone, Default)]
struct ByteRun {
    /// The run's bytes, while it may still be valid UTF-8.
    held: Vec<u8>,
    /// The number of bytes at the start of `held` that are whole characters of UTF-8.
    valid: usize,
    /// True if no further byte can make the run valid UTF-8. Each of its bytes then becomes a U+FFFD.
    broken: bool,
}

impl ByteRun {
    fn push(&mut self, byte: u8, out: &mut String) {
        if self.broken {
            out.push(char::REPLACEMENT_CHARACTER);
            return;
        }
        self.held.push(byte);
        // At most the four bytes of one unfinished character are checked again.
        match std::str::from_utf8(&self.held[self.valid..]) {
            Ok(_) => self.valid = self.held.len(),
            Err(e) if e.error_len().is_none() => {}
            Err(_) => {
                self.broken = true;
                self.replace(out);
            }
        }
    }

    fn end(&mut self, out: &mut String) {
        match std::str::from_utf8(&self.held) {
            Ok(text) => out.push_str(text),
            Err(_) => self.replace(out),
        }
        self.held.clear();
        self.valid = 0;
        self.broken = false;
    }

    /// Writes one U+FFFD for each byte in `held`, and empties it.
    fn replace(&mut self, out: &mut String) {
        out.extend(std::iter::repeat_n(char::REPLACEMENT_CHARACTER, self.held.len()));
        self.held.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Random, small_crate_tokenizer, small_tokenizer};

    /// Random ids, mostly byte tokens, so that valid, broken and unfinished runs all occur.
    fn random_ids(random: &mut Random, size: u32, bytes_from: u32) -> Vec<u32> {
        let emoji = "😀€ß你".as_bytes();
        let mut ids = Vec::new();
        for _ in 0..random.below(24) {
            match random.below(4) {
                0 => ids.push(random.below(size)),
                1 => ids.push(bytes_from + random.below(256)),
                // Complete and incomplete characters.
                _ => {
                    let start = random.below(emoji.len() as u32) as usize;
                    let end = start + random.below((emoji.len() - start) as u32 + 1) as usize;
                    ids.extend(emoji[start..end].iter().map(|&byte| bytes_from + u32::from(byte)));
                }
            }
        }
        ids
    }

    #[test]
    fn any_sequence_streams_to_what_the_tokenizers_crate_decodes_at_once() {
        let (tokenizer, reference) = (small_tokenizer(), small_crate_tokenizer());
        let size = tokenizer.vocab_size() as u32;
        let bytes_from = tokenizer.token_id("<0x00>").unwrap();
        let mut random = Random(7);
        for round in 0..20_000 {
            let ids = random_ids(&mut random, size, bytes_from);
            let skip_special = round % 2 == 0;
            let expected = reference.decode(&ids, skip_special).unwrap();
            assert_eq!(tokenizer.decode(&ids, skip_special).unwrap(), expected, "{ids:?}");

            let mut stream = tokenizer.stream(skip_special);
            let mut text = String::new();
            for &id in &ids {
                text.push_str(stream.push(id));
                assert!(expected.starts_with(&text), "{ids:?}: {text:?} was taken back in {expected:?}");
            }
            text.push_str(stream.finish());
            assert_eq!(text, expected, "{ids:?}");
        }
    }

    #[test]
    fn nothing_is_held_but_a_run_of_bytes_that_may_still_be_text() {
        let tokenizer = small_tokenizer();
        let byte = |b: u8| tokenizer.token_id(&format!("<0x{b:02X}>")).unwrap();
        let eos = tokenizer.eos().unwrap();
        let mut stream = tokenizer.stream(true);
        assert_eq!(stream.push(tokenizer.token_id("e").unwrap()), "e");
        assert_eq!(stream.push(byte(0xe4)), "");
        assert_eq!(stream.push(eos), "", "a skipped token does not end the run");
        assert_eq!(stream.push(byte(0xbd)), "");
        assert_eq!(stream.push(byte(0xa0)), "", "a later byte could still turn 你 into U+FFFD");
        assert_eq!(stream.push(byte(0xff)), "\u{fffd}\u{fffd}\u{fffd}\u{fffd}");
        assert_eq!(stream.push(byte(0x41)), "\u{fffd}", "a broken run is not held");
        assert_eq!(stream.push(u32::MAX), "", "an id without a token");
        assert_eq!(stream.push(tokenizer.token_id("e").unwrap()), "e");
        assert_eq!(stream.push(byte(0x41)), "");
        assert_eq!(stream.finish(), "A");
        assert_eq!(stream.finish(), "");
    }
}
