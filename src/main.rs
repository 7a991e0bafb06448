//! The executable: arguments, the command, the exit code.

use clap::FromArgMatches;
use clap::error::ErrorKind;
use kiln::Error;
use kiln::cli::{self, Cli, usage};
use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let json = usage::wants_json(&arguments);
    cli::panics::guard(json, || run(&arguments, json))
}

/// `json`: also report errors from before the arguments are parsed as objects.
fn run(arguments: &[OsString], json: bool) -> ExitCode {
    let parsed = usage::command().try_get_matches_from(arguments).and_then(|matches| Cli::from_arg_matches(&matches));
    let cli = match parsed {
        Ok(cli) => cli,
        Err(e) if matches!(e.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {
            return exit(cli::help(&e), false);
        }
        Err(e) if e.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => e.exit(),
        Err(e) => return ExitCode::from(fail(&usage::error(&e, arguments), json)),
    };
    let cli = match cli::configured(cli, arguments) {
        Ok(cli) => cli,
        Err(e) => return ExitCode::from(fail(&e, json)),
    };
    let json = cli.json;
    log(cli.command.is_server(), json);
    exit(cli::main(cli), json)
}

/// Sends log records to standard error. A server's records are dropped if standard error has no reader. With `json`,
/// each is an object with its time.
fn log(is_server: bool, json: bool) {
    let mut builder = env_logger::Builder::from_env(env_logger::Env::default().default_filter_or("warn"));
    if let Some(unread) = is_server.then(|| cli::stderr::drop_unread(json)).flatten() {
        builder.target(env_logger::Target::Pipe(unread));
    }
    let objects = is_server && json;
    builder.format(move |out, record| {
        let (level, line) = (record.level(), cli::log_line(record.args()));
        if objects {
            return writeln!(out, "{}", cli::log_object(level.as_str(), &line));
        }
        let style = out.default_level_style(level);
        writeln!(out, "[{style}{level:<5}{style:#}] {line}")
    });
    builder.init();
}

fn exit(done: kiln::Result<()>, json: bool) -> ExitCode {
    let code = done.map_or_else(|e| fail(&e, json), |()| 0);
    cli::end_by_signal();
    cli::end_beside_compiler(code);
    ExitCode::from(code)
}

/// Reports an error. Returns the exit code.
fn fail(e: &Error, json: bool) -> u8 {
    cli::report(e, json);
    e.exit_code()
}
