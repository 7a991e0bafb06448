//! An engine of this program, with a thread of its own.

use super::ModelWithDrafts;
use super::core::{Core, CoreSettings, EngineMonitor, Figure};
use super::model_thread::{ModelOwner, ModelThread};
use super::queue::{EngineHandle, EngineSettings, ModelSide};
use super::request::{ChoiceEvent, Client, EngineError, Replies, Request};
use crate::executor::ExecutorExt;
use crate::schedule::Schedule;
use crate::sequence::reply::stop_tokens;
use crate::sequence::{Generation, SequenceLimits};
use crate::text::Tokenizer;
use crate::{Error, Result};
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// The number of the model, since this engine has only one.
const MODEL: u64 = 1;

/// A loaded model that answers requests of this program. Dropping it ends its replies and frees its memory.
pub struct OpenEngine {
    /// The queue of requests to the engine's thread.
    engine: EngineHandle,
    /// The schedule that the model runs by.
    pub schedule: Schedule,
    /// The name of the device without its offload.
    pub hardware: String,
    /// True if the model runs on the CPU.
    pub is_on_cpu: bool,
    thread: Option<JoinHandle<()>>,
    /// The loop, if no thread could be started: callers run it as they wait for events.
    own: Option<RefCell<Core<'static>>>,
}

/// A model that is loaded once.
struct SingleLoad<L, M> {
    /// The loader and the settings, until the model is loaded. `None` afterwards.
    load: Cell<Option<(L, CoreSettings)>>,
    monitor: M,
}

impl<L, M: EngineMonitor> EngineMonitor for SingleLoad<L, M> {
    fn note(&self, figure: Figure<'_>) {
        self.monitor.note(figure);
    }
}

impl<L: FnOnce() -> Result<ModelWithDrafts>, M: EngineMonitor> ModelOwner for SingleLoad<L, M> {
    fn load(&self) -> Result<Option<(ModelWithDrafts, CoreSettings)>> {
        self.load.take().map(|(load, settings)| Ok((load()?, settings))).transpose()
    }
}

impl OpenEngine {
    /// Loads a model by `load` on the engine's thread, and returns when it is loaded. `monitor` gets the engine's
    /// figures on that thread. Where no thread can be started, the caller's does the work.
    ///
    /// # Errors
    /// As `load`. Failed: the engine's thread panicked.
    pub fn open(
        load: impl FnOnce() -> Result<ModelWithDrafts> + Send + 'static,
        settings: CoreSettings,
        monitor: impl EngineMonitor + Send + 'static,
    ) -> Result<OpenEngine> {
        let engine = EngineHandle::new(EngineSettings { queue: usize::MAX, deadline: None, heartbeat: Duration::MAX });
        engine.hand_to(MODEL);
        let owner = SingleLoad { load: Cell::new(Some((load, settings))), monitor };
        let model = |engine, owner| ModelThread { engine, model: MODEL, owner: Rc::new(owner), idle: Duration::MAX };
        let (give, given) = channel();
        let own = engine.clone();
        let run = move || {
            let Ok(owner) = given.recv() else { return };
            let done = catch_unwind(AssertUnwindSafe(|| model(own.clone(), owner).run()));
            // The panic has been reported, and ends the engine.
            let done = done.unwrap_or_else(|panic| {
                own.fail(&panicked());
                resume_unwind(panic)
            });
            done.unwrap_or_else(|e| own.fail(&e));
        };
        let about = |core: &mut Core<'_>| {
            let Core { executor, .. } = core;
            (executor.schedule().clone(), executor.hardware().to_owned(), executor.is_on_cpu())
        };
        let ((schedule, hardware, is_on_cpu), thread, own) =
            match thread::Builder::new().name("engine".into()).spawn(run) {
                Ok(thread) => {
                    // After the start: if the thread cannot be started, its closure is dropped with all that it has
                    // captured.
                    let _ = give.send(owner);
                    match engine.run(MODEL, about) {
                        Ok(about) => (about, Some(thread), None),
                        Err(e) => return Err(thread.join().err().map_or(e.into(), |panic| resume_unwind(panic))),
                    }
                }
                Err(_) => {
                    let (mut core, _) = model(engine.clone(), owner).start()?;
                    (about(&mut core), None, Some(RefCell::new(core)))
                }
            };
        Ok(OpenEngine { engine, schedule, hardware, is_on_cpu, thread, own })
    }

    /// True if the engine has failed, so that no further reply will come.
    pub fn has_failed(&self) -> bool {
        self.engine.failure().is_some()
    }

    /// The limits of every sequence of the model: its vocabulary and the context.
    pub fn limits(&self) -> SequenceLimits<'_> {
        SequenceLimits::of(&self.schedule)
    }

    /// Asks for a reply, in text if there is a tokenizer.
    ///
    /// # Errors
    /// Input: a setting or the prompt is wrong. The error with which the engine has failed.
    pub fn submit(&self, request: &Request, tokenizer: Option<&Tokenizer>) -> Result<OpenReplies<'_>> {
        let mut replies = self.replies();
        replies.add(request, tokenizer)?;
        Ok(OpenReplies { replies: replies.replies.complete(), ..replies })
    }

    /// A receiver of replies, to which [`OpenReplies::add`] adds.
    pub fn replies(&self) -> OpenReplies<'_> {
        OpenReplies { engine: self, replies: Replies::of(&self.engine) }
    }

    /// Runs a function on the engine's thread between two passes, and waits for its result.
    ///
    /// # Errors
    /// The error with which the engine has failed.
    pub fn run<T: Send + 'static>(&self, work: impl FnOnce(&mut Core<'_>) -> T + Send + 'static) -> Result<T> {
        match &self.own {
            Some(core) => Ok(work(&mut core.borrow_mut())),
            None => Ok(self.engine.run(MODEL, work)?),
        }
    }

    /// The device's name, including the offload for attention.
    ///
    /// # Errors
    /// As [`OpenEngine::run`].
    pub fn device(&self) -> Result<String> {
        self.run(|core| core.executor.device().to_owned())
    }

    /// The decode rate of a reply as a share of the rate that the device's measured read rate allows; `None` without a
    /// decode pass.
    ///
    /// # Errors
    /// As [`Generation::roofline_share`].
    pub fn roofline_share(&self, reply: &Generation) -> Result<Option<f64>> {
        let reply = reply.clone();
        self.run(move |core| reply.roofline_share(core.executor.as_mut()))?
    }
}

/// The events of replies of an [`OpenEngine`].
pub struct OpenReplies<'e> {
    engine: &'e OpenEngine,
    replies: Replies,
}

impl OpenReplies<'_> {
    /// As [`OpenEngine::submit`], for a reply beside others. Returns its number among these.
    ///
    /// # Errors
    /// As [`OpenEngine::submit`].
    pub fn add(&mut self, request: &Request, tokenizer: Option<&Tokenizer>) -> Result<usize> {
        let OpenReplies { engine, replies } = self;
        let stops = stop_tokens(&engine.schedule.shape, tokenizer);
        let side = ModelSide { model: MODEL, limits: engine.limits(), tokenizer, stops: &stops };
        let (requests, abandoned) = (std::slice::from_ref(request), Arc::new(|| false));
        Ok(engine.engine.add(replies, side, requests, Client::Program, abandoned, Instant::now())?)
    }
}

/// Waits for the next event of any reply. `None` when all have ended.
impl Iterator for OpenReplies<'_> {
    type Item = ChoiceEvent;

    fn next(&mut self) -> Option<ChoiceEvent> {
        let Some(core) = &self.engine.own else { return self.replies.next() };
        while self.replies.left > 0 {
            if let Some(event) = self.replies.poll() {
                return Some(event);
            }
            let mut core = core.borrow_mut();
            if let Err(e) = core.turn() {
                self.engine.engine.fail(&e);
                return self.replies.poll().or_else(|| self.replies.next());
            }
            core.send();
        }
        None
    }
}

fn panicked() -> Error {
    Error::failed("the engine's thread panicked", "report this")
}

impl Drop for OpenEngine {
    fn drop(&mut self) {
        self.engine.close(EngineError::Stopping);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cancel;
    use crate::engine::request::Event;
    use crate::engine::{self, Device, ModelFiles, Options};
    use crate::executor::weights::Progress;
    use crate::sequence::Finish;
    use crate::sequence::draft::Drafts;

    fn settings() -> CoreSettings {
        CoreSettings { gap: None, kept: u64::MAX, drafts: Drafts::default() }
    }

    #[test]
    fn an_interrupted_reply_ends_with_its_tokens_and_the_engine_goes_on() {
        let cancel = Cancel::default();
        let passes = cancel.clone();
        let load = move || {
            let two = Options { device: Device::Cpu, sequences: 2, head_rows: 2, ..Options::default() };
            Ok((engine::load(&ModelFiles::BuiltIn.checkpoint()?, &two, &Progress::new(passes))?, None))
        };
        let engine = OpenEngine::open(load, settings(), ()).unwrap();
        let long = Request { ignore_eos: true, ..Request::new(vec![2, 3, 4]) };
        let mut reply = engine.submit(&long, None).unwrap();
        assert!(reply.replies.sender.is_none(), "a loss of the reply is noticed at once");
        assert!(matches!(reply.next(), Some((0, Event::Token(_)))));
        cancel.set();
        let last = reply.last();
        let Some((0, Event::End(end))) = last else { panic!("{last:?}") };
        assert_eq!(end.generation.finish, Finish::Interrupted);
        assert!(!end.generation.tokens.is_empty());
        cancel.clear();
        let mut replies = engine.replies();
        let short = Request { limit: 3, ..long };
        assert_eq!([0, 1].map(|_| replies.add(&short, None).unwrap()), [0, 1]);
        let (tokens, ends): (Vec<_>, Vec<_>) = replies.partition(|(_, event)| matches!(event, Event::Token(_)));
        assert!(tokens.len() == 6 && ends.len() == 2, "{ends:?}");
        assert!(ends.iter().all(|(_, event)| matches!(event, Event::End(end) if end.generation.tokens.len() == 3)));
    }

    #[test]
    fn the_error_of_a_load_is_that_of_opening() {
        let e = Error::refused("it does not fit", "use a smaller one");
        let refused = e.clone();
        assert_eq!(OpenEngine::open(move || Err(refused), settings(), ()).err(), Some(e));
    }

    /// An engine that tunes asks with no time to wait.
    #[test]
    fn a_closed_engine_ends_even_if_it_does_not_wait() {
        let engine = EngineHandle::new(EngineSettings { queue: 1, deadline: None, heartbeat: Duration::MAX });
        engine.hand_to(MODEL);
        assert!(engine.wait(MODEL, Duration::ZERO));
        engine.close(EngineError::Stopping);
        assert!(!engine.wait(MODEL, Duration::ZERO));
    }

    #[test]
    fn a_function_that_panics_on_the_engines_thread_is_a_failure() {
        let one = Options { device: Device::Cpu, ..Options::default() };
        let load = move || Ok((engine::load(&ModelFiles::BuiltIn.checkpoint()?, &one, &Progress::default())?, None));
        let engine = OpenEngine::open(load, settings(), ()).unwrap();
        let e = engine.run(|_| -> u32 { panic!("an injected fault") }).unwrap_err();
        assert_eq!(e.exit_code(), 1, "{e}");
    }
}
