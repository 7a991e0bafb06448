//! A program on the NPU with its buffers.

use super::kernel::KernelBackend;
use super::program::Program;
use super::xrt::XrtBackend;
use crate::sys::dma_buf::DmaBuf;
use crate::sys::drm::Node;
use crate::sys::xrt::Library;
use crate::{Error, Result};
use std::fmt;
use std::ops::Range;
use std::time::{Duration, Instant};

/// A driver interface to the NPU: a hardware context with a program on it, and numbered buffers.
///
/// Dropping it ends the hardware context before any buffer is freed: until then a late run may use them.
pub(super) trait Backend {
    /// Allocates the next buffer.
    fn allocate(&mut self, bytes: u64) -> Result<()>;

    /// Imports a dma-buf as the next buffer.
    fn import(&mut self, buffer: &DmaBuf) -> Result<()>;

    /// Whether a command's arguments may begin at any byte of a buffer, and not only at its start.
    fn takes_offsets(&self) -> bool {
        true
    }

    /// Calls `write` to set pieces of a buffer, and makes them visible to the NPU before the next command starts. The
    /// pieces lie in the buffer. Their initial content is undefined, and so is the content of bytes between them
    /// afterwards.
    fn write(&mut self, buffer: usize, pieces: BufferPieces, write: &mut dyn FnMut(&mut [u8])) -> Result<()>;

    /// Calls `read` with pieces of a buffer as the NPU wrote them. The pieces lie in the buffer. Bytes between them are
    /// undefined.
    fn read(&mut self, buffer: usize, pieces: BufferPieces, read: &mut dyn FnMut(&[u8])) -> Result<()>;

    /// Creates the next command, with room for `bytes` of instructions.
    fn add_command(&mut self, bytes: usize) -> Result<()>;

    /// Writes `bytes` to a command's instruction stream from byte `from` on, after which the stream has `total` bytes.
    /// The caller checks that they fit.
    fn write_stream(&mut self, command: usize, from: usize, bytes: &[u8], total: usize) -> Result<()>;

    /// Starts a command on these buffers, each from a byte offset on.
    fn start(&mut self, command: usize, arguments: &[(usize, u64)]) -> Result<()>;

    /// Waits for a command to end. `false`: it has not ended within this time.
    fn wait(&mut self, command: usize, within: Duration) -> Result<bool>;
}

/// Pieces of a buffer of equal size at equal distances. Accessors get all bytes from the first's start to the last's
/// end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BufferPieces {
    /// Bytes from the buffer's start to the first piece.
    pub first: usize,
    /// Bytes of each piece.
    pub bytes: usize,
    /// Bytes from one piece's start to the next's.
    pub step: usize,
    /// Number of pieces.
    pub count: usize,
}

impl BufferPieces {
    /// One piece.
    pub fn whole(first: usize, bytes: usize) -> BufferPieces {
        BufferPieces { first, bytes, step: bytes, count: 1 }
    }

    /// The bytes from the first's start to the last's end.
    pub fn range(self) -> Range<usize> {
        let before = self.step.saturating_mul(self.count.saturating_sub(1));
        self.first..self.first.saturating_add(before).saturating_add(self.bytes)
    }

    /// The range of each piece, counted from the first's start.
    pub fn each(self) -> impl Iterator<Item = Range<usize>> {
        (0..self.count).map(move |piece| piece * self.step..piece * self.step + self.bytes)
    }
}

/// The remedy for a fault of Kiln itself.
const REPORT: &str = "report this";

/// Most commands in flight: the firmware accepts no more per context.
pub(super) const MOST_RUNNING: usize = 4;

/// A program that holds columns of the NPU, its buffers and its commands. All are freed when it is dropped.
pub struct LoadedProgram<'x> {
    program: &'static Program,
    way: Box<dyn Backend + 'x>,
    /// Bytes of each buffer.
    buffers: Vec<u64>,
    /// Command 0 runs the program's own instruction stream, the others those of the caller.
    commands: Vec<NpuCommand>,
    /// False after a failed or late command. Others may still be running then, and the context is unusable.
    usable: bool,
}

/// An instruction stream on the NPU, and its buffers.
#[derive(Debug)]
struct NpuCommand {
    /// Bytes allocated for the instruction stream, and bytes that it has now.
    room: usize,
    length: usize,
    /// The buffers that it uses, while it runs.
    runs_on: Option<Vec<usize>>,
}

/// A command of a [`LoadedProgram`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommandId(usize);

/// The command that runs the instruction stream that the program comes with.
const OWN: CommandId = CommandId(0);

/// A buffer of a [`LoadedProgram`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BufferId(usize);

impl fmt::Debug for LoadedProgram<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LoadedProgram { program, buffers, commands, usable, .. } = self;
        f.debug_struct("Context")
            .field("program", &program.name)
            .field("buffers", buffers)
            .field("commands", commands)
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
        LoadedProgram::of(program, KernelBackend::new(node, program)?)
    }

    /// Loads `program` through libxrt on the device at the PCI address `slot`, as in `0000:c6:00.1`.
    ///
    /// # Errors
    /// Device: no such device, or libxrt's own.
    pub fn through_xrt(library: &'x Library, slot: &str, program: &'static Program) -> Result<LoadedProgram<'x>> {
        LoadedProgram::of(program, XrtBackend::new(library, slot, program)?)
    }

    pub(super) fn of(program: &'static Program, way: impl Backend + 'x) -> Result<LoadedProgram<'x>> {
        let (buffers, commands) = (Vec::new(), Vec::new());
        let mut loaded = LoadedProgram { program, way: Box::new(way), buffers, commands, usable: true };
        let own = loaded.add_command(program.sequence.len())?;
        loaded.set_stream(own, program.sequence)?;
        Ok(loaded)
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

    /// Imports a dma-buf as a buffer. Only the host orders accesses of the NPU and of other devices.
    ///
    /// # Errors
    /// Device: the driver refuses the dma-buf.
    pub fn import(&mut self, buffer: &DmaBuf) -> Result<BufferId> {
        self.way.import(buffer)?;
        Ok(self.next(buffer.size()))
    }

    /// True if [`LoadedProgram::start`] accepts offsets other than 0 within buffers. libxrt's does not.
    pub fn takes_offsets(&self) -> bool {
        self.way.takes_offsets()
    }

    fn next(&mut self, bytes: u64) -> BufferId {
        self.buffers.push(bytes);
        BufferId(self.buffers.len() - 1)
    }

    /// Creates a command with room for `bytes` of instructions.
    ///
    /// # Errors
    /// Refused: memory is short. Device: the driver refuses.
    pub fn add_command(&mut self, bytes: usize) -> Result<CommandId> {
        self.way.add_command(bytes)?;
        self.commands.push(NpuCommand { room: bytes, length: 0, runs_on: None });
        Ok(CommandId(self.commands.len() - 1))
    }

    /// Sets a command's instruction stream.
    ///
    /// # Errors
    /// Input: the stream does not fit, or the command runs. Device: a command failed, or the driver refuses.
    pub fn set_stream(&mut self, command: CommandId, stream: &[u8]) -> Result<()> {
        self.check_at_rest(command)?;
        let CommandId(index) = command;
        if stream.len() > self.commands[index].room {
            let room = self.commands[index].room;
            return Err(Error::input(format!("an NPU command of {} bytes has room for {room}", stream.len()), REPORT));
        }
        self.way.write_stream(index, 0, stream, stream.len())?;
        self.commands[index].length = stream.len();
        Ok(())
    }

    /// Changes bytes of a command's stream in place, from byte `from` on.
    ///
    /// # Errors
    /// As [`LoadedProgram::set_stream`].
    pub fn patch_stream(&mut self, command: CommandId, from: usize, bytes: &[u8]) -> Result<()> {
        self.check_at_rest(command)?;
        let CommandId(index) = command;
        let length = self.commands[index].length;
        if from.checked_add(bytes.len()).is_none_or(|end| end > length) {
            let cause = format!("{} bytes from {from} are not in an NPU command of {length}", bytes.len());
            return Err(Error::input(cause, REPORT));
        }
        self.way.write_stream(index, from, bytes, length)
    }

    /// Copies `bytes` to the start of a buffer, visible to the next run.
    ///
    /// # Errors
    /// Input: they do not fit, or a running command uses the buffer. Device: a command failed, or the driver refuses.
    pub fn write(&mut self, buffer: BufferId, bytes: &[u8]) -> Result<()> {
        self.write_from(buffer, 0, bytes)
    }

    /// [`LoadedProgram::write`] from byte `from` of the buffer on.
    ///
    /// # Errors
    /// As [`LoadedProgram::write`].
    pub fn write_from(&mut self, buffer: BufferId, from: usize, bytes: &[u8]) -> Result<()> {
        let whole = BufferPieces::whole(from, bytes.len());
        self.write_by(buffer, whole, &mut |to| to.copy_from_slice(bytes))
    }

    /// Calls `write` to set pieces of a buffer in place, visible to the next run. Their initial content is undefined,
    /// and so is the content of bytes between them afterwards.
    ///
    /// # Errors
    /// As [`LoadedProgram::write`].
    pub fn write_by(&mut self, buffer: BufferId, pieces: BufferPieces, write: &mut dyn FnMut(&mut [u8])) -> Result<()> {
        self.check_access(buffer, pieces)?;
        self.way.write(buffer.0, pieces, write)
    }

    /// Reads `bytes` from the start of a buffer after the last run.
    ///
    /// # Errors
    /// As [`LoadedProgram::write`].
    pub fn read(&mut self, buffer: BufferId, bytes: &mut [u8]) -> Result<()> {
        self.read_by(buffer, BufferPieces::whole(0, bytes.len()), &mut |from| bytes.copy_from_slice(from))
    }

    /// Calls `read` with pieces of a buffer in place, after the last run. Bytes between them are undefined.
    ///
    /// # Errors
    /// As [`LoadedProgram::write`].
    pub fn read_by(&mut self, buffer: BufferId, pieces: BufferPieces, read: &mut dyn FnMut(&[u8])) -> Result<()> {
        self.check_access(buffer, pieces)?;
        self.way.read(buffer.0, pieces, read)
    }

    /// Runs the program once on `arguments`, and returns its time. After a failure the context is unusable: the NPU may
    /// still be using the buffers.
    ///
    /// # Errors
    /// Input: the buffers do not match the program's arguments. Device: the run did not end within `deadline`, ended
    /// with an error, or could not be started; or an earlier one failed.
    pub fn run(&mut self, arguments: &[BufferId], deadline: Duration) -> Result<Duration> {
        self.check_usable()?;
        let takes = self.program.arguments;
        if arguments.len() != takes.len() {
            let cause = format!("{} takes {} buffers, not {}", self.program.name, takes.len(), arguments.len());
            return Err(Error::input(cause, REPORT));
        }
        for (&bytes, buffer) in takes.iter().zip(arguments) {
            self.check_size(*buffer, bytes)?;
        }
        let started = Instant::now();
        let arguments: Vec<(BufferId, u64)> = arguments.iter().map(|buffer| (*buffer, 0)).collect();
        self.start(OWN, &arguments)?;
        self.wait(OWN, deadline.saturating_sub(started.elapsed()), deadline)?;
        Ok(started.elapsed())
    }

    /// Starts a command on buffers, each from a byte offset on. Commands end in the order of their starts.
    ///
    /// # Errors
    /// Input: it runs already, four commands run already, or there is no such buffer. Device: a command failed, or
    /// the driver refuses.
    pub fn start(&mut self, command: CommandId, arguments: &[(BufferId, u64)]) -> Result<()> {
        self.check_at_rest(command)?;
        for (buffer, from) in arguments {
            self.check_size(*buffer, from.saturating_add(1))?;
        }
        if self.commands.iter().filter(|command| command.runs_on.is_some()).count() >= MOST_RUNNING {
            return Err(Error::input(format!("{MOST_RUNNING} commands run on the NPU, and no more can"), REPORT));
        }
        let arguments: Vec<(usize, u64)> = arguments.iter().map(|(buffer, from)| (buffer.0, *from)).collect();
        self.commands[command.0].runs_on = Some(arguments.iter().map(|(buffer, _)| *buffer).collect());
        let started = self.way.start(command.0, &arguments);
        self.usable &= started.is_ok();
        started
    }

    /// Whether a started command has ended. Returns at once.
    ///
    /// # Errors
    /// Device: the command ended with an error, or a command failed before.
    pub fn poll(&mut self, command: CommandId) -> Result<bool> {
        self.end(command, Duration::ZERO)
    }

    /// Waits for a started command. After a failure the context is unusable: the NPU may still be using the buffers.
    ///
    /// # Errors
    /// Device: the command did not end within `within`, ended with an error, or a command failed before. `deadline` is
    /// the time in the message.
    pub fn wait(&mut self, command: CommandId, within: Duration, deadline: Duration) -> Result<()> {
        if self.end(command, within)? {
            return Ok(());
        }
        self.usable = false;
        Err(Error::device(
            format!("{} on the NPU did not end within {:.1} s", self.program.name, deadline.as_secs_f64()),
            "see `dmesg` for amdxdna's messages; end what else uses the NPU or loads the GPU",
        ))
    }

    fn end(&mut self, command: CommandId, within: Duration) -> Result<bool> {
        self.check_usable()?;
        if self.commands[command.0].runs_on.is_none() {
            return Ok(true);
        }
        let ended = self.way.wait(command.0, within);
        self.usable &= ended.is_ok();
        if ended == Ok(true) {
            self.commands[command.0].runs_on = None;
        }
        ended
    }

    fn check_usable(&self) -> Result<()> {
        match self.usable {
            true => Ok(()),
            false => {
                Err(Error::device(format!("{} on the NPU failed before", self.program.name), "see the first failure"))
            }
        }
    }

    /// Checks that a command may be changed or started.
    fn check_at_rest(&self, command: CommandId) -> Result<()> {
        self.check_usable()?;
        match self.commands.get(command.0) {
            Some(NpuCommand { runs_on: None, .. }) => Ok(()),
            Some(_) => Err(Error::input("a command on the NPU is changed or started while it runs", REPORT)),
            None => Err(Error::input("a command on the NPU is another program's", REPORT)),
        }
    }

    /// Checks that the host may access pieces of a buffer.
    fn check_access(&self, buffer: BufferId, pieces: BufferPieces) -> Result<()> {
        self.check_usable()?;
        let uses = |command: &NpuCommand| command.runs_on.as_ref().is_some_and(|used| used.contains(&buffer.0));
        match self.commands.iter().any(uses) {
            true => Err(Error::input("an NPU buffer is read or written while a command runs on it", REPORT)),
            false => self.check_size(buffer, pieces.range().end as u64),
        }
    }

    fn check_size(&self, buffer: BufferId, bytes: u64) -> Result<()> {
        match self.buffers.get(buffer.0) {
            Some(&size) if bytes <= size => Ok(()),
            size => {
                let size = size.copied().unwrap_or(0);
                Err(Error::input(format!("{bytes} bytes are not in an NPU buffer of {size}"), REPORT))
            }
        }
    }
}
