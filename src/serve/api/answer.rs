//! Answers: each path's function makes one of a request, without a connection. [`send`](super::send) writes it to a
//! peer, and [`own`](super::own) passes it to a caller in this process.

use super::run::{ParsedRequest, Wording};
use crate::serve::http::JSON;
use serde_json::Value;
use std::borrow::Cow;

/// An answer that is no error.
pub(super) enum ApiAnswer {
    /// An answer that is known.
    Whole {
        /// The HTTP status.
        status: u16,
        /// The body's content type.
        content_type: &'static str,
        /// Further headers.
        headers: &'static [(&'static str, &'static str)],
        /// The body.
        body: Cow<'static, [u8]>,
    },
    /// Replies to be made, and the format of their answer.
    Replies(ParsedRequest, Box<dyn Wording>),
}

impl ApiAnswer {
    /// Replies to be made.
    pub fn replies(asked: ParsedRequest, wording: impl Wording + 'static) -> ApiAnswer {
        ApiAnswer::Replies(asked, Box::new(wording))
    }

    /// A body with status 200.
    pub fn of(
        content_type: &'static str,
        headers: &'static [(&'static str, &'static str)],
        body: impl Into<Cow<'static, [u8]>>,
    ) -> ApiAnswer {
        ApiAnswer::Whole { status: 200, content_type, headers, body: body.into() }
    }
}

impl From<Value> for ApiAnswer {
    fn from(value: Value) -> ApiAnswer {
        ApiAnswer::of(JSON, &[], value.to_string().into_bytes())
    }
}
