//! The engine's side: jobs of many clients on the demo model on the CPU, and failures of the engine.

mod embedded;
mod offloads;
mod reload;
mod shares;
mod unload;

use super::http::{ApiError, Gone, Guard, HttpRequest, Limits, Listen, Responder};
use super::model::Model;
use super::server::{LoadedExecutor, Notice, ServerOrder, Setup, loader, serve};
use super::service::{ServerSettings, Service};
use crate::engine::request::{Client, EngineError, Event, Request};
use crate::engine::request::{CompleteReply, Replies};
use crate::engine::{self, Device, ModelFiles, Options};
use crate::executor::measure::{KernelTiming, Measure};
use crate::executor::offload::{OffloadReport, OffloadedPasses, PlacementTiming};
use crate::executor::weights::Progress;
use crate::executor::{DeviceInfo, Executor, HeadRows, Row, Submission, Watch};
use crate::grammar::Grammar;
use crate::schedule::Segment;
use crate::sequence::{Batch, Chooser, Finish, prompt};
use crate::testing::generate;
use crate::text::{Message, SamplerConfig};
use crate::{Error, Result, sequence};
use serde_json::json;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

const SLOTS: usize = 4;
/// The longest wait of a test for an expected event.
const PATIENCE: Duration = Duration::from_secs(120);

fn options(slots: usize) -> Options {
    Options {
        device: Device::Cpu,
        context: Some(256),
        chunk: Some(64),
        sequences: slots,
        head_rows: slots,
        ..Options::default()
    }
}

/// A service to which tests submit requests directly.
struct TestService {
    service: Arc<Service>,
    orders: Sender<ServerOrder>,
    notices: Receiver<Notice>,
    done: thread::JoinHandle<Result<()>>,
}

fn setup(settings: ServerSettings, load: super::server::ModelLoader) -> Setup {
    Setup {
        files: ModelFiles::BuiltIn,
        load,
        settings,
        listen: vec![Listen::Tcp((Ipv4Addr::LOCALHOST, 0).into())],
        limits: Limits::default(),
        guard: Guard::default(),
        access: Default::default(),
        is_service: true,
        drain: Duration::from_secs(60),
        stamps: Box::new(|| None),
        reread: Box::new(|| Ok(Default::default())),
    }
}

/// Starts a server with the loader `load`, and waits until it is ready.
fn start(settings: ServerSettings, load: super::server::ModelLoader) -> TestService {
    start_with(settings, load, |_| {})
}

/// As [`start`], with a changed setup.
fn start_with(
    settings: ServerSettings,
    load: super::server::ModelLoader,
    change: impl FnOnce(&mut Setup) + Send + 'static,
) -> TestService {
    let (orders, taken) = channel();
    let (say, notices) = channel();
    let (give, given) = channel();
    let done = thread::spawn(move || {
        let mut setup = setup(settings, load);
        change(&mut setup);
        let handler = |service: Arc<Service>| {
            give.send(service).unwrap();
            |_: HttpRequest, reply: Responder<'_>| -> std::result::Result<(), Gone> {
                reply.error(&ApiError::not_found("/"))
            }
        };
        serve(&setup, taken, handler, &mut |notice| drop(say.send(notice)))
    });
    let service = given.recv_timeout(PATIENCE).unwrap();
    let served = TestService { service, orders, notices, done };
    served.wait_for(|notice| matches!(notice, Notice::Ready(_)));
    served
}

impl TestService {
    fn wait_for(&self, is: impl Fn(&Notice) -> bool) -> Notice {
        let until = Instant::now() + PATIENCE;
        loop {
            let notice = self.notices.recv_timeout(until.saturating_duration_since(Instant::now())).unwrap();
            if is(&notice) {
                return notice;
            }
        }
    }

    fn ask(&self, ask: Request) -> Replies {
        self.service
            .submit(&self.service.model().unwrap(), &[ask], client(1), Arc::new(|| false), Instant::now())
            .unwrap()
    }

    fn stop(self) -> Result<()> {
        self.orders.send(ServerOrder::Stop).unwrap();
        self.done.join().unwrap()
    }
}

fn client(n: u8) -> Client {
    Client::Address(IpAddr::V4(Ipv4Addr::new(192, 0, 2, n)))
}

fn wait_until(what: &str, mut is: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !is() {
        assert!(Instant::now() < until, "waited in vain until {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

fn question(text: &str) -> Vec<u32> {
    let files = ModelFiles::BuiltIn;
    let (tokenizer, template, shape) = (files.tokenizer().unwrap(), files.template().unwrap(), files.shape().unwrap());
    let limits = sequence::SequenceLimits { shape: &shape, context: 256 };
    prompt::encode_messages(&tokenizer, &template, &[Message::new("user", text)], limits).unwrap()
}

fn greedy(prompt: Vec<u32>, limit: usize) -> Request {
    Request { sampler: SamplerConfig::greedy(), limit, ..Request::new(prompt) }
}

fn ids(whole: &CompleteReply) -> Vec<u32> {
    whole.tokens.iter().map(|token| token.id).collect()
}

#[test]
fn replies_made_together_are_those_made_alone() {
    let served = start(ServerSettings::default(), loader(ModelFiles::BuiltIn, None, options(SLOTS), false));
    let sampled = |seed| SamplerConfig { seed: Some(seed), ..SamplerConfig::default() };
    let texts =
        ["Who are you?", "What is a fence?", "Why is the sky blue?", "Hello", "Who are you, and what can you do?"];
    let asks: Vec<Request> = texts
        .iter()
        .enumerate()
        .flat_map(|(i, text)| {
            let prompt = question(text);
            let seeded = Request { sampler: sampled(i as u64), choices: 2, limit: 20, ..Request::new(prompt.clone()) };
            [greedy(prompt, 5 + 7 * i), seeded]
        })
        .collect();
    let started: Vec<(Request, Replies)> = asks.iter().map(|ask| (ask.clone(), served.ask(ask.clone()))).collect();

    let checkpoint = ModelFiles::BuiltIn.checkpoint().unwrap();
    let mut executor = engine::load(&checkpoint, &options(1), &Progress::default()).unwrap();
    let stops = served.service.model().unwrap().stops().to_vec();
    for (ask, answers) in started {
        let whole = answers.gather().unwrap();
        for (i, whole) in whole.iter().enumerate() {
            let seed = ask.sampler.seed.map(|seed| seed + i as u64);
            let vocab = executor.schedule().shape.vocab;
            let request = sequence::SequenceRequest {
                prompt: ask.prompt.clone(),
                chooser: Chooser::new(SamplerConfig { seed, ..ask.sampler.clone() }, vocab).unwrap(),
                stops: stops.clone(),
                limit: ask.limit,
                reuse: false,
            };
            let mut batch = Batch::new(executor.schedule());
            let (g, _) = generate(executor.as_mut(), &mut batch, request, &mut |_| ControlFlow::Continue(())).unwrap();
            let end = whole.end.as_ref().unwrap();
            assert_eq!(
                (ids(whole), end.generation.tokens.len(), end.generation.finish),
                (g.tokens.clone(), g.tokens.len(), g.finish)
            );
            assert_eq!(end.generation.prompt, ask.prompt.len());
        }
    }
    // The second time most of the prompt is cached, unless reuse is disabled.
    let prompt = question(texts[4]);
    let cached = |reuse| {
        let ask = Request { reuse, ..greedy(prompt.clone(), 3) };
        served.ask(ask).gather().unwrap()[0].end.as_ref().unwrap().generation.kept
    };
    assert_eq!((cached(true), cached(false)), (prompt.len() - 1, 0));
    served.stop().unwrap();
}

#[test]
fn likelihoods_and_stop_texts_come_with_the_tokens() {
    let served = start(ServerSettings::default(), loader(ModelFiles::BuiltIn, None, options(2), false));
    let prompt = question("Who are you?");
    let plain = served.ask(greedy(prompt.clone(), 12)).gather().unwrap().remove(0);
    let reported =
        served.ask(Request { likelihoods: Some(3), ..greedy(prompt.clone(), 12) }).gather().unwrap().remove(0);
    assert_eq!(ids(&reported), ids(&plain));
    for token in &reported.tokens {
        let likelihood = token.likelihood.as_ref().unwrap();
        assert_eq!((likelihood.top.len(), likelihood.top[0]), (3, (token.id, likelihood.logprob)), "greedy");
        assert!(likelihood.logprob <= 0.0 && likelihood.top[2].1 <= likelihood.top[1].1);
    }
    let stop: String = plain.text.chars().skip(3).take(4).collect();
    let stopped = served.ask(Request { stop: vec![stop.clone()], ..greedy(prompt, 12) }).gather().unwrap().remove(0);
    let end = stopped.end.unwrap();
    assert_eq!((stopped.text.as_str(), end.generation.finish), (plain.text.split(&stop).next().unwrap(), Finish::Stop));
    served.stop().unwrap();
}

#[test]
fn replies_of_a_given_form_have_it_and_end_at_their_limit_all_the_same() {
    let served = start(ServerSettings::default(), loader(ModelFiles::BuiltIn, None, options(SLOTS), false));
    let model = served.service.model().unwrap();
    let schema = json!({
        "type": "object",
        "properties": {"name": {"enum": ["Ada", "Grace"]}, "ages": {"type": "array", "items": {"enum": [1, 22]}, "minItems": 2, "maxItems": 2}},
        "required": ["name", "ages"],
        "additionalProperties": false,
    });
    let compiled = model.grammars.compile(&Grammar::JsonSchema(schema), 0, &|| false).unwrap();
    let ask = |i: usize, limit| Request {
        guide: Some(served.service.guide(&model, &compiled, &Request::new(Vec::new())).unwrap()),
        sampler: SamplerConfig {
            temperature: (i % 3) as f32,
            top_k: 0,
            top_p: 1.0,
            seed: Some(i as u64),
            ..SamplerConfig::default()
        },
        // The document's end still ends the reply.
        ignore_eos: true,
        likelihoods: i.is_multiple_of(2).then_some(2),
        limit,
        ..Request::new(question("Who are you?"))
    };
    let started: Vec<(usize, Replies)> = (0..12)
        .map(|i| {
            let limit = if i % 2 == 0 { 1000 } else { 3 };
            (limit, served.ask(ask(i, limit)))
        })
        .collect();
    for (limit, answers) in started {
        let whole = answers.gather().unwrap().remove(0);
        let end = whole.end.unwrap();
        assert!(end.generation.tokens.len() <= limit);
        if limit == 3 {
            assert!(
                end.generation.finish == Finish::Length
                    && end.generation.tokens.len() == 3
                    && whole.text.starts_with('{'),
                "{}",
                whole.text
            );
            continue;
        }
        assert_eq!(end.generation.finish, Finish::Stop, "{}", whole.text);
        let document: serde_json::Value =
            serde_json::from_str(&whole.text).unwrap_or_else(|e| panic!("{e}: {}", whole.text));
        let ages = document["ages"].as_array().unwrap();
        assert!(document["name"].is_string() && ages.len() == 2 && ages.iter().all(serde_json::Value::is_number));
    }
    served.stop().unwrap();
}

#[test]
fn a_reply_that_nobody_waits_for_ends_whether_it_runs_or_waits() {
    let served = start(ServerSettings::default(), loader(ModelFiles::BuiltIn, None, options(1), false));
    let model = served.service.model().unwrap();
    let flags: Vec<Arc<AtomicBool>> = (0..2).map(|_| Arc::default()).collect();
    let long = || Request { ignore_eos: true, ..greedy(question("Hello"), 200) };
    let submit = |flag: &Arc<AtomicBool>| {
        let flag = flag.clone();
        served
            .service
            .submit(&model, &[long()], client(1), Arc::new(move || flag.load(Ordering::SeqCst)), Instant::now())
            .unwrap()
    };
    let (mut runs, mut waits) = (submit(&flags[0]), submit(&flags[1]));
    assert!(matches!(runs.next(), Some((0, Event::Token(_)))));
    flags[1].store(true, Ordering::SeqCst);
    wait_until("the one that waits is gone", || served.service.metrics.cancelled.get() == 1);
    assert_eq!(served.service.engine.len(), 0);
    flags[0].store(true, Ordering::SeqCst);
    wait_until("the one that runs is gone", || served.service.metrics.cancelled.get() == 2);
    let mut tokens = 1;
    // Only tokens, then the end of the channel.
    for (_, event) in runs.by_ref() {
        match event {
            Event::Token(_) => tokens += 1,
            event => assert!(matches!(event, Event::Failed(_)), "{event:?}"),
        }
    }
    assert!(tokens < 200, "{tokens}");
    assert!(matches!(waits.next(), Some((0, Event::Failed(_)))));
    // Dropping the events cancels the replies.
    let mut dropped = served.ask(long());
    assert!(matches!(dropped.next(), Some((0, Event::Token(_)))));
    drop(dropped);
    wait_until("the one that was dropped is gone", || served.service.metrics.cancelled.get() == 3);
    // The slot is free.
    assert_eq!(
        served.ask(greedy(question("Hello"), 4)).gather().unwrap()[0].end.as_ref().unwrap().generation.tokens.len(),
        4
    );
    served.stop().unwrap();
}

#[test]
fn a_full_queue_says_when_to_come_back_and_late_replies_end() {
    let settings = ServerSettings { queue: 2, deadline: Some(Duration::from_millis(1)), ..ServerSettings::default() };
    // No engine takes jobs.
    let service = Service::new(settings);
    let checkpoint = ModelFiles::BuiltIn.checkpoint().unwrap();
    let executor = engine::load(&checkpoint, &options(1), &Progress::default()).unwrap();
    let model = Model::open(1, &ModelFiles::BuiltIn, executor.schedule(), executor.device_info()).unwrap();
    let submit = |n, choices| {
        let ask = Request { choices, ..greedy(question("Hello"), 4) };
        service.submit(&model, &[ask], client(n), Arc::new(|| false), Instant::now())
    };
    let mut first = submit(1, 2).unwrap();
    let full = submit(1, 1).err().unwrap();
    let retry: u64 = full.headers.iter().find(|(name, _)| *name == "Retry-After").unwrap().1.parse().unwrap();
    assert!(full.status == 503 && (1..=120).contains(&retry), "{full:?}");
    assert!(submit(2, 0).is_err() && submit(2, 129).is_err());
    let mut late = 0;
    wait_until("they are late", || {
        late += service.engine.sweep();
        service.engine.len() == 0
    });
    assert_eq!(late, 2);
    for choice in 0..2 {
        let Some((of, Event::Failed(e))) = first.next() else { panic!("no failure") };
        let e = ApiError::from(e);
        assert_eq!((of, e.status, e.code), (choice, 504, Some("deadline_exceeded")));
    }
    assert!(first.next().is_none());
    // A single request may be larger than the queue.
    assert!(submit(3, 9).is_ok());
    service.fail(&Error::device("the GPU hangs", "restart"));
    assert_eq!(submit(1, 1).err().unwrap().code, Some("engine_failed"));
}

#[test]
fn the_client_with_the_fewest_running_replies_comes_first() {
    let service = Service::new(ServerSettings::default());
    let checkpoint = ModelFiles::BuiltIn.checkpoint().unwrap();
    let executor = engine::load(&checkpoint, &options(1), &Progress::default()).unwrap();
    let model = Model::open(7, &ModelFiles::BuiltIn, executor.schedule(), executor.device_info()).unwrap();
    for (n, limit) in [(1, 1), (1, 2), (1, 3), (2, 4), (3, 5), (2, 6)] {
        service
            .submit(&model, &[greedy(question("Hello"), limit)], client(n), Arc::new(|| false), Instant::now())
            .unwrap();
    }
    let mut taken: Vec<(Client, usize)> = Vec::new();
    while let Some(job) = service.engine.take(7, |client| taken.iter().filter(|(of, _)| *of == client).count()) {
        taken.push((job.recipient.client, job.request.limit));
    }
    assert_eq!(taken.iter().map(|(_, limit)| *limit).collect::<Vec<_>>(), [1, 4, 5, 2, 6, 3]);
    assert!(service.engine.take(8, |_| 0).is_none(), "another model's");
}

/// An executor that fails or panics in a pass.
struct Faulty {
    inner: Box<dyn Measure>,
    offload: TestOffload,
    /// The number of passes before that.
    left: Arc<AtomicUsize>,
    panics: bool,
    /// The number of passes so far, and the numbers after which it was improved.
    improved: Arc<Mutex<(usize, BTreeSet<usize>)>>,
    /// The least time of a pass.
    pause: Duration,
}

/// The offload of a [`Faulty`]'s device.
#[derive(Default)]
struct TestOffload {
    /// The number of failures; it attends while this is 0. `None`: it never existed.
    failures: Option<Arc<AtomicU32>>,
    /// The device's name while it attends.
    name: String,
    timings: Vec<PlacementTiming>,
}

impl Faulty {
    /// An executor that does not fail yet.
    fn of(inner: Box<dyn Measure>) -> Faulty {
        Faulty {
            inner,
            offload: TestOffload::default(),
            left: Arc::new(AtomicUsize::new(usize::MAX)),
            panics: false,
            improved: Arc::default(),
            pause: Duration::ZERO,
        }
    }

    fn count(&self) -> Result<()> {
        thread::sleep(self.pause);
        self.improved.lock().unwrap().0 += 1;
        match self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)) {
            Ok(_) => Ok(()),
            Err(_) if self.panics => panic!("an injected fault"),
            Err(_) => Err(Error::device("the GPU does not answer", "look at the kernel's log")),
        }
    }
}

impl Executor for Faulty {
    crate::executor_methods!(but device_info of inner);

    fn device_info(&self) -> DeviceInfo<'_> {
        match Measure::offload(self) {
            Some(report) if report.attends.any() => DeviceInfo { name: &self.offload.name, ..self.inner.device_info() },
            _ => self.inner.device_info(),
        }
    }
    fn submit(&mut self, work: Submission<'_>) -> Result<bool> {
        if let Submission::Pass { .. } = work {
            self.count()?;
        }
        self.inner.submit(work)
    }
    fn logits(&mut self, row: usize) -> Result<&[f32]> {
        self.inner.logits(row)
    }
}

impl Measure for Faulty {
    fn offload(&self) -> Option<OffloadReport> {
        let failures = self.offload.failures.as_ref()?.load(Ordering::SeqCst);
        Some(OffloadReport {
            attends: if failures == 0 { OffloadedPasses::ALL } else { OffloadedPasses::NONE },
            failures,
        })
    }
    fn placements(&self) -> &[PlacementTiming] {
        &self.offload.timings
    }
    fn improve(&mut self) -> Result<Option<Duration>> {
        let mut improved = self.improved.lock().unwrap();
        let passes = improved.0;
        improved.1.insert(passes);
        Ok(Some(Duration::from_millis(1)))
    }
    fn submits(&self) -> u64 {
        self.inner.submits()
    }
    fn busy(&self) -> Duration {
        self.inner.busy()
    }
    fn forward_watched(&mut self, rows: &[Row], head: Option<HeadRows>, watch: Watch<'_>) -> Result<()> {
        self.inner.forward_watched(rows, head, watch)
    }
    fn time_steps(&mut self, rows: &[Row], head: HeadRows, repetitions: usize) -> Result<Vec<KernelTiming>> {
        self.inner.time_steps(rows, head, repetitions)
    }
    fn time_segment(&mut self, segment: Segment, rows: &[Row], head: HeadRows, replays: usize) -> Result<f64> {
        self.inner.time_segment(segment, rows, head, replays)
    }
    fn measure_read_ceiling(&mut self) -> Result<f64> {
        match self.left.load(Ordering::SeqCst) {
            0 => Err(Error::device("the GPU does not answer", "look at the kernel's log")),
            _ => self.inner.measure_read_ceiling(),
        }
    }
    fn measure_segment_ceiling(&mut self, segment: Segment) -> Result<f64> {
        self.inner.measure_segment_ceiling(segment)
    }
}

#[test]
fn an_engine_that_fails_or_panics_tells_all_clients_and_ends_with_exit_code_4() {
    for panics in [false, true] {
        let left = Arc::new(AtomicUsize::new(usize::MAX));
        let (load, shared) = (loader(ModelFiles::BuiltIn, None, options(2), false), left.clone());
        let faulty = move |progress: &Progress| -> Result<LoadedExecutor> {
            let inner = load(progress)?.executor;
            let executor: Box<dyn Measure> = Box::new(Faulty { left: shared.clone(), panics, ..Faulty::of(inner) });
            Ok(executor.into())
        };
        let served = start(ServerSettings::default(), Box::new(faulty));
        let long = || Request { ignore_eos: true, ..greedy(question("Hello"), 200) };
        let mut answers: Vec<Replies> = (0..3).map(|_| served.ask(long())).collect();
        assert!(matches!(answers[0].next(), Some((0, Event::Token(_)))));
        left.store(3, Ordering::SeqCst);
        for answers in &mut answers {
            let last = std::iter::from_fn(|| answers.next()).last().unwrap();
            let (_, Event::Failed(e)) = last else { panic!("{last:?}") };
            let e = ApiError::from(e);
            assert_eq!(e.status, 500, "{e:?}");
        }
        assert!(served.service.health.ready().is_err());
        let e = served.done.join().unwrap().unwrap_err();
        assert_eq!(e.exit_code(), 4, "{e}");
    }
}

/// The executor is improved repeatedly while idle, and never between the passes of a reply.
#[test]
fn what_is_not_asked_for_anything_is_improved() {
    let improved: Arc<Mutex<(usize, BTreeSet<usize>)>> = Arc::default();
    let (load, shared) = (loader(ModelFiles::BuiltIn, None, options(2), false), improved.clone());
    let counting = move |progress: &Progress| -> Result<LoadedExecutor> {
        let inner = load(progress)?.executor;
        let executor: Box<dyn Measure> = Box::new(Faulty { improved: shared.clone(), ..Faulty::of(inner) });
        Ok(executor.into())
    };
    let served = start(ServerSettings::default(), Box::new(counting));
    let is_improved = || {
        let improved = improved.lock().unwrap();
        improved.1.contains(&improved.0)
    };
    wait_until("the idle executor is improved", is_improved);
    let before = improved.lock().unwrap().0;
    let whole = served.ask(Request { ignore_eos: true, ..greedy(question("Hello"), 40) }).gather().unwrap();
    assert_eq!(whole[0].tokens.len(), 40);
    wait_until("it is improved behind the reply", is_improved);
    let (passes, at) = improved.lock().unwrap().clone();
    assert!(passes >= before + 40);
    let between: Vec<usize> = at.range(before + 1..passes).copied().collect();
    assert!(between.is_empty(), "improved behind passes {between:?}, of {before} to {passes}");
    served.stop().unwrap();
}

#[test]
fn a_model_is_loaded_anew_while_the_old_one_answers_and_a_damaged_one_is_not_taken() {
    let load = loader(ModelFiles::BuiltIn, None, options(2), false);
    let failure: Arc<Mutex<Option<Error>>> = Arc::default();
    let next = failure.clone();
    let served = start(
        ServerSettings::default(),
        Box::new(move |progress| match next.lock().unwrap().take() {
            Some(e) => Err(e),
            None => load(progress),
        }),
    );
    let reply = |limit| ids(&served.ask(greedy(question("Who are you?"), limit)).gather().unwrap()[0]);
    let before = reply(9);
    let long = served.ask(Request { ignore_eos: true, ..greedy(question("Hello"), 150) });
    served.orders.send(ServerOrder::Reload).unwrap();
    served.wait_for(|notice| *notice == Notice::Reloaded);
    assert_eq!(
        long.gather().unwrap()[0].end.as_ref().unwrap().generation.tokens.len(),
        150,
        "the old model ends what it has begun"
    );
    assert_eq!(reply(9), before);
    *failure.lock().unwrap() = Some(Error::refused("it does not fit", "use a smaller one"));
    served.orders.send(ServerOrder::Reload).unwrap();
    assert!(
        matches!(served.wait_for(|notice| *notice != Notice::Reloaded), Notice::NotReloaded(e) if e.exit_code() == 3)
    );
    assert_eq!(reply(9), before);
    served.stop().unwrap();
}

#[test]
fn requests_for_a_model_whose_engine_has_ended_are_told() {
    let service = Service::new(ServerSettings::default());
    let checkpoint = ModelFiles::BuiltIn.checkpoint().unwrap();
    let executor = engine::load(&checkpoint, &options(1), &Progress::default()).unwrap();
    let model = |id| Model::open(id, &ModelFiles::BuiltIn, executor.schedule(), executor.device_info()).unwrap();
    let submit = |id, n| {
        service.submit(&model(id), &[greedy(question("Hello"), 4)], client(n), Arc::new(|| false), Instant::now())
    };
    // Parsed for one model, and queued after its engine has ended.
    let (mut replaced, mut failed, current) = (submit(1, 1).unwrap(), submit(2, 2).unwrap(), submit(3, 3).unwrap());
    service.engine.end_model(1, None);
    service.engine.end_model(2, Some(&Error::device("the GPU hangs", "restart")));
    for (id, answers, status, code) in
        [(1, &mut replaced, 503, "model_replaced"), (2, &mut failed, 500, "engine_failed")]
    {
        let Some((0, Event::Failed(e))) = answers.next() else { panic!("no failure") };
        let e = ApiError::from(e);
        assert_eq!((e.status, e.code), (status, Some(code)));
        // A later one fails in the same way.
        let e = submit(id, 4).err().unwrap();
        assert_eq!((e.status, e.code), (status, Some(code)));
    }
    assert_eq!((service.engine.len(), service.metrics.refused.get()), (1, 2));
    drop(current);
    assert_eq!(service.engine.sweep(), 1);
    assert!(submit(3, 3).is_ok());
}

#[test]
fn a_request_that_was_read_before_a_reload_is_answered_or_told_to_come_again() {
    let settings = ServerSettings { deadline: Some(PATIENCE), ..ServerSettings::default() };
    let served = start(settings, loader(ModelFiles::BuiltIn, None, options(1), false));
    let old = served.service.model().unwrap();
    served.orders.send(ServerOrder::Reload).unwrap();
    served.wait_for(|notice| *notice == Notice::Reloaded);
    let refused = loop {
        // The old engine may still be running.
        match served.service.submit(
            &old,
            &[greedy(question("Hello"), 2)],
            client(1),
            Arc::new(|| false),
            Instant::now(),
        ) {
            Ok(answers) => match answers.gather() {
                Ok(whole) => assert_eq!(whole[0].tokens.len(), 2),
                Err(e) => assert_eq!(e, EngineError::Replaced),
            },
            Err(e) => break e,
        }
    };
    assert_eq!((refused.status, refused.code), (503, Some("model_replaced")));
    assert!(refused.headers.iter().any(|(name, _)| *name == "Retry-After"));
    served.stop().unwrap();
}

#[test]
fn a_server_that_is_told_to_stop_completes_what_is_under_way_and_one_that_loads_stops_at_once() {
    let served = start(ServerSettings::default(), loader(ModelFiles::BuiltIn, None, options(1), false));
    served.orders.send(ServerOrder::Stop).unwrap();
    served.wait_for(|notice| *notice == Notice::Draining);
    assert!(served.service.health.ready().is_err());
    served.done.join().unwrap().unwrap();

    let (orders, taken) = channel();
    let load = |progress: &Progress| -> Result<LoadedExecutor> {
        loop {
            progress.cancel.check()?;
            thread::yield_now();
        }
    };
    let setup = setup(ServerSettings::default(), Box::new(load));
    let handler = |_| |_: HttpRequest, reply: Responder<'_>| reply.error(&ApiError::not_found("/"));
    let mut notices = Vec::new();
    orders.send(ServerOrder::Stop).unwrap();
    serve(&setup, taken, handler, &mut |notice| notices.push(notice)).unwrap();
    assert_eq!(notices.last(), Some(&Notice::Stopped));
    assert!(notices.contains(&Notice::Draining) && !notices.iter().any(|n| matches!(n, Notice::Ready(_))));
}
