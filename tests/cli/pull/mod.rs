//! Downloads from a hub on this machine, which is at fault in each way that a network and a server can be.

mod program;
mod server;

use kiln::testing::hub::Cache;
use kiln::testing::hub::name::HubName;
use kiln::testing::hub::pull::{Patience, PullSettings, PullWatch, Pulled, pull};
use kiln::{Cancel, Error};
use server::{Fault, Hub, sha256};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

/// Some bytes that are not alike anywhere.
fn some_bytes(count: usize) -> Vec<u8> {
    (0..count as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

/// What a download says, and when it is ended.
#[derive(Default)]
struct Watch {
    said: Mutex<Vec<String>>,
    /// Ends it once so many bytes are there.
    until: Option<u64>,
    cancel: Cancel,
}

impl PullWatch for Watch {
    fn progress(&self, done: u64, total: u64) {
        assert!(done <= total, "{done} of {total}");
        if self.until.is_some_and(|until| done >= until) {
            self.cancel.set();
        }
    }

    fn say(&self, line: &str) {
        self.said.lock().unwrap().push(line.to_owned());
    }

    fn cancel(&self) -> &Cancel {
        &self.cancel
    }
}

impl Watch {
    fn said(&self) -> String {
        self.said.lock().unwrap().join("\n")
    }
}

/// A cache beside a hub.
struct Place {
    dir: tempfile::TempDir,
    hub: Hub,
    token: Option<String>,
    retries: u32,
}

impl Place {
    fn new(files: &[(&str, &[u8])]) -> Place {
        Place { dir: tempfile::tempdir().unwrap(), hub: Hub::start(files), token: None, retries: 4 }
    }

    fn settings(&self) -> PullSettings {
        PullSettings {
            endpoint: self.hub.address.clone(),
            token: self.token.clone(),
            cache: Cache::at(self.dir.path()),
            patience: Patience {
                silence: Duration::from_secs(60),
                retries: self.retries,
                first_wait: Duration::from_millis(1),
                longest_wait: Duration::from_millis(4),
            },
        }
    }

    fn pull(&self, name: &str) -> (Result<Pulled, Error>, String) {
        let watch = Watch::default();
        let pulled = pull(&HubName::parse(name).unwrap(), &self.settings(), &watch);
        (pulled, watch.said())
    }

    fn pulled(&self, name: &str) -> Pulled {
        let (pulled, said) = self.pull(name);
        pulled.unwrap_or_else(|e| panic!("{e}\n{said}"))
    }

    fn refused(&self, name: &str) -> String {
        self.pull(name).0.unwrap_err().to_string()
    }

    fn at(&self, path: &str) -> PathBuf {
        self.dir.path().join("models--org--g").join(path)
    }

    /// The bytes that are there of a file that is not whole.
    fn partial(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        std::fs::read(self.at(&format!("blobs/{}.incomplete", sha256(bytes)))).ok()
    }
}

const FILE: &str = "g-Q8_0.gguf";

#[test]
fn a_file_lies_where_other_tools_look_for_it() {
    let bytes = some_bytes(700_000);
    let place = Place::new(&[(FILE, &bytes), ("g-Q4_K_M.gguf", b"other"), ("README.md", b"hello\n")]);
    let pulled = place.pulled("org/g:q8_0");
    let commit = "a".repeat(40);
    assert_eq!(pulled.path, place.at(&format!("snapshots/{commit}/{FILE}")));
    assert_eq!(std::fs::read(&pulled.path).unwrap(), bytes);
    assert_eq!(pulled.path.read_link().unwrap(), Path::new(&format!("../../blobs/{}", sha256(&bytes))));
    assert_eq!(std::fs::read_to_string(place.at("refs/main")).unwrap(), commit);
    assert_eq!((pulled.bytes, pulled.fetched), (700_000, 700_000));
    assert_eq!(pulled.model.unwrap().to_string(), "org/g:Q8_0");
    assert_eq!(std::fs::read_dir(place.at("blobs")).unwrap().count(), 1);
    assert_eq!(place.hub.requests().len(), 1);
    // What is here is not asked for again, and a new commit with the same bytes has a name for them.
    assert_eq!(place.pulled("org/g:Q8_0").fetched, 0);
    place.hub.state().commit = "b".repeat(40);
    let again = place.pulled("org/g:Q8_0");
    assert_eq!((again.fetched, place.hub.requests().len()), (0, 0));
    assert_eq!(again.path, place.at(&format!("snapshots/{}/{FILE}", "b".repeat(40))));
    assert_eq!(Cache::at(place.dir.path()).find(&HubName::parse("org/g").unwrap()).unwrap().path, again.path);
}

#[test]
fn a_directory_of_safetensors_comes_as_a_set() {
    let index = br#"{"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}"#;
    let place = Place::new(&[
        ("config.json", b"{}"),
        ("special_tokens_map.json", b"hello\n"),
        ("tokenizer.json", b"{\"a\": 1}"),
        ("model.safetensors.index.json", index),
        ("model-1.safetensors", &some_bytes(1000)),
        ("model-2.safetensors", &some_bytes(2000)),
        ("original/model.safetensors", b"x"),
        ("README.md", b"x"),
    ]);
    // As Git knows a small file.
    let id = "ce013625030ba8dba906f756967f9e9ca394464a".to_owned();
    place.hub.state().git.insert("special_tokens_map.json".into(), id.clone());
    place.hub.state().architecture = Some("llama".into());
    let (pulled, said) = place.pull("org/g");
    let pulled = pulled.unwrap();
    assert_eq!(pulled.path, place.at(&format!("snapshots/{}", "a".repeat(40))));
    assert_eq!(pulled.files.len(), 6);
    assert!(pulled.files.iter().all(|file| file.exists()));
    assert!(place.at(&format!("blobs/{id}")).exists());
    assert!(said.contains("org/g is a model of the kind llama, and Kiln runs Gemma 3"), "{said}");
    // A small file with other bytes is found out too.
    std::fs::remove_file(place.at(&format!("blobs/{id}"))).unwrap();
    place.hub.fail(&[Fault::WrongBytes]);
    let (pulled, said) = place.pull("org/g");
    assert_eq!(pulled.unwrap().fetched, 12, "it came twice");
    assert!(said.contains("special_tokens_map.json came with a wrong sum, and is fetched anew"), "{said}");
}

/// Each fault comes in the middle of a file, and what came before it is not asked for again.
#[test]
fn a_download_outlasts_each_fault_of_a_server() {
    let bytes = some_bytes(600_000);
    let status = |status: u16| Fault::Status(status, Vec::new());
    let later = |after: &str| vec![("Retry-After", after.to_owned())];
    for faults in [
        vec![Fault::Cut(100_000)],
        vec![Fault::Cut(0), Fault::Cut(1), Fault::Cut(300_000), Fault::Cut(0)],
        vec![Fault::Short(1)],
        vec![Fault::Short(400_000), Fault::Short(1)],
        vec![Fault::Long(5000)],
        vec![Fault::LongAndCut(5000)],
        vec![Fault::NoLength],
        vec![Fault::Cut(100_000), Fault::NoLength],
        vec![Fault::Cut(100_000), Fault::NoRange],
        vec![Fault::Cut(100_000), Fault::NoRangeCut(50_000), Fault::NoRangeCut(200_000)],
        vec![Fault::Cut(100_000), Fault::OtherRange],
        vec![Fault::Garbage, Fault::Garbage],
        vec![status(500), status(502), status(503)],
        vec![status(408), Fault::Cut(1000), status(504)],
        vec![Fault::Status(429, later("0")), Fault::Status(503, later("Sun, 06 Nov 1994 08:49:37 GMT"))],
        vec![Fault::Cut(100_000), Fault::Status(416, Vec::new())],
        vec![Fault::WrongBytes],
        vec![Fault::Cut(100_000), Fault::WrongBytes],
    ] {
        let place = Place::new(&[(FILE, &bytes)]);
        place.hub.fail(&faults);
        let pulled = place.pulled("org/g");
        assert!(std::fs::read(&pulled.path).unwrap() == bytes, "{faults:?}");
        assert_eq!(std::fs::read_dir(place.at("blobs")).unwrap().count(), 1, "{faults:?}");
        assert!(place.hub.state().faults.is_empty(), "{faults:?}");
        if matches!(faults[0], Fault::Cut(100_000)) {
            assert_eq!(place.hub.requests()[1].header("range"), Some("bytes=100000-"), "{faults:?}");
        }
    }
}

/// A server that is silent is left, and asked again.
#[test]
fn a_connection_that_is_silent_is_left() {
    let bytes = some_bytes(600_000);
    let place = Place::new(&[(FILE, &bytes)]);
    place.hub.fail(&[Fault::Stall(200_000)]);
    let mut settings = place.settings();
    settings.patience.silence = Duration::from_millis(500);
    // On a busy machine the hub itself may be silent for as long.
    settings.patience.retries = 1000;
    let watch = Watch::default();
    let pulled = pull(&HubName::parse("org/g").unwrap(), &settings, &watch).unwrap();
    assert!(std::fs::read(&pulled.path).unwrap() == bytes);
    let after: Vec<_> =
        place.hub.requests().iter().filter_map(|request| request.header("range").map(str::to_owned)).collect();
    assert!(!after.is_empty(), "it goes on where the silence began");
}

#[test]
fn what_cannot_be_had_leaves_what_came_and_says_so_in_a_line() {
    let bytes = some_bytes(600_000);
    let place = Place::new(&[(FILE, &bytes)]);
    // A server that gains nothing any more.
    place.hub.fail(&[Fault::Cut(100_000), Fault::Cut(0), Fault::Cut(0), Fault::Cut(0), Fault::Cut(0), Fault::Cut(0)]);
    let line = place.refused("org/g");
    assert!(
        line.contains("cannot fetch g-Q8_0.gguf: ")
            && line.ends_with("; the same command goes on where this one stopped"),
        "{line}"
    );
    assert_eq!(place.partial(&bytes).unwrap(), bytes[..100_000]);
    assert!(!place.at("refs/main").exists() && !place.at("snapshots").exists());
    assert_eq!(Cache::at(place.dir.path()).partials().len(), 1);
    place.hub.state().faults.clear();
    place.hub.requests();
    let (pulled, said) = place.pull("org/g");
    assert_eq!(pulled.unwrap().fetched, 500_000);
    assert!(said.contains("g-Q8_0.gguf goes on after 100.0 kB of 600.0 kB"), "{said}");
    assert_eq!(place.hub.requests()[0].header("range"), Some("bytes=100000-"));

    // Wrong bytes each time are kept under no name.
    let place = Place::new(&[(FILE, &bytes)]);
    place.hub.fail(&[Fault::WrongBytes, Fault::WrongBytes]);
    let line = place.refused("org/g");
    assert!(line.contains("came 2 times with another sum than the hub names"), "{line}");
    assert_eq!(std::fs::read_dir(place.at("blobs")).unwrap().count(), 0);

    // More than the file has is none of it.
    let place = Place::new(&[(FILE, &bytes)]);
    std::fs::create_dir_all(place.at("blobs")).unwrap();
    std::fs::write(place.at(&format!("blobs/{}.incomplete", sha256(&bytes))), some_bytes(700_000)).unwrap();
    let (pulled, said) = place.pull("org/g");
    assert_eq!(pulled.unwrap().fetched, 600_000);
    assert!(said.contains("more has come of g-Q8_0.gguf than the hub says it has"), "{said}");
    // A server that asks for hours is not waited for.
    let place = Place::new(&[(FILE, &bytes)]);
    place.hub.fail(&[Fault::Status(429, vec![("Retry-After", "7200".into())])]);
    assert!(place.refused("org/g").contains("takes no more requests for now (429)"));
}

/// The rule is the statuses' and the hub's own words for them; the list and a file are refused alike.
#[test]
fn a_refusal_names_its_remedy() {
    let gated = || vec![("X-Error-Code", "GatedRepo".to_owned())];
    let said = || vec![("X-Error-Message", "Invalid credentials in Authorization header".to_owned())];
    for (token, fault, words) in [
        (
            None,
            Fault::Status(401, Vec::new()),
            ["there is none that is open to all (401)", "set HF_TOKEN to a token of"],
        ),
        (None, Fault::Status(401, gated()), ["who have accepted its terms (401)", "accept them at "]),
        (
            Some("hf_x"),
            Fault::Status(401, said()),
            ["does not take the token (401): Invalid credentials", "`hf auth login`"],
        ),
        (Some("hf_x"), Fault::Status(403, gated()), ["its terms are not accepted yet (403)", "accept them at "]),
        (Some("hf_x"), Fault::Status(403, Vec::new()), ["the token may not read it (403)", "/settings/tokens"]),
        (None, Fault::Status(404, Vec::new()), ["there is none (404)", "check the name at "]),
        (None, Fault::Status(410, Vec::new()), ["the hub answers with 410", "look at "]),
    ] {
        for is_list in [true, false] {
            let mut place = Place::new(&[(FILE, b"abc")]);
            place.token = token.map(str::to_owned);
            match is_list {
                true => place.hub.state().list_faults.push_back(fault.clone()),
                false => place.hub.fail(std::slice::from_ref(&fault)),
            }
            let (pulled, asked_again) = place.pull("org/g");
            let e = pulled.unwrap_err();
            let line = e.to_string();
            assert!(words.iter().all(|word| line.contains(word)), "{fault:?}: {line}");
            assert_eq!((e.exit_code(), asked_again.as_str()), (2, ""), "{line}");
            assert!(!line.contains("hf_x"), "no token is shown: {line}");
        }
    }
    let place = Place::new(&[(FILE, b"abc"), ("g-Q4_K_M.gguf", b"ab")]);
    let line = place.refused("org/g");
    assert_eq!(line, "org/g may be any of 2 models: Q4_K_M (2 B), Q8_0 (3 B); name one, as in org/g:Q4_K_M");
    assert!(place.refused("org/g/g-Q8_1.gguf").contains("the one most like it is g-Q8_0.gguf"));
}

#[test]
fn a_list_outlasts_a_servers_faults_too() {
    let place = Place::new(&[(FILE, b"abc")]);
    let faults = [Fault::Cut(10), Fault::Status(503, Vec::new()), Fault::Garbage];
    place.hub.state().list_faults.extend(faults);
    assert_eq!(place.pulled("org/g").fetched, 3);
    place.hub.state().commit = "no commit".into();
    assert!(place.refused("org/g").contains("is none of a hub: its commit is no commit"));
}

#[test]
fn a_file_that_changes_on_the_way_is_listed_anew() {
    let bytes = some_bytes(600_000);
    let place = Place::new(&[(FILE, &bytes)]);
    place.hub.fail(&[Fault::Cut(100_000), Fault::OtherEtag]);
    let (pulled, said) = place.pull("org/g");
    assert_eq!(pulled.unwrap().fetched, 500_000, "what came was of the version that is listed");
    assert!(said.contains("org/g has changed on the hub meanwhile; the new version is fetched"), "{said}");
    assert_eq!(place.hub.state().lists.len(), 2);
    // One that is never what the list says.
    let place = Place::new(&[(FILE, &bytes)]);
    place.hub.fail(&[Fault::Cut(1000), Fault::OtherEtag, Fault::OtherEtag, Fault::OtherEtag]);
    let line = place.refused("org/g");
    assert!(line.contains("are not what the hub's list says, 3 times in a row"), "{line}");
    assert_eq!(place.partial(&bytes).unwrap().len(), 1000);
    // Between two commands: the new version comes whole, and what is left of the old one is told.
    let newer = some_bytes(500_000);
    place.hub.state().files.insert(FILE.into(), newer.clone());
    place.hub.state().commit = "c".repeat(40);
    let (pulled, said) = place.pull("org/g");
    assert_eq!(std::fs::read(pulled.unwrap().path).unwrap(), newer);
    assert!(said.contains("1.0 kB of a file that the repository no longer has are left in "), "{said}");
    assert_eq!(place.partial(&bytes).unwrap().len(), 1000);
}

#[test]
fn the_token_goes_to_the_hub_and_not_where_it_sends_on_to() {
    let bytes = some_bytes(600_000);
    let mut place = Place::new(&[(FILE, &bytes)]);
    let elsewhere = Hub::start(&[(FILE, &bytes)]);
    place.token = Some("hf_secret".into());
    place.hub.state().elsewhere = Some(elsewhere.address.clone());
    // An address that has grown too old is asked for anew, whatever the other host says of it.
    elsewhere.fail(&[Fault::Cut(100_000), Fault::Status(403, Vec::new()), Fault::Status(404, Vec::new())]);
    let pulled = place.pulled("org/g");
    assert!(std::fs::read(pulled.path).unwrap() == bytes);
    let (of_hub, of_other) = (place.hub.requests(), elsewhere.requests());
    assert_eq!((of_hub.len(), of_other.len()), (4, 4));
    assert!(of_hub.iter().all(|request| request.header("authorization") == Some("Bearer hf_secret")));
    assert!(of_other.iter().all(|request| request.header("authorization").is_none()));
    assert_eq!(of_other[3].header("range"), Some("bytes=100000-"));
    assert_eq!(place.hub.state().lists[0].header("authorization"), Some("Bearer hf_secret"));
}

#[test]
fn a_download_that_is_ended_keeps_what_came() {
    let bytes = some_bytes(900_000);
    let place = Place::new(&[(FILE, &bytes)]);
    // The rest never comes, so that only the end ends it.
    place.hub.fail(&[Fault::Stall(400_000)]);
    let watch = Watch { until: Some(400_000), ..Watch::default() };
    let e = pull(&HubName::parse("org/g").unwrap(), &place.settings(), &watch).unwrap_err();
    assert!(matches!(e, Error::Interrupted { .. }), "{e}");
    assert_eq!(place.partial(&bytes).unwrap(), bytes[..400_000]);
    place.hub.requests();
    assert_eq!(place.pulled("org/g").fetched, 500_000);
}

/// The connection is silent, and would be for a minute.
#[test]
fn a_download_that_waits_is_ended_at_once() {
    let bytes = some_bytes(900_000);
    let place = Place::new(&[(FILE, &bytes)]);
    place.hub.fail(&[Fault::Stall(400_000)]);
    let watch = Watch::default();
    let e = std::thread::scope(|scope| {
        let running = scope.spawn(|| pull(&HubName::parse("org/g").unwrap(), &place.settings(), &watch));
        while place.partial(&bytes).is_none_or(|came| came.len() < 400_000) {
            std::thread::sleep(Duration::from_millis(5));
        }
        watch.cancel.set();
        running.join().unwrap().unwrap_err()
    });
    assert!(matches!(e, Error::Interrupted { .. }), "{e}");
    assert_eq!(place.partial(&bytes).unwrap().len(), 400_000);
}

#[test]
fn two_downloads_at_once_fetch_a_file_once() {
    let bytes = some_bytes(900_000);
    let place = Place::new(&[(FILE, &bytes)]);
    let fetched: u64 = std::thread::scope(|scope| {
        let both = [0, 1].map(|_| scope.spawn(|| place.pulled("org/g").fetched));
        both.into_iter().map(|one| one.join().unwrap()).sum()
    });
    assert_eq!((fetched, place.hub.requests().len()), (900_000, 1));
}
