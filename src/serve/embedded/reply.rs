//! A reply for a session: the request of a chat completion, and its result.

use super::call::apart;
use super::session::EngineSession;
use crate::serve::api::{Api, empty_reply};
use crate::text::Message;
use crate::{Error, Result};
use serde_json::{Value, json};
use std::ops::ControlFlow;

/// The JSON of a chat completion in the server's format, for a single reply.
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
        // The text of every reply comes as it is made.
        ["stream", "stream_options"].into_iter().for_each(|name| drop(body.remove(name)));
        Ok(CompletionRequest(Value::Object(body).to_string()))
    }
}

impl EngineSession {
    /// Asks `text` as the next message of the session's conversation, with the engine's defaults. Returns the answer,
    /// also an interrupted one, and the error that interrupted it. A complete answer belongs to the conversation from
    /// then on.
    ///
    /// # Errors
    /// As [`EngineSession::generate`].
    pub fn ask(&self, text: &str, on_text: &mut dyn FnMut(&str) -> ControlFlow<()>) -> Result<(String, Result<()>)> {
        let question = Message::new("user", text);
        // Not locked during the answer, because `on_text` may use the session.
        let messages: Vec<Message> = self.messages().iter().chain([&question]).cloned().collect();
        let mut answer = String::new();
        let (_, ended) =
            self.generate(&CompletionRequest(json!({"messages": messages}).to_string()), &mut |piece| {
                answer.push_str(piece);
                on_text(piece)
            })?;
        if ended.is_ok() {
            self.messages().extend([question, Message::new("assistant", answer.as_str())]);
        }
        Ok((answer, ended))
    }

    /// Makes a reply. Passes its text to `on_text` on this thread as it arrives; a break ends the reply. Returns an
    /// object with text, finish_reason, usage, and tool_calls if any, also of an interrupted reply, and the error that
    /// interrupted it.
    ///
    /// # Errors
    /// Input: a field of the request is wrong. Refused: there is no room now. Device: the device is lost.
    pub fn generate(
        &self,
        request: &CompletionRequest,
        on_text: &mut dyn FnMut(&str) -> ControlFlow<()>,
    ) -> Result<(Value, Result<()>)> {
        let api = Api::new(self.engine.service.clone());
        let mut text = String::new();
        let mut hear = |piece: String| {
            text.push_str(&piece);
            on_text(&piece)
        };
        let cancel = self.begin();
        let (mut reply, ended) = match apart(&mut hear, |say| api.generate(request.0.as_bytes(), cancel, say)) {
            // Cancelled before the reply began.
            Err(e @ Error::Interrupted { .. }) => (empty_reply(None), Err(e)),
            made => made?,
        };
        reply["text"] = text.into();
        Ok((reply, ended))
    }
}
