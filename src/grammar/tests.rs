use super::*;
use crate::sequence::guide::Guide;
use crate::text::testing::{Random, small_tokenizer};
use crate::text::{TokenSet, Tokenizer};
use serde_json::{Value, json};
use std::sync::{Arc, LazyLock};

mod schemas;

static TOKENIZER: LazyLock<Arc<Tokenizer>> = LazyLock::new(|| Arc::new(small_tokenizer()));
static GRAMMARS: LazyLock<Grammars> = LazyLock::new(|| Grammars::new(TOKENIZER.clone(), TOKENIZER.stop_ids()));

fn compile(grammar: Grammar) -> Result<Arc<CompiledGrammar>> {
    GRAMMARS.compile(&grammar, 0, &|| false)
}

fn lark(text: &str) -> Result<Arc<CompiledGrammar>> {
    compile(Grammar::from_text(text.into())?)
}

/// Whether the grammar accepts a text as a complete document.
fn accepts(compiled: &Arc<CompiledGrammar>, text: &str) -> bool {
    let mut constraint = Constraint::new(compiled.clone());
    let mut set = TokenSet::new(TOKENIZER.vocab_size());
    let tokens = TOKENIZER.encode(text, false).unwrap();
    for token in tokens.into_iter().chain([TOKENIZER.stop_ids()[0]]) {
        constraint.fill(&mut set).unwrap();
        if !set.contains(token) {
            return false;
        }
        constraint.accept(token).unwrap();
    }
    constraint.is_finished()
}

/// The result of a walk through a document.
struct Walk {
    text: String,
    is_finished: bool,
}

/// Chooses a document's tokens by `choose`, from the allowed set and the document so far.
fn walk(compiled: &Arc<CompiledGrammar>, limit: usize, mut choose: impl FnMut(&[u32], &[u32]) -> u32) -> Walk {
    let mut constraint = Constraint::new(compiled.clone());
    let mut set = TokenSet::new(TOKENIZER.vocab_size());
    let mut tokens = Vec::new();
    while !constraint.is_finished() && tokens.len() < limit {
        constraint.fill(&mut set).unwrap();
        let allowed: Vec<u32> = (0..set.vocab() as u32).filter(|&id| set.contains(id)).collect();
        assert!(!allowed.is_empty(), "nothing may follow {tokens:?}");
        let token = choose(&allowed, &tokens);
        constraint.accept(token).unwrap();
        if !constraint.is_finished() {
            tokens.push(token);
        }
    }
    let text = TOKENIZER.decode(&tokens, false).unwrap();
    Walk { text, is_finished: constraint.is_finished() }
}

fn is_stop(token: u32) -> bool {
    TOKENIZER.stop_ids().contains(&token)
}

/// Chooses at random; every other time among tokens of JSON's own characters, so that documents become deep.
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

/// Chooses at random for `length` tokens, then tokens that end the document soon.
fn at_random_and_soon(random: &mut Random, length: usize) -> impl FnMut(&[u32], &[u32]) -> u32 {
    const ENDS: &[u8] = b"}]\":,0";
    let token_of =
        |byte: &u8| (0..512).find(|&id| TOKENIZER.bytes_of(id).is_some_and(|bytes| bytes == [*byte])).unwrap();
    let ends: Vec<u32> = TOKENIZER.stop_ids().into_iter().chain(ENDS.iter().map(token_of)).collect();
    move |allowed, tokens| match ends.iter().find(|end| allowed.contains(end)) {
        Some(end) if tokens.len() >= length => *end,
        _ => at_random(random)(allowed, tokens),
    }
}

/// Whether `value` satisfies `schema`, a part of `root`, by JSON Schema's text, for the keywords in [`SCHEMAS`].
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

/// Schemas with a variety of keywords.
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
        // Equal until one of them ends.
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
fn a_document_that_ends_satisfies_its_schema() {
    let mut random = Random(5);
    let mut ended = 0;
    for schema in schemas() {
        let compiled = compile(Grammar::JsonSchema(schema.clone())).unwrap_or_else(|e| panic!("{schema}: {e}"));
        for length in 0..12 {
            let Walk { text, is_finished, .. } = walk(&compiled, 400, at_random_and_soon(&mut random, 3 * length));
            if is_finished {
                let value: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{schema}: {text}: {e}"));
                assert!(satisfies(&schema, &schema, &value), "{schema}: {text}");
                ended += 1;
            }
        }
    }
    assert!(ended > 12 * schemas().len() / 2, "{ended} ended");
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
    let mut constraint = Constraint::new(compiled);
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
    let compiled = grammars.compile(&Grammar::JsonSchema(json!({"type": "string"})), 0, &|| false).unwrap();
    let mut constraint = Constraint::new(compiled);
    let mut set = TokenSet::new(TOKENIZER.vocab_size());
    for may_end in [false, true] {
        constraint.accept(quote).unwrap();
        constraint.fill(&mut set).unwrap();
        assert_eq!(set.contains(stop), may_end);
    }
}

/// The longest run of `wanted` characters that the grammar allows; the first of them are preferred.
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
    // A schema's own layout options are ignored.
    let own = json!({"type": "array", "items": {"type": "null"}, "x-guidance": {"whitespace_pattern": "[ ]+"}});
    assert_eq!(longest_run(own, b" "), 1);
    assert_eq!(longest_run(json!({"type": "integer"}), b"7"), 32);
    assert_eq!(longest_run(json!({"type": "number"}), b"7"), 32);
    // Many readers reject an exponent of three digits.
    assert_eq!(longest_run(json!({"type": "number"}), b"7e"), 32 + 1 + 2);
    // A constant of the schema may be longer.
    assert_eq!(longest_run(json!({"const": 1_000_000_000_000_u64}), b"01"), 13);
    assert_eq!(longest_run(json!({"const": "7".repeat(100)}), b"7"), 100);
}

#[test]
fn what_is_not_supported_is_refused_by_its_name() {
    for (schema, named) in [
        (json!({"not": {"type": "null"}}), "`not` at # "),
        (
            json!({"type": "array", "uniqueItems": true, "contains": {}}),
            "`uniqueItems` at # (is not supported), `contains` at #",
        ),
        (json!({"if": {"type": "null"}, "then": {}}), "`if`"),
        (
            json!({"type": "object", "properties": {"a": {"propertyNames": {"format": "date"}}}}),
            "`propertyNames` at #/properties/a",
        ),
        (json!({"oneOf": [{"type": "integer"}, {"type": "number"}]}), "`oneOf`"),
        (json!({"type": "string", "format": "color"}), "`format` at # (color"),
        (json!({"type": "array", "items": {"pattern": "(?=a)b"}}), "`pattern` at #/items (has a look-around)"),
        (json!({"type": "string", "pattern": "(a{1000}){1000}"}), "`pattern` at # (repeats too much)"),
        (json!({"$ref": "https://example.com/schema"}), "`$ref`"),
        (json!({"$ref": "#/$defs/none"}), "#/$defs/none"),
        (json!({"type": "thing"}), "thing"),
        (json!({"type": "integer", "minimum": 3, "maximum": 2}), "`maximum` at # (is less than the minimum)"),
        (json!({"const": 1e40}), "`const` at # (has an integer beyond 64 bits)"),
        (json!({"type": "number", "minimum": (1_u64 << 53) + 1}), "2^53"),
        (json!({"type": "string", "maxLength": null}), "`maxLength` at # (is null)"),
        (json!(false), "false"),
        (json!({"not": {}}), "false"),
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
fn a_lark_grammar_is_followed() {
    let compiled =
        lark("start: sum\nsum: NUMBER (\"+\" sum)? | \"(\" sum \")\"\nNUMBER: /[0-9]{1,3}/\n%ignore / /").unwrap();
    assert!(accepts(&compiled, "(12+(7))") && accepts(&compiled, "1 + 2"));
    assert!(!accepts(&compiled, "(12") && !accepts(&compiled, "1234"));
    // A grammar for any text: no byte of the text counts as the end.
    let open = lark("start: /(.|\\n)+/").unwrap();
    assert!(accepts(&open, "x\n]") && !accepts(&open, ""));
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

/// Chains of references and nested schemas are followed by recursion, so they need a large stack.
#[test]
fn a_schema_of_many_references_is_compiled_or_refused() {
    let chain = |length: usize| {
        let link =
            |i: usize| (format!("d{i}"), json!({"type": "array", "items": {"$ref": format!("#/$defs/d{}", i + 1)}}));
        let mut links: serde_json::Map<String, Value> = (0..length).map(link).collect();
        links.insert(format!("d{length}"), json!({"type": "null"}));
        json!({"$ref": "#/$defs/d0", "$defs": links})
    };
    assert!(accepts(&compile(Grammar::JsonSchema(chain(900))).unwrap(), "[[[[]]]]"));
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
        // Refused before compilation, which would take unbounded memory.
        let error = super::lower::lower(&schema).unwrap().refuse_ignored("it").expect_err(&schema.to_string());
        assert!(error.to_string().contains("multipleOf"), "{error}");
        let error = super::lower::lower_embedded(&format!("start: a\na: %json {schema}\n"), &|| Ok(())).unwrap_err();
        assert!(error.to_string().contains("multipleOf"), "{error}");
    }
    // The beginning of a string or expression inside a comment or special token is not one, and hides no schema.
    for around in ["# \"", "# /", "// \"", "b: <\"x>", "b: </s>"] {
        let lark = format!("start: a\n{around}\na: %json {{\"multipleOf\":7436429}}\n{around}\n");
        let error = super::lower::lower_embedded(&lark, &|| Ok(())).expect_err(around);
        assert!(error.to_string().contains("multipleOf"), "{around}: {error}");
        let lark = format!("start: a\n{around}\na: /(a{{1000}}){{1000}}/\n{around}\n");
        assert!(super::sizes::check_lark(&lark).is_err(), "{around}");
    }
    for schema in [price(0.01), all(&[2, 3, 5]), json!({"type": "integer", "multipleOf": 1000})] {
        compile(Grammar::JsonSchema(schema)).unwrap();
    }
}

#[test]
fn a_panic_of_the_parser_is_told_without_its_words() {
    let said = super::source::said(&"panic: index out of bounds: the len is 0 <backtrace> 0: llguidance::lexer");
    assert_eq!(said, "the parser fails on it");
    assert_eq!(super::source::said(&"no such rule <backtrace> 0: main"), "no such rule");
}

#[test]
fn a_grammar_is_compiled_once_however_many_ask_for_it() {
    let grammars = Grammars::new(TOKENIZER.clone(), TOKENIZER.stop_ids());
    let grammar = Grammar::JsonSchema(json!({"type": "array", "maxItems": 3}));
    let all: Vec<Arc<CompiledGrammar>> = std::thread::scope(|scope| {
        let ask = || grammars.compile(&grammar, 0, &|| false).unwrap();
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(ask)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(all.iter().all(|compiled| Arc::ptr_eq(compiled, &all[0])));
    assert_eq!(grammars.uses(), 1 + 8, "one compilation, and eight uses");
    // The cache is bounded: entries that have not been used since are evicted.
    for length in 0..70 {
        grammars.compile(&Grammar::JsonSchema(json!({"type": "string", "maxLength": length})), 0, &|| false).unwrap();
    }
    let again = grammars.compile(&grammar, 0, &|| false).unwrap();
    assert!(!Arc::ptr_eq(&again, &all[0]));
}

#[test]
fn a_wait_for_a_grammar_ends_when_it_is_cancelled() {
    let error = GRAMMARS.compile(&Grammar::JsonObject, 0, &|| true).err().unwrap();
    assert!(matches!(error, Error::Interrupted { .. }), "{error}");
}

#[test]
fn sets_filled_by_threads_are_those_of_the_constraint() {
    let compiled = compile(Grammar::JsonSchema(schemas().swap_remove(17))).unwrap();
    let vocab = TOKENIZER.vocab_size() + 64;
    for threads in [0, 1, 3] {
        let masks = Masks::start(threads);
        let mut random = Random(9);
        let start = || (MaskStepper::new(&masks, compiled.clone(), vocab), Constraint::new(compiled.clone()));
        let mut steps: Vec<(MaskStepper, Constraint)> = (0..5).map(|_| start()).collect();
        let (mut by_thread, mut here) = (TokenSet::new(vocab), TokenSet::new(vocab));
        for _ in 0..60 {
            steps.retain_mut(|(step, constraint)| {
                step.fill(&mut by_thread).unwrap();
                constraint.fill(&mut here).unwrap();
                assert_eq!(by_thread, here);
                let allowed: Vec<u32> = (0..vocab as u32).filter(|&id| here.contains(id)).collect();
                let token = at_random(&mut random)(&allowed, &[]);
                step.take(token).unwrap();
                constraint.accept(token).unwrap();
                !constraint.is_finished()
            });
        }
    }
}

#[test]
fn a_client_has_one_grammar_compiled_at_a_time_and_others_go_on() {
    let grammars = Grammars::new(TOKENIZER.clone(), TOKENIZER.stop_ids());
    grammars.hold(1);
    let polls = std::cell::Cell::new(0);
    let impatient = || {
        polls.set(polls.get() + 1);
        polls.get() > 3
    };
    let error = grammars.compile(&Grammar::JsonObject, 1, &impatient).err().unwrap();
    assert!(matches!(error, Error::Interrupted { .. }), "{error}");
    assert!(grammars.compile(&Grammar::JsonObject, 2, &|| false).is_ok());
    // Compiled grammars are available to all clients.
    assert!(grammars.compile(&Grammar::JsonObject, 1, &|| false).is_ok());
}

#[test]
fn a_compilation_ends_when_it_is_asked_to_or_its_time_is_over() {
    use super::source::{GrammarSource, StopSignal};
    let vocabulary = Arc::new(super::vocabulary::Vocabulary::gather(&TOKENIZER, &TOKENIZER.stop_ids()).unwrap());
    let hour = std::time::Duration::from_secs(3600);
    let (asked, late) = (StopSignal::within(hour), StopSignal::within(std::time::Duration::ZERO));
    asked.ask();
    for stop in [asked, late] {
        let error = GrammarSource::of(&Grammar::JsonObject).unwrap().compile(vocabulary.clone(), &stop).err().unwrap();
        assert!(error.to_string().contains("takes too long"), "{error}");
    }
    assert!(GrammarSource::of(&Grammar::JsonObject).unwrap().compile(vocabulary, &StopSignal::within(hour)).is_ok());
}

#[test]
fn repeats_beyond_all_measure_are_refused_before_they_are_compiled() {
    for text in [
        "start: \"a\"{1000000000}",
        "start: a ~ 5..1000000000\na: \"x\"",
        "start: (\"a\" (\"b\"){1000}){0,1000}",
        "start: /((ab|c){1000}){1000}/",
        "start: A\nA: /[(){]{999999999999999999999}/",
    ] {
        let error = lark(text).err().unwrap_or_else(|| panic!("{text} is accepted")).to_string();
        assert!(error.contains("repeats its parts"), "{error}");
    }
    for text in ["start: \"a{9999999}\" \"b\"{3}", "start: /a{20}[{]9999999}/ // {99999999}", "start: a{3,}\na: \"}\""]
    {
        lark(text).unwrap();
    }
}

/// An intersection with a complement of 60 bytes used to take gigabytes and minutes, beyond the deadline.
#[test]
fn intersections_and_complements_of_terminals_are_refused() {
    let attack = "/.*a.{25}/ & /.*b.{24}/ & /.*c.{23}/ & ~/.*d.{22}/";
    for (text, named) in [
        (format!("start: T\nT: {attack}\n"), "`&`"),
        (format!("start: {attack}\n"), "`&`"),
        ("start: T\nT: /a/&/b/\n".to_owned(), "`&`"),
        ("start: T\nT: ~/a/\n".to_owned(), "`~`"),
        ("start: T\nT: \"x\" ~ /a/\n".to_owned(), "`~`"),
        ("start: ~T\nT: /a/\n".to_owned(), "`~`"),
        (format!("start: a\na: %lark {{\nstart: T\nT: {attack}\n}}\n"), "`&`"),
        ("start: T // & ~\nT: /a/ # & ~\n  & /b/\n".to_owned(), "`&`"),
    ] {
        let error = lark(&text).err().unwrap_or_else(|| panic!("{text} is accepted"));
        assert!(matches!(error, Error::Input { .. }) && error.to_string().contains(named), "{text}: {error}");
    }
    let text = "start: A B C\nA: \"&~\" // & ~\nB: /[&~]&/ ~ 2..3 # & ~\nC: /x/ ~ 1\n";
    assert!(accepts(&lark(text).unwrap(), "&~~&~&x"));
}

#[test]
fn a_schema_may_be_longer_than_a_grammar_in_larks_syntax() {
    let long = "a".repeat(80 << 10);
    let error = lark(&format!("start: \"{long}\"")).err().unwrap();
    assert!(error.to_string().contains("bytes, and 65536 are supported"), "{error}");
    compile(Grammar::JsonSchema(json!({"type": "object", "description": long}))).unwrap();
}

/// Rules count in addition to the lexer: 16 grammars with few rules used to hold 800 MB.
#[test]
fn what_is_compiled_is_kept_in_a_bounded_number_of_bytes() {
    let grammars = Grammars::new(TOKENIZER.clone(), TOKENIZER.stop_ids());
    let mut most = 0;
    for i in 0..8 {
        let text = format!("start: \"qqq{i}\" {}\na: \"a\"\n", "a? ".repeat(20_000));
        let compiled = grammars.compile(&Grammar::Lark(text), 0, &|| false).unwrap();
        most = most.max(compiled.bytes.bytes());
        assert!(grammars.held() <= (64 << 20) + most, "{} bytes are held", grammars.held());
    }
    assert!(8 * most > 64 << 20, "{most} bytes each are no test");
    // A grammar followed by a reply counts until the reply ends.
    let compiled = grammars.compile(&Grammar::JsonObject, 0, &|| false).unwrap();
    let before = grammars.held();
    let mut constraint = Constraint::new(compiled);
    constraint.fill(&mut TokenSet::new(TOKENIZER.vocab_size())).unwrap();
    assert!(grammars.held() > before + 10_000);
    drop(constraint);
    assert_eq!(grammars.held(), before);
}

/// A grammar in which one set takes seconds after the first token, because very many parts may follow.
fn endless() -> Arc<CompiledGrammar> {
    lark(&format!("start: \"q\" \"q\" {}\na: \"a\"\n", "a*".repeat(30_000))).unwrap()
}

#[test]
fn a_set_that_takes_too_long_ends_the_reply_with_an_error() {
    let (compiled, vocab) = (endless(), TOKENIZER.vocab_size());
    let masks = Masks::start(1);
    let mut set = TokenSet::new(vocab);
    let mut slow = MaskStepper::new(&masks, compiled.clone(), vocab);
    slow.fill(&mut set).unwrap();
    let token = TOKENIZER.encode("q", false).unwrap()[0];
    assert!(set.contains(token));
    slow.take(token).unwrap();
    // The caller does not wait.
    assert!(!slow.is_ready(std::time::Duration::ZERO));
    let error = slow.fill(&mut set).unwrap_err();
    assert!(matches!(error, Error::Input { .. }) && error.to_string().contains("takes too long"), "{error}");
    // A stepper on the same thread does not wait either, once the slow one is dropped.
    let mut left = MaskStepper::new(&masks, compiled, vocab);
    left.fill(&mut set).unwrap();
    left.take(token).unwrap();
    drop(left);
    let mut quick = MaskStepper::new(&masks, compile(Grammar::JsonObject).unwrap(), vocab);
    quick.fill(&mut set).unwrap();
    assert!(set.contains(TOKENIZER.encode("{", false).unwrap()[0]));
}
