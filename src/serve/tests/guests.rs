//! A guest that attends in place of the device comes and goes, from load to load and while a model answers.

use super::*;
use std::collections::VecDeque;

/// Loads whose executors have these guests, one after the other; those after them have none.
fn guests(guests: Vec<TestGuest>) -> super::super::server::ModelLoader {
    let next = Mutex::new(VecDeque::from(guests));
    Box::new(move |progress| {
        let inner = loader(ModelFiles::BuiltIn, None, options(2), false)(progress)?.executor;
        let guest = next.lock().unwrap().pop_front().unwrap_or_default();
        let executor: Box<dyn Measure> = Box::new(Faulty { guest, ..Faulty::of(inner) });
        Ok(executor.into())
    })
}

/// A guest that is well, and was measured to be faster behind so many tokens.
fn guest(failures: &Arc<AtomicU32>, depth: usize) -> TestGuest {
    TestGuest {
        failures: Some(failures.clone()),
        name: "the CPU, attention on a guest".into(),
        timings: vec![PlacementTiming { rows: 1, depth, device: 2.0, guest: 1.0 }],
    }
}

impl TestService {
    fn device(&self) -> String {
        self.service.model().unwrap().device()
    }

    /// Whether `/metrics` has such a sample.
    fn has(&self, sample: &str) -> bool {
        self.service.metrics.prometheus().lines().any(|line| line.starts_with(sample))
    }

    fn attends(&self) -> bool {
        self.has("kiln_npu_attends{pass=\"decode\"} 1")
    }
}

/// A server that rests at once, whose guest is there at first, not when it is loaded again, and there with the third load.
fn resting() -> TestService {
    let settings = ServerSettings { idle_unload: Some(Duration::from_millis(1)), ..ServerSettings::default() };
    let failures = Arc::default();
    start(settings, guests(vec![guest(&failures, 7), TestGuest::default(), guest(&failures, 9)]))
}

/// Where a guest attended and, loaded again, does not, the model is the same: nobody is turned away.
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
fn what_is_said_of_a_guest_is_of_the_last_load() {
    let served = resting();
    for attends in [false, true, false] {
        served.rests();
        assert!(!served.attends(), "nobody attends without a model");
        served.ask(greedy(question("Hello"), 2)).gather().unwrap();
        served.wait_for(|notice| *notice == Notice::LoadedAgain);
        // It may rest again by now.
        assert_eq!(served.device().contains("a guest"), attends);
        assert_eq!(served.has("kiln_npu_placement_seconds{rows=\"1\",behind=\"9\""), attends);
        assert!(!served.has("kiln_npu_placement_seconds{rows=\"1\",behind=\"7\""), "of the load before");
    }
    served.stop().unwrap();
}

#[test]
fn a_guest_that_is_lost_is_in_no_name_and_no_metric() {
    let failures = Arc::<AtomicU32>::default();
    let served = start(ServerSettings::default(), guests(vec![guest(&failures, 7)]));
    assert!(served.attends() && served.device().contains("a guest"), "from the first moment on");
    failures.store(1, Ordering::SeqCst);
    wait_until("it is said to be lost", || !served.attends() && !served.device().contains("a guest"));
    assert!(served.has("kiln_npu_failures_total 1"));
    served.stop().unwrap();
}

#[test]
fn a_model_without_a_guest_takes_over_from_one_with_it() {
    let failures = Arc::default();
    let served = start(ServerSettings::default(), guests(vec![guest(&failures, 7)]));
    assert!(served.attends() && served.has("kiln_npu_placement_seconds"));
    served.orders.send(ServerOrder::Reload).unwrap();
    served.wait_for(|notice| *notice == Notice::Reloaded);
    assert!(!served.attends() && !served.has("kiln_npu_placement_seconds") && !served.device().contains("a guest"));
    served.stop().unwrap();
}
