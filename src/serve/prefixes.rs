//! The file in which a server keeps prefixes with their keys and values from one run to the next, so that they are not run
//! again after a start.
//!
//! All numbers are little-endian, and no field is padded:
//!
//! | field | bytes |
//! | --- | --- |
//! | [`MAGIC`], [`VERSION`] | 8, 4 |
//! | [`Identity`] of what computed the pages | 32 |
//! | number of prefixes, of global pages, of local pages, of words in the table | 4 each |
//! | table: for each prefix its number of tokens, the tokens, and for each pool the pages that it sees, as indices | 4 each |
//! | SHA-256 of all of that | 32 |
//! | the global pages, then the local ones, each with the SHA-256 of the header's, the page's place, and its bytes | |
//!
//! The file is a claim. Its length must be the sum of what it says before memory is taken for any of it, each page is
//! checked before the device gets it, and no prefix is used unless all are in order.

use crate::engine::ModelFiles;
use crate::executor::{Executor, PageId};
use crate::machine::partial::{Lock, PartialFile, lock_for};
use crate::machine::regular::{self, Links};
use crate::schedule::kv::{PAGE, Pool};
use crate::sequence::Batch;
use crate::sequence::batch::Prefix;
use crate::{Error, Result};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// What a file of prefixes begins with.
const MAGIC: [u8; 8] = *b"KILNpfx\n";
/// The version of its layout.
const VERSION: u32 = 1;
/// Most bytes of the file. Reading them takes a second or a few, and a drain has time to write them.
const MOST_BYTES: u64 = 4 << 30;
/// Bytes before the table.
const HEAD: usize = 8 + 4 + 32 + 4 * 4;
/// Bytes of a hash.
const HASH: usize = 32;

/// A SHA-256.
type Hash = [u8; HASH];

/// What prefixes' keys and values depend on: the model's files, their form on the device, the device, and Kiln's version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Identity(Hash);

impl Identity {
    /// That of what an executor has loaded from `files`.
    ///
    /// # Errors
    /// Input: a file cannot be read.
    pub fn new(files: &ModelFiles, executor: &dyn Executor) -> Result<Identity> {
        let schedule = executor.schedule();
        let kv = (PAGE, Pool::ALL.map(|pool| schedule.kv.pool(pool).page_bytes), schedule.extent.kv);
        let form = (&schedule.shape, &schedule.weights, kv, executor.device(), env!("CARGO_PKG_VERSION"));
        let mut hash = Sha256::new().chain_update(format!("{form:?}"));
        files.add_to(&mut hash)?;
        Ok(Identity(hash.finalize().into()))
    }
}

/// Why a file of prefixes is not used.
#[derive(Debug, thiserror::Error)]
enum Fault {
    #[error(transparent)]
    File(#[from] regular::Fault),
    #[error("it is no file of prefixes")]
    Magic,
    #[error("it is of another model, another form of it, another device, or another version of Kiln")]
    Stale,
    #[error("it is cut off or damaged")]
    Damaged,
    /// The executor's, or a prompt that this model does not take.
    #[error(transparent)]
    Engine(#[from] Error),
}

impl From<io::Error> for Fault {
    fn from(e: io::Error) -> Fault {
        match e.kind() {
            ErrorKind::UnexpectedEof => Fault::Damaged,
            _ => Fault::File(e.into()),
        }
    }
}

/// A file of prefixes, which this process alone uses.
pub(super) struct PrefixFile {
    path: PathBuf,
    _lock: Lock,
}

impl PrefixFile {
    /// Tries whether a file of prefixes can be written at `path`. Leaves nothing there.
    ///
    /// # Errors
    /// As [`PrefixFile::take`]. Failed: it cannot be written.
    pub fn try_out(path: &Path) -> Result<()> {
        refuse_another(path)?;
        PartialFile::create(path, 0o600).map(drop).map_err(|e| Error::unwritable(path, &e.kind().into()))
    }

    /// Takes the file at `path`, which need not exist. `None`, which is logged: another process has it, or its directory
    /// cannot be written to.
    ///
    /// # Errors
    /// Input: there is something else at `path`, which would be lost.
    pub fn take(path: &Path) -> Result<Option<PrefixFile>> {
        refuse_another(path)?;
        Ok(match lock_for(path) {
            Ok(lock) => Some(PrefixFile { path: path.to_owned(), _lock: lock }),
            Err(e) => {
                let why = match e.kind() {
                    ErrorKind::WouldBlock => "another server uses it".to_owned(),
                    _ => format!("its lock cannot be had: {e}"),
                };
                log::warn!("{} is not used for prefixes: {why}", path.display());
                None
            }
        })
    }

    /// Puts the file's prefixes into free slots. A file that cannot be used is logged, and nothing of it is used.
    ///
    /// # Errors
    /// Device: it failed.
    pub fn load(&self, identity: Identity, batch: &mut Batch, executor: &mut dyn Executor) -> Result<()> {
        let (start, path) = (Instant::now(), self.path.display());
        match self.read(identity, batch, executor) {
            Ok((prefixes, tokens)) => {
                let seconds = start.elapsed().as_secs_f64();
                log::info!("{path}: {prefixes} prefixes of {tokens} tokens were read in {seconds:.2} s");
            }
            Err(Fault::File(regular::Fault::Io(e))) if e.kind() == ErrorKind::NotFound => {}
            Err(Fault::Engine(e @ Error::Device { .. })) => return Err(e),
            Err(fault) => {
                batch.forget(executor);
                log::warn!("{path} is not used for prefixes: {fault}");
            }
        }
        Ok(())
    }

    /// Returns how many prefixes were put into slots, and their tokens.
    fn read(
        &self,
        identity: Identity,
        batch: &mut Batch,
        executor: &mut dyn Executor,
    ) -> std::result::Result<(usize, usize), Fault> {
        let contents = Contents::open(&self.path, identity, executor)?;
        let (mut count, mut tokens) = (0, 0);
        for prefix in &contents.prefixes {
            let mut read = |pool: Pool, number: usize, bytes: &mut [u8]| {
                let index = prefix.pages[pool as usize].get(&number).ok_or(Fault::Damaged)?;
                contents.read_page(pool, *index, bytes)
            };
            if batch.restore(executor, &prefix.tokens, &mut read)? {
                (count, tokens) = (count + 1, tokens + prefix.tokens.len());
            }
        }
        Ok((count, tokens))
    }

    /// Writes the prefixes that are worth keeping, what is there of `first` before the others. Leaves the file as it is
    /// where there are none. A file that cannot be written is logged, and stays as it was.
    ///
    /// # Errors
    /// Device: it failed.
    pub fn save(&self, identity: Identity, batch: &Batch, first: &[u32], executor: &mut dyn Executor) -> Result<()> {
        let (start, path) = (Instant::now(), self.path.display());
        let prefixes = batch.prefixes(executor, first);
        let Some(table) = (0..prefixes.len()).map(|from| Table::new(&prefixes[from..], executor)).find(Table::fits)
        else {
            return Ok(());
        };
        match self.write(identity, &table, executor) {
            Ok(()) => {
                let (seconds, count) = (start.elapsed().as_secs_f64(), table.prefixes);
                log::info!("{path}: {count} prefixes were written in {seconds:.2} s");
            }
            Err(Fault::Engine(e @ Error::Device { .. })) => return Err(e),
            Err(fault) => log::warn!("{path}: the prefixes were not written: {fault}"),
        }
        Ok(())
    }

    fn write(&self, identity: Identity, table: &Table, executor: &mut dyn Executor) -> std::result::Result<(), Fault> {
        let mut file = BufWriter::new(PartialFile::create(&self.path, 0o600)?);
        let header = table.header(identity);
        let hash: Hash = Sha256::digest(&header).into();
        file.write_all(&header)?;
        file.write_all(&hash)?;
        for pool in Pool::ALL {
            let layout = *executor.schedule().kv.pool(pool);
            let mut bytes = vec![0; layout.page_bytes as usize];
            for (index, &(page, positions)) in table.pages[pool as usize].iter().enumerate() {
                executor.read_page(pool, page, &mut bytes)?;
                // Others' words may lie behind the prefix.
                layout.clear_behind(&mut bytes, positions);
                file.write_all(&bytes)?;
                file.write_all(&hash_of_page(&hash, pool, index, &bytes))?;
            }
        }
        let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
        // Something else may have come there since the start.
        check_kind(&self.path)?;
        Ok(file.commit(&self.path)?)
    }
}

/// Refuses what is at `path` and would be lost, if it is no file of prefixes.
fn refuse_another(path: &Path) -> Result<()> {
    check_kind(path).map_err(|fault| {
        let cause = format!("{} is not used for prefixes, and stays as it is: {fault}", path.display());
        Error::input(cause, "name another path, or remove it")
    })
}

/// Checks that there is nothing at `path` but a file of prefixes, of whatever model or version, or an empty one.
fn check_kind(path: &Path) -> std::result::Result<(), Fault> {
    let (file, length) = match regular::open(path, Links::Refuse) {
        Err(regular::Fault::Io(e)) if e.kind() == ErrorKind::NotFound => return Ok(()),
        opened => opened?,
    };
    let mut magic = [0; MAGIC.len()];
    match length {
        0 => Ok(()),
        length if length < magic.len() as u64 => Err(Fault::Magic),
        _ => file.read_exact_at(&mut magic, 0).map_err(Fault::from).and_then(|()| match magic == MAGIC {
            true => Ok(()),
            false => Err(Fault::Magic),
        }),
    }
}

fn hash_of_page(header: &Hash, pool: Pool, index: usize, bytes: &[u8]) -> Hash {
    let place = [pool as u64, index as u64].map(u64::to_le_bytes).concat();
    Sha256::new().chain_update(header).chain_update(place).chain_update(bytes).finalize().into()
}

/// Bytes of a file with so many words in its table and so many pages. `None`: they are more than any file has.
fn file_bytes(words: u64, pages: [u64; 2], executor: &dyn Executor) -> Option<u64> {
    let mut bytes = words.checked_mul(4)?.checked_add((HEAD + HASH) as u64)?;
    for pool in Pool::ALL {
        let each = executor.schedule().kv.pool(pool).page_bytes + HASH as u64;
        bytes = bytes.checked_add(pages[pool as usize].checked_mul(each)?)?;
    }
    Some(bytes)
}

/// What is to be written.
struct Table {
    prefixes: u32,
    words: Vec<u32>,
    /// By pool, the pages, each once, and how many of their positions belong to a prefix.
    pages: [Vec<(PageId, usize)>; 2],
    /// Bytes of the file.
    bytes: Option<u64>,
}

impl Table {
    fn new(prefixes: &[Prefix<'_>], executor: &dyn Executor) -> Table {
        let mut table =
            Table { prefixes: prefixes.len() as u32, words: Vec::new(), pages: Default::default(), bytes: None };
        let mut indices: [HashMap<PageId, usize>; 2] = Default::default();
        for prefix in prefixes {
            table.words.push(prefix.tokens.len() as u32);
            table.words.extend(prefix.tokens);
            for pool in Pool::ALL {
                let pages = &mut table.pages[pool as usize];
                for (number, page) in prefix.pages(executor, pool) {
                    let index = *indices[pool as usize].entry(page).or_insert_with(|| {
                        pages.push((page, 0));
                        pages.len() - 1
                    });
                    let positions = (prefix.tokens.len() - number * PAGE).min(PAGE);
                    pages[index].1 = pages[index].1.max(positions);
                    table.words.push(index as u32);
                }
            }
        }
        table.bytes = file_bytes(table.words.len() as u64, table.counts().map(u64::from), executor);
        table
    }

    fn counts(&self) -> [u32; 2] {
        [0, 1].map(|pool| self.pages[pool].len() as u32)
    }

    fn fits(&self) -> bool {
        self.bytes.is_some_and(|bytes| bytes <= MOST_BYTES)
    }

    /// All that stands before the header's hash.
    fn header(&self, identity: Identity) -> Vec<u8> {
        let [global, local] = self.counts();
        let mut header = [&MAGIC[..], &VERSION.to_le_bytes(), &identity.0].concat();
        let counts = [self.prefixes, global, local, self.words.len() as u32];
        header.extend(counts.iter().chain(&self.words).flat_map(|word| word.to_le_bytes()));
        header
    }
}

/// A prefix of a file.
struct Stored {
    tokens: Vec<u32>,
    /// By pool and number, the index of the page in the file.
    pages: [BTreeMap<usize, usize>; 2],
}

/// A file whose header is in order.
struct Contents {
    file: File,
    prefixes: Vec<Stored>,
    hash: Hash,
    /// By pool, where its pages begin.
    starts: [u64; 2],
}

impl Contents {
    fn open(path: &Path, identity: Identity, executor: &dyn Executor) -> std::result::Result<Contents, Fault> {
        let (file, length) = regular::open(path, Links::Refuse)?;
        if length > MOST_BYTES {
            return Err(regular::Fault::TooLong { length, max: MOST_BYTES }.into());
        }
        let mut head = [0; HEAD];
        file.read_exact_at(&mut head, 0)?;
        let (version, rest) = head.strip_prefix(&MAGIC).ok_or(Fault::Magic)?.split_at(4);
        let (of, counts) = rest.split_at(HASH);
        if version != VERSION.to_le_bytes() || of != identity.0 {
            return Err(Fault::Stale);
        }
        let mut counts = words_of(counts);
        let mut count = || counts.next().map(u64::from).ok_or(Fault::Damaged);
        let (prefixes, pages, words) = (count()?, [count()?, count()?], count()?);
        // The file is as long as it says, so nothing that it says is longer than the file.
        if file_bytes(words, pages, executor) != Some(length) {
            return Err(Fault::Damaged);
        }
        let mut header = vec![0; HEAD + 4 * words as usize + HASH];
        file.read_exact_at(&mut header, 0)?;
        let (header, hash) = header.split_at(header.len() - HASH);
        if Sha256::digest(header)[..] != *hash {
            return Err(Fault::Damaged);
        }
        let hash = hash.try_into().map_err(|_| Fault::Damaged)?;
        let start = (header.len() + HASH) as u64;
        let global = executor.schedule().kv.pool(Pool::Global).page_bytes + HASH as u64;
        let mut words = words_of(&header[HEAD..]);
        let prefixes = (0..prefixes).map(|_| Stored::read(&mut words, pages, executor)).collect::<Option<Vec<_>>>();
        match (prefixes, words.next()) {
            (Some(prefixes), None) => Ok(Contents { file, prefixes, hash, starts: [start, start + pages[0] * global] }),
            _ => Err(Fault::Damaged),
        }
    }

    fn read_page(&self, pool: Pool, index: usize, bytes: &mut [u8]) -> std::result::Result<(), Fault> {
        let at = self.starts[pool as usize] + (index * (bytes.len() + HASH)) as u64;
        let mut hash = Hash::default();
        self.file.read_exact_at(bytes, at)?;
        self.file.read_exact_at(&mut hash, at + bytes.len() as u64)?;
        match hash == hash_of_page(&self.hash, pool, index, bytes) {
            true => Ok(()),
            false => Err(Fault::Damaged),
        }
    }
}

impl Stored {
    /// Reads a prefix of a table; `None`: it is not in order.
    fn read(words: &mut impl Iterator<Item = u32>, pages: [u64; 2], executor: &dyn Executor) -> Option<Stored> {
        let length = words.next()? as usize;
        let tokens: Vec<u32> = words.by_ref().take(length).collect();
        let mut stored = Stored { tokens, pages: Default::default() };
        if stored.tokens.len() != length {
            return None;
        }
        for pool in Pool::ALL {
            for number in executor.pages().numbers(pool, length) {
                let index = words.next().filter(|index| u64::from(*index) < pages[pool as usize])?;
                stored.pages[pool as usize].insert(number, index as usize);
            }
        }
        Some(stored)
    }
}

/// The words of bytes.
fn words_of(bytes: &[u8]) -> impl Iterator<Item = u32> {
    bytes.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]))
}

#[cfg(test)]
mod tests;
