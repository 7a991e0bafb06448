//! What the chat page shows of its owner.

use serde::Serialize;

/// Each `None` or empty: as the page is by itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
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
}
