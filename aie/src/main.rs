//! Assembles the kernels: `aie/kernels/NAME.s` to `aie/out/NAME.bin`, what program memory holds, and `NAME.lst`, the
//! listing. With `--check` it writes nothing and fails where a file is not what its source makes.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use kiln_aie::{Isa, assemble, listing};

fn main() -> ExitCode {
    let check = match std::env::args().skip(1).collect::<Vec<_>>().as_slice() {
        [] => false,
        [flag] if flag == "--check" => true,
        _ => {
            eprintln!("usage: kiln-aie [--check]");
            return ExitCode::FAILURE;
        }
    };
    match run(Path::new(env!("CARGO_MANIFEST_DIR")), check) {
        Ok(count) => {
            println!("{count} kernels {}", if check { "are as their sources make them" } else { "assembled" });
            ExitCode::SUCCESS
        }
        Err(messages) => {
            messages.iter().for_each(|message| eprintln!("{message}"));
            ExitCode::FAILURE
        }
    }
}

/// Assembles every kernel under `root`, and says how many there are.
fn run(root: &Path, check: bool) -> Result<usize, Vec<String>> {
    let isa = Isa::aie2();
    let kernels = root.join("kernels");
    let mut sources: Vec<PathBuf> = std::fs::read_dir(&kernels)
        .map_err(|error| vec![format!("{}: {error}", kernels.display())])?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "s"))
        .collect();
    sources.sort();
    let mut messages = Vec::new();
    for path in &sources {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) => {
                messages.push(format!("{}: {error}", path.display()));
                continue;
            }
        };
        match assemble(&isa, &format!("kernels/{name}"), &text) {
            Err(errors) => messages.extend(errors.iter().map(|error| format!("aie/{error}"))),
            Ok(program) => {
                let out = root.join("out").join(&name);
                let files = [("bin", program.code.clone()), ("lst", listing::write(&isa, &program).into_bytes())];
                let results = files.iter().map(|(extension, bytes)| put(&out.with_extension(extension), bytes, check));
                messages.extend(results.filter_map(Result::err));
            }
        }
    }
    if messages.is_empty() { Ok(sources.len()) } else { Err(messages) }
}

/// Writes a file, or checks that it holds this already.
fn put(path: &Path, bytes: &[u8], check: bool) -> Result<(), String> {
    if check {
        let current = std::fs::read(path).is_ok_and(|held| held == bytes);
        return if current { Ok(()) } else { Err(format!("{} is stale: run kiln-aie", path.display())) };
    }
    std::fs::write(path, bytes).map_err(|error| format!("{}: {error}", path.display()))
}
