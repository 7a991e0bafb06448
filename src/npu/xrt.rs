//! Runs a program on the NPU through libxrt, AMD's library, if that is installed. src/npu/kernel.rs does the same
//! without it.

use super::context::{Backend, BufferPieces};
use super::packet::RUN_SEQUENCE;
use super::program::Program;
use crate::error::{Setting, text};
use crate::sys::dma_buf::DmaBuf;
use crate::sys::xrt::{Library, Run, XrtBuffer, XrtBufferKind, XrtDevice, XrtKernel, XrtProgram as Loaded};
use crate::{Error, Result};
use std::os::fd::AsFd;
use std::time::Duration;

/// Numbers of the arguments of a program's kernel.
const OPERATION: i32 = 0;
const SEQUENCE: i32 = 1;
const SEQUENCE_WORDS: i32 = 2;
/// The index of the kernel's argument that is the first of the host's buffers.
const BUFFERS: i32 = 3;

/// A program on the NPU. Fields are dropped in this order: the hardware context ends before the memory is freed that it
/// may be using.
pub(super) struct XrtBackend<'x> {
    commands: Vec<XrtCommand<'x>>,
    kernel: XrtKernel<'x>,
    loaded: Loaded<'x>,
    buffers: Vec<XrtBuffer<'x>>,
    /// A copy of a buffer's bytes, since libxrt copies in and out.
    passing: Vec<u8>,
    _device: XrtDevice<'x>,
}

/// A command: a run, and the instructions that it reads.
struct XrtCommand<'x> {
    run: Run<'x>,
    stream: XrtBuffer<'x>,
}

impl<'x> XrtBackend<'x> {
    pub(super) fn new(library: &'x Library, slot: &str, program: &Program) -> Result<XrtBackend<'x>> {
        let device = library.open(slot)?;
        let loaded = device.load(program.container)?;
        let kernel = loaded.kernel(program.name)?;
        let (commands, buffers, passing) = (Vec::new(), Vec::new(), Vec::new());
        Ok(XrtBackend { commands, kernel, loaded, buffers, passing, _device: device })
    }
}

impl Backend for XrtBackend<'_> {
    fn allocate(&mut self, bytes: u64) -> Result<()> {
        self.buffers.push(self.loaded.allocate(bytes, XrtBufferKind::Data, self.kernel.group(BUFFERS)?)?);
        Ok(())
    }

    fn import(&mut self, buffer: &DmaBuf) -> Result<()> {
        self.buffers.push(self.loaded.import(buffer.as_fd())?);
        Ok(())
    }

    fn takes_offsets(&self) -> bool {
        false
    }

    fn write(&mut self, buffer: usize, pieces: BufferPieces, write: &mut dyn FnMut(&mut [u8])) -> Result<()> {
        let range = pieces.range();
        self.passing.resize(range.len(), 0);
        write(&mut self.passing);
        self.buffers[buffer].write(range.start, &self.passing)?;
        self.buffers[buffer].sync_to_device(range)
    }

    fn read(&mut self, buffer: usize, pieces: BufferPieces, read: &mut dyn FnMut(&[u8])) -> Result<()> {
        self.passing.resize(pieces.range().len(), 0);
        for piece in pieces.each() {
            let (from, to) = (pieces.first + piece.start, &mut self.passing[piece]);
            self.buffers[buffer].sync_to_host(from..from + to.len())?;
            self.buffers[buffer].read(from, to)?;
        }
        read(&self.passing);
        Ok(())
    }

    fn add_command(&mut self, bytes: usize) -> Result<()> {
        let group = self.kernel.group(SEQUENCE)?;
        let stream = self.loaded.allocate(bytes as u64, XrtBufferKind::Instructions, group)?;
        let mut run = self.kernel.run()?;
        run.set_number(OPERATION, RUN_SEQUENCE)?;
        run.set_buffer(SEQUENCE, &stream)?;
        self.commands.push(XrtCommand { run, stream });
        Ok(())
    }

    fn write_stream(&mut self, command: usize, from: usize, bytes: &[u8], total: usize) -> Result<()> {
        let XrtCommand { run, stream } = &mut self.commands[command];
        stream.write(from, bytes)?;
        stream.sync_to_device(0..stream.size())?;
        run.set_number(SEQUENCE_WORDS, (total / 4) as u32)
    }

    fn start(&mut self, command: usize, arguments: &[(usize, u64)]) -> Result<()> {
        let XrtCommand { run, .. } = &mut self.commands[command];
        for (number, &(buffer, from)) in (BUFFERS..).zip(arguments) {
            if from > 0 {
                let cause = "libxrt's interface takes no part of a buffer for an NPU program";
                return Err(Error::device(cause, text!("use ", Setting::KernelNpu)));
            }
            run.set_buffer(number, &self.buffers[buffer])?;
        }
        run.start()
    }

    fn wait(&mut self, command: usize, within: Duration) -> Result<bool> {
        self.commands[command].run.wait(within)
    }
}
