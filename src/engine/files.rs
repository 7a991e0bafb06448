//! A model's files: a directory, or the built-in demo model.

use crate::display;
use crate::engine::demo;
use crate::model::checkpoint::Checkpoint;
use crate::model::{Shape, TensorId, WeightFormat, config};
use crate::text::{ChatTemplate, Tokenizer};
use crate::{Error, Result};
use std::path::PathBuf;

/// Where a model's files are. Each method reads only the files that it needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModelFiles {
    /// A directory with config.json, *.safetensors and, for text, tokenizer.json.
    Directory(PathBuf),
    /// The demo model inside the executable.
    BuiltIn,
}

impl From<Option<PathBuf>> for ModelFiles {
    fn from(directory: Option<PathBuf>) -> ModelFiles {
        directory.map_or(ModelFiles::BuiltIn, ModelFiles::Directory)
    }
}

impl ModelFiles {
    /// The model's name in output: that of its directory, without what a terminal obeys.
    pub fn name(&self) -> String {
        display::plain(&self.directory_name())
    }

    fn directory_name(&self) -> String {
        match self {
            ModelFiles::Directory(dir) => {
                // `.` and `..` are names of places, not of models.
                let found = dir.file_name().is_none().then(|| dir.canonicalize().ok()).flatten();
                let named = found.as_ref().unwrap_or(dir);
                named.file_name().map_or_else(|| dir.display().to_string(), |name| name.display().to_string())
            }
            ModelFiles::BuiltIn => "demo".into(),
        }
    }

    /// Reads the model's shape from its config alone.
    ///
    /// # Errors
    /// Input: the config is missing, or is not that of a Gemma 3.
    pub fn shape(&self) -> Result<Shape> {
        match self {
            ModelFiles::Directory(dir) => config::read(&dir.join("config.json")),
            ModelFiles::BuiltIn => Ok(demo::checkpoint()?.shape().clone()),
        }
    }

    /// The format of each matrix where `asked` is asked for, as far as it is known: without the weights' files, or where
    /// they are not sound, as if they were not quantised.
    pub fn formats(&self, asked: WeightFormat, shape: &Shape) -> impl Fn(TensorId) -> WeightFormat + use<> {
        let (checkpoint, shape) = (self.checkpoint().ok(), shape.clone());
        move |id| match &checkpoint {
            Some(checkpoint) => checkpoint.formats(asked)(id),
            None => asked.of_matrix(id, &shape, None),
        }
    }

    /// Opens the checkpoint.
    ///
    /// # Errors
    /// Input: it is not a sound Gemma 3 checkpoint.
    pub fn checkpoint(&self) -> Result<Checkpoint> {
        match self {
            ModelFiles::Directory(dir) => Checkpoint::open(dir),
            ModelFiles::BuiltIn => demo::checkpoint(),
        }
    }

    /// Whether there is a tokenizer.
    pub fn has_tokenizer(&self) -> bool {
        match self {
            ModelFiles::Directory(dir) => dir.join("tokenizer.json").exists(),
            ModelFiles::BuiltIn => true,
        }
    }

    /// Opens the tokenizer without checking it against a model.
    ///
    /// # Errors
    /// Input: there is none, or it is damaged.
    pub fn tokenizer(&self) -> Result<Tokenizer> {
        match self {
            ModelFiles::Directory(dir) => Tokenizer::open(dir),
            ModelFiles::BuiltIn => demo::tokenizer(),
        }
    }

    /// Opens the tokenizer for a model with a vocabulary of `vocab` tokens.
    ///
    /// # Errors
    /// Input: as [`ModelFiles::tokenizer`], or it is another model's.
    pub fn tokenizer_for(&self, vocab: usize) -> Result<Tokenizer> {
        let tokenizer = self.tokenizer()?;
        check_vocabulary(&tokenizer, vocab)?;
        Ok(tokenizer)
    }

    /// Opens the chat template.
    ///
    /// # Errors
    /// Input: it is damaged.
    pub fn template(&self) -> Result<ChatTemplate> {
        match self {
            ModelFiles::Directory(dir) => ChatTemplate::open(dir),
            ModelFiles::BuiltIn => demo::template(),
        }
    }
}

/// Most rows by which a vocabulary may exceed its tokenizer. Vocabularies are padded; Gemma 3's by 63 rows.
const MAX_PADDING: usize = 256;

/// Refuses a tokenizer that is another model's.
///
/// # Errors
/// Input, with both sizes.
fn check_vocabulary(tokenizer: &Tokenizer, vocab: usize) -> Result<()> {
    let tokens = tokenizer.vocab_size();
    // The 1B model's vocabulary ends right before <image_soft_token>, which its tokenizer still has.
    let images_only = tokens == vocab + 1 && tokenizer.token_id("<image_soft_token>") == Some(vocab as u32);
    if (tokens <= vocab && vocab - tokens <= MAX_PADDING) || images_only {
        return Ok(());
    }
    Err(Error::input(
        format!("the tokenizer has {tokens} tokens and the model a vocabulary of {vocab}: they do not belong together"),
        "use the tokenizer.json that came with the model",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_has_its_directorys_name() {
        let name = |path: &str| ModelFiles::from(Some(PathBuf::from(path))).name();
        assert_eq!(name("/models/gemma-3-27b"), "gemma-3-27b");
        assert_eq!(name("gemma-3-27b/"), "gemma-3-27b");
        assert_eq!(name("models/gemma-3-27b/."), "gemma-3-27b");
        let here = std::env::current_dir().unwrap();
        assert_eq!(name("."), here.file_name().unwrap().to_str().unwrap());
        assert_eq!(name("/"), "/");
        assert_eq!(ModelFiles::BuiltIn.name(), "demo");
        assert_eq!(name("m\u{1b}[31m"), "m [31m", "no terminal obeys it");
    }
}
