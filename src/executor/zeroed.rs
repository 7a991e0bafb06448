//! Memory of zeros that takes none until it is written to.
//!
//! The allocator's own zeroed memory is not always so: what was freed before is zeroed by hand, and up to 32 MB are taken from
//! there. A KV cache that follows weights would be resident as a whole.

use crate::error::{Setting, text};
use crate::{Error, Result};
use bytemuck::Pod;
use memmap2::MmapMut;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

/// A slice of zeros, of pages of its own.
#[derive(Debug)]
pub(crate) struct Zeroed<T> {
    /// Nothing where there is nothing in the slice.
    pages: Option<MmapMut>,
    bytes: usize,
    of: PhantomData<T>,
}

impl<T> Default for Zeroed<T> {
    fn default() -> Self {
        Zeroed { pages: None, bytes: 0, of: PhantomData }
    }
}

/// So many zeros. Refused if they cannot be had; `what` they are for.
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
    /// Asks for large pages, as far as whole ones fit: for what is written as a whole, and read so again and again. Where the
    /// system has none to give, pages are as they were.
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

    /// Environment variable for a process of its own: what other tests allocate meanwhile does not count there.
    const CHILD: &str = "KILN_TEST_ZEROED";

    /// A KV cache of up to 32 MB was resident as a whole once weights had been freed.
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
        // What makes the allocator keep 24 MB for the next that asks.
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
