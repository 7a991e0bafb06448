//! Attention of a layer on the NPU: its program's inputs and results, and the instruction streams that move them.
//!
//! The program is `aie/kernels/attend_bf16.rs` with its kernels, where the cores' work is described; this is the host's
//! side. Keys and values are read in place, in the pages of the cache: a stream's descriptors cover whole pages, and
//! runs of pages at equal distances. Queries and the positions that they see, which change from token to token, are in
//! separate units of parameters. So a stream changes only when a page is added or removed, and one stream serves all
//! layers with the same pages: the layer's offset is in the buffers' addresses.
//!
//! A column processes heads of K and V in sequence. If there are fewer heads than columns, a head's pages are divided
//! into parts, and their results are merged.
//!
//! Every command starts and ends in the array's initial state: a column's memory tile collects from its cores in turn,
//! and every command ends after a whole number of turns. So no state is lost if the driver lets the array sleep, or
//! gives it to another process between commands.
//!
//! This module is independent of a device. `aie/tests/model` runs these streams on the functional model, against f64.

pub mod decode;
pub mod prefill;
pub mod queries;
pub mod results;

pub use decode::DecodeAttention;
pub use prefill::{ChunkPages, PrefillAttention};
pub use queries::Queries;
pub use results::{QueryPart, QueryResults};

use std::ops::Range;

use super::stream::{InstructionStream, MOST_STEP, MOST_TRANSFERS, ShimChannel, ShimTransfer};

/// Bytes of a unit, the size of a buffer in a memory tile's rings for K, V and parameters.
pub const UNIT_BYTES: usize = 8192;
/// The number of positions in a page of the KV cache.
pub const PAGE_POSITIONS: usize = 64;
/// Bytes of a core's result for a sequence.
pub const LEFT_BYTES: usize = 18_432;
/// Bytes from the result of four queries of one token to the next four's.
pub const DECODE_QUAD_BYTES: usize = 66 * 64;
/// The number of cores in a column of the array.
pub const CORES: usize = 4;
/// The number of columns that the program uses.
pub const COLUMNS: u8 = 4;
/// Most blocks of pages of a command: a packet names seven buffers, two of which are parameters and results.
pub const MOST_BLOCKS: usize = 5;

/// The attention heads of a layer, and how a page lays out their keys and values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeadLayout {
    /// Elements of a head: 64, 128 or 256.
    pub head_dim: usize,
    /// The number of key heads, which is that of value heads.
    pub kv_heads: usize,
    /// Query heads per KV head: 1 to 8.
    pub group: usize,
    /// The number of columns that compute: 1 to 4.
    pub columns: u8,
    /// Cores of a column that take part in attention of one token: 1 to 4, as the program's image has them.
    pub cores: usize,
    /// Transfers of a command, in all columns: 8 or more. Larger work is divided into commands.
    pub transfers: usize,
}

/// The place of a page's part for the layer: K of all heads, each `[PAGE_POSITIONS][head_dim]` bf16, and then V.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PagePlace {
    /// The block: the index of a buffer among those with pages.
    pub block: u32,
    /// Bytes from the block's start to the page's data for the pool's first layer.
    pub offset: u64,
}

/// Arguments of a stream, by their index. The arguments after both are the command's blocks of pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnitArguments {
    /// The index of the argument with the cores' parameters and queries.
    pub parameters: u32,
    /// The index of the argument that the cores' results are written to.
    pub left: u32,
}

impl UnitArguments {
    /// The argument of `block`, one of a command's `blocks`.
    fn block(&self, blocks: &[u32], block: u32) -> u32 {
        let index = blocks.iter().take_while(|other| **other != block).count();
        self.parameters.max(self.left) + 1 + index as u32
    }
}

impl HeadLayout {
    /// Checks that the program supports the layout.
    ///
    /// # Errors
    /// One line: the unsupported property.
    pub fn check(&self) -> Result<(), String> {
        let HeadLayout { head_dim, kv_heads, group, columns, cores, transfers } = *self;
        if ![64, 128, 256].contains(&head_dim) {
            return Err(format!("heads of {head_dim} elements: the NPU's attention takes 64, 128 and 256"));
        }
        if kv_heads == 0 || !(1..=8).contains(&group) {
            return Err(format!("{group} query heads for each of {kv_heads}: the NPU's attention takes 1 to 8"));
        }
        if !(1..=COLUMNS).contains(&columns) || !(1..=CORES).contains(&cores) {
            return Err(format!("{columns} columns of {cores} cores: an array has {COLUMNS} of {CORES}"));
        }
        if !(8..=MOST_TRANSFERS).contains(&transfers) {
            return Err(format!("commands of {transfers} transfers: 8 to {MOST_TRANSFERS}"));
        }
        Ok(())
    }

    /// Bytes of a head's K, or V, in a page.
    pub fn head_bytes(&self) -> usize {
        2 * PAGE_POSITIONS * self.head_dim
    }

    /// Bytes of one layer's keys and values in a page.
    pub fn part_bytes(&self) -> usize {
        2 * self.kv_heads * self.head_bytes()
    }

    /// Idle turns of a column's cores after `parts` turns with parts: results are collected from all cores in turn, and
    /// a command ends with the last.
    fn idle_turns(&self, parts: usize) -> usize {
        parts.next_multiple_of(self.cores) - parts
    }

    /// Units of one head's K in a page.
    fn page_units(&self) -> usize {
        self.head_bytes() / UNIT_BYTES
    }

    /// Adds the transfers of a head's K and V over pages: one of each for every run of pages. `argument` returns a
    /// block's argument.
    fn send_pages(
        &self,
        (column, head): (u8, usize),
        pages: &[PagePlace],
        argument: impl Fn(u32) -> u32,
        transfers: &mut Vec<ShimTransfer>,
    ) {
        let head_bytes = self.head_bytes() as u64;
        for PageRun { first, count, step } in runs(pages) {
            for (number, half) in [(0, 0), (1, self.kv_heads)] {
                transfers.push(ShimTransfer {
                    column,
                    channel: ShimChannel::Send(number),
                    argument: argument(first.block),
                    offset: first.offset + (half + head) as u64 * head_bytes,
                    words: self.head_bytes() as u32 / 4,
                    parts: count,
                    step,
                });
            }
        }
    }

    /// The order in which the memory tile sends the words of a unit of K (`rows` of a tile 4) or V (2).
    pub fn walk(&self, tile: usize) -> Vec<usize> {
        let row = self.head_dim / 2;
        let mut order = Vec::with_capacity(UNIT_BYTES / 4);
        for step in 0..UNIT_BYTES / 4 / (16 * row) {
            for column in 0..row / tile {
                for position in 0..16 {
                    order.extend((0..tile).map(|word| word + position * row + column * tile + step * 16 * row));
                }
            }
        }
        order
    }
}

/// The work of a command: pieces for each column, and the blocks that they read.
#[derive(Debug, Clone, PartialEq, Eq)]
struct DealtCommand<T> {
    columns: Vec<Vec<T>>,
    /// Each block once, in the order of the arguments.
    blocks: Vec<u32>,
}

/// A command's work, and the instruction stream for it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct AttendCommand<T> {
    dealt: DealtCommand<T>,
    stream: InstructionStream,
}

/// Work distributed to columns in turn, in commands within the limits of transfers and blocks.
struct ColumnWork<T> {
    columns: usize,
    most: usize,
    /// Transfers of a column that has work, beside those of its pieces.
    of_column: usize,
    /// Number of pieces so far, and the transfers of the last command.
    dealt: usize,
    transfers: usize,
    commands: Vec<DealtCommand<T>>,
}

impl<T> ColumnWork<T> {
    fn new(layout: &HeadLayout, of_column: usize) -> ColumnWork<T> {
        let columns = usize::from(layout.columns);
        ColumnWork { columns, most: layout.transfers, of_column, dealt: 0, transfers: 0, commands: Vec::new() }
    }

    /// Adds a piece with `transfers` transfers, which reads `pages`, to the next column.
    fn deal(&mut self, piece: T, pages: &[PagePlace], transfers: usize) {
        let column = self.dealt % self.columns;
        let fitting = self.commands.last().and_then(|command| {
            let begins = if command.columns[column].is_empty() { self.of_column } else { 0 };
            let blocks = blocks(&command.blocks, pages);
            let sum = self.transfers + begins + transfers;
            (sum <= self.most && blocks.len() <= MOST_BLOCKS).then_some((blocks, sum))
        });
        let (blocks, sum) = fitting.unwrap_or_else(|| {
            let columns = (0..self.columns).map(|_| Vec::new()).collect();
            self.commands.push(DealtCommand { columns, blocks: Vec::new() });
            (blocks(&[], pages), self.of_column + transfers)
        });
        if let Some(command) = self.commands.last_mut() {
            command.blocks = blocks;
            command.columns[column].push(piece);
        }
        (self.dealt, self.transfers) = (self.dealt + 1, sum);
    }
}

/// The blocks in `had`, then the blocks of the pages, each once.
fn blocks(had: &[u32], pages: &[PagePlace]) -> Vec<u32> {
    let mut blocks = had.to_vec();
    for page in pages {
        if !blocks.contains(&page.block) {
            blocks.push(page.block);
        }
    }
    blocks
}

/// Divides ranges of pages until each fits a command: two transfers for each run, and at most [`MOST_BLOCKS`] blocks.
fn split(pages: &[PagePlace], ranges: Vec<Range<usize>>, transfers: usize) -> Vec<Range<usize>> {
    let fits = |range: &Range<usize>| {
        let pages = &pages[range.clone()];
        pages.len() == 1 || (2 * runs(pages).len() <= transfers && blocks(&[], pages).len() <= MOST_BLOCKS)
    };
    let mut split = Vec::new();
    let mut rest: Vec<Range<usize>> = ranges.into_iter().rev().collect();
    while let Some(range) = rest.pop() {
        if fits(&range) {
            split.push(range);
        } else {
            let middle = range.start.midpoint(range.end);
            rest.extend([middle..range.end, range.start..middle]);
        }
    }
    split
}

/// Writes words that a core should receive in this order, from its word `first` of a unit on, to their places in
/// memory: the memory tile permutes every unit by its walk.
fn unwalk(walk: &[usize], first: usize, words: &[u32], to: &mut [u8]) {
    for (place, word) in walk[first..].iter().zip(words) {
        to[4 * place..][..4].copy_from_slice(&word.to_le_bytes());
    }
}

/// Pages at equal distances, which one descriptor covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageRun {
    /// The first page of the run.
    pub first: PagePlace,
    /// The number of pages in the run.
    pub count: u32,
    /// The distance from one page of the run to the next, in words of 4 bytes.
    pub step: u32,
}

/// Groups consecutive pages at equal distances into runs, in the pages' order.
pub fn runs(pages: &[PagePlace]) -> Vec<PageRun> {
    let step = |a: &PagePlace, b: &PagePlace| -> Option<u32> {
        let bytes = b.offset.checked_sub(a.offset).filter(|bytes| a.block == b.block && bytes.is_multiple_of(4))?;
        (1..=MOST_STEP).contains(&(bytes / 4)).then_some((bytes / 4) as u32)
    };
    let mut runs: Vec<PageRun> = Vec::new();
    let mut last: Option<&PagePlace> = None;
    for page in pages {
        let step = last.and_then(|last| step(last, page));
        match (runs.last_mut(), step) {
            (Some(run), Some(step)) if run.count == 1 || run.step == step => {
                (run.count, run.step) = (run.count + 1, step);
            }
            _ => runs.push(PageRun { first: *page, count: 1, step: 1 }),
        }
        last = Some(page);
    }
    runs
}
