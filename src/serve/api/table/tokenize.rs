//! The fields of `/tokenize` and `/detokenize`, vLLM's and llama.cpp's.

use super::{FieldGroup, FieldTable, done, harmless, refused};

/// `/tokenize`.
pub(in crate::serve::api) static TOKENIZE: FieldTable = FieldTable::new("/tokenize", &[&TOKENIZE_OWN]);

/// `/detokenize`.
pub(in crate::serve::api) static DETOKENIZE: FieldTable = FieldTable::new("/detokenize", &[&DETOKENIZE_OWN]);

const TOKENIZE_OWN: FieldGroup = FieldGroup {
    title: "Tokens of a text or of messages",
    rows: &[
        done("model", "\"any\"", "5", "any name is answered, unless the server has --strict-model"),
        done("prompt", "\"Hi\"", "5", "vLLM's field; with <bos>"),
        done("add_special_tokens", "false", "5", "with prompt: false leaves out <bos>"),
        done("content", "\"Hi\"", "5", "llama.cpp's field; without <bos>"),
        done("add_special", "true", "5", "with content: true puts <bos> first"),
        done("messages", r#"[{"role":"user","content":"Hi"}]"#, "[]", "as in a chat completion, in the chat template"),
        done("tools", "[]", "{}", "with messages, as in a chat completion"),
        refused(
            "add_generation_prompt",
            &["true"],
            "false",
            "leave it out: the tokens are those of a request's prompt",
        ),
        refused(
            "continue_final_message",
            &["false"],
            "true",
            "leave it out: a last message of the assistant's is continued",
        ),
        refused("chat_template", &[], "\"{{ messages }}\"", "leave it out: the model's own is used"),
        refused("return_token_strs", &["false"], "true", "use /detokenize"),
        refused("with_pieces", &["false"], "true", "use /detokenize"),
        refused("parse_special", &["true"], "false", "give messages, whose text stays text"),
        harmless("chat_template_kwargs", "{}", "the model's template takes none"),
        harmless("mm_processor_kwargs", "{}", "the model reads text alone"),
        harmless("media_io_kwargs", "{}", "the model reads text alone"),
    ],
};

const DETOKENIZE_OWN: FieldGroup = FieldGroup {
    title: "The text of tokens",
    rows: &[
        done("model", "\"any\"", "5", "any name is answered, unless the server has --strict-model"),
        done("tokens", "[5]", "\"Hi\"", "token ids"),
    ],
};
