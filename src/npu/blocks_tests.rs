//! Steps of the offload over keys and values that it reads in place, in imported blocks, on the functional model of the
//! array, compared with the reference executor's formulas over a copy.

use super::modelled_tests::{ArrayFault, ModelledArray, checkpoint};
use super::offload::{self, NpuSteps};
use super::tests::NpuMachine;
use super::{LoadedProgram, program::Program};
use crate::Result;
use crate::executor::measure::relative_rms;
use crate::executor::offload::{KvBlocks, Offload, OffloadStep};
use crate::executor::weights::Progress;
use crate::executor::{Pages, Row, slot_row};
use crate::model::{LayerKind, Shape, WeightFormat};
use crate::offload::host::HostOffload;
use crate::reference::Formulas;
use crate::replay::show_pages;
use crate::schedule::kv::{PAGE, Pool, PoolLayout};
use crate::schedule::step::{KvType, Op};
use crate::schedule::{Extent, Schedule, Step};
use crate::sys::dma_buf::{DmaBuf, Mapping, page_size, sealed_memfd};
use crate::sys::drm::Node;
use crate::text::testing::Random;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::MetadataExt;

/// A cache in memfds, whose pages hold random numbers, and the pages of two sequences.
struct MemfdCache {
    schedule: Schedule,
    layouts: [PoolLayout; 2],
    blocks: [Vec<(DmaBuf, Mapping)>; 2],
    pages: Pages,
}

/// Written positions of each sequence.
const WRITTEN: [usize; 2] = [400, 150];

impl MemfdCache {
    /// A cache whose blocks have this many pages.
    fn new(block_pages: usize) -> MemfdCache {
        let layers = vec![LayerKind::Global, LayerKind::Local, LayerKind::Local, LayerKind::Global];
        let shape = Shape { layers, ..checkpoint().shape().clone() };
        let extent =
            Extent { context: 448, max_rows: 20, head_rows: 1, sequences: 2, kv: KvType::Bf16, kv_tokens: None };
        let schedule = Schedule::build(&shape, extent, |id| WeightFormat::Bf16.of_matrix(id, &shape, None));
        let mut pages = Pages::new(&schedule);
        for first in (0..WRITTEN[0]).step_by(10) {
            for (sequence, written) in WRITTEN.into_iter().enumerate().filter(|(_, written)| first < *written) {
                pages.extend(sequence, first..(first + 10).min(written)).expect("room");
            }
        }
        let mut random = Random(7);
        let layouts = Pool::ALL.map(|pool| PoolLayout { block_pages, ..*schedule.kv.pool(pool) });
        let blocks = layouts.map(|layout| {
            let block = |_| {
                let size = layout.block_bytes().next_multiple_of(page_size());
                let block = DmaBuf::from_fd(sealed_memfd(size).expect("a memfd")).expect("a buffer");
                let mut mapping = block.map().expect("a mapping");
                let values: Vec<f32> = (0..size / 2).map(|_| 4.0 * random.unit() - 2.0).collect();
                mapping.bytes_mut().copy_from_slice(&KvType::Bf16.encode(&values));
                (block, mapping)
            };
            (0..layout.pages.div_ceil(block_pages)).map(block).collect()
        });
        MemfdCache { schedule, layouts, blocks, pages }
    }

    /// The cache as a device shares it.
    fn shown(&self) -> KvBlocks<'_> {
        let blocks = [0, 1].map(|pool| self.blocks[pool].iter().map(|(block, _)| block).collect());
        KvBlocks { element: KvType::Bf16, layouts: self.layouts, blocks }
    }

    /// Rows of a pass: `chunk` rows of the first sequence and one of the other, up to these ends.
    fn rows(&self, chunk: usize, ends: [usize; 2]) -> Vec<Row> {
        let rows = |sequence: usize, count: usize| {
            let end = ends[sequence];
            (end - count..end).map(move |at| Row { token: 0, position: at as u32, sequence: sequence as u32 })
        };
        rows(0, chunk).chain(rows(1, 1)).collect()
    }

    /// The steps of attention, also of layers that are not the first of their pool.
    fn steps(&self) -> Vec<Step> {
        self.schedule.steps.iter().filter(|step| matches!(step.op, Op::Attend { .. })).cloned().collect()
    }

    /// An offload's output of a step.
    fn attended(&self, offload: &mut dyn Offload, copies: bool, rows: &[Row], op: &Op) -> Result<Vec<f32>> {
        let Op::Attend { kv, out, .. } = op else { panic!("attention") };
        let mut arena: Vec<f32> = vec![f32::NAN; self.schedule.arena.bytes as usize / 4];
        arena.iter_mut().enumerate().for_each(|(at, x)| *x = ((at * 7919) % 1009) as f32 / 300.0 - 1.5);
        offload.begin(rows);
        for page in show_pages(&self.pages, kv.pool, rows, offload) {
            if copies {
                let layout = self.layouts[kv.pool as usize];
                let (block, first) = layout.in_block(page as usize);
                let part = layout.part_bytes as usize;
                let at = first as usize + kv.place * part * layout.block_pages;
                let bytes = &self.blocks[kv.pool as usize][block].1.bytes()[at..at + part];
                offload.copy_kv(kv, page, KvType::Bf16, bytes)?;
            }
        }
        offload.run(&OffloadStep::alone(op), &mut arena)?;
        Ok((0..rows.len()).flat_map(|row| slot_row(&arena, *out, row).to_vec()).collect())
    }
}

/// The offload on the model, without a cache.
fn on_the_model(schedule: &Schedule, program: &'static Program) -> HostOffload<NpuSteps<'static>> {
    let program = LoadedProgram::of(program, ModelledArray::new(program, ArrayFault::Sound)).expect("a program");
    HostOffload::new(schedule, NpuSteps::new("the model".into(), program, schedule).expect("an offload"))
}

/// Every layer, with one row and with several of a sequence: first with one page per block, of which seven are visible
/// and a command takes five; then with all of a pool's pages in one block, also with fewer pages and more again, so
/// that streams are changed. The model rejects writes to imported buffers.
#[test]
fn pages_are_read_where_they_are_in_any_number_of_blocks() {
    let (checkpoint, progress) = (checkpoint(), Progress::default());
    let (_, program) = offload::heads(checkpoint.shape()).expect("heads");
    let passes = [(1, WRITTEN), (19, WRITTEN), (1, [300, 140]), (19, [300, 140]), (1, WRITTEN)];
    for (block_pages, passes) in [(1, &passes[..2]), (64, &passes[..])] {
        let cache = MemfdCache::new(block_pages);
        let seen = WRITTEN[0].div_ceil(PAGE);
        assert!(block_pages > 1 || seen > super::attend::MOST_BLOCKS, "{seen} blocks");
        let mut npu = on_the_model(&cache.schedule, program);
        assert!(npu.share_kv(&cache.shown()).expect("blocks that the model takes"));
        let own = cache.schedule.with_kv(KvType::F32);
        let formulas = Formulas::load(&checkpoint, &own, &cache.steps(), &progress).expect("no weights");
        let mut formulas = HostOffload::new(&own, formulas);
        for &(chunk, ends) in passes {
            let rows = cache.rows(chunk, ends);
            for step in cache.steps() {
                let got = cache.attended(&mut npu, false, &rows, &step.op).expect("a step");
                let want = cache.attended(&mut formulas, true, &rows, &step.op).expect("a step");
                let off = relative_rms(&got, &want);
                assert!(
                    off <= 0.02,
                    "{block_pages} pages a block, {chunk} rows to {ends:?}, {:?}: {off}",
                    step.segment
                );
            }
        }
    }
}

/// Unsupported blocks are refused in one line, and the offload then gets copies.
#[test]
fn blocks_that_do_not_hold_the_cache_are_refused_and_copies_taken() {
    let cache = MemfdCache::new(2);
    let (_, program) = offload::heads(&cache.schedule.shape).expect("heads");
    let refused = |change: &dyn Fn(&mut KvBlocks<'_>)| {
        let (mut shown, mut npu) = (cache.shown(), on_the_model(&cache.schedule, program));
        change(&mut shown);
        let answer = npu.share_kv(&shown);
        let rows = cache.rows(1, WRITTEN);
        cache.attended(&mut npu, true, &rows, &cache.steps()[0].op).expect("a step over copies");
        answer
    };
    for (answer, words) in [
        (refused(&|shown| shown.blocks[1].clear()), "that it was not given"),
        (refused(&|shown| shown.layouts[0].block_pages += 1), "that it was not given"),
        (refused(&|shown| shown.layouts[0].part_bytes /= 2), "heads are shorter than the NPU's of 128"),
    ] {
        let e = answer.expect_err("a refusal");
        assert!(e.to_string().contains(words), "{e}");
    }
    assert!(!refused(&|shown| shown.element = KvType::F16).expect("no failure"));
}

/// The driver's interface refuses the first command over imported blocks two hundred times. Every handle, mapping and
/// descriptor is freed each time.
#[test]
fn failures_over_imported_blocks_leave_nothing() {
    let cache = MemfdCache::new(2);
    let (_, program) = offload::heads(&cache.schedule.shape).expect("heads");
    let (rows, steps) = (cache.rows(1, WRITTEN), cache.steps());
    let of =
        |fd: &DmaBuf| std::fs::metadata(format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd())).expect("its file").ino();
    let inodes: Vec<u64> = cache.blocks.iter().flatten().map(|(block, _)| of(block)).collect();
    let descriptors = || {
        let all = std::fs::read_dir("/proc/self/fd").expect("this process's");
        let inodes_of_all = all.filter_map(|fd| Some(std::fs::metadata(fd.ok()?.path()).ok()?.ino()));
        inodes_of_all.filter(|inode| inodes.contains(inode)).count()
    };
    let before = descriptors();
    assert!(before >= inodes.len() && inodes.len() > 4, "{before} descriptors of {} blocks", inodes.len());
    for _ in 0..2 {
        let machine = NpuMachine::new();
        for _ in 0..100 {
            let node = Node::open(machine.file.path()).expect("a node");
            let program = LoadedProgram::through_kernel(node, program).expect("a program");
            let steps_of = NpuSteps::new("the fake".into(), program, &cache.schedule).expect("an offload");
            let mut npu = HostOffload::new(&cache.schedule, steps_of);
            assert!(npu.share_kv(&cache.shown()).expect("blocks"));
            cache.attended(&mut npu, false, &rows, &steps[0].op).expect_err("no program that the fake knows");
        }
        machine.assert_clean();
    }
    assert_eq!(descriptors(), before);
}
