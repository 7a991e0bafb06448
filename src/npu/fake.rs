//! A FAKE of the NPU's driver and array, for tests: handles, addresses and packets are checked as the driver does, and
//! the CPU computes the known programs' results. Tests can make it fail. It is not a model of the array: that is in
//! `aie/tests/model`, and runs the programs' bytes.

use super::programs::{MATMUL_BF16, VECTOR_ADD_BF16};
use crate::sys::bindings as b;
use crate::sys::fake::{FakeIoctls, decode};
use crate::sys::npu_program::DeviceHeap;
use half::bf16;
use nix::errno::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{c_int, c_void};
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

/// Device address of the heap's start.
const HEAP_ADDRESS: u64 = 0x400_0000;

/// The behaviour of runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Behaviour {
    /// It computes the right result.
    #[default]
    Right,
    /// It changes one bit of its result.
    Wrong,
    /// It never ends.
    Late,
    /// It ends when it is released, after those before it.
    Held,
    /// It ends in this state of its packet.
    State(u32),
}

/// The fake's state. A caller's violation fails an assertion, which the caller sees as EFAULT.
#[derive(Debug, Default)]
pub struct ArrayState {
    path: PathBuf,
    next: u32,
    buffers: BTreeMap<u32, FakeBuffer>,
    contexts: BTreeMap<u32, FakeContext>,
    timelines: BTreeSet<u32>,
    /// Allocated bytes of the heap.
    heap_used: u64,
    /// The numbers of all requests so far.
    pub log: Vec<u8>,
    /// Refuses the request of this index in `log`, and with `true` all later ones of its kind.
    pub refuse: Option<(usize, Errno, bool)>,
    /// The behaviour of runs.
    pub behaviour: Behaviour,
    /// Added to the reported addresses of buffers in this process.
    pub shift: u64,
    /// The caller's violations.
    pub violations: Vec<String>,
}

#[derive(Debug)]
struct FakeBuffer {
    kind: u32,
    size: u64,
    /// Offset in the file that stands for the node, or in the heap.
    offset: u64,
    /// An exported buffer is another fake's memory, which this one cannot map.
    exported: bool,
}

#[derive(Debug, Default)]
struct FakeContext {
    tiles: u32,
    image: Option<u32>,
    timeline: u32,
    runs: u64,
    /// Runs that have not ended, in order.
    running: Vec<HeldRun>,
}

/// A run that has not ended.
#[derive(Debug)]
struct HeldRun {
    number: u64,
    command: u32,
    /// Handles that it uses.
    used: Vec<u32>,
    adds: bool,
    arguments: Vec<(u32, u64)>,
}

/// An array behind a file that stands for its node.
#[derive(Debug, Clone, Default)]
pub struct FakeNpu(Arc<Mutex<ArrayState>>);

impl FakeNpu {
    /// The array behind the existing file `path`.
    pub fn new(path: &Path) -> FakeNpu {
        let file = OpenOptions::new().write(true).open(path).unwrap();
        file.set_len(1 << 40).unwrap(); // sparse: only written parts take space
        FakeNpu(Arc::new(Mutex::new(ArrayState { path: path.canonicalize().unwrap(), ..Default::default() })))
    }

    /// Its state.
    pub fn state(&self) -> MutexGuard<'_, ArrayState> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Answers the ioctls on its file.
    pub fn at(&self, path: &Path) -> FakeIoctls {
        let npu = self.clone();
        FakeIoctls::new(path, move |request, argument| {
            npu.answer(decode(request).3, argument).unwrap_or(Err(Errno::ENOTTY))
        })
    }

    /// The answer to the request `number`; `None` if it is another fake's.
    pub fn answer(&self, number: u8, argument: *mut c_void) -> Option<Result<c_int, Errno>> {
        if number == 0x2d {
            // SAFETY: the argument is the request's structure.
            let handle = unsafe { &*argument.cast::<b::drm_prime_handle>() }.handle;
            self.state().buffers.get_mut(&handle).expect("a buffer").exported = true;
        }
        matches!(number, 0x09 | 0x2e | 0x40..=0x44 | 0x46 | 0xc0 | 0xca).then(|| self.state().answer(number, argument))
    }
}

impl ArrayState {
    /// Number of handles that were not closed, and of mappings of the node's file.
    pub fn held(&self) -> usize {
        self.buffers.len() + self.contexts.len() + self.timelines.len() + self.mappings().len()
    }

    /// Offsets and addresses at which this process maps the node's file.
    fn mappings(&self) -> BTreeMap<u64, u64> {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let of = |line: &str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let path = words.get(5)?;
            let address = u64::from_str_radix(words[0].split('-').next()?, 16).ok()?;
            (Path::new(path) == self.path).then_some((u64::from_str_radix(words[2], 16).ok()?, address))
        };
        maps.lines().filter_map(of).collect()
    }

    /// A buffer's address in this process.
    fn address(&self, handle: u32) -> Option<u64> {
        let buffer = &self.buffers[&handle];
        if buffer.kind == b::AMDXDNA_BO_DEV {
            let heap = self.buffers.iter().find(|(_, b)| b.kind == b::AMDXDNA_BO_DEV_HEAP)?;
            return Some(self.address(*heap.0)? + buffer.offset);
        }
        self.mappings().get(&buffer.offset).copied()
    }

    fn bytes(&self, handle: u32) -> &[u8] {
        let address = self.address(handle).expect("a mapped buffer");
        // SAFETY: the mapping is that long, and the caller waits meanwhile.
        unsafe { std::slice::from_raw_parts(address as *const u8, self.buffers[&handle].size as usize) }
    }

    fn bytes_mut(&mut self, handle: u32) -> &mut [u8] {
        let address = self.address(handle).expect("a mapped buffer");
        // SAFETY: as in `bytes`.
        unsafe { std::slice::from_raw_parts_mut(address as *mut u8, self.buffers[&handle].size as usize) }
    }

    fn make(&mut self, kind: u32, size: u64) -> u32 {
        self.next += 1;
        let offset = match kind {
            b::AMDXDNA_BO_DEV_HEAP => {
                self.heap_used = 0;
                u64::from(self.next) << 26
            }
            b::AMDXDNA_BO_DEV => {
                self.heap_used += size.next_multiple_of(4096);
                self.heap_used - size.next_multiple_of(4096)
            }
            // Each buffer has its own part of the file.
            _ => u64::from(self.next) << 26,
        };
        self.buffers.insert(self.next, FakeBuffer { kind, size, offset, exported: false });
        self.next
    }

    fn refused(&mut self, number: u8) -> Result<(), Errno> {
        let index = self.log.len();
        self.log.push(number);
        match self.refuse {
            Some((at, errno, false)) if index == at => Err(errno),
            Some((at, errno, true)) if index >= at && self.log[at] == number => Err(errno),
            _ => Ok(()),
        }
    }

    fn answer(&mut self, number: u8, argument: *mut c_void) -> Result<c_int, Errno> {
        self.refused(number)?;
        // SAFETY: the wrappers pass the structure that belongs to the request's number.
        unsafe {
            match number {
                0x09 => self.close((*argument.cast::<b::drm_gem_close>()).handle)?,
                0x2e => {
                    let data = &mut *argument.cast::<b::drm_prime_handle>();
                    let size = std::fs::metadata(format!("/proc/self/fd/{}", data.fd)).map_err(|_| Errno::EBADF)?.len();
                    data.handle = self.make(b::AMDXDNA_BO_SHMEM, size);
                }
                0x40 => {
                    let data = &mut *argument.cast::<b::amdxdna_drm_create_hwctx>();
                    let heap = self.buffers.iter().find(|(_, b)| b.kind == b::AMDXDNA_BO_DEV_HEAP);
                    let mapped = heap.and_then(|(&heap, _)| self.address(heap)).ok_or(Errno::EINVAL)?;
                    if !mapped.is_multiple_of(DeviceHeap::BYTES as u64) || data.num_tiles == 0 || data.num_tiles > 16 {
                        return Err(Errno::EINVAL);
                    }
                    self.next += 2;
                    (data.handle, data.syncobj_handle) = (self.next, self.next - 1);
                    let (tiles, timeline) = (data.num_tiles, data.syncobj_handle);
                    self.contexts.insert(data.handle, FakeContext { tiles, timeline, ..Default::default() });
                    self.timelines.insert(data.syncobj_handle);
                }
                0x41 => {
                    let context = self.contexts.remove(&(*argument.cast::<b::amdxdna_drm_destroy_hwctx>()).handle);
                    for handle in context.ok_or(Errno::EINVAL)?.running.into_iter().flat_map(|run| run.used) {
                        if !self.buffers.contains_key(&handle) || self.address(handle).is_none() {
                            self.violations.push(format!("buffer {handle} went before the run that uses it"));
                        }
                    }
                }
                0x42 => {
                    let data = &*argument.cast::<b::amdxdna_drm_config_hwctx>();
                    let image = (*(data.param_val as *const b::amdxdna_config_one_cu)).cu.cu_bo;
                    self.buffers.get(&image).filter(|b| b.kind == b::AMDXDNA_BO_DEV).ok_or(Errno::EINVAL)?;
                    self.contexts.get_mut(&data.handle).ok_or(Errno::EINVAL)?.image = Some(image);
                }
                0x43 => {
                    let data = &mut *argument.cast::<b::amdxdna_drm_create_bo>();
                    let heap = self.buffers.values().any(|b| b.kind == b::AMDXDNA_BO_DEV_HEAP);
                    match data.type_ {
                        b::AMDXDNA_BO_DEV_HEAP if heap => return Err(Errno::EBUSY),
                        b::AMDXDNA_BO_DEV if !heap => return Err(Errno::EINVAL),
                        _ if data.size == 0 => return Err(Errno::EINVAL),
                        kind => data.handle = self.make(kind, data.size),
                    }
                }
                0x44 => {
                    let data = &mut *argument.cast::<b::amdxdna_drm_get_bo_info>();
                    let buffer = self.buffers.get(&data.handle).ok_or(Errno::ENOENT)?;
                    let address = self.address(data.handle).map(|address| address.wrapping_add(self.shift));
                    let in_heap = buffer.kind == b::AMDXDNA_BO_DEV;
                    data.map_offset = if in_heap || buffer.exported { u64::MAX } else { buffer.offset };
                    data.vaddr = address.unwrap_or(u64::MAX);
                    data.xdna_addr = if in_heap { HEAP_ADDRESS + buffer.offset } else { address.unwrap_or(u64::MAX) };
                }
                0x46 => {
                    let data = &mut *argument.cast::<b::amdxdna_drm_exec_cmd>();
                    let used = std::slice::from_raw_parts(data.args as *const u32, data.arg_count as usize).to_vec();
                    data.seq = self.run(data.hwctx, data.cmd_handles as u32, used)?;
                }
                0xc0 => {
                    let handle = (*argument.cast::<b::drm_syncobj_destroy>()).handle;
                    assert!(self.timelines.remove(&handle), "timeline {handle} is no one's");
                }
                0xca => {
                    let data = &*argument.cast::<b::drm_syncobj_timeline_wait>();
                    let (timeline, point) = (*(data.handles as *const u32), *(data.points as *const u64));
                    let context = self.contexts.values().find(|context| context.timeline == timeline);
                    let running = &context.ok_or(Errno::EINVAL)?.running;
                    if running.iter().any(|run| run.number <= point) {
                        return Err(Errno::ETIME);
                    }
                }
                _ => {}
            }
        }
        Ok(0)
    }

    fn close(&mut self, handle: u32) -> Result<(), Errno> {
        self.buffers.remove(&handle).ok_or(Errno::EINVAL)?;
        if self.contexts.values().flat_map(|context| &context.running).any(|run| run.used.contains(&handle)) {
            self.violations.push(format!("buffer {handle} was closed while a run used it"));
        }
        Ok(())
    }

    /// Runs the packet in the buffer `command`, which may use the buffers `used`.
    fn run(&mut self, context: u32, command: u32, used: Vec<u32>) -> Result<u64, Errno> {
        let words: Vec<u32> =
            self.bytes(command).chunks(4).map(|w| u32::from_le_bytes(w.try_into().unwrap())).collect();
        let image = self.contexts.get(&context).and_then(|c| c.image).ok_or(Errno::EINVAL)?;
        let known = [&VECTOR_ADD_BF16, &MATMUL_BF16].into_iter().find(|p| self.bytes(image) == p.image);
        let program = known.ok_or(Errno::EINVAL)?;
        assert_eq!(self.contexts[&context].tiles, 4 * program.columns);
        // 1 word for the mask, 5 for operation and stream, 2 for each buffer.
        assert_eq!(words[..4], [1 | 12 << 12, 1, 3, 0]);
        let (sequence, length) = (u64::from(words[4]) | u64::from(words[5]) << 32, words[6]);
        let resident = used.iter().find(|h| HEAP_ADDRESS + self.buffers[h].offset == sequence);
        assert_eq!(self.bytes(*resident.expect("the stream"))[..4 * length as usize], *program.sequence);
        assert_eq!(length as usize, program.sequence.len() / 4);
        let addresses = words[7..13].chunks(2).map(|half| u64::from(half[0]) | u64::from(half[1]) << 32);
        let argument = |address: u64| {
            let inside = used.iter().filter_map(|&handle| {
                let from = address.checked_sub(self.address(handle)?)?;
                (from + 8192 <= self.buffers[&handle].size).then_some((handle, from))
            });
            inside.min_by_key(|(_, from)| *from).expect("a used buffer")
        };
        let arguments: Vec<(u32, u64)> = addresses.map(argument).collect();
        let adds = program.columns == 4;

        let context = self.contexts.get_mut(&context).ok_or(Errno::EINVAL)?;
        context.runs += 1;
        let number = context.runs - 1;
        let state = match self.behaviour {
            Behaviour::Late | Behaviour::Held => {
                context.running.push(HeldRun { number, command, used, adds, arguments });
                return Ok(number);
            }
            Behaviour::State(state) => state,
            Behaviour::Right | Behaviour::Wrong => {
                self.compute(adds, &arguments);
                4
            }
        };
        self.bytes_mut(command)[0] = (words[0] & !0xf | state) as u8;
        Ok(number)
    }

    /// Ends the oldest running run with this state of its packet.
    pub fn let_go(&mut self, state: u8) {
        let context = self.contexts.values_mut().find(|context| !context.running.is_empty()).expect("a run");
        let run = context.running.remove(0);
        if state == 4 {
            self.compute(run.adds, &run.arguments);
        }
        let header = &mut self.bytes_mut(run.command)[0];
        *header = *header & !0xf | state;
    }

    fn compute(&mut self, add: bool, arguments: &[(u32, u64)]) {
        let [a, b] = [0, 1].map(|i| {
            let bytes = self.bytes(arguments[i].0)[arguments[i].1 as usize..].chunks(2);
            bytes.map(|v| bf16::from_le_bytes(v.try_into().unwrap()).to_f32()).collect::<Vec<f32>>()
        });
        let result: Vec<u8> = match add {
            true => (0..4096).flat_map(|i| bf16::from_f32(a[i] + b[i]).to_le_bytes()).collect(),
            false => (0..4096)
                .flat_map(|at| {
                    let product = |k: usize| f64::from(a[at / 64 * 128 + k]) * f64::from(b[64 * k + at % 64]);
                    ((0..128).map(product).sum::<f64>() as f32).to_le_bytes()
                })
                .collect(),
        };
        let wrong = self.behaviour == Behaviour::Wrong;
        let to = &mut self.bytes_mut(arguments[2].0)[arguments[2].1 as usize..];
        to[..result.len()].copy_from_slice(&result);
        to[17] ^= u8::from(wrong);
    }
}
