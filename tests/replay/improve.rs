//! Tuning between passes: it leaves the KV cache as it is, and what comes behind it is the same, whatever it chooses.

use crate::KeptFiles;
use crate::common::{self, DOT, bits, golden, load};
use kiln::engine::{Options, ReplayOptions, Tune};
use kiln::executor::{ExecutorExt, Measure};
use kiln::schedule::Pool;
use kiln::sequence::session::Session;
use std::path::{Path, PathBuf};

/// Integer dot products, for which all tiles give the same bits.
fn options(tune: Tune) -> Options {
    Options {
        device: common::vulkan(),
        chunk: Some(4),
        context: Some(64),
        sequences: 2,
        head_rows: 2,
        vulkan: ReplayOptions { tune: Some(tune), ..common::forced(DOT) },
        ..Options::default()
    }
}

/// Every page of the KV cache.
fn pages(executor: &mut dyn Measure) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for pool in Pool::ALL {
        let layout = executor.schedule().kv.pool(pool);
        let (count, size) = (layout.pages, layout.page_bytes as usize);
        for page in 0..count {
            let mut bytes = vec![0; size];
            executor.read_page(pool, page as _, &mut bytes).unwrap();
            all.push(bytes);
        }
    }
    all
}

/// Improves an executor once. Returns whether it measured something; `None` if there is nothing more to do.
fn improve(executor: &mut dyn Measure) -> Option<bool> {
    let pause = executor.improve().unwrap()?;
    std::thread::sleep(pause);
    Some(pause.is_zero())
}

/// Improves an executor until there is nothing more to do. Returns how often it measured something.
fn improve_all(executor: &mut dyn Measure) -> usize {
    std::iter::from_fn(|| improve(executor)).filter(|measured| *measured).count()
}

/// The tiles that a cache directory has, by their products' names.
fn tiles(directory: &Path) -> serde_json::Map<String, serde_json::Value> {
    let names = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let is_tuning = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with("tuning-");
    let file = names.filter(is_tuning).collect::<Vec<_>>();
    assert_eq!(file.len(), 1, "{file:?}");
    let mut content: serde_json::Value = serde_json::from_slice(&std::fs::read(&file[0]).unwrap()).unwrap();
    serde_json::from_value(content["tiles"].take()).unwrap()
}

#[test]
fn an_executor_is_tuned_between_passes_and_its_replies_go_on_as_they_were() {
    let directory = KeptFiles::new();
    let run = |tune| {
        let mut executor = load(&golden("tiny"), options(tune));
        let executor = executor.as_mut();
        // Two sequences that live on, one of a chunk and one token more, and one of a single token.
        let mut sessions = [Session::new(0, 64), Session::new(1, 64)];
        sessions[0].prefill(executor, &[2, 5, 6, 7, 8]).unwrap();
        let mut all = bits(executor, 0);
        sessions[1].prefill(executor, &[2]).unwrap();
        let mut pieces = 0;
        for turn in 0..40 {
            // A few pieces between any two passes, so that products change while sequences run.
            for _ in 0..40 {
                let before = (turn == 3).then(|| pages(executor));
                let improved = improve(executor);
                if let Some(before) = before {
                    assert!(pages(executor) == before, "the KV cache is as it was");
                }
                let Some(measured) = improved else { break };
                pieces += usize::from(measured);
            }
            let session = &mut sessions[turn % 2];
            session.decode(executor, 5 + turn as u32).unwrap();
            all.extend(bits(executor, 0));
        }
        // A prompt behind all of that.
        pieces += improve_all(executor);
        sessions[1].prefill(executor, &[3, 4, 5]).unwrap();
        all.extend(bits(executor, 0));
        (all, pieces)
    };
    let (want, none) = run(Tune::Off);
    assert_eq!(none, 0);
    let (got, pieces) = run(Tune::Idle);
    assert!(got == want, "other logits");
    assert!(pieces > 20, "{pieces} pieces");
    // The next load has what was chosen. It may ask about products that were not worth a measurement before, since what those
    // are expected to win rests on the seconds that it measures itself.
    let chosen = tiles(directory.path());
    assert!(chosen.len() > 4, "{chosen:?}");
    improve_all(load(&golden("tiny"), options(Tune::Idle)).as_mut());
    let after = tiles(directory.path());
    for (product, tile) in &chosen {
        assert_eq!(after.get(product), Some(tile), "{product} was tuned anew");
    }
    assert_eq!(kiln::testing::vulkan::device::instance::validation_messages(), 0);
}
