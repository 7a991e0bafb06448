//! A model without requests is not in memory, and the next request has it loaded again.

use super::*;
use crate::model::WeightFormat;
use crate::serve::health::Phase;

/// A server whose model rests as soon as it has nothing to do. `next` is how it is loaded next, once.
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
    fn rests(&self) {
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

#[test]
fn a_model_that_rests_is_loaded_anew_by_a_reload_and_a_stop_ends_it() {
    let served = resting(Arc::default());
    served.rests();
    let old = served.service.model().unwrap();
    served.orders.send(ServerOrder::Reload).unwrap();
    served.wait_for(|notice| *notice == Notice::Reloaded);
    wait_until("the old engine has ended", || {
        let e = served.service.submit(&old, &[greedy(question("Hello"), 1)], client(1), Arc::new(|| false)).err();
        e.is_some_and(|e| e.code == Some("model_replaced"))
    });
    assert!(reply(&served).is_ok());
    served.stop().unwrap();
}
