//! Makes what the sources in `aie/kernels` come to. For a reader, in `aie/out`: of a kernel, what program memory
//! holds as `NAME.bin` and the listing `NAME.lst`; of a design, `NAME.rs`, what is where as `NAME.map`. For the executable,
//! in `src/npu/programs`, of a design: the partition's image for the driver, `NAME.pdi`, the same for libxrt,
//! `NAME.xclbin`, the instruction stream of a run, `NAME.txn`, and the table of them all, `mod.rs`. With `--check` it writes
//! nothing and fails where a file is not what its source makes.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

use kiln_aie::{Isa, assemble_all, designs, host, listing};

/// What the executable embeds, from this crate's folder.
const HOST: &str = "../src/npu/programs";

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
            println!("{count} files {}", if check { "are as their sources make them" } else { "written" });
            ExitCode::SUCCESS
        }
        Err(messages) => {
            messages.iter().for_each(|message| eprintln!("{message}"));
            ExitCode::FAILURE
        }
    }
}

/// Makes every file of the sources in `root`, and says how many there are.
fn run(root: &Path, check: bool) -> Result<usize, Vec<String>> {
    let isa = Isa::aie2();
    let mut messages = Vec::new();
    let mut files: Vec<(String, Vec<u8>)> = Vec::new();
    let mut programs: BTreeMap<&str, Vec<u8>> = BTreeMap::new();
    for (name, sources) in designs::KERNELS {
        let read = |source: &&str| {
            let file = format!("kernels/{source}.s");
            let text = std::fs::read_to_string(root.join(&file)).map_err(|error| format!("{file}: {error}"))?;
            Ok((file, text))
        };
        let sources = match sources.iter().map(read).collect::<Result<Vec<_>, String>>() {
            Ok(sources) => sources,
            Err(message) => {
                messages.push(message);
                continue;
            }
        };
        match assemble_all(&isa, &format!("kernels/{name}.s"), &sources) {
            Err(errors) => messages.extend(errors.iter().map(|error| format!("aie/{error}"))),
            Ok(program) => {
                files.push((format!("out/{name}.bin"), program.code.clone()));
                files.push((format!("out/{name}.lst"), listing::write(&isa, &program).into_bytes()));
                programs.insert(name, program.code);
            }
        }
    }
    // A design whose kernel has mistakes would only say so again.
    let designs = if messages.is_empty() { designs::all() } else { Vec::new() };
    files.push((format!("{HOST}/mod.rs"), host::write(&designs::all()).into_bytes()));
    for design in designs {
        match design.pack(|kernel| programs.get(kernel).cloned()) {
            Err(error) => messages.push(format!("aie/kernels/{}.rs: {error}", design.source)),
            Ok(packed) => {
                let name = design.name;
                files.push((format!("out/{name}.map"), packed.listing.into_bytes()));
                let outputs = [("pdi", packed.image), ("txn", packed.sequence), ("xclbin", packed.container)];
                files.extend(outputs.map(|(extension, bytes)| (format!("{HOST}/{name}.{extension}"), bytes)));
            }
        }
    }
    messages.extend(files.iter().filter_map(|(name, bytes)| put(&root.join(name), bytes, check).err()));
    if messages.is_empty() { Ok(files.len()) } else { Err(messages) }
}

/// Writes a file, or checks that it holds this already.
fn put(path: &Path, bytes: &[u8], check: bool) -> Result<(), String> {
    if check {
        let current = std::fs::read(path).is_ok_and(|held| held == bytes);
        return if current { Ok(()) } else { Err(format!("{} is stale: run kiln-aie", path.display())) };
    }
    std::fs::write(path, bytes).map_err(|error| format!("{}: {error}", path.display()))
}
