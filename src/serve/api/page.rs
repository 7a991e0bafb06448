//! The chat page at `/`, and its files.

use super::Call;
use super::answer::ApiAnswer;
use crate::serve::http::{ApiError, JSON};
use crate::serve::page::language;

/// A file of the page: its path, content type and content.
type File = (&'static str, &'static str, &'static str);

/// The content type of the page's modules.
const SCRIPT: &str = "text/javascript; charset=utf-8";

macro_rules! file {
    ($path:literal, $content_type:expr, $name:literal) => {
        ($path, $content_type, include_str!(concat!("../page/", $name)))
    };
}

/// The page's files. They need no key; the requests that the page makes do.
const FILES: [File; 15] = [
    file!("/", "text/html; charset=utf-8", "index.html"),
    file!("/page.css", "text/css; charset=utf-8", "page.css"),
    file!("/page.js", SCRIPT, "page.js"),
    file!("/health.js", SCRIPT, "health.js"),
    file!("/idle.js", SCRIPT, "idle.js"),
    file!("/inline.js", SCRIPT, "inline.js"),
    file!("/keyboard.js", SCRIPT, "keyboard.js"),
    file!("/languages.js", SCRIPT, "languages.js"),
    file!("/markdown.js", SCRIPT, "markdown.js"),
    file!("/owner.js", SCRIPT, "owner.js"),
    file!("/panel.js", SCRIPT, "panel.js"),
    file!("/parts.js", SCRIPT, "parts.js"),
    file!("/stream.js", SCRIPT, "stream.js"),
    file!("/turn.js", SCRIPT, "turn.js"),
    file!("/icon.svg", "image/svg+xml", "icon.svg"),
];

/// The path of the built-in languages, `/languages/en.toml` and so on: examples for other languages.
const LANGUAGES: &str = "/languages/";

/// Security headers of the page: it may only connect to this server.
const HEADERS: [(&str, &str); 4] = headers(
    "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'; require-trusted-types-for 'script'",
);

/// Security headers of a logo that a browser opens by itself: it may load nothing. An SVG's own style is allowed.
const LOGO_HEADERS: [(&str, &str); 4] =
    headers("default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; sandbox");

const fn headers(policy: &'static str) -> [(&'static str, &'static str); 4] {
    [
        ("Cache-Control", "no-store"),
        ("Content-Security-Policy", policy),
        ("Referrer-Policy", "no-referrer"),
        ("X-Content-Type-Options", "nosniff"),
    ]
}

/// The path of the page's settings, in the browser's language.
const SETTINGS: &str = "/page.json";

/// The paths of the owner's logo, and of the one for a dark background.
const LOGO: &str = "/logo";
const DARK_LOGO: &str = "/logo-dark";

/// The paths of all files of the chat page, with its settings, logos and languages.
pub(super) fn paths() -> impl Iterator<Item = String> {
    let languages = language::FILES.iter().map(|(tag, _)| format!("{LANGUAGES}{tag}.toml"));
    FILES.iter().map(|(path, ..)| *path).chain([SETTINGS, LOGO, DARK_LOGO]).map(str::to_owned).chain(languages)
}

/// True if the page has a file at `path`, regardless of its settings.
pub(super) fn has(path: &str) -> bool {
    paths().any(|file| file == path)
}

/// The file at the request's path.
///
/// # Errors
/// 404: there is no such file.
pub(super) fn show(call: &Call<'_>) -> Result<ApiAnswer, ApiError> {
    let (path, page) = (call.request.path.as_str(), call.service.page.get());
    let language = || {
        let tag = path.strip_prefix(LANGUAGES)?.strip_suffix(".toml")?;
        language::FILES.iter().find(|(of, _)| *of == tag).map(|(_, text)| *text)
    };
    let missing = || ApiError::not_found(path);
    Ok(match (path, FILES.iter().find(|(of, ..)| *of == path)) {
        (_, Some((_, content_type, text))) => ApiAnswer::of(content_type, &HEADERS, text.as_bytes()),
        (SETTINGS, _) => {
            let wanted: Vec<&str> = call.request.headers.all("accept-language").collect();
            ApiAnswer::of(JSON, &HEADERS, page.for_browser(&wanted.join(",")).to_string().into_bytes())
        }
        (LOGO | DARK_LOGO, _) => {
            let logo = if path == LOGO { &page.logo } else { &page.dark_logo };
            let logo = logo.as_ref().ok_or_else(missing)?;
            ApiAnswer::of(logo.content_type(), &LOGO_HEADERS, logo.bytes().to_vec())
        }
        _ => ApiAnswer::of("application/toml; charset=utf-8", &HEADERS, language().ok_or_else(missing)?.as_bytes()),
    })
}
