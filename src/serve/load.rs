//! Loading on the engine's thread: a model, its draft model, and its text side.

use super::model::Model;
use crate::Result;
use crate::engine::{self, DraftFiles, ModelFiles, Options};
use crate::executor::Measure;
use crate::executor::weights::Progress;
use crate::sequence::draft::Proposer;

/// A function that loads a model; the progress can cancel it.
pub type ModelLoader = Box<dyn Fn(&Progress) -> Result<LoadedExecutor> + Send + Sync>;

/// A loaded model with its draft model.
pub struct LoadedExecutor {
    /// The executor that runs the model.
    pub executor: Box<dyn Measure>,
    /// The draft model, if one was loaded.
    pub draft: Option<Box<dyn Proposer>>,
    /// The model's tokenizer and chat template, if the load has opened them too.
    pub text: Option<Model>,
}

impl LoadedExecutor {
    /// The text side of the model with number `id`: the one opened by the load, or opened from `files` now.
    ///
    /// # Errors
    /// As [`Model::open`].
    pub(super) fn take_text(&mut self, id: u64, files: &ModelFiles) -> Result<Model> {
        match self.text.take() {
            Some(mut text) => {
                text.id = id;
                Ok(text)
            }
            None => Model::open(id, files, self.executor.schedule(), self.executor.device_info()),
        }
    }
}

/// A model without a draft model.
#[cfg(test)]
impl From<Box<dyn Measure>> for LoadedExecutor {
    fn from(executor: Box<dyn Measure>) -> LoadedExecutor {
        LoadedExecutor { executor, draft: None, text: None }
    }
}

/// A loader of `files` for as many sequences as `options` says, or with `fewer` for as many of them as fit. If `draft`
/// is given, the draft model is loaded first.
pub fn loader(files: ModelFiles, draft: Option<ModelFiles>, options: Options, fewer: bool) -> ModelLoader {
    let options = Options { head_rows: options.sequences, ..options };
    Box::new(move |progress| {
        let checkpoint = files.checkpoint()?;
        let context = options.extent(checkpoint.shape())?.context;
        let draft = draft.clone().map(|draft| DraftFiles::new(draft, &files, context)).transpose()?;
        let checkpoint = engine::with_drafter(checkpoint, draft.as_ref())?;
        let opened = engine::open_for(&checkpoint, &options)?;
        let (executor, draft) =
            engine::load_after_draft(&opened, &checkpoint, draft.as_ref(), &options, fewer, progress)?;
        Ok(LoadedExecutor { executor, draft, text: None })
    })
}
