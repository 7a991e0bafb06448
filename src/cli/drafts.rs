//! Arguments for drafts: the number of tokens, and a model or a text to draft from.

use crate::engine::{DraftFiles, ModelFiles};
use crate::sequence::draft::{Drafts, MOST_DRAFTED};
use crate::text::Tokenizer;
use crate::{Error, Result};
use std::path::{Path, PathBuf};

/// The largest text to draft from, in bytes.
const MOST_BYTES: u64 = 16 << 20;

/// Whether tokens are drafted, and their source.
#[derive(Debug, Clone, clap::Args)]
pub struct DraftArgs {
    /// Draft up to N tokens (at most 7), for a pass to verify, where that pays; the reply stays the same. Without
    /// --draft they are the tokens that followed the last ones before [default: 7 with --draft or --draft-text, else 0]
    #[arg(help_heading = "Drafts", long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u8).range(0..=MOST_DRAFTED as i64))]
    speculate: Option<u8>,
    /// A text that replies are likely to repeat in part, such as answers given before, to draft from as well
    #[arg(help_heading = "Drafts", long, value_name = "FILE", conflicts_with = "draft")]
    draft_text: Option<PathBuf>,
    /// A model to draft with on the same device, as -m: the drafter made for a Gemma 4, or a smaller model with the
    /// same tokenizer; for the built-in model, demo
    #[arg(help_heading = "Drafts", long, value_name = "MODEL")]
    draft: Option<PathBuf>,
}

/// The draft arguments, and the text that drafts are copied from.
pub(super) struct DraftSource {
    /// The most tokens of one draft.
    pub(super) most: usize,
    /// The text that drafts are copied from, if one is given.
    pub(super) text: Option<String>,
}

impl DraftArgs {
    /// The draft model's files; `None` if nothing is drafted.
    pub(super) fn files(&self) -> Option<ModelFiles> {
        self.draft.as_deref().filter(|_| self.speculate != Some(0)).map(ModelFiles::of_draft)
    }

    /// Checks the draft model against a model whose sequences have `context` positions. `None` if there is none or
    /// nothing is drafted.
    ///
    /// # Errors
    /// Input: its files are damaged, or it does not fit the model.
    pub(super) fn model(&self, model: &ModelFiles, context: usize) -> Result<Option<DraftFiles>> {
        self.files().map(|files| DraftFiles::new(files, model, context)).transpose()
    }

    /// Reads the text.
    ///
    /// # Errors
    /// Input: the file is missing, unreadable, no regular file, too long, empty or not UTF-8.
    pub(super) fn read(&self) -> Result<DraftSource> {
        let default = if self.draft_text.is_some() || self.draft.is_some() { MOST_DRAFTED } else { 0 };
        Ok(DraftSource {
            most: self.speculate.map_or(default, usize::from),
            text: self.draft_text.as_deref().map(read_text).transpose()?,
        })
    }
}

impl DraftSource {
    /// The sources of a batch's drafts. Without a tokenizer these are its sequences alone.
    ///
    /// # Errors
    /// Input: there is a text but no tokenizer, or the text cannot be encoded.
    pub(super) fn drafts(&self, tokenizer: Option<&Tokenizer>) -> Result<Drafts> {
        match (tokenizer, &self.text) {
            (Some(tokenizer), text) => Drafts::new(self.most, text.as_deref(), tokenizer),
            (None, None) => Ok(Drafts { most: self.most, ..Drafts::default() }),
            (None, Some(_)) => Err(Error::input(
                "--draft-text needs a tokenizer, and the model directory has none",
                "leave out --draft-text",
            )),
        }
    }
}

fn read_text(path: &Path) -> Result<String> {
    let text = super::read_regular_text(path, MOST_BYTES, "text to draft from", "give another file")?;
    match text.trim().is_empty() {
        true => {
            Err(Error::input(format!("{} is empty", path.display()), "give it text that replies are likely to repeat"))
        }
        false => Ok(text),
    }
}
