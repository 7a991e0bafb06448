//! `kiln pull` and `kiln list` as a script uses them.

use super::server::{Fault, Hub};
use crate::common::gguf::{Float, add_tokenizer, golden_model};
use crate::common::golden;
use crate::common::program::{Ran, program, run};
use std::path::Path;
use std::process::Command;

/// A model as a GGUF file.
fn model() -> Vec<u8> {
    let mut file = golden_model("tiny", Float::Bf16);
    add_tokenizer(&mut file, &std::fs::read(golden("tokenizer/tokenizer.json")).unwrap());
    file.bytes()
}

fn with(hub: &Hub, home: &Path, mut command: Command) -> Command {
    for name in [
        "HF_HUB_CACHE",
        "HUGGINGFACE_HUB_CACHE",
        "HF_TOKEN",
        "HF_TOKEN_PATH",
        "HF_HUB_OFFLINE",
        "HTTP_PROXY",
        "http_proxy",
    ] {
        command.env_remove(name);
    }
    command.env("HF_ENDPOINT", &hub.address).env("HF_HOME", home).env("NO_PROXY", "127.0.0.1");
    command
}

fn kiln(hub: &Hub, home: &Path, arguments: &[&str]) -> Ran {
    run(with(hub, home, program()).args(arguments), b"")
}

#[test]
fn a_model_is_downloaded_listed_run_and_copied() {
    let (home, bytes) = (tempfile::tempdir().unwrap(), model());
    let hub = Hub::start(&[("tiny-BF16.gguf", &bytes), ("tiny-Q4_K_M.gguf", b"x"), ("mmproj-F16.gguf", b"x")]);
    let ask = |arguments: &[&str]| kiln(&hub, home.path(), arguments);
    ask(&["pull", "org/tiny"])
        .refused(2, &["org/tiny may be any of 2 models: BF16 (", "name one, as in org/tiny:Q4_K_M"]);
    ask(&["pull", "tiny"]).refused(2, &["\"tiny\" names no model of the hub"]);
    ask(&["tokenize", "-m", "org/tiny:bf16", "Hello"]).refused(2, &["run `kiln pull org/tiny:bf16`"]);
    let pulled = ask(&["pull", "org/tiny:bf16"]);
    assert_eq!(pulled.code, 0, "{}", pulled.stderr);
    let file = home.path().join(format!("hub/models--org--tiny/snapshots/{}/tiny-BF16.gguf", "a".repeat(40)));
    assert_eq!(pulled.stdout, format!("{}\n", file.display()));
    assert!(pulled.stderr.contains("kiln: next: kiln run -m org/tiny:BF16"), "{}", pulled.stderr);
    let again = ask(&["pull", "org/tiny:bf16", "--json"]).json();
    assert_eq!((again["fetched"].as_u64(), again["model"].as_str()), (Some(0), Some("org/tiny:BF16")));
    for name in ["org/tiny:bf16", "org/tiny", "org/tiny/tiny-BF16.gguf"] {
        assert_eq!(ask(&["tokenize", "-m", name, "Hello"]).code, 0, "{name}");
    }
    let list = ask(&["list", "--device", "cpu", "--json"]).json();
    let line = &list["models"][0];
    assert_eq!((line["name"].as_str(), line["weights"].as_str()), (Some("org/tiny:BF16"), Some("bf16")));
    assert_eq!((line["fits"].as_bool(), line["bytes"].as_u64()), (Some(true), Some(bytes.len() as u64)));
    let text = ask(&["list", "--device", "cpu"]).stdout;
    assert!(
        text.contains("org/tiny:BF16  bf16") && text.contains("tiny-BF16.gguf") && text.contains("  fits  "),
        "{text}"
    );
    assert_eq!(ask(&["ls", "--names"]).stdout, "org/tiny:BF16\n");

    // Out of the cache, without asking the hub.
    let stick = home.path().join("stick");
    let asked = hub.state().lists.len();
    let copied = ask(&["pull", "org/tiny:bf16", "--export", stick.to_str().unwrap()]);
    assert_eq!((copied.code, hub.state().lists.len()), (0, asked), "{}", copied.stderr);
    assert_eq!(copied.stdout, format!("{}\n", stick.join("tiny-BF16.gguf").display()));
    let checked = Command::new("sha256sum").args(["-c", "SHA256SUMS"]).current_dir(&stick).output().unwrap();
    assert!(checked.status.success());
    assert_eq!(ask(&["tokenize", "-m", stick.to_str().unwrap(), "Hello"]).code, 0);
}

#[test]
fn a_disk_that_is_full_keeps_what_came() {
    let (home, bytes) = (tempfile::tempdir().unwrap(), model());
    assert!(bytes.len() > 16_384, "{}", bytes.len());
    let hub = Hub::start(&[("tiny-BF16.gguf", &bytes)]);
    // A limit on the size of files, in KiB, is met as a full disk is.
    let mut limited = Command::new("bash");
    let kiln_path = program().get_program().to_owned();
    limited.args(["-c", "ulimit -f 8; exec \"$0\" \"$@\""]).arg(kiln_path).args(["pull", "org/tiny"]);
    let ran = run(&mut with(&hub, home.path(), limited), b"");
    ran.refused(1, &["cannot write ", ".incomplete", "ulimit -f"]);
    hub.requests();
    let ran = kiln(&hub, home.path(), &["pull", "org/tiny"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!(hub.requests()[0].header("range"), Some("bytes=8192-"));
    assert_eq!(std::fs::read(ran.stdout.trim_end()).unwrap(), bytes);
}

#[test]
fn what_the_environment_says_is_heeded() {
    let home = tempfile::tempdir().unwrap();
    let hub = Hub::start(&[("tiny-BF16.gguf", b"abc")]);
    let with_variable = |name: &str, value: &str| {
        run(with(&hub, home.path(), program()).env(name, value).args(["pull", "org/tiny"]), b"")
    };
    with_variable("HF_HUB_OFFLINE", "1").refused(2, &["HF_HUB_OFFLINE is set"]);
    with_variable("HF_ENDPOINT", "ftp://x").refused(2, &["HF_ENDPOINT is \"ftp://x\", which is no address"]);
    with_variable("HF_TOKEN", "a b").refused(2, &["the token of the hub"]);
    with_variable("SSL_CERT_FILE", "/dev/null").refused(2, &["SSL_CERT_FILE is /dev/null, which has no certificate"]);
    std::fs::write(home.path().join("token"), "hf_of_file\n").unwrap();
    hub.state().list_faults.push_back(Fault::Status(404, Vec::new()));
    with_variable("RUST_LOG", "warn").refused(2, &["there is none (404)"]);
    assert_eq!(hub.state().lists.last().unwrap().header("authorization"), Some("Bearer hf_of_file"));
    // Through a proxy, which is this hub: it is asked to connect.
    let proxied = run(
        with(&hub, home.path(), program())
            .env("NO_PROXY", "")
            .env("HTTP_PROXY", &hub.address)
            .args(["pull", "org/tiny"]),
        b"",
    );
    assert_ne!(proxied.code, 0, "{}", proxied.stdout);
    assert!(hub.requests().iter().any(|request| request.path.starts_with("127.0.0.1:")), "{}", proxied.stderr);
}
