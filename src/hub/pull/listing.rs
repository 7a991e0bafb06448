//! The listing of a repository at one commit: its files with their lengths and etags.

use std::io::Read;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;

use super::super::name::{Repo, is_plain};
use super::client::{HubClient, Trouble};
use crate::display::quote;
use crate::model::json;

/// Characters of a path that are not percent-encoded in a URL.
const PATH: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'/');
/// The longest listing that is read, in bytes.
const MAX_LISTING: u64 = 64 << 20;

/// The files of a repository at one commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Listing {
    pub(super) commit: String,
    pub(super) files: Vec<RepoFile>,
    /// The model's architecture, as the hub found it in the config or GGUF file: `gemma3`, `llama`.
    pub(super) architecture: Option<String>,
}

/// A file that a repository lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RepoFile {
    /// The file's path in the repository, with `/` between components.
    pub(super) path: String,
    pub(super) bytes: u64,
    /// The SHA-256 of the bytes (64 hexadecimal digits) or their Git blob id (40). The blob's name in the cache.
    pub(super) etag: String,
}

#[derive(Deserialize)]
struct Answered {
    sha: String,
    #[serde(default)]
    siblings: Vec<Sibling>,
    config: Option<Config>,
    gguf: Option<GgufFacts>,
}

#[derive(Deserialize)]
struct Sibling {
    rfilename: String,
    size: Option<u64>,
    #[serde(rename = "blobId")]
    blob_id: Option<String>,
    lfs: Option<Lfs>,
}

#[derive(Deserialize)]
struct Lfs {
    sha256: Option<String>,
    size: Option<u64>,
}

#[derive(Deserialize)]
struct Config {
    model_type: Option<String>,
}

#[derive(Deserialize)]
struct GgufFacts {
    architecture: Option<String>,
}

impl Listing {
    /// Requests the listing of a repository's newest commit.
    pub(super) fn of(client: &HubClient, endpoint: &str, repo: &Repo) -> Result<Listing, Trouble> {
        let url = format!("{endpoint}/api/models/{repo}/revision/main?blobs=true");
        let mut bytes = Vec::new();
        let answer = client.get(&url, 0)?;
        let length = answer.number("content-length");
        let read = answer.into_reader().take(MAX_LISTING).read_to_end(&mut bytes);
        let passing = |why: String| Trouble::Passing { why, after: None };
        read.map_err(|e| passing(format!("the list of {repo}'s files is cut off: {e}")))?;
        if length.is_some_and(|length| length != bytes.len() as u64) {
            return Err(passing(format!("the list of {repo}'s files is cut off")));
        }
        Listing::read(&bytes).map_err(|why| Trouble::Lasting {
            why: format!("the answer for {repo} is none of a hub: {why}"),
            remedy: "check HF_ENDPOINT, and the proxy if there is one".into(),
        })
    }

    fn read(bytes: &[u8]) -> Result<Listing, String> {
        let answered = json::parse(bytes).and_then(serde_json::from_value);
        let answered: Answered = answered.map_err(|e| quote(&e.to_string()))?;
        if !is_hex(&answered.sha, 40) {
            return Err(format!("its commit is {}", quote(&answered.sha)));
        }
        let architecture = answered.config.and_then(|config| config.model_type);
        let architecture = architecture.or(answered.gguf.and_then(|gguf| gguf.architecture));
        let files = answered.siblings.into_iter().map(Sibling::file).collect::<Result<_, _>>()?;
        Ok(Listing { commit: answered.sha, files, architecture: architecture.map(|name| quote(&name)) })
    }

    pub(super) fn find(&self, path: &str) -> Option<&RepoFile> {
        self.files.iter().find(|file| file.path == path)
    }
}

impl Sibling {
    fn file(self) -> Result<RepoFile, String> {
        let path = quote(&self.rfilename);
        if !is_plain(&self.rfilename) {
            return Err(format!("it names a file {path}"));
        }
        let (sum, size) = self.lfs.map_or((None, None), |lfs| (lfs.sha256, lfs.size));
        let etag = sum.or(self.blob_id).filter(|etag| is_hex(etag, 64) || is_hex(etag, 40));
        let etag = etag.ok_or_else(|| format!("it names no checksum of {path}"))?;
        let bytes = size.or(self.size).ok_or_else(|| format!("it does not say how long {path} is"))?;
        Ok(RepoFile { path: self.rfilename, bytes, etag })
    }
}

impl RepoFile {
    /// The file's URL at a commit.
    pub(super) fn url(&self, endpoint: &str, repo: &Repo, commit: &str) -> String {
        format!("{endpoint}/{repo}/resolve/{commit}/{}", utf8_percent_encode(&self.path, PATH))
    }

    /// The file's name without its directories.
    pub(super) fn name(&self) -> &str {
        self.path.rsplit_once('/').map_or(&self.path, |(_, name)| name)
    }
}

/// True if `text` is exactly `digits` lowercase hexadecimal digits.
fn is_hex(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hubs_answer_is_read_and_nothing_in_it_is_trusted() {
        let (commit, git, sum) = ("0".repeat(40), "1".repeat(40), "2".repeat(64));
        let file = |name: &str, more: &str| format!(r#"{{"rfilename": "{name}", {more}}}"#);
        let whole = |siblings: &[String]| {
            let siblings = siblings.join(",");
            format!(r#"{{"sha": "{commit}", "siblings": [{siblings}], "gguf": {{"architecture": "gemma3"}}}}"#)
        };
        let lfs = format!(r#""size": 7, "blobId": "{git}", "lfs": {{"sha256": "{sum}", "size": 7, "pointerSize": 1}}"#);
        let small = format!(r#""size": 3, "blobId": "{git}""#);
        let listing =
            Listing::read(whole(&[file("a/b c.gguf", &lfs), file("config.json", &small)]).as_bytes()).unwrap();
        assert_eq!(listing.architecture.as_deref(), Some("gemma3"));
        let of = |path: &str, bytes: u64, etag: &str| RepoFile { path: path.into(), bytes, etag: etag.into() };
        assert_eq!(listing.files, [of("a/b c.gguf", 7, &sum), of("config.json", 3, &git)]);
        let repo = Repo::new("org", "m").unwrap();
        assert_eq!(listing.files[0].url("http://h", &repo, "c"), "http://h/org/m/resolve/c/a/b%20c.gguf");
        for wrong in [
            "".into(),
            "<html>".into(),
            "{}".into(),
            whole(&[file("../x", &small)]),
            whole(&[file("/x", &small)]),
            whole(&[file("a\\u001b", &small)]),
            whole(&[file("x", r#""size": 3"#)]),
            whole(&[file("x", r#""size": 3, "blobId": "../../x""#)]),
            whole(&[file("x", &format!(r#""blobId": "{git}""#))]),
            whole(&[file("x", &format!(r#""size": -1, "blobId": "{git}""#))]),
            whole(&[]).replace(&commit, ".."),
        ] {
            assert!(Listing::read(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }
}
