//! sync_files: fences that drivers share, if the Vulkan driver exports and imports them.

use ash::vk;

/// The handle type of semaphores for other drivers.
pub(crate) const SYNC_FILE: vk::ExternalSemaphoreHandleTypeFlags = vk::ExternalSemaphoreHandleTypeFlags::SYNC_FD;

/// The device's functions for sync_files.
pub(crate) struct SyncFiles {
    pub(crate) functions: ash::khr::external_semaphore_fd::Device,
}

impl SyncFiles {
    /// Whether the driver exports and imports sync_files. `has`: it has the extension.
    pub(crate) fn detect(instance: &ash::Instance, physical: vk::PhysicalDevice, has: bool) -> bool {
        use vk::ExternalSemaphoreFeatureFlags as F;
        let info = vk::PhysicalDeviceExternalSemaphoreInfo::default().handle_type(SYNC_FILE);
        let mut properties = vk::ExternalSemaphoreProperties::default();
        // SAFETY: `physical` comes from this instance; both structures live through the call.
        unsafe { instance.get_physical_device_external_semaphore_properties(physical, &info, &mut properties) };
        has && properties.external_semaphore_features.contains(F::EXPORTABLE | F::IMPORTABLE)
    }

    /// Only for a device that was opened with the extension.
    pub(crate) fn new(instance: &ash::Instance, device: &ash::Device) -> SyncFiles {
        SyncFiles { functions: ash::khr::external_semaphore_fd::Device::new(instance, device) }
    }
}
