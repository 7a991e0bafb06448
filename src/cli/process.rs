//! The process: arguments, the command, the exit code.

use super::{
    Cli, configured, end_beside_compiler, end_by_signal, help, log_line, log_object, panics, report, stderr, usage,
};
use crate::{Error, Result};
use clap::FromArgMatches;
use clap::error::ErrorKind;
use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

/// Runs the command that the process's arguments name. Returns its exit code.
pub fn command_line() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let json = usage::wants_json(&arguments);
    panics::guard(json, || run(&arguments, json))
}

/// `json`: also report errors from before the arguments are parsed as objects.
fn run(arguments: &[OsString], json: bool) -> ExitCode {
    let parsed = usage::command().try_get_matches_from(arguments).and_then(|matches| Cli::from_arg_matches(&matches));
    let cli = match parsed {
        Ok(cli) => cli,
        Err(e) if matches!(e.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {
            return exit(help(&e), false);
        }
        Err(e) if e.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => e.exit(),
        Err(e) => return ExitCode::from(fail(&usage::error(&e, arguments), json)),
    };
    let cli = match configured(cli, arguments) {
        Ok(cli) => cli,
        Err(e) => return ExitCode::from(fail(&e, json)),
    };
    let json = cli.json;
    log(cli.command.is_server(), json);
    exit(super::main(cli), json)
}

/// Sends log records to standard error. A server's records are dropped if standard error has no reader. With `json`,
/// each is an object with its time.
fn log(is_server: bool, json: bool) {
    let mut builder = env_logger::Builder::from_env(env_logger::Env::default().default_filter_or("warn"));
    if let Some(unread) = is_server.then(|| stderr::drop_unread(json)).flatten() {
        builder.target(env_logger::Target::Pipe(unread));
    }
    let objects = is_server && json;
    builder.format(move |out, record| {
        let (level, line) = (record.level(), log_line(record.args()));
        if objects {
            return writeln!(out, "{}", log_object(level.as_str(), &line));
        }
        let style = out.default_level_style(level);
        writeln!(out, "[{style}{level:<5}{style:#}] {line}")
    });
    builder.init();
}

fn exit(done: Result<()>, json: bool) -> ExitCode {
    let code = done.map_or_else(|e| fail(&e, json), |()| 0);
    end_by_signal();
    end_beside_compiler(code);
    ExitCode::from(code)
}

/// Reports an error. Returns the exit code.
fn fail(e: &Error, json: bool) -> u8 {
    report(e, json);
    e.exit_code()
}
