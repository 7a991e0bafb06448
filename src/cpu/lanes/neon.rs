//! NEON, which every AArch64 CPU has, with dot products if the CPU has them. Sixteen lanes are four vectors of four.

#![allow(unsafe_op_in_unsafe_fn)] // Every method consists of such operations.

use super::{LANES, Lanes, VectorKernel};
use std::arch::aarch64::*;
use std::arch::asm;

/// With `DOT`, SDOT adds four products to a lane: ARMv8.2 and later, on almost all CPUs.
pub struct Neon<const DOT: bool>;

#[target_feature(enable = "neon,dotprod")]
pub unsafe fn run_with_dot<K: VectorKernel>(kernel: K) -> K::Output {
    // SAFETY: the CPU has NEON's dot products, and the kernel's own conditions hold, both by the caller's contract.
    kernel.run::<Neon<true>>()
}

#[target_feature(enable = "neon")]
pub unsafe fn run<K: VectorKernel>(kernel: K) -> K::Output {
    // SAFETY: every AArch64 CPU has NEON, and the kernel's own conditions hold by the caller's contract.
    kernel.run::<Neon<false>>()
}

/// Evaluates an expression for each quarter of a vector.
macro_rules! each {
    ($of:expr, |$x:ident| $y:expr) => {{
        let [a, b, c, d] = $of;
        [
            {
                let $x = a;
                $y
            },
            {
                let $x = b;
                $y
            },
            {
                let $x = c;
                $y
            },
            {
                let $x = d;
                $y
            },
        ]
    }};
}

/// Evaluates an expression for each pair of quarters.
macro_rules! pairs {
    ($a:expr, $b:expr, |$x:ident, $y:ident| $z:expr) => {{
        let ([a, b, c, d], [e, f, g, h]) = ($a, $b);
        [
            {
                let ($x, $y) = (a, e);
                $z
            },
            {
                let ($x, $y) = (b, f);
                $z
            },
            {
                let ($x, $y) = (c, g);
                $z
            },
            {
                let ($x, $y) = (d, h);
                $z
            },
        ]
    }};
}

/// Sixteen bytes as integers of 32 bits.
#[inline(always)]
unsafe fn widen(bytes: uint8x16_t) -> [uint32x4_t; 4] {
    let (low, high) = (vmovl_u8(vget_low_u8(bytes)), vmovl_high_u8(bytes));
    [vmovl_u16(vget_low_u16(low)), vmovl_high_u16(low), vmovl_u16(vget_low_u16(high)), vmovl_high_u16(high)]
}

/// The starts of four groups of four lanes with two bytes each.
#[inline(always)]
unsafe fn quarters(from: *const u8) -> [*const u8; 4] {
    [from, from.add(8), from.add(16), from.add(24)]
}

/// Adds to each lane the sum of four products of signed bytes.
#[inline(always)]
unsafe fn dot<const DOT: bool>(sums: int32x4_t, weights: uint8x16_t, x: int8x16_t) -> int32x4_t {
    let weights = vreinterpretq_s8_u8(weights);
    if DOT {
        // The intrinsic of this name is not stable yet.
        let mut sums = sums;
        asm!(
            "sdot {sums:v}.4s, {weights:v}.16b, {x:v}.16b",
            sums = inout(vreg) sums, weights = in(vreg) weights, x = in(vreg) x,
            options(pure, nomem, nostack, preserves_flags)
        );
        return sums;
    }
    // A product is at most 128 * 127 in magnitude, which fits in 16 bits.
    let low = vpaddlq_s16(vmull_s8(vget_low_s8(weights), vget_low_s8(x)));
    let high = vpaddlq_s16(vmull_high_s8(weights, x));
    vaddq_s32(sums, vpaddq_s32(low, high))
}

// SAFETY: every method consists of a few instructions of this kind.
unsafe impl<const DOT: bool> Lanes for Neon<DOT> {
    type F = [float32x4_t; 4];
    /// Sums for the inputs' high bytes, and for their low bytes.
    type Sums = [[int32x4_t; 4]; 2];
    type B = [uint8x16_t; 4];
    const OFFSET: u8 = 0;
    const ROWS: usize = 2;

    #[inline(always)]
    unsafe fn splat(x: f32) -> Self::F {
        [vdupq_n_f32(x); 4]
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self::F {
        [vld1q_f32(from), vld1q_f32(from.add(4)), vld1q_f32(from.add(8)), vld1q_f32(from.add(12))]
    }
    #[inline(always)]
    unsafe fn store(to: *mut f32, x: Self::F) {
        for (i, x) in x.into_iter().enumerate() {
            vst1q_f32(to.add(4 * i), x);
        }
    }
    #[inline(always)]
    unsafe fn load_f16(from: *const u8) -> Self::F {
        each!(quarters(from), |p| {
            // The intrinsic needs a newer compiler than Kiln's minimum, and so does that of `fcvtn`.
            let x: float32x4_t;
            asm!("fcvtl {x:v}.4s, {halves:v}.4h", x = out(vreg) x, halves = in(vreg) vld1_u8(p),
                options(pure, nomem, nostack, preserves_flags));
            x
        })
    }
    #[inline(always)]
    unsafe fn store_f16(to: *mut u8, x: Self::F) {
        for (i, x) in x.into_iter().enumerate() {
            let halves: uint8x8_t;
            asm!("fcvtn {halves:v}.4h, {x:v}.4s", halves = out(vreg) halves, x = in(vreg) x,
                options(pure, nomem, nostack, preserves_flags));
            vst1_u8(to.add(8 * i), halves);
        }
    }
    #[inline(always)]
    unsafe fn load_bf16(from: *const u8) -> Self::F {
        each!(quarters(from), |p| vreinterpretq_f32_u32(vshll_n_u16::<16>(vreinterpret_u16_u8(vld1_u8(p)))))
    }
    #[inline(always)]
    unsafe fn load_u8(from: *const u8) -> Self::F {
        each!(widen(vld1q_u8(from)), |x| vcvtq_f32_u32(x))
    }
    #[inline(always)]
    unsafe fn load_i8(from: *const u8) -> Self::F {
        let bytes = vld1q_s8(from.cast());
        let (low, high) = (vmovl_s8(vget_low_s8(bytes)), vmovl_high_s8(bytes));
        let wide =
            [vmovl_s16(vget_low_s16(low)), vmovl_high_s16(low), vmovl_s16(vget_low_s16(high)), vmovl_high_s16(high)];
        each!(wide, |x| vcvtq_f32_s32(x))
    }
    #[inline(always)]
    unsafe fn load_halves(from: *const u8) -> [Self::F; 2] {
        let bytes = vld1q_u8(from);
        let low = each!(widen(vandq_u8(bytes, vdupq_n_u8(15))), |x| vcvtq_f32_u32(x));
        [low, each!(widen(vshrq_n_u8::<4>(bytes)), |x| vcvtq_f32_u32(x))]
    }
    binary! {
        add = |a, b| pairs!(a, b, |a, b| vaddq_f32(a, b)),
        sub = |a, b| pairs!(a, b, |a, b| vsubq_f32(a, b)),
        mul = |a, b| pairs!(a, b, |a, b| vmulq_f32(a, b)),
        div = |a, b| pairs!(a, b, |a, b| vdivq_f32(a, b)),
        max = |a, b| pairs!(a, b, |a, b| vbslq_f32(vcgtq_f32(a, b), a, b)),
        min = |a, b| pairs!(a, b, |a, b| vbslq_f32(vcltq_f32(a, b), a, b)),
    }
    #[inline(always)]
    unsafe fn fma(a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        [
            vfmaq_f32(c[0], a[0], b[0]),
            vfmaq_f32(c[1], a[1], b[1]),
            vfmaq_f32(c[2], a[2], b[2]),
            vfmaq_f32(c[3], a[3], b[3]),
        ]
    }
    #[inline(always)]
    unsafe fn abs(a: Self::F) -> Self::F {
        each!(a, |a| vabsq_f32(a))
    }
    #[inline(always)]
    unsafe fn round(a: Self::F) -> Self::F {
        each!(a, |a| vrndnq_f32(a))
    }
    #[inline(always)]
    unsafe fn exp2_of_integer(n: Self::F) -> Self::F {
        each!(n, |n| {
            let exponent = vaddq_s32(vcvtq_s32_f32(n), vdupq_n_s32(127));
            vreinterpretq_f32_s32(vshlq_n_s32::<23>(exponent))
        })
    }
    #[inline(always)]
    unsafe fn sum(a: Self::F) -> f32 {
        let four = vaddq_f32(vaddq_f32(a[0], a[2]), vaddq_f32(a[1], a[3]));
        let two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
        vget_lane_f32::<0>(two) + vget_lane_f32::<1>(two)
    }
    #[inline(always)]
    unsafe fn largest(a: Self::F) -> f32 {
        vmaxnmvq_f32(vmaxnmq_f32(vmaxnmq_f32(a[0], a[1]), vmaxnmq_f32(a[2], a[3])))
    }

    #[inline(always)]
    unsafe fn store_inputs(to: *mut [i32; 2], x: Self::F) {
        let x = each!(x, |x| vcvtnq_s32_f32(x));
        let high = each!(x, |x| vshrq_n_s32::<7>(vaddq_s32(x, vdupq_n_s32(64))));
        let low = pairs!(x, high, |x, high| vsubq_s32(x, vshlq_n_s32::<7>(high)));
        let bytes = |x: [int32x4_t; 4]| {
            let [a, b, c, d] = each!(x, |x| vmovn_s32(x));
            vreinterpretq_s32_s8(vcombine_s8(vmovn_s16(vcombine_s16(a, b)), vmovn_s16(vcombine_s16(c, d))))
        };
        let (high, low) = (bytes(high), bytes(low));
        vst1q_s32(to.cast(), vzip1q_s32(high, low));
        vst1q_s32(to.add(2).cast(), vzip2q_s32(high, low));
    }
    #[inline(always)]
    fn start(x: i32) -> [i32; 2] {
        [x >> 7, x & 127]
    }
    #[inline(always)]
    unsafe fn begin(start: *const i32) -> Self::Sums {
        [[vdupq_n_s32(*start); 4], [vdupq_n_s32(*start.add(1)); 4]]
    }
    #[inline(always)]
    unsafe fn total(sums: Self::Sums) -> Self::F {
        let [high, low] = sums;
        each!(pairs!(high, low, |high, low| vaddq_s32(vshlq_n_s32::<7>(high), low)), |x| vcvtq_f32_s32(x))
    }
    #[inline(always)]
    unsafe fn dot(sums: Self::Sums, weights: Self::B, x: *const i32) -> Self::Sums {
        let [high, low] = sums;
        let x = [vreinterpretq_s8_s32(vdupq_n_s32(*x)), vreinterpretq_s8_s32(vdupq_n_s32(*x.add(1)))];
        [
            pairs!(high, weights, |sums, weights| dot::<DOT>(sums, weights, x[0])),
            pairs!(low, weights, |sums, weights| dot::<DOT>(sums, weights, x[1])),
        ]
    }
    #[inline(always)]
    unsafe fn dot_bytes(sums: Self::Sums, weights: Self::B, x: *const i32) -> Self::Sums {
        Self::dot(sums, weights, x)
    }

    #[inline(always)]
    unsafe fn prefetch(from: *const u8) {
        asm!("prfm pldl1strm, [{from}]", from = in(reg) from, options(readonly, nostack, preserves_flags))
    }
    #[inline(always)]
    unsafe fn load_bytes(from: *const u8) -> Self::B {
        each!([from, from.add(LANES), from.add(2 * LANES), from.add(3 * LANES)], |p| vld1q_u8(p))
    }
    #[inline(always)]
    unsafe fn bits_at<const AT: i32, const UP: i32>(x: Self::B, mask: u8) -> Self::B {
        // A left shift by a negative number is a right shift.
        each!(x, |x| vandq_u8(vshlq_u8(x, vdupq_n_s8((UP - AT) as i8)), vdupq_n_u8(mask << UP)))
    }
    #[inline(always)]
    unsafe fn or(a: Self::B, b: Self::B) -> Self::B {
        pairs!(a, b, |a, b| vorrq_u8(a, b))
    }
    #[inline(always)]
    unsafe fn look_up(table: &[u8; 16], at: Self::B) -> Self::B {
        let table = vld1q_u8(table.as_ptr());
        each!(at, |at| vqtbl1q_u8(table, at))
    }
}
