//! An offload that attends in place of the device appears and disappears between loads and while a model answers.

use super::*;
use std::collections::VecDeque;

/// A loader whose executors have these offloads in order; later ones have none.
fn offloads(offloads: Vec<TestOffload>) -> super::super::server::ModelLoader {
    let next = Mutex::new(VecDeque::from(offloads));
    Box::new(move |progress| {
        let inner = loader(ModelFiles::BuiltIn, None, options(2), false)(progress)?.executor;
        let offload = next.lock().unwrap().pop_front().unwrap_or_default();
        let executor: Box<dyn Measure> = Box::new(Faulty { offload, ..Faulty::of(inner) });
        Ok(executor.into())
    })
}

/// A healthy offload, measured to be faster after this many tokens.
fn offload(failures: &Arc<AtomicU32>, depth: usize) -> TestOffload {
    TestOffload {
        failures: Some(failures.clone()),
        name: "the CPU, attention on an offload".into(),
        timings: vec![PlacementTiming { rows: 1, depth, device: 2.0, offload: 1.0 }],
    }
}

impl TestService {
    fn device(&self) -> String {
        self.service.model().unwrap().device()
    }

    /// Whether `/metrics` has this sample.
    fn has(&self, sample: &str) -> bool {
        self.service.metrics.prometheus().lines().any(|line| line.starts_with(sample))
    }

    fn attends(&self) -> bool {
        self.has("kiln_npu_attends{pass=\"decode\"} 1")
    }
}

/// A server that unloads at once. Its offload exists in the first load, not in the second, and again in the third.
fn resting() -> TestService {
    let settings = ServerSettings { idle_unload: Some(Duration::from_millis(1)), ..ServerSettings::default() };
    let failures = Arc::default();
    start(settings, offloads(vec![offload(&failures, 7), TestOffload::default(), offload(&failures, 9)]))
}

/// If an offload is missing after the model is loaded again, the model is still the same, and no request is refused.
#[test]
fn a_model_is_the_same_whoever_attends_when_it_is_loaded_again() {
    let served = resting();
    let id = served.service.model().unwrap().id;
    for _ in 0..3 {
        served.rests();
        served.ask(greedy(question("Hello"), 2)).gather().unwrap();
        served.wait_for(|notice| *notice == Notice::LoadedAgain);
        assert_eq!(served.service.model().unwrap().id, id);
    }
    served.stop().unwrap();
}

#[test]
fn what_is_said_of_a_offload_is_of_the_last_load() {
    let served = resting();
    for attends in [false, true, false] {
        served.rests();
        assert!(!served.attends(), "nobody attends without a model");
        served.ask(greedy(question("Hello"), 2)).gather().unwrap();
        served.wait_for(|notice| *notice == Notice::LoadedAgain);
        // The model may have been unloaded again.
        assert_eq!(served.device().contains("an offload"), attends);
        assert_eq!(served.has("kiln_npu_placement_seconds{rows=\"1\",behind=\"9\""), attends);
        assert!(!served.has("kiln_npu_placement_seconds{rows=\"1\",behind=\"7\""), "of the load before");
    }
    served.stop().unwrap();
}

#[test]
fn an_offload_that_is_lost_is_in_no_name_and_no_metric() {
    let failures = Arc::<AtomicU32>::default();
    let served = start(ServerSettings::default(), offloads(vec![offload(&failures, 7)]));
    assert!(served.attends() && served.device().contains("an offload"), "from the first moment on");
    failures.store(1, Ordering::SeqCst);
    wait_until("it is said to be lost", || !served.attends() && !served.device().contains("an offload"));
    assert!(served.has("kiln_npu_failures_total 1"));
    served.stop().unwrap();
}

#[test]
fn a_model_without_a_offload_takes_over_from_one_with_it() {
    let failures = Arc::default();
    let served = start(ServerSettings::default(), offloads(vec![offload(&failures, 7)]));
    assert!(served.attends() && served.has("kiln_npu_placement_seconds"));
    served.orders.send(ServerOrder::Reload).unwrap();
    served.wait_for(|notice| *notice == Notice::Reloaded);
    assert!(!served.attends() && !served.has("kiln_npu_placement_seconds") && !served.device().contains("an offload"));
    served.stop().unwrap();
}
