//! `kiln tokenize`: text to ids, ids to text, messages to both, without a model's weights.

use super::terminal::json_for_terminal;
use crate::engine::ModelFiles;
use crate::text::{ChatTemplate, Message, Tokenizer, parse_ids};
use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use std::io::{Read, Write};
use std::path::PathBuf;

/// Turns text into token ids, or ids into text; prints one JSON object.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct TokenizeArgs {
    /// Model directory, GGUF file, id or demo, of which only the tokenizer is read [default: $KILN_MODEL, else demo,
    /// the built-in model]
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
    let input = match &args.input {
        Some(input) => input.clone(),
        None => super::read_from(stdin, "standard input", u64::MAX, super::unreadable_input)?,
    };
    let (mut text, mut ids) = (None, None);
    if args.decode {
        let mut stream = tokenizer.stream(args.skip_special);
        let decoded = text.insert(String::new());
        for id in read_ids(&input)? {
            tokenizer.check(id)?;
            *decoded += stream.push(id);
        }
        *decoded += stream.finish();
    } else if args.chat {
        let rendered = template()?.render_for(tokenizer, &parse_messages(&input)?, !args.no_generation_prompt)?;
        ids = Some(tokenizer.encode_rendered(&rendered)?);
        text = Some(rendered.into_text());
    } else {
        let mut encoder = tokenizer.encoder(!args.no_bos)?;
        ids.insert(encoder.push(&input)?).extend(encoder.finish()?);
    }
    let answer = serde_json::to_string(&Tokenized { text, ids })
        .map_err(|e| Error::failed(format!("the answer is no JSON: {e}"), "report this"))?;
    super::print_to(stdout, &format!("{}\n", json_for_terminal(&answer)))
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
/// The object that is printed.
#[derive(Serialize)]
struct Tokenized {
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ids: Option<Vec<u32>>,
}

/// Ids as this command prints them. The other fields do not matter.
#[derive(Deserialize)]
struct PrintedIds {
    ids: Vec<u32>,
}

/// Parses ids: numbers between commas, a JSON list, or the list `ids` in a JSON object.
fn read_ids(text: &str) -> Result<Vec<u32>> {
    let read = match text.trim_start().as_bytes().first() {
        Some(b'{') => serde_json::from_str(text).map(|printed: PrintedIds| printed.ids),
        Some(b'[') => serde_json::from_str(text),
        _ => return parse_ids(text),
    };
    read.map_err(|e| {
        let remedy = "give ids as comma-separated numbers, such as 2,17,5, or as `kiln tokenize` prints them";
        Error::input(format!("the ids are not understood: {e}"), remedy)
    })
}

#[cfg(test)]
mod tests {
    use crate::model::architecture::GEMMA3;
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
        tokenize(&args, &Tokenizer::open(&dir())?, || ChatTemplate::open(&dir(), &GEMMA3), stdin, &mut out)?;
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
            (&["--decode", "{\"text\":\"a\"}"], b"", "missing field `ids`"),
            (&["--decode", "{\"ids\":[2],\"ids\":[3]}"], b"", "duplicate field `ids`"),
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
