//! Attention steps on the NPU, in place of another executor's.
//!
//! Keys and values in bf16 are read in place, in the blocks of the device's cache, if these are dma-bufs and the driver
//! interface to the NPU imports them. Otherwise the visible part of a layer is copied to one buffer, each page to its
//! own place, so that consecutive pages are one run. A row that is the only one of its sequence is processed as one
//! token, the others as chunks. Queries go from the arena to the NPU's buffer, and results back, in one pass each;
//! streams are reused while pages stay the same. The host waits for each command, at most until its deadline.

use super::attend::queries::TILE;
use super::attend::{
    COLUMNS, CORES, ChunkPages, DecodeAttention, HeadLayout, LEFT_BYTES, PAGE_POSITIONS, PagePlace, PrefillAttention,
    Queries, QueryPart, QueryResults, UNIT_BYTES, UnitArguments,
};
use super::programs::{ATTEND_BF16_64, ATTEND_BF16_128, ATTEND_BF16_256};
use super::stream::{InstructionStream, MOST_TRANSFERS};
use super::{BufferId, BufferPieces, CommandId, LoadedProgram, Program};
use crate::error::{Setting, text};
use crate::executor::host::{StepKernels, StepState};
use crate::executor::offload::KvBlocks;
use crate::executor::{PageId, Tolerance, slot_row, slot_row_mut};
use crate::machine::files::Files;
use crate::machine::nodes::{DeviceNode, DriverApi};
use crate::model::{AttentionShape, Shape};
use crate::offload::host::OffloadKernels;
use crate::schedule::Schedule;
use crate::schedule::kv::{KvLayer, PAGE, Pool, PoolLayout};
use crate::schedule::step::{Op, Slot};
use crate::sys::drm;
use crate::sys::xrt::Library;
use crate::{Error, Result};
use std::ops::Range;
use std::time::Duration;

/// Deadline of a command: the driver's own is two seconds.
const DEADLINE: Duration = Duration::from_secs(2);
/// The most DMA transfers in one command.
const TRANSFERS: usize = 256;
/// Most blocks of queries of a command: each needs four transfers or more.
const BLOCKS: usize = TRANSFERS / 4;
/// Bytes of a command's parameters: five units per block. Attention of one token needs fewer: one per part, which needs
/// three transfers or more, and some for idle turns.
const PARAMETER_BYTES: usize = 5 * BLOCKS * UNIT_BYTES;
/// Bytes of the results of a command's cores.
const LEFT_ROOM: usize = 4 * BLOCKS * LEFT_BYTES;
/// Most commands of a kind of pass whose streams stay on the NPU. Further streams are written for every step.
const MOST_KEPT: usize = 16;
/// Bytes allocated for an instruction stream: the words that start each transfer, and a wait for each.
const STREAM_BYTES: usize = MOST_TRANSFERS * 4 * 40;
/// The indices of the arguments that every instruction stream has.
const ARGUMENTS: UnitArguments = UnitArguments { parameters: 0, left: 1 };

/// Attention on the NPU, for keys and values in bf16.
pub(crate) struct NpuSteps<'x> {
    name: String,
    program: LoadedProgram<'x>,
    heads: HeadLayout,
    /// The buffers of parameters and of the cores' results.
    buffers: [BufferId; 2],
    cache: NpuCache,
    results: QueryResults,
    /// Instruction streams by pool. All layers of a pool have the same pages at the same offsets, and share streams.
    kept: [KeptStreams; 2],
}

/// The memory in which the NPU reads keys and values.
enum NpuCache {
    /// A buffer of copies of a layer's pages, allocated with the first of them.
    Copied { pages: usize, buffer: Option<BufferId> },
    /// The cache's blocks. By pool: the layout of pages, and the blocks.
    Shared([(PoolLayout, Vec<BufferId>); 2]),
}

/// The instruction streams that were last made for the layers of one pool.
#[derive(Default)]
struct KeptStreams {
    decode: Option<(Vec<Vec<PagePlace>>, DecodeAttention)>,
    decode_commands: KeptCommands,
    /// Streams of the last two steps with several tokens, the latest one second: the halves of a pass alternate.
    prefill: [KeptChunks; 2],
}

/// The instruction streams that were last made for chunks, and the commands that hold them.
#[derive(Default)]
struct KeptChunks {
    attention: Option<PrefillAttention>,
    commands: KeptCommands,
}

/// Commands of the NPU, each with the index of the instruction stream that it holds now.
#[derive(Default)]
struct KeptCommands(Vec<(CommandId, Option<usize>)>);

impl KeptCommands {
    /// The command with this stream, `stream` with index `number`. Writes the stream if another one is there.
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

    /// Marks all commands as empty, so that their instruction streams are written again before use.
    fn forget(&mut self) {
        self.0.iter_mut().for_each(|(_, has)| *has = None);
    }

    /// Writes only the words that changed to a command's instruction stream.
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

/// This machine's NPU, if it supports attention of a model of this shape.
///
/// # Errors
/// Device: no NPU that Kiln has programs for, or no program supports the model's heads.
pub(crate) fn check(files: &Files, shape: &Shape) -> Result<DeviceNode> {
    let node = find(files)?;
    heads(shape)?;
    Ok(node)
}

/// The head layout of commands, and the program for it: the one for the shortest heads that hold these, padded with
/// zeros.
///
/// # Errors
/// Device: there is no program for heads of this size, or for so many queries of each.
pub(super) fn heads(shape: &Shape) -> Result<(HeadLayout, &'static Program)> {
    let AttentionShape { heads, head_dim, kv_heads, .. } = shape.local;
    let group = heads / kv_heads.max(1);
    let refused = |cause| Error::device(cause, text!("use ", Setting::NoNpu));
    if (shape.global.heads, shape.global.head_dim, shape.global.kv_heads) != (heads, head_dim, kv_heads) {
        let cause = format!("{}: the NPU's attention takes the same heads in all layers", shape.head_names());
        return Err(refused(cause));
    }
    let mut programs = [(64, &ATTEND_BF16_64), (128, &ATTEND_BF16_128), (256, &ATTEND_BF16_256)].into_iter();
    let fitting = programs.find(|(most, _)| head_dim <= *most && head_dim.is_multiple_of(TILE));
    let (head_dim, program) = fitting.ok_or_else(|| {
        refused(format!("heads of {head_dim} elements: the NPU's attention takes multiples of {TILE} up to 256"))
    })?;
    let layout = HeadLayout { head_dim, kv_heads, group, columns: COLUMNS, cores: CORES, transfers: TRANSFERS };
    layout.check().map_err(refused)?;
    Ok((layout, program))
}

/// True if this machine has an NPU of any generation, also one that Kiln has no programs for.
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
    let (_, program) = heads(&schedule.shape)?;
    NpuSteps::new(format!("NPU through {}", api.name()), open(program, api)?, schedule)
}

/// Loads a program on this machine's NPU.
///
/// # Errors
/// Device: no NPU that Kiln has programs for, or the driver refuses. Refused: memory is short.
pub(super) fn open(program: &'static Program, api: DriverApi) -> Result<LoadedProgram<'static>> {
    let files = Files::system();
    open_on(&files, &find(&files)?, program, api)
}

/// Loads a program on an NPU.
///
/// # Errors
/// Device: the driver refuses. Refused: memory is short.
pub(crate) fn open_on(
    files: &Files,
    node: &DeviceNode,
    program: &'static Program,
    api: DriverApi,
) -> Result<LoadedProgram<'static>> {
    match api {
        DriverApi::Kernel => LoadedProgram::through_kernel(drm::Node::open(&files.at(&node.path))?, program),
        DriverApi::Xrt => LoadedProgram::through_xrt(Library::load()?, &node.slot, program),
    }
}

impl<'x> NpuSteps<'x> {
    /// Attention of `schedule`, whose KV type is bf16, by a loaded program.
    ///
    /// # Errors
    /// As [`load`].
    pub(super) fn new(name: String, mut program: LoadedProgram<'x>, schedule: &Schedule) -> Result<NpuSteps<'x>> {
        let (heads, _) = heads(&schedule.shape)?;
        let pages = Pool::ALL.map(|pool| schedule.kv.pool(pool).pages).into_iter().max().unwrap_or(0);
        let cache = NpuCache::Copied { pages, buffer: None };
        let [parameters, left] = [PARAMETER_BYTES, LEFT_ROOM].map(|bytes| program.allocate(bytes as u64));
        let buffers = [parameters?, left?];
        let (results, kept) = Default::default();
        Ok(NpuSteps { name, program, heads, buffers, cache, results, kept })
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

    /// Attention of one token for each of several sequences.
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
            let mut write = |to: &mut [u8]| attention.write_parameters(index, &seen, queries, to);
            let (step, bytes) = attention.parameter_rows();
            let rows = BufferPieces { first: 0, bytes, step, count: units / step };
            self.program.write_by(self.buffers[0], rows, &mut write)?;
            let commands = &mut self.kept[attended.kv.pool as usize].decode_commands;
            let command = commands.command(&mut self.program, index, stream)?;
            self.run(command, &attended.kv, attention.blocks(index))?;
            let results = &mut self.results;
            let mut read = |left: &[u8]| {
                attention.read_left(index, left, |found| {
                    attended.take(&found, alone[found.row].row, results, arena);
                });
            };
            let bytes = attention.left_bytes();
            let parts = BufferPieces { first: 0, bytes, step: LEFT_BYTES, count: left / LEFT_BYTES };
            self.program.read_by(self.buffers[1], parts, &mut read)?;
        }
        self.kept[attended.kv.pool as usize].decode = Some((pages, attention));
        Ok(())
    }

    /// Takes or makes the streams of one token's attention over pages. The caller puts them back into
    /// [`NpuSteps::kept`].
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

    /// Attention of several tokens for each of several sequences.
    fn attend_chunks(&mut self, attended: &Attended, chunks: Vec<RowRun>, arena: &mut [f32]) -> Result<()> {
        let rows: Vec<usize> = chunks.iter().flat_map(|chunk| chunk.row..chunk.row + chunk.pages.tokens).collect();
        let chunks: Vec<ChunkPages> = chunks.into_iter().map(|chunk| chunk.pages).collect();
        let pool = attended.kv.pool as usize;
        let is_of = |kept: &PrefillAttention| kept.chunks() == chunks;
        let kept = &mut self.kept[pool].prefill;
        // If neither has these pages, the older one is replaced.
        if kept[1].attention.as_ref().is_none_or(|last| !is_of(last)) {
            kept.swap(0, 1);
        }
        let attention = match kept[1].attention.take().filter(is_of) {
            Some(attention) => attention,
            None => {
                kept[1].commands.forget();
                PrefillAttention::new(self.heads, ARGUMENTS, chunks).map_err(own_fault)?
            }
        };
        for (index, stream) in attention.streams().enumerate() {
            let (units, left) = attention.bytes(index);
            let queries: &[f32] = arena;
            let of = |token: usize, head: usize| attended.query(queries, rows[token], head);
            let queries = Queries { of: &of, scale: attended.scale_of_powers() };
            let mut write = |to: &mut [u8]| attention.write_parameters(index, queries, to);
            self.program.write_by(self.buffers[0], BufferPieces::whole(0, units), &mut write)?;
            let command = self.kept[pool].prefill[1].commands.command(&mut self.program, index, stream)?;
            self.run(command, &attended.kv, attention.blocks(index))?;
            let results = &mut self.results;
            let mut read = |left: &[u8]| {
                attention.read_left(index, left, |found| {
                    attended.take(&found, rows[found.row], results, arena);
                });
            };
            self.program.read_by(self.buffers[1], BufferPieces::whole(0, left), &mut read)?;
        }
        self.kept[pool].prefill[1].attention = Some(attention);
        Ok(())
    }

    /// Runs a command that reads a layer's keys and values in these blocks, and waits for its end.
    fn run(&mut self, command: CommandId, layer: &KvLayer, blocks: &[u32]) -> Result<()> {
        let mut arguments: Vec<(BufferId, u64)> = self.buffers.iter().map(|buffer| (*buffer, 0)).collect();
        for &block in blocks {
            arguments.push(match &self.cache {
                NpuCache::Copied { buffer, .. } => (buffer.ok_or_else(no_pages)?, 0),
                NpuCache::Shared(pools) => {
                    let (layout, buffers) = &pools[layer.pool as usize];
                    let first = layer.place as u64 * layout.part_bytes * layout.block_pages as u64;
                    (*buffers.get(block as usize).ok_or_else(no_pages)?, first)
                }
            });
        }
        self.program.start(command, &arguments)?;
        self.program.wait(command, DEADLINE, DEADLINE)
    }

    /// The pass's rows grouped into runs of consecutive positions of a sequence, with the pages that they see.
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
            let place = |number| self.place(kv.pool, state.page_id(kv.pool, row, number));
            let pages = (first..=(past + tokens - 1) / PAGE).map(place).collect();
            let pages = ChunkPages { pages, from: first * PAGE_POSITIONS, past, tokens, window };
            runs.push(RowRun { row, pages });
            row += tokens;
        }
        runs
    }

    /// The block and the offset of a page's keys and values, for the first layer of its pool.
    fn place(&self, pool: Pool, page: PageId) -> PagePlace {
        match &self.cache {
            NpuCache::Copied { .. } => PagePlace { block: 0, offset: self.copy_at(page) as u64 },
            NpuCache::Shared(pools) => {
                let (block, offset) = pools[pool as usize].0.in_block(page as usize);
                PagePlace { block: block as u32, offset }
            }
        }
    }

    /// Byte offset of a page's copy in the buffer of copies.
    fn copy_at(&self, page: PageId) -> usize {
        page as usize * self.heads.part_bytes()
    }

    /// Imports the cache's blocks.
    fn import(&mut self, cache: &KvBlocks<'_>) -> Result<NpuCache> {
        if !self.program.takes_offsets() {
            let cause = "this way to the NPU starts commands at the start of a buffer alone";
            return Err(Error::device(cause, text!("use ", Setting::KernelNpu)));
        }
        let mut pools = cache.layouts.map(|layout| (layout, Vec::new()));
        for ((layout, buffers), blocks) in pools.iter_mut().zip(&cache.blocks) {
            let part = self.heads.part_bytes() as u64;
            if layout.part_bytes < part {
                let cause = format!("its heads are shorter than the NPU's of {}", self.heads.head_dim);
                return Err(Error::device(cause, text!("use ", Setting::NoNpu)));
            }
            if layout.part_bytes != part || blocks.len() < layout.blocks() {
                return Err(no_pages());
            }
            for block in blocks {
                if block.size() < layout.block_bytes() {
                    return Err(no_pages());
                }
                buffers.push(self.program.import(block)?);
            }
        }
        Ok(NpuCache::Shared(pools))
    }
}

/// Rows of one sequence at consecutive positions, from `row` on, and the pages that they see.
struct RowRun {
    row: usize,
    pages: ChunkPages,
}

/// The operands of one attention step: queries, results, the layer's cache, and how they are combined.
struct Attended {
    q: Slot,
    out: Slot,
    kv: KvLayer,
    scale: f32,
    window: Option<usize>,
}

impl Attended {
    /// The factor of queries: the cores compute powers of two instead of exponentials.
    fn scale_of_powers(&self) -> f32 {
        self.scale * std::f32::consts::LOG2_E
    }

    /// A query in the arena.
    fn query<'a>(&self, arena: &'a [f32], row: usize, head: usize) -> &'a [f32] {
        let dim = self.kv.head_dim;
        &slot_row(arena, self.q, row)[head * dim..][..dim]
    }

    /// Merges a core's result for one query into the arena.
    fn take(&self, found: &QueryPart<'_>, row: usize, results: &mut QueryResults, arena: &mut [f32]) {
        let dim = self.kv.head_dim;
        let of_head = &mut slot_row_mut(arena, self.out, row)[found.head * dim..][..dim];
        results.take(row * (self.out.width / dim) + found.head, found, of_head);
    }
}

/// The error of a page without a buffer.
fn no_pages() -> Error {
    own_fault("the NPU is to read keys and values that it was not given".into())
}

/// The error for an instruction stream that cannot be made: a fault of Kiln, since its inputs were checked.
fn own_fault(cause: String) -> Error {
    Error::failed(cause, text!("report this, and use ", Setting::NoNpu))
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
        // Queries, weights and values of bf16 deviate by 1 % of a row's root mean square (aie/tests/model).
        Tolerance { outputs: 4e-2, ..Tolerance::BF16 }
    }
}

impl OffloadKernels for NpuSteps<'_> {
    fn take_kv(&mut self, layer: &KvLayer, page: PageId, bytes: &[u8]) -> Result<()> {
        let (at, part) = (self.copy_at(page), self.heads.part_bytes());
        let NpuCache::Copied { pages, buffer } = &mut self.cache else { return Err(no_pages()) };
        let made = match *buffer {
            Some(made) => made,
            None => *buffer.insert(self.program.allocate(((*pages).max(1) * part) as u64)?),
        };
        if bytes.len() == part {
            return self.program.write_from(made, at, bytes);
        }
        let [own, given] = [self.heads.head_dim, layer.head_dim].map(|dim| 2 * dim);
        let mut write = |to: &mut [u8]| {
            for (to, head) in to.chunks_exact_mut(own).zip(bytes.chunks_exact(given)) {
                to[..given].copy_from_slice(head);
                to[given..].fill(0);
            }
        };
        self.program.write_by(made, BufferPieces::whole(at, part), &mut write)
    }

    fn share_kv(&mut self, cache: &KvBlocks<'_>) -> Result<bool> {
        self.cache = self.import(cache)?;
        Ok(true)
    }
}
