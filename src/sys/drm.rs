//! The ioctls common to all DRM and accel drivers: version, buffer import and export, timeline fences.

use super::dma_buf::{DmaBuf, open_node};
use super::failure::{DriverResult, Failure, retry};
use super::{bindings as b, raw};
use nix::errno::Errno;
use nix::time::{ClockId, clock_gettime};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// An open render or accel node. A clone is the same open file: the file stays open as long as a clone, or a handle of
/// its driver, lives.
#[derive(Debug, Clone)]
pub struct Node {
    fd: Arc<OwnedFd>,
}

/// The name and the version that a driver reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    /// The driver's name, such as "amdgpu".
    pub name: String,
    /// Version of its interface: major, minor, patch level.
    pub numbers: [i32; 3],
    /// The driver's description of itself.
    pub description: String,
}

/// A driver's handle of a buffer, closed when dropped.
#[derive(Debug)]
pub struct Gem {
    node: Node,
    handle: u32,
}

/// A driver's timeline fence, destroyed when dropped.
#[derive(Debug)]
pub struct Syncobj {
    node: Node,
    handle: u32,
}

/// Buffer size for each string of a driver's version.
const TEXT: usize = 128;

impl Node {
    /// Opens a node.
    ///
    /// # Errors
    /// ENOENT, EACCES, ENODEV, ….
    pub fn open(path: &Path) -> DriverResult<Node> {
        Ok(Node { fd: Arc::new(open_node(path)?) })
    }

    pub(super) fn raw(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// The driver's name and version.
    ///
    /// # Errors
    /// ENOTTY: not a DRM node.
    pub fn version(&self) -> DriverResult<Version> {
        let (mut name, mut description) = ([0u8; TEXT], [0u8; TEXT]);
        let mut v = b::drm_version {
            name_len: TEXT as _,
            name: name.as_mut_ptr().cast(),
            desc_len: TEXT as _,
            desc: description.as_mut_ptr().cast(),
            ..Default::default()
        };
        // SAFETY: the structure and the buffers that it points to, with their lengths, are valid for the call.
        retry("ask a driver's version", || unsafe { raw::drm_version(self.raw(), &mut v) })?;
        let numbers = [v.version_major, v.version_minor, v.version_patchlevel];
        // The driver may return the full text's length, larger than the buffer. `text` ignores it.
        Ok(Version { name: text(&name), numbers, description: text(&description) })
    }

    /// Imports another driver's buffer.
    ///
    /// # Errors
    /// The driver's answer for a buffer that it cannot access.
    pub fn import(&self, buffer: BorrowedFd<'_>) -> DriverResult<Gem> {
        let mut data = b::drm_prime_handle { fd: buffer.as_raw_fd(), ..Default::default() };
        // SAFETY: the structure is valid for the call.
        retry("import a dma-buf", || unsafe { raw::drm_prime_fd_to_handle(self.raw(), &mut data) })?;
        Ok(self.own(data.handle))
    }

    /// Takes ownership of a handle that this node's driver has just given.
    pub(super) fn own(&self, handle: u32) -> Gem {
        Gem { node: self.clone(), handle }
    }

    /// Takes ownership of a timeline fence that this node's driver has just given.
    pub(super) fn own_timeline(&self, handle: u32) -> Syncobj {
        Syncobj { node: self.clone(), handle }
    }

    /// Waits until the timeline `handle` of this node passes `point`, whether or not that point is submitted yet.
    ///
    /// # Errors
    /// ETIME: `timeout` is over.
    pub fn wait_timeline(&self, handle: u32, point: u64, timeout: Duration) -> DriverResult<()> {
        let what = "wait for a timeline fence";
        let deadline = deadline(what, timeout)?;
        let (handles, points) = ([handle], [point]);
        let mut data = b::drm_syncobj_timeline_wait {
            handles: handles.as_ptr() as u64,
            points: points.as_ptr() as u64,
            timeout_nsec: deadline,
            count_handles: 1,
            flags: b::DRM_SYNCOBJ_WAIT_FLAGS_WAIT_FOR_SUBMIT,
            ..Default::default()
        };
        // SAFETY: the structure and the arrays of one that it points to are valid for the call.
        retry(what, || unsafe { raw::drm_syncobj_timeline_wait(self.raw(), &mut data) }).map(drop)
    }
}

impl AsFd for Node {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The end of a wait, in nanoseconds of the monotonic clock. The kernel accepts an absolute deadline: an interrupted
/// wait does not take longer.
pub(super) fn deadline(what: &str, timeout: Duration) -> DriverResult<i64> {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map_err(|e| Failure::new(what, e))?;
    Ok(Duration::from(now).saturating_add(timeout).as_nanos().min(i64::MAX as u128) as i64)
}

/// The text before the first zero byte.
pub(super) fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).trim().to_owned()
}

impl Gem {
    /// The handle by which the driver knows the object.
    pub fn handle(&self) -> u32 {
        self.handle
    }

    /// Exports the buffer to other drivers.
    ///
    /// # Errors
    /// The driver's answer for a buffer that it does not share.
    pub fn export(&self) -> DriverResult<DmaBuf> {
        let flags = (libc::O_RDWR | libc::O_CLOEXEC) as u32;
        let mut data = b::drm_prime_handle { handle: self.handle, flags, fd: -1 };
        // SAFETY: the structure is valid for the call.
        retry("export a dma-buf", || unsafe { raw::drm_prime_handle_to_fd(self.node.raw(), &mut data) })?;
        if data.fd < 0 {
            return Err(Failure::new("export a dma-buf", Errno::EBADF));
        }
        // SAFETY: the kernel put a new descriptor there, which has no other owner.
        DmaBuf::from_fd(unsafe { OwnedFd::from_raw_fd(data.fd) })
    }
}

impl Drop for Gem {
    fn drop(&mut self) {
        let data = b::drm_gem_close { handle: self.handle, pad: 0 };
        // SAFETY: the structure is valid for the call, and the handle is this value's own.
        let _ = retry("close a buffer", || unsafe { raw::drm_gem_close(self.node.raw(), &data) });
    }
}

impl Syncobj {
    /// The handle.
    pub fn handle(&self) -> u32 {
        self.handle
    }
}

impl Drop for Syncobj {
    fn drop(&mut self) {
        let mut data = b::drm_syncobj_destroy { handle: self.handle, pad: 0 };
        // SAFETY: the structure is valid for the call, and the handle is this value's own.
        let _ = retry("destroy a fence", || unsafe { raw::drm_syncobj_destroy(self.node.raw(), &mut data) });
    }
}
