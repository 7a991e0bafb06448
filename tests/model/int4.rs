//! INT4 weights on every executor: as exact as the weights that they hold, and near the BF16 ones that they are made from.

use crate::common::{self, Case, DOT, F32, MATRIX_F16, golden, ids, load, relative_rms};
use kiln::engine::{Device, Options};
use kiln::executor::{ExecutorExt, HeadRows, Row};
use kiln::model::WeightFormat;
use kiln::schedule::KvType;
use kiln::sequence::session::Session;
use std::path::Path;

const GROUP: usize = WeightFormat::GROUP;
const CASES: [&str; 4] = ["tiny", "wide_small", "deep62", "tiny4"];

/// A power of two that is at least `1 / steps` of the largest magnitude.
fn power_of_two(values: &[f32], steps: f32) -> f32 {
    let max = values.iter().fold(0f32, |m, w| m.max(w.abs()));
    2f32.powi((max / steps).log2().ceil() as i32)
}

/// Makes the values multiples of a power of two, from -`steps` of it on, which one value gets.
fn make_exact(values: &mut [f32], steps: f32, most: f32) {
    let unit = power_of_two(values, steps);
    values.iter_mut().for_each(|w| *w = (*w / unit).round().clamp(-steps, most) * unit);
    values[3] = -steps * unit;
}

/// The golden case with weights that INT4, INT8 and BF16 all hold exactly, each matrix in the format that INT4 makes of it.
fn exact_model(case: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::copy(golden(case).join("config.json"), dir.path().join("config.json")).unwrap();
    let mut bytes = std::fs::read(golden(case).join("model.safetensors")).unwrap();
    let (header, metadata) = safetensors::SafeTensors::read_metadata(&bytes).unwrap();
    for (name, info) in metadata.tensors() {
        let &[_, cols] = info.shape.as_slice() else { continue };
        let data = &mut bytes[8 + header..][info.data_offsets.0..info.data_offsets.1];
        let bf16 = |b: &[u8]| half::bf16::from_le_bytes([b[0], b[1]]).to_f32();
        let mut values: Vec<f32> = data.chunks_exact(2).map(bf16).collect();
        if cols.is_multiple_of(GROUP) && !name.contains("embed_tokens") {
            values.chunks_exact_mut(GROUP).for_each(|group| make_exact(group, 8.0, 7.0));
        } else {
            values.chunks_exact_mut(cols).for_each(|row| make_exact(row, 127.0, 127.0));
        }
        let encoded = values.iter().flat_map(|w| half::bf16::from_f32(*w).to_le_bytes());
        data.iter_mut().zip(encoded).for_each(|(to, from)| *to = from);
    }
    std::fs::write(dir.path().join("model.safetensors"), bytes).unwrap();
    dir
}

/// The logits of a prompt's last position, then of a few passes of one row.
fn logits(dir: &Path, options: Options) -> Vec<f32> {
    let mut executor = load(dir, Options { context: Some(160), ..options });
    let tokens = ids(&Case::open("tiny").prompts()[5]["ids"]);
    let tokens: Vec<u32> = tokens.into_iter().map(|id| id % 320).collect();
    let mut session = Session::new(0, 160);
    let mut all = Vec::new();
    session.prefill(executor.as_mut(), &tokens).unwrap();
    for id in [7, 300, 11] {
        all.extend_from_slice(executor.logits(0).unwrap());
        session.decode(executor.as_mut(), id).unwrap();
    }
    all
}

#[test]
fn weights_that_int4_holds_give_the_bits_that_bf16_gives() {
    for case in CASES {
        let model = exact_model(case);
        let of = |weights| logits(model.path(), Options { device: Device::Reference, weights, ..Options::default() });
        let int4 = of(WeightFormat::Int4);
        assert!(int4.iter().any(|l| l.abs() > 0.1), "{case}: the logits say something");
        assert!(int4 == of(WeightFormat::Bf16), "{case}");
    }
}

/// Every arithmetic that a device may have, with passes of one row, of few and of many.
#[test]
fn vulkan_computes_what_the_reference_does() {
    let gpu = common::open_gpu();
    let has_units = gpu.caps.matrix.is_some();
    // A sample has a model of each family.
    let takes_all = common::takes_all(&gpu);
    drop(gpu);
    for case in CASES.into_iter().filter(|case| takes_all || ["tiny", "tiny4"].contains(case)) {
        let model = exact_model(case);
        let int4 = Options { weights: WeightFormat::Int4, ..Options::default() };
        let want = logits(model.path(), Options { device: Device::Reference, ..int4 });
        for (arithmetic, kv, tolerance) in [
            (F32, KvType::F32, 2e-5),
            // 16-bit activations.
            (DOT, KvType::F32, 5e-3),
            (MATRIX_F16, KvType::F16, 1.5e-2),
        ] {
            if arithmetic == MATRIX_F16 && !has_units {
                println!("{case} {arithmetic:?}: not run: the device has no matrix units");
                continue;
            }
            let few = if arithmetic == F32 { &[160][..] } else { &[7] };
            for &chunk in if takes_all { &[1, 3, 7, 33, 160] } else { few } {
                let vulkan = common::forced(arithmetic);
                let options = Options { device: common::vulkan(), kv, chunk: Some(chunk), vulkan, ..int4 };
                let error = relative_rms(&logits(model.path(), options), &want);
                // Rounding grows with the number of layers, and where scores are not scaled.
                let grown = [("deep62", 8.0), ("tiny4", 4.0)].into_iter().find(|(name, _)| *name == case);
                let bound = tolerance * grown.map_or(1.0, |(_, factor)| factor);
                println!("{case} {arithmetic:?}, chunks of {chunk}: {error:.1e} of {bound:.1e}");
                assert!(error < bound, "{case} {arithmetic:?}, chunks of {chunk}: {error}");
            }
        }
    }
    assert_eq!(kiln::testing::vulkan::device::instance::validation_messages(), 0);
}

/// Several sequences in one pass have the logits that each has alone.
#[test]
fn a_batch_in_int4_computes_what_its_sequences_would_alone() {
    let options = Options { weights: WeightFormat::Int4, sequences: 5, head_rows: 5, ..Options::default() };
    let rows: Vec<Row> = (0..5).map(|i| Row { token: 20 + 31 * i, position: 0, sequence: i }).collect();
    for device in [Device::Cpu, common::vulkan()] {
        let mut executor = load(&golden("tiny"), Options { device, ..options });
        executor.forward(&rows, Some(HeadRows { first: 0, count: 5 })).unwrap();
        let together: Vec<Vec<f32>> = (0..5).map(|r| executor.logits(r).unwrap().to_vec()).collect();
        for (row, together) in rows.iter().zip(&together) {
            executor.forward(std::slice::from_ref(row), Some(HeadRows { first: 0, count: 1 })).unwrap();
            let error = relative_rms(together, executor.logits(0).unwrap());
            assert!(error < 5e-3, "{device:?}: sequence {} is {error} off", row.sequence);
        }
    }
}

/// The golden models have random weights, which have no redundancy: rounding changes them more than a trained model. With 62
/// layers INT8 is half off already.
#[test]
fn golden_models_in_int4_are_near_their_bf16_logits() {
    for (case, bound) in [("tiny", 0.75), ("wide_small", 0.25), ("wide4", 0.9)] {
        let of = |weights| logits(&golden(case), Options { device: Device::Reference, weights, ..Options::default() });
        let bf16 = of(WeightFormat::Bf16);
        let [int8, int4] = [WeightFormat::Int8, WeightFormat::Int4].map(|format| relative_rms(&of(format), &bf16));
        println!("{case}: {int4:.3} of {bound}, INT8 {int8:.3}");
        assert!(int8 < int4 && int4 < bound, "{case}: {int4}, INT8 {int8}");
    }
}
