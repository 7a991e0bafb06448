//! References in a schema: `#`, JSON pointers, anchors, and `$id`s of subschemas.

use std::collections::HashMap;

use serde_json::Value;

/// The targets of all references in one schema document, each as a JSON pointer from the document's root.
pub(super) struct References<'s> {
    root: &'s Value,
    /// The id and the JSON pointer of each subschema with an `$id`. A reference within such a subschema is relative to
    /// it.
    resources: Vec<(String, String)>,
    /// The JSON pointer of each anchor, by the JSON pointer of the enclosing subschema with an `$id`, and the anchor's
    /// name.
    anchors: HashMap<(String, String), String>,
}

impl<'s> References<'s> {
    pub fn of(root: &'s Value) -> References<'s> {
        let mut all = References { root, resources: Vec::new(), anchors: HashMap::new() };
        let mut open = vec![(root, String::new(), String::new())];
        while let Some((value, at, mut resource)) = open.pop() {
            match value {
                Value::Object(fields) => {
                    let text = |name: &str| fields.get(name).and_then(Value::as_str);
                    if let Some(id) = text("$id").filter(|id| !id.starts_with('#')) {
                        resource.clone_from(&at);
                        all.resources.push((id.trim_end_matches('#').to_owned(), at.clone()));
                    }
                    // Drafts 6 and 7 write an anchor as an `$id`.
                    let old = text("$id").and_then(|id| id.strip_prefix('#'));
                    for name in [text("$anchor"), old].into_iter().flatten() {
                        all.anchors.insert((resource.clone(), name.to_owned()), at.clone());
                    }
                    let parts = fields.iter().filter(|(key, _)| !is_data(key));
                    open.extend(parts.map(|(key, part)| (part, format!("{at}/{}", escape(key)), resource.clone())));
                }
                Value::Array(items) => {
                    let parts = items.iter().enumerate();
                    open.extend(parts.map(|(i, part)| (part, format!("{at}/{i}"), resource.clone())));
                }
                _ => {}
            }
        }
        all
    }

    /// Resolves `reference`, which occurs at the JSON pointer `from`, to a JSON pointer. `None` if it leads to no
    /// schema.
    pub fn find(&self, reference: &str, from: &str) -> Option<String> {
        let (base, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let fragment = decode(fragment)?;
        let resource = match base {
            "" => self.resource_of(from),
            _ => {
                let is_named = |id: &str| {
                    id == base
                        || id.strip_suffix(base).is_some_and(|start| base.starts_with('/') || start.ends_with('/'))
                };
                &self.resources.iter().find(|(id, _)| is_named(id))?.1
            }
        };
        let place = match fragment.as_str() {
            // Some schemas refer to the root like this.
            "" | "/" => resource.to_owned(),
            pointer if pointer.starts_with('/') => format!("{resource}{pointer}"),
            name => self.anchors.get(&(resource.to_owned(), name.to_owned()))?.clone(),
        };
        self.root.pointer(&place).filter(|schema| schema.is_object() || schema.is_boolean())?;
        Some(place)
    }

    /// The JSON pointer of the innermost subschema with an `$id` that encloses `from`; empty for the document itself.
    fn resource_of(&self, from: &str) -> &str {
        let holds = |place: &str| from.strip_prefix(place).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        let around = self.resources.iter().map(|(_, place)| place.as_str()).filter(|place| holds(place));
        around.max_by_key(|place| place.len()).unwrap_or("")
    }
}

/// True for keywords such as `const`, whose value is data and contains no schemas.
fn is_data(keyword: &str) -> bool {
    matches!(keyword, "const" | "enum" | "default" | "example" | "examples")
}

/// Escapes a key for a JSON pointer.
pub(super) fn escape(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

/// Decodes the percent signs of a fragment. `None`: the result is not UTF-8.
fn decode(fragment: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(fragment.len());
    let mut rest = fragment.as_bytes();
    while let Some((&byte, behind)) = rest.split_first() {
        let decoded =
            (byte == b'%').then(|| u8::from_str_radix(std::str::from_utf8(behind.get(..2)?).ok()?, 16).ok()).flatten();
        bytes.push(decoded.unwrap_or(byte));
        rest = if decoded.is_some() { &behind[2..] } else { behind };
    }
    String::from_utf8(bytes).ok()
}
