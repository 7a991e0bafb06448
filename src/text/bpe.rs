//! Byte-pair encoding in a few flat arrays: Gemma's 262,144 tokens and half a million merges take 14 MB.
//!
//! The `tokenizers` crate only cuts added tokens out of a text and replaces spaces. Its own BPE model keeps maps of
//! strings, which take five times as much memory, and twice that while they are built. Tests compare the ids with the
//! crate's.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokenizers::models::bpe::BpeTrainer;
use tokenizers::{Model, Token};

use super::limits::TOKENS;
use crate::display::quote;

/// The id that stands for "no token", as in an empty slot.
const NONE: u32 = u32::MAX;

/// Tokens by id and by text.
#[derive(Debug)]
pub(super) struct TokenTable {
    text: String,
    /// The range in `text` of each id's token.
    places: Vec<TextPlace>,
    /// A hash table from text to id, with [`NONE`] in empty slots. Its length is a power of two, at most three quarters
    /// full.
    slots: Vec<u32>,
    hasher: RandomState,
    tokens: usize,
}

#[derive(Debug, Clone, Copy)]
struct TextPlace {
    start: u32,
    /// Bytes; [`NONE`] for an id without a token.
    length: u32,
}

impl Default for TokenTable {
    fn default() -> Self {
        let slots = vec![NONE; 16];
        TokenTable { text: String::new(), places: Vec::new(), slots, hasher: RandomState::new(), tokens: 0 }
    }
}

impl TokenTable {
    /// Adds a token.
    ///
    /// # Errors
    /// The fault in words: the id or the text is taken, or the id is too large for any Gemma.
    pub(super) fn add(&mut self, id: u32, text: &str) -> Result<(), String> {
        let index = id as usize;
        if index >= TOKENS {
            return Err(format!("the token {} has id {id}; ids end below {TOKENS}", quote(text)));
        }
        if 4 * (self.tokens + 1) > 3 * self.slots.len() {
            let more = vec![NONE; 2 * self.slots.len()];
            for id in std::mem::replace(&mut self.slots, more).into_iter().filter(|&id| id != NONE) {
                let slot = self.get(id).map(|text| self.slot(text));
                slot.into_iter().for_each(|slot| self.slots[slot] = id);
            }
        }
        let slot = self.slot(text);
        if self.slots[slot] != NONE {
            return Err(format!("the token {} is there twice", quote(text)));
        }
        if let Some(other) = self.get(id) {
            return Err(format!("the tokens {} and {} have the same id {id}", quote(other), quote(text)));
        }
        if index >= self.places.len() {
            self.places.resize(index + 1, TextPlace { start: 0, length: NONE });
        }
        let too_long = |_| "its tokens are longer than 4 GiB".to_owned();
        let start = u32::try_from(self.text.len()).map_err(too_long)?;
        let length = u32::try_from(text.len()).map_err(too_long)?;
        self.places[index] = TextPlace { start, length };
        self.text.push_str(text);
        self.slots[slot] = id;
        self.tokens += 1;
        Ok(())
    }

    /// The text of the token with this id.
    pub(super) fn get(&self, id: u32) -> Option<&str> {
        let place = self.places.get(id as usize).filter(|place| place.length != NONE)?;
        self.text.get(place.start as usize..)?.get(..place.length as usize)
    }

    /// The id of the token with this text.
    pub(super) fn id(&self, text: &str) -> Option<u32> {
        let id = self.slots[self.slot(text)];
        (id != NONE).then_some(id)
    }

    /// The number of ids: the largest one plus one.
    pub(super) fn end(&self) -> u32 {
        self.places.len() as u32
    }

    /// The slot that has the text's id, or the empty slot for it.
    fn slot(&self, text: &str) -> usize {
        let mask = self.slots.len() - 1;
        let mut at = self.hasher.hash_one(text) as usize & mask;
        while self.slots[at] != NONE && self.get(self.slots[at]) != Some(text) {
            at = (at + 1) & mask;
        }
        at
    }

    fn shrink(&mut self) {
        self.text.shrink_to_fit();
        self.places.shrink_to_fit();
    }
}

/// A merge of two tokens: the right one and the result. The left one follows from the position in [`Bpe::merges`].
#[derive(Debug, Clone, Copy)]
struct RankedMerge {
    right: u32,
    /// Among possible merges the one with the smallest rank is done first.
    rank: u32,
    into: u32,
}

/// BPE merge tables and the encoder.
#[derive(Debug)]
pub(super) struct Bpe {
    vocabulary: Arc<TokenTable>,
    /// The merges, sorted by the left token and then by the right one.
    merges: Vec<RankedMerge>,
    /// The index of each left token's first merge, and at the end the number of merges.
    starts: Vec<u32>,
    /// The tokens of the 256 bytes, for characters that have no token.
    bytes: Vec<Option<u32>>,
    rules: Rules,
}

/// Settings in which a tokenizer may differ from Gemma's.
#[derive(Debug, Default)]
pub(super) struct Rules {
    /// The token for characters that have neither a token nor byte tokens.
    pub(super) unknown: Option<String>,
    /// True if neighbouring unknown tokens are fused into one.
    pub(super) fuses_unknown: bool,
    /// True if a text that is a token itself is encoded as it, without merges.
    pub(super) ignores_merges: bool,
}

/// A token in the text being encoded.
#[derive(Debug, Clone, Copy)]
struct Symbol {
    id: u32,
    /// Length in bytes; 0 after the token has been merged into the one before it.
    length: usize,
    /// Indices of the symbols before and after this one in the text.
    before: usize,
    behind: usize,
}

impl Bpe {
    /// `merges`: left token, right token and result, in the order of their ranks. If a pair is listed twice, the last
    /// one counts.
    pub(super) fn new(mut vocabulary: TokenTable, merges: impl IntoIterator<Item = [u32; 3]>, rules: Rules) -> Bpe {
        vocabulary.shrink();
        let mut sorted: Vec<_> =
            (0..).zip(merges).map(|(rank, [left, right, into])| (left, RankedMerge { right, rank, into })).collect();
        sorted.sort_unstable_by_key(|(left, merge)| (*left, merge.right, Reverse(merge.rank)));
        sorted.dedup_by_key(|(left, merge)| (*left, merge.right));
        let mut starts = Vec::with_capacity(vocabulary.end() as usize + 1);
        let mut from = 0;
        for id in 0..=vocabulary.end() {
            from += sorted[from..].iter().take_while(|(left, _)| *left < id).count();
            starts.push(from as u32);
        }
        let merges = sorted.into_iter().map(|(_, merge)| merge).collect::<Box<[_]>>().into_vec();
        let bytes = (0..=u8::MAX).map(|byte| vocabulary.id(&format!("<{byte:#04X}>"))).collect();
        Bpe { vocabulary: Arc::new(vocabulary), merges, starts, bytes, rules }
    }

    /// The table of the vocabulary's tokens.
    pub(super) fn vocabulary(&self) -> &Arc<TokenTable> {
        &self.vocabulary
    }

    /// True if a text that is a token itself is encoded as it, without merges ([`Rules::ignores_merges`]).
    pub(super) fn ignores_merges(&self) -> bool {
        self.rules.ignores_merges
    }

    /// The merge of the tokens `left` and `right`, if the table has one.
    fn find(&self, left: u32, right: u32) -> Option<RankedMerge> {
        let [from, to] = [left, left.checked_add(1)?].map(|id| self.starts.get(id as usize).copied());
        let merges = self.merges.get(from? as usize..to? as usize)?;
        Some(merges[merges.binary_search_by_key(&right, |merge| merge.right).ok()?])
    }

    /// Splits a text into tokens of single characters, or of their bytes.
    fn characters(&self, text: &str) -> Result<Vec<Symbol>, String> {
        let mut symbols: Vec<Symbol> = Vec::with_capacity(text.len());
        let mut unknown: Option<Symbol> = None;
        let push = |symbols: &mut Vec<Symbol>, id, length| {
            let at = symbols.len();
            symbols.push(Symbol { id, length, before: at.wrapping_sub(1), behind: at + 1 });
        };
        for (at, c) in text.char_indices() {
            let character = &text[at..at + c.len_utf8()];
            if let Some(id) = self.vocabulary.id(character) {
                unknown.take().into_iter().for_each(|u| push(&mut symbols, u.id, u.length));
                push(&mut symbols, id, character.len());
                continue;
            }
            let bytes: Option<Vec<u32>> = character.bytes().map(|byte| self.bytes[usize::from(byte)]).collect();
            if let Some(bytes) = bytes {
                bytes.into_iter().for_each(|id| push(&mut symbols, id, 1));
                continue;
            }
            let Some(name) = &self.rules.unknown else { continue };
            let id = self.vocabulary.id(name).ok_or_else(|| format!("its unknown token {} is none", quote(name)))?;
            match &mut unknown {
                Some(symbol) if self.rules.fuses_unknown => symbol.length += character.len(),
                _ => {
                    let new = Symbol { id, length: character.len(), before: 0, behind: 0 };
                    unknown.replace(new).into_iter().for_each(|u| push(&mut symbols, u.id, u.length));
                }
            }
        }
        unknown.into_iter().for_each(|u| push(&mut symbols, u.id, u.length));
        Ok(symbols)
    }

    /// Merges neighbours until no merge applies: the smallest rank first, and among equal ranks the leftmost pair.
    fn merge(&self, symbols: &mut Vec<Symbol>) {
        let pair = |symbols: &[Symbol], at: usize| {
            let (left, right) = (symbols.get(at)?, symbols.get(symbols.get(at)?.behind)?);
            let merge = self.find(left.id, right.id)?;
            Some(Reverse((merge.rank, at, merge.into)))
        };
        let mut queue: BinaryHeap<_> = (0..symbols.len()).filter_map(|at| pair(symbols, at)).collect();
        while let Some(Reverse((_, at, into))) = queue.pop() {
            let left = symbols[at];
            let Some(&right) = symbols.get(left.behind) else { continue };
            // Outdated if one of the two has been merged since.
            if left.length == 0 || self.find(left.id, right.id).is_none_or(|merge| merge.into != into) {
                continue;
            }
            symbols[left.behind].length = 0;
            symbols[at] = Symbol { id: into, length: left.length + right.length, ..left };
            symbols[at].behind = right.behind;
            if let Some(next) = symbols.get_mut(right.behind) {
                next.before = at;
            }
            queue.extend(pair(symbols, left.before));
            queue.extend(pair(symbols, at));
        }
        symbols.retain(|symbol| symbol.length > 0);
    }
}

impl Model for Bpe {
    type Trainer = BpeTrainer;

    fn tokenize(&self, text: &str) -> tokenizers::Result<Vec<Token>> {
        if self.rules.ignores_merges
            && let Some(id) = self.vocabulary.id(text)
        {
            return Ok(vec![Token::new(id, String::new(), (0, text.len()))]);
        }
        let mut symbols = self.characters(text)?;
        self.merge(&mut symbols);
        let mut end = 0;
        let token = |symbol: Symbol| {
            let start = end;
            end += symbol.length;
            Token::new(symbol.id, String::new(), (start, end))
        };
        Ok(symbols.into_iter().map(token).collect())
    }

    fn token_to_id(&self, token: &str) -> Option<u32> {
        self.vocabulary.id(token)
    }

    fn id_to_token(&self, id: u32) -> Option<String> {
        self.vocabulary.get(id).map(str::to_owned)
    }

    fn get_vocab(&self) -> HashMap<String, u32> {
        (0..self.vocabulary.end()).filter_map(|id| Some((self.id_to_token(id)?, id))).collect()
    }

    fn get_vocab_size(&self) -> usize {
        self.vocabulary.tokens
    }

    fn save(&self, _: &Path, _: Option<&str>) -> tokenizers::Result<Vec<PathBuf>> {
        Err("a tokenizer is read, and not written".into())
    }

    fn get_trainer(&self) -> BpeTrainer {
        BpeTrainer::default()
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::Random;
    use super::*;
    use tokenizers::models::bpe::BPE;

    /// Random tokens and merges over a few characters, in this model and in the crate's. Some pairs occur twice.
    fn pair_of_models(random: &mut Random, rules: Rules) -> (Bpe, BPE) {
        let alphabet = ["a", "b", "c", "ä", "▁", "😀", "<"];
        let mut texts: Vec<String> = vec!["<unk>".into()];
        texts.extend(alphabet.iter().filter(|_| random.below(8) > 0).map(|&c| c.to_owned()));
        for byte in 0..=u8::MAX {
            if random.below(3) > 0 {
                texts.push(format!("<{byte:#04X}>"));
            }
        }
        let (mut pairs, first) = (Vec::new(), texts.len());
        for _ in 0..random.below(60) {
            let mut part = || match random.below(2) {
                0 if texts.len() > first => texts[first + random.below((texts.len() - first) as u32) as usize].clone(),
                _ => texts[1 + random.below(first as u32 - 1) as usize].clone(),
            };
            let (left, right) = (part(), part());
            let both = format!("{left}{right}");
            if both.len() < 24 && !texts.contains(&both) {
                texts.push(both);
            }
            pairs.push((left, right));
        }
        pairs.retain(|(left, right)| texts.contains(&format!("{left}{right}")));
        let mut vocabulary = TokenTable::default();
        let ids: Vec<u32> = (0..texts.len() as u32).map(|i| 3 * i + 1).rev().collect();
        texts.iter().zip(&ids).for_each(|(text, id)| vocabulary.add(*id, text).unwrap());
        let id = |text: &str| vocabulary.id(text).unwrap();
        let merges: Vec<_> = pairs.iter().map(|(l, r)| [id(l), id(r), id(&format!("{l}{r}"))]).collect();
        let vocab = texts.iter().cloned().zip(ids).collect::<std::collections::HashMap<_, _>>();
        let mut theirs = BPE::builder()
            .vocab_and_merges(vocab.into_iter().collect::<tokenizers::models::bpe::Vocab>(), pairs)
            .fuse_unk(rules.fuses_unknown)
            .byte_fallback(true)
            .ignore_merges(rules.ignores_merges);
        if let Some(unknown) = &rules.unknown {
            theirs = theirs.unk_token(unknown.clone());
        }
        (Bpe::new(vocabulary, merges, rules), theirs.build().unwrap())
    }

    #[test]
    fn any_text_has_the_tokens_that_the_tokenizers_crate_makes() {
        let mut random = Random(0x0062_7065);
        for round in 0..400 {
            let unknown = (round % 5 > 0).then(|| "<unk>".to_owned());
            let rules = Rules { unknown, fuses_unknown: round % 2 == 0, ignores_merges: round % 7 == 0 };
            let (ours, theirs) = pair_of_models(&mut random, rules);
            for _ in 0..40 {
                let characters = ["a", "b", "c", "ä", "▁", "😀", "<", "é", "\n", "日"];
                let text: String = (0..random.below(24)).map(|_| characters[random.below(10) as usize]).collect();
                let tokens = |found: Vec<Token>| found.into_iter().map(|t| (t.id, t.offsets)).collect::<Vec<_>>();
                let want = tokens(theirs.tokenize(&text).unwrap());
                assert_eq!(tokens(ours.tokenize(&text).unwrap()), want, "round {round}: {text:?}");
            }
            assert_eq!(ours.get_vocab(), theirs.get_vocab());
            assert_eq!(ours.get_vocab_size(), theirs.get_vocab_size());
        }
    }

    #[test]
    fn an_unknown_character_without_a_token_for_it_is_an_error() {
        let mut vocabulary = TokenTable::default();
        vocabulary.add(7, "a").unwrap();
        let bpe = Bpe::new(vocabulary, [], Rules { unknown: Some("<unk>".into()), ..Rules::default() });
        assert_eq!(bpe.tokenize("aa").unwrap().len(), 2);
        assert!(bpe.tokenize("ab").unwrap_err().to_string().contains("unknown token <unk>"));
        assert_eq!(
            (bpe.find(NONE, 0).is_none(), bpe.find(7, 7).is_none(), bpe.find(8, 0).is_none()),
            (true, true, true)
        );
    }

    #[test]
    fn tokens_that_contradict_each_other_are_refused() {
        let mut vocabulary = TokenTable::default();
        vocabulary.add(1, "a").unwrap();
        let error = |vocabulary: &mut TokenTable, id, text| vocabulary.add(id, text).unwrap_err();
        assert!(error(&mut vocabulary, 2, "a").contains("the token a is there twice"));
        assert!(error(&mut vocabulary, 1, "b").contains("the tokens a and b have the same id 1"));
        assert!(error(&mut vocabulary, TOKENS as u32, "c").contains("ids end below"));
        assert_eq!((vocabulary.get(0), vocabulary.get(1), vocabulary.id("b")), (None, Some("a"), None));
    }
}
