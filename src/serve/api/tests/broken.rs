//! The end of each API's stream after a failure.

use super::*;
use crate::Error;
use crate::engine::request::CompleteReply;
use crate::engine::request::Request;
use crate::serve::api::answer::ApiAnswer;
use crate::serve::api::run::{ParsedRequest, Wording};
use crate::serve::api::send;
use crate::serve::http::{ApiError, LastWords, Responder};

#[test]
fn a_stream_that_breaks_ends_in_its_apis_error_and_is_cut_off() {
    type Check = fn(&str) -> bool;
    let chat = json!({"messages": question("hi"), "stream": true, "max_tokens": 9});
    let text = json!({"model": "demo", "prompt": "hi", "stream": true});
    let openai: Check = |last: &str| last.starts_with("data: {\"error\":{\"message\":\"the engine has failed");
    let anthropic: Check =
        |last: &str| last.starts_with("event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\"");
    let response: Check = |last: &str| last.starts_with("event: response.failed\ndata: {\"response\":");
    let ollama: Check = |last: &str| last.starts_with("{\"error\":\"the engine has failed");
    let cases: [(&str, &Value, &str, Check); 6] = [
        ("/v1/chat/completions", &chat, "\n\n", openai),
        ("/v1/completions", &text, "\n\n", openai),
        ("/v1/responses", &json!({"input": "hi", "stream": true}), "\n\n", response),
        ("/v1/messages", &chat, "\n\n", anthropic),
        ("/api/chat", &chat, "\n", ollama),
        ("/api/generate", &text, "\n", ollama),
    ];
    for (path, body, end, is_error) in cases {
        let served = without_engine(ServerSettings::default());
        let stream = served.ask("POST", path, body.to_string().as_bytes());
        wait("it is in the queue", || served.service.engine.len() == 1);
        served.service.fail(&Error::device("the GPU hangs", "restart"));
        let answer = TextResponse::read(stream);
        let last = answer.body.trim_end().rsplit(end).next().unwrap();
        assert!(!answer.is_whole && answer.status == 200 && is_error(last), "{path}: {answer:?}");
        assert!(answer.body.ends_with(end) && !answer.body.contains("[DONE]"), "{path}: {answer:?}");
    }
}

/// A wording that fails at the first heartbeat.
struct Failing;

impl Wording for Failing {
    fn whole(&mut self, _: Vec<CompleteReply>) -> Value {
        Value::Null
    }
    fn begin(&mut self) -> String {
        "begun\n".into()
    }
    fn token(&mut self, _: usize, _: ReplyToken) -> String {
        String::new()
    }
    fn end(&mut self, _: usize, _: ReplyEnd) -> String {
        String::new()
    }
    fn finish(&mut self) -> String {
        String::new()
    }
    fn idle(&mut self) -> String {
        panic!("a test's panic")
    }
    fn last_words(&self) -> LastWords {
        |e| format!("last words: {}\n", e.status)
    }
}

#[test]
fn a_stream_whose_wording_panics_ends_in_the_last_words_of_its_api() {
    let model = without_engine(ServerSettings::default()).service.model().unwrap();
    let service =
        Arc::new(Service::new(ServerSettings { heartbeat: Duration::from_millis(1), ..ServerSettings::default() }));
    let served = service.clone();
    let handler = move |request: crate::serve::http::HttpRequest, reply: Responder<'_>| {
        let asks = vec![Request::new(vec![2, 3])];
        let asked = ParsedRequest { model: model.clone(), asks, form: None, stream: true, forgotten: 0 };
        send::send(&served, &request, reply, Ok(ApiAnswer::replies(asked, Failing)))
    };
    let server = Server::bind(&[Listen::Tcp(([127, 0, 0, 1], 0).into())], Limits::default(), Guard::default()).unwrap();
    let address = server.addresses()[0];
    std::thread::spawn(move || server.run(&handler));
    let answer = TextResponse::read(TestServer { service, address }.ask("GET", "/", b""));
    assert_eq!((answer.body.as_str(), answer.is_whole), ("begun\nlast words: 500\n", false));
}

#[test]
fn last_words_are_what_each_api_says_of_an_error() {
    let e = ApiError::internal();
    let parts = |text: &str| -> Value { serde_json::from_str(text.split("data: ").last().unwrap()).unwrap() };
    let words: LastWords = crate::serve::api::responses::LAST_WORDS;
    assert_eq!((&parts(&words(&e))["type"], &parts(&words(&e))["code"]), (&json!("error"), &json!("internal_error")));
    assert!(words(&e).starts_with("event: error\n"));
}

#[test]
fn the_time_of_a_request_counts_from_its_beginning_also_where_its_grammar_waits() {
    let settings = ServerSettings { deadline: Some(Duration::from_millis(50)), ..ServerSettings::default() };
    let served = without_engine(settings);
    // Other clients occupy the compiler.
    (1..=2).for_each(|client| served.service.model().unwrap().grammars.hold(client));
    let format = json!({"type": "json_object"});
    let body = json!({"messages": question("hi"), "response_format": format});
    let answer = served.post("/v1/chat/completions", &body);
    assert_eq!(answer.error(), (504, "".into(), "deadline_exceeded".into()));
}
