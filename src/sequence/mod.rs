//! Sequences of tokens on an executor: sessions, and generation.

pub mod generate;
pub mod session;
