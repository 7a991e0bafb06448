//! Grammars over Gemma 3's own vocabulary: documents at random, and the time that a token takes.

use crate::common::{Random, gemma3_tokenizer};
use kiln::testing::grammar::{Constraint, Grammar, Grammars};
use kiln::text::{TokenSet, Tokenizer};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// An entry of a catalogue: strings, numbers, an enumeration, a list of objects.
fn entry() -> Value {
    let item = json!({"type": "object", "additionalProperties": false, "required": ["id", "label"],
        "properties": {"id": {"type": "integer"}, "label": {"type": "string"}, "new": {"type": "boolean"}}});
    json!({"type": "object", "additionalProperties": false, "required": ["title", "kind", "price", "items"],
    "properties": {
        "title": {"type": "string"},
        "kind": {"enum": ["book", "record", "map"]},
        "price": {"type": "number"},
        "items": {"type": "array", "items": item, "minItems": 1},
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}]}
    }})
}

#[test]
fn gemma_3s_vocabulary_spells_documents() {
    let Some(bytes) = gemma3_tokenizer() else { return };
    let tokenizer = Arc::new(Tokenizer::from_bytes(&bytes).unwrap());
    let vocab = 262_208;
    let grammars = Grammars::new(tokenizer.clone(), tokenizer.stop_ids());
    let start = Instant::now();
    grammars.compile(&Grammar::JsonObject, 0, &|| false).unwrap();
    println!("the vocabulary and the first grammar: {:?}", start.elapsed());
    let start = Instant::now();
    let compiled = grammars.compile(&Grammar::JsonSchema(entry()), 0, &|| false).unwrap();
    println!("a second grammar: {:?}", start.elapsed());

    // JSON's own tokens are among those of a byte, and these end a document soon: the quote first, since a string holds all
    // others.
    let byte_of = |id: u32| tokenizer.bytes_of(id).filter(|bytes| bytes.len() == 1).map(|bytes| bytes[0]);
    let token_of = |byte: &u8| (0..tokenizer.vocab_size() as u32).find(|&id| byte_of(id) == Some(*byte)).unwrap();
    let ends: Vec<u32> = tokenizer.stop_ids().into_iter().chain(b"\"}]:,0".iter().map(token_of)).collect();
    let (mut random, mut set) = (Random(4), TokenSet::new(vocab));
    let (mut fills, mut accepts, mut ended) = (Vec::new(), Vec::new(), 0);
    for length in (0..12).map(|i| i * i) {
        let mut constraint = Constraint::new(compiled.clone());
        let mut tokens = Vec::new();
        while !constraint.is_finished() && tokens.len() < 600 {
            timed(&mut fills, || constraint.fill(&mut set)).unwrap();
            let from = random.below(vocab) as u32;
            let any = (from..vocab as u32).chain(0..from).find(|&id| set.contains(id));
            let end = ends.iter().copied().find(|&id| set.contains(id) && tokens.len() >= length);
            let chosen = end.or(any).unwrap();
            timed(&mut accepts, || constraint.accept(chosen)).unwrap();
            if !constraint.is_finished() {
                tokens.push(chosen);
            }
        }
        if !constraint.is_finished() {
            continue;
        }
        ended += 1;
        let text = tokenizer.decode(&tokens, false).unwrap();
        let entry: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{length} tokens: {text}: {e}"));
        assert!(entry["title"].is_string() && entry["price"].is_number(), "{text}");
        assert!(["book", "record", "map"].map(Value::from).contains(&entry["kind"]), "{text}");
        assert!(entry["items"].as_array().is_some_and(|items| !items.is_empty()), "{text}");
    }
    assert!(ended > 6, "{ended} ended");
    print("a set", &mut fills);
    print("a token taken", &mut accepts);
}

fn timed<T>(times: &mut Vec<Duration>, run: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = run();
    times.push(start.elapsed());
    result
}

fn print(what: &str, times: &mut [Duration]) {
    times.sort();
    let mean = times.iter().sum::<Duration>() / times.len() as u32;
    let of = |percent: usize| times[times.len() * percent / 100];
    println!("{what}: mean {mean:?}, median {:?}, 99th percentile {:?}, of {}", of(50), of(99), times.len());
}
