//! A fake DRM driver with answers chosen by tests.

use super::bindings as b;
pub use super::ioctl_fake::{FakeIoctls, decode};
use crate::npu::fake::FakeNpu;
use nix::errno::Errno;
use std::collections::HashMap;
use std::ffi::{c_int, c_ulong, c_void};
use std::path::Path;

/// A memfd of 64 KiB in place of a buffer.
fn memfd() -> Result<c_int, Errno> {
    use std::os::fd::IntoRawFd;
    super::dma_buf::sealed_memfd(64 << 10).map(IntoRawFd::into_raw_fd).map_err(|e| e.errno)
}

/// The bytes of a structure of integers.
pub fn bytes<T: Copy>(value: T) -> Vec<u8> {
    // SAFETY: the generated structures have no undeclared padding.
    unsafe { std::slice::from_raw_parts((&raw const value).cast::<u8>(), size_of::<T>()) }.to_vec()
}

/// A driver's answers to queries: bytes or an errno.
pub type Answers = HashMap<(u8, u32, u32), Result<Vec<u8>, Errno>>;

/// A fake DRM driver. Its answers are keyed by ioctl number, query and the query's own argument (0 if it has none).
/// Anything else is EINVAL.
#[derive(Default, Clone)]
pub struct FakeDrmDriver {
    /// Name, as in "amdgpu".
    pub name: &'static str,
    /// Version of its interface.
    pub version: [i32; 3],
    /// The answers.
    pub answers: Answers,
    /// Offset of the NPU's buffers in the file that stands for the node; 0 if they cannot be mapped.
    pub map_offset: u64,
    /// The array that runs the NPU's programs.
    pub array: Option<FakeNpu>,
}

pub const AMDGPU_INFO: u8 = (b::DRM_COMMAND_BASE + b::DRM_AMDGPU_INFO) as u8;
pub const XDNA_INFO: u8 = (b::DRM_COMMAND_BASE + b::DRM_AMDXDNA_GET_INFO) as u8;
pub const XDNA_ARRAY: u8 = (b::DRM_COMMAND_BASE + b::DRM_AMDXDNA_GET_ARRAY) as u8;

impl FakeDrmDriver {
    /// Adds an answer.
    pub fn with(mut self, ioctl: u8, query: u32, argument: u32, answer: Vec<u8>) -> FakeDrmDriver {
        self.answers.insert((ioctl, query, argument), Ok(answer));
        self
    }

    /// Adds a refusal.
    pub fn without(mut self, ioctl: u8, query: u32, argument: u32, errno: Errno) -> FakeDrmDriver {
        self.answers.insert((ioctl, query, argument), Err(errno));
        self
    }

    /// Answers for the file at `path`.
    pub fn at(self, path: &Path) -> FakeIoctls {
        FakeIoctls::new(path, move |request, argument| self.answer(request, argument))
    }

    fn find(&self, ioctl: u8, query: u32, argument: u32) -> Result<&[u8], Errno> {
        match self.answers.get(&(ioctl, query, argument)) {
            Some(Ok(bytes)) => Ok(bytes),
            Some(Err(errno)) => Err(*errno),
            None => Err(Errno::EINVAL),
        }
    }

    fn answer(&self, request: c_ulong, argument: *mut c_void) -> Result<c_int, Errno> {
        let (_, size, kind, number) = decode(request);
        assert_eq!(kind, b'd');
        if let Some(answer) = self.array.as_ref().and_then(|array| array.answer(number, argument)) {
            return answer;
        }
        // SAFETY: the wrappers pass the structure that belongs to the request's number and size.
        unsafe {
            match number {
                0 => {
                    assert_eq!(size, size_of::<b::drm_version>());
                    let v = &mut *argument.cast::<b::drm_version>();
                    [v.version_major, v.version_minor, v.version_patchlevel] = self.version;
                    for (at, len) in [(v.name, &mut v.name_len), (v.desc, &mut v.desc_len)] {
                        at.copy_from_nonoverlapping(self.name.as_ptr().cast(), self.name.len().min(*len as usize));
                        *len = self.name.len() as _;
                    }
                }
                AMDGPU_INFO if self.name == "amdgpu" => {
                    assert_eq!(size, size_of::<b::drm_amdgpu_info>());
                    let info = &*argument.cast::<b::drm_amdgpu_info>();
                    let argument = match info.query {
                        b::AMDGPU_INFO_FW_VERSION | b::AMDGPU_INFO_SENSOR => info.__bindgen_anon_1.sensor_info.type_,
                        _ => 0,
                    };
                    let answer = self.find(number, info.query, argument)?;
                    let len = answer.len().min(info.return_size as usize);
                    (info.return_pointer as *mut u8).copy_from_nonoverlapping(answer.as_ptr(), len);
                }
                0x09 => {}
                0x2d => (*argument.cast::<b::drm_prime_handle>()).fd = memfd()?,
                0x2e => (*argument.cast::<b::drm_prime_handle>()).handle = 2,
                0x40 if self.name == "amdgpu" => {
                    assert_eq!(size, size_of::<b::drm_amdgpu_gem_create>());
                    let create = &mut *argument.cast::<b::drm_amdgpu_gem_create>();
                    assert_eq!(create.in_.domains, u64::from(b::AMDGPU_GEM_DOMAIN_GTT));
                    create.out = b::drm_amdgpu_gem_create_out { handle: 1, _pad: 0 };
                }
                0x43 if self.name.starts_with("amdxdna") => {
                    assert_eq!(size, size_of::<b::amdxdna_drm_create_bo>());
                    (*argument.cast::<b::amdxdna_drm_create_bo>()).handle = 1;
                }
                0x44 if self.name.starts_with("amdxdna") => {
                    assert_eq!(size, size_of::<b::amdxdna_drm_get_bo_info>());
                    (*argument.cast::<b::amdxdna_drm_get_bo_info>()).map_offset = self.map_offset;
                }
                XDNA_INFO if self.name.starts_with("amdxdna") => {
                    assert_eq!(size, size_of::<b::amdxdna_drm_get_info>());
                    let info = &mut *argument.cast::<b::amdxdna_drm_get_info>();
                    let answer = self.find(number, info.param, 0)?;
                    // The real driver also writes its whole structure and returns the bytes left.
                    (info.buffer as *mut u8).copy_from_nonoverlapping(answer.as_ptr(), answer.len());
                    info.buffer_size = info.buffer_size.saturating_sub(answer.len() as u32);
                }
                XDNA_ARRAY if self.name.starts_with("amdxdna") => {
                    assert_eq!(size, size_of::<b::amdxdna_drm_get_array>());
                    let array = &mut *argument.cast::<b::amdxdna_drm_get_array>();
                    // The recording's first four bytes hold the driver's own entry size.
                    let recorded = self.find(number, array.param, 0)?;
                    let own = u32::from_ne_bytes(recorded[..4].try_into().unwrap());
                    let entry = own.min(array.element_size);
                    let entries = recorded[4..].chunks_exact(own.max(1) as usize).take(array.num_element as usize);
                    array.num_element = entries.len() as u32;
                    array.element_size = entry;
                    for (i, e) in entries.enumerate() {
                        let to = (array.buffer as *mut u8).add(i * entry as usize);
                        to.copy_from_nonoverlapping(e.as_ptr(), entry as usize);
                    }
                }
                _ => return Err(Errno::ENOTTY),
            }
        }
        Ok(0)
    }
}
