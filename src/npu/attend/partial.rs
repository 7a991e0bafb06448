//! What cores leave of queries, undivided, and how parts of the same queries are merged.

/// The program's integers hold maxima as what is added to scores less the maximum: 1.5 * 2^16.
const MAGIC: f32 = 98_304.0;

/// Of a query over some of its positions: O and the sum of weights, in proportion to 2^`maximum`.
#[derive(Debug, Clone, PartialEq)]
pub struct Partial {
    maximum: f32,
    sum: f32,
    o: Vec<f32>,
}

impl Partial {
    /// That of query `query` of 4 from what a core left of four: the maxima, the sums and O, each in tiles of 4 x 4 f32.
    pub fn read(left: &[u8], query: usize, head_dim: usize) -> Partial {
        let at = |word: usize| {
            left.get(4 * word..4 * word + 4).map_or(f32::NAN, |b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
        };
        let mut o = Vec::with_capacity(head_dim);
        for tile in left.get(4 * (32 + 4 * query)..).unwrap_or_default().chunks(64).take(head_dim / 4) {
            o.extend(tile.as_chunks().0.iter().take(4).map(|bytes| f32::from_le_bytes(*bytes)));
        }
        o.resize(head_dim, f32::NAN);
        Partial { maximum: MAGIC - at(query), sum: at(16 + 4 * query), o }
    }

    /// The logarithm of the sum of 2^score to base 2.
    pub fn log_sum(&self) -> f64 {
        f64::from(self.maximum) + f64::from(self.sum).log2()
    }

    /// Adds what other positions left. Maxima are whole numbers: scaling is exact.
    pub fn merge(&mut self, other: &Partial) {
        let maximum = self.maximum.max(other.maximum);
        let [own, others] = [self.maximum, other.maximum].map(|of| (of - maximum).exp2());
        self.sum = self.sum * own + other.sum * others;
        self.o.iter_mut().zip(&other.o).for_each(|(o, other)| *o = *o * own + other * others);
        self.maximum = maximum;
    }

    /// Takes a place, or is merged into what has it.
    pub fn merge_into(self, place: &mut Option<Partial>) {
        match place {
            Some(partial) => partial.merge(&self),
            none => *none = Some(self),
        }
    }

    /// O divided by the sum.
    pub fn divide(&self, to: &mut [f32]) {
        to.iter_mut().zip(&self.o).for_each(|(to, o)| *to = o / self.sum);
    }
}
