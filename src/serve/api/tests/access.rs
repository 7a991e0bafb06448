//! The access log of requests for text.

use super::*;

/// The note of the request with this id, once it is there.
fn noted(log: &Mutex<Vec<AccessRecord>>, id: &str) -> AccessRecord {
    let find = || log.lock().unwrap().iter().find(|access| access.id == id).cloned();
    wait("the request is noted", || find().is_some());
    find().unwrap()
}

fn send(served: &TestServer, id: &str, path: &str, body: &Value) -> TextResponse {
    let body = body.to_string();
    let head = format!("POST {path} HTTP/1.0\r\nX-Request-Id: {id}\r\nContent-Length: {}\r\n\r\n", body.len());
    TextResponse::read(served.send(format!("{head}{body}").as_bytes()))
}

#[test]
fn tokens_and_times_are_noted_and_no_content() {
    for (id, path, stream) in
        [("one", "/v1/chat/completions", false), ("two", "/v1/messages", true), ("three", "/api/chat", true)]
    {
        let body = json!({"messages": question("When do you open?"), "temperature": 0, "max_tokens": 5, "stream": stream,
            "options": {"num_predict": 5}});
        assert_eq!(send(&DEMO, id, path, &body).status, 200);
        let access = noted(&DEMO_LOG, id);
        let number = |name: &str| access.notes[name].as_f64().unwrap_or_else(|| panic!("{name}: {access:?}"));
        assert!(number("prompt_tokens") > 3.0 && number("reply_tokens") == 5.0, "{access:?}");
        assert!(number("prefill_s") >= 0.0 && number("decode_s") >= 0.0 && number("queued_s") >= 0.0, "{access:?}");
        let (model, finish) = (&access.notes["model"], &access.notes["finish"]);
        assert_eq!((model, finish, &access.notes["stream"]), (&json!("demo"), &json!("length"), &json!(stream)));
        let all = Value::Object(access.notes).to_string();
        assert!(!all.contains("open") && access.status == Some(200), "{all}");
    }
    let scored = json!({"prompt": "The museum opens", "echo": true, "logprobs": 1, "max_tokens": 1, "temperature": 0});
    assert_eq!(send(&DEMO, "scored", "/v1/completions", &scored).status, 200);
    assert_eq!(noted(&DEMO_LOG, "scored").notes["reply_tokens"], 1);
}

#[test]
fn what_is_refused_or_late_is_noted_with_its_reason() {
    let log: Arc<Mutex<Vec<AccessRecord>>> = Arc::default();
    let own = log.clone();
    let access = AccessLog::new(move |access| own.lock().unwrap().push(access.clone()));
    let settings = ServerSettings { queue: 1, deadline: Some(Duration::from_millis(50)), ..ServerSettings::default() };
    let served = with_model(TestServer::logged(settings, Guard::default(), access));
    let text = json!({"prompt": "hi"});
    let bad = send(&served, "bad", "/v1/completions", &json!({"prompt": "hi", "temperature": 9}));
    assert_eq!((bad.status, &noted(&log, "bad").notes["error"]), (400, &json!("invalid_value")));
    assert_eq!(send(&served, "none", "/nothing", &json!({})).status, 404);
    assert_eq!(noted(&log, "none").notes["error"], "not_found");
    let head = "POST /v1/completions HTTP/1.0\r\nX-Request-Id: late\r\nContent-Length: 15\r\n\r\n";
    let waiting = served.send(format!("{head}{text}").as_bytes());
    wait("it is in the queue", || served.service.engine.len() == 1);
    assert_eq!(send(&served, "full", "/v1/completions", &text).status, 503);
    assert_eq!(noted(&log, "full").notes["error"], "queue_full");
    // Without an engine the test sweeps late jobs itself.
    wait("it is late", || served.service.engine.sweep() == 1);
    assert_eq!(TextResponse::read(waiting).status, 504);
    assert_eq!(noted(&log, "late").notes["error"], "deadline_exceeded");
}
