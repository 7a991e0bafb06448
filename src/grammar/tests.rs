use super::*;
use crate::text::testing::{Random, small_tokenizer};
use crate::text::{TokenSet, Tokenizer};
use serde_json::{Value, json};
use std::sync::{Arc, LazyLock};

static TOKENIZER: LazyLock<Arc<Tokenizer>> = LazyLock::new(|| Arc::new(small_tokenizer()));
static GRAMMARS: LazyLock<Grammars> = LazyLock::new(|| Grammars::new(TOKENIZER.clone(), TOKENIZER.stop_ids()));

fn compile(grammar: Grammar) -> Result<Arc<Compiled>> {
    GRAMMARS.compile(&grammar, &|| false)
}

fn lark(text: &str) -> Result<Arc<Compiled>> {
    compile(Grammar::from_text(text.into())?)
}

/// What a walk through a document took.
struct Walk {
    tokens: Vec<u32>,
    text: String,
    is_cut: bool,
    /// Searches for a shorter closing.
    searches: usize,
}

/// Takes a document's tokens by `choose`, from the set of what may come next and the document so far.
fn walk(compiled: &Arc<Compiled>, limit: usize, mut choose: impl FnMut(&[u32], &[u32]) -> u32) -> Walk {
    let mut constraint = Constraint::new(compiled.clone(), limit).unwrap();
    let mut set = TokenSet::new(TOKENIZER.vocab_size());
    let mut tokens = Vec::new();
    while !constraint.is_finished() {
        constraint.fill(&mut set).unwrap();
        let allowed: Vec<u32> = (0..set.vocab() as u32).filter(|&id| set.contains(id)).collect();
        assert!(!allowed.is_empty(), "nothing may follow {tokens:?}");
        let token = constraint.accept(choose(&allowed, &tokens)).unwrap();
        if !constraint.is_finished() {
            tokens.push(token);
        }
        assert!(tokens.len() <= limit, "{} tokens of {limit}", tokens.len());
        assert_eq!(constraint.left(), limit - tokens.len());
    }
    let text = TOKENIZER.decode(&tokens, false).unwrap();
    Walk { tokens, text, is_cut: constraint.is_cut(), searches: constraint.searches }
}

fn is_stop(token: u32) -> bool {
    TOKENIZER.stop_ids().contains(&token)
}

/// Chooses at random; every other time among tokens of JSON's own characters, so that documents grow in depth too.
fn at_random(random: &mut Random) -> impl FnMut(&[u32], &[u32]) -> u32 {
    |allowed, _| {
        let is_structure = |id: &u32| {
            let bytes = TOKENIZER.bytes_of(*id).unwrap_or_default();
            !bytes.is_empty() && bytes.iter().all(|byte| b"{}[]\",:0".contains(byte))
        };
        let structure: Vec<u32> = allowed.iter().copied().filter(is_structure).collect();
        let from = if structure.is_empty() || random.below(2) == 0 { allowed } else { &structure };
        from[random.below(from.len() as u32) as usize]
    }
}

/// Never ends a document, and lengthens it where it can.
fn never_ending(random: &mut Random) -> impl FnMut(&[u32], &[u32]) -> u32 {
    |allowed, _| {
        let lengthens = |id: &u32| {
            let bytes = TOKENIZER.bytes_of(*id).unwrap_or_default();
            !bytes.is_empty() && !bytes.iter().any(|byte| b"}]".contains(byte))
        };
        let longer: Vec<u32> = allowed.iter().copied().filter(lengthens).collect();
        let from = if longer.is_empty() { allowed } else { &longer };
        from[random.below(from.len() as u32) as usize]
    }
}

/// Whether `value` satisfies `schema`, a part of `root`: as JSON Schema's text has it, for the keywords of [`SCHEMAS`].
fn satisfies(root: &Value, schema: &Value, value: &Value) -> bool {
    let Value::Object(keywords) = schema else { return schema != &json!(false) };
    let is_type = |name: &str| match name {
        "integer" => value.as_f64().is_some_and(|n| n.fract() == 0.0),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        other => panic!("no type {other}"),
    };
    let all_of = |(keyword, wanted): (&String, &Value)| {
        let number = wanted.as_f64().unwrap_or(f64::NAN);
        let count = wanted.as_u64().unwrap_or(0) as usize;
        match keyword.as_str() {
            "$defs" | "description" => true,
            "$ref" => satisfies(root, root.pointer(&wanted.as_str().unwrap()[1..]).unwrap(), value),
            "type" => match wanted {
                Value::Array(names) => names.iter().any(|name| is_type(name.as_str().unwrap())),
                name => is_type(name.as_str().unwrap()),
            },
            "const" => value == wanted,
            "enum" => wanted.as_array().unwrap().contains(value),
            "anyOf" => wanted.as_array().unwrap().iter().any(|part| satisfies(root, part, value)),
            "allOf" => wanted.as_array().unwrap().iter().all(|part| satisfies(root, part, value)),
            "minimum" => value.as_f64().is_none_or(|n| n >= number),
            "maximum" => value.as_f64().is_none_or(|n| n <= number),
            "exclusiveMinimum" => value.as_f64().is_none_or(|n| n > number),
            "multipleOf" => value.as_f64().is_none_or(|n| n % number == 0.0),
            "minLength" => value.as_str().is_none_or(|s| s.chars().count() >= count),
            "maxLength" => value.as_str().is_none_or(|s| s.chars().count() <= count),
            "pattern" => value.as_str().is_none_or(|s| matches_pattern(wanted.as_str().unwrap(), s)),
            "minItems" => value.as_array().is_none_or(|items| items.len() >= count),
            "maxItems" => value.as_array().is_none_or(|items| items.len() <= count),
            "items" => value.as_array().is_none_or(|items| {
                let named = keywords.get("prefixItems").and_then(Value::as_array).map_or(0, Vec::len);
                items.iter().skip(named).all(|item| satisfies(root, wanted, item))
            }),
            "prefixItems" => value.as_array().is_none_or(|items| {
                items.iter().zip(wanted.as_array().unwrap()).all(|(item, part)| satisfies(root, part, item))
            }),
            "required" => value.as_object().is_none_or(|fields| {
                wanted.as_array().unwrap().iter().all(|name| fields.contains_key(name.as_str().unwrap()))
            }),
            "properties" => value.as_object().is_none_or(|fields| {
                fields.iter().all(|(name, field)| wanted.get(name).is_none_or(|part| satisfies(root, part, field)))
            }),
            "additionalProperties" => value.as_object().is_none_or(|fields| {
                let named = |name: &str| keywords.get("properties").is_some_and(|p| p.get(name).is_some());
                fields.iter().all(|(name, field)| named(name) || satisfies(root, wanted, field))
            }),
            other => panic!("no check of {other}"),
        }
    };
    keywords.iter().all(all_of)
}

fn matches_pattern(pattern: &str, text: &str) -> bool {
    let digits = |text: &str, count: usize| text.len() == count && text.bytes().all(|b| b.is_ascii_digit());
    let upper = |text: &str| text.len() == 2 && text.bytes().all(|b| b.is_ascii_uppercase());
    match pattern {
        "^[A-Z]{2}-[0-9]{3}$" => text.split_once('-').is_some_and(|(a, b)| upper(a) && digits(b, 3)),
        "^(a|b[0-9]{30})$" => text == "a" || text.strip_prefix('b').is_some_and(|rest| digits(rest, 30)),
        "^ü+$" => !text.is_empty() && text.chars().all(|c| c == 'ü'),
        "^[a-z]+ [a-z]+$" => text.split_once(' ').is_some_and(|(a, b)| {
            let word = |w: &str| !w.is_empty() && w.bytes().all(|c| c.is_ascii_lowercase());
            word(a) && word(b)
        }),
        other => panic!("no check of {other}"),
    }
}

/// Schemas with what makes a closing long, short, or longer by one token.
fn schemas() -> Vec<Value> {
    let closed = |properties: Value, required: Value| json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false});
    let big = closed(
        json!({"a": {"type": "string"}, "b": {"type": "array", "items": {"type": "integer"}, "minItems": 3},
            "c": {"type": "object", "properties": {"d": {"type": "boolean"}}, "required": ["d"]}}),
        json!(["a", "b", "c"]),
    );
    vec![
        json!({"type": "null"}),
        json!({"type": "integer", "minimum": 7, "maximum": 1000}),
        json!({"type": "number", "exclusiveMinimum": 0.5, "maximum": 3}),
        json!({"type": "integer", "multipleOf": 7, "minimum": 10, "maximum": 400}),
        json!({"type": "string", "minLength": 12}),
        json!({"type": "string", "minLength": 2, "maxLength": 5}),
        json!({"type": "string", "pattern": "^[A-Z]{2}-[0-9]{3}$"}),
        json!({"type": "string", "pattern": "^(a|b[0-9]{30})$"}),
        json!({"type": "string", "pattern": "^ü+$"}),
        json!({"type": "string", "pattern": "^[a-z]+ [a-z]+$"}),
        json!({"enum": ["é", "a longer one", 17, null, [1, {"x": []}]]}),
        json!({"const": {"a": [1, 2, "three"], "b": null}}),
        json!({"type": ["string", "null"]}),
        json!({"anyOf": [big, {"type": "null"}]}),
        json!({"type": "array", "items": big, "maxItems": 3}),
        json!({"type": "array", "items": {"enum": ["on", "off"]}, "minItems": 6, "maxItems": 9}),
        json!({"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "items": {"type": "null"}, "minItems": 3}),
        closed(json!({"one": {"type": "string"}, "two": big, "last": {"type": "integer"}}), json!(["last"])),
        closed(json!({"x": {}, "y": {}, "z": {}}), json!(["x", "y", "z"])),
        json!({"type": "object", "additionalProperties": {"type": "array", "items": {"type": "integer"}, "minItems": 4}}),
        json!({"allOf": [{"type": "object", "properties": {"p": {"type": "integer"}}, "required": ["p"]},
            {"type": "object", "properties": {"q": {"const": "q"}}, "required": ["q"]}]}),
        json!({"$ref": "#/$defs/node", "$defs": {"node": closed(
            json!({"v": {"enum": ["left", "right"]}, "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]},
                "all": {"type": "array", "items": {"$ref": "#/$defs/node"}}}),
            json!(["v", "next"]),
        )}}),
        // Alike until the cheap one ends.
        json!({"anyOf": [closed(json!({"a": {"type": "string"}}), json!(["a"])),
            closed(json!({"a": {"type": "string"}, "b": big}), json!(["a", "b"]))]}),
    ]
}

#[test]
fn the_check_of_documents_finds_what_is_wrong() {
    let schema = json!({"type": "object", "properties": {"a": {"type": "integer", "minimum": 3}, "b": {"$ref": "#/$defs/b"}},
        "required": ["a"], "additionalProperties": false, "$defs": {"b": {"type": "array", "items": {"enum": [1, "x"]}, "minItems": 2}}});
    for (is_right, value) in [
        (true, json!({"a": 3, "b": [1, "x"]})),
        (false, json!({"a": 2})),
        (false, json!({"b": [1, 1]})),
        (false, json!({"a": 3, "b": [1]})),
        (false, json!({"a": 3, "b": [1, 2]})),
        (false, json!({"a": 3, "c": 1})),
        (false, json!([])),
    ] {
        assert_eq!(satisfies(&schema, &schema, &value), is_right, "{value}");
    }
}

#[test]
fn a_document_fits_every_budget_and_satisfies_its_schema() {
    let mut random = Random(5);
    let (mut cut, mut whole) = (0, 0);
    for schema in schemas() {
        let compiled = compile(Grammar::JsonSchema(schema.clone())).unwrap_or_else(|e| panic!("{schema}: {e}"));
        let shortest = compiled.shortest();
        let limits = (shortest..shortest + 24).chain([shortest + 60, shortest + 150]);
        for (run, limit) in limits.enumerate() {
            let Walk { text, is_cut, .. } = match run % 3 {
                0 => walk(&compiled, limit, never_ending(&mut random)),
                _ => walk(&compiled, limit, at_random(&mut random)),
            };
            let value: Value =
                serde_json::from_str(&text).unwrap_or_else(|e| panic!("{schema} in {limit}: {text}: {e}"));
            assert!(satisfies(&schema, &schema, &value), "{schema} in {limit}: {text}");
            if is_cut { cut += 1 } else { whole += 1 }
        }
    }
    assert!(cut > 100 && whole > 50, "{cut} were cut, {whole} not");
}

#[test]
fn the_shortest_document_is_found() {
    let closed = |properties: Value, required: Value| json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false});
    for (schema, shortest) in [
        (json!({}), 1),
        (json!({"type": "object"}), 2),
        (json!({"type": "integer", "minimum": 100}), 3),
        (json!({"enum": ["a long word", "b"]}), 3),
        // {"z":0}, though "a" and "b" come first.
        (closed(json!({"a": {"type": "null"}, "b": {"type": "null"}, "z": {"type": "integer"}}), json!(["z"])), 7),
        (json!({"type": "array", "minItems": 5}), 11),
    ] {
        let compiled = compile(Grammar::JsonSchema(schema.clone())).unwrap();
        let bytes = compiled.closing.bytes();
        let fewest = |text: &[u8]| closing::Closing::spell(compiled.vocabulary.trie(), text.to_vec()).unwrap().len();
        assert_eq!(compiled.shortest(), fewest(bytes));
        assert!(bytes.len() <= shortest, "{schema}: {}", String::from_utf8_lossy(bytes));
    }
}

#[test]
fn a_budget_below_the_shortest_document_is_refused_with_both_numbers() {
    let compiled = compile(Grammar::JsonSchema(json!({"type": "array", "minItems": 5}))).unwrap();
    let shortest = compiled.shortest();
    let error = Constraint::new(compiled.clone(), shortest - 1).err().unwrap();
    assert!(matches!(error, Error::Input { .. }), "{error}");
    let said = format!(
        "the shortest document of this grammar has {shortest} tokens, and the answer may have {};",
        shortest - 1
    );
    assert!(error.to_string().starts_with(&said), "{error}");
    assert!(Constraint::new(compiled, shortest).is_ok());
}

#[test]
fn a_document_that_ends_by_itself_is_not_cut() {
    let compiled = compile(Grammar::JsonSchema(json!({"type": "array", "items": {"type": "null"}}))).unwrap();
    let spelled = TOKENIZER.encode("[null,null]", false).unwrap();
    let next = |allowed: &[u32], tokens: &[u32]| {
        let wanted = spelled.get(tokens.len()).copied().unwrap_or(TOKENIZER.stop_ids()[0]);
        if allowed.contains(&wanted) { wanted } else { allowed[0] }
    };
    let ended = walk(&compiled, 40, next);
    assert_eq!((ended.tokens, ended.text.as_str(), ended.is_cut), (spelled.clone(), "[null,null]", false));
    let cut = walk(&compiled, spelled.len() - 2, next);
    assert!(cut.is_cut);
    assert_eq!(cut.text, "[null]");
}

/// A search takes milliseconds: near the budget's end there are a few, and not one for each token.
#[test]
fn a_shorter_closing_is_looked_for_a_few_times_only() {
    let item = json!({"type": "object", "additionalProperties": false, "required": ["name", "tags"], "properties": {
        "name": {"type": "string", "maxLength": 30}, "tags": {"type": "array", "items": {"type": "string", "maxLength": 12}}}});
    let schema = json!({"type": "array", "minItems": 6, "items": item});
    let compiled = compile(Grammar::JsonSchema(schema.clone())).unwrap();
    let mut random = Random(3);
    for _ in 0..4 {
        let limit = compiled.shortest() + 300;
        let Walk { text, searches, is_cut, .. } = walk(&compiled, limit, never_ending(&mut random));
        assert!(satisfies(&schema, &schema, &serde_json::from_str(&text).unwrap()), "{text}");
        assert!(is_cut && (1..=16).contains(&searches), "{searches} searches");
    }
}

#[test]
fn only_content_and_stops_are_allowed_and_stops_only_where_the_document_may_end() {
    let compiled = compile(Grammar::JsonObject).unwrap();
    let mut random = Random(11);
    let mut ends = 0;
    walk(&compiled, 200, |allowed, tokens| {
        let text = TOKENIZER.decode(tokens, false).unwrap();
        let may_end = serde_json::from_str::<Value>(&text).is_ok();
        for &id in allowed {
            assert!(is_stop(id) || TOKENIZER.bytes_of(id).is_some(), "{id} stands for no text");
            assert!(!is_stop(id) || may_end, "{text} may not end");
        }
        assert_eq!(TOKENIZER.stop_ids().iter().all(|stop| allowed.contains(stop)), may_end, "{text}");
        ends += usize::from(may_end);
        at_random(&mut random)(allowed, tokens)
    });
    assert!(ends > 0);
}

#[test]
fn what_the_grammar_does_not_allow_is_refused() {
    let compiled = compile(Grammar::JsonObject).unwrap();
    let mut constraint = Constraint::new(compiled, 20).unwrap();
    let stop = TOKENIZER.stop_ids()[0];
    let text = TOKENIZER.encode("x", false).unwrap()[0];
    for token in [text, stop, TOKENIZER.bos().unwrap(), u32::MAX] {
        assert!(matches!(constraint.accept(token), Err(Error::Failed { .. })), "{token}");
    }
    for token in TOKENIZER.encode("{}", false).unwrap() {
        constraint.accept(token).unwrap();
    }
    constraint.accept(stop).unwrap();
    assert!(constraint.fill(&mut TokenSet::new(1)).is_err());
    assert!(constraint.accept(stop).is_err());
}

#[test]
fn a_stop_that_is_text_is_no_content() {
    let of = |text: &str| TOKENIZER.encode(text, false).unwrap()[0];
    let (stop, quote) = (of("x"), of("\""));
    let grammars = Grammars::new(TOKENIZER.clone(), vec![stop]);
    let compiled = grammars.compile(&Grammar::JsonSchema(json!({"type": "string"})), &|| false).unwrap();
    let mut constraint = Constraint::new(compiled, 20).unwrap();
    let mut set = TokenSet::new(TOKENIZER.vocab_size());
    for may_end in [false, true] {
        constraint.accept(quote).unwrap();
        constraint.fill(&mut set).unwrap();
        assert_eq!(set.contains(stop), may_end);
    }
}

/// The longest run of `wanted` in a document that has as many of them as it may; the first of them are preferred.
fn longest_run(schema: Value, wanted: &[u8]) -> usize {
    let compiled = compile(Grammar::JsonSchema(schema)).unwrap();
    let token_of = |byte: u8| (0..512).find(|&id| TOKENIZER.bytes_of(id).is_some_and(|bytes| bytes == [byte])).unwrap();
    let preferred: Vec<u32> = wanted.iter().map(|&byte| token_of(byte)).collect();
    let prefer = |allowed: &[u32], _: &[u32]| *preferred.iter().find(|id| allowed.contains(id)).unwrap_or(&allowed[0]);
    let Walk { text, .. } = walk(&compiled, 400, prefer);
    text.as_bytes().split(|byte| !wanted.contains(byte)).map(<[u8]>::len).max().unwrap_or(0)
}

#[test]
fn white_space_and_digits_are_bounded() {
    assert_eq!(longest_run(json!({"type": "array", "items": {"type": "null"}}), b" \n"), 1);
    assert_eq!(longest_run(json!({"type": "array", "items": {"type": "null"}}), b"\n\t "), 41);
    // A schema cannot bring its own.
    let own = json!({"type": "array", "items": {"type": "null"}, "x-guidance": {"whitespace_pattern": "[ ]+"}});
    assert_eq!(longest_run(own, b" "), 1);
    assert_eq!(longest_run(json!({"type": "integer"}), b"7"), 32);
    assert_eq!(longest_run(json!({"type": "number"}), b"7"), 32);
    // An exponent of three digits would be no number to many readers.
    assert_eq!(longest_run(json!({"type": "number"}), b"7e"), 32 + 1 + 2);
    // Where the schema itself asks for more, it has them.
    assert_eq!(longest_run(json!({"const": 1e40}), b"01"), 41);
    assert_eq!(longest_run(json!({"const": "7".repeat(100)}), b"7"), 100);
}

#[test]
fn what_is_not_supported_is_refused_by_its_name() {
    for (schema, named) in [
        (json!({"not": {"type": "null"}}), "`not`"),
        (json!({"type": "array", "uniqueItems": true, "contains": {}}), "`contains`, `uniqueItems`"),
        (json!({"if": {"type": "null"}, "then": {}}), "`if`, `then`"),
        (json!({"type": "object", "properties": {"a": {"propertyNames": {}}}}), "`propertyNames`"),
        (json!({"oneOf": [{"type": "integer"}, {"type": "number"}]}), "oneOf"),
        (json!({"type": "string", "format": "color"}), "color"),
        (json!({"type": "string", "pattern": "(?=a)b"}), "look"),
        (json!({"$ref": "https://example.com/schema"}), "$ref"),
        (json!({"$ref": "#/$defs/none"}), "none"),
        (json!({"type": "thing"}), "thing"),
        (json!({"type": "integer", "minimum": 3, "maximum": 2}), "maximum"),
        (json!(false), "false"),
        (json!([]), "neither"),
    ] {
        let error =
            compile(Grammar::JsonSchema(schema.clone())).err().unwrap_or_else(|| panic!("{schema} is accepted"));
        assert!(matches!(error, Error::Input { .. }), "{schema}: {error}");
        assert!(error.to_string().contains(named), "{schema}: {error}");
        assert_eq!(error.to_string().lines().count(), 1);
    }
}

#[test]
fn gbnf_is_refused_by_its_name_and_larks_operators_are_not_taken_for_it() {
    let error = lark("root ::= \"a\" b\nb ::= [0-9]+").err().unwrap();
    assert!(error.to_string().contains("GBNF"), "{error}");
    assert!(lark("start: \"::=\"").is_ok());
}

#[test]
fn a_lark_grammar_is_followed_and_closed() {
    let compiled =
        lark("start: sum\nsum: NUMBER (\"+\" sum)? | \"(\" sum \")\"\nNUMBER: /[0-9]{1,3}/\n%ignore / /").unwrap();
    let mut random = Random(3);
    for limit in 1..30 {
        let text = walk(&compiled, limit, |allowed, _| allowed[random.below(allowed.len() as u32) as usize]).text;
        let depth = text.bytes().filter(|&b| b == b'(').count();
        assert_eq!(depth, text.bytes().filter(|&b| b == b')').count(), "{text}");
        assert!(text.bytes().all(|b| b"0123456789()+ ".contains(&b)), "{text}");
        assert!(text.bytes().any(|b| b.is_ascii_digit()), "{text}");
    }
    // Text up to the end, which a byte of it must not be taken for.
    let open = lark("start: /(.|\\n)+/").unwrap();
    assert_eq!(open.shortest(), 1);
    assert_eq!(walk(&open, 20, |allowed, _| allowed[allowed.len() / 2]).tokens.len(), 20);
}

#[test]
fn a_lark_grammar_that_asks_for_too_much_is_refused() {
    for (text, named) in [
        ("start: <[5]>", "special tokens"),
        ("start: \"a\" <[*]>", "special tokens"),
        ("start: a\na[max_tokens=3]: /.*/", "`max_tokens`"),
        ("start: a\na[stop=\"x\"]: /.*/", "`stop`"),
        ("start: a\na[temperature=2]: /.*/", "`temperature`"),
        ("start: b", "b"),
        ("start: (", "start"),
        ("", "grammar"),
        ("start: start \"a\"", "no text"),
    ] {
        let error = lark(text).err().unwrap_or_else(|| panic!("{text} is accepted"));
        assert!(matches!(error, Error::Input { .. }), "{text}: {error}");
        assert!(error.to_string().contains(named), "{text}: {error}");
    }
    let deep = format!("start: {}\"a\"{}", "(".repeat(5000), ")".repeat(5000));
    assert!(lark(&deep).err().unwrap().to_string().contains("5000 brackets"));
    let long = format!("start: \"{}\"", "a".repeat(300_000));
    assert!(lark(&long).err().unwrap().to_string().contains("bytes"));
}

/// Chains of references and nested schemas are followed by recursion: they need a stack of their own.
#[test]
fn a_schema_of_many_references_is_compiled_or_refused() {
    let chain = |length: usize| {
        let link =
            |i: usize| (format!("d{i}"), json!({"type": "array", "items": {"$ref": format!("#/$defs/d{}", i + 1)}}));
        let mut links: serde_json::Map<String, Value> = (0..length).map(link).collect();
        links.insert(format!("d{length}"), json!({"type": "null"}));
        json!({"$ref": "#/$defs/d0", "$defs": links})
    };
    assert!(walk(&compile(Grammar::JsonSchema(chain(900))).unwrap(), 10, |allowed, _| allowed[0]).is_cut);
    let error = compile(Grammar::JsonSchema(chain(2000))).err().unwrap();
    assert!(error.to_string().contains("2001 references"), "{error}");
}

#[test]
fn a_grammar_that_takes_too_much_is_refused() {
    let wide = json!({"type": "string", "pattern": "^(.{0,1000}[ab].{1000}){100}$"});
    let error = compile(Grammar::JsonSchema(wide)).err().unwrap();
    assert!(matches!(error, Error::Input { .. }), "{error}");
}

#[test]
fn a_modulus_of_too_many_remainders_is_refused_before_it_is_compiled() {
    let all = |moduli: &[u32]| json!({"type": "integer", "allOf": moduli.iter().map(|m| json!({"multipleOf": m})).collect::<Vec<_>>()});
    let price =
        |modulus: f64| json!({"type": "object", "properties": {"price": {"type": "number", "multipleOf": modulus}}});
    let refused = [
        json!({"type": "integer", "multipleOf": 7_436_429}),
        json!({"type": "array", "items": {"type": "integer", "multipleOf": 1e9}}),
        json!({"type": "integer", "multipleOf": 101, "anyOf": [{"multipleOf": 103}]}),
        json!({"$ref": "#/$defs/a", "multipleOf": 101, "$defs": {"a": {"type": "integer", "multipleOf": 103}}}),
        json!({"allOf": [{"type": "number", "multipleOf": 7}, {"multipleOf": 0.001}]}),
        all(&[7, 11, 13, 17, 19, 23]),
        price(12.34567),
    ];
    for schema in refused {
        // Nothing is compiled, which would take memory without end.
        let error = super::schema::prepare(&schema).expect_err(&schema.to_string());
        assert!(error.to_string().contains("multipleOf"), "{error}");
        let error = super::schema::check_embedded(&format!("start: a\na: %json {schema}\n")).unwrap_err();
        assert!(error.to_string().contains("multipleOf"), "{error}");
    }
    for schema in [price(0.01), all(&[2, 3, 5]), json!({"type": "integer", "multipleOf": 1000})] {
        compile(Grammar::JsonSchema(schema)).unwrap();
    }
}

#[test]
fn a_panic_of_the_parser_is_told_without_its_words() {
    let said = super::compile::said(&"panic: index out of bounds: the len is 0 <backtrace> 0: llguidance::lexer");
    assert_eq!(said, "the parser fails on it");
    assert_eq!(super::compile::said(&"no such rule <backtrace> 0: main"), "no such rule");
}

#[test]
fn a_grammar_is_compiled_once_however_many_ask_for_it() {
    let grammars = Grammars::new(TOKENIZER.clone(), TOKENIZER.stop_ids());
    let grammar = Grammar::JsonSchema(json!({"type": "array", "maxItems": 3}));
    let all: Vec<Arc<Compiled>> = std::thread::scope(|scope| {
        let ask = || grammars.compile(&grammar, &|| false).unwrap();
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(ask)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(all.iter().all(|compiled| Arc::ptr_eq(compiled, &all[0])));
    assert_eq!(grammars.uses(), 1 + 8, "one compilation, and eight uses");
    // What is kept is bounded: what was not asked for since makes room.
    for length in 0..70 {
        grammars.compile(&Grammar::JsonSchema(json!({"type": "string", "maxLength": length})), &|| false).unwrap();
    }
    let again = grammars.compile(&grammar, &|| false).unwrap();
    assert!(!Arc::ptr_eq(&again, &all[0]));
}

#[test]
fn a_wait_for_a_grammar_ends_when_it_is_cancelled() {
    let error = GRAMMARS.compile(&Grammar::JsonObject, &|| true).err().unwrap();
    assert!(matches!(error, Error::Interrupted { .. }), "{error}");
}

#[test]
fn sets_filled_by_threads_are_those_of_the_constraint() {
    let compiled = compile(Grammar::JsonSchema(schemas().swap_remove(17))).unwrap();
    let vocab = TOKENIZER.vocab_size() + 64;
    for threads in [0, 1, 3] {
        let masks = Masks::start(threads);
        let mut random = Random(9);
        let start = || Constraint::new(compiled.clone(), 60).unwrap();
        let mut steps: Vec<(Step, Constraint)> = (0..5).map(|_| (Step::new(&masks, start(), vocab), start())).collect();
        let (mut by_thread, mut here) = (TokenSet::new(vocab), TokenSet::new(vocab));
        while !steps.is_empty() {
            steps.retain_mut(|(step, constraint)| {
                step.wait(&mut by_thread).unwrap();
                constraint.fill(&mut here).unwrap();
                assert_eq!(by_thread, here);
                let allowed: Vec<u32> = (0..vocab as u32).filter(|&id| here.contains(id)).collect();
                let token = at_random(&mut random)(&allowed, &[]);
                assert_eq!(step.begin(token).unwrap(), constraint.accept(token).unwrap());
                assert_eq!(step.constraint().unwrap().left(), constraint.left());
                !constraint.is_finished()
            });
        }
    }
}
