//! A driver in the host's memory, for tests: it runs nothing and records its calls.

use super::driver::{DeviceCommand, Driver, HostAccess, Memory, MemorySource, Stamps};
use crate::lower::caps::{Caps, DeviceKind};
use crate::lower::kernels::Kernel;
use crate::sys::dma_buf::{DmaBuf, Mapping, page_size, sealed_memfd};
use crate::{Error, Result};
use std::cell::{Cell, RefCell};
use std::ptr::NonNull;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// The driver, and the calls since the last [`RecordingDriver::take_said`].
pub struct RecordingDriver {
    caps: Caps,
    said: RefCell<Vec<String>>,
    /// Whether its device is lost; then each wait fails.
    pub is_lost: Rc<Cell<bool>>,
    /// Times at which lists were baked.
    pub bakes: RefCell<Vec<Instant>>,
}

impl RecordingDriver {
    pub fn new() -> RecordingDriver {
        let caps = Caps {
            name: "fake".into(),
            kind: DeviceKind::Other,
            subgroup: 32,
            max_allocation: 1 << 30,
            has_clock: true,
            matrix: None,
            dot_accelerated: true,
            tries_relay: false,
            relays_behind: false,
            cache_id: "fake".into(),
        };
        let (said, is_lost, bakes) = Default::default();
        RecordingDriver { caps, said, is_lost, bakes }
    }

    /// The calls since the last [`RecordingDriver::take_said`].
    pub fn take_said(&self) -> Vec<String> {
        self.said.take()
    }

    fn note(&self, what: String) {
        self.said.borrow_mut().push(what);
    }
}

/// Commands as text.
pub fn words(commands: &[DeviceCommand<'_, RecordingDriver>]) -> Vec<String> {
    let word = |command: &DeviceCommand<'_, RecordingDriver>| match command {
        DeviceCommand::Wait(edge) => format!("wait {edge:?}"),
        DeviceCommand::Run { kernel, groups, .. } => format!("{} {}", kernel.module.name(), groups[0]),
        DeviceCommand::Fill(_, range) => format!("fill {}", range.end - range.start),
        DeviceCommand::Copy(copy) => format!("copy {}", copy.bytes),
        DeviceCommand::Stamp(_, number) => format!("stamp {number}"),
    };
    commands.iter().map(word).collect()
}

impl Driver for RecordingDriver {
    type Memory = HostMemory;
    type Baked = usize;
    type Stamps = NoTimes;

    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn allocate(&self, bytes: u64, _: usize, _: HostAccess, source: MemorySource) -> Result<HostMemory> {
        HostMemory::new(bytes, matches!(source, MemorySource::Exported))
    }

    fn compile(&mut self, _: &[Kernel]) -> Result<()> {
        Ok(())
    }

    fn bake(&mut self, commands: &[DeviceCommand<'_, RecordingDriver>]) -> Result<usize> {
        self.note(words(commands).join(", "));
        self.bakes.borrow_mut().push(Instant::now());
        Ok(7)
    }

    fn free(&self, lists: &[usize]) {
        self.note(format!("free {lists:?}"));
    }

    fn stamps(&self, count: usize) -> Result<Option<NoTimes>> {
        Ok(Some(NoTimes(count)))
    }

    unsafe fn submit(&self, lists: &[usize], signal: Option<usize>) -> Result<()> {
        self.note(format!("submit {lists:?}, signal {signal:?}"));
        Ok(())
    }

    fn is_done(&self, _: usize) -> Result<bool> {
        Ok(true)
    }

    fn wait(&self, signal: usize, deadline: Duration) -> Result<()> {
        self.note(format!("wait for {signal}, {} s", deadline.as_secs()));
        match self.is_lost.get() {
            true => Err(Error::device("the device is lost", "see the test")),
            false => Ok(()),
        }
    }

    fn is_hung(&self) -> bool {
        false
    }

    fn finish(&self) {}
}

/// Words of the host's memory. Other devices can access them if they are a memfd's.
pub struct HostMemory {
    words: Vec<u32>,
    shared: Option<(DmaBuf, Mapping)>,
    size: u64,
}

impl HostMemory {
    fn new(size: u64, is_shared: bool) -> Result<HostMemory> {
        let mut memory = HostMemory { words: Vec::new(), shared: None, size };
        if is_shared {
            let buffer = DmaBuf::from_fd(sealed_memfd(size.max(1).next_multiple_of(page_size()))?)?;
            let mapping = buffer.map()?;
            memory.shared = Some((buffer, mapping));
        } else {
            memory.words = vec![0; size as usize / 4];
        }
        Ok(memory)
    }

    fn words(&self) -> &[u32] {
        match &self.shared {
            Some((_, mapping)) => &bytemuck::cast_slice(mapping.bytes())[..self.size as usize / 4],
            None => &self.words,
        }
    }

    fn all_words_mut(&mut self) -> &mut [u32] {
        match &mut self.shared {
            Some((_, mapping)) => &mut bytemuck::cast_slice_mut(mapping.bytes_mut())[..self.size as usize / 4],
            None => &mut self.words,
        }
    }
}

impl Memory for HostMemory {
    fn address(&self) -> u64 {
        self.words().as_ptr() as u64
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn is_cached(&self) -> bool {
        true
    }

    fn hide(&mut self) {}

    fn mapping(&self) -> Option<NonNull<u8>> {
        Some(NonNull::from(self.words()).cast())
    }

    fn mapping_mut(&mut self) -> Option<NonNull<u8>> {
        Some(NonNull::from(self.all_words_mut()).cast())
    }

    fn dma_buf(&self) -> Option<&DmaBuf> {
        self.shared.as_ref().map(|(buffer, _)| buffer)
    }
}

/// Stamps that are never recorded.
pub struct NoTimes(usize);

impl Stamps for NoTimes {
    fn count(&self) -> usize {
        self.0
    }

    fn fetch(&mut self) -> Result<()> {
        Ok(())
    }

    fn seconds(&self, _: usize, _: usize) -> f64 {
        0.0
    }
}
