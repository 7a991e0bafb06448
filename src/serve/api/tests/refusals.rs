//! Refused requests, and the answers of a server that cannot serve.

use super::*;
use crate::Error;
use crate::serve::http::{ApiKeys, Handler, Method};
use std::io::Read;

const CHAT: &str = "/v1/chat/completions";
const PLAIN: &str = "/v1/completions";

fn refused(status: u16, param: &str, code: &str) -> (u16, String, String) {
    (status, param.into(), code.into())
}

#[test]
fn a_body_that_is_no_json_object_is_refused() {
    let served = without_engine(ServerSettings::default());
    for path in [CHAT, PLAIN, "/tokenize", "/detokenize"] {
        for body in [&b""[..], b"{", b"{} x", b"[]", b"3", b"{\"a\":\"\xff\"}", b"{\"a\":1e999}", b"{\"a\":NaN}"] {
            assert_eq!(served.post_bytes(path, body).error(), refused(400, "", "invalid_json"), "{path} {body:?}");
        }
        let deep = "[".repeat(100_000);
        assert_eq!(served.post_bytes(path, deep.as_bytes()).error(), refused(400, "", "invalid_json"));
    }
}

/// A grammar has the same limits before compilation, regardless of its field.
#[test]
fn every_way_in_of_a_grammar_is_bounded() {
    let served = without_engine(ServerSettings::default());
    let long = json!({"type": "object", "description": "a".repeat(300 << 10)});
    let attack = "start: T\nT: /.*a.{25}/ & /.*b.{24}/ & /.*c.{23}/ & ~/.*d.{22}/\n";
    let tool = json!({"type": "function", "function": {"name": "f", "parameters": long}});
    let named = json!({"schema": long, "name": "n"});
    let ways = [
        (CHAT, "grammar", json!(attack)),
        (PLAIN, "grammar", json!(attack)),
        (CHAT, "response_format", json!({"type": "json_schema", "json_schema": named})),
        (PLAIN, "response_format", json!({"type": "json_schema", "json_schema": named})),
        (CHAT, "response_format", json!({"type": "json_object", "schema": long})),
        (CHAT, "json_schema", long.clone()),
        (PLAIN, "json_schema", long.clone()),
        (CHAT, "tools", json!([tool])),
        ("/v1/responses", "text", json!({"format": {"type": "json_schema", "schema": long, "name": "n"}})),
        ("/v1/responses", "tools", json!([{"type": "function", "name": "f", "parameters": long}])),
        ("/v1/messages", "tools", json!([{"name": "f", "input_schema": long}])),
        ("/api/chat", "format", long.clone()),
        ("/api/generate", "format", long.clone()),
        ("/api/chat", "tools", json!([tool])),
    ];
    for (path, field, value) in ways {
        let mut body = json!({"model": "demo", "stream": false});
        match path {
            "/v1/messages" => {
                body["max_tokens"] = json!(4);
                body["messages"] = question("hi");
            }
            "/v1/responses" => body["input"] = json!("hi"),
            PLAIN | "/api/generate" => body["prompt"] = json!("hi"),
            _ => body["messages"] = question("hi"),
        }
        body[field] = value;
        let answer = served.post(path, &body);
        assert_eq!(answer.status, 400, "{path} {field}: {}", answer.body);
        // Tools are part of the prompt, so the context's limit applies first.
        let is_prompt = field == "tools" && answer.body.contains("is longer than the context");
        assert!(is_prompt || answer.body.contains("the grammar "), "{path} {field}: {}", answer.body);
    }
}

#[test]
fn wrong_fields_are_named_by_each_path() {
    let served = without_engine(ServerSettings::default());
    let ask = |path: &str, name: &str, value: Value| {
        let mut body = json!({"messages": question("hi"), "prompt": "hi"});
        body[name] = value;
        served.post(path, &body).error()
    };
    for path in [CHAT, PLAIN] {
        for (name, value, code) in [
            ("model", json!(1), "invalid_type"),
            ("temperature", json!(2.5), "invalid_value"),
            ("max_tokens", json!(0), "invalid_value"),
            ("max_tokens", json!(-2), "invalid_value"),
            ("n", json!(129), "invalid_value"),
            ("best_of", json!(5), "unsupported_parameter"),
            ("stream", json!("yes"), "invalid_type"),
            ("stream_options", json!(1), "invalid_type"),
            ("mirostat", json!(2), "unsupported_parameter"),
        ] {
            assert_eq!(ask(path, name, value), refused(400, name, code), "{path}");
        }
        let schema = json!({"type": "json_schema", "json_schema": {"schema": {"not": {"type": "null"}}}});
        let (status, param, _) = ask(path, "response_format", schema);
        assert_eq!((status, param.as_str()), (400, "response_format.json_schema.schema"));
        let (status, param, _) = ask(path, "grammar", json!("root ::= \"a\""));
        assert_eq!((status, param.as_str()), (400, "grammar"), "GBNF");
    }
    assert_eq!(ask(CHAT, "top_logprobs", json!(21)).1, "top_logprobs");
    assert_eq!(ask(CHAT, "messages", json!(null)), refused(400, "messages", "missing_required_parameter"));
    for (name, value) in [("logprobs", json!(6)), ("suffix", json!("x"))] {
        assert_eq!(ask(PLAIN, name, value).1, name);
    }
    for prompt in [
        json!(null),
        json!(1),
        json!([]),
        json!([[]]),
        json!([1536]),
        json!([-1]),
        json!([[1], 2]),
        json!(["a", 1]),
        json!(vec!["a"; 129]),
    ] {
        assert_eq!(ask(PLAIN, "prompt", prompt.clone()).1, "prompt", "{prompt}");
    }
    let both = json!({"prompt": "a", "echo": true, "logprobs": 1});
    assert_eq!(served.post(PLAIN, &both).error(), refused(400, "max_tokens", "invalid_value"));
    let many = json!({"prompt": ["a", "b"], "n": 65});
    assert_eq!(served.post(PLAIN, &many).error().1, "prompt");
    assert_eq!(served.post("/detokenize", &json!({"tokens": [99999]})).error().1, "tokens");
    assert_eq!(served.post("/tokenize", &json!({})).error().1, "prompt");
}

#[test]
fn a_prompt_past_the_context_is_refused_with_both_numbers() {
    let served = without_engine(ServerSettings::default());
    for (path, param, body) in [
        (CHAT, "messages", json!({"messages": question(&"word ".repeat(300))})),
        (CHAT, "messages", json!({"messages": question(&"word ".repeat(100_000))})),
        (PLAIN, "prompt", json!({"prompt": vec![5; 300]})),
        (PLAIN, "prompt", json!({"prompt": "word ".repeat(300)})),
    ] {
        let answer = served.post(path, &body);
        assert_eq!(answer.error(), refused(400, param, "context_length_exceeded"), "{answer:?}");
        let message = answer.json()["error"]["message"].as_str().unwrap().to_owned();
        let numbers: Vec<usize> = message.split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse().ok()).collect();
        assert!(numbers.contains(&256) && numbers.iter().any(|&n| n > 256), "{message}");
    }
}

#[test]
fn paths_and_methods_that_there_are_not_are_refused() {
    let served = without_engine(ServerSettings::default());
    for path in ["/v1", "/v1/chat", "/nothing", "/v1/chat/completions/x"] {
        assert_eq!(served.get(path).error(), refused(404, "", "not_found"), "{path}");
    }
    let answer = served.get(CHAT);
    assert_eq!((answer.error(), answer.header("Allow")), (refused(405, "", "method_not_allowed"), Some("POST")));
    let answer = served.post("/v1/models", &json!({}));
    assert_eq!((answer.status, answer.header("Allow")), (405, Some("GET, HEAD")));
}

#[test]
fn a_server_without_a_model_says_so_and_tells_how_it_does() {
    let served = TestServer::new(ServerSettings::default());
    let answer = served.post(CHAT, &json!({"messages": question("hi")}));
    assert_eq!((answer.error(), answer.header("Retry-After")), (refused(503, "", "loading"), Some("5")));
    assert_eq!(
        (served.get("/livez").status, served.get("/readyz").status, served.get("/health").status),
        (200, 503, 503)
    );
    let ready = served.get("/readyz").json();
    assert_eq!((&ready["ready"], &ready["phase"]), (&json!(false), &json!("loading")));
    assert!(ready["reason"].as_str().unwrap().contains("loading"));
    let status = served.get("/status").json();
    assert_eq!(
        (&status["phase"], &status["model"], &status["ready"]),
        (&json!("loading"), &json!(null), &json!(false))
    );
    let metrics = served.get("/metrics");
    assert!(metrics.header("Content-Type").unwrap().starts_with("text/plain; version=0.0.4"));
    assert!(metrics.body.contains("\n# TYPE kiln_errors_total counter\nkiln_errors_total 1\n"), "{metrics:?}");
    assert!(metrics.body.contains("# HELP kiln_errors_total ") && !metrics.body.contains("# UNIT"), "{metrics:?}");
    let openmetrics = served.service.metrics.openmetrics();
    assert!(
        openmetrics.contains("# TYPE kiln_errors counter\nkiln_errors_total 1\n") && openmetrics.ends_with("# EOF\n")
    );

    let served = without_engine(ServerSettings::default());
    assert_eq!(
        (served.get("/livez").status, served.get("/readyz").status, served.get("/health").status),
        (200, 200, 200)
    );
    let status = served.get("/status").json();
    assert_eq!(
        (&status["phase"], &status["model"], &status["context"]),
        (&json!("ready"), &json!("demo"), &json!(256))
    );
    served.service.fail(&Error::device("the GPU hangs", "restart"));
    assert_eq!((served.get("/livez").status, served.get("/readyz").status), (503, 503));
    assert_eq!(served.post(CHAT, &json!({"messages": question("hi")})).error(), refused(500, "", "engine_failed"));
}

#[test]
fn a_stream_that_waits_has_heartbeats_and_one_that_fails_ends_in_an_error() {
    let settings = ServerSettings { heartbeat: Duration::from_millis(10), ..ServerSettings::default() };
    let served = without_engine(settings.clone());
    let mut stream =
        served.ask("POST", CHAT, json!({"messages": question("hi"), "stream": true}).to_string().as_bytes());
    let whole = served.ask("POST", CHAT, json!({"messages": question("hi")}).to_string().as_bytes());
    let mut begun = Vec::new();
    while !String::from_utf8_lossy(&begun).contains("\n\n:\n\n:\n\n") {
        let mut piece = [0; 256];
        let length = stream.read(&mut piece).unwrap();
        assert!(length > 0, "{:?}", String::from_utf8_lossy(&begun));
        begun.extend_from_slice(&piece[..length]);
    }
    wait("both are in the queue", || served.service.engine.len() == 2);
    served.service.fail(&Error::device("the GPU hangs", "restart"));
    assert_eq!(TextResponse::read(whole).error(), refused(500, "", "engine_failed"));
    let mut rest = String::new();
    let ended = stream.read_to_string(&mut rest);
    let last = rest.split("\n\n").filter(|part| !part.is_empty() && *part != ":").last().unwrap();
    let error: Value = serde_json::from_str(last.strip_prefix("data: ").unwrap()).unwrap();
    assert_eq!(error["error"]["code"], "engine_failed");
    assert!(ended.is_err(), "the connection is cut off");
}

/// Eight megabytes of small lists would need ninety times as much memory when parsed.
#[test]
fn json_that_takes_many_times_its_length_is_refused() {
    let served = without_engine(ServerSettings::default());
    let body = format!("{{\"x\":[{}[0]]}}", "[0],".repeat(500_000));
    for path in [CHAT, PLAIN, "/v1/responses", "/tokenize"] {
        let answer = served.post_bytes(path, body.as_bytes());
        assert_eq!(answer.error(), refused(413, "", "body_too_large"));
    }
    assert_eq!(served.post_bytes("/api/chat", body.as_bytes()).status, 413);
}

#[test]
fn only_paths_that_are_posted_to_take_a_body() {
    let served = without_engine(ServerSettings::default());
    let api = Api::new(served.service.clone());
    for (method, path, takes) in [
        (Method::Post, CHAT, true),
        (Method::Post, "/tokenize", true),
        (Method::Post, "/livez", false),
        (Method::Post, "/nowhere", false),
        (Method::Get, CHAT, false),
        (Method::Get, "/readyz", false),
        (Method::Put, CHAT, false),
    ] {
        assert_eq!(api.takes_body(method, path), takes, "{method} {path}");
    }
}

#[test]
fn a_request_that_finds_the_queue_full_is_asked_to_come_again() {
    let served = without_engine(ServerSettings { queue: 1, ..ServerSettings::default() });
    let waiting = served.ask("POST", CHAT, json!({"messages": question("hi")}).to_string().as_bytes());
    wait("it is in the queue", || served.service.engine.len() == 1);
    let body = json!({"prompt": ["a", "b"], "stream": true});
    let answer = served.post(PLAIN, &body);
    assert_eq!((answer.error(), answer.header("Retry-After")), (refused(503, "", "queue_full"), Some("1")));
    assert_eq!(served.service.engine.len(), 1, "of several prompts all are taken, or none");
    drop(waiting);
}

/// Requests that do not reach the API, even invalid ones, get errors in the format of their path.
#[test]
fn an_error_has_the_shape_of_the_api_whose_path_it_is() {
    let open = without_engine(ServerSettings::default());
    let guard = Guard { keys: ApiKeys::parse("secret").unwrap(), ..Guard::default() };
    let keyed = TestServer::guarded(ServerSettings::default(), guard);
    let many: String = (0..1000).map(|i| format!("A{i}: b\r\n")).collect();
    for (path, shape) in [
        ("/v1/messages", "anthropic"),
        ("/v1/messages/count_tokens", "anthropic"),
        ("/api/chat", "ollama"),
        ("/api/generate", "ollama"),
        ("/v1/chat/completions", "openai"),
        ("/v1/responses", "openai"),
        ("/tokenize", "openai"),
    ] {
        let json = |served: &TestServer, status: u16, method: &str, rest: &str, headers: &str| {
            let request = format!("{method} {path}{rest} HTTP/1.1\r\nConnection: close\r\n{headers}\r\n");
            let answer = TextResponse::read(served.send(request.as_bytes()));
            assert_eq!(answer.status, status, "{path}: {answer:?}");
            let value = answer.json();
            let message = match shape {
                "ollama" => {
                    assert_eq!(value.as_object().unwrap().len(), 1);
                    &value["error"]
                }
                _ => &value["error"]["message"],
            };
            assert!(message.as_str().is_some_and(|message| !message.is_empty()), "{path}: {value}");
            assert_eq!(value.get("type").is_some(), shape == "anthropic", "{path}: {value}");
            assert_eq!(value["error"].get("param").is_some(), shape == "openai", "{path}: {value}");
            value
        };
        let host = "Host: localhost\r\n";
        let unauthorized = json(&keyed, 401, "POST", "", &format!("{host}Content-Length: 0\r\n"));
        let forbidden = json(&open, 403, "POST", "", "Host: evil.example\r\nContent-Length: 0\r\n");
        json(&open, 404, "POST", "/nothing", &format!("{host}Content-Length: 0\r\n"));
        json(&open, 405, "GET", "", host);
        json(&open, 400, "POST", "", &format!("{host}{host}Content-Length: 0\r\n"));
        json(&open, 411, "POST", "", host);
        let large = json(&open, 413, "POST", "", &format!("{host}Content-Length: 99999999999\r\n"));
        json(&open, 415, "POST", "", &format!("{host}Content-Encoding: gzip\r\nContent-Length: 0\r\n"));
        json(&open, 431, "POST", "", &many);
        json(&open, 505, "POST", "?a=b HTTP/3.0\r\nA: b\r\nX: HTTP/9", "");
        if shape == "anthropic" {
            let kinds = [&unauthorized, &forbidden, &large].map(|value| value["error"]["type"].as_str().unwrap());
            assert_eq!(kinds, ["authentication_error", "permission_error", "request_too_large"]);
        }
    }
}

/// By these words gateways and agents know that a shorter conversation helps.
#[test]
fn a_prompt_that_is_too_long_is_refused_in_published_words() {
    let long = "word ".repeat(4000);
    let talk = json!([{"role": "user", "content": long}]);
    let served = without_engine(ServerSettings::default());
    let context = served.get("/v1/models").json()["data"][0]["max_model_len"].clone();
    let published = format!("maximum context length is {context} tokens");
    let published = published.as_str();
    for (path, body, words) in [
        ("/v1/chat/completions", json!({"messages": talk}), published),
        ("/v1/completions", json!({"prompt": long}), published),
        ("/v1/responses", json!({"input": long}), published),
        ("/api/chat", json!({"messages": talk}), published),
        ("/api/generate", json!({"prompt": long}), published),
        ("/v1/messages", json!({"messages": talk, "max_tokens": 1}), "prompt is too long: "),
    ] {
        let answer = served.post(path, &body);
        assert!(answer.status == 400 && answer.body.contains(words), "{path}: {answer:?}");
    }
}

#[test]
fn a_path_with_other_slashes_is_the_same_and_one_that_is_meant_otherwise_names_it() {
    let served = without_engine(ServerSettings::default());
    for path in ["//v1/models", "/v1/models/", "/v1//models", "/v1/models//demo", "/api/tags/"] {
        assert_eq!(served.get(path).status, 200, "{path}");
    }
    for (path, named) in [
        ("/v1/v1/models", "/v1/models is answered"),
        ("/models", "/v1/models is answered"),
        ("/openai/v1/models", "/v1/models is answered"),
        ("/v1/api/tags", "/api/tags is answered"),
        ("/api/pull", "kiln pull"),
        ("/v1/responses/resp_1", "nothing is stored"),
        ("/completion", "/v1/completions"),
        ("/v1", "/openapi.json"),
        ("/nothing/here", "/openapi.json"),
    ] {
        let answer = served.get(path);
        assert!(answer.status == 404 && answer.body.contains(named), "{path}: {answer:?}");
    }
}
