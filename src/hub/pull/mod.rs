//! Downloads into the hub's cache. A partial file stays until it is complete, so that an interrupted download
//! continues. A file gets its final name only after its checksum matched the hub's.

mod blob;
mod client;
mod listing;
mod proxy;
mod select;
mod settings;
mod store;

pub use settings::{Patience, PullSettings};

use std::path::PathBuf;

use self::blob::{BlobFetch, FetchFault, come_of, wait};
use self::client::{HubClient, Trouble};
use self::listing::{Listing, RepoFile};
use self::store::Store;
use super::name::{HubName, Repo};
use crate::display::bytes;
use crate::{Cancel, Error, Result};

/// The most attempts at a download during which a file changes on the hub.
const CHANGES: u32 = 3;

/// The number of retries after a failed request for the listing.
const LIST_RETRIES: u32 = 3;

/// Receives the progress and the messages of a download, and can cancel it.
pub trait PullWatch {
    /// Reports that `done` of `total` bytes are in the cache.
    fn progress(&self, done: u64, total: u64);
    /// Shows a line to the user.
    fn say(&self, line: &str);
    /// The flag that cancels the download once it is set.
    fn cancel(&self) -> &Cancel;
}

/// The result of a download: the files, and the bytes that were transferred.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pulled {
    /// The model's directory, its GGUF file (the first of a split one), or the file that was asked for.
    pub path: PathBuf,
    /// The model's name for `-m`; `None` for a file that is not a model.
    pub model: Option<HubName>,
    /// The paths of all files of the model.
    pub files: Vec<PathBuf>,
    /// The total length of the files, in bytes.
    pub bytes: u64,
    /// The number of bytes that were downloaded. Those in the cache before do not count.
    pub fetched: u64,
}

/// Downloads the files of the model or file called `name` that the cache lacks.
///
/// # Errors
/// Input: there is no such model, several fit the name, or the hub refuses it to this user. Failed: the hub cannot be
/// reached, there is no room, or a checksum differs from the hub's. Interrupted: the caller cancelled it. Partial files
/// stay.
pub fn pull(name: &HubName, settings: &PullSettings, watch: &dyn PullWatch) -> Result<Pulled> {
    let client = HubClient::new(settings, watch.cancel())?;
    let task = PullTask { name, settings, watch, client: &client, store: Store::new(&settings.cache, &name.repo) };
    for change in 1..=CHANGES {
        match task.run(&task.list()?) {
            Ok(pulled) => return Ok(pulled),
            Err(FetchFault::Error(e)) => return Err(e),
            Err(FetchFault::Changed) if change < CHANGES => {
                watch.say(&format!("{} has changed on the hub meanwhile; the new version is fetched", name.repo));
            }
            Err(FetchFault::Changed) => {}
        }
    }
    let cause = format!("the files of {} are not what the hub's list says, {CHANGES} times in a row", name.repo);
    Err(Error::failed(cause, "try again later; check HF_ENDPOINT if it is set"))
}

/// Fails if the caller has cancelled the download.
fn check(watch: &dyn PullWatch) -> Result<()> {
    watch.cancel().check_or("interrupted, and what has come is kept")
}

struct PullTask<'a> {
    name: &'a HubName,
    settings: &'a PullSettings,
    watch: &'a dyn PullWatch,
    client: &'a HubClient,
    store: Store,
}

impl PullTask<'_> {
    /// Requests the list of the repository's files.
    fn list(&self) -> Result<Listing> {
        // Few retries: without a network the user should hear it soon, and no transfer is lost.
        let patience = self.settings.patience;
        let patience = Patience { retries: patience.retries.min(LIST_RETRIES), ..patience };
        let mut failures = 0;
        loop {
            let trouble = match Listing::of(self.client, &self.settings.endpoint, &self.name.repo) {
                Ok(listing) => return Ok(listing),
                Err(trouble) => trouble,
            };
            failures += 1;
            if !wait(&patience, &trouble, failures, self.watch)? {
                let what = format!("cannot list the files of {}", self.name.repo);
                return Err(refusal(self.client, &self.name.repo, trouble, &what, "check the network, and try again"));
            }
        }
    }

    fn run(&self, listing: &Listing) -> std::result::Result<Pulled, FetchFault> {
        let mut fetched = 0;
        let chosen = select::choose(listing, self.name, |index: &RepoFile| {
            fetched += self.fetch(listing, std::slice::from_ref(index))?;
            let path = self.store.blob(index);
            std::fs::read(&path).map_err(|e| Error::unreadable(&path, &e).into())
        })?;
        if let Some(other) = listing.architecture.as_ref().filter(|name| !name.starts_with("gemma3")) {
            self.watch.say(&format!("{} is a model of the kind {other}, and Kiln runs Gemma 3", self.name.repo));
        }
        fetched += self.fetch(listing, &chosen.files)?;
        for file in &chosen.files {
            self.store.link(&listing.commit, file)?;
        }
        self.store.set_main(&listing.commit)?;
        self.tell_leftovers(listing);
        let at = |file: &RepoFile| self.store.path(&listing.commit, &file.path);
        Ok(Pulled {
            path: chosen
                .path
                .map_or_else(|| self.store.snapshot(&listing.commit), |path| self.store.path(&listing.commit, &path)),
            model: chosen.model,
            files: chosen.files.iter().map(at).collect(),
            bytes: chosen.files.iter().map(|file| file.bytes).sum(),
            fetched,
        })
    }

    /// Downloads the files that are missing. Returns the bytes transferred.
    fn fetch(&self, listing: &Listing, files: &[RepoFile]) -> std::result::Result<u64, FetchFault> {
        self.store.prepare()?;
        let total = files.iter().map(|file| file.bytes).sum();
        let missing = |file: &&RepoFile| !self.store.has(file);
        let wanted: u64 = files
            .iter()
            .filter(missing)
            .map(|file| file.bytes - come_of(&self.store.partial(file)).min(file.bytes))
            .sum();
        self.store.check_space(wanted)?;
        let (mut before, mut fetched) = (0, 0);
        for file in files {
            self.watch.progress(before, total);
            if !self.store.has(file) {
                let _lock = self.store.lock(file, self.watch)?;
                // Another process may have downloaded the file while this one waited for the lock.
                if !self.store.has(file) {
                    let fetch = BlobFetch {
                        client: self.client,
                        repo: &self.name.repo,
                        patience: self.settings.patience,
                        watch: self.watch,
                        file,
                        url: file.url(&self.settings.endpoint, &self.name.repo, &listing.commit),
                        blob: self.store.blob(file),
                        partial: self.store.partial(file),
                        before,
                        total,
                    };
                    fetched += fetch.run()?;
                }
            }
            before += file.bytes;
        }
        Ok(fetched)
    }

    /// Reports partial files of versions that the repository no longer has.
    fn tell_leftovers(&self, listing: &Listing) {
        for (partial, length) in self.store.partials() {
            let is_known = listing.files.iter().any(|file| self.store.partial(file) == partial);
            if !is_known {
                let (length, path) = (bytes(length), partial.display());
                self.watch.say(&format!("{length} of a file that the repository no longer has are left in {path}"));
            }
        }
    }
}

/// The error for a request that is not repeated. `what` names the request's purpose, and `remedy` is the remedy for
/// network errors.
fn refusal(client: &HubClient, repo: &Repo, trouble: Trouble, what: &str, remedy: &str) -> Error {
    let (status, code, message) = match trouble {
        Trouble::Passing { why, .. } => return Error::failed(format!("{what}: {why}"), remedy),
        Trouble::Lasting { why, remedy } => return Error::failed(format!("{what}: {why}"), remedy),
        Trouble::Cancelled => return Error::interrupted("interrupted, and what has come is kept", remedy),
        Trouble::Refused { status, code, message } => (status, code, message),
    };
    let endpoint = client.endpoint();
    let (page, tokens) = (format!("{endpoint}/{repo}"), format!("{endpoint}/settings/tokens"));
    let is_gated = code == "GatedRepo";
    let said = if message.is_empty() { String::new() } else { format!(": {message}") };
    let (cause, remedy) = match (status, client.has_token()) {
        (401 | 403, false) if client.withholds_token() => (
            format!("{what}: a token is needed ({status}), and none goes to {endpoint}, which is not encrypted"),
            "set HF_ENDPOINT to an address with https".to_owned(),
        ),
        (401 | 403, false) if is_gated => (
            format!("{what}: it is open to those alone who have accepted its terms ({status})"),
            format!("accept them at {page}, and set HF_TOKEN to a token of {tokens}"),
        ),
        // Without a token the hub does not reveal whether the repository exists.
        (401 | 403, false) => (
            format!("{what}: there is none that is open to all ({status})"),
            format!("check the name at {page}; for one that is not open set HF_TOKEN to a token of {tokens}"),
        ),
        (401 | 403, true) if is_gated => (
            format!("{what}: its terms are not accepted yet ({status})"),
            format!("accept them at {page} as the token's owner, and try again"),
        ),
        (401, true) => (
            format!("{what}: the hub does not take the token ({status}){said}"),
            format!("set HF_TOKEN to a new one of {tokens}, or run `hf auth login`"),
        ),
        (403, true) => (
            format!("{what}: the token may not read it ({status}){said}"),
            format!("check the token's rights at {tokens}"),
        ),
        (404, _) => (format!("{what}: there is none ({status})"), format!("check the name at {page}")),
        _ => (format!("{what}: the hub answers with {status}{said}"), format!("look at {page}")),
    };
    Error::input(cause, remedy)
}
