//! Attention of many tokens of each of some sequences.

use super::partial::Partial;
use super::{
    CORES, ColumnWork, CoreTurns, HeadLayout, LEFT_BYTES, PAGE_POSITIONS, PagePlace, Queries, UNIT_BYTES,
    UnitArguments, runs, split, unwalk,
};
use crate::npu::stream::{InstructionStream, ShimChannel, ShimTransfer};
use std::ops::Range;

/// Units of parameters and queries that a block has in K's stream, and in V's.
const UNITS: [usize; 2] = [3, 2];
/// Where a core's parameters begin in their unit, and how many words each has.
const OF_CORE: (usize, usize) = (16, 64);

/// Tokens of a sequence at consecutive positions, and the pages that hold what they see and themselves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkPages {
    /// From that of position `from` on.
    pub pages: Vec<PagePlace>,
    /// A multiple of a page's positions.
    pub from: usize,
    /// Positions before the first token.
    pub past: usize,
    /// Tokens.
    pub tokens: usize,
    /// Positions that a token sees, itself included; `None`: all.
    pub window: Option<usize>,
}

impl ChunkPages {
    /// The positions that a token sees.
    pub fn seen(&self, token: usize) -> Range<usize> {
        let end = self.past + token + 1;
        self.window.map_or(0, |window| end.saturating_sub(window))..end
    }

    /// Of the chunk's pages those that tokens see.
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

/// Tokens whose queries of one head of K and V a column's cores take together, over some pages.
#[derive(Debug, Clone, PartialEq, Eq)]
struct PrefillBlock {
    chunk: usize,
    head: usize,
    tokens: Range<usize>,
    /// Of the chunk's.
    pages: Range<usize>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct PrefillCommand {
    columns: Vec<Vec<PrefillBlock>>,
    stream: InstructionStream,
}

/// Attention of chunks, in one or several commands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrefillAttention {
    layout: HeadLayout,
    chunks: Vec<ChunkPages>,
    commands: Vec<PrefillCommand>,
    /// The memory tile's walks through units of K and of V.
    walks: [Vec<usize>; 2],
}

impl PrefillAttention {
    /// That of these chunks. All four cores of a column take part.
    ///
    /// # Errors
    /// One line: what the program does not take, pages that do not hold what tokens see.
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
        let command = |columns: Vec<Vec<PrefillBlock>>| {
            let stream = InstructionStream::new(layout.columns, &transfers(&layout, arguments, &chunks, &columns))?;
            Ok(PrefillCommand { columns, stream })
        };
        let commands = divide(&layout, &chunks).into_iter().map(command).collect::<Result<_, String>>()?;
        Ok(PrefillAttention { commands, walks: [layout.walk(4), layout.walk(2)], layout, chunks })
    }

    /// The streams of its commands.
    pub fn streams(&self) -> impl Iterator<Item = &InstructionStream> {
        self.commands.iter().map(|command| &command.stream)
    }

    fn blocks(&self, command: usize) -> impl Iterator<Item = &PrefillBlock> {
        self.commands[command].columns.iter().flatten()
    }

    /// Bytes of a command's parameters, and of what its cores leave.
    pub fn bytes(&self, command: usize) -> (usize, usize) {
        let blocks = self.blocks(command).count();
        (blocks * (UNITS[0] + UNITS[1]) * UNIT_BYTES, blocks * CORES * LEFT_BYTES)
    }

    /// Writes a command's parameters and queries. Rows of `queries` are the chunks' tokens one after another.
    pub fn write_parameters(&self, command: usize, queries: Queries<'_>, to: &mut [u8]) {
        for (block, to) in self.blocks(command).zip(to.chunks_exact_mut((UNITS[0] + UNITS[1]) * UNIT_BYTES)) {
            let quads = self.quads(block);
            let mut units = to.chunks_exact_mut(UNIT_BYTES);
            if let Some(to) = units.next() {
                unwalk(&self.walks[0], &self.parameters(block, &quads), to);
            }
            for (core, (quads, to)) in quads.iter().zip(units).enumerate() {
                unwalk(&self.walks[core / 2], &self.queries(block, quads, queries), to);
            }
        }
    }

    /// Merges what a command's cores left into `partials`, of each row and query head. `turns` are as the command before left
    /// them; this one leaves them as they were.
    pub fn merge_left(&self, command: usize, turns: &CoreTurns, left: &[u8], partials: &mut [Option<Partial>]) {
        let HeadLayout { head_dim, group, kv_heads, .. } = self.layout;
        let columns = self.commands[command].columns.iter().zip(turns.0);
        let blocks = columns.flat_map(|(blocks, turn)| blocks.iter().map(move |block| (block, turn)));
        for ((block, turn), left) in blocks.zip(left.chunks_exact(CORES * LEFT_BYTES)) {
            let (first, quads) = (self.first_row(block.chunk), self.quads(block));
            let in_turn = (0..CORES).map(|core| &quads[(turn + core) % CORES]);
            for (quads, left) in in_turn.zip(left.chunks_exact(LEFT_BYTES)) {
                for (quad, left) in quads.iter().zip(left.chunks(quad_bytes(head_dim))) {
                    for (place, &(query, token)) in quad.iter().enumerate() {
                        // What is left over repeats the last token.
                        if quad[..place].contains(&(query, token)) {
                            continue;
                        }
                        Partial::read(left, place, head_dim)
                            .merge_into(&mut partials[((first + token) * kv_heads + block.head) * group + query]);
                    }
                }
            }
        }
    }

    /// The row of a chunk's first token.
    fn first_row(&self, chunk: usize) -> usize {
        self.chunks[..chunk].iter().map(|chunk| chunk.tokens).sum()
    }

    /// The queries of each core, four a quad: query of the group, and token.
    fn quads(&self, block: &PrefillBlock) -> [Vec<[(usize, usize); 4]>; CORES] {
        let mut of_cores: [Vec<[(usize, usize); 4]>; CORES] = Default::default();
        let firsts = |query| block.tokens.clone().step_by(4).map(move |first| (query, first));
        for (next, (query, first)) in (0..self.layout.group).flat_map(firsts).enumerate() {
            let token = |index: usize| (first + index).min(block.tokens.end - 1);
            of_cores[next % CORES].push([0, 1, 2, 3].map(|index| (query, token(index))));
        }
        of_cores
    }

    /// The unit of a block's parameters, as cores are to have it: attend_prefill_bf16.s says what its words are.
    fn parameters(&self, block: &PrefillBlock, quads: &[Vec<[(usize, usize); 4]>; CORES]) -> Vec<u32> {
        let chunk = &self.chunks[block.chunk];
        let start = (chunk.from + block.pages.start * PAGE_POSITIONS) as i64;
        let (dim, units) = (self.layout.head_dim as u32, (block.pages.len() * self.layout.page_units()) as u32);
        let (step, groups) = (32 * dim, core_rows(dim as usize) as u32 / 16);
        let quad = quad_bytes(dim as usize) as u32;
        let common =
            [units, UNIT_BYTES as u32 / step, dim / 16, dim / 16 - 1, 0, 0, groups, step, quad, 0, u32::MAX, 1];
        let mut unit = vec![0u32; UNIT_BYTES / 4];
        unit[..common.len()].copy_from_slice(&common);
        let relative = |position: usize| position as i64 - start;
        let ends = relative(chunk.seen(block.tokens.start).end);
        // Far below all positions.
        let firsts = chunk.window.map_or(-(1 << 24), |window| ends - window as i64);
        for (quads, words) in quads.iter().zip(unit[OF_CORE.0..].chunks_exact_mut(OF_CORE.1)) {
            let seen = quads.iter().flatten().map(|(_, token)| chunk.seen(*token));
            let (first, end) = (seen.clone().map(|seen| relative(seen.start)), seen.map(|seen| relative(seen.end)));
            let of_core = [
                first.clone().min().unwrap_or(0),
                end.clone().max().unwrap_or(0),
                first.max().unwrap_or(0),
                end.min().unwrap_or(0),
                ends,
                firsts,
            ];
            words.iter_mut().zip(of_core).for_each(|(word, value)| *word = value as u32);
            for (index, (_, token)) in quads.iter().flatten().enumerate() {
                words[16 + index / 2] |= ((token - block.tokens.start) as u32) << (16 * (index % 2));
            }
        }
        unit
    }

    /// A core's unit of queries: of each 16 and eight dimensions four tiles of 8 by 4.
    fn queries(&self, block: &PrefillBlock, quads: &[[(usize, usize); 4]], queries: Queries<'_>) -> Vec<u32> {
        let HeadLayout { head_dim, group, .. } = self.layout;
        let first = self.first_row(block.chunk);
        let mut unit = vec![0u32; UNIT_BYTES / 4];
        for (index, quad) in quads.iter().enumerate() {
            for (place, (query, token)) in quad.iter().enumerate() {
                let row = queries(first + token, block.head * group + query);
                for (d, &value) in row.iter().take(head_dim).enumerate() {
                    let tile = 128 * (d / 8) + 32 * (index % 4) + 4 * (d % 8) + place;
                    let half = 16 * head_dim * (index / 4) + tile;
                    unit[half / 2] |= u32::from(value) << (16 * (half % 2));
                }
            }
        }
        unit
    }
}

/// Queries that a core has of a block.
fn core_rows(head_dim: usize) -> usize {
    4096 / head_dim
}

/// Bytes from what is left of four queries to the next four.
pub fn quad_bytes(head_dim: usize) -> usize {
    18 * head_dim
}

/// Commands, of each the blocks of its columns.
fn divide(layout: &HeadLayout, chunks: &[ChunkPages]) -> Vec<Vec<Vec<PrefillBlock>>> {
    let tokens = 4 * (core_rows(layout.head_dim) / layout.group).max(1);
    let mut work = ColumnWork::new(layout);
    for (index, chunk) in chunks.iter().enumerate() {
        for first in (0..chunk.tokens).step_by(tokens) {
            let of_block = first..(first + tokens).min(chunk.tokens);
            let parts = split(&chunk.pages, vec![chunk.pages(&of_block)], layout.transfers);
            for (head, pages) in (0..layout.kv_heads).flat_map(|head| parts.iter().map(move |part| (head, part))) {
                let transfers = 3 + 2 * runs(&chunk.pages[pages.clone()]).len();
                let (tokens, pages) = (of_block.clone(), pages.clone());
                work.deal(PrefillBlock { chunk: index, head, tokens, pages }, transfers);
            }
        }
    }
    work.commands
}

/// What a command's shims move: of each column what its cores leave, and of each block its units, K and V.
fn transfers(
    layout: &HeadLayout,
    arguments: UnitArguments,
    chunks: &[ChunkPages],
    columns: &[Vec<PrefillBlock>],
) -> Vec<ShimTransfer> {
    let mut transfers = Vec::new();
    let mut index = 0;
    for (column, blocks) in (0u8..).zip(columns).filter(|(_, blocks)| !blocks.is_empty()) {
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
            let chunk = &chunks[block.chunk];
            layout.send_pages(column, block.head, &chunk.pages[block.pages.clone()], &mut transfers);
            index += 1;
        }
    }
    transfers
}
