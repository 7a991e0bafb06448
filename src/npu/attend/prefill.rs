//! Attention of many tokens for each of several sequences.

use super::queries::write_quad;
use super::{
    AttendCommand, CORES, ColumnWork, DealtCommand, HeadLayout, LEFT_BYTES, PAGE_POSITIONS, PagePlace, Queries,
    QueryPart, UNIT_BYTES, UnitArguments, runs, split, unwalk,
};
use crate::npu::stream::{InstructionStream, ShimChannel, ShimTransfer};
use std::ops::Range;

/// Units of parameters and queries of a block in K's stream, and in V's.
const UNITS: [usize; 2] = [3, 2];
/// Transfers of a column beside its blocks' (the cores' results), and of a block beside its pages' (its units in both
/// streams).
const OF_COLUMN: usize = 1;
const OF_BLOCK: usize = 2;
/// The first word of the cores' parameters in their unit, and the words of each core.
const OF_CORE: (usize, usize) = (16, 64);

/// Tokens of a sequence at consecutive positions, and the pages that hold the tokens and the positions that they see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkPages {
    /// Pages in order, from the one that holds position `from`.
    pub pages: Vec<PagePlace>,
    /// A multiple of a page's positions.
    pub from: usize,
    /// The number of the sequence's positions before the chunk's first token.
    pub past: usize,
    /// The number of tokens in the chunk.
    pub tokens: usize,
    /// Positions that a token sees, itself included; `None`: all.
    pub window: Option<usize>,
}

impl ChunkPages {
    /// The range of positions that the token with this index in the chunk attends to.
    pub fn seen(&self, token: usize) -> Range<usize> {
        let end = self.past + token + 1;
        self.window.map_or(0, |window| end.saturating_sub(window))..end
    }

    /// The range of the chunk's pages that tokens see.
    fn pages(&self, tokens: &Range<usize>) -> Range<usize> {
        let (first, end) = (self.seen(tokens.start).start, self.seen(tokens.end - 1).end);
        (first - self.from) / PAGE_POSITIONS..(end - self.from).div_ceil(PAGE_POSITIONS)
    }

    fn check(&self) -> Result<(), String> {
        let covered = self.from + self.pages.len() * PAGE_POSITIONS;
        let fits = self.from.is_multiple_of(PAGE_POSITIONS)
            && self.tokens > 0
            && self.window != Some(0)
            && self.seen(0).start >= self.from
            && self.past + self.tokens <= covered;
        match fits {
            true => Ok(()),
            false => Err(format!(
                "{} tokens behind {} over pages of positions {} to {covered}",
                self.tokens, self.past, self.from
            )),
        }
    }
}

/// Tokens whose queries of one KV head a column's cores process together, over some pages.
#[derive(Debug, Clone, PartialEq, Eq)]
struct PrefillBlock {
    chunk: usize,
    head: usize,
    tokens: Range<usize>,
    /// The range of the chunk's pages that the block reads.
    pages: Range<usize>,
    /// The number of blocks among which the pages that the tokens see are divided.
    parts: usize,
}

impl PrefillBlock {
    /// The queries of a core in quads: each a query head of the group with up to four consecutive tokens. Quads are
    /// distributed to cores in turn, query head by query head.
    fn quads(&self, group: usize, core: usize) -> impl Iterator<Item = PrefillQuad> + Clone + '_ {
        let of_query = self.tokens.len().div_ceil(4);
        (core..group * of_query).step_by(CORES).map(move |number| {
            let first = self.tokens.start + 4 * (number % of_query);
            PrefillQuad { query: number / of_query, first, last: self.tokens.end - 1 }
        })
    }
}

/// Up to four consecutive tokens of one query head, which a core computes together.
#[derive(Debug, Clone, Copy)]
struct PrefillQuad {
    /// The index of the query head within its group.
    query: usize,
    first: usize,
    /// The last token of the block that the quad belongs to.
    last: usize,
}

impl PrefillQuad {
    /// The tokens of the quad. Beyond the block's end, its last token is repeated.
    fn tokens(self) -> [usize; 4] {
        [0, 1, 2, 3].map(|index| (self.first + index).min(self.last))
    }

    /// Number of tokens.
    fn count(self) -> usize {
        (self.last + 1 - self.first).min(4)
    }
}

/// Attention of chunks, in one or several commands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrefillAttention {
    layout: HeadLayout,
    chunks: Vec<ChunkPages>,
    commands: Vec<AttendCommand<PrefillBlock>>,
    /// The memory tile's walks through units of K and of V.
    walks: [Vec<usize>; 2],
}

impl PrefillAttention {
    /// Attention of these chunks, on all four cores of each column.
    ///
    /// # Errors
    /// One line: an unsupported layout, or pages that lack positions that tokens see.
    pub fn new(
        layout: HeadLayout,
        arguments: UnitArguments,
        chunks: Vec<ChunkPages>,
    ) -> Result<PrefillAttention, String> {
        layout.check()?;
        if layout.cores != CORES {
            return Err(format!("attention of many tokens takes {CORES} cores, not {}", layout.cores));
        }
        chunks.iter().try_for_each(ChunkPages::check)?;
        let command = |dealt: DealtCommand<PrefillBlock>| {
            let stream = InstructionStream::new(layout.columns, &transfers(&layout, arguments, &chunks, &dealt))?;
            Ok(AttendCommand { dealt, stream })
        };
        let commands = divide(&layout, &chunks).into_iter().map(command).collect::<Result<_, String>>()?;
        Ok(PrefillAttention { commands, walks: [layout.walk(4), layout.walk(2)], layout, chunks })
    }

    /// The instruction stream of each command.
    pub fn streams(&self) -> impl Iterator<Item = &InstructionStream> {
        self.commands.iter().map(|command| &command.stream)
    }

    /// The chunks.
    pub fn chunks(&self) -> &[ChunkPages] {
        &self.chunks
    }

    /// The blocks of pages that a command reads, in the order of its arguments.
    pub fn blocks(&self, command: usize) -> &[u32] {
        &self.commands[command].dealt.blocks
    }

    fn dealt(&self, command: usize) -> impl Iterator<Item = &PrefillBlock> {
        self.commands[command].dealt.columns.iter().flatten()
    }

    /// Bytes of a command's parameters, and of its cores' results.
    pub fn bytes(&self, command: usize) -> (usize, usize) {
        let blocks = self.dealt(command).count();
        (blocks * (UNITS[0] + UNITS[1]) * UNIT_BYTES, blocks * CORES * LEFT_BYTES)
    }

    /// Writes a command's parameters and queries. Rows of `queries` are the chunks' tokens in order.
    pub fn write_parameters(&self, command: usize, queries: Queries<'_>, to: &mut [u8]) {
        for (block, to) in self.dealt(command).zip(to.chunks_exact_mut((UNITS[0] + UNITS[1]) * UNIT_BYTES)) {
            let mut units = to.chunks_exact_mut(UNIT_BYTES);
            if let Some(to) = units.next() {
                self.write_unit(block, to);
            }
            for (core, to) in (0..CORES).zip(units) {
                self.write_queries(block, core, queries, to);
            }
        }
    }

    /// Calls `found` for each query of a command's results.
    pub fn read_left(&self, command: usize, left: &[u8], mut found: impl FnMut(QueryPart<'_>)) {
        let HeadLayout { head_dim, group, .. } = self.layout;
        for (block, left) in self.dealt(command).zip(left.chunks_exact(CORES * LEFT_BYTES)) {
            let first = self.first_row(block.chunk);
            let of_cores = (0..CORES).map(|core| block.quads(group, core));
            for (quads, left) in of_cores.zip(left.chunks_exact(LEFT_BYTES)) {
                for (quad, left) in quads.zip(left.chunks(quad_bytes(head_dim))) {
                    for place in 0..quad.count() {
                        let of = (first + quad.first + place, block.head * group + quad.query);
                        found(QueryPart::new(of, block.parts, left, place));
                    }
                }
            }
        }
    }

    /// The row of a chunk's first token.
    fn first_row(&self, chunk: usize) -> usize {
        self.chunks[..chunk].iter().map(|chunk| chunk.tokens).sum()
    }

    /// Writes the unit of a block's parameters, whose words attend_prefill_bf16.s describes.
    fn write_unit(&self, block: &PrefillBlock, to: &mut [u8]) {
        let HeadLayout { head_dim, group, .. } = self.layout;
        let chunk = &self.chunks[block.chunk];
        let start = (chunk.from + block.pages.start * PAGE_POSITIONS) as i64;
        let (dim, units) = (head_dim as u32, (block.pages.len() * self.layout.page_units()) as u32);
        let (step, groups) = (32 * dim, core_rows(head_dim) as u32 / 16);
        let quad = quad_bytes(head_dim) as u32;
        let common =
            [units, UNIT_BYTES as u32 / step, dim / 16, dim / 16 - 1, 0, 0, groups, step, quad, 0, u32::MAX, 1];
        to.fill(0);
        unwalk(&self.walks[0], 0, &common, to);
        let relative = |position: usize| (position as i64 - start) as u32;
        let ends = relative(chunk.seen(block.tokens.start).end);
        // Without a window, a value far below all positions.
        let firsts = chunk.window.map_or(-(1 << 24), |window| i64::from(ends as i32) - window as i64) as u32;
        for core in 0..CORES {
            let mut words = [0u32; OF_CORE.1];
            let tokens = || block.quads(group, core).flat_map(PrefillQuad::tokens);
            if let (Some(least), Some(most)) = (tokens().min(), tokens().max()) {
                let [least, most] = [least, most].map(|token| chunk.seen(token));
                let seen = [least.start, most.end, most.start, least.end].map(relative);
                words[..4].copy_from_slice(&seen);
            }
            (words[4], words[5]) = (ends, firsts);
            for (index, token) in tokens().enumerate() {
                words[16 + index / 2] |= ((token - block.tokens.start) as u32) << (16 * (index % 2));
            }
            unwalk(&self.walks[0], OF_CORE.0 + core * OF_CORE.1, &words, to);
        }
    }

    /// Writes a core's unit of queries: for each 16 queries and eight dimensions, four tiles of 8 by 4. The queries of
    /// cores 0 and 1 go in K's stream, the others' in V's.
    fn write_queries(&self, block: &PrefillBlock, core: usize, queries: Queries<'_>, to: &mut [u8]) {
        let HeadLayout { head_dim, group, .. } = self.layout;
        let first = self.first_row(block.chunk);
        let quads = block.quads(group, core);
        if 4 * quads.clone().count() < core_rows(head_dim) {
            to.fill(0);
        }
        for (index, quad) in quads.enumerate() {
            let query = |token: usize| Some((queries.of)(first + token, block.head * group + quad.query));
            let (of_four, scaled) = (quad.tokens().map(query), (head_dim, queries.scale));
            let place = (8 * head_dim * (index / 4) + 16 * (index % 4), 64);
            match core / 2 {
                0 => write_quad::<4>(of_four, scaled, &self.walks[0], place, to),
                _ => write_quad::<2>(of_four, scaled, &self.walks[1], place, to),
            }
        }
    }
}

/// The number of queries that a core computes in one block.
fn core_rows(head_dim: usize) -> usize {
    4096 / head_dim
}

/// Bytes from the result of four queries to the next four's.
pub fn quad_bytes(head_dim: usize) -> usize {
    18 * head_dim
}

/// Commands with their blocks.
fn divide(layout: &HeadLayout, chunks: &[ChunkPages]) -> Vec<DealtCommand<PrefillBlock>> {
    let tokens = 4 * (core_rows(layout.head_dim) / layout.group).max(1);
    let mut work = ColumnWork::new(layout, OF_COLUMN);
    for (index, chunk) in chunks.iter().enumerate() {
        // Blocks, each with the number of its part of the visible pages.
        let mut parts: Vec<(usize, PrefillBlock)> = Vec::new();
        for first in (0..chunk.tokens).step_by(tokens) {
            let of_block = first..(first + tokens).min(chunk.tokens);
            let ranges = split(&chunk.pages, vec![chunk.pages(&of_block)], layout.transfers - OF_COLUMN - OF_BLOCK);
            let count = ranges.len();
            parts.extend(ranges.into_iter().enumerate().map(|(number, pages)| {
                (number, PrefillBlock { chunk: index, head: 0, tokens: of_block.clone(), pages, parts: count })
            }));
        }
        // Parts of the same number read nearly the same blocks of pages.
        parts.sort_by_key(|(number, _)| *number);
        for (_, block) in parts {
            let pages = &chunk.pages[block.pages.clone()];
            let transfers = OF_BLOCK + 2 * runs(pages).len();
            for head in 0..layout.kv_heads {
                work.deal(PrefillBlock { head, ..block.clone() }, pages, transfers);
            }
        }
    }
    work.commands
}

/// The transfers of a command's shims: for each column its cores' results, and for each block its units, K and V.
fn transfers(
    layout: &HeadLayout,
    arguments: UnitArguments,
    chunks: &[ChunkPages],
    dealt: &DealtCommand<PrefillBlock>,
) -> Vec<ShimTransfer> {
    let argument = |block| arguments.block(&dealt.blocks, block);
    let mut transfers = Vec::new();
    let mut index = 0;
    for (column, blocks) in (0u8..).zip(&dealt.columns).filter(|(_, blocks)| !blocks.is_empty()) {
        let left = (index * CORES * LEFT_BYTES) as u64;
        let bytes = (blocks.len() * CORES * LEFT_BYTES) as u32;
        transfers.push(ShimTransfer::whole(column, ShimChannel::Receive, arguments.left, left, bytes));
        for block in blocks {
            let mut at = (index * (UNITS[0] + UNITS[1]) * UNIT_BYTES) as u64;
            for (number, units) in [(0, UNITS[0]), (1, UNITS[1])] {
                let (channel, bytes) = (ShimChannel::Send(number), (units * UNIT_BYTES) as u32);
                transfers.push(ShimTransfer::whole(column, channel, arguments.parameters, at, bytes));
                at += u64::from(bytes);
            }
            let pages = &chunks[block.chunk].pages[block.pages.clone()];
            layout.send_pages((column, block.head), pages, argument, &mut transfers);
            index += 1;
        }
    }
    transfers
}
