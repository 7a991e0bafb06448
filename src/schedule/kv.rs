//! The KV cache: pools of pages.
//!
//! A page holds [`PAGE`] consecutive positions of one sequence, for all layers of its pool one after the other. A layer's
//! part of it is contiguous, `[K, V][kv_heads][PAGE][padded head_dim]`, so that a DMA engine can read it. Each sequence has
//! a page table in the arena for each pool: the page of positions `PAGE * n ..` is entry `n % entries`.

use super::step::KvType;
use crate::model::{LayerKind, Shape};
use crate::schedule::Extent;

/// Positions of a page.
pub const PAGE: usize = 64;
/// Most bytes of an allocation of pages, unless one page is larger. Drivers limit the size of an allocation, and also
/// their number.
const BLOCK_BYTES: u64 = 512 << 20;

/// Which layers a page is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Pool {
    /// Global layers, which see every position.
    Global,
    /// Local layers, which see those in their window.
    Local,
}

impl Pool {
    /// Both pools.
    pub const ALL: [Pool; 2] = [Pool::Global, Pool::Local];

    /// The pool of a kind of layer.
    pub fn of(kind: LayerKind) -> Pool {
        match kind {
            LayerKind::Global => Pool::Global,
            LayerKind::Local => Pool::Local,
        }
    }
}

/// A layer's keys and values: its part of each page of a pool.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct KvLayer {
    /// Index of the layer.
    pub layer: usize,
    /// The pool of its pages.
    pub pool: Pool,
    /// Its place among the pool's layers.
    pub place: usize,
    /// Key (and value) heads.
    pub kv_heads: usize,
    /// Elements of one head, without padding.
    pub head_dim: usize,
    /// Element type on a device.
    pub element: KvType,
    /// Entries of a sequence's page table, a power of two.
    pub entries: usize,
    /// Most positions of a sequence.
    pub context: usize,
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

    /// Elements from a page's start to the layer's K (`half` 0) or V (1) of a head, at position `p`.
    pub fn element_at(&self, half: usize, head: usize, p: usize) -> usize {
        let head = self.place * self.elements() + half * self.half_elements() + head * PAGE * self.dim_stride();
        head + p % PAGE * self.dim_stride()
    }
}

/// A pool's pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolLayout {
    /// Which pool.
    pub pool: Pool,
    /// Pages of all sequences together.
    pub pages: usize,
    /// Most pages that a sequence holds.
    pub most: usize,
    /// Bytes of a page.
    pub page_bytes: u64,
    /// Bytes of a position's part of it for one head's keys, or values.
    pub position_bytes: usize,
}

impl PoolLayout {
    /// Entries of a sequence's page table: a power of two, so that kernels find an entry without dividing.
    pub fn entries(&self) -> usize {
        self.most.next_power_of_two()
    }

    /// Pages of an allocation; the last one may have fewer.
    pub fn block_pages(&self) -> usize {
        (BLOCK_BYTES / self.page_bytes.max(1)).max(1) as usize
    }

    /// The pages of each allocation.
    pub fn blocks(&self) -> impl Iterator<Item = usize> + use<> {
        let (pages, block) = (self.pages, self.block_pages());
        (0..pages.div_ceil(block)).map(move |i| block.min(pages - i * block))
    }

    /// Clears what a page's bytes hold of positions after its first `positions`.
    pub fn clear_behind(&self, page: &mut [u8], positions: usize) {
        for head in page.chunks_exact_mut(PAGE * self.position_bytes) {
            head[positions.min(PAGE) * self.position_bytes..].fill(0);
        }
    }
}

/// Both pools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KvLayout([PoolLayout; 2]);

impl KvLayout {
    /// The pools of `shape` for `extent`. A sequence of the local pool holds the pages that a pass of most rows sees, and
    /// one for a row ahead. Each of its local pages has a global one beside it, so that there are never more.
    pub fn new(shape: &Shape, extent: &Extent) -> KvLayout {
        let layer = KvLayer::new(shape, extent, 0, 0, 0);
        let whole = extent.context.div_ceil(PAGE);
        let all = whole.saturating_mul(extent.sequences);
        let wanted = extent.kv_tokens.map_or(all, |tokens| tokens.div_ceil(PAGE).min(all));
        KvLayout(Pool::ALL.map(|pool| {
            let layers = shape.layers.iter().filter(|kind| Pool::of(**kind) == pool).count();
            let most = match pool {
                Pool::Global => whole,
                Pool::Local => ((shape.window + extent.max_rows).div_ceil(PAGE) + 1).min(whole),
            };
            let page_bytes = (layers * layer.elements() * extent.kv.bytes()) as u64;
            let position_bytes = layer.dim_stride() * extent.kv.bytes();
            let pages = most.saturating_mul(extent.sequences).min(wanted);
            PoolLayout { pool, pages, most, page_bytes, position_bytes }
        }))
    }

    /// A pool.
    pub fn pool(&self, pool: Pool) -> &PoolLayout {
        &self.0[pool as usize]
    }

    /// Tokens that there is room for, of all sequences together.
    pub fn tokens(&self) -> usize {
        self.pool(Pool::Global).pages.saturating_mul(PAGE)
    }

    /// Whether a sequence that is alone can be as long as the context.
    pub fn holds_one(&self) -> bool {
        self.0.iter().all(|pool| pool.pages >= pool.most)
    }

    /// Takes away a pool's pages after its first `pages`.
    pub fn limit(&mut self, pool: Pool, pages: usize) {
        let layout = &mut self.0[pool as usize];
        layout.pages = layout.pages.min(pages);
    }

    /// Bytes of all pages.
    pub fn bytes(&self) -> u64 {
        self.0.iter().map(|pool| (pool.pages as u64).saturating_mul(pool.page_bytes)).fold(0, u64::saturating_add)
    }
}

impl KvLayer {
    fn new(shape: &Shape, extent: &Extent, layer: usize, place: usize, entries: usize) -> KvLayer {
        KvLayer {
            layer,
            pool: Pool::of(shape.layers[layer]),
            place,
            kv_heads: shape.kv_heads,
            head_dim: shape.head_dim,
            element: extent.kv,
            entries,
            context: extent.context,
        }
    }

    /// Those of all layers, in order.
    pub(super) fn all(shape: &Shape, extent: &Extent, kv: &KvLayout) -> Vec<KvLayer> {
        let place = |layer: usize| shape.layers[..layer].iter().filter(|kind| **kind == shape.layers[layer]).count();
        let layers = 0..shape.layers.len();
        let entries = |layer: usize| kv.pool(Pool::of(shape.layers[layer])).entries();
        layers.map(|layer| KvLayer::new(shape, extent, layer, place(layer), entries(layer))).collect()
    }
}
