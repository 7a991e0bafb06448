// How the bridge to libxrt is compiled: the build script's part and the tests' own.

use std::path::{Path, PathBuf};
use std::process::Command;

/// libxrt as its development package leaves it.
pub struct Installed {
    /// The folder of its headers, `xrt/xrt_hw_context.h` among them.
    pub include: PathBuf,
    /// The library to link with.
    pub library: PathBuf,
}

/// libxrt below `root`, as in /usr, if its headers have hardware contexts.
pub fn find(root: &Path) -> Option<Installed> {
    let include = root.join("include");
    let folders = ["lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu", "lib64", "lib"];
    let mut libraries = folders.iter().map(|f| root.join(f).join("libxrt_coreutil.so"));
    let library = libraries.find(|l| l.exists())?;
    include.join("xrt/xrt_hw_context.h").exists().then_some(Installed { include, library })
}

/// Compiles `sources` (C++17) to the shared object `output`, with `flags` beside what all of them need; fails with the
/// compiler's first complaint.
pub fn compile(sources: &[&Path], include: &Path, flags: &[&str], output: &Path) -> Result<(), String> {
    let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".into());
    let mut command = Command::new(&compiler);
    command.args(["-std=c++17", "-O2", "-Wall", "-Wextra", "-fPIC", "-shared", "-fvisibility=hidden", "-isystem"]);
    command.arg(include).args(sources).args(flags).arg("-Wl,-z,defs").arg("-o").arg(output);
    let done = command.output().map_err(|e| format!("there is no C++ compiler ({compiler}: {e})"))?;
    if done.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&done.stderr);
    let complaint = text.lines().find(|l| l.contains("error")).or(text.lines().next()).unwrap_or("without a word");
    Err(format!("{compiler} failed: {}", complaint.trim()))
}

/// Compiles the bridge itself.
pub fn compile_bridge(source: &Path, installed: &Installed, output: &Path) -> Result<(), String> {
    let library = installed.library.display().to_string();
    compile(&[source], &installed.include, &[&library], output)
}
