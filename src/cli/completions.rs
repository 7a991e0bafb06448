//! `kiln completions` and `kiln man`: files for packages.

use super::usage::{self, MANUAL};
use super::{Cli, print};
use crate::machine::partial::PartialFile;
use crate::{Error, Result};
use clap::CommandFactory;
use clap_complete::{Shell, generate};
use clap_mangen::Man;
use std::fs::File;
use std::io::{ErrorKind, Read};
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
/// Input: the path is not a directory. Failed: a page cannot be written.
pub fn write_manual(args: &ManArgs) -> Result<()> {
    // The subcommand `help` gets no page.
    let mut all = usage::laid_out(Cli::command(), MANUAL).disable_help_subcommand(true);
    let Some(directory) = &args.directory else {
        return print(&render(&manual(all)).map_err(super::unwritten)?);
    };
    if directory.exists() && !directory.is_dir() {
        let cause = format!("{} is no directory, and the manual has a page for each command", directory.display());
        return Err(Error::input(cause, "give a directory for the pages, or nothing for the main page alone"));
    }
    all.build();
    let commands = || std::iter::once(&all).chain(all.get_subcommands());
    commands().try_for_each(|command| check_page(&page_of(directory, &manual(command.clone()))))?;
    std::fs::create_dir_all(directory).map_err(|e| Error::unwritable(directory, &e))?;
    commands().try_for_each(|command| write_page(directory, command.clone()))
}

/// The page of a command, with the program as its source.
fn manual(command: clap::Command) -> Man {
    Man::new(command).source(concat!("kiln ", env!("CARGO_PKG_VERSION")))
}

/// The path of the manual page `man` in `directory`.
fn page_of(directory: &Path, man: &Man) -> PathBuf {
    directory.join(man.get_filename())
}

/// Refuses to replace a file that is not a page of Kiln's manual. A link may be replaced; its target stays.
fn check_page(path: &Path) -> Result<()> {
    if path.is_symlink() {
        return Ok(());
    }
    let mut text = Vec::new();
    let read = File::open(path).and_then(|file| file.take(512).read_to_end(&mut text));
    let is_page = String::from_utf8_lossy(&text).lines().any(|line| line.starts_with(".TH kiln"));
    match read {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
        Ok(_) if is_page || text.is_empty() => Ok(()),
        _ => {
            let cause = format!("{} exists, and is no page of this manual", path.display());
            Err(Error::input(cause, "give another directory, or remove the file"))
        }
    }
}

/// Writes a command's page.
fn write_page(directory: &Path, command: clap::Command) -> Result<()> {
    let man = manual(command);
    let path = page_of(directory, &man);
    let written = render(&man).and_then(|page| PartialFile::write_whole(&path, 0o666, page.as_bytes()));
    written.map_err(|e| Error::unwritable(&path, &e))
}

/// A page's text. Indented lines after the help, such as examples, are enclosed in `.nf` and `.fi`, so that they stay
/// separate lines.
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
