//! Stop strings in text that arrives in pieces.
//!
//! A stop string may span several tokens, so text that could be the start of one is held back until it is decided. The
//! result does not depend on the division into pieces: the stop string that *ends* first wins, as if the text arrived
//! one character at a time.

use crate::error::{Setting, text};
use crate::{Error, Result};

/// Whether a stop string has been seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stopped {
    /// No stop string has been seen yet.
    No,
    /// Yes. No more text will come, and generation can end.
    Yes,
}

/// Passes text on up to the first stop string. The stop string and all text after it are dropped.
#[derive(Debug, Clone)]
pub struct StopMatcher {
    stops: Vec<String>,
    /// First the text that [`push`](Self::push) has already yielded (`..yielded`), then the text held back.
    buffer: String,
    yielded: usize,
    /// The index of the stop string that ended the text.
    found: Option<usize>,
}

impl StopMatcher {
    /// A matcher for `stops`. Without stop strings it passes everything on at once.
    ///
    /// # Errors
    /// [`Error::Input`] for an empty stop string, which would match everywhere.
    pub fn new(stops: impl IntoIterator<Item = impl Into<String>>) -> Result<Self> {
        let stops: Vec<String> = stops.into_iter().map(Into::into).collect();
        if stops.iter().any(String::is_empty) {
            return Err(Error::input(
                "a stop string is empty",
                text!("leave ", Setting::Stop.the(), " away, or give it some text"),
            ));
        }
        Ok(Self { stops, buffer: String::with_capacity(256), yielded: 0, found: None })
    }

    /// True if there are no stop strings, so that all text passes.
    pub fn is_empty(&self) -> bool {
        self.stops.is_empty()
    }

    /// Takes the next piece of text. Yields the text that can be shown now, and whether to stop.
    pub fn push(&mut self, text: &str) -> (&str, Stopped) {
        self.buffer.drain(..self.yielded);
        self.yielded = 0;
        if self.found.is_some() {
            return ("", Stopped::Yes);
        }
        self.buffer.push_str(text);
        if let Some((start, which)) = self.find_stop() {
            self.buffer.truncate(start);
            self.found = Some(which);
            self.yielded = start;
            return (&self.buffer, Stopped::Yes);
        }
        self.yielded = self.buffer.len() - self.count_held();
        (&self.buffer[..self.yielded], Stopped::No)
    }

    /// Yields the text that a stop string might have begun in, and resets the matcher for another text.
    pub fn finish(&mut self) -> &str {
        self.buffer.drain(..self.yielded);
        // Stopped: everything before the stop string has been yielded, and nothing is left.
        self.yielded = self.buffer.len();
        self.found = None;
        &self.buffer
    }

    /// The stop string that ended the text.
    pub fn found(&self) -> Option<&str> {
        self.stops.get(self.found?).map(String::as_str)
    }

    /// Start and index of the stop string that ends first; among several with the same end, the longest.
    fn find_stop(&self) -> Option<(usize, usize)> {
        let stops = self.stops.iter().enumerate();
        let starts = stops.filter_map(|(i, stop)| Some((self.buffer.find(stop.as_str())?, stop.len(), i)));
        starts.min_by_key(|&(start, len, _)| (start + len, start)).map(|(start, _, i)| (start, i))
    }

    /// Bytes at the end of the buffer that could be the start of a stop string.
    fn count_held(&self) -> usize {
        let longest = self.stops.iter().map(|stop| stop.len() - 1).max().unwrap_or(0);
        let earliest = self.buffer.len().saturating_sub(longest);
        let mut starts = (earliest..self.buffer.len()).filter(|&start| self.buffer.is_char_boundary(start));
        let held = starts.find(|&start| self.stops.iter().any(|stop| stop.starts_with(&self.buffer[start..])));
        held.map_or(0, |start| self.buffer.len() - start)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::Random;
    use super::*;

    /// The definition: characters come one at a time, and the first complete stop string ends the text.
    fn cut(text: &str, stops: &[String]) -> (String, bool) {
        let mut seen = String::new();
        for c in text.chars() {
            seen.push(c);
            if let Some(longest) = stops.iter().filter(|stop| seen.ends_with(stop.as_str())).map(String::len).max() {
                seen.truncate(seen.len() - longest);
                return (seen, true);
            }
        }
        (seen, false)
    }

    #[test]
    fn any_text_in_any_pieces_is_cut_as_if_it_came_by_characters() {
        let mut random = Random(11);
        let word = |random: &mut Random, length: u32| -> String {
            (0..length).map(|_| ['a', 'b', 'ß', '😀'][random.below(4) as usize]).collect()
        };
        let mut stopped_rounds = 0;
        for _ in 0..20_000 {
            let count = random.below(4);
            let stops: Vec<String> = (0..count)
                .map(|_| {
                    let length = 1 + random.below(4);
                    word(&mut random, length)
                })
                .collect();
            let mut matcher = StopMatcher::new(stops.clone()).unwrap();
            let (mut text, mut shown, mut stopped) = (String::new(), String::new(), Stopped::No);
            for _ in 0..random.below(8) {
                let length = random.below(4);
                let piece = word(&mut random, length);
                text.push_str(&piece);
                let (out, now) = matcher.push(&piece);
                shown.push_str(out);
                if now == Stopped::No {
                    // The text held could still become a stop string.
                    let held = &text[shown.len()..];
                    assert!(held.is_empty() || stops.iter().any(|stop| stop.starts_with(held)), "{stops:?} {text:?}");
                }
                stopped = now;
            }
            shown.push_str(matcher.finish());
            let (expected, expected_stop) = cut(&text, &stops);
            assert_eq!(
                (shown.as_str(), stopped == Stopped::Yes),
                (expected.as_str(), expected_stop),
                "{stops:?} {text:?}"
            );
            stopped_rounds += usize::from(expected_stop);
        }
        assert!((2_000..18_000).contains(&stopped_rounds), "the rounds are one-sided: {stopped_rounds}");
    }

    #[test]
    fn text_that_may_be_a_stop_string_is_held_until_it_is_decided() {
        let mut matcher = StopMatcher::new(["END", "###"]).unwrap();
        assert_eq!(matcher.push("one E"), ("one ", Stopped::No));
        assert_eq!(matcher.push("N"), ("", Stopped::No));
        assert_eq!(matcher.push("T#"), ("ENT", Stopped::No));
        assert_eq!(matcher.push("## three"), ("", Stopped::Yes));
        assert_eq!(matcher.push("four"), ("", Stopped::Yes));
        assert_eq!(matcher.finish(), "");
        assert_eq!(matcher.push("again EN"), ("again ", Stopped::No));
        assert_eq!(matcher.finish(), "EN");
    }

    #[test]
    fn an_empty_stop_string_is_refused() {
        assert_eq!(StopMatcher::new(["a", ""]).unwrap_err().exit_code(), 2);
    }
}
