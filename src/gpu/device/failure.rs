//! Vulkan results as errors.

use crate::Error;
use ash::vk;

/// Turns a Vulkan result into an error: what was being done, and what the driver said.
pub fn failure(what: &str) -> impl FnOnce(vk::Result) -> Error + '_ {
    move |r| {
        let remedy = match r {
            vk::Result::ERROR_DEVICE_LOST => {
                "see the kernel's log for a GPU reset, then run again; `--device cpu` works without the GPU"
            }
            vk::Result::ERROR_OUT_OF_DEVICE_MEMORY | vk::Result::ERROR_OUT_OF_HOST_MEMORY => {
                "close what else uses this device's memory, or use a smaller model or --ctx"
            }
            _ => "check the driver with `vulkaninfo --summary`, or use `--device cpu`",
        };
        Error::device(format!("Vulkan failed to {what}: {r}"), remedy)
    }
}
