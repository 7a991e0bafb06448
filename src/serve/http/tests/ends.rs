//! Ends of streams, and peers that disconnect or only stop sending.

use super::*;
use std::os::unix::net::UnixStream;

/// Streams two events, and then ends in the way that the path names.
fn streaming(request: HttpRequest, reply: Responder<'_>) -> Result<(), Gone> {
    let mut stream = reply.stream(if request.path.starts_with("/text") { "text/plain" } else { EVENTS })?;
    if request.path.ends_with("/words/panic") {
        stream = stream.with_last_words(|e| format!("last words: {}", e.status));
    }
    stream.write(b"data: 1\n\n")?;
    stream.write(b"")?;
    stream.write(b":\n\n")?;
    match request.path.as_str() {
        path if path.ends_with("/panic") => panic!("a test's panic"),
        "/drop" => Ok(()),
        "/fail" => stream.fail(ApiError::new(500, "words of the handler").to_event().as_bytes()),
        _ => stream.finish(),
    }
}

#[test]
fn a_stream_ends_cleanly_when_it_is_finished_and_otherwise_with_an_error_and_cut_off() {
    let server = RunningServer::new(patient(), Guard::default(), streaming);
    let mut client = server.connect();
    for _ in 0..2 {
        let answer = client.get("/");
        assert_eq!((answer.status, answer.is_whole, answer.text()), (200, true, "data: 1\n\n:\n\n"));
        assert_eq!(
            (answer.header("X-Accel-Buffering"), answer.header("Cache-Control")),
            (Some("no"), Some("no-cache"))
        );
    }
    for (path, words) in [("/panic", "the server failed"), ("/drop", "the server failed"), ("/fail", "words of the")] {
        let mut client = server.connect();
        let answer = client.get(path);
        assert!(!answer.is_whole, "{path}");
        let error = answer.text().strip_prefix("data: 1\n\n:\n\ndata: ").unwrap().strip_suffix("\n\n").unwrap();
        let error: serde_json::Value = serde_json::from_str(error).unwrap();
        assert!(error["error"]["message"].as_str().unwrap().starts_with(words), "{error}");
        client.half_close().assert_ended();
    }
    let answer = server.connect().get("/text/panic");
    assert_eq!((answer.is_whole, answer.text()), (false, "data: 1\n\n:\n\n"));
    for path in ["/words/panic", "/text/words/panic"] {
        let answer = server.connect().get(path);
        assert_eq!((answer.is_whole, answer.text()), (false, "data: 1\n\n:\n\nlast words: 500"), "{path}");
    }
}

#[test]
fn http_1_0_streams_end_with_the_connection_and_by_a_reset_when_cut_off() {
    let server = RunningServer::new(patient(), Guard::default(), streaming);
    let read = |path: &str| {
        let mut stream = server.connect().stream;
        stream.write_all(format!("GET {path} HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").as_bytes()).unwrap();
        let mut all = Vec::new();
        let ended = stream.read_to_end(&mut all);
        (ended.map_err(|e| e.kind()), String::from_utf8(all).unwrap())
    };
    let (ended, text) = read("/");
    assert!(ended.is_ok() && text.ends_with("\r\n\r\ndata: 1\n\n:\n\n"), "{text}");
    assert!(!text.contains("Transfer-Encoding") && text.contains("\r\nConnection: close\r\n"), "{text}");
    for path in ["/fail", "/drop", "/text/panic"] {
        assert_eq!(read(path).0, Err(ErrorKind::ConnectionReset), "{path}");
    }
}

#[test]
fn each_write_goes_out_before_the_next_is_made() {
    let (go, goes) = channel::<()>();
    let goes = Mutex::new(goes);
    let handler = move |_: HttpRequest, reply: Responder<'_>| {
        let mut stream = reply.stream(EVENTS)?;
        for n in 0..3 {
            goes.lock().unwrap().recv().unwrap();
            stream.write(format!("data: {n}\n\n").as_bytes())?;
        }
        stream.finish()
    };
    let server = RunningServer::new(patient(), Guard::default(), handler);
    let mut client = server.connect();
    client.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(client.head().status, 200);
    for n in 0..3 {
        go.send(()).unwrap();
        assert_eq!(client.until("\n\n\r\n").unwrap(), format!("9\r\ndata: {n}\n\n\r\n"));
    }
    assert_eq!(client.until("\r\n\r\n").unwrap(), "0\r\n\r\n");
}

#[test]
fn a_peer_that_closes_is_gone_and_one_that_only_stopped_sending_or_pipelines_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let (handler, tells, go) = waiting();
    let tcp = Listen::Tcp(([127, 0, 0, 1], 0).into());
    let places = [tcp, Listen::Unix { path: path.clone(), mode: 0o600 }];
    let server = RunningServer::at(&places, patient(), Guard::default(), handler);
    check(&server, &|| server.connect(), true, &tells, go);
    check(&server, &|| RawClient::new(UnixStream::connect(&path).unwrap()), false, &tells, go);
}

/// The cases on one kind of socket.
fn check<S: Connection>(
    server: &RunningServer,
    connect: &dyn Fn() -> RawClient<S>,
    is_tcp: bool,
    tells: &Receiver<&'static str>,
    go: &AtomicBool,
) {
    const REQUEST: &str = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let told = || tells.recv_timeout(PATIENCE).unwrap();
    for requests in [1, 2] {
        // Closed, with and without another unread request.
        go.store(false, Ordering::Relaxed);
        let mut client = connect();
        client.send(REQUEST.repeat(requests));
        assert_eq!(told(), "asked");
        drop(client);
        assert_eq!(told(), "gone");
        // Only its sending side is shut down: it still gets all answers.
        let mut client = connect();
        client.send(REQUEST.repeat(requests));
        assert_eq!(told(), "asked");
        client.half_close();
        if is_tcp {
            // The handler's check has sent the first bytes of the answer.
            while client.read.len() < 9 && client.more() {}
            assert_eq!(client.read, b"HTTP/1.1 ");
        }
        go.store(true, Ordering::Relaxed);
        for request in 0..requests {
            let answer = client.answer();
            assert_eq!((answer.status, answer.text()), (200, "waited"));
            assert_eq!(told(), "answered");
            if request + 1 < requests {
                assert_eq!(told(), "asked");
            }
        }
        client.assert_ended();
    }
    // The disconnected clients have not affected the server.
    assert!(!server.drainer.is_draining());
    assert_eq!(connect().get("/").status, 200);
    assert_eq!((told(), told()), ("asked", "answered"));
}

#[test]
fn a_peer_that_closes_amid_a_stream_is_found_by_the_next_writes() {
    let (told, tells) = channel();
    let told = Mutex::new(told);
    let handler = move |_: HttpRequest, reply: Responder<'_>| {
        let mut stream = reply.stream(EVENTS)?;
        let watch = stream.watch();
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            let written = stream.write(b":\n\n");
            if written.is_err() || watch.is_gone() {
                told.lock().unwrap().send("gone").unwrap();
                return Err(Gone);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        stream.finish()
    };
    let server = RunningServer::new(patient(), Guard::default(), handler);
    let mut client = server.connect();
    client.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(client.head().status, 200);
    drop(client);
    assert_eq!(tells.recv_timeout(PATIENCE).unwrap(), "gone");
}

#[test]
fn a_watch_outlives_its_connection_and_says_that_it_has_ended() {
    let (told, tells) = channel();
    let told = Mutex::new(told);
    let handler = move |request: HttpRequest, reply: Responder<'_>| {
        told.lock().unwrap().send(reply.watch()).unwrap();
        echo(request, reply)
    };
    let server = RunningServer::new(patient(), Guard::default(), handler);
    let mut client = server.connect();
    assert_eq!(client.get("/").status, 200);
    let watch = tells.recv().unwrap();
    assert!(!watch.is_gone());
    drop(client);
    eventually("the connection has ended", || watch.is_gone());
}

#[test]
fn a_request_that_is_cut_short_is_refused_to_who_still_reads() {
    let server = RunningServer::echo();
    for cut in ["GET / HTT", "GET / HTTP/1.1\r\n", "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhel"]
    {
        let mut client = server.connect();
        assert_eq!(client.send(cut).half_close().answer().status, 400, "{cut:?}");
        client.assert_ended();
    }
    server.connect().half_close().assert_ended();
}
