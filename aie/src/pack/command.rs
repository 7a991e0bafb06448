//! Configuration commands: writes of registers, and the words that the firmware reads them as (CDO).
//!
//! Source: the public encoder Xilinx/bootgen (cdo-binary.c); a test holds them against what Debian's bootgen writes.

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Command {
    Write {
        address: u32,
        value: u32,
    },
    /// Changes the bits of `mask`.
    MaskWrite {
        address: u32,
        mask: u32,
        value: u32,
    },
    Block {
        address: u32,
        words: Vec<u32>,
    },
}

const MASK_WRITE: u32 = 0x102;
const WRITE: u32 = 0x103;
const BLOCK: u32 = 0x105;
const NOTHING: u32 = 0x111;

/// Words before the first command: their number less one, "CDO", version, length, check sum.
const HEAD: usize = 5;

impl Command {
    pub fn write(address: u32, value: u32) -> Command {
        Command::Write { address, value }
    }

    pub fn mask_write(address: u32, mask: u32, value: u32) -> Command {
        Command::MaskWrite { address, mask, value }
    }

    pub fn block(address: u32, words: Vec<u32>) -> Command {
        Command::Block { address, words }
    }

    fn encode(&self, words: &mut Vec<u32>) {
        match self {
            Command::Write { address, value } => words.extend([2 << 16 | WRITE, *address, *value]),
            Command::MaskWrite { address, mask, value } => {
                words.extend([3 << 16 | MASK_WRITE, *address, *mask, *value]);
            }
            Command::Block { address, words: block } => {
                let length = block.len() as u32 + 2;
                let head = if length < 255 { vec![length << 16 | BLOCK] } else { vec![255 << 16 | BLOCK, length] };
                // The firmware copies a block by DMA, so its words lie as its destination does.
                let start = words.len() + head.len() + 2;
                let shift = (*address as usize / 4).wrapping_sub(start) % 4;
                if shift > 0 {
                    words.push((shift as u32 - 1) << 16 | NOTHING);
                    words.resize(words.len() + shift - 1, 0);
                }
                words.extend(head);
                words.extend([0, *address]);
                words.extend(block);
            }
        }
    }
}

/// The commands as one object.
pub fn encode(commands: &[Command]) -> Vec<u32> {
    let mut words = vec![0; HEAD];
    commands.iter().for_each(|command| command.encode(&mut words));
    let head = [HEAD as u32 - 1, u32::from_le_bytes(*b"CDO\0"), 0x200, (words.len() - HEAD) as u32];
    words[..4].copy_from_slice(&head);
    words[4] = check_sum(&head);
    words
}

/// The sum of the words, inverted.
pub(super) fn check_sum(words: &[u32]) -> u32 {
    !words.iter().fold(0, |sum: u32, word| sum.wrapping_add(*word))
}
