//! Vectors of sixteen lanes, the kernels' operations on each kind of vector unit.
//!
//! A kernel is written once, over [`Lanes`], and compiled for each of these kinds. [`VectorUnits::run`] runs a kernel
//! with the instructions of one kind. All methods are `#[inline(always)]`, so that a kernel becomes one function for
//! its kind.

/// Methods of [`Lanes`] that take two vectors and return one.
macro_rules! binary {
    ($($name:ident = |$a:ident, $b:ident| $result:expr,)+) => {
        $(
            #[inline(always)]
            unsafe fn $name($a: Self::F, $b: Self::F) -> Self::F {
                $result
            }
        )+
    };
}

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;
mod portable;

/// Lanes of a vector, and rows of weights in a panel.
pub const LANES: usize = 16;
/// Bytes of a vector of weights: four per lane.
pub const BYTES: usize = 4 * LANES;
/// The largest input of a dot product. An input is two bytes, the low one counting 128ths of the high one, and both are
/// within ±127.
pub const LARGEST_INPUT: f32 = 127.0 * 128.0;

/// Vectors of sixteen lanes. A lane of `B` is four bytes.
///
/// # Safety
/// The CPU has the instructions of the implementing kind: methods are only called within [`VectorUnits::run`]. Pointers
/// are valid for a method's reads or writes; they need no alignment.
#[allow(clippy::missing_safety_doc)] // The trait's own section applies.
pub unsafe trait Lanes {
    /// A vector of sixteen f32.
    type F: Copy;
    /// Sixteen sums of products, in the representation of the kind's dot products.
    type Sums: Copy;
    /// A vector of sixty-four bytes, in sixteen groups of four.
    type B: Copy;
    /// The offset of 8-bit weights if [`Lanes::dot`] multiplies unsigned bytes; 0 if it multiplies signed ones.
    const OFFSET: u8;
    /// Rows of inputs that a panel is multiplied with at a time: their sums and a panel's vector fit in registers.
    const ROWS: usize;

    unsafe fn splat(x: f32) -> Self::F;
    /// Reads sixteen f32, which need no alignment.
    unsafe fn load(from: *const f32) -> Self::F;
    /// Writes sixteen f32 to memory.
    unsafe fn store(to: *mut f32, x: Self::F);
    /// Reads sixteen IEEE halves, and widens them to f32.
    unsafe fn load_f16(from: *const u8) -> Self::F;
    /// Writes sixteen IEEE halves, rounded to nearest even.
    unsafe fn store_f16(to: *mut u8, x: Self::F);
    /// Reads sixteen bfloat16, and widens them to f32.
    unsafe fn load_bf16(from: *const u8) -> Self::F;
    /// Reads sixteen unsigned bytes, and gives their values as f32.
    unsafe fn load_u8(from: *const u8) -> Self::F;
    /// Reads sixteen signed bytes, and gives their values as f32.
    unsafe fn load_i8(from: *const u8) -> Self::F;
    /// Reads sixteen bytes, and returns their low and high halves as integers.
    unsafe fn load_halves(from: *const u8) -> [Self::F; 2];
    unsafe fn add(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn sub(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn mul(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn div(a: Self::F, b: Self::F) -> Self::F;
    /// Computes `a * b + c` in each lane, rounded once.
    unsafe fn fma(a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// The larger of each pair; `b` if either is NaN.
    unsafe fn max(a: Self::F, b: Self::F) -> Self::F;
    /// The smaller of each pair; `b` if either is NaN.
    unsafe fn min(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn abs(a: Self::F) -> Self::F;
    /// Rounds to the nearest integer, halves to even.
    unsafe fn round(a: Self::F) -> Self::F;
    /// Computes `2^n` in each lane, for integers from -126 to 127.
    unsafe fn exp2_of_integer(n: Self::F) -> Self::F;
    /// The sum of all lanes, in an order that is the same on every kind.
    unsafe fn sum(a: Self::F) -> f32;
    /// The largest value of all lanes.
    unsafe fn largest(a: Self::F) -> f32;

    /// Writes sixteen integers within ±[`LARGEST_INPUT`] as inputs of dot products: two words for each four inputs.
    unsafe fn store_inputs(to: *mut [i32; 2], x: Self::F);
    /// The start value `x` of sums, within ±2^27, in the form for [`Lanes::begin`].
    fn start(x: i32) -> [i32; 2];
    /// Sums that start with a [`Lanes::start`], whose first word `start` points to.
    unsafe fn begin(start: *const i32) -> Self::Sums;
    /// The sums as f32, each rounded once.
    unsafe fn total(sums: Self::Sums) -> Self::F;
    /// Adds to each lane the sum of four products of unsigned weights up to 63 and four inputs. The inputs are the same
    /// for all lanes, and `x` points to their first word. Sums are exact within ±2^28.
    unsafe fn dot(sums: Self::Sums, weights: Self::B, x: *const i32) -> Self::Sums;
    /// [`Lanes::dot`] for 8-bit weights: signed ones, or if [`Lanes::OFFSET`] is not 0 signed ones plus it.
    unsafe fn dot_bytes(sums: Self::Sums, weights: Self::B, x: *const i32) -> Self::Sums;

    /// Prefetches a line of memory. Any address is allowed.
    unsafe fn prefetch(from: *const u8);
    unsafe fn load_bytes(from: *const u8) -> Self::B;
    /// Each byte shifted down by `AT`, masked with `mask`.
    #[inline(always)]
    unsafe fn bits<const AT: i32>(x: Self::B, mask: u8) -> Self::B {
        // SAFETY: the operands hold by this function's contract.
        unsafe { Self::bits_at::<AT, 0>(x, mask) }
    }
    /// Each byte shifted down by `AT`, masked with `mask`, and shifted up by `UP`.
    unsafe fn bits_at<const AT: i32, const UP: i32>(x: Self::B, mask: u8) -> Self::B;
    unsafe fn or(a: Self::B, b: Self::B) -> Self::B;
    /// The table's entry for each byte, which is below 16.
    unsafe fn look_up(table: &[u8; 16], at: Self::B) -> Self::B;
}

/// A computation that is compiled for each kind of vector units.
pub trait VectorKernel {
    /// The type of the computation's result.
    type Output;

    /// Runs the computation.
    ///
    /// # Safety
    /// As [`Lanes`]; implementations are `#[inline(always)]`.
    unsafe fn run<L: Lanes>(self) -> Self::Output;
}

/// The kinds of vector units that kernels are compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VectorUnits {
    /// AVX-512 with VNNI: F, BW, VL, VNNI.
    #[cfg(target_arch = "x86_64")]
    Avx512,
    /// AVX2 with FMA and F16C.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// NEON with dot products.
    #[cfg(target_arch = "aarch64")]
    NeonDot,
    /// NEON without dot products.
    #[cfg(target_arch = "aarch64")]
    Neon,
    /// No vector units: portable code for every processor.
    Portable,
}

impl VectorUnits {
    /// The fastest kind of vector units that this CPU has.
    pub fn best() -> VectorUnits {
        VectorUnits::all()[0]
    }

    /// All kinds that this CPU has, the best first.
    pub fn all() -> Vec<VectorUnits> {
        let mut all = Vec::new();
        #[cfg(target_arch = "x86_64")]
        {
            let avx2 =
                is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c");
            let avx512 = is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("avx512vnni");
            if avx2 && avx512 {
                all.push(VectorUnits::Avx512);
            }
            if avx2 {
                all.push(VectorUnits::Avx2);
            }
        }
        #[cfg(target_arch = "aarch64")]
        {
            if std::arch::is_aarch64_feature_detected!("dotprod") {
                all.push(VectorUnits::NeonDot);
            }
            all.push(VectorUnits::Neon);
        }
        all.push(VectorUnits::Portable);
        all
    }

    /// The vector unit's part of the executor's name: `AVX-512 VNNI`.
    pub fn name(self) -> &'static str {
        match self {
            #[cfg(target_arch = "x86_64")]
            VectorUnits::Avx512 => "AVX-512 VNNI",
            #[cfg(target_arch = "x86_64")]
            VectorUnits::Avx2 => "AVX2",
            #[cfg(target_arch = "aarch64")]
            VectorUnits::NeonDot => "NEON with dot products",
            #[cfg(target_arch = "aarch64")]
            VectorUnits::Neon => "NEON",
            VectorUnits::Portable => "no vector units known",
        }
    }

    /// The offset of 8-bit weights for this kind ([`Lanes::OFFSET`]).
    pub fn offset(self) -> u8 {
        match self {
            #[cfg(target_arch = "x86_64")]
            VectorUnits::Avx512 => avx512::Avx512::OFFSET,
            #[cfg(target_arch = "x86_64")]
            VectorUnits::Avx2 => avx2::Avx2::OFFSET,
            #[cfg(target_arch = "aarch64")]
            VectorUnits::NeonDot => neon::Neon::<true>::OFFSET,
            #[cfg(target_arch = "aarch64")]
            VectorUnits::Neon => neon::Neon::<false>::OFFSET,
            VectorUnits::Portable => portable::Portable::OFFSET,
        }
    }

    /// Runs a kernel with this kind's instructions.
    ///
    /// # Safety
    /// The kernel's own conditions. The CPU has the kind, as every one from [`VectorUnits::all`].
    #[inline]
    pub unsafe fn run<K: VectorKernel>(self, kernel: K) -> K::Output {
        // SAFETY: the CPU has the kind and the kernel's conditions hold, by this function's contract.
        unsafe {
            match self {
                #[cfg(target_arch = "x86_64")]
                VectorUnits::Avx512 => avx512::run(kernel),
                #[cfg(target_arch = "x86_64")]
                VectorUnits::Avx2 => avx2::run(kernel),
                #[cfg(target_arch = "aarch64")]
                VectorUnits::NeonDot => neon::run_with_dot(kernel),
                #[cfg(target_arch = "aarch64")]
                VectorUnits::Neon => neon::run(kernel),
                VectorUnits::Portable => kernel.run::<portable::Portable>(),
            }
        }
    }
}

/// `e^x`, to about two units in the last place; 0 below -104, infinity above 88.8, NaN for NaN.
///
/// # Safety
/// As [`Lanes`].
#[inline(always)]
pub unsafe fn exp<L: Lanes>(x: L::F) -> L::F {
    // SAFETY: no operation here uses a pointer.
    unsafe {
        // e^x = 2^n e^r, |r| <= ln 2 / 2, with ln 2 in two parts so that r is exact. The polynomial is multiplied by
        // two powers, each with half of n, since 2^n itself may be outside of f32's range.
        let x = L::min(L::splat(89.0), L::max(L::splat(-104.0), x));
        let n = L::round(L::mul(x, L::splat(std::f32::consts::LOG2_E)));
        let r = L::fma(n, L::splat(-0.693_359_4), x);
        let r = L::fma(n, L::splat(2.121_944_4e-4), r);
        let mut p = L::splat(1.987_569_1e-4);
        for c in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 0.166_666_65, 0.5, 1.0, 1.0] {
            p = L::fma(p, r, L::splat(c));
        }
        let half = L::round(L::mul(n, L::splat(0.5)));
        L::mul(L::mul(p, L::exp2_of_integer(half)), L::exp2_of_integer(L::sub(n, half)))
    }
}

/// Reads words with the CPU's vector units, at the memory's rate. The result only keeps the reads from being removed.
pub fn read(words: &[u64]) -> f32 {
    // SAFETY: the CPU has the units, and pointers stay within `words`.
    unsafe { VectorUnits::best().run(Read(bytemuck::cast_slice(words))) }
}

struct Read<'a>(&'a [u8]);

impl VectorKernel for Read<'_> {
    type Output = f32;

    #[inline(always)]
    unsafe fn run<L: Lanes>(self) -> f32 {
        const TOGETHER: usize = 8;
        // SAFETY: chunks have TOGETHER times BYTES bytes.
        unsafe {
            let mut all = [L::bits::<0>(L::load_bytes([0; BYTES].as_ptr()), 0); TOGETHER];
            for lines in self.0.as_chunks::<{ TOGETHER * BYTES }>().0 {
                for (i, all) in all.iter_mut().enumerate() {
                    *all = L::or(*all, L::load_bytes(lines.as_ptr().add(i * BYTES)));
                }
            }
            let sums = all.into_iter().fold(L::begin([0; 2].as_ptr()), |sums, all| L::dot(sums, all, [1; 2].as_ptr()));
            L::sum(L::total(sums))
        }
    }
}

#[cfg(test)]
mod tests;
