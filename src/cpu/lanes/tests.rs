use super::*;
use crate::cpu::elementwise::{GatedGelu, Largest, Norm, SumOfExp};

struct Exponential<'a>(&'a [f32; LANES], &'a mut [f32; LANES]);

impl Kernel for Exponential<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        // SAFETY: both have LANES elements.
        unsafe { L::store(self.1.as_mut_ptr(), exp::<L>(L::load(self.0.as_ptr()))) }
    }
}

#[test]
fn exponentials_are_right_to_the_last_places() {
    for units in Units::all() {
        let of = |x: f32| {
            let mut out = [0f32; LANES];
            // SAFETY: the processor has them.
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
    for units in Units::all() {
        let x: Vec<f32> = (0..77).map(|i| (i as f32 - 40.0) * 0.2).collect();
        let mut out = vec![0f32; 77];
        // SAFETY: the processor has them.
        unsafe { units.run(GatedGelu { gate: &x, up: &x[..77], out: &mut out }) };
        for (x, out) in x.iter().map(|x| f64::from(*x)).zip(&out) {
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
            let want = 0.5 * x * (1.0 + inner.tanh()) * x;
            assert!((f64::from(*out) - want).abs() <= 1e-6 * want.abs() + 1e-7, "{x}: {out}, not {want}: {units:?}");
        }
        let weight = vec![0.5f32; 77];
        // SAFETY: as above.
        unsafe { units.run(Norm { x: &x, weight: &weight, eps: 1e-6, adds: true, out: &mut out }) };
        let mean = x.iter().map(|x| f64::from(x * x)).sum::<f64>() / 77.0;
        let want = f64::from(x[3]) / (mean + 1e-6).sqrt() * 1.5;
        assert!((f64::from(out[3]) - want).abs() < 1e-5, "{}, not {want}: {units:?}", out[3]);

        // The lowest index among equals, in a part that is no whole vector too; NaN is never the largest.
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
    for units in Units::all() {
        for (scale, want) in [(1.0, 2.0 + (-1f64).exp()), (0.5, 2.0 + (-0.5f64).exp()), (0.0, 3.0)] {
            // SAFETY: the processor has them.
            let sum = unsafe { units.run(SumOfExp { x: &x, largest: 2.0, scale }) };
            assert!((f64::from(sum) - want).abs() < 1e-6, "{scale}: {sum}, not {want}: {units:?}");
        }
        // SAFETY: as above.
        let none = unsafe { units.run(SumOfExp { x: &x[4..20], largest: f32::NEG_INFINITY, scale: 1.0 }) };
        assert_eq!(none, 0.0);
    }
}
