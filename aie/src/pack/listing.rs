//! A design for a reader: with the numbers of descriptors and the wires that packing gave out.

use super::array::{Channel, Direction, Kind};
use super::descriptor::{Descriptor, LockUse};
use super::design::Design;
use super::run::{self, Step};

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
        let ring = if buffer.count == 1 { String::new() } else { format!(", {} of them", buffer.count) };
        let locks = format!("lock {} empty, lock {} full", buffer.empty, buffer.full);
        lines.push(format!("{tile}: {start:#06x}..{end:#06x}{ring}, {locks}"));
    }

    lines.push("\n// channels: the descriptor, and its walk in words, innermost first".into());
    for (numbers, task) in design.numbered_tasks()? {
        let descriptors = numbers.into_iter().zip(&task.descriptors);
        lines.extend(descriptors.map(|(number, descriptor)| describe(number, task.channel, descriptor)));
    }

    lines.push("\n// routes".into());
    let connections = design.connections.iter();
    lines
        .extend(connections.map(|connection| format!("{}: {} -> {}", connection.tile, connection.from, connection.to)));

    lines.push("\n// a run".into());
    let steps = run::plan(&design.transfers);
    // The waits at the end are those for all that is received.
    let last = steps.iter().rposition(|step| matches!(step, Step::Start { .. })).unwrap_or(0);
    for step in &steps[..steps.len().min(last + 1)] {
        let (number, transfer) = match step {
            Step::Start { descriptor, transfer, .. } => (descriptor, &design.transfers[*transfer]),
            Step::Wait(channel) => {
                lines.push(format!("{channel}: waits for the oldest to be done"));
                continue;
            }
        };
        let argument = design.arguments.get(transfer.argument).map_or("?", |argument| argument.name);
        let (start, end) = (transfer.offset, u64::from(transfer.offset) + run::reach(transfer));
        let does = if transfer.channel.direction == Direction::Output { "sends" } else { "receives" };
        let times = if transfer.times == 1 { String::new() } else { format!(", {} times", transfer.times) };
        lines.push(format!("{}: descriptor {number} {does} {argument}[{start}..{end}]{times}", transfer.channel));
    }
    Ok(lines.join("\n") + "\n")
}

fn describe(number: u8, channel: Channel, descriptor: &Descriptor) -> String {
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
