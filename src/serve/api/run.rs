//! Runs a request, and makes the answer of its events, whole or as a stream. Each API formats it by a [`Wording`].

use super::form::RequestedGrammar;
use crate::Cancel;
use crate::engine::request::{Abandoned, CompleteReply, EngineError, Event, Replies, ReplyEnd, ReplyToken, Request};
use crate::grammar::CompiledGrammar;
use crate::serve::http::{ApiError, Client, EVENTS, LastWords, Notes};
use crate::serve::model::Model;
use crate::serve::service::Service;
pub(super) use crate::serve::unique::unique;
use serde_json::Value;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A request for replies, with its prompts as tokens.
pub(super) struct ParsedRequest {
    /// The model whose tokenizer made the prompts. Another model cannot run them.
    pub model: Arc<Model>,
    /// One request per prompt, all with the same number of choices.
    pub asks: Vec<Request>,
    /// The grammar that all replies must satisfy, if the request has one.
    pub form: Option<RequestedGrammar>,
    /// True: the answer is streamed while the replies are generated. False: it is sent when they are complete.
    pub stream: bool,
    /// The number of oldest exchanges left out, so that the prompt fits into the context.
    pub forgotten: usize,
}

/// The format of an API's answers. Choices are numbered across all prompts. Each text returned for a stream is sent in
/// one write; an empty one is skipped.
pub(super) trait Wording {
    /// The complete answer, of all replies.
    fn whole(&mut self, replies: Vec<CompleteReply>) -> Value;
    /// The content type of a streamed answer.
    fn content_type(&self) -> &'static str {
        EVENTS
    }
    /// The text before the first token of a streamed answer.
    fn begin(&mut self) -> String;
    /// The text for another token of a reply.
    fn token(&mut self, choice: usize, token: ReplyToken) -> String;
    /// The text for the end of a reply.
    fn end(&mut self, choice: usize, end: ReplyEnd) -> String;
    /// Replays complete replies token by token, for APIs whose complete answer equals a stream's last event.
    fn replay(&mut self, replies: Vec<CompleteReply>) {
        for reply in replies {
            for token in reply.tokens {
                self.token(0, token);
            }
            if let Some(end) = reply.end {
                self.end(0, end);
            }
        }
    }
    /// The text of a streamed answer after all replies have ended.
    fn finish(&mut self) -> String;
    /// The text that ends a streamed answer with an error.
    fn fail(&mut self, e: &ApiError) -> String {
        self.last_words()(e)
    }
    /// Makes the text that ends a streamed answer whose formatter is lost, for instance by a panic.
    fn last_words(&self) -> LastWords {
        ApiError::to_event
    }
    /// The text after a time without events: a comment, so that readers and proxies keep the connection.
    fn idle(&mut self) -> String {
        ":\n\n".into()
    }
}

/// Replies that are being made, and the format of their answer.
pub(super) struct PendingAnswer {
    events: Replies,
    pub wording: Box<dyn Wording>,
    /// True: the answer is streamed while the replies are generated. False: it is sent when they are complete.
    pub is_stream: bool,
    /// Headers of the answer beyond the usual ones.
    pub headers: Vec<(&'static str, String)>,
    tally: Tally,
}

impl PendingAnswer {
    /// Puts the replies to a request into the queue. Their figures go to `notes`.
    ///
    /// # Errors
    /// As [`start`].
    pub fn start(
        service: &Service,
        asked: ParsedRequest,
        wording: Box<dyn Wording>,
        client: Client,
        notes: Notes,
        abandoned: Abandoned,
    ) -> Result<PendingAnswer, ApiError> {
        let tally = Tally::new(&asked, notes);
        let (events, ignored) = start(service, &asked, client, &abandoned)?;
        let mut headers = Vec::new();
        headers.extend((!ignored.is_empty()).then_some((IGNORED, ignored)));
        headers.extend((asked.forgotten > 0).then(|| (FORGOTTEN, asked.forgotten.to_string())));
        Ok(PendingAnswer { events, wording, is_stream: asked.stream, headers, tally })
    }

    /// Ends the answer soon after `cancel` is set ([`Replies::until`]).
    pub fn until(self, cancel: &Cancel) -> Self {
        PendingAnswer { events: self.events.until(cancel), ..self }
    }

    /// Waits for all replies. Returns the complete answer.
    ///
    /// # Errors
    /// The error of the first reply that failed.
    pub fn whole(mut self) -> Result<Value, ApiError> {
        let replies = self.events.gather()?;
        replies.iter().filter_map(|reply| reply.end.as_ref()).for_each(|end| self.tally.add(end));
        Ok(self.wording.whole(replies))
    }

    /// Passes the texts of a stream to `write` as the replies are made. Returns the error that ended the stream early,
    /// with the text for it.
    ///
    /// # Errors
    /// As `write`.
    pub fn stream<E>(
        self,
        write: &mut dyn FnMut(String) -> Result<(), E>,
    ) -> Result<Result<(), (ApiError, String)>, E> {
        let PendingAnswer { events, mut wording, mut tally, .. } = self;
        write(wording.begin())?;
        for step in events {
            write(match step {
                (choice, Event::Token(token)) => wording.token(choice, token),
                (choice, Event::End(end)) => {
                    tally.add(&end);
                    wording.end(choice, *end)
                }
                (_, Event::Failed(e)) => {
                    let e = ApiError::from(e);
                    let text = wording.fail(&e);
                    return Ok(Err((e, text)));
                }
                (_, Event::Idle) => wording.idle(),
            })?;
        }
        write(wording.finish()).map(Ok)
    }
}

/// The header that lists the parts of tools' schemas that calls need not satisfy.
const IGNORED: &str = "Kiln-Ignored-Schema";
/// The longest list of unenforced schema parts in the header [`IGNORED`], in bytes.
const LONGEST_LIST: usize = 1000;
/// The header with the number of exchanges dropped from the prompt.
const FORGOTTEN: &str = "Kiln-Forgotten-Exchanges";

/// Puts the replies into the queue. Also returns the list of schema parts that are not enforced. All grammars are
/// compiled here.
///
/// # Errors
/// 400: the form cannot be compiled. 503: there is no room. 504: it is too late.
pub(super) fn start(
    service: &Service,
    asked: &ParsedRequest,
    client: Client,
    abandoned: &Abandoned,
) -> Result<(Replies, String), ApiError> {
    let since = Instant::now();
    let is_late = || service.engine.is_late(since);
    let start = |asks: &[Request]| service.submit(&asked.model, asks, client, abandoned.clone(), since);
    let Some(form) = &asked.form else { return Ok((start(&asked.asks)?, String::new())) };
    let is_over = || abandoned() || is_late();
    let compiled = compile(&asked.model, form, CLIENTS.hash_one(client), LONGEST_SEARCH, &is_over)
        .map_err(|e| if is_late() { EngineError::Late(since.elapsed().as_secs()).into() } else { e })?;
    let ignored: String = compiled.ignored().join("; ").chars().take(LONGEST_LIST).collect();
    let ignored = ignored.replace(|c: char| !c.is_ascii(), "?");
    let mut asks = asked.asks.clone();
    for ask in &mut asks {
        ask.guide = Some(service.guide(&asked.model, &compiled, ask).map_err(|e| ApiError::from(&e))?);
    }
    Ok((start(&asks).map_err(|e| refusal(form, e))?, ignored))
}

/// The longest compilation after which the cause of a refusal is still searched.
const LONGEST_SEARCH: Duration = Duration::from_secs(10);

/// Compiles a form. If two forms in one grammar are refused, compiles the inner one alone to find the culprit, unless
/// `time` has passed since the beginning.
fn compile(
    model: &Model,
    form: &RequestedGrammar,
    client: u64,
    time: Duration,
    is_over: &dyn Fn() -> bool,
) -> Result<Arc<CompiledGrammar>, ApiError> {
    let begun = Instant::now();
    let of = |form: &RequestedGrammar, is_over: &dyn Fn() -> bool| {
        let compiled = model.grammars.compile(&form.grammar, client, is_over);
        compiled.map_err(|e| refusal(form, (&e).into()))
    };
    of(form, is_over).map_err(|e| match &form.beside {
        Some(beside) if e.status == 400 => {
            let alone = of(beside, &|| is_over() || begun.elapsed() >= time);
            alone.err().filter(|alone| alone.status == 400).unwrap_or(e)
        }
        _ => e,
    })
}

/// The error for a form, with the field that asks for it.
fn refusal(form: &RequestedGrammar, e: ApiError) -> ApiError {
    match e.status == 400 && e.param.is_none() {
        true => e.param(form.param.clone()),
        false => e,
    }
}

/// Hashes clients to numbers.
static CLIENTS: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// Collects the figures of a request's replies for the access log.
struct Tally {
    notes: Notes,
    /// The number of prompt tokens at the start of a scored reply, which are not counted as generated.
    given: usize,
    cached: usize,
    tokens: usize,
    times: [Duration; 3],
}

impl Tally {
    fn new(asked: &ParsedRequest, notes: Notes) -> Tally {
        notes.set("model", asked.model.name.as_str());
        notes.set("stream", asked.stream);
        notes.set("replies", asked.asks.iter().map(|ask| ask.choices).sum::<usize>());
        notes.set("prompt_tokens", asked.asks.iter().map(|ask| ask.prompt.len()).sum::<usize>());
        let given = asked.asks.iter().filter(|ask| ask.scores).map(|ask| ask.prompt.len().saturating_sub(1));
        let given = given.min().unwrap_or(0);
        Tally { notes, given, cached: 0, tokens: 0, times: [Duration::ZERO; 3] }
    }

    /// Adds a complete reply. The times are the maximum over all replies.
    fn add(&mut self, end: &ReplyEnd) {
        self.cached += end.generation.kept;
        self.tokens += end.generation.tokens.len().saturating_sub(self.given);
        self.notes.set("cached_tokens", self.cached);
        self.notes.set("reply_tokens", self.tokens);
        self.notes.set("finish", end.generation.finish.name());
        let names = ["queued_s", "prefill_s", "decode_s"];
        for ((name, longest), time) in names.into_iter().zip(&mut self.times).zip([end.queued, end.prefill, end.decode])
        {
            *longest = time.max(*longest);
            self.notes.set(name, millis(*longest));
        }
    }
}

/// A duration in seconds, rounded to milliseconds.
fn millis(time: Duration) -> f64 {
    time.as_millis() as f64 / 1e3
}

/// The number of tokens that a request took, for the answer's `usage`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Usage {
    pub prompt: usize,
    /// The number of prompt tokens whose keys and values were in the cache.
    pub cached: usize,
    pub reply: usize,
    /// The number of the reply's tokens that belong to thoughts.
    pub thought: usize,
}

impl Usage {
    /// Adds a reply. `each` replies share a prompt, which counts once.
    pub fn add(&mut self, choice: usize, each: usize, end: &ReplyEnd) {
        if choice.is_multiple_of(each.max(1)) {
            self.prompt += end.generation.prompt;
            self.cached += end.generation.kept;
        }
        self.reply += end.generation.tokens.len();
        self.thought += end.thought_tokens;
    }

    /// The usage in the format of OpenAI's completions.
    pub fn to_json(self) -> Value {
        serde_json::json!({
            "prompt_tokens": self.prompt,
            "completion_tokens": self.reply,
            "total_tokens": self.prompt + self.reply,
            "prompt_tokens_details": {"cached_tokens": self.cached},
            "completion_tokens_details": {"reasoning_tokens": self.thought},
        })
    }
}

/// A time in seconds since 1970.
pub(super) fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// A server-sent event without a name.
pub(super) fn event(data: &Value) -> String {
    format!("data: {data}\n\n")
}

/// The object around the choices of a completion, or of a chat completion.
pub(super) struct Completion {
    /// The value of `object` in a complete answer, and in the chunks of a streamed one.
    kinds: [&'static str; 2],
    id: String,
    created: u64,
    /// The model's name in the answer.
    pub model: String,
    /// True if a streamed answer ends with a chunk that has the usage.
    with_usage: bool,
    pub usage: Usage,
}

impl Completion {
    pub fn new(kinds: [&'static str; 2], prefix: &str, model: String, with_usage: bool) -> Completion {
        let (id, created) = (unique(prefix), seconds(SystemTime::now()));
        Completion { kinds, id, created, model, with_usage, usage: Usage::default() }
    }

    fn object(&self, kind: &str, choices: Vec<Value>, usage: Option<Value>) -> Value {
        let mut object = serde_json::json!({
            "id": self.id, "object": kind, "created": self.created, "model": self.model, "system_fingerprint": null,
            "choices": choices,
        });
        if let Some(usage) = usage {
            object["usage"] = usage;
        }
        object
    }

    /// The complete answer, of all choices.
    pub fn whole(&self, choices: Vec<Value>) -> Value {
        self.object(self.kinds[0], choices, Some(self.usage.to_json()))
    }

    /// An event of a streamed answer with this choice.
    pub fn chunk(&self, choice: Value) -> String {
        event(&self.object(self.kinds[1], vec![choice], self.with_usage.then_some(Value::Null)))
    }

    /// The last events of a streamed answer: the usage if the request asks for it, and `[DONE]`.
    pub fn done(&self) -> String {
        let usage = || event(&self.object(self.kinds[1], Vec::new(), Some(self.usage.to_json())));
        self.with_usage.then(usage).unwrap_or_default() + "data: [DONE]\n\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grammar::{Beside, Calls, Function, Grammar};
    use crate::serve::api::tests::without_engine;
    use crate::serve::service::ServerSettings;
    use serde_json::json;

    #[test]
    fn the_form_to_blame_is_searched_for_within_the_time_of_one_request() {
        let model = without_engine(ServerSettings::default()).service.model().unwrap();
        let schema = json!({"not": {"type": "null"}});
        let functions = vec![Function { name: "f".into(), parameters: json!({"type": "object"}), strict: false }];
        let calls = Calls {
            functions,
            beside: Beside::Document(schema.clone()),
            several: true,
            syntax: crate::text::CallSyntax::Json,
        };
        let beside = RequestedGrammar::new(Grammar::JsonSchema(schema), "format".into());
        let form = RequestedGrammar {
            beside: Some(Box::new(beside)),
            ..RequestedGrammar::new(Grammar::Calls(calls), "tools".into())
        };
        let blamed = |time| compile(&model, &form, 1, time, &|| false).unwrap_err().param.unwrap();
        assert_eq!(blamed(Duration::ZERO), "tools");
        assert_eq!(blamed(Duration::from_secs(600)), "format");
    }
}
