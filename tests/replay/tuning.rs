//! Tuning: measurements of the first load are read at the next, unless they do not fit this device. The logits are the
//! same whatever is chosen.

use crate::KeptFiles;
use crate::common::{self, DOT, bits, golden, load};
use kiln::engine::Options;
use kiln::engine::{ReplayOptions, Tune};
use kiln::executor::{Executor, ExecutorExt};
use kiln::sequence::session::Session;
use kiln::testing::vulkan::driver::recordings;
use std::fs;
use std::path::{Path, PathBuf};

/// Integer dot products, for which all tiles give the same bits.
fn options(tune: bool) -> Options {
    Options {
        device: common::vulkan(),
        chunk: Some(2),
        context: Some(64),
        vulkan: ReplayOptions { tune: Some(if tune { Tune::Now } else { Tune::Off }), ..common::forced(DOT) },
        ..Options::default()
    }
}

fn logits(executor: &mut dyn Executor) -> Vec<u32> {
    let mut session = Session::new(0, 64);
    session.prefill(executor, &[2, 5, 6, 7, 8]).unwrap();
    let mut all = Vec::new();
    for _ in 0..3 {
        all.extend(bits(executor, 0));
        let next = executor.next(0);
        session.decode(executor, next).unwrap();
    }
    all
}

/// The tuning files in a directory.
fn files(directory: &Path) -> Vec<PathBuf> {
    let paths = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    paths.filter(|p| p.file_name().unwrap().to_string_lossy().starts_with("tuning-")).collect()
}

#[test]
fn what_was_measured_is_read_at_the_next_load_if_this_device_can_run_it() {
    let directory = KeptFiles::new();
    let run = |tune| {
        let before = recordings();
        let mut executor = load(&golden("tiny"), options(tune));
        let recorded = recordings() - before;
        (logits(executor.as_mut()), recorded)
    };
    let (want, baked) = run(false);
    assert!(files(directory.path()).is_empty(), "nothing was measured");
    // Measuring records command buffers, so it shows in their number.
    let is_measured = |recorded| recorded > baked;
    let check = |what, measured| {
        let (got, recorded) = run(true);
        assert!(got == want, "{what}: other logits");
        assert_eq!(is_measured(recorded), measured, "{what}: {recorded} recordings, {baked} without tuning");
    };
    // What would cost more than it wins is left alone, and what that is depends on how busy the machine is.
    let settles = |what| {
        let is_last = || {
            let (got, recorded) = run(true);
            assert!(got == want, "{what}: other logits");
            !is_measured(recorded)
        };
        assert!((0..20).any(|_| is_last()), "{what}: every load measures");
    };

    check("the first load", true);
    let [file] = &files(directory.path())[..] else { panic!("one file") };
    settles("the first load");

    let whole = fs::read_to_string(file).unwrap();
    let mut known: serde_json::Value = serde_json::from_str(&whole).unwrap();
    let products = known["tiles"].as_object_mut().unwrap();
    assert!(products.len() >= 5, "a product of each shape: {whole}");
    let (_, first) = products.iter_mut().next().unwrap();
    first["Dot"]["subgroups"] = 3.into();
    let foreign = serde_json::to_string(&known).unwrap();
    let mut known: serde_json::Value = serde_json::from_str(&whole).unwrap();
    let seconds = known["seconds"].as_object_mut().unwrap();
    assert_eq!(seconds.len(), 2, "passes of one row and of two: {whole}");
    *seconds.iter_mut().next().unwrap().1 = (-1.0).into();
    let earlier = serde_json::to_string(&known).unwrap();
    for (what, text) in [
        ("a tile that there is not", foreign.as_str()),
        ("a time that there is not", &earlier),
        ("half a file", &whole[..whole.len() / 2]),
    ] {
        fs::write(file, text).unwrap();
        check(what, true);
        let mended = fs::read_to_string(file).unwrap();
        assert!(serde_json::from_str::<serde_json::Value>(&mended).is_ok() && mended != text, "{what}");
        settles(what);
    }

    fs::remove_file(file).unwrap();
    fs::create_dir(file).unwrap();
    check("a file that can be neither read nor written", true);
    assert_eq!(kiln::testing::vulkan::device::instance::validation_messages(), 0);
}
