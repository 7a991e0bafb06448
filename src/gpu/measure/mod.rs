//! Measurements on the device: ceilings, costs, profiles, and the tuning of kernels.

pub mod ceiling;
pub mod choices;
pub mod costs;
pub mod fragment;
pub mod profile;
pub mod tuning;
