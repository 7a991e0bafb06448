//! Replies of the server equal those of the model alone, in complete answers and streams.

use super::*;

const CHAT: &str = "/v1/chat/completions";
const PLAIN: &str = "/v1/completions";

/// The tokens of a request's prompt.
fn prompt_of(messages: &Value) -> Vec<u32> {
    let tokens = DEMO.well("/tokenize", &json!({"messages": messages}));
    tokens["tokens"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
}

fn content(answer: &Value, choice: usize) -> String {
    answer["choices"][choice]["message"]["content"].as_str().unwrap().to_owned()
}

#[test]
fn a_greedy_reply_is_what_the_model_says_alone_and_its_stream_adds_up_to_it() {
    let messages = question("When do you open on Sunday?");
    let prompt = prompt_of(&messages);
    let expected = alone(&prompt, 24);
    let text = DEMO.service.model().unwrap().tokenizer.decode(&expected.tokens, true).unwrap();
    let body = json!({"model": "any", "messages": messages, "temperature": 0, "max_tokens": 24});

    let first = DEMO.well(CHAT, &body);
    assert_eq!(
        (content(&first, 0), &first["choices"][0]["finish_reason"]),
        (text.clone(), &json!(expected.finish.name()))
    );
    assert_eq!(
        (&first["object"], &first["model"], &first["choices"][0]["index"]),
        (&json!("chat.completion"), &json!("demo"), &json!(0))
    );
    let usage = |answer: &Value, name: &str| answer["usage"][name].as_u64().unwrap() as usize;
    assert_eq!(usage(&first, "prompt_tokens"), prompt.len());
    assert_eq!(usage(&first, "completion_tokens"), expected.tokens.len());
    assert_eq!(usage(&first, "total_tokens"), prompt.len() + expected.tokens.len());

    // Everything but the last token is cached, whose logits are needed.
    let again = DEMO.well(CHAT, &body);
    let cached = |answer: &Value| answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap() as usize;
    assert_eq!((content(&again, 0), again["id"] == first["id"]), (text.clone(), false));
    assert!((1..prompt.len()).contains(&cached(&again)), "{again}");
    let mut afresh = body.clone();
    afresh["cache_prompt"] = false.into();
    assert_eq!(cached(&DEMO.well(CHAT, &afresh)), 0);

    let mut streamed = body.clone();
    streamed["stream_options"] = json!({"include_usage": true});
    let events = DEMO.events(CHAT, &streamed);
    let (last, events) = events.split_last().unwrap();
    assert_eq!((&last["choices"], usage(last, "completion_tokens")), (&json!([]), expected.tokens.len()));
    assert!(events.iter().all(|event| event["usage"].is_null() && event["id"] == last["id"]));
    let pieces = events.iter().filter_map(|event| event["choices"][0]["delta"]["content"].as_str());
    assert_eq!(pieces.collect::<String>(), text);
    assert_eq!(events[0]["choices"][0]["delta"]["role"], "assistant");
    let reasons: Vec<&Value> = events.iter().map(|event| &event["choices"][0]["finish_reason"]).collect();
    assert_eq!(reasons.iter().filter(|reason| !reason.is_null()).count(), 1);
    assert_eq!(*reasons.last().unwrap(), &json!(expected.finish.name()));
    assert!(DEMO.events(CHAT, &body).iter().all(|event| event.get("usage").is_none()));

    // The same prompt as text and as tokens.
    let rest = |prompt: Value| DEMO.well(PLAIN, &json!({"prompt": prompt, "temperature": 0, "max_tokens": 24}));
    let whole = DEMO.well("/detokenize", &json!({"tokens": prompt}))["prompt"].as_str().unwrap().to_owned();
    assert_eq!(rest(json!(prompt))["choices"][0]["text"], json!(text));
    assert_eq!(rest(json!(whole))["choices"][0]["text"], json!(text));
}

#[test]
fn each_of_several_replies_is_drawn_with_a_seed_of_its_own() {
    // The demo model is certain of its own answers, but not of other texts.
    let body = |n: usize, seed: i64| json!({"prompt": "The", "n": n, "seed": seed, "max_tokens": 8, "temperature": 2, "top_p": 1, "top_k": 0});
    let several = DEMO.well(PLAIN, &body(3, 7));
    let text = |answer: &Value, choice: usize| answer["choices"][choice]["text"].as_str().unwrap().to_owned();
    let texts: Vec<String> = (0..3).map(|i| text(&several, i)).collect();
    for (i, expected) in texts.iter().enumerate() {
        assert_eq!(&text(&DEMO.well(PLAIN, &body(1, 7 + i as i64)), 0), expected, "{i}");
    }
    assert!(texts.iter().any(|text| *text != texts[0]), "{texts:?}");
    // Pieces of a stream belong to their choices.
    let mut streamed = vec![String::new(); 3];
    for event in DEMO.events(PLAIN, &body(3, 7)) {
        let choice = &event["choices"][0];
        streamed[choice["index"].as_u64().unwrap() as usize] += choice["text"].as_str().unwrap();
    }
    assert_eq!(streamed, texts);
    assert!(several["usage"]["completion_tokens"].as_u64().unwrap() > 8, "of all replies: {several}");
}

#[test]
fn a_stop_text_and_a_limit_end_a_reply() {
    let ask = |more: Value| {
        let mut body = json!({"messages": question("When do you open on Sunday?"), "temperature": 0, "max_tokens": 24});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let answer = DEMO.well(CHAT, &body);
        (content(&answer, 0), answer["choices"][0]["finish_reason"].as_str().unwrap().to_owned())
    };
    let (whole, _) = ask(json!({}));
    let middle: String = whole.chars().skip(4).take(3).collect();
    let before = whole.split(&middle).next().unwrap().to_owned();
    assert_eq!(ask(json!({"stop": ["nowhere~", middle]})), (before, "stop".into()));
    let (short, reason) = ask(json!({"max_completion_tokens": 2}));
    assert!(whole.starts_with(&short) && short.len() < whole.len() && reason == "length", "{short}");
    // Forbidding the first token changes the reply.
    let first = DEMO.well("/tokenize", &json!({"content": whole}))["tokens"][0].to_string();
    assert_ne!(ask(json!({"logit_bias": {first: -100}})).0, whole);
}

#[test]
fn the_tokens_of_a_prompt_are_as_likely_as_when_they_were_chosen() {
    // Tokens that the model continues, regardless of its training.
    let prompt = (700..1000).map(|id| vec![2, id, id + 1]).find(|tokens| alone(tokens, 6).tokens.len() == 6).unwrap();
    let made = DEMO
        .well(PLAIN, &json!({"prompt": prompt, "temperature": 0, "max_tokens": 6, "logprobs": 1, "ignore_eos": true}));
    let made_logprobs = &made["choices"][0]["logprobs"];
    // The tokens in order, as in the reply's text.
    let mut tokens: Vec<u32> = prompt.clone();
    tokens.extend(alone(&tokens, 6).tokens);
    let count = tokens.len();
    assert!(count > 5, "{made}");
    let score = |limit: usize| {
        DEMO.well(PLAIN, &json!({"prompt": tokens, "echo": true, "logprobs": 1, "max_tokens": limit, "temperature": 0}))
    };
    for limit in [0, 1] {
        let scored = score(limit);
        let table = &scored["choices"][0]["logprobs"];
        let logprobs = table["token_logprobs"].as_array().unwrap();
        assert_eq!(
            (logprobs.len(), &logprobs[0], &table["top_logprobs"][0]),
            (count + limit, &json!(null), &json!(null))
        );
        for (at, own) in made_logprobs["token_logprobs"].as_array().unwrap().iter().enumerate().take(count - 3) {
            let (own, scored) = (own.as_f64().unwrap(), logprobs[3 + at].as_f64().unwrap());
            assert!((own - scored).abs() < 1e-3, "{at}: {own} and {scored}");
            // Each was the likeliest token.
            let top = table["top_logprobs"][3 + at].as_object().unwrap().values().next().unwrap().as_f64().unwrap();
            assert!((top - scored).abs() < 1e-6, "{table}");
        }
        let usage = (&scored["usage"]["prompt_tokens"], &scored["usage"]["completion_tokens"]);
        assert_eq!(usage, (&json!(count), &json!(limit)));
    }
    let text = DEMO.well("/detokenize", &json!({"tokens": tokens}))["prompt"].clone();
    assert_eq!(score(0)["choices"][0]["text"], text);
    // Stop texts and end-of-turn tokens in the prompt end nothing.
    let turn = DEMO.service.model().unwrap().tokenizer.end_of_turn().unwrap();
    let body =
        json!({"prompt": [2, 700, turn, 701], "echo": true, "logprobs": 0, "max_tokens": 1, "stop": ["e", "a", " "]});
    assert_eq!(DEMO.well(PLAIN, &body)["choices"][0]["logprobs"]["tokens"].as_array().unwrap().len(), 5);
    let refused = |more: Value| {
        let mut body = json!({"prompt": [2, 700], "echo": true, "logprobs": 1, "max_tokens": 1});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        DEMO.post(PLAIN, &body).error().1
    };
    assert_eq!(refused(json!({"max_tokens": 2})), "max_tokens");
    assert_eq!(refused(json!({"stream": true})), "echo");
    assert_eq!(refused(json!({"prompt": [2], "max_tokens": 0})), "prompt");
    // `false` disables likelihoods.
    let off = DEMO.well(PLAIN, &json!({"prompt": "The", "logprobs": false, "max_tokens": 1}));
    assert_eq!(off["choices"][0]["logprobs"], json!(null));
}

#[test]
fn likelihoods_come_with_each_token() {
    let messages = question("When do you open on Sunday?");
    let mut body =
        json!({"messages": messages, "temperature": 0, "max_tokens": 6, "logprobs": true, "top_logprobs": 3});
    let answer = DEMO.well(CHAT, &body);
    let entries = answer["choices"][0]["logprobs"]["content"].as_array().unwrap();
    assert_eq!(entries.len() as u64, answer["usage"]["completion_tokens"].as_u64().unwrap());
    let text: String = entries.iter().map(|entry| entry["token"].as_str().unwrap()).collect();
    assert_eq!(text, content(&answer, 0));
    for entry in entries {
        let top = entry["top_logprobs"].as_array().unwrap();
        assert_eq!((top.len(), &top[0]["token"], &top[0]["logprob"]), (3, &entry["token"], &entry["logprob"]));
        assert!(entry["logprob"].as_f64().unwrap() <= 0.0 && top[0]["logprob"].as_f64() >= top[1]["logprob"].as_f64());
        let bytes: Vec<u8> = serde_json::from_value(entry["bytes"].clone()).unwrap();
        assert_eq!(String::from_utf8(bytes).unwrap(), entry["token"].as_str().unwrap());
    }
    let streamed = DEMO.events(CHAT, &body);
    let of = |event: &Value| event["choices"][0]["logprobs"]["content"].as_array().cloned().unwrap_or_default();
    let streamed: Vec<Value> = streamed.iter().flat_map(of).collect();
    assert_eq!(streamed.len(), entries.len());
    assert!(streamed.iter().zip(entries).all(|(a, b)| a["token"] == b["token"]));
    body["logprobs"] = false.into();
    assert_eq!(DEMO.post(CHAT, &body).error(), (400, "top_logprobs".into(), "invalid_value".into()));

    let plain = DEMO.well(PLAIN, &json!({"prompt": "We open at", "temperature": 0, "max_tokens": 4, "logprobs": 2}));
    let choice = &plain["choices"][0];
    let tokens: Vec<String> = serde_json::from_value(choice["logprobs"]["tokens"].clone()).unwrap();
    assert_eq!(tokens.concat(), choice["text"].as_str().unwrap());
    let offsets: Vec<usize> = serde_json::from_value(choice["logprobs"]["text_offset"].clone()).unwrap();
    let expected = tokens.iter().scan("We open at".len(), |at, token| {
        let here = *at;
        *at += token.chars().count();
        Some(here)
    });
    assert_eq!(offsets, expected.collect::<Vec<usize>>());
    for (i, token) in tokens.iter().enumerate() {
        let top = &choice["logprobs"]["top_logprobs"][i];
        assert_eq!((top.as_object().unwrap().len(), &top[token]), (2, &choice["logprobs"]["token_logprobs"][i]));
    }
}

/// Tokens that form a character together begin at its offset, and each has its own key.
#[test]
fn an_offset_is_where_a_token_stands_in_the_text() {
    let prompt = "Sign \u{1f984}\u{1fae0} here";
    let body = json!({"prompt": prompt, "echo": true, "max_tokens": 1, "logprobs": 5, "temperature": 0});
    let choice = DEMO.well(PLAIN, &body)["choices"][0].clone();
    let (text, table) = (choice["text"].as_str().unwrap(), &choice["logprobs"]);
    let offsets: Vec<usize> = serde_json::from_value(table["text_offset"].clone()).unwrap();
    let tokens: Vec<&str> = table["tokens"].as_array().unwrap().iter().map(|token| token.as_str().unwrap()).collect();
    assert_eq!((tokens[0], offsets[0], offsets[1]), ("<bos>", 0, 0), "<bos> is no part of the text");
    assert!(offsets.is_sorted() && offsets.last() <= Some(&text.chars().count()), "{offsets:?}");
    let bytes: Vec<(&str, usize)> =
        tokens.iter().copied().zip(offsets.iter().copied()).filter(|(token, _)| token.starts_with("bytes:")).collect();
    assert_eq!((bytes.len(), bytes[0], bytes[4].1), (8, ("bytes:\\xf0", 5), 6), "{tokens:?}");
    // The other tokens are found at their offsets.
    let at = |offset: usize| text.chars().skip(offset).collect::<String>();
    for (token, offset) in tokens.iter().zip(&offsets).skip(1).filter(|(token, _)| !token.starts_with("bytes:")) {
        assert!(at(*offset).starts_with(token), "{token:?} at {offset} of {text:?}");
    }
    for top in table["top_logprobs"].as_array().unwrap().iter().skip(1) {
        assert!(top.as_object().is_some_and(|top| top.keys().all(|key| !key.contains('\u{fffd}'))), "{top}");
    }
    for prompt in [json!(prompt), DEMO.well("/tokenize", &json!({"content": prompt}))["tokens"].clone()] {
        let body = json!({"prompt": prompt, "max_tokens": 2, "logprobs": 1, "temperature": 0});
        let answer = DEMO.well(PLAIN, &body);
        assert_eq!(answer["choices"][0]["logprobs"]["text_offset"][0], json!(12), "behind the prompt");
    }
}

#[test]
fn a_seed_of_minus_one_is_drawn() {
    let ask = |seed: i64| {
        let body = json!({"prompt": "Once", "temperature": 2, "top_k": 0, "seed": seed, "max_tokens": 12});
        DEMO.well(PLAIN, &body)["choices"][0]["text"].clone()
    };
    let drawn: Vec<Value> = (0..4).map(|_| ask(-1)).collect();
    assert!(drawn.iter().any(|text| *text != drawn[0]), "{drawn:?}");
    assert_eq!((ask(0), ask(-2)), (ask(0), ask(-2)));
}

#[test]
fn several_prompts_have_their_replies_in_order() {
    let body = json!({"prompt": ["We open at", "The museum"], "n": 2, "temperature": 0, "max_tokens": 5, "echo": true});
    let answer = DEMO.well(PLAIN, &body);
    let texts: Vec<&str> = (0..4).map(|i| answer["choices"][i]["text"].as_str().unwrap()).collect();
    assert!(texts[0].starts_with("We open at") && texts[2].starts_with("The museum"), "{texts:?}");
    assert_eq!((texts[0], texts[2]), (texts[1], texts[3]));
    let mut streamed = vec![String::new(); 4];
    for event in DEMO.events(PLAIN, &body) {
        let choice = &event["choices"][0];
        streamed[choice["index"].as_u64().unwrap() as usize] += choice["text"].as_str().unwrap();
    }
    assert_eq!(streamed, texts);
    // Each prompt counts once.
    let one = |text: &str| DEMO.well("/tokenize", &json!({"prompt": text}))["count"].as_u64().unwrap();
    assert_eq!(answer["usage"]["prompt_tokens"].as_u64().unwrap(), one("We open at") + one("The museum"));
}

#[test]
fn an_answer_calls_the_model_as_the_request_does() {
    for (path, mut body) in [
        (CHAT, json!({"messages": question("Hi")})),
        (PLAIN, json!({"prompt": "Hi"})),
        ("/v1/responses", json!({"input": "Hi"})),
    ] {
        for (asked, said) in [(json!("alias"), "alias"), (json!("other"), "demo"), (json!(null), "demo")] {
            body["model"] = asked;
            body[if path == "/v1/responses" { "max_output_tokens" } else { "max_tokens" }] = json!(1);
            assert_eq!(DEMO.well(path, &body)["model"], said, "{path}");
        }
    }
    let body = json!({"messages": question("Hi"), "max_tokens": 1, "model": "alias"});
    assert!(DEMO.events(CHAT, &body).iter().all(|event| event["model"] == "alias"));
}

/// An unsupported keyword in one tool does not refuse a chat: a header of the answer lists it. A strict tool is
/// refused.
#[test]
fn what_a_tools_schema_asks_for_in_vain_is_said_in_a_header() {
    let parameters = json!({"type": "object", "properties": {"to": {"type": "string", "pattern": "^(?!x)"}}});
    for path in ["/v1/chat/completions", "/v1/responses", "/api/chat"] {
        for stream in [false, true] {
            let mut function = json!({"name": "mail", "parameters": parameters});
            let body = |function: &Value| {
                let flat = path == "/v1/responses";
                let mut tool = if flat { function.clone() } else { json!({"function": function}) };
                tool["type"] = "function".into();
                let limit = if flat { "max_output_tokens" } else { "max_tokens" };
                json!({"model": "demo", "messages": question("Hi"), "input": "Hi", "tools": [tool], (limit): 2, "stream": stream,
                    "options": {"num_predict": 2}})
            };
            let answer = DEMO.post(path, &body(&function));
            assert_eq!(answer.status, 200, "{path}: {answer:?}");
            let said = answer.header("Kiln-Ignored-Schema");
            assert_eq!(said, Some("mail: `pattern` at #/properties/to (has a look-around)"), "{path}");
            function["strict"] = true.into();
            let answer = DEMO.post(path, &body(&function));
            assert!(
                answer.status == 400 && answer.body.contains("`mail`") && answer.body.contains("#/properties/to"),
                "{answer:?}"
            );
            function["parameters"]["properties"]["to"] = json!({"type": "string"});
            let answer = DEMO.post(path, &body(&function));
            assert_eq!((answer.status, answer.header("Kiln-Ignored-Schema")), (200, None), "{path}");
        }
    }
}

/// With tools, a reply has the requested form or calls. The demo model does either, by bias.
#[test]
fn beside_tools_a_reply_has_the_form_that_is_asked_for() {
    let tool = json!({"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"a": {"enum": [1]}}, "required": ["a"]}}});
    let schema = json!({"type": "object", "properties": {"x": {"enum": [7, 8]}}, "required": ["x"], "additionalProperties": false});
    let format = json!({"type": "json_schema", "json_schema": {"name": "n", "schema": schema}});
    let body = |choice: Value, more: Value| {
        let mut body = json!({"messages": question("Hi"), "tools": [tool], "tool_choice": choice, "response_format": format,
            "parallel_tool_calls": false, "max_tokens": 60, "temperature": 0});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    // Where both are allowed, a bias on the tokens with `letter` inside the beginning decides between them.
    let without = |beginning: &str, letter: u8| {
        let tokenizer = &DEMO.service.model().unwrap().tokenizer;
        let is_it = |id: &u32| {
            let bytes = tokenizer.bytes(*id);
            bytes.contains(&letter) && beginning.as_bytes().windows(bytes.len()).any(|window| window == &bytes[..])
        };
        let ids = (0..tokenizer.vocab_size() as u32).filter(is_it);
        json!({"logit_bias": ids.map(|id| (id.to_string(), json!(-100))).collect::<serde_json::Map<_, _>>()})
    };
    let (name, x) = (without("{\"x\":", b'x'), without("{\"name\":", b'n'));
    let named = json!({"type": "function", "function": {"name": "f"}});
    for (choice, more, is_call) in [
        (json!("auto"), &name, true),
        (json!("auto"), &x, false),
        (json!("required"), &name, true),
        (named, &name, true),
        (json!("none"), &x, false),
    ] {
        let body = body(choice.clone(), more.clone());
        let answer = &DEMO.well(CHAT, &body)["choices"][0];
        let message = &answer["message"];
        let deltas: Vec<Value> = DEMO.events(CHAT, &body).iter().map(|event| event["choices"][0].clone()).collect();
        let streamed: String = deltas.iter().filter_map(|choice| choice["delta"]["content"].as_str()).collect();
        let calls: Vec<&Value> =
            deltas.iter().filter_map(|choice| choice["delta"]["tool_calls"].as_array()).flatten().collect();
        if is_call {
            assert_eq!(
                message["tool_calls"][0]["function"],
                json!({"name": "f", "arguments": "{\"a\":1}"}),
                "{choice}"
            );
            assert_eq!((&message["content"], &answer["finish_reason"]), (&json!(null), &json!("tool_calls")));
            assert_eq!((streamed.as_str(), calls.len()), ("", 1), "{choice}");
            assert_eq!(calls[0]["function"], message["tool_calls"][0]["function"]);
        } else {
            let text = message["content"].as_str().unwrap();
            let document: Value = serde_json::from_str(text).unwrap();
            assert!([7, 8].map(Value::from).contains(&document["x"]) && message.get("tool_calls").is_none(), "{text}");
            assert_eq!((answer["finish_reason"].as_str(), calls.len()), (Some("stop"), 0));
            assert_eq!(streamed, text);
            // A document is streamed as it arrives.
            assert!(
                deltas.iter().filter(|choice| choice["delta"]["content"].as_str() > Some("")).count() > 1,
                "{text}"
            );
        }
    }
    // A bias that forbids every call is the request's fault.
    let forbidden = DEMO.post(CHAT, &body(json!("required"), x.clone()));
    assert!(forbidden.status == 400 && forbidden.body.contains("logit_bias"), "{forbidden:?}");
    // Each of the two refused forms is named.
    let refused = |more: Value| DEMO.post(CHAT, &body(json!("auto"), more)).error();
    let not = json!({"type": "json_schema", "json_schema": {"schema": {"not": {}}}});
    assert_eq!(refused(json!({"response_format": not})).1, "response_format.json_schema.schema");
    let strict = json!([{"type": "function", "function": {"name": "f", "strict": true, "parameters": {"not": {}}}}]);
    assert_eq!(refused(json!({"tools": strict})).1, "tools");
    let lark = DEMO.post(CHAT, &body(json!("auto"), json!({"response_format": null, "grammar": "start: \"a\""})));
    assert_eq!((lark.error().0, lark.error().1), (400, "grammar".into()));
    // The same on the other paths with both.
    let flat = json!({"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}});
    let body = json!({"input": "Hi", "tools": [flat], "text": {"format": {"type": "json_schema", "name": "n", "schema": schema}},
        "max_output_tokens": 60, "logit_bias": x["logit_bias"], "temperature": 0});
    let output = &DEMO.well("/v1/responses", &body)["output"][0];
    assert!(output["content"][0]["text"].as_str().unwrap().contains("\"x\""), "{output}");
    let body = json!({"messages": question("Hi"), "tools": [tool], "format": schema, "stream": false,
        "options": {"num_predict": 60, "temperature": 0}});
    let message = &DEMO.well("/api/chat", &body)["message"];
    // Without a bias the model may begin either and be cut off by the context, but not write free text.
    let is_form = message["content"].as_str().is_some_and(|text| text.starts_with('{'));
    assert!(is_form || message.get("tool_calls").is_some(), "{message}");
}
