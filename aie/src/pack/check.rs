//! What can be wrong with a design.

use super::array::{COLUMNS, Direction, Kind, ROWS};
use super::design::{Argument, Buffer, Constant, Design, Task, Transfer, extent};
use super::run;
use super::stream::{self, Connection};

impl Design {
    /// Says what is wrong with a design before anything of it is packed.
    pub(super) fn check(&self) -> Result<(), String> {
        if let Some(error) = self.errors.first() {
            return Err(error.clone());
        }
        self.check_tiles()?;
        self.check_buffers()?;
        self.check_streams()?;
        self.check_transfers()
    }

    fn check_tiles(&self) -> Result<(), String> {
        if !(1..=COLUMNS).contains(&self.columns) {
            return Err(format!("a partition has 1 to {COLUMNS} columns, not {}", self.columns));
        }
        let programs = self.programs.iter().map(|(tile, _)| *tile);
        let buffers = self.buffers.iter().map(|buffer| buffer.tile);
        let connections = self.connections.iter().map(|connection| connection.tile);
        let transfers = self.transfers.iter().map(|transfer| transfer.channel.tile);
        let constants = self.constants.iter().map(|constant| constant.tile);
        let mut tiles = programs.clone().chain(buffers).chain(constants).chain(connections).chain(transfers);
        if let Some(tile) = tiles.find(|tile| tile.column >= self.columns || tile.row >= ROWS) {
            return Err(format!("{tile} is outside of {} columns and {ROWS} rows", self.columns));
        }
        for (index, tile) in programs.clone().enumerate() {
            if tile.kind() != Kind::Core {
                return Err(format!("{tile} runs no program"));
            }
            if programs.clone().take(index).any(|other| other == tile) {
                return Err(format!("{tile} has two programs"));
            }
        }
        Ok(())
    }

    fn check_buffers(&self) -> Result<(), String> {
        for (index, buffer) in self.buffers.iter().enumerate() {
            let Buffer { tile, address, bytes, count, .. } = *buffer;
            let end = end_of(buffer);
            if bytes == 0 || !bytes.is_multiple_of(4) || end > u64::from(tile.map().memory) {
                let memory = tile.map().memory;
                return Err(format!(
                    "{tile}: {bytes} bytes at {address:#x}: words within {memory:#x} bytes are a buffer"
                ));
            }
            // A lock counts to 63.
            if !(1..64).contains(&count) {
                return Err(format!("{tile}: a ring has 1 to 63 buffers, not {count}"));
            }
            let overlaps = |other: &Buffer| {
                other.tile == tile && u64::from(other.address) < end && u64::from(address) < end_of(other)
            };
            if let Some(other) = self.buffers[..index].iter().find(|other| overlaps(other)) {
                return Err(format!("{tile}: the buffers at {:#x} and {address:#x} overlap", other.address));
            }
        }
        for Constant { tile, address, words } in &self.constants {
            let end = u64::from(*address) + 4 * words.len() as u64;
            let holds = |other: &Buffer| {
                other.tile == *tile && u64::from(other.address) < end && u64::from(*address) < end_of(other)
            };
            let fits = !words.is_empty() && address.is_multiple_of(4) && end <= u64::from(tile.map().memory);
            if !fits || self.buffers.iter().any(holds) {
                let count = words.len();
                return Err(format!("{tile}: {count} words at {address:#x} are not free memory of it"));
            }
        }
        for (index, (tile, lock, _)) in self.locks().enumerate() {
            if lock >= tile.map().lock_count {
                return Err(format!("{tile} has no lock {lock}: 0 to {}", tile.map().lock_count - 1));
            }
            if self.locks().take(index).any(|(other, taken, _)| (other, taken) == (tile, lock)) {
                return Err(format!("{tile}: lock {lock} is given twice"));
            }
        }
        Ok(())
    }

    fn check_streams(&self) -> Result<(), String> {
        for (index, Connection { tile, from, to }) in self.connections.iter().enumerate() {
            let mut others = self.connections[..index].iter();
            if let Some(other) = others.find(|other| (other.tile, other.to) == (*tile, *to)) {
                return Err(format!("{tile}: {to} takes both {} and {from}", other.from));
            }
        }
        for (index, Task { channel, .. }) in self.tasks.iter().enumerate() {
            if channel.number >= channel.tile.map().channels {
                return Err(format!("there is no {channel}"));
            }
            if self.tasks[..index].iter().any(|other| other.channel == *channel) {
                return Err(format!("{channel} has two tasks"));
            }
            let port = stream::port(*channel);
            let leads = |connection: &Connection| match channel.direction {
                Direction::Input => connection.tile == channel.tile && connection.to == port,
                Direction::Output => connection.tile == channel.tile && connection.from == port,
            };
            if !self.connections.iter().any(leads) {
                return Err(format!("{channel} has no route"));
            }
        }
        Ok(())
    }

    fn check_transfers(&self) -> Result<(), String> {
        for transfer in &self.transfers {
            let Transfer { channel, argument, offset, bytes, .. } = transfer;

            let Some(Argument { name, bytes: size }) = self.arguments.get(*argument) else {
                return Err(format!("{channel}: there is no argument {argument}"));
            };
            let (moved, last) = extent(&transfer.walk);
            if !transfer.walk.is_empty() && (moved != u64::from(bytes / 4) || last > u64::from(u32::MAX)) {
                return Err(format!("{channel}: the walk has {moved} words, the transfer {bytes} bytes"));
            }
            let end = u64::from(*offset) + run::reach(transfer);
            if end > u64::from(*size) || !bytes.is_multiple_of(4) {
                return Err(format!("{channel}: {bytes} bytes from {offset} are no words of {name}, which has {size}"));
            }
            if !self.shim_channels.contains(channel) {
                return Err(format!("{channel} has no route"));
            }
        }
        Ok(())
    }
}

/// The byte behind a ring's last.
fn end_of(ring: &Buffer) -> u64 {
    u64::from(ring.address) + u64::from(ring.bytes) * u64::from(ring.count)
}
