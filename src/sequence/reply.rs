//! Turns one sequence's tokens into text up to a stop string. Text that was returned is never taken back.

use crate::Result;
use crate::model::Shape;
use crate::text::{StopMatcher, Stopped, StreamDecoder, Tokenizer};

/// The tokens that end a reply: those of the model's config, and those of its tokenizer.
pub fn stop_tokens(shape: &Shape, tokenizer: Option<&Tokenizer>) -> Vec<u32> {
    let mut stops = shape.eos.clone();
    stops.extend(tokenizer.map(Tokenizer::stop_ids).unwrap_or_default());
    stops
}

/// Turns tokens into text. Holds back bytes of an unfinished character, and text that may begin a stop string.
#[derive(Debug, Clone)]
pub struct Reply {
    decoder: StreamDecoder,
    stops: StopMatcher,
    text: String,
}

impl Reply {
    /// An empty reply that ends at any of `stops`.
    ///
    /// # Errors
    /// Input: a stop string is empty.
    pub fn new(tokenizer: &Tokenizer, stops: &[String]) -> Result<Reply> {
        Ok(Reply { decoder: tokenizer.stream(true), stops: StopMatcher::new(stops)?, text: String::new() })
    }

    /// Takes the next token. Returns the text that is now final, and whether a stop string ends the reply here.
    pub fn push(&mut self, token: u32) -> (&str, Stopped) {
        let (piece, stopped) = self.stops.push(self.decoder.push(token));
        let start = self.text.len();
        self.text.push_str(piece);
        (&self.text[start..], stopped)
    }

    /// Ends the reply after its last token. Returns the text that was held back; it is empty if a stop string was
    /// found.
    pub fn finish(&mut self) -> &str {
        let start = self.text.len();
        let (piece, stopped) = self.stops.push(self.decoder.finish());
        self.text.push_str(piece);
        if stopped == Stopped::No {
            self.text.push_str(self.stops.finish());
        }
        &self.text[start..]
    }

    /// The stop string that ended the reply.
    pub fn stopped_by(&self) -> Option<&str> {
        self.stops.found()
    }

    /// All text so far.
    pub fn text(&self) -> &str {
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::testing::small_tokenizer;

    /// Pushes `text` token by token. Returns the pieces, the whole text, and whether a stop string ended the reply.
    fn reply(text: &str, stops: &[&str]) -> (Vec<String>, String, bool) {
        let tokenizer = small_tokenizer();
        let stops: Vec<String> = stops.iter().map(|s| s.to_string()).collect();
        let mut reply = Reply::new(&tokenizer, &stops).unwrap();
        let mut pieces = Vec::new();
        let mut ended = false;
        for id in tokenizer.encode(text, false).unwrap() {
            let (piece, stopped) = reply.push(id);
            pieces.push(piece.to_owned());
            ended = stopped == Stopped::Yes;
            if ended {
                break;
            }
        }
        pieces.push(reply.finish().to_owned());
        (pieces, reply.text().to_owned(), ended)
    }

    #[test]
    fn pieces_are_whole_characters_and_add_up_to_the_text() {
        for text in ["Hello there", "a\u{1f600}b", "\u{1f600}", ""] {
            let (pieces, whole, ended) = reply(text, &[]);
            assert_eq!((pieces.concat().as_str(), whole.as_str(), ended), (text, text, false));
        }
        // The emoji is four byte tokens. Nothing is shown before the last one, or by a token that does not end the run.
        assert_eq!(reply("\u{1f600}", &[]).0.iter().filter(|p| !p.is_empty()).count(), 1);
    }

    #[test]
    fn a_stop_string_ends_the_reply_and_is_not_part_of_it() {
        let (pieces, whole, ended) = reply("Hello there", &["lo th"]);
        assert_eq!((pieces.concat().as_str(), whole.as_str(), ended), ("Hel", "Hel", true));
        // Text that only began like a stop string comes at the end.
        let (pieces, whole, ended) = reply("Hello", &["lo th"]);
        assert_eq!((whole.as_str(), ended), ("Hello", false));
        assert_eq!(pieces.last().unwrap(), "lo");
        assert!(Reply::new(&small_tokenizer(), &[String::new()]).is_err());
    }
}
