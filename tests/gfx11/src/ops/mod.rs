//! What an opcode computes from its sources, lane by lane. Modifiers, masks and registers are the caller's matter.

mod compare;
mod float;
mod half;
mod int;
mod special;
mod wide;

pub use compare::compare;
pub use wide::{Wide, wide};

use crate::float::Mode;

/// One 32-bit value a lane, half a wave64 or a whole wave32.
pub type Lanes = [u32; 32];

/// What the closures below have: MODE, three sources, the result.
type Plain = fn(&Mode, [&Lanes; 3], &mut Lanes);
type Fast = unsafe fn(&Mode, [&Lanes; 3], &mut Lanes);

/// An operation of 32-bit lanes. A 16-bit source stands in the low half, with zeros above.
#[derive(Clone, Copy)]
pub struct Op {
    plain: Plain,
    fast: Fast,
}

impl Op {
    /// Computes all lanes.
    #[inline]
    pub fn run(&self, mode: &Mode, sources: [&Lanes; 3], result: &mut Lanes, fast: bool) {
        if fast {
            // SAFETY: `fast` is only set where `has_fast` found all features that the function was compiled with.
            unsafe { (self.fast)(mode, sources, result) }
        } else {
            (self.plain)(mode, sources, result)
        }
    }
}

/// Whether this processor has what the fast functions were compiled with.
pub fn has_fast() -> bool {
    #[cfg(target_arch = "x86_64")]
    return is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Makes an [`Op`] of an expression of MODE and three lanes: once for any processor, once with AVX2 and FMA.
macro_rules! op {
    (|$m:ident, $a:ident, $b:ident, $c:ident| $e:expr) => {{
        #[allow(unused_variables)]
        #[inline(always)]
        fn one($m: &$crate::float::Mode, $a: u32, $b: u32, $c: u32) -> u32 {
            $e
        }
        fn plain(m: &$crate::float::Mode, [a, b, c]: [&$crate::ops::Lanes; 3], d: &mut $crate::ops::Lanes) {
            for i in 0..32 {
                d[i] = one(m, a[i], b[i], c[i]);
            }
        }
        #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma"))]
        fn fast(m: &$crate::float::Mode, [a, b, c]: [&$crate::ops::Lanes; 3], d: &mut $crate::ops::Lanes) {
            for i in 0..32 {
                d[i] = one(m, a[i], b[i], c[i]);
            }
        }
        $crate::ops::Op { plain, fast }
    }};
}
pub(crate) use op;

/// The operation of that mnemonic; `clamp` asks for an integer's saturating form.
pub fn lane_op(name: &str, clamp: bool) -> Option<Op> {
    if clamp && let Some(op) = int::saturating(name) {
        return Some(op);
    }
    let name = name.strip_prefix("v_").unwrap_or(name);
    let name = name.strip_prefix("dual_").unwrap_or(name);
    int::op_of(name).or_else(|| float::op_of(name)).or_else(|| half::op_of(name)).or_else(|| special::op_of(name))
}
