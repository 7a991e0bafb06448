//! Slow, silent and too many peers, and a system without resources.

use super::*;
use std::process::{Command, Stdio};
use std::sync::Arc;

#[test]
fn who_is_slow_with_headers_or_a_body_gets_408_and_who_sends_nothing_is_left_without_a_word() {
    let limits = Limits { head_time: SHORT, body_time: SHORT, idle_time: SHORT, least_rate: 1 << 30, ..patient() };
    let server = RunningServer::new(limits, Guard::default(), echo);
    for slow in [
        "GET / HTT",
        "GET / HTTP/1.1\r\nHost: localhost\r\nA: b\r\n",
        "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhell",
        "POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel",
        "POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA: b",
    ] {
        let mut client = server.connect();
        assert_eq!(client.send(slow).answer().status, 408, "{slow:?}");
        client.half_close().assert_ended();
    }
    server.connect().assert_ended();
    server.connect().send("\r\n").assert_ended();
    // A keep-alive connection that is idle for too long.
    let mut client = server.connect();
    assert_eq!(client.get("/").status, 200);
    client.assert_ended();
}

#[test]
fn the_deadline_for_headers_is_absolute_so_that_dripping_bytes_do_not_move_it() {
    let limits = Limits { head_time: 3 * SHORT, ..patient() };
    let server = RunningServer::new(limits, Guard::default(), echo);
    let mut client = server.connect();
    client.send("GET / HTTP/1.1\r\nHost: localhost\r\nA: ");
    client.stream.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
    let mut first = [0; 1];
    eventually("the deadline strikes", || {
        client.send("b");
        client.stream.read(&mut first).is_ok_and(|length| length > 0)
    });
    client.read.extend(first);
    client.stream.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(client.answer().status, 408);
}

#[test]
fn the_time_for_a_body_grows_with_what_has_come() {
    let limits = Limits { least_rate: 1000, ..Limits::default() };
    assert_eq!(limits.time_of(0), Duration::ZERO);
    assert_eq!(limits.time_of(2500), Duration::from_millis(2500));
    assert!(Limits { least_rate: 0, ..limits }.time_of(usize::MAX) > Duration::from_secs(1 << 40));
}

#[test]
fn a_reader_that_reads_nothing_ends_its_stream_and_costs_no_more_than_the_time_for_a_write() {
    let (ended, ends) = channel();
    let ended = Mutex::new(ended);
    let handler = move |_: HttpRequest, reply: Responder<'_>| {
        let mut stream = reply.stream("text/plain")?;
        let written = (0..10_000).try_for_each(|_| stream.write(&[b'a'; 64 << 10]));
        ended.lock().unwrap().send(written).unwrap();
        written
    };
    let limits = Limits { write_time: SHORT, least_rate: 1 << 30, ..patient() };
    let server = RunningServer::new(limits, Guard::default(), handler);
    let mut client = server.connect();
    client.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(ends.recv_timeout(PATIENCE).unwrap(), Err(Gone));
    assert!(!client.answer().is_whole);
}

#[test]
fn connections_over_the_cap_are_answered_503_and_closed_and_a_place_that_is_freed_is_given_again() {
    for limits in [Limits { connections: 2, ..patient() }, Limits { connections_per_peer: Some(2), ..patient() }] {
        let server = RunningServer::new(limits, Guard::default(), echo);
        let mut held = [server.connect(), server.connect()];
        for client in &mut held {
            assert_eq!(client.get("/").status, 200);
        }
        let mut third = server.connect();
        let answer = third.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").answer();
        assert_eq!((answer.status, answer.code()), (503, "overloaded".into()));
        assert_eq!((answer.header("Retry-After"), answer.header("Connection")), (Some("1"), Some("close")));
        third.half_close().assert_ended();
        drop(held);
        eventually("a freed place is given again", || server.connect().get("/").status == 200);
    }
}

#[test]
fn a_thousand_connections_at_once_are_each_answered_and_the_server_goes_on() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, soft.max(hard.min(8192)), hard).unwrap();
    let limits = Limits { connections: 300, ..patient() };
    let server = RunningServer::new(limits, Guard::default(), echo);
    let mut clients: Vec<_> = (0..1000).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    }
    let statuses: Vec<u16> = clients.iter_mut().map(|client| client.answer().status).collect();
    let count = |status| statuses.iter().filter(|&&s| s == status).count();
    assert_eq!((count(200), count(503)), (300, 700));
    drop(clients);
    eventually("the server goes on", || server.connect().get("/").status == 200);
}

#[test]
fn a_connection_for_which_there_is_no_thread_is_answered_503() {
    // A stack too large for any address space.
    let limits = Limits { stack_bytes: 1 << 50, ..patient() };
    let server = RunningServer::new(limits, Guard::default(), echo);
    for _ in 0..3 {
        let answer = server.connect().send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").answer();
        assert_eq!((answer.status, answer.code()), (503, "overloaded".into()));
    }
}

/// Runs the server in a child process with a low limit of open files.
#[test]
fn without_room_for_one_more_file_connections_are_turned_away_and_the_server_goes_on() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    const VARIABLE: &str = "KILN_TEST_FEW_FILES";
    if std::env::var_os(VARIABLE).is_some() {
        let server = RunningServer::echo();
        assert_eq!(server.connect().get("/").status, 200);
        let open = std::fs::read_dir("/proc/self/fd").unwrap().count() as u64;
        let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        setrlimit(Resource::RLIMIT_NOFILE, open + 8, hard).unwrap();
        println!("\nport {}", server.address.port());
        let mut end = String::new();
        std::io::stdin().read_line(&mut end).unwrap();
        return;
    }
    let this = "without_room_for_one_more_file_connections_are_turned_away_and_the_server_goes_on";
    let mut command = Command::new(std::env::current_exe().unwrap());
    let module = module_path!().split_once("::").unwrap().1;
    command.args(["--exact", &format!("{module}::{this}"), "--nocapture"]).env(VARIABLE, "1");
    let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut output = RawClient { stream: Pipe(process.stdout.take().unwrap()), read: Vec::new() };
    output.until("\nport ").unwrap();
    let port: u16 = output.until("\n").unwrap().trim().parse().unwrap();
    let connect = || RawClient::new(TcpStream::connect(("127.0.0.1", port)).unwrap());
    let mut clients: Vec<_> = (0..40).map(|_| connect()).collect();
    for client in &mut clients {
        client.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    }
    let statuses: Vec<u16> = clients.iter_mut().map(|client| client.answer().status).collect();
    let count = |status| statuses.iter().filter(|&&s| s == status).count();
    assert!(count(200) > 0 && count(503) > 0 && count(200) + count(503) == 40, "{statuses:?}");
    drop(clients);
    eventually("the server goes on", || connect().get("/").status == 200);
    drop(process.stdin.take());
    assert!(process.wait().unwrap().success());
}

/// A process's output as a readable stream.
struct Pipe(std::process::ChildStdout);

impl Read for Pipe {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        self.0.read(into)
    }
}

impl Write for Pipe {
    fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
        Err(ErrorKind::Unsupported.into())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Connection for Pipe {
    fn half_close(&self) {}
    fn be_patient(&self) {}
}

#[test]
fn a_panic_costs_its_request_a_500_and_one_without_an_answer_too_and_the_connection_goes_on() {
    let handled = Arc::new(AtomicUsize::new(0));
    let count = handled.clone();
    let handler = move |request: HttpRequest, reply: Responder<'_>| {
        count.fetch_add(1, Ordering::Relaxed);
        match request.path.as_str() {
            "/panic" => panic!("a test's panic"),
            "/nothing" => Ok(()),
            _ => echo(request, reply),
        }
    };
    let server = RunningServer::new(patient(), Guard::default(), handler);
    let mut client = server.connect();
    for path in ["/panic", "/nothing", "/panic"] {
        let answer = client.get(path);
        assert_eq!((answer.status, answer.code()), (500, "internal_error".into()));
    }
    assert_eq!(client.get("/").status, 200);
    assert_eq!(handled.load(Ordering::Relaxed), 4);
}
