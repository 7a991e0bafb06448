//! Batches on an executor that only records its passes.

use super::*;
use crate::executor::Row;
use crate::executor::fake::{CHUNK, CONTEXT, FakeExecutor, VOCAB};
use crate::model::shape::Experts;
use crate::schedule::kv::{PAGE, Pool};
use crate::sequence::meter::DecodeMeter;
use crate::testing::generate;
use crate::text::SamplerConfig;

/// A greedy request without stop tokens.
fn request(prompt: &[u32], limit: usize) -> SequenceRequest {
    SequenceRequest { prompt: prompt.to_vec(), chooser: Chooser::Greedy, stops: Vec::new(), limit, reuse: true }
}

fn go_on(_: usize, _: u32, _: &mut Chooser) -> ControlFlow<Finish> {
    ControlFlow::Continue(())
}

/// Runs until the batch is empty. Returns each slot's reply.
fn finish(batch: &mut Batch, executor: &mut FakeExecutor) -> Vec<(usize, Generation)> {
    let mut ended = Vec::new();
    while !batch.is_empty() {
        batch.step(executor, &mut go_on).unwrap();
        ended.extend(std::iter::from_fn(|| batch.take_ended()).map(|e| (e.slot, e.reply.unwrap())));
    }
    ended
}

/// Rows of each sequence in each pass, and whether the pass had a head.
fn passes(executor: &mut FakeExecutor) -> Vec<(Vec<u32>, bool)> {
    let passes = executor.passes.drain(..);
    passes.map(|(rows, head)| (rows.iter().map(|row| row.sequence).collect(), head.is_some())).collect()
}

/// A caller may end a prompt between its chunks, and a reply between its tokens.
#[test]
fn a_generation_that_is_cancelled_ends_there_and_the_prefix_stays() {
    let mut executor = FakeExecutor::new();
    let mut batch = Batch::new(&executor.schedule);
    let prompt: Vec<u32> = (0..13).collect();
    let mut reply = |after, prompt: &[u32], limit| {
        executor.passes.clear();
        executor.cancelled_after = after;
        let go_on = &mut |_| ControlFlow::Continue(());
        let (g, _) = generate(&mut executor, &mut batch, request(prompt, limit), go_on).unwrap();
        (g.kept, g.tokens.len(), g.finish, executor.passes.len(), batch.shared(&executor, &(0..40).collect::<Vec<_>>()))
    };
    assert_eq!(reply(usize::MAX, &prompt[..3], 0), (0, 0, Finish::Length, 1, 3));
    assert_eq!(reply(1, &prompt, 9), (3, 0, Finish::Interrupted, 1, 3));
    // Two chunks from position 3, of 8 rows and of 2. The first token needs no pass.
    assert_eq!(reply(4, &prompt, 9), (3, 3, Finish::Interrupted, 4, 15));
    assert_eq!(reply(usize::MAX, &prompt, 9), (12, 9, Finish::Length, 9, 21));
}

/// A batch in which slot 0 decodes after a prompt of two tokens. Its passes are not recorded.
fn decoding(executor: &mut FakeExecutor) -> Batch {
    let mut batch = Batch::new(&executor.schedule);
    batch.join(executor, request(&[1; 2], 40)).unwrap();
    batch.step(executor, &mut go_on).unwrap();
    executor.passes.clear();
    batch
}

/// The callback for a pass's tokens is called once during the next pass.
#[test]
fn the_host_works_while_the_device_does() {
    let mut executor = FakeExecutor::new();
    let mut batch = Batch::new(&executor.schedule);
    let calls = std::rc::Rc::new(std::cell::Cell::new(0));
    let noted = calls.clone();
    batch.set_meanwhile(move || noted.set(noted.get() + 1));
    let sampler = SamplerConfig { seed: Some(1), ..SamplerConfig::default() };
    for chooser in [Chooser::new(sampler, VOCAB).unwrap(), Chooser::Greedy] {
        calls.set(0);
        batch.join(&mut executor, SequenceRequest { chooser, ..request(&[1; 2], 5) }).unwrap();
        for pass in 1..=5 {
            batch.step(&mut executor, &mut go_on).unwrap();
            assert_eq!(calls.get(), pass);
        }
        assert!(batch.is_empty());
    }
}

/// The sequences of each pass's rows over `count` passes.
fn run(batch: &mut Batch, executor: &mut FakeExecutor, count: usize) -> Vec<Vec<u32>> {
    (0..count).for_each(|_| batch.step(executor, &mut go_on).unwrap());
    passes(executor).into_iter().map(|(sequences, _)| sequences).collect()
}

#[test]
fn a_pass_holds_a_chunk_of_one_prompt_and_a_row_of_each_that_decodes() {
    let mut executor = FakeExecutor::new();
    let mut batch = decoding(&mut executor);
    let long = batch.join(&mut executor, request(&[2; 2 * CHUNK], 20)).unwrap();
    let short = batch.join(&mut executor, request(&[3; CHUNK], 20)).unwrap();
    assert_eq!((long, short, batch.room()), (1, 2, 1));
    let mut step = || {
        batch.step(&mut executor, &mut go_on).unwrap();
        (passes(&mut executor).remove(0).0, batch.last_pass().unwrap())
    };
    let chunk = |slot: usize, rows: usize, others: &[u32]| [&vec![slot as u32; rows], others].concat();
    let mixed = |chunk, depth, ends, sequences, beside| PassShape::Mixed { chunk, depth, ends, sequences, beside };
    let most = CHUNK - 1;
    assert_eq!(step(), (chunk(long, most, &[0]), mixed(most, 0, false, 1, 2)));
    assert_eq!(step(), (chunk(short, most, &[0]), mixed(most, 0, false, 1, 3)));
    assert_eq!(step(), (chunk(long, most, &[0]), mixed(most, most, false, 1, 4)));
    // The rest of both is short and fits one pass, with their last rows after the others.
    assert_eq!(step(), (vec![1, 2, 1, 0], mixed(3, 2 * most, true, 1, 5)));
    assert_eq!(step(), (vec![0, 1, 2], PassShape::Decode { sequences: 3, depth: (6 + 2 * CHUNK + CHUNK) / 3 }));
    // Each sequence has the replies of its own rows.
    let replies = [1, 2, 3].map(|first: u32| (first + 1..).take(20).collect::<Vec<u32>>());
    for (slot, reply) in finish(&mut batch, &mut executor) {
        assert_eq!(reply.tokens[..20], replies[slot], "slot {slot}");
    }
}

/// Short prompts run together, within the limits of a pass, of prompt rows and of pages; the next in turn is always
/// included.
#[test]
fn short_prompts_share_a_pass() {
    let mut executor = FakeExecutor::new();
    let mut batch = decoding(&mut executor);
    let join = |batch: &mut Batch, executor: &mut FakeExecutor, lengths: [usize; 3]| {
        lengths
            .map(|n| batch.join(executor, SequenceRequest { reuse: false, ..request(&vec![n as u32; n], 20) }).unwrap())
    };
    join(&mut batch, &mut executor, [2, 3, 1]);
    // All prompts' first rows, the last row of each, and the decoding row.
    assert_eq!(run(&mut batch, &mut executor, 2), [vec![1, 2, 2, 1, 2, 3, 0], vec![0, 1, 2, 3]]);
    (1..4).for_each(|slot| drop(batch.leave(&mut executor, slot)));
    // Three do not fit in a pass beside the decoding row, so the last one waits.
    join(&mut batch, &mut executor, [3, 3, 3]);
    assert_eq!(run(&mut batch, &mut executor, 2), [vec![1, 1, 2, 2, 1, 2, 0], vec![3, 3, 3, 0, 1, 2]]);
    (1..4).for_each(|slot| drop(batch.leave(&mut executor, slot)));
    // Two do not fit in a limit of five rows.
    batch.set_chunk(5);
    join(&mut batch, &mut executor, [3, 3, 3]);
    assert_eq!(run(&mut batch, &mut executor, 1), [vec![1, 1, 1, 0]]);
}

#[test]
fn a_chunk_beside_decoding_rows_is_bounded_and_one_alone_is_not() {
    let mut executor = FakeExecutor::new();
    let mut batch = decoding(&mut executor);
    batch.set_chunk(3);
    batch.join(&mut executor, request(&[2; CHUNK], 20)).unwrap();
    assert_eq!(run(&mut batch, &mut executor, 4), [vec![1, 1, 1, 0], vec![1, 1, 1, 0], vec![1, 1, 0], vec![0, 1]]);
    for slot in [0, 1] {
        batch.leave(&mut executor, slot);
    }
    batch.join(&mut executor, request(&[5; CHUNK], 20)).unwrap();
    assert_eq!(run(&mut batch, &mut executor, 1)[0].len(), CHUNK);
}

/// An executor may ask for fewer prompt rows, but only beside decoding rows.
#[test]
fn the_executor_says_how_many_rows_fill_a_pass() {
    let mut executor = FakeExecutor::new();
    executor.chunk_rows = |most, beside| most.min(4 - beside);
    let mut batch = decoding(&mut executor);
    batch.join(&mut executor, request(&[2; CHUNK - 2], 20)).unwrap();
    assert_eq!(run(&mut batch, &mut executor, 3), [vec![1, 1, 1, 0], vec![1, 1, 1, 0], vec![0, 1]]);
    batch.leave(&mut executor, 0);
    batch.leave(&mut executor, 1);
    batch.join(&mut executor, request(&[5; CHUNK], 20)).unwrap();
    assert_eq!(run(&mut batch, &mut executor, 1)[0].len(), CHUNK);
}

/// Decoding rows may leave hardly any rows to a prompt.
#[test]
fn where_half_of_a_pass_decodes_prompts_take_turns_with_it() {
    let mut executor = FakeExecutor::new();
    let mut batch = decoding(&mut executor);
    batch.join(&mut executor, request(&[2], 20)).unwrap();
    assert_eq!(run(&mut batch, &mut executor, 2), [vec![1, 0], vec![0, 1]]);
    executor.prefill_rows = Box::new(|_| 3);
    batch.join(&mut executor, request(&[3; 7], 20)).unwrap();
    assert_eq!(
        run(&mut batch, &mut executor, 6),
        [vec![2; 3], vec![0, 1], vec![2; 3], vec![0, 1], vec![2], vec![0, 1, 2]]
    );
}

#[test]
fn each_ends_for_itself_and_the_others_go_on() {
    let mut executor = FakeExecutor::new();
    let mut batch = Batch::new(&executor.schedule);
    let mut join = |request| batch.join(&mut executor, request).unwrap();
    let stopped = join(SequenceRequest { stops: vec![14], ..request(&[10], 9) });
    let limited = join(request(&[20], 3));
    let broken = join(request(&[30], 9));
    let left = join(request(&[40], 9));
    let (mut ended, mut of_the_last) = (Vec::new(), 0);
    while of_the_last < 4 {
        let on_token = &mut |slot, token, _: &mut Chooser| {
            of_the_last += usize::from(slot == left);
            match (slot, token) {
                (2, 32) => ControlFlow::Break(Finish::Stop),
                _ => ControlFlow::Continue(()),
            }
        };
        batch.step(&mut executor, on_token).unwrap();
        ended.extend(std::iter::from_fn(|| batch.take_ended()));
    }
    ended.extend(batch.leave(&mut executor, left));
    assert!(batch.leave(&mut executor, left).is_none() && batch.is_empty());
    let mut replies: Vec<_> = ended.into_iter().map(|e| (e.slot, e.reply.unwrap())).collect();
    replies.sort_by_key(|(slot, _)| *slot);
    let brief: Vec<_> = replies.iter().map(|(slot, g)| (*slot, &g.tokens[..], g.finish, g.full)).collect();
    assert_eq!(
        brief,
        [
            (stopped, &[11, 12, 13][..], Finish::Stop, false),
            (limited, &[21, 22, 23][..], Finish::Length, false),
            (broken, &[31, 32][..], Finish::Stop, false),
            (left, &[41, 42, 43, 44][..], Finish::Interrupted, false),
        ]
    );
}

/// If a sequence ends or joins while the next pass runs, the others use that pass's results.
#[test]
fn a_pass_that_runs_ahead_serves_those_who_stay() {
    let mut executor = FakeExecutor::new();
    executor.runs_ahead = true;
    let mut batch = Batch::new(&executor.schedule);
    let join = |executor: &mut FakeExecutor, batch: &mut Batch, request| batch.join(executor, request).unwrap();
    let stays = join(&mut executor, &mut batch, request(&[10], 20));
    let stops = join(&mut executor, &mut batch, SequenceRequest { stops: vec![25], ..request(&[20], 20) });
    let leaves = join(&mut executor, &mut batch, request(&[30], 20));
    let mut meter = DecodeMeter::default();
    let (mut passes, mut ended) = (0, Vec::new());
    let mut step = |executor: &mut FakeExecutor, batch: &mut Batch| {
        batch.step(executor, &mut go_on).unwrap();
        passes += 1;
        meter.add(batch, executor, std::time::Duration::from_secs(1));
        executor.pages().check();
        ended.extend(std::iter::from_fn(|| batch.take_ended()).map(|e| (e.slot, e.reply.unwrap().tokens)));
    };
    // A pass with the three prompts, the first pass of all three, and one that runs ahead.
    (0..2).for_each(|_| step(&mut executor, &mut batch));
    assert!(executor.is_ahead());
    // One stops while the next pass runs, and its slot is reused at once.
    (0..3).for_each(|_| step(&mut executor, &mut batch));
    assert!(executor.is_ahead() && batch.room() == 2);
    let comes = join(&mut executor, &mut batch, request(&[40, 41], 20));
    assert_ne!(comes, stays);
    step(&mut executor, &mut batch);
    assert!(!executor.is_ahead());
    assert_eq!(batch.last_pass(), Some(PassShape::Decode { sequences: 2, depth: 5 }));
    // The new sequence is in the next pass. Then three run ahead again, one leaves, and another one joins.
    (0..3).for_each(|_| step(&mut executor, &mut batch));
    assert!(executor.is_ahead());
    let left = batch.leave(&mut executor, leaves).unwrap().reply.unwrap();
    let last = join(&mut executor, &mut batch, request(&[50], 20));
    while !batch.is_empty() {
        step(&mut executor, &mut batch);
    }
    assert_eq!(left.tokens, (31..40).collect::<Vec<u32>>());
    ended.sort();
    let reply = |first: u32| (first..first + 20).map(|token| token % VOCAB as u32).collect::<Vec<u32>>();
    let mut want = [(stays, reply(11)), (stops, (21..25).collect()), (comes, reply(42)), (last, reply(51))];
    want.sort();
    assert_eq!(ended, want);
    assert_eq!((executor.discarded, executor.passes.len()), (0, passes));
    // All tokens but the first, which comes from the prompt's pass. Stale rows do not count; the pass in which a
    // sequence stops counts for it.
    let tokens = 3 * 19 + 4 + 8;
    assert_eq!(meter.tokens, tokens);
}

/// The share of experts is that of the distinct ones of a pass, over all passes without prompts.
#[test]
fn the_share_of_experts_counts_each_expert_of_a_pass_once() {
    let mut executor = FakeExecutor::new();
    executor.schedule.shape.experts = Some(Experts { count: 8, used: 2, ffn: 32 });
    let mut batch = Batch::new(&executor.schedule);
    for prompt in [[1], [2], [3]] {
        batch.join(&mut executor, request(&prompt, 3)).unwrap();
    }
    let mut meter = DecodeMeter::default();
    for (experts, share) in
        [([[0, 1]; 3], None), ([[7, 2], [2, 0], [0, 7]], Some(3.0 / 8.0)), ([[0, 1]; 3], Some(5.0 / 16.0))]
    {
        executor.experts = experts.to_vec();
        batch.step(&mut executor, &mut go_on).unwrap();
        meter.add(&batch, &executor, std::time::Duration::from_secs(1));
        assert_eq!(meter.experts_share(), share);
    }
}

/// A batch whose only sequence has stopped while the next pass runs.
fn stopped_ahead() -> (FakeExecutor, Batch) {
    let mut executor = FakeExecutor::new();
    executor.runs_ahead = true;
    let mut batch = Batch::new(&executor.schedule);
    batch.join(&mut executor, SequenceRequest { stops: vec![15], ..request(&[10], 20) }).unwrap();
    assert_eq!(finish(&mut batch, &mut executor)[0].1.tokens, [11, 12, 13, 14]);
    assert!(executor.is_ahead());
    (executor, batch)
}

/// A pass that runs ahead without a remaining sequence is waited for, and a new sequence gets the result of a lone run.
#[test]
fn a_pass_that_runs_ahead_for_no_sequence_gives_no_token() {
    let (mut executor, mut batch) = stopped_ahead();
    batch.join(&mut executor, request(&[10, 11, 12, 30], 3)).unwrap();
    let (_, reply) = &finish(&mut batch, &mut executor)[0];
    assert_eq!((&reply.tokens[..], reply.kept, executor.discarded), (&[31, 32, 33][..], 3, 0));
}

/// A pass that is cancelled before it begins leaves no rows in the plan, whatever was in flight.
#[test]
fn a_cancelled_pass_leaves_no_rows_in_the_plan() {
    let (mut executor, mut batch) = stopped_ahead();
    executor.cancelled_after = executor.passes.len();
    for prompt in [[20, 21], [30, 31]] {
        batch.join(&mut executor, request(&prompt, 3)).unwrap();
    }
    let replies = finish(&mut batch, &mut executor);
    assert_eq!(replies.iter().map(|(_, reply)| reply.finish).collect::<Vec<_>>(), [Finish::Interrupted; 2]);
    assert_eq!(batch.last_pass(), None, "no pass has run");
    executor.cancelled_after = usize::MAX;
    batch.join(&mut executor, request(&[40], 3)).unwrap();
    assert_eq!(finish(&mut batch, &mut executor)[0].1.tokens, [41, 42, 43]);
}

#[test]
fn a_request_takes_the_slot_that_holds_its_prefix() {
    let mut executor = FakeExecutor::new();
    let mut batch = Batch::new(&executor.schedule);
    for first in [1, 2, 3] {
        batch.join(&mut executor, request(&[first; 6], 0)).unwrap();
    }
    finish(&mut batch, &mut executor);
    assert_eq!(batch.join(&mut executor, request(&[2, 2, 2, 9], 0)).unwrap(), 1);
    // No slot has a prefix of it, so it gets the empty slot.
    assert_eq!(batch.join(&mut executor, request(&[8], 0)).unwrap(), 3);
    let mut kept: Vec<_> = finish(&mut batch, &mut executor).into_iter().map(|(slot, g)| (slot, g.kept)).collect();
    kept.sort_unstable();
    assert_eq!(kept, [(1, 3), (3, 0)]);
}

/// The penalty counts all prompt tokens, cached or not.
#[test]
fn a_penalty_counts_the_whole_prompt_once() {
    let mut executor = FakeExecutor::new();
    let mut batch = Batch::new(&executor.schedule);
    let config = SamplerConfig { repeat_penalty: 2.0, ..SamplerConfig::greedy() };
    let mut chooser = Chooser::new(config, VOCAB).unwrap();
    for (prompt, reply) in [(&[0, 1, 2, 3][..], [4, 5]), (&[0, 1, 2, 4], [3, 5]), (&[9, 1], [0, 2])] {
        let request = SequenceRequest { chooser, ..request(prompt, 2) };
        let (done, of_done) = generate(&mut executor, &mut batch, request, &mut |_| ControlFlow::Continue(())).unwrap();
        assert_eq!(done.tokens, reply, "the lowest ids that are not in {prompt:?}");
        chooser = of_done;
    }
}

#[test]
fn who_cannot_join_changes_nothing() {
    let mut executor = FakeExecutor::new();
    let mut batch = Batch::new(&executor.schedule);
    let mut refused = |prompt: &[u32]| batch.join(&mut executor, request(prompt, 1)).unwrap_err().exit_code();
    assert_eq!((refused(&[]), refused(&[64]), refused(&[2; CONTEXT + 1])), (2, 2, 2));
    for _ in 0..4 {
        batch.join(&mut executor, request(&[1], 1)).unwrap();
    }
    let e = batch.join(&mut executor, request(&[1], 1)).unwrap_err();
    assert!(e.exit_code() == 3 && e.to_string().contains("all 4 sequences"), "{e}");
}

/// A full context ends a reply: its last token needs no position.
#[test]
fn a_full_context_ends_a_reply() {
    let mut executor = FakeExecutor::new();
    let mut batch = Batch::new(&executor.schedule);
    batch.join(&mut executor, request(&[1; CONTEXT - 2], 99)).unwrap();
    let (_, g) = finish(&mut batch, &mut executor).remove(0);
    assert_eq!((g.tokens.len(), g.finish, g.full), (3, Finish::Length, true));
}

/// After a device failure no token counts as cached that may be wrong.
#[test]
fn a_device_that_fails_ends_all_and_a_prompt_in_part_is_not_a_prefix() {
    let mut executor = FakeExecutor::new();
    let mut batch = Batch::new(&executor.schedule);
    batch.join(&mut executor, request(&[1; 20], 9)).unwrap();
    batch.join(&mut executor, request(&[2; 3], 9)).unwrap();
    batch.step(&mut executor, &mut go_on).unwrap();
    executor.fails = true;
    assert_eq!(batch.step(&mut executor, &mut go_on).err().map(|e| e.exit_code()), Some(4));
    assert!(batch.is_empty());
    assert_eq!((batch.shared(&executor, &[1; 20]), batch.shared(&executor, &[2; 3])), (0, 0));
}

/// Four sequences with pages for a single full context: a sequence without a page waits, and its reply is complete.
#[test]
fn a_sequence_without_a_page_waits_and_nobody_else_suffers() {
    let mut executor = FakeExecutor::of(4 * PAGE, Some(4 * PAGE));
    let mut batch = Batch::new(&executor.schedule);
    let long = 2 * PAGE;
    for first in 0..4u32 {
        batch.join(&mut executor, request(&[16 * first; 40], long)).unwrap();
    }
    let mut waited = 0;
    let mut replies = Vec::new();
    while !batch.is_empty() {
        batch.step(&mut executor, &mut go_on).unwrap();
        executor.pages.check();
        waited = waited.max(batch.members().filter(|member| member.put_off.is_some()).count());
        replies.extend(std::iter::from_fn(|| batch.take_ended()).map(|e| (e.slot, e.reply.unwrap())));
    }
    assert!(waited > 0, "there was room for all");
    assert!(replies[0].0 == 0, "the first that joined is the first that ends");
    for (slot, reply) in replies {
        let tokens: Vec<u32> = (1..=long as u32).map(|i| (16 * slot as u32 + i) % 64).collect();
        assert_eq!((reply.tokens, reply.finish), (tokens, Finish::Length));
    }
    // A sequence that waited has run its tokens again, at most once for each sequence that has ended.
    let rows: usize = executor.passes.iter().map(|(rows, _)| rows.len()).sum();
    assert!(rows < 4 * (40 + long) + 4 * 3 * (40 + long), "{rows}");
}

/// A new sequence shares the pages of a running one with the same beginning.
#[test]
fn a_prefix_of_a_sequence_that_runs_is_shared() {
    let mut executor = FakeExecutor::of(4 * PAGE, None);
    let mut batch = Batch::new(&executor.schedule);
    let prompt: Vec<u32> = (0..PAGE as u32 + 20).map(|i| i % 64).collect();
    batch.join(&mut executor, request(&prompt, 90)).unwrap();
    while batch.slots[0].session.tokens().len() < prompt.len() {
        batch.step(&mut executor, &mut go_on).unwrap();
    }
    let slot = batch.join(&mut executor, request(&prompt, 9)).unwrap();
    assert_eq!((slot, batch.slots[slot].session.tokens().len()), (1, PAGE));
    assert_eq!(executor.pages.shared(), 2);
    let kept: Vec<(usize, usize)> = finish(&mut batch, &mut executor).into_iter().map(|(s, g)| (s, g.kept)).collect();
    assert_eq!(kept, [(1, PAGE), (0, 0)]);
}

/// If the cache is too small for a sequence alone, it ends with an error that says so, and others continue.
#[test]
fn a_sequence_for_which_there_is_no_room_at_all_is_refused() {
    let mut executor = FakeExecutor::of(4 * PAGE, Some(2 * PAGE));
    let mut batch = Batch::new(&executor.schedule);
    batch.join(&mut executor, request(&[1; 3 * PAGE], 1)).unwrap();
    batch.join(&mut executor, request(&[2; 10], 5)).unwrap();
    let mut ended = Vec::new();
    while !batch.is_empty() {
        batch.step(&mut executor, &mut go_on).unwrap();
        ended.extend(std::iter::from_fn(|| batch.take_ended()));
    }
    ended.sort_by_key(|ended| ended.slot);
    let said = ended[0].reply.as_ref().err().unwrap();
    assert!(said.exit_code() == 3 && said.to_string().contains("holds 128 tokens"), "{said}");
    assert_eq!(ended[1].reply.as_ref().unwrap().tokens, [3, 4, 5, 6, 7]);
}

#[test]
fn what_free_slots_keep_stays_within_its_bound_and_the_newest_stays_longest() {
    let mut executor = FakeExecutor::of(4 * PAGE, None);
    let mut batch = Batch::new(&executor.schedule);
    let page: u64 = Pool::ALL.map(|pool| executor.schedule.kv.pool(pool).page_bytes).iter().sum();
    let mut run = |batch: &mut Batch, token: u32, length: usize| {
        batch.join(&mut executor, request(&vec![token; length], 0)).unwrap();
        let running = batch.kept_bytes(&executor);
        finish(batch, &mut executor);
        let shared = [1, 2, 3, 4].map(|token| batch.shared(&executor, &[token; 3 * PAGE]) / PAGE);
        (running / page, batch.kept_bytes(&executor) / page, shared)
    };
    run(&mut batch, 1, 2 * PAGE);
    run(&mut batch, 2, 2 * PAGE);
    assert_eq!(run(&mut batch, 3, 2 * PAGE), (4, 6, [2, 2, 2, 0]));
    batch.set_kept(4 * page);
    // Running sequences do not count.
    assert_eq!(run(&mut batch, 4, 2 * PAGE), (6, 4, [0, 0, 2, 2]));
    // The last pages are evicted first.
    assert_eq!(run(&mut batch, 5, 1), (4, 4, [0, 0, 1, 2]));
    batch.set_kept(0);
    assert_eq!(run(&mut batch, 3, PAGE + 1), (3, 0, [0; 4]));
}

/// A guide that allows a single token, after it has been released.
struct Late {
    is_ready: std::sync::Arc<std::sync::atomic::AtomicBool>,
    token: u32,
}

impl crate::sequence::guide::Guide for Late {
    fn is_ready(&mut self, _: Duration) -> bool {
        self.is_ready.load(std::sync::atomic::Ordering::SeqCst)
    }

    fn fill(&mut self, set: &mut crate::text::TokenSet) -> Result<()> {
        assert!(self.is_ready(Duration::ZERO), "it is asked too early");
        set.clear();
        set.insert(self.token);
        Ok(())
    }

    fn take(&mut self, token: u32) -> Result<()> {
        assert_eq!(token, self.token);
        Ok(())
    }
}

/// A guide that is not ready delays no other sequence: its row runs again in each pass until it is ready.
#[test]
fn a_guide_that_takes_long_holds_up_no_other_sequence() {
    let mut executor = FakeExecutor::new();
    let mut batch = Batch::new(&executor.schedule);
    let is_ready = std::sync::Arc::<std::sync::atomic::AtomicBool>::default();
    let late = Late { is_ready: is_ready.clone(), token: 9 };
    let chooser = Chooser::new(SamplerConfig::greedy(), VOCAB).unwrap().guided(late, VOCAB).unwrap();
    let free = batch.join(&mut executor, request(&[1; 2], 30)).unwrap();
    let guided = batch.join(&mut executor, SequenceRequest { chooser, ..request(&[2; 3], 4) }).unwrap();
    let mut tokens = vec![Vec::new(); 2];
    let mut step = |batch: &mut Batch, executor: &mut FakeExecutor| {
        batch
            .step(executor, &mut |slot, token, _| {
                tokens[slot].push(token);
                ControlFlow::Continue(())
            })
            .unwrap();
        (tokens[free].len(), tokens[guided].len())
    };
    while step(&mut batch, &mut executor).0 == 0 {}
    executor.passes.clear();
    let before = step(&mut batch, &mut executor).0;
    for more in 1..=5 {
        assert_eq!(step(&mut batch, &mut executor), (before + more, 0));
    }
    let rows: Vec<Row> = executor.passes.drain(..).flat_map(|(rows, _)| rows).collect();
    let again: Vec<&Row> = rows.iter().filter(|row| row.sequence as usize == guided).collect();
    assert!(again.len() >= 5 && again.iter().all(|row| (row.token, row.position) == (2, 2)), "{again:?}");
    is_ready.store(true, std::sync::atomic::Ordering::SeqCst);
    for more in 1..=4 {
        assert_eq!(step(&mut batch, &mut executor).1, more);
    }
    let ended = batch.take_ended().unwrap();
    assert_eq!((ended.slot, ended.reply.unwrap().tokens), (guided, vec![9; 4]));
}
