//! Schemas from clients: references, unsupported keywords, integers, and random satisfiable schemas.

use super::*;
use crate::grammar::calls::{Calls, Function};
use crate::text::CallSyntax;

fn calls(parameters: &Value, strict: bool) -> Result<Arc<CompiledGrammar>> {
    let function = Function { name: "f".into(), parameters: parameters.clone(), strict };
    compile(Grammar::Calls(Calls {
        functions: vec![function],
        beside: Beside::Nothing,
        several: false,
        syntax: CallSyntax::Json,
    }))
}

fn call(arguments: &Value) -> String {
    json!({"name": "f", "parameters": arguments}).to_string()
}

/// Checks the arguments that a schema allows, as a function's schema and as a document's.
fn check(schema: Value, allowed: &[Value], refused: &[Value]) {
    let call_of = calls(&schema, true).unwrap_or_else(|e| panic!("{schema}: {e}"));
    let document = compile(Grammar::JsonSchema(schema.clone())).unwrap_or_else(|e| panic!("{schema}: {e}"));
    for (values, is_allowed) in [(allowed, true), (refused, false)] {
        for value in values {
            assert_eq!(accepts(&call_of, &call(value)), is_allowed, "a call with {value} for {schema}");
            assert_eq!(accepts(&document, &value.to_string()), is_allowed, "{value} for {schema}");
        }
    }
}

#[test]
fn references_start_from_the_schema_that_holds_them() {
    let closed = |properties: Value, required: Value| json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false});
    // The root: a tree.
    check(
        closed(
            json!({"label": {"type": "string"}, "kids": {"type": "array", "items": {"$ref": "#"}}}),
            json!(["label"]),
        ),
        &[json!({"label": "a"}), json!({"label": "a", "kids": [{"label": "b", "kids": []}]})],
        &[json!({"label": "a", "kids": [1]}), json!({"label": "a", "kids": [{"kids": []}]})],
    );
    let target = closed(json!({"k": {"type": "boolean"}}), json!(["k"]));
    let (yes, no) = (json!({"k": true}), json!({"k": 1}));
    // A place outside of the definitions.
    check(
        closed(json!({"a": target, "b": {"$ref": "#/properties/a"}}), json!(["a", "b"])),
        &[json!({"a": yes, "b": yes})],
        &[json!({"a": yes, "b": no})],
    );
    // Definitions, escapes, percent signs, lists, anchors and identifiers.
    for (reference, definitions) in [
        ("#/$defs/t", json!({"t": target})),
        ("#/$defs/a~1b", json!({"a/b": target})),
        ("#/$defs/a~0b", json!({"a~b": target})),
        ("#/$defs/a%20b%7E1", json!({"a b/": target})),
        ("#/$defs/list/anyOf/1", json!({"list": {"anyOf": [{"type": "null"}, target]}})),
        ("#/$defs/t/properties/x", json!({"t": {"properties": {"x": target}}})),
        ("#anchor", json!({"t": {"$anchor": "anchor", "allOf": [target]}})),
        ("item.json", json!({"t": {"$id": "item.json", "allOf": [target]}})),
        ("item.json", json!({"t": {"$id": "https://example.com/item.json", "allOf": [target]}})),
        ("item.json#/$defs/x", json!({"t": {"$id": "item.json", "$defs": {"x": target}}})),
        // Within a part that has an identifier, references start from that part.
        ("#/$defs/t", json!({"t": {"$id": "t", "allOf": [{"$ref": "#/$defs/x"}], "$defs": {"x": target}}, "x": false})),
    ] {
        let mut schema = closed(json!({"v": {"$ref": reference, "description": "a note"}}), json!(["v"]));
        schema["$defs"] = definitions;
        check(schema, &[json!({"v": yes})], &[json!({"v": no})]);
    }
    let mut old = closed(json!({"v": {"$ref": "#/definitions/t"}}), json!(["v"]));
    old["definitions"] = json!({"t": target});
    check(old, &[json!({"v": yes})], &[json!({"v": no})]);
}

#[test]
fn several_functions_have_references_of_their_own() {
    let function = |name: &str, kind: &str| Function {
        name: name.into(),
        parameters: json!({"type": "object", "properties": {"v": {"$ref": "#/$defs/t"}, "w": {"$ref": "#"}},
            "required": ["v"], "$defs": {"t": {"type": kind}}}),
        strict: true,
    };
    let functions = vec![function("f", "integer"), function("g", "boolean")];
    let compiled =
        compile(Grammar::Calls(Calls { functions, beside: Beside::Text, several: true, syntax: CallSyntax::Json }))
            .unwrap();
    let line = |name: &str, v: Value| json!({"name": name, "parameters": {"v": v, "w": {"v": v}}}).to_string();
    assert!(accepts(&compiled, &format!("{}\n{}", line("f", json!(1)), line("g", json!(true)))));
    assert!(accepts(&compiled, "some text"));
    assert!(!accepts(&compiled, &line("f", json!(true))) && !accepts(&compiled, &line("g", json!(1))));
}

#[test]
fn a_reply_is_calls_or_a_document_of_the_schema_beside_them() {
    let functions = vec![Function {
        name: "f".into(),
        parameters: json!({"type": "object", "properties": {"v": {"$ref": "#/$defs/t"}}, "$defs": {"t": {"const": 1_u64 << 60}}}),
        strict: true,
    }];
    let beside = |schema: Value| Beside::Document(schema);
    let of = |beside: Beside| {
        compile(Grammar::Calls(Calls { functions: functions.clone(), beside, several: true, syntax: CallSyntax::Json }))
    };
    // Its references and exact numbers are independent of the functions'; its documents may begin like calls.
    let schema = json!({"type": "object", "properties": {"name": {"type": "string"}, "n": {"$ref": "#/$defs/t"}},
        "required": ["name", "n"], "additionalProperties": false, "$defs": {"t": {"const": (1_u64 << 61) + 1}}});
    let compiled = of(beside(schema)).unwrap();
    let call = json!({"name": "f", "parameters": {"v": 1_u64 << 60}}).to_string();
    let number = (1_u64 << 61) + 1;
    let document = format!("{{\"name\":\"f\",\"n\":{number}}}");
    for good in [call.clone(), format!("{call}\n{call}"), document.clone()] {
        assert!(accepts(&compiled, &good), "{good}");
    }
    let wrong_number = format!("{{\"name\":\"f\",\"n\":{}}}", number - 1);
    let wrong_call = json!({"name": "f", "parameters": {"v": number}}).to_string();
    for bad in
        ["text", "{}", &wrong_number, &wrong_call, &format!("{document}\n{call}"), &format!("{call}\n{document}")]
    {
        assert!(!accepts(&compiled, bad), "{bad}");
    }
    // The parser follows both alternatives at once.
    let mut random = Random(7);
    for length in 0..30 {
        let Walk { text, is_finished } = walk(&compiled, 400, at_random_and_soon(&mut random, length));
        let parts: Vec<_> = text.split('\n').map(serde_json::from_str::<Value>).collect();
        assert!(!is_finished || parts.iter().all(|part| part.as_ref().is_ok_and(Value::is_object)), "{text}");
    }
    // A reply that looks like a call is one, and must satisfy the function's schema, whatever documents are allowed.
    let named = json!({"anyOf": [{"properties": {"name": {"type": "string"}}}, {"type": "string"}]});
    for open in [json!({"type": "object"}), json!(true), named] {
        let compiled = of(beside(open.clone())).unwrap();
        assert!(accepts(&compiled, &call) && !accepts(&compiled, &wrong_call), "{open}");
        assert!(accepts(&compiled, "{\"name\":\"f\"}"), "{open}");
    }
    for like_calls in [
        json!({"properties": {"parameters": {}}}),
        json!({"properties": {"parameters": {}, "name": {}}, "additionalProperties": false}),
        json!({"properties": {"parameters": {}}, "patternProperties": {"^n": {}}, "additionalProperties": false}),
        json!({"enum": [1, {"name": "f", "parameters": {}}]}),
        json!({"const": {"name": "f", "parameters": {}}}),
        json!({"$ref": "#/$defs/t", "$defs": {"t": {"enum": [{"name": "f", "parameters": {}}]}}}),
    ] {
        let e = of(beside(like_calls)).unwrap_err().to_string();
        assert!(e.contains("may have `name` and `parameters`"), "{e}");
    }
    let apart = json!({"properties": {"parameters": {"type": "integer"}}, "additionalProperties": false});
    assert!(accepts(&of(beside(apart)).unwrap(), "{\"parameters\":1}"));
    // No document that looks like a call is allowed by alternatives or by patterns of names.
    let like_call = json!({"name": "f", "parameters": {"v": 1}});
    for hidden in [
        json!({"anyOf": [{"type": "integer"}, {"enum": [like_call, 2]}]}),
        json!({"oneOf": [{"type": "integer"}, {"const": like_call}]}),
        json!({"enum": [1, (1_u64 << 61) + 1, {"name": "f"}]}),
        json!({"allOf": [{"type": ["integer", "object"]}]}),
        json!({"type": ["integer", "object"], "patternProperties": {"^[np]": {}}, "additionalProperties": false}),
        json!({"anyOf": [{"type": "integer"}, {"$ref": "#/$defs/t"}], "$defs": {"t": {"type": "object"}}}),
        json!({"$ref": "#/$defs/t", "description": "a note", "$defs": {"t": {"type": ["integer", "object"]}}}),
    ] {
        let compiled = of(beside(hidden.clone())).unwrap();
        assert!(accepts(&compiled, "1") || accepts(&compiled, "2"), "{hidden}");
        assert!(accepts(&compiled, &call) && !accepts(&compiled, &like_call.to_string()), "{hidden}");
    }
    // A recursive type, as libraries write it.
    let node =
        json!({"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}, "additionalProperties": false});
    let nodes = of(beside(json!({"$ref": "#/$defs/node", "$defs": {"node": node}}))).unwrap();
    assert!(accepts(&nodes, "{\"next\":{\"next\":{}}}") && !accepts(&nodes, "{\"next\":1}"));
    // The document need not be an object.
    let list = of(beside(json!({"type": "array", "items": {"type": "integer"}}))).unwrap();
    assert!(accepts(&list, "[1,2]") && accepts(&list, &call) && !accepts(&list, "{}"));
    // The document's schema is enforced in full, although those of functions are not.
    let e = of(beside(json!({"not": {"type": "null"}}))).unwrap_err().to_string();
    assert!(e.contains("the JSON schema uses `not` at #"), "{e}");
}

/// Schemas with arguments that satisfy all enforced keywords, and the keyword that is not enforced.
fn advice() -> Vec<(Value, Value, &'static str)> {
    let of = |schema: Value| json!({"type": "object", "properties": {"v": schema, "n": {"type": "integer"}}, "required": ["v", "n"]});
    let text = |more: (&str, Value)| {
        let mut schema = json!({"type": "string"});
        schema[more.0] = more.1;
        of(schema)
    };
    let object = |more: (&str, Value)| {
        let mut schema = json!({"type": "object", "properties": {"a": {"type": "string"}}});
        schema[more.0] = more.1;
        of(schema)
    };
    let (word, list) = (json!({"v": "x", "n": 1}), json!({"v": ["x", "x"], "n": 1}));
    let thing = json!({"v": {"a": "x"}, "n": 1});
    let strings = |more: Value| {
        let mut schema = json!({"type": "array", "items": {"type": "string"}});
        json_merge(&mut schema, &more);
        of(schema)
    };
    vec![
        (text(("pattern", json!("^(?!\\.)[a-z.]+$"))), word.clone(), "pattern"),
        (text(("pattern", json!("^(a)\\1$"))), word.clone(), "pattern"),
        (text(("pattern", json!("(("))), word.clone(), "pattern"),
        (text(("pattern", Value::Null)), word.clone(), "pattern"),
        (text(("format", json!("color"))), word.clone(), "format"),
        (text(("maxLength", json!("ten"))), word.clone(), "maxLength"),
        (text(("not", json!({"const": "y"}))), word.clone(), "not"),
        (of(json!({"type": "str"})), word.clone(), "type"),
        (of(json!({"$ref": "#/$defs/none"})), word.clone(), "$ref"),
        (of(json!({"$ref": "other.json#/x"})), word.clone(), "$ref"),
        (of(json!({"enum": null})), word.clone(), "enum"),
        (of(json!({"oneOf": [{"type": "string"}, {"maxLength": 3}]})), word, "oneOf"),
        (strings(json!({"uniqueItems": true})), list.clone(), "uniqueItems"),
        (strings(json!({"contains": {"const": "y"}, "minContains": 1})), list.clone(), "contains"),
        (strings(json!({"minItems": 3, "maxItems": 2})), json!({"v": ["x", "x", "x"], "n": 1}), "maxItems"),
        (object(("propertyNames", json!({"pattern": "^b"}))), thing.clone(), "propertyNames"),
        (object(("dependentRequired", json!({"a": ["b"]}))), thing.clone(), "dependentRequired"),
        (object(("dependentSchemas", json!({"a": {"required": ["b"]}}))), thing.clone(), "dependentSchemas"),
        (object(("minProperties", json!(2))), thing.clone(), "minProperties"),
        (object(("required", json!(true))), thing.clone(), "required"),
        (
            object(("patternProperties", json!({"^a": {"type": "string"}, "a$": {}}))),
            thing.clone(),
            "patternProperties",
        ),
        (of(json!({"if": {"type": "string"}, "then": {"minLength": 9}, "else": false})), list, "then"),
        (of(json!({"type": "integer", "multipleOf": 7_436_429})), json!({"v": 3, "n": 1}), "multipleOf"),
        (of(json!({"type": "integer", "minimum": 3, "maximum": 2})), json!({"v": 3, "n": 1}), "maximum"),
        (of(json!({"type": "integer", "maximum": 1e30})), json!({"v": 3, "n": 1}), "maximum"),
    ]
}

fn json_merge(into: &mut Value, more: &Value) {
    more.as_object().unwrap().iter().for_each(|(name, value)| into[name] = value.clone());
}

#[test]
fn what_advice_asks_for_beyond_the_grammar_is_left_out_and_said() {
    for (schema, arguments, keyword) in advice() {
        let compiled = calls(&schema, false).unwrap_or_else(|e| panic!("{schema}: {e}"));
        assert!(accepts(&compiled, &call(&arguments)), "{arguments} for {schema}");
        let said = compiled.ignored().join("; ");
        let named = format!("f: `{keyword}` at #/properties/v (");
        assert!(said.contains(&named), "{said} for {schema}");
        // All other keywords are enforced.
        let mut wrong = arguments.clone();
        wrong["n"] = json!("one");
        assert!(!accepts(&compiled, &call(&wrong)), "{schema}");
    }
    let plain = calls(&json!({"type": "object", "properties": {"a": {"type": "string", "format": "date"}}}), false);
    assert!(plain.unwrap().ignored().is_empty());
}

/// Schemas as Zod, pydantic and generators of OpenAPI write them: each is held in full, with documents of it and
/// others.
#[test]
fn schemas_of_libraries_are_held() {
    const ADDRESS: &str =
        r"^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$";
    const DURATION: &str =
        r"^P(?:(\d+W)|(?!.*W)(?=\d|T\d)(\d+Y)?(\d+M)?(\d+D)?(T(?=\d)(\d+H)?(\d+M)?(\d+([.,]\d+)?S)?)?)$";
    const TWO_PLACES: &str = r"^(?!^[-+.]*$)[+-]?0*(?:\d{0,3}|(?=[\d.]{1,6}0*$)\d{0,3}\.\d{0,2}0*$)";
    let text = |more: Value| {
        let mut schema = json!({"type": "string"});
        json_merge(&mut schema, &more);
        schema
    };
    let numbers = json!({"type": "number"});
    let dictionary = |names: Value| json!({"type": "object", "propertyNames": names, "additionalProperties": numbers});
    let mut all_named = dictionary(json!({"type": "string", "enum": ["a", "b"]}));
    all_named["required"] = json!(["a", "b"]);
    let mut referring = dictionary(json!({"$ref": "#/$defs/Name"}));
    referring["$defs"] = json!({"Name": {"enum": ["a", "b"], "title": "Name", "type": "string"}});
    let cases: Vec<(Value, &[&str], &[&str])> = vec![
        (dictionary(json!({"type": "string"})), &["{}", "{\"x\":1}"], &["{\"x\":\"1\"}"]),
        (dictionary(json!({"enum": ["a", "b"]})), &["{}", "{\"b\":1}"], &["{\"c\":1}", "{\"a\":\"1\"}"]),
        (all_named, &["{\"a\":1,\"b\":2}"], &["{\"a\":1}", "{\"a\":1,\"b\":2,\"c\":3}"]),
        (referring, &["{\"a\":1}"], &["{\"c\":1}"]),
        (dictionary(json!({"type": "string", "pattern": "^k_"})), &["{\"k_a\":1}"], &["{\"a\":1}", "{\"k_a\":\"1\"}"]),
        (dictionary(json!({"type": "string", "minLength": 2})), &["{\"ab\":1}"], &["{\"a\":1}"]),
        (
            json!({"type": "object", "properties": {"a": {"not": {}}}, "additionalProperties": false}),
            &["{}"],
            &["{\"a\":1}"],
        ),
        (text(json!({"format": "cuid2", "pattern": "^[0-9a-z]+$"})), &["\"a1\""], &["\"A\"", "\"\""]),
        (text(json!({"format": "starts_with", "pattern": "^a\\.b.*"})), &["\"a.bc\""], &["\"abc\""]),
        (text(json!({"format": "file-path"})), &["\"/tmp/a\""], &["1"]),
        (text(json!({"format": "password", "writeOnly": true})), &["\"x\""], &["1"]),
        (text(json!({"format": "binary"})), &["\"x\""], &["1"]),
        (text(json!({"format": "byte"})), &["\"YQ==\"", "\"\""], &["\"YQ\"", "\"?\""]),
        (text(json!({"format": "base64url"})), &["\"YQ\"", "\"_-_-\""], &["\"Y\"", "\"+\""]),
        (text(json!({"format": "json-pointer"})), &["\"\"", "\"/a~0/b\""], &["\"a\"", "\"/~2\""]),
        (
            text(json!({"format": "uuid4"})),
            &["\"123e4567-e89b-42d3-a456-426614174000\""],
            &["\"123e4567-e89b-12d3-a456-426614174000\""],
        ),
        (
            text(json!({"format": "email", "pattern": ADDRESS})),
            &["\"a.b+c@d-e.org\""],
            &["\".a@b.org\"", "\"a..b@c.org\"", "\"a.@c.org\"", "\"a@b\""],
        ),
        (
            text(json!({"format": "duration", "pattern": DURATION})),
            &["\"P1Y2M3DT4H\"", "\"PT5M\"", "\"P2W\""],
            &["\"P\"", "\"P1YT\"", "\"P1Y2W\""],
        ),
        (
            json!({"anyOf": [{"type": "boolean"}, {"pattern": r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$", "type": "string"}]}),
            &["\"-1.50\"", "\".5\"", "\"007.\"", "true"],
            &["\"\"", "\".\"", "\"-\"", "\"1e5\""],
        ),
        (
            text(json!({"pattern": TWO_PLACES})),
            &["\"123.45\"", "\"0.5\"", "\".05\""],
            &["\"1234\"", "\"1.234\"", "\".\""],
        ),
        (
            text(json!({"pattern": r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d{0,2}0*$"})),
            &["\"12345.67\"", "\"5\""],
            &["\"1.234\"", "\"-\""],
        ),
        (
            text(json!({"pattern": r"^(?!^[-+.]*$)[+-]?0*(?:\d{0,3}|(?=[\d.]{1,4}0*$)\d*\.\d*0*$)"})),
            &["\"123\"", "\"1.23\"", "\"0.123\""],
            &["\"1234\"", "\"12.34\"", "\".\""],
        ),
    ];
    for (schema, right, wrong) in cases {
        let compiled = compile(Grammar::JsonSchema(schema.clone())).unwrap_or_else(|e| panic!("{schema}: {e}"));
        right.iter().for_each(|document| assert!(accepts(&compiled, document), "{document} for {schema}"));
        wrong.iter().for_each(|document| assert!(!accepts(&compiled, document), "{document} for {schema}"));
    }
    // A standard format that is not held is named, whatever stands beside it.
    let iri = compile(Grammar::JsonSchema(text(json!({"format": "iri", "pattern": "^a"})))).err().unwrap().to_string();
    assert!(iri.contains("`format` at # (iri is not supported);"), "{iri}");
}

#[test]
fn a_strict_function_and_a_document_are_refused_with_function_place_and_keyword() {
    for (schema, _, keyword) in advice() {
        let place = format!("`{keyword}` at #/properties/v (");
        let of_calls = calls(&schema, true).err().unwrap_or_else(|| panic!("{schema} is accepted")).to_string();
        assert!(of_calls.starts_with("the schema of the function `f` ") && of_calls.contains(&place), "{of_calls}");
        let of_document = compile(Grammar::JsonSchema(schema)).err().unwrap().to_string();
        assert!(of_document.starts_with("the JSON schema ") && of_document.contains(&place), "{of_document}");
    }
}

#[test]
fn a_schema_that_cannot_be_compiled_leaves_arguments_free_unless_it_is_strict() {
    let none = json!({"type": "object", "properties": {"a": false}, "required": ["a"]});
    let mut many = json!({"type": "object", "properties": {}});
    (0..1001).for_each(|i| many["properties"][format!("p{i}")] = json!({"$ref": "#"}));
    for schema in [none, many, json!(false)] {
        let compiled = calls(&schema, false).unwrap_or_else(|e| panic!("{e}"));
        assert!(accepts(&compiled, &call(&json!({"any": [1]}))));
        assert!(!accepts(&compiled, &call(&json!([]))), "arguments are an object");
        assert!(compiled.ignored()[0].starts_with("f: the whole schema ("), "{:?}", compiled.ignored());
        assert!(calls(&schema, true).err().unwrap().to_string().contains("the function `f`"));
    }
}

#[test]
fn a_call_has_an_object_of_the_arguments_that_its_schema_names() {
    let closed = calls(&json!({"properties": {"a": {}}}), true).unwrap();
    assert!(accepts(&closed, &call(&json!({"a": 1}))) && accepts(&closed, &call(&json!({}))));
    assert!(!accepts(&closed, &call(&json!({"b": 1}))) && !accepts(&closed, &call(&json!("a"))));
    let open = calls(&json!({"type": ["object", "null"], "properties": {"a": {}}, "additionalProperties": true}), true)
        .unwrap();
    assert!(accepts(&open, &call(&json!({"b": 1}))) && !accepts(&open, &call(&json!(null))));
}

#[test]
fn alternatives_that_exclude_each_other_are_held_as_one_of() {
    let object = |kind: &str| json!({"type": "object", "properties": {"kind": {"const": kind}}, "required": ["kind"]});
    for schema in [
        json!({"oneOf": [{"type": "string"}, {"type": "integer"}, {"type": "null"}]}),
        json!({"oneOf": [{"const": 1}, {"enum": [2, 3]}]}),
        json!({"oneOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}], "$defs": {"a": object("a"), "b": object("b")}}),
    ] {
        compile(Grammar::JsonSchema(schema)).unwrap();
    }
}

#[test]
fn lists_of_alternatives_beside_each_other_hold_together() {
    let one = |names: [&str; 2]| json!([{"const": names[0]}, {"const": names[1]}]);
    let all = json!([{"anyOf": [{"const": "b"}, {"const": "z"}]}]);
    let (any, one_of) = (one(["a", "b"]), one(["b", "c"]));
    for schema in
        [json!({"anyOf": any, "oneOf": one_of, "allOf": all}), json!({"allOf": all, "oneOf": one_of, "anyOf": any})]
    {
        let compiled = compile(Grammar::JsonSchema(schema)).unwrap();
        let taken = ["a", "b", "c", "z"].map(|value| accepts(&compiled, &json!(value).to_string()));
        assert_eq!(taken, [false, true, false, false]);
    }
}

#[test]
fn integers_of_64_bits_are_exact() {
    let of = |schema: Value| json!({"type": "object", "properties": {"v": schema}, "required": ["v"], "additionalProperties": false});
    let v = |value: i128| serde_json::from_str::<Value>(&format!("{{\"v\":{value}}}")).unwrap();
    let (id, big) = (1_234_567_890_123_456_789_i128, i128::from(u64::MAX));
    for (schema, allowed, refused) in [
        (json!({"const": id as u64}), vec![id], vec![id - 1, id + 1, 1_234_567_890_123_456_768]),
        (
            json!({"type": "integer", "enum": [id as u64, -id as i64, 7, u64::MAX]}),
            vec![id, -id, 7, big],
            vec![big - 1, 8],
        ),
        (json!({"type": ["integer", "null"], "minimum": id as u64}), vec![id, id + 1, big * 10], vec![id - 1, 0, -id]),
        (json!({"type": "integer", "maximum": id as u64}), vec![id, 0, -1, -id * 100], vec![id + 1, id * 10]),
        (
            json!({"type": "integer", "exclusiveMinimum": -id as i64, "exclusiveMaximum": id as u64}),
            vec![1 - id, 0, id - 1],
            vec![id, -id],
        ),
        (
            json!({"type": "integer", "minimum": i64::MIN, "maximum": i64::MAX}),
            vec![i64::MIN.into(), 0, i64::MAX.into()],
            vec![i128::from(i64::MIN) - 1, i128::from(i64::MAX) + 1],
        ),
        (json!({"type": "integer", "minimum": 0, "maximum": u64::MAX}), vec![0, big], vec![-1, big + 1]),
        (
            json!({"anyOf": [{"type": "integer", "maximum": i64::MAX}, {"type": "null"}]}),
            vec![0, i64::MAX.into()],
            vec![i128::from(i64::MAX) + 1],
        ),
        (
            json!({"type": "integer", "minimum": 9_007_199_254_740_993_u64, "maximum": 9_007_199_254_740_995_u64}),
            vec![9_007_199_254_740_993, 9_007_199_254_740_995],
            vec![9_007_199_254_740_992, 9_007_199_254_740_996],
        ),
    ] {
        let (allowed, refused): (Vec<Value>, Vec<Value>) = (
            allowed.into_iter().map(v).collect(),
            refused.into_iter().filter(|n| n.unsigned_abs() <= u64::MAX.into()).map(v).collect(),
        );
        let allowed: Vec<Value> = allowed.into_iter().filter(|value| !value["v"].is_f64()).collect();
        check(of(schema), &allowed, &refused);
    }
    // Inside other values.
    let nested = of(json!({"enum": [{"ids": [id as u64, 1]}, "none"]}));
    check(
        nested,
        &[json!({"v": {"ids": [id as u64, 1]}}), json!({"v": "none"})],
        &[json!({"v": {"ids": [id as u64 + 1, 1]}})],
    );
    // Conditions joined with a constant are not dropped silently.
    for joined in [
        json!({"allOf": [{"const": id as u64}, {"anyOf": [{"type": "string"}, {"const": id as u64}]}]}),
        json!({"allOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}], "$defs": {"a": {"const": id as u64}}}),
    ] {
        let Ok(compiled) = compile(Grammar::JsonSchema(joined)) else { continue };
        assert!(accepts(&compiled, &id.to_string()) && !accepts(&compiled, "\"kiln exact integer 0.\""));
    }
}

/// The ranges' regular expressions, compared with arithmetic.
#[test]
fn ranges_have_their_integers_and_no_others() {
    use crate::grammar::numbers::Range;
    let mut random = Random(8);
    for _ in 0..40 {
        let mut bound = || i128::from(random.below(4000)) - 2000;
        let (a, b) = (bound(), bound());
        let range = Range { least: Some(a.min(b)), most: Some(a.max(b)) };
        let compiled = lark(&format!("start: /{}/", range.regex())).unwrap();
        for number in [a, b, a.min(b) - 1, a.max(b) + 1, (a + b) / 2, 0, 9, 10, -10, 999, 1000] {
            let is_within = (a.min(b)..=a.max(b)).contains(&number);
            assert_eq!(accepts(&compiled, &number.to_string()), is_within, "{number} of {range:?}: {}", range.regex());
        }
    }
}

/// A random schema of supported keywords, and a document that satisfies it.
fn satisfiable(random: &mut Random, depth: u32) -> (Value, Value) {
    let kinds = if depth == 0 { 5 } else { 9 };
    match random.below(kinds) {
        0 => (json!({"type": "null"}), Value::Null),
        1 => (json!({"type": "boolean"}), json!(random.below(2) == 0)),
        2 => {
            let number = i64::from(random.below(2000)) - 1000;
            let (below, above) = (i64::from(random.below(50)), i64::from(random.below(50)));
            (json!({"type": "integer", "minimum": number - below, "maximum": number + above}), json!(number))
        }
        3 => {
            let length = random.below(12) as usize;
            let text = "kiln fires clay"[..length].to_owned();
            (json!({"type": "string", "minLength": length / 2, "maxLength": length + 3}), json!(text))
        }
        4 => (
            json!({"enum": ["on", "off", 3, null]}),
            [json!("on"), json!("off"), json!(3)][random.below(3) as usize].clone(),
        ),
        5 | 6 => {
            let count = random.below(4) as usize;
            let (items, one) = satisfiable(random, depth - 1);
            let least = random.below(count as u32 + 1);
            (
                json!({"type": "array", "items": items, "minItems": least, "maxItems": count + 1}),
                json!(vec![one; count]),
            )
        }
        7 => {
            let (mut properties, mut required, mut document) = (json!({}), Vec::new(), json!({}));
            for name in ["a", "b", "c", "d"].into_iter().take(1 + random.below(4) as usize) {
                let (schema, value) = satisfiable(random, depth - 1);
                properties[name] = schema;
                let is_required = random.below(2) == 0;
                if is_required {
                    required.push(name);
                }
                if is_required || random.below(2) == 0 {
                    document[name] = value;
                }
            }
            let schema = json!({"type": "object", "properties": properties, "required": required,
                "additionalProperties": random.below(2) == 0});
            (schema, document)
        }
        _ => {
            let ((a, one), (b, other)) = (satisfiable(random, depth - 1), satisfiable(random, depth - 1));
            (json!({"anyOf": [a, b]}), if random.below(2) == 0 { one } else { other })
        }
    }
}

#[test]
fn no_satisfiable_schema_is_refused_nor_a_document_that_satisfies_it() {
    let matrix = json!({"type": "array", "minItems": 2, "items": {"type": "array", "minItems": 1, "items": {"type": "integer"}}});
    let mut random = Random(16);
    let at_random = (0..150).map(|_| satisfiable(&mut random, 4));
    for (schema, document) in at_random.chain([(matrix, json!([[1], [1]]))]) {
        assert!(satisfies(&schema, &schema, &document), "{document} for {schema}");
        let compiled = compile(Grammar::JsonSchema(schema.clone())).unwrap_or_else(|e| panic!("{schema}: {e}"));
        assert!(accepts(&compiled, &document.to_string()), "{document} for {schema}");
    }
}

#[test]
fn a_schema_within_a_lark_grammar_is_held_as_one_alone() {
    let within =
        |schema: &Value| lark(&format!("start: \"%json {{}}\" a // %json {{\"not\":{{}}}}\na: %json {schema} \"!\"\n"));
    let number = (1_u64 << 60) + 1;
    // Exact numbers, references and bounded blanks.
    let schema = json!({"type": "object", "properties": {"v": {"$ref": "#/$defs/t"}}, "required": ["v"],
        "additionalProperties": false, "$defs": {"t": {"enum": [number]}}});
    let compiled = within(&schema).unwrap();
    let of = |text: &str| format!("%json {{}}{text}!");
    assert!(accepts(&compiled, &of(&format!("{{\"v\": {number}}}"))));
    assert!(!accepts(&compiled, &of(&format!("{{\"v\": {}}}", number - 1))), "rounded");
    assert!(!accepts(&compiled, &of(&format!("{{\"v\":   {number}}}"))), "blanks");
    // A schema's own layout options are kept.
    let mut rigid = schema.clone();
    rigid["x-guidance"] = json!({"whitespace_flexible": false});
    assert!(!accepts(&within(&rigid).unwrap(), &of(&format!("{{\"v\": {number}}}"))));
    // Reasons for refusing a schema.
    for (schema, what) in [
        (json!({"not": {"type": "null"}}), "`not` at #"),
        (json!({"type": "array", "minItems": 1_000_000_000}), "`minItems` at #"),
        (json!({"type": "string", "pattern": "^(a{1000}){1000}$"}), "`pattern` at #"),
        (json!({"type": "integer", "multipleOf": 7_436_429}), "`multipleOf` at #"),
        (json!({"type": "array", "x-guidance": {"item_separator": "(a{1000}){1000}"}}), "x-guidance"),
        (json!({"type": "array", "x-guidance": {"unheard": 1}}), "x-guidance"),
    ] {
        let e = within(&schema).expect_err(&schema.to_string()).to_string();
        assert!(e.contains(what), "{e}");
    }
}

/// The parser would give up inside the document.
#[test]
fn an_object_of_more_properties_than_can_be_followed_is_refused_or_left_free() {
    let of = |count: usize, required: usize| {
        let names: Vec<String> = (0..count).map(|i| format!("p{i}")).collect();
        let properties: serde_json::Map<String, Value> = names.iter().map(|name| (name.clone(), json!({}))).collect();
        json!({"type": "object", "properties": properties, "required": names[..required]})
    };
    let most = compile(Grammar::JsonSchema(of(400, 0))).unwrap();
    assert!(accepts(&most, "{\"p0\":1,\"p399\":2}"));
    assert!(compile(Grammar::JsonSchema(of(401, 1))).is_ok());
    let e = compile(Grammar::JsonSchema(of(401, 0))).unwrap_err().to_string();
    assert!(e.contains("401 properties that are not required"), "{e}");
    let e = calls(&of(401, 0), true).unwrap_err().to_string();
    assert!(e.contains("401 properties"), "{e}");
    let free = calls(&of(401, 0), false).unwrap();
    assert!(accepts(&free, &call(&json!({"other": 1}))) && free.ignored()[0].contains("the whole schema"));
}

/// The thought's text is free, and the document behind it is held as without one.
#[test]
fn a_thought_comes_before_the_document_and_is_not_held() {
    let tokenizer = Arc::new(crate::text::testing::thinking_tokenizer());
    let grammars = Grammars::new(tokenizer.clone(), tokenizer.stop_ids());
    let of = |grammar: Grammar| grammars.compile(&grammar, 0, &|| false).unwrap();
    let accepts = |start: Constraint, text: &str| {
        let (mut constraint, mut set) = (start, TokenSet::new(tokenizer.vocab_size()));
        tokenizer.encode(text, false).unwrap().into_iter().chain([tokenizer.stop_ids()[0]]).all(|token| {
            constraint.fill(&mut set).unwrap();
            set.contains(token) && constraint.accept(token).is_ok()
        })
    };
    let schema = json!({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]});
    let thought = |text: &str| format!("<|channel>thought\n{text}<channel|>");
    // A thought may have quotes and more digits than a number of a document.
    let digits = format!("\"{}", "1".repeat(99));
    for (compiled, document) in [
        (of(Grammar::JsonSchema(schema)), "{\"a\": 1}"),
        (of(Grammar::JsonObject), "{\"b\": [2]}"),
        (of(Grammar::Lark("start: \"yes\" | \"no\"".into())), "yes"),
    ] {
        let thinking = || Constraint::new(compiled.clone()).thinking();
        for good in [document.to_owned(), thought("") + document, thought(&digits) + document] {
            assert!(accepts(thinking(), &good), "{good}");
        }
        let long = format!("{{\"a\": {}}}", "1".repeat(40));
        for bad in [thought(""), thought("a") + "text", thought("a") + &thought("b") + document, thought("a") + &long] {
            assert!(!accepts(thinking(), &bad), "{bad}");
        }
        assert!(!accepts(Constraint::new(compiled.clone()), &(thought("a") + document)));
        assert!(!accepts(thinking(), "<|channel>thought"), "no stop token ends a thought");
    }
}

/// A tokenizer with FunctionGemma's tokens instead of unused ones, and grammars over it.
fn marked_grammars() -> (Arc<Tokenizer>, Grammars) {
    let mut file = include_str!("../../../tests/golden/tokenizer/tokenizer.json").to_owned();
    let marks = &crate::text::calls::MARKED[0];
    let taken = ["<unused0>", "<unused1>", "<unused2>", "<unused3>"];
    for (unused, mark) in taken.into_iter().zip([marks.call[0], marks.call[1], marks.quote, marks.result[0]]) {
        file = file.replace(&format!("\"{unused}\""), &format!("\"{mark}\""));
    }
    let tokenizer = Arc::new(Tokenizer::from_bytes(file.as_bytes()).unwrap());
    (tokenizer.clone(), Grammars::new(tokenizer.clone(), tokenizer.stop_ids()))
}

#[test]
fn calls_between_tokens_are_held_to_their_schemas() {
    let (tokenizer, grammars) = marked_grammars();
    let parameters = json!({"type": "object", "required": ["city"], "properties": {
        "unit": {"enum": ["c", "f"]}, "city": {"type": "string", "minLength": 1}, "days": {"type": ["integer", "null"]},
        "tags": {"type": "array", "items": {"$ref": "#/$defs/tag"}}, "deep": {"type": "object", "properties": {"on": {"type": "boolean"}}}},
        "$defs": {"tag": {"type": "string"}}});
    let function = |strict| Function { name: "weather".into(), parameters: parameters.clone(), strict };
    let other = Function { name: "now".into(), parameters: json!({"type": "object", "properties": {}}), strict: true };
    let syntax = CallSyntax::Marked(&crate::text::calls::MARKED[0]);
    let of = |beside: Beside, strict| {
        let functions = vec![function(strict), other.clone()];
        grammars.compile(&Grammar::Calls(Calls { functions, beside, several: true, syntax }), 0, &|| false)
    };
    let accepts = |compiled: &Arc<CompiledGrammar>, text: &str| {
        let mut constraint = Constraint::new(compiled.clone());
        let mut set = TokenSet::new(tokenizer.vocab_size());
        tokenizer.encode(text, false).unwrap().into_iter().chain([tokenizer.stop_ids()[0]]).all(|token| {
            constraint.fill(&mut set).unwrap();
            set.contains(token) && constraint.accept(token).is_ok()
        })
    };
    let (required, auto) = (of(Beside::Nothing, false).unwrap(), of(Beside::Text, false).unwrap());
    assert_eq!(required.ignored(), ["weather: minLength"]);
    let call = |body: &str| format!("<start_function_call>call:{body}<end_function_call>");
    let e = |text: &str| format!("<escape>{text}<escape>");
    let city = e("New\n\"York\", <b>{x}");
    for good in [
        call(&format!("weather{{city:{city}}}")),
        call(&format!("weather{{city:{city},days:-3,deep:{{on:true}},tags:[{},{}],unit:{}}}", e("a"), e(""), e("c"))),
        call(&format!("weather{{city:{},days:null,tags:[]}}", e(""))),
        call("now{}"),
        call("now{}") + &call("now{}"),
    ] {
        assert!(accepts(&required, &good) && accepts(&auto, &good), "{good}");
        assert!(accepts(&auto, &format!("Let me see. {good}")) && !accepts(&required, &format!("Let me see. {good}")));
    }
    for bad in [
        call("weather{}"),
        call(&format!("weather{{unit:{},city:{city}}}", e("c"))),
        call(&format!("weather{{city:{city},unit:{}}}", e("k"))),
        call(&format!("weather{{city:{city},days:1.5}}")),
        call("weather{city:York}"),
        call("now{a:1}"),
        call("then{}"),
        "<start_function_call>call:now{}".into(),
        "<escape>".into(),
        String::new(),
    ] {
        assert!(!accepts(&required, &bad) && !accepts(&auto, &bad), "{bad}");
    }
    assert!(accepts(&auto, "It rains.") && !accepts(&required, "It rains."));
    let document =
        of(Beside::Document(json!({"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"]})), false)
            .unwrap();
    assert!(accepts(&document, "{\"a\":1}") && accepts(&document, &call("now{}")) && !accepts(&document, "text"));
    assert!(of(Beside::Text, true).unwrap_err().to_string().contains("minLength"));
}

#[test]
fn a_document_goes_on_behind_what_is_begun() {
    let schema = json!({"type": "object", "properties": {"a": {"enum": ["xy"]}}, "required": ["a"], "additionalProperties": false});
    let document = compile(Grammar::JsonSchema(schema)).unwrap();
    let rest = |compiled: &Arc<CompiledGrammar>, begun: &str, rest: &str| {
        let mut constraint = Constraint::new(compiled.clone());
        compiled.tokens_of(begun, &TOKENIZER)?.into_iter().try_for_each(|token| constraint.accept(token))?;
        let mut tokens = TOKENIZER.encode(rest, false)?.into_iter().chain([TOKENIZER.stop_ids()[0]]);
        Ok::<bool, crate::Error>(tokens.all(|token| constraint.accept(token).is_ok()))
    };
    for (begun, end) in
        [("", "{\"a\":\"xy\"}"), (" \n{\"a\": \"x", "y\"}"), ("{\"a\":\"xy\"}", ""), ("{", "\"a\": \"xy\"}")]
    {
        assert_eq!(rest(&document, begun, end), Ok(true), "{begun}");
    }
    assert_eq!(rest(&document, "{\"a\": \"x", "}"), Ok(false));
    assert!(rest(&document, "Here: ", "{}").unwrap_err().to_string().contains("assistant's last message"));
    // Calls may follow any text. Text that begins a document of the grammar must continue it.
    let function =
        Function { name: "f".into(), parameters: json!({"type": "object", "properties": {}}), strict: false };
    let of = |beside| {
        compile(Grammar::Calls(Calls {
            functions: vec![function.clone()],
            beside,
            several: false,
            syntax: CallSyntax::Json,
        }))
        .unwrap()
    };
    let call = call(&json!({}));
    assert_eq!(rest(&of(Beside::Nothing), "Here: ", &call), Ok(true));
    assert_eq!(rest(&of(Beside::Nothing), &call[..9], &call[9..]), Ok(true));
    assert_eq!(rest(&of(Beside::Text), "The", " cat"), Ok(true));
}
