//! Columns of byte counts in tables. A column has one unit, so that its numbers can be compared at a glance.

/// A formatter for a column of byte counts. Its unit is the largest in which only 0 is shown as 0.0.
pub(super) fn column(counts: impl IntoIterator<Item = u64>) -> impl Fn(u64) -> String {
    let least = counts.into_iter().filter(|&n| n > 0).min().unwrap_or(0);
    let (unit, name) = match least {
        0..100 => (1, "B"),
        100..100_000 => (1_000, "kB"),
        100_000..100_000_000 => (1_000_000, "MB"),
        _ => (1_000_000_000, "GB"),
    };
    move |n| match unit {
        1 => format!("{n} B"),
        _ => format!("{:.1} {name}", n as f64 / f64::from(unit)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_is_in_one_unit_and_hides_nothing() {
        let shown = |counts: &[u64]| counts.iter().map(|&n| column(counts.iter().copied())(n)).collect::<Vec<_>>();
        assert_eq!(shown(&[27_013_400_000, 5_200_000, 0]), ["27013.4 MB", "5.2 MB", "0.0 MB"]);
        assert_eq!(shown(&[27_000_000_000, 250_000_000]), ["27.0 GB", "0.2 GB"]);
        assert_eq!(shown(&[150, 1_000_000]), ["0.1 kB", "1000.0 kB"]);
        assert_eq!(shown(&[5, 1_000]), ["5 B", "1000 B"]);
        assert_eq!(shown(&[0]), ["0 B"]);
    }
}
