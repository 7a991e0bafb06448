//! What of a result depends on what was never written.

use crate::ops::Lanes;

/// How poison goes from sources to a result.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Spread {
    /// Any bit of a source matters to all of the result.
    All,
    /// Halves stay halves.
    Halves,
    /// Halves stay halves, and zeros of either source clear the other.
    And,
    /// Source 1 shifted left or right by a constant of 16 or more: half of it goes, zeros come.
    Up,
    /// See `Up`.
    Down,
    /// Bytes chosen by a constant.
    Perm(u32),
    /// The low half of source 0 and that of source 1.
    Pack,
}

impl Spread {
    /// That of a mnemonic; `constant` gives a source's value where it is known.
    pub fn of(name: &str, constant: impl Fn(&str) -> Option<u32>) -> Self {
        match name {
            "v_mov_b32" | "v_dual_mov_b32" | "v_or_b32" | "v_xor_b32" | "v_not_b32" | "v_or3_b32" | "v_xor3_b32" => {
                Self::Halves
            }
            _ if name.starts_with("v_pk_") => Self::Halves,
            "v_and_b32" | "v_dual_and_b32" => Self::And,
            "v_lshlrev_b32" | "v_dual_lshlrev_b32" if constant("src0").is_some_and(|n| n & 31 >= 16) => Self::Up,
            "v_lshrrev_b32" if constant("src0").is_some_and(|n| n & 31 >= 16) => Self::Down,
            "v_pack_b32_f16" => Self::Pack,
            "v_perm_b32" => constant("src2").map_or(Self::All, Self::Perm),
            _ => Self::All,
        }
    }

    #[inline(always)]
    /// Lanes whose low and high halves are poisoned, of those of three sources and of their values.
    pub fn apply(self, p: [[u32; 2]; 3], x: [&Lanes; 3]) -> [u32; 2] {
        let [a, b, c] = p;
        let all = [a, b, c].concat().iter().fold(0, |all, p| all | p);
        if all == 0 {
            return [0; 2];
        }
        let lane_mask = |f: &dyn Fn(usize) -> bool| (0..32).filter(|i| f(*i)).fold(0u32, |all, i| all | 1 << i);
        match self {
            Self::All => [all; 2],
            Self::Halves => [a[0] | b[0] | c[0], a[1] | b[1] | c[1]],
            Self::And => {
                let one = |half: usize| {
                    let zero = |x: &Lanes, p: u32| lane_mask(&|i| x[i] >> (16 * half) & 0xffff == 0) & !p;
                    (a[half] & !zero(x[1], b[half])) | (b[half] & !zero(x[0], a[half]))
                };
                [one(0), one(1)]
            }
            Self::Up => [0, b[0]],
            Self::Down => [b[1], 0],
            Self::Pack => [a[0], b[0]],
            Self::Perm(selector) => {
                let byte = |select: u32| match select & 0xff {
                    0 | 1 => b[0],
                    2 | 3 => b[1],
                    4 | 5 => a[0],
                    6 | 7 => a[1],
                    8 => b[0],
                    9 => b[1],
                    10 => a[0],
                    11 => a[1],
                    _ => 0,
                };
                [byte(selector) | byte(selector >> 8), byte(selector >> 16) | byte(selector >> 24)]
            }
        }
    }
}
