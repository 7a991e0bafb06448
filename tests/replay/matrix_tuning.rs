//! Tuning on a device with matrix units: every kind of pass gets its arithmetic, its way to attend and its time, and the
//! model is the same whatever is chosen.

use crate::KeptFiles;
use crate::common::{self, Case, MATRIX_F16, golden, ids, load, relative_rms};
use kiln::engine::{Options, ReplayOptions, Tune};
use kiln::executor::{ExecutorExt, HeadRows, Row};
use kiln::sequence::session::Session;
use kiln::testing::vulkan::driver::recordings;
use serde_json::Value;

/// The tolerance of tests/passes/goldens.rs for 16-bit activations.
const TOLERANCE: f32 = 0.015;
const PROMPT: &str = "len17";

#[test]
fn every_kind_of_pass_is_tuned_once() {
    let directory = KeptFiles::new();
    let gpu = common::open_gpu();
    if gpu.caps.matrix.is_none() {
        println!("not checked here: {} has no matrix units", gpu.caps.name);
        return;
    }
    drop(gpu);
    let options = Options {
        device: common::vulkan(),
        chunk: Some(16),
        context: Some(64),
        sequences: 2,
        head_rows: 2,
        vulkan: ReplayOptions { tune: Some(Tune::Now), ..common::forced(MATRIX_F16) },
        ..Options::default()
    };
    let case = Case::open("tiny");
    let run = || {
        let before = recordings();
        let mut executor = load(&golden("tiny"), options);
        let recorded = recordings() - before;
        // A chunk of sixteen rows, and one of a single row.
        Session::new(0, 64).prefill(executor.as_mut(), &ids(&case.prompt(PROMPT)["ids"])).unwrap();
        let error = relative_rms(executor.logits(0).unwrap(), case.tensor(&format!("{PROMPT}.int8.logits")));
        assert!(error < TOLERANCE, "{error:.1e} off, of {TOLERANCE:.1e}");
        // Two sequences, which see the same.
        let rows = [0, 1].map(|sequence| Row { token: 5, position: 0, sequence });
        executor.forward(&rows, Some(HeadRows { first: 0, count: 2 })).unwrap();
        let first = executor.logits(0).unwrap().to_vec();
        assert!(first == executor.logits(1).unwrap(), "a row does not depend on the one beside it");
        recorded
    };
    let measured = run();

    let mut files = std::fs::read_dir(directory.path()).unwrap().map(|f| f.unwrap().path());
    let file = files.find(|f| f.file_name().unwrap().to_string_lossy().starts_with("tuning-")).expect("a file");
    let known: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let names = |what: &str| known[what].as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    let all = ["one row", "2 rows of one", "4 rows of one", "8 rows of one", "16 rows of one", "2 rows apart"];
    let seconds = names("seconds");
    assert!(all.iter().all(|kind| seconds.iter().any(|name| name.contains(kind))), "{seconds:?}");
    assert_eq!(seconds.len(), all.len(), "{seconds:?}");
    assert_eq!(names("arithmetic").len(), 4, "2, 4, 8 and 16 rows have a choice: {known}");
    let attend = names("attend");
    assert!(attend.len() == 1 && attend[0].contains("16 rows of one sequence"), "{attend:?}");
    // Which arithmetic is the fastest hangs on what else the machine does. Where it is that of matrix units, so are tiles.
    let tiles = names("tiles");
    for (kind, arithmetic) in known["arithmetic"].as_object().unwrap() {
        let Some(operand) = arithmetic["Matrix"].as_str() else { continue };
        let tile = format!("{}, {}", kind.split_once(", ").expect("weights, rows").1, operand.to_lowercase());
        assert!(tiles.iter().any(|name| name.contains(&tile)), "{kind} by {operand}: {tiles:?}");
    }

    assert!(run() < measured, "the second load measures nothing");
    assert_eq!(kiln::testing::vulkan::device::instance::validation_messages(), 0);
}
