//! The roofline. A rate above the device's measured ceilings is an error and never a result.

use crate::schedule::Cost;
use crate::{Error, Result};

/// The ceilings of a device, measured in the same run as the work.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ceilings {
    /// Bytes per second of reading the model's own weight buffers. For a model that fits a cache this is the cache's
    /// rate.
    pub read: f64,
    /// Multiplications and additions per second of the matrix units. `None` without matrix units.
    pub matrix: Option<f64>,
}

/// Rates of some work, and their shares of the ceilings.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MeasuredRates {
    /// Bytes of weights and of the KV cache that were read per second.
    pub bytes: f64,
    /// The rate of reading as a share of the read ceiling.
    pub read_share: f64,
    /// The number of multiplications and additions per second.
    pub operations: f64,
    /// Share of the matrix ceiling. `None` without that ceiling.
    pub matrix_share: Option<f64>,
}

impl Ceilings {
    /// The rates of work that took `seconds`.
    pub fn rates(&self, cost: Cost, seconds: f64) -> MeasuredRates {
        let (bytes, operations) = (cost.memory_bytes() as f64 / seconds, cost.operations as f64 / seconds);
        MeasuredRates {
            bytes,
            read_share: bytes / self.read,
            operations,
            matrix_share: self.matrix.map(|ceiling| operations / ceiling),
        }
    }

    /// As [`Ceilings::rates`], and checks the result. `what` names the work in errors.
    ///
    /// # Errors
    /// Failed: a rate is above its ceiling or is not finite, so the measurement is wrong.
    pub fn judge(&self, what: &str, cost: Cost, seconds: f64) -> Result<MeasuredRates> {
        let r = self.rates(cost, seconds);
        let wrong = |cause: String| {
            let remedy = "run it again on an otherwise idle machine, and report it if that does not help";
            Err(Error::failed(format!("the measurement is wrong: {what} {cause}"), remedy))
        };
        if !(seconds > 0.0 && r.bytes.is_finite() && r.read_share.is_finite()) {
            return wrong(format!("took {seconds} s, beside a read ceiling of {:.3} GB/s", self.read / 1e9));
        }
        if r.read_share > 1.0 {
            let (rate, ceiling) = (r.bytes / 1e9, self.read / 1e9);
            return wrong(format!(
                "read {rate:.3} GB/s, above the {ceiling:.3} GB/s at which this device reads the same buffers"
            ));
        }
        match (r.matrix_share, self.matrix) {
            (Some(share), Some(ceiling)) if share > 1.0 => {
                let (rate, ceiling) = (r.operations / 1e12, ceiling / 1e12);
                wrong(format!("computed {rate:.3} TFLOP/s, above the {ceiling:.3} TFLOP/s of the matrix units"))
            }
            _ => Ok(r),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CEILINGS: Ceilings = Ceilings { read: 100e9, matrix: Some(1e12) };

    fn cost(weight_bytes: u64, kv_bytes: u64, operations: u64) -> Cost {
        // Activations stay in caches and must not raise a share.
        Cost { weight_bytes, kv_bytes, operations, activation_bytes: u64::MAX / 2 }
    }

    #[test]
    fn a_rate_below_its_ceilings_has_shares() {
        let r = CEILINGS.judge("decode", cost(40_000_000_000, 10_000_000_000, 250_000_000_000), 1.0).unwrap();
        assert_eq!((r.bytes, r.read_share), (50e9, 0.5));
        assert_eq!((r.operations, r.matrix_share), (250e9, Some(0.25)));
    }

    #[test]
    fn a_rate_above_the_read_ceiling_is_an_error_that_says_so() {
        let e = CEILINGS.judge("decode at depth 7", cost(60_000_000_000, 41_000_000_000, 0), 1.0).unwrap_err();
        assert_eq!(e.exit_code(), 1);
        let text = e.to_string();
        for word in ["measurement is wrong", "decode at depth 7", "101.000 GB/s", "100.000 GB/s"] {
            assert!(text.contains(word), "no `{word}` in: {text}");
        }
        // The same work in the time allowed by the ceiling is not an error.
        assert!(CEILINGS.judge("decode", cost(60_000_000_000, 41_000_000_000, 0), 1.01).is_ok());
    }

    #[test]
    fn a_rate_above_the_matrix_ceiling_is_an_error_where_there_is_one() {
        let work = cost(1, 0, 2_000_000_000_000);
        let e = CEILINGS.judge("prefill", work, 1.0).unwrap_err();
        assert!(e.to_string().contains("matrix units"), "{e}");
        let r = Ceilings { matrix: None, ..CEILINGS }.judge("prefill", work, 1.0).unwrap();
        assert_eq!(r.matrix_share, None);
    }

    #[test]
    fn no_time_at_all_is_no_rate() {
        assert!(CEILINGS.judge("decode", cost(1, 1, 1), 0.0).is_err());
        assert!(CEILINGS.judge("decode", cost(1, 1, 1), f64::NAN).is_err());
        assert!(Ceilings { read: 0.0, matrix: None }.judge("decode", cost(1, 1, 1), 1.0).is_err());
    }
}
