//! Answers: each path's function makes one of a request, without a connection. [`send`](super::send) writes it to a
//! peer, and [`own`](super::own) passes it to a caller in this process.

use super::run::{ParsedRequest, Wording};
use crate::serve::http::JSON;
use serde_json::Value;
use std::borrow::Cow;

/// An answer that is no error.
pub(super) enum ApiAnswer {
    /// An answer that is complete before it is sent.
    Whole {
        /// The HTTP status of the answer.
        status: u16,
        /// The content type of the body.
        content_type: &'static str,
        /// Headers of the answer beyond the usual ones.
        headers: &'static [(&'static str, &'static str)],
        /// The body of the answer.
        body: Cow<'static, [u8]>,
    },
    /// Replies to be made, and the format of their answer.
    Replies(ParsedRequest, Box<dyn Wording>),
}

impl ApiAnswer {
    /// An answer that the model's replies to `asked` make up, formatted by `wording`.
    pub fn replies(asked: ParsedRequest, wording: impl Wording + 'static) -> ApiAnswer {
        ApiAnswer::Replies(asked, Box::new(wording))
    }

    /// An answer with status 200 and this body.
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
