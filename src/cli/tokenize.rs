//! `kiln tokenize`: text to ids, ids to text, messages to both, without a model's weights.

use std::io::{Read, Write};
use std::path::PathBuf;

use serde::Serialize;

use crate::engine::ModelFiles;
use crate::text::{ChatTemplate, Message, Tokenizer, parse_ids};
use crate::{Error, Result};

/// Turns text into token ids, or ids into text; prints one JSON object.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct TokenizeArgs {
    /// Model directory, of which only the tokenizer's files are read [default: the built-in demo model]
    #[arg(short, long, value_name = "DIR")]
    pub model: Option<PathBuf>,
    /// Turn comma-separated ids into {"text"}
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
    /// Do not open the model's turn behind the messages
    #[arg(long, requires = "chat")]
    pub no_generation_prompt: bool,
    /// The text, ids or messages [default: standard input]
    #[arg(value_name = "TEXT", allow_negative_numbers = true)]
    pub input: Option<String>,
}

/// Runs the command on standard input and output.
///
/// # Errors
/// [`Error::Input`]: files, text, ids or messages are not understood. [`Error::Failed`]: the output cannot be written.
pub fn run(args: &TokenizeArgs) -> Result<()> {
    let (stdin, stdout) = (std::io::stdin(), std::io::stdout());
    let files = ModelFiles::from(args.model.clone());
    tokenize(args, &files.tokenizer()?, || files.template(), stdin.lock(), stdout.lock())
}

/// The command, with its inputs and outputs as arguments. `template` is only called for `--chat`, so that a broken
/// template matters to nothing else.
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
        None => super::read_text(stdin)?,
    };
    let answer = if args.decode {
        TokenizeAnswer { text: Some(tokenizer.decode(&parse_ids(&input)?, args.skip_special)?), ids: None }
    } else if args.chat {
        let messages: Vec<Message> = serde_json::from_str(&input).map_err(|e| {
            Error::input(
                format!("the messages are not understood: {e}"),
                r#"give a JSON list such as [{"role": "user", "content": "Hello"}]"#,
            )
        })?;
        let text = template()?.render(&messages, !args.no_generation_prompt)?;
        let ids = tokenizer.encode(&text, false)?;
        TokenizeAnswer { text: Some(text), ids: Some(ids) }
    } else {
        TokenizeAnswer { text: None, ids: Some(tokenizer.encode(&input, !args.no_bos)?) }
    };
    let json = serde_json::to_string(&answer)
        .map_err(|e| Error::failed(format!("the answer is no JSON: {e}"), "report this"))?;
    super::print_to(stdout, &(json + "\n"))
}

/// The printed object. It is serialised directly: a JSON value for each of millions of ids would take 32 bytes.
#[derive(Serialize)]
struct TokenizeAnswer {
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ids: Option<Vec<u32>>,
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        args: TokenizeArgs,
    }

    fn dir() -> PathBuf {
        PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/tokenizer"))
    }

    fn call(words: &[&str], stdin: &[u8]) -> Result<String> {
        let args = Command::try_parse_from(std::iter::once(&"tokenize").chain(words))
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

    #[test]
    fn bad_input_is_named_with_exit_code_2() {
        for (words, stdin, what) in [
            (&["--decode", "2,seven"][..], &b""[..], "seven"),
            (&["--decode", "2,512"], b"", "512"),
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
