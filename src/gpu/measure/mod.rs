//! Measurements on the device: ceilings, costs, profiles, and the tuning of kernels.

pub mod ceiling;
pub mod choices;
pub mod costs;
pub mod fastest;
pub mod fragment;
pub mod profile;
pub mod timing;
pub mod tuning;
