//! AMD's compiler without AMD hardware: RADV of one fixed version makes machine code for a GPU that it is told of.

use std::path::Path;
use std::process::Command;

pub const MESA: &str = "25.0.7";
/// Set where this machine cannot have the driver: tools/test sets it, and lists what was not checked.
const WITHOUT: &str = "KILN_TEST_WITHOUT_RADV";

/// Whether RADV cannot be had here. Says so where it cannot.
pub fn is_missing() -> bool {
    let missing = std::env::var_os(WITHOUT).is_some();
    if missing {
        println!("not checked: {WITHOUT} is set");
    }
    missing
}

/// Runs a test of this executable in a child process on RADV as a chip of that name: the driver must be chosen before Vulkan
/// loads. What the child says is returned.
pub fn run(test: &str, family: &str, variables: &[(&str, &Path)]) -> String {
    let run = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("target/mesa-{MESA}/run"));
    assert!(run.exists(), "run `tools/fetch-mesa {MESA}` first; where it cannot be had, set {WITHOUT}=1");
    let done = Command::new(run)
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--include-ignored"])
        .envs(variables.iter().copied())
        .env("RADV_FORCE_FAMILY", family)
        .env("MESA_SHADER_CACHE_DISABLE", "1")
        .env("KILN_CACHE_DIR", "/dev/null/none")
        .output()
        .unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{test} fails on RADV as {family}:\n{said}");
    said
}
