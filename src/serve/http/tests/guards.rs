//! Hosts, origins and keys.

use super::*;
use std::os::unix::net::UnixStream;

#[test]
fn only_addresses_localhost_and_given_names_are_answered_to() {
    let guard = Guard { names: vec!["Kiln.example".into()], ..Guard::default() };
    let server = RunningServer::new(patient(), guard, echo);
    for (host, status) in [
        ("localhost", 200),
        ("LocalHost.:8080", 200),
        ("127.0.0.1:1", 200),
        ("[::1]:8080", 200),
        ("192.168.1.5", 200),
        ("kiln.example:443", 200),
        ("evil.example", 403),
        ("localhost.evil.example", 403),
        ("127.0.0.1.evil.example", 403),
        ("", 403),
    ] {
        let answer = server.connect().send(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n")).answer();
        assert_eq!(answer.status, status, "{host}");
        let remedy = format!("--host {}", if host.is_empty() { "NAME" } else { host });
        assert!(
            status == 200 || (answer.code() == "host_not_allowed" && answer.text().contains(&remedy)),
            "{answer:?}"
        );
        // The target's authority takes precedence over the header.
        if !host.is_empty() {
            let absolute = format!("GET http://{host}/ HTTP/1.1\r\nHost: localhost\r\n\r\n");
            assert_eq!(server.connect().send(absolute).answer().status, status, "{host}");
        }
    }
    assert_eq!(server.connect().send("GET / HTTP/1.0\r\n\r\n").answer().status, 200);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let server =
        RunningServer::at(&[Listen::Unix { path: path.clone(), mode: 0o600 }], patient(), Guard::default(), echo);
    let mut client = RawClient::new(UnixStream::connect(path).unwrap());
    assert_eq!(client.send("GET / HTTP/1.1\r\nHost: docker\r\n\r\n").answer().status, 200);
    drop(server);
}

#[test]
fn a_page_may_call_only_from_the_very_origin_that_was_given_and_forms_of_others_do_nothing() {
    let guard = Guard { origins: vec!["https://page.example".into()], ..Guard::default() };
    let given = RunningServer::new(patient(), guard, echo);
    let none = RunningServer::echo();
    let ask = |server: &RunningServer, line: &str, fields: &str| {
        let request = format!("{line} HTTP/1.1\r\nHost: localhost:8080\r\n{fields}Content-Length: 0\r\n\r\n");
        server.connect().send(request).answer()
    };
    let shared = |answer: &ByteResponse| answer.header("Access-Control-Allow-Origin").map(str::to_owned);
    let page = "Origin: https://page.example\r\n";
    let method = "Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: authorization, x-a\r\n";

    let asked = given.connect().send(format!("OPTIONS /v1 HTTP/1.1\r\nHost: localhost\r\n{page}{method}\r\n")).head();
    assert_eq!((asked.status, shared(&asked).as_deref()), (204, Some("https://page.example")));
    assert!(asked.header("Access-Control-Allow-Methods").unwrap().contains("POST"));
    assert_eq!(asked.header("Access-Control-Allow-Headers"), Some("authorization, x-a"));
    for line in ["POST /", "GET /", "BREW /"] {
        let answer = ask(&given, line, page);
        assert_eq!(shared(&answer).is_some(), answer.status == 200, "{line}");
    }
    assert_eq!(ask(&given, "GET /", "").header("Vary"), Some("Origin"));
    for origin in ["https://page.example.evil", "http://page.example", "https://page.example:444", "null", "evil"] {
        for server in [&given, &none] {
            let fields = format!("Origin: {origin}\r\n");
            let preflight = ask(server, "OPTIONS /", &(fields.clone() + method));
            assert_eq!((preflight.status, shared(&preflight)), (403, None));
            for line in ["GET /", "POST /"] {
                let answer = ask(server, line, &fields);
                assert_eq!((answer.status, shared(&answer), answer.code()), (403, None, "origin_not_allowed".into()));
                assert!(answer.text().contains(&format!("--cors-origin {origin}")), "{answer:?}");
            }
        }
    }
    let all = RunningServer::new(patient(), Guard { origins: vec!["*".into()], ..Guard::default() }, echo);
    for origin in ["https://anything.example", "null"] {
        let fields = format!("Origin: {origin}\r\n");
        assert_eq!(ask(&all, "OPTIONS /", &(fields.clone() + method)).status, 204);
        let posted = ask(&all, "POST /", &fields);
        assert_eq!((posted.status, shared(&posted)), (200, Some(origin.to_owned())));
    }
    // The server's own page, even behind a proxy that adds TLS.
    for scheme in ["http", "https"] {
        let answer = ask(&none, "POST /", &format!("Origin: {scheme}://localhost:8080\r\n"));
        assert_eq!((answer.status, shared(&answer)), (200, None));
    }
}

#[test]
fn keys_guard_all_but_the_open_paths_and_before_the_body_is_read() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("keys");
    std::fs::write(&path, "# Of the desk:\n first \n\n  # not a key\n second\r\n#").unwrap();
    let keys = ApiKeys::read(&path).unwrap();
    assert_eq!(format!("{keys:?}"), "2 keys");
    let guard = Guard { keys, open_paths: vec!["/livez".into(), "/".into()], ..Guard::default() };
    let server = RunningServer::new(patient(), guard, echo);
    let ask = |path: &str, field: &str| {
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{field}\r\n");
        server.connect().send(request).answer()
    };
    for (path, field, status) in [
        ("/v1", "Authorization: Bearer first\r\n", 200),
        ("/v1", "authorization: bearer  second\r\n", 200),
        ("/v1", "x-api-key: second\r\n", 200),
        ("/v1", "x-api-key: third\r\n", 401),
        ("/v1", "", 401),
        ("/v1", "Authorization: Bearer\r\n", 401),
        ("/v1", "Authorization: Bearer \r\n", 401),
        ("/v1", "Authorization: first\r\n", 401),
        ("/v1", "Authorization: Bearer # not a key\r\n", 401),
        ("/v1", "Authorization: Bearer #\r\n", 401),
        ("/v1", "Authorization: Basic first\r\n", 401),
        ("/v1", "Authorization: Bearer fir\r\n", 401),
        ("/v1", "Authorization: Bearer firsts\r\n", 401),
        ("/v1", "Authorization: Bearer first second\r\n", 401),
        ("/livez", "", 200),
        ("/?a=b", "", 200),
        ("//livez/", "", 200),
        ("//", "", 200),
        ("/livez/v1", "", 401),
        ("//v1/", "", 401),
    ] {
        let answer = ask(path, field);
        assert_eq!(answer.status, status, "{path} {field:?}");
        if status == 401 {
            assert_eq!((answer.code(), answer.header("WWW-Authenticate")), ("invalid_api_key".into(), Some("Bearer")));
            assert!(!answer.text().contains("first"));
        }
    }
    let body = "POST /v1 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n";
    assert_eq!(server.connect().send(body).answer().status, 401);
    // Refusing a request without a body keeps the connection.
    let mut client = server.connect();
    assert_eq!((client.get("/v1").status, client.get("/livez").status), (401, 200));

    std::fs::write(&path, "\n \n# none\n").unwrap();
    assert!(ApiKeys::read(&path).unwrap_err().to_string().contains("has no API keys; write one key on each line"));
    assert_eq!(ApiKeys::read(&directory.path().join("none")).unwrap_err().exit_code(), 2);
    for endless in ["/dev/zero", "/"] {
        let e = ApiKeys::read(std::path::Path::new(endless)).unwrap_err();
        assert!(e.exit_code() == 2 && e.to_string().contains("it is not a regular file"), "{e}");
    }
    std::fs::write(&path, b"\xff").unwrap();
    assert!(ApiKeys::read(&path).unwrap_err().to_string().contains("is not UTF-8"));
}

/// Keys are replaced while the server runs: a revoked key is refused on the next request, even on an open connection.
#[test]
fn keys_change_under_open_connections() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("keys");
    std::fs::write(&path, "old\nboth").unwrap();
    let keys = ApiKeys::read(&path).unwrap();
    let server = RunningServer::new(patient(), Guard { keys: keys.clone(), ..Guard::default() }, echo);
    let mut client = server.connect();
    let mut ask = |key: &str| {
        client.send(format!("GET / HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n\r\n")).answer().status
    };
    assert_eq!(["old", "both", "new"].map(&mut ask), [200, 200, 401]);
    std::fs::write(&path, "both\nnew").unwrap();
    keys.reread().unwrap();
    assert_eq!(["old", "both", "new"].map(&mut ask), [401, 200, 200]);
}

/// Resources are shared by the holder of a key if there are several keys, else by address.
#[test]
fn a_key_is_a_client_where_there_are_several() {
    let of = |keys: &str| {
        let handler = |request: HttpRequest, reply: Responder<'_>| {
            reply.send(200, "text/plain", &[], format!("{:?}", request.client).as_bytes())
        };
        let keys = if keys.is_empty() { ApiKeys::default() } else { ApiKeys::parse(keys).unwrap() };
        let guard = Guard { keys, open_paths: vec!["/open".into()], ..Guard::default() };
        RunningServer::new(patient(), guard, handler)
    };
    let ask = |server: &RunningServer, path: &str, key: &str| {
        let field = format!("Authorization: Bearer {key}\r\n");
        server
            .connect()
            .send(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{field}\r\n"))
            .answer()
            .text()
            .to_owned()
    };
    let address = "Address(127.0.0.1)";
    assert_eq!(ask(&of(""), "/", "any"), address);
    assert_eq!(ask(&of("one"), "/", "one"), address);
    let several = of("one\ntwo");
    let (one, two) = (ask(&several, "/", "one"), ask(&several, "/", "two"));
    assert!(one.starts_with("Key(") && two.starts_with("Key(") && one != two, "{one} {two}");
    assert_eq!(ask(&several, "/", "one"), one);
    assert_eq!(ask(&several, "/open", "none"), address);
}
