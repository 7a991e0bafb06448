//! Reads the instruction table, `data/aie2.isa`, whose head explains its rows.

use crate::isa::{Class, Format, Isa, Kind, Machine, Op, OperandSpec, Slot, Syntax};
use crate::register::Register;
use crate::timing::{Effect, Port, Timing};

/// Parses a table. The error names the row.
pub fn parse(text: &str) -> Result<Isa, String> {
    let mut isa = Isa::default();
    let mut widths = [0u32; Slot::ALL.len()];
    for (number, line) in text.lines().enumerate() {
        let line = line.split_once("# ").map_or(line, |(row, _)| row).trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (kind, rest) = line.split_once(' ').unwrap_or((line, ""));
        let rest = rest.trim();
        match kind {
            "machine" => parse_machine(&mut isa.machine, rest),
            "class" => parse_class(rest).map(|class| isa.classes.push(class)),
            "timing" => parse_timing(rest).map(|timing| isa.timings.push(timing)),
            "slot" => parse_slot(rest).map(|(slot, width)| widths[slot as usize] = width),
            "op" => parse_op(&isa, &widths, rest).map(|op| isa.ops.push(op)),
            "format" => parse_format(&widths, rest).map(|format| isa.formats.push(format)),
            _ => Err("no such kind of row".to_string()),
        }
        .map_err(|message| format!("instruction table, row {}: {message}: {line}", number + 1))?;
    }
    Ok(isa)
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{text:?} is no number"))
}

fn wide(text: &str) -> Result<u128, String> {
    text.strip_prefix("0x")
        .and_then(|digits| u128::from_str_radix(digits, 16).ok())
        .ok_or_else(|| format!("{text:?} is no hexadecimal number"))
}

fn parse_machine(machine: &mut Machine, row: &str) -> Result<(), String> {
    let (name, value) = row.split_once(' ').ok_or("a name and a number")?;
    let field = match name {
        "delay-slots" => &mut machine.delay_slots,
        "lock-stall" => &mut machine.lock_stall,
        "lock-resume" => &mut machine.lock_resume,
        "loop-setup-bytes" => &mut machine.loop_setup_bytes,
        _ => return Err("no such property".to_string()),
    };
    *field = number(value.trim())?;
    Ok(())
}

fn parse_slot(row: &str) -> Result<(Slot, u32), String> {
    let (name, width) = row.split_once(' ').ok_or("a name and a width")?;
    Ok((Slot::parse(name).ok_or("no such slot")?, number(width)?))
}

fn parse_class(row: &str) -> Result<Class, String> {
    let mut words = row.split_whitespace();
    let name = words.next().ok_or("a name")?.to_string();
    let bits: u32 = number(words.next().ok_or("a width")?)?;
    let mut codes = vec![None; 1 << bits];
    let mut next = 0;
    for word in words {
        let (range, place) = word.split_once('@').unwrap_or((word, ""));
        let (start, step) = place.split_once('+').unwrap_or((place, "1"));
        let mut code: usize = if start.is_empty() { next } else { number(start)? };
        let step: usize = number(step)?;
        for register in parse_range(range)? {
            let entry = codes.get_mut(code).ok_or("a code is wider than the class")?;
            if entry.replace(register).is_some() {
                return Err(format!("code {code} is given twice"));
            }
            code += step;
        }
        next = code;
    }
    Ok(Class { name, codes })
}

/// `r0..r7`, `wl0..wl10/2` or one name.
fn parse_range(text: &str) -> Result<Vec<Register>, String> {
    let register = |name: &str| Register::parse(name).ok_or_else(|| format!("{name:?} is no register"));
    let Some((first, rest)) = text.split_once("..") else { return Ok(vec![register(text)?]) };
    let (last, stride) = rest.split_once('/').unwrap_or((rest, "1"));
    let (first, last, stride) = (register(first)?, register(last)?, number::<usize>(stride)?);
    Ok((first.index..=last.index).step_by(stride).map(|index| Register { file: first.file, index }).collect())
}

fn parse_timing(row: &str) -> Result<Timing, String> {
    let mut words = row.split_whitespace();
    let mut timing = Timing { name: words.next().ok_or("a name")?.to_string(), ..Timing::default() };
    for word in words {
        let (word, forwarding) =
            word.split_once('^').map_or((word, None), |(word, mark)| (word, Some(mark.to_string())));
        if let Some((target, stage)) = word.split_once('@') {
            let stage = number(stage)?;
            match target.split_once('(') {
                _ if target == "mem" => timing.memory = Some(stage),
                None => timing.ports.push((Port::Fixed(target.to_string()), stage)),
                Some((port, operand)) => {
                    let letter = operand.chars().next().ok_or("a port of no operand")?;
                    timing.ports.push((if port == "wa" { Port::LoadOf(letter) } else { Port::MoveOf(letter) }, stage));
                }
            }
        } else if let Some((target, stage)) = word.split_once('>') {
            timing.writes.push(Effect { target: target.to_string(), stage: number(stage)?, forwarding });
        } else if let Some((target, stage)) = word.split_once('<') {
            timing.reads.push(Effect { target: target.to_string(), stage: number(stage)?, forwarding });
        } else {
            return Err(format!("{word:?} is no effect"));
        }
    }
    Ok(timing)
}

fn parse_op(isa: &Isa, widths: &[u32], row: &str) -> Result<Op, String> {
    let (head, bits) = row.split_once(" = ").ok_or("no encoding")?;
    let mut words = head.splitn(3, ' ');
    let slot = words.next().and_then(Slot::parse).ok_or("no such slot")?;
    let head = words.collect::<Vec<_>>().join(" ");
    let (timing, head) = head.trim().split_once(' ').ok_or("no timing")?;
    let timing = isa.timings.iter().find(|known| known.name == timing).ok_or("no such timing")?.clone();
    let head = head.trim();
    let (mnemonic, syntax) = head.split_once(' ').unwrap_or((head, ""));
    let (syntax, mut operands) = parse_syntax(isa, syntax.trim())?;
    let bits: Vec<char> = bits.chars().filter(|c| !c.is_whitespace()).collect();
    let width = widths[slot as usize];
    if bits.len() != width as usize {
        return Err(format!("{} bits for a slot of {width}", bits.len()));
    }
    let (mut mask, mut value) = (0u64, 0u64);
    for (index, bit) in bits.iter().enumerate() {
        let place = width - 1 - index as u32;
        match bit {
            '0' | '1' => {
                mask |= 1 << place;
                value |= u64::from(*bit == '1') << place;
            }
            letter => {
                let operand = operands.iter_mut().find(|operand| operand.letter == *letter);
                operand.ok_or_else(|| format!("no operand {letter}"))?.places.push(place);
            }
        }
    }
    for operand in &operands {
        if operand.places.len() as u32 != operand.kind.bits(isa) {
            return Err(format!("operand {} is {} bits wide", operand.letter, operand.kind.bits(isa)));
        }
    }
    Ok(Op { slot, mnemonic: mnemonic.to_string(), syntax, operands, mask, value, timing })
}

fn parse_syntax(isa: &Isa, text: &str) -> Result<(Vec<Syntax>, Vec<OperandSpec>), String> {
    let (mut syntax, mut operands) = (Vec::new(), Vec::<OperandSpec>::new());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = match first {
            ' ' => 1,
            ',' | '[' | ']' => {
                syntax.push(Syntax::Mark(first));
                1
            }
            '{' => {
                let end = rest.find('}').ok_or("an open operand")?;
                let (letter, kind) = rest[1..end].split_once(':').ok_or("an operand of no kind")?;
                let letter = letter.chars().next().ok_or("an operand of no name")?;
                let index = operands.iter().position(|operand| operand.letter == letter).unwrap_or(operands.len());
                if index == operands.len() {
                    operands.push(OperandSpec { letter, kind: parse_kind(isa, kind)?, places: Vec::new() });
                }
                syntax.push(Syntax::Operand(index));
                end + 1
            }
            _ => {
                let end = rest.find([',', ' ', '[', ']']).unwrap_or(rest.len());
                syntax.push(Syntax::Word(rest[..end].to_string()));
                end
            }
        };
        rest = &rest[length..];
    }
    Ok((syntax, operands))
}

fn parse_kind(isa: &Isa, text: &str) -> Result<Kind, String> {
    if let Some(class) = isa.classes.iter().position(|class| class.name == text) {
        return Ok(Kind::Register { class });
    }
    let (field, scale) = text.split_once('*').unwrap_or((text, "1"));
    let (sign, bits) = field.split_at_checked(1).ok_or("an empty kind")?;
    let (bits, scale) = (number(bits)?, number(scale)?);
    match sign {
        "s" => Ok(Kind::Immediate { bits, signed: true, scale }),
        "u" | "a" => Ok(Kind::Immediate { bits, signed: false, scale }),
        _ => Err(format!("{text:?} is no class and no field")),
    }
}

fn parse_format(widths: &[u32], row: &str) -> Result<Format, String> {
    let mut words = row.split_whitespace();
    let mut word = || words.next().ok_or("size, mask, value and slots");
    let (bits, mask, value) = (number::<u32>(word()?)?, wide(word()?)?, wide(word()?)?);
    let mut slots = Vec::new();
    for word in words {
        let (slot, place) = word.split_once('@').ok_or("a slot of no place")?;
        let (slot, place) = (Slot::parse(slot).ok_or("no such slot")?, number(place)?);
        slots.push((slot, place));
        if place + widths[slot as usize] > bits {
            return Err(format!("slot {} passes the end", slot.name()));
        }
    }
    Ok(Format { bytes: bits as usize / 8, mask, value, slots })
}
