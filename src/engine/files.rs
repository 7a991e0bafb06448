//! A model's files: a directory, a GGUF file, the built-in demo model or the one that drafts for it.

use crate::engine::demo;
use crate::model::architecture::GEMMA3;
use crate::model::checkpoint::gguf::{self, Gguf};
use crate::model::checkpoint::{Checkpoint, files};
use crate::model::text_file::is_there;
use crate::model::{Shape, TensorId, WeightFormat};
use crate::sys::memory;
use crate::text::{ChatTemplate, Tokenizer};
use crate::{Error, Result, display, hub};
use std::path::{Path, PathBuf};

/// Where a model's files are. Each method reads only the files that it needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModelFiles {
    /// A directory with config.json, *.safetensors and, for text, tokenizer.json.
    Directory(PathBuf),
    /// A GGUF file, or the first of a split model.
    Gguf(PathBuf),
    /// The demo model inside the executable.
    BuiltIn,
    /// The model inside the executable that drafts for the demo model.
    BuiltInDraft,
}

/// A path is a GGUF file, a directory, or a model's name in the Hugging Face hub's cache. A directory that has a single
/// model as GGUF, and no config or no weights in safetensors beside it, stands for that GGUF file. `None` is the
/// built-in model; so is `demo`, unless a path of that name exists.
impl From<Option<PathBuf>> for ModelFiles {
    fn from(path: Option<PathBuf>) -> ModelFiles {
        let Some(path) = path.filter(|path| path.as_os_str() != DEMO || is_there(path)) else {
            return ModelFiles::BuiltIn;
        };
        // A dangling link exists, and fails below with its own error.
        let path = if is_there(&path) { path } else { hub::find(&path).unwrap_or(path) };
        if path.is_file() {
            return ModelFiles::Gguf(path);
        }
        match gguf::list(&path).as_mut_slice() {
            [one] if !is_there(&path.join("config.json")) || !hub::has_safetensors(&path) => {
                ModelFiles::Gguf(std::mem::take(one))
            }
            _ => ModelFiles::Directory(path),
        }
    }
}

/// The built-in models' name, and the word for the one that drafts.
const DEMO: &str = "demo";

impl ModelFiles {
    /// The files of a draft model by its name: `demo` is the built-in draft model, any other name is a model's. A
    /// directory called demo is given as `./demo`.
    pub fn of_draft(name: &Path) -> ModelFiles {
        match name.as_os_str() == DEMO {
            true => ModelFiles::BuiltInDraft,
            false => Some(name.to_owned()).into(),
        }
    }

    /// The directory that contains the files; `None` for a built-in model.
    #[cfg(any(feature = "cli", feature = "serve"))]
    pub fn place(&self) -> Option<&Path> {
        match self {
            ModelFiles::Directory(dir) => Some(dir),
            ModelFiles::Gguf(file) => Some(crate::machine::partial::parent_of(file)),
            ModelFiles::BuiltIn | ModelFiles::BuiltInDraft => None,
        }
    }

    /// The model's name for output: the name in a bundle, else the file's or directory's, without control characters.
    pub fn name(&self) -> String {
        #[cfg(any(feature = "cli", feature = "serve"))]
        if let Some(Ok(Some(bundle))) = self.place().map(crate::model::bundle::Manifest::read) {
            return display::plain(&bundle.name);
        }
        display::plain(&match self {
            ModelFiles::Directory(dir) => directory_name(dir),
            ModelFiles::Gguf(file) => {
                gguf::stem(&file.file_name().map_or_else(String::new, |name| name.display().to_string())).to_owned()
            }
            ModelFiles::BuiltIn | ModelFiles::BuiltInDraft => DEMO.into(),
        })
    }

    /// Reads the model's shape from its config, or from the headers of its GGUF files.
    ///
    /// # Errors
    /// Input: the config is missing, or is not that of a Gemma 3 or Gemma 4.
    pub fn shape(&self) -> Result<Shape> {
        match self {
            ModelFiles::Directory(dir) => {
                hub::check(dir)?;
                Ok(files::read_config(dir)?.0)
            }
            ModelFiles::Gguf(file) => Gguf::open(file)?.shape(),
            ModelFiles::BuiltIn | ModelFiles::BuiltInDraft => Ok(self.checkpoint()?.shape().clone()),
        }
    }

    /// The format of each matrix when the model is loaded as `asked`. Where the weights cannot be opened, the answer is
    /// for an unquantised checkpoint.
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
    /// Input: it is not a sound checkpoint of Gemma 3 or Gemma 4.
    pub fn checkpoint(&self) -> Result<Checkpoint> {
        match self {
            ModelFiles::Directory(path) => {
                hub::check(path)?;
                Checkpoint::open(path)
            }
            ModelFiles::Gguf(file) => Checkpoint::open(file),
            ModelFiles::BuiltIn => demo::checkpoint(),
            ModelFiles::BuiltInDraft => demo::draft_checkpoint(),
        }
    }

    /// The model's directory, for callers that read its files themselves.
    ///
    /// # Errors
    /// Input: it is a GGUF file or the built-in model, or there is no such directory.
    pub fn directory(&self) -> Result<&Path> {
        match self {
            ModelFiles::Directory(dir) => hub::check(dir).map(|()| dir.as_path()),
            ModelFiles::Gguf(file) => Err(Error::input(
                format!("{} is a GGUF file, and a model directory is read here", file.display()),
                "give the directory that it was made from, or use the file as it is",
            )),
            ModelFiles::BuiltIn | ModelFiles::BuiltInDraft => {
                Err(Error::input("there is no model to read", "give its directory with -m"))
            }
        }
    }

    /// True if the model's files include a tokenizer.
    pub fn has_tokenizer(&self) -> bool {
        match self {
            // A dangling link counts as there, so that opening it reports the error.
            ModelFiles::Directory(dir) => is_there(&dir.join("tokenizer.json")),
            // An unreadable file is refused later, by the code that needs it.
            ModelFiles::Gguf(file) => Gguf::open(file).map_or(true, |gguf| gguf.has_tokenizer()),
            ModelFiles::BuiltIn | ModelFiles::BuiltInDraft => true,
        }
    }

    /// Opens the tokenizer without checking it against a model.
    ///
    /// # Errors
    /// Input: there is none, or it is damaged.
    pub fn tokenizer(&self) -> Result<Tokenizer> {
        match self {
            ModelFiles::Directory(dir) => {
                hub::check(dir)?;
                Ok(Tokenizer::open(dir)?.ending_with(ChatTemplate::eos(dir).as_deref()))
            }
            ModelFiles::Gguf(file) => Tokenizer::from_vocabulary(&Gguf::open(file)?.vocabulary()?),
            ModelFiles::BuiltIn | ModelFiles::BuiltInDraft => demo::tokenizer(),
        }
    }

    /// Opens the tokenizer for a model with a vocabulary of `vocab` tokens.
    ///
    /// # Errors
    /// Input: as [`ModelFiles::tokenizer`], or the tokenizer belongs to another model.
    pub fn tokenizer_for(&self, vocab: usize) -> Result<Tokenizer> {
        let tokenizer = match self {
            ModelFiles::Gguf(file) => {
                let vocabulary = Gguf::open(file)?.vocabulary()?;
                let listed = vocabulary.tokens.len();
                // Checked on the list of tokens: building a tokenizer takes much longer.
                if listed > vocab + 1 || listed + MAX_PADDING < vocab {
                    return Err(foreign_tokenizer(listed, vocab));
                }
                Tokenizer::from_vocabulary(&vocabulary)?
            }
            _ => self.tokenizer()?,
        };
        // The file's tokens and merges were freed by now.
        memory::give_back_freed();
        check_vocabulary(&tokenizer, vocab)?;
        Ok(tokenizer)
    }

    /// Opens the chat template.
    ///
    /// # Errors
    /// Input: it is damaged.
    pub fn template(&self) -> Result<ChatTemplate> {
        match self {
            ModelFiles::Directory(dir) => {
                // A directory with nothing but a tokenizer has no shape.
                let family = self.shape().map_or(&GEMMA3, |shape| shape.architecture);
                ChatTemplate::open(dir, family)
            }
            ModelFiles::Gguf(file) => {
                let gguf = Gguf::open(file)?;
                ChatTemplate::of_gguf(gguf.chat_template()?, gguf.family().unwrap_or(&GEMMA3))
            }
            ModelFiles::BuiltIn | ModelFiles::BuiltInDraft => demo::template(),
        }
    }
}

/// The name of a directory or, if it is a snapshot in the hub's cache, of the model in it.
fn directory_name(dir: &Path) -> String {
    if let Some(name) = hub::name_of_snapshot(dir) {
        return name;
    }
    // `.` and `..` are names of places, not of models.
    let found = dir.file_name().is_none().then(|| dir.canonicalize().ok()).flatten();
    let named = found.as_deref().unwrap_or(dir);
    named.file_name().map_or_else(|| dir.display().to_string(), |name| name.display().to_string())
}

/// The largest number of rows by which a vocabulary may exceed its tokenizer's. Vocabularies are padded, Gemma 3's by
/// 63 rows.
const MAX_PADDING: usize = 256;

/// Refuses a tokenizer that belongs to another model.
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
    Err(foreign_tokenizer(tokens, vocab))
}

fn foreign_tokenizer(tokens: usize, vocab: usize) -> Error {
    Error::input(
        format!("the tokenizer has {tokens} tokens and the model a vocabulary of {vocab}: they do not belong together"),
        "use the tokenizer.json that came with the model",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_without_a_config_has_a_template() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("chat_template.jinja"), "{{ messages[0]['content'] }}").unwrap();
        let template = ModelFiles::Directory(dir.path().to_owned()).template().unwrap();
        let rendered = template.render(&[crate::text::Message::new("user", "hi")], true).unwrap();
        assert_eq!(rendered, "hi");
    }

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
        assert_eq!(ModelFiles::from(Some(PathBuf::from("demo"))), ModelFiles::BuiltIn);
        assert_eq!(ModelFiles::from(Some(PathBuf::from("./demo"))), ModelFiles::Directory(PathBuf::from("./demo")));
        assert_eq!(name("m\u{1b}[31m"), "m [31m", "no terminal obeys it");
    }

    /// Publishers of GGUF files often include the config of the original model.
    #[test]
    fn a_config_without_weights_makes_no_directory_of_a_gguf_file() {
        let dir = tempfile::tempdir().unwrap();
        let put = |name: &str| std::fs::write(dir.path().join(name), "").unwrap();
        let of = || ModelFiles::from(Some(dir.path().to_owned()));
        put("config.json");
        assert_eq!(of(), ModelFiles::Directory(dir.path().to_owned()));
        put("a-Q8_0.gguf");
        put("mmproj-F16.gguf");
        assert_eq!(of(), ModelFiles::Gguf(dir.path().join("a-Q8_0.gguf")));
        put("model.safetensors");
        assert_eq!(of(), ModelFiles::Directory(dir.path().to_owned()));
    }
}
