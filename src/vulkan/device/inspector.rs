//! The extension that reports the output of the driver's compiler.

use super::failure::failure;
use crate::{Error, Result};
use ash::khr::pipeline_executable_properties as extension;
use ash::vk;

/// The functions of the extension that reports the output of the driver's compiler.
pub(crate) type Inspector = extension::Device;

/// Fails if the driver lacks the extension that reports its compiler's output.
pub(crate) fn check_inspectable(instance: &ash::Instance, physical: vk::PhysicalDevice) -> Result<()> {
    // SAFETY: `physical` comes from this instance.
    let extensions = unsafe { instance.enumerate_device_extension_properties(physical) }
        .map_err(failure("list a device's extensions"))?;
    match extensions.iter().any(|e| e.extension_name_as_c_str() == Ok(extension::NAME)) {
        true => Ok(()),
        false => Err(Error::device("the driver does not tell what it compiles", "use one of Mesa's drivers")),
    }
}
