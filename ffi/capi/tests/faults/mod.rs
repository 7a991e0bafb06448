//! Every function of kiln.h with each of its arguments wrong, as a C source that is made from the header: a new
//! function is called like the others, and a type without wrong values in this list fails the test.

use std::fmt::Write;

/// The values of an argument.
struct Values {
    /// The value while another argument is the wrong one.
    right: String,
    /// Each wrong value, with a word of the error's cause. No word: the code alone counts.
    wrong: Vec<(String, String)>,
}

/// Arguments of all functions, or of the one named, that may be NULL.
const MAY_BE_NULL: [(&str, &str); 9] = [
    ("", "length"),
    ("kiln_ask", "answer"),
    ("kiln_engine_open", "options"),
    ("kiln_plan_json", "options"),
    ("kiln_serve_start", "options"),
    ("kiln_serve_start", "places"),
    ("kiln_session_sync", "synced"),
    ("kiln_session_load", "tokens"),
    ("kiln_session_load", "count"),
];
/// As [`MAY_BE_NULL`]: no answer is wanted.
const NO_ANSWER: (&str, &str) = ("kiln_generate", "result");
/// A text that may be any bytes.
const ANY_BYTES: (&str, &str) = ("kiln_request", "body");
/// Functions without an argument that can be wrong.
const HARMLESS: [&str; 3] = ["kiln_abi_version", "kiln_free", "kiln_set_log"];

/// The header without its comments.
fn without_comments(header: &str) -> String {
    let mut parts = header.split("/*");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |kept, part| kept + part.split_once("*/").map_or("", |(_, behind)| behind))
}

/// `const char *data` as its type and its name.
fn split_name(declared: &str) -> (String, String) {
    let words = declared.split_whitespace().collect::<Vec<_>>().join(" ");
    let at = words.rfind(|c: char| !c.is_ascii_alphanumeric() && c != '_').map_or(0, |at| at + 1);
    (words[..at].trim().to_owned(), words[at..].to_owned())
}

/// The functions that a header declares: name and arguments, each a type and a name.
fn functions(header: &str) -> Vec<(String, Vec<(String, String)>)> {
    let (_, declared) = header.split_once("extern \"C\" {").unwrap();
    let declared = declared.split_once("#ifdef").unwrap().0;
    let function = |text: &str| {
        let (name, arguments) = text.rsplit_once(')')?.0.split_once('(')?;
        let arguments = arguments.split(',').filter(|argument| argument.trim() != "void").map(split_name);
        Some((split_name(name).1, arguments.collect()))
    };
    let declared: Vec<&str> = declared.split(';').filter(|text| text.contains("kiln_")).collect();
    let all: Vec<_> = declared.iter().filter_map(|text| function(text)).collect();
    assert_eq!(all.len(), declared.len());
    all
}

/// The names of a structure's texts.
fn texts_of(header: &str, structure: &str) -> Vec<String> {
    let (_, fields) = header.split_once(&format!("typedef {structure} {{")).unwrap();
    let fields = fields.split_once('}').unwrap().0.split(';').map(split_name);
    fields.filter(|(of, _)| of == "struct kiln_text").map(|(_, name)| name).collect()
}

/// Wrong values of a text named `name`: NULL, no UTF-8, longer than memory.
fn wrong_texts(name: &str, is_text: bool) -> Vec<(String, String)> {
    let mut all = vec![("{NULL, 1}", "is NULL"), ("{\"a\", SIZE_MAX}", "is longer than memory")];
    all.extend(is_text.then_some(("{\"\\xff\", 1}", "is not UTF-8")));
    all.into_iter().map(|(value, word)| (format!("(struct kiln_text){value}"), format!("{name} {word}"))).collect()
}

fn wrong_options(header: &str, structure: &str) -> Vec<(String, String)> {
    let of_size = |size: &str, word: &str| (format!("&({structure}){{.size = {size}}}"), word.to_owned());
    let mut all = vec![of_size("3", "3 bytes"), of_size("SIZE_MAX", "bytes")];
    let newer = format!("({structure}[]){{{{.size = 2 * sizeof({structure})}}, {{.size = 1}}}}");
    all.push((newer, "newer libkiln".into()));
    for name in texts_of(header, structure) {
        for (value, word) in wrong_texts(&name, true) {
            all.push((format!("&({structure}){{.size = sizeof({structure}), .{name} = {value}}}"), word));
        }
    }
    all
}

fn values(header: &str, function: &str, of: &str, name: &str) -> Values {
    let of_all = |right: &str, wrong: &[(&str, &str)]| Values {
        right: right.to_owned(),
        wrong: wrong.iter().map(|&(value, word)| (value.to_owned(), word.to_owned())).collect(),
    };
    let place =
        || Values { right: format!("&({}){{0}}", of.strip_suffix('*').unwrap_or(of).trim_end()), wrong: Vec::new() };
    let may_be_null =
        MAY_BE_NULL.into_iter().chain([NO_ANSWER]).any(|(f, n)| n == name && (f.is_empty() || f == function));
    match of {
        "struct kiln_engine *" | "struct kiln_session *" | "struct kiln_server *" => {
            let kind = of.trim_start_matches("struct kiln_").trim_end_matches(" *");
            let others = ["engine", "session", "server"].into_iter().filter(|other| *other != kind);
            let mut wrong = vec![("NULL".to_owned(), format!("the {kind} is NULL"))];
            let numbers = ["(void *)999", "(void *)-1", "(void *)&heard"].map(str::to_owned);
            let others = others.map(|other| format!("(void *){other}"));
            let given_back = numbers.into_iter().chain(others).chain([format!("freed_{kind}")]);
            wrong.extend(given_back.map(|value| (value, format!("the {kind} was given back"))));
            Values { right: kind.to_owned(), wrong }
        }
        "struct kiln_text" => {
            let right = match name {
                "method" => "TEXT(\"GET\")",
                "messages" => "TEXT(\"[{\\\"role\\\":\\\"user\\\",\\\"content\\\":\\\"a\\\"}]\")",
                _ => "TEXT(\"/nowhere/at/all\")",
            };
            Values { right: right.to_owned(), wrong: wrong_texts(name, (function, name) != ANY_BYTES) }
        }
        "const struct kiln_engine_options *"
        | "const struct kiln_plan_options *"
        | "const struct kiln_serve_options *" => {
            let structure = of.trim_start_matches("const ").trim_end_matches(" *");
            assert!(may_be_null, "{function}: {name} may not be NULL, and that is not tried");
            Values {
                right: format!("&({structure}){{.size = sizeof({structure})}}"),
                wrong: wrong_options(header, structure),
            }
        }
        "struct kiln_synced *" => {
            assert!(may_be_null, "{function}: {name} may not be NULL, and that is not tried");
            of_all("NULL", &[("&(struct kiln_synced){.size = 8}", "8 bytes")])
        }
        // The error that it gives is of the call before.
        "struct kiln_error *" => of_all("NULL", &[("NULL", ""), ("&(struct kiln_error){.size = 8}", "")]),
        "const uint32_t *" => of_all("(uint32_t[]){2}", &[("NULL", "tokens is NULL")]),
        "size_t" => of_all("1", &[("SIZE_MAX", "longer than memory")]),
        "char **"
        | "uint32_t **"
        | "size_t *"
        | "uint16_t *"
        | "struct kiln_engine **"
        | "struct kiln_session **"
        | "struct kiln_server **" => match may_be_null {
            true => place(),
            false => Values { wrong: vec![("NULL".into(), "is NULL".into())], ..place() },
        },
        "bool" | "uint32_t" => of_all("0", &[]),
        "void *" | "kiln_text_function" | "kiln_log_function" => of_all("NULL", &[]),
        other => panic!("{function}: write down what is wrong as {other}, the type of {name}"),
    }
}

/// The source: a function `faults` of an open engine, and of one that was closed.
pub fn source(header: &str) -> String {
    let header = &without_comments(header);
    let functions = functions(header);
    for (function, name) in MAY_BE_NULL.into_iter().chain([NO_ANSWER, ANY_BYTES]) {
        let mut named = functions.iter().filter(|(f, _)| function.is_empty() || f == function);
        assert!(named.any(|(_, arguments)| arguments.iter().any(|(_, n)| n == name)), "{function} has no {name}");
    }
    let mut calls = String::new();
    for (function, arguments) in &functions {
        let all: Vec<Values> = arguments.iter().map(|(of, name)| values(header, function, of, name)).collect();
        let mut count = 0;
        for (at, values) in all.iter().enumerate() {
            for (value, word) in &values.wrong {
                let given: Vec<&str> = all
                    .iter()
                    .enumerate()
                    .map(|(i, other)| if i == at { value } else { &other.right }.as_str())
                    .collect();
                // Writing to a String cannot fail.
                let _ = writeln!(calls, "    refused({function}({}), KILN_INPUT, \"{word}\");", given.join(", "));
                count += 1;
            }
        }
        assert_eq!(count == 0, HARMLESS.contains(&function.as_str()), "{function}: {count} wrong arguments");
    }
    format!(
        "static void faults(struct kiln_engine *engine, struct kiln_engine *freed_engine) {{
    struct heard heard;
    struct kiln_session *session, *freed_session;
    struct kiln_server *server, *freed_server;
    struct kiln_serve_options options = {{.size = sizeof options, .listen = TEXT(\"127.0.0.1:0\")}};
    REQUIRE(kiln_session_new(engine, &session) == KILN_OK && kiln_session_new(engine, &freed_session) == KILN_OK);
    REQUIRE(kiln_serve_start(engine, &options, &server, NULL, NULL) == KILN_OK);
    REQUIRE(kiln_serve_start(engine, &options, &freed_server, NULL, NULL) == KILN_OK);
    REQUIRE(kiln_session_free(freed_session) == KILN_OK && kiln_serve_stop(freed_server, 0) == KILN_OK);
{calls}    REQUIRE(kiln_session_free(session) == KILN_OK && kiln_serve_stop(server, 0) == KILN_OK);
    puts(\"faults\");
}}
"
    )
}
