//! Text compared with transformers: every golden case of the small tokenizer and of Gemma 3's.

mod common;

use common::{gemma3_tokenizer, golden};
use kiln::text::{ChatTemplate, Message, Tokenizer};
use serde::Deserialize;
use sha2::{Digest, Sha256};
use std::path::PathBuf;

#[derive(Deserialize)]
struct Golden {
    tokenizer_sha256: Option<String>,
    cases: Vec<Case>,
    decode: Vec<Decode>,
    streaming: Vec<Streaming>,
    chat: Vec<Chat>,
}

/// `ids` are without `<bos>`.
#[derive(Deserialize)]
struct Case {
    text: String,
    ids: Vec<u32>,
    decoded: String,
    decoded_skip_special: String,
}

#[derive(Deserialize)]
struct Decode {
    ids: Vec<u32>,
    decoded: String,
}

/// `prefixes[i]` is the text of `ids[..=i]`.
#[derive(Deserialize)]
struct Streaming {
    ids: Vec<u32>,
    prefixes: Vec<String>,
}

/// Either `text` and `ids`, or the `error` that the template raises.
#[derive(Deserialize)]
struct Chat {
    messages: Vec<Message>,
    add_generation_prompt: bool,
    text: Option<String>,
    ids: Option<Vec<u32>>,
    error: Option<String>,
}

fn golden_dir() -> PathBuf {
    golden("tokenizer")
}

fn read(name: &str) -> Golden {
    serde_json::from_slice(&std::fs::read(golden_dir().join(name)).unwrap()).unwrap()
}

/// Streams `ids`. Text that was returned must never change, and all of it together must be `text`.
fn assert_streams(tokenizer: &Tokenizer, ids: &[u32], skip_special: bool, text: &str) {
    let mut stream = tokenizer.stream(skip_special);
    let mut streamed = String::new();
    for &id in ids {
        streamed.push_str(stream.push(id));
        assert!(text.starts_with(&streamed), "{ids:?}: {streamed:?} is not the start of {text:?}");
    }
    streamed.push_str(stream.finish());
    assert_eq!(streamed, text, "{ids:?}");
}

fn assert_text(tokenizer: &Tokenizer, golden: &Golden) {
    assert!(!golden.cases.is_empty() && !golden.decode.is_empty() && !golden.streaming.is_empty());
    for case in &golden.cases {
        let ids = tokenizer.encode(&case.text, false).unwrap();
        assert_eq!(ids, case.ids, "{:?}", case.text);
        let with_bos = tokenizer.encode(&case.text, true).unwrap();
        assert_eq!((with_bos[0], &with_bos[1..]), (2, &case.ids[..]), "{:?}", case.text);
        for (skip_special, decoded) in [(false, &case.decoded), (true, &case.decoded_skip_special)] {
            assert_eq!(&tokenizer.decode(&ids, skip_special).unwrap(), decoded, "{:?}", case.text);
            assert_streams(tokenizer, &ids, skip_special, decoded);
        }
    }
    for case in &golden.decode {
        assert_eq!(tokenizer.decode(&case.ids, false).unwrap(), case.decoded, "{:?}", case.ids);
        assert_streams(tokenizer, &case.ids, false, &case.decoded);
    }
    for case in &golden.streaming {
        assert_eq!(case.ids.len(), case.prefixes.len());
        for (i, prefix) in case.prefixes.iter().enumerate() {
            assert_eq!(&tokenizer.decode(&case.ids[..=i], false).unwrap(), prefix);
            assert_streams(tokenizer, &case.ids[..=i], false, prefix);
        }
    }
}

fn assert_chat(tokenizer: &Tokenizer, template: &ChatTemplate, golden: &Golden) {
    assert!(!golden.chat.is_empty());
    for case in &golden.chat {
        match (template.render(&case.messages, case.add_generation_prompt), &case.error) {
            (Ok(text), None) => {
                assert_eq!(Some(&text), case.text.as_ref());
                assert_eq!(Some(tokenizer.encode(&text, false).unwrap()), case.ids, "{text:?}");
                assert_prompt(tokenizer, template, case);
            }
            (Err(error), Some(raised)) => {
                assert!(error.to_string().contains(raised) && error.exit_code() == 2, "{error}");
            }
            (result, error) => panic!("{:?}: {result:?} instead of {error:?}", case.messages),
        }
    }
}

/// A prompt's ids are transformers', except for a message that spells a special token, which here stays text.
fn assert_prompt(tokenizer: &Tokenizer, template: &ChatTemplate, case: &Chat) {
    let rendered = template.render_for(tokenizer, &case.messages, case.add_generation_prompt).unwrap();
    let ids = tokenizer.encode_rendered(&rendered).unwrap();
    let (text, golden) = (case.text.as_ref().unwrap(), case.ids.as_ref().unwrap());
    assert_eq!(&rendered.into_text(), text);
    if !text.contains("injected") {
        assert_eq!(&ids, golden, "{text:?}");
        return;
    }
    assert_eq!(&tokenizer.decode(&ids, false).unwrap(), text);
    let begin = tokenizer.token_id("<start_of_turn>").unwrap();
    let turns = |ids: &[u32]| ids.iter().filter(|id| **id == begin).count();
    assert_eq!(turns(&ids) + 1, turns(golden), "{text:?}");
}

#[test]
fn the_small_tokenizer_agrees_with_transformers() {
    let golden = read("golden_tok_small.json");
    let tokenizer = Tokenizer::open(&golden_dir()).unwrap();
    assert_eq!(tokenizer.vocab_size(), 512);
    assert_text(&tokenizer, &golden);
    assert_chat(&tokenizer, &ChatTemplate::open(&golden_dir()).unwrap(), &golden);
}

#[test]
fn the_built_in_template_renders_what_the_models_own_does() {
    let golden = read("golden_tok_small.json");
    let tokenizer = Tokenizer::open(&golden_dir()).unwrap();
    let empty = tempfile::tempdir().unwrap();
    let (own, built_in) = (ChatTemplate::open(&golden_dir()).unwrap(), ChatTemplate::open(empty.path()).unwrap());
    assert_chat(&tokenizer, &built_in, &golden);
    let more = r#"[
        [{"role": "system", "content": [{"type": "text", "text": " s "}]}, {"role": "user", "content": "\u001c u \u3000"}],
        [{"role": "user", "content": [{"type": "text", "text": " what? \n"}]}],
        [{"role": "user", "content": []}, {"role": "model", "content": "m"}, {"role": "user", "content": "<b>&amp;"}]
    ]"#;
    for messages in serde_json::from_str::<Vec<Vec<Message>>>(more).unwrap() {
        assert_eq!(built_in.render(&messages, true).unwrap(), own.render(&messages, true).unwrap(), "{messages:?}");
    }
}

#[test]
fn gemma_3s_tokenizer_agrees_with_transformers() {
    let golden = read("gemma3_cases.json");
    let Some(bytes) = gemma3_tokenizer() else { return };
    let sha256: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(Some(sha256), golden.tokenizer_sha256, "tokenizer.json is another file");
    let start = std::time::Instant::now();
    let tokenizer = Tokenizer::from_bytes(&bytes).unwrap();
    println!("opened it in {:?}", start.elapsed());
    assert_eq!(tokenizer.vocab_size(), 262_145);
    assert_eq!((tokenizer.bos(), tokenizer.eos(), tokenizer.end_of_turn()), (Some(2), Some(1), Some(106)));
    assert_text(&tokenizer, &golden);
    assert_chat(&tokenizer, &ChatTemplate::from_files(None, None).unwrap(), &golden);
}
