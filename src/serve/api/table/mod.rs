//! The table of all fields of the published interfaces, with their treatment here.
//!
//! A field is done, harmless or refused. A done field is read by its path's reader. A harmless one is accepted without
//! effect, and the log names it at debug. A refused one would change the answer, and its refusal has the remedy. Fields
//! that promise a form of the answer are never harmless. Fields unknown to all interfaces are harmless.
//!
//! The readers check each body by the table of its path ([`FieldTable::check`]). `docs/api.md` and the tests are
//! generated from the same rows.

mod anthropic;
mod forms;
mod ollama;
mod openai;
#[cfg(test)]
mod page_tests;
mod paths;
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
pub(super) use page_tests::tables;
pub(super) use paths::ABSENT;
pub(super) use tokenize::{DETOKENIZE, TOKENIZE};

/// A field, or one value of it, and its treatment.
#[derive(Debug, Clone, Copy)]
pub(super) struct FieldRow {
    /// The field's path: names joined by dots, with `[]` after the name of a list.
    pub field: &'static str,
    /// The value that the row describes. Empty: all values without a row of their own.
    pub value: &'static str,
    pub does: Treatment,
    /// The field's meaning, the reason why it is harmless, or the remedy of its refusal.
    pub note: &'static str,
    /// An example value as JSON: an accepted one, or for a refused field a refused one.
    #[cfg_attr(not(test), expect(dead_code, reason = "the tests send it"))]
    pub example: &'static str,
}

/// The treatment of a field.
#[derive(Debug, Clone, Copy)]
pub(super) enum Treatment {
    /// Read. `wrong` is a JSON value that is refused with the field's name; empty: every value is accepted.
    Done {
        #[cfg_attr(not(test), expect(dead_code, reason = "the tests send it"))]
        wrong: &'static str,
    },
    /// Without effect. `values` are the strings that are accepted; empty for any value.
    Harmless { values: &'static [&'static str] },
    /// Refused, except for the JSON values that change nothing.
    Refused { unless: &'static [&'static str] },
}

/// A field that is read.
const fn done(field: &'static str, example: &'static str, wrong: &'static str, note: &'static str) -> FieldRow {
    FieldRow { field, value: "", does: Treatment::Done { wrong }, note, example }
}

/// A field without effect, for any value.
const fn harmless(field: &'static str, example: &'static str, note: &'static str) -> FieldRow {
    FieldRow { field, value: "", does: Treatment::Harmless { values: &[] }, note, example }
}

/// A field without effect that accepts only certain strings. `example` is one of them, as JSON.
const fn one_of(
    field: &'static str,
    values: &'static [&'static str],
    example: &'static str,
    note: &'static str,
) -> FieldRow {
    FieldRow { field, value: "", does: Treatment::Harmless { values }, note, example }
}

/// A field that is refused except for some values; `note` is the remedy.
const fn refused(
    field: &'static str,
    unless: &'static [&'static str],
    example: &'static str,
    note: &'static str,
) -> FieldRow {
    FieldRow { field, value: "", does: Treatment::Refused { unless }, note, example }
}

impl FieldRow {
    /// The row of a single value.
    const fn of(self, value: &'static str) -> FieldRow {
        FieldRow { value, ..self }
    }
}

/// A group of rows.
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

/// A table's entry for a field.
#[derive(Debug, Clone, Copy, Default)]
struct FieldEntry {
    /// The row for values without a row of their own.
    row: Option<&'static FieldRow>,
    /// Whether there are rows for fields within it.
    has_inner: bool,
}

/// The fields of a body to log.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct FieldNotes {
    harmless: Vec<String>,
    unknown: Vec<String>,
}

/// The most fields of a kind in a log line.
const MOST_NAMED: usize = 24;

impl FieldTable {
    const fn new(path: &'static str, groups: &'static [&'static FieldGroup]) -> FieldTable {
        FieldTable { path, groups, index: OnceLock::new() }
    }

    /// The rows of all groups.
    pub fn rows(&self) -> impl Iterator<Item = &'static FieldRow> {
        self.groups.iter().flat_map(|group| group.rows)
    }

    /// Refuses fields by the table, and logs those without effect.
    ///
    /// Fields inside lists are refused by the readers of the lists, which know their positions.
    ///
    /// # Errors
    /// 400: a field is refused, or a harmless one has a value that is not accepted.
    pub fn check(&self, fields: &Fields<'_>) -> Result<(), ApiError> {
        let mut notes = log::log_enabled!(log::Level::Debug).then(FieldNotes::default);
        self.walk(fields, "", &mut notes)?;
        if let Some(line) = notes.as_ref().and_then(|notes| notes.line(self.path)) {
            log::debug!("{line}");
        }
        Ok(())
    }

    /// The fields of an accepted body to log.
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
                    // Some clients send an object whose fields have the accepted strings.
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

    /// Notes the fields without effect in a list's objects.
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
    /// Adds a field to one of the lists of `notes`, once, up to a maximum.
    fn add(notes: &mut Option<FieldNotes>, list: fn(&mut FieldNotes) -> &mut Vec<String>, path: &str) {
        let Some(notes) = notes else { return };
        let list = list(notes);
        let name = shown(&path.into());
        let name = name.trim_matches('"');
        if list.len() < MOST_NAMED && !list.iter().any(|known| known == name) {
            list.push(name.to_owned());
        }
    }

    /// The log line. `None`: there is nothing to log.
    pub fn line(&self, path: &str) -> Option<String> {
        let said = [("without effect here", &self.harmless), ("not known", &self.unknown)];
        let said = said.iter().filter(|(_, names)| !names.is_empty());
        let said: Vec<String> = said.map(|(what, names)| format!("{what}: {}", names.join(", "))).collect();
        (!said.is_empty()).then(|| format!("a request to {path} has fields {}", said.join("; ")))
    }
}
