//! Distances between instructions, as independent sources have them, to the cycle: what they place is accepted, what is
//! a cycle closer is an error that says so.

use kiln_aie::assemble;
use kiln_aie::isa::Isa;

use crate::distances::distances;

#[test]
fn distances_are_exact() {
    let isa = Isa::aie2();
    let refuted: Vec<String> = distances().iter().filter_map(|distance| distance.refute(&isa)).collect();
    assert!(refuted.is_empty(), "{}", refuted.join("\n"));
}

/// The program's errors, one a line.
fn errors(text: &str) -> String {
    match assemble(&Isa::aie2(), "test.s", text) {
        Ok(_) => String::new(),
        Err(errors) => errors.iter().map(|error| format!("{error}\n")).collect(),
    }
}

#[test]
fn hazard_names_line_register_and_cycles() {
    let text = "vlda wl0, [p0], #32\nvlda wh0, [p0], #32\n.nops 4\nvmac.f bml0, bml0, x0, x1, r0\n.nops 8\ndone";
    assert_eq!(
        errors(text),
        "test.s:4:1: vmac.f reads wh0 2 cycles too early: vlda on line 2 has it ready 7 cycles later, 2 cycles missing\n\
         test.s:4:1: vmac.f reads wl0 1 cycle too early: vlda on line 1 has it ready 7 cycles later, 1 cycle missing\n"
    );
}

#[test]
fn load_is_waited_for_across_a_taken_branch_and_its_delay_slots() {
    // The load issues in the fourth delay slot: two cycles before the target.
    let text = |nops| {
        format!(
            "j #there\n.nops 3\nlda r0, [p0, #0]\nnop\nadd r9, r0, r0\n.align 16\nthere:\n{nops}\nadd r1, r0, r0\ndone"
        )
    };
    assert_eq!(errors(&text(".nops 5")), "");
    let early = errors(&text(".nops 4"));
    assert!(early.contains("reads r0 1 cycle too early"), "{early}");
    assert!(!early.contains("7:1"), "the bundle behind the delay slots does not issue: {early}");
}

#[test]
fn loads_in_flight_meet_the_next_pass() {
    let text = |nops| {
        format!(
            "movxm ls, #start\nmovxm le, #last\nmova lc, #4\n.nops 60\n.align 16\nstart:\nadd r1, r0, r0\n\
             lda r0, [p0], #4\n.nops {nops}\n.align 16\nlast:\nadd r2, r2, #1\n.nops 8\ndone"
        )
    };
    assert_eq!(errors(&text(5)), "");
    assert!(errors(&text(4)).contains("test.s:7:1: add reads r0 1 cycle too early: lda on line 8"));
}

#[test]
fn loop_setup_keeps_its_distance() {
    // Seven bundles of 16 bytes between the last write of a loop register and the loop's last bundle.
    let wide = "nopb ; nopa ; nops ; nopxm ; nopv\n";
    let text = |count: usize| {
        let setup = "movxm ls, #start\nmovxm le, #last\n.nops 8\nnopb ; nopa ; nops ; movxm lc, #4 ; nopv\n";
        format!("{setup}.align 16\nstart:\n{}last:\nnop\n.nops 2\ndone", wide.repeat(count))
    };
    let first = |count| errors(&text(count));
    assert_eq!(first(6), "");
    assert_eq!(first(5), "test.s:4:1: the loop's last bundle is 96 bytes behind this, and must be 112: 16 missing\n");
}

#[test]
fn loops_and_branches_keep_their_rules() {
    let cases = [
        ("j #there\n.nops 4\n.align 16\nthere: ret lr", "5 bundles issue behind a branch: 5 are missing"),
        ("ret lr\nnop\nret lr\n.nops 5", "this branch is in the delay slots of another"),
        ("j #there\nnop\n.align 16\nthere:\n.nops 6\ndone", "this branch goes into the delay slots of another"),
        ("nop\nthere:\nj #there\n.nops 5", "is not at a multiple of 16 bytes: put .align 16 before it"),
        ("j #20\n.nops 5", "the branch's target 0x14 is not the start of a bundle"),
        ("add r0, r0, #1\nnop", "the program runs on past its end"),
        ("movxm le, #last\n.nops 9\n.align 16\nlast:\nnop\nnop\ndone", "set ls before le"),
        ("mov ls, r0\ndone", "the loop cannot be followed: set ls to a label"),
        (
            "movxm ls, #start\nmovxm le, #last\nmova lc, #4\n.nops 9\n.align 16\nstart:\nmova lc, #1\n.nops 9\n\
             .align 16\nlast:\nnop\nnop\ndone",
            "this sets a loop register inside of the hardware loop",
        ),
        (
            "movxm ls, #start\nmovxm le, #last\nmova lc, #4\n.nops 9\n.align 16\nstart:\n.nops 9\nj #0\n.nops 3\n\
             .align 16\nlast:\nnop\nnop\ndone",
            "a hardware loop ends in the delay slots of a branch",
        ),
    ];
    for (text, message) in cases {
        assert!(errors(text).contains(message), "{text}\n{}", errors(text));
    }
}
