//! AMD's compiler without AMD hardware: RADV of one fixed version makes machine code for a GPU whose kernel driver a small
//! library stands for (amdgpu.c).

use std::path::{Path, PathBuf};
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

/// Runs a test of this executable in a child process on RADV for a chip, by the name of its instruction set: the driver must be
/// chosen before Vulkan loads. What the child says is returned.
pub fn run(test: &str, chip: &str, variables: &[(&str, &Path)]) -> String {
    run_by(Command::new(launcher()), test, chip, variables)
}

/// The same, in a program that counts or checks the process and those that it starts.
#[allow(dead_code, reason = "not all executables count")]
pub fn run_under(mut program: Command, test: &str, chip: &str, variables: &[(&str, &Path)]) -> String {
    program.arg(launcher());
    run_by(program, test, chip, variables)
}

fn launcher() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("target/mesa-{MESA}/run"))
}

fn run_by(mut command: Command, test: &str, chip: &str, variables: &[(&str, &Path)]) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let run = launcher();
    assert!(run.exists(), "run `tools/fetch-mesa {MESA}` first; where it cannot be had, set {WITHOUT}=1");
    let made = tempfile::tempdir().unwrap();
    let kernel = made.path().join("amdgpu.so");
    compile_kernel(&root.join("tests/common/amdgpu.c"), &kernel);
    let done = command
        .arg("--preload")
        .arg(kernel)
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--include-ignored"])
        .envs(variables.iter().copied())
        .env("KILN_TEST_CHIP", chip)
        .env("MESA_SHADER_CACHE_DISABLE", "1")
        .env("KILN_CACHE_DIR", "/dev/null/none")
        .output()
        .unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{test} fails on RADV as {chip}:\n{said}");
    said
}

/// Makes the library that stands for the kernel's driver.
fn compile_kernel(source: &Path, library: &Path) {
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-o"]).arg(library).arg(source);
    let done = compiler.output().expect("a C compiler, as linking needs one");
    assert!(done.status.success(), "{}: {}", source.display(), String::from_utf8_lossy(&done.stderr));
}
