//! Encodings against vectors of independent source.

use kiln_aie::isa::Isa;

use crate::vectors::vectors;

#[test]
fn vectors_hold_both_ways() {
    let isa = Isa::aie2();
    let vectors = vectors();
    assert!(vectors.len() >= 500, "{} vectors", vectors.len());
    let refuted: Vec<String> = vectors.iter().filter_map(|vector| vector.refute(&isa)).collect();
    assert!(refuted.is_empty(), "{}", refuted.join("\n"));
}
