//! A model without requests is unloaded, and loaded again for the next request.

use super::*;
use crate::Cancel;
use crate::engine::core::{EngineMonitor, Figure};
use crate::model::WeightFormat;
use crate::serve::health::Phase;
use crate::serve::served::{LoadedState, ServedModel};
use crate::serve::server::Reread;
use std::collections::VecDeque;
use std::rc::Rc;

/// A server whose model is unloaded as soon as it is idle. `next` is the result of the next load, used once.
fn resting(next: Arc<Mutex<Option<Result<WeightFormat>>>>) -> TestService {
    let settings = ServerSettings { idle_unload: Some(Duration::from_millis(1)), ..ServerSettings::default() };
    let load = move |progress: &Progress| {
        let weights = next.lock().unwrap().take().unwrap_or(Ok(WeightFormat::Int8))?;
        loader(ModelFiles::BuiltIn, None, Options { weights, ..options(2) }, false)(progress)
    };
    start(settings, Box::new(load))
}

fn reply(served: &TestService) -> std::result::Result<Vec<u32>, ApiError> {
    Ok(ids(&served.ask(greedy(question("Who are you?"), 9)).gather()?[0]))
}

impl TestService {
    pub(super) fn rests(&self) {
        self.wait_for(|notice| *notice == Notice::Unloaded);
        wait_until("it rests", || self.service.health.phase() == Phase::Unloaded);
    }
}

#[test]
fn a_model_without_requests_gives_its_memory_back_and_answers_the_next_as_before() {
    let served = resting(Arc::default());
    let mut replies = Vec::new();
    for _ in 0..3 {
        served.rests();
        let (service, metrics) = (&served.service, served.service.metrics.openmetrics());
        assert!(service.health.ready().is_ok() && service.model().unwrap().name == "demo");
        for gone in ["model_loaded", "weight_memory_bytes", "kv_memory_bytes", "kv_pages"] {
            assert!(metrics.contains(&format!("\nkiln_{gone} 0\n")), "{gone}: {metrics}");
        }
        replies.push(reply(&served).unwrap());
        served.wait_for(|notice| *notice == Notice::LoadedAgain);
    }
    assert!(replies[0].len() == 9 && replies.iter().all(|reply| *reply == replies[0]), "{replies:?}");
    served.rests();
    served.stop().unwrap();
}

#[test]
fn a_request_whose_load_fails_is_told_why_and_the_next_one_tries_again() {
    let next = Arc::<Mutex<_>>::default();
    let served = resting(next.clone());
    let expected = reply(&served).unwrap();
    served.rests();
    *next.lock().unwrap() = Some(Err(Error::refused("it does not fit", "use a smaller one")));
    let e = reply(&served).unwrap_err();
    assert_eq!((e.status, e.code), (503, Some("not_loaded")));
    assert!(e.message.contains("it does not fit") && e.headers.iter().any(|(name, _)| *name == "Retry-After"), "{e:?}");
    served.wait_for(|notice| matches!(notice, Notice::NotLoadedAgain(e) if e.exit_code() == 3));
    assert!(served.service.health.ready().is_ok());
    assert_eq!(reply(&served).unwrap(), expected);
    served.stop().unwrap();
}

#[test]
fn a_model_that_has_changed_meanwhile_is_loaded_as_another() {
    let next = Arc::<Mutex<_>>::default();
    let served = resting(next.clone());
    served.rests();
    let old = served.service.model().unwrap();
    *next.lock().unwrap() = Some(Ok(WeightFormat::Int4));
    let e = reply(&served).unwrap_err();
    assert_eq!((e.status, e.code), (503, Some("model_replaced")));
    served.wait_for(|notice| *notice == Notice::Reloaded);
    assert_ne!(served.service.model().unwrap().id, old.id);
    assert_eq!(reply(&served).unwrap().len(), 9);
    served.stop().unwrap();
}

/// Keys and settings are reloaded at once. Changes of the model are noticed at the next request.
#[test]
fn a_model_that_rests_is_not_loaded_by_a_reload() {
    let loads = Loads::default();
    let (own, (read, rereads)) = (loads.clone(), channel());
    let settings = ServerSettings { idle_unload: Some(Duration::from_millis(1)), ..ServerSettings::default() };
    let served = start_with(settings, Box::new(move |progress| own.load(progress)), move |setup| {
        setup.reread = Box::new(move || {
            read.send(()).unwrap();
            Ok(Reread::default())
        });
    });
    served.rests();
    let old = served.service.model().unwrap();
    for _ in 0..2 {
        served.orders.send(ServerOrder::Reload).unwrap();
        rereads.recv_timeout(PATIENCE).unwrap();
    }
    // The first reload was finished before the second began.
    assert_eq!((loads.begun(), served.service.health.phase()), (1, Phase::Unloaded));
    assert_eq!(reply(&served).unwrap().len(), 9);
    assert_eq!((loads.begun(), served.service.model().unwrap().id), (2, old.id));
    served.stop().unwrap();
}

/// Loads scripted by a test, in order; later loads load the unchanged model.
#[derive(Clone, Default)]
struct Loads {
    next: Arc<Mutex<VecDeque<NextLoad>>>,
    /// The number of loads that have begun.
    begun: Arc<AtomicUsize>,
    /// The number of loads that may continue, in the order in which they began.
    open: Arc<AtomicUsize>,
}

enum NextLoad {
    At(WeightFormat),
    Fails(Error),
    /// Waits for permission, and then loads.
    WaitsFor(WeightFormat),
    /// Its executor fails in the first pass.
    Faulty,
}

impl Loads {
    fn is_next(&self, next: impl IntoIterator<Item = NextLoad>) {
        self.next.lock().unwrap().extend(next);
    }

    fn begun(&self) -> usize {
        self.begun.load(Ordering::SeqCst)
    }

    fn load(&self, progress: &Progress) -> Result<LoadedExecutor> {
        let number = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
        let next = self.next.lock().unwrap().pop_front();
        let load = |weights| loader(ModelFiles::BuiltIn, None, Options { weights, ..options(2) }, false)(progress);
        match next {
            None => load(WeightFormat::Int8),
            Some(NextLoad::At(weights)) => load(weights),
            Some(NextLoad::Fails(e)) => Err(e),
            Some(NextLoad::WaitsFor(weights)) => {
                while self.open.load(Ordering::SeqCst) < number {
                    progress.cancel.check()?;
                    thread::sleep(Duration::from_millis(1));
                }
                load(weights)
            }
            Some(NextLoad::Faulty) => {
                let inner = load(WeightFormat::Int8)?.executor;
                let executor: Box<dyn Measure> = Box::new(Faulty { left: Arc::default(), ..Faulty::of(inner) });
                Ok(executor.into())
            }
        }
    }

    /// A server that unloads when idle, with these loads.
    fn serve(&self, deadline: Option<Duration>) -> TestService {
        let loads = self.clone();
        let idle_unload = Some(Duration::from_millis(1));
        let settings = ServerSettings { idle_unload, deadline, ..ServerSettings::default() };
        let served = start(settings, Box::new(move |progress| loads.load(progress)));
        served.rests();
        served
    }
}

impl TestService {
    /// Waits until the engine of `old` has ended after a takeover.
    fn is_replaced(&self, old: &Model) {
        wait_until("the old engine has ended", || {
            let e = self
                .service
                .submit(old, &[greedy(question("Hello"), 1)], client(1), Arc::new(|| false), Instant::now())
                .err();
            e.is_some_and(|e| e.code == Some("model_replaced"))
        });
    }
}

/// The thread that normally sweeps the queue is loading the model.
#[test]
fn who_waits_for_a_load_keeps_the_deadline_and_who_has_gone_keeps_no_place() {
    let loads = Loads::default();
    let served = loads.serve(Some(Duration::from_secs(3)));
    loads.is_next([NextLoad::WaitsFor(WeightFormat::Int8)]);
    let (stays, goes) = (served.ask(greedy(question("Hello"), 1)), served.ask(greedy(question("Hello"), 1)));
    let (service, metrics) = (&served.service, &served.service.metrics);
    drop(goes);
    wait_until("who has gone is taken out", || service.engine.len() == 1);
    let e = ApiError::from(stays.gather().unwrap_err());
    assert_eq!((e.status, e.code), (504, Some("deadline_exceeded")));
    wait_until("it is counted", || (metrics.cancelled.get(), metrics.waiting.get()) == (2, 0));
    assert_eq!(service.health.phase(), Phase::LoadingAgain);
    loads.open.store(usize::MAX, Ordering::SeqCst);
    served.wait_for(|notice| *notice == Notice::LoadedAgain);
    served.stop().unwrap();
}

#[test]
fn a_model_that_takes_over_as_the_old_one_is_unloaded_counts_as_loaded() {
    let Setup { files, load, .. } =
        setup(ServerSettings::default(), loader(ModelFiles::BuiltIn, None, options(1), false));
    let service = Service::new(ServerSettings::default());
    let open = |id| {
        let (cancel, loaded) = (Cancel::default(), LoadedState::default());
        let (files, load, service) = (&files, &load, &service);
        let model = ServedModel { id, files, load, service, prefix_file: None, cancel, send: &|_| (), loaded };
        let thread = Rc::new(model).thread();
        let (core, _) = thread.start().unwrap();
        (thread.owner, core)
    };
    let ((old, first), (new, second)) = (open(1), open(2));
    old.note(Figure::Ready { core: &first, again: false });
    let is_loaded = || service.metrics.openmetrics().contains("\nkiln_model_loaded 1\n");
    assert!(is_loaded());
    old.note(Figure::Unloaded);
    assert_eq!((is_loaded(), service.health.phase()), (false, Phase::Unloaded));
    new.note(Figure::Ready { core: &second, again: true });
    assert_eq!((is_loaded(), service.health.phase()), (false, Phase::Unloaded), "the old one is the current one");
    new.note(Figure::Ready { core: &second, again: false });
    old.note(Figure::Unloaded);
    assert_eq!((is_loaded(), service.health.phase()), (true, Phase::Ready));
}

#[test]
fn a_stop_ends_a_load_again_after_a_reload_that_failed() {
    let loads = Loads::default();
    let served = loads.serve(None);
    let refused = NextLoad::Fails(Error::refused("it does not fit", "use a smaller one"));
    loads.is_next([NextLoad::WaitsFor(WeightFormat::Int8), refused, NextLoad::WaitsFor(WeightFormat::Int8)]);
    let waits = served.ask(greedy(question("Hello"), 1));
    wait_until("it is loaded again", || loads.begun() == 2);
    served.orders.send(ServerOrder::Reload).unwrap();
    served.wait_for(|notice| matches!(notice, Notice::NotReloaded(_)));
    loads.open.store(2, Ordering::SeqCst);
    waits.gather().unwrap();
    served.rests();
    let waits = served.ask(greedy(question("Hello"), 1));
    wait_until("it is loaded again", || loads.begun() == 4);
    drop(waits);
    served.orders.send(ServerOrder::Stop).unwrap();
    wait_until("it ends", || served.done.is_finished());
    served.done.join().unwrap().unwrap();
}

#[test]
fn a_model_that_another_is_to_replace_is_not_loaded_again_beside_it() {
    let loads = Loads::default();
    let served = loads.serve(None);
    loads.is_next([NextLoad::WaitsFor(WeightFormat::Int8), NextLoad::WaitsFor(WeightFormat::Int8)]);
    let first = served.ask(greedy(question("Hello"), 1));
    wait_until("it is loaded again", || loads.begun() == 2);
    served.orders.send(ServerOrder::Reload).unwrap();
    wait_until("it is loaded anew", || loads.begun() == 3);
    loads.open.store(2, Ordering::SeqCst);
    first.gather().unwrap();
    served.rests();
    let waits = served.ask(greedy(question("Hello"), 1));
    // Long enough for a forbidden load to begin.
    thread::sleep(Duration::from_millis(100));
    assert_eq!((loads.begun(), served.service.health.phase()), (3, Phase::Unloaded));
    loads.open.store(usize::MAX, Ordering::SeqCst);
    assert_eq!(waits.gather().unwrap_err(), EngineError::Replaced);
    assert!(reply(&served).is_ok());
    served.stop().unwrap();
}

#[test]
fn files_that_have_changed_are_not_loaded_once_more_where_a_reload_has_taken_them_over() {
    let loads = Loads::default();
    let served = loads.serve(None);
    let old = served.service.model().unwrap();
    loads.is_next([NextLoad::WaitsFor(WeightFormat::Int4)]);
    let waits = served.ask(greedy(question("Hello"), 1));
    wait_until("it is loaded again", || loads.begun() == 2);
    served.orders.send(ServerOrder::Reload).unwrap();
    served.wait_for(|notice| *notice == Notice::Reloaded);
    loads.open.store(usize::MAX, Ordering::SeqCst);
    assert_eq!(waits.gather().unwrap_err(), EngineError::Replaced);
    served.is_replaced(&old);
    thread::sleep(Duration::from_millis(100));
    assert_eq!(loads.begun(), 3);
    assert!(reply(&served).is_ok());
    served.stop().unwrap();
}

#[test]
fn who_waits_for_changed_files_that_cannot_be_loaded_is_told_why() {
    let loads = Loads::default();
    let served = loads.serve(None);
    let refused = || NextLoad::Fails(Error::refused("it does not fit", "use a smaller one"));
    loads.is_next([NextLoad::At(WeightFormat::Int4), refused(), refused()]);
    // The second request causes one load, not two.
    for begun in [3, 4] {
        let e = reply(&served).unwrap_err();
        assert_eq!((e.status, e.code, loads.begun()), (503, Some("not_loaded"), begun));
        assert!(e.message.contains("have changed") && e.message.contains("it does not fit"), "{e:?}");
    }
    assert_eq!(reply(&served).unwrap_err().code, Some("model_replaced"));
    assert_eq!(reply(&served).unwrap().len(), 9);
    served.stop().unwrap();
}

#[test]
fn a_device_that_fails_after_a_load_again_does_not_end_the_server() {
    let loads = Loads::default();
    let served = loads.serve(None);
    loads.is_next([NextLoad::Faulty]);
    let e = reply(&served).unwrap_err();
    assert_eq!((e.status, e.code), (503, Some("not_loaded")));
    let said = served.wait_for(|notice| matches!(notice, Notice::LoadedAgain | Notice::NotLoadedAgain(_)));
    assert!(matches!(said, Notice::NotLoadedAgain(e) if e.exit_code() == 4));
    assert_eq!(reply(&served).unwrap().len(), 9);
    served.stop().unwrap();
}
