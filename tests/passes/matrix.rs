//! Tests each tile of the kernels for matrix units against sums in f64. On a device without matrix units a test prints
//! its name and what it left out. lavapipe has matrix units from Mesa 26.1 on.

use crate::common::{self, Random};
use half::f16;
use kiln::model::grouped::SUPER;
use kiln::model::{BlockFormat, WeightFormat};
use kiln::schedule::KvType;
use kiln::schedule::kv::PAGE;
use kiln::schedule::layout::StateLayout;
use kiln::testing::lower::arithmetic::Operand;
use kiln::testing::lower::attend_tile;
use kiln::testing::lower::dispatch::Dispatch;
use kiln::testing::lower::fragment::{FragmentTile, InputPath};
use kiln::testing::lower::kernels::Module;
use kiln::testing::lower::kernels::constants::{LinearFragmentTallConstants, Specialization};
use kiln::testing::lower::kernels::push::{AttendMatrixPush, LinearMatrixPush, Push, word};
use kiln::testing::lower::matrix::{self, MatrixShape, MatrixTile, MatrixVariant};
use kiln::testing::lower::shared_tile::SharedTile;
use kiln::testing::lower::units::MatrixUnits;
use kiln::testing::replay::device_queue::DeviceQueue;
use kiln::testing::replay::driver::{HostAccess, Memory};
use kiln::testing::replay::measure::ceiling;
use kiln::testing::vulkan::memory::Buffer;
use kiln::testing::vulkan::{Gpu, Vulkan};
use std::collections::HashSet;
use std::rc::Rc;

/// Content of outputs before a kernel runs: a NaN that no kernel makes.
const POISON: u32 = 0x7fc0_dead;

/// A device with matrix units, and the objects for running kernels on it.
struct Bench {
    queue: DeviceQueue<Vulkan>,
    units: MatrixUnits,
    heap: usize,
    gpu: Rc<Gpu>,
}

impl Bench {
    fn open(test: &str) -> Option<Bench> {
        let gpu = Rc::new(common::open_gpu());
        let Some(units) = common::units(&gpu) else {
            println!("{test}: not checked here: {} has no matrix units", gpu.caps.name);
            return None;
        };
        println!("{test}: {}, {units:?}", gpu.caps.name);
        let heap = common::shared_heap(&gpu);
        let queue = DeviceQueue::new(Vulkan::new(&gpu).unwrap());
        Some(Bench { queue, units, heap, gpu })
    }

    fn is_cpu(&self) -> bool {
        self.gpu.caps.is_cpu()
    }

    fn buffer(&self, bytes: &[u8]) -> Buffer {
        let mut b = Buffer::new(&self.gpu, bytes.len() as u64, self.heap, HostAccess::Host).unwrap();
        b.copy_from(bytes).unwrap();
        b
    }

    fn poisoned(&self, words: usize) -> Buffer {
        self.buffer(bytemuck::cast_slice(&vec![POISON; words]))
    }

    fn run(&mut self, dispatches: &[Dispatch]) {
        let list = self.queue.bake(&[dispatches], None, None, None).unwrap();
        // SAFETY: the buffers live until the wait.
        unsafe { self.queue.run(list) }.unwrap();
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        assert_eq!(kiln::testing::vulkan::device::instance::validation_messages(), 0);
    }
}

fn words(b: &Buffer) -> Vec<u32> {
    let mut words = vec![0u32; b.size() as usize / 4];
    b.copy_to(bytemuck::cast_slice_mut(&mut words)).unwrap();
    words
}

/// Root mean square of the difference, divided by that of `want`; NaN if any value is not finite.
fn relative_rms(got: impl Iterator<Item = f32>, want: &[f64]) -> f64 {
    let mut difference = 0.0;
    for (x, &y) in got.zip(want) {
        difference += (f64::from(x) - y).powi(2);
    }
    (difference / want.iter().map(|y| y * y).sum::<f64>()).sqrt()
}

/// A matrix product with random operands.
struct Product {
    format: WeightFormat,
    n: usize,
    /// Padded to 16.
    k: usize,
    rows: usize,
    /// Weights and scales as on a device.
    stored: [Vec<u8>; 2],
    /// Weights as matrix units see them, padded rows.
    weights: Vec<f32>,
    /// What each output is multiplied by.
    scales: Vec<f32>,
    /// f16 values, or integers that fit in 16 bits.
    x: Vec<f32>,
    x_scales: Vec<f32>,
    /// F16Block: what each block of 16 of a row is scaled by, powers of two; else empty.
    block_scales: Vec<f32>,
    operand: Operand,
}

impl Product {
    /// With `blocks`, x is in F16Block.
    fn new(format: WeightFormat, operand: Operand, [rows, n, k]: [usize; 3], blocks: bool, seed: u64) -> Product {
        let mut random = Random(seed);
        let padded = k.next_multiple_of(16);
        let (stride, scale_bytes) = (format.row_bytes(k), format.scale_bytes(k));
        let mut data = vec![0; n * stride];
        for row in data.chunks_exact_mut(stride) {
            row[..format.file_row_bytes(k)].fill_with(|| random.bits() as u8);
        }
        let mut scale = |size: f32| size * (1.0 + 0.5 * random.real());
        let scales: Vec<u8> = match format {
            WeightFormat::Int8 => (0..n).flat_map(|_| scale(0.01).to_le_bytes()).collect(),
            _ => {
                // d and m, then what is multiplied by them.
                let sizes: &[f32] = match format {
                    WeightFormat::Int4 => &[0.01],
                    WeightFormat::Blocks(BlockFormat::Q5_0) => &[5e-3],
                    WeightFormat::Blocks(BlockFormat::Q8_0) => &[1e-3],
                    WeightFormat::Blocks(BlockFormat::Q4_1) => &[0.01, -0.08],
                    WeightFormat::Blocks(BlockFormat::Q5_1) => &[5e-3, -0.08],
                    WeightFormat::Blocks(BlockFormat::Iq4Nl) => &[1e-3],
                    WeightFormat::Blocks(BlockFormat::Q2K) => &[9e-3, 0.013],
                    WeightFormat::Blocks(BlockFormat::Q3K) => &[1.2e-3],
                    WeightFormat::Blocks(BlockFormat::Q4K) => &[2e-4, 1.5e-3, 0.7, 0.7, 0.7, 0.7, 0.7, 0.7],
                    WeightFormat::Blocks(BlockFormat::Q5K) => &[1e-4, 1.5e-3, 0.7, 0.7, 0.7, 0.7, 0.7, 0.7],
                    WeightFormat::Blocks(BlockFormat::Iq4Xs) => &[5e-5, 0.7, 0.7, 0.7],
                    _ => &[2e-5],
                };
                let sizes = sizes.iter().cycle().take(n * scale_bytes / 2);
                sizes.flat_map(|&size| f16::from_f32(scale(size)).to_le_bytes()).collect()
            }
        };
        // INT8 goes to the units as it is; others are multiplied on the way, and rounded.
        let mut weights = vec![0.0; n * padded];
        for (i, row) in weights.chunks_exact_mut(padded).enumerate() {
            let (data, scales) = (&data[i * stride..][..stride], &scales[i * scale_bytes..][..scale_bytes]);
            match format {
                WeightFormat::Int8 => row.iter_mut().zip(data).for_each(|(w, q)| *w = f32::from(*q as i8)),
                _ => format.decode_row(data, scales, row),
            }
            row.iter_mut().for_each(|w| *w = f16::from_f32(*w).to_f32());
        }
        let stored = [data, scales.clone()];
        let scales = match format {
            WeightFormat::Int8 => {
                scales.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
            }
            _ => vec![1.0; n],
        };
        let x_stride = k.next_multiple_of(32);
        let mut x = vec![0.0; rows * x_stride];
        for row in x.chunks_exact_mut(x_stride) {
            row[..k].fill_with(|| match operand {
                Operand::F16 => f16::from_f32(random.real()).to_f32(),
                Operand::S8 => (random.real() * 32512.0).round(),
            });
        }
        let mut x_scales: Vec<f32> = (0..rows).map(|_| 1.0 + 0.9 * random.real()).collect();
        let mut block_scales = Vec::new();
        if blocks {
            let power = |random: &mut Random| f32::powi(2.0, random.bits() as i32 % 8 - 3);
            block_scales = (0..rows * x_stride / 16).map(|_| power(&mut random)).collect();
            x_scales =
                block_scales.chunks_exact(x_stride / 16).map(|row| row.iter().copied().fold(0.0, f32::max)).collect();
        }
        Product { format, n, k: padded, rows, stored, weights, scales, x, x_scales, block_scales, operand }
    }

    fn x_stride(&self) -> usize {
        let padded = self.k.next_multiple_of(32);
        (2 * padded + padded / 4 + 8).next_multiple_of(64)
    }

    /// Byte of a row of x where its scale lies. Behind it lies a word that is 0.
    fn x_scale_at(&self) -> usize {
        let padded = self.k.next_multiple_of(32);
        2 * padded + if self.block_scales.is_empty() { 0 } else { padded / 4 }
    }

    /// x in the activation layout of the operand, with NaN between rows.
    fn form(&self) -> Vec<u8> {
        let p = self.k.next_multiple_of(32);
        let mut out = vec![0xff; self.rows * self.x_stride()];
        for (r, row) in out.chunks_exact_mut(self.x_stride()).enumerate() {
            let x = &self.x[r * p..][..p];
            match self.operand {
                Operand::F16 => {
                    let four = |x: &[f32]| [x[0], x[2], x[1], x[3]].map(|x| f16::from_f32(x).to_bits());
                    let bits: Vec<u16> = x.chunks_exact(4).flat_map(four).collect();
                    row[..2 * p].copy_from_slice(bytemuck::cast_slice(&bits));
                }
                Operand::S8 => {
                    for (i, &x) in x.iter().enumerate() {
                        // x = 256 * hi + lo, lo from -128 to 127.
                        let hi = (x as i32 + 128) >> 8;
                        row[i] = hi as u8;
                        row[p + i] = (x as i32 - 256 * hi) as u8;
                    }
                }
            }
            if let Some(scales) = self.block_scales.chunks_exact(p / 16).nth(r) {
                row[2 * p..][..p / 4].copy_from_slice(bytemuck::cast_slice(scales));
            }
            let scale_at = self.x_scale_at();
            row[scale_at..][..4].copy_from_slice(&self.x_scales[r].to_le_bytes());
            row[scale_at + 4..][..4].fill(0);
        }
        out
    }

    fn expected(&self) -> Vec<f64> {
        let p = self.k.next_multiple_of(32);
        let block = |i: usize| self.block_scales.get(i / 16).copied().map(f64::from);
        // Of F16Block, all scales are the blocks'.
        let x: Vec<f64> = self.x.iter().enumerate().map(|(i, &x)| f64::from(x) * block(i).unwrap_or(1.0)).collect();
        let row_scale = |r: usize| if self.block_scales.is_empty() { f64::from(self.x_scales[r]) } else { 1.0 };
        let mut out = Vec::with_capacity(self.rows * self.n);
        for r in 0..self.rows {
            for n in 0..self.n {
                let weights = &self.weights[n * self.k..][..self.k];
                let products = x[r * p..][..self.k].iter().zip(weights).map(|(x, w)| x * f64::from(*w));
                out.push(products.sum::<f64>() * f64::from(self.scales[n]) * row_scale(r));
            }
        }
        out
    }

    /// Push constants over these buffers for `n` outputs, not divided; word 2 of the state counts the rows.
    fn push(&self, [state, weight, scales, x, out]: [&Buffer; 5], n: usize, out_stride: usize) -> LinearMatrixPush {
        LinearMatrixPush {
            state: state.address(),
            weight: weight.address(),
            scales: scales.address(),
            x: x.address(),
            x_scales: x.address() + self.x_scale_at() as u64,
            y_out: out.address(),
            parts: 0,
            arrived: 0,
            table: 0,
            which: 2,
            n: word(n),
            k: word(self.k),
            x_stride: word(self.x_stride()),
            x_scale_stride: word(self.x_stride()),
            out_stride: word(out_stride),
            splits: 1,
        }
    }

    /// Runs every tile in `variants` on a pass of `self.rows` rows, of which `live` are live.
    fn check(&self, bench: &mut Bench, live: usize, variants: &[MatrixTile]) {
        let role = if self.block_scales.is_empty() { MatrixVariant::Plain } else { MatrixVariant::Blocks };
        // Output rows that are aligned for whole matrices, and some that are not.
        let out_stride = self.n + if self.n.is_multiple_of(8) { 8 } else { 5 };
        // Words of the step state, with `live` at index 2.
        let state = bench.buffer(bytemuck::cast_slice(&[0u32, 0, live as u32, 0]));
        let [weight, scales] = self.stored.each_ref().map(|bytes| bench.buffer(bytes));
        let x = bench.buffer(&self.form());
        let want = self.expected();
        for &variant in variants {
            let mut out = bench.poisoned(self.rows * out_stride);
            let [part_bytes, counter_bytes] = variant.scratch_bytes(self.rows, self.n);
            let parts = bench.poisoned(part_bytes as usize / 4);
            let arrived = bench.buffer(&vec![0; counter_bytes as usize]);
            let push = LinearMatrixPush {
                parts: parts.address(),
                arrived: arrived.address(),
                splits: variant.splits,
                ..self.push([&state, &weight, &scales, &x, &out], self.n, out_stride)
            };
            let dispatch = Dispatch::new(
                variant.kernel(bench.units, self.format, self.k, role).unwrap(),
                Push::new(&push),
                variant.groups(self.rows, self.n),
            );
            let name = format!(
                "{:?} {:?} {role:?}, {live} of {} rows, {} x {}, {:?} in {} splits",
                self.format, self.operand, self.rows, self.n, self.k, variant.shape, variant.splits
            );
            // Twice, since a run must reset its counters.
            for _ in 0..2 {
                out.copy_from(bytemuck::cast_slice(&vec![POISON; out.size() as usize / 4])).unwrap();
                bench.run(std::slice::from_ref(&dispatch));
                let got = words(&out);
                let (alive, dead) = got.split_at(live * out_stride);
                assert!(dead.iter().all(|&w| w == POISON), "{name}: a dead row was written");
                for row in alive.chunks_exact(out_stride) {
                    assert!(row[self.n..].iter().all(|&w| w == POISON), "{name}: written past the row");
                }
                let results = alive.chunks_exact(out_stride).flat_map(|r| &r[..self.n]).map(|&w| f32::from_bits(w));
                let error = relative_rms(results, &want[..live * self.n]);
                // A driver may cut what is converted from f32 to f16 off instead of rounding it.
                let tolerance = if WeightFormat::MADE.contains(&self.format) { 1e-5 } else { 5e-4 };
                assert!(error < tolerance, "{name}: {error:.1e}");
            }
            assert!(words(&arrived)[..counter_bytes as usize / 4].iter().all(|&w| w == 0), "{name}: counters stay");
        }
    }

    /// Runs every tile in `variants` as gate and up, which are the first and second half of the rows of weights, with
    /// their gated GELU.
    fn check_gated(&self, bench: &mut Bench, live: usize, variants: &[MatrixTile]) {
        let n = self.n / 2;
        let padded = n.next_multiple_of(32);
        let out_stride = (2 * padded + padded / 4).next_multiple_of(64) + 64;
        let state = bench.buffer(bytemuck::cast_slice(&[0u32, 0, live as u32, 0]));
        let [weight, scales] = self.stored.each_ref().map(|bytes| bench.buffer(bytes));
        let mut x = bench.buffer(&self.form());
        let want: Vec<f64> = self.expected().chunks_exact(2 * n).flat_map(gated_gelu).collect();
        for &variant in variants {
            let mut out = bench.poisoned(self.rows * out_stride / 4);
            let push = self.push([&state, &weight, &scales, &x, &out], n, out_stride);
            let dispatch = Dispatch::new(
                variant.kernel(bench.units, self.format, self.k, MatrixVariant::Gated).unwrap(),
                Push::new(&push),
                variant.groups(self.rows, 2 * n),
            );
            let name =
                format!("{:?} gated, {live} of {} rows, {n} x {}, {:?}", self.format, self.rows, self.k, variant.shape);
            x.copy_from(&self.form()).unwrap();
            out.copy_from(bytemuck::cast_slice(&vec![POISON; out.size() as usize / 4])).unwrap();
            bench.run(std::slice::from_ref(&dispatch));
            let (got, x_rows) = (words(&out), words(&x));
            let (alive, dead) = got.split_at(live * out_stride / 4);
            assert!(dead.iter().all(|&w| w == POISON), "{name}: a dead row was written");
            let mut results = Vec::new();
            for (r, row) in alive.chunks_exact(out_stride / 4).enumerate() {
                let blocks = n.div_ceil(16);
                let halves: &[u16] = bytemuck::cast_slice(&row[..padded / 2]);
                let scales: Vec<f32> = row[padded / 2..][..blocks].iter().map(|&w| f32::from_bits(w)).collect();
                for (i, scale) in scales.iter().enumerate() {
                    let of = halves[16 * i..][..16].chunks_exact(4).flat_map(|h| [h[0], h[2], h[1], h[3]]);
                    let block: Vec<f32> = of.map(|h| f16::from_bits(h).to_f32() * scale).collect();
                    let inside = (n - 16 * i).min(16);
                    assert!(block[inside..].iter().all(|&y| y == 0.0), "{name}: padding");
                    results.extend_from_slice(&block[..inside]);
                }
                assert!(row[padded / 2 + padded / 16..].iter().all(|&w| w == POISON), "{name}: written past the row");
                let largest = x_rows[(r * self.x_stride() + self.x_scale_at()) / 4 + 1];
                assert_eq!(
                    f32::from_bits(largest),
                    scales.iter().copied().fold(0.0, f32::max),
                    "{name}: the row's scale"
                );
            }
            let error = relative_rms(results.into_iter(), &want[..live * n]);
            // Both factors have the error of a product (above), and what is stored that of f16.
            let tolerance = if WeightFormat::MADE.contains(&self.format) { 5e-4 } else { 1.2e-3 };
            assert!(error < tolerance, "{name}: {error:.1e}");
        }
    }
}

/// gelu_tanh(gate) * up of a row of gate's and then up's elements.
fn gated_gelu(row: &[f64]) -> Vec<f64> {
    let (gate, up) = row.split_at(row.len() / 2);
    let gelu = |x: f64| 0.5 * x * (1.0 + (0.7978845608 * (x + 0.044715 * x * x * x)).tanh());
    gate.iter().zip(up).map(|(&g, &u)| gelu(g) * u).collect()
}

/// A tile of many rows that a CPU driver compiles in seconds. Like the large ones, it loads two steps at a time.
const SMALL_TALL: SharedTile = SharedTile {
    rows: 128,
    outputs: 32,
    inputs: 32,
    subgroup_rows: 16,
    subgroup_outputs: 16,
    input_parts: 1,
    round: 2,
    depth: 2,
};

/// Tiles that are small enough for a CPU driver. Each has a feature that the usual ones there lack: rows in two
/// matrices, subgroups side by side, several loads of a row in a step, steps in flight, inputs through shared memory.
const SMALL_FRAGMENTS: [FragmentTile; 10] = {
    const fn tile(rows: u32, outputs: u32, subgroups: u32, depth: u32, inputs: InputPath) -> FragmentTile {
        FragmentTile { rows, outputs, subgroups, depth, inputs }
    }
    [
        tile(16, 8, 2, 1, InputPath::Direct { parts: 2, span: 1 }),
        tile(8, 16, 1, 1, InputPath::Direct { parts: 1, span: 1 }),
        tile(8, 8, 1, 1, InputPath::Direct { parts: 4, span: 2 }),
        tile(8, 8, 2, 2, InputPath::Direct { parts: 1, span: 1 }),
        // Whole blocks of gate and up.
        tile(8, 8, 4, 1, InputPath::Direct { parts: 2, span: 1 }),
        // Several matrices of weights with several loads of a row, and with several matrices of inputs.
        tile(8, 16, 2, 1, InputPath::Direct { parts: 1, span: 2 }),
        tile(16, 16, 2, 1, InputPath::Direct { parts: 1, span: 1 }),
        tile(32, 8, 2, 1, InputPath::Shared { row_parts: 2, stages: 1 }),
        tile(24, 8, 4, 1, InputPath::Shared { row_parts: 3, stages: 2 }),
        tile(16, 16, 2, 2, InputPath::Shared { row_parts: 2, stages: 1 }),
    ]
};

/// A CPU driver takes up to half a minute over each kernel. There every tile is tried with INT8, in every second case of a
/// sample. With INT4, which differs by
/// how weights are read, these are: rows in two matrices, whole blocks of gate and up, one and two steps of inputs through
/// shared memory, two steps of weights on their way, several matrices of weights with several loads of a row; with types of GGUF
/// files the second of them, for few rows. The first two have every role.
const FEW_FRAGMENTS: [FragmentTile; 6] = {
    let [rows, _, _, steps, blocks, loads, _, one, two, _] = SMALL_FRAGMENTS;
    [rows, blocks, one, two, steps, loads]
};

#[test]
fn linear_variants_compute_their_product() {
    let Some(mut bench) = Bench::open("linear_variants_compute_their_product") else { return };
    check_linear(&mut bench, WeightFormat::Int8, Operand::F16);
}

#[test]
fn linear_variants_with_int4_compute_their_product() {
    let Some(mut bench) = Bench::open("linear_variants_with_int4_compute_their_product") else { return };
    check_linear(&mut bench, WeightFormat::Int4, Operand::F16);
}

#[test]
fn linear_variants_with_types_of_gguf_files_compute_their_product() {
    // Each way in which scales and bits lie; the others combine them.
    use BlockFormat::{Iq4Xs, Q2K, Q3K, Q4_1, Q4K, Q5_0, Q6K, Q8_0};
    std::thread::scope(|threads| {
        for format in [Q4_1, Q5_0, Q8_0, Q2K, Q3K, Q4K, Q6K, Iq4Xs] {
            threads.spawn(move || {
                let opened = Bench::open("linear_variants_with_types_of_gguf_files_compute_their_product");
                let Some(mut bench) = opened else { return };
                check_linear(&mut bench, WeightFormat::Blocks(format), Operand::F16);
            });
        }
    });
}

#[test]
fn linear_variants_of_bytes_compute_their_product() {
    let Some(mut bench) = Bench::open("linear_variants_of_bytes_compute_their_product") else { return };
    if bench.units.s8_k.is_none() {
        println!("not checked here: {} has no matrices of bytes", bench.gpu.caps.name);
        return;
    }
    check_linear(&mut bench, WeightFormat::Int8, Operand::S8);
}

fn check_linear(bench: &mut Bench, format: WeightFormat, operand: Operand) {
    let cases = [
        // rows, live, N, K
        (1, 1, 8, 16),
        (1, 1, 100, 48),
        (16, 13, 200, 336),
        (17, 17, 72, 72),
        (33, 20, 100, 72),
        (33, 33, 257, 1008),
        (100, 65, 200, 200),
        (160, 129, 130, 528),
        (512, 300, 264, 336),
        // Whole batches of INT4's scales, an odd number of them; several tiles of rows and of outputs, the last in part.
        (160, 129, 392, 768),
    ];
    let is_cpu = bench.is_cpu();
    let few = is_cpu && format != WeightFormat::Int8;
    let (cases, fragments) = match few {
        true if WeightFormat::MADE.contains(&format) => (&cases[..], &FEW_FRAGMENTS[..]),
        true => (&cases[3..5], &FEW_FRAGMENTS[1..2]),
        false => (&cases[..], &SMALL_FRAGMENTS[..]),
    };
    let (mut checked, mut left_out, mut roles) = (HashSet::new(), HashSet::new(), (0, 0));
    let mut batched = HashSet::new();
    for (i, &(rows, live, n, k)) in cases.iter().enumerate() {
        let unit = [1, WeightFormat::GROUP, SUPER].into_iter().find(|n| format.holds(*n)).unwrap();
        let k = usize::next_multiple_of(k, unit);
        let all = matrix::tiles(bench.units, format, operand, [rows, n, k]);
        let mut variants: Vec<MatrixTile> =
            all.iter().copied().filter(|v| common::worth_compiling(&bench.gpu, bench.units, format, v)).collect();
        variants.retain(|v| !few || matches!(v.shape, MatrixShape::Shared(_)));
        if operand == Operand::F16 && rows > 64 {
            variants.extend([1, 3].map(|splits| MatrixTile {
                operand,
                shape: MatrixShape::Shared(SMALL_TALL),
                splits,
            }));
        }
        if operand == Operand::F16 && rows <= 160 {
            // As deep as no CPU driver unrolls what is not only tried.
            let units = MatrixUnits { unrolled_steps: 2, ..bench.units };
            let takes_all = few || common::takes_all(&bench.gpu);
            let turn = fragments.iter().enumerate().filter(|(at, _)| takes_all || (at + i) % 2 == 0);
            let small = turn.filter(|(_, t)| t.fits(units, format)).map(|(_, t)| MatrixShape::Fragment(*t));
            variants.extend(small.flat_map(|shape| [1, 3].map(|splits| MatrixTile { operand, shape, splits })));
        }
        left_out.extend(all.iter().map(|v| v.shape).filter(|t| variants.iter().all(|v| v.shape != *t)));
        assert!(!variants.is_empty(), "{rows} rows of {n} x {k}");
        let seed = 7 + i as u64;
        Product::new(format, operand, [rows, n, k], false, seed).check(bench, live, &variants);
        let kernels = variants.iter().filter_map(|v| v.kernel(bench.units, format, k, MatrixVariant::Plain));
        let tall = kernels.filter(|kernel| kernel.module == Module::LinearFragmentTallGrouped);
        let tall = tall.map(|kernel| LinearFragmentTallConstants::of(&kernel.constants));
        batched.extend(tall.filter(|tall| tall.in_batches > 0).map(|tall| tall.stages));
        let is_one = |v: &MatrixTile| FEW_FRAGMENTS[..2].iter().any(|t| v.shape == MatrixShape::Fragment(*t));
        let has_roles = operand == Operand::F16 && rows <= 64 && (!is_cpu || rows >= 17);
        let in_role = |role| {
            let fits = |v: &&MatrixTile| has_roles && v.has(bench.units, role) && (!is_cpu || is_one(v));
            variants.iter().filter(fits).copied().collect::<Vec<_>>()
        };
        let (gated, blocks) = (in_role(MatrixVariant::Gated), in_role(MatrixVariant::Blocks));
        Product::new(format, operand, [rows, n, k], true, seed).check(bench, live, &blocks);
        Product::new(format, operand, [rows, 2 * n.next_multiple_of(8), k], false, seed)
            .check_gated(bench, live, &gated);
        roles.0 += gated.len();
        roles.1 += blocks.len();
        checked.extend(variants);
    }
    println!("{} variants checked; tiles too large for a CPU driver: {}", checked.len(), left_out.len());
    if format == WeightFormat::Int4 && matches!(bench.units.row_lanes, Some(4 | 8)) {
        assert_eq!(batched, HashSet::from([1, 2]), "scales in batches, beside one step of inputs and two");
    }
    // On NVIDIA's driver and Mesa's CPU driver the layout of matrices in lanes can be found out. Elsewhere there may be
    // no fragment tile to check.
    if operand == Operand::F16 && ["NVIDIA", "llvmpipe"].iter().any(|name| bench.gpu.caps.name.contains(name)) {
        assert!(checked.iter().any(|v| matches!(v.shape, MatrixShape::Fragment(_))), "{:?}", bench.units);
        assert!(roles.0 > 0 && roles.1 > 0, "{:?}", bench.units);
    }
}

/// Most elements of a head, or of a subgroup's part of a wide one, whose attention a CPU driver compiles in seconds.
const MOST_DIM_ON_CPU: usize = 72;
/// The fewest elements of a head whose columns are divided among subgroups, where matrices are 8 elements wide.
const DIM_IN_SLICES: usize = 288;

/// Attention of one pass with random operands.
struct Attention {
    heads: usize,
    kv_heads: usize,
    dim: usize,
    rows: usize,
    /// Position of row 0.
    position: usize,
    window: Option<usize>,
}

impl Attention {
    fn first_visible(&self, p: usize) -> usize {
        self.window.map_or(0, |w| (p + 1).saturating_sub(w))
    }

    /// Runs every tile on a pass of which `live` rows are the chunk. The others are other sequences' or dead, and not its own
    /// to write.
    fn check(&self, bench: &mut Bench, units: MatrixUnits, live: usize, seed: u64) {
        let Attention { heads, kv_heads, dim, rows, position, window } = *self;
        let mut random = Random(seed);
        let q_stride = heads * dim + 20;
        let q: Vec<f32> = (0..rows * q_stride).map(|_| 3.0 * random.real()).collect();
        // Pages for the second of two layers of the second of two sequences, the last first. NaN where nothing was written; of
        // what is never read too, which has the last page.
        let nan = f16::from_bits(0x7e11);
        let (end, kept) = (position + live, self.first_visible(position));
        let numbers = kept / PAGE..end.div_ceil(PAGE);
        let entries = numbers.len().next_power_of_two();
        let half = kv_heads * PAGE * dim;
        let mut pages = vec![nan; (numbers.len() + 1) * 4 * half];
        let place = |number: usize| numbers.end - 1 - number;
        let index = |plane: usize, p: usize, d: usize| {
            4 * half * place(p / PAGE) + 2 * half + (plane * PAGE + p % PAGE) * dim + d
        };
        for p in kept..end {
            for plane in 0..2 * kv_heads {
                let at = index(plane, p, 0);
                pages[at..at + dim].fill_with(|| f16::from_f32(random.real()));
            }
        }
        let scale = 1.5 / (dim as f32).sqrt();
        let element = |plane: usize, p: usize, d: usize| pages[index(plane, p, d)];
        let mut want = Vec::with_capacity(live * heads * dim);
        for r in 0..live {
            let p = position + r;
            for h in 0..heads {
                let kv = h / (heads / kv_heads);
                let seen = self.first_visible(p)..p + 1;
                let scores: Vec<f64> = seen
                    .clone()
                    .map(|k| {
                        let dot = |d| f64::from(q[r * q_stride + h * dim + d]) * element(kv, k, d).to_f64();
                        (0..dim).map(dot).sum::<f64>() * f64::from(scale)
                    })
                    .collect();
                let highest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let total: f64 = scores.iter().map(|s| (s - highest).exp()).sum();
                let mut out = vec![0.0; dim];
                for (k, s) in seen.zip(&scores) {
                    let w = (s - highest).exp() / total;
                    out.iter_mut().enumerate().for_each(|(d, o)| *o += w * element(kv_heads + kv, k, d).to_f64());
                }
                want.extend(out);
            }
        }

        let mut state = [0; 10];
        state[StateLayout::ROWS] = rows as u32;
        state[StateLayout::CHUNK] = live as u32;
        state[8..].copy_from_slice(&[position as u32, 1]);
        let state = bench.buffer(bytemuck::cast_slice(&state));
        let q = bench.buffer(bytemuck::cast_slice(&q));
        let bits: Vec<u16> = pages.iter().map(|x| x.to_bits()).collect();
        let in_pages = bench.buffer(bytemuck::cast_slice(&bits));
        let address = |place: usize| in_pages.address() + (place * 4 * half * 2) as u64;
        let mut table = vec![address(numbers.len()); 2 * entries];
        numbers.clone().for_each(|number| table[entries + number % entries] = address(place(number)));
        let table = bench.buffer(bytemuck::cast_slice(&table));
        let width = heads * dim;
        let padded = width.next_multiple_of(32);
        let out_stride = (2 * padded + 4).next_multiple_of(64);
        let mut variants = attend_tile::tiles(units, rows, heads, kv_heads, dim);
        if bench.is_cpu() {
            // Its driver takes a minute over each of the larger ones.
            let fewest = variants.iter().map(|v| v.keys).min();
            variants.retain(|v| Some(v.keys) == fewest && v.subgroups == 4);
        }
        assert!(variants.iter().any(|v| v.splits == 1), "{heads} heads of {dim}");
        // So many heads fill a device by themselves.
        assert!(heads >= 32 || variants.iter().any(|v| v.splits > 1), "{heads} heads of {dim}");
        for variant in variants {
            let name = format!(
                "{live} of {rows} rows from {position}, window {window:?}, {heads}/{kv_heads} heads of {dim}, {variant:?}"
            );
            let mut out = bench.poisoned(rows * out_stride / 4);
            let [part_bytes, counter_bytes] = variant.scratch_bytes(units, rows, heads);
            let parts = bench.poisoned(part_bytes as usize / 4 + 1);
            let arrived = bench.buffer(&vec![0; counter_bytes as usize + 4]);
            let push = AttendMatrixPush {
                state: state.address(),
                q: q.address(),
                table: table.address(),
                y_out: out.address(),
                parts: parts.address(),
                arrived: arrived.address(),
                position: 8,
                sequence: 9,
                heads: word(heads),
                kv_heads: word(kv_heads),
                group: variant.group,
                q_stride: word(q_stride),
                out_stride: word(out_stride),
                paging: entries.trailing_zeros() | 1 << 8,
                window: word(window.unwrap_or(0)),
                scale,
            };
            let dispatch =
                Dispatch::new(variant.kernel(units, KvType::F16), Push::new(&push), variant.groups(units, rows, heads));
            // Twice, since a run must reset its counters.
            for _ in 0..2 {
                out.copy_from(bytemuck::cast_slice(&vec![POISON; out.size() as usize / 4])).unwrap();
                bench.run(std::slice::from_ref(&dispatch));
                assert!(words(&arrived).iter().all(|&count| count == 0), "{name}: counters stay");
            }
            assert_eq!(words(&parts).last(), Some(&POISON), "{name}: written past the parts");
            let got = words(&out);
            let (alive, dead) = got.split_at(live * out_stride / 4);
            assert!(dead.iter().all(|&w| w == POISON), "{name}: a row behind the chunk was written");
            let mut results = Vec::with_capacity(want.len());
            for row in alive.chunks_exact(out_stride / 4) {
                let halves: &[u16] = bytemuck::cast_slice(&row[..padded / 2]);
                let four = |h: &[u16]| [h[0], h[2], h[1], h[3]].map(|h| f16::from_bits(h).to_f32());
                results.extend(halves[..width].chunks_exact(4).flat_map(four));
                assert!(halves[width..].iter().all(|&h| h == 0), "{name}: padding");
                assert_eq!(f32::from_bits(row[padded / 2]), 1.0, "{name}: row scale");
                assert!(row[padded / 2 + 1..].iter().all(|&w| w == POISON), "{name}: written past the row");
            }
            let error = relative_rms(results.into_iter(), &want);
            assert!(error < 2e-3, "{name}: {error:.1e}");
        }
    }
}

#[test]
fn attention_variants_compute_their_softmax() {
    let Some(mut bench) = Bench::open("attention_variants_compute_their_softmax") else { return };
    let at = |heads, kv_heads, dim, rows, position, window| Attention { heads, kv_heads, dim, rows, position, window };
    for (i, (attention, live)) in [
        (at(2, 2, 64, 1, 0, None), 1),
        (at(2, 1, 64, 17, 0, None), 17),
        // Ratio 4; a whole number of tiles, and more; rows behind the chunk.
        (at(4, 1, 32, 100, 37, None), 71),
        // Ratio 3 does not divide a tile.
        (at(3, 1, 64, 33, 5, Some(40)), 33),
        // Positions far behind the first page; keys for several parts, of which a row's window leaves some out.
        (at(2, 1, 64, 20, 1500, None), 17),
        (at(2, 2, 64, 90, 700, Some(300)), 90),
        (at(2, 1, 64, 70, 911, Some(100)), 70),
        (at(2, 1, 128, 70, 911, Some(100)), 70),
        (at(1, 1, 64, 40, 500, Some(1)), 40),
        // A window shorter than a tile, and 24 elements beyond a padded row's.
        (at(5, 5, 64, 50, 1000, Some(7)), 49),
        (at(2, 1, 256, 40, 300, None), 40),
        (at(4, 4, 256, 20, 90, Some(64)), 20),
        // Heads whose columns are divided among subgroups.
        (at(8, 1, DIM_IN_SLICES, 40, 300, Some(100)), 37),
        (at(8, 1, 512, 70, 911, None), 67),
        (at(32, 4, 512, 33, 500, Some(100)), 33),
        (at(16, 1, 512, 40, 300, None), 40),
    ]
    .into_iter()
    .enumerate()
    {
        let columns = if attention.dim > 256 { attention.dim / 4 } else { attention.dim };
        if bench.is_cpu() && columns > MOST_DIM_ON_CPU {
            println!("a CPU driver takes minutes over heads of {}: left to GPUs", attention.dim);
            continue;
        }
        // A slice is a whole number of matrices, which are wider on GPUs.
        if !attention.dim.is_multiple_of(if attention.dim > 256 { 4 * bench.units.k as usize } else { 1 }) {
            println!("heads of {} are not cut for matrices of {}", attention.dim, bench.units.k);
            continue;
        }
        let units = bench.units;
        attention.check(&mut bench, units, live, 11 + i as u64);
        // As on a GPU whose registers hold a slice of the queries.
        if attention.dim == DIM_IN_SLICES && bench.is_cpu() {
            attention.check(&mut bench, MatrixUnits { sum_bytes: u32::MAX, ..units }, live, 11 + i as u64);
        }
    }
}

#[test]
fn the_matrix_rate_is_measured() {
    let Some(bench) = Bench::open("the_matrix_rate_is_measured") else { return };
    let rate = ceiling::measure_matrix_rate(Vulkan::new(&bench.gpu).unwrap(), bench.heap).unwrap().unwrap();
    println!("{:.3} TFLOP/s", rate * 1e-12);
    assert!(rate.is_finite() && rate > 1e6);
}
