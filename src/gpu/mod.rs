//! The Vulkan executor, in the order that data flows: instance, device, units, memory, upload, kernels, pipelines, linear (which
//! kernel where), matrix and fragment (products on matrix units), tuning, lower and attend (steps to dispatches), record, bake,
//! passes, pace, replay, results.

// Every Vulkan call is unsafe; what keeps them sound is that handles are owned by types that destroy them, that those
// types hold the device alive, and that executors wait before they read, free or resubmit.

pub mod arena;
mod attend;
pub mod bake;
pub mod ceiling;
pub mod costs;
pub mod device;
pub mod dispatch;
pub mod external;
pub mod fence;
pub mod fragment;
pub mod inspect;
pub mod instance;
pub mod kernels;
pub mod linear;
pub mod lower;
pub mod matrix;
pub mod memory;
pub mod options;
mod pace;
mod passes;
pub mod pipelines;
pub mod profile;
pub mod record;
pub mod replay;
pub mod results;
pub mod stamps;
pub mod survey;
pub mod tuning;
pub mod units;
pub mod upload;

pub use device::{Choice, Gpu};
pub use replay::Vulkan;
