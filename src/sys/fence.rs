//! Explicit fences: a sync_file becomes ready when the work behind it is done.

use super::failure::{DriverResult, Failure, retry};
use super::{bindings as b, raw};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// The state of a fence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FenceState {
    /// The work is under way.
    Pending,
    /// The work is done.
    Signaled,
    /// The work failed, with this errno.
    Failed(Errno),
}

/// A sync_file: one or more fences as a file descriptor.
#[derive(Debug)]
pub struct SyncFile {
    fd: OwnedFd,
}

impl SyncFile {
    /// A fence that a driver exported.
    pub fn from_fd(fd: OwnedFd) -> SyncFile {
        SyncFile { fd }
    }

    /// A fence that is ready when both fences are.
    ///
    /// # Errors
    /// ENOTTY, EINVAL: one of them is not a sync_file.
    pub fn merge(&self, other: &SyncFile) -> DriverResult<SyncFile> {
        let mut data = b::sync_merge_data { fd2: other.fd.as_raw_fd(), fence: -1, ..Default::default() };
        for (to, from) in data.name.iter_mut().zip(*b"kiln") {
            *to = from as _;
        }
        // SAFETY: the structure is valid for the call.
        retry("merge two fences", || unsafe { raw::sync_merge(self.fd.as_raw_fd(), &mut data) })?;
        // SAFETY: the kernel put a new descriptor there, which has no other owner.
        Ok(SyncFile { fd: unsafe { OwnedFd::from_raw_fd(data.fence) } })
    }

    /// The current state.
    ///
    /// # Errors
    /// ENOTTY: not a sync_file.
    pub fn state(&self) -> DriverResult<FenceState> {
        let mut info = b::sync_file_info::default();
        // SAFETY: the structure is valid for the call; with num_fences 0 the kernel writes nothing behind it.
        retry("ask a fence's state", || unsafe { raw::sync_file_info(self.fd.as_raw_fd(), &mut info) })?;
        Ok(match info.status {
            0 => FenceState::Pending,
            1.. => FenceState::Signaled,
            failed => FenceState::Failed(Errno::from_raw(failed.saturating_neg())),
        })
    }

    /// Waits until the fence is ready.
    ///
    /// # Errors
    /// ETIMEDOUT: `timeout` is over. Otherwise the errno with which the work failed.
    pub fn wait(&self, timeout: Duration) -> DriverResult<()> {
        let what = "wait for a fence";
        let start = Instant::now();
        loop {
            let left = timeout.saturating_sub(start.elapsed());
            // Rounded up, so that a wait of less than a millisecond does not spin.
            let millis = left.as_nanos().div_ceil(1_000_000).min(i32::MAX as u128) as i32;
            let mut fds = [PollFd::new(self.fd.as_fd(), PollFlags::POLLIN)];
            match poll(&mut fds, PollTimeout::try_from(millis).unwrap_or(PollTimeout::MAX)) {
                Ok(0) if start.elapsed() >= timeout => return Err(Failure::new(what, Errno::ETIMEDOUT)),
                Ok(0) | Err(Errno::EINTR) => {}
                Ok(_) => break,
                Err(errno) => return Err(Failure::new(what, errno)),
            }
        }
        match self.state()? {
            FenceState::Failed(errno) => Err(Failure::new(what, errno)),
            _ => Ok(()),
        }
    }
}

impl AsFd for SyncFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl From<SyncFile> for OwnedFd {
    fn from(fence: SyncFile) -> OwnedFd {
        fence.fd
    }
}
