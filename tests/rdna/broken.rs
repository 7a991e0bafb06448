//! What the interpreter must catch in whole passes: each thing that keeps kernels right is broken once.

use super::*;
use gfx11::fault::What;
use kiln::executor::ExecutorExt;

const HEAD: Option<HeadRows> = Some(HeadRows { first: 0, count: 1 });
const ROW: [Row; 1] = [Row { token: 5, position: 0, sequence: 0 }];

/// What a pass of one row ends with.
fn fault_of(replay: &mut Replay<Interpreter>, watch: &Watch) -> Option<What> {
    watch.fault.take();
    watch.edges.set(0);
    let done = replay.forward(&ROW, HEAD);
    let fault = watch.fault.take().map(|(_, fault)| fault.what);
    assert_eq!(done.is_err(), fault.is_some());
    fault
}

#[test]
fn a_missing_edge_between_two_dispatches_is_caught() {
    on_radv("broken::a_missing_edge_between_two_dispatches_is_caught", |compiler| {
        let checkpoint = Checkpoint::open(&golden("tiny")).unwrap();
        let (mut replay, watch) = INT8.load(compiler, &checkpoint);
        // After two passes it is known that a pass fits one submit.
        assert_eq!([0; 2].map(|_| fault_of(&mut replay, &watch)), [None, None]);
        let edges = watch.edges.get();
        assert!(edges > 30, "{edges}");
        // The first stands behind nothing but what was submitted before.
        let mut uncaught = Vec::new();
        for edge in 1..edges {
            watch.passed_over.set(Some(edge));
            match fault_of(&mut replay, &watch) {
                Some(What::Unordered { .. } | What::Stale { .. }) => {}
                other => uncaught.push((edge, other)),
            }
        }
        watch.passed_over.set(None);
        assert_eq!(fault_of(&mut replay, &watch), None);
        assert!(uncaught.is_empty(), "of {edges} edges: {uncaught:?}");
    });
}

/// Runs a pass with one kernel's words changed.
fn fault_with(
    compiler: &Shared,
    replay: &mut Replay<Interpreter>,
    watch: &Watch,
    kernel: Kernel,
    change: impl FnOnce(&mut [u32]),
) -> Option<What> {
    let mut words = compiler.borrow().compile(kernel).code;
    change(&mut words);
    compiler.borrow_mut().replace(kernel, Some(&words));
    let fault = fault_of(replay, watch);
    compiler.borrow_mut().replace(kernel, None);
    fault
}

/// The kernels that have run.
fn kernels(compiler: &Shared) -> Vec<Kernel> {
    compiler.borrow().kernels()
}

/// Places of a kernel's instructions of that name.
fn places(compiler: &Shared, kernel: Kernel, is: impl Fn(&str) -> bool) -> Vec<usize> {
    let code = compiler.borrow_mut().get(kernel);
    code.program.ready.iter().filter(|r| is(r.inst.opcode.name)).map(|r| r.inst.at).collect()
}

/// In each kernel of a pass: its first waits for vector memory, one too high each. Some of them are not reached, or cover more
/// than what is used next: without those that never matter, most are caught.
#[test]
fn a_wait_count_one_too_high_is_caught() {
    on_radv("broken::a_wait_count_one_too_high_is_caught", |compiler| {
        let checkpoint = Checkpoint::open(&golden("tiny")).unwrap();
        let (mut replay, watch) = INT8.load(compiler, &checkpoint);
        assert_eq!(fault_of(&mut replay, &watch), None);
        let (mut caught, mut idle) = (0, Vec::new());
        for kernel in kernels(compiler) {
            let waits = places(compiler, kernel, |name| name == "s_waitcnt");
            let word = |at: usize| compiler.borrow_mut().get(kernel).code[at];
            let waits: Vec<usize> = waits.into_iter().filter(|at| word(*at) >> 10 & 63 != 63).take(4).collect();
            for at in waits {
                let more = |words: &mut [u32]| words[at] += 1 << 10;
                match fault_with(compiler, &mut replay, &watch, kernel, more) {
                    Some(What::NotWaited { counter: "vmcnt", .. }) => caught += 1,
                    None => {
                        let none = |words: &mut [u32]| words[at] |= 63 << 10;
                        if fault_with(compiler, &mut replay, &watch, kernel, none).is_some() {
                            idle.push((kernel.module, at));
                        }
                    }
                    other => panic!("{kernel:?} at {:#x}: {other:?}", 4 * at),
                }
            }
        }
        assert!(caught >= 12 && caught > 3 * idle.len(), "{caught} caught, not {idle:?}");
    });
}

/// Behind a relay, a load that may hit its compute unit's cache finds what was there before.
#[test]
fn a_stale_cache_behind_a_relay_is_caught() {
    on_radv("broken::a_stale_cache_behind_a_relay_is_caught", |compiler| {
        let checkpoint = Checkpoint::open(&golden("tiny")).unwrap();
        let (mut replay, watch) = Setup { relay: true, ..INT8 }.load(compiler, &checkpoint);
        assert_eq!([0; 3].map(|_| fault_of(&mut replay, &watch)), [None, None, None]);
        let mut caught = Vec::new();
        for kernel in kernels(compiler) {
            let loads = places(compiler, kernel, |name| name.starts_with("global_load_b128"));
            let cached = |words: &mut [u32]| loads.iter().for_each(|at| words[*at] &= !(1 << 14));
            match fault_with(compiler, &mut replay, &watch, kernel, cached) {
                Some(What::Stale { .. }) => caught.push(kernel.module),
                None => {}
                other => panic!("{kernel:?}: {other:?}"),
            }
        }
        assert!(!caught.is_empty());
    });
}

/// Loads of weights that begin a megabyte further, which lies in no buffer.
#[test]
fn a_read_past_a_buffer_is_caught() {
    on_radv("broken::a_read_past_a_buffer_is_caught", |compiler| {
        let checkpoint = Checkpoint::open(&golden("tiny")).unwrap();
        let (mut replay, watch) = INT8.load(compiler, &checkpoint);
        assert_eq!(fault_of(&mut replay, &watch), None);
        let mut caught = 0;
        for kernel in kernels(compiler) {
            // The last store of each kernel, 4 KiB before or behind.
            let Some(at) = places(compiler, kernel, |name| name.starts_with("global_store")).pop() else { continue };
            for offset in [0xfff, 0x1000] {
                let moved = |words: &mut [u32]| words[at] = words[at] & !0x1fff | offset;
                let fault = fault_with(compiler, &mut replay, &watch, kernel, moved);
                caught += usize::from(matches!(fault, Some(What::OutOfBounds { .. } | What::Misaligned(_))));
            }
        }
        assert!(caught > 0);
    });
}

/// The two operands of each matrix product, exchanged: rows are columns then.
#[test]
fn exchanged_lanes_of_matrix_products_are_seen() {
    on_radv("broken::exchanged_lanes_of_matrix_products_are_seen", |compiler| {
        let checkpoint = Checkpoint::open(&golden("tiny")).unwrap();
        let (mut replay, _) = INT8.load(compiler, &checkpoint);
        let rows: Vec<Row> = (0..33).map(|p| Row { token: 3 + 7 * p, position: p, sequence: 0 }).collect();
        let mut logits = || {
            replay.forward(&rows, HEAD).unwrap_or_else(|e| panic!("{e}"));
            replay.logits(0).unwrap().to_vec()
        };
        let right = logits();
        assert_eq!(logits(), right);
        let mut seen = 0;
        for kernel in kernels(compiler) {
            let products = places(compiler, kernel, |name| name.starts_with("v_wmma"));
            if products.is_empty() {
                continue;
            }
            let mut words = compiler.borrow().compile(kernel).code;
            for at in products {
                let second = words[at + 1];
                words[at + 1] = second & !0x3ffff | (second & 0x1ff) << 9 | second >> 9 & 0x1ff;
            }
            compiler.borrow_mut().replace(kernel, Some(&words));
            let error = relative_rms(&logits(), &right);
            assert!(error > 0.05, "{kernel:?}: {error}");
            compiler.borrow_mut().replace(kernel, None);
            seen += 1;
        }
        assert!(seen >= 2, "{seen} kernels with matrix products");
    });
}
