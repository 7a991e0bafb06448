//! `/v1/chat/completions`.

use super::answer::ApiAnswer;
use super::calls::{self, CallDetector, Said};
use super::fields::Fields;
use super::run::{Completion, ParsedRequest, Wording};
use super::tools::{self, Layout};
use super::{Call, form, logprobs, messages, options};
use crate::engine::request::{CompleteReply, Event, Replies, ReplyEnd, ReplyToken};
use crate::sequence::Finish;
use crate::serve::http::ApiError;
use crate::serve::model::Model;
use serde_json::{Value, json};
use std::sync::Arc;

/// Answers a request.
///
/// # Errors
/// 400: a field is wrong. 503: the model is loading.
pub(super) fn complete(call: &Call<'_>, model: Arc<Model>, fields: Fields<'_>) -> Result<ApiAnswer, ApiError> {
    read(call, model, fields).map(|(asked, chat)| ApiAnswer::replies(asked, chat))
}

/// Reads a request.
///
/// # Errors
/// As [`complete`].
pub(super) fn read(
    call: &Call<'_>,
    model: Arc<Model>,
    fields: Fields<'_>,
) -> Result<(ParsedRequest, ChatWording), ApiError> {
    let name = call.model_name(&fields, &model)?;
    let tools = tools::read(&fields, Layout::Nested, model.template.calls())?;
    let mut ask = options::read(&fields, &options::LIMITS, model.shape.vocab, &call.service.defaults.get())?;
    ask.choices = options::choices(&fields)?;
    ask.likelihoods = logprobs::read(&fields)?;
    let (stream, with_usage) = options::stream(&fields)?;
    check_continuation(&fields)?;
    let form = tools::form_with(tools.as_ref(), form::read(&fields)?)?;
    let dialogue = call.complete(messages::read(&fields)?, &fields, tools.as_ref(), &model);
    let prompt = dialogue.encode_truncated(&fields, &model, "messages")?;
    let forgotten = prompt.forgotten;
    let listener = tools::give_prompt(&mut ask, prompt, tools.as_ref());
    let chat = ChatWording {
        answer: Completion::new(["chat.completion", "chat.completion.chunk"], "chatcmpl-", name, with_usage),
        listeners: vec![listener; ask.choices],
        with_logprobs: ask.likelihoods.is_some(),
        model: model.clone(),
    };
    Ok((ParsedRequest { model, asks: vec![ask], form, stream, forgotten }, chat))
}

/// Checks vLLM's fields on continuing the last message. An assistant's last message is always continued.
///
/// # Errors
/// 400: the fields ask to continue a message that is not the assistant's, or not to begin a new one.
fn check_continuation(fields: &Fields<'_>) -> Result<(), ApiError> {
    const CONTINUES: &str = "continue_final_message";
    const OPENS: &str = "add_generation_prompt";
    let continues = fields.boolean(CONTINUES)?.unwrap_or(false);
    let last = fields.list("messages")?.unwrap_or_default().last();
    if continues && last.is_some_and(|message| message["role"] != "assistant") {
        return Err(fields.wrong(CONTINUES, "is true, and the last message has to be the assistant's"));
    }
    if !continues && fields.boolean(OPENS)? == Some(false) {
        return Err(
            fields.unserved(OPENS, &format!("false goes with {CONTINUES}, and a last message of the assistant's"))
        );
    }
    Ok(())
}

/// Formats replies as a chat completion of OpenAI's API.
pub(super) struct ChatWording {
    answer: Completion,
    model: Arc<Model>,
    /// A detector of calls for each choice.
    listeners: Vec<CallDetector>,
    with_logprobs: bool,
}

impl ChatWording {
    /// The likelihoods of the tokens; null if the request does not ask for them.
    fn logprobs<'t>(&self, tokens: impl IntoIterator<Item = &'t ReplyToken>) -> Value {
        if !self.with_logprobs {
            return Value::Null;
        }
        let entry =
            |token: &'t ReplyToken| Some(logprobs::entry(&self.model.tokenizer, token, token.likelihood.as_ref()?));
        let content: Vec<Value> = tokens.into_iter().filter_map(entry).collect();
        json!({"content": content, "refusal": null})
    }

    /// The `finish_reason` of a choice: `tool_calls` if its reply ended after a call.
    fn reason(&self, choice: usize, finish: Finish) -> &'static str {
        match finish {
            Finish::Stop if self.listeners[choice].calls > 0 => "tool_calls",
            finish => finish.name(),
        }
    }

    /// The delta for a piece of a choice's text, which `hear` passes to the choice's detector.
    fn said(&mut self, choice: usize, hear: impl FnOnce(&mut CallDetector) -> Vec<Said>) -> Value {
        let before = self.listeners[choice].calls;
        let (text, calls) = calls::split(hear(&mut self.listeners[choice]));
        let mut said = json!({});
        if !text.is_empty() {
            said["content"] = text.into();
        }
        if !calls.is_empty() {
            let numbered = calls.iter().enumerate().map(|(i, call)| {
                let mut call = call.to_json();
                call["index"] = (before + i).into();
                call
            });
            said["tool_calls"] = numbered.collect();
        }
        said
    }

    /// A choice of a complete answer.
    fn choice(&mut self, index: usize, reply: CompleteReply) -> Option<Value> {
        let end = reply.end?;
        self.answer.usage.add(index, self.listeners.len(), &end);
        let (text, calls) = calls::split(self.listeners[index].push_last(&reply.text));
        let content = if text.is_empty() && !calls.is_empty() { Value::Null } else { text.into() };
        let mut message = json!({"role": "assistant", "content": content, "refusal": null});
        if !reply.thought.is_empty() {
            message["reasoning_content"] = reply.thought.into();
        }
        if !calls.is_empty() {
            message["tool_calls"] = calls.iter().map(calls::ToolCall::to_json).collect();
        }
        Some(json!({
            "index": index, "message": message, "logprobs": self.logprobs(&reply.tokens),
            "finish_reason": self.reason(index, end.generation.finish),
        }))
    }
}

/// The object of a reply to a caller in this process, without its text.
pub(in crate::serve) fn empty_reply(model: Option<&str>) -> Value {
    json!({"model": model, "text": "", "finish_reason": null, "usage": null})
}

impl ChatWording {
    /// Makes the reply of `events`, and passes its text to `say` as it comes. Returns the object without the text, and
    /// the error that interrupted the reply.
    pub fn reply(
        mut self,
        events: Replies,
        say: &mut dyn FnMut(String) -> crate::Result<()>,
    ) -> (Value, Result<(), ApiError>) {
        let (mut reply, mut calls, mut thought) = (empty_reply(Some(&self.answer.model)), Vec::new(), String::new());
        for step in events {
            let (said, end) = match step {
                (_, Event::Token(token)) => {
                    thought.push_str(&token.thought);
                    (self.listeners[0].push(&token.text), None)
                }
                (_, Event::End(end)) => (self.listeners[0].push_last(&end.text), Some(end)),
                (_, Event::Failed(e)) => return (reply, Err(e.into())),
                (_, Event::Idle) => continue,
            };
            let (text, called) = calls::split(said);
            calls.extend(called.iter().map(calls::ToolCall::to_json));
            if !text.is_empty()
                && let Err(e) = say(text)
            {
                return (reply, Err((&e).into()));
            }
            if let Some(end) = end {
                self.answer.usage.add(0, 1, &end);
                reply["finish_reason"] = self.reason(0, end.generation.finish).into();
                reply["usage"] = self.answer.usage.to_json();
            }
            if !calls.is_empty() {
                reply["tool_calls"] = calls.as_slice().into();
            }
            if !thought.is_empty() {
                reply["reasoning_content"] = thought.as_str().into();
            }
        }
        (reply, Ok(()))
    }
}

fn delta(index: usize, delta: Value, logprobs: Value) -> Value {
    json!({"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": null})
}

impl Wording for ChatWording {
    fn whole(&mut self, replies: Vec<CompleteReply>) -> Value {
        let choices = replies.into_iter().enumerate().filter_map(|(i, reply)| self.choice(i, reply)).collect();
        self.answer.whole(choices)
    }

    fn begin(&mut self) -> String {
        let first = json!({"role": "assistant", "content": ""});
        (0..self.listeners.len()).map(|i| self.answer.chunk(delta(i, first.clone(), Value::Null))).collect()
    }

    fn token(&mut self, choice: usize, token: ReplyToken) -> String {
        let mut said = self.said(choice, |listener| listener.push(&token.text));
        if !token.thought.is_empty() {
            said["reasoning_content"] = token.thought.as_str().into();
        }
        if said == json!({}) && !self.with_logprobs {
            return String::new();
        }
        let logprobs = self.logprobs([&token]);
        self.answer.chunk(delta(choice, said, logprobs))
    }

    fn end(&mut self, choice: usize, end: ReplyEnd) -> String {
        self.answer.usage.add(choice, self.listeners.len(), &end);
        // The rest of the text may complete the last call.
        let said = self.said(choice, |listener| listener.push_last(&end.text));
        let mut last = delta(choice, said, Value::Null);
        last["finish_reason"] = self.reason(choice, end.generation.finish).into();
        self.answer.chunk(last)
    }

    fn finish(&mut self) -> String {
        self.answer.done()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::request::{EngineError, Request};
    use crate::serve::api::tests::{end, token, without_engine};
    use crate::serve::service::ServerSettings;
    use crate::text::CallSyntax;

    #[test]
    fn a_reply_to_this_process_has_text_and_calls_and_the_error_that_interrupts_it() {
        let service = without_engine(ServerSettings::default()).service;
        let model = service.model().unwrap();
        let made = |events: Vec<Event>| {
            let replies = service.engine.ask(model.target(), Request::new(vec![2, 3])).unwrap();
            let job = service.engine.take(model.id, |_| 0).unwrap();
            events.into_iter().for_each(|event| job.recipient.send(event));
            let mut heard = String::new();
            let (mut reply, ended) = chat().reply(replies, &mut |text| {
                heard.push_str(&text);
                Ok(())
            });
            reply["text"] = heard.into();
            (reply, ended)
        };
        let thought = Event::Token(ReplyToken { thought: "Hm".into(), ..token("") });
        let tokens = CALLS[..2].iter().map(|piece| Event::Token(token(piece))).chain([thought]);
        let (reply, ended) =
            made(tokens.chain([Event::End(Box::new(ReplyEnd { text: CALLS[2].into(), ..end() }))]).collect());
        assert_eq!((ended, &reply["text"], &reply["finish_reason"]), (Ok(()), &json!(""), &json!("tool_calls")));
        assert_eq!((&reply["model"], &reply["usage"]["total_tokens"]), (&json!("demo"), &json!(5)));
        assert_eq!(reply["reasoning_content"], "Hm");
        let calls = reply["tool_calls"].as_array().unwrap();
        assert_eq!((calls.len(), calls[0].get("index")), (2, None));
        assert_eq!(calls[0]["function"], json!({"name": "f", "arguments": "{\"a\":1}"}));
        let lost = crate::Error::device("the GPU does not answer", "look at the kernel's log");
        let (reply, ended) = made(vec![Event::Token(token("Hello")), Event::Failed(EngineError::Reply(lost.clone()))]);
        let expected = json!({"model": "demo", "text": "Hello", "finish_reason": null, "usage": null});
        assert_eq!((reply, crate::Error::from(ended.unwrap_err())), (expected, lost));
    }

    const CALLS: [&str; 3] = ["{\"name\":\"f\",", "\"parameters\":{\"a\":1}}", "\n{\"name\":\"g\",\"parameters\":{}}"];

    fn chat() -> ChatWording {
        ChatWording {
            answer: Completion::new(["chat.completion", "chat.completion.chunk"], "chatcmpl-", "demo".into(), false),
            model: without_engine(ServerSettings::default()).service.model().unwrap(),
            listeners: vec![CallDetector::new(vec!["f".into(), "g".into()], CallSyntax::Json)],
            with_logprobs: false,
        }
    }

    #[test]
    fn thoughts_are_no_content() {
        let event = chat().token(0, ReplyToken { thought: "Hm".into(), ..token("") });
        let event: Value = serde_json::from_str(event.trim_end().strip_prefix("data: ").unwrap()).unwrap();
        assert_eq!(event["choices"][0]["delta"], json!({"reasoning_content": "Hm"}));
        let end = ReplyEnd { thought_tokens: 1, ..end() };
        let reply = CompleteReply { text: "Hi".into(), thought: "Hm".into(), tokens: Vec::new(), end: Some(end) };
        let whole = chat().whole(vec![reply]);
        let message = &whole["choices"][0]["message"];
        assert_eq!((&message["content"], &message["reasoning_content"]), (&json!("Hi"), &json!("Hm")));
        assert_eq!(whole["usage"]["completion_tokens_details"]["reasoning_tokens"], 1);
    }

    #[test]
    fn calls_of_tools_are_no_content() {
        let mut chat = chat();
        let mut events = chat.begin();
        CALLS[..2].iter().for_each(|piece| events += &chat.token(0, token(piece)));
        // The rest of the text comes with the end.
        events += &chat.end(0, ReplyEnd { text: CALLS[2].into(), ..end() });
        let events = events.split("\n\n").filter_map(|event| event.strip_prefix("data: "));
        let events: Vec<Value> = events.map(|event| serde_json::from_str(event).unwrap()).collect();
        let calls: Vec<&Value> =
            events.iter().filter_map(|event| event["choices"][0]["delta"]["tool_calls"].as_array()).flatten().collect();
        assert_eq!((calls.len(), &calls[0]["index"], &calls[1]["index"]), (2, &json!(0), &json!(1)));
        assert_eq!(calls[0]["function"], json!({"name": "f", "arguments": "{\"a\":1}"}));
        assert_ne!(calls[0]["id"], calls[1]["id"]);
        assert!(
            events.iter().all(|event| event["choices"][0]["delta"]["content"].as_str().unwrap_or_default().is_empty())
        );
        assert_eq!(events.last().unwrap()["choices"][0]["finish_reason"], "tool_calls");

        let mut chat = self::chat();
        let reply =
            CompleteReply { text: CALLS.concat(), thought: String::new(), tokens: Vec::new(), end: Some(end()) };
        let choice = &chat.whole(vec![reply])["choices"][0];
        assert_eq!((&choice["message"]["content"], &choice["finish_reason"]), (&json!(null), &json!("tool_calls")));
        assert_eq!(choice["message"]["tool_calls"][1]["function"]["name"], "g");
        let mut chat = self::chat();
        let reply =
            CompleteReply { text: "{no call}".into(), thought: String::new(), tokens: Vec::new(), end: Some(end()) };
        let choice = &chat.whole(vec![reply])["choices"][0];
        assert_eq!((&choice["message"]["content"], &choice["finish_reason"]), (&json!("{no call}"), &json!("stop")));
    }
}
