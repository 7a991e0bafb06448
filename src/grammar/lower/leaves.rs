//! Conditions on a single value: strings, numbers, and an object's number of properties.

use serde_json::{Map, Value, json};

use super::unions::is_of_type;
use super::{SchemaLowering, exact_name, library};
use crate::display::quote;
use crate::grammar::numbers::{self, Range};
use crate::grammar::sizes;

/// The keywords for lower and upper bounds of numbers.
const LOWER: [&str; 2] = ["minimum", "exclusiveMinimum"];
const UPPER: [&str; 2] = ["maximum", "exclusiveMaximum"];

/// The message for a schema whose integer bounds do not fit 64 bits.
const TOO_LONG: &str = "has an integer beyond 64 bits";

impl SchemaLowering<'_> {
    /// Leaves out the conditions on strings, moduli and numbers of properties that llguidance does not support.
    pub(super) fn check_leaves(
        &mut self,
        fields: &Map<String, Value>,
        types: Option<&[String]>,
        out: &mut Map<String, Value>,
        at: &str,
    ) {
        if types.is_some_and(|types| !types.iter().any(|name| name == "string")) {
            out.remove("pattern");
            out.remove("format");
        }
        self.check_string(out, at);
        if let Some(modulus) = out.get("multipleOf").cloned() {
            let is_held = self.few_remainders
                && modulus.as_f64().is_some_and(|modulus| modulus > 0.0)
                && self.takes(json!({"type": "number", "multipleOf": modulus}));
            if !is_held {
                out.remove("multipleOf");
                self.ignore("multipleOf", at, format!("{modulus} is not supported"));
            }
        }
        if out.get("patternProperties").is_none() && fields.get("patternProperties").is_some_and(Value::is_object) {
            // Properties that the patterns allow would be treated as additional ones.
            if out.remove("additionalProperties").is_some() {
                self.ignore("additionalProperties", at, "stands beside `patternProperties` that are left out");
            }
        }
        for (least, most) in [("minLength", "maxLength"), ("minItems", "maxItems"), ("minProperties", "maxProperties")]
        {
            let count = |name: &str| out.get(name).and_then(Value::as_u64);
            if let (Some(low), Some(high)) = (count(least), count(most))
                && low > high
            {
                out.remove(most);
                self.ignore(most, at, format!("is less than `{least}`"));
            }
        }
        self.check_properties(out, at);
    }

    fn check_string(&mut self, out: &mut Map<String, Value>, at: &str) {
        let text = |name: &str| out.get(name).and_then(Value::as_str);
        let plain = text("pattern").and_then(library::without_look_around);
        let (has_pattern, format) = (out.contains_key("pattern"), text("format").map(str::to_owned));
        let own = format.as_deref().filter(|_| !has_pattern).and_then(library::pattern_of);
        if own.is_some() || format.as_deref().is_some_and(library::is_note) {
            out.remove("format");
        }
        out.extend(plain.or(own).map(|pattern| ("pattern".to_owned(), pattern.into())));
        let leaf = |without: &[&str]| {
            let kept =
                ["pattern", "format", "minLength", "maxLength"].into_iter().filter(|name| !without.contains(name));
            let mut leaf: Map<String, Value> =
                kept.filter_map(|name| Some((name.to_owned(), out.get(name)?.clone()))).collect();
            leaf.insert("type".into(), "string".into());
            Value::Object(leaf)
        };
        let pattern = out.get("pattern").and_then(Value::as_str).map(str::to_owned);
        if pattern.is_none() && !out.contains_key("format") {
            return;
        }
        let is_small = pattern.as_deref().is_none_or(sizes::is_small);
        let tries: [&[&str]; 4] = [&[], &["format"], &["pattern"], &["pattern", "format"]];
        let leaves: Vec<(&[&str], Value)> = tries.into_iter().map(|without| (without, leaf(without))).collect();
        let taken = leaves.into_iter().find_map(|(without, leaf)| {
            let is_tried = is_small || without.contains(&"pattern");
            (is_tried && self.takes(leaf)).then_some(without)
        });
        for name in taken.unwrap_or(&["pattern", "format"]) {
            let Some(value) = out.remove(*name) else { continue };
            let is_told = *name == "format" && out.contains_key("pattern");
            if is_told && value.as_str().is_some_and(library::names_its_pattern) {
                continue;
            }
            let why = match (*name, value.as_str().unwrap_or_default()) {
                ("pattern", regex) => pattern_fault(regex).to_owned(),
                (_, format) => format!("{} is not supported", quote(format)),
            };
            self.ignore(name, at, why);
        }
    }

    /// llguidance can count properties only if all are required, or if exactly one of the named properties may follow.
    fn check_properties(&mut self, out: &mut Map<String, Value>, at: &str) {
        let required = out.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
        let has_optional = out
            .get("properties")
            .and_then(Value::as_object)
            .is_some_and(|all| all.keys().any(|name| !required.iter().any(|other| other == name)));
        let count = |name: &str| out.get(name).and_then(Value::as_u64);
        let needed = required.len() as u64;
        let (least, most) = (count("minProperties").unwrap_or(0).saturating_sub(needed), count("maxProperties"));
        let is_closed =
            out.get("additionalProperties") == Some(&json!(false)) && !out.contains_key("patternProperties");
        let is_one = least <= 1 && most.is_none_or(|most| most == needed + 1) && is_closed;
        if !has_optional || is_one || (least == 0 && most.is_none()) {
            return;
        }
        for name in ["minProperties", "maxProperties"] {
            if out.remove(name).is_some() {
                self.ignore(name, at, "stands beside optional `properties`");
            }
        }
    }

    /// Replaces integers that llguidance would round by exact patterns, and checks that a number lies between the
    /// bounds.
    pub(super) fn hold_numbers(&mut self, types: Option<&[String]>, mut out: Map<String, Value>, at: &str) -> Value {
        for (flag, bound) in [("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")] {
            // In draft 4 these keywords are flags.
            match out.get(flag) {
                Some(Value::Bool(true)) => match out.remove(bound) {
                    Some(value) => drop(out.insert(flag.into(), value)),
                    None => drop(out.remove(flag)),
                },
                Some(Value::Bool(false)) => drop(out.remove(flag)),
                _ => {}
            }
        }
        for name in LOWER.into_iter().chain(UPPER) {
            if out.get(name).and_then(Value::as_number).is_some_and(numbers::is_beyond_64_bits) {
                out.remove(name);
                self.ignore(name, at, TOO_LONG);
            }
        }
        let is = |name: &str| types.is_some_and(|types| types.iter().any(|other| other == name));
        let is_integer = is("integer") && !is("number");
        let range = range(&out);
        let float = |name: &str| out.get(name).and_then(Value::as_f64);
        let least = LOWER.iter().filter_map(|name| float(name)).reduce(f64::max);
        let most = UPPER.iter().filter_map(|name| float(name)).reduce(f64::min);
        let is_empty =
            if is_integer { range.is_empty() } else { least.zip(most).is_some_and(|(least, most)| least > most) };
        if is_empty {
            for name in UPPER {
                if out.remove(name).is_some() {
                    self.ignore(name, at, "is less than the minimum");
                }
            }
        }
        if let Some(values) = literals(&out).filter(|values| values.iter().any(numbers::has_large)) {
            return self.hold_literals(&values, types, out, at);
        }
        let range = self::range(&out);
        if !range.is_beyond_f64() {
            return out.into();
        }
        let joined = ["const", "enum", "allOf", "anyOf", "$ref", "multipleOf"];
        let beside = joined.into_iter().find(|name| out.contains_key(*name));
        let can_hold = is_integer && beside.is_none() && !self.has_marks;
        if can_hold {
            LOWER.into_iter().chain(UPPER).for_each(|name| drop(out.remove(name)));
            let integers = self.exact(range.regex());
            let others: Vec<&String> = types.into_iter().flatten().filter(|name| *name != "integer").collect();
            if others.is_empty() {
                return integers;
            }
            out.insert("type".into(), json!(others));
            return json!({"anyOf": [integers, out]});
        }
        for name in LOWER.into_iter().chain(UPPER) {
            let is_rounded = |value: &Value| {
                let exact = value.as_number().and_then(numbers::as_integer);
                exact.is_some_and(|exact| exact as f64 as i128 != exact || i64::try_from(exact).is_err())
            };
            if out.get(name).is_some_and(is_rounded) {
                out.remove(name);
                let why = match beside {
                    Some(beside) if is_integer => format!("has an integer beyond 2^53 beside `{beside}`"),
                    _ => "has an integer beyond 2^53, which is held for the type integer alone".to_owned(),
                };
                self.ignore(name, at, why);
            }
        }
        out.into()
    }

    /// Turns a constant or enumeration with integers that f64 would round into alternatives.
    fn hold_literals(
        &mut self,
        values: &[Value],
        types: Option<&[String]>,
        mut out: Map<String, Value>,
        at: &str,
    ) -> Value {
        let keyword = if out.contains_key("const") { "const" } else { "enum" };
        let is_long = |value: &Value| numbers::has_any(value, &numbers::is_beyond_64_bits);
        if self.has_marks || values.iter().any(is_long) {
            out.remove("const");
            out.remove("enum");
            self.ignore(keyword, at, TOO_LONG);
            return self.hold_numbers(types, out, at);
        }
        let range = range(&out);
        let is_within = |value: &Value| match value.as_number().and_then(numbers::as_integer) {
            Some(exact) => {
                range.least.is_none_or(|least| exact >= least) && range.most.is_none_or(|most| exact <= most)
            }
            None => true,
        };
        let is_typed = |value: &Value| types.is_none_or(|types| types.iter().any(|name| is_of_type(value, name)));
        let kept: Vec<&Value> = values.iter().filter(|value| is_typed(value) && is_within(value)).collect();
        if kept.is_empty() {
            self.ignore(keyword, at, "has no value that the other keywords allow");
            return Value::Bool(true);
        }
        for name in out.keys().filter(|name| !["type", "const", "enum"].contains(&name.as_str())) {
            if !LOWER.contains(&name.as_str()) && !UPPER.contains(&name.as_str()) {
                self.ignore(name, at, format!("stands beside `{keyword}` with an integer beyond 2^53"));
            }
        }
        let is_large = |value: &&Value| value.is_number() && numbers::has_large(value);
        let large: Vec<String> = kept.iter().copied().filter(is_large).map(Value::to_string).collect();
        let mut all: Vec<Value> =
            kept.iter().filter(|value| !is_large(value)).map(|value| self.literal(value)).collect();
        if !large.is_empty() {
            all.push(self.exact(format!("({})", large.join("|"))));
        }
        if all.len() == 1 { all.remove(0) } else { json!({"anyOf": all}) }
    }

    /// The schema that only `value` satisfies.
    fn literal(&mut self, value: &Value) -> Value {
        match value {
            _ if !numbers::has_large(value) => json!({"const": value}),
            Value::Array(items) => {
                let parts: Vec<Value> = items.iter().map(|item| self.literal(item)).collect();
                json!({"type": "array", "prefixItems": parts, "items": false, "minItems": parts.len(), "maxItems": parts.len()})
            }
            Value::Object(fields) => {
                let names: Vec<&String> = fields.keys().collect();
                let parts: Map<String, Value> =
                    fields.iter().map(|(name, field)| (name.clone(), self.literal(field))).collect();
                json!({"type": "object", "properties": parts, "required": names, "additionalProperties": false})
            }
            number => self.exact(number.to_string()),
        }
    }

    /// A reference to a definition for the numbers that `regex` matches.
    fn exact(&mut self, regex: String) -> Value {
        let known = self.exact.iter().position(|other| *other == regex);
        let i = known.unwrap_or_else(|| {
            self.exact.push(regex);
            self.exact.len() - 1
        });
        json!({"$ref": format!("#/$defs/{}", exact_name(i))})
    }
}

/// The integers that satisfy a schema's `minimum`, `maximum` and their exclusive forms.
fn range(out: &Map<String, Value>) -> Range {
    let bound = |name: &str, up: bool, step: i128| {
        let number = out.get(name)?.as_number()?;
        match numbers::as_integer(number) {
            Some(exact) => Some(exact + step),
            // Not an integer, so it lies in the range that f64 represents exactly.
            None => number.as_f64().map(|float| if up { float.ceil() } else { float.floor() } as i128),
        }
    };
    Range {
        least: bound("minimum", true, 0).into_iter().chain(bound("exclusiveMinimum", true, 1)).max(),
        most: bound("maximum", false, 0).into_iter().chain(bound("exclusiveMaximum", false, -1)).min(),
    }
}

/// The values in a schema's `enum` or `const`.
pub(super) fn literals(out: &Map<String, Value>) -> Option<Vec<Value>> {
    match (out.get("const"), out.get("enum")) {
        (Some(value), Some(Value::Array(values))) => {
            Some(values.iter().filter(|other| *other == value).cloned().collect())
        }
        (Some(value), _) => Some(vec![value.clone()]),
        (None, Some(Value::Array(values))) => Some(values.clone()),
        _ => None,
    }
}

/// The reason why a pattern is not supported.
fn pattern_fault(regex: &str) -> &'static str {
    if ["(?=", "(?!", "(?<=", "(?<!"].iter().any(|look| regex.contains(look)) {
        "has a look-around"
    } else if !sizes::is_small(regex) {
        "repeats too much"
    } else {
        "is not supported"
    }
}
