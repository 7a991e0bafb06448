//! Serving: what answers requests from other programs.

pub mod http;
