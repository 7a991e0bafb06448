//! Kernels against formulas, on each kind of vector units that the CPU has.

use super::RowsByExpert;
use super::attend::{Attend, AttentionScratch, KvView, ROWS};
use super::elementwise::WeightedSum;
use super::inputs::Inputs;
use super::lanes::VectorUnits;
use super::panels::Panels;
use super::product::{PanelProduct, ResultRows, SortedRows, correction};
use crate::model::WeightFormat;
use crate::schedule::KvType;
use crate::schedule::kv::{KvLayer, PAGE, Pool};
use crate::text::testing::Random;
use half::{bf16, f16};

/// A random number in -1 .. 1.
fn signed(random: &mut Random) -> f32 {
    2.0 * random.unit() - 1.0
}

/// The rows of a matrix from a checkpoint, and their decoded values.
struct DecodedRows {
    data: Vec<u8>,
    scales: Vec<u8>,
    decoded: Vec<f32>,
}

impl DecodedRows {
    fn new(format: WeightFormat, rows: usize, cols: usize) -> DecodedRows {
        let mut random = Random(cols as u64);
        let [row_bytes, scale_bytes] = [format.row_bytes(cols), format.scale_bytes(cols)];
        let (mut data, mut scales) = (vec![0u8; rows * row_bytes], vec![0u8; rows * scale_bytes]);
        let mut decoded = vec![0f32; rows * cols];
        for r in 0..rows {
            let (data, scales) =
                (&mut data[r * row_bytes..][..row_bytes], &mut scales[r * scale_bytes..][..scale_bytes]);
            if WeightFormat::MADE.contains(&format) {
                let row: Vec<f32> = (0..cols).map(|_| signed(&mut random)).collect();
                format.encode_row(&row, data, scales).unwrap();
            } else {
                data.fill_with(|| random.next() as u8);
                scales.fill_with(|| random.next() as u8);
                // Small f16 at every possible start of a record; the bits of small scales are arbitrary.
                for half in scales.chunks_exact_mut(2) {
                    half.copy_from_slice(&f16::from_f32(0.01 * signed(&mut random)).to_le_bytes());
                }
            }
            format.decode_row(data, scales, &mut decoded[r * cols..][..cols]);
        }
        DecodedRows { data, scales, decoded }
    }

    fn pack(&self, format: WeightFormat, rows: usize, cols: usize, units: VectorUnits) -> Panels {
        self.pack_part(format, [1, rows, cols], 0, units)
    }

    /// Packs matrices of `rows`, which begin with row `from`.
    fn pack_part(&self, format: WeightFormat, size: [usize; 3], from: usize, units: VectorUnits) -> Panels {
        let cols = size[2];
        let [row_bytes, scale_bytes] = [format.row_bytes(cols), format.scale_bytes(cols)];
        Panels::pack(size, format, units.offset(), |first, data, scales| {
            let first = from + first;
            data.copy_from_slice(&self.data[first * row_bytes..][..data.len()]);
            scales.copy_from_slice(&self.scales[first * scale_bytes..][..scales.len()]);
            Ok(())
        })
        .unwrap()
    }
}

/// Every format, with sizes of whole panels and of a partial one.
fn cases() -> impl Iterator<Item = (WeightFormat, usize, usize)> {
    WeightFormat::ALL.into_iter().flat_map(|format| {
        let cols = match format.grouped() {
            Some(grouped) if !grouped.holds(32) => 512,
            Some(_) => 96,
            None => 70,
        };
        [(format, 37, cols), (format, 16, cols)]
    })
}

#[test]
fn panels_decode_to_the_rows_that_were_packed() {
    for (format, rows, cols) in cases() {
        let matrix = DecodedRows::new(format, rows, cols);
        for units in VectorUnits::all() {
            let panels = matrix.pack(format, rows, cols, units);
            let mut row = vec![0f32; cols];
            for r in 0..rows {
                panels.decode_row(r, &mut row);
                assert_eq!(row, matrix.decoded[r * cols..][..cols], "{} row {r}, {units:?}", format.name());
            }
        }
    }
}

fn product(panels: &Panels, x: &[f32], rows: usize, units: VectorUnits) -> Vec<f32> {
    let mut inputs = Inputs::default();
    inputs.resize(rows, panels.cols, correction(panels.format, units));
    for (mut row, x) in inputs.rows().zip(x.chunks_exact(panels.cols)) {
        row.quantize(units, x);
    }
    let mut out = vec![f32::NAN; rows * panels.rows];
    let (start, stride) = (out.as_mut_ptr(), panels.rows);
    let part = PanelProduct {
        weights: panels,
        matrix: 0,
        panels: 0..panels.count(),
        rows: 0..rows,
        sorted: None,
        x: (x.as_ptr(), panels.cols),
        inputs: &inputs,
        out: ResultRows { start, stride },
    };
    // SAFETY: all buffers have these sizes, and the CPU has the units.
    unsafe { part.run(units) };
    out
}

/// Experts' panels give the bits that each expert's own matrix gives, for rows in any order, and no other row is written.
#[test]
fn experts_are_multiplied_with_the_rows_that_chose_them() {
    for (format, rows, cols) in cases() {
        let matrix = DecodedRows::new(format, 3 * rows, cols);
        let mut random = Random(3);
        let x: Vec<f32> = (0..7 * cols).map(|_| signed(&mut random)).collect();
        for units in VectorUnits::all() {
            let experts = matrix.pack_part(format, [3, rows, cols], 0, units);
            // Of 14 expert rows, two for each row of inputs, those of expert 2: more than a tile, and behind others.
            let (sorted, share) = ([6, 9, 1, 0, 4, 5, 13, 2, 11, 12], 2);
            let mut inputs = Inputs::default();
            inputs.resize(sorted.len(), cols, correction(format, units));
            for (mut to, r) in inputs.rows().zip(sorted) {
                to.quantize(units, &x[r as usize / share * cols..][..cols]);
            }
            let mut out = vec![f32::NAN; 14 * rows];
            let part = PanelProduct {
                weights: &experts,
                matrix: 2,
                panels: 0..experts.count(),
                rows: 2..sorted.len(),
                sorted: Some(SortedRows { rows: &sorted, share }),
                x: (x.as_ptr(), cols),
                inputs: &inputs,
                out: ResultRows { start: out.as_mut_ptr(), stride: rows },
            };
            // SAFETY: all buffers have these sizes, and the CPU has the units.
            unsafe { part.run(units) };
            let own = product(&matrix.pack_part(format, [1, rows, cols], 2 * rows, units), &x, 7, units);
            for (r, out) in out.chunks_exact(rows).enumerate() {
                match sorted[2..].contains(&(r as u32)) {
                    true => assert_eq!(out, &own[r / share * rows..][..rows], "{} row {r}, {units:?}", format.name()),
                    false => assert!(out.iter().all(|out| out.is_nan()), "{} row {r}, {units:?}", format.name()),
                }
            }
        }
    }
}

#[test]
fn rows_are_sorted_by_their_experts_in_their_own_order() {
    // An expert that is none has no rows.
    let sorted = RowsByExpert::new(5, &[3, 1, 3, 0, 1, 9, 3]);
    assert_eq!(sorted.rows, [3, 1, 4, 0, 2, 6]);
    assert_eq!(sorted.chosen, [(0, 0..1), (1, 1..3), (3, 3..6)]);
    assert_eq!(RowsByExpert::new(5, &[4]).chosen, [(4, 0..1); 1]);
    assert!(RowsByExpert::new(5, &[]).chosen.is_empty());
}

#[test]
fn experts_outputs_are_added_in_their_order() {
    let mut random = Random(5);
    for width in [16, 33, 70] {
        let x: Vec<f32> = (0..3 * (width + 2)).map(|_| signed(&mut random)).collect();
        let gains = [0.5, -0.25, 3.0];
        for units in VectorUnits::all() {
            let mut out = vec![f32::NAN; width];
            // SAFETY: three rows at this stride lie in `x`, and the CPU has the units.
            unsafe { units.run(WeightedSum { x: (x.as_ptr(), width + 2), gains: &gains, out: &mut out }) };
            for (i, out) in out.iter().enumerate() {
                let wanted = (0..3).fold(0f32, |sum, row| gains[row].mul_add(x[row * (width + 2) + i], sum));
                assert!(
                    (out - wanted).abs() <= 1e-6 * wanted.abs().max(1.0),
                    "{width} {i}, {units:?}: {out}, {wanted}"
                );
            }
        }
    }
}

/// Bound of a product's error from the rounding of its inputs: a sum of independent errors, each at most half of its
/// load's last bit and half of that on average, is rarely beyond six times its standard deviation.
fn rounding(format: WeightFormat, w: &[f32], x: &[f32]) -> f64 {
    if format == WeightFormat::Bf16 {
        return 0.0;
    }
    let loads = w.chunks(32).zip(x.chunks(32)).map(|(w, x)| {
        let bit = f64::from(x.iter().fold(0f32, |a, b| a.max(b.abs()))) / (127.0 * 128.0);
        w.iter().map(|w| (f64::from(*w) * bit).powi(2) / 12.0).sum::<f64>()
    });
    6.0 * loads.sum::<f64>().sqrt()
}

/// Products are compared with those of unrounded inputs, so that inputs with fewer bits are detected.
#[test]
fn products_are_those_of_the_decoded_weights() {
    for (format, rows, cols) in cases() {
        let matrix = DecodedRows::new(format, rows, cols);
        let mut random = Random(7);
        // More rows than a panel is multiplied with at a time; the first load of the second row is zero, and one value
        // is large.
        let count = 15;
        let mut x: Vec<f32> = (0..count * cols).map(|_| signed(&mut random)).collect();
        x[cols..cols + 32].fill(0.0);
        x[2 * cols + 5] = 300.0;
        let mut results: Vec<(VectorUnits, Vec<f32>)> = Vec::new();
        for units in VectorUnits::all() {
            let panels = matrix.pack(format, rows, cols, units);
            let out = product(&panels, &x, count, units);
            for (r, out) in out.chunks_exact(rows).enumerate() {
                for (i, out) in out.iter().enumerate() {
                    let (w, x) = (&matrix.decoded[i * cols..][..cols], &x[r * cols..][..cols]);
                    let terms = w.iter().zip(x).map(|(w, x)| f64::from(*w) * f64::from(*x));
                    let (sum, size) = terms.fold((0.0, 0.0), |(sum, size), t| (sum + t, size + t.abs()));
                    // Offsets cancel a part of the scaled values.
                    let bound = 2e-5 * size + rounding(format, w, x) + 1e-6;
                    let off = (f64::from(*out) - sum).abs();
                    assert!(
                        off <= bound,
                        "{} {units:?} row {r}, {i}: {out}, not {sum}: {off:e} of {bound:e}",
                        format.name()
                    );
                }
            }
            // A single row has the same bits.
            for r in 0..count {
                let alone = product(&panels, &x[r * cols..][..cols], 1, units);
                assert_eq!(alone, out[r * rows..][..rows], "{} {units:?} row {r} alone", format.name());
            }
            results.push((units, out));
        }
        // Kinds with fused multiply-add agree in each bit.
        let fused = results.iter().filter(|(units, _)| *units != VectorUnits::Portable).collect::<Vec<_>>();
        fused.windows(2).for_each(|pair| assert_eq!(pair[0].1, pair[1].1, "{}: {:?}", format.name(), pair[1].0));
    }
}

#[test]
fn what_is_not_finite_comes_out_so() {
    let (format, rows, cols) = (WeightFormat::Int8, 16, 64);
    let matrix = DecodedRows::new(format, rows, cols);
    for units in VectorUnits::all() {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut x = vec![1f32; cols];
            x[40] = bad;
            let out = product(&matrix.pack(format, rows, cols, units), &x, 1, units);
            assert!(out.iter().all(|y| !y.is_finite()), "{bad} by {units:?}: {out:?}");
        }
    }
}

/// Attention by its formula, in f64.
fn formula(q: &[f32], keys: &[Vec<f32>], values: &[Vec<f32>], scale: f32) -> Vec<f64> {
    let score =
        |key: &Vec<f32>| q.iter().zip(key).map(|(q, k)| f64::from(*q) * f64::from(*k)).sum::<f64>() * f64::from(scale);
    let scores: Vec<f64> = keys.iter().map(score).collect();
    let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let weights: Vec<f64> = scores.iter().map(|s| (s - largest).exp()).collect();
    let sum: f64 = weights.iter().sum();
    (0..q.len()).map(|d| weights.iter().zip(values).map(|(w, v)| w * f64::from(v[d])).sum::<f64>() / sum).collect()
}

#[test]
fn attention_is_softmax_of_scores_over_pages_and_windows() {
    // A dimension that is not whole vectors, and one that is.
    for (dim, window, first, rows, element) in [
        (24, None, 130, ROWS, KvType::F16),
        (32, Some(70), 126, ROWS, KvType::F16),
        (32, Some(64), 63, 3, KvType::F16),
        (256, None, 0, 1, KvType::F16),
        (16, Some(1), 200, ROWS, KvType::F16),
        (24, None, 130, ROWS, KvType::Bf16),
        (32, Some(64), 63, 3, KvType::Bf16),
    ] {
        let kv = KvLayer {
            layer: 1,
            pool: Pool::Global,
            place: 1,
            kv_heads: 2,
            head_dim: dim,
            element,
            entries: 8,
            context: 512,
            block_pages: 5,
        };
        let (pages, page_elements) = (5, 2 * kv.elements());
        let mut random = Random(dim as u64);
        let is_bf16 = element == KvType::Bf16;
        let mut value = || 2.0 * signed(&mut random);
        let mut pool: Vec<u16> = (0..pages * page_elements)
            .map(|_| if is_bf16 { bf16::from_f32(value()).to_bits() } else { f16::from_f32(value()).to_bits() })
            .collect();
        let infinity = if is_bf16 { bf16::INFINITY.to_bits() } else { f16::INFINITY.to_bits() };
        // Pages in another order than positions, and infinities at invisible positions.
        let place = |number: usize| (pages - 1 - number) * page_elements;
        let end = first + rows;
        for p in (0..pages * PAGE).filter(|&p| p >= end || window.is_some_and(|w| p + w < first + 1)) {
            for half in 0..2 {
                let at = place(p / PAGE) + kv.element_at(half, 1, p);
                pool[at..at + dim].fill(infinity);
            }
        }
        let entry = |half: usize, p: usize| -> Vec<f32> {
            let at = place(p / PAGE) + kv.element_at(half, 1, p);
            let widen = |x: &u16| if is_bf16 { bf16::from_bits(*x).to_f32() } else { f16::from_bits(*x).to_f32() };
            pool[at..at + dim].iter().map(widen).collect()
        };
        let q: Vec<f32> = (0..rows * dim).map(|_| 3.0 * signed(&mut random)).collect();
        for units in VectorUnits::all() {
            let run = |from: usize, count: usize| {
                let mut out = vec![f32::NAN; count * dim];
                let mut scratch = AttentionScratch::default();
                let attend = Attend {
                    q: (q[from * dim..].as_ptr(), dim),
                    rows: count,
                    position: first + from,
                    cache: KvView { pool: &pool, kv, page: &place },
                    kv_head: 1,
                    scale: 0.25,
                    window,
                    out: (out.as_mut_ptr(), dim),
                    scratch: &mut scratch,
                };
                // SAFETY: all buffers have these sizes, and the CPU has the units.
                unsafe { attend.run(units) };
                out
            };
            let out = run(0, rows);
            for r in 0..rows {
                let seen = window.map_or(0, |w| (first + r + 1).saturating_sub(w))..first + r + 1;
                let [keys, values] = [0, 1].map(|half| seen.clone().map(|p| entry(half, p)).collect::<Vec<_>>());
                let want = formula(&q[r * dim..][..dim], &keys, &values, 0.25);
                for (d, (out, want)) in out[r * dim..][..dim].iter().zip(want).enumerate() {
                    assert!(
                        (f64::from(*out) - want).abs() < 2e-5,
                        "dim {dim}, {units:?} row {r}, {d}: {out}, not {want}"
                    );
                }
                assert_eq!(run(r, 1), out[r * dim..][..dim], "dim {dim}, {units:?} row {r} alone");
            }
        }
    }
}

/// Instructions for each weight of a product with one row of inputs on AVX2 in the dev profile, when last updated.
const PER_WEIGHT: [(&str, f64); 14] = [
    ("int8", 1.83),
    ("int4", 1.97),
    ("bf16", 4.63),
    ("q4_1", 2.05),
    ("q5_0", 2.42),
    ("q5_1", 2.51),
    ("q8_0", 1.92),
    ("q2_k", 2.62),
    ("q3_k", 2.97),
    ("q4_k", 2.17),
    ("q5_k", 2.62),
    ("q6_k", 3.08),
    ("iq4_nl", 2.17),
    ("iq4_xs", 2.23),
];
/// Growth by more than this factor is a regression.
const TOLERANCE: f64 = 1.2;
/// Environment variable for the process under valgrind: the number of its format.
const CHILD: &str = "KILN_TEST_PRODUCT";
/// Sizes of the counted matrix, and the number of its multiplications.
const ROWS_COUNTED: usize = 64;
const COLS_COUNTED: usize = 512;
const TIMES: usize = 8;

/// The process under valgrind multiplies in its one format. As a normal test, this multiplies once in each.
#[test]
fn a_row_of_inputs_alone() {
    let told = std::env::var(CHILD).ok().map(|told| told.parse::<usize>().unwrap());
    for (i, format) in WeightFormat::ALL.into_iter().enumerate().filter(|(i, _)| told.is_none_or(|told| told == *i)) {
        let units = VectorUnits::best();
        let panels =
            DecodedRows::new(format, ROWS_COUNTED, COLS_COUNTED).pack(format, ROWS_COUNTED, COLS_COUNTED, units);
        let x = vec![1.0; COLS_COUNTED];
        let mut inputs = Inputs::default();
        inputs.resize(1, COLS_COUNTED, correction(format, units));
        inputs.rows().for_each(|mut row| row.quantize(units, &x));
        let mut out = vec![f32::NAN; ROWS_COUNTED];
        counted(&panels, &x, &inputs, &mut out, units, if told.is_some() { TIMES } else { 1 });
        assert!(out.iter().all(|x| x.is_finite()), "format {i}, {}", format.name());
    }
}

/// Regression: one function for all formats took 1.6 MB in a build without optimisation, of a thread's 2 MiB.
#[test]
fn a_product_in_any_format_needs_little_stack() {
    let all = || {
        for (format, rows, cols) in cases() {
            let matrix = DecodedRows::new(format, rows, cols);
            let x = vec![0.5; 15 * cols];
            for units in VectorUnits::all() {
                let out = product(&matrix.pack(format, rows, cols, units), &x, 15, units);
                assert_eq!(out[..rows], out[14 * rows..], "{} {units:?}", format.name());
            }
        }
    };
    std::thread::Builder::new().stack_size(512 << 10).spawn(all).unwrap().join().unwrap();
}

/// Callgrind counts this function, by its name.
#[inline(never)]
fn counted(panels: &Panels, x: &[f32], inputs: &Inputs, out: &mut [f32], units: VectorUnits, times: usize) {
    for _ in 0..times {
        let out = ResultRows { start: out.as_mut_ptr(), stride: panels.rows };
        let (all, x) = (0..panels.count(), (x.as_ptr(), panels.cols));
        // SAFETY: all buffers have these sizes, and the CPU has the units.
        unsafe {
            PanelProduct { weights: panels, matrix: 0, panels: all, rows: 0..1, sorted: None, x, inputs, out }
                .run(units)
        };
    }
}

/// Regression: in a release build BF16 took nine times as many as INT8, since it multiplied each column by the same row
/// four times.
#[test]
#[ignore = "needs valgrind and half a minute: tools/test runs it"]
fn instructions_per_weight_have_not_grown() {
    println!("{:44} {:>8} {:>8}", "instructions per weight, AVX2, one row", "now", "kept");
    let (mut grown, weights) = (Vec::new(), (ROWS_COUNTED * COLS_COUNTED * TIMES) as f64);
    for (i, format) in WeightFormat::ALL.into_iter().enumerate() {
        let out = std::process::Command::new("valgrind")
            .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--toggle-collect=kiln::cpu::tests::counted*"])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", "cpu::tests::a_row_of_inputs_alone", "--test-threads=1"])
            .env(CHILD, i.to_string())
            .output()
            .expect("valgrind is installed");
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "{}{said}", String::from_utf8_lossy(&out.stdout));
        let collected = said.lines().find_map(|l| l.split_once("Collected : ")).map(|(_, n)| n.trim().parse::<f64>());
        let now = collected.unwrap_or_else(|| panic!("callgrind says no count: {said}")).unwrap() / weights;
        assert!(now > 0.0, "callgrind counts nothing of {}: {said}", format.name());
        let kept = PER_WEIGHT.iter().find(|(name, _)| *name == format.name()).map_or(0.0, |(_, kept)| *kept);
        println!("{:44} {now:8.3} {kept:8.3}", format.name());
        if now > TOLERANCE * kept {
            grown.push(format.name());
        }
    }
    assert!(grown.is_empty(), "more than {TOLERANCE} times what src/cpu/tests.rs says: {grown:?}");
}
