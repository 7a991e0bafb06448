//! Names of models on the hub: `ORG/NAME`, `ORG/NAME:QUANT` or `ORG/NAME/FILE`.

use std::fmt;

/// Prefixes of a name that was copied from a web page's address.
const ADDRESSES: [&str; 4] = ["https://huggingface.co/", "https://hf.co/", "huggingface.co/", "hf.co/"];
/// Path segments between a repository and a file in such an address.
const VIEWS: [&str; 3] = ["blob/main/", "resolve/main/", "tree/main/"];

/// A repository of models on the hub.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Repo {
    /// The user or organisation that owns the repository.
    pub organisation: String,
    /// The repository's name without its owner.
    pub name: String,
}

/// The choice among the models of a repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Choice {
    /// The only model in the repository, whatever its name.
    Only,
    /// The GGUF file of this type, in either case: `Q4_K_M`.
    Quant(String),
    /// This file, by its path in the repository.
    File(String),
}

/// The name of a model on the hub: its repository, and which of its models.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HubName {
    /// The repository that has the model.
    pub repo: Repo,
    /// Which of the repository's models is meant.
    pub choice: Choice,
}

impl Repo {
    /// The repository with these names; `None` if the hub does not allow them.
    pub fn new(organisation: &str, name: &str) -> Option<Repo> {
        let is_name = |part: &str| {
            let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
            !part.is_empty() && !part.starts_with('.') && part.chars().all(allowed)
        };
        let is_repo = is_name(organisation) && is_name(name);
        is_repo.then(|| Repo { organisation: organisation.to_owned(), name: name.to_owned() })
    }
}

impl fmt::Display for Repo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.organisation, self.name)
    }
}

impl HubName {
    /// Parses a model's name; `None` if `word` is not one.
    pub fn parse(word: &str) -> Option<HubName> {
        let word = ADDRESSES.iter().find_map(|address| word.strip_prefix(address)).unwrap_or(word);
        let (organisation, rest) = word.split_once('/')?;
        let (name, choice) = match rest.split_once('/') {
            Some((name, "")) => (name, Choice::Only),
            Some((name, file)) => {
                let file = VIEWS.iter().find_map(|view| file.strip_prefix(view)).unwrap_or(file);
                (name, Choice::File(is_plain(file).then(|| file.to_owned())?))
            }
            None => match rest.split_once(':') {
                Some((name, quant)) => (name, Choice::Quant(is_quant(quant).then(|| quant.to_owned())?)),
                None => (rest, Choice::Only),
            },
        };
        Some(HubName { repo: Repo::new(organisation, name)?, choice })
    }

    /// Parses a word that may also be a path: `ORG/NAME/FILE` counts only if the file is a GGUF file.
    pub fn parse_beside_paths(word: &str) -> Option<HubName> {
        let is_meant = |name: &HubName| !matches!(&name.choice, Choice::File(file) if !file.ends_with(".gguf"));
        HubName::parse(word).filter(is_meant)
    }
}

impl fmt::Display for HubName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.choice {
            Choice::Only => self.repo.fmt(f),
            Choice::Quant(quant) => write!(f, "{}:{quant}", self.repo),
            Choice::File(file) => write!(f, "{}/{file}", self.repo),
        }
    }
}

/// True if a path is relative, remains below its start (no `..`), and has only printable names.
pub(super) fn is_plain(path: &str) -> bool {
    let is_name = |part: &str| !matches!(part, "" | "." | "..") && !part.chars().any(crate::display::is_obeyed);
    path.split('/').all(is_name)
}

fn is_quant(word: &str) -> bool {
    !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_repository_and_which_of_its_models() {
        let parsed = |word: &str| HubName::parse(word).map(|name| (name.to_string(), name.choice));
        let file = || Choice::File("BF16/a-00001-of-00002.gguf".into());
        for (word, name, choice) in [
            ("org/a-GGUF", "org/a-GGUF", Choice::Only),
            ("org/a-GGUF/", "org/a-GGUF", Choice::Only),
            ("org/a-GGUF:q4_k_m", "org/a-GGUF:q4_k_m", Choice::Quant("q4_k_m".into())),
            ("org/a-GGUF/BF16/a-00001-of-00002.gguf", "org/a-GGUF/BF16/a-00001-of-00002.gguf", file()),
            ("https://huggingface.co/org/a-GGUF", "org/a-GGUF", Choice::Only),
            ("hf.co/org/a-GGUF:UD-Q4_K_XL", "org/a-GGUF:UD-Q4_K_XL", Choice::Quant("UD-Q4_K_XL".into())),
            ("https://huggingface.co/org/a/blob/main/b.gguf", "org/a/b.gguf", Choice::File("b.gguf".into())),
        ] {
            assert_eq!(parsed(word), Some((name.into(), choice)), "{word}");
        }
        for word in [
            "",
            "org",
            "org/",
            "/org/a",
            "org/../a",
            "./a/b",
            "org/a:",
            "org/a:Q4 K",
            "org/a:b:c",
            "org/a/../b.gguf",
            "org/a//b",
            "org/a/b\u{1b}.gguf",
            "org/a b",
        ] {
            assert_eq!(parsed(word), None, "{word}");
        }
        assert_eq!(HubName::parse_beside_paths("some/folder/model"), None);
        assert!(HubName::parse_beside_paths("org/a/b.gguf").is_some());
    }
}
