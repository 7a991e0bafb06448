//! Runs what a request asks, and answers with it whole or as a stream. How the answer is worded is up to each API.

use super::Call;
use super::form::RequestedGrammar;
use crate::grammar::CompiledGrammar;
use crate::serve::health::Phase;
use crate::serve::http::{ApiError, EVENTS, Gone, LastWords, Notes, Responder};
use crate::serve::job::{Event, ReplyEnd, ReplyRequest, ReplyToken, late};
use crate::serve::model::Model;
use crate::serve::service::{CompleteReply, EventPoll, ReplyEvents};
pub(super) use crate::serve::unique::unique;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A request that was read.
pub(super) struct ParsedRequest {
    /// The model that its tokens are of.
    pub model: Arc<Model>,
    /// One for each prompt, all with as many choices.
    pub asks: Vec<ReplyRequest>,
    /// The form of each reply.
    pub form: Option<RequestedGrammar>,
    /// Whether the answer is a stream.
    pub stream: bool,
    /// Exchanges of the conversation that its prompt is without, for want of room.
    pub forgotten: usize,
}

/// How an API words its answers. Choices are numbered through all prompts. A stream's parts are texts that go out in one
/// write each; an empty one is left out.
pub(super) trait Wording {
    /// The whole answer.
    fn whole(&mut self, replies: Vec<CompleteReply>) -> serde_json::Value;
    /// The content type of a stream.
    fn content_type(&self) -> &'static str {
        EVENTS
    }
    /// What a stream begins with.
    fn begin(&mut self) -> String;
    /// A reply has one token more.
    fn token(&mut self, choice: usize, token: ReplyToken) -> String;
    /// A reply is complete.
    fn end(&mut self, choice: usize, end: ReplyEnd) -> String;
    /// Takes whole replies token by token, for a whole answer that is made as a stream's last part is.
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
    /// All replies are complete.
    fn finish(&mut self) -> String;
    /// The stream ends here, with an error.
    fn fail(&mut self, e: &ApiError) -> String {
        self.last_words()(e)
    }
    /// How a stream ends whose wording is lost, as by a panic.
    fn last_words(&self) -> LastWords {
        ApiError::to_event
    }
    /// Nothing has happened for a while: a comment, so that neither readers nor a proxy take silence for an end.
    fn idle(&mut self) -> String {
        ":\n\n".into()
    }
}

/// Runs what was read of a request, and answers.
///
/// # Errors
/// The peer is gone.
pub(super) fn answer<W: Wording>(
    call: &Call<'_>,
    reply: Responder<'_>,
    read: Result<(ParsedRequest, W), ApiError>,
) -> Result<(), Gone> {
    let watch = reply.watch();
    let started = read.and_then(|(asked, wording)| {
        let tally = Tally::new(&asked, reply.notes());
        Ok(((asked.stream, asked.forgotten), start(call, &asked, &reply)?, tally, wording))
    });
    let ((stream, forgotten), (answers, ignored), mut tally, mut wording) = match started {
        Ok(started) => started,
        Err(e) => return call.refuse(reply, &e),
    };
    let reply = if ignored.is_empty() { reply } else { reply.with_header(IGNORED, ignored) };
    let reply = if forgotten == 0 { reply } else { reply.with_header(FORGOTTEN, forgotten.to_string()) };
    let sent = match stream {
        true => send_stream(call, reply, answers, &mut tally, &mut wording),
        false => match answers.gather() {
            Ok(replies) => {
                replies.iter().filter_map(|reply| reply.end.as_ref()).for_each(|end| tally.add(end));
                reply.json(200, &wording.whole(replies))
            }
            // The engine gives up what nobody waits for.
            Err(_) if watch.is_gone() => Err(Gone),
            Err(e) => call.refuse(reply, &e),
        },
    };
    sent.inspect_err(|Gone| {
        if call.service.health.phase() == Phase::Draining {
            log::warn!("a reply to {} was cut off before its end, as the server stops", call.request.peer);
        }
    })
}

/// The header that lists what the schemas of tools ask for and calls are not held to.
const IGNORED: &str = "Kiln-Ignored-Schema";
/// Bytes of the longest such list.
const LONGEST_LIST: usize = 1000;
/// The header that says how many exchanges the prompt is without.
const FORGOTTEN: &str = "Kiln-Forgotten-Exchanges";

/// Puts what is asked into the queue, and says what of its schemas is ignored. All that needs a grammar passes here.
fn start<'s>(
    call: &Call<'s>,
    asked: &ParsedRequest,
    reply: &Responder<'_>,
) -> Result<(ReplyEvents<'s>, String), ApiError> {
    let client = call.request.client;
    let since = Instant::now();
    let start = |asks: &[ReplyRequest]| call.service.start(&asked.model, asks, client, reply.watch(), since);
    let Some(form) = &asked.form else { return Ok((start(&asked.asks)?, String::new())) };
    let watch = reply.watch();
    let is_over = || watch.is_gone() || call.service.is_late(since);
    let compiled = compile(&asked.model, form, CLIENTS.hash_one(client), LONGEST_SEARCH, &is_over)
        .map_err(|e| if call.service.is_late(since) { late(since) } else { e })?;
    let ignored: String = compiled.ignored().join("; ").chars().take(LONGEST_LIST).collect();
    let ignored = ignored.replace(|c: char| !c.is_ascii(), "?");
    let mut asks = asked.asks.clone();
    asks.iter_mut().for_each(|ask| ask.grammar = Some(compiled.clone()));
    Ok((start(&asks).map_err(|e| refusal(form, e))?, ignored))
}

/// After so long with a request's grammar it is not searched for what is to blame.
const LONGEST_SEARCH: Duration = Duration::from_secs(10);

/// Compiles a form. Of two forms in one grammar, the one that is refused alone is to blame, as far as `time` from the beginning
/// is enough to find it.
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

/// The refusal of a form, with the field that asks for it.
fn refusal(form: &RequestedGrammar, e: ApiError) -> ApiError {
    match e.status == 400 && e.param.is_none() {
        true => e.param(form.param.clone()),
        false => e,
    }
}

/// Tells clients apart.
static CLIENTS: LazyLock<RandomState> = LazyLock::new(RandomState::new);

fn send_stream(
    call: &Call<'_>,
    reply: Responder<'_>,
    answers: ReplyEvents<'_>,
    tally: &mut Tally,
    wording: &mut dyn Wording,
) -> Result<(), Gone> {
    let (watch, notes) = (reply.watch(), reply.notes());
    let mut stream = reply.stream(wording.content_type())?.with_last_words(wording.last_words());
    stream.write(wording.begin().as_bytes())?;
    for step in answers {
        let part = match step {
            EventPoll::Event(choice, Event::Token(token)) => wording.token(choice, token),
            EventPoll::Event(choice, Event::End(end)) => {
                tally.add(&end);
                wording.end(choice, end)
            }
            // The engine gives up what nobody waits for.
            EventPoll::Event(_, Event::Failed(_)) if watch.is_gone() => return Err(Gone),
            EventPoll::Event(_, Event::Failed(e)) => {
                call.note_failure(&e, &notes);
                return stream.fail(wording.fail(&e).as_bytes());
            }
            EventPoll::Idle => wording.idle(),
        };
        stream.write(part.as_bytes())?;
    }
    stream.write(wording.finish().as_bytes())?;
    stream.finish()
}

/// What the access log has of a request's replies.
struct Tally {
    notes: Notes,
    /// Tokens of a prompt that a reply begins with, for their likelihoods.
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

    /// Adds a reply that is complete. Of several, the times are the longest.
    fn add(&mut self, end: &ReplyEnd) {
        self.cached += end.cached_tokens;
        self.tokens += end.tokens.saturating_sub(self.given);
        self.notes.set("cached_tokens", self.cached);
        self.notes.set("reply_tokens", self.tokens);
        self.notes.set("finish", end.finish.name());
        let names = ["queued_s", "prefill_s", "decode_s"];
        for ((name, longest), time) in names.into_iter().zip(&mut self.times).zip([end.queued, end.prefill, end.decode])
        {
            *longest = time.max(*longest);
            self.notes.set(name, millis(*longest));
        }
    }
}

/// Seconds, to the millisecond.
fn millis(time: Duration) -> f64 {
    time.as_millis() as f64 / 1e3
}

/// Tokens that a request took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Usage {
    pub prompt: usize,
    /// Those of the prompt that the cache held.
    pub cached: usize,
    pub reply: usize,
}

impl Usage {
    /// Adds a reply. `each` replies have one prompt, which counts once.
    pub fn add(&mut self, choice: usize, each: usize, end: &ReplyEnd) {
        if choice.is_multiple_of(each.max(1)) {
            self.prompt += end.prompt_tokens;
            self.cached += end.cached_tokens;
        }
        self.reply += end.tokens;
    }

    /// As OpenAI's completions have it.
    pub fn to_json(self) -> serde_json::Value {
        serde_json::json!({
            "prompt_tokens": self.prompt,
            "completion_tokens": self.reply,
            "total_tokens": self.prompt + self.reply,
            "prompt_tokens_details": {"cached_tokens": self.cached},
            "completion_tokens_details": {"reasoning_tokens": 0},
        })
    }
}

/// Seconds since 1970.
pub(super) fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// A server-sent event without a name.
pub(super) fn event(data: &serde_json::Value) -> String {
    format!("data: {data}\n\n")
}

/// The last events of a completion's stream: where it is wanted, `chunk` with the usage, and then the mark of a clean end.
pub(super) fn done(chunk: Option<serde_json::Value>, usage: Usage) -> String {
    let with_usage = chunk.map(|mut chunk| {
        chunk["usage"] = usage.to_json();
        event(&chunk)
    });
    with_usage.unwrap_or_default() + "data: [DONE]\n\n"
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
