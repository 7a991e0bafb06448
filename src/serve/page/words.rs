//! The owner's texts, for one language of the page or for all.

use super::PageLanguage;
use super::language::{is_tag, or_built_in};
use crate::display::quote;
use crate::{Error, Result};

/// A text that the server's owner sets for the chat page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageText {
    /// The tag of its language. `None`: for all languages without their own text.
    language: Option<String>,
    text: String,
}

impl PageText {
    /// A text that the page shows in every language.
    pub fn new(text: &str) -> PageText {
        PageText { language: None, text: text.to_owned() }
    }

    /// Parses `TEXT` or `TAG=TEXT`, for a page with these languages, or with the built-in ones if empty.
    ///
    /// # Errors
    /// Input: the page has no language with this tag, or the text is empty.
    pub fn parse(given: &str, languages: &[PageLanguage]) -> Result<PageText> {
        let Some((tag, text)) = given.split_once('=').filter(|(tag, _)| is_tag(tag)) else {
            return Ok(PageText::new(given));
        };
        let tags: Vec<&str> = or_built_in(languages).iter().map(PageLanguage::tag).collect();
        let Some(known) = tags.iter().find(|known| known.eq_ignore_ascii_case(tag)) else {
            let cause = format!("`{}` is for the language {tag}, which the page has not", quote(given));
            let remedy =
                format!("give one of {}, or no language: a blank before the `=` makes a text of it", tags.join(", "));
            return Err(Error::input(cause, remedy));
        };
        match text.trim().is_empty() {
            true => Err(Error::input(format!("`{}` has no text", quote(given)), format!("write {tag}=TEXT"))),
            false => Ok(PageText { language: Some((*known).to_owned()), text: text.to_owned() }),
        }
    }

    /// The tag of a language with several of these texts; empty for texts without a tag. `None` if there is none.
    pub fn twice(texts: &[PageText]) -> Option<&str> {
        let again = |(i, text): &(usize, &PageText)| texts[..*i].iter().any(|other| other.language == text.language);
        texts.iter().enumerate().find(again).map(|(_, text)| text.language.as_deref().unwrap_or_default())
    }
}

/// The texts for a language: its own, or else those for all languages.
pub(super) fn of<'t>(texts: &'t [PageText], tag: &str) -> Vec<&'t str> {
    let those = |language: Option<&str>| {
        let of_it = texts.iter().filter(|text| text.language.as_deref() == language);
        of_it.map(|text| text.text.as_str()).collect::<Vec<_>>()
    };
    let own = those(Some(tag));
    if own.is_empty() { those(None) } else { own }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(given: &[&str]) -> Vec<PageText> {
        given.iter().map(|text| PageText::parse(text, &[]).unwrap()).collect()
    }

    #[test]
    fn a_language_gets_its_own_texts_or_else_those_for_all() {
        let all = texts(&["Open?", "de=Offen?", "DE=Wo?", "x=3?", "fr =1"]);
        assert_eq!(of(&all, "de"), ["Offen?", "Wo?"]);
        assert_eq!(of(&all, "en"), ["Open?", "x=3?", "fr =1"]);
        assert!(of(&texts(&["de=Offen?"]), "en").is_empty());
    }

    #[test]
    fn a_text_for_a_language_that_there_is_not_is_refused() {
        for (given, said) in [
            ("it=Quando?", "`it=Quando?` is for the language it, which the page has not; give one of en, de, es, fr"),
            ("de=", "`de=` has no text; write de=TEXT"),
            ("de= ", "has no text"),
        ] {
            let e = PageText::parse(given, &[]).unwrap_err();
            assert!(e.exit_code() == 2 && e.to_string().contains(said), "{e}");
        }
        let french = [PageLanguage::of_tag("fr").unwrap()];
        assert!(PageText::parse("fr=Quand ?", &french).is_ok() && PageText::parse("en=When?", &french).is_err());
    }

    #[test]
    fn two_texts_for_one_language_are_found() {
        for (given, twice) in [
            (&["A", "de=B", "fr=C"][..], None),
            (&["A", "B"], Some("")),
            (&["de=A", "B", "de=C"], Some("de")),
            (&[], None),
        ] {
            assert_eq!(PageText::twice(&texts(given)), twice, "{given:?}");
        }
    }
}
