//! What a request asks of the engine, and what comes back.

use super::http::ApiError;
pub use super::http::Client;
use crate::grammar::CompiledGrammar;
use crate::sequence::reply::CallStart;
use crate::sequence::{Finish, Likelihood, Reply, SequenceRequest};
use crate::text::SamplerConfig;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

/// Most replies that one request asks for.
pub const MOST_CHOICES: usize = 128;

/// How replies are made where a request does not say.
#[derive(Debug, Clone, PartialEq)]
pub struct Defaults {
    /// How the tokens are chosen.
    pub sampler: SamplerConfig,
    /// Most tokens of a reply.
    pub limit: usize,
}

impl Default for Defaults {
    fn default() -> Defaults {
        Defaults { sampler: SamplerConfig::default(), limit: usize::MAX }
    }
}

/// What a request asks: one or more replies to a prompt.
#[derive(Debug, Clone)]
pub struct ReplyRequest {
    /// The prompt's tokens, which fit the context ([`crate::sequence::SequenceLimits::check`]).
    pub prompt: Vec<u32>,
    /// How the tokens are chosen. With a seed, reply `i` draws with `seed + i`.
    pub sampler: SamplerConfig,
    /// Most tokens of a reply.
    pub limit: usize,
    /// Texts that end a reply and are not part of it. None is empty.
    pub stop: Vec<String>,
    /// What the prompt's last message has of the reply already. The grammar's document begins with it.
    pub begun: String,
    /// Where calls of functions begin, which no stop text cuts.
    pub calls: CallStart,
    /// Goes on past the model's own stop tokens.
    pub ignore_eos: bool,
    /// Reports each token's likelihood, and those of so many likeliest tokens.
    pub likelihoods: Option<usize>,
    /// Begins the reply with the prompt's own tokens after its first, so that their likelihoods are reported too. They do not
    /// count for `limit`, which may be 0, and no token ends the reply before it.
    pub scores: bool,
    /// What the replies may be. They end where it does, whatever `ignore_eos` says.
    pub grammar: Option<Arc<CompiledGrammar>>,
    /// Takes over what the cache holds of the prompt.
    pub reuse: bool,
    /// How many replies, at least 1 and at most [`MOST_CHOICES`].
    pub choices: usize,
}

impl ReplyRequest {
    /// One reply to a prompt, as long as the model makes it, with the default sampler.
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

/// What happens to a reply.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// It has one token more.
    Token(ReplyToken),
    /// It is complete.
    End(ReplyEnd),
    /// It will not be completed. What came before is not the whole reply.
    Failed(ApiError),
}

/// A token of a reply.
#[derive(Debug, Clone, PartialEq)]
pub struct ReplyToken {
    /// Its id.
    pub id: u32,
    /// The text that is final with it. May be empty: a character may take several tokens, and what may begin a stop text is
    /// held back.
    pub text: String,
    /// How likely it was, if that was asked for.
    pub likelihood: Option<Likelihood>,
}

/// How a reply ended, and what it cost.
#[derive(Debug, Clone, PartialEq)]
pub struct ReplyEnd {
    /// Text that was held back.
    pub text: String,
    /// Why it ended: [`Finish::Stop`] or [`Finish::Length`].
    pub finish: Finish,
    /// The stop text that ended it, where one did.
    pub stop: Option<String>,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Those that were taken from the cache.
    pub cached_tokens: usize,
    /// Tokens of the reply. One that ended it is not among them.
    pub tokens: usize,
    /// Time in the queue.
    pub queued: Duration,
    /// Time from there to the first token.
    pub prefill: Duration,
    /// Time from the first token to the last.
    pub decode: Duration,
}

/// Says whether nobody waits for a job any more. Any thread asks it, often.
pub(super) type Abandoned = Arc<dyn Fn() -> bool + Send + Sync>;

/// An event of a reply, which the request knows by its number.
pub(super) type ChoiceEvent = (usize, Event);

/// What is to be told to those who wait, in this order. Each send may wake a thread.
#[derive(Default)]
pub(super) struct Outbox(Vec<(Sender<ChoiceEvent>, ChoiceEvent)>);

impl Outbox {
    /// Adds what a recipient is to be told.
    pub fn add(&mut self, to: &Recipient, event: Event) {
        self.0.push((to.events.clone(), (to.choice, event)));
    }

    /// Tells all of it. A receiver that is gone does not matter: [`Recipient::is_abandoned`] will say so.
    pub fn send(&mut self) {
        for (to, event) in self.0.drain(..) {
            let _ = to.send(event);
        }
    }
}

/// One reply to be made.
pub(super) struct Job {
    /// What the batch is asked. The prompt's tokens that are scored stand in its reply.
    pub request: SequenceRequest,
    pub recipient: Recipient,
}

/// Who waits for a reply, and how far its text is.
pub(super) struct Recipient {
    /// The model that the reply's tokens are of.
    pub model: u64,
    /// Which reply of its request it is.
    pub choice: usize,
    /// Tokens of the prompt that the reply begins with, for their likelihoods.
    pub given: usize,
    pub reply: Reply,
    pub client: Client,
    pub abandoned: Abandoned,
    pub since: Instant,
    /// When it is given up.
    pub deadline: Option<Instant>,
    pub events: Sender<ChoiceEvent>,
}

impl Recipient {
    /// Tells it. A receiver that is gone does not matter: [`Recipient::is_abandoned`] will say so.
    pub fn tell(&self, event: Event) {
        let _ = self.events.send((self.choice, event));
    }

    /// Whether nobody waits any more.
    pub fn is_abandoned(&self) -> bool {
        (self.abandoned)()
    }

    /// Whether its time is over at `now`.
    pub fn is_late(&self, now: Instant) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= now)
    }

    /// What it is told where its time is over.
    pub fn late(&self) -> Event {
        Event::Failed(late(self.since))
    }
}

/// What is told where the time of a request that came at `since` is over.
pub(super) fn late(since: Instant) -> ApiError {
    let seconds = since.elapsed().as_secs();
    let message = format!("the reply was not complete after {seconds} s, the longest that this server takes");
    ApiError::new(504, message).code("deadline_exceeded")
}
