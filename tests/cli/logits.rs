//! `kiln logits`: its output, and the file that it writes completely or not at all.

use crate::common::program::kiln;
use crate::common::{Case, floats, ids, max_abs};
use crate::{list, tiny};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

#[test]
fn logits_come_for_the_last_position_and_as_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("out.safetensors");
    let case = Case::open("tiny");
    let (model, tokens) = (tiny(), list(&ids(&case.prompt("len33")["ids"])));
    for chunk in ["1", "5", "4096"] {
        let base =
            ["logits", "-m", &model, "--weights", "bf16", "--device", "reference", "--tokens", &tokens, "--json"];
        let ran = kiln(&[&base[..], &["--all", "--chunk", chunk, "--out", file.to_str().unwrap()]].concat()).json();
        assert_eq!((ran["vocab"].as_u64(), ran["position"].as_u64()), (Some(512), Some(32)));
        let last = floats(&ran["logits"]);
        assert!(max_abs(&last, case.tensor("len33.logits")) < 3e-4);

        let bytes = std::fs::read(&file).unwrap();
        let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
        let read = |name: &str| {
            let t = tensors.tensor(name).unwrap();
            let floats: Vec<f32> =
                t.data().chunks_exact(4).map(|c| f32::from_le_bytes(c.try_into().unwrap())).collect();
            (t.shape().to_vec(), floats)
        };
        let (shape, all) = read("logits");
        assert_eq!(shape, [33, 512]);
        assert!(max_abs(&all, case.tensor("len33.all_logits")) < 3e-4);
        let (shape, hidden) = read("hidden");
        assert_eq!(shape, [8, 128]);
        assert!(max_abs(&hidden, case.tensor("len33.hidden")) < 3e-3);
    }
    let mode = |file: &Path| std::fs::metadata(file).unwrap().permissions().mode();
    let plain = dir.path().join("plain");
    std::fs::write(&plain, "").unwrap();
    assert_eq!(mode(&file), mode(&plain));
    // --all has no place for its rows without --out, and is not silently left out.
    kiln(&["logits", "-m", &tiny(), "--tokens", "2,5", "--device", "cpu", "--all"]).refused(2, &["--out"]);
    // Without --all, one row. A missing directory leaves no file.
    let one = ["logits", "-m", &tiny(), "--device", "cpu", "--tokens", "2,5", "--out", file.to_str().unwrap()];
    assert_eq!(kiln(&one).code, 0);
    let bytes = std::fs::read(&file).unwrap();
    assert_eq!(safetensors::SafeTensors::deserialize(&bytes).unwrap().tensor("logits").unwrap().shape(), [1, 512]);
    let nowhere = dir.path().join("no/such/place.safetensors");
    kiln(&["logits", "-m", &tiny(), "--tokens", "2", "--out", nowhere.to_str().unwrap()])
        .refused(1, &["cannot write", "place.safetensors"]);
}

/// The model's weights were replaced by its logits.
#[test]
fn logits_never_replace_a_file_of_the_model() {
    let model = crate::model_of(&["tiny/config.json", "tiny/model.safetensors"]);
    let elsewhere = tempfile::tempdir().unwrap();
    let (weights, link) = (model.path().join("model.safetensors"), elsewhere.path().join("link"));
    let (hard, other) = (elsewhere.path().join("hard"), model.path().join("logits.safetensors"));
    std::os::unix::fs::symlink(&weights, &link).unwrap();
    std::fs::hard_link(&weights, &hard).unwrap();
    let before = std::fs::read(&weights).unwrap();
    let run = |out: &Path| {
        let (model, out) = (crate::path(&model), out.to_str().unwrap());
        kiln(&["logits", "-m", model, "--device", "cpu", "--tokens", "2", "--out", out])
    };
    for out in [&weights, &link, &hard, &model.path().join("config.json")] {
        run(out).refused(2, &["is a file of the model itself", "give --out another path"]);
    }
    assert_eq!(std::fs::read(&weights).unwrap(), before);
    assert_eq!(run(&other).code, 0);
}

/// `--out /dev/null` as root must not replace the device.
#[test]
fn logits_replace_files_alone() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    nix::unistd::mkfifo(&at("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    std::os::unix::fs::symlink("pipe", at("link to the pipe")).unwrap();
    std::fs::write(at("file"), "").unwrap();
    std::fs::write(at("letter"), "precious").unwrap();
    std::fs::copy(Path::new(&tiny()).join("model.safetensors"), at("weights")).unwrap();
    std::os::unix::fs::symlink("file", at("link")).unwrap();
    let model = tiny();
    let run = |name: &str| {
        let out = at(name).display().to_string();
        kiln(&["logits", "-m", &model, "--tokens", "2,5", "--device", "cpu", "--out", &out])
    };
    for name in ["pipe", "link to the pipe", "."] {
        run(name).refused(2, &["no regular file", "--out"]);
    }
    for name in ["letter", "weights"] {
        let before = std::fs::read(at(name)).unwrap();
        run(name).refused(2, &["has no logits of an earlier run", "give --out another path"]);
        assert_eq!(std::fs::read(at(name)).unwrap(), before);
    }
    assert!(!at("pipe").is_file() && at("link to the pipe").is_symlink());
    assert_eq!(run("link").code, 0);
    assert!(at("link").is_symlink() && !std::fs::read(at("file")).unwrap().is_empty());
    assert_eq!(run("file").code, 0, "what it has written itself is replaced");
}

#[test]
fn threads_change_no_bit_and_as_many_run_as_are_asked_for() {
    let model = tiny();
    let ran = |threads: &str| {
        kiln(&["logits", "-m", &model, "--tokens", "2,5,17", "--device", "cpu", "--threads", threads, "--json"]).json()
    };
    let [one, three] = ["1", "3"].map(ran);
    let device = |ran: &serde_json::Value| ran["device"].as_str().unwrap().to_string();
    assert!(device(&one).starts_with("CPU, 1 thread,") && device(&three).starts_with("CPU, 3 threads,"), "{one}");
    assert_eq!(one["logits"], three["logits"]);
    kiln(&["logits", "-m", &model, "--tokens", "2", "--threads", "0"]).refused(2, &["--threads", "1..=1024"]);
}

/// A guest attends between the device's submits. The device's name says so, and the logits are near those without it.
#[test]
fn a_guest_may_attend() {
    let (model, tokens) = (tiny(), list(&(0..24).map(|i| (2 + 11 * i) % 512).collect::<Vec<u32>>()));
    let base = ["logits", "-m", &model, "--tokens", &tokens, "--chunk", "16", "--json"];
    let plain = floats(&kiln(&[&base[..], &["--device", "vulkan"]].concat()).json()["logits"]);
    for guest in ["cpu", "reference"] {
        let ran = kiln(&[&base[..], &["--device", "vulkan", "--guest", guest]].concat()).json();
        assert!(ran["device"].as_str().unwrap().contains("attention on CPU"), "{}", ran["device"]);
        let apart = max_abs(&floats(&ran["logits"]), &plain);
        // A sum in another order rounds a key to the neighbouring f16.
        assert!(apart < 1e-2, "{guest}: {apart}");
    }
    let refused = |more: &[&str]| kiln(&[&base[..7], more].concat());
    refused(&["--device", "cpu", "--guest", "cpu"]).refused(2, &["only a device of Vulkan or amdgpu has a guest"]);
    refused(&["--device", "vulkan", "--guest", "npu"]).refused(2, &["npu", "possible values: reference, cpu"]);
    assert!(!kiln(&["logits", "--help"]).stdout.contains("--guest"));
}
