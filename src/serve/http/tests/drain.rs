//! Draining a server.

use super::*;

const REQUEST: &str = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";

#[test]
fn a_drain_ends_idle_connections_finishes_requests_under_way_and_takes_no_others() {
    let (handler, tells, go) = waiting();
    let mut server = RunningServer::new(patient(), Guard::default(), handler);
    let mut idle = server.connect();
    go.store(true, Ordering::Relaxed);
    assert_eq!(idle.get("/").status, 200);
    assert_eq!((tells.recv().unwrap(), tells.recv().unwrap()), ("asked", "answered"));
    go.store(false, Ordering::Relaxed);
    let mut busy = server.connect();
    busy.send(REQUEST);
    assert_eq!(tells.recv_timeout(PATIENCE).unwrap(), "asked");

    server.drainer.drain(PATIENCE);
    assert!(server.drainer.is_draining());
    idle.assert_ended();
    // Another request on the busy connection is not started.
    busy.send(REQUEST);
    // While requests are in progress, new connections are told that the server stops.
    let answer = server.connect().send("GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n").answer();
    assert_eq!((answer.status, answer.code(), answer.is_whole), (503, "stopping".into(), true));
    go.store(true, Ordering::Relaxed);
    let answer = busy.answer();
    assert_eq!((answer.status, answer.header("Connection"), answer.text()), (200, Some("close"), "waited"));
    busy.half_close().assert_ended();
    server.ended();
    assert!(TcpStream::connect(server.address).is_err(), "nobody listens any more");
    assert_eq!(tells.recv().unwrap(), "answered");
    assert!(tells.try_recv().is_err());
}

#[test]
fn a_grace_of_any_length_ends_with_the_last_connection() {
    let mut server = RunningServer::echo();
    assert_eq!(server.connect().get("/").status, 200);
    server.drainer.drain(Duration::MAX);
    server.drainer.drain(Duration::from_secs(u64::MAX));
    server.ended();
}

#[test]
fn a_server_that_is_told_to_stop_before_it_runs_turns_away_who_waits() {
    let server = Server::bind(&[Listen::Tcp(([127, 0, 0, 1], 0).into())], patient(), Guard::default()).unwrap();
    let mut client = RawClient::new(TcpStream::connect(server.addresses()[0]).unwrap());
    client.send(REQUEST);
    server.drainer().drain(PATIENCE);
    server.run(&echo);
    let answer = client.answer();
    assert_eq!((answer.status, answer.code()), (503, "stopping".into()));
}

#[test]
fn after_the_grace_connections_are_cut_and_handlers_see_their_peers_gone_and_a_second_drain_may_end_the_grace() {
    for version in ["1.1", "1.0"] {
        let (told, tells) = channel();
        let told = Mutex::new(told);
        let handler = move |request: HttpRequest, reply: Responder<'_>| {
            let tell = |what| told.lock().unwrap().send(what).unwrap();
            if request.path == "/wait" {
                let watch = reply.watch();
                tell("waiting");
                eventually("the wait ends", || watch.is_gone());
                tell("ended");
                return Err(Gone);
            }
            let mut stream = reply.stream("text/plain")?;
            stream.write(b"begun")?;
            tell("streaming");
            let watch = stream.watch();
            eventually("the stream ends", || watch.is_gone() && stream.write(b"more").is_err());
            tell("ended");
            Err(Gone)
        };
        let mut server = RunningServer::new(patient(), Guard::default(), handler);
        let mut waiting = server.connect();
        waiting.send(format!("GET /wait HTTP/{version}\r\nHost: localhost\r\n\r\n"));
        assert_eq!(tells.recv_timeout(PATIENCE).unwrap(), "waiting");
        let mut streaming = server.connect();
        streaming.send(format!("GET /stream HTTP/{version}\r\nHost: localhost\r\n\r\n"));
        assert_eq!(tells.recv_timeout(PATIENCE).unwrap(), "streaming");
        // A third client is in the middle of its headers.
        let mut slow = server.connect();
        slow.send("GET /");

        server.drainer.drain(10 * PATIENCE);
        server.drainer.drain(Duration::ZERO);
        server.drainer.drain(10 * PATIENCE);
        server.ended();
        assert_eq!((tells.recv().unwrap(), tells.recv().unwrap()), ("ended", "ended"));
        let mut all = Vec::new();
        let end = streaming.stream.read_to_end(&mut all).map_err(|e| e.kind());
        match version {
            "1.0" => assert_eq!(end, Err(ErrorKind::ConnectionReset)),
            _ => assert!(!String::from_utf8(all).unwrap().contains("\r\n0\r\n"), "no last chunk"),
        }
        waiting.assert_ended();
    }
}
