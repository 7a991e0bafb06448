//! Anthropic's Messages API.

use super::*;

const PATH: &str = "/v1/messages";

fn body(more: Value) -> Value {
    let mut body = json!({
        "model": "claude", "messages": question("When do you open on Sunday?"), "temperature": 0, "max_tokens": 24,
    });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

#[test]
fn a_message_says_what_a_chat_completion_says_and_its_stream_adds_up_to_it() {
    let chat = DEMO.well(
        "/v1/chat/completions",
        &json!({"messages": question("When do you open on Sunday?"), "temperature": 0, "max_tokens": 24}),
    );
    let text = chat["choices"][0]["message"]["content"].as_str().unwrap();
    let whole = DEMO.well(PATH, &body(json!({"cache_prompt": false})));
    assert_eq!(whole["content"], json!([{"type": "text", "text": text}]));
    assert_eq!(
        (&whole["type"], &whole["role"], &whole["model"]),
        (&json!("message"), &json!("assistant"), &json!("demo"))
    );
    let usage = (&whole["usage"]["input_tokens"], &whole["usage"]["output_tokens"]);
    assert_eq!(usage, (&chat["usage"]["prompt_tokens"], &chat["usage"]["completion_tokens"]));
    let reason = if chat["choices"][0]["finish_reason"] == "length" { "max_tokens" } else { "end_turn" };
    assert_eq!((&whole["stop_reason"], &whole["stop_sequence"]), (&json!(reason), &json!(null)));

    let answer = DEMO.post(PATH, &body(json!({"stream": true})));
    assert!(answer.is_whole && answer.header("Content-Type").unwrap().starts_with("text/event-stream"), "{answer:?}");
    let events: Vec<Value> = answer
        .body
        .split("\n\n")
        .filter_map(|event| {
            let (name, data) = event.strip_prefix("event: ")?.split_once("\ndata: ")?;
            let data: Value = serde_json::from_str(data).unwrap();
            assert_eq!(data["type"], name, "an event's name is its type");
            (name != "ping").then_some(data)
        })
        .collect();
    assert_eq!((&events[0]["type"], &events[0]["message"]["content"]), (&json!("message_start"), &json!([])));
    let said: String = events.iter().filter_map(|event| event["delta"]["text"].as_str()).collect();
    assert_eq!(said, text);
    let [.., stop, delta, last] = &events[..] else { panic!("{events:?}") };
    assert_eq!((&stop["type"], &last["type"]), (&json!("content_block_stop"), &json!("message_stop")));
    assert_eq!((&delta["delta"]["stop_reason"], &delta["usage"]["output_tokens"]), (&json!(reason), usage.1));

    let count = DEMO.well("/v1/messages/count_tokens", &json!({"messages": question("When do you open on Sunday?")}));
    assert_eq!(&count["input_tokens"], usage.0);
}

/// An agent's accounting line differs in each request and stands at the beginning.
#[test]
fn a_line_of_accounting_is_no_part_of_the_prompt() {
    let tokens = |system: Value| {
        DEMO.well("/v1/messages/count_tokens", &body(json!({"system": system})))["input_tokens"].clone()
    };
    let part = |text: &str| json!({"type": "text", "text": text});
    let (plain, billed) = ("Be brief.", "x-anthropic-billing-header: cc_version=2; cch=fa600;");
    assert_eq!(tokens(json!([part(billed), part(plain)])), tokens(json!(plain)));
    assert_eq!(tokens(json!(format!("{billed}\n{plain}"))), tokens(json!(plain)));
    assert_ne!(tokens(json!(format!("{plain} {billed}"))), tokens(json!(plain)));
}

#[test]
fn a_stop_sequence_is_named_and_a_tool_is_called() {
    let whole = DEMO.well(PATH, &body(json!({})));
    let text = whole["content"][0]["text"].as_str().unwrap();
    let middle: String = text.chars().skip(4).take(3).collect();
    let cut = DEMO.well(PATH, &body(json!({"stop_sequences": ["nowhere~", middle]})));
    assert_eq!((&cut["stop_reason"], &cut["stop_sequence"]), (&json!("stop_sequence"), &json!(middle)));
    assert_eq!(cut["content"][0]["text"].as_str(), text.split(&middle).next());

    // Short, so that a call fits the context.
    let schema = json!({"type": "object", "properties": {"o": {"type": "boolean"}}});
    let tools = json!([{"name": "f", "input_schema": schema},
        {"type": "web_search_20250305", "name": "web_search"}]);
    let called = DEMO.well(PATH, &body(json!({"messages": question("?"), "tools": tools, "tool_choice": {"type": "any", "disable_parallel_tool_use": true}, "max_tokens": 60})));
    let block = &called["content"][0];
    assert_eq!(
        (&block["type"], &block["name"], &called["stop_reason"]),
        (&json!("tool_use"), &json!("f"), &json!("tool_use"))
    );
    assert!(block["input"].is_object(), "{called}");
    // The conversation continues after the call and its result.
    let talk = json!([
        {"role": "user", "content": "Open?"}, {"role": "assistant", "content": called["content"]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": block["id"], "content": [{"type": "text", "text": "yes"}]},
            {"type": "text", "text": "So?"}]},
    ]);
    let prompt = json!({"messages": [
        {"role": "user", "content": "Open?"},
        {"role": "assistant", "content": json!({"name": "f", "parameters": block["input"]}).to_string()},
        {"role": "user", "content": "Result of f:\nyes\n\nSo?"},
    ]});
    let count = DEMO.well("/v1/messages/count_tokens", &json!({"messages": talk}));
    assert_eq!(count["input_tokens"], DEMO.well("/tokenize", &prompt)["count"]);
}

#[test]
fn a_message_has_the_form_that_is_asked_for() {
    let schema = json!({"type": "object", "properties": {"a": {"enum": [7, 8]}}, "required": ["a"], "additionalProperties": false});
    let format = json!({"type": "json_schema", "schema": schema});
    for form in [
        json!({"output_config": {"format": format, "effort": "low"}, "max_tokens": 60}),
        json!({"output_format": format, "max_tokens": 60}),
    ] {
        let answer = DEMO.well(PATH, &body(form.clone()));
        let document: Value = serde_json::from_str(answer["content"][0]["text"].as_str().unwrap()).unwrap();
        assert!([7, 8].map(Value::from).contains(&document["a"]), "{form}: {answer}");
    }
    for wrong in [
        json!({"output_config": {"format": format}, "output_format": format}),
        json!({"output_config": {"format": {"type": "json_schema", "schema": {"not": {"type": "null"}}}}}),
    ] {
        assert_eq!(DEMO.post(PATH, &body(wrong.clone())).status, 400, "{wrong}");
    }
}

/// Anthropic's clients recognise the refusal by these words, and shorten the conversation.
#[test]
fn a_prompt_that_is_too_long_is_refused_in_anthropics_words() {
    let served = without_engine(ServerSettings::default());
    for (count, stream) in [(300, false), (100_000, false), (300, true)] {
        for path in [PATH, "/v1/messages/count_tokens"] {
            let long = json!({"messages": question(&"word ".repeat(count)), "stream": stream});
            let answer = served.post(path, &body(long));
            let message = answer.json()["error"]["message"].as_str().unwrap().to_owned();
            let rest = message.strip_prefix("prompt is too long: ").unwrap_or_else(|| panic!("{message}"));
            let (tokens, rest) = rest.split_once(" tokens > ").unwrap();
            assert!(tokens.parse::<usize>().unwrap() > 256 && rest.starts_with("256 maximum"), "{message}");
            assert_eq!((answer.status, &answer.json()["error"]["type"]), (400, &json!("invalid_request_error")));
        }
    }
}

#[test]
fn what_is_wrong_is_said_as_anthropic_says_it() {
    let served = without_engine(ServerSettings { strict_model: true, ..ServerSettings::default() });
    let image = json!([{"role": "user", "content": [{"type": "image", "source": {}}]}]);
    for (more, status, kind, what) in [
        (json!({"model": "demo", "max_tokens": null}), 400, "invalid_request_error", "max_tokens"),
        (json!({"model": "demo", "messages": []}), 400, "invalid_request_error", "messages"),
        (
            json!({"model": "demo", "messages": image}),
            400,
            "invalid_request_error",
            "messages[0].content[0] is an image",
        ),
        (
            json!({"model": "demo", "messages": [{"role": "wizard", "content": "a"}]}),
            400,
            "invalid_request_error",
            "role",
        ),
        (json!({"model": "demo", "tool_choice": {"type": "any"}}), 400, "invalid_request_error", "tool_choice"),
        (
            json!({"model": "demo", "tool_choice": {"type": "auto", "name": {}}}),
            400,
            "invalid_request_error",
            "tool_choice.name",
        ),
        (json!({"model": "claude"}), 404, "not_found_error", "claude"),
    ] {
        let answer = served.post(PATH, &body(more.clone()));
        let error = answer.json();
        assert_eq!(
            (answer.status, &error["type"], &error["error"]["type"]),
            (status, &json!("error"), &json!(kind)),
            "{more}"
        );
        assert!(error["error"]["message"].as_str().unwrap().contains(what), "{more}: {error}");
    }
    assert_eq!(
        TestServer::new(ServerSettings::default()).post(PATH, &body(json!({}))).json()["error"]["type"],
        "overloaded_error"
    );
}
