//! From source to a program: places bundles, gives labels their addresses, encodes, and has hazards checked.

use std::collections::BTreeMap;

use crate::error::{Error, Place};
use crate::expression::Expression;
use crate::flow::Flow;
use crate::isa::{Bundle, Instruction, Isa, Slot};
use crate::source::{self, Item, Value, Written};
use crate::{flow, hazard};

/// Bytes of program memory of a core.
pub const PROGRAM_BYTES: usize = 16 * 1024;

/// A bundle in its place.
#[derive(Clone, Debug)]
pub struct Placed {
    /// Byte in program memory.
    pub address: u32,
    pub bundle: Bundle,
    pub place: Place,
}

/// A core's program: what program memory holds from address 0 on, and the same as data.
#[derive(Clone, Debug)]
pub struct Program {
    pub name: String,
    pub code: Vec<u8>,
    pub bundles: Vec<Placed>,
    pub labels: BTreeMap<String, u32>,
    pub constants: BTreeMap<String, i64>,
    pub flow: Flow,
}

/// A bundle on its way to a place.
struct Draft {
    written: Vec<Written>,
    place: Place,
    /// Formats that hold it, shortest first.
    formats: Vec<usize>,
    chosen: usize,
}

/// Assembles a source.
///
/// # Errors
/// All errors of the first stage that has any: reading, placing, encoding, control flow, hazards.
pub fn assemble(isa: &Isa, file: &str, text: &str) -> Result<Program, Vec<Error>> {
    let source = source::parse(isa, file, text)?;
    let Layout { drafts, labels, addresses } = place(isa, file, &source)?;
    let mut names = source.constants.clone();
    names.extend(labels.iter().map(|(name, address)| (name.clone(), i64::from(*address))));
    let mut errors = Vec::new();
    let (mut code, mut bundles) = (Vec::new(), Vec::new());
    for (draft, address) in drafts.iter().zip(addresses) {
        let mut instructions = Vec::new();
        for written in &draft.written {
            let encoded = source::resolve(written, &names)
                .and_then(|instruction| check_encoding(isa, written, &instruction).map(|()| instruction));
            match encoded {
                Ok(instruction) => instructions.push(instruction),
                Err((place, message)) => errors.push(place.error(file, message)),
            }
        }
        let bundle = isa.fill(draft.chosen, &instructions);
        code.extend(isa.encode_bundle(&bundle).unwrap_or_default());
        bundles.push(Placed { address, bundle, place: draft.place });
    }
    if code.len() > PROGRAM_BYTES {
        let message = format!("the program has {} bytes, a core holds {PROGRAM_BYTES}", code.len());
        errors.push(Place { line: 1, column: 1 }.error(file, message));
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    let flow = flow::follow(isa, file, &bundles)?;
    hazard::check(isa, file, &bundles, &flow)?;
    Ok(Program { name: file.to_string(), code, bundles, labels, constants: source.constants, flow })
}

/// Assembles sources, each a file's name and text, as if they stood in one file.
///
/// # Errors
/// As [`assemble`], each at its place in its own file.
pub fn assemble_all(isa: &Isa, name: &str, sources: &[(String, String)]) -> Result<Program, Vec<Error>> {
    // A text ends with its last line's end, so that the next one's first line follows.
    let text: String = sources.iter().flat_map(|(_, text)| [text.trim_end(), "\n"]).collect();
    let at = |mut error: Error| {
        for (file, text) in sources {
            let lines = text.trim_end().lines().count().max(1);
            if error.line <= lines {
                error.file.clone_from(file);
                break;
            }
            error.line -= lines;
        }
        error
    };
    assemble(isa, name, &text).map_err(|errors| errors.into_iter().map(at).collect())
}

/// One bundle of a line without labels, in the shortest format that holds it.
pub fn bundle(isa: &Isa, line: &str) -> Result<Bundle, Error> {
    let source = source::parse(isa, "line", line).map_err(|mut errors| errors.remove(0))?;
    let place = Place { line: 1, column: 1 };
    let [Item::Bundle(written, _)] = source.items.as_slice() else {
        return Err(place.error("line", "this is not one bundle"));
    };
    let fail = |(place, message): (Place, String)| place.error("line", message);
    let formats = formats_of(isa, written).map_err(fail)?;
    let mut instructions = Vec::new();
    for one in written {
        let instruction = source::resolve(one, &source.constants).map_err(fail)?;
        check_encoding(isa, one, &instruction).map_err(fail)?;
        instructions.push(instruction);
    }
    Ok(isa.fill(formats[0], &instructions))
}

/// Blames the operand that does not fit its field.
fn check_encoding(isa: &Isa, written: &Written, instruction: &Instruction) -> Result<(), (Place, String)> {
    isa.encode(instruction).map(|_| ()).map_err(|message| {
        let immediate = written.operands.iter().find(|(value, _)| matches!(value, Value::Expression(_)));
        (immediate.map_or(written.place, |(_, place)| *place), message)
    })
}

struct Layout {
    drafts: Vec<Draft>,
    labels: BTreeMap<String, u32>,
    /// Of each draft.
    addresses: Vec<u32>,
}

/// Chooses each bundle's format: the shortest that holds it, and wider ones before an `.align`. The last bundle of a
/// hardware loop takes 16 bytes.
fn place(isa: &Isa, file: &str, source: &source::Source) -> Result<Layout, Vec<Error>> {
    let mut errors = Vec::new();
    let mut drafts: Vec<Draft> = Vec::new();
    let mut labels: BTreeMap<String, (usize, Place)> = BTreeMap::new();
    for item in &source.items {
        match item {
            Item::Label(name, place) => {
                if labels.insert(name.clone(), (drafts.len(), *place)).is_some() || source.constants.contains_key(name)
                {
                    errors.push(place.error(file, format!("{name} is the name of something already")));
                }
            }
            Item::Align(..) => {}
            Item::Bundle(written, place) => match formats_of(isa, written) {
                Ok(formats) => {
                    drafts.push(Draft { written: written.clone(), place: *place, chosen: formats[0], formats });
                }
                Err((place, message)) => errors.push(place.error(file, message)),
            },
        }
    }
    for (name, (index, place)) in &labels {
        if *index >= drafts.len() {
            errors.push(place.error(file, format!("{name} labels no bundle")));
        }
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    for end in loop_ends(isa, &drafts) {
        let Some((index, _)) = labels.get(&end) else { continue };
        let draft = &mut drafts[*index];
        draft.formats.retain(|&format| isa.formats[format].bytes == 16);
        draft.chosen = draft.formats[0];
    }
    let (mut segment, mut segment_address) = (0, 0u32);
    let mut next = 0;
    for item in &source.items {
        match item {
            Item::Bundle(..) => next += 1,
            Item::Label(..) => {}
            Item::Align(bytes, place) => {
                if !widen(isa, &mut drafts[segment..next], segment_address, *bytes) {
                    errors.push(place.error(file, "no width of the bundles before ends here: put a nop before it"));
                }
                let length: usize = drafts[segment..next].iter().map(|draft| isa.formats[draft.chosen].bytes).sum();
                (segment, segment_address) = (next, segment_address + length as u32);
            }
        }
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    let mut address = 0;
    let addresses: Vec<u32> = drafts
        .iter()
        .map(|draft| {
            let here = address;
            address += isa.formats[draft.chosen].bytes as u32;
            here
        })
        .collect();
    let labels = labels.into_iter().map(|(name, (index, _))| (name, addresses[index])).collect();
    Ok(Layout { drafts, labels, addresses })
}

fn formats_of(isa: &Isa, written: &[Written]) -> Result<Vec<usize>, (Place, String)> {
    let slots: Vec<Slot> = written.iter().map(|written| isa.ops[written.op].slot).collect();
    for (index, slot) in slots.iter().enumerate() {
        if let Some(first) = slots[..index].iter().position(|taken| taken == slot) {
            let (first, second) = (&written[first], &written[index]);
            let message = format!(
                "{} and {} both take the {} slot: move one of them to another cycle",
                isa.ops[first.op].mnemonic,
                isa.ops[second.op].mnemonic,
                slot.name()
            );
            return Err((second.place, message));
        }
    }
    let formats = isa.formats_of(&slots);
    if formats.is_empty() {
        let names: Vec<&str> = slots.iter().map(|slot| slot.name()).collect();
        return Err((written[0].place, format!("no bundle holds the slots {} together", names.join(", "))));
    }
    Ok(formats)
}

/// The labels that `le` is set to.
fn loop_ends(isa: &Isa, drafts: &[Draft]) -> Vec<String> {
    let written = drafts.iter().flat_map(|draft| &draft.written);
    let moves = written.filter(|written| isa.ops[written.op].mnemonic.starts_with("mov"));
    moves
        .filter_map(|written| match written.operands.as_slice() {
            [(Value::Register(register), _), (Value::Expression(Expression::Name(label)), _)]
                if register.to_string() == "le" =>
            {
                Some(label.clone())
            }
            _ => None,
        })
        .collect()
}

/// Widens bundles so that the next one starts at a multiple of `align` bytes, by as few bytes as can be.
fn widen(isa: &Isa, drafts: &mut [Draft], address: u32, align: u32) -> bool {
    let residues = align as usize;
    // Fewest bytes so far that end at each residue, and the format that the last bundle has there.
    let mut best: Vec<Vec<Option<(usize, usize)>>> = vec![vec![None; residues]; drafts.len() + 1];
    best[0][address as usize % residues] = Some((0, 0));
    for (index, draft) in drafts.iter().enumerate() {
        for residue in 0..residues {
            let Some((bytes, _)) = best[index][residue] else { continue };
            let mut width = 0;
            for &format in &draft.formats {
                let step = isa.formats[format].bytes;
                if step == width {
                    continue;
                }
                width = step;
                let next = &mut best[index + 1][(residue + step) % residues];
                if next.is_none_or(|(fewest, _)| bytes + step < fewest) {
                    *next = Some((bytes + step, format));
                }
            }
        }
    }
    let mut residue = 0;
    for index in (0..drafts.len()).rev() {
        let Some((_, format)) = best[index + 1][residue] else { return false };
        drafts[index].chosen = format;
        residue = (residue + 2 * residues - isa.formats[format].bytes % residues) % residues;
    }
    best[drafts.len()][0].is_some()
}
