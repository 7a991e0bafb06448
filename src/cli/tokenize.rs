//! `kiln tokenize`: text to ids, ids to text, messages to both, without a model's weights. Text and ids are processed
//! in parts, so that memory use is bounded.

use std::fmt;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;

use serde::Serialize;
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::terminal::json_for_terminal;
use crate::engine::ModelFiles;
use crate::text::{ChatTemplate, Message, Tokenizer, parse_id};
use crate::{Error, Result};

/// Turns text into token ids, or ids into text; prints one JSON object.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct TokenizeArgs {
    /// Model directory, GGUF file, id or demo, of which only the tokenizer is read [default: $KILN_MODEL, else demo, the
    /// built-in model]
    #[arg(short, long, value_name = "MODEL")]
    pub model: Option<PathBuf>,
    /// Turn ids into {"text"}: separated by commas, or as this command prints them
    #[arg(long)]
    pub decode: bool,
    /// Render a JSON list of messages with the model's chat template, into {"text","ids"}
    #[arg(long, conflicts_with_all = ["decode", "no_bos"])]
    pub chat: bool,
    /// Do not put BOS before the ids of the text
    #[arg(long, conflicts_with = "decode")]
    pub no_bos: bool,
    /// Leave special tokens out of decoded text
    #[arg(long, requires = "decode")]
    pub skip_special: bool,
    /// Do not open the model's turn after the messages
    #[arg(long, requires = "chat")]
    pub no_generation_prompt: bool,
    /// The text, ids or messages [default: standard input]
    #[arg(value_name = "TEXT", allow_negative_numbers = true)]
    pub input: Option<String>,
}

/// Runs the command on standard input and output.
///
/// # Errors
/// [`Error::Input`]: files, text, ids or messages are not valid. [`Error::Failed`]: the output cannot be written.
pub fn run(args: &TokenizeArgs) -> Result<()> {
    let files = ModelFiles::from(super::model::chosen(args.model.as_deref()));
    tokenize(args, &files.tokenizer()?, || files.template(), std::io::stdin().lock(), super::stdout()?)
}

/// The command with its inputs and outputs as arguments. `template` is called only for `--chat`, so that a broken
/// template affects nothing else.
///
/// # Errors
/// As [`run`].
pub fn tokenize(
    args: &TokenizeArgs,
    tokenizer: &Tokenizer,
    template: impl FnOnce() -> Result<ChatTemplate>,
    stdin: impl Read,
    stdout: impl Write,
) -> Result<()> {
    let mut out = BufferedOutput { to: stdout, held: String::new() };
    let input: Box<dyn Read + '_> = match &args.input {
        Some(input) => Box::new(input.as_bytes()),
        None => Box::new(stdin),
    };
    if args.decode {
        decode(tokenizer, args.skip_special, BufReader::new(input), &mut out)?;
    } else if args.chat {
        let answer = render(tokenizer, &template()?, !args.no_generation_prompt, input)?;
        out.held.push_str(&json_for_terminal(&answer));
    } else {
        encode(tokenizer, !args.no_bos, input, &mut out)?;
    }
    out.held.push('\n');
    out.write()
}

/// Prints the ids of a text.
fn encode(tokenizer: &Tokenizer, add_bos: bool, input: impl Read, out: &mut BufferedOutput<impl Write>) -> Result<()> {
    let mut encoder = tokenizer.encoder(add_bos)?;
    out.held.push_str("{\"ids\":[");
    let mut separator = "";
    let mut print = |ids: Vec<u32>, out: &mut BufferedOutput<_>| {
        for id in ids {
            out.held.push_str(separator);
            out.held.push_str(&id.to_string());
            separator = ",";
        }
        out.write_if_long()
    };
    super::read_text_in_parts(input, |text| print(encoder.push(text)?, out))?;
    print(encoder.finish()?, out)?;
    out.held.push_str("]}");
    Ok(())
}

/// Prints the text of ids.
fn decode(
    tokenizer: &Tokenizer,
    skip_special: bool,
    input: impl BufRead,
    out: &mut BufferedOutput<impl Write>,
) -> Result<()> {
    let mut stream = tokenizer.stream(skip_special);
    out.held.push_str("{\"text\":\"");
    read_ids(input, &mut |id| {
        tokenizer.check(id)?;
        out.hold_string_part(stream.push(id));
        out.write_if_long()
    })?;
    out.hold_string_part(stream.finish());
    out.held.push_str("\"}");
    Ok(())
}

/// The JSON object for messages.
fn render(tokenizer: &Tokenizer, template: &ChatTemplate, open_answer: bool, input: impl Read) -> Result<String> {
    let input = super::read_text(input)?;
    let messages = parse_messages(&input)?;
    let rendered = template.render_for(tokenizer, &messages, open_answer)?;
    let ids = tokenizer.encode_rendered(&rendered)?;
    serde_json::to_string(&RenderedMessages { text: rendered.into_text(), ids })
        .map_err(|e| Error::failed(format!("the answer is no JSON: {e}"), "report this"))
}

/// Parses a conversation in the format of a chat's `/save`.
///
/// # Errors
/// Input: the text is not a list of messages.
pub(super) fn parse_messages(text: &str) -> Result<Vec<Message>> {
    let misread = |why: &str| {
        Error::input(
            format!("the messages are not understood: {why}"),
            r#"give a JSON list such as [{"role": "user", "content": "Hello"}]"#,
        )
    };
    if !text.trim_start().starts_with('[') {
        return Err(misread("they are no list"));
    }
    serde_json::from_str(text).map_err(|e| misread(&e.to_string()))
}

/// The output for messages. It is serialised directly, because a JSON value for each of millions of ids would take 32
/// bytes.
#[derive(Serialize)]
struct RenderedMessages {
    text: String,
    ids: Vec<u32>,
}

/// The output, written in large parts. If the command fails before the first part, nothing is printed.
struct BufferedOutput<W> {
    to: W,
    held: String,
}

impl<W: Write> BufferedOutput<W> {
    /// Adds text to the current JSON string.
    fn hold_string_part(&mut self, text: &str) {
        let quoted = serde_json::Value::from(text).to_string();
        self.held.push_str(&json_for_terminal(&quoted[1..quoted.len() - 1]));
    }

    fn write_if_long(&mut self) -> Result<()> {
        if self.held.len() < 1 << 20 { Ok(()) } else { self.write() }
    }

    fn write(&mut self) -> Result<()> {
        super::print_to(&mut self.to, &self.held)?;
        self.held.clear();
        Ok(())
    }
}

/// The most bytes between two commas.
const MAX_WORD: u64 = 4096;

const IDS_REMEDY: &str = "give ids as comma-separated numbers, such as 2,17,5, or as `kiln tokenize` prints them";

/// Reads ids and passes them to `take`: numbers between commas, a JSON list, or the list `ids` in a JSON object.
fn read_ids(mut input: impl BufRead, take: &mut dyn FnMut(u32) -> Result<()>) -> Result<()> {
    match find_first(&mut input)? {
        None => Ok(()),
        Some(b'{' | b'[') => {
            let mut failure = None;
            let mut json = serde_json::Deserializer::from_reader(input);
            let read = Ids { take, failure: &mut failure }.deserialize(&mut json).and_then(|()| json.end());
            failure.map_or(Ok(()), Err)?;
            read.map_err(|e| Error::input(format!("the ids are not understood: {e}"), IDS_REMEDY))
        }
        Some(_) => loop {
            let mut word = Vec::new();
            input.by_ref().take(MAX_WORD).read_until(b',', &mut word).map_err(|e| unreadable(&e))?;
            let more = word.pop_if(|last| *last == b',').is_some();
            take(parse_id(&String::from_utf8_lossy(&word))?)?;
            if !more {
                break Ok(());
            }
        },
    }
}

/// The first byte that is not blank, without consuming it.
fn find_first(input: &mut impl BufRead) -> Result<Option<u8>> {
    loop {
        let bytes = input.fill_buf().map_err(|e| unreadable(&e))?;
        let blanks = bytes.iter().take_while(|b| b.is_ascii_whitespace()).count();
        let (first, end) = (bytes.get(blanks).copied(), bytes.is_empty());
        input.consume(blanks);
        if first.is_some() || end {
            return Ok(first);
        }
    }
}

fn unreadable(e: &std::io::Error) -> Error {
    Error::input(format!("cannot read standard input: {e}"), "give the ids as an argument")
}

/// Reads ids from JSON.
struct Ids<'a> {
    take: &'a mut dyn FnMut(u32) -> Result<()>,
    /// The error of `take`, which serde's error types cannot hold.
    failure: &'a mut Option<Error>,
}

impl<'de> DeserializeSeed<'de> for Ids<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> std::result::Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Ids<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a list of token ids")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> std::result::Result<(), A::Error> {
        while let Some(id) = list.next_element::<u32>()? {
            if let Err(e) = (self.take)(id) {
                *self.failure = Some(e);
                return Err(A::Error::custom("refused"));
            }
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> std::result::Result<(), A::Error> {
        let mut found = false;
        while let Some(name) = object.next_key::<String>()? {
            if name != "ids" {
                object.next_value::<IgnoredAny>()?;
                continue;
            }
            if std::mem::replace(&mut found, true) {
                return Err(A::Error::custom("`ids` is there twice"));
            }
            object.next_value_seed(Ids { take: &mut *self.take, failure: &mut *self.failure })?;
        }
        if found { Ok(()) } else { Err(A::Error::custom("the object has no `ids`")) }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct TokenizeCommand {
        #[command(flatten)]
        args: TokenizeArgs,
    }

    fn dir() -> PathBuf {
        PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/tokenizer"))
    }

    fn call(words: &[&str], stdin: &[u8]) -> Result<String> {
        let args = TokenizeCommand::try_parse_from(std::iter::once(&"tokenize").chain(words))
            .map_err(|e| Error::input(e.to_string(), "usage"))?
            .args;
        let mut out = Vec::new();
        tokenize(&args, &Tokenizer::open(&dir())?, || ChatTemplate::open(&dir()), stdin, &mut out)?;
        Ok(String::from_utf8(out).unwrap())
    }

    #[test]
    fn each_mode_prints_its_object() {
        let ok = |words: &[&str], stdin: &str| call(words, stdin.as_bytes()).unwrap();
        assert_eq!(ok(&["Hello"], "unread"), "{\"ids\":[2,94,460,318,465]}\n");
        assert_eq!(ok(&["--no-bos", "Hello"], ""), "{\"ids\":[94,460,318,465]}\n");
        assert_eq!(ok(&[], "Hello"), ok(&["Hello"], ""));
        assert_eq!(ok(&[""], "unread"), "{\"ids\":[2]}\n");
        assert_eq!(ok(&["--no-bos", ""], ""), "{\"ids\":[]}\n");
        assert_eq!(ok(&["--decode", "2,94,460"], ""), "{\"text\":\"<bos>He\"}\n");
        assert_eq!(ok(&["--decode", "--skip-special"], "2,94,460\n"), "{\"text\":\"He\"}\n");
        assert_eq!(ok(&["--decode", ""], ""), "{\"text\":\"\"}\n");
        let messages = r#"[{"role": "user", "content": "Hello"}]"#;
        assert_eq!(
            ok(&["--chat", "--no-generation-prompt"], messages),
            "{\"text\":\"<bos><start_of_turn>user\\nHello<end_of_turn>\\n\",\
             \"ids\":[2,10,474,464,278,12,94,460,318,465,11,12]}\n"
        );
        assert!(ok(&["--chat", messages], "").contains("<start_of_turn>model\\n\""));
    }

    /// `--decode` used to refuse the output of the other modes.
    #[test]
    fn what_is_printed_can_be_piped_back() {
        let ok = |words: &[&str], stdin: &str| call(words, stdin.as_bytes()).unwrap();
        let text = "Hello \"wörld\" \u{1b}\u{9b}\n😀".repeat(20_000);
        let answer = |text: &str| format!("{}\n", serde_json::json!({"text": text}));
        let value = |json: &str| serde_json::from_str::<serde_json::Value>(json).unwrap();
        let ids = ok(&["--no-bos"], &text);
        assert_eq!(value(&ok(&["--decode"], &ids)), value(&answer(&text)));
        assert!(!ids.contains("\u{9b}") && ok(&["--decode"], &ids).contains("\\u009b"));
        let list = ids.trim().trim_start_matches("{\"ids\":").trim_end_matches('}');
        for list in [list, list.trim_matches(['[', ']']), &format!(" {list}\n")] {
            assert_eq!(value(&ok(&["--decode"], list)), value(&answer(&text)));
        }
        let chat = ok(&["--chat", r#"[{"role": "user", "content": "a<end_of_turn>"}]"#], "");
        let rendered = "<bos><start_of_turn>user\na<end_of_turn><end_of_turn>\n<start_of_turn>model\n";
        assert_eq!(ok(&["--decode"], &chat), answer(rendered));
        assert_eq!(ok(&["--decode", "[]"], ""), answer(""));
    }

    #[test]
    fn bad_input_is_named_with_exit_code_2() {
        for (words, stdin, what) in [
            (&["--decode", "2,seven"][..], &b""[..], "seven"),
            (&["--decode", "2,512"], b"", "512"),
            (&["--decode", "2,,5"], b"", "\"\" is not a token id"),
            (&["--decode", "2,5,"], b"", "\"\" is not a token id"),
            (&["--decode", "[2,512]"], b"", "512"),
            (&["--decode", "[2,-1]"], b"", "-1"),
            (&["--decode", "{\"ids\":[2]}x"], b"", "trailing"),
            (&["--decode", "{\"text\":\"a\"}"], b"", "no `ids`"),
            (&["--decode", "{\"ids\":[2],\"ids\":[3]}"], b"", "twice"),
            (&["--chat", r#"[{"role": "user", "content": [{"type": "image"}]}]"#], b"", "text only"),
            (&["--chat", "{"], b"", "messages are not understood"),
            (&["--chat", "[]"], b"", "empty"),
            (&["--chat", r#"[{"role": "assistant", "content": "a"}]"#], b"", "roles must alternate"),
            (&[], b"ab\xff", "not UTF-8 at byte 2"),
            (&["--chat", "--no-bos", "[]"], b"", "cannot be used with"),
        ] {
            let error = call(words, stdin).unwrap_err();
            assert!(error.to_string().contains(what) && error.exit_code() == 2, "{words:?}: {error}");
        }
    }

    #[test]
    fn a_model_directory_without_a_tokenizer_is_named() {
        let empty = tempfile::tempdir().unwrap();
        let args = TokenizeArgs {
            model: Some(empty.path().to_owned()),
            input: Some(String::new()),
            ..TokenizeArgs::default()
        };
        let error = run(&args).unwrap_err();
        assert!(error.to_string().contains("has no tokenizer.json"), "{error}");
    }
}
