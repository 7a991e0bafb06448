//! Arrays of sixteen, for CPUs whose vector units are not supported here. The compiler may vectorise them.

#![allow(unsafe_op_in_unsafe_fn)] // Every method consists of such operations.

use super::{BYTES, LANES, Lanes};
use half::{bf16, f16};

pub struct Portable;

#[inline(always)]
fn each<T: Copy + Default, const N: usize>(f: impl Fn(usize) -> T) -> [T; N] {
    let mut out = [T::default(); N];
    for (i, out) in out.iter_mut().enumerate() {
        *out = f(i);
    }
    out
}

#[inline(always)]
fn dot(sums: [i32; LANES], x: [i32; 2], weight: impl Fn(usize) -> i32) -> [i32; LANES] {
    // The low half of a word, then the high one.
    let x = [x[0] << 16 >> 16, x[0] >> 16, x[1] << 16 >> 16, x[1] >> 16];
    each(|i| sums[i] + (0..4).map(|j| weight(4 * i + j) * x[j]).sum::<i32>())
}

// SAFETY: no special instructions are used, and pointers are valid by the caller's contract.
unsafe impl Lanes for Portable {
    type F = [f32; LANES];
    type Sums = [i32; LANES];
    type B = [u8; BYTES];
    const OFFSET: u8 = 0;
    const ROWS: usize = 8;

    #[inline(always)]
    unsafe fn splat(x: f32) -> Self::F {
        [x; LANES]
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self::F {
        from.cast::<Self::F>().read_unaligned()
    }
    #[inline(always)]
    unsafe fn store(to: *mut f32, x: Self::F) {
        to.cast::<Self::F>().write_unaligned(x)
    }
    #[inline(always)]
    unsafe fn load_f16(from: *const u8) -> Self::F {
        from.cast::<[u16; LANES]>().read_unaligned().map(|x| f16::from_bits(x).to_f32())
    }
    #[inline(always)]
    unsafe fn store_f16(to: *mut u8, x: Self::F) {
        to.cast::<[u16; LANES]>().write_unaligned(x.map(|x| f16::from_f32(x).to_bits()))
    }
    #[inline(always)]
    unsafe fn load_bf16(from: *const u8) -> Self::F {
        from.cast::<[u16; LANES]>().read_unaligned().map(|x| bf16::from_bits(x).to_f32())
    }
    #[inline(always)]
    unsafe fn load_u8(from: *const u8) -> Self::F {
        from.cast::<[u8; LANES]>().read_unaligned().map(f32::from)
    }
    #[inline(always)]
    unsafe fn load_i8(from: *const u8) -> Self::F {
        from.cast::<[i8; LANES]>().read_unaligned().map(f32::from)
    }
    #[inline(always)]
    unsafe fn load_halves(from: *const u8) -> [Self::F; 2] {
        let bytes = from.cast::<[u8; LANES]>().read_unaligned();
        [bytes.map(|b| f32::from(b & 15)), bytes.map(|b| f32::from(b >> 4))]
    }
    binary! {
        add = |a, b| each(|i| a[i] + b[i]),
        sub = |a, b| each(|i| a[i] - b[i]),
        mul = |a, b| each(|i| a[i] * b[i]),
        div = |a, b| each(|i| a[i] / b[i]),
        max = |a, b| each(|i| if a[i] > b[i] { a[i] } else { b[i] }),
        min = |a, b| each(|i| if a[i] < b[i] { a[i] } else { b[i] }),
    }
    #[inline(always)]
    unsafe fn fma(a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        // Without an FMA instruction, rounding once is a slow function call.
        each(|i| a[i] * b[i] + c[i])
    }
    #[inline(always)]
    unsafe fn abs(a: Self::F) -> Self::F {
        a.map(f32::abs)
    }
    #[inline(always)]
    unsafe fn round(a: Self::F) -> Self::F {
        a.map(f32::round_ties_even)
    }
    #[inline(always)]
    unsafe fn exp2_of_integer(n: Self::F) -> Self::F {
        n.map(|n| f32::from_bits(((n as i32 + 127) << 23) as u32))
    }
    #[inline(always)]
    unsafe fn sum(a: Self::F) -> f32 {
        let eight: [f32; 8] = each(|i| a[i] + a[i + 8]);
        let four: [f32; 4] = each(|i| eight[i] + eight[i + 4]);
        (four[0] + four[2]) + (four[1] + four[3])
    }
    #[inline(always)]
    unsafe fn largest(a: Self::F) -> f32 {
        a.into_iter().fold(f32::NEG_INFINITY, |a, b| if a > b { a } else { b })
    }

    #[inline(always)]
    unsafe fn store_inputs(to: *mut [i32; 2], x: Self::F) {
        let pair = |i: usize| (x[i] as i32 & 0xffff) | (x[i + 1] as i32) << 16;
        to.cast::<[[i32; 2]; 4]>().write_unaligned(each(|i| [pair(4 * i), pair(4 * i + 2)]));
    }
    #[inline(always)]
    fn start(x: i32) -> [i32; 2] {
        [x, 0]
    }
    #[inline(always)]
    unsafe fn begin(start: *const i32) -> Self::Sums {
        [*start; LANES]
    }
    #[inline(always)]
    unsafe fn total(sums: Self::Sums) -> Self::F {
        sums.map(|sum| sum as f32)
    }
    #[inline(always)]
    unsafe fn dot(sums: Self::Sums, weights: Self::B, x: *const i32) -> Self::Sums {
        dot(sums, [*x, *x.add(1)], |at| i32::from(weights[at]))
    }
    #[inline(always)]
    unsafe fn dot_bytes(sums: Self::Sums, weights: Self::B, x: *const i32) -> Self::Sums {
        dot(sums, [*x, *x.add(1)], |at| i32::from(weights[at] as i8))
    }

    #[inline(always)]
    unsafe fn prefetch(from: *const u8) {
        let _ = from;
    }
    #[inline(always)]
    unsafe fn load_bytes(from: *const u8) -> Self::B {
        from.cast::<Self::B>().read_unaligned()
    }
    #[inline(always)]
    unsafe fn bits_at<const AT: i32, const UP: i32>(x: Self::B, mask: u8) -> Self::B {
        each(|i| (x[i] >> AT & mask) << UP)
    }
    #[inline(always)]
    unsafe fn or(a: Self::B, b: Self::B) -> Self::B {
        each(|i| a[i] | b[i])
    }
    #[inline(always)]
    unsafe fn look_up(table: &[u8; 16], at: Self::B) -> Self::B {
        at.map(|at| table[usize::from(at & 15)])
    }
}
