//! The chat page at `/`, and its files.

use super::Call;
use crate::serve::http::{ApiError, Gone, JSON, Responder};
use serde_json::json;

/// A file of the page: its path, content type and content.
type File = (&'static str, &'static str, &'static str);

macro_rules! file {
    ($path:literal, $content_type:literal, $name:literal) => {
        ($path, $content_type, include_str!(concat!("../page/", $name)))
    };
}

/// The files. They need no key: what they ask of the server does.
const FILES: [File; 9] = [
    file!("/", "text/html; charset=utf-8", "index.html"),
    file!("/page.css", "text/css; charset=utf-8", "page.css"),
    file!("/page.js", "text/javascript; charset=utf-8", "page.js"),
    file!("/health.js", "text/javascript; charset=utf-8", "health.js"),
    file!("/idle.js", "text/javascript; charset=utf-8", "idle.js"),
    file!("/markdown.js", "text/javascript; charset=utf-8", "markdown.js"),
    file!("/panel.js", "text/javascript; charset=utf-8", "panel.js"),
    file!("/stream.js", "text/javascript; charset=utf-8", "stream.js"),
    file!("/icon.svg", "image/svg+xml", "icon.svg"),
];

/// What a browser may do with the page: nothing but with this server.
const HEADERS: [(&str, &str); 4] = [
    ("Cache-Control", "no-store"),
    (
        "Content-Security-Policy",
        "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'; require-trusted-types-for 'script'",
    ),
    ("Referrer-Policy", "no-referrer"),
    ("X-Content-Type-Options", "nosniff"),
];

/// Where the page learns what its owner wants of it.
const SETTINGS: &str = "/page.json";

/// The paths of the files.
pub(super) fn paths() -> impl Iterator<Item = &'static str> {
    FILES.iter().map(|(path, ..)| *path).chain([SETTINGS])
}

/// Whether the page has a file at `path`.
pub(super) fn has(path: &str) -> bool {
    paths().any(|file| file == path)
}

/// Sends the file at the request's path.
///
/// # Errors
/// The peer is gone.
pub(super) fn send(call: &Call<'_>, reply: Responder<'_>) -> Result<(), Gone> {
    if call.request.path == SETTINGS {
        let text = json!(*call.service.page()).to_string();
        return reply.send(200, JSON, &HEADERS, text.as_bytes());
    }
    match FILES.iter().find(|(path, ..)| *path == call.request.path) {
        Some((_, content_type, text)) => reply.send(200, content_type, &HEADERS, text.as_bytes()),
        None => call.refuse(reply, &ApiError::not_found(&call.request.path)),
    }
}
