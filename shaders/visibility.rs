//! Shared memory in the SPIR-V that glslang makes, ordered by barriers alone.
//!
//! GLSL's shared variables are coherent: in the Vulkan memory model glslang makes each access of them available or visible by
//! itself, and leaves that out of the barriers. RADV makes of each such access a wait for all that came before it. Here barriers
//! make available and visible, and accesses are merely not private to their invocation. What lies between two barriers may then
//! be in any order, which is all that Kiln's shaders count on.

use std::collections::{HashMap, HashSet};

const MEMORY_MODEL: u32 = 14;
const TYPE_POINTER: u32 = 32;
const CONSTANT: u32 = 43;
const FUNCTION: u32 = 54;
const LOAD: u32 = 61;
const STORE: u32 = 62;
const CONTROL_BARRIER: u32 = 224;
const MEMORY_BARRIER: u32 = 225;
const MATRIX_LOAD: u32 = 4457;
const MATRIX_STORE: u32 = 4458;
/// Instructions that make pointers: parameters, variables, access chains and copies.
const POINTERS: [u32; 5] = [55, 59, 65, 66, 83];

const VULKAN: u32 = 3;
const WORKGROUP: u32 = 4;

/// Memory operands.
const ALIGNED: u32 = 0x2;
const MAKE_POINTER_AVAILABLE: u32 = 0x8;
const MAKE_POINTER_VISIBLE: u32 = 0x10;

/// Memory semantics.
const ACQUIRE: u32 = 0x2 | 0x8;
const RELEASE: u32 = 0x4 | 0x8;
const WORKGROUP_MEMORY: u32 = 0x100;
const MAKE_AVAILABLE: u32 = 0x2000;
const MAKE_VISIBLE: u32 = 0x4000;

/// The words of a header.
const HEADER: usize = 5;
/// Where in it one more than the largest id stands.
const BOUND: usize = 3;

/// A module whose barriers make shared memory available and visible, and whose accesses do not. One of another memory model is
/// as it was.
///
/// # Panics
/// On what glslang does not make: a cut instruction, semantics that are no constant.
pub fn by_barriers(words: &[u32]) -> Vec<u32> {
    let (mut types, mut pointers, mut constants) = (HashSet::new(), HashSet::new(), HashMap::new());
    let mut model = None;
    for instruction in instructions(words) {
        match (opcode(instruction), &instruction[1..]) {
            (MEMORY_MODEL, [_, of]) => model = Some(*of),
            (TYPE_POINTER, [id, WORKGROUP, _]) => drop(types.insert(*id)),
            (CONSTANT, [kind, id, value]) => drop(constants.insert(*id, (*kind, *value))),
            (of, [kind, id, ..]) if POINTERS.contains(&of) && types.contains(kind) => drop(pointers.insert(*id)),
            _ => {}
        }
    }
    if model != Some(VULKAN) {
        return words.to_vec();
    }
    let mut bound = words[BOUND];
    let mut added: Vec<u32> = Vec::new();
    let mut semantics = HashMap::new();
    let mut out = words[..HEADER].to_vec();
    let mut functions = None;
    for instruction in instructions(words) {
        let mut instruction = instruction.to_vec();
        // Where the pointer stands, where the memory operands begin, and where semantics stand.
        let (pointer, operands, semantic) = match opcode(&instruction) {
            LOAD => (3, 4, None),
            STORE => (1, 3, None),
            MATRIX_LOAD => (3, 6, None),
            MATRIX_STORE => (1, 5, None),
            CONTROL_BARRIER => (0, 0, Some(3)),
            MEMORY_BARRIER => (0, 0, Some(2)),
            of => {
                if of == FUNCTION && functions.is_none() {
                    functions = Some(out.len());
                }
                out.extend(instruction);
                continue;
            }
        };
        if let Some(at) = semantic {
            let (kind, value) = constants[&instruction[at]];
            instruction[at] = *semantics.entry(value).or_insert_with(|| {
                let id = bound;
                bound += 1;
                added.extend([4 << 16 | CONSTANT, kind, id, with_visibility(value)]);
                id
            });
        } else if pointers.contains(&instruction[pointer]) && instruction.len() > operands {
            let mask = instruction[operands];
            let scopes = operands + 1 + usize::from(mask & ALIGNED != 0);
            let count = (mask & (MAKE_POINTER_AVAILABLE | MAKE_POINTER_VISIBLE)).count_ones() as usize;
            instruction.drain(scopes..scopes + count);
            instruction[operands] = mask & !(MAKE_POINTER_AVAILABLE | MAKE_POINTER_VISIBLE);
            instruction[0] = (instruction.len() as u32) << 16 | opcode(&instruction);
        }
        out.extend(instruction);
    }
    out[BOUND] = bound;
    let functions = functions.expect("a module has a function");
    out.splice(functions..functions, added);
    out
}

/// Semantics of shared memory with what makes it available, or visible, as they order it.
fn with_visibility(semantics: u32) -> u32 {
    let if_ordered = |order: u32, flag: u32| if semantics & order != 0 { flag } else { 0 };
    match semantics & WORKGROUP_MEMORY {
        0 => semantics,
        _ => semantics | if_ordered(RELEASE, MAKE_AVAILABLE) | if_ordered(ACQUIRE, MAKE_VISIBLE),
    }
}

fn opcode(instruction: &[u32]) -> u32 {
    instruction[0] & 0xffff
}

fn instructions(words: &[u32]) -> impl Iterator<Item = &[u32]> {
    let mut rest = &words[HEADER..];
    std::iter::from_fn(move || {
        let length = (rest.first()? >> 16) as usize;
        let (instruction, behind) = rest.split_at(length);
        rest = behind;
        Some(instruction)
    })
}
