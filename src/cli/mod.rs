//! One file per command; no logic that a user of the library would miss.

pub mod forge;
mod job;
pub mod quantize;
