//! What products cost in AMD's code, counted: instructions by what executes them, waits, bytes, and loads in flight.
//! docs/figures.md has the table, and the cost model (src/lower/figures.rs) its constants.

use super::*;
use gfx11::program::Unit;
use kiln::Cancel;
use kiln::executor::ExecutorExt;
use kiln::model::presets;
use kiln::model::write::{WriteMonitor, forge};

/// A 780M: SIMDs, clock, bytes a second, and clocks in which a SIMD multiplies two matrices.
const SIMDS: f64 = 24.0;
const CLOCK: f64 = 2.7e9;
const BUS: f64 = 89.6e9;
const MATRIX: f64 = 32.0;

/// The model's formats: those that Kiln makes, and types of GGUF files.
const FORMATS: [WeightFormat; 5] = [
    WeightFormat::Int8,
    WeightFormat::Int4,
    WeightFormat::Blocks(BlockFormat::Q4K),
    WeightFormat::Blocks(BlockFormat::Q6K),
    WeightFormat::Blocks(BlockFormat::Q8_0),
];

/// A layer of Gemma 3 27B with as many elements between gate, up and down as its rows have, in one format.
fn model(format: WeightFormat) -> (tempfile::TempDir, Checkpoint) {
    model_of(format, presets::preset("gemma3-27b").unwrap().hidden)
}

/// The same with so many elements between gate, up and down.
pub fn model_of(format: WeightFormat, ffn: usize) -> (tempfile::TempDir, Checkpoint) {
    let full = presets::preset("gemma3-27b").unwrap();
    let shape = Shape { layers: full.layers[..1].to_vec(), vocab: 4096, ffn, max_context: 1024, ..full };
    match format {
        WeightFormat::Blocks(format) => {
            let (dir, path) = random_model(&shape, 7, |_| format);
            let checkpoint = Checkpoint::open(&path).unwrap();
            (dir, checkpoint)
        }
        format => {
            let dir = tempfile::tempdir().unwrap();
            let monitor = WriteMonitor { progress: &|_, _| {}, cancel: &Cancel::default() };
            forge::forge(&shape, &dir.path().join("model"), format, 7, &monitor).unwrap();
            let checkpoint = Checkpoint::open(&dir.path().join("model")).unwrap();
            (dir, checkpoint)
        }
    }
}

/// Prints a row of a table for each kernel of the products, as the product chooses on a 780M. KILN_TEST_FORMATS names formats,
/// KILN_TEST_ROWS the numbers of rows. 512 rows of a format take ten minutes.
#[test]
#[ignore]
fn costs_of_products() {
    on_radv("costs::costs_of_products", |compiler| {
        let named = std::env::var("KILN_TEST_FORMATS").ok();
        let is_named = |f: &WeightFormat| named.as_ref().is_none_or(|n| n.split(',').any(|n| n == f.name()));
        let rows = std::env::var("KILN_TEST_ROWS").unwrap_or("1,8,64,512".into());
        for format in FORMATS.into_iter().filter(is_named) {
            let (_dir, checkpoint) = model(format);
            for rows in rows.split(',') {
                print_costs(compiler, &checkpoint, format, rows.parse().unwrap());
            }
        }
    });
}

fn print_costs(compiler: &Shared, checkpoint: &Checkpoint, format: WeightFormat, rows: usize) {
    let start = Instant::now();
    let setup = Setup { weights: format_of(format), chunk: rows, context: 512, ..INT8 };
    let (mut replay, watch) = setup.load(compiler, checkpoint);
    let row = |p: usize| Row { token: p as u32, position: p as u32, sequence: 0 };
    let all: Vec<Row> = (0..rows).map(row).collect();
    replay.forward(&all, Some(HeadRows { first: rows - 1, count: 1 })).unwrap_or_else(|e| panic!("{e}"));
    let inputs = 5376;
    let stored = (format.row_bytes(inputs) + format.scale_bytes(inputs)) as f64 / inputs as f64;
    let mut costs: Vec<_> = watch.costs.borrow().clone().into_iter().filter(|(_, (_, n))| *n > 0).collect();
    costs.sort_by_key(|(_, (_, weights))| std::cmp::Reverse(*weights));
    for (kernel, (report, weights)) in costs {
        let [waves, registers] = compiler.borrow().occupancy(kernel);
        let of = |n: u64| n as f64 / weights as f64;
        let [vector, matrix, lds, memory, scalar] = [Unit::Vector, Unit::Matrix, Unit::Lds, Unit::Memory, Unit::Scalar]
            .map(|u| 1e3 * of(report.by_unit[u as usize]));
        let bus = stored / BUS;
        let issue = (vector + MATRIX * matrix) / 1e3 / SIMDS / CLOCK;
        println!(
            "| {} | {rows} | {} | {:.0} M | {waves} | {registers} | {} | {vector:.1} | {matrix:.2} | {lds:.2} | {memory:.2} | \
             {scalar:.1} | {:.2} | {:.2} | {:.2} | {:.2} | {:.0} % | {:.0} % |",
            format.name(),
            kernel.module.name(),
            weights as f64 / 1e6,
            report.most_in_flight,
            1e3 * of(report.waits),
            of(report.traffic.asked + report.traffic.past),
            of(report.traffic.from_gl1),
            of(report.traffic.from_l2),
            100.0 * (bus / bus.max(issue)),
            100.0 * MATRIX * matrix / (vector + MATRIX * matrix),
        );
    }
    println!("{} rows of {} took {:.1} s", rows, format.name(), start.elapsed().as_secs_f64());
}

/// In what form a checkpoint is loaded whose matrices have that format.
fn format_of(format: WeightFormat) -> WeightFormat {
    if WeightFormat::MADE.contains(&format) { format } else { WeightFormat::Int8 }
}
