//! Configs that are wrong, each refused by one line that names the key.

use kiln::model::config;
use serde_json::{Value, json};

use super::files::{bad_input, golden};

/// tiny's config with some keys replaced.
fn with(changes: Value) -> String {
    let text = std::fs::read_to_string(golden("tiny/config.json")).unwrap();
    let mut config: Value = serde_json::from_str(&text).unwrap();
    for (key, value) in changes.as_object().unwrap() {
        config[key] = value.clone();
    }
    config.to_string()
}

/// The line for tiny's config with some keys replaced.
fn refusal(changes: Value) -> String {
    bad_input(config::parse(&with(changes), None).map(|_| ()))
}

#[test]
fn the_unchanged_config_is_accepted() {
    config::parse(&with(json!({})), None).unwrap();
}

#[test]
fn another_architecture_is_refused() {
    assert!(refusal(json!({"architectures": ["LlamaForCausalLM"]})).contains("LlamaForCausalLM"));
    assert!(refusal(json!({"model_type": "llama"})).contains("llama"));
    assert!(refusal(json!({"model_type": "gemma2"})).contains("gemma2"));
    assert!(refusal(json!({"model_type": 3})).contains('3'));
    assert!(bad_input(config::parse("{}", None).map(drop)).contains("neither model_type nor architectures"));
    let nested = json!({"model_type": "gemma3", "text_config": {"model_type": "qwen2"}}).to_string();
    assert!(bad_input(config::parse(&nested, None).map(drop)).contains("qwen2"));
}

/// serde_json took the last of the two values, which need not be the one that was meant.
#[test]
fn a_doubled_key_is_refused() {
    let doubled = with(json!({})).replacen('{', r#"{"hidden_size": 8, "#, 1);
    assert!(
        bad_input(config::parse(&doubled, None).map(drop))
            .contains("config.json is not valid JSON: hidden_size is there twice")
    );
    let generation = r#"{"eos_token_id": 1, "eos_token_id": 106}"#;
    let line = bad_input(config::parse(&with(json!({})), Some(generation)).map(drop));
    assert!(line.contains("generation_config.json is not valid JSON: eos_token_id is there twice"), "{line}");
}

#[test]
fn absurd_sizes_are_refused() {
    let keys = [
        "vocab_size",
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
        "sliding_window",
        "max_position_embeddings",
    ];
    let values = [
        json!(0),
        json!(-8),
        json!(128.0),
        json!(1.5),
        json!("128"),
        json!(true),
        json!([128]),
        json!({}),
        json!(1u64 << 62),
        json!(u64::MAX),
        json!(1e300),
    ];
    for key in keys {
        for value in &values {
            let line = refusal(json!({key: value}));
            assert!(line.contains(key), "{key} {value}: {line}");
        }
    }
}

#[test]
fn sizes_that_no_kernel_has_are_refused() {
    assert!(refusal(json!({"head_dim": 31})).contains("even"));
    assert!(refusal(json!({"head_dim": 514})).contains("512"));
    assert!(refusal(json!({"hidden_size": 124})).contains("multiple of 8"));
    assert!(refusal(json!({"intermediate_size": 513})).contains("multiple of 8"));
    assert!(refusal(json!({"num_key_value_heads": 3})).contains("does not divide"));
    assert!(refusal(json!({"num_key_value_heads": 8})).contains("does not divide"));
    assert!(refusal(json!({"bos_token_id": 512})).contains("past the vocabulary"));
}

#[test]
fn features_that_gemma_3_does_not_have_are_refused() {
    assert!(refusal(json!({"attention_bias": true})).contains("attention_bias"));
    assert!(refusal(json!({"use_bidirectional_attention": true})).contains("use_bidirectional_attention"));
    assert!(refusal(json!({"hidden_activation": "silu"})).contains("silu"));
    assert!(refusal(json!({"attention_bias": "yes"})).contains("true or false"));
}

/// A family's config is refused where its pass has parts that Kiln does not compute.
#[test]
fn features_of_gemma_4_that_kiln_does_not_compute_are_refused() {
    let text = std::fs::read_to_string(golden("tiny4/config.json")).unwrap();
    let parse = |key: &str, value: Value| {
        let mut config: Value = serde_json::from_str(&text).unwrap();
        config[key] = value;
        config::parse(&config.to_string(), None)
    };
    for (key, value) in [
        ("hidden_size_per_layer_input", json!(256)),
        ("num_kv_shared_layers", json!(2)),
        ("use_double_wide_mlp", json!(true)),
        ("use_bidirectional_attention", json!("all")),
        ("attn_logit_softcapping", json!(50)),
        ("final_logit_softcapping", json!(0)),
        ("model_type", json!("gemma3_text")),
        ("per_layer_config", json!({"3": {"head_dim": 32}})),
        ("per_layer_config", json!({"9": {"head_dim": 32}})),
        ("per_layer_config", json!({"3": {"sliding_window": 8}})),
        ("per_layer_config", json!([])),
        ("global_head_dim", json!(1024)),
    ] {
        let line = bad_input(parse(key, value.clone()).map(drop));
        let key = if key == "model_type" { "gemma3_text" } else { key };
        assert!(line.contains(key) || line.contains("sliding_window"), "{key} {value}: {line}");
    }
    for (key, value) in [("use_bidirectional_attention", json!("vision")), ("final_logit_softcapping", json!(null))] {
        parse(key, value).unwrap();
    }
    let rope = |full: Value| bad_input(parse("rope_parameters", json!({"full_attention": full})).map(drop));
    assert!(rope(json!({"rope_type": "linear", "factor": 8})).contains("proportional"));
    assert!(rope(json!({"rope_type": "proportional"})).contains("partial_rotary_factor"));
}

#[test]
fn a_softcap_is_refused_and_its_absence_accepted() {
    for key in ["attn_logit_softcapping", "final_logit_softcapping"] {
        for cap in [json!(30), json!(50.0), json!(0)] {
            let line = refusal(json!({key: cap}));
            assert!(line.contains(&format!("{key} is {cap}")) && line.contains("null or absent"), "{line}");
        }
        config::parse(&with(json!({key: null})), None).unwrap();
        let mut absent: Value = serde_json::from_str(&with(json!({}))).unwrap();
        absent.as_object_mut().unwrap().shift_remove(key).unwrap();
        config::parse(&absent.to_string(), None).unwrap();
    }
}

#[test]
fn rope_other_than_default_and_linear_is_refused() {
    let rope = |full: Value, sliding: Value| {
        refusal(json!({"rope_parameters": {"full_attention": full, "sliding_attention": sliding}}))
    };
    let default = json!({"rope_type": "default"});
    assert!(rope(json!({"rope_type": "yarn", "factor": 8}), default.clone()).contains("yarn"));
    assert!(rope(json!({"rope_type": "linear"}), default.clone()).contains("no factor"));
    assert!(rope(json!({"rope_type": "linear", "factor": 0}), default.clone()).contains("factor"));
    assert!(rope(json!({"rope_theta": -1}), default.clone()).contains("rope_theta"));
    assert!(rope(default.clone(), json!({"rope_type": "linear", "factor": 2})).contains("sliding_attention"));
    assert!(rope(json!([1]), default).contains("an object"));
    assert!(refusal(json!({"rope_parameters": {"rope_type": "default"}})).contains("rope_parameters"));
    assert!(refusal(json!({"rope_scaling": {"type": "dynamic", "factor": 2.0}})).contains("dynamic"));
    assert!(refusal(json!({"rope_scaling": 8})).contains("rope_scaling"));
}

#[test]
fn layer_types_have_to_fit() {
    assert!(refusal(json!({"layer_types": ["full_attention"]})).contains("1 entries for 6 layers"));
    let odd = ["full_attention", "full_attention", "chunked_attention", "full_attention", "full_attention", "x"];
    assert!(refusal(json!({"layer_types": odd})).contains("chunked_attention"));
    assert!(refusal(json!({"layer_types": "full_attention"})).contains("a list"));
    assert!(refusal(json!({"layer_types": null, "_sliding_window_pattern": 0})).contains("sliding_window_pattern"));
}

#[test]
fn numbers_that_are_not_finite_and_positive_are_refused() {
    for key in ["rms_norm_eps", "query_pre_attn_scalar", "final_logit_softcapping"] {
        for value in [json!(0), json!(-1.0), json!(1e300), json!(1e-300), json!("1e-6"), json!([])] {
            let line = refusal(json!({key: value}));
            assert!(line.contains(key), "{key} {value}: {line}");
        }
    }
    for eps in ["NaN", "Infinity", "-Infinity", "1e999"] {
        let text = with(json!({})).replace("1e-6", eps);
        assert!(text.contains(eps));
        assert!(bad_input(config::parse(&text, None).map(drop)).contains("not valid JSON"));
    }
}

#[test]
fn token_ids_have_to_be_ids() {
    for key in ["eos_token_id", "bos_token_id", "suppress_tokens"] {
        for value in [json!(-1), json!(1.5), json!("1"), json!(1u64 << 32)] {
            assert!(refusal(json!({key: value})).contains(key));
        }
    }
    assert!(refusal(json!({"eos_token_id": [1, -1]})).contains("eos_token_id"));
    assert!(refusal(json!({"eos_token_id": vec![1; 1000]})).contains("at most 64"));
    assert!(refusal(json!({"suppress_tokens": vec![1; 1025]})).contains("at most 1024"));
    let generation = config::parse(&with(json!({})), Some(r#"{"eos_token_id": "end"}"#));
    assert!(bad_input(generation.map(drop)).contains("generation_config.json"));
    // A stop token that is never made would stop nothing.
    let beyond = config::parse(&with(json!({"vocab_size": 512, "eos_token_id": [1, 512]})), None);
    assert!(bad_input(beyond.map(drop)).contains("config.json: eos_token_id is 512, past the vocabulary of 512"));
    let beyond = config::parse(&with(json!({"vocab_size": 512})), Some(r#"{"eos_token_id": 600}"#));
    assert!(bad_input(beyond.map(drop)).contains("generation_config.json: eos_token_id is 600"));
}

#[test]
fn json_that_is_broken_deep_or_huge_is_refused() {
    let deep = format!("{}{}", r#"{"a":"#.repeat(100_000), "}".repeat(100_000));
    let huge = format!(r#"{{"model_type": "gemma3_text", "x": "{}"}}"#, "x".repeat(config::MAX_CONFIG_BYTES));
    for (text, wanted) in [
        ("", "not valid JSON"),
        ("{", "not valid JSON"),
        ("[]", "not a JSON object"),
        ("\u{0}", "not valid JSON"),
        (deep.as_str(), "not valid JSON"),
        (huge.as_str(), "more than"),
    ] {
        let line = bad_input(config::parse(text, None).map(drop));
        assert!(line.contains(wanted), "{line}");
    }
}
