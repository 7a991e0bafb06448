//! Merges the cores' results for queries.

/// Cores store a maximum as a term to add to scores: this minus the maximum. 1.5 * 2^16.
const MAGIC: f32 = 98_304.0;
/// Bytes of the result of four queries before O: the maxima and the sums.
const BEFORE_O: usize = 128;

/// A core's result for a query over some of its positions: O and the sum of weights, both relative to 2^maximum.
#[derive(Debug, Clone, Copy)]
pub struct QueryPart<'l> {
    /// The row of the query's token in the pass.
    pub row: usize,
    /// The index of the query head.
    pub head: usize,
    /// The number of partial results that make up this query's result.
    pub parts: usize,
    /// The core's result for four queries, and the index of this one.
    left: &'l [u8],
    place: usize,
}

impl<'l> QueryPart<'l> {
    /// The result of query `place` of four: the maxima, the sums and O, each in tiles of 4 x 4 f32. `query` is its row
    /// and its head.
    pub(super) fn new(query: (usize, usize), parts: usize, left: &'l [u8], place: usize) -> Self {
        let (row, head) = query;
        QueryPart { row, head, parts, left, place: place & 3 }
    }

    fn word(&self, word: usize) -> f32 {
        self.left.get(4 * word..).and_then(<[u8]>::first_chunk).map_or(f32::NAN, |bytes| f32::from_le_bytes(*bytes))
    }

    /// The base-2 exponent that O and the sum are relative to, an integer.
    pub fn maximum(&self) -> f32 {
        MAGIC - self.word(self.place)
    }

    /// The sum of the weights.
    pub fn sum(&self) -> f32 {
        self.word(16 + 4 * self.place)
    }

    /// Calls `change` with each element of `to` and the same element of O.
    fn apply(&self, to: &mut [f32], change: impl Fn(&mut f32, f32)) {
        let tiles = self.left.get(BEFORE_O..).unwrap_or_default().as_chunks::<64>().0;
        let of_query = 16 * self.place;
        for (to, tile) in to.as_chunks_mut::<4>().0.iter_mut().zip(tiles) {
            let o = tile[of_query..of_query + 16].as_chunks().0;
            to.iter_mut().zip(o).for_each(|(to, o)| change(to, f32::from_le_bytes(*o)));
        }
    }
}

/// Merged results of several queries.
#[derive(Debug, Default)]
pub struct QueryResults {
    sums: Vec<QuerySum>,
    /// The number of queries whose result still lacks partial results.
    missing: usize,
}

/// The sum of a query's partial results so far, and how many they are.
#[derive(Debug, Clone, Copy)]
struct QuerySum {
    parts: usize,
    maximum: f32,
    sum: f32,
}

impl QueryResults {
    /// Drops all results, and expects the partial results of `queries` queries.
    pub fn begin(&mut self, queries: usize) {
        self.sums.clear();
        self.sums.resize(queries, QuerySum { parts: 0, maximum: 0.0, sum: 0.0 });
        self.missing = queries;
    }

    /// Merges a part of the query `index`. `to` holds the partial result, and O once all parts are merged.
    pub fn take(&mut self, index: usize, part: &QueryPart<'_>, to: &mut [f32]) {
        let had = &mut self.sums[index];
        let (maximum, sum) = (part.maximum(), part.sum());
        had.parts += 1;
        if had.parts == 1 {
            (had.maximum, had.sum) = (maximum, sum);
            match part.parts {
                1 => part.apply(to, |to, o| *to = o / sum),
                _ => part.apply(to, |to, o| *to = o),
            }
        } else {
            // Maxima are integers, so that scaling is exact.
            let most = had.maximum.max(maximum);
            let [own, others] = [had.maximum, maximum].map(|of| (of - most).exp2());
            (had.maximum, had.sum) = (most, had.sum * own + sum * others);
            part.apply(to, |to, o| *to = *to * own + o * others);
            if had.parts == part.parts {
                to.iter_mut().for_each(|o| *o /= had.sum);
            }
        }
        self.missing -= usize::from(had.parts == part.parts);
    }

    /// The number of queries whose result still lacks partial results.
    pub fn missing(&self) -> usize {
        self.missing
    }
}
