//! Prints how many wave instructions a second and core run with all checks: RADV's RMSNorm of many rows, its product of an
//! INT8 matrix, and products of matrices by WMMA alone. Seconds are those that the process computed, so that others on the machine count little.

use gfx11::fault::Fault;
use gfx11::kernel::{self, Kernel, Launch, PUSH_HIGH};
use gfx11::machine::{Config, Machine, Report};
use gfx11::memory::Memory;

const BASE: u64 = 0x1_0000_0000;

fn address(i: u64) -> u64 {
    BASE + (i << 28)
}

/// Seconds that this process has computed: field 14 of Linux's stat, in hundredths.
fn computed() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let ticks: f64 = stat.rsplit(')').next()?.split_whitespace().nth(11)?.parse().ok()?;
    Some(ticks / 100.0)
}

fn measure(name: &str, run: impl Fn() -> Result<Report, Fault>) -> Result<(), Box<dyn std::error::Error>> {
    let start = computed().ok_or("no /proc")?;
    let mut steps = 0;
    while computed().ok_or("no /proc")? - start < 2.0 {
        steps += run()?.steps;
    }
    let rate = steps as f64 / (computed().ok_or("no /proc")? - start) / 1e6;
    println!("{name}: {rate:.1} million wave instructions a second and core");
    Ok(())
}

fn push(pointers: &[u64], words: &[usize]) -> Vec<u32> {
    let pointers = pointers.iter().flat_map(|p| [*p as u32, (*p >> 32) as u32]);
    pointers.chain(words.iter().map(|w| *w as u32)).collect()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let norm = Kernel::all(include_bytes!("../tests/data/rms_norm.blob"))?.pop().ok_or("no kernel")?;
    let product = Kernel::all(include_bytes!("../tests/data/linear_int8.blob"))?.pop().ok_or("no kernel")?;
    let matrices = Kernel::all(include_bytes!("../tests/data/matrix_rate.blob"))?.pop().ok_or("no kernel")?;
    let (rows, width, outputs, inputs) = (5_000, 256, 1024, 4096);
    let mut memory = Memory::default();
    memory.add_words("state", address(0), &[rows as u32, 0, 0, 0]);
    memory.add_words("x", address(1), &vec![0x3f80_0000; rows * width]);
    memory.add_words("w", address(2), &vec![0x3f80_0000; outputs * inputs / 4]);
    memory.add("y", address(3), 4 * (rows * width) as u64);
    let of_norm = push(
        &[address(0), address(1), address(2), 0, 0, address(3), 0],
        &[0, 0, width, width, width, width, 0, 0, 0x358637bd, 0, 0, 0],
    );
    let of_product =
        push(&[address(0), address(2), address(2), address(1), address(3)], &[0, outputs, inputs, inputs, outputs]);
    let of_matrices = push(&[address(0)], &[200]);
    memory.add_words("push of the matrices", PUSH_HIGH + 0x2000, &of_matrices);
    memory.add_words("push of the norm", PUSH_HIGH, &of_norm);
    memory.add_words("push of the product", PUSH_HIGH + 0x1000, &of_product);
    let run = |kernel: &Kernel, grid, push: &[u32], push_low| {
        let mut machine = Machine::new(Config::gfx1103(1));
        kernel::run(&mut machine, &memory, &[Launch { kernel, grid, push, push_low }])
    };
    measure("RMSNorm", || run(&norm, [1, rows as u32, 1], &of_norm, 0))?;
    measure("INT8 product", || run(&product, [128, 1, 1], &of_product, 0x1000))?;
    measure("matrix products (WMMA f16)", || run(&matrices, [4, 1, 1], &of_matrices, 0x2000))
}
