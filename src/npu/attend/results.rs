//! What cores leave of queries, put together.

/// Cores hold maxima as what is added to scores less the maximum: 1.5 * 2^16.
const MAGIC: f32 = 98_304.0;
/// Bytes of what is left of four queries before O: the maxima and the sums.
const BEFORE_O: usize = 128;

/// Of a query over some of its positions, as a core left it: O and the sum of weights, in proportion to 2^maximum.
#[derive(Debug, Clone, Copy)]
pub struct QueryPart<'l> {
    /// The query's row.
    pub row: usize,
    /// Its query head.
    pub head: usize,
    /// In how many parts its positions are.
    pub parts: usize,
    /// What the core left of four queries, and which of them it is.
    left: &'l [u8],
    place: usize,
}

impl<'l> QueryPart<'l> {
    /// That of query `place` of four, from what a core left of them: the maxima, the sums and O, each in tiles of 4 x 4 f32.
    /// `query` is its row and its head.
    pub(super) fn new(query: (usize, usize), parts: usize, left: &'l [u8], place: usize) -> Self {
        let (row, head) = query;
        QueryPart { row, head, parts, left, place: place & 3 }
    }

    fn word(&self, word: usize) -> f32 {
        self.left.get(4 * word..).and_then(<[u8]>::first_chunk).map_or(f32::NAN, |bytes| f32::from_le_bytes(*bytes))
    }

    fn maximum(&self) -> f32 {
        MAGIC - self.word(self.place)
    }

    fn sum(&self) -> f32 {
        self.word(16 + 4 * self.place)
    }

    /// Changes `to` by as many elements of O.
    fn apply(&self, to: &mut [f32], change: impl Fn(&mut f32, f32)) {
        let tiles = self.left.get(BEFORE_O..).unwrap_or_default().as_chunks::<64>().0;
        let of_query = 16 * self.place;
        for (to, tile) in to.as_chunks_mut::<4>().0.iter_mut().zip(tiles) {
            let o = tile[of_query..of_query + 16].as_chunks().0;
            to.iter_mut().zip(o).for_each(|(to, o)| change(to, f32::from_le_bytes(*o)));
        }
    }
}

/// What has come of some queries' attention.
#[derive(Debug, Default)]
pub struct QueryResults {
    sums: Vec<QuerySum>,
    /// Queries that parts are missing of.
    missing: usize,
}

/// The parts of a query that have come.
#[derive(Debug, Clone, Copy)]
struct QuerySum {
    parts: usize,
    maximum: f32,
    sum: f32,
}

impl QueryResults {
    /// Begins anew, with so many queries.
    pub fn begin(&mut self, queries: usize) {
        self.sums.clear();
        self.sums.resize(queries, QuerySum { parts: 0, maximum: 0.0, sum: 0.0 });
        self.missing = queries;
    }

    /// Takes a part of the query `index`. `to` has O when all parts have come, and what is merged of it until then.
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
            // Maxima are whole numbers: scaling is exact.
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

    /// How many queries parts are missing of.
    pub fn missing(&self) -> usize {
        self.missing
    }

    /// The logarithm of the sum of 2^score of a query to base 2, over the parts that have come.
    pub fn log_sum(&self, index: usize) -> f64 {
        let QuerySum { maximum, sum, .. } = self.sums[index];
        f64::from(maximum) + f64::from(sum).log2()
    }
}
