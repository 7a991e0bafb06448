//! `docs/api.md`, generated from the tables.

use super::*;
use std::fmt::Write;

/// All tables, in the document's order.
pub(in crate::serve::api) fn tables() -> [&'static FieldTable; 10] {
    [&CHAT, &COMPLETIONS, &RESPONSES, &MESSAGES, &COUNT, &OLLAMA_CHAT, &OLLAMA_GENERATE, &SHOW, &TOKENIZE, &DETOKENIZE]
}

const HEAD: &str = "\
# Every field, and what becomes of it

`kiln serve` answers requests that were written for OpenAI, Anthropic, Ollama, llama.cpp's server, vLLM and LM Studio. This \
page has each field of theirs. It is made of the tables in [src/serve/api/table](../src/serve/api/table/mod.rs), by which \
the server reads requests; a test sends a request for each row.

- **done**: the field is read. A value of another kind or out of range gets 400 with the field's path in `param`.
- **harmless**: the field is advice. It is accepted and changes nothing, and the log names it at debug (`RUST_LOG=debug`).
- **refused**: the field would change the answer, and Kiln does not do that. The answer is 400 with the field's path in \
`param` and the remedy in its message. Values that change nothing are taken, as is `null` everywhere.

A field that asks for a form of the answer is never ignored: where another interface's word for it is given, the refusal \
names the right one. A field that no interface has is harmless, and the log names it at debug too. `[]` stands for each \
member of a list. [openapi.json](../src/serve/api/openapi.json) has the fields that are done, with their types and bounds, \
and the answers.

";

/// The paths that are answered and have no table.
const PATHS: &str = "\
## Paths

| path | what |
| --- | --- |
| `/v1/models`, `/v1/models/NAME`, `/api/tags`, `/api/ps`, `/api/version`, `/props`, `/slots` | done; a GET has no fields, but for `fail_on_no_slot` of `/slots` |
| `/v1/embeddings`, `/api/embed`, `/api/embeddings` | 501: the model makes text; ask a server that has loaded a model for embeddings |
";

/// The rows of a kind.
fn count<'r>(rows: impl Iterator<Item = &'r FieldRow>) -> [usize; 3] {
    rows.fold([0; 3], |mut counts, row| {
        counts[kind(row) as usize] += 1;
        counts
    })
}

#[derive(Clone, Copy)]
enum Kind {
    Done,
    Harmless,
    Refused,
}

fn kind(row: &FieldRow) -> Kind {
    match row.does {
        Treatment::Done { .. } => Kind::Done,
        Treatment::Harmless { .. } => Kind::Harmless,
        Treatment::Refused { .. } => Kind::Refused,
    }
}

/// The whole document.
pub(in crate::serve::api) fn page() -> String {
    let mut page = HEAD.to_owned();
    let mut groups: Vec<(&FieldGroup, Vec<&str>)> = Vec::new();
    for table in tables() {
        for group in table.groups {
            match groups.iter_mut().find(|(known, _)| known.title == group.title) {
                Some((_, paths)) => paths.push(table.path),
                None => groups.push((group, vec![table.path])),
            }
        }
    }
    page += "| path | done | harmless | refused |\n| --- | --- | --- | --- |\n";
    for table in tables() {
        let [done, harmless, refused] = count(table.rows());
        let _ = writeln!(page, "| `{}` | {done} | {harmless} | {refused} |", table.path);
    }
    let [done, harmless, refused] = count(groups.iter().flat_map(|(group, _)| group.rows));
    let _ = writeln!(page, "| rows of this page | {done} | {harmless} | {refused} |\n");
    page += PATHS;
    for absent in &ABSENT {
        let paths: Vec<String> = absent.paths.iter().map(|path| format!("`{path}`")).collect();
        let _ = writeln!(page, "| {} | 404: {} |", paths.join(", "), absent.remedy);
    }
    page += "\nWhat is between the slashes of a path counts, and not how many there are: `//v1/models/` is `/v1/models`.\n\n";
    for (group, paths) in groups {
        let paths: Vec<String> = paths.iter().map(|path| format!("`{path}`")).collect();
        let _ = writeln!(page, "## {}\n\n{}\n", group.title, paths.join(", "));
        page += "| field | values | treatment | |\n| --- | --- | --- | --- |\n";
        group.rows.iter().for_each(|row| page += &line(row));
        page += "\n";
    }
    page.truncate(page.trim_end().len());
    page + "\n"
}

fn line(row: &FieldRow) -> String {
    let quoted = |values: &[&str]| values.iter().map(|value| format!("`{value}`")).collect::<Vec<_>>().join(", ");
    let (values, treatment) = match row.does {
        _ if !row.value.is_empty() => (quoted(&[row.value]), ["done", "harmless", "refused"][kind(row) as usize]),
        Treatment::Done { .. } => (String::new(), "done"),
        Treatment::Harmless { values } => (quoted(values), "harmless"),
        Treatment::Refused { unless } => {
            let neutral: Vec<&str> = unless
                .iter()
                .map(|value| if value.is_empty() { "\"\"" } else { value })
                .filter(|v| *v != "null")
                .collect();
            (if neutral.is_empty() { String::new() } else { format!("but for {}", quoted(&neutral)) }, "refused")
        }
    };
    format!("| `{}` | {} | {treatment} | {} |\n", row.field, values.replace('|', "\\|"), row.note.replace('|', "\\|"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_of_todays_tables() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/api.md");
        if std::env::var_os("KILN_BLESS").is_some() {
            std::fs::write(&path, page()).unwrap();
        }
        let written = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            written == page(),
            "docs/api.md is not of today's tables: run `KILN_BLESS=1 cargo test --lib serve::api::table`"
        );
    }

    #[test]
    fn no_table_has_a_field_twice() {
        for table in tables() {
            let mut seen = std::collections::HashSet::new();
            for row in table.rows() {
                assert!(seen.insert((row.field, row.value)), "{}: {} {}", table.path, row.field, row.value);
            }
        }
    }
}
