//! The KV cache: pools of pages.
//!
//! A page holds [`PAGE`] consecutive positions of one sequence, for all layers of its pool. A layer's part of a page is
//! contiguous, `[K, V][kv_heads][PAGE][padded head_dim]`, so that a DMA engine can read it. On the host a page's parts
//! follow each other. On a device the pages of a pool are in blocks, each an allocation: `[layer][page of the block]`
//! parts, so that pages that follow each other lie one part apart in each layer, and a DMA engine reads a run of them
//! at once. Each sequence has a page table in the arena for each pool: the page of positions `PAGE * n ..` is entry `n
//! % entries`.

use super::step::KvType;
use crate::model::{LayerKind, Shape};
use crate::schedule::Extent;
use std::ops::Range;

/// The number of positions in a page.
pub const PAGE: usize = 64;
/// Usual bytes of a block of pages, unless one page is larger. Drivers limit the number of allocations, and the size of
/// each (Vulkan allows at least 1 GiB).
const BLOCK_BYTES: u64 = 512 << 20;

/// The kinds of layer that have pages of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Pool {
    /// The pool of the global layers, which attend to every position.
    Global,
    /// Local layers, which see the positions in their window.
    Local,
}

impl Pool {
    /// The pools of global and of local layers.
    pub const ALL: [Pool; 2] = [Pool::Global, Pool::Local];

    /// The pool of a kind of layer.
    pub fn of(kind: LayerKind) -> Pool {
        match kind {
            LayerKind::Global => Pool::Global,
            LayerKind::Local => Pool::Local,
        }
    }

    /// The kind of the layers whose pages are in this pool.
    fn kind(self) -> LayerKind {
        match self {
            Pool::Global => LayerKind::Global,
            Pool::Local => LayerKind::Local,
        }
    }
}

/// The keys and values of one layer, which has a part of each page of a pool.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct KvLayer {
    /// The index of the layer in the model.
    pub layer: usize,
    /// The pool that the layer's pages belong to.
    pub pool: Pool,
    /// The index of the layer among those of its pool.
    pub place: usize,
    /// The number of key heads, which is that of value heads.
    pub kv_heads: usize,
    /// The number of elements in a head, without padding.
    pub head_dim: usize,
    /// The type of the cache's elements on a device.
    pub element: KvType,
    /// Entries of a sequence's page table, a power of two.
    pub entries: usize,
    /// The most positions of a sequence.
    pub context: usize,
    /// Pages of a block. On a device, that many parts lie between a page's part of this layer and its part of the
    /// pool's next layer.
    pub block_pages: usize,
}

impl KvLayer {
    /// Elements from one position to the next: `head_dim` padded to a multiple of 8, so that kernels can load 16 bytes
    /// at a time.
    pub fn dim_stride(&self) -> usize {
        self.head_dim.next_multiple_of(8)
    }

    /// Elements of the layer's K (or V) in a page.
    pub fn half_elements(&self) -> usize {
        self.kv_heads * PAGE * self.dim_stride()
    }

    /// Elements of the layer's K and V in a page.
    pub fn elements(&self) -> usize {
        2 * self.half_elements()
    }

    /// Elements from a page's start on the host to the layer's K (`half` 0) or V (1) of a head, at position `p`.
    pub fn element_at(&self, half: usize, head: usize, p: usize) -> usize {
        let head = self.place * self.elements() + half * self.half_elements() + head * PAGE * self.dim_stride();
        head + p % PAGE * self.dim_stride()
    }
}

/// The sizes of one pool's pages, and their division into blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolLayout {
    /// The pool whose pages these are.
    pub pool: Pool,
    /// The number of pages for all sequences together.
    pub pages: usize,
    /// The most pages that one sequence needs.
    pub most: usize,
    /// The size of a page in bytes, with all layers of the pool.
    pub page_bytes: u64,
    /// Bytes of one position's keys, or values, of one head.
    pub position_bytes: usize,
    /// The size of one layer's keys and values in a page, in bytes.
    pub part_bytes: u64,
    /// Pages of a block. All blocks have equally many, so that the distance between layers is the same in each.
    pub block_pages: usize,
}

impl PoolLayout {
    /// Entries of a sequence's page table: a power of two, so that kernels find an entry without dividing.
    pub fn entries(&self) -> usize {
        self.most.next_power_of_two()
    }

    /// The number of blocks that the pages are allocated in.
    pub fn blocks(&self) -> usize {
        self.pages / self.block_pages
    }

    /// The size of a block in bytes.
    pub fn block_bytes(&self) -> u64 {
        self.page_bytes.saturating_mul(self.block_pages as u64)
    }

    /// The block of a page on a device, and the bytes from its start to the page's part of the pool's first layer.
    pub fn in_block(&self, page: usize) -> (usize, u64) {
        (page / self.block_pages, (page % self.block_pages) as u64 * self.part_bytes)
    }

    /// The places on a device of a range of a page's bytes in host order: ranges of bytes from the start of the page's
    /// block, in order. Each lies in one layer's part.
    pub fn pieces(&self, page: usize, bytes: Range<u64>) -> impl Iterator<Item = Range<u64>> + use<> {
        let (part, stride) = (self.part_bytes, self.part_bytes * self.block_pages as u64);
        let (_, start) = self.in_block(page);
        (bytes.start / part..bytes.end.div_ceil(part)).map(move |layer| {
            let within = bytes.start.max(layer * part)..bytes.end.min((layer + 1) * part);
            let first = start + layer * stride - layer * part;
            first + within.start..first + within.end
        })
    }

    /// Clears the bytes of a page for positions after its first `positions`.
    pub fn clear_behind(&self, page: &mut [u8], positions: usize) {
        for head in page.chunks_exact_mut(PAGE * self.position_bytes) {
            head[positions.min(PAGE) * self.position_bytes..].fill(0);
        }
    }
}

/// The layouts of the global and of the local layers' pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KvLayout([PoolLayout; 2]);

impl KvLayout {
    /// The pools of `shape` for `extent`. A sequence of the local pool holds the pages that the largest pass sees, and
    /// one for a row ahead. The local pool never needs more pages than the global one, since each of a sequence's local
    /// pages has a global counterpart. The number of pages is rounded up to whole blocks, mostly by none.
    pub fn new(shape: &Shape, extent: &Extent) -> KvLayout {
        let whole = extent.context.div_ceil(PAGE);
        let all = whole.saturating_mul(extent.sequences);
        let wanted = extent.kv_tokens.map_or(all, |tokens| tokens.div_ceil(PAGE).min(all));
        KvLayout(Pool::ALL.map(|pool| {
            let kind = pool.kind();
            let layers = shape.layers.iter().filter(|layer| **layer == kind).count();
            let layer = KvLayer::new(shape, extent, kind, 0, 0, None);
            let most = match pool {
                Pool::Global => whole,
                Pool::Local => (shape.window().saturating_add(extent.max_rows).div_ceil(PAGE) + 1).min(whole),
            };
            let part_bytes = (layer.elements() * extent.kv.bytes()) as u64;
            let page_bytes = layers as u64 * part_bytes;
            let position_bytes = layer.dim_stride() * extent.kv.bytes();
            let pages = most.saturating_mul(extent.sequences).min(wanted);
            let block_pages = block_pages(pages, page_bytes);
            let pages = pages.div_ceil(block_pages).saturating_mul(block_pages);
            PoolLayout { pool, pages, most, page_bytes, position_bytes, part_bytes, block_pages }
        }))
    }

    /// The layout of one pool.
    pub fn pool(&self, pool: Pool) -> &PoolLayout {
        &self.0[pool as usize]
    }

    /// Tokens that the pages have room for, over all sequences.
    pub fn tokens(&self) -> usize {
        self.pool(Pool::Global).pages.saturating_mul(PAGE)
    }

    /// True if there are enough pages for a sequence as long as the context.
    pub fn holds_one(&self) -> bool {
        self.0.iter().all(|pool| pool.pages >= pool.most)
    }

    /// The same pages and blocks, with elements of the type `to`.
    pub(super) fn with_elements(&self, from: KvType, to: KvType) -> KvLayout {
        let scaled = |bytes: u64| bytes / from.bytes() as u64 * to.bytes() as u64;
        KvLayout(self.0.map(|pool| PoolLayout {
            page_bytes: scaled(pool.page_bytes),
            position_bytes: scaled(pool.position_bytes as u64) as usize,
            part_bytes: scaled(pool.part_bytes),
            ..pool
        }))
    }

    /// Removes a pool's blocks after its first `blocks`.
    pub fn limit(&mut self, pool: Pool, blocks: usize) {
        let layout = &mut self.0[pool as usize];
        layout.pages = layout.pages.min(blocks * layout.block_pages);
    }

    /// The size of all pages in bytes.
    pub fn bytes(&self) -> u64 {
        self.0.iter().map(|pool| (pool.pages as u64).saturating_mul(pool.page_bytes)).fold(0, u64::saturating_add)
    }
}

/// Pages of each block for a pool of at least `pages`. Of block sizes from half of the usual one up to it, this returns
/// the one that adds the fewest surplus pages when the last block is filled. If the surplus is above a hundredth, block
/// sizes up to twice the usual are tried as well; they fill heaps less well.
fn block_pages(pages: usize, page_bytes: u64) -> usize {
    let usual = (BLOCK_BYTES / page_bytes.max(1)).max(1) as usize;
    if pages <= usual {
        return pages.max(1);
    }
    let too_many = |each: &usize| (each - pages % each) % each;
    let small = (usual / 2 + 1..=usual).rev().min_by_key(too_many).unwrap_or(usual);
    if 100 * too_many(&small) <= pages || page_bytes > BLOCK_BYTES {
        return small;
    }
    (usual + 1..=2 * usual).chain([small]).min_by_key(too_many).unwrap_or(small)
}

impl KvLayer {
    fn new(
        shape: &Shape,
        extent: &Extent,
        kind: LayerKind,
        layer: usize,
        place: usize,
        pool: Option<&PoolLayout>,
    ) -> KvLayer {
        let attention = shape.attention(kind);
        KvLayer {
            layer,
            pool: Pool::of(kind),
            place,
            kv_heads: attention.kv_heads,
            head_dim: attention.head_dim,
            element: extent.kv,
            entries: pool.map_or(0, PoolLayout::entries),
            context: extent.context,
            block_pages: pool.map_or(0, |pool| pool.block_pages),
        }
    }

    /// The KV layers of all layers, in order.
    pub(super) fn all(shape: &Shape, extent: &Extent, kv: &KvLayout) -> Vec<KvLayer> {
        let place = |layer: usize| shape.layers[..layer].iter().filter(|kind| **kind == shape.layers[layer]).count();
        let layers = 0..shape.layers.len();
        let pool = |layer: usize| Some(kv.pool(Pool::of(shape.layers[layer])));
        let new = |layer| KvLayer::new(shape, extent, shape.layers[layer], layer, place(layer), pool(layer));
        layers.map(new).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{WeightFormat, presets};
    use crate::schedule::Schedule;

    fn layout(sequences: usize) -> KvLayout {
        let shape = presets::preset("gemma3-27b").unwrap();
        let extent =
            Extent { context: 32_768, max_rows: 512, head_rows: 1, sequences, kv: KvType::Bf16, kv_tokens: None };
        KvLayout::new(&shape, &extent)
    }

    /// Within a block, a layer's part of one page ends where its part of the next begins, and no two overlap.
    #[test]
    fn a_block_has_each_part_of_each_page_once() {
        let layout = layout(1);
        for pool in Pool::ALL {
            let pool = *layout.pool(pool);
            let layers = pool.page_bytes / pool.part_bytes;
            assert!(pool.part_bytes <= 4 << 20, "farther apart than a step of a DMA engine");
            let mut places: Vec<(usize, u64)> = Vec::new();
            for page in 0..pool.pages {
                let (block, first) = pool.in_block(page);
                let pieces: Vec<_> = pool.pieces(page, 0..pool.page_bytes).collect();
                assert!(pieces.iter().all(|piece| piece.end - piece.start == pool.part_bytes));
                assert_eq!((pieces.len() as u64, pieces[0].start), (layers, first));
                if pool.in_block(page + 1).0 == block {
                    let next = pool.pieces(page + 1, 0..pool.page_bytes);
                    assert!(pieces.iter().zip(next).all(|(one, next)| one.end == next.start));
                }
                places.extend(pieces.iter().map(|piece| (block, piece.start)));
            }
            places.sort_unstable();
            let each = pool.block_bytes() / pool.part_bytes;
            let all = (0..pool.blocks()).flat_map(|block| (0..each).map(move |n| (block, n * pool.part_bytes)));
            assert!(places.iter().copied().eq(all));
        }
    }

    /// A driver may have allocated fewer blocks than planned; page ids then count the allocated ones.
    #[test]
    fn other_elements_have_the_same_pages_in_the_same_blocks() {
        let shape = presets::preset("gemma3-27b").unwrap();
        for sequences in [3, 7, 32] {
            let (context, kv) = (32_768, KvType::Bf16);
            let extent = Extent { context, max_rows: 512, head_rows: 1, sequences, kv, kv_tokens: None };
            let mut schedule = Schedule::build(&shape, extent, |_| WeightFormat::Int8);
            for less in [0, 1] {
                Pool::ALL.into_iter().for_each(|pool| {
                    let blocks = schedule.kv.pool(pool).blocks();
                    schedule.kv.limit(pool, blocks - less);
                });
                for (kv, times) in [(KvType::F32, 2), (KvType::F16, 1)] {
                    let other = schedule.with_kv(kv);
                    for pool in Pool::ALL {
                        let (had, has) = (schedule.kv.pool(pool), other.kv.pool(pool));
                        assert_eq!((has.pages, has.blocks()), (had.pages, had.blocks()), "{sequences} {pool:?}");
                        assert_eq!(has.block_bytes(), times * had.block_bytes());
                        assert_eq!(has.part_bytes, times * had.part_bytes);
                        assert_eq!(has.position_bytes as u64, times * had.position_bytes as u64);
                    }
                    assert!(other.kv_layers.iter().all(|l| l.block_pages == other.kv.pool(l.pool).block_pages));
                }
            }
        }
    }

    #[test]
    fn a_range_of_a_page_is_cut_where_a_layer_ends() {
        let pool = *layout(1).pool(Pool::Global);
        let (part, stride) = (pool.part_bytes, pool.part_bytes * pool.block_pages as u64);
        let pieces = |bytes| pool.pieces(1, bytes).map(|piece| [piece.start, piece.end]).collect::<Vec<_>>();
        assert_eq!(pieces(0..0), [[0; 2]; 0]);
        assert_eq!(pieces(8..part), [[part + 8, 2 * part]]);
        assert_eq!(pieces(part - 8..part + 8), [[2 * part - 8, 2 * part], [part + stride, part + stride + 8]]);
        assert_eq!(pieces(2 * part + 8..2 * part + 16), [[part + 2 * stride + 8, part + 2 * stride + 16]]);
    }

    #[test]
    fn blocks_are_alike_and_hold_what_is_wanted() {
        for sequences in [1, 3, 7, 32] {
            for pool in Pool::ALL {
                let pool = *layout(sequences).pool(pool);
                let wanted = pool.most * sequences;
                assert!(pool.pages >= wanted && pool.pages == pool.blocks() * pool.block_pages);
                assert!(pool.block_bytes() <= 2 * BLOCK_BYTES);
            }
        }
        assert_eq!([1, 20, 40, 800].map(|pages| block_pages(pages, BLOCK_BYTES / 20)), [1, 20, 20, 20]);
        assert_eq!([23, 41, 802].map(|pages| block_pages(pages, BLOCK_BYTES / 20)), [23, 21, 11]);
        assert_eq!(block_pages(5, 3 * BLOCK_BYTES), 1);
        // The surplus of pages is small.
        for pages in 1..5_000_usize {
            let each = block_pages(pages, BLOCK_BYTES / 20);
            assert!(pages.next_multiple_of(each) - pages <= 1 + pages / 50, "{pages} {each}");
        }
    }
}
