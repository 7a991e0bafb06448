use crate::executor::fake::FakeExecutor;
use crate::schedule::kv::PAGE;
use crate::sequence::batch::{Batch, SequenceRequest};
use crate::sequence::{Chooser, Finish};
use std::ops::ControlFlow;

fn request(prompt: &[u32], limit: usize) -> SequenceRequest {
    SequenceRequest { prompt: prompt.to_vec(), chooser: Chooser::Greedy, stops: Vec::new(), limit, reuse: true }
}

fn go_on(_: usize, _: u32, _: &mut Chooser) -> ControlFlow<Finish> {
    ControlFlow::Continue(())
}

/// Runs a prompt of `owner` alone. Returns its slot, and the number of cached tokens.
fn ask(batch: &mut Batch, executor: &mut FakeExecutor, prompt: &[u32], owner: Option<u64>) -> (usize, usize) {
    let slot = batch.join_of(executor, request(prompt, 0), owner).unwrap();
    while !batch.is_empty() {
        batch.step(executor, &mut go_on).unwrap();
    }
    let ended = batch.take_ended().unwrap();
    executor.pages.check();
    (slot, ended.reply.unwrap().kept)
}

/// The common beginning of all prompts is no reason to truncate another conversation's prefix, with or without empty
/// slots.
#[test]
fn a_stranger_takes_an_empty_slot_or_the_oldest_and_not_that_of_a_conversation() {
    let mut executor = FakeExecutor::new();
    let mut batch = Batch::new(&executor.schedule);
    let talk = [7, 1, 2, 3, 4, 5, 6, 6];
    assert_eq!(ask(&mut batch, &mut executor, &talk, None), (0, 0));
    assert_eq!(ask(&mut batch, &mut executor, &[7, 9, 9, 9], None), (1, 0));
    assert_eq!(ask(&mut batch, &mut executor, &[7, 9, 9, 10, 10], None), (1, 3), "more is gained than is lost");
    assert_eq!(ask(&mut batch, &mut executor, &[7, 50], None), (2, 0), "all but its last token is what all begin with");
    assert_eq!(ask(&mut batch, &mut executor, &[7, 50], None), (2, 1), "the same again");
    assert_eq!(ask(&mut batch, &mut executor, &[&talk[..], &[8, 8]].concat(), None), (0, 8));
    assert_eq!(ask(&mut batch, &mut executor, &[7, 30, 30, 30], None), (2, 1), "as much is gained as is lost");
    assert_eq!(ask(&mut batch, &mut executor, &[7, 31, 31, 31], None), (3, 0));
    // No slot is empty. The oldest one has the second prompt.
    assert_eq!(ask(&mut batch, &mut executor, &[7, 40, 40, 40], None).0, 1);
    assert_eq!(ask(&mut batch, &mut executor, &[&talk[..], &[8, 8, 9]].concat(), None), (0, 10));
}

/// If taking over a conversation's slot would lose more than it saves, its pages are shared with another slot.
#[test]
fn a_prefix_is_shared_where_taking_its_slot_over_would_lose_more_than_it_gains() {
    let mut executor = FakeExecutor::of(4 * PAGE, None);
    let mut batch = Batch::new(&executor.schedule);
    let prompt = |tail: u32| {
        let head = (0..PAGE as u32 + 2).map(|i| i % 50);
        head.chain([tail; 5]).collect::<Vec<u32>>()
    };
    assert_eq!(ask(&mut batch, &mut executor, &prompt(60), None), (0, 0));
    assert_eq!(ask(&mut batch, &mut executor, &prompt(61), None), (1, PAGE), "two tokens for five");
    assert_eq!(batch.shared(&executor, &prompt(60)), PAGE + 6, "the first one is whole");
}

#[test]
fn what_one_owner_asked_is_found_by_no_other_but_for_what_is_anybodys() {
    let mut executor = FakeExecutor::new();
    let mut batch = Batch::new(&executor.schedule);
    let system = [1, 2, 3, 4, 5, 6];
    let asked = |tail: &[u32]| [&system[..], tail].concat();
    assert_eq!(ask(&mut batch, &mut executor, &system, None), (0, 0));
    assert_eq!(ask(&mut batch, &mut executor, &asked(&[7, 8, 9]), Some(1)).1, 6);
    assert_eq!(ask(&mut batch, &mut executor, &asked(&[7, 8, 9]), Some(1)).1, 8, "its own");
    assert_eq!(batch.shared(&executor, &asked(&[7, 8, 9])), 6);
    assert_eq!(ask(&mut batch, &mut executor, &asked(&[7, 8, 9]), Some(2)).1, 6, "another's");
    assert_eq!(ask(&mut batch, &mut executor, &[20, 21, 22], Some(1)).1, 0);
    assert_eq!(ask(&mut batch, &mut executor, &[20, 21, 22], Some(2)).1, 0);
    assert_eq!(ask(&mut batch, &mut executor, &[20, 21, 22], None).1, 0);
    assert_eq!(ask(&mut batch, &mut executor, &[20, 21, 22], Some(3)).1, 2, "what nobody owns is anybody's");
    // Only public tokens are kept for later runs.
    let kept = batch.prefixes(&executor, &asked(&[7, 8]));
    assert!(kept.iter().all(|prefix| !prefix.tokens.contains(&7)), "{kept:?}");
}

/// As above, with the pages of a running sequence.
#[test]
fn pages_of_another_owners_sequence_that_runs_are_not_shared() {
    let mut executor = FakeExecutor::of(4 * PAGE, None);
    let mut batch = Batch::new(&executor.schedule);
    let prompt: Vec<u32> = (0..PAGE as u32 + 20).map(|i| i % 64).collect();
    let slot = batch.join_of(&mut executor, request(&prompt, 90), Some(1)).unwrap();
    while batch.slots[slot].session.tokens().len() < prompt.len() {
        batch.step(&mut executor, &mut go_on).unwrap();
    }
    let kept = |batch: &mut Batch, executor: &mut FakeExecutor, owner| {
        let slot = batch.join_of(executor, request(&prompt, 90), owner).unwrap();
        batch.slots[slot].session.tokens().len()
    };
    assert_eq!([Some(2), None, Some(1)].map(|owner| kept(&mut batch, &mut executor, owner)), [0, 0, PAGE]);
}

/// A parked sequence gives the same reply, whether passes run ahead or not, and whatever happens to its slot meanwhile.
#[test]
fn a_sequence_that_was_parked_goes_on_in_any_slot_with_the_same_reply() {
    for runs_ahead in [false, true] {
        for others in 0..6 {
            let mut executor = FakeExecutor::of(4 * PAGE, None);
            executor.runs_ahead = runs_ahead;
            let mut batch = Batch::new(&executor.schedule);
            let slot = batch.join(&mut executor, request(&[5; 12], 40)).unwrap();
            assert!(batch.park(&mut executor, slot).is_none(), "it is within its prompt");
            let beside = batch.join(&mut executor, request(&[30], 60)).unwrap();
            let mut tokens = Vec::new();
            let mut note = |of: usize, token: u32, _: &mut Chooser| {
                if of == slot {
                    tokens.push(token);
                }
                ControlFlow::Continue(())
            };
            for _ in 0..9 {
                batch.step(&mut executor, &mut note).unwrap();
            }
            let parked = batch.park(&mut executor, slot).unwrap();
            assert!(batch.room() == 3 && batch.park(&mut executor, slot).is_none());
            for i in 0..others {
                if batch.room() > 0 {
                    batch.join(&mut executor, request(&[40 + i; 3], 2)).unwrap();
                }
                batch.step(&mut executor, &mut go_on).unwrap();
                while batch.take_ended().is_some() {}
            }
            while batch.room() == 0 {
                batch.step(&mut executor, &mut go_on).unwrap();
                while batch.take_ended().is_some() {}
            }
            let again = batch.unpark(&mut executor, parked).unwrap();
            assert_ne!(again, beside);
            let reply = loop {
                batch.step(&mut executor, &mut go_on).unwrap();
                executor.pages.check();
                if let Some(ended) = std::iter::from_fn(|| batch.take_ended()).find(|ended| ended.slot == again)
                    && let Ok(reply) = ended.reply
                    && reply.prompt == 12
                {
                    break reply;
                }
            };
            assert_eq!(reply.tokens, (6..46).collect::<Vec<u32>>(), "{runs_ahead}, {others}: {tokens:?}");
            assert_eq!(reply.tokens[..tokens.len()], tokens);
        }
    }
}
