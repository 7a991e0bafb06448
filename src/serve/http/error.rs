//! An error as OpenAI's API words it.

use super::request::Method;
use serde_json::{Value, json};

/// An answer that says what is wrong: a status, and the object `{"error":{"message","type","param","code"}}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiError {
    /// The HTTP status.
    pub status: u16,
    /// What is wrong, in a sentence.
    pub message: String,
    /// OpenAI's `type`.
    pub kind: &'static str,
    /// The request's field that is wrong.
    pub param: Option<String>,
    /// What is wrong, as a word for programs.
    pub code: Option<&'static str>,
    /// Headers that the answer carries, such as `Retry-After`.
    pub headers: Vec<(&'static str, String)>,
}

/// How an API words an error.
pub type ErrorWording = fn(&ApiError) -> Value;
/// How an API ends a stream with an error.
pub type LastWords = fn(&ApiError) -> String;

impl ApiError {
    /// An error whose type follows from its status: below 500 the request is wrong, from there on the server.
    pub fn new(status: u16, message: impl Into<String>) -> ApiError {
        let kind = if status < 500 { "invalid_request_error" } else { "server_error" };
        ApiError { status, message: message.into(), kind, param: None, code: None, headers: Vec::new() }
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

    /// 400.
    pub fn bad(message: impl Into<String>) -> ApiError {
        ApiError::new(400, message)
    }

    /// 404: there is nothing at `path`.
    pub fn not_found(path: &str) -> ApiError {
        ApiError::new(404, format!("there is nothing at {path:?}")).code("not_found")
    }

    /// 405: the path takes other methods, which `Allow` names.
    pub fn method_not_allowed(allowed: &[Method]) -> ApiError {
        let names: Vec<&str> = allowed.iter().flat_map(|method| method.names()).copied().collect();
        let names = names.join(", ");
        ApiError::new(405, format!("this path takes {names}")).code("method_not_allowed").header("Allow", names)
    }

    /// 500: the server failed, and its own log says why.
    pub fn internal() -> ApiError {
        ApiError::new(500, "the server failed while it answered; its log says why").code("internal_error")
    }

    /// 503: not now, but perhaps after `retry` seconds.
    pub fn unavailable(message: impl Into<String>, retry: u64) -> ApiError {
        ApiError::new(503, message).header("Retry-After", retry.to_string())
    }

    /// 503: no room for one more now.
    pub(super) fn overloaded(message: &str) -> ApiError {
        ApiError::unavailable(message, 1).code("overloaded")
    }

    /// 503: the server is stopping.
    pub fn stopping() -> ApiError {
        ApiError::unavailable("the server is stopping", 1).code("stopping")
    }

    /// OpenAI's object.
    pub fn to_json(&self) -> Value {
        json!({"error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}})
    }

    /// OpenAI's object as a server-sent event.
    pub fn to_event(&self) -> String {
        format!("data: {}\n\n", self.to_json())
    }
}
