//! The instruction stream: a transaction of version 0.1, as the tests of Xilinx/mlir-aie spell it.

use super::{Fault, Place};

pub enum Operation {
    Write { address: u32, mask: u32, value: u32 },
    Patch { address: u32, argument: usize, offset: u64 },
    Wait { place: Place, output: bool, channel: u32 },
}

pub fn operations(stream: &[u8]) -> Result<Vec<Operation>, Fault> {
    let words: Vec<u32> =
        stream.chunks(4).map(|word| word.iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte))).collect();
    let [version, _, count, size, operations @ ..] = words.as_slice() else {
        return Err("the stream has no head".into());
    };
    if version & 0xFFFF != 0x0100 {
        return Err(format!("version {:#x} of streams is not modelled", version & 0xFFFF));
    }
    if *size as usize != stream.len() {
        return Err("the stream has another length".into());
    }
    let mut found = Vec::new();
    let mut rest = operations;
    for _ in 0..*count {
        // Where the operation's size stands depends on what it is.
        let size = match rest {
            [0, _, _, _, _, size, ..] | [1, _, _, size, ..] | [3, _, _, _, _, _, size, ..] => *size,
            [0x80 | 0x81, size, ..] => *size,
            [code, ..] => return Err(format!("operation {code:#x} is not modelled")),
            [] => return Err("the stream has fewer operations than it says".into()),
        };
        let (operation, tail) = rest.split_at_checked(size as usize / 4).ok_or("an operation is cut off")?;
        match *operation {
            [0, _, address, 0, value, _] => found.push(Operation::Write { address, mask: u32::MAX, value }),
            [1, _, address, _, ref values @ ..] => {
                let addresses = (address..).step_by(4);
                let writes = addresses.zip(values);
                found.extend(writes.map(|(address, value)| Operation::Write {
                    address,
                    mask: u32::MAX,
                    value: *value,
                }));
            }
            [3, _, address, 0, value, mask, _] => found.push(Operation::Write { address, mask, value }),
            [0x80, _, at, channel] => {
                if channel & 0xFF_FFFF != 0x01_0100 {
                    return Err("waiting for several tiles is not modelled".into());
                }
                let place = (at >> 16 & 255, at >> 8 & 255);
                found.push(Operation::Wait { place, output: at & 255 == 1, channel: channel >> 24 });
            }
            [0x81, _, _, _, _, 0, address, 0, argument, 0, low, high] => {
                let offset = u64::from(high) << 32 | u64::from(low);
                found.push(Operation::Patch { address, argument: argument as usize, offset });
            }
            _ => return Err(format!("an operation {:#x} of {size} bytes is not modelled", operation[0])),
        }
        rest = tail;
    }
    if rest.is_empty() { Ok(found) } else { Err("the stream goes on behind its operations".into()) }
}
