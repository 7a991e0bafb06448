//! Ends the process while one of its threads cannot be waited for.

/// Ends the process at once, without exit handlers of the driver and the C library: they would free memory that a
/// thread still uses inside a driver. Output must have been flushed.
pub fn at_once(code: u8) -> ! {
    // SAFETY: nothing of this process is used after the call, which does not return.
    unsafe { libc::_exit(i32::from(code)) }
}
