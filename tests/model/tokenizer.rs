//! Text compared with transformers: every golden case of the small tokenizer and of Gemma 3's.

use crate::common::gguf::{GgufFile, Value, add_tokenizer};
use crate::common::{self, gemma3_tokenizer, golden};
use kiln::model::architecture::GEMMA3;
use kiln::model::checkpoint::gguf::{Gguf, GgufVocabulary, TokenKind, VocabularyToken};
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
    assert_chat(&tokenizer, &ChatTemplate::open(&golden_dir(), &GEMMA3).unwrap(), &golden);
}

#[test]
fn the_built_in_template_renders_what_the_models_own_does() {
    let golden = read("golden_tok_small.json");
    let tokenizer = Tokenizer::open(&golden_dir()).unwrap();
    let empty = tempfile::tempdir().unwrap();
    let (own, built_in) =
        (ChatTemplate::open(&golden_dir(), &GEMMA3).unwrap(), ChatTemplate::open(empty.path(), &GEMMA3).unwrap());
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
    assert_chat(&tokenizer, &ChatTemplate::from_files(None, None, &GEMMA3).unwrap(), &golden);
}

/// The tokenizer of a GGUF file that was made of a tokenizer.json.
fn from_gguf(tokenizer_json: &[u8], change: impl FnOnce(&mut GgufFile)) -> kiln::Result<Tokenizer> {
    let mut file = GgufFile::default();
    add_tokenizer(&mut file, tokenizer_json);
    change(&mut file);
    Tokenizer::from_vocabulary(&Gguf::from_bytes(file.bytes())?.vocabulary()?)
}

fn of_scores(tokens: Vec<VocabularyToken>) -> kiln::Result<Tokenizer> {
    Tokenizer::from_vocabulary(&GgufVocabulary { tokens, merges: None })
}

#[test]
fn the_tokenizer_of_a_gguf_file_gives_the_same_ids() {
    let golden = read("golden_tok_small.json");
    let json = std::fs::read(golden_dir().join("tokenizer.json")).unwrap();
    let (own, scored) = (Tokenizer::from_bytes(&json).unwrap(), from_gguf(&json, |_| {}).unwrap());
    assert_eq!(scored.vocab_size(), 512);
    assert_eq!((scored.bos(), scored.eos(), scored.end_of_turn()), (own.bos(), own.eos(), own.end_of_turn()));
    assert_text(&scored, &golden);
    assert_chat(&scored, &ChatTemplate::of_gguf(None, &GEMMA3).unwrap(), &golden);
    let template = std::fs::read_to_string(golden_dir().join("tokenizer_config.json")).unwrap();
    let template: serde_json::Value = serde_json::from_str(&template).unwrap();
    assert_chat(&scored, &ChatTemplate::of_gguf(template["chat_template"].as_str(), &GEMMA3).unwrap(), &golden);
    assert_random_text(&own, &scored);
}

/// Gemma 4's files list the merges, and their scores are all the same.
#[test]
fn listed_merges_give_the_same_ids_whatever_the_scores_are() {
    let golden = read("golden_tok_small.json");
    let json = std::fs::read(golden_dir().join("tokenizer.json")).unwrap();
    let parsed: serde_json::Value = serde_json::from_slice(&json).unwrap();
    let pair = |pair: &serde_json::Value| match pair.as_array() {
        Some(two) => format!("{} {}", two[0].as_str().unwrap(), two[1].as_str().unwrap()),
        None => pair.as_str().unwrap().to_owned(),
    };
    let merges: Vec<String> = parsed["model"]["merges"].as_array().unwrap().iter().map(pair).collect();
    let listed = |merges: &[String]| {
        from_gguf(&json, |file| {
            file.set("tokenizer.ggml.model", Value::text("gemma4"));
            file.set("tokenizer.ggml.scores", Value::f32s(&[-1000.0; 512]));
            file.set("tokenizer.ggml.merges", Value::texts(&merges.iter().collect::<Vec<_>>()));
        })
    };
    let (own, found) = (Tokenizer::from_bytes(&json).unwrap(), listed(&merges).unwrap());
    assert_text(&found, &golden);
    assert_random_text(&own, &found);
    for (merge, fault) in [
        ("ab", "the merge ab is not of two tokens"),
        ("a b c", "the merge a b c is not of two tokens"),
        ("a \u{1F980}", "its merges name \u{1F980}, no token"),
    ] {
        let error = listed(&[merge.to_owned()]).unwrap_err();
        assert_eq!(error.to_string().split("; ").next().unwrap(), format!("the file's tokenizer is wrong: {fault}"));
    }
}

/// Tokens of which every split is a merge took gigabytes.
#[test]
fn tokens_that_can_be_made_in_too_many_ways_are_refused() {
    let refused = |texts: Vec<String>| {
        let unknown = VocabularyToken { text: "<unk>".into(), score: 0.0, kind: TokenKind::Unknown };
        let tokens = texts.into_iter().map(|text| VocabularyToken { text, score: 0.0, kind: TokenKind::Normal });
        let error = of_scores([unknown].into_iter().chain(tokens).collect()).unwrap_err();
        assert_eq!((error.exit_code(), error.to_string().lines().count()), (2, 1), "{error}");
        error.to_string()
    };
    // Every a^i b^j of up to 220 characters.
    let runs = |most: usize| (0..=most).flat_map(move |i| (0..=most - i).map(move |j| "a".repeat(i) + &"b".repeat(j)));
    let line = refused(runs(220).filter(|text| !text.is_empty()).collect());
    assert!(line.contains("its 24531 tokens can be cut at 3573354 places; at most 458032 make sense"), "{line}");
    // Every text of up to 14 of two letters.
    let all = (1..15).flat_map(|length| (0..1u32 << length).map(move |bits| (length, bits)));
    let spelled =
        |(length, bits): (u32, u32)| (0..length).map(|i| if bits >> i & 1 == 0 { 'a' } else { 'b' }).collect();
    let line = refused(all.map(spelled).collect());
    assert!(line.contains("its 32767 tokens can be made in more than 196604 ways, which make no sense"), "{line}");
}

/// Text that spelled such a token became one, and a message ended its own turn by it.
#[test]
fn control_tokens_are_such_whatever_type_a_gguf_file_gives_them() {
    let golden = read("golden_tok_small.json");
    let json = std::fs::read(golden_dir().join("tokenizer.json")).unwrap();
    let own = Tokenizer::from_bytes(&json).unwrap();
    let mut file = GgufFile::default();
    add_tokenizer(&mut file, &json);
    let tokens = Gguf::from_bytes(file.bytes()).unwrap().vocabulary().unwrap().tokens;
    let named = |tokens: &[VocabularyToken], kind| -> Vec<VocabularyToken> {
        let is_control =
            |t: &VocabularyToken| ["<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>"].contains(&t.text.as_str());
        let kind_of = |t: &VocabularyToken| if is_control(t) { kind } else { t.kind };
        tokens.iter().map(|t| VocabularyToken { kind: kind_of(t), ..t.clone() }).collect()
    };
    let template = ChatTemplate::of_gguf(None, &GEMMA3).unwrap();
    for kind in [TokenKind::UserDefined, TokenKind::Normal] {
        let scored = of_scores(named(&tokens, kind)).unwrap();
        assert_text(&scored, &golden);
        assert_chat(&scored, &template, &golden);
        assert_random_text(&own, &scored);
        let messages = [Message::new("user", "hi <end_of_turn> <start_of_turn>")];
        let ids = |tokenizer: &Tokenizer| {
            let rendered = template.render_for(tokenizer, &messages, true).unwrap();
            tokenizer.encode_rendered(&rendered).unwrap()
        };
        assert_eq!(ids(&scored), ids(&own), "{kind:?}");
        // FunctionGemma's, which has one more token here.
        let escape = VocabularyToken { text: "<escape>".into(), score: -1000.0, kind };
        let scored = of_scores([&tokens[..], &[escape]].concat()).unwrap();
        assert_eq!(scored.encode("<escape>", false).unwrap(), [512]);
        assert_eq!(scored.encode_verbatim("<escape>").unwrap(), own.encode("<escape>", true).unwrap());
        assert_eq!(scored.decode(&[512], true).unwrap(), "");
    }
    // Ollama's padding of the vocabulary is no text either.
    let padding =
        (0..3).map(|i| VocabularyToken { text: format!("[PAD{i}]"), score: -1.0, kind: TokenKind::UserDefined });
    let padded = of_scores(tokens.iter().cloned().chain(padding).collect()).unwrap();
    assert_eq!(padded.encode("x[PAD1]", true).unwrap(), own.encode("x[PAD1]", true).unwrap());
}

#[test]
fn gemma_3s_tokenizer_in_a_gguf_file_gives_the_same_ids() {
    let golden = read("gemma3_cases.json");
    let Some(json) = gemma3_tokenizer() else { return };
    let (own, scored) = (Tokenizer::from_bytes(&json).unwrap(), from_gguf(&json, |_| {}).unwrap());
    assert_eq!(scored.vocab_size(), 262_145);
    assert_text(&scored, &golden);
    assert_chat(&scored, &ChatTemplate::of_gguf(None, &GEMMA3).unwrap(), &golden);
    assert_random_text(&own, &scored);
}

/// Text of words, runs of white space and of one letter, punctuation, spelled tokens and odd characters.
fn assert_random_text(own: &Tokenizer, scored: &Tokenizer) {
    let parts = [
        "the",
        "qu",
        "ick",
        "aaaa",
        "AAAAAAA",
        "ing",
        " ",
        "  ",
        "        ",
        "▁",
        "▁▁▁",
        "\n",
        "\n\n\n",
        "\t\t",
        ".",
        "...",
        "<bos>",
        "<mask>",
        "<unused7>",
        "<b>",
        "</table>",
        "<0x41>",
        "é",
        "ß",
        "漢字",
        "🙂",
        "\u{e000}",
        "\u{0}",
        "123",
        "))",
        "==",
    ];
    let mut random = common::Random(0x7363_6f72_6564);
    for _ in 0..400 {
        let text: String = (0..1 + random.below(40)).map(|_| parts[random.below(parts.len())]).collect();
        assert_eq!(scored.encode(&text, true).unwrap(), own.encode(&text, true).unwrap(), "{text:?}");
        assert_eq!(scored.encode_verbatim(&text).unwrap(), own.encode_verbatim(&text).unwrap(), "{text:?}");
    }
    let ids: Vec<u32> = (0..4000).map(|_| random.below(own.vocab_size()) as u32).collect();
    for skip in [false, true] {
        let text =
            |tokenizer: &Tokenizer| ids.iter().map(|id| tokenizer.decode(&[*id], skip).unwrap()).collect::<Vec<_>>();
        assert_eq!(text(scored), text(own));
    }
}

#[test]
fn a_gguf_files_tokenizer_that_is_wrong_is_refused_by_name() {
    let json = std::fs::read(golden_dir().join("tokenizer.json")).unwrap();
    let refused = |change: &dyn Fn(&mut GgufFile)| {
        let error = from_gguf(&json, change).unwrap_err();
        assert_eq!((error.exit_code(), error.to_string().lines().count()), (2, 1), "{error}");
        error.to_string()
    };
    let list = |kind: u32, count: usize, element: &[u8]| Value::list(kind, count as u64, &element.repeat(count));
    let nan = f32::NAN.to_le_bytes();
    for (key, value, words) in [
        ("model", Value::text("gpt2"), "tokenizer.ggml.model is gpt2; wanted llama"),
        ("scores", list(6, 511, &[0; 4]), "scores has 511 elements for 512 tokens"),
        ("scores", list(6, 512, &nan), "the score of token 0, <pad>, is no finite number"),
        ("scores", list(4, 512, &[0; 4]), "is no finite number"),
        ("scores", Value::u32(3), "tokenizer.ggml.scores is no list"),
        ("token_type", list(5, 512, &[7, 0, 0, 0]), "the type of token 0, <pad>, is 7"),
        ("token_type", list(5, 512, &[0xFF; 4]), "is -1"),
        ("tokens", list(8, 512, &[1, 0, 0, 0, 0, 0, 0, 0, b'a']), "begins with token 2, a"),
        ("tokens", list(4, 512, &[0; 4]), "are not lists of texts and numbers"),
        ("bos_token_id", Value::u32(1), "begins with token 1, <eos>"),
        ("bos_token_id", Value::u32(512), "bos_token_id is 512; wanted a token id below 512"),
        ("bos_token_id", Value::text("<bos>"), "bos_token_id is <bos>; wanted a token id below 512"),
    ] {
        let line = refused(&|file| file.set(&format!("tokenizer.ggml.{key}"), value.clone()));
        assert!(line.contains(words), "{key}: {line}");
    }
    assert!(refused(&|file| file.remove("tokenizer.ggml.model")).contains("it has no tokenizer"));
    let twice = |file: &mut GgufFile| {
        file.remove("tokenizer.ggml.bos_token_id");
        file.set("tokenizer.ggml.tokens", list(8, 512, &[1, 0, 0, 0, 0, 0, 0, 0, b'a']));
    };
    assert!(refused(&twice).contains("the token a is there twice"));
    let long = |file: &mut GgufFile| {
        let texts: Vec<String> =
            (0..512).map(|id| if id == 3 { "<unk>".into() } else { format!("{id:300}") }).collect();
        file.remove("tokenizer.ggml.bos_token_id");
        file.set("tokenizer.ggml.tokens", Value::texts(&texts));
        file.set("tokenizer.ggml.token_type", list(5, 512, &[1, 0, 0, 0]));
    };
    assert!(refused(&long).contains("token 0 has 300 bytes"));
    // Those that are cut out of a text too: a table of 20,000 equal characters took minutes.
    let control = |file: &mut GgufFile| {
        let texts: Vec<String> =
            (0..512).map(|id| if id == 9 { "x".repeat(20_000) } else { format!("<{id}>") }).collect();
        file.remove("tokenizer.ggml.bos_token_id");
        file.set("tokenizer.ggml.tokens", Value::texts(&texts));
        file.set("tokenizer.ggml.token_type", list(5, 512, &[3, 0, 0, 0]));
    };
    assert!(refused(&control).contains("token 9 has 20000 bytes; at most 256 make sense"));
}
