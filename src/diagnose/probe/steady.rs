//! Read rates of devices that read at the same time. Each is kept busy all the while, and what counts is what it ends
//! while all of them read.

use crate::executor::measure::MemoryReader;
use crate::{Error, Result};

/// How long devices are watched, in seconds of the clock.
#[derive(Debug, Clone, Copy)]
pub(super) struct SteadyWindow {
    /// What passes before anything counts: devices raise their clocks.
    pub(super) warm_up: f64,
    /// Reads of each device that count, at least.
    pub(super) reads: usize,
    /// The longest time in which a device ends none.
    pub(super) deadline: f64,
}

/// Bytes per second of each of the readers while all of them read, by the seconds of `now`.
///
/// # Errors
/// Device: a reader fails, or ends no read within the deadline. Nothing is under way then but what does not end.
pub(super) fn rates<const N: usize>(
    readers: [&mut dyn MemoryReader; N],
    watch: SteadyWindow,
    now: &dyn Fn() -> f64,
) -> Result<[f64; N]> {
    let mut readers = readers;
    let ends = match follow(&mut readers, watch, now) {
        Ok(ends) => ends,
        Err((failed, e)) => {
            // The first failure is what is told: others may follow from it.
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

/// When each reader's reads ended, from the moment on at which all had ended one and were warm. The error has the reader that
/// failed.
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
                // What its own way says of a read that does not end is the better answer.
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
