//! Hashes by which a line of the output is matched to a line of the input, the model and the options.

use crate::Result;
use crate::cli::model::ModelArgs;
use crate::cli::reply::ReplyArgs;
use crate::engine::ModelFiles;
use sha2::{Digest, Sha256};

/// A hash over the model and the options.
pub(super) struct LineHasher(Sha256);

impl LineHasher {
    /// The hash of a model's files and the command's options. `context` is the longest sequence, in tokens.
    ///
    /// # Errors
    /// Input: a file of the model cannot be read.
    pub(super) fn new(files: &ModelFiles, model: &ModelArgs, reply: &ReplyArgs, context: usize) -> Result<LineHasher> {
        // The model's location does not matter, but its content does.
        let place = ModelArgs { model: None, ..model.clone() };
        let mut hash = Sha256::new().chain_update(format!("{place:?} {reply:?} {context}"));
        files.add_to(&mut hash)?;
        Ok(LineHasher(hash))
    }

    /// The hash for a line of the input.
    pub(super) fn of(&self, line: &[u8]) -> String {
        let digest = self.0.clone().chain_update([0]).chain_update(line).finalize();
        digest[..8].iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use std::path::Path;

    #[derive(Parser)]
    struct LineArguments {
        #[command(flatten)]
        model: ModelArgs,
        #[command(flatten)]
        reply: ReplyArgs,
    }

    fn identity(directory: &Path, arguments: &[&str]) -> String {
        let args = LineArguments::parse_from(["kiln"].iter().chain(arguments));
        let files = ModelFiles::Directory(directory.to_owned());
        LineHasher::new(&files, &args.model, &args.reply, 64).unwrap().of(b"{}")
    }

    #[test]
    fn it_follows_the_models_content_and_the_options_not_the_models_place() {
        let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for directory in [&here, &there] {
            std::fs::write(directory.path().join("config.json"), "{}").unwrap();
            std::fs::write(directory.path().join("model.safetensors"), vec![7; 5 << 20]).unwrap();
            std::fs::write(directory.path().join("notes.txt"), format!("{directory:?}")).unwrap();
        }
        let (here, there) = (here.path(), there.path());
        let same = identity(here, &[]);
        assert_eq!(same.len(), 16);
        assert_eq!(same, identity(there, &["-m", "somewhere"]));
        for options in [&["--temp", "1"], &["--ctx", "9"], &["--stop", "a"]] {
            assert_ne!(same, identity(here, options), "{options:?}");
        }
        // Changes a byte in the middle, then appends a byte.
        let mut weights = vec![7; 5 << 20];
        weights[5 << 19] = 8;
        std::fs::write(there.join("model.safetensors"), &weights).unwrap();
        assert_ne!(same, identity(there, &[]));
        std::fs::write(there.join("model.safetensors"), vec![7; (5 << 20) + 1]).unwrap();
        assert_ne!(same, identity(there, &[]));
    }
}
