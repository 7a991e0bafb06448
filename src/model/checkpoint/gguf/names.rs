//! Interprets the names of GGUF files: which files are models, and which are parts of one.

use std::path::{Path, PathBuf};

use crate::{Error, Result};

/// Words in the name of a file that belongs to a model and is not one: the vision tower, and the record of a
/// calibration.
const BESIDE: [&str; 2] = ["mmproj", "imatrix"];
/// Words in the name of a small model that drafts for another.
const DRAFTS: [&str; 2] = ["draft", "mtp"];

/// The paths of the files of the model whose first file is `path`: `path` alone, unless its name is that of a part of
/// several.
///
/// # Errors
/// [`Error::Input`]: `path` is a part of a split model, but not the first.
pub fn parts(path: &Path) -> Result<Vec<PathBuf>> {
    let alone = || Ok(vec![path.to_owned()]);
    let Some((stem, no, count)) = path.file_name().and_then(|name| split_name(name.to_str()?)) else { return alone() };
    let part = |i: u32| path.with_file_name(format!("{stem}-{i:05}-of-{count:05}.gguf"));
    if no != 1 {
        let cause = format!("{} is part {no} of a split model", path.display());
        return Err(Error::input(cause, format!("give the first: {}", part(1).display())));
    }
    Ok((1..=count).map(part).collect())
}

/// The models that a directory has as GGUF files, in the order of their names ([`models`]).
pub fn list(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    models(names.iter().map(String::as_str)).into_iter().map(|name| dir.join(name)).collect()
}

/// The models among files with these paths: each whole GGUF file, and the first of each split one. A small model that
/// drafts counts only if there are no others. In the order of their names.
pub fn models<'n>(names: impl Iterator<Item = &'n str>) -> Vec<&'n str> {
    let is_model = |path: &&str| {
        let name = file_name(path);
        let is_first = split_name(name).is_none_or(|(_, no, _)| no == 1);
        name.ends_with(".gguf") && !name.starts_with('.') && is_first && !has_word(name, &BESIDE)
    };
    let mut all: Vec<&str> = names.filter(is_model).collect();
    all.sort_unstable();
    let is_draft = |path: &&str| has_word(path, &DRAFTS);
    if !all.iter().all(is_draft) {
        all.retain(|path| !is_draft(path));
    }
    all
}

/// A file's name without its extension and part numbers.
pub fn stem(name: &str) -> &str {
    split_name(name).map_or_else(|| name.strip_suffix(".gguf").unwrap_or(name), |(stem, _, _)| stem)
}

/// The stem, number and count in the name of a part: `STEM-00001-of-00003.gguf`.
pub fn split_name(name: &str) -> Option<(&str, u32, u32)> {
    let (rest, count) = name.strip_suffix(".gguf")?.rsplit_once("-of-")?;
    let (stem, no) = rest.rsplit_once('-')?;
    let number = |digits: &str| {
        let plain = digits.len() == 5 && digits.bytes().all(|b| b.is_ascii_digit());
        plain.then(|| digits.parse::<u32>().ok()).flatten()
    };
    let (no, count) = (number(no)?, number(count)?);
    (1..=count).contains(&no).then_some((stem, no, count))
}

/// The last component of a path with slashes.
fn file_name(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}

/// True if one of `words` is a separate word of a path, in any case.
fn has_word(path: &str, words: &[&str]) -> bool {
    path.split(|c: char| !c.is_ascii_alphanumeric())
        .any(|part| words.iter().any(|word| part.eq_ignore_ascii_case(word)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_part_says_which_and_of_how_many() {
        assert_eq!(split_name("a-b-00002-of-00003.gguf"), Some(("a-b", 2, 3)));
        for name in ["a.gguf", "a-00004-of-00003.gguf", "a-00000-of-00003.gguf", "a-2-of-3.gguf", "a-00002-of-00003"] {
            assert_eq!(split_name(name), None, "{name}");
        }
        assert_eq!((stem("a-00001-of-00003.gguf"), stem("b.Q8_0.gguf"), stem("c")), ("a", "b.Q8_0", "c"));
        let names = parts(Path::new("/m/a-00001-of-00002.gguf")).unwrap();
        assert_eq!(names, [PathBuf::from("/m/a-00001-of-00002.gguf"), PathBuf::from("/m/a-00002-of-00002.gguf")]);
        let line = parts(Path::new("/m/a-00002-of-00002.gguf")).unwrap_err().to_string();
        assert!(line.contains("part 2") && line.contains("give the first: /m/a-00001-of-00002.gguf"), "{line}");
    }

    #[test]
    fn what_goes_with_a_model_is_none() {
        let among = |names: &[&str]| models(names.iter().copied()).join(" ");
        let names = [
            "mmproj-model-f16.gguf",
            "gemma-3-4b-it-mmproj-F16.gguf",
            "b/imatrix_x.gguf",
            ".a.gguf",
            "b/x-00002-of-00002.gguf",
            "b/x-00001-of-00002.gguf",
            "a-Draft-Q8_0.gguf",
            "a-Q8_0.gguf",
            "overdrafts.gguf",
            "README.md",
        ];
        assert_eq!(among(&names), "a-Q8_0.gguf b/x-00001-of-00002.gguf overdrafts.gguf");
        assert_eq!(among(&["a-DRAFT-Q8_0.gguf", "mmproj-F16.gguf"]), "a-DRAFT-Q8_0.gguf");
        assert_eq!(among(&[]), "");
    }
}
