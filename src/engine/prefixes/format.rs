//! The format of files with tokens, keys and values: a server's prefixes, or a session.
//!
//! All numbers are little-endian, and no field is padded:
//!
//! | field | bytes |
//! | --- | --- |
//! | the magic of its [`FileKind`], [`VERSION`] | 8, 4 |
//! | [`Identity`] of the model that computed the pages | 32 |
//! | number of prefixes, of global pages, of local pages, of words in the table | 4 each |
//! | table: for each prefix its number of tokens, the tokens, and for each pool the pages that it sees, as indices | 4 each |
//! | SHA-256 of all of that | 32 |
//! | the global pages, then the local ones, each with the SHA-256 of the header's, the page's place, and its bytes | |
//!
//! The file is not trusted. Its length must match its header before memory is allocated, each page is checked before it
//! goes to the device, and no prefix is used unless all are valid.

use crate::Error;
use crate::engine::ModelFiles;
use crate::executor::{Executor, ExecutorExt, PageId};
use crate::machine::regular::{self, Links};
use crate::schedule::Schedule;
use crate::schedule::kv::{PAGE, Pool};
use crate::sequence::Batch;
use crate::sequence::batch::Prefix;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The kind of a file: a server's prefixes or a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileKind {
    /// The bytes that a file of this kind starts with.
    pub magic: [u8; 8],
    /// The name of the contents in messages.
    what: &'static str,
}

/// The file of the prefixes that a server saves between runs.
pub(super) const PREFIXES: FileKind = FileKind { magic: *b"KILNpfx\n", what: "prefixes" };
/// The file of a session, which is a single prefix.
pub(super) const SESSION: FileKind = FileKind { magic: *b"KILNses\n", what: "a session" };

/// The version of the file's layout. Files of another version are not read.
const VERSION: u32 = 1;
/// The largest file, in bytes. Reading it takes a few seconds, and a drain must have time to write it.
pub(super) const MOST_BYTES: u64 = 4 << 30;
/// The length of the header before the table, in bytes.
pub(super) const HEAD: usize = 8 + 4 + 32 + 4 * 4;
/// The length of a hash, in bytes.
pub(super) const HASH: usize = 32;

/// A SHA-256 in bytes.
type Hash = [u8; HASH];

/// Everything that keys and values depend on: the model's files, their format on the device, the device, and Kiln's
/// version. The offload for attention is left out, because it may change with each load and while a model answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity(pub(super) Hash);

impl Identity {
    /// The identity in hexadecimal digits.
    pub fn digest(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The identity of a model loaded from `files` on the device `device`.
    ///
    /// # Errors
    /// Input: a file cannot be read.
    pub fn new(files: &ModelFiles, schedule: &Schedule, device: &str) -> Result<Identity, Error> {
        let kv = (PAGE, Pool::ALL.map(|pool| schedule.kv.pool(pool).page_bytes), schedule.extent.kv);
        let form = (&schedule.shape, &schedule.weights, kv, device, env!("CARGO_PKG_VERSION"));
        let mut hash = Sha256::new().chain_update(format!("{form:?}"));
        files.add_to(&mut hash)?;
        Ok(Identity(hash.finalize().into()))
    }
}

/// The reason why a file is not used.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    #[error(transparent)]
    File(#[from] regular::ReadFault),
    #[error("it is no file of {0}")]
    Magic(&'static str),
    #[error("it is of another model, another form of it, another device, or another version of Kiln")]
    Stale,
    #[error("it is cut off or damaged")]
    Damaged,
    /// An error of the executor, or tokens that are not a valid prompt.
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

impl FileKind {
    /// Checks the first bytes of a file.
    fn check(self, file: &File, length: u64) -> Result<(), Fault> {
        let mut magic = [0; 8];
        if length >= magic.len() as u64 {
            file.read_exact_at(&mut magic, 0)?;
        }
        if magic == self.magic { Ok(()) } else { Err(Fault::Magic(self.what)) }
    }

    /// Reads a whole file of this kind into memory.
    ///
    /// # Errors
    /// The file is of another kind or model. Its contents are not checked.
    pub fn read(self, path: &Path, identity: Identity) -> Result<Vec<u8>, Fault> {
        let (file, length) = regular::open(path, Links::Refuse)?;
        self.check(&file, length)?;
        if length > MOST_BYTES {
            return Err(regular::ReadFault::TooLong { length, max: MOST_BYTES }.into());
        }
        // Checked first, because another model's file may have gigabytes.
        let mut head = [0; HEAD];
        file.read_exact_at(&mut head, 0)?;
        self.counts(&head, identity)?;
        let mut bytes = vec![0; length as usize];
        file.read_exact_at(&mut bytes, 0)?;
        Ok(bytes)
    }

    /// The counts of prefixes, pages and words in a valid head.
    fn counts(self, head: &[u8; HEAD], identity: Identity) -> Result<&[u8], Fault> {
        let (version, rest) = head.strip_prefix(&self.magic).ok_or(Fault::Magic(self.what))?.split_at(4);
        let (of, counts) = rest.split_at(HASH);
        if version != VERSION.to_le_bytes() || of != identity.0 {
            return Err(Fault::Stale);
        }
        Ok(counts)
    }
}

/// Checks that `path` has no other file than one of this kind, of any model or version, or an empty one.
pub(super) fn check_kind(path: &Path, kind: FileKind) -> Result<(), Fault> {
    let (file, length) = match regular::open(path, Links::Refuse) {
        Err(regular::ReadFault::Io(e)) if e.kind() == ErrorKind::NotFound => return Ok(()),
        opened => opened?,
    };
    if length == 0 { Ok(()) } else { kind.check(&file, length) }
}

fn hash_of_page(header: &Hash, pool: Pool, index: usize, bytes: &[u8]) -> Hash {
    let place = [pool as u64, index as u64].map(u64::to_le_bytes).concat();
    Sha256::new().chain_update(header).chain_update(place).chain_update(bytes).finalize().into()
}

/// Bytes of a file with `words` words in its table, and `pages` pages of each pool. `None` on overflow.
fn file_bytes(words: u64, pages: [u64; 2], executor: &dyn Executor) -> Option<u64> {
    let mut bytes = words.checked_mul(4)?.checked_add((HEAD + HASH) as u64)?;
    for pool in Pool::ALL {
        let each = executor.schedule().kv.pool(pool).page_bytes + HASH as u64;
        bytes = bytes.checked_add(pages[pool as usize].checked_mul(each)?)?;
    }
    Some(bytes)
}

/// The table of the prefixes that a file will have.
pub(super) struct PrefixTable {
    pub prefixes: u32,
    words: Vec<u32>,
    /// For each pool the pages, each once, with the number of their positions that belong to a prefix.
    pages: [Vec<(PageId, usize)>; 2],
    /// The length of the file in bytes; `None` if it exceeds the limit.
    bytes: Option<u64>,
}

impl PrefixTable {
    pub fn new(prefixes: &[Prefix<'_>], executor: &dyn Executor) -> PrefixTable {
        let mut table =
            PrefixTable { prefixes: prefixes.len() as u32, words: Vec::new(), pages: Default::default(), bytes: None };
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

    pub fn fits(&self) -> bool {
        self.bytes.is_some_and(|bytes| bytes <= MOST_BYTES)
    }

    /// Everything before the header's hash.
    fn header(&self, kind: FileKind, identity: Identity) -> Vec<u8> {
        let [global, local] = self.counts();
        let mut header = [&kind.magic[..], &VERSION.to_le_bytes(), &identity.0].concat();
        let counts = [self.prefixes, global, local, self.words.len() as u32];
        header.extend(counts.iter().chain(&self.words).flat_map(|word| word.to_le_bytes()));
        header
    }

    /// Writes the whole file.
    ///
    /// # Errors
    /// Errors of the executor or of `out`.
    pub fn write(
        &self,
        out: &mut dyn Write,
        kind: FileKind,
        identity: Identity,
        executor: &mut dyn Executor,
    ) -> Result<(), Fault> {
        let header = self.header(kind, identity);
        let hash: Hash = Sha256::digest(&header).into();
        out.write_all(&header)?;
        out.write_all(&hash)?;
        for pool in Pool::ALL {
            let layout = *executor.schedule().kv.pool(pool);
            let mut bytes = vec![0; layout.page_bytes as usize];
            for (index, &(page, positions)) in self.pages[pool as usize].iter().enumerate() {
                executor.read_page(pool, page, &mut bytes)?;
                // Positions after the prefix may hold keys of other requests.
                layout.clear_behind(&mut bytes, positions);
                out.write_all(&bytes)?;
                out.write_all(&hash_of_page(&hash, pool, index, &bytes))?;
            }
        }
        Ok(())
    }
}

/// A prefix in a file.
pub(super) struct StoredPrefix {
    pub tokens: Vec<u32>,
    /// For each pool, the index in the file of each of the prefix's pages, by the page's number.
    pages: [BTreeMap<usize, usize>; 2],
}

/// Reads bytes of a file from an offset on.
pub(super) type ReadAt = Box<dyn Fn(&mut [u8], u64) -> Result<(), Fault>>;

/// The header and the table of a file, which were checked.
pub(super) struct Contents {
    read_at: ReadAt,
    pub prefixes: Vec<StoredPrefix>,
    hash: Hash,
    /// For each pool the offset of its first page.
    starts: [u64; 2],
}

impl Contents {
    /// Opens the file at `path`.
    ///
    /// # Errors
    /// The reason why the file is not used.
    pub fn open(path: &Path, kind: FileKind, identity: Identity, executor: &dyn Executor) -> Result<Contents, Fault> {
        let (file, length) = regular::open(path, Links::Refuse)?;
        if length > MOST_BYTES {
            return Err(regular::ReadFault::TooLong { length, max: MOST_BYTES }.into());
        }
        let read_at: ReadAt = Box::new(move |bytes, at| Ok(file.read_exact_at(bytes, at)?));
        Contents::of(read_at, length, kind, identity, executor)
    }

    /// Parses the header of a file of `length` bytes.
    ///
    /// # Errors
    /// As [`Contents::open`].
    pub fn of(
        read_at: ReadAt,
        length: u64,
        kind: FileKind,
        identity: Identity,
        executor: &dyn Executor,
    ) -> Result<Contents, Fault> {
        let mut head = [0; HEAD];
        read_at(&mut head, 0)?;
        let counts = kind.counts(&head, identity)?;
        let mut counts = words_of(counts);
        let mut count = || counts.next().map(u64::from).ok_or(Fault::Damaged);
        let (prefixes, pages, words) = (count()?, [count()?, count()?], count()?);
        // The length must match the header, so no part of the contents can exceed the file.
        if file_bytes(words, pages, executor) != Some(length) {
            return Err(Fault::Damaged);
        }
        let mut header = vec![0; HEAD + 4 * words as usize + HASH];
        read_at(&mut header, 0)?;
        let (header, hash) = header.split_at(header.len() - HASH);
        if Sha256::digest(header)[..] != *hash {
            return Err(Fault::Damaged);
        }
        let hash = hash.try_into().map_err(|_| Fault::Damaged)?;
        let start = (header.len() + HASH) as u64;
        let global = executor.schedule().kv.pool(Pool::Global).page_bytes + HASH as u64;
        let mut words = words_of(&header[HEAD..]);
        let prefixes =
            (0..prefixes).map(|_| StoredPrefix::read(&mut words, pages, executor)).collect::<Option<Vec<_>>>();
        match (prefixes, words.next()) {
            (Some(prefixes), None) => {
                Ok(Contents { read_at, prefixes, hash, starts: [start, start + pages[0] * global] })
            }
            _ => Err(Fault::Damaged),
        }
    }

    fn read_page(&self, pool: Pool, index: usize, bytes: &mut [u8]) -> Result<(), Fault> {
        let at = self.starts[pool as usize] + (index * (bytes.len() + HASH)) as u64;
        let mut hash = Hash::default();
        (self.read_at)(bytes, at)?;
        (self.read_at)(&mut hash, at + bytes.len() as u64)?;
        match hash == hash_of_page(&self.hash, pool, index, bytes) {
            true => Ok(()),
            false => Err(Fault::Damaged),
        }
    }
}

impl Contents {
    /// Loads one of the prefixes into a free slot. Returns whether there was room.
    ///
    /// # Errors
    /// Damaged: a page is damaged. Engine: the device failed, or the tokens are not a valid prompt.
    pub fn restore(
        &self,
        prefix: &StoredPrefix,
        batch: &mut Batch,
        executor: &mut dyn Executor,
    ) -> Result<bool, Fault> {
        let mut read = |pool: Pool, number: usize, bytes: &mut [u8]| {
            let index = prefix.pages[pool as usize].get(&number).ok_or(Fault::Damaged)?;
            self.read_page(pool, *index, bytes)
        };
        batch.restore(executor, &prefix.tokens, &mut read)
    }
}

impl StoredPrefix {
    /// Parses a prefix of the table; `None` if it is not valid.
    fn read(words: &mut impl Iterator<Item = u32>, pages: [u64; 2], executor: &dyn Executor) -> Option<StoredPrefix> {
        let length = words.next()? as usize;
        let tokens: Vec<u32> = words.by_ref().take(length).collect();
        let mut stored = StoredPrefix { tokens, pages: Default::default() };
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

/// The 32-bit words in bytes, which are little-endian.
fn words_of(bytes: &[u8]) -> impl Iterator<Item = u32> {
    bytes.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]))
}
