//! The form of a reply. Each interface has its own fields for it, and those of other interfaces are refused rather than
//! ignored.

use super::{FieldGroup, done, harmless, refused};

/// The form of a chat completion or a completion.
pub(super) const OPENAI: FieldGroup = FieldGroup {
    title: "The form of a reply: OpenAI's words, and llama.cpp's",
    rows: &[
        done("response_format", r#"{"type":"text"}"#, "\"json\"", "holds every token of the reply; one form alone"),
        done("response_format.type", "\"json_object\"", "\"xml\"", "text, json_object or json_schema"),
        done("response_format.type", "\"json_schema\"", "1", "with json_schema").of("json_schema"),
        refused("response_format.type", &[], "\"structural_tag\"", "use a JSON schema, or grammar")
            .of("structural_tag"),
        refused("response_format.type", &[], "\"grammar\"", "use grammar, in Lark's notation").of("grammar"),
        refused("response_format.type", &[], "\"python\"", "use grammar, in Lark's notation").of("python"),
        done("response_format.schema", SCHEMA, "5", "llama.cpp's place of a schema, with json_object or json_schema"),
        done("response_format.json_schema", r#"{"name":"n","schema":{"type":"object"}}"#, "5", "a schema and its name"),
        done("response_format.json_schema.schema", SCHEMA, "5", "what a grammar cannot hold is refused with its place"),
        harmless("response_format.json_schema.name", "\"n\"", "the model is not told"),
        harmless("response_format.json_schema.description", "\"d\"", "say it in a message"),
        harmless("response_format.json_schema.strict", "false", "the schema holds either way"),
        done("json_schema", SCHEMA, "5", "a JSON schema"),
        done("grammar", r#""start: \"a\"""#, "5", "in Lark's notation; llama.cpp's own (GBNF) is refused"),
        refused("format", &[""], "\"json\"", USE_RESPONSE_FORMAT),
        refused("output_format", &[], r#"{"type":"json_schema","schema":{}}"#, USE_RESPONSE_FORMAT),
        refused("output_config.format", &[], r#"{"type":"json_schema","schema":{}}"#, USE_RESPONSE_FORMAT),
        refused("text.format", &[TEXT], JSON_OBJECT, USE_RESPONSE_FORMAT),
        refused("guided_json", &[], "{}", USE_RESPONSE_FORMAT),
        refused("guided_regex", &[], "\"a+\"", USE_RESPONSE_FORMAT),
        refused("guided_choice", &["[]"], r#"["a"]"#, USE_RESPONSE_FORMAT),
        refused("guided_grammar", &[], "\"root\"", USE_RESPONSE_FORMAT),
        refused("structured_outputs", &[], r#"{"json":{}}"#, USE_RESPONSE_FORMAT),
        refused("structural_tag", &[], "{}", USE_RESPONSE_FORMAT),
        refused("regex", &[], "\"a+\"", USE_RESPONSE_FORMAT),
        refused("ebnf", &[], "\"root\"", USE_RESPONSE_FORMAT),
        refused("response_fields", &["[]"], r#"["content"]"#, "leave it out: an answer has all of its fields"),
    ],
};

/// The form of a response, which `text.format` has.
pub(super) const RESPONSES: FieldGroup = FieldGroup {
    title: "The form of a response",
    rows: &[
        done("text", r#"{"format":{"type":"text"}}"#, "5", "its format, and advice"),
        done("text.format", r#"{"type":"text"}"#, "5", "holds every token of the reply"),
        done("text.format.type", "\"json_object\"", "\"xml\"", "text, json_object or json_schema"),
        done("text.format.schema", SCHEMA, "5", "with json_schema"),
        harmless("text.format.name", "\"n\"", "the model is not told"),
        harmless("text.format.description", "\"d\"", "say it in a message"),
        harmless("text.format.strict", "false", "the schema holds either way"),
        super::one_of("text.verbosity", super::sampling::VERBOSITIES, "\"low\"", "say it in the instructions"),
    ],
};

/// Other interfaces' fields in a request for a response.
pub(super) const NOT_RESPONSES: FieldGroup =
    FieldGroup { title: "Other interfaces' forms in a request for a response", rows: &elsewhere("use text.format") };

/// Anthropic's fields.
pub(super) const ANTHROPIC: FieldGroup = FieldGroup {
    title: "The form of a message",
    rows: &[
        done("output_config", r#"{"format":null}"#, "5", "the reply's format, and advice"),
        done("output_config.format", ANTHROPIC_FORMAT, "5", "a JSON schema, which holds every token"),
        done("output_config.format.type", "\"json_schema\"", "\"xml\"", "json_schema"),
        done("output_config.format.schema", SCHEMA, "5", "what a grammar cannot hold is refused with its place"),
        super::one_of("output_config.effort", super::sampling::EFFORTS, "\"low\"", super::sampling::NO_THOUGHTS),
        harmless("output_config.task_budget", r#"{"type":"tokens","total":1000}"#, "max_tokens is the limit"),
        done("output_format", ANTHROPIC_FORMAT, "5", "the older name of output_config.format"),
        done("output_format.type", "\"json_schema\"", "\"xml\"", "json_schema"),
        done("output_format.schema", SCHEMA, "5", "as output_config.format.schema"),
    ],
};

/// Other interfaces' fields in a request for a message.
pub(super) const NOT_ANTHROPIC: FieldGroup = FieldGroup {
    title: "Other interfaces' forms in a request for a message",
    rows: &elsewhere("use output_config.format"),
};

/// Ollama's fields.
pub(super) const OLLAMA: FieldGroup = FieldGroup {
    title: "The form of Ollama's reply",
    rows: &[done("format", "\"json\"", "5", "\"json\", or a JSON schema, which holds every token; \"\" is none")],
};

/// Other interfaces' fields in Ollama's requests.
pub(super) const NOT_OLLAMA: FieldGroup =
    FieldGroup { title: "Other interfaces' forms in Ollama's requests", rows: &elsewhere("use format") };

const SCHEMA: &str = r#"{"type":"object","properties":{"a":{"type":"boolean"}},"additionalProperties":false}"#;
const ANTHROPIC_FORMAT: &str = r#"{"type":"json_schema","schema":{"type":"object","properties":{}}}"#;
const TEXT: &str = r#"{"type":"text"}"#;
const JSON_OBJECT: &str = r#"{"type":"json_object"}"#;
const USE_RESPONSE_FORMAT: &str = "use response_format with a JSON schema, or grammar in Lark's notation";

/// Fields for a form that a path does not support, with the remedy.
const fn elsewhere(remedy: &'static str) -> [super::FieldRow; 12] {
    [
        refused("response_format", &[TEXT], JSON_OBJECT, remedy),
        refused("json_schema", &[], "{}", remedy),
        refused("grammar", &[""], r#""start: \"a\"""#, remedy),
        refused("guided_json", &[], "{}", remedy),
        refused("guided_regex", &[], "\"a+\"", remedy),
        refused("guided_choice", &["[]"], r#"["a"]"#, remedy),
        refused("guided_grammar", &[], "\"root\"", remedy),
        refused("structured_outputs", &[], r#"{"json":{}}"#, remedy),
        refused("structural_tag", &[], "{}", remedy),
        refused("regex", &[], "\"a+\"", remedy),
        refused("ebnf", &[], "\"root\"", remedy),
        refused("response_fields", &["[]"], r#"["content"]"#, "leave it out: an answer has all of its fields"),
    ]
}
