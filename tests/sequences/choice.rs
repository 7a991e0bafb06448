//! Choosing from what a pass finds in the logits is choosing from the logits: the same tokens for the same seeds, whatever
//! the settings, penalties, biases and sets of allowed tokens are.

use crate::common::{self, Fifths, Mixed, Random, golden, load};
use kiln::engine::{Device, Options};
use kiln::executor::{self, Executor, HeadRows, Submission};
use kiln::model::{Shape, WeightFormat, presets};
use kiln::schedule::choice::{MOST_LISTED, SampleRequest, SampleResult};
use kiln::schedule::{Extent, KvType, Schedule, Segment};
use kiln::sequence::draft::MOST_DRAFTED;
use kiln::sequence::{Batch, Chooser, Generation, SequenceRequest};
use kiln::testing::generate;
use kiln::testing::lower::dispatch::Addresses;
use kiln::testing::lower::layout::GpuLayout;
use kiln::testing::lower::target::Target;
use kiln::testing::lower::{Lowering, PassKind, RowOrder, TokenSource};
use kiln::testing::plan::{Needs, Plan, Purpose};
use kiln::testing::replay::device_queue::DeviceQueue;
use kiln::testing::replay::driver::{Driver, HostAccess, Memory, MemorySource};
use kiln::testing::vulkan::Vulkan;
use kiln::testing::vulkan::memory::{Buffer, heaps};
use kiln::text::{Sampler, SamplerConfig, TokenSet};
use std::ops::ControlFlow;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

/// Rows that are chosen for at once.
const ROWS: usize = 16;

/// The device's part of a choice, on logits that the test makes.
struct Choice {
    schedule: Schedule,
    arena: Buffer,
    list: <Vulkan as Driver>::Baked,
    queue: DeviceQueue<Vulkan>,
}

impl Choice {
    fn new(vocab: usize) -> Choice {
        let full = presets::preset("gemma3-1b").unwrap();
        let shape = Shape { layers: full.layers[..1].to_vec(), vocab, hidden: 32, ffn: 64, ..full };
        let extent =
            Extent { context: 16, max_rows: ROWS, head_rows: ROWS, sequences: ROWS, kv: KvType::F32, kv_tokens: None };
        let schedule = Schedule::build(&shape, extent, |_| WeightFormat::Int8);
        let gpu = Rc::new(common::open_gpu());
        let plan = Plan::place(&schedule, &heaps::describe(&gpu), Needs::on_device(&schedule, true)).unwrap();
        let layout = GpuLayout::new(&schedule);
        let heap = plan.heap(Purpose::Arena).unwrap();
        let mut queue = DeviceQueue::new(Vulkan::new(&gpu).unwrap());
        let arena = queue.driver.allocate(layout.bytes, heap, HostAccess::Host, MemorySource::Ordinary).unwrap();
        let addresses = Addresses::new(arena.address(), vec![0; 8]);
        let target = Target::new(gpu.caps.subgroup, false, None);
        let kind = PassKind { rows: ROWS, head_rows: ROWS, order: RowOrder::Apart, tokens: TokenSource::Host };
        let lowering = Lowering { schedule: &schedule, layout: &layout, addresses: &addresses, target: &target, kind };
        let dispatches = lowering.segment(Segment::Choice);
        let list = queue.bake(&[&dispatches], None, None, None).unwrap();
        Choice { schedule, arena, list, queue }
    }

    /// Finds what the samplers ask of their logits.
    fn run(&mut self, samplers: &mut [Sampler], logits: &[Vec<f32>]) {
        let (schedule, head) = (&self.schedule, HeadRows { first: 0, count: samplers.len() });
        let write = |words: &mut [u32]| {
            executor::write_head(words, head);
            for (row, logits) in logits.iter().enumerate() {
                let at = schedule.logits.row(row) as usize / 4;
                words[at..at + logits.len()].copy_from_slice(bytemuck::cast_slice(logits));
                // What an earlier run has found must not count.
                let at = schedule.found.row(row) as usize / 4;
                words[at..at + schedule.found.width].fill(0x7fc0_0000);
                words[schedule.arena.state.next() + row] = u32::MAX;
            }
            let mut asked = [false; ROWS];
            let fill = &mut |row: usize, ask: &mut SampleRequest<'_>| samplers[row].ask(ask);
            executor::write_asks(&mut words[executor::asks_in(schedule)], schedule, head, fill, &mut asked);
        };
        self.queue.edit(&mut self.arena, write).unwrap();
        // SAFETY: the arena lives until the wait.
        unsafe { self.queue.run(self.list) }.unwrap();
    }

    fn found(&self, row: usize) -> SampleResult<'_> {
        // SAFETY: everything submitted was waited for.
        let words: &[u32] = bytemuck::cast_slice(unsafe { self.arena.bytes() }.unwrap());
        let slot = self.schedule.found;
        SampleResult::new(&words[slot.row(row) as usize / 4..][..slot.width])
    }

    /// The token that the device took for a row.
    fn next(&self, row: usize) -> Option<u32> {
        // SAFETY: everything submitted was waited for.
        let words: &[u32] = bytemuck::cast_slice(unsafe { self.arena.bytes() }.unwrap());
        Some(words[self.schedule.arena.state.next() + row]).filter(|next| *next != u32::MAX)
    }
}

/// A sampler with settings, a history, biases and perhaps a set of allowed tokens, and logits.
fn draw_case(random: &mut Random, vocab: usize, plain: bool) -> (SamplerConfig, Sampler, Vec<f32>) {
    let spread = [1.0, 4.0, 12.0][random.below(3)];
    let coarse = !plain && random.below(8) == 0;
    let mut logits: Vec<f32> = (0..vocab).map(|_| spread * (random.real() + random.real() + random.real())).collect();
    if coarse {
        logits.iter_mut().for_each(|l| *l = l.round());
        (0..vocab / 9).for_each(|_| logits[random.below(vocab)] = f32::NEG_INFINITY);
        logits[0] = 1.0;
    }
    // The likeliest lie side by side, as they seldom do.
    if !plain && random.below(6) == 0 {
        let first = random.below(vocab - 400);
        logits[first..first + 400].iter_mut().for_each(|l| *l += 3.0 * spread);
    }
    let few = random.below(3) == 0;
    let config = SamplerConfig {
        temperature: [0.0, 0.3, 1.0, 2.0][random.below(4)],
        top_k: [0, 0, 1, 40, 64, 256, 1000][random.below(7)],
        top_p: [0.5, 0.95, 1.0][random.below(3)],
        min_p: [0.0, 0.0, 0.1][random.below(3)],
        repeat_penalty: [1.0, 1.2, 0.8][random.below(3)],
        presence_penalty: [0.0, 0.0, 1.0][random.below(3)],
        frequency_penalty: [0.0, 0.0, 0.5][random.below(3)],
        bias: (0..if few { random.below(6) } else { 0 })
            .map(|_| (random.below(vocab) as u32, 9.0 * random.real()))
            .collect(),
        seed: Some(random.bits()),
    };
    let mut sampler = Sampler::new(config.clone(), vocab).unwrap();
    let prompt: Vec<u32> = (0..random.below(80)).map(|_| random.below(vocab) as u32).collect();
    sampler.begin(&prompt);
    if random.below(4) == 0 {
        let mut allowed = TokenSet::new(vocab);
        allowed.insert(0);
        let count = [3, 50, vocab][random.below(3)];
        (0..count).for_each(|_| allowed.insert(random.below(vocab) as u32));
        sampler.allow(Some(allowed));
    }
    (config, sampler, logits)
}

/// Draws `rounds` times for all rows. Returns how many draws were decided without the logits.
fn compare(vocab: usize, rounds: usize, seed: u64) -> usize {
    let (mut choice, mut random) = (Choice::new(vocab), Random(seed));
    let (mut decided, mut taken) = (0, 0);
    for round in 0..rounds {
        let plain = round % 2 == 0;
        let cases: Vec<_> = (0..ROWS).map(|_| draw_case(&mut random, vocab, plain)).collect();
        let mut samplers: Vec<Sampler> = cases.iter().map(|c| c.1.clone()).collect();
        let logits: Vec<Vec<f32>> = cases.iter().map(|c| c.2.clone()).collect();
        choice.run(&mut samplers, &logits);
        for (row, (config, sampler, logits)) in cases.into_iter().enumerate() {
            let (mut by_logits, mut by_found) = (sampler.clone(), sampler);
            let want = by_logits.sample(&logits).unwrap();
            // A row that asks for nothing leaves what was there: a count past the room.
            let got = by_found.sample_found(choice.found(row));
            decided += usize::from(got.is_some());
            assert_eq!(got.unwrap_or(want), want, "{config:?}, row {row} of round {round}, vocabulary {vocab}");
            // Where the likeliest token is taken in any case, the device takes it, among those that are allowed.
            let takes = by_logits.takes_likeliest() && got.is_some();
            let next = choice.next(row);
            assert!(next.is_some() || !takes, "{config:?}, row {row} of round {round}");
            assert_eq!(next.unwrap_or(want), want, "{config:?}, row {row} of round {round}");
            taken += usize::from(takes);
            // The next draws follow the same numbers, whether this one was decided or not.
            if got.is_none() {
                assert_eq!(by_found.sample(&logits).unwrap(), want);
            }
            assert_eq!(by_found.sample(&logits).unwrap(), by_logits.sample(&logits).unwrap());
            let few = (1..=256).contains(&config.top_k) || config.temperature == 0.0;
            let open = config.top_k == 0 && config.top_p == 1.0 && config.min_p == 0.0 && config.temperature > 0.0;
            if plain && vocab > 1000 && (few || open) {
                assert!(
                    got.is_some(),
                    "{config:?}: undecided, {} listed",
                    choice.found(row).list().map_or(MOST_LISTED + 1, Iterator::count)
                );
            }
        }
    }
    assert!(taken > 0 || rounds == 1);
    decided
}

#[test]
fn what_is_found_gives_the_tokens_that_the_logits_give() {
    // Vocabularies of one block, of some with a part of one, and Gemma's. Ten thousand draws, or a tenth.
    let (part, mut draws) = (if common::runs_all() { 1 } else { 10 }, 0);
    for (vocab, rounds, seed) in [(500, 440 / part, 1), (2500, 190 / part, 2), (262_144, 1, 3), (262_208, 1, 4)] {
        let decided = compare(vocab, rounds, seed);
        println!("vocabulary {vocab}: {decided} of {} decided by what was found", rounds * ROWS);
        assert!(decided > rounds * ROWS / 2, "{decided}");
        draws += rounds * ROWS;
    }
    assert!(draws >= 10_000 / part);
    assert_eq!(kiln::testing::vulkan::device::instance::validation_messages(), 0);
}

/// Logits that are no numbers are left to the sampler over all logits, which names them.
#[test]
fn unsound_logits_decide_nothing() {
    let mut choice = Choice::new(5000);
    for (unsound, config) in [
        (f32::NAN, SamplerConfig::default()),
        (f32::INFINITY, SamplerConfig { top_k: 0, top_p: 1.0, ..SamplerConfig::default() }),
    ] {
        let mut samplers = [Sampler::new(config, 5000).unwrap()];
        let mut logits = vec![vec![0.5f32; 5000]];
        for (id, logit) in logits[0].iter_mut().enumerate() {
            *logit = (id * 7919 % 5000) as f32 / 500.0;
        }
        choice.run(&mut samplers, &logits);
        assert!(samplers[0].clone().sample_found(choice.found(0)).is_some());
        logits[0][3210] = unsound;
        choice.run(&mut samplers, &logits);
        assert!(samplers[0].sample_found(choice.found(0)).is_none());
    }
}

/// An executor whose passes may find nothing.
struct Watched {
    executor: Box<dyn kiln::executor::Measure>,
    finds: bool,
    /// Rows whose logits were asked for.
    fetched: usize,
}

impl Watched {
    fn blind(executor: Box<dyn kiln::executor::Measure>) -> Watched {
        Watched { executor, finds: false, fetched: 0 }
    }
}

impl Executor for Watched {
    kiln::executor_methods!(of executor);

    fn submit(&mut self, work: Submission<'_>) -> kiln::Result<bool> {
        match work {
            Submission::Samples(_) if !self.finds => Ok(false),
            work => self.executor.submit(work),
        }
    }

    fn logits(&mut self, row: usize) -> kiln::Result<&[f32]> {
        self.fetched += 1;
        self.executor.logits(row)
    }
}

/// Each slot's tokens of a batch of greedy, sampled and guided sequences.
fn replies(executor: &mut dyn Executor) -> Vec<Vec<u32>> {
    let vocab = executor.schedule().shape.vocab;
    let configs = [
        SamplerConfig::greedy(),
        SamplerConfig { seed: Some(1), ..SamplerConfig::default() },
        SamplerConfig { seed: Some(2), top_k: 0, top_p: 1.0, ..SamplerConfig::default() },
        SamplerConfig { repeat_penalty: 1.5, bias: vec![(7, 2.0)], ..SamplerConfig::greedy() },
        SamplerConfig { seed: Some(3), top_k: 0, top_p: 0.6, temperature: 0.7, ..SamplerConfig::default() },
        SamplerConfig { seed: Some(4), ..SamplerConfig::default() },
    ];
    let mut batch = Batch::new(executor.schedule());
    for (i, config) in configs.into_iter().enumerate() {
        let mut chooser = Chooser::new(config, vocab).unwrap();
        if i == 3 {
            let mut allowed = TokenSet::new(vocab);
            (0..vocab as u32).step_by(3).for_each(|id| allowed.insert(id));
            chooser.allow(allowed).unwrap();
        }
        // What it asks for is written while the pass runs already.
        if i == 5 {
            chooser = chooser.guided(Fifths(0), vocab).unwrap();
        }
        let prompt = (0..4 + i as u32).map(|p| 2 + 31 * i as u32 + 7 * p).collect();
        batch.join(executor, SequenceRequest { prompt, chooser, stops: Vec::new(), limit: 24, reuse: true }).unwrap();
    }
    let mut replies = vec![Vec::new(); 6];
    while !batch.is_empty() {
        batch.step(executor, &mut |_, _, _| ControlFlow::Continue(())).unwrap();
        while let Some(ended) = batch.take_ended() {
            replies[ended.slot] = ended.reply.unwrap().tokens;
        }
    }
    replies
}

#[test]
fn a_batch_chooses_the_same_with_and_without_what_passes_find() {
    for device in [Device::Cpu, common::vulkan()] {
        let options = || Options { device, sequences: 6, head_rows: 6, context: Some(64), ..Options::default() };
        let want = replies(&mut Watched::blind(load(&golden("tiny"), options())));
        assert!(want.iter().all(|reply| reply.len() == 24) && want[3].iter().all(|id| id % 3 == 0), "{want:?}");
        assert_eq!(replies(load(&golden("tiny"), options()).as_mut()), want, "{device:?}");
    }
    assert_eq!(kiln::testing::vulkan::device::instance::validation_messages(), 0);
}

/// A sampled reply by drafts that are right and wrong in turn, those of each call with the same seed alike.
fn drafted(executor: &mut Watched, config: &SamplerConfig, allowed: Option<usize>, known: &[u32]) -> Generation {
    let vocab = executor.schedule().shape.vocab;
    let mut chooser = Chooser::new(config.clone(), vocab).unwrap();
    if let Some(step) = allowed {
        let mut allowed = TokenSet::new(vocab);
        (0..vocab as u32).step_by(step).for_each(|id| allowed.insert(id));
        chooser.allow(allowed).unwrap();
    }
    let known = Arc::new(Mutex::new(vec![known.to_vec()]));
    let mut batch = Batch::new(executor.schedule());
    batch.speculate(MOST_DRAFTED, false, Box::new(Mixed::new(&known, 17, vocab)));
    let request = SequenceRequest { prompt: vec![2, 17, 5], chooser, stops: Vec::new(), limit: 40, reuse: false };
    generate(executor, &mut batch, request, &mut |_| ControlFlow::Continue(())).unwrap().0
}

/// A row behind a draft is asked for what its own choice needs: the history and the random numbers of that choice.
#[test]
fn what_passes_find_behind_drafts_gives_the_tokens_that_the_logits_give() {
    let options = Options { device: common::vulkan(), drafted: MOST_DRAFTED, context: Some(128), ..Options::default() };
    let mut executor = Watched::blind(load(&golden("tiny"), options));
    let penalties = SamplerConfig { repeat_penalty: 1.2, presence_penalty: 0.4, ..SamplerConfig::default() };
    for (config, allowed) in [
        (SamplerConfig { temperature: 1.5, ..SamplerConfig::default() }, None),
        (SamplerConfig { top_k: 0, top_p: 1.0, ..SamplerConfig::default() }, None),
        (SamplerConfig { top_k: 0, top_p: 1.0, frequency_penalty: 0.5, ..penalties.clone() }, Some(2)),
        (penalties, Some(3)),
        (SamplerConfig { repeat_penalty: 1.5, bias: vec![(7, 2.0)], ..SamplerConfig::greedy() }, None),
    ] {
        let config = SamplerConfig { seed: Some(5), ..config };
        (executor.finds, executor.fetched) = (false, 0);
        // Drafts that are known to be wrong.
        let mut want = drafted(&mut executor, &config, allowed, &[]);
        assert!(executor.fetched >= 40);
        // What is drafted changes a GPU's rounding, and so the reply: the one that is known has to come again.
        let (mut known, mut comes_again) = (Vec::new(), false);
        for _ in 0..40 {
            known = [&[2, 17, 5], &want.tokens[..]].concat();
            let reply = drafted(&mut executor, &config, allowed, &known);
            comes_again = std::mem::replace(&mut want, reply).tokens == want.tokens;
            if comes_again {
                break;
            }
        }
        assert!(comes_again);
        (executor.finds, executor.fetched) = (true, 0);
        let got = drafted(&mut executor, &config, allowed, &known);
        assert_eq!((&got.tokens, got.drafted, got.accepted), (&want.tokens, want.drafted, want.accepted), "{config:?}");
        assert!(got.accepted > 5 && got.drafted > got.accepted + 5, "{} of {}", got.accepted, got.drafted);
        println!("{config:?}: {} accepted, logits of {} rows fetched", got.accepted, executor.fetched);
        assert!(executor.fetched < 4, "{config:?}: {} of 40 choices by the logits", executor.fetched);
    }
    assert_eq!(kiln::testing::vulkan::device::instance::validation_messages(), 0);
}
