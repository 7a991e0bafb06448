//! The configuration file, keys that change, and the access log, as the owner of a kiosk has them.

use super::client::{PATIENCE, SMALL, Server, command};
use super::common::program::{kiln, program, run};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Instant;

fn write(directory: &Path, name: &str, text: &str) -> String {
    let path = directory.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

pub(super) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[test]
fn a_file_has_options_and_the_command_line_comes_first() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str, text: &str| write(directory.path(), name, text);
    let file = at("k.toml", "device = 'cpu'\nctx = 128\nbatch = 1\nmodel = 'demo'\n");
    let checked = |more: &[&str]| kiln(&[&["serve", "--config", &file, "--check", "--json"], more].concat()).json();
    let sizes = |checked: Value| (checked["slots"].as_u64().unwrap(), checked["context"].as_u64().unwrap());
    assert_eq!(sizes(checked(&[])), (1, 128));
    assert_eq!(sizes(checked(&["--batch", "2"])), (2, 128));
    // Files beside it, in the order of their names; what is no configuration is left alone.
    at("k.toml.d/20-last.toml", "ctx = 192\n");
    at("k.toml.d/10-first.toml", "ctx = 160\nbatch = 3\n");
    at("k.toml.d/notes", "no configuration");
    assert_eq!(sizes(checked(&[])), (3, 192));
    let by_variable = run(program().args(["serve", "--check", "--json"]).env("KILN_CONFIG", &file), b"").json();
    assert_eq!(sizes(by_variable), (3, 192));
    // The environment stands between.
    let model = run(program().args(["serve", "--config", &file, "--check"]).env("KILN_MODEL", "/no/such"), b"");
    model.refused(2, &["/no/such"]);

    at("k.toml.d/30-wrong.toml", "\nbatches = 3\n");
    kiln(&["serve", "--config", &file, "--check"])
        .refused(2, &["30-wrong.toml:2", "`batches`", "`batch` comes nearest"]);
    at("k.toml.d/30-wrong.toml", "strict-model = 'yes'\n");
    kiln(&["serve", "--config", &file]).refused(2, &["30-wrong.toml:1", "strict-model", "true or false"]);
    kiln(&["serve", "--config", "/no/such.toml"]).refused(2, &["/no/such.toml does not exist"]);
    let together = at("together.toml", "draft = 'demo'\n");
    let both = kiln(&["serve", "--config", &together, "--draft-text", "x"]);
    both.refused(2, &["together.toml", "--draft-text", "cannot be used with"]);
    assert_eq!(run(program().args(["run", "-p", "hi", "-n", "1"]).env("KILN_CONFIG", "/no/such"), b"").code, 0);
}

#[test]
fn a_hangup_takes_over_what_can_change_and_says_what_takes_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let english = std::fs::read_to_string("src/serve/page/languages/en.toml").unwrap();
    let words = write(directory.path(), "it.toml", &english.replace("\"Ask a question\"", "\"Chieda\""));
    let page = format!("page-language = '{words}'\n");
    let options = format!("temp = 0.5\nmax-tokens = 3\nctx = 256\n{page}");
    let file = write(directory.path(), "k.toml", &options);
    let mut serve = command(directory.path(), &["--device", "cpu", "--batch", "1", "--config", &file]);
    serve.env_remove("KILN_CONFIG");
    let server = Server::spawn(serve, directory);
    server.wait_to_say("kiln serve: ready");
    let first = server.said().lines().next().unwrap().to_owned();
    let version = concat!("kiln serve: kiln ", env!("CARGO_PKG_VERSION"), " (");
    assert!(first.starts_with(version) && first.ends_with(&format!("with the options of {file}")), "{first}");
    let defaults = || {
        let params = server.get("/props").1["default_generation_settings"]["params"].clone();
        (params["temperature"].as_f64().unwrap(), params["max_tokens"].as_i64().unwrap())
    };
    assert_eq!(defaults(), (0.5, 3));
    let page_says = |name: &str| {
        let page = server.get("/page.json").1;
        page.get(name).unwrap_or(&page["texts"][name]).clone()
    };
    assert_eq!((page_says("title"), page_says("ask")), (json!(null), json!("Chieda")));
    let question = json!({"messages": [{"role": "user", "content": "Who are you?"}]});
    let tokens = || server.post("/v1/chat/completions", &question).1["usage"]["completion_tokens"].as_u64().unwrap();
    assert_eq!(tokens(), 3);
    let directory = server.directory.clone();
    // The option is as it was, and its file is another.
    write(directory.path(), "it.toml", &english.replace("\"Ask a question\"", "\"Domandi\""));
    let logo = write(directory.path(), "logo.svg", "<svg xmlns='http://www.w3.org/2000/svg'/>");
    let page = format!("{page}page-title = 'Museo'\npage-logo = '{logo}'\npage-keyboard = true\n");
    write(directory.path(), "k.toml", &format!("temp = 0.25\nmax-tokens = 2\nctx = 128\nalias = 'a'\n{page}"));
    server.signal(Signal::SIGHUP);
    server.wait_to_say("these take a restart: alias, ctx");
    wait_until("the defaults are others", || defaults() == (0.25, 2));
    assert_eq!(tokens(), 2);
    assert_eq!((page_says("title"), page_says("ask")), (json!("Museo"), json!("Domandi")));
    assert_eq!((page_says("has_logo"), page_says("has_keyboard")), (json!(true), json!(true)));
    server.wait_to_say("the model's files are the same");
    // A file that was damaged changes nothing.
    write(directory.path(), "it.toml", "greting = 'Ciao'\n");
    server.signal(Signal::SIGHUP);
    server.wait_to_say("it.toml:1: the page has no text `greting`; `greeting` comes nearest");
    assert_eq!(page_says("ask"), json!("Domandi"));
    write(directory.path(), "k.toml", "temp = 'hot'\n");
    server.signal(Signal::SIGHUP);
    server.wait_to_say("stay as they were: ");
    server.wait_to_say("k.toml:1: temp is a text");
    assert_eq!(defaults(), (0.25, 2));
}

#[test]
fn a_key_that_is_taken_out_of_its_file_is_refused_without_a_signal_and_the_log_names_keys_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let keys = write(directory.path(), "keys", "# who may ask\ndesk: sk-secret-1\nsk-secret-2\n");
    let log = directory.path().join("access").display().to_string();
    let server = Server::start_at(directory, &["--api-key-file", &keys, "--access-log", &log]);
    let status = |key: &str| server.ask_with(key);
    assert_eq!(["sk-secret-1", "sk-secret-2", "desk", ""].map(status), [200, 200, 401, 401]);
    write(server.directory.path(), "keys", "desk: sk-secret-2\n");
    wait_until("the key is revoked", || status("sk-secret-1") == 401);
    assert_eq!(status("sk-secret-2"), 200);
    server.wait_to_say("its API keys hold from here on");
    let text = std::fs::read_to_string(&log).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |i: usize| (lines[i]["key"].clone(), lines[i]["status"].as_u64().unwrap(), lines[i]["path"].clone());
    assert_eq!(of(0), (json!("desk"), 200, json!("/v1/models")));
    assert_eq!((of(1).0, of(2).0, &lines[2]["error"]), (json!("line 3"), json!(null), &json!("invalid_api_key")));
    assert_eq!((of(lines.len() - 1).0, of(lines.len() - 1).1), (json!("desk"), 200));
    assert!(!text.contains("secret") && !server.said().contains("secret"), "{text}");
    // A file that was moved away is opened anew.
    let moved = format!("{log}.1");
    std::fs::rename(&log, &moved).unwrap();
    server.signal(Signal::SIGHUP);
    wait_until("there is a new file", || Path::new(&log).exists());
    assert_eq!(status("sk-secret-2"), 200);
    wait_until("the request is noted", || std::fs::read_to_string(&log).unwrap().lines().count() == 1);
    let version = server.status_of_server("sk-secret-2");
    assert!(version["version"] == env!("CARGO_PKG_VERSION") && version["features"][0].is_string(), "{version}");
}

#[test]
fn what_the_page_is_to_show_is_checked_at_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str, text: &str| write(directory.path(), name, text);
    let small = |more: &[&str]| kiln(&[&["serve"], &SMALL[..], &["--check"], more].concat());
    small(&["--page-language", "it"]).refused(2, &["no language it", "en, de, es, fr", "it.toml"]);
    small(&["--page-language", "/no/such.toml"]).refused(2, &["/no/such.toml does not exist"]);
    let short = at("it.toml", "language = 'it'\n");
    small(&["--page-language", "en", "--page-language", &short]).refused(2, &["it.toml has no direction, letters,"]);
    let html = at("logo.svg", "<html><svg/></html>");
    small(&["--page-logo", &html]).refused(2, &["logo.svg is no SVG, PNG or WebP"]);
    let long = at("long.svg", &"<svg>".repeat(1 << 18));
    small(&["--page-logo", &long]).refused(2, &["long.svg is no logo", "at most 1048576"]);
    small(&["--page-logo-dark", &html]).refused(2, &["--page-logo"]);
    small(&["--page-accent", "red"]).refused(2, &["`red` is no colour of the page", "#005f87"]);
    small(&["--page-accent", "#fc0"]).refused(2, &["#ffcc00", "light ground, and letters need 4.5; give #"]);
    small(&["--page-accent", "#005f87", "--page-accent-dark", "#005f87"]).refused(2, &["dark ground", "give #"]);
    small(&["--page-accent-dark", "#6cb6dd"]).refused(2, &["--page-accent"]);
    let texts = "\npage-language = ['de', 'fr']\npage-question = ['Open?', 'it=Quando?']\n";
    small(&["--config", &at("t.toml", texts)]).refused(2, &["`it=Quando?` is for the language it", "de, fr"]);
    let twice = at("t.toml", "page-welcome = ['Hello', 'de=Guten Tag', 'de=Hallo']\n");
    small(&["--config", &twice]).refused(2, &["--page-welcome has two texts for the language de"]);
    small(&["--page-title", "A", "--page-title", "B"]).refused(2, &["--page-title has two texts for all languages"]);
    let file = at("k.toml", "\npage-languages = 'de'\n");
    small(&["--config", &file]).refused(2, &["k.toml:2", "`page-language` comes nearest"]);
}

#[test]
fn keys_of_a_place_and_the_access_log_are_checked_at_the_start() {
    let small = |more: &[&str]| kiln(&[&["serve"], &SMALL[..], more].concat());
    small(&["--keys-at", "nonsense"]).refused(2, &["--keys-at", "PLACE=FILE"]);
    small(&["--listen", "127.0.0.1:0", "--keys-at", "127.0.0.1:1=none"])
        .refused(2, &["127.0.0.1:1", "nothing listens"]);
    small(&["--listen", "127.0.0.1:0", "--keys-at", "127.0.0.1:0=/no/such"]).refused(2, &["/no/such does not exist"]);
    small(&["--listen", "0.0.0.0:0", "--check"]).refused(2, &["0.0.0.0:0", "no API keys"]);
    small(&["--check", "--keys-at", "nowhere=none"]).refused(2, &["nowhere", "nothing listens"]);
    small(&["--access-log", "/dev/null"]).refused(2, &["/dev/null", "no access log"]);
    small(&["--temp", "-1"]).refused(2, &["temperature"]);
    small(&["--max-tokens", "0"]).refused(2, &["--max-tokens"]);
}
