//! The source language.
//!
//! A line is a bundle, the instructions of one cycle, separated by `;`. What is not written is idle. `//` starts a
//! comment. `name:` labels the next bundle. Directives:
//!
//! | | |
//! | --- | --- |
//! | `.const NAME = EXPRESSION` | names a number |
//! | `.align 16` | places the next bundle at a multiple of 16 bytes, by widening bundles before it: it costs no cycle |
//! | `.nops N` | N cycles with nothing |
//!
//! Instructions are written as the public LLVM backend prints them: `vlda wl0, [p0], #32` loads and moves the pointer,
//! `#` starts a constant expression.

use std::collections::BTreeMap;

use crate::error::{Error, Place};
use crate::expression::Expression;
use crate::isa::{Isa, Kind, Op, Operand, Syntax};
use crate::register::Register;

/// An instruction whose immediates may name labels.
#[derive(Clone, Debug)]
pub struct Written {
    pub place: Place,
    /// Index into [`Isa::ops`].
    pub op: usize,
    pub operands: Vec<(Value, Place)>,
}

#[derive(Clone, PartialEq, Debug)]
pub enum Value {
    Register(Register),
    Expression(Expression),
}

#[derive(Clone, Debug)]
pub enum Item {
    Label(String, Place),
    Align(u32, Place),
    Bundle(Vec<Written>, Place),
}

#[derive(Default, Debug)]
pub struct Source {
    pub items: Vec<Item>,
    pub constants: BTreeMap<String, i64>,
}

/// Reads a source. All its errors come back, not the first alone.
pub fn parse(isa: &Isa, file: &str, text: &str) -> Result<Source, Vec<Error>> {
    let mut source = Source::default();
    let mut errors = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let code = line.split_once("//").map_or(line, |(code, _)| code);
        if let Err((column, message)) = parse_line(isa, &mut source, index + 1, code) {
            errors.push(Place { line: index + 1, column }.error(file, message));
        }
    }
    if errors.is_empty() { Ok(source) } else { Err(errors) }
}

/// A message and the column of what it is about.
type Fault = (usize, String);

/// Column, from 1, of a part of a line.
fn column(line: &str, part: &str) -> usize {
    let offset = part.as_ptr() as usize - line.as_ptr() as usize;
    line[..offset].chars().count() + 1
}

fn parse_line(isa: &Isa, source: &mut Source, number: usize, line: &str) -> Result<(), Fault> {
    let mut code = line.trim();
    while let Some((label, rest)) = code.split_once(':') {
        let place = Place { line: number, column: column(line, code) };
        let label = label.trim_end();
        if !is_name(label) {
            return Err((place.column, format!("{label:?} is no name for a label")));
        }
        source.items.push(Item::Label(label.to_string(), place));
        code = rest.trim();
    }
    if code.is_empty() {
        return Ok(());
    }
    let place = Place { line: number, column: column(line, code) };
    if code.starts_with('.') {
        return parse_directive(source, code, place).map_err(|message| (place.column, message));
    }
    let parts = code.split(';').map(|part| parse_instruction(isa, number, line, part));
    let mut written: Vec<Written> = parts.collect::<Result<_, _>>()?;
    // A lone nop is a cycle, of whatever width.
    if let [alone] = written.as_slice()
        && isa.ops[alone.op].mnemonic == "nop"
    {
        written.clear();
    }
    source.items.push(Item::Bundle(written, place));
    Ok(())
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

fn parse_directive(source: &mut Source, code: &str, place: Place) -> Result<(), String> {
    let (directive, rest) = code.split_once(' ').unwrap_or((code, ""));
    let value = |text: &str| Expression::parse(text)?.evaluate(&source.constants);
    match directive {
        ".const" => {
            let (name, expression) = rest.split_once('=').ok_or("write .const NAME = EXPRESSION")?;
            let (name, value) = (name.trim(), value(expression)?);
            if !is_name(name) {
                return Err(format!("{name:?} is no name for a constant"));
            }
            if source.constants.insert(name.to_string(), value).is_some() {
                return Err(format!("{name} has a value already"));
            }
        }
        ".align" => match value(rest)? {
            bytes @ (2 | 4 | 8 | 16) => source.items.push(Item::Align(bytes as u32, place)),
            bytes => return Err(format!("cannot align to {bytes} bytes: 2, 4, 8 or 16")),
        },
        ".nops" => match value(rest)? {
            count @ 1..=1024 => source.items.extend((0..count).map(|_| Item::Bundle(Vec::new(), place))),
            count => return Err(format!("cannot wait {count} cycles: 1 to 1024")),
        },
        _ => return Err(format!("there is no directive {directive}: .const, .align or .nops")),
    }
    Ok(())
}

/// A piece of an instruction's operands.
#[derive(Clone, Debug)]
enum Token<'a> {
    Mark(char),
    Word(&'a str),
    Immediate(&'a str),
}

fn tokenize(text: &str) -> Vec<(Token<'_>, &str)> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let end = match first {
            ',' | '[' | ']' => 1,
            '#' => rest.find([',', ']']).unwrap_or(rest.len()),
            c if c.is_whitespace() => {
                rest = rest.trim_start();
                continue;
            }
            _ => rest.find([',', '[', ']', ' ', '\t']).unwrap_or(rest.len()),
        };
        let (part, after) = rest.split_at(end);
        tokens.push((
            match first {
                ',' | '[' | ']' => Token::Mark(first),
                '#' => Token::Immediate(&part[1..]),
                _ => Token::Word(part),
            },
            part,
        ));
        rest = after;
    }
    tokens
}

fn parse_instruction(isa: &Isa, number: usize, line: &str, part: &str) -> Result<Written, Fault> {
    let part = part.trim();
    let start = column(line, part);
    if part.is_empty() {
        return Err((start, "there is nothing between these semicolons".to_string()));
    }
    let (mnemonic, operands) = part.split_once([' ', '\t']).unwrap_or((part, ""));
    let tokens = tokenize(operands);
    let mut best: Option<(usize, Fault)> = None;
    for (index, op) in isa.ops.iter().enumerate().filter(|(_, op)| op.mnemonic.eq_ignore_ascii_case(mnemonic)) {
        match match_operands(isa, op, line, number, &tokens) {
            Ok(operands) => {
                let place = Place { line: number, column: start };
                return Ok(Written { place, op: index, operands });
            }
            Err((reached, fault)) if best.as_ref().is_none_or(|(most, _)| reached > *most) => {
                best = Some((reached, fault))
            }
            Err(_) => {}
        }
    }
    Err(match best {
        Some((_, (0, message))) => (start, message),
        Some((_, fault)) => fault,
        None => (start, format!("there is no instruction {mnemonic}")),
    })
}

/// The operands of a row of the table, or how many tokens fit it and what is wrong with the next.
fn match_operands(
    isa: &Isa,
    op: &Op,
    line: &str,
    number: usize,
    tokens: &[(Token<'_>, &str)],
) -> Result<Vec<(Value, Place)>, (usize, Fault)> {
    let mut operands: Vec<Option<(Value, Place)>> = vec![None; op.operands.len()];
    for (index, item) in op.syntax.iter().enumerate() {
        let Some((token, part)) = tokens.get(index) else {
            return Err((index, (0, format!("operands are missing: {}", form(isa, op)))));
        };
        let column = column(line, part);
        let fail = |message: String| (index, (column, message));
        let unexpected = || fail(format!("{part:?} cannot stand here: {}", form(isa, op)));
        match (item, token) {
            (Syntax::Mark(mark), Token::Mark(found)) if mark == found => {}
            (Syntax::Word(word), Token::Word(found)) if word.eq_ignore_ascii_case(found) => {}
            (Syntax::Operand(operand), _) => {
                let value = match (op.operands[*operand].kind, token) {
                    (Kind::Register { class }, Token::Word(name)) => {
                        let name = name.to_ascii_lowercase();
                        let register =
                            Register::parse(&name).ok_or_else(|| fail(format!("{name:?} is no register")))?;
                        isa.code(class, register).ok_or_else(unexpected)?;
                        Value::Register(register)
                    }
                    (Kind::Immediate { .. }, Token::Immediate(text)) => {
                        Value::Expression(Expression::parse(text).map_err(fail)?)
                    }
                    _ => return Err(unexpected()),
                };
                if operands[*operand].as_ref().is_some_and(|(first, _)| *first != value) {
                    return Err(fail(format!("{part} must be the register before it: {}", form(isa, op))));
                }
                operands[*operand] = Some((value, Place { line: number, column }));
            }
            _ => return Err(unexpected()),
        }
    }
    if let Some((_, part)) = tokens.get(op.syntax.len()) {
        let message = format!("{part:?} is too much: {}", form(isa, op));
        return Err((op.syntax.len(), (column(line, part), message)));
    }
    Ok(operands.into_iter().flatten().collect())
}

/// The row as a pattern, for messages: `vlda W, [P], #-2048..2016`.
fn form(isa: &Isa, op: &Op) -> String {
    op.write(|index| match op.operands[index].kind {
        Kind::Register { class } => isa.classes[class].name.to_uppercase(),
        Kind::Immediate { .. } => "#I".to_string(),
    })
}

/// The instruction with its expressions evaluated.
pub fn resolve(written: &Written, names: &BTreeMap<String, i64>) -> Result<crate::isa::Instruction, (Place, String)> {
    let operands = written.operands.iter().map(|(value, place)| match value {
        Value::Register(register) => Ok(Operand::Register(*register)),
        Value::Expression(expression) => {
            expression.evaluate(names).map(Operand::Immediate).map_err(|message| (*place, message))
        }
    });
    Ok(crate::isa::Instruction { op: written.op, operands: operands.collect::<Result<_, _>>()? })
}
