//! argv → command → exit code.

use clap::Parser;
use clap::error::ErrorKind;
use kiln::Error;
use kiln::cli::{self, Cli, usage};
use std::ffi::OsString;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    cli::panics::guard(usage::wants_json(&arguments), || run(&arguments))
}

fn run(arguments: &[OsString]) -> ExitCode {
    env_logger::Builder::from_env(env_logger::Env::default().default_filter_or("warn"))
        .format_timestamp(None)
        .format_target(false)
        .init();
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(e) if matches!(e.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {
            return exit(cli::help(&e), false);
        }
        Err(e) if e.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => e.exit(),
        Err(e) => return fail(&usage::error(&e, arguments), usage::wants_json(arguments)),
    };
    let json = cli.json;
    exit(cli::main(cli), json)
}

fn exit(done: kiln::Result<()>, json: bool) -> ExitCode {
    let code = match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => fail(&e, json),
    };
    cli::end_by_signal();
    code
}

fn fail(e: &Error, json: bool) -> ExitCode {
    cli::report(e, json);
    ExitCode::from(e.exit_code())
}
