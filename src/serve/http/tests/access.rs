//! The access log: it has every request once, with its result.

use super::*;
use crate::serve::http::access::{AccessLog, AccessRecord, Outcome};

/// A server with an access log, and the log.
fn logged(
    guard: Guard,
    limits: Limits,
    handler: impl Handler + Send + 'static,
) -> (RunningServer, Receiver<AccessRecord>) {
    let (tell, told) = channel();
    let tell = Mutex::new(tell);
    let log = AccessLog::new(move |access| drop(tell.lock().unwrap().send(access.clone())));
    let server = Server::bind(&[Listen::Tcp(([127, 0, 0, 1], 0).into())], limits, guard).unwrap().with_access_log(log);
    let (address, drainer) = (server.addresses()[0], server.drainer());
    let thread = Some(std::thread::spawn(move || server.run(&handler)));
    (RunningServer { address, drainer, thread }, told)
}

fn handler(request: HttpRequest, reply: Responder<'_>) -> Result<(), Gone> {
    reply.notes().set("tokens", 3);
    match request.path.as_str() {
        "/fail" => reply.stream(EVENTS)?.fail(b"data: no\n\n"),
        "/panic" => panic!("a test's panic"),
        _ => echo(request, reply),
    }
}

#[test]
fn each_request_is_noted_once_with_its_key_and_its_end() {
    let keys = ApiKeys::parse("desk: first").unwrap();
    let guard = Guard { keys, open_paths: vec!["/open".into()], ..Guard::default() };
    let (server, told) = logged(guard, patient(), handler);
    let ask = |text: &str| server.connect().send(text).answer();
    let get = |path: &str, fields: &str| ask(&format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n"));
    let key = "Authorization: Bearer first\r\n";
    let of = |answer: &ByteResponse| {
        let access = told.recv_timeout(PATIENCE).unwrap();
        assert_eq!(answer.header("X-Request-Id"), Some(access.id.as_str()), "{answer:?}");
        assert_eq!(access.status, Some(answer.status));
        assert!(matches!(access.peer, Peer::Tcp(_)) && access.time < PATIENCE);
        let path = access.asked.as_ref().map(|(_, path)| path.clone()).unwrap_or_default();
        (path, access.key.clone().unwrap_or_default(), access.end, access.notes.get("error").cloned())
    };
    let row = |path: &str, key: &str, end, error: Option<&str>| (path.into(), key.into(), end, error.map(Into::into));
    assert_eq!(of(&get("/a", key)), row("/a", "desk", Outcome::Whole, None));
    assert_eq!(of(&get("/open", "")), row("/open", "", Outcome::Whole, None));
    assert_eq!(of(&get("/a", "")), row("/a", "", Outcome::Whole, Some("invalid_api_key")));
    assert_eq!(of(&get("/fail", key)), row("/fail", "desk", Outcome::Failed, None));
    assert_eq!(of(&get("/panic", key)), row("/panic", "desk", Outcome::Whole, Some("internal_error")));
    assert_eq!(of(&ask("BREW /a HTTP/1.1\r\nHost: localhost\r\n\r\n")).2, Outcome::Whole);
    assert_eq!(of(&ask("GET /\u{7f} nonsense\r\n\r\n")).2, Outcome::Whole);
    // A request's own id is kept if it is a plain word.
    let given = |id: &str| get("/a", &format!("{key}X-Request-Id: {id}\r\n"));
    let own = given("trace-7");
    assert_eq!(own.header("X-Request-Id"), Some("trace-7"));
    assert_eq!(of(&own).2, Outcome::Whole);
    for other in ["two words", &"x".repeat(129), "caf\u{e9}"] {
        let answer = given(other);
        assert_ne!(answer.header("X-Request-Id"), Some(other));
        of(&answer);
    }
    assert!(told.try_recv().is_err(), "none is noted twice");
}

#[test]
fn what_the_handler_notes_and_who_is_turned_away_or_leaves_is_in_the_log() {
    let (tell, asked) = channel();
    let tell = Mutex::new(tell);
    let waits = move |request: HttpRequest, reply: Responder<'_>| {
        if request.path != "/wait" {
            return handler(request, reply);
        }
        let watch = reply.watch();
        tell.lock().unwrap().send(()).unwrap();
        while !watch.is_gone() {
            std::thread::yield_now();
        }
        Err(Gone)
    };
    let (server, told) = logged(Guard::default(), Limits { connections: 1, ..patient() }, waits);
    let next = || told.recv_timeout(PATIENCE).unwrap();
    let mut first = server.connect();
    first.send("GET /wait HTTP/1.1\r\nHost: localhost\r\n\r\n");
    asked.recv_timeout(PATIENCE).unwrap();
    assert_eq!(server.connect().answer().status, 503);
    let away = next();
    assert_eq!((away.asked, away.status, away.notes["error"].as_str()), (None, Some(503), Some("overloaded")));
    drop(first);
    let gone = next();
    assert_eq!((gone.status, gone.end), (None, Outcome::Gone));
    eventually("its place is free", || server.connect().get("/a").status == 200);
    let noted = std::iter::from_fn(|| told.recv_timeout(PATIENCE).ok()).find(|access| access.status == Some(200));
    assert_eq!(noted.unwrap().notes["tokens"], 3);
}
