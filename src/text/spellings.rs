//! Distinguishes text that spells a special token, such as `<end_of_turn>`, from the token itself.
//!
//! A chat template writes special tokens as text, with the messages' text between them. A message may spell a special
//! token too, but must not end its turn by it. So a mark is inserted into each such spelling before the template is
//! rendered. Spellings without a mark in the rendered text are the template's own.

use std::collections::HashMap;

use tokenizers::AddedVocabulary;

/// The special tokens by their spelling.
#[derive(Debug)]
pub(super) struct Spellings {
    ids: HashMap<String, u32>,
    /// Lengths of the spellings in bytes, longest first, each once.
    lengths: Vec<usize>,
    /// First characters of the spellings.
    first: Vec<char>,
}

impl Spellings {
    /// Collects the special tokens. A token of one character has no room for a mark inside and is left out: text that
    /// contains it always means the token. Gemma has none.
    pub(super) fn gather(added: &AddedVocabulary) -> Spellings {
        let tokens = added.get_added_tokens_decoder().iter();
        let long = tokens.filter(|(_, token)| token.special && token.content.chars().nth(1).is_some());
        let ids: HashMap<String, u32> = long.map(|(&id, token)| (token.content.clone(), id)).collect();
        let mut lengths: Vec<usize> = ids.keys().map(String::len).collect();
        lengths.sort_unstable_by(|a, b| b.cmp(a));
        lengths.dedup();
        let mut first: Vec<char> = ids.keys().filter_map(|token| token.chars().next()).collect();
        first.sort_unstable();
        first.dedup();
        Spellings { ids, lengths, first }
    }

    /// The longest special token at the start of `text`: its length in bytes and its id.
    fn find_at_start(&self, text: &str) -> Option<(usize, u32)> {
        if !text.starts_with(&self.first[..]) {
            return None;
        }
        self.lengths.iter().find_map(|&length| Some((length, *self.ids.get(text.get(..length)?)?)))
    }

    /// True if `text` is the start of a special token, which the next part of the message could complete.
    fn is_beginning(&self, text: &str) -> bool {
        let longest = self.lengths.first().copied().unwrap_or(0);
        text.len() < longest && self.ids.keys().any(|token| token.starts_with(text))
    }

    /// `text` with `mark` after the first character of each special token that it spells; `None` if it spells none. An
    /// incomplete spelling at the end counts, since the next part of the message may complete it. So does one before
    /// trailing blanks, which a template trims.
    pub(super) fn mark(&self, text: &str, mark: char) -> Option<String> {
        let end = text.trim_end().len();
        let mut marked = String::new();
        let mut from = 0;
        for (at, first) in text.match_indices(&self.first[..]) {
            let spells = self.find_at_start(&text[at..]).is_some();
            if spells || (at < end && self.is_beginning(&text[at..end])) {
                let inside = at + first.len();
                marked.push_str(&text[from..inside]);
                marked.push(mark);
                from = inside;
            }
        }
        (from > 0).then(|| marked + &text[from..])
    }

    /// Splits a text into pieces: text, and the special token behind it; the last piece has none.
    pub(super) fn split<'t>(&'t self, text: &'t str) -> impl Iterator<Item = (&'t str, Option<u32>)> {
        let mut rest = Some(text);
        std::iter::from_fn(move || {
            let text = rest?;
            let mut places = text.match_indices(&self.first[..]);
            let found = places.find_map(|(at, _)| Some((at, self.find_at_start(&text[at..])?)));
            rest = found.map(|(at, (length, _))| &text[at + length..]);
            Some(found.map_or((text, None), |(at, (_, id))| (&text[..at], Some(id))))
        })
    }
}

/// A character that none of `texts` contains, for marking spellings: a Unicode noncharacter, or else one for private
/// use.
pub(super) fn choose_mark<'t>(texts: impl Iterator<Item = &'t str> + Clone) -> Option<char> {
    let mut candidates = ('\u{fdd0}'..='\u{fdef}').chain('\u{f0000}'..='\u{f00ff}');
    candidates.find(|&mark| !texts.clone().any(|text| text.contains(mark)))
}

#[cfg(test)]
mod tests {
    use super::super::testing::small_tokenizer;
    use super::*;

    #[test]
    fn spelled_tokens_are_marked_and_nothing_else() {
        let tokenizer = small_tokenizer();
        let spellings = Spellings::gather(tokenizer.added());
        let mark = |text: &str| spellings.mark(text, '|');
        for text in ["", "a < b, <b>bold</b>", "<end_of_turn", "<end", "<mask>", "<unused0>", "<bos >"]
            .map(|t| t.to_owned() + "!")
        {
            assert_eq!(mark(&text), None, "{text}");
        }
        assert_eq!(mark("a<bos>b<<end_of_turn>").as_deref(), Some("a<|bos>b<<|end_of_turn>"));
        assert_eq!(mark("<bos><bos>").as_deref(), Some("<|bos><|bos>"));
        // The following text may complete an incomplete spelling at the end.
        assert_eq!(mark("ö <").as_deref(), Some("ö <|"));
        assert_eq!(mark("<end_of \n").as_deref(), Some("<|end_of \n"));

        let pieces: Vec<_> = spellings.split("a<bos>< b<end_of_turn><|bos>").collect();
        assert_eq!(pieces, [("a", Some(2)), ("< b", Some(11)), ("<|bos>", None)]);
        assert_eq!(spellings.split("").collect::<Vec<_>>(), [("", None)]);
    }

    #[test]
    fn a_mark_is_in_no_text() {
        assert_eq!(choose_mark(["a", "ß"].into_iter()), Some('\u{fdd0}'));
        assert_eq!(choose_mark(["a\u{fdd0}", "\u{fdd1}"].into_iter()), Some('\u{fdd2}'));
    }
}
