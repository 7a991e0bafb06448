//! Promises of baking: decode records nothing, makes no pipeline and allocates nothing. The results have the same bits
//! however the work is cut into submits.

use crate::common::{self, Mixed, ONE_SUBMIT, bits, decode_ahead, golden, load};
use crate::{KeptFiles, alone};
use kiln::engine::{Options, ReplayOptions, Tune};
use kiln::executor::{ExecutorExt, HeadRows, Row};
use kiln::sequence::draft::{MOST_DRAFTED, Repeats};
use kiln::sequence::session::Session;
use kiln::sequence::{Batch, Chooser, SequenceRequest};
use kiln::text::{SamplerConfig, TokenSet};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Counts this thread's heap allocations.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call is passed on to the system's allocator; the counter is a plain thread-local number.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|n| n.set(n.get() + 1));
        // SAFETY: the caller's contract is the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, p: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(p, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Sequences that are decoded together.
const BATCH: usize = 5;

fn counts() -> [u64; 3] {
    let allocations = ALLOCATIONS.with(Cell::get);
    [allocations, kiln::testing::vulkan::driver::recordings(), kiln::testing::vulkan::pipelines::pipelines_created()]
}

/// Where the device is a GPU, what tuning is to measure later is compiled beside the passes.
fn untuned() -> ReplayOptions {
    ReplayOptions { tune: Some(Tune::Off), ..ReplayOptions::default() }
}

#[test]
fn decode_records_nothing_makes_no_pipeline_and_allocates_nothing() {
    let _alone = alone();
    let mut executor =
        load(&golden("tiny"), Options { device: common::vulkan(), vulkan: untuned(), ..Options::default() });
    let mut session = Session::new(0, executor.schedule().extent.context);
    let before_prefill = counts();
    session.prefill(executor.as_mut(), &[2, 17, 5]).unwrap();
    assert!(counts()[0] > before_prefill[0], "the counter sees a prefill's row list");
    assert!(before_prefill[1] > 0 && before_prefill[2] > 0, "baking was counted");

    let before = counts();
    // Past the window of 16, so that the ring wraps; both with single passes and with the next pass under way.
    for i in 0..40 {
        let next = executor.next(0);
        match i < 20 {
            true => session.decode(executor.as_mut(), next).unwrap(),
            false => decode_ahead(&mut session, executor.as_mut(), next).unwrap(),
        }
    }
    let after = counts();
    assert_eq!(after, before, "[heap allocations, recordings, pipelines] during 40 decode passes");
    assert_eq!(kiln::testing::vulkan::device::instance::validation_messages(), 0);
}

/// Neither does a batch that samples, with a penalty, a set of allowed tokens and draws from all tokens.
#[test]
fn sampling_records_nothing_makes_no_pipeline_and_allocates_nothing() {
    let _alone = alone();
    let options = Options {
        device: common::vulkan(),
        sequences: BATCH,
        head_rows: BATCH,
        context: Some(128),
        vulkan: untuned(),
        ..Options::default()
    };
    let mut executor = load(&golden("tiny"), options);
    let vocab = executor.schedule().shape.vocab;
    let mut batch = Batch::new(executor.schedule());
    for i in 0..BATCH as u32 {
        let config = match i {
            0 => SamplerConfig { top_k: 0, top_p: 1.0, ..SamplerConfig::default() },
            1 => SamplerConfig { repeat_penalty: 1.3, ..SamplerConfig::greedy() },
            _ => SamplerConfig::default(),
        };
        let mut chooser = Chooser::new(SamplerConfig { seed: Some(i.into()), ..config }, vocab).unwrap();
        if i == 2 {
            let mut allowed = TokenSet::new(vocab);
            (0..vocab as u32).step_by(2).for_each(|id| allowed.insert(id));
            chooser.allow(allowed).unwrap();
        }
        let request = SequenceRequest { prompt: vec![2, 17 + i], chooser, stops: Vec::new(), limit: 60, reuse: true };
        batch.join(executor.as_mut(), request).unwrap();
    }
    let mut steps = |count| {
        for _ in 0..count {
            batch.step(executor.as_mut(), &mut |_, _, _| ControlFlow::Continue(())).unwrap();
            assert!(batch.take_ended().is_none());
        }
    };
    // The prompts, and a pass of each kind that follows.
    steps(2 * BATCH + 2);
    let before = counts();
    steps(40);
    assert_eq!(counts(), before, "[heap allocations, recordings, pipelines] during 40 sampled passes");
    assert_eq!(kiln::testing::vulkan::device::instance::validation_messages(), 0);
}

/// Neither do passes that verify drafts, nor the look for something to draft.
#[test]
fn drafts_record_nothing_make_no_pipeline_and_allocate_nothing() {
    let _alone = alone();
    let context = 512;
    let options = Options {
        device: common::vulkan(),
        drafted: MOST_DRAFTED,
        context: Some(context),
        vulkan: untuned(),
        ..Options::default()
    };
    let mut executor = load(&golden("tiny"), options);
    let vocab = executor.schedule().shape.vocab;
    let penalties = SamplerConfig { repeat_penalty: 1.3, ..SamplerConfig::default() };
    for (config, known) in [
        (SamplerConfig::greedy(), true),
        (SamplerConfig { seed: Some(7), ..penalties }, true),
        (SamplerConfig::greedy(), false),
    ] {
        let mut batch = Batch::new(executor.schedule());
        let tokens = Arc::new(Mutex::new(vec![vec![0; context]]));
        match known {
            true => batch.speculate(MOST_DRAFTED, false, Box::new(Mixed::new(&tokens, 3, vocab))),
            false => batch.speculate(MOST_DRAFTED, true, Box::new(Repeats::new(1, context, None))),
        }
        let chooser = Chooser::new(config, vocab).unwrap();
        let request = SequenceRequest { prompt: vec![2, 17, 5], chooser, stops: Vec::new(), limit: 500, reuse: false };
        batch.join(executor.as_mut(), request).unwrap();
        let mut verified = 0;
        let mut steps = |count| {
            for _ in 0..count {
                batch.step(executor.as_mut(), &mut |_, _, _| ControlFlow::Continue(())).unwrap();
                verified += usize::from(batch.last_verified() > 0);
                assert!(batch.take_ended().is_none());
            }
        };
        // The prompt, and passes of each size.
        steps(20);
        let before = counts();
        steps(40);
        assert_eq!(counts(), before, "[heap allocations, recordings, pipelines] during 40 passes, drafts: {known}");
        assert!(verified > 20 || !known, "{verified}");
    }
    assert_eq!(kiln::testing::vulkan::device::instance::validation_messages(), 0);
}

#[test]
fn a_tiny_submit_budget_changes_no_bit() {
    let _alone = alone();
    let tokens: Vec<u32> = (0..50).map(|i| 2 + 7 * i % 500).collect();
    // Bits and submits of each part of the work.
    let run = |budget| {
        let options = Options {
            device: common::vulkan(),
            chunk: Some(16),
            sequences: BATCH,
            head_rows: BATCH,
            // Tiles that are tuned differ from load to load, and so do bits.
            vulkan: ReplayOptions { submit_budget: budget, ..untuned() },
            ..Options::default()
        };
        let mut executor = load(&golden("tiny"), options);
        let mut parts: [(Vec<u32>, u64); 3] = Default::default();
        let mut session = Session::new(0, 4096);
        let mut start = executor.submits();
        // Three chunks of 16 rows, and one of two.
        session.prefill(executor.as_mut(), &tokens).unwrap();
        parts[0].0.extend(bits(executor.as_mut(), 0));
        parts[0].1 = executor.submits() - start;
        start = executor.submits();
        for _ in 0..8 {
            let next = executor.next(0);
            session.decode(executor.as_mut(), next).unwrap();
            parts[1].0.extend(bits(executor.as_mut(), 0));
        }
        parts[1].1 = executor.submits() - start;
        start = executor.submits();
        for step in 0..3u32 {
            let at = |s| if s == 0 { session.tokens().len() as u32 } else { 0 };
            let rows: Vec<Row> = (0..BATCH as u32)
                .map(|s| Row { token: 3 + s + 50 * step, position: at(s) + step, sequence: s })
                .collect();
            executor.forward(&rows, Some(HeadRows { first: 0, count: BATCH })).unwrap();
            (0..BATCH).for_each(|row| parts[2].0.extend(bits(executor.as_mut(), row)));
        }
        parts[2].1 = executor.submits() - start;
        parts
    };
    let whole = run(ONE_SUBMIT);
    let cut = run(Duration::from_nanos(1));
    for (part, (w, c)) in ["prefill", "decode", "batch"].into_iter().zip(whole.iter().zip(&cut)) {
        assert!(!w.0.is_empty() && w.0 == c.0, "{part}: other bits");
    }
    // Embed, six layers, head: eight submits for a pass when each is over the budget, and seven for a chunk whose
    // logits are not wanted. With a generous budget the first pass of a size is still cut, since nothing has been
    // measured yet. Later passes are one submit.
    assert_eq!(cut.map(|part| part.1), [7 + 7 + 7 + 8, 8 * 8, 3 * 8]);
    assert_eq!(whole.map(|part| part.1), [7 + 1 + 1 + 8, 8 + 7, 8 + 2]);
}

/// The time of few rows does not predict that of many, although both replay the same commands.
#[test]
fn a_pass_of_more_rows_than_were_timed_is_cut_once_more() {
    let _alone = alone();
    let options = Options {
        device: common::vulkan(),
        chunk: Some(100),
        vulkan: ReplayOptions { submit_budget: ONE_SUBMIT, ..ReplayOptions::default() },
        ..Options::default()
    };
    let mut executor = load(&golden("tiny"), options);
    // Passes of 65 to 100 rows are one kind. Eight submits: embed, six layers, head.
    for (rows, position, submits) in [(66, 0, 8), (66, 0, 1), (65, 66, 1), (67, 0, 8), (100, 0, 8), (66, 0, 1)] {
        let pass: Vec<Row> = (0..rows).map(|i| Row { token: 2 + i, position: position + i, sequence: 0 }).collect();
        let before = executor.submits();
        executor.forward(&pass, Some(HeadRows { first: 0, count: 1 })).unwrap();
        assert_eq!(executor.submits() - before, submits, "{rows} rows at {position}");
    }
}

/// With one sequence, no kind of pass is baked for rows that do not follow each other.
#[test]
fn rows_that_no_pass_holds_are_refused() {
    let _alone = alone();
    let options = Options { device: common::vulkan(), ..Options::default() };
    let mut executor = load(&golden("tiny"), options);
    let rows = [0, 5].map(|position| Row { token: 2, position, sequence: 0 });
    let refused = executor.forward(&rows, None).unwrap_err();
    assert_eq!(refused.exit_code(), 2);
    assert!(refused.to_string().contains("do not follow each other"), "{refused}");
    executor.forward(&rows[..1], Some(HeadRows { first: 0, count: 1 })).unwrap();
}

/// A layer that takes longer than a submit should gets fewer rows, at least 64. The results are still the model's.
#[test]
fn long_layers_are_given_fewer_rows() {
    let _alone = alone();
    let tokens: Vec<u32> = (0..700).map(|i| 2 + 7 * i % 500).collect();
    let run = |budget| {
        let options = Options {
            device: common::vulkan(),
            chunk: Some(256),
            context: Some(1024),
            vulkan: ReplayOptions { submit_budget: budget, ..ReplayOptions::default() },
            ..Options::default()
        };
        let mut executor = load(&golden("tiny"), options);
        let mut rows = Vec::new();
        let mut session = Session::new(0, 1024);
        session
            .prefill_with(executor.as_mut(), &tokens, &mut |executor, pass, last| {
                rows.push(pass.len());
                executor.forward(pass, last.then_some(HeadRows { first: pass.len() - 1, count: 1 }))
            })
            .unwrap();
        (rows, executor.logits(0).unwrap().to_vec())
    };
    let (whole, want) = run(ONE_SUBMIT);
    let (cut, got) = run(Duration::from_nanos(1));
    assert_eq!(whole, [256, 256, 188]);
    assert_eq!(cut, [256, 128, 64, 64, 64, 64, 60]);
    // Chunks of other lengths multiply in another arithmetic where matrix units round their inputs to f16.
    let most = if common::open_gpu().caps.matrix.is_some() { 4e-3 } else { 1e-3 };
    assert!(common::relative_rms(&got, &want) < most);
}

#[test]
fn the_pipeline_cache_is_kept_and_a_damaged_one_does_no_harm() {
    let dir = KeptFiles::new();
    let options = Options { device: common::vulkan(), ..Options::default() };
    let run = || {
        let mut executor = load(&golden("tiny"), options);
        Session::new(0, 64).prefill(executor.as_mut(), &[2, 3]).unwrap();
        executor.logits(0).unwrap().to_vec()
    };
    let first = run();
    let pipelines = |p: &std::path::PathBuf| p.file_name().unwrap().to_str().unwrap().starts_with("pipelines-");
    let files: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|f| f.unwrap().path()).filter(pipelines).collect();
    assert_eq!(files.len(), 1, "one cache file: {files:?}");
    std::fs::write(&files[0], b"not a pipeline cache").unwrap();
    assert_eq!(run(), first);
    assert!(std::fs::metadata(&files[0]).unwrap().len() > 20, "the damaged file was replaced");
}
