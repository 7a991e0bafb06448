//! Prints how many wave instructions a second and core run with all checks: RADV's RMSNorm of many rows.

use gfx11::kernel::{self, Kernel, Launch, PUSH_HIGH};
use gfx11::machine::{Config, Machine};
use gfx11::memory::Memory;
use std::time::Instant;

const BASE: u64 = 0x1_0000_0000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut kernels = Kernel::all(include_bytes!("../tests/data/rms_norm.blob"))?;
    let kernel = kernels.pop().ok_or("no kernel")?;
    let (rows, width) = (20_000usize, 256usize);
    let pointers = [0, 1, 2, 0, 0, 3, 0].map(|i| BASE + (i << 28));
    let sizes = [0, 0, width, width, width, width, 0, 0, 0x358637bd, 0, 0, 0];
    let push: Vec<u32> =
        pointers.iter().flat_map(|p| [*p as u32, (*p >> 32) as u32]).chain(sizes.map(|s| s as u32)).collect();
    let mut memory = Memory::default();
    memory.add_words("state", pointers[0], &[rows as u32, 0, 0, 0]);
    memory.add_words("x", pointers[1], &vec![0x3f80_0000; rows * width]);
    memory.add_words("w", pointers[2], &vec![0x3f80_0000; width]);
    memory.add("y", pointers[5], 4 * (rows * width) as u64);
    memory.add_words("push", PUSH_HIGH, &push);
    for threads in [1, std::thread::available_parallelism()?.get()] {
        let mut machine = Machine::new(Config { threads, ..Config::gfx1103(1) });
        let start = Instant::now();
        let report = kernel::run(
            &mut machine,
            &memory,
            &[Launch { kernel: &kernel, grid: [1, rows as u32, 1], push: &push, push_low: 0 }],
        )?;
        let rate = report.steps as f64 / start.elapsed().as_secs_f64() / 1e6;
        println!(
            "{threads} threads: {:.1} million instructions, {rate:.1} million a second",
            report.steps as f64 / 1e6
        );
    }
    Ok(())
}
