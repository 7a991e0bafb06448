//! A guide for replies.

use kiln::sequence::guide::Guide;
use kiln::text::TokenSet;

/// Allows every fifth token, other ones after each.
pub struct Fifths(pub u32);

impl Guide for Fifths {
    fn fill(&mut self, set: &mut TokenSet) -> kiln::Result<()> {
        set.clear();
        (self.0 % 5..set.vocab() as u32).step_by(5).for_each(|id| set.insert(id));
        Ok(())
    }

    fn take(&mut self, token: u32) -> kiln::Result<()> {
        assert_eq!(token % 5, self.0 % 5);
        self.0 += 1;
        Ok(())
    }
}
