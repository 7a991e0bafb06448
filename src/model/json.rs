//! Parses untrusted JSON. serde_json keeps the last of two values with the same name; since the writer's intention is
//! unknown, a doubled name is an error here.

use std::cell::Cell;
use std::collections::HashSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use crate::display::quote;
use crate::model::config::limit;

/// Most values, or names of objects, of a text: each needs many times its text in memory. A tokenizer has a name for
/// each token, and Gemma 3's 300,000 in all.
const MOST: usize = 2 * limit::VOCAB;

/// Parses `text`. serde_json bounds the nesting itself.
///
/// # Errors
/// The text is not JSON, has an object with a name twice, or more than [`MOST`] values.
pub(crate) fn parse(text: &[u8]) -> serde_json::Result<Value> {
    check_names(text, true)?;
    serde_json::from_slice(text)
}

/// Makes the checks of [`parse`] for a large text that is then parsed in another way: names are counted, not values.
///
/// # Errors
/// The text is not JSON, has an object with a name twice, or more than [`MOST`] names.
pub(crate) fn check(text: &[u8]) -> serde_json::Result<()> {
    check_names(text, false)
}

fn check_names(text: &[u8], counts_values: bool) -> serde_json::Result<()> {
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    UniqueNames { left: &Cell::new(MOST), counts_values }.deserialize(&mut deserializer)?;
    deserializer.end()
}

/// Takes one from `left`. Fails if none is left; `what` names what was counted.
fn count<E: Error>(left: &Cell<usize>, what: &str) -> Result<(), E> {
    left.set(left.get().checked_sub(1).ok_or_else(|| E::custom(format_args!("it has more than {MOST} {what}")))?);
    Ok(())
}

/// Methods of a [`Visitor`] for values of which nothing is kept.
macro_rules! ignore_values {
    ($($visit:ident($($value:ty)?)),+) => {
        $(
            fn $visit<E>(self $(, _: $value)?) -> Result<(), E> {
                Ok(())
            }
        )+
    };
}
#[cfg(feature = "serve")]
pub(crate) use ignore_values;

/// Visits a JSON value, and checks that each of its objects has each name once. Stores no values.
#[derive(Clone, Copy)]
struct UniqueNames<'c> {
    /// The number of values or names that may follow before the limit is reached.
    left: &'c Cell<usize>,
    /// True if values are counted against the limit, false if names are.
    counts_values: bool,
}

impl<'de> DeserializeSeed<'de> for UniqueNames<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        if self.counts_values {
            count(self.left, "values")?;
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for UniqueNames<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a JSON value")
    }

    ignore_values!(visit_unit(), visit_bool(bool), visit_u64(u64), visit_i64(i64), visit_f64(f64), visit_str(&str));

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while list.next_element_seed(self)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<(), A::Error> {
        let mut names = HashSet::new();
        while let Some(name) = object.next_key::<String>()? {
            if names.contains(&name) {
                return Err(A::Error::custom(format_args!("{} is there twice", quote(&name))));
            }
            if !self.counts_values {
                count(self.left, "names")?;
            }
            names.insert(name);
            object.next_value_seed(self)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_serde_json_parses_is_parsed_alike_unless_a_name_is_doubled() {
        for text in [
            r#"{"b": [1, -2, 3.5, 1e999, "x\n\u00e9", null, true], "a": {"b": {}, "": []}}"#,
            "18446744073709551615",
            "-9223372036854775808",
            "1e-7",
            " \"text\" ",
            "[",
            "{} {}",
            "nul",
        ] {
            assert_eq!(parse(text.as_bytes()).ok(), serde_json::from_str(text).ok(), "{text}");
            assert_eq!(check(text.as_bytes()).is_ok(), parse(text.as_bytes()).is_ok(), "{text}");
        }
        for text in [r#"{"a": 1, "a": 1}"#, r#"[{"x": {"a": 1, "b": 2, "\u0061": 3}}]"#] {
            let error = parse(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains("a is there twice at line 1"), "{error}");
            assert_eq!(check(text.as_bytes()).unwrap_err().to_string(), error);
        }
        assert!(parse("[".repeat(100_000).as_bytes()).is_err());
    }

    /// Regression: each took some thirty times the bytes of the text.
    #[test]
    fn as_many_values_and_names_as_no_model_has_are_refused() {
        let list = format!("[{}0]", "0,".repeat(MOST));
        let error = parse(list.as_bytes()).unwrap_err().to_string();
        assert!(error.contains("it has more than 2097152 values"), "{error}");
        assert!(check(list.as_bytes()).is_ok(), "nothing of it is kept");
        let names: String = (0..MOST).map(|i| format!("\"{i:x}\":0,")).collect();
        let error = check(format!("{{{names}\"\":0}}").as_bytes()).unwrap_err().to_string();
        assert!(error.contains("it has more than 2097152 names"), "{error}");
    }
}
