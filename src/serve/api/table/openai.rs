//! The fields of OpenAI's chat completions, completions and responses, including those added by other servers.

use super::sampling::{ADVICE, LIMITS, ONE_REPLY, OTHER_SAMPLERS, REASONING, REPLIES, SAMPLING, WITHOUT_EFFECT};
use super::{FieldGroup, FieldTable, done, forms, harmless, refused};

/// `/v1/chat/completions`.
pub(in crate::serve::api) static CHAT: FieldTable = FieldTable::new(
    "/v1/chat/completions",
    &[
        &CHAT_OWN,
        &CHAT_MESSAGES,
        &CHAT_TOOLS,
        &STREAMS,
        &LIMITS,
        &REPLIES,
        &SAMPLING,
        &forms::OPENAI,
        &TEMPLATE,
        &REASONING,
        &ADVICE,
        &WITHOUT_EFFECT,
        &OTHER_SAMPLERS,
        &OTHER_ANSWERS,
    ],
);

/// `/v1/completions`.
pub(in crate::serve::api) static COMPLETIONS: FieldTable = FieldTable::new(
    "/v1/completions",
    &[
        &COMPLETIONS_OWN,
        &STREAMS,
        &LIMITS,
        &REPLIES,
        &SAMPLING,
        &forms::OPENAI,
        &REASONING,
        &ADVICE,
        &WITHOUT_EFFECT,
        &OTHER_SAMPLERS,
        &OTHER_ANSWERS,
    ],
);

/// `/v1/responses`.
pub(in crate::serve::api) static RESPONSES: FieldTable = FieldTable::new(
    "/v1/responses",
    &[
        &RESPONSES_OWN,
        &RESPONSES_INPUT,
        &RESPONSES_TOOLS,
        &LIMITS,
        &SAMPLING,
        &forms::RESPONSES,
        &forms::NOT_RESPONSES,
        &REASONING,
        &ADVICE,
        &WITHOUT_EFFECT,
        &OTHER_SAMPLERS,
        &ONE_REPLY,
        &OTHER_ANSWERS,
    ],
);

const CHAT_OWN: FieldGroup = FieldGroup {
    title: "Chat completions",
    rows: &[
        done("model", "\"any\"", "5", "any name is answered, unless the server has --strict-model"),
        done("messages", r#"[{"role":"user","content":"Hi"}]"#, "[]", "one or more"),
        done("logprobs", "true", "\"yes\"", "likelihoods of the reply's tokens"),
        done("top_logprobs", "2", "21", "up to 20, with logprobs"),
        done(
            "truncation",
            "\"auto\"",
            "\"middle\"",
            "auto leaves out the oldest exchanges where the prompt is too long",
        ),
        refused("n_probs", &["0"], "2", "use logprobs and top_logprobs"),
        refused("echo", &["false"], "true", "leave it out: the prompt is known"),
        refused("audio", &["null"], r#"{"voice":"ash","format":"wav"}"#, "leave it out: replies are text"),
        refused("modalities", &[r#"["text"]"#], r#"["text","audio"]"#, "ask for text alone"),
        refused("web_search_options", &["null"], "{}", "leave it out, and give a function that searches"),
        refused("functions", &["[]"], r#"[{"name":"f"}]"#, "use tools"),
        refused("function_call", &["none"], "\"auto\"", "use tool_choice"),
    ],
};

/// The fields of messages. The refusals are made by their readers.
const CHAT_MESSAGES: FieldGroup = FieldGroup {
    title: "Messages of chat completions",
    rows: &[
        done("messages[].role", "\"user\"", "\"wizard\"", "system, developer, user, assistant or tool"),
        done("messages[].content", "\"Hi\"", "5", "a text, or a list of parts; of a tool's message any JSON"),
        done("messages[].content[].type", "\"text\"", "5", "text"),
        done("messages[].content[].type", "\"refusal\"", "5", "with refusal").of("refusal"),
        refused("messages[].content[].type", &[], "\"image_url\"", READS_TEXT).of("image_url"),
        refused("messages[].content[].type", &[], "\"input_audio\"", READS_TEXT).of("input_audio"),
        refused("messages[].content[].type", &[], "\"file\"", READS_TEXT).of("file"),
        done("messages[].content[].text", "\"Hi\"", "5", "parts of one message are joined as they are"),
        done("messages[].content[].refusal", "\"No\"", "5", "a refusal is what the assistant has said"),
        harmless("messages[].content[].cache_control", r#"{"type":"ephemeral"}"#, "every prompt is cached"),
        harmless("messages[].content[].prompt_cache_breakpoint", r#"{"mode":"explicit"}"#, "every prompt is cached"),
        done("messages[].tool_calls", "[]", "5", "calls that the assistant has made"),
        harmless("messages[].tool_calls[].type", "\"function\"", "calls are of functions"),
        harmless("messages[].tool_calls[].index", "0", "their order is that of the list"),
        done("messages[].tool_calls[].id", "\"c\"", "5", "the result names it"),
        done("messages[].tool_calls[].function", r#"{"name":"f","arguments":"{}"}"#, "5", "its name and arguments"),
        done("messages[].tool_calls[].function.name", "\"f\"", "5", "the function"),
        done("messages[].tool_calls[].function.arguments", "\"{}\"", "5", "an object, or its text"),
        done("messages[].tool_call_id", "\"c\"", "5", "the call that a tool's message answers"),
        harmless("messages[].name", "\"Ann\"", "of a tool's message the tool's name; others' is left out"),
        harmless("messages[].refusal", "\"No\"", "of an assistant's message; its content is read"),
        harmless("messages[].annotations", "[]", "of an assistant's message; its content is read"),
        harmless("messages[].reasoning", "\"Hm\"", "what a model thought is not said to the next"),
        harmless("messages[].reasoning_content", "\"Hm\"", "what a model thought is not said to the next"),
        harmless("messages[].cache_control", r#"{"type":"ephemeral"}"#, "every prompt is cached"),
        refused("messages[].images", &["[]"], r#"["AAAA"]"#, READS_TEXT),
        refused("messages[].audio", &["null"], r#"{"id":"a"}"#, READS_TEXT),
        done("messages[].function_call", r#"{"name":"f","arguments":"{}"}"#, "5", "a call that the assistant has made"),
    ],
};

const READS_TEXT: &str = "give text: the model reads text alone";

const RETURNED: &str = "of an output: a text, a list of parts, or any JSON";

const OWN_OUTPUTS: &str = "what a tool has returned, as of a function's call";

const CUSTOM: &str = "a call of it has a text; one with a grammar is left out, and the log says so";

const LEFT_OUT: &str = "the tool is left out, and the log says so";

const CHAT_TOOLS: FieldGroup = FieldGroup {
    title: "Tools of chat completions",
    rows: &[
        done("tools", "[]", "{}", "up to 128 functions"),
        done("tools[].type", "\"function\"", "5", "function; tools of other types are left out, and the log says so"),
        done("tools[].function", r#"{"name":"f"}"#, "5", "its name, description and parameters"),
        done("tools[].function.name", "\"f\"", "\"\"", "what a call names"),
        done("tools[].function.description", "\"d\"", "5", "the model is told"),
        done("tools[].function.parameters", r#"{"type":"object"}"#, "5", "a call's arguments keep to the schema"),
        done("tools[].function.strict", "true", "5", "true refuses a schema that cannot be kept to in whole"),
        harmless("tools[].type", "\"custom\"", CUSTOM).of("custom"),
        harmless("tools[].type", "\"web_search\"", LEFT_OUT).of("web_search"),
        harmless("tools[].defer_loading", "true", "the model is told of every tool"),
        done("tool_choice", "\"auto\"", "\"maybe\"", "none, auto, required, or a function"),
        done("tool_choice", "\"required\"", "5", "one call or more").of("required"),
        done("tool_choice.type", "\"function\"", "\"web_search\"", "function, custom or allowed_tools"),
        done("tool_choice.function", r#"{"name":"f"}"#, "5", "the function that is called"),
        done("tool_choice.function.name", "\"f\"", "5", "one of the tools"),
        done("parallel_tool_calls", "false", "5", "false: one call in a reply"),
    ],
};

/// Stream fields shared by chat completions and completions.
const STREAMS: FieldGroup = FieldGroup {
    title: "Streams",
    rows: &[
        done("stream", "false", "\"yes\"", "server-sent events"),
        done("stream_options", r#"{"include_usage":true}"#, "5", "with stream"),
        done("stream_options.include_usage", "true", "5", "the last event has the usage"),
        harmless("stream_options.include_obfuscation", "false", "events are not padded"),
        refused("stream_options.continuous_usage_stats", &["false"], "true", "use include_usage"),
    ],
};

/// Fields of vLLM and llama.cpp for the chat template.
const TEMPLATE: FieldGroup = FieldGroup {
    title: "The chat template, in the words of vLLM and llama.cpp",
    rows: &[
        done("add_generation_prompt", "true", "false", "true; false goes with continue_final_message"),
        done("continue_final_message", "false", "true", "a last message of the assistant's is continued"),
        refused("add_special_tokens", &["false"], "true", "leave it out: the template puts <bos> first"),
        refused("chat_template", &[], "\"{{ messages }}\"", "leave it out: the model's own is used"),
        harmless("chat_template_kwargs", r#"{"enable_thinking":false}"#, "the model's template takes none"),
        refused("documents", &["[]"], r#"[{"text":"t"}]"#, "put them into a message"),
    ],
};

/// Fields that would change the answer itself.
const OTHER_ANSWERS: FieldGroup = FieldGroup {
    title: "What would change the answer's fields",
    rows: &[
        refused("moderation", &[], r#"{"model":"m"}"#, "leave it out: there is no model that moderates"),
        refused("prompt_logprobs", &[], "1", "use echo with logprobs at /v1/completions"),
        refused("logprob_token_ids", &[], "[5]", "use top_logprobs"),
        refused("post_sampling_probs", &["false"], "true", "leave it out: likelihoods are the model's own"),
        refused("return_tokens", &["false"], "true", "use /tokenize"),
        refused("return_token_ids", &["false"], "true", "use /tokenize"),
        refused("return_tokens_as_token_ids", &["false"], "true", "leave it out: tokens are texts and bytes"),
        refused("return_prompt_text", &["false"], "true", "use /tokenize and /detokenize"),
        refused("_debug_render_only", &["false"], "true", "use /tokenize and /detokenize"),
    ],
};

const COMPLETIONS_OWN: FieldGroup = FieldGroup {
    title: "Completions",
    rows: &[
        done("model", "\"any\"", "5", "any name is answered, unless the server has --strict-model"),
        done("prompt", "\"Once\"", "{}", "a text, tokens, or a list of either"),
        done("echo", "true", "5", "says the prompt first"),
        done("logprobs", "1", "9", "likelihoods of the tokens and of up to 5 others; with echo of the prompt's too"),
        refused("top_logprobs", &["0"], "2", "use logprobs, a number here"),
        refused("suffix", &[""], "\"end\"", "leave it out: the model has not learnt to fill in"),
        refused("n_probs", &["0"], "2", "use logprobs"),
        refused("truncation", &["disabled"], "\"auto\"", "shorten the prompt: there are no exchanges to leave out"),
        refused("add_special_tokens", &["true"], "false", "give tokens, without <bos>"),
        refused("tools", &["[]"], r#"[{"type":"function","function":{"name":"f"}}]"#, "use /v1/chat/completions"),
    ],
};

const RESPONSES_OWN: FieldGroup = FieldGroup {
    title: "Responses",
    rows: &[
        done("model", "\"any\"", "5", "any name is answered, unless the server has --strict-model"),
        done("input", "\"Hi\"", "5", "a text, or a list of items"),
        done("instructions", "\"Be brief.\"", "5", "the system message"),
        done("stream", "false", "\"yes\"", "server-sent events"),
        harmless("stream_options", r#"{"include_obfuscation":false}"#, "events are not padded"),
        done(
            "truncation",
            "\"auto\"",
            "\"middle\"",
            "auto leaves out the oldest exchanges where the prompt is too long",
        ),
        done("include", r#"["reasoning.encrypted_content"]"#, "5", "what the response has none of is left out"),
        refused(
            "include",
            &[],
            r#"["message.output_text.logprobs"]"#,
            "a response has no logprobs; chat completions have",
        )
        .of("message.output_text.logprobs"),
        harmless("max_tool_calls", "3", "it counts calls of tools that a service runs itself"),
        harmless("context_management", r#"[{"type":"compaction"}]"#, "a prompt that is too long is refused"),
        harmless("client_metadata", "{}", "nothing is stored"),
        harmless("access_programs", "{}", "there are none"),
        harmless("background_options", "{}", "means nothing without background"),
        harmless("image", "{}", "the model reads text alone"),
        refused("previous_response_id", &[], "\"resp_1\"", "send the whole conversation as input: nothing is stored"),
        refused("conversation", &[], "\"conv_1\"", "send the whole conversation as input: nothing is stored"),
        refused("background", &["false"], "true", "leave it out, and stream"),
        refused("prompt", &[], r#"{"id":"pmpt_1"}"#, "give instructions and input: nothing is stored"),
        refused("top_logprobs", &["0"], "2", "use /v1/chat/completions"),
        refused("logprobs", &["false"], "true", "use /v1/chat/completions"),
    ],
};

/// The fields of a response's items. The refusals are made by their readers.
const RESPONSES_INPUT: FieldGroup = FieldGroup {
    title: "Items of a response's input",
    rows: &[
        done("input[].type", "\"message\"", "5", "message, function_call, function_call_output or reasoning"),
        done("input[].type", "\"reasoning\"", "5", "what a model thought is left out").of("reasoning"),
        refused("input[].type", &[], "\"item_reference\"", "send the item itself: nothing is stored")
            .of("item_reference"),
        harmless("input[].type", "\"computer_call_output\"", OWN_OUTPUTS).of("computer_call_output"),
        harmless("input[].type", "\"shell_call_output\"", OWN_OUTPUTS).of("shell_call_output"),
        done("input[].role", "\"user\"", "\"wizard\"", "system, developer, user or assistant"),
        done("input[].content", "\"Hi\"", "5", "a text, or a list of parts"),
        done("input[].content[].type", "\"input_text\"", "5", "input_text, output_text or refusal"),
        refused("input[].content[].type", &[], "\"input_image\"", READS_TEXT).of("input_image"),
        refused("input[].content[].type", &[], "\"input_file\"", READS_TEXT).of("input_file"),
        done("input[].content[].text", "\"Hi\"", "5", "parts of one message are joined as they are"),
        done("input[].call_id", "\"c\"", "5", "a call and its output have the same"),
        done("input[].name", "\"f\"", "5", "the function of a function_call"),
        done("input[].arguments", "\"{}\"", "5", "of a function_call: an object, or its text"),
        done("input[].output", "\"out\"", "", RETURNED),
        harmless("input[].type", "\"web_search_call\"", OTHER_ITEMS).of("web_search_call"),
        harmless("input[].type", "\"mcp_call\"", OTHER_ITEMS).of("mcp_call"),
        harmless("input[].type", "\"compaction\"", OTHER_ITEMS).of("compaction"),
        harmless("input[].id", "\"i\"", "nothing is stored"),
        harmless("input[].namespace", "\"n\"", "of a function_call: the set that its function is of"),
        harmless("input[].caller", r#"{"type":"direct"}"#, "calls are the model's"),
        harmless("input[].summary", "[]", "what a model thought is left out"),
        harmless("input[].encrypted_content", "\"e\"", "what a model thought is left out"),
        harmless("input[].status", "\"completed\"", "an item is complete"),
        harmless("input[].phase", "\"final_answer\"", "the model is not told"),
        harmless("input[].content[].annotations", "[]", "the text is read"),
        harmless("input[].content[].logprobs", "[]", "the text is read"),
        harmless("input[].content[].prompt_cache_breakpoint", r#"{"mode":"explicit"}"#, "every prompt is cached"),
    ],
};

const OTHER_ITEMS: &str = "what a service ran is left out: the text that follows says what it found";

const RESPONSES_TOOLS: FieldGroup = FieldGroup {
    title: "Tools of responses",
    rows: &[
        done("tools", "[]", "{}", "up to 128 functions"),
        done(
            "tools[].type",
            "\"function\"",
            "5",
            "function; tools that a service runs itself are left out, and the log says so",
        ),
        done("tools[].name", "\"f\"", "\"\"", "what a call names"),
        done("tools[].description", "\"d\"", "5", "the model is told"),
        done("tools[].parameters", r#"{"type":"object"}"#, "5", "a call's arguments keep to the schema"),
        done("tools[].strict", "true", "5", "true refuses a schema that cannot be kept to in whole"),
        harmless("tools[].type", "\"web_search\"", LEFT_OUT).of("web_search"),
        harmless("tools[].type", "\"file_search\"", LEFT_OUT).of("file_search"),
        harmless("tools[].type", "\"code_interpreter\"", LEFT_OUT).of("code_interpreter"),
        harmless("tools[].type", "\"image_generation\"", LEFT_OUT).of("image_generation"),
        harmless("tools[].type", "\"mcp\"", LEFT_OUT).of("mcp"),
        harmless("tools[].type", "\"computer_use_preview\"", LEFT_OUT).of("computer_use_preview"),
        harmless("tools[].type", "\"local_shell\"", LEFT_OUT).of("local_shell"),
        harmless("tools[].type", "\"shell\"", LEFT_OUT).of("shell"),
        harmless("tools[].type", "\"apply_patch\"", LEFT_OUT).of("apply_patch"),
        harmless("tools[].type", "\"tool_search\"", LEFT_OUT).of("tool_search"),
        harmless("tools[].type", "\"custom\"", CUSTOM).of("custom"),
        harmless("tools[].defer_loading", "true", "the model is told of every tool"),
        harmless("tools[].allowed_callers", r#"["direct"]"#, "calls are the model's"),
        harmless("tools[].async", "false", "the client runs its functions as it likes"),
        harmless("tools[].output_schema", "null", "the model reads what a function returns"),
        done("tool_choice", "\"auto\"", "\"maybe\"", "none, auto, required, or a function"),
        done("tool_choice.type", "\"function\"", "\"web_search\"", "function, custom or allowed_tools"),
        done("tool_choice.name", "\"f\"", "5", "one of the tools"),
        done("parallel_tool_calls", "false", "5", "false: one call in a reply"),
    ],
};
