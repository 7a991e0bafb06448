//! Passes that run ahead: the device starts the next pass before the host asks for it. The host must see the same
//! results as with one pass at a time, whatever it asks for next.

use crate::common::{self, Fifths, Forged, ONE_SUBMIT, bits, decode_ahead, decode_in_turns, golden, load, small_shape};
use kiln::engine::{self, Device, Options, ReplayOptions};
use kiln::executor::weights::Progress;
use kiln::executor::{Executor, ExecutorExt, HeadRows, Measure, Row};
use kiln::model::{Checkpoint, Shape, WeightFormat};
use kiln::schedule::choice::MOST_LISTED;
use kiln::sequence::guide::Guide;
use kiln::sequence::session::Session;
use kiln::sequence::{Batch, Chooser, SequenceRequest};
use kiln::text::{SamplerConfig, TokenSet};
use kiln::{Cancel, Error};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

const PROMPT: [u32; 5] = [2, 17, 5, 400, 33];
/// Far past the window of 16.
const STEPS: usize = 50;

fn options() -> Options {
    Options { device: common::vulkan(), vulkan: budget(ONE_SUBMIT), ..Options::default() }
}

fn budget(submit_budget: Duration) -> ReplayOptions {
    ReplayOptions { submit_budget, ..ReplayOptions::default() }
}

fn executor(options: Options) -> Box<dyn Measure> {
    load(&golden("tiny"), options)
}

/// A session that has decoded `steps` of its own choices after `PROMPT`, and these choices. `on`: with passes run
/// ahead.
fn decoded(executor: &mut dyn Executor, steps: usize, on: bool) -> (Session, Vec<u32>) {
    let mut session = Session::new(0, executor.schedule().extent.context);
    session.prefill(executor, &PROMPT).unwrap();
    let mut choices = Vec::new();
    for _ in 0..steps {
        let next = executor.next(0);
        assert!(executor.is_finite(0));
        choices.push(next);
        match on {
            true => decode_ahead(&mut session, executor, next).unwrap(),
            false => session.decode(executor, next).unwrap(),
        }
    }
    choices.push(executor.next(0));
    (session, choices)
}

#[test]
fn choices_and_last_logits_are_those_of_single_passes() {
    let mut executor = executor(options());
    let (mut session, want) = decoded(executor.as_mut(), STEPS, false);
    session.decode(executor.as_mut(), want[STEPS]).unwrap();
    let want_bits = bits(executor.as_mut(), 0);
    let submits = executor.submits();
    let (mut session, got) = decoded(executor.as_mut(), STEPS, true);
    assert_eq!(got, want);
    // This decode asks for the pass that is already under way. No pass follows it, so its logits can be read.
    let before = executor.submits();
    session.decode(executor.as_mut(), got[STEPS]).unwrap();
    assert_eq!(executor.submits(), before, "it was submitted already");
    assert_eq!(bits(executor.as_mut(), 0), want_bits);
    assert_eq!(executor.submits() - submits, STEPS as u64 + 2, "one a pass");
}

#[test]
fn another_token_than_the_choice_is_as_good_as_ever() {
    let mut executor = executor(options());
    let other = |choice: u32| (choice + 100) % 400;
    let (mut session, want) = decoded(executor.as_mut(), STEPS, false);
    session.decode(executor.as_mut(), other(want[STEPS])).unwrap();
    let first = bits(executor.as_mut(), 0);
    session.prefill(executor.as_mut(), &[7, 8, 9]).unwrap();
    let second = bits(executor.as_mut(), 0);

    let (mut session, got) = decoded(executor.as_mut(), STEPS, true);
    session.decode(executor.as_mut(), other(got[STEPS])).unwrap();
    assert_eq!(bits(executor.as_mut(), 0), first);
    decode_ahead(&mut session, executor.as_mut(), 11).unwrap();
    let kept = session.rewind(executor.as_mut(), PROMPT.len() + STEPS + 1);
    assert_eq!(kept, PROMPT.len() + STEPS + 1, "pages reach back further than the window");
    session.prefill(executor.as_mut(), &[7, 8, 9]).unwrap();
    assert_eq!(bits(executor.as_mut(), 0), second);
}

/// A pass that is discarded writes to pages that by then may be another sequence's, and reads such pages.
#[test]
fn a_discarded_pass_harms_no_sequence_that_takes_its_pages() {
    let mut executor = executor(Options { sequences: 2, ..options() });
    let (mut session, want) = decoded(executor.as_mut(), STEPS, false);
    session.decode(executor.as_mut(), want[STEPS]).unwrap();
    let want_bits = bits(executor.as_mut(), 0);
    let (mut session, _) = decoded(executor.as_mut(), STEPS, true);
    assert_eq!(session.rewind(executor.as_mut(), 0), 0);
    // All that the first sequence had is free. The pass that runs ahead is its.
    let mut other = Session::new(1, executor.schedule().extent.context);
    other.prefill(executor.as_mut(), &PROMPT).unwrap();
    for &next in &want[..=STEPS] {
        other.decode(executor.as_mut(), next).unwrap();
    }
    assert_eq!(bits(executor.as_mut(), 0), want_bits);
    executor.pages().check();
}

/// After 3 steps with the next pass under way, only the choice of the last pass can be read; anything else is refused.
/// A step with that choice then gives the same logits as with one pass at a time.
fn refuses_and_goes_on(executor: &mut dyn Executor, session: &mut Session, choice: u32) {
    assert!(executor.logits(0).is_err());
    assert!(executor.project(HeadRows { first: 0, count: 1 }).is_err());
    session.decode(executor, choice).unwrap();
    let got = bits(executor, 0);
    let (mut session, choices) = decoded(executor, 3, false);
    session.decode(executor, choices[3]).unwrap();
    assert_eq!(got, bits(executor, 0));
}

#[test]
fn nothing_is_looked_at_behind_a_pass_under_way() {
    let mut executor = executor(options());
    let (mut session, choices) = decoded(executor.as_mut(), 3, true);
    refuses_and_goes_on(executor.as_mut(), &mut session, choices[3]);
}

/// A measurement ends the pass under way. The arena then holds another pass, and only the choice is left.
#[test]
fn a_measurement_between_leaves_the_choice_alone() {
    let mut executor = executor(options());
    let (mut session, choices) = decoded(executor.as_mut(), 3, true);
    executor.measure_read_ceiling().unwrap();
    assert_eq!(executor.next(0), choices[3]);
    refuses_and_goes_on(executor.as_mut(), &mut session, choices[3]);
}

/// No pass is started after the last position of the context.
#[test]
fn the_end_of_the_context_is_not_passed() {
    let context = PROMPT.len() + 6;
    let mut executor = executor(Options { context: Some(context), ..options() });
    let (session, want) = decoded(executor.as_mut(), 6, false);
    assert_eq!(session.room(executor.schedule()), 0);
    let (mut session, got) = decoded(executor.as_mut(), 6, true);
    assert_eq!(got, want);
    assert!(executor.logits(0).is_ok(), "nothing is under way");
    assert!(decode_ahead(&mut session, executor.as_mut(), 3).is_err());
}

/// A pass that asks finds in the logits what it asks for, also where it began behind one that asked for nothing, and the next
/// one may begin behind it.
#[test]
fn passes_that_ask_and_passes_that_run_ahead_take_turns() {
    let mut executor = executor(options());
    let steps = STEPS as u32;
    let want = decode_in_turns(executor.as_mut(), &PROMPT, steps, false);
    let submits = executor.submits();
    assert_eq!(decode_in_turns(executor.as_mut(), &PROMPT, steps, true), want);
    // The prompt's, one a pass, one for what each third pass finds if that pass was under way, and the pass that began
    // behind the last. Each fourth of the passes before them starts none.
    let of_its_own = (0..steps).filter(|step| step % 3 == 2 && step % 4 != 0).count() as u64;
    assert_eq!(executor.submits() - submits, 1 + STEPS as u64 + of_its_own + 1);
}

/// Batches: with fewer rows than were baked for, with results through staging or in the arena, and with passes over the
/// submit budget, which are not run ahead.
#[test]
fn batches_go_on_too() {
    for (rows, staged, budget) in
        [(3usize, false, ONE_SUBMIT), (4, true, ONE_SUBMIT), (4, false, Duration::from_nanos(1))]
    {
        let vulkan = ReplayOptions { staged, ..self::budget(budget) };
        let options = Options { sequences: 4, head_rows: 4, vulkan, context: Some(64), ..options() };
        let mut executor = executor(options);
        let head = HeadRows { first: 0, count: rows };
        let mut run = |on: bool| {
            let mut all: Vec<u32> = Vec::new();
            let mut pass: Vec<Row> =
                (0..rows as u32).map(|s| Row { token: 3 + 40 * s, position: 0, sequence: s }).collect();
            for step in 0..24 {
                match on && step < 23 {
                    true => drop(executor.forward_ahead(&pass, head).unwrap()),
                    false => executor.forward(&pass, Some(head)).unwrap(),
                }
                for (i, row) in pass.iter_mut().enumerate() {
                    all.push(executor.next(i));
                    // Once, one sequence gets another token than its argmax.
                    let told = if step == 10 && i == 1 { 9 } else { executor.next(i) };
                    *row = Row { token: told, position: row.position + 1, ..*row };
                }
            }
            (0..rows).for_each(|i| all.extend(bits(executor.as_mut(), i)));
            all
        };
        assert_eq!(run(false), run(true), "{rows} rows, staged {staged}, budget {budget:?}");
    }
}

/// A batch's replies and how it came to them.
struct Together {
    replies: Vec<(usize, Vec<u32>)>,
    /// Passes, and those that the next one was under way behind.
    passes: usize,
    ahead: usize,
}

/// The `i`-th of a batch's requests, greedy if it is one of the first two, else guided.
fn request<G: Guide + 'static>(i: u32, vocab: usize, limit: usize, guide: impl Fn(u32) -> G) -> SequenceRequest {
    let chooser = Chooser::new(SamplerConfig::greedy(), vocab).unwrap();
    let chooser = if i < 2 { chooser } else { chooser.guided(guide(i), vocab).unwrap() };
    SequenceRequest { prompt: vec![2, 3 + 40 * i, 7], chooser, stops: Vec::new(), limit, reuse: true }
}

/// A batch of the requests 0 to 3, each in the slot of its number.
fn batch_of_four(executor: &mut dyn Measure, request: impl Fn(u32) -> SequenceRequest) -> Batch {
    let mut batch = Batch::new(executor.schedule());
    for i in 0..4 {
        assert_eq!(batch.join(executor, request(i)).unwrap(), i as usize);
    }
    batch
}

/// Two greedy and two guided replies of `limit` tokens, and a third guided one when another one has ended by `stop`, a slot
/// and a token.
fn together(executor: &mut dyn Measure, limit: usize, stop: Option<(usize, u32)>) -> Together {
    together_by(executor, limit, stop, Fifths)
}

/// As [`together`], with guides of another kind.
fn together_by<G: Guide + 'static>(
    executor: &mut dyn Measure,
    limit: usize,
    stop: Option<(usize, u32)>,
    guide: impl Fn(u32) -> G,
) -> Together {
    let vocab = executor.schedule().shape.vocab;
    let request = |i: u32| {
        let stops = stop.filter(|(slot, _)| *slot == i as usize).map(|(_, token)| token).into_iter().collect();
        SequenceRequest { stops, ..request(i, vocab, limit, &guide) }
    };
    let mut batch = batch_of_four(executor, request);
    let mut together = Together { replies: Vec::new(), passes: 0, ahead: 0 };
    while !batch.is_empty() {
        batch.step(executor, &mut |_, _, _| ControlFlow::Continue(())).unwrap();
        executor.pages().check();
        together.passes += 1;
        together.ahead += usize::from(batch.is_ahead());
        while let Some(ended) = batch.take_ended() {
            together.replies.push((ended.slot, ended.reply.unwrap().tokens));
            if together.replies.len() == 1 && stop.is_some() {
                batch.join(executor, request(4)).unwrap();
            }
        }
    }
    together
}

/// Where a guide's set of tokens is there before the pass ends, the device takes the likeliest of it, and goes on with that.
#[test]
fn guided_replies_run_ahead_too() {
    for staged in [false, true] {
        let load = |budget| {
            let vulkan = ReplayOptions { staged, ..self::budget(budget) };
            executor(Options { sequences: 4, head_rows: 4, vulkan, context: Some(64), ..options() })
        };
        let (mut apart, mut on) = (load(Duration::from_nanos(1)), load(ONE_SUBMIT));
        let want = together(apart.as_mut(), 30, None);
        assert_eq!((want.ahead, want.replies.len()), (0, 4));
        let before = on.submits();
        let got = together(on.as_mut(), 30, None);
        assert_eq!(got.replies, want.replies);
        // A pass and its choice each, and the first ones in pieces. None is discarded.
        let submits = on.submits() - before;
        assert!(submits < 2 * got.passes as u64 + 20, "{submits} submits for {} passes", got.passes);
        // None is under way behind the prompts' pass, behind the first one of four rows, which is in pieces as long as nobody
        // knows what it takes, and behind the last one.
        assert_eq!((got.passes, got.ahead), (want.passes, want.passes - 3));
        // One ends while the next pass runs, be it greedy or guided, and another one comes.
        let slots = if common::runs_all() { &[1, 3][..] } else { &[if staged { 1 } else { 3 }] };
        for &slot in slots {
            let (_, reply) = &want.replies.iter().find(|(ended, _)| *ended == slot).unwrap();
            let at = (8..30).find(|&i| !reply[..i].contains(&reply[i])).unwrap();
            let stop = Some((slot, reply[at]));
            let want = together(apart.as_mut(), 30, stop);
            let got = together(on.as_mut(), 30, stop);
            assert_eq!(got.replies, want.replies, "slot {slot}");
            assert_eq!((want.replies[0].0, want.replies[0].1.len(), want.replies.len()), (slot, at, 5));
            assert!(got.ahead + 8 > got.passes, "{} of {} passes", got.ahead, got.passes);
        }
    }
    assert_eq!(kiln::testing::vulkan::device::instance::validation_messages(), 0);
}

/// As its `inner`, but it has not said yet which tokens may come as often as not.
struct Late {
    inner: Fifths,
    calls: u32,
}

impl Guide for Late {
    fn is_ready(&mut self, _: Duration) -> bool {
        self.calls += 1;
        self.calls % 7 > 3
    }

    fn fill(&mut self, set: &mut TokenSet) -> kiln::Result<()> {
        self.inner.fill(set)
    }

    fn take(&mut self, token: u32) -> kiln::Result<()> {
        self.inner.take(token)
    }
}

/// Guides that are late change no reply, whether passes run ahead or not, and hold up no greedy one.
#[test]
fn guides_that_are_late_change_no_reply_and_hold_up_no_other() {
    let sorted = |mut together: Together| {
        together.replies.sort();
        together
    };
    for budget in [Duration::from_nanos(1), ONE_SUBMIT] {
        let vulkan = self::budget(budget);
        let mut executor = executor(Options { sequences: 4, head_rows: 4, vulkan, context: Some(64), ..options() });
        let want = sorted(together(executor.as_mut(), 30, None));
        let mut got = together_by(executor.as_mut(), 30, None, |i| Late { inner: Fifths(i), calls: i });
        let order: Vec<usize> = got.replies.iter().map(|(slot, _)| *slot).collect();
        got = sorted(got);
        assert_eq!(got.replies, want.replies);
        assert!(got.passes > want.passes + 5, "{} passes, {} without late guides", got.passes, want.passes);
        assert!(order[..2].iter().all(|slot| *slot < 2), "the greedy replies end first: {order:?}");
    }
    assert_eq!(kiln::testing::vulkan::device::instance::validation_messages(), 0);
}

/// Fails once `inner` has counted to 10: to say which tokens may come, or to take the one that came.
struct Failing {
    inner: Fifths,
    fills: bool,
}

impl Failing {
    fn check(&self, fills: bool) -> kiln::Result<()> {
        match self.inner.0 >= 10 && self.fills == fills {
            true => Err(Error::failed("the guide is lost", "report this")),
            false => Ok(()),
        }
    }
}

impl Guide for Failing {
    fn fill(&mut self, set: &mut TokenSet) -> kiln::Result<()> {
        self.check(true)?;
        self.inner.fill(set)
    }

    fn take(&mut self, token: u32) -> kiln::Result<()> {
        self.check(false)?;
        self.inner.take(token)
    }
}

/// A guided sequence whose guide fails, or which leaves, while the next pass runs: the others take what that pass has for them.
#[test]
fn a_guided_sequence_that_ends_early_harms_no_other() {
    let mut executor = executor(Options { sequences: 4, head_rows: 4, context: Some(64), ..options() });
    let executor = executor.as_mut();
    let vocab = executor.schedule().shape.vocab;
    let mut want = together(executor, 30, None).replies;
    want.sort();
    for fails in [Some(true), Some(false), None] {
        let of = |i: u32| match fails {
            Some(fills) if i == 2 => request(i, vocab, 30, |i| Failing { inner: Fifths(i), fills }),
            _ => request(i, vocab, 30, Fifths),
        };
        let mut batch = batch_of_four(executor, of);
        let (mut replies, mut ahead) = (Vec::new(), 0);
        for pass in 0.. {
            let before = executor.submits();
            batch.step(executor, &mut |_, _, _| ControlFlow::Continue(())).unwrap();
            executor.pages().check();
            ahead += usize::from(batch.is_ahead());
            if fails.is_none() && pass == 9 {
                assert!(batch.is_ahead() && executor.submits() > before);
                let left = batch.leave(executor, 2).unwrap().reply.unwrap();
                assert_eq!(left.tokens, want[2].1[..10]);
            }
            while let Some(ended) = batch.take_ended() {
                match ended.reply {
                    Ok(reply) => replies.push((ended.slot, reply.tokens)),
                    Err(e) => assert!(
                        fails.is_some() && ended.slot == 2 && e.to_string().contains("the guide is lost"),
                        "{e}"
                    ),
                }
            }
            if batch.is_empty() {
                break;
            }
        }
        replies.sort();
        assert_eq!(replies, [0, 1, 3].map(|slot: usize| want[slot].clone()), "{fails:?}");
        assert!(ahead > 20, "{fails:?}: {ahead}");
    }
    assert_eq!(kiln::testing::vulkan::device::instance::validation_messages(), 0);
}

/// More tokens are as likely as the device lists: the row runs again in a pass that none follows, and the logits decide.
#[test]
fn a_tie_of_more_tokens_than_are_listed_is_decided_by_the_logits() {
    let vocab = 10 * MOST_LISTED + 7;
    let forged = Forged::new(&Shape { vocab, tied: false, ..small_shape() }, WeightFormat::Int8);
    forged.repeat_head_rows(1);
    let load = |device| forged.load(device, Options { sequences: 4, head_rows: 4, context: Some(64), ..options() });
    let mut gpu = load(common::vulkan());
    let submits = gpu.submits();
    let got = together(gpu.as_mut(), 12, None);
    let submits = gpu.submits() - submits;
    // A pass that ran ahead, one for the rows that go on, and the pass again, of a submit each; and their choices.
    assert!(2 * got.ahead < got.passes && submits > got.passes as u64, "{submits} submits in {} passes", got.passes);
    assert_eq!(got.replies, together(load(Device::Cpu).as_mut(), 12, None).replies);
    let first_of_each = |slot: u32| (slot..slot + 12).map(|i| i % 5).collect::<Vec<u32>>();
    for (slot, reply) in &got.replies {
        let want = if *slot < 2 { vec![0; 12] } else { first_of_each(*slot as u32) };
        assert_eq!(*reply, want, "slot {slot}");
    }
    assert_eq!(kiln::testing::vulkan::device::instance::validation_messages(), 0);
}

/// A caller may end a pass from another thread, and the next pass is none the worse for it.
#[test]
fn a_cancelled_pass_ends_between_submits_and_leaves_no_trace() {
    for device in [common::vulkan(), Device::Cpu] {
        // Every segment is a submit of its own.
        let options = Options { device, vulkan: budget(Duration::from_nanos(1)), ..Options::default() };
        let cancel = Cancel::default();
        let checkpoint = Checkpoint::open(&golden("tiny")).unwrap();
        let mut executor = engine::load(&checkpoint, &options, &Progress::new(cancel.clone())).unwrap();
        let (_, want) = decoded(executor.as_mut(), 5, true);

        let rows: Vec<Row> = PROMPT.iter().zip(0..).map(|(&t, p)| Row { token: t, position: p, sequence: 0 }).collect();
        let head = Some(HeadRows { first: 4, count: 1 });
        let interrupted = |done| matches!(done, Err(Error::Interrupted { .. }));
        let mut seen = 0;
        let watched = executor.forward_watched(&rows, head, &mut |_, _| {
            seen += 1;
            if seen == 3 {
                cancel.set();
            }
        });
        assert!(interrupted(watched) && seen == 3, "{seen}");
        let submits = executor.submits();
        assert!(interrupted(executor.forward(&rows, head)));
        assert_eq!(executor.submits(), submits, "nothing begins");
        assert!(executor.logits(0).is_err(), "the results are lost");

        // Cancels passes at any moment. Returns whether the last one was cut: a whole pass is an embedding, six layers
        // and a head.
        let mut cut = || {
            cancel.clear();
            let submits = executor.submits();
            std::thread::scope(|scope| {
                scope.spawn(|| cancel.set());
                while executor.forward(&rows, head).is_ok() {}
            });
            !(executor.submits() - submits).is_multiple_of(8)
        };
        let start = Instant::now();
        // The CPU has no submits to count.
        while device != Device::Cpu && !cut() {
            assert!(start.elapsed() < Duration::from_secs(60), "no pass was cut");
        }
        cancel.clear();
        assert_eq!(decoded(executor.as_mut(), 5, true).1, want);
        cancel.set();
        let progress = Progress::new(cancel);
        assert!(matches!(engine::load(&checkpoint, &options, &progress), Err(Error::Interrupted { .. })));
    }
}
