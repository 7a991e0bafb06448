//! Runs a program on the NPU through libxrt, AMD's library, where that is installed. src/npu/kernel.rs does the same without it.

use super::context::{Backend, lost};
use super::packet::RUN_SEQUENCE;
use super::program::Program;
use crate::Result;
use crate::sys::dma_buf::DmaBuf;
use crate::sys::xrt::{Library, Run, XrtBuffer, XrtBufferKind, XrtDevice, XrtKernel, XrtProgram as Loaded};
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
    device: XrtDevice<'x>,
    program: &'static Program,
}

/// The program on the array: a hardware context, and what depends on it.
struct OnArray<'x> {
    run: Run<'x>,
    kernel: XrtKernel<'x>,
    loaded: Loaded<'x>,
    /// The instruction stream, which the run reads.
    _sequence: XrtBuffer<'x>,
}

impl<'x> OnArray<'x> {
    fn new(device: &XrtDevice<'x>, program: &Program) -> Result<OnArray<'x>> {
        let loaded = device.load(program.container)?;
        let kernel = loaded.kernel(program.name)?;
        let (bytes, group) = (program.sequence.len() as u64, kernel.group(SEQUENCE)?);
        let mut sequence = loaded.allocate(bytes, XrtBufferKind::Instructions, group)?;
        sequence.write(0, program.sequence)?;
        sequence.sync_to_device()?;
        let mut run = kernel.run()?;
        run.set_number(OPERATION, RUN_SEQUENCE)?;
        run.set_buffer(SEQUENCE, &sequence)?;
        run.set_number(SEQUENCE_WORDS, (program.sequence.len() / 4) as u32)?;
        Ok(OnArray { run, kernel, loaded, _sequence: sequence })
    }
}

impl<'x> XrtBackend<'x> {
    pub(super) fn new(library: &'x Library, slot: &str, program: &'static Program) -> Result<XrtBackend<'x>> {
        let device = library.open(slot)?;
        let on_array = Some(OnArray::new(&device, program)?);
        Ok(XrtBackend { on_array, buffers: Vec::new(), device, program })
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

    fn write(&mut self, buffer: usize, bytes: &[u8]) -> Result<()> {
        self.buffers[buffer].write(0, bytes)?;
        self.buffers[buffer].sync_to_device()
    }

    fn read(&mut self, buffer: usize, bytes: &mut [u8]) -> Result<()> {
        self.buffers[buffer].sync_to_host()?;
        self.buffers[buffer].read(0, bytes)
    }

    fn start(&mut self, arguments: &[usize]) -> Result<()> {
        let OnArray { run, .. } = self.on_array.as_mut().ok_or_else(lost)?;
        for (number, &buffer) in (BUFFERS..).zip(arguments) {
            run.set_buffer(number, &self.buffers[buffer])?;
        }
        run.start()
    }

    fn wait(&mut self, within: Duration) -> Result<bool> {
        self.on_array()?.run.wait(within)
    }

    fn restart(&mut self) -> Result<()> {
        // libxrt stops a context's run when it ends the context, and the new one takes the same columns.
        self.on_array = None;
        self.on_array = Some(OnArray::new(&self.device, self.program)?);
        Ok(())
    }
}
