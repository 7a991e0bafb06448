//! The engine's thread of a model: loads it, makes its first token, and runs jobs until the queue ends. Frees the
//! model's memory after a time without requests, and loads the model again for the next request.

use super::ModelWithDrafts;
use super::core::{Core, CoreSettings, EngineMonitor, Figure};
use super::prefixes::{Identity, PrefixFile};
use super::queue::{EngineHandle, ModelSide, Takeover};
use super::request::{EngineError, Request};
use crate::sys::memory;
use crate::{Error, Result};
use std::rc::Rc;
use std::time::Duration;

/// The owner of a model. It loads the model on the engine's thread, and receives its figures there.
pub(crate) trait ModelOwner: EngineMonitor {
    /// Loads the model, for the first time or again. `None`: its files have changed since the first time.
    ///
    /// # Errors
    /// As [`super::load`].
    fn load(&self) -> Result<Option<(ModelWithDrafts, CoreSettings)>>;

    /// The first prompt of the loaded model. `None`: the model answers without one.
    ///
    /// # Errors
    /// Input: it exceeds the context.
    fn first_prompt(&self) -> Result<Option<FirstPrompt<'_>>> {
        Ok(None)
    }

    /// The file that keeps the loaded model's prefixes while it is not in memory, and the identity of its keys and
    /// values.
    fn prefix_file(&self) -> Option<(&PrefixFile, Identity)> {
        None
    }
}

/// A prompt that is answered with one token before all others, so that every kernel has run.
pub(crate) struct FirstPrompt<'a> {
    /// The model's number, limits, tokenizer and stop tokens.
    pub side: ModelSide<'a>,
    pub tokens: Vec<u32>,
    /// The number of first tokens whose keys and values remain in the cache for later prompts.
    pub common: usize,
}

/// A model on its engine's thread. Only this thread waits for the device.
pub(crate) struct ModelThread<O> {
    pub engine: EngineHandle,
    /// The number of the model that runs on this thread.
    pub model: u64,
    pub owner: Rc<O>,
    /// The time without requests after which the model's memory is freed.
    pub idle: Duration,
}

impl<'a, O: ModelOwner + 'a> ModelThread<O> {
    /// Loads the model, makes its first token, and runs jobs until the queue ends or another model has taken over. A
    /// model without requests is unloaded, and loaded again for the next request.
    ///
    /// # Errors
    /// As [`ModelOwner::load`] for the first load. Device: it failed. Interrupted: a load was cancelled.
    pub fn run(&self) -> Result<()> {
        let (mut core, prefix) = self.start()?;
        self.owner.note(Figure::Ready { core: &core, again: false });
        loop {
            let is_idle = core.run(self.idle)?;
            // A replaced model leaves the file to its successor.
            if self.engine.is_current(self.model) {
                self.save_prefixes(&mut core, &prefix)?;
            }
            drop(core);
            let again = if is_idle { self.load_again()? } else { None };
            let Some(again) = again else { return Ok(()) };
            core = again;
        }
    }

    /// Loads the model and answers its first prompt. Returns the prompt's tokens to keep, too.
    ///
    /// # Errors
    /// As [`ModelThread::run`].
    pub fn start(&self) -> Result<(Core<'a>, Vec<u32>)> {
        let no_model = || Error::failed("the model's files changed as they were loaded", "start it again");
        let mut core = self.load()?.ok_or_else(no_model)?;
        let Some(FirstPrompt { side, mut tokens, common }) = self.owner.first_prompt()? else {
            return Ok((core, Vec::new()));
        };
        let replies = self.engine.ask(side, Request::caching(tokens.clone()))?;
        while core.turn()? {}
        core.send();
        let kept = replies.kept()?;
        tokens.truncate(common);
        if kept + 1 < tokens.len() {
            self.save_prefixes(&mut core, &tokens)?;
        }
        Ok((core, tokens))
    }

    /// Loads the model, with the prefixes from its file. `None`: its files have changed.
    ///
    /// # Errors
    /// As [`ModelThread::run`].
    pub fn load(&self) -> Result<Option<Core<'a>>> {
        let Some((loaded, settings)) = self.owner.load()? else { return Ok(None) };
        let mut core = Core::new(&self.engine, self.model, loaded, settings, self.owner.clone());
        if let Some((file, identity)) = self.owner.prefix_file() {
            file.load(identity, &mut core.batch, core.executor.as_mut())?;
        }
        Ok(Some(core))
    }

    fn save_prefixes(&self, core: &mut Core<'_>, first: &[u32]) -> Result<()> {
        match self.owner.prefix_file() {
            Some((file, identity)) => file.save(identity, &core.batch, first, core.executor.as_mut()),
            None => Ok(()),
        }
    }

    /// Waits for a request and loads the unloaded model again. Requests are parsed and queued without the weights. If
    /// the load fails, waiting requests get the error, and the next one tries again. `None`: no more requests will
    /// come.
    ///
    /// # Errors
    /// Interrupted: the load was cancelled.
    pub fn load_again(&self) -> Result<Option<Core<'a>>> {
        let ModelThread { engine, owner, .. } = self;
        memory::give_back_freed();
        owner.note(Figure::Unloaded);
        let turn_away = |why, error| engine.turn_away(self.model, &EngineError::Unloaded { why, error });
        let mut has_changed = false;
        while engine.wait_for_some(self.model) {
            let loaded = match has_changed {
                true => Ok(None),
                false => {
                    owner.note(Figure::LoadingAgain);
                    self.load()
                }
            };
            match loaded {
                Ok(Some(core)) => {
                    owner.note(Figure::Ready { core: &core, again: true });
                    return Ok(Some(core));
                }
                Ok(None) => {
                    has_changed = true;
                    engine.set_takeover(Takeover::UnderWay);
                    owner.note(Figure::Changed);
                    // Waiting requests are for the old model. They are refused when the new one has taken over.
                    if let Some(e) = engine.wait_for_takeover(self.model) {
                        turn_away("the model's files have changed, and cannot be loaded", e);
                    }
                }
                Err(e @ Error::Interrupted { .. }) => return Err(e),
                Err(e) => {
                    owner.note(Figure::NotLoadedAgain(&e));
                    turn_away("the model was unloaded, and cannot be loaded again", e);
                }
            }
        }
        Ok(None)
    }
}
