//! How numbers and text from elsewhere are written in messages and tables.

/// Bytes as a person reads them, in decimal units as bandwidths and file sizes are: `27.0 GB`.
pub fn bytes(n: u64) -> String {
    match n {
        0..1_000 => format!("{n} B"),
        1_000..1_000_000 => format!("{:.1} kB", n as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", n as f64 / 1e6),
        _ => format!("{:.1} GB", n as f64 / 1e9),
    }
}

/// A count and its noun, such as `1 token` or `2 tokens`.
pub(crate) fn counted(n: usize, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}

/// By how much a sum of bytes exceeds its limit, where the two read the same: `5.2 MB too much`.
pub(crate) fn excess(needed: u64, limit: u64) -> Option<String> {
    (needed > limit && bytes(needed) == bytes(limit)).then(|| format!("{} too much", bytes(needed - limit)))
}

/// Whether a terminal obeys a character instead of showing it: control characters, breaks of lines and paragraphs, and
/// what turns the direction of text, so that it reads as something else.
pub fn is_obeyed(c: char) -> bool {
    c.is_control() || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Text that a device or a file chose, on one line and without what a terminal obeys.
pub fn plain(text: &str) -> String {
    text.chars().map(|c| if is_obeyed(c) { ' ' } else { c }).collect()
}

/// The one of `names` that somebody may have meant by `name`, if any is like it.
#[cfg(any(feature = "pull", feature = "serve"))]
pub(crate) fn nearest<'n>(name: &str, names: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    let name = name.replace('_', "-").to_lowercase();
    let likeness = |other: &&str| strsim::jaro_winkler(other, &name);
    names.max_by(|a, b| likeness(a).total_cmp(&likeness(b))).filter(|nearest| likeness(nearest) > 0.7)
}

/// A name or value from a file as an error message quotes it: at most 160 characters.
pub(crate) fn quote(text: &str) -> String {
    const MAX: usize = 160;
    match text.char_indices().nth(MAX) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}
