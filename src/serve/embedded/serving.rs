//! Places at which other programs can connect to an engine, opened and closed while it runs.

use super::Engine;
use crate::machine::threads;
use crate::serve::api::Api;
use crate::serve::http::{ApiKeys, Drainer, Guard, Limits, Listen, Server};
use crate::serve::service::Service;
use crate::{Error, Result};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Interval at which a file of keys is checked.
const LOOK: Duration = Duration::from_millis(500);

/// Open places of an engine. Dropping it closes them and ends their requests.
pub struct Serving {
    drainer: Drainer,
    places: Vec<String>,
    threads: Vec<JoinHandle<()>>,
    /// Dropped to end the thread that checks the keys.
    looks: Option<Sender<()>>,
    /// A reference that keeps the engine open. `None` for the sockets that the engine opened itself, and closes.
    _engine: Option<Arc<Engine>>,
}

impl Engine {
    /// Serves the engine over HTTP at the places of `listen`, with the keys in the file `keys` if given.
    ///
    /// # Errors
    /// Input: a place cannot be opened, is reachable from other machines without keys, or the file is not a file of
    /// keys. Failed: no thread can be started.
    pub fn serve(self: &Arc<Self>, listen: &[Listen], keys: Option<&Path>) -> Result<Serving> {
        if listen.is_empty() {
            return Err(Error::input("there is no place to listen at", "name one, as 127.0.0.1:8080"));
        }
        Serving::open(&self.service, listen, keys, Some(self.clone()))
    }
}

impl Serving {
    /// Opens the sockets as [`Engine::serve`] does, for the service of `engine`.
    pub(super) fn open(
        service: &Arc<Service>,
        listen: &[Listen],
        keys: Option<&Path>,
        engine: Option<Arc<Engine>>,
    ) -> Result<Serving> {
        let keys = keys.map(ApiKeys::read).transpose()?.unwrap_or_default();
        let guard = Guard { open_paths: Api::open_paths(), keys: keys.clone(), ..Guard::default() };
        let server = Server::bind(listen, Limits::default(), guard)?;
        let (drainer, places) = (server.drainer(), server.names());
        let api = Api::new(service.clone());
        let take = move || {
            // State left by the panic ends with the thread.
            if catch_unwind(AssertUnwindSafe(|| server.run(&api))).is_err() {
                log::error!("the thread that takes connections panicked");
            }
        };
        let mut serving =
            Serving { drainer, places, threads: vec![start("listen", take)?], looks: None, _engine: engine };
        if keys.are_needed() {
            let (looks, ended) = channel::<()>();
            serving.threads.push(start("keys", move || {
                while ended.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
                    keys.follow();
                }
            })?);
            serving.looks = Some(looks);
        }
        Ok(serving)
    }

    /// The open places. Port 0 has been replaced by the actual port.
    pub fn places(&self) -> &[String] {
        &self.places
    }

    /// Accepts no more connections, and returns when the open ones have ended. After `grace` they are cut.
    pub fn stop(mut self, grace: Duration) {
        self.end(grace);
    }

    fn end(&mut self, grace: Duration) {
        self.drainer.drain(grace);
        self.looks = None;
        for thread in self.threads.drain(..) {
            // The thread's panic has been caught.
            let _ = thread.join();
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.end(Duration::ZERO);
    }
}

/// Starts a thread of an engine.
pub(super) fn start<T: Send + 'static>(name: &str, work: impl FnOnce() -> T + Send + 'static) -> Result<JoinHandle<T>> {
    let started = thread::Builder::new().name(name.into()).spawn(work);
    started.map_err(|e| Error::failed(format!("a thread of the engine cannot be started: {e}"), threads::REMEDY))
}
