//! Buffers shared between drivers: allocated from /dev/udmabuf or a dma-heap, mapped, and synchronised with the CPU's
//! caches and the devices' fences.

use super::failure::{DriverResult, Failure, retry};
use super::{bindings as b, raw};
use memmap2::{MmapOptions, MmapRaw};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::unistd::{Whence, ftruncate, lseek};
use std::fs::OpenOptions;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::ptr::NonNull;

/// The device node of the kernel's udmabuf driver, which makes dma-bufs of ordinary memory.
pub const UDMABUF: &str = "/dev/udmabuf";
/// The dma-heap of ordinary system memory.
pub const SYSTEM_HEAP: &str = "/dev/dma_heap/system";

/// How the CPU (through a mapping) or a device (behind a fence) accesses a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// The buffer is only read.
    Read,
    /// The buffer is only written.
    Write,
    /// The buffer is read and written.
    ReadWrite,
}

impl Access {
    fn flags(self) -> u32 {
        match self {
            Access::Read => b::DMA_BUF_SYNC_READ,
            Access::Write => b::DMA_BUF_SYNC_WRITE,
            Access::ReadWrite => b::DMA_BUF_SYNC_RW,
        }
    }
}

/// A dma-buf, or a memfd in its place: a file descriptor that devices can import, and its size in bytes.
#[derive(Debug)]
pub struct DmaBuf {
    fd: OwnedFd,
    size: u64,
}

/// Opens a device node for reading and writing.
///
/// # Errors
/// The kernel's answer: ENOENT, EACCES, ENODEV, ….
pub fn open_node(path: &Path) -> DriverResult<OwnedFd> {
    let file = OpenOptions::new().read(true).write(true).custom_flags(libc::O_CLOEXEC).open(path);
    file.map(OwnedFd::from).map_err(|e| Failure::from_io(format!("open {}", path.display()), &e))
}

/// A memfd of `size` bytes, sealed against shrinking, as udmabuf requires.
///
/// # Errors
/// ENOMEM, EMFILE. EINVAL: `size` is 0 or not a multiple of the page size.
pub fn sealed_memfd(size: u64) -> DriverResult<OwnedFd> {
    let what = format!("make a memfd of {size} bytes");
    let failure = |errno| Failure::new(what.clone(), errno);
    if size == 0 || !size.is_multiple_of(page_size()) {
        return Err(failure(Errno::EINVAL));
    }
    let length = i64::try_from(size).map_err(|_| failure(Errno::EFBIG))?;
    let fd = memfd_create("kiln", MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING).map_err(failure)?;
    ftruncate(&fd, length).map_err(failure)?;
    fcntl(&fd, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_SHRINK)).map_err(failure)?;
    Ok(fd)
}

/// The size of a page of memory in bytes.
pub fn page_size() -> u64 {
    nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE).ok().flatten().map_or(4096, |n| n as u64)
}

impl DmaBuf {
    /// Wraps the first `size` bytes of `memfd` through `udmabuf`, an open [`UDMABUF`].
    ///
    /// # Errors
    /// EINVAL: not page-aligned, not sealed against shrinking, or larger than udmabuf's `size_limit_mb` (64 by
    /// default).
    pub fn from_memfd(udmabuf: BorrowedFd<'_>, memfd: BorrowedFd<'_>, size: u64) -> DriverResult<DmaBuf> {
        let create =
            b::udmabuf_create { memfd: memfd.as_raw_fd() as u32, flags: b::UDMABUF_FLAGS_CLOEXEC, offset: 0, size };
        // SAFETY: the structure is valid for the call; the answer is a new descriptor without another owner.
        let fd = retry("make a dma-buf of a memfd", || unsafe { raw::udmabuf_create(udmabuf.as_raw_fd(), &create) })?;
        // SAFETY: the kernel has just made this descriptor, and no other value owns it.
        Ok(DmaBuf { fd: unsafe { OwnedFd::from_raw_fd(fd) }, size })
    }

    /// Allocates `size` bytes from `heap`, an open dma-heap such as [`SYSTEM_HEAP`].
    ///
    /// # Errors
    /// ENOMEM, EINVAL.
    pub fn from_heap(heap: BorrowedFd<'_>, size: u64) -> DriverResult<DmaBuf> {
        let mut data = b::dma_heap_allocation_data {
            len: size,
            fd_flags: (libc::O_RDWR | libc::O_CLOEXEC) as u32,
            ..Default::default()
        };
        // SAFETY: the structure is valid for the call.
        retry("allocate from a dma-heap", || unsafe { raw::dma_heap_alloc(heap.as_raw_fd(), &mut data) })?;
        // SAFETY: the kernel put a new descriptor there, which has no other owner.
        Ok(DmaBuf { fd: unsafe { OwnedFd::from_raw_fd(data.fd as i32) }, size })
    }

    /// A buffer that a driver exported. The kernel gives its size.
    ///
    /// # Errors
    /// ESPIPE: `fd` is not a dma-buf.
    pub fn from_fd(fd: OwnedFd) -> DriverResult<DmaBuf> {
        let end = |whence| lseek(&fd, 0, whence).map_err(|e| Failure::new("ask a dma-buf's size", e));
        let size = end(Whence::SeekEnd)?;
        end(Whence::SeekSet)?;
        Ok(DmaBuf { fd, size: size as u64 })
    }

    /// The size of the buffer in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Maps the whole buffer. The CPU accesses it between [`DmaBuf::begin`] and [`DmaBuf::end`].
    ///
    /// # Errors
    /// EACCES: exported read-only. ENOMEM, ENODEV: its driver cannot map it.
    pub fn map(&self) -> DriverResult<Mapping> {
        Mapping::new("map a dma-buf", &self.fd, 0, self.size)
    }

    /// Begins the CPU's access to a mapping: waits for the implicit fences, and makes the devices' writes visible.
    ///
    /// # Errors
    /// ENOTTY: not a dma-buf (a memfd does not need this call). Others as the exporting driver answers.
    pub fn begin(&self, access: Access) -> DriverResult<()> {
        self.sync(b::DMA_BUF_SYNC_START, access)
    }

    /// Ends the CPU's access to a mapping: makes its writes visible to the devices.
    ///
    /// # Errors
    /// As [`DmaBuf::begin`].
    pub fn end(&self, access: Access) -> DriverResult<()> {
        self.sync(b::DMA_BUF_SYNC_END, access)
    }

    fn sync(&self, phase: u32, access: Access) -> DriverResult<()> {
        let sync = b::dma_buf_sync { flags: u64::from(phase | access.flags()) };
        // SAFETY: the structure is valid for the call.
        retry("synchronise a dma-buf", || unsafe { raw::dma_buf_sync(self.fd.as_raw_fd(), &sync) }).map(drop)
    }
}

impl AsFd for DmaBuf {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl From<DmaBuf> for OwnedFd {
    fn from(buffer: DmaBuf) -> OwnedFd {
        buffer.fd
    }
}

/// A buffer's mapping in this process. It keeps the memory alive even after the buffer's descriptor is closed.
///
/// Devices and other processes write the same bytes. Wait for them before reading or writing here.
#[derive(Debug)]
pub struct Mapping {
    map: MmapRaw,
}

impl Mapping {
    /// Maps `size` bytes of `fd` from `offset` on. `what` names the request in errors.
    ///
    /// # Errors
    /// EACCES: not open for reading and writing. EINVAL: `size` is 0. ENOMEM, ENODEV: its driver cannot map it.
    pub(crate) fn new(what: &'static str, fd: impl AsFd, offset: u64, size: u64) -> DriverResult<Mapping> {
        let len = usize::try_from(size).ok().filter(|&len| len != 0);
        let len = len.ok_or_else(|| Failure::new(what, Errno::EINVAL))?;
        // Given a length, memmap2 does not query the file's length, which device nodes lack.
        let map = MmapOptions::new().offset(offset).len(len).map_raw(&fd.as_fd());
        Ok(Mapping { map: map.map_err(|e| Failure::from_io(what, &e))? })
    }

    /// The mapped bytes.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the mapping covers `len` bytes for its life; the type says which other writers there are.
        unsafe { std::slice::from_raw_parts(self.map.as_ptr(), self.map.len()) }
    }

    /// The address of the first mapped byte.
    pub fn start(&self) -> NonNull<u8> {
        NonNull::new(self.map.as_mut_ptr()).expect("a mapping has an address")
    }

    /// The number in the first eight bytes, which a device may be writing. What the device wrote before is seen after.
    #[cfg(feature = "amdgpu")]
    pub fn load_first(&self) -> u64 {
        // SAFETY: a mapping begins at a page and has at least eight bytes; no reference to them is made.
        let first = unsafe { std::sync::atomic::AtomicU64::from_ptr(self.map.as_mut_ptr().cast()) };
        first.load(std::sync::atomic::Ordering::Acquire)
    }

    /// The mapped bytes, for writing.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`; `&mut self` makes it this process's only view through this mapping.
        unsafe { std::slice::from_raw_parts_mut(self.map.as_mut_ptr(), self.map.len()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_mappings_of_a_memfd_are_the_same_bytes() {
        let memfd = sealed_memfd(2 * page_size()).unwrap();
        let buffer = DmaBuf::from_fd(memfd.try_clone().unwrap()).unwrap();
        assert_eq!(buffer.size(), 2 * page_size());
        let (mut one, two) = (buffer.map().unwrap(), buffer.map().unwrap());
        drop(buffer);
        one.bytes_mut()[4097] = 7;
        assert_eq!(two.bytes()[4097], 7);
        assert_eq!(ftruncate(&memfd, 0), Err(Errno::EPERM), "it is sealed");
    }

    #[test]
    fn what_is_no_dma_buf_says_so() {
        let memfd = DmaBuf::from_fd(sealed_memfd(page_size()).unwrap()).unwrap();
        assert_eq!(memfd.begin(Access::ReadWrite).unwrap_err().errno, Errno::ENOTTY);
        assert_eq!(memfd.end(Access::Write).unwrap_err().errno, Errno::ENOTTY);
        let (pipe, _other) = nix::unistd::pipe().unwrap();
        assert_eq!(DmaBuf::from_fd(pipe).unwrap_err().errno, Errno::ESPIPE);
    }

    #[test]
    fn odd_sizes_and_absent_devices_are_errors() {
        assert_eq!(sealed_memfd(0).unwrap_err().errno, Errno::EINVAL);
        assert_eq!(sealed_memfd(5).unwrap_err().errno, Errno::EINVAL);
        assert_eq!(sealed_memfd(u64::MAX - page_size() + 1).unwrap_err().errno, Errno::EFBIG);
        let empty = DmaBuf::from_fd(memfd_create("empty", MFdFlags::MFD_CLOEXEC).unwrap()).unwrap();
        assert_eq!(empty.map().unwrap_err().errno, Errno::EINVAL);
        assert_eq!(open_node(Path::new("/dev/absent")).unwrap_err().errno, Errno::ENOENT);
        let null = open_node(Path::new("/dev/null")).unwrap();
        let memfd = sealed_memfd(page_size()).unwrap();
        let made = DmaBuf::from_memfd(null.as_fd(), memfd.as_fd(), page_size());
        assert_eq!(made.unwrap_err().errno, Errno::ENOTTY);
        assert_eq!(DmaBuf::from_heap(null.as_fd(), page_size()).unwrap_err().errno, Errno::ENOTTY);
    }
}
