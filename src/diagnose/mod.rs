//! Describes a machine, finds its faults and measures it: the bench, the probe, the live view, and the status reports
//! of running Kilns.

pub mod bench;
pub mod probe;
pub mod status;
pub mod top;
