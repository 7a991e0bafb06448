//! What replaying needs of a way to a device. [`super::Replay`] runs on whatever implements [`Driver`]: Vulkan, one
//! that writes a GPU's own packets, or one that interprets machine code.
//!
//! A pass is baked once into *lists* of [`DeviceCommand`]s: kernels with their push constants and grids, fills, copies,
//! stamps, and between them what waits for what ([`Edge`]). A list is submitted any number of times. What changes from
//! pass to pass is data in [`Memory`], which the host writes before a submit or while the device does not use it.
//!
//! Nothing here is called through a pointer: replay is compiled for each driver. Of these calls a pass makes only
//! [`Driver::submit`], [`Driver::is_done`] and [`Driver::wait`], and reads stamps; they allocate nothing.

use crate::error::{Setting, text};
use crate::lower::caps::Caps;
use crate::lower::dispatch::Edge;
use crate::lower::kernels::Kernel;
use crate::lower::kernels::push::Push;
use crate::sys::dma_buf::DmaBuf;
use crate::{Error, Result};
use std::ops::Range;
use std::time::Duration;

/// Most signals under way at a time: one for the pass that is waited for, one for the pass after it.
pub const SIGNALS: usize = 2;

/// A way to a device with one queue.
pub trait Driver: Sized + 'static {
    /// Memory of the device.
    type Memory: Memory;
    /// A handle of a baked list. Its copies name the same list.
    type Baked: Copy;
    /// Times that lists note by the device's clock.
    type Stamps: Stamps;

    /// What the device can do. The same answer as long as the driver lives.
    fn caps(&self) -> &Caps;

    /// Allocates `bytes` in a heap of those that the plan was made for. Its device address stays the same, is aligned to 16
    /// bytes, and is valid in every list that is submitted while the memory lives. What it holds at first is undefined.
    ///
    /// # Errors
    /// Refused: there is no such memory left. Device: the device failed, or has no memory of that kind.
    fn allocate(&self, bytes: u64, heap: usize, access: HostAccess, source: MemorySource) -> Result<Self::Memory>;

    /// Compiles kernels, so that [`Driver::bake`] finds them. Those that it has are not compiled again.
    ///
    /// # Errors
    /// Device: one cannot be compiled.
    fn compile(&mut self, kernels: &[Kernel]) -> Result<()>;

    /// Makes a list of commands that may be submitted any number of times. Commands between which there is no edge may run side
    /// by side. Where replay relays, their workgroups begin in the order in which the commands stand, and what one writes
    /// coherently others see without an edge (shaders/relay.glsl).
    ///
    /// # Errors
    /// Device: a kernel cannot be compiled, or the device failed.
    fn bake(&mut self, commands: &[DeviceCommand<'_, Self>]) -> Result<Self::Baked>;

    /// Gives up lists that were baked here. What is submitted of them has been waited for.
    fn free(&self, lists: &[Self::Baked]);

    /// Room for so many stamps; `None` where the device has no clock.
    ///
    /// # Errors
    /// Device: the device failed.
    fn stamps(&self, count: usize) -> Result<Option<Self::Stamps>>;

    /// Submits lists, one after the other, after what was submitted before. They see what the host wrote before this call.
    /// With `signal`, a number below [`SIGNALS`], the end of all that was submitted so far can be waited for by it. Without
    /// any list there is only the signal. Does not wait.
    ///
    /// # Errors
    /// Device: the device was lost, or hangs. What the lists were to do is then undone or done in part.
    ///
    /// # Safety
    /// The lists were baked here and not freed. None of them is under way. Memory and stamps that they use live until the
    /// submit is waited for, and the host does not touch what they write. No submit with the same signal is under way.
    unsafe fn submit(&self, lists: &[Self::Baked], signal: Option<usize>) -> Result<()>;

    /// Whether what a signal stands behind is done. It must be under way.
    ///
    /// # Errors
    /// Device: the device was lost.
    fn is_done(&self, signal: usize) -> Result<bool>;

    /// Waits for what a signal stands behind, which must be under way. Afterwards the host sees what stands before
    /// [`Edge::Host`] in those lists, and the signal may be given to another submit.
    ///
    /// # Errors
    /// Device: the device was lost, or did not finish within the deadline. It hangs from then on.
    fn wait(&self, signal: usize, deadline: Duration) -> Result<()>;

    /// Whether a wait ran past its deadline. The device may never finish: every submit fails from then on, and nothing is
    /// given back, since the device may use it still.
    fn is_hung(&self) -> bool;

    /// Waits until the device has nothing to do, if it does not hang: for ends in which no error can be told any more.
    fn finish(&self);

    /// Begins to compile kernels beside everything else, in this order, in the place of those that were asked for before and
    /// have not begun. A driver that compiles beside nothing has nothing to do here.
    fn ask_for(&mut self, _kernels: &[Kernel]) {}

    /// How far a kernel is that was asked for.
    fn readiness(&mut self, _kernel: Kernel) -> Readiness {
        Readiness::Ready
    }

    /// Waits until a kernel that was asked for is there, for `most` at most.
    fn wait_for_kernel(&self, _most: Duration) {}

    /// Whether kernels are being compiled beside everything else.
    fn is_compiling(&self) -> bool {
        false
    }

    /// Keeps what was compiled for the next start, where that saves compiling.
    fn save_kernels(&self) {}
}

/// A command of a list.
#[allow(clippy::large_enum_variant)] // Nearly all commands of a list run kernels.
pub enum DeviceCommand<'a, D: Driver> {
    /// What follows waits for what is before.
    Wait(Edge),
    /// Workgroups of a kernel. The push constants are the whole block, relay's words included.
    Run {
        /// The kernel.
        kernel: Kernel,
        /// Its push constants.
        push: Push,
        /// Workgroups in x, y and z.
        groups: [u32; 3],
    },
    /// Zeroes bytes of a memory, of which `range` has a multiple of four.
    Fill(&'a D::Memory, Range<u64>),
    /// Copies bytes between memories.
    Copy(MemoryCopy<'a, D>),
    /// Notes the time once all that is before it in the list has ended. Stamps of one list that follow each other have
    /// consecutive numbers.
    Stamp(&'a D::Stamps, usize),
}

/// A copy between memories.
pub struct MemoryCopy<'a, D: Driver> {
    /// The source.
    pub from: &'a D::Memory,
    /// Bytes from its start.
    pub from_offset: u64,
    /// The destination.
    pub to: &'a D::Memory,
    /// Bytes from its start.
    pub to_offset: u64,
    /// How many.
    pub bytes: u64,
}

impl<'a, D: Driver> MemoryCopy<'a, D> {
    /// A copy of `bytes` from the start of a memory to the start of another.
    pub fn new(from: &'a D::Memory, to: &'a D::Memory, bytes: u64) -> MemoryCopy<'a, D> {
        MemoryCopy { from, from_offset: 0, to, to_offset: 0, bytes }
    }
}

/// Memory of a device: one allocation.
pub trait Memory {
    /// Its device address.
    fn address(&self) -> u64;

    /// Its bytes.
    fn size(&self) -> u64;

    /// Whether the host maps it.
    fn is_mapped(&self) -> bool;

    /// Whether the host reads it through its caches.
    fn is_cached(&self) -> bool;

    /// Hides the host's mapping, as if the host could not see this memory.
    fn hide(&mut self);

    /// All of it, if the host maps it.
    ///
    /// # Safety
    /// The device does not write it while the slice lives: every submit that writes it was waited for, and the next one comes
    /// after the slice.
    unsafe fn bytes(&self) -> Option<&[u8]>;

    /// As [`Memory::bytes`], for writing.
    ///
    /// # Safety
    /// The device neither reads nor writes it while the slice lives.
    unsafe fn bytes_mut(&mut self) -> Option<&mut [u8]>;

    /// Some of its words, for use beside the device, which uses others. What is written before a submit, that submit sees.
    ///
    /// # Errors
    /// Device: it is not mapped, or is handed over ([`Memory::is_handed_over`]).
    ///
    /// # Safety
    /// While the slice lives, the device neither writes words that are read through it, nor uses words that are written.
    ///
    /// # Panics
    /// It has fewer words.
    unsafe fn words_mut(&mut self, words: Range<usize>) -> Result<&mut [u32]>;

    /// Copies `data` to its start. Does not wait for the device.
    ///
    /// # Errors
    /// Device: it is not mapped, or too small.
    fn copy_from(&mut self, data: &[u8]) -> Result<()>;

    /// Copies its start into `data`. Does not wait for the device.
    ///
    /// # Errors
    /// As [`Memory::copy_from`].
    fn copy_to(&self, data: &mut [u8]) -> Result<()>;

    /// Whether host and device have to say when they access it, because another driver made it.
    fn is_handed_over(&self) -> bool {
        false
    }

    /// Call before the host accesses what the device may have written, where memory is handed over.
    ///
    /// # Errors
    /// Device: the driver that made it fails.
    fn to_host(&self) -> Result<()> {
        Ok(())
    }

    /// Call before the device accesses what the host may have written; see [`Memory::to_host`].
    ///
    /// # Errors
    /// As [`Memory::to_host`].
    fn to_device(&self) -> Result<()> {
        Ok(())
    }

    /// The memory as a dma-buf for other devices, if it is one.
    fn dma_buf(&self) -> Option<&DmaBuf> {
        None
    }
}

/// Times that lists have noted.
pub trait Stamps {
    /// How many there is room for.
    fn count(&self) -> usize;

    /// Reads all of them. What notes them was submitted and waited for.
    ///
    /// # Errors
    /// Device: the device was lost.
    fn fetch(&mut self) -> Result<()>;

    /// Seconds from one stamp to another, as they were read.
    fn seconds(&self, from: usize, to: usize) -> f64;

    /// Seconds of each span: from an even stamp to the next. Allocates nothing.
    ///
    /// # Errors
    /// As [`Stamps::fetch`].
    fn read_spans(&mut self) -> Result<impl Iterator<Item = f64> + '_> {
        self.fetch()?;
        Ok((0..self.count() / 2).map(|i| self.seconds(2 * i, 2 * i + 1)))
    }

    /// Seconds from each stamp to the next: one value fewer than stamps.
    ///
    /// # Errors
    /// As [`Stamps::fetch`].
    fn read_steps(&mut self) -> Result<impl Iterator<Item = f64> + '_> {
        self.fetch()?;
        Ok((1..self.count()).map(|i| self.seconds(i - 1, i)))
    }
}

/// Which access the host needs to memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostAccess {
    /// None ever. The memory is not mapped, and takes nothing of the device's window for the host where it can do without:
    /// that may be smaller than the device's memory.
    None,
    /// None is needed. The memory is mapped all the same where that costs nothing.
    Device,
    /// The host must be able to write and read the memory.
    Host,
}

/// Where memory comes from that other devices may share.
#[derive(Debug, Clone, Copy, Default)]
pub enum MemorySource {
    /// Exported if host and GPU share their memory and the driver can export it, else ordinary.
    #[default]
    Auto,
    /// Allocated by the driver, not shared.
    Ordinary,
    /// Allocated by the driver and exported as a dma-buf.
    Exported,
    /// Allocated by another driver and imported as a dma-buf.
    Imported(Allocator),
}

/// Another driver that can allocate memory.
#[derive(Debug, Clone, Copy)]
pub struct Allocator {
    /// Its name in messages.
    pub name: &'static str,
    /// Allocates a dma-buf of at least the given bytes that the host can map. Its content is undefined.
    pub allocate: fn(u64) -> Result<DmaBuf>,
}

/// How far a kernel is that was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readiness {
    /// It is there.
    Ready,
    /// It is being compiled, or waits for that.
    NotYet,
    /// Nobody has asked for it, or what was asked for later has taken its place.
    Unasked,
    /// It is late or cannot be compiled: go on without it.
    LeftOut,
}

/// The error of memory that the host does not map.
pub(crate) fn unmapped() -> Error {
    Error::device("the memory is not mapped", text!("update the driver, or use ", Setting::Cpu))
}
