//! What the tests share.

#![allow(dead_code)]

use gfx11::cache::{Caches, Ctx};
use gfx11::decode::decode;
use gfx11::fault::What;
use gfx11::float::Mode;
use gfx11::isa::isa;
use gfx11::lds::Lds;
use gfx11::memory::Memory;
use gfx11::program::Program;
use gfx11::wave::{State, Wave};

/// A file of tests/data that was compressed.
pub fn inflate(bytes: &[u8]) -> String {
    let bytes = miniz_oxide::inflate::decompress_to_vec_zlib(bytes).unwrap();
    String::from_utf8(bytes).unwrap()
}

/// Dwords of a hex string, eight digits each.
pub fn words(hex: &str) -> Vec<u32> {
    (0..hex.len() / 8).map(|i| u32::from_str_radix(&hex[8 * i..8 * i + 8], 16).unwrap()).collect()
}

/// An instruction of that mnemonic from its fields; the first encoding of `encoding` that has it.
pub fn assemble(encoding: &str, name: &str, fields: &[(&str, u32)]) -> Vec<u32> {
    let opcode = isa().opcodes.values().find(|o| o.encoding == encoding && o.name == name);
    let opcode = opcode.unwrap_or_else(|| panic!("{encoding} has no {name}"));
    let encoding = &isa().encodings[encoding];
    let mut bits = encoding.value as u128;
    let mut literal = None;
    for (field, value) in [("op", opcode.number)].iter().chain(fields) {
        if *field == "literal" {
            literal = Some(*value);
            continue;
        }
        let f = encoding.field(field).unwrap_or_else(|| panic!("{name} has no field {field}"));
        bits |= (*value as u128) << f.low;
    }
    let mut code: Vec<u32> = (0..encoding.dwords).map(|i| (bits >> (32 * i)) as u32).collect();
    code.extend(literal);
    assert_eq!(decode(&code, 0).unwrap().opcode.name, name);
    code
}

/// The code's `s_endpgm`.
pub const END: u32 = 0xbfb0_0000;

/// Runs one wave to the end of its code, without any workgroup.
pub fn run(code: &[u32], wave: &mut Wave, lds: &mut Lds, memory: &Memory) -> Result<(), What> {
    let program = Program::new(code).map_err(|fault| fault.what)?;
    let mut caches = Caches::new(1);
    let mut ctx = Ctx { lds, caches: &mut caches, pair: 0, memory, user: None, defer: 0 };
    while wave.state != State::Ended {
        wave.state = State::Running;
        program.step(wave, &mut ctx)?;
    }
    Ok(())
}

/// A wave with all lanes and nothing else.
pub fn wave() -> Wave {
    Wave::new(0, 0, false, u32::MAX as u64, Mode::RADV, 1)
}

/// Numbers of chance from a seed.
pub struct Random(pub u64);

impl Random {
    /// The next.
    pub fn next(&mut self) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as u32
    }
}
