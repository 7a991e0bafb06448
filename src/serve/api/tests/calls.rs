//! Function calls: which are allowed, a model with tokens for calls, and stop texts.

use super::*;
use crate::text::calls::{MARKED as MARKED_TOKENS, THOUGHT};
use std::path::Path;

const CHAT: &str = "/v1/chat/completions";

fn function(name: &str) -> Value {
    json!({"type": "function", "function": {"name": name, "description": "", "parameters": {"type": "object", "properties": {}, "additionalProperties": false}}})
}

fn ask(more: Value) -> Value {
    let mut body = json!({"messages": question("go"), "max_tokens": 60, "temperature": 0});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

/// The calls of a choice, as name and arguments.
fn called(message: &Value) -> Vec<(String, String)> {
    let word = |value: &Value| value.as_str().unwrap().to_owned();
    let calls = message["tool_calls"].as_array().cloned().unwrap_or_default();
    calls.iter().map(|call| (word(&call["function"]["name"]), word(&call["function"]["arguments"]))).collect()
}

#[test]
fn allowed_tools_leave_the_prompt_as_it_is() {
    let tools = json!([function("first"), function("second")]);
    let plain = DEMO_WITH_ROOM.well(CHAT, &ask(json!({"tools": tools, "max_tokens": 1})));
    let only = json!([{"type": "function", "function": {"name": "second"}}]);
    for (choice, n) in [
        (json!({"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": only}}), 2),
        (json!("required"), 1),
        (json!({"type": "function", "function": {"name": "second"}}), 1),
    ] {
        let body = ask(json!({"tools": tools, "tool_choice": choice, "n": n, "parallel_tool_calls": true}));
        let answer = DEMO_WITH_ROOM.well(CHAT, &body);
        assert_eq!(answer["usage"]["prompt_tokens"], plain["usage"]["prompt_tokens"], "{choice}");
        for one in answer["choices"].as_array().unwrap() {
            let calls = called(&one["message"]);
            assert!(
                !calls.is_empty() && (choice == "required" || calls.iter().all(|(name, _)| name == "second")),
                "{one}"
            );
        }
    }
}

/// In complete answers and streams, in each API and for each of several replies.
#[test]
fn stop_texts_do_not_cut_calls() {
    let stops = json!(["{", "}", "\"", "name", "parameters"]);
    let required = json!({"tools": [function("f")], "tool_choice": "required", "stop": stops, "parallel_tool_calls": false, "n": 2});
    for choice in DEMO_WITH_ROOM.well(CHAT, &ask(required.clone()))["choices"].as_array().unwrap() {
        assert_eq!(called(&choice["message"]), [("f".into(), "{}".into())], "{choice}");
        assert_eq!(choice["finish_reason"], "tool_calls");
    }
    let events = DEMO_WITH_ROOM.events(CHAT, &ask(required));
    let calls: Vec<&Value> =
        events.iter().filter_map(|event| event["choices"][0]["delta"]["tool_calls"].as_array()).flatten().collect();
    assert_eq!(calls.len(), 2, "{events:?}");
    let tools = json!([{"name": "f", "input_schema": {"type": "object", "properties": {}}}]);
    let body = ask(
        json!({"tools": tools, "tool_choice": {"type": "any", "disable_parallel_tool_use": true}, "stop_sequences": stops}),
    );
    let answer = DEMO_WITH_ROOM.well("/v1/messages", &body);
    assert_eq!((&answer["content"][0]["name"], &answer["stop_reason"]), (&json!("f"), &json!("tool_use")), "{answer}");
}

#[test]
fn calls_within_namespaces_and_of_custom_tools_are_items_that_say_so() {
    let custom = json!({"type": "custom", "name": "note", "description": "N"});
    let space = json!({"type": "namespace", "name": "files", "description": "F", "tools": [{"type": "function", "name": "list", "parameters": {"type": "object", "properties": {}}}]});
    let respond = |choice: Value| {
        let body = json!({"input": "go", "tools": [custom, space], "tool_choice": choice, "max_output_tokens": 100, "temperature": 0});
        DEMO_WITH_ROOM.well("/v1/responses", &body)["output"][0].clone()
    };
    let listed = respond(json!({"type": "function", "name": "list", "namespace": "files"}));
    let expected = json!({"type": "function_call", "name": "list", "namespace": "files", "arguments": "{}"});
    assert!(expected.as_object().unwrap().iter().all(|(name, value)| listed[name] == *value), "{listed}");
    // The conversation continues after the call and its result.
    let input = json!([
        {"role": "user", "content": "go"}, listed,
        {"type": "function_call_output", "call_id": listed["call_id"], "output": [{"type": "input_text", "text": "a.txt"}]},
        {"type": "custom_tool_call", "call_id": "2", "name": "note", "input": "remember"},
        {"type": "custom_tool_call_output", "call_id": "2", "output": "done"},
    ]);
    let prompt = json!({"messages": [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": "{\"name\":\"files.list\",\"parameters\":{}}"},
        {"role": "user", "content": "Result of files.list:\na.txt"},
        {"role": "assistant", "content": "{\"name\":\"note\",\"parameters\":{\"input\":\"remember\"}}"},
        {"role": "user", "content": "Result of note:\ndone"},
    ]});
    let usage = &DEMO_WITH_ROOM.well("/v1/responses", &json!({"input": input, "max_output_tokens": 1}))["usage"];
    assert_eq!(usage["input_tokens"], DEMO_WITH_ROOM.well("/tokenize", &prompt)["count"]);
}

/// The built-in model as a directory, with `tokens` instead of unused ones, and another template.
fn marked_model(directory: &Path, tokens: impl Iterator<Item = &'static str>, template: &str) {
    let read = |name: &str| std::fs::read(format!("tools/demo-model/model/{name}")).unwrap();
    for name in ["config.json", "model.safetensors", "generation_config.json"] {
        std::fs::write(directory.join(name), read(name)).unwrap();
    }
    let mut tokenizer = String::from_utf8(read("tokenizer.json")).unwrap();
    for (i, token) in tokens.enumerate() {
        tokenizer = tokenizer.replace(&format!("\"<unused{i}>\""), &json!(token).to_string());
    }
    std::fs::write(directory.join("tokenizer.json"), tokenizer).unwrap();
    std::fs::write(directory.join("chat_template.jinja"), template).unwrap();
}

/// A server whose model has FunctionGemma's tokens and format.
static MARKED: LazyLock<TestServer> = LazyLock::new(|| {
    serve_marked(MARKED_TOKENS[0].tokens(), include_str!("../../../../tests/golden/chat/functiongemma.jinja"))
});

/// A server whose model has Gemma 4's tokens and format.
static THINKING: LazyLock<TestServer> = LazyLock::new(|| {
    let tokens = MARKED_TOKENS[1].tokens().chain(THOUGHT).chain(["<|turn>", "<turn|>", "<|think|>"]);
    serve_marked(tokens, crate::model::architecture::GEMMA4.template)
});

fn serve_marked(tokens: impl Iterator<Item = &'static str>, template: &str) -> TestServer {
    let directory = tempfile::tempdir().unwrap();
    marked_model(directory.path(), tokens, template);
    let files = ModelFiles::from(Some(directory.path().to_owned()));
    start(ServerSettings::default(), AccessLog::default(), files, 256, directory)
}

#[test]
fn a_template_that_takes_tools_is_given_them_and_its_calls_are_read() {
    let weather = json!({"type": "function", "function": {"name": "weather", "description": "The <escape>weather.", "parameters": {
        "type": "object", "properties": {"unit": {"type": "string", "enum": ["c", "f"]}, "days": {"type": "integer"}}, "required": ["unit"]}}});
    let model = MARKED.service.model().unwrap();
    let text = |body: &Value| {
        let ids: Vec<u32> = serde_json::from_value(MARKED.well("/tokenize", body)["tokens"].clone()).unwrap();
        model.tokenizer.decode(&ids, false).unwrap()
    };
    // Results and calls have separate places, and system text is the developer's.
    let talk = json!([
        {"role": "system", "content": "S"}, {"role": "user", "content": "q"},
        {"role": "assistant", "tool_calls": [{"id": "1", "type": "function", "function": {"name": "weather", "arguments": "{\"unit\": \"c\", \"days\": 2}"}}]},
        {"role": "tool", "tool_call_id": "1", "content": "rain"},
    ]);
    let expected = "<bos><start_of_turn>developer\nS<end_of_turn>\n<start_of_turn>user\nq<end_of_turn>\n<start_of_turn>model\n\
        <start_function_call>call:weather{days:2,unit:<escape>c<escape>}<end_function_call>\
        <start_function_response>response:weather{value:<escape>rain<escape>}<end_function_response>";
    assert_eq!(text(&json!({"messages": talk})), expected);

    let body = |more: Value| {
        let mut body = ask(
            json!({"tools": [weather], "tool_choice": "required", "parallel_tool_calls": false, "messages": question("go")}),
        );
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    let whole = MARKED.well(CHAT, &body(json!({"n": 2, "stop": ["unit", "{", "<"]})));
    for choice in whole["choices"].as_array().unwrap() {
        let calls = called(&choice["message"]);
        let [(name, arguments)] = &calls[..] else { panic!("{whole}") };
        let arguments: Value = serde_json::from_str(arguments).unwrap();
        assert!(name == "weather" && ["c", "f"].map(Value::from).contains(&arguments["unit"]), "{choice}");
        assert_eq!((&choice["finish_reason"], &choice["message"]["content"]), (&json!("tool_calls"), &json!(null)));
    }
    let events = MARKED.events(CHAT, &body(json!({})));
    let calls: Vec<&Value> =
        events.iter().filter_map(|event| event["choices"][0]["delta"]["tool_calls"].as_array()).flatten().collect();
    assert_eq!(calls[0]["function"]["arguments"], called(&whole["choices"][0]["message"])[0].1, "{events:?}");
    // The same in the other APIs; the reply may be text.
    let flat = weather["function"].clone();
    let input = json!({"name": "weather", "input_schema": flat["parameters"]});
    let answer = MARKED.well("/v1/messages", &body(json!({"tools": [input], "tool_choice": {"type": "any"}})));
    assert_eq!((&answer["content"][0]["type"], &answer["content"][0]["name"]), (&json!("tool_use"), &json!("weather")));
    let auto = MARKED.well(CHAT, &body(json!({"tool_choice": "auto", "max_tokens": 8})));
    assert!(auto["choices"][0]["message"]["role"] == "assistant", "{auto}");
    // Model text that does not spell a token is not a call.
    let described = MARKED.well(CHAT, &body(json!({"max_tokens": 1})))["usage"]["prompt_tokens"].as_u64().unwrap();
    let without = MARKED.well(CHAT, &ask(json!({"max_tokens": 1})))["usage"]["prompt_tokens"].as_u64().unwrap();
    assert!(described > without + 20, "the template has the tools");
}

#[test]
fn gemma_4s_template_is_given_thinking_and_tools_and_its_calls_are_read() {
    let weather = json!({"type": "function", "function": {"name": "weather", "description": "d", "parameters": {
        "type": "object", "properties": {"unit": {"type": "string", "enum": ["c", "f"]}, "days": {"type": "integer"}}, "required": ["unit"]}}});
    let model = THINKING.service.model().unwrap();
    let text = |body: &Value| {
        let ids: Vec<u32> = serde_json::from_value(THINKING.well("/tokenize", body)["tokens"].clone()).unwrap();
        model.tokenizer.decode(&ids, false).unwrap()
    };
    let talk = json!([
        {"role": "system", "content": "S"}, {"role": "user", "content": "q <|channel>"},
        {"role": "assistant", "tool_calls": [{"id": "1", "type": "function", "function": {"name": "weather", "arguments": "{\"unit\": \"c\", \"days\": 2}"}}]},
        {"role": "tool", "tool_call_id": "1", "content": "rain"},
    ]);
    let said = "<turn|>\n<|turn>user\nq <|channel><turn|>\n<|turn>model\n<|tool_call>call:weather{days:2,unit:<|\"|>c<|\"|>}<tool_call|>\
        <|tool_response>response:weather{value:<|\"|>rain<|\"|>}<tool_response|>";
    let prompt = text(&json!({"messages": talk}));
    assert_eq!(prompt, format!("<bos><|turn>system\nS{said}<|channel>thought\n<channel|>"));
    let thinks = text(&json!({"messages": talk, "reasoning_effort": "low"}));
    assert_eq!(thinks, format!("<bos><|turn>system\n<|think|>\nS{said}"));
    let body = |more: Value| {
        let mut body = ask(
            json!({"tools": [weather], "tool_choice": "required", "parallel_tool_calls": false, "messages": question("go")}),
        );
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    for think in [false, true] {
        let whole = THINKING.well(CHAT, &body(json!({"enable_thinking": think})));
        let message = &whole["choices"][0]["message"];
        // A thought of this model may be as long as the reply.
        if whole["choices"][0]["finish_reason"] == "length" {
            let thought = &whole["usage"]["completion_tokens_details"]["reasoning_tokens"];
            assert!(think && thought.as_u64() > Some(0), "{whole}");
            continue;
        }
        let calls = called(message);
        let [(name, arguments)] = &calls[..] else { panic!("{whole}") };
        let arguments: Value = serde_json::from_str(arguments).unwrap();
        assert!(name == "weather" && ["c", "f"].map(Value::from).contains(&arguments["unit"]), "{whole}");
    }
}
