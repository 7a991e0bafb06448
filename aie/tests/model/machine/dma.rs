//! DMA channels: tasks, and the descriptors that they work through.

use std::collections::VecDeque;

use super::descriptor::{Descriptor, bits};
use super::lock::Locks;
use super::{Fault, Goal, Kind};

/// Tasks that a channel's queue holds.
const TASKS: usize = 4;
/// Descriptors that one direction of a shim uses in a run: real arrays hang with more.
const OF_A_DIRECTION: u32 = 8;

pub struct Dma {
    kind: Kind,
    descriptors: Vec<[u32; 8]>,
    /// Inputs, then outputs.
    pub channels: Vec<Channel>,
    /// A bit for each channel that has a task, and for each of those that may go on.
    busy: u32,
    pub awake: u32,
    /// A bit for each descriptor of a shim whose address is that of an argument.
    patched: u64,
    /// A bit for each descriptor that inputs and outputs have used in this run.
    used: [u64; 2],
}

pub struct Channel {
    pub output: bool,
    pub number: u32,
    /// Words that wait before an input, each with the cycle in which it is there.
    pub words: VecDeque<(u32, u64)>,
    /// The tile and the channel that words come from, where one may wait for room.
    pub feeder: Option<(usize, usize)>,
    /// Where an output's words go, as far as it has been followed since a switch was last written.
    pub goals: Option<Box<[Goal]>>,
    pub traffic: Traffic,
    queue: VecDeque<Task>,
    active: Option<Active>,
    /// Tasks that the host does not know to be done, from the oldest.
    unknown: VecDeque<Unknown>,
}

/// Words that a channel has moved, and the cycles of the first and the last.
#[derive(Clone, Copy, Default, Debug)]
pub struct Traffic {
    pub words: u64,
    pub first: u64,
    pub last: u64,
}

#[derive(Clone, Copy)]
struct Task {
    descriptor: u32,
    repeats: u32,
    token: bool,
}

struct Unknown {
    /// A bit for each descriptor.
    descriptors: u64,
    token: bool,
    done: bool,
}

struct Active {
    task: Task,
    buffer: Descriptor,
    acquired: bool,
    /// The first cycle in which a word can move.
    ready: u64,
    /// Words done, the address of the next and the walk's counters.
    done: u64,
    address: u64,
    counters: [u32; 4],
}

/// Whether a channel can move a word.
#[derive(PartialEq, Eq)]
pub enum State {
    Moves,
    /// In a later cycle it can.
    Later,
    Waits,
}

impl Dma {
    pub fn new(kind: Kind) -> Dma {
        let (descriptors, channels) = if kind == Kind::Memory { (48, 6) } else { (16, 2) };
        let channel = |output: bool, number: u32| Channel {
            output,
            number,
            words: VecDeque::new(),
            feeder: None,
            goals: None,
            traffic: Traffic::default(),
            queue: VecDeque::new(),
            active: None,
            unknown: VecDeque::new(),
        };
        let inputs = (0..channels).map(|number| channel(false, number));
        let outputs = (0..channels).map(|number| channel(true, number));
        Dma {
            kind,
            descriptors: vec![[0; 8]; descriptors],
            channels: inputs.chain(outputs).collect(),
            busy: 0,
            awake: 0,
            patched: 0,
            used: [0; 2],
        }
    }

    /// A lock was released: whoever waits for one looks again.
    pub fn wake(&mut self) {
        self.awake = self.busy;
    }

    /// Words have come for an input, or there is room for an output's.
    pub fn wake_channel(&mut self, index: usize) {
        self.awake |= self.busy & 1 << index;
    }

    /// The index of an input's channel.
    pub fn input(&self, number: u32) -> Result<usize, Fault> {
        let input = self.channels.get(number as usize).filter(|channel| !channel.output);
        input.map(|_| number as usize).ok_or_else(|| format!("there is no input {number}"))
    }

    pub fn channel(&self, output: bool, number: u32) -> Option<&Channel> {
        self.channels.iter().find(|channel| (channel.output, channel.number) == (output, number))
    }

    /// Where the registers of descriptors, inputs and outputs start.
    fn places(&self) -> (u32, u32, u32) {
        match self.kind {
            Kind::Shim => (0x1D000, 0x1D200, 0x1D210),
            Kind::Memory => (0xA0000, 0xA0600, 0xA0630),
            Kind::Core => (0x1D000, 0x1DE00, 0x1DE10),
        }
    }

    /// The descriptor and its word that a register is.
    fn descriptor_word(&self, offset: u32) -> Option<(usize, usize)> {
        let (descriptors, ..) = self.places();
        let index = offset.checked_sub(descriptors)? as usize / 32;
        (index < self.descriptors.len()).then_some((index, (offset % 32) as usize / 4))
    }

    /// Writes a register, or nothing where there is none.
    pub fn write(&mut self, offset: u32, mask: u32, value: u32) -> Option<Result<(), Fault>> {
        if let Some((index, word)) = self.descriptor_word(offset) {
            if let Some(channel) = self.channels.iter().find(|channel| channel.holds(index)) {
                let holder = channel.name();
                return Some(Err(format!(
                    "descriptor {index} is rewritten while {holder} is not known to be done with it"
                )));
            }
            if matches!(word, 1 | 2) {
                self.patched &= !(1 << index);
            }
            let register = &mut self.descriptors[index][word];
            *register = *register & !mask | value & mask;
            return Some(Ok(()));
        }
        let (_, inputs, outputs) = self.places();
        let count = self.channels.len() as u32 / 2;
        let (first, output) = if offset < outputs { (inputs, 0) } else { (outputs, 1) };
        let number = offset.checked_sub(first)? / 8;
        if number >= count {
            return None;
        }
        if offset.is_multiple_of(8) {
            let changes = mask & value != 0;
            return Some(if changes { Err("control of channels is not modelled".into()) } else { Ok(()) });
        }
        let task = Task { descriptor: value & 63, repeats: bits(value, 16, 23), token: value >> 31 == 1 };
        Some(self.queue((output * count + number) as usize, task))
    }

    /// Puts the address of an argument into the registers that start here: word 1 of a shim's descriptor.
    pub fn patch(&mut self, offset: u32, address: u64) -> Result<(), Fault> {
        let Some((index, 1)) = self.descriptor_word(offset).filter(|_| self.kind == Kind::Shim) else {
            return Err(format!("an argument's address is put at {offset:#x}, where no shim's descriptor has one"));
        };
        for (offset, mask, value) in [(offset, u32::MAX, address as u32), (offset + 4, 0xFFFF, (address >> 32) as u32)]
        {
            self.write(offset, mask, value).unwrap_or(Ok(()))?;
        }
        self.patched |= 1 << index;
        Ok(())
    }

    fn queue(&mut self, index: usize, task: Task) -> Result<(), Fault> {
        let descriptors = self.chain(task.descriptor);
        let channel = &mut self.channels[index];
        if channel.unknown.len() >= TASKS {
            let name = channel.name();
            return Err(format!("{name} has {TASKS} tasks that are not known to be done, and gets another"));
        }
        if self.kind == Kind::Shim {
            let absolute = descriptors & !self.patched;
            if absolute != 0 {
                let number = absolute.trailing_zeros();
                return Err(format!("descriptor {number} has an absolute address, not that of an argument"));
            }
            let used = &mut self.used[usize::from(channel.output)];
            *used |= descriptors;
            if used.count_ones() > OF_A_DIRECTION {
                let direction = if channel.output { "outputs" } else { "inputs" };
                return Err(format!("{direction} use more than {OF_A_DIRECTION} descriptors in a run"));
            }
        }
        channel.queue.push_back(task);
        channel.unknown.push_back(Unknown { descriptors, token: task.token, done: false });
        self.busy |= 1 << index;
        self.awake |= 1 << index;
        Ok(())
    }

    /// A bit for each descriptor of a task that begins with this one.
    fn chain(&self, first: u32) -> u64 {
        let (mut chain, mut next) = (0u64, Some(first));
        while let Some(number) = next.filter(|number| chain >> number & 1 == 0) {
            chain |= 1 << number;
            next = self.descriptors.get(number as usize).and_then(|words| Descriptor::next(self.kind, words));
        }
        chain
    }

    /// The host has waited for a token of this channel: all up to the task that gave it are done.
    pub fn know(&mut self, output: bool, number: u32) {
        let channel = self.channels.iter_mut().find(|channel| (channel.output, channel.number) == (output, number));
        let Some(channel) = channel else { return };
        while channel.unknown.pop_front().is_some_and(|task| !task.token) {}
    }

    /// A run is over: what is done is known to be, since what the run waits for came of it.
    pub fn end_run(&mut self) {
        self.used = [0; 2];
        for channel in &mut self.channels {
            while channel.unknown.front().is_some_and(|task| task.done) {
                channel.unknown.pop_front();
            }
        }
    }

    fn load(&mut self, index: usize, number: u32) -> Result<Descriptor, Fault> {
        let kind = self.kind;
        let words = self.descriptors.get_mut(number as usize);
        let words = words.ok_or_else(|| format!("there is no descriptor {number}"))?;
        if !Descriptor::is_valid(kind, words) {
            return Err(format!("descriptor {number} is not valid"));
        }
        // Even channels of a memory tile have the first half of the descriptors, odd ones the second.
        if kind == Kind::Memory && number / 24 != self.channels[index].number % 2 {
            return Err(format!("descriptor {number} is out of reach of channel {}", self.channels[index].number));
        }
        Descriptor::load(kind, words).map_err(|fault| format!("descriptor {number}: {fault}"))
    }

    /// Whether a channel has a word of a buffer to move: it takes the next task and waits for the lock.
    pub fn begin(&mut self, index: usize, locks: &mut Locks, now: u64) -> Result<State, Fault> {
        if self.channels[index].active.is_none() {
            let Some(task) = self.channels[index].queue.pop_front() else { return Ok(State::Waits) };
            self.start(index, task, task.descriptor, now)?;
        }
        let first = if self.kind == Kind::Memory { 64 } else { 0 };
        let Some(active) = &mut self.channels[index].active else { return Ok(State::Waits) };
        if now < active.ready {
            return Ok(State::Later);
        }
        if !active.acquired {
            active.acquired = match active.buffer.acquire {
                None => true,
                Some((lock, value)) => locks.acquire(own_lock(lock, first)?, value)?,
            };
        }
        Ok(if active.acquired { State::Moves } else { State::Waits })
    }

    /// Ends a buffer that is done; whether that ends a task that gives a token.
    pub fn finish(&mut self, index: usize, locks: &mut Locks, now: u64) -> Result<bool, Fault> {
        let first = if self.kind == Kind::Memory { 64 } else { 0 };
        let Some(active) = &self.channels[index].active else { return Ok(false) };
        if active.done < active.buffer.words {
            return Ok(false);
        }
        if let Some((lock, value)) = active.buffer.release {
            locks.release(own_lock(lock, first)?, value)?;
        }
        let (task, next) = (active.task, active.buffer.next);
        let channel = &mut self.channels[index];
        channel.active = None;
        // Between two buffers a channel is idle for a cycle.
        let ready = now + 2;
        match (next, task.repeats) {
            (Some(next), _) => self.start(index, task, next, ready)?,
            (None, 0) => {
                if let Some(task) = channel.unknown.iter_mut().find(|task| !task.done) {
                    task.done = true;
                }
                if channel.queue.is_empty() {
                    self.busy &= !(1 << index);
                    self.awake &= self.busy;
                }
                return Ok(task.token);
            }
            (None, repeats) => self.start(index, Task { repeats: repeats - 1, ..task }, task.descriptor, ready)?,
        }
        Ok(false)
    }

    fn start(&mut self, index: usize, task: Task, number: u32, ready: u64) -> Result<(), Fault> {
        let buffer = self.load(index, number)?;
        let address = buffer.base;
        let active = Active { task, buffer, acquired: false, ready, done: 0, address, counters: [0; 4] };
        self.channels[index].active = Some(active);
        Ok(())
    }
}

/// A memory tile sees its neighbours' locks too: its own come second.
fn own_lock(lock: u32, first: u32) -> Result<u32, Fault> {
    match lock.checked_sub(first) {
        Some(own) if first == 0 || own < 64 => Ok(own),
        _ => Err(format!("a neighbour's lock, {lock}, is not modelled")),
    }
}

impl Channel {
    fn name(&self) -> String {
        format!("{} {}", if self.output { "output" } else { "input" }, self.number)
    }

    /// Whether a task that is not known to be done has the descriptor.
    fn holds(&self, descriptor: usize) -> bool {
        self.unknown.iter().any(|task| task.descriptors >> descriptor & 1 == 1)
    }

    /// The address of the next word, where there is one.
    pub fn address(&self) -> Option<u64> {
        self.active.as_ref().filter(|active| active.done < active.buffer.words).map(|active| active.address)
    }

    /// Goes on to the next word.
    pub fn advance(&mut self, now: u64) {
        let traffic = &mut self.traffic;
        if traffic.words == 0 {
            traffic.first = now;
        }
        (traffic.words, traffic.last) = (traffic.words + 1, now);
        let Some(active) = &mut self.active else { return };
        active.done += 1;
        for dimension in 0..4 {
            let (count, step) = (active.buffer.counts[dimension], active.buffer.steps[dimension]);
            active.address += step;
            active.counters[dimension] += 1;
            if active.counters[dimension] != count {
                return;
            }
            active.address -= step * u64::from(count);
            active.counters[dimension] = 0;
        }
    }

    /// What the channel waits for, where it has a task.
    pub fn waits_for(&self) -> Option<String> {
        let active = self.active.as_ref()?;
        let name = self.name();
        Some(match (active.acquired, active.buffer.acquire) {
            (false, Some((lock, _))) => format!("{name} for lock {lock}"),
            _ if self.output => format!("{name} for room"),
            _ => format!("{name} for words"),
        })
    }
}
