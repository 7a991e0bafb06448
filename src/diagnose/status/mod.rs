//! Status reports of running Kilns, for `kiln top`. Each process has a small JSON file in a runtime directory. A thread
//! writes it twice a second and removes it at the end. Readers ignore the files of dead processes, and files whose
//! owner is not the process's user.

#[cfg(test)]
mod tests;

use super::periodic::PeriodicWork;
use crate::machine::files::Files;
use crate::machine::partial::PartialFile;
use crate::sequence::counts::{self, TokenCounters};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fs::OpenOptions;
use std::io::Read;
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Environment variable for another directory of reports, which is then the only one that is read.
pub const DIRECTORY_VARIABLE: &str = "KILN_RUNTIME_DIR";
/// The interval at which the status file is written.
const PERIOD: Duration = Duration::from_millis(500);
/// The time over which rates are averaged.
const WINDOW: Duration = Duration::from_secs(2);
/// The largest file that is read, in bytes. Reports are smaller.
const MAX_BYTES: u64 = 16 << 10;

/// A report: the content of its file. Later versions may add fields; a missing field is zero.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Status {
    /// The process's id.
    pub pid: u32,
    /// The process's start, in the kernel's ticks since boot. It distinguishes the process from a later one with the
    /// same number.
    pub started: u64,
    /// The command, such as `run`.
    pub command: String,
    /// The model's name.
    pub model: String,
    /// The device's name.
    pub device: String,
    /// Tokens decoded since the process began.
    pub decoded: u64,
    /// Prompt tokens run since the process began.
    pub prefilled: u64,
    /// Tokens decoded per second over the last seconds, in all sequences.
    pub decode_tokens_s: f64,
    /// Prompt tokens per second over the last seconds.
    pub prefill_tokens_s: f64,
    /// The number of sequences that decode now.
    pub sequences: u64,
    /// The share of the last layer's experts that a decode pass used over the last seconds; `None` without a mixture
    /// or a token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub experts_share: Option<f64>,
    /// The number of requests that wait in the queue.
    pub queue: u64,
    /// True if the weights were unloaded after a time without requests.
    pub unloaded: bool,
    /// The addresses with ports, and the paths of Unix sockets, on which a server listens.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub places: Vec<String>,
}

/// An address as clients write it: a URL for a TCP address, and a Unix socket's path as it is.
pub fn url_of(place: &str) -> String {
    if place.parse::<SocketAddr>().is_ok() { format!("http://{place}") } else { place.to_owned() }
}

/// The directories from a process's environment variables.
#[derive(Debug, Clone, Default)]
pub struct Environment {
    /// The value of `KILN_RUNTIME_DIR`.
    chosen: Option<PathBuf>,
    /// `RUNTIME_DIRECTORY`, which systemd sets for units with `RuntimeDirectory=`; the first if there are several.
    service: Option<PathBuf>,
    /// The value of `XDG_RUNTIME_DIR`.
    session: Option<PathBuf>,
}

impl Environment {
    /// The variables of this process's environment.
    pub fn of_process() -> Environment {
        let absolute = |path: PathBuf| std::path::absolute(path).ok();
        let variable = |name| std::env::var_os(name).and_then(|v| absolute(v.into()));
        let service = std::env::var_os("RUNTIME_DIRECTORY").and_then(|v| std::env::split_paths(&v).next());
        Environment {
            chosen: variable(DIRECTORY_VARIABLE),
            service: service.and_then(absolute),
            session: variable("XDG_RUNTIME_DIR").filter(|d| is_own(d, nix::unistd::geteuid().as_raw())),
        }
    }

    /// Directories for the reports of a process of user `uid`, best first. If `KILN_RUNTIME_DIR` is set, only that one.
    /// Otherwise `kiln` in the unit's or the user's runtime directory or in /run, and then a directory in /tmp named
    /// after the user. A unit may have a private /tmp.
    fn own(&self, uid: u32) -> Vec<PathBuf> {
        if let Some(chosen) = &self.chosen {
            return vec![chosen.clone()];
        }
        // Only directories directly in /run, because `top` reads no others, such as those of a user's own units.
        let service = self.service.as_deref().filter(|d| d.parent() == Some(Path::new("/run")));
        let system = (uid == 0).then(|| Path::new("/run"));
        let runtime = [service, self.session.as_deref(), system].into_iter().flatten();
        runtime.map(|d| d.join("kiln")).chain([format!("/tmp/kiln-{uid}").into()]).collect()
    }

    /// Directories in which Kilns may report: `KILN_RUNTIME_DIR` if set, else those of all users.
    fn all(&self, files: &Files) -> Vec<String> {
        let own = self.own(nix::unistd::geteuid().as_raw());
        let mut all: Vec<String> = own.iter().filter_map(|d| d.to_str().map(str::to_owned)).collect();
        if self.chosen.is_none() {
            let below = |parent: &str| files.list(parent).unwrap_or_default();
            all.push("/run/kiln".into());
            all.extend(below("/run").iter().map(|unit| format!("/run/{unit}/kiln")));
            all.extend(below("/run/user").iter().map(|uid| format!("/run/user/{uid}/kiln")));
            // Every user can create a directory in /tmp, so its owner must be the user in its name.
            let is_named_after_owner = |name: &String| {
                let uid = name.strip_prefix("kiln-").and_then(number);
                uid.is_some_and(|uid| is_own(&files.at("/tmp").join(name), uid))
            };
            all.extend(
                below("/tmp").iter().filter(|name| is_named_after_owner(name)).map(|name| format!("/tmp/{name}")),
            );
        }
        all.sort();
        all.dedup();
        all
    }
}

/// Writes this process's file until it is dropped.
#[derive(Debug)]
pub struct Reporter {
    writes: Option<PeriodicWork>,
    file: PathBuf,
}

impl Reporter {
    /// Starts reporting under the device's own name, because an offload may leave while the report stays. Returns
    /// `None`, and logs it, if no directory is usable; the report is optional.
    pub fn start(command: &str, model: &str, device: &str) -> Option<Reporter> {
        Reporter::start_with(command, model, device, |_| {})
    }

    /// As [`Reporter::start`]. Before each report `fill` updates the other fields.
    pub fn start_with(
        command: &str,
        model: &str,
        device: &str,
        fill: impl Fn(&mut Status) + Clone + Send + 'static,
    ) -> Option<Reporter> {
        let directories = Environment::of_process().own(nix::unistd::geteuid().as_raw());
        directories.iter().find_map(|directory| {
            Reporter::start_in(directory, command, model, device, fill.clone())
                .inspect_err(|e| log::debug!("no report to `kiln top` in {}: {e}", directory.display()))
                .ok()
        })
    }

    fn start_in(
        directory: &Path,
        command: &str,
        model: &str,
        device: &str,
        fill: impl Fn(&mut Status) + Send + 'static,
    ) -> std::io::Result<Reporter> {
        prepare(directory)?;
        let pid = std::process::id();
        let file = directory.join(format!("{pid}.json"));
        if file.symlink_metadata().is_ok() {
            return Err(std::io::Error::other(format!("{pid}.json is there, and not from a Kiln")));
        }
        let started = started(&Files::system(), pid).unwrap_or(0);
        let [command, model, device] = [command, model, device].map(str::to_owned);
        let mut meter = RateMeter {
            status: Status { pid, started, command, model, device, ..Status::default() },
            past: Vec::new(),
            fill: Box::new(fill),
        };
        meter.write(&file)?;
        let path = file.clone();
        // Dropped, and so removes the file, if no thread can be started.
        let mut reporter = Reporter { writes: None, file };
        let write = move || {
            if let Err(e) = meter.write(&path) {
                log::debug!("{}: {e}", path.display());
            }
            PERIOD
        };
        reporter.writes = Some(PeriodicWork::start("status", PERIOD, write)?);
        Ok(reporter)
    }
}

impl Drop for Reporter {
    fn drop(&mut self) {
        drop(self.writes.take());
        let _ = std::fs::remove_file(&self.file);
    }
}

/// The token counts of the last seconds, from which rates are computed.
struct RateMeter {
    status: Status,
    past: Vec<(Instant, TokenCounters)>,
    fill: Box<dyn Fn(&mut Status) + Send>,
}

impl RateMeter {
    fn write(&mut self, file: &Path) -> std::io::Result<()> {
        let now = Instant::now();
        let counted = counts::read();
        self.past.push((now, counted));
        // Keeps the newest entry that is at least a window old.
        while self.past.len() > 2 && now - self.past[1].0 >= WINDOW {
            self.past.remove(0);
        }
        let (then, before) = self.past[0];
        let seconds = (now - then).as_secs_f64();
        let ratio = |count: u64, of: f64| if of > 0.0 { count as f64 / of } else { 0.0 };
        let s = &mut self.status;
        (s.decoded, s.prefilled, s.sequences) = (counted.decoded, counted.prefilled, counted.sequences);
        s.decode_tokens_s = ratio(counted.decoded - before.decoded, seconds);
        s.prefill_tokens_s = ratio(counted.prefilled - before.prefilled, seconds);
        let experts = (counted.experts - before.experts) as f64;
        s.experts_share = (experts > 0.0).then(|| (counted.experts_used - before.experts_used) as f64 / experts);
        (self.fill)(s);
        let text = serde_json::to_vec(s)?;
        // Renamed into place, so that readers see either the old or the new file.
        PartialFile::write_whole(file, 0o666, &text)
    }
}

/// Creates the directory, or checks that it belongs to this user, and removes the reports of dead processes. The user
/// may have chosen any directory, so other files in it are not touched.
fn prepare(directory: &Path) -> std::io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let uid = nix::unistd::geteuid().as_raw();
    if !is_own(directory, uid) {
        return Err(std::io::Error::other("it is another user's"));
    }
    for entry in std::fs::read_dir(directory)?.flatten() {
        if entry.file_name().to_str().is_some_and(|name| is_left(&entry.path(), name, uid)) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
    Ok(())
}

/// True if the file `path`, called `name`, is the report of a Kiln of user `uid` that has ended.
fn is_left(path: &Path, name: &str, uid: u32) -> bool {
    let Some(pid) = pid_of(name) else { return false };
    // This process has not written yet, so a file with its number is an earlier process's.
    let begun = started(&Files::system(), pid).filter(|_| pid != std::process::id());
    let report = read(path, uid).filter(|bytes| is_whole(bytes)).and_then(|bytes| parse(&bytes, pid));
    report.is_some_and(|status| begun != Some(status.started))
}

/// True if a file has all fields of a report. Another program's file may have one or two of them.
fn is_whole(bytes: &[u8]) -> bool {
    let fields = |json: Value| if let Value::Object(map) = json { map } else { Map::new() };
    let found = serde_json::from_slice(bytes).map(fields).unwrap_or_default();
    let written = serde_json::to_value(Status::default()).map(fields).unwrap_or_default();
    written.keys().all(|name| found.contains_key(name))
}

/// The process id in a report's name, such as `77.json`.
fn pid_of(name: &str) -> Option<u32> {
    number(name.strip_suffix(".json")?)
}

/// Parses a number without leading zeros or a sign, as in file names.
fn number(text: &str) -> Option<u32> {
    text.parse().ok().filter(|n: &u32| n.to_string() == text)
}

/// Whether a directory belongs to the user. After a change of user, as by `sudo -E`, the environment may still name the
/// first user's directory, in which that user can place any file.
fn is_own(directory: &Path, uid: u32) -> bool {
    owner(directory) == Some(uid)
}

/// The owner of a directory; `None` for anything else, including a link.
fn owner(directory: &Path) -> Option<u32> {
    directory.symlink_metadata().ok().filter(|found| found.is_dir()).map(|found| found.uid())
}

/// The bytes of a regular file of user `owner`, if it is not larger than a report. Neither blocks nor follows links,
/// since the file is not trusted.
fn read(path: &Path, owner: u32) -> Option<Vec<u8>> {
    let flags = libc::O_NONBLOCK | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
    let found = file.metadata().ok()?;
    let mut bytes = Vec::new();
    let read = file.take(MAX_BYTES + 1).read_to_end(&mut bytes).ok()?;
    (found.is_file() && found.uid() == owner && read as u64 <= MAX_BYTES).then_some(bytes)
}

/// Parses a report. `None` unless it belongs to process `pid`.
fn parse(bytes: &[u8], pid: u32) -> Option<Status> {
    serde_json::from_slice(bytes).ok().filter(|status: &Status| status.pid == pid)
}

/// A process's start in ticks since boot; `None` if there is no such process.
fn started(files: &Files, pid: u32) -> Option<u64> {
    let stat = files.text(&format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may contain anything. The start time is the 20th field after it.
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// The user that a process runs as.
fn user(files: &Files, pid: u32) -> Option<u32> {
    // The fields are the real, effective, saved and file-system ids.
    files.field(&format!("/proc/{pid}/status"), "Uid").ok()?.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// The reports of all living Kilns that this user may see.
pub fn read_all(files: &Files, environment: &Environment) -> Vec<Status> {
    let mut found: Vec<Status> = environment.all(files).iter().flat_map(|d| read_directory(files, d)).collect();
    found.sort_by_key(|s| s.pid);
    // One directory may be found under two names.
    found.dedup_by_key(|s| s.pid);
    found
}

fn read_directory(files: &Files, directory: &str) -> Vec<Status> {
    let Some(owner) = owner(&files.at(directory)) else { return Vec::new() };
    let names = files.list(directory).unwrap_or_default();
    let read = |name: String| {
        let pid = pid_of(&name)?;
        // Reports of dead processes, or owned by another user, are skipped.
        let begun = started(files, pid)?;
        user(files, pid).filter(|&user| user == owner)?;
        let status = parse(&read(&files.at(directory).join(&name), owner)?, pid)?;
        let sound = [status.decode_tokens_s, status.prefill_tokens_s].iter().all(|r| r.is_finite() && *r >= 0.0);
        (status.started == begun && sound).then_some(status)
    };
    names.into_iter().filter_map(read).collect()
}
