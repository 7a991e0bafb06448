//! Files of prefixes of the demo model on the CPU, valid and invalid.

use super::format::{HASH, HEAD};
use super::*;
use crate::engine::{self, Device, ModelFiles, Options};
use crate::executor::weights::Progress;
use crate::executor::{ExecutorExt, Measure};
use crate::schedule::kv::Pool;
use crate::sequence::{Chooser, Generation, SequenceRequest};
use crate::testing::generate;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::ops::ControlFlow;
use std::os::unix::fs::{PermissionsExt, symlink};

/// A loaded model with its sequences.
struct TestEngine {
    executor: Box<dyn Measure>,
    batch: Batch,
    identity: Identity,
}

impl TestEngine {
    fn new() -> TestEngine {
        let options =
            Options { device: Device::Cpu, context: Some(256), chunk: Some(64), sequences: 3, ..Options::default() };
        let checkpoint = ModelFiles::BuiltIn.checkpoint().unwrap();
        let executor = engine::load(&checkpoint, &options, &Progress::default()).unwrap();
        let identity = Identity::new(&ModelFiles::BuiltIn, executor.schedule(), executor.device()).unwrap();
        TestEngine { batch: Batch::new(executor.schedule()), identity, executor }
    }

    /// A reply of three tokens, and the logits of the last one.
    fn reply(&mut self, prompt: &[u32]) -> (Generation, Vec<u32>) {
        let stops = Vec::new();
        let request =
            SequenceRequest { prompt: prompt.to_vec(), chooser: Chooser::Greedy, stops, limit: 3, reuse: true };
        let go_on = &mut |_| ControlFlow::Continue(());
        let (generation, _) = generate(self.executor.as_mut(), &mut self.batch, request, go_on).unwrap();
        (generation, self.executor.logits(0).unwrap().iter().map(|logit| logit.to_bits()).collect())
    }

    fn save(&mut self, file: &PrefixFile, first: &[u32]) {
        file.save(self.identity, &self.batch, first, self.executor.as_mut()).unwrap();
    }

    fn read(&mut self, file: &PrefixFile) -> std::result::Result<(usize, usize), Fault> {
        file.read(self.identity, &mut self.batch, self.executor.as_mut())
    }

    /// Loads a file. Returns the bytes kept.
    fn load(&mut self, file: &PrefixFile) -> u64 {
        file.load(self.identity, &mut self.batch, self.executor.as_mut()).unwrap();
        self.batch.kept_bytes(self.executor.as_ref())
    }

    /// Bytes of a page of each pool.
    fn page_bytes(&self) -> u64 {
        Pool::ALL.map(|pool| self.executor.schedule().kv.pool(pool).page_bytes).iter().sum()
    }

    fn tokens(&self, first: &[u32]) -> Vec<Vec<u32>> {
        self.batch.prefixes(self.executor.as_ref(), first).iter().map(|prefix| prefix.tokens.to_vec()).collect()
    }
}

/// A prompt whose tokens no other `kind` begins with.
fn prompt(kind: u32, length: usize) -> Vec<u32> {
    (0..length as u32).map(|i| 600 + (31 * kind + 7 * i * i) % 400).collect()
}

/// A directory with a file of prefixes, which is unlocked when it is dropped.
fn place() -> (tempfile::TempDir, PrefixFile) {
    let directory = tempfile::tempdir().unwrap();
    let file = PrefixFile::take(&directory.path().join("prefixes")).unwrap().unwrap();
    (directory, file)
}

#[test]
fn a_reply_behind_a_prefix_from_a_file_is_the_one_without() {
    let (directory, file) = place();
    let system = prompt(1, 80);
    let mut first = TestEngine::new();
    assert_eq!(first.load(&file), 0, "there is no file yet");
    first.reply(&[&system[..], &[601]].concat());
    first.save(&file, &system);
    let path = directory.path().join("prefixes");
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);

    let question = [system.clone(), prompt(2, 20)].concat();
    let (without, logits) = TestEngine::new().reply(&question);
    let mut second = TestEngine::new();
    assert!(second.load(&file) > 0);
    let (with, same_logits) = second.reply(&question);
    assert_eq!((without.kept, with.kept), (0, 79), "all but the last of the system prompt");
    assert_eq!((with.tokens, same_logits), (without.tokens, logits));
    // The loaded prefixes equal computed ones: they are written as the same file.
    let written = std::fs::read(&path).unwrap();
    let mut third = TestEngine::new();
    third.load(&file);
    std::fs::remove_file(&path).unwrap();
    third.save(&file, &system);
    assert_eq!(std::fs::read(&path).unwrap(), written);
}

#[test]
fn what_was_used_again_is_kept_and_what_is_asked_for() {
    let (directory, file) = place();
    let mut first = TestEngine::new();
    first.save(&file, &prompt(1, 80));
    assert!(!directory.path().join("prefixes").exists(), "nothing is worth it");
    for question in [prompt(1, 90), [prompt(1, 80), prompt(4, 9)].concat(), prompt(2, 100), prompt(3, 70)] {
        first.reply(&question);
    }
    first.reply(&prompt(2, 120));
    let lengths = |tokens: &[Vec<u32>]| tokens.iter().map(Vec::len).collect::<Vec<_>>();
    assert_eq!(lengths(&first.tokens(&[])), [91, 122], "prompts with their replies, less the last token");
    let kept = first.tokens(&prompt(3, 71));
    assert_eq!(lengths(&kept), [91, 122, 70]);
    first.save(&file, &prompt(3, 71));
    let mut second = TestEngine::new();
    assert_eq!(second.read(&file).unwrap(), (3, 91 + 122 + 70));
    for tokens in kept {
        let question = [&tokens[..], &[999]].concat();
        let (with, logits) = second.reply(&question);
        assert_eq!(with.kept, tokens.len());
        let (without, same_logits) = TestEngine::new().reply(&question);
        assert_eq!((with.tokens, logits), (without.tokens, same_logits));
    }
    // With less room the best prefixes stay.
    let mut small = TestEngine::new();
    small.batch.set_kept(small.page_bytes());
    assert_eq!((small.load(&file), small.tokens(&prompt(3, 71))), (small.page_bytes(), vec![prompt(3, 64)]));
}

#[test]
fn pages_that_prefixes_share_are_written_once() {
    let (directory, file) = place();
    let bytes = |engine: &mut TestEngine| {
        engine.save(&file, &prompt(1, 129));
        directory.path().join("prefixes").metadata().unwrap().len()
    };
    let mut engine = TestEngine::new();
    engine.reply(&prompt(1, 130));
    let one = bytes(&mut engine);
    // Two more slots that share the first pages.
    for kind in [50, 51] {
        let prompt = [prompt(1, 128), prompt(kind, 3)].concat();
        let request = SequenceRequest { prompt, chooser: Chooser::Greedy, stops: Vec::new(), limit: 9, reuse: true };
        engine.batch.join(engine.executor.as_mut(), request).unwrap();
    }
    while !engine.batch.is_empty() {
        engine.batch.step(engine.executor.as_mut(), &mut |_, _, _| ControlFlow::Continue(())).unwrap();
    }
    let both = bytes(&mut engine);
    assert_eq!(engine.tokens(&prompt(1, 129)).iter().map(Vec::len).collect::<Vec<_>>(), [130 + 2, 131 + 8, 128]);
    assert!(both - one < 3 * engine.page_bytes(), "{both} and {one}");
    let mut second = TestEngine::new();
    let [global, local] = Pool::ALL.map(|pool| second.executor.schedule().kv.pool(pool).page_bytes);
    // A local layer sees 64 positions, so its first page is not needed.
    assert_eq!(second.load(&file), 4 * global + 3 * local);
    second.executor.pages().check();
}

/// The offsets at which parts of a file end, and one before each.
fn edges(engine: &TestEngine, words: usize) -> Vec<usize> {
    let table = HEAD + 4 * words;
    let each = Pool::ALL.map(|pool| engine.executor.schedule().kv.pool(pool).page_bytes as usize);
    let first = table + HASH + each[0];
    let ends = [1, 8, 12, 12 + HASH, HEAD - 4, HEAD, HEAD + 4, table, table + HASH, first, first + HASH];
    ends.iter().flat_map(|end| [end - 1, *end]).collect()
}

#[test]
fn a_file_that_is_cut_off_damaged_or_foreign_is_not_used_and_is_replaced() {
    let (directory, file) = place();
    let path = directory.path().join("prefixes");
    let system = prompt(1, 80);
    let mut engine = TestEngine::new();
    engine.reply(&system);
    engine.save(&file, &system);
    let whole = std::fs::read(&path).unwrap();
    let words = u32::from_le_bytes(whole[HEAD - 4..HEAD].try_into().unwrap()) as usize;
    let mut other = TestEngine::new();
    let mut fault = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        let fault = other.read(&file).err();
        assert_eq!(other.load(&file) > 0, fault.is_none(), "{fault:?}");
        other.batch.forget(other.executor.as_mut());
        fault
    };
    assert!(fault(&whole).is_none());
    for at in edges(&engine, words).into_iter().chain([whole.len() - 1]) {
        let cut = fault(&whole[..at]);
        assert!(matches!(cut, Some(Fault::Damaged)), "cut at {at}: {cut:?}");
        let mut flipped = whole.clone();
        flipped[at] ^= 1;
        let flip = fault(&flipped);
        let is_named = match at {
            ..8 => matches!(flip, Some(Fault::Magic(_))),
            8..44 => matches!(flip, Some(Fault::Stale)),
            _ => matches!(flip, Some(Fault::Damaged)),
        };
        assert!(is_named, "changed at {at}: {flip:?}");
    }
    assert!(matches!(fault(&[&whole[..], &[0]].concat()), Some(Fault::Damaged)));
    // Impossible counts with a valid hash: of prefixes, pages, words, tokens, and a page's index.
    for (at, value) in
        [44, 48, 52, 56, HEAD, HEAD + 4 * (words - 1)].map(|at| (at, u32::MAX)).into_iter().chain([(44, 0)])
    {
        let mut header = whole[..HEAD + 4 * words].to_vec();
        header[at..at + 4].copy_from_slice(&value.to_le_bytes());
        let hash = Sha256::digest(&header);
        let huge = fault(&[&header, &hash[..], &whole[header.len() + HASH..]].concat());
        assert!(matches!(huge, Some(Fault::Damaged)), "{value} at {at}: {huge:?}");
    }
    // A token outside the vocabulary.
    let mut header = whole[..HEAD + 4 * words].to_vec();
    header[HEAD + 4..HEAD + 8].copy_from_slice(&u32::MAX.to_le_bytes());
    let hash = Sha256::digest(&header);
    let unknown = fault(&[&header, &hash[..], &whole[header.len() + HASH..]].concat());
    assert!(matches!(unknown, Some(Fault::Engine(Error::Input { .. }))), "{unknown:?}");
    // The pages of another file of the same length, with their hashes.
    let mut swapped = whole.clone();
    let page = engine.executor.schedule().kv.pool(Pool::Global).page_bytes as usize + HASH;
    let start = HEAD + 4 * words + HASH;
    swapped[start..start + 2 * page].rotate_left(page);
    assert!(matches!(fault(&swapped), Some(Fault::Damaged)));
    // Another model's file, then this one's for that model.
    std::fs::write(&path, &whole).unwrap();
    other.identity = Identity([7; HASH]);
    assert!(matches!(other.read(&file), Err(Fault::Stale)));
    other.reply(&system);
    other.save(&file, &system);
    assert!(other.read(&file).is_ok() && matches!(engine.read(&file), Err(Fault::Stale)));
}

#[test]
fn an_identity_follows_the_models_files() {
    let (directory, _) = place();
    let engine = TestEngine::new();
    let of = |text: &str| {
        std::fs::write(directory.path().join("config.json"), text).unwrap();
        let files = ModelFiles::Directory(directory.path().to_owned());
        Identity::new(&files, engine.executor.schedule(), engine.executor.device()).unwrap()
    };
    assert!(of("{}") == of("{}") && of("{}") != of("[]") && of("{}") != engine.identity);
}

#[test]
fn what_is_no_file_of_this_user_is_neither_read_nor_written_through() {
    let (directory, file) = place();
    let (path, letter) = (directory.path().join("prefixes"), directory.path().join("letter"));
    let mut engine = TestEngine::new();
    engine.reply(&prompt(1, 70));
    std::fs::write(&letter, "text").unwrap();
    symlink(&letter, &path).unwrap();
    assert!(matches!(engine.read(&file), Err(Fault::File(regular::ReadFault::Irregular))));
    engine.save(&file, &prompt(1, 70));
    assert!(path.symlink_metadata().unwrap().is_symlink());
    assert_eq!(std::fs::read(&letter).unwrap(), b"text");
    std::fs::remove_file(&path).unwrap();
    nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert!(matches!(engine.read(&file), Err(Fault::File(regular::ReadFault::Irregular))));
    std::fs::remove_file(&path).unwrap();
    File::create(&path).unwrap().set_len(1 << 40).unwrap();
    assert!(matches!(engine.read(&file), Err(Fault::File(regular::ReadFault::TooLong { .. }))));
}

/// A wrongly named file is not lost, whether it exists at the start or appears later.
#[test]
fn a_file_of_another_kind_is_never_replaced() {
    let (directory, file) = place();
    let path = directory.path().join("prefixes");
    let mut engine = TestEngine::new();
    engine.reply(&prompt(1, 70));
    for text in ["precious", "a long letter", "KILN"] {
        std::fs::write(&path, text).unwrap();
        engine.save(&file, &prompt(1, 70));
        assert_eq!(std::fs::read(&path).unwrap(), text.as_bytes());
        let other = directory.path().join("letter");
        std::fs::write(&other, text).unwrap();
        let e = PrefixFile::take(&other).err().unwrap();
        assert!(e.exit_code() == 2 && e.to_string().contains("stays as it is: it is no file of prefixes"), "{e}");
        assert_eq!(std::fs::read(&other).unwrap(), text.as_bytes());
    }
    assert!(PrefixFile::take(directory.path()).is_err(), "a directory");
    // An empty file may be replaced.
    std::fs::write(&path, "").unwrap();
    engine.save(&file, &prompt(1, 70));
    assert!(std::fs::read(&path).unwrap().starts_with(&PREFIXES.magic));
    engine.save(&file, &prompt(1, 70));
}

#[test]
fn one_process_has_a_file() {
    let (directory, file) = place();
    let path = directory.path().join("prefixes");
    assert!(PrefixFile::take(&path).unwrap().is_none());
    drop(file);
    drop(PrefixFile::take(&path).unwrap().unwrap());
    assert!(PrefixFile::take(&directory.path().join("no/such")).unwrap().is_none());
    std::fs::remove_file(directory.path().join("prefixes.lock")).unwrap();
    symlink("letter", directory.path().join("prefixes.lock")).unwrap();
    assert!(PrefixFile::take(&path).unwrap().is_none() && !directory.path().join("letter").exists());
}
