//! Places where other programs reach an engine, opened and closed while it runs.

use super::Engine;
use crate::machine::threads;
use crate::serve::api::Api;
use crate::serve::http::{ApiKeys, Drainer, Guard, Limits, Listen, Server};
use crate::{Error, Result};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// How often a file of keys is looked at.
const LOOK: Duration = Duration::from_millis(500);

/// Places where others reach an engine. Dropped, it closes them and ends what is under way there.
pub struct Serving {
    drainer: Drainer,
    places: Vec<String>,
    threads: Vec<JoinHandle<()>>,
    /// Its drop ends the thread that looks at the keys.
    looks: Option<Sender<()>>,
    /// The engine is there as long as it is served.
    _engine: Arc<Engine>,
}

impl Engine {
    /// Lets others reach the engine by HTTP at the places of `listen`, with a key of the file `keys` where there is one.
    ///
    /// # Errors
    /// Input: a place cannot be had, other machines reach one and no keys guard it, or the file is none of keys. Failed: no
    /// thread can be started.
    pub fn serve(self: &Arc<Self>, listen: &[Listen], keys: Option<&Path>) -> Result<Serving> {
        if listen.is_empty() {
            return Err(Error::input("there is no place to listen at", "name one, as 127.0.0.1:8080"));
        }
        let keys = keys.map(ApiKeys::read).transpose()?.unwrap_or_default();
        let guard = Guard { open_paths: Api::open_paths(), keys: keys.clone(), ..Guard::default() };
        let server = Server::bind(listen, Limits::default(), guard)?;
        let (drainer, places) = (server.drainer(), server.names());
        let api = Api::new(self.service.clone());
        let take = move || {
            // What the panic left unfinished ends with the thread.
            if catch_unwind(AssertUnwindSafe(|| server.run(&api))).is_err() {
                log::error!("the thread that takes connections panicked");
            }
        };
        let mut serving =
            Serving { drainer, places, threads: vec![start("listen", take)?], looks: None, _engine: self.clone() };
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
}

fn start(name: &str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    let started = thread::Builder::new().name(name.into()).spawn(work);
    started.map_err(|e| Error::failed(format!("a thread of the server cannot be started: {e}"), threads::REMEDY))
}

impl Serving {
    /// Where it listens. A port that was 0 is the one that was free.
    pub fn places(&self) -> &[String] {
        &self.places
    }

    /// Takes no more connections, and returns once those that there are have ended: after `grace` they are cut.
    pub fn stop(mut self, grace: Duration) {
        self.end(grace);
    }

    fn end(&mut self, grace: Duration) {
        self.drainer.drain(grace);
        self.looks = None;
        for thread in self.threads.drain(..) {
            // Its panic was caught.
            let _ = thread.join();
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.end(Duration::ZERO);
    }
}
