//! `/v1/responses`.

use super::*;
use crate::Error;

const PATH: &str = "/v1/responses";

/// The events of a stream: name, which is also the type, and data.
fn events(answer: &TextResponse) -> Vec<(String, Value)> {
    let parts = answer.body.split("\n\n").filter(|part| !part.is_empty() && *part != ":");
    let events = parts.enumerate().map(|(i, part)| {
        let (name, data) = part.strip_prefix("event: ").unwrap().split_once("\ndata: ").unwrap();
        let data: Value = serde_json::from_str(data).unwrap();
        assert_eq!((&data["type"], &data["sequence_number"]), (&json!(name), &json!(i)));
        (name.to_owned(), data)
    });
    events.collect()
}

#[test]
fn a_response_is_what_a_chat_completion_says() {
    let ask = "When do you open on Sunday?";
    let chat = json!({"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": ask}],
        "temperature": 0, "max_tokens": 24});
    let chat = DEMO.well("/v1/chat/completions", &chat);
    let expected = chat["choices"][0]["message"]["content"].as_str().unwrap();
    let is_cut = chat["choices"][0]["finish_reason"] == "length";
    let items = json!([{"role": "user", "content": [{"type": "input_text", "text": ask}]}]);
    for input in [json!(ask), items] {
        let mut body =
            json!({"input": input, "instructions": "Be brief.", "temperature": 0, "max_output_tokens": 24, "text": {}});
        let whole = DEMO.well(PATH, &body);
        let item = &whole["output"][0];
        assert_eq!(
            (&item["type"], &item["role"], item["content"][0]["text"].as_str()),
            (&json!("message"), &json!("assistant"), Some(expected))
        );
        assert_eq!(whole["status"], if is_cut { "incomplete" } else { "completed" });
        assert_eq!(whole["usage"]["output_tokens"], chat["usage"]["completion_tokens"]);
        assert_eq!(whole["usage"]["input_tokens"], chat["usage"]["prompt_tokens"]);
        assert_eq!((&whole["instructions"], &whole["text"]["format"]["type"]), (&json!("Be brief."), &json!("text")));

        body["stream"] = true.into();
        let answer = DEMO.post(PATH, &body);
        assert!(answer.is_whole, "{answer:?}");
        let events = events(&answer);
        let names: Vec<&str> = events.iter().map(|(name, _)| name.as_str()).collect();
        let outer =
            ["response.created", "response.in_progress", "response.output_item.added", "response.content_part.added"];
        assert_eq!(names[..4], outer);
        let ends = ["response.output_text.done", "response.content_part.done", "response.output_item.done"];
        assert_eq!(names[names.len() - 4..][..3], ends);
        assert!(names[4..names.len() - 4].iter().all(|name| *name == "response.output_text.delta"), "{names:?}");
        let text: String = events.iter().filter_map(|(_, data)| data["delta"].as_str()).collect();
        assert_eq!(text, expected);
        let (last, data) = events.last().unwrap();
        assert_eq!(last, if is_cut { "response.incomplete" } else { "response.completed" });
        assert_eq!(data["response"]["output"][0]["content"], item["content"]);
        assert_eq!(data["response"]["usage"]["output_tokens"], whole["usage"]["output_tokens"]);
    }
}

#[test]
fn a_limit_leaves_a_response_incomplete() {
    let body = json!({"input": "Tell me about the museum.", "temperature": 0, "max_output_tokens": 2});
    let response = DEMO.well(PATH, &body);
    assert_eq!(response["status"], "incomplete");
    assert_eq!(response["incomplete_details"]["reason"], "max_output_tokens");
    assert_eq!((&response["temperature"], &response["top_p"]), (&json!(0), &json!(0.95)));
    assert_eq!(response["output"][0]["status"], "incomplete");
}

#[test]
fn a_stream_that_fails_ends_in_one_terminal_event() {
    let served = without_engine(ServerSettings::default());
    let stream = served.ask("POST", PATH, json!({"input": "hi", "stream": true}).to_string().as_bytes());
    wait("it is in the queue", || served.service.engine.len() == 1);
    served.service.fail(&Error::device("the GPU hangs", "restart"));
    let answer = TextResponse::read(stream);
    let names: Vec<String> = events(&answer).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["response.created", "response.in_progress", "response.failed"]);
    assert!(!answer.is_whole);
}

#[test]
fn each_wrong_field_is_named() {
    let served = without_engine(ServerSettings::default());
    for (name, value, param) in [
        ("input", json!(null), "input"),
        ("input", json!([]), "input"),
        ("input", json!(5), "input"),
        ("input", json!([{"role": "wizard", "content": "hi"}]), "input[0].role"),
        ("input", json!([{"role": "user", "content": [{"type": "input_image"}]}]), "input[0].content[0]"),
        ("input", json!([{"type": "item_reference", "id": "x"}]), "input[0].type"),
        ("input", json!([{"type": "function_call", "name": "f", "arguments": 1}]), "input[0].arguments"),
        ("input", json!("word ".repeat(300)), "input"),
        ("instructions", json!(1), "instructions"),
        ("previous_response_id", json!("resp_1"), "previous_response_id"),
        ("conversation", json!("conv_1"), "conversation"),
        ("background", json!(true), "background"),
        ("truncation", json!("sometimes"), "truncation"),
        ("max_output_tokens", json!(0), "max_output_tokens"),
        ("reasoning", json!({"effort": "purple"}), "reasoning.effort"),
        ("response_format", json!({"type": "json_object"}), "response_format"),
        ("include", json!(["message.output_text.logprobs"]), "include"),
        ("text", json!({"format": {"type": "xml"}}), "text.format.type"),
        ("text", json!({"format": {"type": "json_schema"}}), "text.format.schema"),
        ("text", json!({"format": {"type": "json_schema", "schema": {"not": {"type": "null"}}}}), "text.format.schema"),
        ("tools", json!([{"type": 1}]), "tools[0].type"),
    ] {
        let mut body = json!({"input": "hi"});
        body[name] = value.clone();
        let (status, found, _) = served.post(PATH, &body).error();
        assert_eq!((status, found.as_str()), (400, param), "{name}: {value}");
    }
}
