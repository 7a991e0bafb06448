//! The tests' own test: a packed program with one thing changed is wrong on the model, or does not run.

use std::collections::BTreeSet;

use kiln_aie::isa::Isa;
use kiln_aie::pack::command::Command;
use kiln_aie::pack::sequence::Operation;
use kiln_aie::pack::{image, sequence};

use crate::machine::Fault;
use crate::program::{Program, code, matmul, read_sum, vector_add};

/// Whether the program still does what it should with other commands or another stream.
fn run(program: &Program, commands: &[Command], sequence: &[u8]) -> Result<(), Fault> {
    let mut machine = program.machine();
    machine.load_image(&image::pack(commands))?;
    program.exercise(&mut machine, sequence)
}

/// Commands that write what a register holds after its reset anyway, and those that touch a register and leave it.
fn changes_nothing(command: &Command, program: &Program) -> bool {
    let reset_of_cores =
        |address: &u32| program.design.programs.iter().any(|(tile, _)| tile.address(0x32000) == *address);
    match command {
        Command::MaskWrite { mask: 0, .. } => true,
        Command::MaskWrite { address, mask: 2, .. } => reset_of_cores(address),
        Command::Write { address, value: 0 } => {
            program.design.locks().any(|(tile, lock, _)| tile.lock(lock) == *address)
        }
        _ => false,
    }
}

#[test]
fn every_command_is_needed() {
    for program in [vector_add(1), matmul(1), read_sum(1)] {
        let packed = program.pack();
        for index in 0..packed.configuration.len() {
            let mut commands = packed.configuration.clone();
            let command = commands.remove(index);
            if !changes_nothing(&command, &program) {
                let outcome = run(&program, &commands, &packed.sequence);
                assert!(outcome.is_err(), "{}: without {command:x?} all is the same", program.design.name);
            }
        }
    }
}

/// Every route, descriptor, lock, queue and multiplexer: each bit that is 1.
#[test]
fn every_bit_of_the_configuration_is_needed() {
    for program in [vector_add(1), matmul(1)] {
        let packed = program.pack();
        for index in 0..packed.configuration.len() {
            if changes_nothing(&packed.configuration[index], &program) {
                continue;
            }
            let words = match &packed.configuration[index] {
                Command::Write { value, .. } => vec![*value],
                Command::MaskWrite { value, .. } => vec![*value],
                // Programs are the next test's.
                Command::Block { words, .. } if words.len() > 8 => continue,
                Command::Block { words, .. } => words.clone(),
            };
            for (word, bit) in (0..words.len()).flat_map(|word| (0..32).map(move |bit| (word, bit))) {
                if words[word] >> bit & 1 == 0 {
                    continue;
                }
                let mut commands = packed.configuration.clone();
                match &mut commands[index] {
                    Command::Write { value, .. } | Command::MaskWrite { value, .. } => *value ^= 1 << bit,
                    Command::Block { words, .. } => words[word] ^= 1 << bit,
                }
                let outcome = run(&program, &commands, &packed.sequence);
                assert!(outcome.is_err(), "{}: bit {bit} of {:x?}", program.design.name, packed.configuration[index]);
            }
        }
    }
}

/// A master port that takes the words of another route's slave port.
#[test]
fn every_turned_route_is_caught() {
    for program in [vector_add(1), matmul(1), read_sum(1)] {
        let packed = program.pack();
        let connections = &program.design.connections;
        let master = |index: usize| connections[index].commands().expect("ports")[0].clone();
        for (mine, theirs) in
            (0..connections.len()).flat_map(|mine| (0..connections.len()).map(move |other| (mine, other)))
        {
            let (Command::Write { address, value }, Command::Write { value: turned, .. }) =
                (master(mine), master(theirs))
            else {
                panic!("a switch is written")
            };
            if connections[mine].tile != connections[theirs].tile || value == turned {
                continue;
            }
            let mut commands = packed.configuration.clone();
            let place = commands.iter().position(|command| *command == Command::write(address, value));
            commands[place.expect("the route")] = Command::write(address, turned);
            let outcome = run(&program, &commands, &packed.sequence);
            let (to, from) = (connections[mine], connections[theirs].from);
            assert!(outcome.is_err(), "{}: {to:?} from {from}", program.design.name);
        }
    }
}

/// Turned bits that change nothing that is read.
const HARMLESS: [&str; 5] = [
    // It moves the pointer as it should and loads half a vector, which the next load replaces before it is read.
    "matmul_bf16: ldb paddb: bit 6",
    // `ne` for `ltu`: the number of a block in its panel goes up to 3, so that it is not 3 where it is less.
    "matmul_bf16: alu ltu: bit 3",
    // A jump where r0 is 0, which it always is.
    "read_sum: lng j: bit 2",
    // It moves the pointer from the header's first word to the second, which the next load then finds without an offset.
    "read_sum: lda lda: bit 10",
    // Sums begin with 0, whose halves are 0 too.
    "read_sum: mv vbcst.32: bit 17",
];

/// The kernels with a wrong opcode: assembled by a table in which a bit of one instruction is turned, run by the right
/// one.
#[test]
fn every_turned_bit_of_an_opcode_is_caught() {
    let isa = Isa::aie2();
    let mut missed = Vec::new();
    for program in [vector_add(1), matmul(1), read_sum(1)] {
        let (_, kernel) = program.design.programs[0];
        let code_of = |isa: &Isa| code(isa, kernel).expect("a kernel");
        let bundles = kiln_aie::disassemble::decode(&isa, &code_of(&isa)).expect("a program");
        let used: BTreeSet<usize> =
            bundles.iter().flat_map(|(_, bundle)| bundle.instructions.iter().map(|i| i.op)).collect();
        let sequence = program.pack().sequence;
        // What does nothing is left out: its bits are the vectors' of tests/suite.
        for op in used.into_iter().filter(|op| !isa.ops[*op].is_nop()) {
            for bit in (0..42).filter(|bit| isa.ops[op].mask >> bit & 1 == 1) {
                let mut turned = isa.clone();
                turned.ops[op].value ^= 1 << bit;
                let packed = program.design.pack(|_| Some(code_of(&turned))).expect("a design");
                let name = format!("{kernel}: {} {}: bit {bit}", isa.ops[op].slot.name(), isa.ops[op].mnemonic);
                if run(&program, &packed.configuration, &sequence).is_ok() && !HARMLESS.contains(&name.as_str()) {
                    missed.push(name);
                }
            }
        }
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

#[test]
fn every_operation_of_the_stream_is_needed() {
    for program in [vector_add(1), matmul(1), read_sum(1)] {
        let packed = program.pack();
        for index in 0..packed.operations.len() {
            let mut operations = packed.operations.clone();
            let operation = operations.remove(index);
            let sequence = sequence::pack(program.design.columns, &operations);
            let outcome = run(&program, &packed.configuration, &sequence);
            assert!(outcome.is_err(), "{}: without {operation:x?} all is the same", program.design.name);
        }
    }
}

/// Addresses, values and descriptors of the stream: each bit that is 1.
#[test]
fn every_bit_of_the_stream_is_needed() {
    let program = matmul(1);
    let packed = program.pack();
    for index in 0..packed.operations.len() {
        let turned = |word: usize, bit: u32| -> Option<Operation> {
            let mut operation = packed.operations[index].clone();
            let turn = |value: &mut u32| {
                let set = *value >> bit & 1 == 1;
                *value ^= 1 << bit;
                set
            };
            let set = match (&mut operation, word) {
                (
                    Operation::Write { address, .. }
                    | Operation::Block { address, .. }
                    | Operation::Patch { address, .. },
                    0,
                ) => turn(address),
                (Operation::Write { value, .. }, 1) => turn(value),
                (Operation::Patch { argument, .. }, 1) => turn(argument),
                // Bits 31 and 30 of a shim's fifth word are the length of bursts, which changes times alone.
                (Operation::Block { words, .. }, 1..9) if (word, bit) != (5, 31) => turn(&mut words[word - 1]),
                _ => false,
            };
            set.then_some(operation)
        };
        for (word, bit) in (0..9).flat_map(|word| (0..32).map(move |bit| (word, bit))) {
            let Some(operation) = turned(word, bit) else { continue };
            let mut operations = packed.operations.clone();
            operations[index] = operation.clone();
            let sequence = sequence::pack(program.design.columns, &operations);
            let outcome = run(&program, &packed.configuration, &sequence);
            assert!(outcome.is_err(), "bit {bit} of word {word}: {operation:x?} for {:x?}", packed.operations[index]);
        }
    }
}
