//! Errors in the format of OpenAI's API.

use super::request::Method;
use crate::Error;
use serde_json::{Value, json};

/// An error answer: a status, and the object `{"error":{"message","type","param","code"}}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiError {
    /// The HTTP status of the answer.
    pub status: u16,
    /// The error's message to the client, a sentence.
    pub message: String,
    /// OpenAI's `type` of the error, such as `invalid_request_error`.
    pub kind: &'static str,
    /// The name of the request's field that is at fault.
    pub param: Option<String>,
    /// A short name of the error that programs can compare.
    pub code: Option<&'static str>,
    /// Additional headers of the answer, such as `Retry-After`.
    pub headers: Vec<(&'static str, String)>,
    /// The library's error that this one tells a client of. A request of this process gets it unchanged.
    pub cause: Option<Box<Error>>,
}

/// Formats an error as the JSON body of an API.
pub type ErrorWording = fn(&ApiError) -> Value;
/// Formats the text with which an API ends a stream after an error.
pub type LastWords = fn(&ApiError) -> String;

impl ApiError {
    /// An error whose type follows from its status: below 500 the request is at fault, else the server.
    pub fn new(status: u16, message: impl Into<String>) -> ApiError {
        let kind = if status < 500 { "invalid_request_error" } else { "server_error" };
        ApiError { status, message: message.into(), kind, param: None, code: None, headers: Vec::new(), cause: None }
    }

    /// The same error with a `code`.
    pub fn code(mut self, code: &'static str) -> ApiError {
        self.code = Some(code);
        self
    }

    /// The same error with a `param`.
    pub fn param(mut self, param: impl Into<String>) -> ApiError {
        self.param = Some(param.into());
        self
    }

    /// The same error with one more header.
    pub fn header(mut self, name: &'static str, value: impl Into<String>) -> ApiError {
        self.headers.push((name, value.into()));
        self
    }

    /// The same error with its cause.
    pub fn caused_by(mut self, cause: &Error) -> ApiError {
        self.cause = Some(Box::new(cause.clone()));
        self
    }

    /// A 400 error: the request is at fault.
    pub fn bad(message: impl Into<String>) -> ApiError {
        ApiError::new(400, message)
    }

    /// A 404 error: there is nothing at `path`.
    pub fn not_found(path: &str) -> ApiError {
        ApiError::new(404, format!("there is nothing at {path:?}")).code("not_found")
    }

    /// 405: the path has other methods, listed in `Allow`.
    pub fn method_not_allowed(allowed: &[Method]) -> ApiError {
        let names: Vec<&str> = allowed.iter().flat_map(|method| method.names()).copied().collect();
        let names = names.join(", ");
        ApiError::new(405, format!("this path takes {names}")).code("method_not_allowed").header("Allow", names)
    }

    /// 500: the server failed, and its log has the reason.
    pub fn internal() -> ApiError {
        ApiError::new(500, "the server failed while it answered; its log says why").code("internal_error")
    }

    /// A 503 error: temporarily unavailable. The client may retry after `retry` seconds.
    pub fn unavailable(message: impl Into<String>, retry: u64) -> ApiError {
        ApiError::new(503, message).header("Retry-After", retry.to_string())
    }

    /// A 503 error: the server has no capacity for another request or connection now.
    pub(super) fn overloaded(message: &str) -> ApiError {
        ApiError::unavailable(message, 1).code("overloaded")
    }

    /// A 503 error: the server is stopping.
    pub fn stopping() -> ApiError {
        ApiError::unavailable("the server is stopping", 1).code("stopping")
    }

    /// The error as a JSON object in OpenAI's format.
    pub fn to_json(&self) -> Value {
        json!({"error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}})
    }

    /// The error as a server-sent event with OpenAI's object.
    pub fn to_event(&self) -> String {
        format!("data: {}\n\n", self.to_json())
    }
}

/// The error for a program in this process: the cause, or one whose kind follows from the status.
impl From<ApiError> for Error {
    fn from(e: ApiError) -> Error {
        match (e.cause, e.status) {
            (Some(cause), _) => *cause,
            (None, 503) => Error::refused(e.message, "try again later"),
            (None, 400..=499) => Error::input(e.message, "change the request"),
            (None, _) => Error::failed(e.message, "try again"),
        }
    }
}
