//! The offload's streams on the functional model of the array: passes of a whole model with this attention, compared
//! with the reference executor. The model is only used in tests.

use super::context::{Backend, BufferPieces};
use super::offload::{self, NpuSteps};
use super::programs::{ATTEND_BF16_64, ATTEND_BF16_128, ATTEND_BF16_256};
use super::{LoadedProgram, Program};
use crate::executor::Measure;
use crate::executor::host::{HostExecutor, PassKernels, StepKernels, StepState};
use crate::executor::measure::relative_rms;
use crate::executor::offload::{Offload, OffloadedPasses};
use crate::executor::weights::Progress;
use crate::executor::{Executor, ExecutorExt, HeadRows, PageId, Row, Tolerance};
use crate::model::checkpoint::Checkpoint;
use crate::model::write::WriteMonitor;
use crate::model::write::forge::forge;
use crate::model::{LayerKind, Shape, WeightFormat};
use crate::offload::host::{HostOffload, OffloadKernels};
use crate::offload::{CheckedOffload, OffloadOwner, place};
use crate::plan::{Needs, Plan};
use crate::reference::{Formulas, Reference};
use crate::replay::Replay;
use crate::replay::options::{ReplayOptions, Tune};
use crate::schedule::kv::Pool;
use crate::schedule::step::{KvType, Op};
use crate::schedule::{Extent, Schedule};
use crate::sys::dma_buf::{DmaBuf, Mapping};
use crate::vulkan::Vulkan;
use crate::vulkan::device::{DeviceChoice, Gpu};
use crate::vulkan::memory::heaps;
use crate::{Cancel, Error, Result};
use array::{HostMemory, Latencies, Machine};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

#[allow(dead_code, unused_imports)] // aie's own tests use the rest.
#[path = "../../aie/tests/model/machine/mod.rs"]
mod array;

/// Faults of an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum ArrayFault {
    /// None.
    #[default]
    Sound,
    /// There is no memory for buffers.
    Full,
    /// The command of this number fails.
    Fails(u64),
    /// No command ends.
    Late,
    /// A bit of the host's reads is flipped, from the command of this number on.
    Wrong(u64),
    /// The array does not see other devices' writes to dma-bufs.
    Blind,
    /// The array is reset before each command.
    Forgetful,
}

/// A program on the model. `clock` counts its cycles.
pub(crate) fn loaded(
    program: &'static Program,
    clock: &Rc<Cell<u64>>,
    fault: ArrayFault,
) -> Result<LoadedProgram<'static>> {
    LoadedProgram::of(program, ModelledArray { clock: clock.clone(), ..ModelledArray::new(program, fault) })
}

/// The array as a driver interface: a command has ended when its start returns.
pub(super) struct ModelledArray {
    machine: Machine,
    /// Cycles so far.
    clock: Rc<Cell<u64>>,
    /// The host's view of dma-bufs, by the numbers of their buffers.
    shared: BTreeMap<usize, Mapping>,
    program: &'static Program,
    streams: Vec<Vec<u8>>,
    fault: ArrayFault,
    commands: u64,
    /// The array sees no page written after its first command: its memory keeps the earlier content.
    is_blind: bool,
    pages: usize,
}

/// The buffer of copied pages.
const PAGES: usize = 2;

impl ModelledArray {
    pub(super) fn new(program: &'static Program, fault: ArrayFault) -> ModelledArray {
        let (clock, shared, streams) = Default::default();
        let mut array = ModelledArray {
            machine: Machine::new(program.columns, Latencies::default()),
            clock,
            shared,
            program,
            streams,
            fault,
            commands: 0,
            is_blind: false,
            pages: 0,
        };
        array.load();
        array
    }

    /// Loads the program into a fresh array. The host's memory stays.
    fn load(&mut self) {
        let host = std::mem::take(&mut self.machine.host);
        self.machine = Machine::new(self.program.columns, Latencies::default());
        self.machine.limit = u64::MAX;
        self.machine.load_image(self.program.image).expect("an image");
        self.machine.host = host;
    }

    /// Copies these buffers' dma-bufs to the array's memory. Returns their words.
    fn show(&mut self, arguments: &[(usize, u64)]) -> Vec<(usize, Vec<u32>)> {
        let is_used = |buffer: &usize| arguments.iter().any(|(argument, _)| argument == buffer);
        let mut shown = Vec::new();
        for (buffer, view) in self.shared.iter().filter(|(buffer, _)| is_used(buffer)) {
            let words = view.bytes().as_chunks().0.iter().map(|word| u32::from_le_bytes(*word));
            let words: Vec<u32> = words.map(|word| if self.fault == ArrayFault::Blind { 0 } else { word }).collect();
            let memory = &self.machine.host[*buffer].memory;
            (0..).step_by(4).zip(&words).for_each(|(at, word)| memory.write_word(at, *word));
            shown.push((*buffer, words));
        }
        shown
    }

    /// Copies the array's writes to the dma-bufs.
    fn give_back(&mut self, shown: Vec<(usize, Vec<u32>)>) {
        for (buffer, words) in shown {
            let memory = &self.machine.host[buffer].memory;
            let Some(view) = self.shared.get_mut(&buffer) else { continue };
            for (bytes, (at, word)) in view.bytes_mut().chunks_exact_mut(4).zip((0..).step_by(4).zip(words)) {
                let now = memory.word(at).expect("a word that was shown");
                if now != word {
                    bytes.copy_from_slice(&now.to_le_bytes());
                }
            }
        }
    }
}

impl Backend for ModelledArray {
    fn allocate(&mut self, bytes: u64) -> Result<()> {
        if self.fault == ArrayFault::Full {
            return Err(Error::refused("no memory is left for an NPU buffer", "end what else uses memory"));
        }
        self.machine.share(HostMemory::new(bytes as usize));
        Ok(())
    }

    fn import(&mut self, buffer: &DmaBuf) -> Result<()> {
        self.shared.insert(self.machine.host.len(), buffer.map()?);
        self.allocate(buffer.size())
    }

    fn write(&mut self, buffer: usize, pieces: BufferPieces, write: &mut dyn FnMut(&mut [u8])) -> Result<()> {
        assert!(!self.shared.contains_key(&buffer), "keys and values are copied");
        // Bytes that `write` leaves out become NaN. Words after each piece keep the array's content.
        let mut written = vec![0xFF; pieces.range().len()];
        write(&mut written);
        self.pages += usize::from(buffer == PAGES);
        let is_unseen = self.is_blind && buffer == PAGES && self.pages > 1;
        let memory = &self.machine.host[buffer].memory;
        for at in (pieces.first..pieces.first + pieces.step * pieces.count).step_by(4) {
            if memory.word(at as u64).is_none() {
                memory.write_word(at as u64, u32::MAX);
            }
        }
        for piece in pieces.each() {
            for (at, word) in (pieces.first + piece.start..).step_by(4).zip(written[piece].chunks(4)) {
                let word = u32::from_le_bytes(word.try_into().expect("whole words"));
                memory.write_word(at as u64, if is_unseen { 0 } else { word });
            }
        }
        Ok(())
    }

    fn read(&mut self, buffer: usize, pieces: BufferPieces, read: &mut dyn FnMut(&[u8])) -> Result<()> {
        let mut bytes = vec![0xFF; pieces.range().len()];
        for piece in pieces.each() {
            let first = pieces.first + piece.start;
            for (at, to) in (first..).step_by(4).zip(bytes[piece].chunks_mut(4)) {
                let word = self.machine.host[buffer].memory.word(at as u64).expect("a word that was written");
                to.copy_from_slice(&word.to_le_bytes());
            }
        }
        if matches!(self.fault, ArrayFault::Wrong(from) if self.commands >= from) {
            bytes[17] ^= 1;
        }
        read(&bytes);
        Ok(())
    }

    fn add_command(&mut self, bytes: usize) -> Result<()> {
        self.streams.push(vec![0; bytes]);
        Ok(())
    }

    fn write_stream(&mut self, command: usize, from: usize, bytes: &[u8], total: usize) -> Result<()> {
        self.streams[command].resize(total, 0);
        self.streams[command][from..from + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn start(&mut self, command: usize, arguments: &[(usize, u64)]) -> Result<()> {
        self.commands += 1;
        if self.fault == ArrayFault::Forgetful {
            self.load();
        }
        if self.fault == ArrayFault::Fails(self.commands) {
            return Err(Error::device("the NPU reports an error in the program", "see the model"));
        }
        // The most arguments of a packet.
        assert!(arguments.len() <= 7, "{} buffers", arguments.len());
        self.machine.arguments = arguments.to_vec();
        let shown = self.show(arguments);
        let ran = self.machine.run(&self.streams[command]).map_err(|fault| Error::device(fault, "see the model"));
        self.give_back(shown);
        self.clock.set(self.machine.cycles());
        ran
    }

    fn wait(&mut self, _: usize, _: Duration) -> Result<bool> {
        Ok(self.fault != ArrayFault::Late)
    }
}

/// The reference executor with the offload's attention.
struct AttendedByOffload {
    formulas: Formulas,
    offload: NpuSteps<'static>,
    schedule: Schedule,
}

impl StepKernels for AttendedByOffload {
    fn device(&self) -> &str {
        "the reference with an offload on the model"
    }

    fn run(&mut self, op: &Op, state: &StepState, arena: &mut [f32]) -> Result<()> {
        let Op::Attend { kv, .. } = op else { return self.formulas.run(op, state, arena) };
        // All pages: the model is small.
        let part = kv.elements() * KvType::F32.bytes();
        for page in 0..self.schedule.kv.pool(kv.pool).pages as PageId {
            let bytes = &self.formulas.page(kv.pool, page)[kv.place * part..][..part];
            self.offload.take_kv(kv, page, &KvType::Bf16.encode(&KvType::F32.decode(bytes)))?;
        }
        self.offload.run(op, state, arena)
    }

    fn tolerance(&self, op: &Op) -> Tolerance {
        self.offload.tolerance(op)
    }
}

impl PassKernels for AttendedByOffload {
    fn page(&mut self, pool: Pool, page: PageId) -> &mut [u8] {
        self.formulas.page(pool, page)
    }

    fn weights(&self, buffer: usize) -> Vec<&[u64]> {
        self.formulas.weights(buffer)
    }

    fn read(words: &[u64]) -> f32 {
        Formulas::read(words)
    }
}

/// A schedule for two sequences.
fn schedule(checkpoint: &Checkpoint, kv: KvType) -> Schedule {
    let extent = Extent { context: 160, max_rows: 40, head_rows: 2, sequences: 2, kv, kv_tokens: None };
    Schedule::build(checkpoint.shape(), extent, checkpoint.formats(WeightFormat::Bf16))
}

/// The golden model with heads of 128 elements.
pub(super) fn checkpoint() -> Checkpoint {
    golden("wide_small")
}

fn golden(name: &str) -> Checkpoint {
    Checkpoint::open(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)).expect("the golden model")
}

/// The executor with attention on the array's model, which has this fault.
fn on_the_model(checkpoint: &Checkpoint, fault: ArrayFault) -> HostExecutor<AttendedByOffload> {
    let (_, program) = offload::heads(checkpoint.shape()).expect("heads that the array takes");
    let program = LoadedProgram::of(program, ModelledArray::new(program, fault)).expect("a program");
    let (schedule, progress) = (schedule(checkpoint, KvType::F32), Progress::default());
    let own = schedule.with_kv(KvType::Bf16);
    let offload = NpuSteps::new("the model".into(), program, &own).expect("an offload");
    let formulas = Formulas::load(checkpoint, &schedule, &schedule.steps, &progress).expect("weights");
    let steps = AttendedByOffload { formulas, offload, schedule: schedule.clone() };
    HostExecutor::new(schedule, steps, progress.cancel.clone()).expect("an executor")
}

/// The passes: a chunk, another after it, one token each of two sequences, and a chunk beside one token.
fn passes() -> Vec<(Vec<Row>, HeadRows)> {
    let rows = |sequence: u32, positions: Range<u32>| {
        positions.map(move |position| Row { token: (2 + 37 * position + 11 * sequence) % 97, position, sequence })
    };
    let head = |first, count| HeadRows { first, count };
    vec![
        (rows(0, 0..33).collect(), head(32, 1)),
        (rows(0, 33..70).collect(), head(36, 1)),
        (rows(1, 0..1).collect(), head(0, 1)),
        (rows(0, 70..71).chain(rows(1, 1..2)).collect(), head(0, 2)),
        (rows(0, 71..90).chain(rows(1, 2..3)).collect(), head(18, 2)),
        (rows(0, 90..91).chain(rows(1, 3..4)).collect(), head(0, 2)),
    ]
}

/// Logits of the passes' head rows.
fn logits(executor: &mut dyn Executor) -> Vec<Vec<f32>> {
    let mut logits = Vec::new();
    for (rows, head) in passes() {
        executor.forward(&rows, Some(head)).expect("a pass");
        logits.extend((0..head.count).map(|row| executor.logits(row).expect("logits").to_vec()));
    }
    logits
}

/// A model whose heads have as many elements as the program's, and one whose heads have half as many. For the latter,
/// keys and values in bf16 alone make the CPU executor deviate by 2 %, and queries and weights are rounded likewise.
#[test]
fn golden_models_attend_on_the_model_of_the_array() {
    for (name, most) in [("wide_small", MOST_APART), ("tiny", 2.0 * MOST_APART)] {
        println!("{name}");
        let checkpoint = golden(name);
        check_within(most, &checkpoint, &mut on_the_model(&checkpoint, ArrayFault::Sound));
    }
}

/// Between commands the driver may let the array sleep or give it to another process. Attention needs no state of the
/// previous command. If it did, a core would wait for its turn forever, or its result would be taken for another
/// core's.
#[test]
fn attention_needs_nothing_of_the_command_before() {
    for name in ["wide_small", "tiny"] {
        println!("{name}");
        let checkpoint = golden(name);
        let mut forgetful = on_the_model(&checkpoint, ArrayFault::Forgetful);
        let mut sound = on_the_model(&checkpoint, ArrayFault::Sound);
        let bits = |values: Vec<Vec<f32>>| values.concat().into_iter().map(f32::to_bits).collect::<Vec<_>>();
        assert_eq!(bits(logits(&mut forgetful)), bits(logits(&mut sound)), "{name}");
    }
}

/// Heads and groups of the public shapes: 270M's and 1B's, 4B's and 12B's; the smallest heads with most queries; and
/// heads that are shorter than the next program's.
#[test]
fn heads_of_every_size_attend_on_the_model_of_the_array() {
    for (head_dim, heads, kv_heads) in [(256, 4, 1), (256, 4, 2), (64, 8, 1), (64, 6, 2), (96, 4, 2), (8, 6, 3)] {
        println!("{heads}/{kv_heads} heads of {head_dim}");
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("model");
        let layers = vec![LayerKind::Local, LayerKind::Global];
        let shape = Shape { layers, ..checkpoint().shape().clone() }.with_heads(heads, kv_heads, head_dim);
        let monitor = WriteMonitor { progress: &|_, _| {}, cancel: &Cancel::default() };
        forge(&shape, &path, WeightFormat::Bf16, 7, &monitor).expect("a model");
        let checkpoint = Checkpoint::open(&path).expect("the model");
        check(&checkpoint, &mut on_the_model(&checkpoint, ArrayFault::Sound));
    }
}

/// Heads without a program are refused in one line.
#[test]
fn heads_that_no_program_takes_are_refused() {
    let shape = checkpoint().shape().clone();
    for (shape, words) in [
        (shape.clone().with_heads(4, 2, 264), "heads of 264 elements"),
        (shape.clone().with_heads(4, 2, 36), "heads of 36 elements"),
        (shape.clone().with_heads(9, 1, 32), "9 query heads for each of 1"),
        (shape.with_heads(4, 0, 32), "for each of 0"),
    ] {
        let e = offload::heads(&shape).expect_err("no program");
        assert!(e.exit_code() == 4 && e.to_string().contains(words), "{e}");
    }
}

/// Largest deviation of logits from the reference executor's, relative to their root mean square: keys, values, queries
/// and weights have eight bits.
const MOST_APART: f64 = 0.02;

/// Compares the passes' logits with the reference executor's.
fn check(checkpoint: &Checkpoint, executor: &mut dyn Executor) {
    check_within(MOST_APART, checkpoint, executor);
}

fn check_within(most: f64, checkpoint: &Checkpoint, executor: &mut dyn Executor) {
    let plain = schedule(checkpoint, KvType::F32);
    let mut reference = Reference::load(checkpoint, plain, &Progress::default()).expect("the reference");
    let (want, got) = (logits(&mut reference), logits(executor));
    assert_eq!(want.len(), 9);
    for (index, (want, got)) in want.iter().zip(&got).enumerate() {
        let error = relative_rms(got, want);
        println!("row {index}: {error:.4}");
        assert!(error > 0.0 && error <= most, "row {index}: {error}");
    }
}

/// The model on a Vulkan device, without an offload.
fn on_vulkan(checkpoint: &Checkpoint) -> Replay<Vulkan> {
    let gpu = Rc::new(Gpu::open(DeviceChoice::Best).expect("a Vulkan device"));
    let own = schedule(checkpoint, KvType::Bf16);
    let plan = Plan::place(&own, &heaps::describe(&gpu), Needs::on_device(&own, true)).expect("room");
    let options = ReplayOptions { tune: Some(Tune::Off), ..ReplayOptions::default() };
    let vulkan = Vulkan::new(&gpu).expect("a driver");
    Replay::load(None, vulkan, checkpoint, own, &plan, options, &Progress::default()).expect("a model")
}

/// The measurement follows the proof that the NPU computes on the device's data: a program for other heads is refused,
/// however fast it is, and so is an array that does not see pages. Once the device was timed, the clock advances half
/// as much per reading, so that the offload appears twice as fast.
#[test]
fn a_wrong_program_is_refused_before_it_is_timed() {
    let checkpoint = checkpoint();
    let mut replay = on_vulkan(&checkpoint);
    let (mut failures, own) = (0, replay.schedule().clone());
    for (program, is_blind, is_right) in [
        (&ATTEND_BF16_64, false, false),
        (&ATTEND_BF16_256, false, false),
        (&ATTEND_BF16_128, true, false),
        (&ATTEND_BF16_128, false, true),
    ] {
        let (now, looks) = (Cell::new(0.0), Cell::new(0));
        let clock = || {
            looks.set(looks.get() + 1);
            now.replace(now.get() + if looks.get() <= DEVICE_LOOKS { 1.0 } else { 0.5 })
        };
        let own = own.clone();
        let load = move || -> Result<Box<dyn Offload>> {
            let array = ModelledArray { is_blind, ..ModelledArray::new(program, ArrayFault::Sound) };
            let program = LoadedProgram::of(program, array)?;
            Ok(Box::new(HostOffload::new(&own, NpuSteps::new("the model".into(), program, &own)?)))
        };
        place(&mut replay, Box::new(load), &clock).expect("a device that works");
        failures += u32::from(!is_right);
        let report = replay.offload().expect("an offload was there");
        // No chunk of this model is long enough to be divided, and so none is measured.
        let passes = OffloadedPasses { decode: is_right, ..OffloadedPasses::NONE };
        let what = format!("{}, blind: {is_blind}", program.name);
        assert_eq!((report.attends, report.failures), (passes, failures), "{what}");
        assert_eq!(looks.get() > DEVICE_LOOKS, is_right, "{what}: it is timed");
    }
    check(&checkpoint, &mut replay);
}

/// Reads of the clock while the device is timed: before and after two runs of three passes.
const DEVICE_LOOKS: u32 = 12;

/// In passes of a Vulkan device, here lavapipe, whose keys and values the offload copies: chunks, rows of two
/// sequences, mixed passes. The offload passes the proof beside the device, and is dropped when a command fails.
#[test]
fn passes_of_a_vulkan_device_attend_on_the_model_of_the_array() {
    let checkpoint = checkpoint();
    let mut replay = on_vulkan(&checkpoint);
    let own = replay.schedule().clone();
    for (fault, report) in [(ArrayFault::Sound, (true, 0)), (ArrayFault::Fails(20), (false, 1))] {
        let own = own.clone();
        let load = move || -> Result<Box<dyn Offload>> {
            let (_, program) = offload::heads(&own.shape)?;
            let program = LoadedProgram::of(program, ModelledArray::new(program, fault))?;
            Ok(Box::new(HostOffload::new(&own, NpuSteps::new("the model".into(), program, &own)?)))
        };
        let later = Duration::from_secs(3600);
        let offload = CheckedOffload::due(replay.schedule(), Box::new(load), later, 0);
        replay.set_offload(Some(Box::new(offload))).expect("a device that works");
        (0..2).for_each(|sequence| replay.pages_mut().truncate(sequence, 0));
        check(&checkpoint, &mut replay);
        let offload = replay.offload().expect("an offload");
        assert_eq!((offload.attends.any(), offload.failures), report);
    }
}

#[test]
fn a_command_that_fails_is_the_passs_error() {
    let mut executor = on_the_model(&checkpoint(), ArrayFault::Fails(2));
    let (rows, head) = passes().swap_remove(0);
    let e = executor.forward(&rows, Some(head)).unwrap_err();
    assert!(e.exit_code() == 4 && e.to_string().contains("reports an error"), "{e}");
}
