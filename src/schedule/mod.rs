//! The schedule: the fixed list of steps of one forward pass, as data that every executor consumes.

pub mod build;
pub mod choice;
pub mod cost;
pub mod kv;
pub mod layout;
pub mod rows;
pub mod step;
pub mod tolerance;

pub use build::{DRAFT_SEQUENCES, DRAFT_STEPS, Drafter, Extent, Schedule};
pub use cost::{Cost, PassShape};
pub use kv::{KvLayout, Pool};
pub use rows::Row;
pub use step::{KvType, Op, Segment, Step};
pub use tolerance::Tolerance;
