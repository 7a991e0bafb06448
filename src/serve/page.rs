//! What the chat page shows of its owner.

pub(super) mod language;
mod logo;

pub use language::PageLanguage;
pub use logo::PageLogo;
use serde_json::{Value, json};

/// Each `None` or empty: as the page is by itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PageSettings {
    /// Its heading.
    pub title: Option<String>,
    /// The words before the first question.
    pub welcome: Option<String>,
    /// Questions that a tap asks.
    pub questions: Vec<String>,
    /// Whether the server's status is no reader's concern.
    pub hides_status: bool,
    /// The size of its text, in percent.
    pub text_percent: Option<u32>,
    /// The languages that a browser's is taken from; the first where it wants none of them. Empty: those that are built in.
    pub languages: Vec<PageLanguage>,
    /// What stands in the place of the heading.
    pub logo: Option<PageLogo>,
    /// The same on a dark ground.
    pub dark_logo: Option<PageLogo>,
    /// Whether the page brings a keyboard.
    pub has_keyboard: bool,
}

impl PageSettings {
    /// What the page is told: as JSON, with the texts of one language. `wanted` is a browser's `Accept-Language`.
    pub fn for_browser(&self, wanted: &str) -> Value {
        let languages = match self.languages.is_empty() {
            true => language::built_in(),
            false => &self.languages,
        };
        json!({
            "title": self.title, "welcome": self.welcome, "questions": self.questions,
            "hides_status": self.hides_status, "text_percent": self.text_percent,
            "has_logo": self.logo.is_some(), "has_dark_logo": self.dark_logo.is_some(),
            "has_keyboard": self.has_keyboard,
            "texts": language::choose(languages, wanted).map(PageLanguage::texts),
        })
    }
}
