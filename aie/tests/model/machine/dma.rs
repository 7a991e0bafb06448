//! DMA channels: tasks, and the descriptors that they work through.

use std::collections::VecDeque;

use super::lock::Locks;
use super::{Fault, Kind, Words};

/// Words that wait before an input.
pub const ROOM: usize = 4;
/// Tasks that a channel's queue holds.
const TASKS: usize = 4;

pub struct Dma {
    kind: Kind,
    descriptors: Vec<[u32; 8]>,
    /// Inputs, then outputs.
    pub channels: Vec<Channel>,
}

pub struct Channel {
    pub output: bool,
    pub number: u32,
    pub words: Words,
    queue: VecDeque<Task>,
    active: Option<Active>,
}

#[derive(Clone, Copy)]
struct Task {
    descriptor: u32,
    repeats: u32,
    token: bool,
}

struct Active {
    task: Task,
    buffer: Descriptor,
    acquired: bool,
    /// Words done, and the walk's counters.
    done: u64,
    counters: [u64; 4],
}

/// A descriptor as it is read from its registers. Addresses and steps are in bytes.
struct Descriptor {
    base: u64,
    words: u64,
    /// 0 is without end.
    counts: [u64; 4],
    steps: [u64; 4],
    acquire: Option<(u32, i32)>,
    release: Option<(u32, i32)>,
    next: Option<u32>,
}

/// The bits of a word from `low` to `high`.
fn bits(word: u32, low: u32, high: u32) -> u32 {
    word >> low & (u32::MAX >> (31 - (high - low)))
}

/// The same, signed.
fn signed(word: u32, low: u32, high: u32) -> i32 {
    (word << (31 - high)) as i32 >> (31 - (high - low))
}

impl Descriptor {
    /// Reads the registers as AM025 gives them for each kind of tile.
    fn of(kind: Kind, words: &[u32; 8]) -> Result<Descriptor, Fault> {
        let step = |field: u32| 4 * (u64::from(field) + 1);
        let count = u64::from;
        let strange = |parts: &[u32]| parts.iter().any(|part| *part != 0);
        let refuse = Err("packets, compression, padding and iterations are not modelled".to_string());
        match kind {
            Kind::Memory => {
                if strange(&[words[0] >> 17, words[1] >> 26, words[2] >> 31, words[3] >> 27, words[4] >> 27])
                    || strange(&[words[5] >> 17, words[6]])
                {
                    return refuse;
                }
                let acquire = (words[7] >> 15 & 1 == 1).then(|| (bits(words[7], 0, 7), signed(words[7], 8, 14)));
                let release = (bits(words[7], 16, 23), signed(words[7], 24, 30));
                Ok(Descriptor {
                    base: 4 * u64::from(bits(words[1], 0, 18)),
                    words: u64::from(bits(words[0], 0, 16)),
                    counts: [
                        count(bits(words[2], 17, 26)),
                        count(bits(words[3], 17, 26)),
                        count(bits(words[4], 17, 26)),
                        0,
                    ],
                    steps: [
                        step(bits(words[2], 0, 16)),
                        step(bits(words[3], 0, 16)),
                        step(bits(words[4], 0, 16)),
                        step(bits(words[5], 0, 16)),
                    ],
                    acquire,
                    release: (release.1 != 0).then_some(release),
                    next: (words[1] >> 19 & 1 == 1).then(|| bits(words[1], 20, 25)),
                })
            }
            Kind::Core | Kind::Shim => {
                // The last word is the same for both.
                let last = words[if kind == Kind::Core { 5 } else { 7 }];
                let acquire = (last >> 12 & 1 == 1).then(|| (bits(last, 0, 3), signed(last, 5, 11)));
                let release = (bits(last, 13, 16), signed(last, 18, 24));
                let release = (release.1 != 0).then_some(release);
                let next = (last >> 26 & 1 == 1).then(|| bits(last, 27, 30));
                if kind == Kind::Core {
                    if strange(&[words[0] >> 28, words[1], words[2] >> 26, words[3] >> 29, words[4], last >> 31]) {
                        return refuse;
                    }
                    return Ok(Descriptor {
                        base: 4 * u64::from(bits(words[0], 14, 27)),
                        words: u64::from(bits(words[0], 0, 13)),
                        counts: [count(bits(words[3], 13, 20)), count(bits(words[3], 21, 28)), 0, 0],
                        steps: [
                            step(bits(words[2], 0, 12)),
                            step(bits(words[2], 13, 25)),
                            step(bits(words[3], 0, 12)),
                            0,
                        ],
                        acquire,
                        release,
                        next,
                    });
                }
                // Of the shim's only the fields of its bus are passed over: bursts, cache, quality of service.
                if strange(&[words[1] & 3, words[2] >> 16, words[3] >> 30, words[6], last >> 31]) {
                    return refuse;
                }
                Ok(Descriptor {
                    base: u64::from(words[2]) << 32 | u64::from(words[1]),
                    words: u64::from(words[0]),
                    counts: [count(bits(words[3], 20, 29)), count(bits(words[4], 20, 29)), 0, 0],
                    steps: [step(bits(words[3], 0, 19)), step(bits(words[4], 0, 19)), step(bits(words[5], 0, 19)), 0],
                    acquire,
                    release,
                    next,
                })
            }
        }
    }
}

impl Dma {
    pub fn new(kind: Kind) -> Dma {
        let (descriptors, channels) = if kind == Kind::Memory { (48, 6) } else { (16, 2) };
        let channel = |output: bool, number: u32| Channel {
            output,
            number,
            words: Words::new(),
            queue: VecDeque::new(),
            active: None,
        };
        let inputs = (0..channels).map(|number| channel(false, number));
        let outputs = (0..channels).map(|number| channel(true, number));
        Dma { kind, descriptors: vec![[0; 8]; descriptors], channels: inputs.chain(outputs).collect() }
    }

    /// Whether no channel has a task.
    pub fn is_idle(&self) -> bool {
        self.channels.iter().all(|channel| channel.active.is_none() && channel.queue.is_empty())
    }

    pub fn input(&self, number: u32) -> Result<&Channel, Fault> {
        let input = self.channels.get(number as usize).filter(|channel| !channel.output);
        input.ok_or_else(|| format!("there is no input {number}"))
    }

    pub fn input_mut(&mut self, number: u32) -> Result<&mut Channel, Fault> {
        let input = self.channels.get_mut(number as usize).filter(|channel| !channel.output);
        input.ok_or_else(|| format!("there is no input {number}"))
    }

    /// Writes a register, or nothing where there is none.
    pub fn write(&mut self, offset: u32, mask: u32, value: u32) -> Option<Result<(), Fault>> {
        let (descriptors, inputs, outputs) = match self.kind {
            Kind::Shim => (0x1D000, 0x1D200, 0x1D210),
            Kind::Memory => (0xA0000, 0xA0600, 0xA0630),
            Kind::Core => (0x1D000, 0x1DE00, 0x1DE10),
        };
        if offset >= descriptors && offset < descriptors + 32 * self.descriptors.len() as u32 {
            let word = &mut self.descriptors[(offset - descriptors) as usize / 32][(offset % 32) as usize / 4];
            *word = *word & !mask | value & mask;
            return Some(Ok(()));
        }
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

    fn queue(&mut self, index: usize, task: Task) -> Result<(), Fault> {
        let queue = &mut self.channels[index].queue;
        if queue.len() >= TASKS {
            return Err(format!("channel {index} has {TASKS} tasks waiting, and gets another"));
        }
        queue.push_back(task);
        Ok(())
    }

    fn descriptor(&self, index: usize, number: u32) -> Result<Descriptor, Fault> {
        let words = self.descriptors.get(number as usize).ok_or_else(|| format!("there is no descriptor {number}"))?;
        let valid = match self.kind {
            Kind::Shim => words[7] >> 25 & 1,
            Kind::Memory => words[7] >> 31,
            Kind::Core => words[5] >> 25 & 1,
        };
        if valid == 0 {
            return Err(format!("descriptor {number} is not valid"));
        }
        // Even channels of a memory tile have the first half of the descriptors, odd ones the second.
        if self.kind == Kind::Memory && number / 24 != self.channels[index].number % 2 {
            return Err(format!("descriptor {number} is out of reach of channel {}", self.channels[index].number));
        }
        Descriptor::of(self.kind, words).map_err(|fault| format!("descriptor {number}: {fault}"))
    }

    /// Whether a channel has a buffer to move: it takes the next task and waits for the lock.
    pub fn begin(&mut self, index: usize, locks: &mut Locks) -> Result<bool, Fault> {
        if self.channels[index].active.is_none() {
            let Some(task) = self.channels[index].queue.pop_front() else { return Ok(false) };
            self.start(index, task, task.descriptor)?;
        }
        let first = if self.kind == Kind::Memory { 64 } else { 0 };
        let Some(active) = &mut self.channels[index].active else { return Ok(false) };
        if !active.acquired {
            active.acquired = match active.buffer.acquire {
                None => true,
                Some((lock, value)) => locks.acquire(own_lock(lock, first)?, value)?,
            };
        }
        Ok(active.acquired)
    }

    /// Ends a buffer that is done; whether that ends a task that gives a token.
    pub fn finish(&mut self, index: usize, locks: &mut Locks) -> Result<bool, Fault> {
        let first = if self.kind == Kind::Memory { 64 } else { 0 };
        let Some(active) = &self.channels[index].active else { return Ok(false) };
        if active.done < active.buffer.words {
            return Ok(false);
        }
        if let Some((lock, value)) = active.buffer.release {
            locks.release(own_lock(lock, first)?, value)?;
        }
        let (task, next) = (active.task, active.buffer.next);
        self.channels[index].active = None;
        match (next, task.repeats) {
            (Some(next), _) => self.start(index, task, next)?,
            (None, 0) => return Ok(task.token),
            (None, repeats) => self.start(index, Task { repeats: repeats - 1, ..task }, task.descriptor)?,
        }
        Ok(false)
    }

    fn start(&mut self, index: usize, task: Task, number: u32) -> Result<(), Fault> {
        let buffer = self.descriptor(index, number)?;
        self.channels[index].active = Some(Active { task, buffer, acquired: false, done: 0, counters: [0; 4] });
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
    pub fn is_moving(&self) -> bool {
        self.active.as_ref().is_some_and(|active| active.done < active.buffer.words)
    }

    /// The address of the next word.
    pub fn address(&self) -> u64 {
        self.active.as_ref().map_or(0, |active| {
            let steps = active.counters.iter().zip(active.buffer.steps);
            active.buffer.base + steps.map(|(counter, step)| counter * step).sum::<u64>()
        })
    }

    pub fn advance(&mut self) {
        let Some(active) = &mut self.active else { return };
        active.done += 1;
        for (counter, count) in active.counters.iter_mut().zip(active.buffer.counts) {
            *counter += 1;
            if *counter != count {
                return;
            }
            *counter = 0;
        }
    }

    /// What the channel waits for, where it has a task.
    pub fn waits_for(&self) -> Option<String> {
        let active = self.active.as_ref()?;
        let name = format!("{} {}", if self.output { "output" } else { "input" }, self.number);
        Some(match (active.acquired, active.buffer.acquire) {
            (false, Some((lock, _))) => format!("{name} for lock {lock}"),
            _ if self.output => format!("{name} for room"),
            _ => format!("{name} for words"),
        })
    }
}
