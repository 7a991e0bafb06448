//! argv → command → exit code.

use clap::Parser;
use clap::error::ErrorKind;
use kiln::Error;
use kiln::cli::{self, Cli};
use std::process::ExitCode;

fn main() -> ExitCode {
    cli::panics::guard(run)
}

fn run() -> ExitCode {
    env_logger::Builder::from_env(env_logger::Env::default().default_filter_or("warn"))
        .format_timestamp(None)
        .format_target(false)
        .init();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(e) if matches!(e.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => return exit(cli::help(&e)),
        Err(e) if e.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => e.exit(),
        Err(e) => {
            return fail(&usage_error(&e));
        }
    };
    exit(cli::main(cli))
}

fn exit(done: kiln::Result<()>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => fail(&e),
    }
}

fn fail(e: &Error) -> ExitCode {
    cli::note(&format!("kiln: {}", cli::face::line(e)));
    ExitCode::from(e.exit_code())
}

/// A usage error on one line: clap's message without its layout, and where help is to be had.
fn usage_error(e: &clap::Error) -> Error {
    let text = e.to_string();
    let message = text.split("\n\nUsage:").next().unwrap_or(&text);
    let message = message.split("\n\nFor more information").next().unwrap_or(message);
    let words: Vec<&str> = message.split_whitespace().collect();
    let message = words.join(" ");
    Error::input(message.strip_prefix("error: ").unwrap_or(&message), "see `kiln --help`")
}
