//! A fake of the kernel's side, for tests: a render node that refuses what Linux refuses. Its submits are run by an
//! [`Executes`], which reads and writes the objects by the GPU's addresses.
//!
//! It is stricter than Linux where the hardware would fault: indirect buffers, and whatever is read or written, must lie
//! in objects that are mapped for it and in place for the submit.

use super::code::Chip;
use crate::machine::files::Files;
use crate::sys::bindings as b;
use crate::sys::dma_buf::{Mapping, page_size, sealed_memfd};
use crate::sys::ioctl_fake::{FakeIoctls, decode};
use nix::errno::Errno;
use nix::unistd::ftruncate;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::{c_int, c_ulong, c_void};
use std::ops::Range;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use tempfile::TempDir;

/// Executes the indirect buffers of one submit in order. Memory is read and written by the GPU's addresses.
pub trait Executes {
    /// Executes `ibs`: addresses, and lengths in words.
    ///
    /// # Errors
    /// What a real GPU would hang on.
    fn execute(&mut self, ibs: &[(u64, u32)], memory: &mut GpuSpace) -> Result<(), String>;
}

/// Executes nothing.
impl Executes for () {
    fn execute(&mut self, _: &[(u64, u32)], _: &mut GpuSpace) -> Result<(), String> {
        Ok(())
    }
}

/// The lowest address that a process may use, and the end of the lower and the upper addresses.
const LOW: Range<u64> = 0x1_0000..HOLE.start;
const HIGH: Range<u64> = HOLE.end..0xffff_ffff_ffbf_e000;
/// Addresses between the two halves.
const HOLE: Range<u64> = 1 << 47..0xffff_8000_0000_0000;
/// Rings of a context that compute.
const RINGS: u32 = 4;
const MOST_IBS: usize = 125;
const MOST_IB_BYTES: u32 = 4 * 0xf_ffff;
const IB_ALIGNMENT: u32 = 32;
/// A reset that is not over, in a context's flags.
const RESET_IN_PROGRESS: u32 = 1 << 5;

/// A render node of a GPU. It is there until it is dropped.
pub struct FakeNode {
    file: Arc<OwnedFd>,
    kernel: Arc<Mutex<FakeKernel>>,
    _ioctls: FakeIoctls,
}

/// What is alive in the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Alive {
    /// Objects.
    pub objects: usize,
    /// Ranges of addresses.
    pub mappings: usize,
    /// Contexts.
    pub contexts: usize,
}

/// How the kernel ends submits that have not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FakeReset {
    /// The waves of the first are killed, so that it ends and its fence is written. The rest runs.
    Soft,
    /// The first has hung the GPU, which is reset. The others are cancelled.
    Own,
    /// Another process's submit has hung the GPU, which is reset.
    Others,
    /// As `Others`, and VRAM is lost.
    VramLost,
}

/// What a driver could do wrong with requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlantedFault {
    /// Indirect buffers end a page past their object.
    LongBuffers,
    /// An object is mapped where the one before is.
    SameAddresses,
    /// Fences are not waited for: each is written before its submit runs, which the next one does first.
    EarlyFence,
    /// What the host maps of an exported object is not the memory that the GPU uses.
    StaleExport,
}

/// The kernel's state, and what tests change of it.
pub struct FakeKernel {
    file: Arc<OwnedFd>,
    /// Name and version of the driver.
    pub driver: (&'static str, [i32; 3]),
    /// What DEV_INFO answers.
    pub(crate) device: b::drm_amdgpu_info_device,
    /// Compute rings, a bit each.
    pub rings: u32,
    /// Bytes of VRAM and of GTT.
    pub heaps: [u64; 2],
    /// The number of a request that fails, counted from 1 on, and its error.
    pub fails: Option<(usize, Errno)>,
    /// The requests so far, by their numbers (0x44 is a submit).
    pub requests: Vec<u8>,
    /// Whether submits wait until [`FakeNode::release`] or [`FakeNode::reset`].
    pub holds: bool,
    /// A fault of a driver, planted in its requests.
    pub planted: Option<PlantedFault>,
    /// Why requests were refused, and why submits hung.
    pub complaints: Vec<String>,
    space: GpuSpace,
    contexts: BTreeMap<u32, FakeGpuContext>,
    next_handle: u32,
    next_offset: u64,
    executes: Box<dyn Executes + Send>,
}

/// The GPU's address space, as a submit sees it.
#[derive(Default)]
pub struct GpuSpace {
    objects: BTreeMap<u32, FakeObject>,
    /// By their first address.
    mappings: BTreeMap<u64, FakeMapping>,
    /// Objects in place for the submit, beside those that always are.
    listed: BTreeSet<u32>,
}

/// A range of addresses that an object is mapped at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FakeMapping {
    /// The addresses.
    pub addresses: Range<u64>,
    /// Whether kernels may write there.
    pub is_writable: bool,
    /// Whether packets and code may lie there.
    pub is_executable: bool,
    handle: u32,
    offset: u64,
}

struct FakeObject {
    memory: Mapping,
    size: u64,
    /// Where the node's file has it.
    offset: u64,
    domains: u64,
    flags: u64,
    is_mapped_by_host: bool,
    exported: Option<OwnedFd>,
}

impl FakeObject {
    fn has(&self, flag: u32) -> bool {
        self.flags & u64::from(flag) != 0
    }
}

#[derive(Default)]
struct FakeGpuContext {
    jobs: Vec<FakeSubmit>,
    flags: u32,
    /// Submits are refused.
    is_dead: bool,
}

/// A submit. Its number is its place among the context's, from 1 on.
struct FakeSubmit {
    ibs: Vec<(u64, u32)>,
    listed: BTreeSet<u32>,
    fence: Option<(u32, u64)>,
    /// Whether it has ended, and how.
    ended: Option<Result<(), Errno>>,
}

impl GpuSpace {
    /// All mappings whose objects are in place, in order.
    pub fn mappings(&self) -> impl Iterator<Item = &FakeMapping> {
        self.mappings.values().filter(|mapping| self.is_resident(mapping.handle))
    }

    /// `size` bytes.
    ///
    /// # Errors
    /// They do not lie in one mapping.
    pub fn bytes(&self, address: u64, size: u64) -> Result<&[u8], String> {
        let (handle, range, _) = self.find(address, size)?;
        Ok(&self.objects[&handle].memory.bytes()[range])
    }

    /// `size` bytes, to write.
    ///
    /// # Errors
    /// They do not lie in one mapping, or are read-only.
    pub fn bytes_mut(&mut self, address: u64, size: u64) -> Result<&mut [u8], String> {
        let (handle, range, is_writable) = self.find(address, size)?;
        if !is_writable {
            return Err(format!("{address:#x} is read-only"));
        }
        let object = self.objects.get_mut(&handle).ok_or("the object is closed")?;
        Ok(&mut object.memory.bytes_mut()[range])
    }

    /// Words.
    ///
    /// # Errors
    /// As [`GpuSpace::bytes`], or the address is not a word's.
    pub fn words(&self, address: u64, count: usize) -> Result<&[u32], String> {
        bytemuck::try_cast_slice(self.bytes(address, 4 * count as u64)?).map_err(|e| format!("{address:#x}: {e}"))
    }

    fn is_resident(&self, handle: u32) -> bool {
        let is_always = |object: &FakeObject| object.has(b::AMDGPU_GEM_CREATE_VM_ALWAYS_VALID);
        self.listed.contains(&handle) || self.objects.get(&handle).is_some_and(is_always)
    }

    fn find(&self, address: u64, size: u64) -> Result<(u32, Range<usize>, bool), String> {
        let mapping = self.mappings.range(..=address).next_back().map(|(_, mapping)| mapping);
        let end = address.checked_add(size);
        let mapping = mapping.filter(|m| end.is_some_and(|end| end <= m.addresses.end));
        let mapping = mapping.ok_or_else(|| format!("{address:#x}, {size} B, is not mapped"))?;
        if !self.is_resident(mapping.handle) {
            return Err(format!("{address:#x}, {size} B, is of an object that the submit does not name"));
        }
        let start = (mapping.offset + (address - mapping.addresses.start)) as usize;
        Ok((mapping.handle, start..start + size as usize, mapping.is_writable))
    }

    /// Writes a submit's number at a place of an object.
    fn write_fence(&mut self, (handle, offset): (u32, u64), number: u64) {
        if let Some(fence) = self.objects.get_mut(&handle) {
            fence.memory.bytes_mut()[offset as usize..][..8].copy_from_slice(&number.to_ne_bytes());
        }
    }

    fn execute_of(&self, address: u64, size: u64) -> Result<(), String> {
        self.find(address, size)?;
        let mapping = self.mappings.range(..=address).next_back();
        let is_executable = mapping.is_some_and(|(_, mapping)| mapping.is_executable);
        if is_executable { Ok(()) } else { Err(format!("{address:#x} is not mapped to be run")) }
    }
}

impl FakeNode {
    /// A node of a chip as an APU has it, with half a GiB of VRAM and 4 GiB of GTT.
    ///
    /// # Panics
    /// There are no memfds.
    pub fn new(chip: Chip, executes: impl Executes + Send + 'static) -> FakeNode {
        let (family, external_rev) = match chip {
            Chip::Gfx1103 => (148, 1),
            Chip::Gfx1150 => (150, 1),
            Chip::Gfx1151 => (150, 0xc0),
        };
        static NODES: AtomicU32 = AtomicU32::new(0);
        // Its name is the key that its requests are found by.
        let name = format!("fake-gpu-{}", NODES.fetch_add(1, Ordering::Relaxed));
        let flags = nix::sys::memfd::MFdFlags::MFD_CLOEXEC;
        let file = Arc::new(nix::sys::memfd::memfd_create(name.as_str(), flags).expect("a memfd"));
        let device = b::drm_amdgpu_info_device {
            device_id: 0x15bf,
            family,
            external_rev,
            num_shader_engines: 1,
            num_shader_arrays_per_engine: 2,
            gpu_counter_freq: 100_000,
            cu_active_number: 12,
            wave_front_size: 32,
            ids_flags: b::AMDGPU_IDS_FLAGS_FUSION.into(),
            virtual_address_offset: LOW.start,
            virtual_address_max: LOW.end,
            virtual_address_alignment: page_size() as u32,
            high_va_offset: HIGH.start,
            high_va_max: HIGH.end,
            ..Default::default()
        };
        let kernel = FakeKernel {
            file: file.clone(),
            driver: ("amdgpu", [3, 61, 0]),
            device,
            rings: 0xf,
            heaps: [512 << 20, 4 << 30],
            fails: None,
            requests: Vec::new(),
            holds: false,
            planted: None,
            complaints: Vec::new(),
            space: GpuSpace::default(),
            contexts: BTreeMap::new(),
            next_handle: 1,
            next_offset: 0,
            executes: Box::new(executes),
        };
        let kernel = Arc::new(Mutex::new(kernel));
        let shared = kernel.clone();
        let answer = move |request, argument| lock(&shared).answer(request, argument);
        let ioctls = FakeIoctls::new(&path_of(&file), answer);
        FakeNode { file, kernel, _ioctls: ioctls }
    }

    /// The path to open it by.
    pub fn path(&self) -> PathBuf {
        path_of(&self.file)
    }

    /// The files of a machine whose only render node is this one: /dev/dri/renderD128.
    ///
    /// # Panics
    /// They cannot be made.
    pub fn machine(&self) -> (TempDir, Files) {
        let root = tempfile::tempdir().expect("a directory");
        let nodes = root.path().join("dev/dri");
        std::fs::create_dir_all(&nodes).and_then(|()| symlink(self.path(), nodes.join("renderD128"))).expect("a link");
        let files = Files::under(root.path());
        (root, files)
    }

    /// The kernel's state.
    pub fn kernel(&self) -> MutexGuard<'_, FakeKernel> {
        lock(&self.kernel)
    }

    /// What is alive.
    pub fn alive(&self) -> Alive {
        let kernel = self.kernel();
        let FakeKernel { space: GpuSpace { objects, mappings, .. }, contexts, .. } = &*kernel;
        Alive { objects: objects.len(), mappings: mappings.len(), contexts: contexts.len() }
    }

    /// Runs what is held, and holds no more.
    pub fn release(&self) {
        let mut kernel = self.kernel();
        kernel.holds = false;
        kernel.run();
    }

    /// Ends what is held by a reset, and holds no more.
    pub fn reset(&self, reset: FakeReset) {
        let mut kernel = self.kernel();
        kernel.holds = false;
        let lost = if reset == FakeReset::VramLost { b::AMDGPU_CTX_QUERY2_FLAGS_VRAMLOST } else { 0 };
        for context in kernel.contexts.values_mut() {
            context.flags |= b::AMDGPU_CTX_QUERY2_FLAGS_RESET | lost;
            context.is_dead = matches!(reset, FakeReset::Own | FakeReset::VramLost);
            let mut held = context.jobs.iter_mut().filter(|job| job.ended.is_none());
            if matches!(reset, FakeReset::Soft | FakeReset::Own) {
                context.flags |= b::AMDGPU_CTX_QUERY2_FLAGS_GUILTY;
                let errno = if reset == FakeReset::Soft { Errno::ENODATA } else { Errno::ETIME };
                held.next().into_iter().for_each(|job| job.ended = Some(Err(errno)));
            }
            if reset != FakeReset::Soft {
                held.for_each(|job| job.ended = Some(Err(Errno::ECANCELED)));
            }
        }
        if reset == FakeReset::Soft {
            kernel.run();
        }
    }

    /// Marks all contexts as on a GPU that is being reset, whose submits are refused.
    pub fn begin_reset(&self) {
        for context in self.kernel().contexts.values_mut() {
            context.flags |= b::AMDGPU_CTX_QUERY2_FLAGS_RESET | RESET_IN_PROGRESS;
            context.is_dead = true;
        }
    }
}

fn path_of(file: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

fn lock(kernel: &Mutex<FakeKernel>) -> MutexGuard<'_, FakeKernel> {
    kernel.lock().unwrap_or_else(|e| e.into_inner())
}

type FakeAnswer<T> = Result<T, Errno>;

impl FakeKernel {
    /// Sets the chip's family and revision.
    pub fn set_family(&mut self, family: u32, revision: u32) {
        (self.device.family, self.device.external_rev) = (family, revision);
    }

    /// Sets the addresses that a process may use.
    pub fn set_addresses(&mut self, low: Range<u64>, high: Range<u64>) {
        (self.device.virtual_address_offset, self.device.virtual_address_max) = (low.start, low.end);
        (self.device.high_va_offset, self.device.high_va_max) = (high.start, high.end);
    }

    /// Domains and flags of each object, in the order in which they were made.
    pub fn objects(&self) -> Vec<(u64, u64)> {
        self.space.objects.values().map(|object| (object.domains, object.flags)).collect()
    }

    /// All mappings, in order.
    pub fn mappings(&self) -> Vec<FakeMapping> {
        self.space.mappings.values().cloned().collect()
    }

    /// The address space, as the last submit saw it.
    pub fn space(&self) -> &GpuSpace {
        &self.space
    }

    fn refuse<T>(&mut self, errno: Errno, why: impl Into<String>) -> FakeAnswer<T> {
        self.complaints.push(why.into());
        Err(errno)
    }

    fn answer(&mut self, request: c_ulong, argument: *mut c_void) -> FakeAnswer<c_int> {
        let (_, size, kind, number) = decode(request);
        assert_eq!(kind, b'd');
        self.requests.push(number);
        if let Some((_, errno)) = self.fails.filter(|(count, _)| *count == self.requests.len()) {
            return Err(errno);
        }
        let command = u32::from(number).wrapping_sub(b::DRM_COMMAND_BASE);
        /// The structure of a request.
        macro_rules! of {
            ($t:ty) => {{
                assert_eq!(size, size_of::<$t>());
                &mut *argument.cast::<$t>()
            }};
        }
        // SAFETY: the wrappers pass the structure that belongs to the request's number, whose size is checked. Its
        // members, unions among them, are integers.
        unsafe {
            match number {
                0x00 => self.version(of!(b::drm_version)),
                0x09 => self.close(of!(b::drm_gem_close).handle)?,
                0x2d => self.export(of!(b::drm_prime_handle))?,
                _ => match command {
                    b::DRM_AMDGPU_INFO => self.info(of!(b::drm_amdgpu_info))?,
                    b::DRM_AMDGPU_GEM_CREATE => {
                        let data = of!(b::drm_amdgpu_gem_create);
                        data.out = b::drm_amdgpu_gem_create_out { handle: self.create(data.in_)?, _pad: 0 };
                    }
                    b::DRM_AMDGPU_GEM_MMAP => {
                        let data = of!(b::drm_amdgpu_gem_mmap);
                        data.out.addr_ptr = self.map(data.in_.handle)?;
                    }
                    b::DRM_AMDGPU_GEM_VA => self.place(of!(b::drm_amdgpu_gem_va))?,
                    b::DRM_AMDGPU_CTX => self.context(of!(b::drm_amdgpu_ctx))?,
                    b::DRM_AMDGPU_CS => {
                        let data = of!(b::drm_amdgpu_cs);
                        data.out.handle = self.submit(data.in_)?;
                    }
                    b::DRM_AMDGPU_WAIT_CS => {
                        let data = of!(b::drm_amdgpu_wait_cs);
                        data.out.status = self.wait(data.in_)?;
                    }
                    _ => return self.refuse(Errno::ENOTTY, format!("there is no request {number:#x}")),
                },
            }
        }
        Ok(0)
    }

    fn version(&self, v: &mut b::drm_version) {
        let (name, version) = self.driver;
        [v.version_major, v.version_minor, v.version_patchlevel] = version;
        // SAFETY: the wrapper passes buffers of these lengths.
        unsafe { v.name.copy_from_nonoverlapping(name.as_ptr().cast(), name.len().min(v.name_len as usize)) };
        (v.name_len, v.desc_len) = (name.len() as _, 0);
    }

    fn info(&mut self, info: &b::drm_amdgpu_info) -> FakeAnswer<()> {
        /// The bytes of a structure of integers.
        fn bytes<T>(value: &T) -> &[u8] {
            // SAFETY: the generated structures have no undeclared padding.
            unsafe { std::slice::from_raw_parts((&raw const *value).cast(), size_of::<T>()) }
        }
        let heap = |total: u64| b::drm_amdgpu_heap_info {
            total_heap_size: total,
            usable_heap_size: total,
            heap_usage: 0,
            max_allocation: total / 4 * 3,
        };
        let [vram, gtt] = self.heaps.map(heap);
        let memory = b::drm_amdgpu_memory_info { vram, cpu_accessible_vram: vram, gtt };
        let ip = b::drm_amdgpu_info_hw_ip {
            hw_ip_version_major: 11,
            ib_start_alignment: IB_ALIGNMENT,
            ib_size_alignment: IB_ALIGNMENT,
            available_rings: self.rings,
            ..Default::default()
        };
        // SAFETY: all members of the union are integers.
        let kind = unsafe { info.__bindgen_anon_1.query_hw_ip.type_ };
        let answer = match info.query {
            b::AMDGPU_INFO_DEV_INFO => bytes(&self.device),
            b::AMDGPU_INFO_MEMORY => bytes(&memory),
            b::AMDGPU_INFO_HW_IP_INFO if kind == b::AMDGPU_HW_IP_COMPUTE => bytes(&ip),
            query => return self.refuse(Errno::EINVAL, format!("there is no query {query}")),
        };
        let len = answer.len().min(info.return_size as usize);
        // SAFETY: the wrapper passes a buffer of this length.
        unsafe { (info.return_pointer as *mut u8).copy_from_nonoverlapping(answer.as_ptr(), len) };
        Ok(())
    }

    fn create(&mut self, make: b::drm_amdgpu_gem_create_in) -> FakeAnswer<u32> {
        let known = b::AMDGPU_GEM_CREATE_CPU_ACCESS_REQUIRED
            | b::AMDGPU_GEM_CREATE_NO_CPU_ACCESS
            | b::AMDGPU_GEM_CREATE_CPU_GTT_USWC
            | b::AMDGPU_GEM_CREATE_VRAM_CLEARED
            | b::AMDGPU_GEM_CREATE_VM_ALWAYS_VALID
            | b::AMDGPU_GEM_CREATE_EXPLICIT_SYNC;
        let domains = u64::from(b::AMDGPU_GEM_DOMAIN_VRAM | b::AMDGPU_GEM_DOMAIN_GTT);
        if make.bo_size == 0 || make.domain_flags & !u64::from(known) != 0 || make.domains & !domains != 0 {
            return self.refuse(Errno::EINVAL, format!("an object's flags: {make:x?}"));
        }
        let size = make.bo_size.next_multiple_of(page_size());
        let used: u64 = self.space.objects.values().map(|object| object.size).sum();
        if used + size > self.heaps.iter().sum() {
            return self.refuse(Errno::ENOMEM, format!("{size} B do not fit"));
        }
        let (handle, offset) = (self.next_handle, self.next_offset);
        ftruncate(&*self.file, (offset + size) as i64)?;
        let memory = Mapping::new("map a memfd", &*self.file, offset, size).map_err(|e| e.errno)?;
        let (domains, flags) = (make.domains, make.domain_flags);
        let object = FakeObject { memory, size, offset, domains, flags, is_mapped_by_host: false, exported: None };
        self.space.objects.insert(handle, object);
        (self.next_handle, self.next_offset) = (handle + 1, offset + size);
        Ok(handle)
    }

    /// As Linux does, a handle that is closed takes its mappings along.
    fn close(&mut self, handle: u32) -> FakeAnswer<()> {
        self.space.mappings.retain(|_, mapping| mapping.handle != handle);
        match self.space.objects.remove(&handle) {
            Some(_) => Ok(()),
            None => self.refuse(Errno::EINVAL, format!("there is no object {handle} to close")),
        }
    }

    fn map(&mut self, handle: u32) -> FakeAnswer<u64> {
        match self.space.objects.get_mut(&handle) {
            None => self.refuse(Errno::ENOENT, format!("there is no object {handle} to map")),
            Some(object) if object.has(b::AMDGPU_GEM_CREATE_NO_CPU_ACCESS) => {
                self.refuse(Errno::EPERM, format!("object {handle} has no access for the host"))
            }
            Some(object) => {
                object.is_mapped_by_host = true;
                Ok(object.offset)
            }
        }
    }

    /// The object's memory moves to a file of its own, so that others see it from the file's start on.
    fn export(&mut self, data: &mut b::drm_prime_handle) -> FakeAnswer<()> {
        let Some(object) = self.space.objects.get_mut(&data.handle) else {
            return self.refuse(Errno::ENOENT, format!("there is no object {} to export", data.handle));
        };
        if object.has(b::AMDGPU_GEM_CREATE_VM_ALWAYS_VALID) {
            return self.refuse(Errno::EPERM, format!("object {} is always valid", data.handle));
        }
        let own = match &object.exported {
            Some(own) => own.try_clone(),
            None => {
                assert!(!object.is_mapped_by_host, "the fake cannot move what the host has mapped");
                let own = sealed_memfd(object.size).map_err(|e| e.errno)?;
                let mut memory = Mapping::new("map a memfd", &own, 0, object.size).map_err(|e| e.errno)?;
                memory.bytes_mut().copy_from_slice(object.memory.bytes());
                if self.planted != Some(PlantedFault::StaleExport) {
                    object.memory = memory;
                }
                object.exported.insert(own).try_clone()
            }
        };
        data.fd = own.map_err(|_| Errno::EMFILE)?.into_raw_fd();
        Ok(())
    }

    fn place(&mut self, va: &b::drm_amdgpu_gem_va) -> FakeAnswer<()> {
        let (mut start, size, offset) = (va.va_address, va.map_size, va.offset_in_bo);
        if self.planted == Some(PlantedFault::SameAddresses) && va.operation == b::AMDGPU_VA_OP_MAP {
            start = self.space.mappings.keys().next_back().copied().unwrap_or(start);
        }
        let end = start.checked_add(size).filter(|_| size > 0);
        let page = |n: u64| n.is_multiple_of(page_size());
        let is_inside = |half: Range<u64>| half.start <= start && end.is_some_and(|end| end <= half.end);
        let flags = b::AMDGPU_VM_PAGE_READABLE | b::AMDGPU_VM_PAGE_WRITEABLE | b::AMDGPU_VM_PAGE_EXECUTABLE;
        let why = format!("addresses {start:#x}, {size:#x} B, operation {}", va.operation);
        if !page(start)
            || !page(size)
            || !page(offset)
            || !(is_inside(LOW) || is_inside(HIGH))
            || va.flags & !flags != 0
        {
            return self.refuse(Errno::EINVAL, why);
        }
        let end = start + size;
        if va.operation == b::AMDGPU_VA_OP_CLEAR {
            self.space.mappings.retain(|_, m| m.addresses.end <= start || m.addresses.start >= end);
            return Ok(());
        }
        let Some(object) = self.space.objects.get(&va.handle) else { return self.refuse(Errno::ENOENT, why) };
        match va.operation {
            b::AMDGPU_VA_OP_MAP => {
                let before = self.space.mappings.range(..end).next_back();
                if offset.checked_add(size).is_none_or(|to| to > object.size)
                    || before.is_some_and(|(_, m)| m.addresses.end > start)
                {
                    return self.refuse(Errno::EINVAL, format!("{why}: past the object's end, or taken"));
                }
                let has = |flag| va.flags & flag != 0;
                let mapping = FakeMapping {
                    addresses: start..end,
                    is_writable: has(b::AMDGPU_VM_PAGE_WRITEABLE),
                    is_executable: has(b::AMDGPU_VM_PAGE_EXECUTABLE),
                    handle: va.handle,
                    offset,
                };
                self.space.mappings.insert(start, mapping);
            }
            b::AMDGPU_VA_OP_UNMAP => match self.space.mappings.get(&start) {
                Some(mapping) if mapping.handle == va.handle => {
                    self.space.mappings.remove(&start);
                }
                _ => return self.refuse(Errno::ENOENT, why),
            },
            _ => return self.refuse(Errno::EINVAL, why),
        }
        Ok(())
    }

    fn context(&mut self, data: &mut b::drm_amdgpu_ctx) -> FakeAnswer<()> {
        // SAFETY: the arguments are integers.
        let b::drm_amdgpu_ctx_in { op, ctx_id, .. } = unsafe { data.in_ };
        match op {
            b::AMDGPU_CTX_OP_ALLOC_CTX => {
                data.out = b::drm_amdgpu_ctx_out::default();
                data.out.alloc.ctx_id = self.next_handle;
                self.contexts.insert(self.next_handle, FakeGpuContext::default());
                self.next_handle += 1;
            }
            b::AMDGPU_CTX_OP_FREE_CTX if self.contexts.remove(&ctx_id).is_some() => {}
            b::AMDGPU_CTX_OP_QUERY_STATE2 if self.contexts.contains_key(&ctx_id) => {
                data.out = b::drm_amdgpu_ctx_out::default();
                data.out.state.flags = self.contexts[&ctx_id].flags.into();
            }
            _ => return self.refuse(Errno::EINVAL, format!("operation {op} on context {ctx_id}")),
        }
        Ok(())
    }

    fn submit(&mut self, cs: b::drm_amdgpu_cs_in) -> FakeAnswer<u64> {
        let Some(context) = self.contexts.get(&cs.ctx_id) else {
            return self.refuse(Errno::EINVAL, format!("there is no context {}", cs.ctx_id));
        };
        if context.is_dead {
            return self.refuse(Errno::ECANCELED, "the context is dead");
        }
        let job = self.job_of(cs).or_else(|why| self.refuse(Errno::EINVAL, why))?;
        let is_early = self.planted == Some(PlantedFault::EarlyFence);
        if is_early {
            self.run();
        }
        let jobs = self.contexts.get_mut(&cs.ctx_id).map(|context| &mut context.jobs).ok_or(Errno::EINVAL)?;
        let fence = job.fence.filter(|_| is_early);
        jobs.push(job);
        let number = jobs.len() as u64;
        fence.iter().for_each(|fence| self.space.write_fence(*fence, number));
        if !self.holds && !is_early {
            self.run();
        }
        Ok(number)
    }

    /// Reads and checks a submit.
    fn job_of(&self, cs: b::drm_amdgpu_cs_in) -> Result<FakeSubmit, String> {
        let mut job = FakeSubmit { ibs: Vec::new(), listed: BTreeSet::new(), fence: None, ended: None };
        let mut counts: HashMap<u32, usize> = HashMap::new();
        if cs.num_chunks == 0 || cs.bo_list_handle != 0 || cs.flags != 0 {
            return Err("a submit has no chunks, or a kept list, or flags".into());
        }
        for i in 0..cs.num_chunks as usize {
            // SAFETY: the wrapper passes an array of pointers to as many chunks.
            let chunk = unsafe { **(cs.chunks as *const *const b::drm_amdgpu_cs_chunk).add(i) };
            let sized = |size: usize| match 4 * chunk.length_dw as usize == size {
                true => Ok(chunk.chunk_data),
                false => Err(format!("chunk {} has {} words", chunk.chunk_id, chunk.length_dw)),
            };
            *counts.entry(chunk.chunk_id).or_default() += 1;
            match chunk.chunk_id {
                b::AMDGPU_CHUNK_ID_IB => {
                    // SAFETY: the chunk has the structure's size.
                    let ib = unsafe {
                        *(sized(size_of::<b::drm_amdgpu_cs_chunk_ib>())? as *const b::drm_amdgpu_cs_chunk_ib)
                    };
                    job.ibs.push(self.ib_of(ib)?);
                }
                b::AMDGPU_CHUNK_ID_FENCE => {
                    let size = size_of::<b::drm_amdgpu_cs_chunk_fence>();
                    // SAFETY: as above.
                    let fence = unsafe { *(sized(size)? as *const b::drm_amdgpu_cs_chunk_fence) };
                    let object = self.space.objects.get(&fence.handle).ok_or("the fence is no object")?;
                    if object.size != page_size() || u64::from(fence.offset) > page_size() - 8 {
                        return Err(format!("the fence is at {} of {} B", fence.offset, object.size));
                    }
                    job.fence = Some((fence.handle, fence.offset.into()));
                }
                b::AMDGPU_CHUNK_ID_BO_HANDLES => {
                    // SAFETY: as above.
                    let list =
                        unsafe { *(sized(size_of::<b::drm_amdgpu_bo_list_in>())? as *const b::drm_amdgpu_bo_list_in) };
                    if list.bo_info_size as usize != size_of::<b::drm_amdgpu_bo_list_entry>() {
                        return Err("the list's entries have another size".into());
                    }
                    for i in 0..list.bo_number as usize {
                        // SAFETY: the wrapper passes an array of as many entries.
                        let entry = unsafe { *(list.bo_info_ptr as *const b::drm_amdgpu_bo_list_entry).add(i) };
                        if !self.space.objects.contains_key(&entry.bo_handle) || !job.listed.insert(entry.bo_handle) {
                            return Err(format!("object {} is listed twice, or closed", entry.bo_handle));
                        }
                    }
                }
                id => return Err(format!("there is no chunk {id}")),
            }
        }
        let count = |id| counts.get(&id).copied().unwrap_or(0);
        if count(b::AMDGPU_CHUNK_ID_FENCE) > 1 || count(b::AMDGPU_CHUNK_ID_BO_HANDLES) > 1 {
            return Err("a submit has two fences or two lists".into());
        }
        if !(1..=MOST_IBS).contains(&job.ibs.len()) {
            return Err(format!("a submit has {} indirect buffers", job.ibs.len()));
        }
        Ok(job)
    }

    fn ib_of(&self, ib: b::drm_amdgpu_cs_chunk_ib) -> Result<(u64, u32), String> {
        let more = if self.planted == Some(PlantedFault::LongBuffers) { page_size() as u32 } else { 0 };
        let (address, bytes) = (ib.va_start, ib.ib_bytes + more);
        if ib.ip_type != b::AMDGPU_HW_IP_COMPUTE || ib.ip_instance != 0 || ib.ring >= RINGS || ib.flags != 0 {
            return Err(format!("an indirect buffer is for ring {} of {}", ib.ring, ib.ip_type));
        }
        let aligned = address.is_multiple_of(IB_ALIGNMENT.into()) && bytes.is_multiple_of(IB_ALIGNMENT);
        if !aligned || bytes == 0 || bytes > MOST_IB_BYTES {
            return Err(format!("an indirect buffer has {bytes} B at {address:#x}"));
        }
        self.space.execute_of(address, bytes.into())?;
        Ok((address, bytes / 4))
    }

    /// Runs what has not ended.
    fn run(&mut self) {
        let FakeKernel { contexts, space, executes, complaints, .. } = self;
        for context in contexts.values_mut() {
            for (job, number) in context.jobs.iter_mut().zip(1u64..) {
                // Waves that were killed end their submit, too.
                if job.ended.is_none() {
                    space.listed = std::mem::take(&mut job.listed);
                    let ran = executes.execute(&job.ibs, space);
                    complaints.extend(ran.as_ref().err().cloned());
                    job.ended = Some(ran.map_err(|_| Errno::ETIME));
                }
                let is_written = matches!(job.ended, Some(Ok(()) | Err(Errno::ENODATA)));
                job.fence.take().filter(|_| is_written).iter().for_each(|fence| space.write_fence(*fence, number));
            }
        }
    }

    /// Whether a submit has not ended: 1. The time of the request's deadline does not pass.
    fn wait(&mut self, wait: b::drm_amdgpu_wait_cs_in) -> FakeAnswer<u64> {
        let context = self.contexts.get(&wait.ctx_id);
        let job = context.and_then(|c| c.jobs.get((wait.handle as usize).checked_sub(1)?));
        match job.map(|job| job.ended) {
            Some(None) => Ok(1),
            Some(Some(Ok(()))) => Ok(0),
            Some(Some(Err(errno))) => Err(errno),
            None => self.refuse(Errno::EINVAL, format!("there is no submit {}", wait.handle)),
        }
    }
}
