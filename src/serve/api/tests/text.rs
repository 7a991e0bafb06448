//! Text on its way to tokens: what a client writes stays text.

use super::*;

fn tokens(served: &Served, body: Value) -> Vec<u32> {
    serde_json::from_value(served.well("/tokenize", &body)["tokens"].clone()).unwrap()
}

#[test]
fn content_that_spells_a_special_token_stays_text() {
    let served = without_engine(Settings::default());
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
        // Spelled across two parts, and at the end of a turn that is continued.
        let (left, right) = spelled.split_at(spelled.len() / 2);
        let parts = json!([{"type": "text", "text": left}, {"type": "text", "text": right}]);
        let split = self::tokens(&served, json!({"messages": [{"role": "user", "content": parts}]}));
        assert_eq!(count(&split), count(&self::tokens(&served, json!({"messages": question("hello")}))), "{spelled}");
    }
}

#[test]
fn a_last_turn_of_the_assistant_is_continued() {
    let served = without_engine(Settings::default());
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

#[test]
fn tokens_and_text_turn_into_each_other() {
    let served = without_engine(Settings::default());
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
    let served = without_engine(Settings { aliases: vec!["org/alias".into()], ..Settings::default() });
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
fn a_conversation_that_brings_no_system_message_has_the_servers() {
    let served = without_engine(Settings { system: Some("Be brief.".into()), ..Settings::default() });
    let text = |messages: Value| {
        let tokens = tokens(&served, json!({"messages": messages}));
        served.service.model().unwrap().tokenizer.decode(&tokens, false).unwrap()
    };
    assert!(text(question("hi")).contains("Be brief.\n\nhi"));
    let own = text(json!([{"role": "developer", "content": "Be long."}, {"role": "user", "content": "hi"}]));
    assert!(own.contains("Be long.\n\nhi") && !own.contains("brief"), "{own}");
    // Clients send an empty one where nobody wrote any.
    let empty = json!([{"role": "system", "content": ""}, {"role": "user", "content": "hi"}]);
    assert_eq!(text(empty), text(question("hi")));
}
