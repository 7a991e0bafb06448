//! WMMA against plain arithmetic, through the layout that the manuals describe.

use crate::common::{END, Random, assemble, run, wave};
use gfx11::fault::What;
use gfx11::float::{f16_to_f32, f32_to_f16};
use gfx11::lds::Lds;
use gfx11::memory::Memory;
use gfx11::ops::Lanes;
use gfx11::wave::Wave;

const A: u32 = 0;
const B: u32 = 8;
const C: u32 = 16;
const D: u32 = 32;

fn execute(name: &str, neg: u32, clamp: u32, w: &mut Wave) -> Result<(), What> {
    let fields = [("vdst", D), ("src0", 256 + A), ("src1", 256 + B), ("src2", 256 + C), ("neg", neg), ("clmp", clamp)];
    let code = [assemble("VOP3P", name, &fields), vec![END]].concat();
    run(&code, w, &mut Lds::new(0), &Memory::default())
}

/// Puts a matrix of rows (A) or columns (B) into registers: elements of `bits` bits, lane l holds line l mod 16.
fn put(w: &mut Wave, first: u32, bits: usize, element: impl Fn(usize, usize) -> u32) {
    let per = 32 / bits;
    for r in 0..16 / per {
        let word = |lane: usize| (0..per).fold(0, |all, i| all | element(lane % 16, per * r + i) << (bits * i));
        w.set_v(0, first as usize + r, std::array::from_fn(word));
    }
}

fn put_sums(w: &mut Wave, element: impl Fn(usize, usize) -> u32) {
    for r in 0..8 {
        w.set_v(0, C as usize + r, std::array::from_fn(|lane| element(2 * r + lane / 16, lane % 16)));
    }
}

/// D's element of that row and column.
fn sum(w: &Wave, row: usize, column: usize) -> u32 {
    let r: &Lanes = &w.v[D as usize + row / 2];
    r[row % 2 * 16 + column]
}

fn small(random: &mut Random) -> [[f32; 16]; 16] {
    std::array::from_fn(|_| std::array::from_fn(|_| (random.next() % 33) as f32 - 16.0))
}

/// Whole numbers, so that no order of the sum rounds.
#[test]
fn floats_give_the_matrix_product() {
    let mut random = Random(5);
    for round in 0..200 {
        let [a, b, c] = [0; 3].map(|_| small(&mut random));
        for name in ["f32_16x16x16_f16", "f32_16x16x16_bf16", "f16_16x16x16_f16", "bf16_16x16x16_bf16"] {
            let brain = name.ends_with("bf16");
            let bits = |x: f32| if brain { x.to_bits() >> 16 } else { f32_to_f16(x) };
            let narrow = !name.starts_with("f32");
            let mut w = wave();
            put(&mut w, A, 16, |row, k| bits(a[row][k]));
            put(&mut w, B, 16, |column, k| bits(b[k][column]));
            put_sums(&mut w, |row, column| if narrow { bits(c[row][column]) } else { c[row][column].to_bits() });
            (32..40).for_each(|r| w.set_v(0, r, [0; 32]));
            execute(&format!("v_wmma_{name}"), 0, 0, &mut w).unwrap();
            for (row, column) in (0..256).map(|i| (i / 16, i % 16)) {
                let want = (0..16).fold(c[row][column], |sum, k| sum + a[row][k] * b[k][column]);
                let got = sum(&w, row, column);
                let got = match (narrow, brain) {
                    (false, _) => f32::from_bits(got),
                    (_, false) => f16_to_f32(got & 0xffff),
                    _ => f32::from_bits(got << 16),
                };
                // bf16 has 8 bits, f16 11 of the sum's 13.
                let near = if narrow { want.abs() / if brain { 256.0 } else { 2048.0 } } else { 0.0 };
                assert!((got - want).abs() <= near, "{name}, round {round}, {row}, {column}: {got}, not {want}");
            }
        }
    }
}

#[test]
fn integers_give_the_matrix_product() {
    let mut random = Random(6);
    for _ in 0..200 {
        for (name, bits) in [("v_wmma_i32_16x16x16_iu8", 8), ("v_wmma_i32_16x16x16_iu4", 4)] {
            let matrix = |random: &mut Random| -> [[u32; 16]; 16] {
                std::array::from_fn(|_| std::array::from_fn(|_| random.next() & ((1 << bits) - 1)))
            };
            let [a, b] = [0; 2].map(|_| matrix(&mut random));
            let c: [[u32; 16]; 16] = std::array::from_fn(|_| std::array::from_fn(|_| random.next()));
            let (neg, clamp) = (random.next() & 3, random.next() & 1);
            let mut w = wave();
            put(&mut w, A, bits, |row, k| a[row][k]);
            put(&mut w, B, bits, |column, k| b[k][column]);
            put_sums(&mut w, |row, column| c[row][column]);
            execute(name, neg, clamp, &mut w).unwrap();
            let number = |x: u32, signed: bool| x as i64 - if signed && x >> (bits - 1) != 0 { 1 << bits } else { 0 };
            for (row, column) in (0..256).map(|i| (i / 16, i % 16)) {
                let term = |k: usize| number(a[row][k], neg & 1 != 0) * number(b[k][column], neg & 2 != 0);
                let want = c[row][column] as i32 as i64 + (0..16).map(term).sum::<i64>();
                let want = if clamp != 0 { want.clamp(-(1 << 31), (1 << 31) - 1) } else { want };
                assert_eq!(sum(&w, row, column), want as u32, "{name} neg {neg} clamp {clamp}");
            }
        }
    }
}

/// Two lanes exchanged in one half of the wave: the hardware would compute something, this does not.
#[test]
fn a_swapped_lane_is_caught() {
    let filled = || {
        let mut w = wave();
        put(&mut w, A, 16, |row, k| (16 * row + k) as u32);
        put(&mut w, B, 16, |column, k| (16 * k + column) as u32);
        put_sums(&mut w, |_, _| 0);
        w
    };
    let mut w = filled();
    execute("v_wmma_f32_16x16x16_f16", 0, 0, &mut w).unwrap();
    let right = sum(&w, 3, 4);
    for (first, what) in [(A, "A"), (B, "B")] {
        let mut w = filled();
        w.v[first as usize + 2].swap(19, 20);
        let what = What::Poison(format!("the second copy of {what} of a matrix product"));
        assert_eq!(execute("v_wmma_f32_16x16x16_f16", 0, 0, &mut w), Err(what));
    }
    // In both halves it is another matrix, and the sum another.
    let mut w = filled();
    (0..8).for_each(|r| {
        w.v[r].swap(3, 4);
        w.v[r].swap(19, 20);
    });
    execute("v_wmma_f32_16x16x16_f16", 0, 0, &mut w).unwrap();
    assert_ne!(sum(&w, 3, 4), right);
    assert_eq!(sum(&w, 4, 4), right);
}

#[test]
fn an_operand_never_written_and_a_wave_not_full_are_refused() {
    let mut w = wave();
    put(&mut w, A, 16, |_, _| 0);
    assert_eq!(execute("v_wmma_f32_16x16x16_f16", 0, 0, &mut w), Err(What::Poison("B of a matrix product".into())));
    put(&mut w, B, 16, |_, _| 0);
    put_sums(&mut w, |_, _| 0);
    w.set_s(126, 0xffff);
    w.state = gfx11::wave::State::Running;
    w.pc = 0;
    let what = execute("v_wmma_f32_16x16x16_f16", 0, 0, &mut w).unwrap_err();
    assert_eq!(what.to_string(), "v_wmma_f32_16x16x16_f16 but in a full wave32 is not executed");
}
