//! The memory budget of requests: their bodies and parsed JSON.
//!
//! Memory is counted when it is used, not when it is announced, over all connections. A client may use as much as is
//! left for the others, so half of the budget if it is alone, and no client can use up all of it.

use super::error::ApiError;
use super::request::Client;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The number of bytes that all requests together may take in memory.
#[derive(Debug)]
pub(super) struct MemoryBudget {
    /// The limit for all requests, in bytes.
    most: usize,
    /// The limit for the parsed JSON of one request, in bytes.
    most_parsed: usize,
    /// The number of bytes that each client's requests take now.
    held: Mutex<HashMap<Client, usize>>,
}

impl MemoryBudget {
    /// A budget of `most` bytes for all requests, and of `most_parsed` for the parsed JSON of one.
    pub fn new(most: usize, most_parsed: usize) -> MemoryBudget {
        MemoryBudget { most, most_parsed, held: Mutex::default() }
    }

    fn held(&self) -> MutexGuard<'_, HashMap<Client, usize>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of bytes that all requests take now.
    #[cfg(test)]
    pub fn taken(&self) -> usize {
        self.held().values().sum()
    }
}

/// A request's share of the budget, returned when it is dropped.
#[derive(Debug)]
pub(super) struct Share {
    budget: Arc<MemoryBudget>,
    client: Client,
    bytes: usize,
}

impl Share {
    /// A share of no bytes yet, which is charged to `client`.
    pub fn new(budget: Arc<MemoryBudget>, client: Client) -> Share {
        Share { budget, client, bytes: 0 }
    }

    /// The limit for the parsed JSON of one request, in bytes.
    pub fn most_parsed(&self) -> usize {
        self.budget.most_parsed
    }

    /// Takes `bytes` more.
    ///
    /// # Errors
    /// 503: they are not available, or would leave the others less than this client has.
    pub fn take(&mut self, bytes: usize) -> Result<(), ApiError> {
        let mut held = self.budget.held();
        let left = self.budget.most.saturating_sub(held.values().sum());
        let own = held.get(&self.client).copied().unwrap_or(0).saturating_add(bytes);
        if bytes > left || own > left - bytes {
            return Err(ApiError::overloaded(
                "the requests under way take as much memory as the server gives to them; try again soon",
            ));
        }
        held.insert(self.client, own);
        drop(held);
        self.bytes += bytes;
        Ok(())
    }

    /// Returns `bytes` to the budget.
    pub fn give_back(&mut self, bytes: usize) {
        self.bytes -= bytes;
        let mut held = self.budget.held();
        if let Some(own) = held.get_mut(&self.client) {
            *own -= bytes;
            if *own == 0 {
                held.remove(&self.client);
            }
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.give_back(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_has_at_most_what_it_leaves_to_others_and_gives_back_what_it_had() {
        let budget = Arc::new(MemoryBudget::new(100, 10));
        let share = |user| Share::new(budget.clone(), Client::User(user));
        let (mut first, mut again, mut other) = (share(1), share(1), share(2));
        first.take(30).unwrap();
        assert_eq!(again.take(21).unwrap_err().status, 503, "51 of 100 would leave 49");
        again.take(20).unwrap();
        assert_eq!(other.take(26).unwrap_err().code, Some("overloaded"));
        other.take(25).unwrap();
        assert_eq!(share(3).take(usize::MAX).unwrap_err().status, 503);
        assert_eq!(budget.taken(), 75);
        first.give_back(10);
        drop((again, other));
        assert_eq!(budget.taken(), 20);
        drop(first);
        assert!(budget.held().is_empty());
    }
}
