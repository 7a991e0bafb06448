//! Options of the chat page.

use crate::machine::regular::{self, Links};
use crate::serve::page::{PageLanguage, PageLogo, PageSettings};
use crate::{Error, Result};
use clap::builder::NonEmptyStringValueParser;
use std::path::{Path, PathBuf};

/// Most bytes of a language's file.
const MOST_BYTES: u64 = 1 << 20;

/// What the chat page shows.
#[derive(Debug, Clone, clap::Args)]
pub struct PageArgs {
    /// The page's heading [default: Kiln]
    #[arg(long, value_name = "TEXT", value_parser = NonEmptyStringValueParser::new())]
    page_title: Option<String>,
    /// The words before the first question
    #[arg(long, value_name = "TEXT", value_parser = NonEmptyStringValueParser::new())]
    page_welcome: Option<String>,
    /// A question that a tap asks; may be given several times
    #[arg(long, value_name = "TEXT", value_parser = NonEmptyStringValueParser::new())]
    page_question: Vec<String>,
    /// A language of the page: en, de, es, fr, or a file with the texts of another one; may be given several times. Of several
    /// a browser gets the one that it is set to, else the first [default: en, de, es, fr]
    #[arg(long, value_name = "LANGUAGE|FILE", value_parser = NonEmptyStringValueParser::new())]
    page_language: Vec<String>,
    /// A picture in the place of the page's heading, which is then its alternative text: SVG, PNG or WebP, up to 1 MiB
    #[arg(long, value_name = "FILE")]
    page_logo: Option<PathBuf>,
    /// The same for screens that are set to a dark ground [default: the other one, on a light ground of its own]
    #[arg(long, value_name = "FILE", requires = "page_logo")]
    page_logo_dark: Option<PathBuf>,
    /// Show a keyboard while a question is written, where none is plugged in
    #[arg(long)]
    page_keyboard: bool,
    /// Show nothing of the server's status
    #[arg(long)]
    page_no_status: bool,
    /// The size of the page's text in percent
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(50..=400))]
    page_text: Option<u32>,
}

impl PageArgs {
    /// As the server has them. Reads their files.
    ///
    /// # Errors
    /// Input: a file cannot be read, or is no language or no logo.
    pub fn settings(&self) -> Result<PageSettings> {
        Ok(PageSettings {
            title: self.page_title.clone(),
            welcome: self.page_welcome.clone(),
            questions: self.page_question.clone(),
            hides_status: self.page_no_status,
            text_percent: self.page_text,
            languages: self.page_language.iter().map(|name| language(name)).collect::<Result<_>>()?,
            logo: self.page_logo.as_deref().map(logo).transpose()?,
            dark_logo: self.page_logo_dark.as_deref().map(logo).transpose()?,
            has_keyboard: self.page_keyboard,
        })
    }
}

/// A built-in language by its tag, or that of a file.
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
    let text = String::from_utf8(read(path, MOST_BYTES, "language of the page")?);
    let text = text.map_err(|e| {
        let cause = format!("{name} is not UTF-8 at byte {}", e.utf8_error().valid_up_to());
        Error::input(cause, "convert it")
    })?;
    PageLanguage::parse(&text, name)
}

fn logo(path: &Path) -> Result<PageLogo> {
    let bytes = read(path, PageLogo::MOST_BYTES, "logo")?;
    PageLogo::from_bytes(bytes).ok_or_else(|| {
        Error::input(format!("{} is no SVG, PNG or WebP", path.display()), "give a picture that is one of them")
    })
}

/// The bytes of a file that is a `what`.
fn read(path: &Path, most: u64, what: &str) -> Result<Vec<u8>> {
    regular::read(path, Links::Follow, most).map_err(|fault| match fault {
        regular::ReadFault::Io(e) => Error::unreadable(path, &e),
        fault => Error::input(format!("{} is no {what}: {fault}", path.display()), "give another file"),
    })
}
