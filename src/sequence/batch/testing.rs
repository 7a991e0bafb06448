//! A batch as tests use it.

use super::{Batch, SequenceRequest};
use crate::Result;
use crate::executor::Executor;

impl Batch {
    /// Whether the pass after the last one is in flight.
    pub fn is_ahead(&self) -> bool {
        self.is_ahead
    }

    /// As [`Batch::join_of`], for a sequence whose cached tokens are public.
    ///
    /// # Errors
    /// As [`Batch::join_of`].
    pub fn join(&mut self, executor: &mut dyn Executor, request: SequenceRequest) -> Result<usize> {
        self.join_of(executor, request, None)
    }
}
