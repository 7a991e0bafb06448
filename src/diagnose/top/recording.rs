//! Recordings of samples: one JSON object a line, as `kiln top --json` prints them, for later use.

use super::Snapshot;
use crate::diagnose::report::create_new;
use crate::display::plain;
use crate::machine::regular::{self, Links};
use crate::{Error, Result};
use serde_json::Value;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};

/// The longest line in bytes. A sample of many GPUs with many processes is shorter.
const MOST_BYTES: u64 = 4 << 20;

/// Writes samples to a file.
pub struct Recorder {
    path: PathBuf,
    file: File,
}

impl Recorder {
    /// Creates a file.
    ///
    /// # Errors
    /// Input: the file exists already. Failed: it cannot be written.
    pub fn create(path: &Path) -> Result<Recorder> {
        Ok(Recorder { path: path.to_owned(), file: create_new(path)? })
    }

    /// Appends a complete sample.
    ///
    /// # Errors
    /// Failed: it cannot be written.
    pub fn add(&mut self, sample: &Snapshot) -> Result<()> {
        let line = serde_json::to_string(sample);
        let line = line.map_err(|e| Error::failed(format!("a sample is no JSON: {e}"), "report this"))? + "\n";
        self.file.write_all(line.as_bytes()).map_err(|e| Error::unwritable(&self.path, &e))
    }
}

/// Reads samples from a file.
pub struct Recording {
    path: PathBuf,
    lines: BufReader<File>,
    /// The number of the line that was read last.
    number: usize,
}

impl Recording {
    /// Opens a recording.
    ///
    /// # Errors
    /// Input: it cannot be read.
    pub fn open(path: &Path) -> Result<Recording> {
        let (file, _) = regular::open(path, Links::Follow).map_err(|fault| match fault {
            regular::ReadFault::Io(e) => Error::unreadable(path, &e),
            fault => Error::input(format!("{} is no recording: {fault}", path.display()), REMEDY),
        })?;
        Ok(Recording { path: path.to_owned(), lines: BufReader::new(file), number: 0 })
    }

    /// The next sample; `None` at the end.
    ///
    /// # Errors
    /// Input: a line is not a sample.
    #[allow(clippy::should_implement_trait, reason = "an iterator of results would be no simpler to use")]
    pub fn next(&mut self) -> Result<Option<Snapshot>> {
        let wrong = |number: usize, why: String| {
            Error::input(format!("line {number} of {} is no sample: {why}", self.path.display()), REMEDY)
        };
        let mut line = Vec::new();
        let read = self.lines.by_ref().take(MOST_BYTES).read_until(b'\n', &mut line);
        read.map_err(|e| Error::unreadable(&self.path, &e))?;
        if line.is_empty() {
            return Ok(None);
        }
        self.number += 1;
        let is_whole = line.ends_with(b"\n");
        let value: Value = match serde_json::from_slice(&line) {
            Ok(value) => value,
            // The last line is incomplete if the recorder was interrupted.
            Err(_) if !is_whole && self.number > 1 && (line.len() as u64) < MOST_BYTES => return Ok(None),
            Err(e) => return Err(wrong(self.number, e.to_string())),
        };
        serde_json::from_value(on_lines(value)).map(Some).map_err(|e| wrong(self.number, e.to_string()))
    }
}

/// The remedy for a file that is not a recording.
const REMEDY: &str = "give a file that `kiln top --record` or `kiln top --json` wrote";

/// Removes control characters from all strings, because the file is not trusted.
fn on_lines(value: Value) -> Value {
    match value {
        Value::String(text) => plain(&text).into(),
        Value::Array(all) => all.into_iter().map(on_lines).collect(),
        Value::Object(all) => all.into_iter().map(|(key, value)| (key, on_lines(value))).collect(),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::probe::testing::TestMachine;
    use crate::diagnose::status::Environment;
    use crate::diagnose::top::Monitor;

    #[test]
    fn what_was_recorded_is_what_is_replayed() {
        let machine = TestMachine::new("8945hs");
        let _drivers = machine.drive();
        let mut monitor = Monitor::new(machine.files.clone(), Environment::default());
        let samples = [monitor.sample(), monitor.sample()];
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("recording");
        let mut recorder = Recorder::create(&path).unwrap();
        samples.iter().for_each(|sample| recorder.add(sample).unwrap());
        let e = Recorder::create(&path).err().unwrap();
        assert!(e.exit_code() == 2 && e.to_string().contains("exists already"), "{e}");
        let mut recording = Recording::open(&path).unwrap();
        for sample in &samples {
            assert_eq!(recording.next().unwrap().as_ref(), Some(sample));
        }
        assert!(!samples[0].gpus.is_empty() && recording.next().unwrap().is_none());
    }

    #[test]
    fn a_file_that_is_no_recording_is_refused_by_its_line_and_one_that_was_cut_off_ends() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("recording");
        let first = r#"{"time":1.5,"gpus":[],"npus":[],"kilns":[{"pid":7,"model":"a\u001b[31m"}]}"#;
        let read = |text: String| {
            std::fs::write(&path, text).unwrap();
            let mut recording = Recording::open(&path).unwrap();
            std::iter::from_fn(move || recording.next().transpose()).collect::<Result<Vec<_>>>()
        };
        let one = read(format!("{first}\n")).unwrap();
        assert_eq!((one.len(), &*one[0].kilns[0].status.model), (1, "a [31m"));
        assert_eq!(read(format!("{first}\n{}", &first[..20])).unwrap().len(), 1);
        for (text, line) in
            [(format!("{first}\n{{}}\n"), 2), ("a letter\n".into(), 1), ("{".into(), 1), ("[]\n".into(), 1)]
        {
            let e = read(text).unwrap_err();
            assert!(e.exit_code() == 2 && e.to_string().contains(&format!("line {line} of ")), "{e}");
        }
        assert!(Recording::open(directory.path()).is_err() && Recording::open(Path::new("/no/such")).is_err());
    }
}
