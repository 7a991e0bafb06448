//! What a running Kiln says of itself to `kiln top`: one small JSON file a process in the user's runtime directory, written
//! by a thread of its own twice a second, removed at the end. Passes only count; a file whose process is gone is ignored.

use crate::executor::HeadRows;
use crate::machine::files::Files;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Environment variable that names another directory for the files, and the only one that is read.
pub const DIRECTORY_VARIABLE: &str = "KILN_RUNTIME_DIR";
/// How often the file is written.
const PERIOD: Duration = Duration::from_millis(500);
/// Rates are of this long.
const WINDOW: Duration = Duration::from_secs(2);
/// More than a file has.
const MAX_BYTES: u64 = 16 << 10;

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

/// The directories that a process's environment names.
#[derive(Debug, Clone, Default)]
pub struct Environment {
    /// `KILN_RUNTIME_DIR`.
    chosen: Option<PathBuf>,
    /// `XDG_RUNTIME_DIR`.
    session: Option<PathBuf>,
}

impl Environment {
    /// This process's.
    pub fn of_process() -> Environment {
        let variable = |name| std::env::var_os(name).and_then(|v| std::path::absolute(v).ok());
        Environment { chosen: variable(DIRECTORY_VARIABLE), session: variable("XDG_RUNTIME_DIR") }
    }

    /// Where this user's processes report: `KILN_RUNTIME_DIR`, else `kiln` in the runtime directory, else under /tmp.
    fn own(&self) -> PathBuf {
        let uid = nix::unistd::geteuid();
        let fallback = || PathBuf::from(if uid.is_root() { "/run/kiln".into() } else { format!("/tmp/kiln-{uid}") });
        let in_session = || self.session.as_ref().map(|d| d.join("kiln"));
        self.chosen.clone().or_else(in_session).unwrap_or_else(fallback)
    }

    /// Where Kilns may report, as far as this user may see: the chosen directory alone, where one is.
    fn all(&self, files: &Files) -> Vec<PathBuf> {
        let mut all = vec![self.own()];
        if self.chosen.is_none() {
            all.push("/run/kiln".into());
            let users = files.list("/run/user").unwrap_or_default();
            all.extend(users.into_iter().map(|uid| format!("/run/user/{uid}/kiln").into()));
        }
        all.sort();
        all.dedup();
        all
    }
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
        let directory = Environment::of_process().own();
        Reporter::start_in(&directory, command, model, device)
            .inspect_err(|e| log::debug!("`kiln top` cannot show this process: {}: {e}", directory.display()))
            .ok()
    }

    fn start_in(directory: &Path, command: &str, model: &str, device: &str) -> std::io::Result<Reporter> {
        prepare(directory)?;
        let pid = std::process::id();
        let file = directory.join(format!("{pid}.json"));
        if file.symlink_metadata().is_ok() {
            return Err(std::io::Error::other(format!("{pid}.json is there, and not from a Kiln")));
        }
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
        // Whoever reads sees the old file or the new one. What has that name already, as a link might, is not written to.
        let next = file.with_extension("next");
        let written = File::create_new(&next)?.write_all(&text).and_then(|()| std::fs::rename(&next, file));
        written.inspect_err(|_| drop(std::fs::remove_file(&next)))
    }
}

/// Makes the directory, which must be this user's own, and clears away what dead processes left in it. A user may have named
/// any directory: nothing else in it is touched.
fn prepare(directory: &Path) -> std::io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let found = std::fs::symlink_metadata(directory)?;
    let uid = nix::unistd::geteuid().as_raw();
    if !found.is_dir() || found.uid() != uid {
        return Err(std::io::Error::other("it is another user's"));
    }
    for entry in std::fs::read_dir(directory)?.flatten() {
        if entry.file_name().to_str().is_some_and(|name| is_left(&entry.path(), name, uid)) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
    Ok(())
}

/// Whether the file at `path`, of that name, is one that a dead Kiln of the user `uid` left: its report, or one cut off while
/// it was written.
fn is_left(path: &Path, name: &str, uid: u32) -> bool {
    let Some(pid) = pid_of(name, ".json").or_else(|| pid_of(name, ".next")) else { return false };
    // This process has not written yet: a file of its number is an earlier one's.
    let begun = started(&Files::system(), pid).filter(|_| pid != std::process::id());
    match read(path, uid) {
        Some(bytes) if bytes.is_empty() => name.ends_with(".next") && begun.is_none(),
        Some(bytes) => parse(&bytes, pid).is_some_and(|status| begun != Some(status.started)),
        None => false,
    }
}

/// The process that a file is named after, as in `77.json`.
fn pid_of(name: &str, suffix: &str) -> Option<u32> {
    let number = name.strip_suffix(suffix)?;
    // As it is written here, without zeros or a sign before it.
    number.parse().ok().filter(|pid: &u32| pid.to_string() == number)
}

/// The bytes of a regular file of the user `owner`, if it is no larger than a report can be. Without waiting and without
/// following a link: what lies there may be anything.
fn read(path: &Path, owner: u32) -> Option<Vec<u8>> {
    let flags = libc::O_NONBLOCK | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
    let found = file.metadata().ok()?;
    let mut bytes = Vec::new();
    let read = file.take(MAX_BYTES + 1).read_to_end(&mut bytes).ok()?;
    (found.is_file() && found.uid() == owner && read as u64 <= MAX_BYTES).then_some(bytes)
}

/// What the process `pid` wrote, if it did.
fn parse(bytes: &[u8], pid: u32) -> Option<Status> {
    serde_json::from_slice(bytes).ok().filter(|status: &Status| status.pid == pid)
}

/// When a process began, in ticks since boot; `None` where there is none of that number.
fn started(files: &Files, pid: u32) -> Option<u64> {
    let stat = files.text(&format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may hold anything; the 20th field behind it is the time.
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// What every living Kiln that this user may see says of itself.
pub fn read_all(files: &Files, environment: &Environment) -> Vec<Status> {
    let directories = environment.all(files);
    let mut found: Vec<Status> =
        directories.iter().filter_map(|d| d.to_str()).flat_map(|d| read_directory(files, d)).collect();
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
        // A dead process's file is cleared away, and something else's is not. No process has this number.
        std::fs::write(dir.path().join("4194305.json"), r#"{"pid":4194305}"#).unwrap();
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

    /// The directory may be any that the user named, with whatever lies there.
    #[test]
    fn only_what_a_dead_kiln_left_is_cleared_away() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let put = |name: &str, text: &str| std::fs::write(at(name), text).unwrap();
        let own = std::process::id();
        let own_started = started(&Files::system(), own).unwrap();
        // Another process, which ends with its input.
        let mut child = std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let alive = child.id();
        let alive_started = started(&Files::system(), alive).unwrap();
        put("4194305.json", r#"{"pid":4194305,"started":5,"command":"run"}"#);
        put("4194305.next", "");
        put("4194306.next", r#"{"pid":4194306,"started":5}"#);
        // Numbers that another process has now.
        put(&format!("{own}.json"), &format!(r#"{{"pid":{own},"started":{}}}"#, own_started - 1));
        put(&format!("{own}.next"), "");
        put("elsewhere", r#"{"pid":4194307}"#);
        let kept = [
            ("999999.pdf", "a document"),
            ("4194305.txt", "notes"),
            ("4194305.json.bak", r#"{"pid":4194305}"#),
            ("04194305.json", r#"{"pid":4194305}"#),
            ("+4194305.json", r#"{"pid":4194305}"#),
            ("4194308.json", r#"{"invoice":7}"#),
            ("4194309.json", ""),
            ("4194310.json", "[1, 2]"),
            ("4194311.next", "chapter 2"),
            ("4194312.json", r#"{"pid":4194305}"#),
            ("4294967296.json", r#"{"pid":4294967296}"#),
            (&format!("{alive}.json"), &format!(r#"{{"pid":{alive},"started":{alive_started}}}"#)),
            (&format!("{alive}.next"), ""),
        ];
        kept.iter().for_each(|(name, text)| put(name, text));
        put("4194313.json", &format!(r#"{{"pid":4194313,"later":"{}"}}"#, "x".repeat(MAX_BYTES as usize)));
        std::fs::create_dir(at("4194314.json")).unwrap();
        std::os::unix::fs::symlink("elsewhere", at("4194307.json")).unwrap();
        nix::unistd::mkfifo(&at("4194315.json"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        prepare(dir.path()).unwrap();
        let mut names: Vec<String> = kept.iter().map(|(name, _)| name.to_string()).collect();
        names.extend(["elsewhere", "4194307.json", "4194313.json", "4194314.json", "4194315.json"].map(String::from));
        let mut left: Vec<String> =
            std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        left.sort();
        assert_eq!(left, names);
        kept.iter().for_each(|(name, text)| assert_eq!(std::fs::read_to_string(at(name)).unwrap(), *text));
        assert!(read(&at("999999.pdf"), nix::unistd::geteuid().as_raw() + 1).is_none(), "another user's");
        drop(child.stdin.take());
        child.wait().unwrap();
    }

    /// A process whose number a file of the user's has by chance does without a report.
    #[test]
    fn nothing_of_the_users_is_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let name = |suffix: &str| dir.path().join(format!("{}.{suffix}", std::process::id()));
        std::fs::write(dir.path().join("letter"), "text").unwrap();
        for (suffix, start) in [("json", false), ("next", false), ("txt", true)] {
            std::os::unix::fs::symlink("letter", name(suffix)).unwrap();
            assert_eq!(Reporter::start_in(dir.path(), "run", "demo", "a device").is_ok(), start, "{suffix}");
            assert_eq!(std::fs::read_link(name(suffix)).unwrap(), Path::new("letter"));
            assert_eq!(std::fs::read(dir.path().join("letter")).unwrap(), b"text");
            std::fs::remove_file(name(suffix)).unwrap();
        }
    }

    #[test]
    fn a_chosen_directory_is_the_only_one() {
        let root = tempfile::tempdir().unwrap();
        let files = Files::under(root.path());
        let put = |path: &str, text: &str| {
            let at = files.at(path);
            std::fs::create_dir_all(at.parent().unwrap()).unwrap();
            std::fs::write(at, text).unwrap();
        };
        let places = ["/run/kiln", "/run/user/1000/kiln", "/session/kiln", "/chosen"];
        for (i, place) in (10..).zip(places) {
            put(&format!("/proc/{i}/stat"), &format!("{i} (kiln) S {} 500 0", vec!["1"; 18].join(" ")));
            put(&format!("{place}/{i}.json"), &format!(r#"{{"pid":{i},"started":500}}"#));
        }
        let pids = |chosen: Option<&str>, session: Option<&str>| -> Vec<u32> {
            let environment = Environment { chosen: chosen.map(PathBuf::from), session: session.map(PathBuf::from) };
            read_all(&files, &environment).iter().map(|s| s.pid).collect()
        };
        assert_eq!(pids(None, None), [10, 11]);
        assert_eq!(pids(None, Some("/session")), [10, 11, 12]);
        assert_eq!(pids(Some("/chosen"), Some("/session")), [13]);
        assert!(pids(Some("/none"), None).is_empty());
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
