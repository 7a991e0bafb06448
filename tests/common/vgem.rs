//! vgem, the kernel's DRM driver without a device: it makes buffers, and fences that user space signals.

use kiln::Result;
use kiln::testing::sys::dma_buf::DmaBuf;
use kiln::testing::sys::drm::{Gem, Node};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};

#[repr(C)]
#[derive(Default)]
struct CreateDumb {
    height: u32,
    width: u32,
    bpp: u32,
    flags: u32,
    handle: u32,
    pitch: u32,
    size: u64,
}

#[repr(C)]
struct Prime {
    handle: u32,
    flags: u32,
    fd: i32,
}

#[repr(C)]
#[derive(Default)]
struct Attach {
    handle: u32,
    flags: u32,
    fence: u32,
    pad: u32,
}

#[repr(C)]
struct Signal {
    fence: u32,
    flags: u32,
}

// drm/drm.h, drm/drm_mode.h
nix::ioctl_readwrite!(create_dumb, b'd', 0xb2, CreateDumb);
nix::ioctl_readwrite!(handle_to_fd, b'd', 0x2d, Prime);
// drm/vgem_drm.h
nix::ioctl_readwrite!(fence_attach, b'd', 0x41, Attach);
nix::ioctl_write_ptr!(fence_signal, b'd', 0x42, Signal);

const WRITE: u32 = 1;

/// vgem's node whose name begins with `kind`.
fn path(kind: &str) -> PathBuf {
    let entries = std::fs::read_dir("/dev/dri").unwrap().map(|e| e.unwrap().path());
    let is_vgem = |p: &Path| Node::open(p).and_then(|n| n.version()).is_ok_and(|v| v.name == "vgem");
    let named = |p: &PathBuf| p.file_name().unwrap().to_str().unwrap().starts_with(kind) && is_vgem(p);
    entries.into_iter().find(named).expect("no vgem device")
}

/// vgem's render node.
pub fn node() -> Node {
    Node::open(&path("renderD")).unwrap()
}

/// A buffer that vgem made.
pub fn allocate(bytes: u64) -> Result<DmaBuf> {
    // Only the primary node makes buffers, and only as images: here with rows of 4096 bytes.
    let node = Node::open(&path("card"))?;
    let height = bytes.div_ceil(4096) as u32;
    let mut image = CreateDumb { height, width: 1024, bpp: 32, ..Default::default() };
    // SAFETY: the structures are those of the kernel's headers; the descriptor is new and nothing else owns it.
    let fd = unsafe {
        create_dumb(raw(&node), &mut image).unwrap();
        let mut prime = Prime { handle: image.handle, flags: (libc::O_RDWR | libc::O_CLOEXEC) as u32, fd: -1 };
        handle_to_fd(raw(&node), &mut prime).unwrap();
        OwnedFd::from_raw_fd(prime.fd)
    };
    Ok(DmaBuf::from_fd(fd)?)
}

fn raw(node: &Node) -> RawFd {
    node.as_fd().as_raw_fd()
}

/// Puts a fence on a buffer, as if a device were writing to it. Returns its number for [`signal`]. The fence fails by
/// itself after ten seconds.
pub fn attach(node: &Node, buffer: &Gem) -> nix::Result<u32> {
    let mut attach = Attach { handle: buffer.handle(), flags: WRITE, ..Default::default() };
    // SAFETY: the structure is that of the kernel's header.
    unsafe { fence_attach(raw(node), &mut attach) }?;
    Ok(attach.fence)
}

/// Signals a fence.
pub fn signal(node: &Node, fence: u32) -> nix::Result<()> {
    // SAFETY: the structure is that of the kernel's header.
    unsafe { fence_signal(raw(node), &Signal { fence, flags: 0 }) }.map(drop)
}
