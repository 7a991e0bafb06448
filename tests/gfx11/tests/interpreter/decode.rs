//! Words against the mnemonics that LLVM gives them.

use crate::common::{END, Random, assemble, inflate, run, words};
use gfx11::decode::{Variant, decode};
use gfx11::float::Mode;
use gfx11::isa::isa;
use gfx11::lds::Lds;
use gfx11::memory::Memory;
use gfx11::program::Program;
use gfx11::wave::Wave;

/// LLVM's name without the suffix of its encoding.
fn base(name: &str) -> String {
    let one = |name: &str| {
        let mut name = name;
        for suffix in ["_dpp", "_e32", "_e64"] {
            name = name.strip_suffix(suffix).unwrap_or(name);
        }
        name.to_string()
    };
    name.split('+').map(one).collect::<Vec<_>>().join("+")
}

fn compare(text: &str) -> usize {
    for line in text.lines() {
        let (name, hex) = line.split_once(' ').unwrap();
        let code = words(hex);
        let inst = decode(&code, 0).unwrap_or_else(|e| panic!("{line}: {e}"));
        assert_eq!(inst.name(), base(name), "{line}");
        assert_eq!(inst.dwords, code.len(), "{line}");
        // LLVM says so of all but compares.
        assert!(inst.variant != Variant::Plain || !name.ends_with("_dpp"), "{line}");
    }
    text.lines().count()
}

/// Three words of each form that RADV 25.0.7 emits for Kiln's kernels on gfx1103, with LLVM 19's mnemonics.
#[test]
fn words_of_all_kernels_have_llvms_mnemonics() {
    assert_eq!(compare(&inflate(include_bytes!("../data/words.txt.z"))), 1977);
}

/// Words with fields of chance, four of each mnemonic that LLVM 19 finds in them for gfx1103 or gfx1150.
#[test]
fn words_of_chance_have_llvms_mnemonics() {
    let text = inflate(include_bytes!("../data/chance.txt.z"));
    assert_eq!(compare(&text), 3240);
}

/// Each opcode of the table comes back from its own number.
#[test]
fn every_opcode_decodes_to_itself() {
    for opcode in isa().opcodes.values().filter(|o| o.encoding != "VOPD") {
        let literal: &[(&str, u32)] = if opcode.literal { &[("literal", 7)] } else { &[] };
        let code = assemble(opcode.encoding, opcode.name, literal);
        let inst = decode(&code, 0).unwrap();
        assert_eq!((inst.encoding(), inst.opcode.number), (opcode.encoding, opcode.number));
    }
}

#[test]
fn what_is_unknown_is_refused_by_name_and_word() {
    let why = |word: u32| decode(&[word, 0, 0], 0).unwrap_err().to_string();
    assert_eq!(why(0xf000_0000), "word f0000000 at 0x0: MIMG is not for compute");
    assert_eq!(why(0xf800_0000), "word f8000000 at 0x0: EXP is not for compute");
    assert_eq!(why(0xce00_0000), "word ce000000 at 0x0: LDSDIR is not for compute");
    assert_eq!(why(0xbe80_7f00), "word be807f00 at 0x0: SOP1 has no opcode 127");
    assert_eq!(why(0x7e00_02d5), "word 7e0002d5 at 0x0: v_mov_b32 src0: a reserved source (213)");
    assert_eq!(why(0xca00_0000 | 15 << 22), "word cbc00000 at 0x0: VOPD has no opcode 15");
    assert_eq!(decode(&[0xbe80_00ff], 0).unwrap_err().why, "s_mov_b32 is cut short");
}

/// Every opcode with fields of chance, in waves of both sizes where all registers were written: a result or a fault, never a panic.
#[test]
fn no_fields_of_chance_make_a_panic() {
    let mut random = Random(41);
    let mut memory = Memory::default();
    memory.add_words("low", 0, &[0; 64]);
    let mut names: Vec<_> = isa().opcodes.iter().collect();
    names.sort_by_key(|(key, _)| **key);
    let mut ran = 0;
    for ((encoding, number), opcode) in names {
        // Jumps run on for ever.
        if ["branch", "setpc", "swappc", "call", "barrier"].iter().any(|n| opcode.name.contains(n)) {
            continue;
        }
        let layout = &isa().encodings[encoding];
        let op = layout.field(if *encoding == "VOPD" { "opx" } else { "op" }).unwrap();
        for round in 0..60 {
            let mut code: Vec<u32> = (0..4).map(|_| random.next()).collect();
            let mask = layout.mask | (u32::MAX >> (31 - (op.high - op.low))) << op.low;
            code[0] = code[0] & !mask | layout.value | number << op.low;
            let Ok(inst) = decode(&code, 0) else { continue };
            code.truncate(inst.dwords);
            code.push(END);
            let mut w = Wave::new(0, 0, round % 2 == 1, u64::MAX, Mode::RADV, 1);
            let registers = (0..w.halves).flat_map(|half| (0..256).map(move |r| (half, r)));
            registers.for_each(|(half, r)| w.set_v(half, r, std::array::from_fn(|_| random.next() % 300)));
            (0..128).filter(|r| ![124, 126, 127].contains(r)).for_each(|r| w.set_s(r, random.next() % 64));
            (w.scc, w.scc_poison) = (true, false);
            ran += run(&code, &mut w, &mut Lds::new(1024), &memory).is_ok() as u32;
        }
    }
    assert!(ran > 10_000, "{ran}");
}

/// Every opcode of Kiln's kernels on gfx1103, gfx1150 and gfx1151 is executed, not only decoded.
#[test]
fn every_opcode_of_the_kernels_is_executed() {
    let mut count = 0;
    for line in include_str!("../data/opcodes.txt").lines() {
        let (encoding, name) = line.split_once(' ').unwrap();
        let opcode = isa().opcodes.values().find(|o| o.encoding == encoding && o.name == name).unwrap();
        let mut fields = if opcode.literal { vec![("literal", 7)] } else { vec![] };
        match (encoding, name) {
            // A VOPD pair has this opcode in either slot that may have it, v_dual_mov_b32 in the other.
            ("VOPD", _) => {
                let (x, y) = if opcode.slots[0] { (opcode.number, 8) } else { (8, opcode.number) };
                let code = [0xc800_0000 | x << 22 | y << 17 | 256, 256, 7, END];
                let code = if opcode.literal { code.to_vec() } else { [code[0], code[1], END].to_vec() };
                Program::new(&code).unwrap_or_else(|fault| panic!("{line}: {fault}"));
                count += 1;
                continue;
            }
            ("VOP3P", _) if name.contains("wmma") => fields.extend([("src0", 256), ("src1", 264), ("src2", 272)]),
            ("SOPP", "s_sendmsg") => fields.push(("simm16", 3)),
            _ => {}
        }
        let code = [assemble(encoding, name, &fields), vec![END]].concat();
        Program::new(&code).unwrap_or_else(|fault| panic!("{line}: {fault}"));
        count += 1;
    }
    assert_eq!(count, 233);
}
