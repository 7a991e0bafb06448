//! Runs a program on the NPU through the kernel's driver, by amdxdna's ioctls. src/npu/xrt.rs does the same through
//! libxrt.

use super::context::{Backend, BufferPieces};
use super::packet;
use super::program::Program;
use crate::sys::Failure;
use crate::sys::dma_buf::{DmaBuf, Mapping};
use crate::sys::drm::{Gem, Node};
use crate::sys::npu_program::{BufferKind, DeviceHeap, HardwareContext, allocate, flush, flush_each, locate, map};
use crate::{Error, Result};
use nix::errno::Errno;
use std::os::fd::AsFd;
use std::time::Duration;

/// Compute tiles of a column.
const TILES: u32 = 4;
/// Bytes of a command buffer: a page, of which a packet uses the start.
const COMMAND_BYTES: u64 = 4096;

/// A program on the NPU. Fields are dropped in this order: the hardware context ends before the memory is freed that it
/// may be using.
pub(super) struct KernelBackend {
    context: HardwareContext,
    buffers: Vec<SharedBuffer>,
    commands: Vec<KernelCommand>,
    _image: Resident,
    heap: DeviceHeap,
    node: Node,
}

/// Ordinary memory that host and NPU access.
struct SharedBuffer {
    mapping: Mapping,
    /// Address on the device. It is valid in this process only: the driver assigns it when the buffer is mapped.
    address: u64,
    gem: Gem,
}

/// An allocation in the NPU's device heap.
struct Resident {
    /// Addresses in this process, and on the device.
    place: u64,
    address: u64,
    gem: Gem,
}

/// A command: its packet, and the instructions that the packet refers to.
struct KernelCommand {
    packet: SharedBuffer,
    stream: Resident,
    /// Length of the command's instruction stream, in words of 4 bytes.
    words: u32,
    /// The sequence number of the command's last run, on which the driver waits.
    number: u64,
}

impl KernelBackend {
    pub(super) fn new(node: Node, program: &Program) -> Result<KernelBackend> {
        let mut heap = DeviceHeap::new(&node)?;
        let image = Resident::new(&node, &mut heap, program.image)?;
        let context = load(&node, program, &image)?;
        Ok(KernelBackend { context, buffers: Vec::new(), commands: Vec::new(), _image: image, heap, node })
    }
}

/// Makes a hardware context with the program on it.
fn load(node: &Node, program: &Program, image: &Resident) -> Result<HardwareContext> {
    let context = HardwareContext::new(node, program.columns * TILES).map_err(|failure| match failure.errno {
        // Answers of drivers of different versions if others hold the columns: the kernel's own driver answers ENODEV.
        Errno::ENODEV | Errno::ENOENT | Errno::EBUSY | Errno::ENOSPC | Errno::EAGAIN => Error::device(
            format!("the kernel failed to {failure}"),
            "end what else uses the NPU (`kiln top` lists it); if nothing does, see the kernel's log (`dmesg`)",
        ),
        _ => failure.into(),
    })?;
    context.load(&image.gem)?;
    Ok(context)
}

/// Maps a buffer; the driver must be able to.
fn mapped(node: &Node, gem: &Gem, bytes: u64) -> Result<Mapping> {
    Ok(map(node, gem, bytes)?.ok_or_else(|| Failure::new("map an NPU buffer", Errno::ENODEV))?)
}

/// The driver's answer, or a failure if it gives none.
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
        let located = locate(node, &gem)?;
        let what = "give a place in the NPU's heap";
        let place = given(what, located.address)?;
        heap.write(place, bytes)?;
        Ok(Resident { place, address: given(what, located.device_address)?, gem })
    }
}

impl Backend for KernelBackend {
    fn allocate(&mut self, bytes: u64) -> Result<()> {
        let gem = allocate(&self.node, BufferKind::Shared, bytes)?;
        let buffer = SharedBuffer::new(&self.node, gem, bytes)?;
        // The kernel's zeros may still be in the CPU's caches, and would later overwrite the NPU's results.
        flush(buffer.mapping.bytes());
        self.buffers.push(buffer);
        Ok(())
    }

    fn import(&mut self, buffer: &DmaBuf) -> Result<()> {
        let gem = self.node.import(buffer.as_fd()).map_err(|failure| match failure.errno {
            // amdxdna's answer for memory in several pieces without an IOMMU that makes it contiguous for the NPU.
            Errno::EINVAL => Error::device(
                format!("the kernel failed to {failure}"),
                "turn the IOMMU on (firmware setup, `amd_iommu=on`): without it the NPU takes memory in one piece alone",
            ),
            _ => failure.into(),
        })?;
        self.buffers.push(SharedBuffer::new(&self.node, gem, buffer.size())?);
        Ok(())
    }

    fn write(&mut self, buffer: usize, pieces: BufferPieces, write: &mut dyn FnMut(&mut [u8])) -> Result<()> {
        let to = &mut self.buffers[buffer].mapping.bytes_mut()[pieces.range()];
        write(to);
        flush_each(pieces.each().map(|piece| &to[piece]));
        Ok(())
    }

    fn read(&mut self, buffer: usize, pieces: BufferPieces, read: &mut dyn FnMut(&[u8])) -> Result<()> {
        let from = &self.buffers[buffer].mapping.bytes()[pieces.range()];
        flush_each(pieces.each().map(|piece| &from[piece]));
        read(from);
        Ok(())
    }

    fn add_command(&mut self, bytes: usize) -> Result<()> {
        let stream = Resident::new(&self.node, &mut self.heap, &vec![0; bytes])?;
        let gem = allocate(&self.node, BufferKind::Command, COMMAND_BYTES)?;
        let packet = SharedBuffer { mapping: mapped(&self.node, &gem, COMMAND_BYTES)?, address: 0, gem };
        self.commands.push(KernelCommand { packet, stream, words: 0, number: 0 });
        Ok(())
    }

    fn write_stream(&mut self, command: usize, from: usize, bytes: &[u8], total: usize) -> Result<()> {
        let command = &mut self.commands[command];
        self.heap.write(command.stream.place + from as u64, bytes)?;
        command.words = (total / 4) as u32;
        Ok(())
    }

    fn start(&mut self, command: usize, arguments: &[(usize, u64)]) -> Result<()> {
        let command = &mut self.commands[command];
        let addresses: Vec<u64> = arguments.iter().map(|(buffer, from)| self.buffers[*buffer].address + from).collect();
        let packet = packet::pack(command.stream.address, command.words, &addresses)?;
        let packet: Vec<u8> = packet.iter().flat_map(|word| word.to_le_bytes()).collect();
        command.packet.mapping.bytes_mut()[..packet.len()].copy_from_slice(&packet);
        let mut gems = vec![&command.stream.gem];
        gems.extend(arguments.iter().map(|(buffer, _)| &self.buffers[*buffer].gem));
        command.number = self.context.submit(&command.packet.gem, &gems)?;
        Ok(())
    }

    fn wait(&mut self, command: usize, within: Duration) -> Result<bool> {
        let command = &self.commands[command];
        match self.context.wait(command.number, within) {
            Err(late) if late.errno == Errno::ETIME => return Ok(false),
            ended => ended?,
        }
        let header = command.packet.mapping.bytes().first_chunk().map_or(0, |word| u32::from_le_bytes(*word));
        packet::judge(header).map(|()| true)
    }
}
