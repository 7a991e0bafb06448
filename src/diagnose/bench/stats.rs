//! Statistics over repetitions.

/// A figure with the values of all its measurements.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// The values in the order in which they were measured.
    pub values: Vec<f64>,
}

impl Sample {
    /// A sample of repetitions, none of them NaN.
    pub fn new(values: impl IntoIterator<Item = f64>) -> Sample {
        Sample { values: values.into_iter().collect() }
    }

    /// The middle value, or the mean of the two middle values; NaN for an empty sample.
    pub fn median(&self) -> f64 {
        let mut sorted = self.values.clone();
        sorted.sort_by(f64::total_cmp);
        match (sorted.len(), sorted.len() / 2) {
            (0, _) => f64::NAN,
            (n, half) if n % 2 == 0 => (sorted[half - 1] + sorted[half]) / 2.0,
            (_, half) => sorted[half],
        }
    }

    /// The smallest value; infinite for an empty sample.
    pub fn min(&self) -> f64 {
        self.values.iter().copied().fold(f64::INFINITY, f64::min)
    }

    /// The largest value; infinite for an empty sample.
    pub fn max(&self) -> f64 {
        self.values.iter().copied().fold(f64::NEG_INFINITY, f64::max)
    }

    /// Largest minus smallest value, as a share of the median; 0 for a single value.
    pub fn spread(&self) -> f64 {
        (self.max() - self.min()) / self.median()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_does_not_follow_an_outlier_and_the_spread_shows_it() {
        let s = Sample::new([10.0, 9.0, 100.0, 11.0, 10.5]);
        assert_eq!(s.median(), 10.5);
        assert_eq!((s.min(), s.max()), (9.0, 100.0));
        assert_eq!(s.spread(), 91.0 / 10.5);
    }

    #[test]
    fn an_even_count_has_two_in_the_middle_and_one_has_no_spread() {
        assert_eq!(Sample::new([4.0, 1.0, 2.0, 8.0]).median(), 3.0);
        let one = Sample::new([7.0]);
        assert_eq!((one.median(), one.spread()), (7.0, 0.0));
        assert!(Sample::new([]).median().is_nan());
    }
}
