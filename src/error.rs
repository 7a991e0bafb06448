//! The error type. Each variant has an exit code. Each value gives cause and remedy on one line.

mod wording;

use crate::display::is_obeyed;
use std::io::ErrorKind;
pub(crate) use wording::text;
pub use wording::{Setting, SettingNames, Text};

/// An error: its cause, and a remedy for the user.
///
/// `cause` and `remedy` are clauses without a final full stop. [`Error::render`] joins them on one line and names
/// settings as a [`SettingNames`] does. [`std::fmt::Display`] does the same in plain words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A valid request failed while it ran (disk full, I/O, no thread can be started). Exit code 1.
    #[error("{}", line(cause, remedy, &|_| None))]
    Failed {
        /// The failure and its cause, as one part of the error's line.
        cause: Text,
        /// The remedy, as an instruction to the user.
        remedy: Text,
    },
    /// Bad usage or bad input: arguments, files, token ids, a prompt past the context. Exit code 2.
    #[error("{}", line(cause, remedy, &|_| None))]
    Input {
        /// The fault of the input.
        cause: Text,
        /// The remedy, as an instruction to the user.
        remedy: Text,
    },
    /// A valid request does not fit in this machine's memory. Exit code 3.
    #[error("{}", line(cause, remedy, &|_| None))]
    Refused {
        /// The sum of bytes that does not fit.
        cause: Text,
        /// The remedy, as an instruction to the user.
        remedy: Text,
    },
    /// The caller ended the work early, by a [`crate::Cancel`]. Exit code 1; a command that a signal stopped ends by
    /// that signal instead.
    #[error("{}", line(cause, remedy, &|_| None))]
    Interrupted {
        /// The work that was interrupted, and its remains.
        cause: Text,
        /// The remedy, as an instruction to the user.
        remedy: Text,
    },
    /// A device is absent, unusable or lost. Exit code 4.
    #[error("{}", line(cause, remedy, &|_| None))]
    Device {
        /// The message of the device or its driver.
        cause: Text,
        /// The remedy, as an instruction to the user.
        remedy: Text,
    },
}

/// [`std::result::Result`] with Kiln's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// The remedy for a write that failed on a full disk or quota; `None` for other failures.
pub(crate) fn remedy_of_full(kind: ErrorKind) -> Option<&'static str> {
    match kind {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            Some("free some space there or choose another destination")
        }
        ErrorKind::FileTooLarge => {
            Some("raise the limit on the size of files (`ulimit -f`), or choose a file system without one")
        }
        _ => None,
    }
}

/// `cause; remedy`. Characters that a terminal interprets are escaped: an error with any quoted text stays on one line.
fn line(cause: &Text, remedy: &Text, names: SettingNames<'_>) -> String {
    let (cause, remedy) = (cause.render(names), remedy.render(names));
    let mut out = String::with_capacity(cause.len() + remedy.len() + 2);
    for c in cause.chars().chain("; ".chars()).chain(remedy.chars()) {
        if is_obeyed(c) {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

impl Error {
    /// Makes an [`Error::Failed`] of its cause and its remedy.
    pub fn failed(cause: impl Into<Text>, remedy: impl Into<Text>) -> Self {
        Self::Failed { cause: cause.into(), remedy: remedy.into() }
    }

    /// Makes an [`Error::Input`] of its cause and its remedy.
    pub fn input(cause: impl Into<Text>, remedy: impl Into<Text>) -> Self {
        Self::Input { cause: cause.into(), remedy: remedy.into() }
    }

    /// Makes an [`Error::Refused`] of its cause and its remedy.
    pub fn refused(cause: impl Into<Text>, remedy: impl Into<Text>) -> Self {
        Self::Refused { cause: cause.into(), remedy: remedy.into() }
    }

    /// An [`Error::Interrupted`].
    pub fn interrupted(cause: impl Into<Text>, remedy: impl Into<Text>) -> Self {
        Self::Interrupted { cause: cause.into(), remedy: remedy.into() }
    }

    /// Makes an [`Error::Device`] of its cause and its remedy.
    pub fn device(cause: impl Into<Text>, remedy: impl Into<Text>) -> Self {
        Self::Device { cause: cause.into(), remedy: remedy.into() }
    }

    /// An input file cannot be opened or read. Exit code 2: another path may work.
    pub fn unreadable(path: &std::path::Path, source: &std::io::Error) -> Self {
        match source.kind() {
            ErrorKind::NotFound => match std::fs::read_link(path) {
                // So is the Hugging Face hub's cache if only its links were copied.
                Ok(target) => Self::input(
                    format!("{} is a link to {}, which does not exist", path.display(), target.display()),
                    "copy or download what the link leads to, or give another path",
                ),
                Err(_) => Self::input(format!("{} does not exist", path.display()), "check the path"),
            },
            ErrorKind::IsADirectory => Self::input(format!("{} is a directory", path.display()), "give a file"),
            _ => Self::input(format!("cannot read {}: {source}", path.display()), "check the path and its permissions"),
        }
    }

    /// A destination cannot be written. Exit code 1.
    pub fn unwritable(path: &std::path::Path, source: &std::io::Error) -> Self {
        let remedy = remedy_of_full(source.kind())
            .unwrap_or("check that its directory exists and can be written, or choose another destination");
        if source.kind() == ErrorKind::IsADirectory {
            return Self::failed(format!("{} is a directory", path.display()), "give the name of a file");
        }
        // Without an errno, the standard library's text speaks of entities ("entity not found").
        let why = match (source.raw_os_error(), source.kind()) {
            (None, ErrorKind::NotFound) => "its directory does not exist".to_owned(),
            _ => source.to_string(),
        };
        Self::failed(format!("cannot write {}: {why}", path.display()), remedy)
    }

    /// The cause and the remedy.
    pub fn parts(&self) -> (&Text, &Text) {
        match self {
            Self::Failed { cause, remedy }
            | Self::Input { cause, remedy }
            | Self::Refused { cause, remedy }
            | Self::Interrupted { cause, remedy }
            | Self::Device { cause, remedy } => (cause, remedy),
        }
    }

    /// True if the cause or the remedy names the setting.
    pub fn names(&self, setting: Setting) -> bool {
        let (cause, remedy) = self.parts();
        cause.names(setting) || remedy.names(setting)
    }

    /// `cause; remedy` on one line, with settings named by `names`.
    pub fn render(&self, names: SettingNames<'_>) -> String {
        let (cause, remedy) = self.parts();
        line(cause, remedy, names)
    }

    /// The process's exit code: 1 failed or interrupted, 2 input, 3 refused, 4 device.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Failed { .. } | Self::Interrupted { .. } => 1,
            Self::Input { .. } => 2,
            Self::Refused { .. } => 3,
            Self::Device { .. } => 4,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_file_is_said_in_one_way_and_others_with_the_systems_words() {
        let path = std::path::Path::new("/no/such");
        let said = |kind: ErrorKind| Error::unreadable(path, &kind.into()).to_string();
        assert_eq!(said(ErrorKind::NotFound), "/no/such does not exist; check the path");
        assert!(said(ErrorKind::PermissionDenied).starts_with("cannot read /no/such: permission denied; check"));
    }

    #[test]
    fn an_error_is_one_line_whatever_it_quotes() {
        let e = Error::input("the name a\nb\u{1b}[31m\u{202e} is odd", "rename it");
        assert_eq!(e.to_string().lines().count(), 1);
        assert!(!e.to_string().contains(['\u{1b}', '\u{202e}']));
        assert_eq!(e.exit_code(), 2);
    }
}
