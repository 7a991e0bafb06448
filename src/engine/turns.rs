//! Fair use of the batch's slots: clients take turns, by the number of their replies in progress.
//!
//! A free slot goes to the client with the fewest replies. If no slot is free, a client with at least two more than a
//! waiting one soon gives up one of its slots, and a client with a single slot gives it up after a while to one that
//! has none. So no client has to wait for the whole reply of another. A parked reply continues later with the same
//! text; tokens that are no longer cached run again.

use super::core::{Core, Figure, RunningJob};
use super::request::{Client, EngineError, Event};
use crate::sequence::batch;
use std::time::{Duration, Instant};

/// The shortest turn of a reply whose client has more than its share.
const TURN: Duration = Duration::from_secs(1);
/// The shortest turn of a reply that is its client's only one.
const LONG_TURN: Duration = Duration::from_secs(10);

/// A job that has temporarily given up its slot.
pub(super) struct ParkedJob {
    pub running: RunningJob,
    sequence: batch::ParkedSequence,
    since: Instant,
}

/// Whether a reply gives up its slot after `time`, if its client has `places` slots and a waiting client has `fewest`.
fn is_over(places: usize, fewest: usize, time: Duration) -> bool {
    match places {
        places if places > fewest + 1 => time >= TURN,
        places => places > fewest && fewest == 0 && time >= LONG_TURN,
    }
}

/// The precedence of a waiting job: the number of its client's replies, and the time since when it waits.
type Precedence = (usize, Instant);

impl Core<'_> {
    /// Takes jobs into free slots, and makes room for clients with too few.
    pub(crate) fn admit(&mut self) {
        self.make_room();
        while self.batch.room() > 0 {
            let (parked, waiting) = (self.next_parked(), self.next_waiting());
            match (parked, waiting) {
                (None, None) => break,
                (Some((at, parked)), waiting) if waiting.is_none_or(|waiting| parked <= waiting) => self.go_on(at),
                _ => {
                    let taken = self.engine.take(self.model, |client| self.replies(client));
                    match taken {
                        None => break,
                        Some(job) if job.recipient.is_abandoned() => {
                            self.monitor.note(Figure::Cancelled(1));
                        }
                        Some(job) => self.begin(job),
                    }
                }
            }
        }
        self.engine.set_free_slots(self.model, self.batch.room());
        self.monitor.note(Figure::Waiting(self.engine.len() + self.parked.len()));
    }

    /// The number of the client's replies that run or are parked.
    fn replies(&self, client: Client) -> usize {
        let running = self.running.iter().flatten().chain(self.parked.iter().map(|parked| &parked.running));
        running.filter(|running| running.recipient.client == client).count()
    }

    fn next_waiting(&self) -> Option<Precedence> {
        self.engine.next(self.model, |client| self.replies(client))
    }

    /// The next parked job: its index and precedence.
    fn next_parked(&self) -> Option<(usize, Precedence)> {
        let of =
            |(at, parked): (usize, &ParkedJob)| (at, (self.replies(parked.running.recipient.client) - 1, parked.since));
        self.parked.iter().enumerate().map(of).min_by_key(|(_, next)| *next)
    }

    /// Parks a reply of the client with the most slots, if a waiting client has too few.
    fn make_room(&mut self) {
        if self.batch.room() > 0 {
            return;
        }
        let parked = self.next_parked().map(|(_, next)| next);
        let Some((fewest, _)) = parked.into_iter().chain(self.next_waiting()).min() else { return };
        let now = Instant::now();
        let running = self.running.iter().enumerate().filter_map(|(slot, running)| Some((slot, running.as_ref()?)));
        let places =
            |of: Client| self.running.iter().flatten().filter(|running| running.recipient.client == of).count();
        let had = running.filter_map(|(slot, running)| {
            let (places, time) = (places(running.recipient.client), now - running.turn?);
            is_over(places, fewest, time).then_some((places, time, slot))
        });
        let Some((_, _, slot)) = had.max() else { return };
        if let Some(sequence) = self.batch.park(self.executor.as_mut(), slot)
            && let Some(running) = self.running[slot].take()
        {
            self.parked.push(ParkedJob { running, sequence, since: now });
        }
    }

    /// Continues the parked job with index `at` in a free slot.
    fn go_on(&mut self, at: usize) {
        let ParkedJob { running, sequence, .. } = self.parked.remove(at);
        match self.batch.unpark(self.executor.as_mut(), sequence) {
            Ok(slot) => self.running[slot] = Some(RunningJob { turn: None, ..running }),
            Err(e) => running.recipient.send(Event::Failed(EngineError::Reply(e))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_short_where_a_client_has_more_than_its_share_and_ends_where_another_has_none() {
        let turn = |places, fewest| {
            let ends = [TURN, LONG_TURN].into_iter().find(|time| is_over(places, fewest, *time));
            assert!(ends.is_none_or(|time| !is_over(places, fewest, time - Duration::from_millis(1))));
            ends
        };
        let turns =
            [(2, 0), (9, 7), (1, 0), (2, 1), (1, 1), (3, 5), (0, 0)].map(|(places, fewest)| turn(places, fewest));
        assert_eq!(turns, [Some(TURN), Some(TURN), Some(LONG_TURN), None, None, None, None]);
    }
}
