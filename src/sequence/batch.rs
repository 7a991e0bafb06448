//! Sequences that run together. They join and leave between passes, each with its own chooser, stop tokens and limit.
//!
//! A pass holds the next row of every sequence that decodes, and a chunk of one prompt if one waits. So the weights are read
//! once for both, and a long prompt holds up nobody by more than a chunk ([`Batch::set_chunk`]). Where so many decode that
//! they would leave a chunk less than half of a pass, the two take turns. Several short prompts run in one pass: alone each
//! would take nearly as long as all of them.
//!
//! A sequence that decodes may have drafted tokens in a pass behind its own ([`Batch::speculate`]).
//!
//! A slot that is free keeps what the cache holds of its last sequence, for the prompts that begin as that did.

mod prefixes;
mod verify;

use crate::executor::{Asks, Executor, HeadRows, Row};
use crate::schedule::choice::Ask;
use crate::schedule::kv::{PAGE, Pool};
use crate::schedule::{Extent, Pass, Schedule};
use crate::sequence::chooser::Chooser;
use crate::sequence::counts;
use crate::sequence::generate::{Finish, Generation};
use crate::sequence::likelihood::Likelihood;
use crate::sequence::prompt::Limits;
use crate::sequence::session::Session;
use crate::{Error, Result};
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::time::Instant;

pub use prefixes::{Prefix, ReadPage};
use verify::Speculating;

/// Pages for so many positions more are taken along with those for a decoding sequence's next row, where there are enough:
/// while all have the pages that they need, passes follow each other without a look at them.
const AHEAD: usize = PAGE;
/// Most rows of a prompt that runs in a pass with other prompts. Rows of several sequences attend one by one, where matrix
/// units would take the chunk of a long prompt.
const SHORT: usize = 64;
/// Stands for a slot where a row's sequence has left since the pass began, or goes on otherwise than the pass foresaw.
const NOBODY: usize = usize::MAX;

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
    /// Takes over what the cache holds of the prompt. Otherwise all of it is run.
    pub reuse: bool,
}

/// What comes of a head row.
enum Chosen {
    /// The reply goes on with this token.
    Token(u32),
    /// The reply ends.
    End(Finish),
    /// There is no telling.
    Failure(Box<Error>),
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
    /// One for each KV slot.
    slots: Vec<Slot>,
    /// Sequences that have ended and were not taken yet.
    ended: VecDeque<Ended>,
    /// The slot whose prompt comes first.
    prompt_turn: usize,
    /// The slot that comes first where not all that decode can have a row.
    decode_turn: usize,
    /// Most rows of prompts in a pass while other sequences decode.
    most_chunk: usize,
    /// The last pass's rows: `chunk` of prompts, then one of each sequence that decodes. And the slots of those that have
    /// logits, which are its last rows; [`NOBODY`] where nobody takes these. Of several prompts, which all end in the pass, the
    /// last rows stand behind all others.
    rows: Vec<Row>,
    chunk: usize,
    heads: Vec<usize>,
    /// The prompts of the chunk: slots, and rows of each.
    prompts: Vec<(usize, usize)>,
    /// Rows of the last pass whose results nobody took: while it ran ahead their sequences left, or took another token.
    idle: usize,
    /// Whether `rows` are those of the next pass by now: it has the same sequences, or runs ahead.
    is_next: bool,
    /// Whether every sequence decodes and has one of `rows`, which are then those of the next pass.
    steady: bool,
    /// Whether each of them takes its argmax next, and the one after it, unless it ends. Never where tokens may be drafted:
    /// that is looked at before each pass.
    all_greedy: bool,
    /// Drafts, where they are wanted.
    speculating: Option<Box<Speculating>>,
    /// How many sequences have ended.
    endings: usize,
    /// Most bytes of pages that free slots alone hold.
    most_kept: u64,
    /// What [`Batch::set_meanwhile`] gave.
    meanwhile: Box<dyn FnMut()>,
}

/// A KV slot.
struct Slot {
    /// What the cache holds. It stays when the slot is free, as a prefix for who comes next.
    session: Session,
    /// The sequence that runs in it. `None`: it is free.
    member: Option<Member>,
    /// How many sequences had ended when it became free.
    ended: usize,
    /// How many sequences have begun with what it holds.
    uses: usize,
}

/// A sequence that runs.
struct Member {
    chooser: Chooser,
    stops: Vec<u32>,
    limit: usize,
    so_far: Generation,
    /// How many sequences had ended when it was put off. Until one more has, it would only take the pages that it gave.
    put_off: Option<usize>,
    /// Since when it decodes. `None`: its prompt is not done.
    decoding: Option<Instant>,
    joined: Instant,
}

impl Batch {
    /// As many slots as the schedule has sequences, all of them free.
    pub fn new(schedule: &Schedule) -> Batch {
        let extent = &schedule.extent;
        Batch {
            slots: (0..extent.sequences)
                .map(|i| Slot { session: Session::new(i as u32, extent.context), member: None, ended: 0, uses: 0 })
                .collect(),
            ended: VecDeque::new(),
            prompt_turn: 0,
            decode_turn: 0,
            most_chunk: usize::MAX,
            chunk: 0,
            rows: Vec::with_capacity(extent.max_rows),
            heads: Vec::with_capacity(extent.sequences.max(extent.head_rows)),
            prompts: Vec::with_capacity(extent.sequences),
            idle: 0,
            is_next: false,
            steady: false,
            all_greedy: false,
            speculating: None,
            endings: 0,
            most_kept: u64::MAX,
            meanwhile: Box::new(|| {}),
        }
    }

    /// How many slots there are.
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Slots that are free.
    pub fn room(&self) -> usize {
        self.slots.iter().filter(|slot| slot.member.is_none()).count()
    }

    /// Bounds the rows of prompts in a pass to `rows`, at least 1, while other sequences decode: the time between two of
    /// their tokens grows with them. Without a bound there are as many as a pass takes.
    pub fn set_chunk(&mut self, rows: usize) {
        self.most_chunk = rows.max(1);
    }

    /// Calls `meanwhile` in each pass but those that greedy sequences alone run one behind the other: what else there is to do
    /// about the tokens of the pass before. Where the host chooses, it is called once the pass is under way.
    pub fn set_meanwhile(&mut self, meanwhile: impl FnMut() + 'static) {
        self.meanwhile = Box::new(meanwhile);
    }

    /// Whether every sequence that runs takes its argmax, always.
    pub fn is_greedy(&self) -> bool {
        self.members().all(Member::is_greedy)
    }

    /// What the last [`Batch::step`] ran; the depth of decoding rows is their mean. Several prompts count as one chunk.
    pub fn last_pass(&self) -> Option<Pass> {
        if let Some((pass, _)) = self.speculating.as_ref().and_then(|speculating| speculating.verified) {
            return Some(pass);
        }
        let depth = self.rows.first()?.position as usize;
        let (chunk, decoding) = (self.chunk, &self.rows[self.chunk..]);
        let sequences = decoding.len() - self.idle;
        let positions: usize = decoding.iter().map(|row| row.position as usize).sum();
        // The next pass's rows are a position further.
        let mean = || positions / decoding.len() - usize::from(self.is_next);
        Some(match (chunk, sequences) {
            (_, 0) => Pass::Prefill { rows: chunk, depth },
            (0, _) => Pass::Decode { sequences, depth: mean() },
            _ => Pass::Mixed { chunk, depth, ends: self.heads.len() > sequences, sequences, beside: mean() },
        })
    }

    /// Whether no sequence runs.
    pub fn is_empty(&self) -> bool {
        self.room() == self.slots.len()
    }

    /// How many of a prompt's tokens a free slot holds already.
    pub fn shared(&self, executor: &dyn Executor, prompt: &[u32]) -> usize {
        self.best_slot(executor, prompt).map_or(0, |slot| self.slots[slot].session.shared(executor, prompt))
    }

    /// The free slot that holds the longest prefix of `prompt`. Among equals that with the fewest tokens: the others may
    /// yet be somebody's prefix.
    fn best_slot(&self, executor: &dyn Executor, prompt: &[u32]) -> Option<usize> {
        let free = (0..self.slots.len()).filter(|&slot| self.slots[slot].member.is_none());
        free.min_by_key(|&slot| {
            let session = &self.slots[slot].session;
            (std::cmp::Reverse(session.shared(executor, prompt)), session.tokens().len())
        })
    }

    /// Makes a free slot begin as another one, if that holds a page more of `prompt` than this one. Returns which.
    fn take_prefix(&mut self, executor: &mut dyn Executor, slot: usize, prompt: &[u32]) -> Option<usize> {
        let own = self.slots[slot].session.shared(executor, prompt);
        let of = |other: usize| self.slots[other].session.shareable(executor, prompt);
        let others = (0..self.slots.len()).filter(|&other| other != slot).map(|other| (of(other), other));
        let (_, best) = others.max().filter(|(shared, _)| *shared > own)?;
        if let Ok([slot, other]) = self.slots.get_disjoint_mut([slot, best]) {
            slot.session.rewind(executor, 0);
            slot.session.begin_as(executor, &other.session, prompt);
        }
        Some(best)
    }

    /// Takes in a sequence. Returns its slot. Nothing is run.
    ///
    /// # Errors
    /// Input: the prompt is empty, is longer than the context, or has a token outside of the vocabulary. Refused: no slot
    /// is free.
    pub fn join(&mut self, executor: &mut dyn Executor, request: Request) -> Result<usize> {
        let Request { prompt, mut chooser, stops, limit, reuse } = request;
        let slot = self.best_slot(executor, if reuse { &prompt } else { &[] }).ok_or_else(|| {
            Error::refused(format!("all {} sequences are in use", self.slots.len()), "wait until one has ended")
        })?;
        Limits::of(executor.schedule()).check(0, &prompt)?;
        let other = match reuse {
            true => self.take_prefix(executor, slot, &prompt),
            false => {
                self.slots[slot].session.rewind(executor, 0);
                None
            }
        };
        let kept = self.slots[slot].session.replace(executor, &prompt)?;
        self.note_use(slot, other, kept);
        chooser.begin(&prompt);
        if let Some(speculating) = &mut self.speculating {
            speculating.begin(slot);
        }
        self.steady = false;
        let so_far = Generation::new(prompt.len(), kept);
        self.slots[slot].member =
            Some(Member { chooser, stops, limit, so_far, put_off: None, decoding: None, joined: Instant::now() });
        Ok(slot)
    }

    /// Ends a sequence before its time. `None`: the slot is free.
    pub fn leave(&mut self, executor: &mut dyn Executor, slot: usize) -> Option<Ended> {
        self.end(executor, slot, Ok(Finish::Interrupted))
    }

    /// As [`Chooser::take_likelihood`], of a sequence that runs.
    pub fn take_likelihood(&mut self, slot: usize) -> Option<Likelihood> {
        self.slots.get_mut(slot)?.member.as_mut()?.chooser.take_likelihood()
    }

    /// Runs one pass and chooses a token for each of its head rows. [`Batch::take_ended`] gives
    /// the sequences that have ended by it. Does nothing if the batch is empty.
    ///
    /// # Errors
    /// Device: the device failed; every sequence has left then. A pass that is cancelled is no error: it ends all sequences
    /// as [`Finish::Interrupted`], with the tokens so far.
    pub fn step(&mut self, executor: &mut dyn Executor, on_token: OnToken<'_>) -> Result<()> {
        self.run_pass(executor, on_token)
    }

    /// Runs passes until a sequence ends. Returns that one; `None`: none runs.
    ///
    /// # Errors
    /// As [`Batch::step`].
    pub fn run(&mut self, executor: &mut dyn Executor, on_token: OnToken<'_>) -> Result<Option<Ended>> {
        while self.ended.is_empty() && !self.is_empty() {
            self.run_pass(executor, on_token)?;
            // Asked for only when they may have changed.
            while self.steady {
                self.run_pass(executor, on_token)?;
            }
        }
        Ok(self.take_ended())
    }

    // Inlined with what it calls: the device waits for this path once a token.
    #[inline(always)]
    fn run_pass(&mut self, executor: &mut dyn Executor, on_token: OnToken<'_>) -> Result<()> {
        let run = match self.steady {
            true => self.run_steady(executor),
            false => self.run_next(executor),
        };
        if let Err(e) = run {
            return self.end_all(executor, e);
        }
        self.choose(executor, on_token);
        Ok(())
    }

    /// Ends every sequence after a pass that failed or was cancelled.
    #[cold]
    fn end_all(&mut self, executor: &mut dyn Executor, e: Error) -> Result<()> {
        (0..self.slots.len()).for_each(|slot| self.put_out(executor, slot, Ok(Finish::Interrupted)));
        if matches!(e, Error::Interrupted { .. }) {
            return Ok(());
        }
        self.ended.clear();
        Err(e)
    }

    /// Takes a sequence that has ended, the first one first.
    pub fn take_ended(&mut self) -> Option<Ended> {
        if self.ended.is_empty() { None } else { self.ended.pop_front() }
    }

    /// Chooses the rows of the next pass and runs it.
    fn run_next(&mut self, executor: &mut dyn Executor) -> Result<()> {
        if executor.is_ahead() && self.keep_ahead(executor) {
            self.break_off();
            return self.run_rows(executor);
        }
        loop {
            self.choose_rows(executor);
            if self.steady {
                return self.run_steady(executor);
            }
            if !self.rows.is_empty() {
                self.break_off();
                return self.run_rows(executor);
            }
            if self.is_empty() {
                return Ok(());
            }
            // Nobody has room for a row.
            self.make_way(executor);
        }
    }

    /// Whether somebody takes the results of the pass that runs ahead. Rows whose sequence has left or took another token
    /// become nobody's. All rows get the tokens that the pass runs with, so that the executor knows it again.
    fn keep_ahead(&mut self, executor: &dyn Executor) -> bool {
        if !self.is_next {
            return false;
        }
        for (row, (head, foreseen)) in self.heads.iter_mut().zip(&mut self.rows).enumerate() {
            let token = executor.next(row);
            if token != foreseen.token {
                *head = NOBODY;
            }
            foreseen.token = token;
        }
        self.idle = self.heads.iter().filter(|head| **head == NOBODY).count();
        self.idle < self.heads.len()
    }

    /// Takes pages for the next rows of a slot, `most` at most. Where there are none, free slots give back theirs, the one
    /// that ended first before the others. Returns whether there are enough.
    fn make_room(&mut self, executor: &mut dyn Executor, slot: usize, most: usize) -> bool {
        let positions = self.slots[slot].session.next_positions(most);
        loop {
            if executor.pages().has_room(slot, &positions) {
                return executor.pages_mut().extend(slot, positions).is_ok();
            }
            if !self.give_way(executor, slot) {
                return false;
            }
        }
    }

    /// Makes the sequence that joined last of those that have pages give them back; it runs again from its first token when
    /// there is room. If no other has pages, it ends: there is no room for it at all.
    fn make_way(&mut self, executor: &mut dyn Executor) {
        let joined = |slot: &usize| self.slots[*slot].member.as_ref().map(|member| member.joined);
        let running = || (0..self.slots.len()).filter(|slot| joined(slot).is_some());
        let with_pages = || running().filter(|&slot| !self.slots[slot].session.tokens().is_empty());
        let Some(last) = with_pages().max_by_key(joined).or_else(|| running().next()) else { return };
        if with_pages().count() < 2 {
            let error = no_room(executor);
            return self.put_out(executor, last, Err(error));
        }
        self.slots[last].session.put_off(executor);
        self.trim(executor);
        if let Some(member) = &mut self.slots[last].member {
            member.put_off = Some(self.endings);
        }
    }

    /// The slots whose prompts come next.
    fn next_prompts(&self) -> impl Iterator<Item = usize> {
        let alone = self.room() + 1 == self.slots.len();
        let waits = move |member: &Member| !alone && member.put_off == Some(self.endings);
        let is_prompt = move |slot: &Slot| slot.member.as_ref().is_some_and(|m| !waits(m)) && !slot.decodes();
        self.slots_from(self.prompt_turn).filter(move |&slot| is_prompt(&self.slots[slot]))
    }

    /// All slots, from `first` on.
    fn slots_from(&self, first: usize) -> impl Iterator<Item = usize> + use<> {
        let count = self.slots.len();
        (0..count).map(move |i| (first + i) % count)
    }

    fn members(&self) -> impl Iterator<Item = &Member> {
        self.slots.iter().filter_map(|slot| slot.member.as_ref())
    }

    /// Runs a pass of the sequences of the one before. Where each takes its argmax and none ends, the next pass starts before
    /// the host has it.
    #[inline(always)]
    fn run_steady(&mut self, executor: &mut dyn Executor) -> Result<()> {
        if !self.all_greedy {
            return match self.speculating {
                None => self.run_rows(executor),
                Some(_) => self.run_speculating(executor),
            };
        }
        self.run_ahead(executor)
    }

    /// Runs a pass whose rows each take their argmax next, and may start the one behind it.
    #[inline(always)]
    fn run_ahead(&mut self, executor: &mut dyn Executor) -> Result<()> {
        let head = HeadRows { first: 0, count: self.rows.len() };
        executor.forward_ahead(&self.rows, head)?;
        counts::count_decoded(head.count);
        Ok(())
    }

    /// Gives the rows that are chosen to the executor. Where several are of one sequence, the others are its draft.
    fn forward_rows(&mut self, executor: &mut dyn Executor) -> Result<()> {
        let Batch { slots, heads, rows, speculating, meanwhile, .. } = self;
        let count = heads.len();
        let head = HeadRows { first: rows.len() - count, count };
        let members = || heads.iter().filter_map(|&slot| slots.get(slot)?.member.as_ref());
        if members().all(Member::is_greedy) {
            meanwhile();
            return executor.forward(rows, Some(head).filter(|head| head.count > 0));
        }
        let is_slow = members().any(Member::is_guided);
        let goes_on = self.steady && speculating.is_none() && members().all(Member::goes_on);
        let fill = &mut |row: usize, ask: &mut Ask<'_>| {
            let slot = heads[row];
            if slot == NOBODY {
                return;
            }
            let draft = speculating.as_ref().map_or(&[][..], |speculating| speculating.draft(slot));
            // Rows of one sequence stand together.
            let behind = heads[..row].iter().rev().take_while(|other| **other == slot).count();
            if let Some(member) = &mut slots[slot].member {
                member.chooser.ask_behind(&draft[..behind.min(draft.len())], ask);
            }
        };
        executor.forward_choosing(rows, head, Asks { fill, is_slow, goes_on, meanwhile })
    }

    /// Runs a pass of the rows that are chosen.
    fn run_rows(&mut self, executor: &mut dyn Executor) -> Result<()> {
        self.forward_rows(executor)?;
        if self.chunk > 0 {
            self.commit_chunk(executor);
        }
        if self.rows.len() > self.chunk {
            counts::count_decoded(self.rows.len() - self.chunk - self.idle);
        }
        Ok(())
    }

    /// The chunk of the last pass is in the cache. Where it was a prompt's last one, the reply begins.
    fn commit_chunk(&mut self, executor: &dyn Executor) {
        counts::count_prefilled(self.chunk);
        for &(slot, rows) in &self.prompts {
            let Slot { session, member, .. } = &mut self.slots[slot];
            session.commit(rows);
            if let Some(member) = member.as_mut().filter(|_| session.pending() == 0) {
                member.begin_reply(session.tokens().len(), session.room(executor.schedule()));
            }
            self.prompt_turn = slot + 1;
        }
    }

    /// Chooses the rows of the next pass: several short prompts or a chunk of the prompt that comes next, and a row of each
    /// sequence that decodes, as far as there are pages for them.
    fn choose_rows(&mut self, executor: &mut dyn Executor) {
        let prompt = self.next_prompts().next();
        let decoding = self.slots.iter().filter(|slot| slot.decodes()).count();
        // A prompt's last row has logits too.
        let together = 2 * decoding <= executor.prefill_rows() && decoding < executor.schedule().extent.head_rows;
        // Those that decode take pages first: they are nearer to giving theirs back.
        let decoding_first = together || self.chunk > 0;
        self.rows.clear();
        self.heads.clear();
        self.prompts.clear();
        (self.chunk, self.idle, self.is_next) = (0, 0, false);
        if decoding_first {
            self.choose_decoding(executor);
        }
        if let Some(slot) = prompt.filter(|_| together || self.heads.is_empty()) {
            let most = if decoding > 0 { self.most_chunk } else { usize::MAX };
            self.choose_prompts(executor, most);
            if self.prompts.is_empty() {
                self.choose_chunk(executor, slot, most);
            }
        }
        if !decoding_first && self.chunk == 0 {
            self.choose_decoding(executor);
        }
        for &slot in &self.heads {
            self.slots[slot].session.propose(1, &mut self.rows);
        }
        if self.chunk == 0 {
            self.take_ahead(executor);
        }
        self.steady = self.chunk == 0 && !self.heads.is_empty() && self.members().count() == self.heads.len();
        self.all_greedy = self.speculating.is_none() && self.members().all(Member::goes_on_greedily);
        let ends = |&&(slot, rows): &&(usize, usize)| self.slots[slot].session.pending() == rows;
        self.heads.splice(..0, self.prompts.iter().filter(ends).map(|prompt| prompt.0));
    }

    /// Chooses short prompts that run together, `most` rows at most: as many as make the pass that runs the most rows a
    /// second, if these are several and there are pages for them. The rows beside them are chosen.
    fn choose_prompts(&mut self, executor: &mut dyn Executor, most: usize) {
        let beside = self.heads.len();
        let most = most.min(executor.prefill_rows() - beside);
        let room = executor.schedule().extent.head_rows - beside;
        let mut prompts = std::mem::take(&mut self.prompts);
        let pending = |slot: usize| self.slots[slot].session.pending();
        let mut rows = 0;
        for slot in self.next_prompts().filter(|&slot| pending(slot) <= SHORT).take(room) {
            if rows + pending(slot) > most {
                break;
            }
            rows += pending(slot);
            prompts.push((slot, pending(slot)));
        }
        let wanted = executor.chunk_rows(rows, beside);
        while rows > wanted && prompts.len() > 1 {
            rows -= prompts.pop().map_or(0, |(_, rows)| rows);
        }
        // The first of all comes first.
        if prompts.len() < 2 || self.next_prompts().next() != Some(prompts[0].0) {
            prompts.clear();
        }
        let has_pages = |&(slot, rows): &(usize, usize)| self.make_room(executor, slot, rows);
        let with_pages = prompts.iter().copied().take_while(has_pages).count();
        prompts.truncate(if with_pages < 2 { 0 } else { with_pages });
        let mut last = Vec::with_capacity(prompts.len());
        for &(slot, rows) in &prompts {
            self.chunk += self.slots[slot].session.propose(rows, &mut self.rows);
            last.extend(self.rows.pop());
        }
        self.rows.append(&mut last);
        self.prompts = prompts;
    }

    /// Chooses a prompt's chunk of `most` rows at most, if there are pages for it. The rows beside it are chosen.
    fn choose_chunk(&mut self, executor: &mut dyn Executor, slot: usize, most: usize) {
        let beside = self.heads.len();
        let most = self.slots[slot].session.pending().min(executor.prefill_rows() - beside).min(most);
        let most = if beside > 0 { executor.chunk_rows(most, beside) } else { most };
        if self.make_room(executor, slot, most) {
            self.chunk = self.slots[slot].session.propose(most, &mut self.rows);
            self.prompts.push((slot, self.chunk));
        }
    }

    /// Chooses the sequences that decode in a pass: those for which there are pages.
    fn choose_decoding(&mut self, executor: &mut dyn Executor) {
        let Extent { max_rows, head_rows, .. } = executor.schedule().extent;
        let most = max_rows.min(head_rows);
        for slot in self.slots_from(self.decode_turn) {
            if self.heads.len() < most && self.slots[slot].decodes() && self.make_room(executor, slot, 1) {
                self.heads.push(slot);
            }
        }
        self.decode_turn = self.heads.last().map_or(0, |last| last + 1);
        // The rows stand in the order of their slots, so that the next pass has them in the same order.
        self.heads.sort_unstable();
    }

    /// Takes pages ahead for the sequences of a decode pass.
    fn take_ahead(&mut self, executor: &mut dyn Executor) {
        let Extent { max_rows, context, .. } = executor.schedule().extent;
        for &slot in &self.heads {
            let next = self.slots[slot].session.next_positions(1).start;
            let ahead = next..(next + 1 + AHEAD.min(max_rows - 1)).min(context);
            if executor.pages().has_room(slot, &ahead) {
                // What it finds no page for now, it finds one for when it comes there, or waits.
                let _ = executor.pages_mut().extend(slot, ahead);
            }
        }
    }

    /// Chooses a token for each head row of the last pass. Where the next pass has the same sequences, its rows are made.
    #[inline(always)]
    fn choose(&mut self, executor: &mut dyn Executor, on_token: OnToken<'_>) {
        if self.idle > 0 {
            return self.choose_of_some(executor, on_token);
        }
        let (mut steady, mut all_greedy) = (self.steady, self.speculating.is_none());
        let mut head = 0;
        while let Some(&slot) = self.heads.get(head) {
            all_greedy &= self.choose_head(executor, head, slot, &mut steady, on_token);
            head += 1;
        }
        (self.steady, self.all_greedy) = (steady, all_greedy);
        self.is_next = steady || executor.is_ahead();
        if head == 0 {
            self.choose_drafted(executor, on_token);
        }
    }

    /// As [`Batch::choose`], of a pass that ran ahead and some of whose rows are nobody's.
    #[cold]
    fn choose_of_some(&mut self, executor: &mut dyn Executor, on_token: OnToken<'_>) {
        for head in 0..self.heads.len() {
            let slot = self.heads[head];
            if slot != NOBODY {
                self.choose_head(executor, head, slot, &mut false, on_token);
            }
        }
        self.is_next = false;
    }

    /// Chooses a token for head row `head`, of the sequence in `slot`. Clears `steady` if the next pass has other sequences.
    /// Returns whether this one goes on greedily.
    #[inline(always)]
    fn choose_head(
        &mut self,
        executor: &mut dyn Executor,
        head: usize,
        slot: usize,
        steady: &mut bool,
        on_token: OnToken<'_>,
    ) -> bool {
        let Slot { session, member: Some(member), .. } = &mut self.slots[slot] else { return false };
        if session.pending() > 0 {
            session.commit(1);
            member.so_far.passes += 1;
        }
        let end = match member.choose(executor, head, slot, on_token) {
            Chosen::Token(token) => {
                let goes_on = member.goes_on_greedily();
                if !goes_on {
                    *steady &= !stands_on_another(executor, head, token);
                }
                let row = session.push_chosen(token);
                let position = row.position as usize;
                // Pages are taken where the rows are chosen anew.
                if position.is_multiple_of(PAGE) {
                    *steady &= executor.pages().is_ready(slot, position);
                }
                if *steady || executor.is_ahead() {
                    self.rows[head] = row;
                }
                return goes_on;
            }
            Chosen::End(finish) => Ok(finish),
            // If the device failed, the next pass finds it failed again, and ends every sequence.
            Chosen::Failure(e) => Err(*e),
        };
        *steady = false;
        self.put_out_chosen(executor, head, slot, end);
        false
    }

    /// Puts out a sequence by what was chosen from head row `head`. A pass that runs ahead has its row still.
    #[cold]
    fn put_out_chosen(&mut self, executor: &mut dyn Executor, head: usize, slot: usize, end: Result<Finish>) {
        if executor.is_ahead() {
            self.rows[head].position += 1;
        }
        self.put_out(executor, slot, end);
    }

    #[cold]
    fn put_out(&mut self, executor: &mut dyn Executor, slot: usize, end: Result<Finish>) {
        let ended = self.end(executor, slot, end);
        self.ended.extend(ended);
    }

    fn end(&mut self, executor: &mut dyn Executor, slot: usize, end: Result<Finish>) -> Option<Ended> {
        self.steady = false;
        self.endings += 1;
        self.heads.iter_mut().filter(|head| **head == slot).for_each(|head| *head = NOBODY);
        self.slots[slot].ended = self.endings;
        let ended = self.slots[slot].end(executor, slot, end);
        self.trim(executor);
        ended
    }
}

impl Slot {
    /// Whether its sequence goes on by one row at a time. One that was put off has more to run.
    fn decodes(&self) -> bool {
        self.member.as_ref().is_some_and(|m| m.decoding.is_some()) && self.session.pending() == 1
    }

    /// Ends the sequence that runs. `None`: none does.
    fn end(&mut self, executor: &mut dyn Executor, slot: usize, end: Result<Finish>) -> Option<Ended> {
        let Member { decoding, joined, mut so_far, chooser, .. } = self.member.take()?;
        match decoding {
            Some(since) => so_far.decode = since.elapsed(),
            None => so_far.prefill = joined.elapsed(),
        }
        // A chunk without a head may have failed unnoticed, so nothing of a prompt that was not finished is trusted.
        let trusted = if decoding.is_some() { self.session.tokens().len() } else { so_far.kept };
        self.session.rewind(executor, trusted);
        let reply = end.map(|finish| {
            so_far.finish = finish;
            so_far.full = finish == Finish::Length && self.session.room(executor.schedule()) == 0;
            so_far
        });
        Some(Ended { slot, reply, chooser })
    }
}

/// Whether the next pass runs already, and with another token than this one behind head row `head`: a guide has put this one
/// in its place. The others take what that pass has for them.
fn stands_on_another(executor: &dyn Executor, head: usize, token: u32) -> bool {
    executor.is_ahead() && executor.next(head) != token
}

/// The error of a sequence that is alone and finds no page.
fn no_room(executor: &dyn Executor) -> Error {
    let tokens = executor.schedule().kv.pool(Pool::Global).pages * PAGE;
    Error::refused(
        format!("the KV cache holds {tokens} tokens, and the sequence needs more"),
        "use a shorter prompt, or a device with more memory",
    )
}

impl Member {
    /// The prompt is done: its last token's logits are there. The context has room for `room` tokens more.
    fn begin_reply(&mut self, depth: usize, room: usize) {
        if self.decoding.is_some() {
            // It was put off, and goes on.
            return;
        }
        self.so_far.prefill = self.joined.elapsed();
        self.so_far.depth = depth;
        self.decoding = Some(Instant::now());
        // The last token may be chosen when the context is full: it needs no position.
        self.limit = self.limit.min(room + 1);
        self.so_far.tokens.reserve(self.limit.min(1 << 20));
    }

    /// Whether each token is the argmax.
    fn is_greedy(&self) -> bool {
        matches!(self.chooser, Chooser::Greedy)
    }

    /// Whether a guide says which tokens may come, which it may not have done yet.
    fn is_guided(&self) -> bool {
        matches!(self.chooser, Chooser::Guide(_))
    }

    /// Whether the next token needs no more than what the pass gives as its next, and the one after it is wanted.
    fn goes_on(&self) -> bool {
        self.chooser.takes_likeliest() && self.wants_two()
    }

    /// As [`Member::goes_on`], with the argmax of all tokens.
    fn goes_on_greedily(&self) -> bool {
        self.is_greedy() && self.wants_two()
    }

    /// Whether the limit leaves room for two more tokens.
    fn wants_two(&self) -> bool {
        self.so_far.tokens.len() + 1 < self.limit
    }

    /// Chooses the next token from head row `head`.
    #[inline(always)]
    fn choose(&mut self, executor: &mut dyn Executor, head: usize, slot: usize, on_token: OnToken<'_>) -> Chosen {
        if self.limit == 0 {
            return Chosen::End(Finish::Length);
        }
        let token = match self.chooser.choose(executor, head) {
            Ok(token) => token,
            Err(e) => return Chosen::Failure(Box::new(e)),
        };
        if self.stops.contains(&token) {
            return Chosen::End(Finish::Stop);
        }
        self.so_far.tokens.push(token);
        match on_token(slot, token) {
            ControlFlow::Break(finish) => Chosen::End(finish),
            ControlFlow::Continue(()) if self.so_far.tokens.len() >= self.limit => Chosen::End(Finish::Length),
            ControlFlow::Continue(()) => Chosen::Token(token),
        }
    }
}

#[cfg(test)]
#[path = "batch_tests.rs"]
mod tests;
