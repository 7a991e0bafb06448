//! What moves values: DPP, permlanes, VOPD, carries and masks, LDS, atomics in memory, and the upper half of a wave64.
//! Expected values come from arrays of lanes, not from masks.

use crate::common::{END, Random, assemble, run, wave};
use gfx11::fault::What;
use gfx11::float::Mode;
use gfx11::lds::Lds;
use gfx11::memory::Memory;
use gfx11::ops::Lanes;
use gfx11::wave::{EXEC, VCC, Wave};

fn execute(code: Vec<u32>, w: &mut Wave) {
    run(&[code, vec![END]].concat(), w, &mut Lds::new(0), &Memory::default()).unwrap();
}

fn lanes(random: &mut Random) -> Lanes {
    std::array::from_fn(|_| random.next())
}

/// The lane that a DPP control reads within a row of 16, if it is in the row.
fn source(control: u32, lane: i32) -> Option<i32> {
    let n = (control % 16) as i32;
    let source = match control / 16 {
        0..=15 => lane / 4 * 4 + (control >> (lane % 4 * 2)) as i32 % 4,
        16 => lane + n,
        17 => lane - n,
        18 => (lane + 16 - n) % 16,
        20 if n == 0 => 15 - lane,
        20 => lane / 8 * 8 + 7 - lane % 8,
        21 => n,
        _ => lane ^ n,
    };
    (0..16).contains(&source).then_some(source)
}

/// Every control, with and without bound_ctrl and fi, row and bank masks, under a mask of lanes of chance.
#[test]
fn dpp16_of_every_control() {
    let mut random = Random(31);
    let controls = (0..256).chain(0x101..0x110).chain(0x111..0x120).chain(0x121..0x130);
    for control in controls.chain([0x140, 0x141]).chain(0x150..0x170) {
        for flags in 0..4 {
            let (bc, fi) = (flags & 1, flags >> 1);
            let [rows, banks] = [0; 2].map(|_| if random.next() < 1 << 31 { 15 } else { random.next() % 16 });
            let extra = control << 8 | fi << 18 | bc << 19 | banks << 24 | rows << 28;
            let mut code = assemble("VOP2", "v_add_nc_u32", &[("vdst", 2), ("vsrc1", 1)]);
            code[0] = code[0] & !0x1ff | 250;
            code.push(extra);
            let (a, b, old, exec) = (lanes(&mut random), lanes(&mut random), lanes(&mut random), random.next());
            let mut w = wave();
            w.set_s(EXEC, exec);
            [a, b, old].into_iter().enumerate().for_each(|(r, x)| w.set_v(0, r, x));
            execute(code, &mut w);
            for lane in 0..32i32 {
                let on = |lane: i32| exec >> lane & 1 == 1;
                let from = source(control, lane % 16).map(|s| lane / 16 * 16 + s).filter(|s| fi == 1 || on(*s));
                let allowed = rows >> (lane / 16) & 1 == 1 && banks >> (lane / 4 % 4) & 1 == 1 && on(lane);
                let want = match from {
                    Some(from) if allowed => a[from as usize].wrapping_add(b[lane as usize]),
                    None if allowed && bc == 1 => b[lane as usize],
                    _ => old[lane as usize],
                };
                assert_eq!(w.v[2][lane as usize], want, "control {control:#x} bc {bc} fi {fi} lane {lane}");
            }
        }
    }
}

#[test]
fn dpp8_and_permlanes() {
    let mut random = Random(32);
    for _ in 0..300 {
        let a = lanes(&mut random);
        let picks: [u32; 8] = std::array::from_fn(|_| random.next() % 8);
        let select = (0..8).fold(0, |all, i| all | picks[i] << (8 + 3 * i));
        let mut code = assemble("VOP1", "v_mov_b32", &[("vdst", 1)]);
        code[0] = code[0] & !0x1ff | 233;
        code.push(select);
        let mut w = wave();
        w.set_v(0, 0, a);
        execute(code, &mut w);
        (0..32).for_each(|i| assert_eq!(w.v[1][i], a[i / 8 * 8 + picks[i % 8] as usize]));

        let nibbles: [usize; 16] = std::array::from_fn(|_| random.next() as usize % 16);
        for (name, row) in [("v_permlane16_b32", 0), ("v_permlanex16_b32", 1)] {
            let fields = [("vdst", 1), ("src0", 256), ("src1", 4), ("src2", 5)];
            let mut w = wave();
            w.set_v(0, 0, a);
            let half = |at: usize| (0..8).fold(0, |all, i| all | (nibbles[at + i] as u32) << (4 * i));
            w.set_s(4, half(0));
            w.set_s(5, half(8));
            execute(assemble("VOP3", name, &fields), &mut w);
            (0..32).for_each(|i| assert_eq!(w.v[1][i], a[(i / 16 + row) % 2 * 16 + nibbles[i % 16]], "{name}"));
        }
    }
}

#[test]
fn vopd_reads_before_it_writes_and_each_half_computes() {
    let mut random = Random(33);
    type Half = fn(u32, u32, u32) -> u32;
    let halves: [(&str, u32, Half); 9] = [
        ("v_dual_mul_f32", 3, |a, b, _| (f32::from_bits(a) * f32::from_bits(b)).to_bits()),
        ("v_dual_add_f32", 4, |a, b, _| (f32::from_bits(a) + f32::from_bits(b)).to_bits()),
        ("v_dual_sub_f32", 5, |a, b, _| (f32::from_bits(a) - f32::from_bits(b)).to_bits()),
        ("v_dual_subrev_f32", 6, |a, b, _| (f32::from_bits(b) - f32::from_bits(a)).to_bits()),
        ("v_dual_fmac_f32", 0, |a, b, c| f32::from_bits(a).mul_add(f32::from_bits(b), f32::from_bits(c)).to_bits()),
        ("v_dual_max_f32", 10, |a, b, _| f32::from_bits(a).max(f32::from_bits(b)).to_bits()),
        ("v_dual_mov_b32", 8, |a, _, _| a),
        ("v_dual_mul_dx9_zero_f32", 7, |a, b, _| (f32::from_bits(a) * f32::from_bits(b)).to_bits()),
        ("v_dual_cndmask_b32", 9, |_, _, _| unreachable!()),
    ];
    let integers: [(&str, u32, Half); 3] = [
        ("v_dual_add_nc_u32", 16, |a, b, _| a.wrapping_add(b)),
        ("v_dual_lshlrev_b32", 17, |a, b, _| b << (a % 32)),
        ("v_dual_and_b32", 18, |a, b, _| a & b),
    ];
    let number = |random: &mut Random| (1.0 + (random.next() % 4096) as f32 / 64.0).to_bits();
    for (x_name, opx, x) in halves {
        for (y_name, opy, y) in halves.into_iter().chain(integers) {
            // X writes v4 from v4 and v5, Y writes v5 from the same: exchanged or not, both read the old values.
            let word0 = 0xc800_0000 | opx << 22 | opy << 17 | 5 << 9 | (256 + 4);
            let word1 = 4 << 24 | 2 << 17 | 5 << 9 | (256 + 4);
            for _ in 0..20 {
                let [a, b] = [0; 2].map(|_| -> Lanes { std::array::from_fn(|_| number(&mut random)) });
                let vcc = random.next();
                let mut w = wave();
                w.set_s(VCC, vcc);
                w.set_v(0, 4, a);
                w.set_v(0, 5, b);
                execute(vec![word0, word1], &mut w);
                for i in 0..32 {
                    let choice = if vcc >> i & 1 == 1 { b[i] } else { a[i] };
                    let of = |op: u32, f: Half, c: u32| if op == 9 { choice } else { f(a[i], b[i], c) };
                    let what = format!("{x_name}+{y_name}");
                    assert_eq!((w.v[4][i], w.v[5][i]), (of(opx, x, a[i]), of(opy, y, b[i])), "{what}");
                }
            }
        }
    }
}

/// 64-bit sums by a carry through VCC, in wave32 and in both halves of a wave64.
#[test]
fn carries_go_through_the_mask_of_either_wave_size() {
    let mut random = Random(34);
    let low = assemble("VOP3SD", "v_add_co_u32", &[("vdst", 4), ("sdst", VCC as u32), ("src0", 256), ("src1", 258)]);
    let high = assemble("VOP2", "v_add_co_ci_u32", &[("vdst", 5), ("src0", 257), ("vsrc1", 3)]);
    for _ in 0..200 {
        for wave64 in [false, true] {
            let exec = (random.next() as u64) << 32 | random.next() as u64;
            let exec = if wave64 { exec } else { exec & u32::MAX as u64 };
            let mut w = Wave::new(0, 0, wave64, exec, Mode::RADV, 1);
            let sets: Vec<[Lanes; 4]> = (0..w.halves).map(|_| [0; 4].map(|_| lanes(&mut random))).collect();
            for (half, set) in sets.iter().enumerate() {
                (0..4).for_each(|r| w.set_v(half, r, set[r]));
            }
            execute([low.clone(), high.clone()].concat(), &mut w);
            for (i, set) in (0..32 * w.halves).map(|i| (i, &sets[i / 32])).filter(|(i, _)| exec >> i & 1 == 1) {
                let pair = |r: usize| set[r][i % 32] as u64 | (set[r + 1][i % 32] as u64) << 32;
                let got = w.v[i / 32 * 256 + 4][i % 32] as u64 | (w.v[i / 32 * 256 + 5][i % 32] as u64) << 32;
                let (sum, carry) = pair(0).overflowing_add(pair(2));
                assert_eq!((got, w.s[VCC + i / 32] >> (i % 32) & 1 == 1), (sum, carry), "lane {i}");
            }
        }
    }
}

#[test]
fn counts_of_lanes_below_and_swaps_of_halves() {
    let mut random = Random(35);
    let mask = random.next();
    let mut w = wave();
    w.set_s(4, mask);
    execute(assemble("VOP3", "v_mbcnt_lo_u32_b32", &[("vdst", 1), ("src0", 4), ("src1", 128 + 5)]), &mut w);
    for lane in 0..32 {
        let below = (0..lane).filter(|i| mask >> i & 1 == 1).count() as u32;
        assert_eq!(w.v[1][lane], below + 5);
    }
    // v_swap_b16 of v1's low and v2's high half.
    let (a, b) = (lanes(&mut random), lanes(&mut random));
    let mut w = wave();
    w.set_v(0, 1, a);
    w.set_v(0, 2, b);
    execute(assemble("VOP1", "v_swap_b16", &[("vdst", 1), ("src0", 256 + 128 + 2)]), &mut w);
    for i in 0..32 {
        assert_eq!(w.v[1][i], a[i] / 65536 * 65536 + b[i] / 65536);
        assert_eq!(w.v[2][i], b[i] % 65536 + a[i] % 65536 * 65536);
    }
}

/// LDS: halves of a register loaded apart, atomics without return, append; each lane its own dword.
#[test]
fn lds_loads_of_halves_atomics_and_append() {
    let mut random = Random(36);
    let memory = Memory::default();
    let wait = assemble("SOPP", "s_waitcnt", &[("simm16", 0)]);
    let (a, b, c) = (lanes(&mut random), lanes(&mut random), lanes(&mut random));
    let ds = |name: &str, data: u32| [assemble("DS", name, &[("addr", 0), ("data0", data)]), wait.clone()].concat();
    let load = |name: &str, dst: u32, offset: u32| {
        [assemble("DS", name, &[("vdst", dst), ("addr", 0), ("offset0", offset)]), wait.clone()].concat()
    };
    type Change = fn(u32, u32) -> u32;
    let changes: [(&str, Change); 6] = [
        ("ds_min_u32", |x, y| if x < y { x } else { y }),
        ("ds_or_b32", |x, y| x | y),
        ("ds_add_u32", |x, y| (x as u64 + y as u64) as u32),
        ("ds_max_u32", |x, y| if x > y { x } else { y }),
        ("ds_xor_b32", |x, y| (x | y) - (x & y)),
        ("ds_min_i32", |x, y| (x as i32).min(y as i32) as u32),
    ];
    for (name, change) in changes {
        let mut w = wave();
        w.set_v(0, 0, std::array::from_fn(|i| 4 * i as u32));
        [a, b, c].into_iter().enumerate().for_each(|(r, x)| w.set_v(0, 1 + r, x));
        let code = [
            ds("ds_store_b32", 1),
            ds(name, 2),
            load("ds_load_b32", 4, 0),
            load("ds_load_u16_d16_hi", 3, 0),
            load("ds_load_u16_d16", 3, 2),
            load("ds_load_i8", 5, 1),
            vec![END],
        ];
        run(&code.concat(), &mut w, &mut Lds::new(128), &memory).unwrap();
        for i in 0..32 {
            let want = change(a[i], b[i]);
            assert_eq!(w.v[4][i], want, "{name}");
            assert_eq!(w.v[3][i], want.rotate_left(16), "{name}");
            assert_eq!(w.v[5][i], (want >> 8) as i8 as u32, "{name}");
        }
    }
    let mut w = wave();
    w.set_s(125, 8 << 16);
    w.set_s(EXEC, 0x1111);
    w.set_v(0, 0, [8; 32]);
    w.set_v(0, 1, [40; 32]);
    let code = [ds("ds_store_b32", 1), assemble("DS", "ds_append", &[("vdst", 2)]), wait.clone()];
    let code = [code.concat(), load("ds_load_b32", 3, 0), vec![END]].concat();
    run(&code, &mut w, &mut Lds::new(128), &memory).unwrap();
    assert_eq!((w.v[2][4], w.v[3][4]), (40, 44));
}

#[test]
fn atomics_in_memory_add_up_over_lanes() {
    let mut random = Random(37);
    let mut memory = Memory::default();
    memory.add_words("sums", 0x1000, &[5, 0x10, 7, 0]);
    let data: Lanes = std::array::from_fn(|_| random.next() % 1000);
    let mut w = wave();
    w.set_s(0, 0x1000);
    w.set_s(1, 0);
    w.set_v(0, 1, [0; 32]);
    w.set_v(0, 2, data);
    let atomic = |name: &str, offset: u32, glc: u32| {
        assemble(
            "GLOBAL",
            name,
            &[("vdst", 3), ("data", 2), ("addr", 1), ("saddr", 0), ("offset", offset), ("glc", glc)],
        )
    };
    let wait = assemble("SOPP", "s_waitcnt", &[("simm16", 0)]);
    let code = [
        atomic("global_atomic_add_u32", 0, 1),
        wait,
        atomic("global_atomic_or_b32", 4, 0),
        atomic("global_atomic_max_u32", 8, 0),
        vec![END],
    ];
    run(&code.concat(), &mut w, &mut Lds::new(0), &memory).unwrap();
    let sums = memory.buffer("sums").unwrap().contents();
    assert_eq!(sums[0], 5 + data.iter().sum::<u32>());
    assert_eq!(sums[1], data.iter().fold(0x10, |all, x| all | x));
    assert_eq!(sums[2], *data.iter().max().unwrap());
    // Lanes go in some order: each old value is 5 and what came before it.
    (1..32).for_each(|i| assert_eq!(w.v[3][i], w.v[3][i - 1] + data[i - 1]));
}

/// A register in flight, a register, LDS and memory never written: each by name.
#[test]
fn what_is_not_there_yet_is_named() {
    let mut memory = Memory::default();
    memory.add("new", 0x1000, 64);
    let start = || {
        let mut w = wave();
        w.set_s(0, 0x1000);
        w.set_s(1, 0);
        w.set_v(0, 1, [0; 32]);
        w
    };
    let load = assemble("GLOBAL", "global_load_b32", &[("vdst", 2), ("addr", 1), ("saddr", 0)]);
    let scalar = assemble("SMEM", "s_load_b32", &[("sdata", 4), ("sbase", 0), ("soffset", 124)]);
    let ds = assemble("DS", "ds_load_b32", &[("vdst", 5), ("addr", 1)]);
    let partial = assemble("SOPP", "s_waitcnt", &[("simm16", 0xfc17)]);
    let whole = assemble("SOPP", "s_waitcnt", &[("simm16", 0)]);
    let use_v2 = assemble("VOP1", "v_mov_b32", &[("vdst", 6), ("src0", 256 + 2)]);
    let use_s4 = assemble("SOP1", "s_mov_b32", &[("sdst", 6), ("ssrc0", 4)]);
    let use_v5 = assemble("VOP1", "v_mov_b32", &[("vdst", 6), ("src0", 256 + 5)]);
    let stored = assemble("DS", "ds_store_b32", &[("addr", 1), ("data0", 1)]);
    let other = assemble("DS", "ds_load_b32", &[("vdst", 8), ("addr", 1)]);
    let address = assemble("GLOBAL", "global_load_b32", &[("vdst", 7), ("addr", 2), ("saddr", 0)]);
    let fault = |code: &[Vec<u32>]| {
        let code = [code.concat(), vec![END]].concat();
        run(&code, &mut start(), &mut Lds::new(128), &memory)
    };
    let in_flight = |register: &str, counter| Err(What::NotWaited { register: register.into(), counter });
    assert_eq!(fault(&[load.clone(), use_v2.clone()]), in_flight("v2", "vmcnt"));
    // A scalar load and one of LDS: of the two one may be waited for in vain. Two of LDS come in order.
    assert_eq!(fault(&[scalar.clone(), ds.clone(), partial.clone(), use_s4]), in_flight("s4", "lgkmcnt"));
    assert_eq!(fault(&[scalar.clone(), ds.clone(), partial.clone(), use_v5.clone()]), in_flight("v5", "lgkmcnt"));
    assert_eq!(fault(&[stored, ds, scalar, other, partial, use_v5]), Ok(()));
    assert_eq!(fault(&[load.clone(), whole.clone(), use_v2]), Ok(()));
    assert_eq!(fault(&[load, whole, address.clone()]), Err(What::Poison("an address".into())));
    assert_eq!(fault(&[address]), Err(What::Poison("an address".into())));
}

/// A value out by scratch or through a descriptor and back; past either, the fault names it.
#[test]
fn scratch_and_descriptors_hold_values_and_have_an_end() {
    let mut random = Random(38);
    let a = lanes(&mut random);
    let wait = assemble("SOPP", "s_waitcnt", &[("simm16", 0)]);
    let scratch = |name: &str, r: &'static str, n: u32, offset: u32| {
        assemble("SCRATCH", name, &[(r, n), ("addr", 0), ("saddr", 124), ("sve", 1), ("offset", offset)])
    };
    let through = |name: &str, n: u32, offset: u32| {
        assemble(
            "MUBUF",
            name,
            &[("vdata", n), ("vaddr", 0), ("srsrc", 1), ("offen", 1), ("soffset", 128), ("offset", offset)],
        )
    };
    let mut memory = Memory::default();
    memory.add("data", 0x1000, 256);
    let go = |code: Vec<Vec<u32>>| {
        let mut w = wave();
        w.scratch = gfx11::scratch::Scratch::new(132);
        w.set_v(0, 0, std::array::from_fn(|i| 4 * i as u32));
        w.set_v(0, 1, a);
        for (r, x) in [(4, 0x1000), (5, 0), (6, 132), (7, 0)] {
            w.set_s(r, x);
        }
        let done = run(&[code.concat(), vec![END]].concat(), &mut w, &mut Lds::new(0), &memory);
        done.map(|()| (w.v[2], w.v[3]))
    };
    let stored = scratch("scratch_store_b32", "data", 1, 4);
    let (whole, part) = (scratch("scratch_load_b32", "vdst", 2, 4), scratch("scratch_load_u16", "vdst", 3, 6));
    let high = a.map(|x| x >> 16);
    assert_eq!(go(vec![stored.clone(), whole.clone(), part, wait.clone()]), Ok((a, high)));
    let end = |found: Result<_, What>| match found {
        Err(What::OutOfBounds { address, buffer, .. }) => (address, buffer),
        other => panic!("{other:?}"),
    };
    let past = scratch("scratch_store_b32", "data", 1, 8);
    assert_eq!(end(go(vec![past])), (132, "scratch has 132 bytes a lane".to_string()));
    let (whole, part) = (through("buffer_load_b32", 2, 4), through("buffer_load_u16", 3, 6));
    assert_eq!(go(vec![through("buffer_store_b32", 1, 4), whole, part, wait]), Ok((a, high)));
    let past = end(go(vec![through("buffer_load_b32", 2, 8)]));
    assert_eq!(past, (0x1000 + 132, "the descriptor has 132 records of 1 bytes at 0x1000".to_string()));
    let use_early = assemble("VOP1", "v_mov_b32", &[("vdst", 4), ("src0", 256 + 2)]);
    for load in [through("buffer_load_b32", 2, 4), scratch("scratch_load_b32", "vdst", 2, 4)] {
        let found = go(vec![stored.clone(), load, use_early.clone()]);
        assert_eq!(found, Err(What::NotWaited { register: "v2".into(), counter: "vmcnt" }));
    }
}

/// Only the short encodings keep a half's number in the register's: elsewhere v205 is v205, not the upper half of v77.
#[test]
fn sixteen_bits_of_a_long_encoding_lie_in_any_register() {
    let mix =
        assemble("VOP3P", "v_fma_mixlo_f16", &[("vdst", 205), ("src0", 256 + 63), ("src1", 256 + 40), ("src2", 128)]);
    let store = assemble("GLOBAL", "global_store_b16", &[("addr", 2), ("data", 200), ("saddr", 124)]);
    let mut memory = Memory::default();
    memory.add_words("some", 0x1000, &[7; 64]);
    let with = |loaded: u32, code: &[u32]| {
        let load = assemble("GLOBAL", "global_load_b32", &[("addr", 2), ("vdst", loaded), ("saddr", 124)]);
        let mut w = wave();
        for (r, x) in [(2, 0x1000), (3, 0), (40, 0), (63, 0), (200, 0), (205, 0)] {
            w.set_v(0, r, [x; 32]);
        }
        run(&[&load, code, &[END]].concat(), &mut w, &mut Lds::new(0), &memory)
    };
    assert_eq!((with(77, &mix), with(72, &store)), (Ok(()), Ok(())));
    for (register, code) in [(205, &mix), (200, &store)] {
        let in_flight = What::NotWaited { register: format!("v{register}"), counter: "vmcnt" };
        assert_eq!(with(register, code), Err(in_flight));
    }
}

/// Loads beyond what their counter counts are done once a wait leaves fewer of them, and not before.
#[test]
fn more_loads_than_their_counter_counts_are_waited_for_by_what_it_counts() {
    let mut memory = Memory::default();
    memory.add_words("some", 0x1000, &(0..32).collect::<Vec<_>>());
    let load = |to: u32| assemble("GLOBAL", "global_load_b32", &[("addr", 2), ("vdst", to), ("saddr", 124)]);
    let loads: Vec<u32> = (10..80).flat_map(load).collect();
    let wait = assemble("SOPP", "s_waitcnt", &[("simm16", 62 << 10 | 0x3f7)]);
    let used = |register: u32, wait: &[u32]| {
        let copy = assemble("VOP1", "v_mov_b32", &[("vdst", 6), ("src0", 256 + register)]);
        let mut w = wave();
        w.set_v(0, 2, std::array::from_fn(|i| 0x1000 + 4 * i as u32));
        w.set_v(0, 3, [0; 32]);
        run(&[&loads, wait, &copy, &[END]].concat(), &mut w, &mut Lds::new(0), &memory).map(|()| w.v[6][31])
    };
    let in_flight = |register: u32| Err(What::NotWaited { register: format!("v{register}"), counter: "vmcnt" });
    assert_eq!((used(10, &wait), used(17, &wait), used(18, &wait)), (Ok(31), Ok(31), in_flight(18)));
    assert_eq!(used(10, &[]), in_flight(10));
}

/// A wave stalls where the counter of its stores is full.
#[test]
fn more_stores_than_their_counter_counts_are_all_done() {
    let store = assemble("GLOBAL", "global_store_b32", &[("addr", 2), ("data", 4), ("saddr", 124)]);
    let next = assemble("VOP2", "v_add_nc_u32", &[("vdst", 2), ("src0", 132), ("vsrc1", 2)]);
    let mut memory = Memory::default();
    memory.add("some", 0x1000, 4 * 200);
    let mut w = wave();
    for (r, x) in [(2, 0x1000), (3, 0), (4, 9)] {
        w.set_v(0, r, [x; 32]);
    }
    let code: Vec<u32> = (0..200).flat_map(|_| [store.clone(), next.clone()].concat()).chain([END]).collect();
    run(&code, &mut w, &mut Lds::new(0), &memory).unwrap();
    assert_eq!(memory.buffer("some").unwrap().contents(), vec![9; 200]);
}
