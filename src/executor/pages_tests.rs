//! Pages under random use, compared with the positions that each sequence must see.

use super::*;
use crate::model::{Shape, WeightFormat, presets};
use crate::schedule::{Extent, KvType};
use crate::text::testing::Random;
use std::collections::HashMap;

const CONTEXT: usize = 20 * PAGE;
const WINDOW: usize = 100;
const ROWS: usize = 70;

fn schedule(sequences: usize) -> Schedule {
    let full = presets::preset("gemma3-1b").unwrap();
    let shape = Shape { layers: full.layers[..6].to_vec(), vocab: 64, hidden: 32, ffn: 64, ..full.with_window(WINDOW) };
    let extent = Extent { context: CONTEXT, max_rows: ROWS, head_rows: 1, sequences, kv: KvType::F16, kv_tokens: None };
    Schedule::build(&shape, extent, |_| WeightFormat::Int8)
}

/// Leaves `free` pages of a pool free, and counts the others as held without a table.
fn leave(pages: &mut Pages, pool: Pool, free: usize) {
    let counted = &mut pages.pools[pool as usize];
    counted.counts.iter_mut().filter(|count| **count == 0).skip(free).for_each(|count| *count = 1);
    counted.free = free;
}

/// A device's page tables, and the content written through them: the history of a position identifies all tokens up to
/// it.
struct FakeDevice {
    tables: HashMap<(usize, usize, usize), PageId>,
    content: HashMap<(usize, PageId, usize), u64>,
    entries: [usize; 2],
}

impl FakeDevice {
    fn apply(&mut self, pages: &mut Pages) {
        for change in pages.take_changes() {
            let entry = change.number % self.entries[change.pool as usize];
            self.tables.insert((change.sequence, change.pool as usize, entry), change.page);
        }
    }

    fn at(&self, sequence: usize, pool: Pool, position: usize) -> (usize, PageId, usize) {
        let entry = position / PAGE % self.entries[pool as usize];
        (pool as usize, self.tables[&(sequence, pool as usize, entry)], position % PAGE)
    }
}

#[test]
fn every_position_in_view_keeps_what_its_sequence_wrote_there() {
    for seed in 1..=20 {
        let schedule = schedule(5);
        let mut pages = Pages::new(&schedule);
        let entries = Pool::ALL.map(|pool| schedule.kv.pool(pool).entries());
        let mut device = FakeDevice { tables: HashMap::new(), content: HashMap::new(), entries };
        let mut random = Random(seed);
        // Each sequence's written histories, by position.
        let mut histories: Vec<Vec<u64>> = vec![Vec::new(); 5];
        let (mut rewound, mut shared, mut restored) = (0, 0, 0);
        for step in 0..400 {
            let sequence = random.index(5);
            let length = histories[sequence].len();
            match random.index(9) {
                0 => {
                    let kept = pages.kept(sequence, random.index(length + 1));
                    pages.truncate(sequence, kept);
                    histories[sequence].truncate(kept);
                    rewound += usize::from(kept > 0);
                }
                1 => {
                    let other = random.index(5);
                    pages.truncate(sequence, 0);
                    histories[sequence].clear();
                    let most = random.index(histories[other].len() + 1);
                    let kept = pages.share(other, sequence, most);
                    assert!(kept <= most && kept.is_multiple_of(PAGE));
                    histories[sequence] = histories[other][..kept].to_vec();
                    shared += usize::from(kept > 0);
                }
                2 => {
                    let other = random.index(5);
                    let history = histories[other][..random.index(histories[other].len() + 1)].to_vec();
                    pages.truncate(sequence, 0);
                    let kept = pages.share(other, sequence, history.len());
                    assert_eq!(pages.restore(sequence, history.len()), Ok(()), "the pools hold all sequences");
                    device.apply(&mut pages);
                    for pool in Pool::ALL {
                        let random = pages.seen(pool, sequence, history.len()).map(|(number, _)| number);
                        let new = random.filter(|number| number * PAGE >= kept);
                        for at in new.flat_map(|number| number * PAGE..((number + 1) * PAGE).min(history.len())) {
                            device.content.insert(device.at(sequence, pool, at), history[at]);
                        }
                    }
                    assert_eq!(pages.kept(sequence, history.len()), history.len());
                    restored += usize::from(history.len() > kept);
                    histories[sequence] = history;
                }
                _ => {
                    let rows = (1 + random.index(ROWS)).min(CONTEXT - length);
                    if rows == 0 {
                        pages.truncate(sequence, 0);
                        histories[sequence].clear();
                        continue;
                    }
                    assert_eq!(pages.extend(sequence, length..length + rows), Ok(()), "the pools hold all sequences");
                    device.apply(&mut pages);
                    for position in length..length + rows {
                        let value = (step * 1000 + position) as u64;
                        histories[sequence].push(value);
                        for pool in Pool::ALL {
                            device.content.insert(device.at(sequence, pool, position), value);
                        }
                    }
                    // The positions that the first and the last row see.
                    for (row, pool) in
                        [length, length + rows - 1].into_iter().flat_map(|row| Pool::ALL.map(|p| (row, p)))
                    {
                        let first = if pool == Pool::Global { 0 } else { (row + 1).saturating_sub(WINDOW) };
                        for (position, wrote) in histories[sequence].iter().enumerate().take(row + 1).skip(first) {
                            let there = device.content.get(&device.at(sequence, pool, position));
                            assert_eq!(there, Some(wrote), "seed {seed}, step {step}, {pool:?}");
                        }
                    }
                }
            }
            device.apply(&mut pages);
            pages.check();
        }
        assert!(rewound > 0 && shared > 0 && restored > 0, "all must come up");
        (0..5).for_each(|sequence| pages.truncate(sequence, 0));
        pages.check();
        assert!(Pool::ALL.into_iter().all(|pool| pages.free(pool) == pages.total(pool)));
    }
}

#[test]
fn a_shared_page_is_never_written() {
    let schedule = schedule(2);
    let mut pages = Pages::new(&schedule);
    pages.extend(0, 0..2 * PAGE + 5).unwrap();
    assert_eq!(pages.share(0, 1, 2 * PAGE + 3), 2 * PAGE);
    // Both continue after the pages that they share; within a shared page they restart at its beginning.
    assert_eq!(
        (pages.kept(0, 2 * PAGE + 1), pages.kept(0, PAGE + 9), pages.kept(1, PAGE + 9)),
        (2 * PAGE + 1, PAGE, PAGE)
    );
    pages.truncate(1, 0);
    assert_eq!(pages.kept(0, PAGE + 9), PAGE + 9);
    pages.check();
}

/// A local layer's pages behind the window are released, and a sequence cannot go back beyond them.
#[test]
fn the_local_pool_holds_a_window_of_each_sequence() {
    let schedule = schedule(1);
    let most = schedule.kv.pool(Pool::Local).most;
    let mut pages = Pages::new(&schedule);
    for position in 0..CONTEXT {
        pages.extend(0, position..position + 1).unwrap();
        assert!(pages.total(Pool::Local) - pages.free(Pool::Local) <= most);
    }
    let held = (1..CONTEXT).filter(|&keep| pages.kept(0, keep) == keep).min().unwrap();
    assert_eq!(pages.kept(0, held - 1), 0);
    assert!(held + most * PAGE <= CONTEXT + WINDOW + PAGE, "{held}");
}

#[test]
fn a_pool_without_a_free_page_says_so_and_loses_none() {
    let schedule = schedule(2);
    let mut pages = Pages::new(&schedule);
    // Sequence 0 takes all pages in order, beyond its own share.
    leave(&mut pages, Pool::Global, 3);
    let taken = (0..).take_while(|n| pages.extend(0, n * PAGE..(n + 1) * PAGE).is_ok()).count();
    assert_eq!(taken, 3);
    assert!(!pages.has_room(0, &(3 * PAGE..3 * PAGE + 1)) && pages.has_room(0, &(2 * PAGE..3 * PAGE)));
    pages.truncate(0, 0);
    assert_eq!(pages.free(Pool::Global), 3);
    assert!(pages.has_room(1, &(0..PAGE)));
}

#[test]
fn pages_that_some_sequences_alone_hold_are_counted_once() {
    let schedule = schedule(3);
    let mut pages = Pages::new(&schedule);
    pages.extend(0, 0..2 * PAGE).unwrap();
    pages.share(0, 1, 2 * PAGE);
    pages.extend(2, 0..1).unwrap();
    let held = |pages: &Pages, sequences: &[usize]| pages.held_only_by(|sequence| sequences.contains(&sequence));
    assert_eq!([&[][..], &[0], &[1, 2], &[0, 1], &[0, 1, 2]].map(|of| held(&pages, of)[0]), [0, 0, 1, 2, 3]);
    pages.truncate(1, 0);
    assert_eq!(held(&pages, &[0]), [2, 2]);
}

#[test]
fn a_sequence_that_finds_no_page_to_come_back_to_can_give_back_what_it_took() {
    let schedule = schedule(2);
    let mut pages = Pages::new(&schedule);
    leave(&mut pages, Pool::Global, 3);
    pages.extend(0, 0..2 * PAGE).unwrap();
    assert_eq!(pages.restore(1, 2 * PAGE), Err(Exhausted));
    pages.truncate(1, 0);
    assert_eq!((pages.free(Pool::Global), pages.restore(1, PAGE)), (1, Ok(())));
}

#[test]
fn a_page_of_three_stays_until_the_last_of_them_gives_it_back() {
    let schedule = schedule(3);
    let mut pages = Pages::new(&schedule);
    pages.extend(0, 0..2 * PAGE).unwrap();
    assert_eq!((pages.share(0, 1, 2 * PAGE), pages.share(1, 2, 2 * PAGE)), (2 * PAGE, 2 * PAGE));
    let free = pages.free(Pool::Global);
    assert_eq!((free + 2, pages.shared()), (pages.total(Pool::Global), 4));
    // One goes back into a page that the others still have, and continues from the page's beginning on its own copy.
    assert_eq!(pages.kept(1, PAGE + 3), PAGE);
    pages.truncate(1, PAGE);
    pages.extend(1, PAGE..PAGE + 1).unwrap();
    assert_eq!((pages.free(Pool::Global), pages.shared()), (free - 1, 4));
    let page = |pages: &Pages, sequence: usize| pages.tables[sequence][Pool::Global as usize].page(1);
    assert!(page(&pages, 1) != page(&pages, 0) && page(&pages, 2) == page(&pages, 0));
    pages.truncate(0, 0);
    assert_eq!((pages.kept(2, PAGE + 3), pages.shared()), (PAGE + 3, 2), "the second page is the third's alone");
    pages.truncate(1, 0);
    pages.truncate(2, 0);
    assert_eq!(pages.free(Pool::Global), pages.total(Pool::Global));
    pages.check();
}

/// A sequence that restarts without being truncated writes from position 0, and not to shared pages.
#[test]
fn a_sequence_that_begins_anew_leaves_shared_pages_alone() {
    let schedule = schedule(2);
    let mut pages = Pages::new(&schedule);
    pages.extend(0, 0..2 * PAGE).unwrap();
    pages.share(0, 1, 2 * PAGE);
    pages.extend(0, 0..5).unwrap();
    assert_eq!(pages.shared(), 0);
    assert!(pages.holds(0, &(0..5)) && pages.kept(1, 2 * PAGE) == 2 * PAGE);
    pages.check();
}

#[test]
fn a_sequence_has_no_more_pages_than_its_context() {
    let schedule = schedule(2);
    let mut pages = Pages::new(&schedule);
    (0..CONTEXT / PAGE).for_each(|n| pages.extend(0, n * PAGE..(n + 1) * PAGE).unwrap());
    let before = pages.clone();
    assert_eq!(pages.total(Pool::Global) - pages.free(Pool::Global), schedule.kv.pool(Pool::Global).most);
    // There are free pages, but no entry for another one.
    assert_eq!(pages.extend(0, CONTEXT..CONTEXT + 1), Err(Exhausted));
    assert_eq!(pages.free(Pool::Global), before.free(Pool::Global));
    assert_eq!(pages.kept(0, CONTEXT), before.kept(0, CONTEXT));
    pages.check();
}

/// A sequence that lacks a page releases its own local pages behind the window before it allocates more.
#[test]
fn pages_behind_the_window_serve_first() {
    let schedule = schedule(1);
    let mut pages = Pages::new(&schedule);
    pages.extend(0, 0..3 * PAGE).unwrap();
    leave(&mut pages, Pool::Local, 0);
    // Position 192 sees 93 and later ones, which begin in the second page.
    assert!(pages.has_room(0, &(3 * PAGE..3 * PAGE + 1)) && !pages.has_room(0, &(3 * PAGE..4 * PAGE + 1)));
    pages.extend(0, 3 * PAGE..3 * PAGE + 1).unwrap();
    assert_eq!(pages.tables[0][Pool::Local as usize].first, 1);
}

/// A DMA engine reads consecutive pages at once.
#[test]
fn pages_of_sequences_that_grow_in_turn_follow_each_other() {
    let schedule = schedule(4);
    let mut pages = Pages::new(&schedule);
    for n in 0..CONTEXT / PAGE {
        (0..4).for_each(|sequence| pages.extend(sequence, n * PAGE..(n + 1) * PAGE).unwrap());
    }
    for pool in Pool::ALL {
        for tables in &pages.tables {
            let held = &tables[pool as usize].pages;
            let apart = held.iter().zip(held.iter().skip(1)).filter(|(page, next)| **next != **page + 1).count();
            assert!(apart <= 1, "{pool:?}: {held:?}");
        }
    }
    pages.check();
    // A single sequence has the pool from its start.
    (0..4).for_each(|sequence| pages.truncate(sequence, 0));
    pages.extend(2, 0..3 * PAGE).unwrap();
    assert_eq!(pages.tables[2][0].pages, [0, 1, 2]);
}
