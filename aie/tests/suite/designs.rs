//! Designs: what is wrong with one is one line that names the tile.

use kiln_aie::pack::array::{Channel, Tile};
use kiln_aie::pack::run::{self, Step};
use kiln_aie::pack::stream::{Connection, Port};
use kiln_aie::pack::{Buffer, Design, Dimension, Transfer};

const SHIM: Tile = Tile::new(0, 0);
const MEMORY: Tile = Tile::new(0, 1);
const CORE: Tile = Tile::new(0, 2);

fn buffer(address: u32, bytes: u32, empty: u8) -> Buffer {
    Buffer { tile: CORE, address, bytes, count: 1, empty, full: empty + 1 }
}

fn walk<const N: usize>(dimensions: [(u32, u32); N]) -> [Dimension; N] {
    dimensions.map(|(count, step)| Dimension { count, step })
}

fn error(describe: impl Fn(&mut Design)) -> String {
    let mut design = Design::new("test", 1);
    let argument = design.argument("a", 64);
    let held = design.buffer(buffer(0x100, 64, 0));
    design.run(CORE, "kernel");
    design.fill(held, 0, &[]);
    design.route(SHIM.output(0), CORE.input(0));
    design.send(SHIM.output(0), argument, 0, 64);
    design.pack(|_| Some(vec![1, 0])).unwrap_or_else(|error| panic!("{error}"));
    describe(&mut design);
    design.pack(|kernel| (kernel == "kernel").then(|| vec![1, 0])).err().unwrap_or_default()
}

#[test]
fn mistakes_are_named_with_their_tile() {
    let far = Tile::new(1, 2);
    let cases: [(&str, String); 24] = [
        ("a partition has 1 to 4 columns, not 5", error(|design| design.columns = 5)),
        ("core (1, 2) is outside of 1 columns and 6 rows", error(|design| design.run(far, "kernel"))),
        ("core (0, 6) is outside of 1 columns and 6 rows", error(|design| design.run(Tile::new(0, 6), "kernel"))),
        ("memory tile (0, 1) runs no program", error(|design| design.run(MEMORY, "kernel"))),
        ("core (0, 2) has two programs", error(|design| design.run(CORE, "kernel"))),
        ("there is no kernel other", error(|design| design.run(Tile::new(0, 3), "other"))),
        (
            "core (0, 2): the buffers at 0x100 and 0x13c overlap",
            error(|design| design.buffers.push(buffer(0x13C, 4, 2))),
        ),
        (
            "core (0, 2): 64 bytes at 0xffd0: words within 0x10000 bytes are a buffer",
            error(|design| design.buffers.push(buffer(0xFFD0, 64, 2))),
        ),
        (
            "core (0, 2): 6 bytes at 0x0: words within 0x10000 bytes are a buffer",
            error(|design| design.buffers.push(buffer(0, 6, 2))),
        ),
        ("core (0, 2) has no lock 16: 0 to 15", error(|design| design.buffers.push(buffer(0, 4, 15)))),
        ("core (0, 2): lock 1 is given twice", error(|design| design.buffers.push(buffer(0, 4, 1)))),
        (
            "output 0 of core (0, 2): the walk has 12 words up to word 11, the buffer 64 bytes",
            error(|design| design.drain(design.buffers[0], 0, &walk([(12, 1)]))),
        ),
        (
            "output 0 of core (0, 2): a descriptor has 4 dimensions, and at most 3 here",
            error(|design| {
                design.drain(design.buffers[0], 0, &walk([(2, 1), (2, 2), (2, 4), (2, 8)]));
                design.route(CORE.output(0), SHIM.input(0));
            }),
        ),
        (
            "output 0 of core (0, 2): the walk has 16 words up to word 30, the buffer 64 bytes",
            error(|design| design.drain(design.buffers[0], 0, &walk([(16, 2)]))),
        ),
        (
            "output 0 of core (0, 2): a descriptor's step less one is 8192, and at most 8191 here",
            error(|design| {
                let large = design.buffer(buffer(0x1000, 0xC000, 2));
                design.drain(large, 0, &walk([(1, 8193), (12288, 1)]));
                design.route(CORE.output(0), SHIM.input(0));
            }),
        ),
        ("input 0 of core (0, 2) has two tasks", error(|design| design.fill(design.buffers[0], 0, &[]))),
        ("there is no input 2 of core (0, 2)", error(|design| design.fill(design.buffers[0], 2, &[]))),
        (
            "input 0 of shim (0, 0) to input 0 of core (0, 2): a route goes from an output to an input",
            error(|design| design.route(SHIM.input(0), CORE.input(0))),
        ),
        (
            "output 0 of shim (0, 0) to input 0 of core (1, 2): a route goes from tile to tile of one column",
            error(|design| design.route(SHIM.output(0), far.input(0))),
        ),
        (
            "core (0, 2): dma 0 takes both south 0 and south 1",
            error(|design| design.route(SHIM.output(1), CORE.input(0))),
        ),
        (
            "output 0 of shim (0, 0): 32 bytes from 48 are no words of a, which has 64",
            error(|design| design.send(SHIM.output(0), 0, 48, 32)),
        ),
        ("input 0 of shim (0, 0): outputs send, inputs receive", error(|design| design.send(SHIM.input(0), 0, 0, 64))),
        ("output 1 of core (0, 2) has no route", error(|design| design.drain(design.buffers[0], 1, &[]))),
        ("output 1 of shim (0, 0) has no route", error(|design| design.send(SHIM.output(1), 0, 0, 64))),
    ];
    for (message, error) in cases {
        assert_eq!(error, message);
    }
}

/// A memory tile passes a stream on by the wire of the same number, so the whole way must be free.
#[test]
fn routes_pass_a_memory_tile_by_wires_of_one_number() {
    let mut design = Design::new("test", 1);
    design.route(MEMORY.output(0), CORE.input(0));
    design.route(SHIM.output(0), CORE.input(1));
    let hops: Vec<String> = design.connections[2..].iter().map(|hop| format!("{} -> {}", hop.from, hop.to)).collect();
    assert_eq!(hops, ["south 3 -> north 1", "south 1 -> north 1", "south 1 -> dma 1"]);

    design.connections.push(Connection { tile: MEMORY, from: Port::South(2), to: Port::North(3) });
    let error = design.pack(|_| None).err();
    assert_eq!(error.as_deref(), Some("memory tile (0, 1) cannot join south 2 to north 3"));
}

#[test]
fn descriptors_and_wires_run_out() {
    // A core has 16 descriptors for all its channels: one is taken.
    let ring = |count: u8| {
        error(|design| {
            let ring = design.buffer(Buffer { count, ..buffer(0x1000, 64, 2) });
            design.drain(ring, 0, &[]);
            design.route(CORE.output(0), SHIM.input(0));
        })
    };
    assert_eq!(ring(15), "");
    assert_eq!(ring(16), "output 0 of core (0, 2): core (0, 2) has no descriptor left");
    // A core has four wires down, and its own streams come behind those from above.
    let wires = |design: &mut Design| {
        for (input, (row, number)) in [(3, 0), (3, 1), (4, 0), (4, 1), (2, 0)].into_iter().enumerate() {
            design.route(Tile::new(0, row).output(number), MEMORY.input(input as u8));
        }
    };
    let message = "output 0 of core (0, 2) to input 4 of memory tile (0, 1): no wires are free";
    assert_eq!(error(wires), message);
}

/// Routes of one output share their way up to the tile where they part.
#[test]
fn one_output_is_led_to_many_inputs() {
    let mut design = Design::new("test", 1);
    (2..5).for_each(|row| design.route(MEMORY.output(0), Tile::new(0, row).input(0)));
    design.route(MEMORY.output(1), CORE.input(1));
    let hops: Vec<String> =
        design.connections.iter().map(|hop| format!("{}: {} -> {}", hop.tile.row, hop.from, hop.to)).collect();
    let expected = [
        "1: dma 0 -> north 0",
        "2: south 0 -> dma 0",
        "2: south 0 -> north 0",
        "3: south 0 -> dma 0",
        "3: south 0 -> north 0",
        "4: south 0 -> dma 0",
        "1: dma 1 -> north 1",
        "2: south 1 -> dma 1",
    ];
    assert_eq!(hops, expected);
}

#[test]
fn mistakes_of_rings_constants_and_transfers_are_named() {
    let transfer = Transfer {
        channel: SHIM.output(0),
        argument: 0,
        offset: 0,
        bytes: 16,
        walk: Vec::new(),
        times: 4,
        iteration: Some(Dimension { count: 4, step: 4 }),
    };
    let with = |change: &dyn Fn(&mut Transfer)| {
        let mut transfer = transfer.clone();
        change(&mut transfer);
        error(|design| design.transfer(transfer.clone()))
    };
    let ring = |count: u8, address: u32| Buffer { count, ..buffer(address, 0x1000, 2) };
    let cases: [(&str, String); 10] = [
        ("core (0, 2): a ring has 1 to 63 buffers, not 0", error(|design| design.buffers.push(ring(0, 0x2000)))),
        (
            "core (0, 2): 4096 bytes at 0x2000: words within 0x10000 bytes are a buffer",
            error(|design| design.buffers.push(ring(15, 0x2000))),
        ),
        ("core (0, 2): the buffers at 0x100 and 0x0 overlap", error(|design| design.buffers.push(ring(2, 0)))),
        (
            "core (0, 2): 2 words at 0x13c are not free memory of it",
            error(|design| design.constant(CORE, 0x13C, vec![1, 2])),
        ),
        (
            "output 0: rings in turn are of one tile and as long as each other",
            error(|design| design.drain_in_turn(&[ring(2, 0), ring(3, 0x8000)], 0, &[])),
        ),
        ("", with(&|_| {})),
        (
            "output 0 of shim (0, 0): 16 bytes from 4 are no words of a, which has 64",
            with(&|transfer| transfer.offset = 4),
        ),
        ("output 0 of shim (0, 0): a transfer moves 1 to 256 times", with(&|transfer| transfer.times = 257)),
        (
            "output 0 of shim (0, 0): a descriptor's iteration's count less one is 64, and at most 63 here",
            with(&|transfer| transfer.iteration = Some(Dimension { count: 65, step: 4 })),
        ),
        (
            "output 0 of shim (0, 0): the walk has 6 words, the transfer 16 bytes",
            with(&|transfer| transfer.walk = walk([(2, 1), (3, 2)]).to_vec()),
        ),
    ];
    for (message, error) in cases {
        assert_eq!(error, message);
    }
}

/// The steps of a run: a queue holds four, a shim has eight descriptors a direction, and a token frees what it is of.
#[test]
fn runs_wait_where_queues_and_descriptors_run_out() {
    let transfer = |channel: Channel| Transfer {
        channel,
        argument: 0,
        offset: 0,
        bytes: 4,
        walk: Vec::new(),
        times: 1,
        iteration: None,
    };
    let of = |channels: &[Channel]| -> String {
        let transfers: Vec<Transfer> = channels.iter().map(|channel| transfer(*channel)).collect();
        let steps = run::plan(&transfers).into_iter().map(|step| match step {
            Step::Start { descriptor, token, .. } => format!("{descriptor}{}", if token { "!" } else { "" }),
            Step::Wait(Channel { direction, number, .. }) => format!("{direction:?} {number}"),
        });
        steps.collect::<Vec<_>>().join(", ")
    };
    let (first, second, back) = (SHIM.output(0), SHIM.output(1), SHIM.input(0));
    assert_eq!(of(&[first, second, back]), "0, 1, 2!, Input 0");
    assert_eq!(of(&[first; 6]), "0!, 1!, 2, 3, Output 0, 0, Output 0, 1");
    // Another shim has its own.
    let other = Tile::new(1, 0).output(0);
    assert_eq!(of(&[first, first, first, first, other, first]), "0!, 1, 2, 3, 0, Output 0, 0");
    // Eight of one direction, though there are sixteen: the queues of both channels are full by then.
    let eight = [first, second].repeat(4);
    assert_eq!(of(&[eight, vec![back, second]].concat()), "0, 1!, 2, 3, 4, 5, 6, 7, 8!, Output 1, 1, Input 0");
}
