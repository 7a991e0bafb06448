//! The contents of a tokenizer.json: tokens, merges and added tokens, read into arrays without a string for each.

use std::fmt;

use serde::de::{Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use tokenizers::AddedToken;

use crate::display::quote;
use crate::text::bpe::{Bpe, Rules, TokenTable};
use crate::text::limits::{ADDED, LONGEST, MERGES, most};

/// The fields of a tokenizer.json that encoding and decoding need.
#[derive(Deserialize)]
pub(super) struct TokenizerFile {
    #[serde(default)]
    version: Option<String>,
    #[serde(default)]
    added_tokens: Vec<ListedToken>,
    model: ModelFile,
}

/// An added token with the id that the file gives it.
#[derive(Deserialize)]
pub(super) struct ListedToken {
    pub(super) id: u32,
    #[serde(flatten)]
    pub(super) token: AddedToken,
}

#[derive(Deserialize)]
struct ModelFile {
    vocab: TokenTable,
    merges: Merges,
    unk_token: Option<String>,
    #[serde(default)]
    fuse_unk: Option<bool>,
    #[serde(default)]
    ignore_merges: Option<bool>,
}

impl TokenizerFile {
    /// Builds the encoder, and lists the added tokens, which are cut out of a text before merges.
    ///
    /// # Errors
    /// The fault in words.
    pub(super) fn assemble(self) -> Result<(Bpe, Vec<ListedToken>), String> {
        if let Some(version) = self.version.filter(|version| version != "1.0") {
            return Err(format!("its version is {}, not 1.0", quote(&version)));
        }
        let model = self.model;
        let tokens = (0..model.vocab.end()).filter_map(|id| model.vocab.get(id));
        let longest = tokens.chain(self.added_tokens.iter().map(|listed| &*listed.token.content)).map(str::len).max();
        for (found, most, what) in [
            (self.added_tokens.len(), ADDED, "added tokens"),
            (model.merges.ends.len(), most(MERGES, model.vocab.end() as usize), "merges"),
            (longest.unwrap_or(0), LONGEST, "bytes in a token"),
        ] {
            if found > most {
                return Err(format!("it has {found} {what}; at most {most} make sense"));
            }
        }
        let merges = model.merges.resolve(&model.vocab)?;
        let rules = Rules {
            unknown: model.unk_token,
            fuses_unknown: model.fuse_unk.unwrap_or(false),
            ignores_merges: model.ignore_merges.unwrap_or(false),
        };
        Ok((Bpe::new(model.vocab, merges, rules), self.added_tokens))
    }
}

impl<'de> Deserialize<'de> for TokenTable {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Tokens;
        impl<'de> Visitor<'de> for Tokens {
            type Value = TokenTable;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("tokens with their ids")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<TokenTable, A::Error> {
                let mut vocabulary = TokenTable::default();
                while let Some((token, id)) = map.next_entry::<String, u32>()? {
                    vocabulary.add(id, &token).map_err(A::Error::custom)?;
                }
                Ok(vocabulary)
            }
        }
        deserializer.deserialize_map(Tokens)
    }
}

/// Pairs of tokens as text, stored one after the other.
#[derive(Default)]
struct Merges {
    text: String,
    /// The end of each pair's left part and right part in the text.
    ends: Vec<[usize; 2]>,
}

impl Merges {
    fn push(&mut self, left: &str, right: &str) {
        self.text.push_str(left);
        let middle = self.text.len();
        self.text.push_str(right);
        self.ends.push([middle, self.text.len()]);
    }

    /// The pairs as ids: left, right and result.
    fn resolve(self, vocabulary: &TokenTable) -> Result<Vec<[u32; 3]>, String> {
        let id = |text: &str| vocabulary.id(text).ok_or_else(|| format!("its merges name {}, no token", quote(text)));
        let mut start = 0;
        let ids = |&[middle, end]: &[usize; 2]| {
            let (left, right, both) = (&self.text[start..middle], &self.text[middle..end], &self.text[start..end]);
            start = end;
            Ok([id(left)?, id(right)?, id(both)?])
        };
        self.ends.iter().map(ids).collect()
    }
}

/// A pair: one text with a space in between, or a list of two.
struct MergedPair(String, String);

impl<'de> Deserialize<'de> for MergedPair {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = MergedPair;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("two tokens")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<MergedPair, E> {
                match text.split_once(' ') {
                    Some((left, right)) if !right.contains(' ') => Ok(MergedPair(left.to_owned(), right.to_owned())),
                    _ => Err(E::custom(format_args!("the merge {} is not of two tokens", quote(text)))),
                }
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<MergedPair, A::Error> {
                let two = [list.next_element()?, list.next_element()?, list.next_element()?];
                let [Some(left), Some(right), None] = two else {
                    return Err(A::Error::custom("a merge is not of two tokens"));
                };
                Ok(MergedPair(left, right))
            }
        }
        deserializer.deserialize_any(Either)
    }
}

impl<'de> Deserialize<'de> for Merges {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs;
        impl<'de> Visitor<'de> for Pairs {
            type Value = Merges;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a list of pairs of tokens")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Merges, A::Error> {
                let mut merges = Merges::default();
                while let Some(MergedPair(left, right)) = list.next_element()? {
                    merges.push(&left, &right);
                }
                Ok(merges)
            }
        }
        deserializer.deserialize_seq(Pairs)
    }
}
