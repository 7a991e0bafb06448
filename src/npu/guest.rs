//! Attention steps on the NPU, in place of another executor's.
//!
//! What a step's rows see of the layer's keys and values is copied to one buffer, each page to its own place, so that pages
//! which follow each other are one run. Rows that are alone of their sequence are attended to as one token each, the others
//! as chunks. Queries go from the arena to the NPU's buffer, and results back, in one pass each; streams stay as long as pages
//! do. The host waits for each command, at most until its deadline.

use super::attend::{
    COLUMNS, CORES, ChunkPages, CoreTurns, DecodeAttention, HeadLayout, LEFT_BYTES, PAGE_POSITIONS, PagePlace,
    PrefillAttention, Queries, QueryPart, QueryResults, UNIT_BYTES, UnitArguments,
};
use super::programs::{ATTEND_BF16_64, ATTEND_BF16_128, ATTEND_BF16_256};
use super::stream::{InstructionStream, MOST_TRANSFERS};
use super::{BufferId, CommandId, DriverApi, LoadedProgram, Program};
use crate::error::{Setting, text};
use crate::executor::host::{StepKernels, StepState};
use crate::executor::{PageId, Tolerance, slot_row};
use crate::machine::files::Files;
use crate::machine::nodes::DeviceNode;
use crate::model::Shape;
use crate::schedule::Schedule;
use crate::schedule::kv::{KvLayer, PAGE, Pool};
use crate::schedule::step::{Op, Slot};
use crate::sys::drm;
use crate::sys::xrt::Library;
use crate::{Error, Result};
use std::ops::Range;
use std::time::Duration;

/// Longest time for a command: the driver's own is two seconds.
const DEADLINE: Duration = Duration::from_secs(2);
/// Transfers of a command.
const TRANSFERS: usize = 256;
/// Most blocks of a command: each has five transfers or more.
const BLOCKS: usize = TRANSFERS / 5;
/// Bytes of a command's parameters: five units of a block, or of parts of one token's attention, which are fewer.
const PARAMETER_BYTES: usize = 5 * BLOCKS * UNIT_BYTES;
/// Bytes of what a command's cores leave.
const LEFT_ROOM: usize = 4 * BLOCKS * LEFT_BYTES;
/// Most commands of a kind of pass whose streams stay on the NPU. Those behind them are written for every step.
const MOST_KEPT: usize = 16;
/// Room for a stream: what starts a transfer, and a wait for each.
const STREAM_BYTES: usize = MOST_TRANSFERS * 4 * 40;
/// Arguments of every stream.
const ARGUMENTS: UnitArguments = UnitArguments { parameters: 0, left: 1 };
const PAGES: usize = 2;

/// Attention on the NPU, with a copy of a layer's keys and values in bf16.
pub(crate) struct NpuSteps<'x> {
    name: String,
    program: LoadedProgram<'x>,
    heads: HeadLayout,
    buffers: [BufferId; 3],
    turns: CoreTurns,
    results: QueryResults,
    /// By pool: the layers of one have the same pages in the same places.
    kept: [KeptStreams; 2],
}

/// Streams for the layers of a pool, as the last pass of each kind had them.
#[derive(Default)]
struct KeptStreams {
    decode: Option<(Vec<Vec<PagePlace>>, DecodeAttention)>,
    decode_commands: KeptCommands,
    prefill: Option<PrefillAttention>,
    prefill_commands: KeptCommands,
}

/// Commands, and of each the number of the stream that it has.
#[derive(Default)]
struct KeptCommands(Vec<(CommandId, Option<usize>)>);

impl KeptCommands {
    /// A command that has this stream, of those that are kept the one of this number.
    fn command(
        &mut self,
        program: &mut LoadedProgram<'_>,
        number: usize,
        stream: &InstructionStream,
    ) -> Result<CommandId> {
        let index = number.min(MOST_KEPT - 1);
        while self.0.len() <= index {
            self.0.push((program.add_command(STREAM_BYTES)?, None));
        }
        let (command, has) = &mut self.0[index];
        if *has != Some(number) {
            program.set_stream(*command, &stream.bytes())?;
            *has = Some(number);
        }
        Ok(*command)
    }

    /// Notes that all streams are others.
    fn forget(&mut self) {
        self.0.iter_mut().for_each(|(_, has)| *has = None);
    }

    /// Writes words of a stream that have changed.
    fn patch(
        &mut self,
        program: &mut LoadedProgram<'_>,
        number: usize,
        stream: &InstructionStream,
        changed: &[Range<usize>],
    ) -> Result<()> {
        let Some((command, _)) = self.0.iter().find(|(_, has)| *has == Some(number)) else { return Ok(()) };
        for words in changed {
            let bytes: Vec<u8> = stream.words()[words.clone()].iter().flat_map(|word| word.to_le_bytes()).collect();
            program.patch_stream(*command, 4 * words.start, &bytes)?;
        }
        Ok(())
    }
}

/// This machine's NPU for attention of a model of this shape.
///
/// # Errors
/// Device: no NPU that Kiln has programs for, or none of them takes the model's heads.
pub(crate) fn check(files: &Files, shape: &Shape) -> Result<DeviceNode> {
    let node = find(files)?;
    heads(shape)?;
    Ok(node)
}

/// The layer's heads, as a command takes them, and the program for them.
///
/// # Errors
/// Device: there is no program for heads of this size, or for so many queries of each.
pub(super) fn heads(shape: &Shape) -> Result<(HeadLayout, &'static Program)> {
    let Shape { head_dim, kv_heads, .. } = *shape;
    let group = shape.heads / kv_heads.max(1);
    let layout = HeadLayout { head_dim, kv_heads, group, columns: COLUMNS, cores: CORES, transfers: TRANSFERS };
    layout.check().map_err(|cause| Error::device(cause, text!("use ", Setting::NoNpu)))?;
    let program = match head_dim {
        64 => &ATTEND_BF16_64,
        128 => &ATTEND_BF16_128,
        _ => &ATTEND_BF16_256,
    };
    Ok((layout, program))
}

/// Whether this machine has an NPU, of any kind.
pub(crate) fn is_there(files: &Files) -> bool {
    DeviceNode::accelerators(files).iter().any(DeviceNode::is_amdxdna)
}

/// This machine's NPU that Kiln has programs for.
///
/// # Errors
/// Device: there is none.
pub(crate) fn find(files: &Files) -> Result<DeviceNode> {
    let npus: Vec<DeviceNode> = DeviceNode::accelerators(files).into_iter().filter(DeviceNode::is_amdxdna).collect();
    let found = !npus.is_empty();
    npus.into_iter().find(DeviceNode::is_xdna1).ok_or_else(|| {
        let cause = if found { "the NPU is none that Kiln has a program for (XDNA 1)" } else { "there is no NPU here" };
        Error::device(cause, text!("use ", Setting::NoNpu))
    })
}

/// Loads attention of `schedule` on this machine's NPU. The schedule's KV type is bf16.
///
/// # Errors
/// Device: as [`check`], or the driver refuses. Refused: memory is short.
pub(crate) fn load(schedule: &Schedule, api: DriverApi) -> Result<NpuSteps<'static>> {
    let files = Files::system();
    let node = find(&files)?;
    let (_, program) = heads(&schedule.shape)?;
    let program = match api {
        DriverApi::Kernel => LoadedProgram::through_kernel(drm::Node::open(&files.at(&node.path))?, program)?,
        DriverApi::Xrt => LoadedProgram::through_xrt(Library::load()?, &node.slot, program)?,
    };
    NpuSteps::new(format!("NPU through {}", api.name()), program, schedule)
}

impl<'x> NpuSteps<'x> {
    /// Attention of `schedule`, whose KV type is bf16, by a loaded program.
    ///
    /// # Errors
    /// As [`load`].
    pub(super) fn new(name: String, mut program: LoadedProgram<'x>, schedule: &Schedule) -> Result<NpuSteps<'x>> {
        let (heads, _) = heads(&schedule.shape)?;
        let pages = Pool::ALL.map(|pool| schedule.kv.pool(pool).pages).into_iter().max().unwrap_or(0);
        let bytes = [PARAMETER_BYTES, LEFT_ROOM, pages.max(1) * heads.part_bytes()];
        let [parameters, left, pages] = bytes.map(|bytes| program.allocate(bytes as u64));
        let buffers = [parameters?, left?, pages?];
        let (turns, results, kept) = Default::default();
        Ok(NpuSteps { name, program, heads, buffers, turns, results, kept })
    }

    fn attend(&mut self, attended: &Attended, state: &StepState, arena: &mut [f32]) -> Result<()> {
        let (alone, chunks): (Vec<_>, Vec<_>) =
            self.runs(attended, state).into_iter().partition(|chunk| chunk.pages.tokens == 1);
        self.results.begin(state.rows * self.heads.kv_heads * self.heads.group);
        if !alone.is_empty() {
            self.attend_tokens(attended, &alone, arena)?;
        }
        if !chunks.is_empty() {
            self.attend_chunks(attended, chunks, arena)?;
        }
        match self.results.missing() {
            0 => Ok(()),
            missing => Err(Error::device(format!("the NPU left {missing} queries out"), "report this")),
        }
    }

    /// Attention of one token of each of some sequences.
    fn attend_tokens(&mut self, attended: &Attended, alone: &[RowRun], arena: &mut [f32]) -> Result<()> {
        let pages: Vec<Vec<PagePlace>> = alone.iter().map(|one| one.pages.pages.clone()).collect();
        let from = |one: &RowRun| one.pages.seen(0).start - one.pages.from..one.pages.seen(0).end - one.pages.from;
        let seen: Vec<Range<usize>> = alone.iter().map(from).collect();
        let attention = self.decode_streams(attended.kv.pool, &pages)?;
        for (index, stream) in attention.streams().enumerate() {
            let (units, left) = attention.bytes(index);
            let queries: &[f32] = arena;
            let of = |one: usize, head: usize| attended.query(queries, alone[one].row, head);
            let queries = Queries { of: &of, scale: attended.scale_of_powers() };
            let turns = &mut self.turns;
            let mut write = |to: &mut [u8]| attention.write_parameters(index, turns, &seen, queries, to);
            self.program.write_by(self.buffers[0], 0..units, &mut write)?;
            let commands = &mut self.kept[attended.kv.pool as usize].decode_commands;
            let command = commands.command(&mut self.program, index, stream)?;
            self.run(command, attention.blocks(index))?;
            for (part, from) in (0..left).step_by(LEFT_BYTES).enumerate() {
                let results = &mut self.results;
                let mut read = |left: &[u8]| {
                    attention.read_left(index, part, left, |found| {
                        attended.take(&found, alone[found.row].row, results, arena);
                    });
                };
                self.program.read_by(self.buffers[1], from..from + attention.left_bytes(), &mut read)?;
            }
        }
        self.kept[attended.kv.pool as usize].decode = Some((pages, attention));
        Ok(())
    }

    /// Attention of one token over pages. It is to be given back to those that are kept.
    fn decode_streams(&mut self, pool: Pool, pages: &[Vec<PagePlace>]) -> Result<DecodeAttention> {
        let KeptStreams { decode, decode_commands, .. } = &mut self.kept[pool as usize];
        let Some((had, mut attention)) = decode.take() else {
            decode_commands.forget();
            return DecodeAttention::new(self.heads, ARGUMENTS, pages).map_err(own_fault);
        };
        if had == pages {
            return Ok(attention);
        }
        match attention.set_pages(pages).map_err(own_fault)? {
            Some(changed) => {
                for ((number, stream), changed) in attention.streams().enumerate().zip(&changed) {
                    decode_commands.patch(&mut self.program, number, stream, changed)?;
                }
            }
            None => decode_commands.forget(),
        }
        Ok(attention)
    }

    /// Attention of several tokens of each of some sequences.
    fn attend_chunks(&mut self, attended: &Attended, chunks: Vec<RowRun>, arena: &mut [f32]) -> Result<()> {
        let rows: Vec<usize> = chunks.iter().flat_map(|chunk| chunk.row..chunk.row + chunk.pages.tokens).collect();
        let chunks: Vec<ChunkPages> = chunks.into_iter().map(|chunk| chunk.pages).collect();
        let pool = attended.kv.pool as usize;
        let attention = match self.kept[pool].prefill.take().filter(|attention| attention.chunks() == chunks) {
            Some(attention) => attention,
            None => {
                self.kept[pool].prefill_commands.forget();
                PrefillAttention::new(self.heads, ARGUMENTS, chunks).map_err(own_fault)?
            }
        };
        for (index, stream) in attention.streams().enumerate() {
            let (units, left) = attention.bytes(index);
            let queries: &[f32] = arena;
            let of = |token: usize, head: usize| attended.query(queries, rows[token], head);
            let queries = Queries { of: &of, scale: attended.scale_of_powers() };
            let mut write = |to: &mut [u8]| attention.write_parameters(index, queries, to);
            self.program.write_by(self.buffers[0], 0..units, &mut write)?;
            let command = self.kept[pool].prefill_commands.command(&mut self.program, index, stream)?;
            self.run(command, attention.blocks(index))?;
            let (turns, results) = (&self.turns, &mut self.results);
            let mut read = |left: &[u8]| {
                attention.read_left(index, turns, left, |found| {
                    attended.take(&found, rows[found.row], results, arena);
                });
            };
            self.program.read_by(self.buffers[1], 0..left, &mut read)?;
        }
        self.kept[pool].prefill = Some(attention);
        Ok(())
    }

    /// Runs a command that reads these blocks, to its end.
    fn run(&mut self, command: CommandId, blocks: &[u32]) -> Result<()> {
        let [parameters, left, pages] = self.buffers.map(|buffer| (buffer, 0));
        let mut arguments = vec![parameters, left];
        arguments.extend(blocks.iter().map(|_| pages));
        self.program.start(command, &arguments)?;
        self.program.wait(command, DEADLINE, DEADLINE)
    }

    /// The pass's rows by sequences: those that follow each other, with the pages that they see.
    fn runs(&self, attended: &Attended, state: &StepState) -> Vec<RowRun> {
        let Attended { kv, window, .. } = *attended;
        let mut runs: Vec<RowRun> = Vec::new();
        let mut row = 0;
        while row < state.rows {
            let follows = |next: usize| {
                state.sequence[next] == state.sequence[row]
                    && state.position[next] as usize == state.position[row] as usize + next - row
            };
            let tokens = 1 + (row + 1..state.rows).take_while(|next| follows(*next)).count();
            let past = state.position[row] as usize;
            let first = window.map_or(0, |window| (past + 1).saturating_sub(window)) / PAGE;
            let place = |number| PagePlace { block: 0, offset: self.place(state.page_id(kv.pool, row, number)) };
            let pages = (first..=(past + tokens - 1) / PAGE).map(place).collect();
            let pages = ChunkPages { pages, from: first * PAGE_POSITIONS, past, tokens, window };
            runs.push(RowRun { row, pages });
            row += tokens;
        }
        runs
    }

    /// Where a page's part is in the buffer of pages.
    fn place(&self, page: PageId) -> u64 {
        u64::from(page) * self.heads.part_bytes() as u64
    }
}

/// Rows of one sequence at consecutive positions, from `row` on, and the pages that they see.
struct RowRun {
    row: usize,
    pages: ChunkPages,
}

/// What an attention step works on.
struct Attended {
    q: Slot,
    out: Slot,
    kv: KvLayer,
    scale: f32,
    window: Option<usize>,
}

impl Attended {
    /// What queries are multiplied by: a score is a power of two's exponent.
    fn scale_of_powers(&self) -> f32 {
        self.scale * std::f32::consts::LOG2_E
    }

    /// A query in the arena.
    fn query<'a>(&self, arena: &'a [f32], row: usize, head: usize) -> &'a [f32] {
        let dim = self.kv.head_dim;
        &slot_row(arena, self.q, row)[head * dim..][..dim]
    }

    /// Takes a part of a query's result into the arena.
    fn take(&self, found: &QueryPart<'_>, row: usize, results: &mut QueryResults, arena: &mut [f32]) {
        let dim = self.kv.head_dim;
        let first = (self.out.row(row) / 4) as usize + found.head * dim;
        results.take(row * (self.out.width / dim) + found.head, found, &mut arena[first..first + dim]);
    }
}

/// A stream that cannot be made, though all that it is made of was checked.
fn own_fault(cause: String) -> Error {
    Error::failed(cause, "report this, and attend on the GPU (`--npu off`)")
}

impl StepKernels for NpuSteps<'_> {
    fn device(&self) -> &str {
        &self.name
    }

    fn run(&mut self, op: &Op, state: &StepState, arena: &mut [f32]) -> Result<()> {
        match *op {
            Op::Attend { q, kv, out, heads: _, scale, window } => {
                self.attend(&Attended { q, out, kv, scale, window }, state, arena)
            }
            _ => Err(Error::failed("the NPU runs attention alone", "report this")),
        }
    }

    fn tolerance(&self, _: &Op) -> Tolerance {
        // Queries, weights and values of bf16: 1 % of a row's root mean square (aie/tests/model).
        Tolerance { outputs: 4e-2, ..Tolerance::BF16 }
    }

    fn page(&mut self, _: Pool, _: PageId) -> &mut [u8] {
        &mut []
    }

    fn take_kv(&mut self, _: &KvLayer, page: PageId, bytes: &[u8]) -> Result<()> {
        self.program.write_from(self.buffers[PAGES], self.place(page) as usize, bytes)
    }

    fn weights(&self, _: usize) -> Vec<&[u64]> {
        Vec::new()
    }
}
