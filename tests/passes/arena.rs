//! The arena in memory that the driver exports as a dma-buf: the engine computes the same bits there as in an ordinary
//! arena. Exporting on a CPU driver needs Mesa 25 and /dev/udmabuf; without them, the driver's refusal is passed on.

use crate::common::arena::dma_bufs_required;
use crate::common::{self, F32, bits, forced, golden, load};
use kiln::engine::ReplayOptions;
use kiln::engine::{self, Options};
use kiln::executor::Executor;
use kiln::executor::weights::Progress;
use kiln::model::checkpoint::Checkpoint;
use kiln::schedule::KvType;
use kiln::sequence::session::Session;
use kiln::testing::replay::driver::MemorySource;

/// The same options for all runs, so that an emulated CPU compiles their kernels once.
fn options(arena: MemorySource) -> Options {
    Options {
        device: common::vulkan(),
        vulkan: ReplayOptions { arena, ..forced(F32) },
        kv: KvType::F32,
        context: Some(160),
        chunk: Some(16),
        head_rows: 8,
        ..Options::default()
    }
}

const PROMPT: [u32; 20] = [2, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73];

/// Bits of all logits of a prompt and of its continuation.
fn run(executor: &mut dyn Executor) -> Vec<u32> {
    let mut session = Session::new(0, 160);
    session.prefill(executor, &PROMPT).unwrap();
    let mut all = Vec::new();
    for step in 0..6 {
        all.extend(bits(executor, 0));
        session.decode(executor, 100 + step).unwrap();
    }
    all
}

#[test]
fn an_exported_arena_computes_the_same_bits_or_is_refused_in_words() {
    let want = run(load(&golden("tiny"), options(MemorySource::Ordinary)).as_mut());
    assert!(want.len() > 1000 && want.iter().any(|&b| b != 0));
    assert_eq!(run(load(&golden("tiny"), options(MemorySource::Auto)).as_mut()), want, "where the default puts it");
    let checkpoint = Checkpoint::open(&golden("tiny")).unwrap();
    match engine::load(&checkpoint, &options(MemorySource::Exported), &Progress::default()) {
        Ok(mut executor) => assert!(run(executor.as_mut()) == want, "exported"),
        Err(e) => {
            assert!(!dma_bufs_required(), "{e}");
            println!("exported arenas do not run here: {e}");
            assert_eq!(e.exit_code(), 4, "{e}");
        }
    }
}
