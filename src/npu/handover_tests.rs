//! Measures the CPU time of handing attention over: the offload's host side at 27B's size, with a driver interface that
//! computes nothing and whose commands take a published time.

use super::LoadedProgram;
use super::context::{Backend, BufferPieces};
use super::offload::{NpuSteps, heads};
use crate::Result;
use crate::executor::offload::{KvBlocks, Offload, OffloadStep};
use crate::executor::{Pages, Row};
use crate::model::{WeightFormat, presets};
use crate::offload::host::HostOffload;
use crate::replay::show_pages;
use crate::schedule::kv::Pool;
use crate::schedule::step::{KvType, Op};
use crate::schedule::{Extent, Schedule};
use crate::sys::dma_buf::{DmaBuf, sealed_memfd};
use crate::sys::npu_program::flush_each;
use nix::time::{ClockId, clock_gettime};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

/// The time of a command, as in the prediction of `kiln plan`.
const COMMAND: Duration = Duration::from_micros(60);

/// The buffer of copies, after those of parameters and results.
const PAGES: usize = 2;

/// Counts of operations, and their CPU time.
#[derive(Debug, Default, Clone, Copy)]
struct HandOverCost {
    commands: u64,
    /// Writes of streams, whole or partial.
    streams: u64,
    /// Bytes written to each buffer (parameters, results, pages), and their time.
    written: [usize; 3],
    write: [Duration; 3],
    read_bytes: usize,
    read: Duration,
    /// Time of streams, starts and waits.
    submit: Duration,
}

/// Buffers in the host's memory.
struct IdleArray {
    buffers: Vec<Vec<u8>>,
    cost: Rc<RefCell<HandOverCost>>,
}

/// The CPU time of this thread.
fn now() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

impl Backend for IdleArray {
    fn allocate(&mut self, bytes: u64) -> Result<()> {
        self.buffers.push(vec![0; bytes as usize]);
        Ok(())
    }

    fn import(&mut self, _: &DmaBuf) -> Result<()> {
        // Imported buffers are not read.
        self.allocate(0)
    }

    fn write(&mut self, buffer: usize, pieces: BufferPieces, write: &mut dyn FnMut(&mut [u8])) -> Result<()> {
        let start = now();
        let to = &mut self.buffers[buffer][pieces.range()];
        write(to);
        flush_each(pieces.each().map(|piece| &to[piece]));
        let (mut cost, buffer) = (self.cost.borrow_mut(), buffer.min(PAGES));
        cost.written[buffer] += pieces.bytes * pieces.count;
        cost.write[buffer] += now() - start;
        Ok(())
    }

    fn read(&mut self, buffer: usize, pieces: BufferPieces, read: &mut dyn FnMut(&[u8])) -> Result<()> {
        let start = now();
        let from = &self.buffers[buffer][pieces.range()];
        flush_each(pieces.each().map(|piece| &from[piece]));
        read(from);
        let mut cost = self.cost.borrow_mut();
        cost.read_bytes += pieces.bytes * pieces.count;
        cost.read += now() - start;
        Ok(())
    }

    fn add_command(&mut self, _: usize) -> Result<()> {
        Ok(())
    }

    fn write_stream(&mut self, _: usize, _: usize, _: &[u8], _: usize) -> Result<()> {
        self.cost.borrow_mut().streams += 1;
        Ok(())
    }

    fn start(&mut self, _: usize, _: &[(usize, u64)]) -> Result<()> {
        self.cost.borrow_mut().commands += 1;
        Ok(())
    }

    fn wait(&mut self, _: usize, _: Duration) -> Result<bool> {
        let start = now();
        std::thread::sleep(COMMAND);
        self.cost.borrow_mut().submit += now() - start;
        Ok(true)
    }
}

/// 27B's schedule, with keys and values in bf16.
fn schedule() -> Schedule {
    let shape = presets::preset("gemma3-27b").expect("a preset");
    let extent = Extent { context: 8704, max_rows: 512, head_rows: 1, sequences: 1, kv: KvType::Bf16, kv_tokens: None };
    Schedule::build(&shape, extent, |id| WeightFormat::Int8.of_matrix(id, &shape, None))
}

fn offload(schedule: &Schedule, cost: &Rc<RefCell<HandOverCost>>) -> HostOffload<NpuSteps<'static>> {
    let way = IdleArray { buffers: Vec::new(), cost: cost.clone() };
    let program = LoadedProgram::of(heads(&schedule.shape).expect("heads").1, way).expect("a program");
    HostOffload::new(schedule, NpuSteps::new("an idle array".into(), program, schedule).expect("an offload"))
}

/// The halves of a chunk alternate, layer by layer, and no stream of either is written again for the next layer.
#[test]
fn streams_of_both_halves_stay_from_layer_to_layer() {
    let (schedule, cost) = (schedule(), Rc::<RefCell<HandOverCost>>::default());
    let mut offload = offload(&schedule, &cost);
    let mut arena = vec![0.5; schedule.arena.bytes as usize / 4];
    let mut pages = Pages::new(&schedule);
    pages.extend(0, 0..1024).expect("room");
    let attends = schedule.steps.iter().map(|step| &step.op).filter(|op| matches!(op, Op::Attend { .. }));
    let mut written = Vec::new();
    for op in attends.take(3) {
        let Op::Attend { kv, .. } = op else { panic!("attention") };
        assert_eq!(kv.pool, Pool::Local);
        for first in [512, 768] {
            let rows: Vec<Row> = (first..first + 256).map(|position| Row { token: 0, position, sequence: 0 }).collect();
            offload.begin(&rows);
            for page in show_pages(&pages, kv.pool, &rows, &mut offload) {
                offload.copy_kv(kv, page, KvType::Bf16, &vec![0; kv.elements() * 2]).expect("a page");
            }
            offload.run(&OffloadStep::alone(op), &mut arena).expect("a step");
        }
        written.push(cost.take().streams);
    }
    assert!(written[0] > 0 && written[1..] == [0, 0], "{written:?}");
}

/// Prints the CPU time for each kind of layer. Each page that rows see is copied once, and none if the offload reads
/// the cache's blocks.
#[test]
fn a_hand_over_copies_each_page_that_rows_see_once() {
    let schedule = schedule();
    let cost = Rc::<RefCell<HandOverCost>>::default();
    let mut arena = vec![0.5; schedule.arena.bytes as usize / 4];
    let layouts = Pool::ALL.map(|pool| *schedule.kv.pool(pool));
    let blocks = layouts.map(|layout| {
        let block = |_| DmaBuf::from_fd(sealed_memfd(layout.block_bytes()).expect("a memfd")).expect("a buffer");
        (0..layout.blocks()).map(block).collect::<Vec<_>>()
    });
    let mut offloads = [false, true].map(|is_shared| {
        let mut offload = offload(&schedule, &cost);
        if is_shared {
            let blocks = [0, 1].map(|pool| blocks[pool].iter().collect());
            let cache = KvBlocks { element: KvType::Bf16, layouts, blocks };
            assert!(offload.share_kv(&cache).expect("blocks"));
        }
        (offload, is_shared)
    });
    println!("    rows behind layers shared commands  pages us  units us  submit us  read us  rest us  all us");
    let cases = [(1, 1023), (1, 8191), (512, 512), (512, 7680)];
    for ((count, depth), number) in cases.into_iter().flat_map(|case| [0, 1].map(|offload| (case, offload))) {
        let (offload, is_shared) = &mut offloads[number];
        let row = |i| Row { token: 0, position: (depth + i) as u32, sequence: 0 };
        let rows: Vec<Row> = (0..count).map(row).collect();
        let mut pages = Pages::new(&schedule);
        pages.extend(0, depth..depth + count).expect("room");
        for pool in [Pool::Local, Pool::Global] {
            let of_pool = |op: &&Op| matches!(op, Op::Attend { kv, .. } if kv.pool == pool);
            let layers = schedule.steps.iter().map(|step| &step.op).filter(of_pool).count();
            let op = schedule.steps.iter().map(|step| &step.op).find(of_pool).expect("a layer");
            let Op::Attend { kv, window, .. } = op else { panic!("attention") };
            let part = vec![0x3c; kv.elements() * 2];
            let first = window.map_or(0, |window| (depth + 1).saturating_sub(window)) / 64;
            let seen = (depth + count - 1) / 64 + 1 - first;
            let mut best: Option<(Duration, HandOverCost)> = None;
            for _ in 0..3 {
                cost.take();
                let start = now();
                offload.begin(&rows);
                for page in show_pages(&pages, pool, &rows, offload) {
                    if !*is_shared {
                        offload.copy_kv(kv, page, KvType::Bf16, &part).expect("a page");
                    }
                }
                offload.run(&OffloadStep::alone(op), &mut arena).expect("a step");
                let (all, of) = (now() - start, *cost.borrow());
                let copied = if *is_shared { 0 } else { seen * part.len() };
                assert_eq!(of.written[PAGES], copied, "{count} rows behind {depth}, {pool:?}");
                assert_eq!(of.written[1], 0);
                if best.as_ref().is_none_or(|(least, _)| all < *least) {
                    best = Some((all, of));
                }
            }
            let Some((all, of)) = best else { continue };
            let [units, _, page] = of.write;
            let rest = all - units - page - of.read - of.submit;
            let times = [page, units, of.submit, of.read, rest, all].map(|time| time.as_micros());
            println!("{count:>8} {depth:>6} {layers:>6} {is_shared:>6} {:>8} {times:>9?}", of.commands);
        }
    }
}
