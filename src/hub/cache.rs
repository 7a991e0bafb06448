//! The models in the hub's cache.

use std::path::{Component, Path, PathBuf};
use std::time::SystemTime;

use super::name::{Choice, HubName, Repo};
use super::variant::{Variant, choose, listed};
use super::{place, pull_command};
use crate::model::text_file;
use crate::{Error, Result};

/// The longest ref that is read, in bytes. A commit's name has 40.
const MAX_REF: usize = 256;
/// The number of levels of folders below a snapshot that are listed.
const DEPTH: usize = 3;
/// The most files of a snapshot that are listed.
const MOST_FILES: usize = 4096;

/// The cache of models.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cache {
    root: PathBuf,
}

/// A model in the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cached {
    /// The model's name as an argument of `-m`.
    pub name: HubName,
    /// The model's directory, or its GGUF file (the first of a split one).
    pub path: PathBuf,
    /// All files of the model, including missing ones.
    pub files: Vec<PathBuf>,
}

impl Cached {
    /// Total length of the files that are present.
    pub fn bytes(&self) -> u64 {
        self.files.iter().filter_map(|file| Some(file.metadata().ok()?.len())).sum()
    }

    /// The first file of the model that the cache lacks.
    pub fn missing(&self) -> Option<&Path> {
        self.files.iter().map(PathBuf::as_path).find(|file| !file.exists())
    }
}

impl Cache {
    /// The current user's cache, located by environment variables; `None` without a home directory.
    pub fn of_user() -> Option<Cache> {
        place::cache().map(Cache::at)
    }

    /// The cache in this directory, which need not exist.
    pub fn at(root: impl Into<PathBuf>) -> Cache {
        Cache { root: root.into() }
    }

    /// The directory of the whole cache.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The directory of a repository in the cache.
    pub(super) fn repo_dir(&self, repo: &Repo) -> PathBuf {
        self.root.join(folder(repo))
    }

    /// Finds the model that `name` stands for, in the newest snapshot that has it.
    ///
    /// # Errors
    /// [`Error::Input`]: it is not in the cache, or `name` fits several models; the message lists them.
    pub fn find(&self, name: &HubName) -> Result<Cached> {
        let mut seen: Vec<Variant> = Vec::new();
        let mut snapshots = self.snapshots(&name.repo).into_iter().peekable();
        if snapshots.peek().is_none() {
            let cause =
                format!("{name} is no path, and is not in the cache of the Hugging Face hub ({})", self.root.display());
            return Err(Error::input(cause, format!("check the path, or run {}", pull_command(name))));
        }
        for snapshot in snapshots {
            let snapshot = CachedCommit::read(snapshot);
            let variants = &snapshot.variants;
            let found = choose(variants, &name.choice);
            match (&name.choice, found.as_slice()) {
                // A repository with only a tokenizer counts as a directory too.
                (Choice::Only, found) if snapshot.is_directory() || found.is_empty() => {
                    return Ok(snapshot.directory(&name.repo));
                }
                (_, [one]) => {
                    let model = snapshot.file(&name.repo, one);
                    let Some(part) = model.missing() else { return Ok(model) };
                    let part = part.strip_prefix(&snapshot.dir).unwrap_or(part).display();
                    let cause = format!("{name} is not whole: {part} is not there");
                    return Err(Error::input(cause, format!("run {}", pull_command(&model.name))));
                }
                (_, []) => seen.extend(snapshot.variants),
                (choice, several) => {
                    let first = several[0].name(&name.repo, variants);
                    let words = match choice {
                        Choice::Only => listed(&name.repo, variants, |_| String::new()),
                        _ => several.iter().map(|one| one.first()).collect::<Vec<_>>().join(", "),
                    };
                    let cause = format!("{name} may be any of {} models in the cache: {words}", several.len());
                    return Err(Error::input(cause, format!("name one, as in {first}")));
                }
            }
        }
        let words = listed(&name.repo, &seen, |_| String::new());
        let has = if words.is_empty() { "no GGUF file".into() } else { words };
        let cause = format!("{name} is not in the cache of the Hugging Face hub, which has of {}: {has}", name.repo);
        Err(Error::input(cause, format!("name one of these, or run {}", pull_command(name))))
    }

    /// All models, sorted by name. Where several snapshots have a model of the same name, the one that [`Cache::find`]
    /// returns.
    pub fn models(&self) -> Vec<Cached> {
        let mut models: Vec<Cached> = self.repos().iter().flat_map(|repo| self.models_of(repo)).collect();
        models.sort_by_key(|model| model.name.to_string());
        models
    }

    fn models_of(&self, repo: &Repo) -> Vec<Cached> {
        let mut models: Vec<Cached> = Vec::new();
        for snapshot in self.snapshots(repo) {
            let snapshot = CachedCommit::read(snapshot);
            let directory = snapshot.is_directory().then(|| snapshot.directory(repo));
            let files = snapshot.variants.iter().map(|variant| snapshot.file(repo, variant));
            let mut found: Vec<Cached> = directory.into_iter().chain(files).collect();
            found.retain(|model| models.iter().all(|other| other.name != model.name));
            models.append(&mut found);
        }
        models
    }

    /// All repositories of models with a directory in the cache.
    fn repos(&self) -> Vec<Repo> {
        let entries = std::fs::read_dir(&self.root).into_iter().flatten().flatten();
        let of = |name: &str| {
            let (organisation, name) = name.strip_prefix("models--")?.split_once("--")?;
            Repo::new(organisation, name)
        };
        entries.filter_map(|entry| of(entry.file_name().to_str()?)).collect()
    }

    /// Partial files of interrupted downloads, with their lengths in bytes.
    pub fn partials(&self) -> Vec<(Repo, PathBuf, u64)> {
        let of = |repo: &Repo| {
            let blobs = std::fs::read_dir(self.repo_dir(repo).join("blobs")).into_iter().flatten().flatten();
            let partial = |path: PathBuf| {
                etag_of_partial(&path)?;
                Some((repo.clone(), path.clone(), path.metadata().map_or(0, |found| found.len())))
            };
            blobs.filter_map(|entry| partial(entry.path())).collect::<Vec<_>>()
        };
        let mut partials: Vec<_> = self.repos().iter().flat_map(of).collect();
        partials.sort();
        partials
    }

    /// A repository's snapshots: first the one that was downloaded last, then the others from the newest on.
    fn snapshots(&self, repo: &Repo) -> Vec<PathBuf> {
        let dir = self.repo_dir(repo);
        let main = main_commit(&dir).map(|commit| dir.join("snapshots").join(commit));
        let entries = std::fs::read_dir(dir.join("snapshots")).into_iter().flatten().flatten();
        let mut all: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
        let time = |path: &Path| path.metadata().and_then(|found| found.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
        all.sort_by_key(|path| (Some(path) == main.as_ref(), time(path)));
        all.reverse();
        all
    }
}

/// The extension of a file that is still being downloaded.
pub(super) const PARTIAL: &str = "incomplete";

/// The etag in the name of a partial file of this program. Partial files of the hub's own client have another word in
/// their names and cannot be continued.
pub(super) fn etag_of_partial(path: &Path) -> Option<&str> {
    let etag = path.file_name()?.to_str()?.strip_suffix(PARTIAL)?.strip_suffix('.')?;
    etag.bytes().all(|b| b.is_ascii_hexdigit()).then_some(etag)
}

/// The name of a repository's directory in the cache: `models--OWNER--NAME`.
pub(super) fn folder(repo: &Repo) -> String {
    format!("models--{}--{}", repo.organisation, repo.name)
}

/// The commit that `refs/main` names: the one downloaded last.
fn main_commit(dir: &Path) -> Option<String> {
    let commit = text_file::read(&dir.join("refs/main"), MAX_REF, "download the model again").ok()??;
    // Only a plain name: a ref must not reach outside the model's snapshots.
    let mut parts = Path::new(commit.trim()).components();
    let is_plain = matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None));
    is_plain.then(|| commit.trim().to_owned())
}

/// The cached files of a repository at one commit.
struct CachedCommit {
    dir: PathBuf,
    /// The paths of the files, relative to the snapshot.
    names: Vec<String>,
    variants: Vec<Variant>,
}

impl CachedCommit {
    fn read(dir: PathBuf) -> CachedCommit {
        let names = files(&dir);
        let variants = Variant::all(names.iter().map(String::as_str));
        CachedCommit { dir, names, variants }
    }

    /// True if the snapshot is a model directory: it has a config, and either weights in safetensors or no GGUF file.
    fn is_directory(&self) -> bool {
        let has = |name: &str| self.names.iter().any(|other| other == name);
        has("config.json") && (self.variants.is_empty() || has_safetensors(&self.dir))
    }

    /// The model in the snapshot's directory. GGUF files and files in folders do not belong to it.
    fn directory(&self, repo: &Repo) -> Cached {
        let is_own = |name: &&String| !name.contains('/') && !name.starts_with('.') && !name.ends_with(".gguf");
        let files = self.names.iter().filter(is_own).map(|name| self.dir.join(name)).collect();
        Cached { name: HubName { repo: repo.clone(), choice: Choice::Only }, path: self.dir.clone(), files }
    }

    fn file(&self, repo: &Repo, variant: &Variant) -> Cached {
        let files = variant.files.iter().map(|name| self.dir.join(name)).collect();
        Cached { name: variant.name(repo, &self.variants), path: self.dir.join(variant.first()), files }
    }
}

/// True if a directory has weights in the safetensors format.
pub(crate) fn has_safetensors(dir: &Path) -> bool {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).any(|path| path.extension().is_some_and(|extension| extension == "safetensors"))
}

/// The paths of a snapshot's files, relative to it.
fn files(snapshot: &Path) -> Vec<String> {
    let (mut names, mut folders) = (Vec::new(), vec![(String::new(), DEPTH)]);
    while let Some((folder, depth)) = folders.pop() {
        for entry in std::fs::read_dir(snapshot.join(&folder)).into_iter().flatten().flatten() {
            let Ok(name) = entry.file_name().into_string() else { continue };
            let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            match is_folder {
                true if depth > 0 => folders.push((format!("{folder}{name}/"), depth - 1)),
                true => {}
                false if names.len() < MOST_FILES => names.push(format!("{folder}{name}")),
                false => {}
            }
        }
    }
    names.sort_unstable();
    names
}

#[cfg(test)]
mod tests {
    use super::super::name_of_snapshot;
    use super::*;
    use std::time::Duration;

    /// Puts empty files into a snapshot.
    fn put(cache: &Path, repo: &str, commit: &str, names: &[&str]) -> PathBuf {
        let model = cache.join(format!("models--{}", repo.replace('/', "--")));
        let snapshot = model.join("snapshots").join(commit);
        for name in names {
            let path = snapshot.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        std::fs::create_dir_all(model.join("refs")).unwrap();
        std::fs::write(model.join("refs/main"), format!("{commit}\n")).unwrap();
        snapshot
    }

    fn find(cache: &Path, word: &str) -> std::result::Result<PathBuf, String> {
        Cache::at(cache).find(&HubName::parse(word).unwrap()).map(|model| model.path).map_err(|e| e.to_string())
    }

    #[test]
    fn a_model_is_found_where_it_was_downloaded_to() {
        let dir = tempfile::tempdir().unwrap();
        let line = find(dir.path(), "google/gemma-3-27b-it").unwrap_err();
        assert!(line.contains("google/gemma-3-27b-it is no path, and is not in the cache"), "{line}");
        let snapshot = put(dir.path(), "google/gemma-3-27b-it", "0123abcd", &["config.json", "model.safetensors"]);
        assert_eq!(find(dir.path(), "google/gemma-3-27b-it"), Ok(snapshot.clone()));
        assert_eq!(name_of_snapshot(&snapshot).as_deref(), Some("gemma-3-27b-it"));
        assert_eq!(name_of_snapshot(dir.path()), None);
        assert!(find(dir.path(), "google/gemma-3-4b-it").is_err());
        let line = find(dir.path(), "google/gemma-3-27b-it:Q4_K_M").unwrap_err();
        assert!(line.contains("has of google/gemma-3-27b-it: no GGUF file"), "{line}");
        // A ref leads to a snapshot and nowhere else.
        let refs = dir.path().join("models--google--gemma-3-27b-it/refs/main");
        std::fs::create_dir_all(dir.path().join("models--google--gemma-3-27b-it/other")).unwrap();
        for commit in ["..", "", "/", "../other", "0123abcd/..", "absent"] {
            std::fs::write(&refs, commit).unwrap();
            assert_eq!(find(dir.path(), "google/gemma-3-27b-it"), Ok(snapshot.clone()), "{commit}");
        }
    }

    #[test]
    fn a_type_chooses_among_gguf_files_and_what_is_there_is_listed() {
        let dir = tempfile::tempdir().unwrap();
        let files =
            ["g-Q4_K_M.gguf", "g-Q8_0.gguf", "BF16/g-BF16-00001-of-00002.gguf", "mmproj-F16.gguf", "config.json"];
        let snapshot = put(dir.path(), "org/g-GGUF", "b", &files);
        assert_eq!(find(dir.path(), "org/g-GGUF:q8_0"), Ok(snapshot.join("g-Q8_0.gguf")));
        assert_eq!(find(dir.path(), "org/g-GGUF/g-Q4_K_M.gguf"), Ok(snapshot.join("g-Q4_K_M.gguf")));
        let line = find(dir.path(), "org/g-GGUF").unwrap_err();
        let wanted =
            "org/g-GGUF may be any of 3 models in the cache: BF16, Q4_K_M, Q8_0; name one, as in org/g-GGUF:BF16";
        assert_eq!(line, wanted);
        let line = find(dir.path(), "org/g-GGUF:Q2_K").unwrap_err();
        assert!(line.contains("which has of org/g-GGUF: BF16, Q4_K_M, Q8_0; name one of these, or run "), "{line}");
        let line = find(dir.path(), "org/g-GGUF:BF16").unwrap_err();
        assert!(line.contains("is not whole: BF16/g-BF16-00002-of-00002.gguf is not there; run "), "{line}");
        // A single model needs no type, a config beside GGUF files makes no directory model, and older snapshots are
        // searched.
        let newer = put(dir.path(), "org/g-GGUF", "c", &["g-Q6_K.gguf", "config.json"]);
        assert_eq!(find(dir.path(), "org/g-GGUF"), Ok(newer.join("g-Q6_K.gguf")));
        assert_eq!(find(dir.path(), "org/g-GGUF:Q8_0"), Ok(snapshot.join("g-Q8_0.gguf")));
        let old = std::fs::File::open(&snapshot).unwrap();
        old.set_modified(SystemTime::now() + Duration::from_secs(60)).unwrap();
        let models = Cache::at(dir.path()).models();
        let names: Vec<String> = models.iter().map(|model| model.name.to_string()).collect();
        assert_eq!(names, ["org/g-GGUF:BF16", "org/g-GGUF:Q4_K_M", "org/g-GGUF:Q6_K", "org/g-GGUF:Q8_0"]);
        assert!(models[0].missing().is_some() && models[1].missing().is_none());
        for model in &models[1..] {
            assert_eq!(find(dir.path(), &model.name.to_string()), Ok(model.path.clone()));
        }
    }

    #[test]
    fn what_was_cut_off_is_told_with_its_length() {
        let dir = tempfile::tempdir().unwrap();
        put(dir.path(), "org/a", "b", &["config.json", "model.safetensors", "model.gguf"]);
        let blobs = dir.path().join("models--org--a/blobs");
        std::fs::create_dir_all(&blobs).unwrap();
        std::fs::write(blobs.join("0f.incomplete"), "abc").unwrap();
        std::fs::write(blobs.join("1f"), "abc").unwrap();
        std::fs::write(blobs.join("2f.0123abcd.incomplete"), "of the hub's own client").unwrap();
        std::fs::create_dir_all(dir.path().join("datasets--org--b")).unwrap();
        let cache = Cache::at(dir.path());
        let repo = Repo::new("org", "a").unwrap();
        assert_eq!(cache.partials(), [(repo, blobs.join("0f.incomplete"), 3)]);
        // A repository with both forms has two models.
        let models = cache.models();
        let names: Vec<String> = models.iter().map(|model| model.name.to_string()).collect();
        assert_eq!(names, ["org/a", "org/a/model.gguf"]);
        assert_eq!(models[0].files.len(), 2);
    }
}
