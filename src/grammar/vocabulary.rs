//! The vocabulary for grammars: the bytes of each token, in a trie.

use std::sync::Arc;

use llguidance::ParserFactory;
use llguidance::earley::SlicedBiasComputer;
use llguidance::toktrie::{ApproximateTokEnv, InferenceCapabilities, SimpleVob, TokEnv, TokRxInfo, TokTrie};

use super::LIMITS;
use super::memory::GrammarMemory;
use crate::text::Tokenizer;
use crate::{Error, Result};

/// The most bytes of a token that a document may contain: llguidance's trie counts the bytes of a path in a `u8`.
const LONGEST_TOKEN: usize = 255;

/// A tokenizer's tokens, shared by all grammars.
pub(super) struct Vocabulary {
    pub(super) factory: ParserFactory,
    /// The tokens that end a document.
    pub(super) stops: Vec<u32>,
    /// The tokens that begin with a digit.
    pub(super) digits: SimpleVob,
    /// The memory of the grammars over these tokens.
    pub(super) memory: GrammarMemory,
    /// Special tokens of the call syntax, with their spelling.
    pub(super) marks: Vec<(String, u32)>,
    /// The special tokens that begin and end a thought, if the vocabulary has them.
    pub(super) thought: Option<[u32; 2]>,
    /// The tokens that a thought may contain, and the one that ends it.
    pub(super) thoughts: SimpleVob,
}

impl Vocabulary {
    /// Builds the trie of `tokenizer`'s tokens. Gemma 3's 262,145 tokens take one to two seconds and 120 MB.
    ///
    /// # Errors
    /// Input: no stop token is given, or one is not in the tokenizer. Failed: llguidance rejects the tokens.
    pub(super) fn gather(tokenizer: &Tokenizer, stops: &[u32]) -> Result<Vocabulary> {
        let count = tokenizer.vocab_size() as u32;
        let stops: Vec<u32> = stops.iter().copied().filter(|&stop| stop < count).collect();
        let Some(&end) = stops.first() else {
            return Err(Error::input(
                "this tokenizer has no token that ends an answer, so that no grammar can end",
                "use the tokenizer.json that came with the model",
            ));
        };
        let is_content = |id: u32, bytes: &[u8]| {
            let sound =
                !bytes.is_empty() && bytes.len() <= LONGEST_TOKEN && !bytes.contains(&TokTrie::SPECIAL_TOKEN_MARKER);
            sound && !stops.contains(&id)
        };
        let words: Vec<Vec<u8>> = (0..count)
            .map(|id| tokenizer.bytes_of(id).filter(|bytes| is_content(id, bytes)).unwrap_or_default())
            .collect();
        let thought = tokenizer.thought_marks();
        let [mut digits, mut thoughts] = [(); 2].map(|()| SimpleVob::alloc(count as usize));
        for (id, word) in (0..count).zip(&words) {
            digits.set(id as usize, word.first().is_some_and(u8::is_ascii_digit));
            thoughts.set(id as usize, !word.is_empty() || thought.is_some_and(|[_, close]| close == id));
        }
        let trie = TokTrie::from(&TokRxInfo::new(count, end), &words);
        let env: TokEnv = Arc::new(ApproximateTokEnv::new(trie));
        let mut factory =
            ParserFactory::new(&env, InferenceCapabilities::default(), &SlicedBiasComputer::json_slices())
                .map_err(|e| Error::failed(format!("the vocabulary makes no trie: {e}"), "report this"))?;
        factory.quiet();
        *factory.limits_mut() = LIMITS;
        let marks = tokenizer.marks().filter(|mark| !stops.contains(mark));
        let marks = marks.map(|mark| (String::from_utf8_lossy(&tokenizer.bytes(mark)).into_owned(), mark)).collect();
        Ok(Vocabulary { factory, stops, digits, memory: GrammarMemory::default(), marks, thought, thoughts })
    }

    pub(super) fn trie(&self) -> &TokTrie {
        self.factory.tok_env().tok_trie()
    }

    /// True if `token` may occur in a document or end it.
    pub(super) fn has(&self, token: u32) -> bool {
        let is_mark = || self.marks.iter().any(|(_, mark)| *mark == token);
        !self.trie().token(token).is_empty() || self.stops.contains(&token) || is_mark()
    }

    /// A special token of calls for Lark: the token itself, or its spelling in a vocabulary without it.
    pub(super) fn mark(&self, spelled: &str) -> String {
        match self.marks.iter().find(|(spelling, _)| spelling == spelled) {
            Some((_, mark)) => format!("<[{mark}]>"),
            None => serde_json::Value::from(spelled).to_string(),
        }
    }
}
