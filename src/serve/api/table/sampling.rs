//! Fields shared by the interfaces: sampling, cost of a reply, and other advice.

use super::{FieldGroup, done, harmless, one_of, refused};

/// Sampling parameters. Ollama's are within `options`.
pub(super) const SAMPLING: FieldGroup = FieldGroup {
    title: "How tokens are chosen",
    rows: &[
        done("temperature", "0.5", "\"warm\"", "from 0 to 2; 0 always takes the likeliest token"),
        done("top_p", "0.9", "2", "from 0 to 1"),
        done("top_k", "40", "\"few\"", "0 and -1 keep all tokens"),
        done("min_p", "0.1", "2", "from 0 to 1"),
        done("seed", "-1", "\"luck\"", "any 64 bits; -1 draws a seed, as no seed does"),
        done("presence_penalty", "0.5", "9", "from -2 to 2"),
        done("frequency_penalty", "0.5", "9", "from -2 to 2"),
        done("repetition_penalty", "1.1", "0", "from 0.01 to 10, over the last 64 tokens"),
        done("repeat_penalty", "1.1", "0", "llama.cpp's name of repetition_penalty"),
        done("repeat_last_n", "64", "32", "64; other values are refused beside a repetition penalty"),
        done("penalize_nl", "true", "false", "true; false is refused beside a penalty"),
        done("penalize_newline", "true", "false", "true; false is refused beside a penalty"),
        done("logit_bias", r#"{"5":-100}"#, "[]", "by token id, from -100 to 100; -100 forbids a token"),
        done("stop", r#"["never said"]"#, "5", "a text, or up to 16 of 1024 characters"),
        done("ignore_eos", "true", "1", "the reply goes on past the model's own end"),
        done("cache_prompt", "false", "1", "false reads the whole prompt anew"),
    ],
};

/// Samplers that Kiln lacks, and other fields that would change the tokens.
pub(super) const OTHER_SAMPLERS: FieldGroup = FieldGroup {
    title: "Samplers of llama.cpp and vLLM that change the reply",
    rows: &[
        refused("mirostat", &["0"], "2", SAMPLE_OTHERWISE),
        refused("typical_p", &["1"], "0.7", SAMPLE_OTHERWISE),
        refused("tfs_z", &["1"], "0.5", SAMPLE_OTHERWISE),
        refused("top_a", &["0"], "0.5", SAMPLE_OTHERWISE),
        refused("top_n_sigma", &["-1", "0"], "2", SAMPLE_OTHERWISE),
        refused("xtc_probability", &["0"], "0.5", SAMPLE_OTHERWISE),
        refused("dynatemp_range", &["0"], "0.5", "give a temperature"),
        refused("dry_multiplier", &["0"], "0.8", "use repeat_penalty, presence_penalty or frequency_penalty"),
        refused("adaptive_target", &["-1"], "0.5", SAMPLE_OTHERWISE),
        refused("smoothing_factor", &["0"], "0.3", SAMPLE_OTHERWISE),
        refused("min_keep", &["0", "1"], "5", SAMPLE_OTHERWISE),
        refused(
            "samplers",
            &["[]"],
            r#"["top_k"]"#,
            "leave it out: top_k, top_p, min_p and temperature apply in this order",
        ),
        refused("use_beam_search", &["false"], "true", "leave it out; n makes several replies"),
        refused("watermarking", &["false"], "true", "leave it out: replies have no watermark"),
        refused("min_tokens", &["0"], "5", "leave it out; ignore_eos with max_tokens makes replies of one length"),
        refused("stop_token_ids", &["[]"], "[5]", "use stop, which takes texts"),
        refused("bad_words", &["[]"], r#"["x"]"#, "use logit_bias with -100 for the tokens"),
        refused("allowed_token_ids", &["[]"], "[5]", "use grammar, or logit_bias"),
        refused(
            "include_stop_str_in_output",
            &["false"],
            "true",
            "leave it out, and add the text that stopped the reply",
        ),
        refused("skip_special_tokens", &["true"], "false", "leave it out: special tokens are no text of a reply"),
        refused(
            "repetition_detection",
            &["null"],
            r#"{"max_pattern_size":3}"#,
            "use repeat_penalty, or stop the stream",
        ),
        refused("n_indent", &["0"], "4", "use grammar"),
        refused("t_max_predict_ms", &["0", "-1"], "500", "use max_tokens, or the server's --deadline"),
        refused("lora", &["[]"], r#"[{"id":0,"scale":1}]"#, "leave it out: the model has no adapters"),
        refused("prompt_embeds", &["null"], "\"AAAA\"", "give text or tokens"),
        refused(
            "truncate_prompt_tokens",
            &["null", "-1"],
            "5",
            "shorten the prompt, or use truncation: \"auto\" where there is one",
        ),
    ],
};

const SAMPLE_OTHERWISE: &str = "leave it out, and sample by temperature, top_k, top_p and min_p";

/// Parameters of refused samplers, without effect on their own.
pub(super) const WITHOUT_EFFECT: FieldGroup = FieldGroup {
    title: "Parameters of llama.cpp, vLLM and LM Studio without effect on a reply",
    rows: &[
        harmless("mirostat_tau", "5", WITH_MIROSTAT),
        harmless("mirostat_eta", "0.1", WITH_MIROSTAT),
        harmless("dynatemp_exponent", "1", "means nothing without dynatemp_range"),
        harmless("xtc_threshold", "0.1", "means nothing without xtc_probability"),
        harmless("dry_base", "1.75", WITH_DRY),
        harmless("dry_allowed_length", "2", WITH_DRY),
        harmless("dry_penalty_last_n", "-1", WITH_DRY),
        harmless("dry_sequence_breakers", r#"["\n"]"#, WITH_DRY),
        harmless("adaptive_decay", "0.9", "means nothing without adaptive_target"),
        harmless("length_penalty", "1.2", "means nothing without use_beam_search"),
        harmless("early_stopping", "true", "means nothing without use_beam_search"),
        harmless("guided_decoding_backend", "\"auto\"", "how a form is kept is the server's affair"),
        harmless("guided_whitespace_pattern", "\"[ ]?\"", "how a form is kept is the server's affair"),
        harmless("grammar_lazy", "false", "a grammar holds from the first token"),
        harmless("grammar_triggers", "[]", "a grammar holds from the first token"),
        harmless("preserved_tokens", "[]", "control tokens are no text of a reply"),
        harmless("chat_format", "0", "the model's template decides"),
        harmless("parse_tool_calls", "true", "calls are always read"),
        harmless("n_keep", "4", PROMPTS_ARE_WHOLE),
        harmless("n_discard", "4", PROMPTS_ARE_WHOLE),
        harmless("truncation_side", "\"left\"", PROMPTS_ARE_WHOLE),
        harmless("n_cache_reuse", "256", "the cache is used as far as prompts begin alike"),
        harmless("id_slot", "0", "the server chooses the place"),
        harmless("speculative.n_max", "16", DRAFTS),
        harmless("speculative.n_min", "0", DRAFTS),
        harmless("speculative.p_min", "0.75", DRAFTS),
        harmless("speculative.type", "\"none\"", DRAFTS),
        harmless("draft_model", "\"small\"", DRAFTS),
        harmless("prediction", r#"{"type":"content","content":"x"}"#, DRAFTS),
        harmless("backend_sampling", "true", "where tokens are chosen is the server's affair"),
        harmless("timings_per_token", "true", "times are in the metrics and the access log"),
        harmless("return_progress", "true", "a stream begins with the reply"),
        harmless("verbose", "true", "an answer has what its interface has"),
        harmless("sse_ping_interval", "30", "the server's heartbeat goes on"),
        harmless("stream_interval", "1", "each token is an event"),
        harmless("spaces_between_special_tokens", "true", "special tokens are no text of a reply"),
        harmless("return_token_offsets", "false", "vLLM has it at other paths"),
        harmless("return_mm_kwargs", "true", "the model reads text alone"),
        harmless("mm_processor_kwargs", "{}", "the model reads text alone"),
        harmless("media_io_kwargs", "{}", "the model reads text alone"),
        harmless("routed_experts_prompt_start", "0", "the model has no experts"),
        harmless("ttl", "300", STAYS_LOADED),
        harmless("keep_alive", "\"5m\"", STAYS_LOADED),
        harmless("num_ctx", "4096", "the context is the server's --ctx"),
    ],
};

const WITH_MIROSTAT: &str = "means nothing without mirostat";
const WITH_DRY: &str = "means nothing without dry_multiplier";
const PROMPTS_ARE_WHOLE: &str = "a prompt is whole or refused, and nothing shifts out of the context";
const DRAFTS: &str = "drafts change no token; the server's --draft makes them";
pub(super) const STAYS_LOADED: &str = "how long the model stays is the server's --idle-unload";

/// Advice to a service, and identifiers for its accounting.
pub(super) const ADVICE: FieldGroup = FieldGroup {
    title: "Advice and names for a service's books",
    rows: &[
        harmless("metadata", r#"{"a":"b"}"#, "nothing is stored; a response repeats it"),
        harmless("user", "\"u\"", CLIENTS_ARE_KEYS),
        harmless("safety_identifier", "\"u\"", CLIENTS_ARE_KEYS),
        harmless("store", "true", "nothing is stored"),
        harmless("service_tier", "\"auto\"", "there is one tier"),
        harmless("priority", "0", "turns are taken by client"),
        harmless("prompt_cache_key", "\"k\"", CACHES_ALL),
        harmless("prompt_cache_retention", "\"24h\"", CACHES_ALL),
        harmless("prompt_cache_options", r#"{"mode":"implicit"}"#, CACHES_ALL),
        harmless("cache_control", r#"{"type":"ephemeral"}"#, CACHES_ALL),
        harmless("request_id", "\"r\"", "the header X-Request-Id names a request"),
        harmless("session_id", "\"s\"", CACHES_ALL),
        harmless("provider", "{}", ONE_MODEL),
        harmless("models", r#"["a"]"#, ONE_MODEL),
        harmless("route", "\"fallback\"", ONE_MODEL),
        harmless("transforms", "[]", PROMPTS_ARE_WHOLE),
        refused(
            "cache_salt",
            &["null"],
            "\"pepper\"",
            "leave it out, and give clients keys of their own (--api-key-file): the holder of one finds no other's prefixes",
        ),
        refused("kv_transfer_params", &["null"], "{}", "leave it out: keys and values stay in this server"),
        refused("ec_transfer_params", &["null"], "{}", "leave it out: keys and values stay in this server"),
        refused("vllm_xargs", &["{}"], r#"{"a":1}"#, "leave it out: there are no extensions that read it"),
    ],
};

const CLIENTS_ARE_KEYS: &str = "clients are told apart by key and address";
const CACHES_ALL: &str = "every prompt is cached as long as there is room";
const ONE_MODEL: &str = "one model is loaded, and answers";

/// Effort of thinking and length of answers. Gemma 3 answers without thinking first.
pub(super) const REASONING: FieldGroup = FieldGroup {
    title: "Advice to models that think",
    rows: &[
        one_of("reasoning_effort", EFFORTS, "\"low\"", NO_THOUGHTS),
        one_of("reasoning_effort.effort", EFFORTS, "\"low\"", NO_THOUGHTS),
        one_of("reasoning_effort.summary", SUMMARIES, "\"auto\"", NO_THOUGHTS),
        one_of("verbosity", VERBOSITIES, "\"low\"", "say it in the system message"),
        harmless("reasoning", r#"{"summary":"auto"}"#, NO_THOUGHTS),
        one_of("reasoning.effort", EFFORTS, "\"high\"", NO_THOUGHTS),
        one_of("reasoning.summary", SUMMARIES, "\"auto\"", NO_THOUGHTS),
        one_of("reasoning.generate_summary", SUMMARIES, "\"auto\"", NO_THOUGHTS),
        harmless("reasoning.context", "\"auto\"", NO_THOUGHTS),
        harmless("reasoning.mode", "\"standard\"", NO_THOUGHTS),
        harmless("reasoning.max_tokens", "100", NO_THOUGHTS),
        harmless("reasoning.exclude", "true", NO_THOUGHTS),
        harmless("reasoning.enabled", "true", NO_THOUGHTS),
        harmless("reasoning_format", "\"auto\"", NO_THOUGHTS),
        harmless("reasoning_budget", "0", NO_THOUGHTS),
        harmless("reasoning_budget_tokens", "0", NO_THOUGHTS),
        harmless("thinking_budget", "0", NO_THOUGHTS),
        harmless("thinking_budget_tokens", "0", NO_THOUGHTS),
        harmless("thinking_token_budget", "0", NO_THOUGHTS),
        harmless("include_reasoning", "true", NO_THOUGHTS),
        harmless("separate_reasoning", "true", NO_THOUGHTS),
        harmless("enable_thinking", "true", NO_THOUGHTS),
        harmless("thinking", r#"{"type":"enabled"}"#, NO_THOUGHTS),
        harmless("think", "true", NO_THOUGHTS),
    ],
};

pub(super) const EFFORTS: &[&str] = &["none", "minimal", "low", "medium", "high", "xhigh", "max"];
pub(super) const VERBOSITIES: &[&str] = &["low", "medium", "high"];
const SUMMARIES: &[&str] = &["auto", "concise", "detailed", "none"];
pub(super) const NO_THOUGHTS: &str = "the model answers without thinking first";

/// The limit of a reply's tokens, under all of its names.
pub(super) const LIMITS: FieldGroup = FieldGroup {
    title: "How long a reply may be",
    rows: &[
        done("max_tokens", "2", "0", LIMIT),
        done("max_completion_tokens", "2", "0", LIMIT),
        done("max_output_tokens", "2", "0", LIMIT),
        done("n_predict", "2", "0", LIMIT),
    ],
};

const LIMIT: &str = "1 or more; without it and with -1 the reply may fill the context. Where several are given, the path's own name counts";

/// Fields for several replies, on a path that makes one.
pub(super) const ONE_REPLY: FieldGroup = FieldGroup {
    title: "Several replies, where a path makes one",
    rows: &[
        refused("n", &["1"], "2", "ask several times: prompts that begin alike share the cache"),
        refused("best_of", &["1"], "2", "ask several times: prompts that begin alike share the cache"),
        refused("n_cmpl", &["1"], "2", "ask several times: prompts that begin alike share the cache"),
    ],
};

/// Fields for several replies to one prompt.
pub(super) const REPLIES: FieldGroup = FieldGroup {
    title: "Several replies",
    rows: &[
        done("n", "2", "0", "up to 128; reply i draws with seed + i"),
        done("best_of", "1", "3", "as many as n: all replies are returned"),
        refused("n_cmpl", &["1"], "2", "use n"),
    ],
};
