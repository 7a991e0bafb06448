//! Ollama's API.

use super::*;
use crate::Error;

/// The lines of a stream that ends cleanly.
fn lines(path: &str, body: &Value) -> Vec<Value> {
    let answer = DEMO.post(path, body);
    assert!(answer.is_whole && answer.header("Content-Type") == Some("application/x-ndjson"), "{answer:?}");
    answer.body.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn chat_and_generate_say_what_a_chat_completion_says() {
    let messages = question("When do you open on Sunday?");
    let chat = DEMO.well("/v1/chat/completions", &json!({"messages": messages, "temperature": 0, "max_tokens": 24}));
    let expected = &chat["choices"][0]["message"]["content"];
    let options = json!({"temperature": 0, "num_predict": 24, "num_ctx": 8192});
    let body = json!({"model": "gemma3", "messages": messages, "options": options, "keep_alive": "5m"});

    let streamed = lines("/api/chat", &body);
    let (last, parts) = streamed.split_last().unwrap();
    let text: String = streamed.iter().map(|line| line["message"]["content"].as_str().unwrap()).collect();
    assert_eq!(&json!(text), expected);
    assert!(parts.iter().all(|line| line["done"] == json!(false) && line["model"] == "demo"));
    assert_eq!((&last["done"], &last["done_reason"]), (&json!(true), &chat["choices"][0]["finish_reason"]));
    assert_eq!(
        (&last["eval_count"], &last["prompt_eval_count"]),
        (&chat["usage"]["completion_tokens"], &chat["usage"]["prompt_tokens"])
    );
    assert!(last["total_duration"].as_u64().unwrap() >= last["eval_duration"].as_u64().unwrap());
    assert!(last["created_at"].as_str().unwrap().parse::<jiff::Timestamp>().is_ok(), "{last}");

    let mut whole = body.clone();
    whole["stream"] = false.into();
    assert_eq!(&DEMO.well("/api/chat", &whole)["message"]["content"], expected);
    let body = json!({"prompt": messages[0]["content"], "options": options, "stream": false});
    let whole = DEMO.well("/api/generate", &body);
    assert_eq!((&whole["response"], &whole["done"]), (expected, &json!(true)));
    // The tokens of the likelihoods form the text, in complete answers and in lines.
    let likely = json!({"prompt": messages[0]["content"], "options": options, "logprobs": true, "top_logprobs": 2});
    let text = |lines: &[Value]| {
        let tokens = lines.iter().filter_map(|line| line["logprobs"].as_array()).flatten();
        tokens
            .inspect(|token| assert_eq!(token["top_logprobs"][0]["token"], token["token"]))
            .map(|token| token["token"].as_str().unwrap())
            .collect::<String>()
    };
    assert_eq!(&json!(text(&lines("/api/generate", &likely))), expected);
    let mut whole = likely.clone();
    whole["stream"] = false.into();
    assert_eq!(&json!(text(&[DEMO.well("/api/generate", &whole)])), expected);
    // Raw is the prompt without a template.
    let raw = json!({"prompt": "We open at", "raw": true, "options": options, "stream": false});
    let plain = json!({"prompt": "We open at", "temperature": 0, "max_tokens": 24});
    assert_eq!(
        DEMO.well("/api/generate", &raw)["response"],
        DEMO.well("/v1/completions", &plain)["choices"][0]["text"]
    );
}

#[test]
fn the_server_and_its_model_are_described() {
    let served = without_engine(ServerSettings { aliases: vec!["gemma3:27b".into()], ..ServerSettings::default() });
    assert_eq!(served.get("/api/version").json()["version"], "0.6.4", "VS Code refuses an older one");
    let tags = served.get("/api/tags").json();
    let names: Vec<&str> =
        tags["models"].as_array().unwrap().iter().map(|model| model["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["demo", "gemma3:27b"]);
    let (details, published) = (&tags["models"][0]["details"], &served.service.model().unwrap().published);
    assert_eq!((&details["family"], &details["format"]), (&json!("gemma3"), &json!("safetensors")));
    assert_eq!(details["quantization_level"], json!(published.quantization));
    assert_eq!(
        (&details["parameter_size"], &tags["models"][0]["size"]),
        (&json!(published.size()), &json!(published.bytes))
    );
    assert_eq!(served.post("/api/show", &json!({"model": "anything"})).status, 404);
    assert_eq!(served.post("/api/show", &json!({})).status, 400);
    let shown = served.well("/api/show", &json!({"model": "demo:latest"}));
    assert_eq!(shown["model_info"]["gemma3.context_length"], json!(256));
    let running = served.get("/api/ps").json();
    let sizes = |served: &TestServer| {
        let running = served.get("/api/ps").json();
        ["size", "size_vram"].map(|name| running["models"][0][name].as_u64().unwrap())
    };
    let [size, on_gpu] = sizes(&DEMO);
    assert!(size > 0 && on_gpu == 0, "on the processor nothing is in a GPU's memory");
    for listed in [&tags["models"][1], &running["models"][0]] {
        let digest = listed["digest"].as_str().unwrap();
        assert!(digest.len() == 64 && digest.bytes().all(|digit| digit.is_ascii_hexdigit()), "{listed}");
    }
    assert_eq!((&running["models"][0]["name"], &running["models"][0]["context_length"]), (&json!("demo"), &json!(256)));
    for path in ["/api/embed", "/api/embeddings"] {
        let answer = served.post(path, &json!({"model": "demo", "input": "hi"}));
        assert!(
            answer.status == 501 && answer.json()["error"].as_str().unwrap().contains("no embeddings"),
            "{answer:?}"
        );
    }
    // Without a prompt the model is only loaded.
    for (path, body) in
        [("/api/chat", json!({"model": "demo"})), ("/api/generate", json!({"prompt": "", "keep_alive": 0}))]
    {
        let answer = served.well(path, &body);
        assert_eq!((&answer["done"], &answer["done_reason"]), (&json!(true), &json!("load")), "{answer}");
    }
}

#[test]
fn every_option_of_ollamas_documents_is_taken() {
    let options = json!({
        "num_keep": 5, "seed": 42, "num_predict": 4, "top_k": 20, "top_p": 0.9, "min_p": 0.0, "typical_p": 0.7,
        "repeat_last_n": 33, "temperature": 0.8, "repeat_penalty": 1.2, "presence_penalty": 1.5, "frequency_penalty": 1.0,
        "penalize_newline": true, "stop": ["\n", "user:"], "numa": false, "num_ctx": 1024, "num_batch": 2, "num_gpu": 1,
        "main_gpu": 0, "use_mmap": true, "num_thread": 8, "mirostat": 1,
    });
    let body = json!({"model": "other", "prompt": "Why is the sky blue?", "stream": false, "options": options});
    let answer = DEMO.well("/api/generate", &body);
    assert_eq!((&answer["model"], &answer["done"]), (&json!("demo"), &json!(true)));
}

#[test]
fn what_is_wrong_is_said_as_ollama_says_it() {
    let served = without_engine(ServerSettings::default());
    let error = |path: &str, body: Value| {
        let answer = served.post(path, &body);
        (answer.status, answer.json()["error"].as_str().unwrap().to_owned())
    };
    let talk = |more: Value| {
        let mut body = json!({"messages": question("hi")});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    for (body, what) in [
        (json!({"messages": question("hi"), "stream": 1}), "stream"),
        (talk(json!({"options": {"temperature": 9}})), "options.temperature"),
        (talk(json!({"options": {"num_predict": 0}})), "options.num_predict"),
        (talk(json!({"options": []})), "options"),
        (talk(json!({"response_format": {"type": "json_object"}})), "response_format"),
        (talk(json!({"format": 3})), "format"),
        (json!({"messages": [{"role": "user", "content": "hi", "images": ["aaaa"]}]}), "messages[0].images"),
    ] {
        let (status, message) = error("/api/chat", body.clone());
        assert!(status == 400 && message.contains(what), "{body}: {message}");
    }
    assert_eq!(error("/api/chat", talk(json!({"format": {"not": {"type": "null"}}}))).0, 400);
    assert_eq!(error("/api/generate", json!({"prompt": "hi", "suffix": "x"})).0, 400);
    // Also without a prompt.
    let (status, message) = error("/api/generate", json!({"raw": "yes"}));
    assert!(status == 400 && message.contains("raw"), "{message}");
    assert_eq!(error("/api/nothing", json!({})).0, 404);
    assert_eq!(served.get("/api/chat").status, 405);
    // A failing stream ends with an error line and is cut off.
    let stream = served.ask("POST", "/api/chat", talk(json!({})).to_string().as_bytes());
    wait("it is in the queue", || served.service.engine.len() == 1);
    served.service.fail(&Error::device("the GPU hangs", "restart"));
    let answer = TextResponse::read(stream);
    let last: Value = serde_json::from_str(answer.body.lines().last().unwrap()).unwrap();
    assert!(last["error"].as_str().unwrap().contains("the GPU hangs") && !answer.is_whole);
}
