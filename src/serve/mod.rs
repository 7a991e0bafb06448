//! Serving: answers requests from other programs, many at once, with one loaded model.
//!
//! [`http`] passes each request to a handler on its connection's thread, and [`embedded`] a request of this process on a
//! thread of its own. [`api`] turns it into a [`job::ReplyRequest`] and puts that into the queue ([`service`]). The
//! engine's thread (`worker`) takes jobs into the slots of a [`crate::sequence::Batch`], runs passes, and sends each
//! job's events back, of which [`api`] makes the answer. Only the engine's thread waits for the device, so [`health`] and
//! [`metrics`] answer while it works.

pub mod api;
mod bundle;
mod deadline;
pub mod embedded;
mod engine_thread;
pub mod health;
pub mod http;
pub mod job;
mod load;
mod manager;
pub mod metrics;
pub mod model;
mod pace;
pub mod page;
mod places;
mod prefixes;
mod published;
mod queue;
pub mod server;
pub mod service;
#[cfg(test)]
mod tests;
mod unique;
mod unload;
mod worker;
