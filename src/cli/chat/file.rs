//! The file of a chat, written by `/save` and read by `/load`.

use super::command;
use crate::cli::read_regular_text;
use crate::cli::tokenize::parse_messages;
use crate::machine::partial::PartialFile;
use crate::sequence::Conversation;
use crate::text::Message;
use crate::{Error, Result};
use std::fs::Metadata;
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The largest conversation that is loaded, in bytes. A larger one fits no context.
const MOST_LOADED: u64 = 64 << 20;

/// The file that the chat was loaded from or saved to, with its state at that time.
#[derive(Debug)]
pub(super) struct ChatFile {
    path: PathBuf,
    state: FileState,
}

/// A file's device, inode, length and time of change, by which a change by another program is noticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileState {
    place: (u64, u64),
    length: u64,
    changed: (i64, i64),
}

impl FileState {
    fn of(found: &Metadata) -> FileState {
        FileState {
            place: (found.dev(), found.ino()),
            length: found.len(),
            changed: (found.mtime(), found.mtime_nsec()),
        }
    }
}

impl ChatFile {
    /// The file's path.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    fn at(path: &Path) -> std::io::Result<ChatFile> {
        Ok(ChatFile { path: path.to_owned(), state: FileState::of(&path.metadata()?) })
    }
}

/// Reads the conversation of a file.
///
/// # Errors
/// Input: the file cannot be read, or is no conversation.
pub(super) fn load(path: &Path) -> Result<(Conversation, Option<ChatFile>)> {
    // Taken before reading, so that a change in between is noticed later.
    let file = ChatFile::at(path).ok();
    let text = read_regular_text(path, MOST_LOADED, "conversation", "give the name of a file that /save has written")?;
    Ok((Conversation::from_messages(parse_messages(&text)?)?, file))
}

/// Writes a conversation to the file `path`, or without a path to the chat's `own` file. The own file is replaced as a
/// whole. Another existing file is never overwritten, so a mistyped name does no harm.
///
/// # Errors
/// Input: there is no name, the file exists and is another's or was changed, or it cannot be written.
pub(super) fn save(messages: &[Message], path: Option<&Path>, own: Option<&ChatFile>) -> Result<ChatFile> {
    let Some(path) = path.or(own.map(|own| own.path.as_path())) else {
        return Err(Error::input("the conversation has no file yet", "give a name behind /save"));
    };
    let unsaved = |e: std::io::Error| match e.kind() {
        ErrorKind::AlreadyExists => {
            Error::input(format!("{} exists already", path.display()), "choose another name behind /save")
        }
        _ => Error::input(
            format!("cannot write {}: {e}", path.display()),
            "choose a name behind /save where files can be written",
        ),
    };
    let text = serde_json::to_string_pretty(messages).map_err(|e| unsaved(e.into()))? + "\n";
    let Ok(there) = path.metadata() else {
        // There is no file, or only a dangling link.
        create(path, text.as_bytes()).map_err(unsaved)?;
        return ChatFile::at(path).map_err(unsaved);
    };
    let now = FileState::of(&there);
    match own {
        Some(own) if own.state == now => {}
        // A new file may reuse a removed file's inode, so the name is compared too.
        Some(own) if own.path.canonicalize().ok() == path.canonicalize().ok() => {
            let cause = format!("{} was changed by another program since", path.display());
            return Err(Error::input(cause, "choose another name behind /save"));
        }
        _ => return Err(unsaved(ErrorKind::AlreadyExists.into())),
    }
    // Links stay links, and the file's permissions are kept.
    let replaced = path
        .canonicalize()
        .and_then(|path| PartialFile::write_whole(&path, there.permissions().mode() & 0o777, text.as_bytes()));
    replaced.map_err(unsaved)?;
    ChatFile::at(path).map_err(unsaved)
}

/// Writes a new file.
fn create(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    use std::io::Write;
    let mut file = std::fs::File::create_new(path)?;
    file.write_all(bytes).inspect_err(|_| {
        // An incomplete file is of no use.
        let _ = std::fs::remove_file(path);
    })
}

/// Completions of an incomplete file name: whole paths, directories with a trailing slash.
pub(super) fn completions(begun: &str) -> Vec<String> {
    let (directory, name) =
        begun.rsplit_once('/').map_or(("", begun), |(parent, name)| (&begun[..=parent.len()], name));
    let listed = std::fs::read_dir(if directory.is_empty() { ".".into() } else { command::file_of(directory) });
    let mut found: Vec<String> = listed
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let file = entry.file_name().into_string().ok()?;
            // Hidden files are offered only if the name begins with a dot.
            let fits = file.starts_with(name) && (name.starts_with('.') || !file.starts_with('.'));
            let slash = if entry.path().is_dir() { "/" } else { "" };
            fits.then(|| format!("{directory}{file}{slash}"))
        })
        .collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(text: &str) -> Vec<Message> {
        vec![Message::new("user", text), Message::new("assistant", "yes")]
    }

    #[test]
    fn the_chats_own_file_is_replaced_and_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("chat");
        let refused =
            |path: Option<&Path>, own: Option<&ChatFile>| save(&messages("no"), path, own).unwrap_err().to_string();
        assert!(refused(None, None).contains("has no file yet"));
        let first = save(&messages("one"), Some(&path), None).unwrap();
        assert!(refused(Some(&path), None).contains("exists already"));
        // Under its name, without a name, and under another name of the same file.
        let second = save(&messages("two"), Some(&path), Some(&first)).unwrap();
        let third = save(&messages("three"), None, Some(&second)).unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let fourth = save(&messages("four"), Some(&link), Some(&third)).unwrap();
        assert!(link.is_symlink());
        let (loaded, fifth) = load(&path).unwrap();
        assert_eq!(loaded.messages(), messages("four"));
        // A file changed by another program stays.
        std::fs::write(&path, "[]").unwrap();
        for own in [&fourth, &fifth.unwrap()] {
            assert!(refused(Some(&path), Some(own)).contains("was changed by another program since"));
        }
        assert_eq!(std::fs::read(&path).unwrap(), b"[]");
        let other = dir.path().join("other");
        std::fs::write(&other, "a letter").unwrap();
        assert!(refused(Some(&other), Some(&fourth)).contains("exists already"));
        // A removed file is written again.
        std::fs::remove_file(&path).unwrap();
        save(&messages("five"), Some(&path), Some(&fourth)).unwrap();
        assert!(refused(Some(dir.path()), None).contains("exists already"));
    }

    #[test]
    fn a_begun_name_is_completed_from_its_directory() {
        let dir = tempfile::tempdir().unwrap();
        for file in ["chat one", "chat two", "other", ".hidden"] {
            std::fs::write(dir.path().join(file), "").unwrap();
        }
        std::fs::create_dir(dir.path().join("chats")).unwrap();
        let base = dir.path().display();
        let found = |begun: &str| completions(&format!("{base}/{begun}"));
        assert_eq!(found("chat"), ["chat one", "chat two", "chats/"].map(|name| format!("{base}/{name}")));
        assert_eq!(found(""), ["chat one", "chat two", "chats/", "other"].map(|name| format!("{base}/{name}")));
        assert_eq!(found(".h"), [format!("{base}/.hidden")]);
        assert_eq!((found("x"), completions("/no/such/x")), (vec![], vec![]));
    }
}
