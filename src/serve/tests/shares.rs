//! Fair shares of the queue and the slots among clients.

use super::*;
use crate::engine::core::{Core, CoreSettings};
use crate::sequence::draft::Drafts;
use std::rc::Rc;

/// A service without an engine: its jobs wait for ever. `current`: whether its model is the current one.
fn without_engine(settings: ServerSettings, current: bool) -> (Service, Arc<Model>) {
    let service = Service::new(settings);
    let checkpoint = ModelFiles::BuiltIn.checkpoint().unwrap();
    let executor = engine::load(&checkpoint, &options(1), &Progress::default()).unwrap();
    let model = Arc::new(Model::open(1, &ModelFiles::BuiltIn, executor.schedule(), executor.device_info()).unwrap());
    if current {
        service.set_model(model.clone());
    }
    (service, model)
}

#[test]
fn a_client_that_fills_its_part_of_the_queue_leaves_as_much_to_others() {
    let (service, model) = without_engine(ServerSettings { queue: 8, ..ServerSettings::default() }, false);
    let submit = |n, choices| {
        let ask = Request { choices, ..greedy(question("Hello"), 4) };
        service.submit(&model, &[ask], client(n), Arc::new(|| false), Instant::now())
    };
    let full = |n, choices| submit(n, choices).err().map(|e| (e.status, e.code)) == Some((503, Some("queue_full")));
    // One request is larger than the queue, so no other fits beside it.
    let _large = submit(1, 20).unwrap();
    assert!(full(1, 1));
    let _others: Vec<Replies> = (0..4).map(|_| submit(2, 1).unwrap()).collect();
    assert!(full(2, 1) && full(3, 5));
    let _third = submit(3, 2).unwrap();
    let _fourth = submit(4, 1).unwrap();
    let _last = submit(5, 1);
    assert!(full(6, 1) || _last.is_err(), "all of them have a bound");
    assert!(service.engine.len() <= 20 + 8);
}

#[test]
fn what_can_begin_at_once_takes_no_place_in_the_queue() {
    let (service, model) = without_engine(ServerSettings { queue: 1, ..ServerSettings::default() }, true);
    let submit =
        |n| service.submit(&model, &[greedy(question("Hello"), 4)], client(n), Arc::new(|| false), Instant::now());
    service.engine.set_free_slots(1, 2);
    let asked: Vec<Replies> = (0..3).map(|_| submit(1).unwrap()).collect();
    assert_eq!(submit(1).err().unwrap().code, Some("queue_full"));
    let job = || service.engine.take(1, |_| 0).unwrap();
    let _running = [job(), job()];
    assert_eq!(submit(1).err().unwrap().code, Some("queue_full"), "the places are taken, and one waits");
    service.engine.set_free_slots(1, 1);
    assert!(submit(1).is_ok(), "one has ended");
    // A replaced model cannot change the number of slots.
    service.engine.set_free_slots(7, 100);
    assert_eq!(submit(1).err().unwrap().code, Some("queue_full"));
    drop(asked);
}

/// Reads `answers` to their end. Returns the tokens and the time of the end.
fn read_on(answers: Replies) -> (Vec<u32>, Instant) {
    let whole = answers.gather().unwrap().remove(0);
    (ids(&whole), Instant::now())
}

/// One client has all slots for long replies, and many more waiting. A short reply of another client begins and ends
/// before any of these, and all replies equal lone ones.
#[test]
fn who_has_no_place_gets_one_of_a_client_that_has_several() {
    let served = start(ServerSettings::default(), slow_loader(2));
    let long = || Request { ignore_eos: true, ..greedy(question("Hello"), 220) };
    let submit = |n, ask| {
        served
            .service
            .submit(&served.service.model().unwrap(), &[ask], client(n), Arc::new(|| false), Instant::now())
            .unwrap()
    };
    let mut held: Vec<Replies> = (0..4).map(|_| submit(1, long())).collect();
    for answers in &mut held[..2] {
        assert!(matches!(answers.next(), Some((0, Event::Token(_)))));
    }
    let (other, ended) = read_on(submit(2, greedy(question("Who are you?"), 3)));
    assert_eq!(other.len(), 3);
    let replies: Vec<(usize, Vec<u32>, Instant)> = thread::scope(|scope| {
        let readers: Vec<_> = held
            .into_iter()
            .enumerate()
            .map(|(i, answers)| {
                scope.spawn(move || {
                    let (tokens, ended) = read_on(answers);
                    (i, tokens, ended)
                })
            })
            .collect();
        readers.into_iter().map(|reader| reader.join().unwrap()).collect()
    });
    let whole = &replies[3].1;
    assert_eq!(whole.len(), 220);
    for (i, tokens, end) in &replies {
        assert!(*end > ended, "reply {i} held its place until its end");
        assert!(whole.ends_with(tokens) && tokens.len() >= 219, "{tokens:?}");
    }
    served.stop().unwrap();
}

/// A loader of the demo model for this many sequences, with passes of at least 40 ms.
fn slow_loader(slots: usize) -> crate::serve::server::ModelLoader {
    let load = loader(ModelFiles::BuiltIn, None, options(slots), false);
    Box::new(move |progress: &Progress| -> Result<LoadedExecutor> {
        let inner = load(progress)?.executor;
        let slow = Faulty { pause: Duration::from_millis(40), ..Faulty::of(inner) };
        let executor: Box<dyn Measure> = Box::new(slow);
        Ok(executor.into())
    })
}

/// `/slots` has the counts of a reply in progress, and no entry for one that has ended.
#[test]
fn places_are_published_with_the_tokens_of_their_replies() {
    let served = start(ServerSettings::default(), loader(ModelFiles::BuiltIn, None, options(SLOTS), false));
    let prompt = question("Who are you?");
    let length = prompt.len();
    let seen = || served.service.slots.get().into_iter().flatten().find(|counts| counts.reply > 0);
    // Slots are published once a second while there is work.
    wait_until("a reply is published", || {
        let ask = Request { ignore_eos: true, choices: 16, ..greedy(prompt.clone(), 230) };
        let mut found = None;
        for step in served.ask(ask) {
            assert!(!matches!(step, (_, Event::Failed(_))), "{step:?}");
            found = found.or_else(seen);
        }
        found.is_some_and(|counts| counts.prompt == length && counts.reply <= 230)
    });
    wait_until("its end is published", || served.service.slots.get().iter().all(Option::is_none));
    assert_eq!(served.service.slots.get().len(), SLOTS);
    served.stop().unwrap();
}

#[test]
fn tokens_of_a_prompt_that_is_scored_are_counted_as_the_prompts() {
    let service = Service::new(ServerSettings::default());
    let checkpoint = ModelFiles::BuiltIn.checkpoint().unwrap();
    let executor = engine::load(&checkpoint, &options(1), &Progress::default()).unwrap();
    let model = Model::open(1, &ModelFiles::BuiltIn, executor.schedule(), executor.device_info()).unwrap();
    let settings = CoreSettings { gap: None, kept: u64::MAX, drafts: Drafts::default() };
    let mut core = Core::new(&service.engine, 1, (executor, None), settings, Rc::new(()));
    let ask = Request { scores: true, likelihoods: Some(0), limit: 1, ..Request::new(vec![2, 3, 4, 5]) };
    let answers = service.submit(&model, &[ask], client(1), Arc::new(|| false), Instant::now()).unwrap();
    core.admit();
    let running = core.running[0].as_mut().unwrap();
    let counts = [0, 1, 1, 1, 1].map(|tokens| {
        (0..tokens).for_each(|_| running.count_token());
        (running.counts.prompt, running.counts.reply)
    });
    assert_eq!(counts, [(4, 0), (4, 0), (4, 0), (4, 0), (4, 1)]);
    drop(answers);
}
