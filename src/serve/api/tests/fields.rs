//! Every row of the field tables is sent to a server, and must be treated as the row says.

use super::*;
use crate::serve::api::fields::Fields;
use crate::serve::api::table::{self, FieldRow, FieldTable, TABLES, Treatment};
use serde_json::Map;

/// Other fields that a row's field requires.
fn beside(table: &FieldTable, row: &FieldRow) -> Value {
    let path = table.path;
    let flat = json!({"type": "function", "name": "f"});
    let tool = match path {
        "/v1/messages" | "/v1/messages/count_tokens" => json!({"name": "f", "input_schema": {"type": "object"}}),
        "/v1/responses" => flat,
        _ => json!({"type": "function", "function": {"name": "f"}}),
    };
    let call = json!({"role": "assistant", "content": "", "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": {}}}]});
    let parted = |part: Value| json!([{"role": "user", "content": [part]}]);
    let asked = json!({"role": "user", "content": "Hi"});
    match (row.field, row.value) {
        (field, _) if field.starts_with("tools[]") => json!({"tools": [tool]}),
        ("tool_choice.function" | "tool_choice.function.name" | "tool_choice.name", _) => {
            let kind = if path.starts_with("/v1/messages") { "tool" } else { "function" };
            json!({"tools": [tool], "tool_choice": {"type": kind}})
        }
        ("tool_choice.type", _) => json!({"tools": [tool], "tool_choice": {"name": "f", "function": {"name": "f"}}}),
        (field, _) if field.starts_with("tool_choice.") => json!({"tools": [tool], "tool_choice": {"type": "auto"}}),
        (field, _) if field.starts_with("tool_choice") => json!({"tools": [tool]}),
        ("top_logprobs", _) if matches!(path, "/v1/chat/completions" | "/api/chat" | "/api/generate") => {
            json!({"logprobs": true})
        }
        ("repeat_last_n", _) => json!({"repeat_penalty": 1.5}),
        ("penalize_nl" | "penalize_newline", _) => json!({"presence_penalty": 0.5}),
        ("options.penalize_newline" | "options.penalize_nl", _) => {
            json!({"options": {"presence_penalty": 0.5, "num_predict": 2, "temperature": 0}})
        }
        ("response_format.type", "json_schema") => json!({"response_format": {"json_schema": {"schema": {}}}}),
        ("response_format.schema", _) => json!({"response_format": {"type": "json_object"}}),
        (field, _) if field.starts_with("response_format.") => {
            json!({"response_format": {"type": "json_schema", "json_schema": {"schema": {}}}})
        }
        ("text.format.type", _) => json!({}),
        (field, _) if field.starts_with("text.format.") => {
            json!({"text": {"format": {"type": "json_schema", "schema": {}}}})
        }
        ("output_config.format.type", _) => json!({"output_config": {"format": {"schema": {}}}}),
        ("output_format.type", _) => json!({"output_format": {"schema": {}}}),
        ("output_config.format.schema", _) => json!({"output_config": {"format": {"type": "json_schema"}}}),
        ("output_format.schema", _) => json!({"output_format": {"type": "json_schema"}}),
        ("continue_final_message", _) => json!({"messages": [asked]}),
        (field, _) if field.starts_with("system[]") => json!({"system": [{"type": "text", "text": "S"}]}),
        ("messages[].content[].refusal" | "messages[].content[].type", "" | "refusal")
            if row.value == "refusal" || row.field.ends_with("refusal") =>
        {
            json!({"messages": parted(json!({"type": "refusal", "refusal": "No"}))})
        }
        ("messages[].content[].type", "thinking") => {
            json!({"messages": [{"role": "user", "content": [{"thinking": "Hm", "signature": "s"}, {"type": "text", "text": "Hi"}]}]})
        }
        ("messages[].content[].id" | "messages[].content[].name" | "messages[].content[].input", _) => {
            json!({"messages": [{"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}]}, asked]})
        }
        ("messages[].content[].tool_use_id" | "messages[].content[].content" | "messages[].content[].is_error", _) => {
            json!({"messages": parted(json!({"type": "tool_result", "tool_use_id": "t", "content": "out"}))})
        }
        ("messages[].content[].type", "search_result") => {
            json!({"messages": parted(json!({"content": [{"type": "text", "text": "Hi"}]}))})
        }
        (field, _) if field.starts_with("messages[].content[]") => {
            json!({"messages": parted(json!({"type": "text", "text": "Hi", "image_url": {"url": "data:,"}, "source": {"type": "base64"}}))})
        }
        (field, _) if field.starts_with("messages[].tool_calls") => json!({"messages": [call, asked]}),
        ("messages[].tool_call_id" | "messages[].tool_name", _) => {
            json!({"messages": [{"role": "tool", "content": "out"}]})
        }
        (field, _) if field.starts_with("messages[]") => json!({"messages": [asked]}),
        ("input[].type", "reasoning" | "web_search_call" | "mcp_call" | "compaction")
        | ("input[].type", "computer_call_output" | "shell_call_output") => {
            json!({"input": [{"summary": []}, {"role": "user", "content": "Hi"}]})
        }
        ("input[].output", _) => json!({"input": [{"type": "function_call_output", "call_id": "c"}]}),
        ("input[].call_id" | "input[].name" | "input[].arguments", _) => {
            json!({"input": [{"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}, {"role": "user", "content": "Hi"}]})
        }
        (field, _) if field.starts_with("input[].content[]") => {
            json!({"input": [{"role": "user", "content": [{"type": "input_text", "text": "Hi"}]}]})
        }
        (field, _) if field.starts_with("input[]") => json!({"input": [{"role": "user", "content": "Hi"}]}),
        ("content" | "add_special", _) => json!({"prompt": null, "content": "Hi"}),
        ("messages" | "tools", _) if path == "/tokenize" => json!({"prompt": null, "messages": [asked]}),
        ("name", _) => json!({"model": null}),
        _ => json!({}),
    }
}

/// A valid, greedy and short request.
fn base(path: &str) -> Value {
    let messages = question("Hi");
    match path {
        "/v1/chat/completions" => json!({"messages": messages, "max_tokens": 2, "temperature": 0}),
        "/v1/completions" => json!({"prompt": "Hi", "max_tokens": 1, "temperature": 0}),
        "/v1/responses" => json!({"input": "Hi", "max_output_tokens": 2, "temperature": 0}),
        "/v1/messages" => json!({"messages": messages, "max_tokens": 2, "temperature": 0}),
        "/v1/messages/count_tokens" => json!({"messages": messages}),
        "/api/chat" => json!({"messages": messages, "stream": false, "options": {"num_predict": 2, "temperature": 0}}),
        "/api/generate" => json!({"prompt": "Hi", "stream": false, "options": {"num_predict": 2, "temperature": 0}}),
        "/api/show" => json!({"model": "demo"}),
        "/tokenize" => json!({"prompt": "Hi"}),
        "/detokenize" => json!({"tokens": [5]}),
        other => panic!("{other}"),
    }
}

/// Puts `value` at a row's path, where `[]` is a list's first member.
fn put(body: &mut Value, field: &str, value: Value) {
    let mut at = body;
    for name in field.split('.') {
        if !at.is_object() {
            *at = json!({});
        }
        let (name, is_list) = name.strip_suffix("[]").map_or((name, false), |name| (name, true));
        at = &mut at[name];
        if is_list {
            if !at.is_array() {
                *at = json!([{}]);
            }
            at = &mut at[0];
        }
    }
    *at = value;
}

/// A request with a value in a row's field.
fn request(table: &FieldTable, row: &FieldRow, value: &str) -> Value {
    let mut body = base(table.path);
    if let Value::Object(more) = beside(table, row) {
        body.as_object_mut().unwrap().extend(more);
    }
    let value = serde_json::from_str(value).unwrap_or_else(|e| panic!("{}: {value}: {e}", row.field));
    // The dot belongs to the name.
    match row.field.starts_with("speculative.") {
        true => body[row.field] = value,
        false => put(&mut body, row.field, value),
    }
    body
}

/// An answer without the parts that differ between requests.
fn said(answer: &Value) -> Value {
    let ours = ["choices", "output", "content", "message", "response", "input_tokens", "tokens", "prompt", "details"];
    let mut said: Map<String, Value> = answer
        .as_object()
        .unwrap()
        .iter()
        .filter(|(name, _)| ours.contains(&name.as_str()))
        .map(|(n, v)| (n.clone(), v.clone()))
        .collect();
    if let Some(item) = said.get_mut("output").and_then(|output| output.get_mut(0)) {
        item["id"] = Value::Null;
    }
    assert!(!said.is_empty(), "{answer}");
    said.into()
}

/// The message of an error in any API's format.
fn message(answer: &TextResponse) -> String {
    let error = &answer.json()["error"];
    error["message"].as_str().or(error.as_str()).unwrap_or_default().to_owned()
}

fn is_about(answer: &TextResponse, row: &FieldRow) -> bool {
    let field = row.field.replace("[]", "[0]");
    let param = answer.json()["error"]["param"].as_str().map(str::to_owned);
    // Anthropic's and Ollama's errors have no field for the parameter.
    let about = param.unwrap_or_else(|| message(answer));
    about.contains(&field) || field.strip_suffix(".type").is_some_and(|holder| about.contains(holder))
}

#[test]
fn every_row_of_the_tables_does_what_it_says() {
    let mut wrong = Vec::new();
    let mut rows = 0;
    for table in TABLES.iter() {
        let plain = said(&DEMO_WITH_ROOM.well(table.path, &base(table.path)));
        for row in table.rows() {
            rows += 1;
            let mut fails = |what: &str, body: &Value, answer: &TextResponse| {
                wrong.push(format!("{} {}{}: {what}: {body}\n  {}", table.path, row.field, row.value, answer.body));
            };
            let example = match row.does {
                Treatment::Done | Treatment::Harmless => row.taken[0].to_owned(),
                Treatment::OneOf | Treatment::Advice => json!(row.taken[0]).to_string(),
                Treatment::Refused => row.wrong.unwrap().to_owned(),
            };
            let body = request(table, row, &example);
            let answer = DEMO_WITH_ROOM.post(table.path, &body);
            match row.does {
                Treatment::Done => {
                    if answer.status != 200 {
                        fails("its example is refused", &body, &answer);
                    }
                    let Some(wrong) = row.wrong else { continue };
                    let body = request(table, row, wrong);
                    let answer = DEMO_WITH_ROOM.post(table.path, &body);
                    if answer.status != 400 || !is_about(&answer, row) {
                        fails("a wrong value is not refused by its name", &body, &answer);
                    }
                }
                // The demo model can follow no advice.
                Treatment::Harmless | Treatment::OneOf | Treatment::Advice => {
                    if answer.status != 200 {
                        fails("it is refused", &body, &answer);
                        continue;
                    }
                    // Single values are handled by their readers.
                    if !row.value.is_empty() {
                        continue;
                    }
                    let mut without = body.clone();
                    put(&mut without, row.field, Value::Null);
                    let expected = if beside(table, row) == json!({}) {
                        plain.clone()
                    } else {
                        said(&DEMO_WITH_ROOM.well(table.path, &without))
                    };
                    if said(&answer.json()) != expected {
                        fails("it changes the answer", &body, &answer);
                    }
                    let named = table.notes(&Fields::of_body(&body).unwrap()).line(table.path);
                    if named.is_some_and(|line| line.contains(row.field)) == (row.does == Treatment::Advice) {
                        fails("the log names advice, or does not name it", &body, &answer);
                    }
                    if row.does == Treatment::Harmless {
                        continue;
                    }
                    for value in &row.taken {
                        let body = request(table, row, &json!(value).to_string());
                        let answer = DEMO_WITH_ROOM.post(table.path, &body);
                        if answer.status != 200 {
                            fails("a value of it is refused", &body, &answer);
                        }
                    }
                    let body = request(table, row, "\"purple\"");
                    let answer = DEMO_WITH_ROOM.post(table.path, &body);
                    if answer.status != 400 || !is_about(&answer, row) {
                        fails("nonsense is taken", &body, &answer);
                    }
                }
                Treatment::Refused => {
                    let remedy = row.value.is_empty() && !row.field.contains("[]");
                    if answer.status != 400
                        || !is_about(&answer, row)
                        || (remedy && !message(&answer).contains(row.note))
                    {
                        fails("it is not refused with its remedy", &body, &answer);
                    }
                    for neutral in row.taken.iter().chain(&["null"]).filter(|_| row.value.is_empty()) {
                        let neutral = if serde_json::from_str::<Value>(neutral).is_ok() {
                            (*neutral).to_owned()
                        } else {
                            json!(neutral).to_string()
                        };
                        let body = request(table, row, &neutral);
                        let answer = DEMO_WITH_ROOM.post(table.path, &body);
                        if answer.status != 200 {
                            fails("a value that changes nothing is refused", &body, &answer);
                        }
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {rows} rows:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn a_field_that_no_interface_has_is_taken_and_the_log_names_it() {
    for table in TABLES.iter() {
        let mut body = base(table.path);
        body["never_heard_of"] = json!({"a": [1]});
        assert_eq!(
            said(&DEMO_WITH_ROOM.well(table.path, &body)),
            said(&DEMO_WITH_ROOM.well(table.path, &base(table.path))),
            "{}",
            table.path
        );
        let line = table.notes(&Fields::of_body(&body).unwrap()).line(table.path).unwrap();
        assert_eq!(line, format!("a request to {} has fields not known: never_heard_of", table.path));
        assert_eq!(table.notes(&Fields::of_body(&base(table.path)).unwrap()).line(table.path), None);
    }
    // The log names only some of many unknown fields, in lines of bounded length.
    let many: Map<String, Value> = (0..10_000).map(|i| (format!("{i}{}", "x".repeat(100)), json!(1))).collect();
    let body = Value::from(many);
    let line = table::of("/v1/chat/completions").unwrap().notes(&Fields::of_body(&body).unwrap()).line("/").unwrap();
    assert!(line.len() < 2500, "{}", line.len());
}

/// The description has exactly the fields that are read.
#[test]
fn the_description_has_the_fields_that_are_read() {
    let description: Value = DEMO_WITH_ROOM.get("/openapi.json").json();
    for table in TABLES.iter() {
        let schema = &description["paths"][table.path]["post"]["requestBody"]["content"]["application/json"]["schema"];
        let mut described: Vec<&str> = Vec::new();
        properties(&description, schema, &mut described);
        described.sort_unstable();
        described.dedup();
        let is_read = |row: &&FieldRow| matches!(row.does, Treatment::Done | Treatment::Advice);
        let read = table.rows().filter(|row| is_read(row) && !row.field.contains('.'));
        let mut read: Vec<&str> = read.map(|row| row.field).collect();
        read.sort_unstable();
        read.dedup();
        assert_eq!(described, read, "{}", table.path);
    }
}

/// The names of a schema's properties, including those of its parts.
fn properties<'a>(description: &'a Value, schema: &'a Value, names: &mut Vec<&'a str>) {
    if let Some(to) = schema["$ref"].as_str() {
        properties(description, description.pointer(&to[1..]).unwrap(), names);
    }
    for parts in ["allOf", "anyOf"] {
        schema[parts].as_array().into_iter().flatten().for_each(|part| properties(description, part, names));
    }
    names.extend(schema["properties"].as_object().into_iter().flatten().map(|(name, _)| name.as_str()));
}
