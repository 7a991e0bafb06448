//! Times taken on the device: ceilings, costs, profiles, and the tuning of kernels.

pub mod ceiling;
pub mod costs;
pub mod layout;
pub mod profile;
pub mod tuning;
