//! The host's instruction stream: what the firmware does in one run (a transaction of version 0.1).
//!
//! Source: Xilinx/mlir-aie (AIETargetNPU.cpp) and its tests, which pair operations with words; a test holds them.

use super::array::{Channel, Direction, MEMORY_ROWS, ROWS};

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Operation {
    Write {
        address: u32,
        value: u32,
    },
    Block {
        address: u32,
        words: Vec<u32>,
    },
    MaskWrite {
        address: u32,
        value: u32,
        mask: u32,
    },
    /// Puts the address of the host's buffer, plus bytes, into the descriptor whose address registers start here.
    Patch {
        address: u32,
        argument: u32,
        offset: u64,
    },
    /// Waits for the token of a task of this channel.
    Wait {
        channel: Channel,
    },
}

/// Operation codes, in the low byte of the first word.
const WRITE: u32 = 0;
const BLOCK: u32 = 1;
const MASK_WRITE: u32 = 3;
const WAIT: u32 = 0x80;
const PATCH: u32 = 0x81;

impl Operation {
    fn encode(&self) -> Vec<u32> {
        match self {
            Operation::Write { address, value } => vec![WRITE, 0, *address, 0, *value, 24],
            Operation::Block { address, words } => {
                let mut operation = vec![BLOCK, 0, *address, 16 + 4 * words.len() as u32];
                operation.extend(words);
                operation
            }
            Operation::MaskWrite { address, value, mask } => vec![MASK_WRITE, 0, *address, 0, *value, *mask, 28],
            Operation::Patch { address, argument, offset } => {
                let (low, high) = (*offset as u32, (*offset >> 32) as u32);
                vec![PATCH, 48, 0, 0, 0, 0, *address, 0, *argument, 0, low, high]
            }
            Operation::Wait { channel } => {
                let output = u32::from(channel.direction == Direction::Output);
                let (column, row) = (u32::from(channel.tile.column), u32::from(channel.tile.row));
                // The lower half of the last word counts tiles: one row, one column.
                vec![WAIT, 16, column << 16 | row << 8 | output, u32::from(channel.number) << 24 | 1 << 16 | 1 << 8]
            }
        }
    }
}

/// The stream's bytes, for a partition of so many columns.
pub fn pack(columns: u8, operations: &[Operation]) -> Vec<u8> {
    // Version 0.1, device generation 3, and the array's size.
    let mut words = vec![
        u32::from(ROWS) << 24 | 3 << 16 | 1 << 8,
        u32::from(MEMORY_ROWS) << 8 | u32::from(columns),
        operations.len() as u32,
        0,
    ];
    operations.iter().for_each(|operation| words.extend(operation.encode()));
    words[3] = 4 * words.len() as u32;
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}
