//! A reply for a session: a request to `/v1/chat/completions`, and its result.

use super::session::{EngineSession, error_of};
use crate::serve::http::Method;
use crate::{Error, Result};
use serde_json::{Map, Value, json};
use std::ops::ControlFlow;

/// The JSON of a chat completion in the server's format, for a single streamed reply.
#[derive(Debug, Clone)]
pub struct CompletionRequest(String);

impl CompletionRequest {
    /// Parses the request's JSON: messages, sampling, `response_format`, tools. The engine checks its fields later.
    ///
    /// # Errors
    /// Input: it is not a JSON object, or asks for several replies.
    pub fn parse(request: &str) -> Result<CompletionRequest> {
        let parsed: Value = serde_json::from_str(request)
            .map_err(|e| Error::input(format!("the request is no JSON: {e}"), "pass a chat completion's request"))?;
        let Value::Object(mut body) = parsed else {
            return Err(Error::input("the request is no JSON object", "pass a chat completion's request"));
        };
        if body.get("n").is_some_and(|n| n != &json!(1) && !n.is_null()) {
            return Err(Error::input("one reply is made at a time, and n asks for others", "leave n out"));
        }
        body.insert("stream".into(), true.into());
        body.insert("stream_options".into(), json!({"include_usage": true}));
        Ok(CompletionRequest(Value::Object(body).to_string()))
    }
}

impl EngineSession {
    /// Makes a reply. Passes its text to `on_text` on this thread as it arrives; a break ends the reply. Returns an
    /// object with text, finish_reason, usage, and tool_calls if any, also of an interrupted reply, and the error that
    /// interrupted it.
    ///
    /// # Errors
    /// Input: a field of the request is wrong. Refused: there is no room now. Failed: the engine does not answer.
    pub fn generate(
        &self,
        request: &CompletionRequest,
        on_text: &mut dyn FnMut(&str) -> ControlFlow<()>,
    ) -> Result<(Value, Result<()>)> {
        let mut reply = StreamedReply::default();
        let (mut waiting, mut refusal) = (Vec::new(), Vec::new());
        let done = self.request(Method::Post, "/v1/chat/completions", request.0.as_bytes(), &mut |status, bytes| {
            if status != 200 {
                refusal.extend_from_slice(bytes);
                return ControlFlow::Continue(());
            }
            waiting.extend_from_slice(bytes);
            while let Some(end) = waiting.windows(2).position(|two| two == b"\n\n") {
                let event: Vec<u8> = waiting.drain(..end + 2).collect();
                reply.take(&event, on_text)?;
            }
            ControlFlow::Continue(())
        });
        match done {
            Ok(200) => {
                let error = reply.error.take();
                Ok((reply.into_value(), error.map_or(Ok(()), Err)))
            }
            Ok(status) => Err(refused(status, &refusal)),
            Err(e) => Ok((reply.into_value(), Err(e))),
        }
    }
}

/// The error in an answer with an error status.
fn refused(status: u16, body: &[u8]) -> Error {
    let parsed: Value = serde_json::from_slice(body).unwrap_or_default();
    let message = parsed["error"]["message"].as_str().map(str::to_owned);
    error_of(status, &message.unwrap_or_else(|| String::from_utf8_lossy(body).into_owned()))
}

/// A reply in progress.
#[derive(Debug, Default)]
struct StreamedReply {
    text: String,
    calls: Vec<Value>,
    finish: Value,
    usage: Value,
    model: Value,
    error: Option<Error>,
}

impl StreamedReply {
    /// Handles an event of the stream.
    fn take(&mut self, event: &[u8], on_text: &mut dyn FnMut(&str) -> ControlFlow<()>) -> ControlFlow<()> {
        let event = String::from_utf8_lossy(event);
        let data = event.lines().filter_map(|line| line.strip_prefix("data: "));
        for chunk in data.filter_map(|data| serde_json::from_str::<Value>(data).ok()) {
            if let Some(error) = chunk.get("error") {
                let message = error["message"].as_str().unwrap_or("the reply broke off");
                self.error = Some(Error::failed(message.to_owned(), "ask again"));
            }
            if chunk["model"].is_string() {
                self.model = chunk["model"].clone();
            }
            if !chunk["usage"].is_null() {
                self.usage = chunk["usage"].clone();
            }
            let choice = &chunk["choices"][0];
            if !choice["finish_reason"].is_null() {
                self.finish = choice["finish_reason"].clone();
            }
            for call in choice["delta"]["tool_calls"].as_array().into_iter().flatten() {
                self.take_call(call);
            }
            if let Some(text) = choice["delta"]["content"].as_str().filter(|text| !text.is_empty()) {
                self.text.push_str(text);
                on_text(text)?;
            }
        }
        ControlFlow::Continue(())
    }

    /// Adds a part of a tool call: the first has the name, and each has a part of the arguments.
    fn take_call(&mut self, part: &Value) {
        let index = part["index"].as_u64().and_then(|n| usize::try_from(n).ok()).unwrap_or(self.calls.len());
        if index >= self.calls.len() {
            let mut call = part.as_object().cloned().unwrap_or_else(Map::new);
            call.remove("index");
            self.calls.push(Value::Object(call));
            return;
        }
        let arguments = part["function"]["arguments"].as_str().unwrap_or_default();
        if let Some(Value::String(known)) = self.calls[index].pointer_mut("/function/arguments") {
            known.push_str(arguments);
        }
    }

    fn into_value(self) -> Value {
        let mut value = json!({
            "model": self.model,
            "text": self.text,
            "finish_reason": self.finish,
            "usage": self.usage,
        });
        if !self.calls.is_empty() {
            value["tool_calls"] = self.calls.into();
        }
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_streams_events_make_a_reply() {
        let mut reply = StreamedReply::default();
        let mut heard = String::new();
        let events = [
            r#"data: {"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}],"usage":null}"#,
            r#"data: {"choices":[{"index":0,"delta":{"content":"Hel"},"finish_reason":null}]}"#,
            r#"data: {"choices":[{"index":0,"delta":{"content":"lo"},"finish_reason":null}]}"#,
            r#"data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"f","arguments":"{\"x\""}}]}}]}"#,
            r#"data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":":1}"}}]}}]}"#,
            r#"data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#,
            r#"data: {"choices":[],"usage":{"total_tokens":7}}"#,
            "data: [DONE]",
        ];
        for event in events {
            let flow = reply.take(format!("{event}\n\n").as_bytes(), &mut |text| {
                heard.push_str(text);
                ControlFlow::Continue(())
            });
            assert!(flow.is_continue());
        }
        assert_eq!(heard, "Hello");
        let value = reply.into_value();
        assert_eq!((&value["text"], &value["finish_reason"]), (&json!("Hello"), &json!("stop")));
        assert_eq!(value["usage"]["total_tokens"], 7);
        let call = json!({"id": "a", "type": "function", "function": {"name": "f", "arguments": "{\"x\":1}"}});
        assert_eq!(value["tool_calls"], json!([call]));
    }

    #[test]
    fn an_answer_that_is_an_error_keeps_its_words() {
        let body = br#"{"error":{"message":"max_tokens is 0; use 1 or more","type":"x"}}"#;
        let Error::Input { cause, remedy } = refused(400, body) else { panic!("400 is no input error") };
        assert_eq!((cause.to_string(), remedy.to_string()), ("max_tokens is 0".into(), "use 1 or more".into()));
        assert!(matches!(refused(503, b"busy"), Error::Refused { .. }));
        assert!(matches!(refused(500, b""), Error::Failed { .. }));
    }
}
