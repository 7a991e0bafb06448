//! A buffer for drivers' answers, larger than any answer. Some drivers write their whole structure whatever size they
//! were given (amdxdna, and the stand-in for amdgpu in tests), and a newer driver's structure may have grown.

/// The size of the reply's buffer in bytes.
pub(super) const ANSWER_BYTES: usize = 8192;

/// A buffer for an answer, aligned for any structure.
pub(super) struct ReplyBuffer(Box<[u64]>);

impl ReplyBuffer {
    pub(super) fn new() -> ReplyBuffer {
        ReplyBuffer(vec![0; ANSWER_BYTES / 8].into())
    }

    pub(super) fn address(&mut self) -> u64 {
        self.0.as_mut_ptr() as u64
    }

    /// The structure at byte `at`; its default if it would end past the buffer.
    ///
    /// # Safety
    /// `T` consists of integers only.
    pub(super) unsafe fn read<T: Default>(&self, at: usize) -> T {
        match at.checked_add(size_of::<T>()) {
            // SAFETY: the structure lies within the buffer, and by the caller's contract any bytes are a valid `T`.
            Some(end) if end <= ANSWER_BYTES => unsafe {
                self.0.as_ptr().cast::<u8>().add(at).cast::<T>().read_unaligned()
            },
            _ => T::default(),
        }
    }

    /// The entries `T` from the buffer's start, `stride` bytes apart, up to the first that is all zero.
    ///
    /// Some drivers return the size that they wrote, others the size left, so the returned size is not used. An entry
    /// is never all zero.
    ///
    /// # Safety
    /// As [`ReplyBuffer::read`].
    pub(super) unsafe fn entries<T: Default>(&self, stride: usize) -> Vec<T> {
        let bytes: &[u8] = bytemuck::cast_slice(&self.0);
        let used = bytes.chunks_exact(stride).take_while(|c| c.iter().any(|&b| b != 0)).count();
        // SAFETY: by the caller's contract `T` consists of integers only.
        (0..used).map(|i| unsafe { self.read(i * stride) }).collect()
    }
}
