//! A pass with a chunk of one prompt and rows of other sequences gives each row what it has in a pass of its own kind, and
//! leaves the same keys and values.

use crate::common::{self, AUTO, DOT, F32, Forged, MATRIX_F16, relative_rms, small_shape};
use kiln::engine::{Device, Options};
use kiln::executor::{Executor, ExecutorExt, HeadRows, Measure, Row};
use kiln::model::{LayerKind, Shape, WeightFormat};
use kiln::schedule::KvType;
use kiln::sequence::session::Session;
use kiln::testing::lower::arithmetic::Arithmetic;

const CONTEXT: usize = 512;
const ROWS: usize = 64;
/// Shorter than a page and than a chunk.
const WINDOW: usize = 40;

fn shape() -> Shape {
    Shape {
        layers: vec![LayerKind::Local, LayerKind::Global, LayerKind::Local],
        max_context: CONTEXT,
        ..small_shape().with_window(WINDOW)
    }
}

fn load(model: &Forged, device: Device, arithmetic: Option<Arithmetic>, kv: KvType) -> Box<dyn Measure> {
    let options = Options {
        vulkan: common::forced(arithmetic),
        kv,
        sequences: ROWS,
        head_rows: ROWS,
        chunk: Some(ROWS),
        context: Some(CONTEXT),
        ..Options::default()
    };
    model.load(device, options)
}

/// A pass: `chunk` rows of sequence 0 behind `depth` others, then one row of each further sequence at its depth.
#[derive(Debug)]
struct Mix {
    chunk: usize,
    depth: usize,
    beside: Vec<usize>,
}

fn mixes() -> Vec<Mix> {
    let mix = |chunk, depth, beside: &[usize]| Mix { chunk, depth, beside: beside.to_vec() };
    vec![
        // No more than rows apart, and one row more.
        mix(1, 0, &[0]),
        mix(2, 0, &[0]),
        // Window and page: rows that see all, that see as much as the window, and more; the first ones of a page.
        mix(17, 30, &[0, 1, 38, 39, 40, 62, 63, 64, 65, 127, 128, 300]),
        mix(20, 44, &[63]),
        mix(33, 50, &[64, 200]),
        mix(63, 127, &[0]),
        // A larger pass than the smallest kind, whole.
        mix(41, 100, &(0..23).map(|i| 31 * i % 210).collect::<Vec<_>>()),
        // Many rows beside few.
        mix(3, 63, &(0..61).map(|i| 17 * i % 190).collect::<Vec<_>>()),
    ]
}

fn token(sequence: usize, position: usize) -> u32 {
    ((2 + 31 * sequence + 7 * position * position) % 257) as u32
}

impl Mix {
    /// The chunk's rows and the others'.
    fn rows(&self) -> (Vec<Row>, Vec<Row>) {
        let row = |sequence, position| Row {
            token: token(sequence, position),
            position: position as u32,
            sequence: sequence as u32,
        };
        let chunk = (self.depth..self.depth + self.chunk).map(|p| row(0, p));
        (chunk.collect(), self.beside.iter().enumerate().map(|(i, &p)| row(i + 1, p)).collect())
    }

    /// Puts into the cache what comes before the rows.
    fn begin(&self, executor: &mut dyn Executor) {
        for (sequence, &depth) in [self.depth].iter().chain(&self.beside).enumerate() {
            executor.pages_mut().truncate(sequence, 0);
            let tokens: Vec<u32> = (0..depth).map(|p| token(sequence, p)).collect();
            if depth > 0 {
                Session::new(sequence as u32, CONTEXT).prefill(executor, &tokens).unwrap();
            }
        }
    }

    /// Logits of the pass behind this one, with a row of each sequence: it sees all keys and values.
    fn behind(&self, executor: &mut dyn Executor) -> Vec<Vec<f32>> {
        let (chunk, others) = self.rows();
        let ends: Vec<Row> = chunk[self.chunk - 1..].iter().chain(&others).copied().collect();
        let rows: Vec<Row> = ends.iter().map(|row| Row { position: row.position + 1, ..*row }).collect();
        logits(executor, &rows)
    }
}

/// The logits of every row of a pass.
fn logits(executor: &mut dyn Executor, rows: &[Row]) -> Vec<Vec<f32>> {
    executor.forward(rows, Some(HeadRows { first: 0, count: rows.len() })).unwrap();
    (0..rows.len()).map(|row| executor.logits(row).unwrap().to_vec()).collect()
}

/// Compares a mixed pass with passes of its parts, on an executor each: a row that is written to the wrong place by one is
/// not there for the other.
fn check(name: &str, executors: [&mut dyn Executor; 2], tolerance: f32) {
    let [together, apart] = executors;
    let mut worst = 0f32;
    for mix in mixes() {
        let (chunk, others) = mix.rows();
        mix.begin(together);
        mix.begin(apart);
        let all = [&chunk[..], &others].concat();
        let got = logits(together, &all);
        let want = [logits(apart, &chunk), logits(apart, &others)].concat();
        let behind = [mix.behind(together), mix.behind(apart)];
        let pairs = got.iter().zip(&want).chain(behind[0].iter().zip(&behind[1]));
        for (row, (got, want)) in pairs.enumerate() {
            let error = relative_rms(got, want);
            worst = worst.max(error);
            assert!(error <= tolerance, "{name}, {mix:?}: row {row} is {error:.1e} off");
        }
        // Once more, with the chunk's last row and the others alone as head rows.
        let count = 1 + others.len();
        together.forward(&all, Some(HeadRows { first: chunk.len() - 1, count })).unwrap();
        for (row, want) in want[chunk.len() - 1..].iter().enumerate() {
            let error = relative_rms(together.logits(row).unwrap(), want);
            assert!(error <= tolerance, "{name}, {mix:?}: head row {row} is {error:.1e} off the second time");
        }
    }
    println!("{name}: at most {worst:.1e} of {tolerance:.1e}");
}

#[test]
fn a_mixed_pass_on_the_cpu_has_the_bits_of_its_parts() {
    let model = Forged::new(&shape(), WeightFormat::Int8);
    for device in [Device::Reference, Device::Cpu] {
        let mut executors = [(); 2].map(|()| load(&model, device, AUTO, KvType::F32));
        let [a, b] = &mut executors;
        check(&format!("{device:?}"), [a.as_mut(), b.as_mut()], 0.0);
    }
}

fn check_vulkan(arithmetic: Option<Arithmetic>, kv: KvType, tolerance: f32) {
    let model = Forged::new(&shape(), WeightFormat::Int8);
    let mut executors = [(); 2].map(|()| load(&model, common::vulkan(), arithmetic, kv));
    let [a, b] = &mut executors;
    check(&format!("{arithmetic:?}, {kv:?}"), [a.as_mut(), b.as_mut()], tolerance);
    assert_eq!(kiln::testing::vulkan::device::instance::validation_messages(), 0);
}

/// Kernels of another kind add in another order; a key may round to the neighbouring f16.
#[test]
fn a_mixed_pass_makes_what_its_parts_make_alone() {
    check_vulkan(F32, KvType::F32, 2e-5);
    check_vulkan(DOT, KvType::F16, 1e-3);
}

#[test]
fn a_mixed_pass_on_matrix_units_makes_what_its_parts_make_alone() {
    let name = "a_mixed_pass_on_matrix_units_makes_what_its_parts_make_alone";
    let gpu = common::open_gpu();
    if gpu.caps.matrix.is_none() {
        println!("{name}: not checked here: {} has no matrix units", gpu.caps.name);
        return;
    }
    // Weights of attention are rounded to f16 for the units, and one row alone is not computed on them.
    check_vulkan(MATRIX_F16, KvType::F16, 4e-3);
    // Attention of an f32 cache is row by row.
    check_vulkan(MATRIX_F16, KvType::F32, 4e-3);
}
