//! Returns freed memory that the allocator keeps to the system.

/// Returns freed memory to the system. The allocator keeps small pieces for later use: after a tokenizer of half a
/// million merges as much memory as the tokenizer takes.
pub fn give_back_freed() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the function takes no pointer, and any thread may call it at any time.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(all(test, target_env = "gnu"))]
mod tests {
    use super::*;
    use std::process::Command;

    /// Set in a process of its own, in which the allocations of other tests do not count.
    const CHILD: &str = "KILN_TEST_FREED";

    fn resident() -> usize {
        let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
        // SAFETY: the function takes no pointer.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * page
    }

    #[test]
    fn what_lies_between_pieces_in_use_goes_back() {
        if std::env::var_os(CHILD).is_none() {
            let own = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "sys::memory::tests::what_lies_between_pieces_in_use_goes_back", "--test-threads=1"])
                .env(CHILD, "1")
                .output()
                .unwrap();
            return assert!(own.status.success(), "{}", String::from_utf8_lossy(&own.stdout));
        }
        const PIECES: usize = 1 << 20;
        let mut pieces: Vec<Box<[u8; 56]>> = (0..PIECES).map(|i| Box::new([i as u8; 56])).collect();
        let last = pieces.pop();
        drop(pieces);
        let kept = resident();
        give_back_freed();
        let left = resident();
        assert!(kept - left > 32 << 20, "{kept} bytes, then {left}");
        assert_eq!(last.map(|last| last[0]), Some(255));
    }
}
