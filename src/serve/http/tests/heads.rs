//! Request lines and headers: refusals, and the parsed values.

use super::*;

/// A request with another header.
fn with(field: &str) -> String {
    format!("GET / HTTP/1.1\r\nHost: localhost\r\n{field}\r\n\r\n")
}

fn post_with(fields: &str) -> String {
    format!("POST / HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n\r\nhello")
}

#[test]
fn what_two_readers_could_take_differently_or_nobody_serves_is_refused_with_its_status_and_the_connection_ends() {
    let server = RunningServer::echo();
    let many = |n| (1..n).map(|i| format!("h{i}: 1\r\n")).collect::<String>();
    let cases: Vec<(Vec<u8>, u16)> = [
        // Lines.
        ("GET / HTTP/1.1\nHost: localhost\r\n\r\n".to_owned(), 400),
        ("GET / HTTP/1.1\r\nHost: localhost\n\n".into(), 400),
        ("GET / HTTP/1.1\r\nHost: local\rhost\r\n\r\n".into(), 400),
        (with("A: b\r\n c"), 400),
        (with("A: b\r\n\tc"), 400),
        (with("A : b"), 400),
        (with("no colon"), 400),
        (with("A: \0"), 400),
        (" GET / HTTP/1.1\r\n".into(), 400),
        ("GET  / HTTP/1.1\r\nHost: localhost\r\n\r\n".into(), 400),
        ("GET /  HTTP/1.1\r\nHost: localhost\r\n\r\n".into(), 400),
        ("GET /  HTTP/2.0\r\nHost: localhost\r\n\r\n".into(), 400),
        // Without a line end, with no further bytes.
        ("\u{16}\u{3}\u{1}\u{2}\u{0}\u{1}".into(), 400),
        ("\r\n\u{16}".into(), 400),
        ("GE\u{0}".into(), 400),
        ("GET / HTTP/1.1 x\r\nHost: localhost\r\n\r\n".into(), 400),
        ("GET /\r\n\r\n".into(), 400),
        ("\u{16}\u{3}\u{1}\u{2}\r\n\r\n".into(), 400),
        // Versions, methods, targets.
        ("GET / HTTP/2.0\r\nHost: localhost\r\n\r\n".into(), 505),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".into(), 505),
        ("GET / HTTP/1.2\r\nHost: localhost\r\n\r\n".into(), 505),
        ("GET / HTTP/one\r\nHost: localhost\r\n\r\n".into(), 400),
        ("BREW / HTTP/1.1\r\nHost: localhost\r\n\r\n".into(), 501),
        ("get / HTTP/1.1\r\nHost: localhost\r\n\r\n".into(), 501),
        ("CONNECT localhost:1 HTTP/1.1\r\nHost: localhost\r\n\r\n".into(), 501),
        ("BREW / HTTP/1.1\r\nHost: localhost\r\n\r\n".into(), 501),
        ("GET x HTTP/1.1\r\nHost: localhost\r\n\r\n".into(), 400),
        ("GET * HTTP/1.1\r\nHost: localhost\r\n\r\n".into(), 400),
        ("GET /a#b HTTP/1.1\r\nHost: localhost\r\n\r\n".into(), 400),
        ("GET ftp://localhost/ HTTP/1.1\r\nHost: localhost\r\n\r\n".into(), 400),
        ("GET http://a@localhost/ HTTP/1.1\r\nHost: localhost\r\n\r\n".into(), 400),
        ("GET /%ff HTTP/1.1\r\nHost: localhost\r\n\r\n".into(), 400),
        ("GET /%00 HTTP/1.1\r\nHost: localhost\r\n\r\n".into(), 400),
        ("GET /?a=%fe HTTP/1.1\r\nHost: localhost\r\n\r\n".into(), 400),
        // Host.
        ("GET / HTTP/1.1\r\n\r\n".into(), 400),
        ("GET http://localhost/ HTTP/1.1\r\n\r\n".into(), 400),
        (with("Host: localhost"), 400),
        ("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n".into(), 400),
        ("GET / HTTP/1.1\r\nHost: localhost:http\r\n\r\n".into(), 400),
        ("GET / HTTP/1.1\r\nHost: [::1\r\n\r\n".into(), 400),
        ("GET / HTTP/1.1\r\nHost: [x]\r\n\r\n".into(), 400),
        // Lengths.
        (post_with("Content-Length: 5\r\nTransfer-Encoding: chunked"), 400),
        (post_with("Content-Length: 5\r\nContent-Length: 5"), 400),
        (post_with("Content-Length: 5, 5"), 400),
        (post_with("Content-Length: +5"), 400),
        (post_with("Content-Length: -5"), 400),
        (post_with("Content-Length: 0x5"), 400),
        (post_with("Content-Length:"), 400),
        (post_with("Content-Length: 8388609"), 413),
        (post_with("Content-Length: 99999999999999999999999999"), 413),
        (post_with("Transfer-Encoding: gzip"), 501),
        (post_with("Transfer-Encoding: gzip, chunked"), 501),
        (post_with("Transfer-Encoding: identity"), 501),
        (post_with("Transfer-Encoding: chunked, gzip"), 400),
        (post_with("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked"), 400),
        (post_with("Transfer-Encoding:"), 501),
        ("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".into(), 400),
        ("POST / HTTP/1.1\r\nHost: localhost\r\n\r\n".into(), 411),
        (post_with("Content-Length: 5\r\nExpect: tea"), 417),
        // Sizes. The first line has no end, which is not needed to see that it is too long.
        (format!("GET /{}", "a".repeat(9000)), 414),
        (format!("GET /{} HTTP/1.1\r\nHost: localhost\r\n\r\n", "a".repeat(9000)), 414),
        (format!("GET / HTTP/1.1\r\nHost: localhost\r\nA: {}", "a".repeat(17000)), 431),
        (format!("GET / HTTP/1.1\r\nHost: localhost\r\n{}\r\n", many(65)), 431),
        (format!("GET / HTTP/1.1\r\nHost: localhost\r\n{}", "a: b\r\n".repeat(65)), 431),
    ]
    .into_iter()
    .map(|(text, status)| (text.into_bytes(), status))
    .chain([(b"GET /\xff HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec(), 400)])
    .collect();
    for (request, status) in cases {
        let name = String::from_utf8_lossy(&request).into_owned();
        let mut client = server.connect();
        let answer = client.send(&request).answer();
        assert_eq!((answer.status, answer.is_whole), (status, true), "{name:?}: {answer:?}");
        assert_eq!(answer.header("Connection"), Some("close"), "{name:?}");
        let error = &answer.json()["error"];
        let kind = if status < 500 { "invalid_request_error" } else { "server_error" };
        assert_eq!(error["type"], kind, "{name:?}");
        assert!(error["message"].as_str().is_some_and(|m| !m.is_empty()), "{name:?}");
        assert!(error.get("param").is_some() && error.get("code").is_some(), "{name:?}");
        client.half_close().assert_ended();
    }
    let fits = format!("GET / HTTP/1.1\r\nHost: localhost\r\n{}\r\n", many(64));
    assert_eq!(server.connect().send(fits).answer().status, 200);
}

#[test]
fn targets_and_queries_are_decoded_and_old_or_odd_forms_are_understood() {
    let server = RunningServer::echo();
    for (line, method, path, query) in [
        ("GET /a%20b/%C3%A9?x=1+2&y&z=%26=&&%C3%A9=", "GET", "/a b/é", vec!["x=1 2", "y=", "z=&=", "é="]),
        ("GET http://127.0.0.1:1/a?b=c", "GET", "/a", vec!["b=c"]),
        ("GET HTTP://localhost", "GET", "/", vec![]),
        ("GET http://localhost?a", "GET", "/", vec!["a="]),
        ("GET //a/../b", "GET", "/a/../b", vec![]),
        ("GET ///", "GET", "/", vec![]),
        ("GET /a//b%2F/?c=/d//", "GET", "/a/b", vec!["c=/d//"]),
        ("GET /100%", "GET", "/100%", vec![]),
        ("DELETE /x", "DELETE", "/x", vec![]),
        ("OPTIONS /x", "OPTIONS", "/x", vec![]),
    ] {
        let request = format!("{line} HTTP/1.1\r\nhOST:localhost\r\nX: caf\u{e9}\r\n\r\n");
        let said = server.connect().send(request).answer().json();
        assert_eq!((&said["method"], &said["path"]), (&method.into(), &path.into()));
        assert_eq!(said["query"], serde_json::json!(query), "{line}");
    }
    // An empty line may remain from the previous request.
    assert_eq!(server.connect().send("\r\n\r\n").get("/").status, 200);
    let answer = server.connect().send("OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n").head();
    assert_eq!((answer.status, answer.header("Content-Length")), (204, None));
    assert!(answer.header("Allow").is_some());
}

#[test]
fn a_connection_goes_on_as_its_version_and_headers_say_and_pipelined_requests_are_answered_in_their_order() {
    let server = RunningServer::echo();
    let mut client = server.connect();
    for n in 0..20 {
        client.send(format!("POST /{n} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\nab"));
    }
    client.send("GET /last HTTP/1.1\r\nHost: localhost\r\nConnection: foo, Close\r\n\r\nGET /never HTTP/1.1\r\n");
    for n in 0..20 {
        assert_eq!(client.answer().json()["path"], format!("/{n}"));
    }
    let last = client.answer();
    assert_eq!((last.status, last.header("Connection")), (200, Some("close")));
    client.half_close().assert_ended();

    let mut client = server.connect();
    for _ in 0..2 {
        let answer = client.send("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n").answer();
        assert_eq!((answer.status, answer.header("Connection")), (200, Some("keep-alive")));
    }
    assert_eq!(client.send("GET / HTTP/1.0\r\n\r\n").answer().header("Connection"), Some("close"));
    client.half_close().assert_ended();
}

#[test]
fn head_is_answered_as_get_with_headers_alone_and_a_path_says_what_methods_it_takes() {
    let handler = |request: HttpRequest, reply: Responder<'_>| match (request.method, request.path.as_str()) {
        (Method::Get, "/stream") => {
            let mut stream = reply.stream(EVENTS)?;
            stream.write(b"data: 1\n\n")?;
            stream.finish()
        }
        (Method::Get, "/") => reply.send(200, "text/plain", &[("X-Quoted", "a\r\nb")], b"hello"),
        _ => reply.error(&ApiError::method_not_allowed(&[Method::Get, Method::Post])),
    };
    let server = RunningServer::new(patient(), Guard::default(), handler);
    let mut client = server.connect();
    let whole = client.get("/");
    let head = client.send("HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\n").head();
    assert_eq!((head.status, head.header("Content-Length")), (200, Some("5")));
    // A quoted value cannot add a header line.
    assert_eq!((whole.header("X-Quoted"), head.header("X-Quoted")), (Some("a  b"), Some("a  b")));
    let stream = client.send("HEAD /stream HTTP/1.1\r\nHost: localhost\r\n\r\n").head();
    assert_eq!((stream.status, stream.header("Content-Type")), (200, Some(EVENTS)));
    // Requests without a body keep the connection.
    for method in ["DELETE", "TRACE", "QUERY"] {
        let refused = client.send(format!("{method} / HTTP/1.1\r\nHost: localhost\r\n\r\n")).answer();
        assert_eq!((refused.status, refused.header("Allow")), (405, Some("GET, HEAD, POST")));
    }
    assert_eq!(client.get("/").text(), "hello");
}
