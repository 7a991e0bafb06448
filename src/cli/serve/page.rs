//! Options of the chat page.

use crate::serve::page::PageSettings;
use clap::builder::NonEmptyStringValueParser;

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
    /// Show nothing of the server's status
    #[arg(long)]
    page_no_status: bool,
    /// The size of the page's text in percent
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(50..=400))]
    page_text: Option<u32>,
}

impl PageArgs {
    /// As the server has them.
    pub fn settings(&self) -> PageSettings {
        PageSettings {
            title: self.page_title.clone(),
            welcome: self.page_welcome.clone(),
            questions: self.page_question.clone(),
            hides_status: self.page_no_status,
            text_percent: self.page_text,
        }
    }
}
