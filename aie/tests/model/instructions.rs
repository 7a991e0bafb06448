//! What single instructions make of their operands, against plain Rust.

use kiln_aie::assemble;
use kiln_aie::isa::Isa;
use kiln_aie::pack::array::{CORE_CONTROL, PROGRAM, Tile};
use kiln_aie::pack::command::Command;
use kiln_aie::pack::image;

use crate::machine::{Fault, Latencies, Machine, narrow, widen};
use crate::program::Random;

const CORE: Tile = Tile::new(0, 2);

/// What two vectors of 64 bytes, in x0 and x1, become: the instructions leave it in x2, or in r20, or in memory at 0x200.
fn run(lines: &[&str], vectors: &[u8]) -> Result<Vec<u8>, Fault> {
    let loads = ["movxm p0, #0x70000", "movxm p1, #0x70200", "mova r7, #-1", "mov crrnd, #12", "mov crsat, #1"];
    let halves =
        ["wl0, [p0, #0]", "wh0, [p0, #32]", "wl1, [p0, #64]", "wh1, [p0, #96]"].map(|half| format!("vlda {half}"));
    let lines = loads.iter().map(ToString::to_string).chain(halves).chain(lines.iter().map(ToString::to_string));
    let isa = Isa::aie2();
    let mut code = Vec::new();
    for line in lines.chain(["acq #63, r7".to_string()]) {
        // Long enough for whatever comes of it.
        for line in std::iter::once(line.as_str()).chain(std::iter::repeat_n("nop", 12)) {
            let bundle = assemble::bundle(&isa, line).map_err(|error| error.to_string())?;
            code.extend(isa.encode_bundle(&bundle)?);
        }
    }
    code.resize(code.len().next_multiple_of(4), 0);
    let words = |bytes: &[u8]| -> Vec<u32> {
        bytes.chunks(4).map(|word| word.iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte))).collect()
    };
    let commands = [
        Command::block(CORE.address(PROGRAM), words(&code)),
        Command::block(CORE.address(0), words(vectors)),
        Command::block(CORE.address(0x200), vec![0; 32]),
        Command::mask_write(CORE.address(CORE_CONTROL), 1, 1),
    ];
    let mut machine = Machine::new(1, Latencies::default());
    machine.load_image(&image::pack(&commands))?;
    machine.settle()?;
    let stored = machine.memory((0, 2))?.bytes(0x200, 128)?;
    stored.ok_or_else(|| "it stored nothing".into())
}

/// Bytes as lanes of a type.
macro_rules! lanes {
    ($bytes:expr, $type:ty) => {
        $bytes
            .chunks_exact(size_of::<$type>())
            .map(|lane| <$type>::from_le_bytes(lane.try_into().expect("a lane")))
            .collect::<Vec<$type>>()
    };
}

const STORE_X2: [&str; 2] = ["vst wl2, [p1, #0]", "vst wh2, [p1, #32]"];

fn with_store(lines: &[&'static str]) -> Vec<&'static str> {
    [lines, &STORE_X2].concat()
}

fn random_bytes(random: &mut Random) -> Vec<u8> {
    (0..128).map(|_| random.below(256) as u8).collect()
}

/// Checks 20 random pairs of vectors.
fn check(lines: &[&str], expected: impl Fn(&[u8]) -> Vec<u8>) {
    let mut random = Random(3);
    for _ in 0..20 {
        let vectors = random_bytes(&mut random);
        let found = run(lines, &vectors).unwrap_or_else(|fault| panic!("{lines:?}: {fault}"));
        let expected = expected(&vectors);
        assert_eq!(found[..expected.len()], expected, "{lines:?} of {vectors:02x?}");
    }
}

#[test]
fn comparisons_choose_lane_by_lane() {
    check(&with_store(&["vmax_lt.s16 x2, r20, x0, x1"]), |bytes| {
        let lanes = lanes!(bytes, i16);
        (0..32).flat_map(|lane| lanes[lane].max(lanes[lane + 32]).to_le_bytes()).collect()
    });
    check(&with_store(&["vmin_ge.s32 x2, r20, x0, x1"]), |bytes| {
        let lanes = lanes!(bytes, i32);
        (0..16).flat_map(|lane| lanes[lane].min(lanes[lane + 16]).to_le_bytes()).collect()
    });
    // A comparison's bits select.
    for (compare, select, less) in [
        ("vlt.s32 r20, x0, x1", "vsel.32 x2, x0, x1, r20", true),
        ("vge.s32 r20, x0, x1", "vsel.32 x2, x0, x1, r20", false),
        ("vmax_lt.s32 x3, r20, x0, x1", "vsel.32 x2, x0, x1, r20", true),
    ] {
        check(&with_store(&[compare, select]), |bytes| {
            let lanes = lanes!(bytes, i32);
            let chosen = |lane: usize| if (lanes[lane] < lanes[lane + 16]) == less { lane + 16 } else { lane };
            (0..16).flat_map(|lane| lanes[chosen(lane)].to_le_bytes()).collect()
        });
    }
    check(&with_store(&["vge.s16 r20, x0, x1", "vsel.16 x2, x0, x1, r20"]), |bytes| {
        let lanes = lanes!(bytes, i16);
        (0..32).flat_map(|lane| lanes[lane].min(lanes[lane + 32]).to_le_bytes()).collect()
    });
}

/// Of bf16, -0 is below 0, and nothing holds of a NaN.
#[test]
fn comparisons_of_bf16_know_zeros_and_nans() {
    let cases: [(u16, u16, bool, bool); 9] = [
        (0x3F80, 0x4000, true, false),
        (0x4000, 0x3F80, false, true),
        (0xC000, 0xBF80, true, false),
        (0xBF80, 0x3F80, true, false),
        (0x8000, 0x0000, true, false),
        (0x0000, 0x8000, false, true),
        (0x3F80, 0x3F80, false, true),
        (0x7FC0, 0x3F80, false, false),
        (0xFF80, 0x7F80, true, false),
    ];
    for (left, right, less, at_least) in cases {
        let vectors: Vec<u8> = [[left; 32], [right; 32]].concat().into_iter().flat_map(u16::to_le_bytes).collect();
        for (compare, holds) in [("vlt.bf16 r20, x0, x1", less), ("vge.bf16 r20, x0, x1", at_least)] {
            let stored = run(&[compare, "st r20, [p1, #0]"], &vectors).unwrap_or_else(|fault| panic!("{fault}"));
            let mask = if holds { u32::MAX } else { 0 };
            assert_eq!(lanes!(stored[..4], u32), [mask], "{compare} of {left:#x}, {right:#x}");
        }
        let max =
            run(&with_store(&["vmax_lt.bf16 x2, r20, x0, x1"]), &vectors).unwrap_or_else(|fault| panic!("{fault}"));
        let min =
            run(&with_store(&["vmin_ge.bf16 x2, r20, x0, x1"]), &vectors).unwrap_or_else(|fault| panic!("{fault}"));
        assert_eq!(lanes!(max[..64], u16), [if less { right } else { left }; 32], "max of {left:#x}, {right:#x}");
        assert_eq!(lanes!(min[..64], u16), [if at_least { right } else { left }; 32], "min of {left:#x}, {right:#x}");
    }
}

#[test]
fn lanes_are_inserted_packed_and_unpacked() {
    check(&with_store(&["mova r29, #5", "movxm r22, #0x12345678", "vinsert.32 x2, x0, r29, r22"]), |bytes| {
        let mut lanes = lanes!(bytes[..64], u32);
        lanes[5] = 0x1234_5678;
        lanes.into_iter().flat_map(u32::to_le_bytes).collect()
    });
    check(&with_store(&["mova r29, #31", "movxm r22, #0xABCD", "vinsert.16 x2, x0, r29, r22"]), |bytes| {
        [&bytes[..62], &[0xCD, 0xAB]].concat()
    });
    check(&with_store(&["mova r29, #1", "mova r22, #7", "vinsert.8 x2, x0, r29, r22"]), |bytes| {
        [&bytes[..1], &[7], &bytes[2..64]].concat()
    });
    check(&["vpack.s8.s16 wl2, x0", "vst wl2, [p1, #0]"], |bytes| {
        lanes!(bytes[..64], i16).into_iter().map(|lane| lane.clamp(-128, 127) as u8).collect()
    });
    check(&["mov crsat, #0", "vpack.s8.s16 wl2, x0", "vst wl2, [p1, #0]"], |bytes| {
        bytes[..64].iter().copied().step_by(2).collect()
    });
    check(&["mov crpacksign, #0", "vpack.d8.d16 wl2, x0", "vst wl2, [p1, #0]"], |bytes| {
        lanes!(bytes[..64], i16).into_iter().map(|lane| lane.clamp(0, 255) as u8).collect()
    });
    check(&with_store(&["vunpack.s16.s8 x2, wh0"]), |bytes| {
        bytes[32..64].iter().flat_map(|byte| i16::from(*byte as i8).to_le_bytes()).collect()
    });
    check(&with_store(&["mov crunpacksign, #0", "vunpack.d8.d4 x2, wl0"]), |bytes| {
        bytes[..32].iter().flat_map(|byte| [byte & 15, byte >> 4]).collect()
    });
}

#[test]
fn loads_shift_up_and_stores_shift_down() {
    let quarters = ["vst amll2, [p1, #0]", "vst amlh2, [p1, #32]"];
    check(&[["mov s0, #3", "vlda.ups.s32.s16 bml2, s0, [p0, #32]"], quarters].concat(), |bytes| {
        lanes!(bytes[32..64], i16).into_iter().flat_map(|lane| (i32::from(lane) << 3).to_le_bytes()).collect()
    });
    check(
        &[&["mov crupssign, #0", "mov s0, #0", "vlda.ups.s32.d8 cm2, s0, [p0, #0]"][..], &quarters].concat(),
        |bytes| bytes[..16].iter().flat_map(|byte| i32::from(*byte).to_le_bytes()).collect(),
    );
    // To the nearest, ties to even, and no further than the lane goes.
    let nearest = |value: i32, shift: u32| {
        let exact = f64::from(value) / f64::from(1 << shift);
        exact.round_ties_even()
    };
    let load = ["vlda amll0, [p0, #0]", "vlda amlh0, [p0, #32]", "mov s1, #9"];
    check(&[&load[..], &["vst.srs.s16.s32 bml0, s1, [p1, #0]"]].concat(), |bytes| {
        let lanes = lanes!(bytes[..64], i32).into_iter();
        lanes.flat_map(|lane| (nearest(lane, 9).clamp(-32768.0, 32767.0) as i16).to_le_bytes()).collect()
    });
    check(&[&["mov crsrssign, #0"], &load[..], &["vst.srs.d16.s32 bml0, s1, [p1], #32"]].concat(), |bytes| {
        let lanes = lanes!(bytes[..64], i32).into_iter();
        lanes.flat_map(|lane| (nearest(lane, 9).clamp(0.0, 65535.0) as u16).to_le_bytes()).collect()
    });
    check(
        &[&["mov crrnd, #0", "mov crsat, #0"], &load[..], &["vst.srs.s16.s32 bml0, s1, [p1, #0]"]].concat(),
        |bytes| lanes!(bytes[..64], i32).into_iter().flat_map(|lane| ((lane >> 9) as i16).to_le_bytes()).collect(),
    );
    // Halves of what a lane is shifted by: ties of both signs.
    let ties: Vec<i32> = (-8..8).map(|half| 256 * half).collect();
    let vectors: Vec<u8> = ties.iter().flat_map(|lane| lane.to_le_bytes()).chain([0; 64]).collect();
    let stored = run(&[&load[..], &["vst.srs.s16.s32 bml0, s1, [p1, #0]"]].concat(), &vectors);
    let stored = stored.unwrap_or_else(|fault| panic!("{fault}"));
    let even: Vec<i16> = ties.iter().map(|lane| nearest(*lane, 9) as i16).collect();
    assert_eq!(lanes!(stored[..32], i16), even);
    // Two lanes of 64 bits are one of 32 each.
    check(&[&load[..], &["vst.srs.s32.s64 bml0, s1, [p1, #0]"]].concat(), |bytes| {
        let lanes = lanes!(bytes[..64], i64).into_iter().map(|lane| {
            let (floor, rest) = (lane >> 9, lane & 511);
            floor + i64::from(rest > 256 || rest == 256 && floor & 1 == 1)
        });
        lanes.flat_map(|lane| (lane.clamp(i32::MIN.into(), i32::MAX.into()) as i32).to_le_bytes()).collect()
    });
}

/// The modes that the model has, by the orders that transpositions give.
#[test]
fn shuffles_transpose() {
    let order = |bits: usize, rows: usize, columns: usize| -> Vec<usize> {
        (0..columns)
            .flat_map(|column| (0..rows).map(move |row| row * columns + column))
            .map(|lane| lane * bits / 8)
            .collect()
    };
    // Mode, lanes' bits, rows, columns, and where the half begins.
    let modes = [(2, 16, 32, 2, 0), (3, 16, 32, 2, 32), (18, 16, 2, 32, 0), (19, 16, 2, 32, 32)];
    let modes =
        modes.into_iter().chain([(4, 32, 16, 2, 0), (5, 32, 16, 2, 16), (16, 32, 2, 16, 0), (17, 32, 2, 16, 16)]);
    for (mode, bits, rows, columns, start) in modes.chain([(28, 16, 8, 4, 0), (29, 16, 4, 8, 0), (34, 32, 4, 4, 0)]) {
        let set = format!("mova r5, #{mode}");
        let lines = [&[set.as_str(), "vshuffle x2, x0, x1, r5"][..], &STORE_X2].concat();
        check(&lines, |bytes| {
            let lanes = order(bits, rows, columns).into_iter().skip(start).take(512 / bits);
            lanes.flat_map(|at| bytes[at..at + bits / 8].to_vec()).collect()
        });
    }
}

/// In two dimensions: `m` is added until the counter has come to `dn`, then `dj`.
#[test]
fn pointers_move_in_a_plane() {
    let setup = ["mov dn3, #2", "mov dj3, #-64", "mov dc3, #0", "mov m3, #32", "padda [p1], #64"];
    for (count, offset) in [(1, 96), (2, 128), (3, 64), (4, 96)] {
        for pad in ["padda.2d [p1], d3", "paddb.2d [p1], d3", "padds.2d [p1], d3"] {
            let lines =
                [&setup[..], &vec![pad; count], &["movxm p2, #0x70000", "mov r20, p1", "st r20, [p2, #0]"]].concat();
            // The pointer itself, through the memory that is read back.
            let lines = [&lines[..], &["lda r21, [p2, #0]", "movxm p1, #0x70200", "st r21, [p1, #0]"]].concat();
            let stored = run(&lines, &[0; 128]).unwrap_or_else(|fault| panic!("{fault}"));
            assert_eq!(lanes!(stored[..4], u32), [0x70200 + offset], "{pad}, {count} times");
        }
    }
}

#[test]
fn lanes_of_both_halves_are_multiplied_and_summed() {
    let mut random = Random(9);
    for (configuration, start) in [("mova r0, #60", 1.0), ("mova r0, #61", 0.0)] {
        let values: Vec<u16> = (0..64).map(|_| narrow(random.below(64) as f32 / 8.0 - 4.0)).collect();
        let vectors: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let lines = [
            "movxm r1, #0x3F803F80",
            "vbcst.32 x3, r1",
            "vconv.fp32.bf16 bml2, wl3",
            configuration,
            "vmac.f bml2, bml2, x0, x1, r0",
            "vst amll2, [p1, #0]",
            "vst amlh2, [p1, #32]",
        ];
        let stored = run(&lines, &vectors).unwrap_or_else(|fault| panic!("{fault}"));
        let value = |index: usize| widen(values[index]);
        let expected: Vec<f32> =
            (0..16).map(|i| start + value(i) * value(i + 32) + value(i + 16) * value(i + 48)).collect();
        assert_eq!(lanes!(stored[..64], f32), expected, "{configuration}");
    }
}

/// Lane by lane, as 824 configures it (the public compiler's, for 32 products of 16 bits by 16: Xilinx/mlir-aie,
/// test/Conversion/AIEVecToLLVM/mul_elem.mlir): products of halves of words, and sums of words.
#[test]
fn integers_are_multiplied_and_summed_lane_by_lane() {
    let store = ["vst amll2, [p1, #0]", "vst amlh2, [p1, #32]", "vst amhl2, [p1, #64]", "vst amhh2, [p1, #96]"];
    let setup = ["movxm r1, #824", "mova r3, #0", "vmul cm0, x0, x1, r1", "vmul cm1, x1, x1, r1"];
    let check_sums = |line: &'static str, expected: fn(i32, i32) -> i32| {
        check(&[&setup[..], &[line], &store].concat(), |bytes| {
            let lanes = lanes!(bytes, i16);
            let of = |lane: usize| {
                let (left, right) = (i32::from(lanes[lane]), i32::from(lanes[lane + 32]));
                expected(left, right)
            };
            (0..32).flat_map(|lane| of(lane).to_le_bytes()).collect()
        });
    };
    check_sums("vmac cm2, cm0, x1, x1, r1", |left, right| (left * right).wrapping_add(right * right));
    check_sums("vmsc cm2, cm0, x1, x1, r1", |left, right| (left * right).wrapping_sub(right * right));
    check_sums("vadd cm2, cm0, cm1, r3", |left, right| (left * right).wrapping_add(right * right));
    check_sums("vsub cm2, cm0, cm1, r3", |left, right| (left * right).wrapping_sub(right * right));
}

/// A countdown jumps unless nothing is left, here to where no program is, and leaves the register less one.
#[test]
fn countdowns_jump_unless_nothing_is_left() {
    let passes = |count: &str| {
        let lines = [count, "mova r20, #0", "movxm p2, #0x70000", "mova r21, #0"];
        let lines =
            [&lines[..], &["jnzd r22, r23, p3", "add r20, r20, #1", "st r22, [p1, #0]", "st r20, [p1, #4]"]].concat();
        run(&[&["movxm p3, #0x3FF0"], &lines[..]].concat(), &[0; 128])
    };
    let stored = passes("mova r23, #1").unwrap_or_else(|fault| panic!("{fault}"));
    assert_eq!(lanes!(stored[..8], u32), [0, 1]);
    let fault = passes("mova r23, #2").expect_err("a jump to where nothing is");
    assert!(fault.contains("nothing is at 0x3ff0"), "{fault}");
}

/// Vector instructions see what others of their kind write in the next cycle; a store sees it in the one behind that.
#[test]
fn vectors_are_forwarded() {
    let isa = Isa::aie2();
    let run = |lines: &[&str]| -> Vec<u32> {
        let setup = ["movxm p0, #0x70000", "movxm p1, #0x70200", "mova r7, #-1", "mova r5, #5", "vbcst.32 x0, r5"];
        let idle = ["nop"; 10];
        let lines = [&setup[..], &["vbcst.32 x2, r5"], &idle, lines, &idle, &["acq #63, r7"], &idle].concat();
        let encode = |line: &&str| isa.encode_bundle(&assemble::bundle(&isa, line).expect("a bundle")).expect("bytes");
        let mut code: Vec<u8> = lines.iter().flat_map(encode).collect();
        code.resize(code.len().next_multiple_of(4), 0);
        let words = lanes!(code, u32);
        let commands =
            [Command::block(CORE.address(PROGRAM), words), Command::mask_write(CORE.address(CORE_CONTROL), 1, 1)];
        let mut machine = Machine::new(1, Latencies::default());
        machine
            .load_image(&image::pack(&commands))
            .and_then(|()| machine.settle())
            .unwrap_or_else(|fault| panic!("{fault}"));
        let stored = machine.memory((0, 2)).and_then(|memory| memory.bytes(0x200, 4)).expect("memory");
        lanes!(stored.expect("a store"), u32)
    };
    assert_eq!(run(&["vadd.32 x2, x0, x0", "vadd.32 x2, x2, x0", "nop", "vst wl2, [p1, #0]"]), [15]);
    assert_eq!(run(&["vadd.32 x2, x0, x0", "nop", "vst wl2, [p1, #0]"]), [10]);
    assert_eq!(run(&["vadd.32 x2, x0, x0", "vst wl2, [p1, #0]"]), [5]);
}
