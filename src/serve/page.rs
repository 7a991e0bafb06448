//! What the chat page shows of its owner.

mod accent;
pub(super) mod language;
mod logo;
mod words;

pub use accent::PageAccent;
pub use language::PageLanguage;
pub use logo::PageLogo;
use serde_json::{Value, json};
pub use words::PageText;

/// Each `None` or empty: as the page is by itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PageSettings {
    /// Its heading, one for a language.
    pub titles: Vec<PageText>,
    /// The words before the first question, one for a language.
    pub welcomes: Vec<PageText>,
    /// Questions that a tap asks, in the order in which they are shown.
    pub questions: Vec<PageText>,
    /// The colour of its buttons and marks.
    pub accent: Option<PageAccent>,
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
    /// What the page is told: as JSON, with the texts of one language. `wanted` is a browser's `Accept-Language`, or the
    /// language that a visitor chose.
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
