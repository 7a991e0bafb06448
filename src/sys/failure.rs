//! A driver's refusal: the request and the errno, and the remedy for each.

use crate::Error;
use nix::errno::Errno;

/// The error for a request that a driver refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {errno}")]
pub struct Failure {
    /// The request, as in "list the NPU's contexts".
    pub what: String,
    /// The error number that the kernel returned.
    pub errno: Errno,
}

/// The result of a request to a driver.
pub type DriverResult<T> = std::result::Result<T, Failure>;

impl Failure {
    /// The failure of the request to do `what`.
    pub fn new(what: impl Into<String>, errno: Errno) -> Failure {
        Failure { what: what.into(), errno }
    }

    /// A failure to do `what`, from an error of std. EIO if it has no errno.
    pub fn from_io(what: impl Into<String>, e: &std::io::Error) -> Failure {
        Failure::new(what, e.raw_os_error().map_or(Errno::EIO, Errno::from_raw))
    }

    /// True if the driver does not know the request: an older kernel, another driver, or other hardware.
    pub fn is_unknown(&self) -> bool {
        matches!(self.errno, Errno::EINVAL | Errno::ENOTTY | Errno::EOPNOTSUPP | Errno::ENOSYS)
    }

    /// True if reopening the device might help. It does not if the driver lacks the request or refuses it to this user.
    pub fn may_be_gone(&self) -> bool {
        !self.is_unknown() && !matches!(self.errno, Errno::EACCES | Errno::EPERM)
    }

    /// The remedy for this error number, as an instruction to the user.
    pub fn remedy(&self) -> &'static str {
        match self.errno {
            Errno::EACCES | Errno::EPERM => {
                "join the groups render and video (`usermod -aG render,video $USER`), or run as root"
            }
            Errno::ENOENT => "load the driver, or pass the device into the container",
            Errno::ENODEV | Errno::ENXIO | Errno::EIO => {
                "the device is gone or was reset: see the kernel's log (`dmesg`)"
            }
            Errno::EOPNOTSUPP | Errno::ENOTTY | Errno::ENOSYS | Errno::EINVAL => {
                "this kernel's driver does not know the request: a newer kernel may"
            }
            Errno::ENOMEM | Errno::ENOSPC | Errno::EAGAIN => "close what else uses memory, or raise `ulimit -l`",
            Errno::EMFILE | Errno::ENFILE => "raise the limit of open files (`ulimit -n`)",
            Errno::ETIME | Errno::ETIMEDOUT => "the device did not finish in time: see the kernel's log (`dmesg`)",
            Errno::EBUSY => "end what else holds the device",
            _ => "see the kernel's log (`dmesg`)",
        }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Error {
        let cause = format!("the kernel failed to {failure}");
        match failure.errno {
            Errno::ENOMEM | Errno::ENOSPC => Error::refused(cause, failure.remedy()),
            _ => Error::device(cause, failure.remedy()),
        }
    }
}

/// Retries of a request while the driver is too busy to serve it.
const BUSY_TRIES: u32 = 1000;

/// Repeats a request while signals interrupt it, and up to [`BUSY_TRIES`] times while the driver answers EAGAIN.
/// dma-buf's documentation demands these retries, and libdrm does them for all of DRM.
pub(super) fn retry<T>(what: &str, mut ioctl: impl FnMut() -> nix::Result<T>) -> DriverResult<T> {
    let mut busy = 0;
    loop {
        match ioctl() {
            Err(Errno::EINTR) => {}
            Err(Errno::EAGAIN) if busy < BUSY_TRIES => {
                busy += 1;
                std::thread::yield_now();
            }
            Err(errno) => return Err(Failure::new(what, errno)),
            Ok(value) => return Ok(value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_does_not_end_a_request_and_a_busy_driver_does_in_the_end() {
        let answer = |errno: Errno, times: u32| {
            let mut asked = 0;
            let result = retry("ask", || {
                asked += 1;
                if asked <= times { Err(errno) } else { Ok(asked) }
            });
            (result.map_err(|f| f.errno), asked)
        };
        assert_eq!(answer(Errno::EINTR, 5000), (Ok(5001), 5001));
        assert_eq!(answer(Errno::EAGAIN, 3), (Ok(4), 4));
        assert_eq!(answer(Errno::EAGAIN, u32::MAX), (Err(Errno::EAGAIN), BUSY_TRIES + 1));
        assert_eq!(answer(Errno::ENODEV, 1), (Err(Errno::ENODEV), 1));
    }

    #[test]
    fn every_errno_becomes_one_line_with_a_remedy() {
        for errno in 1..134 {
            let e = Error::from(Failure::new("ask", Errno::from_raw(errno)));
            assert!(e.to_string().starts_with("the kernel failed to ask: ") && e.to_string().contains("; "), "{e}");
        }
        assert_eq!(Error::from(Failure::new("allocate", Errno::ENOMEM)).exit_code(), 3);
        assert_eq!(Error::from(Failure::new("open", Errno::EACCES)).exit_code(), 4);
    }
}
