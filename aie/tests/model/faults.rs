//! What has no meaning on the array is a fault that says so.

use kiln_aie::pack::command::Command;
use kiln_aie::pack::image;

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
