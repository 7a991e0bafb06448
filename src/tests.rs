//! The sources keep to the order of rooms.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The rooms in order: a room names those before it alone, in code and in comments.
const ROOMS: [&str; 27] = [
    "display",
    "error",
    "cancel",
    "version",
    "sys",
    "machine",
    "model",
    "hub",
    "schedule",
    "plan",
    "lower",
    "executor",
    "reference",
    "cpu",
    "offload",
    "npu",
    "replay",
    "vulkan",
    "amdgpu",
    "text",
    "sequence",
    "engine",
    "grammar",
    "diagnose",
    "serve",
    "cli",
    "testing",
];

/// The files of the library by their paths below `src`.
fn sources() -> Vec<(PathBuf, String)> {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let (mut all, mut folders) = (Vec::new(), vec![src.clone()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                all.push((path.strip_prefix(&src).unwrap().to_owned(), text));
            }
        }
    }
    all
}

/// The modules that a file declares for tests alone, as the paths of their files without an ending.
fn test_modules(path: &Path, text: &str) -> Vec<PathBuf> {
    let folder = path.parent().unwrap();
    let is_folders = ["lib.rs", "main.rs", "mod.rs"].iter().any(|name| path.ends_with(name));
    let inner = if is_folders { folder.to_owned() } else { path.with_extension("") };
    let mut modules = Vec::new();
    let mut lines = text.lines().map(str::trim);
    while let Some(line) = lines.next() {
        if !line.starts_with("#[cfg(test") && !line.starts_with("#[cfg(all(test") {
            continue;
        }
        let mut next = lines.next().unwrap_or_default();
        let other = next.strip_prefix("#[path = \"").and_then(|rest| rest.strip_suffix(".rs\"]"));
        if other.is_some() {
            next = lines.next().unwrap_or_default();
        }
        if let Some((_, name)) = next.strip_suffix(';').and_then(|line| line.split_once("mod ")) {
            modules.push(other.map_or(inner.join(name), |other| folder.join(other)));
        }
    }
    modules
}

/// The files that are compiled for tests alone.
fn test_files(all: &[(PathBuf, String)]) -> HashSet<PathBuf> {
    let modules: Vec<PathBuf> = all.iter().flat_map(|(path, text)| test_modules(path, text)).collect();
    let is_of =
        |path: &Path| modules.iter().any(|module| path.with_extension("") == *module || path.starts_with(module));
    all.iter().filter(|(path, _)| is_of(path)).map(|(path, _)| path.clone()).collect()
}

/// A text without its module of tests.
fn without_tests(text: &str) -> &str {
    let is_module =
        |at: &usize| text[*at..].lines().nth(1).is_some_and(|line| line.ends_with('{') && line.contains("mod "));
    let end = text.match_indices("#[cfg(test)]\n").map(|(at, _)| at).find(is_module);
    &text[..end.unwrap_or(text.len())]
}

/// The room that a file is in.
fn room(path: &Path) -> Option<usize> {
    let first = path.iter().next()?.to_str()?;
    ROOMS.iter().position(|room| *room == first.trim_end_matches(".rs"))
}

/// The rooms that a text names by their paths in the crate.
fn named(text: &str) -> Vec<usize> {
    let name = |rest: &str| rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().map(str::to_owned);
    let after = text.split("crate::").skip(1);
    // Of `use crate::{...}` those within the braces.
    let lists = after.clone().filter_map(|rest| rest.strip_prefix('{')?.split_once("};")).map(|(list, _)| list);
    let names = after.filter_map(name).chain(lists.flat_map(|list| list.split([',', ' ', '\n', '{']).filter_map(name)));
    names.filter_map(|name| ROOMS.iter().position(|room| *room == name)).collect()
}

#[test]
fn a_room_names_those_before_it_alone() {
    let all = sources();
    let tests = test_files(&all);
    assert!(tests.contains(Path::new("tests.rs")) && tests.contains(Path::new("replay/handover/tests.rs")));
    let mut upward = Vec::new();
    for (path, text) in all.iter().filter(|(path, _)| !tests.contains(path)) {
        let Some(own) = room(path) else {
            assert!(path == Path::new("lib.rs") || path == Path::new("main.rs"), "{} is in no room", path.display());
            continue;
        };
        let above = named(without_tests(text)).into_iter().filter(|room| *room > own);
        upward.extend(above.map(|room| format!("{} names {}", path.display(), ROOMS[room])));
    }
    assert!(upward.is_empty(), "{}", upward.join("\n"));
}

#[test]
fn names_of_rooms_are_found_however_they_are_imported() {
    let of = |text| named(text).into_iter().map(|room| ROOMS[room]).collect::<Vec<_>>();
    assert_eq!(of("use crate::npu;\nuse crate::cpu::lanes::VectorUnits;\n"), ["npu", "cpu"]);
    assert_eq!(of("/// As [`crate::engine::Options`] has it.\n"), ["engine"]);
    assert_eq!(of("use crate::{\n    Error, replay::Replay,\n    serve,\n};\n"), ["replay", "serve"]);
    assert_eq!(of("use crate::{Error, Result};\nlet npu = crate::Cancel::default();\n"), [""; 0]);
    let text = "use crate::sys;\n#[cfg(test)]\nmod fake;\n\n#[cfg(test)]\nmod tests {\n    use crate::cli;\n}\n";
    assert_eq!(of(without_tests(text)), ["sys"]);
}

/// The parts that lower, replay and measure run on any driver, in their tests too. Above the drivers, a device is opened
/// in one place, and the probe alone asks Vulkan itself. testing/inspect.rs reads the output of Vulkan's compilers.
#[test]
fn only_its_driver_names_vulkans_interface() {
    let all = sources();
    let names = |path: &Path, text: &str| {
        let opens_or_probes =
            ["engine/device.rs", "diagnose/probe", "testing", "vulkan"].iter().any(|at| path.starts_with(at));
        let knows_driver =
            opens_or_probes || path.starts_with("testing.rs") || path.starts_with("npu/modelled_tests.rs");
        ["vk::", "use ash::", "&ash::"].iter().any(|name| text.contains(name))
            || !knows_driver && text.contains("crate::vulkan")
    };
    let named = all.iter().filter(|(path, text)| path != Path::new("tests.rs") && names(path, text));
    let (inside, outside): (Vec<&Path>, Vec<&Path>) = named
        .map(|(path, _)| path.as_path())
        .partition(|path| ["vulkan", "testing/inspect.rs"].iter().any(|at| path.starts_with(at)));
    assert!(!inside.is_empty() && outside.is_empty(), "{outside:?}");
}

#[test]
fn files_of_tests_have_test_names() {
    let all = sources();
    let is_named = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap();
        ["tests.rs", "testing.rs", "fake.rs"].iter().any(|end| name.ends_with(end))
            || path.iter().any(|folder| folder == "tests" || folder == "testing")
    };
    let other: Vec<PathBuf> = test_files(&all).into_iter().filter(|path| !is_named(path)).collect();
    assert!(other.is_empty(), "{other:?}");
}
