//! The interface of a device's driver. [`super::Replay`] runs on any implementation of [`Driver`]: Vulkan, one that
//! writes a GPU's own packets, or one that interprets machine code.
//!
//! A pass is baked once into *lists* of [`DeviceCommand`]s: kernels with their push constants and grids, fills, copies,
//! stamps, and between them the waits ([`Edge`]). A list is submitted any number of times. The data that changes from
//! pass to pass lies in [`Memory`], which the host writes before a submit or while the device does not use it.
//!
//! Replay is compiled for each driver, without calls through pointers. A pass only calls [`Driver::submit`],
//! [`Driver::is_done`] and [`Driver::wait`], and reads stamps; none of these allocates.

use crate::error::{Setting, text};
use crate::lower::caps::Caps;
use crate::lower::dispatch::Edge;
use crate::lower::kernels::Kernel;
use crate::lower::kernels::push::Push;
use crate::sys::dma_buf::DmaBuf;
use crate::{Error, Result};
use std::ops::Range;
use std::ptr::NonNull;
use std::time::Duration;

/// Most signals in flight: one for the pass that is waited for, one for the pass after it.
pub const SIGNALS: usize = 2;

/// A driver of a device with one queue.
pub trait Driver: Sized + 'static {
    /// Memory of the device.
    type Memory: Memory;
    /// A handle of a baked list. Its copies name the same list.
    type Baked: Copy;
    /// Times that lists record by the device's clock.
    type Stamps: Stamps;

    /// The device's capabilities, constant for the driver's life.
    fn caps(&self) -> &Caps;

    /// Allocates `bytes` in one of the plan's heaps. Its device address stays the same, is aligned to 16 bytes, and is
    /// valid in every list that is submitted while the memory lives. Its initial content is undefined.
    ///
    /// # Errors
    /// Refused: no memory of that kind is left. Device: the device failed, or has no memory of that kind.
    fn allocate(&self, bytes: u64, heap: usize, access: HostAccess, source: MemorySource) -> Result<Self::Memory>;

    /// Compiles kernels for [`Driver::bake`]. Kernels that are already compiled are skipped.
    ///
    /// # Errors
    /// Device: a kernel cannot be compiled.
    fn compile(&mut self, kernels: &[Kernel]) -> Result<()>;

    /// Makes a list of commands that may be submitted any number of times. Commands without an edge between them may
    /// run side by side. If replay relays, their workgroups must start in the order of the commands, and coherent
    /// writes of one must be visible to others without an edge (shaders/relay.glsl).
    ///
    /// # Errors
    /// Device: a kernel cannot be compiled, or the device failed.
    fn bake(&mut self, commands: &[DeviceCommand<'_, Self>]) -> Result<Self::Baked>;

    /// Frees baked lists. All of their submits have been waited for.
    fn free(&self, lists: &[Self::Baked]);

    /// Allocates `count` stamps; `None` if the device has no clock.
    ///
    /// # Errors
    /// Device: the device failed.
    fn stamps(&self, count: usize) -> Result<Option<Self::Stamps>>;

    /// Submits lists in order, after earlier submits. They see the host's writes before this call. With `signal`, a
    /// number below [`SIGNALS`], the end of all submits so far can be waited for by it. Without lists, only the signal
    /// is submitted. Does not wait.
    ///
    /// # Errors
    /// Device: the device was lost, or hangs. The lists' work is then missing or partial.
    ///
    /// # Safety
    /// The lists were baked here and not freed. None of them is in flight. Memory and stamps that they use live until
    /// the submit is waited for, and until then the host does not access memory that they write. No submit with the
    /// same signal is in flight.
    unsafe fn submit(&self, lists: &[Self::Baked], signal: Option<usize>) -> Result<()>;

    /// Whether the work before a signal is done. The signal must be in flight.
    ///
    /// # Errors
    /// Device: the device was lost.
    fn is_done(&self, signal: usize) -> Result<bool>;

    /// Waits for the work before a signal, which must be in flight. Afterwards the host sees the writes before
    /// [`Edge::Host`] in those lists, and the signal may be used for another submit.
    ///
    /// # Errors
    /// Device: the device was lost, or did not finish within the deadline. It hangs from then on.
    fn wait(&self, signal: usize, deadline: Duration) -> Result<()>;

    /// Whether a wait ran past its deadline. The device may never finish: every later submit fails, and no memory is
    /// freed, since the device may still use it.
    fn is_hung(&self) -> bool;

    /// Waits until the device is idle, unless it hangs: for destructors, which can report no error.
    fn finish(&self);

    /// The compiler of kernels that may be needed. A driver whose kernels are compiled already has [`Precompiled`].
    fn compiler(&mut self) -> impl KernelCompiler {
        Precompiled
    }
}

/// Compiles kernels beside other work, so that tuning need not wait for each. The defaults are for kernels that are
/// compiled already.
pub trait KernelCompiler {
    /// Begins to compile kernels, in this order. Earlier requests that have not begun are dropped.
    fn request(&mut self, _kernels: &[Kernel]) {}

    /// The state of a kernel that was requested from the compiler.
    fn readiness(&mut self, _kernel: Kernel) -> Readiness {
        Readiness::Ready
    }

    /// Waits until another requested kernel is compiled, for `most` at most.
    fn wait(&self, _most: Duration) {}

    /// True while requested kernels are being compiled.
    fn is_busy(&self) -> bool {
        false
    }

    /// True if a kernel may be [`Readiness::LeftOut`] for good, since none can be compiled. Passes have no such kernel
    /// then.
    fn may_lack(&self) -> bool {
        false
    }

    /// Stores compiled kernels for the next start, if that saves compiling.
    fn save(&self) {}
}

/// The compiler of a driver whose kernels are compiled already.
pub struct Precompiled;

impl KernelCompiler for Precompiled {}

/// A command of a list.
#[allow(clippy::large_enum_variant)] // Most commands of a list run kernels.
pub enum DeviceCommand<'a, D: Driver> {
    /// Makes later commands of the list wait for earlier ones, as far as `Edge` says.
    Wait(Edge),
    /// Workgroups of a kernel. The push constants are the whole block, relay's words included.
    Run {
        /// The kernel whose workgroups run.
        kernel: Kernel,
        /// The push constants, the whole block.
        push: Push,
        /// The number of workgroups in x, y and z.
        groups: [u32; 3],
    },
    /// Zeroes `range` of a memory, in bytes, a multiple of four long.
    Fill(&'a D::Memory, Range<u64>),
    /// Copies bytes from one memory to another.
    Copy(MemoryCopy<'a, D>),
    /// Records the time when all commands before it in the list have ended. Consecutive stamps of one list have
    /// consecutive numbers.
    Stamp(&'a D::Stamps, usize),
}

/// A copy of bytes from one memory of the device to another.
pub struct MemoryCopy<'a, D: Driver> {
    /// The memory that is read.
    pub from: &'a D::Memory,
    /// The offset in `from` of the first byte that is read.
    pub from_offset: u64,
    /// The memory that is written.
    pub to: &'a D::Memory,
    /// The offset in `to` of the first byte that is written.
    pub to_offset: u64,
    /// The number of bytes to copy.
    pub bytes: u64,
}

impl<'a, D: Driver> MemoryCopy<'a, D> {
    /// A copy of `bytes` from the start of a memory to the start of another.
    pub fn new(from: &'a D::Memory, to: &'a D::Memory, bytes: u64) -> MemoryCopy<'a, D> {
        MemoryCopy { from, from_offset: 0, to, to_offset: 0, bytes }
    }
}

/// An allocation of the device's memory.
pub trait Memory {
    /// The address by which the device accesses the memory.
    fn address(&self) -> u64;

    /// The size of the allocation in bytes.
    fn size(&self) -> u64;

    /// The start of the host's mapping of all its bytes, if the host maps it. The mapping lives as long as the memory.
    fn mapping(&self) -> Option<NonNull<u8>>;

    /// The host's mapping of the memory ([`Memory::mapping`]), for writing.
    fn mapping_mut(&mut self) -> Option<NonNull<u8>> {
        self.mapping()
    }

    /// True if the host has mapped the memory.
    fn is_mapped(&self) -> bool {
        self.mapping().is_some()
    }

    /// True if the host reads the memory through its caches, which is fast.
    fn is_cached(&self) -> bool;

    /// Hides the host's mapping, as if the host could not see this memory.
    fn hide(&mut self);

    /// All of its bytes, if the host maps it.
    ///
    /// # Safety
    /// The device does not write it while the slice lives: every submit that writes it was waited for, and the next one
    /// follows the slice's end.
    unsafe fn bytes(&self) -> Option<&[u8]> {
        // SAFETY: the mapping has `size` bytes, which by the caller's contract the device does not write.
        self.mapping().map(|start| unsafe { std::slice::from_raw_parts(start.as_ptr(), self.size() as usize) })
    }

    /// [`Memory::bytes`] for writing.
    ///
    /// # Safety
    /// The device neither reads nor writes it while the slice lives.
    unsafe fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        let size = self.size() as usize;
        // SAFETY: as in `bytes`; `&mut self` makes it the host's only view.
        self.mapping_mut().map(|start| unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), size) })
    }

    /// Some of its words, for access while the device uses others. A submit sees the words written before it.
    ///
    /// # Errors
    /// Device: the memory is not mapped.
    ///
    /// # Safety
    /// While the slice lives, the device neither writes words that are read through it, nor uses words that are
    /// written.
    ///
    /// # Panics
    /// The memory has fewer words.
    unsafe fn words_mut(&mut self, words: Range<usize>) -> Result<&mut [u32]> {
        assert!(words.start <= words.end && words.end as u64 <= self.size() / 4, "{words:?} of {} B", self.size());
        let start = self.mapping_mut().ok_or_else(unmapped)?;
        // SAFETY: these words lie in the mapping, and a mapping begins at a page or at words. The device uses none of
        // them, by the caller's contract; the view has no others.
        Ok(unsafe { std::slice::from_raw_parts_mut(start.cast::<u32>().as_ptr().add(words.start), words.len()) })
    }

    /// Copies `data` to its start. Does not wait for the device.
    ///
    /// # Errors
    /// Device: the memory is not mapped, or too small.
    fn copy_from(&mut self, data: &[u8]) -> Result<()> {
        let start = self.mapping_mut().ok_or_else(unmapped)?;
        if data.len() as u64 > self.size() {
            return Err(too_small(data.len(), self.size()));
        }
        // SAFETY: the bytes lie in the mapping. `data` is no part of it, since this is its only view.
        unsafe { start.as_ptr().copy_from_nonoverlapping(data.as_ptr(), data.len()) };
        Ok(())
    }

    /// Copies its start into `data`. Does not wait for the device.
    ///
    /// # Errors
    /// As [`Memory::copy_from`].
    fn copy_to(&self, data: &mut [u8]) -> Result<()> {
        let start = self.mapping().ok_or_else(unmapped)?;
        if data.len() as u64 > self.size() {
            return Err(too_small(data.len(), self.size()));
        }
        // SAFETY: as in `copy_from`.
        unsafe { start.as_ptr().copy_to_nonoverlapping(data.as_mut_ptr(), data.len()) };
        Ok(())
    }

    /// The memory as a dma-buf for other devices, if it is one.
    fn dma_buf(&self) -> Option<&DmaBuf> {
        None
    }

    /// Makes the device's writes visible to the host, if another driver made the memory.
    ///
    /// # Errors
    /// Device: that driver fails.
    fn to_host(&self) -> Result<()> {
        Ok(())
    }

    /// Makes the host's writes visible to the device, if another driver made the memory.
    ///
    /// # Errors
    /// As [`Memory::to_host`].
    fn to_device(&self) -> Result<()> {
        Ok(())
    }
}

/// Timestamps that lists of commands record.
pub trait Stamps {
    /// The number of timestamps.
    fn count(&self) -> usize;

    /// Reads all stamps. The lists that record them have been submitted and waited for.
    ///
    /// # Errors
    /// Device: the device was lost.
    fn fetch(&mut self) -> Result<()>;

    /// Seconds from one stamp to another, as last read.
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

/// How the host accesses an allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostAccess {
    /// The host never accesses the memory. It is not mapped, and if possible takes nothing of the window through which
    /// the host maps the device's memory, which may be smaller than that memory.
    None,
    /// The host needs no access. The memory is mapped if that costs nothing.
    Device,
    /// The host must be able to write and read the memory.
    Host,
}

/// The source of memory that other devices may share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MemorySource {
    /// Exported if host and GPU share their memory and the driver can export it, else ordinary.
    #[default]
    Auto,
    /// Memory that the driver allocates, and that no other driver can access.
    Ordinary,
    /// Allocated by the driver and exported as a dma-buf.
    Exported,
}

/// Whether a requested kernel can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readiness {
    /// The kernel is compiled.
    Ready,
    /// The kernel is being compiled, or waits for it.
    NotYet,
    /// Not requested, or replaced by a later request.
    Unasked,
    /// Late, not compilable, or not there: the caller goes on without the kernel.
    LeftOut,
}

/// The error of a copy of `len` bytes from or to a memory of `size`.
fn too_small(len: usize, size: u64) -> Error {
    Error::device(format!("{len} B are more than a memory of {size} B"), "report this")
}

/// The error of memory that the host does not map.
pub(crate) fn unmapped() -> Error {
    Error::device("the memory is not mapped", text!("update the driver, or use ", Setting::Cpu))
}

/// The error for a device that did not finish within `seconds`; 0 for one that hangs already.
pub(crate) fn hung(seconds: u64) -> Error {
    Error::device(
        format!("the GPU hangs: it did not finish within {seconds} s"),
        text!("see the kernel's log for a hung ring; ", Setting::Cpu, " works without the GPU"),
    )
}
