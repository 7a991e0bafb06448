//! A group of columns that streams join, cycle by cycle: their cores, DMA channels and switches. Groups share nothing but
//! the host's memory, so each runs on a thread of its own.
//!
//! A channel moves a word a cycle. A word takes a cycle for each switch that it passes, and a switch holds a few. Between
//! two buffers a channel is idle for a cycle, as it was seen on a Phoenix (FIM43-Redeye/xdna-emu, dma/timing.rs). Results
//! must not depend on any of this.

use super::dma::State;
use super::{Fault, Goal, HostBuffer, Kind, Place, ROWS, Task, Tile, stream};

/// Words that a switch holds of a stream.
const ROOM: usize = 4;

pub struct Group<'a> {
    pub tiles: &'a mut [Tile],
    /// Of the group's own columns.
    pub first_column: u32,
    pub host: &'a [HostBuffer],
    pub cycle: u64,
    pub core_period: u64,
    pub host_period: u64,
    /// Tokens that have reached the firmware.
    pub tokens: Vec<Task>,
}

impl Group<'_> {
    /// Runs until nothing moves any more, and no further than to a cycle.
    pub fn settle(&mut self, limit: u64) -> Result<(), Fault> {
        while self.step()? {
            if self.cycle > limit {
                return Err(format!("it runs on for more than {limit} cycles"));
            }
        }
        Ok(())
    }

    /// One cycle of everything; whether anything moved or will.
    fn step(&mut self) -> Result<bool, Fault> {
        self.cycle += 1;
        let mut moved = false;
        for index in 0..self.tiles.len() {
            moved |= self.step_tile(index).map_err(|fault| format!("tile {:?}: {fault}", self.tiles[index].place))?;
        }
        Ok(moved)
    }

    fn step_tile(&mut self, index: usize) -> Result<bool, Fault> {
        let idles = self.core_period > 1 && !self.cycle.is_multiple_of(self.core_period);
        let tile = &mut self.tiles[index];
        if !tile.awake && tile.dma.awake == 0 {
            return Ok(false);
        }
        let mut moved = false;
        if let Tile { memory, locks, core: Some(core), awake: true, .. } = tile {
            // A core whose turn it is not may yet go on.
            let goes_on = if idles { !core.is_off() } else { core.step(memory, locks)? };
            tile.awake = goes_on;
            moved = goes_on;
            wake(tile);
        }
        let mut from = 0;
        loop {
            let awake = self.tiles[index].dma.awake >> from;
            if awake == 0 {
                return Ok(moved);
            }
            let channel = from + awake.trailing_zeros() as usize;
            let goes_on = self.step_channel(index, channel)?;
            let tile = &mut self.tiles[index];
            if !goes_on {
                tile.dma.awake &= !(1 << channel);
            }
            moved |= goes_on;
            wake(tile);
            from = channel + 1;
        }
    }

    fn step_channel(&mut self, tile: usize, index: usize) -> Result<bool, Fault> {
        let now = self.cycle;
        let Tile { locks, dma, place, .. } = &mut self.tiles[tile];
        match dma.begin(index, locks, now)? {
            State::Moves => {}
            other => return Ok(other == State::Later),
        }
        let place = *place;
        let channel = &dma.channels[index];
        let (output, number) = (channel.output, channel.number);
        if super::kind(place) == Kind::Shim && !output && !now.is_multiple_of(self.host_period) {
            // A channel whose turn it is not may yet go on.
            return Ok(!channel.words.is_empty());
        }
        if let Some(address) = channel.address() {
            let moved = if output { self.send(tile, index, address)? } else { self.receive(tile, index, address)? };
            if moved != State::Moves {
                return Ok(moved == State::Later);
            }
        }
        let Tile { locks, dma, .. } = &mut self.tiles[tile];
        if dma.finish(index, locks, now)? {
            self.send_token(tile)?;
            self.tokens.push((place, output, number));
        }
        Ok(true)
    }

    /// Sends a word, where all that it goes to have room.
    fn send(&mut self, tile: usize, index: usize, address: u64) -> Result<State, Fault> {
        let goals = match self.tiles[tile].dma.channels[index].goals.take() {
            Some(goals) => goals,
            None => self.goals(tile, index)?,
        };
        let sent = self.send_to(tile, index, address, &goals);
        self.tiles[tile].dma.channels[index].goals = Some(goals);
        sent
    }

    fn send_to(&mut self, tile: usize, index: usize, address: u64, goals: &[Goal]) -> Result<State, Fault> {
        for goal in goals {
            let waiting = self.tiles[goal.tile].dma.channels[goal.channel].words.len();
            if waiting >= ROOM * goal.switches as usize {
                self.tiles[goal.tile].dma.channels[goal.channel].feeder = Some((tile, index));
                return Ok(State::Waits);
            }
        }
        let word = self.read_word(tile, address)?;
        for goal in goals {
            let arrival = self.cycle + u64::from(goal.switches);
            let dma = &mut self.tiles[goal.tile].dma;
            dma.channels[goal.channel].words.push_back((word, arrival));
            dma.wake_channel(goal.channel);
        }
        self.tiles[tile].dma.channels[index].advance(self.cycle);
        Ok(State::Moves)
    }

    /// The inputs that an output's words reach.
    fn goals(&self, tile: usize, index: usize) -> Result<Box<[Goal]>, Fault> {
        let tile_at = |(column, row): Place| {
            let index = column.checked_sub(self.first_column).map(|column| (column * ROWS + row) as usize);
            index.filter(|_| row < ROWS).and_then(|index| Some((index, self.tiles.get(index)?)))
        };
        let switch = |place: Place| tile_at(place).map(|(_, tile)| &tile.switch);
        let channel = &self.tiles[tile].dma.channels[index];
        let ends = stream::ends(switch, self.tiles[tile].place, channel.number)?;
        let goals = ends.into_iter().map(|end| {
            let (tile, found) = tile_at(end.place).ok_or("a route leaves the array")?;
            Ok(Goal { tile, channel: found.dma.input(end.input)?, switches: end.switches })
        });
        goals.collect()
    }

    fn receive(&mut self, tile: usize, index: usize, address: u64) -> Result<State, Fault> {
        let channel = &mut self.tiles[tile].dma.channels[index];
        match channel.words.front() {
            None => return Ok(State::Waits),
            Some((_, arrival)) if *arrival > self.cycle => return Ok(State::Later),
            Some(_) => {}
        }
        let Some((word, _)) = channel.words.pop_front() else { return Ok(State::Waits) };
        channel.advance(self.cycle);
        if let Some((tile, index)) = channel.feeder.take() {
            self.tiles[tile].dma.wake_channel(index);
        }
        self.write_word(tile, address, word)?;
        Ok(State::Moves)
    }

    fn read_word(&self, tile: usize, address: u64) -> Result<u32, Fault> {
        let Tile { place, memory, .. } = &self.tiles[tile];
        let word = match super::kind(*place) {
            Kind::Shim => {
                let buffer = self.buffer(address)?;
                buffer.memory.word(address - buffer.address)
            }
            Kind::Memory => memory.word(own(address)?)?,
            Kind::Core => memory.word(address)?,
        };
        word.ok_or_else(|| format!("it reads memory that nothing has written, at {address:#x}"))
    }

    fn write_word(&mut self, tile: usize, address: u64, word: u32) -> Result<(), Fault> {
        match super::kind(self.tiles[tile].place) {
            Kind::Shim => {
                let buffer = self.buffer(address)?;
                buffer.memory.write_word(address - buffer.address, word);
                Ok(())
            }
            Kind::Memory => self.tiles[tile].memory.write_word(own(address)?, word),
            Kind::Core => self.tiles[tile].memory.write_word(address, word),
        }
    }

    /// The host's buffer that has an address.
    fn buffer(&self, address: u64) -> Result<&HostBuffer, Fault> {
        let holds = |buffer: &&HostBuffer| {
            address.checked_sub(buffer.address).is_some_and(|offset| offset < buffer.memory.len())
        };
        self.host.iter().find(holds).ok_or_else(|| format!("the host has no memory at {address:#x}"))
    }

    /// A token leaves by the shim's first south port.
    fn send_token(&self, tile: usize) -> Result<(), Fault> {
        let Tile { place, switch, .. } = &self.tiles[tile];
        if super::kind(*place) != Kind::Shim {
            return Err("tokens of other tiles than shims are not modelled".into());
        }
        switch.token_leaves()
    }
}

/// Has whoever waits for a lock of the tile look again, where one was released.
fn wake(tile: &mut Tile) {
    if std::mem::take(&mut tile.locks.released) {
        tile.awake = tile.core.is_some();
        tile.dma.wake();
    }
}

/// The offset of an address in a memory tile's own memory: its DMA sees a neighbour's first.
fn own(address: u64) -> Result<u64, Fault> {
    match address.checked_sub(0x80000) {
        Some(own) if own < 0x80000 => Ok(own),
        _ => Err(format!("a neighbour's memory, {address:#x}, is not modelled")),
    }
}
