//! Options of the chat page.

use crate::cli::{read_regular, read_regular_text};
use crate::serve::page::{PageAccent, PageLanguage, PageLogo, PageSettings, PageText};
use crate::{Error, Result};
use clap::builder::NonEmptyStringValueParser;
use std::path::{Path, PathBuf};

/// The largest file of a language, in bytes.
const MOST_BYTES: u64 = 1 << 20;

/// The contents of the chat page.
#[derive(Debug, Clone, clap::Args)]
pub struct PageArgs {
    /// The page's heading; may be given for each language [default: Kiln]
    #[arg(help_heading = "Page", long, value_name = "[TAG=]TEXT", value_parser = NonEmptyStringValueParser::new())]
    page_title: Vec<String>,
    /// The words before the first question; may be given for each language, as in "de=Guten Tag"
    #[arg(help_heading = "Page", long, value_name = "[TAG=]TEXT", value_parser = NonEmptyStringValueParser::new())]
    page_welcome: Vec<String>,
    /// A question that a tap asks; may be given several times. A language that has questions of its own shows those
    /// alone
    #[arg(help_heading = "Page", long, value_name = "[TAG=]TEXT", value_parser = NonEmptyStringValueParser::new())]
    page_question: Vec<String>,
    /// The colour of the page's buttons and marks, such as #005f87. Letters on it and in it have to be readable
    #[arg(help_heading = "Page", long, value_name = "#RRGGBB")]
    page_accent: Option<String>,
    /// The same for screens that are set to a dark ground [default: a lighter shade of the other one]
    #[arg(help_heading = "Page", long, value_name = "#RRGGBB", requires = "page_accent")]
    page_accent_dark: Option<String>,
    /// A language of the page: en, de, es, fr, or a file with the texts of another one; may be given several times. Of
    /// several a browser gets the one that it is set to, else the first, and a visitor may choose [default: en, de, es,
    /// fr]
    #[arg(help_heading = "Page", long, value_name = "LANGUAGE|FILE", value_parser = NonEmptyStringValueParser::new())]
    page_language: Vec<String>,
    /// A picture in the place of the page's heading, which is then its alternative text: SVG, PNG or WebP, up to 1 MiB
    #[arg(help_heading = "Page", long, value_name = "FILE")]
    page_logo: Option<PathBuf>,
    /// The same for screens that are set to a dark ground [default: the other one, on a light ground of its own]
    #[arg(help_heading = "Page", long, value_name = "FILE", requires = "page_logo")]
    page_logo_dark: Option<PathBuf>,
    /// Show a keyboard while a question is written, where none is plugged in
    #[arg(help_heading = "Page", long)]
    page_keyboard: bool,
    /// Show nothing of the server's status
    #[arg(help_heading = "Page", long)]
    page_no_status: bool,
    /// The size of the page's text in percent
    #[arg(help_heading = "Page", long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(50..=400))]
    page_text: Option<u32>,
}

impl PageArgs {
    /// The page's settings for the server. Reads the files.
    ///
    /// # Errors
    /// Input: a file cannot be read, or is not a valid language or logo, a text is for a language that the page lacks,
    /// or a colour is not valid.
    pub fn settings(&self) -> Result<PageSettings> {
        let languages: Vec<PageLanguage> =
            self.page_language.iter().map(|name| language(name)).collect::<Result<_>>()?;
        let texts =
            |given: &[String]| given.iter().map(|text| PageText::parse(text, &languages)).collect::<Result<Vec<_>>>();
        let one_each = |option: &str, given: &[String]| {
            let texts = texts(given)?;
            match PageText::twice(&texts) {
                Some(tag) => {
                    let whose = if tag.is_empty() { "all languages".to_owned() } else { format!("the language {tag}") };
                    Err(Error::input(format!("{option} has two texts for {whose}"), "leave out one of them"))
                }
                None => Ok(texts),
            }
        };
        let accent = |light: &String| PageAccent::new(light, self.page_accent_dark.as_deref());
        Ok(PageSettings {
            titles: one_each("--page-title", &self.page_title)?,
            welcomes: one_each("--page-welcome", &self.page_welcome)?,
            questions: texts(&self.page_question)?,
            accent: self.page_accent.as_ref().map(accent).transpose()?,
            hides_status: self.page_no_status,
            text_percent: self.page_text,
            logo: self.page_logo.as_deref().map(logo).transpose()?,
            dark_logo: self.page_logo_dark.as_deref().map(logo).transpose()?,
            has_keyboard: self.page_keyboard,
            languages,
        })
    }
}

/// A built-in language by its tag, or one from a file.
fn language(name: &str) -> Result<PageLanguage> {
    if let Some(built_in) = PageLanguage::of_tag(name) {
        return Ok(built_in);
    }
    let path = Path::new(name);
    if !name.contains(['.', '/']) && !path.exists() {
        let tags: Vec<&str> = PageLanguage::tags().collect();
        let cause = format!("the page has no language {name}");
        return Err(Error::input(cause, format!("give {} or a file such as it.toml", tags.join(", "))));
    }
    let text = read_regular_text(path, MOST_BYTES, "language of the page", "give another file")?;
    PageLanguage::parse(&text, name)
}

fn logo(path: &Path) -> Result<PageLogo> {
    let bytes = read_regular(path, PageLogo::MOST_BYTES, "logo", "give another file")?;
    PageLogo::from_bytes(bytes).ok_or_else(|| {
        Error::input(format!("{} is no SVG, PNG or WebP", path.display()), "give a picture that is one of them")
    })
}
