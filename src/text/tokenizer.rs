//! Gemma's tokenizer. The `tokenizers` crate turns text into ids. A table of our own turns ids into text.
//!
//! Encoding is byte-pair merging over whole pieces of text between added tokens; the crate does it well. Decoding is
//! done here, because one definition must serve both whole sequences and streams of tokens. Tests compare it with the
//! crate's. It holds for Gemma's decoder only, so a file with another decoder is refused.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use serde::Deserialize;
use serde_json::json;
use tokenizers::{AddedVocabulary, Model as _, OffsetType, PreTokenizer as _};

use super::chat::Rendered;
use super::pieces::{Piece, Pieces};
use super::recent::Recent;
use super::scored;
use super::spellings::Spellings;
use super::stream::StreamDecoder;
use super::windows::{Encoded, LONGEST_TOKEN, WINDOW, Windows};
use crate::display::quote;
use crate::error::{Setting, Text, text};
use crate::model::checkpoint::gguf::Token;
use crate::model::{json, text_file};
use crate::{Error, Result};

/// The tokenizer's file in a model directory.
const FILE: &str = "tokenizer.json";

const REMEDY: &str = "use the tokenizer.json that came with the Gemma 3 model";

/// Largest tokenizer.json that is read, in bytes. Gemma 3's has 33 MB.
const MAX_FILE: usize = 256 << 20;
/// Most bytes of text encoded at once, if the tokenizer's text cannot be cut.
const MAX_WHOLE: usize = 4 << 20;

/// A tokenizer of Gemma's kind: byte-pair encoding with byte fallback and "▁" for spaces. Added tokens are split off.
#[derive(Debug)]
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    pieces: Arc<Pieces>,
    /// Whether a long text can be encoded in windows: no token depends on more of the text than itself.
    can_cut: bool,
    /// Gathered for the first message that spells a special token.
    verbatim: OnceLock<Verbatim>,
    recent: Recent,
}

/// What it takes to encode text in which special tokens are spelled but not meant.
#[derive(Debug)]
struct Verbatim {
    spellings: Spellings,
    /// The added tokens without the special ones.
    added: AddedVocabulary,
}

impl Tokenizer {
    /// Opens `dir/tokenizer.json`. Gemma's own (33 MB) takes one to two seconds, mostly in the crate: open it while the
    /// weights load.
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
        let mut inner = tokenizers::Tokenizer::from_bytes(bytes).map_err(|e| not_a_tokenizer(&e))?;
        // A file's truncation and padding are for training batches. `encode` adds BOS itself.
        inner.with_padding(None).with_post_processor(None::<tokenizers::PostProcessorWrapper>);
        inner.with_truncation(None).map_err(|e| Error::input(format!("{name}: {e}"), REMEDY))?;
        Self::of(inner)
    }

    /// Makes a tokenizer of a GGUF file's tokens, indexed by id. Its ids are those of the model's tokenizer.json.
    ///
    /// # Errors
    /// [`Error::Input`] when they are not a tokenizer of Gemma's kind.
    pub fn from_tokens(tokens: &[Token]) -> Result<Self> {
        Self::of(scored::assemble(tokens)?)
    }

    fn of(inner: tokenizers::Tokenizer) -> Result<Self> {
        let pieces = Arc::new(Pieces::gather(&inner)?);
        let can_cut = pieces.longest().is_some_and(|bytes| bytes <= LONGEST_TOKEN) && has_plain_tokens(&inner);
        let recent = Recent::new(pieces.longest().unwrap_or(LONGEST_TOKEN));
        Ok(Self { inner, pieces, can_cut, verbatim: OnceLock::new(), recent })
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
        self.encode_whole(text, self.inner.get_added_vocabulary(), &mut ids)?;
        Ok(ids)
    }

    /// The ids of rendered messages. Special tokens that the template has written become their ids. Those that a
    /// message spells stay text.
    ///
    /// # Errors
    /// [`Error::Input`] when the tokenizer lacks `<bos>`, which every prompt begins with, or cannot encode the text.
    pub fn encode_rendered(&self, rendered: &Rendered) -> Result<Vec<u32>> {
        self.require_bos()?;
        let mut ids = Vec::new();
        let Some(mark) = rendered.mark else {
            self.encode_whole(&rendered.text, self.inner.get_added_vocabulary(), &mut ids)?;
            return Ok(ids);
        };
        let verbatim = self.verbatim();
        for (text, special) in verbatim.spellings.split(&rendered.text) {
            self.encode_whole(&text.replace(mark, ""), &verbatim.added, &mut ids)?;
            ids.extend(special);
        }
        Ok(ids)
    }

    /// The ids of `text` behind `<bos>`, for text that is data: special tokens that it spells stay text.
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
            let mut added = self.inner.get_added_vocabulary().clone();
            // The crate's name for: as the text that they are.
            added.set_encode_special_tokens(true);
            Verbatim { spellings: Spellings::gather(&added), added }
        })
    }

    /// An encoder for text that comes in pieces. Its ids are those of [`encode`](Self::encode).
    ///
    /// # Errors
    /// [`Error::Input`] when the tokenizer lacks a wanted `<bos>`.
    pub fn encoder(&self, add_bos: bool) -> Result<TextEncoder<'_>> {
        let ids = self.begin(add_bos)?;
        Ok(TextEncoder { tokenizer: self, windows: Windows::default(), text: String::new(), ids })
    }

    fn encode_whole(&self, text: &str, added: &AddedVocabulary, ids: &mut Vec<u32>) -> Result<()> {
        let encode = |part: &str| self.encode_part(part, added, OffsetType::Byte);
        if self.can_cut && text.len() > WINDOW {
            return Windows::default().finish(text, encode, ids);
        }
        if self.can_cut {
            let verbatim = !std::ptr::eq(added, self.inner.get_added_vocabulary());
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

    /// Does what the crate's `encode` does, with a choice of the added tokens that are looked for.
    fn encode_part(&self, text: &str, added: &AddedVocabulary, offsets: OffsetType) -> Result<Encoded> {
        let encode = || {
            let mut split = added.extract_and_normalize(self.inner.get_normalizer(), text);
            if let Some(splitter) = self.inner.get_pre_tokenizer() {
                splitter.pre_tokenize(&mut split)?;
            }
            split.tokenize(|part| self.inner.get_model().tokenize(part.get()))?;
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

    /// The bytes that a token stands for: its text in UTF-8, or the one byte of a byte token. Empty for an id without a token.
    pub fn bytes(&self, id: u32) -> Vec<u8> {
        match self.pieces.get(id) {
            Some((Piece::Text(text), _)) => text.into(),
            Some((Piece::Byte(byte), _)) => vec![byte],
            None => Vec::new(),
        }
    }

    /// A decoder for ids that come one at a time. It keeps the tokenizer's table alive, but not the tokenizer.
    pub fn stream(&self, skip_special: bool) -> StreamDecoder {
        StreamDecoder::new(self.pieces.clone(), skip_special)
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

    /// The bytes that `id` stands for in a text, spaces restored. `None` where no token has this id, and for special tokens:
    /// they stand for no text.
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
        self.inner.token_to_id(token)
    }

    /// `<bos>`, the first token of every sequence; `None` also if the vocabulary has it, but as no token that is found in
    /// text.
    pub fn bos(&self) -> Option<u32> {
        self.inner.get_added_vocabulary().get_vocab().get("<bos>").copied()
    }

    /// `<bos>`, without which no prompt is what the model was trained on.
    ///
    /// # Errors
    /// [`Error::Input`] when the tokenizer lacks it.
    pub fn require_bos(&self) -> Result<u32> {
        self.bos().ok_or_else(|| without_bos(REMEDY))
    }

    /// The ids before those of a text: `<bos>`, if it is wanted.
    fn begin(&self, add_bos: bool) -> Result<Vec<u32>> {
        let leave_out = || without_bos(text!(REMEDY, ", or ask for ids without it", Setting::NoBos.aside()));
        if add_bos { Ok(vec![self.bos().ok_or_else(leave_out)?]) } else { Ok(Vec::new()) }
    }

    /// `<eos>`, where a document ends.
    pub fn eos(&self) -> Option<u32> {
        self.token_id("<eos>")
    }

    /// `<end_of_turn>`, where the answer of an instruction-tuned model ends.
    pub fn end_of_turn(&self) -> Option<u32> {
        self.token_id("<end_of_turn>")
    }

    /// The ids that end generation: `<eos>` and `<end_of_turn>`, if they exist.
    pub fn stop_ids(&self) -> Vec<u32> {
        self.eos().into_iter().chain(self.end_of_turn()).collect()
    }

    #[cfg(test)]
    pub(super) fn inner(&self) -> &tokenizers::Tokenizer {
        &self.inner
    }
}

/// Whether each token stands for its own characters and nothing around them.
fn has_plain_tokens(tokenizer: &tokenizers::Tokenizer) -> bool {
    let far = match tokenizer.get_model() {
        tokenizers::ModelWrapper::BPE(model) => model.ignore_merges,
        _ => true,
    };
    let added = tokenizer.get_added_vocabulary().get_added_tokens_decoder();
    !far && !added.values().any(|t| t.single_word || t.lstrip || t.rstrip)
}

/// Encodes text that comes in pieces, in memory that does not grow with the text.
#[derive(Debug)]
pub struct TextEncoder<'a> {
    tokenizer: &'a Tokenizer,
    windows: Windows,
    /// Text that is not encoded yet.
    text: String,
    ids: Vec<u32>,
}

impl TextEncoder<'_> {
    /// Takes more text. Returns the ids that are certain now.
    ///
    /// # Errors
    /// [`Error::Input`] when the tokenizer cannot encode the text.
    pub fn push(&mut self, text: &str) -> Result<Vec<u32>> {
        self.text.push_str(text);
        let t = self.tokenizer;
        if t.can_cut {
            let encode = |window: &str| t.encode_part(window, t.inner.get_added_vocabulary(), OffsetType::Byte);
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
        let (t, added) = (self.tokenizer, self.tokenizer.inner.get_added_vocabulary());
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

/// The fields that make a `tokenizer.json` one of Gemma's kind. They are checked before the `tokenizers` crate sees the
/// file, since it panics on some subword prefixes and normalizers.
#[derive(Deserialize)]
struct TokenizerKind {
    model: ModelKind,
    #[serde(default)]
    decoder: serde_json::Value,
    #[serde(default)]
    normalizer: serde_json::Value,
    #[serde(default)]
    pre_tokenizer: serde_json::Value,
    #[serde(default)]
    post_processor: serde_json::Value,
}

#[derive(Deserialize)]
struct ModelKind {
    #[serde(rename = "type")]
    name: String,
    #[serde(default)]
    byte_fallback: bool,
    dropout: Option<f64>,
    continuing_subword_prefix: Option<String>,
    end_of_word_suffix: Option<String>,
}

impl TokenizerKind {
    /// The first difference from Gemma's tokenizer.
    fn find_difference(&self) -> Option<&'static str> {
        // The decoder that `Pieces` and `StreamDecoder` reproduce.
        let decoder = json!({"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"},
            {"type": "Fuse"},
        ]});
        let normalizer = json!({"type": "Replace", "pattern": {"String": " "}, "content": "▁"});
        // That normalizer leaves no spaces to split at, so any behaviour will do.
        let splits_at_spaces = |v: &serde_json::Value| v["type"] == "Split" && v["pattern"] == json!({"String": " "});
        let filled = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
        let model = &self.model;
        [
            (model.name != "BPE", "its model is not BPE"),
            (!model.byte_fallback, "its model has no byte_fallback"),
            (model.dropout.is_some_and(|dropout| dropout != 0.0), "its model has dropout"),
            (filled(&model.continuing_subword_prefix), "its model has a continuing_subword_prefix"),
            (filled(&model.end_of_word_suffix), "its model has an end_of_word_suffix"),
            (self.decoder != decoder, "its decoder differs"),
            (self.normalizer != normalizer, "its normalizer is not Replace of spaces by ▁"),
            (
                !self.pre_tokenizer.is_null() && !splits_at_spaces(&self.pre_tokenizer),
                "its pre_tokenizer is not Split at spaces",
            ),
            (
                !self.post_processor.is_null() && self.post_processor["type"] != "TemplateProcessing",
                "its post_processor is not TemplateProcessing",
            ),
        ]
        .into_iter()
        .find_map(|(differs, what)| differs.then_some(what))
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

#[cfg(test)]
mod tests {
    use super::super::testing::{Random, small_tokenizer};
    use super::*;

    fn edited(edit: impl FnOnce(&mut serde_json::Value)) -> Result<Tokenizer> {
        let bytes = include_bytes!("../../tests/golden/tokenizer/tokenizer.json");
        let mut json: serde_json::Value = serde_json::from_slice(bytes).unwrap();
        edit(&mut json);
        Tokenizer::from_bytes(json.to_string().as_bytes())
    }

    #[test]
    fn bos_is_there_exactly_when_asked_for() {
        let tokenizer = small_tokenizer();
        assert_eq!(tokenizer.encode("", true).unwrap(), [2]);
        assert!(tokenizer.encode("", false).unwrap().is_empty());
        assert_eq!(tokenizer.encode("H", true).unwrap(), [2, 94]);
        assert_eq!(tokenizer.encode("<bos>H", true).unwrap(), [2, 2, 94]);
        assert_eq!((tokenizer.eos(), tokenizer.end_of_turn()), (Some(1), Some(11)));
        assert_eq!(tokenizer.stop_ids(), [1, 11]);
    }

    /// What it remembers of earlier texts changes no ids.
    #[test]
    fn texts_that_begin_alike_have_the_ids_of_the_whole() {
        let (tokenizer, mut random) = (small_tokenizer(), Random(0x7265_6365));
        let words = ["the ", "he", "llo", " ", "  ", "\n", "ß", "😀", "<bos>", "<start_of_turn>", "<", "Z", "▁"];
        let mut more =
            |count: u32| -> String { (0..count).map(|_| words[random.below(words.len() as u32) as usize]).collect() };
        let begin = more(4000);
        for i in 0..40 {
            let cut = begin.len() - 37 * i;
            let cut = (0..=cut).rev().find(|&at| begin.is_char_boundary(at)).unwrap();
            let text = format!("{}{}", &begin[..cut], more(30 * (i as u32 % 3)));
            let whole = tokenizer.inner().encode_fast(&text[..], false).unwrap();
            assert_eq!(tokenizer.encode(&text, false).unwrap(), whole.get_ids(), "text {i}");
            let fresh = small_tokenizer().encode_verbatim(&text).unwrap();
            assert!(tokenizer.encode_verbatim(&text).unwrap() == fresh, "text {i}");
        }
    }

    /// Encoding a megabyte at once took 350 MB. Text without a place to cut it was refused beyond 4 MiB.
    #[test]
    fn long_text_is_encoded_in_windows_with_the_ids_of_the_whole() {
        let tokenizer = small_tokenizer();
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
        let mixed = |random: &mut Random| {
            let mut text = String::new();
            while text.len() < 4 * WINDOW {
                text += words[random.below(words.len() as u32) as usize];
            }
            text
        };
        let texts = [
            mixed(&mut random),
            mixed(&mut random),
            "a".repeat(3 * WINDOW + 1),
            "😀".repeat(WINDOW),
            "\n".repeat(2 * WINDOW),
        ];
        for text in &texts {
            let whole = tokenizer.inner().encode_fast(text.as_str(), false).unwrap().get_ids().to_vec();
            assert!(tokenizer.encode(text, false).unwrap() == whole, "{}", &text[..20]);
            // In pieces too.
            let mut encoder = tokenizer.encoder(false).unwrap();
            let mut ids = Vec::new();
            let mut rest = text.as_str();
            while let Some(end) = (rest.len().min(50_000)..=rest.len()).find(|&at| at > 0 && rest.is_char_boundary(at))
            {
                ids.extend(encoder.push(&rest[..end]).unwrap());
                rest = &rest[end..];
            }
            ids.extend(encoder.finish().unwrap());
            assert!(ids == whole, "{}", &text[..20]);
        }
    }

    #[test]
    fn a_tokenizer_whose_text_cannot_be_cut_encodes_text_of_bounded_length() {
        let strips = edited(|json| json["added_tokens"][5]["lstrip"] = json!(true)).unwrap();
        assert_eq!(
            strips.encode(&"a ".repeat(WINDOW), false).unwrap(),
            small_tokenizer().encode(&"a ".repeat(WINDOW), false).unwrap()
        );
        let error = strips.encode(&"a".repeat(MAX_WHOLE + 1), false).map(|ids| ids.len()).unwrap_err();
        assert!(error.to_string().contains("the text has 4194305 bytes"), "{error}");
    }

    /// A token longer than a window's margin was not found where a window ended in it.
    #[test]
    fn a_long_special_token_is_found_wherever_it_stands() {
        let long = "ab".repeat(4000);
        let tokenizer = edited(|json| json["added_tokens"][5]["content"] = json!(long)).unwrap();
        let id = tokenizer.inner().token_to_id(&long).unwrap();
        let text = format!("{}{long}{}", "x".repeat(WINDOW - 4000), "y".repeat(WINDOW));
        assert_eq!(tokenizer.encode(&text, false).unwrap().iter().filter(|&&found| found == id).count(), 1);
    }

    #[test]
    fn a_texts_length_bounds_its_tokens() {
        let tokenizer = small_tokenizer();
        for text in ["Hello wörld, hello\n", "", "a", "▁▁▁", "<start_of_turn>", "       ", "😀"] {
            let (fewest, ids) = (tokenizer.fewest_tokens(text), tokenizer.encode(text, false).unwrap());
            assert!(fewest <= ids.len() && fewest >= text.len() / 64, "{fewest} of {}", ids.len());
        }
        // A token that strips blanks may stand for any number of bytes.
        let strips = edited(|json| json["added_tokens"][5]["lstrip"] = json!(true)).unwrap();
        assert_eq!(strips.fewest_tokens("hello"), 0);
    }

    /// `<bos>` was required of plain text only: rendered messages began with its characters.
    #[test]
    fn no_prompt_is_made_without_bos() {
        let without = edited(|json| {
            json["added_tokens"].as_array_mut().unwrap().retain(|token| token["content"] != "<bos>");
        })
        .unwrap();
        let rendered = Rendered { text: "<bos>H".into(), mark: None };
        for error in [without.encode("H", true).unwrap_err(), without.encode_rendered(&rendered).unwrap_err()] {
            assert!(error.to_string().contains("has no <bos> token"), "{error}");
        }
        assert_eq!(without.encode("H", false).unwrap(), [94]);
    }

    #[test]
    fn truncation_and_padding_in_the_file_are_for_training() {
        let tokenizer = edited(|json| {
            json["truncation"] =
                json!({"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0});
            json["padding"] = json!({"strategy": {"Fixed": 64}, "direction": "Left", "pad_to_multiple_of": null,
                "pad_id": 0, "pad_type_id": 0, "pad_token": "<pad>"});
        });
        let ids = small_tokenizer().encode("Hello wörld", true).unwrap();
        assert!(ids.len() > 2);
        assert_eq!(tokenizer.unwrap().encode("Hello wörld", true).unwrap(), ids);
    }

    #[test]
    fn an_id_without_a_token_is_named_with_the_range() {
        let message = small_tokenizer().decode(&[94, 512], false).unwrap_err().to_string();
        assert!(message.contains("512") && message.contains("0 to 511"), "{message}");
    }

    #[test]
    fn a_file_that_is_no_gemma_tokenizer_is_refused() {
        for bytes in [&b""[..], b"{}", b"[1,2]", b"\xff\xfe", br#"{"version":"1.0","model":{"type":"BPE"}}"#] {
            assert_eq!(Tokenizer::from_bytes(bytes).unwrap_err().exit_code(), 2);
        }
        let model = |key: &str, value| edited(|json| json["model"][key] = value).unwrap_err().to_string();
        assert!(model("type", json!("Unigram")).contains("not BPE"));
        assert!(model("byte_fallback", json!(false)).contains("byte_fallback"));
        assert!(model("dropout", json!(0.1)).contains("dropout"));
        // The tokenizers crate panics on this one.
        assert!(model("continuing_subword_prefix", json!("<0x41>")).contains("continuing_subword_prefix"));
        assert!(model("end_of_word_suffix", json!("</w>")).contains("end_of_word_suffix"));
        let error = edited(|json| json["decoder"] = json!({"type": "Fuse"})).unwrap_err();
        assert!(error.to_string().contains("decoder"), "{error}");
        let error = edited(|json| json["model"]["vocab"]["huge"] = json!(4_000_000_000_u32)).unwrap_err();
        assert!(error.to_string().contains("4000000000"), "{error}");
    }

    /// The last of the two ids counted.
    #[test]
    fn a_token_that_is_there_twice_is_refused() {
        let text = include_str!("../../tests/golden/tokenizer/tokenizer.json");
        let doubled = text.replacen("\"<pad>\": 0", "\"<pad>\": 0, \"<pad>\": 7", 1);
        assert_ne!(doubled, text);
        let error = Tokenizer::from_bytes(doubled.as_bytes()).unwrap_err();
        assert!(error.to_string().contains("tokenizer: <pad> is there twice at line"), "{error}");
    }

    #[test]
    fn a_token_stands_for_its_bytes_and_a_special_one_for_none() {
        let t = small_tokenizer();
        let text = "Hé \n▁x\u{1f600}";
        let bytes: Vec<u8> = t.encode(text, false).unwrap().iter().flat_map(|&id| t.bytes_of(id).unwrap()).collect();
        // A decoder makes spaces of both.
        assert_eq!(String::from_utf8(bytes).unwrap(), text.replace('▁', " "));
        assert_eq!((t.bytes_of(t.bos().unwrap()), t.bytes_of(u32::MAX)), (None, None));
    }

    #[test]
    fn a_directory_without_a_tokenizer_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let error = Tokenizer::open(dir.path()).unwrap_err();
        assert!(error.to_string().contains("has no tokenizer.json;"), "{error}");
        std::fs::write(dir.path().join("tokenizer.model"), b"").unwrap();
        assert!(Tokenizer::open(dir.path()).unwrap_err().to_string().contains("tokenizer.model"));
        let error = Tokenizer::open(&dir.path().join("absent")).unwrap_err();
        assert!(error.to_string().contains("does not exist"), "{error}");
    }

    #[test]
    fn ids_are_parsed_or_the_bad_word_is_named() {
        assert_eq!(parse_ids("2,17, 5\n").unwrap(), [2, 17, 5]);
        assert!(parse_ids(" \n").unwrap().is_empty());
        for (text, word) in
            [("2,x7", "x7"), ("2,,5", "\"\""), ("4294967296", "4294967296"), ("-1", "-1"), ("+5", "+5"), ("1.5", "1.5")]
        {
            let message = parse_ids(text).unwrap_err().to_string();
            assert!(message.contains(word), "{text}: {message}");
        }
    }
}
