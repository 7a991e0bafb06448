//! Settings of the Vulkan executor beside the schedule's own, and what they leave to be measured.

use crate::gpu::device::Gpu;
use crate::gpu::lower::linear::{Target, Variant};
use crate::gpu::memory::arena;
use ash::vk;
use std::time::Duration;

/// Which kernels compute linear steps of INT8 weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Kernels {
    /// The fastest that the device has instructions for.
    #[default]
    Auto,
    /// f32 arithmetic.
    Float,
    /// Packed integer dot products.
    Dot,
    /// Matrix units where there are enough rows for them, f32 arithmetic else; without such units, all f32.
    Matrix,
    /// As above, multiplying bytes where the matrix units can and whole rows are at hand.
    Bytes,
}

/// Settings of the executor beside the schedule's own.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// The longest that one submit should keep the device busy.
    pub submit_budget: Duration,
    /// Uploads and results pass through staging even where the host maps the device's memory: so that this path can be
    /// tested on drivers that map everything.
    pub staged: bool,
    /// The kernels to use.
    pub kernels: Kernels,
    /// The variant of linear kernels to use wherever it can be, instead of what is measured.
    pub variant: Option<Variant>,
    /// Whether dispatches are relayed ([`crate::gpu::queue::record`]), instead of what is measured.
    pub relay: Option<bool>,
    /// Whether what can be chosen is measured, instead of where the device chooses its kernels.
    pub tune: Option<bool>,
    /// Where the arena's memory comes from.
    pub arena: arena::Source,
}

impl Default for Options {
    fn default() -> Self {
        // A quarter of amdgpu's shortest default lockup timeout.
        Options {
            submit_budget: Duration::from_millis(500),
            staged: false,
            kernels: Kernels::Auto,
            variant: None,
            relay: None,
            tune: None,
            arena: arena::Source::Auto,
        }
    }
}

impl Options {
    /// What the choice of kernels depends on before anything is measured.
    pub(crate) fn target(&self, gpu: &Gpu) -> Target {
        let hardware = gpu.caps.kind != vk::PhysicalDeviceType::CPU;
        let (dot, matrix) = match self.kernels {
            Kernels::Auto => (gpu.caps.dot_accelerated, hardware),
            Kernels::Float => (false, false),
            Kernels::Dot => (true, false),
            Kernels::Matrix | Kernels::Bytes => (false, true),
        };
        let units = gpu.caps.matrix.filter(|_| matrix);
        let mut target = Target::new(gpu.caps.subgroup, dot, units);
        if self.kernels == Kernels::Bytes {
            target.bytes.insert(usize::MAX, true);
        }
        Target { forced: self.variant, relay: self.relay == Some(true), ..target }
    }

    /// Whether anything of the target is left to be measured.
    pub(crate) fn tunes(&self, target: &Target) -> bool {
        let choice = target.dot || target.units.is_some();
        choice && self.tune.unwrap_or(self.kernels == Kernels::Auto && self.variant.is_none())
    }
}
