//! Read rates of devices that read at the same time. Each is kept busy, and only reads that end while all of them read
//! count.

use crate::executor::measure::MemoryReader;
use crate::{Error, Result};

/// The duration of a measurement, in seconds of the clock.
#[derive(Debug, Clone, Copy)]
pub(super) struct SteadyWindow {
    /// The time before reads count, in which devices raise their clocks.
    pub(super) warm_up: f64,
    /// The least number of reads of each device that count.
    pub(super) reads: usize,
    /// The longest time without the end of a read.
    pub(super) deadline: f64,
}

/// Bytes per second of each reader while all of them read, by the clock `now`.
///
/// # Errors
/// Device: a reader fails, or ends no read within the deadline. Then all reads have ended except those that hang.
pub(super) fn rates<const N: usize>(
    readers: [&mut dyn MemoryReader; N],
    watch: SteadyWindow,
    now: &dyn Fn() -> f64,
) -> Result<[f64; N]> {
    let mut readers = readers;
    let ends = match follow(&mut readers, watch, now) {
        Ok(ends) => ends,
        Err((failed, e)) => {
            // Reports the first failure, since others may follow from it.
            let others = readers.iter_mut().enumerate().filter(|(index, _)| *index != failed);
            others.for_each(|(_, reader)| drop(reader.stop()));
            return Err(e);
        }
    };
    readers.iter_mut().try_for_each(|reader| reader.stop())?;
    let mut rates = [0.0; N];
    for ((rate, reader), ends) in rates.iter_mut().zip(&readers).zip(ends) {
        let (count, seconds) =
            (ends.len().saturating_sub(1), ends.last().unwrap_or(&0.0) - ends.first().unwrap_or(&0.0));
        *rate = reader.bytes() as f64 * count as f64 / seconds;
    }
    Ok(rates)
}

/// The end times of each reader's reads, after the warm-up and after every reader has ended one. An error comes with
/// the index of the reader that failed.
fn follow<const N: usize>(
    readers: &mut [&mut dyn MemoryReader; N],
    watch: SteadyWindow,
    now: &dyn Fn() -> f64,
) -> std::result::Result<[Vec<f64>; N], (usize, Error)> {
    let begin = now();
    for (index, reader) in readers.iter_mut().enumerate() {
        reader.start().map_err(|e| (index, e))?;
    }
    let mut ends = [const { Vec::new() }; N];
    let mut last = [begin; N];
    let mut counts = false;
    loop {
        for (index, reader) in readers.iter_mut().enumerate() {
            if reader.poll().map_err(|e| (index, e))? {
                last[index] = now();
                ends[index].push(last[index]);
            } else if now() - last[index] > watch.deadline {
                // The reader's own error on a hanging read is better, if it has one.
                reader.stop().map_err(|e| (index, e))?;
                let cause = format!("{} ended no read within {:.1} s", reader.name(), watch.deadline);
                return Err((index, Error::device(cause, "end what else uses it, and see `dmesg`")));
            }
        }
        let all_have = |count: usize| ends.iter().all(|ends| ends.len() >= count);
        if !counts && all_have(1) && now() - begin >= watch.warm_up {
            counts = true;
            ends.iter_mut().for_each(Vec::clear);
        } else if counts && all_have(watch.reads + 1) {
            return Ok(ends);
        }
    }
}
