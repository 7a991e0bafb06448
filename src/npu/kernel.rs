//! Runs a program on the NPU through the kernel's driver alone, by amdxdna's ioctls. src/npu/xrt.rs does the same through libxrt.

use super::context::{Backend, lost};
use super::packet;
use super::program::Program;
use crate::Result;
use crate::sys::Failure;
use crate::sys::dma_buf::{DmaBuf, Mapping};
use crate::sys::drm::{Gem, Node};
use crate::sys::npu_program::{BufferKind, DeviceHeap, HardwareContext, allocate, flush, locate, map};
use nix::errno::Errno;
use std::os::fd::AsFd;
use std::time::Duration;

/// Compute tiles of a column.
const TILES: u32 = 4;
/// Bytes of a command buffer: a page, of which a packet takes the start.
const COMMAND_BYTES: u64 = 4096;

/// A program on the NPU. Fields are dropped in this order: the hardware context ends before the memory goes that it may
/// be using.
pub(super) struct KernelBackend {
    /// With the number of its last run. `None`: it could not be made anew.
    context: Option<(HardwareContext, u64)>,
    buffers: Vec<SharedBuffer>,
    command: SharedBuffer,
    sequence: Resident,
    image: Resident,
    _heap: DeviceHeap,
    node: Node,
    program: &'static Program,
}

/// Ordinary memory that host and NPU reach.
struct SharedBuffer {
    mapping: Mapping,
    /// Address on the device. It is this process's own: the driver knows it once the buffer is mapped.
    address: u64,
    gem: Gem,
}

/// Bytes in the device heap.
struct Resident {
    address: u64,
    gem: Gem,
}

impl KernelBackend {
    pub(super) fn new(node: Node, program: &'static Program) -> Result<KernelBackend> {
        let mut heap = DeviceHeap::new(&node)?;
        let image = Resident::new(&node, &mut heap, program.image)?;
        let sequence = Resident::new(&node, &mut heap, program.sequence)?;
        let command = allocate(&node, BufferKind::Command, COMMAND_BYTES)?;
        let command = SharedBuffer { mapping: mapped(&node, &command, COMMAND_BYTES)?, address: 0, gem: command };
        let context = load(&node, program, &image)?;
        let context = Some((context, 0));
        Ok(KernelBackend { context, buffers: Vec::new(), command, sequence, image, _heap: heap, node, program })
    }
}

/// Makes a hardware context with the program on it.
fn load(node: &Node, program: &Program, image: &Resident) -> Result<HardwareContext> {
    let context = HardwareContext::new(node, program.columns * TILES)?;
    context.load(&image.gem)?;
    Ok(context)
}

/// Maps a buffer; the driver must be able to.
fn mapped(node: &Node, gem: &Gem, bytes: u64) -> Result<Mapping> {
    Ok(map(node, gem, bytes)?.ok_or_else(|| Failure::new("map an NPU buffer", Errno::ENODEV))?)
}

/// The answer, or a failure for a driver that gives none.
fn given(what: &str, answer: Option<u64>) -> Result<u64> {
    Ok(answer.ok_or_else(|| Failure::new(what, Errno::ENODATA))?)
}

impl SharedBuffer {
    fn new(node: &Node, gem: Gem, bytes: u64) -> Result<SharedBuffer> {
        let mapping = mapped(node, &gem, bytes)?;
        let address = given("give an NPU buffer an address", locate(node, &gem)?.device_address)?;
        Ok(SharedBuffer { mapping, address, gem })
    }
}

impl Resident {
    fn new(node: &Node, heap: &mut DeviceHeap, bytes: &[u8]) -> Result<Resident> {
        let gem = allocate(node, BufferKind::Device, bytes.len() as u64)?;
        let place = locate(node, &gem)?;
        let what = "give a place in the NPU's heap";
        heap.write(given(what, place.address)?, bytes)?;
        Ok(Resident { address: given(what, place.device_address)?, gem })
    }
}

impl Backend for KernelBackend {
    fn allocate(&mut self, bytes: u64) -> Result<()> {
        let gem = allocate(&self.node, BufferKind::Shared, bytes)?;
        self.buffers.push(SharedBuffer::new(&self.node, gem, bytes)?);
        Ok(())
    }

    fn import(&mut self, buffer: &DmaBuf) -> Result<()> {
        let gem = self.node.import(buffer.as_fd())?;
        self.buffers.push(SharedBuffer::new(&self.node, gem, buffer.size())?);
        Ok(())
    }

    fn write(&mut self, buffer: usize, bytes: &[u8]) -> Result<()> {
        let to = &mut self.buffers[buffer].mapping.bytes_mut()[..bytes.len()];
        to.copy_from_slice(bytes);
        flush(to);
        Ok(())
    }

    fn read(&mut self, buffer: usize, bytes: &mut [u8]) -> Result<()> {
        let from = &self.buffers[buffer].mapping.bytes()[..bytes.len()];
        flush(from);
        bytes.copy_from_slice(from);
        Ok(())
    }

    fn start(&mut self, arguments: &[usize]) -> Result<()> {
        let used: Vec<&SharedBuffer> = arguments.iter().map(|&i| &self.buffers[i]).collect();
        let addresses: Vec<u64> = used.iter().map(|b| b.address).collect();
        let words = (self.program.sequence.len() / 4) as u32;
        let packet = packet::pack(self.sequence.address, words, &addresses)?;
        let packet: Vec<u8> = packet.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.command.mapping.bytes_mut()[..packet.len()].copy_from_slice(&packet);
        let mut gems = vec![&self.sequence.gem];
        gems.extend(used.iter().map(|b| &b.gem));
        let (context, number) = self.context.as_mut().ok_or_else(lost)?;
        *number = context.submit(&self.command.gem, &gems)?;
        Ok(())
    }

    fn wait(&mut self, within: Duration) -> Result<bool> {
        let (context, number) = self.context.as_ref().ok_or_else(lost)?;
        match context.wait(*number, within) {
            Err(late) if late.errno == Errno::ETIME => return Ok(false),
            ended => ended?,
        }
        let header = self.command.mapping.bytes().first_chunk().map_or(0, |word| u32::from_le_bytes(*word));
        packet::judge(header).map(|()| true)
    }

    fn restart(&mut self) -> Result<()> {
        // The driver stops a context's run when it ends the context, and the new one takes the same columns.
        self.context = None;
        self.context = Some((load(&self.node, self.program, &self.image)?, 0));
        Ok(())
    }
}
