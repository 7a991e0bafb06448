//! Drafts, right, wrong and right in part, over many rounds: replies, sampled ones too, are those of plain decoding, and
//! afterwards the cache holds what it would hold if no wrong token had ever been in a pass. On the CPU that is so to the bit.
//! On Vulkan it is so wherever the margin of a choice leaves no doubt, since passes of other kinds add in another order.

use crate::common::{self, AUTO, F32, Mixed, Random, forced, golden, load, max_abs, rms};
use kiln::engine::{Device, Options};
use kiln::executor::Measure;
use kiln::schedule::KvType;
use kiln::schedule::kv::PAGE;
use kiln::sequence::draft::MOST_DRAFTED;
use kiln::sequence::{Batch, Chooser, Finish, Generation, SequenceRequest};
use kiln::testing::generate;
use kiln::text::{SamplerConfig, TokenSet};
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};

const CONTEXT: usize = 3 * PAGE + 17;
const SLOTS: usize = 3;

/// With a KV cache of f32, products are in f32 as well: matrix units would round their inputs to f16.
fn options(device: Device, kv: KvType, drafted: usize) -> Options {
    let sequences = if drafted > 0 { SLOTS } else { 1 };
    let kv_tokens = (drafted > 0).then_some(CONTEXT + PAGE);
    let context = Some(CONTEXT);
    Options {
        device,
        kv,
        sequences,
        head_rows: sequences,
        drafted,
        context,
        kv_tokens,
        chunk: Some(64),
        vulkan: forced(if kv == KvType::F32 { F32 } else { AUTO }),
        ..Options::default()
    }
}

/// What came up.
#[derive(Debug, Default)]
struct Seen {
    drafts: usize,
    accepted: usize,
    rejected: usize,
    full: usize,
    stopped: usize,
    kept: usize,
    /// Passes whose rows lie in two pages.
    across: usize,
}

fn go_on(_: u32) -> ControlFlow<Finish> {
    ControlFlow::Continue(())
}

fn chooser(config: &SamplerConfig, vocab: usize, round: usize) -> Chooser {
    let mut chooser = Chooser::new(config.clone(), vocab).unwrap();
    // Now and then only some tokens are allowed.
    if round % 5 == 4 {
        let mut allowed = TokenSet::new(vocab);
        (0..vocab as u32).filter(|id| id % 3 != round as u32 % 3).for_each(|id| allowed.insert(id));
        chooser.allow(allowed).unwrap();
    }
    chooser
}

/// The logits behind `tokens`.
fn logits_behind(executor: &mut dyn Measure, batch: &mut Batch, tokens: &[u32], reuse: bool) -> (Vec<f32>, usize) {
    let request =
        SequenceRequest { prompt: tokens.to_vec(), chooser: Chooser::Greedy, stops: Vec::new(), limit: 1, reuse };
    let (g, _) = generate(executor, batch, request, &mut go_on).unwrap();
    (executor.logits(0).unwrap().to_vec(), g.kept)
}

/// How far behind the best token each of a reply's tokens is in a run alone, at most; `tolerance` gives what the logits
/// allow.
fn check_choices(alone: &mut dyn Measure, prompt: &[u32], g: &Generation, tolerance: &impl Fn(&[f32]) -> f32) {
    let mut batch = Batch::new(alone.schedule());
    for (i, &token) in g.tokens.iter().enumerate() {
        let before = [prompt, &g.tokens[..i]].concat();
        let (logits, _) = logits_behind(alone, &mut batch, &before, true);
        let best = logits.iter().fold(f32::NEG_INFINITY, |a, &b| a.max(b));
        let behind = best - logits[token as usize];
        assert!(behind <= tolerance(&logits), "token {i} of {}: {behind} behind the best", g.tokens.len());
    }
}

/// Replies until `rounds` drafts were verified. `tolerance`: 0 where replies are the same to the bit.
fn check(name: &str, device: Device, kv: KvType, rounds: usize, tolerance: impl Fn(&[f32]) -> f32) -> Seen {
    let mut executor = load(&golden(name), options(device, kv, MOST_DRAFTED));
    let mut alone = load(&golden(name), options(device, kv, 0));
    let vocab = executor.schedule().shape.vocab;
    let mut batch = Batch::new(executor.schedule());
    let mut plain = Batch::new(alone.schedule());
    let known = Arc::new(Mutex::new(vec![Vec::new(); SLOTS]));
    batch.speculate(MOST_DRAFTED, false, Box::new(Mixed::new(&known, 1, vocab)));
    let exact = device == Device::Cpu;
    let configs = [
        SamplerConfig::greedy(),
        SamplerConfig { temperature: 1.3, ..SamplerConfig::default() },
        SamplerConfig { repeat_penalty: 1.3, ..SamplerConfig::greedy() },
        SamplerConfig { top_k: 0, top_p: 0.8, presence_penalty: 0.4, ..SamplerConfig::default() },
        SamplerConfig { top_k: 0, top_p: 1.0, frequency_penalty: 0.3, ..SamplerConfig::default() },
        SamplerConfig { bias: vec![(7, 2.0)], min_p: 0.02, top_k: 30, ..SamplerConfig::default() },
    ];
    let mut random = Random(2026);
    let (mut seen, mut earlier) = (Seen::default(), Vec::new());
    let mut round = 0;
    while seen.drafts < rounds {
        round += 1;
        // One in three goes on behind an earlier reply, or begins as that did.
        let mut prompt: Vec<u32> = match random.below(3) {
            0 => earlier[..random.below(earlier.len() + 1)].to_vec(),
            _ => Vec::new(),
        };
        let length = prompt.len().min(CONTEXT - 2) + 1 + random.below(60);
        prompt.truncate(length.min(CONTEXT) - 1);
        while prompt.len() < length.min(CONTEXT) {
            prompt.push(random.below(vocab) as u32);
        }
        let limit = if random.below(3) == 0 { usize::MAX } else { random.below(40) };
        let seed = Some(round as u64);
        // Where rounding may change a draw, only the likeliest token can be checked.
        let config = if exact { configs[round % configs.len()].clone() } else { SamplerConfig::greedy() };
        let config = SamplerConfig { seed, ..config };
        let stops: Vec<u32> = if random.below(2) == 0 { (0..vocab as u32).step_by(31).collect() } else { Vec::new() };
        let ask = |reuse| SequenceRequest {
            prompt: prompt.clone(),
            chooser: chooser(&config, vocab, if exact { round } else { 0 }),
            stops: stops.clone(),
            limit,
            reuse,
        };
        let (want, _) = generate(alone.as_mut(), &mut plain, ask(true), &mut go_on).unwrap();
        let slot = batch.join(executor.as_mut(), ask(true)).unwrap();
        known.lock().unwrap()[slot] = [&prompt[..], &want.tokens].concat();
        let mut ended = None;
        while ended.is_none() {
            batch.step(executor.as_mut(), &mut |_, _, _| ControlFlow::Continue(())).unwrap();
            executor.pages().check();
            if let Some(kiln::schedule::PassShape::Verify { rows, depth, .. }) = batch.last_pass() {
                seen.drafts += 1;
                seen.across += usize::from(depth / PAGE != (depth + rows - 1) / PAGE);
            }
            ended = batch.take_ended();
        }
        let ended = ended.unwrap();
        assert_eq!(ended.slot, slot);
        let g = ended.reply.unwrap();
        seen.accepted += g.accepted;
        seen.rejected += g.drafted - g.accepted;
        seen.full += usize::from(g.full);
        seen.stopped += usize::from(g.finish == Finish::Stop);
        seen.kept += usize::from(g.kept >= PAGE);
        if exact {
            assert_eq!((&g.tokens, g.finish, g.full), (&want.tokens, want.finish, want.full), "{name}, round {round}");
        } else {
            check_choices(alone.as_mut(), &prompt, &g, &tolerance);
            plain = Batch::new(alone.schedule());
            alone.pages_mut().truncate(0, 0);
        }
        // What goes on behind the reply sees keys and values of no other tokens than the reply's.
        let mut whole = [&prompt[..], &g.tokens].concat();
        whole.truncate(CONTEXT - 1);
        whole.push(random.below(vocab) as u32);
        let (got, kept) = logits_behind(executor.as_mut(), &mut batch, &whole, true);
        let (want, none) = logits_behind(alone.as_mut(), &mut plain, &whole, false);
        assert!(none == 0 && kept + 3 >= whole.len(), "{kept} of {}", whole.len());
        match exact {
            true => assert!(got == want, "{name}, round {round}: other logits behind the reply"),
            false => assert!(max_abs(&got, &want) <= tolerance(&want), "{name}, round {round}"),
        }
        executor.pages().check();
        earlier = whole;
    }
    println!("{name} on {device:?}, {kv:?}: {round} replies, {seen:?}");
    assert!(seen.accepted > rounds / 2 && seen.rejected > rounds / 2, "{seen:?}");
    assert!(seen.full > 0 && seen.across > 0, "{seen:?}");
    seen
}

/// Replies of sequences that decode together, join and leave, until `rounds` passes have verified drafts of several. The pool
/// has pages for little more than one of them.
fn check_together(name: &str, device: Device, kv: KvType, rounds: usize, tolerance: impl Fn(&[f32]) -> f32) {
    let mut executor = load(&golden(name), options(device, kv, MOST_DRAFTED));
    let mut alone = load(&golden(name), options(device, kv, 0));
    let vocab = executor.schedule().shape.vocab;
    let mut batch = Batch::new(executor.schedule());
    let mut plain = Batch::new(alone.schedule());
    let known = Arc::new(Mutex::new(vec![Vec::new(); SLOTS]));
    batch.speculate(MOST_DRAFTED, false, Box::new(Mixed::new(&known, 1, vocab)));
    let mut random = Random(77);
    let mut wanted: [Option<(Vec<u32>, Generation)>; SLOTS] = Default::default();
    let (mut replies, mut together, mut accepted, mut rejected, mut joined) = (0, 0, 0, 0, 0);
    while together < rounds || !batch.is_empty() {
        while together < rounds && batch.room() > 0 && (batch.is_empty() || random.below(3) == 0) {
            joined += 1;
            let prompt: Vec<u32> = (0..1 + random.below(70)).map(|_| random.below(vocab) as u32).collect();
            let limit = if random.below(9) == 0 { usize::MAX } else { random.below(50) };
            // Where rounding may change a draw, only the likeliest token can be checked.
            let config = match device == Device::Cpu && joined % 2 == 0 {
                true => SamplerConfig { temperature: 1.3, seed: Some(joined), ..SamplerConfig::default() },
                false => SamplerConfig::greedy(),
            };
            let ask = || SequenceRequest {
                prompt: prompt.clone(),
                chooser: Chooser::new(config.clone(), vocab).unwrap(),
                stops: Vec::new(),
                limit,
                reuse: true,
            };
            let (want, _) = generate(alone.as_mut(), &mut plain, ask(), &mut go_on).unwrap();
            let slot = batch.join(executor.as_mut(), ask()).unwrap();
            known.lock().unwrap()[slot] = [&prompt[..], &want.tokens].concat();
            wanted[slot] = Some((prompt, want));
        }
        batch.step(executor.as_mut(), &mut |_, _, _| ControlFlow::Continue(())).unwrap();
        executor.pages().check();
        if let Some(kiln::schedule::PassShape::Verify { sequences, rows, .. }) = batch.last_pass() {
            together += usize::from(sequences > 1 && rows > sequences);
        }
        while let Some(ended) = batch.take_ended() {
            let ((prompt, want), g) = (wanted[ended.slot].take().unwrap(), ended.reply.unwrap());
            (replies, accepted, rejected) = (replies + 1, accepted + g.accepted, rejected + g.drafted - g.accepted);
            if device == Device::Cpu {
                assert_eq!((&g.tokens, g.finish, g.full), (&want.tokens, want.finish, want.full), "{name}, {replies}");
            } else {
                check_choices(alone.as_mut(), &prompt, &g, &tolerance);
                plain = Batch::new(alone.schedule());
                alone.pages_mut().truncate(0, 0);
            }
        }
    }
    println!("{name} on {device:?}, {kv:?}: {replies} replies, {together} passes, {accepted} accepted, {rejected} not");
    assert!(accepted > rounds / 2 && rejected > rounds / 2, "{accepted} and {rejected}");
}

#[test]
fn drafts_of_several_sequences_change_no_bit_on_the_cpu() {
    check_together("tiny", Device::Cpu, KvType::F32, 300, |_| 0.0);
    check_together("wide_small", Device::Cpu, KvType::F32, 200, |_| 0.0);
}

#[test]
fn drafts_change_no_bit_on_the_cpu() {
    for (name, rounds) in [("tiny", 400), ("wide_small", 300)] {
        let seen = check(name, Device::Cpu, KvType::F32, rounds, |_| 0.0);
        assert!(seen.stopped > 0 && seen.kept > 0, "{seen:?}");
    }
}

#[test]
fn drafts_change_no_choice_on_vulkan() {
    check("tiny", common::vulkan(), KvType::F32, 40, |_| 6e-4);
    assert_eq!(kiln::testing::vulkan::device::instance::validation_messages(), 0);
}

#[test]
#[ignore = "minutes long: tools/test --full runs it"]
fn ten_thousand_drafts_change_no_bit_on_the_cpu() {
    check("tiny", Device::Cpu, KvType::F32, 10_000, |_| 0.0);
    check("wide_small", Device::Cpu, KvType::F32, 10_000, |_| 0.0);
    check_together("tiny", Device::Cpu, KvType::F32, 10_000, |_| 0.0);
}

#[test]
#[ignore = "minutes long: tools/test --full runs it"]
fn thousands_of_drafts_change_no_choice_on_vulkan() {
    let rounds = if common::open_gpu().caps.is_cpu() { 2_000 } else { 10_000 };
    check("tiny", common::vulkan(), KvType::F32, rounds, |_| 6e-4);
    check("wide_small", common::vulkan(), KvType::F16, rounds, |logits| 8.0 * 0.015 * rms(logits));
    check_together("tiny", common::vulkan(), KvType::F32, rounds / 4, |_| 6e-4);
    check_together("wide_small", common::vulkan(), KvType::F16, rounds / 4, |logits| 8.0 * 0.015 * rms(logits));
    assert_eq!(kiln::testing::vulkan::device::instance::validation_messages(), 0);
}
