//! Zeroed memory that becomes resident only when written.
//!
//! The allocator's zeroed memory does not guarantee that: it clears up to 32 MB of freed memory by hand. A KV cache
//! allocated after weights were freed would be resident as a whole.

use crate::error::{Setting, text};
use crate::{Error, Result};
use bytemuck::Pod;
use memmap2::MmapMut;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

/// A slice of zeros in its own pages.
#[derive(Debug)]
pub(crate) struct Zeroed<T> {
    /// The mapped memory; `None` for an empty slice.
    pages: Option<MmapMut>,
    bytes: usize,
    of: PhantomData<T>,
}

impl<T> Default for Zeroed<T> {
    fn default() -> Self {
        Zeroed { pages: None, bytes: 0, of: PhantomData }
    }
}

/// A slice of `len` zeros; `what` names its purpose in the error. Refused if there is not enough memory.
pub(crate) fn zeroed<T: Pod>(len: usize, what: &str) -> Result<Zeroed<T>> {
    let bytes = len.checked_mul(size_of::<T>());
    let pages = match bytes {
        Some(0) => return Ok(Zeroed::default()),
        Some(bytes) => MmapMut::map_anon(bytes).ok(),
        None => None,
    };
    match (bytes, pages) {
        (Some(bytes), Some(pages)) => Ok(Zeroed { pages: Some(pages), bytes, of: PhantomData }),
        _ => Err(Error::refused(
            format!(
                "{} of system memory for the {what} cannot be had",
                crate::display::bytes((size_of::<T>() as u64).saturating_mul(len as u64))
            ),
            text!("close other programs or use a smaller model or ", Setting::Context),
        )),
    }
}

impl<T> Zeroed<T> {
    /// Asks the system for large pages over the whole ones in the slice: for data that is written once as a whole and
    /// then read repeatedly. If the system has none, the pages stay small.
    pub(crate) fn ask_for_large_pages(&self) {
        #[cfg(target_os = "linux")]
        if let Some(pages) = &self.pages {
            let _ = pages.advise(memmap2::Advice::HugePage);
        }
    }
}

impl<T: Pod> Deref for Zeroed<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        self.pages.as_ref().map_or(&[], |pages| bytemuck::cast_slice(&pages[..self.bytes]))
    }
}

impl<T: Pod> DerefMut for Zeroed<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        self.pages.as_mut().map_or(&mut [], |pages| bytemuck::cast_slice_mut(&mut pages[..self.bytes]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// Set in a process of its own, in which the allocations of other tests do not count.
    const CHILD: &str = "KILN_TEST_ZEROED";

    /// Regression: a KV cache of up to 32 MB was resident as a whole once weights had been freed.
    #[test]
    fn zeros_take_memory_once_they_are_written_to() {
        if std::env::var_os(CHILD).is_none() {
            let own = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "executor::zeroed::tests::zeros_take_memory_once_they_are_written_to"])
                .env(CHILD, "1")
                .output()
                .unwrap();
            return assert!(own.status.success(), "{}", String::from_utf8_lossy(&own.stdout));
        }
        const LEN: usize = 12 << 20;
        // After this, the allocator keeps 24 MB for the next allocation.
        let (first, behind) = (vec![1u8; 2 * LEN], vec![1u8; 1 << 10]);
        drop(first);
        let (first, between) = (vec![1u8; 2 * LEN], vec![1u8; 1 << 10]);
        drop(first);
        let resident = || {
            let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
            4096 * pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap()
        };
        let before = resident();
        let mut zeros = zeroed::<u16>(LEN, "test").unwrap();
        assert!(resident() < before + (4 << 20), "{before} bytes, then {}", resident());
        assert_eq!((zeros.len(), zeros.iter().all(|&x| x == 0)), (LEN, true));
        zeros[LEN - 1] = 7;
        assert_eq!(zeros[LEN - 1], 7);
        drop((behind, between, zeros));
        assert_eq!(zeroed::<f32>(0, "test").unwrap().len(), 0);
        assert_eq!(zeroed::<f32>(usize::MAX / 2, "test").unwrap_err().exit_code(), 3);
    }
}
