//! Attention of one token of each of some sequences.

use super::partial::Partial;
use super::{
    ColumnWork, CoreTurns, DECODE_QUAD_BYTES, HeadLayout, LEFT_BYTES, PAGE_POSITIONS, PagePlace, Queries, UNIT_BYTES,
    UnitArguments, runs, split, unwalk,
};
use crate::npu::stream::{InstructionStream, ShimChannel, ShimTransfer};
use std::ops::Range;

/// Pages of one head of one sequence, which a core goes through by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
struct DecodePart {
    sequence: usize,
    head: usize,
    /// Of the sequence's pages.
    pages: Range<usize>,
}

/// A command: the parts of each column, and the stream that moves them.
#[derive(Debug, Clone, PartialEq, Eq)]
struct DecodeCommand {
    columns: Vec<Vec<DecodePart>>,
    stream: InstructionStream,
}

impl DecodeCommand {
    /// Its parts, column by column: so their units and what is left of them lie.
    fn parts(&self) -> impl Iterator<Item = &DecodePart> {
        self.columns.iter().flatten()
    }
}

/// Attention of one token over the pages of some sequences, in one or several commands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecodeAttention {
    layout: HeadLayout,
    arguments: UnitArguments,
    commands: Vec<DecodeCommand>,
    /// The memory tile's walk through units of K.
    walk: Vec<usize>,
}

impl DecodeAttention {
    /// That of sequences with these pages, of each of which something is seen.
    ///
    /// # Errors
    /// One line: what the program does not take, or a sequence without pages.
    pub fn new(
        layout: HeadLayout,
        arguments: UnitArguments,
        sequences: &[Vec<PagePlace>],
    ) -> Result<DecodeAttention, String> {
        layout.check()?;
        let command = |columns: Vec<Vec<DecodePart>>| {
            let stream = InstructionStream::new(layout.columns, &transfers(&layout, arguments, sequences, &columns))?;
            Ok(DecodeCommand { columns, stream })
        };
        let commands = divide(&layout, sequences)?.into_iter().map(command).collect::<Result<_, String>>()?;
        Ok(DecodeAttention { layout, arguments, commands, walk: layout.walk(4) })
    }

    /// The streams of its commands.
    pub fn streams(&self) -> impl Iterator<Item = &InstructionStream> {
        self.commands.iter().map(|command| &command.stream)
    }

    /// Makes it that of other pages. Where streams keep their transfers, words are changed in place, and what is returned has
    /// those of each command; `None`: it was made anew.
    ///
    /// # Errors
    /// As [`DecodeAttention::new`]; it is unchanged then.
    pub fn set_pages(&mut self, sequences: &[Vec<PagePlace>]) -> Result<Option<Vec<Vec<Range<usize>>>>, String> {
        let divided = divide(&self.layout, sequences)?;
        if divided.len() == self.commands.len() {
            let mut next = self.commands.clone();
            let mut changed = Vec::new();
            for (command, columns) in next.iter_mut().zip(divided) {
                let transfers = transfers(&self.layout, self.arguments, sequences, &columns);
                command.columns = columns;
                changed.extend(command.stream.patch(self.layout.columns, &transfers)?);
            }
            if changed.len() == next.len() {
                self.commands = next;
                return Ok(Some(changed));
            }
        }
        *self = DecodeAttention::new(self.layout, self.arguments, sequences)?;
        Ok(None)
    }

    /// Bytes of a command's parameters, and of what its cores leave.
    pub fn bytes(&self, command: usize) -> (usize, usize) {
        let parts = self.commands[command].parts().count();
        (parts * UNIT_BYTES, parts * LEFT_BYTES)
    }

    /// Writes the parameters of a command that is the next to run: `seen` has for each sequence the positions that its token
    /// sees, counted from the start of its first page. A row of `queries` is a sequence. `turns` are as the command before
    /// left them, and become those that this one leaves.
    pub fn write_parameters(
        &self,
        command: usize,
        turns: &mut CoreTurns,
        seen: &[Range<usize>],
        queries: Queries<'_>,
        to: &mut [u8],
    ) {
        let mut units = to.chunks_exact_mut(UNIT_BYTES);
        for (parts, turn) in self.commands[command].columns.iter().zip(&mut turns.0) {
            for (part, to) in parts.iter().zip(&mut units) {
                unwalk(&self.walk, &self.parameters(part, *turn, &seen[part.sequence], queries), to);
                *turn = (*turn + 1) % self.layout.cores;
            }
        }
    }

    /// Merges what a command's cores left into `partials`, of each sequence and query head.
    pub fn merge_left(&self, command: usize, left: &[u8], partials: &mut [Option<Partial>]) {
        let HeadLayout { head_dim, group, kv_heads, .. } = self.layout;
        for (part, left) in self.commands[command].parts().zip(left.chunks_exact(LEFT_BYTES)) {
            for query in 0..group {
                Partial::read(&left[query / 4 * DECODE_QUAD_BYTES..], query % 4, head_dim)
                    .merge_into(&mut partials[part.sequence * kv_heads * group + part.head * group + query]);
            }
        }
    }

    /// The unit of a part, as a core is to have it: attend_decode_bf16.s says what its words are.
    fn parameters(&self, part: &DecodePart, core: usize, seen: &Range<usize>, queries: Queries<'_>) -> Vec<u32> {
        let HeadLayout { head_dim, group, .. } = self.layout;
        let (dim, quads, step) = (head_dim as u32, group.div_ceil(4) as u32, 32 * head_dim as u32);
        let covered = part.pages.start * PAGE_POSITIONS..part.pages.end * PAGE_POSITIONS;
        // Where a part is not seen, it is no part: the first page and the last are seen, and so is what is between.
        let within = |position: usize| (position.clamp(covered.start, covered.end) - covered.start) as u32;
        let queried = if quads == 2 { (2048 + 8 * dim) / 32 } else { 8 * dim / 32 };
        let words = [
            (part.pages.len() * self.layout.page_units()) as u32,
            UNIT_BYTES as u32 / step,
            dim / 16 - 1,
            dim / 32 - 1,
            within(seen.start),
            within(seen.end),
            quads,
            step,
            dim / 4 + 1,
            queried,
            core as u32,
        ];
        let mut unit = vec![0u32; UNIT_BYTES / 4];
        unit[..words.len()].copy_from_slice(&words);
        for query in 0..group {
            for (d, &value) in queries(part.sequence, part.head * group + query).iter().take(head_dim).enumerate() {
                // Tiles of 8 dimensions by 4 queries.
                let half = 32 + 1024 * (query / 4) + 32 * (d / 8) + 4 * (d % 8) + query % 4;
                unit[half / 2] |= u32::from(value) << (16 * (half % 2));
            }
        }
        unit
    }
}

/// Commands, of each the parts of its columns. A sequence's head is in as many parts as there are columns without work
/// otherwise, and in more where its runs are too many for a command.
fn divide(layout: &HeadLayout, sequences: &[Vec<PagePlace>]) -> Result<Vec<Vec<Vec<DecodePart>>>, String> {
    let columns = usize::from(layout.columns);
    let heads = (sequences.len() * layout.kv_heads).max(1);
    let mut work = ColumnWork::new(layout);
    for (sequence, pages) in sequences.iter().enumerate() {
        if pages.is_empty() {
            return Err(format!("sequence {sequence} has no pages"));
        }
        let parts = columns.div_ceil(heads).min(pages.len());
        let even = (0..parts).map(|part| part * pages.len() / parts..(part + 1) * pages.len() / parts).collect();
        let ranges = split(pages, even, layout.transfers);
        for (head, range) in (0..layout.kv_heads).flat_map(|head| ranges.iter().map(move |range| (head, range))) {
            let transfers = 2 + 2 * runs(&pages[range.clone()]).len();
            work.deal(DecodePart { sequence, head, pages: range.clone() }, transfers);
        }
    }
    Ok(work.commands)
}

/// What a command's shims move: of each column what its cores leave, and of each part its parameters, K and V.
fn transfers(
    layout: &HeadLayout,
    arguments: UnitArguments,
    sequences: &[Vec<PagePlace>],
    columns: &[Vec<DecodePart>],
) -> Vec<ShimTransfer> {
    let mut transfers = Vec::new();
    let mut index = 0;
    for (column, parts) in (0u8..).zip(columns).filter(|(_, parts)| !parts.is_empty()) {
        let left = (index * LEFT_BYTES) as u64;
        let bytes = (parts.len() * LEFT_BYTES) as u32;
        transfers.push(ShimTransfer::whole(column, ShimChannel::Receive, arguments.left, left, bytes));
        for part in parts {
            let (at, channel) = ((index * UNIT_BYTES) as u64, ShimChannel::Send(0));
            transfers.push(ShimTransfer::whole(column, channel, arguments.parameters, at, UNIT_BYTES as u32));
            layout.send_pages(column, part.head, &sequences[part.sequence][part.pages.clone()], &mut transfers);
            index += 1;
        }
    }
    transfers
}
