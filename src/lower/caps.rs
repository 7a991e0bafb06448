//! The capabilities of a device that lowering and replaying depend on, as its driver reports them.

use super::units::MatrixUnits;

/// The kinds of device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceKind {
    /// A GPU with its own memory.
    Discrete,
    /// A GPU that shares the CPU's memory.
    Integrated,
    /// A GPU of a virtual machine.
    Virtual,
    /// A CPU.
    Cpu,
    /// None of these.
    Other,
}

/// The properties of a device that Kiln depends on.
#[derive(Debug, Clone)]
pub struct Caps {
    /// The names of the device and of its driver.
    pub name: String,
    /// Whether the device is a GPU of its own, an integrated one, or the CPU.
    pub kind: DeviceKind,
    /// The number of lanes in a subgroup, which every kernel has.
    pub subgroup: u32,
    /// The largest allocation that the device allows, in bytes.
    pub max_allocation: u64,
    /// True if the device has a clock for timestamps.
    pub has_clock: bool,
    /// The matrix units, if it has any that the kernels can use.
    pub matrix: Option<MatrixUnits>,
    /// True if the device has instructions for packed integer dot products, and does not emulate them.
    pub dot_accelerated: bool,
    /// True if tuning tries relayed dispatches (shaders/relay.glsl) by default.
    pub tries_relay: bool,
    /// Whether a relayed dispatch starts after those before it and not beside them, by
    /// [`super::dispatch::Edge::Relayed`]. Then no workgroup spins, whatever the order in which the device starts them,
    /// and the result does not depend on the caches that a load bypasses. So on AMD, where RADV writes all of L2 back
    /// at every other edge, and where relay has not been run on hardware.
    pub relays_behind: bool,
    /// Identity of device, driver and all kernels' code, part of the name of the file of measurements: these hold only
    /// for the code that they were made with.
    pub cache_id: String,
}

impl Caps {
    /// True if the device is the CPU, behind a Vulkan driver.
    pub fn is_cpu(&self) -> bool {
        self.kind == DeviceKind::Cpu
    }
}
