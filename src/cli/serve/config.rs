//! The configuration file of `kiln serve`: its options by their long names, in TOML. clap defines the options and their
//! values: the file's options become arguments, before those of the command line.

use crate::cli::{Cli, Command, read_regular_text, usage};
use crate::display::{nearest, quote};
use crate::error::text;
use crate::{Error, Result};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, CommandFactory, Parser};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use toml::de::{DeTable, DeValue};

/// The configuration file that is read if it exists.
const DEFAULT: &str = "/etc/kiln.toml";
/// The largest configuration file, in bytes.
const MOST_BYTES: u64 = 1 << 20;
/// Options that make no sense in a file.
const NOT_IN_A_FILE: [&str; 4] = ["help", "version", "config", "check"];

/// The options in the configuration files.
#[derive(Debug, Clone, Default)]
pub struct Configured {
    /// The configuration files, in the order in which they are read.
    pub files: Vec<PathBuf>,
    /// The effective options by name, with their values.
    options: Vec<(String, Vec<String>)>,
}

impl Configured {
    /// The names of the options whose values differ from `other`.
    pub fn differing<'a>(&'a self, other: &'a Configured) -> Vec<&'a str> {
        let value =
            |of: &'a Configured, name: &str| of.options.iter().find(|(n, _)| n == name).map(|(_, values)| values);
        let names = self.options.iter().chain(&other.options).map(|(name, _)| name.as_str());
        let mut names: Vec<&str> = names.filter(|name| value(self, name) != value(other, name)).collect();
        names.sort_unstable();
        names.dedup();
        names
    }
}

/// The command line, for a server with the options of its configuration file. Precedence: command line, `$KILN_MODEL`,
/// file.
///
/// # Errors
/// Input: a file cannot be read, or an option is unknown or wrong.
pub fn apply(cli: Cli, arguments: &[OsString]) -> Result<Cli> {
    let Command::Serve(args) = &cli.command else { return Ok(cli) };
    let Some(files) = files(args.config.as_deref())? else { return Ok(with(cli, arguments, Configured::default())) };
    let mut entries: Vec<FileOption> = Vec::new();
    for file in &files {
        for entry in read(file)? {
            entries.retain(|earlier| earlier.name != entry.name);
            entries.push(entry);
        }
    }
    // Parsed again to get the source of each value.
    let matches = Cli::command().try_get_matches_from(arguments).map_err(|e| usage::error(&e, arguments))?;
    let own = matches.subcommand().map(|(_, own)| own);
    let is_own = |entry: &FileOption| {
        let is_set = own.is_some_and(|own| own.value_source(&entry.id) == Some(ValueSource::CommandLine));
        is_set || entry.name == "model" && std::env::var_os("KILN_MODEL").is_some_and(|model| !model.is_empty())
    };
    entries.retain(|entry| !is_own(entry));
    let command = arguments.iter().skip(1).position(|a| !a.as_encoded_bytes().starts_with(b"-")).map_or(1, |at| at + 2);
    let mut merged = arguments.to_vec();
    let found = entries.iter().flat_map(|entry| entry.arguments());
    merged.splice(command..command, found.map(OsString::from));
    let cli = Cli::try_parse_from(&merged).map_err(|e| {
        let names: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
        let cause = format!("with the options of {}: {}", names.join(" and "), usage::words(&e));
        Error::input(cause, "leave out one of them")
    })?;
    let options = entries.into_iter().map(|entry| (entry.name, entry.values)).collect();
    Ok(with(cli, arguments, Configured { files, options }))
}

fn with(mut cli: Cli, arguments: &[OsString], configured: Configured) -> Cli {
    if let Command::Serve(args) = &mut cli.command {
        args.arguments = arguments.to_vec();
        args.configured = configured;
    }
    cli
}

/// The configuration file given by the option or `$KILN_CONFIG`, else the default if it exists, followed by those of
/// the folder beside it, sorted by name.
fn files(asked: Option<&Path>) -> Result<Option<Vec<PathBuf>>> {
    let variable = std::env::var_os("KILN_CONFIG").map(PathBuf::from);
    let file = match asked.map(Path::to_owned).or(variable) {
        Some(none) if none.as_os_str().is_empty() => return Ok(None),
        Some(file) => file,
        None if Path::new(DEFAULT).exists() => DEFAULT.into(),
        None => return Ok(None),
    };
    let mut folder = file.clone().into_os_string();
    folder.push(".d");
    let folder = PathBuf::from(folder);
    let mut files = Vec::new();
    if folder.is_dir() {
        let unreadable = |e| Error::unreadable(&folder, &e);
        for entry in std::fs::read_dir(&folder).map_err(unreadable)? {
            let path = entry.map_err(unreadable)?.path();
            let is_hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
            if path.extension().is_some_and(|extension| extension == "toml") && !is_hidden {
                files.push(path);
            }
        }
    }
    files.sort();
    files.insert(0, file);
    Ok(Some(files))
}

/// An option that a configuration file sets.
#[derive(Debug)]
struct FileOption {
    /// The long name, and clap's id.
    name: String,
    id: String,
    /// The option's values as text; empty for a flag.
    values: Vec<String>,
    is_flag: bool,
}

impl FileOption {
    fn arguments(&self) -> Vec<String> {
        let FileOption { name, values, .. } = self;
        match self.is_flag {
            // A flag that is false is the same as none.
            true => values.iter().filter(|value| *value == "true").map(|_| format!("--{name}")).collect(),
            false => values.iter().map(|value| format!("--{name}={value}")).collect(),
        }
    }
}

/// The options that a configuration file sets.
fn read(path: &Path) -> Result<Vec<FileOption>> {
    let text = read_regular_text(path, MOST_BYTES, "configuration", "give a file of options in TOML")?;
    parse(&text, &path.display().to_string())
}

fn parse(text: &str, file: &str) -> Result<Vec<FileOption>> {
    let at = |start: usize| {
        let line = 1 + text.bytes().take(start).filter(|byte| *byte == b'\n').count();
        format!("{file}:{line}")
    };
    let table = DeTable::parse(text).map_err(|e| {
        let place = e.span().map_or_else(|| file.to_owned(), |span| at(span.start));
        Error::input(format!("{place}: {}", quote(&e.message().replace('\n', " "))), "write NAME = VALUE on each line")
    })?;
    let known = known();
    let mut entries = Vec::new();
    for (key, value) in table.get_ref() {
        let (name, place) = (key.get_ref().as_ref(), at(key.span().start));
        let Some(arg) = known.iter().find(|arg| arg.get_long() == Some(name)) else {
            return Err(unknown(name, &place, &known));
        };
        let (kind, values) = (ValueKind::of(arg), value.get_ref());
        let wrong = || {
            let what =
                format!("{place}: {name} is {}, and has to be {}", described(values), kind.described(is_list(arg)));
            Error::input(what, "`kiln serve --help` describes it")
        };
        let values = match values {
            DeValue::Array(all) if is_list(arg) => {
                let all = all.iter().map(|value| kind.text(value.get_ref()));
                all.collect::<Option<Vec<String>>>().ok_or_else(wrong)?
            }
            value => vec![kind.text(value).ok_or_else(wrong)?],
        };
        let (name, id) = (name.to_owned(), arg.get_id().to_string());
        let entry = FileOption { name, id, values, is_flag: kind == ValueKind::Flag };
        let words = ["kiln", "serve"].map(str::to_owned).into_iter().chain(entry.arguments());
        let parsed = Cli::try_parse_from(words);
        let parsed =
            parsed.map_err(|e| Error::input(format!("{place}: {}", usage::words(&e)), "see `kiln serve --help`"))?;
        if let Command::Serve(args) = parsed.command {
            args.defaults.read().map_err(|e| {
                let (cause, remedy) = e.parts();
                Error::input(text!(format!("{place}: "), cause.clone()), remedy.clone())
            })?;
        }
        entries.push((key.span().start, entry));
    }
    // In the order of the file, because places are listened on in that order.
    entries.sort_by_key(|(start, _)| *start);
    Ok(entries.into_iter().map(|(_, entry)| entry).collect())
}

/// The options that are allowed in a file.
fn known() -> Vec<Arg> {
    let mut all = Cli::command();
    all.build();
    let serve = all.find_subcommand("serve").into_iter().flat_map(clap::Command::get_arguments);
    serve.filter(|arg| arg.get_long().is_some_and(|long| !NOT_IN_A_FILE.contains(&long))).cloned().collect()
}

fn unknown(name: &str, place: &str, known: &[Arg]) -> Error {
    if NOT_IN_A_FILE.contains(&name) {
        return Error::input(format!("{place}: {name} is no option of a file"), "give it on the command line");
    }
    let shown = quote(name).replace(char::is_control, " ");
    let remedy = match nearest(name, known.iter().filter_map(Arg::get_long)) {
        Some(nearest) => format!("`{nearest}` comes nearest; `kiln serve --help` lists them all"),
        None => "`kiln serve --help` lists them all".to_owned(),
    };
    Error::input(format!("{place}: there is no option `{shown}`"), remedy)
}

/// The kind of an option's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ValueKind {
    Flag,
    Number,
    Text,
}

fn is_list(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::Append)
}

impl ValueKind {
    fn of(arg: &Arg) -> ValueKind {
        match arg.get_action() {
            ArgAction::SetTrue => ValueKind::Flag,
            _ if usage::is_number(arg) => ValueKind::Number,
            _ => ValueKind::Text,
        }
    }

    fn described(self, is_list: bool) -> &'static str {
        match (self, is_list) {
            (ValueKind::Flag, _) => "true or false",
            (ValueKind::Number, _) => "a number in decimal digits",
            (ValueKind::Text, false) => "a text",
            (ValueKind::Text, true) => "a text or a list of texts",
        }
    }

    /// The value as an argument. `None`: it is of another kind.
    fn text(self, value: &DeValue<'_>) -> Option<String> {
        match (self, value) {
            (ValueKind::Flag, DeValue::Boolean(is_set)) => Some(is_set.to_string()),
            (ValueKind::Number, DeValue::Integer(number)) if number.radix() == 10 => Some(number.as_str().to_owned()),
            (ValueKind::Number, DeValue::Float(number)) => Some(number.as_str().to_owned()),
            (ValueKind::Text, DeValue::String(text)) => Some(text.to_string()),
            _ => None,
        }
    }
}

fn described(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(number) if number.radix() != 10 => "a number of another base",
        DeValue::Integer(_) | DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a time",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a section",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(text: &str) -> Vec<String> {
        parse(text, "kiln.toml").unwrap().iter().flat_map(FileOption::arguments).collect()
    }

    #[test]
    fn options_are_arguments_by_their_long_names() {
        let text = "model = '/srv/model'\n# a note\nbatch = 8\ntemp = 0.5\nstrict-model = true\nallow-all = false\n\
                    listen = [\"127.0.0.1:1\", \"[::1]:2\"]\nalias = \"one\"\nunix-mode = 600\njson = true\n";
        let expected = [
            "--model=/srv/model",
            "--batch=8",
            "--temp=0.5",
            "--strict-model",
            "--listen=127.0.0.1:1",
            "--listen=[::1]:2",
            "--alias=one",
            "--unix-mode=600",
            "--json",
        ];
        assert_eq!(arguments(text), expected);
        assert_eq!(arguments(""), Vec::<String>::new());
    }

    #[test]
    fn what_is_wrong_is_said_by_name_file_and_line() {
        for (text, said) in [
            ("\nbatch = \"8\"", "kiln.toml:2: batch is a text, and has to be a number"),
            ("batch = 0", "kiln.toml:1: invalid value '0' for '--batch <N>'"),
            ("\ntemp = -3.0", "kiln.toml:2: the temperature"),
            ("batch = 1\ntop-p = 1.5", "kiln.toml:2: top-p"),
            ("min-p = -0.5", "kiln.toml:1: min-p"),
            ("repeat-penalty = 0", "kiln.toml:1: the repetition penalty"),
            ("presence-penalty = nan", "kiln.toml:1: the presence penalty is NaN"),
            ("temp = true", "kiln.toml:1: temp is true or false, and has to be a number"),
            ("model = 5", "kiln.toml:1: model is a number, and has to be a text"),
            ("alias = ['a', 5]", "kiln.toml:1: alias is a list, and has to be a text or a list of texts"),
            ("model = ['a']", "kiln.toml:1: model is a list, and has to be a text"),
            ("unix-mode = 0o660", "kiln.toml:1: unix-mode is a number of another base"),
            ("strict-model = 1", "kiln.toml:1: strict-model is a number, and has to be true or false"),
            ("\n\nmax_gap = 1", "kiln.toml:3: there is no option `max_gap`; `max-gap` comes nearest"),
            ("[serve]\nbatch = 1", "kiln.toml:1: there is no option `serve`"),
            ("[model]\nx = 1", "kiln.toml:1: model is a section, and has to be a text"),
            ("xyzzy = 1", "there is no option `xyzzy`; `kiln serve --help` lists them all"),
            ("check = true", "check is no option of a file; give it on the command line"),
            ("batch = 1\nbatch = 2", "kiln.toml:2: "),
            ("batch", "kiln.toml:1: "),
            ("listen = 'nonsense'", "kiln.toml:1: invalid value 'nonsense' for '--listen <ADDRESS:PORT>'"),
        ] {
            let e = parse(text, "kiln.toml").unwrap_err();
            assert!(e.exit_code() == 2 && e.to_string().contains(said), "{text}: {e}");
            assert!(!e.to_string().contains('\n'), "{e}");
        }
    }

    #[test]
    fn each_option_of_the_command_line_is_one_of_the_file() {
        let known = known();
        let mut all = Cli::command();
        all.build();
        for arg in all.find_subcommand("serve").unwrap().get_arguments() {
            let long = arg.get_long().unwrap();
            let is_known = known.iter().any(|other| other.get_long() == Some(long));
            assert_ne!(is_known, NOT_IN_A_FILE.contains(&long), "{long}");
        }
        // The kinds follow from the types of their parsers.
        let kind = |long: &str| ValueKind::of(known.iter().find(|arg| arg.get_long() == Some(long)).unwrap());
        for number in
            ["batch", "ctx", "kv-tokens", "queue", "drain", "temp", "top-k", "speculate", "threads", "max-tokens"]
        {
            assert_eq!(kind(number), ValueKind::Number, "{number}");
        }
        assert_eq!([kind("listen"), kind("model"), kind("json")], [ValueKind::Text, ValueKind::Text, ValueKind::Flag]);
    }

    #[test]
    fn files_that_differ_name_the_options_in_which_they_do() {
        let of = |text: &str| Configured {
            files: Vec::new(),
            options: parse(text, "f").unwrap().into_iter().map(|entry| (entry.name, entry.values)).collect(),
        };
        let (before, after) = (of("batch = 1\nctx = 9\ntemp = 1"), of("temp = 0.5\nctx = 9\nalias = 'a'"));
        assert_eq!(before.differing(&after), ["alias", "batch", "temp"]);
        assert!(before.differing(&before).is_empty());
    }
}
