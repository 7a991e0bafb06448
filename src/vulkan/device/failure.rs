//! Vulkan results as errors.

use crate::Error;
use crate::error::{Setting, text};
use ash::vk;

/// Turns a Vulkan result into an error. `what`: the operation that failed.
pub fn failure(what: &str) -> impl FnOnce(vk::Result) -> Error + '_ {
    move |r| {
        let remedy = match r {
            vk::Result::ERROR_DEVICE_LOST => {
                text!("see the kernel's log for a GPU reset, then run again; ", Setting::Cpu, " works without the GPU")
            }
            vk::Result::ERROR_OUT_OF_DEVICE_MEMORY | vk::Result::ERROR_OUT_OF_HOST_MEMORY => {
                text!("close what else uses this device's memory, or use a smaller model or ", Setting::Context)
            }
            _ => text!("check the driver with `vulkaninfo --summary`, or use ", Setting::Cpu),
        };
        Error::device(format!("Vulkan failed to {what}: {r}"), remedy)
    }
}
