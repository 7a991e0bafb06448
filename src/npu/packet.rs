//! The command packet of a run, which is given to the driver and holds the run's state.
//!
//! Source: XRT's ert.h (`ert_start_kernel_cmd`), and the arguments' offsets in the containers of `aie/`.

use crate::{Error, Result};

/// The operation of a program's kernel: run an instruction stream.
pub(super) const RUN_SEQUENCE: u64 = 3;

/// Words of arguments that a packet can hold: the firmware's message has room for 19.
const MOST_WORDS: usize = 19;

/// State of a packet that has not run.
const NEW: u32 = 1;
/// State of a packet that has run.
const COMPLETED: u32 = 4;

/// The packet of a run: an instruction stream of `sequence_words` words at `sequence`, with buffers at the device's
/// addresses `buffers`.
///
/// # Errors
/// Input: more buffers than a packet can hold.
pub(super) fn pack(sequence: u64, sequence_words: u32, buffers: &[u64]) -> Result<Vec<u32>> {
    let halves = |value: u64| [value as u32, (value >> 32) as u32];
    let mut arguments = [halves(RUN_SEQUENCE), halves(sequence)].concat();
    arguments.push(sequence_words);
    arguments.extend(buffers.iter().flat_map(|&address| halves(address)));
    if arguments.len() > MOST_WORDS {
        return Err(Error::input(
            format!("an NPU program takes at most 7 buffers, not {}", buffers.len()),
            "report this",
        ));
    }
    // The header's operation is 0: start a compute unit. The first word after it selects the context's only unit.
    let count = arguments.len() as u32 + 1;
    Ok([vec![NEW | count << 12, 1], arguments].concat())
}

/// Checks the first word of the packet of a run that has ended.
///
/// # Errors
/// Device: the run did not complete.
pub(super) fn judge(header: u32) -> Result<()> {
    let ended = match header & 0xf {
        COMPLETED => return Ok(()),
        5 => "the NPU reports an error in the program".into(),
        6 => "the driver aborted the program on the NPU".into(),
        8 => "the program on the NPU timed out".into(),
        9 => "the NPU does not respond".into(),
        state => format!("the program on the NPU ended in state {state}"),
    };
    Err(Error::device(
        ended,
        "see `dmesg` for amdxdna's messages; if it happens again, reload it (`modprobe -r amdxdna`, `modprobe amdxdna`)",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_has_its_words_in_the_containers_order() {
        let words = pack(0x1_0400_2000, 380, &[0x7f00_0000_1000, 0x2000]).unwrap();
        let expected = [0x0000_a001, 1, 3, 0, 0x0400_2000, 1, 380, 0x0000_1000, 0x7f00, 0x2000, 0];
        assert_eq!(words, expected);
        assert_eq!(pack(0, 0, &[0; 7]).unwrap().len(), 21);
        assert_eq!(pack(0, 0, &[0; 8]).unwrap_err().exit_code(), 2);
    }

    #[test]
    fn every_state_but_completed_is_an_error_of_its_own_words() {
        assert_eq!(judge(COMPLETED), Ok(()));
        // The rest of the header does not matter.
        assert_eq!(judge(0x0000_a004), Ok(()));
        let mut said: Vec<String> =
            (0..16).filter(|&s| s != COMPLETED).map(|state| judge(state).unwrap_err().to_string()).collect();
        assert!(said[5].starts_with("the driver aborted"), "{said:?}");
        said.sort();
        said.dedup();
        assert_eq!(said.len(), 15);
    }
}
