//! The owner's settings of the chat page.

mod accent;
pub(super) mod language;
mod logo;
mod words;

pub use accent::PageAccent;
pub use language::PageLanguage;
pub use logo::PageLogo;
use serde_json::{Value, json};
pub use words::PageText;

/// Settings of the page. `None` or empty: the page's default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PageSettings {
    /// The page's headings, one per language.
    pub titles: Vec<PageText>,
    /// Words before the first question, one per language.
    pub welcomes: Vec<PageText>,
    /// Questions that the page offers as buttons, in order.
    pub questions: Vec<PageText>,
    /// The colour of buttons and marks.
    pub accent: Option<PageAccent>,
    /// True if the page does not show the server's status.
    pub hides_status: bool,
    /// The size of the text, in percent.
    pub text_percent: Option<u32>,
    /// Languages to choose from by the browser's preference; the first is the fallback. Empty: the built-in ones.
    pub languages: Vec<PageLanguage>,
    /// A logo in place of the heading.
    pub logo: Option<PageLogo>,
    /// The logo for a dark background.
    pub dark_logo: Option<PageLogo>,
    /// True if the page has an on-screen keyboard.
    pub has_keyboard: bool,
}

impl PageSettings {
    /// The settings for the page as JSON, with the texts of one language. `wanted` is a browser's `Accept-Language`, or
    /// the language chosen by a visitor.
    pub fn for_browser(&self, wanted: &str) -> Value {
        let languages = language::or_built_in(&self.languages);
        let chosen = language::choose(languages, wanted);
        let tag = chosen.map(PageLanguage::tag).unwrap_or_default();
        let accent =
            self.accent.map(|accent| accent.codes()).map(|[light, dark]| json!({"light": light, "dark": dark}));
        json!({
            "title": words::of(&self.titles, tag).first(), "welcome": words::of(&self.welcomes, tag).first(),
            "questions": words::of(&self.questions, tag), "accent": accent,
            "hides_status": self.hides_status, "text_percent": self.text_percent,
            "has_logo": self.logo.is_some(), "has_dark_logo": self.dark_logo.is_some(),
            "has_keyboard": self.has_keyboard,
            "languages": languages.iter().map(PageLanguage::tag).collect::<Vec<_>>(),
            "texts": chosen.map(PageLanguage::texts),
        })
    }
}
