//! The server's health, for threads that do not wait for the engine.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The longest pass after which the server still counts as ready.
const LATE: Duration = Duration::from_secs(10);

/// The server's phase.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Phase {
    /// The model's weights are being read.
    Loading,
    /// The weights are loaded; the device is being measured.
    Tuning,
    /// The system prompt, if any, and a first token are being run.
    WarmingUp {
        /// True if a system prompt is being cached.
        has_prompt: bool,
    },
    /// Requests are answered.
    Ready,
    /// The weights were freed after a time without requests. The next request loads them again.
    Unloaded,
    /// The weights are being loaded again for a request.
    LoadingAgain,
    /// Requests in progress are completed, and new ones are refused.
    Draining,
    /// The engine has failed, and the process is ending.
    Failed(String),
}

impl Phase {
    /// The phase's name in the JSON of the health endpoint.
    pub fn name(&self) -> &'static str {
        self.described().0
    }

    /// The name in JSON, and the reason why requests are not answered, if there is one.
    fn described(&self) -> (&'static str, Option<&str>) {
        match self {
            Phase::Loading => ("loading", Some("the model is loading")),
            Phase::Tuning => ("tuning", Some("the device is being measured for the model")),
            Phase::WarmingUp { has_prompt: true } => ("loading", Some("the model reads the system prompt")),
            Phase::WarmingUp { has_prompt: false } => ("loading", Some("the model makes its first token")),
            Phase::Ready => ("ready", None),
            // An unloaded model counts as ready, because the next request loads it and is answered.
            Phase::Unloaded => ("unloaded", None),
            Phase::LoadingAgain => ("loading_again", None),
            Phase::Draining => ("draining", Some("the server is stopping")),
            Phase::Failed(why) => ("failed", Some(why)),
        }
    }
}

/// The server's phase and signs of life, which all threads update.
#[derive(Debug)]
pub struct Health {
    start: Instant,
    phase: Mutex<Phase>,
    /// Milliseconds from the start to the engine's last progress.
    progress: AtomicU64,
    /// True while sequences are running.
    works: AtomicBool,
    /// Milliseconds from the start to the first token; 0 before.
    first_token: AtomicU64,
}

impl Default for Health {
    fn default() -> Health {
        Health {
            start: Instant::now(),
            phase: Mutex::new(Phase::Loading),
            progress: AtomicU64::new(0),
            works: AtomicBool::new(false),
            first_token: AtomicU64::new(0),
        }
    }
}

impl Health {
    fn now(&self) -> u64 {
        self.start.elapsed().as_millis() as u64
    }

    fn phase_guard(&self) -> MutexGuard<'_, Phase> {
        self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The phase that the server is in now.
    pub fn phase(&self) -> Phase {
        self.phase_guard().clone()
    }

    /// Enters another phase. A server that is draining or has failed does not become ready again.
    pub(super) fn enter(&self, phase: Phase) {
        let mut now = self.phase_guard();
        let is_last = matches!(phase, Phase::Draining | Phase::Failed(_));
        if is_last || !matches!(*now, Phase::Draining | Phase::Failed(_)) {
            *now = phase;
        }
    }

    /// Records that the engine has finished a pass or found no work; `works`: whether it continues at once.
    pub(super) fn progress(&self, works: bool) {
        self.progress.store(self.now(), Ordering::Relaxed);
        self.works.store(works, Ordering::Relaxed);
    }

    /// Records the time of the first token; later calls do nothing.
    pub(super) fn note_first_token(&self) {
        let _ = self.first_token.compare_exchange(0, self.now().max(1), Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Time since the process began to serve.
    pub fn uptime(&self) -> Duration {
        self.start.elapsed()
    }

    /// Time from the start to the first token. `None` before.
    pub fn boot(&self) -> Option<Duration> {
        let millis = self.first_token.load(Ordering::Relaxed);
        (millis > 0).then(|| Duration::from_millis(millis))
    }

    /// The time that the engine has had work but made no progress. Zero without work.
    pub fn stalled(&self) -> Duration {
        match self.works.load(Ordering::Relaxed) {
            true => Duration::from_millis(self.now().saturating_sub(self.progress.load(Ordering::Relaxed))),
            false => Duration::ZERO,
        }
    }

    /// Checks that requests are answered in good time. `Err`: the reason why not.
    pub fn ready(&self) -> Result<(), String> {
        let (phase, stalled) = (self.phase(), self.stalled());
        match phase.described().1 {
            Some(why) => Err(why.to_owned()),
            None if phase == Phase::Ready && stalled > LATE => {
                Err(format!("the engine has made no progress for {} s", stalled.as_secs()))
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_ready_from_its_first_token_on_until_it_stops() {
        let health = Health::default();
        assert!(health.ready().unwrap_err().contains("loading") && health.boot().is_none());
        for (phase, name, said) in [
            (Phase::Tuning, "tuning", "the device is being measured"),
            (Phase::WarmingUp { has_prompt: true }, "loading", "reads the system prompt"),
            (Phase::WarmingUp { has_prompt: false }, "loading", "makes its first token"),
        ] {
            health.enter(phase.clone());
            assert_eq!(phase.name(), name);
            assert!(health.ready().unwrap_err().contains(said), "{phase:?}");
        }
        health.note_first_token();
        health.enter(Phase::Ready);
        assert_eq!((health.ready(), health.boot().is_some()), (Ok(()), true));
        for phase in [Phase::Unloaded, Phase::LoadingAgain] {
            health.enter(phase);
            assert!(health.ready().is_ok());
        }
        health.enter(Phase::Draining);
        health.enter(Phase::Ready);
        assert_eq!(health.phase(), Phase::Draining);
        health.enter(Phase::Failed("the GPU hangs".into()));
        assert_eq!(health.ready(), Err("the GPU hangs".into()));
    }

    #[test]
    fn an_engine_stalls_only_while_it_has_work() {
        let mut health = Health::default();
        health.enter(Phase::Ready);
        health.start -= Duration::from_secs(60);
        assert_eq!(health.stalled(), Duration::ZERO);
        health.works.store(true, Ordering::Relaxed);
        assert!(health.stalled() >= Duration::from_secs(60));
        assert!(health.ready().unwrap_err().contains("no progress for 60 s"));
        health.progress(true);
        assert!(health.ready().is_ok());
        health.progress(false);
        assert_eq!(health.stalled(), Duration::ZERO);
    }
}
