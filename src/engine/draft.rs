//! A draft model beside a model: checked against it, and loaded on its device. A drafter, which reads the model's own
//! keys and values, becomes a part of the model's schedule.

use super::{ModelFiles, NpuUse, Opened, Options, load_on, most_sequences};
use crate::error::{Setting, text};
use crate::executor::Measure;
use crate::executor::weights::Progress;
use crate::model::Shape;
use crate::model::checkpoint::{Checkpoint, check_drafter};
use crate::schedule::DRAFT_SEQUENCES;
use crate::sequence::draft::model::GROWN;
use crate::sequence::draft::{AttachedDrafter, DraftModel, Proposer, check_tokenizers};
use crate::text::{ChatTemplate, Message};
use crate::{Error, Result};

/// A loaded model, and what drafts for it.
pub type ModelWithDrafts = (Box<dyn Measure>, Option<Box<dyn Proposer>>);

/// The files of a draft model that fits a model.
#[derive(Debug, Clone)]
pub struct DraftFiles {
    files: ModelFiles,
    /// The most positions of a sequence, as in the model.
    context: usize,
    /// True if the draft model is a drafter, which needs the main model's states and cannot run alone.
    is_drafter: bool,
}

impl DraftFiles {
    /// Checks that a draft model fits `model`, whose sequences have `context` positions: both need the same tokens and
    /// the same chat template.
    ///
    /// # Errors
    /// Input: the draft model's files are not sound, or it has other tokens, another chat template or a shorter
    /// context.
    pub fn new(files: ModelFiles, model: &ModelFiles, context: usize) -> Result<DraftFiles> {
        let shape = files.shape()?;
        if shape.backbone.is_some() {
            check_drafter(&model.shape()?, &shape)?;
            return Ok(DraftFiles { files, context, is_drafter: true });
        }
        check_context(&shape, Some(context))?;
        match (model.has_tokenizer(), files.has_tokenizer()) {
            (true, true) => {
                check_tokenizers(&model.tokenizer()?, &files.tokenizer_for(shape.vocab)?)?;
                check_templates(&model.template()?, &files.template()?)?;
            }
            // Without both tokenizers only the vocabularies' sizes can be compared.
            _ => check_sizes(model.shape()?.vocab, shape.vocab)?,
        }
        Ok(DraftFiles { files, context, is_drafter: false })
    }

    /// Loads the draft model on the device that the model is loaded on next, for as many sequences as it drafts for at
    /// a time. The model gets the memory that is left, so that both fit or the model is refused.
    ///
    /// # Errors
    /// As [`super::load`].
    fn load(&self, opened: &Opened, options: &Options, progress: &Progress) -> Result<Box<dyn Proposer>> {
        let checkpoint = self.files.checkpoint()?;
        let options = draft_options(options, self.context);
        let executor = load_on(opened, &checkpoint, &options, progress).map_err(without)?;
        Ok(Box::new(DraftModel::new(executor)))
    }
}

/// The checkpoint together with the drafter, if `draft` is one.
///
/// # Errors
/// Input: the drafter's files are not sound, or it is another model's.
pub(crate) fn with_drafter(checkpoint: Checkpoint, draft: Option<&DraftFiles>) -> Result<Checkpoint> {
    match draft.filter(|draft| draft.is_drafter) {
        Some(draft) => checkpoint.with_drafter(draft.files.checkpoint()?),
        None => Ok(checkpoint),
    }
}

/// Loads the draft model, if there is one, and then the model. The model gets as many sequences as `options` says, or
/// with `fewer` as many of them as fit, each with a row of logits.
///
/// # Errors
/// As [`super::load`].
pub(crate) fn load_after_draft(
    opened: &Opened,
    checkpoint: &Checkpoint,
    draft: Option<&DraftFiles>,
    options: &Options,
    fewer: bool,
    progress: &Progress,
) -> Result<ModelWithDrafts> {
    let model = draft.filter(|draft| !draft.is_drafter);
    let model = model.map(|draft| draft.load(opened, options, progress)).transpose()?;
    let options = match fewer {
        true => most_sequences(opened, checkpoint, options)?,
        false => *options,
    };
    let executor = load_on(opened, checkpoint, &options, progress);
    let executor = executor.map_err(|e| if draft.is_some() { without(e) } else { e })?;
    let attached = || Some(Box::new(AttachedDrafter::of(executor.schedule())?) as Box<dyn Proposer>);
    let draft = model.or_else(attached);
    Ok((executor, draft))
}

/// Options for the draft model of a model that is loaded with `options` and whose sequences have `context` positions.
pub(crate) fn draft_options(options: &Options, context: usize) -> Options {
    let sequences = options.sequences.min(DRAFT_SEQUENCES);
    let head_rows = if sequences > 1 { GROWN * sequences } else { 1 };
    // All sequences at full length: a draft pass that ran out of pages would fail.
    let kv_tokens = Some(context * sequences);
    // `NpuUse::Auto` turns the NPU off for a model that verifies drafts; its draft model leaves it alone too.
    let npu = NpuUse::Off;
    Options { sequences, head_rows, drafted: 0, npu, kv_tokens, chunk: None, context: Some(context), ..*options }
}

/// Checks that a draft model's sequences can have `context` positions.
///
/// # Errors
/// Input: they cannot.
pub(crate) fn check_context(shape: &Shape, context: Option<usize>) -> Result<()> {
    match context.filter(|context| *context > shape.max_context) {
        None => Ok(()),
        Some(context) => Err(Error::input(
            format!("a context of {context} tokens is longer than the draft model's, {}", shape.max_context),
            text!("choose a smaller ", Setting::Context, ", or leave out ", Setting::Draft),
        )),
    }
}

/// Leaving out the draft model is a remedy where memory is short.
pub(crate) fn without(e: Error) -> Error {
    match e {
        Error::Refused { cause, remedy } => Error::refused(cause, text!(remedy, ", or leave out ", Setting::Draft)),
        e => e,
    }
}

/// The largest difference in size between two vocabularies that are compared without tokenizers. Gemma 3's sizes differ
/// by 64 rows of padding.
const MAX_PADDING: usize = 256;

fn check_sizes(model: usize, draft: usize) -> Result<()> {
    if model.abs_diff(draft) <= MAX_PADDING {
        return Ok(());
    }
    Err(Error::input(
        format!("the model has a vocabulary of {model} and the draft model one of {draft}: they are not the same"),
        text!("use a draft model with the model's own tokens, or leave out ", Setting::Draft),
    ))
}

/// Checks that both templates render the same prompt for a conversation.
fn check_templates(model: &ChatTemplate, draft: &ChatTemplate) -> Result<()> {
    let of = |role: &str, text: &str| Message::new(role, text);
    let messages = [of("system", "s"), of("user", "a"), of("assistant", "b"), of("user", "c")];
    let (model, draft) = (model.render(&messages, true)?, draft.render(&messages, true)?);
    if model == draft {
        return Ok(());
    }
    Err(Error::input(
        "the draft model's chat template writes a conversation in another way than the model's",
        text!("use a draft model of the same family, or leave out ", Setting::Draft),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::nodes::DriverApi;

    /// A model that verifies drafts has no offload, and neither has its draft model.
    #[test]
    fn a_draft_model_leaves_the_npu_alone() {
        let options = Options { npu: NpuUse::Auto(DriverApi::Kernel), drafted: 4, ..Options::default() };
        assert_eq!(draft_options(&options, 256).npu, NpuUse::Off);
    }
}
