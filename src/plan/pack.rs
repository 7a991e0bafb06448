//! Packs allocations into heaps by search, for the case that filling the fastest heaps first fails.

use crate::machine::heaps::Heap;
use std::cmp::Reverse;
use std::collections::HashSet;

/// Limit on search steps. A real model needs far fewer, since its layers have equal sizes.
const STEPS: usize = 200_000;

/// The heap of each item. An item is its bytes and whether the host must map it. `None` if nothing fits within
/// [`STEPS`].
pub(super) fn pack(items: &[(u64, bool)], heaps: &[Heap]) -> Option<Vec<usize>> {
    let mut order: Vec<usize> = (0..items.len()).collect();
    // Largest first; among equals, those that need a host-visible heap. The rest is easier to fit.
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
    /// The heap of each item that was assigned so far.
    chosen: Vec<usize>,
    /// Dead ends: the number of items placed and the bytes left in each heap.
    failed: HashSet<(usize, Vec<u64>)>,
    steps: usize,
}

impl Search<'_> {
    /// Assigns the remaining items to heaps with `left` free bytes. True if all of them fit.
    fn fits(&mut self, left: &mut [u64]) -> bool {
        let at = self.chosen.len();
        let Some(&(bytes, host)) = self.items.get(at) else { return true };
        self.steps += 1;
        let state = (at, left.to_vec());
        if self.steps > STEPS || self.failed.contains(&state) {
            return false;
        }
        // Equal items go into heaps of ascending index: other orders are the same packing.
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
        // With `first > 0` not every heap was tried, so this state may still fit another way.
        if first == 0 {
            self.failed.insert(state);
        }
        false
    }
}
