//! Grammars over Gemma 3's own vocabulary: documents at random, and the time that a token takes.

mod common;

use common::{Random, gemma3_tokenizer};
use kiln::grammar::{Constraint, Grammar, Grammars};
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
fn gemma_3s_vocabulary_spells_documents_in_every_budget() {
    let Some(bytes) = gemma3_tokenizer() else { return };
    let tokenizer = Arc::new(Tokenizer::from_bytes(&bytes).unwrap());
    let vocab = 262_208;
    let grammars = Grammars::new(tokenizer.clone(), tokenizer.stop_ids());
    let start = Instant::now();
    grammars.compile(&Grammar::JsonObject, &|| false).unwrap();
    println!("the vocabulary and the first grammar: {:?}", start.elapsed());
    let start = Instant::now();
    let compiled = grammars.compile(&Grammar::JsonSchema(entry()), &|| false).unwrap();
    println!("a second grammar: {:?}; its shortest document has {} tokens", start.elapsed(), compiled.shortest());

    // JSON's own tokens are among those of a byte.
    let is_short = |id: &u32| tokenizer.bytes_of(*id).is_some_and(|bytes| bytes.len() == 1);
    let short: Vec<u32> = (0..tokenizer.vocab_size() as u32).filter(is_short).collect();
    let (mut random, mut set) = (Random(4), TokenSet::new(vocab));
    let (mut fills, mut accepts) = (Vec::new(), Vec::new());
    for extra in (0..12).map(|i| i * i) {
        let limit = compiled.shortest() + extra;
        let mut constraint = Constraint::new(compiled.clone(), limit).unwrap();
        let mut tokens = Vec::new();
        loop {
            timed(&mut fills, || constraint.fill(&mut set)).unwrap();
            let from = random.below(vocab) as u32;
            let any = (from..vocab as u32).chain(0..from).find(|&id| set.contains(id));
            let short: Vec<u32> = short.iter().copied().filter(|&id| set.contains(id)).collect();
            let chosen = match short.len() {
                count if count > 0 && random.below(3) == 0 => short[random.below(count)],
                _ => any.unwrap(),
            };
            let token = timed(&mut accepts, || constraint.accept(chosen)).unwrap();
            if constraint.is_finished() {
                break;
            }
            tokens.push(token);
        }
        assert!(tokens.len() <= limit);
        let text = tokenizer.decode(&tokens, false).unwrap();
        let entry: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{limit} tokens: {text}: {e}"));
        assert!(entry["title"].is_string() && entry["price"].is_number(), "{text}");
        assert!(["book", "record", "map"].map(Value::from).contains(&entry["kind"]), "{text}");
        assert!(entry["items"].as_array().is_some_and(|items| !items.is_empty()), "{text}");
    }
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
