//! Measurements on the device: ceilings, costs, profiles, and the tuning of kernels.

pub mod agenda;
pub mod bed;
pub mod ceiling;
pub mod choices;
pub mod costs;
#[cfg(any(feature = "cli", feature = "serve", test))]
pub mod estimate;
pub mod fastest;
pub mod fragment;
#[cfg(test)]
mod modelled_tests;
pub mod profile;
#[cfg(feature = "npu")]
pub mod steady;
pub mod timing;
pub mod tuning;
