//! libxrt, AMD's library for the NPU: devices, programs with their hardware contexts, buffers and runs.
//!
//! libxrt's interface is C++ only. A bridge (ffi/xrt) wraps it: a shared object with C functions that let no exception
//! through. It is compiled if libxrt's headers are present, and embedded in the executable. It is loaded together with
//! libxrt on first use, so the executable needs neither libxrt nor C++ to start.

#[cfg(feature = "xrt")]
mod load;

use super::bindings as b;
use crate::display::plain;
use crate::error::{Setting, text};
use crate::{Error, Result};
use std::ffi::{CStr, CString, c_int, c_void};
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
#[cfg(feature = "xrt")]
use std::path::{Path, PathBuf};
use std::ptr::{NonNull, null_mut};
#[cfg(feature = "xrt")]
use std::sync::OnceLock;
use std::time::Duration;

/// The file name of libxrt. The bridge, a shim in C++, is linked to it.
pub const NAME: &str = "libxrt_coreutil.so.2";
/// Further folders to search, since AMD's packages do not register theirs with the loader.
#[cfg(feature = "xrt")]
const FOLDERS: [&str; 2] = ["/opt/xilinx/xrt/lib", "/opt/xilinx/xrt/lib64"];

/// The bridge, or why this build has none.
#[cfg(kiln_xrt)]
const BRIDGE: std::result::Result<&[u8], &str> = Ok(include_bytes!(env!("KILN_XRT_BRIDGE")));
/// The bridge, or why this build has none.
#[cfg(all(feature = "xrt", not(kiln_xrt)))]
const BRIDGE: std::result::Result<&[u8], &str> = Err(env!("KILN_XRT_LACKS"));

/// The reason for which libxrt cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Missing {
    /// This build has no bridge, for this reason.
    #[error("this build has no bridge to libxrt: {0}")]
    NotBuilt(String),
    /// libxrt is not on this machine.
    #[error("libxrt is not installed")]
    NotInstalled,
    /// libxrt is installed but cannot be loaded, for this reason.
    #[error("libxrt cannot be loaded: {0}")]
    Unloadable(String),
}

impl Missing {
    /// The remedy, as an instruction to the user.
    pub fn remedy(&self) -> &'static str {
        match self {
            Missing::NotBuilt(_) => {
                "build Kiln with its feature `xrt`, where libxrt-dev, uuid-dev and g++ are installed"
            }
            Missing::NotInstalled => {
                "install libxrt2 and libxrt-npu2 (from Debian 13's backports), or AMD's own package"
            }
            Missing::Unloadable(_) => {
                "install libxrt 2.25 or newer with all that it needs (`ldd` shows what is missing)"
            }
        }
    }
}

impl From<Missing> for Error {
    fn from(missing: Missing) -> Error {
        Error::device(missing.to_string(), missing.remedy())
    }
}

/// The loaded library libxrt.
#[derive(Debug)]
pub struct Library {
    face: b::kiln_xrt_face,
    version: [u32; 3],
}

/// Calls a function of the bridge's function table: `Ok` with its status, or the error that it reports.
macro_rules! call {
    ($library:expr, $what:expr, $function:ident($($argument:expr),*)) => {{
        let mut why = b::kiln_xrt_text::default();
        let status = match $library.face.$function {
            // SAFETY: the function table is the bridge's own. Objects are alive because their owners here are. Every
            // other pointer is valid for the call and of the stated size.
            Some(function) => unsafe { function($($argument,)* &mut why) },
            None => b::KILN_XRT_FAILED as c_int,
        };
        judge($what, status, &why)
    }};
}

/// Returns the bridge's status, or its failure as an error.
fn judge(what: &str, status: c_int, why: &b::kiln_xrt_text) -> Result<u32> {
    match u32::try_from(status) {
        Ok(status @ (b::KILN_XRT_DONE | b::KILN_XRT_LATE)) => Ok(status),
        _ => Err(Error::device(
            format!("libxrt failed to {what}: {}", text(why)),
            text!("see the kernel's log (`dmesg`), or use ", Setting::KernelNpu, ", or ", Setting::NoNpu),
        )),
    }
}

/// Reads a text from the bridge, and joins its lines.
fn text(text: &b::kiln_xrt_text) -> String {
    let bytes = text.bytes.map(|c| c as u8);
    let said = CStr::from_bytes_until_nul(&bytes).map(|t| t.to_string_lossy().into_owned()).unwrap_or_default();
    let said = plain(&said);
    if said.trim().is_empty() { "without a word".into() } else { said.trim().to_owned() }
}

/// Makes a C string for the bridge.
fn c_string(what: &str, text: &str) -> Result<CString> {
    CString::new(text).map_err(|_| Error::input(format!("{what} has a zero byte"), "name another"))
}

impl Library {
    /// libxrt, loaded once and never unloaded: its threads and global state would not survive that.
    ///
    /// # Errors
    /// The reason why libxrt cannot be used; the same at each call.
    #[cfg(feature = "xrt")]
    pub fn load() -> std::result::Result<&'static Library, Missing> {
        static LOADED: OnceLock<std::result::Result<Library, Missing>> = OnceLock::new();
        let loaded = LOADED.get_or_init(|| {
            let bridge = BRIDGE.map_err(|why| Missing::NotBuilt(why.into()))?;
            let beside = FOLDERS.iter().map(|folder| Path::new(folder).join(NAME));
            // SAFETY: the bridge was compiled from its source by this build.
            unsafe { Library::of(bridge, &[vec![PathBuf::from(NAME)], beside.collect()].concat()) }
        });
        loaded.as_ref().map_err(Missing::clone)
    }

    /// No library: nothing is opened at run time.
    ///
    /// # Errors
    /// Always: this build has no bridge.
    #[cfg(not(feature = "xrt"))]
    pub fn load() -> std::result::Result<&'static Library, Missing> {
        Err(Missing::NotBuilt("its feature `xrt` is off".into()))
    }

    /// Loads the first of `candidates` that exists, then `bridge`, the bytes of a shared object that is linked to it. A
    /// candidate is a path, or a name that the loader finds.
    ///
    /// # Errors
    /// Not installed: no candidate exists. Unloadable: the library or the bridge cannot be loaded.
    ///
    /// # Safety
    /// If `bridge` exports `KILN_XRT_FACE`, it is compiled from ffi/xrt/kiln_xrt.cpp.
    #[cfg(feature = "xrt")]
    pub unsafe fn of(bridge: &[u8], candidates: &[PathBuf]) -> std::result::Result<Library, Missing> {
        // Never unloaded, even if a later step fails: the effects of its initialisers cannot be undone.
        std::mem::forget(load::open_first(candidates)?);
        let bridge = load::open_bytes(bridge).map_err(Missing::Unloadable)?;
        // SAFETY: under this name the bridge exports its function table, with the type that its header declares.
        let face = unsafe { bridge.get::<*const b::kiln_xrt_face>(b::KILN_XRT_FACE) };
        let face = face.map_err(|e| Missing::Unloadable(e.to_string()))?;
        // SAFETY: the symbol's address is the table itself, which is constant and stays loaded.
        let face = unsafe { face.into_raw().cast::<b::kiln_xrt_face>().as_ref() };
        let face = *face.ok_or_else(|| Missing::Unloadable("the bridge has no face".into()))?;
        std::mem::forget(bridge);
        let mut library = Library { face, version: [0; 3] };
        let mut version = [0; 3];
        call!(library, "say its version", version(version.as_mut_ptr()))
            .map_err(|e| Missing::Unloadable(e.parts().0.to_string()))?;
        library.version = version;
        Ok(library)
    }

    /// The library's version: major, minor and patch level.
    pub fn version(&self) -> [u32; 3] {
        self.version
    }

    /// Number of devices that libxrt finds.
    ///
    /// # Errors
    /// Device: libxrt's own.
    pub fn count(&self) -> Result<u32> {
        let mut devices = 0;
        call!(self, "count its devices", count(&mut devices))?;
        Ok(devices)
    }

    /// Opens a device by its PCI address, as in `0000:c6:00.1`, or by its index.
    ///
    /// # Errors
    /// Device: no such device, or it does not open.
    pub fn open(&self, which: &str) -> Result<XrtDevice<'_>> {
        let (name, mut device) = (c_string("the device's name", which)?, null_mut());
        let what = format!("open device {which}");
        call!(self, &what, open(name.as_ptr(), &mut device))?;
        Ok(XrtDevice(Owned::new(self, &what, device, self.face.close_device)?))
    }
}

/// An object of the bridge, closed when dropped.
#[derive(Debug)]
struct Owned<'x, T> {
    library: &'x Library,
    object: NonNull<T>,
    close: Option<unsafe extern "C" fn(*mut T)>,
}

impl<'x, T> Owned<'x, T> {
    fn new(
        library: &'x Library,
        what: &str,
        object: *mut T,
        close: Option<unsafe extern "C" fn(*mut T)>,
    ) -> Result<Self> {
        let object = NonNull::new(object).ok_or_else(|| {
            Error::device(
                format!("libxrt failed to {what}: it gave nothing"),
                text!("report this, and use ", Setting::KernelNpu),
            )
        })?;
        Ok(Owned { library, object, close })
    }

    fn get(&self) -> *mut T {
        self.object.as_ptr()
    }
}

impl<T> Drop for Owned<'_, T> {
    fn drop(&mut self) {
        if let Some(close) = self.close {
            // SAFETY: the object is this value's own, made by the bridge that closes it.
            unsafe { close(self.get()) };
        }
    }
}

/// An NPU that is open through libxrt.
#[derive(Debug)]
pub struct XrtDevice<'x>(Owned<'x, b::kiln_xrt_device>);

/// A program on a device: an xclbin, and a hardware context that holds its columns.
#[derive(Debug)]
pub struct XrtProgram<'x>(Owned<'x, b::kiln_xrt_program>);

/// A kernel of a program that is loaded on the NPU.
#[derive(Debug)]
pub struct XrtKernel<'x>(Owned<'x, b::kiln_xrt_kernel>);

/// Memory that host and NPU share. Bytes are copied in and out, since the NPU may be using them.
#[derive(Debug)]
pub struct XrtBuffer<'x> {
    owned: Owned<'x, b::kiln_xrt_buffer>,
    bytes: NonNull<u8>,
    size: usize,
}

/// A kernel with its arguments, which it keeps alive.
#[derive(Debug)]
pub struct Run<'x>(Owned<'x, b::kiln_xrt_run>);

/// What libxrt uses a buffer for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum XrtBufferKind {
    /// Instructions, in the heap of the NPU's controller.
    Instructions,
    /// Data, in the host's memory.
    Data,
}

impl<'x> XrtDevice<'x> {
    /// The device's name, as in `RyzenAI-npu1`.
    ///
    /// # Errors
    /// Device: libxrt's own.
    pub fn name(&self) -> Result<String> {
        self.describe().map(|d| d.0)
    }

    /// The device's PCI address, as in `0000:c6:00.1`.
    ///
    /// # Errors
    /// Device: libxrt's own.
    pub fn slot(&self) -> Result<String> {
        self.describe().map(|d| d.1)
    }

    fn describe(&self) -> Result<(String, String)> {
        let (mut name, mut slot) = (b::kiln_xrt_text::default(), b::kiln_xrt_text::default());
        call!(self.0.library, "describe a device", describe(self.0.get(), &mut name, &mut slot))?;
        Ok((text(&name), text(&slot)))
    }

    /// Registers `xclbin` and makes a hardware context for it.
    ///
    /// # Errors
    /// Device: not an xclbin, or no columns are free.
    pub fn load(&self, xclbin: &[u8]) -> Result<XrtProgram<'x>> {
        let (library, mut program) = (self.0.library, null_mut());
        let (bytes, size) = (xclbin.as_ptr().cast::<c_void>(), xclbin.len() as u64);
        call!(library, "load a program", load(self.0.get(), bytes, size, &mut program))?;
        Ok(XrtProgram(Owned::new(library, "load a program", program, library.face.close_program)?))
    }
}

impl<'x> XrtProgram<'x> {
    /// A kernel by name.
    ///
    /// # Errors
    /// Device: the xclbin has no such kernel.
    pub fn kernel(&self, name: &str) -> Result<XrtKernel<'x>> {
        let (library, mut kernel) = (self.0.library, null_mut());
        let (text, what) = (c_string("the kernel's name", name)?, format!("find kernel {name}"));
        call!(library, &what, find_kernel(self.0.get(), text.as_ptr(), &mut kernel))?;
        Ok(XrtKernel(Owned::new(library, &what, kernel, library.face.close_kernel)?))
    }

    /// A buffer of `size` bytes in `group`, the memory group of a kernel's argument ([`XrtKernel::group`]).
    ///
    /// # Errors
    /// Device: libxrt's own.
    pub fn allocate(&self, size: u64, kind: XrtBufferKind, group: i32) -> Result<XrtBuffer<'x>> {
        let (library, mut buffer) = (self.0.library, null_mut());
        let kind = match kind {
            XrtBufferKind::Instructions => b::KILN_XRT_INSTRUCTIONS,
            XrtBufferKind::Data => b::KILN_XRT_DATA,
        };
        let what = format!("allocate {size} bytes");
        call!(library, &what, allocate(self.0.get(), size, kind as i32, group, &mut buffer))?;
        XrtBuffer::new(Owned::new(library, &what, buffer, library.face.close_buffer)?)
    }

    /// Imports a dma-buf.
    ///
    /// # Errors
    /// Device: libxrt's own.
    pub fn import(&self, dma_buf: BorrowedFd<'_>) -> Result<XrtBuffer<'x>> {
        let (library, mut buffer) = (self.0.library, null_mut());
        let what = "import a dma-buf";
        call!(library, what, import_fd(self.0.get(), dma_buf.as_raw_fd(), &mut buffer))?;
        XrtBuffer::new(Owned::new(library, what, buffer, library.face.close_buffer)?)
    }
}

impl<'x> XrtKernel<'x> {
    /// The memory group of an argument.
    ///
    /// # Errors
    /// Device: the kernel has no such argument.
    pub fn group(&self, argument: i32) -> Result<i32> {
        let mut group = 0;
        call!(self.0.library, "find an argument's memory", group(self.0.get(), argument, &mut group))?;
        Ok(group)
    }

    /// A run of the kernel, without arguments yet.
    ///
    /// # Errors
    /// Device: libxrt's own.
    pub fn run(&self) -> Result<Run<'x>> {
        let (library, mut run) = (self.0.library, null_mut());
        call!(library, "make a run", make_run(self.0.get(), &mut run))?;
        Ok(Run(Owned::new(library, "make a run", run, library.face.close_run)?))
    }
}

impl<'x> XrtBuffer<'x> {
    fn new(owned: Owned<'x, b::kiln_xrt_buffer>) -> Result<XrtBuffer<'x>> {
        let (mut bytes, mut size) = (null_mut(), 0);
        call!(owned.library, "map a buffer", map(owned.get(), &mut bytes, &mut size))?;
        match (NonNull::new(bytes.cast()), usize::try_from(size)) {
            (Some(bytes), Ok(size)) => Ok(XrtBuffer { owned, bytes, size }),
            _ => Err(Error::device("libxrt failed to map a buffer", text!("use ", Setting::KernelNpu))),
        }
    }

    /// The size of the buffer in bytes.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Checks that `length` bytes from `offset` lie in the buffer.
    fn check(&self, offset: usize, length: usize) -> Result<()> {
        match offset.checked_add(length) {
            Some(end) if end <= self.size => Ok(()),
            _ => Err(Error::input(
                format!("{length} bytes at {offset} are not in an NPU buffer of {}", self.size),
                "report this",
            )),
        }
    }

    /// Copies `bytes` to the buffer at `offset`. [`XrtBuffer::sync_to_device`] makes them visible to the NPU.
    ///
    /// # Errors
    /// Input: the range exceeds the buffer.
    pub fn write(&mut self, offset: usize, bytes: &[u8]) -> Result<()> {
        self.check(offset, bytes.len())?;
        // SAFETY: the range lies in the mapping, which lives as long as the buffer, and does not overlap this slice.
        unsafe { self.bytes.as_ptr().add(offset).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        Ok(())
    }

    /// Copies bytes at `offset` into `bytes`. If the NPU wrote them, call [`XrtBuffer::sync_to_host`] first.
    ///
    /// # Errors
    /// Input: the range exceeds the buffer.
    pub fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<()> {
        self.check(offset, bytes.len())?;
        // SAFETY: the range lies in the mapping, which lives as long as the buffer, and does not overlap this slice.
        unsafe { self.bytes.as_ptr().add(offset).copy_to_nonoverlapping(bytes.as_mut_ptr(), bytes.len()) };
        Ok(())
    }

    /// Makes the host's writes to these bytes visible to the NPU.
    ///
    /// # Errors
    /// Input: the range exceeds the buffer. Device: libxrt's own.
    pub fn sync_to_device(&mut self, bytes: Range<usize>) -> Result<()> {
        self.sync(b::KILN_XRT_TO_DEVICE, bytes)
    }

    /// Makes the NPU's writes to these bytes visible to the host.
    ///
    /// # Errors
    /// As [`XrtBuffer::sync_to_device`].
    pub fn sync_to_host(&mut self, bytes: Range<usize>) -> Result<()> {
        self.sync(b::KILN_XRT_TO_HOST, bytes)
    }

    fn sync(&mut self, direction: u32, bytes: Range<usize>) -> Result<()> {
        self.check(bytes.start, bytes.len())?;
        let (offset, bytes) = (bytes.start as u64, bytes.len() as u64);
        let owned = &self.owned;
        call!(owned.library, "synchronise a buffer", sync(owned.get(), direction as i32, offset, bytes)).map(drop)
    }

    /// Exports the buffer as a dma-buf for other drivers.
    ///
    /// # Errors
    /// Device: the buffer lies in memory that other drivers cannot access.
    pub fn export(&mut self) -> Result<OwnedFd> {
        let (what, mut fd) = ("export a dma-buf", -1);
        call!(self.owned.library, what, export_fd(self.owned.get(), &mut fd))?;
        let failed = |e: &dyn std::fmt::Display| {
            Error::device(format!("libxrt failed to {what}: {e}"), text!("use ", Setting::KernelNpu))
        };
        if fd < 0 {
            return Err(failed(&"it gave no descriptor"));
        }
        // SAFETY: the buffer owns the descriptor and keeps it open as long as it lives.
        let theirs = unsafe { BorrowedFd::borrow_raw(fd) };
        theirs.try_clone_to_owned().map_err(|e| failed(&e))
    }
}

impl Run<'_> {
    /// Sets a buffer argument. The buffer lives until the run is dropped or the argument is set again.
    ///
    /// # Errors
    /// Device: the kernel has no such argument.
    pub fn set_buffer(&mut self, argument: i32, buffer: &XrtBuffer<'_>) -> Result<()> {
        let (run, buffer) = (self.0.get(), buffer.owned.get());
        call!(self.0.library, "set a run's buffer", set_buffer(run, argument, buffer)).map(drop)
    }

    /// Sets a number argument.
    ///
    /// # Errors
    /// As [`Run::set_buffer`].
    pub fn set_number<T: bytemuck::Pod>(&mut self, argument: i32, number: T) -> Result<()> {
        let bytes = bytemuck::bytes_of(&number);
        let (at, size) = (bytes.as_ptr().cast::<c_void>(), bytes.len() as u64);
        call!(self.0.library, "set a run's number", set_number(self.0.get(), argument, at, size)).map(drop)
    }

    /// Starts the run without waiting.
    ///
    /// # Errors
    /// Device: libxrt's own.
    pub fn start(&mut self) -> Result<()> {
        call!(self.0.library, "start a run", start(self.0.get())).map(drop)
    }

    /// Waits for the run to end. `false`: `timeout` is over, and the NPU may still be using the buffers.
    ///
    /// # Errors
    /// Device: the run failed.
    pub fn wait(&mut self, timeout: Duration) -> Result<bool> {
        // libxrt takes 0 for no timeout.
        let milliseconds = u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX).max(1);
        let status = call!(self.0.library, "finish a run", wait(self.0.get(), milliseconds))?;
        Ok(status == b::KILN_XRT_DONE)
    }
}
