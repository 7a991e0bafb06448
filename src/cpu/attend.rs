//! Attention of rows of one sequence over pages of f16 or bf16 keys and values: for each query head `softmax(q · K *
//! scale) V`.
//!
//! Up to four rows are processed at a time. For each page that they see, keys are multiplied by all of their queries,
//! the page's scores are merged with earlier ones as in flash attention (a running maximum and sum), and values are
//! added. Each row's result is summed page by page from its first visible position on, so that it depends neither on
//! the rows beside it nor on the division of a prompt into chunks.

#![allow(clippy::needless_range_loop)] // Rows and positions index several arrays at once.

use super::lanes::{LANES, Lanes, VectorKernel, VectorUnits, exp};
use crate::schedule::kv::{KvLayer, PAGE};
use crate::schedule::step::KvType;

/// The most rows that are processed together.
pub const ROWS: usize = 4;
/// Vectors of values that a single row adds up at a time, for additions to overlap.
const TOGETHER: usize = 4;

/// The keys and values of one sequence, as attention reads them.
pub struct KvView<'a> {
    /// The pool, of the layer's type of two bytes.
    pub pool: &'a [u16],
    /// The layer, and the offset of its keys and values in each page.
    pub kv: KvLayer,
    /// First element of the page with positions `PAGE * n ..`.
    pub page: &'a (dyn Fn(usize) -> usize + Sync),
}

/// Attention of one query head, of rows at consecutive positions.
pub struct Attend<'a> {
    /// Queries of the head: the first row's, and elements from row to row.
    pub q: (*const f32, usize),
    /// The number of rows, at most [`ROWS`].
    pub rows: usize,
    /// The position of the first row.
    pub position: usize,
    /// The keys and values of the rows' sequence.
    pub cache: KvView<'a>,
    /// The index of the key head that this query head attends with.
    pub kv_head: usize,
    /// The factor of the scores, before softmax.
    pub scale: f32,
    /// The number of positions that a row attends to, its own included; `None` for all.
    pub window: Option<usize>,
    /// The results, in the same layout as `q`.
    pub out: (*mut f32, usize),
    /// The thread's buffers for intermediate results.
    pub scratch: &'a mut AttentionScratch,
}

/// A thread's buffers for the intermediate results of attention.
#[derive(Default)]
pub struct AttentionScratch {
    /// The weighted sums of values, `[ROWS, padded dim]`.
    sums: Vec<f32>,
    /// The queries times the scale, `[ROWS, padded dim]`.
    q: Vec<f32>,
}

/// The largest score and the sum of weights of a row so far.
#[derive(Clone, Copy)]
struct RunningSoftmax {
    largest: f32,
    sum: f32,
}

impl Attend<'_> {
    /// Computes the attention.
    ///
    /// # Safety
    /// `q` and `out` point to `rows` rows of the head's elements, and no other thread accesses those of `out`. Each
    /// visible position has a page in `cache`. The CPU has `units`.
    pub unsafe fn run(self, units: VectorUnits) {
        // SAFETY: the pointers and pages hold by this function's contract, and the CPU has the units.
        unsafe { units.run(self) }
    }
}

impl VectorKernel for Attend<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        match self.cache.kv.element {
            // SAFETY: the pointers, pages and units hold by the contract of [`Attend::run`].
            KvType::Bf16 => unsafe { self.over_pages::<L, true>() },
            // SAFETY: the pointers, pages and units hold by the contract of [`Attend::run`].
            KvType::F16 | KvType::F32 => unsafe { self.over_pages::<L, false>() },
        }
    }
}

impl Attend<'_> {
    /// Computes the attention over keys and values in bf16 or in f16.
    #[inline(always)]
    unsafe fn over_pages<L: Lanes, const BF16: bool>(self) {
        let Attend { q, rows, position, cache, kv_head, scale, window, out, scratch } = self;
        let dim = cache.kv.head_dim;
        let vectors = dim.div_ceil(LANES);
        let width = vectors * LANES;
        scratch.sums.clear();
        scratch.sums.resize(ROWS * width, 0.0);
        scratch.q.clear();
        scratch.q.resize(ROWS * width, 0.0);
        for r in 0..rows {
            // SAFETY: by the contract of [`Attend::run`], `q` has `rows` rows of `dim` elements.
            let from = unsafe { std::slice::from_raw_parts(q.0.add(r * q.1), dim) };
            scratch.q[r * width..][..dim].iter_mut().zip(from).for_each(|(to, x)| *to = x * scale);
        }
        let first = |r: usize| window.map_or(0, |w| (position + r + 1).saturating_sub(w));
        let mut running = [RunningSoftmax { largest: f32::NEG_INFINITY, sum: 0.0 }; ROWS];
        for number in first(0) / PAGE..=(position + rows - 1) / PAGE {
            let start = (cache.page)(number);
            let element = |half: usize| start + cache.kv.element_at(half, kv_head, 0);
            let page = Page::<BF16> {
                keys: cache.pool[element(0)..].as_ptr(),
                values: cache.pool[element(1)..].as_ptr(),
                stride: cache.kv.dim_stride(),
                dim,
            };
            // The range of the page's positions that each row sees, and the range that all rows see.
            let mut seen = [(0, 0); ROWS];
            for (r, seen) in seen.iter_mut().enumerate().take(rows) {
                let low = first(r).max(number * PAGE) - number * PAGE;
                let high = (position + r + 1).min((number + 1) * PAGE).saturating_sub(number * PAGE);
                *seen = (low.min(high), high);
            }
            let all = (
                seen[..rows].iter().map(|s| s.0).fold(0, usize::max),
                seen[..rows].iter().map(|s| s.1).fold(PAGE, usize::min),
            );
            let all = if all.0 < all.1 && rows == ROWS { all } else { (0, 0) };
            let mut scores = [[f32::NEG_INFINITY; PAGE]; ROWS];
            // SAFETY: a page has PAGE positions of keys and of values; the scratch memory has ROWS rows.
            unsafe {
                let q = scratch.q.as_ptr();
                page.scores::<L, ROWS>(q, width, all, &mut scores, 0);
                for r in 0..rows {
                    for part in without(seen[r], all) {
                        page.scores::<L, 1>(q.add(r * width), width, part, &mut scores, r);
                    }
                    let sums = scratch.sums.as_mut_ptr().add(r * width);
                    running[r].join::<L>(&mut scores[r], seen[r], sums, width);
                }
                let sums = scratch.sums.as_mut_ptr();
                let one = |r: usize, range| Sums { start: sums.add(r * width), width, range, weights: &scores[r..] };
                for r in 0..rows {
                    page.add_values::<L, 1, TOGETHER>(one(r, (seen[r].0, all.0.max(seen[r].0).min(seen[r].1))));
                }
                page.add_values::<L, ROWS, 1>(one(0, all));
                for r in 0..rows {
                    let from = if all.0 < all.1 { all.1 } else { all.0.max(seen[r].0).min(seen[r].1) };
                    page.add_values::<L, 1, TOGETHER>(one(r, (from.min(seen[r].1), seen[r].1)));
                }
            }
        }
        for r in 0..rows {
            let inverse = 1.0 / running[r].sum;
            // SAFETY: by the contract of [`Attend::run`], `out` has `rows` rows of `dim` elements that no other thread
            // accesses.
            let to = unsafe { std::slice::from_raw_parts_mut(out.0.add(r * out.1), dim) };
            to.iter_mut().zip(&scratch.sums[r * width..]).for_each(|(to, sum)| *to = sum * inverse);
        }
    }
}

/// The parts of `range` before and after `all`; the whole range if `all` is empty.
fn without(range: (usize, usize), all: (usize, usize)) -> [(usize, usize); 2] {
    match all.0 < all.1 {
        true => [(range.0, all.0), (all.1, range.1)],
        false => [range, (0, 0)],
    }
}

/// Rows' sums of values, to which a page's values are added.
struct Sums<'a> {
    /// The sums that values are added to, `[rows, width]`.
    start: *mut f32,
    width: usize,
    /// The range of the page's positions that are added.
    range: (usize, usize),
    /// The rows' softmax weights, by the position in the page.
    weights: &'a [[f32; PAGE]],
}

/// A page's keys and values of one head, `[PAGE, stride]`: in bf16, or in f16.
struct Page<const BF16: bool> {
    keys: *const u16,
    values: *const u16,
    stride: usize,
    dim: usize,
}

impl<const BF16: bool> Page<BF16> {
    /// Sixteen elements of a position; the last vector is padded with zeros.
    #[inline(always)]
    unsafe fn load<L: Lanes>(&self, of: *const u16, p: usize, vector: usize) -> L::F {
        let left = self.dim - vector * LANES;
        // SAFETY: a position has `dim` elements.
        unsafe {
            let from = of.add(p * self.stride + vector * LANES);
            let widen = |from: *const u16| if BF16 { L::load_bf16(from.cast()) } else { L::load_f16(from.cast()) };
            if left >= LANES {
                return widen(from);
            }
            let mut all = [0u16; LANES];
            all.as_mut_ptr().copy_from_nonoverlapping(from, left);
            widen(all.as_ptr())
        }
    }

    /// Scores of `M` rows from `row` on, at the positions of a range.
    #[inline(always)]
    unsafe fn scores<L: Lanes, const M: usize>(
        &self,
        q: *const f32,
        width: usize,
        range: (usize, usize),
        scores: &mut [[f32; PAGE]; ROWS],
        row: usize,
    ) {
        for p in range.0..range.1 {
            // SAFETY: the range lies within the page, and `q` has `M` rows of `width` elements.
            unsafe {
                let mut sums = [L::splat(0.0); M];
                for vector in 0..width / LANES {
                    let key = self.load::<L>(self.keys, p, vector);
                    for (m, sum) in sums.iter_mut().enumerate() {
                        *sum = L::fma(key, L::load(q.add(m * width + vector * LANES)), *sum);
                    }
                }
                for (m, sum) in sums.into_iter().enumerate() {
                    scores[row + m][p] = L::sum(sum);
                }
            }
        }
    }

    /// Adds weighted values to the sums of `M` rows, `N` vectors at a time.
    #[inline(always)]
    unsafe fn add_values<L: Lanes, const M: usize, const N: usize>(&self, to: Sums) {
        if to.range.0 >= to.range.1 {
            return;
        }
        let vectors = to.width / LANES;
        let mut vector = 0;
        // SAFETY: the range lies within the page, and the sums have `M` rows of `width` elements.
        unsafe {
            while vector + N <= vectors {
                self.add_vectors::<L, M, N>(&to, vector);
                vector += N;
            }
            while vector < vectors {
                self.add_vectors::<L, M, 1>(&to, vector);
                vector += 1;
            }
        }
    }

    #[inline(always)]
    unsafe fn add_vectors<L: Lanes, const M: usize, const N: usize>(&self, to: &Sums, vector: usize) {
        // SAFETY: the range lies within the page, and the sums have `M` rows with `N` vectors from `vector` on.
        unsafe {
            let at = |m: usize, n: usize| to.start.add(m * to.width + (vector + n) * LANES);
            let mut own = [[L::splat(0.0); N]; M];
            for (m, own) in own.iter_mut().enumerate() {
                for (n, own) in own.iter_mut().enumerate() {
                    *own = L::load(at(m, n));
                }
            }
            for p in to.range.0..to.range.1 {
                for n in 0..N {
                    let value = self.load::<L>(self.values, p, vector + n);
                    for (m, own) in own.iter_mut().enumerate() {
                        own[n] = L::fma(value, L::splat(to.weights[m][p]), own[n]);
                    }
                }
            }
            for (m, own) in own.into_iter().enumerate() {
                for (n, own) in own.into_iter().enumerate() {
                    L::store(at(m, n), own);
                }
            }
        }
    }
}

impl RunningSoftmax {
    /// Turns a page's scores into weights, and scales earlier sums to the new maximum.
    #[inline(always)]
    unsafe fn join<L: Lanes>(&mut self, scores: &mut [f32; PAGE], seen: (usize, usize), sums: *mut f32, width: usize) {
        if seen.0 >= seen.1 {
            return;
        }
        // SAFETY: `scores` has PAGE elements, and `sums` has `width`.
        unsafe {
            let all = |i: usize| L::load(scores.as_ptr().add(i * LANES));
            let mut largest = L::splat(self.largest);
            for i in 0..PAGE / LANES {
                largest = L::max(largest, all(i));
            }
            let largest = L::largest(largest);
            let mut factor = [0f32; LANES];
            L::store(factor.as_mut_ptr(), exp::<L>(L::splat(self.largest - largest)));
            let mut sum = L::splat(0.0);
            for i in 0..PAGE / LANES {
                // Invisible positions have a score of −∞, and so no weight.
                let weight = exp::<L>(L::sub(L::load(scores.as_ptr().add(i * LANES)), L::splat(largest)));
                L::store(scores.as_mut_ptr().add(i * LANES), weight);
                sum = L::add(sum, weight);
            }
            self.sum = self.sum * factor[0] + L::sum(sum);
            self.largest = largest;
            for i in 0..width / LANES {
                let at = sums.add(i * LANES);
                L::store(at, L::mul(L::load(at), L::splat(factor[0])));
            }
        }
    }
}
