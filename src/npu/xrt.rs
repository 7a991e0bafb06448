//! Runs a program on the NPU through libxrt, AMD's library, where that is installed. src/npu/kernel.rs does the same without it.

use super::context::{Backend, BufferPieces, lost};
use super::packet::RUN_SEQUENCE;
use super::program::Program;
use crate::error::{Setting, text};
use crate::sys::dma_buf::DmaBuf;
use crate::sys::xrt::{Library, Run, XrtBuffer, XrtBufferKind, XrtDevice, XrtKernel, XrtProgram as Loaded};
use crate::{Error, Result};
use std::ops::Range;
use std::os::fd::AsFd;
use std::time::Duration;

/// Numbers of the arguments of a program's kernel.
const OPERATION: i32 = 0;
const SEQUENCE: i32 = 1;
const SEQUENCE_WORDS: i32 = 2;
/// The first of the host's buffers.
const BUFFERS: i32 = 3;

/// A program on the NPU. Fields are dropped in this order: the hardware context ends before the memory goes that it may
/// be using.
pub(super) struct XrtBackend<'x> {
    /// `None`: it could not be made anew.
    on_array: Option<OnArray<'x>>,
    buffers: Vec<XrtBuffer<'x>>,
    /// The instructions of each command, in all the room that it has, and how many of them there are.
    streams: Vec<(Vec<u8>, usize)>,
    /// Bytes on their way to a buffer or from one: libxrt copies them.
    passing: Vec<u8>,
    device: XrtDevice<'x>,
    program: &'static Program,
}

/// The program on the array: a hardware context, and what depends on it.
struct OnArray<'x> {
    commands: Vec<XrtCommand<'x>>,
    kernel: XrtKernel<'x>,
    loaded: Loaded<'x>,
}

/// A command: a run, and the instructions that it reads.
struct XrtCommand<'x> {
    run: Run<'x>,
    stream: XrtBuffer<'x>,
}

impl XrtCommand<'_> {
    /// Makes the first `length` of these bytes its instructions.
    fn set(&mut self, bytes: &[u8], length: usize) -> Result<()> {
        self.stream.write(0, bytes)?;
        self.stream.sync_to_device()?;
        self.run.set_number(SEQUENCE_WORDS, (length / 4) as u32)
    }
}

impl<'x> OnArray<'x> {
    /// Loads the program, with commands of these instructions.
    fn new(device: &XrtDevice<'x>, program: &Program, streams: &[(Vec<u8>, usize)]) -> Result<OnArray<'x>> {
        let loaded = device.load(program.container)?;
        let kernel = loaded.kernel(program.name)?;
        let mut on_array = OnArray { commands: Vec::new(), kernel, loaded };
        for (bytes, length) in streams {
            on_array.add_command(bytes.len())?;
            if let Some(command) = on_array.commands.last_mut() {
                command.set(bytes, *length)?;
            }
        }
        Ok(on_array)
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
}

impl<'x> XrtBackend<'x> {
    pub(super) fn new(library: &'x Library, slot: &str, program: &'static Program) -> Result<XrtBackend<'x>> {
        let device = library.open(slot)?;
        let on_array = Some(OnArray::new(&device, program, &[])?);
        let (buffers, streams, passing) = (Vec::new(), Vec::new(), Vec::new());
        Ok(XrtBackend { on_array, buffers, streams, passing, device, program })
    }

    fn on_array(&mut self) -> Result<&mut OnArray<'x>> {
        self.on_array.as_mut().ok_or_else(lost)
    }
}

impl Backend for XrtBackend<'_> {
    fn allocate(&mut self, bytes: u64) -> Result<()> {
        let on_array = self.on_array()?;
        let buffer = on_array.loaded.allocate(bytes, XrtBufferKind::Data, on_array.kernel.group(BUFFERS)?)?;
        self.buffers.push(buffer);
        Ok(())
    }

    fn import(&mut self, buffer: &DmaBuf) -> Result<()> {
        let buffer = self.on_array()?.loaded.import(buffer.as_fd())?;
        self.buffers.push(buffer);
        Ok(())
    }

    fn takes_offsets(&self) -> bool {
        false
    }

    fn write(&mut self, buffer: usize, pieces: BufferPieces, write: &mut dyn FnMut(&mut [u8])) -> Result<()> {
        let Range { start, end } = pieces.range();
        self.passing.resize(end - start, 0);
        write(&mut self.passing);
        self.buffers[buffer].write(start, &self.passing)?;
        self.buffers[buffer].sync_part_to_device(start, end - start)
    }

    fn read(&mut self, buffer: usize, pieces: BufferPieces, read: &mut dyn FnMut(&[u8])) -> Result<()> {
        self.passing.resize(pieces.range().len(), 0);
        for piece in pieces.each() {
            let (from, to) = (pieces.first + piece.start, &mut self.passing[piece]);
            self.buffers[buffer].sync_part_to_host(from, to.len())?;
            self.buffers[buffer].read(from, to)?;
        }
        read(&self.passing);
        Ok(())
    }

    fn add_command(&mut self, bytes: usize) -> Result<()> {
        self.on_array()?.add_command(bytes)?;
        self.streams.push((vec![0; bytes], 0));
        Ok(())
    }

    fn write_stream(&mut self, command: usize, from: usize, bytes: &[u8], total: usize) -> Result<()> {
        let (stream, length) = &mut self.streams[command];
        stream[from..from + bytes.len()].copy_from_slice(bytes);
        *length = total;
        let on_array = self.on_array.as_mut().ok_or_else(lost)?;
        on_array.commands[command].set(&self.streams[command].0, total)
    }

    fn start(&mut self, command: usize, arguments: &[(usize, u64)]) -> Result<()> {
        let XrtCommand { run, .. } = &mut self.on_array.as_mut().ok_or_else(lost)?.commands[command];
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
        self.on_array()?.commands[command].run.wait(within)
    }

    fn restart(&mut self) -> Result<()> {
        // The new context takes the same columns. A run that is late is not stopped: the bridge keeps it, with its context and its
        // buffers, until the process ends (ffi/xrt/kiln_xrt.cpp).
        self.on_array = None;
        self.on_array = Some(OnArray::new(&self.device, self.program, &self.streams)?);
        Ok(())
    }
}
