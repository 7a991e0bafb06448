//! What a running Kiln says of itself to `kiln top`: one small JSON file a process in the user's runtime directory, written
//! by a thread of its own twice a second, removed at the end. Passes only count; a file whose process is gone is ignored.

use crate::executor::HeadRows;
use crate::machine::files::Files;
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Environment variable that names another directory for the files.
pub const DIRECTORY_VARIABLE: &str = "KILN_RUNTIME_DIR";
/// How often the file is written.
const PERIOD: Duration = Duration::from_millis(500);
/// Rates are of this long.
const WINDOW: Duration = Duration::from_secs(2);

/// The file's content. Fields may be added; what is missing is zero.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Status {
    /// The process.
    pub pid: u32,
    /// When it began, in the kernel's ticks since boot: another process may get the number later.
    pub started: u64,
    /// The command, as in `run`.
    pub command: String,
    /// The model's name.
    pub model: String,
    /// The device's name.
    pub device: String,
    /// Tokens decoded since it began.
    pub decoded: u64,
    /// Tokens of prompts run since it began.
    pub prefilled: u64,
    /// Tokens decoded per second, of all sequences together, in the last seconds.
    pub decode_tokens_s: f64,
    /// Tokens of prompts per second, in the last seconds.
    pub prefill_tokens_s: f64,
    /// Sequences of the last decode pass.
    pub sequences: u64,
    /// Requests that wait.
    pub queue: u64,
}

static DECODED: AtomicU64 = AtomicU64::new(0);
static PREFILLED: AtomicU64 = AtomicU64::new(0);
static SEQUENCES: AtomicU64 = AtomicU64::new(0);
static QUEUE: AtomicU64 = AtomicU64::new(0);

/// Counts a pass of `rows` rows. One whose every row has logits of its own decodes; any other runs a prompt.
pub fn count_pass(rows: usize, head: Option<HeadRows>) {
    let rows = rows as u64;
    match head.is_some_and(|h| h.count as u64 == rows) {
        true => {
            DECODED.fetch_add(rows, Ordering::Relaxed);
            SEQUENCES.store(rows, Ordering::Relaxed);
        }
        false => {
            PREFILLED.fetch_add(rows, Ordering::Relaxed);
        }
    }
}

/// Says how many requests wait.
pub fn set_queue(requests: usize) {
    QUEUE.store(requests as u64, Ordering::Relaxed);
}

/// Writes this process's file for as long as it lives.
#[derive(Debug)]
pub struct Reporter {
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
    file: PathBuf,
}

impl Reporter {
    /// Begins to report. `None`, logged, where there is no directory for it: nothing depends on it.
    pub fn start(command: &str, model: &str, device: &str) -> Option<Reporter> {
        let directory = own_directory()?;
        Reporter::start_in(&directory, command, model, device)
            .inspect_err(|e| log::debug!("`kiln top` cannot show this process: {}: {e}", directory.display()))
            .ok()
    }

    fn start_in(directory: &Path, command: &str, model: &str, device: &str) -> std::io::Result<Reporter> {
        prepare(directory)?;
        let pid = std::process::id();
        let file = directory.join(format!("{pid}.json"));
        let started = started(&Files::system(), pid).unwrap_or(0);
        let names = [command, model, device].map(str::to_owned);
        let [command, model, device] = names;
        let mut meter =
            Meter { status: Status { pid, started, command, model, device, ..Status::default() }, past: Vec::new() };
        meter.write(&file)?;
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let (signal, path) = (stop.clone(), file.clone());
        let thread = std::thread::Builder::new().name("status".into()).spawn(move || {
            let (stopped, condition) = &*signal;
            let mut ended = stopped.lock().unwrap_or_else(|e| e.into_inner());
            while !*ended {
                let waited = condition.wait_timeout(ended, PERIOD).unwrap_or_else(|e| e.into_inner());
                ended = waited.0;
                if !*ended && let Err(e) = meter.write(&path) {
                    log::debug!("{}: {e}", path.display());
                }
            }
        })?;
        Ok(Reporter { stop, thread: Some(thread), file })
    }
}

impl Drop for Reporter {
    fn drop(&mut self) {
        *self.stop.0.lock().unwrap_or_else(|e| e.into_inner()) = true;
        self.stop.1.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let _ = std::fs::remove_file(&self.file);
    }
}

/// The counters over time.
struct Meter {
    status: Status,
    past: Vec<(Instant, u64, u64)>,
}

impl Meter {
    fn write(&mut self, file: &Path) -> std::io::Result<()> {
        let now = Instant::now();
        let (decoded, prefilled) = (DECODED.load(Ordering::Relaxed), PREFILLED.load(Ordering::Relaxed));
        self.past.push((now, decoded, prefilled));
        // The oldest that is kept is the first one at least a window ago.
        while self.past.len() > 2 && now - self.past[1].0 >= WINDOW {
            self.past.remove(0);
        }
        let (then, decoded_then, prefilled_then) = self.past[0];
        let seconds = (now - then).as_secs_f64();
        let rate = |count: u64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
        let s = &mut self.status;
        (s.decoded, s.prefilled) = (decoded, prefilled);
        (s.decode_tokens_s, s.prefill_tokens_s) = (rate(decoded - decoded_then), rate(prefilled - prefilled_then));
        (s.sequences, s.queue) = (SEQUENCES.load(Ordering::Relaxed), QUEUE.load(Ordering::Relaxed));
        let text = serde_json::to_vec(s)?;
        // Whoever reads sees the old file or the new one.
        let next = file.with_extension("next");
        std::fs::File::create(&next)?.write_all(&text)?;
        std::fs::rename(next, file)
    }
}

/// Where this user's processes report: `KILN_RUNTIME_DIR`, else `kiln` in the runtime directory, else under /tmp.
fn own_directory() -> Option<PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let uid = nix::unistd::geteuid();
    variable(DIRECTORY_VARIABLE)
        .or_else(|| variable("XDG_RUNTIME_DIR").map(|d| d.join("kiln")))
        .or_else(|| Some(PathBuf::from(if uid.is_root() { "/run/kiln".into() } else { format!("/tmp/kiln-{uid}") })))
}

/// Makes the directory, which must be this user's own, and clears away what dead processes left in it.
fn prepare(directory: &Path) -> std::io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let found = std::fs::symlink_metadata(directory)?;
    if !found.is_dir() || found.uid() != nix::unistd::geteuid().as_raw() {
        return Err(std::io::Error::other("it is another user's"));
    }
    for entry in std::fs::read_dir(directory)?.flatten() {
        let name = entry.file_name().into_string().unwrap_or_default();
        let pid = name.split_once('.').and_then(|(pid, _)| pid.parse().ok());
        if pid.is_some_and(|pid| started(&Files::system(), pid).is_none()) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
    Ok(())
}

/// When a process began, in ticks since boot; `None` where there is none of that number.
fn started(files: &Files, pid: u32) -> Option<u64> {
    let stat = files.text(&format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may hold anything; the 20th field behind it is the time.
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// What every living Kiln that this user may see says of itself.
pub fn read_all(files: &Files) -> Vec<Status> {
    let mut directories: Vec<String> =
        own_directory().and_then(|d| d.to_str().map(str::to_owned)).into_iter().collect();
    directories.push("/run/kiln".into());
    let users = files.list("/run/user").unwrap_or_default();
    directories.extend(users.into_iter().map(|uid| format!("/run/user/{uid}/kiln")));
    directories.sort();
    directories.dedup();
    let mut found: Vec<Status> = directories.iter().flat_map(|d| read_directory(files, d)).collect();
    found.sort_by_key(|s| s.pid);
    found
}

fn read_directory(files: &Files, directory: &str) -> Vec<Status> {
    let names = files.list(directory).unwrap_or_default();
    let read = |name: String| {
        let pid: u32 = name.strip_suffix(".json")?.parse().ok()?;
        let status: Status = serde_json::from_str(&files.text(&format!("{directory}/{name}")).ok()?).ok()?;
        let alive = status.pid == pid && started(files, pid) == Some(status.started);
        let sound = [status.decode_tokens_s, status.prefill_tokens_s].iter().all(|r| r.is_finite() && *r >= 0.0);
        (alive && sound).then_some(status)
    };
    names.into_iter().filter_map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_reports_while_it_runs_and_is_gone_after() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().to_str().unwrap().to_owned();
        let files = Files::system();
        // A dead process's file is cleared away, and something else's is not.
        std::fs::write(dir.path().join("4194305.json"), "{}").unwrap();
        std::fs::write(dir.path().join("notes"), "").unwrap();
        let reporter = Reporter::start_in(dir.path(), "run", "demo", "a device").unwrap();
        assert_eq!(files.list(&path).unwrap(), [format!("{}.json", std::process::id()), "notes".into()]);
        let one = || read_directory(&files, &path).pop().unwrap();
        let before = one();
        assert_eq!((before.command.as_str(), before.model.as_str(), before.pid), ("run", "demo", std::process::id()));
        count_pass(3, Some(HeadRows { first: 0, count: 3 }));
        count_pass(512, Some(HeadRows { first: 511, count: 1 }));
        count_pass(512, None);
        set_queue(7);
        let deadline = Instant::now() + Duration::from_secs(20);
        while one().queue != 7 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
        }
        let after = one();
        // Other tests of this process run passes too.
        assert!(after.decoded >= before.decoded + 3 && after.prefilled >= before.prefilled + 1024, "{after:?}");
        assert!(after.decode_tokens_s > 0.0 && after.prefill_tokens_s > 0.0 && after.queue == 7, "{after:?}");
        drop(reporter);
        assert_eq!(files.list(&path).unwrap(), ["notes"]);
    }

    #[test]
    fn files_of_dead_processes_and_files_that_lie_are_ignored() {
        let root = tempfile::tempdir().unwrap();
        let files = Files::under(root.path());
        let put = |path: &str, text: &str| {
            let at = files.at(path);
            std::fs::create_dir_all(at.parent().unwrap()).unwrap();
            std::fs::write(at, text).unwrap();
        };
        let stat = |ticks: u64| format!("10 (ki) ln) S {} {ticks} 0", vec!["1"; 18].join(" "));
        put("/proc/10/stat", &stat(500));
        let good = r#"{"pid":10,"started":500,"command":"run","decode_tokens_s":3.3,"later":[1]}"#;
        put("/run/kiln/10.json", good);
        let all = read_directory(&files, "/run/kiln");
        assert_eq!((all.len(), all[0].decode_tokens_s), (1, 3.3));
        for (name, text) in [
            ("10.json", good.replace("500", "499")),
            ("10.json", good.replace("\"pid\":10", "\"pid\":11")),
            ("11.json", good.to_owned()),
            ("10.json", good.replace("3.3", "-1")),
            ("10.json", "{\"pid\":".into()),
            ("10.json", "\u{0}".into()),
            ("10.json", String::new()),
            ("10.next", good.to_owned()),
        ] {
            std::fs::remove_dir_all(files.at("/run/kiln")).unwrap();
            put(&format!("/run/kiln/{name}"), &text);
            assert_eq!(read_directory(&files, "/run/kiln"), [], "{name}: {text}");
        }
    }
}
