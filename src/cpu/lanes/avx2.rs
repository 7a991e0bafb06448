//! AVX2 with FMA and F16C: Haswell and later, Zen and later. Sixteen lanes are two vectors of eight.

#![allow(unsafe_op_in_unsafe_fn)] // Every method consists of such operations.

use super::{Lanes, VectorKernel};
use std::arch::x86_64::*;

pub struct Avx2;

#[target_feature(enable = "avx2,fma,f16c")]
pub unsafe fn run<K: VectorKernel>(kernel: K) -> K::Output {
    // SAFETY: the CPU has AVX2, FMA and F16C, and the kernel's own conditions hold, both by the caller's contract.
    kernel.run::<Avx2>()
}

/// The sum of eight lanes, by adding halves repeatedly.
#[inline(always)]
pub unsafe fn sum8(a: __m256) -> f32 {
    let four = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
    let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps::<1>(two, two)))
}

#[inline(always)]
unsafe fn both<A: Copy, B>(a: [A; 2], f: impl Fn(A) -> B) -> [B; 2] {
    [f(a[0]), f(a[1])]
}

#[inline(always)]
unsafe fn pairs<A: Copy, C>(a: [A; 2], b: [A; 2], f: impl Fn(A, A) -> C) -> [C; 2] {
    [f(a[0], b[0]), f(a[1], b[1])]
}

// SAFETY: every method consists of a few instructions of this kind.
unsafe impl Lanes for Avx2 {
    type F = [__m256; 2];
    type Sums = [__m256i; 2];
    type B = [__m256i; 2];
    const OFFSET: u8 = 0;
    const ROWS: usize = 4;

    #[inline(always)]
    unsafe fn splat(x: f32) -> Self::F {
        [_mm256_set1_ps(x); 2]
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self::F {
        [_mm256_loadu_ps(from), _mm256_loadu_ps(from.add(8))]
    }
    #[inline(always)]
    unsafe fn store(to: *mut f32, x: Self::F) {
        _mm256_storeu_ps(to, x[0]);
        _mm256_storeu_ps(to.add(8), x[1]);
    }
    #[inline(always)]
    unsafe fn load_f16(from: *const u8) -> Self::F {
        both([from, from.add(16)], |p| _mm256_cvtph_ps(_mm_loadu_si128(p.cast())))
    }
    #[inline(always)]
    unsafe fn store_f16(to: *mut u8, x: Self::F) {
        _mm_storeu_si128(to.cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(x[0]));
        _mm_storeu_si128(to.add(16).cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(x[1]));
    }
    #[inline(always)]
    unsafe fn load_bf16(from: *const u8) -> Self::F {
        both([from, from.add(16)], |p| {
            let wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(p.cast()));
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide))
        })
    }
    #[inline(always)]
    unsafe fn load_u8(from: *const u8) -> Self::F {
        both([from, from.add(8)], |p| _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(p.cast()))))
    }
    #[inline(always)]
    unsafe fn load_i8(from: *const u8) -> Self::F {
        both([from, from.add(8)], |p| _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(p.cast()))))
    }
    #[inline(always)]
    unsafe fn load_halves(from: *const u8) -> [Self::F; 2] {
        let wide = both([from, from.add(8)], |p| _mm256_cvtepu8_epi32(_mm_loadl_epi64(p.cast())));
        let low = both(wide, |w| _mm256_cvtepi32_ps(_mm256_and_si256(w, _mm256_set1_epi32(15))));
        [low, both(wide, |w| _mm256_cvtepi32_ps(_mm256_srli_epi32::<4>(w)))]
    }
    binary! {
        add = |a, b| pairs(a, b, |a, b| _mm256_add_ps(a, b)),
        sub = |a, b| pairs(a, b, |a, b| _mm256_sub_ps(a, b)),
        mul = |a, b| pairs(a, b, |a, b| _mm256_mul_ps(a, b)),
        div = |a, b| pairs(a, b, |a, b| _mm256_div_ps(a, b)),
        max = |a, b| pairs(a, b, |a, b| _mm256_max_ps(a, b)),
        min = |a, b| pairs(a, b, |a, b| _mm256_min_ps(a, b)),
    }
    #[inline(always)]
    unsafe fn fma(a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        [_mm256_fmadd_ps(a[0], b[0], c[0]), _mm256_fmadd_ps(a[1], b[1], c[1])]
    }
    #[inline(always)]
    unsafe fn abs(a: Self::F) -> Self::F {
        both(a, |a| _mm256_andnot_ps(_mm256_set1_ps(-0.0), a))
    }
    #[inline(always)]
    unsafe fn round(a: Self::F) -> Self::F {
        both(a, |a| _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a))
    }
    #[inline(always)]
    unsafe fn exp2_of_integer(n: Self::F) -> Self::F {
        both(n, |n| {
            let exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
            _mm256_castsi256_ps(_mm256_slli_epi32::<23>(exponent))
        })
    }
    #[inline(always)]
    unsafe fn sum(a: Self::F) -> f32 {
        sum8(_mm256_add_ps(a[0], a[1]))
    }
    #[inline(always)]
    unsafe fn largest(a: Self::F) -> f32 {
        let eight = _mm256_max_ps(a[0], a[1]);
        let four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight));
        let two = _mm_max_ps(four, _mm_movehl_ps(four, four));
        _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps::<1>(two, two)))
    }

    #[inline(always)]
    unsafe fn store_inputs(to: *mut [i32; 2], x: Self::F) {
        let [a, b] = both(x, |x| _mm256_cvtps_epi32(x));
        // Packing works within halves of a vector: the quarters come out as 0, 2, 1, 3.
        let words = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packs_epi32(a, b));
        // Of four 16-bit inputs, the first word has 0 and 2, and the second 1 and 3.
        let order = _mm_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15);
        _mm256_storeu_si256(to.cast(), _mm256_shuffle_epi8(words, _mm256_broadcastsi128_si256(order)));
    }
    #[inline(always)]
    fn start(x: i32) -> [i32; 2] {
        [x, 0]
    }
    #[inline(always)]
    unsafe fn begin(start: *const i32) -> Self::Sums {
        [_mm256_set1_epi32(*start); 2]
    }
    #[inline(always)]
    unsafe fn total(sums: Self::Sums) -> Self::F {
        both(sums, |sum| _mm256_cvtepi32_ps(sum))
    }
    #[inline(always)]
    unsafe fn dot(sums: Self::Sums, weights: Self::B, x: *const i32) -> Self::Sums {
        let x = [_mm256_set1_epi32(*x), _mm256_set1_epi32(*x.add(1))];
        pairs(sums, weights, |sum, w| {
            let even = _mm256_madd_epi16(_mm256_and_si256(w, _mm256_set1_epi16(255)), x[0]);
            let odd = _mm256_madd_epi16(_mm256_srli_epi16::<8>(w), x[1]);
            _mm256_add_epi32(sum, _mm256_add_epi32(even, odd))
        })
    }
    #[inline(always)]
    unsafe fn dot_bytes(sums: Self::Sums, weights: Self::B, x: *const i32) -> Self::Sums {
        let x = [_mm256_set1_epi32(*x), _mm256_set1_epi32(*x.add(1))];
        pairs(sums, weights, |sum, w| {
            let even = _mm256_madd_epi16(_mm256_srai_epi16::<8>(_mm256_slli_epi16::<8>(w)), x[0]);
            let odd = _mm256_madd_epi16(_mm256_srai_epi16::<8>(w), x[1]);
            _mm256_add_epi32(sum, _mm256_add_epi32(even, odd))
        })
    }

    #[inline(always)]
    unsafe fn prefetch(from: *const u8) {
        _mm_prefetch::<_MM_HINT_T0>(from.cast())
    }
    #[inline(always)]
    unsafe fn load_bytes(from: *const u8) -> Self::B {
        both([from, from.add(32)], |p| _mm256_loadu_si256(p.cast()))
    }
    #[inline(always)]
    unsafe fn bits_at<const AT: i32, const UP: i32>(x: Self::B, mask: u8) -> Self::B {
        // Shifts work on 16 bits: the mask removes bits of the other byte.
        let by = const { (AT - UP).unsigned_abs() };
        both(x, |x| {
            let moved = match AT - UP {
                0 => x,
                n if n > 0 => _mm256_srl_epi16(x, _mm_cvtsi32_si128(by as i32)),
                _ => _mm256_sll_epi16(x, _mm_cvtsi32_si128(by as i32)),
            };
            _mm256_and_si256(moved, _mm256_set1_epi8((mask << UP) as i8))
        })
    }
    #[inline(always)]
    unsafe fn or(a: Self::B, b: Self::B) -> Self::B {
        pairs(a, b, |a, b| _mm256_or_si256(a, b))
    }
    #[inline(always)]
    unsafe fn look_up(table: &[u8; 16], at: Self::B) -> Self::B {
        let table = _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast()));
        both(at, |at| _mm256_shuffle_epi8(table, at))
    }
}
