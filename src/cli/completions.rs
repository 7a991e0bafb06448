//! `kiln completions` and `kiln man`: what shells and `man` take from packages.

use super::{Cli, print};
use crate::machine::partial::PartialFile;
use crate::{Error, Result};
use clap::CommandFactory;
use clap_complete::{Shell, generate};
use clap_mangen::Man;
use std::path::{Path, PathBuf};

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
    // Help has no page of its own.
    let mut all = Cli::command().disable_help_subcommand(true);
    let Some(directory) = &args.directory else {
        let mut page = Vec::new();
        Man::new(all).render(&mut page).map_err(super::unwritten)?;
        return print(&String::from_utf8_lossy(&page));
    };
    std::fs::create_dir_all(directory).map_err(|e| Error::unwritable(directory, &e))?;
    all.build();
    write_page(directory, all.clone())?;
    all.get_subcommands().try_for_each(|command| write_page(directory, command.clone()))
}

/// Writes a command's page.
fn write_page(directory: &Path, command: clap::Command) -> Result<()> {
    let man = Man::new(command);
    let path = directory.join(man.get_filename());
    let mut page = Vec::new();
    let written = man.render(&mut page).and_then(|()| PartialFile::write_whole(&path, 0o666, &page));
    written.map_err(|e| Error::unwritable(&path, &e))
}
