//! The models in a repository's GGUF files, and the choice among them by name.

use std::path::Path;

use super::name::{Choice, HubName, Repo};
use crate::display::quote;
use crate::model::checkpoint::gguf;

/// The most models that an error message lists.
const MOST_LISTED: usize = 30;

/// A model as GGUF: one file, or all files of a split one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variant {
    /// The paths of the files in the repository, sorted by number. Files after the first may be missing.
    pub files: Vec<String>,
}

impl Variant {
    /// The GGUF models among a repository's files.
    pub fn all<'n>(files: impl Iterator<Item = &'n str>) -> Vec<Variant> {
        let of = |first: &str| {
            let parts = gguf::parts(Path::new(first)).unwrap_or_default();
            let files = parts.iter().filter_map(|path| path.to_str().map(str::to_owned)).collect();
            Variant { files }
        };
        gguf::models(files).into_iter().map(of).collect()
    }

    /// The path of the model's first file in the repository.
    pub fn first(&self) -> &str {
        self.files.first().map_or("", String::as_str)
    }

    /// The quantisation in the file's name: `Q4_K_M`, `UD-Q4_K_XL`; `None` if the name has none.
    pub fn label(&self) -> Option<&str> {
        label(self.stem())
    }

    fn stem(&self) -> &str {
        let first = self.first();
        gguf::stem(first.rsplit_once('/').map_or(first, |(_, name)| name))
    }

    /// The shortest name of this model that no other model in `all` has.
    pub fn name(&self, repo: &Repo, all: &[Variant]) -> HubName {
        let quant = self.label().map(|label| Choice::Quant(label.to_owned()));
        let alone = quant.filter(|quant| choose(all, quant) == [self]);
        HubName { repo: repo.clone(), choice: alone.unwrap_or_else(|| Choice::File(self.first().to_owned())) }
    }
}

/// The variants that `choice` fits. For a quantisation: those of exactly this type, or else those whose names contain
/// it.
pub fn choose<'v>(all: &'v [Variant], choice: &Choice) -> Vec<&'v Variant> {
    let quant = match choice {
        Choice::Only => return all.iter().collect(),
        Choice::File(file) => return all.iter().filter(|variant| variant.files.contains(file)).collect(),
        Choice::Quant(quant) => quant,
    };
    let is_type = |variant: &&Variant| variant.label().is_some_and(|label| label.eq_ignore_ascii_case(quant));
    let exact: Vec<&Variant> = all.iter().filter(is_type).collect();
    match exact.is_empty() {
        true => all.iter().filter(|variant| has(variant.stem(), quant)).collect(),
        false => exact,
    }
}

/// A list for a message: `Q4_K_M, Q8_0`, each as a user would choose it, followed by `more`.
pub fn listed(repo: &Repo, all: &[Variant], more: impl Fn(&Variant) -> String) -> String {
    let word = |variant: &Variant| {
        let name = match variant.name(repo, all).choice {
            Choice::Quant(quant) => quant,
            _ => quote(variant.first()),
        };
        name + &more(variant)
    };
    let mut words: Vec<String> = all.iter().take(MOST_LISTED).map(word).collect();
    if all.len() > MOST_LISTED {
        words.push(format!("and {} more", all.len() - MOST_LISTED));
    }
    words.join(", ")
}

/// The last quantisation type in a file's stem, with the prefix `UD-` of Unsloth's names.
fn label(stem: &str) -> Option<&str> {
    let bytes = stem.as_bytes();
    let starts = (0..stem.len()).filter(|&i| i == 0 || matches!(bytes[i - 1], b'-' | b'.' | b'_'));
    let type_at = |start: usize| {
        let rest = stem.get(start..)?;
        let end = rest.find(['-', '.']).unwrap_or(rest.len());
        is_type(&rest[..end]).then_some((start, start + end))
    };
    // The longest match that ends there: neither `K_M` nor `M` is a type, but `F16` alone would be one in `Q4_F16`.
    let found: Vec<(usize, usize)> = starts.filter_map(type_at).collect();
    let end = found.last()?.1;
    let start = found.iter().find(|(_, other)| *other == end)?.0;
    let dynamic = stem.get(..start).filter(|before| {
        let before = before.to_ascii_lowercase();
        before == "ud-" || before.ends_with("-ud-") || before.ends_with(".ud-")
    });
    Some(&stem[if dynamic.is_some() { start - 3 } else { start }..end])
}

/// True if a word is the name of a quantisation type or of a mix of types, such as `Q4_K_M`.
fn is_type(word: &str) -> bool {
    let word = word.to_ascii_uppercase();
    if matches!(word.as_str(), "F16" | "FP16" | "BF16" | "F32" | "FP32") {
        return true;
    }
    let Some(rest) = ["IQ", "TQ", "Q", "MXFP", "NVFP"].iter().find_map(|kind| word.strip_prefix(kind)) else {
        return false;
    };
    let mut parts = rest.split('_');
    let is_bits = parts
        .next()
        .is_some_and(|bits| !bits.is_empty() && bits.len() <= 2 && bits.bytes().all(|b| b.is_ascii_digit()));
    is_bits && parts.all(|part| !part.is_empty() && part.len() <= 4 && part.bytes().all(|b| b.is_ascii_alphanumeric()))
}

/// True if `stem` contains `word` between separators, in any case.
fn has(stem: &str, word: &str) -> bool {
    let may_follow = if is_type(word) { "-._" } else { "-." };
    let (stem, word) = (stem.to_ascii_lowercase(), word.to_ascii_lowercase());
    stem.match_indices(&word).any(|(at, found)| {
        let (before, after) = (stem[..at].chars().next_back(), stem[at + found.len()..].chars().next());
        before.is_none_or(|c| may_follow.contains(c)) && after.is_none_or(|c| matches!(c, '-' | '.'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_is_found_in_the_names_that_publishers_give() {
        for (stem, wanted) in [
            ("gemma-3-27b-it-Q4_K_M", Some("Q4_K_M")),
            ("google_gemma-3-27b-it-Q4_K_L", Some("Q4_K_L")),
            ("gemma-3-27b-it.Q6_K", Some("Q6_K")),
            ("gemma-3-27b-it-UD-Q4_K_XL", Some("UD-Q4_K_XL")),
            ("gemma-3-1b-it-q4_0", Some("q4_0")),
            ("gemma3_1b_q4_0", Some("q4_0")),
            ("model-f16", Some("f16")),
            ("gemma-3-27b-it-BF16", Some("BF16")),
            ("gemma-3-12b-it-IQ4_XS-imat", Some("IQ4_XS")),
            ("gemma-3-12b-it", None),
            ("Q", None),
            ("é-Q8_0", Some("Q8_0")),
        ] {
            assert_eq!(label(stem), wanted, "{stem}");
        }
    }

    #[test]
    fn a_type_chooses_one_of_a_repositorys_models() {
        let files = [
            "BF16/g-BF16-00001-of-00002.gguf",
            "BF16/g-BF16-00002-of-00002.gguf",
            "g-F16.gguf",
            "g-Q4_K_M.gguf",
            "g-Q4_K_S.gguf",
            "g-UD-Q4_K_M.gguf",
            "g-UD-Q4_K_XL.gguf",
            "g-Q8_0.gguf",
            "g-qat-Q8_0.gguf",
            "mmproj-F16.gguf",
            "plain.gguf",
        ];
        let all = Variant::all(files.into_iter());
        let chosen = |word: &str| {
            let choice = HubName::parse(&format!("org/a{word}")).unwrap().choice;
            choose(&all, &choice).iter().map(|variant| variant.first()).collect::<Vec<_>>().join(" ")
        };
        for (word, wanted) in [
            (":q4_k_m", "g-Q4_K_M.gguf"),
            (":ud-q4_k_m", "g-UD-Q4_K_M.gguf"),
            (":Q4_K_XL", "g-UD-Q4_K_XL.gguf"),
            (":bf16", "BF16/g-BF16-00001-of-00002.gguf"),
            (":F16", "g-F16.gguf"),
            (":Q8_0", "g-Q8_0.gguf g-qat-Q8_0.gguf"),
            (":qat-Q8_0", "g-qat-Q8_0.gguf"),
            (":Q4_K", ""),
            (":K_M", ""),
            ("/g-Q8_0.gguf", "g-Q8_0.gguf"),
            ("/BF16/g-BF16-00002-of-00002.gguf", "BF16/g-BF16-00001-of-00002.gguf"),
            ("/g-Q2_K.gguf", ""),
        ] {
            assert_eq!(chosen(word), wanted, "{word}");
        }
        let repo = Repo::new("org", "a").unwrap();
        // A listed name must choose its own variant.
        for variant in &all {
            assert_eq!(choose(&all, &variant.name(&repo, &all).choice), [variant]);
        }
        let words = "BF16, F16, Q4_K_M, Q4_K_S, g-Q8_0.gguf, UD-Q4_K_M, UD-Q4_K_XL, g-qat-Q8_0.gguf, plain.gguf";
        assert_eq!(listed(&repo, &all, |_| String::new()), words);
    }
}
