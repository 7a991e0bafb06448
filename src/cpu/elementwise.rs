//! The steps between products, a row at a time: norms, rotations, gates, conversions, the largest logit.

use super::lanes::{LANES, Lanes, VectorKernel, exp};

/// The sum of the squares of `x`.
#[inline(always)]
unsafe fn squares<L: Lanes>(x: &[f32]) -> f32 {
    let (whole, rest) = x.as_chunks::<LANES>();
    // SAFETY: chunks have LANES elements.
    unsafe {
        let mut sums = [L::splat(0.0); 4];
        for (i, x) in whole.iter().enumerate() {
            let x = L::load(x.as_ptr());
            sums[i % 4] = L::fma(x, x, sums[i % 4]);
        }
        let sum = L::sum(L::add(L::add(sums[0], sums[1]), L::add(sums[2], sums[3])));
        sum + rest.iter().map(|x| x * x).sum::<f32>()
    }
}

/// The factor of a row in RMSNorm: `1 / sqrt(mean(x^2) + eps)`.
#[inline(always)]
unsafe fn inverse_rms<L: Lanes>(x: &[f32], eps: f32) -> f32 {
    // SAFETY: the CPU has the instructions of `L`, by the contract of the caller.
    let squares = unsafe { squares::<L>(x) };
    1.0 / (squares / x.len() as f32 + eps).sqrt()
}

/// What a norm's result is used for.
#[derive(Clone, Copy)]
pub enum NormUse {
    /// The result is the output.
    Written,
    /// A summand of the output, which is then multiplied by a number.
    Added { scalar: f32 },
}

/// `y = x * rsqrt(mean(x^2) + eps) * (1 + weight)`, and `out = y` or `out = (out + y) * scalar`.
pub struct Norm<'a> {
    pub x: &'a [f32],
    pub weight: &'a [f32],
    pub eps: f32,
    pub then: NormUse,
    pub out: &'a mut [f32],
}

impl VectorKernel for Norm<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        // SAFETY: the CPU has the instructions of `L`, by the contract of `run`.
        let scale = unsafe { inverse_rms::<L>(self.x, self.eps) };
        let normed = self.x.iter().zip(self.weight).map(|(x, w)| x * scale * (1.0 + w));
        match self.then {
            NormUse::Written => self.out.iter_mut().zip(normed).for_each(|(out, y)| *out = y),
            NormUse::Added { scalar } => {
                self.out.iter_mut().zip(normed).for_each(|(out, y)| *out = (*out + y) * scalar);
            }
        }
    }
}

/// RMSNorm over each head of a row, then RoPE: halves of a head are rotated against each other. In place.
pub struct NormRope<'a> {
    /// The heads of one row, changed in place: `[heads, dim]`.
    pub x: &'a mut [f32],
    /// The norm's weights, `[dim]`.
    pub weight: &'a [f32],
    pub eps: f32,
    /// Cosines of the row's position, then sines, `[dim / 2]` each.
    pub turns: &'a [f32],
}

impl VectorKernel for NormRope<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        let half = self.weight.len() / 2;
        let (cos, sin) = self.turns.split_at(half);
        let (first_weight, second_weight) = self.weight.split_at(half);
        for head in self.x.chunks_exact_mut(2 * half) {
            // SAFETY: the CPU has the instructions of `L`, by the contract of `run`.
            let scale = unsafe { inverse_rms::<L>(head, self.eps) };
            let (first, second) = head.split_at_mut(half);
            for j in 0..half {
                let a = first[j] * scale * (1.0 + first_weight[j]);
                let b = second[j] * scale * (1.0 + second_weight[j]);
                first[j] = a * cos[j] - b * sin[j];
                second[j] = b * cos[j] + a * sin[j];
            }
        }
    }
}

/// `out = gelu_tanh(gate) * up`. The tanh form of GELU is `x / (1 + exp(-2 sqrt(2/pi) (x + 0.044715 x^3)))`.
pub struct GatedGelu<'a> {
    pub gate: &'a [f32],
    pub up: &'a [f32],
    pub out: &'a mut [f32],
}

#[inline(always)]
unsafe fn gelu<L: Lanes>(x: L::F) -> L::F {
    const ROOTS: f32 = 2.0 * std::f32::consts::FRAC_2_SQRT_PI * std::f32::consts::FRAC_1_SQRT_2;
    // SAFETY: no operation here uses a pointer.
    unsafe {
        let cubed = L::mul(L::mul(x, x), x);
        let inner = L::fma(cubed, L::splat(0.044715), x);
        let e = exp::<L>(L::mul(inner, L::splat(-ROOTS)));
        L::div(x, L::add(L::splat(1.0), e))
    }
}

impl VectorKernel for GatedGelu<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        let (gates, gate) = self.gate.as_chunks::<LANES>();
        let (ups, up) = self.up.as_chunks::<LANES>();
        let (outs, out) = self.out.as_chunks_mut::<LANES>();
        // SAFETY: chunks have LANES elements.
        unsafe {
            for ((gate, up), out) in gates.iter().zip(ups).zip(outs) {
                L::store(out.as_mut_ptr(), L::mul(gelu::<L>(L::load(gate.as_ptr())), L::load(up.as_ptr())));
            }
            let mut last = [[0f32; LANES]; 2];
            last[0][..gate.len()].copy_from_slice(gate);
            last[1][..up.len()].copy_from_slice(up);
            let mut product = [0f32; LANES];
            let y = L::mul(gelu::<L>(L::load(last[0].as_ptr())), L::load(last[1].as_ptr()));
            L::store(product.as_mut_ptr(), y);
            out.copy_from_slice(&product[..out.len()]);
        }
    }
}

/// `out` = the sum of each of `gains` times its row of `x`, in their order.
pub struct WeightedSum<'a> {
    /// The vectors to add, `[gains, out]`, and the distance between them in elements.
    pub x: (*const f32, usize),
    pub gains: &'a [f32],
    pub out: &'a mut [f32],
}

impl VectorKernel for WeightedSum<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        let (start, stride) = self.x;
        for (i, out) in self.out.chunks_mut(LANES).enumerate() {
            // SAFETY: the rows are as long as `out`; a partial chunk is copied first, so that no load passes a row's
            // end.
            unsafe {
                let mut sum = L::splat(0.0);
                for (row, gain) in self.gains.iter().enumerate() {
                    let from = start.add(row * stride + i * LANES);
                    let mut part = [0f32; LANES];
                    let x = match out.len() == LANES {
                        true => L::load(from),
                        false => {
                            part[..out.len()].copy_from_slice(std::slice::from_raw_parts(from, out.len()));
                            L::load(part.as_ptr())
                        }
                    };
                    sum = L::fma(L::splat(*gain), x, sum);
                }
                let mut sums = [0f32; LANES];
                L::store(sums.as_mut_ptr(), sum);
                out.copy_from_slice(&sums[..out.len()]);
            }
        }
    }
}

/// Caps logits in place: `x = cap * tanh(x / cap)`.
pub struct SoftCap<'a> {
    pub x: &'a mut [f32],
    pub cap: f32,
}

impl VectorKernel for SoftCap<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        let cap = self.cap;
        let mut last = [0f32; LANES];
        let (whole, rest) = self.x.as_chunks_mut::<LANES>();
        last[..rest.len()].copy_from_slice(rest);
        for x in whole.iter_mut().chain([&mut last]) {
            // SAFETY: chunks have LANES elements.
            unsafe {
                // tanh(y) is 1 - 2 / (exp(2 y) + 1), at either end too.
                let e = exp::<L>(L::mul(L::load(x.as_ptr()), L::splat(2.0 / cap)));
                let tanh = L::sub(L::splat(1.0), L::div(L::splat(2.0), L::add(e, L::splat(1.0))));
                L::store(x.as_mut_ptr(), L::mul(tanh, L::splat(cap)));
            }
        }
        rest.copy_from_slice(&last[..rest.len()]);
    }
}

/// Rounds f32 values to f16.
pub struct ToHalf<'a> {
    pub x: &'a [f32],
    pub out: &'a mut [u16],
}

impl VectorKernel for ToHalf<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        let (xs, x) = self.x.as_chunks::<LANES>();
        let (outs, out) = self.out.as_chunks_mut::<LANES>();
        // SAFETY: chunks have LANES elements.
        unsafe {
            xs.iter().zip(outs).for_each(|(x, out)| L::store_f16(out.as_mut_ptr().cast(), L::load(x.as_ptr())));
        }
        x.iter().zip(out).for_each(|(x, out)| *out = half::f16::from_f32(*x).to_bits());
    }
}

/// The largest element and its index, the lowest among equals; NaN counts as −∞.
pub struct Largest<'a>(pub &'a [f32]);

impl VectorKernel for Largest<'_> {
    type Output = (usize, f32);

    #[inline(always)]
    unsafe fn run<L: Lanes>(self) -> (usize, f32) {
        let (whole, rest) = self.0.as_chunks::<LANES>();
        let mut largest = f32::NEG_INFINITY;
        // SAFETY: chunks have LANES elements.
        unsafe {
            let mut sums = [L::splat(f32::NEG_INFINITY); 4];
            for (i, x) in whole.iter().enumerate() {
                // `max` returns its second operand if the first is NaN.
                sums[i % 4] = L::max(L::load(x.as_ptr()), sums[i % 4]);
            }
            for sum in sums {
                largest = largest.max(L::largest(sum));
            }
        }
        let largest = rest.iter().fold(largest, |a, &b| if b > a { b } else { a });
        (self.0.iter().position(|&x| x == largest).unwrap_or(0), largest)
    }
}

/// The sum of `exp(scale * (x - largest))`, where −∞ adds nothing. `x` is whole vectors.
pub struct SumOfExp<'a> {
    pub x: &'a [f32],
    pub largest: f32,
    pub scale: f32,
}

impl VectorKernel for SumOfExp<'_> {
    type Output = f32;

    #[inline(always)]
    unsafe fn run<L: Lanes>(self) -> f32 {
        if self.largest == f32::NEG_INFINITY {
            return 0.0;
        }
        if self.scale == 0.0 {
            // For an infinite temperature: zero times −∞ would be NaN.
            return self.x.iter().filter(|x| **x > f32::NEG_INFINITY).count() as f32;
        }
        // SAFETY: chunks have LANES elements.
        unsafe {
            let mut sum = L::splat(0.0);
            for x in self.x.as_chunks::<LANES>().0 {
                let below = L::sub(L::load(x.as_ptr()), L::splat(self.largest));
                sum = L::add(sum, exp::<L>(L::mul(below, L::splat(self.scale))));
            }
            L::sum(sum)
        }
    }
}
