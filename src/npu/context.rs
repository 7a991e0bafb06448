//! A program on the NPU with the buffers that it works on.

use super::kernel::KernelBackend;
use super::program::Program;
use super::xrt::XrtBackend;
use crate::sys::dma_buf::DmaBuf;
use crate::sys::drm::Node;
use crate::sys::xrt::Library;
use crate::{Error, Result};
use std::fmt;
use std::time::{Duration, Instant};

/// One way to the NPU: a hardware context with a program on it, and numbered buffers.
///
/// Dropping it ends the hardware context before any buffer goes: until then a late run may use them.
pub(super) trait Backend {
    /// Makes the next buffer.
    fn allocate(&mut self, bytes: u64) -> Result<()>;

    /// Makes a dma-buf the next buffer.
    fn import(&mut self, buffer: &DmaBuf) -> Result<()>;

    /// Copies `bytes` to a buffer and shows them to the NPU. They fit.
    fn write(&mut self, buffer: usize, bytes: &[u8]) -> Result<()>;

    /// Fills `bytes` from the start of a buffer with what the NPU wrote there. They fit.
    fn read(&mut self, buffer: usize, bytes: &mut [u8]) -> Result<()>;

    /// Starts a run on these buffers.
    fn start(&mut self, arguments: &[usize]) -> Result<()>;

    /// Waits for the run to end. `false`: it has not, within this time.
    fn wait(&mut self, within: Duration) -> Result<bool>;

    /// Ends the hardware context and makes another one. The buffers stay.
    fn restart(&mut self) -> Result<()>;
}

/// What a [`Backend`] answers that could not restart.
pub(super) fn lost() -> Error {
    Error::device("the NPU has not come back", "reload its driver (`modprobe -r amdxdna`, `modprobe amdxdna`)")
}

/// A program that holds columns of the NPU, and its buffers. Both are given back when it is dropped.
pub struct LoadedProgram<'x> {
    program: &'static Program,
    way: Box<dyn Backend + 'x>,
    /// Bytes of each buffer.
    buffers: Vec<u64>,
    /// Whether the last run ended well. If not, it may still be going on.
    usable: bool,
}

/// A buffer of a [`LoadedProgram`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BufferId(usize);

impl fmt::Debug for LoadedProgram<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LoadedProgram { program, buffers, usable, way: _ } = self;
        f.debug_struct("Context")
            .field("program", &program.name)
            .field("buffers", buffers)
            .field("usable", usable)
            .finish_non_exhaustive()
    }
}

impl<'x> LoadedProgram<'x> {
    /// Loads `program` through the kernel's driver, whose accel node is `node`.
    ///
    /// # Errors
    /// Refused: memory or locked memory is short. Device: the driver refuses, or no columns are free.
    pub fn through_kernel(node: Node, program: &'static Program) -> Result<LoadedProgram<'static>> {
        Ok(LoadedProgram::of(program, KernelBackend::new(node, program)?))
    }

    /// Loads `program` through libxrt on the device at the PCI address `slot`, as in `0000:c6:00.1`.
    ///
    /// # Errors
    /// Device: no such device, or libxrt's own.
    pub fn through_xrt(library: &'x Library, slot: &str, program: &'static Program) -> Result<LoadedProgram<'x>> {
        Ok(LoadedProgram::of(program, XrtBackend::new(library, slot, program)?))
    }

    fn of(program: &'static Program, way: impl Backend + 'x) -> LoadedProgram<'x> {
        LoadedProgram { program, way: Box::new(way), buffers: Vec::new(), usable: true }
    }

    /// The program.
    pub fn program(&self) -> &'static Program {
        self.program
    }

    /// Makes a buffer of `bytes` that host and NPU share.
    ///
    /// # Errors
    /// Refused: memory or locked memory is short. Device: the driver refuses.
    pub fn allocate(&mut self, bytes: u64) -> Result<BufferId> {
        self.way.allocate(bytes)?;
        Ok(self.next(bytes))
    }

    /// Takes a dma-buf as a buffer. Its other users wait for the NPU, and the NPU for them, by the host alone.
    ///
    /// # Errors
    /// Device: the driver does not take it.
    pub fn import(&mut self, buffer: &DmaBuf) -> Result<BufferId> {
        self.way.import(buffer)?;
        Ok(self.next(buffer.size()))
    }

    fn next(&mut self, bytes: u64) -> BufferId {
        self.buffers.push(bytes);
        BufferId(self.buffers.len() - 1)
    }

    /// Copies `bytes` to the start of a buffer, where the next run sees them.
    ///
    /// # Errors
    /// Input: they do not fit. Device: the last run failed, or the driver refuses.
    pub fn write(&mut self, buffer: BufferId, bytes: &[u8]) -> Result<()> {
        self.check_usable()?;
        self.check_size(buffer, bytes.len() as u64)?;
        self.way.write(buffer.0, bytes)
    }

    /// Fills `bytes` from the start of a buffer, as the last run left it.
    ///
    /// # Errors
    /// As [`LoadedProgram::write`].
    pub fn read(&mut self, buffer: BufferId, bytes: &mut [u8]) -> Result<()> {
        self.check_usable()?;
        self.check_size(buffer, bytes.len() as u64)?;
        self.way.read(buffer.0, bytes)
    }

    /// Runs the program once on `arguments`, and returns how long it took. If that fails, the context must be
    /// restarted: the NPU may still be using the buffers.
    ///
    /// # Errors
    /// Input: not the buffers that the program takes. Device: the run did not end within `deadline`, ended with an
    /// error, or could not be started; or an earlier one failed.
    pub fn run(&mut self, arguments: &[BufferId], deadline: Duration) -> Result<Duration> {
        self.check_usable()?;
        let takes = self.program.arguments;
        if arguments.len() != takes.len() {
            let cause = format!("{} takes {} buffers, not {}", self.program.name, takes.len(), arguments.len());
            return Err(Error::input(cause, "report this"));
        }
        for (argument, buffer) in takes.iter().zip(arguments) {
            self.check_size(*buffer, argument.bytes)?;
        }
        let arguments: Vec<usize> = arguments.iter().map(|b| b.0).collect();
        self.usable = false;
        let started = Instant::now();
        self.way.start(&arguments)?;
        if !self.way.wait(deadline.saturating_sub(started.elapsed()))? {
            return Err(Error::device(
                format!("{} on the NPU did not end within {:.1} s", self.program.name, deadline.as_secs_f64()),
                "see `dmesg` for amdxdna's messages; end what else uses the NPU or loads the GPU",
            ));
        }
        self.usable = true;
        Ok(started.elapsed())
    }

    /// Ends what is left of a failed run, and loads the program anew. The buffers keep their bytes.
    ///
    /// # Errors
    /// Device: the NPU does not come back. It can be tried again.
    pub fn restart(&mut self) -> Result<()> {
        self.usable = false;
        self.way.restart()?;
        self.usable = true;
        Ok(())
    }

    fn check_usable(&self) -> Result<()> {
        match self.usable {
            true => Ok(()),
            false => Err(Error::device(
                format!("{} on the NPU failed before, and was not restarted", self.program.name),
                "see the first failure",
            )),
        }
    }

    fn check_size(&self, buffer: BufferId, bytes: u64) -> Result<()> {
        match self.buffers.get(buffer.0) {
            Some(&size) if bytes <= size => Ok(()),
            size => {
                let size = size.copied().unwrap_or(0);
                Err(Error::input(format!("{bytes} bytes are not in an NPU buffer of {size}"), "report this"))
            }
        }
    }
}
