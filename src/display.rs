//! Formats numbers, and text from files and devices, for messages and tables.

/// Bytes in decimal units, as bandwidths and file sizes are given: `27.0 GB`.
pub fn bytes(n: u64) -> String {
    match n {
        0..1_000 => format!("{n} B"),
        1_000..1_000_000 => format!("{:.1} kB", n as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", n as f64 / 1e6),
        _ => format!("{:.1} GB", n as f64 / 1e9),
    }
}

/// A rate in bytes a second, such as `1.2 GB/s`. `None` if the time is too short to be measured.
pub(crate) fn byte_rate(n: u64, seconds: f64) -> Option<String> {
    /// The shortest time in seconds with a meaningful rate: below it, the start dominates.
    const LEAST: f64 = 1e-3;
    (seconds >= LEAST).then(|| format!("{}/s", bytes((n as f64 / seconds) as u64)))
}

/// A time with its significant digits.
pub(crate) fn duration(seconds: f64) -> String {
    match seconds {
        0.0..0.1 => format!("{:.1} ms", 1e3 * seconds),
        0.1..1.0 => format!("{seconds:.2} s"),
        1.0..20.0 => format!("{seconds:.1} s"),
        _ => format!("{seconds:.0} s"),
    }
}

/// The time of a transfer, and its rate if that can be measured: `2.5 s (10.8 GB/s)`.
pub(crate) fn time_of(n: u64, seconds: f64) -> String {
    let rate = byte_rate(n, seconds).map_or(String::new(), |rate| format!(" ({rate})"));
    format!("{}{rate}", duration(seconds))
}

/// The size of a transfer and its [`time_of`]: `27.0 GB in 2.5 s (10.8 GB/s)`.
#[cfg(feature = "cli")]
pub(crate) fn moved(n: u64, seconds: f64) -> String {
    format!("{} in {}", bytes(n), time_of(n, seconds))
}

/// A count and its noun, such as `1 token` or `2 tokens`.
pub(crate) fn counted(n: usize, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}

/// The difference of a sum of bytes and its limit, if the two are formatted alike: `5.2 MB too much`.
pub(crate) fn excess(needed: u64, limit: u64) -> Option<String> {
    (needed > limit && bytes(needed) == bytes(limit)).then(|| format!("{} too much", bytes(needed - limit)))
}

/// Whether a terminal interprets a character instead of showing it: control characters, breaks of lines and paragraphs,
/// and characters that reverse the direction of text and so disguise it.
pub fn is_obeyed(c: char) -> bool {
    c.is_control() || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Text from a device or a file on one line, without the characters that a terminal interprets.
pub fn plain(text: &str) -> String {
    text.chars().map(|c| if is_obeyed(c) { ' ' } else { c }).collect()
}

/// The entry of `names` most similar to `name`, if any is similar.
#[cfg(any(feature = "cli", feature = "serve"))]
pub(crate) fn nearest<'n>(name: &str, names: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    let name = name.replace('_', "-").to_lowercase();
    let likeness = |other: &&str| strsim::jaro_winkler(other, &name);
    names.max_by(|a, b| likeness(a).total_cmp(&likeness(b))).filter(|nearest| likeness(nearest) > 0.7)
}

/// A name or value from a file for an error message: at most 160 characters.
pub(crate) fn quote(text: &str) -> String {
    const MAX: usize = 160;
    match text.char_indices().nth(MAX) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: a model of a few megabytes was loaded `in 0.00 s (0.53 GB/s)`.
    #[cfg(feature = "cli")]
    #[test]
    fn times_and_rates_of_any_size_say_something() {
        for (n, seconds, said) in [
            (27_000_000_000, 2.5, "27.0 GB in 2.5 s (10.8 GB/s)"),
            (253_000_000, 0.31, "253.0 MB in 0.31 s (816.1 MB/s)"),
            (5_100_000, 0.0042, "5.1 MB in 4.2 ms (1.2 GB/s)"),
            (120, 0.5, "120 B in 0.50 s (240 B/s)"),
            (1_000, 0.0, "1.0 kB in 0.0 ms"),
            (1_000, 0.0004, "1.0 kB in 0.4 ms"),
            (60_000_000_000, 61.2, "60.0 GB in 61 s (980.4 MB/s)"),
        ] {
            assert_eq!(moved(n, seconds), said);
        }
    }
}
