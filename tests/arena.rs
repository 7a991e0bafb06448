//! The arena in memory shared with other drivers. The engine computes the same bits there as in an ordinary arena, they
//! match the golden case, and both drivers see the same bytes. Drivers without dma-bufs (lavapipe of Debian 12) refuse;
//! lavapipe of Mesa 25 and later imports a memfd as a dma-buf.

mod common;

use common::arena::{arena_allocators, dma_bufs_required};
use common::check::{F32_SHALLOW, check_prompts};
use common::{Case, F32, ONE_SUBMIT, bits, decode_in_turns, forced, golden, load};
use kiln::engine::ReplayOptions;
use kiln::engine::{self, Options};
use kiln::executor::weights::Progress;
use kiln::executor::{Executor, ExecutorExt};
use kiln::model::checkpoint::Checkpoint;
use kiln::schedule::KvType;
use kiln::sequence::session::Session;
use kiln::testing::replay::driver::{Allocator, MemorySource};
use kiln::testing::sys::dma_buf::{DmaBuf, Mapping, sealed_memfd};
use kiln::testing::vulkan::memory::allocators::{AMDGPU, DMA_HEAP, MEMFD, UDMABUF_MEMFD};
use kiln::{Error, Result};
use std::cell::RefCell;
use std::fs::File;

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

fn refusal(arena: MemorySource) -> Error {
    let checkpoint = Checkpoint::open(&golden("tiny")).unwrap();
    match engine::load(&checkpoint, &options(arena), &Progress::default()) {
        Ok(_) => panic!("{arena:?} was accepted"),
        Err(e) => e,
    }
}

/// Whether the driver imports dma-bufs. If not, asks for one and checks the refusal.
fn imports() -> bool {
    if common::open_gpu().features.sharing.imports {
        return true;
    }
    let e = refusal(MemorySource::Imported(MEMFD));
    assert_eq!(e.exit_code(), 4, "{e}");
    assert!(e.to_string().contains("dma-buf"), "{e}");
    println!("imported arenas are not checked here: {e}");
    false
}

#[test]
fn logits_on_an_imported_arena_are_the_same_bits_and_golden() {
    let want = run(load(&golden("tiny"), options(MemorySource::Ordinary)).as_mut());
    assert!(want.len() > 1000 && want.iter().any(|&b| b != 0));
    assert_eq!(run(load(&golden("tiny"), options(MemorySource::Auto)).as_mut()), want, "where the default puts it");
    let mut imported = None;
    if imports() {
        for allocator in arena_allocators() {
            let mut executor = load(&golden("tiny"), options(MemorySource::Imported(allocator)));
            assert!(run(executor.as_mut()) == want, "imported from {}", allocator.name);
            imported.get_or_insert(executor);
        }
    }
    // One importing executor represents the others, whose bits are the same.
    if let Some(mut executor) = imported {
        let (case, weights) = (Case::open("tiny"), options(MemorySource::Auto).weights);
        check_prompts(&case, executor.as_mut(), weights, F32_SHALLOW, "imported arena");
    }
    assert_eq!(
        kiln::testing::vulkan::device::instance::validation_messages(),
        0,
        "the validation layer reported something"
    );
}

/// While an imported arena is handed over to the device, the host cannot write what a pass asks for.
#[test]
fn asks_reach_an_imported_arena_behind_a_pass_that_runs_ahead() {
    if !imports() {
        return;
    }
    let allocator = arena_allocators().remove(0);
    let mut options = options(MemorySource::Imported(allocator));
    // A pass in pieces does not run ahead.
    options.vulkan.submit_budget = ONE_SUBMIT;
    let mut executor = load(&golden("tiny"), options);
    let want = decode_in_turns(executor.as_mut(), &PROMPT, 30, false);
    assert_eq!(decode_in_turns(executor.as_mut(), &PROMPT, 30, true), want);
}

thread_local! {
    static KEPT: RefCell<Option<Mapping>> = const { RefCell::new(None) };
}

/// A dma-buf full of ones. The test keeps a mapping of it.
fn kept(bytes: u64) -> Result<DmaBuf> {
    let buffer = (arena_allocators()[0].allocate)(bytes)?;
    let mut mapping = buffer.map()?;
    mapping.bytes_mut().fill(0xff);
    KEPT.set(Some(mapping));
    Ok(buffer)
}

#[test]
fn an_imported_arena_is_the_same_memory() {
    if !imports() {
        return;
    }
    let mut executor =
        load(&golden("tiny"), options(MemorySource::Imported(Allocator { name: "kept", allocate: kept })));
    let kept = KEPT.take().unwrap();
    let words: &[u32] = bytemuck::cast_slice(kept.bytes());
    Session::new(0, 160).prefill(executor.as_mut(), &PROMPT[..5]).unwrap();
    let (state, logits) = (executor.schedule().arena.state, executor.schedule().logits);
    assert_eq!(words[state.token()..][..5], PROMPT[..5], "what the host writes");
    assert_eq!(words[state.next()], executor.next(0), "what the device chose");
    let seen: Vec<u32> = words[logits.offset as usize / 4..][..logits.width].to_vec();
    assert!(seen == bits(executor.as_mut(), 0), "what the device computes");
}

fn small(_: u64) -> Result<DmaBuf> {
    Ok(DmaBuf::from_fd(sealed_memfd(4096)?)?)
}

fn pipe(_: u64) -> Result<DmaBuf> {
    Ok(DmaBuf::from_fd(std::io::pipe().unwrap().0.into())?)
}

fn unwritable(bytes: u64) -> Result<DmaBuf> {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(2 * bytes).unwrap();
    Ok(DmaBuf::from_fd(File::open(file.path()).unwrap().into())?)
}

/// Allocators return an error on machines that lack their device.
#[test]
fn an_allocator_without_its_device_says_so() {
    for allocator in [UDMABUF_MEMFD, DMA_HEAP, AMDGPU] {
        match (allocator.allocate)(5000) {
            Ok(buffer) => assert_eq!(buffer.size(), 8192, "{}", allocator.name),
            Err(e) => {
                println!("{}: {e}", allocator.name);
                assert!(e.exit_code() == 4 && !dma_bufs_required() || allocator.name == AMDGPU.name, "{e}");
            }
        }
    }
    let e = (DMA_HEAP.allocate)(1 << 50).unwrap_err();
    assert_eq!(e.exit_code(), 3, "{e}");
}

fn none(_: u64) -> Result<DmaBuf> {
    Err(Error::failed("the allocator has nothing left", "free some"))
}

#[test]
fn descriptors_that_cannot_be_an_arena_are_refused_in_words() {
    if !imports() {
        return;
    }
    let cases = [
        (Allocator { name: "small", allocate: small }, 4, "4096 B"),
        (Allocator { name: "pipe", allocate: pipe }, 4, "dma-buf"),
        (Allocator { name: "read-only", allocate: unwritable }, 4, "dma-buf"),
        (Allocator { name: "none", allocate: none }, 1, "the allocator has nothing left"),
    ];
    for (allocator, code, says) in cases {
        let (e, name) = (refusal(MemorySource::Imported(allocator)), allocator.name);
        println!("{name}: {e}");
        assert_eq!(e.exit_code(), code, "{name}: {e}");
        assert!(e.to_string().contains(says), "{name}: {e}");
    }
}

/// Exporting on a CPU driver needs /dev/udmabuf. Without it, the driver's refusal is passed on.
#[test]
fn an_exported_arena_computes_the_same_bits_or_is_refused_in_words() {
    let checkpoint = Checkpoint::open(&golden("tiny")).unwrap();
    match engine::load(&checkpoint, &options(MemorySource::Exported), &Progress::default()) {
        Ok(mut executor) => {
            let want = run(load(&golden("tiny"), options(MemorySource::Ordinary)).as_mut());
            assert!(run(executor.as_mut()) == want, "exported");
        }
        Err(e) => {
            assert!(!dma_bufs_required(), "{e}");
            println!("exported arenas do not run here: {e}");
            assert_eq!(e.exit_code(), 4, "{e}");
        }
    }
}
