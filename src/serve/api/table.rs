//! The table of all fields of the published interfaces, with their treatment here: `docs/api.md`, compiled in.
//!
//! A field is done, advice, harmless or refused. A done field is read by its path's reader. Advice is read too, and a
//! model that cannot follow it answers without. A harmless field is accepted without effect, and the log names it at
//! debug. A refused one would change the answer, and its refusal has the remedy. Fields that promise a form of the
//! answer are never harmless. Fields unknown to all interfaces are harmless.
//!
//! Each body is checked by the rows of its path ([`FieldTable::check`]), and the tests send a request for each row.

use super::fields::{Fields, is_same, shown};
use crate::serve::http::ApiError;
use serde_json::Value;
use std::collections::HashMap;
use std::sync::LazyLock;

const PAGE: &str = include_str!("../../../docs/api.md");

/// A field, or one value of it, and its treatment.
#[derive(Debug)]
pub(super) struct FieldRow {
    /// The field's path: names joined by dots, with `[]` after the name of a list.
    pub field: &'static str,
    /// The value that the row describes. Empty: all values without a row of their own.
    pub value: &'static str,
    pub does: Treatment,
    /// Values that are accepted: examples, or all of them as [`Treatment`] says.
    pub taken: Vec<&'static str>,
    /// An example of a value that is refused with the field's name.
    #[cfg_attr(not(test), expect(dead_code, reason = "the tests send it"))]
    pub wrong: Option<&'static str>,
    /// The field's meaning, the reason why it is harmless, or the remedy of its refusal.
    pub note: &'static str,
}

/// The effect of a request's field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Treatment {
    /// The field is read and has its documented effect.
    Done,
    /// Read where the model can follow it. `taken` has all strings that are accepted.
    Advice,
    /// The field has no effect, whatever its value.
    Harmless,
    /// Without effect. `taken` has all strings that are accepted.
    OneOf,
    /// Refused, except for the JSON values of `taken`, which change nothing.
    Refused,
}

/// A section of the page: rows that some paths share.
struct FieldGroup {
    paths: Vec<&'static str>,
    rows: Vec<FieldRow>,
}

static GROUPS: LazyLock<Vec<FieldGroup>> = LazyLock::new(|| {
    let group = |section: &'static str| FieldGroup {
        paths: section.lines().find(|line| line.starts_with("`/")).map(quoted).into_iter().flatten().collect(),
        rows: section.lines().filter_map(FieldRow::parse).collect(),
    };
    PAGE.split("\n## ").skip(1).map(group).collect()
});

/// The words of `text` that are in backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

impl FieldRow {
    fn parse(line: &'static str) -> Option<FieldRow> {
        let mut cells = line.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ");
        let mut cell = || cells.next();
        let (mut field, taken, wrong, treatment, note) = (quoted(cell()?), cell()?, cell()?, cell()?, cell()?);
        let does = match treatment {
            "done" => Treatment::Done,
            "advice" => Treatment::Advice,
            "harmless" if taken.starts_with("one of ") => Treatment::OneOf,
            "harmless" => Treatment::Harmless,
            "refused" => Treatment::Refused,
            _ => return None,
        };
        let (taken, wrong) = (quoted(taken).collect(), quoted(wrong).next());
        Some(FieldRow { field: field.next()?, value: field.next().unwrap_or_default(), does, taken, wrong, note })
    }
}

/// The remedy for a path of the published interfaces that is not implemented. The page lists such paths, each with all
/// paths below it; a final `/ID` stands for any segment.
pub(super) fn absent(path: &str) -> Option<&'static str> {
    let is_it = |absent: &str| {
        let (start, needs_more) = absent.strip_suffix("/ID").map_or((absent, false), |start| (start, true));
        match path.strip_prefix(start) {
            Some("") => !needs_more,
            Some(rest) => rest.starts_with('/'),
            None => false,
        }
    };
    let rows = PAGE.lines().filter_map(|line| line.strip_suffix(" |")?.split_once(" | 404: "));
    rows.into_iter().find(|(paths, _)| quoted(paths).any(is_it)).map(|(_, remedy)| remedy)
}

/// The documented fields of the bodies sent to a path.
#[derive(Debug)]
pub(super) struct FieldTable {
    pub path: &'static str,
    index: HashMap<&'static str, FieldEntry>,
}

/// A table's entry for a field.
#[derive(Debug, Clone, Copy, Default)]
struct FieldEntry {
    /// The row for values without a row of their own.
    row: Option<&'static FieldRow>,
    /// True if the table also has rows for fields within this one.
    has_inner: bool,
}

/// The fields of a request's body that are logged, because they have no effect.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct FieldNotes {
    harmless: Vec<String>,
    unknown: Vec<String>,
}

/// The most fields of a kind in a log line.
const MOST_NAMED: usize = 24;

/// The tables of all paths that have one.
pub(super) static TABLES: LazyLock<Vec<FieldTable>> = LazyLock::new(|| {
    let mut paths: Vec<&str> = Vec::new();
    for path in GROUPS.iter().flat_map(|group| &group.paths) {
        if !paths.contains(path) {
            paths.push(path);
        }
    }
    paths.into_iter().map(FieldTable::new).collect()
});

/// The table of a path's fields.
pub(super) fn of(path: &str) -> Option<&'static FieldTable> {
    TABLES.iter().find(|table| table.path == path)
}

impl FieldTable {
    fn new(path: &'static str) -> FieldTable {
        let mut table = FieldTable { path, index: HashMap::new() };
        for row in table.rows() {
            let outer = row.field.match_indices('.').map(|(dot, _)| &row.field[..dot]);
            outer.for_each(|path| table.index.entry(path).or_default().has_inner = true);
            let entry = table.index.entry(row.field).or_default();
            if row.value.is_empty() {
                entry.row = Some(row);
            }
        }
        table
    }

    /// The rows of all groups of fields that the path has.
    pub fn rows(&self) -> impl Iterator<Item = &'static FieldRow> + use<> {
        let path = self.path;
        GROUPS.iter().filter(move |group| group.paths.contains(&path)).flat_map(|group| &group.rows)
    }

    /// Refuses fields by the table, and logs those without effect.
    ///
    /// Fields inside lists are refused by the readers of the lists, which know their positions.
    ///
    /// # Errors
    /// 400: a field is refused, or advice or a harmless field has a value that is not accepted.
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
        let is_listed = at.ends_with(']') || at.contains("].");
        // The log names fields of lists whatever their values.
        for (name, value) in fields.entries().filter(|(_, value)| is_listed || !value.is_null()) {
            let long;
            let path = if at.is_empty() {
                name
            } else {
                long = format!("{at}.{name}");
                &long
            };
            let Some(entry) = self.index.get(path) else {
                FieldNotes::add(notes, |notes| &mut notes.unknown, path);
                continue;
            };
            if let Some(FieldRow { does, taken, note, .. }) = entry.row {
                let is_known = || value.as_str().is_some_and(|word| taken.contains(&word));
                // Some clients send an object whose fields have the accepted strings.
                let has_words = || value.is_object() && entry.has_inner;
                match does {
                    Treatment::OneOf | Treatment::Advice if !is_listed && !has_words() && !is_known() => {
                        let what = format!("is {}, and has to be one of {}", shown(value), taken.join(", "));
                        return Err(fields.wrong(name, what));
                    }
                    Treatment::Refused if !is_listed && !taken.iter().any(|neutral| is_same(value, neutral)) => {
                        return Err(fields.unserved(name, note));
                    }
                    Treatment::Harmless | Treatment::OneOf => {
                        FieldNotes::add(notes, |notes| &mut notes.harmless, path);
                    }
                    Treatment::Done | Treatment::Advice | Treatment::Refused => {}
                }
            }
            let has_inner = |path: &str| self.index.get(path).is_some_and(|entry| entry.has_inner);
            let list = format!("{path}[]");
            match value {
                Value::Object(_) if entry.has_inner => {
                    self.walk(&Fields::of(value, fields.path(name))?, path, notes)?;
                }
                Value::Array(members) if notes.is_some() && has_inner(&list) => {
                    for member in members.iter().filter(|member| member.is_object()) {
                        self.walk(&Fields::of(member, list.clone())?, &list, notes)?;
                    }
                }
                _ => {}
            }
        }
        Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_pages_tables_is_a_row() {
        let lines = PAGE.lines().filter(|line| line.starts_with("| `") && !line.starts_with("| `/"));
        assert_eq!(GROUPS.iter().map(|group| group.rows.len()).sum::<usize>(), lines.count());
        let without_rows = GROUPS.iter().filter(|group| group.paths.is_empty() || group.rows.is_empty());
        assert_eq!(without_rows.count(), 1, "the paths' section alone has no rows");
        for row in GROUPS.iter().flat_map(|group| &group.rows) {
            let has_example = match row.does {
                Treatment::Done | Treatment::Harmless => row.taken.len() == 1,
                Treatment::OneOf | Treatment::Advice => row.taken.len() > 1,
                Treatment::Refused => row.wrong.is_some(),
            };
            assert!(has_example && !row.note.is_empty() && !row.note.contains('|'), "{row:?}");
        }
    }

    #[test]
    fn no_table_has_a_field_twice() {
        for table in TABLES.iter() {
            let mut seen = std::collections::HashSet::new();
            for row in table.rows() {
                assert!(seen.insert((row.field, row.value)), "{}: {} {}", table.path, row.field, row.value);
            }
        }
    }

    #[test]
    fn absent_paths_are_those_of_the_page_and_all_below_them() {
        for (path, remedy) in [
            ("/v1/files", Some("nothing is stored")),
            ("/v1/files/f/content", Some("nothing is stored")),
            ("/v1/responses/r", Some("nothing is stored")),
            ("/api/pull", Some("the server has the model")),
            ("/v1/responses", None),
            ("/v1/filesystem", None),
        ] {
            let found = absent(path);
            assert_eq!(found.map(|found| found.starts_with(remedy.unwrap_or("?"))), remedy.map(|_| true), "{path}");
        }
    }
}
