//! Requests of other programs, from tests/clients/requests: each is answered in the way that its client expects. They
//! were recorded from running programs or written after their sources, with other texts and fewer tools.

use super::*;

/// The fields that limit a reply, which the test makes short.
const LIMITS: [&str; 3] = ["max_tokens", "max_completion_tokens", "max_output_tokens"];

/// A reply as a client sees it: its text, the number of calls, and whether it is complete.
#[derive(Debug, Default, PartialEq)]
struct ClientReply {
    text: String,
    calls: usize,
    is_complete: bool,
}

impl ClientReply {
    /// Adds a complete answer, or a part of a stream.
    fn add(&mut self, path: &str, part: &Value) {
        let mut say = |value: &Value| self.text.push_str(value.as_str().unwrap_or_default());
        let mut called = |calls: &Value| self.calls += calls.as_array().map_or(0, Vec::len);
        match path.split('?').next().unwrap_or_default() {
            "/v1/messages" => {
                say(&part["delta"]["text"]);
                self.calls += usize::from(part["content_block"]["type"] == "tool_use");
                self.is_complete |= part["type"] == "message_stop";
            }
            "/v1/messages/count_tokens" => {
                say(&json!(part["input_tokens"].to_string()));
                self.is_complete |= part["input_tokens"].is_number();
            }
            "/v1/responses" => {
                if part["type"] == "response.output_text.delta" {
                    say(&part["delta"]);
                }
                let item = (&part["type"], &part["item"]["type"]);
                self.calls += usize::from(item == (&json!("response.output_item.done"), &json!("function_call")));
                self.is_complete |= part["type"] == "response.completed" || part["type"] == "response.incomplete";
            }
            "/api/chat" => {
                say(&part["message"]["content"]);
                called(&part["message"]["tool_calls"]);
                self.is_complete |= part["done"] == true;
            }
            _ => {
                let choice = &part["choices"][0];
                [&choice["text"], &choice["delta"]["content"], &choice["message"]["content"]].into_iter().for_each(say);
                called(&choice["delta"]["tool_calls"]);
                self.is_complete |= choice["finish_reason"].is_string();
            }
        }
    }
}

/// The parts of a stream, or the whole answer.
fn parts(body: &str) -> Vec<Value> {
    let lines = body.lines().map(|line| line.strip_prefix("data: ").unwrap_or(line));
    let parts: Vec<Value> = lines.filter_map(|line| serde_json::from_str(line).ok()).collect();
    assert!(!parts.is_empty() || body.is_empty(), "{body}");
    parts
}

#[test]
fn requests_of_other_programs_are_answered() {
    let server = start(ServerSettings::default(), AccessLog::default(), ModelFiles::BuiltIn, 2048, ());
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/requests");
    let mut files: Vec<_> = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 14, "{files:?}");
    for file in files {
        let mut fixture: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        let (path, body) = (fixture["path"].as_str().unwrap().to_owned(), &mut fixture["body"]);
        for limit in LIMITS {
            if let Some(most) = body.get_mut(limit) {
                *most = 16.into();
            }
        }
        if path.starts_with("/api/") {
            body["options"]["num_predict"] = 16.into();
        }
        let answer = server.post(&path, body);
        let name = format!("{} ({})", file.display(), fixture["client"]);
        assert!(answer.status == 200 && answer.is_whole, "{name}: {answer:?}");
        let (answer, mut heard) = (answer.body, ClientReply::default());
        parts(&answer).iter().for_each(|part| heard.add(&path, part));
        assert!(heard.is_complete && (!heard.text.is_empty() || heard.calls > 0), "{name}: {heard:?} of {answer}");
    }
}
