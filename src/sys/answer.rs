//! Where drivers write their answers. Some write the whole of their own structure whatever size they were told (amdxdna,
//! and what stands in for amdgpu in tests), and a newer driver's may have grown: the buffer is larger than any.

/// Bytes of the buffer.
pub(super) const ANSWER_BYTES: usize = 8192;

/// A buffer for an answer, aligned for any structure.
pub(super) struct Answer(Box<[u64]>);

impl Answer {
    pub(super) fn new() -> Answer {
        Answer(vec![0; ANSWER_BYTES / 8].into())
    }

    pub(super) fn address(&mut self) -> u64 {
        self.0.as_mut_ptr() as u64
    }

    /// The structure at byte `at`.
    ///
    /// # Safety
    /// `T` is made of integers alone.
    pub(super) unsafe fn read<T: Default>(&self, at: usize) -> T {
        match at.checked_add(size_of::<T>()) {
            // SAFETY: it lies within the buffer, and any bytes are integers.
            Some(end) if end <= ANSWER_BYTES => unsafe {
                self.0.as_ptr().cast::<u8>().add(at).cast::<T>().read_unaligned()
            },
            _ => T::default(),
        }
    }

    /// The structures of `T` from the start on, `stride` bytes apart, up to the first that is all zero.
    ///
    /// Drivers differ in whether the size that comes back is what was written or what was left; an entry always has
    /// something in it.
    ///
    /// # Safety
    /// As [`Answer::read`].
    pub(super) unsafe fn entries<T: Default>(&self, stride: usize) -> Vec<T> {
        let bytes: &[u8] = bytemuck::cast_slice(&self.0);
        let used = bytes.chunks_exact(stride).take_while(|c| c.iter().any(|&b| b != 0)).count();
        // SAFETY: as the caller says.
        (0..used).map(|i| unsafe { self.read(i * stride) }).collect()
    }
}
