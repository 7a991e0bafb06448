//! Memory that was freed, and that the allocator keeps.

/// Gives what was freed back to the system. The allocator keeps small pieces for the next ones, which after a tokenizer of
/// half a million merges is as much memory as the tokenizer takes.
pub fn give_back_freed() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes no pointer, and any thread may call it at any time.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(all(test, target_env = "gnu"))]
mod tests {
    use super::*;
    use std::process::Command;

    /// Environment variable for a process of its own: what other tests allocate meanwhile does not count there.
    const CHILD: &str = "KILN_TEST_FREED";

    fn resident() -> usize {
        let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
        // SAFETY: it takes no pointer.
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
