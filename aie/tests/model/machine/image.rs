//! From a container to the image, from the image to its commands, from those to writes of registers.

use super::Fault;

/// A write of the bits of `mask`.
pub struct Write {
    pub address: u32,
    pub mask: u32,
    pub value: u32,
}

fn word(bytes: &[u8], at: usize) -> Result<u32, Fault> {
    let word = bytes.get(at..at + 4).ok_or_else(|| format!("the file ends at {:#x}, before {at:#x}", bytes.len()))?;
    Ok(word.iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte)))
}

fn part(bytes: &[u8], start: u32, length: u32) -> Result<&[u8], Fault> {
    let end = start as usize + length as usize;
    bytes.get(start as usize..end).ok_or_else(|| format!("the file ends at {:#x}, before {end:#x}", bytes.len()))
}

/// The image of a container's partition (struct axlf, axlf_section_header, aie_partition, aie_pdi of XRT's xclbin.h).
pub fn of_container(file: &[u8]) -> Result<&[u8], Fault> {
    if file.get(..8) != Some(b"xclbin2\0") {
        return Err("this is no container".into());
    }
    if word(file, 304)? as usize != file.len() {
        return Err("the container has another length".into());
    }
    for index in 0..word(file, 448)? as usize {
        let header = 456 + 40 * index;
        if word(file, header)? == 32 {
            let section = part(file, word(file, header + 24)?, word(file, header + 32)?)?;
            let entries = word(section, 32 + 88 + 4)?;
            let entry = part(section, entries, 96)?;
            return part(section, word(entry, 20)?, word(entry, 16)?);
        }
    }
    Err("the container has no partition".into())
}

/// The writes of an image: a boot image of one partition, which holds one object of commands.
pub fn writes(image: &[u8]) -> Result<Vec<Write>, Fault> {
    let table = 16;
    let check = |at: usize, words: usize, what: &str| -> Result<(), Fault> {
        let mut sum = 0u32;
        for index in 0..words {
            sum = sum.wrapping_add(word(image, at + 4 * index)?);
        }
        if word(image, at + 4 * words)? == !sum { Ok(()) } else { Err(format!("the {what}'s check sum is wrong")) }
    };
    check(table, 31, "table")?;
    if (word(image, table + 4)?, word(image, table + 12)?) != (1, 1) {
        return Err("an image has one image of one partition in this model".into());
    }
    check(4 * word(image, table + 8)? as usize, 15, "image header")?;
    let partition = 4 * word(image, table + 16)? as usize;
    check(partition, 31, "partition header")?;
    let start = 4 * word(image, partition + 32)?;
    let data = part(image, start, 4 * word(image, partition + 4)?)?;
    let words: Vec<u32> = (0..data.len() / 4).map(|index| word(data, 4 * index)).collect::<Result<_, Fault>>()?;
    commands(&words)
}

/// The writes of a command object (CDO, version 2).
fn commands(words: &[u32]) -> Result<Vec<Write>, Fault> {
    let [4, 0x004F_4443, 0x200, length, sum, commands @ ..] = words else {
        return Err("the partition has no commands".into());
    };
    if *sum != !words[..4].iter().fold(0u32, |sum, word| sum.wrapping_add(*word)) {
        return Err("the commands' check sum is wrong".into());
    }
    if commands.len() != *length as usize {
        return Err("the commands have another length".into());
    }
    let mut writes = Vec::new();
    let mut rest = commands;
    while let [head, tail @ ..] = rest {
        let (count, tail) = match (head >> 16 & 255, tail) {
            (255, [count, tail @ ..]) => (*count as usize, tail),
            (count, tail) => (count as usize, tail),
        };
        let (arguments, tail) = tail.split_at_checked(count).ok_or("a command is cut off")?;
        match (head & 0xFFFF, arguments) {
            (0x102, &[address, mask, value]) => writes.push(Write { address, mask, value }),
            (0x103, &[address, value]) => writes.push(Write { address, mask: u32::MAX, value }),
            (0x105, [0, address, values @ ..]) => {
                let addresses = (*address..).step_by(4);
                writes.extend(addresses.zip(values).map(|(address, value)| Write {
                    address,
                    mask: u32::MAX,
                    value: *value,
                }));
            }
            (0x111, _) => {}
            (command, _) => return Err(format!("command {command:#x} with {count} words is not modelled")),
        }
        rest = tail;
    }
    Ok(writes)
}
