//! Languages of the page: a TOML file each, with its texts and the keys of its on-screen keyboard.

use crate::display::{nearest, quote};
use crate::serve::http::weighted;
use crate::{Error, Result};
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::sync::LazyLock;
use toml::de::{DeTable, DeValue};

/// The built-in languages by their tags. English, the first, defines the keys for all others.
pub(in crate::serve) const FILES: [(&str, &str); 4] = [
    ("en", include_str!("languages/en.toml")),
    ("de", include_str!("languages/de.toml")),
    ("es", include_str!("languages/es.toml")),
    ("fr", include_str!("languages/fr.toml")),
];

/// The most rows of keys, and the most keys in a row. More keys would be too small for a finger.
const MOST_ROWS: usize = 5;
const MOST_KEYS: usize = 14;

/// A language: its tag and its texts by key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageLanguage {
    tag: String,
    texts: Map<String, Value>,
}

/// The English keys; every translation must have the same.
static MODEL: LazyLock<Map<String, Value>> = LazyLock::new(|| {
    let (_, english) = FILES[0];
    let entries = entries(english, "en.toml").unwrap_or_else(|e| panic!("a built-in language: {e}"));
    entries.into_iter().map(|(name, value, _)| (name, value)).collect()
});

/// The languages that are built into the program.
fn built_in() -> &'static [PageLanguage] {
    static ALL: LazyLock<Vec<PageLanguage>> = LazyLock::new(|| {
        let parse = |(tag, text): &(&str, &str)| {
            PageLanguage::parse(text, tag).unwrap_or_else(|e| panic!("a built-in language: {e}"))
        };
        FILES.iter().map(parse).collect()
    });
    &ALL
}

/// The given languages, or the built-in ones if there are none.
pub(super) fn or_built_in(languages: &[PageLanguage]) -> &[PageLanguage] {
    if languages.is_empty() { built_in() } else { languages }
}

impl PageLanguage {
    /// The built-in language with the tag `tag`.
    pub fn of_tag(tag: &str) -> Option<PageLanguage> {
        built_in().iter().find(|language| language.tag == tag).cloned()
    }

    /// The tags of the built-in languages, such as `en`.
    pub fn tags() -> impl Iterator<Item = &'static str> {
        FILES.iter().map(|(tag, _)| *tag)
    }

    /// Parses a language's file. `file` is its name in errors.
    ///
    /// # Errors
    /// Input: it is not TOML, a key is unknown or missing, or the page cannot show a value.
    pub fn parse(text: &str, file: &str) -> Result<PageLanguage> {
        let mut texts = Map::new();
        for (name, value, line) in entries(text, file)? {
            let wrong = |what: &str, remedy: &str| Error::input(format!("{file}:{line}: {name} {what}"), remedy);
            let Some(model) = MODEL.get(&name) else { return Err(unknown(&name, &format!("{file}:{line}"))) };
            check(&name, &value, model).map_err(|(what, remedy)| wrong(&what, remedy))?;
            texts.insert(name, value);
        }
        let missing: Vec<&str> = MODEL.keys().filter(|name| !texts.contains_key(*name)).map(String::as_str).collect();
        if !missing.is_empty() {
            let (first, rest) = missing.split_at(missing.len().min(8));
            let rest = if rest.is_empty() { String::new() } else { format!(" and {} more", rest.len()) };
            let cause = format!("{file} has no {}{rest}", first.join(", "));
            return Err(Error::input(cause, "add them; the server's /languages/en.toml has every name"));
        }
        let tag = texts.get("language").and_then(Value::as_str).unwrap_or_default().to_owned();
        Ok(PageLanguage { tag, texts })
    }

    /// The language's tag, such as `en`.
    pub fn tag(&self) -> &str {
        &self.tag
    }

    pub(super) fn texts(&self) -> &Map<String, Value> {
        &self.texts
    }

    /// True if a browser that prefers `tag` can use this language: both are equal, or one is a regional form of the
    /// other.
    fn is_for(&self, tag: &str) -> bool {
        let first = |tag: &str| tag.split('-').next().unwrap_or_default().to_ascii_lowercase();
        self.tag.eq_ignore_ascii_case(tag) || first(&self.tag) == first(tag)
    }
}

/// The language among `languages` that a browser prefers by its `Accept-Language` (RFC 9110, 12.5.4), else the first.
/// `None` if there are none.
pub(super) fn choose<'l>(languages: &'l [PageLanguage], wanted: &str) -> Option<&'l PageLanguage> {
    let mut weighed: Vec<(&str, f32)> = weighted(wanted).filter(|(_, weight)| *weight > 0.0).collect();
    weighed.sort_by(|a, b| b.1.total_cmp(&a.1));
    let exact = |tag: &str| languages.iter().find(|language| language.tag.eq_ignore_ascii_case(tag));
    let found = weighed.iter().find_map(|(tag, _)| match *tag {
        "*" => languages.first(),
        tag => exact(tag).or_else(|| languages.iter().find(|language| language.is_for(tag))),
    });
    found.or_else(|| languages.first())
}

/// The keys of a file with their values (a string or a list of strings) and lines.
fn entries(text: &str, file: &str) -> Result<Vec<(String, Value, usize)>> {
    let line = |start: usize| 1 + text.bytes().take(start).filter(|byte| *byte == b'\n').count();
    let table = DeTable::parse(text).map_err(|e| {
        let place = e.span().map_or_else(|| file.to_owned(), |span| format!("{file}:{}", line(span.start)));
        Error::input(
            format!("{place}: {}", quote(&e.message().replace('\n', " "))),
            "write NAME = \"TEXT\" on each line",
        )
    })?;
    let text_of = |value: &DeValue<'_>| match value {
        DeValue::String(text) => Some(Value::from(text.as_ref())),
        _ => None,
    };
    let entry = |(key, value): (&toml::Spanned<_>, &toml::Spanned<DeValue<'_>>)| {
        let name: &std::borrow::Cow<'_, str> = key.get_ref();
        let line = line(key.span().start);
        let found = match value.get_ref() {
            DeValue::Array(items) => {
                items.iter().map(|item| text_of(item.get_ref())).collect::<Option<Vec<_>>>().map(Value::from)
            }
            value => text_of(value),
        };
        let cause = || format!("{file}:{line}: {} is no text and no list of texts", quote(name));
        Ok((name.to_string(), found.ok_or_else(|| Error::input(cause(), "write it in quotes"))?, line))
    };
    let mut found: Vec<_> = table.get_ref().iter().map(entry).collect::<Result<_>>()?;
    // The table is sorted by key.
    found.sort_by_key(|(.., line)| *line);
    Ok(found)
}

/// The fault of a value and its remedy.
fn check(name: &str, value: &Value, model: &Value) -> std::result::Result<(), (String, &'static str)> {
    match (value, model) {
        (Value::String(text), Value::String(model)) => {
            if text.trim().is_empty() {
                return Err(("is empty".into(), "give it a text"));
            }
            if name == "language" && !is_tag(text) {
                return Err((
                    format!("is {}, which is no tag of a language", quote(text)),
                    "give one such as it or pt-BR",
                ));
            }
            if name == "direction" && !["ltr", "rtl"].contains(&text.as_str()) {
                return Err((
                    format!("is {}", quote(text)),
                    "give ltr, or rtl for a language that is written from the right",
                ));
            }
            let (found, wanted) = (placeholders(text), placeholders(model));
            if let Some(lost) = wanted.difference(&found).next() {
                return Err((format!("lacks {{{lost}}}"), "put it where the page has to insert its value"));
            }
            if let Some(strange) = found.difference(&wanted).next() {
                return Err((format!("has {{{strange}}}, which nothing stands for"), "leave it out"));
            }
            Ok(())
        }
        (Value::Array(rows), Value::Array(_)) => {
            let fits = |row: &Value| {
                let keys = row.as_str().map_or(0, |row| row.chars().count());
                (1..=MOST_KEYS).contains(&keys) && !row.as_str().is_some_and(|row| row.contains(char::is_whitespace))
            };
            match (1..=MOST_ROWS).contains(&rows.len()) && rows.iter().all(fits) {
                true => Ok(()),
                false => Err((
                    format!("is no list of 1 to {MOST_ROWS} rows of 1 to {MOST_KEYS} keys"),
                    "write the keys of a row as one text, such as \"qwertyuiop\"",
                )),
            }
        }
        (_, Value::Array(_)) => Err(("is no list".into(), "write [\"ROW\", \"ROW\"]")),
        _ => Err(("is a list, and has to be a text".into(), "write it in quotes")),
    }
}

/// True if browsers accept it as a language tag, optionally with a script and a region (BCP 47).
pub(super) fn is_tag(text: &str) -> bool {
    let mut parts = text.split('-');
    let letters = |part: &str| part.bytes().all(|byte| byte.is_ascii_alphabetic());
    let is_language = parts.next().is_some_and(|part| matches!(part.len(), 2 | 3) && letters(part));
    let mut rest = parts.peekable();
    rest.next_if(|part| part.len() == 4 && letters(part));
    rest.next_if(|part| {
        part.len() == 2 && letters(part) || part.len() == 3 && part.bytes().all(|byte| byte.is_ascii_digit())
    });
    is_language && rest.next().is_none()
}

/// The names in braces in a text, such as `{name}`.
fn placeholders(text: &str) -> BTreeSet<&str> {
    text.split('{').skip(1).filter_map(|rest| rest.split_once('}')).map(|(name, _)| name).collect()
}

fn unknown(name: &str, place: &str) -> Error {
    let remedy = match nearest(name, MODEL.keys().map(String::as_str)) {
        Some(nearest) => format!("`{nearest}` comes nearest; the server's /languages/en.toml has every name"),
        None => "the server's /languages/en.toml has every name".to_owned(),
    };
    Error::input(format!("{place}: the page has no text `{}`", quote(name).replace(char::is_control, " ")), remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn italian(change: impl Fn(&str) -> String) -> Result<PageLanguage> {
        PageLanguage::parse(&change(&FILES[0].1.replace("language = \"en\"", "language = \"it\"")), "it.toml")
    }

    #[test]
    fn every_built_in_language_has_every_text() {
        let tags: Vec<&str> = built_in().iter().map(|language| language.tag.as_str()).collect();
        assert_eq!(tags, PageLanguage::tags().collect::<Vec<_>>());
        for (tag, text) in FILES {
            assert_eq!(PageLanguage::of_tag(tag), Some(PageLanguage::parse(text, tag).unwrap()));
        }
        assert_eq!(PageLanguage::of_tag("it"), None);
    }

    #[test]
    fn a_file_says_what_is_wrong_with_it_by_name_and_line() {
        assert_eq!(italian(str::to_owned).unwrap().tag, "it");
        for (from, to, said) in [
            ("greeting = ", "greting = ", "the page has no text `greting`; `greeting` comes nearest"),
            ("greeting = ", "# ", "it.toml has no greeting; add"),
            ("\nrate = ", "\nxyzzy = ", "the page has no text `xyzzy`; the server's"),
            ("{seconds}.\"", "soon\"", "is-asked-again lacks {seconds}; "),
            ("\"Copy\"", "\"Copy {it}\"", "copy has {it}, which nothing stands for; "),
            ("\"Copy\"", "\" \"", "copy is empty; "),
            ("\"Copy\"", "5", "copy is no text and no list of texts; "),
            ("\"Copy\"", "[\"Copy\"]", "copy is a list, and has to be a text; "),
            ("\"it\"", "\"italian\"", "it.toml:5: language is italian, which is no tag of a language; "),
            ("\"ltr\"", "\"left\"", "it.toml:6: direction is left; give ltr"),
            ("[\"qwertyuiop\", ", "[\"qwerty uiop\", ", "letters is no list of 1 to 5 rows of 1 to 14 keys; "),
            ("[\"qwertyuiop\", \"asdfghjkl\", \"zxcvbnm'\"]", "\"abc\"", "letters is no list; "),
            ("[\"qwertyuiop\", \"asdfghjkl\", \"zxcvbnm'\"]", "[]", "letters is no list of 1 to 5 rows"),
            ("ask = ", "ask = \"again\"\nask = ", "duplicate key; "),
            ("language = ", "language ", "it.toml:5: "),
        ] {
            let e = italian(|text| {
                assert!(text.contains(from), "{from}");
                text.replacen(from, to, 1)
            });
            let e = e.unwrap_err();
            assert!(e.exit_code() == 2 && e.to_string().contains(said), "{to}: {e}");
            assert!(!e.to_string().contains('\n'), "{e}");
        }
        let none = PageLanguage::parse("", "it.toml").unwrap_err().to_string();
        assert!(none.starts_with("it.toml has no language, direction, letters,") && none.contains(" more; "), "{none}");
    }

    #[test]
    fn tags_are_those_that_browsers_take() {
        for (tag, is) in [
            ("it", true),
            ("pt-BR", true),
            ("zh-Hant-TW", true),
            ("es-419", true),
            ("yue", true),
            ("", false),
            ("i", false),
            ("it-", false),
            ("it_IT", false),
            ("it-IT-x", false),
            ("it-12", false),
        ] {
            assert_eq!(is_tag(tag), is, "{tag}");
        }
    }

    #[test]
    fn the_browsers_language_is_taken_among_those_that_there_are() {
        let of = |languages: &[PageLanguage], wanted: &str| choose(languages, wanted).unwrap().tag.clone();
        for (wanted, tag) in [
            ("", "en"),
            ("de-CH,de;q=0.9,en;q=0.8", "de"),
            ("it, fr-CA;q=0.5, en;q=0.4", "fr"),
            ("en;q=0.5, ES;q=0.8", "es"),
            ("de;q=0, fr;q=0.1", "fr"),
            ("it", "en"),
            ("*", "en"),
            ("de;q=nonsense", "en"),
            (";;,,q=1", "en"),
        ] {
            assert_eq!(of(built_in(), wanted), tag, "{wanted}");
        }
        let own = |tag: &str| PageLanguage { tag: tag.into(), texts: Map::new() };
        let languages = [own("de"), own("pt-BR"), own("pt-PT")];
        for (wanted, tag) in [("pt-PT", "pt-PT"), ("pt", "pt-BR"), ("pt-AO", "pt-BR"), ("en", "de"), ("de-AT", "de")] {
            assert_eq!(of(&languages, wanted), tag, "{wanted}");
        }
    }
}
