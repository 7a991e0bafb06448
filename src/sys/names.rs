//! Names of hosts and users in a static executable of glibc.

use std::ffi::{c_char, c_int};

unsafe extern "C" {
    fn __nss_configure_lookup(database: *const c_char, services: *const c_char) -> c_int;
}

/// Restricts look-ups of names to the services that are part of the static libc, whatever /etc/nsswitch.conf says: glibc
/// loads any other service as a shared object, with a second libc, and may crash in it.
pub fn use_own_services() {
    for (database, services) in [(c"hosts", c"files dns"), (c"passwd", c"files"), (c"group", c"files")] {
        // SAFETY: both are strings; called before there are other threads. It fails for a wrong name alone.
        unsafe { __nss_configure_lookup(database.as_ptr(), services.as_ptr()) };
    }
}
