//! Serving: answers requests from other programs, many at once, with one loaded model.
//!
//! [`http`] passes each request to a handler on its connection's thread, and [`embedded`] a request of this process on
//! a thread of its own. [`api`] turns it into a [`crate::engine::request::Request`] to the engine ([`service`]), and
//! makes the answer of the events of its replies. Only the engine's thread waits for the device, so [`health`] and
//! [`metrics`] answer while it works.

pub mod api;
mod bundle;
pub mod embedded;
pub mod health;
pub mod http;
mod load;
mod manager;
pub mod metrics;
pub mod model;
pub mod page;
mod published;
mod served;
pub mod server;
pub mod service;
#[cfg(test)]
mod tests;
mod unique;
