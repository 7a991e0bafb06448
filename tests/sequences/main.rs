//! Sequences of passes: many sequences in a batch, passes that run ahead, choices of tokens, drafts, and offloads.

#[path = "../common/mod.rs"]
mod common;

mod ahead;
mod choice;
mod draft_model;
mod drafter;
mod drafts;
mod guest;
mod traffic;
