//! What a device can do, as far as lowering and replaying depend on it. Its driver says so.

use super::units::MatrixUnits;

/// What a device is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceKind {
    /// A GPU with memory of its own.
    Discrete,
    /// A GPU that shares the processor's memory.
    Integrated,
    /// A GPU that a virtual machine is lent.
    Virtual,
    /// The processor.
    Cpu,
    /// None of these.
    Other,
}

/// The properties of a device that Kiln depends on.
#[derive(Debug, Clone)]
pub struct Caps {
    /// The device's and its driver's name.
    pub name: String,
    /// What it is.
    pub kind: DeviceKind,
    /// Lanes of a subgroup, for every kernel.
    pub subgroup: u32,
    /// The largest allocation, in bytes.
    pub max_allocation: u64,
    /// Whether it has a clock that stamps are read from.
    pub has_clock: bool,
    /// The matrix units, if it has any that the kernels can use.
    pub matrix: Option<MatrixUnits>,
    /// Whether packed integer dot products are native instructions of the device.
    pub dot_accelerated: bool,
    /// Whether relay (shaders/relay.glsl) is tried without being asked for.
    pub tries_relay: bool,
    /// Whether a relayed dispatch starts behind those before it and not beside them: by [`super::dispatch::Edge::Relayed`]. It
    /// then waits for nobody, in whatever order a device starts workgroups, nor hangs anything on which caches a load passes by.
    /// So on AMD, where RADV writes all of L2 back at any other edge, and where no relay has run on the hardware.
    pub relays_behind: bool,
    /// Identity of device and driver; names the files that are kept for them.
    pub cache_id: String,
}

impl Caps {
    /// Whether it computes on the processor.
    pub fn is_cpu(&self) -> bool {
        self.kind == DeviceKind::Cpu
    }
}
