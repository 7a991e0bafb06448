//! What has no meaning on the array is a fault that says so.

use kiln_aie::pack::command::Command;
use kiln_aie::pack::sequence::{self, Operation};
use kiln_aie::pack::{Tile, image};

use crate::machine::Fault;
use crate::program::{Program, matmul, vector_add};

/// What comes of a program with other commands.
fn fault(program: &Program, change: impl Fn(&mut Vec<Command>)) -> Fault {
    let packed = program.pack();
    let mut commands = packed.configuration.clone();
    change(&mut commands);
    let mut machine = program.machine();
    let loaded = machine.load_image(&image::pack(&commands));
    loaded.and_then(|()| program.exercise(&mut machine, &packed.sequence)).expect_err("a fault")
}

fn changed(commands: &mut [Command], register: u32, new: u32) {
    let mut found = false;
    for command in commands {
        if let Command::Write { address, value } = command
            && *address == register
        {
            (*value, found) = (new, true);
        }
    }
    assert!(found, "no command writes {register:#x}");
}

fn change_word(commands: &mut [Command], start: u32, index: usize, change: impl Fn(u32) -> u32) {
    let mut blocks = commands.iter_mut().filter_map(|command| match command {
        Command::Block { address, words } if *address == start => Some(words),
        _ => None,
    });
    let words = blocks.next().expect("a block");
    words[index] = change(words[index]);
}

#[test]
fn faults_are_named() {
    let (add, product) = (vector_add(1), matmul(1));
    let cases: [(&str, Fault); 10] = [
        ("deadlock: core (0, 2) for lock 52", fault(&product, |commands| changed(commands, 0x21F040, 0))),
        (
            "lock 1 is released to ",
            fault(&product, |commands| change_word(commands, 0x21D000, 5, |word| word | 63 << 18)),
        ),
        ("no master takes them", fault(&add, |commands| changed(commands, 0x3F030, 0))),
        (
            "the switch does not join South(0) to North(1)",
            fault(&add, |commands| changed(commands, 0x1B0030, 0x8000_0007)),
        ),
        ("which is not enabled", fault(&add, |commands| changed(commands, 0x3F114, 0))),
        ("packets are not modelled", fault(&add, |commands| changed(commands, 0x3F114, 0xC000_0000))),
        (
            "south 2 of the shim leads out of the model",
            fault(&add, |commands| {
                commands.retain(|command| !matches!(command, Command::MaskWrite { address: 0x1F004, .. }))
            }),
        ),
        (
            "descriptor 0 is not valid",
            fault(&product, |commands| change_word(commands, 0x1A0000, 7, |word| word & !(1 << 31))),
        ),
        (
            "a neighbour's memory",
            fault(&product, |commands| change_word(commands, 0x1A0000, 1, |word| word & !0x20000)),
        ),
        (
            "memory that nothing has written",
            fault(&product, |commands| change_word(commands, 0x1A0020, 1, |word| word + 0x10000)),
        ),
    ];
    for (message, fault) in cases {
        assert!(fault.contains(message), "{message:?}: {fault}");
    }
}

#[test]
fn packed_files_are_checked() {
    let program = vector_add(1);
    let packed = program.pack();
    let load = |image: &[u8]| program.machine().load_image(image).expect_err("a fault");
    let mut image = packed.image.clone();
    image[0x24] ^= 1;
    assert_eq!(load(&image), "the table's check sum is wrong");
    assert!(load(&packed.image[..packed.image.len() - 32]).starts_with("the file ends at"));
    let mut machine = program.machine();
    machine.load_image(&packed.image).expect("an image");
    let cut = &packed.sequence[..packed.sequence.len() - 4];
    assert_eq!(machine.run(cut), Err("the stream has another length".into()));
}

/// What comes of the product with another stream.
fn fault_of_stream(change: impl Fn(&mut Vec<Operation>)) -> Result<(), Fault> {
    let program = matmul(1);
    let packed = program.pack();
    let mut operations = packed.operations.clone();
    change(&mut operations);
    let mut machine = program.machine();
    machine.load_image(&packed.image)?;
    program.exercise(&mut machine, &sequence::pack(1, &operations))
}

/// A descriptor of the shim that sends a word of the first argument, or of whatever its address is.
fn word_sent(number: u8, next: Option<u32>) -> [Operation; 2] {
    let address = Tile::new(0, 0).descriptor(number);
    let chain = next.map_or(0, |next| next << 27 | 1 << 26);
    let words = vec![1, 0, 0, 0, 2 << 30, 0, 0, 1 << 25 | chain];
    [Operation::Block { address, words }, Operation::Patch { address: address + 4, argument: 0, offset: 0 }]
}

#[test]
fn what_real_arrays_may_not_bear_is_a_fault() {
    let output = Tile::new(0, 0).output(1);
    let start = |descriptor: u32| Operation::Write { address: output.queue(), value: descriptor };
    let with_token = |descriptor: u32| Operation::Write { address: output.queue(), value: 1 << 31 | descriptor };
    // The stream as it is sends B on this output, by descriptor 1.
    assert_eq!(fault_of_stream(|_| ()), Ok(()));
    let cases: [(&str, Result<(), Fault>); 5] = [
        (
            "output 1 has 4 tasks that are not known to be done, and gets another",
            fault_of_stream(|operations| {
                operations.extend(word_sent(9, None));
                operations.extend((0..4).map(|_| start(9)));
            }),
        ),
        (
            "descriptor 1 is rewritten while output 1 is not known to be done with it",
            fault_of_stream(|operations| operations.extend(word_sent(1, None))),
        ),
        (
            "outputs use more than 8 descriptors in a run",
            fault_of_stream(|operations| {
                (3..10).for_each(|number| operations.extend(word_sent(number, (number < 9).then_some(number.into()))));
                // A chain of seven, and the two that the stream uses anyway.
                (3..9).for_each(|number| operations.extend(word_sent(number, Some(u32::from(number) + 1))));
                operations.push(start(3));
            }),
        ),
        (
            "descriptor 1 has an absolute address, not that of an argument",
            fault_of_stream(|operations| {
                let patch = |operation: &Operation| matches!(operation, Operation::Patch { argument: 1, .. });
                operations.retain(|operation| !patch(operation));
                let absolute = operations.iter_mut().filter_map(|operation| match operation {
                    Operation::Block { words, .. } => Some(words),
                    _ => None,
                });
                // Where the model's host has the buffer: nothing else would be wrong.
                absolute.skip(1).take(1).for_each(|words| (words[1], words[2]) = (0x1000, 2));
            }),
        ),
        (
            "an argument's address is put at 0x1d008, where no shim's descriptor has one",
            fault_of_stream(|operations| {
                operations.insert(0, Operation::Patch { address: 0x1D008, argument: 0, offset: 0 });
            }),
        ),
    ];
    for (message, outcome) in cases {
        let fault = outcome.expect_err(message);
        assert!(fault.contains(message), "{message:?}: {fault}");
    }
    // A token waited for makes room in the queue, and the descriptor free.
    let outcome = fault_of_stream(|operations| {
        let sends_b = operations.iter().position(|operation| *operation == start(1)).expect("a start");
        operations[sends_b] = with_token(1);
        operations.push(Operation::Wait { channel: output });
        operations.extend(word_sent(1, None));
    });
    assert_eq!(outcome, Ok(()));
    // And one of another channel does not.
    let fault = fault_of_stream(|operations| operations.extend(word_sent(0, None))).expect_err("a fault");
    assert!(fault.contains("descriptor 0 is rewritten while output 0"), "{fault}");
}
