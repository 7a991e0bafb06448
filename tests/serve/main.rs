//! `kiln serve` as a service manager and other programs see it: its sockets, signals, notices and exit codes. The model is the
//! built-in one, on the CPU.

#[path = "../common/mod.rs"]
mod common;

mod bundles;
mod client;
mod config;
mod fleet;
mod load;
mod manager;
mod prefixes;
mod real;
mod refusals;
mod resources;

use client::{PATIENCE, Server};
use common::golden;
use common::program::kiln;
use nix::sys::signal::Signal;
use serde_json::json;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

#[test]
fn check_answers_once_and_exits() {
    let checked = kiln(&["serve", "--check", "--device", "cpu", "--batch", "2", "--ctx", "256", "--json"]).json();
    assert_eq!((&checked["model"], &checked["slots"], &checked["context"]), (&json!("demo"), &json!(2), &json!(256)));
    assert!(checked["first_token_s"].as_f64().unwrap() > 0.0, "{checked}");
}

/// A thought comes first and is free; the answer behind it has the requested form, and no token that the model
/// suppresses.
#[test]
fn a_thought_comes_before_an_answer_of_a_form() {
    let directory = tempfile::tempdir().unwrap();
    for file in ["config.json", "model.safetensors", "tokenizer.json"] {
        std::fs::copy(golden("thinker").join(file), directory.path().join(file)).unwrap();
    }
    let model = directory.path().to_str().unwrap();
    let answer = |server: &Server, more: serde_json::Value| {
        let question = json!([{"role": "user", "content": "Hello"}]);
        let mut body = json!({"messages": question, "temperature": 0, "max_tokens": 200, "logprobs": true});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let (status, answer) = server.post("/v1/chat/completions", &body);
        assert_eq!(status, 200, "{answer}");
        answer["choices"][0].clone()
    };
    let server = Server::start(&["-m", model]);
    let schema = json!({"type": "object", "properties": {"open": {"enum": [true]}}, "required": ["open"], "additionalProperties": false});
    let format = json!({"type": "json_schema", "json_schema": {"name": "n", "schema": schema}});
    for (thinks, thought) in [(true, json!("A simple question")), (false, json!(null))] {
        let held = answer(&server, json!({"enable_thinking": thinks, "response_format": format}));
        assert_eq!(held["message"]["reasoning_content"], thought, "{held}");
        let text = held["message"]["content"].as_str().unwrap();
        assert_eq!(serde_json::from_str::<serde_json::Value>(text).unwrap(), json!({"open": true}), "{held}");
    }
    let lark = json!({"enable_thinking": true, "grammar": "start: \"The\" | \"This\""});
    let chosen = |choice: &serde_json::Value| {
        let tokens = choice["logprobs"]["content"].as_array().unwrap().iter();
        tokens.map(|token| token["token"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let held = answer(&server, lark.clone());
    assert!(held["message"]["content"] == "The" && chosen(&held).contains(&"Th".into()), "{held}");
    let tokens = kiln(&["tokenize", "-m", model, "--no-bos", "The", "--json"]).json();
    let config = json!({"suppress_tokens": [tokens["ids"][0]]}).to_string();
    std::fs::write(directory.path().join("generation_config.json"), config).unwrap();
    let held = answer(&Server::start(&["-m", model]), lark);
    let text = held["message"]["content"].as_str().unwrap();
    assert!(["The", "This"].contains(&text) && !chosen(&held).contains(&"Th".into()), "{held}");
    assert_eq!(held["message"]["reasoning_content"], "A simple question");
}

#[test]
fn it_answers_at_its_socket_until_it_is_told_to_stop() {
    let mut server = Server::start(&[]);
    assert_eq!(server.path.metadata().unwrap().permissions().mode() & 0o777, 0o660);
    let (status, health) = server.get("/readyz");
    assert_eq!(status, 200, "{health}");
    let question =
        json!({"messages": [{"role": "user", "content": "Who are you?"}], "temperature": 0, "max_tokens": 8});
    let (status, answer) = server.post("/v1/chat/completions", &question);
    let text = answer["choices"][0]["message"]["content"].as_str().unwrap_or_default();
    assert!(status == 200 && !text.is_empty(), "{answer}");
    let alone = kiln(&["run", "-p", "Who are you?", "--device", "cpu", "--ctx", "256", "-n", "8", "--json"]).json();
    assert_eq!(json!(text), alone["text"]);
    let at = server.path.to_str().unwrap().to_owned();
    assert_eq!(kiln(&["status", &at]).stdout, "ready\n");
    assert_eq!(kiln(&["status", &at, "--json"]).json()["ready"]["phase"], "ready");
    server.signal(Signal::SIGTERM);
    assert_eq!(server.wait().code(), Some(0), "{}", server.said());
    assert!(!server.path.exists(), "the socket is left behind");
    kiln(&["status", &at]).refused(1, &["no server answers"]);
    server.wait_to_say("kiln serve: stopped");
    let said = server.said();
    let ready = said.lines().find(|line| line.starts_with("kiln serve: ready")).unwrap();
    let socket = server.path.display().to_string();
    for what in [env!("CARGO_PKG_VERSION"), "demo", "2 replies at once", "a context of 256 tokens", &socket] {
        assert!(ready.contains(what), "{what}: {ready}");
    }
}

#[test]
fn a_reply_that_the_drain_cuts_off_is_in_the_log() {
    let directory = tempfile::tempdir().unwrap();
    // A reply that takes seconds, and a signal at its first byte.
    let options = ["--device", "cpu", "--ctx", "2048", "--batch", "1", "--drain", "0"];
    let mut server = Server::spawn(client::command(directory.path(), &options), directory);
    server.wait_to_say("kiln serve: ready");
    let question = json!({"prompt": "The", "ignore_eos": true, "stream": true, "max_tokens": -1}).to_string();
    let mut stream = server.ask("POST", "/v1/completions", &question);
    let mut begun = [0; 1];
    std::io::Read::read_exact(&mut stream, &mut begun).unwrap();
    server.signal(Signal::SIGTERM);
    assert_eq!(server.wait().code(), Some(0), "{}", server.said());
    server.wait_to_say("was cut off before its end");
    server.wait_to_say("kiln serve: stopped");
}

#[test]
fn with_json_all_that_it_says_is_objects() {
    let directory = tempfile::tempdir().unwrap();
    let mut serve = client::command(directory.path(), &[&client::SMALL[..], &["--json"]].concat());
    serve.env("RUST_LOG", "info");
    let mut server = Server::spawn(serve, directory);
    server.wait_to_say("\"event\":\"ready\"");
    assert_eq!(server.get("/readyz").0, 200);
    server.signal(Signal::SIGTERM);
    assert_eq!(server.wait().code(), Some(0));
    server.wait_to_say("\"event\":\"draining\"");
    server.wait_to_say("\"event\":\"stopped\"");
    for line in server.said().lines() {
        let object: serde_json::Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
        assert!(object["time"].as_f64().unwrap() > 1e9 && object["message"].is_string(), "{line}");
    }
}

/// A reply that is made alone is drafted from the text, also for a grammar and for several choices that come together.
#[test]
fn drafts_change_no_answer_and_are_counted() {
    let directory = tempfile::tempdir().unwrap();
    let plain = Server::start(&[]);
    let questions = [
        json!({"temperature": 0}),
        json!({"temperature": 1.2, "seed": 4, "frequency_penalty": 0.5}),
        json!({"temperature": 1, "seed": 5, "n": 2}),
        json!({"temperature": 0, "logprobs": true, "top_logprobs": 2}),
        json!({"temperature": 0.8, "seed": 6, "response_format": {"type": "json_schema", "json_schema": {"name": "n",
            "schema": {"type": "object", "properties": {"place": {"type": "string", "maxLength": 12}, "open": {"type": "boolean"}},
            "required": ["place", "open"], "additionalProperties": false}}}}),
    ];
    let ask = |server: &Server, question: &serde_json::Value| {
        let mut question = question.clone();
        question["messages"] = json!([{"role": "user", "content": "When does the museum open on Sunday?"}]);
        question["max_tokens"] = json!(40);
        let (status, answer) = server.post("/v1/chat/completions", &question);
        assert_eq!(status, 200, "{answer}");
        answer["choices"].clone()
    };
    let want: Vec<_> = questions.iter().map(|question| ask(&plain, question)).collect();
    let text = want[0][0]["message"]["content"].as_str().unwrap();
    std::fs::write(directory.path().join("answers"), format!("{text}\n{{\"place\": \"museum\", \"open\": true}}\n"))
        .unwrap();
    let file = directory.path().join("answers").display().to_string();
    let server = Server::start_at(directory, &["--draft-text", &file]);
    for (question, want) in questions.iter().zip(&want) {
        assert_eq!(ask(&server, question), *want, "{question}");
    }
    let (drafted, accepted) = (server.metric("kiln_drafted_tokens_total"), server.metric("kiln_accepted_tokens_total"));
    assert!(accepted > 0.0 && drafted >= accepted, "{accepted} of {drafted}");
    assert_eq!(plain.metric("kiln_drafted_tokens_total"), 0.0);
    assert!(server.metric("kiln_decode_tokens_per_pass") >= 0.0);
    assert_eq!(server.metric("kiln_sequences_limit"), 2.0, "rows of a draft are no sequences");
}

#[test]
fn one_that_was_killed_leaves_its_socket_to_the_next() {
    let mut server = Server::start(&[]);
    server.signal(Signal::SIGKILL);
    server.wait();
    assert!(server.path.exists());
    let again = Server::start_at(server.directory.clone(), &[]);
    assert_eq!(again.get("/readyz").0, 200);
}

/// What `kiln top` shows of a server: as many as wait, also once a reload has replaced the engine.
#[test]
fn its_report_counts_those_who_wait_and_outlives_a_reload() {
    let directory = tempfile::tempdir().unwrap();
    let reports = directory.path().join("reports");
    let model = bundles::small_model(directory.path());
    let of = model.display().to_string();
    let mut serve = client::command(directory.path(), &["-m", &of, "--device", "cpu", "--batch", "1"]);
    serve.env("KILN_RUNTIME_DIR", &reports);
    let server = Server::spawn(serve, directory);
    server.wait_to_say("kiln serve: ready");
    let report = |field: &str| {
        let file = std::fs::read(reports.join(format!("{}.json", server.id()))).unwrap_or_default();
        serde_json::from_slice::<serde_json::Value>(&file).ok().and_then(|report| report[field].as_u64()).unwrap_or(0)
    };
    let question = json!({"prompt": "a", "ignore_eos": true, "stream": true, "max_tokens": -1, "n": 16}).to_string();
    let asked = [(); 16].map(|()| server.ask("POST", "/v1/completions", &question));
    config::wait_until("replies wait", || report("queue") > 0);
    drop(asked);
    bundles::touch(&model);
    server.signal(Signal::SIGHUP);
    server.wait_to_say("was loaded anew");
    let decoded = report("decoded");
    assert_eq!(server.post("/v1/completions", &json!({"prompt": "a", "max_tokens": 4})).0, 200);
    config::wait_until("the new engine's tokens are reported", || report("decoded") > decoded);
}

#[test]
fn a_model_that_nobody_asks_rests_and_says_so() {
    let server = Server::start(&["--idle-unload", "1"]);
    let ask = || {
        server
            .post("/v1/chat/completions", &json!({"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 2}))
    };
    server.wait_to_say("the model's memory is free");
    assert_eq!(server.get("/v1/models").1["data"][0]["id"], "demo");
    let (status, health) = server.get("/health");
    assert_eq!((status, &health["status"], &health["ready"]["phase"]), (200, &json!("ok"), &json!("unloaded")));
    assert_eq!(
        (server.get("/status").1["phase"].clone(), server.metric("kiln_model_loaded")),
        (json!("unloaded"), 0.0)
    );
    assert_eq!(ask().0, 200);
    server.wait_to_say("was loaded again");
    // As late as the model rests again.
    let until = Instant::now() + PATIENCE;
    while server.get("/status").1["phase"] != "unloaded" {
        assert!(Instant::now() < until, "{}", server.said());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn the_system_prompt_is_in_the_cache_before_the_first_request() {
    let directory = tempfile::tempdir().unwrap();
    let system = "You are the voice of a museum's information desk. Answer briefly and kindly.";
    std::fs::write(directory.path().join("system"), system).unwrap();
    let file = directory.path().join("system").display().to_string();
    let server = Server::start_at(directory, &["--system-prompt", &file]);
    let ask = |messages| {
        let (_, answer) =
            server.post("/v1/chat/completions", &json!({"messages": messages, "temperature": 0, "max_tokens": 4}));
        let cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap();
        (answer["usage"]["prompt_tokens"].as_u64().unwrap(), cached)
    };
    let (with, cached) = ask(json!([{"role": "user", "content": "Where is the exit?"}]));
    assert!(cached > 10, "{cached} of {with}");
    let own = [json!({"role": "system", "content": "Hi"}), json!({"role": "user", "content": "Where is the exit?"})];
    assert!(ask(json!(own)).0 < with, "a system message of its own takes its place");
}
