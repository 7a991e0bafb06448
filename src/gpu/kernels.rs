//! The kernels: their checked-in SPIR-V, and the pipelines made from it, with the driver's cache kept on disk.

use super::device::{Gpu, failure};
use crate::{Error, Result};
use ash::vk;
use std::collections::HashMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of push constants, the least that every Vulkan device offers.
pub const PUSH_BYTES: usize = 128;

static PIPELINES_CREATED: AtomicU64 = AtomicU64::new(0);

/// Pipelines that this process has created: baking makes them, replaying must not.
pub fn pipelines_created() -> u64 {
    PIPELINES_CREATED.load(Ordering::Relaxed)
}

macro_rules! modules {
    ($($variant:ident $file:literal $doc:literal,)*) => {
        /// A SPIR-V module: one kernel for one set of formats. Its source's first lines say what it computes.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Module { $(#[doc = $doc] $variant,)* }

        impl Module {
            /// Every module.
            pub const ALL: &[Module] = &[$(Module::$variant,)*];

            /// Its name, that of its file in shaders/spv.
            pub fn name(self) -> &'static str {
                match self { $(Module::$variant => $file,)* }
            }

            /// Whether only devices with matrix units can make pipelines of it.
            pub fn needs_matrix_units(self) -> bool {
                use Module::*;
                matches!(
                    self,
                    LinearMatrixInt8
                        | LinearWideInt8
                        | LinearBytesInt8
                        | LinearBytesNarrowInt8
                        | AttendMatrixF16
                        | MatrixRate
                )
            }

            /// Whether its workgroups can wait for a dispatch that they start beside, and count themselves (relay.glsl).
            pub fn relays(self) -> bool {
                use Module::*;
                matches!(
                    self,
                    RmsNorm
                        | NormAdd
                        | NormAddNorm
                        | LinearDotInt8
                        | LinearDotGeluInt8
                        | LinearMatrixInt8
                        | LinearWideInt8
                        | LinearBytesInt8
                        | LinearBytesNarrowInt8
                        | AttendF16
                        | AttendF32
                        | Pack
                        | GatedGelu
                )
            }

            /// Whether it is told the stages of the dispatch that it waits for.
            pub fn takes_stages(self) -> bool {
                matches!(self, Module::LinearDotInt8 | Module::LinearDotGeluInt8)
            }

            fn spirv(self) -> &'static [u8] {
                match self { $(Module::$variant => include_bytes!(concat!("../../shaders/spv/", $file, ".spv")),)* }
            }
        }
    };
}

modules! {
    EmbedInt8 "embed_int8" "Token embedding from INT8 rows.",
    EmbedBf16 "embed_bf16" "Token embedding from BF16 rows.",
    RmsNorm "rms_norm" "RMSNorm.",
    NormAdd "norm_add" "RMSNorm, added to the residual.",
    NormAddNorm "norm_add_norm" "RMSNorm added to the residual, and the RMSNorm of that.",
    LinearInt8 "linear_int8" "Matrix product of few rows, INT8.",
    LinearBf16 "linear_bf16" "Matrix product of few rows, BF16.",
    LinearGeluInt8 "linear_gelu_int8" "Gate and up products of few rows with their gated GELU, INT8.",
    LinearGeluBf16 "linear_gelu_bf16" "Gate and up products of few rows with their gated GELU, BF16.",
    LinearDotInt8 "linear_dot_int8" "Matrix product of few rows by integer dot products, INT8.",
    LinearDotGeluInt8 "linear_dot_gelu_int8" "As above, gate and up with their gated GELU.",
    LinearDotTileInt8 "linear_dot_tile_int8" "Matrix product of many rows by integer dot products, INT8.",
    LinearTileInt8 "linear_tile_int8" "Matrix product of many rows, INT8.",
    LinearTileBf16 "linear_tile_bf16" "Matrix product of many rows, BF16.",
    HeadPrepareF16 "head_prepare_f16" "QK-norm, RoPE and KV write, f16 cache.",
    HeadPrepareF32 "head_prepare_f32" "QK-norm, RoPE and KV write, f32 cache.",
    AttendF16 "attend_f16" "Attention over an f16 cache.",
    AttendF32 "attend_f32" "Attention over an f32 cache.",
    Pack "pack" "A linear step's input into the form that its kernel reads.",
    GatedGelu "gated_gelu" "Gated GELU.",
    Argmax "argmax" "Greedy choice.",
    Softcap "softcap" "Logit softcap.",
    Read "read" "The read ceiling.",
    LinearMatrixInt8 "linear_matrix_int8" "Matrix product of many rows by matrix units, INT8.",
    LinearWideInt8 "linear_wide_int8" "As above, in tiles of 128 rows and more.",
    LinearBytesInt8 "linear_bytes_int8" "Matrix product of many rows by matrices of bytes, INT8.",
    LinearBytesNarrowInt8 "linear_bytes_narrow_int8" "As above, where they are 8 inputs wide.",
    AttendMatrixF16 "attend_matrix_f16" "Attention of consecutive rows by matrix units, f16 cache.",
    MatrixRate "matrix_rate" "The matrix units' ceiling.",
}

/// A pipeline: a module and the constants that it is specialised by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Kernel {
    /// The module.
    pub module: Module,
    /// Invocations of a workgroup (constant 0).
    pub workgroup: u32,
    /// Constants from 1 on; their meaning is the module's.
    pub constants: Constants,
}

impl Kernel {
    /// Index of the constant that says that a pass has one row (common.glsl).
    pub const SINGLE: usize = 7;
    /// Index of the constant that says how many stages of a relay `linear_dot_gelu` has.
    const STAGES: usize = 5;

    /// The stages in which its workgroups count themselves.
    pub fn stages(&self) -> usize {
        match self.module {
            Module::LinearDotGeluInt8 => self.constants[Kernel::STAGES] as usize,
            _ => 1,
        }
    }
}

/// Specialization constants of a kernel, from constant 1 on.
pub type Constants = [u32; 12];

/// The first constants as given, the others 0.
pub const fn constants<const N: usize>(first: [u32; N]) -> Constants {
    let mut all = [0; 12];
    let mut i = 0;
    while i < N {
        all[i] = first[i];
        i += 1;
    }
    all
}

/// Makes pipelines, each once, and keeps the driver's cache.
pub struct Pipelines {
    pub(super) gpu: Rc<Gpu>,
    /// The one layout: push constants only.
    pub layout: vk::PipelineLayout,
    cache: vk::PipelineCache,
    made: HashMap<Kernel, vk::Pipeline>,
    file: Option<PathBuf>,
}

/// The directory of Kiln's caches: `$KILN_CACHE_DIR`, else `kiln` in the user's cache directory; `None` without a home.
pub fn cache_directory() -> Option<PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    variable("KILN_CACHE_DIR")
        .or_else(|| variable("XDG_CACHE_HOME").map(|d| d.join("kiln")))
        .or_else(|| variable("HOME").map(|d| d.join(".cache/kiln")))
}

impl Pipelines {
    /// Starts from the cache file of this device and driver, if there is one.
    ///
    /// # Errors
    /// Device: the driver refuses.
    pub fn new(gpu: &Rc<Gpu>) -> Result<Pipelines> {
        let file = cache_directory().map(|d| d.join(format!("pipelines-{}.bin", gpu.caps.cache_id)));
        let data = file.as_ref().and_then(|f| std::fs::read(f).ok()).and_then(unseal).unwrap_or_default();
        let info = vk::PipelineCacheCreateInfo::default().initial_data(&data);
        let ranges =
            [vk::PushConstantRange::default().stage_flags(vk::ShaderStageFlags::COMPUTE).size(PUSH_BYTES as u32)];
        let layout_info = vk::PipelineLayoutCreateInfo::default().push_constant_ranges(&ranges);
        // SAFETY: the device lives as long as `gpu`; all structures live through the calls.
        unsafe {
            let cache = gpu.device.create_pipeline_cache(&info, None).map_err(failure("make a pipeline cache"))?;
            let layout = gpu.device.create_pipeline_layout(&layout_info, None).inspect_err(|_| {
                gpu.device.destroy_pipeline_cache(cache, None);
            });
            let layout = layout.map_err(failure("make a pipeline layout"))?;
            Ok(Pipelines { gpu: gpu.clone(), layout, cache, made: HashMap::new(), file })
        }
    }

    /// The pipeline of `kernel`, made at its first use.
    ///
    /// # Errors
    /// Device: the driver cannot compile it.
    pub fn get(&mut self, kernel: Kernel) -> Result<vk::Pipeline> {
        if let Some(&p) = self.made.get(&kernel) {
            return Ok(p);
        }
        let pipeline = self.create(kernel)?;
        self.made.insert(kernel, pipeline);
        Ok(pipeline)
    }

    fn create(&self, kernel: Kernel) -> Result<vk::Pipeline> {
        let name = kernel.module.name();
        let code = ash::util::read_spv(&mut std::io::Cursor::new(kernel.module.spirv()))
            .map_err(|e| Error::device(format!("the SPIR-V of {name} is damaged: {e}"), "rebuild Kiln"))?;
        let constants: Vec<u32> = [kernel.workgroup].into_iter().chain(kernel.constants).collect();
        let entries: Vec<_> = (0..constants.len() as u32)
            .map(|i| vk::SpecializationMapEntry::default().constant_id(i).offset(4 * i).size(4))
            .collect();
        let specialization =
            vk::SpecializationInfo::default().map_entries(&entries).data(bytemuck::cast_slice(&constants));
        let mut size = vk::PipelineShaderStageRequiredSubgroupSizeCreateInfo::default()
            .required_subgroup_size(self.gpu.caps.subgroup);
        let device = &self.gpu.device;
        let module_info = vk::ShaderModuleCreateInfo::default().code(&code);
        // SAFETY: the SPIR-V is the checked-in one; everything lives through the calls; the module is destroyed after use.
        unsafe {
            let module = device.create_shader_module(&module_info, None).map_err(failure("load a shader"))?;
            let mut stage = vk::PipelineShaderStageCreateInfo::default()
                .stage(vk::ShaderStageFlags::COMPUTE)
                .module(module)
                .name(c"main")
                .specialization_info(&specialization);
            if kernel.workgroup.is_multiple_of(self.gpu.caps.subgroup) {
                stage = stage.flags(vk::PipelineShaderStageCreateFlags::REQUIRE_FULL_SUBGROUPS);
            }
            if self.gpu.caps.subgroup_choice {
                stage = stage.push_next(&mut size);
            }
            let info = vk::ComputePipelineCreateInfo::default()
                .flags(self.gpu.pipeline_flags())
                .stage(stage)
                .layout(self.layout);
            let made = device.create_compute_pipelines(self.cache, &[info], None);
            device.destroy_shader_module(module, None);
            PIPELINES_CREATED.fetch_add(1, Ordering::Relaxed);
            let what = format!("compile the kernel {name}");
            made.map(|p| p[0]).map_err(|(_, r)| failure(&what)(r))
        }
    }

    /// Writes the driver's cache to disk, so that the next start compiles nothing. A failure costs only that.
    pub fn save(&self) {
        let Some(file) = &self.file else { return };
        // SAFETY: the cache is alive and not in use.
        let Ok(data) = (unsafe { self.gpu.device.get_pipeline_cache_data(self.cache) }) else { return };
        let data = seal(data);
        if std::fs::read(file).is_ok_and(|old| old == data) {
            return;
        }
        if write_cache(file, &data).is_none() {
            log::warn!("the pipeline cache {} cannot be written: every start compiles anew", file.display());
        }
    }
}

/// Writes a file of the cache directory, whole or not at all.
pub(super) fn write_cache(file: &std::path::Path, data: &[u8]) -> Option<()> {
    std::fs::create_dir_all(file.parent()?).ok()?;
    let part = file.with_extension(format!("{}.part", std::process::id()));
    let written = std::fs::write(&part, data).and_then(|()| std::fs::rename(&part, file));
    if written.is_err() {
        let _ = std::fs::remove_file(&part);
    }
    written.ok()
}

/// Puts a checksum before a driver's cache data: a driver may trust what lies behind a sound header of its own.
fn seal(data: Vec<u8>) -> Vec<u8> {
    [&checksum(&data).to_le_bytes(), &data[..]].concat()
}

/// The data of a sealed cache, if it is whole.
fn unseal(sealed: Vec<u8>) -> Option<Vec<u8>> {
    let (sum, data) = sealed.split_first_chunk::<8>()?;
    (u64::from_le_bytes(*sum) == checksum(data)).then(|| data.to_vec())
}

/// What tells one set of kernels from another: what was measured with other ones says nothing of these.
pub(super) fn fingerprint() -> u64 {
    Module::ALL.iter().fold(0, |sum: u64, module| sum.rotate_left(1) ^ checksum(module.spirv()))
}

/// FNV-1a.
fn checksum(data: &[u8]) -> u64 {
    data.iter().fold(0xcbf2_9ce4_8422_2325, |h, &b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3))
}

impl Drop for Pipelines {
    fn drop(&mut self) {
        if self.gpu.hung.get() {
            return;
        }
        // SAFETY: executors wait for the device before they drop their pipelines.
        unsafe {
            for &p in self.made.values() {
                self.gpu.device.destroy_pipeline(p, None);
            }
            self.gpu.device.destroy_pipeline_layout(self.layout, None);
            self.gpu.device.destroy_pipeline_cache(self.cache, None);
        }
    }
}
