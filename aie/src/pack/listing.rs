//! A design for a reader: with the numbers of descriptors and the wires that packing gave out.

use super::array::{Direction, Kind};
use super::descriptor::LockUse;
use super::design::{Design, Task};

/// # Errors
/// Those of [`Design::numbered_tasks`].
pub fn write(design: &Design) -> Result<String, String> {
    let mut lines = vec![format!("// {}, columns: {}", design.name, design.columns)];
    let arguments = design.arguments.iter();
    lines.extend(arguments.map(|argument| format!("{}: {} bytes of the host", argument.name, argument.bytes)));

    lines.push("\n// programs".into());
    lines.extend(design.programs.iter().map(|(tile, kernel)| format!("{tile}: {kernel}")));

    lines.push("\n// buffers".into());
    for buffer in &design.buffers {
        let (tile, start, end) = (buffer.tile, buffer.address, buffer.address + buffer.bytes);
        lines.push(format!("{tile}: {start:#06x}..{end:#06x}, lock {} empty, lock {} full", buffer.empty, buffer.full));
    }

    lines.push("\n// channels: the descriptor, and its walk in words, innermost first".into());
    for (number, task) in design.numbered_tasks()? {
        lines.push(describe_task(number, task));
    }

    lines.push("\n// routes".into());
    let connections = design.connections.iter();
    lines
        .extend(connections.map(|connection| format!("{}: {} -> {}", connection.tile, connection.from, connection.to)));

    lines.push("\n// a run".into());
    for (number, transfer) in design.numbered_transfers()? {
        let argument = design.arguments.get(transfer.argument).map_or("?", |argument| argument.name);
        let (start, end) = (transfer.offset, transfer.offset + transfer.bytes);
        let does = if transfer.channel.direction == Direction::Output { "sends" } else { "receives" };
        lines.push(format!("{}: descriptor {number} {does} {argument}[{start}..{end}]", transfer.channel));
    }
    Ok(lines.join("\n") + "\n")
}

fn describe_task(number: u8, task: &Task) -> String {
    let (channel, descriptor) = (task.channel, &task.descriptor);
    // A memory tile's DMA numbers its own locks and memory second.
    let (memory, first) = if channel.tile.kind() == Kind::Memory { (0x80000, 64) } else { (0, 0) };
    let lock = |used: Option<LockUse>| used.map_or("none".to_string(), |used| (used.lock - first).to_string());
    let walk = descriptor.dimensions.iter().map(|dimension| format!("{} by {}", dimension.count, dimension.step));
    let walk =
        if descriptor.dimensions.is_empty() { "in a row".to_string() } else { walk.collect::<Vec<_>>().join(", ") };
    format!(
        "{channel}: descriptor {number} at {:#06x}, {} words, {walk}, takes lock {}, gives lock {}",
        descriptor.address - memory,
        descriptor.words,
        lock(descriptor.acquire),
        lock(descriptor.release)
    )
}
