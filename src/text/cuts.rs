//! Cuts a long text into parts that can be encoded one by one: their ids joined are the ids of the whole text. The
//! `tokenizers` crate takes some 350 bytes of memory for each byte that it encodes at once.
//!
//! A merge or an added token across a cut would be a token that contains both characters at the cut, side by side. If
//! no token contains that pair, neither side affects the other.

use std::collections::HashSet;

/// Bytes after which a part ends at the next possible cut.
const PART: usize = 64 << 10;

/// The properties of a tokenizer's vocabulary that allow cuts.
#[derive(Debug)]
pub(super) struct Cuts {
    /// Characters with a token of their own. Others become byte tokens, which the vocabulary spells in another way.
    single: HashSet<char>,
    /// Characters that stand side by side in a token.
    joined: HashSet<[char; 2]>,
}

impl Cuts {
    /// Reads the vocabulary. `None` if a token may depend on more than its own characters.
    pub(super) fn gather(tokenizer: &tokenizers::Tokenizer) -> Option<Cuts> {
        let far = match tokenizer.get_model() {
            tokenizers::ModelWrapper::BPE(model) => model.ignore_merges,
            _ => true,
        };
        let added = tokenizer.get_added_vocabulary().get_added_tokens_decoder();
        if far || added.values().any(|t| t.single_word || t.lstrip || t.rstrip) {
            return None;
        }
        let mut cuts = Cuts { single: HashSet::new(), joined: HashSet::new() };
        for token in tokenizer.get_vocab(true).into_keys() {
            let mut characters = token.chars().map(normalize);
            let Some(mut before) = characters.next() else { continue };
            let mut alone = true;
            for c in characters {
                cuts.joined.insert([before, c]);
                (before, alone) = (c, false);
            }
            if alone {
                cuts.single.insert(before);
            }
        }
        Some(cuts)
    }

    /// The parts of `text`.
    pub(super) fn parts<'t>(&self, text: &'t str) -> impl Iterator<Item = &'t str> {
        let mut rest = text;
        std::iter::from_fn(move || {
            let (part, more) = rest.split_at(self.find(rest));
            rest = more;
            (!part.is_empty()).then_some(part)
        })
    }

    /// Where the first part of `text` ends.
    fn find(&self, text: &str) -> usize {
        let start = (PART.min(text.len())..text.len()).find(|&at| text.is_char_boundary(at)).unwrap_or(text.len());
        let places = text[start..].char_indices().zip(text[start..].chars().skip(1));
        let mut places = places.map(|((at, a), b)| (start + at + a.len_utf8(), normalize(a), normalize(b)));
        let cut = places
            .find(|(_, a, b)| self.single.contains(a) && self.single.contains(b) && !self.joined.contains(&[*a, *b]));
        cut.map_or(text.len(), |(at, ..)| at)
    }
}

/// The tokenizer's normalizer, for one character.
fn normalize(c: char) -> char {
    if c == ' ' { '▁' } else { c }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Random, small_tokenizer};
    use super::*;

    #[test]
    fn parts_have_the_ids_of_the_whole() {
        let tokenizer = small_tokenizer();
        let cuts = Cuts::gather(tokenizer.inner()).unwrap();
        let words = [
            "the ",
            "he",
            "llo",
            " ",
            "  ",
            "\n",
            "\n\n",
            "ß",
            "é",
            "😀",
            "<bos>",
            "<start_of_turn>",
            "<",
            "Z",
            "9",
            "▁",
        ];
        let mut random = Random(5);
        let mut count = 0;
        for _ in 0..4 {
            let mut text = String::new();
            while text.len() < 5 * PART {
                text += words[random.below(words.len() as u32) as usize];
            }
            let parts: Vec<&str> = cuts.parts(&text).collect();
            assert_eq!(parts.concat(), text);
            let ids: Vec<u32> = parts
                .iter()
                .flat_map(|part| tokenizer.inner().encode_fast(*part, false).unwrap().get_ids().to_vec())
                .collect();
            assert_eq!(ids, tokenizer.inner().encode_fast(text.as_str(), false).unwrap().get_ids());
            count += parts.len();
        }
        assert!(count > 12, "{count} parts");
        assert!(cuts.parts("").next().is_none());
    }
}
