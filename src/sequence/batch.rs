//! Sequences that run together. They join and leave between passes, each with its own chooser, stop tokens and limit.
//!
//! A pass holds either a chunk of one prompt, or the next row of every sequence that decodes. The two kinds take turns,
//! so that a long prompt holds up nobody by more than a chunk.

use crate::executor::{Executor, HeadRows, Row};
use crate::schedule::{Pass, Schedule};
use crate::sequence::chooser::Chooser;
use crate::sequence::counts;
use crate::sequence::generate::{Finish, Generation};
use crate::sequence::session::Session;
use crate::{Error, Result};
use std::ops::ControlFlow;
use std::time::Instant;

/// What a sequence is to do.
#[derive(Clone)]
pub struct Request {
    /// The prompt's tokens.
    pub prompt: Vec<u32>,
    /// Chooses the reply's tokens.
    pub chooser: Chooser,
    /// Tokens that end the reply and are not part of it.
    pub stops: Vec<u32>,
    /// Most tokens of the reply.
    pub limit: usize,
}

/// A sequence that has left.
pub struct Ended {
    /// Its slot, which [`Batch::join`] returned.
    pub slot: usize,
    /// The reply. Failed: its logits were not finite.
    pub reply: Result<Generation>,
    /// The request's chooser, for the next reply.
    pub chooser: Chooser,
}

/// Sees each token as it is chosen: its slot and the token. A break ends that sequence.
pub type OnToken<'a> = &'a mut dyn FnMut(usize, u32) -> ControlFlow<Finish>;

/// The sequences of an executor.
pub struct Batch {
    /// One for each KV slot. A slot that is free keeps its tokens, as a prefix for who comes next.
    sessions: Vec<Session>,
    members: Vec<Option<Member>>,
    /// The slot whose prompt comes first.
    prompt_turn: usize,
    /// The slot that comes first where not all that decode can have a row.
    decode_turn: usize,
    /// Whether the last pass was a prompt's chunk.
    after_chunk: bool,
    last: Option<Pass>,
    /// The last pass's rows, and the slots of those that have logits.
    rows: Vec<Row>,
    heads: Vec<usize>,
}

/// A sequence that runs.
struct Member {
    chooser: Chooser,
    stops: Vec<u32>,
    limit: usize,
    so_far: Generation,
    /// Since when it decodes. `None`: its prompt is not done.
    decoding: Option<Instant>,
    joined: Instant,
}

impl Batch {
    /// As many slots as the schedule has sequences, all of them free.
    pub fn new(schedule: &Schedule) -> Batch {
        let extent = &schedule.extent;
        Batch {
            sessions: (0..extent.sequences).map(|i| Session::new(i as u32, extent.context)).collect(),
            members: (0..extent.sequences).map(|_| None).collect(),
            prompt_turn: 0,
            decode_turn: 0,
            after_chunk: false,
            last: None,
            rows: Vec::with_capacity(extent.max_rows),
            heads: Vec::with_capacity(extent.sequences),
        }
    }

    /// Slots that are free.
    pub fn room(&self) -> usize {
        self.members.iter().filter(|member| member.is_none()).count()
    }

    /// What the last [`Batch::step`] ran; the depth of a decode pass is the mean of its rows'.
    pub fn last_pass(&self) -> Option<Pass> {
        self.last
    }

    /// Whether no sequence runs.
    pub fn is_empty(&self) -> bool {
        self.room() == self.members.len()
    }

    /// How many of a prompt's tokens a free slot holds already.
    pub fn shared(&self, schedule: &Schedule, prompt: &[u32]) -> usize {
        self.best_slot(schedule, prompt).map_or(0, |slot| self.sessions[slot].shared(schedule, prompt))
    }

    /// The free slot that holds the longest prefix of `prompt`. Among equals that with the fewest tokens: the others may
    /// yet be somebody's prefix.
    fn best_slot(&self, schedule: &Schedule, prompt: &[u32]) -> Option<usize> {
        let free = (0..self.members.len()).filter(|&slot| self.members[slot].is_none());
        free.min_by_key(|&slot| {
            let session = &self.sessions[slot];
            (std::cmp::Reverse(session.shared(schedule, prompt)), session.tokens().len())
        })
    }

    /// Takes in a sequence. Returns its slot. Nothing is run.
    ///
    /// # Errors
    /// Input: the prompt is empty, is longer than the context, or has a token outside of the vocabulary. Refused: no slot
    /// is free.
    pub fn join(&mut self, schedule: &Schedule, request: Request) -> Result<usize> {
        let Request { prompt, mut chooser, stops, limit } = request;
        let slot = self.best_slot(schedule, &prompt).ok_or_else(|| {
            Error::refused(format!("all {} sequences are in use", self.members.len()), "wait until one has ended")
        })?;
        let kept = self.sessions[slot].replace(schedule, &prompt)?;
        chooser.accept(&prompt[kept..]);
        let so_far = Generation::new(prompt.len(), kept);
        self.members[slot] = Some(Member { chooser, stops, limit, so_far, decoding: None, joined: Instant::now() });
        Ok(slot)
    }

    /// Ends a sequence before its time. `None`: the slot is free.
    pub fn leave(&mut self, schedule: &Schedule, slot: usize) -> Option<Ended> {
        self.members[slot].as_ref()?;
        self.end(schedule, slot, Ok(Finish::Interrupted))
    }

    /// Runs one pass and chooses a token for each of its head rows. Returns the sequences that have ended by it. Does
    /// nothing if the batch is empty.
    ///
    /// # Errors
    /// Device: the device failed; every sequence has left then. A pass that is cancelled is no error: it ends all sequences
    /// as [`Finish::Interrupted`], with the tokens so far.
    pub fn step(&mut self, executor: &mut dyn Executor, on_token: OnToken<'_>) -> Result<Vec<Ended>> {
        let run = match self.next_prompt() {
            Some(slot) => self.run_chunk(executor, slot),
            None => self.run_decode(executor),
        };
        match run {
            Ok(()) => self.choose(executor, on_token),
            Err(Error::Interrupted { .. }) => Ok(self.end_all(executor.schedule())),
            Err(e) => {
                self.end_all(executor.schedule());
                Err(e)
            }
        }
    }

    /// The slot whose prompt's chunk is the next pass. `None`: it is the decoding sequences' turn.
    fn next_prompt(&self) -> Option<usize> {
        let is_prompt = |slot: &usize| self.members[*slot].as_ref().is_some_and(|m| m.decoding.is_none());
        let decoding = self.members.iter().flatten().any(|m| m.decoding.is_some());
        let first = self.slots_from(self.prompt_turn).find(is_prompt);
        first.filter(|_| !decoding || !self.after_chunk)
    }

    /// All slots, from `first` on.
    fn slots_from(&self, first: usize) -> impl Iterator<Item = usize> + use<> {
        let count = self.members.len();
        (0..count).map(move |i| (first + i) % count)
    }

    fn run_chunk(&mut self, executor: &mut dyn Executor, slot: usize) -> Result<()> {
        self.rows.clear();
        self.heads.clear();
        self.after_chunk = true;
        let session = &mut self.sessions[slot];
        let count = session.propose(executor.prefill_rows(), false, &mut self.rows);
        let last = count == session.pending();
        executor.forward(&self.rows, last.then_some(HeadRows { first: count - 1, count: 1 }))?;
        counts::count_prefilled(count);
        self.last = Some(Pass::Prefill { rows: count, depth: session.tokens().len() });
        session.commit(count);
        if last {
            self.heads.push(slot);
            if let Some(member) = &mut self.members[slot] {
                member.begin_reply(session.tokens().len());
            }
        }
        self.prompt_turn = slot + 1;
        Ok(())
    }

    fn run_decode(&mut self, executor: &mut dyn Executor) -> Result<()> {
        self.rows.clear();
        self.heads.clear();
        self.after_chunk = false;
        let extent = &executor.schedule().extent;
        let most = extent.max_rows.min(extent.head_rows);
        let decoding = |slot: &usize| self.members[*slot].as_ref().is_some_and(|m| m.decoding.is_some());
        let slots = self.slots_from(self.decode_turn).filter(decoding).take(most);
        self.heads.extend(slots);
        let Some(&last) = self.heads.last() else { return Ok(()) };
        self.decode_turn = last + 1;
        // The rows stand in the order of their slots, so that the next pass has them in the same order.
        self.heads.sort_unstable();
        // Where each sequence takes its argmax and nobody comes or goes, the next pass starts before the host has it.
        let all = self.members.iter().flatten().count() == self.heads.len();
        let ahead = all && self.heads.iter().all(|&slot| self.members[slot].as_ref().is_some_and(Member::goes_on));
        for &slot in &self.heads {
            self.sessions[slot].propose(1, ahead, &mut self.rows);
        }
        let head = HeadRows { first: 0, count: self.rows.len() };
        match ahead {
            true => executor.forward_ahead(&self.rows, head)?,
            false => executor.forward(&self.rows, Some(head))?,
        }
        counts::count_decoded(self.rows.len());
        let depths: usize = self.rows.iter().map(|row| row.position as usize).sum();
        self.last = Some(Pass::Decode { sequences: self.rows.len(), depth: depths / self.rows.len() });
        for &slot in &self.heads {
            self.sessions[slot].commit(1);
            if let Some(member) = &mut self.members[slot] {
                member.so_far.passes += 1;
            }
        }
        Ok(())
    }

    /// Chooses a token for each head row of the last pass.
    fn choose(&mut self, executor: &mut dyn Executor, on_token: OnToken<'_>) -> Result<Vec<Ended>> {
        let mut ended = Vec::new();
        for row in 0..self.heads.len() {
            let slot = self.heads[row];
            let Some(member) = &mut self.members[slot] else { continue };
            let session = &mut self.sessions[slot];
            // The last token may be chosen when the context is full: it needs no position.
            let room = session.room(executor.schedule()) + 1;
            let end = match member.choose(executor, row, room, &mut |token| on_token(slot, token)) {
                Ok(ControlFlow::Continue(token)) => match session.push(executor.schedule(), token) {
                    Ok(()) => continue,
                    Err(e) => Err(e),
                },
                Ok(ControlFlow::Break(finish)) => Ok(finish),
                // The next pass finds the device failed again, and ends every sequence.
                Err(e) => Err(e),
            };
            ended.extend(self.end(executor.schedule(), slot, end));
        }
        Ok(ended)
    }

    fn end(&mut self, schedule: &Schedule, slot: usize, end: Result<Finish>) -> Option<Ended> {
        let member = self.members[slot].take()?;
        let session = &mut self.sessions[slot];
        let mut so_far = member.so_far;
        match member.decoding {
            Some(since) => so_far.decode = since.elapsed(),
            None => so_far.prefill = member.joined.elapsed(),
        }
        // A chunk without a head may have failed unnoticed, so nothing of a prompt that was not finished is trusted.
        let trusted = if member.decoding.is_some() { session.tokens().len() } else { so_far.kept };
        session.rewind(schedule, trusted);
        let reply = end.map(|finish| {
            so_far.finish = finish;
            so_far.full = finish == Finish::Length && session.room(schedule) == 0;
            so_far
        });
        Some(Ended { slot, reply, chooser: member.chooser })
    }

    fn end_all(&mut self, schedule: &Schedule) -> Vec<Ended> {
        (0..self.members.len()).filter_map(|slot| self.leave(schedule, slot)).collect()
    }
}

impl Member {
    /// The prompt is done: its last token's logits are there.
    fn begin_reply(&mut self, depth: usize) {
        self.so_far.prefill = self.joined.elapsed();
        self.so_far.depth = depth;
        self.decoding = Some(Instant::now());
    }

    /// Whether the token after the next is certain to be the argmax, and wanted.
    fn goes_on(&self) -> bool {
        matches!(self.chooser, Chooser::Greedy) && self.so_far.tokens.len() + 1 < self.limit
    }

    /// Chooses the next token from a head row. Breaks where the reply ends; `room` is how many tokens the context can
    /// still take.
    fn choose(
        &mut self,
        executor: &mut dyn Executor,
        row: usize,
        room: usize,
        on_token: &mut dyn FnMut(u32) -> ControlFlow<Finish>,
    ) -> Result<ControlFlow<Finish, u32>> {
        let chosen = &mut self.so_far.tokens;
        self.limit = self.limit.min(chosen.len() + room);
        if chosen.is_empty() {
            chosen.reserve(self.limit.min(1 << 20));
        }
        if chosen.len() >= self.limit {
            return Ok(ControlFlow::Break(Finish::Length));
        }
        let token = self.chooser.choose(executor, row)?;
        if self.stops.contains(&token) {
            return Ok(ControlFlow::Break(Finish::Stop));
        }
        chosen.push(token);
        if let ControlFlow::Break(finish) = on_token(token) {
            return Ok(ControlFlow::Break(finish));
        }
        Ok(match chosen.len() < self.limit {
            true => ControlFlow::Continue(token),
            false => ControlFlow::Break(Finish::Length),
        })
    }
}

#[cfg(test)]
#[path = "batch_tests.rs"]
mod tests;
