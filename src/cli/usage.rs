//! Help and usage errors: errors on one line, and the layout of the help. The help's examples are in `help/`, a file
//! for each command.

use super::Cli;
use super::wrap::{columns, entry, wrapped};
use crate::Error;
use crate::hub::name::{Choice, HubName};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command, CommandFactory};
use std::any::TypeId;
use std::ffi::{OsStr, OsString};
use std::io::IsTerminal;
use std::path::Path;

/// The most columns of the help, on a wider terminal too.
const WIDEST: usize = 100;
/// Columns of a manual page, without its margin.
pub(super) const MANUAL: usize = 72;

/// The command line, with its help laid out for the terminal.
pub fn command() -> Command {
    let given = || std::env::var("COLUMNS").ok()?.parse().ok();
    let shown = if std::io::stdout().is_terminal() { columns() } else { given().unwrap_or(WIDEST) };
    laid_out(Cli::command(), shown.clamp(1, WIDEST))
}

/// A command and its subcommands, with the texts after their options wrapped at `columns`.
pub(super) fn laid_out(command: Command, columns: usize) -> Command {
    let behind = command.get_after_help().map(ToString::to_string);
    let command = command.mut_subcommands(|sub| laid_out(sub, columns));
    match behind {
        Some(text) => command.after_help(lay_out(&text, columns)).term_width(columns),
        None => command.term_width(columns),
    }
}

/// A command whose options of numbers take negative ones: these are values, right or wrong, and no unknown options.
pub(super) fn with_negative_numbers(command: Command) -> Command {
    command.mut_args(|arg| if is_number(&arg) { arg.allow_negative_numbers(true) } else { arg })
}

/// True if the argument takes a number.
pub(super) fn is_number(arg: &Arg) -> bool {
    let numbers = [
        TypeId::of::<u8>(),
        TypeId::of::<u16>(),
        TypeId::of::<u32>(),
        TypeId::of::<u64>(),
        TypeId::of::<usize>(),
        TypeId::of::<f32>(),
        TypeId::of::<f64>(),
    ];
    let held = arg.get_value_parser().type_id();
    numbers.iter().any(|number| held == *number)
}

/// Wraps the text after a help's options at `columns`. Explanations of examples get a hanging indent.
fn lay_out(text: &str, columns: usize) -> String {
    let line = |line: &str| {
        let indent = line.len() - line.trim_start().len();
        let gap = line[indent..].find("  ").filter(|_| indent > 0).map(|at| indent + at);
        let Some(gap) = gap else { return wrapped(line, columns) };
        let text = line[gap..].trim_start();
        entry(&line[..gap], line.chars().count() - text.chars().count(), text, columns)
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// A usage error on one line: clap's message without its layout, and a pointer to the help. `arguments` are the
/// process's, including the program's name.
pub fn error(e: &clap::Error, arguments: &[OsString]) -> Error {
    let found = command_of(arguments);
    let command = found.as_ref().map_or(String::new(), |command| format!(" {}", command.get_name()));
    let foreign = remedy_of_foreign(e, found.as_ref(), arguments);
    let takes_model = found.is_some_and(|command| command.get_arguments().any(|a| a.get_short() == Some('m')));
    let remedy = match (stray_word(e), foreign) {
        _ if e.kind() == ErrorKind::InvalidSubcommand && !words(e).contains("tip:") => match likely_command(e) {
            Some(name) => format!("`kiln {name}` may be meant; see `kiln --help`"),
            None => "see `kiln --help`".into(),
        },
        (Some(word), _) if takes_model && names_model(word) => format!("give the model as `-m {word}`"),
        (Some(_), _) if command == " run" => "give the prompt with -p".into(),
        (_, Some(foreign)) => foreign.into(),
        _ => format!("see `kiln{command} --help`"),
    };
    Error::input(words(e), remedy)
}

/// A usage error's message as one line in plain words.
pub(super) fn words(e: &clap::Error) -> String {
    in_plain_words(one_line(&e.to_string()))
}

/// Options of llama.cpp's server: an option of ours that the command must have, and a suggestion.
const FOREIGN: [(&[&str], &str, &str); 10] = [
    (&["--port"], "listen", "give the port with its address: --listen 127.0.0.1:PORT"),
    (&["-c", "--ctx-size"], "ctx", "give the context as --ctx N"),
    (&["-np", "--parallel"], "batch", "give the replies made at once as --batch N"),
    (&["--n-predict", "--predict"], "max-tokens", "give the most tokens as --max-tokens N"),
    (&["--max-tokens", "--n-predict", "--predict"], "seed", "give the most tokens as -n N"),
    (&["-ngl", "--gpu-layers", "--n-gpu-layers"], "device", "leave it out: all layers run on the --device"),
    (&["-t"], "threads", "give the processor's threads as --threads N"),
    (&["-a"], "alias", "give another name of the model as --alias NAME"),
    (&["--api-key"], "api-key-file", "write the keys into a file and give --api-key-file FILE"),
    (&["-hf", "--hf-repo"], "model", "get the model with `kiln pull NAME` and give -m NAME"),
];

/// The suggestion for an option of llama.cpp's. Of its short options with several letters the error names the first
/// letter.
fn remedy_of_foreign(e: &clap::Error, command: Option<&Command>, arguments: &[OsString]) -> Option<&'static str> {
    let Some(ContextValue::String(word)) = e.get(ContextKind::InvalidArg) else { return None };
    let word = word.split(' ').next().filter(|word| word.starts_with('-'))?;
    let has = |long: &str| command.is_some_and(|command| command.get_arguments().any(|a| a.get_long() == Some(long)));
    let given = arguments.iter().filter_map(|a| a.to_str()).map(|a| a.split('=').next().unwrap_or(a));
    let mut foreign = given
        .filter(|a| a.starts_with(word))
        .flat_map(|a| FOREIGN.iter().filter(move |(names, ..)| names.contains(&a)));
    foreign.find(|(_, own, _)| has(own)).map(|(.., remedy)| *remedy)
}

/// The argument in the error that follows no option, if there is one.
fn stray_word(e: &clap::Error) -> Option<&str> {
    let Some(ContextValue::String(word)) = e.get(ContextKind::InvalidArg) else { return None };
    (e.kind() == ErrorKind::UnknownArgument && !word.starts_with('-')).then_some(word)
}

/// The command that a misspelt one probably means: one typing error away, or two in a long word.
fn likely_command(e: &clap::Error) -> Option<String> {
    let Some(ContextValue::String(word)) = e.get(ContextKind::InvalidSubcommand) else { return None };
    let all = Cli::command();
    let slips =
        all.get_subcommands().map(|command| (strsim::osa_distance(command.get_name(), word), command.get_name()));
    slips.min().filter(|(slips, name)| *slips <= 1 + name.len() / 6).map(|(_, name)| name.to_owned())
}

/// True if a word names a model, and is not the start of a prompt: a GGUF file, a directory, or a type of the hub's.
fn names_model(word: &str) -> bool {
    let of_hub = || HubName::parse(word).is_some_and(|name| matches!(name.choice, Choice::Quant(_)));
    word.ends_with(".gguf") || Path::new(word).is_dir() || of_hub()
}

/// Rewords the standard library's messages about numbers, which name its types.
fn in_plain_words(message: String) -> String {
    const WORDS: [(&str, &str); 5] = [
        ("invalid digit found in string", "it is not a whole number of 0 or more"),
        ("number too large to fit in target type", "it is too large"),
        ("cannot parse integer from empty string", "it is empty"),
        ("invalid float literal", "it is not a number"),
        ("cannot parse float from empty string", "it is empty"),
    ];
    let replaced = WORDS.iter().find_map(|(theirs, plain)| Some(format!("{}{plain}", message.strip_suffix(theirs)?)));
    replaced.unwrap_or(message)
}

/// True if the arguments, which could not be parsed, have `--json` among them.
pub fn wants_json(arguments: &[OsString]) -> bool {
    arguments.iter().take_while(|a| *a != "--").any(|a| a == "--json")
}

/// The command among the arguments. No option before it takes a value.
pub(super) fn command_of(arguments: &[OsString]) -> Option<Command> {
    let word = arguments.iter().skip(1).find(|a| !a.as_encoded_bytes().starts_with(b"-"))?;
    Cli::command().find_subcommand(OsStr::new(word)).cloned()
}

/// The paragraphs of clap's message, joined by semicolons, and list items joined by commas.
fn one_line(text: &str) -> String {
    let text = text.strip_prefix("error: ").unwrap_or(text);
    let end = ["\n\nUsage:", "\n\nFor more information"].iter().filter_map(|mark| text.find(mark)).min();
    let paragraphs = text[..end.unwrap_or(text.len())].split("\n\n").map(|paragraph| {
        let mut lines = paragraph.lines().map(str::trim).filter(|line| !line.is_empty());
        let first = lines.next().unwrap_or_default();
        let rest: Vec<&str> = lines.collect();
        match rest.is_empty() {
            true => first.to_owned(),
            false if first.ends_with(':') => format!("{first} {}", rest.join(", ")),
            false => format!("{first} {}", rest.join(" ")),
        }
    });
    paragraphs.filter(|p| !p.is_empty()).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn refusal(words: &[&str]) -> String {
        let arguments: Vec<OsString> = std::iter::once(&"kiln").chain(words).map(Into::into).collect();
        error(&Cli::try_parse_from(&arguments).unwrap_err(), &arguments).to_string()
    }

    /// A server parses its arguments again, beside those of its configuration.
    #[test]
    fn a_negative_number_is_a_value_wherever_arguments_are_parsed() {
        for words in [["serve", "--presence-penalty", "-1"], ["bench", "--accept", "-0.5"], ["run", "-n", "-1"]] {
            let parsed = Cli::try_parse_from(["kiln"].iter().chain(&words)).map_err(|e| super::words(&e));
            assert!(!parsed.is_err_and(|said| said.contains("unexpected argument")), "{words:?}");
        }
    }

    #[test]
    fn a_usage_error_keeps_its_punctuation_and_names_the_commands_own_help() {
        for (words, said) in [
            (
                &["run", "--devise", "cpu"][..],
                "unexpected argument '--devise' found; tip: a similar argument exists: '--device'; see `kiln run --help`",
            ),
            (
                &["logits"],
                "the following required arguments were not provided: --tokens <IDS>; see `kiln logits --help`",
            ),
            (
                &["forge"],
                "the following required arguments were not provided: --shape <NAME|FILE>, --output <DIR>; \
                 see `kiln forge --help`",
            ),
            (
                &["--json", "run", "--tokens", "1", "--raw", "-p", "x"],
                "the argument '--tokens <IDS>' cannot be used with: --raw, --prompt <TEXT>; see `kiln run --help`",
            ),
            (
                &["run", "--temp", "1e308"],
                "invalid value '1e308' for '--temp <T>': it is too large; see `kiln run --help`",
            ),
            (
                &["run", "Why is the sky blue?"],
                "unexpected argument 'Why is the sky blue?' found; give the prompt with -p",
            ),
            (&["run", "no/such.gguf"], "unexpected argument 'no/such.gguf' found; give the model as `-m no/such.gguf`"),
            (&["bench", "x.gguf", "--ctx", "8"], "unexpected argument 'x.gguf' found; give the model as `-m x.gguf`"),
            (&["run", "src"], "unexpected argument 'src' found; give the model as `-m src`"),
            (&["top", "x.gguf"], "unexpected argument 'x.gguf' found; see `kiln top --help`"),
            (
                &["run", "-n", "abc"],
                "invalid value 'abc' for '-n <N>': it is not a whole number of 0 or more; see `kiln run --help`",
            ),
            (
                &["run", "-n", "99999999999999999999"],
                "invalid value '99999999999999999999' for '-n <N>': it is too large; see `kiln run --help`",
            ),
            (&["run", "-n", ""], "invalid value '' for '-n <N>': it is empty; see `kiln run --help`"),
            (
                &["run", "--temp", "warm"],
                "invalid value 'warm' for '--temp <T>': it is not a number; see `kiln run --help`",
            ),
            (
                &["bench", "--reps", "-1"],
                "invalid value '-1' for '--reps <N>': it is not a whole number of 0 or more; see `kiln bench --help`",
            ),
            (
                &["serve", "--port", "8080"],
                "unexpected argument '--port' found; give the port with its address: --listen 127.0.0.1:PORT",
            ),
            (
                &["serve", "--port=80"],
                "unexpected argument '--port' found; give the port with its address: --listen 127.0.0.1:PORT",
            ),
            (&["serve", "-c", "4096"], "unexpected argument '-c' found; give the context as --ctx N"),
            (&["serve", "-np", "4"], "unexpected argument '-n' found; give the replies made at once as --batch N"),
            (&["serve", "-ngl", "99"], "unexpected argument '-n' found; leave it out: all layers run on the --device"),
            (&["serve", "-t", "8"], "unexpected argument '-t' found; give the processor's threads as --threads N"),
            (
                &["run", "-ngl", "99"],
                "invalid value 'gl' for '-n <N>': it is not a whole number of 0 or more; leave it out: all layers run on the --device",
            ),
            (&["run", "--n-predict", "9"], "unexpected argument '--n-predict' found; give the most tokens as -n N"),
            (
                &["serve", "--n-predict", "9"],
                "unexpected argument '--n-predict' found; give the most tokens as --max-tokens N",
            ),
            (&["rnu"], "unrecognized subcommand 'rnu'; `kiln run` may be meant; see `kiln --help`"),
            (&["frobnicate"], "unrecognized subcommand 'frobnicate'; see `kiln --help`"),
        ] {
            assert_eq!(refusal(words), said);
        }
        let weights = refusal(&["plan", "--weights", "int9"]);
        assert!(
            weights.starts_with("invalid value 'int9' for '--weights <WEIGHTS>' [possible values: int8"),
            "{weights}"
        );
    }

    /// The help of `kiln serve` used to list 58 options without headings.
    #[test]
    fn the_options_of_a_long_help_stand_in_sections() {
        /// The number of options that are readable without headings.
        const FEW: usize = 12;
        for command in Cli::command().get_subcommands() {
            let options: Vec<_> = command.get_opts().filter(|option| !option.is_hide_set()).collect();
            if options.len() <= FEW {
                continue;
            }
            let heading = |option: &&clap::Arg| option.get_help_heading().unwrap_or_default().to_owned();
            let mut sections: Vec<String> = options.iter().map(heading).collect();
            sections.sort();
            let sizes = sections.chunk_by(|a, b| a == b).map(|section| (section[0].clone(), section.len()));
            for (section, size) in sizes {
                assert!(size <= FEW, "{}: {size} options below {section:?}", command.get_name());
                assert!(!section.is_empty() || size <= 3, "{}: {size} options without a section", command.get_name());
            }
        }
    }

    /// Explanations below an example used to continue in the first column.
    #[test]
    fn what_follows_a_help_hangs_on_any_terminal() {
        let mut command = Cli::command();
        command.build();
        for command in std::iter::once(&command).chain(command.get_subcommands()) {
            let Some(text) = command.get_after_help().map(ToString::to_string) else { continue };
            let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
            for columns in [40, 60, 80, 100] {
                let laid = lay_out(&text, columns);
                let wide = laid.lines().find(|line| line.chars().count() > columns);
                // After a word wider than the line the terminal wraps, and other words follow it there.
                let has_wide_word = |line: &str| words(line).iter().any(|word| word.chars().count() > columns);
                assert!(wide.is_none_or(has_wide_word), "{columns}: {wide:?}");
                assert_eq!(words(&laid), words(&text));
                // As many lines begin in the first column as before.
                let starts = |text: &str| text.lines().filter(|line| line.starts_with("  ")).count();
                assert!(starts(&laid) >= starts(&text), "{columns}:\n{laid}");
            }
        }
        assert_eq!(lay_out("Codes:\n  0  done", 40), "Codes:\n  0  done");
        let example = "  kiln run -m DIR   a chat with the model that lies in DIR";
        assert_eq!(
            lay_out(example, 50),
            "  kiln run -m DIR   a chat with the model that\n                    lies in DIR"
        );
        assert_eq!(lay_out(example, 30), "  kiln run -m DIR\n    a chat with the model that\n    lies in DIR");
    }

    #[test]
    fn json_is_wanted_where_the_flag_stands_before_the_words() {
        let wanted = |words: &[&str]| wants_json(&words.iter().map(Into::into).collect::<Vec<_>>());
        assert!(wanted(&["kiln", "run", "--json", "--bogus"]));
        assert!(!wanted(&["kiln", "tokenize", "--", "--json"]) && !wanted(&["kiln", "run"]));
    }
}
