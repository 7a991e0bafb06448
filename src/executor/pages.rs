//! The pages of the KV cache: each sequence's page tables, and the free pages.
//!
//! A page holds the keys and values of [`PAGE`] consecutive positions of a sequence, for all layers of a pool. Global
//! layers have one pool, local layers another: a local layer no longer needs a page once its window has moved past it.
//! A sequence's page table says which page holds which positions. Sequences that begin alike share whole pages, with a
//! reference count. A shared page is never written: a sequence that continues within one runs its positions of that
//! page again, on a page of its own.
//!
//! An executor allocates pages as rows come ([`Pages::extend`]), and writes changed entries to its kernels' copy of the
//! tables ([`Pages::take_changes`]).

use crate::schedule::Schedule;
use crate::schedule::kv::{PAGE, Pool};
use std::collections::VecDeque;
use std::ops::Range;

/// A page's index in its pool.
pub type PageId = u32;

/// A changed entry of a sequence's page table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageChange {
    /// The sequence whose page table changes.
    pub sequence: usize,
    /// The pool that the page belongs to.
    pub pool: Pool,
    /// The positions that the page holds are `PAGE * number ..`.
    pub number: usize,
    /// The page that the sequence now has for these positions.
    pub page: PageId,
}

/// The error for a pool without a free page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exhausted;

/// The reference count of each page of a pool: the number of tables that hold it, 0 for a free page.
#[derive(Debug, Clone)]
struct PageCounts {
    counts: Vec<u32>,
    free: usize,
}

impl PageCounts {
    fn new(pages: usize) -> PageCounts {
        PageCounts { counts: vec![0; pages], free: pages }
    }

    /// Allocates the page after `last`, so that consecutive pages of a sequence are consecutive in memory. If that one
    /// does not exist or is held, this begins in the longest run of free pages: at its start if the run begins the
    /// pool, else in its middle, since the sequence whose pages end before the run will continue there.
    fn take(&mut self, last: Option<PageId>) -> Result<PageId, Exhausted> {
        let next = last.map(|page| page as usize + 1).filter(|&page| self.counts.get(page) == Some(&0));
        let page = next.or_else(|| self.roomiest()).ok_or(Exhausted)?;
        self.counts[page] = 1;
        self.free -= 1;
        Ok(page as PageId)
    }

    fn roomiest(&self) -> Option<usize> {
        let (mut longest, mut start) = (0..0, 0);
        for held in self.counts.split_inclusive(|count| *count > 0) {
            let free = start..start + held.iter().filter(|count| **count == 0).count();
            start += held.len();
            if free.len() > longest.len() {
                longest = free;
            }
        }
        let middle = if longest.start > 0 { longest.len() / 2 } else { 0 };
        (!longest.is_empty()).then_some(longest.start + middle)
    }

    fn hold(&mut self, page: PageId) {
        debug_assert!(self.counts[page as usize] > 0, "a page that is free has nothing to share");
        self.counts[page as usize] += 1;
    }

    fn give_back(&mut self, page: PageId) {
        let count = &mut self.counts[page as usize];
        *count -= 1;
        if *count == 0 {
            self.free += 1;
        }
        debug_assert!(self.free <= self.counts.len());
    }

    fn is_shared(&self, page: PageId) -> bool {
        self.counts[page as usize] > 1
    }
}

/// A sequence's pages in one pool.
#[derive(Debug, Clone, Default)]
struct PageTable {
    /// Number of the first page in `pages`. Earlier ones were released.
    first: usize,
    pages: VecDeque<PageId>,
}

impl PageTable {
    /// The number after the last page's.
    fn end(&self) -> usize {
        self.first + self.pages.len()
    }

    fn page(&self, number: usize) -> Option<PageId> {
        number.checked_sub(self.first).and_then(|at| self.pages.get(at)).copied()
    }

    /// Adds a page behind the last one. `of` is the sequence and the pool of the table.
    fn append(&mut self, counted: &mut PageCounts, of: (usize, Pool)) -> Result<PageChange, Exhausted> {
        let (number, page) = (self.end(), counted.take(self.pages.back().copied())?);
        self.pages.push_back(page);
        Ok(PageChange { sequence: of.0, pool: of.1, number, page })
    }

    /// Releases the first page, whose number must be below `oldest`.
    fn drop_first(&mut self, counted: &mut PageCounts, oldest: usize) -> Result<(), Exhausted> {
        let page = if self.first < oldest { self.pages.pop_front() } else { None };
        counted.give_back(page.ok_or(Exhausted)?);
        self.first += 1;
        Ok(())
    }
}

/// The pages of an executor's KV cache, and the page tables of its sequences.
#[derive(Debug, Clone)]
pub struct Pages {
    /// The reference counts of the pages, for each pool.
    pools: [PageCounts; 2],
    /// The page tables of each sequence, for each pool.
    tables: Vec<[PageTable; 2]>,
    /// By sequence: the first position that a pass may write, and the number of positions from there. The pages for
    /// them and for the positions that they see exist, and no other sequence shares the pages to be written. A lower
    /// bound: more positions may be writable.
    ready: Vec<(usize, usize)>,
    /// Most pages of a sequence, by pool. Its page table has at least as many entries.
    most: [usize; 2],
    /// Positions that a local layer sees, the row's own included.
    window: usize,
    /// The most positions of a sequence.
    context: usize,
    changes: Vec<PageChange>,
}

impl Pages {
    /// The pages of a schedule's pools, all of them free.
    pub fn new(schedule: &Schedule) -> Pages {
        let kv = &schedule.kv;
        let most = Pool::ALL.map(|pool| kv.pool(pool).most);
        let table = |pool: Pool| PageTable { first: 0, pages: VecDeque::with_capacity(most[pool as usize]) };
        let sequences = schedule.extent.sequences;
        Pages {
            pools: Pool::ALL.map(|pool| PageCounts::new(kv.pool(pool).pages)),
            ready: vec![(0, 0); sequences],
            tables: (0..sequences).map(|_| Pool::ALL.map(table)).collect(),
            most,
            window: schedule.shape.window(),
            context: schedule.extent.context,
            changes: Vec::with_capacity(sequences * (most[0] + most[1])),
        }
    }

    /// The number of free pages in a pool.
    pub fn free(&self, pool: Pool) -> usize {
        self.pools[pool as usize].free
    }

    /// The number of all pages in a pool.
    pub fn total(&self, pool: Pool) -> usize {
        self.pools[pool as usize].counts.len()
    }

    /// Table entries of the pages of a pool that position `at` of a sequence sees, its own included.
    pub fn visible(&self, pool: Pool, sequence: usize, at: usize) -> impl Iterator<Item = PageChange> {
        let table = &self.tables[sequence][pool as usize];
        let numbers = self.oldest(pool, at)..at / PAGE + 1;
        numbers.filter_map(move |number| Some(PageChange { sequence, pool, number, page: table.page(number)? }))
    }

    /// The page of a pool with positions `PAGE * number ..` of a sequence, if the sequence holds it.
    pub fn page(&self, pool: Pool, sequence: usize, number: usize) -> Option<PageId> {
        self.tables[sequence][pool as usize].page(number)
    }

    /// True if the pools have enough free pages for `positions` of a sequence, so that [`Pages::extend`] succeeds.
    pub fn has_room(&self, sequence: usize, positions: &Range<usize>) -> bool {
        Pool::ALL.into_iter().all(|pool| {
            let table = &self.tables[sequence][pool as usize];
            let end = positions.end.div_ceil(PAGE);
            // Pages that the window has passed are released first, unless other sequences hold them.
            let behind = table.first..self.oldest(pool, positions.start).min(table.end());
            let counted = &self.pools[pool as usize];
            let own = behind.filter(|&n| table.page(n).is_some_and(|page| !counted.is_shared(page)));
            end.saturating_sub(table.end()) <= counted.free + own.count()
        })
    }

    /// Number of the oldest page of a pool that position `at` and later ones see.
    fn oldest(&self, pool: Pool, at: usize) -> usize {
        match pool {
            Pool::Global => 0,
            Pool::Local => (at + 1).saturating_sub(self.window) / PAGE,
        }
    }

    /// Allocates pages for `positions` of a sequence, which the next pass writes. They begin at the sequence's end, or
    /// earlier at a position from [`Pages::kept`]. Local pages that the window has passed are kept for a sequence that
    /// goes back, until the table has no free entry or the pool no free page.
    ///
    /// # Errors
    /// A pool has no free page. Pages allocated until then stay with the sequence.
    pub fn extend(&mut self, sequence: usize, positions: Range<usize>) -> Result<(), Exhausted> {
        if self.shares(sequence, &positions) {
            // The sequence restarts without having been truncated.
            self.truncate(sequence, positions.start / PAGE * PAGE);
        }
        if self.holds(sequence, &positions) {
            self.set_ready(sequence, &positions);
            return Ok(());
        }
        if self.tables[sequence][Pool::Local as usize].first > self.oldest(Pool::Local, positions.start) {
            // The sequence restarts without having been truncated.
            self.truncate(sequence, 0);
        }
        self.ready[sequence] = (0, 0);
        for pool in Pool::ALL {
            let oldest = self.oldest(pool, positions.start);
            let (counted, table) = (&mut self.pools[pool as usize], &mut self.tables[sequence][pool as usize]);
            while table.end() < positions.end.div_ceil(PAGE) {
                let is_full = table.pages.len() == self.most[pool as usize];
                if is_full || counted.free == 0 {
                    table.drop_first(counted, oldest)?;
                    continue;
                }
                self.changes.push(table.append(counted, (sequence, pool))?);
            }
        }
        self.set_ready(sequence, &positions);
        Ok(())
    }

    /// Records that a pass may write `positions` and the rest of their last page.
    fn set_ready(&mut self, sequence: usize, positions: &Range<usize>) {
        debug_assert!(self.holds(sequence, positions), "a position without a page");
        debug_assert!(!self.shares(sequence, positions), "a pass would write to a shared page");
        let end = positions.end.next_multiple_of(PAGE).min(self.context);
        self.ready[sequence] = (positions.start, end.saturating_sub(positions.start));
    }

    /// True if the last [`Pages::extend`] has made `position` of the sequence writable.
    #[inline]
    pub fn is_ready(&self, sequence: usize, position: usize) -> bool {
        self.ready.get(sequence).is_some_and(|&(first, count)| position.wrapping_sub(first) < count)
    }

    /// True if another sequence shares a page of `positions`.
    fn shares(&self, sequence: usize, positions: &Range<usize>) -> bool {
        let mut numbers = positions.start / PAGE..positions.end.div_ceil(PAGE);
        let [global, local] = &self.tables[sequence];
        let [of_global, of_local] = &self.pools;
        numbers.any(|n| {
            global.page(n).is_some_and(|page| of_global.is_shared(page))
                || local.page(n).is_some_and(|page| of_local.is_shared(page))
        })
    }

    /// True if a sequence has pages for `positions`, and for those that they attend to.
    pub fn holds(&self, sequence: usize, positions: &Range<usize>) -> bool {
        let [global, local] = &self.tables[sequence];
        let end = positions.end.div_ceil(PAGE);
        global.end() >= end && local.end() >= end && local.first <= self.oldest(Pool::Local, positions.start)
    }

    /// The number of its first `keep` positions that a sequence can continue after: `keep`; fewer if it would write to
    /// a shared page; 0 if a local layer's window reaches back to released pages.
    pub fn kept(&self, sequence: usize, keep: usize) -> usize {
        let shares = |pool: Pool| {
            let page = self.tables[sequence][pool as usize].page(keep / PAGE);
            page.is_some_and(|page| self.pools[pool as usize].is_shared(page))
        };
        let keep = if Pool::ALL.into_iter().any(shares) { keep / PAGE * PAGE } else { keep };
        let [global, local] = &self.tables[sequence];
        let is_there = keep <= global.end() * PAGE && keep <= local.end() * PAGE;
        if is_there && local.first <= self.oldest(Pool::Local, keep) { keep } else { 0 }
    }

    /// Releases the pages of a sequence after its first `keep` positions.
    pub fn truncate(&mut self, sequence: usize, keep: usize) {
        self.ready[sequence] = (0, 0);
        for (counted, table) in self.pools.iter_mut().zip(&mut self.tables[sequence]) {
            while table.end() > keep.div_ceil(PAGE) && !table.pages.is_empty() {
                table.pages.pop_back().into_iter().for_each(|page| counted.give_back(page));
            }
            if table.pages.is_empty() {
                table.first = 0;
            }
        }
    }

    /// The number of positions, at most `most`, whose pages another sequence can share. Only whole pages are shared.
    pub fn shareable(&self, sequence: usize, most: usize) -> usize {
        let positions = most / PAGE * PAGE;
        if self.kept(sequence, positions) == positions { positions } else { 0 }
    }

    /// Makes the empty sequence `to` begin with the [`Pages::shareable`] of the first `most` positions of `from`.
    /// Returns their number.
    pub fn share(&mut self, from: usize, to: usize, most: usize) -> usize {
        let positions = self.shareable(from, most);
        if positions == 0 || from == to {
            return 0;
        }
        debug_assert!(self.tables[to].iter().all(|table| table.pages.is_empty()), "the sequence is not empty");
        self.ready[from] = (0, 0);
        for pool in Pool::ALL {
            let numbers = self.tables[from][pool as usize].first.max(self.oldest(pool, positions))..positions / PAGE;
            self.tables[to][pool as usize].first = numbers.start;
            for number in numbers {
                let Some(page) = self.tables[from][pool as usize].page(number) else { continue };
                self.pools[pool as usize].hold(page);
                self.tables[to][pool as usize].pages.push_back(page);
                self.changes.push(PageChange { sequence: to, pool, number, page });
            }
        }
        positions
    }

    /// The pages before position `at` of a sequence that it and later positions see, with their numbers.
    pub fn seen(&self, pool: Pool, sequence: usize, at: usize) -> impl Iterator<Item = (usize, PageId)> {
        let table = &self.tables[sequence][pool as usize];
        self.numbers(pool, at).filter_map(|number| Some((number, table.page(number)?)))
    }

    /// Numbers of the pages before position `at` that it and later positions see.
    pub fn numbers(&self, pool: Pool, at: usize) -> Range<usize> {
        self.oldest(pool, at)..at.div_ceil(PAGE)
    }

    /// Gives a sequence of whole pages all the pages before position `end` that it and later positions see. The caller
    /// fills the new pages.
    ///
    /// # Errors
    /// A pool has no free page. Pages allocated until then stay with the sequence.
    pub fn restore(&mut self, sequence: usize, end: usize) -> Result<(), Exhausted> {
        self.ready[sequence] = (0, 0);
        for pool in Pool::ALL {
            let oldest = self.oldest(pool, end);
            let (counted, table) = (&mut self.pools[pool as usize], &mut self.tables[sequence][pool as usize]);
            while table.first < oldest && !table.pages.is_empty() {
                table.drop_first(counted, oldest)?;
            }
            table.first = table.first.max(oldest);
            while table.end() < end.div_ceil(PAGE) {
                self.changes.push(table.append(counted, (sequence, pool))?);
            }
        }
        Ok(())
    }

    /// By pool, the number of pages that are held only by sequences for which `is` returns true.
    pub fn held_only_by(&self, is: impl Fn(usize) -> bool) -> [usize; 2] {
        Pool::ALL.map(|pool| {
            let mut counts = self.pools[pool as usize].counts.clone();
            let own = self.tables.iter().enumerate().filter(|(sequence, _)| is(*sequence));
            for page in own.flat_map(|(_, tables)| &tables[pool as usize].pages) {
                counts[*page as usize] -= 1;
            }
            let held = self.pools[pool as usize].counts.iter().zip(counts);
            held.filter(|(before, left)| **before > 0 && *left == 0).count()
        })
    }

    /// True if [`Pages::take_changes`] would return changes.
    #[inline]
    pub fn have_changed(&self) -> bool {
        !self.changes.is_empty()
    }

    /// The changed entries of the page tables since the last call, oldest first.
    pub fn take_changes(&mut self) -> std::vec::Drain<'_, PageChange> {
        self.changes.drain(..)
    }

    /// The number of pages that more than one sequence has.
    #[cfg(any(test, feature = "testing"))]
    pub fn shared(&self) -> usize {
        self.pools.iter().flat_map(|pool| &pool.counts).filter(|count| **count > 1).count()
    }

    /// Checks that each page is free or held by as many tables as it counts, and that no table has a page twice.
    #[cfg(any(test, feature = "testing"))]
    pub fn check(&self) {
        for pool in Pool::ALL {
            let counted = &self.pools[pool as usize];
            let mut held = vec![0; counted.counts.len()];
            for tables in &self.tables {
                let pages = &tables[pool as usize].pages;
                assert!(pages.len() <= self.most[pool as usize], "{pool:?}: more pages than entries");
                pages.iter().for_each(|&page| held[page as usize] += 1);
                let distinct: std::collections::BTreeSet<_> = pages.iter().collect();
                assert_eq!(distinct.len(), pages.len(), "{pool:?}: a table has a page twice");
            }
            assert_eq!(held, counted.counts, "{pool:?}: counts");
            assert_eq!(held.iter().filter(|count| **count == 0).count(), counted.free, "{pool:?}: free pages");
        }
    }
}

#[cfg(test)]
#[path = "pages_tests.rs"]
mod tests;
