//! The fields of Ollama's API.

use super::sampling::{NO_THOUGHTS, ONE_REPLY, STAYS_LOADED};
use super::{FieldGroup, FieldTable, done, forms, harmless, refused};

/// `/api/chat`.
pub(in crate::serve::api) static CHAT: FieldTable = FieldTable::new(
    "/api/chat",
    &[&BOTH, &CHAT_OWN, &forms::OLLAMA, &OPTIONS, &OPTIONS_WITHOUT_EFFECT, &forms::NOT_OLLAMA, &ONE_REPLY],
);

/// `/api/generate`.
pub(in crate::serve::api) static GENERATE: FieldTable = FieldTable::new(
    "/api/generate",
    &[&BOTH, &GENERATE_OWN, &forms::OLLAMA, &OPTIONS, &OPTIONS_WITHOUT_EFFECT, &forms::NOT_OLLAMA, &ONE_REPLY],
);

/// `/api/show`.
pub(in crate::serve::api) static SHOW: FieldTable = FieldTable::new("/api/show", &[&SHOW_OWN]);

const BOTH: FieldGroup = FieldGroup {
    title: "Ollama's chat and generate",
    rows: &[
        done("model", "\"any\"", "5", "any name is answered, unless the server has --strict-model"),
        done("stream", "false", "\"yes\"", "lines of JSON, unless it is false"),
        done("options", "{}", "[]", "how the reply is made"),
        harmless("keep_alive", "\"5m\"", STAYS_LOADED),
        harmless("think", "true", NO_THOUGHTS),
        harmless("shift", "false", "a reply ends where the context does"),
        done("logprobs", "true", "\"yes\"", "likelihoods of the reply's tokens"),
        done("top_logprobs", "2", "21", "up to 20, with logprobs"),
        refused("_debug_render_only", &["false"], "true", "use /tokenize and /detokenize"),
    ],
};

const CHAT_OWN: FieldGroup = FieldGroup {
    title: "Ollama's chat",
    rows: &[
        done("messages", r#"[{"role":"user","content":"Hi"}]"#, "5", "without any the model is said to be loaded"),
        refused("message", &[], r#"[{"role":"user","content":"Hi"}]"#, "use messages"),
        done("messages[].role", "\"user\"", "\"wizard\"", "system, user, assistant or tool"),
        done("messages[].content", "\"Hi\"", "5", "a text"),
        done("messages[].tool_calls", "[]", "5", "calls that the assistant has made"),
        done("messages[].tool_calls[].function", r#"{"name":"f","arguments":{}}"#, "5", "its name and arguments"),
        done("messages[].tool_name", "\"f\"", "5", "the tool whose result it is"),
        done("messages[].tool_call_id", "\"c\"", "5", "the call whose result it is"),
        harmless("messages[].thinking", "\"Hm\"", "what a model thought is not said to the next"),
        refused("messages[].images", &["[]"], r#"["AAAA"]"#, "give text: the model reads text alone"),
        done("truncate", "true", "5", "true leaves out the oldest exchanges where the prompt is too long"),
        done("tools", "[]", "{}", "up to 128 functions"),
        done("tools[].type", "\"function\"", "5", "function; tools of other types are left out, and the log says so"),
        done("tools[].function", r#"{"name":"f"}"#, "5", "its name, description and parameters"),
        done("tools[].function.name", "\"f\"", "\"\"", "what a call names"),
        done("tools[].function.description", "\"d\"", "5", "the model is told"),
        done("tools[].function.parameters", r#"{"type":"object"}"#, "5", "a call's arguments keep to the schema"),
        done("tool_choice", "\"auto\"", "\"maybe\"", "OpenAI's field: none, auto, required, or a function"),
        done("parallel_tool_calls", "false", "5", "OpenAI's field: false is one call in a reply"),
    ],
};

const GENERATE_OWN: FieldGroup = FieldGroup {
    title: "Ollama's generate",
    rows: &[
        done("prompt", "\"Hi\"", "5", "without any the model is said to be loaded"),
        done("system", "\"Be brief.\"", "5", "the system message"),
        done("raw", "true", "5", "the prompt without the chat template"),
        done("truncate", "true", "5", "one exchange has no older one to leave out: too long is refused"),
        harmless("width", "0", "the model makes text"),
        harmless("height", "0", "the model makes text"),
        harmless("steps", "0", "the model makes text"),
        refused("suffix", &[""], "\"end\"", "leave it out: the model has not learnt to fill in"),
        refused("template", &[""], "\"{{ .Prompt }}\"", "use raw, and write the prompt as a whole"),
        refused("context", &["[]"], "[2,5]", "use /api/chat with the whole conversation"),
        refused("images", &["[]"], r#"["AAAA"]"#, "give text: the model reads text alone"),
        refused("tools", &["[]"], r#"[{"type":"function","function":{"name":"f"}}]"#, "use /api/chat"),
    ],
};

/// Ollama's options that change the reply.
const OPTIONS: FieldGroup = FieldGroup {
    title: "Ollama's options",
    rows: &[
        done("options.temperature", "0.5", "9", "from 0 to 2; 0 always takes the likeliest token"),
        done("options.top_p", "0.9", "2", "from 0 to 1"),
        done("options.top_k", "40", "\"few\"", "0 and -1 keep all tokens"),
        done("options.min_p", "0.1", "2", "from 0 to 1"),
        done("options.seed", "-1", "\"luck\"", "any 64 bits; -1 draws a seed, as no seed does"),
        done("options.num_predict", "2", "0", "1 or more; -1 and -2 for no limit"),
        done("options.stop", r#"["never said"]"#, "5", "a text, or up to 16 of 1024 characters"),
        done("options.repeat_penalty", "1.1", "0", "from 0.01 to 10, over the last 64 tokens"),
        done("options.presence_penalty", "0.5", "9", "from -2 to 2"),
        done("options.frequency_penalty", "0.5", "9", "from -2 to 2"),
        done("options.repetition_penalty", "1.1", "0", "another name of repeat_penalty"),
        done("options.logit_bias", r#"{"5":-100}"#, "[]", "by token id, from -100 to 100; -100 forbids a token"),
        done("options.ignore_eos", "true", "1", "the reply goes on past the model's own end"),
        done("options.cache_prompt", "false", "1", "false reads the whole prompt anew"),
        done("options.penalize_nl", "true", "false", "true; false is refused beside a penalty"),
        done("options.penalize_newline", "true", "false", "true; false is refused beside a penalty"),
    ],
};

/// Ollama's options that its own server ignores if it lacks them.
const OPTIONS_WITHOUT_EFFECT: FieldGroup = FieldGroup {
    title: "Ollama's options without effect, as Ollama leaves out those that it does not know",
    rows: &[
        harmless("options.num_ctx", "4096", "the context is the server's --ctx"),
        harmless("options.num_batch", "512", MEMORY),
        harmless("options.num_gpu", "99", MEMORY),
        harmless("options.main_gpu", "0", MEMORY),
        harmless("options.num_thread", "8", MEMORY),
        harmless("options.num_keep", "4", "a prompt is whole or refused, and nothing shifts out of the context"),
        harmless("options.numa", "false", MEMORY),
        harmless("options.low_vram", "false", MEMORY),
        harmless("options.f16_kv", "true", MEMORY),
        harmless("options.use_mmap", "true", MEMORY),
        harmless("options.use_mlock", "false", MEMORY),
        harmless("options.vocab_only", "false", MEMORY),
        harmless("options.logits_all", "false", MEMORY),
        harmless("options.embedding_only", "false", MEMORY),
        harmless("options.draft_num_predict", "4", "drafts change no token; the server's --draft makes them"),
        harmless("options.repeat_last_n", "33", "the penalty is over the last 64 tokens"),
        harmless("options.typical_p", "0.7", OTHER_SAMPLER),
        harmless("options.tfs_z", "0.5", OTHER_SAMPLER),
        harmless("options.mirostat", "2", OTHER_SAMPLER),
        harmless("options.mirostat_tau", "5", OTHER_SAMPLER),
        harmless("options.mirostat_eta", "0.1", OTHER_SAMPLER),
    ],
};

const MEMORY: &str = "memory and threads are the server's own";
const OTHER_SAMPLER: &str = "Kiln samples by temperature, top_k, top_p and min_p";

const SHOW_OWN: FieldGroup = FieldGroup {
    title: "Ollama's show",
    rows: &[
        done("model", "\"demo\"", "5", "one of the model's names"),
        done("name", "\"demo\"", "5", "the older name of model"),
        harmless("verbose", "true", "the vocabulary is not listed"),
        harmless("system", "\"\"", "the model is described as it is"),
        harmless("template", "\"\"", "the model is described as it is"),
        harmless("options", "{}", "the model is described as it is"),
    ],
};
