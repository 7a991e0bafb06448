//! Many sequences that join, leave, end and share prefixes between passes: each one's greedy reply is that of its own run
//! alone. On the CPU it is the same token for token. On Vulkan it is wherever the margin of a choice leaves no doubt,
//! since passes of other kinds add in another order.

mod common;

use common::{Random, golden, load, rms};
use kiln::engine::{Device, Options};
use kiln::executor::Executor;
use kiln::schedule::KvType;
use kiln::sequence::session::Session;
use kiln::sequence::{Batch, Chooser, Ended, Finish, Request};
use std::ops::ControlFlow;

const SLOTS: usize = 8;
const CONTEXT: usize = 4096;
const VOCAB: usize = 512;

fn options(device: Device, kv: KvType, sequences: usize) -> Options {
    let context = Some(CONTEXT);
    Options { device, kv, sequences, head_rows: sequences, context, chunk: Some(64), ..Options::default() }
}

/// Sequences as a server would have them.
struct Traffic {
    random: Random,
    /// Most tokens of a prompt.
    longest: usize,
    /// Prompts that others may begin with.
    seen: Vec<Vec<u32>>,
}

impl Traffic {
    /// A prompt of 10 tokens or more. One in three begins as an earlier one.
    fn prompt(&mut self) -> Vec<u32> {
        let random = &mut self.random;
        // Most are short.
        let length = 10 + random.below(1 + random.0 as usize % self.longest.saturating_sub(10));
        let mut prompt = match random.below(3) {
            0 if !self.seen.is_empty() => {
                let earlier = &self.seen[random.below(self.seen.len())];
                earlier[..random.below(earlier.len()).min(length)].to_vec()
            }
            _ => Vec::new(),
        };
        while prompt.len() < length {
            prompt.push(random.below(VOCAB) as u32);
        }
        self.seen.push(prompt.clone());
        prompt
    }

    fn request(&mut self) -> Request {
        let limit = self.random.below(30);
        Request {
            prompt: self.prompt(),
            chooser: Chooser::Greedy,
            stops: (0..VOCAB as u32).step_by(24).collect(),
            limit,
        }
    }
}

/// A reply with its prompt.
struct Answered {
    request: Request,
    tokens: Vec<u32>,
    finish: Finish,
}

/// Runs `passes` passes with sequences that come and go, then those that are left to their end.
fn run(executor: &mut dyn Executor, traffic: &mut Traffic, passes: usize) -> Vec<Answered> {
    let mut batch = Batch::new(executor.schedule());
    let mut running: Vec<Option<Request>> = vec![None; SLOTS];
    let mut answered = Vec::new();
    let mut pass = 0;
    while pass < passes || !batch.is_empty() {
        let mut ended: Vec<Ended> = Vec::new();
        if pass < passes && batch.room() > 0 && (batch.is_empty() || traffic.random.below(4) == 0) {
            let request = traffic.request();
            let slot = batch.join(executor.schedule(), request.clone()).unwrap();
            assert!(running[slot].replace(request).is_none(), "two sequences in slot {slot}");
        }
        if traffic.random.below(40) == 0 {
            ended.extend(batch.leave(executor.schedule(), traffic.random.below(SLOTS)));
        }
        // Some end by what the caller sees in them.
        let on_token = &mut |_, token| match token {
            9 => ControlFlow::Break(Finish::Stop),
            _ => ControlFlow::Continue(()),
        };
        batch.step(executor, on_token).unwrap();
        ended.extend(std::iter::from_fn(|| batch.take_ended()));
        for ended in ended {
            let request = running[ended.slot].take().expect("a sequence that did not join");
            let reply = ended.reply.unwrap();
            answered.push(Answered { request, tokens: reply.tokens, finish: reply.finish });
        }
        pass += 1;
    }
    assert!(running.iter().all(Option::is_none), "a sequence that never ended");
    answered
}

/// Compares a reply with its prompt's run alone. A choice may be off by what `tolerance` makes of the logits.
fn check(executor: &mut dyn Executor, answered: &Answered, tolerance: &impl Fn(&[f32]) -> f32) {
    let Answered { request, tokens, finish } = answered;
    let mut session = Session::new(0, CONTEXT);
    session.prefill(executor, &request.prompt).unwrap();
    // The token after the last one ended the reply if it is a stop token.
    let is_stop = |token| request.stops.contains(&token);
    for (i, &token) in tokens.iter().enumerate() {
        let logits = executor.logits(0).unwrap();
        let best = logits.iter().fold(f32::NEG_INFINITY, |a, &b| a.max(b));
        let behind = best - logits[token as usize];
        assert!(behind <= tolerance(logits), "token {i} of {}: {behind} behind the best", tokens.len());
        assert!(!is_stop(token));
        session.decode(executor, token).unwrap();
    }
    let last = tokens.last().copied();
    match finish {
        Finish::Length => assert_eq!(tokens.len(), request.limit),
        Finish::Stop if last == Some(9) => {}
        Finish::Stop => {
            let logits = executor.logits(0).unwrap();
            let best = logits.iter().fold(f32::NEG_INFINITY, |a, &b| a.max(b));
            let stop = request.stops.iter().map(|&t| logits[t as usize]).fold(f32::NEG_INFINITY, f32::max);
            assert!(best - stop <= tolerance(logits), "it ended, and no stop token was the best");
        }
        Finish::Interrupted => {}
    }
}

fn check_traffic(device: Device, kv: KvType, longest: usize, passes: usize, tolerance: impl Fn(&[f32]) -> f32) {
    let mut executor = load(&golden("tiny"), options(device, kv, SLOTS));
    let mut traffic = Traffic { random: Random(2026), longest, seen: Vec::new() };
    let answered = run(executor.as_mut(), &mut traffic, passes);
    drop(executor);
    let mut alone = load(&golden("tiny"), options(device, kv, 1));
    answered.iter().for_each(|answered| check(alone.as_mut(), answered, &tolerance));
    let count = |finish| answered.iter().filter(|a| a.finish == finish).count();
    let (stopped, full, left) = (count(Finish::Stop), count(Finish::Length), count(Finish::Interrupted));
    println!("{passes} passes: {stopped} replies stopped, {full} at their limit, {left} left early");
    assert!(stopped > 0 && full > 0 && left > 0, "all three must come up");
}

#[test]
fn sequences_that_come_and_go_reply_on_the_cpu_as_alone() {
    check_traffic(Device::Cpu, KvType::F32, 200, 500, |_| 0.0);
}

#[test]
fn sequences_that_come_and_go_reply_on_vulkan_as_alone() {
    check_traffic(common::vulkan(), KvType::F32, 150, 200, |_| 6e-4);
    check_traffic(common::vulkan(), KvType::F16, 150, 150, |logits| 8.0 * 0.015 * rms(logits));
}

#[test]
#[ignore = "minutes long: tools/test --full runs it"]
fn ten_thousand_passes_of_long_and_short_sequences_reply_as_alone() {
    check_traffic(Device::Cpu, KvType::F32, 3000, 10_000, |_| 0.0);
    check_traffic(common::vulkan(), KvType::F32, 3000, 2_000, |_| 6e-4);
}
