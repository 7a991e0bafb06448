//! From a model's files to a schedule: checkpoints, GGUF files and weight formats, the tokenizer, grammars, and the steps of
//! a pass.

#[path = "../common/mod.rs"]
mod common;

mod checkpoint;
mod gguf;
mod grammar;
mod int4;
mod schedule;
mod tokenizer;
