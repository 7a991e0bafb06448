//! Stream switches: each tile has one; a master port takes the words of one slave port.
//!
//! A route goes through the switches of one column, tile to tile, by wires that no other stream has. Routes of one output
//! share their way as far as it is the same; where they part, a slave port has several masters.
//!
//! Source: AM025 (ports in the order of their registers); Xilinx/mlir-aie, AIETargetModel.cpp (what a switch can join).

use std::fmt;

use super::array::{Channel, Direction, Kind, SHIM_DEMUX, SHIM_MUX, Tile};
use super::command::Command;

/// A port of a switch. Compass ports lead to the next tile there, in the shim the south ones to the host.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Port {
    Core,
    Dma(u8),
    /// The tile's control, which sends the tokens of tasks that are done.
    Control,
    Fifo,
    South(u8),
    West(u8),
    North(u8),
    East(u8),
}

/// Ports of a side, by number.
type Wires = fn(u8) -> Port;

/// A port's name and how many there are, in the order of their registers.
type Ports = &'static [(Wires, u8)];

const CORE_MASTERS: Ports = &[
    (|_| Port::Core, 1),
    (Port::Dma, 2),
    (|_| Port::Control, 1),
    (|_| Port::Fifo, 1),
    (Port::South, 4),
    (Port::West, 4),
    (Port::North, 6),
    (Port::East, 4),
];
const CORE_SLAVES: Ports = &[
    (|_| Port::Core, 1),
    (Port::Dma, 2),
    (|_| Port::Control, 1),
    (|_| Port::Fifo, 1),
    (Port::South, 6),
    (Port::West, 4),
    (Port::North, 4),
    (Port::East, 4),
];
const MEMORY_MASTERS: Ports = &[(Port::Dma, 6), (|_| Port::Control, 1), (Port::South, 4), (Port::North, 6)];
const MEMORY_SLAVES: Ports = &[(Port::Dma, 6), (|_| Port::Control, 1), (Port::South, 6), (Port::North, 4)];
const SHIM_MASTERS: Ports = &[
    (|_| Port::Control, 1),
    (|_| Port::Fifo, 1),
    (Port::South, 6),
    (Port::West, 4),
    (Port::North, 6),
    (Port::East, 4),
];
const SHIM_SLAVES: Ports = &[
    (|_| Port::Control, 1),
    (|_| Port::Fifo, 1),
    (Port::South, 8),
    (Port::West, 4),
    (Port::North, 4),
    (Port::East, 4),
];

fn index(ports: Ports, port: Port) -> Option<u8> {
    let mut all = ports.iter().flat_map(|(make, count)| (0..*count).map(make));
    all.position(|known| known == port).map(|index| index as u8)
}

impl Port {
    /// The number of the port among the masters of a kind of tile.
    pub fn master(self, kind: Kind) -> Option<u8> {
        let ports = match kind {
            Kind::Shim => SHIM_MASTERS,
            Kind::Memory => MEMORY_MASTERS,
            Kind::Core => CORE_MASTERS,
        };
        index(ports, self)
    }

    /// The number of the port among its slaves.
    pub fn slave(self, kind: Kind) -> Option<u8> {
        let ports = match kind {
            Kind::Shim => SHIM_SLAVES,
            Kind::Memory => MEMORY_SLAVES,
            Kind::Core => CORE_SLAVES,
        };
        index(ports, self)
    }
}

/// Whether the switch of a kind of tile can join a slave port to a master port.
fn can_join(kind: Kind, from: Port, to: Port) -> bool {
    use Port::{Control, Core, Dma, East, North, South, West};
    match (kind, from, to) {
        (Kind::Memory, Dma(slave), Dma(master))
        | (Kind::Memory, South(slave) | North(slave), South(master) | North(master))
        | (Kind::Core, Dma(slave), Dma(master))
        | (Kind::Core, South(slave), South(master))
        | (_, North(slave), North(master))
        | (_, West(slave), West(master))
        | (_, East(slave), East(master)) => slave == master,
        (_, Control, Control) | (_, Core, Core) | (Kind::Core, Control, Dma(_)) => false,
        (Kind::Memory, Control, Dma(master)) => master == 5,
        _ => true,
    }
}

/// A master port of a tile's switch and the slave port whose words it takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Connection {
    pub tile: Tile,
    pub from: Port,
    pub to: Port,
}

impl Connection {
    /// # Errors
    /// One line, where the switch has no such port or cannot join the two.
    pub fn commands(self) -> Result<[Command; 2], String> {
        let kind = self.tile.kind();
        let none = |role: &str, port: Port| format!("{} has no {role} port {port}", self.tile);
        let slave = self.from.slave(kind).ok_or_else(|| none("slave", self.from))?;
        let master = self.to.master(kind).ok_or_else(|| none("master", self.to))?;
        if !can_join(kind, self.from, self.to) {
            return Err(format!("{} cannot join {} to {}", self.tile, self.from, self.to));
        }
        let map = kind.map();
        let enable = 1 << 31;
        Ok([
            Command::write(self.tile.address(map.masters + 4 * u32::from(master)), enable | u32::from(slave)),
            Command::write(self.tile.address(map.slaves + 4 * u32::from(slave)), enable),
        ])
    }
}

/// The port of a switch that a channel is on. The shim's channels are on south ports that a multiplexer gives to them.
pub fn port(channel: Channel) -> Port {
    match (channel.tile.kind(), channel.direction) {
        (Kind::Shim, Direction::Output) => Port::South(3 + 4 * channel.number),
        (Kind::Shim, Direction::Input) => Port::South(2 + channel.number),
        _ => Port::Dma(channel.number),
    }
}

/// Gives a channel of the shim its south port; other channels have one of their own.
pub fn multiplex(channel: Channel) -> Option<Command> {
    if channel.tile.kind() != Kind::Shim {
        return None;
    }
    let (offset, place) = match channel.direction {
        Direction::Output => (SHIM_MUX, 10 + 4 * channel.number),
        Direction::Input => (SHIM_DEMUX, 4 + 2 * channel.number),
    };
    Some(Command::mask_write(channel.tile.address(offset), 3 << place, 1 << place))
}

/// The connections that lead from one channel to another of the same column, by wires that `taken` does not have, or has
/// for the same output.
///
/// # Errors
/// One line: the channels' directions or columns are wrong, or no wire is free.
pub fn route(from: Channel, to: Channel, taken: &[Connection]) -> Result<Vec<Connection>, String> {
    if (from.direction, to.direction) != (Direction::Output, Direction::Input) {
        return Err(format!("{from} to {to}: a route goes from an output to an input"));
    }
    if from.tile.column != to.tile.column || from.tile == to.tile {
        return Err(format!("{from} to {to}: a route goes from tile to tile of one column"));
    }
    let mut hops = Vec::new();
    if !lead(from.tile, port(from), to, taken, &mut hops) {
        return Err(format!("{from} to {to}: no wires are free"));
    }
    Ok(hops)
}

/// Leads what enters a tile at a port on to a channel; whether it could.
fn lead(tile: Tile, entry: Port, to: Channel, taken: &[Connection], hops: &mut Vec<Connection>) -> bool {
    if tile == to.tile {
        hops.push(Connection { tile, from: entry, to: port(to) });
        return can_join(tile.kind(), entry, port(to));
    }
    let upward = to.tile.row > tile.row;
    let (wire, arrival): (Wires, Wires) = if upward { (Port::North, Port::South) } else { (Port::South, Port::North) };
    let next = Tile::new(tile.column, if upward { tile.row + 1 } else { tile.row - 1 });
    let leads = |number: u8| Connection { tile, from: entry, to: wire(number) };
    if let Some(number) = (0..8).find(|number| taken.contains(&leads(*number))) {
        return lead(next, arrival(number), to, taken, hops);
    }
    (0..8).any(|number| {
        let free = wire(number).master(tile.kind()).is_some()
            && arrival(number).slave(next.kind()).is_some()
            && can_join(tile.kind(), entry, wire(number))
            && !taken.iter().any(|other| (other.tile, other.to) == (tile, wire(number)));
        if !free {
            return false;
        }
        let before = hops.len();
        hops.push(leads(number));
        let led = lead(next, arrival(number), to, taken, hops);
        if !led {
            hops.truncate(before);
        }
        led
    })
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Port::Core => write!(f, "core"),
            Port::Dma(number) => write!(f, "dma {number}"),
            Port::Control => write!(f, "control"),
            Port::Fifo => write!(f, "fifo"),
            Port::South(number) => write!(f, "south {number}"),
            Port::West(number) => write!(f, "west {number}"),
            Port::North(number) => write!(f, "north {number}"),
            Port::East(number) => write!(f, "east {number}"),
        }
    }
}
