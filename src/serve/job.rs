//! Jobs for the engine and the events of their replies.

use super::http::ApiError;
pub use super::http::Client;
use crate::grammar::CompiledGrammar;
use crate::sequence::reply::CallStart;
use crate::sequence::{Finish, Likelihood, Reply, SequenceRequest};
use crate::text::SamplerConfig;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

/// The most replies of one request.
pub const MOST_CHOICES: usize = 128;

/// Defaults for requests without settings of their own.
#[derive(Debug, Clone, PartialEq)]
pub struct Defaults {
    /// The sampler's settings.
    pub sampler: SamplerConfig,
    /// The most tokens of a reply.
    pub limit: usize,
}

impl Default for Defaults {
    fn default() -> Defaults {
        Defaults { sampler: SamplerConfig::default(), limit: usize::MAX }
    }
}

/// A request for one or more replies to a prompt.
#[derive(Debug, Clone)]
pub struct ReplyRequest {
    /// The prompt's tokens, which fit the context ([`crate::sequence::SequenceLimits::check`]).
    pub prompt: Vec<u32>,
    /// The sampler's settings. With a seed, reply `i` uses `seed + i`.
    pub sampler: SamplerConfig,
    /// The most tokens of a reply.
    pub limit: usize,
    /// Texts that end a reply and are not part of it. None is empty.
    pub stop: Vec<String>,
    /// The beginning of the reply in the prompt's last message. The grammar's document begins with it.
    pub begun: String,
    /// Where function calls begin, to which stop texts do not apply.
    pub calls: CallStart,
    /// Whether the model's own stop tokens are ignored.
    pub ignore_eos: bool,
    /// Reports each token's likelihood, and those of this many alternatives.
    pub likelihoods: Option<usize>,
    /// Whether the reply begins with the prompt's own tokens after the first, to report their likelihoods. They do not
    /// count for `limit`, which may be 0, and no token ends the reply among them.
    pub scores: bool,
    /// The grammar of the replies. A reply ends with its document even if `ignore_eos` is set.
    pub grammar: Option<Arc<CompiledGrammar>>,
    /// Whether cached tokens of the prompt are used.
    pub reuse: bool,
    /// The number of replies, from 1 to [`MOST_CHOICES`].
    pub choices: usize,
}

impl ReplyRequest {
    /// A request for one reply without limit, with the default sampler.
    pub fn new(prompt: Vec<u32>) -> ReplyRequest {
        ReplyRequest {
            prompt,
            sampler: SamplerConfig::default(),
            limit: usize::MAX,
            stop: Vec::new(),
            begun: String::new(),
            calls: CallStart::Nowhere,
            ignore_eos: false,
            likelihoods: None,
            scores: false,
            grammar: None,
            reuse: true,
            choices: 1,
        }
    }
}

/// An event of a reply.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// Another token.
    Token(ReplyToken),
    /// The end of a complete reply.
    End(ReplyEnd),
    /// The end of an incomplete reply, with an error.
    Failed(ApiError),
}

/// A token of a reply.
#[derive(Debug, Clone, PartialEq)]
pub struct ReplyToken {
    /// Its id.
    pub id: u32,
    /// The text that becomes final with it. May be empty: a character may take several tokens, and a possible beginning
    /// of a stop text is held back.
    pub text: String,
    /// Its likelihood, if requested.
    pub likelihood: Option<Likelihood>,
}

/// The end of a reply, with its costs.
#[derive(Debug, Clone, PartialEq)]
pub struct ReplyEnd {
    /// The rest of the text, which had been held back.
    pub text: String,
    /// The reason: [`Finish::Stop`] or [`Finish::Length`].
    pub finish: Finish,
    /// The stop text that ended it, if any.
    pub stop: Option<String>,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Prompt tokens taken from the cache.
    pub cached_tokens: usize,
    /// Tokens of the reply, without a stop token.
    pub tokens: usize,
    /// Time in the queue.
    pub queued: Duration,
    /// Time from the end of the queue to the first token.
    pub prefill: Duration,
    /// Time from the first token to the last.
    pub decode: Duration,
}

/// Whether a job's client is gone. Called often, from any thread.
pub(super) type Abandoned = Arc<dyn Fn() -> bool + Send + Sync>;

/// An event of a request's reply, by the reply's number.
pub(super) type ChoiceEvent = (usize, Event);

/// Events to send, in order. Sends are delayed because each may wake a thread.
#[derive(Default)]
pub(super) struct Outbox(Vec<(Sender<ChoiceEvent>, ChoiceEvent)>);

impl Outbox {
    /// Adds an event for a recipient.
    pub fn add(&mut self, to: &Recipient, event: Event) {
        self.0.push((to.events.clone(), (to.choice, event)));
    }

    /// Sends all events. A receiver that is gone is found later by [`Recipient::is_abandoned`].
    pub fn send(&mut self) {
        for (to, event) in self.0.drain(..) {
            let _ = to.send(event);
        }
    }
}

/// A reply to generate.
pub(super) struct Job {
    /// The request for the batch. Scored prompt tokens are part of its reply.
    pub request: SequenceRequest,
    pub recipient: Recipient,
}

/// The receiver of a reply, with the state of its text.
pub(super) struct Recipient {
    /// The id of the model whose tokens the reply has.
    pub model: u64,
    /// The reply's number in its request.
    pub choice: usize,
    /// The number of scored prompt tokens at the beginning of the reply.
    pub given: usize,
    pub reply: Reply,
    pub client: Client,
    pub abandoned: Abandoned,
    pub since: Instant,
    /// The time at which it is cancelled.
    pub deadline: Option<Instant>,
    pub events: Sender<ChoiceEvent>,
}

impl Recipient {
    /// Sends an event. A receiver that is gone is found later by [`Recipient::is_abandoned`].
    pub fn tell(&self, event: Event) {
        let _ = self.events.send((self.choice, event));
    }

    /// Whether the client is gone.
    pub fn is_abandoned(&self) -> bool {
        (self.abandoned)()
    }

    /// Whether its deadline has passed at `now`.
    pub fn is_late(&self, now: Instant) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= now)
    }

    /// The event for a passed deadline.
    pub fn late(&self) -> Event {
        Event::Failed(late(self.since))
    }
}

/// The error for a request from `since` whose deadline has passed.
pub(super) fn late(since: Instant) -> ApiError {
    let seconds = since.elapsed().as_secs();
    let message = format!("the reply was not complete after {seconds} s, the longest that this server takes");
    ApiError::new(504, message).code("deadline_exceeded")
}
