//! Many sequences that join, leave, end, go back and share prefixes between passes: each one's greedy reply is that of its
//! own run alone, with pages of KV for all and with hardly any. On the CPU it is the same token for token. On Vulkan it is
//! wherever the margin of a choice leaves no doubt, since passes of other kinds add in another order.

use crate::common::{self, AUTO, F32, Forged, Random, forced, golden, golden_dir, load, rms, small_shape};
use kiln::Cancel;
use kiln::engine::{Device, Options};
use kiln::executor::weights::Progress;
use kiln::executor::{Executor, ExecutorExt, HeadRows, Row};
use kiln::model::{Checkpoint, WeightFormat};
use kiln::schedule::kv::PAGE;
use kiln::schedule::{KvType, PassShape, Pool, Schedule};
use kiln::sequence::{Batch, Chooser, Finish, FinishedSequence, SequenceRequest};
use kiln::testing::generate;
use kiln::testing::plan::{Needs, Plan};
use kiln::testing::replay::Replay;
use kiln::testing::vulkan::Vulkan;
use kiln::testing::vulkan::memory::heaps;
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::rc::Rc;

const SLOTS: usize = 64;
const CONTEXT: usize = 4096;
const CHUNK: usize = 64;
const VOCAB: usize = 512;

/// With a KV cache of f32, products are in f32 as well: matrix units would round their inputs to f16.
fn options(device: Device, kv: KvType, sequences: usize) -> Options {
    let vulkan = forced(if kv == KvType::F32 { F32 } else { AUTO });
    let context = Some(CONTEXT);
    Options { device, kv, sequences, head_rows: sequences, context, chunk: Some(CHUNK), vulkan, ..Options::default() }
}

/// How many tokens of KV there are.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Room {
    /// For every sequence's whole context.
    Ample,
    /// For one sequence's whole context.
    Scarce,
}

/// Sequences as a server would have them.
struct Traffic {
    random: Random,
    /// Most tokens of a prompt.
    longest: usize,
    /// Prompts that others may begin with.
    seen: Vec<Vec<u32>>,
    /// The prompt of the sequence that got the last token. Where pages are scarce, few other sequences hold any that could be
    /// shared.
    running: Vec<u32>,
}

impl Traffic {
    fn new(longest: usize) -> Traffic {
        Traffic { random: Random(2026), longest, seen: Vec::new(), running: Vec::new() }
    }

    /// A prompt of 10 tokens or more. One in three begins as an earlier one or goes on behind its reply: half of these as one of a
    /// sequence that runs.
    fn prompt(&mut self) -> Vec<u32> {
        let random = &mut self.random;
        // Most are short.
        let most = if random.below(64) == 0 { self.longest } else { 120 };
        let length = 10 + random.below(most - 10);
        let mut prompt = match random.below(3) {
            0 if !self.seen.is_empty() => {
                let earlier = match random.below(2) {
                    0 => &self.running,
                    _ => &self.seen[random.below(self.seen.len())],
                };
                let shared = if random.below(2) == 0 { earlier.len() } else { random.below(earlier.len() + 1) };
                earlier[..shared.min(most)].to_vec()
            }
            _ => Vec::new(),
        };
        while prompt.len() < length {
            prompt.push(random.below(VOCAB) as u32);
        }
        self.seen.push(prompt.clone());
        prompt
    }

    fn request(&mut self) -> SequenceRequest {
        let limit = self.random.below(30);
        SequenceRequest {
            prompt: self.prompt(),
            chooser: Chooser::Greedy,
            stops: (0..VOCAB as u32).step_by(24).collect(),
            limit,
            reuse: true,
        }
    }
}

/// A reply with its prompt.
struct Answered {
    request: SequenceRequest,
    tokens: Vec<u32>,
    finish: Finish,
}

/// What came up in a run.
#[derive(Debug, Default)]
struct Seen {
    /// Most sequences at once.
    running: usize,
    /// Most pages that more than one sequence held.
    shared: usize,
    /// Fewest free pages of the global layers.
    free: usize,
    /// Mixed passes, and most decoding rows beside a chunk.
    mixed: usize,
    beside: usize,
}

/// Runs `passes` passes with sequences that come and go, then those that are left to their end.
fn run(executor: &mut dyn Executor, traffic: &mut Traffic, passes: usize) -> (Vec<Answered>, Seen) {
    let mut seen = Seen { free: usize::MAX, ..Seen::default() };
    let slots = executor.schedule().extent.sequences;
    let mut batch = Batch::new(executor.schedule());
    let mut running: Vec<Option<SequenceRequest>> = vec![None; slots];
    let mut answered = Vec::new();
    let mut pass = 0;
    while pass < passes || !batch.is_empty() {
        let mut ended: Vec<FinishedSequence> = Vec::new();
        // All at first, then one now and then.
        while pass < passes && batch.room() > 0 && (pass == 0 || batch.is_empty() || traffic.random.below(3) == 0) {
            let request = traffic.request();
            let slot = batch.join(executor, request.clone()).unwrap();
            assert!(running[slot].replace(request).is_none(), "two sequences in slot {slot}");
        }
        if traffic.random.below(40) == 0 {
            ended.extend(batch.leave(executor, traffic.random.below(slots)));
        }
        // Some end by what the caller sees in them.
        let mut last = None;
        let on_token = &mut |slot, token, _: &mut Chooser| {
            last = Some(slot);
            match token {
                9 => ControlFlow::Break(Finish::Stop),
                _ => ControlFlow::Continue(()),
            }
        };
        seen.running = seen.running.max(slots - batch.room());
        batch.step(executor, on_token).unwrap();
        executor.pages().check();
        if let Some(request) = last.and_then(|slot: usize| running[slot].as_ref()) {
            traffic.running.clone_from(&request.prompt);
        }
        if let Some(PassShape::Mixed { sequences, .. }) = batch.last_pass() {
            seen.mixed += 1;
            seen.beside = seen.beside.max(sequences);
        }
        seen.shared = seen.shared.max(executor.pages().shared());
        seen.free = seen.free.min(executor.pages().free(Pool::Global));
        ended.extend(std::iter::from_fn(|| batch.take_ended()));
        for ended in ended {
            let request = running[ended.slot].take().expect("a sequence that did not join");
            let reply = ended.reply.unwrap();
            traffic.seen.push([&request.prompt[..], &reply.tokens].concat());
            answered.push(Answered { request, tokens: reply.tokens, finish: reply.finish });
        }
        pass += 1;
    }
    assert!(running.iter().all(Option::is_none), "a sequence that never ended");
    (answered, seen)
}

/// Compares a reply with a run of its tokens alone. A choice may be off by what `tolerance` makes of the logits.
fn check(executor: &mut dyn Executor, answered: &Answered, tolerance: &impl Fn(&[f32]) -> f32) {
    let Answered { request, tokens, finish } = answered;
    executor.pages_mut().truncate(0, 0);
    let all = [&request.prompt[..], tokens].concat();
    let is_stop = |token| request.stops.contains(&token);
    assert!(!tokens.iter().any(|&token| is_stop(token)));
    // Rows from the prompt's last one on have the logits of what comes next.
    let begin = request.prompt.len() - 1;
    let row = |(i, &token): (usize, &u32)| Row { token, position: i as u32, sequence: 0 };
    let rows: Vec<Row> = all.iter().enumerate().map(row).collect();
    for chunk in rows.chunks(CHUNK) {
        let first = chunk.iter().position(|row| row.position as usize >= begin).unwrap_or(chunk.len());
        let head = HeadRows { first, count: chunk.len() - first };
        executor.forward(chunk, (head.count > 0).then_some(head)).unwrap();
        for (i, row) in chunk[first..].iter().enumerate() {
            let reply = &tokens[row.position as usize - begin..];
            let logits = executor.logits(i).unwrap();
            let best = logits.iter().fold(f32::NEG_INFINITY, |a, &b| a.max(b));
            let behind = |token: u32| best - logits[token as usize];
            let wanted = match (reply.first(), finish) {
                (Some(&token), _) => behind(token),
                (None, Finish::Stop) if tokens.last() != Some(&9) => {
                    request.stops.iter().map(|&token| behind(token)).fold(f32::INFINITY, f32::min)
                }
                _ => 0.0,
            };
            assert!(
                wanted <= tolerance(logits),
                "{} of {} tokens to come: {wanted} behind the best",
                reply.len(),
                tokens.len()
            );
        }
    }
    if *finish == Finish::Length {
        assert_eq!(tokens.len(), request.limit);
    }
}

/// With so many sequences on a device.
fn check_traffic(on: (Device, usize), kv: KvType, room: Room, passes: usize, tolerance: impl Fn(&[f32]) -> f32) {
    check_traffic_of("tiny", on, kv, room, passes, tolerance);
}

/// As [`check_traffic`], of a golden model.
fn check_traffic_of(
    name: &str,
    (device, slots): (Device, usize),
    kv: KvType,
    room: Room,
    passes: usize,
    tolerance: impl Fn(&[f32]) -> f32,
) {
    let kv_tokens = (room == Room::Scarce).then_some(CONTEXT);
    let mut executor = load(&golden_dir(name), Options { kv_tokens, ..options(device, kv, slots) });
    // A driver for the processor takes seconds for the longest prompts.
    let longest = if device == Device::Cpu || common::takes_all(&common::open_gpu()) { 3000 } else { 300 };
    let mut traffic = Traffic::new(longest);
    let (answered, seen) = run(executor.as_mut(), &mut traffic, passes);
    let tokens = executor.schedule().kv.tokens();
    drop(executor);
    let mut alone = load(&golden_dir(name), Options { head_rows: CHUNK, ..options(device, kv, 1) });
    answered.iter().for_each(|answered| check(alone.as_mut(), answered, &tolerance));
    let count = |finish| answered.iter().filter(|a| a.finish == finish).count();
    let (stopped, full, left) = (count(Finish::Stop), count(Finish::Length), count(Finish::Interrupted));
    println!(
        "{passes} passes, {tokens} tokens: {stopped} replies stopped, {full} at their limit, {left} left early; {seen:?}"
    );
    assert!(stopped > 0 && full > 0 && (left > 0 || passes < 300), "all three must come up");
    assert!(seen.running > slots / 2, "{seen:?}");
    // A few sequences may fit where many do not, and may have nothing in common.
    assert!(slots < SLOTS || seen.shared > 0 && (seen.free == 0) == (room == Room::Scarce), "{seen:?}");
    assert!(seen.mixed > passes / 10 && seen.beside > 2, "{seen:?}");
}

#[test]
fn sequences_that_come_and_go_reply_on_the_cpu_as_alone() {
    check_traffic((Device::Cpu, SLOTS), KvType::F32, Room::Ample, 300, |_| 0.0);
}

/// A row's experts, and the order in which their outputs are added, do not depend on the other rows.
#[test]
fn sequences_of_a_mixture_reply_on_the_cpu_as_alone() {
    check_traffic_of("moe_wide4", (Device::Cpu, 16), KvType::F32, Room::Ample, 60, |_| 0.0);
}

#[test]
fn sequences_reply_as_alone_where_pages_are_scarce() {
    check_traffic((Device::Cpu, SLOTS), KvType::F32, Room::Scarce, 300, |_| 0.0);
    check_traffic((common::vulkan(), 8), KvType::F32, Room::Scarce, 50, |_| 6e-4);
}

#[test]
fn sequences_that_come_and_go_reply_on_vulkan_as_alone() {
    check_traffic((common::vulkan(), 8), KvType::F16, Room::Ample, 50, |logits| 8.0 * 0.015 * rms(logits));
}

#[test]
#[ignore = "minutes long: tools/test --full runs it"]
fn ten_thousand_passes_reply_on_the_cpu_as_alone() {
    for room in [Room::Ample, Room::Scarce] {
        check_traffic((Device::Cpu, SLOTS), KvType::F32, room, 10_000, |_| 0.0);
    }
}

#[test]
#[ignore = "minutes long: tools/test --full runs it"]
fn thousands_of_passes_reply_on_vulkan_as_alone() {
    let passes = if common::open_gpu().caps.is_cpu() { 2_000 } else { 10_000 };
    for room in [Room::Ample, Room::Scarce] {
        check_traffic((common::vulkan(), SLOTS), KvType::F32, room, passes, |_| 6e-4);
        check_traffic((common::vulkan(), SLOTS), KvType::F16, room, passes, |logits| 8.0 * 0.015 * rms(logits));
    }
}

/// What is planned is what is taken, whatever the KV cache's size.
#[test]
fn the_plans_bytes_are_the_bytes_that_are_taken() {
    let checkpoint = Checkpoint::open(&golden("tiny")).unwrap();
    let gpu = Rc::new(common::open_gpu());
    for (sequences, kv_tokens) in [(1, None), (64, None), (64, Some(CONTEXT)), (64, Some(100_000))] {
        let options = Options { kv_tokens, ..options(common::vulkan(), KvType::F16, sequences) };
        let extent = options.extent(checkpoint.shape()).unwrap();
        let schedule = Schedule::build(checkpoint.shape(), extent, checkpoint.formats(options.weights));
        let plan = Plan::place(&schedule, &heaps::describe(&gpu), Needs::on_device(&schedule, false)).unwrap();
        let wanted: u64 = schedule.kv.bytes();
        let progress = Progress::new(Cancel::default());
        let vulkan =
            Replay::load(None, Vulkan::new(&gpu).unwrap(), &checkpoint, schedule, &plan, options.vulkan, &progress)
                .unwrap();
        let of = |kinds: &[&str]| plan.sums().iter().filter(|sum| kinds.contains(&sum.0)).map(|sum| sum.1).sum::<u64>();
        assert_eq!(
            vulkan.allocated(),
            of(&["weights", "KV cache", "arena"]),
            "{sequences} sequences, {kv_tokens:?} tokens"
        );
        assert_eq!((of(&["KV cache"]), vulkan.schedule().kv.bytes()), (wanted, wanted));
    }
}

/// The reply to a prompt, how much of it the cache held, and the bits of the last logits.
fn reply(executor: &mut dyn Executor, batch: &mut Batch, prompt: Vec<u32>) -> (Vec<u32>, usize, Vec<u32>) {
    let request = SequenceRequest { prompt, chooser: Chooser::Greedy, stops: Vec::new(), limit: 5, reuse: true };
    let (reply, _) = generate(executor, batch, request, &mut |_| ControlFlow::Continue(())).unwrap();
    let logits = executor.logits(0).unwrap().iter().map(|logit| logit.to_bits()).collect();
    (reply.tokens, reply.kept, logits)
}

/// Keys and values that were read from one executor and written to another are as good as its own, bit for bit.
#[test]
fn a_prefix_goes_from_one_executor_to_another() {
    let model = Forged::new(&small_shape(), WeightFormat::Int8);
    let random = |seed: u64, length: usize| -> Vec<u32> {
        let mut random = Random(seed);
        (0..length).map(|_| random.below(small_shape().vocab) as u32).collect()
    };
    for (device, kv) in [(Device::Cpu, KvType::F32), (common::vulkan(), KvType::F32), (common::vulkan(), KvType::F16)] {
        let options = Options { context: Some(512), ..options(device, kv, 2) };
        let [mut from, mut to] = [(); 2].map(|()| model.load(device, options));
        let [mut batch, mut other] = [(); 2].map(|()| Batch::new(from.schedule()));
        // Less than a page, whole pages, and more than a local layer's window in pages and rows.
        for length in [9, 128, 300] {
            let prompt = random(length as u64, length);
            reply(from.as_mut(), &mut batch, prompt.clone());
            let prefixes = batch.prefixes(from.as_ref(), &[&prompt[..], &[0]].concat());
            let [prefix] = &prefixes[..] else { panic!("{} prefixes", prefixes.len()) };
            assert!(prefix.tokens.starts_with(&prompt));
            let mut pages = HashMap::new();
            for pool in Pool::ALL {
                let found: Vec<_> = prefix.pages(from.as_ref(), pool).collect();
                for (number, page) in found {
                    let layout = *from.schedule().kv.pool(pool);
                    let mut bytes = vec![0; layout.page_bytes as usize];
                    from.read_page(pool, page, &mut bytes).unwrap();
                    assert!(bytes.iter().any(|byte| *byte != 0));
                    layout.clear_behind(&mut bytes, prefix.tokens.len() - number * PAGE);
                    pages.insert((pool, number), bytes);
                }
            }
            let tokens = prefix.tokens.to_vec();
            // Its pages are others than there.
            reply(to.as_mut(), &mut other, random(1, 70));
            let mut read = |pool: Pool, number: usize, bytes: &mut [u8]| -> kiln::Result<()> {
                bytes.copy_from_slice(&pages[&(pool, number)]);
                Ok(())
            };
            assert!(other.restore(to.as_mut(), &tokens, &mut read).unwrap());
            let question = [&tokens[..], &random(2, 20)].concat();
            let there = reply(from.as_mut(), &mut batch, question.clone());
            assert_eq!(there.1, tokens.len());
            assert_eq!(reply(to.as_mut(), &mut other, question), there, "{device:?}, {kv:?}, {length} tokens");
            to.pages().check();
            batch.forget(from.as_mut());
            other.forget(to.as_mut());
        }
    }
}
