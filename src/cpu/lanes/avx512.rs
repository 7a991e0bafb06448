//! AVX-512 with VNNI: Zen 4 and later, Ice Lake and later.

#![allow(unsafe_op_in_unsafe_fn)] // Every method consists of such operations.

use super::{LANES, Lanes, VectorKernel};
use std::arch::x86_64::*;

pub struct Avx512;

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
pub unsafe fn run<K: VectorKernel>(kernel: K) -> K::Output {
    // SAFETY: the CPU has AVX-512 with VNNI, and the kernel's own conditions hold, both by the caller's contract.
    kernel.run::<Avx512>()
}

// SAFETY: every method consists of one or a few instructions of this kind.
unsafe impl Lanes for Avx512 {
    type F = __m512;
    /// Sums for the inputs' high bytes, and for their low bytes.
    type Sums = [__m512i; 2];
    type B = __m512i;
    const OFFSET: u8 = 128;
    const ROWS: usize = 8;

    #[inline(always)]
    unsafe fn splat(x: f32) -> __m512 {
        _mm512_set1_ps(x)
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> __m512 {
        _mm512_loadu_ps(from)
    }
    #[inline(always)]
    unsafe fn store(to: *mut f32, x: __m512) {
        _mm512_storeu_ps(to, x)
    }
    #[inline(always)]
    unsafe fn load_f16(from: *const u8) -> __m512 {
        _mm512_cvtph_ps(_mm256_loadu_si256(from.cast()))
    }
    #[inline(always)]
    unsafe fn store_f16(to: *mut u8, x: __m512) {
        _mm256_storeu_si256(to.cast(), _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(x))
    }
    #[inline(always)]
    unsafe fn load_bf16(from: *const u8) -> __m512 {
        let wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(from.cast()));
        _mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide))
    }
    #[inline(always)]
    unsafe fn load_u8(from: *const u8) -> __m512 {
        _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(from.cast())))
    }
    #[inline(always)]
    unsafe fn load_i8(from: *const u8) -> __m512 {
        _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(from.cast())))
    }
    #[inline(always)]
    unsafe fn load_halves(from: *const u8) -> [__m512; 2] {
        let wide = _mm512_cvtepu8_epi32(_mm_loadu_si128(from.cast()));
        let low = _mm512_and_si512(wide, _mm512_set1_epi32(15));
        [_mm512_cvtepi32_ps(low), _mm512_cvtepi32_ps(_mm512_srli_epi32::<4>(wide))]
    }
    binary! {
        add = |a, b| _mm512_add_ps(a, b),
        sub = |a, b| _mm512_sub_ps(a, b),
        mul = |a, b| _mm512_mul_ps(a, b),
        div = |a, b| _mm512_div_ps(a, b),
        max = |a, b| _mm512_max_ps(a, b),
        min = |a, b| _mm512_min_ps(a, b),
    }
    #[inline(always)]
    unsafe fn fma(a: __m512, b: __m512, c: __m512) -> __m512 {
        _mm512_fmadd_ps(a, b, c)
    }
    #[inline(always)]
    unsafe fn abs(a: __m512) -> __m512 {
        _mm512_abs_ps(a)
    }
    #[inline(always)]
    unsafe fn round(a: __m512) -> __m512 {
        _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a)
    }
    #[inline(always)]
    unsafe fn exp2_of_integer(n: __m512) -> __m512 {
        _mm512_scalef_ps(_mm512_set1_ps(1.0), n)
    }
    #[inline(always)]
    unsafe fn sum(a: __m512) -> f32 {
        let halves = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps::<1>(a));
        super::avx2::sum8(halves)
    }
    #[inline(always)]
    unsafe fn largest(a: __m512) -> f32 {
        _mm512_reduce_max_ps(a)
    }

    #[inline(always)]
    unsafe fn store_inputs(to: *mut [i32; 2], x: __m512) {
        let x = _mm512_cvtps_epi32(x);
        let high = _mm512_srai_epi32::<7>(_mm512_add_epi32(x, _mm512_set1_epi32(64)));
        let low = _mm512_sub_epi32(x, _mm512_slli_epi32::<7>(high));
        let (high, low) = (_mm512_cvtepi32_epi8(high), _mm512_cvtepi32_epi8(low));
        _mm_storeu_si128(to.cast(), _mm_unpacklo_epi32(high, low));
        _mm_storeu_si128(to.add(2).cast(), _mm_unpackhi_epi32(high, low));
    }
    #[inline(always)]
    fn start(x: i32) -> [i32; 2] {
        [x >> 7, x & 127]
    }
    #[inline(always)]
    unsafe fn begin(start: *const i32) -> Self::Sums {
        [_mm512_set1_epi32(*start), _mm512_set1_epi32(*start.add(1))]
    }
    #[inline(always)]
    unsafe fn total(sums: Self::Sums) -> __m512 {
        // Integers below 2^31, added on execution units that are not busy with products.
        _mm512_cvtepi32_ps(_mm512_add_epi32(_mm512_slli_epi32::<7>(sums[0]), sums[1]))
    }
    #[inline(always)]
    unsafe fn dot(sums: Self::Sums, weights: __m512i, x: *const i32) -> Self::Sums {
        [
            _mm512_dpbusd_epi32(sums[0], weights, _mm512_set1_epi32(*x)),
            _mm512_dpbusd_epi32(sums[1], weights, _mm512_set1_epi32(*x.add(1))),
        ]
    }
    #[inline(always)]
    unsafe fn dot_bytes(sums: Self::Sums, weights: __m512i, x: *const i32) -> Self::Sums {
        Self::dot(sums, weights, x)
    }

    #[inline(always)]
    unsafe fn prefetch(from: *const u8) {
        _mm_prefetch::<_MM_HINT_T0>(from.cast())
    }
    #[inline(always)]
    unsafe fn load_bytes(from: *const u8) -> __m512i {
        _mm512_loadu_si512(from.cast())
    }
    #[inline(always)]
    unsafe fn bits_at<const AT: i32, const UP: i32>(x: __m512i, mask: u8) -> __m512i {
        // Shifts work on 16 bits: the mask removes bits of the other byte.
        let by = const { (AT - UP).unsigned_abs() };
        let moved = match AT - UP {
            0 => x,
            n if n > 0 => _mm512_srl_epi16(x, _mm_cvtsi32_si128(by as i32)),
            _ => _mm512_sll_epi16(x, _mm_cvtsi32_si128(by as i32)),
        };
        _mm512_and_si512(moved, _mm512_set1_epi8((mask << UP) as i8))
    }
    #[inline(always)]
    unsafe fn or(a: __m512i, b: __m512i) -> __m512i {
        _mm512_or_si512(a, b)
    }
    #[inline(always)]
    unsafe fn look_up(table: &[u8; LANES], at: __m512i) -> __m512i {
        _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128(table.as_ptr().cast())), at)
    }
}
