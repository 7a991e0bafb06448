//! Submits to the compute ring, and their end, which the GPU writes into memory that the host reads.

use super::device::{RenderDevice, by_others};
use crate::error::text;
use crate::replay::driver::{SIGNALS, hung};
use crate::sys::Failure;
use crate::sys::amdgpu::context::{ContextState, IndirectBuffer};
use crate::sys::amdgpu::objects::{HostMapping, ObjectKind, allocate, map};
use crate::sys::dma_buf::{Mapping, page_size};
use crate::sys::drm::Gem;
use crate::{Error, Result};
use nix::errno::Errno;
use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Polling the memory for this long is cheaper than a request that waits.
const SPIN: Duration = Duration::from_micros(50);
/// A submit that has ended within this time was not ended by a reset: amdgpu takes work for hung after 2 s.
const UNHURT: Duration = Duration::from_millis(500);

/// The queue of a context: submits run one after another.
pub struct Queue {
    device: Rc<RenderDevice>,
    /// A page whose first eight bytes are the number of the last submit that has ended.
    fence: Gem,
    ended: Mapping,
    /// The number of the submit that was made last.
    last: Cell<u64>,
    /// Submits since the last signal: their first number, and when it was submitted.
    open: Cell<Option<(u64, Instant)>>,
    signals: [Cell<Covered>; SIGNALS],
}

/// The submits whose end a signal reports.
#[derive(Debug, Clone, Copy, Default)]
struct Covered {
    first: Option<(u64, Instant)>,
    last: u64,
}

impl Queue {
    /// A queue without submits.
    ///
    /// # Errors
    /// Refused: there is no room for a page. Device: the kernel refuses.
    pub fn new(device: &Rc<RenderDevice>) -> Result<Queue> {
        // The kernel finds the page by its handle: the page has no address for kernels, and need not be kept in place
        // with the data of each submit.
        let kind = ObjectKind { in_vram: false, host: HostMapping::Cached, is_shared: true };
        let fence = allocate(&device.node, page_size(), kind)?;
        let ended = map(&device.node, &fence, page_size())?;
        let (last, open, signals) = Default::default();
        Ok(Queue { device: device.clone(), fence, ended, last, open, signals })
    }

    /// Submits packets: `first`, then those of each list. More lists than a submit takes are several submits.
    ///
    /// # Errors
    /// Device: the GPU was lost, or hangs.
    pub fn submit(
        &self,
        first: IndirectBuffer,
        lists: impl Iterator<Item = IndirectBuffer>,
        signal: Option<usize>,
    ) -> Result<()> {
        if self.device.is_hung.get() {
            return Err(hung(0));
        }
        let mut lists = lists.peekable();
        while lists.peek().is_some() {
            let begun = Instant::now();
            let objects = self.device.shared.borrow();
            let number =
                self.device.context.submit(std::iter::once(first).chain(&mut lists), (&self.fence, 0), &objects);
            let number = number.map_err(|e| self.lost(e))?;
            self.last.set(number);
            if self.open.get().is_none() {
                self.open.set(Some((number, begun)));
            }
        }
        if let Some(signal) = signal {
            self.signals[signal].set(Covered { first: self.open.take(), last: self.last.get() });
        }
        Ok(())
    }

    /// True if all submits before the signal have ended.
    pub fn is_done(&self, signal: usize) -> bool {
        self.ended.load_first() >= self.signals[signal].get().last
    }

    /// Waits for the submits before a signal.
    ///
    /// # Errors
    /// Device: a reset has ended them, or they did not end within the deadline. The GPU hangs from then on.
    pub fn wait(&self, signal: usize, deadline: Duration) -> Result<()> {
        if self.device.is_hung.get() {
            return Err(hung(0));
        }
        let covered = self.signals[signal].get();
        let Some((first, begun)) = covered.first else { return self.wait_for(covered.last, deadline) };
        let start = Instant::now();
        while !self.is_done(signal) && start.elapsed() < SPIN {
            std::hint::spin_loop();
        }
        if !self.is_done(signal) {
            self.wait_for(covered.last, deadline)?;
        }
        // Memory shows a submit that a reset has ended as done, this one or one before it. The kernel tells them apart.
        if begun.elapsed() >= UNHURT {
            (first..=covered.last).try_for_each(|number| self.wait_for(number, deadline))?;
        }
        Ok(())
    }

    /// Waits until all submits have ended, whatever has become of them.
    pub fn finish(&self) {
        if !self.device.is_hung.get() && self.last.get() > self.ended.load_first() {
            let _ = self.device.context.wait(self.last.get(), Duration::MAX);
        }
    }

    fn wait_for(&self, number: u64, deadline: Duration) -> Result<()> {
        if number == 0 {
            return Ok(());
        }
        match self.device.context.wait(number, deadline) {
            Ok(true) => Ok(()),
            Ok(false) => {
                self.device.is_hung.set(true);
                Err(hung(deadline.as_secs()))
            }
            Err(e) => Err(self.lost(e)),
        }
    }

    /// The reason why the kernel refuses a submit, or has ended one.
    fn lost(&self, failure: Failure) -> Error {
        let state = self.device.context.state().ok();
        let is = |flag: fn(&ContextState) -> bool| state.as_ref().is_some_and(flag);
        let cause = match failure.errno {
            Errno::ENODATA => "Kiln's own work hung the GPU: the kernel has ended its kernels",
            Errno::ETIME => "Kiln's own work hung the GPU: the kernel has reset it",
            Errno::ECANCELED if is(|s| s.has_lost_vram) => "the GPU was reset, and what lay in its memory is lost",
            Errno::ECANCELED if is(|s| s.is_resetting) => "the GPU is being reset",
            Errno::ECANCELED if is(|s| s.is_guilty) => "the GPU was reset after Kiln's own work had hung",
            Errno::ECANCELED => "the GPU was reset after another program's work had hung",
            _ => return failure.into(),
        };
        let is_own = failure.errno != Errno::ECANCELED || is(|s| s.is_guilty);
        let timeout = "; where amdgpu.lockup_timeout is below 1 s, boot with amdgpu.lockup_timeout=10000,10000";
        let timeout = if is_own { timeout } else { "" };
        let remedy = text!("start Kiln again, and see the kernel's log (`dmesg`)", timeout, "; or ", by_others());
        Error::device(cause, remedy)
    }
}

impl Drop for Queue {
    /// Waits, because running work uses memory that is freed next.
    fn drop(&mut self) {
        self.finish();
    }
}

#[cfg(test)]
mod tests {
    use super::super::fake::{FakeNode, FakeReset};
    use super::super::memory::GpuBuffer;
    use super::super::tests::{Bump, open};
    use super::*;
    use crate::replay::driver::{HostAccess, Memory};

    const SUBMIT: u8 = 0x44;
    const WAIT: u8 = 0x49;

    /// A queue, and packets that add one to a number.
    struct Set {
        queue: Queue,
        list: IndirectBuffer,
        number: GpuBuffer,
        _list: GpuBuffer,
        node: FakeNode,
    }

    impl Set {
        fn new() -> Set {
            let node = Bump::node();
            let device = open(&node);
            let number = GpuBuffer::data(&device, 4, 1, HostAccess::Host, false).unwrap();
            let (memory, list) = Bump::list(&device, &number);
            Set { queue: Queue::new(&device).unwrap(), list, number, _list: memory, node }
        }

        fn submit(&self, lists: usize, signal: Option<usize>) -> Result<()> {
            self.queue.submit(self.list, (0..lists).map(|_| self.list), signal)
        }

        fn count(&self, request: u8) -> usize {
            self.node.kernel().requests.iter().filter(|number| **number == request).count()
        }

        /// Makes a signal's submits old enough that the kernel is asked how they ended, or so new that it is not.
        fn make(&self, signal: usize, is_old: bool) {
            let now = Instant::now();
            let begun = if is_old { now.checked_sub(2 * UNHURT).unwrap() } else { now + Duration::from_secs(3600) };
            let covered = self.queue.signals[signal].get();
            let first = covered.first.map(|(number, _)| (number, begun));
            self.queue.signals[signal].set(Covered { first, ..covered });
        }
    }

    #[test]
    fn a_pass_is_one_request() {
        let set = Set::new();
        let before = set.node.kernel().requests.len();
        set.submit(3, Some(0)).unwrap();
        assert!(set.queue.is_done(0));
        set.make(0, false);
        set.queue.wait(0, Duration::from_secs(1)).unwrap();
        assert_eq!(set.node.kernel().requests[before..], [SUBMIT]);
        // SAFETY: the submit was waited for. The first list of a submit counts, too.
        assert_eq!(unsafe { set.number.bytes() }.unwrap(), 4u32.to_ne_bytes());
        assert_eq!(set.node.kernel().complaints, [""; 0]);
    }

    #[test]
    fn more_lists_than_a_submit_takes_are_several_submits() {
        let set = Set::new();
        set.submit(300, Some(1)).unwrap();
        set.queue.wait(1, Duration::from_secs(1)).unwrap();
        assert_eq!(set.count(SUBMIT), 3);
        // SAFETY: the submits were waited for.
        assert_eq!(unsafe { set.number.bytes() }.unwrap(), 303u32.to_ne_bytes());
        // A signal without lists covers the submits before it.
        set.submit(0, Some(0)).unwrap();
        assert!(set.queue.is_done(0));
        set.queue.wait(0, Duration::from_secs(1)).unwrap();
        assert_eq!(set.count(SUBMIT), 3);
    }

    #[test]
    fn signals_end_in_their_order() {
        let set = Set::new();
        set.node.kernel().holds = true;
        set.submit(1, Some(0)).unwrap();
        set.node.release();
        set.node.kernel().holds = true;
        set.submit(1, None).unwrap();
        set.submit(1, Some(1)).unwrap();
        assert_eq!((set.queue.is_done(0), set.queue.is_done(1)), (true, false));
        set.node.release();
        assert!(set.queue.is_done(1));
        set.make(1, false);
        set.queue.wait(1, Duration::from_secs(1)).unwrap();
        assert_eq!(set.count(WAIT), 0);
    }

    #[test]
    fn each_reset_is_told_apart() {
        let cases = [
            (FakeReset::Soft, "Kiln's own work hung the GPU: the kernel has ended its kernels"),
            (FakeReset::Own, "Kiln's own work hung the GPU: the kernel has reset it"),
            (FakeReset::Others, "the GPU was reset after another program's work had hung"),
            (FakeReset::VramLost, "the GPU was reset, and what lay in its memory is lost"),
        ];
        for (reset, cause) in cases {
            let set = Set::new();
            set.node.kernel().holds = true;
            set.submit(1, Some(0)).unwrap();
            set.node.reset(reset);
            set.make(0, true);
            let e = set.queue.wait(0, Duration::from_secs(1)).unwrap_err();
            assert!(e.to_string().starts_with(&format!("{cause}; ")), "{e}");
            assert_eq!(e.exit_code(), 4);
            let next = set.submit(1, Some(0));
            assert_eq!(next.is_err(), matches!(reset, FakeReset::Own | FakeReset::VramLost), "{reset:?}");
        }
        let set = Set::new();
        set.node.begin_reset();
        let e = set.submit(1, Some(0)).unwrap_err();
        assert!(e.to_string().starts_with("the GPU is being reset; "), "{e}");
    }

    /// The first of two submits was killed and the second has run. The end of both looks as ever.
    #[test]
    fn a_submit_that_was_killed_is_found_behind_one_that_was_not() {
        for is_late in [false, true] {
            let set = Set::new();
            set.node.kernel().holds = true;
            set.submit(1, None).unwrap();
            set.submit(1, Some(0)).unwrap();
            set.node.reset(FakeReset::Soft);
            set.make(0, is_late);
            assert!(set.queue.is_done(0));
            // Within the time that no reset takes, the memory is trusted.
            assert_eq!(set.queue.wait(0, Duration::from_secs(1)).is_err(), is_late);
        }
    }

    #[test]
    fn work_that_does_not_end_hangs_and_its_memory_is_kept() {
        let set = Set::new();
        set.node.kernel().holds = true;
        set.submit(1, Some(0)).unwrap();
        let e = set.queue.wait(0, Duration::from_secs(7)).unwrap_err();
        assert!(e.to_string().starts_with("the GPU hangs: it did not finish within 7 s; "), "{e}");
        assert!(set.submit(1, None).is_err() && set.queue.wait(0, Duration::ZERO).is_err());
        let Set { queue, number, _list, node, .. } = set;
        drop((queue, number, _list));
        let alive = node.alive();
        assert_eq!((alive.mappings, alive.objects), (2, 2), "the fence alone is closed");
    }
}
