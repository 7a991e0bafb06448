//! Describes a machine, finds its faults and measures it: the bench, the probe, the live view, and the status reports
//! of running Kilns. Measures a model on a text, and compares executors step by step.

pub mod bench;
pub mod compare;
pub mod energy;
#[cfg(any(feature = "cli", feature = "serve"))]
pub mod forecast;
pub mod periodic;
pub mod perplexity;
pub mod probe;
pub mod report;
pub mod status;
pub mod top;
