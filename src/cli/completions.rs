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
/// Input: the directory is something else. Failed: it cannot be written.
pub fn write_manual(args: &ManArgs) -> Result<()> {
    // Help has no page of its own.
    let mut all = Cli::command().disable_help_subcommand(true);
    let Some(directory) = &args.directory else {
        return print(&render(&Man::new(all)).map_err(super::unwritten)?);
    };
    if directory.exists() && !directory.is_dir() {
        let cause = format!("{} is no directory, and the manual has a page for each command", directory.display());
        return Err(Error::input(cause, "give a directory for the pages, or nothing for the main page alone"));
    }
    std::fs::create_dir_all(directory).map_err(|e| Error::unwritable(directory, &e))?;
    all.build();
    write_page(directory, all.clone())?;
    all.get_subcommands().try_for_each(|command| write_page(directory, command.clone()))
}

/// Writes a command's page.
fn write_page(directory: &Path, command: clap::Command) -> Result<()> {
    let man = Man::new(command);
    let path = directory.join(man.get_filename());
    let written = render(&man).and_then(|page| PartialFile::write_whole(&path, 0o666, page.as_bytes()));
    written.map_err(|e| Error::unwritable(&path, &e))
}

/// A page's text. Indented lines of what follows the help, such as examples, stay lines: `.nf` and `.fi` stand around
/// them.
fn render(man: &Man) -> std::io::Result<String> {
    let mut page = Vec::new();
    man.render(&mut page)?;
    let (mut text, mut in_extra, mut is_kept) = (String::new(), false, false);
    for line in String::from_utf8_lossy(&page).lines() {
        in_extra = if line.starts_with(".SH") { line == ".SH EXTRA" } else { in_extra };
        let keep = in_extra && line.starts_with(' ');
        if keep != is_kept {
            text += if keep { ".nf\n" } else { ".fi\n" };
            is_kept = keep;
        }
        text += line;
        text.push('\n');
    }
    Ok(text)
}
