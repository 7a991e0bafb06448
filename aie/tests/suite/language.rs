//! The source language: what it takes, and the one clear line for what it does not.

use kiln_aie::assemble;
use kiln_aie::isa::Isa;

fn errors(text: &str) -> Vec<String> {
    assemble(&Isa::aie2(), "test.s", text).err().unwrap_or_default().iter().map(ToString::to_string).collect()
}

#[test]
fn constants_labels_and_expressions_are_numbers() {
    let isa = Isa::aie2();
    let text = "// a comment\n.const N = 3 * (4 + 0x10) - -1 << 1 // 122\nhere: movxm r0, #N / 2 | 64\nmovxm p0, #there + 4\n\
                .nops 2\n.align 16\nthere:\ndone";
    let program = assemble(&isa, "test.s", text).unwrap_or_else(|errors| panic!("{errors:?}"));
    assert_eq!(program.constants["N"], 122);
    assert_eq!(program.labels["there"], 16);
    let written: Vec<String> = program.bundles.iter().map(|placed| isa.write_bundle(&placed.bundle)).collect();
    assert_eq!(written[..2], ["movxm r0, #125", "movxm p0, #20"]);
}

#[test]
fn aligning_widens_bundles_and_adds_no_cycle() {
    let isa = Isa::aie2();
    for count in 1..=20 {
        let text = format!("{}.align 16\nthere: done", "add r0, r1, r2\n".repeat(count));
        let program = assemble(&isa, "test.s", &text).unwrap_or_else(|errors| panic!("{errors:?}"));
        assert_eq!(program.bundles.len(), count + 1);
        // The fewest bytes that are a multiple of 16.
        assert_eq!(program.labels["there"] as usize, (4 * count).div_ceil(16) * 16);
    }
}

#[test]
fn mistakes_are_named_with_line_and_column() {
    let cases = [
        ("  frob r0", "test.s:1:3: there is no instruction frob"),
        ("nop\nadd r0, r1", "test.s:2:1: operands are missing: add R, R, R"),
        ("add r0, r1, p2", "test.s:1:13: \"p2\" cannot stand here: add R, R, R"),
        ("add r0, r32, r2", "test.s:1:9: \"r32\" is no register"),
        ("add r0, r1, r2, r3", "test.s:1:15: \",\" is too much: add R, R, R"),
        ("add r0, r1, #64", "test.s:1:13: 64 does not fit: -64 to 63"),
        ("vlda wl0, [p0], #33", "test.s:1:17: 33 does not fit: -2048 to 2016 in steps of 32"),
        ("mova r0, #N", "test.s:1:10: N is no constant and no label"),
        ("mova r0, #1 +", "test.s:1:10: a number or a name is missing"),
        ("mova r0, #4 / 0", "test.s:1:10: 4 / 0 has no value"),
        ("mova r0, #(1", "test.s:1:10: a parenthesis is open"),
        ("vaddmac.f bml0, bml1, bml2, x0, x1, r0", "test.s:1:17: bml1 must be the register before it"),
        (
            "add r0, r1, r2 ; sub r3, r4, r5",
            "test.s:1:18: add and sub both take the alu slot: move one of them to another cycle",
        ),
        ("movxm r0, #1 ; mov r1, #1", "test.s:1:1: no bundle holds the slots lng, mv together"),
        ("add r0, r0, r1 ; ; nop", "test.s:1:17: there is nothing between these semicolons"),
        (".align 3", "test.s:1:1: cannot align to 3 bytes: 2, 4, 8 or 16"),
        (".nops 0", "test.s:1:1: cannot wait 0 cycles: 1 to 1024"),
        (".const 4 = 4", "test.s:1:1: \"4\" is no name for a constant"),
        (".const A = 4\n.const A = 5", "test.s:2:1: A has a value already"),
        (".macro", "test.s:1:1: there is no directive .macro: .const, .align or .nops"),
        ("here: nop\nhere: done", "test.s:2:1: here is the name of something already"),
        ("done\nhere:", "test.s:2:1: here labels no bundle"),
        ("a b: nop", "test.s:1:1: \"a b\" is no name for a label"),
        ("mova r0, #1 ; mov r0, #2", "test.s:1:1: mova and mov write r0 in one cycle"),
        ("lda r0, [p0, #0]\nmov r0, #1", "test.s:2:1: mov writes r0 before lda on line 1 does: 6 cycles missing"),
        (
            "vadd.f bml0, bml1, bml2, r0\nnop\nvmov bml3, bml4",
            "test.s:3:1: vmov takes the port cm.rm in the cycle in which vadd.f on line 1 does: move one of them by a cycle",
        ),
        (
            "vadd.f bml0, bml1, bml2, r0 ; vmov bml1, x0",
            "test.s:1:1: vmov writes amll1 before vadd.f on line 1 reads it",
        ),
    ];
    for (text, message) in cases {
        let found = errors(&format!("{text}\n.nops 9\ndone"));
        let found = if message.contains("labels no bundle") { errors(text) } else { found };
        assert!(found.iter().any(|error| error.starts_with(message)), "{text}: {message}: {found:?}");
    }
}

#[test]
fn all_mistakes_come_back() {
    assert_eq!(errors("frob\nmova r0, #1\nfrob").len(), 2);
}

#[test]
fn program_fits_a_core() {
    let found = errors(&format!("{}done", ".nops 1024\n".repeat(8)));
    assert!(found[0].contains("the program has 16388 bytes, a core holds 16384"), "{found:?}");
}
