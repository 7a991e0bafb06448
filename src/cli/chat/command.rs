//! Commands of a chat: lines that begin with a slash.

use crate::{Error, Result};

/// What a command asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SlashCommand<'a> {
    /// The list of commands.
    Help,
    /// Forget all exchanges.
    Clear,
    /// Replace the system message; remove it if the text is empty.
    System(&'a str),
    /// Go on with the conversation of a file.
    Load(&'a str),
    /// Write the conversation to a file.
    Save(&'a str),
    /// End the chat.
    Exit,
}

/// Each command as `/help` lists it.
const LIST: [(&str, &str, &str); 8] = [
    ("/help", "", "list the commands"),
    ("/clear", "", "forget the conversation; the system message stays"),
    ("/system", " [TEXT]", "replace the system message, or remove it"),
    ("/save", " FILE", "write the conversation to a new file, as JSON that `kiln tokenize --chat` reads"),
    ("/load", " FILE", "go on with such a conversation, its system message included, in place of this one"),
    ("/exit", "", "end the chat, as Ctrl-D does"),
    ("/quit", "", "the same"),
    ("/bye", "", "the same"),
];

/// The text of `/help`.
pub(super) fn help() -> String {
    let lines = LIST.iter().map(|(name, argument, what)| format!("{:<16} {what}\n", format!("{name}{argument}")));
    lines.collect::<String>()
        + "A message of several lines: end a line with a backslash, press Alt-Enter, or put it between lines of \"\"\".\n\
           A line that begins with a space is a message, whatever follows."
}

/// The commands' names.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    LIST.iter().map(|(name, ..)| *name)
}

/// The command on a line; `None` if the line is a message.
///
/// # Errors
/// Input: there is no such command, or its argument is wrong.
pub(super) fn parse(line: &str) -> Result<Option<SlashCommand<'_>>> {
    let (name, argument) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    // Only a word is a command: a path is part of a message, and so is a comment in code.
    if !name.strip_prefix('/').is_some_and(|word| word.chars().all(char::is_alphabetic)) {
        return Ok(None);
    }
    let argument = argument.trim();
    let command = match name {
        "/help" => SlashCommand::Help,
        "/clear" => SlashCommand::Clear,
        "/system" => return Ok(Some(SlashCommand::System(argument))),
        "/load" | "/save" if argument.is_empty() => {
            return Err(Error::input(format!("{name} takes a file's name"), "give one behind it"));
        }
        "/load" => return Ok(Some(SlashCommand::Load(argument))),
        "/save" => return Ok(Some(SlashCommand::Save(argument))),
        "/exit" | "/quit" | "/bye" => SlashCommand::Exit,
        _ => {
            let remedy = "type /help for those there are, or put a space before the line to send it";
            return Err(Error::input(format!("there is no command {name}"), remedy));
        }
    };
    match argument {
        "" => Ok(Some(command)),
        _ => Err(Error::input(format!("{name} takes nothing behind it"), "put a space before the line to send it")),
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
            ("/save my chat.json", Some(SlashCommand::Save("my chat.json"))),
            ("/load my chat.json", Some(SlashCommand::Load("my chat.json"))),
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
            ("/save", "name"),
            ("/load ", "name"),
            ("/clear it", "nothing"),
        ] {
            let e = parse(line).unwrap_err();
            assert!(e.exit_code() == 2 && e.to_string().contains(what), "{line:?}: {e}");
        }
        assert!(names().all(|name| !matches!(parse(name), Ok(None))));
    }
}
