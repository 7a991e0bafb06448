//! What a reload takes over, and how the server ends whatever becomes of its threads.

use super::*;
use crate::serve::http::Keys;
use crate::serve::server::Reread;

/// The keys and the system prompt are read anew with the model, and stay where they cannot be.
#[test]
fn a_reload_takes_over_keys_and_system_prompt() {
    let (orders, taken) = channel();
    let (say, notices) = channel();
    let (give, given) = channel();
    let keys = Keys::parse("old");
    let next: Arc<Mutex<Option<Result<Reread>>>> = Arc::default();
    let (own, rereads) = (keys.clone(), next.clone());
    let done = thread::spawn(move || {
        let settings = Settings { system: Some("Be brief.".into()), ..Settings::default() };
        let mut setup = setup(settings, loader(ModelFiles::BuiltIn, None, options(1), false));
        setup.guard.keys = own;
        setup.reread = Box::new(move || rereads.lock().unwrap().take().unwrap());
        let handler = |service: Arc<Service>| {
            give.send(service).unwrap();
            |_: Request, reply: Reply<'_>| -> std::result::Result<(), Gone> { reply.error(&ApiError::not_found("/")) }
        };
        serve(&setup, taken, handler, &mut |notice| drop(say.send(notice)))
    });
    let service = given.recv_timeout(PATIENCE).unwrap();
    let served = Served { service, orders, notices, done };
    served.wait_for(|notice| matches!(notice, Notice::Ready(_)));
    let reload = |reread: Result<Reread>| {
        *next.lock().unwrap() = Some(reread);
        served.orders.send(Order::Reload).unwrap();
        served.wait_for(|notice| *notice == Notice::Reloaded);
        served.service.system()
    };
    let has = |key: &str| keys.has(key);
    assert_eq!(served.service.system().as_deref(), Some("Be brief."));
    let new = Reread { keys: Some(Keys::parse("new")), system: Some("Be kind.".into()) };
    assert_eq!(reload(Ok(new)).as_deref(), Some("Be kind."));
    assert!(has("new") && !has("old"));
    assert_eq!(reload(Err(Error::input("keys does not exist", "write it"))).as_deref(), Some("Be kind."));
    assert_eq!(reload(Ok(Reread::default())).as_deref(), Some("Be kind."));
    assert!(has("new"));
    assert_eq!(reload(Ok(Reread { keys: None, system: Some(String::new()) })), None);
    served.stop().unwrap();
}

/// Whoever is told how the server goes may panic: the threads that it watches over end all the same.
#[test]
fn a_panic_of_the_watching_thread_ends_the_server() {
    let (orders, taken) = channel();
    let setup = setup(Settings::default(), loader(ModelFiles::BuiltIn, None, options(1), false));
    let handler = |_| |_: Request, reply: Reply<'_>| reply.error(&ApiError::not_found("/"));
    let e = serve(&setup, taken, handler, &mut |notice| assert!(!matches!(notice, Notice::Ready(_)))).unwrap_err();
    assert!(e.to_string().contains("the thread that watches over the others panicked"), "{e}");
    drop(orders);
}
