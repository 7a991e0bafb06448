//! A request's body and its parsed JSON. Both count in the memory budget of all requests.

use super::budget::Share;
use super::error::ApiError;
use crate::model::json::ignore_values;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use std::fmt;
use std::ops::Deref;

/// A request's complete body.
#[derive(Debug, Default)]
pub struct Body {
    bytes: Vec<u8>,
    /// The body's share of the memory budget. `None` if the body is empty.
    share: Option<Share>,
}

impl Body {
    pub(super) fn new(share: Share) -> Body {
        Body { bytes: Vec::new(), share: Some(share) }
    }

    /// Appends `part`. `most` is the largest size that the body can reach.
    ///
    /// # Errors
    /// 503: there is no memory for it.
    pub(super) fn extend(&mut self, part: &[u8], most: usize) -> Result<(), ApiError> {
        let (room, needed) = (self.bytes.capacity(), self.bytes.len() + part.len());
        if needed > room {
            let wanted = (2 * room).min(most).max(needed);
            if let Some(share) = &mut self.share {
                share.take(wanted - room)?;
            }
            self.bytes.reserve_exact(wanted - self.bytes.len());
        }
        self.bytes.extend_from_slice(part);
        Ok(())
    }

    /// Parses the body as JSON, nested at most [`super::JSON_DEPTH`] levels. The memory it needs is known before it is
    /// built, and the body's own memory is freed. Unpaired surrogates in strings become U+FFFD.
    ///
    /// # Errors
    /// 400: it is not JSON, or nested too deep; with line and column. 413: its parsed form would exceed the limit for
    /// one request. 503: there is no memory for it.
    pub fn json(mut self) -> Result<Json, ApiError> {
        // Some editors and PowerShell write a byte order mark before UTF-8.
        if self.bytes.starts_with(b"\xef\xbb\xbf") {
            self.bytes.drain(..3);
        }
        replace_lone_surrogates(&mut self.bytes);
        let wrong = |e: serde_json::Error| {
            ApiError::bad(format!("the body is not the JSON wanted here: {e}")).code("invalid_json")
        };
        let most = self.share.as_ref().map_or(usize::MAX, Share::most_parsed);
        let mut cost = ParsedSize { bytes: size_of::<Value>(), most };
        let measured = cost.measure(&self.bytes);
        if cost.bytes > most {
            let message = format!("the body's JSON has so many parts that it takes more than {most} bytes of memory");
            return Err(ApiError::new(413, message).code("body_too_large"));
        }
        measured.map_err(wrong)?;
        if let Some(share) = &mut self.share {
            share.take(cost.bytes)?;
        }
        let value = serde_json::from_slice(&self.bytes).map_err(wrong)?;
        if let Some(share) = &mut self.share {
            share.give_back(self.bytes.capacity());
        }
        Ok(Json { value, _share: self.share })
    }
}

/// Replaces the escapes of unpaired surrogates by the escape of U+FFFD, which has the same length. Clients that cut a
/// text between two UTF-16 units send them, and Rust's strings cannot represent them.
fn replace_lone_surrogates(json: &mut [u8]) {
    let mut at = 0;
    while let Some(next) = json[at..].iter().position(|&byte| byte == b'\\') {
        at += next;
        match escaped_unit(&json[at..]) {
            Some(0xd800..=0xdbff) if matches!(escaped_unit(&json[at + 6..]), Some(0xdc00..=0xdfff)) => at += 12,
            Some(0xd800..=0xdfff) => {
                json[at + 2..at + 6].copy_from_slice(b"fffd");
                at += 6;
            }
            _ => at = (at + 2).min(json.len()),
        }
    }
}

/// The UTF-16 unit of the escape, `\u` with four digits, at the beginning of `json`.
fn escaped_unit(json: &[u8]) -> Option<u16> {
    let digits = json.strip_prefix(b"\\u")?.get(..4)?;
    digits.iter().try_fold(0, |unit, &digit| Some(unit << 4 | (digit as char).to_digit(16)? as u16))
}

impl Deref for Body {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl PartialEq for Body {
    fn eq(&self, other: &Body) -> bool {
        self.bytes == other.bytes
    }
}

impl Eq for Body {}

/// The parsed JSON of a request's body.
#[derive(Debug)]
pub struct Json {
    value: Value,
    /// The bytes that the value takes of the memory budget, until it is dropped.
    _share: Option<Share>,
}

impl Deref for Json {
    type Target = Value;

    fn deref(&self) -> &Value {
        &self.value
    }
}

/// Computes the memory of a [`Value`] from JSON without building it.
struct ParsedSize {
    bytes: usize,
    /// The number of bytes at which the count stops with an error.
    most: usize,
}

/// Bytes that malloc adds to each allocation.
const PIECE: usize = 16;

impl ParsedSize {
    fn measure(&mut self, json: &[u8]) -> serde_json::Result<()> {
        let mut reader = serde_json::Deserializer::from_slice(json);
        self.deserialize(&mut reader)?;
        reader.end()
    }

    fn add<E: Error>(&mut self, bytes: usize) -> Result<(), E> {
        self.bytes = self.bytes.saturating_add(bytes);
        match self.bytes > self.most {
            true => Err(E::custom("it takes too much memory")),
            false => Ok(()),
        }
    }

    /// Adds the memory for one more element after `count`, `each` of this size. Lists double their capacity, starting
    /// at four.
    fn add_one<E: Error>(&mut self, count: usize, each: usize) -> Result<(), E> {
        match count {
            0 => self.add(4 * each + PIECE),
            count if count >= 4 && count.is_power_of_two() => self.add(count * each),
            _ => Ok(()),
        }
    }
}

impl<'de> DeserializeSeed<'de> for &mut ParsedSize {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for &mut ParsedSize {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    ignore_values!(visit_unit(), visit_bool(bool), visit_u64(u64), visit_i64(i64), visit_f64(f64));

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        self.add(text.len() + PIECE)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let mut count = 0;
        while list.next_element_seed(&mut *self)?.is_some() {
            self.add_one(count, size_of::<Value>())?;
            count += 1;
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        // Besides name and value a map stores a hash, and its table has spare capacity.
        const ENTRY: usize = size_of::<String>() + size_of::<Value>() + 4 * size_of::<usize>();
        let mut count = 0;
        while map.next_key_seed(&mut *self)?.is_some() {
            map.next_value_seed(&mut *self)?;
            self.add_one(count, ENTRY)?;
            count += 1;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::budget::MemoryBudget;
    use super::super::request::Client;
    use super::*;
    use std::sync::Arc;

    fn body(budget: &Arc<MemoryBudget>, bytes: &[u8]) -> Result<Body, ApiError> {
        let mut body = Body::new(Share::new(budget.clone(), Client::User(1)));
        bytes.chunks(7).try_for_each(|part| body.extend(part, bytes.len()))?;
        Ok(body)
    }

    #[test]
    fn a_body_counts_as_what_it_holds_and_then_as_what_is_parsed_of_it() {
        let budget = Arc::new(MemoryBudget::new(10_000, 4_000));
        let text = format!("{{\"a\": \"{}\"}}", "x".repeat(1000));
        let body = body(&budget, text.as_bytes()).unwrap();
        assert!((text.len()..=text.len() + 7).contains(&budget.taken()), "{}", budget.taken());
        let json = body.json().unwrap();
        assert_eq!(json["a"].as_str().unwrap().len(), 1000);
        assert!((1000..2000).contains(&budget.taken()), "{}", budget.taken());
        drop(json);
        assert_eq!(budget.taken(), 0);
    }

    #[test]
    fn json_of_many_small_parts_is_refused_before_it_is_built_and_a_budget_without_room_refuses_what_would_fit() {
        let budget = Arc::new(MemoryBudget::new(1 << 20, 1 << 18));
        let lists = format!("[{}[0]]", "[0],".repeat(2000));
        let e = body(&budget, lists.as_bytes()).unwrap().json().unwrap_err();
        assert_eq!((e.status, e.code), (413, Some("body_too_large")));
        assert_eq!(budget.taken(), 0);
        assert!(body(&budget, b"[[0],[0]]").unwrap().json().is_ok());
        let mut others = Share::new(budget.clone(), Client::User(1));
        others.take(500_000).unwrap();
        let text = format!("\"{}\"", "x".repeat(20_000));
        let e = body(&budget, text.as_bytes()).unwrap().json().unwrap_err();
        assert_eq!((e.status, e.code), (503, Some("overloaded")));
    }

    #[test]
    fn half_of_a_surrogate_pair_becomes_the_replacement_character_and_nothing_else_changes() {
        let budget = Arc::new(MemoryBudget::new(1 << 20, 1 << 18));
        for (text, expected) in [
            (r"\ud83d", "\u{fffd}"),
            (r"\ude00", "\u{fffd}"),
            (r"a\uD83Db", "a\u{fffd}b"),
            (r"\ud83d\u0041", "\u{fffd}A"),
            (r"\ud83d\n\ude00", "\u{fffd}\n\u{fffd}"),
            (r"\ud83d\ud83d\ude00", "\u{fffd}\u{1f600}"),
            (r"\ude00\ud83d", "\u{fffd}\u{fffd}"),
            (r"\ud83d\ude00", "\u{1f600}"),
            (r"\ud7ff\ue000\u00e4", "\u{d7ff}\u{e000}\u{e4}"),
            (r"\\ud83d", "\\ud83d"),
            (r"\\\ud83d", "\\\u{fffd}"),
            (r#"\"\ud83d\""#, "\"\u{fffd}\""),
        ] {
            let json = body(&budget, format!("[\"{text}\", {{\"{text}\": 1}}]").as_bytes()).unwrap().json().unwrap();
            assert_eq!(*json, serde_json::json!([expected, {expected: 1}]), "{text}");
        }
        for broken in [r#""\ud83"#, r#""\ud83x""#, r#""\"#, r"\ud83d"] {
            assert_eq!(body(&budget, broken.as_bytes()).unwrap().json().unwrap_err().code, Some("invalid_json"));
        }
    }

    /// The actual memory of a value behind its pointers, as far as it can be measured.
    fn taken(value: &Value) -> usize {
        match value {
            Value::String(text) => text.len(),
            Value::Array(list) => list.capacity() * size_of::<Value>() + list.iter().map(taken).sum::<usize>(),
            Value::Object(map) => {
                let entry = |(name, value): (&String, &Value)| {
                    name.len() + size_of::<String>() + size_of::<Value>() + size_of::<u64>() + taken(value)
                };
                map.iter().map(entry).sum()
            }
            _ => 0,
        }
    }

    #[test]
    fn what_json_costs_is_at_least_what_it_takes_and_not_many_times_that() {
        let numbers = format!("[{}0]", "12345,".repeat(999));
        let names: Vec<String> = (0..1000).map(|i| format!("\"name {i}\": {{\"a\": [], \"b\": [null]}}")).collect();
        for text in [numbers, format!("{{{}}}", names.join(",")), "[[0],[0],[\"\\u00e4\"]]".into(), "7".into()] {
            let mut cost = ParsedSize { bytes: size_of::<Value>(), most: usize::MAX };
            cost.measure(text.as_bytes()).unwrap();
            let real = size_of::<Value>() + taken(&serde_json::from_str(&text).unwrap());
            assert!((real..=4 * real).contains(&cost.bytes), "{} for {real}", cost.bytes);
        }
    }
}
