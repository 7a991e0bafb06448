//! `kiln completions` and `kiln man`: what shells and `man` take from packages.

use super::{Cli, print};
use crate::{Error, Result};
use clap::CommandFactory;
use clap_complete::{Shell, generate};
use clap_mangen::{Man, generate_to};
use std::path::PathBuf;

/// Prints a script that completes kiln's arguments in a shell.
#[derive(Debug, Clone, clap::Args)]
pub struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

/// Writes the manual's pages.
#[derive(Debug, Clone, clap::Args)]
pub struct ManArgs {
    /// Directory for a page of each command [default: the main page, on standard output]
    #[arg(value_name = "DIR")]
    directory: Option<PathBuf>,
}

/// Prints a shell's completions.
///
/// # Errors
/// As [`print`].
pub fn complete(args: &CompletionsArgs) -> Result<()> {
    let mut script = Vec::new();
    generate(args.shell, &mut Cli::command(), "kiln", &mut script);
    print(&String::from_utf8_lossy(&script))
}

/// Writes the manual.
///
/// # Errors
/// Failed: it cannot be written.
pub fn write_manual(args: &ManArgs) -> Result<()> {
    let Some(directory) = &args.directory else {
        let mut page = Vec::new();
        // As generate_to makes it: help has no page of its own.
        Man::new(Cli::command().disable_help_subcommand(true)).render(&mut page).map_err(super::unwritten)?;
        return print(&String::from_utf8_lossy(&page));
    };
    let written = std::fs::create_dir_all(directory).and_then(|()| generate_to(Cli::command(), directory));
    written.map_err(|e| Error::unwritable(directory, &e))
}
