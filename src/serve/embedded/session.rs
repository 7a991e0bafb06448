//! A session's tokens in the engine's cache: brought there, written to a file, and read back.

use super::Engine;
use crate::executor::Executor;
use crate::sequence::Batch;
use crate::serve::http::ApiError;
use crate::serve::job::{Client, ReplyRequest};
use crate::serve::prefixes::session;
use crate::text::SamplerConfig;
use crate::{Cancel, Error, Result};
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::Arc;

/// How often a session is brought into the cache to be saved, where others' sequences take its pages at once.
const TRIES: usize = 8;

impl Engine {
    /// Brings `tokens` into the cache, as far as they are not there: what begins with them goes on from there. Returns how many
    /// were there. What the cache holds gives way to running replies where they need its room.
    ///
    /// # Errors
    /// Input: they are no prompt for this model. Refused: the queue is full. Interrupted: `cancel` is set. Failed: the engine
    /// has ended.
    pub fn sync(&self, tokens: &[u32], cancel: &Cancel) -> Result<usize> {
        let model = self.model()?;
        model.limits().check(0, tokens)?;
        let sought = tokens.to_vec();
        let holds = move |batch: &mut Batch, executor: &mut dyn Executor| batch.holder(executor, &sought).is_some();
        if self.service.on_engine(&model, holds).map_err(error_of)? {
            return Ok(tokens.len());
        }
        let ask = ReplyRequest {
            limit: 1,
            sampler: SamplerConfig::greedy(),
            ignore_eos: true,
            ..ReplyRequest::new(tokens.to_vec())
        };
        let (client, flag) = (Client::Address(IpAddr::V4(Ipv4Addr::UNSPECIFIED)), cancel.clone());
        let answers = self.service.submit(&model, &[ask], client, Arc::new(move || flag.is_set()));
        let done = answers.and_then(|answers| answers.gather());
        cancel.check_or("the call was cancelled")?;
        let ends = done.map_err(error_of)?.into_iter().filter_map(|whole| whole.end);
        Ok(ends.map(|end| end.cached_tokens).sum())
    }

    /// Writes `tokens` with their keys and values to a file, all of it or nothing, for [`Engine::load`].
    ///
    /// # Errors
    /// As [`Engine::sync`]. Input: there is something else at `path`. Refused: others' sequences leave the cache no room.
    /// Failed: the file cannot be written.
    pub fn save(&self, tokens: &[u32], path: &Path, cancel: &Cancel) -> Result<()> {
        session::check_place(path)?;
        let model = self.model()?;
        for _ in 0..TRIES {
            self.sync(tokens, cancel)?;
            let (sought, identity) = (tokens.to_vec(), model.identity);
            let copy =
                move |batch: &mut Batch, executor: &mut dyn Executor| session::copy(&sought, identity, batch, executor);
            if let Some(bytes) = self.service.on_engine(&model, copy).map_err(error_of)?? {
                return session::write(path, &bytes);
            }
        }
        Err(Error::refused("other sequences leave the session no room in the cache", "save it once they have ended"))
    }

    /// Puts what a file of [`Engine::save`] holds into the cache, and returns its tokens: what goes on after them is what it
    /// would have been where they were saved.
    ///
    /// # Errors
    /// Input: the file is none, or not of this model on this device. Refused: all places have replies. Failed: the engine has
    /// ended.
    pub fn load(&self, path: &Path) -> Result<Vec<u32>> {
        let model = self.model()?;
        let (identity, name) = (model.identity, path.to_owned());
        let bytes = session::read(path, identity)?;
        let put_in = move |batch: &mut Batch, executor: &mut dyn Executor| {
            session::restore(&name, bytes, identity, batch, executor)
        };
        let restored = self.service.on_engine(&model, put_in).map_err(error_of)??;
        restored.ok_or_else(|| {
            Error::refused(
                "no place is free for the session: replies are under way in all",
                "load it once one has ended",
            )
        })
    }
}

/// An error of the service, as a program of this process is told it.
fn error_of(e: ApiError) -> Error {
    let (message, remedy) = match e.message.rsplit_once("; ") {
        Some((message, remedy)) => (message.to_owned(), remedy.to_owned()),
        None => (e.message, "try again".to_owned()),
    };
    match e.status {
        503 => Error::refused(message, remedy),
        400..=499 => Error::input(message, remedy),
        _ => Error::failed(message, remedy),
    }
}
