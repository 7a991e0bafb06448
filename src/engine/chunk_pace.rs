//! The number of prompt rows in a pass while other sequences decode.

use crate::schedule::PassShape;
use std::time::Duration;

/// The fewest rows. A smaller pass takes hardly less time.
const FEWEST: usize = 16;

/// Adapts the chunk size so that passes stay within a time limit, from the times of earlier passes.
#[derive(Debug)]
pub(super) struct ChunkPace {
    /// The time limit of a pass, in seconds.
    gap: f64,
    rows: usize,
    most: usize,
}

impl ChunkPace {
    /// Chunks of at most `most` rows, in passes of at most `gap` unless [`FEWEST`] rows take longer.
    pub fn new(gap: Duration, most: usize) -> ChunkPace {
        // Starts small, because no time is known yet.
        ChunkPace { gap: gap.as_secs_f64(), rows: FEWEST.min(most), most }
    }

    /// The largest next chunk while other sequences decode.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Records a pass. If it was too long, the next chunks shrink at once; otherwise they may grow up to double.
    pub fn note(&mut self, pass: PassShape, time: Duration) {
        let (PassShape::Mixed { chunk, .. } | PassShape::Prefill { rows: chunk, .. }) = pass else { return };
        let fits = chunk as f64 * self.gap / time.as_secs_f64().max(1e-9);
        // The time of a few rows says little about many, because most of it is independent of the number of rows.
        let grown = self.rows.max(chunk).saturating_mul(2);
        let wanted = if fits < chunk as f64 { fits as usize } else { (fits as usize).min(grown).max(self.rows) };
        self.rows = wanted.max(FEWEST).min(self.most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mixed(chunk: usize) -> PassShape {
        PassShape::Mixed { chunk, depth: 0, ends: false, sequences: 3, beside: 9 }
    }

    /// A device whose passes take 20 ms plus 1 ms per row.
    fn run(pace: &mut ChunkPace, passes: usize) -> Vec<usize> {
        (0..passes)
            .map(|_| {
                let rows = pace.rows();
                pace.note(mixed(rows), Duration::from_millis(20 + rows as u64));
                rows
            })
            .collect()
    }

    #[test]
    fn chunks_grow_to_what_the_gap_allows_and_shrink_at_once() {
        let mut pace = ChunkPace::new(Duration::from_millis(200), 512);
        let rows = run(&mut pace, 30);
        assert!(rows.iter().all(|&rows| rows + 20 <= 205), "{rows:?}");
        assert!(*rows.last().unwrap() >= 150, "{rows:?}");
        // The device suddenly becomes ten times slower.
        pace.note(mixed(160), Duration::from_secs(2));
        assert_eq!(pace.rows(), 16);
        // A prompt pass without decoding rows counts in the same way, and decode passes do not count.
        pace.note(PassShape::Prefill { rows: 100, depth: 0 }, Duration::from_millis(100));
        assert_eq!(pace.rows(), 200);
        pace.note(PassShape::Decode { sequences: 9, depth: 5 }, Duration::from_secs(9));
        assert_eq!(pace.rows(), 200);
        assert_eq!(ChunkPace::new(Duration::from_millis(1), 8).rows(), 8, "no more than a pass takes");
    }
}
