//! Strict reading of a request's fields. Each error names the field by its path, such as `messages[2].role`.
//!
//! `null` counts as a missing field. The known fields, and the treatment of those that no reader reads, are in `table`.

use crate::serve::http::ApiError;
use serde_json::{Map, Value};
use std::fmt::Display;
use std::ops::RangeInclusive;

/// The most characters of a value quoted in an error.
const QUOTED: usize = 60;

/// The fields of an object in a request.
#[derive(Debug, Clone)]
pub(super) struct Fields<'a> {
    map: &'a Map<String, Value>,
    /// The path of this object in the request's body, such as `messages[0]`; empty for the body.
    at: String,
}

impl<'a> Fields<'a> {
    /// The fields of the body.
    ///
    /// # Errors
    /// 400: the body is not an object.
    pub fn of_body(body: &'a Value) -> Result<Fields<'a>, ApiError> {
        match body {
            Value::Object(map) => Ok(Fields { map, at: String::new() }),
            _ => {
                Err(ApiError::bad(format!("the body is {}, and has to be an object", kind(body))).code("invalid_json"))
            }
        }
    }

    /// The fields of the object at a path.
    ///
    /// # Errors
    /// 400: the value is not an object.
    pub fn of(value: &'a Value, at: String) -> Result<Fields<'a>, ApiError> {
        match value {
            Value::Object(map) => Ok(Fields { map, at }),
            _ => Err(wrong_kind(&at, value, "an object")),
        }
    }

    /// The path of this object's field `name` in the request's body, for error messages.
    pub fn path(&self, name: &str) -> String {
        if self.at.is_empty() { name.to_owned() } else { format!("{}.{name}", self.at) }
    }

    /// The path of this object in the request's body; empty for the body.
    pub fn at(&self) -> &str {
        &self.at
    }

    /// A field's value, if present and not null.
    pub fn get(&self, name: &str) -> Option<&'a Value> {
        self.map.get(name).filter(|value| !value.is_null())
    }

    /// The error for a field; `what` continues a sentence after its name.
    pub fn wrong(&self, name: &str, what: impl Display) -> ApiError {
        let path = self.path(name);
        ApiError::bad(format!("{path} {what}")).param(path).code("invalid_value")
    }

    /// The error for a request without the required field `name`.
    pub fn missing(&self, name: &str) -> ApiError {
        let path = self.path(name);
        ApiError::bad(format!("{path} is missing")).param(path).code("missing_required_parameter")
    }

    /// The error for a field that would change the answer but is not supported.
    pub fn unserved(&self, name: &str, remedy: &str) -> ApiError {
        let path = self.path(name);
        ApiError::bad(format!("{path} is not supported; {remedy}")).param(path).code("unsupported_parameter")
    }

    /// Refuses unsupported fields that would change the answer. Each comes with the value that changes nothing.
    ///
    /// # Errors
    /// 400: a field has another value.
    pub fn refuse_unserved(&self, unserved: &[(&str, &str)]) -> Result<(), ApiError> {
        for (name, neutral) in unserved {
            if let Some(value) = self.get(name).filter(|value| !is_same(value, neutral)) {
                let remedy = format!("leave it out instead of giving {}", shown(value));
                return Err(self.unserved(name, &remedy));
            }
        }
        Ok(())
    }

    /// A string.
    ///
    /// # Errors
    /// 400: it is another value.
    pub fn text(&self, name: &str) -> Result<Option<&'a str>, ApiError> {
        self.get(name).map(|value| self.as_text(name, value)).transpose()
    }

    fn as_text(&self, name: &str, value: &'a Value) -> Result<&'a str, ApiError> {
        value.as_str().ok_or_else(|| wrong_kind(&self.path(name), value, "a text"))
    }

    /// A required string.
    ///
    /// # Errors
    /// 400: it is missing, or another value.
    pub fn required(&self, name: &str) -> Result<&'a str, ApiError> {
        self.text(name)?.ok_or_else(|| self.missing(name))
    }

    /// One of `words`, at least two.
    ///
    /// # Errors
    /// 400: it is another value.
    pub fn word(&self, name: &str, words: &[&str]) -> Result<Option<&'a str>, ApiError> {
        let word = self.text(name)?;
        match word.filter(|word| !words.contains(word)) {
            None => Ok(word),
            Some(other) => {
                let (last, others) = words.split_last().unwrap_or((&"", &[]));
                let what = format!("is {}, and has to be {} or {last}", shown(&other.into()), others.join(", "));
                Err(self.wrong(name, what))
            }
        }
    }

    /// A boolean.
    ///
    /// # Errors
    /// 400: it is another value.
    pub fn boolean(&self, name: &str) -> Result<Option<bool>, ApiError> {
        let read = |value: &Value| value.as_bool().ok_or_else(|| wrong_kind(&self.path(name), value, "true or false"));
        self.get(name).map(read).transpose()
    }

    /// A number within a range.
    ///
    /// # Errors
    /// 400: it is not a number, or out of range.
    pub fn number(&self, name: &str, range: RangeInclusive<f32>) -> Result<Option<f32>, ApiError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let number = value.as_f64().ok_or_else(|| wrong_kind(&self.path(name), value, "a number"))?;
        if !(f64::from(*range.start())..=f64::from(*range.end())).contains(&number) {
            return Err(self.outside(name, value, range.start(), range.end()));
        }
        Ok(Some(number as f32))
    }

    /// An integer within a range; `2.0` counts as one.
    ///
    /// # Errors
    /// 400: it is not an integer, or out of range.
    pub fn integer(&self, name: &str, range: RangeInclusive<i64>) -> Result<Option<i64>, ApiError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let number = as_integer(value).ok_or_else(|| wrong_kind(&self.path(name), value, "a whole number"))?;
        match i64::try_from(number).ok().filter(|number| range.contains(number)) {
            Some(number) => Ok(Some(number)),
            None => Err(self.outside(name, value, range.start(), range.end())),
        }
    }

    fn outside(&self, name: &str, value: &Value, least: impl Display, most: impl Display) -> ApiError {
        self.wrong(name, format!("is {}, and has to be from {least} to {most}", shown(value)))
    }

    /// The object in the field `name`; `None` if the field is missing.
    ///
    /// # Errors
    /// 400: it is another value.
    pub fn object(&self, name: &str) -> Result<Option<Fields<'a>>, ApiError> {
        self.get(name).map(|value| Fields::of(value, self.path(name))).transpose()
    }

    /// A list.
    ///
    /// # Errors
    /// 400: it is another value.
    pub fn list(&self, name: &str) -> Result<Option<&'a [Value]>, ApiError> {
        let read = |value: &'a Value| match value {
            Value::Array(values) => Ok(values.as_slice()),
            _ => Err(wrong_kind(&self.path(name), value, "a list")),
        };
        self.get(name).map(read).transpose()
    }

    /// A list of objects.
    ///
    /// # Errors
    /// 400: it is another value.
    pub fn objects(&self, name: &str) -> Result<Option<Vec<Fields<'a>>>, ApiError> {
        let Some(values) = self.list(name)? else { return Ok(None) };
        let fields = values.iter().enumerate().map(|(i, value)| Fields::of(value, format!("{}[{i}]", self.path(name))));
        fields.collect::<Result<_, _>>().map(Some)
    }

    /// A string, or a list of strings.
    ///
    /// # Errors
    /// 400: it is another value.
    pub fn texts(&self, name: &str) -> Result<Vec<&'a str>, ApiError> {
        match self.get(name) {
            None => Ok(Vec::new()),
            Some(Value::String(text)) => Ok(vec![text]),
            Some(Value::Array(values)) => values.iter().map(|value| self.as_text(name, value)).collect(),
            Some(value) => Err(wrong_kind(&self.path(name), value, "a text, or a list of texts")),
        }
    }

    /// The names and values of the object's fields, in order.
    pub fn entries(&self) -> impl Iterator<Item = (&'a str, &'a Value)> {
        self.map.iter().map(|(name, value)| (name.as_str(), value))
    }
}

/// An integer, if the value is one. A float counts if it is integral and below 2⁶³. From there on a float may have been
/// rounded, so it is treated as out of every range.
pub(super) fn as_integer(value: &Value) -> Option<i128> {
    let whole = value.as_i64().map(i128::from).or_else(|| value.as_u64().map(i128::from));
    whole.or_else(|| match value.as_f64().filter(|number| number.fract() == 0.0)? {
        number if number.abs() < -(i64::MIN as f64) => Some(number as i128),
        number if number < 0.0 => Some(i128::MIN),
        _ => Some(i128::MAX),
    })
}

/// The error for a value of another kind.
pub(super) fn wrong_kind(path: &str, value: &Value, wanted: &str) -> ApiError {
    ApiError::bad(format!("{path} is {}, and has to be {wanted}", kind(value))).param(path).code("invalid_type")
}

/// True if a value equals the one written in `text`, as JSON or as plain text. Numbers are compared as numbers.
pub(super) fn is_same(value: &Value, text: &str) -> bool {
    let Ok(other) = serde_json::from_str::<Value>(text) else { return value.as_str() == Some(text) };
    match (value.as_f64(), other.as_f64()) {
        (Some(value), Some(other)) => value == other,
        _ => *value == other || value.as_str() == Some(text),
    }
}

/// The name of a value's JSON type in error messages.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// A value as JSON; a long one is cut off.
pub(super) fn shown(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(QUOTED) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn error<T: std::fmt::Debug>(result: Result<T, ApiError>) -> (String, String) {
        let e = result.unwrap_err();
        assert_eq!((e.status, e.kind), (400, "invalid_request_error"));
        (e.param.unwrap_or_default(), e.message)
    }

    #[test]
    fn values_are_read_as_what_they_are_and_null_is_as_good_as_none() {
        let body = json!({
            "n": 3.0, "x": 0.5, "t": "a", "b": true, "o": {"i": -1}, "l": [{"a": 1}, {"a": 2}], "z": null, "s": ["a", "b"]
        });
        let fields = Fields::of_body(&body).unwrap();
        assert_eq!(fields.integer("n", 1..=3), Ok(Some(3)));
        assert_eq!(fields.number("x", 0.0..=1.0), Ok(Some(0.5)));
        assert_eq!((fields.text("t"), fields.boolean("b")), (Ok(Some("a")), Ok(Some(true))));
        assert_eq!(fields.object("o").unwrap().unwrap().integer("i", -1..=0), Ok(Some(-1)));
        assert_eq!(fields.objects("l").unwrap().unwrap()[1].integer("a", 0..=9), Ok(Some(2)));
        assert_eq!((fields.texts("s"), fields.texts("t")), (Ok(vec!["a", "b"]), Ok(vec!["a"])));
        for name in ["z", "absent"] {
            assert_eq!(fields.integer(name, 0..=1), Ok(None));
            assert_eq!((fields.text(name), fields.boolean(name)), (Ok(None), Ok(None)));
            assert!(fields.texts(name).unwrap().is_empty() && fields.objects(name).unwrap().is_none());
        }
    }

    #[test]
    fn an_error_names_the_field_and_what_it_has_to_be() {
        let body = json!({
            "n": 2.5, "big": 1e30, "x": 3, "o": {"list": [{"t": 1}]}, "s": ["a", 1], "u": 2, "w": "none"
        });
        let fields = Fields::of_body(&body).unwrap();
        assert_eq!(
            error(fields.integer("n", 0..=3)),
            ("n".into(), "n is a number, and has to be a whole number".into())
        );
        assert!(error(fields.integer("big", 0..=i64::MAX)).1.contains("from 0 to"));
        assert_eq!(error(fields.number("x", 0.0..=2.0)).1, "x is 3, and has to be from 0 to 2");
        let inner = fields.object("o").unwrap().unwrap();
        let list = inner.objects("list").unwrap().unwrap();
        assert_eq!(error(list[0].text("t")).0, "o.list[0].t");
        assert_eq!(error(fields.texts("s")).0, "s");
        assert_eq!(error(fields.text("n")).1, "n is a number, and has to be a text");
        assert!(fields.refuse_unserved(&[("u", "2.0"), ("w", "none"), ("absent", "1")]).is_ok());
        assert_eq!(error(fields.refuse_unserved(&[("u", "1")])).0, "u");
        assert_eq!(error(Fields::of_body(&json!([]))).1, "the body is a list, and has to be an object");
        assert!(shown(&json!("ä".repeat(99))).ends_with('…'));
    }
}
