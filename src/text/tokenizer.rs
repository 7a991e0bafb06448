//! Gemma's tokenizer. The `tokenizers` crate cuts added tokens out of a text, bpe.rs encodes the text between them, and
//! a table decodes ids.
//!
//! Decoding is done here, so that whole sequences and streams of tokens share one definition. Tests compare ids and
//! texts with the crate's. The code implements Gemma's decoder only, so a file with another decoder is refused.

mod encoder;
mod file;
mod ids;
mod kind;
#[cfg(test)]
mod tests;

pub use encoder::TextEncoder;
pub use ids::{parse_id, parse_ids};

use file::TokenizerFile;
use kind::TokenizerKind;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use tokenizers::normalizers::Replace;
use tokenizers::{AddedToken, AddedVocabulary, Model as _, OffsetType};

use super::bpe::Bpe;
use super::calls::{CallMarks, MARKED, THOUGHT, is_mark};
use super::chat::Rendered;
use super::pieces::{DecodedPiece, PieceTable, push_text};
use super::recent::Recent;
use super::spellings::Spellings;
use super::stream::StreamDecoder;
use super::vocabulary;
use super::windows::{Encoded, LONGEST_TOKEN, WINDOW, Windows};
use crate::display::quote;
use crate::error::{Setting, Text, text};
use crate::model::checkpoint::gguf::GgufVocabulary;
use crate::model::{json, text_file};
use crate::{Error, Result};

/// The tokenizer's file in a model directory.
const FILE: &str = "tokenizer.json";

const REMEDY: &str = "use the tokenizer.json that came with the Gemma model";

/// The tokens that end a turn in the chat formats of Gemma 3 and Gemma 4.
const END_OF_TURN: [&str; 2] = ["<end_of_turn>", "<turn|>"];

/// Largest tokenizer.json that is read, in bytes. Gemma 3's has 33 MB.
const MAX_FILE: usize = 128 << 20;
/// Most bytes of text encoded at once, if the tokenizer's text cannot be cut.
const MAX_WHOLE: usize = 4 << 20;

/// A tokenizer of Gemma's kind: byte-pair encoding with byte fallback and "▁" for spaces. Added tokens are split off.
#[derive(Debug)]
pub struct Tokenizer {
    model: Bpe,
    /// The normaliser that replaces spaces by "▁".
    normalizer: Replace,
    /// The added tokens, which are cut out of a text first.
    added: AddedVocabulary,
    pieces: Arc<PieceTable>,
    /// The ids of the special tokens around calls ([`MARKED`]) that the vocabulary has.
    marks: Arc<[u32]>,
    /// A token that ends a reply, in addition to Gemma's own.
    end: Option<u32>,
    /// True if a long text can be encoded in windows: each token depends only on the text that it stands for.
    can_cut: bool,
    /// Built for the first text that spells a special token.
    verbatim: OnceLock<Verbatim>,
    recent: Recent,
}

/// The data for encoding text whose spellings of special tokens stay text.
#[derive(Debug)]
struct Verbatim {
    spellings: Spellings,
    /// The added tokens without the special ones.
    added: AddedVocabulary,
}

impl Tokenizer {
    /// Opens `dir/tokenizer.json`. Gemma's own has 33 MB: open it while the weights load.
    ///
    /// # Errors
    /// [`Error::Input`] when the directory has no tokenizer, or the file's tokenizer is not of Gemma's kind.
    pub fn open(dir: &Path) -> Result<Self> {
        let path = dir.join(FILE);
        let Some(bytes) = text_file::read_bytes(&path, MAX_FILE, REMEDY)? else {
            return Err(match dir.is_dir() {
                true => missing(dir),
                false => Error::unreadable(&path, &std::io::ErrorKind::NotFound.into()),
            });
        };
        Self::parse(&bytes, &path.display().to_string())
    }

    /// Opens a tokenizer from the bytes of a `tokenizer.json`, such as the one embedded in the executable.
    ///
    /// # Errors
    /// [`Error::Input`] when they are not a tokenizer of Gemma's kind.
    pub fn from_bytes(tokenizer_json: &[u8]) -> Result<Self> {
        Self::parse(tokenizer_json, FILE)
    }

    fn parse(bytes: &[u8], name: &str) -> Result<Self> {
        let not_a_tokenizer =
            |e: &dyn std::fmt::Display| Error::input(format!("{name} is not a tokenizer: {e}"), REMEDY);
        json::check(bytes).map_err(|e| not_a_tokenizer(&e))?;
        let kind: TokenizerKind = serde_json::from_slice(bytes).map_err(|e| not_a_tokenizer(&e))?;
        if let Some(difference) = kind.find_difference() {
            return Err(Error::input(format!("{name} is not a tokenizer of Gemma's kind: {difference}"), REMEDY));
        }
        let file: TokenizerFile = serde_json::from_slice(bytes).map_err(|e| not_a_tokenizer(&e))?;
        let (model, listed) = file.assemble().map_err(|e| not_a_tokenizer(&e))?;
        let (ids, tokens): (Vec<u32>, Vec<AddedToken>) = listed.into_iter().map(|l| (l.id, l.token)).unzip();
        let tokenizer = Self::of(model, &tokens)?;
        let taken = tokens.iter().map(|token| tokenizer.token_id(&token.content));
        let mut others = ids.iter().zip(&tokens).zip(taken).filter(|((listed, _), taken)| Some(**listed) != *taken);
        if let Some(((listed, token), Some(taken))) = others.next() {
            let token = quote(&token.content);
            log::warn!("{name} gives the added token {token} the id {listed}, its vocabulary {taken}: that is taken");
        }
        Ok(tokenizer)
    }

    /// Builds a tokenizer from a GGUF file's vocabulary. Its ids are those of the model's tokenizer.json.
    ///
    /// # Errors
    /// [`Error::Input`] when it is not a tokenizer of Gemma's kind.
    pub fn from_vocabulary(vocabulary: &GgufVocabulary) -> Result<Self> {
        let (model, added) = vocabulary::assemble(vocabulary)?;
        Self::of(model, &added)
    }

    fn of(model: Bpe, tokens: &[AddedToken]) -> Result<Self> {
        let wrong = |e: tokenizers::Error| Error::input(format!("the tokenizer is wrong: {e}"), REMEDY);
        let normalizer = Replace::new(" ", "▁").map_err(wrong)?;
        // Some files do not mark the tokens of calls as special, but text that spells one must stay text.
        let special =
            |token: &AddedToken| AddedToken { special: token.special || is_mark(&token.content), ..token.clone() };
        let tokens: &[AddedToken] = &tokens.iter().map(special).collect::<Vec<_>>();
        let mut added = AddedVocabulary::new();
        added.add_tokens(tokens, &model, Some(&normalizer));
        let pieces = Arc::new(PieceTable::gather(model.vocabulary(), &added)?);
        let strips = tokens.iter().any(|t| t.single_word || t.lstrip || t.rstrip);
        let is_plain = !strips && !model.ignores_merges();
        // Each token stands for its own characters, regardless of those around them.
        let can_cut = is_plain && pieces.longest().is_some_and(|bytes| bytes <= LONGEST_TOKEN);
        let recent = Recent::new(pieces.longest().unwrap_or(LONGEST_TOKEN));
        let marks = MARKED.iter().flat_map(CallMarks::tokens).filter_map(|mark| added.get_vocab().get(mark).copied());
        let marks = marks.collect();
        Ok(Self { model, normalizer, added, pieces, marks, end: None, can_cut, verbatim: OnceLock::new(), recent })
    }

    /// The ids of `text`. With `add_bos` they start with `<bos>`, even for empty text.
    ///
    /// Special tokens spelled out in the text become their ids. A `<bos>` in the text does not replace the one asked
    /// for.
    ///
    /// # Errors
    /// [`Error::Input`] when the tokenizer lacks a wanted `<bos>`, or cannot encode the text.
    pub fn encode(&self, text: &str, add_bos: bool) -> Result<Vec<u32>> {
        let mut ids = self.begin(add_bos)?;
        self.encode_whole(text, &self.added, &mut ids)?;
        Ok(ids)
    }

    /// The ids of rendered messages. Special tokens written by the template become their ids; those spelled in a
    /// message stay text.
    ///
    /// # Errors
    /// [`Error::Input`] when the tokenizer lacks `<bos>`, which every prompt begins with, or cannot encode the text.
    pub fn encode_rendered(&self, rendered: &Rendered) -> Result<Vec<u32>> {
        self.require_bos()?;
        let mut ids = Vec::new();
        let Some(mark) = rendered.mark else {
            self.encode_whole(&rendered.text, &self.added, &mut ids)?;
            return Ok(ids);
        };
        let verbatim = self.verbatim();
        for (text, special) in verbatim.spellings.split(&rendered.text) {
            self.encode_whole(&text.replace(mark, ""), &verbatim.added, &mut ids)?;
            ids.extend(special);
        }
        Ok(ids)
    }

    /// The ids of `text` after `<bos>`, for text that is data: spellings of special tokens stay text.
    ///
    /// # Errors
    /// [`Error::Input`] when the tokenizer lacks `<bos>`, or cannot encode the text.
    pub fn encode_verbatim(&self, text: &str) -> Result<Vec<u32>> {
        let mut ids = self.begin(true)?;
        self.encode_whole(text, &self.verbatim().added, &mut ids)?;
        Ok(ids)
    }

    /// `text` with `mark` inside of each special token that it spells; `None` if it spells none.
    pub(super) fn mark_spellings(&self, text: &str, mark: char) -> Option<String> {
        self.verbatim().spellings.mark(text, mark)
    }

    fn verbatim(&self) -> &Verbatim {
        self.verbatim.get_or_init(|| {
            let mut added = self.added.clone();
            // The crate's name for encoding special tokens as ordinary text.
            added.set_encode_special_tokens(true);
            Verbatim { spellings: Spellings::gather(&added), added }
        })
    }

    /// An encoder for text that arrives in pieces. Its ids are those of [`encode`](Self::encode).
    ///
    /// # Errors
    /// [`Error::Input`] when the tokenizer lacks a wanted `<bos>`.
    pub fn encoder(&self, add_bos: bool) -> Result<TextEncoder<'_>> {
        Ok(TextEncoder::new(self, self.begin(add_bos)?))
    }

    fn encode_whole(&self, text: &str, added: &AddedVocabulary, ids: &mut Vec<u32>) -> Result<()> {
        let encode = |part: &str| self.encode_part(part, added, OffsetType::Byte);
        if self.can_cut && text.len() > WINDOW {
            return Windows::default().finish(text, encode, ids);
        }
        if self.can_cut {
            let verbatim = !std::ptr::eq(added, &self.added);
            ids.extend(self.recent.encode(text, verbatim, encode)?);
            return Ok(());
        }
        if text.len() > MAX_WHOLE {
            return Err(Error::input(
                format!("the text has {} bytes, and this tokenizer encodes at most {MAX_WHOLE} at once", text.len()),
                "give it in smaller parts",
            ));
        }
        ids.extend(self.encode_part(text, added, OffsetType::None)?.ids);
        Ok(())
    }

    /// Encodes `text` as the crate's `encode` does, but with the given added tokens.
    fn encode_part(&self, text: &str, added: &AddedVocabulary, offsets: OffsetType) -> Result<Encoded> {
        let encode = || {
            let mut split = added.extract_and_normalize(Some(&self.normalizer), text);
            // The file's own splitting at spaces has no effect, since no spaces are left.
            split.tokenize(|part| self.model.tokenize(part.get()))?;
            split.into_encoding(None, 0, offsets)
        };
        let encoding = encode().map_err(|e: tokenizers::Error| {
            Error::input(format!("the tokenizer cannot encode the text: {e}"), "use the model's own tokenizer.json")
        })?;
        Ok(Encoded { ids: encoding.get_ids().to_vec(), offsets: encoding.get_offsets().to_vec() })
    }

    /// A lower bound on the tokens of `text`, from its length. It rejects too long a text without encoding it.
    pub fn fewest_tokens(&self, text: &str) -> usize {
        self.pieces.longest().map_or(0, |longest| text.len().div_ceil(longest))
    }

    /// The text of `ids`. Tokens are joined and "▁" becomes a space. A run of byte tokens becomes the text it encodes
    /// in UTF-8, or one U+FFFD per byte if the whole run is not valid. `skip_special` leaves special tokens out.
    ///
    /// # Errors
    /// [`Error::Input`] naming the first id that has no token.
    pub fn decode(&self, ids: &[u32], skip_special: bool) -> Result<String> {
        let mut stream = self.stream(skip_special);
        let mut text = String::new();
        for &id in ids {
            self.check(id)?;
            text.push_str(stream.push(id));
        }
        text.push_str(stream.finish());
        Ok(text)
    }

    /// The bytes of a token: its text in UTF-8, or the single byte of a byte token. Empty for an id without a token.
    pub fn bytes(&self, id: u32) -> Vec<u8> {
        match self.pieces.get(id) {
            Some((DecodedPiece::Text(spelled), _)) => {
                let mut text = String::with_capacity(spelled.len());
                push_text(spelled, &mut text);
                text.into_bytes()
            }
            Some((DecodedPiece::Byte(byte), _)) => vec![byte],
            None => Vec::new(),
        }
    }

    /// True if `id` stands for a single byte. Several such tokens may make up one character.
    pub fn is_byte(&self, id: u32) -> bool {
        matches!(self.pieces.get(id), Some((DecodedPiece::Byte(_), _)))
    }

    /// A decoder for ids that arrive one at a time. It keeps the tokenizer's table alive, but not the tokenizer.
    pub fn stream(&self, skip_special: bool) -> StreamDecoder {
        StreamDecoder::new(self.pieces.clone(), skip_special)
    }

    /// A decoder for the ids of a reply: of the special tokens it shows only those of calls.
    pub fn reply_stream(&self) -> StreamDecoder {
        self.stream(true).showing(self.marks.clone())
    }

    /// The vocabulary's tokens of call syntaxes ([`CallMarks`]) and of thoughts ([`THOUGHT`]).
    pub fn marks(&self) -> impl Iterator<Item = u32> {
        self.marks.iter().copied().chain(self.thought_marks().into_iter().flatten())
    }

    /// The tokens before and behind a thought ([`THOUGHT`]), where the vocabulary has both.
    pub fn thought_marks(&self) -> Option<[u32; 2]> {
        let [open, close] = THOUGHT.map(|mark| self.added.get_vocab().get(mark).copied());
        Some([open?, close?])
    }

    /// Checks that `id` has a token.
    ///
    /// # Errors
    /// [`Error::Input`] naming the id and the range.
    pub fn check(&self, id: u32) -> Result<()> {
        if self.pieces.get(id).is_some() {
            return Ok(());
        }
        let last = self.vocab_size().saturating_sub(1);
        Err(Error::input(format!("token id {id} is not one of the tokenizer's"), format!("use ids from 0 to {last}")))
    }

    /// The bytes of `id` in a text, with spaces restored. `None` for an id without a token and for special tokens,
    /// which stand for no text.
    pub fn bytes_of(&self, id: u32) -> Option<Vec<u8>> {
        let (_, is_special) = self.pieces.get(id)?;
        (!is_special).then(|| self.bytes(id))
    }

    /// The number of ids, added tokens included: the largest id plus one (262,145 for Gemma 3). The model's vocabulary
    /// may be padded past it.
    pub fn vocab_size(&self) -> usize {
        self.pieces.len()
    }

    /// The id of the token spelled `token`, if there is one.
    pub fn token_id(&self, token: &str) -> Option<u32> {
        self.added.token_to_id(token, &self.model)
    }

    /// `<bos>`, the first token of every sequence. `None` also if the vocabulary has it only as an ordinary token,
    /// which is not recognised in text.
    pub fn bos(&self) -> Option<u32> {
        self.added.get_vocab().get("<bos>").copied()
    }

    /// `<bos>`, with which every prompt of a trained model begins.
    ///
    /// # Errors
    /// [`Error::Input`] when the tokenizer lacks it.
    pub fn require_bos(&self) -> Result<u32> {
        self.bos().ok_or_else(|| without_bos(REMEDY))
    }

    /// The ids before a text's own: `<bos>`, if wanted.
    fn begin(&self, add_bos: bool) -> Result<Vec<u32>> {
        let leave_out = || without_bos(text!(REMEDY, ", or ask for ids without it", Setting::NoBos.aside()));
        if add_bos { Ok(vec![self.bos().ok_or_else(leave_out)?]) } else { Ok(Vec::new()) }
    }

    /// The id of `<eos>`, which ends a document.
    pub fn eos(&self) -> Option<u32> {
        self.token_id("<eos>")
    }

    /// The token that ends the answer of an instruction-tuned model: `<end_of_turn>`, or Gemma 4's `<turn|>`.
    pub fn end_of_turn(&self) -> Option<u32> {
        END_OF_TURN.iter().find_map(|token| self.token_id(token))
    }

    /// Adds a token that ends generation, if the vocabulary has one with this spelling.
    pub fn ending_with(self, token: Option<&str>) -> Tokenizer {
        let end = token.and_then(|token| self.token_id(token));
        Tokenizer { end, ..self }
    }

    /// The ids that end generation, as far as they exist: `<eos>`, the one that ends a turn, the token before a call's
    /// result, and the one of [`Tokenizer::ending_with`].
    pub fn stop_ids(&self) -> Vec<u32> {
        let results = MARKED.iter().filter_map(|marks| self.added.get_vocab().get(marks.result[0]).copied());
        let mut ids: Vec<u32> = self.eos().into_iter().chain(self.end_of_turn()).chain(results).collect();
        ids.extend(self.end.filter(|end| !ids.contains(end)));
        ids
    }

    #[cfg(test)]
    pub(super) fn added(&self) -> &AddedVocabulary {
        &self.added
    }
}

fn without_bos(remedy: impl Into<Text>) -> Error {
    Error::input("the tokenizer has no <bos> token", remedy)
}

fn missing(dir: &Path) -> Error {
    let other = match dir.join("tokenizer.model").exists() {
        true => " (its tokenizer.model is a form that Kiln does not read)",
        false => "",
    };
    Error::input(
        format!("{} has no {FILE}{other}", dir.display()),
        text!("put the model's tokenizer.json there; ", Setting::Tokens, " go without"),
    )
}
