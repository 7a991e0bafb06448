//! Flushes the CPU's caches for devices that do not snoop them. The NPU accesses memory behind the caches. For a buffer
//! imported from another driver, amdxdna offers no help: it answers EOPNOTSUPP to `SYNC_BO`.

/// Cache line size in bytes of every x86-64 CPU with an NPU. If CPU and device write to the same line, one write is
/// lost. So the arena aligns its slots to [`crate::schedule::layout::ALIGN`].
pub const LINE: usize = 64;

/// Writes every cache line of `bytes` back to memory and drops it. Call it before a device reads what the CPU wrote,
/// and before the CPU reads what a device wrote.
pub fn flush(bytes: &[u8]) {
    let start = bytes.as_ptr() as usize;
    let lines = (start & !(LINE - 1)..start + bytes.len()).step_by(LINE);
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_mm_clflush, _mm_mfence};
        // SAFETY: every x86-64 CPU has both instructions; each line holds at least one of the slice's bytes.
        unsafe {
            _mm_mfence();
            lines.for_each(|line| _mm_clflush(line as *const u8));
            _mm_mfence();
        }
    }
    // Other CPUs have no AMD NPU. A fence is all that user code can issue there.
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = lines;
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::dma_buf::{DmaBuf, page_size, sealed_memfd};

    /// Slices at the very edges of a mapping: their lines begin before the slice and end after it.
    #[test]
    fn flushing_touches_nothing_beside_the_lines_and_changes_no_byte() {
        let size = page_size();
        let buffer = DmaBuf::from_fd(sealed_memfd(size).unwrap()).unwrap();
        let (mut one, two) = (buffer.map().unwrap(), buffer.map().unwrap());
        let end = size as usize;
        for range in [0..end, 0..1, end - 1..end, 63..65, 100..100, end..end] {
            one.bytes_mut().iter_mut().enumerate().for_each(|(i, b)| *b = (i * 7 + range.start) as u8);
            flush(&one.bytes()[range.clone()]);
            assert!(two.bytes() == one.bytes(), "{range:?}");
        }
    }
}
