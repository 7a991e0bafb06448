//! Stream switches with circuit-switched connections.

use super::{Fault, Kind, Place};

/// Where a stream ends: a tile's input, behind so many switches.
pub struct End {
    pub place: Place,
    pub input: u32,
    pub switches: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Port {
    Core,
    Dma(u32),
    Control,
    Fifo,
    South(u32),
    West(u32),
    North(u32),
    East(u32),
    Trace,
}

pub struct Switch {
    kind: Kind,
    /// Ports in the order of their registers, and what those hold.
    masters: Vec<(Port, u32)>,
    slaves: Vec<(Port, u32)>,
    /// What the shim's south ports carry to the array, and from it.
    mux: u32,
    demux: u32,
}

const ENABLE: u32 = 1 << 31;
const PACKETS: u32 = 1 << 30;

impl Switch {
    pub fn new(kind: Kind) -> Switch {
        let some = |make: fn(u32) -> Port, count: u32| (0..count).map(make).collect::<Vec<_>>();
        let (west, east) = (some(Port::West, 4), some(Port::East, 4));
        let ends = match kind {
            Kind::Core => vec![Port::Core, Port::Dma(0), Port::Dma(1), Port::Control, Port::Fifo],
            Kind::Memory => [some(Port::Dma, 6), vec![Port::Control]].concat(),
            Kind::Shim => vec![Port::Control, Port::Fifo],
        };
        let (south_out, south_in, traces) = match kind {
            Kind::Core => (4, 6, 2),
            Kind::Memory => (4, 6, 1),
            Kind::Shim => (6, 8, 1),
        };
        let (south_out, south_in) = (some(Port::South, south_out), some(Port::South, south_in));
        let (north_out, north_in) = (some(Port::North, 6), some(Port::North, 4));
        let traces = vec![Port::Trace; traces];
        let (masters, slaves) = match kind {
            Kind::Memory => {
                ([ends.clone(), south_out, north_out].concat(), [ends, south_in, north_in, traces].concat())
            }
            _ => (
                [ends.clone(), south_out, west.clone(), north_out, east.clone()].concat(),
                [ends, south_in, west, north_in, east, traces].concat(),
            ),
        };
        let off = |ports: Vec<Port>| ports.into_iter().map(|port| (port, 0)).collect();
        Switch { kind, masters: off(masters), slaves: off(slaves), mux: 0, demux: 0 }
    }

    /// Writes a port's register: masters from 0, slaves from 0x100.
    pub fn write(&mut self, offset: u32, value: u32) -> Result<(), Fault> {
        let (ports, first) = if offset < 0x100 { (&mut self.masters, 0) } else { (&mut self.slaves, 0x100) };
        let port = ports.get_mut((offset - first) as usize / 4);
        port.ok_or_else(|| format!("the switch has no register at {offset:#x}"))?.1 = value;
        Ok(())
    }

    pub fn multiplex(&mut self, from_array: bool, mask: u32, value: u32) -> Result<(), Fault> {
        if self.kind != Kind::Shim {
            return Err("only a shim has a multiplexer".into());
        }
        let register = if from_array { &mut self.demux } else { &mut self.mux };
        *register = *register & !mask | value & mask;
        Ok(())
    }

    /// Where a DMA channel's words enter the switch.
    fn entry(&self, output: u32) -> Result<Port, Fault> {
        if self.kind != Kind::Shim {
            return Ok(Port::Dma(output));
        }
        // AM025, Mux_Config: two bits a port, 1 is DMA.
        let (port, place) = if output == 0 { (3, 10) } else { (7, 14) };
        if self.mux >> place & 3 != 1 {
            return Err(format!("the shim's output {output} is not connected: south {port} carries something else"));
        }
        Ok(Port::South(port))
    }

    /// The shim's input that a south port leads to.
    fn exit(&self, port: u32) -> Result<u32, Fault> {
        // Demux_Config: south 2 and 3 can lead to DMA.
        match port {
            2 | 3 if self.demux >> (2 * port) & 3 == 1 => Ok(port - 2),
            _ => Err(format!("south {port} of the shim leads out of the model")),
        }
    }

    /// The masters that take the words of a slave.
    fn takers(&self, slave: Port) -> Result<Vec<Port>, Fault> {
        let index = self.slaves.iter().position(|(port, _)| *port == slave);
        let index = index.ok_or_else(|| format!("there is no slave port {slave:?}"))?;
        if self.slaves[index].1 & ENABLE == 0 {
            return Err(format!("words come on the slave port {slave:?}, which is not enabled"));
        }
        let takers = self.masters.iter().filter(|(_, value)| value & ENABLE != 0 && (value & 0x7F) as usize == index);
        let takers: Vec<(Port, u32)> = takers.copied().collect();
        if takers.iter().any(|(_, value)| value & PACKETS != 0) || self.slaves[index].1 & PACKETS != 0 {
            return Err("packets are not modelled".into());
        }
        if let Some((master, _)) = takers.iter().find(|(master, _)| !self.joins(slave, *master)) {
            return Err(format!("the switch does not join {slave:?} to {master:?}"));
        }
        if takers.is_empty() {
            return Err(format!("words come on the slave port {slave:?}, and no master takes them"));
        }
        Ok(takers.into_iter().map(|(port, _)| port).collect())
    }

    /// Whether the switch has a way from a slave to a master (Xilinx/mlir-aie, AIETargetModel.cpp).
    fn joins(&self, slave: Port, master: Port) -> bool {
        let number = |port: Port| match port {
            Port::Dma(number) | Port::South(number) | Port::West(number) => number,
            Port::North(number) | Port::East(number) => number,
            Port::Core | Port::Control | Port::Fifo | Port::Trace => 0,
        };
        let upright = |port: Port| matches!(port, Port::South(_) | Port::North(_));
        let same_side = std::mem::discriminant(&slave) == std::mem::discriminant(&master);
        let straight = same_side || self.kind == Kind::Memory && upright(slave) && upright(master);
        match (slave, master) {
            (Port::Core, Port::Core) | (Port::Control, Port::Control) => false,
            (Port::Control, Port::Dma(master)) => self.kind == Kind::Memory && master == 5,
            (Port::South(_), Port::South(_)) if self.kind == Kind::Shim => true,
            _ => !straight || number(slave) == number(master),
        }
    }

    /// Whether it has a way out to the east or the west.
    pub fn joins_columns(&self) -> bool {
        let sideways = |port: Port| matches!(port, Port::East(_) | Port::West(_));
        self.masters.iter().any(|(port, value)| sideways(*port) && value & ENABLE != 0)
    }

    /// A token goes from the tile's control to the first south port.
    pub fn token_leaves(&self) -> Result<(), Fault> {
        if self.takers(Port::Control)? == [Port::South(0)] {
            return Ok(());
        }
        Err("a token does not leave by south 0".into())
    }
}

/// The ends of the stream that a tile's output feeds. A stream that a switch gives to several has several.
pub fn ends<'a>(switch: impl Fn(Place) -> Option<&'a Switch>, place: Place, output: u32) -> Result<Vec<End>, Fault> {
    let entry = switch(place).ok_or("there is no such tile")?.entry(output)?;
    let mut ends = Vec::new();
    let mut fronts = vec![(place, entry, 1)];
    // No stream passes as many switches.
    for _ in 0..64 {
        let Some(((column, row), slave, switches)) = fronts.pop() else { return Ok(ends) };
        let here = switch((column, row));
        let here = here.ok_or_else(|| format!("a route leaves the array at {:?}", (column, row)))?;
        let takers = here.takers(slave).map_err(|fault| format!("switch of {:?}: {fault}", (column, row)))?;
        let end = |input| End { place: (column, row), input, switches };
        for taker in takers {
            let (next, entry) = match taker {
                Port::Dma(input) => {
                    ends.push(end(input));
                    continue;
                }
                Port::South(port) if row == 0 => {
                    ends.push(end(here.exit(port)?));
                    continue;
                }
                Port::South(wire) => ((column, row - 1), Port::North(wire)),
                Port::North(wire) => ((column, row + 1), Port::South(wire)),
                Port::East(wire) => ((column + 1, row), Port::West(wire)),
                Port::West(wire) => ((column.wrapping_sub(1), row), Port::East(wire)),
                Port::Core | Port::Control | Port::Fifo | Port::Trace => {
                    return Err(format!("a route to {taker:?} is not modelled"));
                }
            };
            fronts.push((next, entry, switches + 1));
        }
    }
    Err("a route goes in circles".into())
}
