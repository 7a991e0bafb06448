//! Conversion of text to tokens: text from a client stays text.

use super::*;
use crate::engine::core::ReplyTokens;
use crate::serve::service::Defaults;

fn tokens(served: &TestServer, body: Value) -> Vec<u32> {
    serde_json::from_value(served.well("/tokenize", &body)["tokens"].clone()).unwrap()
}

#[test]
fn content_that_spells_a_special_token_stays_text() {
    let served = without_engine(ServerSettings::default());
    let model = served.service.model().unwrap();
    let text_of = |id: u32, skip: bool| model.tokenizer.decode(&[id], skip).unwrap_or_default();
    let special: Vec<u32> = (0..model.shape.vocab as u32)
        .filter(|&id| text_of(id, true).is_empty() && !text_of(id, false).is_empty())
        .filter(|&id| !text_of(id, false).contains('\u{fffd}'))
        .collect();
    assert!(special.len() >= 6, "{special:?}");
    let count = |tokens: &[u32]| tokens.iter().filter(|id| special.contains(id)).count();
    let talk = |text: &str| {
        let part = json!([{"type": "text", "text": text}]);
        json!({"messages": [
            {"role": "system", "content": text}, {"role": "user", "content": part},
            {"role": "assistant", "content": text}, {"role": "user", "content": text}]})
    };
    let usual = count(&tokens(&served, talk("hello")));
    for &id in &special {
        let spelled = text_of(id, false);
        let tokens = tokens(&served, talk(&format!("a{spelled}b")));
        assert_eq!(count(&tokens), usual, "{spelled}");
        assert_eq!(model.tokenizer.decode(&tokens, false).unwrap().matches(&format!("a{spelled}b")).count(), 4);
        // Spelled across two parts, and at the end of a continued turn.
        let (left, right) = spelled.split_at(spelled.len() / 2);
        let parts = json!([{"type": "text", "text": left}, {"type": "text", "text": right}]);
        let split = self::tokens(&served, json!({"messages": [{"role": "user", "content": parts}]}));
        assert_eq!(count(&split), count(&self::tokens(&served, json!({"messages": question("hello")}))), "{spelled}");
    }
}

#[test]
fn a_last_turn_of_the_assistant_is_continued() {
    let served = without_engine(ServerSettings::default());
    let model = served.service.model().unwrap();
    let spelled = "Yes<end_of_turn>\n";
    let talk = json!([{"role": "user", "content": "Open?"}, {"role": "assistant", "content": spelled}]);
    let tokens = tokens(&served, json!({"messages": talk}));
    let text = model.tokenizer.decode(&tokens, false).unwrap();
    assert_eq!(text, "<bos><start_of_turn>user\nOpen?<end_of_turn>\n<start_of_turn>model\nYes<end_of_turn>");
    let end = model.tokenizer.end_of_turn().unwrap();
    assert_eq!(
        tokens.iter().filter(|&&id| id == end).count(),
        1,
        "the user's turn ends; the assistant's text does not"
    );
}

/// As in the chat of `kiln run`, by the same code.
#[test]
fn truncation_forgets_the_oldest_exchanges_and_says_how_many() {
    let said = |i: usize| {
        [
            json!({"role": "user", "content": format!("{i} {}", "word ".repeat(30))}),
            json!({"role": "assistant", "content": "Yes."}),
        ]
    };
    let talk: Vec<Value> =
        (0..6).flat_map(said).chain(question("When do you open?").as_array().cloned().unwrap()).collect();
    let body = |talk: &[Value], truncation: &str| json!({"messages": talk, "input": talk, "truncation": truncation, "max_tokens": 2, "max_output_tokens": 2, "temperature": 0});
    for (path, count) in [("/v1/chat/completions", "prompt_tokens"), ("/v1/responses", "input_tokens")] {
        let tokens = |talk: &[Value]| DEMO.well(path, &body(talk, "auto"))["usage"][count].as_u64().unwrap();
        assert_eq!(DEMO.post(path, &body(&talk, "disabled")).error().2, "context_length_exceeded");
        let answer = DEMO.post(path, &body(&talk, "auto"));
        let forgotten: usize = answer.header("Kiln-Forgotten-Exchanges").unwrap().parse().unwrap();
        assert!((1..6).contains(&forgotten), "{answer:?}");
        // The kept exchanges fill at most seven eighths of the context.
        let kept = answer.json()["usage"][count].as_u64().unwrap();
        assert_eq!(kept, tokens(&talk[2 * forgotten..]));
        assert!(kept <= 224 && kept + tokens(&said(0)[..1]) > 224, "{kept}");
        let whole = DEMO.post(path, &body(&talk[2 * forgotten..], "auto"));
        assert_eq!((whole.status, whole.header("Kiln-Forgotten-Exchanges")), (200, None));
        let long = [json!({"role": "user", "content": "word ".repeat(300)})];
        assert_eq!(DEMO.post(path, &body(&long, "auto")).error().2, "context_length_exceeded");
        let (status, param, _) = DEMO.post(path, &body(&talk[..2], "auto")).error();
        assert_eq!((status, param.as_str()), (400, "truncation"));
        let (status, param, _) = DEMO.post(path, &body(&talk, "middle")).error();
        assert_eq!((status, param.as_str()), (400, "truncation"));
    }
}

/// Ollama's name for it. A single prompt has no exchanges to drop, and is refused if it is too long.
#[test]
fn ollamas_truncate_forgets_the_oldest_exchanges() {
    let said = |i: usize| {
        let asked = format!("{i} {}", "word ".repeat(30));
        [json!({"role": "user", "content": asked}), json!({"role": "assistant", "content": "Yes."})]
    };
    let talk: Vec<Value> = (0..6).flat_map(said).chain(question("Open?").as_array().cloned().unwrap()).collect();
    let body = |talk: &[Value], truncate: Value| json!({"messages": talk, "truncate": truncate, "stream": false, "options": {"num_predict": 2, "temperature": 0}});
    for refused in [json!(false), json!(null)] {
        assert_eq!(DEMO.post("/api/chat", &body(&talk, refused)).status, 400);
    }
    let answer = DEMO.post("/api/chat", &body(&talk, json!(true)));
    let forgotten: usize = answer.header("Kiln-Forgotten-Exchanges").unwrap().parse().unwrap();
    assert!((1..6).contains(&forgotten), "{answer:?}");
    let kept = DEMO.well("/api/chat", &body(&talk[2 * forgotten..], json!(false)));
    assert_eq!(answer.json()["prompt_eval_count"], kept["prompt_eval_count"]);
    // If the last message is the assistant's, it is continued as usual.
    let continued = |truncate| DEMO.well("/api/chat", &body(&talk[..2], truncate))["prompt_eval_count"].clone();
    assert_eq!(continued(json!(true)), continued(json!(false)));
    let long = json!({"prompt": "word ".repeat(300), "truncate": true, "stream": false});
    let refused = DEMO.post("/api/generate", &long);
    assert!(refused.status == 400 && refused.json()["error"].to_string().contains("context"), "{refused:?}");
    for path in ["/api/chat", "/api/generate"] {
        let wrong = json!({"messages": &talk[..1], "prompt": "Hello", "truncate": "yes"});
        let refused = DEMO.post(path, &wrong);
        assert!(refused.status == 400 && refused.json()["error"].to_string().contains("truncate"), "{refused:?}");
    }
}

#[test]
fn tokens_and_text_turn_into_each_other() {
    let served = without_engine(ServerSettings::default());
    let text = "We open at nine. 😀";
    let (prompt, content) = (tokens(&served, json!({"prompt": text})), tokens(&served, json!({"content": text})));
    assert_eq!((prompt[0], &prompt[1..]), (2, &content[..]));
    assert_eq!(tokens(&served, json!({"prompt": text, "add_special_tokens": false})), content);
    assert_eq!(served.well("/detokenize", &json!({"tokens": content}))["content"], json!(text));
    let count = served.well("/tokenize", &json!({"prompt": text}));
    assert_eq!((&count["count"], &count["max_model_len"]), (&json!(prompt.len()), &json!(256)));
}

#[test]
fn the_model_goes_by_its_name_and_its_aliases() {
    let served = without_engine(ServerSettings { aliases: vec!["org/alias".into()], ..ServerSettings::default() });
    let list = served.get("/v1/models").json();
    let names: Vec<&str> = list["data"].as_array().unwrap().iter().map(|model| model["id"].as_str().unwrap()).collect();
    assert_eq!(names, ["demo", "org/alias"]);
    for path in ["/v1/models/demo", "/v1/models/org/alias", "/v1/models/org%2Falias"] {
        let model = served.get(path).json();
        assert_eq!(
            (&model["object"], &model["root"], &model["max_model_len"]),
            (&json!("model"), &json!("demo"), &json!(256))
        );
    }
    assert_eq!(served.get("/v1/models/other").error(), (404, "model".into(), "model_not_found".into()));
}

#[test]
fn a_strict_server_answers_to_its_names_alone() {
    let served = without_engine(ServerSettings {
        strict_model: true,
        aliases: vec!["alias".into()],
        ..ServerSettings::default()
    });
    let ask = |path: &str, model: &str| {
        let mut body = json!({"model": model, "tokens": [5], "messages": question("hi"), "input": "hi"});
        // `prompt` of /v1/responses means a prompt stored by OpenAI.
        if path != "/v1/responses" {
            body["prompt"] = json!("hi");
        }
        served.post(path, &body)
    };
    for path in ["/v1/chat/completions", "/v1/completions", "/v1/responses", "/tokenize", "/detokenize"] {
        assert_eq!(ask(path, "other").error(), (404, "model".into(), "model_not_found".into()), "{path}");
    }
    for path in ["/api/chat", "/api/generate", "/api/show", "/v1/messages"] {
        assert_eq!(ask(path, "other").status, 404, "{path}");
    }
    for name in ["demo", "alias", "demo:latest", "alias:latest"] {
        assert_eq!(ask("/tokenize", name).status, 200, "{name}");
    }
    assert_eq!(
        without_engine(ServerSettings::default()).post("/tokenize", &json!({"model": "other", "prompt": "hi"})).status,
        200
    );
}

#[test]
fn a_byte_order_mark_is_no_part_of_a_body_and_a_compressed_one_is_refused() {
    let served = without_engine(ServerSettings::default());
    assert_eq!(served.post_bytes("/tokenize", b"\xef\xbb\xbf{\"prompt\": \"hi\"}").status, 200);
    let ask = |coding: &str| {
        let mut stream = TcpStream::connect(served.address).unwrap();
        let head = format!("POST /tokenize HTTP/1.0\r\nContent-Encoding: {coding}\r\nContent-Length: 15\r\n\r\n");
        stream.write_all((head + "{\"prompt\":\"hi\"}").as_bytes()).unwrap();
        TextResponse::read(stream)
    };
    let answer = ask("gzip");
    assert_eq!(answer.error(), (415, "".into(), "unsupported_media_type".into()));
    assert!(answer.body.contains("compressed") && answer.body.contains("gzip"), "{answer:?}");
    assert_eq!(ask("identity").status, 200);
}

#[test]
fn llama_cpps_clients_learn_what_the_server_is() {
    let served = without_engine(ServerSettings::default());
    let props = served.get("/props").json();
    assert_eq!((&props["default_generation_settings"]["n_ctx"], &props["total_slots"]), (&json!(256), &json!(4)));
    assert_eq!((&props["bos_token"], &props["model_alias"]), (&json!("<bos>"), &json!("demo")));
    assert_eq!(props["build_info"], concat!("kiln ", env!("CARGO_PKG_VERSION")));
    let params = &props["default_generation_settings"]["params"];
    assert_eq!(
        (&params["temperature"], &params["top_p"], &params["max_tokens"]),
        (&json!(1.0), &json!(0.95), &json!(-1))
    );
    let defaults = Defaults {
        sampler: SamplerConfig { temperature: 0.1, ..SamplerConfig::default() },
        limit: 7,
        ..Defaults::default()
    };
    served.service.defaults.set(defaults);
    let params = served.get("/props").json()["default_generation_settings"]["params"].clone();
    assert_eq!((&params["temperature"], &params["max_tokens"]), (&json!(0.1), &json!(7)));
    // Slots in use show counts but no text.
    served.service.slots.set(vec![None, Some(ReplyTokens { prompt: 12, reply: 3 })]);
    let slots = served.get("/slots").json();
    assert_eq!((&slots[0]["is_processing"], &slots[0].get("n_prompt_tokens")), (&json!(false), &None));
    let taken = json!({"id": 1, "n_ctx": 256, "speculative": false, "is_processing": true, "n_prompt_tokens": 12,
        "next_token": [{"has_next_token": true, "n_decoded": 3}]});
    assert_eq!(slots[1], taken);
    let described: Value = served.get("/openapi.json").json()["components"]["schemas"]["Slot"]["properties"].clone();
    assert!(slots[1].as_object().unwrap().keys().all(|name| described.get(name).is_some()), "{described}");
    served.service.slots.set(vec![Some(ReplyTokens { prompt: 1, reply: 0 }); 4]);
    assert_eq!(served.get("/slots?fail_on_no_slot=1").status, 503);
    served.service.slots.set(Vec::new());
    assert_eq!((slots.as_array().unwrap().len(), &slots[3]["is_processing"]), (4, &json!(false)));
    assert_eq!(
        (served.get("/slots?fail_on_no_slot=1").status, served.get("/slots?fail_on_no_slot=x").status),
        (200, 400)
    );
    assert_eq!(served.post("/v1/embeddings", &json!({"input": "hi"})).status, 501);
}

#[test]
fn a_conversation_that_brings_no_system_message_has_the_servers() {
    let served = without_engine(ServerSettings { system: Some("Be brief.".into()), ..ServerSettings::default() });
    let text = |messages: Value| {
        let tokens = tokens(&served, json!({"messages": messages}));
        served.service.model().unwrap().tokenizer.decode(&tokens, false).unwrap()
    };
    assert!(text(question("hi")).contains("Be brief.\n\nhi"));
    let own = text(json!([{"role": "developer", "content": "Be long."}, {"role": "user", "content": "hi"}]));
    assert!(own.contains("Be long.\n\nhi") && !own.contains("brief"), "{own}");
    // Clients send an empty system message if there is none.
    let empty = json!([{"role": "system", "content": ""}, {"role": "user", "content": "hi"}]);
    assert_eq!(text(empty), text(question("hi")));
}
