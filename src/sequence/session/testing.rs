//! A session that runs its own passes, for tests.

use super::{Session, run_chunk};
use crate::Result;
use crate::executor::{Executor, ExecutorExt, HeadRows, Row};
use crate::schedule::Schedule;
use crate::sequence::counts;

impl Session {
    /// Appends a pending token.
    ///
    /// # Errors
    /// Input: it is outside of the vocabulary, or the context is full.
    pub fn push(&mut self, schedule: &Schedule, token: u32) -> Result<()> {
        self.append(schedule, &[token])
    }

    /// As [`Session::replace`], and runs the pending tokens. The executor's head row 0 then has the last token's
    /// logits. Returns the number of tokens kept.
    ///
    /// # Errors
    /// As [`Session::replace`]. Interrupted: it was cancelled. Device: the device failed. After an error the session
    /// holds only the prefix that was kept.
    pub fn sync(&mut self, executor: &mut dyn Executor, tokens: &[u32]) -> Result<usize> {
        let kept = self.replace(executor, tokens)?;
        self.run_waiting(executor, &mut run_chunk)?;
        Ok(kept)
    }

    /// Runs one token. The executor's head row 0 then has its logits. Allocates nothing.
    ///
    /// # Errors
    /// Input: the context is full. Interrupted: it was cancelled. Device: the device failed.
    pub fn decode(&mut self, executor: &mut dyn Executor, token: u32) -> Result<()> {
        self.push(executor.schedule(), token)?;
        let row = Row { token, position: self.held as u32, sequence: self.sequence };
        let run = executor.forward(&[row], Some(HeadRows { first: 0, count: 1 }));
        if run.is_err() {
            self.tokens.truncate(self.held);
            return run;
        }
        counts::count_decoded(1);
        self.commit(1);
        Ok(())
    }
}
