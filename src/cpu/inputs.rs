//! A product's inputs as integers: each 32 columns have a scale in f32, with which the largest is [`LARGEST_INPUT`].
//!
//! Inputs of eight bits suffice for one product, but not for a model with some hundred of them: they raise the
//! perplexity of Gemma 3 270M by 0.3 to 0.4 %. With fifteen bits it is within 0.01 % of the perplexity with inputs in
//! f32.

use super::lanes::{LANES, LARGEST_INPUT, Lanes, VectorKernel, VectorUnits};
use crate::model::grouped::LOAD;

/// The weights' zero and offsets in a product, corrected by the inputs' sums.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Correction {
    /// The element that stands for zero, as the kernels read it.
    pub zero: i32,
    /// True if each 16 columns have a scale of their own, false if each 32 have.
    pub by_16: bool,
}

/// The number of pairs of words in a load.
const WORDS: usize = LOAD / 4;

/// Rows of inputs. Columns are padded with zeros to a multiple of [`LOAD`].
#[derive(Default)]
pub struct Inputs {
    loads: usize,
    correction: Option<Correction>,
    /// Written by [`Lanes::store_inputs`]: `[rows, 8 loads]`, two words for each four columns.
    pub words: Vec<[i32; 2]>,
    /// The scale of each load of a row, `[rows, loads]`.
    pub scales: Vec<f32>,
    /// Minus the zero times the sum of each group's inputs, with which the group's sum of products starts
    /// ([`Lanes::start`]).
    pub starts: Vec<[i32; 2]>,
    /// The sum of each group's inputs, times its scale.
    pub sums: Vec<f32>,
}

impl Inputs {
    /// Groups of a row, one for each scale of the weights.
    pub fn groups(&self) -> usize {
        match self.correction {
            Some(Correction { by_16: true, .. }) => 2 * self.loads,
            _ => self.loads,
        }
    }

    /// Makes room for `rows` rows of `cols` columns.
    pub fn resize(&mut self, rows: usize, cols: usize, correction: Correction) {
        self.loads = cols.div_ceil(LOAD);
        self.correction = Some(correction);
        self.words.resize(rows * self.loads * WORDS, [0; 2]);
        self.scales.resize(rows * self.loads, 0.0);
        let groups = self.groups();
        self.starts.resize(rows * groups, [0; 2]);
        self.sums.resize(rows * groups, 0.0);
    }

    /// All rows, to be quantised separately.
    pub fn rows(&mut self) -> impl ExactSizeIterator<Item = InputRow<'_>> {
        let (loads, groups) = (self.loads.max(1), self.groups().max(1));
        let correction = self.correction.unwrap_or(Correction { zero: 0, by_16: false });
        let (words, scales) = (self.words.chunks_exact_mut(loads * WORDS), self.scales.chunks_exact_mut(loads));
        let (starts, sums) = (self.starts.chunks_exact_mut(groups), self.sums.chunks_exact_mut(groups));
        words.zip(scales).zip(starts.zip(sums)).map(move |((words, scales), (starts, sums))| InputRow {
            correction,
            words,
            scales,
            starts,
            sums,
        })
    }
}

/// One row of [`Inputs`], into which f32 values are quantised.
pub struct InputRow<'a> {
    correction: Correction,
    words: &'a mut [[i32; 2]],
    scales: &'a mut [f32],
    starts: &'a mut [[i32; 2]],
    sums: &'a mut [f32],
}

impl InputRow<'_> {
    /// Quantises a row. A value that is not finite makes its load's scale NaN, and so every product with it.
    pub fn quantize(&mut self, units: VectorUnits, x: &[f32]) {
        // SAFETY: the CPU has `units`; pointers stay within the row's slices.
        unsafe { units.run(Quantize { x, row: self }) }
    }
}

struct Quantize<'a, 'b> {
    x: &'a [f32],
    row: &'a mut InputRow<'b>,
}

impl VectorKernel for Quantize<'_, '_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        let Quantize { x, row } = self;
        let whole = x.len() / LOAD;
        let mut last = [0f32; LOAD];
        last[..x.len() - whole * LOAD].copy_from_slice(&x[whole * LOAD..]);
        for (load, (words, scale)) in row.words.chunks_exact_mut(WORDS).zip(row.scales.iter_mut()).enumerate() {
            let x: &[f32] = if load < whole { &x[load * LOAD..(load + 1) * LOAD] } else { &last };
            // SAFETY: `x` has LOAD elements, and `words` has room for as many inputs.
            let sums = unsafe {
                let [a, b] = [L::load(x.as_ptr()), L::load(x.as_ptr().add(LANES))];
                let largest = L::largest(L::max(L::abs(a), L::abs(b)));
                // Zero, or NaN if a value is not finite.
                let check = L::sum(L::mul(L::add(L::mul(a, L::splat(0.0)), L::mul(b, L::splat(0.0))), L::splat(0.0)));
                *scale = largest / LARGEST_INPUT + check;
                // For the smallest numbers the inverse would be infinite.
                let inverse = LARGEST_INPUT / largest;
                let inverse = L::splat(if largest.is_finite() && inverse.is_finite() { inverse } else { 0.0 });
                let [a, b] = [L::round(L::mul(a, inverse)), L::round(L::mul(b, inverse))];
                L::store_inputs(words.as_mut_ptr(), a);
                L::store_inputs(words.as_mut_ptr().add(WORDS / 2), b);
                // Integers below 2^24 are exact in f32.
                [L::sum(a) as i32, L::sum(b) as i32]
            };
            let (zero, scale) = (row.correction.zero, *scale);
            let mut put = |group: usize, sum: i32| {
                row.starts[group] = L::start(-zero * sum);
                row.sums[group] = sum as f32 * scale;
            };
            match row.correction.by_16 {
                true => sums.into_iter().enumerate().for_each(|(half, sum)| put(2 * load + half, sum)),
                false => put(load, sums[0] + sums[1]),
            }
        }
    }
}
