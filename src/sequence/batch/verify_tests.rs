//! Drafts on an executor that only records its passes: the chosen tokens and the rows of passes.

use super::*;
use crate::executor::fake::{CHUNK, FakeExecutor, VOCAB};
use crate::schedule::kv::PAGE;
use crate::sequence::batch::SequenceRequest;
use crate::sequence::{Chooser, Finish, Generation};
use crate::testing::generate;
use crate::text::SamplerConfig;
use crate::text::testing::Random;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};

/// Drafts a known sequence, with some tokens replaced by wrong ones.
struct Knowing {
    whole: Arc<Mutex<Vec<u32>>>,
    random: Random,
    /// One of this many tokens is wrong; 0 for none.
    wrong: u32,
    drafts: Vec<Vec<u32>>,
}

impl Proposer for Knowing {
    fn begin(&mut self, _: usize) {}

    fn ask(&mut self, request: DraftRequest<'_>) -> crate::Result<()> {
        let DraftRequest { slot, tokens, most, .. } = request;
        let whole = self.whole.lock().unwrap();
        let known = whole.get(tokens.len()..).unwrap_or_default();
        let (random, exchanged) = (&mut self.random, self.wrong);
        let draft = (0..most).map(|i| {
            let wrong = exchanged > 0 && random.below(exchanged) == 0;
            let right = known.get(i).copied().unwrap_or(7);
            if wrong { (right + 1 + random.below(9)) % VOCAB as u32 } else { right }
        });
        self.drafts[slot] = draft.collect();
        Ok(())
    }

    fn copy_draft(&self, slot: usize, draft: &mut Vec<u32>) -> usize {
        draft.extend_from_slice(&self.drafts[slot]);
        0
    }
}

fn request(prompt: &[u32], chooser: Chooser, limit: usize) -> SequenceRequest {
    SequenceRequest { prompt: prompt.to_vec(), chooser, stops: Vec::new(), limit, reuse: true }
}

/// An executor, and a batch that drafts `whole` with one of `wrong` tokens replaced.
fn drafting(context: usize, kv_tokens: Option<usize>, wrong: u32) -> (FakeExecutor, Batch, Arc<Mutex<Vec<u32>>>) {
    let executor = FakeExecutor::of(context, kv_tokens);
    let mut batch = Batch::new(&executor.schedule);
    let whole = Arc::new(Mutex::new(Vec::new()));
    let drafts = vec![Vec::new(); batch.slots()];
    batch.speculate(7, false, Box::new(Knowing { whole: whole.clone(), random: Random(1), wrong, drafts }));
    (executor, batch, whole)
}

/// A reply, and the rows of each of its decode passes. Also checks the cache afterwards.
fn reply(executor: &mut FakeExecutor, batch: &mut Batch, request: SequenceRequest) -> (Generation, Vec<Vec<Row>>) {
    executor.passes.clear();
    let prompt = request.prompt.clone();
    let (g, _) = generate(executor, batch, request, &mut |_| ControlFlow::Continue(())).unwrap();
    executor.pages.check();
    let passes: Vec<Vec<Row>> = executor.passes.drain(..).map(|(rows, _)| rows).collect();
    let decoding = passes[passes.len() - g.passes..].to_vec();
    // The last write to each position that the sequence claims to hold.
    let whole = [&prompt[..], &g.tokens].concat();
    let is_its = |held: &&[u32]| whole.starts_with(held) && held.len() + 1 >= whole.len();
    let held = batch.slots.iter().map(|slot| slot.session.tokens()).find(is_its).unwrap();
    let written = passes.iter().flatten().fold(vec![None; whole.len() + 8], |mut written, row| {
        written[row.position as usize] = Some(row.token);
        written
    });
    for (at, token) in held.iter().enumerate().skip(g.kept) {
        assert_eq!(written[at], Some(*token), "position {at}");
    }
    (g, decoding)
}

#[test]
fn right_drafts_are_accepted_as_far_as_a_pass_and_the_limit_allow() {
    let (mut executor, mut batch, whole) = drafting(4 * PAGE, None, 0);
    *whole.lock().unwrap() = (1..100).map(|token| token % VOCAB as u32).collect();
    // A pass of this executor has logits of four rows.
    let (g, passes) = reply(&mut executor, &mut batch, request(&[1, 2, 3], Chooser::Greedy, 12));
    assert_eq!(g.tokens, (4..16).collect::<Vec<_>>());
    let rows: Vec<usize> = passes.iter().map(Vec::len).collect();
    assert_eq!(rows, [4, 4, 3], "the first token is the prompt's, and the last one needs no row");
    assert_eq!((g.passes, g.drafted, g.accepted, g.decoded(), g.finish), (3, 8, 8, 11, Finish::Length));
    assert_eq!(g.tokens_per_pass(), Some(11.0 / 3.0));
    assert_eq!(batch.last_pass(), Some(PassShape::Verify { sequences: 1, rows: 3, depth: 11 }));
    assert_eq!(batch.last_verified(), 3);
}

#[test]
fn wrong_drafts_cost_rows_and_nothing_else() {
    let (mut executor, mut batch, whole) = drafting(4 * PAGE, None, 1);
    *whole.lock().unwrap() = (1..100).collect();
    let (g, passes) = reply(&mut executor, &mut batch, request(&[1, 2, 3], Chooser::Greedy, 6));
    assert_eq!(g.tokens, (4..10).collect::<Vec<_>>());
    assert!(passes.iter().take(2).all(|rows| rows.len() == 4));
    assert_eq!((g.passes, g.accepted), (5, 0));
    // The rows of each pass begin after the accepted rows of the one before.
    let firsts: Vec<(u32, u32)> = passes.iter().map(|rows| (rows[0].position, rows[0].token)).collect();
    assert_eq!(firsts, (3..8).map(|at| (at, at + 1)).collect::<Vec<_>>());
}

/// Replies with drafts, right and wrong, equal those without: greedy, and sampled with equal seeds. Prompts and limits
/// make replies end at arbitrary places, across pages and at the end of the context.
#[test]
fn whatever_is_drafted_the_reply_is_the_same() {
    let context = 3 * PAGE;
    let mut random = Random(5);
    let configs = [
        SamplerConfig::greedy(),
        SamplerConfig::default(),
        SamplerConfig { top_k: 0, top_p: 1.0, ..SamplerConfig::default() },
        SamplerConfig { repeat_penalty: 1.4, presence_penalty: 0.5, ..SamplerConfig::default() },
        SamplerConfig { frequency_penalty: 1.0, ..SamplerConfig::greedy() },
    ];
    for (wrong, kv_tokens) in [(0, None), (1, None), (3, None), (4, Some(context))] {
        let (mut executor, mut batch, whole) = drafting(context, kv_tokens, wrong);
        let mut plain = FakeExecutor::of(context, None);
        let mut alone = Batch::new(&plain.schedule);
        let (mut accepted, mut rejected) = (0, 0);
        for round in 0..60u64 {
            let length = 1 + random.below(context as u32 - 1) as usize;
            let prompt: Vec<u32> = (0..length).map(|_| random.below(VOCAB as u32)).collect();
            let limit = if random.below(3) == 0 { usize::MAX } else { random.below(40) as usize };
            let config = SamplerConfig { seed: Some(round), ..configs[round as usize % configs.len()].clone() };
            let ask = || request(&prompt, Chooser::new(config.clone(), VOCAB).unwrap(), limit);
            let (want, _) = generate(&mut plain, &mut alone, ask(), &mut |_| ControlFlow::Continue(())).unwrap();
            *whole.lock().unwrap() = [&prompt[..], &want.tokens].concat();
            let (g, _) = reply(&mut executor, &mut batch, ask());
            assert_eq!((&g.tokens, g.finish, g.full), (&want.tokens, want.finish, want.full), "round {round}");
            // The last token needs no pass.
            assert_eq!(g.decoded(), want.passes, "round {round}");
            accepted += g.accepted;
            rejected += g.drafted - g.accepted;
        }
        assert_eq!((accepted > 0, rejected > 0), (wrong != 1, wrong != 0), "{wrong}: {accepted} and {rejected}");
    }
}

#[test]
fn a_reply_that_ends_within_a_draft_has_nothing_behind_its_end() {
    let (mut executor, mut batch, whole) = drafting(4 * PAGE, None, 0);
    *whole.lock().unwrap() = (1..60).collect();
    let stop = SequenceRequest { stops: vec![9], ..request(&[1, 2, 3], Chooser::Greedy, 40) };
    let (g, passes) = reply(&mut executor, &mut batch, stop);
    assert_eq!((g.tokens, g.finish), (vec![4, 5, 6, 7, 8], Finish::Stop));
    assert_eq!(passes.last().unwrap().len(), 4, "the draft went on behind the stop");
    assert_eq!(batch.slots[0].session.tokens(), [1, 2, 3, 4, 5, 6, 7, 8]);
    // A caller may end it, and the next prompt begins with the kept tokens.
    let mut count = 0;
    let (g, _) = generate(&mut executor, &mut batch, request(&[1, 2, 3], Chooser::Greedy, 40), &mut |_| {
        count += 1;
        if count == 3 { ControlFlow::Break(Finish::Stop) } else { ControlFlow::Continue(()) }
    })
    .unwrap();
    assert_eq!((g.kept, g.tokens), (2, vec![4, 5, 6]));
    assert_eq!(batch.shared(&executor, &[1, 2, 3, 4, 5, 6, 7, 8]), 5);
}

/// There are no drafts beside a prompt. Sequences that decode together share the head rows of a pass.
#[test]
fn sequences_that_decode_together_have_drafts_each() {
    let (mut executor, mut batch, whole) = drafting(4 * PAGE, None, 0);
    *whole.lock().unwrap() = (1..100).map(|token| token % VOCAB as u32).collect();
    let rows = |executor: &mut FakeExecutor, batch: &mut Batch| {
        executor.passes.clear();
        batch.step(executor, &mut |_, _, _| ControlFlow::Continue(())).unwrap();
        executor.pages.check();
        executor.passes[0].0.len()
    };
    batch.join(&mut executor, request(&[1, 2, 3], Chooser::Greedy, 60)).unwrap();
    assert_eq!([(); 3].map(|()| rows(&mut executor, &mut batch)), [3, 4, 4]);
    batch.join(&mut executor, request(&[40, 41], Chooser::Greedy, 3)).unwrap();
    // The prompt beside a row; both with a draft; the second with its last row; then the first alone.
    assert_eq!(rows(&mut executor, &mut batch), 3);
    assert_eq!(rows(&mut executor, &mut batch), 4);
    assert_eq!(batch.last_pass(), Some(PassShape::Verify { sequences: 2, rows: 4, depth: (12 + 2) / 2 }));
    assert_eq!(batch.last_verified(), 3, "the second one's draft is wrong");
    assert_eq!([(); 2].map(|()| rows(&mut executor, &mut batch)), [3, 4]);
    assert!(matches!(batch.last_pass(), Some(PassShape::Verify { sequences: 1, rows: 4, .. })));
}

/// A prefix in a free slot keeps its page until a sequence's own row needs it; a draft does not evict it.
#[test]
fn a_draft_is_cut_where_no_page_is_free() {
    let (mut executor, mut batch, whole) = drafting(2 * PAGE, Some(2 * PAGE), 0);
    reply(&mut executor, &mut batch, request(&[50; 5], Chooser::Greedy, 2));
    let prompt: Vec<u32> = (1..PAGE as u32 - 6).collect();
    *whole.lock().unwrap() = (1..2 * PAGE as u32).map(|token| token % VOCAB as u32).collect();
    let (g, passes) = reply(&mut executor, &mut batch, request(&prompt, Chooser::Greedy, 20));
    assert_eq!(g.tokens, (58..78).map(|token| token % VOCAB as u32).collect::<Vec<_>>());
    let rows: Vec<(u32, usize)> = passes.iter().map(|rows| (rows[0].position, rows.len())).collect();
    assert_eq!(rows, [(57, 4), (61, 3), (64, 4), (68, 4), (72, 4)]);
    assert_eq!(batch.shared(&executor, &[50; 9]), 0, "the other gave way to a row");
}

/// A report describes only the last choice of a pass.
#[test]
fn reported_choices_are_made_one_a_pass() {
    let (mut executor, mut batch, whole) = drafting(4 * PAGE, None, 0);
    *whole.lock().unwrap() = (1..60).collect();
    let (g, passes) = reply(&mut executor, &mut batch, request(&[1, 2], Chooser::Greedy.reporting(2), 9));
    assert_eq!((g.drafted, g.tokens.len()), (0, 9));
    assert!(passes.iter().all(|rows| rows.len() == 1));
}

/// A failed pass leaves no part of a draft.
#[test]
fn a_pass_that_fails_leaves_no_draft_behind() {
    let (mut executor, mut batch, whole) = drafting(4 * PAGE, None, 0);
    *whole.lock().unwrap() = (1..100).map(|token| token % VOCAB as u32).collect();
    batch.join(&mut executor, request(&[1, 2, 3], Chooser::Greedy, 40)).unwrap();
    let mut step = |executor: &mut FakeExecutor| batch.step(executor, &mut |_, _, _| ControlFlow::Continue(()));
    step(&mut executor).unwrap();
    executor.fails = true;
    assert_eq!(step(&mut executor).unwrap_err().exit_code(), 4);
    executor.fails = false;
    assert!(batch.is_empty());
    assert_eq!(batch.shared(&executor, &[1, 2, 3, 4, 5, 6, 7, 8]), 3, "nothing of the pass that failed");
    // A prompt of several chunks, the first without logits.
    let long: Vec<u32> = (20..20 + 2 * CHUNK as u32).collect();
    let (g, _) = reply(&mut executor, &mut batch, request(&long, Chooser::Greedy, 5));
    assert_eq!(g.tokens, (20 + 2 * CHUNK as u32..).take(5).collect::<Vec<_>>());
}
