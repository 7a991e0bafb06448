//! A build without Vulkan runs nothing on a GPU of NVIDIA's driver, and leaves its library alone.

use super::GpuSample;
use crate::machine::files::Files;

/// Stands for NVIDIA's library in a build without it.
#[derive(Default)]
pub(in crate::diagnose) struct NoLibrary {}
pub(in crate::diagnose) use NoLibrary as NvmlLibrary;

impl NoLibrary {
    /// Leaves the sample as it is: its fault says where the values are shown.
    pub(super) fn complete(&self, _: &Files, _: &str, _: &mut GpuSample) {}

    /// Always `None`: without NVIDIA's library, a GPU's energy is not known.
    pub(in crate::diagnose) fn energy(&self, _: &Files, _: &str) -> Option<f64> {
        None
    }

    /// Always `None`: without NVIDIA's library, a GPU's power is not known.
    pub(in crate::diagnose) fn power(&self, _: &Files, _: &str) -> Option<f64> {
        None
    }
}
