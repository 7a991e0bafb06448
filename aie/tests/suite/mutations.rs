//! The tests' own test: with one bit of an opcode, one place of an operand or one stage changed, something fails.

use std::collections::BTreeSet;

use kiln_aie::isa::{Isa, Kind};
use kiln_aie::timing::Timing;

use crate::distances::distances;
use crate::kernels::kernels;
use crate::vectors::vectors;

/// Whether a vector of this instruction fails.
fn vectors_refute(isa: &Isa, mnemonic: &str) -> bool {
    let named = |text: &str| text.split(" ; ").any(|part| part.split(' ').next() == Some(mnemonic));
    vectors().iter().any(|vector| named(vector.text) && vector.refute(isa).is_some())
}

#[test]
fn every_opcode_bit_is_held_by_a_vector() {
    let isa = Isa::aie2();
    for index in 0..isa.ops.len() {
        for bit in (0..42).filter(|bit| isa.ops[index].mask >> bit & 1 == 1) {
            let mut mutant = isa.clone();
            mutant.ops[index].value ^= 1 << bit;
            let op = &isa.ops[index];
            assert!(vectors_refute(&mutant, &op.mnemonic), "{} {}: bit {bit}", op.slot.name(), op.mnemonic);
        }
    }
}

#[test]
fn every_place_of_an_operand_is_held_by_a_vector() {
    let isa = Isa::aie2();
    let mut missed = Vec::new();
    for index in 0..isa.ops.len() {
        let op = &isa.ops[index];
        for first in 0..op.operands.len() {
            for second in first + 1..op.operands.len() {
                if op.operands[first].places.len() != op.operands[second].places.len() {
                    continue;
                }
                let mut mutant = isa.clone();
                let places = mutant.ops[index].operands[first].places.clone();
                mutant.ops[index].operands[first].places = mutant.ops[index].operands[second].places.clone();
                mutant.ops[index].operands[second].places = places;
                if !vectors_refute(&mutant, &op.mnemonic) {
                    missed.push(format!("{}: operands {first} and {second}", op.mnemonic));
                }
            }
            if let Kind::Immediate { scale, .. } = op.operands[first].kind
                && scale > 1
            {
                let mut mutant = isa.clone();
                if let Kind::Immediate { scale, .. } = &mut mutant.ops[index].operands[first].kind {
                    *scale *= 2;
                }
                assert!(vectors_refute(&mutant, &op.mnemonic), "{}: scale", op.mnemonic);
            }
        }
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

#[test]
fn every_format_is_held_by_a_vector() {
    let isa = Isa::aie2();
    for index in 0..isa.formats.len() {
        let mut mutant = isa.clone();
        mutant.formats.remove(index);
        assert!(vectors().iter().any(|v| v.refute(&mutant).is_some()), "format {:?}", isa.formats[index]);
    }
}

/// Whether a distance fails when an effect of a timing is changed.
fn distances_refute(isa: &Isa, timing: &str, change: impl Fn(&mut Timing)) -> bool {
    let mut mutant = isa.clone();
    let timings = mutant.ops.iter_mut().map(|op| &mut op.timing).chain(&mut mutant.timings);
    timings.filter(|known| known.name == timing).for_each(change);
    distances().iter().any(|distance| distance.refute(&mutant).is_some())
}

#[test]
fn every_latency_that_the_kernels_lean_on_is_held_by_a_distance() {
    let isa = Isa::aie2();
    let instructions = kernels(&isa).into_iter().flat_map(|(_, program)| program.bundles);
    let used: BTreeSet<String> =
        instructions.flat_map(|p| p.bundle.instructions).map(|i| isa.op(&i).timing.name.clone()).collect();
    let mut missed = Vec::new();
    for name in &used {
        let timing = isa.timings.iter().find(|timing| timing.name == *name).expect("a timing").clone();
        for (index, write) in timing.writes.iter().enumerate().filter(|(_, write)| write.stage > 1) {
            if !distances_refute(&isa, name, |timing| timing.writes[index].stage -= 1) {
                missed.push(format!("{name}: {} written in stage {}", write.target, write.stage));
            }
        }
        for (index, read) in timing.reads.iter().enumerate().filter(|(_, read)| read.stage > 1) {
            if !distances_refute(&isa, name, |timing| timing.reads[index].stage += 1) {
                missed.push(format!("{name}: {} read in stage {}", read.target, read.stage));
            }
        }
        if timing.memory.is_some()
            && !distances_refute(&isa, name, |timing| timing.memory = timing.memory.map(|m| m - 1))
        {
            missed.push(format!("{name}: memory"));
        }
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

#[test]
fn lock_stages_are_held_by_distances() {
    let isa = Isa::aie2();
    let refuted = |mutant: &Isa| distances().iter().any(|distance| distance.refute(mutant).is_some());
    for change in [-1i32, 1] {
        let (mut stall, mut resume) = (isa.clone(), isa.clone());
        stall.machine.lock_stall = stall.machine.lock_stall.saturating_add_signed(change);
        resume.machine.lock_resume = resume.machine.lock_resume.saturating_add_signed(change);
        assert!(refuted(&stall) && refuted(&resume), "{change}");
    }
}
