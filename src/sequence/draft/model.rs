//! Drafts by a smaller model with the same vocabulary, on the same device: its likeliest tokens, one after the other.
//!
//! Drafts are greedy, regardless of the reply's sampler. A drafted token is accepted if the larger model chooses the
//! same token, so the reply follows the larger model's distribution, with the random numbers of plain decoding.
//!
//! Its cache has places for a few sequences, those it drafted for last. Their drafts grow together, by one token each
//! per pass. For a sequence that has grown it runs only the new tokens; for another sequence, those after the common
//! beginning. All drafted tokens but the last have run: accepted ones are in the cache already, and the others are
//! dropped with the next draft.

use super::{DraftRequest, Effort, MOST_DRAFTED, Proposer};
use crate::error::{Setting, text};
use crate::executor::{Executor, ExecutorExt, HeadRows, Measure, Row};
use crate::schedule::PassShape;
use crate::sequence::session::Session;
use crate::text::Tokenizer;
use crate::{Error, Result, display};

/// Rows to run for a sequence after its draft was accepted: the last drafted token, and the token chosen after it.
pub const GROWN: usize = 2;

/// A draft model, which drafts for the sequences of a batch.
pub struct DraftModel {
    executor: Box<dyn Measure>,
    /// The state of each of the draft model's sequences.
    places: Vec<DraftSlot>,
    /// The number of requests so far, by which the oldest one is found.
    asked: u64,
    /// The rows of the draft model's next pass.
    rows: Vec<Row>,
    effort: Effort,
}

/// A sequence in the draft model's cache, with its draft.
struct DraftSlot {
    /// The slot in the batch that has the same sequence.
    slot: Option<usize>,
    session: Session,
    /// The number of first tokens that were checked to be in the draft model's vocabulary.
    sound: usize,
    /// The number of the latest request for this sequence; a smaller one is older.
    asked: u64,
    /// The number of tokens to draft; 0 if no draft is requested for this sequence.
    most: usize,
    draft: Vec<u32>,
    /// The sequence's head row in the last pass.
    head: Option<usize>,
}

impl DraftModel {
    /// A model loaded for as many sequences as it drafts for at a time. With several of them its passes have
    /// [`GROWN`] rows of logits for each.
    pub fn new(executor: Box<dyn Measure>) -> DraftModel {
        let extent = &executor.schedule().extent;
        let place = |sequence| DraftSlot {
            slot: None,
            session: Session::new(sequence as u32, extent.context),
            sound: 0,
            asked: 0,
            most: 0,
            draft: Vec::with_capacity(MOST_DRAFTED),
            head: None,
        };
        let places = (0..extent.sequences).map(place).collect();
        let rows = Vec::with_capacity(extent.max_rows);
        DraftModel { executor, places, asked: 0, rows, effort: Effort::default() }
    }
}

impl Proposer for DraftModel {
    fn begin(&mut self, slot: usize) {
        for place in self.places.iter_mut().filter(|place| place.slot == Some(slot)) {
            place.sound = 0;
            place.draft.clear();
        }
    }

    /// Handles the request in the draft sequence of the slot, or in the one that was requested least recently.
    fn ask(&mut self, request: DraftRequest<'_>) -> Result<()> {
        let DraftRequest { slot, tokens, most, .. } = request;
        let DraftModel { executor, places, asked, effort, .. } = self;
        *asked += 1;
        let best = places.iter_mut().min_by_key(|place| (place.slot != Some(slot), place.asked));
        let Some(place) = best else { return Ok(()) };
        place.asked = *asked;
        if place.slot != Some(slot) {
            (place.slot, place.sound) = (Some(slot), 0);
        }
        (place.most, place.head) = (0, None);
        place.draft.clear();
        let schedule = executor.schedule();
        // The last drafted token needs no position.
        let most = most.min((schedule.extent.context + 1).saturating_sub(tokens.len()));
        let known = place.sound.min(tokens.len());
        let vocab = schedule.shape.vocab;
        if most == 0 || tokens[known..].iter().any(|&token| token as usize >= vocab) {
            return Ok(());
        }
        place.sound = tokens.len();
        place.session.replace(executor.as_mut(), tokens)?;
        effort.caught_up |= place.session.pending() > MOST_DRAFTED + 1;
        place.most = most;
        Ok(())
    }

    fn make(&mut self, _: &mut dyn Executor) -> Result<()> {
        let made = self.catch_up().and_then(|()| self.grow());
        for place in self.places.iter_mut().filter(|place| place.most > 0) {
            place.most = 0;
            if made.is_err() {
                // Rows are committed before they run, so after a failure the cache must not be trusted.
                place.session.rewind(self.executor.as_mut(), 0);
                (place.head, place.sound) = (None, 0);
            }
        }
        made
    }

    fn copy_draft(&self, slot: usize, draft: &mut Vec<u32>) -> usize {
        draft.extend(self.places.iter().filter(|place| place.slot == Some(slot)).flat_map(|place| &place.draft));
        0
    }

    /// Always the same grade, because the drafts are not told apart by their quality.
    fn grade(&self) -> Option<usize> {
        Some(0)
    }

    fn most_sequences(&self) -> usize {
        self.places.len()
    }

    fn weight_bytes(&self) -> u64 {
        self.executor.schedule().weights.bytes()
    }

    fn vocab(&self) -> usize {
        self.executor.schedule().shape.vocab
    }

    fn take_effort(&mut self) -> Effort {
        std::mem::take(&mut self.effort)
    }
}

impl DraftModel {
    /// Runs the pending tokens of each sequence with a request. The last pass has the logits of all of them.
    fn catch_up(&mut self) -> Result<()> {
        let DraftModel { executor, places, rows, effort, .. } = self;
        let executor = executor.as_mut();
        let chunk = executor.prefill_rows();
        let wanted = places.iter().filter(|place| place.most > 0).count();
        let last = if wanted > 1 { GROWN } else { chunk };
        for place in places.iter_mut().filter(|place| place.most > 0) {
            while place.session.pending() > last {
                rows.clear();
                let depth = place.session.tokens().len();
                let chunk = executor.rows_at(depth).min(place.session.pending() - last);
                let count = place.session.propose(chunk, rows);
                executor.forward(rows, None)?;
                effort.bytes += executor.schedule().cost(PassShape::Prefill { rows: count, depth }).memory_bytes();
                place.session.commit(count);
            }
        }
        rows.clear();
        for place in places.iter_mut().filter(|place| place.most > 0) {
            let count = place.session.propose(last, rows);
            place.session.commit(count);
            place.head = Some(rows.len() - 1);
        }
        let Some(first) = rows.first() else { return Ok(()) };
        let depth = first.position as usize;
        let (head, pass) = match wanted {
            1 => {
                places.iter_mut().for_each(|place| place.head = place.head.map(|_| 0));
                (HeadRows { first: rows.len() - 1, count: 1 }, PassShape::Prefill { rows: rows.len(), depth })
            }
            _ => (HeadRows { first: 0, count: rows.len() }, PassShape::Decode { sequences: rows.len(), depth }),
        };
        let may_run_ahead = rows.len() == wanted && places.iter().all(|place| place.most != 1);
        effort.bytes += executor.schedule().cost(pass).memory_bytes();
        match may_run_ahead {
            true => executor.forward_ahead(rows, head).map(drop),
            false => executor.forward(rows, Some(head)),
        }
    }

    /// Takes a token for each draft from the last pass and runs the next pass, until all drafts are complete.
    fn grow(&mut self) -> Result<()> {
        let DraftModel { executor, places, rows, effort, .. } = self;
        let executor = executor.as_mut();
        loop {
            rows.clear();
            let mut may_run_ahead = true;
            for place in places.iter_mut().filter(|place| place.most > 0) {
                let Some(head) = place.head.take() else { continue };
                if !executor.is_finite(head) {
                    let cause = "the draft model's logits are not finite";
                    return Err(Error::failed(cause, text!("leave out ", Setting::Draft)));
                }
                let token = executor.next(head);
                place.draft.push(token);
                let left = place.most - place.draft.len();
                if left > 0 {
                    place.head = Some(rows.len());
                    rows.push(place.session.push_chosen(token));
                    place.session.commit(1);
                    may_run_ahead &= left > 1;
                }
            }
            let Some(first) = rows.first() else { return Ok(()) };
            let head = HeadRows { first: 0, count: rows.len() };
            let pass = PassShape::Decode { sequences: rows.len(), depth: first.position as usize };
            effort.bytes += executor.schedule().cost(pass).memory_bytes();
            match may_run_ahead {
                true => executor.forward_ahead(rows, head).map(drop)?,
                false => executor.forward(rows, Some(head))?,
            }
        }
    }
}

/// Checks that a draft model has the same tokens: every id in both vocabularies has the same spelling.
///
/// # Errors
/// Input, naming the first token that differs.
pub fn check_tokenizers(model: &Tokenizer, draft: &Tokenizer) -> Result<()> {
    let count = model.vocab_size().min(draft.vocab_size()) as u32;
    let Some(id) = (0..count).find(|&id| model.bytes(id) != draft.bytes(id)) else { return Ok(()) };
    let spelled = |tokenizer: &Tokenizer| display::plain(&String::from_utf8_lossy(&tokenizer.bytes(id)));
    Err(Error::input(
        format!("token {id} is `{}` to the model and `{}` to the draft model", spelled(model), spelled(draft)),
        text!("use a draft model with the model's own tokenizer, or leave out ", Setting::Draft),
    ))
}
