//! Stale caches and races in LDS, by small programs: each runs clean with what it needs and is caught without.

use crate::common::{END, assemble};
use gfx11::fault::What;
use gfx11::float::Mode;
use gfx11::machine::{Config, Dispatch, Machine};
use gfx11::memory::{Memory, SEVERAL, User};
use gfx11::program::Program;
use gfx11::wave::Wave;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

const DATA: u64 = 0x1000_0000;
const FLAGS: u64 = 0x2000_0000;

// s[0:1] data, s[2:3] flags, s4 workgroup, s5 wave, v1 zero.
fn load() -> Vec<u32> {
    [assemble("GLOBAL", "global_load_b32", &[("vdst", 2), ("addr", 1), ("saddr", 0)]), wait()].concat()
}
fn scalar_load() -> Vec<u32> {
    [assemble("SMEM", "s_load_b32", &[("sdata", 20), ("sbase", 0), ("soffset", 124)]), wait()].concat()
}
fn wait() -> Vec<u32> {
    assemble("SOPP", "s_waitcnt", &[("simm16", 0)])
}
fn store(value: u32) -> Vec<u32> {
    let mov = assemble("VOP1", "v_mov_b32", &[("vdst", 3), ("src0", 128 + value)]);
    let store = assemble("GLOBAL", "global_store_b32", &[("data", 3), ("addr", 1), ("saddr", 0)]);
    [mov, store, assemble("SOPK", "s_waitcnt_vscnt", &[("sdst", 124)])].concat()
}
fn barrier() -> Vec<u32> {
    assemble("SOPP", "s_barrier", &[])
}
fn invalidate(name: &str) -> Vec<u32> {
    assemble("MUBUF", name, &[])
}
/// The block, where the scalar register has that value.
fn only(register: u32, value: u32, block: Vec<u32>) -> Vec<u32> {
    let compare = assemble("SOPC", "s_cmp_eq_u32", &[("ssrc0", register), ("ssrc1", 128 + value)]);
    let skip = assemble("SOPP", "s_cbranch_scc0", &[("simm16", block.len() as u32)]);
    [compare, skip, block].concat()
}
/// Adds 1 to a flag.
fn raise(flag: u32) -> Vec<u32> {
    let mov = assemble("VOP1", "v_mov_b32", &[("vdst", 4), ("src0", 129)]);
    let add = [("data", 4), ("addr", 1), ("saddr", 2), ("offset", 128 * flag)];
    [mov, assemble("GLOBAL", "global_atomic_add_u32", &add)].concat()
}
/// Waits until a flag is not 0: loads of device scope.
fn await_flag(flag: u32) -> Vec<u32> {
    let load = [("vdst", 5), ("addr", 1), ("saddr", 2), ("offset", 128 * flag), ("glc", 1)];
    let first = assemble("VOP1", "v_readfirstlane_b32", &[("vdst", 6), ("src0", 256 + 5)]);
    let compare = assemble("SOPC", "s_cmp_eq_u32", &[("ssrc0", 6), ("ssrc1", 128)]);
    let body = [assemble("GLOBAL", "global_load_b32", &load), wait(), first, compare].concat();
    let back = assemble("SOPP", "s_cbranch_scc1", &[("simm16", (-(body.len() as i32) - 1) as u32 & 0xffff)]);
    [body, back].concat()
}

fn run(code: Vec<u32>, groups: u32, waves: u32, seed: u64) -> Result<(), What> {
    let mut memory = Memory::default();
    memory.add_words("data", DATA, &[1; 64]);
    memory.add_words("flags", FLAGS, &[0; 128]);
    let config =
        Config { arrays: 2, pairs: 1, resident: 1, seed, defer: 4, threads: 1, budget: 1_000_000, apart: true };
    let program = Program::new(&[code, vec![END]].concat()).unwrap();
    let enter = |w: &mut Wave, [group, ..]: [u32; 3]| {
        for (r, x) in [(0, DATA as u32), (1, 0), (2, FLAGS as u32), (3, 0), (4, group), (5, w.id)] {
            w.set_s(r, x);
        }
        w.set_v(0, 1, [0; 32]);
    };
    let dispatch = Dispatch {
        program: &program,
        grid: [groups, 1, 1],
        threads: [32 * waves, 1, 1],
        lds: 1024,
        wave64: false,
        mode: Mode::RADV,
        enter: &enter,
    };
    Machine::new(config).run(&memory, &dispatch).map(|_| ()).map_err(|fault| fault.what)
}

fn stale(cache: &'static str) -> Result<(), What> {
    Err(What::Stale { cache, address: DATA })
}

#[test]
fn the_sibling_cus_l0_within_one_workgroup_is_caught() {
    let program = |between: Vec<u32>| [load(), barrier(), only(5, 0, store(7)), barrier(), between, load()].concat();
    for seed in 1..10 {
        assert_eq!(run(program(vec![]), 1, 2, seed), stale("L0 of CU 1"));
        assert_eq!(run(program(invalidate("buffer_gl0_inv")), 1, 2, seed), Ok(()));
    }
}

/// Workgroup 1, of the other array, has read the data; workgroup 0 writes it and raises a flag.
fn relay(behind: Vec<u32>) -> Vec<u32> {
    let writer = [await_flag(1), store(7), raise(0)].concat();
    let reader = [load(), raise(1), await_flag(0), behind, load()].concat();
    [only(4, 0, writer), only(4, 1, reader)].concat()
}

#[test]
fn a_stale_l0_behind_a_relay_is_caught() {
    for seed in 1..10 {
        assert_eq!(run(relay(vec![]), 2, 1, seed), stale("L0 of CU 0"));
    }
}

#[test]
fn a_stale_gl1_across_arrays_is_caught() {
    let [gl0, gl1] = ["buffer_gl0_inv", "buffer_gl1_inv"].map(invalidate);
    for seed in 1..10 {
        assert_eq!(run(relay(gl0.clone()), 2, 1, seed), stale("GL1"));
        assert_eq!(run(relay([gl1.clone(), gl0.clone()].concat()), 2, 1, seed), Ok(()));
    }
}

#[test]
fn a_stale_scalar_cache_is_caught() {
    let program = |behind: Vec<u32>| [scalar_load(), store(7), behind, scalar_load()].concat();
    assert_eq!(run(program(vec![]), 1, 1, 1), stale("scalar cache"));
    assert_eq!(run(program(assemble("SMEM", "s_dcache_inv", &[])), 1, 1, 1), Ok(()));
}

/// Without a wait for its store the writer raises the flag too early: the reader sees the old data in some order of things.
#[test]
fn a_store_that_was_not_waited_for_shows() {
    let mov = assemble("VOP1", "v_mov_b32", &[("vdst", 3), ("src0", 135)]);
    let early = assemble("GLOBAL", "global_store_b32", &[("data", 3), ("addr", 1), ("saddr", 0)]);
    let reads = |waits: bool, seed: u64| {
        let store = if waits { store(7) } else { [mov.clone(), early.clone()].concat() };
        // The reader faults, by a jump that is no instruction, where it does not find 7.
        let first = assemble("VOP1", "v_readfirstlane_b32", &[("vdst", 8), ("src0", 256 + 2)]);
        let check = only(8, 1, assemble("SOP1", "s_setpc_b64", &[("ssrc0", 10)]));
        let reader = [await_flag(0), load(), first, check].concat();
        run([only(4, 0, [store, raise(0)].concat()), only(4, 1, reader)].concat(), 2, 1, seed)
    };
    assert!((1..60).all(|seed| reads(true, seed) == Ok(())));
    assert!((1..60).any(|seed| matches!(reads(false, seed), Err(What::Poison(_) | What::Stale { .. }))));
}

/// The address in LDS, the same for all lanes, of which only the first is left on.
fn lds(byte: u32, then: Vec<u32>) -> Vec<u32> {
    let one = assemble("SOP1", "s_mov_b32", &[("sdst", 126), ("ssrc0", 129)]);
    let mov = assemble("VOP1", "v_mov_b32", &[("vdst", 9), ("src0", 128 + byte)]);
    [one, mov, then].concat()
}
fn ds(name: &str, fields: &[(&str, u32)]) -> Vec<u32> {
    assemble("DS", name, &[&[("addr", 9)], fields].concat())
}

#[test]
fn races_in_lds_are_found_by_byte() {
    let byte = |at: u32| lds(at, [ds("ds_store_b8", &[("data0", 1)]), wait()].concat());
    let both =
        |a: u32, b: u32, between: Vec<u32>| [only(5, 0, byte(a)), between, only(5, 1, byte(b)), barrier()].concat();
    for seed in 1..10 {
        assert_eq!(run(both(4, 5, vec![]), 1, 2, seed), Ok(()));
        assert_eq!(run(both(4, 4, barrier()), 1, 2, seed), Ok(()));
        let found = run(both(4, 4, vec![]), 1, 2, seed);
        let Err(What::Race { byte: 4, mut waves }) = found else { panic!("{found:?}") };
        waves.sort();
        assert_eq!(waves, [0, 1]);
        // Atomics do not race with each other.
        let zero = lds(4, [ds("ds_store_b32", &[("data0", 1)]), wait()].concat());
        let add = lds(4, [ds("ds_add_u32", &[("data0", 1)]), wait()].concat());
        assert_eq!(run([only(5, 0, zero), barrier(), add].concat(), 1, 2, seed), Ok(()));
    }
}

#[test]
fn what_is_in_flight_across_a_barrier_is_not_ordered_with_what_comes_behind() {
    let store =
        |waits: bool| lds(8, [ds("ds_store_b32", &[("data0", 1)]), if waits { wait() } else { vec![] }].concat());
    let load = |waits: bool| lds(8, [ds("ds_load_b32", &[("vdst", 2)]), if waits { wait() } else { vec![] }].concat());
    // Wave 0 reads, wave 1 writes behind the barrier; wave 0 waits for its load only then, and may use it.
    let uses = [assemble("DS", "ds_load_b32", &[("vdst", 3), ("addr", 2)]), wait()].concat();
    let eight = assemble("VOP1", "v_mov_b32", &[("vdst", 1), ("src0", 128 + 8)]);
    let program = |waits: bool, then: &[u32]| {
        let first = [eight.clone(), only(5, 0, store(true)), barrier(), only(5, 0, load(waits)), barrier()].concat();
        [first, only(5, 1, store(true)), wait(), barrier(), only(5, 0, then.to_vec())].concat()
    };
    for seed in 1..20 {
        assert_eq!(run(program(true, &uses), 1, 2, seed), Ok(()));
        assert_eq!(run(program(false, &[]), 1, 2, seed), Ok(()));
        let found = run(program(false, &uses), 1, 2, seed);
        assert!(matches!(found, Err(What::Poison(_))), "{found:?}");
    }
    assert_eq!(run([store(false), barrier()].concat(), 1, 1, 1), Err(What::BarrierBeforeStore));
}

/// What the last of some uses of one dword, each by a dispatch of a run, is told.
fn uses(of: &[(u32, u32, bool)]) -> Result<(), Option<u32>> {
    let mut memory = Memory::default();
    memory.add_words("data", DATA, &[0]);
    memory.watch("data");
    let buffer = memory.buffer("data").unwrap();
    let mark =
        |(run, dispatch, writes): &(u32, u32, bool)| buffer.mark(0, User { run: *run, dispatch: *dispatch }, *writes);
    let (last, before) = of.split_last().unwrap();
    assert!(before.iter().all(|one| mark(one) == Ok(())));
    mark(last)
        .map_err(|what| if let What::Unordered { dispatches: [other, _], .. } = what { Some(other) } else { None })
}

#[test]
fn a_dword_that_two_dispatches_use_and_one_writes_is_told() {
    let (reads, writes) = (false, true);
    for fine in [
        vec![(1, 0, reads), (1, 1, reads), (1, 2, reads)],
        vec![(1, 0, reads), (1, 0, writes), (1, 0, writes), (1, 0, reads)],
        vec![(1, 0, writes), (2, 1, reads), (3, 0, writes), (4, 1, writes)],
        vec![(1, 0, reads), (1, 1, reads), (2, 0, writes)],
    ] {
        assert_eq!(uses(&fine), Ok(()), "{fine:?}");
    }
    assert_eq!(uses(&[(7, 3, writes), (7, 4, reads)]), Err(Some(3)));
    assert_eq!(uses(&[(7, 3, reads), (7, 4, writes)]), Err(Some(3)));
    assert_eq!(uses(&[(7, 3, writes), (7, 4, writes)]), Err(Some(3)));
    // The one that writes has read it last itself.
    assert_eq!(uses(&[(7, 3, reads), (7, 4, reads), (7, 4, writes)]), Err(Some(SEVERAL)));
}

#[test]
fn of_two_threads_that_use_a_dword_at_once_one_is_told() {
    const DWORDS: usize = 20_000;
    let mut memory = Memory::default();
    memory.add_words("data", DATA, &vec![0; DWORDS]);
    memory.watch("data");
    let buffer = memory.buffer("data").unwrap();
    let arrived = AtomicUsize::new(0);
    let told = [false, true].map(|writes| (writes, writes as u32));
    let told = std::thread::scope(|scope| {
        let threads = told.map(|(writes, dispatch)| {
            let arrived = &arrived;
            scope.spawn(move || {
                let by = User { run: 1, dispatch };
                let use_of = |i: usize| {
                    // Both begin a dword when both have left the one before.
                    arrived.fetch_add(1, SeqCst);
                    while arrived.load(SeqCst) < 2 * (i + 1) {
                        std::thread::yield_now();
                    }
                    buffer.mark(i, by, writes).is_err()
                };
                (0..DWORDS).map(use_of).collect::<Vec<_>>()
            })
        });
        threads.map(|thread| thread.join().unwrap())
    });
    let unseen = (0..DWORDS).filter(|i| !told[0][*i] && !told[1][*i]).count();
    assert_eq!(unseen, 0);
}
