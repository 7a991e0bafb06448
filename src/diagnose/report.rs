//! A report about a machine in one file, for remote support: its checks, a forecast, the kernel's messages on its
//! devices, and Kiln's files there. Names of users, machines and users' folders are redacted.

use super::status::{self, Environment};
use crate::machine::cache;
use crate::machine::files::Files;
use crate::{Error, Result, version};
use nix::unistd::{Uid, User};
use serde_json::{Map, Value, json};
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// The most kernel lines in a report; the last ones are taken.
const MOST_LINES: usize = 100;
/// The longest record of the kernel's log, in bytes.
const RECORD: usize = 8192;
/// Words that select kernel lines: the drivers of GPUs and NPUs, shortage of memory, and Kiln itself.
const SUBJECTS: [&str; 8] = ["amdgpu", "amdxdna", "[drm", "NVRM", "i915", "ttm", "Out of memory", "kiln"];
/// Prefixes of variables that influence Kiln or a driver.
const VARIABLES: [&str; 9] = ["KILN_", "VK_", "MESA_", "RADV_", "AMD_", "RUST_", "RAYON_", "XDG_", "LIBGL_"];

/// Creates a file.
///
/// # Errors
/// Input: it exists already. Failed: it cannot be created.
pub fn create_new(path: &Path) -> Result<File> {
    File::create_new(path).map_err(|e| match e.kind() {
        ErrorKind::AlreadyExists => taken(path),
        _ => Error::unwritable(path, &e),
    })
}

/// The error for a file that exists already.
pub fn taken(path: &Path) -> Error {
    Error::input(format!("{} exists already", path.display()), "choose another name, or remove it")
}

/// The report: results of `probe` and `plan`, and the machine's current state.
pub fn gather(files: &Files, probe: Value, plan: Value) -> Value {
    let features: Vec<&str> = version::features().collect();
    let report = json!({
        "kiln": {"version": version::VERSION, "commit": version::COMMIT, "features": features},
        "time": SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
        "probe": probe,
        "plan": plan,
        "kernel_log": kernel_lines(files),
        "devcoredumps": files.list("/sys/class/devcoredump").unwrap_or_default(),
        "cache": cached(),
        "environment": variables(std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))),
        "kilns": status::read_all(files, &Environment::of_process()),
    });
    Redaction::of_this_user(files).apply(report)
}

/// The kernel's last lines on devices and memory, or the reason why they cannot be read.
fn kernel_lines(files: &Files) -> Value {
    const LOG: &str = "/dev/kmsg";
    let mut options = OpenOptions::new();
    let opened = options.read(true).custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC).open(files.at(LOG));
    let mut file = match opened {
        Ok(file) => file,
        Err(e) => return json!({"fault": format!("{LOG} cannot be read: {e}")}),
    };
    let mut lines = Vec::new();
    let mut record = [0; RECORD];
    loop {
        match file.read(&mut record) {
            Ok(0) => break,
            // Each read returns one record, `priority,number,time,flags;text`.
            Ok(n) => lines.extend(String::from_utf8_lossy(&record[..n]).lines().filter_map(line_of)),
            // Records that were overwritten meanwhile are skipped.
            Err(e) if matches!(e.kind(), ErrorKind::BrokenPipe | ErrorKind::Interrupted) => {}
            Err(_) => break,
        }
    }
    lines.drain(..lines.len().saturating_sub(MOST_LINES));
    json!(lines)
}

/// A record's seconds since the start and its text, if it is about one of [`SUBJECTS`].
fn line_of(record: &str) -> Option<String> {
    let (head, text) = record.split_once(';')?;
    let micros: u64 = head.split(',').nth(2)?.parse().ok()?;
    let is_taken = SUBJECTS.iter().any(|subject| text.contains(subject));
    is_taken.then(|| format!("[{:.3}] {text}", micros as f64 / 1e6))
}

/// The files that Kiln keeps between runs: pipelines, tuning.
fn cached() -> Value {
    let Some(directory) = cache::directory() else { return json!({"directory": null, "files": []}) };
    let now = SystemTime::now();
    let entries = std::fs::read_dir(&directory).into_iter().flatten().flatten();
    let mut files: Vec<Value> = entries
        .filter_map(|entry| {
            let found = entry.metadata().ok().filter(|found| found.is_file())?;
            let age = found.modified().ok().and_then(|at| now.duration_since(at).ok()).map(|age| age.as_secs());
            Some(json!({"name": entry.file_name().to_string_lossy(), "bytes": found.len(), "age_s": age}))
        })
        .collect();
    files.sort_by_key(|file| file["name"].to_string());
    json!({"directory": directory.to_string_lossy(), "files": files})
}

/// Variables with one of these prefixes, except possible secrets.
fn variables(all: impl Iterator<Item = (String, String)>) -> Map<String, Value> {
    let is_secret = |name: &str| ["KEY", "TOKEN", "SECRET", "PASS"].iter().any(|word| name.contains(word));
    let mut taken: Vec<_> = all.filter(|(name, _)| VARIABLES.iter().any(|start| name.starts_with(start))).collect();
    taken.sort();
    taken
        .into_iter()
        .map(|(name, value)| if is_secret(&name) { (name, "***".into()) } else { (name, value.into()) })
        .collect()
}

/// The words that are replaced in a report, because they name the user or the machine.
#[derive(Debug, Default)]
struct Redaction {
    /// The path of the user's home directory.
    home: Option<String>,
    /// Words to replace, each with its replacement.
    words: Vec<(String, &'static str)>,
}

impl Redaction {
    fn of_this_user(files: &Files) -> Redaction {
        let user = User::from_uid(Uid::current()).ok().flatten();
        let home = user.as_ref().map(|user| user.dir.to_string_lossy().into_owned()).filter(|home| home.len() > 1);
        let host = files.text("/proc/sys/kernel/hostname").ok();
        let id = files.text("/etc/machine-id").ok();
        // Every machine has a root user.
        let name = user.map(|user| user.name).filter(|name| name != "root");
        let words = [(name, "USER"), (host, "HOST"), (id, "MACHINE-ID")];
        Redaction { home, words: words.into_iter().filter_map(|(word, by)| Some((word?, by))).collect() }
    }

    /// Replaces words in every string in `value`.
    fn apply(&self, value: Value) -> Value {
        match value {
            Value::String(text) => self.text(&text).into(),
            Value::Array(all) => all.into_iter().map(|value| self.apply(value)).collect(),
            Value::Object(all) => all.into_iter().map(|(key, value)| (key, self.apply(value))).collect(),
            other => other,
        }
    }

    fn text(&self, text: &str) -> String {
        let text = self.home.as_ref().map_or_else(|| text.to_owned(), |home| replace_word(text, home, "~"));
        let text = self.words.iter().fold(text, |text, (word, by)| replace_word(&text, word, by));
        hide_folders(&text)
    }
}

/// Replaces `word` where it stands alone, without a letter, digit, `-` or `_` beside it.
fn replace_word(text: &str, word: &str, by: &str) -> String {
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_');
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = rest.find(word).filter(|_| !word.is_empty()) {
        let (before, behind) = (&rest[..at], &rest[at + word.len()..]);
        let alone = !before.ends_with(is_part) && !behind.starts_with(is_part);
        out.extend([before, if alone { by } else { word }]);
        rest = behind;
    }
    out + rest
}

/// Replaces users' names in paths: `/home/anna/models` becomes `/home/USER/models`.
fn hide_folders(text: &str) -> String {
    let mut parts = text.split("/home/");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part
            .find(|c: char| c == '/' || c.is_whitespace() || matches!(c, '"' | '\'' | ':' | ','))
            .unwrap_or(part.len());
        out.extend(["/home/", if end > 0 { "USER" } else { "" }, &part[end..]]);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_users_and_machines_are_taken_out_wherever_they_stand() {
        let words = vec![("anna".to_owned(), "USER"), ("kiosk-17".to_owned(), "HOST")];
        let redaction = Redaction { home: Some("/srv/anna".into()), words };
        let value = json!({
            "path": "/srv/anna/models and /home/berta/x, /home/carl",
            "list": ["kiosk-17: anna's GPU", "annabel kiosk-170", "/home/"],
            "number": 17,
        });
        assert_eq!(
            redaction.apply(value),
            json!({
                "path": "~/models and /home/USER/x, /home/USER",
                "list": ["HOST: USER's GPU", "annabel kiosk-170", "/home/"],
                "number": 17,
            })
        );
    }

    #[test]
    fn of_the_kernels_lines_those_on_devices_are_taken() {
        let taken = "4,1234,98765432,-;amdgpu 0000:c5:00.0: ring gfx timeout";
        assert_eq!(line_of(taken).as_deref(), Some("[98.765] amdgpu 0000:c5:00.0: ring gfx timeout"));
        for other in ["6,1,2,-;usb 1-1: new device", " SUBSYSTEM=drm", "4,1,x,-;amdgpu", ""] {
            assert_eq!(line_of(other), None, "{other}");
        }
    }

    #[test]
    fn secrets_are_no_part_of_the_environment() {
        let all = [("KILN_MODEL", "m"), ("HOME", "/home/anna"), ("KILN_API_KEY", "sk"), ("VK_LOADER_DEBUG", "all")];
        let all = all.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
        let taken = Value::Object(variables(all));
        assert_eq!(taken, json!({"KILN_API_KEY": "***", "KILN_MODEL": "m", "VK_LOADER_DEBUG": "all"}));
    }

    #[test]
    fn a_report_has_every_part_on_a_machine_that_has_none() {
        let directory = tempfile::tempdir().unwrap();
        let report = gather(&Files::under(directory.path()), json!({"checks": []}), json!({"fits": true}));
        assert!(report["kernel_log"]["fault"].as_str().unwrap().contains("/dev/kmsg"), "{report}");
        assert_eq!((&report["devcoredumps"], &report["kilns"]), (&json!([]), &json!([])));
        assert_eq!(report["kiln"]["version"], version::VERSION);
        assert!(report["cache"]["files"].is_array() && report["environment"].is_object());
        assert_eq!((&report["probe"]["checks"], &report["plan"]["fits"]), (&json!([]), &json!(true)));
    }
}
