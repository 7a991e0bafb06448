//! Compares: a 1 or a 0 a lane.

use super::{Op, op};

/// The comparison of a mnemonic such as `v_cmp_lt_f32` or `v_cmpx_ne_i16`; those of 64 bits are in [`super::wide()`].
pub fn compare(name: &str) -> Option<Op> {
    let (_, rest) = name.split_once('_')?;
    let rest = rest.strip_prefix("cmpx_").or_else(|| rest.strip_prefix("cmp_"))?;
    let (condition, format) = rest.rsplit_once('_')?;
    macro_rules! ordered {
        ($of:expr) => {
            match condition {
                "f" => op!(|m, a, b, c| 0),
                "lt" => op!(|m, a, b, c| ($of(m, a) < $of(m, b)) as u32),
                "eq" => op!(|m, a, b, c| ($of(m, a) == $of(m, b)) as u32),
                "le" => op!(|m, a, b, c| ($of(m, a) <= $of(m, b)) as u32),
                "gt" => op!(|m, a, b, c| ($of(m, a) > $of(m, b)) as u32),
                "ne" => op!(|m, a, b, c| ($of(m, a) != $of(m, b)) as u32),
                "ge" => op!(|m, a, b, c| ($of(m, a) >= $of(m, b)) as u32),
                "t" => op!(|m, a, b, c| 1),
                _ => return None,
            }
        };
    }
    macro_rules! float {
        ($of:ident) => {
            match condition {
                "lg" => op!(|m, a, b, c| (m.$of(a) < m.$of(b) || m.$of(a) > m.$of(b)) as u32),
                "o" => op!(|m, a, b, c| !(m.$of(a).is_nan() || m.$of(b).is_nan()) as u32),
                "u" => op!(|m, a, b, c| (m.$of(a).is_nan() || m.$of(b).is_nan()) as u32),
                "nge" => op!(|m, a, b, c| !(m.$of(a) >= m.$of(b)) as u32),
                "nlg" => op!(|m, a, b, c| !(m.$of(a) < m.$of(b) || m.$of(a) > m.$of(b)) as u32),
                "ngt" => op!(|m, a, b, c| !(m.$of(a) > m.$of(b)) as u32),
                "nle" => op!(|m, a, b, c| !(m.$of(a) <= m.$of(b)) as u32),
                "neq" => op!(|m, a, b, c| !(m.$of(a) == m.$of(b)) as u32),
                "nlt" => op!(|m, a, b, c| !(m.$of(a) < m.$of(b)) as u32),
                _ => ordered!(|m: &crate::float::Mode, x| m.$of(x)),
            }
        };
    }
    Some(match (condition, format) {
        ("class", "f32") => op!(|m, a, b, c| b >> class(a, 23, 8) & 1),
        ("class", "f16") => op!(|m, a, b, c| b >> class(a, 10, 5) & 1),
        (_, "f32") => float!(f),
        (_, "f16") => float!(h),
        (_, "i32") => ordered!(|_, x| x as i32),
        (_, "u32") => ordered!(|_, x| x),
        (_, "i16") => ordered!(|_, x| x as i16),
        (_, "u16") => ordered!(|_, x| x as u16),
        _ => return None,
    })
}

/// The bit of the class mask that a float's kind has.
fn class(x: u32, mantissa: u32, exponent: u32) -> u32 {
    let sign = x >> (mantissa + exponent) & 1;
    let (e, f) = (x >> mantissa & ((1 << exponent) - 1), x & ((1 << mantissa) - 1));
    class_of(sign != 0, e == (1 << exponent) - 1, e == 0, f != 0, f >> (mantissa - 1) != 0)
}

/// The same from what matters: sign, all ones and all zeros in the exponent, a mantissa, its highest bit.
pub(super) fn class_of(sign: bool, ones: bool, zeros: bool, mantissa: bool, quiet: bool) -> u32 {
    match (ones, zeros, mantissa) {
        (true, _, true) => quiet as u32,
        (true, _, false) => [9, 2][sign as usize],
        (_, true, true) => [7, 4][sign as usize],
        (_, true, false) => [6, 5][sign as usize],
        _ => [8, 3][sign as usize],
    }
}
