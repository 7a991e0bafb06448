//! Constant expressions: numbers, names, `+ - * / << >> & |`, signs and parentheses, with the precedence of Rust.

use std::collections::BTreeMap;

#[derive(Clone, PartialEq, Debug)]
pub enum Expression {
    Number(i64),
    Name(String),
    Negate(Box<Expression>),
    Binary(&'static str, Box<Expression>, Box<Expression>),
}

/// Operators from the loosest to the tightest.
const LEVELS: [&[&str]; 5] = [&["|"], &["&"], &["<<", ">>"], &["+", "-"], &["*", "/"]];

impl Expression {
    pub fn parse(text: &str) -> Result<Expression, String> {
        let mut rest = text.trim();
        let expression = parse_level(&mut rest, 0)?;
        if rest.is_empty() { Ok(expression) } else { Err(format!("{rest:?} is left over behind the expression")) }
    }

    pub fn evaluate(&self, names: &BTreeMap<String, i64>) -> Result<i64, String> {
        Ok(match self {
            Expression::Number(number) => *number,
            Expression::Name(name) => *names.get(name).ok_or_else(|| format!("{name} is no constant and no label"))?,
            Expression::Negate(inner) => -inner.evaluate(names)?,
            Expression::Binary(operator, left, right) => {
                let (left, right) = (left.evaluate(names)?, right.evaluate(names)?);
                let value = match *operator {
                    "|" => Some(left | right),
                    "&" => Some(left & right),
                    "<<" => u32::try_from(right).ok().and_then(|shift| left.checked_shl(shift)),
                    ">>" => u32::try_from(right).ok().and_then(|shift| left.checked_shr(shift)),
                    "+" => left.checked_add(right),
                    "-" => left.checked_sub(right),
                    "*" => left.checked_mul(right),
                    _ => left.checked_div(right),
                };
                value.ok_or_else(|| format!("{left} {operator} {right} has no value"))?
            }
        })
    }
}

fn parse_level(rest: &mut &str, level: usize) -> Result<Expression, String> {
    let Some(operators) = LEVELS.get(level) else { return parse_atom(rest) };
    let mut left = parse_level(rest, level + 1)?;
    while let Some(&operator) = operators.iter().find(|operator| rest.trim_start().starts_with(**operator)) {
        *rest = &rest.trim_start()[operator.len()..];
        let right = parse_level(rest, level + 1)?;
        left = Expression::Binary(operator, Box::new(left), Box::new(right));
    }
    *rest = rest.trim_start();
    Ok(left)
}

fn parse_atom(rest: &mut &str) -> Result<Expression, String> {
    *rest = rest.trim_start();
    if let Some(inner) = rest.strip_prefix('-') {
        *rest = inner;
        return Ok(Expression::Negate(Box::new(parse_atom(rest)?)));
    }
    if let Some(inner) = rest.strip_prefix('(') {
        *rest = inner;
        let expression = parse_level(rest, 0)?;
        *rest = rest.trim_start().strip_prefix(')').ok_or("a parenthesis is open")?;
        return Ok(expression);
    }
    let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '.').unwrap_or(rest.len());
    let (word, after) = rest.split_at(end);
    *rest = after;
    if word.starts_with(|c: char| c.is_ascii_digit()) {
        let number = match word.strip_prefix("0x") {
            Some(digits) => i64::from_str_radix(digits, 16),
            None => word.parse(),
        };
        return number.map(Expression::Number).map_err(|_| format!("{word:?} is no number"));
    }
    if word.is_empty() {
        Err("a number or a name is missing".to_string())
    } else {
        Ok(Expression::Name(word.to_string()))
    }
}
