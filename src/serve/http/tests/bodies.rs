//! Bodies: with a length or in chunks, within limits, and as JSON.

use super::*;

fn chunked(body: &str) -> String {
    format!("POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: Chunked\r\n\r\n{body}")
}

#[test]
fn chunks_become_a_body_whatever_pieces_they_come_in_and_the_next_request_follows() {
    let server = RunningServer::echo();
    let request = chunked("5;a=\"b\"\r\nhello\r\n00A ;c\r\n, worldly!\r\n0\r\nTrailer: 1\r\n\r\n");
    let mut client = server.connect();
    for byte in request.as_bytes() {
        client.send([*byte]);
    }
    assert_eq!(client.answer().json()["body"], "hello, worldly!");
    assert_eq!(client.send(&request).answer().json()["bytes"], 15);
    assert_eq!(client.send(chunked("0\r\n\r\n")).answer().json()["bytes"], 0);
    assert_eq!(client.get("/").status, 200);
}

#[test]
fn chunks_that_are_malformed_or_too_many_are_refused() {
    let limits = Limits { body_bytes: 100, ..patient() };
    let server = RunningServer::new(limits, Guard::default(), echo);
    for (body, status) in [
        ("x\r\n".to_owned(), 400),
        ("-1\r\n".into(), 400),
        ("+1\r\na\r\n".into(), 400),
        ("0x1\r\na\r\n".into(), 400),
        ("\r\n".into(), 400),
        (";a\r\n".into(), 400),
        (" 1\r\na\r\n".into(), 400),
        ("1;a\rb\r\na\r\n".into(), 400),
        ("1\na\r\n0\r\n\r\n".into(), 400),
        ("1\r\nab\r\n".into(), 400),
        ("1\r\na\n0\r\n\r\n".into(), 400),
        (format!("1;{}", "a".repeat(300)), 400),
        (format!("1;{}\r\na\r\n", "a".repeat(250)).repeat(70), 400),
        ("65\r\n".into(), 413),
        (format!("40\r\n{}\r\n25\r\n", "a".repeat(64)), 413),
        ("fffffffffffffffff\r\n".into(), 400),
        ("ffffffffffffffff\r\n".into(), 413),
        (format!("0\r\n{}", "a: b\r\n".repeat(65)), 431),
        (format!("0\r\na: {}", "b".repeat(17000)), 400),
        ("0\r\nno colon\r\n\r\n".into(), 400),
        ("0\r\na: b\r\n c\r\n\r\n".into(), 400),
    ] {
        let mut client = server.connect();
        let answer = client.send(chunked(&body)).answer();
        assert_eq!(answer.status, status, "{body:?}: {answer:?}");
        client.half_close().assert_ended();
    }
    let most = "a".repeat(100);
    assert_eq!(server.connect().send(chunked(&format!("64\r\n{most}\r\n0\r\n\r\n"))).answer().json()["bytes"], 100);
}

#[test]
fn a_body_over_the_cap_is_refused_before_it_is_sent_and_one_that_is_sent_anyway_does_not_lose_the_answer() {
    let server = RunningServer::echo();
    let head = |length: usize| format!("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n");
    let answer = server.connect().send(head(10 << 20)).answer();
    assert_eq!((answer.status, answer.code()), (413, "body_too_large".into()));
    let answer = server.connect().send(head(10 << 20)).send(vec![b'a'; 10 << 20]).answer();
    assert_eq!((answer.status, answer.is_whole), (413, true));
    let answer = server.connect().send(head(8 << 20)).send(vec![b'a'; 8 << 20]).answer();
    assert_eq!((answer.status, &answer.json()["bytes"]), (200, &(8 << 20).into()));
}

#[test]
fn a_peer_that_waits_to_send_its_body_is_told_to_unless_the_request_is_refused() {
    let server = RunningServer::echo();
    let head = |length: usize| {
        format!("POST / HTTP/1.1\r\nHost: localhost\r\nExpect: 100-Continue\r\nContent-Length: {length}\r\n\r\n")
    };
    let mut client = server.connect();
    assert_eq!(client.send(head(5)).until("\r\n\r\n").unwrap(), "HTTP/1.1 100 Continue\r\n\r\n");
    assert_eq!(client.send("hello").answer().json()["body"], "hello");
    // A client that does not wait gets no 100 Continue.
    assert_eq!(client.send(head(5) + "again").answer().json()["body"], "again");
    assert_eq!(client.send(head(0)).answer().status, 200);
    assert_eq!(client.send(head(9 << 20)).answer().status, 413);
    let old = "POST / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n";
    let mut client = server.connect();
    client.send(old).send("hello");
    assert_eq!(client.answer().status, 200);
    let guard = Guard { keys: ApiKeys::parse("secret").unwrap(), ..Guard::default() };
    let guarded = RunningServer::new(patient(), guard, echo);
    assert_eq!(guarded.connect().send(head(5)).answer().status, 401);
}

#[test]
fn bodies_take_memory_that_is_bounded_for_all_together_as_long_as_they_are_held() {
    let (handler, tells, go) = waiting();
    let limits = Limits { body_bytes: 100_000, memory_bytes: 400_000, ..patient() };
    let server = RunningServer::new(limits, Guard::default(), handler);
    let post = || {
        let mut client = server.connect();
        client.send("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n").send([b'a'; 100_000]);
        client
    };
    let mut held = [post(), post()];
    for _ in &held {
        assert_eq!(tells.recv_timeout(PATIENCE).unwrap(), "asked");
    }
    // Half of the budget is left for other addresses.
    let refused = post().answer();
    assert_eq!((refused.status, refused.code(), refused.is_whole), (503, "overloaded".into(), true));
    assert!(refused.header("Retry-After").is_some());
    assert_eq!(tells.try_recv().ok(), None);
    go.store(true, Ordering::Relaxed);
    held.iter_mut().for_each(|client| assert_eq!(client.answer().status, 200));
    assert_eq!(post().answer().status, 200);
}

/// Takes bodies only on one path.
struct Choosy;

impl Handler for Choosy {
    fn handle(&self, request: HttpRequest, reply: Responder<'_>) -> Result<(), Gone> {
        echo(request, reply)
    }

    fn takes_body(&self, method: Method, path: &str) -> bool {
        (method, path) == (Method::Post, "/takes")
    }
}

#[test]
fn where_none_is_taken_a_body_is_neither_waited_for_nor_kept() {
    let server = RunningServer::new(patient(), Guard::default(), Choosy);
    let head = |line: &str| format!("{line} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n");
    for line in ["GET /takes", "POST /other", "DELETE /takes"] {
        let mut client = server.connect();
        let answer = client.send(head(line)).answer();
        assert_eq!((answer.status, &answer.json()["bytes"]), (200, &0.into()), "{line}");
        assert_eq!(answer.header("Connection"), Some("close"));
        client.send("hello").half_close().assert_ended();
    }
    let mut client = server.connect();
    assert_eq!(client.send(head("POST /takes")).send("hello").answer().json()["body"], "hello");
    assert_eq!(client.get("/other").status, 200);
    assert_eq!(client.send(head("POST /takes")).send("again").answer().json()["body"], "again");
}

#[test]
fn json_may_nest_as_deep_as_it_says_on_the_connections_small_stack_and_no_deeper() {
    let handler = |request: HttpRequest, reply: Responder<'_>| match request.body.json() {
        Ok(value) => reply.json(200, &value),
        Err(e) => reply.error(&e),
    };
    let server = RunningServer::new(patient(), Guard::default(), handler);
    let mut client = server.connect();
    let mut post = |body: &[u8]| {
        client.send(format!("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n", body.len()));
        client.send(body).answer()
    };
    let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    let objects = |depth: usize| "{\"a\":".repeat(depth) + "1" + &"}".repeat(depth);
    assert_eq!(post(nested(JSON_DEPTH).as_bytes()).text(), nested(JSON_DEPTH));
    assert_eq!(post(objects(JSON_DEPTH).as_bytes()).text(), objects(JSON_DEPTH));
    for refused in [nested(JSON_DEPTH + 1), objects(JSON_DEPTH + 1), "[".repeat(8 << 20), "{".into(), "".into()] {
        let answer = post(refused.as_bytes());
        assert_eq!((answer.status, answer.code()), (400, "invalid_json".into()));
    }
    for refused in [b"\"\xff\"".as_slice(), b"\"\xed\xa0\x80\"", b"{} {}", b"\xef\xbb\xbf"] {
        assert_eq!(post(refused).status, 400);
    }
}
