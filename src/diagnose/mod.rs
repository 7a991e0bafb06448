//! What a machine is, what is wrong with it, and what it reaches: the bench, the probe, the live view, and what running
//! Kilns say of themselves.

pub mod bench;
pub mod probe;
pub mod status;
pub mod top;
