//! Parses untrusted JSON. serde_json keeps the last of two values with the same name; since the writer's intention is
//! unknown, a doubled name is an error here.

use std::cell::Cell;
use std::collections::HashSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use crate::display::quote;
use crate::model::config::limit;

/// Most values, or names of objects, of a text: each needs many times its text in memory. A tokenizer has a name for
/// each token, and Gemma 3's 300,000 in all.
const MOST: usize = 2 * limit::VOCAB;

/// Parses `text`. serde_json bounds the nesting itself.
///
/// # Errors
/// It is not JSON, an object in it has a name twice, or it has more than [`MOST`] values.
pub(crate) fn parse(text: &[u8]) -> serde_json::Result<Value> {
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    let value = Unique { left: &Cell::new(MOST) }.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(value)
}

/// Makes the checks of [`parse`] without building values, for large files that are then parsed in another way.
///
/// # Errors
/// As [`parse`].
pub(crate) fn check(text: &[u8]) -> serde_json::Result<()> {
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    UniqueNames { left: &Cell::new(MOST) }.deserialize(&mut deserializer)?;
    deserializer.end()
}

/// Counts a value or a name.
fn count<E: Error>(left: &Cell<usize>, what: &str) -> Result<(), E> {
    left.set(left.get().checked_sub(1).ok_or_else(|| E::custom(format_args!("it has more than {MOST} {what}")))?);
    Ok(())
}

fn doubled<E: Error>(name: &str) -> E {
    E::custom(format_args!("{} is there twice", quote(name)))
}

/// Visits a value whose objects have each name once, and keeps only the names.
#[derive(Clone, Copy)]
struct UniqueNames<'c> {
    left: &'c Cell<usize>,
}

impl<'de> DeserializeSeed<'de> for UniqueNames<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for UniqueNames<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while list.next_element_seed(self)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<(), A::Error> {
        let mut names = HashSet::new();
        while let Some(name) = object.next_key::<String>()? {
            if names.contains(&name) {
                return Err(doubled(&name));
            }
            count(self.left, "names")?;
            names.insert(name);
            object.next_value_seed(self)?;
        }
        Ok(())
    }
}

/// Reads a value whose objects have each name once.
#[derive(Clone, Copy)]
struct Unique<'c> {
    left: &'c Cell<usize>,
}

impl<'de> DeserializeSeed<'de> for Unique<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        count(self.left, "values")?;
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Unique<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = list.next_element_seed(self)? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(name) = object.next_key::<String>()? {
            if map.contains_key(&name) {
                return Err(doubled(&name));
            }
            map.insert(name, object.next_value_seed(self)?);
        }
        Ok(Value::Object(map))
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
