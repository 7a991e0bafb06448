//! `kiln compare`: what it prints, and how it ends.

use crate::common::program::kiln;
use crate::{list, model_of, path, tiny, tiny_with_text};

/// 20 ids, more than the window has.
fn ids() -> String {
    list(&(0..20).map(|i| (2 + 11 * i) % 512).collect::<Vec<u32>>())
}

#[test]
fn executors_that_are_equal_end_with_0_and_what_is_nearest_to_its_bound() {
    let (model, ids) = (tiny(), ids());
    let base = ["compare", "-m", &model, "--b", "cpu", "--tokens", &ids, "--chunk", "16"];
    let ran = kiln(&base);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stdout.starts_with("a: CPU reference"), "{}", ran.stdout);
    assert!(ran.stdout.contains("equal within their bounds: "), "{}", ran.stdout);
    assert!(ran.stdout.contains(" of 3 passes\nnearest to its bound: "), "{}", ran.stdout);

    let all = kiln(&[&base[..], &["--all"]].concat()).stdout;
    for line in
        ["pass 1 (16 rows from position 0)", "pass 2 (3 rows from position 16)", "pass 3 (1 row from position 19)"]
    {
        assert!(all.contains(line), "no {line} in: {all}");
    }
    for step in ["embed input_norm", "layer 5 k_norm_rope", "layer 2 kv_write", "layer 0 attend", "head argmax"] {
        assert_eq!(
            all.matches(&format!("\n  {step} ")).count(),
            if step.contains("kv_write") { 6 } else { 3 },
            "{step} in: {all}"
        );
    }

    let object = kiln(&[&base[..], &["--all", "--json"]].concat()).json();
    assert_eq!((&object["equal"], &object["first"]), (&true.into(), &serde_json::Value::Null));
    assert_eq!(object["passes"][1]["position"], 16);
    let steps = object["steps"].as_array().unwrap();
    assert!(steps.iter().all(|step| step["differs"] == false && step["share"].as_f64().unwrap() <= 1.0));
    assert!(kiln(&[&base[..], &["--json"]].concat()).json()["steps"].is_null());
}

/// The CPU executor's products of INT8 differ from the reference's, by less than their bound.
#[test]
fn a_difference_past_its_bound_ends_with_1_and_names_the_step() {
    let (model, ids) = (tiny(), ids());
    let base = ["compare", "-m", &model, "--b", "cpu", "--tokens", &ids, "--scale", "0.05"];
    let ran = kiln(&base);
    ran.failed(1, &["CPU reference", " differ in layer 0 qkv; "]);
    let said = "the first step that differs: layer 0 qkv, in pass 1 (19 rows from position 0)\nqkv, row ";
    assert!(ran.stdout.contains(said), "{}", ran.stdout);

    let ran = kiln(&[&base[..], &["--json"]].concat());
    assert_eq!((ran.code, ran.stderr.lines().count()), (1, 1));
    let object = ran.object();
    assert_eq!((&object["equal"], &object["first"]["step"]), (&false.into(), &"qkv".into()));
    let number = |name: &str| object["first"][name].as_f64().unwrap();
    assert!((number("a") - number("b")).abs() > number("bound") && number("share") > 1.0, "{object}");

    // With --all the steps behind it are judged by sound inputs: norms are in f32 on both.
    let object = kiln(&[&base[..], &["--all", "--json"]].concat()).object();
    let steps = object["steps"].as_array().unwrap();
    let differ = |label: &str| steps.iter().filter(|s| s["step"] == label && s["differs"] == true).count();
    assert!(differ("down") > 6 && differ("argmax") == 0, "{object}");
}

#[test]
fn tokens_may_be_text_or_left_out() {
    let dir = tiny_with_text();
    let base = ["compare", "-m", path(&dir), "--b", "cpu", "--json"];
    let rows = |more: &[&str]| kiln(&[&base[..], more].concat()).json()["passes"][0]["rows"].as_u64().unwrap();
    assert_eq!(rows(&[]), 39);
    assert_eq!(rows(&["--ctx", "8"]), 7);
    let text = rows(&["-p", "When do you open on Saturday?"]);
    assert!(text > 3, "{text}");
    let bare = model_of(&["tiny/config.json", "tiny/model.safetensors"]);
    let refused = |more: &[&str]| kiln(&[&["compare", "-m", path(&bare), "--b", "cpu"], more].concat());
    refused(&["-p", "text"]).refused(2, &["tokenizer"]);
    refused(&["--tokens", "1,2", "-p", "text"]).refused(2, &["--tokens", "`kiln compare --help`"]);
    refused(&["--tokens", "600"]).refused(2, &["token id 600"]);
    refused(&["--tokens", ""]).refused(2, &["the prompt is empty"]);
    refused(&["--tokens", "5", "--scale", "0"]).refused(2, &["no number above 0"]);
    refused(&["--tokens", "5", "--a", "npu"]).refused(2, &["--a", "use auto, vulkan"]);
    refused(&["--tokens", "5", "--chunk", "0"]).refused(2, &["chunk"]);
    refused(&["--tokens", "5,6,7", "--ctx", "2"]).refused(2, &["longer than the context"]);
}
