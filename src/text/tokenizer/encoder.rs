//! Encodes text that arrives in pieces.

use super::Tokenizer;
use crate::Result;
use crate::text::windows::Windows;
use tokenizers::OffsetType;

/// Encodes text that arrives in pieces, in memory that does not grow with the text.
#[derive(Debug)]
pub struct TextEncoder<'a> {
    tokenizer: &'a Tokenizer,
    windows: Windows,
    /// The end of the text so far, whose tokens are not certain yet.
    text: String,
    ids: Vec<u32>,
}

impl<'a> TextEncoder<'a> {
    /// An encoder whose first ids are `ids`.
    pub(super) fn new(tokenizer: &'a Tokenizer, ids: Vec<u32>) -> Self {
        TextEncoder { tokenizer, windows: Windows::default(), text: String::new(), ids }
    }

    /// Adds text. Returns the ids that are certain now.
    ///
    /// # Errors
    /// [`crate::Error::Input`] when the tokenizer cannot encode the text.
    pub fn push(&mut self, text: &str) -> Result<Vec<u32>> {
        self.text.push_str(text);
        let t = self.tokenizer;
        if t.can_cut {
            let encode = |window: &str| t.encode_part(window, &t.added, OffsetType::Byte);
            let done = self.windows.push(&self.text, encode, &mut self.ids)?;
            self.text.drain(..done);
        }
        Ok(std::mem::take(&mut self.ids))
    }

    /// Returns the last ids.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    pub fn finish(mut self) -> Result<Vec<u32>> {
        let (t, added) = (self.tokenizer, &self.tokenizer.added);
        match t.can_cut {
            true => {
                let encode = |window: &str| t.encode_part(window, added, OffsetType::Byte);
                self.windows.finish(&self.text, encode, &mut self.ids)?;
            }
            false => t.encode_whole(&self.text, added, &mut self.ids)?,
        }
        Ok(self.ids)
    }
}
