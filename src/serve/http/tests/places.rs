//! Places that a server listens on.

use super::*;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, Stdio};

fn refusal(at: Listen, guard: Guard) -> String {
    let e = Server::bind(&[at], patient(), guard).unwrap_err();
    assert_eq!(e.exit_code(), 2);
    e.to_string()
}

#[test]
fn an_address_that_others_reach_is_refused_unless_keys_guard_it_or_the_user_wants_it() {
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"] {
        let said = refusal(Listen::Tcp(address.parse().unwrap()), Guard::default());
        assert!(said.contains("no API keys guard it; set API keys"), "{said}");
    }
    let everywhere = Listen::Tcp("0.0.0.0:0".parse().unwrap());
    let keys = Guard { keys: ApiKeys::parse("a").unwrap(), ..Guard::default() };
    assert!(Server::bind(std::slice::from_ref(&everywhere), patient(), keys).is_ok());
    assert!(Server::bind(&[everywhere], patient(), Guard { open_to_all: true, ..Guard::default() }).is_ok());
    let running = RunningServer::echo();
    let said = refusal(Listen::Tcp(running.address), Guard::default());
    assert!(
        said.starts_with(&format!("cannot listen on {}: ", running.address)) && said.contains("; choose"),
        "{said}"
    );
    assert_eq!(Listen::default(), Listen::Tcp("127.0.0.1:8080".parse().unwrap()));
}

#[test]
fn a_unix_socket_has_its_mode_and_knows_its_peer_and_goes_away_with_the_server_unless_another_took_its_place() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let at = Listen::Unix { path: path.clone(), mode: 0o640 };
    let peer = |request: HttpRequest, reply: Responder<'_>| {
        reply.send(200, "text/plain", &[], format!("{:?}", request.peer).as_bytes())
    };
    let server = RunningServer::at(std::slice::from_ref(&at), patient(), Guard::default(), peer);
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o640);
    let answer = RawClient::new(UnixStream::connect(&path).unwrap()).get("/");
    let user = std::fs::metadata("/proc/self").unwrap().uid();
    assert!(answer.text().starts_with(&format!("Unix {{ pid: {}, user: {user}, ", std::process::id())), "{answer:?}");
    // A socket in use cannot be opened.
    let said = refusal(at.clone(), Guard::default());
    assert!(said.contains("choose another, or end what listens there"), "{said}");
    assert_eq!(RawClient::new(UnixStream::connect(&path).unwrap()).get("/").status, 200);
    drop(server);
    assert!(!path.exists());

    // An abandoned socket is replaced, but a file of another kind is not.
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let server = RunningServer::at(std::slice::from_ref(&at), patient(), Guard::default(), echo);
    assert_eq!(RawClient::new(UnixStream::connect(&path).unwrap()).get("/").status, 200);
    std::fs::remove_file(&path).unwrap();
    let _other = UnixListener::bind(&path).unwrap();
    drop(server);
    assert!(path.exists());
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, "precious").unwrap();
    assert!(refusal(at, Guard::default()).contains("is not a socket"));
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    let nowhere = Listen::Unix { path: directory.path().join("none/socket"), mode: 0o600 };
    assert!(refusal(nowhere, Guard::default()).ends_with("; create its directory"));
}

#[test]
fn a_place_has_keys_of_its_own_or_none() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let tcp = SocketAddr::from(([127, 0, 0, 1], 0));
    let at = [Listen::Tcp(tcp), Listen::Unix { path: path.clone(), mode: 0o600 }];
    let keys = |text: &str| ApiKeys::parse(text).unwrap();
    let client = |request: HttpRequest, reply: Responder<'_>| {
        let is_key = matches!(request.client, crate::serve::http::Client::Key(_));
        reply.json(200, &serde_json::json!(is_key))
    };
    let statuses = |keys_at: Vec<(ListenAddress, ApiKeys)>| {
        let guard = Guard { keys: keys("all"), keys_at, ..Guard::default() };
        let server = RunningServer::at(&at, patient(), guard, client);
        let request = |key: &str| format!("GET / HTTP/1.1\r\nHost: localhost\r\nx-api-key: {key}\r\n\r\n");
        let tcp = ["all", "own", ""].map(|key| server.connect().send(request(key)).answer().status);
        let unix = || RawClient::new(UnixStream::connect(&path).unwrap());
        let unix = ["all", "own", ""].map(|key| unix().send(request(key)).answer().status);
        (tcp, unix, server.connect().send(request("all")).answer().text().to_owned())
    };
    let everywhere = ([200, 401, 401], [200, 401, 401], "false".to_owned());
    assert_eq!(statuses(vec![]), everywhere);
    // The holder of the only key is a client of its own if others connect without a key.
    let none = statuses(vec![(ListenAddress::Named(path.clone()), ApiKeys::default())]);
    assert_eq!(none, ([200, 401, 401], [200, 200, 200], "true".to_owned()));
    let (of_tcp, of_unix, _) = statuses(vec![(ListenAddress::Tcp(tcp), keys("own"))]);
    assert_eq!((of_tcp, of_unix), ([401, 200, 401], [200, 401, 401]));
    // A place reachable from other machines needs keys of its own.
    let open = SocketAddr::from(([0, 0, 0, 0], 0));
    let own = |own: ApiKeys| Guard { keys_at: vec![(ListenAddress::Tcp(open), own)], ..Guard::default() };
    assert!(Server::bind(&[Listen::Tcp(open)], patient(), own(keys("a"))).is_ok());
    let bare = Guard { keys: keys("a"), ..own(ApiKeys::default()) };
    assert!(refusal(Listen::Tcp(open), bare).contains("no API keys guard it"));
    let nowhere = refusal(Listen::Tcp(tcp), own(keys("a")));
    assert!(nowhere.contains("keys are given for 0.0.0.0:0, and nothing listens there; name an address"), "{nowhere}");
}

/// Every user who can read a directory can lock it for any time.
#[test]
fn a_lock_on_the_sockets_directory_stops_nobody() {
    let directory = tempfile::tempdir().unwrap();
    let lock = std::fs::File::open(directory.path()).unwrap();
    lock.lock().unwrap();
    let path = directory.path().join("socket");
    let at = Listen::Unix { path: path.clone(), mode: 0o600 };
    let server = RunningServer::at(&[at], patient(), Guard::default(), echo);
    assert_eq!(RawClient::new(UnixStream::connect(&path).unwrap()).get("/").status, 200);
    drop(server);
    assert!(!path.exists());
}

/// Runs this test in child processes that are started like by a service manager.
#[test]
fn sockets_of_the_service_manager_are_taken_and_stay_open_and_their_exposure_is_checked() {
    const VARIABLE: &str = "KILN_TEST_ACTIVATED";
    if std::env::var_os(VARIABLE).is_some() {
        let named = (ListenAddress::Named("public".into()), ApiKeys::parse("a").unwrap());
        let has_name = std::env::var_os("LISTEN_FDNAMES").is_some();
        let guard = Guard { keys_at: has_name.then_some(named).into_iter().collect(), ..Guard::default() };
        match Server::bind(&[Listen::Activated], patient(), guard) {
            Err(e) => println!("\nrefused: {e}"),
            Ok(server) => {
                let drainer = server.drainer();
                let once = move |request: HttpRequest, reply: Responder<'_>| {
                    drainer.drain(PATIENCE);
                    echo(request, reply)
                };
                server.run(&once);
                println!("\nserved");
            }
        }
        return;
    }
    let this = "sockets_of_the_service_manager_are_taken_and_stay_open_and_their_exposure_is_checked";
    let module = module_path!().split_once("::").unwrap().1;
    // The shell is replaced by the program and keeps its process id.
    let start = |socket: Stdio, given: &str| {
        let mut command = Command::new("sh");
        let script = format!("exec 3<&0 </dev/null; {given} exec \"$0\" --exact \"$1\" --nocapture");
        command.arg("-c").arg(script).arg(std::env::current_exe().unwrap()).arg(format!("{module}::{this}"));
        command.env(VARIABLE, "1").stdin(socket).stdout(Stdio::piped()).spawn().unwrap()
    };
    let said = |process: std::process::Child| String::from_utf8(process.wait_with_output().unwrap().stdout).unwrap();
    const GIVEN: &str = "LISTEN_PID=$$ LISTEN_FDS=1";

    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    for _ in 0..2 {
        // The client waits in the socket before the server starts, as with systemd.
        let mut client = RawClient::new(TcpStream::connect(address).unwrap());
        client.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let process = start(std::os::fd::OwnedFd::from(listener.try_clone().unwrap()).into(), GIVEN);
        assert_eq!(client.answer().status, 200);
        assert!(said(process).contains("\nserved"));
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let unix = UnixListener::bind(&path).unwrap();
    let process = start(std::os::fd::OwnedFd::from(unix).into(), GIVEN);
    assert_eq!(RawClient::new(UnixStream::connect(&path).unwrap()).get("/").status, 200);
    assert!(said(process).contains("\nserved"));
    assert!(path.exists(), "the service manager's socket is not the server's to remove");

    let exposed = std::net::TcpListener::bind("0.0.0.0:0").unwrap();
    let refused = said(start(std::os::fd::OwnedFd::from(exposed).into(), GIVEN));
    assert!(refused.contains("refused: ") && refused.contains("no API keys guard it"), "{refused}");
    // The socket's name from the service manager has keys.
    let exposed = std::net::TcpListener::bind("0.0.0.0:0").unwrap();
    let mut client = RawClient::new(TcpStream::connect(("127.0.0.1", exposed.local_addr().unwrap().port())).unwrap());
    client.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\nGET / HTTP/1.1\r\nHost: localhost\r\nx-api-key: a\r\n\r\n");
    let process = start(std::os::fd::OwnedFd::from(exposed).into(), "LISTEN_FDNAMES=public LISTEN_PID=$$ LISTEN_FDS=1");
    assert_eq!((client.answer().status, client.answer().status), (401, 200));
    assert!(said(process).contains("\nserved"));
    let connected = TcpStream::connect(address).unwrap();
    let refused = said(start(std::os::fd::OwnedFd::from(connected).into(), GIVEN));
    assert!(refused.contains("is a connection; use Accept=no"), "{refused}");
    assert!(said(start(Stdio::null(), GIVEN)).contains("is no TCP or Unix stream socket"));
    assert!(said(start(Stdio::null(), "LISTEN_PID=1 LISTEN_FDS=1")).contains("no sockets were handed over"));
    assert!(said(start(Stdio::null(), "")).contains("no sockets were handed over"));
}
