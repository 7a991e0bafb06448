//! The KV cache on a device: its pages, in as many blocks as the driver grants.

use crate::executor::{self, PageId, Pages};
use crate::plan::{Plan, Purpose};
use crate::replay::driver::{Driver, HostAccess, Memory};
use crate::replay::options::ReplayOptions;
use crate::schedule::Schedule;
use crate::schedule::kv::{KvLayout, Pool};
use crate::{Error, Result};
use std::ops::Range;

/// The KV cache of an executor on a device.
pub(super) struct KvCache<M> {
    pub pages: Pages,
    layout: KvLayout,
    /// The blocks of each pool, those of the global layers first.
    pub blocks: [Vec<M>; 2],
}

impl<M: Memory> KvCache<M> {
    /// Allocates the planned blocks of both pools. If the driver refuses a block although its budget had room, the
    /// pools consist of the granted ones, and the schedule's layout is reduced accordingly. The host maps
    /// the blocks if it can and the options say so.
    ///
    /// # Errors
    /// As [`Driver::allocate`]. Refused: the granted blocks do not hold a single sequence.
    pub fn allocate<D: Driver<Memory = M>>(
        driver: &D,
        plan: &Plan,
        schedule: &mut Schedule,
        options: ReplayOptions,
    ) -> Result<KvCache<M>> {
        let access = if options.maps_kv { HostAccess::Device } else { HostAccess::None };
        let layout = &mut schedule.kv;
        let planned = layout.tokens();
        let mut blocks = take(layout, |pool, number| {
            let region = plan.regions.iter().find(|r| r.purpose == Purpose::Kv(pool, number));
            let region = region.ok_or_else(|| Error::device("the plan has too few KV pages", "report this"))?;
            driver.allocate(region.bytes, region.heap, access, options.arena)
        })?;
        if layout.tokens() < planned {
            let tokens = layout.tokens();
            log::warn!("the KV cache has room for {tokens} tokens, not for {planned}: the driver has no more");
        }
        if options.staged {
            blocks.iter_mut().flatten().for_each(Memory::hide);
        }
        Ok(KvCache { pages: Pages::new(schedule), layout: schedule.kv, blocks })
    }

    /// Fills the page tables, as [`executor::fill_tables`].
    pub fn fill_tables(&self, words: &mut [u32], schedule: &Schedule) {
        executor::fill_tables(words, schedule, |pool, page| address(&self.layout, &self.blocks, pool, page));
    }

    /// Writes the changed entries of the page tables, as [`executor::write_tables`].
    #[inline]
    pub fn write_tables(&mut self, words: &mut [u32], schedule: &Schedule) {
        let KvCache { pages, layout, blocks } = self;
        executor::write_tables(words, &schedule.arena, pages, |pool, page| address(layout, blocks, pool, page));
    }

    /// The pieces of a range of a page's bytes: for each its block, the byte offsets from the block's start and from
    /// the range's start, and its size.
    pub fn pieces(&self, pool: Pool, page: PageId, bytes: Range<u64>) -> impl Iterator<Item = (&M, u64, u64, u64)> {
        let layout = self.layout.pool(pool);
        let block = &self.blocks[pool as usize][layout.in_block(page as usize).0];
        let mut here = 0;
        layout.pieces(page as usize, bytes).map(move |piece| {
            let size = piece.end - piece.start;
            here += size;
            (block, piece.start, here - size, size)
        })
    }
}

/// The device address of a page: of its first layer's keys and values.
fn address<M: Memory>(layout: &KvLayout, blocks: &[Vec<M>; 2], pool: Pool, page: usize) -> u64 {
    let (block, offset) = layout.pool(pool).in_block(page);
    blocks[pool as usize][block].address() + offset
}

/// Allocates the blocks of both pools until one is refused. The next block is always of the pool that has the smaller share of
/// its planned ones, so that a refusal leaves both about as full.
fn take<B>(layout: &mut KvLayout, mut block: impl FnMut(Pool, usize) -> Result<B>) -> Result<[Vec<B>; 2]> {
    let planned = Pool::ALL.map(|pool| layout.pool(pool).blocks());
    let mut blocks = [Vec::with_capacity(planned[0]), Vec::with_capacity(planned[1])];
    let mut order = Vec::with_capacity(planned[0] + planned[1]);
    let mut refused = None;
    while refused.is_none() {
        let lacks = |pool: &Pool| blocks[*pool as usize].len() < planned[*pool as usize];
        let share = |pool: &Pool| blocks[*pool as usize].len() as f64 / planned[*pool as usize] as f64;
        let next = Pool::ALL.into_iter().filter(lacks).min_by(|a, b| share(a).total_cmp(&share(b)));
        let Some(pool) = next else { return Ok(blocks) };
        match block(pool, blocks[pool as usize].len()) {
            Ok(block) => {
                blocks[pool as usize].push(block);
                order.push(pool);
            }
            Err(e @ Error::Refused { .. }) => refused = Some(e),
            Err(e) => return Err(e),
        }
    }
    let limited = |blocks: &[Vec<B>; 2]| {
        let mut limited = *layout;
        Pool::ALL.into_iter().for_each(|pool| limited.limit(pool, blocks[pool as usize].len()));
        limited
    };
    let mut had = limited(&blocks);
    if let Some(e) = refused.filter(|_| !had.holds_one()) {
        return Err(e);
    }
    // Little memory may be left, and the driver needs some for itself: the last block is freed.
    if let Some(last) = order.pop() {
        let mut fewer = had;
        fewer.limit(last, blocks[last as usize].len() - 1);
        if fewer.holds_one() {
            blocks[last as usize].pop();
            had = fewer;
        }
    }
    *layout = had;
    Ok(blocks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::presets;
    use crate::schedule::{Extent, KvType};

    /// The pools of 27B for 32 sequences: 16384 and 800 pages.
    fn layout() -> KvLayout {
        let (context, sequences) = (32_768, 32);
        let extent = Extent { context, max_rows: 512, head_rows: 1, sequences, kv: KvType::F16, kv_tokens: None };
        KvLayout::new(&presets::preset("gemma3-27b").unwrap(), &extent)
    }

    /// Allocates blocks from a driver that has `bytes` left.
    fn take_of(bytes: u64) -> (KvLayout, Result<[Vec<u64>; 2]>) {
        let (mut layout, whole) = (layout(), layout());
        let mut left = bytes;
        let taken = take(&mut layout, |pool, _| {
            let bytes = whole.pool(pool).block_bytes();
            left = left.checked_sub(bytes).ok_or_else(|| Error::refused("no memory left", "use less"))?;
            Ok(bytes)
        });
        (layout, taken)
    }

    #[test]
    fn a_driver_that_has_less_than_it_said_gives_a_smaller_cache() {
        let whole = layout();
        let (had, taken) = take_of(whole.bytes());
        assert_eq!((had, taken.unwrap().concat().iter().sum::<u64>()), (whole, whole.bytes()));
        for share in [0.99, 0.5, 0.1] {
            let bytes = (whole.bytes() as f64 * share) as u64;
            let (had, taken) = take_of(bytes);
            let taken = taken.unwrap();
            assert!(had.bytes() <= bytes && had.bytes() > bytes - (2 << 30), "{share}: {} of {bytes}", had.bytes());
            assert_eq!(taken.concat().iter().sum::<u64>(), had.bytes());
            for pool in Pool::ALL {
                let had = had.pool(pool).pages as f64 / whole.pool(pool).pages as f64;
                assert!((had - share).abs() < 0.05, "{pool:?} has {had} of its pages where {share} were to be had");
            }
        }
    }

    #[test]
    fn a_driver_without_room_for_one_sequence_is_an_error() {
        let (had, taken) = take_of(2 << 30);
        assert_eq!((had, taken.unwrap_err().exit_code()), (layout(), 3));
        // Other failures are not treated as a lack of room.
        let lost = take::<u64>(&mut layout(), |_, _| Err(Error::device("it is lost", "run it again")));
        assert_eq!(lost.unwrap_err().exit_code(), 4);
    }
}
