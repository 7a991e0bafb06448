//! Products of weights and inputs: `out[r][i] = sum over k of weight[i][k] * x[r][k]`.
//!
//! A panel of sixteen rows of weights is multiplied with up to eight rows of inputs at a time ([`Lanes::ROWS`]). Four
//! columns of the panel are a vector of bytes, and the same four columns of a row of inputs go to all lanes: one dot
//! product adds 64 products for a row. So a vector is unpacked once for all rows, and one row costs its unpacking, 8
//! dot products for each 32 columns, and few operations in f32. A dot product is two instructions on most kinds,
//! because an input has two bytes. The integer sums start with a correction for the weights' zero; offsets are
//! subtracted with the inputs' sums.
//!
//! Each result is summed in the same order for every number of rows, so that it does not depend on the rows beside it.

use super::inputs::{Correction, Inputs};
use super::lanes::{BYTES, LANES, Lanes, VectorKernel, VectorUnits};
use super::panels::{LOADS, Panels, ScaleForm, words_of};
use crate::model::WeightFormat;
use crate::model::blocks::BlockFormat;
use crate::model::grouped::{Grouped, LOAD, VALUES};
use std::marker::PhantomData;
use std::ops::Range;

/// Distance in bytes from the loads of a product of few rows to its prefetches of weights. The CPU's own prefetcher
/// stops at the end of a page.
const AHEAD: usize = 1024;

/// The correction of a product's integer sums by the sums of its inputs: for the zero point of weights in `format`, and for
/// the offset that `units` add to bytes.
pub fn correction(format: WeightFormat, units: VectorUnits) -> Correction {
    let zero_of_bytes = i32::from(units.offset());
    match format.grouped() {
        Some(Grouped { low: 8, .. } | Grouped { table: true, .. }) => {
            let by_16 = format.grouped().is_some_and(|g| ScaleForm::of(g.scales).by_16);
            Correction { zero: zero_of_bytes, by_16 }
        }
        Some(grouped) => Correction { zero: i32::from(grouped.zero), by_16: ScaleForm::of(grouped.scales).by_16 },
        None => Correction { zero: zero_of_bytes, by_16: false },
    }
}

/// The results' memory: `[rows, width]`, `stride` elements from row to row.
#[derive(Clone, Copy)]
pub struct ResultRows {
    /// The first element of the first row.
    pub start: *mut f32,
    /// The distance from one row to the next, in elements.
    pub stride: usize,
}

// SAFETY: threads that share the memory write different elements, by the contract of [`PanelProduct::run`].
unsafe impl Send for ResultRows {}
// SAFETY: as for `Send`.
unsafe impl Sync for ResultRows {}

/// The rows of f32 inputs and of results that stand for the rows of a product, where these are sorted otherwise.
#[derive(Clone, Copy)]
pub struct SortedRows<'a> {
    /// The row of results for each row of the product.
    pub rows: &'a [u32],
    /// Consecutive rows of results that have one row of f32 inputs.
    pub share: usize,
}

/// The product of some panels of a matrix with some rows of inputs, which one thread computes.
pub struct PanelProduct<'a> {
    /// The packed weights.
    pub weights: &'a Panels,
    /// The index of the matrix, if several are packed together.
    pub matrix: usize,
    /// The range of the matrix's panels to multiply.
    pub panels: Range<usize>,
    /// The range of input rows to multiply.
    pub rows: Range<usize>,
    /// The order of the rows; `None` if it is that of the f32 inputs and of the results.
    pub sorted: Option<SortedRows<'a>>,
    /// The inputs in f32, `[rows]` at a stride. Read for BF16 weights only.
    pub x: (*const f32, usize),
    /// The inputs as integers, for dot products.
    pub inputs: &'a Inputs,
    /// The rows that the results are written to.
    pub out: ResultRows,
}

impl PanelProduct<'_> {
    /// Computes the product. There is a function for each format: without optimisation, one for all formats would need
    /// the sum of their stacks.
    ///
    /// # Safety
    /// `inputs` holds `rows` of the weights' columns, quantised with their format's [`correction`]; for BF16, `x` holds
    /// them, or the rows that stand for them. `out` has room for `rows` of the weights' rows, or for those that stand
    /// for them, and no other thread accesses the results of `panels` and `rows`. The CPU has `units`.
    pub unsafe fn run(self, units: VectorUnits) {
        macro_rules! by_format {
            ($($format:ident)*) => {
                match self.weights.format {
                    WeightFormat::Int8 => units.run(InForm::<Bytes>(self, PhantomData)),
                    WeightFormat::Bf16 => units.run(InBf16(self)),
                    WeightFormat::Int4 => units.run(InForm::<formats::Q4_0>(self, PhantomData)),
                    $(WeightFormat::Blocks(BlockFormat::$format) => {
                        units.run(InForm::<formats::$format>(self, PhantomData))
                    })*
                }
            };
        }
        // SAFETY: inputs, results and units hold by this function's contract.
        unsafe { by_format!(Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2K Q3K Q4K Q5K Q6K Iq4Nl Iq4Xs) }
    }
}

/// A product of weights in eight bits or less.
struct InForm<'a, F>(PanelProduct<'a>, PhantomData<F>);

impl<F: PanelFormat> VectorKernel for InForm<'_, F> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        // SAFETY: inputs, results and units hold by the contract of [`PanelProduct::run`].
        unsafe { self.0.panels_by::<L, F>() }
    }
}

/// A product with weights in BF16.
struct InBf16<'a>(PanelProduct<'a>);

impl VectorKernel for InBf16<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        // SAFETY: inputs, results and units hold by the contract of [`PanelProduct::run`].
        unsafe { self.0.bf16::<L>() }
    }
}

/// A format, by which the vectors of a load are unpacked and scaled.
trait PanelFormat {
    const GROUPED: Option<Grouped>;
}

/// Weights in INT8, with one scale for each row.
struct Bytes;

impl PanelFormat for Bytes {
    const GROUPED: Option<Grouped> = None;
}

/// The panel formats of GGUF's quantised types.
#[allow(non_camel_case_types)]
mod formats {
    use super::{BlockFormat, Grouped, PanelFormat};

    macro_rules! forms {
        ($($format:ident)*) => {
            $(
                pub struct $format;

                impl PanelFormat for $format {
                    const GROUPED: Option<Grouped> = Some(BlockFormat::$format.grouped());
                }
            )*
        };
    }
    forms!(Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2K Q3K Q4K Q5K Q6K Iq4Nl Iq4Xs);
}

impl PanelProduct<'_> {
    #[inline(always)]
    unsafe fn panels_by<L: Lanes, F: PanelFormat>(self) {
        for panel in self.panels.clone() {
            let mut row = self.rows.start;
            while row < self.rows.end {
                // SAFETY: the tile lies within `panels` and `rows`, whose inputs and results hold by the contract of
                // `run`.
                row += unsafe {
                    match self.rows.end - row {
                        8.. if L::ROWS >= 8 => self.tile::<L, F, 8>(panel, row),
                        4.. if L::ROWS >= 4 => self.tile::<L, F, 4>(panel, row),
                        2.. => self.tile::<L, F, 2>(panel, row),
                        _ => self.tile::<L, F, 1>(panel, row),
                    }
                };
            }
        }
    }

    /// The scales and planes of a panel of the matrix.
    #[inline(always)]
    fn panel(&self, i: usize) -> (&[u8], &[u8]) {
        self.weights.panel(self.matrix * self.weights.count() + i)
    }

    /// Multiplies a panel with `M` rows of inputs. Returns M.
    #[inline(always)]
    unsafe fn tile<L: Lanes, F: PanelFormat, const M: usize>(&self, panel: usize, row: usize) -> usize {
        let (scales, planes) = self.panel(panel);
        let (loads, groups) = (self.weights.loads(), self.inputs.groups());
        let vectors = match F::GROUPED {
            Some(grouped) => words_of(grouped).iter().sum(),
            None => LOAD / 4,
        };
        // SAFETY: a panel has `loads` loads, and so has each row of inputs.
        unsafe {
            let words = self.inputs.words.as_ptr().add(row * loads * LOAD / 4);
            let x_scales = self.inputs.scales.as_ptr().add(row * loads);
            let starts = self.inputs.starts.as_ptr().add(row * groups);
            let sums = self.inputs.sums.as_ptr().add(row * groups);
            let form = const { scale_form::<F>() };
            let small = scales.as_ptr().add(form.records(loads));
            let mut results = [L::splat(0.0); M];
            for load in 0..loads {
                let from = planes.as_ptr().add(load * vectors * BYTES);
                let record = scales.as_ptr().add(if form.is_shared { load / LOADS } else { load } * form.record());
                let small = small.add(load * form.small());
                // With more rows, computation takes longer than memory.
                if M <= 2 {
                    for v in 0..vectors {
                        L::prefetch(from.wrapping_add(AHEAD + v * BYTES));
                    }
                }
                for half in 0..const { if scale_form::<F>().by_16 { 2 } else { 1 } } {
                    let (of, group) = if form.by_16 { (4 * half..4 * half + 4, 2 * load + half) } else { (0..8, load) };
                    let mut products = [L::begin([0; 2].as_ptr()); M];
                    for (m, products) in products.iter_mut().enumerate() {
                        *products = L::begin(starts.add(m * groups + group).cast());
                    }
                    for v in of {
                        let weights = unpack::<L, F>(from, v);
                        for (m, products) in products.iter_mut().enumerate() {
                            let x = words.add((m * loads + load) * LOAD / 4 + v).cast();
                            *products = match const { is_bytes::<F>() } {
                                true => L::dot_bytes(*products, weights, x),
                                false => L::dot(*products, weights, x),
                            };
                        }
                    }
                    let (scale, least) = scales_of::<L, F>(record, small, half);
                    for (m, result) in results.iter_mut().enumerate() {
                        let x_scale = L::splat(*x_scales.add(m * loads + load));
                        let scaled = L::mul(L::total(products[m]), x_scale);
                        *result = match F::GROUPED {
                            Some(_) => L::fma(scaled, scale, *result),
                            None => L::add(*result, scaled),
                        };
                        if form.has_offsets {
                            let sum = L::splat(-*sums.add(m * groups + group));
                            *result = L::fma(sum, least, *result);
                        }
                    }
                }
            }
            for (m, result) in results.into_iter().enumerate() {
                let result = match F::GROUPED {
                    Some(_) => result,
                    None => L::mul(result, L::load(scales.as_ptr().cast())),
                };
                self.put::<L>(panel, row + m, result);
            }
        }
        M
    }

    /// Writes sixteen results, or for the last panel as many as it has rows.
    #[inline(always)]
    unsafe fn put<L: Lanes>(&self, panel: usize, row: usize, x: L::F) {
        let count = LANES.min(self.weights.rows - panel * LANES);
        // SAFETY: by the contract of `run`, `out` has this row's results of the panel.
        unsafe {
            let row = self.sorted.map_or(row, |sorted| sorted.rows[row] as usize);
            let to = self.out.start.add(row * self.out.stride + panel * LANES);
            if count == LANES {
                return L::store(to, x);
            }
            let mut all = [0f32; LANES];
            L::store(all.as_mut_ptr(), x);
            to.copy_from_nonoverlapping(all.as_ptr(), count);
        }
    }

    /// The product with BF16 weights and f32 inputs.
    #[inline(always)]
    unsafe fn bf16<L: Lanes>(self) {
        for panel in self.panels.clone() {
            let mut row = self.rows.start;
            while row < self.rows.end {
                // SAFETY: the tile lies within `panels` and `rows`, whose inputs and results hold by the contract of
                // `run`.
                row += unsafe {
                    match self.rows.end - row {
                        4.. => self.bf16_tile::<L, 4>(panel, row),
                        2.. => self.bf16_tile::<L, 2>(panel, row),
                        _ => self.bf16_tile::<L, 1>(panel, row),
                    }
                };
            }
        }
    }

    /// Multiplies a panel with `M` rows of inputs, a column of sixteen weights at a time, in four sums. Returns M.
    #[inline(always)]
    unsafe fn bf16_tile<L: Lanes, const M: usize>(&self, panel: usize, row: usize) -> usize {
        const SUMS: usize = 4;
        let cols = self.weights.cols;
        let whole = cols - cols % SUMS;
        let (_, planes) = self.panel(panel);
        let input = |row: usize| self.sorted.map_or(row, |sorted| sorted.rows[row] as usize / sorted.share);
        // SAFETY: by the contract of `run`, `x` has these rows with `cols` columns each.
        unsafe {
            let x: [*const f32; M] = std::array::from_fn(|m| self.x.0.add(input(row + m) * self.x.1));
            let mut sums = [[L::splat(0.0); M]; SUMS];
            for k in (0..whole).step_by(SUMS) {
                if M <= 2 {
                    for line in 0..2 * LANES * SUMS / BYTES {
                        L::prefetch(planes.as_ptr().wrapping_add(AHEAD + k * 2 * LANES + line * BYTES));
                    }
                }
                for (s, sums) in sums.iter_mut().enumerate() {
                    add_column::<L, M>(planes, x, k + s, sums);
                }
            }
            for (k, sums) in (whole..cols).zip(&mut sums) {
                add_column::<L, M>(planes, x, k, sums);
            }
            for m in 0..M {
                let [a, b, c, d] = sums.map(|sums| sums[m]);
                self.put::<L>(panel, row + m, L::add(L::add(a, b), L::add(c, d)));
            }
        }
        M
    }
}

/// Adds the product of column `k` of a BF16 panel and of each row.
#[inline(always)]
unsafe fn add_column<L: Lanes, const M: usize>(planes: &[u8], x: [*const f32; M], k: usize, sums: &mut [L::F; M]) {
    // SAFETY: the callers pass only columns `k` of both the panel and the rows.
    unsafe {
        let weights = L::load_bf16(planes.as_ptr().add(k * 2 * LANES));
        for (sum, x) in sums.iter_mut().zip(x) {
            *sum = L::fma(weights, L::splat(*x.add(k)), *sum);
        }
    }
}

const fn scale_form<F: PanelFormat>() -> ScaleForm {
    match F::GROUPED {
        Some(grouped) => ScaleForm::of(grouped.scales),
        None => ScaleForm { is_shared: false, by_16: false, has_offsets: false },
    }
}

/// True if the weights of a format are stored as signed bytes.
const fn is_bytes<F: PanelFormat>() -> bool {
    match F::GROUPED {
        Some(grouped) => grouped.low == 8 || grouped.table,
        None => true,
    }
}

/// The weights of columns `4 v ..` of a load, four of each row.
#[inline(always)]
unsafe fn unpack<L: Lanes, F: PanelFormat>(from: *const u8, v: usize) -> L::B {
    // SAFETY: the vectors of a load are consecutive, and `v` is one of them.
    unsafe {
        let Some(grouped) = F::GROUPED else { return L::load_bytes(from.add(v * BYTES)) };
        if grouped.low == 8 {
            return L::load_bytes(from.add(v * BYTES));
        }
        let low = if grouped.low == 4 {
            let word = L::load_bytes(from.add(v % 4 * BYTES));
            if v < 4 { L::bits::<0>(word, 15) } else { L::bits::<4>(word, 15) }
        } else {
            let word = L::load_bytes(from.add(v / 4 * BYTES));
            match v % 4 {
                0 => L::bits::<0>(word, 3),
                1 => L::bits::<2>(word, 3),
                2 => L::bits::<4>(word, 3),
                _ => L::bits::<6>(word, 3),
            }
        };
        if grouped.table {
            let table = const { table::<L>() };
            return L::look_up(&table, low);
        }
        let second = from.add(const { first_words::<F>() } * BYTES);
        let high = match grouped.high {
            0 => return low,
            1 => high_bit::<L, F>(L::load_bytes(second), v),
            _ => {
                let word = L::load_bytes(second.add(v / 4 * BYTES));
                match v % 4 {
                    0 => L::bits_at::<0, 4>(word, 3),
                    1 => L::bits_at::<2, 4>(word, 3),
                    2 => L::bits_at::<4, 4>(word, 3),
                    _ => L::bits_at::<6, 4>(word, 3),
                }
            }
        };
        L::or(low, high)
    }
}

const fn first_words<F: PanelFormat>() -> usize {
    match F::GROUPED {
        Some(grouped) => words_of(grouped)[0],
        None => 0,
    }
}

/// Bit `v` of each byte, moved to the place after the low bits.
#[inline(always)]
unsafe fn high_bit<L: Lanes, F: PanelFormat>(word: L::B, v: usize) -> L::B {
    macro_rules! at {
        ($up:literal: $($at:literal)*) => { match v { $($at => L::bits_at::<$at, $up>(word, 1),)* _ => word } };
    }
    // SAFETY: no operation here uses a pointer.
    unsafe {
        match F::GROUPED {
            Some(Grouped { low: 2, .. }) => at!(2: 0 1 2 3 4 5 6 7),
            _ => at!(4: 0 1 2 3 4 5 6 7),
        }
    }
}

/// The values of the elements of a format with a table, in the form that dot products take.
const fn table<L: Lanes>() -> [u8; 16] {
    let mut table = [0; 16];
    let mut i = 0;
    while i < table.len() {
        table[i] = VALUES[i] as u8 ^ L::OFFSET;
        i += 1;
    }
    table
}

/// The factor of a block's sums, and the factor of the inputs' sum, which is subtracted. `half`: index of the 16
/// columns.
#[inline(always)]
unsafe fn scales_of<L: Lanes, F: PanelFormat>(record: *const u8, small: *const u8, half: usize) -> (L::F, L::F) {
    let form = const { scale_form::<F>() };
    // SAFETY: the record and its scale bytes have the lengths of the format's form.
    unsafe {
        if F::GROUPED.is_none() {
            return (L::splat(1.0), L::splat(0.0));
        }
        let d = L::load_f16(record);
        let m = if form.has_offsets { L::load_f16(record.add(2 * LANES)) } else { L::splat(0.0) };
        match form {
            ScaleForm { is_shared: false, .. } => (d, m),
            ScaleForm { by_16: true, has_offsets: true, .. } => {
                let [s, n] = L::load_halves(small.add(half * LANES));
                (L::mul(d, s), L::mul(m, n))
            }
            ScaleForm { has_offsets: true, .. } => {
                (L::mul(d, L::load_u8(small)), L::mul(m, L::load_u8(small.add(LANES))))
            }
            _ => (L::mul(d, L::load_i8(small.add(half * LANES))), m),
        }
    }
}
