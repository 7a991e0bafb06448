//! Requests for replies, and the events of the replies.

use super::queue::EngineHandle;
use crate::sequence::reply::CallStart;
use crate::sequence::{Chooser, Generation, Likelihood, Reply, SequenceRequest};
use crate::text::SamplerConfig;
use crate::{Cancel, Error};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// The most replies of one request.
pub const MOST_CHOICES: usize = 128;

/// The origin of a request: the unit by which connections, memory and slots are shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Client {
    /// This program itself, without a connection.
    Program,
    /// An IPv4 address, or an IPv6 network of 64 bits, the usual size for one customer.
    Address(IpAddr),
    /// A user of this machine by its id, over a Unix socket.
    User(u32),
    /// The holder of one of several API keys, from any address. The number is meaningful in this process only.
    Key(u64),
}

impl Client {
    /// The owner of its prompts, which are not found by other clients. `None`: they are public.
    pub(super) fn owner(self) -> Option<u64> {
        match self {
            Client::Key(number) => Some(number),
            Client::Program | Client::Address(_) | Client::User(_) => None,
        }
    }
}

/// Restricts the chooser of a reply by a guide of its own.
pub type GuideMaker = Arc<dyn Fn(Chooser) -> crate::Result<Chooser> + Send + Sync>;

/// A request for one or more replies to a prompt.
#[derive(Clone)]
pub struct Request {
    /// The prompt's tokens, which fit the context ([`crate::sequence::SequenceLimits::check`]).
    pub prompt: Vec<u32>,
    /// The sampler's settings. With a seed, reply `i` uses `seed + i`.
    pub sampler: SamplerConfig,
    /// The chooser with which an earlier reply ended, to be used in place of `sampler`.
    pub chooser: Option<Chooser>,
    /// The most tokens of a reply.
    pub limit: usize,
    /// Texts that end a reply. None of them is empty, and the reply does not contain them.
    pub stop: Vec<String>,
    /// The beginning of the reply in the prompt's last message. The guide's document begins with it.
    pub begun: String,
    /// True if the reply may have a thought before the guide's document.
    pub thinks: bool,
    /// The texts or tokens that begin a function call. Stop texts do not end a reply within a call.
    pub calls: CallStart,
    /// True if the reply continues past the model's own stop tokens.
    pub ignore_eos: bool,
    /// Reports each token's likelihood, and those of this many alternatives.
    pub likelihoods: Option<usize>,
    /// Whether the reply begins with the prompt's own tokens after the first, to report their likelihoods. They do not
    /// count for `limit`, which may be 0, and no token ends the reply among them.
    pub scores: bool,
    /// The guide of each reply. A reply ends with its guide's document even if `ignore_eos` is set.
    pub guide: Option<GuideMaker>,
    /// True if the prompt's first tokens may come from the cache. False: the whole prompt runs.
    pub reuse: bool,
    /// The number of replies, from 1 to [`MOST_CHOICES`].
    pub choices: usize,
}

impl Request {
    /// A request for one reply without limit, with the default sampler.
    pub fn new(prompt: Vec<u32>) -> Request {
        Request {
            prompt,
            sampler: SamplerConfig::default(),
            chooser: None,
            limit: usize::MAX,
            stop: Vec::new(),
            begun: String::new(),
            thinks: false,
            calls: CallStart::Nowhere,
            ignore_eos: false,
            likelihoods: None,
            scores: false,
            guide: None,
            reuse: true,
            choices: 1,
        }
    }

    /// A request that runs `tokens` so that they are cached. Its reply is one token.
    pub(super) fn caching(tokens: Vec<u32>) -> Request {
        Request { limit: 1, sampler: SamplerConfig::greedy(), ignore_eos: true, ..Request::new(tokens) }
    }
}

/// An event of a request's replies.
#[derive(Debug, Clone)]
pub enum Event {
    /// A reply has another token.
    Token(ReplyToken),
    /// The end of a complete reply.
    End(Box<ReplyEnd>),
    /// The end of an incomplete reply, with an error.
    Failed(EngineError),
    /// No event of any reply for a while: a stream should send a heartbeat.
    Idle,
}

/// A token of a reply, with the text that it makes final.
#[derive(Debug, Clone, PartialEq)]
pub struct ReplyToken {
    /// The id of the token in the vocabulary.
    pub id: u32,
    /// The text that becomes final with it. May be empty: a character may take several tokens, and a possible beginning
    /// of a stop text is held back.
    pub text: String,
    /// The text of the model's thought that the token adds. It is not part of the reply's text.
    pub thought: String,
    /// The likelihood of the token, if the request asks for it.
    pub likelihood: Option<Likelihood>,
}

/// The end of a reply, with its costs.
#[derive(Debug, Clone)]
pub struct ReplyEnd {
    /// The end of the reply's text, which was delayed because a stop text might have begun in it.
    pub text: String,
    /// The stop text that ended it, if any.
    pub stop: Option<String>,
    /// The number of the reply's tokens that belong to thoughts.
    pub thought_tokens: usize,
    /// The reply's tokens, counts and times.
    pub generation: Generation,
    /// The time that the request waited in the queue.
    pub queued: Duration,
    /// Time from the end of the queue to the first token.
    pub prefill: Duration,
    /// Time from the first token to the last.
    pub decode: Duration,
    /// The chooser after this reply, with which a next reply can continue.
    pub chooser: Chooser,
}

/// The error of a request, or of one of its replies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EngineError {
    /// The prompt does not fit the context, or is no prompt.
    Prompt(Error),
    /// The request or this reply failed. Other requests continue.
    Reply(Error),
    /// The queue has no room for the request.
    Full {
        /// The message, with the number of replies that wait.
        message: String,
        /// The number of seconds after which the client may try again.
        retry: u64,
    },
    /// The reply was not complete before its deadline, so many seconds after the request.
    Late(u64),
    /// The engine is stopping.
    Stopping,
    /// A reload has replaced the model by another one.
    Replaced,
    /// The model was unloaded, and cannot be loaded again.
    Unloaded {
        /// Why: the words of a message about the model's files.
        why: &'static str,
        /// The error with which loading the model again failed.
        error: Error,
    },
    /// The engine has failed with this error, and answers no request.
    Failed(Error),
    /// The engine has ended without an answer to the request.
    Dropped,
}

/// The error with its kind. Errors without a kind of their own name the remedy.
impl From<EngineError> for Error {
    fn from(e: EngineError) -> Error {
        match e {
            EngineError::Prompt(e) | EngineError::Reply(e) | EngineError::Failed(e) => e,
            EngineError::Unloaded { error, .. } => error,
            EngineError::Full { message, .. } => Error::refused(message, "try again later"),
            EngineError::Late(_) => Error::failed(e.to_string(), "try again"),
            EngineError::Stopping | EngineError::Replaced => Error::refused(e.to_string(), "try again later"),
            EngineError::Dropped => Error::failed(e.to_string(), "try again"),
        }
    }
}

impl fmt::Display for EngineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EngineError::Prompt(e) | EngineError::Reply(e) => write!(f, "{e}"),
            EngineError::Full { message, .. } => f.write_str(message),
            EngineError::Late(seconds) => {
                write!(f, "the reply was not complete after {seconds} s, the longest that it may take")
            }
            EngineError::Stopping => f.write_str("the engine is stopping"),
            EngineError::Replaced => f.write_str("the model was loaded anew as the request came; ask again"),
            EngineError::Unloaded { why, error } => write!(f, "{why}: {error}"),
            EngineError::Failed(e) => write!(f, "the engine has failed: {e}"),
            EngineError::Dropped => f.write_str("the engine dropped the request; the log says why"),
        }
    }
}

/// Returns true once the client of a job has left. It is called often, from any thread.
pub type Abandoned = Arc<dyn Fn() -> bool + Send + Sync>;

/// An event with the number of its reply.
pub type ChoiceEvent = (usize, Event);

/// Events to send, in order. Sends are delayed because each may wake a thread.
#[derive(Default)]
pub(super) struct Outbox(Vec<(Sender<ChoiceEvent>, ChoiceEvent)>);

impl Outbox {
    /// Adds an event, which is sent to its recipient with the next [`Outbox::send`].
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
pub(crate) struct Job {
    /// The sequence that the batch runs. Prompt tokens whose likelihoods are wanted count as the reply's.
    pub request: SequenceRequest,
    pub recipient: Recipient,
}

/// The receiver of a reply, with the state of its text.
pub(crate) struct Recipient {
    /// The id of the model whose tokens the reply has.
    pub model: u64,
    /// The index of the reply among its request's.
    pub choice: usize,
    /// The number of prompt tokens at the start of the reply, which are there for their likelihoods.
    pub given: usize,
    /// The reply's text so far; `None`: tokens have no text.
    pub reply: Option<Reply>,
    pub client: Client,
    pub abandoned: Abandoned,
    pub since: Instant,
    /// The time at which the reply is cancelled.
    pub deadline: Option<Instant>,
    pub events: Sender<ChoiceEvent>,
}

impl Recipient {
    /// Sends an event. A receiver that is gone is found later by [`Recipient::is_abandoned`].
    pub fn send(&self, event: Event) {
        let _ = self.events.send((self.choice, event));
    }

    /// True if the client has left, so that the reply is useless.
    pub fn is_abandoned(&self) -> bool {
        (self.abandoned)()
    }

    /// True if the reply's deadline has passed at the time `now`.
    pub fn is_late(&self, now: Instant) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= now)
    }

    /// The event that tells the client of a passed deadline.
    pub fn late(&self) -> Event {
        Event::Failed(EngineError::Late(self.since.elapsed().as_secs()))
    }
}

/// The events of a [`Request`]'s replies. Dropping it ends the replies.
pub struct Replies {
    engine: EngineHandle,
    /// `None`: there will be no further replies, so that the loss of all of them is noticed.
    pub(super) sender: Option<Sender<ChoiceEvent>>,
    events: Receiver<ChoiceEvent>,
    /// The number of replies that the request has in all.
    pub(super) count: usize,
    /// The number of replies that have not ended yet.
    pub(super) left: usize,
    /// The flag that ends the events ([`Replies::until`]).
    cancel: Option<Cancel>,
    /// Marks the replies as abandoned when it is dropped.
    pub(super) waits: Arc<()>,
}

/// Interval at which a wait for the engine checks whether it has failed.
const LOOK: Duration = Duration::from_secs(1);
/// Interval at which a wait that can be cancelled checks whether it is.
const SLICE: Duration = Duration::from_millis(20);

/// Waits for the next event of any reply. `None` when all have ended.
impl Iterator for Replies {
    type Item = ChoiceEvent;

    fn next(&mut self) -> Option<ChoiceEvent> {
        if self.left == 0 {
            return None;
        }
        let heartbeat = self.engine.heartbeat();
        let mut quiet = Duration::ZERO;
        loop {
            if let Some(Err(e)) = self.cancel.as_ref().map(|cancel| cancel.check_or("the request was cancelled")) {
                self.left = 0;
                return Some((0, Event::Failed(EngineError::Reply(e))));
            }
            let wait = if self.cancel.is_some() { SLICE } else { LOOK }.min(heartbeat);
            match self.events.recv_timeout(wait) {
                Ok((choice, event)) => {
                    self.left -= usize::from(!matches!(event, Event::Token(_) | Event::Idle));
                    return Some((choice, event));
                }
                Err(RecvTimeoutError::Timeout) if self.engine.failure().is_none() => {
                    quiet += wait;
                    if quiet >= heartbeat {
                        return Some((0, Event::Idle));
                    }
                }
                // The engine has failed, or dropped the job.
                Err(_) => {
                    self.left = 0;
                    let e = self.engine.failure().map_or(EngineError::Dropped, EngineError::Failed);
                    return Some((0, Event::Failed(e)));
                }
            }
        }
    }
}

impl Replies {
    /// A receiver without replies, for the engine `engine`.
    pub(super) fn of(engine: &EngineHandle) -> Replies {
        let (sender, events) = channel();
        Replies {
            engine: engine.clone(),
            sender: Some(sender),
            events,
            count: 0,
            left: 0,
            cancel: None,
            waits: Arc::new(()),
        }
    }

    /// The next event, if there is one already.
    pub(super) fn poll(&mut self) -> Option<ChoiceEvent> {
        let (choice, event) = self.events.try_recv().ok()?;
        self.left -= usize::from(!matches!(event, Event::Token(_) | Event::Idle));
        Some((choice, event))
    }

    /// Marks the replies as complete: none can be added afterwards.
    pub(super) fn complete(self) -> Replies {
        Replies { sender: None, ..self }
    }

    /// Ends the events with [`Error::Interrupted`] soon after `cancel` is set.
    pub fn until(self, cancel: &Cancel) -> Replies {
        Replies { cancel: Some(cancel.clone()), ..self }
    }

    /// Waits for the end of all replies. Returns the tokens and the end of each. Call it before any event was taken.
    ///
    /// # Errors
    /// The error of the first reply that failed.
    pub fn gather(self) -> Result<Vec<CompleteReply>, EngineError> {
        let mut whole = vec![CompleteReply::default(); self.left];
        for step in self {
            match step {
                (_, Event::Failed(e)) => return Err(e),
                (choice, event) => whole[choice].add(event),
            }
        }
        Ok(whole)
    }

    /// Waits as [`Replies::gather`]. Returns the number of prompt tokens that were cached before.
    ///
    /// # Errors
    /// As [`Replies::gather`].
    pub(super) fn kept(self) -> Result<usize, EngineError> {
        let ends = self.gather()?.into_iter().filter_map(|whole| whole.end);
        Ok(ends.map(|end| end.generation.kept).sum())
    }
}

/// A reply with all of its text and tokens.
#[derive(Debug, Clone, Default)]
pub struct CompleteReply {
    /// The reply's text, without thoughts.
    pub text: String,
    /// The text of the reply's thoughts.
    pub thought: String,
    /// The tokens, each with the text that became final with it.
    pub tokens: Vec<ReplyToken>,
    /// The end.
    pub end: Option<ReplyEnd>,
}

impl CompleteReply {
    fn add(&mut self, event: Event) {
        match event {
            Event::Token(token) => {
                self.text.push_str(&token.text);
                self.thought.push_str(&token.thought);
                self.tokens.push(token);
            }
            Event::End(end) => {
                self.text.push_str(&end.text);
                self.end = Some(*end);
            }
            Event::Failed(_) | Event::Idle => {}
        }
    }
}
