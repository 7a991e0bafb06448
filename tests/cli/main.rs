//! The executable as scripts and terminals use it: its JSON, its exit codes, one line on stderr for each error, the chat, the
//! live view, and downloads.

#[path = "../common/mod.rs"]
mod common;

mod batch;
mod bench;
mod chat;
mod compare;
mod drafts;
mod ends;
mod gguf;
mod logits;
mod perplexity;
mod plan;
mod probe;
#[cfg(feature = "pull")]
mod pull;
mod quantize;
mod real;
mod refusals;
mod run;
mod terminal;
mod thoughts;
mod top;
mod usage;

use common::golden;
use std::path::Path;

/// The directory of the golden case `tiny`, which has no tokenizer.
fn tiny() -> String {
    golden("tiny").display().to_string()
}

/// A model directory of files of tests/golden.
fn model_of(files: &[&str]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for file in files {
        let from = golden(file);
        std::fs::copy(&from, dir.path().join(from.file_name().unwrap())).unwrap();
    }
    dir
}

/// `tiny` with the small tokenizer, which fits its vocabulary.
fn tiny_with_text() -> tempfile::TempDir {
    let text = ["tokenizer/tokenizer.json", "tokenizer/tokenizer_config.json"];
    model_of(&[&["tiny/config.json", "tiny/model.safetensors"], &text[..]].concat())
}

fn path(dir: &tempfile::TempDir) -> &str {
    dir.path().to_str().unwrap()
}

/// Token ids as `--tokens` takes them.
fn list(ids: &[u32]) -> String {
    ids.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}

fn entries(dir: &Path) -> usize {
    std::fs::read_dir(dir).unwrap().count()
}
