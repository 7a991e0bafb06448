//! Settings of the executor on a device. The defaults suit every use; tests force single choices.

use crate::lower::arithmetic::Arithmetic;
use crate::lower::caps::Caps;
use crate::lower::figures::Figures;
use crate::lower::target::{Target, Tile};
use crate::replay::driver::MemorySource;
use std::time::Duration;

/// When a device is measured to choose among its kernels' tiles. Stored measurements are used in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tune {
    /// For a few seconds before the first token, by descending benefit, and then while the executor is idle
    /// ([`crate::executor::Measure::improve`]).
    Auto,
    /// The model is tuned completely while it loads.
    Now,
    /// The model is tuned only while it is idle.
    Idle,
    /// The model is not tuned.
    Off,
}

/// The settings of an executor on a GPU.
#[derive(Debug, Clone, Copy)]
pub struct ReplayOptions {
    /// The longest time that one submit should keep the device busy.
    pub submit_budget: Duration,
    /// Uploads and results pass through staging even where the host maps the device's memory. Lets this path be tested
    /// on drivers that map everything.
    pub staged: bool,
    /// The arithmetic of products with quantised weights. `None`: the fastest that the device has instructions for.
    ///
    /// Matrix units take passes with enough rows; other passes are in f32. s8 takes products whose inputs are written
    /// in whole rows; other products are in f16.
    pub arithmetic: Option<Arithmetic>,
    /// A tile for every product that supports it. `None`: as tuned.
    pub tile: Option<Tile>,
    /// Whether a dispatch starts beside the one whose results it needs, and waits for them itself (shaders/relay.glsl).
    /// `None`: as tuned.
    pub relay: Option<bool>,
    /// When tiles and relay are tuned. `None`: [`Tune::Auto`]; if `arithmetic` or `tile` is given, nothing is tuned,
    /// and no stored measurement is used.
    pub tune: Option<Tune>,
    /// The source of the arena's and the KV cache's memory.
    pub arena: MemorySource,
    /// True if the host maps the KV cache where it can, so that an offload can read it.
    pub maps_kv: bool,
}

impl Default for ReplayOptions {
    fn default() -> Self {
        // A quarter of amdgpu's shortest default lockup timeout.
        ReplayOptions {
            submit_budget: Duration::from_millis(500),
            staged: false,
            arithmetic: None,
            tile: None,
            relay: None,
            tune: None,
            arena: MemorySource::Auto,
            maps_kv: false,
        }
    }
}

impl ReplayOptions {
    /// The kernels and tiles that are used before any tuning.
    pub(crate) fn target(&self, caps: &Caps) -> Target {
        let hardware = !caps.is_cpu();
        let (dot, matrix) = match self.arithmetic {
            None => (caps.dot_accelerated, hardware),
            Some(Arithmetic::F32) => (false, false),
            Some(Arithmetic::IntegerDot) => (true, false),
            Some(Arithmetic::Matrix(_)) => (false, true),
        };
        let units = caps.matrix.filter(|_| matrix);
        let figures = Figures::of(caps);
        let mut target = Target { figures, ..Target::new(caps.subgroup, dot, units) };
        if let Some(arithmetic @ Arithmetic::Matrix(_)) = self.arithmetic {
            target.chosen.insert(usize::MAX, arithmetic);
        }
        let relays = caps.tries_relay && figures.is_some_and(|f| f.relays) && self.tuning().is_some();
        Target { forced: self.tile, relay: self.relay.unwrap_or(relays), ..target }
    }

    /// When to tune; `None` if not even stored measurements are used.
    fn tuning(&self) -> Option<Tune> {
        let is_forced = self.arithmetic.is_some() || self.tile.is_some();
        self.tune.or((!is_forced).then_some(Tune::Auto))
    }

    /// When to tune, if there is something to choose; `None` if not even stored measurements are used.
    pub(crate) fn tunes(&self, target: &Target) -> Option<Tune> {
        self.tuning().filter(|_| target.dot || target.units.is_some())
    }
}
