//! The packer against words of independent source: descriptors, streams, operations, images, containers.

use kiln_aie::pack::array::Tile;
use kiln_aie::pack::command::Command;
use kiln_aie::pack::container::{self, Contents};
use kiln_aie::pack::descriptor::{Descriptor, Dimension, LockUse};
use kiln_aie::pack::image;
use kiln_aie::pack::sequence::{self, Operation};
use kiln_aie::pack::stream::{self, Connection, Port};

const SHIM: Tile = Tile::new(0, 0);
const MEMORY: Tile = Tile::new(0, 1);
const CORE: Tile = Tile::new(0, 2);

fn walk(dimensions: &[(u32, u32)]) -> Vec<Dimension> {
    dimensions.iter().map(|&(count, step)| Dimension { count, step }).collect()
}

fn with_locks(acquire: u8, release: u8, next: u8) -> Descriptor {
    Descriptor {
        acquire: Some(LockUse { lock: acquire, value: -1 }),
        release: Some(LockUse { lock: release, value: 1 }),
        next: Some(next),
        ..Descriptor::default()
    }
}

/// A product of 64 x 64 by 64 x 64 bf16 on npu1, as nod-ai/iree-amd-aie has it: its input and what its encoder, AMD's
/// aie-rt, writes (compiler/plugins/target/AMD-AIE/iree-amd-aie/Target/test/matmul_64x64_64xbf16__dispatch_0_matmul_64_0.aiecc.mlir).
#[test]
fn descriptors_are_as_aie_rt_writes_them() {
    let own = 0x80000;
    let at = |address, words, dimensions: &[(u32, u32)], descriptor: Descriptor| Descriptor {
        address,
        words,
        dimensions: walk(dimensions),
        ..descriptor
    };
    let cases = [
        (CORE, 0, at(0x400, 0x800, &[], with_locks(3, 2, 0)), 0x21D000, vec![0x0040_0800, 0, 0, 0, 0, 0x0604_5FE3]),
        (CORE, 1, at(0x2400, 0x800, &[], with_locks(5, 4, 1)), 0x21D020, vec![0x0240_0800, 0, 0, 0, 0, 0x0E04_9FE5]),
        (
            CORE,
            2,
            at(0x4400, 0x1000, &[(4, 1), (16, 256), (16, 4)], with_locks(0, 1, 2)),
            0x21D040,
            vec![0x0440_1000, 0, 0x001F_E000, 0x0200_8003, 0, 0x1604_3FE0],
        ),
        (
            MEMORY,
            0,
            at(own, 0x800, &[], with_locks(65, 64, 0)),
            0x1A0000,
            vec![0x800, 0x000A_0000, 0, 0, 0, 0, 0, 0x8140_FF41],
        ),
        (
            MEMORY,
            1,
            at(own, 0x800, &[(4, 1), (64, 32), (8, 4)], with_locks(64, 65, 1)),
            0x1A0020,
            vec![0x800, 0x001A_0000, 0x0008_0000, 0x0080_001F, 0x0010_0003, 0, 0, 0x8141_FF40],
        ),
        (
            Tile::new(1, 1),
            1,
            at(own, 0x800, &[(2, 1), (64, 32), (16, 2)], with_locks(64, 65, 1)),
            0x21A0020,
            vec![0x800, 0x001A_0000, 0x0004_0000, 0x0080_001F, 0x0020_0001, 0, 0, 0x8141_FF40],
        ),
        // Xilinx/mlir-aie, test/Targets/NPU/npu_dma_memcpy.mlir.
        (
            SHIM,
            0,
            Descriptor { words: 2048, dimensions: walk(&[(0x0, 1), (32, 64), (1, 2048)]), ..Descriptor::default() },
            0x1D000,
            vec![2048, 0, 0, 0x0200_0000, 0x8200_003F, 2047, 0, 0x0200_0000],
        ),
    ];
    for (tile, number, mut descriptor, address, words) in cases {
        // There the rows of 32 words are given by a count of 32 in the first dimension.
        if tile == SHIM {
            descriptor.dimensions[0].count = 32;
        }
        assert_eq!(tile.descriptor(number), address, "{tile} {number}");
        assert_eq!(descriptor.encode(tile.kind()).expect("a descriptor"), words, "{tile} {number}");
    }
}

/// AM025: DMA_BD0_4 of a core's memory, DMA_BD0_6 of a memory tile and of a shim, DMA_BD0_5 of a shim. Steps and counts are
/// held less one.
#[test]
fn iterations_and_caches_are_where_the_registers_have_them() {
    let iterated = |count, step| Descriptor { iteration: Some(Dimension { count, step }), ..Descriptor::default() };
    let word = |descriptor: Descriptor, tile: Tile, word: usize| descriptor.encode(tile.kind()).expect("words")[word];
    assert_eq!(word(iterated(3, 0x1000), CORE, 4), 2 << 13 | 0xFFF);
    assert_eq!(word(iterated(64, 0x20000), MEMORY, 6), 63 << 17 | 0x1FFFF);
    assert_eq!(word(iterated(64, 0x100000), SHIM, 6), 63 << 20 | 0xFFFFF);
    assert_eq!(word(Descriptor { cache: 2, ..Descriptor::default() }, SHIM, 5), 2 << 24);
    let refused = [(iterated(65, 1), "count less one is 64"), (iterated(2, 0x2001), "step less one is 8192")];
    for (descriptor, message) in refused {
        let error = descriptor.encode(CORE.kind()).expect_err("an error");
        assert!(error.contains(message), "{error}");
    }
}

/// The same configuration's locks, queues and connections.
#[test]
fn registers_are_where_aie_rt_writes_them() {
    assert_eq!(CORE.lock(5), 0x21F050);
    assert_eq!(Tile::new(2, 1).lock(1), 0x41C0010);
    assert_eq!(CORE.input(1).queue(), 0x21DE0C);
    assert_eq!(CORE.output(0).queue(), 0x21DE14);
    assert_eq!(MEMORY.input(0).queue(), 0x1A0604);
    assert_eq!(MEMORY.output(0).queue(), 0x1A0634);
    assert_eq!(SHIM.output(0).queue(), 0x1D214);

    let connections = [
        (SHIM, Port::Control, Port::South(0), [(0x3F008, 0x8000_0000), (0x3F100, 0x8000_0000)]),
        (SHIM, Port::South(3), Port::North(0), [(0x3F030, 0x8000_0005), (0x3F114, 0x8000_0000)]),
        (SHIM, Port::South(7), Port::East(0), [(0x3F048, 0x8000_0009), (0x3F124, 0x8000_0000)]),
        (SHIM, Port::East(0), Port::South(2), [(0x3F010, 0x8000_0012), (0x3F148, 0x8000_0000)]),
        (Tile::new(1, 0), Port::West(0), Port::North(0), [(0x203F030, 0x8000_000A), (0x203F128, 0x8000_0000)]),
        (Tile::new(1, 0), Port::East(0), Port::West(0), [(0x203F020, 0x8000_0012), (0x203F148, 0x8000_0000)]),
        (Tile::new(2, 0), Port::North(0), Port::West(0), [(0x403F020, 0x8000_000E), (0x403F138, 0x8000_0000)]),
        (MEMORY, Port::South(0), Port::Dma(0), [(0x1B0000, 0x8000_0007), (0x1B011C, 0x8000_0000)]),
        (MEMORY, Port::Dma(0), Port::North(0), [(0x1B002C, 0x8000_0000), (0x1B0100, 0x8000_0000)]),
        (Tile::new(2, 1), Port::Dma(0), Port::South(0), [(0x41B001C, 0x8000_0000), (0x41B0100, 0x8000_0000)]),
        (Tile::new(2, 1), Port::North(0), Port::Dma(0), [(0x41B0000, 0x8000_000D), (0x41B0134, 0x8000_0000)]),
        (CORE, Port::South(0), Port::Dma(0), [(0x23F004, 0x8000_0005), (0x23F114, 0x8000_0000)]),
        (CORE, Port::East(0), Port::Dma(1), [(0x23F008, 0x8000_0013), (0x23F14C, 0x8000_0000)]),
        (CORE, Port::Dma(0), Port::East(0), [(0x23F04C, 0x8000_0001), (0x23F104, 0x8000_0000)]),
        (Tile::new(1, 2), Port::South(0), Port::West(0), [(0x223F024, 0x8000_0005), (0x223F114, 0x8000_0000)]),
        (Tile::new(1, 2), Port::West(0), Port::East(0), [(0x223F04C, 0x8000_000B), (0x223F12C, 0x8000_0000)]),
        (Tile::new(2, 2), Port::West(0), Port::South(0), [(0x423F014, 0x8000_000B), (0x423F12C, 0x8000_0000)]),
    ];
    for (tile, from, to, writes) in connections {
        let commands = Connection { tile, from, to }.commands().expect("ports");
        assert_eq!(commands, writes.map(|(address, value)| Command::write(address, value)), "{tile}: {from} to {to}");
    }

    assert_eq!(stream::multiplex(SHIM.output(0)), Some(Command::mask_write(0x1F000, 0xC00, 0x400)));
    assert_eq!(stream::multiplex(SHIM.output(1)), Some(Command::mask_write(0x1F000, 0xC000, 0x4000)));
    assert_eq!(stream::multiplex(SHIM.input(0)), Some(Command::mask_write(0x1F004, 0x30, 0x10)));
    assert_eq!(stream::multiplex(CORE.input(0)), None);
}

/// Xilinx/mlir-aie, test/Targets/NPU/npu_instgen.mlir and npu_address_patch_arg_plus_64bit.mlir.
#[test]
fn operations_are_as_mlir_aie_writes_them() {
    let operations = [
        (Operation::Write { address: 0x0640_0DEF, value: 0x42 }, vec![0, 0, 0x0640_0DEF, 0, 0x42, 0x18]),
        (
            Operation::Block { address: 0x1234_5679, words: (100..108).collect() },
            [vec![1, 0, 0x1234_5679, 0x30], (0x64..=0x6B).collect()].concat(),
        ),
        (
            Operation::MaskWrite { address: 0x0430_567A, value: 0x1001, mask: 0xF00F_F00F },
            vec![3, 0, 0x0430_567A, 0, 0x1001, 0xF00F_F00F, 0x1C],
        ),
        (
            Operation::Patch { address: 0x12340, argument: 0, offset: 0x2_0000_0100 },
            vec![0x81, 48, 0, 0, 0, 0, 0x12340, 0, 0, 0, 0x100, 2],
        ),
        // There it waits for two rows: here for one, so the count in the last word differs.
        (Operation::Wait { channel: Tile::new(3, 4).output(5) }, vec![0x80, 0x10, 0x0003_0401, 0x0501_0100]),
    ];
    for (operation, words) in operations {
        let all = [vec![0x0603_0100, 0x104, 1, 16 + 4 * words.len() as u32], words].concat();
        let bytes: Vec<u8> = all.iter().flat_map(|word| word.to_le_bytes()).collect();
        assert_eq!(sequence::pack(4, std::slice::from_ref(&operation)), bytes, "{operation:x?}");
    }
}

fn bytes(lines: &str) -> Vec<u8> {
    let digits: String = lines.lines().filter(|line| !line.starts_with('#')).collect();
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).expect("a byte")).collect()
}

#[test]
fn image_is_as_bootgen_writes_it() {
    let commands = [
        // Long enough for a length of its own, and then padding.
        Command::block(0x220000, (0..300).map(|word| 0x1000 + word).collect()),
        Command::mask_write(0x232000, 2, 2),
        Command::mask_write(0x232000, 2, 0),
        Command::write(0x21F000, 1),
        Command::block(0x21D000, vec![0x0040_0800, 0, 0, 0, 0, 0x0604_5FE3]),
        Command::write(0x21DE04, 0),
        Command::block(0x1A0000, vec![0x800, 0xA0000, 0, 0, 0, 0, 0, 0x8140_FF41]),
        Command::block(0x1A0020, vec![0x800, 0x1A0000, 0x80000, 0x80001F, 0x100003, 0, 0, 0x8141_FF40]),
        Command::mask_write(0x1F000, 0xC00, 0x400),
        Command::mask_write(0x232000, 1, 1),
    ];
    assert_eq!(image::pack(&commands), bytes(include_str!("../vectors/image.txt")));
}

#[test]
fn container_is_as_xclbinutil_writes_it() {
    let contents = Contents {
        kernel: "MLIR_AIE",
        instance: "MLIRAIE",
        arguments: &["a", "b", "c"],
        columns: 1,
        image: b"0123456789",
        image_id: [0, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xAA, 0xBB, 0xCC, 0xDD, 0xEE, 0xFF],
    };
    let sections = container::sections(&contents);
    let vectors = include_str!("../vectors/container.txt").split("section ").skip(1);
    let expected: Vec<(u32, Vec<u8>)> = vectors
        .map(|section| {
            let (kind, lines) = section.split_once('\n').expect("a kind");
            (kind.parse().expect("a number"), bytes(lines))
        })
        .collect();
    assert_eq!(sections, expected);

    // The head and the headers, whose places XRT's public header xclbin.h gives.
    let file = container::pack(&contents);
    let word = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().expect("a word"));
    assert_eq!(&file[..12], b"xclbin2\0\xFF\xFF\xFF\xFF");
    assert_eq!((word(304) as usize, word(448) as usize), (file.len(), sections.len()));
    for (index, (kind, section)) in sections.iter().enumerate() {
        let header = 456 + 40 * index;
        let (start, size) = (word(header + 24) as usize, word(header + 32) as usize);
        assert_eq!((word(header), &file[start..start + size], start % 8), (*kind, section.as_slice(), 0));
    }
}
