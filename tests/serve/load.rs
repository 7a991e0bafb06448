//! Many clients at once, for a minute: whoever stays gets the answer that is its own, whoever leaves holds up nobody, and the
//! server's memory stays what it was.

use super::client::{PATIENCE, Server, command};
use super::common::Random;
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const CLIENTS: usize = 32;
/// The gap of two log-probabilities below which rounding may decide between two tokens on a GPU.
const TOLERANCE: f64 = 0.05;
/// Bytes by which the server's memory may grow: threads' stacks and allocators' slack.
const SLACK: u64 = 48 << 20;

/// A question with its answer when nobody else asks.
struct Asked {
    body: Value,
    tokens: Vec<String>,
    /// Tokens up to the first that rounding may change.
    certain: usize,
}

/// Opens a stream of the answer to `body`.
fn open(server: &Server, body: &Value) -> BufReader<UnixStream> {
    let mut stream = BufReader::new(server.ask("POST", "/v1/chat/completions", &body.to_string()));
    let mut status = String::new();
    stream.read_line(&mut status).unwrap();
    assert!(status.starts_with("HTTP/1.1 200 "), "{status}{body}");
    stream
}

/// The next event of a stream; `None`: it is complete.
fn next(stream: &mut BufReader<UnixStream>) -> Option<Value> {
    let mut line = String::new();
    loop {
        line.clear();
        assert!(stream.read_line(&mut line).unwrap() > 0, "the stream is cut off");
        if let Some(data) = line.trim_end().strip_prefix("data: ") {
            return (data != "[DONE]").then(|| serde_json::from_str(data).unwrap());
        }
    }
}

/// A token of each event, with the gap of its log-probability to the next likely token's.
fn tokens(event: &Value) -> impl Iterator<Item = (String, f64)> {
    let content = event["choices"][0]["logprobs"]["content"].as_array().cloned().unwrap_or_default();
    content.into_iter().map(|token| {
        let top = |i: usize| token["top_logprobs"][i]["logprob"].as_f64().unwrap();
        (token["token"].as_str().unwrap().to_owned(), top(0) - top(1))
    })
}

fn ask_alone(server: &Server, body: Value) -> Asked {
    let mut stream = open(server, &body);
    let all: Vec<(String, f64)> =
        std::iter::from_fn(|| next(&mut stream)).flat_map(|event| tokens(&event).collect::<Vec<_>>()).collect();
    let certain = all.iter().position(|(_, gap)| *gap < TOLERANCE).unwrap_or(all.len());
    Asked { body, tokens: all.into_iter().map(|(token, _)| token).collect(), certain }
}

/// Bytes of memory that belong to the server alone.
pub fn memory(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.id())).unwrap();
    let field = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
    };
    field("RssAnon:") + field("VmSwap:")
}

/// What one client does until `end`, or until there are enough answers: asks, and stays for two answers of three. Counts whole answers.
fn client(server: &Server, asked: &[Asked], exact: bool, seed: u64, end: Instant, whole: &AtomicUsize) {
    let mut random = Random(seed + 1);
    // However slow the machine is, some answers are waited for.
    while Instant::now() < end || whole.load(Ordering::Relaxed) < CLIENTS / 4 {
        if random.below(4) == 0 {
            // Sampled, or by a schema: what counts is that it ends as it should.
            let mut body = asked[random.below(asked.len())].body.clone();
            body["temperature"] = json!(1);
            body["seed"] = json!(random.below(1000));
            if random.below(2) == 0 {
                let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": false});
                body["response_format"] =
                    json!({"type": "json_schema", "json_schema": {"name": "n", "schema": schema, "strict": true}});
                body["max_tokens"] = json!(40);
            }
            let mut stream = open(server, &body);
            let stays = random.below(3) != 0;
            let (mut text, mut is_whole) = (String::new(), false);
            while let Some(event) = next(&mut stream) {
                let choice = &event["choices"][0];
                text += choice["delta"]["content"].as_str().unwrap_or_default();
                // Numbers and blanks may meet the limit.
                is_whole |= choice["finish_reason"] == "stop";
                if !stays && random.below(4) == 0 {
                    break;
                }
            }
            if stays && is_whole && body.get("response_format").is_some() {
                let object: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text:?}"));
                assert!(object["n"].is_i64() || object["n"].is_u64() || object["n"].is_f64(), "{text}");
            }
            continue;
        }
        let question = &asked[random.below(asked.len())];
        let mut stream = open(server, &question.body);
        let leaves_after = (random.below(3) == 0).then(|| random.below(question.tokens.len() + 1));
        let mut given: Vec<String> = Vec::new();
        let mut left = leaves_after == Some(0);
        while !left {
            let Some(event) = next(&mut stream) else { break };
            given.extend(tokens(&event).map(|(token, _)| token));
            left = leaves_after.is_some_and(|count| given.len() >= count);
        }
        let compared = if exact { question.tokens.len() } else { question.certain }.min(given.len());
        assert_eq!(given[..compared], question.tokens[..compared], "{}", question.body);
        if !left {
            assert!(!exact || given.len() == question.tokens.len(), "{}: {given:?}", question.body);
            whole.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Runs the clients for `time` on a device.
fn run(device: &str, exact: bool, time: Duration) {
    let directory = tempfile::tempdir().unwrap();
    let serve = command(directory.path(), &["--device", device, "--batch", "8", "--ctx", "512", "--queue", "64"]);
    let mut server = Server::spawn(serve, directory);
    server.wait_to_say("kiln serve: ready");
    let filler = "The lift is on the left, behind the stairs. ".repeat(6);
    let questions = ["Who are you?", "What is a fence?", "Hello", "Why is the sky blue?", "What can you do?"];
    let asked: Vec<Asked> = (0..8)
        .map(|i| {
            let text = format!("{}{}", &filler[..filler.len() * (i % 4) / 4], questions[i % questions.len()]);
            let messages = [json!({"role": "user", "content": text})];
            ask_alone(&server, json!({
                "messages": messages, "temperature": 0, "max_tokens": 3 + 2 * i, "stream": true, "logprobs": true, "top_logprobs": 2,
            }))
        })
        .collect();
    assert!(asked.iter().all(|asked| !asked.tokens.is_empty()));

    let (start, whole) = (Instant::now(), AtomicUsize::new(0));
    let half = std::thread::scope(|scope| {
        for seed in 0..CLIENTS {
            let (server, asked, whole) = (&server, &asked[..], &whole);
            scope.spawn(move || client(server, asked, exact, seed as u64, start + time, whole));
        }
        std::thread::sleep(time / 2);
        memory(&server)
    });
    let end = memory(&server);
    assert!(end <= half + SLACK, "{half} bytes half way, {end} at the end");
    let whole = whole.into_inner();
    println!("{device}: {whole} whole answers of {CLIENTS} clients; {half} bytes half way, {end} at the end");
    // Nothing is left running of those who left, and no page either but those of prefixes.
    let until = Instant::now() + PATIENCE;
    while server.metric("kiln_sequences_running") + server.metric("kiln_queue_length") > 0.0 {
        assert!(Instant::now() < until, "sequences go on for nobody");
        std::thread::sleep(Duration::from_millis(50));
    }
    server.signal(Signal::SIGTERM);
    assert_eq!(server.wait().code(), Some(0), "{}", server.said());
}

#[test]
fn many_clients_get_their_own_answers_on_the_cpu() {
    run("cpu", true, Duration::from_secs(20));
}

#[test]
#[ignore = "ten minutes long: tools/test --full runs it"]
fn many_clients_get_their_own_answers_on_vulkan_for_ten_minutes() {
    run("vulkan", false, Duration::from_secs(600));
}
