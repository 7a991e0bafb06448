//! How the server does, as threads that do not wait for the engine can tell.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long the engine may take over a pass before the server counts as not ready.
const LATE: Duration = Duration::from_secs(10);

/// What the server is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Phase {
    /// It reads the weights.
    Loading,
    /// The weights are there; the device is measured.
    Tuning,
    /// The device is measured, too. The system prompt runs, where there is one, and a first token is made.
    WarmingUp {
        /// There is a system prompt.
        has_prompt: bool,
    },
    /// It answers.
    Ready,
    /// Nobody asked for a while, so the weights are not in memory. It answers, once they are.
    Unloaded,
    /// Somebody asked, and it reads the weights again.
    LoadingAgain,
    /// It completes what it has begun, and takes nothing new.
    Draining,
    /// The engine has failed, and the process ends.
    Failed(String),
}

impl Phase {
    /// Its word in JSON.
    pub fn name(&self) -> &'static str {
        match self {
            Phase::Loading | Phase::WarmingUp { .. } => "loading",
            Phase::Tuning => "tuning",
            Phase::Ready => "ready",
            Phase::Unloaded => "unloaded",
            Phase::LoadingAgain => "loading_again",
            Phase::Draining => "draining",
            Phase::Failed(_) => "failed",
        }
    }
}

/// What is known of the server's health.
#[derive(Debug)]
pub struct Health {
    start: Instant,
    phase: Mutex<Phase>,
    /// Milliseconds from the start to the engine's last progress.
    progress: AtomicU64,
    /// The engine has sequences that run.
    works: AtomicBool,
    /// From the start to the first token; 0 before.
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

    /// What the server is doing.
    pub fn phase(&self) -> Phase {
        self.phase_guard().clone()
    }

    /// Goes on to another phase. A server that drains or has failed does not become ready again.
    pub(super) fn enter(&self, phase: Phase) {
        let mut now = self.phase_guard();
        let is_last = matches!(phase, Phase::Draining | Phase::Failed(_));
        if is_last || !matches!(*now, Phase::Draining | Phase::Failed(_)) {
            *now = phase;
        }
    }

    /// The engine has done a pass, or found nothing to do; `works` says whether it goes on at once.
    pub(super) fn progress(&self, works: bool) {
        self.progress.store(self.now(), Ordering::Relaxed);
        self.works.store(works, Ordering::Relaxed);
    }

    /// The first token is there.
    pub(super) fn note_first_token(&self) {
        let _ = self.first_token.compare_exchange(0, self.now().max(1), Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Time since the process began to serve.
    pub fn uptime(&self) -> Duration {
        self.start.elapsed()
    }

    /// Time from there to the first token. `None`: there was none yet.
    pub fn boot(&self) -> Option<Duration> {
        let millis = self.first_token.load(Ordering::Relaxed);
        (millis > 0).then(|| Duration::from_millis(millis))
    }

    /// How long the engine has made no progress although it has work. Zero without work.
    pub fn stalled(&self) -> Duration {
        match self.works.load(Ordering::Relaxed) {
            true => Duration::from_millis(self.now().saturating_sub(self.progress.load(Ordering::Relaxed))),
            false => Duration::ZERO,
        }
    }

    /// Whether requests are answered in good time. `Err`: why not.
    pub fn ready(&self) -> Result<(), String> {
        match self.phase() {
            Phase::Ready if self.stalled() > LATE => {
                Err(format!("the engine has made no progress for {} s", self.stalled().as_secs()))
            }
            // A request is answered, if later: whoever asks this and sends none elsewhere is right.
            Phase::Ready | Phase::Unloaded | Phase::LoadingAgain => Ok(()),
            Phase::Loading => Err("the model is loading".into()),
            Phase::Tuning => Err("the device is being measured for the model".into()),
            Phase::WarmingUp { has_prompt: true } => Err("the model reads the system prompt".into()),
            Phase::WarmingUp { has_prompt: false } => Err("the model makes its first token".into()),
            Phase::Draining => Err("the server is stopping".into()),
            Phase::Failed(why) => Err(why),
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
