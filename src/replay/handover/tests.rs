//! The pages and the cache that an offload is given, on a driver that computes nothing.

use super::*;
use crate::executor::offload::OffloadedPasses;
use crate::executor::pages::PageChange;
use crate::executor::weights::Progress;
use crate::executor::{Executor, ExecutorExt, HeadRows, Measure, Tolerance};
use crate::machine::heaps::{DeviceMemory, Heap};
use crate::model::WeightFormat;
use crate::model::checkpoint::Checkpoint;
use crate::offload::{CheckedOffload, OffloadOwner};
use crate::plan::{Needs, Plan};
use crate::replay::driver::MemorySource;
use crate::replay::fake::RecordingDriver;
use crate::replay::options::{ReplayOptions, Tune};
use crate::schedule::{Extent, KvType, Schedule};
use crate::sys::dma_buf::Mapping;
use crate::{Error, Result};
use std::cell::{Cell, RefCell};
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

/// An offload's answer to [`Offload::share_kv`].
type ShareAnswer = fn() -> Result<bool>;

/// The pages and blocks that an offload was given, and the copies that it received.
#[derive(Default)]
struct ShownKv {
    blocks: Vec<[Vec<Mapping>; 2]>,
    copies: usize,
    steps: usize,
}

/// An offload that is given blocks and returns this answer. It computes nothing, like the device.
struct ShownOffload {
    shown: Rc<RefCell<ShownKv>>,
    answer: ShareAnswer,
    fails: bool,
    /// Set by each of its steps; the device is lost then.
    loses: Option<Rc<Cell<bool>>>,
}

impl Offload for ShownOffload {
    fn name(&self) -> &str {
        "an offload that is shown"
    }

    fn share_kv(&mut self, cache: &KvBlocks<'_>) -> Result<bool> {
        let mappings = |pool: &Vec<&crate::sys::dma_buf::DmaBuf>| pool.iter().map(|b| b.map().unwrap()).collect();
        self.shown.borrow_mut().blocks.push([mappings(&cache.blocks[0]), mappings(&cache.blocks[1])]);
        (self.answer)()
    }

    fn begin(&mut self, _: &[Row]) {}

    fn set_page(&mut self, _: &PageChange) {}

    fn copy_kv(&mut self, _: &KvLayer, _: PageId, _: KvType, _: &[u8]) -> Result<()> {
        self.shown.borrow_mut().copies += 1;
        Ok(())
    }

    fn raw(&mut self) -> Option<&mut dyn Offload> {
        Some(self)
    }

    fn run(&mut self, _: &OffloadStep, _: &mut [f32]) -> Result<StepOutcome> {
        self.shown.borrow_mut().steps += 1;
        self.loses.iter().for_each(|is_lost| is_lost.set(true));
        match std::mem::take(&mut self.fails) {
            true => Err(Error::device("it fails once", "see the test")),
            false => Ok(StepOutcome::Done),
        }
    }

    fn tolerance(&self, _: &Op) -> Tolerance {
        Tolerance::F32
    }
}

/// The golden model on the driver that computes nothing, with a KV cache of this type and source.
fn replay(kv: KvType, source: MemorySource) -> Replay<RecordingDriver> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/tiny");
    let checkpoint = Checkpoint::open(&root).unwrap();
    let extent = Extent { context: 256, max_rows: 16, head_rows: 1, sequences: 1, kv, kv_tokens: None };
    let schedule = Schedule::build(checkpoint.shape(), extent, checkpoint.formats(WeightFormat::Bf16));
    let (available, reserved) = (1 << 30, 0);
    let heap = Heap { name: "heap".into(), available, reserved, device_local: true, host_visible: true };
    let (device, max_allocation) = ("fake".into(), 1 << 30);
    let memory = DeviceMemory { device, heaps: vec![heap], max_allocation, unified: true, pool: None };
    let plan = Plan::place(&schedule, &memory, Needs::on_device(&schedule, true)).unwrap();
    let options = ReplayOptions { tune: Some(Tune::Off), arena: source, ..ReplayOptions::default() };
    Replay::load(None, RecordingDriver::new(), &checkpoint, schedule, &plan, options, &Progress::default()).unwrap()
}

/// Sets an offload with this answer to [`Offload::share_kv`], and runs a pass.
fn attend(replay: &mut Replay<RecordingDriver>, answer: ShareAnswer, fails: bool) -> Rc<RefCell<ShownKv>> {
    let shown = give(replay, answer, fails, None);
    pass(replay);
    shown
}

/// Sets such an offload, which may lose the device.
fn give(
    replay: &mut Replay<RecordingDriver>,
    answer: ShareAnswer,
    fails: bool,
    loses: Option<Rc<Cell<bool>>>,
) -> Rc<RefCell<ShownKv>> {
    let shown = Rc::<RefCell<ShownKv>>::default();
    let given = shown.clone();
    let load = move || -> Result<Box<dyn Offload>> {
        Ok(Box::new(ShownOffload { shown: given.clone(), answer, fails, loses: loses.clone() }))
    };
    let offload = CheckedOffload::due(replay.schedule(), Box::new(load), Duration::ZERO, 0);
    replay.set_offload(Some(Box::new(offload))).unwrap();
    shown
}

fn pass(replay: &mut Replay<RecordingDriver>) {
    try_pass(replay).unwrap();
}

fn try_pass(replay: &mut Replay<RecordingDriver>) -> Result<()> {
    replay.pages_mut().truncate(0, 0);
    let rows: Vec<Row> = (0..9).map(|position| Row { token: 1, position, sequence: 0 }).collect();
    replay.forward(&rows, Some(HeadRows { first: 8, count: 1 }))
}

/// Blocks are the device's own memory, and are given once to each new offload; an offload that reads them gets no copies.
#[test]
fn an_npu_is_shown_each_block_once_and_gets_no_copies() {
    let mut replay = replay(KvType::Bf16, MemorySource::Exported);
    let shown = attend(&mut replay, || Ok(true), false);
    pass(&mut replay);
    let layers = replay.schedule.shape.layers.len();
    {
        let shown = shown.borrow();
        assert_eq!((shown.blocks.len(), shown.copies, shown.steps), (1, 0, 2 * layers));
        for (pool, blocks) in shown.blocks[0].iter().enumerate() {
            assert_eq!(blocks.len(), replay.kv.blocks[pool].len());
            for (number, block) in blocks.iter().enumerate() {
                let own = &mut replay.kv.blocks[pool][number];
                // SAFETY: the driver runs nothing.
                unsafe { own.bytes_mut() }.unwrap()[..4].copy_from_slice(&[7, pool as u8, number as u8, 9]);
                assert_eq!(block.bytes()[..4], [7, pool as u8, number as u8, 9]);
                assert_eq!(block.bytes().len() as u64, own.dma_buf().unwrap().size());
            }
        }
    }
    // An offload that comes back after a failure is given them again.
    let shown = attend(&mut replay, || Ok(true), true);
    pass(&mut replay);
    let shown = shown.borrow();
    assert_eq!((shown.blocks.len(), shown.copies), (2, 0));
}

/// An offload that cannot read the blocks in place, or that is given none, gets a copy for each step.
#[test]
fn an_npu_that_shares_no_blocks_gets_copies() {
    let refuses = || Err(Error::device("no room", "see the test"));
    let cases: [(KvType, MemorySource, ShareAnswer, usize); 4] = [
        (KvType::Bf16, MemorySource::Exported, || Ok(false), 1),
        (KvType::Bf16, MemorySource::Exported, refuses, 1),
        (KvType::F16, MemorySource::Exported, || Ok(false), 1),
        (KvType::Bf16, MemorySource::Ordinary, || Ok(true), 0),
    ];
    for (kv, source, answer, times) in cases {
        let mut replay = replay(kv, source);
        let shown = attend(&mut replay, answer, false);
        let shown = shown.borrow();
        assert_eq!((shown.blocks.len(), shown.copies), (times, shown.steps));
        assert!(shown.steps > 0 && replay.offload().is_some_and(|report| report.failures == 0));
    }
}

/// A failure while the device checks a step is the device's failure, and the offload stays.
#[test]
fn a_device_that_is_lost_beside_an_offload_is_no_failure_of_the_offload() {
    let mut replay = replay(KvType::Bf16, MemorySource::Exported);
    let is_lost = replay.queue.driver.is_lost.clone();
    let shown = give(&mut replay, || Ok(true), false, Some(is_lost.clone()));
    let e = try_pass(&mut replay).unwrap_err();
    assert!(e.to_string().contains("the device is lost"), "{e}");
    let report = replay.offload().unwrap();
    assert_eq!((report.attends, report.failures, shown.borrow().steps), (OffloadedPasses::ALL, 0, 1));
    is_lost.set(false);
    give(&mut replay, || Ok(true), false, None);
    pass(&mut replay);
}

/// The time of the device's check is not counted as the offload's.
#[test]
fn an_offloads_span_ends_before_the_device_checks_its_step() {
    let mut replay = replay(KvType::Bf16, MemorySource::Exported);
    give(&mut replay, || Ok(true), false, None);
    // Bakes all passes for the offload.
    replay.begin(&[Row { token: 1, position: 0, sequence: 0 }], None).unwrap();
    replay.handover.spans = Some(Vec::new());
    replay.queue.driver.bakes.take();
    pass(&mut replay);
    let (spans, bakes) = (replay.handover.spans.take().unwrap(), replay.queue.driver.bakes.take());
    let layers = replay.schedule.shape.layers.len();
    assert_eq!((spans.len(), bakes.len()), (layers, layers));
    assert!(spans.iter().all(|span| bakes.iter().all(|bake| !(span.start..span.end).contains(bake))));
}

#[test]
fn rows_behind_another_on_its_page_see_no_other_page() {
    let row = |sequence, position| Row { token: 0, position, sequence };
    let rows: Vec<Row> = (60..200).map(|p| row(0, p)).chain([row(1, 5), row(1, 4), row(1, 6), row(0, 7)]).collect();
    let kept: Vec<(u32, u32)> = first_on_pages(&rows).map(|row| (row.sequence, row.position)).collect();
    assert_eq!(kept, [(0, 60), (0, 64), (0, 128), (0, 192), (1, 5), (1, 4), (0, 7)]);
}
