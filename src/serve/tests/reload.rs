//! The settings that a reload applies, and the server's end after failures of its threads.

use super::*;
use crate::serve::http::ApiKeys;
use crate::serve::page::{PageSettings, PageText};
use crate::serve::server::Reread;
use crate::serve::service::Defaults;

/// The keys and the system prompt are read again with the model, and stay if they cannot be.
#[test]
fn a_reload_takes_over_keys_and_system_prompt() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("keys");
    std::fs::write(&path, "old").unwrap();
    let keys = ApiKeys::read(&path).unwrap();
    let next: Arc<Mutex<Option<Result<Reread>>>> = Arc::default();
    let (own, rereads) = (keys.clone(), next.clone());
    let settings = ServerSettings { system: Some("Be brief.".into()), ..ServerSettings::default() };
    let served = start_with(settings, loader(ModelFiles::BuiltIn, None, options(1), false), move |setup| {
        setup.guard.keys = own;
        setup.reread = Box::new(move || rereads.lock().unwrap().take().unwrap());
    });
    let reload = |reread: Result<Reread>| {
        *next.lock().unwrap() = Some(reread);
        served.orders.send(ServerOrder::Reload).unwrap();
        served.wait_for(|notice| *notice == Notice::Reloaded);
        served.service.system.get()
    };
    let has = |key: &str| keys.has(key);
    assert_eq!(served.service.system.get().as_deref(), Some("Be brief."));
    std::fs::write(&path, "new").unwrap();
    let defaults = Defaults { sampler: SamplerConfig::greedy(), limit: 3, ..Defaults::default() };
    let page = PageSettings { titles: vec![PageText::new("Museum")], ..PageSettings::default() };
    let new = Reread { system: Some("Be kind.".into()), defaults: Some(defaults.clone()), page: Some(page.clone()) };
    assert_eq!(reload(Ok(new)).as_deref(), Some("Be kind."));
    assert!(has("new") && !has("old"));
    assert_eq!(*served.service.defaults.get(), defaults);
    assert_eq!(*served.service.page.get(), page);
    std::fs::remove_file(&path).unwrap();
    assert_eq!(reload(Err(Error::input("keys does not exist", "write it"))).as_deref(), Some("Be kind."));
    assert_eq!(reload(Ok(Reread::default())).as_deref(), Some("Be kind."));
    assert!(has("new"));
    assert_eq!(*served.service.defaults.get(), defaults);
    assert_eq!(reload(Ok(Reread { system: Some(String::new()), ..Reread::default() })), None);
    // A system message that leaves no room for a question would break every conversation.
    let long = Reread { system: Some("word ".repeat(500)), ..Reread::default() };
    assert_eq!(reload(Ok(long)), None);
    served.stop().unwrap();
}

/// The callback for notices may panic: the supervised threads end all the same.
#[test]
fn a_panic_of_the_watching_thread_ends_the_server() {
    let (orders, taken) = channel();
    let setup = setup(ServerSettings::default(), loader(ModelFiles::BuiltIn, None, options(1), false));
    let handler = |_| |_: HttpRequest, reply: Responder<'_>| reply.error(&ApiError::not_found("/"));
    let e = serve(&setup, taken, handler, &mut |notice| assert!(!matches!(notice, Notice::Ready(_)))).unwrap_err();
    assert!(e.to_string().contains("the thread that watches over the others panicked"), "{e}");
    drop(orders);
}

/// When the notice of draining arrives, the server refuses new requests already.
#[test]
fn a_server_that_says_that_it_stops_is_ready_no_more() {
    let (orders, taken) = channel();
    let quick = setup(ServerSettings::default(), loader(ModelFiles::BuiltIn, None, options(1), false));
    let service: std::sync::OnceLock<Arc<Service>> = std::sync::OnceLock::new();
    let handler = |own: Arc<Service>| {
        let _ = service.set(own);
        |_: HttpRequest, reply: Responder<'_>| -> std::result::Result<(), Gone> {
            reply.error(&ApiError::not_found("/"))
        }
    };
    let mut found = Vec::new();
    serve(&quick, taken, handler, &mut |notice| match notice {
        Notice::Ready(_) => orders.send(ServerOrder::Stop).unwrap(),
        Notice::Draining => found.push(service.get().unwrap().health.ready()),
        _ => {}
    })
    .unwrap();
    assert_eq!(found, [Err("the server is stopping".to_owned())]);
}
