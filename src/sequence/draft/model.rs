//! Drafts of a smaller model with the same vocabulary, on the same device: what it takes to be the likeliest, token by token.
//!
//! It drafts greedily, whatever the reply's sampler. A drafted token is accepted where the larger model chooses that very
//! token, so that the reply is drawn from the larger model's distribution, with the random numbers of plain decoding.
//!
//! Its cache holds one sequence, the last one that it drafted for. Of a sequence that has grown it runs the new tokens; of
//! another one, those behind what both have in common. All drafted tokens but the last have been run: those that were right
//! are in the cache already, the others leave it with the next draft.

use super::{Effort, MOST_DRAFTED, Proposer};
use crate::display;
use crate::error::{Setting, text};
use crate::executor::{HeadRows, Measure, Row};
use crate::schedule::Pass;
use crate::sequence::session::Session;
use crate::text::Tokenizer;
use crate::{Error, Result};
use std::cell::RefCell;
use std::rc::Rc;

/// A loaded model that drafts.
struct DraftModel {
    executor: Box<dyn Measure>,
    session: Session,
    /// Rows of the pass that comes next.
    rows: Vec<Row>,
    /// The first so many tokens of the sequence were found to be in the vocabulary.
    sound: usize,
    effort: Effort,
}

/// A draft model, for the drafts of every slot of a batch.
#[derive(Clone)]
pub struct SharedModel(Rc<RefCell<DraftModel>>);

impl SharedModel {
    /// A model that is loaded for one sequence.
    pub fn new(executor: Box<dyn Measure>) -> SharedModel {
        let extent = &executor.schedule().extent;
        let (session, rows) = (Session::new(0, extent.context), Vec::with_capacity(extent.max_rows));
        SharedModel(Rc::new(RefCell::new(DraftModel { executor, session, rows, sound: 0, effort: Effort::default() })))
    }

    /// Tokens of its vocabulary.
    pub fn vocab(&self) -> usize {
        self.0.borrow().executor.schedule().shape.vocab
    }
}

impl std::fmt::Debug for SharedModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SharedModel")
    }
}

impl Proposer for SharedModel {
    fn begin(&mut self) {
        self.0.borrow_mut().sound = 0;
    }

    /// All drafts are of one grade.
    fn grade(&self) -> Option<usize> {
        Some(0)
    }

    fn propose(&mut self, tokens: &[u32], most: usize, draft: &mut Vec<u32>) -> Result<usize> {
        self.0.borrow_mut().draft(tokens, most, draft).map(|()| 0)
    }

    fn take_effort(&mut self) -> Effort {
        std::mem::take(&mut self.0.borrow_mut().effort)
    }
}

impl DraftModel {
    /// Appends `most` tokens that may follow `tokens` to `draft`, or as many as the context has room for.
    ///
    /// # Errors
    /// Interrupted: it was cancelled. Failed: the logits are not finite. Device: the device failed or was lost.
    fn draft(&mut self, tokens: &[u32], most: usize, draft: &mut Vec<u32>) -> Result<()> {
        let DraftModel { executor, session, rows, sound, effort } = self;
        let executor = executor.as_mut();
        let schedule = executor.schedule();
        // The last drafted token needs no position.
        let most = most.min((schedule.extent.context + 1).saturating_sub(tokens.len()));
        // Of two slots' sequences the one may be longer than what is known of the other.
        let known = (*sound).min(tokens.len());
        let vocab = schedule.shape.vocab;
        if most == 0 || tokens[known..].iter().any(|&token| token as usize >= vocab) {
            return Ok(());
        }
        *sound = tokens.len();
        let chunk = executor.prefill_rows();
        session.replace(executor, tokens)?;
        effort.caught_up |= session.pending() > MOST_DRAFTED + 1;
        while session.pending() > 0 {
            rows.clear();
            let count = session.propose(chunk, rows);
            let is_last = count == session.pending();
            let head = HeadRows { first: count - 1, count: 1 };
            match (is_last, most > 1) {
                (true, true) => executor.forward_ahead(rows, head)?,
                (true, false) => executor.forward(rows, Some(head))?,
                (false, _) => executor.forward(rows, None)?,
            }
            let depth = session.tokens().len();
            effort.bytes += executor.schedule().cost(Pass::Prefill { rows: count, depth }).memory_bytes();
            session.commit(count);
        }
        let head = HeadRows { first: 0, count: 1 };
        loop {
            if !executor.is_finite(0) {
                let cause = "the draft model's logits are not finite";
                return Err(Error::failed(cause, text!("leave out ", Setting::Draft)));
            }
            draft.push(executor.next(0));
            let left = most - draft.len();
            let Some(&token) = draft.last().filter(|_| left > 0) else { return Ok(()) };
            let row = session.push_chosen(token);
            match left {
                1 => executor.forward(&[row], Some(head))?,
                _ => executor.forward_ahead(&[row], head)?,
            }
            let depth = session.tokens().len();
            effort.bytes += executor.schedule().cost(Pass::Decode { sequences: 1, depth }).memory_bytes();
            session.commit(1);
        }
    }
}

/// Checks that a draft model's tokens are the model's own: each id that both vocabularies have spells the same.
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
