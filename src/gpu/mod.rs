//! The Vulkan executor, one room a job, in the order that data flows. A room uses those above it. One does more: [`measure`] takes
//! from [`replay`] the executor's options and which kinds of pass are tuned.
//!
//! | room | what it does |
//! | --- | --- |
//! | [`device`] | opens a Vulkan device and says what it can do |
//! | [`memory`] | heaps, buffers, and the arena |
//! | [`kernels`] | SPIR-V modules and the pipelines made of them |
//! | [`lower`] | turns steps of the schedule into dispatches: plain data, made without a device |
//! | [`queue`] | records dispatches into command buffers, submits them, waits; uploads weights |
//! | [`measure`] | times dispatches and reads: ceilings, profiles, and the tuning of kernels |
//! | [`replay`] | the executor: bakes every kind of pass once, and replays it |
//!
//! Every Vulkan call is unsafe. Three rules keep them sound. Handles are owned by types that destroy them. Those types
//! keep the device alive. Executors wait before they read, free or resubmit.

pub mod device;
pub mod kernels;
pub mod lower;
pub mod measure;
pub mod memory;
pub mod queue;
pub mod replay;

pub use device::{Choice, Gpu};
pub use replay::Vulkan;
