//! Contexts: submits of packets to the first compute ring, and the end of each.

use super::{b, raw, retry};
use crate::sys::DriverResult;
use crate::sys::drm::{Gem, Node, deadline};
use std::time::Duration;

/// Most indirect buffers of a submit to a compute ring.
pub const MOST_BUFFERS: usize = 125;
/// Most bytes of an indirect buffer: its packet has 20 bits for its words.
pub const MOST_BUFFER_BYTES: u64 = 4 * 0xf_ffff;

/// The flag of a reset that is not over, missing from Debian 12's header.
const RESET_IN_PROGRESS: u64 = 1 << 5;

/// A context, freed when dropped. Its submits run one after another.
#[derive(Debug)]
pub struct Context {
    node: Node,
    id: u32,
}

/// A range of packets in the GPU's address space, which a submit runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct IndirectBuffer {
    /// The GPU address of the first packet.
    pub address: u64,
    /// The length of the packets in bytes.
    pub bytes: u32,
}

/// The faults of a context since it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContextState {
    /// True if a reset has lost the content of VRAM.
    pub has_lost_vram: bool,
    /// True if the context's own work has hung the GPU.
    pub is_guilty: bool,
    /// True while the GPU is being reset.
    pub is_resetting: bool,
}

/// Objects that the kernel keeps in place during a submit, as far as it does not do so by itself.
#[derive(Default)]
pub struct ObjectList(Vec<b::drm_amdgpu_bo_list_entry>);

impl ObjectList {
    /// Adds a memory object to the list.
    pub fn add(&mut self, gem: &Gem) {
        self.0.push(b::drm_amdgpu_bo_list_entry { bo_handle: gem.handle(), bo_priority: 0 });
    }

    /// Removes a memory object from the list.
    pub fn remove(&mut self, gem: &Gem) {
        self.0.retain(|entry| entry.bo_handle != gem.handle());
    }
}

impl Context {
    /// A new context.
    ///
    /// # Errors
    /// ENOMEM, EACCES.
    pub fn new(node: &Node) -> DriverResult<Context> {
        let what = "make a context";
        let arguments = b::drm_amdgpu_ctx_in { op: b::AMDGPU_CTX_OP_ALLOC_CTX, ..Default::default() };
        // SAFETY: the kernel answers in this part of the union.
        let id = unsafe { context(node, what, arguments)?.alloc.ctx_id };
        Ok(Context { node: node.clone(), id })
    }

    /// A context that the kernel is said to have made.
    #[cfg(test)]
    pub(in crate::sys) fn of(node: &Node, id: u32) -> Context {
        Context { node: node.clone(), id }
    }

    /// Submits indirect buffers in order, no more than [`MOST_BUFFERS`] of them, and returns the submit's number. When all is
    /// done, the GPU writes the number at `fence`: an object of one page and bytes from its start. `objects`: those that the
    /// kernel has to keep in place.
    ///
    /// # Errors
    /// EINVAL: the submit is not well-formed. ENOMEM: its objects do not fit into memory. ECANCELED: the context is
    /// unusable after a reset. ENODEV: the GPU is gone.
    pub fn submit(
        &self,
        buffers: impl IntoIterator<Item = IndirectBuffer>,
        fence: (&Gem, u32),
        objects: &ObjectList,
    ) -> DriverResult<u64> {
        let mut ibs = [b::drm_amdgpu_cs_chunk_ib::default(); MOST_BUFFERS];
        let mut chunks = [b::drm_amdgpu_cs_chunk::default(); MOST_BUFFERS + 2];
        let mut pointers = [0u64; MOST_BUFFERS + 2];
        let mut count = 0;
        for ((ib, chunk), buffer) in ibs.iter_mut().zip(&mut chunks).zip(buffers) {
            ib.va_start = buffer.address;
            ib.ib_bytes = buffer.bytes;
            ib.ip_type = b::AMDGPU_HW_IP_COMPUTE;
            *chunk = chunk_of(b::AMDGPU_CHUNK_ID_IB, ib);
            count += 1;
        }
        let fence = b::drm_amdgpu_cs_chunk_fence { handle: fence.0.handle(), offset: fence.1 };
        chunks[count] = chunk_of(b::AMDGPU_CHUNK_ID_FENCE, &fence);
        let list = b::drm_amdgpu_bo_list_in {
            // No list that the kernel keeps.
            operation: u32::MAX,
            list_handle: u32::MAX,
            bo_number: objects.0.len() as u32,
            bo_info_size: size_of::<b::drm_amdgpu_bo_list_entry>() as u32,
            bo_info_ptr: objects.0.as_ptr() as u64,
        };
        chunks[count + 1] = chunk_of(b::AMDGPU_CHUNK_ID_BO_HANDLES, &list);
        let has_objects = usize::from(!objects.0.is_empty());
        pointers.iter_mut().zip(&chunks).for_each(|(pointer, chunk)| *pointer = (&raw const *chunk) as u64);
        let arguments = b::drm_amdgpu_cs_in {
            ctx_id: self.id,
            num_chunks: (count + 1 + has_objects) as u32,
            chunks: pointers.as_ptr() as u64,
            ..Default::default()
        };
        retry("submit work", || {
            let mut data = b::drm_amdgpu_cs { in_: arguments };
            // SAFETY: the structure and all that it points to are valid for the call; the kernel answers in the same
            // union's `out`.
            unsafe { raw::amdgpu_cs(self.node.raw(), &mut data).map(|_| data.out.handle) }
        })
    }

    /// Waits for a submit by its number. Whether it has ended before `timeout` was over.
    ///
    /// # Errors
    /// The fate of a submit that a reset has ended. ECANCELED: another's work had hung. ENODATA: its own work had hung
    /// and its waves were ended. ETIME: its own work had hung and the GPU was reset.
    pub fn wait(&self, submit: u64, timeout: Duration) -> DriverResult<bool> {
        let what = "finish its work";
        let arguments = b::drm_amdgpu_wait_cs_in {
            handle: submit,
            timeout: deadline(what, timeout)? as u64,
            ip_type: b::AMDGPU_HW_IP_COMPUTE,
            ctx_id: self.id,
            ..Default::default()
        };
        retry(what, || {
            let mut data = b::drm_amdgpu_wait_cs { in_: arguments };
            // SAFETY: the structure is valid for the call; the kernel answers in the same union's `out`.
            unsafe { raw::amdgpu_wait_cs(self.node.raw(), &mut data).map(|_| data.out.status == 0) }
        })
    }

    /// The context's faults.
    ///
    /// # Errors
    /// ENODEV: the GPU is gone.
    pub fn state(&self) -> DriverResult<ContextState> {
        let what = "ask for a context's state";
        let arguments =
            b::drm_amdgpu_ctx_in { op: b::AMDGPU_CTX_OP_QUERY_STATE2, ctx_id: self.id, ..Default::default() };
        // SAFETY: the kernel answers in this part of the union.
        let flags = unsafe { context(&self.node, what, arguments)?.state.flags };
        let has = |flag: u32| flags & u64::from(flag) != 0;
        Ok(ContextState {
            has_lost_vram: has(b::AMDGPU_CTX_QUERY2_FLAGS_VRAMLOST),
            is_guilty: has(b::AMDGPU_CTX_QUERY2_FLAGS_GUILTY),
            is_resetting: flags & RESET_IN_PROGRESS != 0,
        })
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        let op = b::AMDGPU_CTX_OP_FREE_CTX;
        let arguments = b::drm_amdgpu_ctx_in { op, ctx_id: self.id, ..Default::default() };
        let _ = context(&self.node, "free a context", arguments);
    }
}

/// Makes the CTX ioctl, which creates, queries and destroys contexts.
fn context(node: &Node, what: &str, arguments: b::drm_amdgpu_ctx_in) -> DriverResult<b::drm_amdgpu_ctx_out> {
    retry(what, || {
        let mut data = b::drm_amdgpu_ctx { in_: arguments };
        // SAFETY: the structure is valid for the call; the kernel answers in the same union's `out`.
        unsafe { raw::amdgpu_ctx(node.raw(), &mut data).map(|_| data.out) }
    })
}

/// Makes a chunk, the part of a submit with the identifier `id`.
fn chunk_of<T>(id: u32, content: &T) -> b::drm_amdgpu_cs_chunk {
    b::drm_amdgpu_cs_chunk {
        chunk_id: id,
        length_dw: size_of::<T>() as u32 / 4,
        chunk_data: (&raw const *content) as u64,
    }
}
