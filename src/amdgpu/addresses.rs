//! Free addresses of a part of the GPU's address space.

use std::collections::BTreeMap;
use std::ops::Range;

/// Free addresses: the start of each run, and its end.
pub struct FreeAddresses(BTreeMap<u64, u64>);

impl FreeAddresses {
    /// Free addresses, which are at first all of `range`.
    pub fn new(range: Range<u64>) -> FreeAddresses {
        FreeAddresses(BTreeMap::from([(range.start, range.end)]))
    }

    /// Takes `size` bytes at the lowest address that is a multiple of `alignment`. `None`: there is no such run.
    pub fn take(&mut self, size: u64, alignment: u64) -> Option<u64> {
        let fits = |(&start, &end): (&u64, &u64)| {
            let address = start.checked_next_multiple_of(alignment)?;
            (address.checked_add(size)? <= end).then_some((start, end, address))
        };
        let (start, end, address) = self.0.iter().find_map(fits)?;
        self.0.remove(&start);
        for rest in [start..address, address + size..end] {
            if !rest.is_empty() {
                self.0.insert(rest.start, rest.end);
            }
        }
        Some(address)
    }

    /// Frees `size` bytes at `address`, which [`FreeAddresses::take`] gave.
    pub fn give(&mut self, address: u64, size: u64) {
        let (mut start, mut end) = (address, address + size);
        if let Some((&before, &to)) = self.0.range(..start).next_back()
            && to == start
        {
            start = before;
        }
        if let Some(to) = self.0.remove(&end) {
            end = to;
        }
        self.0.insert(start, end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_back_is_whole_again() {
        let mut free = FreeAddresses::new(0x1000..0x10_0000);
        let taken: Vec<_> = [(0x1000, 0x1000), (0x2000, 0x4000), (0x1000, 0x1000), (0x8000, 0x1_0000)]
            .into_iter()
            .map(|(size, alignment)| (free.take(size, alignment).unwrap(), size))
            .collect();
        assert_eq!(taken, [(0x1000, 0x1000), (0x4000, 0x2000), (0x2000, 0x1000), (0x1_0000, 0x8000)]);
        assert_eq!(free.take(0x10_0000, 0x1000), None);
        assert_eq!(free.take(u64::MAX, 0x1000), None);
        for at in [1, 3, 0, 2] {
            free.give(taken[at].0, taken[at].1);
        }
        assert_eq!(free.0, BTreeMap::from([(0x1000, 0x10_0000)]));
    }
}
