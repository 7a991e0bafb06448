//! Reports of living, dead and lying processes, in directories with arbitrary other files.

use super::*;
use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A machine with only the files that a test creates.
struct FakeRun {
    files: Files,
    _root: tempfile::TempDir,
    uid: u32,
}

impl FakeRun {
    fn new() -> FakeRun {
        let root = tempfile::tempdir().unwrap();
        FakeRun { files: Files::under(root.path()), _root: root, uid: nix::unistd::geteuid().as_raw() }
    }

    fn put(&self, path: &str, text: impl AsRef<[u8]>) {
        let at = self.files.at(path);
        std::fs::create_dir_all(at.parent().unwrap()).unwrap();
        std::fs::write(at, text).unwrap();
    }

    /// Adds a process of the user `uid`.
    fn run(&self, pid: u32, uid: u32) {
        self.put(&format!("/proc/{pid}/stat"), format!("{pid} (ki) ln) S {} 500 0", vec!["1"; 18].join(" ")));
        self.put(&format!("/proc/{pid}/status"), format!("Name:\tkiln\nUid:\t9\t{uid}\t9\t9\nGid:\t9\t9\t9\t9\n"));
    }

    /// Adds a process of this user that reports in `directory`.
    fn report(&self, directory: &str, pid: u32) {
        self.run(pid, self.uid);
        self.put(&format!("{directory}/{pid}.json"), format!(r#"{{"pid":{pid},"started":500}}"#));
    }

    fn seen(&self, environment: &Environment) -> Vec<u32> {
        read_all(&self.files, environment).iter().map(|s| s.pid).collect()
    }
}

/// A Kiln's report.
fn report_of(pid: u32, started: u64) -> String {
    serde_json::to_string(&Status { pid, started, command: "run".into(), ..Status::default() }).unwrap()
}

fn environment(chosen: Option<&str>, service: Option<&str>, session: Option<&str>) -> Environment {
    let [chosen, service, session] = [chosen, service, session].map(|d| d.map(PathBuf::from));
    Environment { chosen, service, session }
}

#[test]
fn a_process_reports_while_it_runs_and_is_gone_after() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap().to_owned();
    let files = Files::system();
    // A dead process's file is removed, other files stay. No process has this number.
    std::fs::write(dir.path().join("4194305.json"), report_of(4194305, 5)).unwrap();
    std::fs::write(dir.path().join("notes"), "").unwrap();
    let waiting = Arc::new(AtomicU64::new(0));
    let queue = waiting.clone();
    let fill = move |status: &mut Status| status.queue = queue.load(Ordering::Relaxed);
    let reporter = Reporter::start_in(dir.path(), "run", "demo", "a device", fill).unwrap();
    let own = dir.path().join(format!("{}.json", std::process::id()));
    assert!(own.exists() && dir.path().join("notes").exists() && !dir.path().join("4194305.json").exists());
    let one = || read_directory(&files, &path).pop().unwrap();
    let before = one();
    assert_eq!((before.command.as_str(), before.model.as_str(), before.pid), ("run", "demo", std::process::id()));
    counts::count_decoded(3);
    counts::count_prefilled(512);
    counts::count_prefilled(512);
    waiting.store(7, Ordering::Relaxed);
    // Other tests of this process count tokens too.
    let is_told =
        |s: &Status| s.queue == 7 && s.decoded >= before.decoded + 3 && s.prefilled >= before.prefilled + 1024;
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_told(&one()) {
        assert!(Instant::now() < deadline, "{:?}", one());
        std::thread::sleep(Duration::from_millis(20));
    }
    drop(reporter);
    assert_eq!(files.list(&path).unwrap(), ["notes"]);
}

/// The window always has the last two reports, regardless of the time between them.
#[test]
fn rates_are_of_what_was_counted_since_the_window_began() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("report.json");
    let mut meter = RateMeter { status: Status::default(), past: Vec::new(), fill: Box::new(|_| {}) };
    let report = |meter: &mut RateMeter| {
        meter.write(&file).unwrap();
        serde_json::from_slice::<Status>(&std::fs::read(&file).unwrap()).unwrap()
    };
    let first = report(&mut meter);
    assert_eq!((first.decode_tokens_s, first.prefill_tokens_s), (0.0, 0.0));
    // Makes that report older than the window.
    meter.past[0].0 = meter.past[0].0.checked_sub(2 * WINDOW).unwrap();
    counts::count_decoded(3);
    counts::count_prefilled(512);
    let second = report(&mut meter);
    assert!(second.decode_tokens_s > 0.0 && second.prefill_tokens_s > 0.0, "{second:?}");
}

/// The directory may be any of the user's, with arbitrary files.
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
    put("4194305.json", &report_of(4194305, 5));
    // A report with the number of a process that lives now.
    put(&format!("{own}.json"), &report_of(own, own_started - 1));
    put("elsewhere", &report_of(4194307, 5));
    let kept = [
        ("4194306.json", r#"{"pid":4194306,"started":5}"#),
        ("4194306.next", &report_of(4194306, 5)),
        (&format!("{own}.next"), ""),
        ("999999.pdf", "a document"),
        ("4194305.txt", "notes"),
        ("4194305.json.bak", &report_of(4194305, 5)),
        ("04194305.json", &report_of(4194305, 5)),
        ("+4194305.json", &report_of(4194305, 5)),
        ("4194308.json", r#"{"invoice":7}"#),
        ("4194309.json", ""),
        ("4194310.json", "[1, 2]"),
        ("4194311.next", "chapter 2"),
        ("4194312.json", &report_of(4194305, 5)),
        ("4294967296.json", &report_of(0, 5)),
        (&format!("{alive}.json"), &report_of(alive, alive_started)),
        (&format!("{alive}.next"), ""),
    ];
    kept.iter().for_each(|(name, text)| put(name, text));
    let later = format!(r#","later":"{}"}}"#, "x".repeat(MAX_BYTES as usize));
    put("4194313.json", &report_of(4194313, 5).replace('}', &later));
    std::fs::create_dir(at("4194314.json")).unwrap();
    symlink("elsewhere", at("4194307.json")).unwrap();
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

/// A process does not report if a file of the user's happens to have its name.
#[test]
fn nothing_of_the_users_is_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    let name = |suffix: &str| dir.path().join(format!("{}.{suffix}", std::process::id()));
    std::fs::write(dir.path().join("letter"), "text").unwrap();
    for (suffix, start) in [("json", false), ("next", true), ("txt", true)] {
        symlink("letter", name(suffix)).unwrap();
        assert_eq!(Reporter::start_in(dir.path(), "run", "demo", "a device", |_| {}).is_ok(), start, "{suffix}");
        assert_eq!(std::fs::read_link(name(suffix)).unwrap(), Path::new("letter"));
        assert_eq!(std::fs::read(dir.path().join("letter")).unwrap(), b"text");
        std::fs::remove_file(name(suffix)).unwrap();
    }
}

#[test]
fn a_chosen_directory_is_the_only_one() {
    let fake = FakeRun::new();
    let places = ["/run/kiln", "/run/user/1000/kiln", "/run/kiosk/kiln", "/session/kiln", "/chosen"];
    (10..).zip(places).for_each(|(pid, place)| fake.report(place, pid));
    fake.report(&format!("/tmp/kiln-{}", fake.uid), 15);
    let seen = |chosen, session| fake.seen(&environment(chosen, None, session));
    assert_eq!(seen(None, None), [10, 11, 12, 15]);
    assert_eq!(seen(None, Some("/session")), [10, 11, 12, 13, 15]);
    assert_eq!(seen(None, Some("/run/user/1000")), [10, 11, 12, 15]);
    assert_eq!(seen(Some("/chosen"), Some("/session")), [14]);
    assert!(seen(Some("/none"), None).is_empty());
    symlink("user", fake.files.at("/run/also")).unwrap();
    assert_eq!(seen(None, Some("/run/also/1000")), [10, 11, 12, 15], "each once");
}

/// Like a systemd unit with `User=`: without a session, and perhaps with a private /tmp.
#[test]
fn a_process_without_a_session_reports_where_top_looks() {
    let own = |chosen, service, session, uid| environment(chosen, service, session).own(uid);
    let paths = |all: &[&str]| all.iter().map(PathBuf::from).collect::<Vec<_>>();
    assert_eq!(own(None, None, None, 990), paths(&["/tmp/kiln-990"]));
    assert_eq!(own(None, Some("/run/kiosk"), None, 990), paths(&["/run/kiosk/kiln", "/tmp/kiln-990"]));
    assert_eq!(own(None, None, None, 0), paths(&["/run/kiln", "/tmp/kiln-0"]));
    let session = Some("/run/user/990");
    assert_eq!(own(None, None, session, 990), paths(&["/run/user/990/kiln", "/tmp/kiln-990"]));
    let unit = Some("/run/user/990/kiosk");
    assert_eq!(own(None, unit, session, 990), paths(&["/run/user/990/kiln", "/tmp/kiln-990"]));
    assert_eq!(own(None, Some("/run/kiln/one"), None, 990), paths(&["/tmp/kiln-990"]), "no top looks so deep");
    assert_eq!(own(Some("/chosen"), unit, session, 0), paths(&["/chosen"]));
    let (dir, uid) = (tempfile::tempdir().unwrap(), nix::unistd::geteuid().as_raw());
    assert!(is_own(dir.path(), uid) && !is_own(dir.path(), uid + 1) && !is_own(&dir.path().join("absent"), uid));

    let fake = FakeRun::new();
    fake.report("/run/kiosk/kiln", 10);
    fake.report("/run/kiln/kiln", 11);
    fake.report(&format!("/tmp/kiln-{}", fake.uid), 12);
    assert_eq!(fake.seen(&Environment::default()), [10, 11, 12]);
}

#[test]
fn a_user_speaks_of_processes_of_that_users_alone() {
    let fake = FakeRun::new();
    let (uid, other) = (fake.uid, fake.uid + 1);
    // A directory named after another user, and a process of another user.
    fake.report(&format!("/tmp/kiln-{other}"), 10);
    fake.report(&format!("/tmp/kiln-{uid}"), 11);
    fake.run(11, other);
    fake.report("/tmp/kiln-0x", 12);
    fake.report(&format!("/tmp/kiln-0{uid}"), 13);
    fake.report(&format!("/tmp/kiln-{uid}"), 14);
    std::fs::remove_file(fake.files.at("/proc/14/status")).unwrap();
    assert!(fake.seen(&Environment::default()).is_empty());
    fake.run(11, uid);
    assert_eq!(fake.seen(&Environment::default()), [11]);
    // Neither a link to a directory nor a file counts as a directory.
    let own = fake.files.at(&format!("/tmp/kiln-{uid}"));
    std::fs::rename(&own, fake.files.at("/tmp/elsewhere")).unwrap();
    symlink("elsewhere", &own).unwrap();
    assert!(fake.seen(&Environment::default()).is_empty());
    std::fs::remove_file(&own).unwrap();
    std::fs::write(&own, "").unwrap();
    assert!(fake.seen(&Environment::default()).is_empty());
}

#[test]
fn whatever_lies_in_a_users_directory_the_rest_is_read() {
    let fake = FakeRun::new();
    let directory = format!("/tmp/kiln-{}", fake.uid);
    let at = |name: &str| fake.files.at(&format!("{directory}/{name}"));
    let good = |pid: u32, more: &str| format!(r#"{{"pid":{pid},"started":500{more}}}"#);
    (10..30).for_each(|pid| fake.run(pid, fake.uid));
    fake.report(&directory, 10);
    fake.put(&format!("{directory}/11.json"), good(11, &format!(r#","later":"{}""#, "x".repeat(MAX_BYTES as usize))));
    fake.put(&format!("{directory}/12.json"), good(12, &format!(r#","later":{}"#, "[".repeat(10_000))));
    fake.put(&format!("{directory}/13.json"), b"\xff\x00\x1b[31m");
    fake.put("/home/14.json", good(14, ""));
    symlink(fake.files.at("/home/14.json"), at("14.json")).unwrap();
    symlink("15.json", at("15.json")).unwrap();
    symlink("/dev/zero", at("16.json")).unwrap();
    nix::unistd::mkfifo(&at("17.json"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    std::fs::create_dir(at("18.json")).unwrap();
    std::fs::File::create(at("20.json")).unwrap().set_len(1 << 30).unwrap();
    fake.put(&format!("{directory}/021.json"), good(21, ""));
    (1_000_000..1_003_000).for_each(|pid| fake.put(&format!("{directory}/{pid}.json"), ""));
    assert_eq!(fake.seen(&Environment::default()), [10]);
}

#[test]
fn files_of_dead_processes_and_files_that_lie_are_ignored() {
    let fake = FakeRun::new();
    let files = &fake.files;
    fake.run(10, fake.uid);
    let good = r#"{"pid":10,"started":500,"command":"run","decode_tokens_s":3.3,"later":[1]}"#;
    fake.put("/run/kiln/10.json", good);
    let all = read_directory(files, "/run/kiln");
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
        fake.put(&format!("/run/kiln/{name}"), &text);
        assert_eq!(read_directory(files, "/run/kiln"), [], "{name}: {text}");
    }
}
