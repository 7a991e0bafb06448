//! Parts of messages other than plain text.

use super::*;

const CHAT: &str = "/v1/chat/completions";

/// A conversation's prompt begins with the prompt of its earlier part, and is the same in each API.
#[test]
fn later_system_text_leaves_the_beginning_of_the_prompt_alone() {
    let talk = json!([
        {"role": "system", "content": "Be brief."}, {"role": "user", "content": "When do you open?"},
        {"role": "assistant", "content": "At ten."}, {"role": "system", "content": "Be polite."}, {"role": "user", "content": "On Monday?"},
        {"role": "assistant", "content": "At nine."}, {"role": "system", "content": "Be quick."}, {"role": "user", "content": "Thanks"},
    ]);
    let part = |end: usize| Value::from(&talk.as_array().unwrap()[..end]);
    let tokens = |talk: Value| -> Vec<u32> {
        serde_json::from_value(DEMO.well("/tokenize", &json!({"messages": talk}))["tokens"].clone()).unwrap()
    };
    let whole = tokens(talk.clone());
    assert!(whole.starts_with(&tokens(part(2))) && whole.starts_with(&tokens(part(5))));
    for (path, field, counts) in [
        (CHAT, "messages", &["prompt_tokens"][..]),
        ("/v1/responses", "input", &["input_tokens"]),
        ("/v1/messages", "messages", &["input_tokens", "cache_read_input_tokens"]),
    ] {
        let usage = DEMO.well(path, &json!({(field): talk, "max_tokens": 1, "max_output_tokens": 1}))["usage"].clone();
        let sum: u64 = counts.iter().map(|count| usage[*count].as_u64().unwrap()).sum();
        assert_eq!(sum, whole.len() as u64, "{path}: {usage}");
    }
}

#[test]
fn images_of_earlier_turns_are_notes_and_those_of_the_newest_are_refused_in_each_dialect() {
    let image =
        json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}});
    let url = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}});
    let part = json!({"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo="});
    let user = |content: Value| json!({"role": "user", "content": content});
    let result =
        json!({"type": "tool_result", "tool_use_id": "t", "content": [image, {"type": "text", "text": "a window"}]});
    let used = json!({"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "shot", "input": {}}]});
    let screen = json!({"type": "computer_call_output", "call_id": "c", "output": {"type": "computer_screenshot", "image_url": "data:"}});
    let pictured = json!({"role": "user", "content": "What is it?", "images": ["iVBORw0KGgo="]});
    for (path, field, newest, place) in [
        (
            "/v1/messages",
            "messages",
            vec![user(json!([image, {"type": "text", "text": "What?"}]))],
            "messages[0].content[0]",
        ),
        (
            "/v1/messages",
            "messages",
            vec![user(json!("go")), used, user(json!([result]))],
            "messages[2].content[0].content[0]",
        ),
        (CHAT, "messages", vec![user(json!([url]))], "messages[0].content[0]"),
        (
            CHAT,
            "messages",
            vec![json!({"role": "tool", "tool_call_id": "1", "content": [url]})],
            "messages[0].content[0]",
        ),
        ("/v1/responses", "input", vec![user(json!([part]))], "input[0].content[0]"),
        ("/v1/responses", "input", vec![screen], "input[0].output"),
        ("/api/chat", "messages", vec![pictured], "messages[0].images[0]"),
    ] {
        let body = |talk: Vec<Value>| json!({(field): talk, "max_tokens": 2, "max_output_tokens": 2, "stream": false, "options": {"num_predict": 2}});
        let answer = DEMO.post(path, &body(newest.clone()));
        assert!(answer.status == 400 && answer.body.contains(place), "{path}: {answer:?}");
        // A user who goes on sends the refused turn again, followed by text.
        let mut gone_on = newest.clone();
        gone_on.push(user(json!("Go on without it.")));
        DEMO.well(path, &body(gone_on));
        let mut earlier = newest;
        earlier.extend([json!({"role": "assistant", "content": "I see."}), user(json!("Go on."))]);
        DEMO.well(path, &body(earlier));
    }
}

/// A program sends the calls and results of its tools again with every request, so that a refusal would end the
/// conversation.
#[test]
fn whatever_a_tool_was_given_and_returned_is_read_in_each_dialect() {
    let user = |content: Value| json!({"role": "user", "content": content});
    let returned = [
        json!(null),
        json!(""),
        json!(42),
        json!(true),
        json!({"temperature": 20, "unit": "C"}),
        json!([]),
        json!(["a", "b"]),
        json!([{"temperature": 20}, {"type": "resource", "uri": "file:///a"}]),
        json!([{"type": "text", "text": "20 degrees"}]),
    ];
    let given = [json!(null), json!(""), json!("{}"), json!("{\"a\":"), json!("[1]"), json!({"a": 1})];
    let pairs =
        returned.iter().map(|returned| (&given[5], returned)).chain(given.iter().map(|given| (given, &returned[1])));
    for (given, returned) in pairs {
        let function = json!({"name": "f", "arguments": given});
        let called = json!({"role": "assistant", "content": null, "tool_calls": [{"id": "c", "type": "function", "function": function}]});
        let result = json!({"role": "tool", "tool_call_id": "c", "content": returned});
        let used =
            json!({"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": given}]});
        let block = json!({"type": "tool_result", "tool_use_id": "c", "content": returned});
        let call = json!({"type": "function_call", "call_id": "c", "name": "f", "arguments": given});
        let output = json!({"type": "function_call_output", "call_id": "c", "output": returned});
        for (path, field, talk) in [
            (CHAT, "messages", json!([user(json!("q")), called, result])),
            ("/api/chat", "messages", json!([user(json!("q")), called, result])),
            ("/v1/messages", "messages", json!([user(json!("q")), used, user(json!([block]))])),
            ("/v1/responses", "input", json!([user(json!("q")), call, output])),
        ] {
            let body = json!({(field): talk, "max_tokens": 1, "max_output_tokens": 1, "stream": false, "options": {"num_predict": 1}});
            DEMO.well(path, &body);
        }
    }
    // The prompt has the number's digits.
    let read = |returned: Value| {
        let talk = json!([user(json!("q")), {"role": "tool", "content": returned}]);
        DEMO.well("/tokenize", &json!({"messages": talk}))["tokens"].clone()
    };
    assert_eq!(read(json!(42)), read(json!("42")));
    assert_eq!(read(json!({"a": [1]})), read(json!("{\"a\":[1]}")));
}

/// Built-in tools that the client runs, such as a shell, are calls and results like functions.
#[test]
fn calls_of_a_shell_and_of_patches_are_read() {
    let patch = json!({"type": "apply_patch_call", "call_id": "p", "operation": {"type": "delete_file", "path": "a"}});
    let input = json!([
        {"role": "user", "content": "q"},
        {"type": "shell_call", "call_id": "c", "action": {"commands": ["ls"]}},
        {"type": "shell_call_output", "call_id": "c", "output": [{"stdout": "a", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]},
        patch,
        {"type": "apply_patch_call_output", "call_id": "p", "status": "completed"},
    ]);
    DEMO.well("/v1/responses", &json!({"input": input, "max_output_tokens": 1}));
    let answer = DEMO.post("/v1/responses", &json!({"input": [{"role": "tool", "content": "x"}]}));
    assert!(answer.status == 400 && !answer.body.contains("or tool"), "{answer:?}");
}

/// The grammar continues the document that the assistant's last message begins, in complete answers and streams.
#[test]
fn a_schema_goes_on_with_the_document_that_is_begun() {
    let schema = json!({"type": "object", "properties": {"name": {"type": "string", "maxLength": 8}}, "required": ["name"], "additionalProperties": false});
    let format = json!({"type": "json_schema", "json_schema": {"name": "x", "schema": schema}});
    let body = |begun: &str, more: Value| {
        let talk = json!([{"role": "user", "content": "Name a fish."}, {"role": "assistant", "content": begun}]);
        let mut body = json!({"messages": talk, "max_tokens": 60, "temperature": 0});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    let is_document = |text: &str| serde_json::from_str::<Value>(text).is_ok_and(|value| value["name"].is_string());
    for begun in [
        "{",
        "{\"na",
        "{\"name\": \"",
        "{\"name\": ",
        "\n{\"name\":\"co",
        "{\"name\":\"cod\"",
        "{\"name\":\"cod\"}",
        "",
    ] {
        let whole = DEMO.well(CHAT, &body(begun, json!({"response_format": format, "n": 2})));
        for choice in whole["choices"].as_array().unwrap() {
            let text = format!("{begun}{}", choice["message"]["content"].as_str().unwrap());
            assert!(is_document(&text), "{text}");
        }
        let events = DEMO.events(CHAT, &body(begun, json!({"response_format": format})));
        let said: String = events.iter().filter_map(|event| event["choices"][0]["delta"]["content"].as_str()).collect();
        assert!(is_document(&format!("{begun}{said}")), "{begun}{said}");
        let answer = DEMO
            .well("/api/chat", &body(begun, json!({"format": schema, "stream": false, "options": {"temperature": 0}})));
        let text = format!("{begun}{}", answer["message"]["content"].as_str().unwrap());
        assert!(is_document(&text), "{text}");
    }
    let none = DEMO.post(CHAT, &body("Here it is: ", json!({"response_format": format})));
    assert!(none.status == 400 && none.body.contains("assistant's last message"), "{none:?}");
    // Calls may follow any text.
    let tool =
        json!({"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}});
    let called = DEMO.well(CHAT, &body("Well: ", json!({"tools": [tool], "tool_choice": "required"})));
    assert_eq!(called["choices"][0]["message"]["tool_calls"][0]["function"]["name"], "f");
    let begun = "{\"name\":\"f\",\"parameters\":";
    let called = DEMO
        .well(CHAT, &body(begun, json!({"tools": [tool], "tool_choice": "required", "parallel_tool_calls": false})));
    assert_eq!(called["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"], "{}", "{called}");
}

#[test]
fn half_of_a_surrogate_pair_is_taken_by_each_path() {
    for half in [r"\ud83d", r"\ude00", r"\ud83d\u0041"] {
        let text = format!("cut {half} here");
        let talk = format!(r#"[{{"role":"user","content":"{text}"}}]"#);
        for path in [
            CHAT,
            "/v1/completions",
            "/v1/responses",
            "/v1/messages",
            "/v1/messages/count_tokens",
            "/api/chat",
            "/api/generate",
        ] {
            let asked = match path {
                "/v1/responses" => format!(r#""input":"{text}","max_output_tokens":2"#),
                "/v1/completions" => format!(r#""prompt":"{text}","max_tokens":2"#),
                "/api/generate" => format!(r#""prompt":"{text}","options":{{"num_predict":2}}"#),
                _ => format!(r#""messages":{talk},"max_tokens":2"#),
            };
            let answer = DEMO.post_bytes(path, format!(r#"{{{asked},"stream":false}}"#).as_bytes());
            assert_eq!(answer.status, 200, "{path} {half}: {answer:?}");
        }
    }
}
