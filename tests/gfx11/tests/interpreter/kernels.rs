//! RADV's own code of some of Kiln's kernels for gfx1103 (Mesa 25.0.7, `RADV_FORCE_FAMILY=phoenix`), as
//! `vkGetPipelineCacheData` gives it: run as it is, and RMSNorm with one thing broken at a time. Specialization constants:
//! rms_norm 0=64 1=1 2=0 3=0, linear_int8 0=128 1=2 2=1 8=1, fragment 0=32 10=16 11=16 12=16, argmax 0=256 1=4,
//! matrix_rate 0=128 1=16 2=16 3=16 4=4.

use gfx11::fault::What;
use gfx11::kernel::{self, Kernel, Launch, PUSH_HIGH};
use gfx11::machine::{Config, Machine};
use gfx11::memory::Memory;
use gfx11::program::Program;

const ROWS: usize = 5;
const WIDTH: usize = 256;
const STATE: u64 = 0x1_0000_0000;
const X: u64 = 0x1_0100_0000;
const W: u64 = 0x1_0200_0000;
const Y: u64 = 0x1_0300_0000;
const PUSH: u64 = PUSH_HIGH + 0x100;

fn kernel() -> Kernel {
    let mut all = Kernel::all(include_bytes!("../data/rms_norm.blob")).unwrap();
    assert_eq!(all.len(), 1);
    all.remove(0)
}

fn value(i: usize, scale: f32) -> f32 {
    ((i * 7919 % 1013) as f32 / 1013.0 - 0.5) * scale
}

fn push() -> Vec<u32> {
    let pointers = [STATE, X, W, 0, 0, Y, 0];
    let words = pointers.iter().flat_map(|p| [*p as u32, (*p >> 32) as u32]);
    // Rows are counted by word 0; strides in elements.
    let rest = [0, 0, WIDTH as u32, WIDTH as u32, WIDTH as u32, WIDTH as u32, 0, 0, 1e-6f32.to_bits(), 0, 0, 0];
    words.chain(rest).collect()
}

fn floats(n: usize, scale: f32) -> Vec<u32> {
    (0..n).map(|i| value(i, scale).to_bits()).collect()
}

/// `short`: dwords that X lacks.
fn memory(short: usize) -> Memory {
    let mut memory = Memory::default();
    memory.add_words("state", STATE, &[ROWS as u32, 0, 0, 0]);
    memory.add_words("x", X, &floats(ROWS * WIDTH - short, 8.0));
    memory.add_words("w", W, &floats(WIDTH, 1.0));
    memory.add("y", Y, 4 * (ROWS * WIDTH) as u64);
    memory.add_words("push", PUSH, &push());
    memory
}

fn run(kernel: &Kernel, memory: &Memory, seed: u64) -> Result<u64, What> {
    let mut machine = Machine::new(Config { budget: 100_000, ..Config::gfx1103(seed) });
    let launch = Launch { kernel, grid: [1, ROWS as u32, 1], push: &push(), push_low: PUSH as u32 };
    kernel::run(&mut machine, memory, &[launch]).map(|r| r.steps).map_err(|f| f.what)
}

/// Plain arithmetic in f64.
fn expected(row: usize, column: usize) -> f64 {
    let x = |i: usize| value(row * WIDTH + i, 8.0) as f64;
    let mean = (0..WIDTH).map(|i| x(i) * x(i)).sum::<f64>() / WIDTH as f64;
    x(column) / (mean + 1e-6).sqrt() * (1.0 + value(column, 1.0) as f64)
}

#[test]
fn radvs_rms_norm_computes_the_norm() {
    let kernel = kernel();
    assert_eq!((kernel.threads, kernel.float_mode), ([64, 1, 1], 0xc0));
    for seed in 1..20 {
        let memory = memory(0);
        let steps = run(&kernel, &memory, seed).unwrap_or_else(|what| panic!("seed {seed}: {what}"));
        assert!(steps > 100, "{steps}");
        let y = memory.buffer("y").unwrap();
        assert_eq!(y.unwritten(), 0);
        for (i, got) in y.contents().into_iter().enumerate() {
            let (got, want) = (f32::from_bits(got) as f64, expected(i / WIDTH, i % WIDTH));
            assert!((got - want).abs() <= 2e-6 * want.abs().max(1.0), "seed {seed}, {i}: {got}, not {want}");
        }
    }
}

/// The kernel with one word changed.
fn mutated(at: usize, word: u32) -> Kernel {
    let mut kernel = kernel();
    let mut code = kernel.code.clone();
    code[at] = word;
    kernel.program = Program::new(&code).unwrap();
    kernel
}

fn positions(name: &str) -> Vec<usize> {
    let of = |k: &Kernel| k.program.ready.iter().filter(|r| r.inst.opcode.name == name).map(|r| r.inst.at).collect();
    of(&kernel())
}

/// Each count of each wait of the kernel, one higher: what was loaded is used in flight, or the count cannot matter. One
/// that does not fault must wait for nothing, which a run without the wait shows.
#[test]
fn a_wait_count_one_too_high_is_caught() {
    let waits = positions("s_waitcnt");
    assert!(waits.len() >= 3);
    let (mut caught, mut idle) = (0, 0);
    for at in waits {
        let word = kernel().code[at];
        for (low, counter) in [(10, "vmcnt"), (4, "lgkmcnt")] {
            let count = word >> low & 63;
            if count == 63 {
                continue;
            }
            let higher = word & !(63 << low) | (count + 1) << low;
            match run(&mutated(at, higher), &memory(0), 3) {
                Err(What::NotWaited { counter: got, .. }) => {
                    assert_eq!(got, counter, "at {:#x}", at * 4);
                    caught += 1;
                }
                Err(What::BarrierBeforeStore | What::Race { .. }) if counter == "lgkmcnt" => caught += 1,
                Err(other) => panic!("at {:#x}: {other}", at * 4),
                Ok(_) => idle += 1,
            }
        }
    }
    assert!(caught >= 3 && caught > idle, "{caught} caught, {idle} wait for nothing");
}

/// The kernel's barriers: those of its relay are passed by here, that between the waves' sums is not.
#[test]
fn a_missing_barrier_is_caught() {
    let barriers = positions("s_barrier");
    let caught = |at: usize, seed: u64| {
        let found = run(&mutated(at, 0xbf80_0000), &memory(0), seed);
        matches!(found, Err(What::Race { .. }))
    };
    let counts: Vec<usize> = barriers.iter().map(|at| (1..30).filter(|seed| caught(*at, *seed)).count()).collect();
    assert_eq!(counts.iter().filter(|n| **n == 29).count(), 1, "{counts:?}");
}

#[test]
fn a_read_past_a_buffer_is_caught_by_the_buffers_name() {
    let found = run(&kernel(), &memory(1), 1).unwrap_err();
    let What::OutOfBounds { address, bytes, buffer } = found else { panic!("{found}") };
    assert_eq!((address, bytes), (X + 4 * (ROWS * WIDTH - 4) as u64, 16));
    assert!(buffer.starts_with("x has 5116 bytes"), "{buffer}");
}

#[test]
fn what_was_never_written_is_caught() {
    let mut memory = Memory::default();
    memory.add("state", STATE, 16);
    memory.add_words("push", PUSH, &push());
    assert_eq!(run(&kernel(), &memory, 1), Err(What::Poison("the SCC of a branch".into())));
}

#[test]
fn the_same_seed_gives_the_same_run_on_one_thread() {
    let steps = |seed| {
        let mut machine = Machine::new(Config { threads: 1, ..Config::gfx1103(seed) });
        let memory = memory(0);
        let launch = Launch { kernel: &kernel(), grid: [1, ROWS as u32, 1], push: &push(), push_low: PUSH as u32 };
        let steps = kernel::run(&mut machine, &memory, &[launch]).unwrap().steps;
        (steps, memory.buffer("y").unwrap().contents())
    };
    assert_eq!(steps(7), steps(7));
    assert_eq!(steps(7).1, steps(8).1);
}

#[test]
fn a_damaged_blob_is_refused() {
    let blob = include_bytes!("../data/rms_norm.blob");
    for cut in [0, 10, 40, 100, 1000, blob.len() - 1] {
        assert!(Kernel::all(&blob[..cut]).is_err(), "{cut}");
    }
}

/// A row times an INT8 matrix with a scale an output: in the order of f32 sums that the kernel has, near that of f64.
#[test]
fn radvs_int8_product_computes_the_product() {
    const N: usize = 50;
    const K: usize = 512;
    let kernel = Kernel::all(include_bytes!("../data/linear_int8.blob")).unwrap().remove(0);
    let weight = |n: usize, k: usize| (n * 31 + k * 17 + n * k) as i8;
    let word = |i: usize| u32::from_le_bytes(std::array::from_fn(|b| weight(i * 4 / K, i * 4 % K + b) as u8));
    for seed in 1..6 {
        let mut memory = Memory::default();
        memory.add_words("state", STATE, &[1, 0, 0, 0]);
        memory.add_words("weight", W, &(0..N * K / 4).map(word).collect::<Vec<_>>());
        memory.add_words("scales", W + 0x10_0000, &floats(N, 0.1));
        memory.add_words("x", X, &floats(K, 4.0));
        memory.add("y", Y, 4 * N as u64);
        let pointers = [STATE, W, W + 0x10_0000, X, Y].into_iter().flat_map(|p| [p as u32, (p >> 32) as u32]);
        let push: Vec<u32> = pointers.chain([0, N as u32, K as u32, K as u32, N as u32]).collect();
        memory.add_words("push", PUSH, &push);
        let mut machine = Machine::new(Config::gfx1103(seed));
        let launch = Launch { kernel: &kernel, grid: [3, 1, 1], push: &push, push_low: PUSH as u32 };
        let report = kernel::run(&mut machine, &memory, &[launch]);
        report.unwrap_or_else(|fault| panic!("seed {seed}: {fault}"));
        let y = memory.buffer("y").unwrap();
        assert_eq!(y.unwritten(), 0);
        for (n, got) in y.contents().into_iter().enumerate() {
            let terms = (0..K).map(|k| weight(n, k) as f64 * value(k, 4.0) as f64);
            let (sum, size) = terms.fold((0.0, 0.0), |(sum, size), t| (sum + t, size + t.abs()));
            let scale = value(n, 0.1) as f64;
            let (got, want) = (f32::from_bits(got) as f64, sum * scale);
            assert!((got - want).abs() <= 1e-6 * size * scale.abs() + 1e-9, "output {n}: {got}, not {want}");
        }
    }
}

/// Two RMSNorms, the second of the first one's rows, with a relay between them and no barrier: as RADV compiles it the
/// second sees what the first wrote. `y` has been read before, so that both arrays' caches hold what it was.
fn relayed(code: &Kernel, seed: u64) -> Result<(), What> {
    let rows = ROWS as u32;
    let mut memory = memory(0);
    memory.add_words("counters", STATE + 0x1000, &[0; 96]);
    memory.add_words("z", Y + 0x10_0000, &vec![0; ROWS * WIDTH]);
    memory.write(Y, &vec![0; ROWS * WIDTH]).unwrap();
    // The state's words are the counters here: word 0 counts rows.
    memory.write(STATE + 0x1000, &[rows, 0, 0, 0]).unwrap();
    let block = |x: u64, y: u64, turn: u32, before: u32| -> Vec<u32> {
        let mut push = push();
        for (at, pointer) in [(0, STATE + 0x1000), (2, x), (10, y)] {
            (push[at], push[at + 1]) = (pointer as u32, (pointer >> 32) as u32);
        }
        (push[24], push[25]) = (turn, before);
        push
    };
    let [warm, first, second] = [block(Y, Y + 0x10_0000, 0, 0), block(X, Y, 32, 0), block(Y, Y + 0x10_0000, 64, rows)];
    for (i, push) in [&warm, &first, &second].into_iter().enumerate() {
        memory.add_words(&format!("push {i}"), PUSH + 0x1000 * (1 + i as u64), push);
    }
    let launch =
        |i: u32, push| Launch { kernel: code, grid: [1, rows, 1], push, push_low: PUSH as u32 + 0x1000 * (1 + i) };
    let mut machine =
        Machine::new(Config { budget: 1_000_000, resident: 8, threads: 1, apart: false, ..Config::gfx1103(seed) });
    let fault = |f: gfx11::fault::Fault| f.what;
    // Twice, so that each array has read each row.
    kernel::run(&mut machine, &memory, &[launch(0, &warm), launch(0, &warm)]).map_err(fault)?;
    kernel::run(&mut machine, &memory, &[launch(1, &first), launch(2, &second)]).map_err(fault)?;
    let state = memory.buffer("counters").unwrap().contents();
    assert_eq!((state[32], state[64], state[3]), (rows, rows, 0));
    let z = memory.buffer("z").unwrap().contents();
    for row in 0..ROWS {
        let y = |i: usize| expected(row, i);
        let mean = (0..WIDTH).map(|i| y(i) * y(i)).sum::<f64>() / WIDTH as f64;
        for i in 0..WIDTH {
            let want = y(i) / (mean + 1e-6).sqrt() * (1.0 + value(i, 1.0) as f64);
            let got = f32::from_bits(z[row * WIDTH + i]) as f64;
            assert!((got - want).abs() <= 4e-6 * want.abs().max(1.0), "{row}, {i}: {got}, not {want}");
        }
    }
    Ok(())
}

#[test]
fn radvs_relay_makes_rows_visible() {
    for seed in 1..40 {
        relayed(&kernel(), seed).unwrap_or_else(|what| panic!("seed {seed}: {what}"));
    }
}

/// RADV has an acquire by loads of device scope alone: of CU scope they find what `y` was.
#[test]
fn loads_behind_a_relay_that_may_hit_a_cache_are_caught() {
    let glc = 1 << 14;
    let mut kernel = kernel();
    let loads = kernel.program.ready.iter().filter(|r| r.inst.opcode.name == "global_load_b128" && r.inst.has("glc"));
    let loads: Vec<usize> = loads.map(|r| r.inst.at).collect();
    assert!(!loads.is_empty());
    let mut code = kernel.code.clone();
    loads.iter().for_each(|at| code[*at] &= !glc);
    kernel.program = Program::new(&code).unwrap();
    let stale = |seed: &u64| matches!(relayed(&kernel, *seed), Err(What::Stale { .. }));
    assert_eq!((1..40).filter(stale).count(), 39);
}

/// One dispatch of a kernel whose push constants are these words.
fn once(blob: &[u8], memory: &mut Memory, grid: [u32; 3], push: &[u32], seed: u64) -> Result<u64, What> {
    let kernel = Kernel::all(blob).unwrap().remove(0);
    memory.add_words("push", PUSH, push);
    let mut machine = Machine::new(Config::gfx1103(seed));
    let launch = Launch { kernel: &kernel, grid, push, push_low: PUSH as u32 };
    kernel::run(&mut machine, memory, &[launch]).map(|r| r.steps).map_err(|f| f.what)
}

/// Kiln asks a device how a wave holds its matrices: by RADV's loads of cooperative matrices a lane holds a whole line.
#[test]
fn a_wave_holds_its_matrices_as_the_manual_says() {
    let mut memory = Memory::default();
    memory.add("found", STATE, 4);
    once(include_bytes!("../data/fragment.blob"), &mut memory, [1, 1, 1], &[STATE as u32, (STATE >> 32) as u32], 1)
        .unwrap();
    assert_eq!(memory.buffer("found").unwrap().contents(), [1]);
}

/// Four waves multiply matrices from LDS and store the sums there: nothing races, nothing was never written.
#[test]
fn matrix_products_of_several_waves_run_clean() {
    for seed in 1..5 {
        let mut memory = Memory::default();
        memory.add("sink", STATE, 4);
        let push = [STATE as u32, (STATE >> 32) as u32, 3];
        once(include_bytes!("../data/matrix_rate.blob"), &mut memory, [2, 1, 1], &push, seed).unwrap();
    }
}

/// Four workgroups a row, of which the last to finish compares what all found.
#[test]
fn radvs_argmax_over_workgroups_finds_the_largest() {
    const ROWS: usize = 3;
    let width = 5000;
    for seed in 1..20 {
        let mut memory = Memory::default();
        memory.add_words("state", STATE, &[ROWS as u32, 0, 0, 0, 0, 0, 0, 0, 9, 9, 9, 9, 9, 9, 9, 9]);
        let mut x: Vec<u32> = (0..ROWS * width).map(|i| value(i * 31 % 7000, 8.0).to_bits()).collect();
        let largest = [17, 4999, 2500];
        for (row, at) in largest.into_iter().enumerate() {
            x[row * width + at] = 100f32.to_bits();
            x[row * width + at.max(4000)] = 100f32.to_bits();
        }
        memory.add_words("x", X, &x);
        memory.add_words("counters", Y, &[0; 1024]);
        memory.add("parts", Y + 4096, 8 * 4 * ROWS as u64 + 64);
        let pointers = [STATE, X, Y].into_iter().flat_map(|p| [p as u32, (p >> 32) as u32]);
        let push: Vec<u32> = pointers.chain([0, 8, 12, width as u32, width as u32]).collect();
        once(include_bytes!("../data/argmax.blob"), &mut memory, [4, ROWS as u32, 1], &push, seed)
            .unwrap_or_else(|what| panic!("seed {seed}: {what}"));
        let state = memory.buffer("state").unwrap().contents();
        assert_eq!((&state[8..11], &state[12..15]), (&largest.map(|at| at as u32)[..], &[1, 1, 1][..]));
    }
}
