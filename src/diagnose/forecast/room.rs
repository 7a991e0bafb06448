//! Checks whether models fit a device of this machine, without measuring it.

use super::form::ModelForm;
use crate::Result;
use crate::engine::{self, Device, ModelFiles, Options};
use crate::machine::heaps::{DeviceMemory, host_memory};
use crate::vulkan::memory::heaps;

/// The memory of a device of this machine.
pub(crate) struct DeviceRoom {
    memory: DeviceMemory,
    /// Whether uploads go through staging; `None` if there is no device.
    staged: Option<bool>,
}

impl DeviceRoom {
    /// The memory of this machine's `device`.
    ///
    /// # Errors
    /// Device: there is none.
    pub(crate) fn here(device: Device) -> Result<DeviceRoom> {
        Ok(match engine::open(device)?.gpu {
            Some(gpu) => DeviceRoom { memory: heaps::describe(&gpu), staged: Some(heaps::needs_staging(&gpu)) },
            None => DeviceRoom { memory: host_memory(), staged: None },
        })
    }

    /// The device's name.
    pub(crate) fn device(&self) -> &str {
        &self.memory.device
    }

    /// Checks whether a model fits when it is loaded as by `kiln run`. Returns the bytes that it needs.
    ///
    /// # Errors
    /// Refused: it does not fit; the message has the sum. Input: its files are damaged or not of a Gemma 3.
    pub(crate) fn fit(&self, files: &ModelFiles) -> Result<u64> {
        let (options, shape) = (Options::default(), files.shape()?);
        let form = ModelForm::of_files(files, &shape, options.weights, self.staged);
        form.fit(options.extent(&shape)?, &self.memory).map(|(_, plan)| plan.bytes())
    }
}
