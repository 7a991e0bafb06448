//! Fills and copies: dispatches of one kernel of Kiln's own (shaders/copy.comp).

use crate::lower::kernels::constants::NoConstants;
use crate::lower::kernels::push::{CopyPush, Push};
use crate::lower::kernels::{Kernel, Module};

/// Lanes of a workgroup, each of which moves [`LANE_WORDS`].
const WORKGROUP: u32 = 256;
const LANE_WORDS: u32 = 4;
/// Most words of a dispatch. The kernel counts words in 32 bits.
const MOST_WORDS: u64 = 1 << 30;

/// The kernel that copies words between buffers.
pub fn kernel() -> Kernel {
    Kernel::new(Module::Copy, WORKGROUP, NoConstants {})
}

/// Push constants and grids of the dispatches that copy `bytes` from one address to another, or that write zeros if
/// there is no source. All three are multiples of four, and the places do not overlap.
pub fn dispatches(source: Option<u64>, target: u64, bytes: u64) -> impl Iterator<Item = (Push, [u32; 3])> {
    debug_assert!([source.unwrap_or(0), target, bytes].iter().all(|n| n.is_multiple_of(4)));
    (0..bytes).step_by(4 * MOST_WORDS as usize).map(move |at| {
        let words = ((bytes - at) / 4).min(MOST_WORDS) as u32;
        let push = CopyPush { source: source.map_or(0, |source| source + at), target: target + at, words };
        (Push::new(&push), [words.div_ceil(WORKGROUP * LANE_WORDS), 1, 1])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_copies_are_several_dispatches_that_cover_each_word_once() {
        let bytes = 4 * (2 * MOST_WORDS + 5);
        let all: Vec<_> = dispatches(Some(1 << 40), 1 << 41, bytes).collect();
        let block = |push: &Push| bytemuck::pod_read_unaligned::<CopyPush>(push.bytes());
        let (mut done, mut groups) = (0, Vec::new());
        for (push, grid) in &all {
            let CopyPush { source, target, words } = block(push);
            assert_eq!((source, target), ((1 << 40) + done, (1 << 41) + done));
            done += 4 * u64::from(words);
            groups.push(*grid);
        }
        assert_eq!(done, bytes);
        assert_eq!(groups, [[1 << 20, 1, 1], [1 << 20, 1, 1], [1, 1, 1]]);
        let fills: Vec<_> = dispatches(None, 1 << 41, 16).map(|(push, _)| block(&push)).collect();
        assert_eq!(fills, [CopyPush { source: 0, target: 1 << 41, words: 4 }]);
        assert_eq!(dispatches(None, 1 << 41, 0).count(), 0);
    }
}
