use super::*;
use crate::cpu::elementwise::{GatedGelu, Largest, Norm, NormUse, SoftCap, SumOfExp};

struct Exponential<'a>(&'a [f32; LANES], &'a mut [f32; LANES]);

impl VectorKernel for Exponential<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        // SAFETY: both have LANES elements.
        unsafe { L::store(self.1.as_mut_ptr(), exp::<L>(L::load(self.0.as_ptr()))) }
    }
}

#[test]
fn exponentials_are_right_to_the_last_places() {
    for units in VectorUnits::all() {
        let of = |x: f32| {
            let mut out = [0f32; LANES];
            // SAFETY: the CPU has the units.
            unsafe { units.run(Exponential(&[x; LANES], &mut out)) };
            out[3]
        };
        for i in -8700..8870 {
            let x = i as f32 * 0.01 + 1e-3;
            let (got, want) = (f64::from(of(x)), f64::from(x).exp());
            assert!((got - want).abs() <= 3e-7 * want, "e^{x} is {want}, not {got}: {units:?}");
        }
        assert_eq!([of(-1000.0), of(f32::NEG_INFINITY), of(0.0)], [0.0, 0.0, 1.0]);
        assert!(of(200.0) == f32::INFINITY && of(f32::NAN).is_nan());
    }
}

#[test]
fn gates_norms_and_the_largest_are_by_their_formulas() {
    for units in VectorUnits::all() {
        let x: Vec<f32> = (0..77).map(|i| (i as f32 - 40.0) * 0.2).collect();
        let mut out = vec![0f32; 77];
        // SAFETY: the CPU has the units.
        unsafe { units.run(GatedGelu { gate: &x, up: &x[..77], out: &mut out }) };
        for (x, out) in x.iter().map(|x| f64::from(*x)).zip(&out) {
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
            let want = 0.5 * x * (1.0 + inner.tanh()) * x;
            assert!((f64::from(*out) - want).abs() <= 1e-6 * want.abs() + 1e-7, "{x}: {out}, not {want}: {units:?}");
        }
        let weight = vec![0.5f32; 77];
        let then = NormUse::Added { scalar: 2.0 };
        // SAFETY: as above.
        unsafe { units.run(Norm { x: &x, weight: &weight, eps: 1e-6, then, out: &mut out }) };
        let mean = x.iter().map(|x| f64::from(x * x)).sum::<f64>() / 77.0;
        let want = 2.0 * f64::from(x[3]) / (mean + 1e-6).sqrt() * 1.5;
        assert!((f64::from(out[3]) - want).abs() < 1e-5, "{}, not {want}: {units:?}", out[3]);

        let mut capped = [x.as_slice(), &[1e30, -1e30, f32::NAN]].concat();
        // SAFETY: as above.
        unsafe { units.run(SoftCap { x: &mut capped, cap: 30.0 }) };
        for (x, capped) in x.iter().zip(&capped) {
            let want = 30.0 * (f64::from(*x) / 30.0).tanh();
            assert!((f64::from(*capped) - want).abs() < 1e-5, "{x}: {capped}, not {want}: {units:?}");
        }
        let last = &capped[x.len()..];
        assert!(last[..2] == [30.0, -30.0] && last[2].is_nan(), "{last:?}");

        // The lowest index among equals, also in a partial vector; NaN is never the largest.
        let mut x = vec![1f32; 77];
        (x[5], x[40], x[76]) = (f32::NAN, 7.0, 7.0);
        // SAFETY: as above.
        assert_eq!(unsafe { units.run(Largest(&x)) }, (40, 7.0), "{units:?}");
        x[76] = 8.0;
        // SAFETY: as above.
        assert_eq!(unsafe { units.run(Largest(&x)) }, (76, 8.0), "{units:?}");
    }
}

#[test]
fn sums_of_exponentials_leave_out_what_is_not_eligible() {
    let mut x = vec![f32::NEG_INFINITY; 64];
    (x[3], x[40], x[63]) = (2.0, 1.0, 2.0);
    for units in VectorUnits::all() {
        for (scale, want) in [(1.0, 2.0 + (-1f64).exp()), (0.5, 2.0 + (-0.5f64).exp()), (0.0, 3.0)] {
            // SAFETY: the CPU has the units.
            let sum = unsafe { units.run(SumOfExp { x: &x, largest: 2.0, scale }) };
            assert!((f64::from(sum) - want).abs() < 1e-6, "{scale}: {sum}, not {want}: {units:?}");
        }
        // SAFETY: as above.
        let none = unsafe { units.run(SumOfExp { x: &x[4..20], largest: f32::NEG_INFINITY, scale: 1.0 }) };
        assert_eq!(none, 0.0);
    }
}

/// Bytes and sixteen inputs, for the results of each operation.
struct Operations<'a>(&'a [u8; BYTES], &'a [f32; LANES]);

impl VectorKernel for Operations<'_> {
    type Output = Vec<[f32; LANES]>;

    #[inline(always)]
    unsafe fn run<L: Lanes>(self) -> Vec<[f32; LANES]> {
        let mut all = Vec::new();
        // SAFETY: `bytes` has BYTES bytes, and every read ends within them.
        unsafe {
            let mut put = |x: L::F| {
                let mut out = [0f32; LANES];
                L::store(out.as_mut_ptr(), x);
                all.push(out);
            };
            let from = self.0.as_ptr();
            let mut inputs = [[0; 2]; LANES / 4];
            L::store_inputs(inputs.as_mut_ptr(), L::load(self.1.as_ptr()));
            let x = inputs[2].as_ptr();
            let bytes = L::load_bytes(from);
            let sum = |weights: L::B| L::total(L::dot(L::begin(L::start(-7).as_ptr()), weights, x));
            put(sum(L::bits::<0>(bytes, 15)));
            put(sum(L::bits::<4>(bytes, 15)));
            put(sum(L::bits::<6>(bytes, 3)));
            put(sum(L::bits_at::<7, 4>(bytes, 1)));
            put(sum(L::bits_at::<0, 4>(bytes, 3)));
            put(sum(L::or(L::bits::<2>(bytes, 3), L::bits_at::<3, 2>(bytes, 1))));
            put(sum(L::look_up(&std::array::from_fn(|i| 63 - 3 * i as u8), L::bits::<4>(bytes, 15))));
            let moved = self.0.map(|b| b ^ L::OFFSET);
            // Units that multiply unsigned bytes offset weights by OFFSET, so that their sum exceeds by OFFSET times
            // the sum of x.
            let excess = i32::from(L::OFFSET) * self.1[8..12].iter().sum::<f32>() as i32;
            put(L::total(L::dot_bytes(L::begin(L::start(11 - excess).as_ptr()), L::load_bytes(moved.as_ptr()), x)));
            put(L::load_u8(from));
            put(L::load_i8(from.add(3)));
            L::load_halves(from.add(1)).into_iter().for_each(&mut put);
            put(L::load_bf16(from.add(2)));
            put(L::load_f16(from.add(5)));
            let (a, b) = (L::load_i8(from), L::load_i8(from.add(LANES)));
            for x in [L::add(a, b), L::sub(a, b), L::mul(a, b), L::max(a, b), L::min(a, b), L::abs(a), L::fma(a, b, a)]
            {
                put(x);
            }
            put(L::round(L::div(a, L::splat(2.0))));
            put(L::exp2_of_integer(L::max(a, L::splat(-126.0))));
            put(L::splat(L::sum(a) + L::largest(b)));
            let mut halves = [0u8; 2 * LANES];
            L::store_f16(halves.as_mut_ptr(), L::div(a, L::splat(3.0)));
            put(L::load_f16(halves.as_ptr()));
        }
        all
    }
}

#[test]
fn each_kind_computes_what_plain_arrays_do() {
    let mut bits = 1u32;
    for round in 0..200usize {
        let bytes = std::array::from_fn(|_| {
            bits = bits.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (bits >> 24) as u8
        });
        let largest = LARGEST_INPUT as i32;
        let mut x = std::array::from_fn(|_| {
            bits = bits.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            ((bits >> 8) as i32 % (2 * largest + 1) - largest) as f32
        });
        // The largest inputs of both signs, and inputs around a change of the low byte's sign.
        (x[8], x[9]) = [(x[8], x[9]), (LARGEST_INPUT, -LARGEST_INPUT), (64.0, -64.0), (63.0, -65.0)][round % 4];
        // SAFETY: the portable kind needs no feature of a CPU.
        let want = unsafe { VectorUnits::Portable.run(Operations(&bytes, &x)) };
        for units in VectorUnits::all() {
            // SAFETY: `all` returns only kinds that this CPU has.
            let got = unsafe { units.run(Operations(&bytes, &x)) };
            for (i, (got, want)) in got.iter().zip(&want).enumerate() {
                let same = got.iter().zip(want).all(|(a, b)| a == b || a.is_nan() && b.is_nan());
                assert!(same, "round {round}, operation {i} of {units:?}: {got:?}, not {want:?}");
            }
        }
    }
}
