//! Attention of one token for each of several sequences.

use super::queries::write_quad;
use super::{
    AttendCommand, ColumnWork, DECODE_QUAD_BYTES, DealtCommand, HeadLayout, LEFT_BYTES, PAGE_POSITIONS, PagePlace,
    Queries, QueryPart, UNIT_BYTES, UnitArguments, runs, split, unwalk,
};
use crate::npu::stream::{InstructionStream, ShimChannel, ShimTransfer};
use std::ops::Range;

/// Words of a unit before its queries, and from its first four queries to the next four.
const QUERIES: usize = 16;
const SECOND_QUAD: usize = 512;
/// Transfers of a column beside its parts' (the cores' results, and K and V of idle turns), and of a part beside its
/// pages' (its parameters).
const OF_COLUMN: usize = 3;
const OF_PART: usize = 1;
/// Units of an idle turn: its parameters, and one of K. Its V may be any unit.
const IDLE_UNITS: usize = 2;

/// Pages of one head of one sequence, for one core.
#[derive(Debug, Clone, PartialEq, Eq)]
struct DecodePart {
    sequence: usize,
    head: usize,
    /// The range of the sequence's pages that this core reads.
    pages: Range<usize>,
    /// The number of ranges into which the head's pages are divided.
    parts: usize,
}

/// Attention of one token over the pages of some sequences, in one or several commands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecodeAttention {
    layout: HeadLayout,
    arguments: UnitArguments,
    commands: Vec<AttendCommand<DecodePart>>,
    /// The memory tile's walk through units of K.
    walk: Vec<usize>,
}

impl DecodeAttention {
    /// Attention for sequences with these pages. Some position of each page is visible.
    ///
    /// # Errors
    /// One line: an unsupported layout, or a sequence without pages.
    pub fn new(
        layout: HeadLayout,
        arguments: UnitArguments,
        sequences: &[Vec<PagePlace>],
    ) -> Result<DecodeAttention, String> {
        layout.check()?;
        let command = |dealt: DealtCommand<DecodePart>| {
            let stream = InstructionStream::new(layout.columns, &transfers(&layout, arguments, sequences, &dealt))?;
            Ok(AttendCommand { dealt, stream })
        };
        let commands = divide(&layout, sequences)?.into_iter().map(command).collect::<Result<_, String>>()?;
        Ok(DecodeAttention { layout, arguments, commands, walk: layout.walk(4) })
    }

    /// The instruction stream of each command.
    pub fn streams(&self) -> impl Iterator<Item = &InstructionStream> {
        self.commands.iter().map(|command| &command.stream)
    }

    /// The blocks that a command reads, in the order of its arguments.
    pub fn blocks(&self, command: usize) -> &[u32] {
        &self.commands[command].dealt.blocks
    }

    /// Changes the pages. If the streams keep the same sequence of transfers, their words are changed in place, and the
    /// changed words of each command are returned; `None`: the streams were made anew.
    ///
    /// # Errors
    /// As [`DecodeAttention::new`]; nothing is changed then.
    pub fn set_pages(&mut self, sequences: &[Vec<PagePlace>]) -> Result<Option<Vec<Vec<Range<usize>>>>, String> {
        let divided = divide(&self.layout, sequences)?;
        if divided.len() == self.commands.len() {
            let mut next = self.commands.clone();
            let mut changed = Vec::new();
            for (command, dealt) in next.iter_mut().zip(divided) {
                let transfers = transfers(&self.layout, self.arguments, sequences, &dealt);
                command.dealt = dealt;
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

    /// A command's columns, in the order of their units and results. For each its parts, and the number of idle turns
    /// after them.
    fn columns(&self, command: usize) -> impl Iterator<Item = (&[DecodePart], usize)> {
        self.commands[command].dealt.columns.iter().map(|parts| (&parts[..], self.layout.idle_turns(parts.len())))
    }

    /// Bytes of a command's parameters, and of its cores' results.
    pub fn bytes(&self, command: usize) -> (usize, usize) {
        let sums = |(all, idle), (parts, of_column): (&[DecodePart], usize)| (all + parts.len(), idle + of_column);
        let (parts, idle) = self.columns(command).fold((0, 0), sums);
        ((parts + IDLE_UNITS * idle) * UNIT_BYTES, (parts + idle) * LEFT_BYTES)
    }

    /// The used bytes at the start of each [`LEFT_BYTES`] of a core's result.
    pub fn left_bytes(&self) -> usize {
        self.layout.group.div_ceil(4) * DECODE_QUAD_BYTES
    }

    /// The parts of a unit of parameters that a core reads: their distance, and the bytes of each. A core reads the
    /// unit's first words in the memory tile's walk, which are columns in memory.
    pub fn parameter_rows(&self) -> (usize, usize) {
        let row = 2 * self.layout.head_dim;
        let words = QUERIES + (self.layout.group - 1) / 4 * SECOND_QUAD + 2 * self.layout.head_dim;
        // For each 16 rows, 64 words of the walk are a column of 16 bytes.
        let used = if words > 4 * row { row } else { 16 * words.div_ceil(64) };
        (row, used)
    }

    /// Writes the parts that are read of a command's parameters. `seen` has for each sequence the positions that its
    /// token sees, counted from the start of its first page. A row of `queries` is a sequence.
    pub fn write_parameters(&self, command: usize, seen: &[Range<usize>], queries: Queries<'_>, to: &mut [u8]) {
        // The last unit ends with the last part that is read.
        let mut units = to.chunks_mut(UNIT_BYTES);
        for (parts, idle) in self.columns(command) {
            for (turn, part) in parts.iter().enumerate() {
                let Some(to) = units.next() else { return };
                self.write_unit(part, turn, &seen[part.sequence], queries, to);
            }
            for turn in parts.len()..parts.len() + idle {
                let Some(to) = units.next() else { return };
                // An idle turn computes on an arbitrary unit of K and arbitrary queries; its result is not read.
                self.write_header(turn, 1, 0..1, to);
                units.next();
            }
        }
    }

    /// Calls `found` for each query of a command's results. A row is a sequence.
    pub fn read_left(&self, command: usize, left: &[u8], mut found: impl FnMut(QueryPart<'_>)) {
        let HeadLayout { group, .. } = self.layout;
        let mut pieces = left.chunks(LEFT_BYTES);
        for (parts, idle) in self.columns(command) {
            for (part, left) in parts.iter().zip(pieces.by_ref().take(parts.len())) {
                for query in 0..group {
                    let left = left.get(query / 4 * DECODE_QUAD_BYTES..).unwrap_or_default();
                    let of = (part.sequence, part.head * group + query);
                    found(QueryPart::new(of, part.parts, left, query % 4));
                }
            }
            pieces.by_ref().take(idle).for_each(drop);
        }
    }

    /// Writes the header of a unit of parameters, as attend_decode_bf16.s describes it: `units` of K and of V for a
    /// turn, with the visible positions `seen` among theirs.
    fn write_header(&self, turn: usize, units: usize, seen: Range<u32>, to: &mut [u8]) {
        let HeadLayout { head_dim, group, cores, .. } = self.layout;
        let (dim, quads, step) = (head_dim as u32, group.div_ceil(4) as u32, 32 * head_dim as u32);
        let queried = if quads == 2 { (2048 + 8 * dim) / 32 } else { 8 * dim / 32 };
        let mut words = [0; QUERIES];
        let of_part = [
            units as u32,
            UNIT_BYTES as u32 / step,
            dim / 16 - 1,
            dim / 32 - 1,
            seen.start,
            seen.end,
            quads,
            step,
            dim / 4 + 1,
            queried,
            (turn % cores) as u32,
        ];
        words[..of_part.len()].copy_from_slice(&of_part);
        unwalk(&self.walk, 0, &words, to);
    }

    /// Writes the unit with a range's parameters and queries for the core.
    fn write_unit(&self, part: &DecodePart, turn: usize, seen: &Range<usize>, queries: Queries<'_>, to: &mut [u8]) {
        let HeadLayout { head_dim, group, .. } = self.layout;
        let covered = part.pages.start * PAGE_POSITIONS..part.pages.end * PAGE_POSITIONS;
        // No part is empty: the first page and the last are visible in part, and the pages between them as a whole.
        let within = |position: usize| (position.clamp(covered.start, covered.end) - covered.start) as u32;
        let units = part.pages.len() * self.layout.page_units();
        self.write_header(turn, units, within(seen.start)..within(seen.end), to);
        for first in (0..group).step_by(4) {
            let query = |index: usize| {
                let of = first + index;
                (of < group).then(|| (queries.of)(part.sequence, part.head * group + of))
            };
            let place = (QUERIES + first / 4 * SECOND_QUAD, 16);
            write_quad::<4>([0, 1, 2, 3].map(query), (head_dim, queries.scale), &self.walk, place, to);
        }
    }
}

/// The commands with their parts. A sequence's head is divided into more parts when columns would otherwise be idle,
/// and when its runs or blocks are too many for a command.
fn divide(layout: &HeadLayout, sequences: &[Vec<PagePlace>]) -> Result<Vec<DealtCommand<DecodePart>>, String> {
    let columns = usize::from(layout.columns);
    let heads = (sequences.len() * layout.kv_heads).max(1);
    let mut work = ColumnWork::new(layout, OF_COLUMN);
    for (sequence, pages) in sequences.iter().enumerate() {
        if pages.is_empty() {
            return Err(format!("sequence {sequence} has no pages"));
        }
        let parts = columns.div_ceil(heads).min(pages.len());
        let even = (0..parts).map(|part| part * pages.len() / parts..(part + 1) * pages.len() / parts).collect();
        let ranges = split(pages, even, layout.transfers - OF_COLUMN - OF_PART);
        let parts = ranges.len();
        // All heads of a part read the same blocks.
        for range in ranges {
            let read = &pages[range.clone()];
            let transfers = OF_PART + 2 * runs(read).len();
            for head in 0..layout.kv_heads {
                work.deal(DecodePart { sequence, head, pages: range.clone(), parts }, read, transfers);
            }
        }
    }
    Ok(work.commands)
}

/// The transfers of a command's shims: for each column its cores' results, for each part its parameters, K and V, and
/// the inputs of idle turns.
fn transfers(
    layout: &HeadLayout,
    arguments: UnitArguments,
    sequences: &[Vec<PagePlace>],
    dealt: &DealtCommand<DecodePart>,
) -> Vec<ShimTransfer> {
    let argument = |block| arguments.block(&dealt.blocks, block);
    let mut transfers = Vec::new();
    // Units of parameters, and results, of the columns before.
    let (mut unit, mut piece) = (0, 0);
    for (column, parts) in (0u8..).zip(&dealt.columns).filter(|(_, parts)| !parts.is_empty()) {
        let idle = layout.idle_turns(parts.len());
        let turns = parts.len() + idle;
        let (left, bytes) = ((piece * LEFT_BYTES) as u64, (turns * LEFT_BYTES) as u32);
        transfers.push(ShimTransfer::whole(column, ShimChannel::Receive, arguments.left, left, bytes));
        piece += turns;
        let units = |number, first: usize, count: usize| {
            let (at, bytes) = ((first * UNIT_BYTES) as u64, (count * UNIT_BYTES) as u32);
            ShimTransfer::whole(column, ShimChannel::Send(number), arguments.parameters, at, bytes)
        };
        for part in parts {
            transfers.push(units(0, unit, 1));
            let pages = &sequences[part.sequence][part.pages.clone()];
            layout.send_pages((column, part.head), pages, argument, &mut transfers);
            unit += 1;
        }
        if idle > 0 {
            transfers.push(units(0, unit, IDLE_UNITS * idle));
            transfers.push(units(1, unit, idle));
            unit += IDLE_UNITS * idle;
        }
    }
    transfers
}
