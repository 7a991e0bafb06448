//! The table of every field that the published interfaces have, and of how each is treated here.
//!
//! A field is done, harmless or refused. A field that is done is read by the reader of its path. A harmless one is advice:
//! it is accepted, changes nothing, and the log names it at debug. A refused one would change the answer, and its refusal
//! has the remedy. No field that promises a form of the answer is harmless. A field that no interface has is harmless too.
//!
//! The readers check each body by the table of its path ([`FieldTable::check`]); `docs/api.md` and the tests are made of the
//! same rows.

mod anthropic;
mod forms;
mod ollama;
mod openai;
#[cfg(test)]
mod page;
mod sampling;
mod tokenize;

use super::fields::{Fields, is_same, shown};
use crate::serve::http::ApiError;
use serde_json::Value;
use std::collections::HashMap;
use std::sync::OnceLock;

pub(super) use anthropic::{COUNT, MESSAGES};
pub(super) use ollama::{CHAT as OLLAMA_CHAT, GENERATE as OLLAMA_GENERATE, SHOW};
pub(super) use openai::{CHAT, COMPLETIONS, RESPONSES};
#[cfg(test)]
pub(super) use page::tables;
pub(super) use tokenize::{DETOKENIZE, TOKENIZE};

/// A field, or one value of it, and its treatment.
#[derive(Debug, Clone, Copy)]
pub(super) struct FieldRow {
    /// The field's path: names with a dot between them, `[]` behind the name of a list.
    pub field: &'static str,
    /// The value that the row is about. Empty: all that have no row of their own.
    pub value: &'static str,
    pub does: Treatment,
    /// What the field does, why it is harmless, or the remedy of its refusal.
    pub note: &'static str,
    /// A value, as JSON: one that is taken, or of a refused field one that is refused.
    #[cfg_attr(not(test), expect(dead_code, reason = "the tests send it"))]
    pub example: &'static str,
}

/// How a field is treated.
#[derive(Debug, Clone, Copy)]
pub(super) enum Treatment {
    /// It is read. `wrong` is a value, as JSON, that is refused with the field's name.
    Done {
        #[cfg_attr(not(test), expect(dead_code, reason = "the tests send it"))]
        wrong: &'static str,
    },
    /// It changes nothing. `values` are the texts that it may be; without any it may be whatever it is.
    Harmless { values: &'static [&'static str] },
    /// It is refused, but for the values, as JSON, that change nothing.
    Refused { unless: &'static [&'static str] },
}

/// A field that is read.
const fn done(field: &'static str, example: &'static str, wrong: &'static str, note: &'static str) -> FieldRow {
    FieldRow { field, value: "", does: Treatment::Done { wrong }, note, example }
}

/// A field that changes nothing, whatever its value.
const fn harmless(field: &'static str, example: &'static str, note: &'static str) -> FieldRow {
    FieldRow { field, value: "", does: Treatment::Harmless { values: &[] }, note, example }
}

/// A field that changes nothing, and whose value is one of some texts. `example` is one of them, as JSON.
const fn one_of(
    field: &'static str,
    values: &'static [&'static str],
    example: &'static str,
    note: &'static str,
) -> FieldRow {
    FieldRow { field, value: "", does: Treatment::Harmless { values }, note, example }
}

/// A field that is refused but for some values; `note` is the remedy.
const fn refused(
    field: &'static str,
    unless: &'static [&'static str],
    example: &'static str,
    note: &'static str,
) -> FieldRow {
    FieldRow { field, value: "", does: Treatment::Refused { unless }, note, example }
}

impl FieldRow {
    /// The row of one value, which its reader treats as the row says.
    const fn of(self, value: &'static str) -> FieldRow {
        FieldRow { value, ..self }
    }
}

/// Rows that belong together.
#[derive(Debug)]
pub(super) struct FieldGroup {
    #[cfg_attr(not(test), expect(dead_code, reason = "docs/api.md has it"))]
    pub title: &'static str,
    pub rows: &'static [FieldRow],
}

/// The fields of a path.
#[derive(Debug)]
pub(super) struct FieldTable {
    pub path: &'static str,
    pub groups: &'static [&'static FieldGroup],
    index: OnceLock<HashMap<&'static str, FieldEntry>>,
}

/// What a table has of a field.
#[derive(Debug, Clone, Copy, Default)]
struct FieldEntry {
    /// The row of its values that have none of their own.
    row: Option<&'static FieldRow>,
    /// Whether fields within it have rows.
    has_inner: bool,
}

/// What the log says of a body.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct FieldNotes {
    harmless: Vec<String>,
    unknown: Vec<String>,
}

/// Most fields of a kind that the log names.
const MOST_NAMED: usize = 24;

impl FieldTable {
    const fn new(path: &'static str, groups: &'static [&'static FieldGroup]) -> FieldTable {
        FieldTable { path, groups, index: OnceLock::new() }
    }

    /// The rows of all groups.
    pub fn rows(&self) -> impl Iterator<Item = &'static FieldRow> {
        self.groups.iter().flat_map(|group| group.rows)
    }

    /// Refuses what the table refuses, and names in the log what is without effect.
    ///
    /// Fields within lists are refused by the readers of the lists, which know the places.
    ///
    /// # Errors
    /// 400: a field is refused, or a harmless one has none of its values.
    pub fn check(&self, fields: &Fields<'_>) -> Result<(), ApiError> {
        let mut notes = log::log_enabled!(log::Level::Debug).then(FieldNotes::default);
        self.walk(fields, "", &mut notes)?;
        if let Some(line) = notes.as_ref().and_then(|notes| notes.line(self.path)) {
            log::debug!("{line}");
        }
        Ok(())
    }

    /// What the log says of a body that is taken.
    #[cfg(test)]
    pub fn notes(&self, fields: &Fields<'_>) -> FieldNotes {
        let mut notes = Some(FieldNotes::default());
        let walked = self.walk(fields, "", &mut notes);
        assert!(walked.is_ok(), "{walked:?}");
        notes.unwrap_or_default()
    }

    fn walk(&self, fields: &Fields<'_>, at: &str, notes: &mut Option<FieldNotes>) -> Result<(), ApiError> {
        for (name, value) in fields.entries().filter(|(_, value)| !value.is_null()) {
            let long;
            let path = if at.is_empty() {
                name
            } else {
                long = format!("{at}.{name}");
                &long
            };
            let Some(entry) = self.index().get(path) else {
                FieldNotes::add(notes, |notes| &mut notes.unknown, path);
                continue;
            };
            match entry.row.map(|row| (row.does, row.note)) {
                Some((Treatment::Harmless { values }, _)) => {
                    let is_known = || value.as_str().is_some_and(|word| values.contains(&word));
                    // What some clients send as an object has its words within.
                    let has_words = value.is_object() && entry.has_inner;
                    if !values.is_empty() && !has_words && !is_known() {
                        let what = format!("is {}, and has to be one of {}", shown(value), values.join(", "));
                        return Err(fields.wrong(name, what));
                    }
                    FieldNotes::add(notes, |notes| &mut notes.harmless, path);
                }
                Some((Treatment::Refused { unless }, remedy))
                    if !unless.iter().any(|neutral| is_same(value, neutral)) =>
                {
                    return Err(fields.unserved(name, remedy));
                }
                Some((Treatment::Done { .. } | Treatment::Refused { .. }, _)) | None => {}
            }
            match value {
                Value::Object(_) if entry.has_inner => {
                    self.walk(&Fields::of(value, fields.path(name))?, path, notes)?;
                }
                Value::Array(values) => self.note_members(path, values, notes),
                _ => {}
            }
        }
        Ok(())
    }

    /// Notes what a list's objects have without effect.
    fn note_members(&self, path: &str, values: &[Value], notes: &mut Option<FieldNotes>) {
        if notes.is_none() {
            return;
        }
        let list = format!("{path}[]");
        if !self.index().get(list.as_str()).is_some_and(|entry| entry.has_inner) {
            return;
        }
        for (name, value) in values.iter().filter_map(Value::as_object).flatten() {
            let path = format!("{list}.{name}");
            match self.index().get(path.as_str()) {
                None => FieldNotes::add(notes, |notes| &mut notes.unknown, &path),
                Some(entry) => {
                    if entry.row.is_some_and(|row| matches!(row.does, Treatment::Harmless { .. })) {
                        FieldNotes::add(notes, |notes| &mut notes.harmless, &path);
                    }
                    if let Value::Array(values) = value {
                        self.note_members(&path, values, notes);
                    }
                }
            }
        }
    }

    fn index(&self) -> &HashMap<&'static str, FieldEntry> {
        self.index.get_or_init(|| {
            let mut index: HashMap<&'static str, FieldEntry> = HashMap::new();
            for row in self.rows() {
                let outer = row.field.match_indices('.').map(|(dot, _)| &row.field[..dot]);
                outer.for_each(|path| index.entry(path).or_default().has_inner = true);
                let entry = index.entry(row.field).or_default();
                if row.value.is_empty() {
                    entry.row = Some(row);
                }
            }
            index
        })
    }
}

impl FieldNotes {
    /// Adds a field to a list of `notes`, once, as long as the list is short.
    fn add(notes: &mut Option<FieldNotes>, list: fn(&mut FieldNotes) -> &mut Vec<String>, path: &str) {
        let Some(notes) = notes else { return };
        let list = list(notes);
        let name = shown(&path.into());
        let name = name.trim_matches('"');
        if list.len() < MOST_NAMED && !list.iter().any(|known| known == name) {
            list.push(name.to_owned());
        }
    }

    /// The line of the log. `None`: there is nothing to say.
    pub fn line(&self, path: &str) -> Option<String> {
        let said = [("without effect here", &self.harmless), ("not known", &self.unknown)];
        let said = said.iter().filter(|(_, names)| !names.is_empty());
        let said: Vec<String> = said.map(|(what, names)| format!("{what}: {}", names.join(", "))).collect();
        (!said.is_empty()).then(|| format!("a request to {path} has fields {}", said.join("; ")))
    }
}
