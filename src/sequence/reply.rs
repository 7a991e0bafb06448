//! Turns one sequence's tokens into text up to a stop string. Returned text is never retracted.

use crate::Result;
use crate::model::Shape;
use crate::text::{StopMatcher, Stopped, StreamDecoder, Tokenizer};

/// The tokens that end a reply: those of the model's config, and those of its tokenizer.
pub fn stop_tokens(shape: &Shape, tokenizer: Option<&Tokenizer>) -> Vec<u32> {
    let mut stops = shape.eos.clone();
    stops.extend(tokenizer.map(Tokenizer::stop_ids).unwrap_or_default());
    stops
}

/// Where function calls begin in a reply. Stop strings do not apply inside calls, only to the assistant's text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum CallStart {
    /// The reply has no function calls.
    #[default]
    Nowhere,
    /// A reply that begins with one of these texts consists of calls.
    First(Vec<String>),
    /// After the first occurrence of this text everything is calls.
    Anywhere(&'static str),
}

impl CallStart {
    /// The number of bytes of `text` before the calls, or before text that may yet begin them, and whether calls have
    /// begun there. `None`: there are no calls, whatever follows.
    fn find(&self, text: &str) -> Option<(usize, bool)> {
        match self {
            CallStart::Nowhere => None,
            CallStart::First(starts) if starts.iter().any(|start| text.starts_with(start)) => Some((0, true)),
            CallStart::First(starts) => starts.iter().any(|start| start.starts_with(text)).then_some((0, false)),
            CallStart::Anywhere(start) => Some(text.find(start).map_or_else(
                || {
                    let may_begin = |at: &usize| text.is_char_boundary(*at) && start.starts_with(&text[*at..]);
                    let from = text.len().saturating_sub(start.len() - 1);
                    ((from..text.len()).find(may_begin).unwrap_or(text.len()), false)
                },
                |at| (at, true),
            )),
        }
    }
}

/// Turns tokens into text. Holds back bytes of an unfinished character, and text that may begin a stop string.
#[derive(Debug, Clone)]
pub struct Reply {
    decoder: StreamDecoder,
    /// Trailing blanks of the text that the reply continues, which are skipped at the reply's beginning.
    blanks: String,
    calls: CallStart,
    /// Text that may begin calls, after the text that the reply continues.
    held: String,
    /// The number of bytes at the start of `held` that belong to the message that the reply continues.
    begun: usize,
    in_calls: bool,
    stops: StopMatcher,
    text: String,
    thought: Thought,
}

/// The model's thought in a reply. It is not part of the reply's text, and stop strings do not apply in it.
#[derive(Debug, Clone, Default)]
struct Thought {
    /// The tokens that begin and end a thought, if the vocabulary has them.
    marks: Option<[u32; 2]>,
    place: ThoughtPlace,
    /// The thought's text since the last [`Reply::take_thought`].
    text: String,
    /// The number of the thought's tokens so far, with the marks.
    tokens: usize,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum ThoughtPlace {
    #[default]
    Outside,
    /// In the thought's first line, which names the channel and is not shown.
    Name,
    Inside,
}

impl Thought {
    /// Decodes a token. Returns the piece that belongs to the reply's text; `None` for a token of a thought.
    fn decode<'d>(&mut self, token: u32, decoder: &'d mut StreamDecoder) -> Option<&'d str> {
        let Some([open, close]) = self.marks else { return Some(decoder.push(token)) };
        if token == open {
            self.place = ThoughtPlace::Name;
            self.tokens += 1;
            return Some(decoder.finish());
        }
        if self.place == ThoughtPlace::Outside {
            return Some(decoder.push(token));
        }
        self.tokens += 1;
        let piece = if token == close { decoder.finish() } else { decoder.push(token) };
        match self.place {
            ThoughtPlace::Name => {
                if let Some((_, first)) = piece.split_once('\n') {
                    self.text.push_str(first);
                    self.place = ThoughtPlace::Inside;
                }
            }
            _ => self.text.push_str(piece),
        }
        if token == close {
            self.place = ThoughtPlace::Outside;
        }
        None
    }
}

impl Reply {
    /// An empty reply that ends at any of `stops`.
    ///
    /// # Errors
    /// Input: a stop string is empty.
    pub fn new(tokenizer: &Tokenizer, stops: &[String]) -> Result<Reply> {
        Ok(Reply {
            decoder: tokenizer.reply_stream(),
            blanks: String::new(),
            calls: CallStart::Nowhere,
            held: String::new(),
            begun: 0,
            in_calls: false,
            stops: StopMatcher::new(stops)?,
            text: String::new(),
            thought: Thought { marks: tokenizer.thought_marks(), ..Thought::default() },
        })
    }

    /// A reply that continues the text `begun` and may have calls. Templates trim messages, so the model repeats
    /// trailing blanks of `begun`; these are left out.
    pub fn going_on(self, begun: &str, calls: CallStart) -> Reply {
        let blanks = begun[begun.trim_end().len()..].to_owned();
        // Calls need no detection without stop strings.
        let calls = if self.stops.is_empty() { CallStart::Nowhere } else { calls };
        let may_begin = |start: &String| start.starts_with(begun) || begun.starts_with(start);
        let held = match &calls {
            CallStart::First(starts) if starts.iter().any(may_begin) => begun.to_owned(),
            _ => String::new(),
        };
        Reply { blanks, calls, begun: held.len(), held, ..self }
    }

    /// Takes the next token. Returns the text that is now final, and whether a stop string ends the reply here.
    pub fn push(&mut self, token: u32) -> (&str, Stopped) {
        let Some(piece) = self.thought.decode(token, &mut self.decoder) else { return ("", Stopped::No) };
        let piece = without_blanks(&mut self.blanks, piece);
        let start = self.text.len();
        if self.in_calls {
            self.text.push_str(piece);
            return (&self.text[start..], Stopped::No);
        }
        if self.calls == CallStart::Nowhere {
            let (piece, stopped) = self.stops.push(piece);
            self.text.push_str(piece);
            return (&self.text[start..], stopped);
        }
        self.held.push_str(piece);
        let (before, begins) = self.calls.find(&self.held).unwrap_or_else(|| {
            self.calls = CallStart::Nowhere;
            (self.held.len(), false)
        });
        let stopped = self.release(before);
        if begins && stopped == Stopped::No {
            self.in_calls = true;
            self.text.push_str(self.stops.finish());
            self.text.push_str(&self.held[self.begun..]);
            self.held.clear();
        }
        (&self.text[start..], stopped)
    }

    /// The text of thoughts since the last call.
    pub fn take_thought(&mut self) -> String {
        std::mem::take(&mut self.thought.text)
    }

    /// The number of the reply's tokens that belong to thoughts.
    pub fn thought_tokens(&self) -> usize {
        self.thought.tokens
    }

    /// Moves the first bytes of `held` to the reply's text, up to a stop string.
    fn release(&mut self, bytes: usize) -> Stopped {
        let own = self.begun.min(bytes);
        let (piece, stopped) = self.stops.push(&self.held[own..bytes]);
        self.text.push_str(piece);
        self.held.drain(..bytes);
        self.begun -= own;
        stopped
    }

    /// Ends the reply after its last token. Returns the text that was held back; it is empty if a stop string was
    /// found.
    pub fn finish(&mut self) -> &str {
        let start = self.text.len();
        let piece = self.decoder.finish();
        if self.thought.place == ThoughtPlace::Inside {
            self.thought.text.push_str(piece);
        } else if self.thought.place == ThoughtPlace::Outside {
            let piece = without_blanks(&mut self.blanks, piece);
            if self.in_calls {
                self.text.push_str(piece);
                return &self.text[start..];
            }
            self.held.push_str(piece);
        }
        if self.release(self.held.len()) == Stopped::No {
            self.text.push_str(self.stops.finish());
        }
        &self.text[start..]
    }

    /// The stop string that ended the reply.
    pub fn stopped_by(&self) -> Option<&str> {
        self.stops.found()
    }

    /// The reply's text so far.
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// `piece` without leading characters that match `blanks`, which are used up. The first mismatch clears `blanks`.
fn without_blanks<'p>(blanks: &mut String, piece: &'p str) -> &'p str {
    let mut rest = piece;
    while let (Some(blank), Some(first)) = (blanks.chars().next(), rest.chars().next()) {
        if blank != first {
            blanks.clear();
            break;
        }
        blanks.remove(0);
        rest = &rest[first.len_utf8()..];
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::testing::{small_tokenizer, thinking_tokenizer};

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
        // The emoji consists of four byte tokens. Nothing is shown before the last one.
        assert_eq!(reply("\u{1f600}", &[]).0.iter().filter(|p| !p.is_empty()).count(), 1);
    }

    #[test]
    fn a_stop_string_ends_the_reply_and_is_not_part_of_it() {
        let (pieces, whole, ended) = reply("Hello there", &["lo th"]);
        assert_eq!((pieces.concat().as_str(), whole.as_str(), ended), ("Hel", "Hel", true));
        // Text that began like a stop string, but is none, comes at the end.
        let (pieces, whole, ended) = reply("Hello", &["lo th"]);
        assert_eq!((whole.as_str(), ended), ("Hello", false));
        assert_eq!(pieces.last().unwrap(), "lo");
        assert!(Reply::new(&small_tokenizer(), &[String::new()]).is_err());
    }

    #[test]
    fn a_thought_is_no_text_and_stop_strings_do_not_apply_in_it() {
        let tokenizer = thinking_tokenizer();
        let said = "<|channel>thought\nLet me stop\u{1f600}.<channel|>The answer";
        let mut reply = Reply::new(&tokenizer, &["stop".to_owned()]).unwrap();
        let (mut text, mut thought) = (String::new(), String::new());
        for id in tokenizer.encode(&format!("A\u{1f600}{said} is stop 42"), false).unwrap() {
            let (piece, stopped) = reply.push(id);
            text.push_str(piece);
            thought.push_str(&reply.take_thought());
            if stopped == Stopped::Yes {
                break;
            }
        }
        assert_eq!((text.as_str(), thought.as_str()), ("A\u{1f600}The answer is ", "Let me stop\u{1f600}."));
        // The token limit ends a thought within a character of its first line.
        let mut reply = Reply::new(&tokenizer, &[]).unwrap();
        let ids = tokenizer.encode("<|channel>thou\u{1f600}", false).unwrap();
        for &id in &ids[..ids.len() - 1] {
            assert_eq!(reply.push(id), ("", Stopped::No));
        }
        assert_eq!((reply.finish().to_owned(), reply.take_thought()), (String::new(), String::new()));
    }

    /// Continues `begun` by `text` token by token. Returns the text shown, and whether a stop string ended the reply.
    fn going_on(begun: &str, text: &str, stops: &[&str], calls: CallStart) -> (String, bool) {
        let tokenizer = small_tokenizer();
        let stops: Vec<String> = stops.iter().map(|s| s.to_string()).collect();
        let mut reply = Reply::new(&tokenizer, &stops).unwrap().going_on(begun, calls);
        let mut shown = String::new();
        for id in tokenizer.encode(text, false).unwrap() {
            let (piece, stopped) = reply.push(id);
            shown.push_str(piece);
            if stopped == Stopped::Yes {
                break;
            }
        }
        shown.push_str(reply.finish());
        assert_eq!(shown, reply.text());
        (shown, reply.stopped_by().is_some())
    }

    #[test]
    fn blanks_at_the_end_of_what_is_continued_are_not_said_twice() {
        for (begun, text, shown) in [
            ("The answer is ", " 42", "42"),
            ("The answer is", " 42", " 42"),
            ("def f():\n", "\n    return 1", "    return 1"),
            ("a\n\n", "\nb", "b"),
            ("a ", "b", "b"),
            ("a \n", " x", "x"),
            ("a\n", " x", " x"),
            (" ", "  x", " x"),
        ] {
            assert_eq!(going_on(begun, text, &[], CallStart::Nowhere), (shown.into(), false), "{begun:?} {text:?}");
        }
        // Skipped blanks do not count for stop strings either.
        assert_eq!(going_on("a\n", "\nb", &["\n"], CallStart::Nowhere), ("b".into(), false));
    }

    #[test]
    fn stop_texts_cut_no_calls() {
        let first = || CallStart::First(vec!["{\"name\":\"f\",".into()]);
        let call = "{\"name\":\"f\",\"parameters\":{\"a\":1}}";
        for stop in ["{", "\"", "name", "parameters", "}", "1}}", "\"f\",\"p"] {
            assert_eq!(going_on("", call, &[stop], first()), (call.into(), false), "{stop}");
            assert_eq!(
                going_on("{\"name\":\"f\",", &call[12..], &[stop], first()),
                (call[12..].into(), false),
                "{stop}"
            );
        }
        for (text, stop, shown) in [
            ("{\"nail\": 1}", "il", "{\"na"),
            ("Hello there", "lo", "Hel"),
            ("{\"name\"", "name", "{\""),
            ("{\"na", "x", "{\"na"),
        ] {
            assert_eq!(going_on("", text, &[stop], first()), (shown.into(), shown != text), "{text}");
            // Calls may follow another text too.
            assert_eq!(going_on("Well", text, &[stop], first()), (shown.into(), shown != text), "{text}");
        }
        let anywhere = || CallStart::Anywhere("<call>");
        for (text, stop, shown) in [
            ("a <call>f{a:1}", "a:", "a <call>f{a:1}"),
            ("a <call>f{a:1}", "<", "a <call>f{a:1}"),
            ("a <call>f{a:1}", "a", ""),
            ("a <cal", "l", "a <ca"),
            ("a <b> c", "<b", "a "),
            ("a <", "x", "a <"),
        ] {
            assert_eq!(going_on("", text, &[stop], anywhere()), (shown.into(), shown != text), "{text} {stop}");
        }
    }
}
