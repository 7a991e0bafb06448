//! JSON schemas: what is bounded before they are compiled, and how a refusal is worded.

use llguidance::JsonCompileOptions;
use serde_json::{Value, json};

use crate::display::quote;
use crate::{Error, Result};

/// Blanks between two parts of a document: one, or a line's end and the indentation behind it.
const BLANKS: &str = r"[ ]|\n[ \t]{0,40}";

/// References in a schema. Each may lead to the next, and llguidance follows them by recursion.
const MOST_REFERENCES: usize = 1000;

/// The largest modulus of numbers, by their last decimal place: the lexer has a state for each remainder.
const LARGEST_MODULUS: u128 = 2000;

/// The schema of any object.
pub(super) fn any_object() -> Value {
    json!({"type": "object"})
}

/// The schema as it is compiled, with white space bounded.
///
/// # Errors
/// Input: it is no schema, or has too many references.
pub(super) fn prepare(schema: &Value) -> Result<Value> {
    let mut prepared = match schema {
        Value::Object(_) => schema.clone(),
        Value::Bool(true) => json!({}),
        Value::Bool(false) => {
            return Err(Error::input("the JSON schema is false, which no document satisfies", "change it"));
        }
        _ => return Err(Error::input("the JSON schema is neither an object nor true", "give an object")),
    };
    let references = count_references(schema);
    if references > MOST_REFERENCES {
        return Err(Error::input(
            format!("the JSON schema has {references} references, and {MOST_REFERENCES} are supported"),
            "use a smaller schema",
        ));
    }
    check_moduli(schema)?;
    bound_blanks(&mut prepared);
    Ok(prepared)
}

/// Refuses moduli that would have too many remainders, in a schema or in any that a Lark grammar embeds.
pub(super) fn check_embedded(lark: &str) -> Result<()> {
    for (at, keyword) in lark.match_indices("%json") {
        let rest = &lark[at + keyword.len()..];
        // What is no JSON here is llguidance's to refuse.
        if let Some(Ok(schema)) = serde_json::Deserializer::from_str(rest).into_iter::<Value>().next() {
            check_moduli(&schema)?;
        }
    }
    Ok(())
}

fn check_moduli(schema: &Value) -> Result<()> {
    const IN_PLACE: [&str; 6] = ["allOf", "anyOf", "oneOf", "$ref", "$dynamicRef", "$recursiveRef"];
    let (mut moduli, mut open, mut are_joined) = (Vec::new(), vec![schema], false);
    while let Some(value) = open.pop() {
        match value {
            Value::Object(fields) => {
                moduli.extend(fields.get("multipleOf").and_then(Value::as_number).map(|number| number.to_string()));
                are_joined |= IN_PLACE.iter().any(|keyword| fields.contains_key(*keyword));
                open.extend(fields.values());
            }
            Value::Array(items) => open.extend(items),
            _ => {}
        }
    }
    // Schemas that hold at one place have the least common multiple. Which ones do is not followed: all may.
    let together = moduli.join(" and ");
    let groups: Vec<&[String]> = if are_joined { vec![&moduli[..]] } else { moduli.chunks(1).collect() };
    for group in groups {
        if common_modulus(group).is_none_or(|modulus| modulus > LARGEST_MODULUS) {
            let what = if are_joined { &together } else { &group[0] };
            return Err(Error::input(
                format!(
                    "the JSON schema uses `multipleOf` with {}, and a modulus of {LARGEST_MODULUS} is supported, by its \
                     last decimal place and for those that are joined",
                    quote(what)
                ),
                "leave it out of the schema, and ask for it in the prompt",
            ));
        }
    }
    Ok(())
}

/// The least common multiple, in units of the last decimal place of them all. `None` if it is beyond all bounds.
fn common_modulus(moduli: &[String]) -> Option<u128> {
    let decimals: Vec<(u128, u32)> = moduli.iter().map(|text| as_decimal(text)).collect::<Option<_>>()?;
    let places = decimals.iter().map(|(_, places)| *places).max().unwrap_or(0);
    decimals.iter().filter(|(digits, _)| *digits > 0).try_fold(1_u128, |all, (digits, own)| {
        let scaled = digits.checked_mul(10_u128.checked_pow(places - own)?)?;
        let (mut a, mut b) = (all, scaled);
        while b > 0 {
            (a, b) = (b, a % b);
        }
        (all / a).checked_mul(scaled)
    })
}

/// A JSON number that is not negative as digits and decimal places.
fn as_decimal(text: &str) -> Option<(u128, u32)> {
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let fraction = fraction.trim_end_matches('0');
    let digits: u128 = format!("{whole}{fraction}").trim_start_matches('-').parse().ok()?;
    let places = i32::try_from(fraction.len()).ok()?.checked_sub(exponent.parse().ok()?)?;
    match u32::try_from(places) {
        Ok(places) => Some((digits, places)),
        Err(_) => Some((digits.checked_mul(10_u128.checked_pow(places.unsigned_abs())?)?, 0)),
    }
}

/// Bounds the white space between two parts of a schema's documents. A Lark grammar that embeds a schema bounds none by itself.
pub fn bound_blanks(schema: &mut Value) {
    let options = JsonCompileOptions { whitespace_pattern: Some(BLANKS.into()), ..JsonCompileOptions::default() };
    // In place of options that the schema itself may bring.
    options.apply_to(schema);
}

fn count_references(schema: &Value) -> usize {
    let (mut count, mut open) = (0, vec![schema]);
    while let Some(value) = open.pop() {
        match value {
            Value::Object(fields) => {
                count += usize::from(fields.contains_key("$ref"));
                open.extend(fields.values());
            }
            Value::Array(items) => open.extend(items),
            _ => {}
        }
    }
    count
}

/// The error for a schema that llguidance refuses with `reason`.
pub(super) fn refusal(reason: &str) -> Error {
    let named = reason.split_once("Unimplemented keys: [").and_then(|(_, rest)| rest.split_once(']'));
    match named {
        Some((keywords, _)) => Error::input(
            format!("the JSON schema uses {}, which is not supported", keywords.replace('"', "`")),
            "leave it out of the schema, and ask for it in the prompt",
        ),
        None => Error::input(format!("the JSON schema cannot be used: {}", quote(reason)), "change the schema"),
    }
}
