//! What the engine's thread loads: a model, what drafts for it, and its text side.

use super::model::Model;
use crate::Result;
use crate::engine::{self, DraftFiles, ModelFiles, Options};
use crate::executor::Measure;
use crate::executor::weights::Progress;
use crate::sequence::draft::SharedModel;

/// Loads a model, and ends early as the progress says.
pub type ModelLoader = Box<dyn Fn(&Progress) -> Result<LoadedExecutor> + Send + Sync>;

/// What the engine's thread loads.
pub struct LoadedExecutor {
    /// The model.
    pub executor: Box<dyn Measure>,
    /// A model that drafts for it.
    pub draft: Option<SharedModel>,
    /// Its text side, where the load has opened that too.
    pub text: Option<Model>,
}

impl LoadedExecutor {
    /// The text side of this model, as number `id` of the process: what the load has opened, else what `files` have.
    ///
    /// # Errors
    /// As [`Model::open`].
    pub(super) fn take_text(&mut self, id: u64, files: &ModelFiles) -> Result<Model> {
        let mut text = match self.text.take() {
            Some(mut text) => {
                text.id = id;
                text
            }
            None => Model::open(id, files, self.executor.schedule(), self.executor.hardware())?,
        };
        text.set_device(self.executor.device());
        text.is_on_cpu = self.executor.is_on_cpu();
        Ok(text)
    }
}

/// A model without a draft model.
impl From<Box<dyn Measure>> for LoadedExecutor {
    fn from(executor: Box<dyn Measure>) -> LoadedExecutor {
        LoadedExecutor { executor, draft: None, text: None }
    }
}

/// Loads the model of `files` for as many sequences as `options` says, or with `fewer` for as many of them as fit; and before
/// it, with the files of one, a draft model.
pub fn loader(files: ModelFiles, draft: Option<ModelFiles>, options: Options, fewer: bool) -> ModelLoader {
    let options = Options { head_rows: options.sequences, ..options };
    Box::new(move |progress| {
        let checkpoint = files.checkpoint()?;
        let context = options.extent(checkpoint.shape())?.context;
        let draft = draft.clone().map(|draft| DraftFiles::new(draft, &files, context)).transpose()?;
        let opened = engine::open_for(&checkpoint, &options)?;
        let (executor, draft) =
            engine::load_after_draft(&opened, &checkpoint, draft.as_ref(), &options, fewer, progress)?;
        Ok(LoadedExecutor { executor, draft, text: None })
    })
}
