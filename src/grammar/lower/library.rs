//! Formats and patterns of schema libraries (Zod, pydantic, OpenAPI generators), translated to patterns that llguidance
//! compiles.

/// Formats that do not restrict the characters of a text, such as hints for input fields.
const NOTES: [&str; 5] = ["binary", "directory-path", "file-path", "password", "path"];

/// The formats that JSON Schema defines. Others are a library's own.
const STANDARD: [&str; 19] = [
    "date",
    "date-time",
    "duration",
    "email",
    "hostname",
    "idn-email",
    "idn-hostname",
    "ipv4",
    "ipv6",
    "iri",
    "iri-reference",
    "json-pointer",
    "regex",
    "relative-json-pointer",
    "time",
    "uri",
    "uri-reference",
    "uri-template",
    "uuid",
];

const BASE64: &str = "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$";

/// The formats that are enforced by a regular expression: name and expression.
const FORMATS: [(&str, &str); 4] = [
    ("base64", BASE64),
    ("base64url", "^(?:[A-Za-z0-9_-]{4})*(?:[A-Za-z0-9_-]{2}(?:==)?|[A-Za-z0-9_-]{3}=?)?$"),
    ("byte", BASE64),
    ("json-pointer", "^(?:/(?:[^/~]|~[01])*)*$"),
];

/// Patterns with look-around, each with an equivalent without.
const PATTERNS: [(&str, &str); 3] = [
    // Zod's email address, in versions 4 and 3.
    (r"^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$", ADDRESS),
    (r"^(?!\.)(?!.*\.\.)([a-zA-Z0-9_'+\-\.]*)[a-zA-Z0-9_+-]@([a-zA-Z0-9][a-zA-Z0-9\-]*\.)+[a-zA-Z]{2,}$", ADDRESS),
    // Zod's duration.
    (
        r"^P(?:(\d+W)|(?!.*W)(?=\d|T\d)(\d+Y)?(\d+M)?(\d+D)?(T(?=\d)(\d+H)?(\d+M)?(\d+([.,]\d+)?S)?)?)$",
        r"^P(?:\d+W|(?:\d+Y(?:\d+M)?(?:\d+D)?|\d+M(?:\d+D)?|\d+D)(?:T(?:\d+H(?:\d+M)?(?:\d+(?:[.,]\d+)?S)?|\d+M(?:\d+(?:[.,]\d+)?S)?|\d+(?:[.,]\d+)?S))?|T(?:\d+H(?:\d+M)?(?:\d+(?:[.,]\d+)?S)?|\d+M(?:\d+(?:[.,]\d+)?S)?|\d+(?:[.,]\d+)?S))$",
    ),
];

const ADDRESS: &str =
    "^(?:[A-Za-z0-9_'+-]+\\.)*[A-Za-z0-9_'+-]*[A-Za-z0-9_+-]@(?:[A-Za-z0-9][A-Za-z0-9-]*\\.)+[A-Za-z]{2,}$";

/// The beginning of pydantic's pattern for a decimal number.
const DECIMAL: &str = r"^(?!^[-+.]*$)[+-]?0*";

/// The largest `max_digits` without `decimal_places` that is translated; each digit adds two alternatives.
const MOST_DIGITS: usize = 40;

/// True for a format that restricts no document, and is only an annotation.
pub(super) fn is_note(format: &str) -> bool {
    NOTES.contains(&format)
}

/// True for a format that is outside the standard: the library that wrote it repeats its rule in `pattern`.
pub(super) fn names_its_pattern(format: &str) -> bool {
    !STANDARD.contains(&format)
}

/// The regular expression that texts of a format match. `None` if the format is unknown.
pub(super) fn pattern_of(format: &str) -> Option<String> {
    if let Some((_, pattern)) = FORMATS.iter().find(|(name, _)| *name == format) {
        return Some((*pattern).to_owned());
    }
    // pydantic has a format for each version of UUIDs.
    let version = format.strip_prefix("uuid").filter(|version| matches!(version.as_bytes(), [b'1'..=b'8']))?;
    Some(format!("^[0-9a-f]{{8}}-[0-9a-f]{{4}}-{version}[0-9a-f]{{3}}-[89ab][0-9a-f]{{3}}-[0-9a-f]{{12}}$"))
}

/// A pattern of a library without its look-around. Every text that it matches is matched by the original.
pub(super) fn without_look_around(pattern: &str) -> Option<String> {
    let known = PATTERNS.iter().find(|(written, _)| *written == pattern);
    known.map(|(_, plain)| (*plain).to_owned()).or_else(|| decimal(pattern))
}

/// pydantic's pattern for a decimal number. Its look-around excludes texts without a digit, and counts the digits on
/// both sides of the point.
fn decimal(pattern: &str) -> Option<String> {
    let rest = pattern.strip_prefix(DECIMAL)?;
    let counts: Vec<usize> = rest.split(',').skip(1).filter_map(|part| part.split('}').next()?.parse().ok()).collect();
    let mut shape = String::new();
    for (i, part) in rest.split(',').enumerate() {
        let tail = part.trim_start_matches(|c: char| c.is_ascii_digit());
        shape.push_str(&if i == 0 { part.to_owned() } else { format!(",#{tail}") });
    }
    // Leading and trailing zeros are not counted. There is at least one digit.
    let before = |most: usize| if most == 0 { "0+".to_owned() } else { format!(r"0*\d{{1,{most}}}") };
    let alone = |most: usize| if most == 0 { "0+".to_owned() } else { format!(r"\d{{1,{most}}}0*") };
    let number = |before: &str, behind: &str, alone: &str| format!(r"{before}(?:\.{behind})?|0*\.{alone}");
    let numbers = match (shape.as_str(), counts.as_slice()) {
        (r"\d*\.?\d*$", []) => number(r"\d+", r"\d*", r"\d+"),
        (r"\d*\.?\d{0,#}0*$", &[places]) => number(r"\d+", &format!(r"\d{{0,{places}}}0*"), &alone(places)),
        (r"(?:\d{0,#}|(?=[\d.]{1,#}0*$)\d{0,#}\.\d{0,#}0*$)", &[whole, all, _, places]) if whole + places < all => {
            number(&before(whole), &format!(r"\d{{0,{places}}}0*"), &alone(places))
        }
        (r"(?:\d{0,#}|(?=[\d.]{1,#}0*$)\d*\.\d*0*$)", &[most, _]) if most <= MOST_DIGITS => {
            let split = |whole: usize| number(&before(whole), &format!(r"\d{{0,{}}}0*", most - whole), &alone(most));
            (1..=most).map(split).collect::<Vec<_>>().join("|")
        }
        _ => return None,
    };
    Some(format!("^[+-]?(?:{numbers})$"))
}
