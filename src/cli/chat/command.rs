//! Commands of a chat: lines that begin with a slash.

use crate::cli::wrap::listed;
use crate::display::nearest;
use crate::{Error, Result};
use std::path::PathBuf;

/// A command that the user types into a chat.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum SlashCommand<'a> {
    /// The list of commands.
    Help,
    /// Answer the last message again.
    Regenerate,
    /// Remove the last message and its answer.
    Undo,
    /// Remove all exchanges.
    Clear,
    /// Replace the system message; remove it if the text is empty.
    System(&'a str),
    /// Set the sampling temperature. `None`: print it.
    Temperature(Option<f32>),
    /// Whether the model thinks before it answers. `None`: print it.
    Think(Option<bool>),
    /// Continue the conversation in a file.
    Load(PathBuf),
    /// Write the conversation to a file. `None`: to the chat's own.
    Save(Option<PathBuf>),
    /// End the chat.
    Exit,
}

/// The commands as `/help` lists them: name, argument and description.
const LIST: [(&str, &str, &str); 12] = [
    ("/help", "", "list the commands"),
    ("/regenerate", "", "answer the last message anew, in place of its answer"),
    ("/undo", "", "take back the last message and its answer"),
    ("/clear", "", "forget the conversation; the system message stays"),
    ("/system", " [TEXT]", "replace the system message, or remove it"),
    ("/temp", " [T]", "set the sampling temperature, or say which it is; 0 always takes the likeliest token"),
    ("/think", " [on|off]", "let the model think before it answers, or say whether it does"),
    (
        "/save",
        " [FILE]",
        "write the conversation as JSON, which `kiln tokenize --chat` reads too; without a name to the file that it \
         was loaded from or saved to",
    ),
    ("/load", " FILE", "go on with such a conversation, its system message included, in place of this one"),
    ("/exit", "", "end the chat, as Ctrl-D does"),
    ("/quit", "", "the same"),
    ("/bye", "", "the same"),
];

/// Keys and line syntax in `/help`, in the same columns.
const KEYS: [(&str, &str); 5] = [
    ("Ctrl-C", "end the reply; at the prompt the line stays, and a second Ctrl-C clears it"),
    ("Ctrl-D", "on an empty line: end the chat"),
    ("Tab", "complete a command or a file's name"),
    ("\\ at the end", "the message goes on in the next line; so it does after Alt-Enter, and between lines of \"\"\""),
    ("a space first", "the line is a message, whatever follows"),
];

/// The text of `/help`, wrapped at `columns`.
pub(super) fn help(columns: usize) -> String {
    let commands = LIST.iter().map(|(name, argument, what)| (format!("{name}{argument}"), *what));
    let keys = KEYS.iter().map(|(name, what)| ((*name).to_owned(), *what));
    let rows: Vec<(String, &str)> = commands.chain(keys).collect();
    listed(&rows, columns).trim_end().to_owned()
}

/// The names of all commands of a chat.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    LIST.iter().map(|(name, ..)| *name)
}

/// The incomplete file name in a line of `/save` or `/load`. `None`: another line.
pub(super) fn begun_file(line: &str) -> Option<&str> {
    let name = ["/save ", "/load "].iter().find_map(|command| line.strip_prefix(command))?;
    Some(name.trim_start())
}

/// A file named in a chat, with `~` expanded, because no shell has done it.
pub(super) fn file_of(name: &str) -> PathBuf {
    match (name.strip_prefix("~/"), std::env::var_os("HOME").filter(|home| !home.is_empty())) {
        (Some(rest), Some(home)) => PathBuf::from(home).join(rest),
        _ => name.into(),
    }
}

/// The command on a line; `None` if the line is a message.
///
/// # Errors
/// Input: there is no such command, or its argument is wrong.
pub(super) fn parse(line: &str) -> Result<Option<SlashCommand<'_>>> {
    let (name, argument) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    // Only a word is a command: a path or a comment in code belongs to a message.
    if !name.strip_prefix('/').is_some_and(|word| word.chars().all(char::is_alphabetic)) {
        return Ok(None);
    }
    let argument = argument.trim();
    let command = match name {
        "/help" => SlashCommand::Help,
        "/regenerate" => SlashCommand::Regenerate,
        "/undo" => SlashCommand::Undo,
        "/clear" => SlashCommand::Clear,
        "/system" => return Ok(Some(SlashCommand::System(argument))),
        "/temp" => return temperature(argument).map(Some),
        "/think" => return thinking(argument).map(Some),
        "/load" if argument.is_empty() => {
            return Err(Error::input("/load takes a file's name", "give one behind it"));
        }
        "/load" => return Ok(Some(SlashCommand::Load(file_of(argument)))),
        "/save" => return Ok(Some(SlashCommand::Save((!argument.is_empty()).then(|| file_of(argument))))),
        "/exit" | "/quit" | "/bye" => SlashCommand::Exit,
        _ => {
            let likely = nearest(name, names()).map_or(String::new(), |likely| format!("{likely} is one; "));
            let remedy = format!("{likely}type /help for all, or put a space before the line to send it");
            return Err(Error::input(format!("there is no command {name}"), remedy));
        }
    };
    match argument {
        "" => Ok(Some(command)),
        _ => Err(Error::input(format!("{name} takes nothing behind it"), "put a space before the line to send it")),
    }
}

/// The command `/temp` with its argument. The sampler checks the number's range.
fn temperature(argument: &str) -> Result<SlashCommand<'static>> {
    let wrong = |_| Error::input(format!("{argument} is no temperature"), "give a number such as 0.7, or nothing");
    let number = (!argument.is_empty()).then(|| argument.parse().map_err(wrong)).transpose()?;
    Ok(SlashCommand::Temperature(number))
}

/// Parses the argument of `/think`: `on`, `off` or nothing.
fn thinking(argument: &str) -> Result<SlashCommand<'static>> {
    match argument {
        "" => Ok(SlashCommand::Think(None)),
        "on" | "off" => Ok(SlashCommand::Think(Some(argument == "on"))),
        _ => Err(Error::input("/think takes on or off", "give one of the two, or nothing")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_begins_with_a_slash_is_a_command_and_never_sent_by_mistake() {
        for (line, command) in [
            ("/help", Some(SlashCommand::Help)),
            ("/clear ", Some(SlashCommand::Clear)),
            ("/system  Be brief.", Some(SlashCommand::System("Be brief."))),
            ("/system\nBe brief.\nBe kind.", Some(SlashCommand::System("Be brief.\nBe kind."))),
            ("/system", Some(SlashCommand::System(""))),
            ("/save my chat.json", Some(SlashCommand::Save(Some("my chat.json".into())))),
            ("/save ", Some(SlashCommand::Save(None))),
            ("/load my chat.json", Some(SlashCommand::Load("my chat.json".into()))),
            ("/temp", Some(SlashCommand::Temperature(None))),
            ("/temp 0.7", Some(SlashCommand::Temperature(Some(0.7)))),
            ("/think", Some(SlashCommand::Think(None))),
            ("/think on", Some(SlashCommand::Think(Some(true)))),
            ("/think off", Some(SlashCommand::Think(Some(false)))),
            ("/regenerate", Some(SlashCommand::Regenerate)),
            ("/undo ", Some(SlashCommand::Undo)),
            ("/bye", Some(SlashCommand::Exit)),
            (" /help", None),
            ("// a comment", None),
            ("/* a comment */", None),
            ("/usr/bin/foo is what?", None),
            ("/2 of them?", None),
            ("help", None),
            ("", None),
        ] {
            assert_eq!(parse(line).unwrap(), command, "{line:?}");
        }
        for (line, what) in [
            ("/", "/"),
            ("/halp", "/halp"),
            ("/etc is what?", "/etc"),
            ("/regen", "/regenerate is one"),
            ("/temp warm", "warm is no temperature"),
            ("/think hard", "on or off"),
            ("/load ", "name"),
            ("/clear it", "nothing"),
        ] {
            let e = parse(line).unwrap_err();
            assert!(e.exit_code() == 2 && e.to_string().contains(what), "{line:?}: {e}");
        }
        assert!(names().all(|name| !matches!(parse(name), Ok(None))));
    }

    /// Continued lines of the list used to begin below the command, as if they were one.
    #[test]
    fn the_list_hangs_beside_its_commands() {
        for columns in [30, 40, 80] {
            let text = help(columns);
            assert!(text.lines().all(|line| line.chars().count() <= columns), "{columns}:\n{text}");
            let firsts = text.lines().filter(|line| !line.starts_with(' '));
            assert_eq!(firsts.count(), LIST.len() + KEYS.len(), "{columns}:\n{text}");
        }
    }

    #[test]
    fn a_tilde_is_the_home_directory() {
        let home = std::env::var("HOME").unwrap();
        assert_eq!(file_of("~/a b"), PathBuf::from(home).join("a b"));
        assert_eq!((file_of("~a"), file_of("a~/b")), (PathBuf::from("~a"), PathBuf::from("a~/b")));
        assert_eq!((begun_file("/save  a b"), begun_file("/save"), begun_file("/clear x")), (Some("a b"), None, None));
    }
}
