//! What docs/fleet and the packages say of a server, held against the server: the metrics that alert rules and the dashboard
//! name, and the options of each configuration.

use super::client::Server;
use super::common::program::kiln;
use std::collections::BTreeSet;
use std::path::Path;

fn text(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The words of a text that are names of Kiln's metrics.
fn metrics_of(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("kiln_")).collect()
}

#[test]
fn alert_rules_and_dashboard_name_metrics_that_there_are() {
    let given = Server::start(&[]).metrics();
    let samples = given.lines().filter(|line| !line.starts_with('#'));
    let mut names: BTreeSet<&str> = samples.filter_map(|line| line.split(['{', ' ']).next()).collect();
    // A machine without a meter has no samples of these; their own test knows their names.
    names.extend(["kiln_energy_joules_total", "kiln_joules_per_token"]);
    for (file, least) in [("rules.yml", 6), ("rules_test.yml", 6), ("dashboard.json", 14)] {
        let text = text(&format!("docs/fleet/{file}"));
        let asked = metrics_of(&text);
        assert!(asked.len() >= least, "{file} names {asked:?}");
        let missing: Vec<_> = asked.difference(&names).collect();
        assert!(missing.is_empty(), "{file} names {missing:?}, and there are {names:?}");
    }
}

#[test]
fn every_alert_has_a_case_and_a_silence() {
    let (rules, cases) = (text("docs/fleet/rules.yml"), text("docs/fleet/rules_test.yml"));
    let alerts: Vec<&str> = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(alerts.len() >= 7, "{alerts:?}");
    for alert in alerts {
        assert!(cases.contains(&format!("- alertname: {alert}\n")), "no case of {alert}");
        assert!(cases.contains(&format!("{{alertname: {alert}, eval_time: 1h}}")), "no silence of {alert}");
    }
}

#[test]
fn every_panel_of_the_dashboard_asks_something_and_lies_apart() {
    let dashboard: serde_json::Value = serde_json::from_str(&text("docs/fleet/dashboard.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let mut taken = BTreeSet::new();
    for panel in panels {
        let title = panel["title"].as_str().unwrap();
        let targets = panel["targets"].as_array().unwrap();
        assert!(
            !targets.is_empty() && targets.iter().all(|t| t["expr"].as_str().is_some_and(|e| !e.is_empty())),
            "{title}"
        );
        let at = |name: &str| panel["gridPos"][name].as_u64().unwrap();
        for (x, y) in (at("x")..at("x") + at("w")).flat_map(|x| (at("y")..at("y") + at("h")).map(move |y| (x, y))) {
            assert!(x < 24 && taken.insert((x, y)), "{title} lies on another panel, or beyond the edge");
        }
    }
}

/// The lines of a file from `begin` on, without their indent, until one that is indented less.
fn block(text: &str, begin: &str) -> String {
    let mut lines = text.lines().skip_while(|line| !line.trim_start().starts_with(begin)).skip(1).peekable();
    let indent = lines.peek().map_or(0, |line| line.len() - line.trim_start().len());
    assert!(indent > 0, "{begin} has no block");
    lines.map_while(|line| line.get(..indent)?.trim().is_empty().then(|| format!("{}\n", &line[indent..]))).collect()
}

#[test]
fn configurations_of_packages_and_fleets_have_options_that_there_are() {
    let packaged = text("tools/package/kiln.toml");
    // The examples are comments: those lines that are an option are tried.
    let is_option = |line: &&str| line.split_once(" = ").is_some_and(|(name, _)| !name.contains(' '));
    let examples: Vec<&str> = packaged.lines().filter_map(|line| line.strip_prefix('#')).filter(is_option).collect();
    assert!(examples.len() >= 9, "{examples:?}");
    let kubernetes = block(&text("docs/fleet/kubernetes.yaml"), "kiln.toml: |");
    let playbook = text("docs/fleet/kiln.ansible.yml");
    let contents = playbook.split("content: |").skip(1).map(|rest| block(&format!("content: |{rest}"), "content: |"));
    // Those of units, profiles and the boot loader are none.
    let ansible: String = contents.filter(|content| content.lines().all(|line| is_option(&line))).collect();
    let ansible = ansible.replace("{{ page_questions | to_json }}", r#"["Where?"]"#);
    let ansible = ansible
        .replace("{{ page_title | to_json }}", r#""Kiosk""#)
        .replace("{{ page_welcome | to_json }}", r#""Hello""#);
    assert!(["system-prompt", "page-question"].iter().all(|name| ansible.contains(name)), "{ansible}");
    for (whose, options) in [("package", examples.join("\n")), ("Kubernetes", kubernetes), ("Ansible", ansible)] {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name).display().to_string();
        std::fs::write(at("keys"), "clients: secret\n").unwrap();
        std::fs::write(at("prompt"), "You are a kiosk.\n").unwrap();
        std::fs::write(at("it.toml"), text("src/serve/page/languages/en.toml")).unwrap();
        std::fs::write(at("logo.svg"), text("tests/page/logo.svg")).unwrap();
        // The built-in model, which is no bundle to verify, on the processor, and files that are here.
        let of_machine = ["model", "device", "ctx", "verify"];
        let own = |line: &&str| !of_machine.iter().any(|name| line.starts_with(name));
        let options: Vec<&str> = options.lines().filter(own).collect();
        let options = options.join("\n").replace("/etc/kiln/", &at("")).replace("/var/log/kiln/", &at(""));
        std::fs::write(at("kiln.toml"), format!("{options}\ndevice = 'cpu'\nctx = 256\n")).unwrap();
        let checked = kiln(&["serve", "--config", &at("kiln.toml"), "--check", "--json"]);
        assert_eq!(checked.code, 0, "{whose}: {}\n{options}", checked.stderr);
    }
}
