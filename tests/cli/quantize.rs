//! `kiln quantize`: what it says of a source that is not what is asked for.

use crate::common::program::kiln;
use crate::tiny;

/// INT8, which is the default, would be larger than what the files have and no better.
#[test]
fn matrices_that_stay_in_int4_are_named() {
    let place = tempfile::tempdir().unwrap();
    let [int4, again, int8] = ["int4", "again", "int8"].map(|name| place.path().join(name).display().to_string());
    let whole = kiln(&["quantize", "-m", &tiny(), "-o", &int4, "--weights", "int4"]);
    assert!(whole.code == 0 && whole.stderr.is_empty(), "{}", whole.stderr);
    for weights in [&[][..], &["--weights", "int8"]] {
        let _ = std::fs::remove_dir_all(&again);
        let ran = kiln(&[&["quantize", "-m", &int4, "-o", &again], weights].concat());
        assert!(ran.code == 0 && ran.stdout.starts_with("wrote "), "{}", ran.stderr);
        for words in ["matrices stay INT4", "INT8 would take more memory", "quantize the BF16 model"] {
            assert!(ran.stderr.lines().count() == 1 && ran.stderr.contains(words), "no `{words}` in: {}", ran.stderr);
        }
    }
    for (source, weights) in [(&tiny(), "int8"), (&int4, "int4")] {
        let _ = std::fs::remove_dir_all(&int8);
        let ran = kiln(&["quantize", "-m", source, "-o", &int8, "--weights", weights]);
        assert!(ran.code == 0 && ran.stderr.is_empty(), "{}", ran.stderr);
    }
}
