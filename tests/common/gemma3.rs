//! Gemma 3's own tokenizer.json and the weights of its smallest model, which are fetched and not a part of the repository.

use std::io::Write;
use std::path::{Path, PathBuf};

/// The file's bytes. `None`, and a line on standard error that it is NOT tested, where the file is missing and KILN_OFFLINE=1
/// allows that.
pub fn gemma3_tokenizer() -> Option<Vec<u8>> {
    let file = std::env::var_os("KILN_GEMMA3_TOKENIZER").map_or_else(
        || {
            let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
            Path::new(env!("CARGO_MANIFEST_DIR")).join(target).join("gemma3-tokenizer/tokenizer.json")
        },
        PathBuf::from,
    );
    if !file.exists() {
        let missing = format!("{} is missing, so Gemma 3's tokenizer is NOT tested", file.display());
        assert!(std::env::var_os("KILN_OFFLINE").is_some_and(|v| v == "1"), "{missing}; run tools/fetch-tokenizer");
        // Bypasses the test harness's capture, so that it shows when the test passes.
        let mut stderr = std::io::stderr();
        writeln!(stderr, "\nKILN_OFFLINE=1: {missing}\n").unwrap();
        return None;
    }
    Some(std::fs::read(&file).unwrap())
}

/// The file of Gemma 3 270M, the base model in Q4_K_M.
pub fn gemma3_270m() -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/gemma-3-270m/gemma-3-270m-Q4_K_M.gguf");
    assert!(file.exists(), "{} is missing; run tools/fetch-gemma", file.display());
    file.display().to_string()
}
