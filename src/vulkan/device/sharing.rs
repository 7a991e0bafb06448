//! dma-bufs: memory shared with other drivers, if the Vulkan driver supports them.

use crate::Result;
use crate::vulkan::device::failure::failure;
use ash::vk;
use std::ffi::CStr;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};

const DMA_BUF: vk::ExternalMemoryHandleTypeFlags = vk::ExternalMemoryHandleTypeFlags::DMA_BUF_EXT;

/// The usage flags with which every buffer is created.
pub(crate) const USAGE: vk::BufferUsageFlags = vk::BufferUsageFlags::from_raw(
    vk::BufferUsageFlags::STORAGE_BUFFER.as_raw()
        | vk::BufferUsageFlags::SHADER_DEVICE_ADDRESS.as_raw()
        | vk::BufferUsageFlags::TRANSFER_SRC.as_raw()
        | vk::BufferUsageFlags::TRANSFER_DST.as_raw(),
);

/// The device's support for sharing memory with other drivers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sharing {
    /// True if the device's memory can be exported as a dma-buf.
    pub exports: bool,
    /// True if a dma-buf can be imported as the device's memory.
    pub imports: bool,
}

impl Sharing {
    /// Queries the driver. `has`: whether the device has an extension.
    pub(crate) fn detect(
        instance: &ash::Instance,
        physical: vk::PhysicalDevice,
        has: impl Fn(&CStr) -> bool,
    ) -> Sharing {
        if !has(ash::khr::external_memory_fd::NAME) || !has(ash::ext::external_memory_dma_buf::NAME) {
            return Sharing::default();
        }
        let info = vk::PhysicalDeviceExternalBufferInfo::default().usage(USAGE).handle_type(DMA_BUF);
        let mut properties = vk::ExternalBufferProperties::default();
        // SAFETY: `physical` comes from this instance; both structures live through the call.
        unsafe { instance.get_physical_device_external_buffer_properties(physical, &info, &mut properties) };
        let features = properties.external_memory_properties.external_memory_features;
        Sharing {
            exports: features.contains(vk::ExternalMemoryFeatureFlags::EXPORTABLE),
            imports: features.contains(vk::ExternalMemoryFeatureFlags::IMPORTABLE),
        }
    }

    /// The device extensions that exporting and importing need.
    pub(crate) fn extensions(self) -> &'static [&'static CStr] {
        match self.exports || self.imports {
            true => &[ash::khr::external_memory_fd::NAME, ash::ext::external_memory_dma_buf::NAME],
            false => &[],
        }
    }
}

/// The device's functions for dma-bufs.
pub(crate) struct DmaBufs {
    functions: ash::khr::external_memory_fd::Device,
}

impl DmaBufs {
    /// The functions of `device`, which was opened with [`Sharing::extensions`]. Without these, calling them is
    /// undefined.
    pub(crate) fn new(instance: &ash::Instance, device: &ash::Device) -> DmaBufs {
        DmaBufs { functions: ash::khr::external_memory_fd::Device::new(instance, device) }
    }

    /// Bit set of the memory types that a dma-buf can be imported as.
    ///
    /// # Errors
    /// Device: the descriptor cannot be imported, or is not a dma-buf.
    pub(crate) fn memory_types(&self, fd: BorrowedFd<'_>) -> Result<u32> {
        let mut properties = vk::MemoryFdPropertiesKHR::default();
        // SAFETY: the descriptor is open; the driver only inspects it.
        unsafe { self.functions.get_memory_fd_properties(DMA_BUF, fd.as_raw_fd(), &mut properties) }
            .map_err(failure("look at a dma-buf"))?;
        Ok(properties.memory_type_bits)
    }

    /// The dma-buf of an allocation that was made for export.
    ///
    /// # Errors
    /// Device: the driver refuses.
    pub(crate) fn export(&self, memory: vk::DeviceMemory) -> Result<OwnedFd> {
        let info = vk::MemoryGetFdInfoKHR::default().memory(memory).handle_type(DMA_BUF);
        // SAFETY: the memory is this device's and was allocated for this handle type; the descriptor is new and owned
        // here.
        unsafe { self.functions.get_memory_fd(&info).map(|fd| OwnedFd::from_raw_fd(fd)) }
            .map_err(failure("export a dma-buf"))
    }
}

/// Marks a buffer whose memory is an imported or exported dma-buf.
pub(crate) fn buffer_info() -> vk::ExternalMemoryBufferCreateInfo<'static> {
    vk::ExternalMemoryBufferCreateInfo::default().handle_types(DMA_BUF)
}

/// Marks an allocation for export as a dma-buf.
pub(crate) fn export_info() -> vk::ExportMemoryAllocateInfo<'static> {
    vk::ExportMemoryAllocateInfo::default().handle_types(DMA_BUF)
}

/// Marks an allocation as an import of the dma-buf `fd`. The driver takes over the descriptor.
///
/// By the specification it does so only if the import succeeds, but lavapipe of Mesa 25.0 closes it on failure too. So
/// the descriptor is never closed here: leaking one when a load fails is better than closing an unrelated descriptor of
/// the same number.
pub(crate) fn import_info(fd: OwnedFd) -> vk::ImportMemoryFdInfoKHR<'static> {
    vk::ImportMemoryFdInfoKHR::default().handle_type(DMA_BUF).fd(fd.into_raw_fd())
}
