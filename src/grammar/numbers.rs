//! Exact numbers of a schema. llguidance keeps bounds as f64, which rounds integers beyond 2^53: such bounds become
//! regular expressions here. Its lexer has a state for each remainder of a modulus, so moduli are bounded here.

use serde_json::{Number, Value};

/// The largest modulus, in units of its last decimal place.
const LARGEST_MODULUS: u128 = 2000;

/// f64 holds every integer up to this one.
const EXACT: i128 = 1 << 53;

/// A range of integers, both ends included; `None` is unbounded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Range {
    pub least: Option<i128>,
    pub most: Option<i128>,
}

impl Range {
    /// True if a bound is too large for f64 to represent exactly.
    pub fn is_beyond_f64(&self) -> bool {
        [self.least, self.most].into_iter().flatten().any(|bound| bound.abs() > EXACT)
    }

    /// True if no integer lies between the two bounds.
    pub fn is_empty(&self) -> bool {
        matches!((self.least, self.most), (Some(least), Some(most)) if least > most)
    }

    /// A regular expression for the range's integers in JSON.
    pub fn regex(&self) -> String {
        let mut parts = Vec::new();
        if self.least.is_none_or(|least| least < 0) {
            let from = self.most.map_or(1, |most| (-most).max(1));
            parts.extend(digits(from, self.least.map(|least| -least)).into_iter().map(|part| format!("-{part}")));
        }
        if self.most.is_none_or(|most| most >= 0) {
            parts.extend(digits(self.least.unwrap_or(0).max(0), self.most));
        }
        format!("({})", parts.join("|"))
    }
}

/// Regular expressions for the integers from `from` to `to`, both at least 0: one for each number of digits.
fn digits(from: i128, to: Option<i128>) -> Vec<String> {
    let lowest = from.to_string();
    let highest = to.map(|to| to.to_string());
    let longest = highest.as_ref().map_or(lowest.len(), String::len);
    let of_length = |length: usize| {
        let low = if length == lowest.len() { lowest.clone() } else { format!("1{}", "0".repeat(length - 1)) };
        let high = highest.clone().filter(|high| high.len() == length).unwrap_or_else(|| "9".repeat(length));
        between(&low, &high)
    };
    let mut all: Vec<String> =
        if to.is_some_and(|to| to < from) { Vec::new() } else { (lowest.len()..=longest).map(of_length).collect() };
    if to.is_none() {
        all.push(format!("[1-9][0-9]{{{},}}", lowest.len()));
    }
    all
}

/// A regular expression for the integers from `low` to `high`, which have the same number of digits.
fn between(low: &str, high: &str) -> String {
    let (Some(first), Some(last)) = (low.chars().next(), high.chars().next()) else { return String::new() };
    let (low, high) = (&low[1..], &high[1..]);
    let (zeros, nines) = ("0".repeat(low.len()), "9".repeat(low.len()));
    if first == last {
        return format!("{first}{}", between(low, high));
    }
    let any = |from: char, to: char| match low.len() {
        0 => format!("[{from}-{to}]"),
        rest => format!("[{from}-{to}][0-9]{{{rest}}}"),
    };
    let next = |digit: char, by: i32| char::from_u32((digit as i32 + by) as u32).unwrap_or(digit);
    let (mut parts, mut from, mut to) = (Vec::new(), first, last);
    if low != zeros {
        parts.push(format!("{first}{}", between(low, &nines)));
        from = next(first, 1);
    }
    if high != nines {
        parts.push(format!("{last}{}", between(&zeros, high)));
        to = next(last, -1);
    }
    if from <= to {
        parts.push(any(from, to));
    }
    format!("({})", parts.join("|"))
}

/// An integer of 64 bits, signed or unsigned. `None` for a number with a fraction or with more bits.
pub(super) fn as_integer(number: &Number) -> Option<i128> {
    if let Some(exact) = number.as_i64().map(i128::from).or(number.as_u64().map(i128::from)) {
        return Some(exact);
    }
    // serde_json reads integers beyond 64 bits, and 5.0, as floats.
    number.as_f64().filter(|float| float.fract() == 0.0 && float.abs() <= EXACT as f64).map(|float| float as i128)
}

/// True for an integer that fits neither i64 nor u64.
pub(super) fn is_beyond_64_bits(number: &Number) -> bool {
    as_integer(number).is_none() && number.as_f64().is_none_or(|float| float.fract() == 0.0)
}

/// True if the value is or contains an integer that f64 may round.
pub(super) fn has_large(value: &Value) -> bool {
    let is_large = |number: &Number| as_integer(number).is_some_and(|integer| integer.abs() > EXACT);
    has_any(value, &|number| is_beyond_64_bits(number) || is_large(number))
}

/// True if `is_so` is true of a number in the value, at any depth.
pub(super) fn has_any(value: &Value, is_so: &dyn Fn(&Number) -> bool) -> bool {
    match value {
        Value::Number(number) => is_so(number),
        Value::Array(items) => items.iter().any(|item| has_any(item, is_so)),
        Value::Object(fields) => fields.values().any(|field| has_any(field, is_so)),
        _ => false,
    }
}

/// True if the least common multiple of the moduli is at most [`LARGEST_MODULUS`]. `are_joined`: one number may have to
/// be a multiple of all of them; otherwise each modulus is checked by itself.
pub(super) fn are_few_remainders(moduli: &[&Number], are_joined: bool) -> bool {
    let moduli: Vec<String> = moduli.iter().map(|number| number.to_string()).collect();
    let size = if are_joined { moduli.len() } else { 1 };
    moduli.chunks(size.max(1)).all(|group| common_modulus(group).is_some_and(|modulus| modulus <= LARGEST_MODULUS))
}

/// The least common multiple, in units of the last decimal place of all moduli. `None` on overflow.
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

/// A JSON number as its digits, without sign, and its number of decimal places.
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
