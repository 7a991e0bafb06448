//! The fields of Anthropic's messages and of its token count.

use super::sampling::{ADVICE, ONE_REPLY, OTHER_SAMPLERS, SAMPLING, WITHOUT_EFFECT};
use super::{FieldGroup, FieldTable, done, forms, harmless, one_of, refused};

/// `/v1/messages`.
pub(in crate::serve::api) static MESSAGES: FieldTable = FieldTable::new(
    "/v1/messages",
    &[
        &OWN,
        &PROMPT,
        &TOOLS,
        &forms::ANTHROPIC,
        &forms::NOT_ANTHROPIC,
        &SAMPLING,
        &SERVICE,
        &ADVICE,
        &WITHOUT_EFFECT,
        &OTHER_SAMPLERS,
        &ONE_REPLY,
    ],
);

/// `/v1/messages/count_tokens`.
pub(in crate::serve::api) static COUNT: FieldTable =
    FieldTable::new("/v1/messages/count_tokens", &[&PROMPT, &TOOLS, &forms::ANTHROPIC, &SERVICE, &ADVICE]);

const OWN: FieldGroup = FieldGroup {
    title: "Messages",
    rows: &[
        done("max_tokens", "2", "0", "the most tokens of the reply; it has to be there"),
        done("stop_sequences", r#"["never said"]"#, "5", "up to 16 texts of 1024 characters"),
        done("stream", "false", "\"yes\"", "server-sent events"),
        harmless("stream_options", "{}", "message_delta has the usage"),
        refused("logprobs", &["false"], "true", "use /v1/chat/completions"),
        refused("top_logprobs", &["0"], "2", "use /v1/chat/completions"),
    ],
};

/// Fields that make up the prompt, for a message and for a count.
const PROMPT: FieldGroup = FieldGroup {
    title: "A message's prompt, and its count",
    rows: &[
        done("model", "\"any\"", "5", "any name is answered, unless the server has --strict-model"),
        done("system", "\"Be brief.\"", "5", "a text, or a list of parts"),
        done("messages", r#"[{"role":"user","content":"Hi"}]"#, "[]", "one or more"),
        done("messages[].role", "\"user\"", "\"wizard\"", "user, assistant or system"),
        done("messages[].content", "\"Hi\"", "5", "a text, or a list of blocks"),
        done("messages[].content[].type", "\"text\"", "5", "text, tool_use, tool_result or thinking"),
        done("messages[].content[].type", "\"thinking\"", "5", "what a model thought is left out").of("thinking"),
        refused("messages[].content[].type", &[], "\"image\"", READS_TEXT).of("image"),
        refused("messages[].content[].type", &[], "\"document\"", READS_TEXT).of("document"),
        harmless("messages[].content[].type", "\"search_result\"", "its text is read").of("search_result"),
        harmless("messages[].content[].type", "\"server_tool_use\"", RUN_BY_A_SERVICE).of("server_tool_use"),
        harmless("messages[].content[].type", "\"web_search_tool_result\"", RUN_BY_A_SERVICE)
            .of("web_search_tool_result"),
        refused("messages[].content[].type", &[], "\"container_upload\"", READS_TEXT).of("container_upload"),
        done("messages[].content[].text", "\"Hi\"", "5", "texts that follow each other are joined as they are"),
        done("messages[].content[].id", "\"t\"", "5", "of a tool_use"),
        done("messages[].content[].name", "\"f\"", "5", "of a tool_use"),
        done("messages[].content[].input", "{}", "5", "of a tool_use: its arguments, an object or its text"),
        done("messages[].content[].tool_use_id", "\"t\"", "5", "of a tool_result"),
        done("messages[].content[].content", "\"out\"", "", RETURNED),
        done("messages[].content[].is_error", "true", "5", "of a tool_result: the model reads that it is one"),
        harmless("messages[].content[].cache_control", r#"{"type":"ephemeral"}"#, "every prompt is cached"),
        harmless("messages[].content[].citations", "[]", "the text is read"),
        harmless("messages[].content[].signature", "\"s\"", "what a model thought is left out"),
        harmless("messages[].content[].thinking", "\"Hm\"", "what a model thought is left out"),
        harmless("messages[].content[].caller", r#"{"type":"direct"}"#, "calls are the model's"),
        harmless("system[].cache_control", r#"{"type":"ephemeral"}"#, "every prompt is cached"),
        harmless("system[].citations", "[]", "the text is read"),
        done("system[].type", "\"text\"", "\"purple\"", "text"),
        done("system[].text", "\"Be brief.\"", "5", "parts are joined as they are"),
        harmless("messages[].clear_at", "\"never\"", "a message stays"),
        harmless("messages[].output_config", "{}", super::sampling::NO_THOUGHTS),
        harmless("thinking", r#"{"type":"disabled"}"#, super::sampling::NO_THOUGHTS),
        one_of("thinking.type", THINKING, "\"enabled\"", super::sampling::NO_THOUGHTS),
        harmless("thinking.budget_tokens", "1024", super::sampling::NO_THOUGHTS),
        harmless("thinking.display", "\"omitted\"", super::sampling::NO_THOUGHTS),
        harmless("thinking.block_binding", "{}", super::sampling::NO_THOUGHTS),
        harmless("context_management", r#"{"edits":[]}"#, "nothing is left out; a prompt that is too long is refused"),
        refused("mcp_servers", &["[]"], r#"[{"type":"url","url":"http://a","name":"n"}]"#, "let the client call them"),
        refused("compaction", &[], r#"{"type":"summarize"}"#, "ask for a summary in a message"),
    ],
};

const THINKING: &[&str] = &["enabled", "disabled", "adaptive", "between_tools"];
const RETURNED: &str = "of a tool_result: a text, a list of parts, or any JSON";
const READS_TEXT: &str = "give text: the model reads text alone";

const RUN_BY_A_SERVICE: &str = "what a service ran is left out: the text that follows says what it found";
const TOLD: &str = "the client runs it, and the model is told what it takes";
const LEFT_OUT: &str = "the tool is left out with its fields, and the log says so";

const TOOLS: FieldGroup = FieldGroup {
    title: "Tools of messages",
    rows: &[
        done("tools", "[]", "{}", "up to 128 functions"),
        done(
            "tools[].type",
            "\"custom\"",
            "5",
            "custom; tools that a service runs itself are left out, and the log says so",
        ),
        done("tools[].name", "\"f\"", "\"\"", "what a call names"),
        done("tools[].description", "\"d\"", "5", "the model is told"),
        done("tools[].input_schema", r#"{"type":"object"}"#, "5", "a call's arguments keep to the schema"),
        done("tools[].strict", "true", "5", "true refuses a schema that cannot be kept to in whole"),
        harmless("tools[].type", "\"web_search_20250305\"", LEFT_OUT).of("web_search_20250305"),
        harmless("tools[].type", "\"bash_20250124\"", TOLD).of("bash_20250124"),
        harmless("tools[].type", "\"text_editor_20250728\"", TOLD).of("text_editor_20250728"),
        harmless("tools[].type", "\"computer_20250124\"", LEFT_OUT).of("computer_20250124"),
        harmless("tools[].type", "\"code_execution_20250825\"", LEFT_OUT).of("code_execution_20250825"),
        harmless("tools[].type", "\"memory_20250818\"", TOLD).of("memory_20250818"),
        harmless("tools[].type", "\"mcp_toolset\"", LEFT_OUT).of("mcp_toolset"),
        harmless("tools[].cache_control", r#"{"type":"ephemeral"}"#, "every prompt is cached"),
        harmless("tools[].eager_input_streaming", "true", "a call's arguments come as one piece"),
        harmless("tools[].input_examples", "[]", "the model is not told"),
        harmless("tools[].defer_loading", "true", "the model is told of every tool"),
        harmless("tools[].allowed_callers", r#"["direct"]"#, "calls are the model's"),
        done("tool_choice", r#"{"type":"auto"}"#, "5", "an object"),
        done("tool_choice.type", "\"any\"", "\"maybe\"", "auto, any, tool or none"),
        done("tool_choice.name", "\"f\"", "5", "with tool: one of the tools"),
        done("tool_choice.disable_parallel_tool_use", "true", "5", "true: one call in a reply"),
    ],
};

/// Fields for Anthropic's own service.
const SERVICE: FieldGroup = FieldGroup {
    title: "For Anthropic's own service",
    rows: &[
        harmless("speed", "\"fast\"", "the server is as fast as it can be"),
        harmless("inference_geo", "\"eu\"", "the server is where it is"),
        harmless("billing_policy", "{}", "nothing is billed"),
        harmless("diagnostics", "{}", "the log has them"),
        harmless("fallbacks", "[]", "one model is loaded, and answers"),
        harmless("fallback_credit_token", "\"t\"", "nothing is billed"),
        harmless("user_profile_id", "\"u\"", "clients are told apart by key and address"),
        harmless("workspace_id", "\"w\"", "clients are told apart by key and address"),
        harmless("betas", r#"["b"]"#, "what is done here is done without"),
        harmless("anthropic_version", "\"2023-06-01\"", "there is one version"),
        harmless("anthropic_beta", r#"["b"]"#, "what is done here is done without"),
        refused("container", &[], "\"c\"", "leave it out: no code runs here"),
        refused("thread", &[], r#"{"type":"create"}"#, "send the whole conversation: nothing is stored"),
    ],
};
