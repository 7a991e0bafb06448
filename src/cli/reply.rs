//! What answering a prompt and chatting share: the end at Ctrl-C, the text on its way to the user, and what it took.

use super::{face, print};
use crate::executor::Executor;
use crate::schedule::Pass;
use crate::sequence::generate::{Finish, Generation};
use crate::sequence::session::larger_context;
use crate::text::{SamplerConfig, StopMatcher, Stopped, StreamDecoder, Tokenizer};
use crate::{Error, Result};
use signal_hook::consts::SIGINT;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

/// How a reply is made.
#[derive(Debug, Clone, clap::Args)]
pub struct ReplyArgs {
    /// A system message before the prompt
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true, conflicts_with = "raw")]
    pub(super) system: Option<String>,
    /// Most tokens to generate [default: until the model stops, or the context is full]
    #[arg(short, value_name = "N", allow_negative_numbers = true)]
    n: Option<usize>,
    /// Sampling temperature; 0 always takes the likeliest token
    #[arg(long, default_value_t = 0.0, value_name = "T", allow_negative_numbers = true)]
    temp: f32,
    /// Sample among the K likeliest tokens; 0: all
    #[arg(long, default_value_t = 64, value_name = "K", allow_negative_numbers = true)]
    top_k: u32,
    /// Sample among the likeliest tokens that make up this probability
    #[arg(long, default_value_t = 0.95, value_name = "P", allow_negative_numbers = true)]
    top_p: f32,
    /// Sample among tokens with at least this share of the likeliest one's probability
    #[arg(long, default_value_t = 0.0, value_name = "P", allow_negative_numbers = true)]
    min_p: f32,
    /// Divide the logits of recent tokens by this; 1: off
    #[arg(long, default_value_t = 1.0, value_name = "R", allow_negative_numbers = true)]
    repeat_penalty: f32,
    /// Seed of the sampling [default: another one each time]
    #[arg(long, value_name = "S", allow_negative_numbers = true)]
    seed: Option<u64>,
    /// End the reply at this text; may be given several times
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(super) stop: Vec<String>,
    /// Go on past the model's stop tokens
    #[arg(long)]
    ignore_eos: bool,
}

impl ReplyArgs {
    pub(super) fn sampler(&self) -> SamplerConfig {
        SamplerConfig {
            temperature: self.temp,
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            repeat_penalty: self.repeat_penalty,
            seed: self.seed,
        }
    }

    pub(super) fn limit(&self) -> usize {
        self.n.unwrap_or(usize::MAX)
    }

    /// The tokens at which a reply ends: what the model's config and its tokenizer name.
    pub(super) fn stops(&self, executor: &dyn Executor, tokenizer: Option<&Tokenizer>) -> Vec<u32> {
        if self.ignore_eos {
            return Vec::new();
        }
        let mut stops = executor.schedule().shape.eos.clone();
        stops.extend(tokenizer.map(Tokenizer::stop_ids).unwrap_or_default());
        stops
    }
}

/// Set by Ctrl-C while a reply is under way.
static INTERRUPTED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// Makes Ctrl-C end the reply instead of the program; a second one, before the first took effect, ends the program.
pub(super) fn catch_interrupts() {
    let caught = signal_hook::flag::register_conditional_shutdown(SIGINT, 130, INTERRUPTED.clone())
        .and_then(|_| signal_hook::flag::register(SIGINT, INTERRUPTED.clone()));
    if let Err(e) = caught {
        log::warn!("Ctrl-C ends the program, not the reply: {e}");
    }
}

/// Turns tokens into text on its way to the user: decoded, held back where it might begin a stop string.
pub(super) struct Printer {
    decoder: Option<StreamDecoder>,
    stops: StopMatcher,
    /// All text so far.
    pub(super) text: String,
    echo: bool,
    failure: Option<Error>,
}

impl Printer {
    pub(super) fn new(tokenizer: Option<&Tokenizer>, stops: &[String], echo: bool) -> Result<Printer> {
        let decoder = tokenizer.map(|t| t.stream(true));
        // A Ctrl-C before the reply was not meant for it.
        INTERRUPTED.store(false, Ordering::Relaxed);
        Ok(Printer { decoder, stops: StopMatcher::new(stops)?, text: String::new(), echo, failure: None })
    }

    fn emit(text: &mut String, echo: bool, failure: &mut Option<Error>, piece: &str) {
        text.push_str(piece);
        if echo && failure.is_none() && !piece.is_empty() {
            *failure = print(piece).err();
        }
    }

    /// Takes the next token, and says whether the reply ends here. Without a tokenizer the ids are the text.
    pub(super) fn push(&mut self, id: u32) -> ControlFlow<Finish> {
        if let Some(decoder) = &mut self.decoder {
            let (piece, stopped) = self.stops.push(decoder.push(id));
            Self::emit(&mut self.text, self.echo, &mut self.failure, piece);
            if stopped == Stopped::Yes {
                return ControlFlow::Break(Finish::Stop);
            }
        } else if self.echo {
            self.failure = print(&format!("{id} ")).err();
        }
        if self.failure.is_some() || INTERRUPTED.swap(false, Ordering::Relaxed) {
            return ControlFlow::Break(Finish::Interrupted);
        }
        ControlFlow::Continue(())
    }

    /// Emits what was held back, unless a stop string was found.
    pub(super) fn finish(&mut self) -> Result<()> {
        if let Some(decoder) = &mut self.decoder {
            let (piece, stopped) = self.stops.push(decoder.finish());
            Self::emit(&mut self.text, self.echo, &mut self.failure, piece);
            if stopped == Stopped::No {
                let rest = self.stops.finish();
                Self::emit(&mut self.text, self.echo, &mut self.failure, rest);
            }
        }
        INTERRUPTED.store(false, Ordering::Relaxed);
        self.failure.take().map_or(Ok(()), Err)
    }
}

/// The decode rate's share of what this device's measured read rate allows; `None` without a decode pass, or, said aloud,
/// where the measurement failed or cannot be right. The reply is there either way.
pub(super) fn roofline_share(executor: &mut dyn Executor, g: &Generation) -> Option<f64> {
    let rate = g.rate()?;
    let depth = g.depth + g.passes / 2;
    let bytes = executor.schedule().cost(Pass::Decode { sequences: 1, depth }).memory_bytes();
    let ceiling = match executor.measure_read_ceiling() {
        Ok(bytes_per_second) => bytes_per_second / bytes as f64,
        Err(e) => {
            log::warn!("the read ceiling could not be measured: {}", face::line(&e));
            return None;
        }
    };
    if rate > ceiling {
        log::warn!("{rate:.1} tokens/s is above the measured ceiling of {ceiling:.1}: one of the two is wrong");
        return None;
    }
    Some(rate / ceiling)
}

/// One line on what a reply took: `prompt` says what was run before it.
pub(super) fn summary(
    executor: &dyn Executor,
    prompt: &str,
    g: &Generation,
    share: Option<f64>,
    with_device: bool,
) -> String {
    let mut line = format!("[{prompt} in {:.2} s", g.prefill.as_secs_f64());
    let tokens = g.tokens.len();
    line += &format!(", {tokens} token{}", if tokens == 1 { "" } else { "s" });
    // The first comes with the prefill, and no pass follows the last where nothing more is asked for.
    if g.passes != tokens && g.passes > 0 {
        line += &format!(", {} of them decoded", g.passes);
    }
    if g.passes > 0 {
        line += &format!(" in {:.2} s", g.decode.as_secs_f64());
    }
    if let (Some(rate), Some(share)) = (g.rate(), share) {
        line += &format!(", {rate:.1} tokens/s ({:.1} % of what its memory allows)", 100.0 * share);
    }
    if g.full {
        let schedule = executor.schedule();
        let context = schedule.extent.context;
        let larger = larger_context(&schedule.shape, context);
        let remedy = larger.map_or("the model has no larger one".into(), |larger| face::words(&larger));
        line += &format!(", stopped: the context of {context} is full, {remedy}");
    }
    if with_device {
        line += &format!(", {}", executor.device());
    }
    line + "]"
}
