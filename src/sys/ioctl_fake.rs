//! Requests to a file answered by tests. The test binary defines `ioctl`, which the linker prefers to libc's, so the real
//! code runs right down to the system call.

use nix::errno::Errno;
use std::collections::HashMap;
use std::ffi::{c_int, c_ulong, c_void};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

/// Answers a request, given its number and argument.
type IoctlHandler = dyn FnMut(c_ulong, *mut c_void) -> Result<c_int, Errno> + Send;
type Handlers = HashMap<PathBuf, Arc<Mutex<Box<IoctlHandler>>>>;

static HANDLERS: Mutex<Option<Handlers>> = Mutex::new(None);
static COUNT: AtomicUsize = AtomicUsize::new(0);

fn handlers() -> MutexGuard<'static, Option<Handlers>> {
    HANDLERS.lock().unwrap_or_else(|e| e.into_inner())
}

/// Answers the ioctls on a file until dropped.
pub struct FakeIoctls(PathBuf);

impl FakeIoctls {
    /// Answers every ioctl on the existing file `path` by `handler`. A file without a name has one in /proc/self/fd.
    pub fn new(
        path: &Path,
        handler: impl FnMut(c_ulong, *mut c_void) -> Result<c_int, Errno> + Send + 'static,
    ) -> FakeIoctls {
        let path = path.canonicalize().or_else(|_| path.read_link()).unwrap();
        let handler: Box<IoctlHandler> = Box::new(handler);
        handlers().get_or_insert_default().insert(path.clone(), Arc::new(Mutex::new(handler)));
        COUNT.fetch_add(1, Ordering::SeqCst);
        FakeIoctls(path)
    }
}

impl Drop for FakeIoctls {
    fn drop(&mut self) {
        COUNT.fetch_sub(1, Ordering::SeqCst);
        handlers().get_or_insert_default().remove(&self.0);
    }
}

type Ioctl = unsafe extern "C" fn(c_int, c_ulong, ...) -> c_int;

/// The `ioctl` that this one hides: libc's, or that of a library that is loaded before libc (tests/common/amdgpu.c).
/// A static executable has none.
fn next_ioctl() -> Option<Ioctl> {
    static NEXT: OnceLock<Option<Ioctl>> = OnceLock::new();
    // SAFETY: the name is that of a C function of this type, where a library has it.
    *NEXT.get_or_init(|| unsafe {
        let next = libc::dlsym(libc::RTLD_NEXT, c"ioctl".as_ptr());
        std::mem::transmute::<*mut c_void, Option<Ioctl>>(next)
    })
}

/// Replaces libc's `ioctl`.
///
/// # Safety
/// As for libc's `ioctl`. On x86-64 and AArch64, a variadic call passes three integers as any other call does.
#[unsafe(no_mangle)]
unsafe extern "C" fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    let handler = (COUNT.load(Ordering::SeqCst) > 0)
        .then(|| std::fs::read_link(format!("/proc/self/fd/{fd}")).ok())
        .flatten()
        .and_then(|path| handlers().as_ref()?.get(&path).cloned());
    let Some(handler) = handler else {
        // SAFETY: the arguments are passed on unchanged, so the caller's contract holds.
        return unsafe {
            match next_ioctl() {
                Some(next) => next(fd, request, argument),
                None => libc::syscall(libc::SYS_ioctl, fd, request, argument) as c_int,
            }
        };
    };
    // A panic must not unwind through C code: a failed assertion in a handler is printed, and the request fails.
    let call = || (handler.lock().unwrap_or_else(|e| e.into_inner()))(request, argument);
    let answer = std::panic::catch_unwind(std::panic::AssertUnwindSafe(call)).unwrap_or(Err(Errno::EFAULT));
    answer.unwrap_or_else(|errno| {
        errno.set();
        -1
    })
}

/// The parts of an ioctl's number: direction and size of the argument, type, number.
pub fn decode(request: c_ulong) -> (u64, usize, u8, u8) {
    ((request >> 30) & 3, (request >> 16) as usize & 0x3fff, (request >> 8) as u8, request as u8)
}
