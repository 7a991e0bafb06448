//! Who has the batch's places: the clients in turns, by how many replies of each are under way.
//!
//! A free place goes to the client with the fewest replies. Where none is free, a client that has more than one above another
//! that waits leaves one of its places to it, soon; and whoever has one leaves it to a client that has none, after a while. So
//! nobody waits for the whole of another's reply. A reply that has lost its place goes on later: what the cache has lost of it
//! by then is run again, and its text is the same.

use super::http::Client;
use super::job::Event;
use super::worker::{RunningJob, Worker};
use crate::sequence::batch;
use std::time::{Duration, Instant};

/// How long a reply has a place at least, of a client that has more of them than its share.
const TURN: Duration = Duration::from_secs(1);
/// How long it has one at least where its client has no other.
const LONG_TURN: Duration = Duration::from_secs(10);

/// A job whose place others have for a while.
pub(super) struct ParkedJob {
    pub running: RunningJob,
    sequence: batch::ParkedSequence,
    since: Instant,
}

/// Whether a reply leaves its place after `time`, where its client has `places` and one that waits has `fewest`.
fn is_over(places: usize, fewest: usize, time: Duration) -> bool {
    match places {
        places if places > fewest + 1 => time >= TURN,
        places => places > fewest && fewest == 0 && time >= LONG_TURN,
    }
}

/// Who comes next, by how many replies its client has and since when it waits.
type Precedence = (usize, Instant);

impl Worker<'_> {
    /// Takes jobs into free places, and makes room for clients that have too few.
    pub(super) fn admit(&mut self) {
        self.make_room();
        while self.batch.room() > 0 {
            let (parked, waiting) = (self.next_parked(), self.next_waiting());
            match (parked, waiting) {
                (None, None) => break,
                (Some((at, parked)), waiting) if waiting.is_none_or(|waiting| parked <= waiting) => self.go_on(at),
                _ => {
                    let taken = self.service.queue.take(self.model.id, |client| self.replies(client));
                    match taken {
                        None => break,
                        Some(job) if job.recipient.is_abandoned() => {
                            self.service.metrics.cancelled.inc();
                        }
                        Some(job) => self.begin(job),
                    }
                }
            }
        }
        self.service.queue.set_places(self.model.id, self.batch.room());
        self.service.metrics.waiting.set((self.service.queue.len() + self.parked.len()) as i64);
    }

    /// Replies of a client that have begun.
    fn replies(&self, client: Client) -> usize {
        let running = self.running.iter().flatten().chain(self.parked.iter().map(|parked| &parked.running));
        running.filter(|running| running.recipient.client == client).count()
    }

    fn next_waiting(&self) -> Option<Precedence> {
        self.service.queue.next(self.model.id, |client| self.replies(client))
    }

    /// The parked job that comes next, and where it is.
    fn next_parked(&self) -> Option<(usize, Precedence)> {
        let of =
            |(at, parked): (usize, &ParkedJob)| (at, (self.replies(parked.running.recipient.client) - 1, parked.since));
        self.parked.iter().enumerate().map(of).min_by_key(|(_, next)| *next)
    }

    /// Takes a place from the client with the most, for one that waits and has too few.
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

    /// Gives a parked job a place again.
    fn go_on(&mut self, at: usize) {
        let ParkedJob { running, sequence, .. } = self.parked.remove(at);
        match self.batch.unpark(self.executor.as_mut(), sequence) {
            Ok(slot) => self.running[slot] = Some(RunningJob { turn: None, ..running }),
            Err(e) => running.recipient.tell(Event::Failed((&e).into())),
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
