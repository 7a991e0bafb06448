//! The handles that callers hold: numbers, each used once.

use crate::fault::Fault;
use kiln::serve::embedded::{Engine, EngineSession, Serving};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

/// The values that handles of one kind stand for.
pub(crate) struct Handles<T> {
    kind: &'static str,
    /// The function that gives such a handle.
    maker: &'static str,
    all: LazyLock<RwLock<HashMap<u64, Arc<T>>>>,
}

/// The next number. Odd numbers are no addresses of structures, which a caller may pass by mistake.
static NEXT: AtomicU64 = AtomicU64::new(1);

pub(crate) static ENGINES: Handles<Engine> = Handles::new("engine", "kiln_engine_open");
pub(crate) static SESSIONS: Handles<EngineSession> = Handles::new("session", "kiln_session_new");
pub(crate) static SERVERS: Handles<Serving> = Handles::new("server", "kiln_serve_start");

impl<T> Handles<T> {
    const fn new(kind: &'static str, maker: &'static str) -> Handles<T> {
        Handles { kind, maker, all: LazyLock::new(RwLock::default) }
    }

    pub fn add(&self, what: Arc<T>) -> u64 {
        let number = NEXT.fetch_add(2, Ordering::Relaxed);
        self.all.write().unwrap_or_else(PoisonError::into_inner).insert(number, what);
        number
    }

    pub fn get(&self, number: u64) -> Result<Arc<T>, Fault> {
        let all = self.all.read().unwrap_or_else(PoisonError::into_inner);
        all.get(&number).cloned().ok_or_else(|| self.unknown(number))
    }

    pub fn take(&self, number: u64) -> Result<Arc<T>, Fault> {
        let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
        all.remove(&number).ok_or_else(|| self.unknown(number))
    }

    fn unknown(&self, number: u64) -> Fault {
        let kind = self.kind;
        match number {
            0 => Fault::input(format!("the {kind} is NULL"), format!("pass one that {} gave", self.maker)),
            _ => Fault::input(
                format!("the {kind} was given back already, or is none"),
                "keep a handle until its last use",
            ),
        }
    }
}
