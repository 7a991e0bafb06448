//! Packing: allocations into heaps in any way that fits, where the fastest way does not.

use crate::machine::heaps::Heap;
use std::cmp::Reverse;
use std::collections::HashSet;

/// Steps of a search. Layers are alike, so that a real model's is over long before.
const STEPS: usize = 200_000;

/// The heap of each item, given as its bytes and whether the host must map it; none where no way fits, or the search is
/// given up.
pub(super) fn pack(items: &[(u64, bool)], heaps: &[Heap]) -> Option<Vec<usize>> {
    let mut order: Vec<usize> = (0..items.len()).collect();
    // The largest first, and before their equals those that fewer heaps take: what is left fits more easily.
    order.sort_by_key(|&i| Reverse(items[i]));
    let mut search = Search {
        items: order.iter().map(|&i| items[i]).collect(),
        heaps,
        chosen: Vec::with_capacity(items.len()),
        failed: HashSet::new(),
        steps: 0,
    };
    let mut left: Vec<u64> = heaps.iter().map(|h| h.available).collect();
    if !search.fits(&mut left) {
        return None;
    }
    let mut placed = vec![0; items.len()];
    for (&item, &heap) in order.iter().zip(&search.chosen) {
        placed[item] = heap;
    }
    Some(placed)
}

struct Search<'a> {
    items: Vec<(u64, bool)>,
    heaps: &'a [Heap],
    /// Heaps of the items so far.
    chosen: Vec<usize>,
    /// How many items were placed, and what the heaps had left then, where the rest did not fit.
    failed: HashSet<(usize, Vec<u64>)>,
    steps: usize,
}

impl Search<'_> {
    /// Places the items after those that are chosen into what is left.
    fn fits(&mut self, left: &mut [u64]) -> bool {
        let at = self.chosen.len();
        let Some(&(bytes, host)) = self.items.get(at) else { return true };
        self.steps += 1;
        let state = (at, left.to_vec());
        if self.steps > STEPS || self.failed.contains(&state) {
            return false;
        }
        // Of equals, a later one is never put into an earlier heap: that would be the same packing.
        let first = if at > 0 && self.items[at - 1] == (bytes, host) { self.chosen[at - 1] } else { 0 };
        for heap in first..self.heaps.len() {
            if left[heap] < bytes || host && !self.heaps[heap].host_visible {
                continue;
            }
            left[heap] -= bytes;
            self.chosen.push(heap);
            if self.fits(left) {
                return true;
            }
            self.chosen.pop();
            left[heap] += bytes;
        }
        // What equals were put into before narrows this search: only one that had all heaps to try has failed for good.
        if first == 0 {
            self.failed.insert(state);
        }
        false
    }
}
