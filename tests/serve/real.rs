//! Real weights: Gemma 3 270M, whose prefixes a server keeps in a file for the next start.

use super::client::{Server, command};
use super::common::{gemma3_270m, golden};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::sync::Arc;

/// The continuation of a text, and how many of its tokens were in the cache.
fn go_on(server: &Server, text: &str) -> (Value, u64) {
    let asked = json!({"prompt": text, "temperature": 0, "max_tokens": 16});
    let (status, answer) = server.post("/v1/completions", &asked);
    assert_eq!(status, 200, "{answer}");
    let cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64();
    (answer["choices"][0]["text"].clone(), cached.unwrap_or_else(|| panic!("{answer}")))
}

/// Keys and values that were computed, written, read and used again give the same reply as those that are computed anew.
#[test]
#[ignore = "takes Gemma 3 270M (tools/fetch-gemma) and a minute: tools/test --full runs it"]
fn a_prefix_from_a_file_gives_the_same_reply() {
    let directory = Arc::new(tempfile::tempdir().unwrap());
    let file = directory.path().join("prefixes").display().to_string();
    let text: String = std::fs::read_to_string(golden("prose.txt")).unwrap().chars().take(1500).collect();
    let model = gemma3_270m();
    let base = ["-m", &model, "--device", "cpu", "--ctx", "512", "--batch", "2", "--tune", "off"];
    let start = |more: &[&str]| {
        let server = Server::spawn(command(directory.path(), &[&base[..], more].concat()), directory.clone());
        server.wait_to_say("kiln serve: ready");
        server
    };
    let stop = |mut server: Server| {
        server.signal(Signal::SIGTERM);
        assert_eq!(server.wait().code(), Some(0), "{}", server.said());
    };
    let first = start(&["--prefix-file", &file]);
    let (reply, cached) = go_on(&first, &text);
    assert_eq!(cached, 0);
    // What was asked once is not kept.
    assert!(go_on(&first, &format!("{text} And")).1 >= 256);
    stop(first);
    let second = start(&["--prefix-file", &file]);
    let (again, cached) = go_on(&second, &text);
    assert!(cached >= 256, "{cached} tokens: {}", second.said());
    assert_eq!(again, reply);
    stop(second);
}
