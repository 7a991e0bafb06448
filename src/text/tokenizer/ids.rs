//! Token ids as text.

use crate::display::quote;
use crate::{Error, Result};

/// Parses comma-separated token ids such as `2,17,5`. Blanks around them are ignored. Blank text has no ids.
///
/// # Errors
/// [`Error::Input`] naming the first word that is not an id.
pub fn parse_ids(text: &str) -> Result<Vec<u32>> {
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    text.split(',').map(parse_id).collect()
}

/// Parses one token id. Blanks around it are ignored.
///
/// # Errors
/// [`Error::Input`] naming the word.
pub fn parse_id(word: &str) -> Result<u32> {
    let word = word.trim();
    // u32's own parser would accept "+5".
    let digits = word.bytes().all(|b| b.is_ascii_digit());
    word.parse().ok().filter(|_| digits).ok_or_else(|| {
        Error::input(
            format!("{:?} is not a token id", quote(word)),
            "give ids as comma-separated numbers, such as 2,17,5",
        )
    })
}
