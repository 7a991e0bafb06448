//! The output of `kiln batch`: a line for each input line, in the same order. It can continue an earlier run's output.

use super::identity::LineHasher;
use super::input::InputLines;
use crate::cli::terminal::json_for_terminal;
use crate::machine::partial::PartialFile;
use crate::{Error, Result};
use nix::fcntl::{Flock, FlockArg};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, BufWriter, Seek, SeekFrom, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// A line of the output file that an earlier run wrote.
#[derive(Deserialize)]
struct WrittenLine {
    index: usize,
    request: String,
    error: Option<Value>,
}

/// The output. A line waits until all lines before it are written.
#[derive(Default)]
pub(super) struct OrderedOutput {
    /// The output file and its path. `None`: the lines go to standard output.
    sink: Option<(File, PathBuf)>,
    next: usize,
    waiting: BTreeMap<usize, Value>,
    /// New lines that replace lines of an earlier run.
    again: BTreeMap<usize, Value>,
    failed: usize,
    /// Locks the file against other processes.
    lock: Option<Flock<File>>,
}

impl OrderedOutput {
    /// Opens the file at `path`. Lines of an earlier run stay, except an incomplete last line. Input lines with an
    /// answer are skipped; with `retry` those with an error are queued again.
    ///
    /// # Errors
    /// Input: the file belongs to another input, model or options, another Kiln writes it, or it cannot be written.
    pub(super) fn open(
        path: &Path,
        input: &mut InputLines,
        identity: &LineHasher,
        retry: bool,
    ) -> Result<OrderedOutput> {
        let fault = |e: std::io::Error| Error::unwritable(path, &e);
        let mut output = OrderedOutput::default();
        if path.metadata().is_ok_and(|there| !there.is_file()) {
            let file = OpenOptions::new().write(true).open(path).map_err(fault)?;
            output.sink = Some((file, path.to_owned()));
            return Ok(output);
        }
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).map_err(fault)?;
        let mut writer = file.try_clone().map_err(fault)?;
        let lock = Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|_| {
            let cause = format!("another process writes {}", path.display());
            Error::input(cause, "wait for it, or choose another file with -o")
        })?;
        let end = output.resume(path, &lock, input, identity, retry)?;
        writer.set_len(end).and_then(|()| writer.seek(SeekFrom::Start(end))).map_err(fault)?;
        output.lock = Some(lock);
        output.sink = Some((writer, path.to_owned()));
        Ok(output)
    }

    /// Checks the existing lines. Returns the position after the last complete one.
    fn resume(
        &mut self,
        path: &Path,
        file: &File,
        input: &mut InputLines,
        identity: &LineHasher,
        retry: bool,
    ) -> Result<u64> {
        let foreign = |line: usize| {
            let cause = format!("{} is of another input, model or options, from line {}", path.display(), line + 1);
            Error::input(cause, "choose another file with -o, or remove this one")
        };
        let (mut reader, mut end, mut line) = (BufReader::new(file), 0, Vec::new());
        loop {
            line.clear();
            let read = reader.read_until(b'\n', &mut line).map_err(|e| Error::unreadable(path, &e))?;
            if line.last() != Some(&b'\n') {
                // An incomplete last line must at least begin like a line of ours.
                let begin = format!(r#"{{"index":{},"request":""#, self.next);
                let known = line.len().min(begin.len());
                return if line[..known] == begin.as_bytes()[..known] { Ok(end) } else { Err(foreign(self.next)) };
            }
            let written: WrittenLine = serde_json::from_slice(&line).map_err(|_| foreign(self.next))?;
            let asked = input.pass()?.filter(|(_, line)| identity.of(line.bytes()) == written.request);
            let (index, asked) = asked.filter(|_| written.index == self.next).ok_or_else(|| foreign(self.next))?;
            if written.error.is_some() {
                self.failed += 1;
                if retry {
                    input.ask_again(index, asked);
                }
            }
            self.next += 1;
            end += read as u64;
        }
    }

    /// True if the output is a file that a later run can continue.
    pub(super) fn is_kept(&self) -> bool {
        self.lock.is_some()
    }

    /// The number of lines that the output has.
    pub(super) fn written(&self) -> usize {
        self.next
    }

    /// The number of lines that the output has with an error.
    pub(super) fn failed(&self) -> usize {
        self.failed
    }

    /// Takes the line for input line `index`, and writes all lines up to the first missing one.
    ///
    /// # Errors
    /// Failed: the output cannot be written.
    pub(super) fn put(&mut self, index: usize, line: Value) -> Result<()> {
        if index < self.next {
            self.failed -= usize::from(!has_failed(&line));
            self.again.insert(index, line);
            return Ok(());
        }
        self.waiting.insert(index, line);
        while let Some(line) = self.waiting.remove(&self.next) {
            self.failed += usize::from(has_failed(&line));
            let text = format!("{}\n", json_for_terminal(&line.to_string()));
            match &mut self.sink {
                None => crate::cli::print(&text)?,
                Some((file, path)) => {
                    file.write_all(text.as_bytes()).map_err(|e| Error::unwritable(path, &e))?;
                }
            }
            self.next += 1;
        }
        Ok(())
    }

    /// Puts the lines answered again in their places. The file is replaced as a whole, so that each line is there at
    /// any time, in its old or its new form.
    ///
    /// # Errors
    /// Failed: the file cannot be read or written.
    pub(super) fn settle(&mut self) -> Result<()> {
        let Some((_, path)) = &self.sink else { return Ok(()) };
        if self.again.is_empty() {
            return Ok(());
        }
        replace_lines(path, &self.again).map_err(|e| Error::unwritable(path, &e))?;
        self.again.clear();
        Ok(())
    }
}

/// Rewrites the file at `path` with some lines replaced.
fn replace_lines(path: &Path, others: &BTreeMap<usize, Value>) -> std::io::Result<()> {
    // The file itself is replaced, not a link to it.
    let path = path.canonicalize()?;
    let old = File::open(&path)?;
    let mode = old.metadata()?.permissions().mode() & 0o777;
    let mut new = BufWriter::new(PartialFile::create(&path, mode)?);
    for (index, line) in BufReader::new(old).split(b'\n').enumerate() {
        let line = line?;
        match others.get(&index) {
            Some(other) => new.write_all(json_for_terminal(&other.to_string()).as_bytes())?,
            None => new.write_all(&line)?,
        }
        new.write_all(b"\n")?;
    }
    new.into_inner().map_err(std::io::IntoInnerError::into_error)?.commit(&path)
}

/// True if a line of the output has an error in place of a reply.
fn has_failed(line: &Value) -> bool {
    line.get("error").is_some_and(|error| !error.is_null())
}
