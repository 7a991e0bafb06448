//! The form of a reply: grammars requested by `response_format`, `text.format`, `format`, `json_schema`, `grammar` or
//! by tools.

use super::fields::{Fields, shown, wrong_kind};
use crate::grammar::Grammar;
use crate::serve::http::ApiError;
use serde_json::Value;

/// A grammar, with the field of the request that asks for it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RequestedGrammar {
    pub grammar: Grammar,
    pub param: String,
    /// In a grammar of tools: the requested form of a reply without calls.
    pub beside: Option<Box<RequestedGrammar>>,
}

impl RequestedGrammar {
    pub fn new(grammar: Grammar, param: String) -> RequestedGrammar {
        RequestedGrammar { grammar, param, beside: None }
    }
}

/// Reads the form requested by a chat completion or a completion. `None`: free text.
///
/// # Errors
/// 400: a field is wrong, or two ask for different forms.
pub(super) fn read(fields: &Fields<'_>) -> Result<Option<RequestedGrammar>, ApiError> {
    let format = match fields.object("response_format")? {
        Some(format) => read_format(&format, Nested::Yes)?,
        None => None,
    };
    let schema = fields.get("json_schema").map(|schema| read_schema(schema, fields.path("json_schema")));
    let lark = fields.text("grammar")?.map(|text| {
        let grammar = Grammar::from_text(text.into()).map_err(|e| ApiError::from(&e).param(fields.path("grammar")))?;
        Ok::<_, ApiError>(RequestedGrammar::new(grammar, fields.path("grammar")))
    });
    only_one([format, schema.transpose()?, lark.transpose()?])
}

/// Whether a schema is inside `json_schema`, as in `response_format`, or next to the type, as in the `text.format` of
/// responses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Nested {
    Yes,
    No,
}

/// Reads `{"type": "text" | "json_object" | "json_schema", ..}`.
///
/// # Errors
/// 400: it is another value.
pub(super) fn read_format(format: &Fields<'_>, nested: Nested) -> Result<Option<RequestedGrammar>, ApiError> {
    let kind = format.word("type", &["text", "json_object", "json_schema"])?;
    match kind.ok_or_else(|| format.missing("type"))? {
        "text" => Ok(None),
        // llama.cpp accepts a schema here too.
        "json_object" => match format.get("schema") {
            Some(schema) => read_schema(schema, format.path("schema")).map(Some),
            None => Ok(Some(RequestedGrammar::new(Grammar::JsonObject, format.at().to_owned()))),
        },
        _ => {
            let holder = match (nested, format.object("json_schema")?) {
                (Nested::Yes, Some(holder)) => holder,
                // llama.cpp accepts the schema next to the type too.
                (Nested::Yes, None) if format.get("schema").is_none() => return Err(format.missing("json_schema")),
                (Nested::Yes | Nested::No, _) => format.clone(),
            };
            let schema = holder.get("schema").ok_or_else(|| holder.missing("schema"))?;
            read_schema(schema, holder.path("schema")).map(Some)
        }
    }
}

/// Reads Ollama's `format`: `"json"`, or a schema.
///
/// # Errors
/// 400: it is another value.
pub(super) fn read_ollama(fields: &Fields<'_>) -> Result<Option<RequestedGrammar>, ApiError> {
    match fields.get("format") {
        None => Ok(None),
        Some(Value::String(text)) if text.is_empty() => Ok(None),
        Some(Value::String(text)) if text == "json" => {
            Ok(Some(RequestedGrammar::new(Grammar::JsonObject, fields.path("format"))))
        }
        Some(schema) => read_schema(schema, fields.path("format")).map(Some),
    }
}

/// Reads Anthropic's `output_config.format` or, by its older name, `output_format`:
/// `{"type": "json_schema", "schema": ..}`.
///
/// # Errors
/// 400: it is another value, or both ask for a form.
pub(super) fn read_anthropic(fields: &Fields<'_>) -> Result<Option<RequestedGrammar>, ApiError> {
    let format = match fields.object("output_config")? {
        Some(config) => config.object("format")?,
        None => None,
    };
    let read = |format: Option<Fields<'_>>| match format {
        Some(format) => match format.required("type")? {
            "json_schema" => read_format(&format, Nested::No),
            other => Err(format.wrong("type", format!("is {}, and has to be json_schema", shown(&other.into())))),
        },
        None => Ok(None),
    };
    only_one([read(format)?, read(fields.object("output_format")?)?])
}

/// The form in one of several fields. An object without a schema agrees with a schema.
fn only_one<const N: usize>(forms: [Option<RequestedGrammar>; N]) -> Result<Option<RequestedGrammar>, ApiError> {
    let has_schema = forms.iter().flatten().any(|form| matches!(form.grammar, Grammar::JsonSchema(_)));
    let is_looser = |form: &RequestedGrammar| has_schema && form.grammar == Grammar::JsonObject;
    let mut forms = forms.into_iter().flatten().filter(|form| !is_looser(form));
    match (forms.next(), forms.next()) {
        (_, Some(second)) => {
            let message = format!("{} asks for one form, and another field for another", second.param);
            Err(ApiError::bad(message).param(second.param).code("invalid_value"))
        }
        (form, None) => Ok(form),
    }
}

fn read_schema(schema: &Value, path: String) -> Result<RequestedGrammar, ApiError> {
    match schema {
        Value::Object(_) => Ok(RequestedGrammar::new(Grammar::JsonSchema(schema.clone()), path)),
        _ => Err(wrong_kind(&path, schema, "a JSON schema")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn form(body: Value) -> Result<Option<(Grammar, String)>, String> {
        let form = read(&Fields::of_body(&body).unwrap()).map_err(|e| e.param.unwrap())?;
        Ok(form.map(|form| (form.grammar, form.param)))
    }

    #[test]
    fn a_form_is_read_from_where_clients_put_it() {
        assert_eq!(form(json!({})), Ok(None));
        assert_eq!(form(json!({"response_format": {"type": "text"}})), Ok(None));
        let object = json!({"response_format": {"type": "json_object"}});
        assert_eq!(form(object), Ok(Some((Grammar::JsonObject, "response_format".into()))));
        let schema = json!({"type": "array"});
        let nested =
            json!({"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}});
        let param = "response_format.json_schema.schema".to_owned();
        assert_eq!(form(nested), Ok(Some((Grammar::JsonSchema(schema.clone()), param))));
        let llama = form(json!({"response_format": {"type": "json_object", "schema": schema}}));
        assert_eq!(llama, Ok(Some((Grammar::JsonSchema(schema.clone()), "response_format.schema".into()))));
        let beside = form(json!({"response_format": {"type": "json_schema", "schema": schema}}));
        assert_eq!(beside, Ok(Some((Grammar::JsonSchema(schema.clone()), "response_format.schema".into()))));
        let both = form(json!({"response_format": {"type": "json_object"}, "json_schema": schema}));
        assert_eq!(both, Ok(Some((Grammar::JsonSchema(schema.clone()), "json_schema".into()))));
        let plain = form(json!({"json_schema": schema}));
        assert_eq!(plain, Ok(Some((Grammar::JsonSchema(schema.clone()), "json_schema".into()))));
        let lark = form(json!({"grammar": "start: \"a\""}));
        assert_eq!(lark, Ok(Some((Grammar::Lark("start: \"a\"".into()), "grammar".into()))));
        let body = json!({"format": "json", "none": null});
        assert_eq!(read_ollama(&Fields::of_body(&body).unwrap()).unwrap().unwrap().grammar, Grammar::JsonObject);
        let body = json!({"format": schema});
        assert_eq!(
            read_ollama(&Fields::of_body(&body).unwrap()).unwrap().unwrap().grammar,
            Grammar::JsonSchema(schema)
        );
    }

    #[test]
    fn each_wrong_form_is_named() {
        for (body, param) in [
            (json!({"response_format": "json"}), "response_format"),
            (json!({"response_format": {}}), "response_format.type"),
            (json!({"response_format": {"type": "xml"}}), "response_format.type"),
            (json!({"response_format": {"type": "json_schema"}}), "response_format.json_schema"),
            (
                json!({"response_format": {"type": "json_schema", "json_schema": {}}}),
                "response_format.json_schema.schema",
            ),
            (json!({"json_schema": "x"}), "json_schema"),
            (json!({"grammar": {}}), "grammar"),
            (json!({"grammar": "start: \"a\"", "json_schema": {}}), "grammar"),
        ] {
            assert_eq!(form(body.clone()), Err(param.into()), "{body}");
        }
        let body = json!({"format": 1});
        assert_eq!(read_ollama(&Fields::of_body(&body).unwrap()).unwrap_err().param.unwrap(), "format");
    }
}
