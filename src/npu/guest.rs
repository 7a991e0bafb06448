//! Attention steps on the NPU, in place of another executor's.
//!
//! What a step's rows see of the layer's keys and values is copied to one buffer, each page to its own place, so that pages
//! which follow each other are one run. Rows that are alone of their sequence are attended to as one token each, the others
//! as chunks. The host waits for each command, at most until its deadline.

use super::attend::{
    COLUMNS, CORES, ChunkPages, CoreTurns, DECODE_QUAD_BYTES, DecodeAttention, HeadLayout, LEFT_BYTES, PAGE_POSITIONS,
    PagePlace, Partial, PrefillAttention, UNIT_BYTES, UnitArguments,
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
use half::bf16;
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
/// Room for a stream: what starts a transfer, and a wait for each.
const STREAM_BYTES: usize = MOST_TRANSFERS * 4 * 40;
/// Arguments of every stream.
const ARGUMENTS: UnitArguments = UnitArguments { parameters: 0, left: 1 };
const PAGES: u32 = 2;

/// Attention on the NPU, with a copy of a layer's keys and values in bf16.
pub(crate) struct NpuSteps<'x> {
    name: String,
    program: LoadedProgram<'x>,
    heads: HeadLayout,
    buffers: [BufferId; 3],
    command: CommandId,
    turns: CoreTurns,
    /// By pool: the layers of one have the same pages in the same places.
    kept: [Option<KeptAttention>; 2],
}

/// Attention of one token each of some sequences, and their pages.
struct KeptAttention {
    pages: Vec<Vec<PagePlace>>,
    attention: DecodeAttention,
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
        let command = program.add_command(STREAM_BYTES)?;
        Ok(NpuSteps { name, program, heads, buffers, command, turns: CoreTurns::default(), kept: [None, None] })
    }

    fn attend(&mut self, attended: &Attended, state: &StepState, arena: &mut [f32]) -> Result<()> {
        let runs = self.runs(attended, state);
        let query_heads = self.heads.kv_heads * self.heads.group;
        let width = query_heads * self.heads.head_dim;
        // A score is a power of two's exponent.
        let scale = attended.scale * std::f32::consts::LOG2_E;
        let mut queries: Vec<u16> = Vec::with_capacity(state.rows * width);
        for row in 0..state.rows {
            let row = &slot_row(arena, attended.q, row)[..width];
            queries.extend(row.iter().map(|x| bf16::from_f32(x * scale).to_bits()));
        }
        let query = |row: usize, head: usize| &queries[(row * query_heads + head) * self.heads.head_dim..];
        let mut partials: Vec<Option<Partial>> = vec![None; state.rows * query_heads];
        let (alone, chunks): (Vec<_>, Vec<_>) = runs.into_iter().partition(|chunk| chunk.pages.tokens == 1);
        if !alone.is_empty() {
            let pages: Vec<Vec<PagePlace>> = alone.iter().map(|one| one.pages.pages.clone()).collect();
            let kept = self.kept[attended.kv.pool as usize].take().filter(|kept| kept.pages == pages);
            let attention = match kept {
                Some(kept) => kept.attention,
                None => DecodeAttention::new(self.heads, ARGUMENTS, &pages).map_err(own_fault)?,
            };
            let seen: Vec<Range<usize>> = alone
                .iter()
                .map(|one| one.pages.seen(0))
                .zip(&alone)
                .map(|(seen, one)| seen.start - one.pages.from..seen.end - one.pages.from)
                .collect();
            let mut found = vec![None; alone.len() * query_heads];
            for (index, stream) in attention.streams().enumerate() {
                let (units, left) = attention.bytes(index);
                let mut parameters = vec![0; units];
                let own = |one: usize, head: usize| query(alone[one].row, head);
                attention.write_parameters(index, &mut self.turns, &seen, &own, &mut parameters);
                let used = self.heads.group.div_ceil(4) * DECODE_QUAD_BYTES;
                let left = run(&mut self.program, self.command, self.buffers, stream, &parameters, (left, used))?;
                attention.merge_left(index, &left, &mut found);
            }
            self.kept[attended.kv.pool as usize] = Some(KeptAttention { pages, attention });
            for (one, found) in alone.iter().zip(found.chunks_mut(query_heads)) {
                partials[one.row * query_heads..][..query_heads].swap_with_slice(found);
            }
        }
        for chunk in chunks {
            let row = chunk.row;
            let tokens = chunk.pages.tokens;
            let attention = PrefillAttention::new(self.heads, ARGUMENTS, vec![chunk.pages]).map_err(own_fault)?;
            let found = &mut partials[row * query_heads..(row + tokens) * query_heads];
            for (index, stream) in attention.streams().enumerate() {
                let (units, left) = attention.bytes(index);
                let mut parameters = vec![0; units];
                attention.write_parameters(index, &|token, head| query(row + token, head), &mut parameters);
                let left = (left, LEFT_BYTES);
                let left = run(&mut self.program, self.command, self.buffers, stream, &parameters, left)?;
                attention.merge_left(index, &self.turns, &left, found);
            }
        }
        for (index, found) in partials.iter().enumerate() {
            let (row, head) = (index / query_heads, index % query_heads);
            let first = (attended.out.columns(head * self.heads.head_dim, self.heads.head_dim).row(row) / 4) as usize;
            let found = found.as_ref().ok_or_else(|| Error::device("the NPU left a query out", "report this"))?;
            found.divide(&mut arena[first..first + self.heads.head_dim]);
        }
        Ok(())
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
            let place = |number| PagePlace { argument: PAGES, offset: self.place(state.page_id(kv.pool, row, number)) };
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

/// Runs a stream: what its cores leave, `left` bytes, of which the first `used` of each core's are read.
fn run(
    program: &mut LoadedProgram<'_>,
    command: CommandId,
    buffers: [BufferId; 3],
    stream: &InstructionStream,
    parameters: &[u8],
    (left, used): (usize, usize),
) -> Result<Vec<u8>> {
    program.write(buffers[0], parameters)?;
    program.set_stream(command, &stream.bytes())?;
    program.start(command, &buffers.map(|buffer| (buffer, 0)))?;
    program.wait(command, DEADLINE, DEADLINE)?;
    let mut bytes = vec![0; left];
    for (from, of_core) in (0..).step_by(LEFT_BYTES).zip(bytes.chunks_mut(LEFT_BYTES)) {
        program.read_from(buffers[1], from, &mut of_core[..used])?;
    }
    Ok(bytes)
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
        self.program.write_from(self.buffers[PAGES as usize], self.place(page) as usize, bytes)
    }

    fn weights(&self, _: usize) -> Vec<&[u64]> {
        Vec::new()
    }
}
