//! Bundles: made, checked, put in place while a server runs, and what becomes of one that cannot be loaded.

use super::client::{PATIENCE, Server, command};
use super::common::program::kiln;
use nix::sys::signal::Signal;
use serde_json::Value;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;

fn golden(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(file)
}

/// A directory with a small model, in `place`.
pub fn small_model(place: &Path) -> PathBuf {
    let source = place.join("source");
    std::fs::create_dir(&source).unwrap();
    for file in
        ["tiny/config.json", "tiny/model.safetensors", "tokenizer/tokenizer.json", "tokenizer/tokenizer_config.json"]
    {
        let from = golden(file);
        std::fs::copy(&from, source.join(from.file_name().unwrap())).unwrap();
    }
    source
}

/// Makes a model's files others, by their times, so that a reload loads it anew.
pub fn touch(model: &Path) {
    let weights = std::fs::File::options().write(true).open(model.join("model.safetensors")).unwrap();
    weights.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
}

/// A directory with bundles of these names, all of one small model.
fn bundles(names: &[&str]) -> Arc<TempDir> {
    let place = tempfile::tempdir().unwrap();
    let source = small_model(place.path());
    for name in names {
        let to = place.path().join(name).display().to_string();
        let made =
            kiln(&["bundle", "make", "-m", source.to_str().unwrap(), "-o", &to, "--name", name, "--json"]).json();
        assert!(made["bytes"].as_u64().unwrap() > 10_000, "{made}");
    }
    place.into()
}

/// One byte of the weights is another.
fn damage(bundle: &Path) {
    let path = bundle.join("model.safetensors");
    let mut bytes = std::fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(path, bytes).unwrap();
}

fn link(place: &TempDir, name: &str, target: &str) {
    let path = place.path().join(name);
    let _ = std::fs::remove_file(&path);
    symlink(target, path).unwrap();
}

fn leads_to(place: &TempDir, name: &str) -> Option<String> {
    let target = place.path().join(name).read_link().ok()?;
    Some(target.display().to_string())
}

fn start(place: &Arc<TempDir>) -> Server {
    let link = place.path().join("current").display().to_string();
    let _ = std::fs::remove_file(place.path().join("socket"));
    Server::start_at(place.clone(), &["-m", &link, "--verify"])
}

fn model(server: &Server) -> Value {
    server.get("/v1/models").1["data"][0]["id"].clone()
}

fn reload(server: &Server, expected: &str) {
    server.signal(Signal::SIGHUP);
    let until = Instant::now() + PATIENCE;
    while model(server) != expected {
        assert!(Instant::now() < until, "{expected} does not come: {}", server.said());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_bundle_takes_anothers_place_while_a_server_runs() {
    let place = bundles(&["one", "two"]);
    let at = |name: &str| place.path().join(name).display().to_string();
    let put = |name: &str| kiln(&["bundle", "use", &at(name), &at("current"), "--json"]).json();
    assert_eq!(put("one")["previous"], Value::Null);
    let server = start(&place);
    assert_eq!(model(&server), "one");
    assert_eq!(
        (put("two")["previous"].clone(), leads_to(&place, "current.previous")),
        ("one".into(), Some("one".into()))
    );
    reload(&server, "two");
    let answer = server.post(
        "/v1/chat/completions",
        &serde_json::json!({"messages": [{"role": "user", "content": "a"}], "max_tokens": 2}),
    );
    assert_eq!((answer.0, &answer.1["model"]), (200, &"two".into()));
}

#[test]
fn a_bundle_that_cannot_be_loaded_gives_way_to_the_one_before_it() {
    let place = bundles(&["one", "two"]);
    damage(&place.path().join("two"));
    let at = |name: &str| place.path().join(name).display().to_string();
    assert!(kiln(&["bundle", "check", &at("one")]).stdout.contains("is whole: one, 4 files"));
    kiln(&["bundle", "check", &at("two")]).refused(2, &["model.safetensors is damaged"]);
    kiln(&["bundle", "use", &at("two"), &at("current")]).refused(2, &["is damaged"]);
    assert_eq!(leads_to(&place, "current"), None);
    // As if it were damaged once it was in its place: at a start, and while another runs.
    let spoil = || {
        link(&place, "current", "two");
        link(&place, "current.previous", "one");
    };
    spoil();
    let server = start(&place);
    let is_back = || {
        assert_eq!((leads_to(&place, "current"), leads_to(&place, "current.previous")), (Some("one".into()), None));
        assert!(server.said().contains("is damaged") && server.said().contains("going back"), "{}", server.said());
    };
    assert_eq!(model(&server), "one");
    is_back();
    spoil();
    server.signal(Signal::SIGHUP);
    server.wait_to_say("was loaded anew");
    assert_eq!(model(&server), "one");
    is_back();
    drop(server);
    // Without one before it, it is refused.
    link(&place, "current", "two");
    let mut refused =
        Server::spawn(command(place.path(), &["-m", &at("current"), "--verify", "--device", "cpu"]), place.clone());
    assert_eq!(refused.wait().code(), Some(2));
    assert!(refused.said().contains("is damaged"), "{}", refused.said());
}

#[test]
fn a_bundle_of_a_gguf_file_has_one_name_for_all() {
    let place = tempfile::tempdir().unwrap();
    let to = place.path().join("bundle");
    let made = kiln(&["bundle", "make", "-m", golden("gguf/model.gguf").to_str().unwrap(), "-o", to.to_str().unwrap()]);
    assert_eq!(made.code, 0, "{}", made.stderr);
    let manifest: Value = serde_json::from_slice(&std::fs::read(to.join("kiln-bundle.json")).unwrap()).unwrap();
    assert_eq!((&manifest["name"], &manifest["files"][0]["file"]), (&"model".into(), &"model.gguf".into()));
    kiln(&["bundle", "make", "-m", "demo", "-o", place.path().join("demo").to_str().unwrap()])
        .refused(2, &["built-in"]);
}

#[test]
fn a_hangup_loads_a_model_anew_only_where_its_files_are_others() {
    let place = tempfile::tempdir().unwrap();
    let model = small_model(place.path());
    let prompt = place.path().join("prompt");
    std::fs::write(&prompt, "a").unwrap();
    let arguments = ["-m", model.to_str().unwrap(), "--system-prompt", prompt.to_str().unwrap()].map(str::to_owned);
    let server = Server::start_at(place, &arguments.each_ref().map(String::as_str));
    server.signal(Signal::SIGHUP);
    server.wait_to_say("the model's files are the same");
    assert!(!server.said().contains("was loaded anew"), "{}", server.said());
    // What cannot be read is said, and the server goes on with what it had.
    std::fs::remove_file(&prompt).unwrap();
    std::fs::create_dir(&prompt).unwrap();
    touch(&model);
    server.signal(Signal::SIGHUP);
    server.wait_to_say("the system prompt stays as it was: ");
    server.wait_to_say("was loaded anew");
    assert_eq!(server.get("/readyz").0, 200);
}
