//! Reports the output of a driver's compiler for a kernel: registers, spills, occupancy, machine code. A correct kernel
//! can still be useless on a GPU that its author does not have; the compiler shows that without the GPU.
//!
//! Only a device opened by [`crate::vulkan::Gpu::open_for_inspection`] makes the driver keep this, at a cost that other
//! devices avoid.

use crate::lower::kernels::Kernel;
use crate::vulkan::device::failure;
use crate::vulkan::device::inspector::Inspector;
use crate::vulkan::pipelines::{Compiler, Pipelines};
use crate::{Error, Result};
use ash::vk;
use std::ffi::CStr;

/// One compiled kernel.
#[derive(Debug, Clone, PartialEq)]
pub struct CompiledKernel {
    /// The driver's figures, by the driver's names.
    pub statistics: Vec<(String, f64)>,
    /// The driver's texts, by name: its intermediate representations and the machine code.
    pub texts: Vec<(String, String)>,
}

impl CompiledKernel {
    /// The figure of that name.
    pub fn figure(&self, name: &str) -> Option<f64> {
        self.statistics.iter().find(|(n, _)| n == name).map(|&(_, value)| value)
    }

    /// The text of that name.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.texts.iter().find(|(n, _)| n == name).map(|(_, text)| text.as_str())
    }
}

impl Pipelines {
    /// Compiles `kernel` and reads the driver's statistics and texts.
    ///
    /// # Errors
    /// Device: the driver cannot compile it, or the device was not opened for inspection.
    pub fn inspect(&mut self, kernel: Kernel) -> Result<CompiledKernel> {
        let pipeline = self.get(&[kernel])?[0];
        let inspector = self.gpu.inspector.as_ref();
        let inspector = inspector
            .ok_or_else(|| Error::device("the device was not opened for inspection", "open it for inspection"))?;
        // A compute pipeline is one executable.
        let info = vk::PipelineExecutableInfoKHR::default().pipeline(pipeline).executable_index(0);
        // SAFETY: the pipeline is alive and was made with both capture flags.
        let statistics = unsafe { inspector.get_pipeline_executable_statistics(&info) };
        let statistics = statistics.map_err(failure("tell what it compiled"))?;
        let statistics = statistics.iter().map(|s| (text(s.name_as_c_str()), number(s))).collect();
        Ok(CompiledKernel { statistics, texts: read_texts(inspector, &info)? })
    }

    /// The driver's pipeline cache entry for `kernel`, with its machine code. Drivers do not cache pipelines with
    /// captured statistics, so the device must not have been opened for inspection.
    ///
    /// # Errors
    /// Device: the driver cannot compile it.
    pub fn cached(&self, kernel: Kernel) -> Result<Vec<u8>> {
        let device = &self.gpu.device;
        let info = vk::PipelineCacheCreateInfo::default();
        // SAFETY: the device lives as long as `self`; the pipeline and the cache are used only here, and destroyed
        // once.
        unsafe {
            let cache = device.create_pipeline_cache(&info, None).map_err(failure("make a pipeline cache"))?;
            let data = Compiler::new(&self.gpu, cache, self.layout).compile(kernel).and_then(|pipeline| {
                device.destroy_pipeline(pipeline, None);
                device.get_pipeline_cache_data(cache).map_err(failure("tell what it compiled"))
            });
            device.destroy_pipeline_cache(cache, None);
            data
        }
    }
}

fn text(s: std::result::Result<&CStr, std::ffi::FromBytesUntilNulError>) -> String {
    s.unwrap_or_default().to_string_lossy().into_owned()
}

fn number(s: &vk::PipelineExecutableStatisticKHR<'_>) -> f64 {
    // SAFETY: `format` names the member of the union that the driver has written.
    unsafe {
        match s.format {
            vk::PipelineExecutableStatisticFormatKHR::BOOL32 => f64::from(s.value.b32),
            vk::PipelineExecutableStatisticFormatKHR::INT64 => s.value.i64 as f64,
            vk::PipelineExecutableStatisticFormatKHR::UINT64 => s.value.u64 as f64,
            _ => s.value.f64,
        }
    }
}

fn read_texts(inspector: &Inspector, info: &vk::PipelineExecutableInfoKHR<'_>) -> Result<Vec<(String, String)>> {
    // SAFETY: the pipeline is alive and was made with the capture flag; without memory to write to, the call returns
    // sizes.
    let mut texts = unsafe { inspector.get_pipeline_executable_internal_representations(info) }
        .map_err(failure("tell what it compiled"))?;
    let mut bytes: Vec<Vec<u8>> = texts.iter().map(|t| vec![0; t.data_size]).collect();
    for (t, b) in texts.iter_mut().zip(&mut bytes) {
        t.p_data = b.as_mut_ptr().cast();
    }
    let mut count = texts.len() as u32;
    // SAFETY: `count` structures, each with `data_size` bytes to write to, which live through the call.
    let read = unsafe {
        (inspector.fp().get_pipeline_executable_internal_representations_khr)(
            inspector.device(),
            info,
            &mut count,
            texts.as_mut_ptr(),
        )
    };
    read.result().map_err(failure("tell what it compiled"))?;
    let texts = texts.iter().zip(&bytes).filter(|(t, _)| t.is_text == vk::TRUE);
    Ok(texts
        .map(|(t, b)| {
            let end = b.iter().position(|&c| c == 0).unwrap_or(b.len());
            (text(t.name_as_c_str()), String::from_utf8_lossy(&b[..end]).into_owned())
        })
        .collect())
}
